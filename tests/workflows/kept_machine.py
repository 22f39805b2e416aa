"""A scripted machine for preservation tests: one Machine with its Node behind the real contracts, judged by the real rules.

The world's time is that of the clockwork, or of the server that skips it. It keeps the order of what was done, and checks S21
and S22 at every act.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import AskPermit, DeploymentName, NameRequest
from activities.contracts.evidence import Collected, CollectRequest, EvidenceCollection, EvidenceFile, Sealed, SealRequest
from activities.contracts.news import News
from activities.contracts.power import PowerActivities
from activities.contracts.preservation import GiveUpRequest, GiveUpResult, Hold, HoldRequest, PreservationActivities
from activities.contracts.target import (
    ActRequest,
    ActResult,
    DrainRequest,
    DrainResult,
    FreeingActivities,
    IsolationActivities,
    LookRequest,
    LookResult,
    LookVerdict,
    RestoreRequest,
    Target,
    TargetActivities,
    TellRequest,
)
from activities.errors import ErrorType, failure
from policy.episode.ids import episode_id
from policy.episode.messages import EpisodeResult, EpisodeStatus, PreservationInput
from policy.episode.needs import NeedKind
from policy.episode.permits import PermitAnswer, PermitDecision
from policy.episode.vetoes import preserved_as_failed
from policy.objects.nodes import PRESERVE_ANNOTATION, READY, Condition, NodeView
from policy.preservation.deciding import Automatic, PreservationAction, decide, keeps
from policy.preservation.effects import effects
from policy.preservation.held import Held, MachinePhase
from policy.preservation.pools import DEFAULT_TIMEOUT
from policy.preservation.requests import ISOLATE_ANNOTATION
from policy.values.object_refs import ObjectRef
from tests.preserved_objects import carried_out
from tests.replay.recording import keep_history
from tests.workflows.contract import served_by
from tests.workflows.surroundings import moment, patience, worker
from tests.workflows.world import ScriptedTarget, World, marked
from workflows.definitions.preservation import Preservation
from workflows.definitions.remediation import Remediation
from workflows.episode.state import RemediationHistory
from workflows.kit.ids import WORKFLOW_QUEUE, cluster_queue, power_queue

NODE = "node-7"
CUTTING = (TargetActivities, IsolationActivities, FreeingActivities)
MACHINE = ObjectRef(api_version="machine.sapcloud.io/v1alpha1", kind="Machine", name="w-7", namespace="shoot")


@dataclass
class KeptMachine:
    """The world. `acts` is what was done, in order; `broken` what should never have been."""

    held: Held
    timeout: timedelta = DEFAULT_TIMEOUT
    present: bool = True
    drains: deque[DrainResult] = field(default_factory=deque)
    errors: deque[ApplicationError] = field(default_factory=deque)
    acts: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    gave_up_at: datetime | None = None
    named: set[str] = field(default_factory=set)
    """How whoever asked for evictions and for the deletion said that the cluster Lease names him."""
    late: str = ""
    """What a user annotates right after it was decided to give the machine up."""
    lingers: int = 1
    """How often the Machine is still there after its deletion was asked for."""
    evidence: Collected | None = None
    """What the API has to say of it; None where no directory is set."""
    collected: int = 0
    """How often it was asked for."""
    hanging: asyncio.Event | None = None
    """Whoever collects evidence hangs until it is set."""
    sealed: list[SealRequest] = field(default_factory=list)
    seal_error: ApplicationError | None = None
    answers: deque[PermitAnswer] = field(default_factory=deque)
    """What the scanner answers to who asks for a permit; then it grants."""
    permitted: bool = True
    """Whether the scanner knows of a permit, as who would delete the machine hears."""
    scanner: asyncio.Event | None = None
    """It answers nobody before this is set."""
    ended_at: datetime | None = None
    """The look that ended the hold, and the expiries of all that have ended."""
    expiries: list[datetime] = field(default_factory=list)
    alone: bool = False
    """It is a Node without a Machine."""
    behind: timedelta = timedelta(0)
    """So much earlier is it by the clock of its API than by the workflow's."""
    looks: int = 0
    """How often it was looked at."""
    devices: World | None = None
    """What may be cut off of it; None: nothing is configured."""

    def annotate(self, value: str | None) -> None:
        """A user, with kubectl, on the Node."""
        assert self.held.node is not None
        annotations = {key: each for key, each in self.held.node.annotations.items() if key != PRESERVE_ANNOTATION}
        if value is not None:
            annotations[PRESERVE_ANNOTATION] = value
        self.held = replace(self.held, node=replace(self.held.node, annotations=annotations))

    def fails(self) -> None:
        """Its controller calls it failed."""
        self.held = replace(self.held, phase=MachinePhase.FAILED, failed="its phase is Failed")
        self._say_ready("Unknown")

    def recovers(self) -> None:
        """And well again."""
        self.held = replace(self.held, phase=MachinePhase.RUNNING, failed="")
        self._say_ready("True")

    def node_gets_well(self) -> None:
        """The Node alone: its controller still calls the machine failed."""
        self._say_ready("True")

    def _say_ready(self, status: str) -> None:
        assert self.held.node is not None
        others = tuple(each for each in self.held.node.conditions if each.type != READY)
        conditions = (*others, Condition(type=READY, status=status))
        self.held = replace(self.held, node=replace(self.held.node, conditions=conditions))


