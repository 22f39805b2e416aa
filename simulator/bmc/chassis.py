"""The truth about power of all simulated machines, for other processes: the BMCs, the demo, tests in a second process.

One HTTP server on the loopback serves all machines (`machine.py`). The BMC processes ask it (`ipmi_sim.py`, `python_bmc.py`) and
other simulated devices may. Not a BMC itself: it speaks no IPMI.

With `?device=NAME` a request comes through that device and meets the machine's faults; without, it is the truth itself and
a hand at the switch:

    GET  /machines/NAME/power      {"power": "on"}
    PUT  /machines/NAME/power      {"power": "off"}
    POST /machines/NAME/nmi, POST /machines/NAME/reset
    GET  /machines/NAME/log        {"commands": [...], "reads": {"ipmi_sim": 3}}
    PUT  /machines/NAME/faults     any of the fields of `Faults`; the others return to their defaults
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from aiohttp import web

from simulator.bmc.machine import HAND, Machine, NotKnownError, Power, RefusedError


class Chassis:
    """All machines, and the HTTP server before them. `async with Chassis() as chassis`, or start and stop it."""

    def __init__(self) -> None:
        self._machines: dict[str, Machine] = {}
        self._runner: web.AppRunner | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Where it listens, once started."""
        return self._url

    @property
    def machines(self) -> Mapping[str, Machine]:
        """All machines by name."""
        return self._machines

    def machine(self, name: str, power: Power = "on") -> Machine:
        """The machine of that name, made with this power when it is first named."""
        if name not in self._machines:
            self._machines[name] = Machine(name, power)
        return self._machines[name]

    async def start(self, port: int = 0) -> None:
        """Listen on the loopback; port 0 takes a free one."""
        application = web.Application(middlewares=[_errors])
        application.add_routes(
            [
                web.get("/machines", self._list),
                web.get("/machines/{name}/power", self._read),
                web.put("/machines/{name}/power", self._set),
                web.post("/machines/{name}/reset", self._reset),
                web.post("/machines/{name}/nmi", self._nmi),
                web.get("/machines/{name}/log", self._log),
                web.put("/machines/{name}/faults", self._faults),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self._url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop listening and drop what still hangs."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def _named(self, request: web.Request) -> Machine:
        name = request.match_info["name"]
        if name not in self._machines:
            raise NotKnownError(f"machine {name!r} is not known: expected one of {', '.join(sorted(self._machines))}")
        return self._machines[name]

    async def _list(self, request: web.Request) -> web.Response:  # noqa: ARG002 - the shape of a handler
        return web.json_response({name: machine.power for name, machine in sorted(self._machines.items())})

    async def _read(self, request: web.Request) -> web.Response:
        machine = self._named(request)
        device = request.query.get("device", HAND)
        return web.json_response({"power": await machine.read(device) if device != HAND else machine.power})

    async def _set(self, request: web.Request) -> web.Response:
        machine = self._named(request)
        power = (await request.json()).get("power")
        if power not in ("on", "off"):
            raise NotKnownError(f"power {power!r} is not known: expected 'on' or 'off'")
        await machine.set_power(power, request.query.get("device", HAND))
        return await _done(request, machine)

    async def _reset(self, request: web.Request) -> web.Response:
        machine = self._named(request)
        await machine.reset(request.query.get("device", HAND))
        return await _done(request, machine)

    async def _nmi(self, request: web.Request) -> web.Response:
        machine = self._named(request)
        await machine.pulse_nmi(request.query.get("device", HAND))
        return await _done(request, machine)

    async def _log(self, request: web.Request) -> web.Response:
        machine = self._named(request)
        commands = [dataclasses.asdict(entry) | {"at": entry.at.isoformat()} for entry in machine.log]
        return web.json_response({"commands": commands, "reads": dict(machine.reads)})

    async def _faults(self, request: web.Request) -> web.Response:
        machine = self._named(request)
        machine.set_faults(**await request.json())
        return web.json_response(dataclasses.asdict(machine.faults))


async def _done(request: web.Request, machine: Machine) -> web.Response:
    """A command was carried out."""
    if "device" in request.query:
        await machine.lose_answer()
    return web.json_response({"power": machine.power})


@web.middleware
async def _errors(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    try:
        return await handler(request)
    except NotKnownError as error:
        return web.json_response({"error": str(error)}, status=404)
    except RefusedError as error:
        return web.json_response({"error": str(error)}, status=503)
