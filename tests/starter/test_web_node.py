"""One node on the page: its timeline, what was so at a moment, its checks and devices, and the picture of it."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone
from xml.etree import ElementTree

import aiohttp
import pytest

from policy.episode.messages import Kind, Phase, RecordEntry
from policy.fence.device_check import DeviceReport, DeviceRow, Reachability
from policy.history.spells import HeldSpan, Spell
from policy.scan.pauses import PastPause, Pause
from policy.values.times import as_of
from starter.errors import UnreadableError
from starter.handles.episodes import NodeEpisodes
from starter.handles.history import EndedEpisode
from starter.output.cluster_moment import zoned
from starter.output.explanation import NodeExplanation
from starter.web.node import NodeSeen, NodeTimeline, asked_moment, covers, headline_of
from starter.web.views import Views
from tests.starter.builders import episode, row
from tests.starter.test_web import CLUSTER, ScriptedWarden, text
from tests.starter.test_web import scripted as scripted  # noqa: PLC0414 - a fixture
from tests.starter.test_web_api import conforms
from tests.unlocked import unlocked
from tests.web.objects import NightCluster

NOW = datetime.now(UTC).replace(microsecond=0)
NODE = f"/c/{CLUSTER}/nodes/node-9"
API = f"/api/v1/clusters/{CLUSTER}"
SVG = "{http://www.w3.org/2000/svg}"


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def entry(at: datetime, act: str, outcome: str = "ok", detail: str = "") -> RecordEntry:
    return RecordEntry(at=at, step="power-management", act=act, outcome=outcome, detail=detail)


@pytest.fixture
def cluster() -> NightCluster:
    return NightCluster()


@pytest.fixture
async def page(scripted: ScriptedWarden, cluster: NightCluster) -> AsyncIterator[aiohttp.ClientSession]:
    views = Views(scripted, (CLUSTER,), reading=cluster)  # type: ignore[arg-type]
    async with unlocked(views) as url, aiohttp.ClientSession(url) as session:
        yield session


@pytest.fixture
def happened(scripted: ScriptedWarden) -> ScriptedWarden:
    """Terminated yesterday; fenced now, with a person's word and a proof; and a pause between."""
    scripted.past = (
        EndedEpisode(
            node="node-9",
            kind=Kind.REMEDIATION,
            outcome="terminated",
            message="it has no result",
            why="drill",
            incident="inc-old",
            started=ago(hours=30),
            ended=ago(hours=29),
            workflow_id="w",
            run_id="r",
        ),
    )
    scripted.heard = (PastPause(pause=Pause(who="ann", owner="ann", reason="storage", since=ago(hours=3), until=ago(hours=2))),)
    scripted.episodes = NodeEpisodes(episode=episode("node-9", incident="inc-9", started=ago(minutes=10)))
    scripted.entries = (
        entry(ago(minutes=9), "power-off", detail="ipmi://10.7.0.9:623"),
        entry(ago(minutes=8), "off-proven", detail="read off twice"),
        entry(ago(minutes=5), "hold", "asked", "by bob: let me look"),
    )
    return scripted


async def told(page: aiohttp.ClientSession) -> list[dict[str, object]]:
    async with page.get(f"{API}/timeline/node-9") as answer:
        found = await answer.json()
    conforms("/api/v1/clusters/{cluster}/timeline/{node}", found)
    return list(found["entries"])


async def test_all_that_happened_is_one_line_of_time(page: aiohttp.ClientSession, happened: ScriptedWarden) -> None:
    """Whoever writes about it afterwards has not to put four sources together. node-9 is sick for 23 minutes there."""
    found = await told(page)
    assert [(each["kind"], each["what"]) for each in found] == [
        ("episode", "Remediation: terminated"),
        ("act", "terminated"),
        ("pause", "the cluster was paused by ann"),
        ("condition", "Ready is Unknown"),
        ("verdict", "unhealthy under NodeHealthCheck/workers"),
        ("episode", "Fencing begins"),
        ("act", "power off"),
        ("proof", "off proven"),
        ("command", "hold"),
    ]
    assert [each["at"] for each in found] == sorted(str(each["at"]) for each in found)
    power, proof, word = found[-3:]
    assert (power["until"], proof["until"], word["until"]) == (proof["at"], word["at"], None)
    assert [each["what"] for each in found if each["goesOn"]] == [
        "Ready is Unknown",
        "unhealthy under NodeHealthCheck/workers",
        "Fencing begins",
        "hold",
    ]


