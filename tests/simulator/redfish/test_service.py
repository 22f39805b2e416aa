"""A simulated Redfish service as a process: many machines, a password that it keeps to itself, and an end without a trace."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from activities.errors import ErrorType
from policy.fence.power import PowerState
from simulator.bmc.chassis import Chassis
from simulator.redfish.service import RedfishService, StartError, start_redfish
from tests.power.conftest import PASSWORD, USERNAME, within
from tests.power.processes import alive, children_of, gone, visible
from tests.power.redfish_stand import failure_of, redfish_driver

ROOT = Path(__file__).parents[3]
NAMES = [f"node-{number}" for number in range(12)]

STARTER = """
import asyncio, sys
from pathlib import Path
from simulator.bmc.chassis import Chassis
from simulator.redfish.service import start_redfish

async def main():
    async with Chassis() as chassis:
        chassis.machine("node-1")
        service = await start_redfish(chassis.url, ["node-1"], "fencer", "secret", state_dir=Path(sys.argv[1]))
        print(service.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def chassis() -> AsyncIterator[Chassis]:
    async with Chassis() as running:
        for number, name in enumerate(NAMES):
            running.machine(name, "off" if number % 3 == 0 else "on")
        yield running


def contents_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def state_of(service: RedfishService, machine: str) -> PowerState:
    driver = redfish_driver(service.port, system=service.system(machine), ca_file=str(service.authority))
    assert driver.endpoint == service.endpoint(machine)
    return (await driver.read(within(20))).state


async def test_twelve_machines_stand_behind_one_process_that_keeps_its_secrets(chassis: Chassis, tmp_path: Path) -> None:
    """S12."""
    identity = UUID("11111111-2222-3333-4444-555555555555")
    service = await start_redfish(chassis.url, NAMES, USERNAME, PASSWORD, state_dir=tmp_path, system_uuids={"node-1": identity})
    try:
        states = await asyncio.gather(*(state_of(service, name) for name in NAMES))
        assert [state.value for state in states] == [chassis.machine(name).power for name in NAMES]
        driver = redfish_driver(service.port, system="node-1", ca_file=str(service.authority))
        assert (await driver.identity(within(20))).system_uuid == str(identity)
        assert PASSWORD.encode() not in visible(service.pid)
        assert PASSWORD not in repr(service)
        written = contents_below(tmp_path)
        assert PASSWORD.encode() not in written
        assert b"PRIVATE KEY" not in written
        assert b"BEGIN CERTIFICATE" in written
    finally:
        await service.stop()
    assert not alive(service.pid)
    assert service.pid not in children_of(os.getpid())
    await failure_of(redfish_driver(service.port, system="node-1").read(within(5)), ErrorType.UNREACHABLE)


async def test_a_service_on_a_port_that_is_taken_does_not_start(chassis: Chassis, tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    try:
        with pytest.raises(StartError, match="Address already in use"):
            await start_redfish(
                chassis.url, NAMES, USERNAME, PASSWORD, state_dir=tmp_path, port=taken.sockets[0].getsockname()[1]
            )
    finally:
        taken.close()


async def test_a_service_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STARTER, str(tmp_path), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert starter.stdout is not None
    pid = int(await starter.stdout.readline())
    assert alive(pid)
    starter.kill()
    await starter.wait()
    async with asyncio.timeout(5):
        await gone(pid)
