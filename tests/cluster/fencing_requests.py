"""FenceAgentsRemediations as their operator creates them, and their kind."""

from __future__ import annotations

from typing import Any

from tests.documents import document

NAMESPACE = "medik8s"
REMEDIATIONS = f"/apis/fence-agents-remediation.medik8s.io/v1alpha1/namespaces/{NAMESPACE}/fenceagentsremediations"
OWNER = {
    "apiVersion": "remediation.medik8s.io/v1alpha1",
    "kind": "NodeHealthCheck",
    "name": "workers",
    "uid": "uid-of-workers",
    "controller": False,
}


def request_definition() -> dict[str, Any]:
    return document("simulator/crds/fenceagentsremediations.yaml")


def remediation(node: str, *, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """One about that node, as the NodeHealthCheck `workers` creates it."""
    return {
        "apiVersion": "fence-agents-remediation.medik8s.io/v1alpha1",
        "kind": "FenceAgentsRemediation",
        "metadata": {"name": node, "namespace": NAMESPACE, "ownerReferences": [OWNER], **metadata},
        "spec": {
            "agent": "fence_ipmilan",
            "sharedSecretName": "bmc",
            "sharedparameters": {"--lanplus": ""},
            "nodeparameters": {"--ip": {node: "10.0.0.7"}},
            **(spec or {}),
        },
    }


def conditions_of(found: dict[str, Any]) -> dict[str, str]:
    """The status of each condition, by its type."""
    return {each["type"]: each["status"] for each in found.get("status", {}).get("conditions", ())}
