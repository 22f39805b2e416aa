"""`FenceConfig` (nodewarden.io/v1alpha1): how nodes are fenced, as one validated object instead of ConfigMaps. Cluster-scoped,
like the nodes it is about, so that nobody decides on machines by a right in some namespace.

Of several that are about a node the most specific holds, as a whole (S11): that of its name, else one whose selector fits, else
one for all nodes; two of the same rank are refused. Steps, devices and settings are `specs.py`, the schema is `deploy/crds/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from policy.fence.config import FenceConfig
from policy.fence.specs import GROUP, SPEC_FIELDS, VERSION, read_spec
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError
from policy.values.fields import Fields
from policy.values.selectors import parse_selector

KIND = "FenceConfig"
WHOM_FIELDS = ("nodeName", "nodeSelector")


class Rank(IntEnum):
    """How much an object is about one node."""

    ALL = 0
    SELECTED = 1
    NAMED = 2


def chosen(objects: Iterable[Mapping[str, object]], node: NodeView) -> Mapping[str, object] | None:
    """The FenceConfig that holds for a node, None without one. Raises PolicyError where that can't be told: one that can't be
    read may be the one that was meant."""
    ranked: dict[Rank, list[Mapping[str, object]]] = {}
    for obj in objects:
        rank = rank_of(obj, node)
        if rank is not None:
            ranked.setdefault(rank, []).append(obj)
    if not ranked:
        return None
    best = ranked[max(ranked)]
    if len(best) > 1:
        names = ", ".join(sorted(_head(obj)[0] for obj in best))
        raise PolicyError(f"Node/{node.name}", KIND, f"several of the same rank are about it: {names}; expected one")
    return best[0]


def rank_of(obj: Mapping[str, object], node: NodeView) -> Rank | None:
    """How much the object is about the node, None where it is not. Raises PolicyError."""
    _, subject = _head(obj)
    spec = Fields(obj, subject=subject).within("spec")
    if spec.has("nodeName"):
        if spec.has("nodeSelector"):
            raise spec.refuse("nodeSelector", "nodeName is written, too: expected one of them")
        return Rank.NAMED if spec.text("nodeName") == node.name else None
    if spec.has("nodeSelector"):
        return Rank.SELECTED if parse_selector(spec.within("nodeSelector"), []).matches(node.labels) else None
    return Rank.ALL


def read_fence_config(obj: Mapping[str, object], node: NodeView) -> FenceConfig:
    """The configuration for one node; what is wrong is among its errors."""
    name, subject = _head(obj)
    try:
        fields = Fields(obj, subject=subject)
        fields.must_be(f"{GROUP}/{VERSION}", KIND)
        spec = fields.within("spec")
        spec.only(*WHOM_FIELDS, *SPEC_FIELDS)
        return read_spec(spec, node=node, name=name, kind=KIND, subject=subject, namespace="", cordon=False)
    except PolicyError as error:
        return FenceConfig(node=node.name, name=name, source=KIND, subject=subject, errors=(str(error),))


def _head(obj: Mapping[str, object]) -> tuple[str, str]:
    name = Fields(obj, subject=KIND).within("metadata").text("name")
    return name, f"{KIND}/{name}"
