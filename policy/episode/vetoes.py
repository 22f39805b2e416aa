"""Who says "hands off" on a Node or its Machine, in words by which to find it. Leases and checks, who may too, are asked
elsewhere.

A person's word holds for everybody. That another system is taking the machine away (`going`) holds for programs only: two that
act on one machine at once are worse than either, but whoever stands before it may know that the other one has got stuck.
"""

from __future__ import annotations

from collections.abc import Mapping

from policy.objects.machines import MachineView
from policy.objects.nodes import EXCLUDE_LABEL, PRESERVE_ANNOTATION, NodeView
from policy.preservation.held import CONDITION, TAINT
from policy.preservation.last_to_go import CLUSTER_API_DELETE, OPENSHIFT_DELETE, PRIORITY_ANNOTATION
from policy.preservation.requests import KEEPING_WORDS

HOLD_ANNOTATION = "nodewarden.io/hold"
"""A person's "not now" on a node; any value but `false` holds, since the key says what is meant."""

TAKEN_AWAY_BY = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler",
    "karpenter.sh/disrupted": "karpenter",
    "karpenter.sh/disruption": "karpenter",
}
"""The taints of those who are taking a node away at this moment. The autoscaler's `DeletionCandidateOfClusterAutoscaler` is a
thought that may come to nothing, and no reason."""

TOLD_TO_DELETE_ANNOTATION = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
"""On a Node (`true`): machine-controller-manager deletes its Machine."""

FIRST_TO_GO = "1"
"""The priority that the autoscaler gives a Machine of MCM which it has chosen."""


def going(node: NodeView | None, machine: MachineView | None = None, *, ours: bool = False) -> str:
    """Who is taking the node or its Machine away, "" where nobody is.

    ours: that its Machine is deleted is our own doing.
    """
    if node is not None and node.deleting:
        return f"Node {node.name} is being deleted"
    for taint in node.taints if node is not None else ():
        if (who := TAKEN_AWAY_BY.get(taint.key)) is not None:
            return f"{who} is taking the node away, as the taint {taint.key} says"
    if node is not None and node.annotations.get(TOLD_TO_DELETE_ANNOTATION) == "true":
        return f"machine-controller-manager is to delete its Machine, as the annotation {TOLD_TO_DELETE_ANNOTATION} says"
    if machine is None:
        return ""
    if machine.deleting and not ours:
        return f"Machine {machine.name} is being deleted"
    return chosen(machine.name, machine.annotations)


def chosen(name: str, annotations: Mapping[str, str]) -> str:
    """Whether that Machine is chosen as the one that goes when its set is scaled down, which the autoscaler does at once; ""
    where it is not."""
    found = next((each for each in OPENSHIFT_DELETE if annotations.get(each)), "")
    if CLUSTER_API_DELETE in annotations:
        found = CLUSTER_API_DELETE
    elif annotations.get(PRIORITY_ANNOTATION) == FIRST_TO_GO:
        found = f"{PRIORITY_ANNOTATION}={FIRST_TO_GO}"
    return f"Machine {name} is chosen to be scaled down, as the annotation {found} says" if found else ""


def veto_of(node: NodeView, *, preserving: bool = False) -> str:
    """Why nothing may be done to the node that disturbs it, "" where its labels and annotations say nothing against it.

    preserving: who asks is the one that carries its preservation out.
    """
    if node.labels.get(EXCLUDE_LABEL) == "true":
        return f"the label {EXCLUDE_LABEL} excludes the node"
    if not preserving and (preserved := preserved_by(node)):
        return preserved
    return held_by(node)


def held_by(node: NodeView) -> str:
    """Whether a person holds it."""
    hold = node.annotations.get(HOLD_ANNOTATION)
    if hold is None or hold == "false":
        return ""
    return f"the annotation {HOLD_ANNOTATION} holds the node" + (f": {hold}" if hold else "")


def preserved_by(node: NodeView) -> str:
    """Whether it is preserved, or somebody asks for that (S21): the annotation may be on the Machine alone, but then the
    condition tells."""
    preserve = node.annotations.get(PRESERVE_ANNOTATION)
    if preserve in KEEPING_WORDS:
        return f"the annotation {PRESERVE_ANNOTATION}={preserve} preserves the node"
    if kept(node):
        return f"the condition {CONDITION} says that the node is preserved"
    return ""


def preserved_on(machine: MachineView, node: NodeView | None) -> str:
    """Whether somebody asks for the Machine to be preserved on that alone (S21, S27): the Node's own value beats it, and what a
    preservation makes of it comes only later."""
    preserve = machine.annotations.get(PRESERVE_ANNOTATION)
    if preserve not in KEEPING_WORDS or (node is not None and PRESERVE_ANNOTATION in node.annotations):
        return ""
    return f"the annotation {PRESERVE_ANNOTATION}={preserve} on Machine {machine.name} preserves the node"


def preserved_as_failed(node: NodeView) -> bool:
    """Whether the Node says that it is kept though it failed: the condition, and the taint that it bears only then. A word
    against it counts before anything of it was written (S26)."""
    if node.annotations.get(PRESERVE_ANNOTATION) == "false":
        return False
    return kept(node) and any(taint.key == TAINT for taint in node.taints)


def kept(node: NodeView) -> bool:
    """Whether its condition says that it is preserved now."""
    condition = node.condition(CONDITION)
    return condition is not None and condition.status == "True"
