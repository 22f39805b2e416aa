"""Builds the report of a scan from a ledger: which checks may act, what episodes see of their nodes, and what people see.

It is built from the targets that are not well, never from all of them, and cut to the sizes of `policy/scan/scan_report.py`.
`policy/scan/ledger.py` keeps the verdicts; `policy/scan/candidates.py` says which target is acted on first.

The first section finds remediation objects that are left over; `build_report_parts` builds the report; the last section says
how soon a changed report is sent (`urgency`).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from heapq import nsmallest
from itertools import islice
from operator import itemgetter

from policy.checks.circuit_breakers import Counts, StandingCounts
from policy.checks.fence_policies import NO_POLICIES, FencePolicies
from policy.checks.health_check import HealthCheck, Storm
from policy.checks.rules.medik8s import CONFIRMED_ANNOTATION
from policy.checks.verdict import NEVER, SICKNESS, Health, JudgedTarget, Standing, Verdict
from policy.episode.gate import MODE, By, Operation, Seen, kept, objections, shown_hold
from policy.episode.messages import SeenNode
from policy.episode.modes import REPAIRS, mode_of
from policy.fence.template_reader import is_own_template
from policy.objects.machines import EXTERNAL_REMEDIATION_ANNOTATION, cluster_named_by
from policy.objects.marks import mark_of
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL, READY
from policy.objects.remediations import RemediationObject, kind_of
from policy.objects.scopes import CLUSTER, GroupCount
from policy.remediation.ladder import OWNER_REMEDIATED, EscalationStep, most_at_once, orphaned, step_of
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION
from policy.remediation.strategy_rules import REPLACING_OWNERS, Strategy
from policy.scan.candidates import choose, due_under, judged_by_objects, left_alone
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.permit_rules import AdmissionRefusal, ObjectLimits, beside_mode
from policy.scan.permit_rules import objections as permit_objections
from policy.scan.scan_report import (
    ALL_OBSERVED,
    MAXIMUM_GROUPS,
    MAXIMUM_LEFT_OVER,
    MAXIMUM_ROWS,
    MAXIMUM_SEEN,
    MAXIMUM_WATCHED,
    OBSERVED,
    Candidate,
    CheckReport,
    LeftOver,
    NodeStanding,
    ReportParts,
    ScanReport,
    TargetRow,
    WatchedNode,
)
from policy.values.display_text import some_of
from policy.values.errors import PolicyError
from policy.values.mode import Mode, most_cautious, read_mode
from policy.values.object_refs import Dialect, dialect_of

# Left over: remediation objects, and requests to owners, that no episode needs and no open episode will take back, because their
# node is well or gone for good.
#
# An episode takes its own back when it ends. A terminated episode leaves them behind, as does an operator that nodewarden has
# replaced, and a node with such an object is not counted as well. Each gets an episode that only follows the object as before,
# `healthyDelay` included, and deletes it. No circuit breaker holds that up (S17, S35).

SICK_AGAIN = timedelta(minutes=1)
"""A Machine that fell sick within this time is still left to an owner that has no permit."""


def left_over(snapshot: LedgerSnapshot, watching: frozenset[str]) -> tuple[LeftOver, ...]:
    """The left-over objects, by name, as many as a report has room for. watching: nodes with an open episode, or that are held
    off."""
    found: dict[str, LeftOver] = {}
    for key, check in sorted(snapshot.checks.items()):
        if snapshot.controllers.get(check.dialect) or snapshot.is_at_rest(key):
            continue
        for one in (*_objects(snapshot, key, check), *_wishes(snapshot, key, check)):
            if one.node not in watching:
                found.setdefault(one.node, one)
    return tuple(found[node] for node in sorted(found)[:MAXIMUM_LEFT_OVER])


def _objects(snapshot: LedgerSnapshot, key: str, check: HealthCheck) -> Iterator[LeftOver]:
    if not snapshot.remediations or all(is_own_template(rung.template) for rung in check.rungs):
        return
    for remediation in snapshot.remediations.values():
        if remediation.deleting or not check.makes(remediation):
            continue
        one = _of_machine(snapshot, key, check, remediation) if check.of_machines else _of_node(snapshot, key, check, remediation)
        if one is not None:
            yield one


def _wishes(snapshot: LedgerSnapshot, key: str, check: HealthCheck) -> Iterator[LeftOver]:
    """Machines that are well, while their owner is still asked to remediate them. It would do so as soon as a check calls one
    of them unhealthy again: without a permit, under an open circuit breaker, and although it is preserved (S14, S15, S17,
    S27)."""
    if check.dialect is not Dialect.CLUSTER_API:
        return
    for target in snapshot.machines.values():
        machine, verdict = target.machine, target.verdicts.get(key)
        if machine is None or machine.deleting or verdict is None or verdict.health is not Health.HEALTHY:
            continue
        asked = machine.condition(OWNER_REMEDIATED)
        if asked is None or asked.status != "False" or machine.controller.partition("/")[0] not in REPLACING_OWNERS:
            continue
        yield LeftOver(
            node=target.victim_name,
            check=check.ref,
            step=EscalationStep(strategy=Strategy.REQUEST_OWNER, name=Strategy.REQUEST_OWNER.value, timeout=SICK_AGAIN),
            name=OWNER_REMEDIATED,
            reason=f"{machine.controller} is still asked to remediate {machine.name}: its machine is well",
            node_uid=target.node.uid if target.node is not None else "",
            machine_ref=check.machine_ref(machine.namespace, machine.name),
            machine_uid=machine.uid,
        )


def _of_node(snapshot: LedgerSnapshot, key: str, check: HealthCheck, remediation: RemediationObject) -> LeftOver | None:
    if not check.owns(remediation):
        return None
    target = snapshot.nodes.get(remediation.target)
    if target is None or key not in target.verdicts:
        gone = orphaned(remediation, check)
        return (
            _left_over(check, remediation, remediation.target, target, "the check selects no node of that name") if gone else None
        )
    if target.verdicts[key].health is not Health.HEALTHY:
        return None
    return _left_over(check, remediation, remediation.target, target, "its node is well")


def _of_machine(snapshot: LedgerSnapshot, key: str, check: HealthCheck, remediation: RemediationObject) -> LeftOver | None:
    """The object was made for the Machine, which owns it: garbage collection deletes it with the Machine."""
    target = snapshot.machines.get(f"{check.dialect}/{remediation.ref.namespace}/{remediation.target}")
    verdict = target.verdicts.get(key) if target is not None else None
    owned = any(owner.kind == "Machine" and owner.name == remediation.target for owner in remediation.owners)
    if target is None or verdict is None or verdict.health is not Health.HEALTHY or not owned:
        return None
    return _left_over(check, remediation, target.victim_name, target, "its machine is well")


def _left_over(
    check: HealthCheck, remediation: RemediationObject, node: str, target: JudgedTarget | None, why: str
) -> LeftOver | None:
    made = (remediation.ref.api_version.partition("/")[0], remediation.ref.kind)
    rungs = [rung for rung in check.rungs if kind_of(rung.template) == made]
    rung = next((each for each in rungs if each.template.name == remediation.template), rungs[0])
    view, machine = (target.node, target.machine) if target is not None else (None, None)
    return LeftOver(
        node=node,
        check=check.ref,
        step=step_of(rung),
        name=remediation.ref.name,
        reason=f"{remediation.ref.key} is left over: {why}",
        node_uid=view.uid if view is not None else "",
        machine_ref=check.machine_ref(machine.namespace, machine.name) if machine is not None else None,
        machine_uid=machine.uid if machine is not None else "",
    )


NOT_COVERED = "NotCovered"
"""The reason in the row of a node that no health check covers."""

MAXIMUM_OTHERS = 500
"""The most characters about a watched node's Machines."""