def machine(**changes: object) -> KeptMachine:
    """A machine that runs."""
    node = NodeView(name=NODE, uid="uid-node", conditions=(Condition(type=READY, status="True"),))
    held = Held(key="shoot/w-7", machine="w-7", namespace="shoot", node_name=NODE, node=node)
    return KeptMachine(replace(held, **changes))  # type: ignore[arg-type]


def _as_called(held: Held, unhealthy: str) -> Held:
    return replace(held, phase=MachinePhase.FAILED, failed=unhealthy) if unhealthy and not held.failed else held


def now() -> datetime:
    """The time of this attempt."""
    return activity.info().started_time


class ScriptedMachine(PreservationActivities):
    """The activities, over one world."""

    def __init__(self, world: KeptMachine) -> None:
        self._world = world

    @activity.defn(name="preservation.hold")
    async def hold(self, request: HoldRequest) -> Hold:
        world = self._world
        if world.errors:
            raise world.errors.popleft()
        world.looks += 1
        at = now() - world.behind
        if not world.present:
            return Hold(at=at, gone="the Machine is gone")
        held, wish = _as_called(world.held, request.unhealthy), request.wish
        wanted = {PRESERVE_ANNOTATION: "now"} if wish.keep else {}
        wanted |= {ISOLATE_ANNOTATION: "true"} if wish.isolate else {}
        if wanted:
            assert held.node is not None
            held = replace(held, node=replace(held.node, annotations={**held.node.annotations, **wanted}))
        automatic = Automatic.SELECTED if wish.automatic else Automatic.RELEASED if wish.surplus else Automatic.NOTHING
        timeout = wish.duration or world.timeout
        decision = decide(held, now=at, timeout=timeout, automatic=automatic, released=wish.release)
        if wish.until is not None and decision.preserved:
            decision = replace(decision, expiry=wish.until)
        found = effects(decision, drained=request.drained, isolation=request.isolation)
        before = world.held.expiry
        world.held = replace(carried_out(held, found), phase=world.held.phase, failed=world.held.failed)
        if before is not None and world.held.expiry is not None and wish.until is None and before != world.held.expiry:
            world.broken.append(f"S22: the expiry moved from {before} to {world.held.expiry}")
        if decision.ended:
            world.ended_at, world.expiries = at, [*world.expiries, *([before] if before is not None else [])]
        if decision.action is not PreservationAction.NONE and (found.drain or decision.action is not PreservationAction.DRAIN):
            world.acts.append(decision.action.value)
        if decision.action is PreservationAction.TERMINATE and world.late:
            world.annotate(world.late)
        return Hold(
            at=at,
            phase=decision.phase,
            preserved=decision.preserved,
            value=decision.intent.value,
            expiry=decision.expiry,
            drain=found.drain,
            isolate=decision.isolate,
            ended=decision.ended,
            terminate=decision.action is PreservationAction.TERMINATE,
            gone="the machine is being deleted" if held.deleting else "",
            reason=decision.reason,
            warnings=decision.warnings,
            node_uid="uid-node",
            machine=None if world.alone else MACHINE,
            machine_uid="" if world.alone else "uid-machine",
            recovered=decision.recovered,
            ready=world.held.node is not None and world.held.node.ready,
            left_by=world.devices.marked if world.devices is not None else "",
        )

    @activity.defn(name="preservation.give-up")
    async def give_up(self, request: GiveUpRequest) -> GiveUpResult:
        world = self._world
        world.named.add(request.holder)
        assert (request.machine, request.machine_uid) == (MACHINE, "uid-machine")
        if request.withdraw:
            return GiveUpResult(kept="" if world.gave_up_at else "it is not asked for any more")
        if world.gave_up_at is None and not world.permitted:
            raise failure(ErrorType.NOT_LICENSED, "the permit of node-7 is held by nobody")
        if world.gave_up_at is None and keeps(_as_called(world.held, request.unhealthy), now()):
            return GiveUpResult(kept="somebody asks for it to be preserved", well=world.held.well)
        if world.held.expiry is not None and not world.held.expired(now()):
            world.broken.append("S21: deleted while preserved")
        if world.gave_up_at is None:
            world.gave_up_at = now()
            world.acts.append("delete")
            return GiveUpResult(detail="asked for its deletion")
        world.lingers -= 1
        if world.lingers < 0:
            world.present = False
        return GiveUpResult(gone=not world.present)

    @activity.defn(name="episodes.request-permit")
    async def request_permit(self, request: AskPermit) -> PermitAnswer:
        self._world.acts.append("permit")
        if self._world.scanner is not None:
            await self._world.scanner.wait()
        answer = (
            self._world.answers.popleft() if self._world.answers else PermitAnswer(decision=PermitDecision.GRANTED, holder="us")
        )
        self._world.permitted = self._world.permitted or answer.decision is PermitDecision.GRANTED
        return answer

    @activity.defn(name="episodes.name-deployment")
    async def name_deployment(self, request: NameRequest) -> DeploymentName:
        return DeploymentName(holder="default/1")

    @activity.defn(name="isolation.drain")
    async def drain(self, request: DrainRequest) -> DrainResult:
        assert request.options.ignore_daemon_sets
        self._world.acts.append("evict")
        self._world.named.add(request.holder)
        return self._world.drains.popleft() if self._world.drains else DrainResult(evicted=2)

    @activity.defn(name="isolation.mark")
    async def mark(self, request: ActRequest) -> ActResult:
        self._world.acts.append(f"mark {request.target.kind}")
        if (devices := self._world.devices) is not None:
            if devices.mark_errors:
                raise devices.mark_errors.popleft()
            devices.mark = marked(devices.mark, request)
        return ActResult(changed=True, detail="marked")

    @activity.defn(name="recovery.mark-schedulable")
    async def mark_schedulable(self, request: RestoreRequest) -> ActResult:
        self._world.acts.append(f"unmark {request.target.kind}")
        self._hear(request.target, request.news)
        if (devices := self._world.devices) is not None:
            devices.mark = devices.mark if devices.noted else None
        return ActResult(changed=True, detail="our mark is gone")

    @activity.defn(name="target.tell")
    async def tell(self, request: TellRequest) -> None:
        self._hear(request.target, request.news)

    def _hear(self, target: Target, news: News | None) -> None:
        for event in news.events if news is not None else ():
            self._world.events.append(f"{event.reason}: incident {target.incident}: {event.message}")


