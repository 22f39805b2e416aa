"""A scripted machine for remediation tests: one Machine and its Node, its owner and other controllers, behind the real contracts.

The node, its devices and pods are those of `world.py`, so that a fencing can be a step of a ladder. Everything that comes of
itself (an owner that replaces, a finalizer that holds a deletion up) follows from the moment at which it is looked at. It judges
at every act: S14, S20, S33 and that no successor is ever taken for the patient. `Play` runs a remediation on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
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
from policy.remediation.strategies import Strategy
from policy.values.object_refs import ObjectRef
from tests.workflows import contract
from tests.workflows import world as scripted
from tests.workflows.attempts import START, Attempt, Lost
from tests.workflows.clockwork import Clockwork, Perils
from tests.workflows.contract import CALLS
from tests.workflows.executions import Execution, Word
from tests.workflows.machine import MACHINE, MACHINE_UID, SUCCESSOR
from tests.workflows.plans import MINUTE, TEMPLATE, step
from tests.workflows.played_acts import named
from tests.workflows.world import NODE, ScriptedTarget, World
from workflows.definitions.episodes import Remediation
from workflows.kit.messages import AbortRequest, PersonRequest

CHECK = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers", namespace="")
ACTING: Mapping[str, Callable[[contract.LookResult], Any]] = {
    "preservation.give-up": lambda seen: contract.GiveUpResult(detail=seen.reason, look=seen),
    "remediation.request-owner": lambda seen: contract.ActResult(changed=False, detail=seen.reason, look=seen),
    "remediation.annotate-external": lambda seen: contract.ActResult(changed=False, detail=seen.reason, look=seen),
    "remediation.create-object": lambda seen: contract.External(present=False, message=seen.reason, look=seen),
}
"""What needs a permit, a last look and an end to its time, and what it answers where it is not begun."""


HOUR = timedelta(hours=1)
SELF = step(Strategy.EXTERNAL, 5 * MINUTE)
FENCE = step(Strategy.FENCE, 20 * MINUTE)
REBOOT = step(Strategy.REBOOT, 20 * MINUTE)
DELETE = step(Strategy.DELETE_MACHINE, 30 * MINUTE)
OWNER = step(Strategy.REQUEST_OWNER, 30 * MINUTE)
ANNOTATE = step(Strategy.ANNOTATE_EXTERNAL, 30 * MINUTE)
OBJECT = "SelfNodeRemediation"


@dataclass
class Successor:
    """What the owner has made in its place."""

    memory: str = ""
    ready_at: datetime | None = None
    failed: str = ""


@dataclass
class Made:
    """A remediation object."""

    name: str
    created: datetime
    processing: str = ""
    succeeded: str = ""
    node_deletion: str = ""
    phase: str = ""
    message: str = ""
    timed_out: bool = False
    well_since: datetime | None = None
    goes_at: datetime | None = None
    """It is being deleted, until then."""


@dataclass
class Remediated:
    """The world. `acts` is what was done, in order; `broken` what should never have been."""

    ladder: tuple[EscalationStep, ...]
    node: World = field(default_factory=World)
    need: Need = field(default_factory=lambda: Need(kind=NeedKind.CHECK, reason="workers: Ready is Unknown", check=CHECK))
    of_machines: bool = False
    """Its check judges Machines: one that goes is left alone by it, one that is gone is selected no more."""
    has_machine: bool = True
    owner: str = "MachineSet/workers"
    healthy_delay: timedelta = timedelta(0)
    refused: str = ""
    present: bool = True
    deleting: datetime | None = None
    goes_after: timedelta | None = timedelta(minutes=2)
    """How long its deletion takes; None: something holds it up for ever."""
    follows_after: timedelta | None = timedelta(seconds=5)
    """How long after it is gone its owner makes another one; None: it makes none."""
    ready_after: timedelta | None = timedelta(minutes=3)
    """How long the other one takes; None: for ever."""
    successor_fails: str = ""
    scaled_down: str = ""
    came: Successor | None = None
    check_paused: bool = False
    owner_asked: datetime | None = None
    owner_acts_after: timedelta | None = None
    """How long its owner takes once asked; None: it does nothing."""
    owner_says: tuple[str, str] = ("", "")
    """Reason and message of its condition once its owner has looked."""
    annotated: bool = False
    found: contract.FailedVolumes | None = None
    """What its node's conditions say of its volumes."""
    objects: dict[str, Made] = field(default_factory=dict)
    on_create: Callable[[Made], None] = lambda _made: None
    """What the controller of the objects makes of one."""
    memories: list[str] = field(default_factory=list)
    """What was written on the patient, in order."""
    stands: tuple[str, str] = ("", "")
    """What Machine and Node remember now."""
    kept: str = ""
    """Why whoever is asked for its deletion keeps it."""
    deletions: list[datetime] = field(default_factory=list)
    """Whenever its deletion reached the API."""
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
    broken: list[str] = field(default_factory=list)
    now: datetime = START

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

    def settle(self, now: datetime) -> None:
        """What has come of itself until now."""
        self.now = now
        if self.owner_asked is not None and self.owner_acts_after is not None and self.deleting is None and self.present:
            due = self.owner_asked + self.owner_acts_after
            self.deleting = due.replace(microsecond=0) if now >= due else None
        if self.deleting is None or self.goes_after is None:
            return
        gone = self.deleting + self.goes_after
        if now >= gone and self.present:
            self.present = False
            self.node.present = False
        if self.present or self.follows_after is None or self.came is not None or now < gone + self.follows_after:
            return
        ready = (
            gone + self.follows_after + self.ready_after if self.ready_after is not None and not self.successor_fails else None
        )
        self.came = Successor(ready_at=ready, failed=self.successor_fails)

    def successor(self) -> Successor:
        """The one that came for it."""
        assert self.came is not None
        return self.came


