"""A snapshot of one machine for the decision whether it is kept: from the watch cache, a live read, or files.

A machine is a Machine with its Node, a Machine that has no Node yet (or no longer), or a Node without a Machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from policy.objects.machines import MachineView
from policy.objects.nodes import PRESERVE_ANNOTATION, NodeView
from policy.preservation.requests import (
    ISOLATE_ANNOTATION,
    LAST_APPLIED_ANNOTATION,
    PRESERVE_FOR_ANNOTATION,
    Annotated,
    Intent,
    Request,
    asked_for,
    isolation_asked,
    requested,
)
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT
from policy.values.object_refs import Mistake, ObjectRef
from policy.values.times import moment_of

TAINT = "node.machine.sapcloud.io/preserved"
"""Keeps new pods off a failed machine that is kept. It is used instead of a cordon, which a user may have set."""

CONDITION = "Preserved"
BY_US = "Preserved by MCM."
BY_A_USER = "Preserved by user."
STOPPED = "Preservation stopped."
"""Reasons of the condition, as the shipped system writes them and its users' tools read them."""

DRAINED = "Preserved node drained successfully."
NOT_DRAINED = "Preserved node could not be drained."

EXPIRY_ANNOTATION = "nodewarden.io/preserve-expiry"
"""When the preservation ends, where the Machine's API has no field for it, or there is no Machine."""

ENDED_ANNOTATION = "nodewarden.io/preservation-ended"
"""The failure of this machine has had its preservation (S25). Removed when the machine is seen well again."""

SINCE_ANNOTATION = "nodewarden.io/preserved-since"
"""When the preservation in force began: on the Machine, or a Node without one. What a person has said before ends none (S21)."""

FOUND_WELL = " well"
"""Behind the moment in that annotation: the Node was healthy when the time was over."""

SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
SCALE_DOWN_DISABLED_OURS = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
"""The mark that the annotation above is ours; without the mark it is the user's and stays (S28)."""
SCALE_DOWN_BEFORE = "nodewarden.io/scale-down-disabled-before"
"""The user's former value of that annotation, restored when the preservation ends (S28)."""

ISOLATION_ANNOTATION = "nodewarden.io/isolation"
"""On the Node of a machine that is kept: how far its isolation has come, as `Isolation` spells it. Ours, removed with the
preservation."""

SYMPTOMS = ("KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable")
"""Conditions that make a Ready node unhealthy, as machine-controller-manager has them by default."""


class Isolation(StrEnum):
    """How far the isolation of a machine that has failed and is kept has come."""

    NONE = ""
    ASKED = "asked"
    CUT = "cut"
    INCOMPLETE = "incomplete"


class MachinePhase(StrEnum):
    """The phases of a machine, as machine-controller-manager calls them; other systems' phases are read as the nearest of
    these."""

    PENDING = "Pending"
    AVAILABLE = "Available"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    CRASH_LOOP = "CrashLoopBackOff"
    FAILED = "Failed"
    TERMINATING = "Terminating"


