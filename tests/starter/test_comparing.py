"""`nodewarden compare`, its page and its export; and a changed check that is tried on what was exported."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck as Slow
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from activities.contracts import search_attributes
from policy.episode.gate import MODE
from policy.episode.messages import EpisodeResult, Outcome
from policy.history.comparison import compare
from policy.history.spells import Ending, ObservationRecord, Spell, would_have
from policy.values.display_text import visible
from policy.values.mode import Mode
from starter.client import Nodewarden
from starter.handles.observations import ClusterComparison, Observed
from starter.output.comparison import as_markdown, as_text, parts
from starter.plans import spell_file
from starter.web.views import Views
from tests.docs.reading import DOCS
from tests.policy.builders import CHECK, NOON, held, minutes, node_days, recorded, repaired, spell
from tests.starter.builders import drawn, nodewarden
from tests.unlocked import unlocked
from workers.errors import SettingsError
from workflows.kit.options import WORKFLOW_QUEUE

NOW = NOON + timedelta(days=2)
SHORTENED = 29
"""Lines that the example leaves out at its end."""


def story() -> ClusterComparison:
    """A month of forty nodes: the example of docs/compare.md."""
    breaker = (held("CircuitBreakerOpen", NOON, NOON + minutes(20)),)
    spells = [
        *(spell(f"node-{number}", lasted=minutes(number)) for number in (1, 4, 6)),
        *(spell(f"node-1{number}", lasted=minutes(40 + 9 * number), ending=Ending.OTHERS) for number in range(7)),
        spell("node-20", lasted=minutes(55)),
        *(spell(f"node-3{number}", lasted=minutes(20), held=breaker, storm="s-1") for number in range(3)),
    ]
    days = [node_days(40, f"{NOON - timedelta(days=number):%Y-%m-%d}") for number in range(28)]
    found = compare(recorded(*spells), days, (), since=NOON - timedelta(days=27), now=NOW - timedelta(days=1, hours=13))
    return ClusterComparison(cluster="prod", comparison=found)


def test_the_page_of_docs_shows_what_is_printed() -> None:
    printed = "\n".join(drawn(as_text(parts(story())), width=80)[:-SHORTENED])
    shown = (
        (DOCS / "compare.md").read_text(encoding="utf-8").split('```text title="nodewarden compare workers"\n')[1].split("```")[0]
    )
    assert shown == f"{printed}\n…\n"


def test_it_fits_eighty_columns_and_links_each_case() -> None:
    lines = drawn(as_text(parts(story())), width=80)
    assert max(map(len, lines)) <= 80
    for case in story().comparison.checks[0].cases:
        assert f"    {case.workflow_id}" in lines


def test_each_table_has_a_line_that_says_what_its_columns_count() -> None:
    tables = [each for each in parts(story()) if each.columns]
    assert [each.heading for each in tables] == ["Had the time-out been longer", "What held nodes", "Each case"]
    for table in tables:
        said = " ".join(table.lines).lower()
        assert [name for name in table.columns[1:] if name.lower() not in said] == []


def test_a_node_that_was_repaired_after_it_was_held_is_not_said_to_have_had_no_repair() -> None:
    capped = (held("CapReached", NOON, NOON + minutes(3)),)
    spells = [spell(f"node-{each}", held=capped, ending=each, mode=Mode.REPAIR) for each in (Ending.OURS, Ending.CAME_BACK)]
    ours = repaired("node", NOON + minutes(9))
    released = replace(ours, incident="i-2", outcome=Outcome.RELEASED)
    spells[0] = replace(spells[0], incident=ours.incident)
    spells += [replace(spells[0], node=f"node-{each}", incident=each) for each in ("i-2", "i-3")]
    found = compare(recorded(*spells), (), (ours, released), since=NOON - timedelta(days=1), now=NOW)
    *_, cases = parts(ClusterComparison(cluster="prod", comparison=found))
    assert {row[0]: row[2] for row in cases.rows} == {
        f"node-{Ending.OURS}": "repaired by nodewarden after it was held by CapReached: its episode began",
        "node-i-2": "an episode began at 2026-11-28T12:03:00Z, and ended released after it was held by CapReached",
        "node-i-3": "an episode began at 2026-11-28T12:03:00Z after it was held by CapReached",
        f"node-{Ending.CAME_BACK}": "no repair: held by CapReached",
    }


def test_a_rate_of_too_few_days_has_no_number_and_the_counts_of_what_held_nodes_add_up() -> None:
    due = NOW - minutes(2)
    paused = [spell(f"p-{each}", held=(held("Paused", due),), lasted=None, due=due) for each in (1, 2)]
    found = compare(recorded(spell(), *paused), (node_days(0.05),), (), since=NOON - timedelta(days=1), now=NOW)
    shown = parts(ClusterComparison(cluster="prod", comparison=found))
    assert "False repairs in 1,000 node-days: too few to say, 100 node-days are needed." in shown[1].lines
    (brakes,) = (each for each in shown if each.heading == "What held nodes")
    row = dict(zip(brakes.columns, brakes.rows[0], strict=True))
    assert (row["SPELLS"], row["RIGHTLY"], row["WRONGLY"], row["UNDECIDED"]) == ("2", "0", "0", "2")


def test_markdown_takes_no_name_for_markup() -> None:
    """S50: a node's name, a trace or a check's name is text, in a cell of its own."""
    nasty = replace(spell("n|o[d](http://x)`e\n# big", ending=Ending.OTHERS), traces=("<b>bold</b>",))
    found = compare(recorded(nasty), (), (), since=NOON - timedelta(days=1), now=NOW)
    text = as_markdown(parts(ClusterComparison(cluster="prod", comparison=found)))
    (row,) = (line for line in text.splitlines() if "bold" in line)
    assert row.replace("\\|", "").count("|") == 6
    assert "\\[d\\](http://x)" in row
    assert "\\<b\\>" in row
    page = replace(recorded(spell())[0], page="https://page/c/prod/nodes/node-7?at=x")
    linked = compare((page,), (), (), since=NOON - timedelta(days=1), now=NOW)
    text = as_markdown(parts(ClusterComparison(cluster="prod", comparison=linked)))
    assert "| [node-7](https://page/c/prod/nodes/node-7?at=x) |" in text


# From Temporal -----------------------------------------------------------------------------------------------------------


async def test_the_whole_way_from_temporal_to_people_and_programs(warden: Nodewarden, cluster: str, keyboard: Path) -> None:
    """Recorded alone, in a storm, and node-days; spells that last come from the scanner."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    due = today - timedelta(hours=5)
    alone = spell("node-1", due=due)
    storm = tuple(spell(f"node-{number}", due=due, ending=Ending.OTHERS, storm="s-1") for number in (2, 3))
    days = (node_days(10, f"{due:%Y-%m-%d}"),)
    for found in ({"spells": (alone,)}, {"spells": storm}, {"days": days}):
        record = ObservationRecord(cluster=cluster, **found)  # type: ignore[arg-type]
        await warden.client.execute_workflow(
            "Observation",
            record,
            id=record.workflow_id,
            task_queue=WORKFLOW_QUEUE,
            search_attributes=search_attributes.of_observation(record),
        )
    async with asyncio.timeout(20):
        while len((await warden.observations.observed(cluster, since=due)).spells) < 3:
            await asyncio.sleep(0.1)
    known = await warden.observations.observed(cluster, since=due)
    assert {each.workflow_id for each in known.spells} == {
        f"observation/{cluster}/node-1/{due.isoformat()}",
        f"observation/{cluster}/-storm/s-1",
    }
    assert known.days == days
    assert any("spells that last, as the scanner does not say" in each for each in known.unknown)
    answer = json.loads((await nodewarden("compare", "workers", "-c", cluster, "--since", "2d", "-o", "json")).stdout)
    (check,) = answer["comparison"]["checks"]
    assert (check["wouldRepair"], check["judgements"]) == (3, {"false-repair": 1, "repaired-by-others": 2})
    assert check["observedDays"] == 10
    schema = json.loads((DOCS / "schemas" / "answers.json").read_text())
    Draft202012Validator(schema | schema["commands"]["compare"]).validate(answer)

    seen = f"{due:%Y-%m-%dT%H:%M:%SZ} to {alone.ended:%Y-%m-%dT%H:%M:%SZ}: {would_have(alone)}"
    alone_known = await nodewarden("record", "node-1", "-c", cluster)
    none = "node-1: no episode, as far as Temporal remembers"
    assert (alone_known.exit_code, " ".join(alone_known.stdout.split())) == (0, f"{none} Sick and not repaired {seen}")
    found = json.loads((await nodewarden("record", "node-1", "-c", cluster, "-o", "json")).stdout)
    assert (found["kind"], [each["ending"] for each in found["spells"]]) == (None, ["came-back"])
    Draft202012Validator(schema | schema["commands"]["record"]).validate(found)
    await warden.fence(cluster, "node-1", reason="silent", incident="i-1")
    page = " ".join((await nodewarden("record", "node-1", "-c", cluster)).stdout.split())
    assert page.endswith(f"Sick and not repaired {seen}")
    found = json.loads((await nodewarden("record", "node-1", "-c", cluster, "-o", "json")).stdout)
    assert [each["ending"] for each in found["spells"]] == ["came-back"]
    assert json.loads((await nodewarden("record", "i-1", "-c", cluster, "-o", "json")).stdout)["spells"] == []
    assert f"Sick and not repaired {seen}" in " ".join((await nodewarden("explain", "node-1", "-c", cluster)).stdout.split())
    found = json.loads((await nodewarden("explain", "node-1", "-c", cluster, "-o", "json")).stdout)
    assert found["lastSpell"]["ending"] == "came-back"

    await warden.start_scanner(cluster)
    known = await warden.observations.observed(cluster, since=due)
    assert [each.workflow_id for each in known.spells if each.spell.node == "node-lasting"] == [f"scanner/{cluster}"]
    assert not any("scanner does not say" in each for each in known.unknown)
    lasts = await nodewarden("record", "node-lasting", "-c", cluster)
    assert (lasts.exit_code, "Sick and not repaired" in lasts.stdout, "until now: " in lasts.stdout) == (0, True, True)
    found = json.loads((await nodewarden("explain", "node-lasting", "-c", cluster, "-o", "json")).stdout)
    assert (found["lastSpell"]["node"], found["lastSpell"]["ended"]) == ("node-lasting", None)
    printed = await nodewarden("compare", "-c", cluster, "-o", "markdown")
    assert printed.stdout.startswith(f"# {cluster}: what would have been repaired")
    assert "what was on 29 days, of which no node-days are recorded" in printed.stdout
    missing = await nodewarden("compare", "nosuch", "-c", cluster)
    assert missing.exit_code == 4
    assert "Nothing is recorded of that" in missing.stdout
    assert (await nodewarden("compare", "-c", cluster, "--since", "soon")).exit_code == 2

    exported = await nodewarden("compare", "-c", cluster, "--export", "spells.jsonl")
    assert exported.exit_code == 0, exported.output
    assert "4 spells" in exported.stderr
    assert {each.spell.node for each in spell_file.read("spells.jsonl")[1]} == {"node-1", "node-2", "node-3", "node-lasting"}

    async with unlocked(Views(warden, (cluster,))) as url, aiohttp.ClientSession(url) as page:
        async with page.get(f"/c/{cluster}/compare?since=2d") as got:
            body = await got.text()
            assert (got.status, "Would have repaired: " in body, f"observation/{cluster}/-storm/s-1" in body) == (200, True, True)
        async with page.get(f"/c/{cluster}/compare?since=soon") as got:
            assert "within: expected a duration above 0" in await got.text()
        async with page.get(f"/api/v1/clusters/{cluster}/compare?since=2d&check=workers") as got:
            assert (await got.json())["comparison"]["checks"][0]["wouldRepair"] == 4
        async with page.get(f"/c/{cluster}/record/node-1") as got:
            body = await got.text()
            assert ("Sick and not repaired" in body, str(escape(would_have(alone))) in body) == (True, True)
        async with page.get(f"/c/{cluster}/record/i-1") as got:
            assert "Sick and not repaired" not in await got.text(), "that episode ended no spell"
        async with page.get(f"/api/v1/clusters/{cluster}/record/node-1") as got:
            assert [each["ending"] for each in (await got.json())["spells"]] == ["came-back"]
        async with page.get(f"/c/{cluster}/nodes/node-lasting") as got:
            assert "so far</span></td>" in await got.text()
        for name, ending in (("offenders", "machines"), ("offenders?since=2d", "machines"), ("report?since=2d", "steps")):
            async with page.get(f"/api/v1/clusters/{cluster}/{name}") as got:
                assert ((await got.json())["cluster"], (await got.json())[ending]) == (cluster, [])
        async with page.get(f"/api/v1/clusters/{cluster}/report?since=soon") as got:
            assert got.status == 422
        async with page.get(f"/api/v1/clusters/{cluster}/compare?since=0d") as got:
            assert got.status == 422


