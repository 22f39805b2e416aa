"""A session with a Redfish service: describe the system, command it, read its log. Runs in a process of its own.

What such a process promises is `child.py`; how a request goes out and where it never goes is `redfish_http.py`. The resources
are declared with sushy's fields, and little of each, so that little can be in the way: sushy's own `System` asks the service
for more than is needed, and shows no power state where, say, the time of the last boot is malformed.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from activities.power.bmc.child import OperationError, run, write_line
from activities.power.bmc.redfish_http import REFUSALS, Service

# The package without its __init__, which would load all of it and `requests`: 250 ms and memory instead of 50 ms.
_package = importlib.util.find_spec("sushy")
assert _package is not None
sys.modules.setdefault("sushy", importlib.util.module_from_spec(_package))
logging.getLogger("sushy").addHandler(logging.NullHandler())  # as that __init__ does: what it would write down are answers

from sushy.resources import base, common  # noqa: E402 - see above

SYSTEMS = "/redfish/v1/Systems"

STATES = {"On": "on", "PoweringOn": "on", "Off": "off"}
"""Nothing can be concluded from what else a service says: PoweringOff is not off (S3)."""

RESETS = {"off": ("ForceOff",), "on": ("On", "ForceOn")}

UNSUPPORTED_MESSAGES = ("ActionNotSupported", "ActionParameter", "NotInList")
"""Parts of the message ids of the standard's Base registry that refuse the reset type itself and not the moment."""

NO_UUIDS = (UUID(int=0), UUID(int=2**128 - 1))

ENTRIES_READ = 500
"""The newest; a service may keep many thousands."""
PAGES = 20
RESERVE = 0.5
"""Seconds that are left for the answer to be handed over."""

Get = Callable[..., Any]


class Systems(base.ResourceBase):
    """The collection of all systems; `count` may say that it goes on."""

    members = base.Field("Members", default=[])
    count = base.Field("Members@odata.count", default=0)


class System(base.ResourceBase):
    """One machine: its state and which one it is."""

    own_path = base.Field("@odata.id")
    power_state = base.Field("PowerState")
    uuid = base.Field("UUID")


class _Actions(base.CompositeField):
    reset = common.ResetActionField("#ComputerSystem.Reset")


class SystemActions(base.ResourceBase):
    """What can be asked of it."""

    actions = _Actions("Actions")


class SystemManagers(base.ResourceBase):
    managers = base.Field(["Links", "ManagedBy"], default=[])


class LogHolder(base.ResourceBase):
    """What may keep logs: a system, or its manager."""

    log_services = base.Field(["LogServices", "@odata.id"], default=None)


class LogService(base.ResourceBase):
    entries = base.Field(["Entries", "@odata.id"], default=None)


class Collection(base.ResourceBase):
    """A collection, or one page of it; `further` is where it goes on."""

    members = base.Field("Members", default=[])
    further = base.Field("Members@odata.nextLink", default=None)