MAXIMUM_OVERLAPS = 5
"""The most other checks named in one check's report."""


def shown(target: JudgedTarget) -> object:
    """Everything about the target that a report may show or a decision may depend on. Nothing else counts as a change."""
    verdicts, machine, view = tuple(sorted(target.verdicts.items(), key=itemgetter(0))), target.machine, target.node
    machines = (machine,) if machine is not None else ()
    # A pause of a Cluster counts as a change by itself (`Ledger.put_cluster`).
    mode = mode_of(REPAIRS, target.victim, view.labels if view is not None else {})
    seen = Seen(node=view, machines=machines, pause="", contested=target.contested, policies=NO_POLICIES, mode=mode)
    held_back = tuple(each.reason for each in objections(seen, Operation.OFFER, By.PROGRAM, NEVER))
    of_machine = (
        (
            *(machine.node_name, machine.provider_id, machine.controller, machine.deleting, machine.control_plane, machine.phase),
            EXTERNAL_REMEDIATION_ANNOTATION in machine.annotations,
            machine.annotations.get(LAST_REMEDIATION_ANNOTATION),
            machine.condition(OWNER_REMEDIATED),
        )
        if machine is not None
        else None
    )
    if view is None:
        return verdicts, of_machine, target.unseen, held_back
    ready = view.condition(READY)
    of_many = (
        verdicts,
        of_machine,
        target.unseen,
        held_back,
        (view.zone, view.control_plane, view.unschedulable, target.updating),
        (
            view.annotations.get(MARK_ANNOTATION),
            view.labels.get(MARK_LABEL),
            view.annotations.get(LAST_REMEDIATION_ANNOTATION),
            view.misspells_exclusion,
        ),
    )
    own = (ready.status, ready.since) if ready else (None, None)
    return _shared(of_many), *own, view.uid, view.boot_id, view.provider_id, view.system_uuid


