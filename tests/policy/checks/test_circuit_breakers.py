"""The circuit breaker of a check (S17): the shipped systems' numbers, and the sentence people read."""

from __future__ import annotations

from dataclasses import replace

from policy.checks.circuit_breakers import Counts, OpenReason, circuit_breaker
from tests.policy.builders import a_check


def test_more_allowed_failures_than_nodes_is_an_error_in_medik8s_not_a_free_pass() -> None:
    found = circuit_breaker(a_check(minHealthy=None, maxUnhealthy=12), Counts(healthy=10))
    assert (found.allowed, found.reason) == (False, OpenReason.INVALID_THRESHOLD)
    assert found.message == "maxUnhealthy is greater than the number of selected nodes: 12 of 10"


def test_a_check_without_any_threshold_never_acts() -> None:
    assert not circuit_breaker(replace(a_check(), min_healthy=None), Counts(healthy=10)).allowed
