"""The scanner of one cluster: awaits the next report, decides whom to let act, opens their episodes, tells people.

One per cluster (its workflow id is `scanner/<cluster>`, its claim on the cluster a Lease), and the only grantor of permits
(`workflows/scanner/permits.py`). It awaits one long poll (`activities/cluster/acts/scan.py`) and is woken by episodes meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from activities.contracts import search
from activities.contracts.episodes import EpisodeActivities, NameRequest
from activities.contracts.scan import ScanActivities
from activities.errors import ErrorType, error_message
from policy.episode.freeing_pace import PortionAnswer, PortionRequest
from policy.episode.operator_commands import CIRCUIT_BREAKER, Spoken, Verb
from policy.episode.permits import PermitAnswer, PermitDecision, PermitQuestions, PermitRequest, Release
from policy.scan import pauses
from policy.scan.pauses import PAUSES_MEMO, Pause, Pauses
from policy.scan.scan_report import ScanReport
from policy.values.display_text import without_calls
from workflows.episode.attestation import Heard, heard, refused, require_future, require_name_and_reason
from workflows.kit import continuation, options
from workflows.kit.ids import episode_id, scanner_id
from workflows.kit.messages import (
    PauseRequest,
    RefusedNode,
    ScannerInput,
    ScannerResult,
    ScannerState,
    ScannerStatus,
    StopRequest,
    UnpauseRequest,
)
from workflows.scanner.background_tasks import BackgroundTasks, Repeated
from workflows.scanner.episode_notifier import Telling
from workflows.scanner.holders import LIST_LAG
from workflows.scanner.long_poll import Polling
from workflows.scanner.permit_lines import Grantor
from workflows.scanner.permits import Granting
from workflows.scanner.preservations import Preserving
from workflows.scanner.repeat_alarm import Repeating

ANSWER_PATIENCE = timedelta(seconds=15)
"""How long a person's request waits for a report that can answer it."""
PAUSE_AFTER_FAILURE = timedelta(seconds=5)
SOONEST = timedelta(milliseconds=100)
"""Between two looks at somebody whose time has come and who can't be admitted for another reason."""
OUTDATED = timedelta(seconds=2)
"""How long the running scan tells people of other episodes and refusals than there are: mostly it is answered before that."""


