"""The simulated cluster-autoscaler: what it makes of sets whose Machines never become Nodes, and what keeps it from seeing that."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.client import ApiClient
from simulator.cluster import SimulatedCluster
from simulator.controllers.autoscaler import AutoscalerSettings
from simulator.machines import Trouble
from simulator.node import NodeFault
from tests.simulator.machines.fleets import with_machines

pytestmark = pytest.mark.timeout(40)

A, B = "workers-zone-a", "workers-zone-b"
FIXED = ("gave-up", "scaled-back", "backed-off")


def with_autoscaler(system: str, *, provision: float = 0.5, **settings: Any) -> SimulatedCluster:
    """A worker in each of two zones, and no more than three in each."""
    scaler = {"scan_interval": 0.05, "max_node_provision_time": provision, "backoff": 60.0, "max_size": 3, **settings}
    return with_machines(system, nodes=2, zones=2, options={"autoscaler": AutoscalerSettings(**scaler)})


async def delete(cluster: SimulatedCluster, name: str) -> None:
    system = cluster.machines.system
    async with ApiClient(cluster.address, user_agent="health-check") as client:
        await client.delete(system.machines.path(name, namespace=system.namespace))


def failed(cluster: SimulatedCluster) -> list[str]:
    return [name for name in cluster.machines.in_phase("Failed") if name not in doomed(cluster)]


def doomed(cluster: SimulatedCluster) -> set[str]:
    return {event.machine for event in cluster.machines.autoscaler.history if event.what == "lost"}


async def test_a_set_gets_larger_until_it_may_not_and_then_the_next_one() -> None:
    async with with_autoscaler("cluster-api") as cluster:
        scaler = cluster.machines.autoscaler
        assert scaler.is_content
        scaler.want(3)
        assert not scaler.is_content
        await cluster.wait_until(lambda: scaler.is_content, what="three Nodes more")
        await cluster.wait_until(lambda: scaler.what_befell(A).count("registered") == 2, what="they are told")
        assert [event.replicas for event in scaler.history if event.what == "scaled-up"] == [3, 2]
        assert scaler.what_befell(B) == ["scaled-up", "awaited", "registered"]
        assert scaler.backed_off == []


@pytest.mark.parametrize(
    ("system", "trouble", "phase"),
    [
        ("openshift", Trouble(refuses=True), "Failed"),
        ("openshift", Trouble(terminates=True), "Failed"),
        ("cluster-api", Trouble(terminates=True), "Provisioned"),
        ("cluster-api", Trouble(fault=NodeFault.NEVER_BOOTS), "Provisioned"),
    ],
)
async def test_a_set_whose_machines_never_join_is_scaled_back_after_its_time_and_another_one_tried(
    system: str, trouble: Trouble, phase: str
) -> None:
    async with with_autoscaler(system, provision=0.8) as cluster:
        fleet, scaler = cluster.machines, cluster.machines.autoscaler
        fleet.instances.troubles[A] = trouble
        scaler.want(1)
        await cluster.wait_until(lambda: len(scaler.awaited) == 1, what="a Machine of the broken set")
        (awaited,) = scaler.awaited.values()
        assert awaited.machine_set == A
        await cluster.wait_until(lambda: fleet.phase(awaited.machine) == phase, what=phase)
        assert A not in scaler.backed_off, "its time is not over"
        await cluster.wait_until(lambda: scaler.is_content, what="a Node of the other set")
        assert scaler.what_befell(A) == ["scaled-up", "awaited", *FIXED]
        assert scaler.backed_off == [A]
        first, last = (next(each.at for each in scaler.history if each.what == what) for what in ("awaited", "gave-up"))
        assert (last - first).total_seconds() >= 0.8
        await cluster.wait_until(lambda: awaited.machine not in fleet.names, what="its set has given it up")
        assert [(each.machine, each.by_controllers) for each in fleet.deletions()] == [(awaited.machine, True)]
        await cluster.wait_until(lambda: len(fleet.in_phase("Running")) == 3, what="three Machines with Nodes")


async def test_an_instance_that_is_accepted_and_then_terminated_is_provisioned_before_it_fails() -> None:
    async with with_machines("openshift") as cluster:
        fleet, seen = cluster.machines, list[str]()
        fleet.instances.troubles["workers-zone-a"] = Trouble(terminates=True)
        fleet.view.machines.subscribe(lambda _, after: seen.append(fleet.system.phase(after)) if after is not None else None)
        await fleet.scale("workers-zone-a", 4)
        await cluster.wait_until(lambda: len(fleet.in_phase("Failed")) == 1, what="Failed")
        phases = [phase for phase in dict.fromkeys(seen) if phase not in {"", "Running"}]
        assert phases == ["Provisioning", "Provisioned", "Failed"]
        (name,) = fleet.in_phase("Failed")
        assert (fleet.machine(name) or {})["spec"]["providerID"].startswith("simulated:///zone-a/never-started-")
        await delete(cluster, name)
        await cluster.wait_until(lambda: name not in fleet.names, what="it can be deleted")


async def test_who_deletes_failed_machines_at_once_keeps_the_autoscaler_from_finding_out() -> None:
    """The hot loop: each replacement has a uid, and with it a clock, of its own."""
    async with with_autoscaler("openshift", provision=2.0) as cluster:
        fleet, scaler = cluster.machines, cluster.machines.autoscaler
        fleet.instances.troubles[A] = Trouble(refuses=True)
        scaler.want(1)
        loops = 0
        begun = None
        while begun is None or (scaler.history[-1].at - begun).total_seconds() < 2.5:
            await cluster.wait_until(lambda: bool(failed(cluster)), what="the next one fails")
            (name,) = failed(cluster)
            begun = begun or next(each.at for each in scaler.history if each.what == "awaited")
            await cluster.wait_until(lambda name=name: name in {each.machine for each in scaler.awaited.values()}, what="a clock")
            await delete(cluster, name)
            await cluster.wait_until(lambda name=name: name in doomed(cluster), what="the clock is lost")
            loops += 1
        assert loops > 3
        assert scaler.what_befell(A)[:5] == ["scaled-up", "awaited", "lost", "awaited", "lost"]
        assert not set(FIXED) & set(scaler.what_befell(A)), "though it has been broken for longer than its time"
        assert scaler.what_befell(B) == []
        assert not scaler.is_content
        # Left alone the same set is found out.
        await cluster.wait_until(lambda: scaler.is_content, what="a Node of the other set")
        assert scaler.backed_off == [A]


async def test_a_set_that_fails_again_is_left_alone_for_twice_as_long() -> None:
    async with with_autoscaler("openshift", provision=0.2, backoff=0.5) as cluster:
        fleet, scaler = cluster.machines, cluster.machines.autoscaler
        fleet.instances.troubles |= dict.fromkeys((A, B), Trouble(refuses=True))
        scaler.want(1)
        await cluster.wait_until(lambda: scaler.what_befell(A).count("backed-off") == 2, what="the second time")
        assert scaler.what_befell(B).count("backed-off") >= 1
        again = [each for each in scaler.history if each.machine_set == A and each.what == "scaled-up"]
        off = [each for each in scaler.history if each.machine_set == A and each.what == "backed-off"]
        assert (again[1].at - off[0].at).total_seconds() >= 0.5
        await cluster.wait_until(lambda: scaler.what_befell(A).count("scaled-up") == 3, what="the third try")
        third = [each for each in scaler.history if each.machine_set == A and each.what == "scaled-up"][2]
        assert (third.at - off[1].at).total_seconds() >= 1.0
        assert fleet.machine("machine-1") is not None, "never below its least size"


def test_there_is_no_autoscaler_for_machines_that_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="no autoscaler for the Machines of gardener"):
        with_autoscaler("gardener")
