"""Devices, as a workflow speaks to them: one command, what is known afterwards, one reading.

Never repeats a command that may have begun: after anything unclear it waits until nothing can be in flight (S33, S34), and a
device that can't be read is UNKNOWN, never off (S3). Power is `workflows/fencing/power_sequence.py`, the paths to storage and
network `workflows/fencing/paths.py`; both decide there what follows. How a device is spoken to is `activities/power/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.power import CommandResult, GivenUpRequest, PowerActivities, PowerRequest
from activities.errors import ErrorType, error_type
from policy.episode.messages import GivenUpReading, Reading
from policy.fence.plan import FencingPlan, PowerDevice
from policy.fence.power import PowerState
from workflows.episode.episode import Episode
from workflows.episode.preflight import Licence
from workflows.kit import options
from workflows.kit.interrupts import Interrupt, NonRetryable, StepFailed, TooSlow, failure_line, interrupt_for

POLL_INTERVAL = timedelta(seconds=1)
POLL_INTERVAL_MAXIMUM = timedelta(seconds=10)
"""Polls back off to this, so that a long wait stays a short history."""

MOST_DECLINED = 5
"""So often in a row workers may decline a reading or a command because of their own clocks."""

Request = TypeVar("Request")
Result = TypeVar("Result")
Command = Callable[[PowerActivities, PowerRequest], Awaitable[CommandResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """One use of devices: the activities that read and command, and their names in the record."""

    read: Callable[[PowerActivities, PowerRequest], Awaitable[Reading]]
    off: Command
    on: Command
    read_act: str
    off_act: str
    on_act: str
    off_step: str
    on_step: str


POWER = DeviceUse(
    read=PowerActivities.read_power,
    off=PowerActivities.power_off,
    on=PowerActivities.power_on,
    read_act="read-power",
    off_act="power-off",
    on_act="power-on",
    off_step="power-management",
    on_step="power-management",
)
PATH = DeviceUse(
    read=PowerActivities.read_path,
    off=PowerActivities.cut_path,
    on=PowerActivities.restore_path,
    read_act="read-path",
    off_act="cut-path",
    on_act="restore-path",
    off_step="isolation",
    on_step="recovery",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """What became of a command: when it had ended at the latest, by the workflow's order, or why the device
    can't be commanded."""

    ended_at: datetime
    failed: Interrupt | None = None
    unclear: bool = False
    """It may have been carried out or not; nothing of it is in flight any more."""
    before: PowerState | None = None
    """What the device said right before the command, None where it said nothing."""
    machine: str = ""
    """Which one was commanded, where its device alone does not say so."""
    after: Reading | None = None
    """What the device said after the command had ended, where it was asked and has answered."""


