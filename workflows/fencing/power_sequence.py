"""Power, as a workflow sees it: command, wait out, read, and only then conclude.

`PowerSequence` keeps what has been proven across tries and restarts of the flow. It never repeats a command blindly: after
anything unclear it waits until nothing can be in flight and reads (S33, S34). How a device is spoken to is
`activities/power/`; in which order that is done, and the wait for the return, is `workflows/fencing/power_steps.py`; what follows
from a proof is `workflows/fencing/consequences.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NoReturn

from temporalio import workflow

from policy.episode.messages import OffProof, Reading
from policy.episode.proofs import level_proven, may_switch_on, off_proven
from policy.fence.plan import FencingPlan, PowerDevice
from policy.fence.power import PowerState
from policy.values.times import written
from workflows.episode.episode import Episode
from workflows.episode.preflight import Licence
from workflows.episode.state import PowerProgress
from workflows.fencing.device_commands import POLL_INTERVAL, POWER, Devices, longer, states
from workflows.kit import options
from workflows.kit.interrupts import Interrupt, NonRetryable, ProofLost, StepFailed, Unlicensed, WordRefuted

Look = Callable[[], Awaitable[Licence]]
"""A look before the act that follows it."""


class PowerSequence:
    """The devices of one node: off until proven, read again before each consequence, on until read as on."""

    def __init__(self, episode: Episode, plan: FencingPlan, progress: PowerProgress) -> None:
        self._episode = episode
        self._plan = plan
        self._progress = progress
        self._devices = Devices(episode, plan, POWER)

    @property
    def proof(self) -> OffProof | None:
        """`off proven`, None while it is not."""
        return self._progress.proof

    @property
    def off_commanded_at(self) -> datetime | None:
        """When the first off of this episode had ended, None while none was commanded or the machine was switched on since."""
        return min(self._progress.off_ended.values(), default=None)

    @property
    def untouched(self) -> bool:
        """Whether this episode has sent no power command that may have had an effect."""
        return not self._progress.off_ended and not self._progress.left_off and self._progress.powered_on_at is None

    @property
    def left_off(self) -> tuple[str, ...]:
        """The devices that we have switched off, and by which the machine is not on again, for all that is known."""
        return () if self._progress.devices_on else tuple(sorted(self._progress.left_off))

    def take_over_left_off(self, endpoints: tuple[str, ...]) -> None:
        """Earlier steps have left these devices off: they are switched on with what this one switches off, else the machine would
        stay off by them. One that the plan does not name is not touched (S9)."""
        self._progress.left_before = sorted(set(endpoints) & set(self._plan.endpoints))

    async def try_out(self) -> None:
        """Read every device once, before anything but a cordon is done to the node: what can never work (a wrong password, a
        Secret that is missing) is NonRetryable now, not after the wait. A device that is silent is not: its node may have no
        mains either."""
        if self._progress.tried_out:
            return
        hopeless: NonRetryable | None = None
        for level in self._plan.levels:
            try:
                readings = await self._devices.read_all(level)
            except NonRetryable as found:
                self._episode.note("read-power", "failed", found.reason)
                hopeless = hopeless or found
                continue
            for reading in readings:
                self._episode.note("read-power", reading.state.value, reading.endpoint)
            hopeless = None  # one level that can be spoken to is enough to begin with
            break
        if hopeless is not None:
            raise hopeless
        self._progress.tried_out = True
        self._episode.state.readings.clear()  # what was said before any off is nothing that a person's word could stand against

    # Off ------------------------------------------------------------------------------------------------------------

    async def already_off(self) -> bool:
        """Whether an off commanded earlier in this episode turns out to be proven now (a lost answer, a slow device)."""
        return bool(self._commanded()) and await self._prove()

    async def switch_off(self, look: Look) -> None:
        """Off, level after level until one is proven off; each command right after a last look (S20).

        Raises the last level's failure where none is, and whatever turn the look finds.
        """
        for number, level in enumerate(self._plan.levels, start=1):
            last = number == len(self._plan.levels)
            failed = await self._command_off(level, look, last=last) or await self._await_off(level)
            if failed is None:
                return
            if last or isinstance(failed, Unlicensed):
                raise failed  # what was only declined for now speaks against no level
            self._episode.note("power-off", "level failed", f"{number} of {len(self._plan.levels)}: {failed.reason}")

    async def _command_off(self, level: tuple[PowerDevice, ...], look: Look, *, last: bool) -> Interrupt | None:
        """One off to every device of the level, all before any reading (S4). Answers why one can't be commanded.

        Such a level proves nothing. Its other devices are switched off all the same, since what they say would contradict the
        next level; after the last level there is none, and what is not needed is not touched.
        """
        failed: Interrupt | None = None
        for device in level:
            await self._episode.delay(device.delay, f"waits its delay before {device.endpoint}", look)
            licence = await look()
            self._episode.enter(doing="commands power off")
            self._progress.commands_off = True
            try:
                commanded = await self._devices.command_off(device, licence, read_back=len(self._plan.devices) == 1)
            finally:
                self._progress.commands_off = False
            if commanded.failed is None:
                self._note_off(device, commanded.ended_at)
                self._progress.read_after = commanded.after
                continue
            failed = commanded.failed
            if last or isinstance(failed, Unlicensed):
                break
        return failed

    async def _await_off(self, level: tuple[PowerDevice, ...]) -> Interrupt | None:
        """Read until off is proven, as long as this level is given, and whatever was switched off before and may contradict it.
        Answers why it is not."""
        began = workflow.now()
        deadline = max(
            (began if device in level else self._progress.off_ended[device.endpoint])
            + (device.off_timeout or self._plan.off_timeout)
            for device in self._plan.devices
            if device in level or device.endpoint in self._progress.off_ended
        )
        patience = deadline - began
        self._episode.enter(doing="waits until off is read back", until=deadline)
        pause = POLL_INTERVAL
        while True:
            read_back, self._progress.read_after = self._progress.read_after, None
            try:
                # Of the only device there is no other could contradict what it said right after its command.
                if self._is_proven([level], (read_back,)) if read_back is not None else await self._prove():
                    return None
            except NonRetryable as failed:
                return failed
            if workflow.now() >= deadline:
                said = self._episode.state.problem or "not off"
                return StepFailed(f"off is not proven within {patience.total_seconds():g} s: {said}")
            await self._episode.pause(pause, "until the next reading of power")
            pause = longer(pause)

    async def read_again(self) -> OffProof:
        """Read once more, just before a consequence (S2). The proof ends if a device says on (S6): one of those that gave it, or
        one that should have been switched off before them and was silent then."""
        if self.proof is None:
            raise ProofLost("off is not proven")
        if self.proof.acknowledgement is not None:
            return await self._still_acknowledged(self.proof)
        readings = await self._read_tried(self._progress.proven)
        if any(reading.state is PowerState.ON for reading in readings):
            self._progress.on_since = self._episode.moment()
            self.lose(f"off no longer holds: {states(readings)}")
        fresh = off_proven(self._progress.proven, self._progress.off_ended, readings, self._progress.on_since)
        if fresh is None:
            raise StepFailed(f"off can't be read again: {states(readings)}")  # silence licenses nothing, and takes nothing back
        self._progress.proof = self._episode.state.off_proof = fresh
        return fresh

    def licensed_until(self, proof: OffProof) -> datetime:
        """Until when what needs that proof may begin: counted from the asking, for which the devices had their own time (S45). A
        person's word is as old as it is."""
        asked = min((reading.at for reading in proof.readings), default=workflow.now())
        return asked + max(options.ACT_WINDOW, self._plan.act_deadline + 2 * options.IN_FLIGHT_MARGIN)

    def end_proof(self) -> None:
        """The proof is over (S6)."""
        self._progress.proof = self._episode.state.off_proof = None

    def lose(self, reason: str) -> NoReturn:
        """The same, raised for the step that is about to act on it."""
        self.end_proof()
        raise ProofLost(reason)

    def require_unrefuted(self) -> None:
        """Raises WordRefuted and ends the proof, where that is a person's word and the node has been seen to run since (S8)."""
        if self.proof is not None and self.proof.acknowledgement is not None and (void := self._episode.take_void()):
            self.end_proof()
            raise WordRefuted(void)

    def remember_readings(self) -> None:
        """What the devices said before a person is asked: their word stands against that, not against what changes later."""
        self._progress.read_before_question = {each.endpoint: each.state for each in self._episode.state.readings.values()}

    def accept(self, proof: OffProof) -> None:
        """Take what was read, or a person's acknowledgement (S8), for the proof."""
        self._progress.proof = self._episode.state.off_proof = proof
        self._episode.count_off()

    async def _still_acknowledged(self, proof: OffProof) -> OffProof:
        """A person's word stands in for a device that is silent or lies; one that has come to say on since then ends it, also one
        that said on before, and then agreed."""
        before = self._progress.read_before_question
        # One that can never be read is as silent as the others, and hides nothing of what they say.
        for reading in await self._devices.read_all(self._plan.devices, may_fail=lambda _device: True):
            if reading.state is PowerState.OFF:
                before[reading.endpoint] = PowerState.OFF
            if reading.state is PowerState.ON and before.get(reading.endpoint) is not PowerState.ON:
                self.lose(f"{reading.endpoint} says on, which it did not when a person said off")
        self.require_unrefuted()
        return proof

    def _commanded(self) -> list[tuple[PowerDevice, ...]]:
        """The levels of which every device has been commanded off."""
        return [level for level in self._plan.levels if all(device.endpoint in self._progress.off_ended for device in level)]

    async def _read_tried(self, needed: tuple[PowerDevice, ...]) -> tuple[Reading, ...]:
        """Read every level as far as they were tried: a device that could not be switched off may say by now that the machine
        has power. Those needed are read last, so that no silent one makes their word old; only of these it is raised that one
        can never be read."""
        last = max(number for number, level in enumerate(self._plan.levels) if level in self._commanded())
        others = [device for level in self._plan.levels[: last + 1] for device in level if device not in needed]
        of_others = await self._devices.read_all(others, may_fail=lambda _device: True)
        return (*of_others, *await self._devices.read_all(needed))

    async def _prove(self) -> bool:
        """Whether a level that has been commanded off is proven off now."""
        levels = self._commanded()
        return self._is_proven(levels, await self._read_tried(levels[-1]))

    def _is_proven(self, levels: list[tuple[PowerDevice, ...]], readings: tuple[Reading, ...]) -> bool:
        if any(reading.state is PowerState.ON and reading.endpoint in self._progress.obeyed for reading in readings):
            # It was switched on by others: a device that says off later means another off than ours (S6).
            self._progress.on_since = self._episode.moment()
        say_off = {reading.endpoint for reading in readings if reading.state is PowerState.OFF}
        self._progress.obeyed = sorted({*self._progress.obeyed, *(say_off & self._progress.off_ended.keys())})
        proof = level_proven(levels, self._progress.off_ended, readings, self._progress.on_since)
        self._episode.state.problem = "" if proof else states(readings)
        if proof is None:
            return False
        read = {reading.endpoint for reading in proof.readings}
        self._progress.proven = next(level for level in levels if {device.endpoint for device in level} == read)
        self.accept(proof)
        self._episode.note("off-proven", "ok", ", ".join(f"{r.endpoint} off at {written(r.at)}" for r in proof.readings))
        return True

    # On -------------------------------------------------------------------------------------------------------------

    async def turn_on(self, look: Look) -> None:
        """Command on, after a look that holds until then, and read until on. The proof of off ends here (S6); a failing on never
        sends another off (S5).

        Of several levels the last goes first: what was cut by a PDU has no BMC to speak to. Only the level that was proven off
        must say on again; a device of another one may be as silent as it was before. Each that was switched off is commanded,
        whatever becomes of the others: one of two supplies may be enough, and what is raised where one fails is for the caller to
        weigh with `devices_on`.
        """
        licence = await look()
        if not self._plan.levels:
            return  # the person who said that it was off switches it on as well
        self._episode.enter(doing="commands power on")
        self._progress.commands_on = True
        needed = self._progress.proven or self._latest_level()
        failures: dict[str, Interrupt] = {}
        alone, devices_on = len(self._plan.devices) == 1, False
        for device in self._to_switch_on(needed):
            if workflow.now() >= licence.until:
                licence = await look()
            asked_at = self._episode.moment()
            failed = self._why_not_on(device, licence)
            if failed is None:
                switched = await self._devices.command_on(device, licence, read_back=alone)
                failed = switched.failed
                devices_on = switched.after is not None and switched.after.state is PowerState.ON
            if failed is None:
                self._note_on(asked_at)
            elif device in needed or device.endpoint in self._progress.left_off:
                failures[device.endpoint] = failed
        if commanded := [device for device in needed if device.endpoint not in failures]:
            self._progress.devices_on = devices_on
            if not devices_on:
                await self._read_on(commanded)
        for failed in failures.values():
            raise failed
        self._progress.off_ended.clear()
        self._progress.left_off.clear()
        self._progress.left_before.clear()

    def _why_not_on(self, device: PowerDevice, licence: Licence) -> Interrupt | None:
        """Why a device is not commanded on, None where it may be: it may feed another machine by now (S9)."""
        endpoint, abort = device.endpoint, self._episode.state.abort_asked
        ours, insisted = endpoint in self._progress.ours, abort is not None and abort.power_on
        may = may_switch_on(endpoint, switched_off=ours, configured=licence.endpoints, insisted=insisted)
        if may:
            return None
        now = ", ".join(licence.endpoints or ()) or "none"
        changed = f"{endpoint} is not configured for the node any more (now: {now}), and may feed another machine"
        if may is None:
            reason = f"whether {endpoint} is still configured for the node is not known: switch the machine on by hand"
        elif ours:
            reason = f"{changed}: put the configuration back and resume; `abort --power-on` switches it on all the same"
        else:
            reason = f"{changed}: switch the machine on by hand"
        self._episode.note("power-on", "refused", reason)
        return StepFailed(reason) if may is None else NonRetryable(reason)

    async def _read_on(self, devices: list[PowerDevice]) -> None:
        patience = self._plan.off_timeout
        self._episode.enter(doing="waits until on is read back", until=workflow.now() + patience)
        readings = await self._devices.read_until(devices, PowerState.ON, patience)
        self._progress.devices_on = any(reading.state is PowerState.ON for reading in readings)
        if any(reading.state is not PowerState.ON for reading in readings):
            raise StepFailed(f"the machine does not say on within {patience.total_seconds():g} s: {states(readings)}")

    async def terminate(self, look: Look) -> None:
        """Command that the machine be given up, each device after a last look (S20) and on a proof that is read again right
        before it (S2): both once more where a person spoke meanwhile. Nothing of it is switched on again."""
        for device in self._progress.proven or self._plan.devices[:1]:
            while True:
                licence = await look()
                proof = await self.read_again()
                if proof.acknowledgement is not None or not self._progress.proven:
                    raise NonRetryable(
                        "a machine is given up only when its device reads as off; a person's word is no such reading"
                    )
                if self._episode.longest_hold is None and self._episode.state.abort_asked is None:
                    break
            commanded = await self._devices.terminate(device, licence)
            if commanded.failed is not None:
                raise commanded.failed
            self._progress.given_up[device.endpoint] = commanded.machine or self._progress.given_up.get(device.endpoint, "")

    def keep(self, *, by_a_person: bool = False) -> bool:
        """Have a machine that the plan gives up come back instead. Answers whether that can be: not once it was commanded, and
        where the plan names no way on, only once a person has it go on."""
        self._progress.kept = (
            self._plan.terminate_instance and (self._plan.power_on or by_a_person) and not self._progress.given_up
        )
        return self._progress.kept

    @property
    def is_to_be_given_up(self) -> bool:
        """Whether there is no way back for the machine once it is off and freed."""
        return self._plan.terminate_instance and not self._progress.kept

    async def is_given_up(self) -> bool:
        """Whether a machine that we have commanded to be given up is read as that, as long as an off may take (S2)."""
        devices = [device for device in self._progress.proven if device.endpoint in self._progress.given_up]
        if not devices or len(devices) < len(self._progress.proven):
            return False
        patience = max(device.off_timeout or self._plan.off_timeout for device in devices)
        deadline = workflow.now() + patience
        self._episode.enter(doing="waits until the machine is read as given up", until=deadline)
        pause = POLL_INTERVAL
        while True:
            readings = [await self._devices.read_given_up(each, self._progress.given_up[each.endpoint]) for each in devices]
            self._progress.given_up_read = ", ".join(f"{reading.endpoint}: {reading.detail}" for reading in readings)
            if all(reading.given_up for reading in readings):
                self._episode.note("given-up", "ok", self._progress.given_up_read)
                return True
            if workflow.now() >= deadline:
                return False
            await self._episode.pause(pause, "until the machine is read again")
            pause = longer(pause)

    def _latest_level(self) -> tuple[PowerDevice, ...]:
        """The level that speaks for the machine where none was proven off: the latest that was commanded as a whole, or else in
        part."""
        touched = [level for level in self._plan.levels if any(device.endpoint in self._progress.left_off for device in level)]
        return next(reversed(self._commanded() or touched), self._plan.levels[0])

    def _to_switch_on(self, needed: tuple[PowerDevice, ...]) -> list[PowerDevice]:
        """What may have been switched off, by us or, by their word, by a person."""
        touched = {device.endpoint for device in needed} | set(self._progress.left_off or self._plan.endpoints)
        return [device for level in reversed(self._plan.levels) for device in level if device.endpoint in touched]

    def _note_on(self, asked_at: datetime) -> None:
        """From the asking on the machine may be on: the proof is over, whatever the answer was. Where the answer was lost the
        node may long be back by the time that we know of it."""
        self._progress.proof = None
        self._progress.powered_on_at = self._progress.powered_on_at or asked_at
        self._progress.on_since = asked_at

    def _note_off(self, device: PowerDevice, ended: datetime) -> None:
        """An off has ended. The first one after an on, ours or not, begins a new round: earlier offs prove nothing (S6)."""
        if self._progress.on_since is not None:
            self._progress.off_ended.clear()
            self._progress.powered_on_at = self._progress.on_since = None
        self._progress.off_ended[device.endpoint] = ended
        self._progress.obeyed = [each for each in self._progress.obeyed if each != device.endpoint]
        self._progress.left_off = sorted({device.endpoint, *self._progress.left_off, *self._progress.left_before})
        self._progress.ours = sorted({*self._progress.ours, *self._progress.left_off})
        self._progress.devices_on = False
