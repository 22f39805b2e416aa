"""The out-of-service taint: beside the others, noted as ours in the same write, and only ours ever removed (S32)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.contracts.target import LookVerdict, OffNote, Publication
from activities.errors import ErrorType, failure
from policy.episode.gate import FENCING_LABEL, HOLD_ANNOTATION, Operation
from policy.objects.marks import Added
from simulator.api.control.faults import Accident, Fault
from simulator.resources import PODS
from tests.cluster.acts.world import HOLDER, OUT_OF_SERVICE, World, our_mark, refused
from tests.vectors.objects import VECTORS

GPU = {"key": "team.example/gpu", "value": "a100", "effect": "NoSchedule"}


@pytest.fixture
async def off(empty: World) -> World:
    """A marked node with a taint of others, proven off."""
    await empty.add_node(taints=(GPU,), unschedulable=True)
    await empty.hold_cluster_lease()
    await empty.mark_as_ours(cordoned=True)
    return empty


async def taints(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await world.node())["spec"].get("taints", [])
    return found


class TestTainting:
    async def test_it_can_be_the_first_taint(self, off: World) -> None:
        await off.change_node({"spec": {"taints": None}})
        await off.freeing.taint_out_of_service(await off.free())
        assert await taints(off) == [OUT_OF_SERVICE]

    async def test_a_persons_taint_serves_and_stays_a_persons(self, off: World) -> None:
        """S28."""
        await off.change_node({"spec": {"taints": [GPU, OUT_OF_SERVICE]}})
        result = await off.freeing.taint_out_of_service(await off.free())
        assert not result.changed
        assert "another owner" in result.detail
        assert await off.mark() == our_mark(cordoned=True)

    @pytest.mark.parametrize(
        "stops", [{"annotations": {HOLD_ANNOTATION: "not now"}}, {"labels": {FENCING_LABEL: "off"}}], ids=["hold", "fencing off"]
    )
    async def test_s20_what_a_person_writes_right_before_it_stops_it(self, off: World, stops: dict[str, Any]) -> None:
        """S20: the write meets another version of the Node than the one by which it was let do so."""
        await off.add_pod("db-0")
        off.connection.before_writes.append(lambda: off.change_node({"metadata": stops}))
        with refused(ErrorType.NOT_LICENSED):
            await off.freeing.taint_out_of_service(await off.free())
        assert (OUT_OF_SERVICE in await taints(off), await off.pods()) == (False, ["db-0"])


class TestPodsThatItDrivesOut:
    async def test_they_go_at_once_and_what_may_stay_stays(self, off: World) -> None:
        """S29, S31: nobody waits for the pod garbage collector. Attachments are the attach-detach controller's affair."""
        await off.add_volume("data")
        await off.add_pod("db-0", claims=("data",))
        await off.add_pod("gently-deleted")
        await off.others.delete(PODS.path("gently-deleted", namespace="default"))
        await off.add_pod("told-to-stay", tolerations=[{"key": OUT_OF_SERVICE["key"], "operator": "Exists"}])
        await off.add_pod("kube-proxy", mirror=True)
        await off.add_pod("logs", owner="DaemonSet")
        await off.add_pod("job", phase="Succeeded")
        await off.add_pod("elsewhere", node="node-8")
        result = await off.freeing.taint_out_of_service(await off.free())
        assert result.detail.endswith("; 2 pods deleted")
        assert await off.pods() == ["elsewhere", "job", "kube-proxy", "logs", "told-to-stay"]
        assert await off.attachments() == ["va-data"]

    async def test_a_call_after_a_lost_answer_deletes_them(self, off: World) -> None:
        """S33."""
        await off.add_pod("db-0")
        off.server.faults.add(Fault(accident=Accident.LOSE_ANSWER, method="PATCH", count=1))
        with refused(ErrorType.AMBIGUOUS):
            await off.freeing.taint_out_of_service(await off.free())
        assert await off.pods() == ["db-0"]
        assert not (await off.freeing.taint_out_of_service(await off.free())).changed
        assert await off.pods() == []

    @pytest.mark.parametrize("how", ["ready", "recreated"])
    async def test_none_goes_where_the_node_is_another_or_back_when_it_is_to_be_tainted(self, off: World, how: str) -> None:
        """S1, S6, S9: they were listed before that look."""
        await off.add_pod("db-0")
        changes = {"ready": lambda: off.set_ready("True", boot_id="boot-2"), "recreated": off.recreate_node}
        off.connection.before_writes.append(changes[how])
        with refused(ErrorType.NOT_PROVEN if how == "ready" else ErrorType.TARGET_CHANGED):
            await off.freeing.taint_out_of_service(await off.free())
        assert await off.pods() == ["db-0"]
        assert OUT_OF_SERVICE not in await taints(off)

    async def test_none_goes_after_its_time(self, off: World) -> None:
        """S2, S20: the reading that licensed the taint is no longer fresh."""
        await off.add_pod("db-0")

        def time_passes() -> None:
            off.now += timedelta(minutes=1)

        off.connection.after_writes = time_passes
        await off.freeing.taint_out_of_service(await off.free())
        assert OUT_OF_SERVICE in await taints(off)
        assert await off.pods() == ["db-0"]

    async def test_what_we_are_refused_is_left_to_the_collector(self, off: World) -> None:
        await off.add_pod("db-0")
        off.server.faults.add(Fault(accident=Accident.FORBID, method="DELETE", count=9))
        result = await off.freeing.taint_out_of_service(await off.free())
        assert result.changed
        assert "pods are left to Kubernetes' garbage collector: " in result.detail
        assert await off.mark() == our_mark(cordoned=True, out_of_service=True)


