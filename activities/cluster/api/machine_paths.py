"""Where the objects of the three Machine APIs are: resources, the versions that a server may have of them, and the connection.

The APIs themselves are a table in `policy/values/machine_apis.py`; all other kinds are in `paths.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from activities.cluster.api.paths import Resource, in_version
from activities.cluster.api.refusals import unless_gone
from activities.errors import ErrorType, failure
from policy.values.machine_apis import CLUSTER_API, MACHINE_APIS, MachineApi, machine_api
from policy.values.object_refs import ObjectRef

C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")


def _resources(kind: str, apis: Iterable[MachineApi]) -> dict[MachineApi, Resource]:
    return {api: Resource(api_version=api.api_version, kind=kind, plural=f"{kind.lower()}s") for api in apis}


MACHINES = _resources("Machine", MACHINE_APIS)
MACHINE_SETS = _resources("MachineSet", MACHINE_APIS)
MACHINE_DEPLOYMENTS = _resources("MachineDeployment", (api for api in MACHINE_APIS if api.has_deployments))
"""Each in the newest version that we speak."""


def in_management_cluster(api_version: str) -> bool:
    """Whether such objects live where Cluster API's do, where that is another API server than the nodes'."""
    api = machine_api(api_version)
    return api is not None and api.in_management_cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections(Generic[C_co]):
    """Where nodes live, and where Cluster API's objects do."""

    nodes: C_co
    machines: C_co

    def of(self, api_version: str) -> C_co:
        """The connection over which objects of that version are read and written."""
        return self.machines if in_management_cluster(api_version) else self.nodes


def versions_of(resource: Resource) -> tuple[Resource, ...]:
    """The kind in every version that a server may have of it, its own first: one that is served no more is no deletion."""
    group, _, own = resource.api_version.rpartition("/")
    # What Cluster API's control planes are made of has the versions of Cluster API.
    others = CLUSTER_API.versions if group == CLUSTER_API.group or group.endswith(f".{CLUSTER_API.group}") else ()
    return (resource, *(in_version(resource, each) for each in others if each != own))


async def as_served(resource: Resource, read: Callable[[Resource], Awaitable[T]]) -> T | None:
    """What is read of it in the first version that is served; None where none is, or no such object is there."""
    for version in versions_of(resource):
        if (found := await unless_gone(read(version))) is not None:
            return found
    return None


def api_of(ref: ObjectRef) -> MachineApi:
    """Of which API a Machine is. Errors: InvalidConfig for what is no Machine."""
    api = machine_api(ref.api_version)
    if ref.kind != "Machine" or api is None or not ref.api_version.partition("/")[2]:
        expected = ", ".join(sorted(each.group for each in MACHINE_APIS))
        raise failure(ErrorType.INVALID_CONFIG, f"{ref.key}: expected a Machine of {expected}")
    return api


def resource_of(ref: ObjectRef) -> Resource:
    """The kind of a Machine, by its group and in its version. Errors: InvalidConfig for what is no Machine."""
    return in_version(MACHINES[api_of(ref)], ref.api_version.partition("/")[2])


def machines_named(namespace: str, name: str) -> list[ObjectRef]:
    """All Machines that a person may mean by a namespace and a name, in every version."""
    kinds = (version for api in MACHINE_APIS for version in versions_of(MACHINES[api]))
    return [kind.ref(name, namespace) for kind in kinds]


def set_of(machine: ObjectRef, owner: str) -> tuple[Resource, str] | None:
    """The MachineSet that controls a Machine, in the Machine's version, and its name; None for any other owner. owner: kind and
    name of what controls it."""
    kind, _, name = owner.partition("/")
    api, version = machine_api(machine.api_version), machine.api_version.partition("/")[2]
    return (in_version(MACHINE_SETS[api], version), name) if kind == "MachineSet" and api is not None else None


def deployments_above(machine: ObjectRef) -> Resource | None:
    """What may be above a Machine's MachineSet, in the Machine's version; None where its API has no such kind."""
    api, version = machine_api(machine.api_version), machine.api_version.partition("/")[2]
    found = MACHINE_DEPLOYMENTS.get(api) if api is not None else None
    return in_version(found, version) if found is not None else None
