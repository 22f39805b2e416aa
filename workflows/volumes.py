"""Detaching the cloud volumes of a machine that runs on: commanded one by one, read until every one is available.

`available` is the only word that means that the machine can't write to a volume any more; one that the cloud does not know, or
does not tell of, is not detached (S3). What is freed on that proof is `workflows/isolation.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.power import PowerActivities, PowerRequest, VolumeRequest
from policy.episodes import PathProof, VolumeReading
from policy.plan import FencingPlan, PowerDevice
from policy.power import VolumeState
from workflows import options
from workflows.devices import POLL_INTERVAL, longer
from workflows.episode import Episode
from workflows.turns import StepFailed, told_of, turn_for


class Volumes:
    """The volumes of one cloud machine, in one episode."""

    def __init__(self, episode: Episode, plan: FencingPlan) -> None:
        self._episode = episode
        self._plan = plan
        self._ended: dict[str, datetime] = {}
        """Every volume that we have had detached, with the end of the latest command."""
        self._tried: set[str] = set()
        """Those commanded in this try."""

    @property
    def detached(self) -> tuple[tuple[str, datetime], ...]:
        """Every volume that we have had detached, with the end of the latest command."""
        return tuple(self._ended.items())

    def adopt(self, detached: Iterable[tuple[str, datetime]]) -> None:
        """What a run before this one has had detached: it is read like our own before anything is freed."""
        self._ended = dict(detached) | self._ended

    async def detach_all(self, device: PowerDevice, look: Callable[[], Awaitable[None]], patience: timedelta) -> PathProof | None:
        """Detach everything but what the machine boots from. The proof, None where nothing is attached; StepFailed otherwise."""
        for volume in await self._attached(device):
            if volume not in self._tried:
                await look()
                self._episode.enter(doing=f"detaches {volume}")
                await self._detach(device, volume)
        if not self._ended:
            self._episode.note("detach-volumes", "ok", "no volume is attached")
            return None
        return await self._until_available(device, patience)

    async def prove(self, device: PowerDevice) -> PathProof:
        """Read every detached volume once more, just before a consequence (S2)."""
        readings = await asyncio.gather(*(self._read(device, volume) for volume in self._ended))
        if any(reading.state is not VolumeState.AVAILABLE for reading in readings):
            raise StepFailed(f"volumes are not proven detached: {_states(readings)}")
        return PathProof(commanded_at=max(self._ended.values()), volumes=tuple(readings))

    async def _attached(self, device: PowerDevice) -> list[str]:
        try:
            found = await workflow.execute_activity_method(
                PowerActivities.list_volumes,
                PowerRequest(target=self._episode.target, device=device, deadline=self._plan.act_deadline),
                **(
                    options.power_read(device.site, self._plan)
                    | {"summary": f"isolation: lists the volumes of {device.endpoint}"}
                ),
            )
        except ActivityError as error:
            raise turn_for(error, device.endpoint) from error
        return [each.volume for each in found.volumes if not each.root]

    async def _detach(self, device: PowerDevice, volume: str) -> None:
        try:
            result = await workflow.execute_activity_method(
                PowerActivities.detach_volume,
                self._request(device, volume, not_after=workflow.now() + options.ACT_WINDOW),
                **(options.power_command(device.site, self._plan) | {"summary": f"isolation: detaches {volume}"}),
            )
        except ActivityError as error:
            if not await self._episode.wait_out("detach-volume", volume, error):
                raise turn_for(error, device.endpoint) from error
            self._tried.add(volume)
            self._ended[volume] = workflow.now()
        else:
            self._episode.note("detach-volume", "sent", result.detail)
            self._tried.add(volume)
            self._ended[volume] = result.ended_at

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
                await workflow.sleep(pause, summary="until the volumes are read again")
                pause = longer(pause)
            else:
                self._episode.note("path-cut-proven", "ok", _states(proof.volumes))
                return proof

    async def _read(self, device: PowerDevice, volume: str) -> VolumeReading:
        try:
            return await workflow.execute_activity_method(
                PowerActivities.read_volume,
                self._request(device, volume),
                **(options.power_read(device.site, self._plan) | {"summary": f"isolation: reads {volume}"}),
            )
        except ActivityError as error:
            detail = told_of(volume, error)
            return VolumeReading(volume=volume, state=VolumeState.UNKNOWN, at=workflow.now(), detail=detail)

    def _request(self, device: PowerDevice, volume: str, not_after: datetime | None = None) -> VolumeRequest:
        deadline = self._plan.act_deadline
        return VolumeRequest(target=self._episode.target, device=device, volume=volume, deadline=deadline, not_after=not_after)


def _states(readings: list[VolumeReading] | tuple[VolumeReading, ...]) -> str:
    return ", ".join(f"{each.volume} is {each.state.value}" for each in readings)
