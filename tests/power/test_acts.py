"""One act on a device is one session of it: read, compare, command, read back, with the device failing at each point of it.

IPMI and Redfish on the real protocols and the real processes, through the activity. What each answer means by itself is tried
beside the drivers.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.contracts.power import CommandResult, PowerRequest
from activities.errors import ErrorType, error_type
from activities.power.bmc.child_handle import ForkServer
from activities.power.driver import DeviceCredentials
from activities.power.registry import driver_for
from activities.power.service import PowerService
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerState
from simulator.bmc.bmc import start_bmc
from simulator.bmc.chassis import Chassis
from simulator.bmc.machine import HAND, Machine
from simulator.redfish.service import start_redfish
from tests.licensing import BELIEVING
from tests.patience import PATIENCE
from tests.power.conftest import PASSWORD, USERNAME, Stand, fails, within
from tests.power.ipmi.test_driver import RAKP_1
from tests.power.process_table import gone, operations_of
from tests.power.targets import endpoint_of, target_with

ANOTHER = "4c4c4544-0042-3510-8051-b4c04f4d3133"
READ_BACK = timedelta(seconds=1)
IN_A_SESSION = (0x06, 0x00)
"""Authentication and payload type of what is asked and answered after a login (IPMI 2.0, section 13.6)."""


class Known:
    """The credentials of every device here."""

    async def read(self, cluster: str, device: PowerDevice) -> DeviceCredentials:
        return DeviceCredentials(values={"username": USERNAME, "password": PASSWORD})


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device before one machine."""

    machine: Machine
    device: PowerDevice
    protocol: str

    async def act(self, act: str = "power_off", *, deadline: float = PATIENCE, **fields: Any) -> CommandResult:
        fields = {"read_back": READ_BACK} | fields
        request = PowerRequest(target=target_with(self.device), device=self.device, deadline=timedelta(seconds=deadline))
        service = PowerService(Known(), BELIEVING)
        result: CommandResult = await ActivityEnvironment().run(getattr(service, act), replace(request, **fields))
        return result

    async def refused(self, expected: ErrorType, says: str = "", **fields: Any) -> None:
        with pytest.raises(ApplicationError, match=says or None) as caught:
            await self.act(**fields)
        assert error_type(caught.value) is expected, str(caught.value)

    @property
    def offs(self) -> int:
        return len([each for each in self.machine.commands("off") if each.device != HAND])

    @property
    def reads(self) -> int:
        return self.machine.reads.total()

    async def child(self) -> int:
        """The process of the session that is under way."""
        async with asyncio.timeout(PATIENCE):
            while not (found := operations_of(os.getpid(), f"bmc.{self.protocol}")):
                await asyncio.sleep(0.005)
        return found[0]

    async def until_read(self, times: int) -> None:
        """Until the machine has been asked for its state so often."""
        async with asyncio.timeout(PATIENCE):
            while self.reads < times:
                await asyncio.sleep(0.005)


def device_of(driver: str, **parameters: str) -> PowerDevice:
    return PowerDevice(driver=driver, endpoint=endpoint_of(driver, parameters), parameters=parameters)


@pytest.fixture(params=["ipmi", "redfish"])
async def device(request: pytest.FixtureRequest, chassis: Chassis, tmp_path: Path) -> AsyncIterator[Device]:
    machine, protocol = chassis.machine("node-1"), str(request.param)
    started: Any
    if protocol == "ipmi":
        started = await start_bmc(chassis.url, machine.name, USERNAME, PASSWORD, kind="python", state_dir=tmp_path)
        found = device_of("ipmi", ip="127.0.0.1", ipport=str(started.port))
    else:
        started = await start_redfish(chassis.url, [machine.name], USERNAME, PASSWORD, state_dir=tmp_path)
        where = {"ip": "127.0.0.1", "ipport": str(started.port), "ca-file": str(started.authority)}
        found = device_of("redfish", **where, system=machine.name)
    try:
        yield Device(machine=machine, device=found, protocol=protocol)
    finally:
        await started.stop()


