"""Which nodes may be disrupted now: the scanner's decision over one report and its permits, with the reason for every "no".

`admit` decides about what a report offers, `answer_request` about an episode that asks; both ask the one ordered list of
`policy/scan/permit_rules.py`. The same report, permits and moment give the same answer, so a scanner may decide again at any
time. The ledger has judged before which targets are unhealthy and which circuit breakers are open (`policy/scan/ledger.py`); a
live look follows before each act (`activities/cluster/`). Acts that restore a node never pass through here (S17).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from policy.checks.circuit_breakers import OpenReason
from policy.checks.fence_policies import PowerMoment
from policy.episode.messages import NeedKind, SeenNode
from policy.episode.node_action import CIRCUIT_BREAKER
from policy.episode.permits import Permit, PermitAnswer, PermitDecision, PermitRequest, PermitState, Replacing
from policy.remediation.ladder import removes
from policy.scan.permit_rules import (
    OVERRIDABLE,
    AdmissionRefusal,
    Applicant,
    Asker,
    HeldOffNode,
    Identity,
    Occupancy,
    beside_mode,
    checks_of,
    groups_of,
    may_be_successor,
    objections,
    quorum,
)
from policy.scan.scan_report import Candidate, ScanReport
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A candidate that may not be acted on now, and why; becomes a `RemediationSkipped` Event on its check. reason: an
    `AdmissionRefusal`, or what a newer scanner says."""

    node: str
    check: ObjectRef
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Every candidate of the report is in exactly one of the three groups. exhausted: only a person can help it any more, so an
    episode asks one. again: when the first candidate that waits for nothing but time is due. in_repair: of those that the mode
    refuses, what would have refused them in mode repair."""

    admitted: tuple[Candidate, ...] = ()
    refused: tuple[Refused, ...] = ()
    exhausted: tuple[Candidate, ...] = ()
    in_repair: tuple[Refused, ...] = ()
    again: datetime | None = None


def admit(
    report: ScanReport,
    permits: Iterable[Permit],
    *,
    cap: int,
    now: datetime,
    held_off: Iterable[HeldOffNode] = (),
    power: Iterable[PowerMoment] = (),
    replaced: Iterable[Replacing] = (),
    paused: str = "",
) -> Admission:
    """Which candidates get a permit now: oldest offence first, then by name. The caller reserves the permits before it acts on
    this (S14).

    cap: at once in the whole cluster, unless the fence policies say another number. For the others see `Occupancy`.
    """
    replaced = tuple(replaced)
    room = Occupancy(report, permits, cap=cap, now=now, held_off=held_off, power=power, replaced=replaced, paused=paused)
    admitted: list[Candidate] = []
    refused: list[Refused] = []
    in_repair: list[Refused] = []
    exhausted: list[Candidate] = []
    due: list[datetime] = []
    for candidate in sorted(report.candidates, key=lambda candidate: (candidate.since, candidate.node)):
        applicant = _offered(candidate)
        why = next(objections(applicant, room), None)
        if why is not None:
            refused.append(Refused(node=candidate.node, check=candidate.check, reason=why.code, message=why.message))
            if why.code is AdmissionRefusal.MODE and (no := beside_mode(objections(applicant, room), applicant)) is not None:
                in_repair.append(Refused(node=candidate.node, check=candidate.check, reason=no.code, message=no.message))
            if why.code is AdmissionRefusal.RETRY_LATER and candidate.not_before is not None:
                due.append(candidate.not_before)
            elif why.code is AdmissionRefusal.REPLACEMENT:
                due += [each.until for each in replaced if each.until is not None and may_be_successor(candidate, each)]
        elif candidate.exhausted:
            exhausted.append(candidate)
        else:
            room.reserve(candidate)
            admitted.append(candidate)
    return Admission(
        admitted=tuple(admitted),
        refused=tuple(refused),
        exhausted=tuple(exhausted),
        in_repair=tuple(in_repair),
        again=min(due, default=None),
    )


def _offered(candidate: Candidate) -> Applicant:
    asked_for = candidate.need is NeedKind.FOREIGN_OBJECT
    return Applicant(
        asker=Asker.LAST_RESORT if candidate.exhausted else Asker.SCAN,
        node=candidate.node,
        uid=candidate.uid,
        provider_id=candidate.provider_id,
        ready=candidate.ready,
        ready_now=candidate.ready,
        control_plane=candidate.control_plane,
        removes=removes(candidate.ladder),
        groups=candidate.groups,
        checks=frozenset(candidate.checks),
        needs_closed=None if asked_for else (candidate.check.key,),
        spends=candidate.healthy_under,
        # The operator that asks us looks after its own checks; that is no open circuit breaker.
        passes=frozenset({OpenReason.OBSERVE_ONLY}) if asked_for else frozenset(),
        candidate=candidate,
        impossible=candidate.refused,
        vetoed_by=candidate.vetoed_by,
    )


def answer_request(
    report: ScanReport | None,
    permits: Iterable[Permit],
    request: PermitRequest,
    *,
    cap: int,
    ahead: int = 0,
    now: datetime | None = None,
    power: Iterable[PowerMoment] = (),
    held_off: Iterable[HeldOffNode] = (),
    paused: str = "",
    counted_under: Collection[str] = (),
) -> PermitAnswer:
    """The answer to an open episode that asks for a permit; see `Occupancy` for what it is compared with.

    An incident that holds the node already is granted again, except during a pause (S44). counted_under: the checks that counted
    it when it had its last permit. A person's override passes the circuit breakers of checks, and nothing else (S17).
    """
    room = Occupancy(report, permits, cap=cap, ahead=ahead, now=now, held_off=held_off, power=power, paused=paused)
    applicant = _asking(report, request, room, counted_under)
    if (why := next(objections(applicant, room), None)) is not None:
        decision = PermitDecision.QUEUED if why.waits else PermitDecision.REFUSED
        return PermitAnswer(decision=decision, reason=why.message, rule=why.code)
    if applicant.asker is Asker.HOLDER:
        return PermitAnswer(decision=PermitDecision.GRANTED, reason="the permit is held already")
    return PermitAnswer(decision=PermitDecision.GRANTED, reason=f"{len(room.names) + 1} of {room.cap} permits are held now")


def _asking(report: ScanReport | None, request: PermitRequest, room: Occupancy, counted_under: Collection[str]) -> Applicant:
    identity = Identity(request.node, request.node_uid, request.provider_id)
    mine = [each for each in room.holders(identity) if each.incident == request.incident]
    holds = any(each.state is not PermitState.PARKED for each in mine)
    seen = report.seen_nodes if report is not None else ()
    checks = checks_of(report, request.node) if report is not None else None
    return Applicant(
        asker=Asker.HOLDER if holds else Asker.PERSON if request.by_person else Asker.EPISODE,
        node=request.node,
        uid=request.node_uid,
        provider_id=request.provider_id,
        incident=request.incident,
        kind=request.kind,
        ready=request.ready,
        # What was seen of the node; else what its episode says, which assumes the worse.
        ready_now=next((each.ready for each in seen if each.node == request.node and each.present), request.ready),
        control_plane=request.control_plane,
        removes=request.removes,
        groups=groups_of(report, request.node) if report is not None else (),
        checks=checks.union(counted_under) if checks is not None else None,
        passes=OVERRIDABLE if request.override == CIRCUIT_BREAKER else frozenset(),
    )


def quorum_objection(report: ScanReport, permits: Iterable[Permit], permit: Permit) -> str:
    """Why the control-plane member that holds that permit may not be disrupted *now*, whatever was true when it was granted
    (S15), "" where it may. A node that is not known to be a member or not is treated as one."""
    if permit.control_plane is False:
        return ""
    # A node of which the episode has just been opened is seen with the next report; in this one it is a candidate.
    known = (each.ready for each in (*report.seen_nodes, *report.candidates) if each.node == permit.node)
    member = Applicant(
        asker=Asker.HOLDER,
        node=permit.node,
        uid=permit.node_uid,
        ready=next(known, True),
        control_plane=True,
        removes=permit.removes,
    )
    unknown = f"it is not known yet whether {permit.node} is of the control plane: " if permit.control_plane is None else ""
    why = quorum(member, Occupancy(report, permits, cap=0))
    return f"{unknown}{why}" if why else ""


def room_in_scopes(report: ScanReport, permits: Iterable[Permit], node: str) -> bool:
    """Whether the caps of all scopes leave room for an episode of the node that is found to be open."""
    others = [permit for permit in permits if permit.node != node]
    return not Occupancy(report, others, cap=0).full_group(groups_of(report, node))


def orphans(seen_nodes: Iterable[SeenNode], known_open: Collection[str]) -> tuple[SeenNode, ...]:
    """Nodes that are well, but carry the mark of an incident that is not open: candidates for a clean-up (S35).

    A node that is not Ready, or that has a timeout running, is left alone: if it stays so it gets an episode, which adopts the
    marks. A person has to look at a mark that can't be read, and a mark on a preserved node may belong to its preservation.
    known_open: the incidents of all permits, parked ones too.
    """
    return tuple(
        seen
        for seen in sorted(seen_nodes, key=lambda seen: seen.node)
        if seen.present and seen.incident and not seen.mark_problem and seen.incident not in known_open
        and seen.ready and not seen.unhealthy and not seen.soon and not seen.preserved
    )  # fmt: skip
