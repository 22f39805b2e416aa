"""What every check thinks of every target, and what it would have done: the long answer, for `evaluate` and `explain`.

Where a report (`policy/scan/report_builder.py`) is bounded and drawn up with every change, an evaluation names every target and
is made only on request. Both read the same ledger, so they can't disagree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from policy.checks.circuit_breakers import CircuitBreaker, Counts, OpenReason
from policy.checks.health_check import HealthCheck, Storm, over
from policy.checks.verdict import NEVER, Health, JudgedTarget, Standing, Verdict
from policy.objects.nodes import EXCLUDE_LABEL
from policy.remediation.control_plane import objection_by_count
from policy.remediation.ladder import RESTORING, body_of, orphaned, possible, remedy, removes
from policy.remediation.strategy_rules import Action
from policy.scan.candidates import gives_the_remedy, in_turn, judged_by_objects
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.permit_rules import AdmissionRefusal, ObjectLimits, objections
from policy.scan.report_builder import counted_by_mode, notices, overlapping, within_modes
from policy.values.display_text import some_of
from policy.values.mode import Mode
from policy.values.object_refs import Dialect

LONGEST_PAUSE = timedelta(hours=1)
"""OpenShift's controller looks again at least that often while a timeout runs."""

LOOK_AGAIN = timedelta(minutes=1)
"""How soon medik8s looks again where an upgrade or the control plane's guard holds it back."""

ORPHANED = "NotSelected"
"""The reason of a verdict on a remediation object of a node that the check does not select (any more)."""

_ACTS = frozenset(Action) - {Action.NONE, Action.SKIP_NO_OWNER} - RESTORING


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEvaluation:
    """One check's opinion of one target. node, machine: names, "" where there is none.

    due_in: how soon time alone can change the verdict, or a controller would look again; None where neither. held_by: what
    keeps the action from being done now; except under the control plane's guard the action is then NONE. held_under: the key of
    the check that holds it, held_by_rule: the code of the rule in `policy/scan/permit_rules.py`, vetoed_by: the row of
    `policy/episode/gate.py`; each "" where there is none.
    """

    target: str
    node: str
    machine: str
    verdict: Verdict
    due_in: timedelta | None
    action: Action
    held_by: str = ""
    held_under: str = ""
    message: str = ""
    held_by_rule: str = ""
    vetoed_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEvaluation:
    """One check with all its verdicts, sorted by target. next_look: how soon anything can change without a new object. modes: how
    many targets are in which."""

    check: HealthCheck
    counts: Counts
    breaker: CircuitBreaker
    storm: Storm
    verdicts: tuple[TargetEvaluation, ...]
    next_look: timedelta | None
    warnings: tuple[str, ...] = ()
    modes: tuple[tuple[Mode, int], ...] = ()

    @property
    def may_act(self) -> tuple[bool, str, str]:
        """Whether it may act, the reason, and a sentence, as a report has them."""
        return within_modes(self.breaker.allowed, self.breaker.reason.value, self.breaker.message, self.modes)


def evaluate(snapshot: LedgerSnapshot, keys: Collection[str] | None = None) -> tuple[CheckEvaluation, ...]:
    """The evaluation of all checks, or of those with these keys, sorted by key."""
    chosen = sorted(snapshot.checks if keys is None else snapshot.checks.keys() & set(keys))
    overlaps = overlapping(snapshot)
    guard = _ControlPlaneGuard(snapshot)
    return tuple(_evaluate(snapshot, key, guard, overlaps.get(key, ())) for key in chosen)


def _evaluate(snapshot: LedgerSnapshot, key: str, guard: _ControlPlaneGuard, overlaps: tuple[str, ...]) -> CheckEvaluation:
    check, breaker, counts = snapshot.checks[key], snapshot.breakers[key], snapshot.counts[key]
    storm = snapshot.storms.get(key, Storm())
    targets = [
        target for target in (snapshot.machines if check.of_machines else snapshot.nodes).values() if key in target.verdicts
    ]
    targets.sort(key=lambda target: (target.verdicts[key].since or NEVER, target.key))
    judged = [_judge(snapshot, check, breaker, target, guard) for target in targets]
    judged += _orphans(snapshot, check)
    judged.sort(key=lambda each: (each.target, each.machine, each.node, each.message))
    warnings = (
        *check.warnings,
        *notices(snapshot, check, overlaps),
        *_objects_missing(snapshot, check, targets),
        *_exclusion_misspelled(targets),
    )
    return CheckEvaluation(
        check=check,
        counts=counts,
        breaker=breaker,
        storm=storm,
        verdicts=tuple(judged),
        next_look=_next_look(snapshot.now, check, breaker, storm, judged),
        warnings=warnings,
        modes=counted_by_mode(snapshot, key),
    )


