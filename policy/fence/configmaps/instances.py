"""Which cloud a node's machine is in, for methods that act on the instance: by the providerID, else by what is configured."""

from __future__ import annotations

from collections.abc import Mapping

from policy.fence.configmaps.definitions import Definition
from policy.fence.configmaps.lines import Line
from policy.fence.drivers import DRIVER_PARAMETERS
from policy.fence.drivers.contract import DriverParameters
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError

BY_NAME: Mapping[str, frozenset[str]] = {"gce": frozenset({"project", "zone"})}
"""Clouds where the node's name is an instance's, once this much is known. EC2's names are tags that anybody may share."""


class UnknownInstanceError(PolicyError):
    """Nothing says which instance a node is."""


def instance_driver(
    node: NodeView, method: Definition, common: Mapping[str, Line]
) -> tuple[str, DriverParameters, Mapping[str, str]]:
    """The driver, what it takes, and what follows from the node's name. Raises UnknownInstanceError saying what to write."""
    for name, takes in DRIVER_PARAMETERS.items():
        if node.provider_id and takes.from_provider_id is not None and takes.from_provider_id(node.provider_id):
            return name, takes, {}
    if not node.provider_id:
        written = {key for key, line in {**common, **method.parameters}.items() if line.value}
        for name, needed in BY_NAME.items():
            if name in DRIVER_PARAMETERS and needed <= written:
                return name, DRIVER_PARAMETERS[name], {"instance": node.name}
    raise UnknownInstanceError(
        *method.place,
        f"{method.name}: {_what(node)}; write a FencingTemplate, a FenceConfig or ConfigMap fence-config-node-{node.name}",
    )


def _what(node: NodeView) -> str:
    if not node.provider_id:
        return f"Node/{node.name} has no providerID, so nothing says which instance it is"
    return f"no driver knows the platform of its providerID ({node.provider_id.partition(':')[0]})"