@lru_cache(maxsize=4096)
def _shared(parts: tuple[object, ...]) -> tuple[object, ...]:
    """The same tuple for the same parts: most nodes of a fleet are shown alike, and it would be a tenth of what they take."""
    return parts


def build_report_parts(
    snapshot: LedgerSnapshot,
    *,
    watching: frozenset[str],
    notified: Mapping[str, str],
    names: Iterator[str],
    spells: frozenset[str] = frozenset(),
) -> ReportParts:
    """The report's parts. notified: the stamp of the node as each episode was last sent it (`stamp_of`), by node;
    names: of all Nodes in order; spells: nodes with an open spell."""
    choice = choose(snapshot, watching)
    seen_nodes = _seen_nodes(snapshot, watching, notified)
    overlaps = overlapping(snapshot)
    reports = [_check_report(snapshot, key, choice.waiting.get(key, Counter()), overlaps.get(key, ())) for key in snapshot.checks]
    reports += [
        CheckReport(
            ref=bad.ref,
            uid=bad.uid,
            generation=bad.generation,
            dialect=dialect_of(bad.ref),
            reason=bad.reason,
            message=bad.error,
            error=bad.error,
            another_controller=snapshot.controllers.get(dialect_of(bad.ref), ""),
        )
        for bad in snapshot.bad.values()
    ]
    return ReportParts(
        inventory=len(snapshot.nodes),
        checks=tuple(sorted(reports, key=lambda report: report.ref.key)),
        candidates=choice.candidates,
        candidates_left_out=choice.left_out,
        seen_nodes=seen_nodes,
        control_plane=snapshot.control_plane,
        rows=_rows(snapshot, watching, names),
        next_due=snapshot.next_due,
        policies=snapshot.policies,
        groups=_groups(snapshot, choice.candidates, seen_nodes),
        left_over=left_over(snapshot, watching),
        watched=_watched(snapshot, spells, watching, choice.candidates),
    )


def _groups(snapshot: LedgerSnapshot, candidates: Iterable[Candidate], seen_nodes: Iterable[SeenNode]) -> tuple[GroupCount, ...]:
    """The cluster, then the groups that a decision may ask for, then groups in a storm, for people. Empty without policies."""
    policies, tally = snapshot.policies, snapshot.groups
    if not policies.storms and policies.storage_percentage is None:
        return ()
    in_report = (*(each.groups for each in candidates), *(each.groups for each in seen_nodes))
    wanted = dict.fromkeys((CLUSTER, *(group for groups in in_report for group in groups)))
    wanted |= dict.fromkeys(group for _, group in policies.storms_among(tally.all()))
    return tuple(tally.of(group) for group in islice(wanted, MAXIMUM_GROUPS))


# Checks ---------------------------------------------------------------------------------------------------------------


