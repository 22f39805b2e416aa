"""A scripted machine for preservation tests: one Machine with its Node behind the real contracts, judged by the real rules.

The world's time is that of the clockwork, or of the server that skips it. It keeps the order of what was done, and checks S21
and S22 at every act.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.gate import preserved_as_failed
from policy.episode.messages import (
    EpisodeResult,
    EpisodeStatus,
    NeedKind,
    Outcome,
    Phase,
    PreservationInput,
    PreservationUpdate,
    RecordEntry,
    episode_id,
)
from policy.episode.permits import PermitAnswer
from policy.objects.nodes import PRESERVE_ANNOTATION, READY, Condition, NodeView
from policy.preservation.keep_or_release import Automatic, PreservationAction, decide, effects, keeps, within_mode
from policy.preservation.machine_snapshot import Held, MachinePhase
from policy.preservation.pool_cap import ends_once_well, until_well
from policy.preservation.requests import DEFAULT_TIMEOUT, ISOLATE_ANNOTATION
from policy.values.mode import Mode
from policy.values.object_refs import ObjectRef
from tests.policy.builders import carried_out
from tests.replay.recording import keep_history
from tests.workflows import contract
from tests.workflows.contract import served_by
from tests.workflows.surroundings import asked_until, moment, patience, worker
from tests.workflows.world import NODE, ScriptedTarget, World, clock
from workflows.definitions.episodes import Preservation, Remediation
from workflows.episode.state import RemediationHistory
from workflows.kit.messages import PersonRequest
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue, power_queue

MACHINE = ObjectRef(api_version="machine.sapcloud.io/v1alpha1", kind="Machine", name="w-7", namespace="shoot")
WORD = PersonRequest(who="ada", reason="its disks are looked at")
IN_THE_CLUSTER = (
    contract.PreservationActivities,
    contract.EvidenceCollection,
    contract.TargetActivities,
    contract.IsolationActivities,
    contract.FreeingActivities,
)


@dataclass
class KeptMachine:
    """A machine that its owner may keep. `acts` is what was done about keeping it, in order.

    devices: its node and what may be cut off of it, with what goes wrong: `devices.errors` and `devices.gates`, by act ("hold",
    "delete" and "collect" beside those of a fencing), and the rules that did not hold.
    """

    held: Held
    devices: World = field(default_factory=World)
    timeout: timedelta = DEFAULT_TIMEOUT
    present: bool = True
    acts: list[str] = field(default_factory=list)
    tried_at: list[datetime] = field(default_factory=list)
    """Whenever its deletion was asked for and might have begun."""
    gave_up_at: datetime | None = None
    claimed: bool = False
    """Our claim is on its Node that it is being deleted."""
    named: set[str] = field(default_factory=set)
    """How whoever asked for evictions and for the deletion said that the cluster Lease names him."""
    late: str = ""
    """What a user annotates right after it was decided to give the machine up."""
    lingers: int = 1
    """How often the Machine is still there after its deletion was asked for."""
    evidence: contract.Collected | None = None
    """What the API has to say of it; None where no directory is set."""
    collected: int = 0
    """How often it was asked for."""
    sealed: list[contract.SealRequest] = field(default_factory=list)
    ended_at: datetime | None = None
    """The look that ended the hold, and the expiries of all that have ended."""
    expiries: list[datetime] = field(default_factory=list)
    called: str | None = None
    """What a health check says of it, "" where it calls it well; None: what its episode is told."""
    replaced: bool = False
    """Another Machine has its name."""
    made_anew: bool = False
    """Its Node is another object than the one that was kept."""
    alone: bool = False
    """It is a Node without a Machine."""
    behind: timedelta = timedelta(0)
    """So much earlier is it by the clock of its API than by the workflow's."""
    looks: int = 0
    """How often it was looked at."""
    refuses: str = ""
    """Why its worker takes no release for a person's, "" while it takes each."""
    words: list[contract.SealedCommand | None] = field(default_factory=list)
    """By which a person has released it, as each activity is given that."""

    @property
    def annotated_by_nobody(self) -> bool:
        """Whether no person asks for it to be kept: its pool does."""
        return PRESERVE_ANNOTATION not in self.held.on_node

    @property
    def broken(self) -> list[str]:
        """Rules that did not hold."""
        return self.devices.broken

    @property
    def events(self) -> list[str]:
        """What people were told."""
        return [f"{event.reason}: {event.message}" for event in self.devices.events]

    @property
    def unwell(self) -> str:
        """Why it has failed, by its controller or a health check; "" where it has not."""
        return self.held.failed or self.called or until_well(self.held).failed

    def as_called(self, unhealthy: str) -> Held:
        """As its worker sees it who is told what a health check says."""
        asked = (unhealthy or ends_once_well(self.held)) and not self.held.failed
        failed = (unhealthy if self.called is None else self.unwell) if asked else ""
        return replace(self.held, phase=MachinePhase.FAILED, failed=failed) if failed else self.held

    def annotate(self, value: str | None) -> None:
        """A user, with kubectl, on the Node."""
        if self.held.node is None:
            return
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

    def node_falls_silent(self) -> None:
        """The Node alone."""
        self._say_ready("Unknown")

    def node_gets_well(self) -> None:
        """The Node alone: its controller still calls the machine failed."""
        self._say_ready("True")

    def _say_ready(self, status: str) -> None:
        if self.held.node is None:
            return
        others = tuple(each for each in self.held.node.conditions if each.type != READY)
        conditions = (*others, Condition(type=READY, status=status))
        self.held = replace(self.held, node=replace(self.held.node, conditions=conditions))


