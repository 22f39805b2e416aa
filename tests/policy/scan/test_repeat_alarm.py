"""Nodes that are fenced for the same reason again and again."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.episode.permits import Release
from policy.scan.repeat_alarm import MAXIMUM_INCIDENTS, MAXIMUM_WORKLOADS, PastIncident, RepeatAlarm, Repetition, record_release
from tests.policy.builders import NOW

ALARM = RepeatAlarm(count=3, window=timedelta(hours=24))
HOUR = timedelta(hours=1)
DEFAULT = Release(node="node-7", incident="i-0", outcome="recovered", cause="ReadyUnknown", node_uid="uid-7")


def release(incident: str, **fields: object) -> Release:
    return replace(DEFAULT, incident=incident, **fields)  # type: ignore[arg-type]


def heard(*releases: tuple[Release, datetime], alarm: RepeatAlarm = ALARM) -> list[Repetition | None]:
    """What each of them raises."""
    memory: tuple[PastIncident, ...] = ()
    raised = []
    for each, at in releases:
        memory, repetition = record_release(memory, each, at, alarm)
        raised.append(repetition)
    return raised


def test_the_third_within_the_window_raises_it() -> None:
    first, second, third = heard(*((release(f"i-{number}"), NOW + number * HOUR) for number in range(3)))
    assert (first, second) == (None, None)
    assert third is not None
    assert (third.node, third.cause, third.count, third.node_uid) == ("node-7", "ReadyUnknown", 3, "uid-7")
    assert third.incidents == ("i-0", "i-1", "i-2")
    assert "fenced 3 times for ReadyUnknown within 24 h" in third.message


FOUR = [release(f"i-{number}") for number in range(4)]
OTHER_NODE, OTHER_CAUSE = {"node": "node-8"}, {"cause": "DiskPressureTrue"}


@pytest.mark.parametrize(
    ("releases", "apart", "raised"),
    [
        pytest.param(FOUR, HOUR, [None, None, 3, 4], id="every further one"),
        pytest.param(FOUR, 12 * HOUR, [None] * 4, id="outside the window"),
        pytest.param([*FOUR[:2], release("i-2", **OTHER_NODE)], HOUR, [None] * 3, id="another node"),
        pytest.param([*FOUR[:2], release("i-2", **OTHER_CAUSE)], HOUR, [None] * 3, id="another reason"),
        pytest.param([replace(each, cause="") for each in FOUR], HOUR, [None] * 4, id="a person asked for it"),
        pytest.param([replace(each, outcome="refused") for each in FOUR], HOUR, [None] * 4, id="refused"),
        pytest.param([replace(each, outcome="released") for each in FOUR], HOUR, [None] * 4, id="released"),
        # One that parks counts at once, and not again at its end.
        pytest.param([*FOUR[:2], replace(FOUR[2], parked=True, outcome=""), FOUR[2]], HOUR, [None, None, 3, None], id="parked"),
    ],
)
def test_those_count_that_were_carried_out_for_one_reason_on_one_node_within_the_window(
    releases: list[Release], apart: timedelta, raised: list[int | None]
) -> None:
    found = heard(*((each, NOW + number * apart) for number, each in enumerate(releases)))
    assert [each.count if each is not None else None for each in found] == raised


def test_the_workloads_that_were_there_each_time_are_named() -> None:
    *_, third = heard(
        (release("i-0", workloads=("default/db-0", "default/ReplicaSet/web", "shop/cart-1")), NOW),
        (release("i-1", workloads=("default/db-1", "default/ReplicaSet/web", "shop/cart-1")), NOW),
        (release("i-2", workloads=("default/ReplicaSet/web", "shop/cart-1")), NOW),
    )
    assert third is not None
    assert third.workloads == ("default/ReplicaSet/web", "shop/cart-1")
    assert third.message.endswith("there each time: default/ReplicaSet/web, shop/cart-1")


def test_an_incident_in_which_nothing_was_seen_clears_no_node() -> None:
    """The node came back before it was to be freed: nobody looked what ran there."""
    suspect = ("default/db-0",)
    *_, third = heard((release("i-0", workloads=suspect), NOW), (release("i-1"), NOW), (release("i-2", workloads=suspect), NOW))
    assert third is not None
    assert third.workloads == suspect


@given(
    st.lists(
        st.tuples(
            st.integers(0, 30),
            st.sampled_from(["node-1", "node-2"]),
            st.lists(st.text("abc", min_size=1, max_size=3), max_size=60),
            st.integers(0, 3),
        ),
        max_size=400,
    )
)
def test_the_memory_is_bounded_and_the_alarm_never_early(steps: list[tuple[int, str, list[str], int]]) -> None:
    """It travels in the scanner's state. An alarm names at least `count` incidents, all of them within the window."""
    memory: tuple[PastIncident, ...] = ()
    now = NOW
    for number, node, workloads, hours in steps:
        now += hours * HOUR
        memory, repetition = record_release(memory, release(f"i-{number}", node=node, workloads=tuple(workloads)), now, ALARM)
        assert len(memory) <= MAXIMUM_INCIDENTS
        assert all(len(past.workloads) <= MAXIMUM_WORKLOADS and now - past.at < ALARM.window for past in memory)
        if repetition is not None:
            same = [past for past in memory if past.node == node]
            assert repetition.count == len(same) >= ALARM.count
