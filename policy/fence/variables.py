"""The variables that configuration may put into values, `{{ .NodeName }}` and friends, filled in for one node.

Some of them name one node and no other: a value with one of those identifies the node's own device (S10).
"""

from __future__ import annotations

import re

from policy.objects.nodes import NodeView

REGION_LABEL = "topology.kubernetes.io/region"

IDENTIFYING = frozenset({"NodeName", "ProviderID", "InstanceID"})

_VARIABLE = re.compile(r"\{\{\s*\.(\w+)\s*\}\}")
_PLACEHOLDER = re.compile(r"\[[A-Z][A-Z0-9_]*\]")


class VariableError(ValueError):
    """A value that can't be filled in. The text never repeats the value: it may be a password (S12)."""


def identifies(value: str) -> bool:
    """Whether the value contains a variable that differs from node to node."""
    return bool(IDENTIFYING & set(_VARIABLE.findall(value)))


def fill_in(value: str, node: NodeView) -> str:
    """The value for this node. Raises VariableError for a variable that is unknown or that the node does not give."""
    known = variables_of(node)
    for variable in _VARIABLE.findall(value):
        if not known.get(variable):
            why = "the node has none" if variable in known else f"expected one of {', '.join(sorted(known))}"
            raise VariableError(f"{{{{ .{variable} }}}} can't be filled in: {why}")
    filled = _VARIABLE.sub(lambda match: known[match[1]], value)
    if "{{" in filled or "}}" in filled:
        raise VariableError("expected variables like {{ .NodeName }}")
    if (placeholder := _PLACEHOLDER.search(filled)) is not None:
        # As documents write it, the node-fencing proposal first: nobody fills it in.
        raise VariableError(
            f"{placeholder[0]} stands for something: write the value itself, or a variable like {{{{ .NodeName }}}}"
        )
    return filled


def has_placeholder(text: str) -> bool:
    """Whether a name was copied from a document without putting in what stands for the node."""
    return _PLACEHOLDER.search(text) is not None


def with_node_name(value: str, name: str) -> str:
    """Another node's value as far as we can fill it in: nothing but its name is known here."""
    return _VARIABLE.sub(lambda match: name if match[1] == "NodeName" else match[0], value)


def variables_of(node: NodeView) -> dict[str, str]:
    """What may be filled in, "" for what this node does not give."""
    return {
        "NodeName": node.name,
        "ProviderID": node.provider_id,
        "InstanceID": node.provider_id.rpartition("/")[2],
        "Zone": node.zone,
        "Region": node.labels.get(REGION_LABEL, ""),
    }
