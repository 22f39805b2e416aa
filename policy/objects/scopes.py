"""Scopes: parts of a cluster that fail together, and how many nodes of each are unresponsive.

A scope is a way to divide a cluster (`cluster` is all of it, `zone`, `pool`, or the key of a node label such as `rack`), a group
one part under it (`rack=r1`). Nodes without the label are a group of their own: a misspelt key holds back too much, never too
little. What follows from the numbers is `policy/checks/fence_policies.py`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from policy.objects.nodes import NodeView

CLUSTER = "cluster"
ZONE = "zone"
POOL = "pool"

POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "worker.gardener.cloud/pool",
    "karpenter.sh/nodepool",
)
"""The providers' labels for the pool of a node; the first one that a node has counts."""

_LABEL = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

EXPECTED = f"{CLUSTER}, {ZONE}, {POOL} or the key of a node label"
"""For messages: the valid names of a scope."""


def is_scope(text: str) -> bool:
    return _LABEL.fullmatch(text) is not None


def group_of(scope: str, node: NodeView) -> str:
    """The group of the node under that scope: `cluster`, `zone=a`, `rack=r1`; `rack=` without the label."""
    if scope == CLUSTER:
        return CLUSTER
    if scope == ZONE:
        return f"{ZONE}={node.zone}"
    if scope == POOL:
        return f"{POOL}={next((node.labels[label] for label in POOL_LABELS if label in node.labels), '')}"
    return f"{scope}={node.labels.get(scope, '')}"


def scope_of(group: str) -> str:
    return group.partition("=")[0]


def group_phrase(group: str) -> str:
    if group == CLUSTER:
        return "the cluster"
    return f"the nodes without {scope_of(group)}" if group.endswith("=") else group


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """How many nodes a group has, how many of them do not say Ready, and how many say that they have lost their storage.

    The node of the decision counts, too. So does a node that we have switched off ourselves.
    """

    group: str
    nodes: int = 0
    unresponsive: int = 0
    without_storage: int = 0

    @property
    def percent(self) -> int:
        """The unresponsive share, truncated as oVirt does; 0 for a group without nodes."""
        return percent(self.unresponsive, self.nodes)

    def and_more(self, down: int) -> GroupCount:
        return replace(self, unresponsive=min(self.unresponsive + down, self.nodes))


def percent(part: int, whole: int) -> int:
    """A share in whole percent, truncated; 0 of nothing."""
    return part * 100 // whole if whole else 0


def lost_storage(node: NodeView, conditions: Iterable[str]) -> str:
    """The first of these condition types that says that the node has lost its storage, "" for none."""
    said = {condition.type for condition in node.conditions if condition.status == "True"}
    return next((kind for kind in conditions if kind in said), "")


class GroupTally:
    """The counts of all groups, kept change by change. `version`: another number after each change of a count or a membership."""

    def __init__(self) -> None:
        self.version = 0
        self._scopes: tuple[str, ...] = ()
        self._storage_conditions: tuple[str, ...] = ()
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])

    def count_by(self, scopes: Iterable[str], storage_conditions: Iterable[str], nodes: Iterable[NodeView]) -> bool:
        """Count these nodes by other scopes from now on. False: the scopes are the same as before."""
        wanted = tuple(sorted(set(scopes) - {CLUSTER})), tuple(storage_conditions)
        if wanted == (self._scopes, self._storage_conditions):
            return False
        self._scopes, self._storage_conditions = wanted
        self._counts.clear()
        for node in nodes:
            self.move(None, node)
        self.version += 1
        return True

    def move(self, before: NodeView | None, after: NodeView | None) -> None:
        """A node that is new (no before), gone (no after) or has changed."""
        left = self._standing(before) if before is not None else None
        came = self._standing(after) if after is not None else None
        if left == came:
            return
        self.version += 1
        for standing, step in ((left, -1), (came, 1)):
            if standing is None:
                continue
            groups, unresponsive, without_storage = standing
            for group in groups:
                count = self._counts[group]
                count[0] += step
                count[1] += step * unresponsive
                count[2] += step * without_storage
                if not count[0]:
                    del self._counts[group]

    def groups_of(self, node: NodeView) -> tuple[str, ...]:
        """The groups of a node, except the cluster, to which all belong."""
        return tuple(group_of(scope, node) for scope in self._scopes)

    def of(self, group: str) -> GroupCount:
        nodes, unresponsive, without_storage = self._counts.get(group, (0, 0, 0))
        return GroupCount(group=group, nodes=nodes, unresponsive=unresponsive, without_storage=without_storage)

    def all(self) -> list[GroupCount]:
        return [self.of(group) for group in sorted(self._counts)]

    def _standing(self, node: NodeView) -> tuple[tuple[str, ...], bool, bool]:
        return (CLUSTER, *self.groups_of(node)), not node.ready, bool(lost_storage(node, self._storage_conditions))
