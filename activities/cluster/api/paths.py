"""Where the kinds that we touch live in the API: a table of paths, no discovery.

Discovery would cost two dozen requests per process for a list that has not changed in years. The requests themselves are
`connection.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from policy.values.machine_apis import CLUSTER_API, OPENSHIFT
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
        """What names one object of it."""
        return ObjectRef(api_version=self.api_version, kind=self.kind, name=name, namespace=namespace)

    def whole(self, listed: Mapping[str, Any]) -> dict[str, Any]:
        """An object out of a list, which leaves out what kind it is of; what it says itself stays."""
        return {"apiVersion": self.api_version, "kind": self.kind, **listed}


def ref_of(document: Mapping[str, Any]) -> ObjectRef:
    """What names this object."""
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
