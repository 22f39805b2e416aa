"""Decides what `nodewarden explain` answers: each check's opinion of a node, what would unblock it, and the conclusion.

It asks the same evaluation as `nodewarden evaluate` (`policy/scan/evaluation.py`). `starter/output/explanation.py` adds
what the scanner and the episodes say of the node, and prints it all. The command is `starter/commands/explain.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from policy.checks.circuit_breakers import CircuitBreaker, Counts, OpenReason, threshold_breached
from policy.checks.health_check import HealthCheck
from policy.checks.rival_controllers import TAKEOVER
from policy.checks.rules import rules_of
from policy.checks.targets import JudgedTarget
from policy.checks.verdicts import Health, Standing
from policy.dialects.node_fencing import CLUSTER_CONFIG
from policy.episode import gate
from policy.episode.gate import WITHOUT_LABEL, WITHOUT_MACHINE_ANNOTATION
from policy.objects.machines import PAUSED_ANNOTATION
from policy.objects.nodes import Condition
from policy.remediation.strategies import Action
from policy.scan.candidates import judged_by_objects
from policy.scan.evaluation import CheckEvaluation, TargetEvaluation, evaluate
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.outlook import Outlook, OwnersRules, outlook, targets_named
from policy.scan.permit_rules import AdmissionRefusal, ObjectLimits
from policy.values.mode import Mode
from policy.values.object_refs import Dialect
from policy.values.selectors import Operator, Requirement
from policy.values.times import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOpinion:
    """One check that covers the node. unblock: what would have to happen before it is acted on, in sentences; empty where
    nothing is in the way, or nothing is wrong."""

    check: CheckEvaluation
    target: TargetEvaluation
    unblock: tuple[str, ...] = ()

    @property
    def is_held_by_own_breaker(self) -> bool:
        """Whether the check's own open circuit breaker is what holds its target back."""
        under = self.target.held_under == self.check.check.ref.key
        return under and self.target.held_by_rule == AdmissionRefusal.CIRCUIT_BREAKER