async def test_k07_ours_stands_beside_the_others_and_only_ours_is_removed(off: World) -> None:
    """K07, S28, S32: shipped, the whole list was replaced, and the taint never removed. That ours is removed before power-on,
    once nothing is left, and that no second act is begun while one runs (S13), is in `tests/workflows/test_fencing.py`."""
    before = VECTORS["K07"]["taints"]
    await off.change_node({"spec": {"taints": [_taint(each) for each in before]}})
    off.server.requests.reset()
    assert (await off.freeing.taint_out_of_service(await off.free())).changed
    assert off.writes == 1, "the taint and the note that it is ours"
    assert [_written(each) for each in await taints(off)] == VECTORS["K07"]["after_add"]
    assert await off.mark() == our_mark(cordoned=True, out_of_service=True)
    assert (await off.freeing.untaint_out_of_service(await off.untaint())).changed
    assert off.writes == 2
    assert [_written(each) for each in await taints(off)] == before
    assert await off.mark() == our_mark(cordoned=True)


def _taint(written: str) -> dict[str, str]:
    named, _, effect = written.rpartition(":")
    key, _, value = named.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def _written(taint: dict[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


class TestUntainting:
    async def test_the_look_before_power_on_comes_after_it(self, off: World) -> None:
        """S32, S21: what it sees is moments old when power comes on."""
        await off.mark_as_ours(cordoned=True, out_of_service=True)
        look = await off.look(operation=Operation.GIVE_BACK, lease=timedelta(seconds=90))
        off.server.faults.add(Fault(accident=Accident.STATUS, method="PATCH", status=409, count=1))
        result = await off.freeing.untaint_out_of_service(await off.untaint(look=look))
        assert result.look is not None
        assert (result.changed, result.look.verdict) == (True, LookVerdict.GO)
        assert (await off.node_lease())["spec"]["holderIdentity"] == f"nodewarden/{HOLDER}"

    async def test_each_way_takes_one_reading_of_the_node_and_one_write(self, off: World) -> None:
        """The look after it, before power-on, is one more (S20). That the node is proven off no longer is noted with the taint's
        end."""
        await off.mark_as_ours(cordoned=True)
        await off.put_mark(replace(our_mark(cordoned=True), off_proven="2026-11-21T12:00:00Z"))
        off.server.requests.reset()
        await off.freeing.taint_out_of_service(await off.free())
        assert (off.server.requests.total("get", "nodes", "nodewarden/"), off.writes) == (1, 1)
        off.server.requests.reset()
        news = Publication(off=OffNote(off_proven=None, not_after=off.now + timedelta(seconds=20)))
        look = await off.look(operation=Operation.GIVE_BACK, publication=news)
        await off.freeing.untaint_out_of_service(await off.untaint(look=look))
        assert (off.server.requests.total("get", "nodes", "nodewarden/"), off.writes) == (2, 1)
        assert await off.mark() == our_mark(cordoned=True)

    @pytest.mark.parametrize("change", [{"value": "maintenance"}, {"effect": "NoSchedule"}])
    async def test_a_taint_of_that_key_with_another_value_or_effect_is_not_ours(self, off: World, change: dict[str, str]) -> None:
        """S28, S32: a person took ours off and put his own there, which our mark knows nothing of."""
        theirs = OUT_OF_SERVICE | change
        await off.mark_as_ours(cordoned=True, out_of_service=True)
        await off.change_node({"spec": {"taints": [theirs, GPU]}})
        await off.freeing.untaint_out_of_service(await off.untaint(ours=True))
        assert await taints(off) == [theirs, GPU]
        await off.mark_as_ours(out_of_service=True)
        await off.isolation.mark_schedulable(await off.restore(tainted=True))
        assert await taints(off) == [theirs, GPU]


class TestATaintThatIsStillOnItsWay:
    """S1, S32: an API server that stands still may carry a request out that its sender has given up. Nobody reads the proof then,
    or the machine is on again, and what drives pods out stands all the same."""

    @pytest.fixture
    async def lands(self, off: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[None]]:
        """Lets the request arrive whose answer was not waited for."""
        write, sent = off.connection._write, list[tuple[Any, Any]]()

        async def stands_still(*args: Any, **options: Any) -> Any:
            monkeypatch.setattr(off.connection, "_write", write)
            sent.append((args, options))
            raise failure(ErrorType.AMBIGUOUS, "no answer in time; it may have been carried out")

        async def arrives() -> None:
            args, options = sent.pop()
            with contextlib.suppress(ApplicationError):
                await write(*args, **options)

        await off.put_mark(replace(our_mark(cordoned=True), paths=("pdu-1/3",)))
        monkeypatch.setattr(off.connection, "_write", stands_still)
        with refused(ErrorType.AMBIGUOUS):
            await off.freeing.taint_out_of_service(await off.free())
        return arrives

    @pytest.mark.parametrize("ends", [False, True])
    async def test_it_comes_too_late_once_it_was_made_sure_that_none_stands(
        self, off: World, lands: Callable[[], Awaitable[None]], ends: bool
    ) -> None:
        """ends: with the episode, whose mark stays for the paths that it leaves cut."""
        if ends:
            await off.isolation.mark_schedulable(await off.restore(tainted=True))
        else:
            await off.freeing.untaint_out_of_service(await off.untaint(ours=True))
        await lands()
        assert OUT_OF_SERVICE not in await taints(off)
        mark = await off.mark()
        assert mark is not None
        assert (mark.cordoned, mark.out_of_service, mark.paths) == (True, False, ("pdu-1/3",))


class TestWithoutOurMark:
    """S32: anybody may remove a mark; the episode knows what it has done, and what it has done must not stand on a machine that
    runs."""

    @pytest.fixture
    async def tainted(self, off: World) -> World:
        self.added = (await off.freeing.taint_out_of_service(await off.free())).added
        await off.change_node({"metadata": {"annotations": {"nodewarden.io/episode": None}}})
        return off

    async def assert_only_ours_is_gone(self, world: World) -> None:
        left = await taints(world)
        assert OUT_OF_SERVICE not in left
        assert GPU in left

    async def test_ours_goes_all_the_same(self, tainted: World) -> None:
        result = await tainted.freeing.untaint_out_of_service(await tainted.untaint(ours=True, added=self.added))
        assert result.changed
        await self.assert_only_ours_is_gone(tainted)
        assert await tainted.mark() is None

    async def test_it_goes_with_the_end_of_the_episode_too(self, tainted: World) -> None:
        """S35: nothing else of the node is touched."""
        await tainted.change_node({"spec": {"unschedulable": True}})
        added = replace(self.added or Added(), cordoned=False)
        assert (await tainted.isolation.mark_schedulable(await tainted.restore(tainted=True, added=added))).changed
        await self.assert_only_ours_is_gone(tainted)
        assert (await tainted.node())["spec"]["unschedulable"] is True

    async def test_an_episode_that_has_set_none_takes_none_off(self, tainted: World) -> None:
        """S28: it is spelled as a person is told to spell it."""
        assert not (await tainted.freeing.untaint_out_of_service(await tainted.untaint())).changed
        await tainted.isolation.mark_schedulable(await tainted.restore())
        assert OUT_OF_SERVICE in await taints(tainted)

    async def test_what_the_other_episode_calls_its_own_can_not_be_removed_and_that_is_said(self, tainted: World) -> None:
        """S13: it frees pods under a proof of its own."""
        await tainted.put_mark(replace(our_mark(out_of_service=True), incident="incident-2"))
        with refused(ErrorType.VETOED, "incident-2"):
            await tainted.freeing.untaint_out_of_service(await tainted.untaint(ours=True, added=self.added))
        assert OUT_OF_SERVICE in await taints(tainted)
