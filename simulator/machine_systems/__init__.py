"""The systems that the simulated nodes can be Machines of: Gardener's, OpenShift's or Cluster API's. One module each,
`contract.py` for all."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.machine_systems.cluster_api import ClusterApi
from simulator.machine_systems.cluster_api_v1beta1 import ClusterApiV1beta1
from simulator.machine_systems.contract import MachineSystem
from simulator.machine_systems.gardener import Gardener
from simulator.machine_systems.openshift import OpenShift

MACHINE_SYSTEMS: Mapping[str, type[MachineSystem]] = {
    each.name: each for each in (Gardener, OpenShift, ClusterApi, ClusterApiV1beta1)
}


def machine_system_named(name: str) -> MachineSystem:
    """The system of that name. Raises ValueError saying which there are."""
    if name not in MACHINE_SYSTEMS:
        raise ValueError(f"there are no machines {name!r}: expected one of {', '.join(MACHINE_SYSTEMS)}")
    return MACHINE_SYSTEMS[name]()
