"""Who asked a real API server to delete what: read from its audit log, where the simulated one has its own log of requests.

`write_policy` makes the file for kube-apiserver's `--audit-policy-file`; `--audit-log-path` names the file that `AuditLog` reads.
The server writes a line for each request before it ends the answer, as long as `--audit-log-mode` is `blocking`, its default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from simulator.api.control.request_log import Write
from simulator.api.moments import parse

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    # Level Request: the preconditions of a deletion are in its body. Of other requests nothing: bodies may hold secrets.
    "rules": [{"level": "Request", "verbs": ["delete", "deletecollection"]}, {"level": "None"}],
}


def write_policy(path: Path) -> None:
    """Deletions with their options, and nothing else."""
    path.write_text(json.dumps(POLICY))


class AuditLog:
    """The audit log of an API server that was started with the policy above."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def deletions(self) -> Sequence[Write]:
        """All requests to delete something, in the order in which they ended, refused ones too."""
        return [_write(event) for event in self._events()]

    def _events(self) -> Iterator[dict[str, Any]]:
        if not self._path.exists():
            return  # the server makes the file with its first line
        for line in self._path.read_text().splitlines(keepends=True):
            # A line without its end is being written.
            if line.endswith("\n") and (event := json.loads(line))["stage"] == "ResponseComplete":
                yield event


def _write(event: dict[str, Any]) -> Write:
    options = event.get("requestObject") or {}
    return Write(
        method="DELETE",
        path=unquote(urlsplit(event["requestURI"]).path),
        user_agent=event.get("userAgent", ""),
        status=(event.get("responseStatus") or {}).get("code", 0),
        time=parse(event["stageTimestamp"]),
        verb=event["verb"],
        resource=event["objectRef"]["resource"],
        user=event["user"].get("username", ""),
        preconditions=options.get("preconditions") or {},
    )
