"""Which spells open, what holds them, how they end, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from policy.episode.gate import MODE
from policy.episode.messages import Kind
from policy.episode.permits import Permit, PermitState
from policy.history import spell_lifecycle
from policy.history.spell_lifecycle import ANOTHER_BOOT, ANOTHER_NODE, DELETED, next_spells, to_be_watched, with_traces
from policy.history.spells import Ending, HeldSpan, NodeDays, ObservationRecord, Spell, ending, why_not_repaired, would_have
from policy.scan.admission import Refused
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import NodeStanding, ScanReport, ViewState, WatchedNode
from policy.values.mode import Mode
from tests.workflows.scanner_run import CHECK, NOW, candidate, report

LATER = NOW + timedelta(minutes=1)
PERMIT = Permit(node="a", workflow_id="w", incident="i-1", kind=Kind.FENCING, state=PermitState.OPEN, granted_at=NOW)
CAP, PAUSED = AdmissionRefusal.CAP, AdmissionRefusal.PAUSED


def test_a_spell_that_nothing_holds_any_more_says_that_its_episode_is_under_way() -> None:
    """S44: the record of an open episode had "held by HeldOff; it is sick" until the scanner's next report."""
    held = HeldSpan(code="HeldOff", message="held off", since=NOW)
    lasts = Spell(node="a", check="c", cause="ReadyUnknown", since=NOW, due=NOW, held=(held,))
    assert would_have(lasts).endswith("what held it: HeldOff: held off; it is still sick")
    assert would_have(replace(lasts, held=(replace(held, until=LATER),))).endswith("; its episode is under way")


def refused(*nodes: str, reason: AdmissionRefusal = CAP, message: str = "1 of 1 permits are held: x") -> list[Refused]:
    return [Refused(node=node, check=CHECK, reason=reason, message=message) for node in nodes]


def opened(*nodes: str) -> dict[str, Spell]:
    return next_spells({}, report(*nodes), refused(*nodes), begun={}, now=NOW).spells


def showing(node: str, standing: NodeStanding, **changes: object) -> ScanReport:
    seen = WatchedNode(node=node, standing=standing, uid=f"uid-{node}", ready=True, ready_since=NOW + timedelta(seconds=30))
    return report(watched=(replace(seen, **changes),))  # type: ignore[arg-type]


def test_a_due_node_that_is_refused_has_a_spell_with_what_holds_it() -> None:
    (spell,) = opened("a").values()
    assert (spell.node, spell.check, spell.since, spell.due) == ("a", CHECK.key, candidate("a").since, NOW)
    assert spell.held == (HeldSpan(code="CapReached", message="1 of 1 permits are held: x", since=NOW, mode=Mode.REPAIR),)
    assert (spell.uid, spell.mode, spell.place, spell.ended) == ("uid-a", Mode.REPAIR, 0, None)


@pytest.mark.parametrize("stands_against_it", [{"begun": {"a": PERMIT}}, {"busy": {"a"}}])
def test_a_node_with_an_episode_of_ours_has_none(stands_against_it: dict[str, object]) -> None:
    arguments = {"begun": {}} | stands_against_it
    assert not next_spells({}, report("a"), refused("a"), now=NOW, **arguments).spells  # type: ignore[arg-type]


def test_s44_while_its_episode_is_opened_nothing_is_said_to_hold_it_and_what_does_so_again_is_one_span() -> None:
    """Of play 1115: the Lease was ours again, and an opening that Temporal does not answer lasts for a minute."""
    opening = next_spells(opened("a"), report("a"), refused("a"), begun={}, busy={"a"}, now=LATER).spells
    assert [each.until for each in opening["a"].held] == [LATER]
    again = next_spells(opening, report("a"), refused("a"), begun={}, now=LATER).spells
    assert again == opened("a")
    other = next_spells(opening, report("a"), refused("a", reason=PAUSED), begun={}, now=LATER + timedelta(minutes=1)).spells
    assert [(each.code, each.until) for each in other["a"].held] == [("CapReached", LATER), ("Paused", None)]


@pytest.mark.parametrize("view", [ViewState(synced=False), ViewState(synced=True, stale="no events for 2m")])
def test_a_view_that_is_not_live_neither_opens_nor_ends_a_spell(view: ViewState) -> None:
    """S18: the same sight of a dead watch proves nothing."""
    assert not next_spells({}, report("a", view=view), refused("a"), begun={}, now=NOW).spells
    before = opened("a")
    seen = replace(showing("a", NodeStanding.WELL), view=view)
    assert next_spells(before, seen, (), begun={}, now=LATER).spells == before