def _objects_missing(snapshot: LedgerSnapshot, check: HealthCheck, targets: Iterable[JudgedTarget]) -> tuple[str, ...]:
    """The warning that the files seem to lack some of the objects."""
    targets = tuple(targets)
    if not (snapshot.machines if check.of_machines else snapshot.nodes):
        return (f"there is no {'Machine' if check.of_machines else 'Node'} here",)
    if snapshot.nodes or not any(target.machine is not None and target.machine.node_name for target in targets):
        return ()
    return ("there is no Node at all here: every Machine that refers to one seems to have lost it",)


def _exclusion_misspelled(targets: Iterable[JudgedTarget]) -> tuple[str, ...]:
    """The warning that an exclude label has a value that does not exclude."""
    found = [target.node.name for target in targets if target.node is not None and target.node.misspells_exclusion]
    return (f"the label {EXCLUDE_LABEL} excludes only with the value true: not {some_of(sorted(found))}",) if found else ()


def _judge(
    snapshot: LedgerSnapshot, check: HealthCheck, breaker: CircuitBreaker, target: JudgedTarget, guard: _ControlPlaneGuard
) -> TargetEvaluation:
    verdict = target.verdicts[check.ref.key]
    wanted = remedy(check, target, verdict)
    action, held = wanted.action, _Held()
    if action in RESTORING and snapshot.is_at_rest(check.ref.key):
        action, held = Action.NONE, _Held(breaker.message, under=check.ref.key)
    if action in _ACTS:
        held = _held_by(snapshot, check, breaker, target)
        if held.why:
            action = Action.NONE
        else:
            held = guard.objection(check, target)
    message = verdict.message
    if wanted.message and (wanted.action in {Action.NONE, Action.SKIP_NO_OWNER} or not message):
        message = f"{message}; {wanted.message}" if message and check.dialect is not Dialect.CLUSTER_API else wanted.message
    return TargetEvaluation(
        target=target.name,
        node=target.node_name,
        machine=target.machine.name if target.machine is not None else "",
        verdict=verdict,
        due_in=_due_in(snapshot.now, check, verdict),
        action=action,
        held_by=held.why,
        held_under=held.under,
        message=message,
        held_by_rule=held.rule,
        vetoed_by=held.vetoed_by,
    )


class _Held(NamedTuple):
    """Why a target is held back, under which check, by which rule of a permit, and by which row of the gate; "" for none."""

    why: str = ""
    under: str = ""
    rule: str = ""
    vetoed_by: str = ""


def _held_by(snapshot: LedgerSnapshot, check: HealthCheck, breaker: CircuitBreaker, target: JudgedTarget) -> _Held:
    """Why the check's remedy may not be carried out now: the first rule of a permit that objects, or another check's remedy
    that goes first."""
    victim, key = target.victim, check.ref.key
    applicant = judged_by_objects(snapshot, victim, key)
    if (found := next(objections(applicant, ObjectLimits.of(snapshot)), None)) is not None:
        own = found.code is AdmissionRefusal.CIRCUIT_BREAKER and found.check == key
        vetoed_by = applicant.vetoed_by if found.code in {AdmissionRefusal.HELD_OFF, AdmissionRefusal.MODE} else ""
        words = f"its open circuit breaker ({breaker.reason}): {breaker.message}" if own else found.message
        return _Held(words, found.check, found.code, vetoed_by)
    first = gives_the_remedy(snapshot, victim)
    if first is not None and first.key != key:
        opinions = snapshot.verdicts_on(victim)
        deadlines = {pair[1].expired for pair in opinions[first.key]} & {pair[1].expired for pair in opinions[key]}
        why = "of two with one deadline the name decides" if deadlines else "its deadline expired first"
        return _Held(f"{first.key} gives the remedy: {why}", first.key)
    if target.marked and target.node is not None:
        return _Held("an episode of this node is open")
    return _Held()