class Devices:
    """The devices of one episode, in one use of them."""

    def __init__(self, episode: Episode, plan: FencingPlan, use: DeviceUse) -> None:
        self._episode = episode
        self._plan = plan
        self._use = use

    async def command_off(self, device: PowerDevice, licence: Licence, *, read_back: bool = False) -> CommandOutcome:
        """One off, begun by the end of its licence or not at all. A turn that is not about this device alone is raised.
        read_back: what the device says afterwards is asked for at once."""
        use = self._use
        return await self._command(use.off, device, licence, use.off_act, use.off_step, read_back=read_back)

    async def command_on(self, device: PowerDevice, licence: Licence, *, read_back: bool = False) -> CommandOutcome:
        """One on, as an off."""
        use = self._use
        return await self._command(use.on, device, licence, use.on_act, use.on_step, read_back=read_back)

    async def terminate(self, device: PowerDevice, licence: Licence) -> CommandOutcome:
        """Give a cloud machine up, as an off."""
        return await self._command(PowerActivities.terminate, device, licence, "terminate", self._use.off_step)

    async def read_given_up(self, device: PowerDevice, machine: str) -> GivenUpReading:
        """Whether a machine is given up. What can't be read is not (S3)."""
        target, sealed = self._episode.target, self._episode.sealed(device)
        request = GivenUpRequest(target=target, device=sealed, deadline=self._plan.act_deadline, machine=machine)
        summary = f"{self._use.off_step}: reads whether {device.endpoint} is given up"
        try:
            return await options.execute(
                PowerActivities.read_given_up, request, options.power_read(device.site, self._plan), summary
            )
        except ActivityError as error:
            message = failure_line(device.endpoint, error)
            self._episode.note("read-given-up", "failed", message)
            return GivenUpReading(endpoint=device.endpoint, given_up=False, at=workflow.now(), detail=message)

    async def read_all(
        self, devices: Sequence[PowerDevice], *, may_fail: Callable[[PowerDevice], bool] | None = None
    ) -> tuple[Reading, ...]:
        """All at once: the slowest silent device bounds how old the first answer gets.

        Raises NonRetryable, but not for a device that may fail: that one is left out.
        """
        answers = await asyncio.gather(*(self._read(device) for device in devices), return_exceptions=True)
        for device, answer in zip(devices, answers, strict=True):
            if isinstance(answer, BaseException) and not (isinstance(answer, NonRetryable) and may_fail and may_fail(device)):
                raise answer
        return tuple(answer for answer in answers if isinstance(answer, Reading))

    async def read_until(self, devices: Sequence[PowerDevice], state: PowerState, patience: timedelta) -> tuple[Reading, ...]:
        """Poll until every device says `state` or the patience is over. Answers the latest readings, for the caller to judge."""
        deadline = workflow.now() + patience
        pause = POLL_INTERVAL
        while True:
            readings = await self.read_all(devices)
            if all(reading.state is state for reading in readings) or workflow.now() >= deadline:
                return readings
            await self._episode.pause(pause, f"until {state.value} is read again")
            pause = longer(pause)

    async def _read(self, device: PowerDevice) -> Reading:
        """A reading, of the moment at which it was asked for: it is no older. A device that can't be read is UNKNOWN, never off
        (S3), unless it can never be read."""
        asked_at = self._episode.moment()
        try:
            reading = await self._asked(device)
        except ActivityError as error:
            interrupt = interrupt_for(error, device.endpoint)
            if isinstance(interrupt, NonRetryable):
                raise interrupt from error
            message = failure_line(device.endpoint, error)
            self._episode.note(self._use.read_act, "failed", message)
            self._episode.state.problem = message
            reading = Reading(endpoint=device.endpoint, state=PowerState.UNKNOWN, at=asked_at, detail=message)
        return self._kept(replace(reading, at=asked_at))

    def _kept(self, reading: Reading) -> Reading:
        if self._use is POWER:
            self._episode.state.readings[reading.endpoint] = replace(reading, seal="")
        return reading

    async def _asked(self, device: PowerDevice) -> Reading:
        """Where a worker declines because of its own clock, that says nothing of the device: another one is asked."""
        config, declined = options.power_read(device.site, self._plan), 0
        config["summary"] = f"{self._use.off_step}: reads {device.endpoint}"
        await self._episode.outlive_reset()
        while True:
            try:
                with self._episode.over_in_time(config):
                    return await workflow.execute_activity_method(self._use.read, self._request(device), **config)
            except ActivityError as error:
                declined += 1
                if error_type(error) is not ErrorType.WRONG_CLOCK or declined == MOST_DECLINED:
                    raise

    async def _command(
        self,
        command: Command,
        device: PowerDevice,
        licence: Licence,
        act: str,
        step: str,
        *,
        read_back: bool = False,
    ) -> CommandOutcome:
        config = options.power_command(device.site, self._plan)
        config["summary"] = f"{step}: {act.replace('-', ' ')} {device.endpoint}"
        request = replace(
            self._request(device),
            not_after=licence.until,
            licence=licence.signed,
            read_back=options.READ_BACK if read_back else timedelta(0),
        )
        try:
            result = await command_licensed(self._episode, command, request, licence, config)
        except ActivityError as error:
            return await self._after_failure(device, act, error)
        self._episode.note(act, "sent" if result.sent else "needless", f"{device.endpoint}: {result.detail}")
        commanded = CommandOutcome(ended_at=self._episode.moment(), before=result.before, machine=result.machine)
        if result.after is None:
            return commanded
        # It was asked for after the command's end, in one activity; nothing but that order is concluded from when.
        return replace(commanded, after=self._kept(replace(result.after, at=self._episode.moment())))

    async def _after_failure(self, device: PowerDevice, act: str, error: ActivityError) -> CommandOutcome:
        """An unclear command has been waited out when this returns; a clear failure is answered."""
        if await self._episode.wait_out(act, device.endpoint, error):
            return CommandOutcome(ended_at=self._episode.moment(), unclear=True)
        interrupt = interrupt_for(error, device.endpoint)
        if not isinstance(interrupt, StepFailed | NonRetryable):
            raise interrupt from error  # not about this device alone: another one would be as wrong
        return CommandOutcome(ended_at=self._episode.moment(), failed=interrupt)

    def _request(self, device: PowerDevice) -> PowerRequest:
        target, sealed = self._episode.target.without_levels, self._episode.sealed(device)
        return PowerRequest(target=target, device=sealed, deadline=self._plan.act_deadline)


async def command_licensed(
    episode: Episode,
    command: Callable[[PowerActivities, Request], Awaitable[Result]],
    request: Request,
    licence: Licence,
    config: workflow.ActivityConfig,
) -> Result:
    """Have a device commanded. A worker that declines because of its own clock has begun nothing (S33): another one is asked, as
    long as the look before is good (S45) and no person has spoken since (S20). Raises ActivityError, and TooSlow after a reset in
    between."""
    asked_before, declined = _asked_by_people(episode), 0
    while True:
        if await episode.outlive_reset():
            raise TooSlow("no look was answered in time to act upon it")  # a reset came in between
        try:
            with episode.over_in_time(config):
                return await workflow.execute_activity_method(command, request, **config)
        except ActivityError as error:
            declined += 1
            good = workflow.now() < licence.until and _asked_by_people(episode) == asked_before
            if error_type(error) is not ErrorType.WRONG_CLOCK or declined == MOST_DECLINED or not good:
                raise


def _asked_by_people(episode: Episode) -> tuple[object, ...]:
    return episode.state.holds, episode.state.resumed, episode.state.abort_asked


def states(readings: Sequence[Reading]) -> str:
    """What devices say, in a line."""
    return ", ".join(f"{reading.endpoint} says {reading.state.value}" for reading in readings)


def longer(pause: timedelta) -> timedelta:
    return min(pause * 1.5, POLL_INTERVAL_MAXIMUM)