class CuttingOff(ScriptedTarget):
    """Looks at the node of a machine that may be cut off."""

    def __init__(self, world: KeptMachine) -> None:
        assert world.devices is not None
        super().__init__(world.devices)
        self._kept = world

    async def _hear(self, news: News | None) -> None:
        await super()._hear(news)
        self._kept.events += [f"{event.reason}: {event.message}" for event in (news.events if news is not None else ())]

    async def last_look(self, request: LookRequest) -> LookResult:
        found = await super().last_look(request)
        assert request.need.kind is NeedKind.PRESERVATION
        node = self._kept.held.node
        if request.need_matters and (node is None or not preserved_as_failed(node)):
            return replace(found, verdict=LookVerdict.NEED_GONE, reason="it is not kept as failed")
        return found


def _name(act: Callable[..., object]) -> str:
    known = activity._Definition.must_from_callable(act)
    assert known.name is not None
    return known.name


class ScriptedEvidence(EvidenceCollection):
    """Evidence of one world."""

    def __init__(self, world: KeptMachine) -> None:
        self._world = world

    @activity.defn(name="evidence.collect")
    async def collect(self, request: CollectRequest) -> Collected:
        self._world.collected += 1
        if self._world.hanging is not None:
            await self._world.hanging.wait()
        if self._world.evidence is None:
            raise failure(ErrorType.NOT_SUPPORTED, "evidence.directory is not set: no evidence is kept")
        return self._world.evidence

    @activity.defn(name="evidence.seal")
    async def seal(self, request: SealRequest) -> Sealed:
        if self._world.seal_error is not None:
            raise self._world.seal_error
        self._world.sealed.append(request)
        files: tuple[EvidenceFile, ...] = request.files
        size = sum(each.size for each in files)
        return Sealed(path="prod/manifest.json", sha256="5ea1ed", files=len(files), size=size, missing=request.missing)


