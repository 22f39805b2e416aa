"""FenceAgentsRemediations as their operator creates them, and their kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from policy.checks.fence_policies import PolicySource
from policy.values.object_refs import ObjectRef
from simulator.client import ApiClient
from tests.cluster.skipping import now
from tests.documents import document

NAMESPACE = "medik8s"
REMEDIATIONS = f"/apis/fence-agents-remediation.medik8s.io/v1alpha1/namespaces/{NAMESPACE}/fenceagentsremediations"
OBEYED = PolicySource(requests=(NAMESPACE,))
"""Settings that name its operator's namespace (S46)."""
OWNER = {
    "apiVersion": "remediation.medik8s.io/v1alpha1",
    "kind": "NodeHealthCheck",
    "name": "workers",
    "uid": "uid-of-workers",
    "controller": False,
}


LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


def reference(node: str) -> ObjectRef:
    """To the one about that node."""
    version = "fence-agents-remediation.medik8s.io/v1alpha1"
    return ObjectRef(api_version=version, kind="FenceAgentsRemediation", name=node, namespace=NAMESPACE)


async def leader(person: ApiClient, name: str, *, age: float = 0.0) -> None:
    """The leader Lease of an operator, renewed so many seconds ago."""
    renewed = (now() - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "manager-0", "leaseDurationSeconds": 1, "renewTime": renewed}
    await person.create(LEASES, {"metadata": {"name": name}, "spec": spec})


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
