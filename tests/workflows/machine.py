"""The truth about one machine and its Node, whatever anybody believes or has commanded.

Whether the machine runs follows from its devices, from its plug, and from what others do to it. Nothing here knows of episodes
or rules: what is told of it is `adversary.py`, what may be done to it `referee.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from policy.episode.messages import SeenNode
from policy.fence.plan import Act, CutStorage, FencingPlan
from policy.fence.power import PowerState, VolumeState
from policy.objects.marks import Mark
from policy.values.object_refs import ObjectRef

NODE = "node-7"
OURS, ANOTHER = "7", "8"
VOLUMES = ("vol-a", "vol-b")


@dataclass
class Machine:
    """One machine under one name; another may take the name."""

    plan: FencingPlan
    name: str = NODE
    """Of its Node."""
    boot_seconds: float | None = 40.0
    """How long it takes to boot; None: for ever."""
    lingers: float = 0.0
    """For how many seconds a node that is off goes on being called Ready, as until its Lease lapses."""
    # Its devices
    power: dict[str, PowerState] = field(default_factory=dict)
    """By endpoint, of all levels: what the device lets through."""
    silent: set[str] = field(default_factory=set)
    """Devices that answer nothing."""
    locked: set[str] = field(default_factory=set)
    """Devices that take our password no more."""
    has_secret: bool = True
    """Whether there is a password for the devices that are `locked`, although it is not taken."""
    stuck: set[str] = field(default_factory=set)
    """Devices that accept an off and do nothing."""
    plugged: bool = True
    miswired: bool = False
    """All levels but the first are the supplies of another machine."""
    terminated: bool = False
    paths: dict[str, PowerState] = field(default_factory=dict)
    volumes: dict[str, VolumeState] = field(default_factory=lambda: dict.fromkeys(VOLUMES, VolumeState.ATTACHED))
    quarantined: bool = False
    # What runs on it
    pods: int = 2
    cut_pods: int = 2
    """How many of them are behind a path that can be cut."""
    stubborn: bool = False
    """Pods and attachments stay whatever is done."""
    per_minute: int | None = None
    """How many pods may be freed in a minute; None: all at once."""
    off_takes: timedelta = timedelta(0)
    """How long after its off a machine still says on."""
    terminate_takes: timedelta = timedelta(0)
    """How long a cloud takes to give it up."""
    dumping_frees: int = 100
    """How many pods a round frees while the node dumps."""
    freed_storage: CutStorage | None = None
    """What was freed behind a cut last."""
    dump: tuple[datetime, datetime] | None = None
    """From when until when the kernel writes its dump; until the next boot nothing runs on it."""
    # The Node
    present: bool = True
    uid: str = "uid-1"
    provider_id: str = f"sim://{OURS}"
    system_uuid: str = f"sys-{OURS}"
    boot_id: str = "boot-1"
    ready: bool = False
    ready_since: datetime | None = None
    not_ready_since: datetime | None = None
    """As the pin finds it; None: the node has just fallen silent."""
    boots: int = 1
    booting: datetime | None = None
    """When the boot under way will be done."""
    on_since: datetime | None = None
    unschedulable: bool = False
    mark: Mark | None = None
    out_of_service: bool = False
    taints: set[str] = field(default_factory=set)
    hidden: Callable[[], bool] = lambda: False
    """Whether no source can say that it runs."""
    exposed: timedelta = timedelta(0)
    """For how long, all together, the out-of-service taint has stood on the machine's Node while the machine ran."""
    exposed_ready: timedelta = timedelta(0)
    """The same, while the Node said so."""
    _coming: list[tuple[datetime, Callable[[], None]]] = field(default_factory=list)
    _settled: datetime | None = None

    def __post_init__(self) -> None:
        self.power = {device.endpoint: PowerState.ON for device in self.plan.devices}
        methods = (*self.plan.isolation, *self.plan.recovery)
        self.paths = {
            each.device.endpoint: PowerState.ON
            for each in methods
            if each.act in {Act.CUT_PATH, Act.RESTORE_PATH} and each.device is not None
        }

    @property
    def holder(self) -> str:
        """Which machine the Node stands for."""
        return self.provider_id.rpartition("/")[2]

    @property
    def dark(self) -> tuple[tuple[str, ...], ...]:
        """The levels that let no power through: each feeds it through all of its devices, and one that is on is enough for it."""
        levels = self.plan.levels[:1] if self.miswired else self.plan.levels
        named = [tuple(each.endpoint for each in level) for level in levels]
        return tuple(level for level in named if all(self.power[each] is not PowerState.ON for each in level))

    @property
    def runs(self) -> bool:
        """All levels are needed."""
        return not self.dark and self.plugged and not self.terminated

    def seen_node(self) -> SeenNode:
        """What the API server says of the Node."""
        return SeenNode(
            node=self.name,
            present=self.present,
            uid=self.uid if self.present else "",
            ready=self.ready,
            boot_id=self.boot_id,
            provider_id=self.provider_id,
            system_uuid=self.system_uuid,
            ready_since=self.ready_since if self.ready else None,
            unhealthy=not self.ready,
            incident=self.mark.incident if self.mark is not None and self.present else "",
        )

    # Time -----------------------------------------------------------------------------------------------------------

    def later(self, at: datetime, happens: Callable[[], None]) -> None:
        """Something will happen."""
        self._coming.append((at, happens))

    def settle(self, now: datetime) -> None:
        """Let everything happen that was to happen until now, in its order."""
        while self._coming:
            at, happens = min(self._coming, key=lambda each: each[0])
            if at > now:
                break
            self._coming.remove((at, happens))
            self._pass(at)
            happens()
        self._pass(now)

    def _pass(self, now: datetime) -> None:
        before = self._settled or now
        if self.booting is not None and now >= self.booting and self.runs:
            at, self.booting, self.dump = self.booting, None, None
            if self.holder == OURS:
                self.uid += "" if self.present else "+"
                self.boots += 1
                self.boot_id = f"{self.boot_id.rpartition('-')[0]}-{self.boots}"
                self.present, self.ready, self.ready_since = True, True, at
        if self.out_of_service and self.present and self.holder == OURS and self.runs and not self.hidden():
            began = max(before, self.on_since or before)
            self.exposed += max(now - began, timedelta(0))
            self.exposed_ready += max(now - began, timedelta(0)) if self.ready else timedelta(0)
        self._settled = max(before, now)

    # What is done to it ---------------------------------------------------------------------------------------------

    def switch(self, endpoint: str, state: PowerState, now: datetime) -> None:
        """A device lets power through, or no more."""
        self._change(now, lambda: self.power.__setitem__(endpoint, state))

    def plug(self, *, plugged: bool, now: datetime) -> None:
        """A person pulls the plug, or puts it back."""
        self._change(now, lambda: setattr(self, "plugged", plugged))

    def switch_all(self, state: PowerState, now: datetime) -> None:
        """Others switch it, at all of its devices; to switch it on they plug it in as well."""
        self.plug(plugged=self.plugged or state is PowerState.ON, now=now)
        for endpoint in self.power:
            self.switch(endpoint, state, now)

    def open_paths(self) -> tuple[str, ...]:
        """A person enables its ports again. Answers which were cut."""
        cut = tuple(endpoint for endpoint, state in self.paths.items() if state is PowerState.OFF)
        self.paths |= dict.fromkeys(cut, PowerState.ON)
        return cut

    def attach_all(self) -> None:
        """Others attach its volumes again."""
        self.volumes = dict.fromkeys(self.volumes, VolumeState.ATTACHED)

    def give_up(self, now: datetime) -> None:
        """The cloud takes the machine back for good."""
        self._change(now, lambda: setattr(self, "terminated", True))

    def _change(self, now: datetime, change: Callable[[], None]) -> None:
        ran = self.runs
        change()
        if self.runs and not ran:
            self.on_since = now
            self.reboot(now)
        elif ran and not self.runs:
            self.booting = self.dump = None
            self.later(now + timedelta(seconds=self.lingers), self._is_missed)

    def _is_missed(self) -> None:
        if not self.runs and self.holder == OURS:
            self.ready = False

    def reboot(self, now: datetime) -> None:
        """It restarts by itself."""
        if self.runs and self.boot_seconds is not None:
            self.booting = now + timedelta(seconds=self.boot_seconds)

    def crash(self, now: datetime) -> None:
        """Its kernel dies, writes its dump and boots anew."""
        if self.runs and self.dump is None:
            end = now + timedelta(seconds=90)
            self.dump, self.ready, self.booting = (now, end), False, None
            self.later(end, lambda: self.reboot(end) if self.dump is not None else None)

    def flap(self, now: datetime) -> None:
        """Its kubelet says Ready, or stops saying so."""
        if self.runs and self.present and self.holder == OURS and self.booting is None and self.dump is None:
            self.ready = not self.ready
            self.ready_since = now if self.ready else None

    def lose_node(self) -> None:
        """A person deletes the Node; its kubelet registers anew only with its next boot."""
        self.present = self.ready = False
        self._bare()

    def register(self, now: datetime, *, another: bool) -> None:
        """A new Node object under the name: of the same machine, or of another one."""
        self.present, self.uid = True, f"{self.uid}+"
        self._bare()
        if another:
            self.provider_id = f"{self.provider_id.removesuffix(self.holder)}{ANOTHER}"
            self.system_uuid, self.boot_id = f"sys-{ANOTHER}", "boot-of-another"
            self.ready, self.ready_since = True, now

    def rewire(self, plan: FencingPlan) -> None:
        """These are the plugs that have fed it all the time."""
        self.plan = plan
        self.power |= {device.endpoint: PowerState.ON for device in plan.devices}

    def lose_mark(self) -> None:
        """A person takes our mark off the Node."""
        self.mark = None

    def restore_backup(self) -> None:
        """The API server shows the Node as it was before anybody had marked it."""
        self._bare()

    def _bare(self) -> None:
        self.unschedulable, self.mark, self.out_of_service, self.taints = False, None, False, set()


