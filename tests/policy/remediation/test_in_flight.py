"""How many of a group at once, and who first."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import PolicyError
from policy.healthcheck import Threshold
from policy.remediation.in_flight import LOOK_AGAIN, MAX_IN_FLIGHT_ANNOTATION, UNLIMITED, Waiting, choose, read_limit, room
from tests.policy.builders import NOW


def waiting(*names: str) -> list[Waiting]:
    """Each an hour younger than the one before."""
    return [Waiting(name=name, created=NOW + timedelta(hours=index)) for index, name in enumerate(names)]


@pytest.mark.parametrize(
    ("limit", "total", "in_flight", "free"),
    [
        (None, 0, 10**6, UNLIMITED),
        (Threshold(value=0), 10, 0, 0),
        (Threshold(value=0, percent=True), 10, 0, 0),
        (Threshold(value=2), 10, 0, 2),
        (Threshold(value=2), 10, 5, 0),
        (Threshold(value=10, percent=True), 11, 0, 2),
        (Threshold(value=10, percent=True), 1, 0, 1),
        (Threshold(value=100, percent=True), 3, 1, 2),
    ],
)
def test_how_many_more_may_begin(limit: Threshold | None, total: int, in_flight: int, free: int) -> None:
    assert room(limit, total, in_flight) == free


def test_the_newest_go_first_but_for_those_that_a_person_marked() -> None:
    candidates = [*waiting("oldest", "old", "new", "newest"), Waiting(name="marked", created=NOW, annotated=True)]
    chosen = choose(candidates, limit=Threshold(value=2), replicas=5, in_flight=0)
    assert (chosen.begin, chosen.defer) == (("marked", "newest"), ("new", "old", "oldest"))
    assert chosen.why == "at most 2 at the same time, 2 are under way"
    assert chosen.again is None
    first = choose(candidates, limit=Threshold(value=2), replicas=5, in_flight=0, oldest_first=True)
    assert first.begin == ("marked", "oldest")


def test_equals_go_by_name_and_the_ageless_last() -> None:
    candidates = [Waiting(name="x"), *(Waiting(name=name, created=NOW) for name in ("b", "a"))]
    assert choose(candidates, limit=None, replicas=None, in_flight=0).begin == ("a", "b", "x")


def test_a_percentage_of_nobody_knows_how_many_is_one() -> None:
    chosen = choose(waiting("a", "b", "c"), limit=Threshold(value=100, percent=True), replicas=None, in_flight=0)
    assert (chosen.begin, chosen.defer) == (("c",), ("b", "a"))


def test_a_group_that_is_not_fit_for_it_waits_as_a_whole() -> None:
    chosen = choose(waiting("a"), limit=None, replicas=1, in_flight=0, unfit="its cluster is about to be upgraded")
    assert (chosen.begin, chosen.defer, chosen.again) == ((), ("a",), LOOK_AGAIN)
    assert chosen.why == "its cluster is about to be upgraded"
    nobody = choose((), limit=None, replicas=1, in_flight=0, unfit="its cluster is about to be upgraded")
    assert (nobody.again, nobody.why) == (None, "")


limits = st.none() | st.builds(Threshold, value=st.integers(0, 100), percent=st.booleans())


@given(limits, st.integers(1, 30), st.integers(0, 40), st.integers(0, 30))
def test_there_are_never_more_than_the_limit(limit: Threshold | None, replicas: int, in_flight: int, sick: int) -> None:
    """S14: those under way are counted and never stopped; each of the others either begins or waits."""
    names = [f"m{index}" for index in range(sick)]
    chosen = choose(waiting(*names), limit=limit, replicas=replicas, in_flight=in_flight)
    assert sorted((*chosen.begin, *chosen.defer)) == sorted(names)
    if limit is not None and chosen.begin:
        most = -(-limit.value * replicas // 100) if limit.percent else limit.value
        assert in_flight + len(chosen.begin) <= most


def test_the_limit_of_a_health_check_is_an_annotation() -> None:
    assert read_limit({}, "NodeHealthCheck/w") is None
    assert read_limit({MAX_IN_FLIGHT_ANNOTATION: "3"}, "NodeHealthCheck/w") == Threshold(value=3)
    assert read_limit({MAX_IN_FLIGHT_ANNOTATION: "20%"}, "NodeHealthCheck/w") == Threshold(value=20, percent=True)


@pytest.mark.parametrize("text", ["", "-1", "101%", "a few", "9" * 5000])
def test_a_limit_that_cannot_be_used_is_refused_by_name(text: str) -> None:
    with pytest.raises(PolicyError, match=r"NodeHealthCheck/w: metadata\.annotations\.nodewarden\.io/max-in-flight: expected"):
        read_limit({MAX_IN_FLIGHT_ANNOTATION: text}, "NodeHealthCheck/w")
