"""A rack fails as a whole and in five others two nodes each: the rack is left alone, the ten are repaired, three at once.

One accident for all tests, since each is the other's worst case: the rack's sixty have been ill for as long as the
ten and come before them by name. The racks are labels and the policies ConfigMaps, as somebody would write them. What was done
at once is counted by those that did it: each BMC's log of commands, and the API server's word that the node is Ready again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from temporalio.client import WorkflowExecution

from policy.episode.messages import EpisodeResult, Outcome
from policy.objects.scopes import GroupCount
from policy.scan.permit_rules import AdmissionRefusal
from simulator.cluster import SimulatedCluster
from simulator.objects import JsonObject, is_ready, name_of
from simulator.resources import NODES, Resource
from tests.system.chaos.recorder import most_at_once
from tests.system.fixtures import Standing
from tests.system.harness import TEMPLATE_NAMESPACE, TEMPLATES, Pace, System
from tests.system.questions import commands, traces
from tests.system.real_api import assets
from tests.system.witness import Before, judge, left_over

pytestmark = [pytest.mark.system, pytest.mark.timeout(500)]

RACK = "rack"
FAILED, FAILED_SIZE = "r0", 60
RACKS, RACK_SIZE, SICK_OF_EACH = 5, 3, 2
CAP = 3

CONFIG_MAPS = Resource(api_version="v1", kind="ConfigMap", plural="configmaps")
POLICIES = {
    "fence-cluster-config": "grace_timeout=10\npolicies=fleet racks",
    "fence-policy-fleet": f"cap={CAP}",
    "fence-policy-racks": f"scope={RACK}\npercentage=80\ncap=1",
}
"""Two of three nodes are fewer than 80%. The first of them is a health check as well: no other is needed."""

PLAN = {"waitBeforePower": "0s", "actDeadline": "10s", "offTimeout": "20s"}
"""No wait, and patience with BMCs that share two cores with three episodes."""
ON_REAL_API = assets() is not None
PACE = Pace(heartbeat=5.0, grace=15.0, boot=0.5) if ON_REAL_API else Pace(heartbeat=1.0, grace=3.0, boot=0.5)
"""Slower than elsewhere, since 75 kubelets are heard on two cores. That a
rack is down is known of all its nodes before the first is due."""
REPAIRED_WITHIN = 300.0 if ON_REAL_API else 150.0
AT_ONCE = 20
"""Requests of the test itself; a real API server drops those that wait too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One machine from the off command that its BMC received until the API server heard that its node is Ready again."""

    node: str
    rack: str
    began: datetime
    ended: datetime


class Returns:
    """When each node became Ready again, by the API's watch."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._moments: defaultdict[str, list[datetime]] = defaultdict(list)
        cluster.view.nodes.subscribe(self._changed)

    def after(self, node: str, moment: datetime) -> datetime:
        """The first one of that node after a moment; the end of time where it never came back."""
        return min((each for each in self._moments[node] if each > moment), default=datetime.max.replace(tzinfo=UTC))

    def _changed(self, before: JsonObject | None, after: JsonObject | None) -> None:
        if after is not None and is_ready(after) and not (before is not None and is_ready(before)):
            self._moments[name_of(after)].append(datetime.now(UTC))


@dataclass(frozen=True, slots=True, kw_only=True)
class Accident:
    """The system after the ten have been repaired, while the rack is still down."""

    system: System
    rack_of: Mapping[str, str]
    befores: Mapping[str, Before]
    results: tuple[EpisodeResult, ...]
    """Of every episode that there was."""
    outages: tuple[Outage, ...]


@pytest.fixture(scope="module")
async def accident(standing: Standing) -> AsyncIterator[Accident]:
    rack_of = _racks()
    sick = [name for rack in range(1, RACKS + 1) for name in _of(rack_of, f"r{rack}")[:SICK_OF_EACH]]
    async with standing(nodes=len(rack_of), pace=PACE, demo_workloads=False) as system:
        await system.start_worker()
        await _label(system, rack_of)
        await _configure(system)
        await system.start_scanner()
        returns = Returns(system.cluster)
        befores = {name: Before.of(system.cluster, name) for name in sick}
        for name in (*_of(rack_of, FAILED), *sick):
            system.cluster.break_node(name, "kubelet-stops")
        await system.until(lambda: _are_back(system, befores), "the ten are repaired", seconds=REPAIRED_WITHIN)
        results = await _results(system)
        outages = tuple(
            Outage(node=name, rack=rack_of[name], began=entry.at, ended=returns.after(name, entry.at))
            for name in rack_of
            for entry in commands(system, name)
            if entry.command == "off"
        )
        yield Accident(system=system, rack_of=rack_of, befores=befores, results=results, outages=outages)


