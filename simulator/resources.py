"""Where the kinds that the simulated cluster works with live in the API.

Only a table of paths: discovery would cost two dozen requests per client for a list that has not changed in years.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind of object and its place in the API."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, name: str = "", *, namespace: str = "", subresource: str = "") -> str:
        root = "/api/" if "/" not in self.api_version else "/apis/"
        parts = [root + self.api_version]
        if namespace:
            if not self.namespaced:
                raise ValueError(f"{self.plural} have no namespace, but {namespace!r} was given")
            parts += ["namespaces", namespace]
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)

    def path_of_key(self, key: str, *, subresource: str = "") -> str:
        namespace, _, name = key.rpartition("/")
        return self.path(name, namespace=namespace, subresource=subresource)


NAMESPACES = Resource(api_version="v1", kind="Namespace", plural="namespaces", namespaced=False)
NODES = Resource(api_version="v1", kind="Node", plural="nodes", namespaced=False)
PODS = Resource(api_version="v1", kind="Pod", plural="pods")
SECRETS = Resource(api_version="v1", kind="Secret", plural="secrets")
EVENTS = Resource(api_version="v1", kind="Event", plural="events")
VOLUMES = Resource(api_version="v1", kind="PersistentVolume", plural="persistentvolumes", namespaced=False)
CLAIMS = Resource(api_version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims")
LEASES = Resource(api_version="coordination.k8s.io/v1", kind="Lease", plural="leases")
STORAGE_CLASSES = Resource(api_version="storage.k8s.io/v1", kind="StorageClass", plural="storageclasses", namespaced=False)
ATTACHMENTS = Resource(api_version="storage.k8s.io/v1", kind="VolumeAttachment", plural="volumeattachments", namespaced=False)
STATEFUL_SETS = Resource(api_version="apps/v1", kind="StatefulSet", plural="statefulsets")
DEPLOYMENTS = Resource(api_version="apps/v1", kind="Deployment", plural="deployments")
REPLICA_SETS = Resource(api_version="apps/v1", kind="ReplicaSet", plural="replicasets")
DISRUPTION_BUDGETS = Resource(api_version="policy/v1", kind="PodDisruptionBudget", plural="poddisruptionbudgets")
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    api_version="apiextensions.k8s.io/v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    namespaced=False,
)
