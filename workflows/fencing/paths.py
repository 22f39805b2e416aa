"""The paths of one node to storage and network: cut at a device, read as cut, and given back when that is safe (`Paths`); the
quarantine of a cloud machine among them; and its cloud volumes, which are detached while it runs (`Volumes`).

A path is noted in our mark *before* it is cut, so that the next episode of the node knows of it. Where a consequence was carried
out, the path is given back only after `restart proven` or a person's confirmation: another machine may write by now to what was
freed. The same holds for a path that was not read as open before our first cut: an earlier episode, its mark gone, may have freed
what lies behind it, or a person keeps it cut on purpose (S35). The answer of the cutting command brings what the device said
before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.power import LiftRequest, PowerActivities, PowerRequest, VolumeRequest
from activities.contracts.target import IsolationActivities, PathRequest
from policy.episode.events import EventReason
from policy.episode.messages import PathProof, Phase, VolumeReading
from policy.episode.proofs import off_proven, was_open
from policy.fence.config import FenceStep
from policy.fence.plan import Chosen, FencingPlan, PowerDevice
from policy.fence.power import PowerAct, PowerState, VolumeState
from policy.objects.marks import Added
from policy.values.times import written
from workflows.episode.episode import Episode
from workflows.episode.node_writes import NodeWriter
from workflows.episode.preflight import LONGEST_PAUSE, Licence, Preflight
from workflows.episode.state import PathsProgress, VolumesProgress
from workflows.fencing.device_commands import PATH, POLL_INTERVAL, Devices, command_licensed, longer, states
from workflows.kit import options
from workflows.kit.interrupts import NonRetryable, StepFailed, TargetChanged, as_interrupt, failure_line, interrupt_for

Request = TypeVar("Request", PowerRequest, LiftRequest)
Result = TypeVar("Result")

QUARANTINE = "#quarantine"
"""Set behind a machine's endpoint where our mark tells of its quarantine."""

MAY_BE_NOTED = "a-path-of-which-the-note-may-be-written-is-given-back"
"""Histories of builds that forgot it go on as they began."""

MayRestore = Callable[[bool], bool]
"""Whether it is safe now to give a path back; asked with whether it may have been cut before us."""


