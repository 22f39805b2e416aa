"""How many pods may be freed in a minute: never more in any minute, whatever becomes of those who were let go."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from policy.episode.permits import MINUTE, Portion, PortionAnswer, PortionRequest, portion_of, standing
from tests.policy.builders import NOW

WITHIN = timedelta(seconds=15)


def asked(pods: int, *, per_minute: int = 10, incident: str = "a", number: int = 1) -> PortionRequest:
    return PortionRequest(node="n1", incident=incident, number=number, pods=pods, per_minute=per_minute)


def handed_out(
    request: PortionRequest, portions: tuple[Portion, ...] = (), now: datetime = NOW
) -> tuple[tuple[Portion, ...], PortionAnswer]:
    return portion_of(portions, request, now, used_within=WITHIN)


def test_a_request_for_less_than_is_left_is_granted_for_a_moment() -> None:
    portions, answer = handed_out(asked(4))
    assert answer == PortionAnswer(pods=4, until=NOW + WITHIN)
    assert handed_out(asked(9, incident="b"), portions)[1].pods == 6


def test_where_nothing_is_left_it_is_said_when_something_will_be() -> None:
    portions, _ = handed_out(asked(10))
    later = NOW + timedelta(seconds=20)
    still, answer = handed_out(asked(1, incident="b"), portions, later)
    assert answer == PortionAnswer(again=NOW + WITHIN + MINUTE)
    assert still == portions
    assert answer.again is not None
    assert handed_out(asked(1, incident="b", number=2), portions, answer.again)[1].pods == 1


def test_the_same_question_has_the_same_answer_and_counts_once() -> None:
    """S33: the answer was lost, and its activity asks again."""
    portions, answer = handed_out(asked(10))
    again, repeated = handed_out(asked(10), portions, NOW + timedelta(seconds=3))
    assert (again, repeated) == (portions, answer)


def test_what_a_stranger_asks_under_no_limit_in_an_episode_s_name_is_no_leave_for_more() -> None:
    """S14: any client of Temporal asks the questions that an episode will ask, the later ones as well."""
    portions = tuple[Portion, ...]()
    for number in (1, 2, 3):
        portions, _ = handed_out(asked(10, per_minute=1_000_000, number=number), portions)
    answers = [handed_out(asked(30, number=number), portions)[1] for number in (1, 2, 3)]
    assert sum(each.pods for each in answers) <= 10


ASKS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 12), st.sampled_from("abc"), st.floats(0, WITHIN.total_seconds())), max_size=40
)


@given(asks=ASKS, limit=st.integers(1, 15))
def test_in_no_minute_more_are_freed_than_the_limit(asks: list[tuple[int, int, str, float]], limit: int) -> None:
    """Each portion is used at whichever moment it may be, as a whole; others die with theirs in their hands."""
    portions, now = tuple[Portion, ...](), NOW
    freed: list[tuple[datetime, int]] = []
    for number, (pause, pods, incident, used_after) in enumerate(asks):
        now += timedelta(seconds=pause)
        portions, answer = handed_out(asked(pods, per_minute=limit, incident=incident, number=number), portions, now)
        if answer.until is not None:
            assert answer.pods <= pods
            freed.append((now + timedelta(seconds=used_after), answer.pods))
        else:
            assert answer.again is not None
            assert answer.again > now
    for moment, _ in freed:
        assert sum(pods for at, pods in freed if moment <= at < moment + MINUTE) <= limit
    assert len(standing(portions, now)) <= limit
