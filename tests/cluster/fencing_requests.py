"""FenceAgentsRemediations as their operator creates them, and their kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEFINITION = Path(__file__).parents[2] / "simulator" / "crds" / "fenceagentsremediations.yaml"
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
    loaded = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


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
