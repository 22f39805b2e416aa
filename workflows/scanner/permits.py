"""The scanner's permits: which requests and last looks they allow, and with which permit and input an episode begins.

Each rule is a row of `policy/scan/permit_rules.py`. When to ask is `workflows/definitions/scanner.py`.
"""

from __future__ import annotations

from dataclasses import replace

from temporalio import workflow

from policy.episode.messages import FencingInput, Kind, Need, NeedKind, Observation, RemediationInput, episode_id
from policy.episode.permits import Permit, PermitAnswer, PermitQuestion, PermitRequest, PermitState
from policy.remediation.ladder import removes
from policy.scan import pauses
from policy.scan.admission import answer_request, quorum_objection
from policy.scan.permit_rules import checks_of, groups_of
from policy.scan.scan_report import Candidate, LeftOver, ScanReport
from workflows.scanner import backoff
from workflows.scanner.holders import strangers
from workflows.scanner.state import ScannerInput, ScannerState


class Permits:
    """Of one scanner. A permit is written before its episode is opened (S14)."""

    def __init__(self, scanner: ScannerInput, state: ScannerState) -> None:
        self._scanner = scanner
        self._state = state

    # What counts, and who may --------------------------------------------------------------------------------------

    def counted(self, report: ScanReport, own: Permit | None = None) -> tuple[Permit, ...]:
        """The permits, and what counts without one: marked strangers, and episodes that were found and wait for their permit,
        which may have done anything under the one they had (S14). own: the permit of the one that asks. If each of those that
        were found waited for the others, none would ever go on.
        """
        marks = {each.incident for each in report.observations} if own is None or not own.found else set[str]()
        waiting = marks.intersection(each.incident for each in self._state.queue)
        permits = (
            replace(permit, holding=PermitState.OPEN) if permit.found and permit.incident in waiting else permit
            for permit in self._state.permits.values()
            if permit is not own
        )
        return (*permits, *strangers(self._scanner.cluster, self._state, report))

    def answer(self, report: ScanReport, request: PermitRequest, *, ahead: int = 0) -> PermitAnswer:
        """Decide the request of an open episode. Its own parked permit is not in its way. ahead: how many requests come before
        it."""
        state = self._state
        permit = state.permits.get(request.node)
        parked = permit is not None and permit.incident == request.incident and permit.holding is PermitState.PARKED
        own = permit if parked else None
        # A mark without a permit is its own, or of one that has ended: it has the id that both would have.
        others = tuple(each for each in self.counted(report, own) if permit is not None or each.node != request.node)
        return answer_request(
            report,
            others,
            request,
            cap=self._scanner.concurrency,
            ahead=ahead,
            now=workflow.now(),
            # What a parked episode did to the power is its own affair.
            power=() if own is not None else tuple(state.power.values()),
            held_off=backoff.against_requests(state),
            paused=pauses.described(pauses.in_force(state.pauses, workflow.now())),
            counted_under=own.checks if own is not None else (),
        )

    def look(self, asked: PermitQuestion, *, halted: str) -> PermitQuestion:
        """Whether that incident may disrupt that node now, and why not (S14, S20). halted: why no node may be disrupted, by a
        person's request; "": none has asked for that."""
        permit, report = self._state.permits.get(asked.node), self._state.report
        if permit is None or permit.incident != asked.incident or permit.holding is PermitState.PARKED:
            reason = f"the permit of {asked.node} is held by {permit.incident if permit else 'no episode'}"
        elif permit.override and asked.override != permit.override:
            reason = f"the permit of {asked.node} overrides a {permit.override}, and no NodeAction attests that a person does"
        else:
            # Whatever was true when its permit was granted.
            reason = halted or (quorum_objection(report, self.counted(report), permit) if report is not None else "")
        return replace(asked, held=not reason, reason=reason, paused=halted)

    # Permits, and what their episodes begin with ----------------------------------------------------------------------

    def reserve_for_candidate(
        self, candidate: Candidate, *, holding: PermitState = PermitState.RESERVED
    ) -> FencingInput | RemediationInput:
        """holding: parked for one that only asks a person."""
        permit = Permit(
            node=candidate.node,
            workflow_id=episode_id(self._scanner.cluster, candidate.node),
            incident=_new_incident(),
            kind=Kind.REMEDIATION if candidate.ladder else Kind.FENCING,
            holding=holding,
            granted_at=workflow.now(),
            provider_id=candidate.provider_id,
            zone=candidate.zone,
            control_plane=candidate.control_plane,
            reason=candidate.reason,
            node_uid=candidate.uid,
            groups=candidate.groups,
            checks=candidate.checks,
            healthy_under=candidate.healthy_under,
            owner=candidate.owner,
            removes=removes(candidate.ladder),
        )
        self._state.put(permit)
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
        if not candidate.ladder:
            return replace(self._fencing(permit, need), template=candidate.template)
        return replace(
            self._remediation(permit, need, candidate),
            ladder=candidate.ladder,
            failed=candidate.failed,
            retry=candidate.retry,
            exhausted=candidate.exhausted,
            memory=candidate.memory,
            permit_granted=holding is not PermitState.PARKED,
        )

    def reserve_for_clean_up(self, orphan: Observation) -> FencingInput:
        """A healthy node with the mark of an episode that is not open."""
        reason = f"carries the mark of incident {orphan.incident}, which is not open"
        permit = self._reserve_without_disruption(orphan.node, orphan.uid, Kind.FENCING, reason)
        return self._fencing(permit, Need(kind=NeedKind.CLEAN_UP, reason=reason, requester=workflow.info().workflow_id))

    def reserve_for_left_over(self, found: LeftOver) -> RemediationInput:
        """An object that an earlier episode has left behind: it is followed and deleted."""
        permit = self._reserve_without_disruption(found.node, found.node_uid, Kind.REMEDIATION, found.reason)
        need = Need(kind=NeedKind.CHECK, reason=found.reason, check=found.check, requester=workflow.info().workflow_id)
        return replace(self._remediation(permit, need, found), ladder=(found.step,), adopts=found.name)

    def grant(self, request: PermitRequest, report: ScanReport) -> None:
        """The permit of an open episode that has asked. The checks that counted under the one it had go on counting (S14), and
        one that it holds stays past the circuit breaker that it was granted past, whatever it asks for by now (S17)."""
        before = self._state.permits.get(request.node)
        known = before if before is not None and before.incident == request.incident else None
        checks = checks_of(report, request.node)
        self._state.put(
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
                checks=tuple(sorted({*(checks or ()), *(known.checks if known is not None else ())})),
                healthy_under=known.healthy_under if known is not None else (),
                found=checks is None and (known is None or known.found),
                owner=request.owner,
                removes=request.removes,
                override=known.override if known is not None and known.holding is not PermitState.PARKED else request.override,
            )
        )

    def _reserve_without_disruption(self, node: str, uid: str, kind: Kind, reason: str) -> Permit:
        """Such an episode counts in no budget; its node is held all the same."""
        permit = Permit(
            node=node,
            workflow_id=episode_id(self._scanner.cluster, node),
            incident=_new_incident(),
            kind=kind,
            holding=PermitState.PARKED,
            granted_at=workflow.now(),
            reason=reason,
            node_uid=uid,
        )
        self._state.put(permit)
        return permit

    def _fencing(self, permit: Permit, need: Need) -> FencingInput:
        return FencingInput(
            cluster=self._scanner.cluster,
            node=permit.node,
            node_uid=permit.node_uid,
            reason=need.reason,
            requester=need.requester,
            incident=permit.incident,
            need=need,
            permit_granted=True,
            holder=self._state.holder,
        )

    def _remediation(self, permit: Permit, need: Need, victim: Candidate | LeftOver) -> RemediationInput:
        return RemediationInput(
            cluster=self._scanner.cluster,
            node=permit.node,
            machine=victim.machine_ref,
            machine_uid=victim.machine_uid,
            node_uid=permit.node_uid,
            reason=need.reason,
            requester=need.requester,
            incident=permit.incident,
            holder=self._state.holder,
            need=need,
        )


def _new_incident() -> str:
    return workflow.uuid4().hex[:12]
