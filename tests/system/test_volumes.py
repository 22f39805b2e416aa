"""Volumes of EC2 that are taken from a node: because applications crash by one, as the node-fencing proposal has it, and from a
node that is kept and cut off. In one file, as each process would load moto, for four seconds of a processor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from demo.manifests import power_device
from policy.episode.messages import Outcome, Phase
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import ISOLATION_ANNOTATION
from policy.preservation.requests import ISOLATE_ANNOTATION
from simulator.client import PatchType
from simulator.control import describe
from simulator.objects import JsonObject, is_ready, is_terminating, key_of, name_of, node_of, uid_of
from simulator.platforms.aws import Aws
from simulator.resources import NODES, Resource
from tests.system.fixtures import Standing
from tests.system.harness import CHECKS, TEMPLATE_NAMESPACE, TEMPLATES, System
from tests.system.questions import acts, commands, episode, in_phase, traces

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

VICTIM = "demo/database-0"
DETACHMENTS = Resource(api_version="nodewarden.io/v1alpha1", kind="VolumeDetachmentTemplate", plural="volumedetachmenttemplates")
UNAVAILABLE = "VolumeUnavailable"


@pytest.fixture
async def system(standing: Standing) -> AsyncIterator[System]:
    """Two workers in one zone, so that pods that crash share a node with the volume."""
    shape = {"nodes": 2, "zones": 1, "platform": "aws", "own_disks": True}
    async with standing(**shape) as running:
        await running.start_worker()
        kind = {"apiVersion": DETACHMENTS.api_version, "kind": DETACHMENTS.kind}
        template = {**kind, "metadata": {"name": "volumes"}, "spec": {"template": {"spec": {"conditions": [UNAVAILABLE]}}}}
        await running.client.create(DETACHMENTS.path(namespace=TEMPLATE_NAMESPACE), template)
        rung = {"order": 0, "timeout": "5m", "remediationTemplate": {**kind, "namespace": TEMPLATE_NAMESPACE, "name": "volumes"}}
        unhealthy = {"type": UNAVAILABLE, "status": "True", "duration": "1s"}
        check = running.health_check({"escalatingRemediations": [rung], "unhealthyConditions": [unhealthy], "minHealthy": 1})
        del check["spec"]["remediationTemplate"]
        await running.client.create(TEMPLATES.path(namespace=TEMPLATE_NAMESPACE), running.fencing_template())
        await running.client.create(CHECKS.path(), check)
        await running.start_scanner()
        yield running


def disk_of(system: System, claim: str) -> str:
    """The EBS volume of a claim."""
    found = system.cluster.view.claims.get(claim)
    assert found is not None
    volume = system.cluster.view.volumes.get(found["spec"]["volumeName"])
    assert volume is not None
    return str(volume["spec"]["csi"]["volumeHandle"])


async def say(system: System, node: str, status: str, message: str = "") -> None:
    """As node-problem-detector does."""
    condition = {"type": UNAVAILABLE, "status": status, "reason": "VolumeIOErrors", "message": message}
    body = {"status": {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    await system.client.patch(NODES.path(node, subresource="status"), body, patch_type=PatchType.STRATEGIC_MERGE)


def boot_of(system: System, node: str) -> str:
    there = system.cluster.view.nodes.get(node)
    assert there is not None
    return str(there["status"]["nodeInfo"]["bootID"])


def pods_of(system: System, node: str) -> list[JsonObject]:
    return [pod for pod in system.cluster.view.pods_by_node[node] if not is_terminating(pod)]


async def test_the_failed_volume_goes_with_its_pods_and_the_machine_is_restarted_once(system: System) -> None:
    """S1, S30: evicted and never deleted, one writer at any moment, that volume only, and one off and on."""
    cluster, platform = system.cluster, system.cluster.platform
    assert isinstance(platform, Aws)
    node, disk = system.node_of_pod(VICTIM), disk_of(system, "demo/data-database-0")
    there = pods_of(system, node)
    crashing, *beside = sorted(key_of(pod) for pod in there if key_of(pod).startswith("demo/web"))
    boot, uids = boot_of(system, node), {key_of(pod): uid_of(pod) for pod in there}
    others = {uid_of(pod) for pod in there} - {uids[VICTIM], uids[crashing]}
    assert beside
    await say(system, node, "True", f"I/O errors on {disk}; crashing because of it: {crashing}")

    def runs_elsewhere() -> bool:
        pod = cluster.view.pods.get(VICTIM)
        return pod is not None and is_ready(pod) and node_of(pod) not in {"", node}

    await system.until(runs_elsewhere, f"{VICTIM} runs elsewhere", seconds=40)
    assert platform.cloud.holder(disk) == platform.instances[system.node_of_pod(VICTIM)]
    await system.until(lambda: boot_of(system, node) != boot, f"{node} has booted anew", seconds=40)
    await say(system, node, "False")
    result = await episode(system, node).result()
    assert result.outcome is Outcome.RECOVERED, result.message
    assert cluster.storage.violations == []
    assert [entry.command for entry in commands(system, node)] == ["off", "on"]
    asked = await acts(system, node)
    order = ["remediation.find-volumes", "isolation.list-volumes", "isolation.mark-unschedulable", "isolation.drain"]
    assert [act for act in asked if act in order][:4] == order
    assert "power-management.delete-workload" not in asked
    gone = {each.uid for each in system.witness.consequences if each.what == "eviction of pod" and each.node == node}
    assert gone == {uids[VICTIM], uids[crashing]}
    assert {uid_of(pod) for pod in pods_of(system, node)} >= others, "whoever has nothing to do with it stays"
    assert await traces(system, node) == []
    assert [name_of(each) for each in cluster.view.nodes if each["spec"].get("unschedulable")] == []


# Preserve and isolate on instances of EC2 whose volumes are EBS: a node that fell silent is kept, powered, and its work goes on.
#
# Its kubelet is dead and its containers write on: without the cut, whoever frees their pods has two writers (S1, S31).


@pytest.fixture
async def preserving(standing: Standing) -> AsyncIterator[System]:
    """Three instances in one zone, for a volume can't leave its own."""
    shape = {"nodes": 4, "zones": 1, "platform": "aws", "own_disks": True}
    async with standing(**shape) as running:
        await running.start_worker()
        await running.apply_policy(plan={"power": [power_device(describe(running.cluster))]}, check={"minHealthy": 1})
        await running.start_scanner()
        yield running


