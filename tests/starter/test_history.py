"""`nodewarden history` and `nodewarden record`: what has ended, and what one episode did."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.worker import Worker

from activities.contracts import search_attributes
from policy.episode.messages import Acknowledgement, Kind, OffProof, RecordEntry
from policy.history.spells import Ending, HeldSpan, Spell, would_have
from policy.scan.pauses import PAUSES_REMEMBERED, PastPause, Pause, PauseEnd, Pauses, in_force, paused, unpaused
from policy.values.times import written
from starter.client import Nodewarden
from starter.handles.history import EndedEpisodes, EpisodeRecord
from starter.handles.observations import SpellsThen
from starter.output import history_table
from starter.output.cluster_moment import (
    NOT_RECORDED,
    ClusterMoment,
    Stood,
    as_text,
    asked_moment,
    cluster_moment,
    episodes_then,
    sections,
    zoned,
)
from starter.output.record_table import as_table, moments_of
from tests.starter.builders import NOW, ago, drawn, nodewarden, proof
from tests.workers.server import SILENT
from workers.configuration.settings import load
from workflows.kit.options import WORKFLOW_QUEUE

PROVEN = (
    f"Off was proven by ipmi://10.0.0.0:623, read off at {written(ago(60))}, "
    f"after the off command of {written(ago(70))} had ended."
)


FIRST = f"ipmi://10.0.0.0:623 off at {written(ago(60))}"


async def acknowledged(warden: Nodewarden, cluster: str, node: str) -> None:
    await warden.episode(cluster, node).ack_off(who="amy", reason="pulled the plug", question=7)


async def terminated(warden: Nodewarden, cluster: str, node: str) -> None:
    await warden.episode(cluster, node).status()  # what is terminated before its first task has no record
    await warden.client.get_workflow_handle(f"episode/{cluster}/{node}").terminate()


async def refused(warden: Nodewarden, cluster: str, node: str) -> None:
    """It ends by itself."""


async def play(
    warden: Nodewarden, cluster: str, *stories: tuple[str, Callable[[Nodewarden, str, str], Awaitable[None]]]
) -> dict[str, str]:
    """One episode after the other, each to its end; the incident of each node. Returns once visibility knows them all."""
    incidents = dict[str, str]()
    for node, end in stories:
        await warden.fence(cluster, node, reason=f"{node} is slow", incident=f"i-{node}")
        await end(warden, cluster, node)
        incidents[node] = f"i-{node}"
    async with asyncio.timeout(20):
        while len((await warden.history.ended(cluster)).episodes) < len(stories):
            await asyncio.sleep(0.1)
    return incidents


async def listed(cluster: str, *words: str) -> list[tuple[str, str]]:
    found = json.loads((await nodewarden("history", "-c", cluster, "-o", "json", *words)).stdout)
    return [(each["node"], each["outcome"]) for each in found["episodes"]]


async def test_what_has_ended_is_listed_newest_first_and_refused_requests_only_when_asked_for(
    keyboard: Path, warden: Nodewarden, cluster: str
) -> None:
    await play(warden, cluster, ("node-1", acknowledged), ("node-2", terminated), ("refused-1", refused))
    assert await listed(cluster) == [("node-2", "terminated"), ("node-1", "recovered")]
    assert await listed(cluster, "--all") == [("refused-1", "refused"), ("node-2", "terminated"), ("node-1", "recovered")]
    assert await listed(cluster, "--outcome", "recovered", "--outcome", "refused") == [
        ("refused-1", "refused"),
        ("node-1", "recovered"),
    ]
    assert await listed(cluster, "--node", "node-1") == [("node-1", "recovered")]
    told = " ".join((await nodewarden("history", "-c", cluster)).stdout.split())
    assert "node-1 Fencing recovered" in told
    assert "i-node-1 node-1 is slow; by amy: pulled the plug" in told


@workflow.defn(name="Fencing", sandboxed=False)
class ForeignFencing:
    """Of a client that is none of ours."""

    @workflow.run
    async def run(self, result: str) -> str:
        return result


async def test_s49_the_result_of_a_strangers_workflow_ends_no_history(server: str, cluster: str) -> None:
    """One such workflow would end `history`, `compare` and the page for as long as Temporal remembers it. One that a worker of
    another queue has ended, with any record, is no episode."""
    attributes = search_attributes.of_episode(Kind.FENCING, cluster=cluster, node="node-2", reason="forged")
    begun = {"id": f"episode/{cluster}/node-2", "search_attributes": attributes}
    async with Nodewarden.connect(load(), address=server, namespace=SILENT) as warden:
        for queue in (f"strangers-{cluster}", WORKFLOW_QUEUE):
            async with Worker(warden.client, task_queue=queue, workflows=[ForeignFencing]):
                await warden.client.execute_workflow(ForeignFencing.run, "\x1b[31mmine", task_queue=queue, **begun)
        while not (await warden.history.ended(cluster)).episodes:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        (found,) = (await warden.history.ended(cluster, node="node-2")).episodes
        assert await warden.history.completed(cluster, limit=9) == ()
    assert (found.result, found.message.startswith("its result can't be read: "), "\x1b" in found.message) == (None, True, False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--outcome", "dead"), "nodewarden: --outcome: expected some of recovered, "),
        (("--since", "yesterday"), "nodewarden: --since: expected a duration above 0"),
    ],
)
async def test_nonsense_is_code_2(keyboard: Path, cluster: str, words: tuple[str, ...], said: str) -> None:
    result = await nodewarden("history", "-c", cluster, *words)
    assert (result.exit_code, result.stderr.startswith(said)) == (2, True), result.stderr


async def test_a_record_is_found_by_node_and_by_incident_open_or_ended(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    await play(warden, cluster, ("node-1", acknowledged), ("node-2", terminated), ("refused-1", refused))
    by_node = json.loads((await nodewarden("record", "node-1", "-c", cluster, "-o", "json")).stdout)
    assert (by_node["incident"], by_node["ended"] is None, by_node["why"]) == ("i-node-1", False, "node-1 is slow")
    assert [entry["act"] for entry in by_node["entries"]] == ["off-proven"]
    assert json.loads((await nodewarden("record", "i-node-1", "-c", cluster, "-o", "json")).stdout) == by_node
    assert "incident i-node-2, terminated after" in (await nodewarden("record", "node-2", "-c", cluster)).stdout
    await warden.fence(cluster, "node-1", reason="again", incident="i-again")
    for name in ("node-1", "i-again"):
        found = json.loads((await nodewarden("record", name, "-c", cluster, "-o", "json")).stdout)
        assert (found["incident"], found["ended"], found["outcome"]) == ("i-again", None, "running")
    nobody = await nodewarden("record", "node-9", "-c", cluster)
    assert (nobody.exit_code, nobody.stdout) == (4, "")


def record_of(off_proof: OffProof | None, *entries: RecordEntry) -> EpisodeRecord:
    return EpisodeRecord(
        cluster="prod",
        node="node-7",
        kind=Kind.FENCING,
        outcome="recovered",
        message="it is back",
        why="Ready is Unknown",
        incident="i-1",
        started=ago(130),
        ended=NOW,
        off_proof=off_proof,
        entries=entries,
    )


def test_a_record_says_what_happened_when_and_which_moments_proved_off() -> None:
    """S8 is told apart: a person's word is no reading."""
    proved = RecordEntry(at=ago(60), step="power-management", act="off-proven", outcome="ok", detail=FIRST)
    denied = RecordEntry(at=ago(90), step="power-management", act="last-look", outcome="wait", detail="the view is young")
    record = record_of(proof(), denied, proved)
    assert drawn(as_table(record), width=200) == [
        "node-7: Fencing, incident i-1, recovered after 2m10s",
        "because: Ready is Unknown",
        "What happened",
        "    +0.0 s    episode opened    2026-11-21T11:57:50Z",
        "   +40.0 s    last look         wait: the view is young",
        f"   +70.0 s    off proven        {FIRST}",
        "  +130.0 s    recovered         it is back",
        PROVEN,
    ]
    assert [moment.proof for moment in moments_of(record.entries)] == [False, True]
    word = OffProof(commanded_at=None, acknowledgement=Acknowledgement(who="amy", why="pulled it", at=ago(50)))
    assert (
        drawn(as_table(record_of(word)))[-1]
        == "Off on a person's word: amy (identity not verified) at 2026-11-21T11:59:10Z: pulled it"
    )
    assert drawn(as_table(record_of(None)))[-1] == "Off was not proven."
    later = replace(proved, detail=f"ipmi://10.0.0.0:623 off at {written(ago(65))}")
    assert drawn(as_table(record_of(proof(), later)), width=300)[-1] == (
        f"{PROVEN[:-1]}. That is the last reading: each consequence had one of its own right before it, later than the first "
        "proof above."
    )


