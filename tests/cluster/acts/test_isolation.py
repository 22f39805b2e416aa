"""Cordon and its undoing: only what we added goes again, and what we added is known after any crash."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from activities.contracts.target import LookVerdict, PathRequest, TaintRequest
from policy.objects.nodes import MARK_ANNOTATION, PRESERVE_ANNOTATION, Taint
from policy.preservation.requests import KEEPING_WORDS
from tests.cluster.acts.world import OUT_OF_SERVICE, World, our_mark

PATH = "fence_brocade://switch-1/2"
CUSTOM_TAINT = {"key": "team.example/gpu", "value": "a100", "effect": "NoSchedule"}


def without_versions(node: dict[str, Any]) -> dict[str, Any]:
    """The node as people see it: everything but the version number that every write moves."""
    metadata = {key: value for key, value in node["metadata"].items() if key != "resourceVersion"}
    return {**node, "metadata": metadata}


class TestCordon:
    async def test_the_cordon_and_the_note_that_it_is_ours_are_one_write(self, world: World) -> None:
        """S28, S33: no crash can leave a cordon of unknown origin."""
        await world.target.mark(await world.act())
        world.server.requests.reset()
        result = await world.isolation.mark_unschedulable(await world.cordon())
        node, mark = await world.node(), await world.mark()
        assert result.changed
        assert node["spec"]["unschedulable"] is True
        assert mark is not None
        assert mark.cordoned
        assert world.writes == 1

    @pytest.mark.parametrize("verdict", [each for each in LookVerdict if each is not LookVerdict.GO])
    async def test_nothing_is_written_where_the_look_before_does_not_say_go(self, world: World, verdict: LookVerdict) -> None:
        """S20: and what was seen is answered."""
        await world.mark_as_ours()
        world.verdict = verdict
        world.server.requests.reset()
        taint = TaintRequest(look=await world.look(), taint=Taint(key="team.example/sick", effect="NoSchedule"))
        for result in (
            await world.isolation.mark_unschedulable(await world.cordon()),
            await world.isolation.taint(taint),
        ):
            assert result.look is not None
            assert (result.changed, result.look.verdict) == (False, verdict)
        assert world.writes == 0

    async def test_a_person_who_cordons_between_our_read_and_our_write_keeps_the_cordon(self, world: World) -> None:
        """S28."""
        await world.target.mark(await world.act())
        world.connection.before_writes.append(lambda: world.change_node({"spec": {"unschedulable": True}}))
        result = await world.isolation.mark_unschedulable(await world.cordon())
        mark = await world.mark()
        assert not result.changed
        assert mark is not None
        assert not mark.cordoned


class TestWayBack:
    async def test_everything_we_added_goes_in_one_write_and_the_rest_is_byte_equal(self, empty: World) -> None:
        """S28."""
        await empty.add_node(annotations={"team.example/note": "keep"}, taints=(CUSTOM_TAINT,))
        before = await empty.node()
        await empty.target.mark(await empty.act())
        await empty.isolation.mark_unschedulable(await empty.cordon())
        empty.server.requests.reset()
        result = await empty.isolation.mark_schedulable(await empty.restore())
        assert result.changed
        assert empty.writes == 1
        assert without_versions(await empty.node()) == without_versions(before)

    async def test_a_persons_cordon_stays_a_persons(self, empty: World) -> None:
        """S28."""
        await empty.add_node(unschedulable=True)
        await empty.target.mark(await empty.act())
        result = await empty.isolation.mark_unschedulable(await empty.cordon())
        assert (result.changed, "somebody else" in result.detail) == (False, True)
        mark = await empty.mark()
        assert mark is not None
        assert not mark.cordoned
        await empty.isolation.mark_schedulable(await empty.restore())
        node = await empty.node()
        assert node["spec"]["unschedulable"] is True
        assert MARK_ANNOTATION not in node["metadata"].get("annotations", {})

    async def test_an_adopted_cordon_is_ours_to_remove(self, world: World) -> None:
        """S35: left by an episode that was terminated."""
        await world.put_mark(replace(our_mark(cordoned=True), incident="incident-0"))
        await world.change_node({"spec": {"unschedulable": True}})
        await world.target.mark(await world.act())
        await world.isolation.mark_schedulable(await world.restore())
        assert "unschedulable" not in (await world.node())["spec"]

    @pytest.mark.parametrize("value", sorted(KEEPING_WORDS))
    async def test_a_preserved_node_stays_cordoned_and_only_mark_and_taint_go(self, empty: World, value: str) -> None:
        """S21."""
        await empty.add_node(annotations={PRESERVE_ANNOTATION: value}, unschedulable=True, taints=(CUSTOM_TAINT, OUT_OF_SERVICE))
        before = (await empty.node())["spec"]["taints"]
        await empty.mark_as_ours(cordoned=True, out_of_service=True)
        result = await empty.isolation.mark_schedulable(await empty.restore())
        node = await empty.node()
        assert "left cordoned: the annotation" in result.detail
        assert node["spec"]["unschedulable"] is True
        assert node["spec"]["taints"] == [taint for taint in before if taint != OUT_OF_SERVICE]
        assert node["metadata"]["annotations"] == {PRESERVE_ANNOTATION: value}
        assert not (await empty.isolation.mark_schedulable(await empty.restore())).changed

    async def test_our_mark_on_a_new_object_of_the_same_machine_is_removed(self, world: World) -> None:
        """S9: a Node restored from a backup is the same machine."""
        request = await world.restore()
        await world.recreate_node(unschedulable=True)
        await world.mark_as_ours(cordoned=True)
        assert (await world.isolation.mark_schedulable(request)).changed
        assert await world.mark() is None


class TestPaths:
    """Which paths are cut stands in our mark."""

    async def test_a_path_is_noted_once_and_taken_off_the_list_when_it_is_back(self, world: World) -> None:
        await world.mark_as_ours(cordoned=True)
        target = await world.pinned()
        assert (await world.isolation.note_path(PathRequest(target=target, endpoint=PATH, cut=True))).changed
        assert not (await world.isolation.note_path(PathRequest(target=target, endpoint=PATH, cut=True))).changed
        mark = await world.mark()
        assert mark is not None
        assert (mark.paths, mark.cordoned) == ((PATH,), True)
        await world.isolation.note_path(PathRequest(target=target, endpoint=PATH, cut=False))
        mark = await world.mark()
        assert mark is not None
        assert (mark.paths, mark.cordoned) == ((), True)


async def test_a_cordon_stays_where_the_configuration_wants_it(world: World) -> None:
    await world.mark_as_ours()
    await world.isolation.mark_unschedulable(await world.cordon())
    await world.isolation.mark_schedulable(await world.restore(keep_cordon=True))
    assert (await world.node())["spec"]["unschedulable"] is True
    assert await world.mark() is None


async def test_a_mark_that_tells_of_a_cut_path_outlives_its_episode_with_the_cordon(world: World) -> None:
    """S35: a successor must know of it, and nothing is scheduled onto a node without its storage."""
    await world.mark_as_ours()
    await world.isolation.mark_unschedulable(await world.cordon())
    await world.isolation.note_path(PathRequest(target=await world.pinned(), endpoint=PATH, cut=True))
    await world.isolation.mark_schedulable(await world.restore())
    mark = await world.mark()
    assert mark is not None
    assert mark.paths == (PATH,)
    assert (await world.node())["spec"]["unschedulable"] is True
