"""What is known of a cluster at one moment, for people: the scanner's view, the open episodes and how the last ones ended, and
its open preservations.

For display only: permits and consequences are never decided from any of this.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, Phase, episode_id
from policy.fence.device_check import DeviceRow
from policy.values.times import LATEST
from starter.handles.calls import ANSWER_WITHIN, unanswered
from starter.handles.episodes import EpisodeHandle, SilentEpisode
from workflows.kit.messages import ScannerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """`scanner` None: none runs, or it does not answer (`unanswered`); `problem` is the sentence.

    left_out: open episodes beyond those in `episodes` and `silent`. ended: newest first. last: what the last scanner knew when it
    ended, where none runs; None where that is forgotten. devices: fence devices with a problem, as the last check of all has
    found them, such as one that is silent or has no Secret; the first of them.
    """

    cluster: str
    at: datetime
    scanner: ScannerStatus | None = None
    problem: str = ""
    unanswered: bool = False
    episodes: tuple[EpisodeStatus, ...] = ()
    silent: tuple[SilentEpisode, ...] = ()
    left_out: int = 0
    ended: tuple[EpisodeResult, ...] = ()
    last: ScannerStatus | None = None
    devices: tuple[DeviceRow, ...] = ()


# Open preservations: visibility says which there are, and lags; what each of them holds is asked of itself.

SHOWN = 500
ASKED_AT_ONCE = 50
QUOTE = "'"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservedNode:
    """One of them. until: None before its first look has ended. hours: so long it has been kept, which is what it has cost."""

    node: str
    phase: Phase
    reason: str
    requester: str
    since: datetime
    until: datetime | None
    hours: float
    incident: str
    workflow_id: str
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservedNodes:
    """The one that ends first is the first. silent: those that did not answer. left_out: how many more there are."""

    cluster: str
    at: datetime
    preservations: tuple[PreservedNode, ...] = ()
    silent: tuple[SilentEpisode, ...] = ()
    left_out: int = 0


async def open_preservations(client: Client, cluster: str) -> PreservedNodes:
    """Raises SilentError where Temporal does not answer."""
    literal = cluster.replace(QUOTE, "")
    query = f"WorkflowType = '{Kind.PRESERVATION.value}' AND Cluster = '{literal}' AND ExecutionStatus = 'Running'"
    try:
        listed = [run.id async for run in client.list_workflows(query, limit=SHOWN, rpc_timeout=ANSWER_WITHIN)]
        count = len(listed) if len(listed) < SHOWN else (await client.count_workflows(query, rpc_timeout=ANSWER_WITHIN)).count
    except RPCError as error:
        raise unanswered(error, what=f"preservations of {cluster}") from error
    at_once = asyncio.Semaphore(ASKED_AT_ONCE)

    async def asked(workflow_id: str) -> EpisodeStatus | SilentEpisode | None:
        async with at_once:
            return await EpisodeHandle(client, cluster=cluster, node=workflow_id.removeprefix(episode_id(cluster, ""))).seen()

    answers = await asyncio.gather(*(asked(workflow_id) for workflow_id in listed))
    now = datetime.now(UTC)
    kept = [_preserved(each, now) for each in answers if isinstance(each, EpisodeStatus) and each.kind is Kind.PRESERVATION]
    return PreservedNodes(
        cluster=cluster,
        at=now,
        preservations=tuple(sorted(kept, key=lambda each: (each.until or LATEST, each.node))),
        silent=tuple(each for each in answers if isinstance(each, SilentEpisode)),
        left_out=max(0, count - len(listed)),
    )


def _preserved(status: EpisodeStatus, now: datetime) -> PreservedNode:
    return PreservedNode(
        node=status.node,
        phase=status.phase,
        reason=status.reason,
        requester=status.requester,
        since=status.started,
        until=status.preserved_until,
        hours=round(max(timedelta(0), now - status.started) / timedelta(hours=1), 2),
        incident=status.incident,
        workflow_id=episode_id(status.cluster, status.node),
        problem=status.problem,
    )