def overlapping(snapshot: LedgerSnapshot) -> dict[str, tuple[str, ...]]:
    """Which checks share a sick victim with which others. Only sick victims are looked at: healthy overlaps do no harm yet."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for target in snapshot.sick.values():
        if all(verdict.health is Health.HEALTHY for verdict in target.verdicts.values()):
            continue
        keys = snapshot.verdicts_on(target.victim).keys()
        if len(keys) > 1:
            for key in keys:
                found[key] |= keys - {key}
    return {key: tuple(sorted(others)) for key, others in found.items()}


def _check_report(snapshot: LedgerSnapshot, key: str, waiting: Counter[str], overlaps: tuple[str, ...]) -> CheckReport:
    check, counts, breaker = snapshot.checks[key], snapshot.counts[key], snapshot.breakers[key]
    held_back = [
        f"{number} unhealthy {'node waits' if number == 1 else 'nodes wait'} because {other} selects them too and "
        + ("gives the remedy" if snapshot.breakers[other].allowed else "has its circuit breaker open")
        for other, number in sorted(waiting.items())
    ]
    storm, modes = snapshot.storms.get(key, Storm()), counted_by_mode(snapshot, key)
    allowed, reason, message = within_modes(
        breaker.allowed, breaker.reason.value, "; ".join((breaker.message, *held_back)), modes
    )
    return CheckReport(
        ref=check.ref,
        uid=check.uid,
        generation=check.generation,
        dialect=check.dialect,
        total=counts.total,
        **{each.name: getattr(counts, each.name) for each in fields(StandingCounts)},
        remaining=breaker.remaining,
        allowed=allowed,
        paused=check.paused,
        reason=reason,
        message=message,
        modes=modes,
        warnings=(*check.warnings, *notices(snapshot, check, overlaps)),
        overlaps=overlaps[:MAXIMUM_OVERLAPS],
        mixed_control_plane=mixed_control_plane(check, counts),
        no_targets=no_targets(snapshot, check),
        storm_active=storm.active,
        storm_cooling=storm.cooling,
        another_controller=snapshot.controllers.get(check.dialect, ""),
        breached=breaker.breached,
        at_once=most_at_once(check.max_in_flight, counts.total) if check.max_in_flight is not None else None,
    )


def notices(snapshot: LedgerSnapshot, check: HealthCheck, overlaps: tuple[str, ...]) -> tuple[str, ...]:
    """Warnings for a check's owner: it has no targets, a Cluster of its Nodes is paused (a check of Cluster API's says so
    itself), other checks cover its sick targets, or its budget could cost quorum."""
    found = [empty] if (empty := no_targets(snapshot, check)) else []
    paused = [each for each in snapshot.clusters.values() if each.paused and check.dialect is not Dialect.CLUSTER_API]
    covered = (
        {cluster_named_by(each.node) for each in snapshot.nodes.values() if check.ref.key in each.verdicts} if paused else set()
    )
    found += [f"{each.paused}: nothing is begun for its nodes" for each in paused if each.key in covered]
    if overlaps:
        found.append(f"its sick targets are covered by {some_of(overlaps, MAXIMUM_OVERLAPS)} too")
    if mixed_control_plane(check, snapshot.counts[check.ref.key]):
        found.append("it covers control-plane and worker machines: give them a check each, or set maxUnhealthy to 1")
    return tuple(found)


def no_targets(snapshot: LedgerSnapshot, check: HealthCheck) -> str:
    """The warning that it selects no target, "" where it does, or where no object of the kind exists."""
    counts, there = snapshot.counts[check.ref.key], snapshot.machines if check.of_machines else snapshot.nodes
    if counts.total or counts.left_out or not there:
        return ""
    return f"it selects none of the {'Machines' if check.of_machines else 'Nodes'} here"


def mixed_control_plane(check: HealthCheck, counts: Counts) -> bool:
    """Whether a check of Machines mixes control plane and workers. With maxUnhealthy 1 that is safe: the proposal's own
    exception."""
    if not check.of_machines or not 0 < counts.control_plane < counts.total:
        return False
    limit = check.max_unhealthy
    return limit is None or limit.percent or limit.value > 1 or check.unhealthy_range is not None


# What episodes see --------------------------------------------------------------------------------------------------


def _seen_nodes(snapshot: LedgerSnapshot, watching: frozenset[str], notified: Mapping[str, str]) -> tuple[SeenNode, ...]:
    """Watched nodes first: an open episode must learn about its node whatever the number of stray marks. Preserved nodes come
    last of them: there may be thousands, for days, and they must not hide a node on which an episode acts (S14)."""
    watched = [_seen_node(snapshot, name) for name in sorted(watching)]
    room = MAXIMUM_SEEN - len(watched)
    if room < 0:
        # The control plane comes first: every look at one member needs all of them (S15). Then nodes that the episode
        # has not been sent yet, so that none of them waits for ever.
        members = {seen.node for seen in watched if any(target.control_plane for target in snapshot.called(seen.node))}
        watched.sort(key=lambda seen: (seen.node not in members, notified.get(seen.node) == stamp_of(seen)))
    marked = ((target.node is not None and kept(target.node), name) for name, target in snapshot.marked.items())
    strays = nsmallest(max(room, 0), (each for each in marked if each[1] not in watching))
    return (*watched[:MAXIMUM_SEEN], *(_seen_node(snapshot, name) for _, name in strays))


def _seen_node(snapshot: LedgerSnapshot, name: str) -> SeenNode:
    target = snapshot.nodes.get(name)
    checks = tuple(sorted({key for each in snapshot.called(name) for key in snapshot.verdicts_on(each.victim)}))
    # A given-up object still counts: the episode that parked over it may end only once the object is gone.
    asking = (each for each in snapshot.requests.values() if not (each.withdrawn or each.uncounted))
    asked_by = tuple(sorted(each.uid for each in asking if each.node == name))
    if target is None or target.node is None:
        return SeenNode(node=name, present=False, asked_by=asked_by, others=_others(snapshot, name), checks=checks)
    view, incident, problem = target.node, "", ""
    try:
        mark = mark_of(view)
        incident = mark.incident if mark else ""
    except PolicyError as error:
        problem = str(error)
    verdicts = [verdict for pairs in snapshot.verdicts_on(name).values() for _, verdict in pairs]
    unhealthy = any(verdict.calls_for_action for verdict in verdicts)
    return SeenNode(
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
        groups=snapshot.groups.groups_of(view),
        asked_by=asked_by,
        preserved=kept(view),
        confirmed_well=CONFIRMED_ANNOTATION in view.annotations,
        others="; ".join(filter(None, (_modes(snapshot, name, checks), _others(snapshot, name)))),
        checks=checks,
    )


def counted_by_mode(snapshot: LedgerSnapshot, key: str) -> tuple[tuple[Mode, int], ...]:
    """How many targets of a check are in which mode: all in that of a Node without labels, but for those that a rule or a label
    excepts."""
    check, most = snapshot.checks[key], snapshot.mode_of("", key).mode
    ceiling = Mode.REPAIR if check.mode is None else read_mode(check.mode)[0]
    counted = Counter({most: snapshot.counts[key].total})
    for name, mode in snapshot.mode_exceptions.items():
        own = snapshot.machines_of.get(name, {}).values() if check.of_machines else (snapshot.nodes[name],)
        covered = sum(key in each.verdicts and each.verdicts[key].standing is not Standing.LEFT_OUT for each in own)
        counted[most] -= covered
        counted[most_cautious((mode, ceiling))] += covered
    return tuple(sorted((mode, number) for mode, number in counted.items() if number))


def within_modes(closed: bool, reason: str, message: str, modes: tuple[tuple[Mode, int], ...]) -> tuple[bool, str, str]:
    """Whether a check may act, the reason, and a sentence: where all its targets are only observed no program acts, whatever
    its circuit breaker says. closed, reason, message: by the breaker."""
    if closed and {mode for mode, _ in modes} == {Mode.OBSERVE}:
        return False, OBSERVED, f"{ALL_OBSERVED}{message}"
    return closed, reason, message


def _modes(snapshot: LedgerSnapshot, name: str, checks: tuple[str, ...]) -> str:
    """An episode that rests because of its mode looks again when that changes; "" in mode repair."""
    modes = sorted({snapshot.mode_of(name, key).mode for key in ("", *checks)} - {Mode.REPAIR})
    return f"mode {', '.join(modes)}" if modes else ""


def _others(snapshot: LedgerSnapshot, name: str) -> str:
    """The state of a victim's Machines and remediation objects: when it changes, an episode that waits for them looks again."""
    states: list[str] = []
    for target in snapshot.called(name):
        if (machine := target.machine) is not None:
            asked = machine.condition(OWNER_REMEDIATED)
            owner = f"{asked.status} {asked.reason}" if asked is not None else ""
            states.append(
                f"{machine.name} {machine.phase}{' deleting' if machine.deleting else ''} {machine.node_name} {owner}".strip()
            )
        for each in target.remediations:
            state = f"{each.succeeded}{' deleting' if each.deleting else ''}{each.permanent_node_deletion_expected}"
            states.append(f"{each.ref.key} {state}".strip())
    return "; ".join(sorted(set(states)))[:MAXIMUM_OTHERS]


