"""The simulated cluster-autoscaler: what it makes of sets whose Machines never become Nodes, and what keeps it from that."""

from __future__ import annotations

import pytest

from simulator.cluster import SimulatedCluster
from simulator.controllers.autoscaler import AutoscalerSettings
from simulator.machines import Trouble
from simulator.node import NodeFault
from simulator.objects import JsonObject, name_of
from tests.simulator.machines.fleets import with_machines

pytestmark = pytest.mark.timeout(40)

A, B = "workers-zone-a", "workers-zone-b"
FOUND_OUT = ("gave-up", "scaled-back", "backed-off")


def with_autoscaler(system: str, *, max_size: int = 3) -> SimulatedCluster:
    """A worker in each of two zones. It looks often, and the clock by which it judges is put forward by hand."""
    settings = AutoscalerSettings(scan_interval=0.05, max_size=max_size)
    return with_machines(system, nodes=2, zones=2, options={"autoscaler": settings})


async def look_twice(cluster: SimulatedCluster) -> None:
    """Until it has surely looked at all that there is now."""
    scaler = cluster.machines.autoscaler
    before = scaler.rounds
    await cluster.wait_until(lambda: scaler.rounds >= before + 2, what="two rounds")


async def the_broken_one(cluster: SimulatedCluster, phase: str) -> str:
    """The name of the one Machine whose clock runs, once it is in that phase."""
    fleet, scaler = cluster.machines, cluster.machines.autoscaler

    def names() -> list[str]:
        return [each.machine for each in scaler.awaited.values() if fleet.phase(each.machine) == phase]

    await cluster.wait_until(lambda: len(names()) == len(scaler.awaited) == 1, what=f"a Machine that is {phase}")
    return names()[0]


@pytest.mark.parametrize(
    ("system", "trouble", "phase"),
    [
        ("openshift", Trouble(refuses=True), "Failed"),
        ("openshift", Trouble(terminates=True), "Failed"),
        ("cluster-api", Trouble(fault=NodeFault.NEVER_BOOTS), "Provisioned"),
    ],
)
async def test_a_set_whose_machines_never_join_is_scaled_back_after_its_time_and_another_one_tried(
    system: str, trouble: Trouble, phase: str
) -> None:
    async with with_autoscaler(system) as cluster:
        fleet, scaler = cluster.machines, cluster.machines.autoscaler
        fleet.instances.troubles[A] = trouble
        marked = set[str]()

        def watch(_: JsonObject | None, after: JsonObject | None) -> None:
            if after is not None and fleet.system.delete_first in (after["metadata"].get("annotations") or {}):
                marked.add(name_of(after))

        fleet.view.machines.subscribe(watch)
        scaler.want(1)
        name = await the_broken_one(cluster, phase)
        scaler.pass_time(800)
        await look_twice(cluster)
        assert scaler.what_befell(A) == ["scaled-up", "awaited"], "its time is not over"
        scaler.pass_time(101)
        await cluster.wait_until(lambda: scaler.is_content, what="a Node of the other set")
        assert scaler.what_befell(A) == ["scaled-up", "awaited", *FOUND_OUT]
        assert scaler.backed_off == [A]
        assert marked == {name}, "to go first"
        await cluster.wait_until(lambda: name not in fleet.names, what="its set has given it up")
        assert [(each.machine, each.by_controllers) for each in fleet.deletions()] == [(name, True)]
        await cluster.wait_until(lambda: len(fleet.in_phase("Running")) == 3, what="three Machines with Nodes")
