"""Which nodes a report offers first, under which check, and what keeps the others from being acted on at all.

A victim is what an act would hit: a Node with its Machines, or a Machine without a Node. Candidates are the victims that a
check calls unhealthy and the requests of other systems, sorted and cut to the size of a report. `policy/scan/admission.py`
decides which of them is admitted; `policy/scan/report_builder.py` adds what else a report shows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import IntEnum
from heapq import nsmallest

from policy.checks.circuit_breakers import OpenReason
from policy.checks.fence_policies import NO_POLICIES
from policy.checks.health_check import HealthCheck, Overlap
from policy.checks.verdict import NEVER, JudgedTarget, Standing, Verdict
from policy.episode.fencing_requests import FencingRequest, Stage
from policy.episode.gate import By, Objection, Operation, Seen, objection
from policy.episode.messages import NeedKind
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.objects.scopes import group_of
from policy.remediation.ladder import EscalationStep, body_of, fences_only, possible
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, turn_of
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.permit_rules import OF_FENCE_POLICIES, Applicant, Asker, ObjectLimits, PermitObjection, objections
from policy.scan.scan_report import MAXIMUM_CANDIDATES, Candidate
from policy.values.errors import PolicyError
from policy.values.mode import Mode

MOST_UNCOUNTED = 5
"""How many requests of one namespace that no setting names a report shows: a flood of them leaves room for others (S46, S44)."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """The check that acts on a victim: since when it calls it unhealthy, by which of its targets, the steps that can be taken,
    and why none can. vetoed_by: the gate's row that says so, "" where the check itself has no possible step."""

    since: datetime
    key: str
    target: JudgedTarget
    verdict: Verdict
    steps: tuple[EscalationStep, ...]
    refused: str
    vetoed_by: str = ""


class _Rank(IntEnum):
    """In the order of a report, so that the last crowd out none of the first."""

    READY = 0
    OPEN = 1
    """It has an open episode."""
    WAITS = 2
    """For a limit of its scope, for its next try, or for a check that can spare no more."""
    REFUSED = 3
    """It can't be acted on."""
    STRANGERS = 4
    """It is a request of a namespace that no setting names."""

    @classmethod
    def of(cls, *, refused: bool, is_open: bool, waits: bool) -> _Rank:
        return cls.REFUSED if refused else cls.OPEN if is_open else cls.WAITS if waits else cls.READY


@dataclass(frozen=True, slots=True, order=True)
class _Ranked:
    """A candidate in brief: sorts as candidates go into the report. key: of the check or the request. choice: None for a
    request of another system."""

    rank: _Rank
    since: datetime
    victim: str
    key: str
    choice: _Choice | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateChoice:
    """The candidates, how many more there are, and for each check how many of its targets each other check holds back."""

    candidates: tuple[Candidate, ...]
    left_out: int
    waiting: Mapping[str, Counter[str]]


def choose(snapshot: LedgerSnapshot, watching: frozenset[str]) -> CandidateChoice:
    """The candidates of a report. watching: nodes with an open episode."""
    ranked, waiting = _rank(snapshot, watching)
    requests, not_shown = _rank_requests(snapshot, watching)
    ranked += requests
    chosen = nsmallest(MAXIMUM_CANDIDATES, _spread(snapshot, ranked))
    candidates = tuple(
        _asked_for(snapshot, snapshot.requests[each.key])
        if each.choice is None
        else _candidate(snapshot, each.victim, each.choice)
        for each in chosen
    )
    return CandidateChoice(candidates=candidates, left_out=len(ranked) + not_shown - len(candidates), waiting=waiting)


