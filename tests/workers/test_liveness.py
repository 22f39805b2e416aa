"""A sign of life beside what has a heartbeat time-out, and beside nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio import activity
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from workers.interceptors.liveness import BEATS_PER_TIMEOUT, ROOM, Liveness, pause_between_beats
from workflows.kit import options


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
