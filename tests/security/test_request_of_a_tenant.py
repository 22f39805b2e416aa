"""Who may create a FenceAgentsRemediation in a namespace of their own has no node acted upon, and no other device proves a node
off than the one that the operator of nodewarden has configured for it (S46, S2, S10).

The attacker's "BMC" is a listener. He asks for a node that is well and for one whose kubelet has stopped while its machine runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from simulator.resources import EVENTS, NAMESPACES
from tests.cluster.fencing_requests import NAMESPACE, conditions_of, remediation
from tests.power.raw_server import Listener, listening
from tests.system.fixtures import Standing
from tests.system.harness import TEMPLATE_NAMESPACE, TEMPLATES, System
from tests.system.questions import commands
from tests.system.test_handed_over import REMEDIATIONS

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

TENANT, HIS_HOST = "tenant", "127.0.0.3"


@pytest.fixture
async def his_bmc() -> AsyncIterator[Listener]:
    async with listening(HIS_HOST) as listener:
        yield listener


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    """With an operator's namespace that counts. Nobody but requests asks for any node."""
    async with standing(nodes=4, settings={"request_namespaces": [NAMESPACE]}) as running:
        for name in (TENANT, NAMESPACE):
            await running.client.create(NAMESPACES.path(), {"metadata": {"name": name}})
        await running.client.create(TEMPLATES.path(namespace=TEMPLATE_NAMESPACE), running.fencing_template())
        running.break_node(running.node_of_pod("demo/database-0"), "kubelet-stops")
        await running.start_worker()
        await running.warden.start_scanner(running.cluster_name)  # without a policy it holds no Lease yet
        yield running


@pytest.mark.parametrize(
    ("namespace", "words"),
    [(TENANT, f"requests count in {NAMESPACE} (setting request_namespaces)"), (NAMESPACE, "is not the node's device by")],
    ids=["S46: from a namespace that no setting names", "S46, S2: by another device than the operator's"],
)
async def test_a_request_moves_no_node_by_a_device_of_its_author(
    system: System, his_bmc: Listener, namespace: str, words: str
) -> None:
    spec = {"agent": "fence_docker", "sharedparameters": {"--ip": HIS_HOST, "--ipport": str(his_bmc.port)}}
    down = system.node_of_pod("demo/database-0")
    well = next(name for name in system.cluster.nodes if name != down)
    for node in (down, well):
        wish = remediation(node, spec={**spec, "nodeparameters": {"--plug": {node: "mine"}}}, namespace=namespace)
        await system.client.create(REMEDIATIONS.path(namespace=namespace), wish)

    async def refused() -> bool:
        status = await system.scanner()
        return status is not None and {each.node for each in status.refused if words in each.message} == {down, well}

    await system.until(refused, f"people read in the status: {words}", seconds=60)
    for node in (down, well):

        async def told(node: str = node) -> bool:
            found = (await system.client.list(EVENTS.path(namespace=namespace)))["items"]
            return any(each["involvedObject"]["name"] == node and words in each["message"] for each in found)

        await system.until(told, f"the author of the request for {node} is told: {words}")
        live = await system.live_node(node)
        assert not live["spec"].get("unschedulable"), f"{node} is cordoned"
        assert commands(system, node) == []
        assert conditions_of(await system.client.get(REMEDIATIONS.path(node, namespace=namespace))) == {}
        await system.client.delete(REMEDIATIONS.path(node, namespace=namespace))
    assert his_bmc.heard == []
