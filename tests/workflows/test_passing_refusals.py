"""A Kubernetes API that has just been restarted refuses everybody until it knows who may do what: some tenths of a second.

Nobody is asked for that, wherever in an episode it comes; for a refusal that lasts longer than a minute somebody is (S35).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TimeoutType
from temporalio.exceptions import TimeoutError as OutOfTime
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.fence.plan import Freeing
from policy.remediation.strategy_rules import Strategy
from tests.workflows.fencing_run import fenced, fencing
from tests.workflows.remediation_run import Play, Remediated, step
from tests.workflows.surroundings import stand_still
from tests.workflows.world import World, clock, plan
from workflows.kit import options
from workflows.kit.interrupts import INTERRUPTS, NonRetryable, is_unclear, never_began

OBJECT = "SelfNodeRemediation"
FORBIDDEN = failure(ErrorType.FORBIDDEN, "403 Forbidden: nodes is forbidden: User nodewarden cannot list resource nodes")
LEASELESS = failure(ErrorType.NOT_LICENSED, "the cluster Lease is not ours")
RESTART = timedelta(milliseconds=500)
FOR_EVER = timedelta(days=365)


@dataclass
class Refusing(World):
    """An API that refuses one act of its own: from the first time that it is asked for, for so long."""

    refused: str = ""
    lasts: timedelta = RESTART
    refusals: list[datetime] = field(default_factory=list)

    async def act(self, name: str) -> None:
        if name == self.refused and clock() - (self.refusals or [clock()])[0] < self.lasts:
            self.refusals.append(clock())
            raise FORBIDDEN
        await super().act(name)


# `read`, `off` and `on` are refused where the device's password is read from a Secret. Unread devices have the plan's time.
ACTS = ("mark", "look", "read", "off", "taint", "delete-workload", "untaint", "glance", "on", "uncordon")


@pytest.mark.parametrize("refused", ACTS)
async def test_a_refusal_is_waited_for_as_long_as_is_promised(env: WorkflowEnvironment, refused: str) -> None:
    """S35: that is a minute, wherever the pauses between the tries come to lie. Nobody has to mend anything, and the machine may
    be off meanwhile. S2: the proof is read again before the deletion that is carried out."""
    lasts = RESTART if refused == "read" else timedelta(seconds=58)
    freeing = Freeing.DELETION if refused == "delete-workload" else Freeing.AUTOMATIC
    world = Refusing(plan=plan(tries=1, restarts=0, freeing=freeing), refused=refused, lasts=lasts)
    result = await fenced(env, world)
    assert world.refusals
    assert "needs-human" not in [entry.outcome for entry in result.record]
    assert (world.count("off"), world.count("on")) == (1, 1)
    assert refused != "delete-workload" or world.acts[world.acts.index("delete-workload") - 1] == "read"


@pytest.mark.skipif("NODEWARDEN_TEST_SERVER" in os.environ, reason="that server carries out what is due meanwhile")
@pytest.mark.parametrize("refused", [act for act in ACTS if act != "read"])
async def test_s37_an_hour_without_workers_uses_up_no_patience(env: WorkflowEnvironment, refused: str) -> None:
    """S37: what is refused before workers or Temporal are away, and right after they are back, is waited for as ever: nobody
    was refused for the hour between."""
    freeing = Freeing.DELETION if refused == "delete-workload" else Freeing.AUTOMATIC
    lasts = timedelta(hours=1, seconds=50)
    world = Refusing(plan=plan(tries=1, restarts=0, freeing=freeing), refused=refused, lasts=lasts)
    async with fencing(env, world) as run:
        await run.until(lambda _: bool(world.refusals))
        stand_still(env, timedelta(hours=1))
        result = await run.result(Outcome.RECOVERED)
    assert world.refusals[-1] - world.refusals[0] > timedelta(hours=1)
    assert "needs-human" not in [entry.outcome for entry in result.record]


def test_s33_after_a_standstill_only_reads_and_repeatable_writes_are_asked_for_again() -> None:
    """S33: nothing that is tried once; and what people are told goes with the next act instead."""
    again, once = (
        (options.cluster_read, options.cluster_write),
        (options.publication, options.consequence, options.machine_deletion),
    )
    assert all(options.is_repeated(how("c")) for how in again)
    assert not any(options.is_repeated(how("c")) for how in once)


@pytest.mark.parametrize("refused", ["look", "taint", "off"])
async def test_a_refusal_that_lasts_for_a_minute_is_told_to_a_person(env: WorkflowEnvironment, refused: str) -> None:
    """S35: a right is missing, and only a person can give it. Once it is there, a word is enough."""
    world = Refusing(plan=plan(tries=1, restarts=0), refused=refused, lasts=FOR_EVER)
    async with fencing(env, world) as run:
        assert "nodes is forbidden" in (await run.parked()).problem
        tried = world.refusals[-1] - world.refusals[0]
        assert timedelta(seconds=30) < tried < timedelta(seconds=90)
        world.lasts = RESTART
        await run.resume("the right is there now")
        await run.result(Outcome.RECOVERED)


@pytest.mark.parametrize(
    ("strategy", "method", "act", "refusals"),
    [
        (Strategy.DELETE_MACHINE, "preservation.give-up", "give-up", [FORBIDDEN] * 2),
        (Strategy.DELETE_MACHINE, "preservation.give-up", "give-up", [*[LEASELESS] * 5, FORBIDDEN]),
        (Strategy.EXTERNAL, "remediation.create-object", f"create {OBJECT}", [FORBIDDEN] * 2),
        (Strategy.ANNOTATE_EXTERNAL, "remediation.annotate-external", "annotate-external", [FORBIDDEN] * 2),
    ],
    ids=["deletion", "deletion, after a wait for the Lease", "object", "annotation"],
)
def test_a_step_of_a_ladder_outlives_a_refusal_that_passes(
    strategy: Strategy, method: str, act: str, refusals: list[ApplicationError | str]
) -> None:
    """S35: the next step may be a worse one. Minutes without the Lease use up none of the refusal's patience."""
    world = Remediated(ladder=(step(strategy), step(Strategy.REBOOT)))
    world.errors[method] = [*refusals]
    with Play(world) as play:
        play.did(act)
        assert not [entry for entry in play.record() if (entry.act, entry.outcome) == ("step", "failed")]
        if strategy is not Strategy.DELETE_MACHINE:
            play.abort()
        play.result()