async def test_the_picture_is_a_file_of_its_own_without_a_script(page: aiohttp.ClientSession, happened: ScriptedWarden) -> None:
    """S40: it is opened elsewhere, by whatever shows pictures there."""
    evil = "<script>alert(1)</script>\x00\x1b & 'more'"
    happened.entries = (*happened.entries, entry(ago(minutes=1), "power-on", "failed", evil))
    async with page.get(f"{NODE}/timeline.svg") as answer:
        assert (answer.status, answer.content_type) == (200, "image/svg+xml")
        assert answer.headers["Content-Disposition"] == 'attachment; filename="node-9-timeline.svg"'
        drawn = ElementTree.fromstring(await answer.text())  # noqa: S314 - ours, just made
    assert {each.tag.removeprefix(SVG) for each in drawn.iter()} <= {
        "svg",
        "title",
        "g",
        "rect",
        "text",
        "line",
        "path",
        "circle",
    }
    assert not any("style" in each.attrib or any(name.startswith("on") for name in each.attrib) for each in drawn.iter())
    words = "\n".join(each.text or "" for each in drawn.iter(f"{SVG}text"))
    assert "failed: <script>alert(1)</script>   & 'more'" in words
    assert len(list(drawn.iter(f"{SVG}g"))) == len(await told(page))
    tall = int(drawn.attrib["height"])
    assert all(float(each.attrib["y"]) < tall for each in drawn.iter(f"{SVG}text"))


async def then(page: aiohttp.ClientSession, moment: datetime) -> str:
    body = await text(page, f"{NODE}?at={moment:%Y-%m-%dT%H:%M:%SZ}")
    return body.split("Why at that moment?")[1].split("What happened")[0]


async def test_at_a_moment_it_is_said_what_was_so_and_what_had_been_done_and_what_no_record_has(
    page: aiohttp.ClientSession, happened: ScriptedWarden
) -> None:
    happened.entries = (entry(ago(minutes=9, seconds=20), "phase", Phase.NEEDS_HUMAN), *happened.entries)
    body = await then(page, ago(minutes=8, seconds=30))
    assert "Fencing was open: NodeHealthCheck/workers: Ready is Unknown (for 1m30s by then)" in body
    assert "it was in phase &#39;needs a person&#39; (for 50s by then)" in body
    assert "last before it, 30s earlier: power off: ipmi://10.7.0.9:623" in body
    missing = "the queue for permits, open circuit breakers and a view that was not live"
    assert f"not recorded, and so not shown here: {missing}</li>" in body, "the conditions are recorded"
    body = await then(page, ago(hours=2, minutes=30))
    assert "the cluster was paused by ann" in body
    assert "no episode of the node was open" in body
    assert f"{missing}; conditions of that time</li>" in body


def test_a_node_that_can_t_be_read_now_is_not_called_healthy() -> None:
    """S44: what the scanner saw before is named as that."""
    known = NodeTimeline(cluster=CLUSTER, node="node-9", at=NOW, entries=())
    answer = NodeExplanation(node="node-9", at=NOW)
    found = NodeSeen(explained=answer, timeline=known, row=row("node-9"), devices=None, pauses=())
    assert headline_of(found) == "No episode is open: healthy"
    unread = dataclasses.replace(found, explained=dataclasses.replace(answer, unread=True))
    assert headline_of(unread).startswith("Not known: no episode is open, and the cluster can't be read now;")
    assert headline_of(unread).endswith("the scanner last saw it as healthy")


