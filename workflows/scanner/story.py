"""A scanner from top to bottom: polls for the next report, decides which nodes may be disrupted, reserves their permits, opens
their episodes, notifies episodes and people; `workflows/definitions/scanner.py` is the thin workflow round it.

What it remembers is one `ScannerState`, which each step changes in place; what people have commanded is `commands.py`, and who
waits for a permit `queue.py`. Openings, descriptions and notifications run beside the long poll, so that no deadline waits for
them; episodes and people wake the scanner meanwhile, and are served from the last report.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, CancelledError

from activities.contracts import metrics
from activities.contracts.episodes import (
    TOOK_OVER_MEMO,
    EpisodeActivities,
    NameRequest,
    NotifyRequest,
    Opened,
    OpenOutcome,
    OpenRequest,
)
from activities.contracts.preservation import PreservationStarts, PreserveRequest
from activities.contracts.scan import OpenEpisode, RepetitionActivities, RepetitionRequest, ScanActivities, ScanRequest
from activities.errors import error_message
from policy.episode.decisions import DecisionKind
from policy.episode.messages import FencingInput, RemediationInput, episode_id
from policy.episode.permits import PermitQuestions, PermitState, Release
from policy.scan import pauses, repeat_alarm
from policy.scan.admission import Refused, admit, orphans
from policy.scan.obstacles import another_cluster
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.report_builder import plainly_sick, stamp_of
from policy.scan.scan_report import MAXIMUM_SEEN, ScanReport
from policy.values.display_text import without_calls
from policy.values.times import written
from workflows.kit import continuation, options
from workflows.kit.interrupts import never_began
from workflows.kit.messages import ScannerStatus
from workflows.scanner import hold_offs
from workflows.scanner.background_tasks import BackgroundTasks, CoalescedTask, is_cut_off
from workflows.scanner.commands import Commands
from workflows.scanner.permits import LIST_LAG, PAUSE_AFTER_FAILURE, Holders, Permits
from workflows.scanner.queue import PermitQueue
from workflows.scanner.releases import Releases
from workflows.scanner.spells import MOST_SHOWN, Spells
from workflows.scanner.state import PreservationNotice, ScannerInput, ScannerState, Underway

SOONEST = timedelta(milliseconds=100)
"""Between two looks at a node that has waited for long enough and can't be admitted for another reason."""
OUTDATED = timedelta(seconds=2)
"""How long the running scan shows people other episodes and refusals than there are: mostly it is answered before that."""
PRESERVE_AGAIN = timedelta(minutes=1)
"""What a preservation was notified of is repeated so often, in case that an episode which should have acted never learned it."""
WAKE_AFTER = timedelta(seconds=10)
"""A build that is made current is known to all of Temporal by then."""
AT_REST = 5
"""Times `scan.wait`: so long a scan takes where the last one brought nothing new and nothing is in hand, since each return of
one is six events and 5 KB of history."""
NOT_TAKEN_OVER = "pauses and modes that were set before this run are not taken over yet; nothing is begun until they are"
HASTY, HASTY_IN_A_ROW, BREATH = timedelta(milliseconds=200), 20, timedelta(seconds=1)
LOOKS_AFTER_RESET = "a-scan-that-was-under-way-at-a-reset-is-cut-short"
"""Histories of builds that waited for it, where nothing changed for minutes, go on so."""
LEFT_UNANSWERED = "what-needs-a-scan-is-left-to-the-next-history"
"""Histories of builds that waited for it go on so."""
AS_FOUND = ""
"""The stamp of an episode that was notified of nothing yet: that its node is sick it knows."""


@dataclass(frozen=True, slots=True)
class Poll:
    """A scan that waits for a change."""

    request: ScanRequest
    began: datetime
    answer: workflow.ActivityHandle[ScanReport]
    rests: bool


