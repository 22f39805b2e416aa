"""Who may act: the scanner's permits, from reservation to release. One `Granting` per scanner, its state carried over by it.

Each rule is a row of `policy/scan/permit_rules.py`. Beside this stand the table's bookkeeping (`permit_table.py`), what a
line and its episode begin with (`permit_lines.py`), what Temporal says of holders (`holders.py`) and whose node is left alone
after an end (`backoff.py`); when to ask is the loop in `workflows/definitions/scanner.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from activities.contracts.episodes import EpisodeActivities, Opened, OpenOutcome, OpenRequest
from activities.contracts.scan import OpenEpisode, Refusal
from activities.errors import error_message
from policy.episode.freeing_pace import Portion, PortionAnswer, PortionRequest, portion_of, standing
from policy.episode.messages import FencingInput, RemediationInput
from policy.episode.permits import Permit, PermitAnswer, PermitDecision, PermitQuestion, PermitRequest, PermitState, Release
from policy.scan import pauses
from policy.scan.admission import admit, answer_request, orphans, quorum_objection
from policy.scan.pauses import Pause
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import MAXIMUM_OBSERVATIONS, ScanReport
from workflows.kit import options
from workflows.kit.messages import ScannerState
from workflows.scanner.background_tasks import BackgroundTasks
from workflows.scanner.backoff import HoldingOff
from workflows.scanner.episode_notifier import Telling
from workflows.scanner.holders import Holders
from workflows.scanner.permit_lines import Grantor, Reserving
from workflows.scanner.permit_table import PermitTable


class Granting:
    """The permit table and every decision about it.

    Episodes are opened, and holders described, beside the scan: a deadline that comes meanwhile is not waited with. on_change:
    that has changed the table, so that somebody else may have a permit now.
    """

    def __init__(
        self, grantor: Grantor, state: ScannerState, beside: BackgroundTasks, telling: Telling, *, on_change: Callable[[], None]
    ) -> None:
        self._grantor = grantor
        self._beside = beside
        self._telling = telling
        self.table = PermitTable(state.permits, state.queue, state.need_person)
        self.holding_off = HoldingOff(state)
        self.holders = Holders(grantor, state, self.table, self.holding_off)
        self._reserving = Reserving(grantor, self.table)
        self._on_change = on_change
        self._opening: set[str] = set()
        self._describing = False
        self._open_problem = ""
        self.opened = state.opened
        self.refusals: tuple[Refusal, ...] = ()
        self.due: datetime | None = None
        """When a candidate that waits for nothing but its time may be admitted, or a pause ends."""
        self._portions = state.portions
        self.pauses = state.pauses

    @property
    def in_force(self) -> tuple[Pause, ...]:
        """The pauses that hold now."""
        return pauses.in_force(self.pauses, workflow.now())

    @property
    def problem(self) -> str:
        """What is wrong with opening or describing episodes, "" where nothing is."""
        return self._open_problem or self.holders.problem

    def watched(self) -> tuple[str, ...]:
        """The nodes of open episodes, and as many of those held off as there is room for: what becomes of them matters to us."""
        holders = sorted(self.table.nodes())
        others = sorted({held.node for held in self.holding_off.held_off} - set(holders))
        return (*holders, *others[: max(MAXIMUM_OBSERVATIONS - len(holders), 0)])

    def in_flight(self) -> tuple[OpenEpisode, ...] | None:
        """The open episodes as people are told of them, None while it is not known which there are."""
        if not self.holders.known:
            return None
        asking = {each.incident for each in self.table.need_person}
        return tuple(
            OpenEpisode(
                node=each.node,
                since=each.granted_at.isoformat(),
                incident=each.incident,
                kind=each.kind.value,
                needs_person=each.incident in asking,
            )
            for each in self.table.permits()
        )

    @property
    def portions(self) -> tuple[Portion, ...]:
        """What was handed out of the pods that may be freed in a minute, and still counts."""
        return standing(self._portions, workflow.now())

    def hand_out(self, request: PortionRequest) -> PortionAnswer:
        """How many pods an episode may free now. No permit is asked for: what it may free its proof says, here only how fast."""
        self._portions, answer = portion_of(self._portions, request, workflow.now(), used_within=options.ACT_WINDOW)
        return answer

    # Granting -------------------------------------------------------------------------------------------------------

    async def admit(self, report: ScanReport, *, stopped: Callable[[], bool]) -> None:
        """Serve the queue, then the candidates, then marks that nobody owns. Permits are reserved before episodes open, and those
        open beside: all of this moment together, the oldest offence first. stopped: whether nobody is let in any more, which may
        come while the queue is served."""
        if not self.holders.known:
            return
        self.holding_off.forget(report)
        await self._serve_queue(report, stopped)
        if stopped():
            return
        admission = admit(
            report,
            self._counted(report),
            cap=self._grantor.concurrency,
            now=workflow.now(),
            held_off=self.holding_off.against_candidates(),
            power=self.holding_off.power,
            replaced=self.holding_off.replaced,
            paused=pauses.told(in_force := self.in_force),
        )
        self.refusals = tuple(
            Refusal(node=refused.node, check=refused.check, reason=refused.reason, message=refused.message)
            for refused in admission.refused
            if refused.reason is not AdmissionRefusal.IN_HAND
        )
        moments = (admission.again, *(each.until for each in in_force))
        self.due = min((moment for moment in moments if moment is not None), default=None)
        reserve = self._reserving
        inputs: list[FencingInput | RemediationInput] = [reserve.for_candidate(each) for each in admission.admitted]
        inputs += [reserve.for_candidate(each, holding=PermitState.PARKED) for each in admission.exhausted]
        if not report.view.stale and report.lease.held:
            settling, closing = self.holding_off.settling, self.holding_off.closing()
            incidents = [*(permit.incident for permit in self._counted(report)), *closing]
            inputs += [
                reserve.for_clean_up(orphan)
                for orphan in orphans(report.observations, incidents)
                if orphan.node not in settling and self.table.of(orphan.node) is None
            ]
            inputs += [
                reserve.for_left_over(each)
                for each in report.left_over
                if not self.holding_off.leaves_alone(each.node) and self.table.of(each.node) is None
            ]
        if inputs:
            self._opening.update(each.node for each in inputs)
            for each in inputs:
                if each.permit_granted:
                    self._telling.begin(each.node)
            self._beside.begin(self._open(inputs))
        if not self._describing and (nodes := self.holders.to_be_described(report, self._opening)):
            self._describing = True
            self._beside.begin(self._describe(nodes))

    def take_request(self, report: ScanReport, request: PermitRequest) -> PermitAnswer:
        """Answer and carry the answer out. A person's word ends a hold-off, and nobody else's (S19)."""
        ahead = sum(waiting.incident != request.incident for waiting in self.table.queue())
        answer = self._answer(report, request, ahead=ahead)
        if answer.decision is not PermitDecision.REFUSED and request.by_person:
            self.holding_off.hear_person(request.node)
        if answer.decision is PermitDecision.GRANTED:
            self._reserving.for_request(request, report)
        elif answer.decision is PermitDecision.QUEUED:
            self.table.enqueue(request)
        return PermitAnswer(decision=answer.decision, reason=answer.reason, holder=self._grantor.holder)

    def _counted(self, report: ScanReport, own: Permit | None = None) -> tuple[Permit, ...]:
        """The lines, and what counts without one: marked strangers, and episodes that were found and wait for their permit, which
        may have done anything under the one they had (S14). own: the line of the one that asks. If each of those that were found
        waited for the others, none would ever go on.
        """
        marks = {each.incident for each in report.observations} if own is None or not own.found else set[str]()
        waiting = marks.intersection(each.incident for each in self.table.queue())
        lines = (
            replace(line, holding=PermitState.OPEN) if line.found and line.incident in waiting else line
            for line in self.table.permits()
            if line is not own
        )
        return (*lines, *self.holders.strangers(report))

    def _answer(self, report: ScanReport, request: PermitRequest, *, ahead: int = 0) -> PermitAnswer:
        """Decide the request of an open episode. Its own parked line is not in its way."""
        line = self.table.of(request.node)
        parked = line is not None and line.incident == request.incident and line.holding is PermitState.PARKED
        own = line if parked else None
        # A mark without a line is its own, or of one that has ended: it has the id that both would have.
        others = tuple(each for each in self._counted(report, own) if line is not None or each.node != request.node)
        return answer_request(
            report,
            others,
            request,
            cap=self._grantor.concurrency,
            ahead=ahead,
            now=workflow.now(),
            # What a parked episode did to the power is its own affair.
            power=() if own is not None else self.holding_off.power,
            held_off=self.holding_off.against_requests(),
            paused=pauses.told(self.in_force),
            counted_under=own.checks if own is not None else (),
        )

    async def _serve_queue(self, report: ScanReport, stopped: Callable[[], bool]) -> None:
        for waiting in self.table.queue():
            if stopped():
                return
            request = replace(waiting, ready=True)  # it may have come back since it asked; the guard counts it as a loss
            if self._answer(report, request).decision is not PermitDecision.GRANTED:
                continue
            self._reserving.for_request(request, report)
            try:
                await workflow.get_external_workflow_handle(request.workflow_id).signal("permit_granted")
            except (ApplicationError, FailureError) as error:
                workflow.logger.warning("%s no longer waits for its permit: %s", request.workflow_id, error)
                self.table.remove(request.node, request.incident)

    def opens(self, request: PermitRequest) -> bool:
        """Whether another episode is being opened under the id of the one that asks."""
        line = self.table.of(request.node)
        if line is None or line.holding is not PermitState.RESERVED:
            return False
        return line.workflow_id == request.workflow_id and line.incident != request.incident

    def take_release(self, release: Release) -> None:
        """An episode ended, parked, or is held; that is no failure of it."""
        if release.held:
            self.table.park(release.node, release.incident)
            return
        self.holding_off.hear_release(release, self.table.of(release.node))
        if release.parked:
            self.table.park(release.node, release.incident, asks=workflow.now())
        else:
            self.table.remove(release.node, release.incident)

    def hear_due(self) -> None:
        """A moment that has come is waited for no more; what it meant the next admission says."""
        if self.due is not None and self.due <= workflow.now():
            self.due = None

    # Looks ----------------------------------------------------------------------------------------------------------

    def answer_look(self, asked: PermitQuestion, report: ScanReport | None, *, halted: str) -> PermitQuestion:
        """Whether that incident may disrupt that node now, and why not (S14, S20). halted: why nobody may by a person's word,
        "" else."""
        permit = self.table.of(asked.node)
        if permit is None or permit.incident != asked.incident or permit.holding is PermitState.PARKED:
            reason = f"the permit of {asked.node} is held by {permit.incident if permit else 'no episode'}"
        elif permit.override and asked.override != permit.override:
            reason = f"the permit of {asked.node} overrides a {permit.override}, and no NodeAction attests that a person does"
        else:
            # Whatever was true when its permit was granted.
            reason = halted or (quorum_objection(report, self._counted(report), permit) if report is not None else "")
        return replace(asked, held=not reason, reason=reason, paused=halted)

    # Opening and describing -------------------------------------------------------------------------------------------

    async def _open(self, inputs: list[FencingInput | RemediationInput]) -> None:
        request = OpenRequest(
            cluster=self._grantor.cluster,
            episodes=tuple(each for each in inputs if isinstance(each, FencingInput)),
            remediations=tuple(each for each in inputs if isinstance(each, RemediationInput)),
        )
        names = ", ".join(episode.node for episode in inputs)
        try:
            result = await workflow.execute_activity_method(
                EpisodeActivities.open, request, **(options.temporal_call() | {"summary": f"opens episodes: {names}"[:200]})
            )
        except ActivityError as error:
            self._open_problem = f"episodes can't be opened: {error_message(error)}"
            self.holders.described_at = None  # what became of them is unknown: the reservations count until described (S14)
            self._on_change()
        else:
            self._open_problem = ""
            for outcome in result.outcomes:
                self._take_outcome(outcome)
        finally:
            self._opening.difference_update(each.node for each in inputs)

    def _take_outcome(self, outcome: OpenOutcome) -> None:
        if outcome.opened in {Opened.STARTED, Opened.JOINED}:
            self.table.opened(outcome.node, outcome.incident)
            self.opened += outcome.opened is Opened.STARTED
            return
        line = self.table.of(outcome.node)
        self.table.remove(outcome.node, outcome.incident)
        self._telling.forget(outcome.node)
        until_well = outcome.opened is Opened.HELD_OFF
        reason = outcome.reason or outcome.holder
        if line is not None:
            self.holding_off.refused_to_open(line, reason, holder=outcome.holder, until_well=until_well)
        self._on_change()

    async def _describe(self, nodes: tuple[str, ...]) -> None:
        try:
            changed = await self.holders.describe(nodes)
        finally:
            self._describing = False
        if changed or self.holders.described_at is None:
            self._on_change()  # a line has gone or changed, and somebody else may have its permit; or one is in doubt again
