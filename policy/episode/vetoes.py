"""What people and other systems say on a Node or a Machine to keep others from it, in words by which to find it.

The one place that reads their labels, annotations and taints as a reason not to act. Which acts each of them stops, and whether a
person is stopped as well, is the table in `policy/episode/gate.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from policy.objects.machines import PAUSED_ANNOTATION, SKIP_ANNOTATION, MachineView
from policy.objects.nodes import EXCLUDE_LABEL, PRESERVE_ANNOTATION, NodeView
from policy.preservation.kept_machine import CLUSTER_API_DELETE, CONDITION, OPENSHIFT_DELETE, PRIORITY_ANNOTATION, TAINT
from policy.preservation.requests import KEEPING, Annotated, Intent, requested

HOLD_ANNOTATION = "nodewarden.io/hold"
"""A person's "not now" on a node; any value but `false` holds, since the key says what is meant."""

FENCING_LABEL = "nodewarden.io/fencing"
"""`off` on a node keeps it from being fenced; people put it on all nodes of a scope by a selector. So does whatever else is not
`on`: who stops something in a hurry writes `OFF`, or `false`, and is heard (S44)."""

ON = "on"

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

WITHOUT_LABEL = f"remove the label {EXCLUDE_LABEL} from the node"
WITHOUT_MACHINE_ANNOTATION = f"remove the annotation {PAUSED_ANNOTATION} or {SKIP_ANNOTATION} from the Machine"
"""How a person takes his word back."""


# A person's word ------------------------------------------------------------------------------------------------------


def excluded(node: NodeView) -> str:
    """Whether the medik8s label keeps it out of remediation."""
    return f"the label {EXCLUDE_LABEL}=true keeps {node.name} out of remediation" if node.excluded else ""


def is_held(value: str | None) -> bool:
    """Whether that value of the annotation holds a node."""
    return value is not None and value != "false"


def held(node: NodeView) -> str:
    """Whether a person holds it."""
    hold = node.annotations.get(HOLD_ANNOTATION)
    if not is_held(hold):
        return ""
    return f"the annotation {HOLD_ANNOTATION} holds the node" + (f": {hold}" if hold else "")


def switched_off_node(node: NodeView) -> str:
    """Whether the label switches fencing off for this node."""
    said = node.labels.get(FENCING_LABEL, ON)
    return f"the label {FENCING_LABEL}={said} switches fencing off for it" if said.lower() != ON else ""


def kept_out(machine: MachineView) -> str:
    """Whether people keep it out of remediation."""
    found = machine.kept_out_by
    return f"the annotation {found} keeps the Machine {machine.name} out of remediation" if found else ""


# Preservation ---------------------------------------------------------------------------------------------------------


def kept_by_word(node: NodeView | None, machines: Iterable[MachineView]) -> str:
    """Whether somebody asks for it to be preserved, on the Node or on one of its Machines alone (S21, S27): the Node's value
    beats the Machine's, and what a preservation makes of it comes only later. That a value of the Node was taken away is not
    asked here: what a Machine says in plain sight holds."""
    on_node = node.annotations.get(PRESERVE_ANNOTATION) if node is not None else None
    if node is not None and requested(Annotated(node=on_node)).intent in KEEPING:
        return f"the annotation {PRESERVE_ANNOTATION}={on_node} preserves the node"
    for machine in machines:
        on_machine = machine.annotations.get(PRESERVE_ANNOTATION)
        if requested(Annotated(node=on_node, machine=on_machine), node_exists=node is not None).intent in KEEPING:
            return f"the annotation {PRESERVE_ANNOTATION}={on_machine} on Machine {machine.name} preserves the node"
    return ""


def kept(node: NodeView) -> bool:
    """Whether its condition says that it is preserved now."""
    condition = node.condition(CONDITION)
    return condition is not None and condition.status == "True"


def kept_by_condition(node: NodeView) -> str:
    """The same in words."""
    return f"the condition {CONDITION} says that the node is preserved" if kept(node) else ""


def preserved_as_failed(node: NodeView) -> bool:
    """Whether the Node says that it is kept though it failed: the condition, and the taint that it bears only then."""
    return kept(node) and begun_as_failed(node)


def begun_as_failed(node: NodeView) -> bool:
    """The same of one whose pods may be about to be moved, after which the condition is written. A kubelet can't taint its own
    Node. A word against it counts before anything of it was written (S26)."""
    if requested(Annotated(node=node.annotations.get(PRESERVE_ANNOTATION))).intent is Intent.FALSE:
        return False
    return any(taint.key == TAINT for taint in node.taints)


# Those who take it away -----------------------------------------------------------------------------------------------


def deleted(node: NodeView | None, machines: Iterable[MachineView]) -> str:
    """Whether the Node or one of its Machines is being deleted."""
    if node is not None and node.deleting:
        return f"Node {node.name} is being deleted"
    return next((f"Machine {machine.name} is being deleted" for machine in machines if machine.deleting), "")


def taken_away(node: NodeView | None, machines: Iterable[MachineView]) -> str:
    """Who is taking the node or one of its Machines away, "" where nobody is."""
    for taint in node.taints if node is not None else ():
        if (who := TAKEN_AWAY_BY.get(taint.key)) is not None:
            return f"{who} is taking the node away, as the taint {taint.key} says"
    if node is not None and node.annotations.get(TOLD_TO_DELETE_ANNOTATION) == "true":
        return f"machine-controller-manager is to delete its Machine, as the annotation {TOLD_TO_DELETE_ANNOTATION} says"
    return next(filter(None, (_chosen(machine.name, machine.annotations) for machine in machines)), "")


def _chosen(name: str, annotations: Mapping[str, str]) -> str:
    """Whether that Machine is chosen as the one that goes when its set is scaled down, which the autoscaler does at once."""
    found = next((each for each in OPENSHIFT_DELETE if annotations.get(each)), "")
    if CLUSTER_API_DELETE in annotations:
        found = CLUSTER_API_DELETE
    elif annotations.get(PRIORITY_ANNOTATION) == FIRST_TO_GO:
        found = f"{PRIORITY_ANNOTATION}={FIRST_TO_GO}"
    return f"Machine {name} is chosen to be scaled down, as the annotation {found} says" if found else ""
