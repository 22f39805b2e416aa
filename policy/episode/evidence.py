"""Which parts of objects are kept as evidence of a machine's failure, and under which file names.

`activities/cluster/acts/evidence.py`, `activities/power/service.py` and `activities/evidence_directory.py` read and write
the evidence; `workflows/preservation/story.py` has the order, and nothing waits for it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from policy.fence.drivers.contract import names_a_credential
from policy.values.times import moment_of

LONGEST_NAME, KEPT_OF_LONGER = 100, 80
"""Characters of one part of a path: below what every file system takes."""

HIDDEN = "(not kept)"
"""Replaces text that may be a secret."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""A copy of the whole object in one string, where nothing can be hidden by its name."""

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_FIRST_BOOT = frozenset({"userdata", "customdata", "cloudinit", "ignition"})
"""Configuration for a machine's first boot carries the tokens with which it joins the cluster."""

_PRIVATE_KEY = re.compile(r"-----BEGIN (?P<what>[A-Z ]*PRIVATE KEY)-----.*?(?:-----END (?P=what)-----|\Z)", re.DOTALL)

Object = Mapping[str, Any]


def safe_name(text: str) -> str:
    """One part of a path for any text: never empty, hidden or a step up, and different for different texts."""
    spelled = "".join(each if each in _PLAIN else _escaped(each) for each in text)
    if not spelled:
        return "%"  # no escape is that short
    if spelled.startswith("."):
        spelled = _escaped(".") + spelled[1:]
    if len(spelled) <= LONGEST_NAME:
        return spelled
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{spelled[:KEPT_OF_LONGER]}%-{digest}"


def without_private_keys(text: str) -> str:
    """A console's text without the private keys that a first boot may have printed there."""
    return _PRIVATE_KEY.sub(f"-----{HIDDEN}-----", text)


def without_secrets(document: Object) -> dict[str, Any]:
    """An API object as it is kept: without managedFields and without fields that are named like a credential (S12)."""
    metadata = {key: value for key, value in (document.get("metadata") or {}).items() if key != "managedFields"}
    if LAST_APPLIED in (annotations := metadata.get("annotations") or {}):
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != LAST_APPLIED}
    kept: dict[str, Any] = _kept({**document, "metadata": metadata})
    return kept


def timeline(node: Object | None, machine: Object | None, events: Iterable[Object]) -> list[dict[str, str]]:
    """The changes in their order of time: conditions of Node and Machine, the machine's last operation, Events.

    Changes without a moment are left out.
    """
    entries = [*_changes("Node", node), *_changes("Machine", machine), *(entry for each in events for entry in _event(each))]
    dated = [(moment, entry) for entry in entries if (moment := moment_of(entry["at"])) is not None]
    return [entry for _, entry in sorted(dated, key=lambda each: each[0])]


def last_seen_at(event: Object) -> str:
    """When an Event was last seen, as it is written there; "" if it does not say."""
    series = event.get("series") or {}
    moments = (series.get("lastObservedTime"), *(event.get(key) for key in ("lastTimestamp", "eventTime", "firstTimestamp")))
    return next((str(each) for each in moments if moment_of(each) is not None), "")


def _changes(kind: str, document: Object | None) -> Iterator[dict[str, str]]:
    status = (document or {}).get("status") or {}
    for each in status.get("conditions") or ():
        what = f"{each.get('type', '')} is {each.get('status', '')}: {each.get('reason', '')}: {each.get('message', '')}"
        yield {"at": str(each.get("lastTransitionTime") or ""), "of": kind, "what": what}
    for key in ("currentStatus", "lastOperation"):
        each = status.get(key) or {}
        what = ": ".join(str(each[part]) for part in ("phase", "type", "state", "description") if each.get(part))
        yield {"at": str(each.get("lastUpdateTime") or ""), "of": kind, "what": f"{key}: {what}"}


def _event(event: Object) -> Iterator[dict[str, str]]:
    kind = str((event.get("involvedObject") or {}).get("kind") or "")
    source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    count = f" ({event['count']} times)" if int(event.get("count") or 1) > 1 else ""
    what = f"{event.get('reason', '')}: {event.get('message', '')}{count}, says {source}"
    yield {"at": last_seen_at(event), "of": f"Event on {kind}", "what": what}


def _kept(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        named = value.get("name")
        if isinstance(named, str) and names_a_credential(named) and isinstance(value.get("value"), str):
            return {**value, "value": HIDDEN}
        return {each: _kept(inner, f"{key}.{each}") for each, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_kept(each, key) for each in value]
    return HIDDEN if isinstance(value, str) and _hides(key) else value


def _hides(path: str) -> bool:
    """path: the keys of the value, joined by dots. A label's key may have dots of its own: then its last part is judged."""
    last = path.rpartition(".")[2]
    plain = last.lower().replace("-", "").replace("_", "")
    return names_a_credential(last) or plain in _FIRST_BOOT or path.endswith("bootstrap.data")


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode(errors="surrogatepass"))