_NEAREST = {
    "Provisioning": MachinePhase.PENDING,
    "Provisioned": MachinePhase.PENDING,
    "Deleting": MachinePhase.TERMINATING,
    "Deleted": MachinePhase.TERMINATING,
    "InPlaceUpdating": MachinePhase.RUNNING,
    "InPlaceUpdateSuccessful": MachinePhase.RUNNING,
    **{phase.value: phase for phase in MachinePhase},
}
"""Other systems' names of the phases. An unknown name counts as pending: the machine has not run yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One machine: a Machine with its Node (`of`), or a Node alone (`alone`). Empty strings mean that the object does not have
    the field.

    key: unique among all machines. machine: the name of the Machine, "" for a Node without one. node_name: also of a Node that
    is gone. failed: why it counts as failed, "" while it does not. expiry: until when it is kept, None while it is not.
    deployment: the MachineDeployment or MachineSet that it is a replica of. timeout: of the Machine's own specification.
    pool_isolates: its pool wants it isolated once it has failed. has_priority: whether its set looks at a priority when it is
    scaled down. uid: of the Machine. failed_at: since when a health check calls it unhealthy, None where no check does, or
    where it counts as failed for another reason.
    """

    key: str
    machine: str = ""
    namespace: str = ""
    node_name: str = ""
    node: NodeView | None = None
    phase: MachinePhase = MachinePhase.RUNNING
    failed: str = ""
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    expiry: datetime | None = None
    created: datetime | None = None
    marked_for_deletion: str = ""
    deployment: str = ""
    has_priority: bool = False
    uid: str = ""
    timeout: timedelta | None = None
    pool_isolates: bool = False
    failed_at: datetime | None = None

    @classmethod
    def of(cls, machine: MachineView, node: NodeView | None = None, *, deployment: str = "") -> Self:
        """The snapshot of that Machine and its Node. deployment: used where the Machine itself does not name it."""
        failed = machine.failed
        return cls(
            key=f"{machine.namespace}/{machine.name}",
            machine=machine.name,
            namespace=machine.namespace,
            node_name=machine.node_name,
            node=node,
            phase=MachinePhase.FAILED if failed else _NEAREST.get(machine.phase, MachinePhase.PENDING),
            failed=failed,
            deleting=machine.deleting,
            labels=machine.labels,
            annotations=machine.annotations,
            expiry=machine.expiry,
            created=machine.created,
            marked_for_deletion=machine.goes_first,
            deployment=machine.labels.get(machine.api.deployment_label) or deployment,
            has_priority=machine.api.has_priority,
            timeout=machine.preserve_timeout,
            uid=machine.uid,
        )

    @classmethod
    def alone(cls, node: NodeView) -> Self:
        return cls(
            key=f"node/{node.name}",
            node_name=node.name,
            node=node,
            deleting=node.deleting,
            expiry=moment_of(node.annotations.get(EXPIRY_ANNOTATION)),
        )

    @property
    def name(self) -> str:
        """For people: the Machine, or the Node where there is none."""
        return self.machine or self.node_name

    @property
    def set_key(self) -> str:
        """Namespace and name of what it is a replica of, "" where none is known: one of that name elsewhere is another set."""
        return f"{self.namespace}/{self.deployment}" if self.deployment else ""

    @property
    def victim(self) -> str:
        """The name of its episode, as `Target.victim_name` has it."""
        return self.node_name or f"machine/{self.namespace}/{self.machine}"

    @property
    def on_node(self) -> Mapping[str, str]:
        """The Node's annotations, none where there is no Node."""
        return self.node.annotations if self.node is not None else {}

    @property
    def annotated(self) -> Annotated:
        """The annotations that ask for preservation."""
        return Annotated(
            node=self.on_node.get(PRESERVE_ANNOTATION),
            machine=self.annotations.get(PRESERVE_ANNOTATION) if self.machine else None,
            last_applied=self.annotations.get(LAST_APPLIED_ANNOTATION) if self.machine else None,
        )

    @property
    def expiry_problem(self) -> str:
        """Why the expiry on a Node without a Machine can't be read, "" where it can, or there is none."""
        text = self.on_node.get(EXPIRY_ANNOTATION) if not self.machine else None
        if text is None or self.expiry is not None:
            return ""
        return f"$.metadata.annotations[{EXPIRY_ANNOTATION}]: expected a moment, got {text[:40]!r}"

    @property
    def tainted(self) -> bool:
        """Whether our taint keeps new pods off."""
        return self.node is not None and any(taint.key == TAINT for taint in self.node.taints)

    @property
    def condition_reason(self) -> str:
        """The reason of the Node's condition `Preserved` while it is True, "" else."""
        found = self.node.condition(CONDITION) if self.node is not None else None
        return found.reason if found is not None and found.status == "True" else ""

    @property
    def drain_is_over(self) -> bool:
        """Whether the drain of this failed and kept machine is over by its Node's condition, with or without success."""
        found = self.node.condition(CONDITION) if self.node is not None else None
        return found is not None and found.status == "True" and found.message.startswith((DRAINED, NOT_DRAINED))

    @property
    def well(self) -> bool:
        """Whether the Node's own conditions are healthy; False without a Node."""
        node = self.node
        if node is None or node.deleting or node.unreadable or not node.ready:
            return False
        symptoms = (node.condition(kind) for kind in SYMPTOMS)
        return all(symptom is None or symptom.status == "False" for symptom in symptoms)

    @property
    def ended(self) -> bool:
        """Whether this failure has been preserved before, until that ended (S25)."""
        return ENDED_ANNOTATION in (self.annotations if self.machine else self.on_node)

    @property
    def ended_well(self) -> bool:
        """Whether its Node was found healthy when that preservation ended: it runs on for as long as it stays so, even if it is
        called failed."""
        return (self.annotations if self.machine else self.on_node).get(ENDED_ANNOTATION, "").endswith(FOUND_WELL)

    @property
    def since(self) -> datetime | None:
        """When the preservation began that is in force, or that was the last; None where that is not known."""
        return moment_of((self.annotations if self.machine else self.on_node).get(SINCE_ANNOTATION))

    @property
    def request(self) -> Request:
        """What is asked for. Where the Node has lost the annotation a person has taken it away, or a kubelet made the Node anew:
        only the latter leaves a kept Node without the autoscaler's annotation."""
        kept = self.expiry is not None and self.since is not None
        anew = kept and {PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED_OURS}.isdisjoint(self.on_node)
        return requested(self.annotated, node_stayed=self.node is not None and not anew)

    @property
    def intent(self) -> Intent:
        return self.request.intent

    @property
    def kept_by_person(self) -> bool:
        """Whether an annotation of a person keeps it, or will once it fails."""
        return self.intent in {Intent.NOW, Intent.WHEN_FAILED}

    def lasts(self, timeout: timedelta) -> timedelta:
        """How long a preservation that begins lasts. timeout: of its pool."""
        own, _ = asked_for(self.on_node, self.annotations if self.machine else {})
        return own or self.timeout or timeout

    def expired(self, now: datetime) -> bool:
        """Inclusive, unlike all other time-outs, as in the shipped system."""
        return self.expiry is not None and self.expiry <= now


