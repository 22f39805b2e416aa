"""Remediation operators of other people, simulated: a module each, `contract.py` for all.

A health check drives them by objects (and one by an annotation) and none knows the health check. Which of them a cluster has,
and what connects them with its machines, is `simulator/remediation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.remediators.contract import Remediator
from simulator.remediators.external_baremetal import ExternalBaremetal
from simulator.remediators.fence_agents import FenceAgentsRemediations
from simulator.remediators.machine_deletion import MachineDeletionRemediations
from simulator.remediators.metal3 import Metal3Remediations
from simulator.remediators.node_maintenance import NodeMaintenances
from simulator.remediators.self_node import SelfNodeRemediations

REMEDIATORS: Mapping[str, type[Remediator]] = {
    each.name_to_ask_for: each
    for each in (
        SelfNodeRemediations,
        FenceAgentsRemediations,
        MachineDeletionRemediations,
        Metal3Remediations,
        ExternalBaremetal,
        NodeMaintenances,
    )
}


def remediator_named(name: str) -> type[Remediator]:
    """The operator of that name. Raises ValueError saying which there are."""
    if name not in REMEDIATORS:
        raise ValueError(f"there is no remediator {name!r}: expected one of {', '.join(REMEDIATORS)}")
    return REMEDIATORS[name]
