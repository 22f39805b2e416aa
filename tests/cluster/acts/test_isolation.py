"""What we add to a node, noted in our mark: cordon, taints, cut paths, that it is off; and the way back: only ours goes (S28)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.objects.marks import spelled
from activities.contracts.target import LookVerdict, OffNote, PathRequest, Publication, PublishRequest, TaintRequest
from activities.errors import ErrorType
from policy.objects.marks import Added
from policy.objects.nodes import MARK_ANNOTATION, PRESERVE_ANNOTATION, Taint
from tests.cluster.acts.world import INCIDENT, NOW, OUT_OF_SERVICE, World, our_mark, refused
from tests.licensing import LICENCES

pytestmark = pytest.mark.timeout(10)


async def test_the_mark_of_an_episode_that_ended_is_adopted_with_what_it_added(world: World) -> None:
    """S35: our workflow id is its id too, so it can't be open. Whoever marks the node hears what was added before, also by a
    write whose answer was lost; the mark that tells of it may be removed later."""
    added = {"taints": ("example.com/sick:NoSchedule",), "paths": ("snmp://10.0.0.9:1",)}
    sick = {"key": "example.com/sick", "effect": "NoSchedule"}
    await world.change_node({"spec": {"unschedulable": True, "taints": [sick]}})
    await world.put_mark(replace(our_mark(cordoned=True, out_of_service=True), incident="incident-0", **added))
    result = await world.target.mark(await world.act())
    mark = await world.mark()
    assert "incident-0" in result.detail
    assert "taint example.com/sick:NoSchedule" in result.detail
    assert result.added == Added(cordoned=True, out_of_service=True, **added)
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
    added = Added(cordoned=True, taints=(spelled(ours), spelled(gone)), paths=("snmp://10.0.0.9:1",))
    await empty.target.mark(await empty.act(added=LICENCES.sealed_added(await empty.pinned(), added)))
    mark = await empty.mark()
    assert mark is not None
    assert (mark.cordoned, mark.taints, mark.paths) == (cordoned, ("example.com/sick:NoSchedule",), ("snmp://10.0.0.9:1",))


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

    async def test_nothing_is_written_where_the_look_before_does_not_say_go(self, world: World) -> None:
        """S20: and what was seen is answered."""
        await world.mark_as_ours()
        world.verdict = LookVerdict.NEED_GONE
        world.server.requests.reset()
        taint = TaintRequest(look=await world.look(), taint=Taint(key="team.example/sick", effect="NoSchedule"))
        for result in (await world.isolation.mark_unschedulable(await world.cordon()), await world.isolation.taint(taint)):
            assert result.look is not None
            assert (result.changed, result.look.verdict) == (False, world.verdict)
        assert world.writes == 0


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
        assert (result.changed, "another owner" in result.detail) == (False, True)
        mark = await empty.mark()
        assert mark is not None
        assert not mark.cordoned
        await empty.isolation.mark_schedulable(await empty.restore())
        node = await empty.node()
        assert node["spec"]["unschedulable"] is True
        assert MARK_ANNOTATION not in node["metadata"].get("annotations", {})

    async def test_a_cordon_that_people_have_taken_away_and_set_again_is_theirs(self, empty: World) -> None:
        """S28, S35: the mark of a terminated episode told of its own cordon, which was gone when the node was adopted."""
        await empty.add_node(taints=(CUSTOM_TAINT,))
        gone = ("team.example/gpu=a100:NoSchedule", "example.com/gone:NoSchedule")
        await empty.put_mark(replace(our_mark(cordoned=True), incident="incident-0", taints=gone))
        assert (await empty.target.mark(await empty.act())).added == Added(taints=gone[:1])
        await empty.change_node({"spec": {"unschedulable": True}})
        result = await empty.isolation.mark_unschedulable(await empty.cordon())
        assert "another owner" in result.detail
        await empty.isolation.mark_schedulable(await empty.restore())
        assert (await empty.node())["spec"]["unschedulable"] is True

    async def test_so_it_is_within_one_episode(self, empty: World) -> None:
        """S28: whatever is noted on the node between the two notes as well that ours is gone."""
        await empty.add_node()
        await empty.target.mark(await empty.act())
        await empty.isolation.mark_unschedulable(await empty.cordon())
        await empty.change_node({"spec": {"unschedulable": None}})
        assert await note(empty, NOW)
        await empty.change_node({"spec": {"unschedulable": True}})
        await empty.isolation.mark_schedulable(await empty.restore())
        node = await empty.node()
        assert node["spec"]["unschedulable"] is True
        assert MARK_ANNOTATION not in node["metadata"].get("annotations", {})

    async def test_a_preserved_node_stays_cordoned_and_only_mark_and_taint_go(self, empty: World) -> None:
        """S21."""
        await empty.add_node(annotations={PRESERVE_ANNOTATION: "now"}, unschedulable=True, taints=(CUSTOM_TAINT, OUT_OF_SERVICE))
        before = (await empty.node())["spec"]["taints"]
        await empty.mark_as_ours(cordoned=True, out_of_service=True)
        result = await empty.isolation.mark_schedulable(await empty.restore())
        node = await empty.node()
        assert "left cordoned: the annotation" in result.detail
        assert node["spec"]["unschedulable"] is True
        assert node["spec"]["taints"] == [taint for taint in before if taint != OUT_OF_SERVICE]
        assert node["metadata"]["annotations"] == {PRESERVE_ANNOTATION: "now"}
        assert not (await empty.isolation.mark_schedulable(await empty.restore())).changed

    async def test_our_mark_on_a_new_object_of_the_same_machine_is_removed(self, world: World) -> None:
        """S9: a Node restored from a backup is the same machine."""
        request = await world.restore()
        await world.recreate_node(unschedulable=True)
        await world.mark_as_ours(cordoned=True)
        assert (await world.isolation.mark_schedulable(request)).changed
        assert await world.mark() is None


@pytest.mark.parametrize("now", ["changed", "gone"])
async def test_a_mark_that_is_not_ours_any_more_decides_nothing_of_what_is_taken_away(empty: World, now: str) -> None:
    """S28, S41: a kubelet writes annotations. What the episode has added goes, what it has not stays, and so does the annotation,
    for a person; without its label it can't be made ours again."""
    await empty.add_node(taints=(CUSTOM_TAINT,))
    before = await empty.node()
    await empty.target.mark(await empty.act())
    await empty.isolation.mark_unschedulable(await empty.cordon())
    result = await empty.isolation.taint(await taint_request(empty))
    assert result.added is not None
    forged = replace(our_mark(), taints=(spelled(Taint(**CUSTOM_TAINT)),)).to_json() if now == "changed" else None
    await empty.change_node({"metadata": {"annotations": {MARK_ANNOTATION: forged}}})
    for act in (empty.isolation.mark_unschedulable(await empty.cordon()), empty.isolation.taint(await taint_request(empty))):
        with refused(ErrorType.VETOED):  # nor is it written anew
            await act
    request = await empty.restore(added=result.added)
    assert "removed our cordon, our taint" in (await empty.isolation.mark_schedulable(request)).detail
    node = await empty.node()
    assert node["spec"] == before["spec"]
    assert node["metadata"]["labels"] == before["metadata"]["labels"]
    assert node["metadata"].get("annotations", {}).get(MARK_ANNOTATION) == forged
    await empty.change_node({"spec": {"unschedulable": True}})  # a person's, who came before an answer of ours that was lost
    assert not (await empty.isolation.mark_schedulable(request)).changed


