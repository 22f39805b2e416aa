"""The mark: an episode's first act, written look-and-write, and adopted where a predecessor left one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from activities.cluster.objects.marks import spelled
from policy.objects.marks import Added
from policy.objects.nodes import Taint
from tests.cluster.acts.world import INCIDENT, WORKFLOW, World, our_mark


async def test_the_mark_says_who_holds_the_node_since_when(world: World) -> None:
    result = await world.target.mark(await world.act())
    mark = await world.mark()
    assert result.changed
    assert mark is not None
    assert (mark.incident, mark.kind, mark.workflow_id, mark.run_id) == (INCIDENT, "Fencing", WORKFLOW, "run-1")
    assert mark.since == "2026-11-21T12:00:00Z"
    assert not mark.cordoned
    assert not mark.out_of_service


async def test_a_new_run_of_the_same_episode_is_noted_and_keeps_the_rest(world: World) -> None:
    await world.mark_as_ours(cordoned=True)
    await world.target.mark(await world.act(await world.pinned(run_id="run-2")))
    assert await world.mark() == replace(our_mark(cordoned=True), run_id="run-2")


async def test_the_mark_of_an_episode_that_ended_is_adopted_with_what_it_added(world: World) -> None:
    """S35: our workflow id is its id too, so it can't be open. Whoever marks the node hears what was added before, also by a
    write whose answer was lost; the mark that tells of it may be removed later."""
    added = {"taints": ("example.com/sick:NoSchedule",), "paths": ("snmp://10.0.0.9:1",)}
    await world.put_mark(replace(our_mark(cordoned=True, out_of_service=True), incident="incident-0", **added))
    result = await world.target.mark(await world.act())
    mark = await world.mark()
    assert "incident-0" in result.detail
    assert "taint example.com/sick:NoSchedule" in result.detail
    assert result.added == Added(cordoned=True, **added)
    assert mark is not None
    assert (mark.incident, mark.cordoned, mark.out_of_service) == (INCIDENT, True, True)
    assert (mark.taints, mark.paths) == (added["taints"], added["paths"])


@pytest.mark.parametrize("cordoned", [True, False])
async def test_a_mark_that_was_removed_by_hand_says_again_what_we_have_added_and_is_still_there(
    empty: World, cordoned: bool
) -> None:
    """S28, S35: what somebody has taken away meanwhile is not ours to take away again."""
    ours, gone = Taint(key="example.com/sick", effect="NoSchedule"), Taint(key="example.com/gone", effect="NoSchedule")
    await empty.add_node(unschedulable=cordoned, taints=({"key": ours.key, "effect": ours.effect},))
    await empty.target.mark(
        await empty.act(added=Added(cordoned=True, taints=(spelled(ours), spelled(gone)), paths=("snmp://10.0.0.9:1",)))
    )
    mark = await empty.mark()
    assert mark is not None
    assert (mark.cordoned, mark.taints, mark.paths) == (cordoned, ("example.com/sick:NoSchedule",), ("snmp://10.0.0.9:1",))


async def test_a_cordon_that_is_there_already_is_told_to_be_ours(world: World) -> None:
    """S33: its answer was lost, and it is asked for again."""
    await world.target.mark(await world.act())
    await world.isolation.mark_unschedulable(await world.cordon())
    again = await world.isolation.mark_unschedulable(await world.cordon())
    assert (again.changed, again.added) == (False, Added(cordoned=True))
