"""Decides what `nodewarden explain` answers: each check's opinion of a node, what holds the check back, what would unblock it.

It asks the same evaluation as `nodewarden evaluate` (`policy/scan/evaluation.py`). `starter/output/explanation.py` adds
what the scanner and the episodes say of the node, and prints it all. The command is `starter/commands/explain.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from policy.checks.circuit_breakers import CircuitBreaker, Counts, OpenReason, threshold_breached
from policy.checks.health_check import HealthCheck
from policy.checks.rival_controllers import TAKEOVER
from policy.checks.rules import rules_of
from policy.checks.targets import JudgedTarget
from policy.checks.verdicts import Health, Standing
from policy.dialects.node_fencing import CLUSTER_CONFIG
from policy.episode.gate import WITHOUT_LABEL, WITHOUT_MACHINE_ANNOTATION
from policy.episode.gate import unblocks as ends
from policy.objects.machines import PAUSED_ANNOTATION
from policy.objects.nodes import Condition
from policy.objects.scopes import CLUSTER, GroupCount, called, scope_of
from policy.remediation.strategies import Action
from policy.scan.admission import AdmissionRefusal
from policy.scan.evaluation import SPARES_NO_MORE, CheckEvaluation, TargetEvaluation, evaluate
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.outlook import Outlook, OwnersRules, outlook, targets_named
from policy.values.object_refs import Dialect
from policy.values.selectors import Operator, Requirement
from policy.values.times import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOpinion:
    """One check that covers the node. unblock: what would have to happen before it is acted on, in sentences; none where nothing
    is in the way, or nothing is wrong."""

    check: CheckEvaluation
    target: TargetEvaluation
    unblock: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bystander:
    """A check that does not cover the node, and why not. unusable: nobody knows whether it would."""

    check: str
    why: str
    unusable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All checks' opinions of one node (or of a Machine that never had one). `found` False: there is no such object. conditions:
    all that the Node says of itself. outlook: how it would be remediated, None where no check covers it."""

    node: str
    found: bool
    ready: str = ""
    conditions: tuple[Condition, ...] = ()
    opinions: tuple[CheckOpinion, ...] = ()
    bystanders: tuple[Bystander, ...] = ()
    outlook: Outlook | None = None
    names: tuple[str, ...] = ()
    """Of all nodes, where there is no such object."""


def explain(
    known: LedgerSnapshot, name: str, owners: Mapping[str, OwnersRules] | None = None, leased: Mapping[str, str] | None = None
) -> Explanation:
    """What all checks say of the node, or Machine, of that name. owners: see `outlook`. leased: which nodes somebody else holds
    by their node lease, with who that is, in words."""
    targets = targets_named(known, name)
    keys = {key for target in targets for key in target.verdicts}
    opinions = [
        CheckOpinion(check=evaluation, target=each, unblock=_unblock(known, evaluation, each, leased or {}))
        for evaluation in evaluate(known, keys)
        for each in evaluation.verdicts
        if any(_same(each, target) for target in targets)
    ]
    node = next((target.node for target in targets if target.node is not None), None)
    ready = node.condition("Ready") if node is not None else None
    return Explanation(
        node=name,
        found=bool(targets),
        ready=ready.status if ready is not None else "",
        conditions=node.conditions if node is not None else (),
        opinions=tuple(opinions),
        bystanders=tuple(_bystanders(known, targets, keys)),
        outlook=outlook(known, name, owners),
        names=() if targets else tuple(known.nodes),
    )


def _same(each: TargetEvaluation, target: JudgedTarget) -> bool:
    if target.machine is not None:
        return each.machine == target.name
    return not each.machine and each.target == target.name


def _bystanders(known: LedgerSnapshot, targets: list[JudgedTarget], covering: set[str]) -> Iterable[Bystander]:
    for bad in known.bad.values():
        yield Bystander(check=bad.ref.key, why=f"it can't be used, so this is not known: {bad.error}", unusable=True)
    for key, check in sorted(known.checks.items()):
        if key not in covering:
            yield Bystander(check=key, why=_why_not_covered(check, targets))


