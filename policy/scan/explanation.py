"""Decides what `nodewarden explain` answers: each check's opinion of a node, what would unblock it, and the conclusion.

It asks the same evaluation as `nodewarden evaluate` (`policy/scan/evaluation.py`). `starter/output/explanation.py` adds
what the scanner and the episodes say of the node, and prints it all. The command is `starter/commands/explain.py`. The last
section answers how the node would be remediated (`outlook`), which `nodewarden remediate plan` asks, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice

from policy.checks.circuit_breakers import TAKEOVER, CircuitBreaker, Counts, OpenReason, threshold_breached
from policy.checks.health_check import HealthCheck, RetryRules
from policy.checks.rules import rules_of
from policy.checks.verdict import MACHINE, Health, JudgedTarget, Standing
from policy.dialects.node_fencing import CLUSTER_CONFIG
from policy.episode import gate
from policy.episode.gate import WITHOUT_LABEL, WITHOUT_MACHINE_ANNOTATION
from policy.episode.modes import ModeAnswer
from policy.objects.machines import PAUSED_ANNOTATION
from policy.objects.nodes import Condition
from policy.remediation.ladder import (
    RESTORING,
    Body,
    EscalationStep,
    body_of,
    fences_only,
    first_step,
    impossible,
    ladder_of,
    most_at_once,
    name_the_node,
    possible,
    steps_not_known,
)
from policy.remediation.memory import OWNERS_OWN, LastRemediation, NextRemediation, last_of, next_turn, rules_for, turn_of
from policy.remediation.strategy_rules import RULES, Action
from policy.scan.candidates import gives_the_remedy, judged_by_objects, left_alone
from policy.scan.evaluation import CheckEvaluation, TargetEvaluation, evaluate
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.permit_rules import STOPS_NO_QUESTION, AdmissionRefusal, ObjectLimits, objections
from policy.values.errors import PolicyError
from policy.values.fields import Threshold
from policy.values.mode import Mode
from policy.values.object_refs import Dialect
from policy.values.selectors import Operator, Requirement
from policy.values.times import format_duration

MOST_IGNORED = 5
"""How many Machines and checks that do not count are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOpinion:
    """One check that covers the node. mode: of the node under it. unblock: what would have to happen before it is acted on, in
    sentences; empty where nothing is in the way, or nothing is wrong."""

    check: CheckEvaluation
    target: TargetEvaluation
    mode: ModeAnswer
    unblock: tuple[str, ...] = ()

    @property
    def is_held_by_own_breaker(self) -> bool:
        """Whether the check's own open circuit breaker is what holds its target back."""
        under = self.target.held_under == self.check.check.ref.key
        return under and self.target.held_by_rule == AdmissionRefusal.CIRCUIT_BREAKER

    def act(self, *, kept_from: str) -> str:
        """The act that follows from its verdict. kept_from: why nothing is begun although the check may act, "" for nothing."""
        action = self.target.action
        begins = action not in {Action.NONE, Action.SKIP_NO_OWNER, *RESTORING}
        return f"{action.value}, but not now" if kept_from and begins else action.value


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
    snapshot: LedgerSnapshot, name: str, owners: Mapping[str, OwnersRules] | None = None, leased: Mapping[str, str] | None = None
) -> Explanation:
    """All checks' opinions of the node, or Machine, of that name. owners: see `outlook`. leased: nodes with a node lease of
    another holder, and the holder in words."""
    targets = targets_named(snapshot, name)
    keys = {key for target in targets for key in target.verdicts}
    opinions = [
        CheckOpinion(
            check=evaluation,
            target=each,
            mode=snapshot.mode_of(each.node or each.target, evaluation.check.ref.key),
            unblock=_unblock(snapshot, evaluation, each, leased or {}),
        )
        for evaluation in evaluate(snapshot, keys)
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
        bystanders=tuple(_bystanders(snapshot, targets, keys)),
        outlook=outlook(snapshot, name, owners),
        names=() if targets else tuple(snapshot.nodes),
    )


def _same(each: TargetEvaluation, target: JudgedTarget) -> bool:
    if target.machine is not None:
        return each.machine == target.name
    return not each.machine and each.target == target.name


