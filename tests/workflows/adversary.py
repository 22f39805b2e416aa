"""An adversary for the property test: one machine that is really on or off, its devices, its Node, and a script of mishaps.

Unlike `world.py` it knows the truth: whether the machine runs follows from its devices and from what others do to it, never from
what was commanded. Every rule that can be broken in an instant is checked in that instant, against the truth.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from temporalio import activity

from activities.contracts.episodes import (
    AskPermit,
    AskPortion,
    DeploymentName,
    DescribeRequest,
    DescribeResult,
    EpisodeActivities,
    NameRequest,
    OpenRequest,
    OpenResult,
)
from activities.contracts.mirror import MirrorActivities, MirrorRequest, RepetitionRequest
from activities.contracts.power import (
    CommandResult,
    GivenUpRequest,
    LiftRequest,
    PowerActivities,
    PowerRequest,
    QuarantineLifted,
    VolumeRequest,
    VolumesResult,
)
from activities.contracts.target import (
    ActRequest,
    ActResult,
    AnswerRequest,
    AnswerResult,
    DrainRequest,
    DrainResult,
    EventRequest,
    FreeCutRequest,
    FreeDumpingRequest,
    FreeingActivities,
    FreeRequest,
    FreeResult,
    IsolationActivities,
    LookRequest,
    LookResult,
    LookVerdict,
    NodeLeaseRequest,
    NodeLeaseResult,
    NoteOffRequest,
    PathRequest,
    PinResult,
    RestoreRequest,
    TaintRequest,
    Target,
    TargetActivities,
    Workload,
)
from activities.errors import ErrorType, failure
from policy.episodes import FencingInput, GivenUpReading, Need, NeedKind, Pinned, Reading, VolumeReading
from policy.fencing import paths_cut, proof_stands
from policy.freeing_pace import PortionAnswer
from policy.identity import compare_identity
from policy.permits import Decision, PermitAnswer
from policy.plan import FencingPlan
from policy.power import PowerState, Quarantine
from policy.report import Observation

NODE = "node-7"


class Mishap(StrEnum):
    """What may befall the n-th activity, or happen just before it."""

    NOTHING = "nothing"
    REFUSED = "refused"  # a clear failure: nothing was done
    UNREACHABLE = "unreachable"
    LOST_BEFORE = "lost before"  # its worker dies before it did anything
    LOST_AFTER = "lost after"  # its worker dies after it did it
    LATE = "late"  # a command takes effect at the very end of its time, and its answer is lost
    FLAP = "flap"  # the kubelet says Ready, or stops saying so
    REBOOT = "reboot"  # the machine restarts by itself
    OTHERS_ON = "others on"  # somebody presses the button
    OTHERS_OFF = "others off"
    NODE_GONE = "node gone"
    NODE_ANEW = "node anew"  # the same machine under a new Node object
    NODE_REPLACED = "node replaced"  # another machine under the name
    VETO = "veto"
    UNLICENSED = "unlicensed"
    STUCK = "stuck"  # a device accepts off and does nothing
    SILENT = "silent"
    ABORT = "abort"
    ABORT_ON = "abort and power on"
    HOLD = "hold"
    HEAL = "heal"  # all devices work again


SPOKEN = frozenset({Mishap.ABORT, Mishap.ABORT_ON, Mishap.HOLD})


@dataclass
class Adversary:
    """The truth. `script` is consumed by one entry per activity; `spoken` hands people's words to whoever drives the episode."""

    plan: FencingPlan
    need: Need
    script: deque[Mishap]
    states: dict[str, PowerState] = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    late: dict[str, tuple[datetime, PowerState]] = field(default_factory=dict)
    in_flight: dict[str, datetime] = field(default_factory=dict)
    """Until when a command to a device may still have an effect."""
    ready: bool = False
    present: bool = True
    uid: str = "uid-1"
    machine: str = "7"
    boots: int = 1
    ready_since: datetime | None = None
    on_since: datetime | None = None
    cordoned: bool = False
    tainted: bool = False
    marked: str = ""
    cut: set[str] = field(default_factory=set)
    noted: set[str] = field(default_factory=set)
    pods: int = 2
    meddled: bool = False
    """Somebody else has switched the machine off last."""
    word: bool = False
    freed_at: datetime | None = None
    restarted_since_freed: bool = False
    licence: bool = False
    """Whether the latest act before a destructive one was a last look that said go."""
    seen_uid: str = ""
    broken: list[str] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)
    say: Callable[[Mishap], None] = lambda mishap: None
    asks: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a person is asked for."""
    never: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.states = dict.fromkeys(self.plan.endpoints, PowerState.ON)

    # The truth ------------------------------------------------------------------------------------------------------

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    def runs(self) -> bool:
        """A level of several supplies feeds the machine while one of them is on; without any level nothing can stop it."""
        return all(any(self.states[each.endpoint] is PowerState.ON for each in level) for level in self.plan.levels)

    def settle(self, now: datetime) -> None:
        """Let late commands take effect, and the node follow its machine."""
        for endpoint, (at, state) in list(self.late.items()):
            if now >= at:
                del self.late[endpoint]
                self.switch(endpoint, state, at)
        if not self.runs():
            self.ready = False

    def switch(self, endpoint: str, state: PowerState, now: datetime) -> None:
        ran = self.runs()
        self.states[endpoint] = state
        if self.runs() and not ran:
            self.start(now)

    def start(self, now: datetime) -> None:
        """A boot; the kubelet is well again after it."""
        self.boots += 1
        self.on_since = now
        self.restarted_since_freed = self.freed_at is not None
        self.present, self.ready, self.ready_since = True, True, now

    def mishap(self, name: str, now: datetime) -> Mishap:
        """The next entry of the script; what merely happens beside an activity has happened when this returns."""
        self.acts.append(name)
        self.settle(now)
        mishap = self.script.popleft() if self.script else Mishap.NOTHING
        match mishap:
            case Mishap.FLAP if self.runs() and self.present:
                self.ready, self.ready_since = not self.ready, now
            case Mishap.REBOOT if self.runs():
                self.start(now)
            case Mishap.OTHERS_ON | Mishap.OTHERS_OFF:
                state = PowerState.ON if mishap is Mishap.OTHERS_ON else PowerState.OFF
                self.meddled = mishap is Mishap.OTHERS_OFF
                for device in self.plan.devices:
                    self.switch(device.endpoint, state, now)
            case Mishap.NODE_GONE:
                self.present = self.ready = False
            case Mishap.NODE_ANEW | Mishap.NODE_REPLACED:
                self.present, self.uid = True, f"{self.uid}+"
                self.cordoned, self.tainted, self.marked = False, False, ""
                if mishap is Mishap.NODE_REPLACED:
                    self.machine, self.ready = "8", True
            case Mishap.STUCK:
                self.stuck = set(self.states)
            case Mishap.SILENT:
                self.silent = set(self.states)
            case Mishap.HEAL:
                self.heal()
            case _ if mishap in SPOKEN:
                self.say(mishap)
        self.settle(now)
        return mishap

    def heal(self) -> None:
        """Every device works again."""
        self.stuck, self.silent = set(), set()

    def observation(self) -> Observation:
        return Observation(
            node=NODE,
            present=self.present,
            uid=self.uid if self.present else "",
            ready=self.ready,
            boot_id=self.boot_id if self.machine == "7" else "boot-of-another",
            provider_id=f"sim://{self.machine}",
            system_uuid=f"sys-{self.machine}",
            ready_since=self.ready_since if self.ready else None,
            unhealthy=not self.ready,
        )

    # The rules ------------------------------------------------------------------------------------------------------

    def destructive(self, name: str, target: Target, now: datetime) -> None:
        """S9, S20: right after a last look that said go, about the machine that was seen by it."""
        if not self.licence:
            self.broken.append(f"S20: {name} without a last look before it")
        if self.seen_uid != target.pinned.uid:
            self.broken.append(f"S9: {name} of {target.pinned.uid} although the last look saw {self.seen_uid}")
        self.licence = False

    def begins(self, endpoint: str, now: datetime, until: datetime) -> None:
        """S34: never two commands to one device at a time."""
        if self.in_flight.get(endpoint, now) > now:
            self.broken.append(f"S34: a command to {endpoint} while another may be under way")
        self.in_flight[endpoint] = until

    def consequence(self, name: str, request: FreeRequest, now: datetime) -> None:
        """S1, S2, S4, S6: the proof is whole, fresh, and was true when it was read."""
        pinned = request.target.pinned
        if not proof_stands(request.proof, pinned.levels):
            self.broken.append(f"S1: {name} on a proof that is none")
        if request.proof.acknowledgement is None:
            read_at = min(reading.at for reading in request.proof.readings)
            if self.runs() and (self.on_since is None or self.on_since <= read_at):
                self.broken.append(f"S1: {name} while the machine runs")
            if request.not_after - read_at > timedelta(seconds=60):
                self.broken.append(f"S2: {name} on readings of {now - read_at} ago")
        elif not self.word:
            self.broken.append(f"S8: {name} on a word that nobody gave")
        self.freed_at, self.restarted_since_freed = now, False


def now() -> datetime:
    """The server's time of this attempt."""
    return activity.info().started_time


