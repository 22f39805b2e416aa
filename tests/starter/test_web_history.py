"""What has ended, on the page: how long it took, what of that was waiting for people, and how each day was."""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, date, datetime, timedelta
from xml.etree import ElementTree

import aiohttp
import pytest

from policy.episode.messages import Kind, Outcome, RecordEntry
from policy.history.offenders import Repair
from policy.scan.pauses import PastPause, Pause
from policy.values.times import quantile
from starter.handles.history import EndedEpisode, EpisodeRecord
from starter.web.history import MOST_DAYS, by_day, by_outcome, times
from tests.starter.builders import result
from tests.starter.test_web import CLUSTER, ScriptedWarden, text
from tests.starter.test_web import page as page  # noqa: PLC0414 - a fixture
from tests.starter.test_web import scripted as scripted  # noqa: PLC0414 - a fixture

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def ended(
    took: int, *, outcome: Outcome = Outcome.RECOVERED, at: datetime = NOW, record: tuple[tuple[int, str, str, str], ...] = ()
) -> EndedEpisode:
    """took: minutes. record: after how many minutes which step, act and outcome."""
    started = at - took * MINUTE
    entries = tuple(RecordEntry(at=started + after * MINUTE, step=step, act=act, outcome=end) for after, step, act, end in record)
    made = result("node-1", outcome=outcome, started=started, ended=at, record=entries)
    return EndedEpisode(
        node="node-1",
        kind=Kind.FENCING,
        outcome=outcome.value,
        message=made.message,
        why="Ready is Unknown",
        incident=f"i-{took}",
        started=started,
        ended=at,
        workflow_id="w",
        run_id=f"r-{took}",
        result=made,
    )


POWER = "power-management"
WAITED = ended(
    60,
    record=(
        (0, "isolation", "cordon", "ok"),
        (2, POWER, "power-off", "ok"),
        (5, POWER, "phase", "needs-human"),
        (30, POWER, "resume", "asked"),
        (45, POWER, "phase", "running"),
        (50, "recovery", "power-on", "ok"),
    ),
)
"""Two minutes of isolation, eight of power, ten of recovery, and forty in which somebody had to be found."""


def test_waiting_for_people_is_no_work() -> None:
    """Whoever looks for what is slow is not told that power management takes an hour, where nobody was at his desk."""
    found = times(WAITED)
    assert (found.took, found.waited) == (60 * MINUTE, 40 * MINUTE)
    assert found.steps == {"isolate": 2 * MINUTE, "power": 8 * MINUTE, "recover": 10 * MINUTE}
    assert times(ended(5)).steps == {}
    still_waited = ended(9, outcome=Outcome.ABORTED, record=((1, POWER, "phase", "needs-human"),))
    assert times(still_waited).waited == 8 * MINUTE


def test_outcomes_are_reckoned_each_for_itself() -> None:
    found = by_outcome([WAITED, ended(2), ended(4), ended(7, outcome=Outcome.ABORTED)])
    assert [(each.outcome, each.episodes, each.half, each.most, each.waiting, each.waited) for each in found] == [
        ("recovered", 3, 4 * MINUTE, 60 * MINUTE, 1, 40 * MINUTE),
        ("aborted", 1, 7 * MINUTE, 7 * MINUTE, 0, 0 * MINUTE),
    ]
    assert found[0].steps["power"] == 8 * MINUTE


def test_how_many_permits_were_in_use_at_once_is_reckoned_by_day() -> None:
    """While somebody is waited for, or before there is a permit, an episode disrupts nothing by its own budget; one that is given
    back and got at the same moment is one. WAITED works from 11:00 to 11:05 and from 11:45 on."""
    queued = ended(20, record=((0, "isolation", "phase", "queued"), (10, "isolation", "phase", "running")))  # from 11:50 on
    before = ended(5, at=NOW - 60 * MINUTE)  # from 10:55 to 11:00
    yesterday = [ended(60 * 24 * 2 - 1, at=NOW + timedelta(minutes=number)) for number in range(3)]
    days = by_day([WAITED, queued, before], NOW - timedelta(days=1), NOW)
    assert [each.at_once for each in days] == [0, 2]
    assert [each.at_once for each in by_day([WAITED, before], NOW, NOW)] == [1]
    assert [each.at_once for each in by_day(yesterday, NOW - timedelta(days=3), NOW)] == [0, 3, 3, 3]
    kept = dataclasses.replace(WAITED, kind=Kind.PRESERVATION)
    assert [each.at_once for each in by_day([kept], NOW, NOW)] == [0]


def test_each_day_has_its_own_numbers_and_a_day_without_repairs_none() -> None:
    yesterday = NOW - timedelta(days=1)
    found = by_day(
        [ended(2), ended(4), ended(9, outcome=Outcome.FENCED_OFF), ended(3, at=yesterday)], NOW - timedelta(days=2), NOW
    )
    assert [(each.day, each.repaired, each.other, each.half, each.most) for each in found] == [
        (date(2026, 11, 24), 0, 0, None, None),
        (date(2026, 11, 25), 1, 0, 3 * MINUTE, 3 * MINUTE),
        (date(2026, 11, 26), 2, 1, 2 * MINUTE, 4 * MINUTE),
    ]
    assert len(by_day([], NOW - timedelta(days=4000), NOW)) == MOST_DAYS


@pytest.mark.parametrize(("share", "found"), [(0.5, 50), (0.99, 99), (1.0, 100)])
def test_a_quantile_is_one_that_has_been(share: float, found: int) -> None:
    assert quantile([number * MINUTE for number in range(100, 0, -1)], share) == found * MINUTE


