"""How many targets of a health check may be remediated at once."""

from __future__ import annotations

import pytest

from policy.remediation.in_flight import MAX_IN_FLIGHT_ANNOTATION, most_at_once, read_limit
from policy.values.errors import PolicyError
from policy.values.thresholds import Threshold


@pytest.mark.parametrize(
    ("limit", "total", "most"),
    [
        (Threshold(value=0), 10, 0),
        (Threshold(value=0, percent=True), 10, 0),
        (Threshold(value=2), 10, 2),
        (Threshold(value=10, percent=True), 11, 2),
        (Threshold(value=10, percent=True), 1, 1),
        (Threshold(value=100, percent=True), 3, 3),
    ],
)
def test_how_many_may_be_under_way(limit: Threshold, total: int, most: int) -> None:
    assert most_at_once(limit, total) == most


def test_the_limit_of_a_health_check_is_an_annotation() -> None:
    assert read_limit({}, "NodeHealthCheck/w") is None
    assert read_limit({MAX_IN_FLIGHT_ANNOTATION: "3"}, "NodeHealthCheck/w") == Threshold(value=3)
    assert read_limit({MAX_IN_FLIGHT_ANNOTATION: "20%"}, "NodeHealthCheck/w") == Threshold(value=20, percent=True)


@pytest.mark.parametrize("text", ["", "-1", "101%", "a few", "9" * 5000])
def test_a_limit_that_cannot_be_used_is_refused_by_name(text: str) -> None:
    with pytest.raises(PolicyError, match=r"NodeHealthCheck/w: metadata\.annotations\.nodewarden\.io/max-in-flight: expected"):
        read_limit({MAX_IN_FLIGHT_ANNOTATION: text}, "NodeHealthCheck/w")