# Files -------------------------------------------------------------------------------------------------------------------

CHANGED = """
apiVersion: remediation.medik8s.io/v1alpha1
kind: NodeHealthCheck
metadata: {name: workers}
spec:
  minHealthy: 51%
  selector: {matchLabels: {role: worker}}
  unhealthyConditions: [{type: Ready, status: Unknown, duration: DURATION}]
  remediationTemplate: {apiVersion: nodewarden.io/v1alpha1, kind: FencingTemplate, name: bmc, namespace: nodewarden}
"""


def checks(duration: str = "300s") -> list[Any]:
    """The health check as a cluster has it."""
    import yaml

    from activities.cluster.watch.offline import ClusterSnapshot

    cluster = ClusterSnapshot(NOW)
    cluster.put(yaml.safe_load(CHANGED.replace("DURATION", duration)), "test")
    cluster.finish()
    assert not cluster.mistakes
    return cluster.checks


def exported(path: Path, *spells: Spell, checks: list[Any] | None = None, episodes: tuple[EpisodeResult, ...] = ()) -> str:
    found = Observed(spells=recorded(*spells), days=(node_days(3),), episodes=episodes)
    comparison = compare(found.spells, found.days, (), since=NOON - timedelta(days=1), now=datetime.now(UTC))
    spell_file.write(
        str(path), found, ClusterComparison(cluster="prod", comparison=comparison), checks if checks is not None else []
    )
    return str(path)


