"""What is known of a cluster at one moment, for people: the scanner's view, the open episodes and how the last ones ended, and
its open preservations.

For display only: permits and consequences are never decided from any of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.client import Client

from activities.contracts.search_attributes import literal
from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, Phase, episode_id
from policy.episode.node_action import CIRCUIT_BREAKER
from policy.episode.permits import Permit, PermitAnswer, PermitDecision, PermitRequest, PermitState
from policy.fence.device_check import DeviceRow
from policy.scan import pauses
from policy.scan.admission import answer_request
from policy.values.times import LATEST
from starter.handles.calls import ANSWER_WITHIN, answered
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

    @property
    def is_unknown(self) -> bool:
        """Whether there was no answer, now or before: that nothing is listed means nothing then."""
        return self.unanswered and self.scanner is None and not (self.episodes or self.silent)


# Open preservations: visibility says which there are, and lags; what each of them holds is asked of itself.

SHOWN = 500
ASKED_AT_ONCE = 50


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
    query = f"WorkflowType = '{Kind.PRESERVATION.value}' AND Cluster = {literal(cluster)} AND ExecutionStatus = 'Running'"
    with answered(f"preservations of {cluster}"):
        listed = [run.id async for run in client.list_workflows(query, limit=SHOWN, rpc_timeout=ANSWER_WITHIN)]
        count = len(listed) if len(listed) < SHOWN else (await client.count_workflows(query, rpc_timeout=ANSWER_WITHIN)).count
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


# What would still be in the way of an episode that a person holds, or is asked about, once that person has it go on -----------
#
# It is asked of the scanner's own rules, about the table and the report that it has shown last; the scanner decides by itself.


def still_stopped_by(scanner: ScannerStatus | None, episode: EpisodeStatus, now: datetime) -> str:
    """Why the scanner would give no permit now, "" where it would, or none is needed: after off only restoring may be left, which
    asks for none (S17)."""
    waits = episode.phase is Phase.NEEDS_HUMAN or episode.held
    asks = waits and not episode.permit and episode.off_proof is None and episode.kind is not Kind.PRESERVATION
    if scanner is None or not asks:
        return ""
    request = PermitRequest(
        node=episode.node,
        workflow_id=episode_id(episode.cluster, episode.node),
        incident=episode.incident,
        kind=episode.kind,
        provider_id=episode.provider_id,
        control_plane=episode.control_plane is not False,
        node_uid=episode.node_uid,
        by_person=True,
        override=CIRCUIT_BREAKER if episode.override else "",
    )
    others = [each for each in scanner.permits if each.incident != episode.incident or each.state is not PermitState.PARKED]
    answer = _answer(scanner, request, now, others)
    return "" if answer.decision is PermitDecision.GRANTED else answer.reason


def refused_now(scanner: ScannerStatus | None, cluster: str, node: str, now: datetime) -> str:
    """Why a person's new request about a node would be refused now, "" where it would begin, or wait for a permit."""
    if scanner is None:
        return ""
    request = PermitRequest(node=node, workflow_id=episode_id(cluster, node), incident="", by_person=True)
    answer = _answer(scanner, request, now, scanner.permits)
    return answer.reason if answer.decision is PermitDecision.REFUSED else ""


def _answer(scanner: ScannerStatus, request: PermitRequest, now: datetime, permits: Iterable[Permit]) -> PermitAnswer:
    paused = pauses.described(scanner.pauses)
    return answer_request(scanner.report, permits, request, cap=scanner.cap, now=now, paused=paused)
