"""The clockwork with workers: activities are those of the tests' worlds, which may wait for something that the test does.

Time passes only while the test waits for something, one event after the other, so that whoever waits sees the first moment at
which it is so, and everything stands still while he acts upon it. It passes as on the server that skips time: freely while no
attempt is under way; while one is, or where no time is to be skipped, not longer than a test would wait (`PATIENCE`). What
needs more time than that is not seen in time here either.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar

from temporalio import activity
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.testing import ActivityEnvironment
from temporalio.worker import WorkflowInstance

from tests.workflows.attempts import Attempt, Work
from tests.workflows.clockwork import Clockwork
from tests.workflows.contract import Call
from tests.workflows.executions import Execution

T = TypeVar("T")
Act = Callable[[Any], Any]

PATIENCE = timedelta(seconds=20)
"""So long a test waits for something on a server, before it fails; where it does not say so itself (`Workshop.patient`)."""
ROUNDS = 12
"""So many times everybody else in the loop has its turn before time passes: what an act brings about is over by then."""
NOTHING_TO_DO = 0.01
GIVEN_UP = 300
"""So many times somebody has looked and nothing happened at all."""


class Workshop(Clockwork):
    """Workflows and their workers, moved on by whoever waits for them."""

    def __init__(self) -> None:
        super().__init__((), self._perform, Random(1))
        self.now = datetime.now(UTC)
        self.failing = [Exception]
        self.skips = True
        """Whether time is skipped that nobody needs."""
        self.runs: dict[str, Execution] = {}
        self._acts: dict[tuple[str, str], Act] = {}
        self._calls: dict[str, Call] = {}
        self._works: list[Work] = []
        self._patience, self._waited = PATIENCE, timedelta(0)
        self._idle = 0

    async def close(self) -> None:
        """Nothing happens any more."""
        self.__exit__()
        for work in self._works:
            work.task.cancel()
        await asyncio.gather(*(work.task for work in self._works), return_exceptions=True)

    # Workers --------------------------------------------------------------------------------------------------------

    def hire(self, queue: str, acts: Iterable[Act]) -> dict[tuple[str, str], Act]:
        """A worker for the activities of a queue. Answers what it has taken over."""
        hired = {}
        for act in acts:
            known = activity._Definition.must_from_callable(act)
            assert known.name is not None, "no activity of ours is dynamic"
            assert known.arg_types, "and each says what it takes"
            hired[queue, known.name] = act
            self._calls[known.name] = Call(name=known.name, method=act.__name__, takes=known.arg_types[0], gives=known.ret_type)
        self._acts |= hired
        return hired

    def dismiss(self, hired: dict[tuple[str, str], Act]) -> None:
        """It ends. What it is at, it ends first or never."""
        self._acts = {key: act for key, act in self._acts.items() if hired.get(key) is not act}

    def call_of(self, activity: str) -> Call:
        """As its worker has it, whatever contract it is of."""
        return self._calls.get(activity) or super().call_of(activity)

    def serves(self, queue: str, activity: str) -> bool:
        """Whether somebody takes an activity from a queue."""
        return (queue, activity) in self._acts

    def _perform(self, attempt: Attempt) -> Work:
        surroundings = ActivityEnvironment()
        surroundings.info = replace(
            surroundings.info,
            activity_type=attempt.call.name,
            attempt=attempt.number,
            scheduled_time=attempt.decided,
            current_attempt_scheduled_time=self.now,
            started_time=self.now,
            task_queue=attempt.queue,
            workflow_id=attempt.workflow_id,
            workflow_type=attempt.kind,
            workflow_run_id=attempt.run_id,
        )
        act = self._acts[attempt.queue, attempt.call.name]
        work = Work(asyncio.ensure_future(surroundings.run(act, attempt.request)))

        def lives(*_details: object) -> None:
            work.alive = True

        surroundings.on_heartbeat = lives
        self._works.append(work)
        return work

    # Time -----------------------------------------------------------------------------------------------------------

    def moments(self, least: float, most: float) -> timedelta:
        """Everything goes as fast as it can: what comes first here, comes first each time."""
        return timedelta(seconds=least)

    def stand(self) -> None:
        """Somebody has said something, and waits anew for what follows from it."""
        self._waited, self._idle = timedelta(0), 0

    @contextmanager
    def patient(self, patience: timedelta) -> Iterator[None]:
        """Who waits in here, does so for no longer than that."""
        self.stand()
        before, self._patience = self._patience, patience
        try:
            yield
        finally:
            self._patience = before
            self.stand()

    async def moment(self) -> None:
        """Let the next thing happen, if it is one that is waited for."""
        await self._settle()
        due, free = self.due(), self.skips and not any(work.waited_for for work in self._works)
        waits = max(due - self.now, timedelta(0)) if due is not None and not free else timedelta(0)
        if due is None or self._waited + waits > self._patience:
            self._idle += 1
            if self._idle > GIVEN_UP:
                raise TimeoutError(f"nothing happens before {due}, however long it is waited for")
            await asyncio.sleep(NOTHING_TO_DO)  # somebody else has to do something first
            return
        self._waited, self._idle = self._waited + waits, 0
        await self._turn()

    async def skip(self, duration: timedelta, workflow_id: str) -> bool:
        """Let so much time pass, or as much as a workflow needs to its end. Answers whether all of it has passed."""
        until = self.now + duration
        try:
            while True:
                await self._settle()
                if self.open(workflow_id) is None:
                    return False
                due = self.due()
                if due is None or due > until:
                    self.now = max(self.now, until)
                    return True
                await self._turn()
        finally:
            self.stand()

    async def _settle(self) -> None:
        for _ in range(ROUNDS if self._works else 1):
            await asyncio.sleep(0)
        self._works = [work for work in self._works if not work.task.done()]

    async def _turn(self) -> None:
        """In a callback of its own: a workflow's tasks may not be entered out of another one."""
        loop = asyncio.get_running_loop()
        over = loop.create_future()

        def turn() -> None:
            try:
                self.turn()
            except BaseException as error:  # noqa: BLE001 - whoever waits is told
                over.set_exception(error)
            else:
                over.set_result(None)

        loop.call_soon(turn)
        await over

    # Workflows ------------------------------------------------------------------------------------------------------

    def activate(self, instance: WorkflowInstance, activation: WorkflowActivation) -> WorkflowActivationCompletion:
        """An instance is a loop of its own, and says when it has run that none runs any more."""
        around = asyncio.get_running_loop()
        try:
            return instance.activate(activation)
        finally:
            asyncio._set_running_loop(around)

    def in_a_loop(self, make: Callable[[], T]) -> T:
        """Here is one."""
        return make()

    def _run(self, name: str, workflow_id: str, incident: str) -> Execution:
        execution = super()._run(name, workflow_id, incident)
        self.runs[execution.run_id] = execution
        return execution
