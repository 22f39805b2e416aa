"""What one power operation costs: CPU and time of a status reading, with all that is kept between two of them and without, and of
a whole act: the activity that switches a machine off, which reads, compares which machine it is, commands and reads back.

By IPMI and Redfish against their simulated devices, by a fence agent against the same BMC, and by Compute Engine. *Cold* is the
first operation of a worker: the fork server that has the protocol's library loaded is started for it, the agent is asked to
describe itself, Google is asked for a token. *Warm* is each one after it. Both in turns, in one run. Whole acts are those of IPMI
and Redfish, warm. CPU is the kernel's account of all processes that it takes, and of this one; the devices, which have a thread
and processes of their own, are left out.

    python -m benchmarks.power [--operations 30] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from temporalio.testing import ActivityEnvironment

from activities.contracts.power import CommandResult, PowerRequest
from activities.power import fence_agent
from activities.power.bmc.child_handle import ForkServer
from activities.power.bmc.drivers import IPMI_SERVER, REDFISH_SERVER
from activities.power.driver import Deadline, DeviceCredentials, PowerDriver
from activities.power.registry import driver_for, factory_of
from activities.power.service import PowerService
from benchmarks.stage.figures import Spread, number, printed, table
from benchmarks.stage.processes import cpu_time, resident_megabytes
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerState
from simulator.bmc.bmc import start_bmc
from simulator.bmc.chassis import Chassis
from simulator.bmc.machine import Machine
from simulator.cloud.gce import GceEndpoint
from simulator.redfish.service import start_redfish
from tests.licensing import BELIEVING
from tests.power.targets import target_with

Result = TypeVar("Result")

MACHINE, USERNAME, PASSWORD = "node-1", "fencer", "a-secret"
PROJECT, ZONE = "a-project", "europe-west1-b"
AGENT = "fence_ipmilan"
PATIENCE = timedelta(seconds=30)
READ_BACK = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to a device. forget: makes the next operation a cold one. server: what stays for the next one."""

    name: str
    driver: PowerDriver
    forget: Callable[[], None]
    server: ForkServer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of some operations of one kind: how long each took, and the average CPU seconds of this process and of others."""

    seconds: Spread
    worker: float
    processes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One way, cold and warm, and a whole act. megabytes: of the fork server that stays. None where there is no such server."""

    name: str
    cold: Cost
    warm: Cost
    off: Cost | None
    megabytes: float | None


