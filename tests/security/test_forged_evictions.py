"""Evictions empty a node as surely as power does, and so need the scanner's word like all that disrupts (S14, S20, S44).

The attacker schedules the drain himself, of a node that is well and bears a mark of his, or as a preservation. No look is in it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.isolation import ClusterIsolation
from activities.cluster.acts.preservation import ClusterPreservation
from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.preservation import Hold, HoldRequest, Wish
from activities.contracts.target import ActRequest, DrainRequest, DrainResult, LookVerdict, Target
from activities.errors import ErrorType
from policy.episode.drain import DrainOptions
from policy.episode.messages import Kind, Need, NeedKind
from policy.episode.modes import ClusterModes
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import CONDITION, TAINT
from policy.values.mode import MODE_KEY, Mode
from simulator.resources import NODES
from tests.cluster.acts.world import CHECK_REF, CHECKS, CLUSTER, HOLDER, NODE, World, refused
from tests.cluster.machines import CLUSTER_API, OPERATORS, machine_of
from tests.licensing import LICENCES

EVERYTHING = DrainOptions(force=True, ignore_daemon_sets=True, delete_empty_dir=True, grace=timedelta(0))
PAUSED = "paused by ada, until somebody ends it: a move (`nodewarden unpause` ends it)"


@pytest.fixture
async def busy(empty: World) -> World:
    """A node that is well, and a pod on it; no permit is held."""
    await empty.add_node(ready="True")
    await empty.hold_cluster_lease()
    await empty.add_pod("works")
    await CLUSTER_API.install(empty.others)
    await CLUSTER_API.add_machine(empty.others, machine_of(NODE), node=NODE)
    empty.permits.answer = (False, "the permit is held by nobody")
    return empty


async def marked(world: World, kind: Kind) -> Target:
    """As `isolation.mark` marks it for whoever asks."""
    target = await world.pinned(kind=kind.value)
    await world.target.mark(ActRequest(target=target))
    return target


async def drain(world: World, target: Target, need: Need | None = Need(kind=NeedKind.PERSON)) -> DrainResult:  # noqa: B008
    soon = world.now + timedelta(seconds=10)
    return await world.isolation.drain(DrainRequest(target=target, options=EVERYTHING, not_after=soon, holder=HOLDER, need=need))


async def hold(world: World, **fields: Any) -> Hold:
    served = ServedCluster(CLUSTER, world.connection, clock=world.clock, source=OPERATORS)
    acts = ClusterPreservation(served, world.target.last_look, world.permits)
    asked = {"cluster": CLUSTER, "node": NODE, "machine": CLUSTER_API.machine_ref(machine_of(NODE)), **fields}
    return await ActivityEnvironment().run(acts.hold, HoldRequest(**asked))


async def kept_as_failed(world: World) -> Target:
    """By a person's word; that it has failed its Machine says."""
    await world.others.patch(NODES.path(NODE), {"metadata": {"labels": {}, "annotations": {PRESERVE_ANNOTATION: "now"}}})
    await CLUSTER_API.set_status(world.others, machine_of(NODE), {"phase": "Failed"})
    assert (await hold(world)).drain
    return await marked(world, Kind.PRESERVATION)


def looks_itself(world: World, *, only_verified: bool = False) -> ClusterIsolation:
    """As it is served."""
    served = ServedCluster(CLUSTER, world.connection, own_node="node-1", clock=world.clock, only_verified=only_verified)
    target = ClusterTarget(served, world.permits, LICENCES)
    return ClusterIsolation(served, target.last_look, world.permits, LICENCES)


BY_CHECK = Need(kind=NeedKind.CHECK, check=CHECK_REF)


