"""Where the kinds that we touch live in the API: a table of paths, no discovery.

Discovery would cost two dozen requests per process for a list that has not changed in years. The requests themselves are
`connection.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from policy.values.machine_apis import CLUSTER_API, MACHINE_APIS, OPENSHIFT, MachineApi, machine_api
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of object and its place in the API."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """The path of one object, or of the collection where `name` is empty (all namespaces where `namespace` is)."""
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace, but {namespace!r} was given")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        parts = ["/apis" if "/" in self.api_version else "/api", self.api_version]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [part for part in (self.plural, quote(name, safe=":"), subresource) if part]
        return "/".join(parts)

    def ref(self, name: str, namespace: str = "") -> ObjectRef:
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=name, namespace=namespace)

    def whole(self, listed: Mapping[str, Any]) -> dict[str, Any]:
        """An object out of a list, which leaves out what kind it is of; what it says itself stays."""
        return {"apiVersion": self.api_version, "kind": self.kind, **listed}


def ref_of(document: Mapping[str, Any]) -> ObjectRef:
    metadata = document["metadata"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    return ObjectRef(api_version=str(document["apiVersion"]), kind=str(document["kind"]), name=name, namespace=namespace)


def in_version(resource: Resource, version: str) -> Resource:
    """The same kind in another version of its group."""
    return replace(resource, api_version=f"{resource.api_version.rpartition('/')[0]}/{version}")


NAMESPACES = Resource(api_version="v1", kind="Namespace", plural="namespaces", namespaced=False)
NODES = Resource(api_version="v1", kind="Node", plural="nodes", namespaced=False)
PODS = Resource(api_version="v1", kind="Pod", plural="pods")
EVENTS = Resource(api_version="v1", kind="Event", plural="events")
SECRETS = Resource(api_version="v1", kind="Secret", plural="secrets")
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    api_version="apiextensions.k8s.io/v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)
CONFIG_MAPS = Resource(api_version="v1", kind="ConfigMap", plural="configmaps")
VOLUMES = Resource(api_version="v1", kind="PersistentVolume", plural="persistentvolumes", namespaced=False)
CLAIMS = Resource(api_version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims")
LEASES = Resource(api_version="coordination.k8s.io/v1", kind="Lease", plural="leases")
VOLUME_ATTACHMENTS = Resource(
    api_version="storage.k8s.io/v1", kind="VolumeAttachment", plural="volumeattachments", namespaced=False
)
NODE_HEALTH_CHECKS = Resource(
    api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", plural="nodehealthchecks", namespaced=False
)
NODE_FENCES = Resource(api_version="nodewarden.io/v1alpha1", kind="NodeFence", plural="nodefences", namespaced=False)
PROPOSED_NODE_FENCES = Resource(api_version="ha.k8s.io/v1", kind="NodeFence", plural="nodefences", namespaced=False)
"""As the node-fencing proposal has it. The group is Kubernetes' own and was never approved: it takes a setting to be written."""
FENCE_CONFIGS = Resource(api_version="nodewarden.io/v1alpha1", kind="FenceConfig", plural="fenceconfigs", namespaced=False)
FENCING_TEMPLATES = Resource(api_version="nodewarden.io/v1alpha1", kind="FencingTemplate", plural="fencingtemplates")
MACHINE_DELETIONS = Resource(
    api_version="nodewarden.io/v1alpha1", kind="MachineDeletionTemplate", plural="machinedeletiontemplates"
)
REBOOTS = Resource(api_version="nodewarden.io/v1alpha1", kind="RebootTemplate", plural="reboottemplates")
VOLUME_DETACHMENTS = Resource(
    api_version="nodewarden.io/v1alpha1", kind="VolumeDetachmentTemplate", plural="volumedetachmenttemplates"
)
SELF_REVIEWS = Resource(
    api_version="authentication.k8s.io/v1", kind="SelfSubjectReview", plural="selfsubjectreviews", namespaced=False
)
TOKEN_REVIEWS = Resource(api_version="authentication.k8s.io/v1", kind="TokenReview", plural="tokenreviews", namespaced=False)
ACCESS_REVIEWS = Resource(
    api_version="authorization.k8s.io/v1", kind="SubjectAccessReview", plural="subjectaccessreviews", namespaced=False
)
NODE_ACTIONS = Resource(api_version="nodewarden.io/v1alpha1", kind="NodeAction", plural="nodeactions")
ADMISSION_POLICIES = Resource(
    api_version="admissionregistration.k8s.io/v1",
    kind="ValidatingAdmissionPolicy",
    plural="validatingadmissionpolicies",
    namespaced=False,
)
ADMISSION_BINDINGS = Resource(
    api_version="admissionregistration.k8s.io/v1",
    kind="ValidatingAdmissionPolicyBinding",
    plural="validatingadmissionpolicybindings",
    namespaced=False,
)
FENCE_AGENTS_REMEDIATIONS = Resource(
    api_version="fence-agents-remediation.medik8s.io/v1alpha1", kind="FenceAgentsRemediation", plural="fenceagentsremediations"
)
OPENSHIFT_MACHINE_HEALTH_CHECKS = Resource(
    api_version=OPENSHIFT.api_version, kind="MachineHealthCheck", plural="machinehealthchecks"
)
CAPI_MACHINE_HEALTH_CHECKS = Resource(
    api_version=CLUSTER_API.api_version, kind="MachineHealthCheck", plural="machinehealthchecks"
)
KUBEADM_CONTROL_PLANES = Resource(
    api_version="controlplane.cluster.x-k8s.io/v1beta2", kind="KubeadmControlPlane", plural="kubeadmcontrolplanes"
)
CAPI_CLUSTERS = Resource(api_version=CLUSTER_API.api_version, kind="Cluster", plural="clusters")
PRESERVATION_POLICIES = Resource(
    api_version="nodewarden.io/v1alpha1", kind="PreservationPolicy", plural="preservationpolicies", namespaced=False
)
CLUSTER_VERSIONS = Resource(
    api_version="config.openshift.io/v1", kind="ClusterVersion", plural="clusterversions", namespaced=False
)
MACHINE_CONFIG_POOLS = Resource(
    api_version="machineconfiguration.openshift.io/v1",
    kind="MachineConfigPool",
    plural="machineconfigpools",
    namespaced=False,
)
DAEMON_SETS = Resource(api_version="apps/v1", kind="DaemonSet", plural="daemonsets")
DISRUPTION_BUDGETS = Resource(api_version="policy/v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets")


# The objects of the three Machine APIs, and the versions that a server may have of them; the APIs are a table in
# `policy/values/machine_apis.py`.


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


def versions_of(resource: Resource) -> tuple[Resource, ...]:
    """The kind in every version that a server may have of it, its own first: one that is served no more is no deletion."""
    group, _, own = resource.api_version.rpartition("/")
    # What Cluster API's control planes are made of has the versions of Cluster API.
    others = CLUSTER_API.versions if group == CLUSTER_API.group or group.endswith(f".{CLUSTER_API.group}") else ()
    return (resource, *(in_version(resource, each) for each in others if each != own))


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
