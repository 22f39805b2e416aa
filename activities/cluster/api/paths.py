"""Where the kinds that we touch live in the API: a table of paths, no discovery.

Discovery would cost two dozen requests per process for a list that has not changed in years. The requests themselves are
`connection.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from policy.objects.remediations import plurals_of
from policy.values.errors import shown
from policy.values.machine_apis import CLUSTER_API, MACHINE_APIS, OPENSHIFT, machine_api
from policy.values.object_refs import ObjectRef

_API_VERSION = re.compile(r"([a-z0-9][a-z0-9.-]*/)?v[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of object and its place in the API."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        """The path of one object, or of the collection where `name` is empty (all namespaces where `namespace` is). Errors:
        InvalidConfig where version or name lead to another object, as `..` does: any client of Temporal may name one (S41)."""
        if _API_VERSION.fullmatch(self.api_version) is None or {name, namespace} & {".", ".."}:
            from activities.errors import ErrorType, failure  # here, since commands that print rights load no Temporal client

            asked = shown(f"{self.api_version} {self.kind} {namespace}/{name}")
            raise failure(ErrorType.INVALID_CONFIG, f"expected group, version and names of an object, got {asked}")
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace, but {namespace!r} was given")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        parts = ["/apis" if "/" in self.api_version else "/api", self.api_version]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [part for part in (self.plural, quote(name, safe=":"), subresource) if part]
        return "/".join(parts)

    @property
    def definition(self) -> str:
        """The name of the CustomResourceDefinition that defines it, where it is no kind of Kubernetes' own."""
        return f"{self.plural}.{self.api_version.rpartition('/')[0]}"

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


def _kind(api_version: str, kind: str, *, namespaced: bool = True) -> Resource:
    return Resource(api_version=api_version, kind=kind, plural=plurals_of(kind)[0], namespaced=namespaced)


NAMESPACES = _kind("v1", "Namespace", namespaced=False)
NODES = _kind("v1", "Node", namespaced=False)
PODS = _kind("v1", "Pod")
EVENTS = _kind("v1", "Event")
SECRETS = _kind("v1", "Secret")
CUSTOM_RESOURCE_DEFINITIONS = _kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", namespaced=False)
CONFIG_MAPS = _kind("v1", "ConfigMap")
VOLUMES = _kind("v1", "PersistentVolume", namespaced=False)
CLAIMS = _kind("v1", "PersistentVolumeClaim")
LEASES = _kind("coordination.k8s.io/v1", "Lease")
VOLUME_ATTACHMENTS = _kind("storage.k8s.io/v1", "VolumeAttachment", namespaced=False)
NODE_HEALTH_CHECKS = _kind("remediation.medik8s.io/v1alpha1", "NodeHealthCheck", namespaced=False)
NODE_FENCES = _kind("nodewarden.io/v1alpha1", "NodeFence", namespaced=False)
PROPOSED_NODE_FENCES = _kind("ha.k8s.io/v1", "NodeFence", namespaced=False)
"""As the node-fencing proposal has it. The group is Kubernetes' own and was never approved: it takes a setting to be written."""
FENCE_CONFIGS = _kind("nodewarden.io/v1alpha1", "FenceConfig", namespaced=False)
FENCING_TEMPLATES = _kind("nodewarden.io/v1alpha1", "FencingTemplate")
MACHINE_DELETIONS = _kind("nodewarden.io/v1alpha1", "MachineDeletionTemplate")
REBOOTS = _kind("nodewarden.io/v1alpha1", "RebootTemplate")
VOLUME_DETACHMENTS = _kind("nodewarden.io/v1alpha1", "VolumeDetachmentTemplate")
SELF_REVIEWS = _kind("authentication.k8s.io/v1", "SelfSubjectReview", namespaced=False)
TOKEN_REVIEWS = _kind("authentication.k8s.io/v1", "TokenReview", namespaced=False)
ACCESS_REVIEWS = _kind("authorization.k8s.io/v1", "SubjectAccessReview", namespaced=False)
NODE_ACTIONS = _kind("nodewarden.io/v1alpha1", "NodeAction")
ADMISSION_POLICIES = _kind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", namespaced=False)
ADMISSION_BINDINGS = _kind("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", namespaced=False)
FENCE_AGENTS_REMEDIATIONS = _kind("fence-agents-remediation.medik8s.io/v1alpha1", "FenceAgentsRemediation")
OPENSHIFT_MACHINE_HEALTH_CHECKS = _kind(OPENSHIFT.api_version, "MachineHealthCheck")
CAPI_MACHINE_HEALTH_CHECKS = _kind(CLUSTER_API.api_version, "MachineHealthCheck")
KUBEADM_CONTROL_PLANES = _kind("controlplane.cluster.x-k8s.io/v1beta2", "KubeadmControlPlane")
CAPI_CLUSTERS = _kind(CLUSTER_API.api_version, "Cluster")
PRESERVATION_POLICIES = _kind("nodewarden.io/v1alpha1", "PreservationPolicy", namespaced=False)
CLUSTER_VERSIONS = _kind("config.openshift.io/v1", "ClusterVersion", namespaced=False)
MACHINE_CONFIG_POOLS = _kind("machineconfiguration.openshift.io/v1", "MachineConfigPool", namespaced=False)
DAEMON_SETS = _kind("apps/v1", "DaemonSet")
DISRUPTION_BUDGETS = _kind("policy/v1", "PodDisruptionBudget")


# The objects of the three Machine APIs, and the versions that a server may have of them; the APIs are a table in
# `policy/values/machine_apis.py`.

MACHINES = {api: _kind(api.api_version, "Machine") for api in MACHINE_APIS}
MACHINE_SETS = {api: _kind(api.api_version, "MachineSet") for api in MACHINE_APIS}
MACHINE_DEPLOYMENTS = {api: _kind(api.api_version, "MachineDeployment") for api in MACHINE_APIS if api.has_deployments}
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