def _rank(snapshot: LedgerSnapshot, watching: frozenset[str]) -> tuple[list[_Ranked], defaultdict[str, Counter[str]]]:
    """The candidates in brief, and for each check how many of its targets each other check holds back.

    Unless checks are independent, one open circuit breaker of any check that covers a victim holds it back.
    """
    ranked: list[_Ranked] = []
    waiting: defaultdict[str, Counter[str]] = defaultdict(Counter)
    spent = {key for key, breaker in snapshot.breakers.items() if breaker.remaining < 1}
    for target, opinions, offended, closed in _offending(
        snapshot, {key for key, breaker in snapshot.breakers.items() if breaker.allowed}
    ):
        victim, name = target.victim, target.victim_name
        if closed:
            for key in offended:
                waiting[key][closed[0]] += 1
            continue
        if name in snapshot.exempt.unsettled:
            continue
        choice = _under_which(snapshot, opinions, offended)
        alone = left_alone(snapshot, victim, choice.key, exempt=snapshot.exempt.kept.get(name, ""))
        if alone is not None:
            choice = replace(choice, refused=alone.reason, vetoed_by=alone.rule)
        for other in offended:
            if other != choice.key:
                waiting[other][choice.key] += 1
        # Admission refuses these, too (S17). Of a thousand nodes in hand it is not asked: their rank is another one anyway.
        refused, is_open = bool(choice.refused), name in watching
        waits = not (refused or is_open) and (
            (bool(spent) and not spent.isdisjoint(_healthy_under(snapshot, victim)))
            or _put_off(snapshot, target, offended)
            or fence_policy_objection(snapshot, victim) is not None
        )
        rank = _Rank.of(refused=refused, is_open=is_open, waits=waits)
        ranked.append(_Ranked(rank, choice.since, victim, choice.key, choice))
    return ranked, waiting


def _put_off(snapshot: LedgerSnapshot, target: JudgedTarget, offended: Iterable[str]) -> bool:
    """Whether its next remediation is not due yet. Cheap: only a target that was remediated before is asked about."""
    turn = turn_of(target, [snapshot.checks[key] for key in offended], snapshot.now, retries=snapshot.retries)
    return turn.not_before is not None and turn.not_before > snapshot.now


def _offending(
    snapshot: LedgerSnapshot, acting: Collection[str]
) -> Iterator[tuple[JudgedTarget, Mapping[str, list[tuple[JudgedTarget, Verdict]]], list[str], list[str]]]:
    """Each victim that one of the checks in `acting` would have acted on: one of its targets, all checks' verdicts, the checks
    in `acting` that would act, and the other checks that hold them back."""
    if not acting:
        return
    seen: set[str] = set()
    for target in snapshot.sick.values():
        if target.victim in seen:
            continue
        seen.add(target.victim)
        opinions = snapshot.verdicts_on(target.victim)
        offended = [
            key for key, pairs in opinions.items() if key in acting and any(verdict.calls_for_action for _, verdict in pairs)
        ]
        if offended:
            closed = sorted(key for key in opinions if key not in acting) if snapshot.overlap is Overlap.STRICTEST else []
            yield target, opinions, offended, closed


def failing(snapshot: LedgerSnapshot, watching: frozenset[str]) -> dict[str, datetime | None]:
    """Victims that a check calls unhealthy and that only a pool would keep from being acted on, by name, and since when it
    does.

    Under an open circuit breaker no node is acted on, so none has to be kept: no preservation begins in a storm (S17). Where
    another controller acts on the check, the victims are those that it would act on. watching: nodes that an episode holds, or
    that are held off after one: their failure has been decided on already.
    """
    acting = {
        key
        for key, breaker in snapshot.breakers.items()
        if breaker.allowed or (breaker.reason is OpenReason.OBSERVE_ONLY and not breaker.breached)
    }
    found: dict[str, datetime | None] = {}
    for target, opinions, offended, closed in _offending(snapshot, acting):
        victim = target.victim
        if closed or target.unseen or target.victim_name in watching:
            continue
        if left_alone(snapshot, victim, _under_which(snapshot, opinions, offended).key) or fence_policy_objection(
            snapshot, victim
        ):
            continue
        verdicts = [verdict for key in offended for _, verdict in opinions[key] if verdict.standing is Standing.UNHEALTHY]
        moments = [moment for verdict in verdicts if (moment := verdict.expired or verdict.since) is not None]
        if verdicts:
            found[target.victim_name] = min(moments, default=None)
    return found