def as_version_2(path: Path) -> None:
    text = path.read_text()
    assert ('"version": 3' in text, ', "outcome": null' in text) == (True, True)
    path.write_text(text.replace('"version": 3', '"version": 2').replace(', "outcome": null', ""))


async def replayed(tmp_path: Path, file: str, text: str) -> Any:
    (tmp_path / "changed.yaml").write_text(text, encoding="utf-8")
    return await nodewarden("-o", "json", "evaluate", "-f", str(tmp_path / "changed.yaml"), "--replay", file)


async def test_a_longer_time_out_is_tried_on_exported_spells(tmp_path: Path) -> None:
    """By hand: back after 3 and 12 minutes, and one that a person repaired after an hour."""
    spells = (
        spell("a", lasted=minutes(3)),
        spell("b", lasted=minutes(12)),
        spell("c", lasted=minutes(60), ending=Ending.OTHERS),
    )
    file = exported(tmp_path / "spells.jsonl", *spells, checks=checks())
    found = await replayed(tmp_path, file, CHANGED.replace("DURATION", "10m"))
    assert found.exit_code == 0, found.output
    (check,) = json.loads(found.stdout)["checks"]
    assert (check["repairsBefore"], check["falseBefore"], check["repairs"], check["falseRepairs"]) == (3, 1, 2, 1)
    dues = {each["before"]["spell"]["node"]: (each["due"], each["after"]["judgement"]) for each in check["spells"]}
    at = "2026-11-28T12:05:00Z"
    assert dues == {"a": (None, "held"), "b": (at, "false-repair"), "c": (at, "repaired-by-others")}
    text = (await nodewarden("evaluate", "-f", str(tmp_path / "changed.yaml"), "--replay", file)).stdout
    assert "a  sick since 2026-11-28T11:5" in text
    assert "As it was: 3 repairs, 1 false." in text
    assert "Changed: 2 repairs, 1 false." in text
    assert "at 2026-11-28T12:00:00Z, false repair: came back by itself → not due" in " ".join(text.split())
    ours = exported(tmp_path / "ours.jsonl", spell("d", lasted=minutes(3), ending=Ending.OURS), checks=checks())
    (check,) = json.loads((await replayed(tmp_path, ours, CHANGED.replace("DURATION", "10m"))).stdout)["checks"]
    assert (check["repairs"], check["spells"][0]["after"]["judgement"]) == (1, "episode-began"), "it was sick still"
    as_version_2(Path(ours))
    (old,) = json.loads((await replayed(tmp_path, ours, CHANGED.replace("DURATION", "10m"))).stdout)["checks"]
    assert old == check, "an export of version 2 has no outcomes"
    same = await replayed(tmp_path, file, CHANGED.replace("DURATION", "300s"))
    (check,) = json.loads(same.stdout)["checks"]
    assert (check["repairs"], check["falseRepairs"]) == (3, 1)
    unlisted = CHANGED.replace("status: Unknown, duration: DURATION", 'status: "False", duration: 300s')
    assert "ReadyFalse: expected a condition that was listed" in (await replayed(tmp_path, file, unlisted)).stderr


