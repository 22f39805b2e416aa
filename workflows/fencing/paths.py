"""The paths of one node to storage and network (`Paths`): cut at a device, read as cut, and given back when that is safe; and the
quarantine of a cloud machine (`Quarantines`).

A path is noted in our mark *before* it is cut, so that the next episode of the node knows of it. Where a consequence was carried
out, the path is given back only after `restart proven` or a person's confirmation: another machine may write by now to what was
freed. The same holds for a path that was not read as open before our first cut: an earlier episode, its mark gone, may have freed
what lies behind it, or a person keeps it cut on purpose (S35). The answer of the cutting command brings what the device said
before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.power import LiftRequest, PowerActivities, PowerRequest
from activities.contracts.target import IsolationActivities, PathRequest
from policy.episode.events import EventReason
from policy.episode.fencing import off_proven, was_open
from policy.episode.messages import PathProof, Phase
from policy.fence.config import FenceStep
from policy.fence.plan import FencingPlan, PowerDevice
from policy.fence.power import PowerAct, PowerState, Quarantine
from policy.objects.marks import Added
from policy.values.times import written
from workflows.episode.episode import Episode
from workflows.episode.node_writes import Bookkeeping
from workflows.episode.preflight import LONGEST_PAUSE, Licence, Preflight
from workflows.episode.state import PathsProgress
from workflows.fencing.device_commands import PATH, Devices, command_licensed, states
from workflows.kit import options
from workflows.kit.interrupts import Interrupt, StepFailed, as_interrupt, interrupt_for, told_of

# Quarantine of a cloud machine: one security group instead of its own, and back. It proves nothing and licenses nothing.
#
# Both acts may be repeated: the cloud itself keeps the groups from before (`activities/power/`), so a lost answer loses nothing.

Request = TypeVar("Request", PowerRequest, LiftRequest)
Result = TypeVar("Result")


class Quarantines:
    """Which machines this episode has put behind which group."""

    def __init__(self, episode: Episode, plan: FencingPlan, known: dict[str, Quarantine]) -> None:
        self._episode = episode
        self._plan = plan
        self._known = known

    async def apply(self, device: PowerDevice, licence: Licence) -> None:
        """Put the machine behind its group; StepFailed where that is not known to be so, and may be tried again."""
        self._episode.enter(doing=f"puts {device.endpoint} into quarantine")
        request = PowerRequest(
            target=self._episode.target,
            device=self._episode.sealed(device),
            deadline=self._plan.act_deadline,
            not_after=licence.until,
            licence=licence.signed,
        )
        try:
            summary = f"isolation: quarantine of {device.endpoint}"
            found = await self._command(PowerActivities.quarantine, request, licence, summary)
        except ActivityError as error:
            raise await self._after("quarantine", device, error) from error
        self._known[device.endpoint] = found
        self._episode.note("quarantine", "ok", f"{device.endpoint} is behind {found.group}")

    async def lift(self, device: PowerDevice, licence: Licence) -> None:
        """Give its groups back, as far as nobody else has changed them meanwhile."""
        request = LiftRequest(
            target=self._episode.target,
            device=self._episode.sealed(device),
            quarantine=self._known.get(device.endpoint),
            deadline=self._plan.act_deadline,
            not_after=licence.until,
            licence=licence.signed,
        )
        summary = f"recovery: lifts the quarantine of {device.endpoint}"
        try:
            await self._command(PowerActivities.lift_quarantine, request, licence, summary)
        except ActivityError as error:
            raise await self._after("lift-quarantine", device, error) from error
        self._known.pop(device.endpoint, None)
        self._episode.note("lift-quarantine", "ok", device.endpoint)

    async def _command(
        self, command: Callable[[PowerActivities, Request], Awaitable[Result]], request: Request, licence: Licence, summary: str
    ) -> Result:
        config = options.power_command(request.device.site, self._plan)
        config["summary"] = summary
        return await command_licensed(self._episode, command, request, licence, config)

    async def _after(self, act: str, device: PowerDevice, error: ActivityError) -> Interrupt:
        """The turn to take. An unclear act is asked for again, once nothing of it is under way."""
        if await self._episode.wait_out(act, device.endpoint, error):
            return StepFailed(told_of(device.endpoint, error))
        return interrupt_for(error, device.endpoint)


QUARANTINE = "#quarantine"
"""Set behind a machine's endpoint where our mark tells of its quarantine."""

MayRestore = Callable[[bool], bool]
"""Whether it is safe now to give a path back; asked with whether it may have been cut before us."""


