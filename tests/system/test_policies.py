"""Who may say "not now", and that it is heard: a view that can't be trusted, the worker's own node, and four kinds of veto.

Each test takes nodes of its own of one small cluster; what only waits, waits side by side.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from policy.checks.verdicts import Health
from policy.episode.messages import EpisodeResult, EpisodeStatus, Outcome
from policy.objects.nodes import EXCLUDE_LABEL, PRESERVE_ANNOTATION
from policy.scan.admission import AdmissionRefusal
from simulator.objects import is_ready, micro_timestamp
from simulator.resources import LEASES, NAMESPACES, NODES
from starter import wording
from starter.errors import RequestError
from tests.system.harness import CHECKS, System
from tests.system.questions import (
    CONSEQUENCES,
    acts,
    commands,
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

SICK, WELL = "node-1", "node-2"
OWN = "node-3"
EXCLUDED, PRESERVED, LEASED, PAUSED = "node-4", "node-5", "node-6", "node-7"
PAUSED_CHECK, SLOW_CHECK = "paused", "slow"
MAINTENANCE = "node-maintenance-operator"
PLAN = {"waitBeforePower": "12s", "tries": 1, "restarts": 0, "bootTimeout": "20s"}
SLOW = timedelta(seconds=7)
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
            (SLOW_CHECK, {**_of(SICK, WELL), "unhealthyConditions": conditions}),
            (PAUSED_CHECK, _of(PAUSED)),
        ):
            check = running.health_check(spec)
            check["metadata"]["name"] = name
            await running.client.create(CHECKS.path(), check)
        await running.start_scanner(cap=5)
        yield running


def _of(*nodes: str) -> dict[str, Any]:
    """A check of these nodes alone, without a brake: other tests have other nodes down."""
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    return {"minHealthy": 0, "selector": {"matchExpressions": [expression]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Objections:
    """Four episodes that somebody objected to while they waited, and one whose only worker runs on the node it is about."""

    befores: dict[str, Before]
    results: dict[str, EpisodeResult]
    own: EpisodeStatus


@pytest.fixture(scope="module")
async def objections(system: System) -> Objections:
    befores = {node: system.break_node(node, "kubelet-stops") for node in (EXCLUDED, PRESERVED, LEASED, PAUSED, OWN)}

    async def object_to(node: str, objection: Awaitable[object]) -> None:
        """As soon as its Node shows that power is next: asked of the Node, because a busy worker may answer after the wait."""
        async with asyncio.timeout(40):
            while await traces(system, node) != ["mark", "cordon"]:
                await asyncio.sleep(0.1)
        await objection

    patch = system.client.patch
    await asyncio.gather(
        object_to(EXCLUDED, patch(NODES.path(EXCLUDED), {"metadata": {"labels": {EXCLUDE_LABEL: "true"}}})),
        object_to(PRESERVED, patch(NODES.path(PRESERVED), {"metadata": {"annotations": {PRESERVE_ANNOTATION: "now"}}})),
        object_to(PAUSED, patch(CHECKS.path(PAUSED_CHECK), {"spec": {"pauseRequests": ["the storage is being moved"]}})),
        object_to(LEASED, _take_lease_of_others(system, LEASED)),
    )
    results = {node: await system.ended(before) for node, before in befores.items() if node != OWN}
    own = await parked(system, OWN)
    for node in results:
        system.cluster.heal_node(node)

    async def is_seen_well() -> bool:
        scanner = await system.scanner()
        rows = scanner.report.rows if scanner is not None and scanner.report is not None else ()
        return {row.node for row in rows if row.ready == "True"} >= results.keys()

    await system.until(is_seen_well, "the scanner sees them well again")
    # A check in short circuit, a paused one too, refuses every request that a person makes, for whichever node.
    await system.client.patch(CHECKS.path(PAUSED_CHECK), {"spec": {"pauseRequests": []}})
    return Objections(befores=befores, results=results, own=own)


async def _take_lease_of_others(system: System, node: str) -> None:
    known = {each["metadata"]["name"] for each in (await system.client.list(NAMESPACES.path()))["items"]}
    if NODE_LEASES not in known:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NODE_LEASES}}
        await system.client.create(NAMESPACES.path(), namespace)
    now = micro_timestamp()
    spec = {"holderIdentity": MAINTENANCE, "leaseDurationSeconds": 600, "acquireTime": now, "renewTime": now}
    metadata = {"name": f"node-{node}", "namespace": NODE_LEASES}
    lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
    await system.client.create(LEASES.path(namespace=NODE_LEASES), lease)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (EXCLUDED, EXCLUDE_LABEL),
        (PRESERVED, f"{PRESERVE_ANNOTATION}=now"),
        (LEASED, MAINTENANCE),
        (PAUSED, "the storage is being moved"),
    ],
)
async def test_whoever_says_no_before_off_is_heard(system: System, objections: Objections, node: str, words: str) -> None:
    """S20, S21: the last look finds the veto: released with the reason, no power command, our mark gone; a node that somebody
    preserves is not uncordoned."""
    result = objections.results[node]
    assert result.outcome is Outcome.RELEASED
    assert words in result.message
    assert commands(system, node) == []
    assert CONSEQUENCES.isdisjoint(await acts(system, node))
    assert await traces(system, node) == (["cordon"] if node == PRESERVED else [])


async def test_a_worker_never_switches_off_the_node_it_runs_on(system: System, objections: Objections) -> None:
    """S16, O07: refused before anything is sent; the episode says so and parks, and another worker takes it over."""
    assert f"this worker runs on {OWN}" in objections.own.problem
    assert "\n" not in objections.own.problem
    assert commands(system, OWN) == []
    assert CONSEQUENCES.isdisjoint(await acts(system, OWN))

    first = system.workers[0]
    await system.start_worker()
    assert await first.stop() == 0

    async def somebody_sees() -> bool:
        scanner = await system.scanner()
        return scanner is not None and scanner.report is not None and scanner.report.lease.held and not scanner.report.view.stale

    await system.until(somebody_sees, "the other worker serves and sees the cluster", seconds=40)
    before = objections.befores[OWN]

    async def is_taken_up() -> bool:
        with contextlib.suppress(RequestError):  # it goes on already, or nobody answered: the phase tells
            await system.warden.resume(system.cluster_name, OWN, who="ada", reason="a worker elsewhere runs now")
        now = await status(system, OWN)
        return now is None or now.permit

    await system.until(is_taken_up, "it goes on, once the scanner has heard of a live view")
    result = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED
    assert [each.command for each in commands(system, OWN)] == ["off", "on"]
    assert await left_over(system.cluster, before) == []


async def test_while_the_api_is_away_nothing_is_opened_and_afterwards_only_what_is_really_sick(system: System) -> None:
    """S18: a timeout expires while we see nothing: said and not acted upon. Then all nodes look dead, for none could report."""
    api = simulated_api(system)
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
        assert wording.view(scanner).startswith("view not live: ")
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