def _why_not_covered(check: HealthCheck, targets: list[JudgedTarget]) -> str:
    mine = [target for target in targets if (target.machine is not None) == check.of_machines]
    if not mine:
        return "no Machine refers to the node" if check.of_machines else "there is no such Node"
    target = mine[0]
    if target.machine is not None:
        machine = target.machine
        if machine.api is not check.machine_api:
            return f"it is for Machines of {check.dialect}, the node's is of {machine.api}"
        if machine.namespace != check.ref.namespace:
            return f"the Machine is in the namespace {machine.namespace}, not {check.ref.namespace}"
        if machine.cluster_name != check.cluster_name:
            return f"the Machine is of the cluster {machine.cluster_name or 'unknown'}, not {check.cluster_name}"
        labels = machine.labels
    else:
        assert target.node is not None
        labels = target.node.labels
    failing = next((each for each in check.selector.requirements if not each.matches(labels)), None)
    if failing is None or rules_of(check).covers(target):
        return "its selector does not match"
    return f"its selector wants {_stated(failing)}"


def _stated(requirement: Requirement) -> str:
    """A requirement as kubectl's -l would write it."""
    match requirement.operator:
        case Operator.IN:
            many = f"{requirement.key} in ({', '.join(requirement.values)})"
            return f"{requirement.key}={requirement.values[0]}" if len(requirement.values) == 1 else many
        case Operator.NOT_IN:
            return f"{requirement.key} notin ({', '.join(requirement.values)})"
        case Operator.EXISTS:
            return requirement.key
        case Operator.DOES_NOT_EXIST:
            return f"!{requirement.key}"


# What would unblock it ------------------------------------------------------------------------------------------------


