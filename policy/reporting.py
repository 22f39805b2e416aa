"""What a report shows of a ledger: which checks may act, who is to be acted on first, and what people see.

Drawn up from the targets that something ails, never from all of them, and cut to the sizes of `policy/report.py`. Keeping the
verdicts is `policy/ledger.py`; who of the candidates is really admitted is `policy/admission.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nsmallest
from itertools import islice

from policy.brakes import Brake, Counts
from policy.episodes import NeedKind
from policy.errors import PolicyError
from policy.fence_policies import FencePolicies, switched_off_node
from policy.fencing_requests import FencingRequest, Stage
from policy.healthcheck import Dialect, HealthCheck, ObjectRef, dialect_of
from policy.machines import EXTERNAL_REMEDIATION_ANNOTATION, PAUSED_ANNOTATION, SKIP_ANNOTATION
from policy.marks import mark_of
from policy.nodes import EXCLUDE_LABEL, MARK_ANNOTATION, READY, NodeView
from policy.overlaps import Overlap
from policy.remediations import Remediation
from policy.remedies import OWNER_REMEDIATED, Action, remedy
from policy.report import (
    MAXIMUM_CANDIDATES,
    MAXIMUM_GROUPS,
    MAXIMUM_OBSERVATIONS,
    MAXIMUM_ROWS,
    Candidate,
    CheckReport,
    ControlPlane,
    Observation,
    ReportParts,
    TargetRow,
)
from policy.scopes import CLUSTER, GroupCount, GroupTally, group_of, scope_of
from policy.storms import Storm
from policy.surroundings import Surroundings
from policy.targets import NEVER, SICKNESS, Target
from policy.templates import is_fencing_template
from policy.verdicts import Health, Standing, Verdict

NOT_COVERED = "NotCovered"
"""The reason in the row of a node that no health check covers."""

MAXIMUM_OVERLAPS = 5
"""Of other checks named in one check's report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCheck:
    """A health check that can't be used, and why."""

    ref: ObjectRef
    error: str
    uid: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A ledger's memory at one moment; `sick`, `marked` and `machines_of` are indexes into `nodes` and `machines`.

    controllers: of the dialects on which another controller acts, which. requests: objects of other systems that ask for a node;
    requests_held: why none of them is carried out, "" where nothing is in the way.
    """

    now: datetime
    checks: Mapping[str, HealthCheck]
    bad: Mapping[str, BadCheck]
    counts: Mapping[str, Counts]
    brakes: Mapping[str, Brake]
    storms: Mapping[str, Storm]
    nodes: Mapping[str, Target]
    machines: Mapping[str, Target]
    machines_of: Mapping[str, Mapping[str, Target]]
    sick: Mapping[str, Target]
    marked: Mapping[str, Target]
    remediations: Mapping[str, Remediation]
    surroundings: Surroundings
    control_plane: ControlPlane
    overlap: Overlap
    next_due: datetime | None
    controllers: Mapping[Dialect, str]
    policies: FencePolicies
    groups: GroupTally
    requests: Mapping[str, FencingRequest] = field(default_factory=dict)
    requests_held: str = ""

    def together(self, victim: str) -> list[Target]:
        """All targets with that victim: the Node and the Machines that refer to it, or the one Machine without a Node."""
        node, machine = self.nodes.get(victim), self.machines.get(victim)
        found = [*self.machines_of.get(victim, {}).values()]
        found += [target for target in (node, machine) if target is not None]
        return found

    def say(self, victim: str) -> dict[str, list[tuple[Target, Verdict]]]:
        """What every check thinks of everything that belongs to one victim."""
        said: defaultdict[str, list[tuple[Target, Verdict]]] = defaultdict(list)
        for target in self.together(victim):
            for key, verdict in target.verdicts.items():
                if verdict.standing is not Standing.LEFT_OUT:
                    said[key].append((target, verdict))
        return dict(said)


_SHOWN_ANNOTATIONS = (EXTERNAL_REMEDIATION_ANNOTATION, PAUSED_ANNOTATION, SKIP_ANNOTATION)


def shown(target: Target) -> object:
    """Whatever of the target a report may show or a decision may depend on. Nothing else is a change."""
    verdicts, machine, view = dict(target.verdicts), target.machine, target.node
    of_machine = (
        (
            *(machine.node_name, machine.provider_id, machine.controller, machine.deleting, machine.control_plane, machine.phase),
            *(annotation in machine.annotations for annotation in _SHOWN_ANNOTATIONS),
            machine.condition(OWNER_REMEDIATED),
        )
        if machine is not None
        else None
    )
    if view is None:
        return verdicts, of_machine, target.unseen
    ready = view.condition(READY)
    return (
        verdicts,
        of_machine,
        target.unseen,
        (ready.status, ready.since) if ready else None,
        (view.uid, view.boot_id, view.provider_id, view.system_uuid),
        (view.zone, view.control_plane, view.unschedulable, target.updating),
        (view.annotations.get(MARK_ANNOTATION), view.labels.get(EXCLUDE_LABEL), switched_off_node(view)),
    )


def draw_up(known: Known, *, watching: frozenset[str], names: Iterator[str]) -> ReportParts:
    """The report's parts. `names`: all names of Nodes in order."""
    ranked, waiting = _rank(known, watching)
    ranked += _rank_requests(known, watching)
    chosen = nsmallest(MAXIMUM_CANDIDATES, _spread(known, ranked))
    candidates = tuple(_candidate(known, victim, key, refused) for _, _, victim, key, refused in chosen)
    observations = _observations(known, watching)
    overlaps = overlapping(known)
    reports = [_check_report(known, key, waiting[key], overlaps.get(key, ())) for key in known.checks]
    reports += [
        CheckReport(
            ref=bad.ref,
            uid=bad.uid,
            generation=bad.generation,
            dialect=dialect_of(bad.ref),
            reason="InvalidObject",
            message=bad.error,
            error=bad.error,
            another_controller=known.controllers.get(dialect_of(bad.ref), ""),
        )
        for bad in known.bad.values()
    ]
    return ReportParts(
        inventory=len(known.nodes),
        checks=tuple(sorted(reports, key=lambda report: report.ref.key)),
        candidates=candidates,
        candidates_left_out=len(ranked) - len(candidates),
        observations=observations,
        control_plane=known.control_plane,
        rows=_rows(known, watching, names),
        next_due=known.next_due,
        policies=known.policies,
        groups=_groups(known, candidates, observations),
    )


