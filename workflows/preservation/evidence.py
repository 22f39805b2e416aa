"""Evidence of a machine that is kept, fetched once beside the story of its preservation: nothing waits for it or fails by it.

First what the API says, because Events expire and conditions change; then each device at its site, one after the other; the
manifest last. Its path and digest go into the record. What is fetched and how it is bounded is the activities'.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.evidence import (
    BundleName,
    Collected,
    CollectRequest,
    DeviceEvidenceActivities,
    DeviceEvidenceRequest,
    EvidenceCollection,
    EvidenceFile,
    NotFetched,
    Sealed,
    SealRequest,
)
from activities.contracts.preservation import Hold
from activities.errors import ErrorType, error_message, error_type
from policy.fence.plan import PowerDevice
from workflows.episode.episode import Episode
from workflows.episode.state import PreservationProgress
from workflows.kit import options

ACT = "evidence"
MISSING_SHOWN = 5


class Evidence:
    """Of one incident. What a predecessor in the same incident has begun is not begun again."""

    def __init__(self, episode: Episode, progress: PreservationProgress) -> None:
        self._episode = episode
        self._progress = progress
        self._fetching: asyncio.Task[None] | None = None
        self._awaited = False

    def may_be_left(self) -> bool:
        """Whether nothing is being fetched any more. The story is told once that is so, if it was not when it asked."""
        self._awaited = self._under_way
        return not self._awaited

    @property
    def _under_way(self) -> bool:
        return self._fetching is not None and not self._fetching.done()

    def begin(self, hold: Hold) -> None:
        """Begin to fetch it, unless that was done."""
        if self._progress.evidence or not hold.preserved:
            return
        self._progress.evidence = True
        self._fetching = asyncio.create_task(self._fetch(hold))
        self._fetching.add_done_callback(self._wake_episode)

    def end(self) -> None:
        """The preservation is over: what has not been fetched by now is not fetched any more."""
        if self._fetching is not None and self._under_way:
            self._fetching.cancel()
            self._fetching, self._awaited = None, False
            self._episode.note(ACT, "incomplete", "the preservation was over before all was fetched")

    def _wake_episode(self, _: asyncio.Task[None]) -> None:
        if self._awaited:
            self._episode.wake()

    async def _fetch(self, hold: Hold) -> None:
        bundle = BundleName(
            cluster=self._episode.state.cluster, node=self._episode.state.node, incident=self._episode.state.incident
        )
        began = workflow.now()
        try:
            collected = await self._collect(bundle, hold)
            files, missing, room = list(collected.files), list(collected.missing), collected.room
            for device in collected.devices:
                file = await self._read(bundle, device, room)
                if isinstance(file, EvidenceFile):
                    files.append(file)
                    room -= file.size
                else:
                    missing.append(file)
            sealed = await self._seal(bundle, began, files, missing)
        except ActivityError as error:
            if self._fetching is not None:
                unset = error_type(error) is ErrorType.NOT_SUPPORTED
                self._episode.note(ACT, "not kept" if unset else "failed", error_message(error))
            return
        if self._fetching is None:
            return  # its end has been noted
        told = f"{sealed.path}: {sealed.files} files, {sealed.size} bytes; sha256 of the manifest {sealed.sha256}"
        self._episode.note(ACT, "kept", told + _missing(sealed))

    async def _collect(self, bundle: BundleName, hold: Hold) -> Collected:
        node = "" if self._episode.state.node.startswith("machine/") else self._episode.state.node
        return await workflow.execute_activity_method(
            EvidenceCollection.collect,
            CollectRequest(bundle=bundle, node=node, machine=hold.machine, node_uid=hold.node_uid, machine_uid=hold.machine_uid),
            **(options.evidence_of_cluster(bundle.cluster) | {"summary": "keeps what the API says of the machine"}),
        )

    async def _read(self, bundle: BundleName, device: PowerDevice, room: int) -> EvidenceFile | NotFetched:
        try:
            return await workflow.execute_activity_method(
                DeviceEvidenceActivities.read_device,
                DeviceEvidenceRequest(bundle=bundle, device=device, room=room),
                **(options.evidence_of_site(device.site) | {"summary": f"keeps what {device.endpoint} has seen"}),
            )
        except ActivityError as error:
            if self._fetching is None:
                raise  # it was ended, and nothing more is to be asked
            return NotFetched(of=device.endpoint, why=error_message(error))

    async def _seal(self, bundle: BundleName, began: datetime, files: list[EvidenceFile], missing: list[NotFetched]) -> Sealed:
        return await workflow.execute_activity_method(
            EvidenceCollection.seal,
            SealRequest(bundle=bundle, began=began, files=tuple(files), missing=tuple(missing)),
            **(options.evidence_of_cluster(bundle.cluster) | {"summary": "writes the manifest of the evidence"}),
        )


def _missing(sealed: Sealed) -> str:
    told = [f"{each.of} ({each.why})" for each in sealed.missing[:MISSING_SHOWN]]
    more = f" and {len(sealed.missing) - MISSING_SHOWN} more" if len(sealed.missing) > MISSING_SHOWN else ""
    return f"; not fetched: {'; '.join(told)}{more}" if told else ""
