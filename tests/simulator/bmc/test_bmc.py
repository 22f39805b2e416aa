"""Simulated BMCs as processes: they come up together, keep their password to themselves, and end without a trace."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from simulator.bmc import ipmi_sim
from simulator.bmc.bmc import Bmc, Kind, StartError, start_bmc
from simulator.bmc.chassis import Chassis
from tests.power.conftest import ipmi_driver, within
from tests.power.processes import alive, children_of, gone, visible

PASSWORD = "k3p-my-s3cret"
ROOT = Path(__file__).parents[3]

STARTER = """
import asyncio, sys
from pathlib import Path
from simulator.bmc.bmc import start_bmc
from simulator.bmc.chassis import Chassis

async def main():
    async with Chassis() as chassis:
        chassis.machine("node-1")
        bmc = await start_bmc(chassis.url, "node-1", "fencer", "secret", kind=sys.argv[1], state_dir=Path(sys.argv[2]))
        print(bmc.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def chassis() -> AsyncIterator[Chassis]:
    async with Chassis() as running:
        running.machine("node-1")
        yield running


@pytest.fixture(
    params=[
        pytest.param("ipmi_sim", marks=pytest.mark.skipif(not ipmi_sim.installed(), reason="ipmi_sim is not installed")),
        "python",
    ]
)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def knocked(port: int) -> bool:
    """Whether a BMC answers the first question of every client within a moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        client.connect(("127.0.0.1", port))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(0.3):
                await loop.sock_sendall(client, ipmi_sim.PROBE)
                return len(await loop.sock_recv(client, 512)) > 0
        except (TimeoutError, ConnectionRefusedError):
            return False


async def test_a_frozen_bmc_answers_nothing_until_it_thaws(chassis: Chassis, kind: Kind, tmp_path: Path) -> None:
    bmc = await start_bmc(chassis.url, "node-1", "fencer", PASSWORD, kind=kind, state_dir=tmp_path)
    try:
        bmc.freeze()
        assert not await knocked(bmc.port)
        bmc.thaw()
        assert await knocked(bmc.port)
    finally:
        await bmc.stop()


async def test_a_bmc_comes_back_on_the_port_it_had(chassis: Chassis, kind: Kind, tmp_path: Path) -> None:
    first = await start_bmc(chassis.url, "node-1", "fencer", PASSWORD, kind=kind, state_dir=tmp_path)
    await first.stop()
    second = await start_bmc(chassis.url, "node-1", "fencer", PASSWORD, kind=kind, state_dir=tmp_path, port=first.port)
    assert (second.port, second.system_uuid, second.serial) == (first.port, first.system_uuid, first.serial)
    await second.stop()


async def test_a_bmc_on_a_port_that_is_taken_does_not_start(chassis: Chassis, kind: Kind, tmp_path: Path) -> None:
    """ipmi_sim would share the port in silence."""
    chassis.machine("node-2")
    first = await start_bmc(chassis.url, "node-1", "fencer", PASSWORD, kind=kind, state_dir=tmp_path)
    try:
        with pytest.raises(StartError, match="node-2"):
            await start_bmc(chassis.url, "node-2", "fencer", PASSWORD, kind=kind, state_dir=tmp_path, port=first.port)
    finally:
        await first.stop()


async def test_the_password_shows_in_no_argument_and_in_no_file_of_others(chassis: Chassis, kind: Kind, tmp_path: Path) -> None:
    """S12."""
    bmc = await start_bmc(chassis.url, "node-1", "fencer", PASSWORD, kind=kind, state_dir=tmp_path)
    try:
        assert PASSWORD.encode() not in visible(bmc.pid)
        assert PASSWORD not in repr(bmc)
        holding = [path for path in files_below(tmp_path) if PASSWORD.encode() in path.read_bytes()]
        assert [path for path in holding if path.stat().st_mode & 0o077] == []
    finally:
        await bmc.stop()


async def test_a_bmc_ends_with_the_process_that_started_it(kind: Kind, tmp_path: Path) -> None:
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
    machine = chassis.machine("node-1")
    machine.set_faults(hang=True)
    bmc = await start_bmc(chassis.url, "node-1", "fencer", PASSWORD, kind="ipmi_sim", state_dir=tmp_path)
    reading = asyncio.create_task(ipmi_driver(bmc.port, username="fencer", password=PASSWORD).read(within(10)))
    while not (scripts := children_of(bmc.pid)):
        await asyncio.sleep(0.005)
    await bmc.stop()
    async with asyncio.timeout(5):
        await asyncio.gather(*(gone(pid) for pid in scripts))
    reading.cancel()


async def test_twelve_bmcs_come_up_together(chassis: Chassis, kind: Kind, tmp_path: Path) -> None:
    names = [f"node-{number}" for number in range(12)]
    for name in names:
        chassis.machine(name)
    async with asyncio.timeout(15):
        bmcs: list[Bmc] = await asyncio.gather(
            *(start_bmc(chassis.url, name, "fencer", PASSWORD, kind=kind, state_dir=tmp_path) for name in names)
        )
    try:
        assert len({bmc.endpoint for bmc in bmcs}) == 12
        assert all(await asyncio.gather(*(knocked(bmc.port) for bmc in bmcs)))
    finally:
        await asyncio.gather(*(bmc.stop() for bmc in bmcs))
    assert not {bmc.pid for bmc in bmcs} & set(children_of(os.getpid()))
