"""A scripted machine for remediation tests: one Machine and its Node, its owner and other controllers, behind the real contracts.

The node, its devices and pods are those of `world.py`, so that a fencing can be a step of a ladder. Everything that comes of
itself (an owner that replaces, a finalizer that holds a deletion up) follows from the moment at which it is looked at. It judges
at every act: S14, S20, S33 and that no successor is ever taken for the patient. `Play` runs a remediation on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any
from unittest.mock import patch

from pydantic import TypeAdapter
from temporalio.exceptions import ApplicationError

from activities.errors import ErrorType, failure
from policy.episode.gate import Operation
from policy.episode.messages import (
    EpisodeResult,
    EpisodeStatus,
    Need,
    NeedKind,
    Outcome,
    Phase,
    Pinned,
    RecordEntry,
    RemediationInput,
    SeenNode,
    episode_id,
)
from policy.episode.permits import Release
from policy.remediation.ladder import EscalationStep
from policy.remediation.memory import read_memory
from policy.remediation.strategy_rules import Strategy
from policy.values.object_refs import ObjectRef
from tests.workflows import contract
from tests.workflows import world as scripted
from tests.workflows.attempts import Attempt, Lost
from tests.workflows.clockwork import Clockwork, Perils
from tests.workflows.contract import CALLS, act_of
from tests.workflows.executions import Execution, Word
from tests.workflows.machine import MACHINE, MACHINE_UID, MachineObject, RemediationObject, Successor
from tests.workflows.plans import ASKS, MINUTE, step
from tests.workflows.played_acts import MachineActs, at_once
from tests.workflows.world import NODE, ScriptedTarget, World
from workflows.definitions.episodes import Remediation
from workflows.kit.messages import AbortRequest, PersonRequest

CHECK = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers", namespace="")
HOUR = timedelta(hours=1)
SELF = step(Strategy.EXTERNAL, 5 * MINUTE)
FENCE = step(Strategy.FENCE, 20 * MINUTE)
REBOOT = step(Strategy.REBOOT, 20 * MINUTE)
DELETE = step(Strategy.DELETE_MACHINE, 30 * MINUTE)
OWNER = step(Strategy.REQUEST_OWNER, 30 * MINUTE)
ANNOTATE = step(Strategy.ANNOTATE_EXTERNAL, 30 * MINUTE)
OBJECT = "SelfNodeRemediation"


@dataclass(kw_only=True)
class Remediated(MachineObject):
    """The world: a Machine, and its node. `acts` is what was done, in order; `broken` what should never have been."""

    ladder: tuple[EscalationStep, ...]
    node: World = field(default_factory=World)
    need: Need = field(default_factory=lambda: Need(kind=NeedKind.CHECK, reason="workers: Ready is Unknown", check=CHECK))
    of_machines: bool = False
    """Its check judges Machines: one that goes is left alone by it, one that is gone is selected no more."""
    has_machine: bool = True
    healthy_delay: timedelta = timedelta(0)
    refused: str = ""
    found: contract.FailedVolumes | None = None
    """What its node's conditions say of its volumes."""
    on_create: Callable[[RemediationObject], object] = lambda _made: None
    """What the controller of the objects makes of one."""
    permit: bool = False
    releases: list[Release] = field(default_factory=list)
    removing: list[bool] = field(default_factory=list)
    """Of each look before an act, whether the machine was to be taken out for another one."""
    errors: dict[str, list[ApplicationError | str]] = field(default_factory=dict)
    """What befalls the next attempts at an activity: an error, or the loss of its worker `before` or `after` it was done."""
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What happens right before the next attempt at an activity."""
    after: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What happens right after it, before its answer arrives."""

    @property
    def broken(self) -> list[str]:
        """What should never have been."""
        return self.node.broken

    @property
    def acts(self) -> list[str]:
        """What was done, in order."""
        return self.node.acts

    @property
    def remembered(self) -> list[tuple[str, ...]]:
        """The failed steps of each memory that was written on the patient."""
        return [read_memory(each).failed for each in self.memories]

    def count(self, act: str) -> int:
        """How often something was done."""
        return self.acts.count(act)

    def settle(self, now: datetime) -> bool:
        """What has come of itself until now: with its machine goes the Node."""
        if goes := super().settle(now):
            self.node.lose_node()
        return goes

    def successor(self) -> Successor:
        """The one that came for it."""
        assert self.came is not None
        return self.came


