"""Freeing on the word of a kernel that dumps: by the node's own address, while it is fresh, and of a node that has not booted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.acts.freeing import ClusterFreeing
from activities.contracts.target import FreeDumpingRequest, FreeResult
from activities.errors import ErrorType
from policy.fence.kdump import KernelDead
from tests.cluster.acts.world import NODE, NOW, SICK_SINCE, World, our_mark, refused

ADDRESS = "10.0.0.7"
DEAD = KernelDead(address=ADDRESS, messages=3, last=NOW - timedelta(seconds=4), heard_at=NOW, after=SICK_SINCE)


@pytest.fixture
async def dumping(world: World) -> World:
    """A marked node that is down, with a pod and a volume bound to it."""
    await world.hold_cluster_lease()
    await world.mark_as_ours(cordoned=True)
    await world.add_volume("data")
    await world.add_pod("db-0", claims=("data",))
    await world.change_node({"status": {"addresses": [{"type": "InternalIP", "address": ADDRESS}]}}, subresource="status")
    world.server.requests.reset()
    return world


async def request(world: World, proof: KernelDead = DEAD, **pinned: Any) -> FreeDumpingRequest:
    free, target = await world.free(), await world.pinned()
    target = replace(target, pinned=replace(target.pinned, **({"addresses": (ADDRESS,)} | pinned)))
    return FreeDumpingRequest(target=target, proof=proof, not_after=free.not_after, holder=free.holder)


async def assert_untouched(world: World) -> None:
    assert await world.pods() == ["db-0"]
    assert await world.attachments() == ["va-data"]
    assert world.writes == 0


async def test_its_pods_and_their_attachments_go(dumping: World) -> None:
    """S1: on a proof of its own kind."""
    result: FreeResult = await dumping.freeing.free_while_dumping(await request(dumping))
    assert (result.deleted_pods, result.deleted_attachments, result.left.pods) == (1, 1, 0)
    assert (await dumping.pods(), await dumping.attachments()) == ([], [])


@pytest.mark.parametrize(
    "proof",
    [
        replace(DEAD, address="10.0.0.8"),
        replace(DEAD, last=SICK_SINCE),
        replace(DEAD, after=SICK_SINCE - timedelta(seconds=1)),
        replace(DEAD, last=NOW - timedelta(seconds=16)),
    ],
    ids=["S9 another's address", "S6 before NotReady", "S6 another crash", "S2 too old"],
)
async def test_anything_less_is_no_proof(dumping: World, proof: KernelDead) -> None:
    with refused(ErrorType.NOT_PROVEN, NODE):
        await dumping.freeing.free_while_dumping(await request(dumping, proof))
    await assert_untouched(dumping)


async def test_a_node_that_was_ready_when_it_was_pinned_is_not_freed(dumping: World) -> None:
    """S6: nothing says that the message is of this crash."""
    with refused(ErrorType.NOT_PROVEN, NODE):
        await dumping.freeing.free_while_dumping(await request(dumping, not_ready_since=None))
    await assert_untouched(dumping)


async def test_a_new_boot_id_ends_the_licence(dumping: World) -> None:
    """S6."""
    asked = await request(dumping, boot_id="the boot before")
    with refused(ErrorType.NOT_PROVEN, "has booted since"):
        await dumping.freeing.free_while_dumping(asked)
    await assert_untouched(dumping)


async def test_a_node_whose_address_is_another_s_by_now_is_not_freed(dumping: World) -> None:
    """S9."""
    addresses = [{"type": "InternalIP", "address": "10.0.0.9"}]
    await dumping.change_node({"status": {"addresses": addresses}}, subresource="status")
    dumping.server.requests.reset()
    with refused(ErrorType.NOT_PROVEN, "no longer has the address"):
        await dumping.freeing.free_while_dumping(await request(dumping))
    await assert_untouched(dumping)


async def test_without_its_node_it_cannot_be_seen_whether_it_has_booted(dumping: World) -> None:
    """S6: the power is on, so a Node that is gone says nothing."""
    asked = await request(dumping)
    await dumping.delete_node()
    dumping.server.requests.reset()
    with refused(ErrorType.NOT_PROVEN, "whether its machine has booted"):
        await dumping.freeing.free_while_dumping(asked)
    await assert_untouched(dumping)


async def test_after_its_moments_are_over_nothing_is_freed(dumping: World) -> None:
    """S2, S20."""
    asked = replace(await request(dumping), not_after=NOW - timedelta(seconds=1))
    with refused(ErrorType.EXPIRED):
        await dumping.freeing.free_while_dumping(asked)
    await assert_untouched(dumping)


async def test_another_episodes_node_is_not_freed(dumping: World) -> None:
    """S13."""
    asked = await request(dumping)
    await dumping.put_mark(replace(our_mark(), incident="incident-2"))
    dumping.server.requests.reset()
    with refused(ErrorType.VETOED, "incident-2"):
        await dumping.freeing.free_while_dumping(asked)
    await assert_untouched(dumping)


async def test_a_worker_never_frees_the_node_it_runs_on(dumping: World) -> None:
    """S16: whoever asks is alive."""
    asked = await request(dumping)
    here = ClusterFreeing("prod", dumping.connection, dumping.target.last_look, own_node=NODE, clock=dumping.clock)
    with refused(ErrorType.OWN_NODE):
        await here.free_while_dumping(asked)
    await assert_untouched(dumping)
