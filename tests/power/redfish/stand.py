"""Redfish services to talk to: the emulator before machines of a chassis, and one that says whatever a test wants it to say."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from activities.errors import ErrorType
from activities.power.driver import DeviceCredentials, PowerDriver, PowerError
from activities.power.registry import driver_for
from policy.fence.plan import PowerDevice
from simulator.bmc.chassis import Chassis
from simulator.bmc.machine import Machine
from simulator.redfish.service import RedfishService, start_redfish
from tests.power.conftest import PASSWORD, USERNAME, fails
from tests.power.raw_server import raw_server, saying
from tests.power.targets import endpoint_of

SYSTEM = "/redfish/v1/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
ACCEPTED = (204, {}, b"")


def redfish_driver(port: int, *, username: str = USERNAME, password: str = PASSWORD, **parameters: str) -> PowerDriver:
    """Parameters with `_` for `-`, as Python wants them."""
    chosen = {"ip": "127.0.0.1", "ipport": str(port)} | {name.replace("_", "-"): value for name, value in parameters.items()}
    device = PowerDevice(driver="redfish", endpoint=endpoint_of("redfish", chosen), parameters=chosen)
    return driver_for(device, DeviceCredentials(values={"username": username, "password": password}))


class RedfishStand:
    """The emulator and its machines; each test takes a new one."""

    def __init__(self, chassis: Chassis, service: RedfishService) -> None:
        self.service = service
        self._unused = iter([chassis.machine(name) for name in service.machines])

    def machine(self) -> Machine:
        return next(self._unused)

    def driver(self, machine: str, *, username: str = USERNAME, password: str = PASSWORD, **parameters: str) -> PowerDriver:
        trusted = {"ca_file": str(self.service.authority), "system": machine} | parameters
        return redfish_driver(self.service.port, username=username, password=password, **trusted)


@asynccontextmanager
async def redfish_running(state_dir: Path) -> AsyncIterator[RedfishStand]:
    async with Chassis() as chassis:
        names = [chassis.machine(f"node-{number}").name for number in range(24)]
        service = await start_redfish(chassis.url, names, USERNAME, PASSWORD, state_dir=state_dir)
        try:
            yield RedfishStand(chassis, service)
        finally:
            await service.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def reset_type(self) -> str:
        return str(json.loads(self.body)["ResetType"])


Reply = tuple[int, Mapping[str, str], bytes]


@dataclass(slots=True)
class ScriptedService:
    """A service over plain HTTP with one well-behaved system, of which a test replaces what it wants.

    replies: by method and path, what is answered, or what is done with the connection instead.
    """

    port: int = 0
    heard: list[Heard] = field(default_factory=list)
    replies: dict[tuple[str, str], Reply | Callable[[asyncio.StreamWriter], Awaitable[None]]] = field(default_factory=dict)
    system: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.system = {
            "@odata.id": SYSTEM,
            "Id": "1",
            "PowerState": "On",
            "Actions": {"#ComputerSystem.Reset": {"target": RESET, "ResetType@Redfish.AllowableValues": ["On", "ForceOff"]}},
        }
        self.replies["POST", RESET] = ACCEPTED

    @property
    def posted(self) -> list[Heard]:
        return [heard for heard in self.heard if heard.method == "POST"]

    def allow(self, *reset_types: str) -> None:
        self.reset_action["ResetType@Redfish.AllowableValues"] = list(reset_types)

    @property
    def reset_action(self) -> dict[str, Any]:
        action: dict[str, Any] = self.system["Actions"]["#ComputerSystem.Reset"]
        return action

    def driver(self, system: str | None = "1") -> PowerDriver:
        return redfish_driver(self.port, scheme="http", **({"system": system} if system else {}))

    async def answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        head, _, body = request.partition(b"\r\n\r\n")
        first, *lines = head.decode().splitlines()
        method, path, _ = first.split()
        headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
        self.heard.append(Heard(method=method, path=path, headers=headers, body=body))
        default = as_json(self.system) if (method, path) == ("GET", SYSTEM) else (404, {}, b"")
        reply = self.replies.get((method, path), default)
        if callable(reply):
            await reply(writer)
            writer.close()
            return
        status, told, content = reply
        await saying(f"{status} Said", content, *(f"{name}: {text}" for name, text in told.items()))(request, writer)


@asynccontextmanager
async def scripted_service() -> AsyncIterator[ScriptedService]:
    service = ScriptedService()
    async with raw_server(service.answer) as server:
        service.port = int(server.url.rpartition(":")[2])
        yield service


def as_json(document: Any, status: int = 200) -> Reply:
    return status, {"Content-Type": "application/json"}, json.dumps(document).encode()


def refusal(status: int, message_id: str = "Base.1.8.GeneralError", message: str = "no") -> Reply:
    """An error in the form of the standard."""
    told = {"@Message.ExtendedInfo": [{"MessageId": message_id, "Message": message}]}
    return as_json({"error": {"code": "Base.1.8.GeneralError", "message": "see extended information", **told}}, status)


async def failure_of(act: Awaitable[object], expected: ErrorType, says: str = "") -> PowerError:
    """What it raises, in which these words stand and no secret does (S12)."""
    error = await fails(act, expected, re.escape(says))
    for secret in (PASSWORD, base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()):
        assert secret not in f"{error} {error!r}"
    return error
