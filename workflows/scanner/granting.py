"""Who may act: the scanner's permits, from reservation to release. One `Granting` per scanner, its state carried over by it.

Each rule is a pure function of `policy/scan/admission.py`; the table's bookkeeping is `workflows/scanner/permit_table.py`; when
to ask is the loop in `workflows/definitions/scanner.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

from activities.contracts.episodes import (
    DescribeRequest,
    EpisodeActivities,
    EpisodeDescription,
    FindRequest,
    FoundOpen,
    Opened,
    OpenOutcome,
    OpenRequest,
)
from activities.contracts.scan import Refusal
from activities.errors import error_message
from policy.checks.fence_policies import NO_POLICIES, Attempts, PowerMoment, left_alone_until
from policy.episode.freeing_pace import Portion, PortionAnswer, PortionRequest, portion_of, standing
from policy.episode.ids import episode_id
from policy.episode.messages import FencingInput, Kind, Outcome, RemediationInput
from policy.episode.needs import Need, NeedKind
from policy.episode.observation import Observation
from policy.episode.permits import Decision, Permit, PermitAnswer, PermitQuestion, PermitRequest, PermitState, Release, Replacing
from policy.remediation.ladder import removes
from policy.scan.admission import Because, admit, answer_request, control_plane_guard, groups_of, orphans, room_in_scopes
from policy.scan.report import MAXIMUM_OBSERVATIONS, Candidate, LeftOver, ScanReport
from workflows.kit import options
from workflows.kit.messages import Backoff, ScannerState
from workflows.scanner.permit_table import PermitTable

DESCRIBE_EVERY = timedelta(seconds=60)
"""How often holders are described, in case a closing episode's release never reached us."""
CLOSING = timedelta(seconds=30)
"""How long an episode that has given its permit back for good may still be described as open, or its mark be reported: what was
asked before its end may be heard after it. It must not bring its line back until the next description, nor have marks cleaned up
that it has removed itself."""
PAUSE_AFTER_FAILURE = timedelta(seconds=5)
LIST_LAG = timedelta(seconds=10)
"""How long at most Temporal's list of open workflows does not tell of one that has begun; a second is usual."""
DESCRIBED_AT_ONCE = 200
TOLD_LATELY = timedelta(seconds=15)
"""How old a report may be at most."""
AFTER_REFUSAL = timedelta(minutes=1)
"""How long a node whose episode ended at once (bad template, a veto) gets no new one."""
AFTER_VETO = timedelta(minutes=10)
"""How long at most it gets no new one while somebody holds its lease: he may give it back long before it would end."""
FAILURES_REMEMBERED = timedelta(days=1)
"""How long a failed attempt counts towards the next ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grantor:
    """In whose name permits are granted, and how many at once."""

    cluster: str
    holder: str
    concurrency: int


class Granting:
    """The permit table and every decision about it."""

    def __init__(self, grantor: Grantor, state: ScannerState) -> None:
        self._grantor = grantor
        self.known = state.known
        self._began = state.started
        self.table = PermitTable(state.permits, state.queue)
        self.opened = state.opened
        self.described_at: datetime | None = state.described_at
        self.refusals: tuple[Refusal, ...] = ()
        self.problem = ""
        self.due: datetime | None = None
        """When a candidate that waits for nothing but its time may be admitted."""
        self._held_off = {held.node: held for held in state.held_off}
        self._policies = NO_POLICIES
        self._power = {moment.node: moment for moment in state.power}
        self._attempts = {each.node: each for each in state.attempts}
        self._settling: set[str] = set()
        self._released_at: dict[str, datetime] = {}
        self._portions = state.portions
        self._replaced: list[Replacing] = []

    def watched(self) -> tuple[str, ...]:
        """The nodes of open episodes, and as many of those held off as there is room for: what becomes of them matters to us."""
        holders = sorted(self.table.nodes())
        others = sorted(self._held_off.keys() - set(holders))
        return (*holders, *others[: max(MAXIMUM_OBSERVATIONS - len(holders), 0)])

    @property
    def held_off(self) -> tuple[Backoff, ...]:
        """Nodes that get no new episode for now, and why."""
        return tuple(self._held_off.values())

    @property
    def power(self) -> tuple[PowerMoment, ...]:
        """The last power commands that may still be too young for the opposite one."""
        return tuple(self._power.values())

    @property
    def attempts(self) -> tuple[Attempts, ...]:
        """Nodes on which the last attempts have failed."""
        return tuple(self._attempts.values())

    @property
    def portions(self) -> tuple[Portion, ...]:
        """What was handed out of the pods that may be freed in a minute, and still counts."""
        return standing(self._portions, workflow.now())

    def hand_out(self, request: PortionRequest) -> PortionAnswer:
        """How many pods an episode may free now. No permit is asked for: what it may free its proof says, here only how fast."""
        self._portions, answer = portion_of(self._portions, request, workflow.now(), used_within=options.ACT_WINDOW)
        return answer

    def cap(self, report: ScanReport | None) -> int:
        """How many nodes may be disrupted at once: as the cluster's fence policies say, else as we were told."""
        return (report.policies.cap if report is not None else None) or self._grantor.concurrency

    def take_name(self, holder: str) -> None:
        """Grant in this name from now on."""
        self._grantor = replace(self._grantor, holder=holder)

    # Granting -------------------------------------------------------------------------------------------------------

    async def rebuild(self, report: ScanReport) -> None:
        """Without carried state nothing is granted before all open episodes are in the table: those that Temporal lists, and
        those whose marks are seen (S14).

        An earlier scanner granted nothing after we began. So a list that is `LIST_LAG` younger than that beginning misses nobody
        whom it has let act.
        """
        if self.known or not report.view.synced:
            return  # before the first sync there may be marks that nobody has seen yet
        found = await self._find_open()
        if found is not None and found.earlier and (lag := self._began + LIST_LAG - workflow.now()) > timedelta(0):
            await workflow.sleep(lag, summary="until the list of open episodes tells of all that the last scanner let act")
            found = await self._find_open()
        if found is not None:
            marked = (seen.node for seen in report.observations if seen.incident or seen.mark_problem)
            nodes = tuple(sorted({*found.nodes, *marked}))
            self.known = not nodes or await self._describe(nodes, report)
            self.described_at = workflow.now()
        if not self.known:
            await workflow.sleep(PAUSE_AFTER_FAILURE, summary="before the open episodes are looked for again")

    async def admit(self, report: ScanReport) -> None:
        """Serve the queue, then the candidates, then marks that nobody owns. Permits are reserved before episodes open."""
        if not self.known:
            return
        self._forget(report)
        await self._serve_queue(report)
        admission = admit(
            report,
            self.table.permits(),
            cap=self._grantor.concurrency,
            now=workflow.now(),
            held_off=(*self._just_ended(), *self._held_off.values()),
            power=self.power,
            replaced=self._replaced,
        )
        self.refusals = tuple(
            Refusal(node=refused.node, check=refused.check, reason=refused.reason, message=refused.message)
            for refused in admission.refused
            if refused.reason is not Because.IN_HAND
        )
        self.due = admission.again
        inputs: list[FencingInput | RemediationInput] = [self._reserve(each) for each in admission.admitted]
        inputs += [self._reserve(each, holding=PermitState.PARKED) for each in admission.exhausted]
        if not report.view.stale and report.lease.held:
            incidents = [*(permit.incident for permit in self.table.permits()), *self._closing()]
            inputs += [
                self._reserve_clean_up(orphan)
                for orphan in orphans(report.observations, incidents)
                if orphan.node not in self._settling and self.table.of(orphan.node) is None
            ]
            inputs += [
                self._reserve_left_over(each)
                for each in report.left_over
                if each.node not in self._settling and each.node not in self._held_off and self.table.of(each.node) is None
            ]
        if inputs:
            await self._open(inputs)

    def _answer(self, report: ScanReport, request: PermitRequest, *, ahead: int = 0) -> PermitAnswer:
        """Decide the request of an open episode. Its own parked line is not in its way."""
        others = tuple(
            permit
            for permit in self.table.permits()
            if permit.incident != request.incident or permit.holding is not PermitState.PARKED
        )
        resumes = len(others) < len(self.table.permits())  # what a parked episode did to the power is its own affair
        power = () if resumes else self.power
        cap, now = self._grantor.concurrency, workflow.now()
        # Whoever asks holds the node's workflow id: that this kept others from it is no reason against him.
        held_off = [held for held in self._held_off.values() if not held.holder and (held.until is None or held.until > now)]
        return answer_request(report, others, request, cap=cap, ahead=ahead, now=now, power=power, held_off=held_off)

    def take_request(self, report: ScanReport, request: PermitRequest) -> PermitAnswer:
        """Answer and carry the answer out. A person's word ends a hold-off, and nobody else's (S19)."""
        ahead = sum(waiting.incident != request.incident for waiting in self.table.queue())
        answer = self._answer(report, request, ahead=ahead)
        if answer.decision is not Decision.REFUSED and request.by_person:
            self._held_off.pop(request.node, None)
            self._attempts.pop(request.node, None)
        if answer.decision is Decision.GRANTED:
            self._grant(request, report)
        elif answer.decision is Decision.QUEUED:
            self.table.enqueue(request)
        return PermitAnswer(decision=answer.decision, reason=answer.reason, holder=self._grantor.holder)

    def opens(self, request: PermitRequest) -> bool:
        """Whether another episode is being opened under the id of the one that asks."""
        line = self.table.of(request.node)
        if line is None or line.holding is not PermitState.RESERVED:
            return False
        return line.workflow_id == request.workflow_id and line.incident != request.incident

    def take_release(self, release: Release) -> None:
        """An episode ended or parked. Its node is left alone until a scan that is younger than its end."""
        self._note_power(release)
        self._note_attempt(release)
        self._note_replacement(release)
        if release.parked:
            self.table.park(release.node, release.incident)
            return
        self.table.remove(release.node, release.incident)
        self._settling.add(release.node)
        self._released_at = self._closing() | {release.incident: workflow.now()}
        if release.outcome in {Outcome.ABORTED.value, Outcome.FENCED_OFF.value}:
            reason = f"{release.problem} (incident {release.incident}); until it has been healthy once or a person asks"
            self._held_off[release.node] = Backoff(node=release.node, reason=reason)
        elif release.problem and release.outcome in {Outcome.RELEASED.value, Outcome.REFUSED.value}:
            until = workflow.now() + AFTER_REFUSAL
            if release.vetoed_until is not None:
                until = max(until, min(release.vetoed_until, workflow.now() + AFTER_VETO))
            self._held_off[release.node] = Backoff(node=release.node, reason=release.problem, until=until)
        self._hold_off_after_failures(release)

    def _note_power(self, release: Release) -> None:
        """The later of the two commands is what the quiet time counts from."""
        moments = [(release.powered_on_at, True), (release.powered_off_at, False)]
        known = [PowerMoment(node=release.node, on=on, at=at) for at, on in moments if at is not None]
        if known:
            self._power[release.node] = max(known, key=lambda moment: moment.at)

    def _note_attempt(self, release: Release) -> None:
        """Count failures in a row (S19): an episode that could not begin, or that has parked. One that people stopped or vetoed
        has not failed, and one that was never granted was none; any other end is a success."""
        permit = self.table.of(release.node)
        if permit is None or permit.incident != release.incident or permit.holding is PermitState.PARKED:
            return
        if release.parked or release.outcome == Outcome.REFUSED.value:
            before = self._attempts.get(release.node)
            failed = (before.failed if before is not None else 0) + 1
            self._attempts[release.node] = Attempts(node=release.node, failed=failed, at=workflow.now())
        elif release.outcome != Outcome.RELEASED.value:
            self._attempts.pop(release.node, None)

    def _note_replacement(self, release: Release) -> None:
        """What its owner has made in its place was told what to remember a moment ago; reports may not know that yet."""
        now, permit = workflow.now(), self.table.of(release.node)
        self._replaced = [each for each in self._replaced if each.until is not None and each.until > now]
        if permit is not None and permit.incident == release.incident and permit.owner and not release.parked:
            self._replaced.append(
                Replacing(owner=permit.owner, node=permit.node, since=permit.granted_at, until=now + TOLD_LATELY)
            )

    def _hold_off_after_failures(self, release: Release) -> None:
        attempts, held = self._attempts.get(release.node), self._held_off.get(release.node)
        until = left_alone_until(attempts, self._policies) if attempts is not None else None
        if attempts is None or until is None or until <= workflow.now():
            return
        if held is None or (held.until is not None and held.until < until):
            reason = f"attempts failed in a row: {attempts.failed}, the last one with: {release.problem}"
            self._held_off[release.node] = Backoff(node=release.node, reason=reason, until=until)

    def _closing(self) -> dict[str, datetime]:
        """The incidents that have just been released for good, and when."""
        return {incident: at for incident, at in self._released_at.items() if workflow.now() - at < CLOSING}

    def hear_due(self) -> None:
        """A moment that has come is waited for no more; what it meant the next admission says."""
        if self.due is not None and self.due <= workflow.now():
            self.due = None

    def hear_report(self) -> None:
        """A scan has come in after every release heard so far: what it says of their nodes may be believed again. It may be older
        than the latest by a moment, and the worker's view a little older still; for marks that is what `CLOSING` is for."""
        self._settling.clear()

    def answer_look(self, asked: PermitQuestion, report: ScanReport | None) -> PermitQuestion:
        """Whether that incident may disrupt that node now, and why not (S14, S20)."""
        permit = self.table.of(asked.node)
        if permit is None or permit.incident != asked.incident or permit.holding is PermitState.PARKED:
            reason = f"the permit of {asked.node} is held by {permit.incident if permit else 'nobody'}"
        else:
            reason = self._guard(permit, report)
        return replace(asked, held=not reason, reason=reason)

    def _guard(self, permit: Permit, report: ScanReport | None) -> str:
        """Why this control-plane member may not be taken *now*, whatever was true when its permit was granted (S15); "" else."""
        if not permit.control_plane or report is None:
            return ""
        seen = next((each for each in report.observations if each.node == permit.node), None)
        lines = self.table.permits()
        others = {each.node for each in lines if each.control_plane is not False and each.node != permit.node}
        return control_plane_guard(
            report.control_plane.members,
            report.control_plane.ready,
            target_ready=seen is None or seen.ready,
            open_member_episodes=others,
            removes=permit.removes,
            is_member=bool(permit.node_uid),
        )

    async def describe_holders(self, report: ScanReport) -> bool:
        """Release what has closed without our hearing of it, and learn what became of unknown openings.

        Returns whether that changed the table.
        """
        if not self.known:
            return False  # whoever is found while the table is built is no stranger
        marked = (seen.node for seen in report.observations if seen.incident)
        nodes = tuple(sorted({*self.table.nodes(), *marked}))
        due = self.described_at is None or workflow.now() - self.described_at >= DESCRIBE_EVERY
        if nodes and due:
            self.described_at = workflow.now()
            before = self.table.permits(), self.table.queue()
            await self._describe(nodes)
            return before != (self.table.permits(), self.table.queue())
        return False

    # Opening --------------------------------------------------------------------------------------------------------

    def _reserve(self, candidate: Candidate, *, holding: PermitState = PermitState.RESERVED) -> FencingInput | RemediationInput:
        """A line for it, and what its episode begins with. holding: parked for one that only asks a person."""
        incident = workflow.uuid4().hex[:12]
        self.table.put(
            Permit(
                node=candidate.node,
                workflow_id=episode_id(self._grantor.cluster, candidate.node),
                incident=incident,
                kind=Kind.REMEDIATION if candidate.ladder else Kind.FENCING,
                holding=holding,
                granted_at=workflow.now(),
                provider_id=candidate.provider_id,
                zone=candidate.zone,
                control_plane=candidate.control_plane,
                reason=candidate.reason,
                node_uid=candidate.uid,
                groups=candidate.groups,
                checks=tuple(key for key, _ in candidate.in_flight),
                owner=candidate.owner,
                removes=removes(candidate.ladder),
            )
        )
        need = Need(
            kind=candidate.need,
            reason=f"{candidate.check.key}: {candidate.message or candidate.reason}",
            check=candidate.check,
            requester=candidate.check.key,
            since=candidate.since if candidate.dated else None,
            cause=candidate.reason,
            object_uid=candidate.object_uid,
            delegate=candidate.delegate,
        )
        if candidate.ladder:
            return RemediationInput(
                cluster=self._grantor.cluster,
                node=candidate.node,
                machine=candidate.machine_ref,
                machine_uid=candidate.machine_uid,
                node_uid=candidate.uid,
                reason=need.reason,
                requester=need.requester,
                incident=incident,
                holder=self._grantor.holder,
                need=need,
                ladder=candidate.ladder,
                failed=candidate.failed,
                retry=candidate.retry,
                exhausted=candidate.exhausted,
                memory=candidate.memory,
                permit_granted=holding is not PermitState.PARKED,
            )
        return FencingInput(
            cluster=self._grantor.cluster,
            node=candidate.node,
            node_uid=candidate.uid,
            reason=need.reason,
            requester=need.requester,
            incident=incident,
            need=need,
            template=candidate.template,
            permit_granted=True,
            holder=self._grantor.holder,
        )

    def _reserve_clean_up(self, orphan: Observation) -> FencingInput:
        """A healthy node with the mark of an episode that is not open."""
        reason = f"carries the mark of incident {orphan.incident}, which is not open"
        incident = self._keep_a_line(orphan.node, orphan.uid, Kind.FENCING, reason)
        return FencingInput(
            cluster=self._grantor.cluster,
            node=orphan.node,
            node_uid=orphan.uid,
            reason=reason,
            incident=incident,
            need=Need(kind=NeedKind.CLEAN_UP, reason=reason, requester=workflow.info().workflow_id),
            permit_granted=True,
            holder=self._grantor.holder,
        )

    def _reserve_left_over(self, found: LeftOver) -> RemediationInput:
        """An object that an earlier episode has left behind: it is followed and deleted."""
        incident = self._keep_a_line(found.node, found.node_uid, Kind.REMEDIATION, found.reason)
        requester = workflow.info().workflow_id
        return RemediationInput(
            cluster=self._grantor.cluster,
            node=found.node,
            machine=found.machine_ref,
            machine_uid=found.machine_uid,
            node_uid=found.node_uid,
            reason=found.reason,
            requester=requester,
            incident=incident,
            holder=self._grantor.holder,
            need=Need(kind=NeedKind.CHECK, reason=found.reason, check=found.check, requester=requester),
            ladder=(found.step,),
            adopts=found.name,
        )

    def _keep_a_line(self, node: str, uid: str, kind: Kind, reason: str) -> str:
        """The incident of an episode that disrupts nothing, and so counts in no budget; its node is held all the same."""
        incident = workflow.uuid4().hex[:12]
        self.table.put(
            Permit(
                node=node,
                workflow_id=episode_id(self._grantor.cluster, node),
                incident=incident,
                kind=kind,
                holding=PermitState.PARKED,
                granted_at=workflow.now(),
                reason=reason,
                node_uid=uid,
            )
        )
        return incident

    async def _open(self, inputs: list[FencingInput | RemediationInput]) -> None:
        request = OpenRequest(
            cluster=self._grantor.cluster,
            episodes=tuple(each for each in inputs if isinstance(each, FencingInput)),
            remediations=tuple(each for each in inputs if isinstance(each, RemediationInput)),
        )
        names = ", ".join(episode.node for episode in inputs)
        try:
            result = await workflow.execute_activity_method(
                EpisodeActivities.open, request, **(options.temporal_call() | {"summary": f"opens episodes: {names}"})
            )
        except ActivityError as error:
            self.problem = f"episodes can't be opened: {error_message(error)}"
            self.described_at = None  # what became of them is unknown: the reservations count until described (S14)
            return
        self.problem = ""
        for outcome in result.outcomes:
            self._take_outcome(outcome)

    def _take_outcome(self, outcome: OpenOutcome) -> None:
        if outcome.opened in {Opened.STARTED, Opened.JOINED}:
            self.table.opened(outcome.node, outcome.incident)
            self.opened += outcome.opened is Opened.STARTED
            return
        self.table.remove(outcome.node, outcome.incident)
        until = None if outcome.opened is Opened.HELD_OFF else workflow.now() + AFTER_REFUSAL
        reason = outcome.reason or outcome.holder
        self._held_off[outcome.node] = Backoff(node=outcome.node, reason=reason, until=until, holder=outcome.holder)

    async def _serve_queue(self, report: ScanReport) -> None:
        for waiting in self.table.queue():
            request = replace(waiting, ready=True)  # it may have come back since it asked; the guard counts it as a loss
            if self._answer(report, request).decision is not Decision.GRANTED:
                continue
            self._grant(request, report)
            try:
                await workflow.get_external_workflow_handle(request.workflow_id).signal("permit_granted")
            except (ApplicationError, FailureError) as error:
                workflow.logger.warning("%s no longer waits for its permit: %s", request.workflow_id, error)
                self.table.remove(request.node, request.incident)

    def _grant(self, request: PermitRequest, report: ScanReport) -> None:
        self.table.put(
            Permit(
                node=request.node,
                workflow_id=request.workflow_id,
                incident=request.incident,
                kind=request.kind,
                holding=PermitState.OPEN,
                granted_at=workflow.now(),
                provider_id=request.provider_id,
                zone=request.zone,
                control_plane=request.control_plane,
                reason=request.reason,
                node_uid=request.node_uid,
                groups=groups_of(report, request.node),
                owner=request.owner,
                removes=request.removes,
            )
        )

    # Holding off ----------------------------------------------------------------------------------------------------

    def _just_ended(self) -> list[Backoff]:
        """Nodes whose episode ended after the last report was made: it still shows them as they were."""
        return [Backoff(node=node, reason="its episode has just ended; the next scan decides") for node in sorted(self._settling)]

    def _forget(self, report: ScanReport) -> None:
        """A held-off node is free again when its time is over, or once a live view sees it well, or gone.

        That it is no candidate says nothing: under a closed brake, or without its check, the sickest node is none.
        """
        self._policies = report.policies
        quiet = report.policies.quiet_time or timedelta(0)
        self._power = {node: moment for node, moment in self._power.items() if workflow.now() - moment.at < quiet}
        remembered = max(FAILURES_REMEMBERED, 2 * report.policies.pause)
        self._attempts = {node: each for node, each in self._attempts.items() if workflow.now() - each.at < remembered}
        now, seen = workflow.now(), {each.node: each for each in report.observations} if not report.view.stale else {}
        self._held_off = {
            node: held
            for node, held in self._held_off.items()
            if (held.until is None or held.until > now) and not (node in seen and _well_or_gone(seen[node]))
        }

    async def _describe(self, nodes: tuple[str, ...], report: ScanReport | None = None) -> bool:
        """Ask what the nodes' episodes do. report: where the table is built anew, by whose policies it is filled."""
        asked_at, described = workflow.now(), list[EpisodeDescription]()
        for first in range(0, len(nodes), DESCRIBED_AT_ONCE):
            request = DescribeRequest(cluster=self._grantor.cluster, nodes=nodes[first : first + DESCRIBED_AT_ONCE])
            try:
                result = await workflow.execute_activity_method(
                    EpisodeActivities.describe,
                    request,
                    **(options.temporal_call() | {"summary": "describes the holders of permits"}),
                )
            except ActivityError as error:
                self.problem = f"holders can't be described: {error_message(error)}"
                return False
            described += result.episodes
        self.problem = ""
        for episode in sorted(described, key=lambda each: (each.started or asked_at, each.node)):
            released_at = self._released_at.get(episode.incident)
            if not episode.open or released_at is None or asked_at - released_at >= CLOSING:
                # Who was granted by a predecessor keeps it, as far as the cap goes; later strangers must ask (S14, S15, S17).
                room = not self.known and self.table.counted() < self.cap(report)
                room = room and report is not None and room_in_scopes(report, self.table.permits(), episode.node)
                self.table.reconcile(episode, asked_at, room=room)
        return True

    async def _find_open(self) -> FoundOpen | None:
        """None where they could not be listed: the problem says why."""
        try:
            return await workflow.execute_activity_method(
                EpisodeActivities.find_open,
                FindRequest(cluster=self._grantor.cluster),
                **(options.temporal_call() | {"summary": "lists the open episodes of the cluster"}),
            )
        except ActivityError as error:
            self.problem = f"no permit is granted before all open episodes are known: {error_message(error)}"
            return None


def _well_or_gone(seen: Observation) -> bool:
    """Whether nothing ails the node any more, or there is neither a node nor a Machine of it: what comes is another one."""
    return (not seen.present and not seen.others) or (seen.ready and not seen.unhealthy and not seen.soon)
