"""Simulated devices as processes: they come up together, keep their password to themselves, and end without a trace."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from activities.power.driver import PowerDriver
from policy.fence.power import PowerState, system_of
from simulator.bmc import ipmi_sim
from simulator.bmc.bmc import Bmc, StartError, start_bmc
from simulator.bmc.chassis import Chassis
from simulator.redfish import service
from simulator.redfish.service import RedfishService, start_redfish
from tests.power.conftest import IPMI_SIM, PASSWORD, USERNAME, ipmi_driver, within
from tests.power.process_table import alive, children_of, gone, visible
from tests.power.redfish.stand import redfish_driver

ROOT = Path(__file__).parents[2]
NAMES = [f"node-{number}" for number in range(4)]
TWIN = UUID("11111111-2222-3333-4444-555555555555")
"""What the first machine says of itself."""

STARTER = """
import asyncio, sys
from pathlib import Path
from simulator.bmc.chassis import Chassis
from tests.simulator.test_device_processes import started

async def main():
    async with Chassis() as chassis:
        chassis.machine("node-0")
        device = await started(chassis, "node-0", sys.argv[1], Path(sys.argv[2]))
        print(device.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""

Device = Bmc | RedfishService


async def started(chassis: Chassis, machine: str, kind: str, state_dir: Path, *, port: int = 0) -> Device:
    """A BMC of one machine, or a service that stands before this one alone."""
    if kind == "redfish":
        names = {machine: TWIN}
        return await start_redfish(chassis.url, [machine], USERNAME, PASSWORD, state_dir=state_dir, port=port, system_uuids=names)
    options = {"kind": kind, "state_dir": state_dir, "port": port, "system_uuid": TWIN}
    return await start_bmc(chassis.url, machine, USERNAME, PASSWORD, **options)  # type: ignore[arg-type]


def driver_of(device: Device, machine: str) -> PowerDriver:
    if isinstance(device, Bmc):
        return ipmi_driver(device.port)
    return redfish_driver(device.port, system=device.system(machine), ca_file=str(device.authority))


def holding_secrets(folder: Path) -> list[Path]:
    contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return [path for path, content in contents.items() if PASSWORD.encode() in content or b"PRIVATE KEY" in content]


@pytest.fixture(params=[IPMI_SIM, "python", "redfish"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def chassis() -> AsyncIterator[Chassis]:
    async with Chassis() as running:
        for number, name in enumerate(NAMES):
            running.machine(name, "off" if number % 3 == 0 else "on")
        yield running


async def test_several_machines_have_devices_that_leave_nothing(chassis: Chassis, kind: str, tmp_path: Path) -> None:
    if kind == "redfish":
        devices: list[Device] = [await start_redfish(chassis.url, NAMES, USERNAME, PASSWORD, state_dir=tmp_path)] * len(NAMES)
    else:
        devices = await asyncio.gather(*(started(chassis, name, kind, tmp_path) for name in NAMES))
    drivers = [driver_of(device, name) for device, name in zip(devices, NAMES, strict=True)]
    try:
        assert len({driver.endpoint for driver in drivers}) == len(NAMES)
        for device, driver, name in zip(devices, drivers, NAMES, strict=True):
            assert driver.endpoint == (device.endpoint if isinstance(device, Bmc) else device.endpoint(name))
        readings = await asyncio.gather(*(driver.read(within(20)) for driver in drivers))
        assert [reading.state.value for reading in readings] == [chassis.machine(name).power for name in NAMES]
    finally:
        await asyncio.gather(*(device.stop() for device in {id(each): each for each in devices}.values()))
    assert not {device.pid for device in devices} & set(children_of(os.getpid(), dead=True))
    await devices[0].stop()


async def test_a_device_says_who_it_is_and_shows_no_password(chassis: Chassis, kind: str, tmp_path: Path) -> None:
    """S12."""
    device = await started(chassis, "node-1", kind, tmp_path)
    try:
        driver = driver_of(device, "node-1")
        reading = await driver.read(within(20))
        assert (reading.state, reading.serves) == (PowerState.ON, (system_of(str(TWIN)),))
        assert PASSWORD.encode() not in visible(device.pid)
        assert PASSWORD not in repr(device)
        assert [path for path in holding_secrets(tmp_path) if kind == "redfish" or path.stat().st_mode & 0o077] == []
    finally:
        await device.stop()


@pytest.mark.parametrize("kind", [IPMI_SIM, "python"])
async def test_a_device_on_a_port_that_is_taken_does_not_start(chassis: Chassis, kind: str, tmp_path: Path) -> None:
    """ipmi_sim would share the port in silence."""
    first = await started(chassis, "node-1", kind, tmp_path)
    try:
        with pytest.raises(StartError if kind != "redfish" else service.StartError, match=r"node-2|Address already in use"):
            await started(chassis, "node-2", kind, tmp_path, port=first.port)
    finally:
        await first.stop()


@pytest.mark.parametrize("kind", [IPMI_SIM, "redfish"])
async def test_a_device_ends_with_the_process_that_started_it(kind: str, tmp_path: Path) -> None:
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTER, kind, str(tmp_path), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert starter.stdout is not None
    pid = int(await starter.stdout.readline())
    assert alive(pid)
    starter.kill()
    await starter.wait()
    async with asyncio.timeout(5):
        await gone(pid)


@pytest.mark.skipif(not ipmi_sim.installed(), reason="ipmi_sim is not installed")
async def test_a_bmc_that_waits_for_its_chassis_is_stopped_with_its_script(chassis: Chassis, tmp_path: Path) -> None:
    chassis.machine("node-1").set_faults(hang=True)
    bmc = await started(chassis, "node-1", "ipmi_sim", tmp_path)
    reading = asyncio.create_task(driver_of(bmc, "node-1").read(within(10)))
    while not (scripts := children_of(bmc.pid)):
        await asyncio.sleep(0.005)
    await bmc.stop()
    async with asyncio.timeout(5):
        await asyncio.gather(*(gone(pid) for pid in scripts))
    reading.cancel()