def _due_in(now: datetime, check: HealthCheck, verdict: Verdict) -> timedelta | None:
    if (verdict.due is None and verdict.again is None) or verdict.standing is Standing.UNHEALTHY:
        return None  # what is unhealthy stays so, whatever else expires
    wait = max(verdict.due - now, timedelta(0)) if verdict.due is not None else verdict.again
    assert wait is not None
    return min(wait, LONGEST_PAUSE) if check.dialect is Dialect.OPENSHIFT else wait


def _next_look(
    now: datetime, check: HealthCheck, breaker: CircuitBreaker, storm: Storm, judged: Iterable[TargetEvaluation]
) -> timedelta | None:
    judged = tuple(judged)
    waits = [each.due_in for each in judged if each.due_in is not None]
    # What is unhealthy stays so, but another clock of it may still change the verdict.
    waits += [
        max(each.verdict.due - now, timedelta(0)) for each in judged if each.due_in is None and each.verdict.due is not None
    ]
    if (end := over(storm, check.storm_cooldown)) is not None:
        waits.append(max(end - now, timedelta(0)))
    if check.dialect is Dialect.MEDIK8S:
        held = any(each.held_by and each.action in _ACTS for each in judged)
        if held or breaker.reason is OpenReason.UPGRADE:
            waits.append(LOOK_AGAIN)
    return min(waits, default=None)


def _orphans(snapshot: LedgerSnapshot, check: HealthCheck) -> list[TargetEvaluation]:
    """Own remediation objects of nodes that the check does not select: they are taken back (medik8s)."""
    if check.of_machines:
        return []
    found = []
    for remediation in snapshot.remediations.values():
        node = snapshot.nodes.get(remediation.target)
        if (node is not None and check.ref.key in node.verdicts) or not (check.makes(remediation) and check.owns(remediation)):
            continue
        expected = orphaned(remediation, check)
        why = "is no longer needed" if expected else "is still at work, or on its way out"
        message = f"the check does not select a node of that name: its {remediation.ref.kind} {why}"
        verdict = Verdict(health=Health.SKIPPED, standing=Standing.LEFT_OUT, reason=ORPHANED, message=message)
        found.append(
            TargetEvaluation(
                target=remediation.target,
                node=remediation.target if node is not None else "",
                machine="",
                verdict=verdict,
                due_in=None,
                action=Action.DELETE_REMEDIATION if expected else Action.NONE,
                message=message,
            )
        )
    return found


class _ControlPlaneGuard:
    """Whether a control-plane member may be taken. Ask for each in the order in which admission would let them in.

    One at a time, and never below the quorum of the Ready members (S15). OpenShift's own state of etcd, where there is one, has
    to allow it, too (the rule of the NodeHealthCheck operator). Before a Cluster API control plane is initialized there is
    nothing to guard.
    """

    def __init__(self, snapshot: LedgerSnapshot) -> None:
        self._known = snapshot
        marked = (target.node_name for target in snapshot.marked.values() if target.control_plane)
        self._taken = sorted({*marked, *snapshot.control_plane.remediated})
        for check, target in in_turn(snapshot):
            if self._is_member(target) and not self._at_admission(check, target):
                self._taken.append(target.victim)

    def objection(self, check: HealthCheck, target: JudgedTarget) -> _Held:
        """Why it may not be taken; no words where it may."""
        if not self._is_member(target):
            return _Held()
        why = self._at_admission(check, target) or self._known.surroundings.etcd.objection(target.node_name)
        code = AdmissionRefusal.CONTROL_PLANE
        return _Held(f"{code}: {why}", rule=code) if why else _Held()

    def _is_member(self, target: JudgedTarget) -> bool:
        if not any(each.control_plane for each in (target, *self._known.together(target.victim))):
            return False
        return target.cluster is None or target.cluster.control_plane_initialized

    def _at_admission(self, check: HealthCheck, target: JudgedTarget) -> str:
        """The same without etcd's own state, which is read right before an act: then no other member is let in any more."""
        if others := [taken for taken in self._taken if taken != target.victim]:
            return f"another control-plane member goes first: {others[0]}"
        plane, ready = self._known.control_plane, target.node is not None and target.node.ready
        lost = {*plane.lost, *(() if target.node is not None else (target.victim_name,))}
        replaced = removes(possible(check, body_of(target))[0])
        return objection_by_count(
            plane.members, plane.ready, target_ready=ready, open_member_episodes=(), removes=replaced, lost=lost
        )
