"""A workflow task that comes with an old moment is given back: what was decided then could not be replayed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion

from workers.plugin import TimeGuard


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
