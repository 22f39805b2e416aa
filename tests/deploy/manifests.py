"""Where `kubectl apply -f deploy/` would create the shipped manifests."""

from __future__ import annotations

from typing import Any

PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Secret": "secrets",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Deployment": "deployments",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "CustomResourceDefinition": "customresourcedefinitions",
    "NetworkPolicy": "networkpolicies",
}


def path_of(document: dict[str, Any]) -> str:
    """The collection that an object is created in."""
    version, namespace = document["apiVersion"], document["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{PLURALS[document['kind']]}" if namespace else f"{root}/{PLURALS[document['kind']]}"
