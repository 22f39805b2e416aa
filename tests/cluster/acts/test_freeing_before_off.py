"""Freeing without a proof of off: pods whose every volume is behind a proven cut, and those of a node whose kernel dumps (S1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from activities.cluster.acts.freeing import ClusterFreeing
from activities.cluster.api.paths import CONFIG_MAPS
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.target import FreeCutRequest, FreeDumpingRequest, FreeResult
from activities.errors import ErrorType
from policy.episode.messages import PathProof, VolumeReading
from policy.fence.kdump import KdumpReading, KernelDead
from policy.fence.plan import CutStorage
from policy.fence.power import PowerState, VolumeState
from simulator.resources import NODES
from tests.cluster.acts.world import CLUSTER, NODE, NOW, SICK_SINCE, WHOSE, World, our_mark, read, refused
from tests.licensing import LICENCES
from tests.policy.builders import a_cluster_config, a_policy

PORT = "fence_brocade://switch-1/2"
SAN = CutStorage(classes=("san-gold",))


@pytest.fixture
async def cut(world: World) -> World:
    """A marked node with a pod on the SAN, and one beside it."""
    await world.hold_cluster_lease()
    await world.mark_as_ours(paths=(PORT,))
    for claim, storage_class in (("gold", "san-gold"), ("local", "local-ssd")):
        csi = {"driver": "csi.example", "volumeHandle": f"handle-pv-{claim}"}
        await world.add_volume(claim, storageClassName=storage_class, csi=csi)
    return world


def proof(*, state: PowerState = PowerState.OFF, endpoint: str = PORT, read_at: timedelta = timedelta(seconds=-5)) -> PathProof:
    return PathProof(commanded_at=NOW - timedelta(seconds=20), readings=(read(endpoint, state, at=NOW + read_at, levels=()),))


async def request(world: World, *, storage: CutStorage = SAN, proofs: tuple[PathProof, ...] | None = None) -> FreeCutRequest:
    target = await world.pinned()
    target = replace(target, pinned=replace(target.pinned, endpoints=(*target.pinned.endpoints, PORT)))
    free = await world.free(target)
    return FreeCutRequest(
        target=target,
        proofs=proofs if proofs is not None else (proof(),),
        storage=storage,
        not_after=free.not_after,
        holder=free.holder,
    )


async def free(world: World, **fields: Any) -> FreeResult:
    return await world.freeing.free_cut_pods(await request(world, **fields))


async def test_only_pods_whose_every_volume_is_cut_are_freed(cut: World) -> None:
    """S1."""
    await cut.add_pod("db-0", claims=("gold",))
    await cut.add_pod("both", claims=("gold", "local"))
    await cut.add_pod("other", claims=("local",))
    await cut.add_pod("web")
    result = await free(cut)
    assert (result.deleted_pods, result.left.pods) == (1, 0)
    assert await cut.pods() == ["both", "other", "web"]
    assert await cut.attachments() == ["va-gold", "va-local"]  # `both` may still write to the one it shares


async def test_under_a_limit_no_more_go_than_the_portion_and_none_without_one(cut: World) -> None:
    await cut.others.create(CONFIG_MAPS.path(namespace="nodewarden"), a_cluster_config(policies="slowly"))
    await cut.others.create(CONFIG_MAPS.path(namespace="nodewarden"), a_policy("slowly", pods_per_minute=1))
    for name in ("db-0", "db-1"):
        await cut.add_pod(name, claims=("gold",))
    without = await free(cut)
    assert (without.deleted_pods, without.left.pods, without.left.per_minute) == (0, 2, 1)
    result = await cut.freeing.free_cut_pods(replace(await request(cut), at_most=1))
    assert (result.deleted_pods, result.left.pods) == (1, 1)
    assert await cut.attachments() == ["va-gold", "va-local"]


@pytest.mark.parametrize(
    ("storage", "freed"),
    [
        (CutStorage(classes=("san-silver",), drivers=("csi.other",), handles=("handle-pv-local",)), 0),
        (CutStorage(), 0),
        (CutStorage(drivers=("csi.example",)), 1),
        (CutStorage(handles=("handle-pv-gold",)), 1),
    ],
)
async def test_storage_is_named_by_class_driver_or_handle_and_no_other_is_behind_the_cut(
    cut: World, storage: CutStorage, freed: int
) -> None:
    """S1."""
    await cut.add_pod("db-0", claims=("gold",))
    assert (await free(cut, storage=storage)).deleted_pods == freed


@pytest.mark.parametrize(
    "pod",
    [
        {"claims": ("gold", "lost")},
        {"claims": ("gold",), "volumes": ({"name": "shared", "nfs": {"server": "nas", "path": "/"}},)},
        {"claims": ("gold",), "owner": "DaemonSet"},
        {"claims": ("gold",), "mirror": True},
    ],
    ids=["S1 nobody knows what it writes to", "S1 NFS goes past the port that was cut", "S29 of a DaemonSet", "S29 a mirror"],
)
async def test_a_pod_that_may_write_elsewhere_or_belongs_to_the_node_stays(cut: World, pod: dict[str, Any]) -> None:
    await cut.add_pod("db-0", **pod)
    assert (await free(cut)).deleted_pods == 0


@pytest.mark.parametrize(
    "proofs",
    [
        (),
        (proof(state=PowerState.ON),),
        (proof(state=PowerState.UNKNOWN),),
        (proof(endpoint="fence_brocade://switch-1/3"),),
        (proof(read_at=timedelta(seconds=-30)),),
        (PathProof(commanded_at=NOW - timedelta(seconds=20), readings=()),),
        (proof(), proof(state=PowerState.ON)),
    ],
    ids=["nothing", "open", "unknown", "another port", "read before the command", "not read", "one of two"],
)
async def test_without_the_proof_nothing_is_freed(cut: World, proofs: tuple[PathProof, ...]) -> None:
    """S1, S2, S3, S9."""
    await cut.add_pod("db-0", claims=("gold",))
    with refused(ErrorType.NOT_PROVEN, NODE):
        await free(cut, proofs=proofs)
    assert await cut.pods() == ["db-0"]


async def test_a_node_that_says_ready_or_is_another_s_loses_nothing(cut: World) -> None:
    """S1, S13."""
    await cut.add_pod("db-0", claims=("gold",))
    await cut.put_mark(replace(our_mark(), incident="another", workflow_id="episode/other").to_json())
    with refused(ErrorType.VETOED):
        await free(cut)
    assert await cut.pods() == ["db-0"]


async def test_a_node_that_says_ready_and_has_nothing_behind_the_cut_is_no_loss(cut: World) -> None:
    """A machine that failed may have a kubelet that is well: its pods were drained."""
    await cut.set_ready("True")
    result = await free(cut)
    assert (result.deleted_pods, result.left.pods) == (0, 0)
    await cut.add_pod("db-0", claims=("gold",))
    with refused(ErrorType.NOT_PROVEN):
        await free(cut)
    assert await cut.pods() == ["db-0"]


async def test_a_worker_frees_nothing_of_its_own_node_behind_a_cut(cut: World) -> None:
    """S16: whoever runs it is not cut off from what its pods write."""
    freeing = ClusterFreeing(
        ServedCluster(CLUSTER, cut.connection, own_node=NODE, clock=cut.clock), cut.target.last_look, LICENCES
    )
    with refused(ErrorType.OWN_NODE):
        await freeing.free_cut_pods(await request(cut))


ADDRESS = "10.0.0.7"
HEARD = KdumpReading(at=NOW, listening=SICK_SINCE, address=ADDRESS, last=NOW - timedelta(seconds=4), messages=3)
SEAL = LICENCES.sealed_dump(HEARD).seal
DEAD = KernelDead(address=ADDRESS, messages=3, last=NOW - timedelta(seconds=4), read_at=NOW, after=SICK_SINCE, seal=SEAL)


@pytest.fixture
async def dumping(world: World) -> World:
    """A marked node that is down, with a pod and a volume bound to it."""
    await world.hold_cluster_lease()
    await world.mark_as_ours(cordoned=True)
    await world.add_volume("data")
    await world.add_pod("db-0", claims=("data",))
    await world.change_node({"status": {"addresses": [{"type": "InternalIP", "address": ADDRESS}]}}, subresource="status")
    world.server.requests.reset()
    return world


async def dumping_request(world: World, proof: KernelDead = DEAD, **pinned: Any) -> FreeDumpingRequest:
    free, target = await world.free(), await world.pinned()
    target = replace(target, pinned=replace(target.pinned, **({"addresses": (ADDRESS,)} | pinned)))
    return FreeDumpingRequest(target=target, proof=proof, not_after=free.not_after, holder=free.holder)


async def assert_untouched(world: World) -> None:
    assert await world.pods() == ["db-0"]
    assert await world.attachments() == ["va-data"]
    assert world.writes == 0


async def test_its_pods_and_their_attachments_go(dumping: World) -> None:
    """S1: on a proof of its own kind."""
    result: FreeResult = await dumping.freeing.free_while_dumping(await dumping_request(dumping))
    assert (result.deleted_pods, result.deleted_attachments, result.left.pods) == (1, 1, 0)
    assert (await dumping.pods(), await dumping.attachments()) == ([], [])


@pytest.mark.parametrize(
    "proof",
    [
        replace(DEAD, address="10.0.0.8"),
        replace(DEAD, last=SICK_SINCE),
        replace(DEAD, after=SICK_SINCE - timedelta(seconds=1)),
        replace(DEAD, last=NOW - timedelta(seconds=16)),
    ],
    ids=["S9 another's address", "S6 before NotReady", "S6 another crash", "S2 too old"],
)
async def test_anything_less_is_no_proof(dumping: World, proof: KernelDead) -> None:
    with refused(ErrorType.NOT_PROVEN, NODE):
        await dumping.freeing.free_while_dumping(await dumping_request(dumping, proof))
    await assert_untouched(dumping)


Change = Callable[[World, FreeDumpingRequest], Awaitable[Any]]


async def _address_is_anothers(world: World, _: FreeDumpingRequest) -> None:
    addresses = [{"type": "InternalIP", "address": "10.0.0.9"}]
    await world.change_node({"status": {"addresses": addresses}}, subresource="status")


def _a_second_shows(address: str) -> Change:
    async def change(world: World, _: FreeDumpingRequest) -> None:
        await world.add_node("namesake", provider_id="metal://8", system_uuid="8", boot_id="boot-8")
        status = {"addresses": [{"type": "Hostname", "address": "namesake"}, {"type": "ExternalIP", "address": address}]}
        await world.others.patch(NODES.path("namesake", subresource="status"), {"status": status})

    return change


async def _nothing(_: World, __: FreeDumpingRequest) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "pinned", "kind", "words"),
    [
        (_nothing, {"not_ready_since": None}, ErrorType.NOT_PROVEN, NODE),
        (_nothing, {"boot_id": "the boot before"}, ErrorType.NOT_PROVEN, "has booted since"),
        (_address_is_anothers, {}, ErrorType.NOT_PROVEN, "no longer has the address"),
        (_a_second_shows(ADDRESS), {}, ErrorType.NOT_PROVEN, f"Node/namesake shows the address {ADDRESS}, too"),
        (_a_second_shows(f"::ffff:{ADDRESS}"), {}, ErrorType.NOT_PROVEN, f"Node/namesake shows the address {ADDRESS}, too"),
        (lambda world, _: world.delete_node(), {}, ErrorType.NOT_PROVEN, "whether its machine has booted"),
        (lambda world, _: world.put_mark(replace(our_mark(), incident="incident-2")), {}, ErrorType.VETOED, "incident-2"),
        (lambda world, asked: _wait(world, asked.not_after), {}, ErrorType.EXPIRED, ""),
    ],
    ids=[
        "S6 nothing says that the message is of this crash",
        "S6 a new boot id ends the licence",
        "S9 its address is another's by now",
        "S39 two Nodes show its address",
        "S39 two Nodes show its address, each in its own spelling",
        "S6 the power is on, so a Node that is gone says nothing",
        "S13 another episode's node",
        "S2 S20 its moments are over",
    ],
)
async def test_each_guard_holds_alone(
    dumping: World, change: Change, pinned: dict[str, Any], kind: ErrorType, words: str
) -> None:
    asked = await dumping_request(dumping, **pinned)
    await change(dumping, asked)
    with refused(kind, words):
        await dumping.freeing.free_while_dumping(asked)
    await assert_untouched(dumping)


async def _wait(world: World, until: datetime) -> None:
    world.now = until + timedelta(seconds=1)


async def test_a_worker_never_frees_the_node_it_runs_on(dumping: World) -> None:
    """S16: whoever asks is alive."""
    asked = await dumping_request(dumping)
    here = ClusterFreeing(
        ServedCluster("prod", dumping.connection, own_node=NODE, clock=dumping.clock), dumping.target.last_look, LICENCES
    )
    with refused(ErrorType.OWN_NODE):
        await here.free_while_dumping(asked)
    await assert_untouched(dumping)


async def test_a_node_that_comes_back_while_its_pods_go_keeps_its_volumes(cut: World) -> None:
    """S1, S6: it is looked at again before what it may use by then is taken from it."""
    await cut.add_pod("db-0", claims=("gold",))
    cut.connection.before_writes.append(lambda: cut.set_ready("True"))
    with refused(ErrorType.NOT_PROVEN, "says Ready"):
        await free(cut)
    assert await cut.attachments() == ["va-gold", "va-local"]


async def test_a_round_whose_time_is_over_tells_what_it_has_done(cut: World) -> None:
    """S2, S20: no volume goes after that, and the pods that went are no failure."""
    await cut.add_pod("db-0", claims=("gold",))
    cut.connection.after_writes = lambda: setattr(cut, "now", cut.now + timedelta(minutes=1))
    result = await free(cut)
    assert (result.deleted_pods, result.deleted_attachments) == (1, 0)
    assert await cut.attachments() == ["va-gold", "va-local"]


async def test_a_volume_of_which_nothing_was_read_is_not_behind_a_cut_of_others(cut: World) -> None:
    """S1, S3: one volume that is detached proves nothing of another."""
    await cut.add_pod("db-0", claims=("gold",))
    said = VolumeReading(volume="handle-pv-local", state=VolumeState.AVAILABLE, at=NOW)
    detached = PathProof(commanded_at=NOW - timedelta(seconds=9), volumes=(LICENCES.sealed_reading(WHOSE, said, NOW),))
    with refused(ErrorType.NOT_PROVEN, "not proven detached: handle-pv-gold"):
        await free(cut, storage=CutStorage(handles=("handle-pv-gold", "handle-pv-local")), proofs=(detached,))
    assert await cut.pods() == ["db-0"]


async def test_s41_names_that_no_claim_or_volume_has_keep_no_pod_of_others_where_it_is(cut: World) -> None:
    """The API takes any text as the name of a pod's claim, or of a claim's volume; no URL is that long, so that it can't be asked
    for."""
    await cut.add_pod("db-0", claims=("gold",))
    await cut.add_claim("odd", "x" * 1_200_000)
    await cut.add_pod("mine", claims=("odd", "x" * 1_200_000))
    assert (await free(cut)).deleted_pods == 1