def test_a_node_that_a_report_leaves_out_keeps_its_spell() -> None:
    before = opened("a", "b")
    changes = next_spells(before, report("b"), refused("b"), begun={}, now=LATER)
    assert (changes.spells["a"], changes.ended) == (before["a"], ())
    assert to_be_watched(changes.spells, report("b"), room=10, now=LATER) == ("a", "b"), "which may be well by the next report"
    assert to_be_watched(changes.spells, report("b"), room=1, now=LATER) == ("a",)


def test_where_not_all_can_be_watched_each_has_its_turn() -> None:
    spells, seen = opened(*"abcde"), set[str]()
    for minute in range(5):
        now = NOW + timedelta(minutes=minute)
        watched = to_be_watched(spells, report(), room=2, now=now)
        assert watched == to_be_watched(spells, report(), room=2, now=now + timedelta(seconds=59)), "no scan ends early for it"
        seen.update(watched)
    assert seen == set(spells)


def test_what_holds_it_is_a_new_span_only_with_another_code() -> None:
    first = opened("a")
    same = next_spells(first, report("a"), refused("a", message="1 of 1 permits are held: y"), begun={}, now=LATER)
    (span,), (before,) = same.spells["a"].held, first["a"].held
    assert span == replace(before, message="1 of 1 permits are held: y"), "today's decision"
    then = next_spells(first, report("a"), refused("a", reason=PAUSED, message="paused by ada"), begun={}, now=LATER)
    assert [(each.code, each.since, each.until) for each in then.spells["a"].held] == [
        ("CapReached", NOW, LATER),
        ("Paused", LATER, None),
    ]


def test_a_mode_that_is_another_ones_word_by_now_is_a_new_span() -> None:
    """What was said of it earlier stays true of that time."""
    spells = opened("a")
    setting, unreadable = "the setting scan.mode is observe", "its label can't be read"
    for minute, message in enumerate((setting, unreadable, unreadable), 1):
        due = WatchedNode(node="a", standing=NodeStanding.DUE, check=CHECK.key, code=MODE, message=message)
        at = NOW + timedelta(minutes=minute)
        spells = next_spells(spells, report(watched=(due,)), (), begun={}, now=at).spells
    assert [(each.code, each.message, each.since) for each in spells["a"].held[1:]] == [
        (MODE, setting, LATER),
        (MODE, unreadable, NOW + timedelta(minutes=2)),
    ]


def test_a_mode_that_would_have_held_it_as_well_is_not_hidden_by_another_reason() -> None:
    """S52: what holds it first is named, and that it would not have been repaired without that either."""

    def under(mode: Mode) -> ScanReport:
        return report(watched=(WatchedNode(node="a", standing=NodeStanding.DUE, check=CHECK.key, code=CAP, mode=mode),))

    spells = next_spells({}, under(Mode.OBSERVE), (), begun={}, now=NOW).spells
    (span,) = next_spells(spells, under(Mode.OBSERVE), (), begun={}, now=LATER).spells["a"].held
    assert span.in_words == "CapReached: ; its mode was observe, which holds it as well"
    held = next_spells(spells, under(Mode.REPAIR), (), begun={}, now=LATER).spells["a"].held
    assert [(each.since, each.until, each.mode) for each in held] == [(NOW, LATER, Mode.OBSERVE), (LATER, None, Mode.REPAIR)]
    assert held[1].in_words == "CapReached: "
    (of_mode,) = next_spells({}, report("a"), refused("a"), begun={}, now=NOW).spells["a"].held
    assert replace(of_mode, code=MODE, message="mode: observe", mode=Mode.OBSERVE).in_words == "mode: observe"


def test_a_long_list_of_spans_keeps_its_beginning_and_its_end() -> None:
    spells = opened("a")
    for minute in range(1, 60):
        reason = PAUSED if minute % 2 else CAP
        spells = next_spells(
            spells, report("a"), refused("a", reason=reason), begun={}, now=NOW + timedelta(minutes=minute)
        ).spells
    held = spells["a"].held
    assert (len(held), held[0].since, held[-1].since) == (spell_lifecycle.MOST_SPANS, NOW, NOW + timedelta(minutes=59))


