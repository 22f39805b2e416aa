"""One node: the fields of a Kubernetes Node that decisions use, and nothing else.

A `NodeView` is a snapshot. It comes from the watch cache (for verdicts) or from a live read (for the last look); the view does
not show from which, the caller knows. How it is decoded: `activities/cluster/objects/decoding.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from policy.values.object_refs import ObjectRef

READY = "Ready"

MARK_ANNOTATION = "nodewarden.io/episode"
MARK_LABEL = "nodewarden.node-restriction.kubernetes.io/episode"
"""The digest of that annotation. A kubelet may write annotations of its Node, but no label below node-restriction.kubernetes.io
(the admission plugin NodeRestriction), as it may not take taints away."""
"""Our mark: JSON of `policy.objects.marks.Mark`, written by an episode's first act, removed by its end."""

EXCLUDE_LABEL = "remediation.medik8s.io/exclude-from-remediation"
"""The medik8s label by which people and node-maintenance keep a node out of remediation (`true`)."""

PRESERVE_ANNOTATION = "node.machine.sapcloud.io/preserve"
"""Gardener's preservation request; `now`, `when-failed`, `auto-preserved` and the seed's `true` veto a fencing before off."""

SERVING_LABELS = tuple(f"node-role.kubernetes.io/{role}" for role in ("control-plane", "master", "controlplane"))
"""Labels of nodes that run an API server: today's, the old one, and RKE's."""
ETCD_LABEL = "node-role.kubernetes.io/etcd"
"""The label of nodes that run a member of etcd, maybe nothing else of the control plane; RKE, RKE2 and k3s set it."""
ARBITER_LABEL = "node-role.kubernetes.io/arbiter"
"""OpenShift's label of the Node that has the third member of etcd beside two nodes of its control plane."""
CONTROL_PLANE_LABELS = (*SERVING_LABELS, ETCD_LABEL, ARBITER_LABEL)
ZONE_LABEL = "topology.kubernetes.io/zone"
OUT_OF_SERVICE_TAINT = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One entry of `status.conditions`. `since` is lastTransitionTime; None where the object has none.

    message: kept only for the types with a message that is read: the messages of fifty thousand nodes would take most of the
    memory.
    """

    type: str
    status: str
    since: datetime | None = None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """One entry of `spec.taints`."""

    key: str
    effect: str
    value: str = ""


OUR_TAINT = Taint(key=OUT_OF_SERVICE_TAINT, value="nodeshutdown", effect="NoExecute")
"""The taint as KEP-2268 spells it; a taint of that key with another value or effect is not ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """One node as last seen. Empty strings mean that the object does not carry the field.

    addresses: IP addresses, inside and outside the cluster. unreadable: why an existing Node could not be decoded, "" for all
    others.
    """

    name: str
    uid: str
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    deleting: bool = False
    provider_id: str = ""
    boot_id: str = ""
    system_uuid: str = ""
    addresses: tuple[str, ...] = ()
    unreadable: str = ""

    @property
    def ref(self) -> ObjectRef:
        """The object."""
        return ObjectRef(api_version="v1", kind="Node", name=self.name)

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, None if the node does not report it."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    @property
    def ready(self) -> bool:
        """Whether the node says Ready=True. Unknown and absent are not ready."""
        condition = self.condition(READY)
        return condition is not None and condition.status == "True"

    @property
    def ready_since(self) -> datetime | None:
        """When Ready took its present value; None if that is not known."""
        condition = self.condition(READY)
        return condition.since if condition else None

    @property
    def excluded(self) -> bool:
        """Whether the medik8s label keeps it out of remediation."""
        return self.labels.get(EXCLUDE_LABEL) == "true"

    @property
    def misspells_exclusion(self) -> bool:
        """Whether it carries that label with a value that excludes nothing."""
        return self.labels.get(EXCLUDE_LABEL, "true") != "true"

    @property
    def zone(self) -> str:
        """The failure domain of the node's label, "" without one."""
        return self.labels.get(ZONE_LABEL, "")

    @property
    def control_plane(self) -> bool:
        """Whether the node carries a role label of the control plane, that of its etcd included."""
        return any(label in self.labels for label in CONTROL_PLANE_LABELS)


# Events on a Node, as far as a fence policy asks for them: recent reports of programs on the node about it.
#
# An Event is no state: it says that something happened once, and is never taken back. So one counts for a while only, and only
# if it is read at the moment of use (`activities/cluster/api/events.py`); no scan watches Events. What follows from one is
# `policy/checks/fence_policies.py`.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """source: the component that reported it. at: when it was last seen to happen. message: the component's text."""

    reason: str
    source: str
    at: datetime
    message: str = ""

    @property
    def full_name(self) -> str:
        """The name by which a policy asks for it."""
        return f"{self.source}/{self.reason}" if self.source else self.reason


def newest_recent_event(events: Iterable[NodeEvent], wanted: Iterable[str], *, age: timedelta, now: datetime) -> NodeEvent | None:
    """The newest wanted Event that is no older than `age`. wanted: each by its `reason`, or by `source/reason`.

    It may not be later than now by more than `age` either: the writer of an Event chooses its moment, and none may hold for
    ever.
    """
    named = set(wanted)
    found = (event for event in events if abs(now - event.at) <= age and {event.reason, f"{event.source}/{event.reason}"} & named)
    return max(found, key=lambda event: event.at, default=None)
