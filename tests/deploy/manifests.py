"""The shipped manifests, read as `kubectl apply -f deploy/` would read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Deployment": "deployments",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "CustomResourceDefinition": "customresourcedefinitions",
}


def documents(*files: str) -> list[dict[str, Any]]:
    """The objects of these files of deploy/, in their order."""
    read: list[dict[str, Any]] = []
    for file in files:
        read += [document for document in yaml.safe_load_all((DEPLOY / file).read_text(encoding="utf-8")) if document]
    return read


def path_of(document: dict[str, Any]) -> str:
    """The collection that an object is created in."""
    version, namespace = document["apiVersion"], document["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{PLURALS[document['kind']]}" if namespace else f"{root}/{PLURALS[document['kind']]}"