class ScannerStory:
    """One history of one scanner."""

    def __init__(self, request: ScannerInput, state: ScannerState, underway: Underway, commands: Commands) -> None:
        self._scanner = request
        self._state = state
        self._underway = underway
        self._commands = commands
        self.permits = Permits(request, state)
        self.queue = PermitQueue(request, state, underway, self.permits, self._problem)
        self._holders = Holders(request, state)
        self._background = BackgroundTasks()
        self._notifying = CoalescedTask(self._background, self._notify_episodes, repeated=True)
        self.spells = Spells(request, state, self._background)
        self._scans_before = state.scans
        self._due: datetime | None = None
        """When a candidate that waits for nothing but its time may be admitted, or a pause ends."""
        self._refusals: tuple[Refused, ...] = ()
        self._brought_nothing = False
        """Whether the last scan has taken its whole time."""
        self._longest_wait = request.wait
        """Of the scans since the last report."""
        self._hasty = 0
        self._watched = frozenset[str]()
        """The nodes that the last scan was to watch."""
        self._opening: set[str] = set()
        self.releases = Releases(state, self._holders, self._background, opening=self._opening, believe=self._take_release)
        self._describing = self._looks_after_reset = False
        self._nameless = self._open_problem = self._preservation_problem = ""

    # The story ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Scan after scan, until it is stopped or the history has grown long; then until all that was begun has ended."""
        # What is carried over is as old as this history, and no report of its first life is left where that was reset to its
        # very beginning; a later point shows in the random seed (S14).
        if workflow.now() - workflow.info().workflow_start_time > LIST_LAG or continuation.is_retry():
            self._holders.forget()
        self._holders.began_as = workflow.info().original_execution_run_id
        self._looks_after_reset, loop = workflow.patched(LOOKS_AFTER_RESET), asyncio.get_running_loop()

        def forget(_seed: int) -> None:
            self._holders.forget()
            if self._looks_after_reset:
                loop.call_soon(bool)  # the SDK looks at no condition in a task that brings nothing to do

        workflow.register_random_seed_callback(forget)
        await self._learn_our_name()
        self._background.begin(self._wake_under_another_build(), repeated=True)
        self.releases.confirm()
        while self._underway.stop is None and not continuation.roll_is_due(may_move=self._state.scans > self._scans_before):
            poll = self._begin_poll()
            await self._serve_during(poll)
            report = await self._report_of(poll)
            if report is not None:
                await self._holders.rebuild(report)
                await self._take_over()
                # First: a machine that is to be preserved has its episode, and that its node, before any node is disrupted.
                self._underway.drop_late_report()
                if self._underway.may_begin:
                    await self._begin_preservations(report)
                self._underway.drop_late_report()
                if self._underway.may_begin:
                    await self._admit(report)
                self._notifying.ask()
            await self._publish_repetitions()
            self._background.reap()
            self._show()
        # No handler waits from here on for what only a scan brings: where episodes go on asking, one would always be under way,
        # and the next history never begin (S38).
        self._underway.leaves = self._underway.stop is None and workflow.patched(LEFT_UNANSWERED)
        self._notifying.end()
        self.releases.end()
        await self.spells.end(stopped=self._underway.stop is not None)
        describing = self._describing
        if self._underway.stop is None and self._background.cut_off() and describing:
            self._state.described_at = None  # what it was to find out is not known
        await self._background.ended()

    async def _take_over(self) -> None:
        """From the last scanner, or from a life of this history that a reset took back."""
        found, self._holders.found = self._holders.found, None
        if found is None:
            return
        self._commands.take_over(found)
        self._holders.was_reset = False
        if found.former:
            await self.spells.take_over(found.former)
        self.spells.leave_alone(found.left_alone)
        if not self._holders.was_reset and workflow.patched(TOOK_OVER_MEMO):
            workflow.upsert_memo({TOOK_OVER_MEMO: workflow.info().run_id})

    async def _learn_our_name(self) -> None:
        """A scanner that was started with nothing but a cluster asks for the name of its deployment. A name that another
        deployment could have as well, such as the namespace's, would let two scanners hold one Lease (S38)."""
        while not self._state.holder and self._underway.stop is None:
            try:
                name = await options.execute(
                    EpisodeActivities.name_deployment,
                    NameRequest(cluster=self._scanner.cluster),
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

    def _begin_poll(self) -> Poll:
        self._state.polls += 1
        request = self._scan_request()
        if rests := self._may_rest(request):
            request = replace(request, wait=AT_REST * request.wait, rests=True)
        self._brought_nothing, self._longest_wait = False, max(self._longest_wait, request.wait)
        call = options.scan(self._scanner.cluster, request.wait, rests=rests) | {"summary": "awaits a change of the cluster"}
        scan = self._underway.scan = workflow.start_activity_method(ScanActivities.observe_cluster, request, **call)
        self._watched = frozenset(request.watching)
        return Poll(request, workflow.now(), scan, rests)

    async def _serve_during(self, poll: Poll) -> None:
        """Until the poll is answered: releases and requests that come are served from the last report, at once. A poll that shows
        people what is no longer so is cut short."""
        scan, request = poll.answer, poll.request
        outdated: datetime | None = None

        def is_of_a_former_life() -> bool:
            """A reset has made us forget what it waits for a change of: the next one answers at once (S14, S44)."""
            return self._looks_after_reset and bool(request.known_digest) and not self._state.known

        while not scan.done():
            self._background.reap()
            due = min((moment for moment in (self._due, outdated) if moment is not None), default=None)
            with contextlib.suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: scan.done() or self._underway.changed or self._background.failed or is_of_a_former_life(),
                    timeout=max(due - workflow.now(), SOONEST) if due is not None else None,
                    timeout_summary="until a remediation may be tried again, or people must be told",
                )
            if (poll.rests or is_of_a_former_life()) and not scan.done():
                # Where the last report is too old to act on by now (S18), the next scan answers at once.
                scan.cancel()
                return
            self._underway.changed = False
            if self._due is not None and self._due <= workflow.now():
                self._due = None  # what that moment meant, the next admission says
            if not scan.done() and self._underway.is_fresh and self._state.report is not None:
                await self._admit(self._state.report)
            await self._publish_repetitions()
            shown = (request.in_flight, request.refusals, request.halted)
            if shown == (self._in_flight(), self._refusals, self._commands.halted):
                outdated = None
                continue
            outdated = outdated or workflow.now() + OUTDATED
            if outdated <= workflow.now():
                scan.cancel()
                return

    def _scan_request(self) -> ScanRequest:
        """What the scan has to know now, to wait for what is new and to show people the rest."""
        state, report, halted = self._state, self._state.report, self._commands.halted
        received = report is not None and self._underway.is_fresh and (state.known or not report.view.synced)
        # A younger report says what is to become of a node after the end of its episode, also where nothing else has changed.
        received = received and not state.settling
        # An episode that asks would wait until a report has its node anyway.
        received = received and all(self.queue.sees(node) or node in self._watched for node in self.queue.asking)
        in_hand = sorted(state.nodes_in_hand())
        held_off, room = sorted(set(state.held_off) - set(in_hand)), max(MAXIMUM_SEEN - len(in_hand), 0)
        if len(held_off) > room:  # in turns, a minute each: one that is well is left alone no longer
            first = int(workflow.now().timestamp() // 60) * room % len(held_off)
            held_off = held_off[first:] + held_off[:first]
        past = sorted(state.pauses, key=lambda each: each.over_at(workflow.now()) or workflow.now())[-1:]
        halt_over = "; ".join(["new repairs begin again", *(f"the pause was {each.described(workflow.now())}" for each in past)])
        return ScanRequest(
            cluster=self._scanner.cluster,
            holder=state.holder,
            known_digest=report.digest if report is not None and received else "",
            resource_version=report.resource_version if report is not None else "",
            inventory=report.inventory if report is not None else 0,
            work_in_hand=bool(self.queue.asking or state.permits or state.queue),
            # Of the nodes that are held off as many as there is room for: what becomes of them matters to us, too.
            watching=tuple(dict.fromkeys((*in_hand, *held_off[:room], *self.queue.asking))),
            # The report has those first of which no episode was notified yet: one that asks has to be among them.
            notified=tuple(each for each in state.notified.items() if each[0] not in self.queue.asking),
            wait=self._scanner.wait,
            check_versions=report.check_versions if report is not None else (),
            begun=tuple(state.preservations),
            in_flight=self._in_flight(),
            refusals=self._refusals,
            number=state.polls,
            halted=halted,
            need_person=len(state.need_person),
            permits=state.in_use(),
            queued=len(state.queue),
            remind=tuple(
                OpenEpisode(node=each.node, since=(each.since or each.reminded).isoformat(), incident=each.incident)
                for each in state.reminders_due(workflow.now())
            ),
            halted_is_new=bool(halted) and halted != state.halted,
            spells=self.spells.to_be_watched(),
            halt_over=halt_over if state.halted and not halted else "",
            decisions=tuple(state.decisions),
            modes=state.modes,
        )

    def _may_rest(self, request: ScanRequest) -> bool:
        """Whether nothing waits for the return of that scan: what changes ends it, and so does all that wakes the scanner. Only
        where the cluster Lease is ours or not needed, since by that the poll is watched (`ScanRequest.rests`)."""
        in_hand = request.work_in_hand or request.watching or request.begun or request.spells or request.decisions
        report, known = self._state.report, self._state.known and bool(request.known_digest)
        unwatched = report is None or (report.lease.needed and not report.lease.held)
        waits = report is None or report.view.stale or unwatched or report.candidates or in_hand or request.remind
        return self._brought_nothing and known and not waits

    def _in_flight(self) -> tuple[OpenEpisode, ...] | None:
        """The open episodes as people are shown them, None while it is not known which there are."""
        if not self._state.known:
            return None
        asking = {each.incident for each in self._state.need_person.values()}
        queued = {each.incident for each in self._state.queue}
        return tuple(
            OpenEpisode(
                node=each.node,
                since=each.granted_at.isoformat(),
                incident=each.incident,
                kind=each.kind.value,
                needs_person=each.incident in asking,
                queued=each.incident in queued,
            )
            for each in self._state.permits.values()
        )

    async def _report_of(self, poll: Poll) -> ScanReport | None:
        """None: there is none to act on, since the poll was cut short, has failed, or was answered by another cluster."""
        state, request = self._state, poll.request
        try:
            report = await poll.answer
        except ActivityError as error:
            if isinstance(error.cause, CancelledError):
                return None
            self._underway.drop_report(
                f"no worker has taken the scan that was asked for at {written(poll.began)}: does one serve the cluster?"
                if never_began(error)
                else f"the cluster can't be scanned: {error_message(error)}"
            )
            self._show()
            await workflow.sleep(PAUSE_AFTER_FAILURE, summary="before the next scan")
            return None
        except asyncio.CancelledError:
            # The scan's own: it was cut short in the very task that brought its answer, and that is lost. Ours is the end.
            if not poll.answer.cancelled() or ((task := asyncio.current_task()) is not None and task.cancelling()):
                raise
            return None
        finally:
            self._underway.scan = None
        # Only now: a scan that was cancelled may never have begun, while no worker served the cluster.
        state.halted = request.halted
        state.note_reminded([each.incident for each in request.remind], poll.began)
        # Two workers with different views (one is stale) would answer each other's digests at once, for ever.
        self._hasty = self._hasty + 1 if workflow.now() - poll.began < HASTY else 0
        if self._hasty >= HASTY_IN_A_ROW:
            self._hasty = 0
            await workflow.sleep(BREATH, summary="many scans in a row were answered at once")
        if report.cluster_uid not in {"", state.cluster_uid} and state.cluster_uid:
            # Workers of two clusters serve one name: it can't be known here in which of them the next act would be (S9).
            self._underway.drop_report(another_cluster(self._scanner.cluster, report.cluster_uid, state.cluster_uid))
            await workflow.sleep(BREATH, summary="before the cluster is scanned again: another one has answered")
            return None
        # Not before: what another cluster's worker says of its stream ends no record of this one.
        taken = {each.id for each in request.decisions}
        state.decisions = [each for each in state.decisions if each.id not in taken and report.streams is not False]
        if request.modes != state.modes:
            return None
        self.spells.count_days(report, self._longest_wait)
        self._brought_nothing, self._longest_wait = report.digest == request.known_digest, self._scanner.wait
        state.report, state.cluster_uid = report, state.cluster_uid or report.cluster_uid
        state.scans += 1
        # It came in after every release that has arrived, so what it says of their nodes may be believed again. It may be older
        # than the latest by a moment, and the worker's view a little older still; for marks that is what `CLOSING` is for.
        state.settling.clear()
        self._underway.take_report(report)
        return report if self._underway.stop is None else None

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
                PreserveRequest(cluster=self._scanner.cluster, holder=state.holder, needs=tuple(due), decided=now),
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
        state, self._underway.changed = self._state, False
        if not state.known:
            return
        hold_offs.forget_what_is_over(state, report)
        await self.queue.serve(report)
        if not self._underway.may_begin:
            return
        in_force = pauses.in_force(state.pauses, workflow.now())
        admission = admit(
            report,
            self.permits.counted(report),
            cap=self._scanner.cap,
            now=workflow.now(),
            held_off=hold_offs.against_candidates(state),
            power=tuple(state.power.values()),
            replaced=tuple(state.replaced),
            paused=pauses.of_all(in_force),
        )
        self._refusals = tuple(each for each in admission.refused if each.reason != AdmissionRefusal.IN_HAND)
        self._record_refusals(report)
        moments = (admission.again, *(each.until for each in in_force))
        self._due = min((moment for moment in moments if moment is not None), default=None)
        reserved: list[FencingInput | RemediationInput] = [
            *(self.permits.reserve_for_candidate(each) for each in admission.admitted),
            *(self.permits.reserve_for_candidate(each, state=PermitState.PARKED) for each in admission.exhausted),
        ]
        if not report.view.stale and report.lease.held:
            known = [*(permit.incident for permit in self.permits.counted(report)), *hold_offs.just_ended(state)]
            reserved += [
                self.permits.reserve_for_clean_up(orphan)
                for orphan in orphans(report.seen_nodes, known)
                if orphan.node not in state.settling and orphan.node not in state.permits
            ]
            reserved += [
                self.permits.reserve_for_left_over(each)
                for each in report.left_over
                if not hold_offs.is_left_alone(state, each.node) and each.node not in state.permits
            ]
        for each in reserved:
            self._record_admission(each, report)
        if reserved:
            self._opening.update(each.node for each in reserved)
            # An episode that may begin looks for itself what it finds.
            state.notified |= {each.node: AS_FOUND for each in reserved if each.permit_granted}
            self._background.begin(self._open(reserved))
        self.spells.decide(report, (*admission.refused, *admission.in_repair), self._opening)
        if not self._describing and (nodes := self._holders.to_be_described(report, self._opening)):
            self._describing = True
            self._background.begin(self._describe(nodes, report), repeated=True)

    # Open -----------------------------------------------------------------------------------------------------------

    async def _open(self, inputs: list[FencingInput | RemediationInput]) -> None:
        request = OpenRequest(
            cluster=self._scanner.cluster,
            episodes=tuple(each for each in inputs if isinstance(each, FencingInput)),
            remediations=tuple(each for each in inputs if isinstance(each, RemediationInput)),
            decided=workflow.now(),
            unasked=bool(self._state.former_run),
        )
        names = ", ".join(episode.node for episode in inputs)
        try:
            result = await options.execute(
                EpisodeActivities.open, request, options.temporal_call(), f"opens episodes: {names}"[:200]
            )
        except ActivityError as error:
            self._open_problem = f"episodes can't be opened: {error_message(error)}"
            self._state.described_at = None  # what became of them is unknown: the reservations count until described (S14)
            self._underway.changed = True
        else:
            self._open_problem = ""
            for outcome in result.outcomes:
                self._take_outcome(outcome)
        finally:
            self._opening.difference_update(each.node for each in inputs)
        self.releases.confirm()

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
            about = {"node": permit.node, "uid": permit.node_uid, "incident": permit.incident, "rule": outcome.opened.value}
            reason = outcome.reason or outcome.holder
            state.record(self._scanner.cluster, DecisionKind.REFUSED, act="open", message=reason, **about)
            hold_offs.note_refused_opening(state, permit, outcome)
        self._underway.changed = True

    async def _describe(self, nodes: tuple[str, ...], report: ScanReport) -> None:
        try:
            changed = await self._holders.describe(nodes, report)
        finally:
            self._describing = False
        if changed or self._state.described_at is None:
            # A permit has gone or changed, and another node may have its place; or one is in doubt again.
            self._underway.changed = True

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
                NotifyRequest(cluster=self._scanner.cluster, seen_nodes=changed),
                options.temporal_call(),
                f"notifies episodes of their nodes: {names}"[:200],
            )
        except ActivityError as error:
            if not is_cut_off(error):
                workflow.logger.warning("episodes can't be notified of their nodes: %s", error_message(error))
            return
        state.notified |= {each.node: stamps[each] for each in changed if each.node not in result.gone}
        if result.gone:
            state.described_at = None  # one has closed and its release has not arrived: describe it now
            self._underway.changed = True

    async def _wake_under_another_build(self) -> None:
        """Temporal brought us to another build, and tells an episode that rests of it only when something wakes that. Where it
        can't be done now, our next history does it."""
        state, build = self._state, continuation.build()
        if state.build in {"", build}:
            state.build = build
            return
        with contextlib.suppress(asyncio.TimeoutError):  # all of Temporal has to know which one is current
            await workflow.wait_condition(
                lambda: self._underway.stop is not None, timeout=WAKE_AFTER, timeout_summary="before episodes that rest are woken"
            )
        try:
            await options.execute(
                EpisodeActivities.notify,
                NotifyRequest(cluster=self._scanner.cluster, build_changed=True),
                options.temporal_call(),
                f"wakes the episodes that rest: build {build} is current",
            )
        except ActivityError as error:
            workflow.logger.warning("episodes that rest can't be woken under another build: %s", error_message(error))
        else:
            state.build = build

    def _note_repetition(self, release: Release) -> None:
        """A node that is fenced again and again raises an alarm, which the metric counts at once, and an Event may say."""
        state = self._state
        state.incidents, repetition = repeat_alarm.record_release(
            state.incidents, release, workflow.now(), self._scanner.repeat_alarm
        )
        if repetition is not None:
            state.unpublished.append(repetition)
            meter = workflow.metric_meter()
            metrics.REPEATED_FENCING.add(meter, cluster=self._scanner.cluster, node=repetition.node, cause=repetition.cause)

    async def _publish_repetitions(self) -> None:
        """An alarm that can't be published is left to the metric: the next repetition says it all again."""
        while self._state.unpublished:
            repetition = self._state.unpublished.pop(0)
            try:
                await options.execute(
                    RepetitionActivities.publish_repetition,
                    RepetitionRequest(cluster=self._scanner.cluster, repetition=repetition),
                    options.report(self._scanner.cluster),
                    f"{repetition.node} is fenced again and again",
                )
            except ActivityError as error:
                why = error_message(error)
                workflow.logger.warning("%s: %s; it can't be published: %s", repetition.node, repetition.message, why)

    async def give_back_lease(self) -> None:
        """Once all has ended; else another scanner waits until it lapses."""
        try:
            await options.execute(
                ScanActivities.release_lease,
                self._scan_request(),
                options.report(self._scanner.cluster),
                "gives the cluster Lease back",
            )
        except ActivityError as error:
            workflow.logger.warning("the cluster Lease lapses by itself: %s", error_message(error))

    # What episodes ask ----------------------------------------------------------------------------------------------

    def _take_release(self, release: Release) -> None:
        """Its node is left alone for now, where that is due."""
        state = self._state
        if release.held:
            state.park(release.node, release.incident)
        else:
            hold_offs.note_release(state, release)
            if release.parked:
                state.park(release.node, release.incident, asks=workflow.now())
            else:
                state.remove(release.node, release.incident)
            self._note_repetition(release)
        self._underway.changed = True

    def look(self, asked: PermitQuestions) -> PermitQuestions:
        """Which of those incidents may disrupt their nodes now (S14, S20)."""
        halted = self._commands.halted
        answers = tuple(self.permits.look(each, halted=halted) for each in asked.questions)
        return PermitQuestions(questions=answers, modes=self._commands.modes_in_force(was_reset=self._holders.was_reset))

    # What is shown and recorded -------------------------------------------------------------------------------------

    @property
    def knows_what_was_set(self) -> bool:
        """Whether nothing that people had set before is still to be taken over."""
        return self._commands.took_over and not self._holders.was_reset

    def status(self) -> ScannerStatus:
        """Everything that is known."""
        state = self._state
        return ScannerStatus(
            cluster=self._scanner.cluster,
            holder=state.holder,
            started=state.started,
            cap=self._scanner.cap_under(state.report),
            scans=state.scans,
            opened=state.opened,
            report=state.report,
            permits=tuple(state.permits.values()),
            queue=tuple(state.queue),
            held_off=tuple(state.held_off.values()),
            refused=self._refusals,
            problem=self._problem(),
            stopping=self._underway.stop is not None,
            wait=self._longest_wait,
            pauses=pauses.in_force(state.pauses, workflow.now()),
            modes=state.modes,
            spells=self.spells.handed_over(MOST_SHOWN).spells,
            open_spells=len(state.spells) + state.spells_left_out,
            why_queued=self.queue.why_queued(),
            known=state.known,
        )

    def _problem(self) -> str:
        """What people must know of, the most urgent first; "" where nothing is wrong."""
        received_at, longest = self._underway.received_at, self._longest_wait + options.SCAN_GRACE
        if received_at is not None and workflow.now() - received_at >= longest:
            return "no scan has been answered lately: does a worker serve the cluster?"
        problem = self._nameless or self._underway.scan_problem or self._open_problem or self._holders.problem
        return problem or (NOT_TAKEN_OVER if self._holders.was_reset else "")

    def _show(self) -> None:
        state, report = self._state, self._state.report
        lines = [f"**Scanner of {self._scanner.cluster}**, {state.scans} scans, {state.opened} episodes opened"]
        if halted := self._commands.halted:
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

    def _record_refusals(self, report: ScanReport) -> None:
        """Of nodes that another rule keeps from a permit than before."""
        candidates = {each.node: each for each in report.candidates}
        for each in self._refusals:
            if self._state.refused.get(each.node) != each.reason:
                uid = candidates[each.node].uid if each.node in candidates else ""
                about = {"node": each.node, "uid": uid, "check": each.check.key, "versions": _versions(report)}
                self._state.record(self._scanner.cluster, DecisionKind.REFUSED, rule=each.reason, message=each.message, **about)
        self._state.refused = {each.node: each.reason for each in self._refusals}

    def _record_admission(self, begun: FencingInput | RemediationInput, report: ScanReport) -> None:
        counts = {"permits": self._state.in_use(), "cap": self._scanner.cap_under(report)}
        check = begun.need.check if begun.need is not None else None
        self._state.record(
            self._scanner.cluster,
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


def _versions(report: ScanReport) -> dict[str, str]:
    """How far the objects of a report had been followed."""
    return {"Node": report.resource_version} | {each.dialect.value: each.version for each in report.check_versions}
