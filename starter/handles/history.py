"""Episodes that have ended, and the decision record of one, open or ended: from Temporal's visibility and the runs' results.

Visibility lags: good enough to look at, never to decide by. How long it remembers is the namespace's retention.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowHandle

from activities.contracts import search_attributes
from activities.contracts.search_attributes import literal
from policy.episode.messages import EpisodeResult, Kind, OffProof, Outcome, RecordEntry, episode_id
from policy.episode.proofs import proof_in_words
from policy.history.offenders import OffenderRules, Repair, RepairedMachine, machines
from policy.history.spells import Spell
from policy.history.step_outcomes import EndedRepair, OutcomesReport, outcomes
from policy.values.times import written
from starter import wording
from starter.errors import MissingError, RequestError, SilentError
from starter.handles.calls import ANSWER_WITHIN, UNDECODED, answered, result_of
from starter.handles.episodes import EpisodeHandle
from starter.handles.scanners import SCANNER
from workflows.kit.options import WORKFLOW_QUEUE

MOST_LISTED = 500
MOST_REPAIRS = 10_000
OPEN_LISTED = 1000
OF_ONE_NODE = 10
ASKED_AT_ONCE = 50

_ENDS = {
    WorkflowExecutionStatus.TERMINATED: "terminated",
    WorkflowExecutionStatus.FAILED: "failed",
    WorkflowExecutionStatus.CANCELED: "canceled",
    WorkflowExecutionStatus.TIMED_OUT: "timed-out",
}
"""How an episode ended that has no result. It may have left marks on its node: the next one finds them."""

UNREADABLE = "unreadable"
"""It completed with a result that no version of ours wrote, or one of another version."""
OUTCOMES = (*(each.value for each in Outcome), *_ENDS.values(), UNREADABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEpisode:
    """outcome: one of OUTCOMES. why: for what it was begun. result: None of one that was ended from outside, failed, or can't
    be read."""

    node: str
    kind: Kind
    outcome: str
    message: str
    why: str
    incident: str
    started: datetime
    ended: datetime
    workflow_id: str
    run_id: str
    result: EpisodeResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEpisodes:
    """Newest first. more: visibility has older ones than were asked for."""

    cluster: str
    episodes: tuple[EndedEpisode, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRecord:
    """One episode and its decision record. kind: None of a node that has spells and no episode, which the message says; started
    is then the oldest spell's. ended: None while it is open; outcome: then its phase, "" where it was not asked. off_proof: the
    last one. spells: in which the node was not repaired, the oldest first, where they were asked for."""

    cluster: str
    node: str
    kind: Kind | None = None
    outcome: str = ""
    message: str
    why: str = ""
    incident: str = ""
    started: datetime
    ended: datetime | None = None
    off_proof: OffProof | None = None
    entries: tuple[RecordEntry, ...] = ()
    run_id: str = ""
    """In Temporal, of one that has ended."""
    spells: tuple[Spell, ...] = ()

    @property
    def proof(self) -> str:
        """What proved that its machine was off, in words; "" of a preservation without a proof, which needs none."""
        return proof_in_words(self.off_proof, self.entries) if self.off_proof or self.kind is not Kind.PRESERVATION else ""


def outcomes_of(found: EndedEpisodes, since: datetime) -> OutcomesReport:
    """What helped, by those of them that repair and have a result."""
    repairs = [
        EndedRepair(
            kind=each.kind,
            cause=each.result.cause,
            outcome=each.outcome,
            started=each.started,
            ended=each.ended,
            record=each.result.record,
        )
        for each in found.episodes
        if each.result is not None and each.kind is not Kind.PRESERVATION
    ]
    return outcomes(found.cluster, since, repairs, more=found.more)


OURS = f"TaskQueue = '{WORKFLOW_QUEUE}'"
"""What another queue's worker says that it has done, in a record of its own, is shown to none (S49)."""


