"""Machines that are kept, beside simulated controllers whose sets are to have fewer of them."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.preserving import ClusterPreservation
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.live.looks import LastLook
from activities.contracts.preservation import Hold, HoldRequest, Wish
from simulator.cluster import SimulatedCluster
from simulator.machine_systems.contract import KNOWS_NO_EXPIRY
from tests.cluster.acts.world import Permits
from tests.simulator.machines.test_machines import MARKS, with_machines

pytestmark = pytest.mark.timeout(40)

SET = "workers-zone-a"


async def kept(cluster: SimulatedCluster, name: str, **changes: Any) -> Hold:
    """By a person; or looked at again."""
    async with ClusterConnection.to(cluster.address.url, token=cluster.address.token) as connection:
        activities = ClusterPreservation("sim", connection, LastLook(connection, Permits()).look)
        request = HoldRequest(cluster="sim", **({"node": cluster.machines.node_of(name), "wish": Wish(keep=True)} | changes))
        found = await ActivityEnvironment().run(activities.hold, request)
    assert isinstance(found, Hold)
    return found


async def until_left(cluster: SimulatedCluster, *names: str) -> None:
    await cluster.wait_until(lambda: cluster.machines.names == sorted(names), what=f"only {', '.join(names)} are left")


@pytest.mark.parametrize("older", [False, True], ids=["by expiry", "by priority"])
async def test_of_two_machines_the_one_that_is_not_kept_goes(*, older: bool) -> None:
    """S21: whether or not the controller knows of preservation, which is by nothing else than what we write; the younger and the
    failed ones go first there, and where only kept ones are left, the number of replicas is honoured."""
    async with with_machines("gardener") as cluster:
        fleet = cluster.machines
        if older:
            path = fleet.system.machine_sets.path(SET, namespace=fleet.system.namespace)
            await cluster.client.patch(path, {"metadata": {"annotations": {KNOWS_NO_EXPIRY: "true"}}})
        for name in ("machine-1", "machine-2"):
            assert (await kept(cluster, name)).preserved
        await fleet.scale(SET, 2)
        await until_left(cluster, "machine-1", "machine-2")
        await fleet.scale(SET, 1)
        await cluster.wait_until(lambda: len(fleet.names) == 1, what="the number of replicas is honoured")


@pytest.mark.parametrize("system", ["openshift", "cluster-api"])
async def test_where_there_is_no_lever_the_one_that_somebody_marks_goes(system: str) -> None:
    """Nothing is written there; by name it would have been the first one's turn."""
    async with with_machines(system) as cluster:
        hold = await kept(cluster, "machine-1")
        assert (hold.preserved, hold.warnings) == (True, ())
        await cluster.machines.annotate("machine-2", MARKS[system])
        await cluster.machines.scale(SET, 2)
        await until_left(cluster, "machine-1", "machine-3")