# What spells see ----------------------------------------------------------------------------------------------------


def _watched(
    snapshot: LedgerSnapshot, spells: frozenset[str], watching: frozenset[str], candidates: tuple[Candidate, ...]
) -> tuple[WatchedNode, ...]:
    """The nodes with an open spell, then other due ones, the oldest first: whatever keeps them from the list of candidates. Of
    the ones that are candidates the candidate says all."""
    offered = {each.node for each in candidates}
    asked = sorted(spells - offered)[:MAXIMUM_WATCHED]
    left = offered.union(asked, watching)
    others = {
        (verdict.since or NEVER, target.victim_name): None
        for target in snapshot.sick.values()
        for verdict in target.verdicts.values()
        if verdict.standing is Standing.UNHEALTHY
        and target.victim_name not in left
        and target.victim_name not in snapshot.exempt.unsettled
    }
    more = dict.fromkeys(name for _, name in nsmallest(MAXIMUM_WATCHED, others))
    return tuple(_watched_node(snapshot, name) for name in [*asked, *more][:MAXIMUM_WATCHED])


def _watched_node(snapshot: LedgerSnapshot, name: str) -> WatchedNode:
    targets = snapshot.called(name)
    if not targets:
        return WatchedNode(node=name, standing=NodeStanding.GONE)
    victim, view = targets[0].victim, next((each.node for each in targets if each.node is not None), None)
    opinions, choice = snapshot.verdicts_on(victim), due_under(snapshot, victim)
    seen = WatchedNode(
        node=name,
        standing=NodeStanding.UNCOVERED if not opinions else NodeStanding.WELL,
        uid=view.uid if view is not None else "",
        boot_id=view.boot_id if view is not None else "",
        ready=view is not None and view.ready,
        ready_since=view.ready_since if view is not None else None,
    )
    if choice is None:
        well = all(verdict.health is Health.HEALTHY for pairs in opinions.values() for _, verdict in pairs)
        return seen if well else replace(seen, standing=NodeStanding.UNCLEAR)
    held = _held_by(snapshot, victim, name, choice.key)
    return replace(
        seen,
        standing=NodeStanding.DUE,
        check=choice.key,
        cause=choice.verdict.reason,
        since=choice.since,
        steps=tuple(each.name for each in choice.steps),
        mode=snapshot.mode_of(victim, choice.key).mode,
        code=held[0],
        message=held[1],
    )