class Paths:
    """What may be cut because of this episode, or of one before it, and for how long."""

    def __init__(
        self, episode: Episode, plan: FencingPlan, desk: Bookkeeping, preflight: Preflight, progress: PathsProgress
    ) -> None:
        self._episode = episode
        self._plan = plan
        self._desk = desk
        self._preflight = preflight
        self._devices = Devices(episode, plan, PATH)
        self._quarantines = Quarantines(episode, plan, progress.quarantined)
        self._cut = progress.cut

    @property
    def touched(self) -> bool:
        """Whether a path may be cut because of us."""
        return bool(self._cut)

    @property
    def cut_since(self) -> datetime | None:
        """When the first path was cut by this episode."""
        return min((moment for moment in self._cut.values() if moment is not None), default=None)

    @property
    def found_cut(self) -> bool:
        """Whether a path that is cut may have been so before us."""
        return any(self._is_found_cut(each) for each in self._cut)

    @property
    def cut_now(self) -> list[str]:
        """What is still cut, for all that is known. Another step of a ladder may have given it back."""
        return [each for each in self._cut if each in self._episode.state.added.paths]

    @property
    def left(self) -> str:
        """The same in words to end a sentence with; "" for nothing."""
        return f"; left cut: {', '.join(self.cut_now)}" if self.cut_now else ""

    def adopt(self, endpoints: tuple[str, ...]) -> None:
        """Paths that our mark says are cut: by a predecessor, an earlier history or an earlier step."""
        self._cut.update(dict.fromkeys(endpoints))
        self._episode.learns_of(Added(paths=endpoints))

    def is_open(self, device: PowerDevice) -> bool:
        """Whether a path that was cut has been seen open since, or was never cut here."""
        return self._cut.get(device.endpoint) is None

    # Cutting --------------------------------------------------------------------------------------------------------

    async def cut(self, device: PowerDevice, timeout: timedelta | None) -> None:
        """One try; what an earlier one may have done was waited out."""
        ended = self._cut.get(device.endpoint)
        if ended is None:
            await self._note(device, device.endpoint, cut=True)
            if device.endpoint not in self._cut and not self._is_found_cut(device.endpoint):
                self._episode.state.found_cut.append(device.endpoint)  # until its device says that it was open
            self._cut[device.endpoint] = None
            licence = await self._preflight.before_destruction(PowerAct.CUT_PATH, leased=True)
            self._episode.enter(doing=f"cuts the path {device.endpoint}")
            commanded = await self._devices.command_off(device, licence)
            if commanded.failed is not None:
                raise commanded.failed
            if was_open(commanded.before):
                self._settle(device.endpoint)
            elif self._is_found_cut(device.endpoint):
                said = commanded.before.value if commanded.before is not None else "nothing"
                self._episode.note("cut-path", "not seen open", f"{device.endpoint} said {said} before")
            self._cut[device.endpoint] = ended = commanded.ended_at
        patience = timeout or device.off_timeout or self._plan.off_timeout
        self._episode.enter(doing="waits until the path is read as cut", until=workflow.now() + patience)
        readings = await self._devices.read_until([device], PowerState.OFF, patience)
        proof = off_proven((device,), {device.endpoint: ended}, readings, None)
        if proof is None:
            self._cut[device.endpoint] = None  # what was commanded had no effect: the next try commands again
            raise StepFailed(f"the path is not cut within {patience.total_seconds():g} s: {states(readings)}")
        self._episode.state.path_proofs[device.endpoint] = PathProof(commanded_at=ended, readings=proof.readings)
        self._episode.note("path-cut-proven", "ok", f"{device.endpoint} off at {written(proof.readings[0].at)}")
        self._desk.tell(EventReason.PATH_CUT, f"{device.endpoint} is read as cut")

    async def prove(self, devices: Iterable[PowerDevice]) -> tuple[PathProof, ...]:
        """Read every cut path once more, just before a consequence (S2)."""
        devices = tuple(devices)
        proofs = []
        for device, reading in zip(devices, await self._devices.read_all(devices), strict=True):
            ended = self._cut.get(device.endpoint)
            if ended is None or off_proven((device,), {device.endpoint: ended}, [reading], None) is None:
                if reading.state is PowerState.ON and device.endpoint in self._cut:
                    self._cut[device.endpoint] = None  # somebody has opened it: it is to be cut anew
                raise StepFailed(f"the path is not proven cut: {states([reading])}")
            proofs.append(PathProof(commanded_at=ended, readings=(reading,)))
        return tuple(proofs)

    async def quarantine(self, device: PowerDevice) -> None:
        """Put a cloud machine behind one security group. It licenses nothing: connections that are open live on."""
        await self._note(device, device.endpoint + QUARANTINE, cut=True)
        self._cut[device.endpoint + QUARANTINE] = None
        await self._quarantines.apply(device, await self._preflight.before_destruction(PowerAct.QUARANTINE, leased=True))
        self._desk.tell(EventReason.QUARANTINED, f"{device.endpoint} is behind its quarantine group")

    # Giving back ----------------------------------------------------------------------------------------------------

    async def let_go_if_open(self, device: PowerDevice) -> None:
        """A path that may have been cut before us, or that we never came to cut, and that says on: there is nothing to give back,
        and nobody to be asked. One that can't be read may be cut (S3)."""
        if device.endpoint not in self._cut or not self._is_found_cut(device.endpoint):
            return
        readings = await self._devices.read_all([device], may_fail=lambda _device: True)
        if readings and was_open(readings[0].state):
            self._episode.note("restore-path", "needless", f"{device.endpoint} says on")
            await self._insist(device.endpoint, lambda: self._note(device, device.endpoint, cut=False))

    async def restore(self, device: PowerDevice, *, may_restore: MayRestore, patient: bool) -> None:
        """Give a path back if we may have cut it. patient: wait for a person's word where that is not safe now, else it is left
        cut."""
        if device.endpoint not in self._cut:
            return

        def may() -> bool:
            return may_restore(self._is_found_cut(device.endpoint))

        if may() or (patient and await self._has_word(device, may)):
            await self._insist(device.endpoint, lambda: self._give_back(device))

    async def lift_quarantine(self, device: PowerDevice) -> None:
        """Give a machine its security groups back."""
        if device.endpoint + QUARANTINE in self._cut:
            await self._insist(device.endpoint + QUARANTINE, lambda: self._lift(device))

    def _is_found_cut(self, endpoint: str) -> bool:
        return endpoint in self._episode.state.found_cut

    def _settle(self, endpoint: str) -> None:
        self._episode.state.found_cut = [each for each in self._episode.state.found_cut if each != endpoint]

    async def _has_word(self, device: PowerDevice, may: Callable[[], bool]) -> bool:
        """Wait for a person, or a restart. False: aborted, and left as it is."""
        why = "it may have been cut before this episode," if self._is_found_cut(device.endpoint) else "pods were freed"
        problem = f"{device.endpoint} is left cut: {why} and no restart is proven; return-path gives it back"
        with self._episode.undertaking(f"a word on {device.endpoint}") as under:
            while not ((looked := await self._preflight.refresh()) and may()):  # what can't be looked at proves nothing (S43)
                if not under.asked:
                    under.asked = True
                    await self._desk.ask_for_a_person(problem, path=device.endpoint)
                if self._episode.state.path_word is not None:
                    break
                if self._episode.state.abort_asked is not None:
                    return False
                # Nothing else tells of a node that came back while it could not be looked at.
                await self._episode.rest(None if looked else LONGEST_PAUSE, "a person's word on the path")
        self._episode.state.problem = self._episode.state.path_asked = ""
        self._episode.enter(phase=Phase.DONE, doing="goes on")
        return True

    async def _insist(self, name: str, give_back: Callable[[], Awaitable[None]]) -> None:
        """However long it takes: a node without its storage is of no use. A person's abort leaves the path cut: our mark goes on
        telling of it."""
        self._episode.enter(step=FenceStep.RECOVERY, doing=f"gives the path {name} back")
        failing, pause = "a path can't be given back", self._plan.retry_interval
        if await self._desk.insist("restore-path", give_back, failing=failing, pause=pause, abort_ends=True):
            del self._cut[name]
            self._settle(name)
            self._episode.state.path_proofs.pop(name, None)

    async def _give_back(self, device: PowerDevice) -> None:
        commanded = await self._devices.command_on(device, await self._preflight.before_restoring(PowerAct.RESTORE_PATH))
        if commanded.failed is not None:
            raise commanded.failed
        readings = await self._devices.read_until([device], PowerState.ON, self._plan.off_timeout)
        if readings[0].state is not PowerState.ON:
            raise StepFailed(f"the path is not back: {states(readings)}")
        await self._note(device, device.endpoint, cut=False)
        self._desk.tell(EventReason.PATH_RESTORED, f"{device.endpoint} is read as on")

    async def _lift(self, device: PowerDevice) -> None:
        await self._quarantines.lift(device, await self._preflight.before_restoring(PowerAct.LIFT_QUARANTINE))
        await self._note(device, device.endpoint + QUARANTINE, cut=False)
        self._desk.tell(EventReason.QUARANTINE_LIFTED, f"{device.endpoint} has its security groups back")

    async def _note(self, device: PowerDevice, endpoint: str, *, cut: bool) -> None:
        request = PathRequest(
            target=self._episode.target,
            endpoint=endpoint,
            cut=cut,
            not_after=workflow.now() + options.WRITE_WINDOW,
        )
        step = "isolation" if cut else "recovery"
        summary = f"{step}: notes that {device.endpoint} is {'to be cut' if cut else 'given back'}"
        with as_interrupt("our mark can't be written"):
            await workflow.execute_activity_method(
                IsolationActivities.note_path,
                request,
                **(options.cluster_write(self._episode.state.cluster) | {"summary": summary}),
            )
        others = tuple(each for each in self._episode.state.added.paths if each != endpoint)
        self._episode.state.added = replace(self._episode.state.added, paths=(*others, endpoint) if cut else others)
