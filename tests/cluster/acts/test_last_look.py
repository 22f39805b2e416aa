"""The last look: every reason not to act, each seen live, and no act on a guess (S20)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.live import looks
from activities.contracts.target import Configured, LookResult, LookVerdict
from activities.errors import ErrorType
from policy.episode.messages import Kind
from policy.episode.needs import Need, NeedKind
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.held import CONDITION, TAINT
from policy.values.object_refs import ObjectRef
from simulator.api.faults import Accident, Fault
from simulator.client import ApiError
from tests.cluster.acts.world import (
    CHECK_REF,
    CHECKS,
    CLUSTER,
    HOLDER,
    INCIDENT,
    NODE,
    NOW,
    TEMPLATE_NAMESPACE,
    TEMPLATES,
    World,
    our_mark,
    refused,
)

CHECK_NEED = Need(kind=NeedKind.CHECK, reason="ReadyUnknown", check=CHECK_REF)
HOLD = "nodewarden.io/hold"

Losing = Callable[[Any, World], Awaitable[None]]


@pytest.fixture
async def licensed(world: World) -> World:
    """Everything is as it should be for a destructive act: sick node, check, cluster Lease, permit."""
    await world.install_kinds()
    await world.add_check(duration="60s")
    await world.hold_cluster_lease()
    return world


async def look(world: World, **fields: Any) -> LookResult:
    fields.setdefault("need", CHECK_NEED)
    return await world.target.last_look(await world.look(**fields))


async def test_go_when_all_is_as_it_should_be(licensed: World) -> None:
    result = await look(licensed)
    assert result.verdict is LookVerdict.GO
    assert result.at == NOW
    assert result.observation.unhealthy
    assert result.observation.boot_id == "boot-1"
    assert licensed.permits.asked == [(CLUSTER, NODE, INCIDENT)]
    assert licensed.writes == 0


async def test_everything_is_read_side_by_side(licensed: World) -> None:
    """The look must be short: what it saw first must still be true when it saw the last."""
    request = await licensed.look(need=CHECK_NEED)
    licensed.server.requests.reset()
    waiting = 0
    together = asyncio.Event()
    read = licensed.connection.get_bytes

    async def once_all_wait(path: str, **options: Any) -> bytes:
        nonlocal waiting
        waiting += 1
        if waiting == 4:  # node, check, node lease, cluster Lease
            together.set()
        await asyncio.wait_for(together.wait(), timeout=5)
        return await read(path, **options)

    licensed.connection.get_bytes = once_all_wait  # type: ignore[method-assign]
    assert (await licensed.target.last_look(request)).verdict is LookVerdict.GO


class TestIdentity:
    """S9: a difference at a destructive act ends the episode."""

    async def test_a_new_object_under_the_name_is_not_the_target(self, licensed: World) -> None:
        target = await licensed.pinned()
        await licensed.recreate_node()
        result = await look(licensed, target=target)
        assert result.verdict is LookVerdict.TARGET_CHANGED
        assert "uid" in result.reason

    async def test_a_node_that_is_gone_is_not_destroyed(self, licensed: World) -> None:
        target = await licensed.pinned()
        await licensed.delete_node()
        result = await look(licensed, target=target)
        assert result.verdict is LookVerdict.TARGET_CHANGED
        assert not result.observation.present

    async def test_restoring_goes_on_without_the_node_object(self, licensed: World) -> None:
        """S9: a deleted Node object strands no machine that is off."""
        target = await licensed.pinned()
        await licensed.delete_node()
        result = await look(licensed, target=target, destructive=False, need_matters=False)
        assert result.verdict is LookVerdict.GO

    async def test_restoring_keeps_off_another_machine(self, licensed: World) -> None:
        """S9."""
        target = await licensed.pinned()
        await licensed.recreate_node(provider_id="metal://rack-3/8")
        result = await look(licensed, target=target, destructive=False, need_matters=False)
        assert result.verdict is LookVerdict.TARGET_CHANGED

    async def test_a_changed_target_is_said_even_when_nothing_else_can_be_read(self, licensed: World) -> None:
        target = await licensed.pinned()
        await licensed.recreate_node()
        licensed.permits.error = RuntimeError("no answer")
        assert (await look(licensed, target=target)).verdict is LookVerdict.TARGET_CHANGED


class TestNeedOfACheck:
    async def test_a_node_that_recovered_needs_nothing(self, licensed: World) -> None:
        await licensed.set_ready("True")
        result = await look(licensed)
        assert result.verdict is LookVerdict.NEED_GONE
        assert result.observation.ready
        assert not result.observation.unhealthy

    async def test_a_check_that_was_deleted_takes_the_need_with_it(self, licensed: World) -> None:
        await licensed.others.delete(CHECKS.path("workers"))
        result = await look(licensed)
        assert result.verdict is LookVerdict.NEED_GONE
        assert "deleted" in result.reason

    async def test_a_check_that_is_being_deleted_counts_as_deleted(self, licensed: World) -> None:
        await licensed.others.patch(CHECKS.path("workers"), {"metadata": {"finalizers": ["example.io/keep"]}})
        await licensed.others.delete(CHECKS.path("workers"))
        assert (await look(licensed)).verdict is LookVerdict.NEED_GONE

    async def test_a_node_that_is_no_longer_selected_is_not_needed(self, licensed: World) -> None:
        await licensed.change_node({"metadata": {"labels": {"node-role.kubernetes.io/worker": None}}})
        result = await look(licensed)
        assert result.verdict is LookVerdict.NEED_GONE
        assert "selects" in result.reason

    async def test_a_paused_check_is_a_veto(self, licensed: World) -> None:
        await licensed.others.patch(CHECKS.path("workers"), {"spec": {"pauseRequests": ["upgrade to 1.37"]}})
        result = await look(licensed)
        assert result.verdict is LookVerdict.VETOED
        assert "upgrade to 1.37" in result.reason
        assert result.observation.unhealthy

    async def test_a_node_that_failed_anew_is_waited_for(self, licensed: World) -> None:
        """Its time runs from the new failure; the need is not gone, and acting now would be too early."""
        await licensed.set_ready("Unknown", since=NOW - timedelta(seconds=20))
        result = await look(licensed)
        assert result.verdict is LookVerdict.VETOED
        assert result.observation.soon
        assert not result.observation.unhealthy

    async def test_a_check_that_can_no_longer_be_read_licenses_nothing(self, licensed: World) -> None:
        await licensed.others.patch(CHECKS.path("workers"), {"spec": {"unhealthyConditions": []}})
        result = await look(licensed)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert "unhealthyConditions" in result.reason

    @pytest.mark.parametrize(
        "check", [None, ObjectRef(api_version="example.io/v1", kind="Other", name="workers")], ids=["none", "unknown kind"]
    )
    async def test_a_check_that_cannot_be_looked_up_licenses_nothing(self, licensed: World, check: ObjectRef | None) -> None:
        assert (await look(licensed, need=replace(CHECK_NEED, check=check))).verdict is LookVerdict.NOT_LICENSED

    async def test_after_off_the_need_no_longer_matters(self, licensed: World) -> None:
        """Consequences are finished once begun; whether the node may be touched at all is still asked."""
        await licensed.others.delete(CHECKS.path("workers"))
        assert (await look(licensed, need_matters=False)).verdict is LookVerdict.GO

    async def test_the_way_back_needs_no_licence(self, licensed: World) -> None:
        """Without Lease and permit a recovered node is still only uncordoned."""
        await licensed.set_ready("True")
        await licensed.hold_cluster_lease("somebody else")
        licensed.permits.answer = (False, "no such permit")
        assert (await look(licensed)).verdict is LookVerdict.NEED_GONE


class TestOtherNeeds:
    async def test_a_persons_need_is_gone_only_on_abort(self, licensed: World) -> None:
        await licensed.set_ready("True")
        assert (await look(licensed, need=Need(kind=NeedKind.PERSON))).verdict is LookVerdict.GO

    async def test_a_clean_up_wants_a_healthy_node(self, licensed: World) -> None:
        """The marks on a node that is down may be of a fencing that got as far as off."""
        clean_up = Need(kind=NeedKind.CLEAN_UP)
        assert (await look(licensed, need=clean_up, destructive=False)).verdict is LookVerdict.VETOED
        await licensed.set_ready("True")
        assert (await look(licensed, need=clean_up, destructive=False)).verdict is LookVerdict.GO


class TestVetoes:
    """Whoever says "hands off" is obeyed, before off and before on."""

    async def test_its_own_preservation_keeps_nobody_from_cutting_it_off(self, licensed: World) -> None:
        """S20: the need is that it is kept as failed; whoever else says "hands off" is heard as ever."""
        isolating = Need(kind=NeedKind.PRESERVATION, reason="kept, to be cut off")
        result = await look(licensed, need=isolating)
        assert (result.verdict, result.reason) == (LookVerdict.NEED_GONE, "its Node does not say that it is kept as failed")
        await licensed.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: "now"}}})
        kept = {"type": CONDITION, "status": "True", "reason": "Preserved by user.", "message": "x"}
        await licensed.change_node({"status": {"conditions": [kept]}}, subresource="status")
        await licensed.change_node({"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}})
        await licensed.put_mark(replace(our_mark(), kind=Kind.PRESERVATION.value))
        ours = await licensed.pinned(kind=Kind.PRESERVATION.value)
        assert (await look(licensed, target=ours, need=isolating)).verdict is LookVerdict.GO
        assert (await look(licensed)).verdict is not LookVerdict.GO  # S21: nobody fences it
        back = await look(licensed, target=ours, need=isolating, destructive=False, need_matters=False)
        assert back.verdict is LookVerdict.GO
        await licensed.change_node({"metadata": {"annotations": {HOLD: "true"}}})
        assert (await look(licensed, target=ours, need=isolating)).verdict is LookVerdict.VETOED
        licensed.permits.answer = (False, "nobody has it")
        assert (await look(licensed, target=ours, need=isolating)).verdict is LookVerdict.NOT_LICENSED

    @pytest.mark.parametrize("holds", ["nobody", "a fencing", "another preservation"])
    async def test_who_only_says_that_he_preserves_it_is_no_preservation(self, licensed: World, holds: str) -> None:
        """S21: a fencing with that need, given from outside, would switch off a machine that is kept."""
        await licensed.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: "now"}}})
        kept = {"type": CONDITION, "status": "True", "reason": "Preserved by user.", "message": "x"}
        await licensed.change_node({"status": {"conditions": [kept]}}, subresource="status")
        await licensed.change_node({"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}})
        if holds == "a fencing":
            await licensed.mark_as_ours()
        elif holds == "another preservation":
            await licensed.put_mark(replace(our_mark(), kind=Kind.PRESERVATION.value, incident="incident-2"))
        said = Need(kind=NeedKind.PRESERVATION, reason="kept, to be cut off")
        for kind in (Kind.FENCING, Kind.REMEDIATION, Kind.PRESERVATION):
            target = await licensed.pinned(kind=kind.value)
            assert (await look(licensed, target=target, need=said)).verdict is LookVerdict.VETOED
            back = await look(licensed, target=target, need=said, destructive=False, need_matters=False)
            assert back.verdict is LookVerdict.VETOED
            assert PRESERVE_ANNOTATION in back.reason

    @pytest.mark.parametrize("destructive", [True, False])
    @pytest.mark.parametrize("value", ["now", "when-failed", "auto-preserved", "true"])
    async def test_a_preserved_node_is_left_alone(self, licensed: World, value: str, destructive: bool) -> None:
        """S21."""
        await licensed.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: value}}})
        result = await look(licensed, destructive=destructive)
        assert result.verdict is LookVerdict.VETOED
        assert value in result.reason

    async def test_a_node_lease_of_others_is_a_veto(self, licensed: World) -> None:
        await licensed.hold_node_lease("node-maintenance")
        result = await look(licensed)
        assert result.verdict is LookVerdict.VETOED
        assert "node-maintenance" in result.reason

    async def test_a_lapsed_node_lease_vetoes_nothing(self, licensed: World) -> None:
        await licensed.hold_node_lease("node-maintenance", renewed=NOW - timedelta(hours=1), seconds=600)
        assert (await look(licensed)).verdict is LookVerdict.GO

    async def test_our_own_node_lease_is_no_veto(self, licensed: World) -> None:
        await licensed.take_lease()
        assert (await look(licensed)).verdict is LookVerdict.GO

    @pytest.mark.parametrize("restores", [False, True])
    async def test_a_look_that_covers_a_step_takes_the_node_lease(self, licensed: World, restores: bool) -> None:
        """S13: whoever comes later finds it, and the look itself is none of those."""
        await licensed.mark_as_ours()
        fields = {"destructive": False, "need_matters": False} if restores else {}
        for _ in range(2):  # taken, then renewed
            assert (await look(licensed, lease=timedelta(seconds=90), **fields)).verdict is LookVerdict.GO
        lease = (await licensed.node_lease())["spec"]
        assert (lease["holderIdentity"], lease["leaseDurationSeconds"]) == ("nodewarden", 90)

    async def test_a_lease_of_others_is_not_taken_and_vetoes(self, licensed: World) -> None:
        """S13, S20."""
        before = await licensed.hold_node_lease("node-maintenance", seconds=600)
        result = await look(licensed, lease=timedelta(seconds=90))
        assert (result.verdict, result.until) == (LookVerdict.VETOED, NOW + timedelta(seconds=600))
        assert await licensed.node_lease() == before

    async def test_a_lease_that_cannot_be_taken_in_time_licenses_nothing(self, licensed: World) -> None:
        """S20, S33: a worker that stood still would hold it for its whole duration with nobody to give it back."""
        result = await look(licensed, lease=timedelta(seconds=90), not_after=NOW - timedelta(seconds=1))
        assert result.verdict is LookVerdict.NOT_LICENSED
        with pytest.raises(ApiError, match="NotFound"):
            await licensed.node_lease()


class TestLicence:
    """S38: without the cluster Lease and the permit nothing destructive is done; S21: restoring needs neither."""

    async def _no_lease(self, world: World) -> None:
        await world.others.delete("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/nodewarden")

    async def _held_by_another(self, world: World) -> None:
        await world.hold_cluster_lease("temporal.other:7233/default")

    async def _long_silent(self, world: World) -> None:
        await world.hold_cluster_lease(renewed=NOW - timedelta(seconds=61), seconds=30)

    async def _from_the_future(self, world: World) -> None:
        await world.hold_cluster_lease(renewed=NOW + timedelta(seconds=61), seconds=30)

    async def _without_permit(self, world: World) -> None:
        world.permits.answer = (False, "the permit was given back")

    @pytest.mark.parametrize(
        ("lose", "words"),
        [
            (_no_lease, "does not exist"),
            (_held_by_another, "temporal.other"),
            (_long_silent, "61 s ago"),
            (_from_the_future, "-61 s"),
            (_without_permit, "given back"),
        ],
    )
    async def test_nothing_destructive_without_it(self, licensed: World, lose: Losing, words: str) -> None:
        await lose(self, licensed)
        result = await look(licensed)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert words in result.reason

    async def test_a_lease_a_little_late_is_still_held(self, licensed: World) -> None:
        """Clocks differ by seconds, and a renewal may be on its way."""
        await licensed.hold_cluster_lease(renewed=NOW - timedelta(seconds=60), seconds=30)
        assert (await look(licensed)).verdict is LookVerdict.GO

    async def test_an_unnamed_holder_holds_nothing(self, licensed: World) -> None:
        await licensed.hold_cluster_lease("")
        assert (await look(licensed, holder="")).verdict is LookVerdict.NOT_LICENSED
        assert (await look(licensed, holder=HOLDER)).verdict is LookVerdict.NOT_LICENSED


class TestOtherHands:
    """S5, S38: an on that comes after another deployment's off undoes its proof. Whoever takes a node over writes his mark first,
    and then waits until nothing of his predecessor can be in flight."""

    OTHER = "temporal.other:7233/default"

    async def back(self, world: World) -> LookResult:
        return await look(world, destructive=False, need_matters=False)

    @pytest.mark.parametrize("mark", [{"incident": "incident-2"}, {"workflow_id": "episode/another-name/node-7"}])
    async def test_a_node_that_another_episode_holds_is_left_as_it_is(self, licensed: World, mark: dict[str, str]) -> None:
        await licensed.put_mark(replace(our_mark(), **mark))
        result = await self.back(licensed)
        assert result.verdict is LookVerdict.VETOED
        assert next(iter(mark.values())) in result.reason

    async def test_our_mark_serves_though_another_holds_the_cluster(self, licensed: World) -> None:
        """S17: our machine is off, and nobody else will switch it on."""
        await licensed.mark_as_ours()
        await licensed.hold_cluster_lease(self.OTHER)
        assert (await self.back(licensed)).verdict is LookVerdict.GO

    @pytest.mark.parametrize("there", [True, False])
    async def test_without_our_mark_another_s_lease_is_waited_for(self, licensed: World, there: bool) -> None:
        request = await licensed.look(need=CHECK_NEED, destructive=False, need_matters=False)
        await licensed.hold_cluster_lease(self.OTHER)
        if not there:
            await licensed.delete_node()
        result = await licensed.target.last_look(request)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert self.OTHER in result.reason
        await licensed.hold_cluster_lease(self.OTHER, renewed=NOW - timedelta(minutes=5))
        assert (await licensed.target.last_look(request)).verdict is LookVerdict.GO  # S17: it has lapsed
        await licensed.hold_cluster_lease(self.OTHER, renewed=NOW + timedelta(minutes=5))
        assert (
            await licensed.target.last_look(request)
        ).verdict is LookVerdict.NOT_LICENSED  # S38: a clock is wrong, and may be ours

    async def test_what_cannot_be_read_is_nobody_s_word(self, licensed: World) -> None:
        """S3: neither that nobody else holds the cluster, nor that the node is ours."""
        await licensed.put_mark("somebody's")
        assert (await self.back(licensed)).verdict is LookVerdict.NOT_LICENSED
        await licensed.change_node({"metadata": {"annotations": {"nodewarden.io/episode": None}}})
        licensed.server.faults.add(Fault(accident=Accident.REFUSE, path="kube-system/leases/"))
        assert (await self.back(licensed)).verdict is LookVerdict.NOT_LICENSED


class TestDoubt:
    """S20, S37: what cannot be read is never taken for leave to act."""

    @pytest.mark.parametrize(
        ("path", "what"),
        [
            (f"nodes/{NODE}$", "the node "),
            ("nodehealthchecks/", "its health check"),
            ("medik8s-leases/", "the node's lease"),
            ("kube-system/leases/", "the cluster Lease"),
        ],
    )
    @pytest.mark.parametrize("accident", [Accident.REFUSE, Accident.STATUS])
    async def test_a_read_that_fails_licenses_nothing(self, licensed: World, path: str, what: str, accident: Accident) -> None:
        request = await licensed.look(need=CHECK_NEED)
        licensed.server.faults.add(Fault(accident=accident, path=path))
        result = await licensed.target.last_look(request)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert f"{what.strip()} could not be read" in result.reason

    async def test_a_permit_that_nobody_can_confirm_licenses_nothing(self, licensed: World) -> None:
        """S37: with Temporal unreachable nothing destructive starts."""
        licensed.permits.error = RuntimeError("connection refused")
        result = await look(licensed)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert "connection refused" in result.reason

    async def test_a_read_that_hangs_licenses_nothing(self, licensed: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(looks, "READ_SECONDS", 0.05)
        request = await licensed.look(need=CHECK_NEED)
        licensed.server.faults.add(Fault(accident=Accident.DELAY, path="kube-system/leases/", latency=timedelta(seconds=30)))
        result = await licensed.target.last_look(request)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert "TimeoutError" in result.reason

    async def test_a_node_that_cannot_be_read_is_not_taken_for_gone(self, licensed: World) -> None:
        """S3, S18: the observation is what an episode goes on with."""
        request = await licensed.look(need=CHECK_NEED)
        licensed.server.faults.add(Fault(accident=Accident.REFUSE, path=f"nodes/{NODE}$"))
        seen = (await licensed.target.last_look(request)).observation
        assert seen.present
        assert (seen.uid, seen.boot_id) == (request.target.pinned.uid, "boot-1")
        assert not seen.ready
        with refused(ErrorType.UNREACHABLE, "the node could not be read"):
            await licensed.target.last_look(replace(request, destructive=False, need_matters=False))

    async def test_a_node_that_is_gone_is_gone_even_when_something_else_cannot_be_read(self, licensed: World) -> None:
        request = await licensed.look(need=CHECK_NEED, destructive=False, need_matters=False)
        await licensed.delete_node()
        licensed.server.faults.add(Fault(accident=Accident.REFUSE, path="medik8s-leases/"))
        result = await licensed.target.last_look(request)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert not result.observation.present

    async def test_restoring_does_not_depend_on_what_it_does_not_need(self, licensed: World) -> None:
        await licensed.mark_as_ours()
        licensed.permits.error = RuntimeError("connection refused")
        licensed.server.faults.add(Fault(accident=Accident.REFUSE, path="kube-system/leases/|nodehealthchecks/"))
        assert (await look(licensed, destructive=False, need_matters=False)).verdict is LookVerdict.GO


async def _with_template(world: World) -> Any:
    await world.add_template()
    return await world.pinned()


async def test_a_device_that_is_configured_anew_is_another_target(licensed: World) -> None:
    """S9: the plug that was pinned is no longer the node's, whatever else is as it was."""
    target = await _with_template(licensed)
    asked = {"need": CHECK_NEED, "configured": Configured()}
    assert (await licensed.target.last_look(await licensed.look(target, **asked))).verdict is LookVerdict.GO
    power = [{"driver": "ipmi", "nodeParameters": {NODE: {"ip": "10.0.0.8"}}, "secretRef": {"name": "bmc-credentials"}}]
    change = {"spec": {"template": {"spec": {"power": power}}}}
    await licensed.others.patch(TEMPLATES.path("blades", namespace=TEMPLATE_NAMESPACE), change)
    for destructive in (True, False):  # off, and what is freed on the word of that device
        result = await licensed.target.last_look(await licensed.look(target, destructive=destructive, **asked))
        assert result.verdict is LookVerdict.TARGET_CHANGED
        assert "10.0.0.7" in result.reason
        assert "10.0.0.8" in result.reason


