"""A worker whose clock disagrees with Temporal's does nothing, and says so (S18, S44, S45)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio import activity
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.errors import ErrorType, error_type
from activities.worker_clock import wrong_clock
from workers.interceptors.activity_guards import (
    BEATS_PER_TIMEOUT,
    ROOM,
    SCAN,
    SCANS_DECLINED,
    ClockGuard,
    Liveness,
    pause_between_beats,
)
from workers.plugin import TimeGuard
from workflows.kit import options

POWER_OFF = "power-management.power-off"
RIGHT, SLOW, FAST = timedelta(0), timedelta(seconds=-4), timedelta(seconds=6)


class Act(ActivityInboundInterceptor):
    def __init__(self) -> None:
        """What the activity knew of its worker's clock, each time that it ran."""
        self.knew: list[str] = []

    async def execute_activity(self, input: ExecuteActivityInput) -> str:  # noqa: A002 - the SDK's name
        self.knew.append(wrong_clock.get())
        return "done"


async def perform(keeping: ClockGuard, ahead: timedelta, act: Act, *, name: str = POWER_OFF, attempt: int = 1) -> str:
    environment = ActivityEnvironment()
    started = datetime.now(UTC) - ahead
    environment.info = replace(environment.info, started_time=started, activity_type=name, attempt=attempt)

    async def run() -> str:
        given = ExecuteActivityInput(fn=run, args=[], executor=None, headers={})
        answer: str = await keeping.intercept_activity(act).execute_activity(given)
        return answer

    return await environment.run(run)


@pytest.mark.parametrize("ahead", [SLOW, FAST, timedelta(minutes=10), timedelta(minutes=-10)])
async def test_what_a_worker_with_a_wrong_clock_is_given_does_not_begin_and_goes_elsewhere(ahead: timedelta) -> None:
    """S45: its idea of "too late" is none."""
    act = Act()
    with pytest.raises(ApplicationError, match=r"the clock of worker .* (ahead of|behind) Temporal's") as declined:
        await perform(ClockGuard(), ahead, act)
    assert error_type(declined.value) is ErrorType.WRONG_CLOCK
    assert not declined.value.non_retryable
    assert declined.value.next_retry_delay == timedelta(seconds=1)
    assert act.knew == []


@pytest.mark.parametrize("ahead", [RIGHT, timedelta(seconds=-1), timedelta(seconds=4)])
async def test_a_worker_that_is_a_little_late_goes_on(ahead: timedelta) -> None:
    act = Act()
    assert await perform(ClockGuard(), ahead, act) == "done"
    assert act.knew == [""]


async def test_a_scan_that_no_other_worker_takes_is_answered_with_the_reason() -> None:
    """S44: else nobody would ever hear why nothing is done."""
    act, keeping = Act(), ClockGuard()
    for attempt in range(1, SCANS_DECLINED + 1):
        with pytest.raises(ApplicationError):
            await perform(keeping, FAST, act, name=SCAN, attempt=attempt)
    assert await perform(keeping, FAST, act, name=SCAN, attempt=SCANS_DECLINED + 1) == "done"
    assert "ahead of Temporal's" in act.knew[0]


async def test_a_wrong_clock_is_logged_once_and_so_is_its_mending(caplog: pytest.LogCaptureFixture) -> None:
    """S44."""
    caplog.set_level(logging.INFO, "workers.interceptors.activity_guards")
    keeping = ClockGuard()
    for _ in range(3):
        with pytest.raises(ApplicationError):
            await perform(keeping, SLOW, Act())
    for _ in range(3):
        await perform(keeping, RIGHT, Act())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


# A sign of life beside what has a heartbeat time-out, and beside nothing else.


class Sitting(ActivityInboundInterceptor):
    """An activity that takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def execute_activity(self, input: ExecuteActivityInput) -> str:  # noqa: A002 - the SDK's name
        await asyncio.sleep(self.seconds)
        if self.seconds > 0.3:
            message = "it went wrong in the end"
            raise RuntimeError(message)
        return "done"


async def beats_of(seconds: float, timeout: timedelta | None) -> tuple[int, str]:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, heartbeat_timeout=timeout)
    beats: list[object] = []
    environment.on_heartbeat = lambda *details: beats.append(details)

    async def run() -> str:
        given = ExecuteActivityInput(fn=run, args=[], executor=None, headers={})
        answer: str = await Liveness().intercept_activity(Sitting(seconds)).execute_activity(given)
        return answer

    answer = await environment.run(run)
    told = len(beats)
    await asyncio.sleep(0.1)
    assert len(beats) == told, "it went on after the activity had ended"
    assert activity.in_activity() is False
    return told, answer


async def test_what_takes_long_shows_that_its_worker_lives() -> None:
    told, answer = await beats_of(0.25, timedelta(seconds=0.2))
    assert answer == "done"
    assert told >= BEATS_PER_TIMEOUT // 2


@pytest.mark.parametrize("timeout", [options.LOST_WORKER, options.LOST_SCAN, timedelta(milliseconds=200)])
def test_a_beat_may_be_late_on_a_busy_worker(timeout: timedelta) -> None:
    """S34: a worker that lives is not taken for lost, or what it does would be done twice."""
    pause = pause_between_beats(timeout)
    assert timeout - pause >= min(ROOM, timeout * 3 / 4)


async def test_what_is_done_at_once_costs_no_heartbeat() -> None:
    assert await beats_of(0, timedelta(seconds=0.2)) == (0, "done")


async def test_what_may_not_be_repeated_says_nothing() -> None:
    """S34: an early "lost" would be no licence to do anything earlier."""
    assert await beats_of(0.25, None) == (0, "done")


async def test_what_fails_is_told_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="it went wrong in the end"):
        await beats_of(0.35, timedelta(seconds=0.1))


# A workflow task that comes with an old moment is given back: what was decided then could not be replayed.


def task(second: int, events: int, *jobs: str) -> WorkflowActivation:
    act = WorkflowActivation(run_id="run", history_length=events)
    act.timestamp.seconds = second
    for job in jobs:
        getattr(act.jobs.add(), job).SetInParent()
    return act


BEGIN, QUERY, TIMER = "initialize_workflow", "query_workflow", "fire_timer"


@pytest.mark.parametrize(
    ("tasks", "refused"),
    [
        ([task(1, 3, BEGIN), task(1, 7, TIMER), task(1, 7, QUERY)], [1]),
        ([task(1, 3, BEGIN), task(1, 7, QUERY), task(1, 7, TIMER, "signal_workflow")], [2]),
        ([task(1, 3, BEGIN), task(1, 7, QUERY), task(2, 8, TIMER)], []),
        ([task(1, 3, BEGIN), task(1, 7, QUERY), task(1, 7, "remove_from_cache")], []),
        ([task(1, 3, BEGIN), task(2, 8, TIMER), task(2, 8, "resolve_activity")], []),
    ],
    ids=["for a query", "after a query", "of a new task", "evicted", "two parts of one task"],
)
def test_s18_events_with_the_moment_of_an_earlier_task_are_refused(
    tasks: Sequence[WorkflowActivation], refused: list[int]
) -> None:
    """S18: a worker was killed, and the next one was asked for the spells of a scanner with a timer that had fired meanwhile: it
    fired at a moment long past, and the scanner could never be replayed again."""
    guard = TimeGuard(lambda act: WorkflowActivationCompletion(run_id=act.run_id))
    assert [number for number, each in enumerate(tasks) if guard(each).HasField("failed")] == refused