async def test_pauses_stand_among_the_episodes_also_of_a_scanner_that_is_gone(
    keyboard: Path, warden: Nodewarden, cluster: str
) -> None:
    """S44: who, why, until when, and who ended it, read without any worker's word."""
    await warden.start_scanner(cluster)
    scanner = warden.scanner(cluster)
    await scanner.pause(who="amy", reason="the switch is replaced")
    await play(warden, cluster, ("node-1", acknowledged))
    await scanner.unpause(who="bob", reason="it is replaced", of="amy")
    await warden.stop_scanner(cluster, who="amy", reason="new settings")
    await warden.start_scanner(cluster)
    await scanner.pause(who="cem", reason="drill", until=datetime(2126, 1, 1, tzinfo=UTC))
    found = json.loads((await nodewarden("history", "-c", cluster, "-o", "json")).stdout)
    assert [
        (each["state"], each["by"], each["why"], each["until"], each["endedBy"], each["endedWhy"]) for each in found["pauses"]
    ] == [
        ("in-force", "cem", "drill", "2126-01-01T00:00:00Z", None, None),
        ("unpaused", "amy", "the switch is replaced", None, "bob", "it is replaced"),
    ]
    told = (await nodewarden("history", "-c", cluster)).stdout
    order = [told.index(words) for words in ("in-force", "unpaused", "recovered")]
    assert order == sorted(order)
    assert "until it is ended by hand: the switch is replaced; ended by bob: it is replaced" in " ".join(told.split())
    for some in (("--node", "node-1"), ("--outcome", "recovered")):
        assert json.loads((await nodewarden("history", "-c", cluster, "-o", "json", *some)).stdout)["pauses"] == []


