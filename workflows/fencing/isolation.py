"""Isolation in the order of its plan, and its undoing in recovery.

What is done is remembered across restarts of the flow. Cutting and giving back is `workflows/fencing/paths.py`, detaching volumes
`workflows/fencing/volumes.py`; what is freed before the power is off is freed here, under `path cut proven` only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial, reduce
from operator import or_

from temporalio import workflow

from activities.contracts.target import (
    ActResult,
    CordonRequest,
    FreeCutRequest,
    FreeingActivities,
    FreeResult,
    IsolationActivities,
    LookRequest,
    TaintRequest,
    Workload,
)
from policy.episode.events import EventReason
from policy.episode.messages import PathProof
from policy.fence.config import FenceStep
from policy.fence.plan import Act, Chosen, CutStorage, FencingPlan, PlannedMethod, PowerDevice
from policy.fence.power import PowerAct
from policy.objects.nodes import Taint
from workflows.episode.episode import Episode
from workflows.episode.freeing_pace import Pacing
from workflows.episode.node_writes import Bookkeeping
from workflows.episode.preflight import Preflight
from workflows.episode.state import IsolationProgress
from workflows.episode.tries import Tries
from workflows.fencing.device_commands import POLL_INTERVAL, longer
from workflows.fencing.drain import Draining
from workflows.fencing.paths import MayRestore, Paths
from workflows.fencing.volumes import Volumes
from workflows.kit import options
from workflows.kit.interrupts import Hopeless, ProofLost, StepFailed, as_interrupt


class IsolationSequence:
    """The methods of isolation of one episode, and what recovery does about them."""

    def __init__(
        self,
        episode: Episode,
        plan: FencingPlan,
        desk: Bookkeeping,
        preflight: Preflight,
        tries: Tries,
        *,
        progress: IsolationProgress,
    ) -> None:
        self._episode = episode
        self._plan = plan
        self._desk = desk
        self._preflight = preflight
        self._tries = tries
        self._progress = progress
        self.paths = Paths(episode, plan, desk, preflight, progress.paths)
        self._volumes = Volumes(episode, plan, progress.volumes)
        self._draining = Draining(episode, preflight)
        self._pacing = Pacing(episode, FenceStep.ISOLATION, progress.pacing)

    @property
    def began(self) -> bool:
        """Whether any method has been carried out, or a path touched."""
        return bool(self._progress.done) or self.paths.touched

    @property
    def has_detached(self) -> bool:
        """Whether any volume was had detached."""
        return bool(self._progress.volumes.detached)

    def begin_anew(self) -> None:
        """Go through all methods once more: what was cut an hour ago may have been given back by others."""
        self._progress.done.clear()

    async def carry_out(self) -> None:
        """Every method that is not done yet, and every path that others have opened. A failing one is tried as often as it may,
        then it is the step's failure."""
        for index, method in enumerate(self._plan.isolation):
            if index in self._progress.done and not self._is_undone(method):
                continue
            await self._episode.delay(method.delay, f"waits its delay before {method.name}", self._preflight.before_destruction)
            await self._tries.carry_out(FenceStep.ISOLATION, partial(self._isolate, method), tries=method.tries)
            self._progress.done.append(index)

    def _is_undone(self, method: PlannedMethod) -> bool:
        return method.act is Act.CUT_PATH and method.device is not None and self.paths.is_open(method.device)

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

    async def _isolate(self, method: PlannedMethod) -> None:
        match method.act:
            case Act.CORDON:
                await self._cordon()
            case Act.TAINT:
                await self._taint(method)
            case Act.DRAIN:
                await self._draining.carry_out(method)
            case Act.CHECK_VOLUMES:
                await self._volumes.check(_device_of(method), _chosen_by(method))
            case Act.CUT_PATH:
                await self.paths.cut(_device_of(method), method.timeout)
            case Act.QUARANTINE:
                await self.paths.quarantine(_device_of(method))
            case Act.DETACH_VOLUMES:
                await self._detach_volumes(_device_of(method), method)
            case Act.FREE_CUT_PODS if method.only is not None and await self._is_ready():
                self._episode.note(method.name, "later", "the node answers: what does not go by itself is freed once it is off")
            case Act.FREE_CUT_PODS:
                await self._free_cut_pods(self._last_look, stopped=self._somebody_spoke)
            case _:
                raise Hopeless(f"{method.name}: {method.act.value} is no method of isolation that this version carries out")

    async def _cordon(self) -> None:
        self._episode.enter(doing="marks the node unschedulable")
        what = "isolation: marks the node unschedulable"

        async def cordon(look: LookRequest) -> ActResult:
            request = CordonRequest(look=look, not_after=workflow.now() + options.WRITE_WINDOW)
            config = options.cluster_write(self._episode.state.cluster) | {"summary": what}
            return await workflow.execute_activity_method(IsolationActivities.mark_unschedulable, request, **config)

        result = await self._preflight.licensed(cordon, what)
        self._episode.learns_of(result.added)
        self._episode.note("mark-unschedulable", "ok", result.detail)
        self._desk.tell(EventReason.NODE_ISOLATED, self._episode.state.reason)

    async def _taint(self, method: PlannedMethod) -> None:
        taint = Taint(
            key=method.parameters.get("key", ""),
            value=method.parameters.get("value", ""),
            effect=method.parameters.get("effect", "NoSchedule"),
        )

        async def add(look: LookRequest) -> ActResult:
            request = TaintRequest(look=look, taint=taint, not_after=workflow.now() + options.WRITE_WINDOW)
            config = options.cluster_write(self._episode.state.cluster) | {"summary": f"isolation: taints the node {taint.key}"}
            return await workflow.execute_activity_method(IsolationActivities.taint, request, **config)

        result = await self._preflight.licensed(add, "the node can't be tainted")
        self._episode.learns_of(result.added)
        self._episode.note("taint", "ok", result.detail)

    async def free_left_over(self, look: Callable[[], Awaitable[datetime]]) -> None:
        """Pods of chosen volumes that are still there once the machine is off. What can't be freed is told, and holds nothing up:
        the machine is to come back. look: see `Preflight.before_destruction`; it heeds an abort that leaves the machine off."""
        if not any(method.act is Act.FREE_CUT_PODS and method.only is not None for method in self._plan.isolation):
            return
        try:
            await self._free_cut_pods(look, stopped=lambda: self._episode.is_held)
        except ProofLost:
            raise
        except (Hopeless, StepFailed) as interrupt:
            self._episode.note("free-cut-pods", "left", interrupt.reason)
            self._desk.tell(EventReason.WORKLOADS_LEFT, interrupt.reason)

    async def _is_ready(self) -> bool:
        await self._preflight.before_destruction()
        seen = self._episode.state.looked
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
            self._desk.tell(EventReason.VOLUMES_DETACHED, ", ".join(each.volume for each in proof.volumes))

    async def _last_look(self) -> datetime:
        return (await self._preflight.before_destruction()).until

    def _somebody_spoke(self) -> bool:
        """Before off any abort ends the episode."""
        return self._episode.held is not None or self._episode.state.abort_asked is not None

    async def _free_cut_pods(self, look: Callable[[], Awaitable[datetime]], *, stopped: Callable[[], bool]) -> None:
        """A consequence under `path cut proven`: each round right after a last look and fresh readings (S1, S2, S20)."""
        behind_ports = reduce(or_, (each.storage for each in self._plan.isolation if each.act is Act.CUT_PATH), CutStorage())
        with self._episode.undertaking("frees the pods behind the cut") as under:
            left = await self._free_until(under.began + self._plan.free_timeout, behind_ports, look, stopped)
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
            licensed_until = await look()
            proofs = await self._still_cut()
            if not proofs:
                self._episode.note("free-cut-pods", "ok", "nothing is cut: no volume was attached")
                return None
            handles = tuple(volume.volume for proof in proofs for volume in proof.volumes)
            result = await self._free_round(proofs, behind_ports | CutStorage(handles=handles), left, licensed_until, stopped)
            if result is None:
                if workflow.now() - self._pacing.waited >= deadline:
                    raise StepFailed("whether the paths are still cut was never read in time to act upon the look before it")
                await self._episode.pause(pause, "until what lies behind the cut is looked at again")
                pause = longer(pause)
                continue
            self._progress.freed_pods += result.deleted_pods
            left = result.left
            if (left.pods, left.attachments) == (0, 0) or workflow.now() - self._pacing.waited >= deadline:
                return left
            await self._episode.pause(pause, "until what lies behind the cut is looked at again")
            pause = longer(pause)

    async def _still_cut(self) -> tuple[PathProof, ...]:
        proofs = await self.paths.prove(_device_of(each) for each in self._plan.isolation if each.act is Act.CUT_PATH)
        if self._progress.detached_from is None:
            return proofs
        chosen = any(each.act is Act.DETACH_VOLUMES and each.only is not None for each in self._plan.isolation)
        proof = (
            await self._volumes.prove_some(self._progress.detached_from)
            if chosen
            else await self._volumes.prove(self._progress.detached_from)
        )
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
            return await workflow.execute_activity_method(
                FreeingActivities.free_cut_pods,
                request,
                **(options.consequence(self._episode.state.cluster) | {"summary": "isolation: frees the pods behind the cut"}),
            )


def _chosen_by(method: PlannedMethod) -> Chosen:
    if method.only is None:
        raise Hopeless(f"{method.name}: {method.act.value} without any volume")
    return method.only


def _device_of(method: PlannedMethod) -> PowerDevice:
    if method.device is None:
        raise Hopeless(f"{method.name}: {method.act.value} without a device")
    return method.device
