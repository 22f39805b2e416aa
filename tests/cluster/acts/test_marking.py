"""The mark: an episode's first act, written look-and-write, and adopted where a predecessor left one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from activities.cluster.objects.livenode import EDIT_ATTEMPTS
from activities.cluster.objects.marks import spelled
from activities.errors import ErrorType
from policy.objects.marks import Added
from policy.objects.nodes import Taint
from simulator.api.faults import Accident, Fault
from tests.cluster.acts.world import INCIDENT, NODE, WORKFLOW, World, our_mark, refused


async def test_the_mark_says_who_holds_the_node_since_when(world: World) -> None:
    result = await world.target.mark(await world.act())
    mark = await world.mark()
    assert result.changed
    assert mark is not None
    assert (mark.incident, mark.kind, mark.workflow_id, mark.run_id) == (INCIDENT, "Fencing", WORKFLOW, "run-1")
    assert mark.since == "2026-11-21T12:00:00Z"
    assert not mark.cordoned
    assert not mark.out_of_service


async def test_marking_twice_writes_once(world: World) -> None:
    """S33."""
    await world.target.mark(await world.act())
    world.now += timedelta(minutes=1)
    again = await world.target.mark(await world.act())
    assert not again.changed
    assert world.writes == 1


async def test_a_new_run_of_the_same_episode_is_noted_and_keeps_the_rest(world: World) -> None:
    await world.mark_as_ours(cordoned=True)
    await world.target.mark(await world.act(await world.pinned(run_id="run-2")))
    assert await world.mark() == replace(our_mark(cordoned=True), run_id="run-2")


async def test_the_annotations_of_others_stay_byte_for_byte(empty: World) -> None:
    """S28."""
    await empty.add_node(annotations={"team.example/note": "a/b~1", "nodewarden.io/hold": "false"})
    before = (await empty.node())["metadata"]["annotations"]
    await empty.target.mark(await empty.act())
    after = (await empty.node())["metadata"]["annotations"]
    assert {key: value for key, value in after.items() if key != "nodewarden.io/episode"} == before


async def test_the_mark_of_an_episode_that_ended_is_adopted_with_what_it_added(world: World) -> None:
    """S35: our workflow id is its id too, so it can't be open."""
    await world.put_mark(replace(our_mark(cordoned=True, out_of_service=True), incident="incident-0"))
    result = await world.target.mark(await world.act())
    mark = await world.mark()
    assert "incident-0" in result.detail
    assert mark is not None
    assert (mark.incident, mark.cordoned, mark.out_of_service) == (INCIDENT, True, True)


async def test_the_mark_of_another_workflow_id_is_respected(world: World) -> None:
    """S13: that episode may be open; the id we hold says nothing about it."""
    foreign = replace(our_mark(), incident="incident-0", workflow_id=f"episode/production/{NODE}")
    await world.put_mark(foreign)
    with refused(ErrorType.VETOED, "episode/production"):
        await world.target.mark(await world.act())
    assert await world.mark() == foreign


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


async def test_an_unreadable_mark_is_not_overwritten(world: World) -> None:
    await world.put_mark("{}")
    with refused(ErrorType.INVALID_CONFIG):
        await world.target.mark(await world.act())
    assert world.writes == 0


async def test_a_node_recreated_since_is_not_marked(world: World) -> None:
    """S9."""
    request = await world.act()
    await world.recreate_node()
    with refused(ErrorType.TARGET_CHANGED, "uid"):
        await world.target.mark(request)
    assert await world.mark() is None


async def test_a_node_recreated_between_our_read_and_our_write_is_not_marked(world: World) -> None:
    """S9: look and write are one."""
    request = await world.act()
    world.connection.before_writes.append(world.recreate_node)
    with refused(ErrorType.TARGET_CHANGED):
        await world.target.mark(request)
    assert await world.mark() is None


async def test_a_node_changed_between_our_read_and_our_write_is_read_again(world: World) -> None:
    request = await world.act()
    world.connection.before_writes.append(lambda: world.change_node({"metadata": {"annotations": {"other": "1"}}}))
    assert (await world.target.mark(request)).changed
    assert (await world.node())["metadata"]["annotations"]["other"] == "1"
    assert await world.mark() is not None


async def test_a_node_that_others_never_stop_changing_is_given_up(world: World) -> None:
    request = await world.act()
    numbers = iter(range(EDIT_ATTEMPTS))

    async def somebody_writes() -> None:
        await world.change_node({"metadata": {"annotations": {"other": str(next(numbers))}}})

    world.connection.before_writes.extend([somebody_writes] * EDIT_ATTEMPTS)
    with refused(ErrorType.TRANSIENT, "changed by others"):
        await world.target.mark(request)
    assert await world.mark() is None


async def test_a_lost_answer_is_ambiguous_and_the_next_call_finds_its_own_work(world: World) -> None:
    """S33, S34: not repeated blindly inside the activity."""
    request = await world.act()
    world.server.faults.add(Fault(accident=Accident.LOSE_ANSWER, method="PATCH", count=1))
    with refused(ErrorType.AMBIGUOUS):
        await world.target.mark(request)
    assert world.writes == 1
    assert not (await world.target.mark(request)).changed
    assert world.writes == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_missing_rights_are_said(world: World, status: int) -> None:
    request = await world.act()
    world.server.faults.add(Fault(accident=Accident.STATUS, method="PATCH", status=status))
    with refused(ErrorType.FORBIDDEN):
        await world.target.mark(request)


async def test_whoever_marks_the_node_hears_what_was_added_before(world: World) -> None:
    """S35: a predecessor's, or by a write whose answer was lost; the mark that tells of it may be removed later."""
    left = replace(
        our_mark(cordoned=True), incident="incident-0", taints=("example.com/sick:NoSchedule",), paths=("snmp://10.0.0.9:1",)
    )
    await world.put_mark(left)
    result = await world.target.mark(await world.act())
    assert result.added == Added(cordoned=True, taints=("example.com/sick:NoSchedule",), paths=("snmp://10.0.0.9:1",))


async def test_a_cordon_that_is_there_already_is_told_to_be_ours(world: World) -> None:
    """S33: its answer was lost, and it is asked for again."""
    await world.target.mark(await world.act())
    await world.isolation.mark_unschedulable(await world.cordon())
    again = await world.isolation.mark_unschedulable(await world.cordon())
    assert (again.changed, again.added) == (False, Added(cordoned=True))
