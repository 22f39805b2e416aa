"""What is known of one machine for the question whether it is kept. A snapshot: from the watch cache, a live read, or files.

A machine is a Machine with its Node, a Machine that has no Node yet (or no longer), or a Node that no Machine belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Self

from policy.objects.machines import MachineView
from policy.objects.mistakes import Mistake
from policy.objects.nodes import PRESERVE_ANNOTATION, NodeView
from policy.preservation.requests import (
    ISOLATE_ANNOTATION,
    LAST_APPLIED_ANNOTATION,
    PRESERVE_FOR_ANNOTATION,
    Annotated,
    asked_for,
    isolation_asked,
    requested,
)
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT
from policy.values.object_refs import ObjectRef
from policy.values.times import moment_of

TAINT = "node.machine.sapcloud.io/preserved"
"""Keeps new pods off a machine that is kept though it failed, instead of a cordon, which may be somebody's own."""

CONDITION = "Preserved"
BY_US = "Preserved by MCM."
BY_A_USER = "Preserved by user."
STOPPED = "Preservation stopped."
"""Reasons of the condition, as the shipped system writes them and its users' tools read them."""

DRAINED = "Preserved node drained successfully."
NOT_DRAINED = "Preserved node could not be drained."

EXPIRY_ANNOTATION = "nodewarden.io/preserve-expiry"
"""When the hold ends, where the Machine's API has no field for it, or there is no Machine."""

ENDED_ANNOTATION = "nodewarden.io/preservation-ended"
"""That the failure of this machine has had its preservation (S25). It goes when the machine is seen well again."""

FOUND_WELL = " well"
"""Behind the moment in that annotation: the Node was healthy when the time was over."""

SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
SCALE_DOWN_DISABLED_OURS = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
"""The mark by which the first one is known to be ours; without it, it is the user's and stays (S28)."""
SCALE_DOWN_BEFORE = "nodewarden.io/scale-down-disabled-before"
"""What a user had written there before we did, put back when we stop (S28)."""

ISOLATION_ANNOTATION = "nodewarden.io/isolation"
"""On the Node of a machine that is kept: how far its isolation has come, as `Isolation` spells it. Ours, gone with the hold."""

SYMPTOMS = ("KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable")
"""Conditions that make a Ready node unhealthy, as machine-controller-manager has them by default."""


class Isolation(StrEnum):
    """How far the isolation of a machine that has failed and is kept has come."""

    NONE = ""
    ASKED = "asked"
    CUT = "cut"
    INCOMPLETE = "incomplete"


