"""Objects of which hardly anything can be read: they count against every limit, and are never acted upon (S18)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policy.checks.healthcheck import HealthCheck
from policy.dialects import parse
from policy.objects.machines import REMEDIATE_ANNOTATION, MachineView, WorkloadCluster
from policy.objects.nodes import Condition
from policy.scan.ledger import Ledger
from policy.scan.report import CheckReport
from policy.values.machine_apis import named
from policy.values.object_refs import Dialect
from tests.policy.builders import NOW, a_check, a_node, ago, ledger_of
from tests.policy.pools import PROD, cluster_api
from tests.policy.pools import a_machine as pool_machine

UNREADABLE = "Expected `array`, got `str` - at `$.status.conditions`"
LABELS = {"pool": "a"}


def a_machine_check(dialect: Dialect) -> HealthCheck:
    listed = [{"type": "Ready", "status": "False", "timeout": "10s"}]
    spec: dict[str, Any] = {"selector": {"matchLabels": LABELS}, "unhealthyConditions": listed}
    group = "machine.openshift.io" if dialect is Dialect.OPENSHIFT else "cluster.x-k8s.io"
    spec |= {"clusterName": "blue"} if dialect is Dialect.CLUSTER_API else {}
    metadata = {"name": "workers", "namespace": "m", "uid": "u"}
    return parse({"apiVersion": f"{group}/v1beta1", "kind": "MachineHealthCheck", "metadata": metadata, "spec": spec})


def a_machine(dialect: Dialect, number: int, **fields: Any) -> MachineView:
    cluster = "blue" if dialect is Dialect.CLUSTER_API else ""
    return MachineView(
        api=named(dialect),  # type: ignore[arg-type]
        namespace="m",
        name=f"machine-{number}",
        node_name=f"node-{number}",
        labels=LABELS,
        cluster_name=cluster,
        controller="MachineSet/s",
        **fields,
    )


def only_check(ledger: Ledger) -> CheckReport:
    parts = ledger.report_parts(NOW)
    assert parts.candidates == ()
    (check,) = parts.checks
    return check


def test_a_node_that_cannot_be_read_uses_up_the_budget_and_is_no_candidate() -> None:
    of_nodes = a_check(unhealthyConditions=[{"type": "Ready", "status": "False", "duration": "10s"}])
    ledger = ledger_of(of_nodes, a_node("node-1"), replace(a_node("node-2", "False"), unreadable=UNREADABLE))
    check = only_check(ledger)
    assert (check.total, check.healthy, check.unhealthy, check.allowed) == (2, 1, 0, False)
    (row,) = [row for row in ledger.report_parts(NOW).rows if row.node == "node-2"]
    assert row.reason == "Unreadable"
    ledger.put_node(a_node("node-2"), NOW)
    assert only_check(ledger).healthy == 2


@pytest.mark.parametrize("dialect", [Dialect.OPENSHIFT, Dialect.CLUSTER_API])
@pytest.mark.parametrize("what", ["node", "machine", "failed machine", "machine of which a person asks it"])
def test_a_machine_that_cannot_be_read_or_whose_node_cannot_is_not_judged(dialect: Dialect, what: str) -> None:
    running = WorkloadCluster(namespace="m", name="blue", control_plane_initialized=True, infrastructure_ready=True)
    asked = {REMEDIATE_ANNOTATION: ""} if "person" in what else {}
    phase = "Failed" if "failed" in what else ""
    problem = "" if what == "node" else UNREADABLE
    machines = (a_machine(dialect, 1), a_machine(dialect, 2, unreadable=problem, phase=phase, annotations=asked))
    nodes = (a_node("node-1"), replace(a_node("node-2", "False"), unreadable=UNREADABLE if what == "node" else ""))
    ledger = ledger_of(a_machine_check(dialect), running, *machines, *nodes)
    check = only_check(ledger)
    assert (check.total, check.healthy, check.unhealthy) == (2, 1, 0)


def test_a_start_up_of_which_nobody_can_tell_the_beginning_does_not_run_out() -> None:
    """S18: the moment that could not be read may be the latest of all."""
    ledger = ledger_of(cluster_api("prod"), PROD)
    for since, unhealthy in ((ago(3600), 1), (None, 0), (NOW, 0)):
        ready = Condition(type="InfrastructureReady", status="True", since=since)
        ledger.put_machine(pool_machine(node_name="", created=ago(7200), conditions=(ready,)), NOW)
        assert ledger.report_parts(NOW).checks[0].unhealthy == unhealthy
