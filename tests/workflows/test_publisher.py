"""What people with kubectl see of an episode: which states, in which order, and that showing it is never in its way."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Need, NeedKind, Outcome, Phase, RecordEntry
from policy.episode.nodefence import STATUSES, STEPS, retries
from tests.policy.builders import NOW
from tests.workflows.fencing_run import fenced, fencing
from tests.workflows.surroundings import eventually
from tests.workflows.world import World, plan
from workflows.episode.publisher import Publisher
from workflows.episode.state import PublisherState

OF_A_PERSON = Need(kind=NeedKind.PERSON, reason="smoke")
"""Of a check, the pin cordons, too: a plan with no other isolation is New for no time that is shown."""


def states(world: World) -> list[tuple[str, str, int]]:
    """Step, status and retries of each state that was shown, as the NodeFence spells them."""
    return [(STEPS[each.status.step], STATUSES[each.status.phase], retries(each.status)) for each in world.shown]


def events(world: World) -> list[str]:
    """The reasons of the Events that were told, in their order."""
    return [event.reason for event in world.events]


async def shown(env: WorkflowEnvironment, world: World, phase: Phase) -> None:
    """Wait until the latest state is of that phase."""
    await eventually(env, lambda: bool(world.shown) and world.shown[-1].status.phase is phase)


async def test_a_whole_fencing_is_shown_state_by_state(env: WorkflowEnvironment) -> None:
    """The seed's words, in the order of its automaton; and nothing is written between two states."""
    world = World(need=OF_A_PERSON)
    result = await fenced(env, world)
    assert states(world) == [
        ("Isolation", "New", 0),
        ("Isolation", "Running", 0),
        ("Power-Management", "Running", 0),
        ("Power-Management", "Done", 0),
        ("Recovery", "Done", 0),
        ("Recovery", "Final", 0),
    ]
    assert [each.sequence for each in world.shown] == [1, 2, 3, 4, 5, 6]
    last = world.shown[-1]
    assert (last.outcome, last.message) == ("recovered", result.message)
    off, proven = last.status.off_proof, result.off_proof
    assert off is not None
    assert proven is not None
    assert [(each.state, each.at) for each in off.readings] == [(each.state, each.at) for each in proven.readings]
    assert (off.commanded_at, last.status.restart_proof) == (proven.commanded_at, result.restart_proof)
    done = ("mark-unschedulable", "power-off", "taint-out-of-service", "untaint-out-of-service", "power-on", "mark-schedulable")
    assert last.jobs == tuple(f"{method}-{result.incident}" for method in done)


async def test_each_step_is_told_from_its_start_to_its_result(env: WorkflowEnvironment) -> None:
    """A start that could not be told before what came of it is told by that; as is a success by what says how."""
    world = World()
    await fenced(env, world)
    assert events(world) == [
        "NodeIsolated",
        *("NodePoweredOff", "WorkloadsFreed", "StepSucceeded"),
        *("StepStarted", "EpisodeEnded"),
    ]


async def test_a_failing_fencing_is_shown_with_its_tries_and_its_problem(env: WorkflowEnvironment) -> None:
    """needs-human is spelled Error, as the seed has no word for it; the problem says what a person is needed for. What is over
    before anybody could be told of it is told by its Events alone."""
    world = World(need=OF_A_PERSON, ignores_off=True)
    async with fencing(env, world, parks=True):
        await shown(env, world, Phase.NEEDS_HUMAN)
        power = "Power-Management"
        assert states(world) == [
            ("Isolation", "New", 0),
            ("Isolation", "Running", 0),
            (power, "Running", 0),
            (power, "Running", 1),
            ("Isolation", "Running", 0),
            (power, "Running", 0),
            (power, "Running", 1),
            (power, "Error", 1),
        ]
        last = world.shown[-1].status
        assert (last.phase, last.restarts) == (Phase.NEEDS_HUMAN, 1)
        assert "says on" in last.problem
        incident = last.incident
        tries = tuple(f"power-off-{incident}{number}" for number in ("", "-2", "-3", "-4"))
        assert tuple(job for job in world.shown[-1].jobs if job.startswith("power-off")) == tries
    flow = ["StepStarted", "NodeIsolated", "StepStarted", "StepRetried", "StepFailed"]
    steps = [reason for reason in events(world) if reason != "NeedsHuman"]
    assert steps == [*flow, "FlowRestarted", "StepSucceeded", *flow[2:]], "it was isolated already"
    [retried, _] = [event for event in world.events if event.reason == "StepRetried"]
    assert retried.message.startswith("power-management: try 2 after try 1 of 2: off is not proven within 4 s")