async def test_the_page_says_who_was_waited_for_and_shows_days_and_pauses(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    now = datetime.now(UTC)
    scripted.past = (WAITED, ended(3, at=now))
    pause = Pause(who="ann@example.com", owner="ann@example.com", reason="storage <move>", since=now - timedelta(hours=2))
    scripted.heard = (PastPause(pause=pause),)
    body = await text(page, f"/c/{CLUSTER}/history?since=48h")
    assert "2 episodes ended; 1 of them waited for a person" in body
    assert "40m00s of it waiting for a person" in body
    assert "isolate 2m00s, power 8m00s, recover 10m00s" in body
    assert "ann@example.com: storage &lt;move&gt;" in body
    assert "in force" in body
    for chart in body.split("<svg ")[1:]:
        drawn = ElementTree.fromstring("<svg " + chart.split("</svg>")[0] + "</svg>")  # noqa: S314 - ours, just made
        assert not [each for each in drawn.iter() if "style" in each.attrib or each.tag in {"script", "style"}]
        for bar in drawn.iter("rect"):
            assert float(bar.attrib["y"]) >= 12
            assert float(bar.attrib["y"]) + float(bar.attrib["height"]) <= 130.1
    assert "ann@example.com" not in await text(page, f"/c/{CLUSTER}/history?since=48h&node=node-1")
    scripted.past = ()
    empty = await text(page, f"/c/{CLUSTER}/history?since=soon")
    assert "within: expected a duration above 0" in empty
    assert "No episode has ended in that time" in empty
    assert "<svg" not in empty


async def test_the_page_says_what_helped_and_which_machines_offend(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    """What kubelets and people wrote is text."""
    now = datetime.now(UTC)
    uuid, other = "4c4c4544-0042-3510-8052-b7c04f565931", "7d2f0a31-1111-4222-8333-944455556666"
    scripted.past = (WAITED,)
    scripted.repairs = tuple(
        Repair(hardware=hardware, node=node, kind="Fencing", reason="Ready is <Unknown>", started=now)
        for hardware, node in ((uuid, "gpu-1"), (uuid, "node-7"), (uuid, "node-7"), (other, "node-2"))
    )
    body = await text(page, f"/c/{CLUSTER}/history?since=48h")
    helps = " ".join(re.sub("<[^>]+>", " ", body.partition("What helps")[2].partition("</section>")[0]).split())
    assert "asked for by a person fencing 1 1" in helps
    assert "40m00s, in 1 of them" in helps
    assert "nodewarden report --since 48h" in helps
    offend = body.partition("Machines repaired again and again")[2].partition("</section>")[0]
    offend = " ".join(re.sub("<[^>]+>", " ", offend).split())
    assert f"{uuid} gpu-1, node-7 3 Ready is &lt;Unknown&gt;" in offend
    assert other not in offend, "one repair is none too many"
    scripted.past = scripted.repairs = ()
    body = await text(page, f"/c/{CLUSTER}/history?since=48h")
    assert "What helps" not in body
    assert "Machines repaired again and again" not in body


async def test_everything_at_a_moment_is_in_the_zone_of_the_form_with_a_way_to_each_record(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """03:12 in India is 21:42 of the day before in UTC."""
    at = datetime(2026, 11, 19, 21, 42, tzinfo=UTC)
    scripted.records = (
        EpisodeRecord(
            cluster=CLUSTER,
            node="node-7",
            kind=Kind.FENCING,
            outcome="",
            message="",
            why="Ready is <Unknown>",
            incident="i-7",
            started=at - 5 * MINUTE,
            entries=(RecordEntry(at=at - MINUTE, step=POWER, act="power-off", outcome="failed", detail="try `x`"),),
        ),
    )
    ann = Pause(who="ann", owner="ann", reason="storage move", since=at - MINUTE, until=at + MINUTE)
    scripted.heard = (PastPause(pause=ann),)
    body = await text(page, f"/c/{CLUSTER}/history?at=2026-11-20T03:12&offset=%2B05:30")
    then = body.partition("Everything at that moment")[2].partition("</section>")[0]
    assert '<a href="/c/prod/record/i-7">node-7</a>: Fencing since 2026-11-20 03:07:00+05:30' in then
    plain = " ".join(re.sub("<[^>]+>", " ", then).split())
    assert "prod at 2026-11-20 03:12:00+05:30 (UTC+05:30)" in plain
    assert (
        "+05:30 to 2026-11-20 03:13:00+05:30 by ann, until 2026-11-20 03:13:00+05:30: storage move Sick and not repaired, then or"
        in plain
    )
    assert "in the hour before no node" in plain
    assert "Open at that moment node-7" in plain
    assert "because Ready is &lt;Unknown&gt;; last, 1m00s earlier: power off: failed: try x" in plain
    assert "Not shown conditions of nodes that were not due for a repair" in plain
    scripted.heard = ()
    assert "no pause that is on record" in await text(page, f"/c/{CLUSTER}/history?at=2026-11-20T03:12")
    for bad in ("noon", "2126-01-01T00:00", "2026-11-20T03:12&offset=east"):
        body = await text(page, f"/c/{CLUSTER}/history?at={bad}")
        assert "at: expected a moment of the past such as 03:12" in body
        assert "Open at that moment" not in body
    assert "Open at that moment" not in await text(page, f"/c/{CLUSTER}/history")