class MachinePhase(StrEnum):
    """Of a machine, as machine-controller-manager calls them; other systems' phases are read as the nearest of these."""

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
"""Of what the others call their phases. What nobody knows is pending: it has not run yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One machine: a Machine with its Node (`of`), or a Node alone (`alone`), as whoever preserves it sees it. Empty strings mean
    that the object does not carry the field.

    key: unique among all machines. machine: the name of the Machine, "" for a Node without one. node_name: also of a Node that
    is gone. failed: why it counts as failed, "" while it does not. expiry: until when it is kept, None while it is not.
    deployment: the MachineDeployment or MachineSet that it is a replica of. timeout: of the Machine's own specification.
    pool_isolates: its pool wants it isolated once it has failed. has_priority: whether its set looks at a priority when it is
    scaled down. uid: of the Machine. failed_at: since when a health check calls it unhealthy, None where nobody says so, or
    something else calls it failed.
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
        """That Machine and its Node. deployment: where the Machine itself does not name it."""
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
        """A Node that belongs to no Machine."""
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
    def victim(self) -> str:
        """By which its episode is called, as `Target.victim_name` has it."""
        return self.node_name or f"machine/{self.namespace}/{self.machine}"

    @property
    def on_node(self) -> Mapping[str, str]:
        """The Node's annotations, none where there is no Node."""
        return self.node.annotations if self.node is not None else {}

    @property
    def annotated(self) -> Annotated:
        """The values by which preservation is asked for."""
        return Annotated(
            node=self.on_node.get(PRESERVE_ANNOTATION),
            machine=self.annotations.get(PRESERVE_ANNOTATION) if self.machine else None,
            last_applied=self.annotations.get(LAST_APPLIED_ANNOTATION) if self.machine else None,
        )

    @property
    def expiry_problem(self) -> str:
        """Why the expiry that a Node alone bears can't be read, "" where it can, or there is none."""
        said = self.on_node.get(EXPIRY_ANNOTATION) if not self.machine else None
        if said is None or self.expiry is not None:
            return ""
        return f"$.metadata.annotations[{EXPIRY_ANNOTATION}]: expected a moment, got {said[:40]!r}"

    @property
    def tainted(self) -> bool:
        """Whether new pods are kept off by us."""
        return self.node is not None and any(taint.key == TAINT for taint in self.node.taints)

    @property
    def condition_reason(self) -> str:
        """Of the Node's condition `Preserved` while it is True, "" else."""
        found = self.node.condition(CONDITION) if self.node is not None else None
        return found.reason if found is not None and found.status == "True" else ""

    @property
    def drain_is_over(self) -> bool:
        """Whether the Node says that the drain of this failed and kept machine is over, with or without success."""
        found = self.node.condition(CONDITION) if self.node is not None else None
        return found is not None and found.status == "True" and found.message.startswith((DRAINED, NOT_DRAINED))

    @property
    def well(self) -> bool:
        """Whether the Node itself says that it is healthy; one that is not there says nothing."""
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
        """The same, and its Node was found healthy then: it runs on for as long as it stays so, though it is called failed."""
        return (self.annotations if self.machine else self.on_node).get(ENDED_ANNOTATION, "").endswith(FOUND_WELL)

    def expired(self, now: datetime) -> bool:
        """Inclusive, unlike all other time-outs, as in the shipped system."""
        return self.expiry is not None and self.expiry <= now


# What people have written to have a machine kept, and what means nothing: it changes nothing, and they are told so once.
#
# Kept change by change, so that nobody has to go through all machines to know of it; telling is
# `activities/cluster/report/mistakes.py`.

WORDS = frozenset({PRESERVE_ANNOTATION, PRESERVE_FOR_ANNOTATION, ISOLATE_ANNOTATION})
"""The annotations of Node or Machine that may be mistaken."""


REASON = "InvalidPreservation"


class Mistakes:
    """All that stand in one cluster now. version: another one after each change."""

    def __init__(self) -> None:
        self.version = 0
        self._known: dict[str, Mistake] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Mistake]:
        """In the order in which they were seen."""
        return iter(list(self._known.values()))

    def look(self, held: Held | None, key: str, ref: ObjectRef | None) -> None:
        """A machine as last seen, None for one that is gone or bears none of `WORDS`. ref: its Machine, None for a Node alone."""
        found = _mistake(held, ref) if held is not None else None
        if found == self._known.get(key):
            return
        self.version += 1
        if found is None:
            del self._known[key]
        else:
            self._known[key] = found


def mistaken(held: Held) -> tuple[str, ...]:
    """What is wrong with the annotations of that machine, in words."""
    request = requested(held.annotated, node_exists=held.node is not None)
    on_machine = held.annotations if held.machine else {}
    _, no_duration = asked_for(held.on_node, on_machine)
    _, no_answer = isolation_asked(held.on_node, on_machine, pool=held.pool_isolates)
    return tuple(word for word in (request.unreadable, request.ignored, no_duration, no_answer) if word)


def _mistake(held: Held, ref: ObjectRef | None) -> Mistake | None:
    words = mistaken(held)
    if not words:
        return None
    if held.node is not None:
        return Mistake(about=held.node.ref, uid=held.node.uid, reason=REASON, words=words)
    return Mistake(about=ref, uid=held.uid, reason=REASON, words=words) if ref is not None else None