def _unblock(
    known: LedgerSnapshot, evaluation: CheckEvaluation, each: TargetEvaluation, leased: Mapping[str, str]
) -> tuple[str, ...]:
    verdict = each.verdict
    if verdict.standing is Standing.LEFT_OUT:
        return (WITHOUT_MACHINE_ANNOTATION,)
    if verdict.standing is Standing.EXCLUDED:
        return (WITHOUT_LABEL,)
    if verdict.health is Health.SOON:
        seconds = timedelta(seconds=-(-each.due_in // timedelta(seconds=1))) if each.due_in is not None else None
        wait = f"in {format_duration(seconds)}" if seconds is not None else "once it is known since when"
        return (f"nothing is done until its time-out, {wait}",)
    if verdict.standing is not Standing.UNHEALTHY:
        return ()
    found = []
    if not evaluation.brake.allowed:
        found.append(unblocks(evaluation.check, evaluation.counts, evaluation.brake))
    elif each.held_under:
        found.append(_unblock_under(known, each.held_under, spare=SPARES_NO_MORE in each.held_by))
    elif each.held_by.startswith(AdmissionRefusal.CONTROL_PLANE):
        found.append("another control-plane member must be well, or its episode over, first")
    elif why := ends(each.held_by_rule) or policy_unblocks(known, each.node or each.target):
        found.append(why)
    if holder := leased.get(each.node or each.target, ""):
        found.append(f"the node's lease must be given back, or lapse: it is held by {holder}")
    if each.action is Action.SKIP_NO_OWNER:
        found.append("delete the Machine yourself, or let a MachineSet own it")
    return tuple(words for words in found if words)


def policy_unblocks(known: LedgerSnapshot, name: str) -> str:
    """What the fence policies that hold a node back are waiting for; "" where none does."""
    policies, tally, nodes = known.policies, known.groups, known.nodes
    node = nodes[name].node if name in nodes else None
    if policies.problem:
        return f"correct the fence policies: {policies.problem}"
    groups = (CLUSTER, *tally.groups_of(node)) if node is not None else (CLUSTER,)
    if policies.switched_off:
        return f"switch fencing on again: {'; '.join(policies.switched_off)}"
    if policies.off_for(groups):
        return f"take its part of the cluster out of fencing_off in {CLUSTER_CONFIG}"
    if node is not None and policies.host_lost_storage(node):
        return "its storage must be reachable again, as its conditions say"
    if policies.storage_down(tally.of(CLUSTER)):
        return f"fewer than {policies.storage_percentage}% of the nodes may say that they have lost their storage"
    for rule in policies.storms:
        for count in (tally.of(group) for group in groups if scope_of(group) == rule.scope):
            taking = int(node is not None and node.ready)
            if rule.closed(count, taking):
                wanted = range(1, count.nodes + 1)
                more = next((more for more in wanted if not rule.closed(_with_more(count, more), taking)), count.nodes)
                return f"{more} more of the {count.nodes} nodes of {called(count.group)} must become responsive"
    return ""


def _with_more(count: GroupCount, more: int) -> GroupCount:
    return replace(count, unresponsive=max(count.unresponsive - more, 0))


def _unblock_under(known: LedgerSnapshot, key: str, *, spare: bool) -> str:
    """What another check would have to say; "" where nothing is in the way, and it is only that one's turn. spare: that check has
    to be able to do without one more."""
    check, counts, brake = known.checks[key], known.counts[key], known.brakes[key]
    if not brake.allowed:
        return f"{key}: {unblocks(check, counts, brake)}"
    return f"{key}: {_more_healthy(check, counts, beyond=1)}" if spare else ""


def unblocks(check: HealthCheck, counts: Counts, brake: CircuitBreaker) -> str:
    """What would close an open circuit breaker."""
    match brake.reason:
        case OpenReason.TOO_MANY_UNHEALTHY:
            return _more_healthy(check, counts)
        case OpenReason.PAUSED:
            field = "spec.pauseRequests" if check.dialect is Dialect.MEDIK8S else f"the annotation {PAUSED_ANNOTATION}"
            cluster = ", or spec.paused of the Cluster" if check.dialect is Dialect.CLUSTER_API else ""
            return f"end the pause: {field}{cluster}"
        case OpenReason.UPGRADE:
            return "wait until the upgrade is over"
        case OpenReason.OBSERVE_ONLY:
            return f"turn the other controller off, or {TAKEOVER}"
        case OpenReason.STORM:
            return "the storm ends by itself once everything has been well for the cooldown"
        case OpenReason.INVALID_THRESHOLD:
            return f"lower the check's maxUnhealthy to at most {counts.total}"
        case OpenReason.NO_CLUSTER:
            return f"create the Cluster {check.cluster_name}, or correct spec.clusterName"
        case OpenReason.STALE_MACHINES:
            return "what the check is judged by must be readable: the management cluster, or the kind that is named"
        case OpenReason.ELSEWHERE:
            return f"nothing here: nodewarden beside the Nodes of {check.cluster_name} looks after it"
        case OpenReason.NO:
            return ""


def _more_healthy(check: HealthCheck, counts: Counts, *, beyond: int = 0) -> str:
    """How many must become healthy, found by trying: each dialect compares in its own way. beyond: so many must be to spare."""
    if check.unhealthy_range is not None and counts.unwell < check.unhealthy_range.least:
        return f"the range {check.unhealthy_range} begins at {check.unhealthy_range.least} unhealthy machines"
    noun = "machines" if check.dialect is not Dialect.MEDIK8S else "nodes"
    for more in range(1, counts.unwell + 1):
        better = Counts(healthy=counts.healthy + more, unhealthy=counts.unwell - more)
        spare = Counts(healthy=better.healthy - beyond, unhealthy=better.unhealthy + beyond)
        if better.healthy >= beyond and not threshold_breached(check, spare):
            return f"{more} more of its {counts.total} {noun} must become healthy"
    return f"its threshold lets none of {counts.total} {noun} be remediated"
