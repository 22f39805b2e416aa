"""The hardware under the simulated nodes: one chassis that holds the power, and a platform before it that real clients talk to.

Joins two worlds that do not know each other: `bmc/` and `platforms/` know power and what switches it, `node.py` what runs on a
machine that has power. A command that took effect at the chassis reaches the node in the same instant.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from simulator.bmc.bmc import Bmc
from simulator.bmc.chassis import Chassis
from simulator.bmc.machine import PowerCommand
from simulator.kubelet import NodeIdentity
from simulator.node import SimulatedNode
from simulator.platforms import platform_named
from simulator.platforms.contract import BmcKind, DeviceFault, PlatformError, Surroundings
from simulator.platforms.ipmi import Ipmi
from simulator.tasks import Tasks


class Hardware:
    """All machines of a simulated cluster. `async with` starts chassis and platform, and ends what they started."""

    def __init__(
        self,
        machines: Mapping[str, NodeIdentity],
        *,
        platform: str = "ipmi",
        kind: BmcKind = "auto",
        state_dir: Path,
        secret_mark: str = "",
    ) -> None:
        self.chassis = Chassis()
        around = Surroundings(
            chassis=self.chassis, machines=machines, state_dir=state_dir, bmc_kind=kind, secret_mark=secret_mark
        )
        self.platform = platform_named(platform)(around)
        self._machines = machines
        self._stack = AsyncExitStack()
        self._tasks = Tasks()

    async def __aenter__(self) -> Self:
        if missing := self.platform.missing():
            needed = f"the platform {self.platform.name} needs {missing}"
            raise PlatformError(f"{needed}: it comes with the development environment (`make`)")
        try:
            await self._stack.enter_async_context(self.chassis)
            self._stack.push_async_callback(self._tasks.cancel_all)
            for name in self._machines:
                self.chassis.machine(name)
            await self.platform.start(self._stack)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()
        self._tasks.raise_failures()

    async def add(self, name: str) -> None:
        """One more machine, which has been put into the mapping that this was made with."""
        self.chassis.machine(name)
        await self.platform.add(name)

    async def remove(self, name: str) -> None:
        """The machine is gone for good. Its place in the chassis stays, without power."""
        await self.chassis.machine(name).set_power("off")
        await self.platform.remove(name)

    def connect(self, node: SimulatedNode) -> None:
        """From now on the node follows the power of the machine of its name."""
        self.chassis.machine(node.name).on_change(partial(_follow, node))

    def bmc(self, name: str) -> Bmc:
        """The BMC of a node. Raises LookupError where the machines have none."""
        if not isinstance(self.platform, Ipmi):
            raise LookupError(f"there are no BMCs on the platform {self.platform.name}")
        return self.platform.bmcs[name]

    def cut_power(self, name: str) -> None:
        self._tasks.start(self.chassis.machine(name).set_power("off"), name=f"power cut of {name}")

    def restore_power(self, name: str) -> None:
        self._tasks.start(self.chassis.machine(name).set_power("on"), name=f"power of {name}")

    def break_device(self, name: str, fault: DeviceFault) -> None:
        self.platform.break_(name, fault)

    def heal_device(self, name: str) -> None:
        self.platform.heal(name)


def _follow(node: SimulatedNode, command: PowerCommand) -> None:
    match command.command:
        case "off" if node.is_on:
            node.power_off()
        case "on":
            node.power_on()
        case "reset":
            node.reset()
