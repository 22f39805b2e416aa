"""The process around one IPMI operation: it ends by its deadline whatever happens to the worker, and shows no secret."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from activities.errors import ErrorType
from activities.power.bmc.drivers import IPMI_SERVER
from activities.power.driver import PowerError
from simulator.bmc.machine import Machine
from tests.patience import PATIENCE
from tests.power.conftest import PASSWORD, USERNAME, Stand, fails, within
from tests.power.process_table import alive, answer_of, forked, gone, operations_of, servers_of, visible

WORKER = """
import asyncio, sys
from tests.power.conftest import ipmi_driver, within
asyncio.run(ipmi_driver(int(sys.argv[1])).off(within(float(sys.argv[2]))))
"""

ROOT = Path(__file__).parents[3]


def request_line(stand: Stand, *, operation: str = "off", seconds: float = 10.0, not_after: float | None = None) -> bytes:
    device = {
        "host": "127.0.0.1",
        "port": stand.bmc.port,
        "cipher": None,
        "privilege": None,
        "username": USERNAME,
        "password": PASSWORD,
        "known": {},
    }
    asked = {"operation": operation, "ends": time.monotonic() + seconds, "not_after": not_after}
    return b"".join(json.dumps(line).encode() + b"\n" for line in (device, asked))


async def operation_in_flight(parent: int) -> int:
    while not (found := operations_of(parent)):
        await asyncio.sleep(0.005)
    return found[0]


def commanded(machine: Machine) -> asyncio.Event:
    """Set once a command has come through the BMC; from then on the BMC is left without an answer."""
    arrived = asyncio.Event()

    async def never_answer(machine: Machine, command: str) -> None:
        arrived.set()
        await asyncio.Event().wait()

    machine.before_set = never_answer
    return arrived


async def test_no_secret_shows_in_arguments_environment_or_error(python_stand: Stand) -> None:
    """S12."""
    arrived = commanded(python_stand.machine)
    driver = python_stand.driver()
    operation = asyncio.create_task(driver.off(within(PATIENCE)))
    await arrived.wait()
    shown = [await operation_in_flight(os.getpid()), *servers_of(os.getpid()), python_stand.bmc.pid]
    seen = b"".join(visible(pid) for pid in shown)
    with pytest.raises(PowerError) as caught:
        await operation
    assert PASSWORD.encode() not in seen
    assert USERNAME.encode() not in seen
    for text in (repr(caught.value), str(caught.value), repr(driver)):
        assert PASSWORD not in text
        assert USERNAME not in text


async def test_nothing_is_left_of_a_worker_that_was_killed(python_stand: Stand) -> None:
    """S34: long before the deadline."""
    arrived = commanded(python_stand.machine)
    port = str(python_stand.bmc.port)
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, port, "60", cwd=ROOT)
    try:
        await arrived.wait()
        left = [*servers_of(worker.pid), await operation_in_flight(worker.pid)]
    finally:
        worker.kill()
        await worker.wait()
    async with asyncio.timeout(5):
        for each in left:
            await gone(each)


async def test_the_operation_dies_by_its_deadline_without_a_parent_to_kill_it(python_stand: Stand) -> None:
    """S34: worker and server stand still, as on a machine without room to run them."""
    arrived = commanded(python_stand.machine)
    with forked(IPMI_SERVER, request_line(python_stand, seconds=2.0)):
        await arrived.wait()
        operation, server = await operation_in_flight(os.getpid()), IPMI_SERVER.pid
        assert server is not None
        os.kill(server, signal.SIGSTOP)
        try:
            assert alive(operation)
            async with asyncio.timeout(5):
                await gone(operation)
        finally:
            os.kill(server, signal.SIGCONT)


async def test_a_command_is_not_sent_when_the_worker_is_gone_already(python_stand: Stand) -> None:
    """S20: the line that announces the command finds no reader, and so the command is not sent. Though nobody kills the child."""
    os.kill(python_stand.bmc.pid, signal.SIGSTOP)  # or a quick child has done all before the worker is gone
    try:
        with forked(IPMI_SERVER, request_line(python_stand)) as (operation, leash):
            operation.close()
            os.kill(python_stand.bmc.pid, signal.SIGCONT)
            assert await asyncio.to_thread(leash.recv, 256) == b"ended 1"
    finally:
        os.kill(python_stand.bmc.pid, signal.SIGCONT)
    assert python_stand.machine.log == []


@pytest.mark.parametrize(
    ("written", "says"), [("late", b'"error": "Expired"'), ("half", b'"error": "Unexpected"'), ("none", b'"error"')]
)
async def test_a_request_that_came_late_or_not_whole_sends_nothing(python_stand: Stand, written: str, says: bytes) -> None:
    """S20: as after a worker that stood still, or died while it wrote."""
    line = {"late": request_line(python_stand, seconds=-0.1), "half": request_line(python_stand)[:-10], "none": b""}[written]
    said, _ = await asyncio.to_thread(answer_of, IPMI_SERVER, line)
    assert says in said
    assert python_stand.machine.log == []
    assert python_stand.machine.reads == {}


@pytest.mark.parametrize("operation", ["off", "on"])
async def test_a_command_is_not_sent_after_its_wall_clock_time_whatever_the_other_clock_says(
    python_stand: Stand, operation: str
) -> None:
    """S20: a suspended machine wakes up with its deadline as far away as before."""
    line = request_line(python_stand, operation=operation, not_after=time.time() - 0.1)
    said, _ = await asyncio.to_thread(answer_of, IPMI_SERVER, line)
    assert b'"error": "Expired"' in said
    assert b'"stage": "logged-in"' in said
    assert b'"stage": "sent"' not in said
    assert python_stand.machine.log == []


async def test_an_operation_that_crashes_after_the_command_was_sent_is_ambiguous(python_stand: Stand) -> None:
    """S3: whatever ends the process, it is never taken for success or failure."""
    arrived = commanded(python_stand.machine)
    operation = asyncio.create_task(python_stand.driver().off(within(30)))
    await arrived.wait()
    os.kill(await operation_in_flight(os.getpid()), signal.SIGSEGV)
    await fails(operation, ErrorType.AMBIGUOUS, "it may have been carried out")
