"""Who says "hands off" on a Node itself, in words by which to find it. Leases and checks, who may too, are asked elsewhere."""

from __future__ import annotations

from policy.nodes import EXCLUDE_LABEL, PRESERVE_ANNOTATION, NodeView
from policy.preservation.held import CONDITION, TAINT
from policy.preservation.requests import KEEPING_WORDS

HOLD_ANNOTATION = "nodewarden.io/hold"
"""A person's "not now" on a node; any value but `false` holds, since the key says what is meant."""


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
