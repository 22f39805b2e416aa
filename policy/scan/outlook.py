"""How a node or machine would be remediated, for people who ask: its steps, the remembered attempts, when the next try is due.

It uses the same functions as the scanner (`policy/remediation/`, `policy/scan/candidates.py`) and decides nothing itself. The
remediations of a KubeadmControlPlane are only explained here: that controller carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policy.checks.health_check import HealthCheck, RetryRules
from policy.checks.targets import JudgedTarget
from policy.remediation.ladder import Body, EscalationStep, body_of, fences_only, first_step, impossible, ladder_of, most_at_once
from policy.remediation.memory import OWNERS_OWN, LastRemediation, NextRemediation, last_of, next_turn, rules_for, turn_of
from policy.remediation.strategies import RULES
from policy.scan.candidates import gives_the_remedy
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.values.errors import PolicyError
from policy.values.object_refs import Dialect
from policy.values.thresholds import Threshold

NO_TURN = NextRemediation(retry=0)

_BY_HAND = (Dialect.MEDIK8S, Dialect.OPENSHIFT, Dialect.CLUSTER_API)
"""The order in which the checks that cover a node are asked for the steps that a person named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One step of the ladder. failed: it has failed in this sequence of retries and is passed over. impossible: why it can't be
    carried out, "" where it can. next: this one would be tried. doubtful: what only a live look can decide."""

    step: EscalationStep
    failed: bool = False
    impossible: str = ""
    next: bool = False
    doubtful: str = ""


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
    retry rules, and when the next remediation is due. owners_own: None where the owner has no rules of its own.
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
    in_flight: tuple[ConcurrencyLimit, ...] = ()
    owners_own: OwnersTurn | None = None


def targets_named(known: LedgerSnapshot, name: str) -> list[JudgedTarget]:
    """The targets of a Node, of a Machine, or of the victim name of a Machine without a Node."""
    found = list(known.together(name))
    alike = (target for target in known.machines.values() if name in {target.name, target.victim_name})
    return found + [target for target in alike if target not in found]


def outlook(known: LedgerSnapshot, name: str, owners: Mapping[str, OwnersRules] | None = None) -> Outlook | None:
    """How the scanner would have it remediated; None where no check covers it. owners: by namespace and name of the
    KubeadmControlPlane."""
    targets = targets_named(known, name)
    opinions = known.verdicts_on(targets[0].victim) if targets else {}
    if not opinions:
        return None
    offended = [key for key, pairs in opinions.items() if any(verdict.calls_for_action for _, verdict in pairs)] or [*opinions]
    key = gives_the_remedy(known, targets[0].victim) or min(offended)
    target = min((each for each, _ in opinions[key]), key=lambda each: each.key)
    checks = [known.checks[each] for each in offended]
    turn = turn_of(target, checks, known.now, retries=known.retries)
    found = _drawn(known.checks[key], target.victim_name, body_of(target), None, turn.failed, live=False)
    if found.plain:
        turn = NO_TURN
    return _remembering(
        found,
        known,
        target,
        rules=None if found.plain else rules_for(target, checks, known.retries),
        turn=turn,
        in_flight=tuple(_in_flight(known, check) for check in checks if check.max_in_flight is not None),
        owners=owners or {},
    )


def outlook_by_hand(
    known: LedgerSnapshot,
    name: str,
    *,
    named: tuple[EscalationStep, ...] | None = None,
    body: Body | None = None,
    owners: Mapping[str, OwnersRules] | None = None,
) -> Outlook | None:
    """How a request by hand would be remediated: from the first step, whatever has failed, and at once. None: there is no such
    thing.

    named: the steps that the person named. body: as a live look has found it, None where only the snapshot is known.
    """
    targets = targets_named(known, name)
    if not targets and body is None:
        return None
    victim = targets[0].victim_name if targets else name
    opinions = [known.checks[key] for key in (known.verdicts_on(targets[0].victim) if targets else ())]
    covering = sorted(
        (check for check in opinions if check.dialect in _BY_HAND),
        key=lambda check: (_BY_HAND.index(check.dialect), check.ref.key),
    )
    target = next((each for each in targets if each.machine is not None), targets[0] if targets else None)
    has_node = target is not None and target.node is not None if body is None else body.has_node
    check = covering[0] if covering and has_node else None
    seen = body or (body_of(target) if target is not None else Body(has_node=False))
    found = _drawn(check, victim, seen, named, (), live=body is not None)
    if target is None:
        return found
    return _remembering(found, known, target, rules=None, turn=NO_TURN, in_flight=(), owners=owners or {})


def _drawn(
    check: HealthCheck | None,
    victim: str,
    body: Body,
    named: tuple[EscalationStep, ...] | None,
    failed: tuple[str, ...],
    *,
    live: bool,
) -> Outlook:
    key = check.ref.key if check is not None else ""
    try:
        ladder = ladder_of(check, body, named)
    except PolicyError as error:
        return Outlook(victim=victim, check=key, problem=str(error))
    refusals = {step.name: impossible(step, body, live=live) for step in ladder}
    possible = tuple(step for step in ladder if not refusals[step.name])
    first = first_step(possible, failed)
    chosen = possible[first].name if first is not None else ""
    unknown = not live and body.phase is None
    steps = tuple(
        PlannedStep(
            step=step,
            failed=step.name in failed,
            impossible=refusals[step.name],
            next=step.name == chosen,
            doubtful=RULES[step.strategy].doubt if unknown else "",
        )
        for step in ladder
    )
    problem = "" if possible else next(iter(refusals.values()), "its check names no way to remediate")
    plain = check is not None and named is None and bool(possible) and fences_only(check, possible)
    return Outlook(victim=victim, check=key, steps=steps, problem=problem, plain=plain, owner=body.owner)


def _remembering(
    found: Outlook,
    known: LedgerSnapshot,
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
    return Outlook(
        victim=found.victim,
        check=found.check,
        steps=found.steps,
        problem=found.problem,
        plain=found.plain,
        machine=f"{machine.namespace}/{machine.name}" if machine is not None else "",
        owner=machine.controller if machine is not None else found.owner,
        last=last,
        rules=rules,
        turn=turn,
        in_flight=in_flight,
        owners_own=_owners_own(known, target, last, owners),
    )


def _owners_own(
    known: LedgerSnapshot, target: JudgedTarget, last: LastRemediation | None, owners: Mapping[str, OwnersRules]
) -> OwnersTurn | None:
    machine = target.machine
    kind, _, name = machine.controller.partition("/") if machine is not None else ("", "", "")
    if machine is None or kind != OWNERS_OWN:
        return None
    found = owners.get(f"{machine.namespace}/{name}", OwnersRules(problem="it is not among the objects that were read"))
    if found.rules is None:
        return OwnersTurn(owner=machine.controller, problem=found.problem)
    return OwnersTurn(owner=machine.controller, rules=found.rules, turn=next_turn(last, found.rules, known.now))


def _in_flight(known: LedgerSnapshot, check: HealthCheck) -> ConcurrencyLimit:
    assert check.max_in_flight is not None
    total = known.counts[check.ref.key].total
    return ConcurrencyLimit(
        check=check.ref.key, limit=check.max_in_flight, most=most_at_once(check.max_in_flight, total), total=total
    )
