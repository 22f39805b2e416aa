"""Who is to be acted on first, under which check, and what keeps others from being acted on at all.

Every victim that something ails, and every wish of another system, in the order in which they go into a report; cut to its size.
Who of them is really admitted is `policy/scan/admission.py`; what else a report shows `policy/scan/report_builder.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from typing import NamedTuple

from policy.checks.circuit_breakers import OpenReason
from policy.checks.health_check import HealthCheck, Overlap
from policy.checks.targets import NEVER, JudgedTarget
from policy.checks.verdicts import Standing, Verdict
from policy.episode.fencing_requests import FencingRequest, Stage
from policy.episode.gate import By, Objection, Operation, Seen, objection
from policy.episode.messages import NeedKind
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.objects.remediations import RemediationObject
from policy.objects.scopes import group_of
from policy.remediation.ladder import EscalationStep, body_of, fences_only, possible
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, turn_of
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.permit_rules import OF_FENCE_POLICIES, Applicant, Asker, ObjectLimits, PermitObjection, objections
from policy.scan.scan_report import MAXIMUM_CANDIDATES, Candidate
from policy.values.errors import PolicyError

MOST_UNCOUNTED = 5
"""How many requests of one namespace that no setting names a report shows: a flood of them leaves room for others (S46, S44)."""


class _Choice(NamedTuple):
    """Since when, under which check, by which of its targets, what can be done, and why not. vetoed_by: the gate's row that says
    so, "" where the check itself can have nothing done."""

    since: datetime
    key: str
    target: JudgedTarget
    verdict: Verdict
    steps: tuple[EscalationStep, ...]
    refused: str
    vetoed_by: str = ""


_Ranked = tuple[int, datetime, str, str, str, _Choice | None]
"""Rank, since, victim, check and why it can't be acted on: sorts as candidates go into the report. The choice behind it, None of
another system's request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateChoice:
    """The candidates, how many more there are, and of each check by which others how many of its targets are held back."""

    candidates: tuple[Candidate, ...]
    left_out: int
    waiting: Mapping[str, Counter[str]]


def choose(known: LedgerSnapshot, watching: frozenset[str]) -> CandidateChoice:
    """Those that go into a report. watching: nodes whose episodes are open."""
    ranked, waiting = _rank(known, watching)
    requests, untold = _rank_requests(known, watching)
    ranked += requests
    chosen = nsmallest(MAXIMUM_CANDIDATES, _spread(known, ranked))
    candidates = tuple(_candidate(known, victim, key, refused, choice) for _, _, victim, key, refused, choice in chosen)
    return CandidateChoice(candidates=candidates, left_out=len(ranked) + untold - len(candidates), waiting=waiting)


def _rank(known: LedgerSnapshot, watching: frozenset[str]) -> tuple[list[_Ranked], defaultdict[str, Counter[str]]]:
    """The candidates in brief, and for each check by which others its targets are held back.

    Unless checks are independent, every check that covers a victim has a say: one open circuit breaker is enough. Those that
    can be acted on go first, then those whose episode is open already, those that a limit of their scope, their own past or a
    check that can spare no more holds back, and those that can't be acted on, so that none of the latter crowds out the first.
    """
    ranked: list[_Ranked] = []
    waiting: defaultdict[str, Counter[str]] = defaultdict(Counter)
    spent = {key for key, breaker in known.breakers.items() if breaker.remaining < 1}
    for target, said, offended, closed in _offending(known, {key for key, breaker in known.breakers.items() if breaker.allowed}):
        victim, name = target.victim, target.victim_name
        if closed:
            for key in offended:
                waiting[key][closed[0]] += 1
            continue
        if name in known.exempt.unsettled:
            continue
        choice = _under_which(known, said, offended)
        since, key, refused = choice.since, choice.key, choice.refused
        alone = left_alone(known, victim, exempt=known.exempt.kept.get(name, ""))
        if alone is not None:
            refused, choice = alone.words, choice._replace(vetoed_by=alone.rule)
        for other in offended:
            if other != key:
                waiting[other][key] += 1
        # Admission refuses these, too (S17).
        spends_last = bool(spent) and not spent.isdisjoint(_healthy_under(known, victim))
        waits = spends_last or _put_off(known, target, offended) or fence_policy_objection(known, victim) is not None
        rank = 3 if refused else 1 if name in watching else 2 if waits else 0
        ranked.append((rank, since, victim, key, refused, choice))
    return ranked, waiting


def _put_off(known: LedgerSnapshot, target: JudgedTarget, offended: Iterable[str]) -> bool:
    """Whether its next remediation is not due yet. Rare: only what was remediated before is asked about at all."""
    turn = turn_of(target, [known.checks[key] for key in offended], known.now, retries=known.retries)
    return turn.not_before is not None and turn.not_before > known.now