def _bystanders(snapshot: LedgerSnapshot, targets: list[JudgedTarget], covering: set[str]) -> Iterable[Bystander]:
    names = {target.node_name for target in targets}
    ignored = [
        (f"Machine/{machine.namespace}/{machine.name}", machine.uncounted)
        for machine in (target.machine for target in snapshot.machines.values())
        if machine is not None and machine.uncounted and machine.node_name in names
    ]
    for key, why in islice((*ignored, *snapshot.ignored.checks()), MOST_IGNORED):
        yield Bystander(check=key, why=why)
    for bad in snapshot.bad.values():
        yield Bystander(check=bad.ref.key, why=f"it can't be used, so this is not known: {bad.error}", unusable=True)
    for key, check in sorted(snapshot.checks.items()):
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
    snapshot: LedgerSnapshot, evaluation: CheckEvaluation, each: TargetEvaluation, leased: Mapping[str, str]
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
    found = [_ends(snapshot, evaluation, each)]
    mode = snapshot.mode_of(each.node or each.target, evaluation.check.ref.key)
    if mode.mode in {Mode.CORDON, Mode.DRAIN}:
        found.append(f"{mode}; for more {gate.unblocks(gate.MODE, each.node or each.target)}")
    if holder := leased.get(each.node or each.target, ""):
        found.append(f"the node's lease must be given back, or lapse: it is held by {holder}")
    if each.action is Action.SKIP_NO_OWNER:
        found.append("delete the Machine yourself, or let a MachineSet own it")
    return tuple(words for words in found if words)


def _ends(snapshot: LedgerSnapshot, evaluation: CheckEvaluation, each: TargetEvaluation) -> str:
    """What would lift the objection that holds the target back, "" where nothing would, or nothing but time."""
    key = each.held_under
    match each.held_by_rule:
        case AdmissionRefusal.HELD_OFF | AdmissionRefusal.MODE:
            return gate.unblocks(each.vetoed_by, each.node or each.target)
        case AdmissionRefusal.CIRCUIT_BREAKER:
            ends = closes(snapshot.checks[key], snapshot.counts[key], snapshot.breakers[key])
            return ends if key == evaluation.check.ref.key else f"{key}: {ends}"
        case AdmissionRefusal.THRESHOLD:
            return f"{key}: {_more_healthy(snapshot.checks[key], snapshot.counts[key], beyond=1)}"
        case AdmissionRefusal.CONTROL_PLANE:
            return "another control-plane member must be well, or its episode over, first"
    return _policy_unblocks(snapshot, each)


def _policy_unblocks(snapshot: LedgerSnapshot, each: TargetEvaluation) -> str:
    """What the limit of the fence policies that holds the target back waits for, with its numbers; "" where none does."""
    policies = snapshot.policies
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
            applicant, limits = judged_by_objects(snapshot, each.node or each.target), ObjectLimits.of(snapshot)
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

_STOPS_A_QUESTION = frozenset(AdmissionRefusal) - (STOPS_NO_QUESTION - {AdmissionRefusal.CIRCUIT_BREAKER})
"""What keeps an episode even from asking a person. Under an open circuit breaker a scan offers no node."""


def conclude(explanation: Explanation | None, *, halted: str, kept_from: Sequence[str]) -> str:
    """The one sentence for a node without an open episode: the first fact that decides. explanation: None where the cluster
    can't be read. halted: what keeps everything from being begun, "" for nothing. kept_from: why the scanner begins nothing for
    this node though a check wants it to; the first one is shown."""
    if explanation is None:
        return "what health checks say of it is not known: the cluster can't be read"
    outlook = explanation.outlook
    offered = outlook.check if outlook is not None and outlook.offered else ""
    opinions = sorted(explanation.opinions, key=lambda each: each.check.check.ref.key != offered)
    if not opinions:
        unusable = any(each.unusable for each in explanation.bystanders)
        which = "no health check that can be used" if unusable else "no health check"
        return f"{which} covers it: nothing is done to it"
    if halted and any(each.target.verdict.health in {Health.UNHEALTHY, Health.SOON} for each in opinions):
        return f"nothing is begun for it: {halted}"
    acting = [each for each in opinions if each.target.action not in {Action.NONE, Action.SKIP_NO_OWNER}]
    acting.sort(key=lambda each: each.target.action in RESTORING)  # what disrupts it is said first
    first = opinions[0].target
    under_way = offered and first.action is Action.NONE and not first.held_by
    free = (each for each in acting if not each.target.held_by and not (under_way and each.target.action in RESTORING))
    if (due := next(free, None)) is not None:
        return f"unhealthy, and {kept_from[0]}" if kept_from else _due(due, outlook)
    if not kept_from and (needed := _person_needed(outlook)):
        return needed
    held_back = () if under_way else (each for each in (*acting, *opinions) if each.target.held_by)
    if (held := next(iter(held_back), None)) is not None:
        under = f" under {held.check.check.ref.key}" if held.is_held_by_own_breaker else ""
        return f"{JUDGED[held.target.verdict.health]}, and held back{under}: {held.target.held_by}"
    for health in (Health.UNHEALTHY, Health.SOON, Health.SKIPPED):
        if (found := next((each.target for each in opinions if each.target.verdict.health is health), None)) is not None:
            return f"{JUDGED[health]}: {found.message or found.verdict.reason}"
    held_by = outlook.held_by if outlook is not None else ""
    # A node that is Ready needs no word of a check that can't be used.
    unusable = next((each.check for each in explanation.bystanders if each.unusable and explanation.ready != "True"), "")
    unbegun = f"; if it fails nothing is begun: {held_by}" if held_by else ""
    unknown = f"; what {unusable} says of it is not known: it can't be used" if unusable else ""
    return f"{JUDGED[Health.HEALTHY]}{unbegun}{unknown}"