class History:
    """What Temporal remembers of episodes. Results never change, so each is fetched once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._results: dict[str, EpisodeResult | str] = {}
        self._at_once = asyncio.Semaphore(ASKED_AT_ONCE)

    async def listed(
        self, cluster: str, state: str, *, node: str = "", kinds: Sequence[str] = tuple(Kind), limit: int
    ) -> Sequence[WorkflowExecution]:
        """The runs of episodes in a state, such as `ExecutionStatus = 'Running'`; of those that ended the newest first."""
        types = ", ".join(f"'{kind}'" for kind in kinds)
        query = f"WorkflowType IN ({types}) AND Cluster = {literal(cluster)} AND {state}"
        if node:
            query += f" AND Node = {literal(node)}"
        with answered(f"episodes of {cluster}"):
            return [run async for run in self._client.list_workflows(query, limit=limit, rpc_timeout=ANSWER_WITHIN)]

    async def open(self, cluster: str, *, node: str = "") -> Sequence[WorkflowExecution]:
        return await self.listed(cluster, "ExecutionStatus = 'Running'", node=node, limit=OPEN_LISTED)

    async def completed(self, cluster: str, *, node: str = "", limit: int) -> tuple[EpisodeResult, ...]:
        """How the last ones ended that have a result, newest first."""
        runs = await self.listed(cluster, f"ExecutionStatus = 'Completed' AND {OURS}", node=node, limit=limit)
        results = await asyncio.gather(*(self._result(run) for run in runs))
        return tuple(result for result in results if isinstance(result, EpisodeResult))

    async def ended(
        self, cluster: str, *, node: str = "", since: datetime | None = None, limit: int = MOST_LISTED
    ) -> EndedEpisodes:
        """Those that have ended in any way, since a moment."""
        states = ", ".join(f"'{each}'" for each in ("Completed", "Terminated", "Failed", "Canceled", "TimedOut"))
        closed = f" AND CloseTime >= '{written(since)}'" if since is not None else ""
        state = f"ExecutionStatus IN ({states}) AND {OURS}{closed}"
        runs = await self.listed(cluster, state, node=node, limit=limit + 1)
        found = await asyncio.gather(*(self._ended(cluster, run) for run in runs[:limit]))
        return EndedEpisodes(
            cluster=cluster,
            episodes=tuple(sorted((each for each in found if each is not None), key=lambda each: each.ended, reverse=True)),
            more=len(runs) > limit,
        )

    async def between(
        self, cluster: str, first: datetime, last: datetime, *, node: str = ""
    ) -> tuple[tuple[EpisodeRecord, ...], bool]:
        """The records of those that were open at any moment of that time, and whether there are more. One that went on in a new
        history later is known as far as the last history that began by then."""
        state = f"StartTime <= '{written(last)}' AND (ExecutionStatus = 'Running' OR CloseTime >= '{written(first)}') AND {OURS}"
        runs = await self.listed(cluster, state, node=node, limit=MOST_LISTED + 1)
        found: list[list[WorkflowExecution]] = []
        latest: dict[str, list[WorkflowExecution]] = {}
        for run in sorted(runs[:MOST_LISTED], key=lambda run: run.start_time):
            if run.id not in latest or latest[run.id][-1].status is not WorkflowExecutionStatus.CONTINUED_AS_NEW:
                latest[run.id] = []
                found.append(latest[run.id])
            latest[run.id].append(run)
        records = await asyncio.gather(*(self._record_of(cluster, each) for each in found))
        return tuple(records), len(runs) > MOST_LISTED

    async def _record_of(self, cluster: str, runs: Sequence[WorkflowExecution]) -> EpisodeRecord:
        """runs: its histories, the oldest first."""
        run, node = runs[-1], _node_of(cluster, runs[-1])
        if run.status in {WorkflowExecutionStatus.COMPLETED, *_ENDS} and (ended := await self._ended(cluster, run)) is not None:
            return await self._ended_record(cluster, ended)
        try:
            async with self._at_once:
                entries = await EpisodeHandle(self._client, cluster=cluster, node=node, run_id=run.run_id).record()
        except RequestError:
            entries = ()  # no worker answers, or its history was removed between the two calls
        return EpisodeRecord(
            cluster=cluster,
            node=node,
            kind=Kind(run.workflow_type),
            outcome="",
            message="",
            why=run.typed_search_attributes.get(search_attributes.REASON) or "",
            incident=await _incident(run),
            started=min([runs[0].start_time, *(each.at for each in entries[:1])]),
            entries=entries,
        )

    async def offenders(self, cluster: str, since: datetime, rules: OffenderRules) -> tuple[tuple[RepairedMachine, ...], bool]:
        """The machines that were repaired since then, by their hardware, and whether there are older repairs that were not read.
        rules: how many make an offender."""
        query, found = search_attributes.repairs(cluster, since), list[Repair]()
        with answered(f"repairs of {cluster}"):
            async for run in self._client.list_workflows(query, limit=MOST_REPAIRS + 1, rpc_timeout=ANSWER_WITHIN):
                is_open = run.status is WorkflowExecutionStatus.RUNNING
                found.append(search_attributes.repair(run.typed_search_attributes, run.start_time, is_open=is_open))
        return machines(found[:MOST_REPAIRS], rules), len(found) > MOST_REPAIRS

    async def was_scanned(self, cluster: str, moment: datetime) -> bool:
        """Whether a scanner ran at that moment, as far as Temporal remembers."""
        at = written(moment)
        state = f"StartTime <= '{at}' AND (ExecutionStatus = 'Running' OR CloseTime > '{at}')"
        return bool(await self.listed(cluster, state, kinds=(SCANNER,), limit=1))

    async def record(self, cluster: str, name: str) -> EpisodeRecord:
        """Of a node's open episode, else of its last one that was begun; or of the one with that incident.

        Raises MissingError where Temporal remembers neither.
        """
        if (found := await self._open_record(cluster, name)) is not None:
            return found
        ended = (await self.ended(cluster, node=name, limit=OF_ONE_NODE)).episodes
        if ended:
            begun = (each for each in ended if each.outcome != Outcome.REFUSED)
            return await self._ended_record(cluster, next(begun, ended[0]))
        for run in await self.open(cluster):
            if await _incident(run) == name:
                found = await self._open_record(cluster, _node_of(cluster, run))
                if found is not None and found.incident == name:
                    return found
        for each in (await self.ended(cluster, limit=OPEN_LISTED)).episodes:
            if each.incident == name:
                return await self._ended_record(cluster, each)
        raise MissingError(f"no episode of {cluster} is about a node {name}, or has that incident, as far as Temporal remembers")

    async def _open_record(self, cluster: str, node: str) -> EpisodeRecord | None:
        handle = EpisodeHandle(self._client, cluster=cluster, node=node)
        try:
            status = await handle.status()
        except MissingError:
            return None
        return EpisodeRecord(
            cluster=cluster,
            node=node,
            kind=status.kind,
            outcome=status.phase.value,
            message=status.problem or status.doing,
            why=status.reason,
            incident=status.incident,
            started=status.started,
            off_proof=status.off_proof,
            entries=await handle.record(),
        )

    async def _ended_record(self, cluster: str, episode: EndedEpisode) -> EpisodeRecord:
        result = episode.result
        if result is not None:
            entries = result.record
        else:
            handle = EpisodeHandle(self._client, cluster=cluster, node=episode.node, run_id=episode.run_id)
            try:
                entries = await handle.record()
            except SilentError:
                entries = ()  # it was ended before it began to work, or no worker has its build any more
        return EpisodeRecord(
            cluster=cluster,
            node=episode.node,
            kind=episode.kind,
            outcome=episode.outcome,
            message=episode.message,
            why=episode.why,
            incident=episode.incident,
            started=episode.started,
            ended=episode.ended,
            off_proof=result.off_proof if result is not None else None,
            entries=entries,
            run_id=episode.run_id,
        )

    async def _ended(self, cluster: str, run: WorkflowExecution) -> EndedEpisode | None:
        end = _ENDS.get(run.status) if run.status is not None else None
        found = await self._result(run) if end is None else ""
        if found is None:
            return None
        result, outcome, message = None, end or UNREADABLE, ""
        if isinstance(found, EpisodeResult):
            result = found
            outcome, message = result.outcome.value, ": ".join(filter(None, (wording.left_off(result), result.message)))
        elif found:
            message = found
        return EndedEpisode(
            node=_node_of(cluster, run),
            kind=Kind(run.workflow_type),
            outcome=outcome,
            message=message or "it has no result, and may have left marks on its node: the next episode finds them",
            why=run.typed_search_attributes.get(search_attributes.REASON) or "",
            incident=result.incident if result is not None else await _incident(run),
            started=result.started if result is not None else run.start_time,
            ended=result.ended if result is not None else run.close_time or datetime.now(UTC),
            workflow_id=run.id,
            run_id=run.run_id,
            result=result,
        )

    async def _result(self, run: WorkflowExecution) -> EpisodeResult | str | None:
        if run.run_id not in self._results:
            handle: WorkflowHandle[Any, EpisodeResult] = self._client.get_workflow_handle(
                run.id, run_id=run.run_id, result_type=EpisodeResult
            )
            async with self._at_once:
                found = await result_of(handle, EpisodeResult)
            if found is None:
                return None
            self._results[run.run_id] = found
        return self._results[run.run_id]


async def _incident(run: WorkflowExecution) -> str:
    """As its memo says; "" where that can't be read."""
    try:
        return str((await run.memo()).get("incident", ""))
    except UNDECODED:
        return ""


def _node_of(cluster: str, run: WorkflowExecution) -> str:
    return run.id.removeprefix(episode_id(cluster, ""))
