"""What `nodewarden deploy` is asked by: what a deployment is for, and which processes it consists of.

Reading is the same for all, since a scan that sees less judges wrongly. Features say what may be changed, and which Secrets
are read. The rights themselves are in `rights.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from policy.values.errors import PolicyError

ALL = "all"


class Feature(StrEnum):
    """The values are the words of `--features`."""

    HEALTH_CHECKS = "health-checks"
    FENCING = "fencing"
    FENCE_CONFIGMAPS = "fence-configmaps"
    DRAIN = "drain"
    MACHINES = "machines"
    PRESERVATION = "preservation"
    REMEDIATION_TEMPLATES = "remediation-templates"
    NODE_FENCE = "node-fence"
    PROPOSED_NODE_FENCE = "proposed-node-fence"
    DELETE_NODE = "delete-node"
    METRICS_PROXY = "metrics-proxy"


MEANINGS = {
    Feature.HEALTH_CHECKS: "report on NodeHealthChecks what they see",
    Feature.FENCING: "free what a node holds that is proven off, and read the credentials of its devices",
    Feature.FENCE_CONFIGMAPS: "take credentials from where fence configuration in ConfigMaps has them",
    Feature.DRAIN: "evict pods",
    Feature.MACHINES: "report on Machines and their health checks, and have Machines replaced",
    Feature.PRESERVATION: "keep failed machines for analysis, and give them up afterwards",
    Feature.REMEDIATION_TEMPLATES: "ask other controllers by remediation objects, and answer those of others",
    Feature.NODE_FENCE: "show episodes as NodeFences",
    Feature.PROPOSED_NODE_FENCE: "show them in the node-fencing proposal's group (node_fence.group: ha.k8s.io)",
    Feature.DELETE_NODE: "delete Nodes that are proven off",
    Feature.METRICS_PROXY: "let kube-rbac-proxy ask who reads metrics",
}

ON_DEMAND = frozenset({Feature.DELETE_NODE, Feature.METRICS_PROXY, Feature.PROPOSED_NODE_FENCE})
"""Granted by name only: with the method delete-node, the proxy in the pods, or the proposal's group in the settings."""

SHIPPED = frozenset(Feature) - ON_DEMAND
"""What `all` stands for."""


class Process(StrEnum):
    """As `nodewarden worker --role` has it. Evidence and remediation are the cluster worker's: no process serves them alone."""

    ALL = "all"
    CLUSTER = "cluster"
    POWER = "power"
    WORKFLOWS = "workflows"

    @property
    def account(self) -> str:
        """The name of its ServiceAccount and its ClusterRole."""
        return "nodewarden" if self is Process.ALL else f"nodewarden-{self}"


def features_of(words: Iterable[str]) -> frozenset[Feature]:
    """Raises PolicyError for a word that is none."""
    found: set[Feature] = set()
    for word in words:
        if word == ALL:
            found |= SHIPPED
        elif word in set(Feature):
            found.add(Feature(word))
        else:
            raise PolicyError("--features", word, f"expected {ALL} or some of {', '.join(Feature)}")
    return frozenset(found)


def processes_of(words: Iterable[str]) -> tuple[Process, ...]:
    """Raises PolicyError for a word that is none, and for `all` beside others."""
    found = tuple(dict.fromkeys(words))
    if not found or not set(found) <= set(Process) or (Process.ALL in found and len(found) > 1):
        raise PolicyError(
            "--roles",
            ",".join(found),
            f"expected {ALL}, or some of {', '.join(each for each in Process if each is not Process.ALL)}",
        )
    return tuple(map(Process, found))
