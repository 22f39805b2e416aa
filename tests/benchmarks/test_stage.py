"""Benchmarks read clocks and judge: what they would print must be so, and what must not happen must be said."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from benchmarks import burst, clusters
from benchmarks.stage.figures import Spread, printed, table
from benchmarks.stage.processes import cpu_time
from benchmarks.stage.sightings import Sightings
from simulator.cluster import SimulatedCluster
from simulator.resources import NODES
from tests.system.questions import OUR_USER_AGENT
from tests.system.witness import Before

BURN = "import time\nwhile time.process_time() < 0.4: pass"
FAMILY = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}])\nprint('ready', flush=True)\nsys.stdin.read()"


async def test_cpu_of_children_that_have_ended_is_counted() -> None:
    """A process per power operation is gone when anybody looks."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", FAMILY, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        spent, without = cpu_time(process.pid), cpu_time(os.getpid(), without=(process.pid,))
        assert spent.children >= 0.35
        assert spent.itself < 0.35
        assert cpu_time(os.getpid()).total >= without.total + spent.total - 0.1
    finally:
        process.kill()
        await process.wait()
    with pytest.raises(ProcessLookupError):
        cpu_time(process.pid)


def test_percentiles_are_values_that_were_measured() -> None:
    """Nearest rank; nothing measured is no figure."""
    spread = Spread.of([float(each) for each in range(1, 101)])
    assert (spread.count, spread.median, spread.p99, spread.largest, spread.mean) == (100, 50, 99, 100, 50.5)
    assert (Spread.of([3.0]).median, Spread.of([3.0]).p99) == (3.0, 3.0)
    assert Spread.of([]).median is None
    assert table(["a", "b"], [["xx", "1"]]).splitlines() == ["a   b", "-----", "xx  1"]


def test_figures_say_of_which_version_and_machine_they_are() -> None:
    found = json.loads(printed([{"seconds": 1}], seed=7))
    assert (found["figures"], found["seed"], found["machine"]["cores"]) == ([{"seconds": 1}], 7, os.cpu_count())
    assert found["commit"]
    assert len(found["machine"]["load"]) == 3


def test_what_each_further_cluster_takes_is_the_difference() -> None:
    """Of workers and Temporal, of long polls and of requests that are answered at once."""
    counted = (
        'temporal_request{operation="A"} 4\ntemporal_request_total{operation="B"} 2\ntemporal_long_request{x="y"} 3\nother 9\n'
    )
    assert clusters.counted(counted) == (6, 3)
    spread = Spread.of([1.0, 2.0]).as_json()
    one: dict[str, Any] = {"clusters": 1, "atRest": dict.fromkeys(clusters.AT_REST, 1.0), "alone": spread}
    more = {"besideANoisyOne": spread, "afterAKill": spread}
    many = {**one, "clusters": 11, "atRest": dict.fromkeys(clusters.AT_REST, 3.0)} | more
    (line,) = (each for each in clusters.show(one, many).splitlines() if each.startswith("requests to Temporal"))
    assert line.split()[-5:] == ["1.000", "3.000", "0.200", "<=", "0.05"]


def test_a_node_that_is_served_before_an_older_one_has_passed_it_over() -> None:
    """Nobody is starved in a burst: the oldest deadline goes first. Equal ones are nobody's elders."""
    start = datetime(2026, 11, 22, tzinfo=UTC)

    def at(seconds: float) -> datetime:
        return start + timedelta(seconds=seconds)

    assert burst.passed_over([(at(0), at(5)), (at(0), at(1))]) is None
    assert burst.passed_over([(at(0), at(1)), (at(1), at(2))]) == 0
    assert burst.passed_over([(at(0), at(9)), (at(1), at(2)), (at(2), at(4)), (at(3), None)]) == 7
    assert burst.passed_over([]) is None


@pytest.fixture
async def cluster() -> AsyncIterator[SimulatedCluster]:
    """Three nodes that somebody by hand does everything to that nodewarden might do."""
    async with SimulatedCluster(
        nodes=3, zones=1, heartbeat_seconds=0.1, grace_seconds=0.5, boot_seconds=0.2, platform="ipmi", demo_workloads=False
    ) as running:
        yield running


