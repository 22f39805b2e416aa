"""`nodewarden history` and `nodewarden record`: what has ended, and what one episode did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from policy.episode.messages import Acknowledgement, Kind, OffProof, RecordEntry
from policy.observation.past_moment import would_have
from policy.observation.spells import Ending, HeldSpan, Spell
from policy.scan.pauses import PAUSES_REMEMBERED, PastPause, Pause, PauseEnd, Pauses, in_force, paused, unpaused
from policy.values.times import written
from starter.client import Nodewarden
from starter.handles.history import EndedEpisodes, EpisodeRecord
from starter.handles.observations import SpellsThen
from starter.output import history_table
from starter.output.record_table import as_table, moments_of
from tests.starter.builders import NOW, ago, proof
from tests.starter.drawing import drawn
from tests.starter.keyboard import nodewarden

PROVEN = (
    f"Off was proven by ipmi://10.0.0.0:623, read off at {written(ago(60))}, "
    f"after the off command of {written(ago(70))} had ended."
)


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--outcome", "dead"), "nodewarden: --outcome: expected some of recovered, "),
        (("--since", "yesterday"), "nodewarden: --since: expected a duration above 0"),
    ],
)
async def test_what_nobody_can_mean_is_code_2(keyboard: Path, cluster: str, words: tuple[str, ...], said: str) -> None:
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
    proved = RecordEntry(at=ago(60), step="power-management", act="off-proven", outcome="ok", detail="ipmi://10.0.0.0:623 off")
    denied = RecordEntry(at=ago(90), step="power-management", act="last-look", outcome="wait", detail="the view is young")
    record = record_of(proof(), denied, proved)
    assert drawn(as_table(record), width=200) == [
        "node-7: Fencing, incident i-1, recovered after 2m10s",
        "because: Ready is Unknown",
        "What happened",
        "    +0.0 s    episode opened    2026-11-21T11:57:50Z",
        "   +40.0 s    last look         wait: the view is young",
        "   +70.0 s    off proven        ipmi://10.0.0.0:623 off",
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
        "(all)  Pause  expired  2026-11-21T11:50:00Z  5m00s  -",
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
            HeldSpan(code="Paused", message="drill", since=ago(600), until=ago(400)),
            HeldSpan(code="Mode", message="", since=ago(400)),
        ),
        ended=ago(300),
        ending=Ending.CAME_BACK,
    )
    assert would_have(spell) == (
        "would have been repaired (reboot): ReadyUnknown, under NodeHealthCheck//workers; "
        "held by Paused, Mode; it came back by itself"
    )
    observed, nothing = SpellsThen(spells=(spell,), unknown=("some records",)), EndedEpisodes(cluster="prod")
    lines = drawn(history_table.as_table(nothing, (), NOW, observed), width=240)
    assert [" ".join(line.split()) for line in lines[1:]] == [
        f"node-7 Observation came-back 2026-11-21T11:50:00Z 5m00s - {would_have(spell)}",
        "not shown: some records",
    ]
    model = history_table.as_model(nothing, (), NOW, observed)
    assert (model.observations, model.unknown) == ((spell,), ("some records",))
