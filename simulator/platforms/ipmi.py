"""Servers in racks, a BMC each that speaks IPMI over UDP (`bmc/bmc.py`): a process per machine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

from simulator.bmc.bmc import Bmc, start_bmc
from simulator.platforms.contract import DeviceFault, Platform, Surroundings

PASSWORD_BYTES = 16
"""What IPMI 1.5 can take."""

START_AT_ONCE = 4
"""Each BMC is a process: more in parallel only wait for each other."""


class Ipmi(Platform):
    """A BMC that loses its answers would lose those to questions, too: the simulated ones do one thing at a time."""

    name = "ipmi"
    secret_name = "bmc-credentials"  # noqa: S105 - a Secret's name
    faults = frozenset(DeviceFault) - {DeviceFault.LOSES_ANSWERS}
    grows = True

    _stack: AsyncExitStack

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.username = "admin"
        self.password = self.make_up(PASSWORD_BYTES)
        self.bmcs: dict[str, Bmc] = {}

    async def start(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        slots = asyncio.Semaphore(START_AT_ONCE)
        await asyncio.gather(*(self._start_bmc(name, slots) for name in self._around.machines))

    async def add(self, name: str) -> None:
        await self._start_bmc(name, asyncio.Semaphore())

    def secret(self) -> Mapping[str, str]:
        return {"username": self.username, "password": self.password}

    def wrong_secret(self) -> Mapping[str, str]:
        return {"username": self.username, "password": self.make_up(PASSWORD_BYTES)}

    def facts(self) -> dict[str, Any]:
        return {}

    def facts_of(self, name: str) -> dict[str, Any]:
        bmc = self.bmcs[name]
        return {"bmc": {"address": bmc.address, "port": bmc.port, "kind": bmc.kind, "pid": bmc.pid}}

    def break_(self, name: str, fault: DeviceFault) -> None:
        if fault is DeviceFault.DEAD:
            self.bmcs[name].freeze()
        else:
            super().break_(name, fault)

    def heal(self, name: str) -> None:
        super().heal(name)
        self.bmcs[name].thaw()

    async def _start_bmc(self, name: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            bmc = await start_bmc(
                self._around.chassis.url,
                name,
                self.username,
                self.password,
                kind=self._around.bmc_kind,
                state_dir=self._around.state_dir,
                system_uuid=UUID(self._around.machines[name].system_uuid),
            )
        self._stack.push_async_callback(bmc.stop)
        self.bmcs[name] = bmc