# Candidates ---------------------------------------------------------------------------------------------------------

_Ranked = tuple[int, datetime, str, str, str]
"""Rank, since, victim, check and why it can't be acted on: sorts as candidates go into the report."""


def _rank(known: Known, watching: frozenset[str]) -> tuple[list[_Ranked], defaultdict[str, Counter[str]]]:
    """The candidates in brief, and for each check by which others its targets are held back.

    Unless checks are independent, every check that covers a victim has a say: one closed brake is enough. Those that can be acted
    on go first, then those whose episode is open already, those that a brake of their scope holds back, and those that can't be
    acted on, so that none of the latter crowds out the first.
    """
    ranked: list[_Ranked] = []
    waiting: defaultdict[str, Counter[str]] = defaultdict(Counter)
    brakes = known.brakes
    if not any(brake.allowed for brake in brakes.values()):
        return ranked, waiting
    seen: set[str] = set()
    for target in known.sick.values():
        victim = target.victim
        if victim in seen:
            continue
        seen.add(victim)
        said = known.say(victim)
        offended = [
            key for key, pairs in said.items() if brakes[key].allowed and any(verdict.calls_for_action for _, verdict in pairs)
        ]
        if not offended:
            continue
        closed = sorted(key for key in said if not brakes[key].allowed) if known.overlap is Overlap.STRICTEST else []
        if closed:
            for key in offended:
                waiting[key][closed[0]] += 1
            continue
        since, key, refused = _under_which(known, said, offended)
        refused = excluded(known, victim) or lost_its_storage(known, victim) or refused
        for other in offended:
            if other != key:
                waiting[other][key] += 1
        rank = 3 if refused else 1 if victim in watching else 2 if braked(known, victim) else 0
        ranked.append((rank, since, victim, key, refused))
    return ranked, waiting


