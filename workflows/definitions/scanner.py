"""The scanner of one cluster: awaits the next report, decides which nodes may be disrupted, reserves their permits, opens their
episodes, notifies episodes and people.

One per cluster (its workflow id is `scanner/<cluster>`, its claim on the cluster a Lease), and the only grantor of permits. What
it remembers is one `ScannerState` (`workflows/scanner/state.py`): each step changes it in place, and the next history begins
with it. Openings, descriptions and notifications run beside the long poll, so that no deadline waits for them; episodes and
people wake the scanner meanwhile, and are served from the last report.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, FailureError

from activities.contracts import metrics, search_attributes
from activities.contracts.episodes import (
    EpisodeActivities,
    FoundOpen,
    NameRequest,
    NotifyRequest,
    Opened,
    OpenOutcome,
    OpenRequest,
)
from activities.contracts.preservation import PreservationStarts, PreserveRequest
from activities.contracts.scan import OpenEpisode, RepetitionActivities, RepetitionRequest, ScanActivities, ScanRequest
from activities.errors import error_message
from policy.episode.decisions import Decision, DecisionKind
from policy.episode.messages import FencingInput, RemediationInput, episode_id, scanner_id
from policy.episode.modes import MODES_MEMO, REPAIRS, UNSET, ClusterModes, ModeRule
from policy.episode.operator_commands import CIRCUIT_BREAKER, NodeActionSpec, Verb
from policy.episode.permits import (
    PermitAnswer,
    PermitDecision,
    PermitQuestions,
    PermitRequest,
    PermitState,
    PortionAnswer,
    PortionRequest,
    Release,
    portion_of,
)
from policy.history.spells import ScannerSpells
from policy.objects.scopes import CLUSTER
from policy.scan import pauses, repeat_alarm
from policy.scan.admission import Refused, admit, orphans
from policy.scan.pauses import PAUSES_MEMO, Pause, Pauses
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.readiness import another_cluster
from policy.scan.report_builder import plainly_sick, stamp_of
from policy.scan.scan_report import MAXIMUM_SEEN, ScanReport
from policy.values.display_text import some_of, without_calls
from policy.values.mode import Mode, read_mode
from policy.values.times import format_duration
from workflows.episode.attestation import Command, refused, require_future, require_name_and_reason, verified_command
from workflows.kit import continuation, options
from workflows.kit.interrupts import never_began
from workflows.kit.messages import (
    ModeRequest,
    PauseRequest,
    ScannerResult,
    ScannerStatus,
    StopRequest,
    UnpauseRequest,
    invalid_input,
)
from workflows.scanner import backoff
from workflows.scanner.background_tasks import BackgroundTasks, CoalescedTask
from workflows.scanner.permits import LIST_LAG, Holders, Permits
from workflows.scanner.spells import MOST_SHOWN, Spells
from workflows.scanner.state import PreservationNotice, ScannerInput, ScannerState

ANSWER_PATIENCE = timedelta(seconds=15)
"""How long a person's request waits for a report that can answer it."""
PAUSE_AFTER_FAILURE = timedelta(seconds=5)
SOONEST = timedelta(milliseconds=100)
"""Between two looks at a node that has waited for long enough and can't be admitted for another reason."""
OUTDATED = timedelta(seconds=2)
"""How long the running scan shows people other episodes and refusals than there are: mostly it is answered before that."""
PRESERVE_AGAIN = timedelta(minutes=1)
"""What a preservation was notified of is repeated so often, in case that an episode which should have acted never learned it."""
MOST_DECISIONS = 1000
"""Records that wait for a scan; of more the oldest go."""
MOST_NAMED = 20
"""Nodes of a command in its record, and in its answer those where an act may be under way."""
HASTY, HASTY_IN_A_ROW, BREATH = timedelta(milliseconds=200), 20, timedelta(seconds=1)
AS_FOUND = ""
"""The stamp of an episode that was notified of nothing yet: that its node is sick it knows."""


@dataclass(slots=True)
class _Poll:
    """One that is under way."""

    request: ScanRequest
    began: datetime
    scan: workflow.ActivityHandle[ScanReport]