# Annotations by which people ask for a preservation, but with a value that means nothing: it changes nothing, and people are
# notified once.
#
# Kept change by change, so that no look at all machines is needed; `activities/cluster/report/alarms.py` notifies people.

WISHES = frozenset({PRESERVE_ANNOTATION, PRESERVE_FOR_ANNOTATION, ISOLATE_ANNOTATION})
"""The annotations of Node or Machine that may have a meaningless value."""


REASON = "InvalidPreservation"


class Mistakes:
    """All mistakes in one cluster now. version: another one after each change."""

    def __init__(self) -> None:
        self.version = 0
        self._known: dict[str, Mistake] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Mistake]:
        return iter(list(self._known.values()))

    def look(self, held: Held | None, key: str, ref: ObjectRef | None) -> None:
        """A machine as last seen, None for one that is gone or has none of the `WISHES`. ref: its Machine, None for a Node
        alone."""
        self.note(_mistake(held, ref) if held is not None else None, key)

    def note(self, found: Mistake | None, key: str) -> None:
        """What is wrong with the object of that key by now, None for nothing."""
        if found == self._known.get(key):
            return
        self.version += 1
        if found is None:
            del self._known[key]
        else:
            self._known[key] = found


def mistaken(held: Held) -> tuple[str, ...]:
    """What is wrong with the annotations of that machine, in words."""
    request = held.request
    on_machine = held.annotations if held.machine else {}
    _, no_duration = asked_for(held.on_node, on_machine)
    _, no_answer = isolation_asked(held.on_node, on_machine, pool=held.pool_isolates)
    return tuple(word for word in (request.unreadable, request.ignored, no_duration, no_answer) if word)


def _mistake(held: Held, ref: ObjectRef | None) -> Mistake | None:
    words = mistaken(held)
    if not words:
        return None
    if held.node is not None:
        return Mistake(about=held.node.ref, uid=held.node.uid, reason=REASON, messages=words)
    return Mistake(about=ref, uid=held.uid, reason=REASON, messages=words) if ref is not None else None