async def test_of_pauses_only_those_of_the_time_asked_for_are_shown(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    await warden.start_scanner(cluster)
    scanner = warden.scanner(cluster)
    await scanner.pause(who="amy", reason="drill")
    await scanner.unpause(who="amy", reason="done")
    await asyncio.sleep(1.1)
    assert json.loads((await nodewarden("history", "-c", cluster, "-o", "json", "--since", "1s")).stdout)["pauses"] == []
    assert len(json.loads((await nodewarden("history", "-c", cluster, "-o", "json")).stdout)["pauses"]) == 1


def test_a_pause_that_is_over_says_how() -> None:
    """By its own moment, by its owner's next one, by a person; one that is over is ended by nobody any more."""
    first = Pause(who="amy", owner="amy", reason="drill", since=ago(600), until=ago(300))
    heard = unpaused(paused((), first), (first,), who="bob", reason="late", now=ago(200))
    heard = paused(heard, Pause(who="cem", owner="cem", reason="rack 3", since=ago(100)))
    heard = paused(heard, Pause(who="cem", owner="cem", reason="longer", since=ago(50)))
    assert [each.end(NOW) for each in heard] == [PauseEnd.EXPIRED, PauseEnd.REPLACED, PauseEnd.IN_FORCE]
    assert [each.over_at(NOW) for each in heard] == [ago(300), ago(50), None]
    lines = drawn(history_table.as_table(EndedEpisodes(cluster="prod"), heard, NOW), width=200)
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "(all) Pause in-force 2026-11-21T11:59:10Z 50s - by cem, until it is ended by hand: longer",
        "(all) Pause replaced 2026-11-21T11:58:20Z 50s - by cem, until it is ended by hand: rack 3; replaced by cem: longer",
        "(all) Pause expired 2026-11-21T11:50:00Z 5m00s - by amy, until 2026-11-21T11:55:00Z: drill",
    ]
    narrow = drawn(history_table.as_table(EndedEpisodes(cluster="prod"), heard[:1], NOW), width=70)
    assert narrow == [
        "(all)  Pause  expired  began 2026-11-21T11:50:00Z, took 5m00s  -",
        "  by amy, until 2026-11-21T11:55:00Z: drill",
    ], "each stands once"