@dataclass(frozen=True, slots=True, kw_only=True)
class Bystander:
    """A check that does not cover the node, and why not. unusable: the check can't be used, so whether it would cover it is
    unknown."""

    check: str
    why: str
    unusable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All checks' opinions of one node (or of a Machine that never had one). `found` False: there is no such object.
    conditions: of the Node. outlook: how it would be remediated, None where no check covers it."""

    node: str
    found: bool
    ready: str = ""
    conditions: tuple[Condition, ...] = ()
    opinions: tuple[CheckOpinion, ...] = ()
    bystanders: tuple[Bystander, ...] = ()
    outlook: Outlook | None = None
    names: tuple[str, ...] = ()
    """The names of all nodes, where there is no such object."""


def explain(
    known: LedgerSnapshot, name: str, owners: Mapping[str, OwnersRules] | None = None, leased: Mapping[str, str] | None = None
) -> Explanation:
    """All checks' opinions of the node, or Machine, of that name. owners: see `outlook`. leased: nodes with a node lease of
    another holder, and the holder in words."""
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
    found = [_ends(known, evaluation, each)]
    mode = known.mode_of(each.node or each.target, evaluation.check.ref.key)
    if mode.mode in {Mode.CORDON, Mode.DRAIN}:
        found.append(f"{mode}; for more {gate.unblocks(gate.MODE)}")
    if holder := leased.get(each.node or each.target, ""):
        found.append(f"the node's lease must be given back, or lapse: it is held by {holder}")
    if each.action is Action.SKIP_NO_OWNER:
        found.append("delete the Machine yourself, or let a MachineSet own it")
    return tuple(words for words in found if words)


def _ends(known: LedgerSnapshot, evaluation: CheckEvaluation, each: TargetEvaluation) -> str:
    """What would lift the objection that holds the target back, "" where nothing would, or nothing but time."""
    key = each.held_under
    match each.held_by_rule:
        case AdmissionRefusal.HELD_OFF | AdmissionRefusal.MODE:
            return gate.unblocks(each.vetoed_by)
        case AdmissionRefusal.CIRCUIT_BREAKER:
            ends = closes(known.checks[key], known.counts[key], known.breakers[key])
            return ends if key == evaluation.check.ref.key else f"{key}: {ends}"
        case AdmissionRefusal.THRESHOLD:
            return f"{key}: {_more_healthy(known.checks[key], known.counts[key], beyond=1)}"
        case AdmissionRefusal.CONTROL_PLANE:
            return "another control-plane member must be well, or its episode over, first"
    return _policy_unblocks(known, each)


def _policy_unblocks(known: LedgerSnapshot, each: TargetEvaluation) -> str:
    """What the limit of the fence policies that holds the target back waits for, with its numbers; "" where none does."""
    policies = known.policies
    match each.held_by_rule:
        case AdmissionRefusal.BAD_POLICIES:
            return f"correct the fence policies: {policies.problem}"
        case AdmissionRefusal.SWITCHED_OFF if policies.switched_off:
            return f"switch fencing on again: {'; '.join(policies.switched_off)}"
        case AdmissionRefusal.SWITCHED_OFF:
            return f"take its part of the cluster out of fencing_off in {CLUSTER_CONFIG}"
        case AdmissionRefusal.STORAGE_DOWN:
            return f"fewer than {policies.storage_percentage}% of the nodes may say that they have lost their storage"
        case AdmissionRefusal.SCOPE_STORM:
            applicant, limits = judged_by_objects(known, each.node or each.target), ObjectLimits.of(known)
            storm = policies.storm(applicant.groups, limits.count_of, limits.going_down(applicant))
            return storm.unblocks if storm is not None else ""
    return ""


def closes(check: HealthCheck, counts: Counts, breaker: CircuitBreaker) -> str:
    """What would close an open circuit breaker."""
    match breaker.reason:
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
    """How many targets must become healthy, found by trying, since each dialect compares in its own way. beyond: how many the
    check must be able to spare afterwards."""
    if check.unhealthy_range is not None and counts.unwell < check.unhealthy_range.least:
        return f"the range {check.unhealthy_range} begins at {check.unhealthy_range.least} unhealthy machines"
    noun = "machines" if check.dialect is not Dialect.MEDIK8S else "nodes"
    for more in range(1, counts.unwell + 1):
        better = Counts(healthy=counts.healthy + more, unhealthy=counts.unwell - more)
        spare = Counts(healthy=better.healthy - beyond, unhealthy=better.unhealthy + beyond)
        if better.healthy >= beyond and not threshold_breached(check, spare):
            return f"{more} more of its {counts.total} {noun} must become healthy"
    return f"its threshold lets none of {counts.total} {noun} be remediated"


# The conclusion --------------------------------------------------------------------------------------------------------

JUDGED = {Health.HEALTHY: "healthy", Health.SOON: "unhealthy soon", Health.UNHEALTHY: "unhealthy", Health.SKIPPED: "skipped"}


def conclude(explanation: Explanation | None, *, halted: str, kept_from: Sequence[str]) -> str:
    """The one sentence for a node without an open episode: the first fact that decides. explanation: None where the cluster
    can't be read. halted: what keeps everything from being begun, "" for nothing. kept_from: why the scanner begins nothing for
    this node though a check wants it to; the first one is shown."""
    if explanation is None:
        return "what health checks say of it is not known: the cluster can't be read"
    opinions = explanation.opinions
    if not opinions:
        unusable = any(each.unusable for each in explanation.bystanders)
        which = "no health check that can be used" if unusable else "no health check"
        return f"{which} covers it: nothing is done to it"
    if halted and any(each.target.verdict.health in {Health.UNHEALTHY, Health.SOON} for each in opinions):
        return f"nothing is begun for it: {halted}"
    acting = (each for each in opinions if each.target.action not in {Action.NONE, Action.SKIP_NO_OWNER})
    if (free := next((each for each in acting if not each.target.held_by), None)) is not None:
        return f"unhealthy, and {kept_from[0]}" if kept_from else _due(free, explanation.outlook)
    if (held := next((each for each in opinions if each.target.held_by), None)) is not None:
        under = f" under {held.check.check.ref.key}" if held.is_held_by_own_breaker else ""
        return f"unhealthy, and held back{under}: {held.target.held_by}"
    for health in (Health.UNHEALTHY, Health.SOON, Health.SKIPPED):
        if (found := next((each.target for each in opinions if each.target.verdict.health is health), None)) is not None:
            return f"{JUDGED[health]}: {found.message or found.verdict.reason}"
    return JUDGED[Health.HEALTHY]


def _due(opinion: CheckOpinion, outlook: Outlook | None) -> str:
    """The next step, and what puts it off. A step that has failed before is not tried again."""
    action, key = opinion.target.action.value, opinion.check.check.ref.key
    if outlook is None or outlook.check != key or outlook.plain:
        return f"{action} is due under {key}"
    if outlook.turn.exhausted:
        return f"a person is needed under {key}: {outlook.turn.exhausted}"
    step = next((planned.step.name for planned in outlook.steps if planned.next), "")
    if not step:
        return f"a person is needed under {key}: every step has failed or is not possible"
    if outlook.turn.not_before is not None:
        return f"{step} is put off under {key}: {outlook.turn.why}"
    return f"{action} is due under {key}" if outlook.turn.retry == 0 else f"{step} is due under {key}: {outlook.turn.why}"