def test_an_episode_of_ours_ends_it_as_repaired() -> None:
    changes = next_spells(opened("a"), report("a"), refused("a"), begun={"a": replace(PERMIT, granted_at=LATER)}, now=LATER)
    (spell,) = changes.ended
    assert (spell.ending, spell.incident, spell.ended, spell.held[-1].until) == (Ending.OURS, "i-1", LATER, LATER)
    assert not changes.spells


@pytest.mark.parametrize(
    ("standing", "changes", "ending", "traces", "after"),
    [
        (NodeStanding.WELL, {}, Ending.CAME_BACK, (), 30),
        (NodeStanding.WELL, {"boot_id": "new"}, Ending.OTHERS, (ANOTHER_BOOT,), 30),
        (NodeStanding.WELL, {"uid": "another"}, Ending.OTHERS, (ANOTHER_NODE,), 60),
        (NodeStanding.GONE, {"uid": "", "ready": False}, Ending.OTHERS, (DELETED,), 60),
        (NodeStanding.UNCOVERED, {"ready": False}, Ending.NOT_OURS, (), 60),
        (NodeStanding.UNCOVERED, {}, Ending.CAME_BACK, (), 30),
    ],
)
def test_how_it_ends_without_us(
    standing: NodeStanding, changes: dict[str, object], ending: Ending, traces: tuple[str, ...], after: int
) -> None:
    before = {"a": replace(opened("a")["a"], boot_id="old")}
    found = next_spells(before, showing("a", standing, **{"boot_id": "old"} | changes), (), begun={}, now=LATER)
    (spell,) = found.ended
    assert (spell.ending, spell.traces, spell.ended) == (ending, traces, NOW + timedelta(seconds=after))


def test_a_node_that_is_neither_well_nor_due_keeps_it() -> None:
    before = opened("a")
    assert next_spells(before, showing("a", NodeStanding.UNCLEAR), (), begun={}, now=LATER).spells == before


def test_a_node_that_is_due_under_an_open_circuit_breaker_is_no_candidate_and_has_a_spell() -> None:
    due = WatchedNode(node="a", standing=NodeStanding.DUE, check=CHECK.key, code="CircuitBreakerOpen", message="3 of 4")
    (spell,) = next_spells({}, report(watched=(due,)), (), begun={}, now=NOW).spells.values()
    assert (spell.check, spell.held[0].code) == (CHECK.key, "CircuitBreakerOpen")


def test_another_node_of_the_name_ends_it_and_begins_another() -> None:
    before = {"a": replace(opened("a")["a"], uid="former")}
    first = next_spells(before, report("a"), refused("a"), begun={}, now=LATER)
    assert [(each.ending, each.traces) for each in first.ended] == [(Ending.OTHERS, (ANOTHER_NODE,))]
    assert first.spells["a"].due == LATER


def test_one_that_lasts_is_closed_as_still_sick_and_another_begins() -> None:
    now = NOW + spell_lifecycle.LONGEST
    changes = next_spells(opened("a"), report("a"), refused("a"), begun={}, now=now)
    assert ([each.ending for each in changes.ended], changes.spells["a"].due) == ([Ending.STILL_SICK], now)


def test_many_within_a_minute_are_one_storm() -> None:
    few = opened(*(f"n{number}" for number in range(10)))
    assert {each.storm for each in few.values()} == {""}
    more = next_spells(few, report("x"), refused("x"), begun={}, now=NOW + timedelta(seconds=59)).spells
    (storm,) = {each.storm for each in more.values()}
    assert storm
    late = next_spells(more, report("y"), refused("y"), begun={}, now=NOW + timedelta(minutes=5)).spells
    assert late["y"].storm == ""


def test_beyond_the_most_they_are_counted_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spell_lifecycle, "MOST_OPEN", 3)
    changes = next_spells({}, report(*"abcd"), refused(*"abcd"), begun={}, waiting=opened("x").values(), now=NOW)
    assert (sorted(changes.spells), changes.left_out) == (["a", "b"], 2)


