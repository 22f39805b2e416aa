"""Who else is configured to be fenced by a node's devices: asked before they are used for anything that destroys (S39).

A device that is written beside two nodes switches off the wrong one of them. Read are the few objects that name nodes; only
whom they name for the very device is resolved. What names nobody (ConfigMaps, which are read by name; a node's name within a
value) the hourly check finds, which resolves all nodes.
"""

from __future__ import annotations

from collections.abc import Collection

from temporalio.exceptions import ApplicationError

from activities.cluster.api.paths import FENCE_CONFIGS, FENCING_TEMPLATES
from activities.cluster.live.plans import all_of, configuration_for
from activities.cluster.objects.livenode import find_node
from activities.cluster.objects.reading import Readers
from activities.errors import ErrorType, error_type
from policy.checks.fence_policies import PolicySource
from policy.episode.needs import Need
from policy.fence.compiling import compile_config
from policy.fence.device_names import named_beside
from policy.values.errors import PolicyError

MOST_ASKED = 5
"""Nodes that are resolved in one look."""


async def device_claims(
    connections: Readers, node: str, endpoints: Collection[str], trusted: Collection[str], source: PolicySource
) -> str:
    """Who else is to be fenced by one of these devices, in words; "" for nobody. trusted: namespaces whose templates count."""
    if not endpoints:
        return ""
    templates = await all_of(connections.nodes, FENCING_TEMPLATES.path())
    counting = [each for each in templates if each["metadata"]["namespace"] in trusted]
    objects = [*counting, *await all_of(connections.nodes, FENCE_CONFIGS.path())]
    if len(objects) < 2:
        return ""  # what one object says of two nodes is refused when it is read
    named = named_beside(objects, endpoints, node)
    for other in sorted(named)[:MOST_ASKED]:
        if await _claims(connections, other, named[other], source):
            told = f"{named[other]} is configured as the device of Node/{node} and of Node/{other}"
            return f"{told}: find out whose it is, or the wrong machine is switched off"
    return ""


async def _claims(connections: Readers, name: str, endpoint: str, source: PolicySource) -> bool:
    """Whether a Node of that name is there, and has the device. One whose configuration can't be used may be meant to have it."""
    node = await find_node(connections.nodes, name)
    if node is None:
        return False
    try:
        config = await configuration_for(connections, node.view, None, Need(), source=source)
        return bool(config.errors) or endpoint in compile_config(config).endpoints
    except PolicyError:
        return True
    except ApplicationError as error:
        if error_type(error) is not ErrorType.INVALID_CONFIG:
            raise
        return True
