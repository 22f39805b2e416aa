"""Where workflows run, days of timers in milliseconds: a clockwork for each test, and a real server for whoever needs one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.runtime import MetricBuffer, MetricBufferDurationFormat, Runtime, TelemetryConfig
from temporalio.testing import WorkflowEnvironment

from activities.contracts import metrics, search_attributes
from policy.episode.messages import Kind, Phase
from tests.workflows.surroundings import ClockworkEnvironment, Measured
from workers.plugin import PLUGIN
from workflows.kit import continuation

FAST = [
    "frontend.WorkflowTimeSkippingEnabled=true",
    'history.timerProcessorMaxTimeShift="10ms"',
    "history.timerProcessorMaxPollRPS=2000",
    "history.transferProcessorMaxPollRPS=2000",
    "system.numConsecutiveWorkflowTaskProblemsToTriggerSearchAttribute=1",  # five, which takes half a minute
]


@pytest.fixture(autouse=True)
def unexpected_phases(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Kind, Phase, Phase]]]:
    """Changes of phase to which no arrow leads (`policy/episode/phases.py`): they stop no episode, and fail its test."""
    found: list[tuple[Kind, Phase, Phase]] = []

    class Counted:
        def add(self, _meter: object, *, kind: str, before: str, after: str, **_: str) -> None:
            found.append((Kind(kind), Phase(before), Phase(after)))

    monkeypatch.setattr(metrics, "UNEXPECTED_PHASES", Counted())
    yield found
    assert found == []


@pytest.fixture(autouse=True)
def first_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scanner that a test makes by itself, outside of any workflow, replaces none that failed."""
    is_retry = continuation.is_retry
    monkeypatch.setattr(continuation, "is_retry", lambda: workflow.in_workflow() and is_retry())


@pytest.fixture
def rolls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An episode leaves its first history at its first rest."""
    monkeypatch.setattr(continuation, "roll_is_due", lambda **_: workflow.info().continued_run_id is None)


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[WorkflowEnvironment]:
    """A real server whose workflows skip their timers. Each file that needs one has its own: to start it takes a fifth of a
    second of a processor, and to have it stand idle takes a tenth of one for as long as all the other files last."""
    try:
        started = await _start()
    except RuntimeError:  # the port that the SDK had found free was taken by a neighbour before the server had it
        started = await _start()
    yield started
    await started.shutdown()
    await asyncio.sleep(0.2)  # the bridge's threads end after this; leaving at once can crash the interpreter


if os.environ.get("NODEWARDEN_TEST_SERVER") or os.environ.get("RECORD_HISTORIES"):

    @pytest.fixture
    def env(server: WorkflowEnvironment) -> WorkflowEnvironment:
        """Where workflows run: here everything on the real server."""
        return server

else:

    @pytest.fixture
    async def env() -> AsyncIterator[WorkflowEnvironment]:
        """Where workflows run: on a clockwork of the test's own. Who needs the real server, asks for it."""
        clockwork = ClockworkEnvironment()
        yield clockwork
        await clockwork.shutdown()


async def _start() -> WorkflowEnvironment:
    return await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=str(Path(sys.executable).with_name("temporal")),
        plugins=[PLUGIN],
        search_attributes=search_attributes.ALL,
        dev_server_extra_args=[arg for setting in FAST for arg in ("--dynamic-config-value", setting)],
    )


@pytest.fixture
async def measured(server: WorkflowEnvironment) -> Measured:
    """Another client of the real server, whose metrics can be read."""
    buffer = MetricBuffer(10_000, duration_format=MetricBufferDurationFormat.SECONDS)
    runtime = Runtime(telemetry=TelemetryConfig(metrics=buffer))
    target = server.client.service_client.config.target_host
    return Measured(await Client.connect(target, plugins=[PLUGIN], runtime=runtime), buffer)