async def test_the_devices_are_compared_before_a_paused_check_is_heard_where_pods_are_freed(licensed: World) -> None:
    """S9: the template is mended, and the check paused: what the old plug says frees nothing, whatever the check says."""
    target = await _with_template(licensed)
    asked = {"need": CHECK_NEED, "configured": Configured(), "destructive": False}
    pinned = replace(target.pinned, endpoints=("ipmi://10.0.0.9:623",))
    await licensed.others.patch(CHECKS.path("workers"), {"spec": {"pauseRequests": ["upgrade to 1.37"]}})
    result = await licensed.target.last_look(await licensed.look(replace(target, pinned=pinned), **asked))
    assert result.verdict is LookVerdict.TARGET_CHANGED
    await licensed.others.delete(TEMPLATES.path("blades", namespace=TEMPLATE_NAMESPACE))
    result = await licensed.target.last_look(await licensed.look(target, **asked))
    assert result.verdict is LookVerdict.NOT_LICENSED
    assert "fence configuration" in result.reason


async def test_a_look_before_power_on_tells_which_devices_are_configured_now(licensed: World) -> None:
    """S9, S17: whoever switches on compares each device. A configuration that is gone holds up nothing that restores."""
    target = await _with_template(licensed)
    await licensed.mark_as_ours()
    asked = {"need": CHECK_NEED, "configured": Configured(), "destructive": False, "need_matters": False}
    for pinned in (target.pinned, replace(target.pinned, endpoints=("ipmi://10.0.0.9:623",))):
        result = await licensed.target.last_look(await licensed.look(replace(target, pinned=pinned), **asked))
        assert (result.verdict, result.endpoints) == (LookVerdict.GO, ("ipmi://10.0.0.7:623",))
    await licensed.others.delete(TEMPLATES.path("blades", namespace=TEMPLATE_NAMESPACE))
    result = await licensed.target.last_look(await licensed.look(target, **asked))
    assert (result.verdict, result.endpoints) == (LookVerdict.GO, None)


