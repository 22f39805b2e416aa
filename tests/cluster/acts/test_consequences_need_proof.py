"""No consequence without its proof, on the wrong node, out of time or without licence: each guard, violated alone (S1).

The Node itself is deleted only after a whole last look, taken in the activity that deletes it (S20, S21)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.acts.freeing import ClusterFreeing
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.target import FreeRequest, WorkloadRequest
from activities.errors import ErrorType
from policy.episode.gate import HOLD_ANNOTATION
from policy.episode.messages import Acknowledgement, OffProof
from policy.fence.power import PowerState
from policy.objects.nodes import PRESERVE_ANNOTATION
from simulator.api.control.faults import Accident, Fault
from tests.cluster.acts.world import ENDPOINT, NODE, NOW, OUT_OF_SERVICE, World, off_proof, our_mark, refused, word
from tests.licensing import LICENCES

SECOND = "ipmi://10.0.1.7:623"

Consequence = Callable[[ClusterFreeing, FreeRequest], Awaitable[Any]]


def goes_on_by_the_taint(freeing: ClusterFreeing, request: FreeRequest) -> Awaitable[Any]:
    """What it frees by itself, for as long as somebody looks what is left."""
    given = {name: getattr(request, name) for name in ("target", "proof", "not_after", "holder")}
    return freeing.read_workload(WorkloadRequest(**given))


CONSEQUENCES: tuple[Consequence, ...] = (
    goes_on_by_the_taint,
    ClusterFreeing.taint_out_of_service,
    ClusterFreeing.delete_workload,
    ClusterFreeing.delete_node,
)
"""Every guard holds for each of them."""


@pytest.fixture
async def off(world: World) -> World:
    """A marked node that is proven off, with a pod and a volume bound to it."""
    await world.hold_cluster_lease()
    await world.mark_as_ours(cordoned=True)
    await world.add_volume("data")
    await world.add_pod("db-0", claims=("data",))
    return world


async def assert_none(world: World, request: FreeRequest, kind: ErrorType, words: str = "") -> None:
    for consequence in CONSEQUENCES:
        with refused(kind, words):
            await consequence(world.freeing, request)
    assert await world.pods() == ["db-0"]
    assert await world.attachments() == ["va-data"]
    assert OUT_OF_SERVICE not in (await world.node())["spec"].get("taints", [])
    assert world.writes == 0


NO_PROOFS = {
    "S2 says on": off_proof(state=PowerState.ON),
    "S9 another device": off_proof(endpoints=("ipmi://10.0.0.8:623",)),
    "S8 nobody's word": word(who=" "),
    "S7 nothing at all": OffProof(commanded_at=None),
}


class TestProof:
    """Each act asks `proof_stands`, whose table is in `tests/policy/episode/test_proofs.py`."""

    @pytest.mark.parametrize(
        "proof",
        [
            off_proof(),
            word(),
            replace(off_proof(state=PowerState.UNKNOWN), acknowledgement=Acknowledgement(who="ada", why="unplugged", at=NOW)),
        ],
        ids=["S2 off was read after the command", "S8 a person says who and why", "S8 for a device that can't be read any more"],
    )
    async def test_this_is_proof(self, off: World, proof: OffProof) -> None:
        for consequence in CONSEQUENCES:
            await consequence(off.freeing, await off.free(proof=proof))
        assert (await off.pods(), await off.has_node()) == ([], False)

    @pytest.mark.parametrize("proof", NO_PROOFS.values(), ids=NO_PROOFS)
    async def test_anything_less_is_none(self, off: World, proof: OffProof) -> None:
        await assert_none(off, await off.free(proof=proof), ErrorType.NOT_PROVEN, NODE)

    async def test_one_of_two_power_supplies_is_not_enough(self, off: World) -> None:
        """S4."""
        target = await off.pinned()
        target = replace(target, pinned=replace(target.pinned, levels=((SECOND, ENDPOINT),)))
        await assert_none(off, await off.free(target), ErrorType.NOT_PROVEN)
        both = await off.free(target, proof=off_proof(endpoints=(SECOND, ENDPOINT)))
        assert (await off.freeing.delete_workload(both)).deleted_pods == 1


async def _no_devices(off: World) -> FreeRequest:
    target = await off.pinned()
    return await off.free(replace(target, pinned=replace(target.pinned, levels=())), proof=off_proof(endpoints=()))


async def _too_late(off: World) -> FreeRequest:
    request = await off.free(not_after=NOW)
    off.now += timedelta(seconds=1)
    return request


async def _a_twin_registers(off: World) -> None:
    await off.add_node("node-8", ready="True")
    await off.change_node({"status": {"nodeInfo": {"bootID": "boot-1"}}}, subresource="status", name="node-8")


async def _another_is_fenced_by_its_device(off: World) -> None:
    await off.add_node("node-8", ready="True")
    await off.install_kinds()
    await off.add_template()
    await off.configure("node-8", "10.0.0.7", driver="redfish")


async def _recreated(off: World) -> FreeRequest:
    request = await off.free()
    await off.recreate_node()
    await off.mark_as_ours()
    return request


def after(change: Callable[[World], Awaitable[Any]]) -> Callable[[World], Awaitable[FreeRequest]]:
    """What is asked for as the node was, and done as it is then."""

    async def asked(off: World) -> FreeRequest:
        request = await off.free()
        await change(off)
        return request

    return asked


def refusing(path: str) -> Callable[[World], Awaitable[FreeRequest]]:
    async def change(off: World) -> None:
        off.server.faults.add(Fault(accident=Accident.REFUSE, method="GET", path=path, user_agent="nodewarden/"))

    return after(change)


MARK_OF_ANOTHER = replace(our_mark(), incident="incident-2")
GUARDS = {
    "S7 a target without devices is never proven off": (_no_devices, ErrorType.NOT_PROVEN, NODE),
    "S2 S20 the reading just before is what bounds it": (_too_late, ErrorType.EXPIRED, ""),
    "S9 a node recreated under the name": (_recreated, ErrorType.TARGET_CHANGED, ""),
    "S6 which boot it is on is not known": (after(lambda w: w.set_ready("Unknown", boot_id="")), ErrorType.NOT_PROVEN, "id ''"),
    "S6 a new boot id": (after(lambda w: w.set_ready("Unknown", boot_id="boot-2")), ErrorType.NOT_PROVEN, "boot-2"),
    "S1 a node that says Ready, whatever the device said": (after(lambda w: w.set_ready("True")), ErrorType.NOT_PROVEN, "Ready"),
    "S13 an activity that outlived its episode": (after(lambda w: w.put_mark(MARK_OF_ANOTHER)), ErrorType.VETOED, "incident-2"),
    "a mark that was removed": (
        after(lambda w: w.change_node({"metadata": {"annotations": {"nodewarden.io/episode": None}}})),
        ErrorType.VETOED,
        "no episode",
    ),
    "S3 S20 a node that cannot be read": (refusing(f"/nodes/{NODE}$"), ErrorType.UNREACHABLE, ""),
    "S39 another node says that it is that machine": (
        after(_a_twin_registers),
        ErrorType.NOT_LICENSED,
        "the same boot id boot-1 as node-8",
    ),
    "S39 its device is another node's as well, by another driver": (
        after(_another_is_fenced_by_its_device),
        ErrorType.NOT_LICENSED,
        f"{ENDPOINT} is configured as the device of Node/{NODE} and of Node/node-8",
    ),
    "S38 another's cluster Lease": (after(lambda w: w.hold_cluster_lease("another")), ErrorType.NOT_LICENSED, "another"),
    "S38 a cluster Lease that nobody renews": (
        after(lambda w: w.hold_cluster_lease(renewed=NOW - timedelta(minutes=5))),
        ErrorType.NOT_LICENSED,
        "300 s ago",
    ),
    "S38 a cluster Lease that cannot be read": (refusing("kube-system/leases/"), ErrorType.UNREACHABLE, ""),
}
"""A Lease that is not held is no veto, which would end the episode: it is held again a moment later."""


@pytest.mark.parametrize("guard", GUARDS)
async def test_each_guard_holds_alone(off: World, guard: str) -> None:
    asked, kind, words = GUARDS[guard]
    await assert_none(off, await asked(off), kind, words)


async def test_nothing_on_the_node_this_worker_runs_on(off: World) -> None:
    """S16: that we run proves that it is not off."""
    off.freeing = ClusterFreeing(
        ServedCluster("prod", off.connection, own_node=NODE, clock=off.clock), off.target.last_look, LICENCES
    )
    await assert_none(off, await off.free(), ErrorType.OWN_NODE)


Saying = Callable[[World], Awaitable[Any]]


@pytest.fixture
async def alone(world: World) -> World:
    """A marked node that is proven off."""
    await world.hold_cluster_lease()
    await world.mark_as_ours(cordoned=True)
    return world


def on_the_node(**metadata: dict[str, str]) -> Saying:
    return lambda world: world.change_node({"metadata": metadata})


def _leased(world: World) -> Awaitable[Any]:
    return world.hold_node_lease("node-maintenance")


PRESERVED, HELD = (on_the_node(annotations=word) for word in ({PRESERVE_ANNOTATION: "now"}, {HOLD_ANNOTATION: "until monday"}))


async def _without_permit(world: World) -> None:
    world.permits.answer = (False, "nobody has it")


async def _unread(world: World) -> None:
    world.server.faults.add(Fault(accident=Accident.REFUSE, path="medik8s-leases/"))


def meanwhile(say: Saying) -> Saying:
    """Between our look and our delete."""

    async def change(world: World) -> None:
        world.connection.before_writes.append(lambda: say(world))

    return change


@pytest.mark.parametrize(
    ("say", "kind", "words"),
    [
        (PRESERVED, ErrorType.VETOED, PRESERVE_ANNOTATION),
        (_leased, ErrorType.VETOED, "node-maintenance"),
        (HELD, ErrorType.NOT_LICENSED, "until monday"),
        (_without_permit, ErrorType.NOT_LICENSED, "nobody has it"),
        (_unread, ErrorType.NOT_LICENSED, "the node's lease could not be read"),
        (meanwhile(PRESERVED), ErrorType.VETOED, PRESERVE_ANNOTATION),
        (meanwhile(lambda world: world.recreate_node()), ErrorType.TARGET_CHANGED, NODE),
    ],
    ids=[
        "S21 its annotations go with it, the one that preserves it among them",
        "S20 in maintenance",
        "S20 a hold, which is waited for",
        "S20 a permit that was lost with its scanner",
        "S3 nobody knows whether somebody services the machine",
        "S27 preserved between our look and our delete",
        "S9 a namesake that registers between our look and our delete",
    ],
)
async def test_the_node_stays(alone: World, say: Saying, kind: ErrorType, words: str) -> None:
    """Look and delete are one."""
    request = await alone.free()
    await say(alone)
    with refused(kind, words):
        await alone.freeing.delete_node(request)
    assert await alone.has_node()


async def test_a_node_that_only_changed_meanwhile_is_looked_at_again_and_deleted(alone: World) -> None:
    alone.connection.before_writes.append(lambda: alone.change_node({"metadata": {"labels": {"team": "a"}}}))
    assert (await alone.freeing.delete_node(await alone.free())).changed
    assert not await alone.has_node()


async def test_a_node_that_is_gone_is_deleted(alone: World) -> None:
    request = await alone.free()
    await alone.delete_node()
    assert not (await alone.freeing.delete_node(request)).changed


async def test_a_hold_keeps_everything_as_it_is(alone: World) -> None:
    """S20, S44: a person's "not now", said on the Node, is heard after off too, and only waited for."""
    await alone.add_pod("db-0")
    await alone.change_node({"metadata": {"annotations": {HOLD_ANNOTATION: ""}}})
    for consequence in (alone.freeing.delete_workload, alone.freeing.taint_out_of_service):
        with refused(ErrorType.NOT_LICENSED, HOLD_ANNOTATION):
            await consequence(await alone.free())
    assert await alone.pods() == ["db-0"]


async def test_a_node_whose_mark_tells_of_paths_that_are_cut_is_not_deleted(alone: World) -> None:
    """S35: nothing else tells whoever comes next that the machine has no way to its storage."""
    await alone.mark_as_ours(paths=("fence_brocade://switch-1/2",))
    with refused(ErrorType.INVALID_CONFIG, "fence_brocade://switch-1/2"):
        await alone.freeing.delete_node(await alone.free())
    assert await alone.has_node()


async def test_a_node_is_deleted_after_a_whole_last_look_only(alone: World) -> None:
    """S14, S20: it takes more than the workloads of a machine that is off, for which no permit is asked."""
    alone.permits.answer = False, "the scanner has granted none"
    assert (await alone.freeing.delete_workload(await alone.free())).left.pods == 0
    with refused(ErrorType.NOT_LICENSED, "the scanner has granted none"):
        await alone.freeing.delete_node(await alone.free())
    assert await alone.has_node()