def machine(annotated: str | None = None, *, fails: bool = False) -> KeptMachine:
    """A machine that runs, or has failed. annotated: with which value of `preserve`."""
    node = NodeView(name=NODE, uid="uid-1", conditions=(Condition(type=READY, status="True"),))
    world = KeptMachine(Held(key="shoot/w-7", machine="w-7", namespace="shoot", node_name=NODE, node=node))
    if fails:
        world.fails()
    world.annotate(annotated)
    return world


class ScriptedMachine(ScriptedTarget):
    """The activities, over one world."""

    def __init__(self, kept: KeptMachine) -> None:
        super().__init__(kept.devices)
        self._kept = kept

    async def hold(self, request: contract.HoldRequest) -> contract.Hold:
        world = self._kept
        world.devices.may_fail("hold")
        world.looks += 1
        at = clock() - world.behind
        if not world.present:
            return contract.Hold(at=at, gone="the Machine is gone", replaced=world.replaced)
        if world.made_anew or (world.held.node is not None and request.node_uid not in {"", world.devices.uid}):
            uid = "" if world.alone else "uid-machine"
            return contract.Hold(at=at, gone="another Node has taken the name", replaced=True, machine_uid=uid)
        held, wish = world.as_called(request.unhealthy), request.wish
        world.words += [request.word] if wish.release else []
        refused = world.refuses if wish.release else ""
        wish = replace(wish, release="") if refused else wish
        wanted = {PRESERVE_ANNOTATION: "now"} if wish.keep else {}
        wanted |= {ISOLATE_ANNOTATION: "true"} if wish.isolate else {}
        if wanted:
            node = held.node
            held = (
                replace(held, node=replace(node, annotations={**node.annotations, **wanted}))
                if node is not None
                else replace(held, annotations={**held.annotations, **wanted})
            )
        automatic = Automatic.SELECTED if wish.automatic else Automatic.RELEASED if wish.surplus else Automatic.NOTHING
        timeout = wish.duration or world.timeout
        decision = decide(held, now=at, timeout=timeout, automatic=automatic, released=wish.release, until=wish.until)
        mode = world.devices.mode
        if decision.begins_for_pool and mode is Mode.OBSERVE:
            return contract.Hold(at=at, reason=f"it is not kept for its pool: its mode is {mode}", machine=MACHINE)
        limited = within_mode(decision, mode)
        rests, decision = limited != decision, limited
        found = effects(decision, drained=request.drained, isolation=request.isolation)
        if decision.preserved and (decision.action is PreservationAction.PRESERVE or held.since is None):
            found = found.with_since(held, at)
        elif decision.action is PreservationAction.STOP and held.since is not None:
            found = found.with_since(held, None)
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
        return contract.Hold(
            at=at,
            released=bool(wish.release),
            refused=refused,
            phase=decision.phase,
            preserved=decision.preserved,
            value=decision.intent.value,
            expiry=decision.expiry,
            drain=found.drain,
            isolate=decision.isolate,
            ended=decision.ended,
            terminate=decision.action is PreservationAction.TERMINATE and (mode is Mode.REPAIR or bool(wish.release)),
            gone="the machine is being deleted" if held.deleting else "",
            reason=f"{decision.reason}; its mode is {mode}" if rests else decision.reason,
            rests=rests,
            warnings=decision.warnings,
            node_uid=world.devices.uid if world.held.node is not None else "",
            machine=None if world.alone else MACHINE,
            machine_uid="" if world.alone else "uid-machine",
            recovered=decision.recovered,
            ready=world.held.node is not None and world.held.node.ready,
            left_by=world.devices.marked,
            streams=True,
        )

    async def give_up(self, request: contract.GiveUpRequest) -> contract.GiveUpResult:
        world = self._kept
        world.named.add(request.holder)
        world.words += [request.word] if request.released else []
        assert (request.machine, request.machine_uid) == (MACHINE, "uid-machine")
        if world.replaced:
            raise failure(ErrorType.TARGET_CHANGED, "another Machine has that name now")
        if request.withdraw:
            return contract.GiveUpResult(kept="" if world.gave_up_at else "it is not asked for any more")
        if world.gave_up_at is None and not world.devices.permitted:
            raise failure(ErrorType.NOT_LICENSED, "the permit of node-7 is held by no episode")
        if world.gave_up_at is None:
            world.tried_at.append(clock())
            world.devices.may_fail("delete")
        if world.gave_up_at is None and keeps(world.as_called(request.unhealthy), clock()):
            return contract.GiveUpResult(kept="its preservation is still asked for", well=world.held.well)
        if world.gave_up_at is None and request.unhealthy and world.held.well:
            return contract.GiveUpResult(kept="its Node says that it is well again", well=True)
        if world.held.expiry is not None and not world.held.expired(clock()):
            world.broken.append("S21: deleted while preserved")
        if world.gave_up_at is None:
            world.gave_up_at = clock()
            world.acts.append("delete")
            return contract.GiveUpResult(detail="asked for its deletion")
        world.lingers -= 1
        if world.lingers < 0:
            world.present = False
        return contract.GiveUpResult(gone=not world.present)

    # As of any node -------------------------------------------------------------------------------------------------

    async def request_permit(self, request: contract.AskPermit) -> PermitAnswer:
        self._kept.acts.append("permit")
        return await super().request_permit(request)

    async def name_deployment(self, request: contract.NameRequest) -> contract.DeploymentName:
        return contract.DeploymentName(holder="default/1")

    async def drain(self, request: contract.DrainRequest) -> contract.DrainResult:
        assert request.options.ignore_daemon_sets
        self._kept.acts.append("evict")
        self._kept.named.add(request.holder)
        if self._kept.annotated_by_nobody and not self._kept.devices.mode.allows(Mode.DRAIN):
            raise failure(ErrorType.NOT_LICENSED, f"its mode is {self._kept.devices.mode}")
        return await super().drain(request)

    async def mark(self, request: contract.ActRequest) -> contract.ActResult:
        self._kept.acts.append(f"mark {request.target.kind}")
        return await super().mark(request)

    async def mark_schedulable(self, request: contract.RestoreRequest) -> contract.ActResult:
        self._kept.acts.append(f"unmark {request.target.kind}")
        return await super().mark_schedulable(request)

    async def last_look(self, request: contract.LookRequest) -> contract.LookResult:
        found = await super().last_look(request)
        assert request.need.kind is NeedKind.PRESERVATION
        node = self._kept.held.node
        if request.need_matters and (node is None or not preserved_as_failed(node)):
            return replace(found, verdict=contract.LookVerdict.NEED_GONE, reason="it is not kept as failed")
        return found

    # Evidence -------------------------------------------------------------------------------------------------------

    async def collect(self, request: contract.CollectRequest) -> contract.Collected:
        self._kept.collected += 1
        await self.act("collect")
        if self._kept.evidence is None:
            raise failure(ErrorType.NOT_SUPPORTED, "evidence.directory is not set: no evidence is kept")
        return self._kept.evidence

    async def seal(self, request: contract.SealRequest) -> contract.Sealed:
        self._kept.sealed.append(request)
        size = sum(each.size for each in request.files)
        return contract.Sealed(
            path="prod/manifest.json", sha256="5ea1ed", files=len(request.files), size=size, missing=request.missing
        )