async def test_a_device_of_another_scheme_at_the_same_address_is_another_target(licensed: World) -> None:
    """S9: the whole endpoint is compared."""
    target = await _with_template(licensed)
    pinned = replace(target.pinned, endpoints=("ipmi://10.0.0.7:624",))
    result = await licensed.target.last_look(
        await licensed.look(replace(target, pinned=pinned), need=CHECK_NEED, configured=Configured())
    )
    assert result.verdict is LookVerdict.TARGET_CHANGED


async def test_a_configuration_that_cannot_be_used_licenses_nothing(licensed: World) -> None:
    """S9, S20: whether the pinned device is still the node's can't be seen."""
    target = await _with_template(licensed)
    await licensed.others.delete(TEMPLATES.path("blades", namespace=TEMPLATE_NAMESPACE))
    result = await licensed.target.last_look(await licensed.look(target, need=CHECK_NEED, configured=Configured()))
    assert result.verdict is LookVerdict.NOT_LICENSED
    assert "fence configuration" in result.reason


async def test_a_need_that_is_gone_is_gone_under_any_configuration(licensed: World) -> None:
    """S20: the way back needs no licence."""
    target = await _with_template(licensed)
    await licensed.others.delete(TEMPLATES.path("blades", namespace=TEMPLATE_NAMESPACE))
    await licensed.set_ready("True")
    result = await licensed.target.last_look(await licensed.look(target, need=CHECK_NEED, configured=Configured()))
    assert result.verdict is LookVerdict.NEED_GONE
