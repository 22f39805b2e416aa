"""One Redfish operation: look at the system, act. Runs in a process of its own, for `driver.py`.

What such a process promises is `processes/operation_child.py`; how a request goes out and where it never goes is
`transport.py`; what is read of the answers is `resources.py`.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from activities.power.processes.operation_child import OperationError, run, say
from activities.power.redfish import resources
from activities.power.redfish.log import read_event_log
from activities.power.redfish.transport import REFUSALS, Service

SYSTEMS = "/redfish/v1/Systems"

STATES = {"On": "on", "PoweringOn": "on", "Off": "off"}
"""Whatever else a service says is no state that anything could be concluded from: PoweringOff is not off (S3)."""

RESETS = {"off": ("ForceOff",), "on": ("On", "ForceOn")}

UNSUPPORTED_MESSAGES = ("ActionNotSupported", "ActionParameter", "NotInList")
"""Parts of the message ids of the standard's Base registry that refuse the reset type itself and not the moment."""

NO_UUIDS = (UUID(int=0), UUID(int=2**128 - 1))


class RedfishOperation:
    """One operation on one system."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._name = request["operation"]
        self._ends = request["ends"]
        self._service = Service(request)
        self._path = request["system"] or self._only_system()

    def answer(self) -> dict[str, Any]:
        """Do it."""
        if self._name == "read":
            return self._state()
        if self._name == "identity":
            return self._identity()
        if self._name == "event-log":
            return self._event_log()
        return self._command()

    def _get(self, declared: Any, path: str, document: Any = None) -> Any:
        try:
            return declared(self._service, path, json_doc=document)
        except OperationError:
            raise
        except Exception as error:  # the library says in many ways that a document has not the form that it should have
            reason = self._service.excerpt(f"{path} is not described as the standard has it ({type(error).__name__}: {error})")
            raise OperationError("Transient", reason) from error

    def _only_system(self) -> str:
        collection = self._get(resources.Systems, SYSTEMS)
        members = collection.members if isinstance(collection.members, list) else []
        paths = [str(member["@odata.id"]) for member in members if isinstance(member, dict) and "@odata.id" in member]
        count = collection.count if isinstance(collection.count, int) else len(members)
        if len(paths) != 1 or len(members) != 1 or count not in (0, 1):
            found = self._service.excerpt(f"{max(len(members), count)}: {', '.join(paths)}") if members else "none"
            raise OperationError("InvalidConfig", f"expected one system only, or parameter 'system'; there are {found}")
        return paths[0]

    def _system(self) -> Any:
        system = self._get(resources.System, self._path)
        # The right victim (S9): a service may answer to any name with a machine of its choice.
        if isinstance(system.own_path, str) and plain(system.own_path) != plain(self._path):
            other = self._service.excerpt(system.own_path)
            raise OperationError("InvalidConfig", f"the service answered for {self._path} with {other}")
        say(stage="admitted")
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

    def _command(self) -> dict[str, str]:
        system = self._get(resources.SystemActions, self._path, self._system().json)
        reset = system.actions and system.actions.reset
        if not reset:
            raise OperationError("NotSupported", f"{self._path} offers no reset")
        self._refuse_reset_of_another(reset.target_uri)
        answer = self._service.post_once(reset.target_uri, {"ResetType": self._reset_type(system, reset)})
        status = answer.status_code
        if 200 <= status < 300:
            return {"detail": f"accepted (HTTP {status})"}
        if status in REFUSALS:
            kind, reason = REFUSALS[status]
            raise OperationError(kind, self._service.told(answer, reason))
        if status in {301, 302, 307, 308}:
            raise OperationError(
                "NotSupported", self._service.told(answer, "the service redirects the command, which is not followed")
            )
        if not 400 <= status < 500:
            raise OperationError("Ambiguous", self._service.told(answer, "the service's answer leaves open what it did"))
        if self._is_so_already():
            return {"detail": f"the service refuses, for the machine is {self._name} already (HTTP {status})"}
        ids, _ = answer.told()
        if status in {404, 410} or any(part in ids for part in UNSUPPORTED_MESSAGES):
            raise OperationError("NotSupported", self._service.told(answer, "the service does not know this command"))
        raise OperationError("Transient", self._service.told(answer, "the service refuses this in its present state"))

    def _refuse_reset_of_another(self, target: Any) -> None:
        """A service that mixes up its machines would have us switch off the wrong one (S9). Where else than beneath its system an
        action may be is the service's affair."""
        own, reset = plain(self._path) + "/", plain(str(target)) + "/"
        if reset.startswith(own.rstrip("/").rpartition("/")[0] + "/") and not reset.startswith(own):
            told = self._service.excerpt(target)
            raise OperationError("InvalidConfig", f"{self._path} is not commanded: its reset is {told}, another system's")

    def _reset_type(self, system: Any, reset: Any) -> str:
        try:
            allowed = reset.get_allowed_values(system)
        except (OperationError, TypeError, AttributeError):
            allowed = None  # a list that cannot be read forbids nothing: the service will say so itself
        wanted = RESETS[self._name]
        found = next((name for name in wanted if not allowed or name in allowed), None)
        if found is None:
            offered = self._service.excerpt(", ".join(map(str, allowed or ())))
            raise OperationError("NotSupported", f"{self._path} does not take {' or '.join(wanted)}: it takes {offered}")
        return found

    def _is_so_already(self) -> bool:
        """Services differ in what they answer to on for a machine that is on, so it is read and not guessed."""
        try:
            return str(self._name) == self._state()["state"]
        except OperationError:
            return False

    def _identity(self) -> dict[str, str | None]:
        system = self._system()
        notes = []
        system_uuid = known_uuid(system.uuid)
        if system_uuid is None:
            notes.append(f"no usable UUID ({self._service.excerpt(system.uuid)})")
        firmware = None
        try:
            managers = self._get(resources.SystemManagers, self._path, system.json).managers
            firmware = self._text(self._get(resources.Manager, managers[0]["@odata.id"]).firmware) if managers else None
        except (OperationError, TypeError, KeyError) as error:
            notes.append(f"no firmware: {error}")
        return {
            "system_uuid": system_uuid,
            "serial": self._text(system.serial_number),
            "product": self._text(system.model),
            "manufacturer": self._text(system.manufacturer),
            "firmware": firmware,
            "detail": "; ".join(notes),
        }

    def _event_log(self) -> dict[str, Any]:
        system = self._system()
        try:
            managers = self._get(resources.SystemManagers, self._path, system.json).managers
            holders = [str(manager["@odata.id"]) for manager in managers]
        except (OperationError, TypeError, KeyError):
            holders = []  # the system may have a log of its own
        return {"text": read_event_log(self._get, self._service.excerpt, [self._path, *holders], self._ends)}

    def _text(self, value: Any) -> str | None:
        return self._service.excerpt(value) or None if isinstance(value, str) else None


def plain(path: str) -> str:
    """A path for comparing: services do not agree on slashes at its end, nor with themselves on letters."""
    return urlsplit(path).path.rstrip("/").lower()


def known_uuid(value: Any) -> str | None:
    try:
        known = UUID(value)
    except (ValueError, TypeError, AttributeError):
        return None
    return str(known) if known not in NO_UUIDS else None


def perform(request: dict[str, Any]) -> None:
    say(answer=RedfishOperation(request).answer())


def main() -> None:
    """What `operation_server.py` calls in a child."""
    run(perform)
