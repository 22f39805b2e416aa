"""The line in the permit table that comes before an episode is opened (S14), and what that episode begins with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from temporalio import workflow

from policy.episode.ids import episode_id
from policy.episode.messages import FencingInput, Kind, Observation, RemediationInput
from policy.episode.needs import Need, NeedKind
from policy.episode.permits import Permit, PermitRequest, PermitState
from policy.remediation.ladder import removes
from policy.scan.permit_rules import checks_of, groups_of
from policy.scan.scan_report import Candidate, LeftOver, ScanReport
from workflows.scanner.permit_table import PermitTable


@dataclass(slots=True, kw_only=True)
class Grantor:
    """In whose name permits are granted, and how many at once. holder: "" until the scanner has learnt its name."""

    cluster: str
    holder: str
    concurrency: int

    def cap(self, report: ScanReport | None) -> int:
        """How many nodes may be disrupted at once: as the cluster's fence policies say, else as we were told."""
        return (report.policies.cap if report is not None else None) or self.concurrency


class Reserving:
    """Writes lines into the table of one scanner."""

    def __init__(self, grantor: Grantor, table: PermitTable) -> None:
        self._grantor = grantor
        self._table = table

    def for_candidate(
        self, candidate: Candidate, *, holding: PermitState = PermitState.RESERVED
    ) -> FencingInput | RemediationInput:
        """holding: parked for one that only asks a person."""
        line = self._put(
            Permit(
                node=candidate.node,
                workflow_id=episode_id(self._grantor.cluster, candidate.node),
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
        if not candidate.ladder:
            return replace(self._fencing(line, need), template=candidate.template)
        return replace(
            self._remediation(line, need, candidate),
            ladder=candidate.ladder,
            failed=candidate.failed,
            retry=candidate.retry,
            exhausted=candidate.exhausted,
            memory=candidate.memory,
            permit_granted=holding is not PermitState.PARKED,
        )

    def for_clean_up(self, orphan: Observation) -> FencingInput:
        """A healthy node with the mark of an episode that is not open."""
        reason = f"carries the mark of incident {orphan.incident}, which is not open"
        line = self._harmless(orphan.node, orphan.uid, Kind.FENCING, reason)
        return self._fencing(line, Need(kind=NeedKind.CLEAN_UP, reason=reason, requester=workflow.info().workflow_id))

    def for_left_over(self, found: LeftOver) -> RemediationInput:
        """An object that an earlier episode has left behind: it is followed and deleted."""
        line = self._harmless(found.node, found.node_uid, Kind.REMEDIATION, found.reason)
        need = Need(kind=NeedKind.CHECK, reason=found.reason, check=found.check, requester=workflow.info().workflow_id)
        return replace(self._remediation(line, need, found), ladder=(found.step,), adopts=found.name)

    def for_request(self, request: PermitRequest, report: ScanReport) -> None:
        """An open episode that has asked. What its line counted under it goes on counting under (S14), and a permit that it holds
        stays past the circuit breaker that it was granted past, whatever it asks for by now (S17)."""
        before = self._table.of(request.node)
        known = before if before is not None and before.incident == request.incident else None
        checks = checks_of(report, request.node)
        self._put(
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

    def _harmless(self, node: str, uid: str, kind: Kind, reason: str) -> Permit:
        """Of an episode that disrupts nothing, and so counts in no budget; its node is held all the same."""
        return self._put(
            Permit(
                node=node,
                workflow_id=episode_id(self._grantor.cluster, node),
                incident=_new_incident(),
                kind=kind,
                holding=PermitState.PARKED,
                granted_at=workflow.now(),
                reason=reason,
                node_uid=uid,
            )
        )

    def _put(self, line: Permit) -> Permit:
        self._table.put(line)
        return line

    def _fencing(self, line: Permit, need: Need) -> FencingInput:
        return FencingInput(
            cluster=self._grantor.cluster,
            node=line.node,
            node_uid=line.node_uid,
            reason=need.reason,
            requester=need.requester,
            incident=line.incident,
            need=need,
            permit_granted=True,
            holder=self._grantor.holder,
        )

    def _remediation(self, line: Permit, need: Need, victim: Candidate | LeftOver) -> RemediationInput:
        return RemediationInput(
            cluster=self._grantor.cluster,
            node=line.node,
            machine=victim.machine_ref,
            machine_uid=victim.machine_uid,
            node_uid=line.node_uid,
            reason=need.reason,
            requester=need.requester,
            incident=line.incident,
            holder=self._grantor.holder,
            need=need,
        )


def _new_incident() -> str:
    return workflow.uuid4().hex[:12]