# The priority that makes a kept machine one of the last that its MachineSet removes when it is scaled down.
#
# Only machine-controller-manager has one on its Machines: the lowest goes first. OpenShift and Cluster API have an annotation
# that makes a Machine go *first*, and none that makes it go last: nothing is written there. To mark all the others instead
# would take the choice from the autoscaler, which marks the one that it has drained.
#
# A low priority, or one of those annotations, that another writer set so that a Machine goes first is obeyed: the number of
# replicas, and the choice of the one to go, take precedence over preservation (S21, S26). Values of other writers are restored
# byte for byte (S28).

PRIORITY_ANNOTATION = "machinepriority.machine.sapcloud.io"
"""On a Machine of machine-controller-manager, which writes its default there itself, and 1 for what the autoscaler has chosen."""

DEFAULT_PRIORITY = 3

PRIORITY_OURS = "nodewarden.io/machinepriority"
"""Our mark: the priority that we wrote. A different one on the Machine was written by another writer since."""
PRIORITY_BEFORE = "nodewarden.io/machinepriority-before"
"""The value before ours, restored when the preservation ends (S28)."""

KEPT_AUTOMATICALLY = "1000"
KEPT_ON_REQUEST = "2000"
"""Far above what people use; of two kept machines the automatically kept one goes first, as in `pool_cap.py`."""

(CLUSTER_API_DELETE,) = CLUSTER_API.goes_first
"""Any value marks a Machine, also an empty one."""
OPENSHIFT_DELETE = OPENSHIFT.goes_first
"""The present and the former name; an empty value marks nothing."""

_LONGEST = 18
"""The most digits of a number that fit into the integer of the other side."""


def priority_of(text: str | None) -> int:
    """The number as machine-controller-manager reads it: text that is no whole number is the default."""
    digits = (text or "").removeprefix("-") if (text or "").startswith("-") else (text or "").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST):
        return DEFAULT_PRIORITY
    return int(text or "")


def priority_in_its_set(held: Held) -> int:
    """Its priority when its set is scaled down: the lowest goes first. The same for all machines of a set without priorities."""
    return priority_of(held.annotations.get(PRIORITY_ANNOTATION)) if held.has_priority else DEFAULT_PRIORITY


def ranked(held: Held, *, preserved: bool, automatic: bool) -> dict[str, str | None]:
    """The annotations of its Machine that make it go last while it is preserved, or as they were before; None: to be removed."""
    if not held.has_priority:
        return {}
    theirs, ours = _theirs(held), KEPT_AUTOMATICALLY if automatic else KEPT_ON_REQUEST
    if not preserved or _goes_first(theirs) or priority_of(theirs) >= int(ours):
        marked = PRIORITY_OURS in held.annotations
        return {PRIORITY_ANNOTATION: theirs, PRIORITY_OURS: None, PRIORITY_BEFORE: None} if marked else {}
    return {PRIORITY_ANNOTATION: ours, PRIORITY_OURS: ours, PRIORITY_BEFORE: theirs}


def first_to_go_mark(held: Held) -> str:
    """Which annotation of another writer makes it the first to go when its set is scaled down, in words; "" where none does."""
    theirs = _theirs(held)
    if held.has_priority and _goes_first(theirs):
        return _sentence(f"{PRIORITY_ANNOTATION}={theirs}")
    if not held.has_priority and held.marked_for_deletion:
        key = next((key for key in (CLUSTER_API_DELETE, *OPENSHIFT_DELETE) if key in held.annotations), "")
        return _sentence(key)
    return ""


def _theirs(held: Held) -> str | None:
    """The priority as it would be without us."""
    stands = held.annotations.get(PRIORITY_ANNOTATION)
    if stands is not None and stands == held.annotations.get(PRIORITY_OURS):
        return held.annotations.get(PRIORITY_BEFORE)
    return stands


def _goes_first(priority: str | None) -> bool:
    return priority_of(priority) < DEFAULT_PRIORITY


def _sentence(annotation: str) -> str:
    return f"Machine: annotation {annotation}: it goes first when its set is scaled down, even while it is kept"
