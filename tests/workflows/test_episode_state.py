"""Nothing is lost where a history of an episode ends: all that it has to know later is in one state, handed on whole."""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, get_args, get_origin

import pytest
from temporalio import workflow
from temporalio.testing import WorkflowEnvironment

import workflows
from policy.episode import phases
from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, Outcome, Phase, StandingWord
from tests.workflows.fencing_run import fencing
from tests.workflows.world import World
from workers.payloads.converter import PayloadConverter
from workflows.episode import episode
from workflows.episode.episode import Episode
from workflows.episode.episode_workflow import EpisodeWorkflow
from workflows.episode.state import EpisodeState, FencingHistory, History, PreservationHistory, RemediationHistory
from workflows.kit import continuation
from workflows.kit.continuation import NewHistory

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
PLAIN: Mapping[Any, Any] = {
    str: "something",
    bool: True,
    int: 7,
    float: 7.5,
    datetime: NOW,
    timedelta: timedelta(seconds=7),
}
"""A value of each type that is no default of a field."""
RUN = SimpleNamespace(
    workflow_id="episode/prod/node-1",
    run_id="run",
    original_execution_run_id="run",
    continued_run_id="before",
    typed_search_attributes={},
)

BESIDE_THE_STATE = {
    ("Episode", "_around"): "which undertaking is under way, as the next history finds by going in again",
    ("Episode", "insists"): "set again by whatever must be done in the end, from the failures in the state",
    ("Publisher", "_publishing"): "a task, which has ended before a history is left",
    ("FreeingSequence", "_seen"): "what was seen moments ago: another history looks anew",
    ("Evidence", "_fetching"): "a task; no history is left while it runs",
    ("Evidence", "_awaited"): "whether the story waits for that task",
    ("KeptMachineIsolation", "_preflight"): "a part over the state",
    ("KeptMachineIsolation", "_sequence"): "a part over the state",
    ("FencingStory", "_case"): "a part over the state",
    ("RemediationStory", "target"): "a part over the state",
    ("Episode", "_seed"): "of this history; one that changes is a reset, of which the state tells from then on",
    ("RemediationStory", "_adoption"): "a part over the state",
    ("RemediationStory", "_steps"): "parts over the state",
    ("ExternalRemediation", "_pause"): "how soon it looks again, at first in each history",
    ("ExternalRemediation", "_lasts"): "for people, said anew by the next look",
    ("ReplacingStep", "_goes"): "of the last look; the next history looks first",
    ("Preflight", "gone_for_good"): "of the last look; the next history looks first",
}
"""What changes and is not carried, with the reason why nothing is lost with it."""


