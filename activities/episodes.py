"""Episodes as Temporal sees them: started, described, and their scanner asked. The only activities that hold its client.

Starting is at-least-once and made harmless by the workflow id (S13): a running episode of the same incident is `joined`. What
may be started is the scanner's decision (`workflows/scanner/story.py`), never this module's.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, chain, compress, repeat
from typing import Any

from pydantic import TypeAdapter
from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.exceptions import TemporalError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.contracts.episode_start import start_options
from activities.contracts.episodes import (
    OPENED_WITHIN,
    STOPPED_MEMO,
    TOOK_OVER_MEMO,
    AskPermit,
    AskPortion,
    DeploymentName,
    DescribeRequest,
    DescribeResult,
    EpisodeActivities,
    EpisodeDescription,
    FindRequest,
    FormerRun,
    FormerRunDescription,
    FoundOpen,
    NameRequest,
    NotifyRequest,
    NotifyResult,
    Opened,
    OpenOutcome,
    OpenRequest,
    OpenResult,
)
from activities.contracts.preservation import PreservationStarts, PreserveOutcome, PreserveRequest, PreserveResult
from activities.contracts.search_attributes import OUTCOME, literal
from activities.errors import ErrorType, failure
from activities.our_workflows import NotOurs, OurWorkflows, is_silent
from policy.episode.advice import until_well_or_asked
from policy.episode.messages import (
    WORD_MEMO,
    EpisodeResult,
    EpisodeStatus,
    FencingInput,
    Kind,
    Outcome,
    Phase,
    PreservationInput,
    PreservationUpdate,
    RemediationInput,
    SeenNode,
    StandingWord,
    device_check_id,
    episode_id,
    scanner_id,
)
from policy.episode.modes import CHANGES_REMEMBERED, LONGEST_KEPT, MODE_CHANGES_MEMO, MODES_MEMO, ClusterModes, ModeChanges
from policy.episode.node_action import CIRCUIT_BREAKER
from policy.episode.permits import (
    LONGEST_HELD_OFF,
    HoldOff,
    PermitAnswer,
    PermitDecision,
    PortionAnswer,
    ScannerAnswer,
    ScannerQuestion,
    silent_scanner,
)
from policy.history.spell_lifecycle import MOST_BYTES
from policy.history.spell_lifecycle import MOST_OPEN as MOST_SPELLS
from policy.history.spells import (
    MOST_DAYS,
    MOST_HELD_OFF,
    MOST_RECORDS,
    NodeDays,
    ObservationRecord,
    ScannerSpells,
    Spell,
    unsound,
)
from policy.preservation.preservation_index import PreservationNeed
from policy.scan.pauses import PAUSES_MEMO, Pauses, with_said
from policy.values.display_text import in_a_line
from policy.values.mode import Mode

_ANYTHING = TypeAdapter[object](object)

QUERY_TIMEOUT = timedelta(seconds=5)
ANSWERED_WITHIN = timedelta(seconds=18)
FIRST_PAUSES = (0.0, 0.05, 0.1, 0.2, 0.5)
"""In seconds, between queries for an answer: most are there with the first, since a query waits for the task before it."""

ASKED_AGAIN = 3
"""By so many attempts an episode that has ended is asked what people had said to it."""

MOST_LIVES = 10
"""So many runs of the scanner are looked through, its own among them."""
MOST_RUNS = 100
"""So many runs of an episode's id are looked through for a person's word that still holds."""
MOST_OPEN = 10_000
"""So many names fit into an answer; no one person works on so many nodes at once."""

WOKEN_AT_ONCE = 50

UNCONFIRMED = timedelta(minutes=1)
"""So long at most a scanner asks whether an end that it was told of is one (`workflows/scanner/releases.py`)."""
MOST_ABORTED = 500
"""So many that have ended since are asked for within one activity, the last ones."""
LEFT_ALONE_FOR_NOW = timedelta(seconds=5)
"""So long a node waits at least for what the last scanner says of it."""

FOREIGN = "foreign "
"""Begins the incident of a workflow that has our id, and is none of ours: it holds the node, and what it does is not known."""


@dataclass(frozen=True, slots=True)
class _Stopped:
    """Why no episode begins for a program, and until when; None: until the node is well once, or a person asks."""

    reason: str
    until: datetime | None = None


class EpisodeService(EpisodeActivities, PreservationStarts):
    """`task_queue` is where episodes run; `holder` tells how the cluster Lease names the deployment that a client belongs to."""

    def __init__(self, client: Client, *, task_queue: str, holder: Callable[[Client], Awaitable[str]], page: str = "") -> None:
        """page: the address of our page, to be linked to."""
        self._client = client
        self._page = page
        self._task_queue = task_queue
        self._holder = holder
        self._ours = OurWorkflows(client, task_queue=task_queue)
        self._reads = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """Of answers of the scanner of a cluster: one at a time. Temporal lets one query wait for a workflow that is at work, and
        each other one is tried again after ever longer pauses, while answers of later questions take the place of its own."""

    async def open(self, request: OpenRequest) -> OpenResult:
        """Start the episodes, side by side. Raises Expired where that was decided too long ago (S18)."""
        _require_recent(request.decided)
        episodes: list[FencingInput | RemediationInput] = [*request.episodes, *request.remediations]
        return OpenResult(outcomes=tuple(await asyncio.gather(*(self._open(each, request.unasked) for each in episodes))))

    async def _open(self, episode: FencingInput | RemediationInput, unasked: bool) -> OpenOutcome:
        workflow_id = episode_id(episode.cluster, episode.node)
        handle: WorkflowHandle[object, EpisodeResult] = self._client.get_workflow_handle(workflow_id, result_type=EpisodeResult)
        kind = Kind.FENCING if isinstance(episode, FencingInput) else Kind.REMEDIATION
        outcome = OpenOutcome(node=episode.node, incident=episode.incident, opened=Opened.STARTED, workflow_id=workflow_id)
        if (stopped := await _unless_unreadable(self._stopped_since(handle, episode, unasked), episode.node)) is not None:
            return replace(outcome, opened=Opened.HELD_OFF, reason=stopped.reason, until=stopped.until)
        try:
            started = await self._client.start_workflow(
                kind.value,
                episode,
                task_queue=self._task_queue,
                memo={"incident": episode.incident},
                **start_options(kind, episode, page=self._page),
            )
        except WorkflowAlreadyStartedError:
            holder = await self._describe(episode.cluster, episode.node)
            if holder.open and holder.incident == episode.incident:
                return replace(outcome, opened=Opened.JOINED, run_id=holder.run_id)
            foreign = holder.incident.startswith(FOREIGN)
            in_the_way = holder.incident if foreign else f"{holder.kind.value} {holder.incident}"
            return replace(outcome, opened=Opened.REFUSED, holder=in_the_way, reason=f"{in_the_way} holds {episode.node}")
        return replace(outcome, run_id=started.result_run_id or "")

    async def preserve(self, request: PreserveRequest) -> PreserveResult:
        """Side by side; what holds a node by another kind of episode is named, and asked again with the next report. Raises
        Expired as `open` does (S18)."""
        _require_recent(request.decided)
        outcomes = await asyncio.gather(*(self._preserve(request, need) for need in request.needs))
        return PreserveResult(outcomes=tuple(outcomes))

    async def _preserve(self, request: PreserveRequest, need: PreservationNeed) -> PreserveOutcome:
        if need.going:
            keeper = await self._describe(request.cluster, need.victim)
            none = PreserveOutcome(victim=need.victim, opened=Opened.REFUSED)
            return await self._signal_keeper(request.cluster, need, keeper) if keeper.open else none
        before = await _unless_unreadable(self._held_before(request.cluster, need.victim), need.victim)
        wanted = PreservationInput(
            cluster=request.cluster,
            node=need.victim,
            machine=need.machine,
            reason=need.reason,
            requester=scanner_id(request.cluster),
            incident=uuid.uuid4().hex[:12],
            keep=False,
            automatic=need.automatic,
            unhealthy=need.unhealthy,
            holder=request.holder,
            held=in_a_line(before.reason, LONGEST_KEPT) if before is not None else "",
            held_until=before.until if before is not None else None,
        )
        try:
            await self._client.start_workflow(
                Kind.PRESERVATION.value,
                wanted,
                task_queue=self._task_queue,
                memo={"incident": wanted.incident},
                **start_options(Kind.PRESERVATION, wanted, page=self._page),
            )
        except WorkflowAlreadyStartedError:
            holder = await self._describe(request.cluster, need.victim)
            return await self._signal_keeper(request.cluster, need, holder)
        return PreserveOutcome(victim=need.victim, opened=Opened.STARTED)

    async def _signal_keeper(self, cluster: str, need: PreservationNeed, holder: EpisodeDescription) -> PreserveOutcome:
        """Let the open preservation look again; one that has ended meanwhile needs to hear nothing."""
        workflow_id = episode_id(cluster, need.victim)
        if holder.kind is not Kind.PRESERVATION or holder.incident.startswith(FOREIGN):
            held_by = holder.incident if holder.incident.startswith(FOREIGN) else f"{holder.kind.value} {holder.incident}"
            return PreserveOutcome(victim=need.victim, opened=Opened.REFUSED, holder=held_by)
        update = PreservationUpdate(unhealthy=need.unhealthy, released=need.released)
        try:
            await self._client.get_workflow_handle(workflow_id).signal("look_again", update)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise failure(ErrorType.UNREACHABLE, f"Temporal can't tell {workflow_id}: {error.message}") from error
        return PreserveOutcome(victim=need.victim, opened=Opened.JOINED)

    async def _stopped_since(
        self, handle: WorkflowHandle[object, EpisodeResult], episode: FencingInput | RemediationInput, unasked: bool
    ) -> _Stopped | None:
        """Why a person's word to the last episode still holds: an abort, or a hold with which it was terminated. The node has not
        been healthy between that and now. None where none holds. unasked: see `OpenRequest`; nodes that may have to be left alone
        wait for that answer (S19)."""
        need = episode.need
        if need is None or not need.kind.automatic or (found := await self._last_of(handle)) is None:
            return None
        run, last = found
        if last is None:
            if need.since is not None and need.since > (run.close_time or datetime.now(UTC)):
                return None
            held, ends = await self._held_at_its_end(run), until_well_or_asked(episode.node, once=need.since is not None)
            return replace(held, reason=f"{held.reason}; {ends}") if held is not None else None
        # The very incident that was aborted comes again where its opening is tried again, or a reset has scheduled it anew.
        again = last.incident == episode.incident
        if last.outcome is Outcome.ABORTED and (again or (need.since is not None and need.since <= last.ended)):
            ended = f"incident {last.incident} was ended by a person and the node has not been healthy since: {last.message}"
            return _Stopped(f"{ended}; {until_well_or_asked(episode.node)}")
        if unasked and last.outcome in {Outcome.ABORTED, Outcome.FENCED_OFF}:
            why = f"incident {last.incident} ended {last.outcome.value}, and the last scanner is still asked who is left alone"
            return _Stopped(why, datetime.now(UTC) + LEFT_ALONE_FOR_NOW)
        return None

    async def _last_of(self, handle: WorkflowHandle[Any, EpisodeResult]) -> tuple[WorkflowExecution, EpisodeResult | None] | None:
        """The last episode of that id and its result, None for one that did not end by itself. None: there is none, or one is
        open. What was refused, and so has done nothing, is no last episode, nor is a stranger's workflow of the same id: neither
        ends a person's word (S19, S49)."""
        try:
            async for found in self._runs(handle):
                if found.status is WorkflowExecutionStatus.RUNNING:
                    return None
                if found.status is WorkflowExecutionStatus.CONTINUED_AS_NEW or not self._is_ours(found):
                    continue
                if found.status is not WorkflowExecutionStatus.COMPLETED:
                    return found, None
                run = self._client.get_workflow_handle(found.id, run_id=found.run_id, result_type=EpisodeResult)
                result = await run.result(follow_runs=False, rpc_timeout=QUERY_TIMEOUT)
                if result.outcome is not Outcome.REFUSED:
                    return found, result
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise failure(ErrorType.UNREACHABLE, f"Temporal can't describe {handle.id}: {error.message}") from error
        return None

    async def _runs(self, handle: WorkflowHandle[Any, EpisodeResult]) -> AsyncIterator[WorkflowExecution]:
        """The runs of that id, the latest first; of that one visibility need not know yet."""
        latest = await handle.describe(rpc_timeout=QUERY_TIMEOUT)
        yield latest
        query = f"WorkflowId = {literal(handle.id)}"
        async for run in self._client.list_workflows(query, limit=MOST_RUNS, rpc_timeout=QUERY_TIMEOUT):
            if run.run_id != latest.run_id:
                yield run

    async def _held_before(self, cluster: str, victim: str) -> _Stopped | None:
        """What a person had said to the last episode of that machine, where it was terminated or failed."""
        found = await self._last_of(self._client.get_workflow_handle(episode_id(cluster, victim), result_type=EpisodeResult))
        return await self._held_at_its_end(found[0]) if found is not None and found[1] is None else None

    async def _held_at_its_end(self, ended: WorkflowExecution) -> _Stopped | None:
        """Of an episode that was terminated, or failed: what people had said to it (S44). Where something has happened after its
        last task, as a signal or the end of an activity, workers refuse every question (`workers/plugin.py::TimeGuard`); others
        no code can replay. Its memo has what was said last, then. One without that keeps no node from being repaired: an older
        build had it, or nothing was said. But busy workers may answer later. reason: without what ends it."""
        run = self._client.get_workflow_handle(ended.id, run_id=ended.run_id)
        word: EpisodeStatus | StandingWord
        try:
            word = await run.query("status", result_type=EpisodeStatus, rpc_timeout=QUERY_TIMEOUT)
        except (RPCError, WorkflowQueryFailedError) as error:
            word = await ended.memo_value(WORD_MEMO, default=StandingWord(), type_hint=StandingWord)
            passes = isinstance(error, WorkflowQueryFailedError) or is_silent(error)
            if not (word.aborted or word.held) and passes and activity.info().attempt < ASKED_AGAIN:
                raise failure(ErrorType.UNREACHABLE, f"{run.id} does not say yet whether a person held it") from error
            activity.logger.warning("%s does not answer what a person had said to it: %s", run.id, error.message)
        over = word.held_until is not None and word.held_until <= activity.info().started_time
        if not (said := word.aborted or ("" if over else word.held)):
            return None
        was = f"incident {word.incident} did not end by itself, and was {said}"
        return _Stopped(was, None if word.aborted else word.held_until)

    async def name_deployment(self, request: NameRequest) -> DeploymentName:  # noqa: ARG002 - one deployment, whatever the cluster
        """Asked of the server, so that every process of a deployment says the same."""
        try:
            return DeploymentName(holder=await self._holder(self._client))
        except RPCError as error:
            raise failure(ErrorType.UNREACHABLE, f"Temporal can't describe its namespace: {error.message}") from error

    async def describe(self, request: DescribeRequest) -> DescribeResult:
        """By workflow id, which visibility has no part in."""
        found = await asyncio.gather(*(self._describe(request.cluster, node) for node in request.nodes))
        return DescribeResult(episodes=tuple(found))

    async def _describe(self, cluster: str, node: str) -> EpisodeDescription:
        workflow_id = episode_id(cluster, node)
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            described = await handle.describe(rpc_timeout=QUERY_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return EpisodeDescription(node=node, known=False, open=False, workflow_id=workflow_id)
            raise failure(ErrorType.UNREACHABLE, f"Temporal can't describe {workflow_id}: {error.message}") from error
        ours = self._is_ours(described)
        incident = await _incident_of(described) if ours else f"{FOREIGN}{described.workflow_type[:100]}"
        is_open = described.status is WorkflowExecutionStatus.RUNNING
        description = EpisodeDescription(
            node=node,
            known=True,
            open=is_open,
            workflow_id=workflow_id,
            run_id=described.run_id or "",
            incident=incident,
            kind=Kind(described.workflow_type) if ours else Kind.FENCING,
            permit=is_open,  # until the episode itself says otherwise: what is not known counts (S14)
            started=described.start_time,
            ended=described.close_time,
        )
        if not is_open or not ours:
            return description
        try:
            status: EpisodeStatus = await handle.query("status", result_type=EpisodeStatus, rpc_timeout=QUERY_TIMEOUT)
        except (RPCError, WorkflowQueryFailedError) as error:
            activity.logger.warning("%s does not answer its status query: %s", workflow_id, error.message)
            return description
        return replace(
            description,
            incident=status.incident,
            kind=status.kind,
            parked=status.phase is Phase.NEEDS_HUMAN,
            phase=status.phase,
            permit=status.permit or status.asks_anew,  # what it had begun counts (S14)
            started=status.started,
            control_plane=status.control_plane,
            node_uid=status.node_uid,
            provider_id=status.provider_id,
            override=CIRCUIT_BREAKER if status.override else "",
            by_person=status.by_person,
        )

    def _is_ours(self, found: WorkflowExecution) -> bool:
        """Whether it is an episode, by its type and by our workers, who carry it out: what another queue's worker says of one is
        its own word (S49)."""
        return found.workflow_type in set(Kind) and found.task_queue == self._task_queue

    async def describe_former(self, request: FormerRun) -> FormerRunDescription:
        """As the server knows it."""
        handle = self._client.get_workflow_handle(request.workflow_id, run_id=request.run_id)
        try:
            found = await handle.describe(rpc_timeout=QUERY_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return FormerRunDescription()
            raise failure(ErrorType.UNREACHABLE, f"the run before can't be described: {error}") from error
        return FormerRunDescription(workflow_type=found.workflow_type, task_queue=found.task_queue)

    async def former_spells(self, request: FormerRun) -> ScannerSpells:
        """As its query `spells` says; without what no scanner keeps, since any client of Temporal may have run one (S49)."""
        handle = self._client.get_workflow_handle(request.workflow_id, run_id=request.run_id)
        try:
            found: ScannerSpells = await handle.query("spells", result_type=ScannerSpells, rpc_timeout=QUERY_TIMEOUT)
        except (RPCError, WorkflowQueryFailedError) as error:
            raise failure(ErrorType.UNREACHABLE, f"the last scanner does not answer: {error.message}") from error
        spells = [each for each in found.spells if not unsound(each)][:MOST_SPELLS]
        days = [each for each in found.days if each.is_sound][:MOST_DAYS]
        records = [each for each in found.records if each.is_sound and request.workflow_id == scanner_id(each.cluster)]
        held_off = [each for each in found.held_off if each.is_handed_over][:MOST_HELD_OFF]
        sound = (*held_off, *spells, *days, *records[:MOST_RECORDS])
        sizes = accumulate(len(_ANYTHING.dump_json(each)) for each in sound)
        fits = tuple(compress(sound, (size <= MOST_BYTES for size in sizes)))
        return replace(
            found,
            spells=tuple(each for each in fits if isinstance(each, Spell)),
            days=tuple(each for each in fits if isinstance(each, NodeDays)),
            records=tuple(each for each in fits if isinstance(each, ObservationRecord)),
            held_off=tuple(each for each in fits if isinstance(each, HoldOff)),
        )

    async def notify(self, request: NotifyRequest) -> NotifyResult:
        """Side by side."""
        if request.build_changed:
            await self._wake_all(request.cluster)
        reached = await asyncio.gather(*(self._signal(request.cluster, seen) for seen in request.seen_nodes))
        return NotifyResult(gone=tuple(seen.node for seen, there in zip(request.seen_nodes, reached, strict=True) if not there))

    async def _signal(self, cluster: str, seen: SeenNode) -> bool:
        """Whether an episode is open there."""
        return await self._reached(episode_id(cluster, seen.node), "node_changed", seen)

    async def _reached(self, workflow_id: str, signal: str, *about: SeenNode) -> bool:
        handle = self._client.get_workflow_handle(workflow_id)
        try:
            await handle.signal(signal, args=about, rpc_timeout=QUERY_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise failure(ErrorType.UNREACHABLE, f"Temporal can't tell {workflow_id}: {error.message}") from error
        return True

    async def _wake_all(self, cluster: str) -> None:
        """Preservations and the check of fence devices as well. An episode that began a moment ago is not listed yet: it is at
        work, and looks when it comes to rest."""
        running = f"WorkflowId STARTS_WITH '{_prefix(cluster)}' AND ExecutionStatus = 'Running'"
        at_once = asyncio.Semaphore(WOKEN_AT_ONCE)

        async def wake(workflow_id: str) -> None:
            async with at_once:
                await self._reached(workflow_id, "build_changed")

        try:
            found = [run.id async for run in self._client.list_workflows(running, rpc_timeout=QUERY_TIMEOUT)]
        except RPCError as error:
            raise failure(ErrorType.UNREACHABLE, f"Temporal can't list the open episodes: {error.message}") from error
        await asyncio.gather(*map(wake, (*found, device_check_id(cluster))))

    async def find_open(self, request: FindRequest) -> FoundOpen:
        """Page by page. Preservations are left out: ten thousand may be open for days, and none of them disrupts anything unless
        it has asked for a permit."""
        prefix, scanner, this_run = _prefix(request.cluster), scanner_id(request.cluster), activity.info().workflow_run_id
        running = f"WorkflowId STARTS_WITH '{prefix}' AND ExecutionStatus = 'Running'"
        nodes, lives, armed, modes, past = list[str](), list[WorkflowExecution](), None, None, ()
        changes, stopped, stop_ended = ModeChanges(), tuple[str, ...](), None
        try:
            query = f"{running} AND WorkflowType != '{Kind.PRESERVATION.value}'"
            async for run in self._client.list_workflows(query, limit=MOST_OPEN + 1, rpc_timeout=QUERY_TIMEOUT):
                nodes.append(run.id.removeprefix(prefix))
            # The open one comes first, then the one that was the last to end.
            query = f"WorkflowId = '{scanner}'"
            async for run in self._client.list_workflows(query, limit=MOST_LIVES, rpc_timeout=QUERY_TIMEOUT):
                lives += [run] if run.run_id != this_run else []
            former = await _last_that_knew(lives)
            later = lives[: lives.index(former)] if former is not None else []
            # Each of them was begun in the place of one that had failed, and goes on as that stood.
            replaced = former is not None and {each.status for each in (*later, former)} == {WorkflowExecutionStatus.FAILED}
            # One that has completed has done what it was told: who resets that has it scan again.
            told = (*later, *([former] if former is not None else []))
            done = next((at for at, run in enumerate(told) if run.status is WorkflowExecutionStatus.COMPLETED), len(told))
            for run in told if replaced else told[:done]:
                if not stopped and (stopped := await run.memo_value(STOPPED_MEMO, default=(), type_hint=tuple[str, ...])):
                    stop_ended = run.close_time
            if former is not None:
                past, modes, changes = await _set_by(former)
                for run in reversed(later):
                    since, (said, ruled, changed) = former.close_time or run.start_time, await _set_by(run)
                    past = with_said(past, said, since, datetime.now(UTC))
                    modes = modes.with_said(ruled, since) if modes is not None and ruled is not None else modes
                    changes = (*changes, *(each for each in changed if each.at >= since))[-CHANGES_REMEMBERED:]
                # Whether nodes without a rule were repaired when it ended; a version without modes repaired all along (S52).
                armed = modes.is_known and modes.default is Mode.REPAIR if modes is not None else None
            ever = f"WorkflowId STARTS_WITH '{prefix}' AND WorkflowType IN ('{Kind.FENCING.value}', '{Kind.REMEDIATION.value}')"
            left_alone = await self._left_alone(prefix, former.close_time) if former is not None and former.close_time else ()
            if former is not None and armed is None:
                armed = bool(nodes) or (await self._client.count_workflows(ever, rpc_timeout=QUERY_TIMEOUT)).count > 0
        except RPCError as error:
            raise failure(ErrorType.UNREACHABLE, f"Temporal can't list the open episodes: {error.message}") from error
        if len(nodes) > MOST_OPEN:
            message = f"more than {MOST_OPEN} episodes of {request.cluster} are open: end those that are not needed"
            raise failure(ErrorType.NOT_SUPPORTED, message)
        return FoundOpen(
            nodes=tuple(dict.fromkeys(nodes)),
            earlier=former is not None,
            repaired=bool(armed),
            former=former.run_id if former is not None else "",
            ended=(lives[0].close_time or datetime.now(UTC)) if lives else None,
            modes=modes,
            pauses=past,
            untaken=bool(later) and not replaced,
            mode_changes=changes,
            stopped=stopped,
            stop_ended=stop_ended,
            left_alone=left_alone,
        )

    async def _left_alone(self, prefix: str, since: datetime) -> tuple[HoldOff, ...]:
        """The nodes of which the last episode has ended since the last scanner did, or so shortly before that it may not have
        believed it yet, as `note_release` of the scanner leaves them alone."""
        kinds = f"WorkflowType IN ('{Kind.FENCING.value}', '{Kind.REMEDIATION.value}')"
        ended = f"WorkflowId STARTS_WITH '{prefix}' AND {kinds} AND CloseTime >= '{(since - UNCONFIRMED).isoformat()}'"
        query = f"{ended} AND {OUTCOME.name} IN ('{Outcome.ABORTED.value}', '{Outcome.FENCED_OFF.value}')"
        runs = self._client.list_workflows(query, limit=MOST_ABORTED, rpc_timeout=QUERY_TIMEOUT)
        ids, found = list(dict.fromkeys([run.id async for run in runs])), list[HoldOff]()
        for first in range(0, len(ids), WOKEN_AT_ONCE):
            nodes = [each.removeprefix(prefix) for each in ids[first : first + WOKEN_AT_ONCE]]
            words = await asyncio.gather(*(_unless_unreadable(self._ended_for_good(prefix + each), each) for each in nodes))
            found += [
                HoldOff(node=node, reason=in_a_line(word.reason, LONGEST_HELD_OFF))
                for node, word in zip(nodes, words, strict=True)
                if word is not None
            ]
        return tuple(found)

    async def _ended_for_good(self, workflow_id: str) -> _Stopped | None:
        """Whether the last episode of that id was aborted, or has left its machine off."""
        last = await self._last_of(self._client.get_workflow_handle(workflow_id, result_type=EpisodeResult))
        result = last[1] if last is not None else None
        if result is None or result.outcome not in {Outcome.ABORTED, Outcome.FENCED_OFF}:
            return None
        return _Stopped(f"{result.message} (incident {result.incident}); {until_well_or_asked(result.node)}")

    async def request_permit(self, request: AskPermit) -> PermitAnswer:
        """No scanner is a refusal with its reason; raises Unreachable where one gives no answer."""
        asked, info = request.permit, activity.info()
        question = ScannerQuestion(id=f"{asked.incident}-{info.workflow_run_id}-{info.activity_id}", permit=asked)
        answer = await self._ask_scanner(request.cluster, question)
        reason = f"no scanner runs for cluster {request.cluster!r}: start it with `nodewarden scan start`"
        return answer.permit or PermitAnswer(decision=PermitDecision.REFUSED, reason=reason)

    async def ask_portion(self, request: AskPortion) -> PortionAnswer:
        """As `request_permit`. Asked again, the same question is answered as before."""
        asked = request.portion
        question = ScannerQuestion(id=f"{asked.incident}-{asked.number}", portion=asked)
        answer = await self._ask_scanner(request.cluster, question)
        return answer.portion or PortionAnswer(problem=f"no scanner runs for cluster {request.cluster!r}")

    async def _ask_scanner(self, cluster: str, question: ScannerQuestion) -> ScannerAnswer:
        """An empty answer where no scanner of ours runs. Why not by an update: `workflows/scanner/answers.py`."""
        scanner = self._client.get_workflow_handle(scanner_id(cluster))
        try:
            async with asyncio.timeout(ANSWERED_WITHIN.total_seconds()):
                await scanner.signal("ask", question, rpc_timeout=QUERY_TIMEOUT)
                pauses = chain(FIRST_PAUSES, repeat(1.0))
                answer = ScannerAnswer()
                while answer == ScannerAnswer():
                    await asyncio.sleep(next(pauses))
                    async with self._reads[cluster]:
                        answer = await self._ours.query(
                            scanner.id, "answer", question, answer=ScannerAnswer, within=QUERY_TIMEOUT
                        )
                return answer
        except (WorkflowQueryRejectedError, NotOurs):
            return ScannerAnswer()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return ScannerAnswer()
            why = silent_scanner(cluster) if is_silent(error) else f"the scanner can't be asked: {error.message}"
            raise failure(ErrorType.UNREACHABLE, why) from error
        except TimeoutError as error:
            raise failure(ErrorType.UNREACHABLE, silent_scanner(cluster)) from error
        except WorkflowQueryFailedError as error:
            raise failure(ErrorType.UNREACHABLE, f"the scanner gives no answer: {error}") from error


def _require_recent(decided: datetime | None) -> None:
    started = activity.info().started_time  # also by Temporal's clock
    if decided is not None and started - decided > OPENED_WITHIN:
        raise failure(ErrorType.EXPIRED, f"not opened: it was decided at {decided.isoformat()}, too long ago")


async def _unless_unreadable(word: Awaitable[_Stopped | None], node: str) -> _Stopped | None:
    """What people had said. What can't be read, as where its key is gone, may say that a person has the machine in hand (S20,
    S44); no other node waits for it. Raises what Temporal answers."""
    try:
        return await word
    except TemporalError:
        raise
    except Exception as error:  # noqa: BLE001 - keys and types fail each in a way of its own
        said = f"whether a person held the last episode of {node} can't be read: {error}"
        activity.logger.warning("%s", said)
        return _Stopped(f"{said}; {until_well_or_asked(node, once=False)}")


async def _incident_of(episode: WorkflowExecution) -> str:
    """As its memo says; "" where that says none, or can't be read: then it is another one than ours, and counts (S14)."""
    try:
        return str((await episode.memo()).get("incident", ""))
    except Exception as error:  # noqa: BLE001 - whatever a stranger, or a lost key, has left there
        activity.logger.warning("the memo of %s can't be read: %s", episode.id, error)
        return ""


def _prefix(cluster: str) -> str:
    """Of the ids of its episodes, for a query."""
    if "'" in cluster:
        raise failure(ErrorType.INVALID_CONFIG, f"cluster: expected a name without quotes, got {cluster!r}")
    return episode_id(cluster, "")


async def _set_by(run: WorkflowExecution) -> tuple[Pauses, ClusterModes | None, ModeChanges]:
    """What people had set when that run of a scanner ended."""
    return (
        await run.memo_value(PAUSES_MEMO, default=(), type_hint=Pauses),
        await run.memo_value(MODES_MEMO, default=None, type_hint=ClusterModes),
        await run.memo_value(MODE_CHANGES_MEMO, default=(), type_hint=ModeChanges),
    )


async def _last_that_knew(lives: Sequence[WorkflowExecution]) -> WorkflowExecution | None:
    """Of the runs of a scanner, the last one first, the first that had taken over what those before it knew: one that was reset,
    or started, and ended at once had not. The last one where none says so."""
    for number, run in enumerate(lives):
        knew, before = await run.memo_value(TOOK_OVER_MEMO, default="", type_hint=str), lives[number + 1 : number + 2]
        goes_on = [each.run_id for each in before if each.status is WorkflowExecutionStatus.CONTINUED_AS_NEW]
        if knew and knew in {run.run_id, *goes_on}:
            return run
    return lives[0] if lives else None
