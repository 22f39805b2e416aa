"""nodewarden acts where it is asked to, and on what it sees: without a health check nothing is ever written.

The tests of this module are one cluster's story and run in their order: no policy, a policy, two of them while the API server is
away, none again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from policy.checks.verdict import Health
from policy.episode.messages import Outcome
from policy.scan.permit_rules import AdmissionRefusal
from simulator.client import ApiError
from simulator.objects import JsonObject, is_ready
from simulator.resources import LEASES
from starter import wording
from tests.system.fixtures import Standing
from tests.system.harness import CHECK, CHECKS, System
from tests.system.questions import commands, is_open, opened_at, our_writes, simulated_api

pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]

OTHER_CHECK, SICK = "others", "node-4"
SLOW = timedelta(seconds=7)
"""Longer than a view may be broken before it counts as stale, so that a timeout expires while it is."""
SCANS = 3
WRITTEN_IN_A_FENCING = {
    "patch nodes",
    "patch nodehealthchecks",
    "create leases",
    "delete leases",
    "create events",
    "create nodefences",
    "update nodefences",
}
"""All that one fencing of a node without workloads writes: its node, the check's status, two Leases, Events, its mirror."""
IF_IT_TAKES_LONGER = {"update leases", "patch events", "create namespaces"}
"""A Lease is renewed after ten seconds, and an Event that is said again is counted."""


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    """Scanned once a second; node-1 is broken from the start, and nobody has asked for anything yet."""
    async with standing(nodes=5, demo_workloads=False) as running:
        simulated_api(running)
        await running.start_worker()
        running.cluster.break_node("node-1", "kubelet-stops")
        await running.warden.start_scanner(running.cluster_name, wait=timedelta(seconds=1))
        yield running


async def _scans(system: System) -> int:
    scanner = await system.scanner()
    return scanner.scans if scanner is not None else 0


async def _more_scans(system: System, number: int = SCANS) -> None:
    before = await _scans(system)

    async def enough() -> bool:
        return await _scans(system) >= before + number

    await system.until(enough, f"{number} more scans", seconds=40)


def _covering(system: System, name: str, nodes: list[str], **changes: object) -> JsonObject:
    """A check of those nodes alone."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": nodes}
    check = system.health_check({"minHealthy": 0, "selector": {"matchExpressions": [expression]}, **changes})
    check["metadata"]["name"] = name
    return check


async def test_without_a_policy_nothing_is_ever_written(system: System) -> None:
    """Opt-in, S38: not a Lease, not an Event, however sick a node is and however often we look."""
    await _more_scans(system)
    scanner = await system.scanner()
    assert scanner is not None
    assert scanner.report is not None
    assert (scanner.report.inventory, scanner.report.lease.needed, scanner.report.lease.held) == (5, False, False)
    assert scanner.report.view.stale == ""
    assert our_writes(system) == []
    assert simulated_api(system).requests.total("list", user_agent="nodewarden/") > 0, "we did look"
    with pytest.raises(ApiError, match="404"):
        await system.client.get(LEASES.path("nodewarden", namespace="kube-system"))


async def test_a_policy_that_appears_is_acted_upon_and_takes_the_lease(system: System) -> None:
    """Opt-in, S38: from the moment there is a check the cluster is ours, and the node that was sick all along is fenced."""
    await system.client.create(CHECKS.path(), _covering(system, CHECK, ["node-1", "node-2", "node-3"]))
    namespace = system.cluster.bmc_secret[0]
    await system.client.create(f"/apis/nodewarden.io/v1alpha1/namespaces/{namespace}/fencingtemplates", system.fencing_template())

    async def fenced() -> bool:
        return [each.command for each in commands(system, "node-1")] == ["off", "on"] and not await is_open(system, "node-1")

    await system.until(fenced, "node-1 is fenced and back", seconds=60)
    lease = await system.client.get(LEASES.path("nodewarden", namespace="kube-system"))
    scanner = await system.scanner()
    assert scanner is not None
    assert lease["spec"]["holderIdentity"] == scanner.holder
    assert system.namespace in scanner.holder
    written = {f"{write.verb} {write.resource}" for write in our_writes(system)}
    assert written - IF_IT_TAKES_LONGER == WRITTEN_IN_A_FENCING


async def test_while_the_api_is_away_nothing_is_opened_and_afterwards_only_what_is_really_sick(system: System) -> None:
    """S18: a timeout expires while we see nothing: said and not acted upon. Then all nodes look dead, for none could report."""
    api = simulated_api(system)
    conditions = [
        {"type": "Ready", "status": status, "duration": f"{SLOW.total_seconds():.0f}s"} for status in ("False", "Unknown")
    ]
    check = _covering(system, OTHER_CHECK, [SICK, "node-5"], unhealthyConditions=conditions)
    await system.client.create(CHECKS.path(), check)
    await system.until(lambda: all(is_ready(node) for node in system.cluster.view.nodes), "all nodes are Ready")
    scanner = await system.scanner()
    assert scanner is not None
    opened = scanner.opened
    before = system.break_node(SICK, "kubelet-stops")

    async def its_time_runs() -> bool:
        now = await system.scanner()
        rows = now.report.rows if now is not None and now.report is not None else ()
        return any(row.node == SICK and row.health is Health.SOON for row in rows)

    await system.until(its_time_runs, "the timeout of the node runs")
    await api.stop()
    try:

        async def refused_as_stale() -> bool:
            now = await system.scanner()
            return now is not None and any(
                each.node == SICK
                and each.reason == AdmissionRefusal.STALE_VIEW
                and "the view of the cluster is stale" in each.message
                for each in now.refused
            )

        await system.until(refused_as_stale, "it is unhealthy by now, and refused because the view is stale", seconds=30)
        scanner = await system.scanner()
        assert scanner is not None
        assert scanner.report is not None
        assert scanner.report.view.stale != ""
        assert wording.view(scanner, datetime.now(UTC)).startswith("view not live")
        assert scanner.opened == opened
        assert await opened_at(system, SICK) is None
    finally:
        await api.start()
    result = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED
    await system.until(lambda: all(is_ready(node) for node in system.cluster.view.nodes), "all nodes are Ready")
    scanner = await system.scanner()
    assert scanner is not None
    assert scanner.opened == opened + 1
