"""The rules of the three systems of Machines, without a cluster: which Machine goes first, and what a set deletes by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from simulator.machine_systems import MACHINE_SYSTEMS, machine_system_named
from simulator.machine_systems.contract import DELETES_FAILED
from simulator.objects import JsonObject, name_of, timestamp

NOW = datetime.now(UTC)
PRESERVE = "node.machine.sapcloud.io/preserve"
LAST_APPLIED = "node.machine.sapcloud.io/last-applied-node-preserve-value"
PRIORITY = "machinepriority.machine.sapcloud.io"
MARKED = "machine.sapcloud.io/marked-for-deletion-time"


def machine(name: str, *, age: int = 60, annotations: dict[str, str] | None = None, **status: Any) -> JsonObject:
    created = timestamp(NOW - timedelta(seconds=age))
    metadata = {"name": name, "namespace": "any", "annotations": annotations or {}, "creationTimestamp": created}
    return {"metadata": metadata, "spec": {"providerID": f"simulated:///{name}"}, "status": status}


def of_gardener(name: str, phase: str = "Running", *, kept: float | None = None, **more: Any) -> JsonObject:
    """kept: for how many seconds it is still preserved."""
    current: JsonObject = {"phase": phase}
    if kept is not None:
        current["preserveExpiryTime"] = timestamp(NOW + timedelta(seconds=kept))
    return machine(name, currentStatus=current, **more)


def of_openshift(name: str, *, joined: bool = True, **more: Any) -> JsonObject:
    return machine(name, **_joined(name, joined), **more)


def of_cluster_api(name: str, *, joined: bool = True, conditions: dict[str, str] | None = None, **more: Any) -> JsonObject:
    listed = [{"type": kind, "status": status, "reason": "AsSaid"} for kind, status in (conditions or {}).items()]
    return machine(name, **_joined(name, joined), conditions=listed, **more)


def _joined(name: str, joined: bool) -> dict[str, Any]:
    return {"nodeRef": {"name": f"node-of-{name}"}} if joined else {}


def machine_set(system: str, *, deletes_failed: bool = False, **spec: Any) -> JsonObject:
    annotations = {DELETES_FAILED: "true"} if deletes_failed else {}
    return {"metadata": {"name": "set", "namespace": "any", "annotations": annotations}, "spec": spec}


GARDENERS_ORDER = [
    of_gardener("first-by-priority", annotations={PRIORITY: "1"}),
    of_gardener("marked", annotations={MARKED: timestamp(NOW - timedelta(seconds=9))}),
    of_gardener("marked-later", "Failed", annotations={MARKED: timestamp(NOW)}),
    of_gardener("failed", "Failed", age=5),
    of_gardener("expired", "Unknown", kept=-1),
    of_gardener("pending", "Pending"),
    of_gardener("older", age=90),
    of_gardener("younger", annotations={PRIORITY: "no number"}),
    of_gardener("spared-by-priority", "Failed", annotations={PRIORITY: "5"}),
    of_gardener("automatic", "Failed", kept=90_000, annotations={PRESERVE: "auto-preserved"}),
    of_gardener("asked-for", "Failed", kept=30_000, annotations={PRIORITY: "1"}),
    of_gardener("asked-for-longer", kept=60_000),
]
OPENSHIFTS_ORDER = [
    of_openshift("a-sick", errorMessage="gone"),
    of_openshift("b-marked", annotations={"machine.openshift.io/delete-machine": "yes"}),
    of_openshift("c-marked-of-old", annotations={"machine.openshift.io/cluster-api-delete-machine": "yes"}),
    of_openshift("without-node", joined=False),
    of_openshift("a-well", annotations={"machine.openshift.io/delete-machine": ""}, age=10),
    of_openshift("b-well", age=90),
]
CLUSTER_APIS_ORDER = [
    of_cluster_api("marked", annotations={"cluster.x-k8s.io/delete-machine": ""}),
    of_cluster_api("a-condemned", conditions={"NodeHealthy": "True", "HealthCheckSucceeded": "False"}),
    of_cluster_api("b-not-ready", conditions={"NodeHealthy": "False"}),
    of_cluster_api("c-without-node", joined=False),
    of_cluster_api("a-silent", conditions={"NodeHealthy": "Unknown"}, age=10),
    of_cluster_api("b-well", conditions={"NodeHealthy": "True"}, age=90),
]


@pytest.mark.parametrize(
    ("system", "spec", "expected"),
    [
        ("gardener", {}, [name_of(each) for each in GARDENERS_ORDER]),
        ("openshift", {}, [name_of(each) for each in OPENSHIFTS_ORDER]),
        ("openshift", {"deletePolicy": "Oldest"}, ["a-sick", "b-marked", "c-marked-of-old", "b-well", "without-node", "a-well"]),
        ("openshift", {"deletePolicy": "Newest"}, ["a-sick", "b-marked", "c-marked-of-old", "a-well", "without-node", "b-well"]),
        ("cluster-api", {}, [name_of(each) for each in CLUSTER_APIS_ORDER]),
        (
            "cluster-api",
            {"deletion": {"order": "Oldest"}},
            ["marked", "a-condemned", "b-not-ready", "c-without-node", "b-well", "a-silent"],
        ),
    ],
)
def test_the_order_of_scaling_down(system: str, spec: JsonObject, expected: list[str]) -> None:
    machines = {"gardener": GARDENERS_ORDER, "openshift": OPENSHIFTS_ORDER, "cluster-api": CLUSTER_APIS_ORDER}[system]
    rules, owner = machine_system_named(system), machine_set(system, **spec)
    for order in (machines, machines[::-1]):
        ranked = sorted(order, key=lambda each: rules.deletion_rank(each, owner))
        assert [name_of(each) for each in ranked] == expected


@pytest.mark.parametrize(
    ("sick", "node", "deleted"),
    [
        (of_gardener("m", "Failed"), {}, True),
        (of_gardener("m", "Unknown"), {}, False),
        (of_gardener("m", "Failed", kept=86_400), {}, False),
        (of_gardener("m", "Failed", kept=-1, annotations={PRESERVE: "now"}), {}, True),
        (of_gardener("m", "Failed", annotations={PRESERVE: "when-failed"}), {}, False),
        (of_gardener("m", "Failed", annotations={PRESERVE: "true"}), {}, True),
        (of_gardener("m", "Failed", annotations={PRESERVE: "now"}), {PRESERVE: "false"}, True),
        (of_gardener("m", "Failed"), {PRESERVE: "now"}, False),
        (of_gardener("m", "Failed", annotations={PRESERVE: "now", LAST_APPLIED: "now"}), {}, True),
    ],
)
def test_what_gardener_deletes_where_it_deletes_what_failed(sick: JsonObject, node: dict[str, str], deleted: bool) -> None:
    gardener = machine_system_named("gardener")
    sick["metadata"]["labels"] = {"node": "node-1"}
    found = {"metadata": {"name": "node-1", "annotations": node}}
    assert gardener.owners_act(sick, found, machine_set("gardener", deletes_failed=True)).delete is deleted
    assert not gardener.owners_act(sick, found, machine_set("gardener")).delete, "switched off it leaves all alone"


def test_a_system_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match=f"expected one of {', '.join(MACHINE_SYSTEMS)}"):
        machine_system_named("mesos")