def test_no_more_pauses_are_kept_than_are_remembered() -> None:
    heard: Pauses = ()
    for number in range(PAUSES_REMEMBERED + 5):
        heard = paused(heard, Pause(who="amy", owner="amy", reason=f"drill {number}", since=ago(100 - number)))
    assert isinstance(heard[0], PastPause)
    assert [each.pause.reason for each in (heard[0], heard[-1])] == ["drill 5", f"drill {PAUSES_REMEMBERED + 4}"]
    assert len(heard) == PAUSES_REMEMBERED
    for number in range(PAUSES_REMEMBERED - 1):
        heard = paused(heard, Pause(who=f"bob {number}", owner=f"bob {number}", reason="mine", since=NOW))
    assert len(in_force(heard, NOW)) == len(heard) == PAUSES_REMEMBERED, "S44: none that is in force is forgotten"
    with pytest.raises(ValueError, match="at most 50 pauses in force"):
        paused(heard, Pause(who="cem", owner="cem", reason="one more", since=NOW))


def test_a_node_that_was_not_repaired_stands_among_the_episodes_with_what_would_have_been() -> None:
    spell = Spell(
        node="node-7",
        check="NodeHealthCheck//workers",
        cause="ReadyUnknown",
        since=ago(700),
        due=ago(600),
        steps=("reboot",),
        held=(
            HeldSpan(code="CapReached", message="1 of 1 permits are held: node-1", since=ago(600), until=ago(500)),
            HeldSpan(code="Paused", message="paused by amy: drill", since=ago(500), until=ago(400)),
            HeldSpan(code="CapReached", message="1 of 1 permits are held: node-2", since=ago(400)),
        ),
        ended=ago(300),
        ending=Ending.CAME_BACK,
    )
    assert would_have(spell) == (
        "would have been repaired (reboot): ReadyUnknown, under NodeHealthCheck//workers; "
        "what held it: CapReached: 1 of 1 permits are held: node-2, paused by amy: drill; it came back by itself"
    )
    observed, nothing = SpellsThen(spells=(spell,), unknown=("some records",)), EndedEpisodes(cluster="prod")
    lines = drawn(history_table.as_table(nothing, (), NOW, observed), width=300)
    assert [" ".join(line.split()) for line in lines[1:]] == [
        f"node-7 Observation came-back 2026-11-21T11:50:00Z 5m00s - {would_have(spell)}",
        "not shown: some records",
    ]
    model = history_table.as_model(nothing, (), NOW, observed)
    assert (model.observations, model.unknown) == ((spell,), ("some records",))


# `nodewarden history --at`: what was going on in the whole cluster at one moment, in the reader's zone.

CET = timezone(timedelta(hours=1), "CET")
BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"
"""As POSIX writes it: needs no time zone database."""


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The reader's machine is in Berlin."""
    monkeypatch.setenv("TZ", BERLIN)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("2026-11-20 03:12", "2026-11-20 03:12:00+01:00 (CET)"),
        ("2026-07-20 03:12", "2026-07-20 03:12:00+02:00 (CEST)"),
        (" 2026-11-20T03:12:05-05:00", "2026-11-20 03:12:05-05:00 (UTC-05:00)"),
        ("2026-11-20T03:12:05Z", "2026-11-20 03:12:05+00:00 (UTC)"),
        ("03:12", "2026-11-21 03:12:00+01:00 (CET)"),
        ("03:12:07", "2026-11-21 03:12:07+01:00 (CET)"),
        ("13:01", "2026-11-20 13:01:00+01:00 (CET)"),  # NOW is 13:00 there
    ],
)
def test_a_moment_is_in_the_readers_zone_unless_it_names_its_own(said: str, shown: str) -> None:
    assert zoned(asked_moment(said, NOW)) == shown


@pytest.mark.parametrize("said", ["", "noon", "25:00", "0001-01-01", "1999-12-31 23:59", "2026-11-21T12:00:01Z", "9999-12-31"])
def test_a_moment_that_nothing_can_be_on_record_of_is_refused(said: str) -> None:
    forms = "03:12, 2026-11-26 03:12 or 2026-11-26T03:12Z, in your zone where it names none"
    with pytest.raises(ValueError, match=f"at: expected a moment of the past such as {forms}, got "):
        asked_moment(said, NOW)


def entry(seconds: float, act: str, outcome: str, detail: str = "", step: str = "power-management") -> RecordEntry:
    return RecordEntry(at=ago(seconds), step=step, act=act, outcome=outcome, detail=detail)