async def test_a_replay_knows_what_became_of_the_episodes(tmp_path: Path) -> None:
    """One ended `recovered`; one was released, and the sickness went on until the node came back."""
    ended = repaired("d", NOON + minutes(20))
    begun = spell("d", lasted=minutes(3), ending=Ending.OURS, incident=ended.incident)
    given_up = replace(ended, incident="i-e", node="e", outcome=Outcome.RELEASED)
    first = spell("e", lasted=minutes(3), ending=Ending.OURS, incident="i-e")
    later = spell("e", due=NOON + minutes(9), since=first.since, lasted=minutes(30))
    file = exported(tmp_path / "s.jsonl", begun, first, later, checks=checks(), episodes=(ended, given_up))
    (check,) = json.loads((await replayed(tmp_path, file, CHANGED.replace("DURATION", "10m"))).stdout)["checks"]
    became = {each["after"]["spell"]["node"]: each["after"]["judgement"] for each in check["spells"]}
    assert (len(check["spells"]), became) == (2, {"d": "repaired", "e": "came-back-later"})
    text = (await nodewarden("evaluate", "-f", str(tmp_path / "changed.yaml"), "--replay", file)).stdout
    assert "repaired by nodewarden → at" in " ".join(text.split())


def test_the_checks_of_a_file_are_json_and_no_text_of_python(tmp_path: Path) -> None:
    file = exported(tmp_path / "spells.jsonl", spell(), checks=checks())
    ((check,), _) = (json.loads(line).get("checks") for line in Path(file).read_text(encoding="utf-8").splitlines())
    assert check["fields"]["minHealthy"] == {"value": 51, "percent": True}
    assert check["fields"]["maxUnhealthy"] is None
    assert check["fields"]["selector"] == {"requirements": [{"key": "role", "operator": "In", "values": ["worker"]}]}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (CHANGED.replace("DURATION", "299s"), "ReadyUnknown: expected a time-out of at least 5m"),
        (CHANGED.replace("DURATION", "300s").replace("role: worker", "role: gpu"), "selector: expected it unchanged"),
        (CHANGED.replace("DURATION", "300s").replace("51%", "1"), "minHealthy: expected it unchanged"),
        (
            CHANGED.replace("DURATION", "300s").replace("name: workers", "name: other"),
            "expected a check of that file: NodeHealthCheck/w",
        ),
    ],
)
async def test_what_spells_cannot_judge_is_refused(tmp_path: Path, changed: str, expected: str) -> None:
    file = exported(tmp_path / "spells.jsonl", spell(), checks=checks())
    found = await replayed(tmp_path, file, changed)
    assert found.exit_code == 2
    assert expected in " ".join(found.stderr.split())
    without = exported(tmp_path / "bare.jsonl", spell())
    assert "exported where the cluster's objects can be read" in (await replayed(tmp_path, without, changed)).stderr