def _spread(known: Known, ranked: list[_Ranked]) -> list[_Ranked]:
    """Where a group may only have so many episodes at once, as many of each group go before the next ones of any: a rack whose
    nodes have all been ill for longest must not take every place on the list."""
    caps = known.policies.caps
    if not caps or len(ranked) <= MAXIMUM_CANDIDATES:
        return ranked
    before: Counter[str] = Counter()
    placed = []
    for each in sorted(ranked):
        rounds = 0
        for cap, group in ((each_cap, group_of(each_cap.scope, node)) for each_cap in caps for node in _nodes(known, each[2])):
            rounds = max(rounds, before[group] // cap.cap)
            before[group] += 1
        placed.append((each[0], rounds, each))
    return [each for *_, each in sorted(placed)[:MAXIMUM_CANDIDATES]]


def braked(known: Known, victim: str) -> str:
    """Which fence policy keeps new fencing from the victim, in words; "" where none does. Caps and quiet times are not among
    them: only the scanner knows who holds permits."""
    policies, tally = known.policies, known.groups
    if policies.problem:
        return f"the fence policies can't be used: {policies.problem}"
    groups = [group for node in _nodes(known, victim) for group in (CLUSTER, *tally.groups_of(node))]
    if off := policies.off_for(groups):
        return off
    if down := policies.storage_down(tally.of(CLUSTER)):
        return down
    for rule in policies.storms:
        for group in groups:
            if scope_of(group) == rule.scope and rule.closed(tally.of(group)):
                return rule.said(tally.of(group))
    return ""


def _nodes(known: Known, victim: str) -> list[NodeView]:
    """The Node of a victim, where it has one."""
    found = {target.node.name: target.node for target in known.together(victim) if target.node is not None}
    return list(found.values())


def lost_its_storage(known: Known, victim: str) -> str:
    """Why the victim is left alone as one that can't reach its storage, "" where it is not."""
    return next((why for node in _nodes(known, victim) if (why := known.policies.host_lost_storage(node))), "")


def _groups(known: Known, candidates: Iterable[Candidate], observations: Iterable[Observation]) -> tuple[GroupCount, ...]:
    """The cluster, then whatever a decision may ask for, then groups that are closed, for people. Without policies: nothing."""
    policies, tally = known.policies, known.groups
    if not policies.storms and policies.storage_percentage is None:
        return ()
    told = (*(each.groups for each in candidates), *(each.groups for each in observations))
    wanted = dict.fromkeys((CLUSTER, *(group for groups in told for group in groups)))
    closed = (
        count.group
        for count in tally.all()
        if any(scope_of(count.group) == rule.scope and rule.closed(count) for rule in policies.storms)
    )
    wanted |= dict.fromkeys(closed)
    return tuple(tally.of(group) for group in islice(wanted, MAXIMUM_GROUPS))


def _rank_requests(known: Known, watching: frozenset[str]) -> list[_Ranked]:
    """What other systems ask for. Their own brakes have let them ask; ours are admission's."""
    ranked = []
    for key, request in known.requests.items():
        if request.asks:
            refused = why_not_asked_for(known, request)
            rank = 3 if refused else 1 if request.node in watching else 2 if braked(known, request.node) else 0
            ranked.append((rank, request.created or NEVER, request.node, key, refused))
    return ranked


def answer_without_trying(known: Known, request: FencingRequest) -> Stage | None:
    """The final answer to a request that nothing but another one could mend; None where it may yet be carried out. Only to be
    given where the view of the nodes is whole."""
    if not request.asks or request.taken_up or known.requests_held:
        return None
    if request.node not in known.nodes:
        return Stage.NODE_NOT_FOUND
    return Stage.FAILED if request.problem else None


def why_not_asked_for(known: Known, request: FencingRequest) -> str:
    """Why a request can't be carried out, "" where it can."""
    if known.requests_held:
        return known.requests_held
    if request.taken_up:
        return f"another controller has it in its hands: its finalizer is on {request.ref.key}"
    target = known.nodes.get(request.node)
    if target is None:
        return f"{request.ref.key} is about node {request.node}, which does not exist"
    return request.problem or target.unreadable or excluded(known, request.node) or lost_its_storage(known, request.node)


def gives_the_remedy(known: Known, victim: str) -> str:
    """Of all checks by which a victim is to be acted on, the one whose remedy it gets; "" where there is none."""
    said = known.say(victim)
    offended = [
        key
        for key, pairs in said.items()
        if known.brakes[key].allowed and any(verdict.standing is Standing.UNHEALTHY for _, verdict in pairs)
    ]
    return _under_which(known, said, offended)[1] if offended else ""


def _under_which(
    known: Known, said: Mapping[str, list[tuple[Target, Verdict]]], offended: Iterable[str]
) -> tuple[datetime, str, str]:
    """Since when, under which check, and why not: of several checks the one whose deadline expired first, ties by name."""
    choices = []
    for key in offended:
        for target, verdict in said[key]:
            if not verdict.calls_for_action:
                continue
            refused = _not_carried_out(known.checks[key], target, verdict)
            choices.append((verdict.expired or NEVER, key, verdict.since or NEVER, refused))
    _, key, since, refused = min(choices)
    return since, key, refused


def excluded(known: Known, victim: str) -> str:
    """A person's word that keeps the victim out of remediation, "" where there is none: it holds under every check, also under
    those that do not know the label or annotation."""
    for target in known.together(victim):
        if target.node is not None and target.node.labels.get(EXCLUDE_LABEL) == "true":
            return f"the label {EXCLUDE_LABEL}=true keeps {target.node.name} out of remediation"
        if target.node is not None and (off := switched_off_node(target.node)):
            return off
        if target.machine is not None and target.machine.kept_out:
            return target.machine.kept_out
    return ""


def _not_carried_out(check: HealthCheck, target: Target, verdict: Verdict) -> str:
    wanted = remedy(check, target, verdict)
    if check.template is not None and not is_fencing_template(check.template):
        template = check.template
        return f"{template.kind} of {template.api_version} is carried out by a later version; this one needs a FencingTemplate"
    if wanted.action is not Action.FENCE:
        return f"{wanted.message or f'{wanted.action} is carried out by a later version'}; this one needs a FencingTemplate"
    return "" if target.node is not None else "it has no Node that could be fenced"


def _candidate(known: Known, victim: str, key: str, refused: str) -> Candidate:
    if key in known.requests:
        return _asked_for(known, known.requests[key], refused)
    check, said = known.checks[key], known.say(victim)
    target, verdict = min(said[key], key=lambda pair: (not pair[1].calls_for_action, pair[1].since or NEVER, pair[0].key))
    view, machine = target.node, target.machine
    return Candidate(
        node=target.victim_name,
        uid=view.uid if view else "",
        check=check.ref,
        since=verdict.since or NEVER,
        reason=verdict.reason,
        message=verdict.message,
        template=check.template,
        provider_id=(view.provider_id if view else "") or (machine.provider_id if machine else ""),
        zone=view.zone if view else "",
        control_plane=any(each.control_plane for each in known.together(victim)),
        refused=refused,
        ready=view.ready if view else False,
        healthy_under=_healthy_under(known, victim),
        machine=f"{machine.namespace}/{machine.name}" if machine else "",
        groups=known.groups.groups_of(view) if view else (),
    )


def _asked_for(known: Known, request: FencingRequest, refused: str) -> Candidate:
    target = known.nodes.get(request.node)
    view = target.node if target is not None else None
    return Candidate(
        node=request.node,
        uid=view.uid if view else "",
        check=request.ref,
        since=request.created or NEVER,
        reason=request.ref.kind,
        message=f"asked for by {request.requester}" if request.requester else "asked for by nobody's health check",
        provider_id=view.provider_id if view else "",
        zone=view.zone if view else "",
        control_plane=any(each.control_plane for each in known.together(request.node)),
        refused=refused,
        ready=view.ready if view else False,
        healthy_under=_healthy_under(known, request.node),
        groups=known.groups.groups_of(view) if view else (),
        need=NeedKind.FOREIGN_OBJECT,
        object_uid=request.uid,
        delegate=request.delegate,
    )


def _healthy_under(known: Known, victim: str) -> tuple[str, ...]:
    """The checks whose number of healthy targets an act on the victim would lower."""
    if known.overlap is Overlap.INDEPENDENT or any(each.marked for each in known.together(victim)):
        return ()
    return tuple(sorted(key for key, pairs in known.say(victim).items() if counts_as_healthy(pairs)))


def counts_as_healthy(pairs: Iterable[tuple[Target, Verdict]]) -> bool:
    """Whether a check counts the victim among its healthy targets."""
    return any(verdict.standing is Standing.HEALTHY for _, verdict in pairs)


# Checks ---------------------------------------------------------------------------------------------------------------


def overlapping(known: Known) -> dict[str, tuple[str, ...]]:
    """Which checks share a sick victim with which others. Only what ails is looked at: healthy overlaps do no harm yet."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for target in known.sick.values():
        if all(verdict.health is Health.HEALTHY for verdict in target.verdicts.values()):
            continue
        keys = known.say(target.victim).keys()
        if len(keys) > 1:
            for key in keys:
                found[key] |= keys - {key}
    return {key: tuple(sorted(others)) for key, others in found.items()}


def _check_report(known: Known, key: str, waiting: Counter[str], overlaps: tuple[str, ...]) -> CheckReport:
    check, counts, brake = known.checks[key], known.counts[key], known.brakes[key]
    held_back = [
        f"{number} unhealthy {'node waits' if number == 1 else 'nodes wait'} because {other} selects them too and "
        + ("gives the remedy" if known.brakes[other].allowed else "may not act now")
        for other, number in sorted(waiting.items())
    ]
    storm = known.storms.get(key, Storm())
    return CheckReport(
        ref=check.ref,
        uid=check.uid,
        generation=check.generation,
        dialect=check.dialect,
        total=counts.total,
        healthy=counts.healthy,
        soon=counts.soon,
        starting=counts.starting,
        unhealthy=counts.unhealthy,
        deleting=counts.deleting,
        excluded=counts.excluded,
        left_out=counts.left_out,
        recovering=counts.recovering,
        remaining=brake.remaining,
        allowed=brake.allowed,
        paused=check.paused,
        reason=brake.reason.value,
        message="; ".join((brake.message, *held_back)),
        warnings=(*check.warnings, *notices(check, counts, overlaps)),
        overlaps=overlaps[:MAXIMUM_OVERLAPS],
        mixed_control_plane=mixed_control_plane(check, counts),
        storm_active=storm.active,
        storm_cooling=storm.cooling,
        another_controller=known.controllers.get(check.dialect, ""),
        breached=brake.breached,
    )


def notices(check: HealthCheck, counts: Counts, overlaps: tuple[str, ...]) -> tuple[str, ...]:
    """What its owner should know of a check that is in use: other checks cover its sick targets, or its budget could cost
    quorum."""
    found = []
    if overlaps:
        more = f" and {len(overlaps) - MAXIMUM_OVERLAPS} more" if len(overlaps) > MAXIMUM_OVERLAPS else ""
        found.append(f"its sick targets are covered by {', '.join(overlaps[:MAXIMUM_OVERLAPS])}{more} too")
    if mixed_control_plane(check, counts):
        found.append("it covers control-plane and worker machines: give them a check each, or set maxUnhealthy to 1")
    return tuple(found)


def mixed_control_plane(check: HealthCheck, counts: Counts) -> bool:
    """Whether a check of Machines mixes control plane and workers. With maxUnhealthy 1 that is safe: the proposal's own
    exception."""
    if not check.of_machines or not 0 < counts.control_plane < counts.total:
        return False
    limit = check.max_unhealthy
    return limit is None or limit.percent or limit.value > 1 or check.unhealthy_range is not None


# What episodes see --------------------------------------------------------------------------------------------------


def _observations(known: Known, watching: frozenset[str]) -> tuple[Observation, ...]:
    """Watched nodes first: an open episode must hear of its node whatever the number of stray marks."""
    room = max(MAXIMUM_OBSERVATIONS - len(watching), 0)
    strays = nsmallest(room, (name for name in known.marked if name not in watching))
    return tuple(_observation(known, name) for name in [*sorted(watching)[:MAXIMUM_OBSERVATIONS], *strays])


def _observation(known: Known, name: str) -> Observation:
    target = known.nodes.get(name)
    asked_by = tuple(sorted(each.uid for each in known.requests.values() if each.asks and each.node == name))
    if target is None or target.node is None:
        return Observation(node=name, present=False, asked_by=asked_by)
    view, incident, problem = target.node, "", ""
    try:
        mark = mark_of(view)
        incident = mark.incident if mark else ""
    except PolicyError as error:
        problem = str(error)
    verdicts = [verdict for pairs in known.say(name).values() for _, verdict in pairs]
    unhealthy = any(verdict.calls_for_action for verdict in verdicts)
    return Observation(
        node=name,
        uid=view.uid,
        ready=view.ready,
        ready_since=view.ready_since,
        boot_id=view.boot_id,
        provider_id=view.provider_id,
        system_uuid=view.system_uuid,
        unhealthy=unhealthy,
        incident=incident,
        mark_problem=problem,
        soon=not unhealthy and any(verdict.health is Health.SOON for verdict in verdicts),
        groups=known.groups.groups_of(view),
        asked_by=asked_by,
    )


# What people see ----------------------------------------------------------------------------------------------------


def _rows(known: Known, watching: frozenset[str], names: Iterator[str]) -> tuple[TargetRow, ...]:
    """The sickest first, then those in an episode, then as many others as there is room for."""
    sick = {target.victim for target in known.sick.values()}
    shown_first = nsmallest(MAXIMUM_ROWS, (_sickness(known, victim) for victim in sick))
    chosen = [victim for *_, victim in shown_first]
    in_hand = sorted(name for name in watching.union(known.marked) if name in known.nodes and name not in sick)
    chosen += in_hand[: MAXIMUM_ROWS - len(chosen)]
    seen = set(chosen)
    chosen += islice((name for name in names if name not in sick and name not in seen), MAXIMUM_ROWS - len(chosen))
    return tuple(_row(known, victim) for victim in chosen)


def worst(known: Known, victim: str) -> tuple[str, Target, Verdict] | None:
    """The gravest verdict, its check and its target: the oldest of the sickest, None where no check covers the victim."""
    choices = [(key, target, verdict) for key, pairs in known.say(victim).items() for target, verdict in pairs]
    if not choices:
        return None
    return min(choices, key=lambda each: (SICKNESS[each[2].health], each[2].since or NEVER, each[0], each[1].key))


def _sickness(known: Known, victim: str) -> tuple[int, datetime, str]:
    gravest = worst(known, victim)
    if gravest is None:
        return SICKNESS[Health.SKIPPED], NEVER, victim  # left out of every total
    return SICKNESS[gravest[2].health], gravest[2].since or NEVER, victim


def _row(known: Known, victim: str) -> TargetRow:
    gravest, node = worst(known, victim), known.nodes.get(victim)
    key, target, verdict = gravest or ("", node, Verdict(health=Health.SKIPPED, standing=Standing.LEFT_OUT, reason=NOT_COVERED))
    view = node.node if node is not None else None
    machine = target.machine if target is not None else None
    ready = view.condition(READY) if view is not None else None
    return TargetRow(
        node=target.victim_name if target is not None else victim,
        zone=view.zone if view is not None else "",
        ready=ready.status if ready else "",
        health=verdict.health,
        check=key,
        reason=verdict.reason,
        since=verdict.since,
        due=verdict.due,
        schedulable=not view.unschedulable if view is not None else True,
        machine=f"{machine.namespace}/{machine.name}" if machine is not None else "",
    )