def _offending(
    known: LedgerSnapshot, acting: Collection[str]
) -> Iterator[tuple[JudgedTarget, Mapping[str, list[tuple[JudgedTarget, Verdict]]], list[str], list[str]]]:
    """Each victim that one of the checks in `acting` would have acted on: one of its targets, what all checks say of it, which of
    those in `acting` would, and which others that hold them back."""
    if not acting:
        return
    seen: set[str] = set()
    for target in known.sick.values():
        if target.victim in seen:
            continue
        seen.add(target.victim)
        said = known.verdicts_on(target.victim)
        offended = [key for key, pairs in said.items() if key in acting and any(verdict.calls_for_action for _, verdict in pairs)]
        if offended:
            closed = sorted(key for key in said if key not in acting) if known.overlap is Overlap.STRICTEST else []
            yield target, said, offended, closed


def failing(known: LedgerSnapshot, watching: frozenset[str]) -> dict[str, datetime | None]:
    """Victims that a check calls unhealthy and that only a pool would keep from being acted on, by name, and since when it does.

    Under an open circuit breaker no node is acted on, so that none has to be kept: no preservation begins in a storm (S17). Where
    another controller acts on the check, the victims are those that it would act on. watching: nodes that an episode holds, or
    that are held off after one: what was decided of their failure stands.
    """
    acting = {
        key
        for key, breaker in known.breakers.items()
        if breaker.allowed or (breaker.reason is OpenReason.OBSERVE_ONLY and not breaker.breached)
    }
    found: dict[str, datetime | None] = {}
    for target, said, offended, closed in _offending(known, acting):
        victim = target.victim
        if closed or target.unseen or target.victim_name in watching:
            continue
        if left_alone(known, victim) or fence_policy_objection(known, victim) is not None:
            continue
        verdicts = [verdict for key in offended for _, verdict in said[key] if verdict.standing is Standing.UNHEALTHY]
        moments = [moment for verdict in verdicts if (moment := verdict.expired or verdict.since) is not None]
        if verdicts:
            found[target.victim_name] = min(moments, default=None)
    return found


