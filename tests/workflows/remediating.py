"""Playing one remediation on the clockwork: days of waiting in milliseconds, workers that are lost, people who speak."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta
from random import Random
from types import TracebackType
from typing import Any
from unittest.mock import patch

from pydantic import TypeAdapter

from policy.episode.messages import (
    EpisodeResult,
    EpisodeStatus,
    Observation,
    Outcome,
    Phase,
    RecordEntry,
    RemediationInput,
    episode_id,
)
from policy.episode.permits import Release
from tests.workflows import world as scripted
from tests.workflows.attempts import Attempt
from tests.workflows.clockwork import Clockwork, Perils
from tests.workflows.contract import CALLS
from tests.workflows.executions import Execution, Word
from tests.workflows.remediated import Remediated, ScriptedRemediation
from tests.workflows.world import NODE
from workflows.definitions.episodes import Remediation
from workflows.kit.messages import AbortRequest, PersonRequest

CLUSTER = "prod"
LONGEST = 20_000
"""Events of the clock: no remediation of these tests needs a tenth of it."""

CALM = Perils()
RELEASE = TypeAdapter(Release)

Condition = Callable[[EpisodeStatus], bool]


class Play:
    """One remediation, from its start to its end. `with Play(world) as play: ...`"""

    def __init__(self, world: Remediated, *, perils: Perils = CALM, seed: int = 7, **changes: object) -> None:
        given = {"cluster": CLUSTER, "node": NODE, "incident": "i-1", "need": world.need, "permit_granted": True, "holder": "us"}
        self.world = world
        self.request = RemediationInput(**(given | changes))  # type: ignore[arg-type]
        self.workflow_id = episode_id(CLUSTER, self.request.node)
        self.world.permit = self.request.permit_granted
        self._acts = ScriptedRemediation(world)
        self.clockwork = Clockwork((Remediation,), self._perform, Random(seed), perils=perils, unheard=self._hear)
        self.runs: list[str] = []
        self._asked = self._performed = 0
        self._moments: dict[int, Callable[[], object]] = {}
        self._surroundings = patch.multiple(scripted, clock=lambda: self.clockwork.now, this_run=lambda: self.runs[-1])

    def __enter__(self) -> Play:
        self._surroundings.start()
        self.clockwork.__enter__()
        self.began = self.clockwork.now
        self.clockwork.start("Remediation", self.workflow_id, self.request, incident="i-1")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and not self.execution.closed:  # whatever it waits for, a person can end it
            self.abort()
            self.result()
        self.clockwork.__exit__(kind, error, trace)
        self._surroundings.stop()
        if kind is None:
            scripted_for = {*self.world.errors, *self.world.before, *self.world.after}
            assert scripted_for <= CALLS.keys(), "what is to befall an act is told by its name"
            assert self.clockwork.problems == []
            assert self.world.broken == [], self.world.broken

    @property
    def execution(self) -> Execution:
        """Its latest run."""
        return self.clockwork.executions[self.workflow_id]

    @property
    def passed(self) -> timedelta:
        """How long it has been going on."""
        return self.clockwork.now - self.began

    # What becomes of it ---------------------------------------------------------------------------------------------

    def status(self) -> EpisodeStatus:
        """Its own word."""
        status: EpisodeStatus = self.execution.query("status")
        return status

    def record(self) -> tuple[RecordEntry, ...]:
        """What it has written down so far."""
        record: tuple[RecordEntry, ...] = self.execution.query("record")
        return record

    def until(self, condition: Condition) -> EpisodeStatus:
        """Go on until its status is so."""
        status, asked = None, ("", -1)
        for _ in range(LONGEST):
            if asked != (now := (self.execution.run_id, len(self.execution._history))):  # else nothing has changed since
                asked = now
                with contextlib.suppress(LookupError):
                    status = self.status()
            if status is not None and condition(status):
                return status
            assert not self.execution.closed, f"it has ended: {self.execution.result or self.execution.failure}"
            assert self.clockwork.turn(), f"nothing is to come: {status}"
        raise AssertionError(f"never so: {status}")

    def did(self, act: str, times: int = 1) -> None:
        """Go on until the world has seen an act."""
        for _ in range(LONGEST):
            if self.world.count(act) >= times:
                return
            assert not self.execution.closed, f"it has ended: {self.execution.result or self.execution.failure}"
            assert self.clockwork.turn(), f"nothing is to come: {self.status()}"
        raise AssertionError(f"never done: {act}; {self.world.acts[-20:]}")

    def parked(self) -> EpisodeStatus:
        """Go on until it needs a person."""
        self._asked += 1
        self.did("event NeedsHuman", self._asked)
        return self.until(lambda status: status.phase is Phase.NEEDS_HUMAN and not status.permit)

    def skip(self, duration: timedelta) -> None:
        """Let so much time pass."""
        due, reached = self.clockwork.now + duration, list[bool]()
        self.clockwork.after(duration, lambda: reached.append(True))
        while not reached:
            assert self.clockwork.turn()
        assert self.clockwork.now >= due

    def result(self, outcome: Outcome | None = None) -> EpisodeResult:
        """How it ended, with this outcome where one is named."""
        for _ in range(LONGEST):
            if self.execution.closed:
                assert not self.execution.failure, self.execution.failure
                result: EpisodeResult = self.execution.result
                assert outcome in {None, result.outcome}, result.message
                return result
            assert self.clockwork.turn(), f"nothing is to come: {self.status()}"
        raise AssertionError(f"it never ended: {self.status()}")

    # What is said to it ---------------------------------------------------------------------------------------------

    def say(self, update: str, argument: Any) -> Word:
        """Something to it, heard with its next task."""
        return self.execution.update(update, argument)

    def abort(self, *, power_on: bool = False) -> Word:
        """A person aborts."""
        return self.say("abort", AbortRequest(who="ada", reason="drill", power_on=power_on))

    def hold(self) -> Word:
        """A person holds it."""
        return self.say("hold", PersonRequest(who="ada", reason="a dump is being copied"))

    def resume(self) -> Word:
        """A person has it go on."""
        return self.say("resume", PersonRequest(who="ada", reason="it is mended", question=self.status().question))

    def tell(self, observation: Observation) -> None:
        """The scanner says how the node is now."""
        self.execution.signal("observe", observation)

    def lost(self, duration: timedelta) -> None:
        """No worker is there for its next task for so long."""
        self.execution.deaf_until = self.clockwork.now + duration

    def roll(self) -> None:
        """Its history is long: it is suggested to continue as new."""
        self.execution.suggests_rolling = True

    def goes_on_anew(self) -> None:
        """In another history."""
        before = len(self.runs)
        self.roll()
        self.skip(timedelta(minutes=2))
        assert len(self.runs) == before + 1

    def when(self, moment: int, happens: Callable[[], object]) -> list[int]:
        """Have something happen right before the activity of that number. What is answered is filled in once it has happened."""
        told = list[int]()
        self._moments[moment] = lambda: told.append(moment) or happens()
        return told

    # Inside

    def _perform(self, attempt: Attempt) -> Any:
        if (happens := self._moments.pop(self._performed, None)) is not None:
            happens()
        self._performed += 1
        if attempt.run_id not in self.runs:
            self.runs.append(attempt.run_id)
        return self._acts.perform(attempt)

    def _hear(self, _workflow_id: str, signal: str, argument: Any) -> bool:
        if signal == "release":
            self.world.releases.append(RELEASE.validate_python(argument))
            self.world.permit = False
        return True


def remediated(world: Remediated, outcome: Outcome | None = None, **changes: object) -> EpisodeResult:
    """How a remediation ended that nobody interfered with."""
    with Play(world, **changes) as play:  # type: ignore[arg-type]
        return play.result(outcome)
