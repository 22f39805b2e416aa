"""The queue for permits: which open episodes wait for one, in which order they are served, and what each that asks is answered.

First come, first served (`ScannerState.queue`, which outlives a history). Whether a permit is free for one is a row of
`policy/scan/permit_rules.py`; nodes without an episode are admitted after the queue, the oldest offence first (`story.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

from policy.episode.decisions import DecisionKind
from policy.episode.permits import PermitAnswer, PermitDecision, PermitRequest, PermitState
from policy.objects.scopes import CLUSTER
from policy.scan.scan_report import ScanReport
from workflows.episode.episode_workflow import EpisodeWorkflow
from workflows.scanner.permits import Permits
from workflows.scanner.state import ScannerInput, ScannerState, Underway

ANSWER_PATIENCE = timedelta(seconds=15)
"""How long a request waits for a report that can answer it."""


class PermitQueue:
    """Of one scanner. problem: why no report can answer now, for people."""

    def __init__(
        self, scanner: ScannerInput, state: ScannerState, underway: Underway, permits: Permits, problem: Callable[[], str]
    ) -> None:
        self._scanner = scanner
        self._state = state
        self._underway = underway
        self._permits = permits
        self._problem = problem
        self.asking: list[str] = []
        """The nodes of episodes that wait for an answer which only a report can give."""

    async def serve(self, report: ScanReport) -> None:
        """Grant a permit to each that waits and may have one now, in the order in which they came."""
        for waiting in tuple(self._state.queue):
            if self._underway.stop is not None:
                return
            request = self._served_as(waiting)
            if self._permits.answer(report, request).decision is not PermitDecision.GRANTED:
                continue
            self._permits.grant(request, report)
            about = {"node": request.node, "uid": request.node_uid, "incident": request.incident, "message": request.reason}
            self._state.record(
                self._scanner.cluster, DecisionKind.ADMITTED, workflow_id=request.workflow_id, act="grant", **about
            )
            try:
                await workflow.get_external_workflow_handle(request.workflow_id).signal(EpisodeWorkflow.permit_granted)
            except (ApplicationError, FailureError) as error:
                workflow.logger.warning("%s no longer waits for its permit: %s", request.workflow_id, error)
                self._state.remove(request.node, request.incident)

    def _served_as(self, waiting: PermitRequest) -> PermitRequest:
        """As it is served now: its node may have come back since it asked, and would be one more that is lost (S14)."""
        return replace(self._permits.as_known(waiting), ready=True)

    def why_queued(self) -> tuple[str, ...]:
        """See `ScannerStatus`. An episode knows only what it was answered when it asked last, minutes ago."""
        queue, report = self._state.queue, self._state.report
        if (stop := self._underway.stop) is not None:
            return (f"the scanner is being stopped by {stop.by}",) * len(queue)
        if report is None or not self._state.known:
            return ("the scanner has yet to find all open episodes",) * len(queue)
        answers = (self._permits.answer(report, self._served_as(each), ahead=place) for place, each in enumerate(queue))
        return tuple("" if each.decision is PermitDecision.GRANTED else each.reason for each in answers)

    async def ask(self, request: PermitRequest) -> PermitAnswer | None:
        """Granted, queued, or refused with the reason, once a report can say so. None: the next history has that report, and is
        asked again."""
        if (stop := self._underway.stop) is not None:
            return PermitAnswer(decision=PermitDecision.REFUSED, reason=f"the scanner is being stopped by {stop.by}")
        self.asking.append(request.node)
        try:
            if not self._can_answer(request):
                # The running long poll began without this work, or without this node; the next one takes the Lease.
                self._underway.cut_short()
            # Also while another episode is being opened under the id of the one that asks, which in a moment comes to nothing.
            await workflow.wait_condition(lambda: self._underway.leaves or self._is_answerable(request), timeout=ANSWER_PATIENCE)
        except TimeoutError:
            return PermitAnswer(decision=PermitDecision.REFUSED, reason=f"the scanner can't decide now: {self._why_not(request)}")
        else:
            if self._underway.leaves and not self._is_answerable(request):
                return None
            if self._state.report is None or self._underway.stop is not None:
                return PermitAnswer(decision=PermitDecision.REFUSED, reason="the scanner is being stopped")
            return self._answer(self._state.report, request)
        finally:
            self.asking.remove(request.node)
            self._underway.changed = True

    def sees(self, node: str) -> bool:
        """Whether the last report says in which parts of the cluster the node is, where policies ask for that."""
        report = self._state.report
        if report is None or not set(report.policies.scopes) - {CLUSTER}:
            return True
        return any(seen.node == node for seen in report.seen_nodes)

    def _answer(self, report: ScanReport, request: PermitRequest) -> PermitAnswer:
        """Decide, and carry the answer out."""
        request = self._permits.as_known(request)
        ahead = sum(waiting.incident != request.incident for waiting in self._state.queue)
        answer = self._permits.answer(report, request, ahead=ahead)
        if answer.decision is PermitDecision.GRANTED:
            self._permits.grant(request, report)
        elif answer.decision is PermitDecision.QUEUED:
            self._state.enqueue(request)
        return replace(answer, holder=self._state.holder)

    def _is_answerable(self, request: PermitRequest) -> bool:
        return self._can_answer(request) and not self._opens_another(request)

    def _can_answer(self, request: PermitRequest) -> bool:
        report = self._state.report
        usable = self._state.known and self._underway.is_fresh and report is not None and report.lease.held
        return usable and self.sees(request.node)

    def _opens_another(self, request: PermitRequest) -> bool:
        """Whether another episode is being opened under the id of the one that asks."""
        permit = self._state.permits.get(request.node)
        if permit is None or permit.state is not PermitState.RESERVED:
            return False
        return permit.workflow_id == request.workflow_id and permit.incident != request.incident

    def _why_not(self, request: PermitRequest) -> str:
        if self._underway.is_fresh and not self.sees(request.node):
            return f"no scan has seen {request.node} yet"
        if self._can_answer(request):
            return f"it is not known yet what became of opening another episode of {request.node}"
        report = self._state.report
        return self._problem() or (report.lease.problem if report else "") or "the cluster Lease is not held"