def test_long_names_leave_room_for_fewer_and_a_text_is_measured_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that is too large for Temporal ends the scanner."""
    (spell,) = next_spells(
        {}, report("a"), refused("a", message="\N{CJK UNIFIED IDEOGRAPH-5B57}" * 200), begun={}, now=NOW
    ).spells.values()
    assert len(spell.held[0].message.encode()) in range(150, spell_lifecycle.LONGEST_TEXT + 1)
    monkeypatch.setattr(spell_lifecycle, "MOST_NAMED", 2 * spell_lifecycle._named(spell))
    changes = next_spells({"a": spell}, report(*"abc"), refused(*"abc"), begun={}, now=NOW)
    assert (sorted(changes.spells), changes.left_out) == (["a", "b"], 1)


def test_a_trace_of_another_hand_counts_where_it_seemed_to_come_back_by_itself() -> None:
    back = replace(opened("a")["a"], ending=Ending.CAME_BACK, ended=LATER)
    assert with_traces(back, ()) == back
    assert with_traces(back, ("cordoned by kubectl",)) == replace(back, ending=Ending.OTHERS, traces=("cordoned by kubectl",))
    ours = replace(back, ending=Ending.OURS)
    assert with_traces(ours, ("cordoned by kubectl",)) == ours


def test_node_days_count_only_the_time_between_two_live_reports() -> None:
    longest = timedelta(seconds=90)
    (days,) = spell_lifecycle.counted_days((), report(), NOW, LATER, longest=longest)
    assert (days.day, days.check, days.seconds) == ("2026-11-01", CHECK.key, 12 * 60.0)
    again = spell_lifecycle.counted_days((days,), report(), LATER, LATER + timedelta(minutes=1), longest=longest)
    assert [each.seconds for each in again] == [12 * 120.0]
    stale = report(view=ViewState(synced=True, stale="no events"))
    assert spell_lifecycle.counted_days((), stale, NOW, LATER, longest=longest) == ()
    assert spell_lifecycle.counted_days((), report(), NOW, NOW + timedelta(hours=1), longest=longest) == ()
    assert spell_lifecycle.counted_days((), report(), None, LATER, longest=longest) == ()


def test_a_record_has_one_id_whenever_it_is_made() -> None:
    spell = replace(opened("a")["a"], ended=LATER, ending=Ending.CAME_BACK)
    assert ObservationRecord(cluster="prod", spells=(spell,)).workflow_id == "observation/prod/a/2026-11-01T00:00:00+00:00"
    storm = ObservationRecord(cluster="prod", spells=(replace(spell, storm="s"), replace(spell, node="b", storm="s")), part=1)
    assert storm.workflow_id == "observation/prod/-storm/s/1"
    named = replace(spell, node="storm", due=NOW)
    day = ObservationRecord(cluster="prod", days=(NodeDays(day="2026-11-01", check="c", mode=Mode.REPAIR, seconds=1.0),))
    ids = {
        ObservationRecord(cluster="prod", spells=(each,)).workflow_id for each in (named, replace(named, storm=NOW.isoformat()))
    }
    assert len(ids) == 2, "a node may be named as a storm is"
    assert (day.workflow_id, day.over) == ("observation/prod/-days/2026-11-01", NOW + timedelta(days=1))
    assert (replace(day, until=LATER).over, storm.over) == (LATER, LATER)
    with pytest.raises(ValueError, match="one spell"):
        _ = ObservationRecord(cluster="prod", spells=(spell, replace(spell, node="b"))).workflow_id
    with pytest.raises(ValueError, match="a cluster"):
        _ = ObservationRecord(spells=(spell,)).workflow_id


# Why nothing was done at a moment that is past.

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
    return [each.replace("2026-11-28 ", "").replace(":00+01:00", "") for each in why_not_repaired([SPELL], then)]


def test_what_held_it_then_and_since_when() -> None:
    assert said(12) == [
        "it was sick since 04:00: ReadyUnknown, under NodeHealthCheck//workers",
        "it would have been repaired (reboot) from 04:05 on, after 2 other nodes",
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


def test_what_ended_because_an_episode_began_was_not_well_by_then() -> None:
    spell = replace(SPELL, ending=Ending.OURS, traces=(), incident="i-1")
    (line,) = why_not_repaired([spell], SINCE + timedelta(minutes=30))
    assert line.startswith("not repaired until 2026-11-28 03:20")
    assert line.endswith("when an episode of ours began (incident i-1)")


def test_records_of_earlier_builds_are_read() -> None:
    """They called it repaired where an episode began."""
    assert Ending("repaired") is Ending.OURS
    assert Ending.OURS == "episode-began"
    with pytest.raises(ValueError, match="healed"):
        Ending("healed")


def test_every_ending_has_its_words() -> None:
    for each in Ending:
        assert ending(replace(SPELL, ending=each))
    assert "incident i-1" in ending(replace(SPELL, ending=Ending.OURS, traces=(), incident="i-1"))
    assert ending(replace(SPELL, ending=None, ended=None)) == ""
