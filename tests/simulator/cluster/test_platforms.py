"""What nodes of a simulated cluster are on each platform: how their devices are found, that they follow, what may break."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from simulator.cluster import SimulatedCluster
from simulator.control import describe
from simulator.platforms.aws import Aws
from simulator.platforms.contract import DeviceFault, PlatformError
from simulator.platforms.gce import Gce
from simulator.resources import SECRETS
from simulator.scenario import Scenario, ScenarioError
from tests.simulator.cluster.conftest import small_cluster

pytestmark = pytest.mark.timeout(60)

PROVIDER_IDS = {
    "redfish": r"simulated:///zone-b/node-2",
    "aws": r"aws:///us-east-1b/i-[0-9a-f]{17}",
    "gce": r"gce://nodewarden-simulation/us-central1-b/node-2",
    "pdu": r"simulated:///zone-b/node-2",
}
ZONES = {"redfish": "zone-b", "aws": "us-east-1b", "gce": "us-central1-b", "pdu": "zone-b"}
KEYS = {
    "redfish": {"username", "password"},
    "aws": {"access-key-id", "secret-access-key"},
    "gce": {"service-account-json"},
    "pdu": {"username", "password", "snmp_priv_passwd"},
}
FACTS = {"redfish": {"system"}, "aws": {"instance"}, "gce": {"instance"}, "pdu": {"outlet"}}


async def check_growth(cluster: SimulatedCluster) -> None:
    """What becomes of a platform whose cluster gets one more node, and loses it again."""
    platform, zone = cluster.platform, cluster.node("node-2").identity.zone
    if not platform.grows:
        with pytest.raises(PlatformError, match="takes no machine like node-3"):
            await cluster.add_node(zone=zone)
        return
    provider_id = (await cluster.add_node(zone=zone)).identity.provider_id
    assert re.fullmatch(PROVIDER_IDS[platform.name].replace("node-2", "node-3"), provider_id)
    shown = platform.facts_of("node-3")["instance"]
    await cluster.chassis.machine("node-3").set_power("off", platform.name)
    assert not cluster.node("node-3").is_on
    await cluster.remove_node("node-3")
    if isinstance(platform, Aws):
        assert platform.cloud.state(shown) == "terminated"
    elif isinstance(platform, Gce):
        assert shown not in {instance.name for instance in platform.cloud.compute.instances.values()}
    assert sorted(cluster.nodes) == ["node-1", "node-2"]


@pytest.mark.parametrize("platform", PROVIDER_IDS)
async def test_nodes_are_found_and_told_from_each_other(platform: str, tmp_path: Path) -> None:
    async with small_cluster(nodes=2, zones=2, platform=platform, demo_workloads=False, state_dir=tmp_path) as cluster:
        node = await cluster.client.get("/api/v1/nodes/node-2")
        namespace, name = cluster.bmc_secret
        secret = await cluster.client.get(SECRETS.path(name, namespace=namespace))
        state = describe(cluster)
        with pytest.raises(LookupError, match=f"no BMCs on the platform {platform}"):
            cluster.bmc_endpoint("node-2")
        with pytest.raises(ScenarioError, match=f"platform ipmi, and this cluster's is {platform}"):
            await Scenario(platform="ipmi").run(cluster)
        with pytest.raises(ValueError, match="unknown fault 'bmc-dead'"):
            cluster.break_node("node-2", "bmc-dead")
        cluster.break_node("node-2", DeviceFault.IGNORES_OFF)
        assert cluster.chassis.machine("node-2").faults.ignore_off
        assert not cluster.chassis.machine("node-1").faults.ignore_off
        cluster.heal_node("node-2")
        assert not cluster.chassis.machine("node-2").faults.ignore_off

        # What any device of the platform does to a machine, its node feels.
        await cluster.chassis.machine("node-2").set_power("off", platform)
        assert not cluster.node("node-2").is_on
        assert cluster.node("node-1").is_on
        await check_growth(cluster)
    assert re.fullmatch(PROVIDER_IDS[platform], node["spec"]["providerID"])
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == ZONES[platform]
    assert secret["data"].keys() == KEYS[platform]
    assert (state["platform"]["name"], state["secret"]) == (platform, f"{namespace}/{name}")
    told = [{key: each[key] for key in FACTS[platform]} for each in state["nodes"].values()]
    assert told[0] != told[1]
    values = [base64.b64decode(value).decode() for value in secret["data"].values()]
    assert not any(value in str(state) for value in values if len(value) > 8)
