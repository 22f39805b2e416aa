"""What is due first, and that nothing piles up until it would be due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from policy.values.agenda import SPARE, Agenda

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def agenda(**due: float) -> Agenda[str]:
    found = Agenda[str]()
    for key, seconds in due.items():
        found.put(key, at(seconds))
    return found


def taken(found: Agenda[str], seconds: float) -> list[str]:
    return list(iter(lambda: found.take(at(seconds)), None))


def test_what_is_due_is_taken_in_order_and_once() -> None:
    found = agenda(late=9, soon=1, early=0)
    assert (found.first, len(found)) == (at(0), 3)
    assert taken(found, 1) == ["early", "soon"]
    assert taken(found, 8) == []
    assert (found.first, "late" in found, "soon" in found) == (at(9), True, False)


def test_a_moment_that_was_moved_or_dropped_is_not_kept() -> None:
    found = agenda(moved=1, dropped=2, unset=3, anew=4)
    found.put("moved", at(7))
    found.drop("dropped")
    found.put("unset", None)
    found.drop("anew")
    found.put("anew", at(4))
    assert found.first == at(4)
    assert taken(found, 9) == ["anew", "moved"]
    assert found.first is None


def test_what_flaps_does_not_pile_up() -> None:
    found = agenda(steady=99)
    for seconds in range(5 * SPARE):
        found.put("flaps", at(1_000 + seconds))
        assert len(found._heap) <= SPARE + 4 * len(found) + 1
    assert (found.first, len(found)) == (at(99), 2)
    assert taken(found, 10_000) == ["steady", "flaps"]