def record(node: str, began: float, *entries: RecordEntry, ended: float | None = None, outcome: str = "running") -> EpisodeRecord:
    return EpisodeRecord(
        cluster="prod",
        node=node,
        kind=Kind.FENCING,
        outcome=outcome,
        message="as the script says",
        why="Ready is Unknown",
        incident=f"i-{node}",
        started=ago(began),
        ended=ago(ended) if ended is not None else None,
        entries=entries,
    )


PARKED = record(
    "node-9",
    900,
    entry(900, "phase", "running", step=""),
    entry(800, "power-off", "failed", "the BMC is silent"),
    entry(790, "phase", "needs-human"),
    entry(620, "hold", "asked", "by amy (identity not verified): I look at it"),
    entry(500, "resume", "asked", "by amy (identity not verified): it answers"),
    entry(100, "end", "recovered", "the node is back"),
    ended=100,
    outcome="recovered",
)
AT = ago(600).astimezone(CET)


def moment_of(*episodes: EpisodeRecord, pauses: Pauses = (), scanned: bool = True) -> ClusterMoment:
    episodes_of_then = episodes_then(episodes, AT)
    return ClusterMoment(cluster="prod", at=AT, zone="CET", episodes=episodes_of_then, pauses=pauses, scanned=scanned, more=False)


def test_each_episode_stands_with_what_it_was_at_and_what_came_before_and_after() -> None:
    before, later = record("node-1", 2000, ended=700, outcome="recovered"), record("node-4", 500)
    refused = record("node-3", 650, ended=640, outcome="refused")
    amy = Pause(who="amy", owner="amy", reason="drill", since=ago(3000))
    found = moment_of(
        later, PARKED, refused, before, pauses=(PastPause(pause=amy, ended=ago(300), ended_by="bob", ended_why="ok"),)
    )
    (_, parked, _, _) = found.episodes
    assert [(each.node, each.stood) for each in found.episodes] == [
        ("node-1", Stood.ENDED),
        ("node-9", Stood.OPEN),
        ("node-3", Stood.REFUSED),
        ("node-4", Stood.BEGAN),
    ]
    assert (parked.phase, parked.step) == ("needs-human", "power-management")
    assert parked.holds == ("by amy (identity not verified): I look at it",)
    assert [each.act for each in (parked.last, parked.next) if each is not None] == ["hold", "resume"]
    asked, resumed = "by amy (identity not verified): I look at it", "by amy (identity not verified): it answers"
    of_parked = (
        "Fencing since 2026-11-21 12:45:00+01:00, needs a person, power-management",
        f"because Ready is Unknown; a hold was asked for {asked}",
        f"last, 20s earlier: hold: asked: {asked}",
        f"next, 1m40s later: resume: asked: {resumed}",
        "ended 2026-11-21 12:58:20+01:00, recovered: as the script says",
    )
    over = "ended 2026-11-21 12:48:20+01:00, recovered: as the script says"
    no = "ended 2026-11-21 12:49:20+01:00, refused: as the script says"
    assert drawn(as_text(found), width=1000) == [
        "prod at 2026-11-21 12:50:00+01:00 (CET), as are all moments below",
        "What kept everything from being begun",
        (
            "  paused from 2026-11-21 12:10:00+01:00 to 2026-11-21 12:55:00+01:00 by amy, until it is ended by hand: "
            "drill; ended by bob: ok"
        ),
        "Sick and not repaired, then or in the hour before",
        "  no node that was due for a repair, as far as Temporal remembers",
        "Open at that moment",
        f"  node-9: {'; '.join(of_parked)}",
        "Ended in the 10m00s before",
        f"  node-1: Fencing since 2026-11-21 12:26:40+01:00; because Ready is Unknown; {over}",
        "Refused in the 10m00s before",
        f"  node-3: Fencing since 2026-11-21 12:49:10+01:00; because Ready is Unknown; {no}",
        "Began in the 10m00s after",
        "  node-4: Fencing since 2026-11-21 12:51:40+01:00; because Ready is Unknown",
        "Not shown",
        f"  {NOT_RECORDED}, which are not recorded",
    ]


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ((("hold", "asked", "by amy: x"), ("hold", "asked", "by amy: y")), ("by amy: y",)),
        ((("hold", "asked", "by amy: x"), ("resume", "asked", "by bob: z")), ("by amy: x",)),
        ((("hold", "asked", "by amy: x"), ("abort", "asked", "by bob: z")), ()),
        ((("hold", "asked", "by amy: x"), ("hold", "ended", "held by amy, until 2026-11-21T13:00:00Z: x; by bob")), ()),
        ((("hold", "asked", "by amyr: x"), ("hold", "ended", "held by amy: x; by bob")), ("by amyr: x",)),
        ((("hold", "asked", "by system:serviceaccount:a:b, verified by Kubernetes: x"),) * 2, None),
    ],
)
def test_a_hold_stands_until_its_owner_or_another_person_ends_it(
    words: tuple[tuple[str, str, str], ...], left: tuple[str, ...] | None
) -> None:
    entries = (entry(700 - number, *each) for number, each in enumerate(words))
    (found,) = episodes_then((record("n", 900, *entries),), AT)
    assert found.holds == (left if left is not None else (words[0][2],))


