"""What there is of a node or machine that steps of a remediation can be taken about, read once for people who ask.

A remediation finds the same when it begins (`remediating.py`); here nothing of it is pinned.
"""

from __future__ import annotations

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.machine_paths import Connections, machines_named
from activities.cluster.live.owning import machine_of
from activities.cluster.objects.livenode import find_node
from activities.cluster.objects.machine_reading import find_machine
from policy.checks.targets import MACHINE
from policy.remediation.ladder import Body
from policy.values.object_refs import ObjectRef


async def body_of(name: str, nodes: ClusterConnection, machines: ClusterConnection) -> Body | None:
    """Of a Node, or of a Machine named `machine/<namespace>/<name>`; None where there is neither. Errors: InvalidConfig where
    several Machines claim the Node."""
    node = None if name.startswith(MACHINE) else await find_node(nodes, name)
    refs = [await machine_of(node, nodes, machines)] if node is not None else [*_named(name)]
    connections = Connections(nodes=nodes, machines=machines)
    for ref in refs:
        found = await find_machine(connections, ref) if ref is not None else None
        if found is not None:
            return Body(has_node=node is not None, phase=found.view.phase, owner=found.view.controller)
    return Body(has_node=True) if node is not None else None


def _named(name: str) -> list[ObjectRef]:
    namespace, _, own = name.removeprefix(MACHINE).partition("/")
    return machines_named(namespace, own) if namespace and own else []
