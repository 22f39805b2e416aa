"""Which resources there are: the legacy and the aggregated discovery documents, and just enough OpenAPI for kubectl.

The OpenAPI documents name paths and the parameters that kubectl looks for before it sends them; they describe no
built-in schemas, so `kubectl explain` has nothing to tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulator.api.storage.kinds import Catalogue, Resource

Document = dict[str, Any]


class Discovery:
    """Discovery documents of the catalogue as it is now."""

    def __init__(self, catalogue: Catalogue, version: str) -> None:
        self._catalogue = catalogue
        self._version = version

    def answer(self, parts: list[str], *, aggregated: bool, address: str) -> Document | None:
        """The document at a path outside the resources themselves, or None where there is none."""
        match parts:
            case ["api" | "apis" as root] if aggregated:
                return self.aggregated(core=root == "api")
            case ["api"]:
                return self.core_versions(address)
            case ["apis"]:
                return self.groups()
            case ["api", version]:
                return self.resources("", version)
            case ["apis", group]:
                return self.group(group)
            case ["apis", group, version]:
                return self.resources(group, version)
            case ["version"]:
                return self.version()
            case ["openapi", "v2"]:
                return self.swagger()
            case ["openapi", "v3"]:
                return self.open_api_index()
            case ["openapi", "v3", "api", version]:
                return self.open_api("", version)
            case ["openapi", "v3", "apis", group, version]:
                return self.open_api(group, version)
        return None

    def version(self) -> Document:
        major, _, minor = self._version.partition(".")
        git = f"v{self._version}.0+simulator"
        return {"major": major, "minor": minor, "gitVersion": git, "platform": "linux/amd64", "compiler": "simulator"}

    def core_versions(self, address: str) -> Document:
        clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}

    def groups(self) -> Document:
        groups = [_group(name, versions) for name, versions in self._grouped().items() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def group(self, name: str) -> Document | None:
        versions = self._grouped().get(name)
        return None if versions is None else {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}

    def resources(self, group: str, version: str) -> Document | None:
        served = [each for each in self._catalogue if (each.group, each.version) == (group, version)]
        if not served and group not in _VIRTUAL:
            return None
        listed = [entry for resource in served for entry in _entries(resource)]
        listed += [_virtual(group, *each) for each in _VIRTUAL.get(group, ())]
        name = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": listed}

    def aggregated(self, *, core: bool) -> Document:
        items = [
            {
                "metadata": {"name": name or None, "creationTimestamp": None},
                "versions": [self._aggregated_version(name, version) for version in versions],
            }
            for name, versions in self._grouped().items()
            if (not name) is core
        ]
        return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}

    def open_api_index(self) -> Document:
        paths = {}
        for group, versions in self._grouped().items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                relative = f"/openapi/v3/{path}?hash={self._catalogue.generation}"
                paths[path] = {"serverRelativeURL": relative}
        return {"paths": paths}

    def open_api(self, group: str, version: str) -> Document | None:
        served = [each for each in self._catalogue if (each.group, each.version) == (group, version)]
        if not served:
            return None
        paths: Document = {}
        for resource in served:
            paths.update(_open_api_paths(resource))
        info = {"title": "Kubernetes simulator", "version": "v1"}
        schemas = {_schema_name(resource): _schema(resource) for resource in served}
        return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}

    def swagger(self) -> Document:
        info = {"title": "Kubernetes simulator", "version": "v1"}
        return {"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}

    def _grouped(self) -> dict[str, list[str]]:
        grouped: dict[str, list[str]] = {}
        for resource in self._catalogue:
            versions = grouped.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        for group in _VIRTUAL:
            grouped.setdefault(group, ["v1"])
        return {group: sorted(versions, key=_precedence) for group, versions in grouped.items()}

    def _aggregated_version(self, group: str, version: str) -> Document:
        served = [each for each in self._catalogue if (each.group, each.version) == (group, version)]
        listed = [_aggregated_entry(resource) for resource in served]
        for plural, kind in _VIRTUAL.get(group, ()):
            listed.append(
                {
                    "resource": plural,
                    "responseKind": {"group": group, "version": version, "kind": kind},
                    "scope": "Cluster",
                    "singularResource": kind.lower(),
                    "verbs": ["create"],
                }
            )
        return {"version": version, "resources": listed, "freshness": "Current"}


# Questions about rights: answered, never stored.
_VIRTUAL: dict[str, tuple[tuple[str, str], ...]] = {
    "authorization.k8s.io": (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("subjectaccessreviews", "SubjectAccessReview"),
    ),
    "authentication.k8s.io": (
        ("selfsubjectreviews", "SelfSubjectReview"),
        ("tokenreviews", "TokenReview"),
    ),
}


def _virtual(group: str, plural: str, kind: str) -> Document:
    entry = {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
    return {**entry, "group": group, "version": "v1"}


def _precedence(version: str) -> tuple[int, str]:
    """Stable versions first, then beta, then alpha."""
    stage = 1 if "beta" in version else 2 if "alpha" in version else 0
    return (stage, version)


def _group(name: str, versions: Iterable[str]) -> Document:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _subresources(resource: Resource) -> list[tuple[str, str, str, str, list[str]]]:
    """Name, group, version, kind and verbs of everything below a resource."""
    known = {
        "eviction": ("policy", "v1", "Eviction", ["create"]),
        "binding": ("", "v1", "Binding", ["create"]),
        "token": ("authentication.k8s.io", "v1", "TokenRequest", ["create"]),
    }
    listed = []
    if resource.status:
        listed.append(("status", resource.group, resource.version, resource.kind, ["get", "patch", "update"]))
    if resource.scale:
        listed.append(("scale", "autoscaling", "v1", "Scale", ["get", "patch", "update"]))
    listed += [(name, *known[name]) for name in resource.subresources]
    return listed


def _entries(resource: Resource) -> list[Document]:
    entry: Document = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    below = [
        {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            **({"group": group, "version": version} if group != resource.group else {}),
            "kind": kind,
            "verbs": verbs,
        }
        for name, group, version, kind, verbs in _subresources(resource)
    ]
    return [entry, *below]


def _aggregated_entry(resource: Resource) -> Document:
    entry: Document = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    below = [
        {
            "subresource": name,
            "responseKind": {"group": group, "version": version, "kind": kind},
            "verbs": verbs,
        }
        for name, group, version, kind, verbs in _subresources(resource)
    ]
    if below:
        entry["subresources"] = below
    return entry


_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]
# Not the strategic one: kubectl would look for merge keys in schemas that are not here, and has its own.
_PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json")


def _open_api_paths(resource: Resource) -> Document:
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    base = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    responses = {"200": {"description": "OK"}}
    content = {each: {"schema": {"type": "object"}} for each in _PATCH_TYPES}

    def operation(action: str, **more: Any) -> Document:
        head = {"x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind}
        return {**head, "parameters": _PARAMETERS, "responses": responses, **more}

    return {
        base: {"get": operation("list"), "post": operation("post")},
        f"{base}/{{name}}": {
            "get": operation("get"),
            "put": operation("put"),
            "patch": operation("patch", requestBody={"content": content}),
            "delete": operation("delete"),
        },
    }


def _schema_name(resource: Resource) -> str:
    return ".".join([*reversed(resource.group.split(".")), resource.version, resource.kind]).lstrip(".")


def _schema(resource: Resource) -> Document:
    schema = dict(resource.custom.schema) if resource.custom else {"type": "object"}
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    return {**schema, "x-kubernetes-group-version-kind": [kind]}