class Devices:
    """Simulated devices on a thread of their own; its CPU does not count as ours."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="devices", daemon=True)
        self.processes: tuple[int, ...] = ()
        self.machine: Machine | None = None

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Have it done there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def cpu(self) -> float:
        """Seconds that the thread has used."""

        async def used() -> float:
            return time.thread_time()

        return await self.run(used())

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[list[Way]]:
        """The ways to them."""
        self._thread.start()
        chassis, cloud = Chassis(), GceEndpoint()
        await self.run(chassis.start())
        await self.run(cloud.start())
        self.machine = chassis.machine(MACHINE)
        cloud.add_instance(PROJECT, ZONE, MACHINE)
        bmc = await self.run(start_bmc(chassis.url, MACHINE, USERNAME, PASSWORD, kind="python", state_dir=folder))
        service = await self.run(start_redfish(chassis.url, [MACHINE], USERNAME, PASSWORD, state_dir=folder))
        self.processes = (bmc.pid, service.pid)
        login = {"username": USERNAME, "password": PASSWORD}
        by_ipmi = {"ip": "127.0.0.1", "ipport": str(bmc.port)}
        by_redfish = {"ip": "127.0.0.1", "ipport": str(service.port), "system": MACHINE, "ca-file": str(service.authority)}
        account = {"service-account-json": cloud.service_account()}
        by_gce = {"project": PROJECT, "zone": ZONE, "instance": MACHINE, "api-endpoint": cloud.url}
        ways = [
            Way(name="ipmi", driver=_driver("ipmi", by_ipmi, login), forget=IPMI_SERVER.end, server=IPMI_SERVER),
            Way(name="redfish", driver=_driver("redfish", by_redfish, login), forget=REDFISH_SERVER.end, server=REDFISH_SERVER),
            Way(
                name="gce",
                driver=_driver("gce", by_gce, account),
                forget=_forget_accounts,
            ),
        ]
        if shutil.which(AGENT, path=fence_agent.SEARCH_PATH) and shutil.which("ipmitool"):
            driver = _driver(AGENT, by_ipmi | {"lanplus": "1"}, login)
            ways.append(Way(name=AGENT, driver=driver, forget=fence_agent.KNOWN.clear))
        try:
            yield ways
        finally:
            for stop in (service.stop, bmc.stop, cloud.stop, chassis.stop):
                await self.run(stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


def _driver(name: str, parameters: dict[str, str], credentials: dict[str, str]) -> PowerDriver:
    device = PowerDevice(driver=name, endpoint=factory_of(name).endpoint_of(parameters), parameters=parameters)
    return driver_for(device, DeviceCredentials(values=credentials))


def _forget_accounts() -> None:
    from activities.power.gce import client

    client._accounts.clear()


async def measure(operations: int) -> list[Measured]:
    """So many operations of each kind on each way, after one that loads what is loaded once for a worker."""
    devices = Devices()
    with TemporaryDirectory(prefix="nodewarden-power-") as folder:
        async with devices.running(Path(folder)) as ways:
            return [await _measure(devices, way, operations) for way in ways]


async def _measure(devices: Devices, way: Way, operations: int) -> Measured:
    async def read() -> None:
        await way.driver.read(Deadline.within(PATIENCE))

    async def read_cold() -> None:
        way.forget()
        await read()

    async def off() -> None:
        device = PowerDevice(driver=way.name, endpoint=way.driver.endpoint)
        asked = PowerRequest(target=target_with(device), device=device, deadline=PATIENCE, read_back=READ_BACK)
        result: CommandResult = await ActivityEnvironment().run(service.power_off, asked)
        assert result.after is not None, "the device was not read back"
        assert result.after.state is PowerState.OFF
        assert devices.machine is not None
        await devices.run(devices.machine.set_power("on"))

    service = PowerService(_NoCredentials(), BELIEVING, drivers=lambda _device, _credentials: way.driver)
    await read()
    cold = await _cost(devices, read_cold, operations)
    warm = await _cost(devices, read, operations)
    act = await _cost(devices, off, operations) if way.server else None
    pid = way.server.pid if way.server else None
    return Measured(name=way.name, cold=cold, warm=warm, off=act, megabytes=resident_megabytes(pid) if pid else None)


async def _cost(devices: Devices, operation: Callable[[], Awaitable[None]], operations: int) -> Cost:
    ours, theirs, before = time.process_time(), await devices.cpu(), cpu_time(os.getpid(), without=devices.processes)
    took = []
    for _ in range(operations):
        began = time.monotonic()
        await operation()
        took.append(time.monotonic() - began)
    spent = cpu_time(os.getpid(), without=devices.processes) - before
    worker = time.process_time() - ours - (await devices.cpu() - theirs)
    return Cost(seconds=Spread.of(took), worker=worker / operations, processes=spent.children / operations)


class _NoCredentials:
    """The driver has them already."""

    async def read(self, cluster: str, device: PowerDevice) -> DeviceCredentials:  # noqa: ARG002 - the contract's
        return DeviceCredentials()


def show(measured: list[Measured]) -> str:
    """The table for people; milliseconds."""
    head = [
        "one status reading, and one off, ms",
        *(f"{name} {kind}" for name in ("CPU", "worker", "time") for kind in ("cold", "warm")),
        *(f"{name} of an off" for name in ("CPU", "time")),
        "kept, MB",
    ]
    return table(head, [[each.name, *map(_milliseconds, _row(each)), number(each.megabytes, 0)] for each in measured])


def _row(each: Measured) -> list[float | None]:
    both = (each.cold, each.warm)
    return [
        *(cost.worker + cost.processes for cost in both),
        *(cost.worker for cost in both),
        *(cost.seconds.median for cost in both),
        *((each.off.worker + each.off.processes, each.off.seconds.median) if each.off else (None, None)),
    ]


def _milliseconds(seconds: float | None) -> str:
    return number(None if seconds is None else seconds * 1000, 1)


def as_json(measured: list[Measured]) -> dict[str, Any]:
    """The same for programs; seconds, megabytes."""
    return {
        each.name: {
            **{
                kind: {"workerCpu": cost.worker, "processesCpu": cost.processes, "seconds": cost.seconds.as_json()}
                for kind, cost in (("cold", each.cold), ("warm", each.warm), ("off", each.off))
                if cost is not None
            },
            "serverMegabytes": each.megabytes,
        }
        for each in measured
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.power", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operations", type=int, default=30, help="of each kind on each way")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = asyncio.run(measure(options.operations))
    print(printed(as_json(measured)) if options.json else show(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
