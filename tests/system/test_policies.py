"""Who may say "not now", and that it is heard: a view that can't be trusted, the worker's own node, and four kinds of veto.

Each test takes nodes of its own of one small cluster.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from policy.admission import Because
from policy.episodes import Outcome, Phase
from policy.nodes import EXCLUDE_LABEL, PRESERVE_ANNOTATION
from policy.verdicts import Health
from simulator.api.faults import Accident, Fault
from simulator.objects import is_ready, micro_timestamp
from simulator.resources import LEASES, NAMESPACES, NODES
from tests.system.harness import CHECKS, System
from tests.system.questions import (
    CONSEQUENCES,
    OUR_USER_AGENT,
    acts,
    commands,
    in_phase,
    is_open,
    opened_at,
    parked,
    simulated_api,
    standing,
    status,
    traces,
)
from tests.system.temporal_server import TemporalServer
from tests.system.witness import NODE_LEASES, Before, left_over

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

STALE, DOWN = "node-1", "node-2"
OWN = "node-3"
EXCLUDED, PRESERVED, LEASED, PAUSED = "node-4", "node-5", "node-6", "node-7"
PAUSED_CHECK, SLOW_CHECK = "paused", "slow"
MAINTENANCE = "node-maintenance-operator"
PLAN = {"waitBeforePower": "4s", "tries": 1, "restarts": 0, "bootTimeout": "20s"}
SLOW = timedelta(seconds=8)
"""Longer than a view may be broken before it counts as stale, so that a timeout expires while it is."""


@pytest.fixture(scope="module")
async def system(
    temporal: TemporalServer, free_namespaces: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[System]:
    """A worker that runs on node-3, and a check for each group of nodes."""
    async with standing(temporal, free_namespaces, tmp_path_factory, nodes=7, demo_workloads=False) as running:
        await running.start_worker(environment={"NODE_NAME": OWN})
        await running.apply_policy(plan=PLAN, check=_of(OWN, EXCLUDED, PRESERVED, LEASED))
        conditions = [
            {"type": "Ready", "status": status, "duration": f"{SLOW.total_seconds():.0f}s"} for status in ("False", "Unknown")
        ]
        for name, spec in (
            (SLOW_CHECK, {**_of(STALE, DOWN), "unhealthyConditions": conditions}),
            (PAUSED_CHECK, _of(PAUSED)),
        ):
            check = running.health_check(spec)
            check["metadata"]["name"] = name
            await running.client.create(CHECKS.path(), check)
        await running.start_scanner(cap=4)
        yield running


def _of(*nodes: str) -> dict[str, Any]:
    """A check of these nodes alone, without a brake: other tests have other nodes down."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    return {"minHealthy": 0, "selector": {"matchExpressions": [expression]}}


async def test_four_kinds_of_veto_win_before_off(system: System) -> None:
    """S20: whoever says no while the episode waits is heard by the last look: no power command, and no trace of us is left."""
    befores = {node: system.break_node(node, "kubelet-stops") for node in (EXCLUDED, PRESERVED, LEASED, PAUSED)}
    for node in befores:
        await in_phase(system, node, Phase.RUNNING, doing="waits before power-management")
        assert await traces(system, node) == ["mark", "cordon"]

    await system.client.patch(NODES.path(EXCLUDED), {"metadata": {"labels": {EXCLUDE_LABEL: "true"}}})
    await system.client.patch(NODES.path(PRESERVED), {"metadata": {"annotations": {PRESERVE_ANNOTATION: "now"}}})
    await system.client.patch(CHECKS.path(PAUSED_CHECK), {"spec": {"pauseRequests": ["the storage is being moved"]}})
    await _take_lease_of_others(system, LEASED)

    words = {
        EXCLUDED: EXCLUDE_LABEL,
        PRESERVED: f"{PRESERVE_ANNOTATION}=now",
        LEASED: MAINTENANCE,
        PAUSED: "the storage is being moved",
    }
    for node, before in befores.items():
        result = await system.ended(before)
        assert result.outcome is Outcome.RELEASED, node
        assert words[node] in result.message
        assert commands(system, node) == []
        assert CONSEQUENCES.isdisjoint(await acts(system, node))
        assert await traces(system, node) == []
    # A check in short circuit, a paused one too, refuses every request that a person makes, for whichever node.
    await system.client.patch(CHECKS.path(PAUSED_CHECK), {"spec": {"pauseRequests": []}})
    for node in befores:
        system.cluster.heal_node(node)


