"""Freeing on the word of a kernel that dumps: by the node's own address, while it is fresh, and of a node that has not booted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
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


Change = Callable[[World, FreeDumpingRequest], Awaitable[Any]]


async def _address_is_anothers(world: World, _: FreeDumpingRequest) -> None:
    addresses = [{"type": "InternalIP", "address": "10.0.0.9"}]
    await world.change_node({"status": {"addresses": addresses}}, subresource="status")


async def _nothing(_: World, __: FreeDumpingRequest) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "pinned", "kind", "words"),
    [
        (_nothing, {"not_ready_since": None}, ErrorType.NOT_PROVEN, NODE),
        (_nothing, {"boot_id": "the boot before"}, ErrorType.NOT_PROVEN, "has booted since"),
        (_address_is_anothers, {}, ErrorType.NOT_PROVEN, "no longer has the address"),
        (lambda world, _: world.delete_node(), {}, ErrorType.NOT_PROVEN, "whether its machine has booted"),
        (lambda world, _: world.put_mark(replace(our_mark(), incident="incident-2")), {}, ErrorType.VETOED, "incident-2"),
        (lambda world, asked: _wait(world, asked.not_after), {}, ErrorType.EXPIRED, ""),
    ],
    ids=[
        "S6 nothing says that the message is of this crash",
        "S6 a new boot id ends the licence",
        "S9 its address is another's by now",
        "S6 the power is on, so a Node that is gone says nothing",
        "S13 another episode's node",
        "S2 S20 its moments are over",
    ],
)
async def test_each_guard_holds_alone(
    dumping: World, change: Change, pinned: dict[str, Any], kind: ErrorType, words: str
) -> None:
    asked = await request(dumping, **pinned)
    await change(dumping, asked)
    with refused(kind, words):
        await dumping.freeing.free_while_dumping(asked)
    await assert_untouched(dumping)


async def _wait(world: World, until: datetime) -> None:
    world.now = until + timedelta(seconds=1)


async def test_a_worker_never_frees_the_node_it_runs_on(dumping: World) -> None:
    """S16: whoever asks is alive."""
    asked = await request(dumping)
    here = ClusterFreeing("prod", dumping.connection, dumping.target.last_look, own_node=NODE, clock=dumping.clock)
    with refused(ErrorType.OWN_NODE):
        await here.free_while_dumping(asked)
    await assert_untouched(dumping)