class Paths:
    """What may be cut because of this episode, or of one before it, and for how long."""

    def __init__(
        self, episode: Episode, plan: FencingPlan, node_writer: NodeWriter, preflight: Preflight, progress: PathsProgress
    ) -> None:
        self._episode = episode
        self._plan = plan
        self._node_writer = node_writer
        self._preflight = preflight
        self._devices = Devices(episode, plan, PATH)
        self._quarantined = progress.quarantined
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

    def is_unknown(self, endpoint: str) -> bool:
        """Whether this episode knows of no cut of it."""
        return endpoint not in self._cut

    def is_open(self, device: PowerDevice) -> bool:
        """Whether a path that was cut has been seen open since, or was never cut here."""
        return self._cut.get(device.endpoint) is None

    # Cutting --------------------------------------------------------------------------------------------------------

    async def cut(self, device: PowerDevice, timeout: timedelta | None) -> None:
        """One try; what an earlier one may have done was waited out."""
        ended = self._cut.get(device.endpoint)
        if ended is None:
            await self._note_cut(device, device.endpoint)
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
        self._node_writer.send_event(EventReason.PATH_CUT, f"{device.endpoint} is read as cut")

    async def prove(self, devices: Iterable[PowerDevice]) -> tuple[PathProof, ...]:
        """Read every cut path once more, just before a consequence (S2)."""
        devices = tuple(devices)
        proofs = []
        for device, reading in zip(devices, await self._devices.read_all(devices), strict=True):
            ended = self._cut.get(device.endpoint)
            if ended is None or off_proven((device,), {device.endpoint: ended}, [reading], None) is None:
                if reading.state is PowerState.ON and device.endpoint in self._cut:
                    self._cut[device.endpoint] = None  # another party has opened it: it is to be cut anew
                raise StepFailed(f"the path is not proven cut: {states([reading])}")
            proofs.append(PathProof(commanded_at=ended, readings=(reading,)))
        return tuple(proofs)

    async def quarantine(self, device: PowerDevice) -> None:
        """Put a cloud machine behind one security group instead of its own. It proves and licenses nothing: connections that are
        open live on. It may be repeated, as giving back may: the cloud itself keeps the groups from before (`activities/power/`).
        StepFailed where it is not known to be done, and may be tried again."""
        await self._note_cut(device, device.endpoint + QUARANTINE)
        licence = await self._preflight.before_destruction(PowerAct.QUARANTINE, leased=True)
        self._episode.enter(doing=f"puts {device.endpoint} into quarantine")
        request = PowerRequest(
            target=self._episode.target,
            device=self._episode.sealed(device),
            deadline=self._plan.act_deadline,
            not_after=licence.until,
            licence=licence.signed,
        )
        summary = f"isolation: quarantine of {device.endpoint}"
        found = await self._command("quarantine", PowerActivities.quarantine, request, licence, summary)
        self._quarantined[device.endpoint] = found
        self._episode.note("quarantine", "ok", f"{device.endpoint} is behind {found.group}")
        self._node_writer.send_event(EventReason.QUARANTINED, f"{device.endpoint} is behind its quarantine group")

    # Giving back ----------------------------------------------------------------------------------------------------

    async def let_go_if_open(self, device: PowerDevice) -> None:
        """A path that may have been cut before us, or that we never came to cut, and that says on: there is nothing to give back,
        and no person to be asked. One that can't be read may be cut (S3)."""
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

        if may() or (patient and await self._may_give_back(device, may)):
            await self._insist(device.endpoint, lambda: self._give_back(device))

    async def lift_quarantine(self, device: PowerDevice) -> None:
        """Give a machine its security groups back."""
        if device.endpoint + QUARANTINE in self._cut:
            await self._insist(device.endpoint + QUARANTINE, lambda: self._lift(device))

    def _is_found_cut(self, endpoint: str) -> bool:
        return endpoint in self._episode.state.found_cut

    def _settle(self, endpoint: str) -> None:
        self._episode.state.found_cut = [each for each in self._episode.state.found_cut if each != endpoint]

    async def _may_give_back(self, device: PowerDevice, may: Callable[[], bool]) -> bool:
        """Wait for a person, or a restart. False: aborted, and left as it is."""
        why = "it may have been cut before this episode," if self._is_found_cut(device.endpoint) else "pods were freed"
        problem = f"{device.endpoint} is left cut: {why} and no restart is proven; return-path gives it back"
        with self._episode.undertaking(f"a word on {device.endpoint}") as under:
            while not ((looked := await self._preflight.refresh()) and may()):  # what can't be looked at proves nothing (S43)
                if not under.asked:
                    under.asked = True
                    await self._node_writer.ask_for_a_person(problem, path=device.endpoint)
                if self._episode.state.path_command is not None:
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
        if await self._node_writer.insist("restore-path", give_back, failing=failing, pause=pause, abort_ends=True):
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
        self._node_writer.send_event(EventReason.PATH_RESTORED, f"{device.endpoint} is read as on")

    async def _lift(self, device: PowerDevice) -> None:
        """As far as no other party has changed its groups meanwhile."""
        licence = await self._preflight.before_restoring(PowerAct.LIFT_QUARANTINE)
        request = LiftRequest(
            target=self._episode.target,
            device=self._episode.sealed(device),
            quarantine=self._quarantined.get(device.endpoint),
            deadline=self._plan.act_deadline,
            not_after=licence.until,
            licence=licence.signed,
        )
        summary = f"recovery: lifts the quarantine of {device.endpoint}"
        await self._command("lift-quarantine", PowerActivities.lift_quarantine, request, licence, summary)
        self._quarantined.pop(device.endpoint, None)
        self._episode.note("lift-quarantine", "ok", device.endpoint)
        await self._note(device, device.endpoint + QUARANTINE, cut=False)
        self._node_writer.send_event(EventReason.QUARANTINE_LIFTED, f"{device.endpoint} has its security groups back")

    async def _command(
        self,
        act: str,
        command: Callable[[PowerActivities, Request], Awaitable[Result]],
        request: Request,
        licence: Licence,
        summary: str,
    ) -> Result:
        """One that is unclear is asked for again, once nothing of it is under way: StepFailed."""
        endpoint, config = request.device.endpoint, options.power_command(request.device.site, self._plan)
        try:
            return await command_licensed(self._episode, command, request, licence, config | {"summary": summary})
        except ActivityError as error:
            if await self._episode.wait_out(act, endpoint, error):
                raise StepFailed(failure_line(endpoint, error)) from error
            raise interrupt_for(error, endpoint) from error

    async def _note_cut(self, device: PowerDevice, endpoint: str) -> None:
        """Before it is cut. Where that comes to nothing our mark may tell of it all the same: an answer was lost (S35)."""
        try:
            await self._note(device, endpoint, cut=True)
        except (StepFailed, NonRetryable):
            if workflow.patched(MAY_BE_NOTED):
                self._episode.learns_of(Added(paths=(endpoint,)))
                self._may_be_cut(endpoint)
            raise
        self._may_be_cut(endpoint)

    def _may_be_cut(self, endpoint: str) -> None:
        if endpoint not in self._cut and not self._is_found_cut(endpoint) and not endpoint.endswith(QUARANTINE):
            self._episode.state.found_cut.append(endpoint)  # until its device says that it was open
        self._cut[endpoint] = None

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
            await self._episode.execute(IsolationActivities.note_path, request, options.cluster_write, summary)
        others = tuple(each for each in self._episode.state.added.paths if each != endpoint)
        self._episode.state.added = replace(self._episode.state.added, paths=(*others, endpoint) if cut else others)


