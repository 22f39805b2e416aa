"""The hardware under the simulated nodes: one chassis that holds the power, and one BMC per machine in front of it.

Joins two worlds that do not know each other: `bmc/` knows power and management controllers, `node.py` what runs on a
machine that has power. A command that took effect at the chassis reaches the node in the same instant.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import AsyncExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from uuid import UUID

from simulator.bmc.bmc import Bmc, start_bmc
from simulator.bmc.chassis import Chassis
from simulator.bmc.machine import PowerCommand
from simulator.node import SimulatedNode
from simulator.tasks import Tasks

BmcKind = Literal["auto", "ipmi_sim", "python"]

START_AT_ONCE = 4
"""Each BMC is a process: more in parallel only wait for each other."""


class BmcFault(StrEnum):
    """How a BMC may mislead whoever talks to it."""

    LIES = "bmc-lies"
    """It switches off and goes on answering "on"."""
    IGNORES_OFF = "bmc-ignores-off"
    """It accepts the off and does nothing."""
    HANGS = "bmc-hangs"
    """It answers, but never to what concerns the power."""
    DEAD = "bmc-dead"
    """It answers nothing at all, as without network."""
    REFUSES = "bmc-refuses"
    """It answers every command with an error."""
    SLOW = "bmc-slow"
    """It takes three seconds over everything."""
    FOLLOWS_LATE = "bmc-follows-late"
    """It answers at once and acts three seconds later."""


_CHASSIS_FAULTS: dict[BmcFault, dict[str, Any]] = {
    BmcFault.LIES: {"answers_on_after_off": True},
    BmcFault.IGNORES_OFF: {"ignore_off": True},
    BmcFault.HANGS: {"hang": True},
    BmcFault.REFUSES: {"refuse": True},
    BmcFault.SLOW: {"delay": 3.0},
    BmcFault.FOLLOWS_LATE: {"settle": 3.0},
}


class Hardware:
    """All machines of a simulated cluster. `async with` starts chassis and BMCs, and ends them by their process ids."""

    def __init__(self, nodes: Mapping[str, SimulatedNode], *, kind: BmcKind, state_dir: Path) -> None:
        self.chassis = Chassis()
        self.username = "admin"
        # Per cluster, so that no password can end up in a fixture. 16 bytes is what IPMI 1.5 can take.
        self.password = secrets.token_hex(8)
        self.bmcs: dict[str, Bmc] = {}
        self._nodes = nodes
        self._kind = kind
        self._state_dir = state_dir
        self._stack = AsyncExitStack()
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        try:
            await self._stack.enter_async_context(self.chassis)
            self._stack.push_async_callback(self._tasks.cancel_all)
            for node in self._nodes.values():
                self.chassis.machine(node.name).on_change(partial(_follow, node))
            slots = asyncio.Semaphore(START_AT_ONCE)
            await asyncio.gather(*(self._start_bmc(name, slots) for name in self._nodes))
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()
        self._tasks.raise_failures()

    def cut_power(self, name: str) -> None:
        self._tasks.start(self.chassis.machine(name).set_power("off"), name=f"power cut of {name}")

    def restore_power(self, name: str) -> None:
        self._tasks.start(self.chassis.machine(name).set_power("on"), name=f"power of {name}")

    def break_bmc(self, name: str, fault: BmcFault) -> None:
        if fault is BmcFault.DEAD:
            self.bmcs[name].freeze()
        else:
            self.chassis.machine(name).set_faults(**_CHASSIS_FAULTS[fault])

    def heal_bmc(self, name: str) -> None:
        self.chassis.machine(name).set_faults()
        self.bmcs[name].thaw()

    async def _start_bmc(self, name: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            bmc = await start_bmc(
                self.chassis.url,
                name,
                self.username,
                self.password,
                kind=self._kind,
                state_dir=self._state_dir,
                system_uuid=UUID(self._nodes[name].identity.system_uuid),
            )
        self._stack.push_async_callback(bmc.stop)
        self.bmcs[name] = bmc


def _follow(node: SimulatedNode, command: PowerCommand) -> None:
    match command.command:
        case "off" if node.is_on:
            node.power_off()
        case "on":
            node.power_on()
        case "reset":
            node.reset()