@workflow.defn(name="HealthScanner")
class HealthScanner:
    """See the module."""

    @workflow.init
    def __init__(self, request: ScannerInput) -> None:
        self._input = request
        state = request.state or ScannerState(started=workflow.now(), pauses=request.pauses, modes=request.modes)
        self._state = state
        state.holder = state.holder or request.holder
        self._permits = Permits(request, state)
        self._holders = Holders(request, state)
        self._background = BackgroundTasks()
        self._notifying = CoalescedTask(self._background, self._notify_episodes)
        self._spells = Spells(request, state, self._background)
        # What is under way, and what is shown of it. A new history begins without any of it.
        self._scans_before = state.scans
        self._took_over = request.state is not None
        """Whether what the last scanner had set is known: once, since people may take it back from then on (S44, S52)."""
        self._stop: StopRequest | None = None
        self._changed = False
        """Whether another node may be admitted since the last decision."""
        self._due: datetime | None = None
        """When a candidate that waits for nothing but its time may be admitted, or a pause ends."""
        self._refusals: tuple[Refused, ...] = ()
        self._poll: _Poll | None = None
        self._received_at: datetime | None = None
        """When the last report came in; None: there is none to act on, since the last scan failed, or its report was too old or
        was made under other modes."""
        self._true_at: datetime | None = None
        """The moment that the last report describes."""
        self._hasty = 0
        self._asking: list[str] = []
        """The nodes of episodes that wait for an answer which only a report can give."""
        self._asked_with = frozenset[str]()
        self._opening: set[str] = set()
        self._describing = False
        self._nameless = self._scan_problem = self._open_problem = self._preservation_problem = ""

    # The story ------------------------------------------------------------------------------------------------------

    @workflow.run
    async def run(self, request: ScannerInput) -> ScannerResult:
        self._check_identity(request)
        # What is carried over is as old as this history, and no report of its first life is left where that was reset to its
        # very beginning; a later point shows in the random seed (S14).
        if workflow.now() - workflow.info().workflow_start_time > LIST_LAG:
            self._holders.forget()
        workflow.register_random_seed_callback(lambda _: self._holders.forget())
        workflow.upsert_search_attributes(
            [search_attributes.CLUSTER.value_set(request.cluster), search_attributes.KIND.value_set("HealthScanner")]
        )
        scanning = asyncio.create_task(self._scan())
        try:
            await asyncio.shield(scanning)
        except asyncio.CancelledError:
            self._take_stop(StopRequest(who="Temporal", reason="the workflow was cancelled"))
            await scanning
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self._stop is None:
            # Else the next history would have the memo that this one began with: pauses and rules of modes that were set since
            # would be lost with the scanner (S44, S52).
            continuation.go_on(self._carried(), memo=workflow.memo())
        await self._give_back_lease()
        return ScannerResult(
            cluster=request.cluster,
            stopped_by=self._stop.by,
            reason=self._stop.reason,
            scans=self._state.scans,
            opened=self._state.opened,
        )

    async def _scan(self) -> None:
        """Scan after scan, until it is stopped or the history has grown long; then until all that was begun has ended."""
        await self._learn_our_name()
        while self._stop is None and not continuation.roll_is_due(may_move=self._state.scans > self._scans_before):
            report = await self._next_report()
            if report is not None:
                await self._holders.rebuild(report)
                if (found := self._holders.found) is not None:
                    await self._take_over(found)
                # First: a machine that is to be preserved has its episode, and that its node, before any node is disrupted.
                if self._is_young_enough() and self._stop is None:
                    await self._begin_preservations(report)
                if self._is_young_enough():
                    await self._admit(report)
                self._notifying.ask()
            await self._publish_repetitions()
            self._background.reap()
            self._show()
        self._notifying.end()
        await self._spells.end(stopped=self._stop is not None)
        await self._background.ended()

    async def _take_over(self, found: FoundOpen) -> None:
        """From the last scanner what it saw and did not record; from a life of this history that a reset took back, and where we
        were handed nothing from the last one, what people had set there, as far as that lowers or stops: what raises a person
        sets anew (S44, S52)."""
        self._holders.found, now = None, workflow.now()
        # Two runs of one id are never open at once: one that ended after this history had begun was a life of this one.
        began = workflow.info().workflow_start_time + timedelta(seconds=1)
        was_reset = found.ended is not None and found.ended > began
        begins = bool(found.former) and not (was_reset or self._took_over)
        takes_pauses = was_reset or (begins and not self._input.pauses)
        standing = pauses.with_lost(self._state.pauses, found.pauses, now) if takes_pauses else self._state.pauses
        if standing != self._state.pauses:
            self._set_pauses(standing)
        if was_reset:
            self._set_modes(self._state.modes.after_reset(found.modes or REPAIRS, now))
        elif begins and self._input.modes == REPAIRS:
            self._lower_as(found)
        self._holders.was_reset = False
        if found.former:
            await self._spells.take_over(found.former)
        if found.repaired is not None and not self._state.modes.is_known:
            self._set_modes(self._state.modes.begun(repaired=found.repaired))
        self._took_over = True

    def _lower_as(self, found: FoundOpen) -> None:
        """No further than the last scanner's modes, but for what people have set since we began. A cluster that begins with
        observe is lowered already."""
        begun = self._state.modes.begun(repaired=found.repaired is not False)
        lowered = begun.after_reset(found.modes or REPAIRS, self._state.started)
        if begun.default is Mode.REPAIR and lowered.before:
            self._set_modes(replace(self._state.modes, before=lowered.before))

    async def _learn_our_name(self) -> None:
        """A scanner that was started with nothing but a cluster asks for the name of its deployment. A name that another
        deployment could have as well, such as the namespace's, would let two scanners hold one Lease (S38)."""
        while not self._state.holder and self._stop is None:
            try:
                name = await options.execute(
                    EpisodeActivities.name_deployment,
                    NameRequest(cluster=self._input.cluster),
                    options.temporal_call(),
                    "asks how the cluster Lease names us",
                )
            except ActivityError as error:
                self._nameless = f"our own name is not known: {error_message(error)}"
                self._show()
                await workflow.sleep(PAUSE_AFTER_FAILURE, summary="before our name is asked again")
                continue
            self._state.holder, self._nameless = name.holder, ""

    # Poll -----------------------------------------------------------------------------------------------------------

    async def _next_report(self) -> ScanReport | None:
        """Await the long poll; releases and requests that come meanwhile are served from the last report, at once. None: there is
        no new report to act on."""
        poll = self._poll = self._begin_poll()
        outdated: datetime | None = None
        while not poll.scan.done():
            self._background.reap()
            with contextlib.suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: poll.scan.done() or self._changed or self._background.failed,
                    timeout=self._until(self._due, outdated),
                    timeout_summary="until a remediation may be tried again, or people must be told",
                )
            self._changed = False
            if self._due is not None and self._due <= workflow.now():
                self._due = None  # what that moment meant, the next admission says
            if not poll.scan.done() and self._is_fresh() and self._state.report is not None:
                await self._admit(self._state.report)
            await self._publish_repetitions()
            shown = (poll.request.in_flight, poll.request.refusals, poll.request.halted)
            if shown == (self._in_flight(), self._refusals, self._halted()):
                outdated = None
                continue
            outdated = outdated or workflow.now() + OUTDATED
            if outdated <= workflow.now():
                poll.scan.cancel()
                break
        try:
            report = await self._take_report(poll)
        except ActivityError:
            self._show()
            await workflow.sleep(PAUSE_AFTER_FAILURE, summary="before the next scan")
            return None
        return report if self._stop is None else None

    def _until(self, *moments: datetime | None) -> timedelta | None:
        """How long until the first of them, None where there is none."""
        due = min((moment for moment in moments if moment is not None), default=None)
        return max(due - workflow.now(), SOONEST) if due is not None else None

    def _begin_poll(self) -> _Poll:
        self._state.polls += 1
        began, request = workflow.now(), self._scan_request()
        scan = workflow.start_activity_method(
            ScanActivities.observe_cluster,
            request,
            **(options.scan(self._input.cluster, self._input.wait) | {"summary": "awaits a change of the cluster"}),
        )
        return _Poll(request=request, began=began, scan=scan)

    def _scan_request(self) -> ScanRequest:
        """What the scan has to know now, to wait for what is new and to show people the rest."""
        state, report, halted = self._state, self._state.report, self._halted()
        received = report is not None and self._is_fresh() and (state.known or not report.view.synced)
        # A younger report says what is to become of a node after the end of its episode, also where nothing else has changed.
        received = received and not state.settling
        # An episode that asks would wait until a report has its node anyway.
        received = received and all(self._sees(node) or node in self._asked_with for node in self._asking)
        self._asked_with = frozenset(self._asking)
        in_hand = sorted(state.nodes_in_hand())
        held_off = sorted(set(state.held_off) - set(in_hand))
        past = sorted(state.pauses, key=lambda each: each.over_at(workflow.now()) or workflow.now())[-1:]
        halt_over = "; ".join(["new repairs begin again", *(f"the pause was {each.described(workflow.now())}" for each in past)])
        return ScanRequest(
            cluster=self._input.cluster,
            holder=state.holder,
            known_digest=report.digest if report is not None and received else "",
            resource_version=report.resource_version if report is not None else "",
            inventory=report.inventory if report is not None else 0,
            work_in_hand=bool(self._asking or state.permits or state.queue),
            # Of the nodes that are held off as many as there is room for: what becomes of them matters to us, too.
            watching=tuple(dict.fromkeys((*in_hand, *held_off[: max(MAXIMUM_SEEN - len(in_hand), 0)], *self._asking))),
            notified=tuple(state.notified.items()),
            wait=self._input.wait,
            check_versions=report.check_versions if report is not None else (),
            begun=tuple(state.preservations),
            in_flight=self._in_flight(),
            refusals=self._refusals,
            number=state.polls,
            halted=halted,
            need_person=len(state.need_person),
            permits=state.counted(),
            queued=len(state.queue),
            remind=tuple(
                OpenEpisode(node=each.node, since=(each.since or each.reminded).isoformat(), incident=each.incident)
                for each in state.reminders_due(workflow.now())
            ),
            halted_is_new=bool(halted) and halted != state.halted,
            spells=self._spells.to_be_watched(),
            halt_over=halt_over if state.halted and not halted else "",
            decisions=tuple(state.decisions),
            modes=state.modes,
        )

    def _in_flight(self) -> tuple[OpenEpisode, ...] | None:
        """The open episodes as people are shown them, None while it is not known which there are."""
        if not self._state.known:
            return None
        asking = {each.incident for each in self._state.need_person.values()}
        return tuple(
            OpenEpisode(
                node=each.node,
                since=each.granted_at.isoformat(),
                incident=each.incident,
                kind=each.kind.value,
                needs_person=each.incident in asking,
            )
            for each in self._state.permits.values()
        )

    async def _take_report(self, poll: _Poll) -> ScanReport | None:
        """The report of the scan. None: it was cut short, or has another cluster's. Raises ActivityError where the cluster can't
        be scanned, which is the problem then."""
        state = self._state
        try:
            report = await poll.scan
        except ActivityError as error:
            if isinstance(error.cause, CancelledError):
                return None
            why = "no worker of the cluster takes the scan: does one run?" if never_began(error) else error_message(error)
            self._received_at, self._scan_problem = None, f"the cluster can't be scanned: {why}"
            raise
        except asyncio.CancelledError:
            # The scan's own: it was cut short in the very task that brought its answer, and that is lost. Ours is the end.
            if not poll.scan.cancelled() or ((task := asyncio.current_task()) is not None and task.cancelling()):
                raise
            return None
        finally:
            self._poll = None
        # Only now: a scan that was cancelled may never have begun, while no worker served the cluster.
        state.halted = poll.request.halted
        state.note_reminded([each.incident for each in poll.request.remind], poll.began)
        # Two workers with different views (one is stale) would answer each other's digests at once, for ever.
        self._hasty = self._hasty + 1 if workflow.now() - poll.began < HASTY else 0
        if self._hasty >= HASTY_IN_A_ROW:
            self._hasty = 0
            await workflow.sleep(BREATH, summary="many scans in a row were answered at once")
        if report.cluster_uid not in {"", state.cluster_uid} and state.cluster_uid:
            # Workers of two clusters serve one name: it can't be known here in which of them the next act would be (S9).
            self._received_at = None
            self._scan_problem = another_cluster(self._input.cluster, report.cluster_uid, state.cluster_uid)
            await workflow.sleep(BREATH, summary="before the cluster is scanned again: another one has answered")
            return None
        # Not before: what another cluster's worker says of its stream ends no record of this one.
        taken = {each.id for each in poll.request.decisions}
        state.decisions = [each for each in state.decisions if each.id not in taken and report.streams is not False]
        if poll.request.modes != state.modes:
            return None
        self._spells.count_days(report)
        state.report, state.cluster_uid = report, state.cluster_uid or report.cluster_uid
        state.scans += 1
        # It came in after every release that has arrived, so what it says of their nodes may be believed again. It may be older
        # than the latest by a moment, and the worker's view a little older still; for marks that is what `CLOSING` is for.
        state.settling.clear()
        self._received_at, self._scan_problem = workflow.now(), ""
        # A stale one says itself why it lets no node be disrupted: by a wrong clock, say.
        answered = report.answered_at if not report.view.stale else None
        self._true_at = min(answered or self._received_at, self._received_at)
        return report

    def _is_fresh(self) -> bool:
        """Whether the last report may still be acted on: without a worker no scan fails, it is only not answered (S18)."""
        return self._received_at is not None and workflow.now() - self._received_at < self._input.wait + options.SCAN_GRACE

    def _is_young_enough(self) -> bool:
        """Whether the last report may be acted on while no scan is under way that would show a storm (S17, S18, S45). Where it
        was long on its way, or something else has taken its time since, the next scan answers at once with what is so then."""
        if self._received_at is None:
            return False
        late = workflow.now() - self._true_at if self._true_at is not None else timedelta(0)
        if late <= options.OLDEST_REPORT:
            return True
        seconds = timedelta(seconds=late // timedelta(seconds=1))
        self._received_at = None
        self._scan_problem = f"the last report came when it was {format_duration(seconds)} old: another one is asked for"
        return False

    def _sees(self, node: str) -> bool:
        """Whether the last report says in which parts of the cluster the node is, where policies ask for that."""
        report = self._state.report
        if report is None or not set(report.policies.scopes) - {CLUSTER}:
            return True
        return any(seen.node == node for seen in report.seen_nodes)

    # Preserve -------------------------------------------------------------------------------------------------------

    async def _begin_preservations(self, report: ScanReport) -> None:
        """Begin one for each machine that is not as it should be, or let the open one look again. A machine that is preserved
        as it should be is in no report, so that ten thousand of them cost nothing here. Nothing is begun on a stale view, or
        without the cluster Lease (S18, S38)."""
        if report.view.stale or not report.lease.held:
            return
        state, now = self._state, workflow.now()
        needs = {need.victim: need for need in report.preservations}
        state.preservations = {victim: notice for victim, notice in state.preservations.items() if victim in needs}
        due = [
            need
            for victim, need in needs.items()
            if (notice := state.preservations.get(victim)) is None
            or notice.stamp != need.stamp
            or now - notice.at >= PRESERVE_AGAIN
        ]
        if not due:
            return
        names = ", ".join(need.victim for need in due)
        try:
            await options.execute(
                PreservationStarts.preserve,
                PreserveRequest(cluster=self._input.cluster, holder=state.holder, needs=tuple(due)),
                options.temporal_call(),
                f"preservations: {names}"[:200],
            )
        except ActivityError as error:
            self._preservation_problem = f"preservations can't be begun: {error_message(error)}"
            return
        self._preservation_problem = ""
        for need in due:
            state.preservations[need.victim] = PreservationNotice(victim=need.victim, stamp=need.stamp, at=now)

    # Decide and reserve ---------------------------------------------------------------------------------------------

    async def _admit(self, report: ScanReport) -> None:
        """Serve the queue, then the candidates, then marks and objects that no episode owns. Permits are reserved before episodes
        open, and those open beside: all of this moment together, the oldest offence first. Once the scanner is stopped, which may
        come while the queue is served, nothing is begun."""
        state, self._changed = self._state, False
        if not state.known:
            return
        backoff.forget_what_is_over(state, report)
        await self._serve_queue(report)
        if self._stop is not None or self._received_at is None:
            return
        in_force = pauses.in_force(state.pauses, workflow.now())
        admission = admit(
            report,
            self._permits.counted(report),
            cap=self._input.concurrency,
            now=workflow.now(),
            held_off=backoff.against_candidates(state),
            power=tuple(state.power.values()),
            replaced=tuple(state.replaced),
            paused=pauses.described(in_force),
        )
        self._refusals = tuple(each for each in admission.refused if each.reason != AdmissionRefusal.IN_HAND)
        self._record_refusals(report)
        moments = (admission.again, *(each.until for each in in_force))
        self._due = min((moment for moment in moments if moment is not None), default=None)
        reserved: list[FencingInput | RemediationInput] = [
            *(self._permits.reserve_for_candidate(each) for each in admission.admitted),
            *(self._permits.reserve_for_candidate(each, state=PermitState.PARKED) for each in admission.exhausted),
        ]
        if not report.view.stale and report.lease.held:
            known = [*(permit.incident for permit in self._permits.counted(report)), *backoff.closing(state)]
            reserved += [
                self._permits.reserve_for_clean_up(orphan)
                for orphan in orphans(report.seen_nodes, known)
                if orphan.node not in state.settling and orphan.node not in state.permits
            ]
            reserved += [
                self._permits.reserve_for_left_over(each)
                for each in report.left_over
                if not backoff.is_left_alone(state, each.node) and each.node not in state.permits
            ]
        for each in reserved:
            self._record_admission(each, report)
        if reserved:
            self._opening.update(each.node for each in reserved)
            # An episode that may begin looks for itself what it finds.
            state.notified |= {each.node: AS_FOUND for each in reserved if each.permit_granted}
            self._background.begin(self._open(reserved))
        self._spells.decide(report, (*admission.refused, *admission.in_repair), self._opening)
        if not self._describing and (nodes := self._holders.to_be_described(report, self._opening)):
            self._describing = True
            self._background.begin(self._describe(nodes, report))

    # Record ---------------------------------------------------------------------------------------------------------

    def _record(self, kind: DecisionKind, **known: Any) -> None:
        """A record for the decision stream, which the next scan takes along, if there is one. known: fields of Decision."""
        state = self._state
        if state.report is not None and state.report.streams is False:
            return
        state.decided += 1
        decision = Decision(
            id=f"{workflow.info().run_id}/{state.decided}", at=workflow.now(), cluster=self._input.cluster, kind=kind, **known
        )
        state.decisions = [*state.decisions, decision][-MOST_DECISIONS:]

    def _record_refusals(self, report: ScanReport) -> None:
        """Of nodes that another rule keeps from a permit than before."""
        candidates = {each.node: each for each in report.candidates}
        for each in self._refusals:
            if self._state.refused.get(each.node) != each.reason:
                uid = candidates[each.node].uid if each.node in candidates else ""
                about = {"node": each.node, "uid": uid, "check": each.check.key, "versions": _versions(report)}
                self._record(DecisionKind.REFUSED, rule=each.reason, message=each.message, **about)
        self._state.refused = {each.node: each.reason for each in self._refusals}

    def _record_admission(self, begun: FencingInput | RemediationInput, report: ScanReport) -> None:
        counts = {"permits": self._state.counted(), "cap": self._input.cap(report)}
        check = begun.need.check if begun.need is not None else None
        self._record(
            DecisionKind.ADMITTED,
            node=begun.node,
            uid=begun.node_uid,
            workflow_id=episode_id(begun.cluster, begun.node),
            incident=begun.incident,
            act="open",
            check=check.key if check is not None else "",
            versions=_versions(report),
            numbers=counts,
            message=begun.reason,
        )

    async def _serve_queue(self, report: ScanReport) -> None:
        for waiting in tuple(self._state.queue):
            if self._stop is not None:
                return
            request = replace(waiting, ready=True)  # it may have come back since it asked; the guard counts it as a loss
            if self._permits.answer(report, request).decision is not PermitDecision.GRANTED:
                continue
            self._permits.grant(request, report)
            episode = {"node": request.node, "uid": request.node_uid, "incident": request.incident}
            self._record(DecisionKind.ADMITTED, workflow_id=request.workflow_id, act="grant", message=request.reason, **episode)
            try:
                await workflow.get_external_workflow_handle(request.workflow_id).signal("permit_granted")
            except (ApplicationError, FailureError) as error:
                workflow.logger.warning("%s no longer waits for its permit: %s", request.workflow_id, error)
                self._state.remove(request.node, request.incident)

    # Open -----------------------------------------------------------------------------------------------------------

    async def _open(self, inputs: list[FencingInput | RemediationInput]) -> None:
        request = OpenRequest(
            cluster=self._input.cluster,
            episodes=tuple(each for each in inputs if isinstance(each, FencingInput)),
            remediations=tuple(each for each in inputs if isinstance(each, RemediationInput)),
            decided=workflow.now(),
        )
        names = ", ".join(episode.node for episode in inputs)
        try:
            result = await options.execute(
                EpisodeActivities.open, request, options.temporal_call(), f"opens episodes: {names}"[:200]
            )
        except ActivityError as error:
            self._open_problem = f"episodes can't be opened: {error_message(error)}"
            self._state.described_at = None  # what became of them is unknown: the reservations count until described (S14)
            self._changed = True
        else:
            self._open_problem = ""
            for outcome in result.outcomes:
                self._take_outcome(outcome)
        finally:
            self._opening.difference_update(each.node for each in inputs)

    def _take_outcome(self, outcome: OpenOutcome) -> None:
        state, permit = self._state, self._state.permits.get(outcome.node)
        if outcome.opened in {Opened.STARTED, Opened.JOINED}:
            if permit is not None and permit.incident == outcome.incident and permit.state is PermitState.RESERVED:
                state.permits[outcome.node] = replace(permit, state=PermitState.OPEN)
            state.opened += outcome.opened is Opened.STARTED
            return
        state.remove(outcome.node, outcome.incident)
        state.notified.pop(outcome.node, None)  # another episode may have the node
        if permit is not None:
            reason, until_well = outcome.reason or outcome.holder, outcome.opened is Opened.HELD_OFF
            about = {"node": permit.node, "uid": permit.node_uid, "incident": permit.incident}
            self._record(DecisionKind.REFUSED, act="open", rule=outcome.opened.value, message=reason, **about)
            backoff.note_refused_opening(state, permit, reason, holder=outcome.holder, until_well=until_well)
        self._changed = True

    async def _describe(self, nodes: tuple[str, ...], report: ScanReport) -> None:
        try:
            changed = await self._holders.describe(nodes, report)
        finally:
            self._describing = False
        if changed or self._state.described_at is None:
            self._changed = True  # a permit has gone or changed, and another node may have its place; or one is in doubt again

    # Notify ---------------------------------------------------------------------------------------------------------

    async def _notify_episodes(self) -> None:
        """Signal the episodes of nodes that have changed since the last notification; a level, so a repetition is harmless.
        What a stale view shows is no change (S18). People are notified by the scan itself (`activities/cluster/report/`)."""
        state, report = self._state, self._state.report
        if report is None or report.view.stale:
            return
        state.notified = {node: stamp for node, stamp in state.notified.items() if node in state.permits}
        stamps = {each: stamp_of(each) for each in report.seen_nodes if each.node in state.permits}
        state.notified |= {
            each.node: stamp for each, stamp in stamps.items() if state.notified.get(each.node) == AS_FOUND and plainly_sick(each)
        }
        changed = tuple(each for each, stamp in stamps.items() if state.notified.get(each.node) != stamp)
        if not changed:
            return
        names = ", ".join(each.node for each in changed)
        try:
            result = await options.execute(
                EpisodeActivities.notify,
                NotifyRequest(cluster=self._input.cluster, seen_nodes=changed),
                options.temporal_call(),
                f"notifies episodes of their nodes: {names}"[:200],
            )
        except ActivityError as error:
            workflow.logger.warning("episodes can't be notified of their nodes: %s", error_message(error))
            return
        state.notified |= {each.node: stamps[each] for each in changed if each.node not in result.gone}
        if result.gone:
            state.described_at = None  # one has closed and its release has not arrived: describe it now
            self._changed = True

    def _note_repetition(self, release: Release) -> None:
        """A node that is fenced again and again raises an alarm, which the metric counts at once, and an Event may say."""
        state = self._state
        state.incidents, repetition = repeat_alarm.record_release(
            state.incidents, release, workflow.now(), self._input.repeat_alarm
        )
        if repetition is not None:
            state.unpublished.append(repetition)
            meter = workflow.metric_meter()
            metrics.REPEATED_FENCING.add(meter, cluster=self._input.cluster, node=repetition.node, cause=repetition.cause)

    async def _publish_repetitions(self) -> None:
        """An alarm that can't be published is left to the metric: the next repetition says it all again."""
        while self._state.unpublished:
            repetition = self._state.unpublished.pop(0)
            try:
                await options.execute(
                    RepetitionActivities.publish_repetition,
                    RepetitionRequest(cluster=self._input.cluster, repetition=repetition),
                    options.report(self._input.cluster),
                    f"{repetition.node} is fenced again and again",
                )
            except ActivityError as error:
                why = error_message(error)
                workflow.logger.warning("%s: %s; it can't be published: %s", repetition.node, repetition.message, why)

    # Requests from outside ------------------------------------------------------------------------------------------

    @workflow.query(description="Everything that is known, for people.")
    def status(self) -> ScannerStatus:
        """Everything that is known, for people."""
        state = self._state
        return ScannerStatus(
            cluster=self._input.cluster,
            holder=state.holder,
            started=state.started,
            concurrency=self._input.cap(state.report),
            scans=state.scans,
            opened=state.opened,
            report=state.report,
            permits=tuple(state.permits.values()),
            queue=tuple(state.queue),
            held_off=tuple(state.held_off.values()),
            refused=self._refusals,
            problem=self._problem(),
            stopping=self._stop is not None,
            wait=self._input.wait,
            pauses=pauses.in_force(state.pauses, workflow.now()),
            modes=state.modes,
            spells=self._spells.known(MOST_SHOWN).spells,
            open_spells=len(state.spells) + state.spells_left_out,
        )

    @workflow.query(description="What was seen and not repaired, as far as it is not recorded yet.")
    def spells(self) -> ScannerSpells:
        """What was seen and not repaired, as far as it is not recorded yet."""
        return self._spells.known()

    @workflow.query(description="Which of those incidents may disrupt their nodes now.")
    def holds_permits(self, asked: PermitQuestions) -> PermitQuestions:
        """Which of those incidents may disrupt their nodes now. Every last look asks this, one question for all looks of a
        moment. None as soon as a person has stopped the scanner, although it gives the Lease back later."""
        halted = self._halted()
        answers = tuple(self._permits.look(each, halted=halted) for each in asked.questions)
        return PermitQuestions(questions=answers, modes=self._modes_in_force())

    @workflow.query(description="Which cluster it scans: the uid of kube-system (not for people).")
    def cluster_uid(self) -> str:
        """Which cluster it scans: the uid of kube-system, "" while it is not known. Workers that serve the cluster's name ask
        it."""
        return self._state.cluster_uid

    @workflow.signal(description="An episode ended, waits for a person or is held (not for people).")
    def release(self, release: Release) -> None:
        """An episode ended, parked, or is held; that is no failure of it."""
        state = self._state
        if release.held:
            state.park(release.node, release.incident)
        else:
            backoff.note_release(state, release)
            if release.parked:
                state.park(release.node, release.incident, asks=workflow.now())
            else:
                state.remove(release.node, release.incident)
            self._note_repetition(release)
        self._changed = True

    @workflow.update(description="An episode asks for leave to disrupt its node (not for people).")
    async def request_permit(self, request: PermitRequest) -> PermitAnswer:
        """An episode started by hand asks for a permit: granted, queued, or refused with the reason."""
        if self._stop is not None:
            return PermitAnswer(decision=PermitDecision.REFUSED, reason=f"the scanner is being stopped by {self._stop.by}")
        self._asking.append(request.node)
        try:
            if not self._can_answer(request):
                # The running long poll began without this work, or without this node; the next one takes the Lease.
                self._cut_poll_short()
            # Also while another episode is being opened under the id of the one that asks, which in a moment comes to nothing.
            await workflow.wait_condition(
                lambda: self._can_answer(request) and not self._opens_another(request), timeout=ANSWER_PATIENCE
            )
        except TimeoutError:
            return PermitAnswer(decision=PermitDecision.REFUSED, reason=f"the scanner can't decide now: {self._why_not(request)}")
        else:
            if self._state.report is None or self._stop is not None:
                return PermitAnswer(decision=PermitDecision.REFUSED, reason="the scanner is being stopped")
            return self._answer(self._state.report, request)
        finally:
            self._asking.remove(request.node)
            self._changed = True

    def _answer(self, report: ScanReport, request: PermitRequest) -> PermitAnswer:
        """Decide, and carry the answer out. Only a person's request ends a hold-off (S19)."""
        ahead = sum(waiting.incident != request.incident for waiting in self._state.queue)
        answer = self._permits.answer(report, request, ahead=ahead)
        if answer.decision is not PermitDecision.REFUSED and request.by_person:
            backoff.end_by_person(self._state, request.node)
        if answer.decision is PermitDecision.GRANTED:
            self._permits.grant(request, report)
        elif answer.decision is PermitDecision.QUEUED:
            self._state.enqueue(request)
        return replace(answer, holder=self._state.holder)

    @request_permit.validator
    def _check_request_permit(self, request: PermitRequest) -> None:
        expected = episode_id(self._input.cluster, request.node)
        if request.workflow_id != expected:
            raise ValueError(f"workflow_id: expected {expected!r}, got {request.workflow_id!r}")
        if not request.incident:
            raise ValueError("incident: expected the episode's incident id, got nothing")
        if request.override not in {"", CIRCUIT_BREAKER}:
            raise ValueError(f"override: expected {CIRCUIT_BREAKER} or nothing, got another word")

    @workflow.update(description="An episode asks how many pods it may free now (not for people).")
    def hand_out(self, request: PortionRequest) -> PortionAnswer:
        """An episode asks how many pods it may free now, if the cluster limits how many go in a minute."""
        state = self._state  # no permit is needed: what the episode may free its proof says, here only how fast
        state.portions, answer = portion_of(state.portions, request, workflow.now(), used_within=options.ACT_WINDOW)
        return answer

    @hand_out.validator
    def _check_hand_out(self, request: PortionRequest) -> None:
        if request.pods < 1 or request.per_minute < 1 or not request.incident:
            raise ValueError(f"expected an incident, at least one pod and a limit of at least 1, got {request}")

    async def _verified(self, verb: Verb, command: Command, still: Callable[[Command], None], **said: Any) -> Command:
        """See `attestation.verified_command`. said: what the request says besides."""
        spec = NodeActionSpec(action=verb, node="", reason=command.reason, **said)
        return await verified_command(command, spec, cluster=self._input.cluster, still=still)

    @workflow.update(description="Stop scanning; open episodes pause before their next destructive act.")
    async def stop(self, request: StopRequest) -> str:
        """Stop scanning; open episodes pause before their next destructive act."""
        self._take_stop(await self._verified(Verb.STOP_SCAN, request, self._check_stop))
        return f"the scanner of {self._input.cluster} stops"

    @stop.validator
    def _check_stop(self, request: StopRequest) -> None:
        require_name_and_reason(request)

    @workflow.update(description="Begin nothing new and do nothing destructive until a moment, or until unpause.")
    async def pause(self, request: PauseRequest) -> str:
        """Begin nothing new and do nothing destructive until a moment, or until `unpause`. What was begun and is off is still
        freed and switched on again."""
        request = await self._verified(Verb.PAUSE, request, self._check_pause, until=request.until)
        pause = Pause(who=request.by, owner=request.owner, reason=request.reason, since=workflow.now(), until=request.until)
        former = pauses.in_force(self._state.pauses, workflow.now())
        try:
            self._set_pauses(pauses.paused(self._state.pauses, pause))
        except ValueError as error:
            raise refused(f"pause: {error}") from error
        self._record(DecisionKind.ANSWERED, act="pause", who=request.by, message=pauses.described((pause,)))
        replaced = "".join(f"; before, it was {each}" for each in former if each.owner == pause.owner)
        beside = "".join(f"; it is also {each}" for each in former if each.owner != pause.owner)
        return f"{self._input.cluster} is {pauses.described((pause,))}{replaced}{beside}{self._still_licensed()}"

    def _still_licensed(self) -> str:
        """What a person has to know of acts under way: a look before this command may have licensed one (S20)."""
        nodes = [node for node, permit in self._state.permits.items() if permit.state is not PermitState.PARKED]
        within, names = format_duration(options.ACT_WINDOW), some_of(nodes, MOST_NAMED)
        return f"; an act that was licensed before may still be done within {within}: {names}" if nodes else ""

    @pause.validator
    def _check_pause(self, request: PauseRequest) -> None:
        require_name_and_reason(request)
        require_future(request.until)
        if self._stop is not None:
            raise ValueError("pause: expected a scanner that goes on; this one is being stopped, and begins nothing")

    @workflow.update(
        description="End a pause: your own, or that of another person by name. The cluster goes on when none is left."
    )
    async def unpause(self, request: UnpauseRequest) -> str:
        """End a pause. The cluster goes on when none is left."""
        request = await self._verified(Verb.UNPAUSE, request, self._check_unpause, of=request.of)
        state, cluster, now = self._state, self._input.cluster, workflow.now()
        in_force = pauses.in_force(state.pauses, now)
        if not in_force:
            return f"{cluster} was not paused"
        try:
            ended = pauses.to_be_ended(in_force, owner=request.owner, of=request.of)
        except ValueError as error:
            raise refused(f"unpause: {error}") from error
        self._set_pauses(pauses.unpaused(state.pauses, ended, who=request.by, reason=request.reason, now=now))
        workflow.logger.info("%s ends a pause of %s: %s", request.by, cluster, request.reason)
        self._record(DecisionKind.ANSWERED, act="unpause", who=request.by, message=request.reason)
        left = pauses.in_force(state.pauses, now)
        goes_on = f"{cluster} is still {pauses.described(left)}" if left else f"{cluster} is no longer paused"
        return f"{goes_on}; you have ended: {'; '.join(map(str, ended))}"

    @unpause.validator
    def _check_unpause(self, request: UnpauseRequest) -> None:
        require_name_and_reason(request)

    def _set_pauses(self, changed: Pauses) -> None:
        """In the memo as well, where people and the next scanner find them, however this one has ended."""
        self._state.pauses = changed
        workflow.upsert_memo({PAUSES_MEMO: changed})
        self._changed = True

    @workflow.update(description="Set how far programs may go with some nodes, or with all.")
    async def set_mode(self, request: ModeRequest) -> str:
        """Set how far programs may go with some nodes, or with all. Without a rule the cluster's default holds."""
        request = await self._verified(
            Verb.SET_MODE, request, self._check_set_mode, mode=request.mode, nodes=request.nodes, selector=request.selector
        )
        try:
            self._set_modes(self._changed_modes(request))
        except ValueError as error:
            raise refused(f"mode: {error}") from error
        about = some_of(request.nodes, MOST_NAMED) or request.selector or "all nodes"
        said = {"act": Verb.SET_MODE.value, "outcome": request.mode, "message": f"{about}: {request.reason}"}
        self._record(DecisionKind.MODE_CHANGED, who=request.by, **said)
        licensed = self._still_licensed() if request.mode != Mode.REPAIR else ""
        return f"{self._input.cluster}: {self._state.modes.described(request.nodes, request.selector)}{licensed}"

    @set_mode.validator
    def _check_set_mode(self, request: ModeRequest) -> None:
        require_name_and_reason(request)
        self._changed_modes(request)

    def _changed_modes(self, request: ModeRequest) -> ClusterModes:
        """Raises ValueError where that can't be set."""
        if request.mode == UNSET:
            return self._state.modes.unruled(request.nodes, request.selector)
        mode, problem = read_mode(request.mode)
        if problem:
            raise ValueError(problem)
        rule = ModeRule(
            mode=mode,
            by=request.by,
            reason=request.reason,
            at=workflow.now(),
            nodes=request.nodes,
            selector=request.selector,
        )
        return self._state.modes.ruled(rule)

    def _modes_in_force(self) -> ClusterModes | None:
        """None while it was not found out yet with which mode this cluster begins, which licenses no program (S52). Where an
        older version has built the table, none was looked for, and the cluster is repaired as before."""
        found = self._state.modes.is_known or self._state.known
        lost = self._holders.was_reset or (not self._took_over and self._input.modes == REPAIRS)
        return self._state.modes if found and not lost else None

    def _set_modes(self, changed: ClusterModes) -> None:
        """It takes effect at once: no report that was made under the former modes is acted on (S52)."""
        before = self._state.modes
        if changed.default is not before.default or (changed.rules, changed.before) != (before.rules, before.before):
            self._received_at = None
            self._cut_poll_short()
        self._state.modes, self._changed = changed, True
        workflow.upsert_memo({MODES_MEMO: changed})

    def _take_stop(self, request: StopRequest) -> None:
        self._stop = request
        self._record(DecisionKind.ANSWERED, act="stop-scan", who=request.by, message=request.reason)
        self._cut_poll_short()
        self._changed = True

    # Small things ---------------------------------------------------------------------------------------------------

    def _check_identity(self, request: ScannerInput) -> None:
        expected = scanner_id(request.cluster)
        if not request.cluster or workflow.info().workflow_id != expected:
            raise invalid_input(f"expected an input with a cluster, run under the workflow id {expected!r}")
        if request.concurrency < 1:
            raise invalid_input(f"concurrency: expected at least 1, got {request.concurrency}")

    def _carried(self) -> ScannerInput:
        """What the next history begins with."""
        return replace(self._input, state=self._state, pauses=(), modes=REPAIRS)

    def _cut_poll_short(self) -> None:
        if self._poll is not None:
            self._poll.scan.cancel()

    def _can_answer(self, request: PermitRequest) -> bool:
        report = self._state.report
        fresh = self._state.known and self._is_fresh() and report is not None and report.lease.held
        return fresh and self._sees(request.node)

    def _opens_another(self, request: PermitRequest) -> bool:
        """Whether another episode is being opened under the id of the one that asks."""
        permit = self._state.permits.get(request.node)
        if permit is None or permit.state is not PermitState.RESERVED:
            return False
        return permit.workflow_id == request.workflow_id and permit.incident != request.incident

    def _why_not(self, request: PermitRequest) -> str:
        if self._is_fresh() and not self._sees(request.node):
            return f"no scan has seen {request.node} yet"
        if self._can_answer(request):
            return f"it is not known yet what became of opening another episode of {request.node}"
        report = self._state.report
        return self._problem() or (report.lease.problem if report else "") or "the cluster Lease is not held"

    def _problem(self) -> str:
        """What people must know of, the most urgent first; "" where nothing is wrong."""
        if self._received_at is not None and not self._is_fresh():
            return "no scan has been answered lately: does a worker serve the cluster?"
        return self._nameless or self._scan_problem or self._open_problem or self._holders.problem

    def _halted(self) -> str:
        """Why nothing is begun although a node could need it, as people are shown everywhere (S44); "" else."""
        if self._stop is not None:
            return f"the scanner was stopped by {self._stop.by}: {self._stop.reason} (`nodewarden scan start` starts it)"
        return pauses.halted(self._state.pauses, workflow.now())

    async def _give_back_lease(self) -> None:
        try:
            await options.execute(
                ScanActivities.release_lease,
                self._scan_request(),
                options.report(self._input.cluster),
                "gives the cluster Lease back",
            )
        except ActivityError as error:
            workflow.logger.warning("the cluster Lease lapses by itself: %s", error_message(error))

    def _show(self) -> None:
        state, report = self._state, self._state.report
        lines = [f"**Scanner of {self._input.cluster}**, {state.scans} scans, {state.opened} episodes opened"]
        if halted := self._halted():
            lines.append(f"* **{halted}**")
        if problem := self._problem() or self._preservation_problem:
            lines.append(f"* **problem: {problem}**")
        if report is not None:
            lease = (report.lease.problem or "held") if report.lease.needed else "not needed"
            lines.append(f"* {report.inventory} nodes; view: {report.view.stale or 'live'}; cluster Lease: {lease}")
            lines += [
                f"* {check.ref.key}: {check.healthy}/{check.total} healthy; {check.error or check.message}"
                for check in report.checks
            ]
        lines += [f"* `{each.node}`: {each.state.value}, incident {each.incident}" for each in state.permits.values()]
        workflow.set_current_details("\n".join(map(without_calls, lines)))  # it is shown as Markdown (S50)


def _versions(report: ScanReport) -> dict[str, str]:
    """How far the objects of a report had been followed."""
    return {"Node": report.resource_version} | {each.dialect.value: each.version for each in report.check_versions}
