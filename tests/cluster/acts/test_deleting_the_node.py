"""The Node itself is deleted only after a whole last look, taken in the activity that deletes it (S20, S21).

What else every consequence needs is in `test_consequences_need_proof.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from activities.errors import ErrorType
from policy.episode.vetoes import HOLD_ANNOTATION
from policy.objects.nodes import EXCLUDE_LABEL, PRESERVE_ANNOTATION
from simulator.api.control.faults import Accident, Fault
from tests.cluster.acts.world import NODE, World, refused

Saying = Callable[[World], Awaitable[Any]]


@pytest.fixture
async def off(world: World) -> World:
    """A marked node that is proven off."""
    await world.hold_cluster_lease()
    await world.mark_as_ours(cordoned=True)
    return world


async def _preserved(world: World) -> None:
    await world.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: "now"}}})


async def _kept_as_failed(world: World) -> None:
    condition = {"type": "Preserved", "status": "True", "reason": "Preserved by user.", "message": "x"}
    await world.change_node({"status": {"conditions": [condition]}}, subresource="status")


async def _excluded(world: World) -> None:
    await world.change_node({"metadata": {"labels": {EXCLUDE_LABEL: "true"}}})


async def _leased(world: World) -> None:
    await world.hold_node_lease("node-maintenance")


async def _held(world: World) -> None:
    await world.change_node({"metadata": {"annotations": {HOLD_ANNOTATION: "until monday"}}})


async def _without_permit(world: World) -> None:
    world.permits.answer = (False, "nobody has it")


async def _unread(world: World) -> None:
    world.server.faults.add(Fault(accident=Accident.REFUSE, path="medik8s-leases/"))


async def _preserved_meanwhile(world: World) -> None:
    world.connection.before_writes.append(lambda: _preserved(world))


async def _recreated_meanwhile(world: World) -> None:
    world.connection.before_writes.append(world.recreate_node)


@pytest.mark.parametrize(
    ("say", "kind", "words"),
    [
        (_preserved, ErrorType.VETOED, PRESERVE_ANNOTATION),
        (_kept_as_failed, ErrorType.VETOED, "Preserved"),
        (_excluded, ErrorType.VETOED, EXCLUDE_LABEL),
        (_leased, ErrorType.VETOED, "node-maintenance"),
        (_held, ErrorType.NOT_LICENSED, "until monday"),
        (_without_permit, ErrorType.NOT_LICENSED, "nobody has it"),
        (_unread, ErrorType.NOT_LICENSED, "the node's lease could not be read"),
        (_preserved_meanwhile, ErrorType.VETOED, PRESERVE_ANNOTATION),
        (_recreated_meanwhile, ErrorType.TARGET_CHANGED, NODE),
    ],
    ids=[
        "S21 its annotations go with it, the one that preserves it among them",
        "S21 kept as failed",
        "S20 excluded",
        "S20 in maintenance",
        "S20 a hold, which is waited for",
        "S20 a permit that was lost with its scanner",
        "S3 nobody knows whether somebody services the machine",
        "S27 preserved between our look and our delete",
        "S9 a namesake that registers between our look and our delete",
    ],
)
async def test_the_node_stays(off: World, say: Saying, kind: ErrorType, words: str) -> None:
    """Look and delete are one."""
    request = await off.free()
    await say(off)
    with refused(kind, words):
        await off.freeing.delete_node(request)
    assert await off.has_node()


async def test_a_node_that_only_changed_meanwhile_is_looked_at_again_and_deleted(off: World) -> None:
    off.connection.before_writes.append(lambda: off.change_node({"metadata": {"labels": {"team": "a"}}}))
    assert (await off.freeing.delete_node(await off.free())).changed
    assert not await off.has_node()


async def test_a_machine_that_only_its_check_knows_of_does_not_keep_the_node(off: World) -> None:
    """S9: the pin found it by the health check; a Node that names no Machine is no other target for that."""
    request = await off.free()
    pinned = replace(request.target.pinned, machine_uids=("of-a-machine-that-names-this-node",))
    assert (await off.freeing.delete_node(replace(request, target=replace(request.target, pinned=pinned)))).changed


async def test_a_node_that_is_gone_is_deleted(off: World) -> None:
    request = await off.free()
    await off.delete_node()
    assert not (await off.freeing.delete_node(request)).changed


@pytest.mark.parametrize("say", [_preserved, _kept_as_failed, _excluded, _leased])
async def test_who_protects_the_machine_does_not_keep_its_workloads_down(off: World, say: Saying) -> None:
    """docs/fencing.md: what runs elsewhere takes nothing from a machine that is off."""
    await off.add_pod("db-0")
    await say(off)
    assert (await off.freeing.delete_workload(await off.free())).deleted_pods == 1
    assert (await off.freeing.taint_out_of_service(await off.free())).changed


async def test_a_hold_keeps_everything_as_it_is(off: World) -> None:
    """S20, S44: a person's "not now", said on the Node, is heard after off too, and only waited for."""
    await off.add_pod("db-0")
    await off.change_node({"metadata": {"annotations": {HOLD_ANNOTATION: ""}}})
    for consequence in (off.freeing.delete_workload, off.freeing.taint_out_of_service):
        with refused(ErrorType.NOT_LICENSED, HOLD_ANNOTATION):
            await consequence(await off.free())
    assert await off.pods() == ["db-0"]


async def test_the_lease_of_whoever_asked_for_it_is_no_veto(off: World) -> None:
    """The look is that of the episode: its need says who has delegated it."""
    await off.hold_node_lease("node-healthcheck")
    request = await off.free()
    asked = replace(request.need, delegate="node-healthcheck")
    assert (await off.freeing.delete_node(replace(request, need=asked))).changed