async def test_a_silent_node_is_kept_and_what_wrote_there_runs_elsewhere_with_its_volume(preserving: System) -> None:
    """S1, S21, S31: no power command, one writer at any moment, and the volume in the hands of another instance."""
    platform = preserving.cluster.platform
    assert isinstance(platform, Aws)
    node, disk = preserving.node_of_pod(VICTIM), disk_of(preserving, "demo/data-database-0")
    assert platform.cloud.holder(disk) == platform.instances[node]
    asked = {PRESERVE_ANNOTATION: "now", ISOLATE_ANNOTATION: "true"}
    await preserving.client.patch(NODES.path(node), {"metadata": {"annotations": asked}})
    await in_phase(preserving, node, Phase.RUNNING_PRESERVED)
    preserving.break_node(node, "kubelet-stops")

    async def is_cut() -> bool:
        annotations = (await preserving.live_node(node))["metadata"]["annotations"]
        return annotations.get(ISOLATION_ANNOTATION) == "cut"

    await preserving.until(is_cut, f"{node} is cut off", seconds=60)

    def runs_elsewhere() -> bool:
        pod = preserving.cluster.view.pods.get(VICTIM)
        return pod is not None and is_ready(pod) and node_of(pod) != node

    await preserving.until(runs_elsewhere, f"{VICTIM} runs elsewhere", seconds=30)
    assert platform.cloud.holder(disk) == platform.instances[preserving.node_of_pod(VICTIM)]
    assert preserving.cluster.storage.violations == []
    assert commands(preserving, node) == []
    status = await in_phase(preserving, node, Phase.FAILED_PRESERVED)
    assert not status.permit
    assert any(volume.volume == disk for proof in status.path_proofs for volume in proof.volumes)