def _spread(known: LedgerSnapshot, ranked: list[_Ranked]) -> list[_Ranked]:
    """Where a group may only have so many episodes at once, as many of each group go before the next ones of any: a rack whose
    nodes have all been ill for longest must not take every place on the list."""
    caps = known.policies.caps
    if not caps or len(ranked) <= MAXIMUM_CANDIDATES:
        return ranked
    before: Counter[str] = Counter()
    placed = []
    for each in sorted(ranked):
        rounds = 0
        for cap, group in ((each_cap, group_of(each_cap.scope, node)) for each_cap in caps for node in known.nodes_of(each[2])):
            rounds = max(rounds, before[group] // cap.cap)
            before[group] += 1
        placed.append((each[0], rounds, each))
    return [each for *_, each in sorted(placed)[:MAXIMUM_CANDIDATES]]


def judged_by_objects(known: LedgerSnapshot, victim: str, key: str = "") -> Applicant:
    """The victim as the rules of a permit are asked about it where objects alone are known. key: of the check that would act,
    "" where none is asked; unless checks are independent, the circuit breakers of all that cover the victim count with it."""
    nodes, alone = known.nodes_of(victim), left_alone(known, victim)
    covering = sorted(known.verdicts_on(victim)) if known.overlap is Overlap.STRICTEST else []
    return Applicant(
        asker=Asker.OBJECTS,
        node=victim,
        ready_now=any(node.ready for node in nodes),
        groups=tuple(group for node in nodes for group in known.groups.groups_of(node)),
        needs_closed=tuple(dict.fromkeys((key, *covering))) if key else (),
        spends=_healthy_under(known, victim) if key else (),
        impossible=alone.words if alone is not None else "",
        vetoed_by=alone.rule if alone is not None else "",
    )


def fence_policy_objection(known: LedgerSnapshot, victim: str) -> PermitObjection | None:
    """Which limit of the fence policies keeps new fencing from the victim, None where none does. Caps and quiet times are not
    among them: only the scanner knows who holds permits."""
    return next(objections(judged_by_objects(known, victim), ObjectLimits.of(known), OF_FENCE_POLICIES), None)


def _rank_requests(known: LedgerSnapshot, watching: frozenset[str]) -> tuple[list[_Ranked], int]:
    """What other systems ask for, and how many refused requests are left out. Their own circuit breakers have let them ask; ours
    are admission's."""
    ranked, strangers = list[_Ranked](), defaultdict[str, list[_Ranked]](list)
    for key, request in known.requests.items():
        if request.asks:
            if request.node in known.exempt.unsettled:
                continue
            refused = why_not_asked_for(known, request)
            if request.uncounted:
                strangers[request.ref.namespace].append((4, request.created or NEVER, request.node, key, refused, None))
                continue
            waits = fence_policy_objection(known, request.node) is not None
            rank = 3 if refused else 1 if request.node in watching else 2 if waits else 0
            ranked.append((rank, request.created or NEVER, request.node, key, refused, None))
    told = [each for found in strangers.values() for each in nsmallest(MOST_UNCOUNTED, found)]
    return [*ranked, *told], sum(map(len, strangers.values())) - len(told)


def answer_without_trying(known: LedgerSnapshot, request: FencingRequest) -> Stage | None:
    """The final answer to a request that nothing but another one could mend; None where it may yet be carried out. Only to be
    given where the view of the nodes is whole."""
    if not request.asks or request.uncounted or request.taken_up or known.requests_held:
        return None
    if request.node not in known.nodes:
        return Stage.NODE_NOT_FOUND
    return Stage.FAILED if request.problem else None


def why_not_asked_for(known: LedgerSnapshot, request: FencingRequest) -> str:
    """Why a request can't be carried out, "" where it can."""
    if known.requests_held or request.uncounted:
        return known.requests_held or request.uncounted
    if request.taken_up:
        return f"another controller has it in its hands: its finalizer is on {request.ref.key}"
    target = known.nodes.get(request.node)
    if target is None:
        return f"{request.ref.key} is about node {request.node}, which does not exist"
    alone = left_alone(known, request.node, exempt=known.exempt.kept.get(request.node, ""))
    return request.problem or target.unreadable or (alone.words if alone is not None else "")


def gives_the_remedy(known: LedgerSnapshot, victim: str) -> str:
    """Of all checks by which a victim is to be acted on, the one whose remedy it gets; "" where there is none."""
    said = known.verdicts_on(victim)
    offended = [
        key
        for key, pairs in said.items()
        if known.breakers[key].allowed and any(verdict.standing is Standing.UNHEALTHY for _, verdict in pairs)
    ]
    return _under_which(known, said, offended).key if offended else ""


def in_turn(known: LedgerSnapshot) -> list[tuple[HealthCheck, JudgedTarget]]:
    """Checks and their targets in admission's order, before budgets, quorum and what only a scanner knows."""
    ranked, _ = _rank(known, frozenset())
    turns = []
    for rank, since, _, key, _, choice in ranked:
        if rank == 0 and choice is not None:
            turns.append((since, choice.target.victim_name, key, choice.target))
    return [(known.checks[key], target) for _, _, key, target in sorted(turns, key=lambda turn: turn[:2])]


def _under_which(
    known: LedgerSnapshot, said: Mapping[str, list[tuple[JudgedTarget, Verdict]]], offended: Iterable[str]
) -> _Choice:
    """Of several checks the one whose deadline expired first, ties by name. One that can't have anything done leaves it to those
    that can; what another controller does already holds up everybody."""
    choices = []
    for key in offended:
        for target, verdict in said[key]:
            if not verdict.calls_for_action:
                continue
            check, since = known.checks[key], verdict.since or target.changed
            steps, refused = _possible(check, target)
            choice = _Choice(since, key, target, verdict, steps, refused or _in_other_hands(check, target))
            choices.append((bool(refused), verdict.expired or NEVER, key, since, target.key, choice))
    return min(choices, key=lambda each: each[:-1])[-1]


def left_alone(known: LedgerSnapshot, victim: str, *, exempt: str = "") -> Objection | None:
    """Why no program begins anything about the victim, whichever check calls for it, until that is taken back; None where nothing
    says so. exempt: that preservation keeps it, where that is asked."""
    together = known.together(victim)
    seen = Seen(
        node=next((target.node for target in together if target.node is not None), None),
        machines=tuple(target.machine for target in together if target.machine is not None),
        pause=known.pause_of(victim),
        contested=next((words for target in together if (words := target.contested or target.unseen)), ""),
        policies=known.policies,
        exempt=exempt,
    )
    return objection(seen, Operation.OFFER, By.PROGRAM, known.now)


def _possible(check: HealthCheck, target: JudgedTarget) -> tuple[tuple[EscalationStep, ...], str]:
    """What of that which the check wants can be done, and why nothing, "" else."""
    try:
        return possible(check, body_of(target))
    except PolicyError as error:
        return (), str(error)


def _in_other_hands(check: HealthCheck, target: JudgedTarget) -> str:
    """Why what the check wants may not be done beside what others do already; "" else."""
    foreign = next((each for each in target.remediations if check.makes(each) and _is_anothers(each, check)), None)
    if foreign is not None:
        return f"a {foreign.ref.kind} of it exists already that this check did not create: {foreign.ref.key}"
    return ""


def _is_anothers(remediation: RemediationObject, check: HealthCheck) -> bool:
    """Of a check of Machines the Machine is the owner, and the object was made for that."""
    return not check.of_machines and not check.owns(remediation)


def _candidate(known: LedgerSnapshot, victim: str, key: str, refused: str, choice: _Choice | None) -> Candidate:
    if choice is None:
        return _asked_for(known, known.requests[key], refused)
    check, said = known.checks[key], known.verdicts_on(victim)
    since, _, target, verdict, steps, _, vetoed_by = choice
    view, machine = target.node, target.machine
    ladder = () if refused or fences_only(check, steps) else steps
    offended = [known.checks[each] for each, pairs in said.items() if any(verdict.calls_for_action for _, verdict in pairs)]
    turn = turn_of(target, offended, known.now, retries=known.retries) if ladder else None
    uninitialized = target.cluster is not None and not target.cluster.control_plane_initialized
    return Candidate(
        node=target.victim_name,
        uid=view.uid if view else "",
        check=check.ref,
        since=since,
        dated=verdict.since is not None,
        reason=verdict.reason,
        message=verdict.message,
        template=check.template,
        provider_id=(view.provider_id if view else "") or (machine.provider_id if machine else ""),
        zone=view.zone if view else "",
        # Before a control plane is initialized there is nothing of it yet that could be lost (S15).
        control_plane=any(each.control_plane for each in known.together(victim)) and not uninitialized,
        refused=refused,
        vetoed_by=vetoed_by,
        ready=view.ready if view else False,
        healthy_under=_healthy_under(known, victim),
        machine=f"{machine.namespace}/{machine.name}" if machine else "",
        groups=known.groups.groups_of(view) if view else (),
        ladder=ladder,
        retry=turn.retry if turn else 0,
        not_before=turn.not_before if turn else None,
        waits=turn.why if turn else "",
        exhausted=turn.exhausted if turn else "",
        failed=turn.failed if turn else (),
        machine_ref=check.machine_ref(machine.namespace, machine.name) if machine and ladder else None,
        machine_uid=machine.uid if machine and ladder else "",
        owner=machine.controller if machine and ladder else "",
        memory=memory_text(machine, view) if ladder else "",
        fresh=machine is not None and not machine.node_name and LAST_REMEDIATION_ANNOTATION not in machine.annotations,
        created=machine.created if machine and ladder else None,
        checks=tuple(sorted(said)),
    )


def memory_text(machine: MachineView | None, node: NodeView | None) -> str:
    """What stands there to be remembered, of its Machine where it has one."""
    annotations = machine.annotations if machine is not None else node.annotations if node is not None else {}
    return annotations.get(LAST_REMEDIATION_ANNOTATION, "")


def _asked_for(known: LedgerSnapshot, request: FencingRequest, refused: str) -> Candidate:
    target = known.nodes.get(request.node)
    view = target.node if target is not None else None
    return Candidate(
        node=request.node,
        uid=view.uid if view and not request.uncounted else "",  # on its Node nothing is told in a stranger's name
        check=request.ref,
        since=request.created or NEVER,
        reason=request.ref.kind,
        message=f"asked for by {request.requester}" if request.requester else "asked for, but not by a health check",
        provider_id=view.provider_id if view else "",
        zone=view.zone if view else "",
        control_plane=any(each.control_plane for each in known.together(request.node)),
        refused=refused,
        ready=view.ready if view else False,
        healthy_under=_healthy_under(known, request.node),
        groups=known.groups.groups_of(view) if view else (),
        checks=tuple(sorted(known.verdicts_on(request.node))),
        need=NeedKind.FOREIGN_OBJECT,
        object_uid=request.uid,
        delegate=request.delegate,
    )


def _healthy_under(known: LedgerSnapshot, victim: str) -> tuple[str, ...]:
    """The checks whose number of healthy targets an act on the victim would lower."""
    if known.overlap is Overlap.INDEPENDENT or any(each.marked for each in known.together(victim)):
        return ()
    return tuple(sorted(key for key, pairs in known.verdicts_on(victim).items() if counts_as_healthy(pairs)))


def counts_as_healthy(pairs: Iterable[tuple[JudgedTarget, Verdict]]) -> bool:
    """Whether a check counts the victim among its healthy targets."""
    return any(verdict.standing is Standing.HEALTHY for _, verdict in pairs)
