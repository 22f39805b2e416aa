"""States of a cluster that make every node's health doubtful: upgrades, and the guard of etcd.

These are facts, each with the text that people see; `policy/checks/circuit_breakers.py` says which check they hold back. All are
OpenShift's: no other distribution publishes an upgrade in a readable way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from policy.objects.nodes import NodeView
from policy.values.fields import mapping

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