@workflow.defn(name="HealthScanner")
class HealthScanner:
    """See the module. What outlives continue-as-new is `ScannerState`."""

    @workflow.init
    def __init__(self, request: ScannerInput) -> None:
        state = request.state or ScannerState(started=workflow.now(), pauses=request.pauses)
        self._input = request
        self._beside = BackgroundTasks()
        self._grantor = Grantor(cluster=request.cluster, holder=request.holder, concurrency=request.concurrency)
        self._telling = Telling(request.cluster, state.told)
        self._granting = Granting(self._grantor, state, self._beside, self._telling, on_change=self._hear)
        self._repeating = Repeating(request.cluster, request.repeat_alarm, state.incidents, state.untold)
        self._preserving = Preserving(request.cluster, state.preservations)
        self._tell = Repeated(self._beside, self._tell_episodes)
        self._started = state.started
        self._polling = Polling(
            state,
            request.wait,
            grantor=self._grantor,
            granting=self._granting,
            telling=self._telling,
            preserving=self._preserving,
        )
        self._began_with = state.scans
        self._nameless = ""
        self._stop: StopRequest | None = None
        self._news = self._heard = 0

    # The story ------------------------------------------------------------------------------------------------------

    @workflow.run
    async def run(self, request: ScannerInput) -> ScannerResult:
        self._check_identity(request)
        # What is carried over is as old as this history, and no report of its first life is left where that was reset to its
        # very beginning; a later point shows in the random seed (S14).
        if workflow.now() - workflow.info().workflow_start_time > LIST_LAG:
            self._granting.holders.forget()
        workflow.register_random_seed_callback(lambda _: self._granting.holders.forget())
        workflow.upsert_search_attributes([search.CLUSTER.value_set(request.cluster), search.KIND.value_set("HealthScanner")])
        scanning = asyncio.create_task(self._scan_on())
        try:
            await asyncio.shield(scanning)
        except asyncio.CancelledError:
            self._take_stop(StopRequest(who="Temporal", reason="the workflow was cancelled"))
            await scanning
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self._stop is None:
            continuation.go_on(self._carried())
        await self._give_back_lease()
        return ScannerResult(
            cluster=request.cluster,
            stopped_by=self._stop.by,
            reason=self._stop.reason,
            scans=self._polling.scans,
            opened=self._granting.opened,
        )

    async def _scan_on(self) -> None:
        """Scan after scan, until somebody stops it or the history has grown long; then until all that was begun has ended."""
        await self._learn_our_name()
        while self._stop is None and not continuation.roll_is_due(may_move=self._polling.scans > self._began_with):
            if await self._next_report() and (report := self._polling.report) is not None:
                await self._granting.holders.rebuild(report)
                # First: whoever is to be kept has its episode, and with it its node, before anybody is let at that node.
                if self._polling.may_be_acted_on() and self._stop is None:
                    await self._preserving.act(report, self._grantor.holder)
                if self._polling.may_be_acted_on():
                    await self._act(report)
                self._tell.ask()
            await self._repeating.tell()
            self._beside.reap()
            self._show()
        self._tell.end()
        await self._beside.ended()

    async def _learn_our_name(self) -> None:
        """Whoever started us with nothing but a cluster did not say whose we are. A name that another deployment could have
        as well, such as the namespace's, would let two scanners hold one Lease (S38)."""
        while not self._grantor.holder and self._stop is None:
            try:
                name = await workflow.execute_activity_method(
                    EpisodeActivities.name_deployment,
                    NameRequest(cluster=self._input.cluster),
                    **(options.temporal_call() | {"summary": "asks how the cluster Lease names us"}),
                )
            except ActivityError as error:
                self._nameless = f"our own name is not known: {error_message(error)}"
                self._show()
                await workflow.sleep(PAUSE_AFTER_FAILURE, summary="before our name is asked again")
                continue
            self._grantor.holder, self._nameless = name.holder, ""

    async def _next_report(self) -> bool:
        """Await the long poll. Releases and requests that come meanwhile are served from the last report, at once."""
        polling = self._polling
        polling.begin(self._halted(), self._halt_over())
        outdated: datetime | None = None
        while polling.awaited:
            self._beside.reap()
            with contextlib.suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: not polling.awaited or self._news != self._heard or self._beside.failed,
                    timeout=self._until(self._granting.due, outdated),
                    timeout_summary="until a remediation may be tried again, or people must be told",
                )
            self._heard = self._news
            self._granting.hear_due()
            if polling.awaited and polling.is_fresh and polling.report is not None:
                await self._act(polling.report)
            await self._repeating.tell()
            outdated = None if polling.tells_all(self._halted()) else outdated or workflow.now() + OUTDATED
            if outdated is not None and outdated <= workflow.now():
                polling.cut_short()
                break
        try:
            return await polling.ended() and self._stop is None
        except ActivityError:
            self._show()
            await workflow.sleep(PAUSE_AFTER_FAILURE, summary="before the next scan")
            return False

    def _until(self, *moments: datetime | None) -> timedelta | None:
        """How long until the first of them, None where there is none."""
        due = min((moment for moment in moments if moment is not None), default=None)
        return max(due - workflow.now(), SOONEST) if due is not None else None

    async def _act(self, report: ScanReport) -> None:
        """Let act whoever may. Nobody once we are stopped, which may have been while something else was awaited."""
        self._heard = self._news
        await self._granting.admit(report, stopped=lambda: self._stop is not None)

    def _hear(self) -> None:
        """Somebody else may be admitted now."""
        self._news += 1

    async def _tell_episodes(self) -> None:
        """Those whose node has changed since they were last told; a level, so a repetition is harmless."""
        permits = self._granting.table.permits()
        news = self._telling.news(report, permits) if (report := self._polling.report) is not None else ()
        if news and not await self._telling.tell_episodes(news):
            self._granting.holders.described_at = None  # one has closed without our hearing of it: look now
            self._hear()

    # Words from outside ---------------------------------------------------------------------------------------------

    @workflow.query(description="Everything that is known, for people.")
    def status(self) -> ScannerStatus:
        """Everything that is known, for people."""
        return ScannerStatus(
            cluster=self._input.cluster,
            holder=self._grantor.holder,
            started=self._started,
            concurrency=self._grantor.cap(self._polling.report),
            scans=self._polling.scans,
            opened=self._granting.opened,
            report=self._polling.report,
            permits=self._granting.table.permits(),
            queue=self._granting.table.queue(),
            held_off=self._granting.holding_off.held_off,
            refused=tuple(
                RefusedNode(node=refusal.node, reason=refusal.reason, message=refusal.message)
                for refusal in self._granting.refusals
            ),
            problem=self._problem(),
            stopping=self._stop is not None,
            wait=self._input.wait,
            pauses=self._granting.in_force,
        )

    @workflow.query(description="Which of those incidents may disrupt their nodes now.")
    def holds_permits(self, asked: PermitQuestions) -> PermitQuestions:
        """Which of those incidents may disrupt their nodes now. Every last look asks this, one question for all looks of a
        moment. None as soon as a person has stopped the scanner, although it gives the Lease back later."""
        answers = (self._granting.answer_look(each, self._polling.report, halted=self._halted()) for each in asked.questions)
        return PermitQuestions(questions=tuple(answers))

    @workflow.query(description="Which cluster it scans: the uid of kube-system (not for people).")
    def cluster_uid(self) -> str:
        """Which cluster it scans: the uid of kube-system, "" while it is not known. Workers that serve the cluster's name ask
        it."""
        return self._polling.cluster_uid

    @workflow.signal(description="An episode ended, waits for a person or is held (not for people).")
    def release(self, release: Release) -> None:
        """An episode ended, parked or is held."""
        self._granting.take_release(release)
        if not release.held:
            self._repeating.hear(release)
        self._hear()

    @workflow.update(description="An episode asks for leave to disrupt its node (not for people).")
    async def request_permit(self, request: PermitRequest) -> PermitAnswer:
        """An episode started by hand asks for a permit: granted, queued, or refused with the reason."""
        if self._stop is not None:
            return PermitAnswer(decision=PermitDecision.REFUSED, reason=f"the scanner is being stopped by {self._stop.by}")
        polling = self._polling
        polling.asking.append(request.node)
        try:
            if not self._can_answer(request):
                # The running long poll was told that there is no work, or not of this node; the next one takes the Lease.
                polling.cut_short()
            await workflow.wait_condition(lambda: self._may_answer(request), timeout=ANSWER_PATIENCE)
        except TimeoutError:
            return PermitAnswer(decision=PermitDecision.REFUSED, reason=f"the scanner can't decide now: {self._why_not(request)}")
        else:
            if polling.report is None or self._stop is not None:
                return PermitAnswer(decision=PermitDecision.REFUSED, reason="the scanner is being stopped")
            return self._granting.take_request(polling.report, request)
        finally:
            polling.asking.remove(request.node)
            self._hear()

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
        return self._granting.hand_out(request)

    @hand_out.validator
    def _check_hand_out(self, request: PortionRequest) -> None:
        if request.pods < 1 or request.per_minute < 1 or not request.incident:
            raise ValueError(f"expected an incident, at least one pod and a limit of at least 1, got {request}")

    async def _verified(self, verb: Verb, word: Heard, still: Callable[[Heard], None], **said: Any) -> Heard:
        """See `hearing.heard`. said: what the word says besides."""
        spoken = Spoken(action=verb, node="", reason=word.reason, **said)
        return await heard(word, spoken, cluster=self._input.cluster, still=still)

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
        former = self._granting.in_force
        try:
            self._keep(pauses.paused(self._granting.pauses, pause))
        except ValueError as error:
            raise refused(f"pause: {error}") from error
        replaced = "".join(f"; before, it was {each}" for each in former if each.owner == pause.owner)
        beside = "".join(f"; it is also {each}" for each in former if each.owner != pause.owner)
        return f"{self._input.cluster} is {pauses.told((pause,))}{replaced}{beside}"

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
        granting, cluster, now = self._granting, self._input.cluster, workflow.now()
        if not granting.in_force:
            return f"{cluster} was not paused"
        try:
            ended = pauses.to_be_ended(granting.in_force, owner=request.owner, of=request.of)
        except ValueError as error:
            raise refused(f"unpause: {error}") from error
        self._keep(pauses.unpaused(granting.pauses, ended, who=request.by, reason=request.reason, now=now))
        workflow.logger.info("%s ends a pause of %s: %s", request.by, cluster, request.reason)
        goes_on = (
            f"{cluster} is still {pauses.told(granting.in_force)}" if granting.in_force else f"{cluster} is no longer paused"
        )
        return f"{goes_on}; you have ended: {'; '.join(map(str, ended))}"

    @unpause.validator
    def _check_unpause(self, request: UnpauseRequest) -> None:
        require_name_and_reason(request)

    def _keep(self, pauses: Pauses) -> None:
        """In the memo as well, where people and the next scanner find them, however this one has ended."""
        self._granting.pauses = pauses
        workflow.upsert_memo({PAUSES_MEMO: pauses})
        self._hear()

    def _take_stop(self, request: StopRequest) -> None:
        self._stop = request
        self._polling.cut_short()
        self._hear()

    # Small things ---------------------------------------------------------------------------------------------------

    def _check_identity(self, request: ScannerInput) -> None:
        expected = scanner_id(request.cluster)
        if not request.cluster or workflow.info().workflow_id != expected:
            raise ApplicationError(
                f"expected an input with a cluster, run under the workflow id {expected!r}",
                type=ErrorType.INVALID_CONFIG.value,
                non_retryable=True,
            )
        if request.concurrency < 1:
            raise ApplicationError(
                f"concurrency: expected at least 1, got {request.concurrency}",
                type=ErrorType.INVALID_CONFIG.value,
                non_retryable=True,
            )

    def _can_answer(self, request: PermitRequest) -> bool:
        report = self._polling.report
        fresh = self._granting.holders.known and self._polling.is_fresh and report is not None and report.lease.held
        return fresh and self._polling.sees(request.node)

    def _may_answer(self, request: PermitRequest) -> bool:
        """Also that nothing is being opened under the id of the one that asks, which in a moment comes to nothing."""
        return self._can_answer(request) and not self._granting.opens(request)

    def _why_not(self, request: PermitRequest) -> str:
        polling = self._polling
        if polling.is_fresh and not polling.sees(request.node):
            return f"no scan has seen {request.node} yet"
        if self._can_answer(request):
            return f"it is not known yet what became of opening another episode of {request.node}"
        lease = polling.report.lease.problem if polling.report else ""
        return self._problem() or lease or "the cluster Lease is not held"

    def _problem(self) -> str:
        if self._polling.unanswered:
            return "no scan has been answered lately: does a worker serve the cluster?"
        return self._nameless or self._polling.problem or self._granting.problem

    def _halted(self) -> str:
        """Why nothing is begun although somebody could need it, as people are told wherever they look (S44); "" else."""
        if self._stop is not None:
            return f"the scanner was stopped by {self._stop.by}: {self._stop.reason} (`nodewarden scan start` starts it)"
        return pauses.halted(self._granting.pauses, workflow.now())

    def _halt_over(self) -> str:
        """How the last pause ended; a scanner that is stopped never goes on."""
        past = sorted(self._granting.pauses, key=lambda each: each.over_at(workflow.now()) or workflow.now())[-1:]
        return "; ".join(["new repairs begin again", *(f"the pause was {each.told(workflow.now())}" for each in past)])

    def _carried(self) -> ScannerInput:
        granting = self._granting
        state = ScannerState(
            started=self._started,
            permits=granting.table.permits(),
            queue=granting.table.queue(),
            held_off=granting.holding_off.held_off,
            report=self._polling.report,
            told=self._telling.told,
            described_at=granting.holders.described_at,
            polls=self._polling.polls,
            scans=self._polling.scans,
            opened=granting.opened,
            known=granting.holders.known,
            incidents=self._repeating.incidents,
            untold=tuple(self._repeating.untold),
            power=granting.holding_off.power,
            attempts=granting.holding_off.attempts,
            replaced=granting.holding_off.replaced,
            released=granting.holding_off.closing(),
            preservations=self._preserving.told,
            portions=granting.portions,
            pauses=granting.pauses,
            need_person=granting.table.need_person,
            halted=self._polling.halted_told,
            cluster_uid=self._polling.cluster_uid,
        )
        return ScannerInput(
            cluster=self._input.cluster,
            holder=self._grantor.holder,
            concurrency=self._input.concurrency,
            wait=self._input.wait,
            state=state,
            repeat_alarm=self._input.repeat_alarm,
        )

    async def _give_back_lease(self) -> None:
        try:
            await workflow.execute_activity_method(
                ScanActivities.release_lease,
                self._polling.request(self._halted(), self._halt_over()),
                **(options.report(self._input.cluster) | {"summary": "gives the cluster Lease back"}),
            )
        except ActivityError as error:
            workflow.logger.warning("the cluster Lease lapses by itself: %s", error_message(error))

    def _show(self) -> None:
        report, granting = self._polling.report, self._granting
        lines = [f"**Scanner of {self._input.cluster}**, {self._polling.scans} scans, {granting.opened} episodes opened"]
        if halted := self._halted():
            lines.append(f"* **{halted}**")
        if problem := self._problem() or self._preserving.problem:
            lines.append(f"* **problem: {problem}**")
        if report is not None:
            lease = (report.lease.problem or "held") if report.lease.needed else "not needed"
            lines.append(f"* {report.inventory} nodes; view: {report.view.stale or 'live'}; cluster Lease: {lease}")
            lines += [
                f"* {check.ref.key}: {check.healthy}/{check.total} healthy; {check.error or check.message}"
                for check in report.checks
            ]
        lines += [f"* `{permit.node}`: {permit.holding.value}, incident {permit.incident}" for permit in granting.table.permits()]
        workflow.set_current_details("\n".join(map(without_calls, lines)))  # it is shown as Markdown (S50)
