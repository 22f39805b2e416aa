"""What a fencing would do to one node: resolved, validated, and free of secrets (references only, S12).

A plan is made once at the start of an episode (`activities/cluster/live/plans.py` reads the objects,
`policy/fence/template_reader.py` turns them into this) and is kept for the whole of it, so that an edit of a template never
changes a running episode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from policy.fence.kdump import KdumpRule
from policy.values.errors import shown
from policy.values.object_refs import is_object_name, is_relative_file, is_variable

WITH_VOLUMES = frozenset({"ec2", "gce"})
"""The drivers that list and detach the volumes of a machine."""


class Freeing(StrEnum):
    """How workloads of a node that is proven off are freed. `automatic`: by the taint where the server acts on it."""

    AUTOMATIC = "automatic"
    OUT_OF_SERVICE_TAINT = "out-of-service-taint"
    DELETION = "deletion"
    NONE = "none"


class CredentialKind(StrEnum):
    """What a reference to a credential leads to. `file` and `env` are read on the power worker itself."""

    SECRET = "Secret"  # noqa: S105 - a kind of object
    CONFIG_MAP = "ConfigMap"
    FILE = "file"
    ENVIRONMENT = "env"


ON_THE_WORKER = frozenset({CredentialKind.FILE, CredentialKind.ENVIRONMENT})
"""References that need no object: any writer of a configuration can write one."""


def problem_of_place(kind: CredentialKind, place: str, namespace: str = "") -> str | None:
    """Why a reference can't lead there, None if it can (S41). place: the object's name, the path, the variable. namespace: of
    the object with the reference; a file has to be below it, as a Secret has to be within it (S40); "" for objects that only an
    administrator writes."""
    match kind:
        case CredentialKind.FILE if not is_relative_file(place):
            return "expected a path inside the worker's directory for credentials"
        case CredentialKind.FILE:
            below = not namespace or place.startswith(f"{namespace}/")
            return None if below else f"expected a path below {namespace}/, the namespace of what names it"
        case CredentialKind.ENVIRONMENT:
            return None if is_variable(place) else "expected the name of a variable"
        case _:
            return None if is_object_name(place) else f"expected the name of a {kind.value}, got {shown(place)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialRef:
    """The place of secret parameters. Only the reference travels; the power worker resolves it at the moment of use.

    keys: which driver parameter is in which key of the object's data; empty: every key is the parameter of that name. For `file`
    and `env` the values are the path and the variable, name is empty, and namespace is that of the object with the reference.
    properties: the values are lines `key=value` of the text in that key of a ConfigMap (the published node-fencing demo writes
    passwords there).
    """

    kind: CredentialKind = CredentialKind.SECRET
    name: str = ""
    namespace: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    properties: str = ""

    @property
    def subject(self) -> str:
        """The place as text, for people and as a key of what is remembered about it."""
        if self.kind in ON_THE_WORKER:
            return f"{self.kind.value}:{', '.join(self.keys.values())}"
        return f"{self.kind.value}/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDevice:
    """One device that feeds the node. `endpoint` identifies device and plug and is pinned for the episode (S9).

    `site` names the task queue of the workers that can reach it (`power.<site>`). credentials: a later reference wins, parameter
    by parameter; none if the driver's worker has an identity of its own (a cloud account).
    """

    driver: str
    endpoint: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    credentials: tuple[CredentialRef, ...] = ()
    site: str = "default"
    delay: timedelta = timedelta(0)
    """Waited before its off: the loser of a race for a shared device should not be both (Pacemaker's delay)."""
    off_timeout: timedelta | None = None
    """How long it may take until it reads off; None: the plan's time for all."""
    levels: tuple[tuple[str, ...], ...] = ()
    """The levels of power that it is in, by their endpoints: its readings prove nothing else (S1, S4). Empty: it is of a
    path."""
    strange_to: tuple[str, ...] = field(default=(), compare=False)
    """Its credentials that have gone to other hosts only, by the check of devices: one without a list of hosts is not sent to
    this device (S40)."""
    seal: str = field(default="", compare=False)
    """Shows a power worker that a cluster worker of ours has resolved the device (S42); it does not count in comparisons."""


class Act(StrEnum):
    """What one method of isolation or recovery does. Records, tables and `fence plan` show the values."""

    CORDON = "mark-unschedulable"
    TAINT = "taint"
    DRAIN = "drain"
    CHECK_VOLUMES = "check-volumes"
    CUT_PATH = "cut-path"
    DETACH_VOLUMES = "detach-volumes"
    QUARANTINE = "quarantine"
    FREE_CUT_PODS = "free-cut-pods"
    RESTORE_PATH = "restore-path"
    LIFT_QUARANTINE = "lift-quarantine"
    UNCORDON = "mark-schedulable"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStorage:
    """The volumes that the node could reach by a cut path only: those of storage classes, of CSI drivers, or named by their
    handles."""

    classes: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    handles: tuple[str, ...] = ()

    def __or__(self, other: CutStorage) -> CutStorage:
        return CutStorage(
            classes=tuple(dict.fromkeys((*self.classes, *other.classes))),
            drivers=tuple(dict.fromkeys((*self.drivers, *other.drivers))),
            handles=tuple(dict.fromkeys((*self.handles, *other.handles))),
        )

    def covers(self, *, storage_class: str, driver: str, handle: str) -> bool:
        """Whether a volume lies behind the cut. An empty field of a volume matches nothing."""
        return (
            (bool(storage_class) and storage_class in self.classes)
            or (bool(driver) and driver in self.drivers)
            or (bool(handle) and handle in self.handles)
        )


UNSPECIFIED = "/UNSPECIFIED/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The volumes and pods of a node that a method is about, and no others.

    handles: volumes as their cloud names them; volumes: the same as PersistentVolumes; all pods that use them are meant. pods:
    uids of further pods.
    """

    handles: tuple[str, ...]
    volumes: tuple[str, ...]
    pods: tuple[str, ...] = ()

    def has(self, volume: str) -> bool:
        """Whether a volume that the cloud lists is one of them. Handles from before CSI leave out the place of a disk, or are
        only its name."""
        name = volume.rpartition("/")[2]
        vague = (each for each in self.handles if "/" not in each or UNSPECIFIED in each)
        return volume in self.handles or any(each.rpartition("/")[2] == name for each in vague)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMethod:
    """One method of isolation or recovery, in its place in the order. name: as its configuration calls it.

    device: of a fabric (a switch port: off is cut) for the paths, the cloud machine for volumes and quarantine; None for methods
    on cluster objects. storage: the volumes behind the path. parameters: of the method itself (a taint, the filters of a drain).
    only: the volumes and pods that it is about, None: all.
    """

    name: str
    act: Act
    device: PowerDevice | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    storage: CutStorage = field(default_factory=CutStorage)
    delay: timedelta = timedelta(0)
    timeout: timedelta | None = None
    tries: int | None = None
    only: Chosen | None = None


CORDON = PlannedMethod(name=Act.CORDON.value, act=Act.CORDON)
UNCORDON = PlannedMethod(name=Act.UNCORDON.value, act=Act.UNCORDON)


def levels_with(endpoint: str, levels: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple(level for level in levels if endpoint in level)


SEALED_FOR = timedelta(days=7)
"""How long the seal of a device counts: an old history must not send today's password to a BMC's former address."""


_MOMENT = re.compile(r"([0-9a-f]{1,12})\.")
"""The beginning of a seal (`activities/licences.py`): its moment, in seconds."""


def sealed_anew(device: PowerDevice, configured: Iterable[PowerDevice]) -> PowerDevice:
    """The configured device that equals it except for the seal; the device itself if there is none (S9, S42). A device that an
    earlier build has pinned has no levels."""
    configured = tuple(configured)
    alike = (each for each in configured if replace(each, levels=()) == device)
    return next((each for each in configured if each == device), next(alike, device))


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingPlan:
    """Everything a fencing episode needs to know beforehand.

    levels: the first level with *all* its devices proven off fences the node (Pacemaker's topology, S4); if one fails, the next
    is tried. wait_before_isolation counts from the start of the episode, wait_before_power from the moment the node stopped
    being Ready. tries: of each step, at least 1 (S7). restarts: of the whole flow after a step used up its tries. boot_timeout:
    from power-on to a new boot id and Ready. power_on False: the machine is left off, and the episode ends as fenced-off.
    """

    source: str
    levels: tuple[tuple[PowerDevice, ...], ...]
    isolation: tuple[PlannedMethod, ...] = (CORDON,)
    recovery: tuple[PlannedMethod, ...] = (UNCORDON,)
    wait_before_isolation: timedelta = timedelta(0)
    wait_before_power: timedelta = timedelta(minutes=5)
    tries: int = 3
    restarts: int = 1
    retry_interval: timedelta = timedelta(seconds=5)
    act_deadline: timedelta = timedelta(seconds=15)
    off_timeout: timedelta = timedelta(seconds=60)
    free_timeout: timedelta = timedelta(minutes=5)
    boot_timeout: timedelta = timedelta(minutes=10)
    freeing: Freeing = Freeing.AUTOMATIC
    taint_honoured: bool = True
    """Whether this cluster's controllers act on the out-of-service taint (Kubernetes 1.26 and newer)."""
    kdump: KdumpRule | None = None
    """How long power-off waits for a crash dump; None: it does not wait."""
    power_on: bool = True
    delete_node: bool = False
    """Delete the Node object as the last consequence, if the machine is never to come back under this name."""
    terminate_instance: bool = False
    """Give the cloud machine up for good once it is proven off."""
    warnings: tuple[str, ...] = ()

    def with_devices(self, change: Callable[[PowerDevice], PowerDevice]) -> FencingPlan:
        """The same plan with each of its devices, of power and of paths, replaced by the result of `change`."""

        def changed(methods: tuple[PlannedMethod, ...]) -> tuple[PlannedMethod, ...]:
            return tuple(replace(each, device=change(each.device)) if each.device is not None else each for each in methods)

        return replace(
            self,
            levels=tuple(tuple(change(device) for device in level) for level in self.levels),
            isolation=changed(self.isolation),
            recovery=changed(self.recovery),
        )

    def is_to_be_sealed_anew(self, now: datetime) -> bool:
        """Whether the seal of one of its devices ends soon, or has no moment, as in earlier builds."""
        methods = (each.device for each in (*self.isolation, *self.recovery) if each.device is not None)
        moments = (_MOMENT.match(each.seal) for each in (*self.devices, *methods) if each.seal)
        return any(not each or now.timestamp() - int(each[1], 16) > SEALED_FOR.total_seconds() / 2 for each in moments)

    def sealed_anew(self, configured: Iterable[PowerDevice]) -> FencingPlan:
        """The same plan, with new seals for the devices that are still configured so."""
        found = tuple(configured)
        return self.with_devices(lambda device: sealed_anew(device, found))

    @property
    def with_levels(self) -> FencingPlan:
        return self.with_devices(lambda device: replace(device, levels=levels_with(device.endpoint, self.endpoints_of_levels)))

    @property
    def devices(self) -> tuple[PowerDevice, ...]:
        return tuple(device for level in self.levels for device in level)

    @property
    def endpoints_of_levels(self) -> tuple[tuple[str, ...], ...]:
        """The endpoints by level: OFF from all endpoints of one level is the proof (S4)."""
        return tuple(tuple(device.endpoint for device in level) for level in self.levels)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Every device that may be touched, pinned for the episode (S9): those of power and those of paths."""
        paths = (method.device for method in (*self.isolation, *self.recovery) if method.device is not None)
        return tuple(dict.fromkeys(device.endpoint for device in (*self.devices, *paths)))


# The part of a fencing plan that isolates a machine that has failed and is kept: no power command, and no object of the
# cluster.
#
# A switched-off port and detached volumes can be read back, and pods behind them may be freed; a quarantine proves nothing and
# keeps the machine from its network. Where the configuration has none of them, the volumes of a cloud machine are detached, if
# the cloud can tell them apart.

CUTS = frozenset({Act.CUT_PATH, Act.DETACH_VOLUMES, Act.QUARANTINE})
PROVING = frozenset({Act.CUT_PATH, Act.DETACH_VOLUMES})
"""The acts that can be read back, and so permit freeing what lies behind them."""


def isolation_plan(plan: FencingPlan) -> FencingPlan:
    """The plan reduced to isolation and its way back; `isolation` is empty where the plan offers none."""
    cuts = [method for method in plan.isolation if method.act in CUTS]
    if not cuts:
        cuts = [
            PlannedMethod(name=Act.DETACH_VOLUMES.value, act=Act.DETACH_VOLUMES, device=device)
            for device in plan.devices
            if device.driver in WITH_VOLUMES
        ]
    if any(method.act in PROVING for method in cuts):
        freeing = next((method for method in plan.isolation if method.act is Act.FREE_CUT_PODS), None)
        cuts.append(freeing or PlannedMethod(name=Act.FREE_CUT_PODS.value, act=Act.FREE_CUT_PODS))
    return replace(plan, isolation=tuple(cuts), recovery=tuple(_ways_back(plan, cuts)))


def begins_with_cordon(plan: FencingPlan) -> bool:
    """Whether a cordon is the first thing that is done to its node, and at once."""
    first = next(iter(plan.isolation), None)
    return first is not None and first.act is Act.CORDON and not first.delay


def keeping_plan(plan: FencingPlan) -> FencingPlan:
    """The plan for a machine that is fenced and then kept until a person answers: it is cordoned, and neither it nor its Node is
    given up; it comes back by the answer only (S53)."""
    kept = replace(plan, power_on=True, delete_node=False, terminate_instance=False)
    if any(method.act is Act.CORDON for method in plan.isolation):
        return kept
    return replace(kept, isolation=(CORDON, *plan.isolation), recovery=(*plan.recovery, UNCORDON))


def _ways_back(plan: FencingPlan, cuts: list[PlannedMethod]) -> list[PlannedMethod]:
    """The configured ways back, and the default one for each cut without: a released machine has to work again."""
    back = [method for method in plan.recovery if method.act in {Act.RESTORE_PATH, Act.LIFT_QUARANTINE}]
    for cut, undone in ((Act.QUARANTINE, Act.LIFT_QUARANTINE), (Act.CUT_PATH, Act.RESTORE_PATH)):
        known = {method.device.endpoint for method in back if method.act is undone and method.device is not None}
        back += [
            PlannedMethod(name=undone.value, act=undone, device=method.device)
            for method in cuts
            if method.act is cut and method.device is not None and method.device.endpoint not in known
        ]
    return back
