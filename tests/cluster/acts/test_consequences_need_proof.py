"""No consequence without its proof, on the wrong node, out of time or without licence: each guard, violated alone (S1).

The Node itself is deleted only after a whole last look, taken in the activity that deletes it (S20, S21)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.acts.freeing import ClusterFreeing
from activities.contracts.target import FreeRequest
from activities.errors import ErrorType
from policy.episode.messages import Acknowledgement, OffProof
from policy.episode.vetoes import HOLD_ANNOTATION
from policy.fence.power import PowerState
from policy.objects.nodes import PRESERVE_ANNOTATION
from simulator.api.control.faults import Accident, Fault
from tests.cluster.acts.world import ENDPOINT, NODE, NOW, OUT_OF_SERVICE, World, off_proof, our_mark, refused, word
from tests.licensing import LICENCES

SECOND = "ipmi://10.0.1.7:623"

Consequence = Callable[[ClusterFreeing, FreeRequest], Awaitable[Any]]


@pytest.fixture(params=["taint_out_of_service", "delete_workload", "delete_node"])
def consequence(request: pytest.FixtureRequest) -> Consequence:
    """Every guard holds for each consequence."""
    act: Consequence = getattr(ClusterFreeing, request.param)
    return act


@pytest.fixture
async def off(world: World) -> World:
    """A marked node that is proven off, with a pod and a volume bound to it."""
    await world.hold_cluster_lease()
    await world.mark_as_ours(cordoned=True)
    await world.add_volume("data")
    await world.add_pod("db-0", claims=("data",))
    return world


async def assert_untouched(world: World) -> None:
    assert await world.pods() == ["db-0"]
    assert await world.attachments() == ["va-data"]
    assert OUT_OF_SERVICE not in (await world.node())["spec"].get("taints", [])
    assert world.writes == 0


async def assert_done(world: World) -> None:
    if not await world.has_node():
        return
    tainted = OUT_OF_SERVICE in (await world.node())["spec"]["taints"]
    assert tainted or await world.pods() == []


class TestProof:
    @pytest.mark.parametrize(
        "proof",
        [
            off_proof(),
            word(),
            replace(off_proof(state=PowerState.UNKNOWN), acknowledgement=Acknowledgement(who="ada", why="unplugged", at=NOW)),
        ],
        ids=["S2 off was read after the command", "S8 a person says who and why", "S8 for a device that can't be read any more"],
    )
    async def test_this_is_proof(self, off: World, consequence: Consequence, proof: OffProof) -> None:
        await consequence(off.freeing, await off.free(proof=proof))
        await assert_done(off)

    @pytest.mark.parametrize(
        "proof",
        [
            off_proof(state=PowerState.ON),
            off_proof(state=PowerState.UNKNOWN),
            off_proof(endpoints=()),
            off_proof(endpoints=("ipmi://10.0.0.8:623",)),
            off_proof(commanded_at=None),
            off_proof(commanded_at=NOW, read_at=NOW - timedelta(seconds=1)),
            off_proof(commanded_at=NOW, read_at=NOW),
            word(who=" "),
            word(why=""),
            OffProof(commanded_at=None),
        ],
        ids=[
            "S2 says on",
            "S3 unknown is never off",
            "S3 nothing read",
            "S9 another device",
            "S2 no command ended",
            "S2 read before the command ended",
            "S2 read as the command ended",
            "S8 nobody's word",
            "S8 no reason",
            "S7 nothing at all",
        ],
    )
    async def test_anything_less_is_none(self, off: World, consequence: Consequence, proof: OffProof) -> None:
        with refused(ErrorType.NOT_PROVEN, NODE):
            await consequence(off.freeing, await off.free(proof=proof))
        await assert_untouched(off)

    async def test_one_of_two_power_supplies_is_not_enough(self, off: World, consequence: Consequence) -> None:
        """S4."""
        target = await off.pinned()
        target = replace(target, pinned=replace(target.pinned, levels=((ENDPOINT, SECOND),)))
        with refused(ErrorType.NOT_PROVEN):
            await consequence(off.freeing, await off.free(target))
        await assert_untouched(off)
        await consequence(off.freeing, await off.free(target, proof=off_proof(endpoints=(SECOND, ENDPOINT))))
        await assert_done(off)


async def _no_devices(off: World) -> FreeRequest:
    target = await off.pinned()
    return await off.free(replace(target, pinned=replace(target.pinned, levels=())), proof=off_proof(endpoints=()))


async def _too_late(off: World) -> FreeRequest:
    request = await off.free(not_after=NOW)
    off.now += timedelta(seconds=1)
    return request


async def _another_cluster(off: World) -> FreeRequest:
    return await off.free(await off.pinned(cluster="other"))


async def _a_twin_registers(off: World) -> None:
    await off.add_node("node-8", ready="True")
    await off.change_node({"status": {"nodeInfo": {"bootID": "boot-1"}}}, subresource="status", name="node-8")


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
        off.server.faults.add(Fault(accident=Accident.REFUSE, method="GET", path=path, count=1))

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
        "nobody",
    ),
    "S3 S20 a node that cannot be read": (refusing(f"/nodes/{NODE}$"), ErrorType.UNREACHABLE, ""),
    "S39 another node says that it is that machine": (
        after(_a_twin_registers),
        ErrorType.NOT_LICENSED,
        "the same boot id boot-1 as node-8",
    ),
    "S38 another's cluster Lease": (after(lambda w: w.hold_cluster_lease("another")), ErrorType.NOT_LICENSED, "another"),
    "S38 a cluster Lease that nobody renews": (
        after(lambda w: w.hold_cluster_lease(renewed=NOW - timedelta(minutes=5))),
        ErrorType.NOT_LICENSED,
        "300 s ago",
    ),
    "S38 a cluster Lease that cannot be read": (refusing("kube-system/leases/"), ErrorType.UNREACHABLE, ""),
    "S9 another cluster": (_another_cluster, ErrorType.INVALID_CONFIG, "task queues"),
}
"""A Lease that is not held is no veto, which would end the episode: it is held again a moment later."""


@pytest.mark.parametrize("guard", GUARDS)
async def test_each_guard_holds_alone(off: World, consequence: Consequence, guard: str) -> None:
    asked, kind, words = GUARDS[guard]
    request = await asked(off)
    with refused(kind, words):
        await consequence(off.freeing, request)
    await assert_untouched(off)


async def test_nothing_on_the_node_this_worker_runs_on(off: World, consequence: Consequence) -> None:
    """S16: that we run proves that it is not off."""
    here = ClusterFreeing("prod", off.connection, off.target.last_look, LICENCES, own_node=NODE, clock=off.clock)
    with refused(ErrorType.OWN_NODE):
        await consequence(here, await off.free())
    await assert_untouched(off)


Saying = Callable[[World], Awaitable[Any]]


@pytest.fixture
async def off_alone(world: World) -> World:
    """A marked node that is proven off_alone."""
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
async def test_the_node_stays(off_alone: World, say: Saying, kind: ErrorType, words: str) -> None:
    """Look and delete are one."""
    request = await off_alone.free()
    await say(off_alone)
    with refused(kind, words):
        await off_alone.freeing.delete_node(request)
    assert await off_alone.has_node()


async def test_a_node_that_only_changed_meanwhile_is_looked_at_again_and_deleted(off_alone: World) -> None:
    off_alone.connection.before_writes.append(lambda: off_alone.change_node({"metadata": {"labels": {"team": "a"}}}))
    assert (await off_alone.freeing.delete_node(await off_alone.free())).changed
    assert not await off_alone.has_node()


async def test_a_machine_that_only_its_check_knows_of_does_not_keep_the_node(off_alone: World) -> None:
    """S9: the pin found it by the health check; a Node that names no Machine is no other target for that."""
    request = await off_alone.free()
    pinned = replace(request.target.pinned, machine_uids=("of-a-machine-that-names-this-node",))
    assert (await off_alone.freeing.delete_node(replace(request, target=replace(request.target, pinned=pinned)))).changed


async def test_a_node_that_is_gone_is_deleted(off_alone: World) -> None:
    request = await off_alone.free()
    await off_alone.delete_node()
    assert not (await off_alone.freeing.delete_node(request)).changed


@pytest.mark.parametrize("say", [PRESERVED, _leased])
async def test_who_protects_the_machine_does_not_keep_its_workloads_down(off_alone: World, say: Saying) -> None:
    """docs/fencing.md: what runs elsewhere takes nothing from a machine that is off_alone."""
    await off_alone.add_pod("db-0")
    await say(off_alone)
    assert (await off_alone.freeing.delete_workload(await off_alone.free())).deleted_pods == 1
    assert (await off_alone.freeing.taint_out_of_service(await off_alone.free())).changed


async def test_a_hold_keeps_everything_as_it_is(off_alone: World) -> None:
    """S20, S44: a person's "not now", said on the Node, is heard after off_alone too, and only waited for."""
    await off_alone.add_pod("db-0")
    await off_alone.change_node({"metadata": {"annotations": {HOLD_ANNOTATION: ""}}})
    for consequence in (off_alone.freeing.delete_workload, off_alone.freeing.taint_out_of_service):
        with refused(ErrorType.NOT_LICENSED, HOLD_ANNOTATION):
            await consequence(await off_alone.free())
    assert await off_alone.pods() == ["db-0"]


async def test_the_lease_of_whoever_asked_for_it_is_no_veto(off_alone: World) -> None:
    """The look is that of the episode: its need says who has delegated it."""
    await off_alone.hold_node_lease("node-healthcheck")
    request = await off_alone.free()
    asked = replace(request.need, delegate="node-healthcheck")
    assert (await off_alone.freeing.delete_node(replace(request, need=asked))).changed
