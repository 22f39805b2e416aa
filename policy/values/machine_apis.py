"""The three APIs of Machines: one row each, with all that is spelled differently between them.

All code that asks to which API a Machine belongs, or where that API keeps something, asks this table. How the fields of a
Machine are read is `activities/cluster/objects/machines_decoding.py`; where its resources are,
`activities/cluster/api/paths.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MachineApi:
    """One API. There is one object for each API; compare them by identity.

    name: as in keys of Machines, and the name of the `Dialect` of its health checks, if it has such. versions: those that we
    speak, the newest first. in_management_cluster: its objects are in Cluster API's management cluster. has_deployments: there
    may be a MachineDeployment above a MachineSet. member_labels: a Machine with any of these is a member of the control plane;
    None: any value counts. node_label: on a Machine, names its Node; "" if only `nodeRef` does. deployment_label: on a Machine,
    names the MachineDeployment or MachineSet it is a replica of. goes_first: annotations that make a Machine the first to go
    when its set is scaled down. empty_goes_first: also without a value. expiry_in_status: the end of a preservation is a status
    field, not an annotation. has_priority: its sets look at a priority when they are scaled down. home: the one namespace in
    which its controllers work, "" if that differs from one installation to the next.
    """

    name: str
    group: str
    versions: tuple[str, ...]
    in_management_cluster: bool = False
    has_deployments: bool = True
    member_labels: Mapping[str, str | None]
    node_label: str = ""
    deployment_label: str = ""
    goes_first: tuple[str, ...]
    empty_goes_first: bool = False
    expiry_in_status: bool = False
    has_priority: bool = False
    home: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def api_version(self) -> str:
        """Group and newest version that we speak, as in an object's `apiVersion`."""
        return f"{self.group}/{self.versions[0]}"


OPENSHIFT = MachineApi(
    name="openshift",
    group="machine.openshift.io",
    versions=("v1beta1",),
    has_deployments=False,
    member_labels={"machine.openshift.io/cluster-api-machine-role": "master"},
    deployment_label="machine.openshift.io/cluster-api-machineset",
    goes_first=("machine.openshift.io/delete-machine", "machine.openshift.io/cluster-api-delete-machine"),
    home="openshift-machine-api",
)
CLUSTER_API = MachineApi(
    name="cluster-api",
    group="cluster.x-k8s.io",
    versions=("v1beta2", "v1beta1"),
    in_management_cluster=True,
    member_labels={"cluster.x-k8s.io/control-plane": None},
    deployment_label="cluster.x-k8s.io/deployment-name",
    goes_first=("cluster.x-k8s.io/delete-machine",),
    empty_goes_first=True,
)
MCM = MachineApi(
    name="machine-controller-manager",
    group="machine.sapcloud.io",
    versions=("v1alpha1",),
    member_labels={**OPENSHIFT.member_labels, **CLUSTER_API.member_labels},
    node_label="node",
    goes_first=("machine.sapcloud.io/marked-for-deletion-time",),
    expiry_in_status=True,
    has_priority=True,
)

MACHINE_APIS = (OPENSHIFT, CLUSTER_API, MCM)
_BY_GROUP = {each.group: each for each in MACHINE_APIS}
_BY_NAME = {each.name: each for each in MACHINE_APIS}


def machine_api(api_version: str) -> MachineApi | None:
    """The API of an `apiVersion`, or of a group alone; None if it is none of these."""
    return _BY_GROUP.get(api_version.partition("/")[0])


def named(name: str) -> MachineApi | None:
    """The API of that name, which may be a dialect's name; None if there is none."""
    return _BY_NAME.get(name)