class AdversarialActivities(
    TargetActivities, IsolationActivities, FreeingActivities, PowerActivities, EpisodeActivities, MirrorActivities
):
    """Every contract, before the adversary of the episode that asks."""

    def __init__(self) -> None:
        self.worlds: dict[str, Adversary] = {}

    @property
    def world(self) -> Adversary:
        return self.worlds[str(activity.info().workflow_id)]

    async def _before(self, name: str) -> Mishap:
        mishap = self.world.mishap(name, now())
        if mishap is Mishap.REFUSED:
            raise failure(ErrorType.TRANSIENT, f"{name} was refused")
        if mishap is Mishap.UNREACHABLE:
            raise failure(ErrorType.UNREACHABLE, f"{name} reached nobody")
        if mishap is Mishap.LOST_BEFORE:
            await self.world.never.wait()
        return mishap

    async def _after(self, mishap: Mishap) -> None:
        if mishap in {Mishap.LOST_AFTER, Mishap.LATE}:
            await self.world.never.wait()

    @activity.defn(name="isolation.pin-target")
    async def pin(self, request: FencingInput) -> PinResult:
        world = self.world
        pinned = Pinned(
            node=NODE,
            uid=world.uid,
            provider_id="sim://7",
            system_uuid="sys-7",
            boot_id=world.boot_id,
            not_ready_since=now() if not world.ready else None,
            endpoints=world.plan.endpoints,
            levels=tuple(tuple(device.endpoint for device in level) for level in world.plan.levels),
        )
        return PinResult(pinned=pinned, plan=world.plan, need=world.need, observation=world.observation())

    @activity.defn(name="isolation.mark")
    async def mark(self, request: ActRequest) -> ActResult:
        mishap = await self._before("mark")
        self._require_present()
        if self.world.uid != request.target.pinned.uid:
            raise failure(ErrorType.TARGET_CHANGED, "another Node")
        self.world.marked = request.target.incident
        await self._after(mishap)
        return ActResult(changed=True, detail="marked")

    @activity.defn(name="target.last-look")
    async def last_look(self, request: LookRequest) -> LookResult:
        mishap = await self._before("look" if request.destructive else "glance")
        world, pinned = self.world, request.target.pinned
        seen = world.observation()
        difference = (
            compare_identity(pinned, seen, destructive=request.destructive) if seen.present or request.destructive else ""
        )
        verdict = LookVerdict.GO
        if difference:
            verdict = LookVerdict.TARGET_CHANGED
        elif request.need_matters and request.need.kind is NeedKind.CHECK and world.ready:
            verdict = LookVerdict.NEED_GONE
        elif mishap is Mishap.VETO:
            verdict = LookVerdict.VETOED
        elif mishap is Mishap.UNLICENSED and request.destructive:
            verdict = LookVerdict.NOT_LICENSED
        if request.destructive:
            world.licence, world.seen_uid = verdict is LookVerdict.GO, seen.uid
        await self._after(mishap)
        return LookResult(verdict=verdict, reason=f"{verdict}: {difference}", at=now(), observation=seen)

    @activity.defn(name="target.take-lease")
    async def take_lease(self, request: NodeLeaseRequest) -> NodeLeaseResult:
        await self._after(await self._before("take-lease"))
        return NodeLeaseResult(held=True)

    @activity.defn(name="recovery.release-lease")
    async def release_lease(self, request: NodeLeaseRequest) -> None:
        await self._after(await self._before("release-lease"))

    @activity.defn(name="target.record-event")
    async def record_event(self, request: EventRequest) -> None:
        if request.reason == "NeedsHuman":
            self.world.asks.set()
        await self._after(await self._before("event"))

    @activity.defn(name="target.note-off")
    async def note_off(self, request: NoteOffRequest) -> ActResult:
        await self._after(await self._before("note-off"))
        return ActResult(changed=True, detail="noted")

    @activity.defn(name="target.answer-request")
    async def answer_request(self, request: AnswerRequest) -> AnswerResult:
        raise AssertionError("nobody's object asked for this episode")

    @activity.defn(name="target.mirror")
    async def mirror(self, request: MirrorRequest) -> None:
        """Never of any consequence, so no mishap is spent on it (`test_mirror.py` does)."""

    @activity.defn(name="scan.tell-repetition")
    async def tell_repetition(self, request: RepetitionRequest) -> None:
        raise AssertionError("the scanner tells of repetitions, not the episode")

    @activity.defn(name="isolation.mark-unschedulable")
    async def mark_unschedulable(self, request: ActRequest) -> ActResult:
        mishap = await self._before("cordon")
        self._require_ours(request.target)
        self.world.cordoned = True
        await self._after(mishap)
        return ActResult(changed=True, detail="cordoned")

    @activity.defn(name="isolation.taint")
    async def taint(self, request: TaintRequest) -> ActResult:
        mishap = await self._before("taint-node")
        self._require_ours(request.target)
        await self._after(mishap)
        return ActResult(changed=True, detail="tainted")

    @activity.defn(name="isolation.drain")
    async def drain(self, request: DrainRequest) -> DrainResult:
        mishap = await self._before("drain")
        self._require_ours(request.target)
        await self._after(mishap)
        return DrainResult()

    @activity.defn(name="isolation.note-path")
    async def note_path(self, request: PathRequest) -> ActResult:
        mishap = await self._before("note-path")
        if request.cut:
            self._require_ours(request.target)
            self.world.cut.add(request.endpoint)
            self.world.noted.add(request.endpoint)
        else:
            self.world.noted.discard(request.endpoint)
        await self._after(mishap)
        return ActResult(changed=True, detail="noted")

    @activity.defn(name="recovery.mark-schedulable")
    async def mark_schedulable(self, request: RestoreRequest) -> ActResult:
        mishap = await self._before("uncordon")
        world = self.world
        if world.present and world.marked == request.target.incident:
            world.tainted = False
            if not world.noted:
                world.cordoned, world.marked = world.cordoned and request.keep_cordon, ""
        await self._after(mishap)
        return ActResult(changed=True, detail="restored")

    @activity.defn(name="power-management.taint-out-of-service")
    async def taint_out_of_service(self, request: FreeRequest) -> ActResult:
        mishap = await self._before("taint")
        if not self.world.present:
            raise failure(ErrorType.NOT_FOUND, "the Node is gone")
        self._require_down(request)
        self.world.consequence("taint", request, now())
        self.world.tainted, self.world.pods = True, 0
        await self._after(mishap)
        return ActResult(changed=True, detail="tainted")

    @activity.defn(name="power-management.delete-workload")
    async def delete_workload(self, request: FreeRequest) -> FreeResult:
        mishap = await self._before("delete-workload")
        if self.world.present:
            self._require_down(request)
        self.world.consequence("delete-workload", request, now())
        deleted, self.world.pods = self.world.pods, 0
        await self._after(mishap)
        return FreeResult(deleted_pods=deleted, left=Workload(pods=0, attachments=0))

    @activity.defn(name="power-management.delete-node")
    async def delete_node(self, request: FreeRequest) -> ActResult:
        mishap = await self._before("delete-node")
        if self.world.present:
            self._require_down(request)
        self.world.consequence("delete-node", request, now())
        self.world.present = False
        await self._after(mishap)
        return ActResult(changed=True, detail="deleted")

    @activity.defn(name="isolation.free-cut-pods")
    async def free_cut_pods(self, request: FreeCutRequest) -> FreeResult:
        mishap = await self._before("free-cut-pods")
        self._require_ours(request.target)
        world = self.world
        world.destructive("free-cut-pods", request.target, now())
        if not paths_cut(request.proofs, request.target.pinned.endpoints):
            world.broken.append("S1: free-cut-pods on a proof that is none")
        if any(world.states[each.endpoint] is not PowerState.OFF for proof in request.proofs for each in proof.readings):
            world.broken.append("S1: free-cut-pods while a path is open")
        world.freed_at, world.restarted_since_freed = now(), False
        await self._after(mishap)
        return FreeResult(deleted_pods=1, left=Workload(pods=0, attachments=0))

    @activity.defn(name="power-management.free-while-dumping")
    async def free_while_dumping(self, request: FreeDumpingRequest) -> FreeResult:
        raise failure(ErrorType.NOT_SUPPORTED, "no configuration of it trusts anybody's word")

    @activity.defn(name="power-management.read-workload")
    async def read_workload(self, request: ActRequest) -> Workload:
        await self._after(await self._before("read-workload"))
        return Workload(pods=self.world.pods, attachments=0)

    @activity.defn(name="power-management.untaint-out-of-service")
    async def untaint_out_of_service(self, request: ActRequest) -> ActResult:
        mishap = await self._before("untaint")
        self.world.tainted = self.world.tainted and self.world.marked != request.target.incident
        await self._after(mishap)
        return ActResult(changed=True, detail="untainted")

    @activity.defn(name="power-management.read-power")
    async def read_power(self, request: PowerRequest) -> Reading:
        return await self._read(request)

    @activity.defn(name="power-management.power-off")
    async def power_off(self, request: PowerRequest) -> CommandResult:
        return await self._command(request, PowerState.OFF, destructive=True)

    @activity.defn(name="power-management.power-on")
    async def power_on(self, request: PowerRequest) -> CommandResult:
        world = self.world
        if world.tainted and world.marked == request.target.incident:
            world.broken.append("S32: power on while our taint stands")
        return await self._command(request, PowerState.ON, destructive=False)

    @activity.defn(name="power-management.terminate")
    async def terminate(self, request: PowerRequest) -> CommandResult:
        raise failure(ErrorType.NOT_SUPPORTED, "it is nobody's cloud machine")

    @activity.defn(name="power-management.read-given-up")
    async def read_given_up(self, request: GivenUpRequest) -> GivenUpReading:
        raise failure(ErrorType.NOT_SUPPORTED, "no configuration gives its machine up")

    @activity.defn(name="isolation.read-path")
    async def read_path(self, request: PowerRequest) -> Reading:
        return await self._read(request)

    @activity.defn(name="isolation.cut-path")
    async def cut_path(self, request: PowerRequest) -> CommandResult:
        if request.device.endpoint not in self.world.cut:
            self.world.broken.append("S35: a path was cut without a note")
        return await self._command(request, PowerState.OFF, destructive=True)

    @activity.defn(name="recovery.restore-path")
    async def restore_path(self, request: PowerRequest) -> CommandResult:
        world = self.world
        if world.freed_at is not None and not world.restarted_since_freed and not world.word:
            world.broken.append("a path was given back after pods were freed, without a restart or a word")
        return await self._command(request, PowerState.ON, destructive=False)

    @activity.defn(name="isolation.quarantine")
    async def quarantine(self, request: PowerRequest) -> Quarantine:
        raise failure(ErrorType.NOT_SUPPORTED, "it has no quarantine")

    @activity.defn(name="recovery.lift-quarantine")
    async def lift_quarantine(self, request: LiftRequest) -> QuarantineLifted:
        raise failure(ErrorType.NOT_SUPPORTED, "it has no quarantine")

    @activity.defn(name="isolation.list-volumes")
    async def list_volumes(self, request: PowerRequest) -> VolumesResult:
        return VolumesResult(volumes=())

    @activity.defn(name="isolation.detach-volume")
    async def detach_volume(self, request: VolumeRequest) -> CommandResult:
        raise failure(ErrorType.NOT_SUPPORTED, "it has no volumes")

    @activity.defn(name="isolation.read-volume")
    async def read_volume(self, request: VolumeRequest) -> VolumeReading:
        raise failure(ErrorType.NOT_SUPPORTED, "it has no volumes")

    @activity.defn(name="episodes.open")
    async def open(self, request: OpenRequest) -> OpenResult:
        raise failure(ErrorType.NOT_SUPPORTED, "an episode opens no others")

    @activity.defn(name="episodes.describe")
    async def describe(self, request: DescribeRequest) -> DescribeResult:
        raise failure(ErrorType.NOT_SUPPORTED, "an episode describes no others")

    @activity.defn(name="episodes.request-permit")
    async def request_permit(self, request: AskPermit) -> PermitAnswer:
        return PermitAnswer(decision=Decision.GRANTED, holder="us")

    @activity.defn(name="episodes.ask-portion")
    async def ask_portion(self, request: AskPortion) -> PortionAnswer:
        raise failure(ErrorType.NOT_SUPPORTED, "nothing limits here")

    @activity.defn(name="episodes.name-deployment")
    async def name_deployment(self, request: NameRequest) -> DeploymentName:
        return DeploymentName(holder="us")

    async def _read(self, request: PowerRequest) -> Reading:
        endpoint = request.device.endpoint
        mishap = await self._before(f"read {endpoint}")
        if endpoint in self.world.silent:
            raise failure(ErrorType.UNREACHABLE, f"{endpoint}: no answer")
        reading = Reading(endpoint=endpoint, state=self.world.states[endpoint], at=now())
        await self._after(mishap)
        return reading

    async def _command(self, request: PowerRequest, state: PowerState, *, destructive: bool) -> CommandResult:
        world, endpoint, began = self.world, request.device.endpoint, now()
        mishap = await self._before(f"{state} {endpoint}")
        if endpoint in world.silent:
            raise failure(ErrorType.UNREACHABLE, f"{endpoint}: no answer")
        if destructive:
            world.destructive(f"{state} {endpoint}", request.target, began)
        lost = mishap in {Mishap.LOST_AFTER, Mishap.LATE}
        world.begins(endpoint, began, began + request.deadline if lost else began)
        before = world.states[endpoint]
        if mishap is Mishap.LATE and endpoint not in world.stuck:
            world.late[endpoint] = (began + request.deadline, state)
        elif state is PowerState.ON or endpoint not in world.stuck:
            world.switch(endpoint, state, began)
        await self._after(mishap)
        return CommandResult(sent=True, before=before, began_at=began, ended_at=began)

    def _require_present(self) -> None:
        if not self.world.present:
            raise failure(ErrorType.NOT_FOUND, "the Node is gone")

    def _require_ours(self, target: Target) -> None:
        """As the cluster's own activities do: the pinned node, and our mark on it."""
        self._require_present()
        if self.world.uid != target.pinned.uid:
            raise failure(ErrorType.TARGET_CHANGED, "another Node")
        if self.world.marked != target.incident:
            raise failure(ErrorType.VETOED, "not our mark")

    def _require_down(self, request: FreeRequest) -> None:
        """As `activities/cluster/freeing.py` does."""
        self._require_ours(request.target)
        if self.world.ready or self.world.boot_id != request.target.pinned.boot_id:
            raise failure(ErrorType.NOT_PROVEN, "the node is up, or has booted")
