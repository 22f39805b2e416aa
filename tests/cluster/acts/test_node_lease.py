"""The medik8s node lease: one holder at a time, and of two takers one loses."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from policy.episode.gate import Operation
from simulator.client import ApiError
from simulator.resources import LEASES
from tests.cluster.acts.world import HOLDER, INCIDENT, NODE, NODE_LEASES, NOW, World

OURS = f"nodewarden/{HOLDER}"
THEIRS = "other-temporal.example:7233/default"


async def test_the_first_lease_brings_its_namespace(world: World) -> None:
    result = await world.take_lease(seconds=120)
    lease = await world.node_lease()
    assert result is None
    assert lease["spec"]["holderIdentity"] == OURS
    assert lease["spec"]["leaseDurationSeconds"] == 120
    assert lease["spec"]["renewTime"] == "2026-11-21T12:00:00.000000Z"
    assert "ownerReferences" not in lease["metadata"]
    assert lease["metadata"]["annotations"] == {"nodewarden.io/incident": INCIDENT}


async def test_a_lease_that_a_look_has_just_taken_is_not_written_anew(world: World) -> None:
    """S20: what outlasts the step is a minute, of which ten seconds may be over; and not for longer, nor for another incident."""
    target = await world.pinned()
    await world.take_lease(target, seconds=120)
    for later, incident, seconds, written in (
        (10, INCIDENT, 120, False),
        (11, INCIDENT, 120, True),
        (12, INCIDENT, 130, True),
        (13, "incident-2", 130, True),
    ):
        world.now, before = NOW + timedelta(seconds=later), await world.node_lease()
        assert await world.take_lease(replace(target, incident=incident), seconds=seconds) is None
        assert (await world.node_lease() != before) is written, (later, incident, seconds)
    with pytest.raises(ApplicationError, match="not begun"):
        await world.take_lease(replace(target, incident="incident-2"), seconds=130, not_after=NOW)


async def test_a_live_lease_of_others_is_theirs(world: World) -> None:
    """S20."""
    before = await world.hold_node_lease("node-maintenance", seconds=600)
    result = await world.take_lease()
    assert result is not None
    assert result.holder == "node-maintenance"
    assert result.until == NOW + timedelta(seconds=600)
    assert await world.node_lease() == before


async def test_a_lapsed_lease_is_taken_over_and_counted(world: World) -> None:
    await world.hold_node_lease("node-maintenance", renewed=NOW - timedelta(seconds=601), seconds=600, transitions=3)
    assert await world.take_lease() is None
    spec = (await world.node_lease())["spec"]
    assert spec["holderIdentity"] == OURS
    assert spec["leaseTransitions"] == 4
    assert spec["acquireTime"] == "2026-11-21T12:00:00.000000Z"


async def test_a_lease_without_an_end_is_held(world: World) -> None:
    """Whoever left out the duration meant to hold it; a person may delete it."""
    await world.hold_node_lease("somebody")
    path = LEASES.path(f"node-{NODE}", namespace=NODE_LEASES)
    await world.others.patch(path, {"spec": {"renewTime": None}})
    result = await world.take_lease()
    assert result is not None
    assert result.until is None


async def test_a_taker_who_created_it_first_wins(world: World) -> None:
    world.connection.before_writes.append(lambda: world.hold_node_lease("faster"))
    result = await world.take_lease()
    assert result is not None
    assert result.holder == "faster"


async def test_release_leaves_the_lease_of_others(world: World) -> None:
    """S28."""
    before = await world.hold_node_lease("node-maintenance")
    await world.target.release_lease(await world.release())
    assert await world.node_lease() == before


async def test_release_leaves_the_lease_of_our_next_episode(world: World) -> None:
    """An activity that outlived its episode must not give away what the next one holds."""
    target = await world.pinned()
    await world.take_lease(replace(target, incident="incident-2"))
    await world.target.release_lease(await world.release(target))
    assert (await world.node_lease())["spec"]["holderIdentity"] == OURS


async def test_release_takes_the_lease_of_an_adopted_episode_along(world: World) -> None:
    """S28, S35: it was terminated before it could; nobody waits ten minutes for a lease that covers nothing any more."""
    target = await world.pinned()
    await world.take_lease(target)
    after = replace(await world.release(replace(target, incident="incident-2")), adopted=target.incident)
    await world.target.release_lease(after)
    with pytest.raises(ApiError, match="NotFound"):
        await world.node_lease()


async def test_s38_another_deployment_of_ours_is_another_holder(world: World) -> None:
    """All were called "nodewarden": one that had lost the cluster renewed the lease of the one that has it."""
    before = await world.hold_node_lease(f"nodewarden/{THEIRS}", seconds=600)
    result = await world.take_lease()
    assert result is not None
    assert result.holder == f"nodewarden/{THEIRS}"
    await world.hold_cluster_lease(THEIRS)
    await world.target.last_look(await world.look(lease=timedelta(minutes=5)))
    await world.target.release_lease(await world.release())
    assert await world.node_lease() == before


@pytest.mark.parametrize("covers", [timedelta(minutes=5), None], ids=["takes it", "only looks"])
async def test_s38_the_deployment_that_has_the_cluster_takes_over_what_the_former_one_has_left(
    world: World, covers: timedelta | None
) -> None:
    """That one acts no more. Its lease may last for ten minutes, and the node's volumes are at risk meanwhile."""
    before = await world.hold_node_lease(f"nodewarden/{THEIRS}", seconds=600)
    await world.hold_cluster_lease()
    result = await world.target.last_look(await world.look(lease=covers))
    assert "lease" not in result.reason
    held = (await world.node_lease())["spec"]["holderIdentity"]
    assert held == (OURS if covers is not None else before["spec"]["holderIdentity"])