GOOD = {"kind": "spell", "workflowId": "w", "spell": {"node": "n", "check": CHECK, "cause": "c", "since": "2026-11-28T12:00:00Z"}}


def line(**changes: object) -> str:
    return json.dumps(GOOD | {"spell": {**GOOD["spell"], "due": "2026-11-28T12:05:00Z", **changes}})  # type: ignore[dict-item]


HEAD = json.dumps(
    {
        "kind": "export",
        "version": 3,
        "cluster": "c",
        "since": "2026-11-01T00:00:00Z",
        "until": "2026-11-29T00:00:00Z",
        "repairSeconds": 1,
        "checks": [],
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected what `nodewarden compare --export` writes"),
        ("{", "line 1: expected a JSON object"),
        ("[" * 5000, "line 1: expected a JSON object"),
        (line(), "line 1: kind: expected export in the first line"),
        (HEAD.replace('"version": 3', '"version": 1'), "line 1: version: expected 2 or 3"),
        (HEAD.replace('"repairSeconds": 1', '"repairSeconds": "long"'), "line 1: repairSeconds: "),
        (f"{HEAD}\n{HEAD}", "line 2: kind: expected export in the first line"),
        (f"{HEAD}\n" + '{"kind": "node"}', "line 2: kind: expected one of export, spell, got 'node'"),
        (f"{HEAD}\n" + '{"kind": ["spell"]}', "line 2: kind: expected one of"),
        (f"{HEAD}\n{line(node=7)}", "line 2: spell.node: "),
        (f"{HEAD}\n{line(due=None)}", "line 2: spell.due: "),
        (f"{HEAD}\n{line(mode='off')}", "line 2: spell.mode: expected 'observe'"),
        (f"{HEAD}\n{line(since='2026-11-28T12:00:00')}", "line 2: spell.since: expected a moment with its zone"),
        (f"{HEAD}\n{line(since='2026-11-28T12:06:00Z')}", "line 2: spell.due: expected a moment from 2026-11-28T12:06:00Z on"),
        (f"{HEAD}\n{line(ended='2026-11-28T11:00:00Z', ending='came-back')}", "line 2: spell.ended: expected a moment from"),
        (f"{HEAD}\n{line(ending='came-back')}", "line 2: spell.ending: expected one of a spell that has ended"),
        (f"{HEAD}\n{line(cause='x' * spell_file.LARGEST_LINE)}", "line 2: expected at most"),
        ("\ud800", "expected text in UTF-8"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_with_its_number_and_field(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "spells.jsonl"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SettingsError) as refused:
        spell_file.read(str(path))
    assert expected in str(refused.value)


def test_a_file_has_at_most_so_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spell_file, "MOST_LINES", 3)
    (tmp_path / "spells.jsonl").write_text("\n".join([HEAD, line(), line(), line()]))
    with pytest.raises(SettingsError, match="line 4: expected at most 3 lines"):
        spell_file.read(str(tmp_path / "spells.jsonl"))
    with pytest.raises(SettingsError, match="nosuch: No such file"):
        spell_file.read(str(tmp_path / "nosuch"))


def shown(spell: Spell) -> Spell:
    return replace(spell, node=visible(spell.node))


seconds = st.integers(0, 3600).map(lambda each: timedelta(seconds=each))


@settings(suppress_health_check=[Slow.function_scoped_fixture], max_examples=30)
@given(st.lists(st.tuples(st.text(max_size=20), seconds, st.sampled_from(Ending), st.sampled_from(Mode)), max_size=5))
def test_what_is_written_is_read_again(tmp_path: Path, drawn: list[tuple[str, timedelta, Ending, Mode]]) -> None:
    """And every line is of the schema."""
    spells = [
        spell(
            node, lasted=lasted, ending=ending, mode=mode, held=(held(MODE, NOON, NOON + lasted), held("Paused", NOON + lasted))
        )
        for node, lasted, ending, mode in drawn
    ]
    file = exported(tmp_path / "spells.jsonl", *spells, checks=checks())
    _, found = spell_file.read(file)
    assert [shown(each.spell) for each in found] == [shown(each) for each in spells]
    schema = json.loads((DOCS / "schemas" / "spells.json").read_text())
    for text in Path(file).read_text(encoding="utf-8").splitlines():
        Draft202012Validator(schema).validate(json.loads(text))
