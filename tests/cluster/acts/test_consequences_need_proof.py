"""No consequence without its proof, on the wrong node, out of time or without licence: each guard, violated alone (S1)."""

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
from policy.fence.power import PowerState
from simulator.api.faults import Accident, Fault
from tests.cluster.acts.world import ENDPOINT, NODE, NOW, OUT_OF_SERVICE, World, off_proof, our_mark, refused, word

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
    async def test_off_read_from_every_device_after_the_command_is_proof(self, off: World, consequence: Consequence) -> None:
        """S2."""
        await consequence(off.freeing, await off.free())
        await assert_done(off)

    async def test_a_persons_word_is_proof_when_it_says_who_and_why(self, off: World, consequence: Consequence) -> None:
        """S8."""
        await consequence(off.freeing, await off.free(proof=word()))
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

    async def test_a_target_without_devices_is_never_proven_off(self, off: World, consequence: Consequence) -> None:
        """S7."""
        target = await off.pinned()
        target = replace(target, pinned=replace(target.pinned, levels=()))
        with refused(ErrorType.NOT_PROVEN):
            await consequence(off.freeing, await off.free(target, proof=off_proof(endpoints=())))
        await assert_untouched(off)

    async def test_a_word_beside_contradicting_readings_is_still_a_persons_word(
        self, off: World, consequence: Consequence
    ) -> None:
        """S8: the only substitute for S2, for a device that cannot be read any more."""
        proof = replace(off_proof(state=PowerState.UNKNOWN), acknowledgement=Acknowledgement(who="ada", why="unplugged", at=NOW))
        await consequence(off.freeing, await off.free(proof=proof))
        await assert_done(off)

    async def test_a_proof_whose_time_is_over_licenses_nothing(self, off: World, consequence: Consequence) -> None:
        """S2, S20: the reading just before is what bounds it."""
        request = await off.free(not_after=NOW)
        off.now += timedelta(seconds=1)
        with refused(ErrorType.EXPIRED):
            await consequence(off.freeing, request)
        await assert_untouched(off)


class TestTheLiveNode:
    async def test_a_node_recreated_under_the_name_is_not_freed(self, off: World, consequence: Consequence) -> None:
        """S9."""
        request = await off.free()
        await off.recreate_node()
        await off.mark_as_ours()
        with refused(ErrorType.TARGET_CHANGED):
            await consequence(off.freeing, request)
        await assert_untouched(off)

    async def test_a_node_that_does_not_say_which_boot_it_is_on_is_not_freed(self, off: World, consequence: Consequence) -> None:
        """S6: that it is still the one that was fenced is not known."""
        request = await off.free()
        await off.set_ready("Unknown", boot_id="")
        with refused(ErrorType.NOT_PROVEN, "boot id ''"):
            await consequence(off.freeing, request)
        await assert_untouched(off)

    async def test_a_new_boot_id_ends_the_proof(self, off: World, consequence: Consequence) -> None:
        """S6."""
        request = await off.free()
        await off.set_ready("Unknown", boot_id="boot-2")
        with refused(ErrorType.NOT_PROVEN, "boot-2"):
            await consequence(off.freeing, request)
        await assert_untouched(off)

    async def test_a_node_that_says_ready_is_not_off(self, off: World, consequence: Consequence) -> None:
        """S1: whatever the device said, it may be another machine's."""
        request = await off.free()
        await off.set_ready("True")
        with refused(ErrorType.NOT_PROVEN, "Ready"):
            await consequence(off.freeing, request)
        await assert_untouched(off)

    async def test_a_node_that_another_episode_holds_is_not_freed(self, off: World, consequence: Consequence) -> None:
        """S13: an activity that outlived its episode."""
        await off.put_mark(replace(our_mark(), incident="incident-2"))
        with refused(ErrorType.VETOED, "incident-2"):
            await consequence(off.freeing, await off.free())
        await assert_untouched(off)

    async def test_a_node_whose_mark_was_removed_is_not_freed(self, off: World, consequence: Consequence) -> None:
        await off.change_node({"metadata": {"annotations": {"nodewarden.io/episode": None}}})
        with refused(ErrorType.VETOED, "nobody"):
            await consequence(off.freeing, await off.free())
        await assert_untouched(off)

    async def test_a_node_that_cannot_be_read_is_not_freed(self, off: World, consequence: Consequence) -> None:
        """S3, S20."""
        request = await off.free()
        off.server.faults.add(Fault(accident=Accident.REFUSE, method="GET", path=f"/nodes/{NODE}$", count=1))
        with refused(ErrorType.UNREACHABLE):
            await consequence(off.freeing, request)
        await assert_untouched(off)


class TestLicence:
    """S38, S16. A Lease that is not held is no veto, which would end the episode: it is held again a moment later."""

    async def test_nothing_without_the_cluster_lease(self, off: World, consequence: Consequence) -> None:
        await off.hold_cluster_lease("temporal.other:7233/default")
        with refused(ErrorType.NOT_LICENSED, "temporal.other"):
            await consequence(off.freeing, await off.free())
        await assert_untouched(off)

    async def test_nothing_with_a_cluster_lease_that_nobody_renews(self, off: World, consequence: Consequence) -> None:
        await off.hold_cluster_lease(renewed=NOW - timedelta(minutes=5), seconds=30)
        with refused(ErrorType.NOT_LICENSED, "300 s ago"):
            await consequence(off.freeing, await off.free())
        await assert_untouched(off)

    async def test_nothing_when_the_cluster_lease_cannot_be_read(self, off: World, consequence: Consequence) -> None:
        request = await off.free()
        off.server.faults.add(Fault(accident=Accident.REFUSE, path="kube-system/leases/"))
        with refused(ErrorType.UNREACHABLE):
            await consequence(off.freeing, request)
        await assert_untouched(off)

    async def test_nothing_on_the_node_this_worker_runs_on(self, off: World, consequence: Consequence) -> None:
        """S16: that we run proves that it is not off."""
        here = ClusterFreeing("prod", off.connection, off.target.last_look, own_node=NODE, clock=off.clock)
        with refused(ErrorType.OWN_NODE):
            await consequence(here, await off.free())
        await assert_untouched(off)

    async def test_nothing_in_another_cluster(self, off: World, consequence: Consequence) -> None:
        """S9."""
        with refused(ErrorType.INVALID_CONFIG, "task queues"):
            await consequence(off.freeing, await off.free(await off.pinned(cluster="other")))
        await assert_untouched(off)
