"""Deleting and counting what stands against a node: what is in the way goes, what belongs to the node stays."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from activities.cluster.acts.failed_volumes import ClusterFailedVolumes
from activities.cluster.acts.freeing import PARALLEL_DELETES
from activities.cluster.api.paths import CONFIG_MAPS
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.remediation import FailedVolumes, FailedVolumesRequest
from activities.contracts.target import FreeResult, Workload, WorkloadRequest
from activities.errors import ErrorType
from activities.worker_clock import ATTEMPT_ENDS
from policy.episode.messages import Need, NeedKind
from policy.values.object_refs import ObjectRef
from simulator.api.control.faults import Accident, Fault
from simulator.client import PatchType
from simulator.objects import timestamp
from simulator.resources import ATTACHMENTS, CLAIMS, CUSTOM_RESOURCE_DEFINITIONS, EVENTS, NODES, PODS, Resource
from tests.cluster.acts.world import CHECK_REF, CLUSTER, NODE, NOW, TEMPLATE_NAMESPACE, World, refused
from tests.documents import document
from tests.policy.builders import a_cluster_config, a_policy
from workers.payloads.converter import DATA_CONVERTER

EVERYTHING_TOLERATED = {"operator": "Exists"}
OUT_OF_SERVICE_TOLERATED = {"key": "node.kubernetes.io/out-of-service", "operator": "Exists", "effect": "NoExecute"}


@pytest.fixture
async def off(world: World) -> World:
    """A marked node that is proven off."""
    await world.hold_cluster_lease()
    await world.mark_as_ours()
    return world


async def delete(world: World) -> FreeResult:
    return await world.freeing.delete_workload(await world.free())


async def count(world: World) -> Workload:
    return await world.freeing.read_workload(WorkloadRequest(target=await world.pinned()))


class TestDeleting:
    async def test_pods_go_at_once_and_their_volumes_after_them(self, off: World) -> None:
        """S31: without force they would stay Terminating for as long as the node is down."""
        await off.add_volume("data")
        await off.add_pod("db-0", claims=("data",))
        await off.add_pod("web")
        result = await delete(off)
        assert (result.deleted_pods, result.deleted_attachments) == (2, 1)
        assert result.left == Workload(pods=0, attachments=0)
        assert await off.pods() == []
        assert await off.attachments() == []
        writes = off.writes
        assert (await delete(off), off.writes) == (FreeResult(), writes), "S33: a second round finds nothing"

    async def test_mirror_and_daemon_set_pods_are_left(self, off: World) -> None:
        """S29; and finished ones are left to their owners."""
        await off.add_pod("kube-proxy", mirror=True)
        await off.add_pod("logs", owner="DaemonSet")
        await off.add_pod("job", phase="Succeeded")
        await off.add_pod("crash", phase="Failed")
        await off.add_pod("web", owner="ReplicaSet")
        assert (await delete(off)).deleted_pods == 1
        assert await off.pods() == ["crash", "job", "kube-proxy", "logs"]

    @pytest.mark.parametrize("phase", ["Running", "Failed"])
    async def test_a_pod_that_others_deleted_gently_is_forced(self, off: World, phase: str) -> None:
        """S31: terminating on a node that is off means for ever; its StatefulSet waits until it has vanished, whatever its
        phase."""
        await off.add_pod("db-0")
        await off.others.delete(PODS.path("db-0", namespace="default"))
        await off.others.patch(PODS.path("db-0", namespace="default", subresource="status"), {"status": {"phase": phase}})
        assert (await count(off)).pods == 1
        assert (await delete(off)).deleted_pods == 1
        assert await off.pods() == []

    async def test_a_namesake_that_runs_elsewhere_by_now_is_not_touched(self, off: World) -> None:
        """S9: a StatefulSet's member has the same name again within milliseconds; only its uid differs."""
        await off.add_pod("db-0")

        async def it_moves() -> None:
            await off.others.delete(PODS.path("db-0", namespace="default"), grace_seconds=0)
            await off.add_pod("db-0", node="node-8")

        off.connection.before_writes.append(it_moves)
        assert (await delete(off)).deleted_pods == 0
        assert await off.pods() == ["db-0"]

    async def test_an_attachment_that_was_made_anew_is_not_touched(self, off: World) -> None:
        """S9."""
        await off.add_attachment("va", volume="pv")

        async def it_is_replaced() -> None:
            await off.others.delete(ATTACHMENTS.path("va"))
            await off.add_attachment("va", volume="pv", node="node-8")

        off.connection.before_writes.append(it_is_replaced)
        assert (await delete(off)).deleted_attachments == 0
        assert await off.attachments() == ["va"]

    @pytest.mark.parametrize("over", ["its time", "its attempt"])
    async def test_a_round_ends_when_its_time_is_over(self, off: World, over: str) -> None:
        """S2, S20: the reading that licensed the first deletes is no longer fresh; the next round needs another. S45: nor does it
        go on where Temporal has given the attempt up by then."""
        for number in range(2 * PARALLEL_DELETES):
            await off.add_pod(f"web-{number:02}")
        await off.add_volume("data")

        def time_passes() -> None:
            off.now += timedelta(minutes=1) if off.writes == PARALLEL_DELETES else timedelta(0)

        off.server.requests.reset()
        off.connection.after_writes = time_passes
        short, long = NOW + timedelta(seconds=30), NOW + timedelta(minutes=5)
        token = ATTEMPT_ENDS.set(short if over == "its attempt" else long)
        try:
            result = await off.freeing.delete_workload(await off.free(not_after=short if over == "its time" else long))
        finally:
            ATTEMPT_ENDS.reset(token)
        assert result.deleted_pods == PARALLEL_DELETES
        assert result.deleted_attachments == 0
        assert result.left.pods == PARALLEL_DELETES

    async def test_under_a_limit_no_more_go_than_the_portion_and_none_without_one(self, off: World) -> None:
        """Who only asks is told what the limit is. What has gone but for a finalizer is no part of a portion."""
        await off.others.create(CONFIG_MAPS.path(namespace="nodewarden"), a_cluster_config(policies="slowly"))
        await off.others.create(CONFIG_MAPS.path(namespace="nodewarden"), a_policy("slowly", pods_per_minute=2))
        for name in ("a", "b", "c"):
            await off.add_pod(name)
        await off.add_pod("held", finalizers=("example.io/keep",))
        await off.others.delete(PODS.path("held", namespace="default"))
        without = await delete(off)
        assert (without.deleted_pods, without.left.pods, without.left.per_minute) == (0, 4, 2)
        assert (await count(off)).per_minute == 2
        with refused(ErrorType.NOT_LICENSED, "only 2 pods may be freed in a minute"):
            await off.freeing.taint_out_of_service(await off.free())
        for portion, left in ((2, 2), (2, 1)):
            result = await off.freeing.delete_workload(replace(await off.free(), at_most=portion))
            assert (result.deleted_pods, result.left.pods) == (2, left)
        assert await off.pods() == ["held"]
        assert (result.left.pods, result.left.forced) == (1, 1)
        off.server.requests.reset()
        assert (await off.freeing.delete_workload(replace(await off.free(), at_most=0))).left.forced == 1

    async def test_s41_under_a_limit_pods_that_a_tenant_goes_on_binding_to_it_take_no_turn_of_others(self, off: World) -> None:
        """By their names they come first, and no kubelet has taken them up: there is nothing to free of them."""
        await off.others.create(CONFIG_MAPS.path(namespace="nodewarden"), a_cluster_config(policies="slowly"))
        await off.others.create(CONFIG_MAPS.path(namespace="nodewarden"), a_policy("slowly", pods_per_minute=2))
        await off.add_pod("db-0")
        for minute in range(5):
            for number in range(2):
                await off.add_pod(f"a-{minute}-{number}", phase="Pending")
            await off.freeing.delete_workload(replace(await off.free(), at_most=2))
        assert "db-0" not in await off.pods()

    async def test_a_node_that_comes_back_during_the_round_keeps_its_volumes(self, off: World) -> None:
        """S6."""
        await off.add_volume("data")
        await off.add_pod("db-0", claims=("data",))
        off.connection.before_writes.append(lambda: off.set_ready("True", boot_id="boot-2"))
        with refused(ErrorType.NOT_PROVEN):
            await delete(off)
        assert await off.attachments() == ["va-data"]

    async def test_missing_rights_are_said_when_nothing_can_be_done(self, off: World) -> None:
        await off.add_pod("web")
        off.server.faults.add(Fault(accident=Accident.STATUS, method="DELETE", status=403))
        with refused(ErrorType.FORBIDDEN):
            await delete(off)
        assert await off.pods() == ["web"]

    async def test_one_pod_that_resists_does_not_hide_what_was_done(self, off: World) -> None:
        await off.add_pod("resists")
        await off.add_pod("web")
        off.server.faults.add(Fault(accident=Accident.STATUS, method="DELETE", path="/pods/resists", status=500))
        result = await delete(off)
        assert result.deleted_pods == 1
        assert result.left.names == ("default/resists",)


