"""Isolation in the order of its plan, and its undoing in recovery.

What is done is remembered across restarts of the flow. Cutting and giving back paths, volumes among them, is
`workflows/fencing/paths.py`; what is freed before the power is off is freed here, under `path cut proven` only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial, reduce
from operator import or_

from temporalio import workflow

from activities.contracts.target import (
    ActResult,
    CordonRequest,
    DrainRequest,
    DrainResult,
    FreeCutRequest,
    FreeingActivities,
    FreeResult,
    IsolationActivities,
    LookRequest,
    LookVerdict,
    TaintRequest,
    Workload,
)
from policy.episode.drain import drain_options
from policy.episode.events import EventReason
from policy.episode.gate import Operation
from policy.episode.messages import PathProof
from policy.fence.config import FenceStep
from policy.fence.plan import Act, CutStorage, FencingPlan, PlannedMethod, PowerDevice
from policy.fence.power import PowerAct
from policy.objects.nodes import Taint
from workflows.episode.episode import Episode
from workflows.episode.node_writes import NodeWriter
from workflows.episode.preflight import Licence, Preflight
from workflows.episode.state import IsolationProgress, Undertaking
from workflows.episode.tries import Tries
from workflows.fencing.consequences import HOLDS_TAKE_NO_TIME, Pacing
from workflows.fencing.device_commands import POLL_INTERVAL, longer
from workflows.fencing.paths import MayRestore, Paths, Volumes
from workflows.kit import options
from workflows.kit.interrupts import NonRetryable, ProofLost, StepFailed, as_interrupt

DRAIN_PATIENCE = timedelta(minutes=5)
"""Of a drain that was given no time-out: fencing is what follows it, so it may not wait for ever."""

DRAIN_INTERVAL = timedelta(seconds=5)
LEAVE = "leave to drain"
OVER_BEFORE_FREEING = "the-end-of-the-need-is-heard-right-before-pods-behind-a-cut-are-freed"
"""Histories of builds that heard of it with the next look go on as they began."""

_LOOKS = {Act.CORDON: Operation.CORDON, Act.TAINT: Operation.CORDON, Act.DRAIN: Operation.DRAIN}


class IsolationSequence:
    """The methods of isolation of one episode, and what recovery does about them."""

    def __init__(
        self,
        episode: Episode,
        plan: FencingPlan,
        node_writer: NodeWriter,
        preflight: Preflight,
        tries: Tries,
        *,
        progress: IsolationProgress,
    ) -> None:
        self._episode = episode
        self._plan = plan
        self._node_writer = node_writer
        self._preflight = preflight
        self._tries = tries
        self._progress = progress
        self.paths = Paths(episode, plan, node_writer, preflight, progress.paths)
        self._volumes = Volumes(episode, plan, progress.volumes)
        self._pacing = Pacing(episode, FenceStep.ISOLATION, progress.pacing)

    @property
    def began(self) -> bool:
        """Whether any method has been carried out, or a path touched."""
        return bool(self._progress.done) or self.paths.touched

    @property
    def has_detached(self) -> bool:
        return bool(self._progress.volumes.detached)

    def begin_anew(self) -> None:
        """Go through all methods once more: what was cut an hour ago may have been given back by others."""
        self._progress.done.clear()

    def take_cordon(self, detail: str, version: str) -> None:
        """The cordon that the plan begins with was carried out with the pin, after a look that said go (S20)."""
        self._episode.note("last-look", LookVerdict.GO.value, version=version)
        self._episode.note("mark-unschedulable", "ok", detail, version=version)
        self._progress.done.append(0)

    async def carry_out(self) -> None:
        """Every method that is not done yet, and every path that others have opened. A failing one is tried as often as it may,
        then it is the step's failure."""
        for index, method in enumerate(self._plan.isolation):
            reopened = method.act is Act.CUT_PATH and method.device is not None and self.paths.is_open(method.device)
            if index in self._progress.done and not reopened:
                continue
            look = partial(self._preflight.before_destruction, operation=_LOOKS.get(method.act, Operation.DISRUPT))
            await self._episode.delay(method.delay, f"waits its delay before {method.name}", look)
            await self._tries.carry_out(FenceStep.ISOLATION, partial(self._isolate, method), tries=method.tries)
            self._progress.done.append(index)

    async def _isolate(self, method: PlannedMethod) -> None:
        match method.act:
            case Act.CORDON:
                await self._cordon()
            case Act.TAINT:
                await self._taint(method)
            case Act.DRAIN:
                await self._drain(method)
            case Act.CHECK_VOLUMES:
                if method.only is None:
                    raise NonRetryable(f"{method.name}: {method.act.value} without any volume")
                await self._volumes.check(_device_of(method), method.only)
            case Act.CUT_PATH:
                await self.paths.cut(_device_of(method), method.timeout)
            case Act.QUARANTINE:
                await self.paths.quarantine(_device_of(method))
            case Act.DETACH_VOLUMES:
                await self._detach_volumes(_device_of(method), method)
            case Act.FREE_CUT_PODS if method.only is not None and await self._is_ready():
                self._episode.note(method.name, "later", "the node answers: what does not go by itself is freed once it is off")
            case Act.FREE_CUT_PODS:
                await self._free_cut_pods(self._last_look, stopped=self._is_stopped)
            case _:
                raise NonRetryable(f"{method.name}: {method.act.value} is no method of isolation that this version carries out")

    async def _cordon(self) -> None:
        self._episode.enter(doing="marks the node unschedulable")
        what = "isolation: marks the node unschedulable"

        async def cordon(look: LookRequest) -> ActResult:
            request = CordonRequest(look=look, not_after=workflow.now() + options.WRITE_WINDOW)
            return await self._episode.execute(IsolationActivities.mark_unschedulable, request, options.cluster_write, what)

        result = await self._preflight.licensed(cordon, what, Operation.CORDON)
        self._episode.learns_of(result.added)
        self._episode.note("mark-unschedulable", "ok", result.detail, version=result.version)
        self.publish_cordon()

    def publish_cordon(self) -> None:
        self._node_writer.send_event(EventReason.NODE_ISOLATED, self._episode.state.reason)

    async def _taint(self, method: PlannedMethod) -> None:
        taint = Taint(
            key=method.parameters.get("key", ""),
            value=method.parameters.get("value", ""),
            effect=method.parameters.get("effect", "NoSchedule"),
        )

        async def add(look: LookRequest) -> ActResult:
            request = TaintRequest(look=look, taint=taint, not_after=workflow.now() + options.WRITE_WINDOW)
            summary = f"isolation: taints the node {taint.key}"
            return await self._episode.execute(IsolationActivities.taint, request, options.cluster_write, summary)

        result = await self._preflight.licensed(add, "the node can't be tainted", Operation.CORDON)
        self._episode.learns_of(result.added)
        self._episode.note("taint", "ok", result.detail, version=result.version)

    async def _drain(self, method: PlannedMethod) -> None:
        """A node that still answers: rounds of evictions until nothing is left to go or its time is over; then what is left is
        noted, and fencing goes on. StepFailed where a filter refuses a pod: then nothing at all was evicted (S29).

        Eviction is asked for and never forced (S30); what a budget blocks is asked for again. What must wait for the proof of off
        is left to `workflows/fencing/consequences.py`. Which pods go is `policy/episode/drain.py`."""
        with self._episode.undertaking("drains the node") as under:
            result, evicted = await self._drain_until(method, under)
        for warning in result.warnings:
            self._episode.note("drain", "warning", warning)
        if result.mounting:  # nothing is taken from under a pod that has to stay (S30)
            raise NonRetryable(f"nothing is detached: {'; '.join(result.blocked)}")
        left = "; ".join((*result.blocked, *result.withheld, *(() if result.done else result.names)))
        evictions = f"{evicted} pods evicted{f'; left: {left}' if left else ''}"
        self._episode.note("drain", "ok" if result.done else "incomplete", evictions, numbers={"pods": evicted})

    async def _drain_until(self, method: PlannedMethod, under: Undertaking) -> tuple[DrainResult, int]:
        pause, evicted = DRAIN_INTERVAL, 0
        while True:
            if workflow.patched(HOLDS_TAKE_NO_TIME):
                under.begin_wait(LEAVE, workflow.now())
            licence = await self._preflight.before_destruction(operation=Operation.DRAIN)
            under.end_wait(workflow.now())
            deadline = under.began + (method.timeout or DRAIN_PATIENCE) + under.waited.get(LEAVE, timedelta(0))
            self._episode.enter(doing="drains the node", until=deadline)
            result = await self._drain_round(method, deadline, licence)
            if result.errors:
                raise StepFailed(f"nothing was evicted: {'; '.join(result.errors)}")
            evicted += result.evicted
            if result.done or workflow.now() >= deadline:
                return result, evicted
            await self._episode.rest(pause, "until the drain is looked at again")
            pause = longer(pause)

    async def _drain_round(self, method: PlannedMethod, deadline: datetime, licence: Licence) -> DrainResult:
        """Evictions are asked for while the look holds that licensed them; once, too, where the drain's time is over by then."""
        try:
            request = DrainRequest(
                target=self._episode.target,
                options=drain_options(method.parameters),
                only=method.only,
                not_after=min(deadline, licence.until) if deadline > workflow.now() else licence.until,
                holder=self._episode.state.holder,
                need=self._preflight.need_seen,
            )
        except ValueError as error:
            raise NonRetryable(f"{method.name}: {error}") from error
        with as_interrupt("the node can't be drained"):
            return await self._episode.execute(
                IsolationActivities.drain, request, options.consequence, "isolation: asks for evictions"
            )

    async def _is_ready(self) -> bool:
        await self._preflight.before_destruction()
        seen = self._episode.state.last_look
        return seen is not None and seen.ready

    async def _detach_volumes(self, device: PowerDevice, method: PlannedMethod) -> None:
        look = partial(self._preflight.before_destruction, PowerAct.DETACH_VOLUME, leased=True)
        patience = method.timeout or self._plan.off_timeout
        if method.only is not None:
            proof = await self._volumes.detach_chosen(device, method.only, look, patience)
        else:
            proof = await self._volumes.detach_all(device, look, patience)
        if proof is not None:
            self._progress.detached_from = device
            self._episode.state.path_proofs[f"{device.endpoint}/volumes"] = proof
            self._node_writer.send_event(EventReason.VOLUMES_DETACHED, ", ".join(each.volume for each in proof.volumes))

    # Freeing behind the cut -----------------------------------------------------------------------------------------

    async def free_left_over(self, look: Callable[[], Awaitable[datetime]]) -> None:
        """Pods of chosen volumes that are still there once the machine is off. What can't be freed is told, and holds nothing up:
        the machine is to come back. look: see `Preflight.before_destruction`; it heeds an abort that leaves the machine off."""
        if not any(method.act is Act.FREE_CUT_PODS and method.only is not None for method in self._plan.isolation):
            return
        try:
            await self._free_cut_pods(look, stopped=lambda: self._episode.is_held)
        except ProofLost:
            raise
        except (NonRetryable, StepFailed) as interrupt:
            self._episode.note("free-cut-pods", "left", interrupt.reason)
            self._node_writer.send_event(EventReason.WORKLOADS_LEFT, interrupt.reason)

    async def _last_look(self) -> datetime:
        return (await self._preflight.before_destruction()).until

    def _is_stopped(self) -> bool:
        """Before off any abort ends the episode, and so does a release of a machine that is kept."""
        said = self._episode.longest_hold is not None or self._episode.state.abort_asked is not None
        return said or (self._preflight.is_over and workflow.patched(OVER_BEFORE_FREEING))

    async def _free_cut_pods(self, look: Callable[[], Awaitable[datetime]], *, stopped: Callable[[], bool]) -> None:
        """A consequence under `path cut proven`: each round right after a last look and fresh readings (S1, S2, S20)."""
        behind_ports = reduce(or_, (each.storage for each in self._plan.isolation if each.act is Act.CUT_PATH), CutStorage())
        with self._episode.undertaking("frees the pods behind the cut") as under:
            deadline = under.began + self._plan.free_timeout + self._pacing.waited_before(under)
            left = await self._free_until(deadline, behind_ports, look, stopped)
        if left is None:
            return
        self._progress.pods_left = left.pods
        detail = f"{self._progress.freed_pods} pods freed; {left.pods} pods and {left.attachments} attachments are left"
        self._episode.note("free-cut-pods", "ok" if left.pods == 0 else "incomplete", detail)

    async def _free_until(
        self, deadline: datetime, behind_ports: CutStorage, look: Callable[[], Awaitable[datetime]], stopped: Callable[[], bool]
    ) -> Workload | None:
        """Answers what is left. None: there was nothing to free."""
        self._episode.enter(doing="frees the pods behind the cut", until=deadline)
        pause, left = POLL_INTERVAL, Workload(pods=0, attachments=0)
        while True:
            if workflow.patched(HOLDS_TAKE_NO_TIME):
                self._pacing.begin_wait()
            licensed_until = await look()
            self._pacing.end_wait()
            proofs = await self._still_cut()
            if not proofs:
                self._episode.note("free-cut-pods", "ok", "nothing is cut: no volume was attached")
                return None
            handles = tuple(volume.volume for proof in proofs for volume in proof.volumes)
            result = await self._free_round(proofs, behind_ports | CutStorage(handles=handles), left, licensed_until, stopped)
            if result is not None:
                self._progress.freed_pods += result.deleted_pods
                left = result.left
            if result is not None and (left.pods, left.attachments) == (0, 0):
                return left
            if workflow.now() - self._pacing.waited >= deadline:
                if result is None:
                    raise StepFailed("whether the paths are still cut was never read in time to act upon the look before it")
                return left
            await self._episode.pause(pause, "until what lies behind the cut is looked at again")
            pause = longer(pause)

    async def _still_cut(self) -> tuple[PathProof, ...]:
        proofs = await self.paths.prove(_device_of(each) for each in self._plan.isolation if each.act is Act.CUT_PATH)
        if self._progress.detached_from is None:
            return proofs
        chosen = any(each.act is Act.DETACH_VOLUMES and each.only is not None for each in self._plan.isolation)
        prove = self._volumes.prove_some if chosen else self._volumes.prove
        proof = await prove(self._progress.detached_from)
        return proofs if proof is None else (*proofs, proof)

    async def _free_round(
        self,
        proofs: tuple[PathProof, ...],
        storage: CutStorage,
        left: Workload,
        licensed_until: datetime,
        stopped: Callable[[], bool],
    ) -> FreeResult | None:
        asked = FreeCutRequest(
            target=self._episode.target,
            proofs=proofs,
            storage=storage,
            not_after=licensed_until,
            holder=self._episode.state.holder,
        )
        request = await self._pacing.bounded(asked, left)
        if request is None or stopped() or workflow.now() >= licensed_until:
            return None  # the last look is old by now: the next one sees what has become of it (S20, S45)
        self._progress.freed = True
        self._episode.frees()
        with as_interrupt("pods behind the cut can't be freed"):
            return await self._episode.execute(
                FreeingActivities.free_cut_pods, request, options.consequence, "isolation: frees the pods behind the cut"
            )

    # Giving back ----------------------------------------------------------------------------------------------------

    async def let_go_of_open_paths(self) -> None:
        """What may have been cut before us and turns out to be open is nothing that we have to give back."""
        for method in self._plan.recovery:
            if method.act is Act.RESTORE_PATH and method.device is not None:
                await self.paths.let_go_if_open(method.device)

    async def undo(self, *, may_restore: MayRestore, patient: bool) -> str:
        """What recovery names, in its order. Answers what is left cut, in words to end a sentence with, "" for nothing."""
        for method in self._plan.recovery:
            if method.act is Act.RESTORE_PATH and method.device is not None:
                await self.paths.restore(method.device, may_restore=may_restore, patient=patient)
            elif method.act is Act.LIFT_QUARANTINE and method.device is not None:
                await self.paths.lift_quarantine(method.device)
        return self.paths.left


def _device_of(method: PlannedMethod) -> PowerDevice:
    if method.device is None:
        raise NonRetryable(f"{method.name}: {method.act.value} without a device")
    return method.device
