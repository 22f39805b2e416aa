"""What a real API server wrote of deletions reads like the log of the simulated one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simulator.audit_log import POLICY, AuditLog, write_policy

MACHINES = "/apis/machine.openshift.io/v1beta1/namespaces/openshift-machine-api/machines"


def event(
    uri: str, *, status: int = 200, verb: str = "delete", preconditions: dict[str, str] | None = None, **changes: Any
) -> str:
    """A line as kube-apiserver 1.36 writes it."""
    document = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Request",
        "stage": "ResponseComplete",
        "requestURI": uri,
        "verb": verb,
        "user": {"username": "admin", "uid": "admin", "groups": ["system:masters", "system:authenticated"]},
        "userAgent": "nodewarden/0.1.0",
        "objectRef": {"resource": "machines", "namespace": "openshift-machine-api", "apiGroup": "machine.openshift.io"},
        "responseStatus": {"metadata": {}, "code": status},
        "requestReceivedTimestamp": "2026-11-22T20:17:39.688317Z",
        "stageTimestamp": "2026-11-22T20:17:39.692118Z",
        **changes,
    }
    if preconditions is not None:
        document["requestObject"] = {"kind": "DeleteOptions", "preconditions": preconditions}
    return json.dumps(document) + "\n"


def test_who_asked_for_a_deletion_under_which_conditions_and_what_came_of_it(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    assert log.deletions == [], "the file comes with its first line"
    granted = event(f"{MACHINES}/m-1?timeout=10s", preconditions={"uid": "u-1", "resourceVersion": "612"})
    refused = event(f"{MACHINES}/m%2D2", status=409, userAgent="a person", user={"username": "eve"})
    at_once = event(MACHINES, verb="deletecollection")
    panicked = event(f"{MACHINES}/m-3", stage="Panic")
    (tmp_path / "audit.log").write_text(granted + refused + panicked + at_once + event(f"{MACHINES}/m-4")[:-30])
    first, second, third = log.deletions
    assert (first.path, first.status, first.user_agent, first.user) == (f"{MACHINES}/m-1", 200, "nodewarden/0.1.0", "admin")
    assert first.preconditions == {"uid": "u-1", "resourceVersion": "612"}
    assert first.time == datetime(2026, 11, 22, 20, 17, 39, 692118, tzinfo=UTC)
    assert (second.path, second.status, second.user_agent, second.user) == (f"{MACHINES}/m-2", 409, "a person", "eve")
    assert (second.preconditions, second.resource, second.method) == ({}, "machines", "DELETE")
    assert (third.path, third.verb) == (MACHINES, "deletecollection")


def test_the_policy_writes_down_nothing_but_deletions(tmp_path: Path) -> None:
    """S12: the bodies of other requests hold secrets."""
    write_policy(tmp_path / "policy.json")
    policy = json.loads((tmp_path / "policy.json").read_text())
    assert policy == POLICY
    *named, rest = policy["rules"]
    assert [rule["verbs"] for rule in named] == [["delete", "deletecollection"]]
    assert rest == {"level": "None"}
