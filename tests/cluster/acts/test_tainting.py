"""Taints of our own, and the note of off: each in our mark, and only what is noted there is removed (S28, S32)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from temporalio.testing import ActivityEnvironment

from activities.contracts.news import News, OffNote
from activities.contracts.target import TaintRequest, TellRequest
from activities.errors import ErrorType
from policy.objects.nodes import Taint
from tests.cluster.acts.world import NOW, OUT_OF_SERVICE, World, our_mark, refused

pytestmark = pytest.mark.timeout(10)

FENCED = Taint(key="nodewarden.io/fencing", value="yes", effect="NoSchedule")
AS_WRITTEN = {"key": FENCED.key, "value": FENCED.value, "effect": FENCED.effect}
THEIRS = {"key": "team.example/gpu", "value": "a100", "effect": "NoSchedule"}


async def request(world: World, taint: Taint = FENCED, **fields: object) -> TaintRequest:
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
    assert (await ours.isolation.taint(await request(ours))).changed
    mark = await ours.mark()
    assert await taints(ours) == [THEIRS, AS_WRITTEN]
    assert mark is not None
    assert mark.taints == ("nodewarden.io/fencing=yes:NoSchedule",)
    assert ours.writes == 1
    again = await ours.isolation.taint(await request(ours))
    assert (again.changed, "by us" in again.detail, ours.writes) == (False, True, 1)


async def test_a_persons_taint_stays_a_persons(empty: World) -> None:
    """S28: the very same one, and one of that key and effect with another value."""
    for value in ("yes", "no"):
        await empty.add_node(taints=({**AS_WRITTEN, "value": value},))
        await empty.mark_as_ours()
        result = await empty.isolation.taint(await request(empty))
        assert (result.changed, "somebody else" in result.detail) == (False, True)
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
        await ours.isolation.taint(await request(ours, replace(FENCED, effect="NoExecute")))
    assert await taints(ours) == [THEIRS]


async def note(world: World, off_proven: datetime | None) -> bool:
    """Whether it changed anything."""
    writes = world.writes
    request = TellRequest(target=await world.pinned(), news=News(off=OffNote(off_proven=off_proven)))
    await ActivityEnvironment().run(world.target.tell, request)
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
