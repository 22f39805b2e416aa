"""What a target's past means for its next remediation."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from policy.checks.health_check import AUTOSCALER_PATIENCE, HealthCheck, RetryBackoff, RetryRules
from policy.checks.verdicts import JudgedTarget
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, LastRemediation, turn_of, written_memory
from policy.values.object_refs import Dialect
from tests.policy.builders import NOW, a_node, ago
from tests.policy.pools import a_machine, openshift

OPENSHIFT = Dialect.OPENSHIFT
CHECK = openshift("workers")
AT_ONCE = replace(CHECK, retry=RetryRules(), autoscaler_patience=timedelta(0))


def remembering(seconds: float, retry: int = 0, failed: tuple[str, ...] = ()) -> dict[str, str]:
    return {LAST_REMEDIATION_ANNOTATION: written_memory(LastRemediation(of="m0", at=ago(seconds), retry=retry, failed=failed))}


def target(machine: MachineView | None = None, node: NodeView | None = None) -> JudgedTarget:
    return JudgedTarget("t", machine=machine, node=node)


def never_joined(age: float, memory: dict[str, str] | None = None, **fields: object) -> JudgedTarget:
    return target(a_machine(dialect=OPENSHIFT, node_name="", created=ago(age), annotations=memory or {}, **fields))


def due_in(found: JudgedTarget, *checks: HealthCheck) -> float:
    """Seconds until its next remediation may begin; 0 for at once."""
    moment = turn_of(found, checks or (CHECK,), NOW).not_before
    return (moment - NOW).total_seconds() if moment is not None else 0.0


def test_what_was_never_remediated_is_so_at_once() -> None:
    assert due_in(never_joined(5)) == 0
    assert due_in(target(node=a_node())) == 0


def test_a_successor_that_never_came_to_be_a_node_is_left_to_the_autoscaler_first() -> None:
    """Seed 000: whoever replaces it before 15 minutes are over starts the autoscaler's clock anew."""
    found = never_joined(60, remembering(70))
    assert due_in(found) == AUTOSCALER_PATIENCE.total_seconds() - 60
    assert "autoscaler" in turn_of(found, (CHECK,), NOW).why
    assert due_in(never_joined(AUTOSCALER_PATIENCE.total_seconds(), remembering(1000))) == 0
    assert due_in(never_joined(60, remembering(70)), replace(CHECK, autoscaler_patience=timedelta(0))) == 0


def test_it_backs_off_though_nobody_has_said_so_and_not_where_somebody_has() -> None:
    found = never_joined(60, remembering(20, retry=2))
    impatient = replace(CHECK, autoscaler_patience=timedelta(0))
    assert due_in(found, impatient) == RetryBackoff().before(3).total_seconds() - 20
    assert due_in(found, AT_ONCE) == 0


def test_a_machine_that_had_a_node_is_remediated_again_at_once_where_nobody_has_said_otherwise() -> None:
    """Seed 003: retryPeriod unset."""
    found = target(a_machine(dialect=OPENSHIFT, annotations=remembering(20, retry=4)))
    turn = turn_of(found, (CHECK,), NOW)
    assert (turn.retry, turn.not_before, turn.exhausted) == (5, None, "")


def test_the_longest_delay_and_the_smallest_limit_of_all_checks_win() -> None:
    found = target(a_machine(dialect=OPENSHIFT, annotations=remembering(20, retry=1)))
    short = replace(AT_ONCE, retry=RetryRules(retry_period=timedelta(seconds=60)))
    long = replace(AT_ONCE, retry=RetryRules(backoff=RetryBackoff(base=timedelta(minutes=5))))
    assert due_in(found, short, long) == 600 - 20
    limited = replace(AT_ONCE, retry=RetryRules(max_retry=1))
    assert turn_of(found, (long, limited), NOW).exhausted


def test_of_machine_and_node_the_later_one_counts() -> None:
    both = target(
        a_machine(dialect=OPENSHIFT, annotations=remembering(500, retry=1)), a_node("n1", annotations=remembering(100, retry=2))
    )
    assert turn_of(both, (CHECK,), NOW).retry == 3


@pytest.mark.parametrize("retry", [0, 7])
def test_a_kubeadm_control_plane_remembers_by_itself(retry: int) -> None:
    """Its own remediationStrategy is carried out by it, and never twice."""
    machine = a_machine(annotations=remembering(1, retry), controller="KubeadmControlPlane/cp", node_name="")
    limited = replace(CHECK, retry=RetryRules(max_retry=0, retry_period=timedelta(hours=1)))
    turn = turn_of(target(machine), (limited,), NOW)
    assert (turn.retry, turn.not_before, turn.exhausted) == (0, None, "")