def silent(**changes: Any) -> World:
    """A node whose BMC answers nobody."""
    node = World(plan=scripted.plan(**changes))
    node.silent = set(node.power)
    return node


def succeeds(world: Remediated) -> Callable[[RemediationObject], None]:
    """The controller of the objects does what it can, and the node is well."""

    def done(made: RemediationObject) -> None:
        made.succeeded, world.node.ready = "True", True

    return done


class ScriptedRemediation(ScriptedTarget, MachineActs):
    """The activities, over one world: `perform` carries out one attempt."""

    def __init__(self, remediated: Remediated) -> None:
        super().__init__(remediated.node)
        self.remediated = self.machine_object = remediated

    def perform(self, attempt: Attempt) -> Any:
        """Carry one out, or have something befall it."""
        world, name = self.remediated, attempt.call.name
        world.settle(attempt.now)
        if (happens := world.before.pop(name, None)) is not None:
            happens()
        befalls = world.errors[name].pop(0) if world.errors.get(name) else None
        if befalls == "before":
            raise Lost
        if isinstance(befalls, ApplicationError):
            raise befalls
        act = act_of(attempt.call)
        self._judge(act, attempt)
        answer = at_once(getattr(self, act)(attempt.request))
        if act == "request_permit":
            world.permit = world.permit or answer.decision.value == "granted"
        if (happens := world.after.pop(name, None)) is not None:
            happens()
        if befalls == "after":
            raise Lost
        return answer

    def _judge(self, act: str, attempt: Attempt) -> None:
        request = attempt.request
        if act in ASKS.values() and request.before is not None:
            if attempt.now > request.not_after:
                raise failure(ErrorType.EXPIRED, f"{act} comes too late")
            if request.not_after - attempt.now > timedelta(seconds=16):
                self.fault("S20", f"{act} with no end to its time")
        if act == "power_off" and not self.remediated.permit:
            self.fault("S14", "power off without a permit")

    def holds_permit(self) -> bool:
        return self.remediated.permit

    def others_act(self, made: RemediationObject | None) -> None:
        if made is not None:
            self.remediated.on_create(made)

    async def last_look(self, request: contract.LookRequest) -> contract.LookResult:
        """As `activities/cluster/live/last_look.py`: a check of Machines leaves one that goes alone."""
        world = self.remediated
        result = await super().last_look(request)
        verdict = result.verdict
        if verdict is contract.LookVerdict.TARGET_CHANGED and not request.target.pinned.uid:
            verdict = contract.LookVerdict.GO  # of a Machine without a Node there is nothing to compare
        if world.of_machines and request.need_matters and verdict is contract.LookVerdict.GO:
            if not world.present:
                verdict = contract.LookVerdict.NEED_GONE
            elif world.deleting is not None:
                verdict = contract.LookVerdict.VETOED
        if request.destructive:
            world.removing.append(request.operation is Operation.REMOVE)
        return replace(result, verdict=verdict)

    async def find_volumes(self, request: contract.FailedVolumesRequest) -> contract.FailedVolumes:
        assert self.remediated.found is not None
        return self.remediated.found

    async def pin_target(self, request: RemediationInput) -> contract.RemediationPin:
        world, node = self.remediated, self.world
        await self.act("pin-target")
        mark, us = node.mark, (request.incident, scripted.this_run())
        return contract.RemediationPin(
            failed=request.failed,
            pinned=Pinned(
                node=request.node,
                uid=node.uid if node.present else "",
                provider_id="sim://7",
                zone="a",
                boot_id=node.boot_id,
                system_uuid=node.system_uuid,
            ),
            repairs=node.repairs,
            need=request.need or world.need,
            ladder=world.ladder if request.ladder is None else request.ladder,
            check_uid="uid-check",
            machine=MACHINE if world.has_machine else None,
            machine_uid=MACHINE_UID if world.has_machine else "",
            owner=world.owner,
            adopted_incident=mark.incident if mark is not None and (mark.incident, mark.run_id) != us else "",
            adopted_paths=mark.paths if mark is not None else (),
            seen=node.seen_node(),
            healthy_delay=world.healthy_delay,
            remembers=world.stands,
            refused=world.refused,
            streams=node.streams,
        )


# Playing one remediation on the clockwork: days of waiting in milliseconds, workers that are lost, people who speak.

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

    def tell(self, seen: SeenNode) -> None:
        """The scanner says how the node is now."""
        self.execution.signal("node_changed", seen)

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
