"""What a check thinks of one node."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from policy.checks.health_check import HealthCheck
from policy.checks.rules import rules_of
from policy.checks.verdicts import EXCLUDED, Health, JudgedTarget, Standing, Verdict, offences
from policy.episode.messages import Need, NeedKind, need_gone
from policy.objects.nodes import EXCLUDE_LABEL, Condition, NodeView
from tests.policy.builders import NOW, WORKER, a_check, a_node, ago, judged
from tests.policy.pools import PROD, a_machine, cluster_api


def two_conditions() -> HealthCheck:
    return a_check(
        unhealthyConditions=[
            {"type": "first", "status": "True", "duration": "10s"},
            {"type": "second", "status": "True", "duration": "20s"},
        ]
    )


def with_conditions(*conditions: tuple[str, str, float | None]) -> NodeView:
    return a_node(
        conditions=tuple(
            Condition(type=kind, status=status, since=None if age is None else ago(age)) for kind, status, age in conditions
        )
    )


@pytest.mark.parametrize(
    ("conditions", "health", "due_in"),
    [
        ([], Health.HEALTHY, None),
        ([("first", "True", 8)], Health.SOON, 3),
        ([("first", "True", 10)], Health.SOON, 1),
        ([("first", "True", 10.9)], Health.SOON, 0.1),
        ([("first", "True", 11)], Health.UNHEALTHY, None),
        ([("first", "True", 1), ("second", "True", 15)], Health.SOON, 6),
        ([("first", "True", 1), ("second", "True", 21)], Health.UNHEALTHY, None),
        ([("first", "True", None), ("second", "True", 15)], Health.SOON, 6),
        ([("first", "True", -30)], Health.SOON, 41),
    ],
    ids=str,
)
def test_a_condition_fires_once_it_has_held_strictly_longer_than_its_duration(
    conditions: list[tuple[str, str, float | None]], health: Health, due_in: float | None
) -> None:
    verdict = judged(two_conditions(), with_conditions(*conditions), NOW)
    assert verdict.health is health
    assert verdict.due == (None if due_in is None else NOW + timedelta(seconds=due_in))


def test_of_two_expired_conditions_the_one_that_expired_first_is_the_reason() -> None:
    """Its place in the list would let the reason change while the node is being remediated."""
    verdict = judged(two_conditions(), with_conditions(("second", "True", 100), ("first", "True", 50)), NOW)
    assert (verdict.reason, verdict.since) == ("secondTrue", ago(100))
    assert verdict.message == "second is True since 2026-03-01T11:58:20Z, longer than 20s"


def test_offences_are_told_in_the_order_of_the_list_and_not_of_the_node() -> None:
    found = (Condition(type="second", status="True"), Condition(type="first", status="True"))
    listed = {("first", "True"): timedelta(seconds=10), ("second", "True"): timedelta(seconds=20)}
    assert [each.condition.type for each in offences(found, listed)] == ["first", "second"]


@pytest.mark.parametrize(
    ("label", "ready", "age", "health"),
    [
        ("true", "Unknown", 12, Health.SKIPPED),
        ("true", "Unknown", 5, Health.SOON),
        ("true", "True", 12, Health.HEALTHY),
        ("", "Unknown", 12, Health.UNHEALTHY),
        ("false", "Unknown", 12, Health.UNHEALTHY),
        ("True", "Unknown", 12, Health.UNHEALTHY),
    ],
)
def test_the_exclude_label_skips_a_node_that_would_be_unhealthy(label: str, ready: str, age: float, health: Health) -> None:
    """S20: a person's veto. Only the value `true` is one."""
    verdict = judged(a_check(), a_node(ready=ready, age=age, labels={WORKER: "", EXCLUDE_LABEL: label}), NOW)
    assert verdict.health is health
    if health is Health.SKIPPED:
        assert (verdict.reason, verdict.since) == (EXCLUDED, ago(12))
        assert EXCLUDE_LABEL in verdict.message


@pytest.mark.parametrize(
    ("kind", "verdict", "gone"),
    [
        (NeedKind.CHECK, Verdict(health=Health.HEALTHY, standing=Standing.HEALTHY), True),
        (NeedKind.CHECK, Verdict(health=Health.SOON, standing=Standing.SOON), False),
        (NeedKind.CHECK, Verdict(health=Health.UNHEALTHY, standing=Standing.UNHEALTHY), False),
        (NeedKind.CHECK, Verdict(health=Health.SKIPPED, standing=Standing.EXCLUDED, reason=EXCLUDED), False),
        (NeedKind.CHECK, None, True),
        (NeedKind.PERSON, Verdict(health=Health.HEALTHY, standing=Standing.HEALTHY), False),
        (NeedKind.CLEAN_UP, None, False),
    ],
)
def test_a_need_is_gone_only_when_its_check_calls_the_node_healthy_or_no_longer_covers_it(
    kind: NeedKind, verdict: Verdict | None, gone: bool
) -> None:
    assert need_gone(Need(kind=kind), verdict) is gone


def test_before_a_control_plane_is_initialized_no_node_is_looked_up() -> None:
    """Cluster API: the Node of its first member is not Ready before there is a network."""
    check, cluster = cluster_api("m"), replace(PROD, control_plane_initialized=False)
    machine, node = a_machine(control_plane=True), a_node("n1", "False", 3600)
    target = JudgedTarget(machine.key, node=node, machine=machine)
    for target.cluster, health in ((cluster, Health.SKIPPED), (PROD, Health.UNHEALTHY)):
        assert rules_of(check).judge(target, NOW).health is health