async def test_a_rack_that_fails_as_a_whole_is_left_alone_and_the_limit_gives_its_numbers(accident: Accident) -> None:
    """S17: limit of a scope. Its BMCs received no command, its Nodes no mark, while others were fenced around it."""
    system, rack = accident.system, _of(accident.rack_of, FAILED)
    assert len(rack) == FAILED_SIZE
    assert [name for name in rack if commands(system, name)] == []
    assert [name for name in rack if await traces(system, name)] == []
    assert {result.node for result in accident.results} == accident.befores.keys()

    async def only_the_rack_is_refused() -> bool:
        scanner = await system.scanner()
        return scanner is not None and {accident.rack_of[refused.node] for refused in scanner.refused} == {FAILED}

    await system.until(only_the_rack_is_refused, "the rack's nodes alone are refused")
    scanner = await system.scanner()
    assert scanner is not None
    assert scanner.report is not None
    assert (scanner.permits, scanner.queue) == ((), ())
    assert GroupCount(group=f"{RACK}={FAILED}", nodes=FAILED_SIZE, unresponsive=FAILED_SIZE) in scanner.report.groups
    assert {refused.reason for refused in scanner.refused} == {AdmissionRefusal.SCOPE_STORM}
    assert {refused.message for refused in scanner.refused} == {
        "rack=r0: 60 of 60 nodes, 100%, are unresponsive; the policy racks fences below 80%"
    }


async def test_never_more_than_three_machines_are_off_at_once_and_one_of_a_rack(accident: Accident) -> None:
    """S14, counted at the BMCs: whatever the scanner believes, no fourth received its off before one of three was Ready again."""
    assert len(accident.outages) == len(accident.befores)
    assert 1 < most_at_once(accident.outages) <= CAP
    by_rack: defaultdict[str, list[Outage]] = defaultdict(list)
    for outage in accident.outages:
        by_rack[outage.rack].append(outage)
    assert {rack: most_at_once(outages) for rack, outages in by_rack.items()} == {f"r{rack}": 1 for rack in range(1, RACKS + 1)}


async def test_all_others_are_repaired_and_who_was_well_is_not_touched(accident: Accident) -> None:
    """S1, S2, S5, S33, S35: one off, its proof, one on, no trace left; each once. An episode that was opened on the word of a
    scan from before the node's repair finds it well, and does nothing."""
    system = accident.system
    fenced = [result for result in accident.results if result.off_proof is not None]
    assert {result.outcome for result in accident.results} == {Outcome.RECOVERED}
    assert sorted(result.node for result in fenced) == sorted(accident.befores)
    problems = {
        result.node: [
            *judge(system.cluster, system.witness, accident.befores[result.node], result),
            *await left_over(system.cluster, accident.befores[result.node]),
        ]
        for result in fenced
    }
    assert {name: found for name, found in problems.items() if found} == {}
    touched = {name for name in system.cluster.nodes if commands(system, name)}
    assert touched == accident.befores.keys()


def _racks() -> dict[str, str]:
    """Which node is in which rack. Neighbours by name are in one: without a limit of its own a rack would be taken as a whole."""
    racks = [FAILED] * FAILED_SIZE + [f"r{rack}" for rack in range(1, RACKS + 1) for _ in range(RACK_SIZE)]
    return {f"node-{number}": rack for number, rack in enumerate(racks, start=1)}


def _of(rack_of: Mapping[str, str], rack: str) -> list[str]:
    return [name for name, its in rack_of.items() if its == rack]


async def _label(system: System, rack_of: Mapping[str, str]) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def label(name: str, rack: str) -> None:
        async with free:
            await system.client.patch(NODES.path(name), {"metadata": {"labels": {RACK: rack}}})

    await asyncio.gather(*(label(name, rack) for name, rack in rack_of.items()))


async def _configure(system: System) -> None:
    await system.client.create(TEMPLATES.path(namespace=TEMPLATE_NAMESPACE), system.fencing_template(PLAN))
    for name, properties in POLICIES.items():
        written = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"config.properties": properties}}
        await system.client.create(CONFIG_MAPS.path(namespace=TEMPLATE_NAMESPACE), written)


async def _are_back(system: System, befores: Mapping[str, Before]) -> bool:
    """Whether each of them has been in an episode, is Ready, and holds no permit any more."""
    nodes = [system.cluster.view.nodes.get(name) for name in befores]
    if not all(node is not None and is_ready(node) and commands(system, name_of(node)) for node in nodes):
        return False
    scanner = await system.scanner()
    return scanner is not None and not any(permit.node in befores for permit in scanner.permits)


async def _results(system: System) -> tuple[EpisodeResult, ...]:
    """Of all episodes that the scanner has opened, once the server lists as many that have ended."""
    ended: list[WorkflowExecution] = []

    async def are_listed() -> bool:
        scanner = await system.scanner()
        ended[:] = [
            run async for run in system.warden.client.list_workflows("WorkflowId STARTS_WITH 'episode/'") if run.close_time
        ]
        return scanner is not None and not scanner.permits and len(ended) == scanner.opened

    await system.until(are_listed, "all episodes have ended", seconds=20)
    handles = [system.warden.client.get_workflow_handle(run.id, run_id=run.run_id, result_type=EpisodeResult) for run in ended]
    return tuple(await asyncio.gather(*(handle.result() for handle in handles)))