@dataclass
class Run:
    """A preservation under way."""

    env: WorkflowEnvironment
    world: KeptMachine
    handle: WorkflowHandle[Preservation, EpisodeResult]

    async def timeout(self, outcome: Outcome | None = None) -> EpisodeResult:
        """How it ended once its time was over: only now the hours pass."""
        await self.skip(timedelta(hours=200))
        return await self.result(outcome)

    async def skip(self, duration: timedelta) -> None:
        """Let so much time pass, or as much as is left of it."""
        await self.env.fast_forward(self.handle, duration)

    async def result(self, outcome: Outcome | None = None) -> EpisodeResult:
        """How it ended, whatever kind it was at the end: with this outcome where one is named."""
        result = await asyncio.wait_for(self.handle.result(), 30)
        assert self.world.broken == []
        await keep_history(self.handle)
        assert outcome in {None, result.outcome}, result.message
        return result

    async def until(self, condition: Callable[[EpisodeStatus], bool]) -> EpisodeStatus:
        """Wait until the status is as wished."""
        return await asked_until(self.env, lambda: self.handle.query("status", result_type=EpisodeStatus), condition)

    async def is_in(self, phase: Phase) -> EpisodeStatus:
        """Wait for a phase."""
        return await self.until(lambda status: status.phase is phase)

    async def record(self) -> list[RecordEntry]:
        """What it has written down so far."""
        return await self.handle.query("record", result_type=list[RecordEntry])

    async def histories(self) -> int:
        """In how many it was."""
        return len([each async for each in self.env.client.list_workflows(f"WorkflowId = '{self.handle.id}'")])

    async def news(self) -> None:
        """The scanner says that something has changed."""
        await self.handle.signal(Preservation.look_again, PreservationUpdate())

    async def says(self, update: Any, word: Any = WORD) -> str:
        """A person's word, which answers what is asked."""
        if isinstance(word, PersonRequest):
            word = replace(word, question=(await self.handle.query(Preservation.status)).question)
        return await self.handle.execute_update(update, word, result_type=str)

    async def abort(self) -> str:
        """A person aborts, whatever kind it is by now."""
        return await self.says("abort", {"who": "ada", "reason": "enough"})

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
    queue, player = f"{WORKFLOW_QUEUE}-{cluster}", ScriptedMachine(world)
    served = {
        cluster_queue(cluster): IN_THE_CLUSTER,
        power_queue("default"): (contract.PowerActivities,),
        WORKFLOW_QUEUE: (contract.EpisodeActivities,),
    }
    async with AsyncExitStack() as stack:
        kinds = [Preservation, Remediation]
        await stack.enter_async_context(
            worker(client or env.client, task_queue=queue, workflows=kinds, workflow_failure_exception_types=[Exception])
        )
        for each, contracts in served.items():
            await stack.enter_async_context(worker(env.client, task_queue=each, activities=served_by(player, *contracts)))
        with env.with_time_skipping_disabled():
            kind, given_to = (Preservation.__name__, request) if handed_over is None else (Remediation.__name__, handed_over)
            wanted = replace(given_to, cluster=cluster)
            handle = await env.client.start_workflow(
                kind, wanted, id=episode_id(cluster, NODE), task_queue=queue, result_type=EpisodeResult
            )
        try:
            yield Run(env, world, handle)
            await keep_history(handle)
        finally:
            with contextlib.suppress(RPCError):  # it has ended by itself
                await handle.terminate("the test is over")


@asynccontextmanager
async def kept(env: WorkflowEnvironment, world: KeptMachine) -> AsyncIterator[Run]:
    """One that has begun: it keeps a machine that runs as its annotation says, one that has failed by itself."""
    failed = bool(world.held.failed)
    async with preserving(env, world, automatic=failed) as run:
        await run.is_in(Phase.FAILED_PRESERVED if failed else Phase.RUNNING_PRESERVED)
        yield run
