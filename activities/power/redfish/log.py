"""The event log of a machine as Redfish services keep it: read once, the newest entries in the order of their moments.

A log hangs on the system or on its manager (DSP0266, LogService); which of several is the machine's own event log is not told the
same way by all services, so all of them are read. Entries of which a collection has no more than the link are fetched one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from activities.power.processes.operation_child import OperationError
from activities.power.redfish import resources

ENTRIES_READ = 500
"""The newest; a service may keep many thousands."""
PAGES = 20
RESERVE = 0.5
"""Seconds that are left for the answer to be handed over."""

Get = Callable[..., Any]


def read_event_log(get: Get, excerpt: Callable[[object], str], holders: list[str], ends: float) -> str:
    """A line for each entry. get: reads a resource; holders: the paths of the system and of its managers; ends: on the monotonic
    clock. Raises OperationError where none of them keeps a log."""
    entries: list[tuple[str, str]] = []
    whole, found = True, False
    for holder in holders:
        for path in _logs(get, holder):
            found = True
            for entry in _entries(get, path):
                entries.append(_told(entry, excerpt))
                if time.monotonic() > ends - RESERVE:
                    whole = False
                    break
    if not found:
        raise OperationError("NotSupported", f"{holders[0]} has no event log, and neither has its manager")
    lines = [line for _, line in sorted(entries)]  # no order is promised
    if len(lines) > ENTRIES_READ or not whole:
        lines = [*lines[-ENTRIES_READ:], f"({min(len(lines), ENTRIES_READ)} of {len(lines)} entries or more were kept)"]
    return "".join(f"{line}\n" for line in lines)


def _logs(get: Get, holder: str) -> Iterator[str]:
    """The paths of the entries of each log there."""
    services = get(resources.LogHolder, holder).log_services
    if not services:
        return
    for path in _links(get(resources.Collection, services).members):
        if entries := get(resources.LogService, path).entries:
            yield entries


def _entries(get: Get, path: str) -> Iterator[dict[str, Any]]:
    for _ in range(PAGES):
        page = get(resources.Collection, path)
        for member in page.members if isinstance(page.members, list) else []:
            if isinstance(member, dict):
                yield member if {"Created", "Message"} & member.keys() else _fetched(get, member)
        if not page.further:
            return
        path = page.further


def _fetched(get: Get, member: dict[str, Any]) -> dict[str, Any]:
    link = member.get("@odata.id")
    found: dict[str, Any] = get(resources.Collection, link).json if isinstance(link, str) else {}
    return found


def _links(members: object) -> list[str]:
    listed = members if isinstance(members, list) else []
    return [str(member["@odata.id"]) for member in listed if isinstance(member, dict) and "@odata.id" in member]


def _told(entry: dict[str, Any], excerpt: Callable[[object], str]) -> tuple[str, str]:
    """When, and the line. What an entry does not say is left out."""
    created = entry.get("Created") or entry.get("EventTimestamp") or ""
    words = [created, entry.get("Severity"), entry.get("SensorType"), entry.get("MessageId"), entry.get("Message")]
    return str(created), " ".join(excerpt(word) for word in words if word)
