"""Freeing behind a cut path: only pods whose every volume lies there, and only while the path is proven cut (S1)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.acts.freeing import ClusterFreeing
from activities.cluster.api.paths import CONFIG_MAPS
from activities.contracts.target import FreeCutRequest, FreeResult
from activities.errors import ErrorType
from policy.episode.messages import PathProof, Reading
from policy.fence.plan import CutStorage
from policy.fence.power import PowerState
from simulator.resources import VOLUMES
from tests.cluster.acts.world import CLUSTER, NODE, NOW, World, our_mark, refused
from tests.policy.fencing_builders import a_cluster_config, a_policy

PORT = "fence_brocade://switch-1/2"
SAN = CutStorage(classes=("san-gold",))


@pytest.fixture
async def cut(world: World) -> World:
    """A marked node with a pod on the SAN, and one beside it."""
    await world.hold_cluster_lease()
    await world.mark_as_ours(paths=(PORT,))
    for claim, storage_class in (("gold", "san-gold"), ("local", "local-ssd")):
        await world.add_volume(claim)
        await add_persistent_volume(world, f"pv-{claim}", storage_class)
    return world


async def add_persistent_volume(world: World, name: str, storage_class: str) -> None:
    spec: dict[str, Any] = {
        "storageClassName": storage_class,
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "csi.example", "volumeHandle": f"handle-{name}"},
    }
    await world.others.create(VOLUMES.path(), {"metadata": {"name": name}, "spec": spec})


def proof(*, state: PowerState = PowerState.OFF, endpoint: str = PORT, read_at: timedelta = timedelta(seconds=-5)) -> PathProof:
    reading = Reading(endpoint=endpoint, state=state, at=NOW + read_at)
    return PathProof(commanded_at=NOW - timedelta(seconds=20), readings=(reading,))


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


async def test_attachments_of_cut_volumes_go_once_nobody_uses_them(cut: World) -> None:
    await cut.add_pod("db-0", claims=("gold",))
    assert (await free(cut)).deleted_attachments == 1
    assert await cut.attachments() == ["va-local"]


@pytest.mark.parametrize(
    ("storage", "freed"),
    [
        (CutStorage(classes=("san-silver",)), 0),
        (CutStorage(drivers=("csi.other",)), 0),
        (CutStorage(handles=("handle-pv-local",)), 0),
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


async def test_a_node_that_says_ready_and_has_nothing_behind_the_cut_is_nobody_s_loss(cut: World) -> None:
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
    freeing = ClusterFreeing(CLUSTER, cut.connection, cut.target.last_look, own_node=NODE, clock=cut.clock)
    with refused(ErrorType.OWN_NODE):
        await freeing.free_cut_pods(await request(cut))
