"""The example of the node-fencing proposal on EC2: applications crash because of a volume, so it goes, and its pods with it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from policy.episode.messages import Outcome
from simulator.client import PatchType
from simulator.objects import JsonObject, is_ready, is_terminating, key_of, name_of, node_of, uid_of
from simulator.platforms.aws import Aws
from simulator.resources import NODES, Resource
from tests.system.fixtures import Standing
from tests.system.harness import CHECKS, TEMPLATE_NAMESPACE, TEMPLATES, System
from tests.system.questions import acts, commands, episode, traces

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
