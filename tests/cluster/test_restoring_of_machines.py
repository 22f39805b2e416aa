"""A machine that is preserved on its Machine alone is neither switched on nor uncordoned by us (S21).

The Node's own value beats it, and a Machine that can't be read may say anything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from activities.cluster.acts.isolation import ClusterIsolation
from activities.contracts.target import LookResult, LookVerdict
from activities.errors import ErrorType
from policy.episode.needs import Need, NeedKind
from policy.objects.nodes import PRESERVE_ANNOTATION
from simulator.api.faults import Accident, Fault
from tests.cluster.acts.world import CLUSTER, World, empty_world, refused
from tests.cluster.machines import OF_CLUSTER_API, SKIP, System
from tests.cluster.management import management_cluster
from tests.cluster.test_looks_of_machines import MACHINE, NODE, both_versions, every_system, licensed, need_of

pytestmark = pytest.mark.timeout(10)

kinds = pytest.mark.parametrize("kind", [NeedKind.CHECK, NeedKind.PERSON])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The sick node; its Machine comes with `preserved`."""
    async with empty_world() as opened:
        yield opened


async def preserved(world: World, system: System, *, said_by_the_node: bool = True) -> World:
    """Off, cordoned and marked by us; then somebody annotates the Machine."""
    await licensed(world, system, said_by_the_node=said_by_the_node)
    await world.change_node({"spec": {"unschedulable": True}})
    await world.mark_as_ours(cordoned=True)
    await system.annotate(world.others, "machines", MACHINE, {PRESERVE_ANNOTATION: "now"})
    return world


async def before_on(world: World, system: System, kind: NeedKind) -> LookResult:
    need = need_of(system) if kind is NeedKind.CHECK else Need(kind=kind, reason="asked by ada")
    return await world.target.last_look(await world.look(need=need, destructive=False, need_matters=False))


class TestPowerOn:
    @every_system
    @kinds
    async def test_it_stays_off(self, system: System, kind: NeedKind, world: World) -> None:
        await preserved(world, system)
        result = await before_on(world, system, kind)
        assert result.verdict is LookVerdict.VETOED
        assert f"{PRESERVE_ANNOTATION}=now on Machine {MACHINE}" in result.reason
        await world.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: "false"}}})
        assert (await before_on(world, system, kind)).verdict is LookVerdict.GO

    @every_system
    async def test_a_machine_that_only_refers_to_the_node_is_found_by_its_check(self, system: System, world: World) -> None:
        await preserved(world, system, said_by_the_node=False)
        assert (await before_on(world, system, NeedKind.CHECK)).verdict is LookVerdict.VETOED

    @every_system
    @kinds
    async def test_a_machine_that_cannot_be_read_is_waited_for(self, system: System, kind: NeedKind, world: World) -> None:
        """S21 goes before S17."""
        await licensed(world, system)
        await world.mark_as_ours(cordoned=True)
        world.server.faults.add(Fault(accident=Accident.REFUSE, path="/machines"))
        result = await before_on(world, system, kind)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert "its Machine could not be read" in result.reason

    @both_versions
    async def test_what_keeps_a_machine_out_of_remediation_does_not_keep_it_down(self, system: System, world: World) -> None:
        """S17."""
        await licensed(world, system)
        await world.mark_as_ours(cordoned=True)
        await system.annotate(world.others, "machines", MACHINE, {SKIP: ""})
        assert (await before_on(world, system, NeedKind.PERSON)).verdict is LookVerdict.GO


class TestUncordon:
    @every_system
    async def test_it_stays_cordoned_and_our_mark_goes(self, system: System, world: World) -> None:
        await preserved(world, system)
        result = await world.isolation.mark_schedulable(await world.restore())
        assert f"left cordoned: the annotation {PRESERVE_ANNOTATION}=now on Machine {MACHINE}" in result.detail
        assert (await world.node())["spec"]["unschedulable"] is True
        assert await world.mark() is None

    @every_system
    async def test_the_node_s_own_value_beats_it(self, system: System, world: World) -> None:
        await preserved(world, system)
        await world.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: "false"}}})
        await world.isolation.mark_schedulable(await world.restore())
        assert "unschedulable" not in (await world.node())["spec"]

    @every_system
    async def test_a_machine_that_cannot_be_read_is_waited_for(self, system: System, world: World) -> None:
        """S21 goes before S17: it is asked again until it can be."""
        await licensed(world, system)
        await world.change_node({"spec": {"unschedulable": True}})
        await world.mark_as_ours(cordoned=True)
        world.server.faults.add(Fault(accident=Accident.REFUSE, path="/machines", count=1))
        with refused(ErrorType.UNREACHABLE):
            await world.isolation.mark_schedulable(await world.restore())
        assert (await world.node())["spec"]["unschedulable"] is True
        await world.isolation.mark_schedulable(await world.restore())
        assert "unschedulable" not in (await world.node())["spec"]

    @every_system
    async def test_where_no_cordon_is_ours_no_machine_is_needed(self, system: System, world: World) -> None:
        """S17."""
        await licensed(world, system)
        await world.mark_as_ours()
        world.server.faults.add(Fault(accident=Accident.REFUSE, path="/machines"))
        assert (await world.isolation.mark_schedulable(await world.restore())).changed
        assert await world.mark() is None

    async def test_cluster_api_s_machines_are_read_where_they_are(self, world: World) -> None:
        system = OF_CLUSTER_API[0]
        async with management_cluster() as (_, manager, machines):
            await system.install(manager)
            await system.add_cluster(manager)
            await system.add_machine(manager, MACHINE, node=NODE)
            await system.annotate(manager, "machines", MACHINE, {PRESERVE_ANNOTATION: "now"})
            await world.add_node(annotations=system.ties(NODE), unschedulable=True)
            await world.mark_as_ours(cordoned=True)
            isolation = ClusterIsolation(CLUSTER, world.connection, world.looks, machines=machines, clock=world.clock)
            await isolation.mark_schedulable(await world.restore())
            assert (await world.node())["spec"]["unschedulable"] is True
