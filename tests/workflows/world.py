"""A scripted world for workflow tests: one node, its BMCs, its pods, behind the real activity contracts.

It keeps the order of everything that was done, checks the rules that hold at every single moment (S1, S2, S32) while it is
acted on, and misbehaves as told. Nothing here decides: what it answers follows from its state alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.errors import ErrorType, failure
from activities.worker_clock import waited_for_a_worker
from policy.episode.gate import MODE, RULES, Seen
from policy.episode.messages import Need, NeedKind, Reading, RecordEntry, SeenNode
from policy.episode.modes import ClusterModes, mode_of
from policy.episode.permits import PermitAnswer, PermitDecision, PermitRequest, PortionAnswer
from policy.fence.kdump import KdumpReading, dead_stands
from policy.fence.plan import SEALED_FOR, FencingPlan, PowerDevice
from policy.fence.power import PowerAct, PowerState, VolumeState
from policy.fence.template_reader import is_fencing_template
from policy.history.offenders import NO_REPAIRS, FoundRepairs
from policy.objects.marks import Mark
from policy.values.mode import Mode
from tests.licensing import licence_of
from tests.workflows import contract
from tests.workflows.machine import NODE, Machine
from tests.workflows.plans import plan
from tests.workflows.played_acts import DeviceActs, Freeing, NodeActs
from workflows.kit import options

CLUSTER = "prod"

CLOCKS_DIFFER = timedelta(milliseconds=50)
"""That of the server, by which a look began, and that of this process."""


def clock() -> datetime:
    """The time of this attempt: it skips with the workflow, as our own clock does not."""
    return activity.info().started_time


def this_run() -> str:
    """The run of the workflow that asks."""
    return activity.info().workflow_run_id or ""


def left_by(incident: str, **changes: object) -> Mark:
    """The mark of an episode of the same id that was terminated."""
    return Mark(incident=incident, kind="Fencing", workflow_id="", run_id="a run before", **changes)  # type: ignore[arg-type]


@dataclass
class World(Machine):
    """A machine and its Node, with all that an episode may ask of others. `acts` is what was done, in order.

    It is what its fields say: a test sets them, before the episode or in the middle of an act (`gates`).
    """

    plan: FencingPlan = field(default_factory=plan)
    boot_seconds: float | None = 0.0
    pods: int = 3
    volumes: dict[str, VolumeState] = field(default_factory=dict)
    need: Need = field(default_factory=lambda: Need(kind=NeedKind.CHECK, reason="NodeHealthCheck/workers: Ready is Unknown"))
    # What goes wrong
    errors: dict[str, list[ApplicationError]] = field(default_factory=dict)
    """By the first word of an act, as `acts` has it: what its next attempts fail with, before they change anything."""
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    """An act named here waits until the event is set, so that a test can do something in the middle."""
    lost: dict[str, int] = field(default_factory=dict)
    """By act: how many of its answers are lost after it was carried out."""
    ignores_off: bool = False
    """All power devices accept an off, and go on saying on."""
    enough: int | None = None
    """How many of its devices are enough for the machine to run; None: all of them."""
    cut_pods_stay: int = 0
    """So many pods behind the cut do not go."""
    others: list[PowerState] = field(default_factory=list)
    """What others have switched the machine to by the next readings."""
    ahead: timedelta = timedelta(0)
    """By how much the clock of the workers that speak to devices is ahead of Temporal's."""
    key: str = "key"
    """What the seals of devices are made with by now."""
    strange_to: tuple[str, ...] = ()
    """What the check of devices says of the devices' credentials by now."""
    kdump: timedelta | None = None
    """How long the node writes its crash dump, from the first question on; None: nobody listens for it."""
    kdump_began: datetime | None = None
    heard_ago: timedelta = timedelta(0)
    """How long before the first question the first message came."""
    drains: list[contract.DrainResult] = field(default_factory=list)
    """What rounds of a drain answer; then it is done."""
    # What others say
    mode: Mode = Mode.REPAIR
    repairs: FoundRepairs = NO_REPAIRS
    """What visibility says of the machine."""
    permitted: bool = True
    """Whether the scanner knows of a permit, as a last look hears."""
    answers: list[PermitAnswer] = field(default_factory=list)
    """What the scanner says to the next requests; then it grants."""
    portions: list[PortionAnswer] = field(default_factory=list)
    """What the scanner lets go; None are left: it can't be asked."""
    looks: list[contract.LookVerdict] = field(default_factory=list)
    """What the next looks before what destroys say."""
    glances: list[contract.LookVerdict] = field(default_factory=list)
    """The same for looks before what restores."""
    lease_holder: str = ""
    lease_until: datetime | None = None
    preserved: bool = False
    deprovisioned: bool = False
    """Its Machine goes, or is gone."""
    confirmed_well: bool = False
    """A person has confirmed that it is well."""
    excused: bool = False
    """Nobody asks for the node any more, whatever it says."""
    withdrawn: str = ""
    """Why the object that asked for the node asks no more."""
    word: bool = False
    """A person has said that paths may be given back."""
    speaker: str = ""
    """By which name Kubernetes attests who speaks; "": it does not."""
    streams: bool | None = True
    """Whether the workers have a decision stream."""
    # What was done and said
    acts: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    """What reached which device."""
    broken: list[str] = field(default_factory=list)
    """Rules that did not hold."""
    permits: list[PermitRequest] = field(default_factory=list)
    """What the scanner was asked for."""
    released: list[str] = field(default_factory=list)
    """Each time that its Lease was released, the adopted incident for which it was, too."""
    leased: list[timedelta] = field(default_factory=list)
    """For how long each time the node's lease was to be taken."""
    wishes: list[contract.SealedCommand | None] = field(default_factory=list)
    overrides: list[contract.SealedCommand | None] = field(default_factory=list)
    """Of the person who asked for the episode, as looks have it."""
    shown: list[contract.EpisodeSnapshot] = field(default_factory=list)
    events: list[contract.PublishedEvent] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """Events that were published as a Warning."""
    streamed: list[RecordEntry] = field(default_factory=list)
    """Lines of the record, as activities that completed took them to the decision stream."""
    answers_given: list[str] = field(default_factory=list)
    # What it watches
    looked_at: datetime | None = None
    """When the latest look was asked for."""
    proof_read: bool = False
    """Whether every device has been read OFF since the last command, and none ON."""
    contradicted: bool = False
    """Whether one has said ON after that."""
    told: dict[str, PowerState] = field(default_factory=dict)
    """What each device that was read has said since the last off."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.errors = defaultdict(list, self.errors)

    @property
    def runs(self) -> bool:
        """Whether enough of its devices feed it."""
        fed = sum(state is PowerState.ON for state in self.power.values())
        return fed >= (len(self.power) if self.enough is None else self.enough) and self.plugged and not self.terminated

    @property
    def marked(self) -> str:
        """Whose mark stands on the node, "" for nobody's."""
        return self.mark.incident if self.mark is not None else ""

    @property
    def noted(self) -> set[str]:
        """The paths that the mark tells of."""
        return set(self.mark.paths) if self.mark is not None else set()

    def may_fail(self, act: str) -> None:
        """Fail with the next of its errors."""
        if errors := self.errors.get(act):
            raise errors.pop(0)

    async def act(self, name: str) -> None:
        """Note an act; wait at its gate if it has one; then fail with the next of its errors."""
        self.acts.append(name)
        if (gate := self.gates.get(name)) is not None:
            await gate.wait()
        self.may_fail(name.partition(" ")[0])

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

    def seen_node(self) -> SeenNode:
        """The node as it is now."""
        asked_by = (self.need.object_uid,) if self.need.object_uid and not self.withdrawn else ()
        return replace(super().seen_node(), confirmed_well=self.confirmed_well, asked_by=asked_by)

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

    def consequence(self, request: contract.FreeRequest, name: str) -> None:
        """S1, S2: only with all devices off, read since the command, and with a proof that says so."""
        pinned = request.target.pinned
        if self.present and (self.uid, self.boot_id, self.marked) != (pinned.uid, pinned.boot_id, request.target.incident):
            return  # refused
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

    def cut_consequence(self, request: contract.FreeCutRequest) -> None:
        """S1, S9: only what is behind paths that are cut, and volumes that are detached."""
        cut = {reading.endpoint for proof in request.proofs for reading in proof.readings}
        detached = {each.volume for proof in request.proofs for each in proof.volumes}
        if not cut | detached or any(self.paths[each] is not PowerState.OFF for each in cut):
            self.broken.append(f"S1: pods were freed behind {cut} while {self.paths}")
        if any(self.volumes[each] is not VolumeState.AVAILABLE for each in detached) or set(request.storage.handles) != detached:
            self.broken.append(f"S1: pods of {request.storage.handles} were freed while {self.volumes}")
        if not cut <= set(request.target.pinned.endpoints):
            self.broken.append(f"S9: {cut} was cut, pinned are {request.target.pinned.endpoints}")
        if not self.is_off():
            self.within_its_look(request.not_after, "free-cut-pods")

    def dumping_consequence(self, request: contract.FreeDumpingRequest) -> None:
        """S1, S2, S6: only moments after a message that is trusted, and before any command."""
        pinned = request.target.pinned
        if self.plan.kdump is None or not self.plan.kdump.trusted:
            self.broken.append("S2: pods were freed on a message that the configuration does not trust")
        if not dead_stands(request.proof, not_ready_since=pinned.not_ready_since, addresses=pinned.addresses):
            self.broken.append(f"S1: pods were freed on {request.proof}")
        if self.commands:
            self.broken.append("S6: pods were freed on a message from before a power command")
        if request.not_after > request.proof.last + timedelta(seconds=16):  # the clocks of server and worker differ a little
            self.broken.append(f"S2: pods may be freed {request.not_after - request.proof.last} after the message")

    def within_its_look(self, not_after: datetime | None, name: str) -> None:
        """S45: what looked did so no longer ago than the window of an act, whatever stood still meanwhile."""
        latest = self.looked_at + options.ACT_WINDOW + CLOCKS_DIFFER if self.looked_at is not None else None
        if latest is not None and (not_after is None or not_after > latest):
            self.broken.append(f"S45: {name} may be sent until {not_after}, looked for was at {self.looked_at}")

    def hears(self, reading: Reading) -> None:
        """A device has answered."""
        self.contradicted = self.contradicted or (self.proof_read and reading.state is PowerState.ON)
        self.told[reading.endpoint] = reading.state
        self.proof_read = self.is_off() and PowerState.ON not in self.told.values() and not self.contradicted

    def levels(self) -> list[set[str]]:
        """The endpoints of each level."""
        return [{device.endpoint for device in level} for level in self.plan.levels]

    def is_off(self) -> bool:
        """Whether all devices of one level are off."""
        return any(all(self.power[each] is PowerState.OFF for each in level) for level in self.levels())