class RedfishSession:
    """One system of one service. Each request carries the credentials: no session is opened that could be left over."""

    def __init__(self, device: dict[str, Any]) -> None:
        self._service = Service(device)
        self._path = device["system"] or self._only_system()
        self._described: Any = None
        """What the service has said of the system since the last command."""

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["operation"] == "read":
            return self._state()
        if asked["operation"] == "event-log":
            return self._event_log(asked["ends"])
        return self._command(asked)

    def close(self) -> None:
        """There is nothing to log out of."""

    def _get(self, declared: Any, path: str, document: Any = None) -> Any:
        try:
            return declared(self._service, path, json_doc=document)
        except OperationError:
            raise
        except Exception as error:  # the library says in many ways that a document has not the form that it should have
            reason = self._service.excerpt(f"{path} is not described as the standard has it ({type(error).__name__}: {error})")
            raise OperationError("Transient", reason) from error

    def _only_system(self) -> str:
        collection = self._get(Systems, SYSTEMS)
        members = collection.members if isinstance(collection.members, list) else []
        paths = [str(member["@odata.id"]) for member in members if isinstance(member, dict) and "@odata.id" in member]
        count = collection.count if isinstance(collection.count, int) else len(members)
        if len(paths) != 1 or len(members) != 1 or count not in (0, 1):
            found = self._service.excerpt(f"{max(len(members), count)}: {', '.join(paths)}") if members else "none"
            raise OperationError("InvalidConfig", f"expected one system only, or parameter 'system'; there are {found}")
        return paths[0]

    def _system(self) -> Any:
        system = self._get(System, self._path)
        # The right victim (S9): a service may answer to any name with a machine of its choice.
        if isinstance(system.own_path, str) and plain(system.own_path) != plain(self._path):
            other = self._service.excerpt(system.own_path)
            raise OperationError("InvalidConfig", f"the service answered for {self._path} with {other}")
        write_line(stage="admitted")
        self._described = system
        return system

    def _state(self) -> dict[str, str | None]:
        system = self._system()
        written, system_uuid = system.power_state, known_uuid(system.uuid)
        if written is None:
            return {"state": "unknown", "detail": "the service names no power state", "system_uuid": system_uuid}
        state = STATES.get(written, "unknown") if isinstance(written, str) else "unknown"
        return {
            "state": state,
            "detail": "" if written in ("On", "Off") else f"the service says {self._service.excerpt(written)}",
            "system_uuid": system_uuid,
        }

    def _command(self, asked: dict[str, Any]) -> dict[str, str]:
        """By the description in which the caller has compared which machine it is, where there is one: what the service says of
        the system and what is commanded belong together (S39)."""
        wanted = asked["operation"]
        described, self._described = self._described or self._system(), None
        system = self._get(SystemActions, self._path, described.json)
        reset = system.actions and system.actions.reset
        if not reset:
            raise OperationError("NotSupported", f"{self._path} offers no reset")
        self._refuse_reset_of_another(reset.target_uri)
        answer = self._service.post_once(asked, reset.target_uri, {"ResetType": self._reset_type(wanted, system, reset)})
        status = answer.status_code
        if 200 <= status < 300:
            return {"detail": f"accepted (HTTP {status})"}
        if status in REFUSALS:
            kind, reason = REFUSALS[status]
            raise OperationError(kind, self._service.refusal_text(answer, reason))
        if status in {301, 302, 307, 308}:
            raise OperationError(
                "NotSupported", self._service.refusal_text(answer, "the service redirects the command, which is not followed")
            )
        if not 400 <= status < 500:
            raise OperationError("Ambiguous", self._service.refusal_text(answer, "the service's answer leaves open what it did"))
        if self._is_already(wanted):
            return {"detail": f"the service refuses, for the machine is {wanted} already (HTTP {status})"}
        ids, _ = answer.error_parts()
        if status in {404, 410} or any(part in ids for part in UNSUPPORTED_MESSAGES):
            raise OperationError("NotSupported", self._service.refusal_text(answer, "the service does not know this command"))
        raise OperationError("Transient", self._service.refusal_text(answer, "the service refuses this in its present state"))

    def _refuse_reset_of_another(self, target: Any) -> None:
        """A service that mixes up its machines would have us switch off the wrong one (S9). Where else than beneath its system an
        action may be is the service's affair."""
        own, reset = plain(self._path) + "/", plain(str(target)) + "/"
        if reset.startswith(own.rstrip("/").rpartition("/")[0] + "/") and not reset.startswith(own):
            named = self._service.excerpt(target)
            raise OperationError("InvalidConfig", f"{self._path} is not commanded: its reset is {named}, another system's")

    def _reset_type(self, wanted: str, system: Any, reset: Any) -> str:
        try:
            allowed = reset.get_allowed_values(system)
        except (OperationError, TypeError, AttributeError):
            allowed = None  # a list that cannot be read forbids nothing: the service will say so itself
        types = RESETS[wanted]
        found = next((name for name in types if not allowed or name in allowed), None)
        if found is None:
            offered = self._service.excerpt(", ".join(map(str, allowed or ())))
            raise OperationError("NotSupported", f"{self._path} does not take {' or '.join(types)}: it takes {offered}")
        return found

    def _is_already(self, wanted: str) -> bool:
        """Services differ in what they answer to on for a machine that is on, so it is read and not guessed."""
        try:
            return wanted == self._state()["state"]
        except OperationError:
            return False

    def _event_log(self, ends: float) -> dict[str, Any]:
        system = self._system()
        try:
            managers = self._get(SystemManagers, self._path, system.json).managers
            holders = [str(manager["@odata.id"]) for manager in managers]
        except (OperationError, TypeError, KeyError):
            holders = []  # the system may have a log of its own
        return {"text": read_event_log(self._get, self._service.excerpt, [self._path, *holders], ends)}


def plain(path: str) -> str:
    """A path for comparing: services do not agree on slashes at its end, nor with themselves on letters."""
    return urlsplit(path).path.rstrip("/").lower()


def known_uuid(value: Any) -> str | None:
    try:
        known = UUID(value)
    except (ValueError, TypeError, AttributeError):
        return None
    return str(known) if known not in NO_UUIDS else None


# The event log of a machine: read once, the newest entries in the order of their moments.
#
# A log hangs on the system or on its manager (DSP0266, LogService); which of several is the machine's own event log is not said
# in the same way by all services, so all of them are read. Entries of which a collection has no more than the link are fetched
# one by one.


def read_event_log(get: Get, excerpt: Callable[[object], str], holders: list[str], ends: float) -> str:
    """A line for each entry. get: reads a resource; holders: the paths of the system and of its managers; ends: on the monotonic
    clock. Raises OperationError where none of them keeps a log."""
    entries: list[tuple[str, str]] = []
    whole, found = True, False
    for holder in holders:
        for path in _logs(get, holder):
            found = True
            for entry in _entries(get, path):
                entries.append(_log_line(entry, excerpt))
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
    services = get(LogHolder, holder).log_services
    if not services:
        return
    for path in _links(get(Collection, services).members):
        if entries := get(LogService, path).entries:
            yield entries


def _entries(get: Get, path: str) -> Iterator[dict[str, Any]]:
    for _ in range(PAGES):
        page = get(Collection, path)
        for member in page.members if isinstance(page.members, list) else []:
            if isinstance(member, dict):
                yield member if {"Created", "Message"} & member.keys() else _fetched(get, member)
        if not page.further:
            return
        path = page.further


def _fetched(get: Get, member: dict[str, Any]) -> dict[str, Any]:
    link = member.get("@odata.id")
    found: dict[str, Any] = get(Collection, link).json if isinstance(link, str) else {}
    return found


def _links(members: object) -> list[str]:
    listed = members if isinstance(members, list) else []
    return [str(member["@odata.id"]) for member in listed if isinstance(member, dict) and "@odata.id" in member]


def _log_line(entry: dict[str, Any], excerpt: Callable[[object], str]) -> tuple[str, str]:
    """When, and the line. What an entry does not say is left out."""
    created = entry.get("Created") or entry.get("EventTimestamp") or ""
    words = [created, entry.get("Severity"), entry.get("SensorType"), entry.get("MessageId"), entry.get("Message")]
    return str(created), " ".join(excerpt(word) for word in words if word)


def main() -> None:
    """What `fork_server.py` calls in a child."""
    run(RedfishSession)
