"""NodeActions that kubectl has made: carried out beside the scan, once, and answered."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.acts.node_actions import LOOK_AGAIN_SECONDS, NodeActionHandler
from activities.cluster.api.connection import ClusterConnection
from activities.errors import ErrorType, failure
from policy.episode.node_action import NAMESPACE, SENT_LABEL, ActionName, NodeActionSpec, Verb
from simulator.client import ApiClient
from tests.node_actions import ACTIONS, Object, api_with_actions, made

SPOKEN = NodeActionSpec(action=Verb.EXTEND, node="node-2", reason="looks at it", hold=timedelta(hours=24))


class NodeActionDispatcher:
    """Says nothing to anybody, and remembers it."""

    def __init__(self, *answers: Exception | str) -> None:
        self._answers = list(answers) or ["heard"]
        self.said: list[tuple[NodeActionSpec, str]] = []

    async def dispatch(self, cluster: str, spec: NodeActionSpec, action: ActionName, who: str) -> str:
        assert (cluster, action.uid != "") == ("prod", True)
        self.said.append((spec, who))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def live(person: ApiClient) -> list[Object]:
    return list((await person.get(ACTIONS.path(namespace=NAMESPACE)))["items"])


async def attended(person: ApiClient, connection: ClusterConnection, dispatcher: NodeActionDispatcher, **given: Any) -> float:
    """A keeper that is new, and done with what is there; in how many seconds it wants to be called again."""
    ended = asyncio.Event()
    found = {each["metadata"]["name"]: each for each in await live(person)}
    keeping = NodeActionHandler("prod", connection, found, dispatcher.dispatch, on_change=ended.set, **given)
    wanted = keeping.begin_due_work()
    if keeping.busy:
        await ended.wait()
        wanted = keeping.begin_due_work()
        assert not keeping.busy, "it is left alone for a moment"
    return wanted


async def test_it_is_said_in_its_makers_name_and_answered_after_every_look() -> None:
    dispatcher = NodeActionDispatcher()
    async with api_with_actions() as (person, connection):
        await made(person, SPOKEN.to_dict("ada"))
        await attended(person, connection, dispatcher)
        assert await attended(person, connection, dispatcher) == LOOK_AGAIN_SECONDS
        (found,) = await live(person)
    assert dispatcher.said == [(SPOKEN, "ada")]
    assert (found["status"]["phase"], found["status"]["message"]) == ("Done", "heard")


async def test_a_refusal_is_told_and_silence_is_asked_again() -> None:
    dispatcher = NodeActionDispatcher(
        failure(ErrorType.UNREACHABLE, "silent"), failure(ErrorType.NOT_LICENSED, "no open episode")
    )
    async with api_with_actions() as (person, connection):
        await made(person, SPOKEN.to_dict("ada"))
        assert 0 < await attended(person, connection, dispatcher) <= 5
        assert (await live(person))[0].get("status") is None
        await attended(person, connection, dispatcher)
        (found,) = await live(person)
    assert (found["status"]["phase"], found["status"]["message"]) == ("Refused", "no open episode")


async def test_what_anybody_may_have_said_is_refused_unsaid() -> None:
    """S42: who may make objects could not speak at all without them, whatever words are heard else."""
    dispatcher = NodeActionDispatcher()
    async with api_with_actions(enforced=False) as (person, connection):
        await made(person, SPOKEN.to_dict("ada"))
        await attended(person, connection, dispatcher)
        (found,) = await live(person)
    assert (dispatcher.said, found["status"]["phase"]) == ([], "Refused")
    assert "does not check names" in found["status"]["message"]


@pytest.mark.parametrize(
    ("verb", "answer", "told"),
    [
        (Verb.FENCE, "", "episode/prod/node-2 has begun"),
        (Verb.HOLD, "is held", "is held"),
        (
            Verb.HOLD,
            failure(ErrorType.NOT_LICENSED, "used already"),
            "episode/prod/node-2 has accepted it; asked again for its answer: used already",
        ),
        (Verb.HOLD, failure(ErrorType.UNREACHABLE, "silent"), None),
    ],
)
async def test_what_was_heard_is_not_told_to_be_too_old(verb: Verb, answer: Exception | str, told: str | None) -> None:
    """S44: it was obeyed, and its answer was lost."""
    async with api_with_actions() as (person, connection):
        action = await made(person, NodeActionSpec(action=verb, node="node-2", reason="a drill").to_dict("ada"))
        path = ACTIONS.path(action.name, namespace=NAMESPACE, subresource="status")
        await person.patch(path, {"status": {"phase": "Accepted", "usedBy": "one", "workflow": "episode/prod/node-2"}})
        now = connection.now
        connection.now = lambda: now() + timedelta(minutes=6)  # type: ignore[method-assign]
        await attended(person, connection, NodeActionDispatcher(answer))
        (found,) = await live(person)
    assert (found["status"]["phase"], found["status"].get("message")) == (("Done", told) if told else ("Accepted", None))


@pytest.mark.parametrize(("age", "left", "phase"), [("6m", 1, "Refused"), ("25h", 0, "")])
async def test_an_old_one_is_refused_unsaid_and_a_day_later_taken_away(age: str, left: int, phase: str) -> None:
    """S33: what nobody has carried out in time is carried out by nobody."""
    dispatcher = NodeActionDispatcher()
    async with api_with_actions() as (person, connection):
        await made(person, SPOKEN.to_dict("ada"))
        now, passed = connection.now, timedelta(minutes=6) if age == "6m" else timedelta(hours=25)
        connection.now = lambda: now() + passed  # type: ignore[method-assign]
        await attended(person, connection, dispatcher)
        found = await live(person)
    assert (dispatcher.said, len(found)) == ([], left)
    assert not phase or (found[0]["status"]["phase"], "older" in found[0]["status"]["message"]) == (phase, True)


@pytest.mark.parametrize(
    ("status", "seconds", "phase"), [({}, 25, None), ({}, 31, "Refused"), ({"phase": "Accepted"}, 31, "Accepted")]
)
async def test_s44_what_a_command_line_has_made_and_no_workflow_took_is_answered(
    status: Object, seconds: int, phase: str | None
) -> None:
    """Such as `mode unset` of no rule, which the scanner refuses before it has it verified."""
    dispatcher = NodeActionDispatcher()
    async with api_with_actions() as (person, connection):
        action = await made(person, SPOKEN.to_dict("ada"), labels={SENT_LABEL: "true"})
        if status:
            path = ACTIONS.path(action.name, namespace=NAMESPACE, subresource="status")
            await person.patch(path, {"status": status | {"usedBy": "one"}})
        now = connection.now
        connection.now = lambda: now() + timedelta(seconds=seconds)  # type: ignore[method-assign]
        again = await attended(person, connection, dispatcher)
        (found,) = await live(person)
    assert 0 < again <= (5 if phase is None else LOOK_AGAIN_SECONDS), "it comes back when that is due"
    answered = found.get("status") or {}
    assert (dispatcher.said, answered.get("phase")) == ([], phase)
    assert ("the command line that made it was refused" in answered.get("message", "")) is (phase == "Refused")


async def test_what_a_command_line_has_made_it_says_itself() -> None:
    dispatcher = NodeActionDispatcher()
    async with api_with_actions() as (person, connection):
        await made(person, SPOKEN.to_dict("ada"), labels={SENT_LABEL: "true"})
        assert 0 < await attended(person, connection, dispatcher) <= 30
    assert dispatcher.said == []
