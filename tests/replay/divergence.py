"""Where a replay leaves its history: the first command that the code gives and the history does not have, or the other way round.

Temporal's own message names two activities, and no event; of a timer too many it names neither. So the commands are noted as the
workflow gives them, and compared with the events that its former commands have left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_commands import WorkflowCommand
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.plugin import SimplePlugin
from temporalio.worker import Replayer, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner
from temporalio.workflow import _Definition

from workers.plugin import PLUGIN, RUNNER

TYPES = {
    EventType.EVENT_TYPE_TIMER_STARTED: "a timer",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "search attributes",
    EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED: "a memo",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: "its end",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "its failure",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: "a new history",
}
GIVEN = {
    "start_timer": "a timer",
    "upsert_workflow_search_attributes": "search attributes",
    "modify_workflow_properties": "a memo",
    "complete_workflow_execution": "its end",
    "fail_workflow_execution": "its failure",
    "continue_as_new_workflow_execution": "a new history",
}
"""Cancellations and answers to updates are left out: they come in no order that a workflow decides."""

WAY_OUT = """
An open episode, scanner or check with such a history would be stuck under this code. Either
  - leave what is there in its order, and add what is new only where no history has been yet, or only for runs that begin
    from now on (a field of the state with a default, or workflow.patched); or,
  - where the order is meant to change, which a new minor version may do (docs/upgrade.md), record the histories anew:
    RECORD_HISTORIES=1 pytest tests/workflows tests/starter/test_client.py, and say so in CHANGELOG.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """event: its number, 0 where the history ends before. error: Temporal's own words."""

    history: str
    event: int
    expected: str
    actual: str
    error: str

    def __str__(self) -> str:
        where = f"event {self.event}" if self.event else "its end"
        return f"{self.history}: at {where} the history has {self.expected}, and the code gives {self.actual}\n    ({self.error})"


async def diverges(name: str, history: WorkflowHistory, workflows: list[type]) -> Divergence | None:
    """Replay it; None where every command is as it was."""
    runner = _NotingRunner()
    noting = SimplePlugin("noting", workflow_runner=lambda _given: runner)
    # Without the limit of 2 s a task: what is asked is the order of commands, not how soon a loaded machine answers.
    replayer = Replayer(workflows=workflows, plugins=[PLUGIN, noting], debug_mode=True)
    found = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if found.replay_failure is None:
        return None
    said = str(found.replay_failure).partition('message: "')[2].partition('", source')[0] or str(found.replay_failure)
    for event, given in zip_longest(_events(history), runner.given):
        if event is None or given is None or event[1].partition(" (")[0] != given.partition(" (")[0]:
            number, expected = event or (0, "nothing more")
            return Divergence(history=name, event=number, expected=expected, actual=given or "nothing more", error=said)
    return Divergence(history=name, event=0, expected="the same commands", actual="another result", error=said)


def _events(history: WorkflowHistory) -> Iterator[tuple[int, str]]:
    for event in history.events:
        if (named := _event(event)) is not None:
            yield event.event_id, named


def _event(event: HistoryEvent) -> str | None:
    match event.event_type:
        case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            return _named(f"activity {event.activity_task_scheduled_event_attributes.activity_type.name}", event)
        case EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
            attributes = event.signal_external_workflow_execution_initiated_event_attributes
            return f"signal {attributes.signal_name}"
        case kind if kind in TYPES:
            return _named(TYPES[kind], event)
    return None


def _given(command: WorkflowCommand) -> str | None:
    match kind := command.WhichOneof("variant"):
        case "schedule_activity":
            return _named(f"activity {command.schedule_activity.activity_type}", command)
        case "signal_external_workflow_execution":
            return f"signal {command.signal_external_workflow_execution.signal_name}"
    return _named(GIVEN[kind], command) if kind in GIVEN else None


def _named(what: str, said: Any) -> str:
    """With what people read of it."""
    summary = said.user_metadata.summary.data.decode().strip('"') if said.HasField("user_metadata") else ""
    return f"{what} ({summary})" if summary else what


class _NotingRunner(WorkflowRunner):
    """The project's own, whose workflows' commands are noted as they come."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def prepare_workflow(self, defn: _Definition) -> None:
        RUNNER.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = RUNNER.create_instance(det)
        activate = instance.activate

        def noting(act: WorkflowActivation) -> WorkflowActivationCompletion:
            done = activate(act)
            cancelled = {each.cancel_timer.seq for each in done.successful.commands if each.HasField("cancel_timer")}
            self.given += filter(
                None,
                (
                    _given(each)
                    for each in done.successful.commands
                    if not each.HasField("start_timer") or each.start_timer.seq not in cancelled
                ),
            )
            return done

        instance.activate = noting  # type: ignore[method-assign]
        return instance
