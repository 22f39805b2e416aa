"""Which volumes of a node have failed: read from its conditions, its Events, its attachments and the claims of its pods, live."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from activities.cluster.acts.failed_volumes import ClusterFailedVolumes
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.remediation import FailedVolumes, FailedVolumesRequest
from activities.errors import ErrorType
from policy.episode.messages import Need, NeedKind
from policy.values.object_refs import ObjectRef
from simulator.client import PatchType
from simulator.objects import timestamp
from simulator.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, NODES, VOLUMES, Resource
from tests.cluster.acts.world import CHECK_REF, CLUSTER, NODE, NOW, TEMPLATE_NAMESPACE, World, refused
from tests.documents import document

pytestmark = pytest.mark.timeout(10)

DETACHMENTS = Resource(api_version="nodewarden.io/v1alpha1", kind="VolumeDetachmentTemplate", plural="volumedetachmenttemplates")
TEMPLATE = ObjectRef(api_version=DETACHMENTS.api_version, kind=DETACHMENTS.kind, name="volumes", namespace=TEMPLATE_NAMESPACE)
UNAVAILABLE, EVENT = "VolumeUnavailable", "VolumeIOError"
BY_CHECK = Need(kind=NeedKind.CHECK, reason="VolumeUnavailable is True", check=CHECK_REF)


@pytest.fixture
async def volumes(world: World) -> World:
    """Two volumes on the node and one elsewhere, pods that mount them, and pods that don't."""
    definition = document("deploy/crds/volumedetachmenttemplates.nodewarden.io.yaml")
    await world.others.create(CUSTOM_RESOURCE_DEFINITIONS.path(), definition)
    spec = {"template": {"spec": {"conditions": [UNAVAILABLE, EVENT], "evictionTimeout": "90s"}}}
    template = {"apiVersion": DETACHMENTS.api_version, "kind": DETACHMENTS.kind, "metadata": {"name": "volumes"}, "spec": spec}
    await world.others.create(DETACHMENTS.path(namespace=TEMPLATE_NAMESPACE), template)
    for claim, node, source in (
        ("gold", NODE, {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0a"}}),
        ("old", NODE, {"awsElasticBlockStore": {"volumeID": "aws://eu-west-1a/vol-0b"}}),
        ("far", "node-8", {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-0c"}}),
    ):
        await world.add_volume(claim, node=node)
        body = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source}
        await world.others.create(VOLUMES.path(), {"metadata": {"name": f"pv-{claim}"}, "spec": body})
    await world.add_pod("db-0", claims=("gold",))
    await world.add_pod("archive", claims=("old",))
    await world.add_pod("done", claims=("gold",), phase="Succeeded")
    await world.add_pod("client", owner="ReplicaSet")
    await world.add_pod("web", owner="ReplicaSet")
    await world.add_pod("far-client", node="node-8")
    return world


async def say(world: World, message: str, *, kind: str = UNAVAILABLE, status: str = "True") -> None:
    """As node-problem-detector does."""
    condition = {"type": kind, "status": status, "reason": "IOErrors", "message": message}
    body = {"status": {"conditions": [condition]}}
    await world.others.patch(NODES.path(NODE, subresource="status"), body, patch_type=PatchType.STRATEGIC_MERGE)


async def tell(world: World, message: str, at: datetime, *, reason: str = EVENT) -> None:
    about = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": NODE}
    event = {"metadata": {"generateName": "e-"}, "involvedObject": about, "reason": reason, "message": message}
    await world.others.create(EVENTS.path(namespace="default"), {**event, "type": "Warning", "lastTimestamp": timestamp(at)})


async def find(world: World, *, template: ObjectRef | None = TEMPLATE, need: Need = BY_CHECK, **target: Any) -> FailedVolumes:
    activity = ClusterFailedVolumes(ServedCluster(CLUSTER, world.connection, clock=world.clock))
    pinned = await world.pinned(**target)
    return await activity.find_volumes(FailedVolumesRequest(target=pinned, need=need, template=template))


async def test_a_condition_names_the_volume_and_who_crashes_and_its_claim_who_mounts_it(volumes: World) -> None:
    """The proposal's example: both kinds of pods; whoever has nothing to do with it is not named."""
    await say(volumes, "I/O errors on vol-0a: default/client, default/far-client crash")
    found = await find(volumes)
    assert [(each.name, each.handle) for each in found.failure.volumes] == [("pv-gold", "vol-0a")]
    assert [each.key for each in found.failure.mounting] == ["default/db-0"]
    assert [each.key for each in found.failure.crashing] == ["default/client"]
    assert found.eviction_timeout == timedelta(seconds=90)
    assert found.messages[0].by == UNAVAILABLE
    assert volumes.writes == 0


async def test_a_recent_event_tells_as_much_as_a_condition_and_an_old_one_nothing(volumes: World) -> None:
    await tell(volumes, "vol-0a: Input/output error", NOW - timedelta(minutes=9))
    await tell(volumes, "vol-0b: Input/output error", NOW - timedelta(minutes=11))
    await tell(volumes, "vol-0b was looked at", NOW, reason="Other")
    found = await find(volumes)
    assert [each.handle for each in found.failure.volumes] == ["vol-0a"]


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("I/O errors on vol-0c", "True"),  # another node's
        ("I/O errors on vol-0a", "False"),  # it was so
        ("I/O errors on vol-0a", "Unknown"),
        ("default/client crashes", "True"),
    ],
)
async def test_what_names_no_volume_attached_to_the_node_is_refused(volumes: World, message: str, status: str) -> None:
    """S9: nobody else's volume, and nothing on a doubt (S3)."""
    await say(volumes, message, status=status)
    found = await find(volumes)
    assert found.failure.refused
    assert (found.failure.volumes, found.failure.crashing) == ((), ())


async def test_without_a_template_the_check_s_own_condition_tells(volumes: World) -> None:
    await volumes.install_kinds()
    await volumes.add_check(unhealthyConditions=[{"type": UNAVAILABLE, "status": "True", "duration": "1s"}])
    await say(volumes, "I/O errors on vol-0a")
    await say(volumes, "I/O errors on vol-0b", kind="DiskTrouble")
    found = await find(volumes, template=None)
    assert [each.handle for each in found.failure.volumes] == ["vol-0a"]
    person = Need(kind=NeedKind.PERSON, reason="somebody asks", requester="ada")
    with refused(ErrorType.INVALID_CONFIG, "no health check says what ails the node"):
        await find(volumes, template=None, need=person)


async def test_a_template_that_is_not_there_or_another_node_of_the_name_is_an_error(volumes: World) -> None:
    """S9."""
    missing = ObjectRef(api_version=TEMPLATE.api_version, kind=TEMPLATE.kind, name="lost", namespace=TEMPLATE_NAMESPACE)
    with refused(ErrorType.INVALID_CONFIG, "lost does not exist"):
        await find(volumes, template=missing)
    target = await volumes.pinned()
    await volumes.others.delete(NODES.path(NODE))
    await volumes.add_node()
    with refused(ErrorType.TARGET_CHANGED, "another object now"):
        await find(volumes, pinned=target.pinned)
