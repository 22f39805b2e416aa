"""The brake of a check (S17): the shipped systems' numbers, and the sentence people read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policy.checks.brakes import Circumstances, Closed, Counts, brake
from policy.objects.machines import WorkloadCluster
from policy.values.object_refs import Dialect
from policy.values.thresholds import parse_threshold
from tests.policy.builders import a_check


@pytest.mark.parametrize(
    ("knob", "value", "total", "needed"),
    [
        ("minHealthy", "100%", 10, 10),
        ("maxUnhealthy", 8, 10, 2),
        ("maxUnhealthy", "100%", 10, 0),
        ("minHealthy", "51%", 3, 2),
        ("minHealthy", "51%", 2, 2),
        ("minHealthy", "51%", 1, 1),
        ("minHealthy", "34%", 3, 2),
        ("minHealthy", "75%", 10, 8),
        ("maxUnhealthy", "75%", 10, 2),
        ("maxUnhealthy", "49%", 12, 6),
        ("maxUnhealthy", "0%", 5, 5),
    ],
)
def test_medik8s_rounds_both_knobs_up_and_compares_healthy_nodes(knob: str, value: object, total: int, needed: int) -> None:
    """S17. The numbers of the shipped operator: with 51% a group of one or two is never remediated."""
    spec: dict[str, Any] = {"minHealthy": None, knob: value}
    check = a_check(**spec)
    enough = brake(check, Counts(healthy=needed, unhealthy=total - needed))
    assert (enough.allowed, enough.remaining, enough.reason) == (True, 0, Closed.NO)
    if needed:
        short = brake(check, Counts(healthy=needed - 1, unhealthy=total - needed + 1))
        assert (short.allowed, short.remaining, short.reason) == (False, 0, Closed.TOO_MANY_UNHEALTHY)


@pytest.mark.parametrize("dialect", [Dialect.OPENSHIFT, Dialect.CLUSTER_API])
@pytest.mark.parametrize(
    ("value", "total", "healthy", "allowed", "remaining"),
    [
        (2, 5, 2, False, 0),
        ("40%", 5, 2, False, 0),
        ("40%", 5, 3, True, 0),
        ("40%", 10, 7, True, 1),
        ("60%", 5, 2, True, 0),
        ("70%", 5, 2, True, 0),
        ("100%", 7, 7, True, 7),
        (3, 2, 2, True, 3),
        ("40%", 25, 25, True, 10),
        ("100%", 0, 0, True, 0),
    ],
)
def test_the_machine_dialects_round_down(
    *, dialect: Dialect, value: object, total: int, healthy: int, allowed: bool, remaining: int
) -> None:
    check = replace(a_check(), dialect=dialect, min_healthy=None, max_unhealthy=parse_threshold(value))
    around = Circumstances(cluster=WorkloadCluster(namespace="default", name="c"))
    found = brake(check, Counts(healthy=healthy, unhealthy=total - healthy), around)
    assert (found.allowed, found.remaining) == (allowed, remaining)


@pytest.mark.parametrize("field", ["soon", "starting", "excluded", "deleting", "recovering", "unhealthy"])
def test_whatever_is_not_plainly_healthy_counts_against_the_group(field: str) -> None:
    """S17: a node NotReady for a second, an excluded one and one whose episode has not ended use up budget at once."""
    assert brake(a_check(), Counts(healthy=2, **{field: 1})).allowed
    assert not brake(a_check(), Counts(healthy=1, unhealthy=1, **{field: 1} if field != "unhealthy" else {})).allowed


def test_the_sentence_has_the_numbers() -> None:
    assert brake(a_check(), Counts(healthy=6, unhealthy=6)).message == "6 of 12 nodes are healthy, minHealthy 51% needs 7"
    seed = a_check(minHealthy=None)
    assert brake(seed, Counts(healthy=5, unhealthy=7)).message == "5 of 12 nodes are healthy, maxUnhealthy 49% needs 6"


def test_more_allowed_failures_than_nodes_is_an_error_in_medik8s_not_a_free_pass() -> None:
    found = brake(a_check(minHealthy=None, maxUnhealthy=12), Counts(healthy=10))
    assert (found.allowed, found.reason) == (False, Closed.INVALID_THRESHOLD)
    assert found.message == "maxUnhealthy is greater than the number of selected nodes: 12 of 10"


def test_a_pause_closes_the_brake_and_says_who_asked() -> None:
    found = brake(a_check(pauseRequests=["upgrade of rack 4"]), Counts(healthy=10))
    assert (found.allowed, found.reason, found.message) == (False, Closed.PAUSED, "paused: upgrade of rack 4")


def test_a_check_without_any_threshold_never_acts() -> None:
    assert not brake(replace(a_check(), min_healthy=None), Counts(healthy=10)).allowed