def _spread(snapshot: LedgerSnapshot, ranked: list[_Ranked]) -> list[_Ranked]:
    """Where a cap limits the episodes of a group, a few nodes of each group come before more of any one: a rack full of nodes
    that have been ill for longest must not take every place on the list."""
    caps = snapshot.policies.caps
    if not caps or len(ranked) <= MAXIMUM_CANDIDATES:
        return ranked
    before: Counter[str] = Counter()
    placed = []
    for each in sorted(ranked):
        rounds = 0
        for cap, group in (
            (each_cap, group_of(each_cap.scope, node)) for each_cap in caps for node in snapshot.nodes_of(each.victim)
        ):
            rounds = max(rounds, before[group] // cap.cap)
            before[group] += 1
        placed.append((each.rank, rounds, each))
    return [each for *_, each in sorted(placed)[:MAXIMUM_CANDIDATES]]


def judged_by_objects(snapshot: LedgerSnapshot, victim: str, key: str = "") -> Applicant:
    """The victim as an applicant for a permit, as far as the objects of a cluster alone show. key: of the check that would act,
    "" for none; unless checks are independent, the circuit breakers of all checks that cover the victim count with it."""
    nodes, alone = snapshot.nodes_of(victim), left_alone(snapshot, victim, key)
    covering = sorted(snapshot.verdicts_on(victim)) if snapshot.overlap is Overlap.STRICTEST else []
    return Applicant(
        asker=Asker.OBJECTS,
        node=victim,
        ready_now=any(node.ready for node in nodes),
        groups=tuple(group for node in nodes for group in snapshot.groups.groups_of(node)),
        needs_closed=tuple(dict.fromkeys((key, *covering))) if key else (),
        spends=_healthy_under(snapshot, victim) if key else (),
        impossible=alone.reason if alone is not None else "",
        vetoed_by=alone.rule if alone is not None else "",
    )


def fence_policy_objection(snapshot: LedgerSnapshot, victim: str) -> PermitObjection | None:
    """Which limit of the fence policies keeps new fencing from the victim, None where none does. Caps and quiet times are not
    among them: only the scanner knows which permits are held."""
    if snapshot.policies == NO_POLICIES:
        return None
    return next(objections(judged_by_objects(snapshot, victim), ObjectLimits.of(snapshot), OF_FENCE_POLICIES), None)


def _rank_requests(snapshot: LedgerSnapshot, watching: frozenset[str]) -> tuple[list[_Ranked], int]:
    """The requests of other systems, and how many refused ones are left out. The other system's own circuit breaker has let it
    ask; admission asks ours."""
    ranked, strangers = list[_Ranked](), defaultdict[str, list[_Ranked]](list)
    for key, request in snapshot.requests.items():
        if request.asks:
            if request.node in snapshot.exempt.unsettled:
                continue
            since = request.created or NEVER
            if request.uncounted:
                strangers[request.ref.namespace].append(_Ranked(_Rank.STRANGERS, since, request.node, key))
                continue
            refused, waits = why_not_asked_for(snapshot, request), fence_policy_objection(snapshot, request.node) is not None
            rank = _Rank.of(refused=bool(refused), is_open=request.node in watching, waits=waits)
            ranked.append(_Ranked(rank, since, request.node, key))
    shown = [each for found in strangers.values() for each in nsmallest(MOST_UNCOUNTED, found)]
    return [*ranked, *shown], sum(map(len, strangers.values())) - len(shown)


def answer_without_trying(snapshot: LedgerSnapshot, request: FencingRequest) -> Stage | None:
    """The final answer to a request that can never be carried out as it is, None where it may yet be. Ask this only where the
    view of the nodes is complete."""
    if not request.asks or request.uncounted or request.taken_up or snapshot.requests_held_back:
        return None
    if request.node not in snapshot.nodes:
        return Stage.NODE_NOT_FOUND
    return Stage.FAILED if request.problem else None


def why_not_asked_for(snapshot: LedgerSnapshot, request: FencingRequest) -> str:
    """Why a request can't be carried out, "" where it can."""
    if snapshot.requests_held_back or request.uncounted:
        return snapshot.requests_held_back or request.uncounted
    if request.taken_up:
        return f"another controller works on it: its finalizer is on {request.ref.key}"
    target = snapshot.nodes.get(request.node)
    if target is None:
        return f"{request.ref.key} is about node {request.node}, which does not exist"
    alone = left_alone(snapshot, request.node, exempt=snapshot.exempt.kept.get(request.node, ""))
    return request.problem or target.unreadable or (alone.reason if alone is not None else "")


def gives_the_remedy(snapshot: LedgerSnapshot, victim: str) -> _Choice | None:
    """The check that gives the victim its remedy, of all that would act on it now; None where there is none."""
    opinions = snapshot.verdicts_on(victim)
    offended = [
        key
        for key, pairs in opinions.items()
        if snapshot.breakers[key].allowed and any(verdict.standing is Standing.UNHEALTHY for _, verdict in pairs)
    ]
    return _under_which(snapshot, opinions, offended) if offended else None


def in_turn(snapshot: LedgerSnapshot) -> list[tuple[HealthCheck, JudgedTarget]]:
    """Checks and their targets in admission's order, before limits, quorum and what only a scanner knows."""
    ranked, _ = _rank(snapshot, frozenset())
    turns = [
        (each.since, choice.target.victim_name, snapshot.checks[each.key], choice.target)
        for each in ranked
        if each.rank is _Rank.READY and (choice := each.choice) is not None
    ]
    return [(check, target) for _, _, check, target in sorted(turns, key=lambda turn: turn[:2])]


def due_under(snapshot: LedgerSnapshot, victim: str) -> _Choice | None:
    """The check that would act on the victim, whether or not a circuit breaker lets it; None where none calls it unhealthy."""
    opinions = snapshot.verdicts_on(victim)
    offended = [key for key, pairs in opinions.items() if any(verdict.calls_for_action for _, verdict in pairs)]
    return _under_which(snapshot, opinions, offended) if offended else None


def _under_which(
    snapshot: LedgerSnapshot, opinions: Mapping[str, list[tuple[JudgedTarget, Verdict]]], offended: Iterable[str]
) -> _Choice:
    """The check with the deadline that expired first, ties by name. A check without a possible step, or that only observes,
    leaves the victim to the others; an object of another controller holds all of them up."""
    choices = []
    for key in offended:
        for target, verdict in opinions[key]:
            if not verdict.calls_for_action:
                continue
            check, since = snapshot.checks[key], verdict.since or target.changed
            steps, refused = _possible(check, target)
            choice = _Choice(since, key, target, verdict, steps, refused or _in_other_hands(check, target))
            observes = snapshot.mode_of(target.victim, key).mode is Mode.OBSERVE
            choices.append((bool(refused) or observes, verdict.expired or NEVER, key, since, target.key, choice))
    return min(choices, key=lambda each: each[:-1])[-1]


def left_alone(snapshot: LedgerSnapshot, victim: str, key: str = "", *, exempt: str = "") -> Objection | None:
    """Which veto keeps every program from beginning anything about the victim; None where none does. key: of the check that
    would act, of which only the mode counts, "" for none. exempt: why preservation keeps it, "" where that is not asked."""
    together = snapshot.together(victim)
    seen = Seen(
        node=next((target.node for target in together if target.node is not None), None),
        machines=tuple(target.machine for target in together if target.machine is not None),
        pause=snapshot.pause_of(victim),
        contested=next((words for target in together if (words := target.contested or target.unseen)), ""),
        policies=snapshot.policies,
        exempt=exempt,
        mode=snapshot.mode_of(victim, key),
    )
    return objection(seen, Operation.OFFER, By.PROGRAM, snapshot.now)


def _possible(check: HealthCheck, target: JudgedTarget) -> tuple[tuple[EscalationStep, ...], str]:
    """The check's steps that can be taken now, and why none can, "" else."""
    try:
        return possible(check, body_of(target))
    except PolicyError as error:
        return (), str(error)


def _in_other_hands(check: HealthCheck, target: JudgedTarget) -> str:
    """Why the check's remedy has to wait for an object that exists already, "" where there is none. A check of Machines makes
    objects that the Machine owns: there it is never another check's."""
    foreign = next((each for each in target.remediations if check.makes(each) and not check.owns(each)), None)
    if foreign is not None and not check.of_machines:
        return f"a {foreign.ref.kind} of it exists already that this check did not create: {foreign.ref.key}"
    return ""


def _candidate(snapshot: LedgerSnapshot, victim: str, choice: _Choice) -> Candidate:
    check, opinions = snapshot.checks[choice.key], snapshot.verdicts_on(victim)
    target, verdict = choice.target, choice.verdict
    view, machine = target.node, target.machine
    ladder = () if choice.refused or fences_only(check, choice.steps) else choice.steps
    offended = [
        snapshot.checks[each] for each, pairs in opinions.items() if any(verdict.calls_for_action for _, verdict in pairs)
    ]
    turn = turn_of(target, offended, snapshot.now, retries=snapshot.retries) if ladder else None
    uninitialized = target.cluster is not None and not target.cluster.control_plane_initialized
    return Candidate(
        node=target.victim_name,
        uid=view.uid if view else "",
        check=check.ref,
        since=choice.since,
        dated=verdict.since is not None,
        reason=verdict.reason,
        message=verdict.message,
        template=check.template,
        provider_id=(view.provider_id if view else "") or (machine.provider_id if machine else ""),
        zone=view.zone if view else "",
        # Before a control plane is initialized there is nothing of it yet that could be lost (S15).
        control_plane=any(each.control_plane for each in snapshot.together(victim)) and not uninitialized,
        refused=choice.refused,
        vetoed_by=choice.vetoed_by,
        ready=view.ready if view else False,
        healthy_under=_healthy_under(snapshot, victim),
        machine=f"{machine.namespace}/{machine.name}" if machine else "",
        groups=snapshot.groups.groups_of(view) if view else (),
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
        checks=tuple(sorted(opinions)),
        steps=tuple(each.name for each in choice.steps),
        mode=snapshot.mode_of(victim, choice.key).mode,
        boot_id=view.boot_id if view else "",
    )


def memory_text(machine: MachineView | None, node: NodeView | None) -> str:
    """The last remediation as its Machine remembers it, or its Node where it has no Machine."""
    annotations = machine.annotations if machine is not None else node.annotations if node is not None else {}
    return annotations.get(LAST_REMEDIATION_ANNOTATION, "")


def _asked_for(snapshot: LedgerSnapshot, request: FencingRequest) -> Candidate:
    target = snapshot.nodes.get(request.node)
    view = target.node if target is not None else None
    return Candidate(
        node=request.node,
        uid=view.uid if view and not request.uncounted else "",  # nothing is written to the Node for an unknown requester
        check=request.ref,
        since=request.created or NEVER,
        reason=request.ref.kind,
        message=f"asked for by {request.requester}" if request.requester else "asked for, but not by a health check",
        provider_id=view.provider_id if view else "",
        zone=view.zone if view else "",
        control_plane=any(each.control_plane for each in snapshot.together(request.node)),
        refused=why_not_asked_for(snapshot, request),
        ready=view.ready if view else False,
        healthy_under=_healthy_under(snapshot, request.node),
        groups=snapshot.groups.groups_of(view) if view else (),
        checks=tuple(sorted(snapshot.verdicts_on(request.node))),
        need=NeedKind.FOREIGN_OBJECT,
        object_uid=request.uid,
        delegate=request.delegate,
    )


def _healthy_under(snapshot: LedgerSnapshot, victim: str) -> tuple[str, ...]:
    """The checks that would have one healthy target fewer after an act on the victim."""
    if snapshot.overlap is Overlap.INDEPENDENT or any(each.marked for each in snapshot.together(victim)):
        return ()
    opinions = snapshot.verdicts_on(victim).items()
    return tuple(sorted(key for key, pairs in opinions if any(each.standing is Standing.HEALTHY for _, each in pairs)))
