"""The order of a ladder, and the end of a step."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from policy.remediation.ladder import EscalationStep, first_step, next_step, timed_out
from policy.remediation.strategies import Strategy
from tests.policy.builders import NOW

MINUTE = timedelta(minutes=1)


@given(st.sets(st.sampled_from(["a", "b", "c", "d", "e"])), st.sets(st.sampled_from(["a", "b", "c", "d", "e"])))
def test_every_step_that_has_not_failed_is_tried_once(failed: set[str], fails_now: set[str]) -> None:
    """Whichever of them fail: the climb ends, with each of the others tried in its order."""
    ladder = tuple(EscalationStep(strategy=Strategy.FENCE, name=name) for name in "abcde")
    tried: list[str] = []
    at = first_step(ladder, failed)
    while at is not None and len(tried) <= len(ladder):
        tried.append(ladder[at].name)
        at = next_step(ladder, at, failed | fails_now)
    assert at is None
    assert tried == [name for name in "abcde" if name not in failed and (name not in fails_now or name == tried[0])]


def test_a_step_has_its_time_to_the_last_moment() -> None:
    assert not timed_out(NOW, MINUTE, NOW + MINUTE)
    assert timed_out(NOW, MINUTE, NOW + MINUTE + timedelta(microseconds=1))
    assert not timed_out(NOW, None, NOW + timedelta(days=36500)), "a classic template has no time-out"