def test_a_moment_of_which_nothing_is_on_record_is_not_called_quiet() -> None:
    """S44: Temporal may have forgotten it."""
    said = [(heading, [line for _, line in lines]) for heading, lines in sections(moment_of(scanned=False))[1:-1]]
    nothing = ["no episode, as far as Temporal remembers"]
    assert said == [
        (
            "What kept everything from being begun",
            ["no scanner is on record of that moment: none ran, or Temporal has forgotten it"],
        ),
        (
            "Sick and not repaired, then or in the hour before",
            ["no node that was due for a repair, as far as Temporal remembers"],
        ),
        ("Open at that moment", nothing),
        ("Ended in the 10m00s before", nothing),
        ("Began in the 10m00s after", nothing),
    ]


def test_what_held_a_node_then_stands_in_the_readers_zone_with_what_is_not_known() -> None:
    """S44: what could not be read is not called quiet."""
    spell = Spell(
        node="node-7",
        check="NodeHealthCheck//workers",
        cause="ReadyUnknown",
        since=ago(900),
        due=ago(840),
        steps=("reboot",),
        held=(
            HeldSpan(code="Paused", message="drill", since=ago(840), until=ago(610)),
            HeldSpan(code="Mode", message="observe since 2026-11-21T11:49:00Z", since=ago(610)),
        ),
    )
    found = replace(moment_of(), node="node-7", spells=(spell,), unknown=("spells that last: no scanner",))
    shown = dict(sections(found))
    assert "node-7 of prod at 2026-11-21 12:50:00+01:00 (CET), as are all moments below" in shown
    ((_, said),) = shown["Sick and not repaired, then or in the hour before"]
    assert said == (
        "node-7: it was sick since 2026-11-21 12:45:00+01:00: ReadyUnknown, under NodeHealthCheck//workers; "
        "it would have been repaired (reboot) from 2026-11-21 12:46:00+01:00 on, before every other node; "
        "what held it since 2026-11-21 12:49:50+01:00: Mode: observe since 2026-11-21 12:49:00+01:00"
    )
    assert [said for _, said in shown["Not shown"]][1:] == ["spells that last: no scanner"]


def test_a_node_under_repair_is_not_called_well() -> None:
    found = replace(moment_of(PARKED), node="node-9")
    ((_, said),) = dict(sections(found))["Sick and not repaired, then or in the hour before"]
    assert said.startswith("an episode of node-9 was open: see below")


async def passed(moment: datetime) -> None:
    while datetime.now(UTC) <= moment:
        await asyncio.sleep(0.05)


async def next_second() -> datetime:
    """A whole second after everything until now, over."""
    found = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    await passed(found)
    return found