async def test_at_a_moment_a_refusal_of_the_hour_before_says_why_nothing_was_done(
    page: aiohttp.ClientSession, happened: ScriptedWarden
) -> None:
    (old,) = happened.past
    why = "circuit breaker open: 6 of 12"
    refused = dataclasses.replace(
        old, kind=Kind.FENCING, outcome="refused", message=why, incident="inc-no", started=ago(hours=2, minutes=50)
    )
    happened.past = (dataclasses.replace(refused, ended=ago(hours=2, minutes=49)), old)
    sentence = f"Fencing was asked for 20m00s earlier, and refused: {why}"
    assert sentence in await then(page, ago(hours=2, minutes=30))
    assert "and refused" not in await then(page, ago(hours=2, minutes=55)), "that was still to come"
    assert "and refused" not in await then(page, ago(hours=1, minutes=30)), "that was long before"


async def test_at_a_moment_nothing_is_said_of_what_came_later(page: aiohttp.ClientSession, happened: ScriptedWarden) -> None:
    """An episode that has been terminated was open then; the pause had been asked for until a later moment."""
    (pause,) = happened.heard
    happened.heard = (dataclasses.replace(pause, ended=ago(hours=2, minutes=10), ended_by="bob", ended_why="it is done"),)
    body = await then(page, ago(hours=29, minutes=30))
    assert "Remediation was open: drill (for 30m00s by then)" in body
    assert "terminated" not in body
    assert "off proven" not in await then(page, ago(minutes=8, seconds=30))
    assert "bob" not in await then(page, ago(hours=2, minutes=30))


