"""Preserve and isolate on instances of EC2 whose volumes are EBS: a node that fell silent is kept, powered, and its work goes on.

Its kubelet is dead and its containers write on: without the cut, whoever frees their pods has two writers (S1, S31).
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from demo.manifests import power_device
from policy.episode.messages import Phase
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.kept_machine import ISOLATION_ANNOTATION
from policy.preservation.requests import ISOLATE_ANNOTATION
from simulator.control import describe
from simulator.objects import is_ready, node_of
from simulator.platforms.aws import Aws
from simulator.resources import NODES
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import commands, in_phase

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

VICTIM = "demo/database-0"


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    """Three instances in one zone, for a volume can't leave its own."""
    shape = {"nodes": 4, "zones": 1, "platform": "aws", "own_disks": True}
    async with standing(**shape) as running:
        await running.start_worker()
        await running.apply_policy(plan={"power": [power_device(describe(running.cluster))]}, check={"minHealthy": 1})
        await running.start_scanner()
        yield running


def disk_of(system: System) -> str:
    """The EBS volume of the victim's only claim."""
    claim = system.cluster.view.claims.get("demo/data-database-0")
    assert claim is not None
    volume = system.cluster.view.volumes.get(claim["spec"]["volumeName"])
    assert volume is not None
    return str(volume["spec"]["csi"]["volumeHandle"])


async def test_a_silent_node_is_kept_and_what_wrote_there_runs_elsewhere_with_its_volume(system: System) -> None:
    """S1, S21, S31: no power command, one writer at any moment, and the volume in the hands of another instance."""
    platform = system.cluster.platform
    assert isinstance(platform, Aws)
    node, disk = system.node_of_pod(VICTIM), disk_of(system)
    assert platform.cloud.holder(disk) == platform.instances[node]
    asked = {PRESERVE_ANNOTATION: "now", ISOLATE_ANNOTATION: "true"}
    await system.client.patch(NODES.path(node), {"metadata": {"annotations": asked}})
    await in_phase(system, node, Phase.RUNNING_PRESERVED)
    system.break_node(node, "kubelet-stops")

    async def is_cut() -> bool:
        annotations = (await system.live_node(node))["metadata"]["annotations"]
        return annotations.get(ISOLATION_ANNOTATION) == "cut"

    await system.until(is_cut, f"{node} is cut off", seconds=60)

    def runs_elsewhere() -> bool:
        pod = system.cluster.view.pods.get(VICTIM)
        return pod is not None and is_ready(pod) and node_of(pod) != node

    await system.until(runs_elsewhere, f"{VICTIM} runs elsewhere", seconds=30)
    assert platform.cloud.holder(disk) == platform.instances[system.node_of_pod(VICTIM)]
    assert system.cluster.storage.violations == []
    assert commands(system, node) == []
    status = await in_phase(system, node, Phase.FAILED_PRESERVED)
    assert not status.permit
    assert any(volume.volume == disk for proof in status.path_proofs for volume in proof.volumes)
