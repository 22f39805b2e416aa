"""The resources that the simulated API server knows: one immutable description each.

What a kind's writes mean is in `writes/admission.py` and `writes/registry.py`; which of its lists merge by key is in
`writes/merge_types.py`. Custom resources join at run time, read from their definitions by `writes/definitions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

# Where a kind's objects are kept, whatever version they were written in.
StorageKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrinterColumn:
    """A column that a custom resource definition adds to `kubectl get`."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Where a custom resource keeps its replica counts."""

    spec_replicas: str
    status_replicas: str
    label_selector: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomVersion:
    """What only custom resources have: a schema of their own, and columns. since: the revision by which this schema was served;
    what was written before has not seen it."""

    schema: dict[str, Any]
    since: int = 0
    columns: tuple[PrinterColumn, ...] = ()
    scale: ScalePaths | None = None
    definition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One served resource in one version."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    selectable: tuple[str, ...] = ()
    # Top-level fields beside kind, apiVersion and metadata; anything else is unknown and dropped.
    body: tuple[str, ...] = ("spec", "status")
    status: bool = True
    scale: bool = False
    generation: bool = False
    # A PUT without resourceVersion is accepted by some kinds only.
    unconditional_update: bool = True
    # A PUT of a missing object creates it.
    create_on_update: bool = False
    deletion_answers_object: bool = False
    subresources: tuple[str, ...] = ()
    custom: CustomVersion | None = None
    prefix: bytes = field(init=False)

    def __post_init__(self) -> None:
        head = f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'
        object.__setattr__(self, "prefix", head.encode())

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage(self) -> StorageKey:
        return (self.group, self.plural)

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def verbs(self) -> list[str]:
        return ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def _core(plural: str, kind: str, **more: Any) -> Resource:
    return Resource(group="", version="v1", plural=plural, kind=kind, singular=kind.lower(), **more)


def _apps(plural: str, kind: str, short: str, **more: Any) -> Resource:
    return Resource(
        group="apps",
        version="v1",
        plural=plural,
        kind=kind,
        singular=kind.lower(),
        short_names=(short,),
        categories=("all",),
        generation=True,
        **more,
    )


def _storage(plural: str, kind: str, **more: Any) -> Resource:
    more.setdefault("namespaced", False)
    return Resource(group="storage.k8s.io", version="v1", plural=plural, kind=kind, singular=kind.lower(), **more)


def _rbac(plural: str, kind: str, **more: Any) -> Resource:
    group = "rbac.authorization.k8s.io"
    return Resource(group=group, version="v1", plural=plural, kind=kind, singular=kind.lower(), status=False, **more)


def _admission(plural: str, kind: str) -> Resource:
    """Kept, and not obeyed: there is no CEL here."""
    group = "admissionregistration.k8s.io"
    singular = kind.lower()
    return Resource(group=group, version="v1", plural=plural, kind=kind, singular=singular, namespaced=False, status=False)


_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_EVENT_BODY = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "series",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)