def filled(kind: Any, within: tuple[type, ...] = ()) -> Any:
    """Something of that type in which no field has its default."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {typing.Union, UnionType}:
        return filled(next(each for each in inner if each is not NoneType), within)
    if origin is Literal:
        return inner[-1]
    if origin is tuple:
        return (filled(inner[0], within),) if Ellipsis in inner else tuple(filled(each, within) for each in inner)
    if origin is list:
        return [filled(inner[0], within)]
    if origin in {dict, Mapping}:
        return {} if inner[1] in within else {filled(inner[0], within): filled(inner[1], within)}
    if is_dataclass(kind):
        return filled_dataclass(kind, within)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)[-1]
    return PLAIN[kind]


def filled_dataclass(kind: Any, within: tuple[type, ...]) -> Any:
    """All of its fields; a dictionary of what it is itself within stays empty, since that has no end."""
    hints, given = typing.get_type_hints(kind), {}
    for each in fields(kind):
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        given[each.name] = not default if hints[each.name] is bool else filled(hints[each.name], (*within, kind))
    return kind(**given)


def test_every_field_of_the_state_is_another_than_its_default() -> None:
    """So that the tests below would notice one that is not carried."""
    full = filled(EpisodeState)
    for each in fields(EpisodeState):
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        assert getattr(full, each.name) != default, each.name


@pytest.mark.parametrize("history", [FencingHistory, RemediationHistory, PreservationHistory])
async def test_the_next_history_is_given_the_state_itself(history: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """S1, S2, S14, S35: a proof, a permit or a mark that is lost is done twice, or never undone."""
    given: list[History] = []

    class LeftError(Exception): ...

    class Story:
        async def run(self) -> EpisodeResult:
            raise NewHistory

    async def at_once(*_: object, **__: object) -> None: ...

    def go_on(request: Any, **_: object) -> None:
        given.append(request)
        raise LeftError

    for name, stand_in in {
        "info": lambda: RUN,
        "now": lambda: NOW,
        "memo": dict,
        "random_seed": lambda: 7,
        "wait_condition": at_once,
        "set_current_details": lambda _text: None,
    }.items():
        monkeypatch.setattr(workflow, name, stand_in)
    monkeypatch.setattr(continuation, "go_on", go_on)
    monkeypatch.setattr(Episode, "finish_rest", at_once)
    monkeypatch.setattr(Episode, "publish_the_rest", at_once)
    state = filled(EpisodeState)
    state.cluster, state.node = "prod", "node-1"
    request = history(cluster="prod", node="node-1", state=state)
    with pytest.raises(LeftError):
        await EpisodeWorkflow(Episode(state)).carry_out(Story(), request)
    assert given[0].state is state
    payload = PayloadConverter().to_payloads([given[0]])
    assert PayloadConverter().from_payloads(payload, [history]) == [given[0]]


def changed_beside_the_state() -> Iterator[tuple[str, str]]:
    """Each attribute of a part of an episode that changes after the part was made, with the part's class."""
    home = Path(workflows.__path__[0])
    for room in ("episode", "fencing", "remediation", "preservation"):
        for module in sorted((home / room).glob("*.py")):
            for part in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
                if isinstance(part, ast.ClassDef) and not any("dataclass" in ast.unparse(each) for each in part.decorator_list):
                    yield from ((part.name, name) for name in changes(part))


def changes(part: ast.ClassDef) -> Iterator[str]:
    """The attributes that its methods set, but for the one that makes it."""
    for method in part.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name != "__init__":
            for each in ast.walk(method):
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self":
                    yield each.attr


def test_no_part_of_an_episode_remembers_anything_beside_the_state() -> None:
    """S34, S35: what stands anywhere else is forgotten with the history."""
    assert set(changed_beside_the_state()) == set(BESIDE_THE_STATE)


# A change of phase that the automaton does not have is on record and counted, and stops no episode.
#
# Every other test of this folder fails by such a change (`unexpected_phases` in `conftest.py`).


async def test_a_change_that_no_arrow_allows_is_on_record_and_counted_and_the_machine_comes_back(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, unexpected_phases: list[tuple[Kind, Phase, Phase]]
) -> None:
    """S35: a task that fails for ever, after off, would leave the machine off."""
    without = {before: following for before, following in phases.FENCING.items() if before is not Phase.RUNNING}
    monkeypatch.setattr(phases, "ARROWS", {Kind.FENCING: without})
    async with fencing(env, World()) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert unexpected_phases == [(Kind.FENCING, Phase.RUNNING, Phase.DONE)]
    told = [entry.detail for entry in result.record if (entry.act, entry.outcome) == ("phase", "unexpected")]
    assert told == ["Fencing: after running expected no other phase, got done"]
    unexpected_phases.clear()


def test_s44_a_status_says_all_that_there_is_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field is the state's own of that name and type, or given beside these: none is left at its default unseen."""
    given = dict[str, Any]()
    monkeypatch.setattr(episode, "EpisodeStatus", given.update)
    state = EpisodeState(kind=Kind.FENCING, cluster="prod", node="node-1", incident="i", reason="smoke", started=NOW)
    words: Any = SimpleNamespace(state=state, advice="", word=StandingWord(), hold_owners=(), overridden_by="")
    Episode.status(words)
    left = {each.name for each in fields(EpisodeStatus)} - given.keys()
    assert left == {"ways"}, "the workflow adds these"
    assert {name: given[name] for name in ("node", "phase", "started")} == {"node": "node-1", "phase": Phase.NEW, "started": NOW}
