"""Where the kinds that we touch live in the API: a table of paths, no discovery.

Discovery would cost two dozen requests per process for a list that has not changed in years. The requests themselves are
`connection.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


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


NAMESPACES = Resource(api_version="v1", kind="Namespace", plural="namespaces", namespaced=False)
NODES = Resource(api_version="v1", kind="Node", plural="nodes", namespaced=False)
PODS = Resource(api_version="v1", kind="Pod", plural="pods")
EVENTS = Resource(api_version="v1", kind="Event", plural="events")
SECRETS = Resource(api_version="v1", kind="Secret", plural="secrets")
VOLUMES = Resource(api_version="v1", kind="PersistentVolume", plural="persistentvolumes", namespaced=False)
CLAIMS = Resource(api_version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims")
LEASES = Resource(api_version="coordination.k8s.io/v1", kind="Lease", plural="leases")
VOLUME_ATTACHMENTS = Resource(
    api_version="storage.k8s.io/v1", kind="VolumeAttachment", plural="volumeattachments", namespaced=False
)
NODE_HEALTH_CHECKS = Resource(
    api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", plural="nodehealthchecks", namespaced=False
)
FENCING_TEMPLATES = Resource(api_version="nodewarden.io/v1alpha1", kind="FencingTemplate", plural="fencingtemplates")