async def test_nothing_waits_for_what_is_told_by_itself(env: WorkflowEnvironment) -> None:
    """The node is off, freed, on and restored while the first of it hangs; the acts take along what is told of them."""
    world = World(plan=plan(wait_before_power=timedelta(minutes=1)))
    world.gates["tell"] = asyncio.Event()
    await fenced(env, world)
    assert states(world)[-1] == ("Recovery", "Final", 0)
    assert "EpisodeEnded" in events(world)


async def test_after_a_failure_the_next_act_takes_along_what_was_not_published(env: WorkflowEnvironment) -> None:
    """The latest state is what is shown, and no event is lost."""
    world = World(
        errors={"publish": [failure(ErrorType.INVALID_CONFIG, "no")]}, plan=plan(wait_before_power=timedelta(minutes=1))
    )
    await fenced(env, world)
    assert states(world)[-1] == ("Recovery", "Final", 0)
    assert events(world)[:2] == ["NodeIsolated", "NodePoweredOff"]


# The decision stream: lines of the record go along with what goes to the cluster anyway --------------------------------


async def test_each_line_of_the_record_goes_along_with_an_act_once_and_in_its_order(env: WorkflowEnvironment) -> None:
    """No activity is made for one, and the last is written before the episode is over."""
    world = World()
    result = await fenced(env, world)
    assert world.streamed == list(result.record)
    assert [each.number for each in result.record] == list(range(1, len(result.record) + 1))
    assert (result.record[-1].act, result.record[-1].numbers and sorted(result.record[-1].numbers)) == (
        "end",
        ["freed_pods", "restarts", "seconds"],
    )


async def test_lines_that_a_failed_activity_took_along_go_with_the_next_under_their_numbers(env: WorkflowEnvironment) -> None:
    errors = [failure(ErrorType.INVALID_CONFIG, "no")]
    world = World(errors={"publish": errors}, plan=plan(wait_before_power=timedelta(minutes=1)))
    result = await fenced(env, world)
    assert world.errors["publish"] == [], "it has failed"
    assert {each.number: each for each in world.streamed} == {each.number: each for each in result.record}


async def test_what_ends_before_it_has_a_target_is_written_all_the_same(env: WorkflowEnvironment) -> None:
    world = World(errors={"pin": [failure(ErrorType.NOT_FOUND, "there is no such Node")]})
    result = await fenced(env, world, Outcome.REFUSED)
    assert [each.act for each in world.streamed] == [each.act for each in result.record]
    assert world.streamed[-1].outcome == "refused"


async def test_where_no_stream_is_configured_no_line_waits_or_travels(env: WorkflowEnvironment) -> None:
    """The worker that pins the target says so; `nodewarden record` has the lines all the same."""
    world = World(streams=False)
    result = await fenced(env, world)
    assert world.streamed == []
    assert len(result.record) > 10


async def test_a_worker_that_does_not_say_whether_there_is_a_stream_ends_no_record(env: WorkflowEnvironment) -> None:
    """One of an older version, while the workers are replaced."""
    world = World(streams=None)
    result = await fenced(env, world)
    assert [each.number for each in world.streamed] == [each.number for each in result.record]


@pytest.mark.parametrize(("answer", "left"), [(None, 1), (True, 1), (False, 0)])
def test_only_a_worker_without_a_stream_drops_the_lines_that_wait(answer: bool | None, left: int) -> None:
    """Each pin and each look of a preservation says it; one by a worker of an older version says nothing."""
    state = PublisherState(streams=True)
    publisher = Publisher("incident-1", state)
    publisher.add_entry(RecordEntry(at=NOW, step="", act="mark", outcome="ok"))
    publisher.learn_of_stream(answer)
    assert (len(state.entries), state.streams) == (left, answer is not False)


async def test_a_line_names_a_person_only_where_one_has_acted(env: WorkflowEnvironment) -> None:
    world = World(ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        await run.parked()
        await run.hold("we look first")
        await run.abort()
        result = await run.result()
    named = {(each.act, each.outcome): each.who for each in result.record if each.who}
    ada = "ada (identity not verified)"
    assert named == {("hold", "asked"): ada, ("abort", "asked"): ada}
    assert {each.number for each in world.streamed} >= {each.number for each in result.record}