def _due(opinion: CheckOpinion, outlook: Outlook | None) -> str:
    """The next step, and what puts it off. A step that has failed before is not tried again."""
    action, key = opinion.target.action.value, opinion.check.check.ref.key
    if outlook is None or outlook.check != key or outlook.plain or opinion.target.action in RESTORING:
        return f"{action} is due under {key}"
    if needed := _person_needed(outlook):
        return needed
    step = next((planned.step.name for planned in outlook.steps if planned.next), "")
    if outlook.turn.not_before is not None:
        return f"{step or action} is put off under {key}: {outlook.turn.why}"
    if not step:
        return f"a person is needed under {key}: every step has failed or is not possible"
    return f"{action} is due under {key}" if outlook.turn.retry == 0 else f"{step} is due under {key}: {outlook.turn.why}"


def _person_needed(outlook: Outlook | None) -> str:
    """That an episode asks a person, since its retries are used up; "" where none does."""
    if outlook is None or not outlook.offered or not outlook.turn.exhausted:
        return ""
    return f"a person is needed under {outlook.check}: {outlook.turn.exhausted}"


# How a node or machine would be remediated, for people who ask: its steps, the remembered attempts, when the next try is due.
#
# It uses the same functions as the scanner (`policy/remediation/`, `policy/scan/candidates.py`) and decides nothing itself. The
# remediations of a KubeadmControlPlane are only explained here: that controller carries them out.

NO_TURN = NextRemediation(retry=0)

_BY_HAND = (Dialect.MEDIK8S, Dialect.OPENSHIFT, Dialect.CLUSTER_API)
"""The order in which the checks that cover a node are asked for the steps that a person has not named."""