async def test_a_cordon_stays_where_the_configuration_wants_it(world: World) -> None:
    await world.mark_as_ours()
    await world.isolation.mark_unschedulable(await world.cordon())
    await world.isolation.mark_schedulable(await world.restore(keep_cordon=True))
    assert (await world.node())["spec"]["unschedulable"] is True
    assert await world.mark() is None


async def test_a_mark_that_tells_of_a_cut_path_outlives_its_episode_with_the_cordon(world: World) -> None:
    """S35: a successor must know of it, and nothing is scheduled onto a node without its storage."""
    await world.mark_as_ours(out_of_service=True)
    await world.isolation.mark_unschedulable(await world.cordon())
    await world.isolation.note_path(PathRequest(target=await world.pinned(), endpoint=PATH, cut=True))
    await world.isolation.mark_schedulable(await world.restore())
    mark = await world.mark()
    assert mark is not None
    assert (mark.paths, mark.out_of_service) == ((PATH,), False)
    assert (await world.node())["spec"]["unschedulable"] is True


FENCED = Taint(key="nodewarden.io/fencing", value="yes", effect="NoSchedule")
AS_WRITTEN = {"key": FENCED.key, "value": FENCED.value, "effect": FENCED.effect}
THEIRS = {"key": "team.example/gpu", "value": "a100", "effect": "NoSchedule"}


async def taint_request(world: World, taint: Taint = FENCED, **fields: object) -> TaintRequest:
    return TaintRequest(look=await world.look(), taint=taint, **fields)  # type: ignore[arg-type]


async def taints(world: World) -> list[dict[str, str]]:
    """Without those that the node's state brings."""
    found = (await world.node())["spec"].get("taints") or []
    return [taint for taint in found if not taint["key"].startswith("node.kubernetes.io/not-ready")]