def _held_by(snapshot: LedgerSnapshot, victim: str, name: str, key: str) -> tuple[str, str]:
    """What keeps a due node from being a candidate, or keeps others before it: a code and a sentence. The mode only where nothing
    else does."""
    alone = left_alone(snapshot, victim, key, exempt=snapshot.exempt.kept.get(name, ""))
    if alone is not None and alone.rule != MODE:
        return alone.rule, alone.reason
    applicant = judged_by_objects(snapshot, victim, key)
    if (found := beside_mode(permit_objections(applicant, ObjectLimits.of(snapshot)), applicant)) is not None:
        return found.code.value, found.message
    if alone is not None:
        return alone.rule, alone.reason
    return AdmissionRefusal.CAP.value, "other candidates stand before it"


# What people see ----------------------------------------------------------------------------------------------------


def _rows(snapshot: LedgerSnapshot, watching: frozenset[str], names: Iterator[str]) -> tuple[TargetRow, ...]:
    """The sickest first, then those in an episode, then as many others as there is room for."""
    sick = {target.victim for target in snapshot.sick.values()}
    shown_first = nsmallest(MAXIMUM_ROWS, (_sickness(snapshot, victim) for victim in sick))
    chosen = [victim for *_, victim in shown_first]
    in_hand = sorted(name for name in watching.union(snapshot.marked) if name in snapshot.nodes and name not in sick)
    chosen += in_hand[: MAXIMUM_ROWS - len(chosen)]
    seen = set(chosen)
    chosen += islice((name for name in names if name not in sick and name not in seen), MAXIMUM_ROWS - len(chosen))
    return tuple(_row(snapshot, victim) for victim in chosen)