def test_a_deletion_that_is_refused_for_good_is_the_next_steps_turn_after_a_minute() -> None:
    """S35: of a ladder a right that is missing fails the step, and not a person's patience."""
    world = Remediated(ladder=(step(Strategy.DELETE_MACHINE), step(Strategy.EXTERNAL)))
    world.errors["preservation.give-up"] = [FORBIDDEN] * 1000
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        assert timedelta(minutes=1) <= play.passed < timedelta(minutes=3)


# What a failed act says of what was done: whether it began at all, and whether it may have been carried out (S33, S34).

ONCE, AGAIN = RetryState.MAXIMUM_ATTEMPTS_REACHED, RetryState.TIMEOUT


def failed(cause: TimeoutType | ApplicationError, retry_state: RetryState = ONCE) -> ActivityError:
    """An activity that has failed with that."""
    named = {"identity": "w", "activity_type": "a", "activity_id": "1"}
    error = ActivityError("failed", scheduled_event_id=1, started_event_id=2, retry_state=retry_state, **named)
    late = isinstance(cause, TimeoutType)
    error.__cause__ = OutOfTime("late", type=cause, last_heartbeat_details=()) if late else cause
    return error


@pytest.mark.parametrize(
    ("error", "began", "unclear"),
    [
        (failed(TimeoutType.SCHEDULE_TO_START), False, False),
        (failed(TimeoutType.START_TO_CLOSE), True, True),
        (failed(TimeoutType.HEARTBEAT), True, True),
        (failed(TimeoutType.SCHEDULE_TO_CLOSE), True, True),
        (failed(failure(ErrorType.WRONG_CLOCK, "behind")), False, False),
        (failed(failure(ErrorType.WRONG_CLOCK, "behind"), AGAIN), True, False),
        (failed(failure(ErrorType.AMBIGUOUS, "lost")), True, True),
        (failed(failure(ErrorType.TRANSIENT, "refused")), True, False),
    ],
    ids=[
        "nobody took it",
        "out of time",
        "its worker died",
        "out of all time",
        "declined",
        "declined at last",
        "unsure",
        "refused",
    ],
)
def test_only_what_a_worker_may_have_begun_is_waited_out(error: ActivityError, *, began: bool, unclear: bool) -> None:
    """S33, S34: what no worker has taken has done nothing, so that it is neither waited out nor taken for done."""
    assert (never_began(error), is_unclear(error)) == (not began, unclear)


def test_what_an_earlier_build_has_left_an_episode_in_is_known() -> None:
    """S35: the name is part of the state that a new history begins with; one that is not known would end it in every task."""
    assert INTERRUPTS["Hopeless"] is NonRetryable
    assert all(INTERRUPTS[each.__name__] is each for each in INTERRUPTS.values())
