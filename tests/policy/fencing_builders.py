"""Racks of nodes, and the ConfigMaps in which the node-fencing proposal writes policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from policy.checks.health_check import HealthCheck
from policy.fence.plan import FencingPlan
from policy.fence.plan_compiler import compile_config
from policy.fence.templates import read_fencing_template
from policy.objects.nodes import NodeView
from policy.scan.ledger import Ledger
from policy.scan.scan_report import ClusterLease, ReportParts, ScanReport, ViewState
from policy.values.object_refs import FENCE_NAMESPACE
from tests.policy.builders import NOW, WORKER, a_check, a_node
from tests.policy.builders import ledger_of as told

RACK = "topology.example/rack"


def config_map(name: str, properties: str | None, *, namespace: str = FENCE_NAMESPACE, **data: str) -> dict[str, object]:
    """A ConfigMap as an API server answers it."""
    written = data if properties is None else {"config.properties": properties, **data}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": written}


def a_cluster_config(**keys: object) -> dict[str, object]:
    return config_map("fence-cluster-config", lines(keys))


def a_policy(name: str, **keys: object) -> dict[str, object]:
    return config_map(f"fence-policy-{name}", lines({"policy_name": name} | keys))


def lines(keys: Mapping[str, object]) -> str:
    return "\n".join(f"{key}={value}" for key, value in keys.items())


def in_rack(name: str, rack: str | None, ready: str = "True", age: float = 3600, **labels: str) -> NodeView:
    """A worker in a rack; None: nobody said in which."""
    return a_node(name, ready, age, labels={WORKER: "", **({RACK: rack} if rack is not None else {}), **labels})


def racks(number: int, size: int) -> list[NodeView]:
    """Healthy racks r0, r1 and so on, with nodes r0-0, r0-1 and so on."""
    return [in_rack(f"r{rack}-{place}", f"r{rack}") for rack in range(number) for place in range(size)]


def tolerant_check() -> HealthCheck:
    """A check that has nothing against acting, so that only the policies can."""
    return a_check(minHealthy="0%")


def ledger_of(nodes: Iterable[NodeView], *checks: HealthCheck) -> Ledger:
    return told(*(checks or (tolerant_check(),)), *nodes)


def report_of(parts: ReportParts) -> ScanReport:
    """What a live scan would make of the ledger's parts."""
    return ScanReport(
        digest="d",
        at=NOW,
        resource_version="1",
        inventory=parts.inventory,
        view=ViewState(synced=True),
        lease=ClusterLease(held=True),
        checks=parts.checks,
        candidates=parts.candidates,
        candidates_left_out=parts.candidates_left_out,
        observations=parts.observations,
        control_plane=parts.control_plane,
        policies=parts.policies,
        groups=parts.groups,
    )


def plan_of_template(obj: Mapping[str, object], node: NodeView, *, taint_honoured: bool = True) -> FencingPlan:
    """What an episode of that node carries out where this is its template."""
    return compile_config(read_fencing_template(obj, node), taint_honoured=taint_honoured)