# The priority by which a kept machine is among the last that its MachineSet chooses when it is to have fewer.
#
# Only machine-controller-manager has one on its Machines: the lowest goes first. OpenShift and Cluster API know an annotation by
# which a Machine goes *first*, and none by which it goes last: nothing is written there. To mark all the others instead would
# take the choice from the autoscaler, which marks the one that it has drained.
#
# A low priority, or one of those annotations, by which others say that a Machine goes first is obeyed: the number of replicas,
# and the choice of the one to go, beat preservation (S21, S26). What others wrote is put back byte for byte (S28).

PRIORITY_ANNOTATION = "machinepriority.machine.sapcloud.io"
"""On a Machine of machine-controller-manager, which writes its default there itself, and 1 for what the autoscaler has chosen."""

DEFAULT_PRIORITY = 3

PRIORITY_OURS = "nodewarden.io/machinepriority"
"""Our mark: the priority that we wrote. Another one that stands there since is somebody else's."""
PRIORITY_BEFORE = "nodewarden.io/machinepriority-before"
"""What stood there before we did, put back when we stop (S28)."""

KEPT_AUTOMATICALLY = "1000"
KEPT_ON_REQUEST = "2000"
"""Far above what people use; of two that are kept, the one that nobody asked for goes first, as in `survey.py`."""

(CLUSTER_API_DELETE,) = CLUSTER_API.goes_first
"""Any value marks a Machine, also an empty one."""
OPENSHIFT_DELETE = OPENSHIFT.goes_first
"""The name of today and that of old; an empty value marks nothing."""

_LONGEST = 18
"""Digits of a number that fits into what the other side reads it into."""


def priority_of(text: str | None) -> int:
    """As machine-controller-manager reads it: what is no whole number is the default."""
    digits = (text or "").removeprefix("-") if (text or "").startswith("-") else (text or "").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST):
        return DEFAULT_PRIORITY
    return int(text or "")


def priority_in_its_set(held: Held) -> int:
    """Who goes first when its set is scaled down: the lowest. The same for all whose set looks at no priority."""
    return priority_of(held.annotations.get(PRIORITY_ANNOTATION)) if held.has_priority else DEFAULT_PRIORITY


def ranked(held: Held, *, preserved: bool, automatic: bool) -> dict[str, str | None]:
    """The annotations of its Machine by which it goes last while it is preserved, or as it was before; None: to be removed."""
    if not held.has_priority:
        return {}
    theirs, ours = _theirs(held), KEPT_AUTOMATICALLY if automatic else KEPT_ON_REQUEST
    if not preserved or _goes_first(theirs) or priority_of(theirs) >= int(ours):
        marked = PRIORITY_OURS in held.annotations
        return {PRIORITY_ANNOTATION: theirs, PRIORITY_OURS: None, PRIORITY_BEFORE: None} if marked else {}
    return {PRIORITY_ANNOTATION: ours, PRIORITY_OURS: ours, PRIORITY_BEFORE: theirs}


def said_to_go_first(held: Held) -> str:
    """Who has said that it is the first to go when its set is to have fewer machines, "" where nobody has."""
    theirs = _theirs(held)
    if held.has_priority and _goes_first(theirs):
        return _told(f"{PRIORITY_ANNOTATION}={theirs}")
    if not held.has_priority and held.marked_for_deletion:
        key = next((key for key in (CLUSTER_API_DELETE, *OPENSHIFT_DELETE) if key in held.annotations), "")
        return _told(key)
    return ""


def _theirs(held: Held) -> str | None:
    """The priority as it would stand there without us."""
    stands = held.annotations.get(PRIORITY_ANNOTATION)
    if stands is not None and stands == held.annotations.get(PRIORITY_OURS):
        return held.annotations.get(PRIORITY_BEFORE)
    return stands


def _goes_first(priority: str | None) -> bool:
    return priority_of(priority) < DEFAULT_PRIORITY


def _told(annotation: str) -> str:
    return f"Machine: annotation {annotation}: it goes first when its set is to have fewer machines, even while it is kept"