def worst(snapshot: LedgerSnapshot, victim: str) -> tuple[str, JudgedTarget, Verdict] | None:
    """The gravest verdict, its check and its target: the oldest of the sickest, None where no check covers the victim."""
    choices = [(key, target, verdict) for key, pairs in snapshot.verdicts_on(victim).items() for target, verdict in pairs]
    if not choices:
        return None
    return min(choices, key=lambda each: (SICKNESS[each[2].health], each[2].since or NEVER, each[0], each[1].key))


def _sickness(snapshot: LedgerSnapshot, victim: str) -> tuple[int, datetime, str]:
    gravest = worst(snapshot, victim)
    if gravest is None:
        return SICKNESS[Health.SKIPPED], NEVER, victim  # left out of every total
    return SICKNESS[gravest[2].health], gravest[2].since or NEVER, victim


def _row(snapshot: LedgerSnapshot, victim: str) -> TargetRow:
    gravest, node = worst(snapshot, victim), snapshot.nodes.get(victim)
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
        held=shown_hold(view) if view is not None else "",
    )


# How soon a changed report is sent to the scanner, so that a storm is not one scan per write.
#
# Most changes while nodes are acted upon are our own marks, cordons and taints, which the writer knows already: they are reported
# together. A change that may change a decision is reported at once. Nothing is lost: a report is a level, and the next one is
# complete.


class Urgency(IntEnum):
    """How soon a changed report is sent. none: no reader uses the change. rarely: people read it, about a node that has an
    episode, and the episode reports more. later: no decision depends on it. soon: an open episode waits for it. now: admission
    may decide otherwise."""

    NONE = 0
    RARELY = 1
    LATER = 2
    SOON = 3
    NOW = 4


def urgency(previous: ScanReport, current: ScanReport, watching: Collection[str], in_hand: Collection[str]) -> Urgency:
    """How soon the scanner, which has the report `previous`, needs the report `current`.

    watching: nodes of open episodes, and those held off. Admission depends on the other nodes only. in_hand: the nodes of open
    episodes alone.
    """
    watched, held = frozenset(watching), frozenset(in_hand)
    if _decisive(previous, watched) != _decisive(current, watched):
        return Urgency.NOW
    if _spared(previous, watched) != _spared(current, watched):
        return Urgency.NOW
    if _matters_to_episodes(previous, current, watched, held):
        return Urgency.SOON
    if _of_the_others(previous, watched, held) != _of_the_others(current, watched, held) or _unexpected(previous, current, held):
        return Urgency.LATER
    return Urgency.RARELY if _read_by_people(previous) != _read_by_people(current) else Urgency.NONE


def _decisive(report: ScanReport, watched: frozenset[str]) -> object:
    """The part that admission, preservation and clean-ups decide by (S15, S17, S18, S38)."""
    lease = report.lease
    return (
        (report.view, report.cluster_uid, lease.held, lease.needed, lease.holder),
        (report.control_plane, report.policies, _stormy_groups(report.policies, report.groups)),
        [_breaker(check) for check in report.checks],
        _candidates(report, watched),
        (report.preservations, report.preservations_left_out, report.left_over),
    )


def _candidates(report: ScanReport, watched: frozenset[str]) -> list[Candidate]:
    """The candidates without an episode: the others concern their episodes, not admission."""
    return [candidate for candidate in report.candidates if candidate.node not in watched]