class TestVolumes:
    async def test_the_volume_of_a_pod_that_is_still_there_is_not_removed(self, off: World) -> None:
        await off.add_volume("data")
        await off.add_pod("db-0", claims=("data",), finalizers=("example.io/keep",))
        first = await delete(off)
        assert first.deleted_attachments == 0
        assert (first.left.pods, first.left.attachments) == (1, 1)
        await off.others.patch(PODS.path("db-0", namespace="default"), {"metadata": {"finalizers": None}})
        second = await delete(off)
        assert (second.deleted_attachments, second.left.attachments) == (1, 0)

    async def test_the_volume_of_a_daemon_set_pod_stays_and_does_not_count(self, off: World) -> None:
        """S29: it would be attached again at once."""
        await off.add_volume("cache")
        await off.add_pod("logs", owner="DaemonSet", claims=("cache",))
        result = await delete(off)
        assert result.deleted_attachments == 0
        assert result.left == Workload(pods=0, attachments=0)
        assert await off.attachments() == ["va-cache"]

    async def test_a_volume_that_cannot_be_traced_is_left_and_counts(self, off: World) -> None:
        """S3: a doubt is never "nothing is left"."""
        await off.add_attachment("va", volume="pv")
        await off.add_pod("logs", owner="DaemonSet", claims=("unknown",))
        result = await delete(off)
        assert result.deleted_attachments == 0
        assert result.left.attachments == 1

    async def test_s41_a_claim_that_there_never_was_holds_up_no_other_volume(self, off: World) -> None:
        """A tenant bound a pod to the silent node, by name and as its mirror, with a claim that is not there: no volume of others
        was freed. No kubelet had taken it up, so that it uses none."""
        await off.add_volume("data")
        await off.add_pod("db-0", claims=("data",))
        await off.add_pod("tenants", mirror=True, claims=("none",), phase="Pending")
        result = await off.freeing.delete_workload(await off.free())
        assert (result.deleted_attachments, result.left.attachments) == (1, 0)

    @pytest.mark.parametrize("finalizers", [(), ("example.io/keep",)], ids=["mirror", "never goes"])
    async def test_s41_a_claim_that_names_a_volume_of_others_keeps_none_of_theirs(
        self, off: World, finalizers: tuple[str, ...]
    ) -> None:
        """S1: which claim a volume is bound to the volume says, which no tenant writes. A claim may name any."""
        await off.add_volume("data")
        await off.add_pod("db-0", claims=("data",))
        await off.add_claim("forged", "pv-data")
        await off.add_pod("tenants", mirror=not finalizers, claims=("forged",), finalizers=finalizers)
        result = await off.freeing.delete_workload(await off.free())
        assert (result.deleted_attachments, result.left.attachments) == (1, 0)

    async def test_s41_a_claim_that_was_taken_away_in_use_keeps_its_own_volume_alone(self, off: World) -> None:
        """Its finalizer was stripped while its pod stays: no volume of others was freed any more. Its own may be in use."""
        for claim in ("data", "tenants"):
            await off.add_volume(claim)
        await off.add_pod("db-0", claims=("data",))
        await off.add_pod("tenants", claims=("tenants",), finalizers=("example.io/keep",))
        await off.others.delete(CLAIMS.path("tenants", namespace="default"))
        for deleted in (1, 0):
            assert (await off.freeing.delete_workload(await off.free())).deleted_attachments == deleted
        assert await off.attachments() == ["va-tenants"]

    async def test_the_claim_of_an_ephemeral_volume_is_traced(self, off: World) -> None:
        await off.add_volume("logs-scratch")
        pod = await off.add_pod("logs", owner="DaemonSet")
        await off.others.delete(PODS.path("logs", namespace="default"), grace_seconds=0)
        template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
        pod["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
        pod["metadata"] = {key: pod["metadata"][key] for key in ("name", "namespace", "ownerReferences")}
        await off.others.create(PODS.path(namespace="default"), pod)
        assert (await delete(off)).deleted_attachments == 0
        assert await off.attachments() == ["va-logs-scratch"]

    @pytest.mark.parametrize("stays", [{"mirror": True}, {"owner": "DaemonSet"}], ids=["as a mirror", "as a DaemonSet's"])
    async def test_s41_a_pod_that_no_kubelet_has_taken_up_keeps_no_disk_of_others(
        self, off: World, stays: dict[str, Any]
    ) -> None:
        """Who may create pods in any namespace binds one to the silent node that names some disk in its own spec. The attachment
        of another one's pod, with a disk in its own spec as well, names no PersistentVolume."""
        source = {"inlineVolumeSpec": {"csi": {"volumeHandle": "vol-1"}}}
        spec = {"attacher": "ebs.csi.aws.com", "nodeName": NODE, "source": source}
        await off.others.create(ATTACHMENTS.path(), {"metadata": {"name": "va-inline"}, "spec": spec})
        disk = {"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}}
        await off.add_pod("db-0", volumes=(disk,))
        await off.add_pod("mine", volumes=({**disk, "awsElasticBlockStore": {"volumeID": "vol-9"}},), phase="Pending", **stays)
        result = await delete(off)
        assert (result.deleted_pods, result.deleted_attachments) == (1, 1)

    @pytest.mark.parametrize(
        ("named", "handle"),
        [
            ({"awsElasticBlockStore": {"volumeID": "aws://eu-west-1a/vol-9"}}, "vol-9"),
            ({"gcePersistentDisk": {"pdName": "disk-9"}}, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk-9"),
            ({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/s/disks/d"}}, "/subscriptions/s/disks/d"),
            ({"vsphereVolume": {"volumePath": "[store] kubevols/nine.vmdk"}}, "[store] kubevols/nine.vmdk"),
        ],
    )
    async def test_s41_a_pod_that_stays_keeps_the_disk_of_its_own_spec_and_none_of_others(
        self, off: World, named: dict[str, Any], handle: str
    ) -> None:
        """A person who may create a DaemonSet, or says so of a pod, has a pod that stays, and ran. It names a disk of its own,
        and kept each attachment on the node that names no PersistentVolume."""
        for name, of in (("va-others", "vol-1"), ("va-own", handle)):
            source = {"inlineVolumeSpec": {"csi": {"driver": "disks.example", "volumeHandle": of}}}
            spec = {"attacher": "disks.example", "nodeName": NODE, "source": source}
            await off.others.create(ATTACHMENTS.path(), {"metadata": {"name": name}, "spec": spec})
        await off.add_pod("db-0", volumes=({"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}},))
        await off.add_pod("tenants", owner="DaemonSet", volumes=({"name": "d", **named},))
        result = await delete(off)
        assert (result.deleted_attachments, result.left.attachments) == (1, 0)
        assert await off.attachments() == ["va-own"]

    async def test_s41_the_name_of_an_owner_that_a_tenant_invents_makes_no_answer_too_long(self, off: World) -> None:
        """Temporal refuses an answer of more than 2 MiB: the fencing of the node would stand still for all that runs there."""
        for number in range(2):
            name = f"{number}" + "x" * 1_200_000
            await off.add_pod(f"mine-{number}", owner="ReplicaSet", owner_name=name, finalizers=("example.io/keep",))
        answer = DATA_CONVERTER.payload_converter.to_payload(await delete(off))
        assert len(answer.data) < 512 * 1024

    async def test_a_removal_that_waits_for_the_attacher_is_asked_for_once(self, off: World) -> None:
        """S33."""
        await off.add_attachment("va", volume="pv", finalizer=True)
        first, second = await delete(off), await delete(off)
        assert (first.deleted_attachments, second.deleted_attachments) == (1, 0)
        assert second.left.attachments == 1


class TestNodeThatIsGone:
    """S9: its pods and volumes may be freed by name, as long as no other Node has taken the name."""

    async def test_what_was_bound_to_it_is_freed(self, off: World) -> None:
        await off.add_volume("data")
        await off.add_pod("db-0", claims=("data",))
        request = await off.free()
        await off.delete_node()
        assert (await off.freeing.read_workload(WorkloadRequest(target=request.target))).pods == 1
        result = await off.freeing.delete_workload(request)
        assert (result.deleted_pods, result.deleted_attachments) == (1, 1)

    async def test_a_namesake_that_registers_after_the_list_protects_its_pods(self, off: World) -> None:
        request = await off.free()
        await off.delete_node()
        await off.add_pod("old")
        read = off.connection.get_bytes

        async def a_namesake_registers(path: str, **options: Any) -> bytes:
            if path.endswith(f"/nodes/{NODE}") and "young" not in await off.pods():
                await off.add_node()
                await off.add_pod("young")
            return await read(path, **options)

        off.connection.get_bytes = a_namesake_registers  # type: ignore[method-assign]
        with refused(ErrorType.TARGET_CHANGED):
            await off.freeing.delete_workload(request)
        assert await off.pods() == ["old", "young"]


class TestCounting:
    async def test_only_what_is_in_the_way_counts(self, off: World) -> None:
        await off.add_volume("data")
        await off.add_pod("db-0", claims=("data",))
        await off.add_pod("kube-proxy", mirror=True)
        await off.add_pod("logs", owner="DaemonSet")
        await off.add_pod("job", phase="Succeeded")
        names = ("default/db-0", "VolumeAttachment/va-data")
        assert await count(off) == Workload(pods=1, attachments=1, names=names, workloads=("default/db-0",))
        assert off.writes == 0

    @pytest.mark.parametrize("toleration", [EVERYTHING_TOLERATED, OUT_OF_SERVICE_TOLERATED])
    async def test_a_pod_that_was_told_to_stay_does_not_count_nor_its_volume(
        self, off: World, toleration: dict[str, Any]
    ) -> None:
        """No taint will ever make it go."""
        await off.add_volume("data")
        await off.add_pod("agent", claims=("data",), tolerations=(toleration,))
        assert await count(off) == Workload(pods=0, attachments=0)

    async def test_other_tolerations_do_not_keep_a_pod(self, off: World) -> None:
        others = {
            "for-a-while": {**OUT_OF_SERVICE_TOLERATED, "tolerationSeconds": 30},
            "another-taint": {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
            "another-value": {"key": "node.kubernetes.io/out-of-service", "operator": "Equal", "value": "other"},
            "another-effect": {**OUT_OF_SERVICE_TOLERATED, "effect": "NoSchedule"},
        }
        for name, toleration in others.items():
            await off.add_pod(name, tolerations=(toleration,))
        assert (await count(off)).workloads == tuple(sorted(f"default/{name}" for name in others))

    async def test_pods_whose_names_are_made_up_anew_are_known_by_their_owner(self, off: World) -> None:
        """What stood against the node at one incident is compared with what stood there at the next."""
        for number in range(2):
            await off.add_pod(f"web-5d9c-{number}xk2p", owner="ReplicaSet")
        await off.add_pod("db-0", owner="StatefulSet")
        await off.add_pod("bare")
        assert (await count(off)).workloads == ("default/ReplicaSet/owner", "default/bare", "default/db-0")


# Which volumes of a node have failed: read from its conditions, its Events, its attachments and the claims of its pods, live.

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
        await world.add_volume(claim, node=node, **source)
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


async def test_s41_a_claim_that_only_names_a_failed_volume_keeps_no_one_from_detaching_it(volumes: World) -> None:
    """A mirror pod of a tenant was said to mount it, and to belong to the node, so that nothing was detached."""
    await volumes.add_claim("forged", "pv-gold")
    await volumes.add_pod("tenants", mirror=True, claims=("forged",))
    await say(volumes, "I/O error on vol-0a")
    failed = (await find(volumes)).failure
    assert (failed.refused, [pod.key for pod in failed.mounting]) == ("", ["default/db-0"])


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