async def test_at_a_moment_at_which_nothing_was_done_a_spell_says_what_was_seen_and_what_held_it(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    held = HeldSpan(code="CapReached", message="1 of 1 permits are held: node-3", since=ago(minutes=50))
    since, due = ago(hours=1), ago(minutes=50)
    scripted.spells = (Spell(node="node-7", check="c", cause="ReadyUnknown", since=since, due=due, held=(held,)),)
    body = await then(page, ago(minutes=30))
    assert "ReadyUnknown, under c" in body
    assert "CapReached: 1 of 1 permits are held: node-3" in body
    assert "nothing was done to it" in body
    india = timezone(timedelta(hours=5, minutes=30))
    moment = ago(minutes=30).astimezone(india).replace(microsecond=0)
    body = await text(page, f"{NODE}?at={moment:%Y-%m-%dT%H:%M:%S}&offset=%2B05:30")
    assert f"At {zoned(moment)}:" in body
    assert f"what held it since {as_of(moment, due)}: CapReached" in body


async def test_a_moment_of_a_pause_shows_its_author_and_its_span(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    """S44: also of one that was over before anything else that is known of the node, and of one that began in that minute."""
    began, planned, ended = ago(days=4), ago(days=4) + timedelta(hours=3), ago(days=4) + timedelta(hours=1)
    anns = PastPause(
        pause=Pause(who="ann", owner="ann", reason="storage move", since=began, until=planned),
        ended=ended,
        ended_by="bob",
        ended_why="it is done",
    )
    eves = PastPause(pause=Pause(who="eve", owner="eve", reason="switch", since=began + timedelta(minutes=5), until=ended))
    scripted.heard = (anns, eves)

    of_ann = f"since {as_of(began, began)} the cluster was paused by ann, until {as_of(began, planned)}: storage move"
    of_eve = (
        f"since {as_of(began, began + timedelta(minutes=5))} the cluster was paused by eve, until {as_of(began, ended)}: switch"
    )
    both = await then(page, began + timedelta(minutes=30))
    assert of_ann in both
    assert of_eve in both
    assert "nothing was done to it, and no episode could begin during a pause" in both
    first = await then(page, began - timedelta(seconds=30))
    assert of_ann in first
    assert "by eve" not in first
    after = await then(page, ended + timedelta(minutes=1))
    assert "paused" not in after
    assert "could begin" not in after
    scripted.heard = (PastPause(pause=Pause(who="ann", owner="ann", reason="move", since=began)),)
    assert f"since {as_of(began, began)} the cluster was paused by ann, until it is ended by hand: move" in await then(
        page, ago(days=1)
    )


@pytest.mark.parametrize(
    ("said", "moment"),
    [
        ("03:12", datetime(2026, 11, 26, 3, 12, tzinfo=UTC)),
        ("12:01", datetime(2026, 11, 25, 12, 1, tzinfo=UTC)),
        ("2026-11-01T00:00:00+01:00", datetime(2026, 10, 31, 23, 0, tzinfo=UTC)),
    ],
)
def test_a_time_of_day_is_the_last_one_that_has_been(said: str, moment: datetime) -> None:
    assert asked_moment(said, datetime(2026, 11, 26, 12, 0, tzinfo=UTC)) == moment


@pytest.mark.parametrize("said", ["", "25:00", "yesterday", "<b>"])
def test_what_is_no_moment_is_refused(said: str) -> None:
    with pytest.raises(UnreadableError, match="at: expected a moment"):
        asked_moment(said, NOW)


async def test_a_node_without_an_episode_is_explained_by_the_checks_that_cover_it(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, cluster: NightCluster
) -> None:
    body = await text(page, f"/c/{CLUSTER}/nodes/node-16")
    assert "unhealthy soon: Ready is False since" in body
    assert "NodeHealthCheck/gpu" in body
    assert 'data-due title="' in body
    body = await text(page, f"/c/{CLUSTER}/nodes/node-77", expected=404)
    assert "there is no Node or Machine node-77 in prod" in body
    assert "/acts/" not in body  # what is not there is not fenced from here either
    async with page.get(f"{API}/nodes/node-16") as answer:
        found = await answer.json()
    conforms("/api/v1/clusters/{cluster}/nodes/{node}", found)
    assert (found["found"], found["checks"][0]["name"], found["problems"]) == (True, "gpu", [])
    assert cluster.asked == 1  # three looks within seconds


async def test_a_hold_of_an_episode_that_needs_a_person_is_on_now_and_on_the_nodes_page(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S44: whose it is, until when and why; only the old line of the timeline had it."""
    held = "held by bob, until 2026-11-28T22:21:51Z: console open"
    waits = episode("node-9", phase=Phase.NEEDS_HUMAN, problem="the BMC is silent", held=held)
    scripted.answer = dataclasses.replace(scripted.answer, episodes=(waits,))
    scripted.episodes = NodeEpisodes(episode=waits)
    assert held in await text(page, f"/c/{CLUSTER}")
    assert f"Not now: its episode waits for a person: the BMC is silent; it is {held}" in await text(page, NODE)


async def test_what_happened_last_is_read_first(page: aiohttp.ClientSession, happened: ScriptedWarden) -> None:
    """As in every list of what has ended; the picture, which is for whoever tells the story, begins at its beginning."""
    body = (await text(page, NODE)).split("What happened, the newest first")[1]
    assert body.index("let me look") < body.index("off proven") < body.index("power off") < body.index("Remediation: terminated")


async def test_its_devices_stand_beside_it(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    silent = DeviceRow(node="node-9", endpoint="ipmi://x:623", answer=Reachability.SILENT, problem="no answer in 10s")
    other = dataclasses.replace(silent, node="node-1", problem="another's")
    scripted.devices = DeviceReport(cluster=CLUSTER, began=NOW, ended=NOW, rows=(silent, other))
    body = await text(page, NODE)
    assert "no answer in 10s" in body
    assert "another&#39;s" not in body


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("NodeHealthCheck/workers (CircuitBreakerOpen): circuit breaker open: 3 of 5", True),
        ("NodeHealthCheck/workers (HeldOff): held off (try 3): timed out", False),
        ("incident a1 (try 3): timed out", False),
        ("4 of 4 permits are in use", False),
    ],
)
def test_s44_only_what_the_headline_says_is_left_out_below_it(sentence: str, said: bool) -> None:
    headline = "No: circuit breaker open, as of 5 nodes 3 are sick: 3 of 5; a look timed out"
    assert covers(headline, sentence) is said
