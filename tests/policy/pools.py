"""Machines, their Clusters, and the health checks over them, for tests of what only Machines have."""

from __future__ import annotations

from policy.checks.health_check import HealthCheck
from policy.dialects import parse
from policy.objects.machines import MachineView, WorkloadCluster
from policy.values.machine_apis import named
from policy.values.object_refs import Dialect
from tests.policy.builders import ago

NAMESPACE = "machines"
FOREIGN = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediationTemplate", "name": "snr"}


def openshift(name: str, **spec: object) -> HealthCheck:
    """Of Machines that must be Ready for 40 s, and have a Node within a minute."""
    fields: dict[str, object] = {
        "selector": {"matchLabels": {"pool": "a"}},
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "timeout": "40s"}],
        "nodeStartupTimeout": "1m",
        "maxUnhealthy": "60%",
    } | spec
    return parse(
        {
            "apiVersion": "machine.openshift.io/v1beta1",
            "kind": "MachineHealthCheck",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {key: value for key, value in fields.items() if value is not None},
        }
    )


def cluster_api(
    name: str, cluster: str = "prod", limit: object = "60%", template: object = None, **checks: object
) -> HealthCheck:
    """Of Machines whose Node must be Ready for 30 s, and that have one within a minute."""
    fields: dict[str, object] = {
        "unhealthyNodeConditions": [
            {"type": "Ready", "status": "Unknown", "timeoutSeconds": 30},
            {"type": "Ready", "status": "False", "timeoutSeconds": 30},
        ],
        "nodeStartupTimeoutSeconds": 60,
    } | checks
    remediation: dict[str, object] = {"triggerIf": {"unhealthyLessThanOrEqualTo": limit}}
    if template is not None:
        remediation["templateRef"] = template
    return parse(
        {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachineHealthCheck",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "clusterName": cluster,
                "selector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
                "checks": {key: value for key, value in fields.items() if value is not None},
                "remediation": remediation,
            },
        }
    )


def a_machine(name: str = "m1", dialect: Dialect = Dialect.CLUSTER_API, **fields: object) -> MachineView:
    values: dict[str, object] = {
        "labels": {"pool": "a"},
        "created": ago(9999),
        "last_updated": ago(9999),
        "node_name": "n1",
        "cluster_name": "prod" if dialect is Dialect.CLUSTER_API else "",
        "controller": "MachineSet/set",
    } | fields
    return MachineView(api=named(dialect), namespace=NAMESPACE, name=name, **values)  # type: ignore[arg-type]


PROD = WorkloadCluster(namespace=NAMESPACE, name="prod", control_plane_initialized=True, infrastructure_ready=True)