async def test_an_off_is_read_commanded_and_read_back(device: Device) -> None:
    """S2: what is read back is asked for after the command's end."""
    result = await device.act()
    assert (result.sent, result.before) == (True, PowerState.ON)
    assert result.after is not None
    assert result.after.state is PowerState.OFF
    assert (device.offs, device.reads) == (1, 2)


async def test_a_device_that_hangs_after_the_login_is_not_commanded(device: Device) -> None:
    """S3, S33: and its process is gone with the act."""
    device.machine.set_faults(hang=True)
    await device.refused(ErrorType.UNREACHABLE, "nothing was commanded", deadline=3.0)
    assert device.offs == 0
    assert operations_of(os.getpid(), f"bmc.{device.protocol}") == []


async def test_an_off_whose_answer_is_lost_may_have_been_carried_out_and_is_sent_once(device: Device) -> None:
    """S33, S34."""

    async def never(_machine: Machine, _command: str) -> None:
        await asyncio.Event().wait()

    device.machine.after_set = never
    await device.refused(ErrorType.AMBIGUOUS, "it may have been carried out", deadline=4.0)
    assert (device.offs, device.machine.power) == (1, "off")


async def test_a_device_that_falls_silent_once_it_has_accepted_takes_nothing_back(device: Device) -> None:
    """S2, S3: the command has ended, and what came of it is not known."""

    async def hang(machine: Machine, _command: str) -> None:
        machine.set_faults(hang=True)

    device.machine.after_set = hang
    result = await device.act()
    assert (result.sent, result.after, device.offs) == (True, None, 1)
    assert operations_of(os.getpid(), f"bmc.{device.protocol}") == []


async def test_a_question_after_a_command_that_is_not_answered_commanded_nothing(device: Device) -> None:
    """S3, S34: only what was sent since the session was last asked may have been carried out."""

    async def hang(machine: Machine, _command: str) -> None:
        machine.set_faults(hang=True)

    device.machine.after_set = hang
    credentials = DeviceCredentials(values={"username": USERNAME, "password": PASSWORD})
    async with driver_for(device.device, credentials).session() as session:
        await session.off(within(PATIENCE))
        await fails(session.read(within(1.0)), ErrorType.UNREACHABLE, "nothing was commanded")


async def test_a_device_that_acknowledges_off_and_stays_on_is_read_as_on(device: Device) -> None:
    """S2: it is asked for as long as it may take, and the command is not repeated."""
    device.machine.set_faults(ignore_off=True)
    result = await device.act()
    assert result.after is not None
    assert (result.after.state, device.offs) == (PowerState.ON, 1)
    assert device.reads > 2


async def test_a_device_of_another_machine_is_read_and_not_commanded(device: Device) -> None:
    """S39."""
    target = target_with(device.device)
    another = replace(target, pinned=replace(target.pinned, system_uuid=ANOTHER))
    await device.refused(ErrorType.TARGET_CHANGED, "nothing was sent", target=another)
    assert (device.offs, device.reads) == (0, 1)
    assert operations_of(os.getpid(), f"bmc.{device.protocol}") == []


async def test_a_licence_that_ends_while_the_device_is_read_commands_nothing(device: Device) -> None:
    """S20, S45."""
    device.machine.set_faults(delay=1.0)
    soon = datetime.now(UTC) + timedelta(seconds=0.9)
    await device.refused(ErrorType.EXPIRED, "nothing was sent", deadline=30, not_after=soon)
    assert device.offs == 0


@pytest.mark.parametrize(
    ("stage", "expected", "offs"),
    [("reads", ErrorType.TRANSIENT, 0), ("commands", ErrorType.AMBIGUOUS, 1), ("reads back", None, 1)],
)
async def test_a_child_that_is_killed_counts_as_far_as_it_had_come(
    device: Device, stage: str, expected: ErrorType | None, offs: int
) -> None:
    """S3, S33, S34: before the command nothing was sent; from then on it may have been carried out; what has ended has ended."""
    commanded = asyncio.Event()

    async def stand_still(machine: Machine, _command: str) -> None:
        commanded.set()
        if stage == "commands":
            await asyncio.Event().wait()
        machine.set_faults(hang=True)

    device.machine.after_set = stand_still
    if stage == "reads":
        device.machine.set_faults(hang=True)
    act = asyncio.create_task(device.act(read_back=timedelta(seconds=PATIENCE)))
    child = await device.child()
    if stage == "commands":
        await asyncio.wait_for(commanded.wait(), PATIENCE)
    else:
        await device.until_read(1 if stage == "reads" else 2)
    os.kill(child, signal.SIGKILL)
    if expected is None:
        result = await act
        assert (result.sent, result.after) == (True, None)
    else:
        with pytest.raises(ApplicationError) as caught:
            await act
        assert error_type(caught.value) is expected
    async with asyncio.timeout(PATIENCE):
        await gone(child)
    assert device.offs == offs


