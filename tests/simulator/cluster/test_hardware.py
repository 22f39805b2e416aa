"""Power through BMCs: what a command at the chassis does to the node behind it, and what is left behind at the end."""

from __future__ import annotations

import base64
from uuid import UUID

import aiohttp
import pytest

from simulator.client import ApiClient
from simulator.resources import SECRETS
from tests.power.processes.process_table import alive
from tests.simulator.cluster.conftest import Observer, small_cluster

pytestmark = pytest.mark.timeout(60)


async def test_machines_follow_their_bmcs_and_the_bmcs_end_with_the_cluster() -> None:
    async with small_cluster(nodes=2, bmc="python") as cluster, ApiClient(cluster.address) as client:
        observer = Observer(cluster, client)
        pids = [cluster.bmc_endpoint(name).pid for name in cluster.nodes]
        assert all(alive(pid) for pid in pids)

        endpoint = cluster.bmc_endpoint("node-1")
        assert endpoint.address == "127.0.0.1"
        assert endpoint.port > 0
        assert endpoint.system_uuid == UUID(observer.node("node-1")["status"]["nodeInfo"]["systemUUID"])

        namespace, name = cluster.bmc_secret
        secret = await client.get(SECRETS.path(name, namespace=namespace))
        assert {key: base64.b64decode(value).decode() for key, value in secret["data"].items()} == cluster.platform.secret()

        # A command through a device, as a BMC gives it.
        boot_id = observer.boot_id("node-1")
        power = f"{cluster.chassis.url}/machines/node-1/power"
        async with aiohttp.ClientSession() as session:
            await session.put(power, params={"device": "bmc"}, json={"power": "off"})
            assert not cluster.node("node-1").is_on
            assert not list(cluster.node("node-1").containers)
            await observer.until(lambda: observer.ready("node-1") == "Unknown", "node-1 is Unknown")
            await session.put(power, params={"device": "bmc"}, json={"power": "on"})
        await observer.until(lambda: observer.ready("node-1") == "True", "node-1 is Ready")
        assert observer.boot_id("node-1") != boot_id

        # Accidents at the node show at the chassis, and those of the BMC in what it answers.
        machine = cluster.chassis.machine("node-2")
        cluster.break_node("node-2", "power-cut")
        await observer.until(lambda: machine.power == "off", "the chassis knows of the power cut")
        cluster.heal_node("node-2")
        await observer.until(lambda: machine.power == "on" and cluster.node("node-2").is_on, "the power is back")
        cluster.break_node("node-2", "bmc-lies")
        await machine.set_power("off", "bmc")
        assert machine.power == "off"
        assert await machine.read("bmc") == "on"
        assert not cluster.node("node-2").is_on
        cluster.break_node("node-2", "bmc-dead")
        cluster.heal_node("node-2")
        assert await machine.read("bmc") == "off"
    assert not any(alive(pid) for pid in pids)