async def test_the_cluster_at_a_moment_has_each_episode_once_also_one_that_went_on_in_a_new_history(
    keyboard: Path, warden: Nodewarden, cluster: str
) -> None:
    """The run that was open then ended as `ContinuedAsNew`, and no list of what has ended has it."""
    await warden.start_scanner(cluster)
    await warden.scanner(cluster).pause(who="amy", reason="drill")
    await warden.fence(cluster, "node-1", reason="slow", incident="i-1")
    long = await warden.fence(cluster, "long-2", reason="very slow", incident="i-2")
    moment = await next_second()
    await warden.episode(cluster, "node-1").abort(who="amy", reason="enough")
    await long.resume(who="amy", reason="on", question=7)
    await next_second()
    await warden.fence(cluster, "node-3", reason="later", incident="i-3")
    now = await next_second()

    async def at(when: datetime) -> list[tuple[str, str, str]]:
        found = await cluster_moment(warden, cluster, when)
        assert found.scanned, "the scanner ran"
        assert [each.pause.reason for each in found.pauses] == ["drill"]
        return sorted((each.node, each.stood.value, each.why) for each in found.episodes)

    then = [("long-2", "open", "very slow"), ("node-1", "open", "slow"), ("node-3", "began", "later")]
    after = [("long-2", "open", "very slow"), ("node-1", "ended", "slow"), ("node-3", "open", "later")]
    async with asyncio.timeout(30):
        while (await at(moment), await at(now)) != (then, after):
            await asyncio.sleep(0.2)
    printed = json.loads((await nodewarden("history", "--at", written(moment), "-c", cluster, "-o", "json")).stdout)
    stood = [(each["node"], each["stood"]) for each in printed["episodes"]]
    assert sorted(stood) == [each[:2] for each in then]  # the two that were open began in one moment, or nearly
    assert stood[-1] == ("node-3", "began")
    assert (printed["at"], printed["zone"], printed["pauses"][0]["pause"]["reason"]) == (written(moment), "UTC", "drill")
    said = " ".join((await nodewarden("history", "--at", written(moment), "-c", cluster)).stdout.split())
    assert said.startswith(f"{cluster} at {zoned(moment)}")
    assert (
        "until it is ended by hand: drill Sick and not repaired, then or in the hour before node-lasting: it was sick since"
        in said
    )
    assert "what became of it" not in said, "it lasts"
    (lasting,) = printed["spells"]
    assert (lasting["node"], lasting["ended"], printed["unknown"]) == ("node-lasting", None, [])
    of_node = json.loads((await nodewarden("explain", "node-1", "--at", written(moment), "-c", cluster, "-o", "json")).stdout)
    assert ([each["node"] for each in of_node["episodes"]], of_node["spells"]) == (["node-1"], [])
    said = " ".join((await nodewarden("explain", "node-lasting", "--at", written(moment), "-c", cluster)).stdout.split())
    assert said.startswith(f"node-lasting of {cluster} at {zoned(moment)}")
    assert "Open at that moment no episode" in said
    assert "it would have been repaired from" in said


async def test_before_anything_nothing_is_on_record(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    printed = await nodewarden("history", "--at", "2026-01-02 03:04", "-c", cluster)
    assert "no scanner is on record of that moment: none ran, or Temporal has forgotten it" in " ".join(printed.stdout.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at", "noon"), "nodewarden: --at: expected a moment of the past such as 03:12, 2026-11-26 03:12"),
        (("--at", "2126-01-01"), "nodewarden: --at: expected a moment of the past such as 03:12, 2026-11-26 03:12"),
        (("--at", "03:12", "--node", "node-1"), "nodewarden: --at: expected neither --node nor --outcome beside it"),
    ],
)
async def test_a_bad_moment_is_code_2(keyboard: Path, cluster: str, words: tuple[str, ...], said: str) -> None:
    result = await nodewarden("history", "-c", cluster, *words)
    assert (result.exit_code, result.stderr.startswith(said)) == (2, True), result.stderr


async def test_an_explained_moment_is_not_of_files(keyboard: Path, cluster: str) -> None:
    result = await nodewarden("explain", "n", "-c", cluster, "--at", "03:12", "-f", "x.yaml")
    assert (result.exit_code, "--at: expected neither -f nor --now beside it" in result.stderr) == (2, True), result.stderr


def test_a_preservation_that_proved_no_off_says_nothing_of_it() -> None:
    """It needs none; of a fencing that is what people want to know."""
    record = EpisodeRecord(cluster="prod", node="node-1", kind=Kind.PRESERVATION, outcome="released", message="m", started=NOW)
    assert (record.proof, replace(record, kind=Kind.FENCING).proof) == ("", "Off was not proven.")


def test_a_node_without_an_ended_episode_is_named() -> None:
    none = EndedEpisodes(cluster="prod", episodes=())
    assert drawn(history_table.as_table(none, (), NOW, node="node-9"))[0].startswith("no episode of node-9 has ended")
