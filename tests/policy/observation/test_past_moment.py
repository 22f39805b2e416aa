"""Why nothing was done at a moment that is past."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

from policy.observation.past_moment import ending, sentences
from policy.observation.spells import Ending, HeldSpan, Spell

CET = timezone(timedelta(hours=1), "CET")
SINCE = datetime(2026, 11, 28, 3, 0, tzinfo=UTC)
DUE, PAUSED_AT, ENDED = (SINCE + timedelta(minutes=each) for each in (5, 10, 20))
SPELL = Spell(
    node="a",
    check="NodeHealthCheck//workers",
    cause="ReadyUnknown",
    since=SINCE,
    due=DUE,
    steps=("reboot",),
    place=2,
    held=(
        HeldSpan(code="CapReached", message="1 of 1 permits are held: b", since=DUE, until=PAUSED_AT),
        HeldSpan(code="Paused", message="paused by ada: drill", since=PAUSED_AT, until=ENDED),
    ),
    ended=ENDED,
    ending=Ending.OTHERS,
    traces=("another boot id",),
)


def said(minutes: float) -> list[str]:
    then = (SINCE + timedelta(minutes=minutes)).astimezone(CET)
    return [each.replace("2026-11-28 ", "").replace(":00+01:00", "") for each in sentences([SPELL], then)]


def test_what_held_it_then_and_since_when() -> None:
    assert said(12) == [
        "it was sick since 04:00: ReadyUnknown, under NodeHealthCheck//workers",
        "it would have been repaired (reboot) from 04:05 on, 2 others before it",
        "what held it since 04:10: paused by ada: drill",
        "what became of it, at 04:20: others repaired it (another boot id)",
    ]
    assert "what held it since 04:05: CapReached: 1 of 1 permits are held: b" in said(7)


def test_before_it_was_due_after_its_end_and_at_other_times() -> None:
    assert said(2)[1:] == ["a repair was due at 04:05 only"]
    assert said(60) == [
        "it had been sick until 04:20 (ReadyUnknown, under NodeHealthCheck//workers): others repaired it (another boot id)"
    ]
    assert said(-1) == said(81) == []


def test_every_ending_has_its_words() -> None:
    for each in Ending:
        assert ending(replace(SPELL, ending=each))
    assert "incident i-1" in ending(replace(SPELL, ending=Ending.OURS, traces=(), incident="i-1"))
    assert ending(replace(SPELL, ending=None, ended=None)) == ""