def _spared(report: ScanReport, watched: frozenset[str]) -> list[tuple[str, int]]:
    """How many healthy targets each check can still spare, of the checks that the waiting candidates would take one from. We
    must not take one too many."""
    keys = {key for candidate in _candidates(report, watched) for key in candidate.healthy_under}
    return [(check.ref.key, check.remaining) for check in report.checks if check.ref.key in keys]


def _breaker(check: CheckReport) -> object:
    """Whether and why its circuit breaker is open, without its counts."""
    why = check.reason, check.paused, check.error, check.another_controller
    return check.ref, check.uid, check.allowed, check.breached, check.at_once, why


def _stormy_groups(policies: FencePolicies, groups: Collection[GroupCount]) -> object:
    """The groups in which fence policies forbid new fencing."""
    cluster = next((count for count in groups if count.group == CLUSTER), None)
    return bool(policies.storage_down(cluster)), policies.storms_among(groups)


def _matters_to_episodes(previous: ScanReport, current: ScanReport, watched: frozenset[str], in_hand: frozenset[str]) -> bool:
    """Whether a node in hand has changed in a way that its episode may wait for. A node that was not seen before counts
    if it is Ready or gone: it was sick when its episode began."""
    before = {each.node: each for each in previous.seen_nodes if each.node in watched}
    return any(
        facts_for_episode(each) != facts_for_episode(before[each.node]) if each.node in before else each.ready or not each.present
        for each in current.seen_nodes
        if each.node in before or each.node in in_hand
    )


def _of_the_others(report: ScanReport, watched: frozenset[str], in_hand: frozenset[str]) -> object:
    """The part of the digest that no urgent decision needs: without the state of nodes in hand, and without nodes that are
    watched no more. Marks, cordons and taints that an open episode writes are shown to people only."""
    limits = {check.ref.key for check in report.checks if check.at_once is not None}
    of_nodes = []
    for seen in report.seen_nodes:
        counted = seen.groups, limits.intersection(seen.checks)
        if any(counted) if seen.node in in_hand else seen.node in watched or seen.incident or seen.mark_problem:
            of_nodes.append((seen.node, counted) if seen.node in in_hand else seen)
    rows, at_risk = _read_by_people(report)
    return (
        (report.inventory, report.checks, report.groups, report.candidates_left_out, of_nodes),
        [row for row in rows if row.node not in in_hand],
        [node for node in at_risk if node not in in_hand],
        [(each.node, each.standing, each.uid, each.boot_id, each.code) for each in report.watched],
    )


def _unexpected(previous: ScanReport, current: ScanReport, in_hand: frozenset[str]) -> bool:
    """Whether a node in hand is seen for the first time, in another state than its episode must have found."""
    known = {each.node for each in previous.seen_nodes}
    return any(each.node in in_hand and each.node not in known and not plainly_sick(each) for each in current.seen_nodes)


def _read_by_people(report: ScanReport) -> tuple[list[TargetRow], list[str]]:
    """The rows of sick nodes, and the nodes with data at risk."""
    return [row for row in report.rows if is_sick(row)], [each.node for each in report.at_risk.nearest]


def is_sick(row: TargetRow) -> bool:
    """Whether it is not well. The rows of other targets are for people only, and fill up the list."""
    return row.health in {Health.UNHEALTHY, Health.SOON}


def plainly_sick(seen: SeenNode) -> bool:
    """Whether it shows no more than the illness for which an episode is opened: that episode looks for itself."""
    more = seen.asked_by or seen.preserved or seen.confirmed_well or seen.others
    return seen.present and seen.unhealthy and not seen.ready and not more


def stamp_of(seen: SeenNode) -> str:
    """A short hash of `facts_for_episode`: it changes when the node changes for the episode."""
    return hashlib.sha256(str(facts_for_episode(seen)).encode()).hexdigest()[:16]


def facts_for_episode(seen: SeenNode) -> object:
    """The part of what was seen of a node that its episode uses: all but its own mark, and the groups that only permits
    need."""
    since = seen.ready_since.isoformat() if seen.ready_since is not None else ""
    return (
        (seen.node, seen.present, seen.uid, seen.ready, since, seen.boot_id, seen.provider_id, seen.system_uuid),
        (seen.unhealthy, seen.soon, seen.asked_by, seen.preserved, seen.confirmed_well, seen.others),
    )