@pytest.mark.parametrize("operation", [Operation.DISRUPT, Operation.GIVE_BACK])
async def test_s38_who_has_lost_the_cluster_neither_takes_nor_renews_nor_deletes(world: World, operation: Operation) -> None:
    """The node may be in the hands of whoever has it now; a lease of ours lapses by itself."""
    await world.take_lease()
    before = await world.node_lease()
    await world.hold_cluster_lease(THEIRS)
    world.now += timedelta(seconds=20)
    await world.target.last_look(await world.look(operation=operation, lease=timedelta(minutes=5)))
    await world.target.release_lease(await world.release())
    assert await world.node_lease() == before
    await world.others.delete(LEASES.path(f"node-{NODE}", namespace=NODE_LEASES))
    await world.target.last_look(await world.look(operation=operation, lease=timedelta(minutes=5)))
    with pytest.raises(ApiError, match="NotFound"):
        await world.node_lease()


async def test_a_lease_of_an_earlier_build_without_an_owner_is_ours(world: World) -> None:
    await world.hold_node_lease("nodewarden", seconds=600)
    assert await world.take_lease() is None
    assert (await world.node_lease())["spec"]["holderIdentity"] == OURS


async def test_s38_a_deployment_that_loses_the_cluster_while_it_takes_a_node_asks_anew_and_steals_nothing(world: World) -> None:
    """Both leases pass on between the reading and the PUT: that the cluster was ours says nothing at the next attempt."""
    await world.hold_node_lease(f"nodewarden/{THEIRS}", seconds=600)
    await world.hold_cluster_lease()

    async def both_pass_on() -> None:
        await world.hold_cluster_lease(THEIRS)
        renewed = {"spec": {"leaseTransitions": 4}}
        await world.others.patch(LEASES.path(f"node-{NODE}", namespace=NODE_LEASES), renewed)

    world.connection.before_writes.append(both_pass_on)
    result = await world.take_lease()
    assert result is not None
    assert result.holder == f"nodewarden/{THEIRS}"
    assert (await world.node_lease())["spec"]["holderIdentity"] == f"nodewarden/{THEIRS}"
