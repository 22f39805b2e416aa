"""Temporal without a server: workflows of the SDK, moved on by a clock that jumps from one event to the next.

What plays here is the SDK's own workflow instance with the project's own workflows; only what stands between it and the world is
ours: tasks, timers, activities with their time-outs and retries, signals, updates, kills. A whole episode takes some hundredths
of a second, and everything is drawn from one seed, so that a run can be had again exactly. Workers die at any task: then the
instance is thrown away, and the next one must say the same to the same history.

What it is not: a test of Temporal. `test_surroundings.py` holds that an episode goes the same way on the real server, and every
test that runs on the clockwork with a client and workers (`surroundings.py`) can be run on the server instead.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowRunner

from tests.workflows.attempts import CONVERTER, START, Attempt
from tests.workflows.contract import CALLS, Call
from tests.workflows.executions import UNREADABLE, Execution
from workers.plugin import RUNNER

ROLLED = 50
"""After so many histories one of ten is left at its first rest: a wait of hours would be a thousand, each decoded anew, and what
their state carries was carried often by then."""
Step = Callable[[], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Perils:
    """How likely it is, per task or activity, that: a workflow's instance is thrown away; a task's worker dies in the middle of
    it; an activity waits in its queue for long."""

    forgets: float = 0.0
    dies: float = 0.0
    queues: float = 0.0


class Clockwork:
    """Workflows by their ids, and what is due when. `perform` carries an attempt out, in an instant of the clock."""

    def __init__(
        self,
        workflows: tuple[type, ...],
        perform: Callable[[Attempt], Any],
        random: Random,
        *,
        perils: Perils = Perils(),
        unheard: Callable[[str, str, Any], bool] | None = None,
        decided: Callable[[Call, Any], None] | None = None,
    ) -> None:
        """unheard: is told of a signal to a workflow that is not here; whether it was heard. decided: is told of each activity
        that a workflow has scheduled, whether or not anybody ever takes it."""
        self.now = START
        self.random = random
        self.perils = perils
        self.rolls = False
        """Whether every history is to be left at its first rest, while there are few of them (`ROLLED`)."""
        self.perform = perform
        self.unheard = unheard or (lambda _workflow_id, _signal, _argument: False)
        self.decided = decided or (lambda _call, _request: None)
        self.heard: Callable[[str, str, Any], None] = lambda _workflow_id, _signal, _argument: None
        """Is told of a signal of one workflow to another that is here."""
        self.problems: list[str] = []
        self.unserved: set[str] = set()
        """Methods whose next call nobody takes."""
        self.failing: list[type[BaseException]] = []
        """What a workflow fails with, beside what always fails it; all else fails only its task."""
        self.executions: dict[str, Execution] = {}
        self._definitions: dict[str | None, workflow._Definition] = {}
        self.learn(workflows)
        self._due: list[tuple[datetime, int, Step]] = []
        self._order = itertools.count()
        self._runs = 0
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Clockwork:
        return self

    def __exit__(self, *_: object) -> None:
        for execution in self.executions.values():
            execution.close()
        self._loop.close()

    # Time -----------------------------------------------------------------------------------------------------------

    def after(self, delay: timedelta, step: Step) -> None:
        """Do something later."""
        heapq.heappush(self._due, (self.now + max(delay, timedelta(0)), next(self._order), step))

    def turn(self) -> bool:
        """Go on to the next event. False: there is none, and never will be unless somebody says something."""
        if not self._due:
            return False
        at, _, step = heapq.heappop(self._due)
        self.now = max(self.now, at)
        step()
        return True

    def moments(self, least: float, most: float) -> timedelta:
        """Some time between so many seconds."""
        return timedelta(seconds=round(self.random.uniform(least, most), 3))

    def chance(self, likelihood: float) -> bool:
        """Whether what is that likely happens now."""
        return likelihood > 0 and self.random.random() < likelihood

    def due(self) -> datetime | None:
        """When the next event is."""
        return self._due[0][0] if self._due else None

    # What a worker does ---------------------------------------------------------------------------------------------

    def learn(self, workflows: Iterable[type]) -> None:
        """Workflows that can be started from now on."""
        self._definitions |= {known.name: known for known in map(workflow._Definition.must_from_class, workflows)}

    def runner_of(self, definition: workflow._Definition) -> WorkflowRunner:
        """What runs a workflow: that of our workers."""
        return RUNNER

    def call_of(self, activity: str) -> Call:
        """What an activity takes and gives."""
        return CALLS[activity]

    def serves(self, queue: str, activity: str) -> bool:
        """Whether somebody takes an activity from a queue."""
        return True

    # What a client does ---------------------------------------------------------------------------------------------

    def start(self, name: str, workflow_id: str, *arguments: Any, incident: str = "") -> Execution | None:
        """Start a workflow. None: one of that id is open."""
        return self.start_converted(name, workflow_id, [CONVERTER.to_payload(each) for each in arguments], incident=incident)

    def start_converted(self, name: str, workflow_id: str, arguments: list[Payload], *, incident: str = "") -> Execution | None:
        """The same, of what is converted already."""
        if (known := self.executions.get(workflow_id)) is not None and not known.closed:
            return None
        if known is not None:
            known.close()
        execution = self._run(name, workflow_id, incident)
        execution.begin(arguments)
        return execution

    def roll(self, execution: Execution, kind: str, arguments: list[Payload], memo: dict[str, Payload]) -> None:
        """A workflow continues as new, maybe as one of another kind. It keeps the attributes that it has by then, and the memo
        that its run began with, unless it says another one: what it has changed of that since is lost."""
        anew = self._run(kind or execution.definition.name, execution.workflow_id, execution.incident)
        execution.continued, anew.former = anew.run_id, execution
        anew.memo, anew.attributes = dict(memo or execution.first_memo), dict(execution.attributes)
        anew.begin(arguments)
        anew.inherit(execution)

    def retry(self, execution: Execution) -> Execution:
        """A run fails that its code can't replay, and its retry policy begins the next: with the input and the memo that it began
        with, and without the signals and updates that it had."""
        execution.terminate()
        execution.failure = UNREADABLE
        anew = self._run(execution.definition.name, execution.workflow_id, execution.incident)
        anew.former, anew.memo = execution.former, dict(execution.first_memo)
        anew.first_memo = dict(execution.first_memo)
        anew.begin(execution.arguments, attempt=2)
        return anew

    def reset(self, execution: Execution, tasks: int, *, reapplies: bool = True) -> Execution:
        """As `temporal workflow reset` does: the first so many workflow tasks of a history are the beginning of a new run, and
        the old one is terminated. reapplies: whether signals and updates that came later are given to the new run."""
        execution.terminate()
        anew = self._run(execution.definition.name, execution.workflow_id, execution.incident)
        anew.go_back(execution, tasks, reapplies=reapplies)
        return anew

    def _run(self, name: str, workflow_id: str, incident: str) -> Execution:
        run_id = f"{self.random.getrandbits(64):016x}"
        self._runs += 1
        rolls = self.rolls and (self._runs <= ROLLED or self._runs % 10 == 0)
        execution = Execution(self, self._definitions[name], workflow_id, run_id, incident, suggests_rolling=rolls)
        self.executions[workflow_id] = execution
        return execution

    def open(self, workflow_id: str) -> Execution | None:
        """The open execution of that id."""
        execution = self.executions.get(workflow_id)
        return execution if execution is not None and not execution.closed else None

    def activate(self, instance: WorkflowInstance, activation: WorkflowActivation) -> WorkflowActivationCompletion:
        """Have an instance do a task."""
        return instance.activate(activation)

    def in_a_loop(self, make: Callable[[], T]) -> T:
        """What an instance expects while it is made."""

        async def made() -> T:
            return make()

        return self._loop.run_until_complete(made())
