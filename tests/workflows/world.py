"""A scripted world for workflow tests: one node, its BMCs, its pods, behind the real activity contracts.

It keeps the order of everything that was done, checks the rules that hold at every single moment (S1, S2, S32) while it is
acted on, and misbehaves as told. Nothing here decides: what it answers follows from its state alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.cluster.objects.marks import claim, spelled
from activities.errors import ErrorType, failure
from activities.licences import DeviceCommand
from policy.episode.gate import MODE, RULES, Seen
from policy.episode.messages import GivenUpReading, Need, NeedKind, Pinned, Reading, RecordEntry, SeenNode, VolumeReading
from policy.episode.modes import ClusterModes, mode_of
from policy.episode.permits import PermitAnswer, PermitDecision, PermitRequest, PortionAnswer
from policy.fence.kdump import KdumpReading, dead_stands
from policy.fence.plan import SEALED_FOR, CutStorage, FencingPlan, PowerDevice
from policy.fence.power import PowerAct, PowerState, Quarantine, VolumeState
from policy.fence.templates import is_fencing_template
from policy.history.offenders import NO_REPAIRS, FoundRepairs
from policy.objects.marks import Added, Mark
from policy.values.mode import Mode
from tests.licensing import is_licensed, licence_of
from tests.workflows import contract
from workflows.kit import options

CLUSTER = "prod"
NODE = "node-7"


def clock() -> datetime:
    """The time of this attempt: it skips with the workflow, as our own clock does not."""
    return activity.info().started_time


def this_run() -> str:
    """The run of the workflow that asks."""
    return activity.info().workflow_run_id or ""


def left_by(incident: str, **changes: object) -> Mark:
    """The mark of an episode of the same id that was terminated."""
    return Mark(incident=incident, kind="Fencing", workflow_id="", run_id="a run before", **changes)  # type: ignore[arg-type]


def plan(**changes: object) -> FencingPlan:
    """A plan with one BMC and short waits."""
    devices = (PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623"),)
    short = FencingPlan(
        source="test",
        levels=(devices,),
        wait_before_power=timedelta(0),
        tries=2,
        restarts=1,
        retry_interval=timedelta(seconds=1),
        act_deadline=timedelta(seconds=2),
        off_timeout=timedelta(seconds=4),
        free_timeout=timedelta(seconds=30),
        boot_timeout=timedelta(minutes=10),
    )
    return replace(short, **changes)  # type: ignore[arg-type]


@dataclass
class World:
    """State of the scripted world. `acts` is what was done, in order."""

    plan: FencingPlan = field(default_factory=plan)
    need: Need = field(default_factory=lambda: Need(kind=NeedKind.CHECK, reason="NodeHealthCheck/workers: Ready is Unknown"))
    ready: bool = False
    present: bool = True
    mode: Mode = Mode.REPAIR
    uid: str = "uid-1"
    provider_id: str = "sim://7"
    boot_id: str = "boot-1"
    system_uuid: str = "sys-7"
    """No system UUID as machines have it: what is repaired is not known."""
    repairs: FoundRepairs = NO_REPAIRS
    """What visibility says of the machine."""
    permits: list[PermitRequest] = field(default_factory=list)
    """Who asked the scanner for one, and what he said of the node."""
    strange_to: tuple[str, ...] = ()
    """What the check of devices says of the devices' credentials by now."""
    key: str = "key"
    """What the seals of devices are made with by now."""
    pods: int = 3
    cut_pods: int = 2
    drains: list[contract.DrainResult] = field(default_factory=list)
    """What rounds of a drain answer; then it is done."""
    kdump: timedelta | None = None
    """How long the node writes its crash dump, from the first question on; None: nobody listens for it."""
    kdump_began: datetime | None = None
    heard_ago: timedelta = timedelta(0)
    """How long before the first question the first message came."""
    dumping_frees: int = 100
    """How many pods a round frees while the node dumps."""
    volumes: dict[str, VolumeState] = field(default_factory=dict)
    cut_pods_stay: int = 0
    """So many pods behind the cut do not go."""
    storage: CutStorage | None = None
    pods_stay: bool = False
    per_minute: int | None = None
    """How many pods may be freed in a minute."""
    portions: list[PortionAnswer] = field(default_factory=list)
    """What the scanner lets go; None are left: it can't be asked."""
    power: dict[str, PowerState] = field(default_factory=dict)
    paths: dict[str, PowerState] = field(default_factory=dict)
    released: list[str] = field(default_factory=list)
    """Whose node lease was released beside the episode's own, each time."""
    word: bool = False
    """A person has said that paths may be given back."""
    boots: bool = True
    enough: int | None = None
    """How many of its devices are enough for the machine to run; None: all of them."""
    ignores_off: bool = False
    off_takes: timedelta = timedelta(0)
    """How long after its off a machine still says on."""
    off_due: dict[str, datetime] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    """Endpoints that answer nothing."""
    stuck: set[str] = field(default_factory=set)
    """Endpoints that accept an off and go on saying on."""
    read_errors: list[ApplicationError] = field(default_factory=list)
    off_errors: list[ApplicationError] = field(default_factory=list)
    on_errors: list[ApplicationError] = field(default_factory=list)
    free_errors: list[ApplicationError] = field(default_factory=list)
    untaint_errors: list[ApplicationError] = field(default_factory=list)
    taint_errors: list[ApplicationError] = field(default_factory=list)
    """What is said of a taint that stands, each time that it is asked."""
    detach_errors: list[ApplicationError] = field(default_factory=list)
    quarantine_errors: list[ApplicationError] = field(default_factory=list)
    terminate_errors: list[ApplicationError] = field(default_factory=list)
    stays: int = 0
    """How often a machine that was given up is still read as there."""
    lingers: int = 0
    """How often a node that is off is still seen Ready, as until its lease lapses."""
    ready_since: datetime | None = None
    not_ready_since: datetime | None = None
    """As the pin finds it; None: the node has just fallen silent."""
    off_lost: int = 0
    """How many answers to an off are lost after it was carried out."""
    permitted: bool = True
    """Whether the scanner knows of a permit, as a last look hears."""
    leased: list[timedelta] = field(default_factory=list)
    """For how long each time the node's lease was to be taken."""
    looks: list[contract.LookVerdict] = field(default_factory=list)
    glances: list[contract.LookVerdict] = field(default_factory=list)
    """The same for looks before what restores."""
    mark_errors: list[ApplicationError] = field(default_factory=list)
    answers: list[PermitAnswer] = field(default_factory=list)
    look_errors: list[ApplicationError] = field(default_factory=list)
    lease_holder: str = ""
    lease_until: datetime | None = None
    preserved: bool = False
    cordoned: bool = False
    mark: Mark | None = None
    """What stands on the node; `left_by` makes one of an episode that was terminated."""
    tainted: bool = False
    looked_at: datetime | None = None
    """When the latest look was asked for."""
    proof_read: bool = False
    """Whether every device has been read OFF since the last command, and none ON."""
    contradicted: bool = False
    """Whether one has said ON after that."""
    others: list[PowerState] = field(default_factory=list)
    """What others have switched the machine to by the next readings."""
    ahead: timedelta = timedelta(0)
    """By how much the clock of the workers that speak to devices is ahead of Temporal's."""
    told: dict[str, PowerState] = field(default_factory=dict)
    """What each device that was read has said since the last off."""
    acts: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    """What reached which device."""
    broken: list[str] = field(default_factory=list)
    pin_errors: list[ApplicationError] = field(default_factory=list)
    verify_errors: list[ApplicationError] = field(default_factory=list)
    speaker: str = ""
    wishes: list[contract.SealedCommand | None] = field(default_factory=list)
    overrides: list[contract.SealedCommand | None] = field(default_factory=list)
    """Of whoever asked for the episode, as looks are told of it."""
    """By which name Kubernetes attests who speaks; "": it does not."""
    shown: list[contract.EpisodeSnapshot] = field(default_factory=list)
    events: list[contract.PublishedEvent] = field(default_factory=list)
    streams: bool | None = True
    """Whether the workers have a decision stream."""
    streamed: list[RecordEntry] = field(default_factory=list)
    """Lines of the record, as activities that completed took them to the decision stream."""
    tell_errors: list[ApplicationError] = field(default_factory=list)
    """What telling people by itself fails with."""
    confirmed_well: bool = False
    """A person has confirmed that it is well."""
    excused: bool = False
    """Nobody asks for the node any more, whatever it says."""
    withdrawn: str = ""
    """Why the object that asked for the node asks no more."""
    answers_given: list[str] = field(default_factory=list)
    answer_errors: list[ApplicationError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """Events that were told as a Warning."""
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    """An act named here waits until the event is set, so that a test can do something in the middle."""

    def __post_init__(self) -> None:
        self.power = {device.endpoint: PowerState.ON for device in self.plan.devices}
        methods = (*self.plan.isolation, *self.plan.recovery)
        self.paths = {each.device.endpoint: PowerState.ON for each in methods if each.device is not None}

    @property
    def marked(self) -> str:
        """Whose mark stands on the node, "" for nobody's."""
        return self.mark.incident if self.mark is not None else ""

    @property
    def noted(self) -> set[str]:
        """The paths that the mark tells of."""
        return set(self.mark.paths) if self.mark is not None else set()

    async def act(self, name: str) -> None:
        """Note an act; wait at its gate if it has one."""
        self.acts.append(name)
        if (gate := self.gates.get(name)) is not None:
            await gate.wait()

    @staticmethod
    def may_fail(errors: list[ApplicationError]) -> None:
        """Fail with the next of them."""
        if errors:
            raise errors.pop(0)

    def sealed_plan(self) -> FencingPlan:
        """As a cluster worker seals it now (S42)."""
        seal = f"{int(clock().timestamp()):x}.{self.key}"
        return self.plan.with_devices(lambda device: replace(device, seal=seal, strange_to=self.strange_to))

    def require_seal(self, device: PowerDevice) -> None:
        """As a power worker does before it reads a credential: of that key, and not too old (S49)."""
        moment, _, key = device.seal.partition(".")
        if key != self.key or clock().timestamp() - int(moment, 16) > SEALED_FOR.total_seconds():
            problem = f"no worker of this deployment has signed it in the last {SEALED_FOR.days} days"
            raise failure(ErrorType.INVALID_CONFIG, f"{device.endpoint}: {problem}")
        for name in device.strange_to:
            raise failure(ErrorType.INVALID_CONFIG, f"{name}: {device.endpoint}: it was only sent to other hosts")

    def require_voice(self, endpoint: str) -> None:
        """Not of a device that answers nothing."""
        if endpoint in self.silent:
            raise failure(ErrorType.UNREACHABLE, f"{endpoint}: no answer")

    def may_lose_the_answer(self) -> None:
        """It was carried out all the same."""
        if self.off_lost:
            self.off_lost -= 1
            raise failure(ErrorType.AMBIGUOUS, "the answer was lost")

    def seen_node(self) -> SeenNode:
        """The node as it is now."""
        return SeenNode(
            node=NODE,
            present=self.present,
            uid=self.uid,
            ready=self.ready,
            boot_id=self.boot_id,
            provider_id=self.provider_id,
            system_uuid=self.system_uuid,
            ready_since=self.ready_since if self.ready else None,
            unhealthy=not self.ready,
            confirmed_well=self.confirmed_well,
            asked_by=(self.need.object_uid,) if self.need.object_uid and not self.withdrawn else (),
        )

    def held_by_mode(self, request: contract.LookRequest) -> contract.LookVerdict | None:
        """What the gate's row says of its mode to a program, None for nothing."""
        if not (request.destructive and request.need.kind.automatic):
            return None
        (row,) = (each for each in RULES if each.name == MODE)
        mode = mode_of(ClusterModes(setting=self.mode), NODE, {})
        found = row.objection(Seen(mode=mode), request.operation, clock())
        return contract.LookVerdict(found.weight) if found is not None else None

    def is_gone(self, need: NeedKind) -> bool:
        """Whether what began the episode has passed."""
        passed = (need is NeedKind.CHECK and self.ready) or (need is NeedKind.FOREIGN_OBJECT and bool(self.withdrawn))
        return self.excused or passed

    def count(self, name: str) -> int:
        """How often something was done."""
        return self.acts.count(name)

    @property
    def consequences(self) -> list[str]:
        """Acts that need a proof."""
        return [
            act for act in self.acts if act in {"taint", "delete-workload", "free-cut-pods", "delete-node", "free-while-dumping"}
        ]

    def differs(self, request: contract.LookRequest) -> bool:
        """Whether the target is another one than was pinned, by what the look compares."""
        pinned = request.target.pinned
        compared = (
            request.configured is not None and not request.restores and self.present
        )  # of a gone Node nothing is configured
        if compared and set(self.plan.endpoints) != set(pinned.endpoints):
            return True
        return request.destructive and (not self.present or self.uid != pinned.uid)

    def require_pinned(self, target: contract.Target) -> None:
        """As the activities look at the Node that they write to."""
        if self.present and self.uid != target.pinned.uid:
            raise failure(ErrorType.TARGET_CHANGED, f"Node/{NODE} is not the one pinned: uid {self.uid}")

    def require_fenced(self, target: contract.Target) -> None:
        """As they look at it where something is to be freed."""
        self.require_pinned(target)
        if self.present and self.boot_id != target.pinned.boot_id:
            raise failure(ErrorType.NOT_PROVEN, f"Node/{NODE} has booted since it was pinned: boot id {self.boot_id}")

    def consequence(self, request: contract.FreeRequest, name: str) -> None:
        """S1, S2: only with all devices off, read since the command, and with a proof that says so."""
        self.require_fenced(request.target)
        if self.present and self.marked != request.target.incident:
            raise failure(ErrorType.VETOED, f"Node/{NODE} is held by no episode, not by this episode")
        if self.ready:
            self.broken.append(f"S1: {name} while the node says Ready")
        word = request.proof.acknowledgement
        if word is None and not (self.is_off() and self.proof_read):
            self.broken.append(f"S1: {name} while {self.power}, read: {self.proof_read}")
        oldest = min((reading.at for reading in request.proof.readings), default=request.not_after)
        if request.not_after - oldest > max(options.ACT_WINDOW, self.plan.act_deadline + timedelta(seconds=4)):
            self.broken.append(f"S45: {name} may begin {request.not_after - oldest} after power was read")
        if word is None and {reading.endpoint for reading in request.proof.readings} not in self.levels():
            self.broken.append(f"S4: {name} with a proof of {len(request.proof.readings)} of {len(self.power)} devices")

    def command(self, request: contract.PowerRequest, name: str) -> None:
        """S45: whoever looked did so no longer ago than the window of an act, whatever stood still meanwhile."""
        if self.looked_at is not None and (request.not_after is None or request.not_after > self.looked_at + options.ACT_WINDOW):
            self.broken.append(f"S45: {name} may be sent until {request.not_after}, looked for was at {self.looked_at}")

    def levels(self) -> list[set[str]]:
        """The endpoints of each level."""
        return [{device.endpoint for device in level} for level in self.plan.levels]

    def is_off(self) -> bool:
        """Whether all devices of one level are off."""
        return any(all(self.power[each] is PowerState.OFF for each in level) for level in self.levels())


def marked(mark: Mark | None, request: contract.ActRequest) -> Mark:
    """As the real activity writes it over what it finds."""
    target = request.target
    found = replace(mark, workflow_id=target.workflow_id) if mark is not None else None
    return claim(found, target, clock(), request.added)


def _target_of(request: contract.PinRequest, pinned: Pinned) -> contract.Target:
    info, wanted = activity.info(), request.wanted
    return contract.Target(
        cluster=wanted.cluster,
        pinned=pinned,
        incident=wanted.incident,
        kind=info.workflow_type or "",
        workflow_id=info.workflow_id or "",
        run_id=request.marks_as,
    )


class ScriptedTarget:
    """The world behind the contracts. What is not here is asked by no episode."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.looks = self.last_look
        """By which an act looks that looks first."""

    async def verify(self, request: contract.VerifyRequest) -> contract.Verification:
        await self.world.act("verify")
        self.world.may_fail(self.world.verify_errors)
        speaker = self.world.speaker
        if not speaker:
            return contract.Verification(problem="no policy")
        word = contract.SealedCommand(spec=request.spec, action=request.action.uid, speaker=speaker, seal=request.incident)
        return contract.Verification(speaker=speaker, sealed=word)

    async def pin(self, request: contract.PinRequest) -> contract.PinResult:
        world, wanted = self.world, request.wanted
        await world.act("pin")
        world.may_fail(world.pin_errors)
        if wanted.template is not None and not is_fencing_template(wanted.template):
            raise failure(ErrorType.INVALID_CONFIG, f"{wanted.template.key}: expected a FencingTemplate")
        pinned = Pinned(
            node=NODE,
            uid=world.uid,
            provider_id=world.provider_id,
            system_uuid=world.system_uuid,
            boot_id=world.boot_id,
            zone="a",
            not_ready_since=(world.not_ready_since or clock()) if not world.ready else None,
            endpoints=world.plan.endpoints,
            levels=tuple(tuple(device.endpoint for device in level) for level in world.plan.levels),
            addresses=("10.0.0.7",),
        )
        mark, us = world.mark, (wanted.incident, this_run())
        adopted = mark is not None and (mark.incident, mark.run_id) != us
        marks = bool(request.marks_as) and not adopted
        return contract.PinResult(
            pinned=pinned,
            plan=world.sealed_plan(),
            need=wanted.need or world.need,
            adopted_incident=mark.incident if mark is not None and adopted else "",
            adopted_paths=mark.paths if mark is not None else (),
            seen=world.seen_node(),
            added=await self._marked_at_once(_target_of(request, pinned)) if marks else None,
            repairs=world.repairs,
            streams=world.streams,
        )

    async def _marked_at_once(self, target: contract.Target) -> Added | None:
        try:
            return (await self.mark(contract.ActRequest(target=target))).added
        except ApplicationError:  # told by the mark that follows
            return None

    async def mark(self, request: contract.ActRequest) -> contract.ActResult:
        await self.world.act("mark")
        before, self.world.mark = self.world.mark, marked(self.world.mark, request)
        self.world.may_fail(self.world.mark_errors)
        await self._hear_along(request.publication)
        return contract.ActResult(changed=self.world.mark != before, detail="marked", added=self.world.mark.added)

    async def last_look(self, request: contract.LookRequest) -> contract.LookResult:
        world = self.world
        await self._hear_along(request.publication)
        await world.act("look" if request.destructive else "glance")
        world.wishes.append(request.need.command)
        world.overrides.append(request.target.override)
        if world.ready and world.power and PowerState.ON not in world.power.values():
            world.lingers -= 1
            world.ready = world.lingers >= 0
        world.may_fail(world.look_errors)
        holder = ""
        if request.lease is not None:
            world.leased.append(request.lease)
            holder = world.lease_holder if world.lease_holder != request.need.delegate else ""
        world.looked_at = activity.info().scheduled_time if activity.in_activity() else None
        verdict, held = contract.LookVerdict.GO, world.held_by_mode(request)
        if not request.destructive and world.glances:
            verdict = world.glances.pop(0)
        elif request.need_matters and world.is_gone(request.need.kind):
            verdict = contract.LookVerdict.NEED_GONE
        elif request.need_matters and request.need.kind is NeedKind.CLEAN_UP and not world.ready:
            verdict = contract.LookVerdict.VETOED
        elif world.differs(request):
            verdict = contract.LookVerdict.TARGET_CHANGED
        elif held is not None:
            verdict = held
        elif request.destructive and not world.permitted:
            verdict = contract.LookVerdict.NOT_LICENSED
        elif holder:
            verdict = contract.LookVerdict.VETOED
        elif request.destructive and world.looks:
            verdict = world.looks.pop(0)
        elif request.restores and world.preserved and PowerState.ON not in world.power.values():
            verdict = contract.LookVerdict.VETOED
        until = world.lease_until if verdict is contract.LookVerdict.VETOED else None
        return contract.LookResult(
            verdict=verdict,
            reason=f"scripted {verdict} {holder}".strip() if held is None else f"its mode is {world.mode}",
            at=clock(),
            seen=world.seen_node(),
            until=until,
            permitted=world.permitted or not request.destructive,
            endpoints=world.plan.endpoints if request.configured is not None and world.present else None,
            workload=self._standing() if request.counts else None,
            licence=licence_of(request) if verdict is contract.LookVerdict.GO else "",
            held_by_mode=held is not None and held is verdict,
        )

    async def release_lease(self, request: contract.ReleaseRequest) -> None:
        await self.world.act("release-lease")
        self.world.released.append(request.adopted)
        await self._hear_along(request.publication)

    async def publish(self, request: contract.PublishRequest) -> None:
        if (gate := self.world.gates.get("tell")) is not None:
            await gate.wait()
        self.world.may_fail(self.world.tell_errors)
        await self._hear(request.publication)

    async def _hear_along(self, publication: contract.Publication | None) -> None:
        """What an act takes along fails no act."""
        with contextlib.suppress(ApplicationError):
            await self._hear(publication)

    async def _hear(self, publication: contract.Publication | None) -> None:
        """What people are told."""
        if publication is None:
            return
        self.world.streamed += publication.entries
        if publication.shown is not None:
            self.world.shown.append(publication.shown)
        if publication.off is not None:
            await self.world.act("note-off" if publication.off.off_proven else "note-on")
        for event in publication.events:
            await self.world.act(f"event {event.reason}")
            self.world.events.append(event)
            if event.warning:
                self.world.warnings.append(event.reason)

    async def answer_request(self, request: contract.AnswerRequest) -> contract.AnswerResult:
        world = self.world
        await world.act(f"answer {request.answer.stage}")
        world.may_fail(world.answer_errors)
        if not world.withdrawn:
            world.answers_given.append(request.answer.stage)
        return contract.AnswerResult(withdrawn=world.withdrawn)

    async def mark_unschedulable(self, request: contract.CordonRequest) -> contract.ActResult:
        world, seen = self.world, await self.looks(request.look)
        if seen.verdict is not contract.LookVerdict.GO:
            return contract.ActResult(changed=False, detail=seen.reason, look=seen)
        await world.act("cordon")
        changed, world.cordoned = not world.cordoned, True
        if changed and world.mark is not None:
            world.mark = replace(world.mark, cordoned=True)
        added = world.mark.added if world.mark is not None else None
        return contract.ActResult(changed=changed, detail="cordoned", added=added, look=seen)

    async def note_path(self, request: contract.PathRequest) -> contract.ActResult:
        world = self.world
        await world.act(f"note {'cut' if request.cut else 'back'}")
        if world.mark is None:
            raise failure(ErrorType.VETOED, "the node carries no mark of ours")
        others = tuple(each for each in world.mark.paths if each != request.endpoint)
        world.mark = replace(world.mark, paths=(*others, request.endpoint) if request.cut else others)
        return contract.ActResult(changed=True, detail="noted")

    async def taint(self, request: contract.TaintRequest) -> contract.ActResult:
        world, taint, seen = self.world, spelled(request.taint), await self.looks(request.look)
        if seen.verdict is not contract.LookVerdict.GO:
            return contract.ActResult(changed=False, detail=seen.reason, look=seen)
        await world.act(f"taint {request.taint.key}")
        changed = world.mark is not None and taint not in world.mark.taints
        if world.mark is not None:
            world.mark = replace(world.mark, taints=tuple(dict.fromkeys((*world.mark.taints, taint))))
        added = world.mark.added if world.mark is not None else None
        return contract.ActResult(changed=changed, detail="tainted", added=added, look=seen)

    async def drain(self, request: contract.DrainRequest) -> contract.DrainResult:
        if request.not_after is not None and clock() > request.not_after:
            raise failure(ErrorType.EXPIRED, "the drain comes too late")
        await self.world.act("drain")
        return self.world.drains.pop(0) if self.world.drains else contract.DrainResult()

    async def mark_schedulable(self, request: contract.RestoreRequest) -> contract.ActResult:
        await self.world.act("uncordon" if not request.keep_cordon else "unmark")
        self.world.cordoned = self.world.cordoned and (request.keep_cordon or bool(self.world.noted))
        self.world.tainted = self.world.tainted and not (self.world.marked or request.tainted)
        self.world.mark = self.world.mark if self.world.noted else None
        await self._hear_along(request.publication)
        return contract.ActResult(changed=True, detail="uncordoned")

    async def taint_out_of_service(self, request: contract.FreeRequest) -> contract.ActResult:
        world = self.world
        world.may_fail(world.free_errors)
        if world.per_minute is not None:
            raise failure(ErrorType.NOT_LICENSED, "a taint frees all at once")
        if not world.present:
            raise failure(ErrorType.NOT_FOUND, f"Node/{NODE} is gone: delete what is left of its workload")
        world.consequence(request, "taint")
        await world.act("taint")
        world.tainted = True
        world.pods = world.pods if world.pods_stay else 0
        return contract.ActResult(changed=True, detail="tainted", left=self._standing())

    async def delete_workload(self, request: contract.FreeRequest) -> contract.FreeResult:
        world = self.world
        world.may_fail(world.free_errors)
        world.consequence(request, "delete-workload")
        await world.act("delete-workload")
        deleted = world.pods if world.per_minute is None else min(request.at_most or 0, world.pods)
        deleted = 0 if world.pods_stay else deleted
        world.pods -= deleted
        return contract.FreeResult(
            deleted_pods=deleted, left=contract.Workload(pods=world.pods, attachments=0, per_minute=world.per_minute)
        )

    async def delete_node(self, request: contract.FreeRequest) -> contract.ActResult:
        self.world.consequence(request, "delete-node")
        await self.world.act("delete-node")
        self.world.present, self.world.tainted = False, False
        return contract.ActResult(changed=True, detail="deleted")

    async def free_cut_pods(self, request: contract.FreeCutRequest) -> contract.FreeResult:
        world = self.world
        cut = {reading.endpoint for proof in request.proofs for reading in proof.readings}
        detached = {each.volume for proof in request.proofs for each in proof.volumes}
        if not cut | detached or any(world.paths[each] is not PowerState.OFF for each in cut):
            world.broken.append(f"S1: pods were freed behind {cut} while {world.paths}")
        if any(world.volumes[each] is not VolumeState.AVAILABLE for each in detached) or set(request.storage.handles) != detached:
            world.broken.append(f"S1: pods of {request.storage.handles} were freed while {world.volumes}")
        if not cut <= set(request.target.pinned.endpoints):
            world.broken.append(f"S9: {cut} was cut, pinned are {request.target.pinned.endpoints}")
        if world.boot_id != request.target.pinned.boot_id:
            raise failure(ErrorType.NOT_PROVEN, "the node has booted since it was pinned")
        if not world.is_off():
            world.command(request, "free-cut-pods")
        await world.act("free-cut-pods")
        deleted = world.cut_pods if world.per_minute is None else min(request.at_most or 0, world.cut_pods)
        world.cut_pods -= deleted
        world.storage = request.storage
        return contract.FreeResult(
            deleted_pods=deleted,
            left=contract.Workload(pods=max(world.cut_pods, world.cut_pods_stay), attachments=0, per_minute=world.per_minute),
        )

    async def free_while_dumping(self, request: contract.FreeDumpingRequest) -> contract.FreeResult:
        world, pinned = self.world, request.target.pinned
        if world.plan.kdump is None or not world.plan.kdump.trusted:
            world.broken.append("S2: pods were freed on a message that the configuration does not trust")
        if not dead_stands(request.proof, not_ready_since=pinned.not_ready_since, addresses=pinned.addresses):
            world.broken.append(f"S1: pods were freed on {request.proof}")
        if world.commands:
            world.broken.append("S6: pods were freed on a message from before a power command")
        if request.not_after > request.proof.last + timedelta(seconds=16):  # the clocks of server and worker differ a little
            world.broken.append(f"S2: pods may be freed {request.not_after - request.proof.last} after the message")
        if world.boot_id != pinned.boot_id or world.ready:
            raise failure(ErrorType.NOT_PROVEN, "the node is up, or has booted")
        await world.act("free-while-dumping")
        deleted, world.pods = min(world.pods, world.dumping_frees), max(world.pods - world.dumping_frees, 0)
        return contract.FreeResult(deleted_pods=deleted, left=contract.Workload(pods=world.pods, attachments=0))

    async def read_workload(self, request: contract.WorkloadRequest) -> contract.Workload:
        if request.under is not None:
            self.world.may_fail(self.world.taint_errors)
            self.world.require_fenced(request.target)
            if self.world.ready:
                raise failure(ErrorType.NOT_PROVEN, f"Node/{NODE} says Ready, so it is not off")
        return self._standing()

    def _standing(self) -> contract.Workload:
        names = tuple(f"pod-{number}" for number in range(self.world.pods))
        limit = self.world.per_minute
        return contract.Workload(pods=self.world.pods, attachments=0, names=names, workloads=names, per_minute=limit)

    async def untaint_out_of_service(self, request: contract.UntaintRequest) -> contract.ActResult:
        await self.world.act("untaint")
        self.world.may_fail(self.world.untaint_errors)
        changed = bool(self.world.marked or request.ours)
        self.world.tainted = self.world.tainted and not changed
        seen = await self.looks(request.look) if request.look is not None else None
        return contract.ActResult(changed=changed, detail="untainted" if changed else "left alone", look=seen)

    async def read_power(self, request: contract.PowerRequest) -> Reading:
        world = self.world
        world.require_seal(request.device)
        await world.act("read")
        world.may_fail(world.read_errors)
        world.require_voice(request.device.endpoint)
        if (due := world.off_due.get(request.device.endpoint)) is not None and clock() >= due:
            del world.off_due[request.device.endpoint]
            world.power[request.device.endpoint] = PowerState.OFF
        endpoint = request.device.endpoint
        world.power[endpoint] = state = world.others.pop(0) if world.others else world.power[endpoint]
        world.contradicted = world.contradicted or (world.proof_read and state is PowerState.ON)
        world.told[endpoint] = state
        world.proof_read = world.is_off() and PowerState.ON not in world.told.values() and not world.contradicted
        return Reading(endpoint=endpoint, state=state, at=clock() + world.ahead)

    async def power_off(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.OFF)
        world, endpoint = self.world, request.device.endpoint
        world.command(request, "off")
        world.may_fail(world.off_errors)
        world.require_voice(endpoint)
        if world.is_off() and world.proof_read:
            world.broken.append("S33: an off after off had been proven")
        await world.act("off")
        world.told.clear()
        world.contradicted = False
        world.commands.append(f"off {endpoint}")
        before = world.power[endpoint]
        if world.off_takes:
            world.off_due[endpoint] = clock() + world.off_takes
        elif not world.ignores_off and endpoint not in world.stuck:
            world.power[endpoint], world.proof_read = PowerState.OFF, False
            world.ready = world.ready and world.lingers > 0
        world.may_lose_the_answer()
        return contract.CommandResult(sent=True, before=before, after=await self._read_back(request))

    async def _read_back(self, request: contract.PowerRequest) -> Reading | None:
        with contextlib.suppress(ApplicationError):
            return await self.read_power(request) if request.read_back else None
        return None

    async def power_on(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.ON)
        world, endpoint = self.world, request.device.endpoint
        world.command(request, "on")
        world.may_fail(world.on_errors)
        if world.tainted:
            world.broken.append("S32: power on while our taint stands")
        world.require_voice(endpoint)
        await world.act("on")
        world.commands.append(f"on {endpoint}")
        before = world.power[endpoint]
        world.power[endpoint] = PowerState.ON
        fed = sum(state is PowerState.ON for state in world.power.values())
        if world.boots and before is PowerState.OFF and fed == (world.enough or len(world.power)):
            world.boot_id, world.ready, world.ready_since = "boot-2", True, clock()
            if not world.present:  # the kubelet registers anew
                world.present, world.uid = True, "uid-2"
        return contract.CommandResult(sent=True, before=before, after=await self._read_back(request))

    async def read_kdump(self, request: contract.KdumpRequest) -> KdumpReading:
        world = self.world
        await world.act("read-kdump")
        if world.kdump is None:
            raise failure(ErrorType.NOT_SUPPORTED, "this worker does not listen")
        first, dumping = world.kdump_began or clock() - world.heard_ago, world.kdump
        world.kdump_began = first
        last = min(clock(), first + dumping) if dumping else None
        return KdumpReading(
            at=clock() + world.ahead,
            listening=first - timedelta(hours=1) + world.ahead,
            address="10.0.0.7",
            first=first + world.ahead if last else None,
            last=last + world.ahead if last else None,
            messages=3 if last else 0,
        )

    async def terminate(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.TERMINATE)
        world = self.world
        if PowerState.ON in world.power.values():
            world.broken.append("S1: a machine that runs was given up")
        await world.act("terminate")
        world.may_fail(world.terminate_errors)
        return contract.CommandResult(sent=True, before=PowerState.OFF, machine="number-1")

    async def read_given_up(self, request: contract.GivenUpRequest) -> GivenUpReading:
        world = self.world
        world.require_seal(request.device)
        await world.act("read-given-up")
        given_up = "terminate" in world.acts and world.stays <= 0
        world.stays -= 1
        detail = f"{request.machine or 'one of that name'} is {'gone' if given_up else 'there'}"
        return GivenUpReading(endpoint=request.device.endpoint, given_up=given_up, at=clock(), detail=detail)

    async def read_path(self, request: contract.PowerRequest) -> Reading:
        self.world.require_seal(request.device)
        endpoint = request.device.endpoint
        await self.world.act("read-path")
        self.world.require_voice(endpoint)
        return Reading(endpoint=endpoint, state=self.world.paths[endpoint], at=clock() + self.world.ahead)

    async def cut_path(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.CUT_PATH)
        return await self._path(request, PowerState.OFF, "cut-path")

    async def restore_path(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.RESTORE_PATH)
        return await self._path(request, PowerState.ON, "restore-path")

    async def quarantine(self, request: contract.PowerRequest) -> Quarantine:
        self._require_licence(request, PowerAct.QUARANTINE)
        self.world.may_fail(self.world.quarantine_errors)
        await self.world.act("quarantine")
        self.world.may_lose_the_answer()
        return Quarantine(group="sg-quarantine", former=(), at=clock())

    async def lift_quarantine(self, request: contract.LiftRequest) -> contract.QuarantineLifted:
        self._require_licence(request, PowerAct.LIFT_QUARANTINE)
        await self.world.act("lift-quarantine")
        return contract.QuarantineLifted(groups=())

    async def list_volumes(self, request: contract.PowerRequest) -> contract.VolumesResult:
        self.world.require_seal(request.device)
        await self.world.act("list-volumes")
        attached = [VolumeReading(volume="vol-root", state=VolumeState.ATTACHED, at=clock() + self.world.ahead, root=True)]
        for volume, state in self.world.volumes.items():
            if state is VolumeState.ATTACHED:
                attached.append(VolumeReading(volume=volume, state=state, at=clock() + self.world.ahead))
        return contract.VolumesResult(volumes=tuple(attached))

    async def detach_volume(self, request: contract.VolumeRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.DETACH_VOLUME)
        world = self.world
        await world.act(f"detach {request.volume}")
        world.may_fail(world.detach_errors)
        if request.volume not in world.stuck:
            world.volumes[request.volume] = VolumeState.AVAILABLE
        world.may_lose_the_answer()
        return contract.CommandResult(sent=True, before=PowerState.UNKNOWN)

    async def read_volume(self, request: contract.VolumeRequest) -> VolumeReading:
        self.world.require_seal(request.device)
        await self.world.act("read-volume")
        return VolumeReading(volume=request.volume, state=self.world.volumes[request.volume], at=clock() + self.world.ahead)

    def _require_licence(self, request: DeviceCommand, act: PowerAct) -> None:
        if not is_licensed(request, act):
            self.world.broken.append(f"S42: {act} without a licence of a look, but {request.licence!r}")
        self.world.require_seal(request.device)

    async def _path(self, request: contract.PowerRequest, state: PowerState, act: str) -> contract.CommandResult:
        world, endpoint = self.world, request.device.endpoint
        world.require_voice(endpoint)
        if state is PowerState.OFF and endpoint not in world.noted:
            world.broken.append(f"S35: {endpoint} was cut without a note")
        if state is PowerState.ON and world.consequences and world.boot_id == "boot-1" and not world.word:
            world.broken.append(f"{endpoint} was given back after consequences, without a restart or a person's word")
        await world.act(act)
        before = world.paths[endpoint]
        if endpoint not in world.stuck:
            world.paths[endpoint] = state
        return contract.CommandResult(sent=before is not state, before=before)

    async def request_permit(self, request: contract.AskPermit) -> PermitAnswer:
        await self.world.act("ask-permit")
        self.world.permits.append(request.permit)
        answer = self.world.answers.pop(0) if self.world.answers else PermitAnswer(decision=PermitDecision.GRANTED, holder="us")
        self.world.permitted = self.world.permitted or answer.decision is PermitDecision.GRANTED
        return answer

    async def ask_portion(self, request: contract.AskPortion) -> PortionAnswer:
        await self.world.act(f"ask for {request.portion.pods} pods")
        return self.world.portions.pop(0) if self.world.portions else PortionAnswer(problem="no scanner runs")
