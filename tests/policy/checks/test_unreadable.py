"""Objects of which hardly anything can be read: they count against every limit, and are never acted upon (S18)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy.objects.machines import REMEDIATE_ANNOTATION
from policy.objects.nodes import Condition
from policy.scan.ledger import Ledger
from policy.scan.scan_report import CheckReport
from policy.values.object_refs import Dialect
from tests.policy.builders import NOW, a_check, a_node, ago, ledger_of
from tests.policy.pools import PROD, a_machine, cluster_api, openshift

UNREADABLE = "Expected `array`, got `str` - at `$.status.conditions`"


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
    asked = {REMEDIATE_ANNOTATION: ""} if "person" in what else {}
    ailing = {"unreadable": "" if what == "node" else UNREADABLE, "phase": "Failed" if "failed" in what else "Running"}
    machines = (a_machine("m1", dialect), a_machine("m2", dialect, node_name="n2", annotations=asked, **ailing))
    node = replace(a_node("n2", "Unknown"), unreadable=UNREADABLE if what == "node" else "")
    check = openshift("workers") if dialect is Dialect.OPENSHIFT else cluster_api("workers")
    found = only_check(ledger_of(check, PROD, *machines, a_node("n1"), node))
    assert (found.total, found.healthy, found.unhealthy) == (2, 1, 0)


def test_a_start_up_of_which_nobody_can_tell_the_beginning_does_not_run_out() -> None:
    """S18: the moment that could not be read may be the latest of all."""
    ledger = ledger_of(cluster_api("prod"), PROD)
    for since, unhealthy in ((ago(3600), 1), (None, 0), (NOW, 0)):
        ready = Condition(type="InfrastructureReady", status="True", since=since)
        ledger.put_machine(a_machine(node_name="", created=ago(7200), conditions=(ready,)), NOW)
        assert ledger.report_parts(NOW).checks[0].unhealthy == unhealthy
