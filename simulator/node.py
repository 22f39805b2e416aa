"""One simulated node: a machine with power, a kernel that boots, containers, and a kubelet; and all the ways in which it breaks.

Power comes from outside (a BMC's chassis, or a test); everything else follows from it. A fault breaks what runs on
the machine, never the machine itself, so a power cycle or a reset repairs it, except `never-boots`. What the kubelet
does while it is well is in `kubelet.py`; who turns the power is in `cluster.py`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from enum import StrEnum
from typing import Any

from simulator.client import ApiClient
from simulator.containers import Containers
from simulator.informer import ClusterView
from simulator.kubelet import Kubelet, NodeIdentity, NodeTimings
from simulator.objects import READY
from simulator.storage import SharedStorage
from simulator.tasks import Tasks


class NodeFault(StrEnum):
    """What may befall a node, apart from its BMC."""

    KUBELET_STOPS = "kubelet-stops"
    """The machine is on and its containers go on running and writing; the API learns nothing."""
    KERNEL_HANGS = "kernel-hangs"
    """Everything stands still and may go on at any moment; the machine is on, volumes stay attached."""
    RUNTIME_DOWN = "runtime-down"
    """The kubelet is alive and says Ready=False."""
    CRASH_LOOP = "crash-loop"
    """The kubelet crashes again and again: Ready comes and goes, containers run on."""
    REBOOT_LOOP = "reboot-loop"
    """The machine reboots by itself again and again: a new boot id each time, soon gone."""
    POWER_CUT = "power-cut"
    """The power is off, without anybody having asked for it."""
    NEVER_BOOTS = "never-boots"
    """After its next power-on or reset the machine stays in its firmware. A power cycle does not help; `heal` does."""


class NodeState(StrEnum):
    OFF = "off"
    BOOTING = "booting"
    RUNNING = "running"
    KUBELET_STOPPED = "kubelet-stopped"
    HUNG = "hung"


class SimulatedNode:
    """A machine with what runs on it. All methods act at once, like a hand on a switch."""

    def __init__(
        self,
        identity: NodeIdentity,
        *,
        timings: NodeTimings,
        client: ApiClient,
        view: ClusterView,
        storage: SharedStorage,
        tasks: Tasks,
    ) -> None:
        self.identity = identity
        self.state = NodeState.OFF
        self.boot_id = ""
        self.boots = 0
        self.fault: NodeFault | None = None
        self.conditions: dict[str, str] = {}
        """Conditions the kubelet reports other than a well node would, e.g. DiskPressure=True."""
        self.containers = Containers(node=identity.name, storage=storage)
        self._never_boots = False
        self._scrapped = False
        self._timings = timings
        self._client = client
        self._view = view
        self._tasks = tasks
        self._kubelet: Kubelet | None = None
        self._software: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def is_on(self) -> bool:
        return self.state is not NodeState.OFF

    def wake(self) -> None:
        """Something about this node's pods or volumes has changed in the API."""
        if self._kubelet is not None:
            self._kubelet.wake()

    # Power -------------------------------------------------------------------------------------------------------------------

    def power_on(self, *, boot_seconds: float | None = None) -> None:
        """Boot, unless it is on already. The boot id is new from the first moment on."""
        if self.is_on or self._scrapped:
            return
        self._new_boot()
        if not self._never_boots:
            self._start_software(self._boot(self._timings.boot if boot_seconds is None else boot_seconds), "boot")

    def power_off(self) -> None:
        """Containers die, and with them whatever was broken in software."""
        self._end_software()
        self.containers.lose_power()
        self.conditions.clear()
        self.fault = NodeFault.NEVER_BOOTS if self._never_boots else None
        self.state = NodeState.OFF

    def reset(self) -> None:
        """A reset without a moment of power off: the same end for everything that ran."""
        if self.is_on:
            self.power_off()
            self.power_on()

    def scrap(self) -> None:
        """Take the machine away for good: switching it on afterwards does nothing."""
        self.power_off()
        self._scrapped = True

    # Faults ------------------------------------------------------------------------------------------------------------------

    def break_(self, fault: NodeFault) -> None:
        """A second fault replaces the first, as far as the machine is on to have one."""
        if fault is NodeFault.NEVER_BOOTS:
            self._never_boots = True
            self.fault = self.fault or fault
            return
        if fault is NodeFault.POWER_CUT:
            self.power_off()
            self.fault = fault
            return
        if self.state is NodeState.OFF:
            raise ValueError(f"node {self.name} is off: {fault} can only befall a machine that is on")
        self.heal()
        self.fault = fault
        match fault:
            case NodeFault.KUBELET_STOPS:
                self._end_software()
                self.state = NodeState.KUBELET_STOPPED
            case NodeFault.KERNEL_HANGS:
                self._end_software()
                self.containers.freeze()
                self.state = NodeState.HUNG
            case NodeFault.RUNTIME_DOWN:
                self.conditions[READY] = "False"
            case NodeFault.CRASH_LOOP:
                self._start_software(self._crash_again_and_again(), "crash loop")
            case NodeFault.REBOOT_LOOP:
                self._start_software(self._reboot_again_and_again(), "reboot loop")

    def report_condition(self, condition_type: str, status: str) -> None:
        """A condition that the kubelet shall report from its next heartbeat on."""
        self.conditions[condition_type] = status

    def heal(self) -> None:
        """Undo the fault without a power cycle: the kubelet is started again, a hung kernel goes on where it was."""
        fault, self.fault = self.fault, None
        self.conditions.clear()
        self._never_boots = False
        if self.state is NodeState.OFF:
            if fault is NodeFault.POWER_CUT:
                self.power_on()
            return
        if self.state is NodeState.BOOTING:
            if self._software is None or fault is NodeFault.REBOOT_LOOP:
                self._start_software(self._boot(self._timings.boot), "boot")
        elif self._software is None or fault in {NodeFault.RUNTIME_DOWN, NodeFault.CRASH_LOOP, NodeFault.REBOOT_LOOP}:
            self.containers.thaw()
            self._start_software(self._run_kubelet(), "kubelet")

    # What runs on it ---------------------------------------------------------------------------------------------------------

    async def _boot(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._run_kubelet()

    async def _run_kubelet(self) -> None:
        self.state = NodeState.RUNNING
        self._kubelet = Kubelet(
            self.identity,
            boot_id=self.boot_id,
            conditions=self.conditions,
            timings=self._timings,
            client=self._client,
            view=self._view,
            containers=self.containers,
        )
        await self._kubelet.run()

    async def _crash_again_and_again(self) -> None:
        while True:
            await self._run_kubelet_for(self._timings.crash_up)
            self.state = NodeState.KUBELET_STOPPED
            await asyncio.sleep(self._timings.crash_down)

    async def _reboot_again_and_again(self) -> None:
        while True:
            await self._run_kubelet_for(self._timings.crash_up)
            self.containers.lose_power()
            self._new_boot()
            await asyncio.sleep(self._timings.boot)

    async def _run_kubelet_for(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._run_kubelet()
        self._kubelet = None

    def _new_boot(self) -> None:
        self.state = NodeState.BOOTING
        self.boot_id = str(uuid.uuid4())
        self.boots += 1
        self.containers.booted(self.boot_id)

    def _start_software(self, work: Coroutine[Any, Any, None], what: str) -> None:
        self._end_software()
        self._software = self._tasks.start(work, name=f"{what} of {self.name}")

    def _end_software(self) -> None:
        if self._software is not None:
            self._software.cancel()
        self._software = None
        self._kubelet = None