class ScriptedTarget(NodeActs, DeviceActs):
    """The world behind the contracts. What is not here is asked by no episode."""

    def __init__(self, world: World) -> None:
        self.world = self.machine = world

    @property
    def moment(self) -> datetime:
        return clock()

    @property
    def clock(self) -> datetime:
        return clock() + self.world.ahead

    def fault(self, rule: str, what: str) -> None:
        self.world.broken.append(f"{rule}: {what}")

    async def act(self, name: str) -> None:
        self.world.settle(self.moment)
        await self.world.act(name)

    async def verify(self, request: contract.VerifyRequest) -> contract.Verification:
        await self.act("verify")
        speaker = self.world.speaker
        if not speaker:
            return contract.Verification(problem="no policy")
        word = contract.SealedCommand(spec=request.spec, action=request.action.uid, speaker=speaker, seal=request.incident)
        return contract.Verification(speaker=speaker, sealed=word)

    # The Node -------------------------------------------------------------------------------------------------------

    def identity(self) -> tuple[str, str, str]:
        info = activity.info() if activity.in_activity() else None
        return (info.workflow_id or "", this_run(), info.workflow_type or "") if info is not None else ("", this_run(), "")

    def begins(self, request: contract.PinRequest) -> None:
        self.need = self.world.need
        if (template := request.wanted.template) is not None and not is_fencing_template(template):
            raise failure(ErrorType.INVALID_CONFIG, f"{template.key}: expected a FencingTemplate")

    async def pin(self, request: contract.PinRequest) -> contract.PinResult:
        pinned, world = await super().pin(request), self.world
        return replace(pinned, plan=world.sealed_plan(), repairs=world.repairs, streams=world.streams)

    def is_ours(self, mark: Mark, target: contract.Target) -> bool:
        return mark.incident == target.incident and mark.workflow_id in {"", target.workflow_id}

    async def mark(self, request: contract.ActRequest) -> contract.ActResult:
        if (mark := self.world.mark) is not None:  # of an episode of that id, whatever `left_by` knew of it
            self.world.mark = replace(mark, workflow_id=request.target.workflow_id)
        return await super().mark(request)

    def judge_freeing(self, request: Freeing, act: str) -> None:
        world = self.world
        if isinstance(request, contract.FreeCutRequest):
            world.cut_consequence(request)
        elif isinstance(request, contract.FreeDumpingRequest):
            world.dumping_consequence(request)
        else:
            world.may_fail("free")
            world.consequence(request, act)

    async def free_cut_pods(self, request: contract.FreeCutRequest) -> contract.FreeResult:
        done = await super().free_cut_pods(request)
        return replace(done, left=replace(done.left, pods=max(done.left.pods, self.world.cut_pods_stay)))

    async def read_workload(self, request: contract.WorkloadRequest) -> contract.Workload:
        if request.under is not None:
            self.world.may_fail("standing")
        return await super().read_workload(request)

    async def drain(self, request: contract.DrainRequest) -> contract.DrainResult:
        if request.not_after is not None and clock() > request.not_after:
            raise failure(ErrorType.EXPIRED, "the drain comes too late")
        await self.act("drain")
        return self.world.drains.pop(0) if self.world.drains else contract.DrainResult()

    async def publish_along(self, publication: contract.Publication | None) -> None:
        with contextlib.suppress(ApplicationError):  # what an act takes along fails no act
            await self._hear(publication)

    async def last_look(self, request: contract.LookRequest) -> contract.LookResult:
        world = self.world
        await self.publish_along(request.publication)
        if not request.destructive:
            world.may_fail("look")
        await self.act("look" if request.destructive else "glance")
        world.wishes.append(request.need.command)
        world.overrides.append(request.target.override)
        holder = ""
        if request.lease is not None:
            world.leased.append(request.lease)
            holder = world.lease_holder if world.lease_holder != request.need.delegate else ""
        world.looked_at = clock() if activity.in_activity() else None
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
        elif request.restores and world.deprovisioned and not world.present:
            of_power = request.licenses is None or request.licenses.act is PowerAct.ON
            verdict = contract.LookVerdict.NEED_GONE if of_power else contract.LookVerdict.GO
        until = world.lease_until if verdict is contract.LookVerdict.VETOED else None
        queued = waited_for_a_worker()
        return contract.LookResult(
            verdict=verdict,
            reason=f"scripted {verdict} {holder}".strip() if held is None else f"its mode is {world.mode}",
            at=clock(),
            seen=world.seen_node(),
            until=until,
            permitted=world.permitted or not request.destructive,
            endpoints=world.plan.endpoints if request.configured is not None and world.present else None,
            workload=self.standing() if request.counts else None,
            licence=licence_of(request, queued) if verdict is contract.LookVerdict.GO else "",
            held_by_mode=held is not None and held is verdict,
            queued=queued,
        )

    async def release_lease(self, request: contract.ReleaseRequest) -> None:
        await self.act("release-lease")
        self.world.released.append(request.adopted)
        await self.publish_along(request.publication)

    async def publish(self, request: contract.PublishRequest) -> None:
        if (gate := self.world.gates.get("tell")) is not None:
            await gate.wait()
        self.world.may_fail("publish")
        await self._hear(request.publication)

    async def _hear(self, publication: contract.Publication | None) -> None:
        """What people are told."""
        if publication is None:
            return
        self.world.streamed += publication.entries
        if publication.shown is not None:
            self.world.shown.append(publication.shown)
        if publication.off is not None:
            await self.act("note-off" if publication.off.off_proven else "note-on")
        for event in publication.events:
            await self.act(f"event {event.reason}")
            self.world.events.append(event)
            if event.warning:
                self.world.warnings.append(event.reason)

    async def answer_request(self, request: contract.AnswerRequest) -> contract.AnswerResult:
        world = self.world
        await self.act(f"answer {request.answer.stage}")
        if not world.withdrawn:
            world.answers_given.append(request.answer.stage)
        return contract.AnswerResult(withdrawn=world.withdrawn)

    # Devices --------------------------------------------------------------------------------------------------------

    def require_seal(self, device: PowerDevice) -> None:
        self.world.require_seal(device)

    def obeys(self, device: str) -> bool:
        return super().obeys(device) and not (self.world.ignores_off and device in self.world.power)

    def is_noted(self, path: str) -> bool | None:
        return path in self.world.noted

    async def read_power(self, request: contract.PowerRequest) -> Reading:
        world, endpoint = self.world, request.device.endpoint
        reading = await super().read_power(request)
        if world.others:
            world.power[endpoint] = world.others.pop(0)
            reading = replace(reading, state=world.power[endpoint])
        world.hears(reading)
        return reading

    def commanded(self, request: contract.PowerRequest | contract.VolumeRequest, act: PowerAct) -> datetime:
        world, endpoint = self.world, request.device.endpoint
        if act in {PowerAct.OFF, PowerAct.ON}:
            world.within_its_look(request.not_after, act)
            world.commands.append(f"{'off' if act is PowerAct.OFF else 'on'} {endpoint}")
        if act is PowerAct.OFF:
            if world.is_off() and world.proof_read:
                self.fault("S33", "an off after off had been proven")
            world.told.clear()
            world.contradicted = False
            world.proof_read = world.proof_read and not self.obeys(endpoint)
        if act is PowerAct.ON and world.out_of_service:
            self.fault("S32", "power on while our taint stands")
        if act is PowerAct.RESTORE_PATH and world.consequences and world.boot_id == "boot-1" and not world.word:
            self.fault("S35", f"{endpoint} was given back after consequences, without a restart or a person's word")
        if act is PowerAct.TERMINATE and PowerState.ON in world.power.values():
            self.fault("S1", "a machine that runs was given up")
        takes = {PowerAct.OFF: world.off_takes, PowerAct.TERMINATE: world.terminate_takes}
        return self.moment + takes.get(act, timedelta(0))

    def answered(self, act: str) -> None:
        if self.world.lost.get(act):
            self.world.lost[act] -= 1
            raise failure(ErrorType.AMBIGUOUS, "the answer was lost")

    async def read_kdump(self, request: contract.KdumpRequest) -> KdumpReading:
        world = self.world
        await self.act("read-kdump")
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

    # The scanner ----------------------------------------------------------------------------------------------------

    async def request_permit(self, request: contract.AskPermit) -> PermitAnswer:
        await self.act("ask-permit")
        self.world.permits.append(request.permit)
        answer = self.world.answers.pop(0) if self.world.answers else PermitAnswer(decision=PermitDecision.GRANTED, holder="us")
        self.world.permitted = self.world.permitted or answer.decision is PermitDecision.GRANTED
        return answer

    async def ask_portion(self, request: contract.AskPortion) -> PortionAnswer:
        await self.act(f"ask for {request.portion.pods} pods")
        return self.world.portions.pop(0) if self.world.portions else PortionAnswer(problem="no scanner runs")