# Detaching the cloud volumes of a machine that runs on: commanded one by one, read until every one is available.
#
# `available` is the only word that means that the machine can't write to a volume any more; one that the cloud does not know, or
# does not tell of, is not detached (S3). What is freed on that proof is `workflows/fencing/isolation.py`.

LEAVES_BY_ITSELF = timedelta(seconds=20)
"""A kubelet that still answers unmounts a volume once its pods are gone, which loses nothing; force is for those that stay."""


class Volumes:
    """The volumes of one cloud machine, in one episode."""

    def __init__(self, episode: Episode, plan: FencingPlan, progress: VolumesProgress) -> None:
        self._episode = episode
        self._plan = plan
        self._ended, self._tried = progress.detached, progress.tried

    async def detach_all(
        self, device: PowerDevice, look: Callable[[], Awaitable[Licence]], patience: timedelta
    ) -> PathProof | None:
        """Detach everything but what is the machine's own. The proof, None where nothing is attached; StepFailed otherwise."""
        for volume in [each.volume for each in await self._list(device) if not each.root and each.volume not in self._tried]:
            licence = await look()
            self._episode.enter(doing=f"detaches {volume}")
            await self._detach(device, volume, licence)
        if not self._ended:
            self._episode.note("detach-volumes", "ok", "no volume is attached")
            return None
        return await self._until_available(device, patience)

    async def check(self, device: PowerDevice, chosen: Chosen) -> None:
        """Before anything is touched: the cloud knows every one of them, and none is the machine's own."""
        attached = await self._list(device)
        self._refuse_root(attached, chosen)
        here = [each for each in attached if chosen.has(each.volume)]
        readings = [await self._read(device, volume) for volume in chosen.handles] if len(here) < len(chosen.handles) else here
        if any(reading.state is VolumeState.UNKNOWN for reading in readings):
            raise StepFailed(f"nothing is touched: {_states(readings)}")
        self._episode.note("check-volumes", "ok", _states(readings))

    async def detach_chosen(
        self, device: PowerDevice, chosen: Chosen, look: Callable[[], Awaitable[Licence]], patience: timedelta
    ) -> PathProof | None:
        """Have those leave the machine, and no others: by themselves if they do, as a volume does that no pod mounts any more.

        One that has left may be another machine's at any moment, so that only what still reads available is proven cut. The
        proof, None where nothing is; StepFailed where one stays."""
        unasked = workflow.now() + LEAVES_BY_ITSELF
        deadline = unasked + patience
        self._episode.enter(doing="waits until the volumes have left the machine", until=deadline)
        pause = POLL_INTERVAL
        while True:
            attached = await self._list(device)
            self._refuse_root(attached, chosen)
            left = [each.volume for each in attached if chosen.has(each.volume)]
            if not left:
                break
            for volume in left:
                if workflow.now() >= unasked and volume not in self._tried:
                    licence = await look()
                    self._episode.enter(doing=f"detaches {volume}", until=deadline)
                    await self._detach_if_here(device, volume, licence)
                    deadline = workflow.now() + patience  # an answer that was lost has been waited out
            if workflow.now() >= deadline:
                self._tried.clear()
                raise StepFailed(f"still attached to {device.endpoint}: {', '.join(left)}")
            await self._episode.pause(pause, "until the volumes are looked at again")
            pause = longer(pause)
        proof = await self.prove_some(device)
        freed_by = f"available: {', '.join(each.volume for each in proof.volumes)}" if proof is not None else "by themselves"
        self._episode.note("detach-volumes", "ok", f"{', '.join(chosen.handles)} left the machine; {freed_by}")
        return proof

    async def prove_some(self, device: PowerDevice) -> PathProof | None:
        """Read every detached volume once more: those that are available are cut, and nothing is said of the others. None: none
        is."""
        readings = await asyncio.gather(*(self._read(device, volume) for volume in self._ended))
        available = tuple(reading for reading in readings if reading.state is VolumeState.AVAILABLE)
        if not available:
            return None
        return PathProof(commanded_at=max(self._ended[each.volume] for each in available), volumes=available)

    async def prove(self, device: PowerDevice) -> PathProof:
        """Read every detached volume once more, just before a consequence (S2)."""
        readings = await asyncio.gather(*(self._read(device, volume) for volume in self._ended))
        if any(reading.state is not VolumeState.AVAILABLE for reading in readings):
            raise StepFailed(f"volumes are not proven detached: {_states(readings)}")
        return PathProof(commanded_at=max(self._ended.values()), volumes=tuple(readings))

    def _refuse_root(self, attached: Iterable[VolumeReading], chosen: Chosen) -> None:
        roots = [each.volume for each in attached if each.root and chosen.has(each.volume)]
        if roots:
            raise NonRetryable(
                f"{', '.join(roots)} is the machine's own (it boots from it, or takes it along): that is never detached"
            )

    async def _detach_if_here(self, device: PowerDevice, volume: str, licence: Licence) -> None:
        """One that Kubernetes has moved to another machine since it was listed is none of ours to detach."""
        try:
            await self._detach(device, volume, licence)
        except TargetChanged as interrupt:
            if any(each.volume == volume for each in await self._list(device)):
                raise
            self._episode.note("detach-volume", "elsewhere", interrupt.reason)

    async def _list(self, device: PowerDevice) -> tuple[VolumeReading, ...]:
        sealed = self._episode.sealed(device)
        with as_interrupt(device.endpoint):
            found = await options.execute(
                PowerActivities.list_volumes,
                PowerRequest(target=self._episode.target, device=sealed, deadline=self._plan.act_deadline),
                options.power_read(device.site, self._plan),
                f"isolation: lists the volumes of {device.endpoint}",
            )
        return found.volumes

    async def _detach(self, device: PowerDevice, volume: str, licence: Licence) -> None:
        try:
            config = options.power_command(device.site, self._plan)
            config["summary"] = f"isolation: detaches {volume}"
            request = replace(self._request(device, volume), not_after=licence.until, licence=licence.signed)
            result = await command_licensed(self._episode, PowerActivities.detach_volume, request, licence, config)
        except ActivityError as error:
            if not await self._episode.wait_out("detach-volume", volume, error):
                raise interrupt_for(error, device.endpoint) from error
        else:
            self._episode.note("detach-volume", "sent", result.detail)
        self._tried.append(volume)
        self._ended[volume] = self._episode.moment()

    async def _until_available(self, device: PowerDevice, patience: timedelta) -> PathProof:
        deadline = workflow.now() + patience
        self._episode.enter(doing="waits until the volumes are available", until=deadline)
        pause = POLL_INTERVAL
        while True:
            try:
                proof = await self.prove(device)
            except StepFailed:
                if workflow.now() >= deadline:
                    self._tried.clear()  # the next try commands again what is attached still; what is under way is waited for
                    raise
                await self._episode.pause(pause, "until the volumes are read again")
                pause = longer(pause)
            else:
                self._episode.note("path-cut-proven", "ok", _states(proof.volumes))
                return proof

    async def _read(self, device: PowerDevice, volume: str) -> VolumeReading:
        asked_at = self._episode.moment()
        try:
            reading = await options.execute(
                PowerActivities.read_volume,
                self._request(device, volume),
                options.power_read(device.site, self._plan),
                f"isolation: reads {volume}",
            )
        except ActivityError as error:
            detail = failure_line(volume, error)
            return VolumeReading(volume=volume, state=VolumeState.UNKNOWN, at=asked_at, detail=detail)
        return replace(reading, at=asked_at)

    def _request(self, device: PowerDevice, volume: str, not_after: datetime | None = None) -> VolumeRequest:
        target, sealed, deadline = self._episode.target, self._episode.sealed(device), self._plan.act_deadline
        return VolumeRequest(target=target, device=sealed, volume=volume, deadline=deadline, not_after=not_after)


def _states(readings: list[VolumeReading] | tuple[VolumeReading, ...]) -> str:
    return ", ".join(f"{each.volume} is {each.state.value}" for each in readings)