@pytest.fixture
async def ours(empty: World) -> World:
    await empty.add_node(taints=(THEIRS,))
    await empty.mark_as_ours()
    return empty


async def test_the_taint_and_the_note_that_it_is_ours_are_one_write_and_others_stay(ours: World) -> None:
    """S32, S33."""
    ours.server.requests.reset()
    assert (await ours.isolation.taint(await taint_request(ours))).changed
    mark = await ours.mark()
    assert await taints(ours) == [THEIRS, AS_WRITTEN]
    assert mark is not None
    assert mark.taints == ("nodewarden.io/fencing=yes:NoSchedule",)
    assert ours.writes == 1
    again = await ours.isolation.taint(await taint_request(ours))
    assert (again.changed, "by us" in again.detail, ours.writes) == (False, True, 1)


async def test_a_persons_taint_stays_a_persons(empty: World) -> None:
    """S28: the very same one, and one of that key and effect with another value."""
    for value in ("yes", "no"):
        await empty.add_node(taints=({**AS_WRITTEN, "value": value},))
        await empty.mark_as_ours()
        result = await empty.isolation.taint(await taint_request(empty))
        assert (result.changed, "another owner" in result.detail) == (False, True)
        await empty.isolation.mark_schedulable(await empty.restore())
        assert await taints(empty) == [{**AS_WRITTEN, "value": value}]
        await empty.delete_node()


async def test_the_way_back_takes_all_of_ours_in_one_write(empty: World) -> None:
    """S35: two taints of ours among others, whose places in the list move as they go."""
    other = {"key": "other.example/x", "value": "1", "effect": "NoExecute"}
    await empty.add_node(taints=(OUT_OF_SERVICE, THEIRS, AS_WRITTEN, other))
    await empty.put_mark(replace(our_mark(out_of_service=True), taints=("nodewarden.io/fencing=yes:NoSchedule",)))
    empty.server.requests.reset()
    result = await empty.isolation.mark_schedulable(await empty.restore())
    assert await taints(empty) == [THEIRS, other]
    assert await empty.mark() is None
    assert empty.writes == 1
    assert "our taint nodewarden.io/fencing=yes:NoSchedule" in result.detail


async def test_a_taint_that_deletes_pods_is_refused(ours: World) -> None:
    """S1, S36: NoExecute is a consequence."""
    with refused(ErrorType.INVALID_CONFIG, "NoExecute"):
        await ours.isolation.taint(await taint_request(ours, replace(FENCED, effect="NoExecute")))
    assert await taints(ours) == [THEIRS]


async def note(world: World, off_proven: datetime | None) -> bool:
    """Whether it changed anything."""
    writes = world.writes
    taint_request = PublishRequest(target=await world.pinned(), publication=Publication(off=OffNote(off_proven=off_proven)))
    await ActivityEnvironment().run(world.target.publish, taint_request)
    return world.writes > writes


class TestNoteOfOff:
    async def test_it_is_noted_and_taken_back(self, ours: World) -> None:
        """S6: with the power on it holds no longer."""
        assert await note(ours, NOW)
        mark = await ours.mark()
        assert mark is not None
        assert mark.off_proven == "2026-11-21T12:00:00Z"
        assert not await note(ours, NOW)
        assert await note(ours, None)
        mark = await ours.mark()
        assert mark is not None
        assert mark.off_proven == ""


async def test_what_an_earlier_episode_had_proven_is_not_said_of_ours(world: World) -> None:
    """S6, S36: whoever looks at the node, and DataAtRisk, would take it for off while it runs. What we have noted stays."""
    earlier = replace(our_mark(cordoned=True), incident="incident-0", off_proven="2026-11-21T11:00:00Z")
    await world.put_mark(earlier)
    await world.target.mark(await world.act())
    mark = await world.mark()
    assert mark is not None
    assert (mark.incident, mark.off_proven) == (INCIDENT, "")
    await world.put_mark(replace(mark, off_proven="2026-11-21T12:00:00Z"))
    await world.target.mark(await world.act())
    assert (await world.mark() or mark).off_proven == "2026-11-21T12:00:00Z"


async def test_a_mark_that_stays_for_its_paths_does_not_say_that_the_machine_is_off(world: World) -> None:
    """S6: the episode has ended, and nobody sees to it any more that it stays off."""
    await world.put_mark(replace(our_mark(cordoned=True), paths=(PATH,), off_proven="2026-11-21T12:00:00Z"))
    assert (await world.isolation.mark_schedulable(await world.restore())).changed
    mark = await world.mark()
    assert mark is not None
    assert (mark.paths, mark.off_proven) == ((PATH,), "")