_HEALTH_CHECKS = frozenset({"NodeHealthCheck", "MachineHealthCheck"})
"""The kinds of those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step of the ladder. failed: it has failed in this sequence of retries and is passed over. impossible: why it can't be
    carried out, "" where it can. next: this one would be tried. doubtful: what only a live look can decide. endless: what becomes
    of the steps after it, since nothing ends it, "" for one that ends, and for the last."""

    step: EscalationStep
    failed: bool = False
    impossible: str = ""
    next: bool = False
    doubtful: str = ""
    endless: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersRules:
    """The remediationStrategy of a KubeadmControlPlane; rules None where it can't be read, and problem says why."""

    rules: RetryRules | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersTurn:
    """The owner's next remediation by its own rules. turn: None where the rules are not known."""

    owner: str
    rules: RetryRules | None = None
    turn: NextRemediation | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyLimit:
    """How many of a check's targets may be remediated at once: the limit as written, and as a number of the total."""

    check: str
    limit: Threshold
    most: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The whole answer. victim: the name of its episode. check: the one that has these steps, "" for none.

    problem: why there are no steps. plain: it is fenced without a ladder; such a fencing is neither remembered nor put off.
    machine: namespace and name, owner: kind and name of its controller. last: the remembered remediation; rules, turn: the
    retry rules, and when the next remediation is due. offered: a scan has an episode opened under that check,
    if only to ask a person where the turn is exhausted. owners_own: None where the owner has no rules of its own. held_by: what
    keeps programs from a node that is well, should it fail (a person's hold, a pause), "" for nothing but its mode; unblock: what
    ends that.
    """

    victim: str
    check: str = ""
    steps: tuple[PlannedStep, ...] = ()
    problem: str = ""
    plain: bool = False
    machine: str = ""
    owner: str = ""
    last: LastRemediation | None = None
    rules: RetryRules | None = None
    turn: NextRemediation = NO_TURN
    offered: bool = False
    in_flight: tuple[ConcurrencyLimit, ...] = ()
    owners_own: OwnersTurn | None = None
    held_by: str = ""
    unblock: str = ""


def targets_named(snapshot: LedgerSnapshot, name: str) -> list[JudgedTarget]:
    """The targets of a Node, of a Machine, or of the victim name of a Machine without a Node."""
    found = list(snapshot.together(name))
    alike = (target for target in snapshot.machines.values() if name in {target.name, target.victim_name})
    return found + [target for target in alike if target not in found]


def outlook(snapshot: LedgerSnapshot, name: str, owners: Mapping[str, OwnersRules] | None = None) -> Outlook | None:
    """How the scanner would have it remediated; None where no check covers it. owners: by namespace and name of the
    KubeadmControlPlane."""
    targets = targets_named(snapshot, name)
    opinions = snapshot.verdicts_on(targets[0].victim) if targets else {}
    if not opinions:
        return None
    offended = [key for key, pairs in opinions.items() if any(verdict.calls_for_action for _, verdict in pairs)] or [*opinions]
    choice = gives_the_remedy(snapshot, targets[0].victim)
    key = choice.key if choice is not None else min(offended)
    target = min((each for each, _ in opinions[key]), key=lambda each: each.key)
    checks = [snapshot.checks[each] for each in offended]
    turn = turn_of(target, checks, snapshot.now, retries=snapshot.retries)
    found = _drawn(snapshot.checks[key], target.victim_name, body_of(target), None, turn.failed, live=False)
    if found.plain:
        turn = NO_TURN
    offered = choice is not None and not choice.refused
    if offered:
        applicant, limits = judged_by_objects(snapshot, targets[0].victim, key), ObjectLimits.of(snapshot)
        offered = next(objections(applicant, limits, _STOPS_A_QUESTION), None) is None
    is_well = all(verdict.health is Health.HEALTHY for pairs in opinions.values() for _, verdict in pairs)
    if is_well and (alone := left_alone(snapshot, targets[0].victim)) is not None and alone.rule != gate.MODE:
        found = replace(found, held_by=alone.reason, unblock=gate.unblocks(alone.rule, name))
    return _remembering(
        replace(found, offered=offered),
        snapshot,
        target,
        rules=None if found.plain else rules_for(target, checks, snapshot.retries),
        turn=turn,
        in_flight=tuple(_in_flight(snapshot, check) for check in checks if check.max_in_flight is not None),
        owners=owners or {},
    )


def outlook_by_hand(
    snapshot: LedgerSnapshot,
    name: str,
    *,
    named: tuple[EscalationStep, ...] | None = None,
    whole: bool = True,
    body: Body | None = None,
    owners: Mapping[str, OwnersRules] | None = None,
) -> Outlook | None:
    """How a request by hand would be remediated: from the first step, whatever has failed, and at once. None: there is no such
    thing.

    named: the steps that the person named. whole: all of them or none. body: as a live look has found it, None where only the
    snapshot is known.
    """
    targets = targets_named(snapshot, name)
    if not targets and body is None:
        return None
    victim = targets[0].victim_name if targets else name
    target = next((each for each in targets if each.machine is not None), targets[0] if targets else None)
    seen = body or (body_of(target) if target is not None else Body(has_node=False))
    if problem := _misnamed(snapshot, name, target, has_node=seen.has_node):
        return Outlook(victim=victim, problem=problem)
    check, problem = None, ""
    if seen.has_node:
        check, problem = _asked_by_hand(snapshot, targets, with_machine=body is None or seen.phase is not None)
    if problem and named is None:
        return Outlook(victim=victim, problem=problem)
    found = _drawn(check, victim, seen, named, (), live=body is not None, whole=whole and named is not None)
    if target is None:
        return found
    return _remembering(found, snapshot, target, rules=None, turn=NO_TURN, in_flight=(), owners=owners or {})


def _misnamed(snapshot: LedgerSnapshot, name: str, target: JudgedTarget | None, *, has_node: bool) -> str:
    """Why a person's request by that name is refused, "" where it is not: the Node's name is the victim's, the Machine's own only
    where there is no Node."""
    alone = name.startswith(MACHINE)
    for each in snapshot.machines.values() if alone else ():
        its_name = f"{MACHINE}{each.machine.namespace}/{each.machine.name}" if each.machine is not None else ""
        if name == its_name and each.node_name in snapshot.nodes:
            return name_the_node(name, each.node_name)
    if alone or has_node or target is None or target.machine is None:
        return ""
    return f"there is no Node/{name}: by hand its Machine is {MACHINE}{target.machine.namespace}/{target.machine.name}"


def _asked_by_hand(
    snapshot: LedgerSnapshot, targets: Collection[JudgedTarget], *, with_machine: bool
) -> tuple[HealthCheck | None, str]:
    """The check by which a person who names no steps has a Node remediated: the first that covers it, in use or not; and why
    that is not known where none of those that can be read does."""
    known = [*snapshot.checks.values(), *(each.check for each in snapshot.bad.values() if each.check is not None)]
    asked = [check for check in known if check.dialect in _BY_HAND and (with_machine or not check.of_machines)]
    for check in sorted(asked, key=lambda check: (_BY_HAND.index(check.dialect), check.ref.key)):
        if any(rules_of(check).covers(target) for target in targets):
            return check, ""
    unread = sorted(each.error for each in snapshot.bad.values() if each.check is None and each.ref.kind in _HEALTH_CHECKS)
    return None, steps_not_known(unread[0]) if unread else ""


def _drawn(
    check: HealthCheck | None,
    victim: str,
    body: Body,
    named: tuple[EscalationStep, ...] | None,
    failed: tuple[str, ...],
    *,
    live: bool,
    whole: bool = False,
) -> Outlook:
    key = check.ref.key if check is not None else ""
    try:
        ladder = ladder_of(check, body, named)
        taken, problem = possible(check, body, named, live=live, whole=whole)
    except PolicyError as error:
        return Outlook(victim=victim, check=key, problem=str(error))
    first = first_step(taken, failed)
    chosen = taken[first].name if first is not None else ""
    unknown = not live and body.phase is None
    steps = tuple(
        PlannedStep(
            step=step,
            failed=step.name in failed,
            impossible=impossible(step, body, live=live),
            next=step.name == chosen,
            doubtful=RULES[step.strategy].doubt if unknown else "",
            endless=RULES[step.strategy].endless if step.timeout is None and step in taken[:-1] else "",
        )
        for step in ladder
    )
    plain = check is not None and named is None and bool(taken) and fences_only(check, taken)
    return Outlook(victim=victim, check=key, steps=steps, problem=problem, plain=plain, owner=body.owner)


def _remembering(
    found: Outlook,
    snapshot: LedgerSnapshot,
    target: JudgedTarget,
    *,
    rules: RetryRules | None,
    turn: NextRemediation,
    in_flight: tuple[ConcurrencyLimit, ...],
    owners: Mapping[str, OwnersRules],
) -> Outlook:
    machine = target.machine
    try:
        last = last_of(target)
    except PolicyError:
        last = None  # the turn says what is wrong with it
    return replace(
        found,
        machine=f"{machine.namespace}/{machine.name}" if machine is not None else "",
        owner=machine.controller if machine is not None else found.owner,
        last=last,
        rules=rules,
        turn=turn,
        in_flight=in_flight,
        owners_own=_owners_own(snapshot, target, last, owners),
    )


def _owners_own(
    snapshot: LedgerSnapshot, target: JudgedTarget, last: LastRemediation | None, owners: Mapping[str, OwnersRules]
) -> OwnersTurn | None:
    machine = target.machine
    kind, _, name = machine.controller.partition("/") if machine is not None else ("", "", "")
    if machine is None or kind != OWNERS_OWN:
        return None
    found = owners.get(f"{machine.namespace}/{name}", OwnersRules(problem="it is not among the objects that were read"))
    if found.rules is None:
        return OwnersTurn(owner=machine.controller, problem=found.problem)
    return OwnersTurn(owner=machine.controller, rules=found.rules, turn=next_turn(last, found.rules, snapshot.now))


def _in_flight(snapshot: LedgerSnapshot, check: HealthCheck) -> ConcurrencyLimit:
    assert check.max_in_flight is not None
    total = snapshot.counts[check.ref.key].total
    return ConcurrencyLimit(
        check=check.ref.key, limit=check.max_in_flight, most=most_at_once(check.max_in_flight, total), total=total
    )