BUILT_IN: tuple[Resource, ...] = (
    _core(
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=("ns",),
        selectable=("status.phase",),
        deletion_answers_object=True,
    ),
    _core("nodes", "Node", namespaced=False, short_names=("no",), selectable=("spec.unschedulable",)),
    _core(
        "pods",
        "Pod",
        short_names=("po",),
        categories=("all",),
        selectable=(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
        generation=True,
        deletion_answers_object=True,
        subresources=("eviction", "binding"),
    ),
    _core("configmaps", "ConfigMap", short_names=("cm",), body=("data", "binaryData", "immutable"), status=False),
    _core(
        "secrets",
        "Secret",
        body=("data", "stringData", "type", "immutable"),
        status=False,
        selectable=("type",),
    ),
    _core(
        "events",
        "Event",
        short_names=("ev",),
        body=_EVENT_BODY,
        status=False,
        selectable=_EVENT_FIELDS,
        create_on_update=True,
    ),
    _core("persistentvolumes", "PersistentVolume", namespaced=False, short_names=("pv",), deletion_answers_object=True),
    _core("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), deletion_answers_object=True),
    _core("services", "Service", short_names=("svc",), categories=("all",), selectable=("spec.clusterIP", "spec.type")),
    _core(
        "serviceaccounts",
        "ServiceAccount",
        short_names=("sa",),
        body=("secrets", "imagePullSecrets", "automountServiceAccountToken"),
        status=False,
        deletion_answers_object=True,
        subresources=("token",),
    ),
    _apps("deployments", "Deployment", "deploy", scale=True),
    _apps("replicasets", "ReplicaSet", "rs", scale=True, selectable=("status.replicas",)),
    _apps("statefulsets", "StatefulSet", "sts", scale=True),
    _apps("daemonsets", "DaemonSet", "ds"),
    _apps("controllerrevisions", "ControllerRevision", "cr", body=("data", "revision"), status=False),
    Resource(
        group="coordination.k8s.io",
        version="v1",
        plural="leases",
        kind="Lease",
        singular="lease",
        body=("spec",),
        status=False,
        unconditional_update=False,
        create_on_update=True,
    ),
    Resource(
        group="policy",
        version="v1",
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        singular="poddisruptionbudget",
        short_names=("pdb",),
        generation=True,
        unconditional_update=False,
    ),
    Resource(
        group="networking.k8s.io",
        version="v1",
        plural="networkpolicies",
        kind="NetworkPolicy",
        singular="networkpolicy",
        short_names=("netpol",),
        body=("spec",),
        status=False,
        generation=True,
    ),
    _storage(
        "storageclasses",
        "StorageClass",
        short_names=("sc",),
        status=False,
        body=(
            "provisioner",
            "parameters",
            "reclaimPolicy",
            "mountOptions",
            "allowVolumeExpansion",
            "volumeBindingMode",
            "allowedTopologies",
        ),
    ),
    _storage("volumeattachments", "VolumeAttachment", unconditional_update=False),
    _storage("csinodes", "CSINode", status=False, body=("spec",), unconditional_update=False),
    _storage("csidrivers", "CSIDriver", status=False, body=("spec",), unconditional_update=False),
    Resource(
        group="apiextensions.k8s.io",
        version="v1",
        plural="customresourcedefinitions",
        kind="CustomResourceDefinition",
        singular="customresourcedefinition",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        generation=True,
        unconditional_update=False,
    ),
    _admission("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    _admission("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    _rbac("clusterroles", "ClusterRole", namespaced=False, body=("rules", "aggregationRule")),
    _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False, body=("subjects", "roleRef")),
    _rbac("roles", "Role", body=("rules",)),
    _rbac("rolebindings", "RoleBinding", body=("subjects", "roleRef")),
)


class Catalogue:
    """All resources served right now, found by group, version and plural."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Resource] = {}
        self._by_storage: dict[StorageKey, Resource] = {}
        # Discovery documents are rebuilt only when this has moved.
        self.generation = 0
        for resource in BUILT_IN:
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._served.values())

    def add(self, resource: Resource, *, storage_version: bool = True) -> None:
        self._served[(resource.group, resource.version, resource.plural)] = resource
        if storage_version or resource.storage not in self._by_storage:
            self._by_storage[resource.storage] = resource
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        for key in [key for key in self._served if key[0] == group and key[2] == plural]:
            del self._served[key]
        self._by_storage.pop((group, plural), None)
        self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._served.get((group, version, plural))

    def stored(self, storage: StorageKey) -> Resource | None:
        """The resource in the version its objects are stored in."""
        return self._by_storage.get(storage)

    def named(self, plural: str, group: str = "") -> Resource:
        """The storage version of a resource; for callers in the same process."""
        resource = self._by_storage.get((group, plural))
        if resource is None:
            raise KeyError(f"no resource {plural!r} in group {group!r}")
        return resource