@pytest.mark.parametrize(
    ("need", "why"),
    [
        (BY_CHECK, "finds the node healthy"),
        (Need(kind=NeedKind.CHECK, check=replace(CHECK_REF, name="another")), "NodeHealthCheck/another was deleted"),
        (Need(kind=NeedKind.CLEAN_UP), "disrupts nothing"),
        (Need(kind=NeedKind.PERSON), "no NodeAction attests"),
        (None, "nothing says why it should be"),
    ],
)
async def test_s20_no_node_is_drained_that_is_well_whatever_its_caller_says(need: Need | None, why: str, busy: World) -> None:
    """S42: it has a permit, which it may ask for, and marks the node. Before the first eviction the need is read anew."""
    await busy.install_kinds()
    await busy.add_check(duration="60s")
    busy.permits.answer, busy.isolation = (True, ""), looks_itself(busy, only_verified=True)
    target, writes = await marked(busy, Kind.REMEDIATION), busy.writes
    with pytest.raises(ApplicationError, match=f"is not drained: .*{why}"):
        await drain(busy, target, need=need)
    assert busy.writes == writes


async def test_s20_a_node_that_is_sick_is_drained(world: World) -> None:
    """Else the row above would be refused for another reason."""
    await world.hold_cluster_lease()
    await world.install_kinds()
    await world.add_check(duration="60s")
    await world.add_pod("works")
    world.isolation = looks_itself(world, only_verified=True)
    assert (await drain(world, await marked(world, Kind.REMEDIATION), need=BY_CHECK)).evicted == 1


@pytest.mark.parametrize("kind", [Kind.FENCING, Kind.REMEDIATION, Kind.PRESERVATION])
async def test_s14_without_a_permit_no_pod_is_evicted(kind: Kind, busy: World) -> None:
    """A mark that says it is a preservation's makes none of it: the Node does not say that it is kept as failed."""
    target, writes = await marked(busy, kind), busy.writes
    with refused(ErrorType.NOT_LICENSED, "is not drained: the permit is held by nobody"):
        await drain(busy, target)
    assert busy.writes == writes


async def test_s20_an_unknown_permit_is_none(busy: World) -> None:
    target = await marked(busy, Kind.FENCING)
    busy.permits.error = OSError("no scanner")
    with refused(ErrorType.NOT_LICENSED, "no scanner"):
        await drain(busy, target)


async def test_s44_a_pause_stops_the_evictions_of_a_preservation(busy: World) -> None:
    """It needs no permit, and is asked for none."""
    target = await kept_as_failed(busy)
    busy.permits.pause, writes = PAUSED, busy.writes
    with refused(ErrorType.NOT_LICENSED, PAUSED):
        await drain(busy, target)
    assert busy.writes == writes
    busy.permits.pause = ""
    assert (await drain(busy, target)).evicted == 1
    assert set(busy.permits.asked) == {(CLUSTER, "", "")}


async def test_s52_in_observe_no_pod_of_a_machine_that_a_pool_keeps_is_evicted(busy: World) -> None:
    """That a person asked for it is read, and not believed; and no mode brakes a person."""
    await CLUSTER_API.set_status(busy.others, machine_of(NODE), {"phase": "Failed"})
    assert (await hold(busy, wish=Wish(automatic=True))).drain
    target = await marked(busy, Kind.PRESERVATION)
    busy.permits.set, writes = ClusterModes(setting=Mode.OBSERVE), busy.writes
    with refused(ErrorType.VETOED, "its mode is observe"):
        await drain(busy, target, need=Need(kind=NeedKind.PERSON))
    assert busy.writes == writes
    await busy.others.patch(NODES.path(NODE), {"metadata": {"annotations": {PRESERVE_ANNOTATION: "now"}}})
    assert (await drain(busy, target)).evicted == 1


async def test_s44_the_condition_alone_which_a_kubelet_may_write_is_no_preservation(busy: World) -> None:
    condition = {"type": CONDITION, "status": "True", "reason": "Preserved by user.", "message": ""}
    await busy.others.patch(NODES.path(NODE, subresource="status"), {"status": {"conditions": [condition]}})
    with refused(ErrorType.NOT_LICENSED, "the permit is held by nobody"):
        await drain(busy, await marked(busy, Kind.PRESERVATION))


@pytest.mark.parametrize("wish", [Wish(automatic=True), Wish(keep=True)], ids=["of a pool", "of a person"])
async def test_s42_that_a_health_check_calls_it_unhealthy_is_seen_and_not_believed(wish: Wish, busy: World) -> None:
    """A preservation that anybody starts says so of itself."""
    await busy.install_kinds()
    await busy.add_check(duration="60s")
    told = await hold(busy, wish=wish, unhealthy="x")
    assert (told.drain, told.phase.partition(":")[0], told.terminate) == (False, "Running", False)
    assert told.preserved is wish.keep
    assert not [taint for taint in (await busy.node())["spec"].get("taints") or () if taint["key"] == TAINT]


