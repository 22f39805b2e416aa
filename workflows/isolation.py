"""Isolation in the order of its plan, and its undoing in recovery: cordon, the paths to storage and network.

What is done is remembered across restarts of the flow. A path that was cut is noted in our mark *before* it is cut, so that
whoever takes the node over knows of it. It is given back by itself where no consequence was carried out; otherwise only after
`restart proven` or a person's word, since what was freed may be written by somebody else by now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial, reduce
from operator import or_

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.target import FreeCutRequest, FreeingActivities, FreeResult, IsolationActivities, PathRequest
from policy.episodes import PathProof, Phase, Step
from policy.fencing import off_proven
from policy.plan import Act, CutStorage, FencingPlan, PlannedMethod, PowerDevice
from policy.power import PowerState
from workflows import options
from workflows.bookkeeping import Bookkeeping
from workflows.devices import PATH, POLL_INTERVAL, Devices, longer, states
from workflows.episode import Episode
from workflows.looks import Looks
from workflows.tries import Tries
from workflows.turns import Hopeless, StepFailed, Turn, turn_for
from workflows.volumes import Volumes

RESTORE_PAUSE_MAXIMUM = timedelta(minutes=10)
RESTORE_FAILURES_TOLD = 3
"""So many failures in a row, and a person is told that a path is still cut."""


class IsolationSequence:
    """The methods of isolation of one episode, and what recovery does about them."""

    def __init__(self, episode: Episode, plan: FencingPlan, desk: Bookkeeping, looks: Looks, tries: Tries) -> None:
        self._episode = episode
        self._plan = plan
        self._desk = desk
        self._looks = looks
        self._tries = tries
        self._paths = Devices(episode, plan, PATH)
        self._volumes = Volumes(episode, plan)
        self._detached_from: PowerDevice | None = None
        self._done: set[int] = set()
        self._cut: dict[str, datetime | None] = {}
        """The paths that may be cut, with the end of our command; None where a predecessor cut it."""
        self.freed = False
        self.freed_pods = 0
        self.adopted = False
        """Whether a predecessor cut paths: what it freed is not known."""

    @property
    def touched(self) -> bool:
        """Whether a path may be cut because of us."""
        return bool(self._cut)

    @property
    def began(self) -> bool:
        """Whether any method has been carried out, or a path touched."""
        return bool(self._done) or self.touched

    @property
    def cut_since(self) -> datetime | None:
        """When the first path was cut by this episode."""
        return min((moment for moment in self._cut.values() if moment is not None), default=None)

    def adopt(self, endpoints: tuple[str, ...]) -> None:
        """Paths that an episode before us had noted as cut."""
        self._cut |= dict.fromkeys(endpoints)
        self.adopted = bool(endpoints)
        self._paths.expect_in_flight()

    async def carry_out(self) -> None:
        """Every method that is not done yet. A failing one is tried as often as it may, then it is the step's failure."""
        for index, method in enumerate(self._plan.isolation):
            if index in self._done:
                continue
            await self._episode.delay(method.delay, f"waits its delay before {method.name}", self._looks.before_destruction)
            await self._tries.carry_out(Step.ISOLATION, partial(self._isolate, method), tries=method.tries)
            self._done.add(index)

    async def _isolate(self, method: PlannedMethod) -> None:
        match method.act:
            case Act.CORDON:
                await self._cordon()
            case Act.CUT_PATH:
                assert method.device is not None, "a path is cut at a device"
                await self._cut_path(method.device, method.timeout)
            case Act.DETACH_VOLUMES:
                assert method.device is not None, "volumes are detached from a machine"
                await self._detach_volumes(method.device, method.timeout)
            case Act.FREE_CUT_PODS:
                await self._free_cut_pods()
            case _:
                raise Hopeless(f"{method.name}: {method.act.value} is no method of isolation that this version carries out")

    async def _cordon(self) -> None:
        self._episode.enter(doing="marks the node unschedulable")
        await self._looks.before_destruction()
        result = await self._desk.write(IsolationActivities.mark_unschedulable, "isolation: marks the node unschedulable")
        self._episode.note("mark-unschedulable", "ok", result.detail)
        await self._desk.tell("NodeIsolated", self._episode.reason)

    # Paths ----------------------------------------------------------------------------------------------------------

    async def _cut_path(self, device: PowerDevice, timeout: timedelta | None) -> None:
        await self._paths.settle()
        ended = self._cut.get(device.endpoint)
        if ended is None:
            await self._desk.take_node_lease(theirs_matters=not self.touched)
            await self._looks.before_destruction()
            await self._note_cut(device, cut=True)
            self._cut[device.endpoint] = None
            self._episode.enter(doing=f"cuts the path {device.endpoint}")
            commanded = await self._paths.command_off(device)
            if commanded.failed is not None:
                raise commanded.failed
            self._cut[device.endpoint] = ended = commanded.ended_at
        patience = timeout or device.off_timeout or self._plan.off_timeout
        self._episode.enter(doing="waits until the path is read as cut", until=workflow.now() + patience)
        readings = await self._paths.read_until([device], PowerState.OFF, patience)
        proof = off_proven((device,), {device.endpoint: ended}, readings, None)
        if proof is None:
            self._cut[device.endpoint] = None  # what was commanded had no effect: the next try commands again
            raise StepFailed(f"the path is not cut within {patience.total_seconds():g} s: {states(readings)}")
        self._episode.path_proofs[device.endpoint] = PathProof(commanded_at=ended, readings=proof.readings)
        self._episode.note("path-cut-proven", "ok", f"{device.endpoint} off at {proof.readings[0].at.isoformat()}")
        await self._desk.tell("PathCut", f"{device.endpoint} is read as cut")

    async def _detach_volumes(self, device: PowerDevice, timeout: timedelta | None) -> None:
        await self._desk.take_node_lease(theirs_matters=not self.touched)
        proof = await self._volumes.detach_all(device, self._looks.before_destruction, timeout or self._plan.off_timeout)
        if proof is not None:
            self._detached_from = device
            self._episode.path_proofs[f"{device.endpoint}/volumes"] = proof
            await self._desk.tell("VolumesDetached", ", ".join(each.volume for each in proof.volumes))

    async def _free_cut_pods(self) -> None:
        """A consequence under `path cut proven`: each round right after a last look and fresh readings (S1, S2, S20)."""
        cut = [each for each in self._plan.isolation if each.act is Act.CUT_PATH and each.device is not None]
        behind_ports = reduce(or_, (each.storage for each in cut), CutStorage())
        deadline = workflow.now() + self._plan.free_timeout
        self._episode.enter(doing="frees the pods behind the cut", until=deadline)
        pause = POLL_INTERVAL
        while True:
            await self._looks.before_destruction()
            proofs = await self._still_cut([each.device for each in cut if each.device])
            handles = tuple(volume.volume for proof in proofs for volume in proof.volumes)
            if not proofs:
                self._episode.note("free-cut-pods", "ok", "nothing is cut: no volume was attached")
                return
            result = await self._free_round(proofs, behind_ports | CutStorage(handles=handles))
            self.freed_pods += result.deleted_pods
            left = result.left
            if (left.pods, left.attachments) == (0, 0) or workflow.now() >= deadline:
                break
            await workflow.sleep(pause, summary="until what lies behind the cut is looked at again")
            pause = longer(pause)
        detail = f"{self.freed_pods} pods freed; {left.pods} pods and {left.attachments} attachments are left"
        self._episode.note("free-cut-pods", "ok" if left.pods == 0 else "incomplete", detail)

    async def _still_cut(self, devices: Sequence[PowerDevice]) -> tuple[PathProof, ...]:
        readings = await self._paths.read_all(devices)
        proofs = []
        for device, reading in zip(devices, readings, strict=True):
            ended = self._cut.get(device.endpoint)
            if ended is None or off_proven((device,), {device.endpoint: ended}, [reading], None) is None:
                raise StepFailed(f"the path is not proven cut: {states([reading])}")
            proofs.append(PathProof(commanded_at=ended, readings=(reading,)))
        if self._detached_from is not None:
            proofs.append(await self._volumes.prove(self._detached_from))
        return tuple(proofs)

    async def _free_round(self, proofs: tuple[PathProof, ...], storage: CutStorage) -> FreeResult:
        request = FreeCutRequest(
            target=self._episode.target,
            proofs=proofs,
            storage=storage,
            not_after=workflow.now() + options.ACT_WINDOW,
            holder=self._episode.holder,
        )
        self.freed = True
        try:
            return await workflow.execute_activity_method(
                FreeingActivities.free_cut_pods,
                request,
                **(options.consequence(self._episode.cluster) | {"summary": "isolation: frees the pods behind the cut"}),
            )
        except ActivityError as error:
            raise turn_for(error, "pods behind the cut can't be freed") from error

    async def undo(self, *, may_restore: Callable[[], bool], patient: bool) -> str:
        """Give back every path that recovery names. Answers what is left cut, in words to end a sentence with, "" for nothing.

        may_restore: whether that is safe now. patient: wait for a person's word where it is not; else it is left cut.
        """
        for method in self._plan.recovery:
            device = method.device
            if method.act is Act.RESTORE_PATH and device is not None and device.endpoint in self._cut:
                if not may_restore() and not (patient and await self._has_word(device, may_restore)):
                    continue
                await self._restore_path(device)
        return f"; left cut: {', '.join(self._cut)}" if self._cut else ""

    async def _has_word(self, device: PowerDevice, may_restore: Callable[[], bool]) -> bool:
        """Wait for a person, or a restart. False: aborted, and left as it is."""
        self._episode.resumed = None
        problem = f"{device.endpoint} is left cut: pods were freed and no restart is proven; resume gives it back"
        await self._desk.ask_for_a_person(problem)
        while self._episode.resumed is None and not may_restore():
            if self._episode.abort_asked is not None:
                return False
            await self._episode.rest(None, "a person's word on the path")
            await self._looks.refresh()
        self._episode.problem = ""
        self._episode.enter(phase=Phase.DONE, doing="goes on")
        return True

    async def _restore_path(self, device: PowerDevice) -> None:
        """However long it takes: a node without its storage is of no use. Told to a person; an abort does not undo it."""
        pause, failures = self._plan.retry_interval, 0
        while True:
            self._episode.enter(step=Step.RECOVERY, doing=f"gives the path {device.endpoint} back")
            try:
                await self._try_to_restore(device)
                break
            except Turn as turn:
                failures += 1
                self._episode.problem = turn.reason
                self._episode.note("restore-path", "failed", turn.reason)
                if failures == RESTORE_FAILURES_TOLD:
                    await self._desk.ask_for_a_person(f"a path can't be given back: {turn.reason}")
                await self._episode.rest(pause, "until the path is tried again")
                pause = min(pause * 2, RESTORE_PAUSE_MAXIMUM)
        self._episode.problem = ""
        del self._cut[device.endpoint]
        self._episode.path_proofs.pop(device.endpoint, None)

    async def _try_to_restore(self, device: PowerDevice) -> None:
        await self._paths.settle()
        await self._looks.before_restoring()
        commanded = await self._paths.command_on(device)
        if commanded.failed is not None:
            raise commanded.failed
        readings = await self._paths.read_until([device], PowerState.ON, self._plan.off_timeout)
        if readings[0].state is not PowerState.ON:
            raise StepFailed(f"the path is not back: {states(readings)}")
        await self._note_cut(device, cut=False)
        await self._desk.tell("PathRestored", f"{device.endpoint} is read as on")

    async def _note_cut(self, device: PowerDevice, *, cut: bool) -> None:
        request = PathRequest(
            target=self._episode.target,
            endpoint=device.endpoint,
            cut=cut,
            not_after=workflow.now() + options.WRITE_WINDOW,
        )
        step = "isolation" if cut else "recovery"
        try:
            await workflow.execute_activity_method(
                IsolationActivities.note_path,
                request,
                **(
                    options.cluster_write(self._episode.cluster)
                    | {"summary": f"{step}: notes that {device.endpoint} is {'to be cut' if cut else 'given back'}"}
                ),
            )
        except ActivityError as error:
            raise turn_for(error, "our mark can't be written") from error
