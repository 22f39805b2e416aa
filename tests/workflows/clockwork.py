"""Temporal without a server: workflows of the SDK, moved on by a clock that jumps from one event to the next.

What plays here is the SDK's own workflow instance with the project's own workflows; only what stands between it and the world is
ours: tasks, timers, activities with their time-outs and retries, signals, updates, kills. A whole episode takes some hundredths
of a second, and everything is drawn from one seed, so that a run can be had again exactly. Workers die at any task: then the
instance is thrown away, and the next one must say the same to the same history.

What it is not: a test of Temporal. `test_fencing_properties.py` plays some of the same episodes on the real server.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.api.common.v1 import Payload

from tests.workflows.attempts import CONVERTER, START, Attempt
from tests.workflows.contract import Call
from tests.workflows.executions import Execution

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
        self.perform = perform
        self.unheard = unheard or (lambda _workflow_id, _signal, _argument: False)
        self.decided = decided or (lambda _call, _request: None)
        self.problems: list[str] = []
        self.unserved: set[str] = set()
        """Methods whose next call nobody takes."""
        self.executions: dict[str, Execution] = {}
        self._definitions = {definition.name: definition for definition in map(workflow._Definition.must_from_class, workflows)}
        self._due: list[tuple[datetime, int, Step]] = []
        self._order = itertools.count()
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

    # What a client does ---------------------------------------------------------------------------------------------

    def start(self, name: str, workflow_id: str, *arguments: Any, incident: str = "") -> Execution | None:
        """Start a workflow. None: one of that id is open."""
        if (known := self.executions.get(workflow_id)) is not None and not known.closed:
            return None
        if known is not None:
            known.close()
        run_id = f"{self.random.getrandbits(64):016x}"
        self.executions[workflow_id] = execution = Execution(self, self._definitions[name], workflow_id, run_id, incident)
        execution.begin([CONVERTER.to_payload(argument) for argument in arguments])
        return execution

    def roll(self, execution: Execution, arguments: list[Payload]) -> None:
        """A workflow continues as new."""
        run_id = f"{self.random.getrandbits(64):016x}"
        anew = Execution(self, execution.definition, execution.workflow_id, run_id, execution.incident)
        self.executions[execution.workflow_id] = anew
        anew.begin(arguments)
        anew.inherit(execution)

    def open(self, workflow_id: str) -> Execution | None:
        """The open execution of that id."""
        execution = self.executions.get(workflow_id)
        return execution if execution is not None and not execution.closed else None

    def in_a_loop(self, make: Callable[[], T]) -> T:
        """What an instance expects while it is made."""

        async def made() -> T:
            return make()

        return self._loop.run_until_complete(made())
