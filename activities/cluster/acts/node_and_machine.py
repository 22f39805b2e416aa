"""The objects of a node or machine that the steps of a remediation act on, read once for people who ask.

A remediation finds the same when it begins (`remediating.py`); here nothing of it is pinned.
"""

from __future__ import annotations

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.served_cluster import Connections
from activities.cluster.objects.live_machines import machine_named, machine_of
from activities.cluster.objects.live_node import find_node
from policy.checks.targets import MACHINE
from policy.remediation.ladder import Body


async def body_of(name: str, nodes: ClusterConnection, machines: ClusterConnection) -> Body | None:
    """Of a Node, or of a Machine named `machine/<namespace>/<name>`; None where there is neither. Errors: InvalidConfig where
    several Machines claim the Node."""
    connections = Connections(nodes=nodes, machines=machines)
    node = None if name.startswith(MACHINE) else await find_node(nodes, name)
    machine = await (machine_of(connections, node.view) if node is not None else machine_named(connections, name))
    if machine is None:
        return Body(has_node=True) if node is not None else None
    return Body(has_node=node is not None, phase=machine.view.phase, owner=machine.view.controller)