# The truth about the Machine behind the Node: its deletion, its successor, what its owner and other controllers were asked for.
#
# Everything that comes of itself follows from the moment at which it is looked at. What may be done to it is `MachineActs`;
# whether it should have been is for the referee.

MACHINE = ObjectRef(api_version="cluster.x-k8s.io/v1beta1", kind="Machine", name="w-7", namespace="capi")
MACHINE_UID = "uid-w-7"
SUCCESSOR = "w-8"


@dataclass(slots=True, kw_only=True)
class RemediationObject:
    """One of another controller, which sets its conditions. by: the incident that made it."""

    created: datetime
    by: str = ""
    processing: str = ""
    succeeded: str = ""
    node_deletion: str = ""
    phase: str = ""
    message: str = ""
    timed_out: bool = False
    well_since: datetime | None = None
    goes_at: datetime | None = None
    """It is being deleted, until then."""


@dataclass(slots=True, kw_only=True)
class Successor:
    """What the owner has made in its place. memory: what it was given to remember. ready_at: None: never."""

    memory: str = ""
    ready_at: datetime | None = None
    failed: str = ""


@dataclass(kw_only=True)
class MachineObject:
    """One Machine of an owner that replaces what is deleted."""

    present: bool = True
    goes_after: timedelta | None = timedelta(minutes=2)
    """How long its deletion takes; None: a finalizer holds it up for ever."""
    follows_after: timedelta | None = timedelta(seconds=5)
    """How long after it is gone its owner makes another one; None: it makes none."""
    ready_after: timedelta | None = timedelta(minutes=3)
    """How long the other one takes; None: for ever."""
    successor_fails: str = ""
    scaled_down: str = ""
    came: Successor | None = None
    owner: str = "MachineSet/workers"
    owner_acts_after: timedelta | None = None
    """How long its owner takes once it is asked; None: it does nothing."""
    owner_says: tuple[str, str] = ("", "")
    """Reason and message of its condition once its owner has looked."""
    operator_acts_after: timedelta | None = timedelta(minutes=1)
    """How long other controllers take to start the machine anew; None: they fail after two minutes."""
    deleting: datetime | None = None
    deletions: list[datetime] = field(default_factory=list)
    """Whenever its deletion reached the API."""
    claimed_by: str = ""
    """Incident of the claim on the Node that it is being deleted."""
    kept: str = ""
    """Why a request for its deletion is refused."""
    preserved: datetime | None = None
    """Since when the Machine alone is annotated preserve=now."""
    owner_asked: datetime | None = None
    owner_asked_by: str = ""
    operator_lies: bool = False
    """Other controllers say that they have succeeded, and have done nothing."""
    annotated: bool = False
    annotated_by: str = ""
    annotated_at: datetime | None = None
    objects: dict[str, RemediationObject] = field(default_factory=dict)
    """Remediation objects, by their kind."""
    objects_go_after: timedelta = timedelta(0)
    """How long the deletion of one takes."""
    check_paused: bool = False
    """So no object of its check may be deleted."""
    memories: list[str] = field(default_factory=list)
    """What was written on it and its Node, in order."""
    stands: tuple[str, str] = ("", "")
    """What Machine and Node remember now."""

    @property
    def why_kept(self) -> str:
        """What its deletion obeys, "" for nothing."""
        return "the annotation preserve=now keeps it" if self.preserved is not None else self.kept

    def settle(self, now: datetime) -> bool:
        """What has come of itself until now. True: the machine has just gone for good."""
        if self.owner_asked is not None and self.owner_acts_after is not None and self.deleting is None and self.present:
            due = self.owner_asked + self.owner_acts_after
            self.deleting = due.replace(microsecond=0) if now >= due else None
        for name, each in list(self.objects.items()):
            if each.goes_at is not None and now >= each.goes_at:
                del self.objects[name]
        if self.deleting is None or self.goes_after is None:
            return False
        gone = self.deleting + self.goes_after
        goes = self.present and now >= gone
        self.present = self.present and not goes
        if self.present or self.follows_after is None or self.came is not None or now < gone + self.follows_after:
            return goes
        ready_after = None if self.successor_fails else self.ready_after
        ready_at = gone + self.follows_after + ready_after if ready_after is not None else None
        self.came = Successor(ready_at=ready_at, failed=self.successor_fails)
        return goes