async def _take_lease_of_others(system: System, node: str) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NODE_LEASES}}
    known = {each["metadata"]["name"] for each in (await system.client.list(NAMESPACES.path()))["items"]}
    if NODE_LEASES not in known:
        await system.client.create(NAMESPACES.path(), namespace)
    now = micro_timestamp()
    spec = {"holderIdentity": MAINTENANCE, "leaseDurationSeconds": 600, "acquireTime": now, "renewTime": now}
    metadata = {"name": f"node-{node}", "namespace": NODE_LEASES}
    lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
    await system.client.create(LEASES.path(namespace=NODE_LEASES), lease)


async def test_a_view_that_is_not_told_of_changes_opens_nothing(system: System) -> None:
    """S18: the node's timeout expires while our watch is broken; nothing is opened until it is whole again, and that is said."""
    api = simulated_api(system)
    before = system.break_node(STALE, "kubelet-stops")

    async def its_time_runs() -> bool:
        scanner = await system.scanner()
        rows = scanner.report.rows if scanner is not None and scanner.report is not None else ()
        return any(row.node == STALE and row.health is Health.SOON for row in rows)

    await system.until(its_time_runs, "the timeout of the node runs")
    fault = Fault(accident=Accident.STATUS, status=503, path="^/api/v1/nodes$", user_agent=f"^{OUR_USER_AGENT}")
    identity = api.faults.add(fault)
    try:
        assert api.cut_watches(path="^/api/v1/nodes$", user_agent=f"^{OUR_USER_AGENT}") == 1

        async def refused_as_stale() -> bool:
            scanner = await system.scanner()
            return scanner is not None and any(
                each.node == STALE and each.reason == Because.STALE_VIEW and "not being told of changes of nodes" in each.message
                for each in scanner.refused
            )

        await system.until(refused_as_stale, "it is unhealthy by now, and refused because the view is stale", seconds=30)
        scanner = await system.scanner()
        assert scanner is not None
        assert scanner.report is not None
        assert scanner.report.view.stale.startswith("not being told of changes of nodes")
        assert await opened_at(system, STALE) is None
        assert commands(system, STALE) == []
    finally:
        api.faults.remove(identity)
    assert (await system.ended(before)).outcome is Outcome.RECOVERED


async def test_an_api_that_was_away_opens_nothing_for_nodes_that_could_not_report(system: System) -> None:
    """S18: after the outage every node looks dead for a moment, because none could say otherwise. None is touched."""
    api = simulated_api(system)
    scanner = await system.scanner()
    assert scanner is not None
    opened = scanner.opened
    await system.until(lambda: all(is_ready(node) for node in system.cluster.view.nodes), "all nodes are Ready")
    await api.stop()
    try:

        async def stale() -> bool:
            now = await system.scanner()
            return now is not None and now.report is not None and now.report.view.stale != ""

        await system.until(stale, "the scanner says that its view is stale", seconds=30)
    finally:
        await api.start()
    away_until = datetime.now(UTC)

    async def live_again() -> bool:
        now = await system.scanner()
        if now is None or now.report is None:
            return False
        return not now.report.view.stale and now.report.at > away_until and now.report.lease.held

    await system.until(live_again, "the view is live again", seconds=40)
    await system.until(lambda: all(is_ready(node) for node in system.cluster.view.nodes), "all nodes are Ready")
    scanner = await system.scanner()
    assert scanner is not None
    assert scanner.opened == opened


async def test_a_worker_never_switches_off_the_node_it_runs_on(system: System) -> None:
    """S16: refused before anything is sent; the episode says so and parks, and another worker takes it over."""
    before = Before.of(system.cluster, OWN)
    system.cluster.break_node(OWN, "kubelet-stops")
    found = await parked(system, OWN, seconds=40)
    assert f"this worker runs on {OWN}" in found.problem
    assert "\n" not in found.problem
    assert commands(system, OWN) == []
    assert CONSEQUENCES.isdisjoint(await acts(system, OWN))

    first = system.workers[0]
    await system.start_worker()
    assert await first.stop() == 0

    async def somebody_answers() -> bool:
        return await status(system, OWN) is not None

    await system.until(somebody_answers, "the other worker serves", seconds=40)
    await system.warden.resume(system.cluster_name, OWN, who="ada", reason="a worker elsewhere runs now")
    result = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED
    assert [each.command for each in commands(system, OWN)] == ["off", "on"]
    assert await left_over(system.cluster, before) == []
    assert not await is_open(system, OWN)