async def test_a_worker_that_is_gone_between_reading_and_commanding_has_commanded_nothing(device: Device) -> None:
    """S33, S34: nothing but the worker says what comes next, and the child ends with its socket."""
    device.machine.set_faults(delay=0.5)
    act = asyncio.create_task(device.act())
    child = await device.child()
    await device.until_read(1)
    act.cancel()
    with pytest.raises(asyncio.CancelledError):
        await act
    async with asyncio.timeout(PATIENCE):
        await gone(child)
    assert device.offs == 0


# Answers that belong to something else ----------------------------------------------------------------------------------


class EchoingRelay(asyncio.DatagramProtocol):
    """Stands before one BMC. Whenever the client has sent something it gets once more what the BMC has answered to all questions,
    of this session and of earlier ones, before the answer to that."""

    def __init__(self, bmc_port: int) -> None:
        self._bmc_port = bmc_port
        self._client: Any = None
        self._answers: list[bytes] = []
        self.logins: set[bytes] = set()
        self.transport: asyncio.DatagramTransport | None = None

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        assert self.transport is not None
        if addr[1] == self._bmc_port:
            if (data[4], data[5] & 0x3F) == IN_A_SESSION:
                self._answers.append(data)
            self.transport.sendto(data, self._client)
            return
        self._client = addr
        if len(data) > 6 and (data[4], data[5] & 0x3F) == RAKP_1:
            self.logins.add(data)
        for each in self._answers:
            self.transport.sendto(each, addr)
        self.transport.sendto(data, ("127.0.0.1", self._bmc_port))


@asynccontextmanager
async def echoing(bmc_port: int) -> AsyncIterator[tuple[int, EchoingRelay]]:
    loop = asyncio.get_running_loop()
    relay = EchoingRelay(bmc_port)
    relay.transport, _ = await loop.create_datagram_endpoint(lambda: relay, local_addr=("127.0.0.1", 0))
    try:
        yield relay.transport.get_extra_info("sockname")[1], relay
    finally:
        relay.transport.close()


async def test_an_act_logs_in_once_and_believes_no_answer_to_another_question(python_stand: Stand) -> None:
    """S2: of a machine that was off before the command and is on after it, no former answer is taken for what is read back,
    neither one of this session nor one of the session before."""
    machine = python_stand.machine
    await machine.set_power("off")

    async def back_on(machine: Machine, _command: str) -> None:
        await machine.set_power("on")

    machine.after_set = back_on
    async with echoing(python_stand.bmc.port) as (port, relay):
        device = Device(machine=machine, device=device_of("ipmi", ip="127.0.0.1", ipport=str(port)), protocol="ipmi")
        for number in (1, 2):
            result = await device.act()
            assert result.before is PowerState.OFF
            assert result.after is not None
            assert (result.after.state, device.offs, len(relay.logins)) == (PowerState.ON, number, number)
            await machine.set_power("off")


@pytest.mark.parametrize("act", ["power_off", "power_on"])
async def test_an_act_is_one_process_whatever_it_asks(device: Device, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    """S33: read, command and read back go through one session."""
    forked: list[ForkServer] = []
    fork: Callable[[ForkServer], Any] = ForkServer.fork

    def counted(server: ForkServer) -> Any:
        forked.append(server)
        return fork(server)

    monkeypatch.setattr(ForkServer, "fork", counted)
    await device.machine.set_power("on" if act == "power_off" else "off")
    result = await device.act(act)
    assert (result.sent, len(forked), device.reads) == (True, 1, 2)
