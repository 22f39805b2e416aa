"""Detaching the cloud volumes of a machine that runs on: commanded one by one, read until every one is available.

`available` is the only word that means that the machine can't write to a volume any more; one that the cloud does not know, or
does not tell of, is not detached (S3). What is freed on that proof is `workflows/fencing/isolation.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.power import PowerActivities, PowerRequest, VolumeRequest
from policy.episode.messages import PathProof, VolumeReading
from policy.fence.plan import Chosen, FencingPlan, PowerDevice
from policy.fence.power import VolumeState
from workflows.episode.episode import Episode
from workflows.episode.preflight import Licence
from workflows.episode.state import VolumesProgress
from workflows.fencing.device_commands import POLL_INTERVAL, command_licensed, longer
from workflows.kit import options
from workflows.kit.interrupts import Hopeless, StepFailed, TargetChanged, as_interrupt, interrupt_for, told_of

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
        for volume in await self._attached(device):
            if volume not in self._tried:
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
        told = f"available: {', '.join(each.volume for each in proof.volumes)}" if proof is not None else "by themselves"
        self._episode.note("detach-volumes", "ok", f"{', '.join(chosen.handles)} left the machine; {told}")
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
            raise Hopeless(
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

    async def _attached(self, device: PowerDevice) -> list[str]:
        return [each.volume for each in await self._list(device) if not each.root]

    async def _list(self, device: PowerDevice) -> tuple[VolumeReading, ...]:
        sealed = self._episode.sealed(device)
        with as_interrupt(device.endpoint):
            found = await workflow.execute_activity_method(
                PowerActivities.list_volumes,
                PowerRequest(target=self._episode.target, device=sealed, deadline=self._plan.act_deadline),
                **(
                    options.power_read(device.site, self._plan)
                    | {"summary": f"isolation: lists the volumes of {device.endpoint}"}
                ),
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
            reading = await workflow.execute_activity_method(
                PowerActivities.read_volume,
                self._request(device, volume),
                **(options.power_read(device.site, self._plan) | {"summary": f"isolation: reads {volume}"}),
            )
        except ActivityError as error:
            detail = told_of(volume, error)
            return VolumeReading(volume=volume, state=VolumeState.UNKNOWN, at=asked_at, detail=detail)
        return replace(reading, at=asked_at)

    def _request(self, device: PowerDevice, volume: str, not_after: datetime | None = None) -> VolumeRequest:
        target, sealed, deadline = self._episode.target, self._episode.sealed(device), self._plan.act_deadline
        return VolumeRequest(target=target, device=sealed, volume=volume, deadline=deadline, not_after=not_after)


def _states(readings: list[VolumeReading] | tuple[VolumeReading, ...]) -> str:
    return ", ".join(f"{each.volume} is {each.state.value}" for each in readings)
