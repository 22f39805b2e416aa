"""What the past of a target means for its next remediation: when that may begin, and whether it may at all.

The memory is on the objects (`memory.py`), so that it outlives us and people can read it. A Machine that never came to be a node
is the case that loops: its set makes another one at once, which fails as well. It is left to the cluster autoscaler for the time
that this gives a machine, and backs off in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from policy.checks.healthcheck import HealthCheck
from policy.checks.retries import AUTOSCALER_PATIENCE, RetryBackoff, RetryRules, strictest
from policy.checks.targets import JudgedTarget
from policy.objects.machines import MachineView
from policy.remediation.memory import LastRemediation, NextRemediation, leave_to_autoscaler, memory_of, next_turn
from policy.values.errors import PolicyError
from policy.values.moments import written

DEFAULT_RETRIES = RetryRules()
"""Cluster API's: as often as it takes, and at once."""

NEVER_JOINED = RetryBackoff()
"""Of a Machine that never had a Node, where nobody has said otherwise."""

AUTOSCALED = "MachineSet"
"""What the cluster autoscaler scales."""

OWNERS_OWN = "KubeadmControlPlane"
"""Remembers by itself: its remediationStrategy is carried out by it, and by nobody else."""


def turn_of(
    target: JudgedTarget, checks: Iterable[HealthCheck], now: datetime, *, retries: RetryRules = DEFAULT_RETRIES
) -> NextRemediation:
    """Of a target that those checks would have remediated now. The longest delay of all of them wins."""
    checks, machine = tuple(checks), target.machine
    if machine is not None and machine.controller.partition("/")[0] == OWNERS_OWN:
        return NextRemediation(retry=0)
    try:
        last = last_of(target)
    except PolicyError as error:
        # What can't be read is never taken for absent: a person sees to it, or removes it.
        return NextRemediation(retry=0, exhausted=str(error))
    if last is None:
        return NextRemediation(retry=0)
    turn = next_turn(last, rules_for(target, checks, retries), now)
    never_joined = machine is not None and not machine.node_name
    return _left_to_autoscaler(turn, machine, checks, now) if machine is not None and never_joined else turn


def rules_for(target: JudgedTarget, checks: Iterable[HealthCheck], retries: RetryRules = DEFAULT_RETRIES) -> RetryRules:
    """By which the target's next remediation is put off."""
    checks = tuple(checks)
    rules = strictest(each.retry or retries for each in checks) if checks else retries
    never_joined = target.machine is not None and not target.machine.node_name
    if never_joined and rules.backoff is None and not any(each.retry is not None for each in checks):
        return replace(rules, backoff=NEVER_JOINED)
    return rules


def last_of(target: JudgedTarget) -> LastRemediation | None:
    """On its Machine or its Node, whichever tells of the later one: a check of Nodes knows no Machines. Raises PolicyError."""
    found = []
    if (machine := target.machine) is not None:
        found.append(memory_of(machine.annotations, subject=f"Machine/{machine.namespace}/{machine.name}"))
    if (node := target.node) is not None:
        found.append(memory_of(node.annotations, subject=f"Node/{node.name}"))
    return max((each for each in found if each is not None), key=lambda last: last.at, default=None)


def _left_to_autoscaler(
    turn: NextRemediation, machine: MachineView, checks: tuple[HealthCheck, ...], now: datetime
) -> NextRemediation:
    """A replacement that failed before it had a Node: an autoscaler must be able to see that its set is broken."""
    if turn.exhausted or machine.controller.partition("/")[0] != AUTOSCALED:
        return turn
    patience = max((each.autoscaler_patience for each in checks), default=AUTOSCALER_PATIENCE)
    until = leave_to_autoscaler(machine.created, patience)
    if until is None or until <= now or (turn.not_before is not None and turn.not_before >= until):
        return turn
    told = f"not before {written(until)}: it never had a Node, and the cluster autoscaler is given its time to try another set"
    return replace(turn, not_before=until, why=f"{turn.why}; {told}" if turn.why else told)
