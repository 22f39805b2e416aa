"""What every power driver promises, tried against whatever stands for its device: subclass and give it a `bench`.

A bench knows the truth (is the machine on, what reached it) apart from what the device says, and can break the device in the ways
that real ones break. What only one driver has is tested in its own module.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from typing import ClassVar

import pytest

from activities.errors import ErrorType
from activities.power.driver import Deadline, PowerDriver
from policy.episode.messages import Reading
from policy.fence.power import PowerCapability, PowerState
from simulator.bmc.machine import Machine
from tests.power.conftest import fails, within

PATIENCE = 10.0
"""Seconds for an act on a device that is well: a busy machine needs some, and a test that passes never does."""


class Bench(ABC):
    """One device under one driver, before a machine of the simulator that has the truth. Secrets that a driver is given are in
    `secrets`, so that errors can be searched for them."""

    secrets: ClassVar[tuple[str, ...]] = ()
    stalls_within: ClassVar[float] = 0.7
    """Seconds after which a driver may be told that its time is over; more where its client only starts slowly."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @abstractmethod
    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        """The driver; with another password, or for a machine or plug that the device does not know."""

    @abstractmethod
    async def be_silent(self) -> None:
        """From now on nothing is answered at all, and nothing carried out."""

    async def commands(self) -> list[str]:
        """The commands that the device has carried out or accepted, "on" and "off", in their order."""
        return [entry.command for entry in self.machine.log]

    async def lose_answers(self) -> None:
        """From now on commands are carried out, and their answers never come. Questions are answered."""

        async def never(machine: Machine, command: str) -> None:
            await asyncio.Event().wait()

        self.machine.after_set = never

    async def take_time(self, seconds: float) -> None:
        """From now on the machine goes off or on only so long after the command was accepted."""
        self.machine.set_faults(settle=seconds)

    def is_on(self) -> bool:
        return self.machine.power == "on"


class DriverConformance:
    """The contract of `activities/power/driver.py`."""

    unknown_target: ClassVar[ErrorType | None] = ErrorType.INVALID_CONFIG
    """What a machine or plug that the device does not know leads to; None where the device has only one."""
    wrong_password: ClassVar[ErrorType] = ErrorType.UNAUTHORIZED
    silence: ClassVar[ErrorType] = ErrorType.UNREACHABLE
    """What off leads to where nothing is answered; Ambiguous where it is sent before the first answer. A reading is no state."""

    async def test_a_machine_is_switched_off_read_as_off_and_switched_on_again(self, bench: Bench) -> None:
        """S2, S33: off is what was read after the off, and each command reached the machine once."""
        driver = bench.driver()
        assert {PowerCapability.READ, PowerCapability.OFF, PowerCapability.ON} <= driver.capabilities
        assert (await driver.read(within(PATIENCE))).state is PowerState.ON
        await driver.off(within(PATIENCE))
        ended_at = datetime.now(UTC)
        reading = await _until(driver, PowerState.OFF)
        assert reading.at >= ended_at
        assert reading.endpoint == driver.endpoint
        assert not bench.is_on()
        await driver.on(within(PATIENCE))
        await _until(driver, PowerState.ON)
        assert bench.is_on()
        assert await bench.commands() == ["off", "on"]

    async def test_off_and_on_are_accepted_where_it_is_so_already(self, bench: Bench) -> None:
        driver = bench.driver()
        await driver.on(within(PATIENCE))
        await driver.off(within(PATIENCE))
        await _until(driver, PowerState.OFF)
        await driver.off(within(PATIENCE))
        await _until(driver, PowerState.OFF)
        assert not bench.is_on()

    async def test_a_wrong_password_commands_nothing_and_is_shown_nowhere(self, bench: Bench) -> None:
        """S12."""
        driver = bench.driver(password="not-the-one")
        for act in (driver.read, driver.off):
            error = await fails(act(within(PATIENCE)), self.wrong_password)
            _shows_no_secret(bench, driver, error, "not-the-one")
        assert await bench.commands() == []

    async def test_an_unknown_machine_is_never_off(self, bench: Bench) -> None:
        """S3, S10."""
        if self.unknown_target is None:
            pytest.skip("the device has only one machine")
        driver = bench.driver(target="unknown")
        for act in (driver.read, driver.off):
            await fails(act(within(PATIENCE)), self.unknown_target)
        assert await bench.commands() == []

    async def test_off_that_is_accepted_and_not_carried_out_reads_on(self, bench: Bench) -> None:
        """S2: an answer is no proof."""
        bench.machine.set_faults(ignore_off=True)
        driver = bench.driver()
        await driver.off(within(PATIENCE))
        assert (await driver.read(within(PATIENCE))).state is not PowerState.OFF

    async def test_a_machine_that_needs_time_is_not_off_before_it_is(self, bench: Bench) -> None:
        """S3: under way is not off."""
        await bench.take_time(1.0)
        driver = bench.driver()
        await driver.off(within(PATIENCE))
        reading = await driver.read(within(PATIENCE))
        assert reading.state is not PowerState.OFF or not bench.is_on()
        await _until(driver, PowerState.OFF)
        assert not bench.is_on()

    async def test_silence_is_over_by_the_deadline_and_is_no_state(self, bench: Bench) -> None:
        """S3, S34."""
        await bench.be_silent()
        driver = bench.driver()
        for act, expected in ((driver.read, ErrorType.UNREACHABLE), (driver.off, self.silence)):
            began = time.monotonic()
            error = await fails(act(within(bench.stalls_within)), expected)
            _shows_no_secret(bench, driver, error)
            assert time.monotonic() - began < bench.stalls_within + 2.0

    async def test_a_command_whose_answer_is_lost_is_ambiguous_and_sent_once(self, bench: Bench) -> None:
        """S33, S34: it may have been carried out, so it is neither repeated nor called a failure."""
        await bench.lose_answers()
        driver = bench.driver()
        error = await fails(driver.off(within(bench.stalls_within + 1.0)), ErrorType.AMBIGUOUS)
        _shows_no_secret(bench, driver, error)
        assert await bench.commands() == ["off"]

    async def test_an_act_whose_deadline_is_over_is_not_begun(self, bench: Bench) -> None:
        """S20."""
        driver = bench.driver()
        for act in (driver.read, driver.off, driver.on):
            await fails(act(within(0)), ErrorType.EXPIRED)
        await fails(
            driver.off(Deadline.within(within(PATIENCE).remaining(), not_after=datetime(2020, 1, 1, tzinfo=UTC))),
            ErrorType.EXPIRED,
        )
        assert await bench.commands() == []


async def _until(driver: PowerDriver, state: PowerState) -> Reading:
    deadline = time.monotonic() + PATIENCE
    while (reading := await driver.read(within(PATIENCE))).state is not state:
        assert time.monotonic() < deadline, f"{driver.endpoint} still reads {reading.state}, expected {state}"
        await asyncio.sleep(0.1)
    return reading


def _shows_no_secret(bench: Bench, driver: PowerDriver, error: BaseException, *others: str) -> None:
    for secret in (*bench.secrets, *others):
        assert secret not in f"{error} {error!r} {driver!r}"