async def test_s52_a_pool_goes_as_far_as_the_check_allows_that_calls_its_machine_failed(world: World) -> None:
    """Its annotation is read live whenever the pool decides: to keep, evict, cut off, and give up."""
    await world.hold_cluster_lease()
    await world.install_kinds()
    await world.add_check(duration="60s")
    await world.add_pod("works")
    asked = {"machine": None, "unhealthy": "x"}

    async def allow(mode: Mode) -> str:
        await world.others.patch(CHECKS.path("workers"), {"metadata": {"annotations": {MODE_KEY: mode}}})
        return f"its mode is {mode}: the annotation {MODE_KEY} of NodeHealthCheck/workers says so"

    words, writes = await allow(Mode.OBSERVE), world.writes
    told = await hold(world, **asked, wish=Wish(automatic=True))
    assert (told.preserved, told.terminate, told.changed, world.writes) == (False, False, (), writes)
    assert words in told.reason
    await world.add_check("older", duration="60s")  # one that only observes leaves the node to the others
    assert (await hold(world, **asked, wish=Wish(automatic=True))).drain
    words = await allow(Mode.CORDON)
    told = await hold(world, **asked)
    assert (told.phase, told.drain) == ("Failed:Preserved", False)
    assert words in told.reason
    target, older = await marked(world, Kind.PRESERVATION), replace(CHECK_REF, name="older")
    with refused(ErrorType.NOT_LICENSED, words):
        await drain(world, target, need=Need(kind=NeedKind.CHECK, check=older))
    words = await allow(Mode.DRAIN)
    assert (await hold(world, **asked)).drain
    assert (await drain(world, target)).evicted == 1
    told = await hold(world, **asked, drained=True)
    found = await world.target.last_look(await world.look(target, need=Need(kind=NeedKind.PRESERVATION)))
    assert (found.verdict, found.held_by_mode, found.reason) == (LookVerdict.NOT_LICENSED, True, words)
    assert told.expiry is not None
    world.now = told.expiry
    await world.set_ready("Unknown", since=world.now)  # so that its time has just begun anew: no check calls it unhealthy yet
    told = await hold(world, **asked, drained=True)
    assert (told.preserved, told.terminate) == (False, False)
    assert words in told.reason


async def test_s52_no_check_says_how_far_a_pool_goes_with_a_machine_that_its_controller_calls_failed(busy: World) -> None:
    """The check is as if it were not there: else one that is tried out would take evidence away."""
    await busy.install_kinds()
    await busy.add_check(duration="60s")
    await busy.others.patch(CHECKS.path("workers"), {"metadata": {"annotations": {MODE_KEY: "observe"}}})
    await busy.set_ready("Unknown", since=busy.now - timedelta(hours=1))
    await busy.change_node({"metadata": {"annotations": CLUSTER_API.ties(NODE)}})
    assert not (await hold(busy, wish=Wish(automatic=True), unhealthy="x")).preserved
    await CLUSTER_API.set_status(busy.others, machine_of(NODE), {"phase": "Failed"})
    assert (await hold(busy, wish=Wish(automatic=True), unhealthy="x")).drain


async def test_s42_what_a_health_check_truly_calls_unhealthy_is_kept_as_failed(world: World) -> None:
    """In its own words, whatever the request says."""
    await world.hold_cluster_lease()
    await world.install_kinds()
    await world.add_check(duration="60s")
    told = await hold(world, machine=None, wish=Wish(automatic=True), unhealthy="x")
    assert (told.drain, told.phase) == (True, "Failed:Preserved")
    again = await hold(world, machine=None, drained=True, unhealthy="x")
    assert (again.phase, again.drain) == ("Failed:Preserved", False)
    await world.others.delete(CHECKS.path("workers"))
    still = await hold(world, machine=None, drained=True, unhealthy="x")
    assert still.phase == "Failed:Preserved"  # a check that is gone makes nobody well (S25)
