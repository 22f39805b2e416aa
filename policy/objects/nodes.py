"""One node: the fields of a Kubernetes Node that decisions use; and what in its cluster makes every node's health doubtful.

A `NodeView` is a snapshot. It comes from the watch cache (for verdicts) or from a live read (for the last look); the view does
not show from which, the caller knows. How it is decoded: `activities/cluster/objects/decoding.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from policy.values.fields import mapping
from policy.values.object_refs import ObjectRef

READY = "Ready"

MARK_ANNOTATION = "nodewarden.io/episode"
"""Our mark: JSON of `policy.objects.marks.Mark`, written by an episode's first act, removed by its end."""
MARK_LABEL = "nodewarden.node-restriction.kubernetes.io/episode"
"""The digest of that annotation. A kubelet may write annotations of its Node, but no label below node-restriction.kubernetes.io
(the admission plugin NodeRestriction), as it may not take taints away."""

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
    def reports(self) -> bool:
        """Whether its kubelet reports, well or not: of a silent one Kubernetes writes Unknown within a minute."""
        condition = self.condition(READY)
        return condition is not None and condition.status != "Unknown"

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


# States of a cluster that make every node's health doubtful: upgrades, and the guard of etcd.
#
# These are facts, each with the text that people see; `policy/checks/circuit_breakers.py` says which check they hold back. All
# are OpenShift's: no other distribution publishes an upgrade in a readable way.

CURRENT_CONFIG_ANNOTATION = "machineconfiguration.openshift.io/currentConfig"
DESIRED_CONFIG_ANNOTATION = "machineconfiguration.openshift.io/desiredConfig"

ETCD_NAMESPACE = "openshift-etcd"
GUARD_LABEL = ("app", "guard")
GUARD_PREFIXES = ("etcd-guard-", "etcd-quorum-guard-")


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdGuard:
    """OpenShift's guard of etcd: its PodDisruptionBudgets' allowances, and whether each node's guard pod says Ready.

    A node without an entry has no guard pod. `known` False: this is no OpenShift, or it was not read. Known without a budget and
    without a guard pod: the reader saw neither.
    """

    known: bool = False
    disruptions_allowed: tuple[int, ...] = ()
    guards: Mapping[str, str] = field(default_factory=dict)

    def objection(self, node: str) -> str:
        """Why that control-plane node may not be disrupted, "" when it may; the rule of the NodeHealthCheck operator."""
        if not self.known:
            return ""
        if not (self.disruptions_allowed or self.guards):
            seen = f"neither a PodDisruptionBudget nor a guard pod of etcd can be seen in {ETCD_NAMESPACE}"
            return f"{seen}: what etcd can do without is not known"
        if len(self.disruptions_allowed) != 1:
            return f"expected one PodDisruptionBudget in {ETCD_NAMESPACE}, found {len(self.disruptions_allowed)}"
        if self.disruptions_allowed[0] >= 1 or self.guards.get(node) not in {"True", "Unknown"}:
            return ""
        return f"etcd's PodDisruptionBudget allows no disruption, and no guard pod says that the member of {node} is unwell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The surroundings of one cluster. `upgrade`: what is being upgraded, "" for nothing."""

    upgrade: str = ""
    etcd: EtcdGuard = EtcdGuard()


def being_updated(node: NodeView) -> bool:
    """Whether the node is on its way to another machine config: it is expected to go away and come back."""
    desired = node.annotations.get(DESIRED_CONFIG_ANNOTATION)
    return bool(desired) and desired != node.annotations.get(CURRENT_CONFIG_ANNOTATION)


def is_guard(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is one of OpenShift's guards of an etcd member."""
    metadata = mapping(pod.get("metadata"))
    label, value = GUARD_LABEL
    named = str(metadata.get("name", "")).startswith(GUARD_PREFIXES)
    return metadata.get("namespace") == ETCD_NAMESPACE and (named or mapping(metadata.get("labels")).get(label) == value)