def silent(**changes: Any) -> World:
    """A node whose BMC answers nobody."""
    node = World(plan=scripted.plan(**changes))
    node.silent = set(node.power)
    return node


def succeeds(world: Remediated) -> Callable[[Made], None]:
    """The controller of the objects does what it can, and the node is well."""

    def done(made: Made) -> None:
        made.succeeded, world.node.ready = "True", True

    return done


class ScriptedRemediation:
    """The activities, over one world: `perform` carries out one attempt."""

    def __init__(self, world: Remediated) -> None:
        self.world = world
        self._target = ScriptedTarget(world.node)
        self._target.looks = self._looks

    def perform(self, attempt: Attempt) -> Any:
        """Carry one out, or have something befall it."""
        world, name = self.world, attempt.call.name
        world.settle(attempt.now)
        if (happens := world.before.pop(name, None)) is not None:
            happens()
        befalls = world.errors[name].pop(0) if world.errors.get(name) else None
        if befalls == "before":
            raise Lost
        if isinstance(befalls, ApplicationError):
            raise befalls
        answer = self._carry_out(attempt)
        world.broken += world.node.broken
        world.node.broken.clear()
        if (happens := world.after.pop(name, None)) is not None:
            happens()
        if befalls == "after":
            raise Lost
        return answer

    def _carry_out(self, attempt: Attempt) -> Any:
        name, request = attempt.call.name, attempt.request
        if name.startswith(("remediation.", "preservation.")):
            act = getattr(self, name.partition(".")[2].replace("-", "_"))
            return self._begin(name, request, act) if name in ACTING and request.before is not None else act(request)
        if attempt.call.method == "last_look":
            return self._look(request)
        if attempt.call.method == "power_off" and not self.world.permit:
            self.world.broken.append("S14: power off without a permit")
        answer = _at_once(getattr(self._target, attempt.call.method)(request))
        if attempt.call.method == "request_permit":
            self.world.permit = self.world.permit or answer.decision.value == "granted"
        return answer

    def _begin(self, name: str, request: Any, act: Callable[[Any], Any]) -> Any:
        """The last look and the note come first, in the same activity."""
        world = self.world
        if world.now > request.not_after:
            raise failure(ErrorType.EXPIRED, f"{name} comes too late")
        if request.not_after - world.now > timedelta(seconds=16):
            world.broken.append(f"S20: {name} with no end to its time")
        seen = self._look(request.before.look)
        if seen.verdict is not contract.LookVerdict.GO:
            return ACTING[name](seen)
        if not world.permit:
            world.broken.append(f"S14: {name} without a permit")
        if request.before.remember is not None:
            self.remember(request.before.remember)
        return replace(act(request), look=seen)

    async def _looks(self, request: Any) -> Any:
        return self._look(request)

    def _look(self, request: Any) -> Any:
        """As `activities/cluster/live/last_look.py`: a check of Machines leaves one that goes alone."""
        world = self.world
        result = _at_once(self._target.last_look(request))
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

    def find_volumes(self, request: contract.FailedVolumesRequest) -> contract.FailedVolumes:
        assert self.world.found is not None
        return self.world.found

    # The Machine ----------------------------------------------------------------------------------------------------

    def pin_target(self, request: RemediationInput) -> contract.RemediationPin:
        world = self.world
        world.acts.append("pin-target")
        mark, us = world.node.mark, (request.incident, scripted.this_run())
        return contract.RemediationPin(
            pinned=Pinned(
                node=request.node,
                uid=world.node.uid if world.node.present else "",
                provider_id="sim://7",
                zone="a",
                boot_id=world.node.boot_id,
                system_uuid=world.node.system_uuid,
            ),
            repairs=world.node.repairs,
            need=request.need or world.need,
            ladder=world.ladder if request.ladder is None else request.ladder,
            check_uid="uid-check",
            machine=MACHINE if world.has_machine else None,
            machine_uid=MACHINE_UID if world.has_machine else "",
            owner=world.owner,
            adopted_incident=mark.incident if mark is not None and (mark.incident, mark.run_id) != us else "",
            adopted_paths=mark.paths if mark is not None else (),
            seen=world.node.seen_node(),
            healthy_delay=world.healthy_delay,
            remembers=world.stands,
            refused=world.refused,
            streams=world.node.streams,
        )

    def give_up(self, request: contract.GiveUpRequest) -> contract.GiveUpResult:
        world = self.world
        if request.withdraw:
            world.acts.append("withdraw")
            return contract.GiveUpResult(kept="it is not asked for any more")
        world.acts.append("give-up")
        if (request.machine, request.machine_uid) != (MACHINE, MACHINE_UID):
            world.broken.append(f"S9: {request.machine_uid} was to be deleted")
        if not world.present:
            raise failure(ErrorType.TARGET_CHANGED, "another Machine has taken the name")
        if world.kept:
            return contract.GiveUpResult(kept=world.kept)
        if world.deleting is None:
            world.deleting = world.now.replace(microsecond=0)
            world.deletions.append(world.now)
        return contract.GiveUpResult(detail="asked for its deletion")

    def follow_machine(self, request: contract.FollowRequest) -> contract.FollowedMachine:
        world = self.world
        world.acts.append("follow")
        assert (request.machine, request.machine_uid) == (MACHINE, MACHINE_UID)
        found = self._replacement(request.memory)
        if not world.present:
            return contract.FollowedMachine(gone=True, replacement=found, scaled_down=world.scaled_down if found is None else "")
        reason, message = world.owner_says if world.owner_asked is not None else ("", "")
        return contract.FollowedMachine(
            deleting=world.deleting is not None,
            deleting_since=world.deleting,
            phase="Deleting" if world.deleting else "Running",
            waits="its finalizers machine" if world.deleting else "",
            owner_status="False" if world.owner_asked is not None else "",
            owner_reason=reason,
            owner_message=message,
            replacement=found,
        )

    def _replacement(self, memory: str) -> contract.Replacement | None:
        world, came = self.world, self.world.came
        if came is None:
            return None
        came.memory = came.memory or memory
        ready = came.ready_at is not None and world.now >= came.ready_at
        return contract.Replacement(
            machine=SUCCESSOR, uid=f"uid-{SUCCESSOR}", node="node-8" if ready else "", ready=ready, failed=came.failed
        )

    def request_owner(self, request: contract.MachineRequest) -> contract.ActResult:
        self.world.acts.append("request-owner")
        self.world.owner_asked = self.world.owner_asked or self.world.now
        return contract.ActResult(changed=True, detail="its owner is asked to remediate it")

    def annotate_external(self, request: contract.MachineRequest) -> contract.ActResult:
        self.world.acts.append("annotate-external")
        self.world.annotated = True
        return contract.ActResult(changed=True, detail="annotated")

    def take_back(self, request: contract.MachineRequest) -> contract.ActResult:
        world = self.world
        world.acts.append("take-back")
        world.annotated = False
        world.owner_asked = world.owner_asked if world.deleting is not None else None
        return contract.ActResult(changed=True, detail="its owner is asked no more")

    def remember(self, request: contract.RememberRequest) -> contract.ActResult:
        world = self.world
        if request.instead_of:
            world.acts.append("forget")
            anew = (request.memory, request.memory if request.on_node is None else request.on_node)
            pairs = zip(world.stands, anew, strict=True)
            world.stands = tuple(new if there == request.instead_of else there for there, new in pairs)  # type: ignore[assignment]
            return contract.ActResult(changed=True, detail="noted no longer")
        world.acts.append("remember")
        world.memories.append(request.memory)
        world.stands = (request.memory, request.memory)
        return contract.ActResult(changed=True, detail="noted")

    # Objects of other controllers -----------------------------------------------------------------------------------

    def create_object(self, request: contract.ExternalRequest) -> contract.External:
        world = self.world
        name = named(request)
        world.acts.append(f"create {name}")
        earlier = world.objects.get(name)
        if earlier is not None and earlier.goes_at is not None and world.now >= earlier.goes_at:
            del world.objects[name]
        if name not in world.objects:
            world.objects[name] = made = Made(name=name, created=world.now.replace(microsecond=0))
            world.on_create(made)
        return self._seen(request)

    def read_object(self, request: contract.ExternalRequest) -> contract.External:
        return self._seen(request)

    def time_out_object(self, request: contract.ExternalRequest) -> contract.External:
        made = self.world.objects.get(named(request))
        if made is not None and made.succeeded != "True":
            self.world.acts.append(f"time-out {made.name}")
            made.timed_out = True
        return self._seen(request)

    def note_well(self, request: contract.ExternalRequest) -> contract.External:
        self.world.acts.append("note-well" if request.well_since is not None else "note-sick")
        if (made := self.world.objects.get(named(request))) is not None:
            made.well_since = request.well_since
        return self._seen(request)

    def delete_object(self, request: contract.ExternalRequest) -> contract.External:
        self.world.acts.append(f"delete {named(request)}")
        if self.world.check_paused and request.adopted:
            raise failure(ErrorType.VETOED, "MachineHealthCheck/a/m is paused")
        self.world.objects.pop(named(request), None)
        return contract.External(present=False)

    def _seen(self, request: contract.ExternalRequest) -> contract.External:
        made = self.world.objects.get(named(request))
        if made is None:
            return contract.External(present=False)
        return contract.External(
            present=True,
            ref=ObjectRef(api_version=TEMPLATE.api_version, kind=request.template.kind, name=made.name, namespace="medik8s"),
            uid=f"uid-{made.name}",
            created=made.created,
            timed_out=made.timed_out,
            processing=made.processing,
            succeeded=made.succeeded,
            node_deletion=made.node_deletion,
            phase=made.phase,
            message=made.message,
            deleting=made.goes_at is not None,
            well_since=made.well_since,
        )


def _at_once(coroutine: Any) -> Any:
    """What a scripted activity answers, none of which waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a scripted activity waits")


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