async def _cordon(cluster: SimulatedCluster, name: str, *, cordoned: bool = True) -> None:
    await cluster.client.patch(NODES.path(name), {"spec": {"unschedulable": cordoned}})


async def _look(cluster: SimulatedCluster, name: str) -> None:
    await cluster.client.named(f"{OUR_USER_AGENT}test").get(NODES.path(name))


async def _fence(cluster: SimulatedCluster, name: str) -> None:
    await _cordon(cluster, name)
    await cluster.chassis.machine(name).set_power("off", "bmc")
    await cluster.chassis.machine(name).set_power("on", "bmc")


async def test_a_burst_that_went_well_has_nothing_to_say(cluster: SimulatedCluster) -> None:
    """Moments come in their order, from the API server and the chassis."""
    sightings = Sightings(cluster)
    seen = sightings.expect(Before.of(cluster, "node-1"))
    cluster.break_node("node-1", "kernel-hangs")
    await cluster.wait_until(lambda: seen.sick_since is not None, what="node-1 is Unknown")
    await _look(cluster, "node-1")
    await _fence(cluster, "node-1")
    await asyncio.sleep(0.5)
    assert seen.in_service is None, "it is cordoned"
    await _cordon(cluster, "node-1", cordoned=False)
    await cluster.wait_until(lambda: seen.in_service is not None, what="node-1 is back")
    moments = [seen.sick_since, seen.cordoned, seen.off, seen.in_service]
    assert moments == sorted(moment for moment in moments if moment is not None)
    assert burst.broken_rules(cluster, sightings, cap=1) == []


async def test_a_burst_that_went_wrong_is_named(cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1, S14, S20, S45: each of the four, and whoever touches a node that is well."""
    sightings = Sightings(cluster)
    for name in ("node-1", "node-2"):
        sightings.expect(Before.of(cluster, name))
    await _look(cluster, "node-1")
    await _fence(cluster, "node-1")  # the look is older than a window of nothing
    await cluster.client.get(NODES.path("node-2"))  # somebody else's look is none of ours
    await _fence(cluster, "node-2")
    await _cordon(cluster, "node-3")  # nobody has broken it
    for pod in ("first", "second"):
        where = {"pod": f"demo/{pod}", "pod_uid": pod, "node": f"of-{pod}", "boot_id": "", "exclusive": False}
        cluster.storage.begin(volume="data", **where)
    monkeypatch.setattr(burst, "ACT_WINDOW", timedelta(0))
    said = burst.broken_rules(cluster, sightings, cap=1)
    for expected in (
        "node-1: not recovered",
        r"node-1: switched off \d",  # so long after the look
        "node-2: not recovered",
        "node-2: switched off without a live look",
        "two writers",
        "2 nodes were in hand at once, and there were 1 permits",
        "node-3 was cordoned, and it was not broken",
    ):
        assert any(re.match(expected, each) for each in said), (expected, said)


async def test_freed_is_when_nothing_of_before_is_left_in_the_api(cluster: SimulatedCluster) -> None:
    """Not when its successor runs: that is the scheduler's affair."""
    path = "/api/v1/namespaces/default/pods"
    for name in ("first", "second"):
        spec = {"nodeName": "node-1", "containers": [{"name": "app", "image": "registry.example/app:1"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
        await cluster.client.create(path, pod)
    await cluster.wait_until(lambda: len(cluster.view.pods_by_node["node-1"]) == 2, what="two pods stand on node-1")
    sightings = Sightings(cluster)
    seen = sightings.expect(Before.of(cluster, "node-1"))
    await cluster.client.delete(f"{path}/first", grace_seconds=0)
    await cluster.wait_until(lambda: len(cluster.view.pods_by_node["node-1"]) == 1, what="the first one is gone")
    assert seen.freed is None
    await cluster.client.delete(f"{path}/second", grace_seconds=0)
    await cluster.wait_until(lambda: seen.freed is not None, what="node-1 is freed")