@dataclass
class Run:
    """A preservation under way."""

    env: WorkflowEnvironment
    world: KeptMachine
    handle: WorkflowHandle[Preservation, EpisodeResult]

    async def timeout(self) -> EpisodeResult:
        """How it ended once its time was over: only now the hours pass."""
        await self.skip(timedelta(hours=200))
        return await self.result()

    async def skip(self, duration: timedelta) -> None:
        """Let so much time pass, or as much as is left of it."""
        await self.env.fast_forward(self.handle, duration)

    async def result(self) -> EpisodeResult:
        """How it ended, whatever kind it was at the end."""
        result = await asyncio.wait_for(self.handle.result(), 30)
        assert self.world.broken == []
        await keep_history(self.handle)
        return result

    async def until(self, condition: Callable[[EpisodeStatus], bool]) -> EpisodeStatus:
        """Wait until the status is as wished."""
        async with patience(self.env, 20):
            while True:
                try:
                    status: EpisodeStatus = await self.handle.query("status", result_type=EpisodeStatus)
                except RPCError:
                    await moment(self.env)
                    continue
                if condition(status):
                    return status
                await moment(self.env)

    async def goes_on_after(self, run_id: str) -> None:
        """Wait until a new history has begun."""
        async with patience(self.env, 10):
            while (await self.handle.describe()).run_id == run_id:
                await moment(self.env)


@asynccontextmanager
async def preserving(
    env: WorkflowEnvironment,
    world: KeptMachine,
    *,
    client: Client | None = None,
    handed_over: RemediationHistory | None = None,
    **changes: object,
) -> AsyncIterator[Run]:
    """Start a preservation of `NODE` in a cluster of its own. client: of its worker, where it is not the environment's.
    handed_over: what somebody starts from outside in its place, as if a preservation had ended."""
    cluster = f"c{uuid.uuid4().hex[:8]}"
    given = {"cluster": cluster, "node": NODE, "machine": MACHINE, "keep": False, "holder": "us", "reason": "a drill"}
    request = PreservationInput(**(given | changes))  # type: ignore[arg-type]
    target = ScriptedMachine(world)
    acts = [target.hold, target.give_up, target.drain, target.mark, target.mark_schedulable, target.tell]
    evidence = ScriptedEvidence(world)
    acts += [evidence.collect, evidence.seal]
    if world.devices is not None:
        acts += [each for each in served_by(CuttingOff(world), *CUTTING) if _name(each) not in set(map(_name, acts))]
    async with AsyncExitStack() as stack:
        queue = f"{WORKFLOW_QUEUE}-{cluster}"
        kinds = [Preservation, Remediation]
        await stack.enter_async_context(
            worker(client or env.client, task_queue=queue, workflows=kinds, workflow_failure_exception_types=[Exception])
        )
        await stack.enter_async_context(worker(env.client, task_queue=cluster_queue(cluster), activities=acts))
        if world.devices is not None:
            power = served_by(ScriptedTarget(world.devices), PowerActivities)
            await stack.enter_async_context(worker(env.client, task_queue=power_queue("default"), activities=power))
        scanner = [target.request_permit, target.name_deployment]
        await stack.enter_async_context(worker(env.client, task_queue=WORKFLOW_QUEUE, activities=scanner))
        with env.with_time_skipping_disabled():
            kind, given_to = (Preservation.__name__, request) if handed_over is None else (Remediation.__name__, handed_over)
            wanted = replace(given_to, cluster=cluster)
            handle = await env.client.start_workflow(
                kind, wanted, id=episode_id(cluster, NODE), task_queue=queue, result_type=EpisodeResult
            )
        try:
            yield Run(env, world, handle)
        finally:
            with contextlib.suppress(RPCError):  # it has ended by itself
                await handle.terminate("the test is over")
