"""The brake of a check (S17): the shipped systems' numbers, and the sentence people read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy.checks.brakes import Closed, Counts, brake
from tests.policy.builders import a_check


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
