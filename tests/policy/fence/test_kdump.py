"""How long a crash dump holds power-off back: by silence, and by a bound that no forged message moves."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.fence.kdump import Kdump, KdumpReading, KdumpRule, dead_stands, kdump_wait, kernel_dead

T0 = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
"""The node stops being Ready."""

RULE = KdumpRule(window=timedelta(seconds=60), silence=timedelta(seconds=30), longest=timedelta(seconds=600))
TRUSTED = KdumpRule(window=timedelta(seconds=60), silence=timedelta(seconds=30), longest=timedelta(seconds=600), trusted=True)

OURS = ("fd00::7", "::ffff:10.0.0.7")
"""The node's addresses, spelled as they may be."""


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def heard(now: float, last: float | None = None, *, listening: float = -3600) -> KdumpReading:
    messages = 0 if last is None else 3
    first = None if last is None else at(last - 20)
    return KdumpReading(
        at=at(now),
        listening=at(listening),
        address="10.0.0.7" if messages else "",
        first=first,
        last=at(last) if last is not None else None,
        messages=messages,
    )


@pytest.mark.parametrize(
    ("now", "due", "reading", "state", "wait"),
    [
        (10, 10, heard(10), Kdump.AWAITED, 50),
        (60, 10, heard(60), Kdump.SILENT, 0),
        (300, 300, heard(300), Kdump.SILENT, 0),
        (300, 300, heard(300, listening=290), Kdump.AWAITED, 50),
        (300, 300, heard(300, 295), Kdump.DUMPING, 25),
        (300, 300, heard(300, 270.5), Kdump.DUMPING, 0.5),
        (300, 300, heard(300, 270), Kdump.ENDED, 0),
        (300, 300, heard(300, 30), Kdump.ENDED, 0),
        (300, 300, heard(300, -100), Kdump.ENDED, 0),
        (10, 10, heard(10, -121), Kdump.AWAITED, 50),
        (10, 10, heard(10, -5), Kdump.DUMPING, 15),
        (890, 300, heard(890, 889), Kdump.DUMPING, 10),
        (900, 300, heard(900, 899), Kdump.OVERDUE, 0),
        (300, 300, None, Kdump.DEAF, 60),
        (361, 300, None, Kdump.DEAF, 0),
    ],
)
def test_how_long_power_off_waits(now: float, due: float, reading: KdumpReading | None, state: Kdump, wait: float) -> None:
    answer = kdump_wait(RULE, reading, not_ready_since=T0, due=at(due), now=at(now))
    assert (answer.state, answer.wait) == (state, timedelta(seconds=wait))
    assert answer.reason


def test_another_clock_at_the_listener_changes_nothing_about_silence() -> None:
    """The age of a message is by the clock that heard it."""
    reading = heard(300, 295)
    answer = kdump_wait(RULE, reading, not_ready_since=T0, due=at(280), now=at(280))
    assert answer.wait == timedelta(seconds=25)


def test_where_the_beginning_is_unknown_it_counts_from_when_power_off_was_due() -> None:
    answer = kdump_wait(RULE, heard(300), not_ready_since=None, due=at(290), now=at(300))
    assert (answer.state, answer.wait) == (Kdump.AWAITED, timedelta(seconds=50))


@pytest.mark.parametrize(
    ("last", "dead"),
    [
        (300, True),
        (285, True),
        (284.9, False),  # the next one is overdue: it may be booting
        (None, False),
        (301, False),  # from the future of the clock that heard it
    ],
)
def test_only_where_it_is_trusted_and_only_for_moments_the_kernel_is_dead(last: float | None, dead: bool) -> None:
    """S2, S6: after the dump the machine boots, and without the option a message says nothing."""
    reading = heard(300, last)
    assert kernel_dead(RULE, reading, addresses=OURS, not_ready_since=T0, began=at(30)) is None
    assert (kernel_dead(TRUSTED, reading, addresses=OURS, not_ready_since=T0, began=at(30)) is not None) is dead


@pytest.mark.parametrize(
    ("since", "began", "dead"), [(0, 299, False), (299, 0, False), (298, 298, False), (297.9, 297.9, True), (None, 0, False)]
)
def test_a_message_of_another_crash_says_nothing_of_this_one(since: float | None, began: float, dead: bool) -> None:
    """S6: it must be younger than NotReady, and than the episode."""
    not_ready_since = at(since) if since is not None else None
    proof = kernel_dead(TRUSTED, heard(300, 298), addresses=OURS, not_ready_since=not_ready_since, began=at(began))
    assert (proof is not None) is dead


def test_without_a_listener_no_kernel_is_dead() -> None:
    """S3."""
    assert kernel_dead(TRUSTED, None, addresses=OURS, not_ready_since=T0, began=T0) is None


@pytest.mark.parametrize(
    ("changes", "stands"),
    [
        ({}, True),
        ({"address": "10.0.0.8"}, False),
        ({"address": ""}, False),
        ({"after": at(295)}, False),
        ({"after": at(-1)}, False),
        ({"read_at": at(311)}, False),
    ],
)
def test_a_proof_is_of_the_node_s_own_address_after_it_stopped_being_ready(changes: dict[str, Any], stands: bool) -> None:
    """S1, S9."""
    proof = kernel_dead(TRUSTED, heard(300, 295), addresses=OURS, not_ready_since=T0, began=T0)
    assert proof is not None
    found = replace(proof, **changes)
    assert dead_stands(found, not_ready_since=T0, addresses=OURS) is stands
    assert not dead_stands(found, not_ready_since=None, addresses=("10.0.0.7",))


@given(every=st.integers(min_value=1, max_value=60), due=st.integers(min_value=0, max_value=600))
def test_forged_messages_delay_by_no_more_than_the_bound(every: int, due: int) -> None:
    """They are unauthenticated: any pattern of them ends, and each answer says to ask again later or to go on."""
    now, asked = float(due), 0
    while True:
        asked += 1
        answer = kdump_wait(RULE, heard(now, now - now % every), not_ready_since=T0, due=at(due), now=at(now))
        if not answer.wait:
            break
        now += answer.wait.total_seconds()
    assert now <= due + RULE.longest.total_seconds()
    assert asked < 1000


@pytest.mark.parametrize("field", ["window", "silence", "longest"])
@pytest.mark.parametrize("value", [timedelta(0), timedelta(seconds=-1), timedelta(days=2)])
def test_a_rule_that_never_waits_or_for_ever_is_refused(field: str, value: timedelta) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        KdumpRule(**{field: value})  # type: ignore[arg-type]
