"""The time-skipping server, shared by all workflow tests of a session: days of timers in milliseconds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from workers.plugin import PLUGIN
from workflows import search

FAST = [
    "frontend.WorkflowTimeSkippingEnabled=true",
    'history.timerProcessorMaxTimeShift="10ms"',
    "history.timerProcessorMaxPollRPS=2000",
    "history.transferProcessorMaxPollRPS=2000",
]


@pytest.fixture(scope="session")
async def env() -> AsyncIterator[WorkflowEnvironment]:
    """A real server whose workflows skip their timers."""
    try:
        started = await _start()
    except RuntimeError:  # the port that the SDK had found free was taken by a neighbour before the server had it
        started = await _start()
    yield started
    await started.shutdown()
    await asyncio.sleep(0.2)  # the bridge's threads end after this; leaving at once can crash the interpreter


async def _start() -> WorkflowEnvironment:
    return await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=str(Path(sys.executable).with_name("temporal")),
        plugins=[PLUGIN],
        search_attributes=search.ALL,
        dev_server_extra_args=[arg for setting in FAST for arg in ("--dynamic-config-value", setting)],
    )
