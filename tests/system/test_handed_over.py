"""An operator that goes on running hands its nodes over: it creates a FenceAgentsRemediation, reads its conditions, deletes it.

The operator is played by the test as medik8s' NodeHealthCheck controller acts: elected by its leader Lease, holding the node's
lease under its own name, the object owned by its NodeHealthCheck and named as the node.
"""

from __future__ import annotations

import asyncio

import pytest

from policy.checks.circuit_breakers import LEADER_LEASES
from policy.episode.messages import Outcome
from policy.values.object_refs import Dialect
from simulator.control import describe
from simulator.objects import JsonObject, is_ready, micro_timestamp
from simulator.resources import LEASES, NAMESPACES, Resource
from tests.cluster.fencing_requests import NAMESPACE, conditions_of, remediation
from tests.power.agents.scripted import needs
from tests.system.fixtures import Standing
from tests.system.harness import CHECK, CHECKS, TEMPLATE_NAMESPACE, TEMPLATES, System
from tests.system.questions import commands, opened_at
from tests.system.witness import NODE_LEASES, judge, left_over

pytestmark = [pytest.mark.system, pytest.mark.timeout(120), needs("fence_apc_snmp", "snmpget")]

REMEDIATIONS = Resource(
    api_version="fence-agents-remediation.medik8s.io/v1alpha1", kind="FenceAgentsRemediation", plural="fenceagentsremediations"
)
OPERATOR = f"NodeHealthCheck-{CHECK}"
PROCESSING, ACTION, SUCCEEDED = "Processing", "FenceAgentActionSucceeded", "Succeeded"
STARTED = {PROCESSING: "True", ACTION: "Unknown", SUCCEEDED: "Unknown"}
FENCED = {PROCESSING: "True", ACTION: "True", SUCCEEDED: "Unknown"}
FINISHED = {PROCESSING: "False", ACTION: "True", SUCCEEDED: "True"}


class Operator:
    """What medik8s' controller writes."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._client = system.client

    async def install(self) -> None:
        """It is elected, and has a check that we can see. Which devices are the nodes' ours says, who installs us (S46)."""
        for name in (NAMESPACE, NODE_LEASES):
            await self._client.create(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await self._lease(LEADER_LEASES[Dialect.MEDIK8S], NAMESPACE, "manager-0")
        await self._client.create(TEMPLATES.path(namespace=TEMPLATE_NAMESPACE), self._system.fencing_template())
        template = {"apiVersion": REMEDIATIONS.api_version, "kind": f"{REMEDIATIONS.kind}Template", "namespace": NAMESPACE}
        check = self._system.health_check({"minHealthy": 1, "remediationTemplate": {**template, "name": "strip"}})
        await self._client.create(CHECKS.path(), check)

    async def ask_for(self, node: str, *, retrycount: int, timeout: str) -> None:
        """The node's lease first, then the object."""
        await self._lease(f"node-{node}", NODE_LEASES, OPERATOR)
        facts = describe(self._system.cluster)
        strip = facts["platform"]
        spec = {
            "agent": "fence_apc_snmp",
            "sharedSecretName": "strip",
            "sharedparameters": {
                "--ip": strip["address"],
                "--ipport": str(strip["port"]),
                "--snmp-version": "3",
                "--snmp-auth-prot": "SHA",
                "--snmp-priv-prot": "AES",
            },
            "nodeparameters": {"--plug": {name: str(found["outlet"]) for name, found in facts["nodes"].items()}},
            "remediationStrategy": "ResourceDeletion",
            "retrycount": retrycount,
            "retryinterval": "1s",
            "timeout": timeout,
        }
        wish = remediation(node, spec=spec)
        [owner] = wish["metadata"]["ownerReferences"]
        owner = {**owner, "name": CHECK, "uid": (await self._client.get(CHECKS.path(CHECK)))["metadata"]["uid"]}
        wish["metadata"]["ownerReferences"] = [owner]
        await self._client.create(REMEDIATIONS.path(namespace=NAMESPACE), wish)

    async def reads(self, node: str, until: dict[str, str]) -> tuple[list[dict[str, str]], JsonObject]:
        """Look at the conditions again and again, as its reconciler does, until they are as wished. Answers what they were, in
        their order, and the object as it is then."""
        path, read, last = REMEDIATIONS.path(node, namespace=NAMESPACE), list[dict[str, str]](), JsonObject()

        async def as_wished() -> bool:
            last.update(await self._client.get(path))
            found = conditions_of(last)
            if found and (not read or read[-1] != found):
                read.append(found)
            return found == until

        await self._system.until(as_wished, f"the operator reads {until} of {node}", seconds=60)
        return read, last

    async def is_done_with(self, node: str) -> None:
        """The object goes, then the lease."""
        await self._client.delete(REMEDIATIONS.path(node, namespace=NAMESPACE))
        await self._client.delete(LEASES.path(f"node-{node}", namespace=NODE_LEASES))

    async def _lease(self, name: str, namespace: str, holder: str) -> None:
        now = micro_timestamp()
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 600, "acquireTime": now, "renewTime": now}
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": name}, "spec": spec}
        await self._client.create(LEASES.path(namespace=namespace), lease)


def reasons(found: JsonObject) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in found["status"]["conditions"]}


async def test_its_node_is_fenced_in_its_name_and_it_reads_how_that_goes_in_its_own_words(standing: Standing) -> None:
    """S1, S2, S13, S28, S35: nothing is done before it asks, though its check calls the node unhealthy; its lease on the node is
    no veto; the conditions go through the operator's states, and the episode that ends after the object is gone leaves nothing
    behind. The operator lets go as soon as the node is healthy again, whether or not we are through."""
    async with standing(platform="pdu", nodes=4, settings={"request_namespaces": [NAMESPACE]}) as system:
        operator = Operator(system)
        await asyncio.gather(operator.install(), system.start_worker())
        await system.start_scanner()
        node = system.node_of_pod("demo/database-0")
        before = system.break_node(node, "kubelet-stops")

        async def is_well() -> bool:
            return is_ready(await system.live_node(node))

        async def is_down() -> bool:
            return not await is_well()

        await system.until(is_down, "the API sees it down")
        assert (commands(system, node), await opened_at(system, node)) == ([], None)
        await operator.ask_for(node, retrycount=5, timeout="60s")  # an operator's patience, for this machine may be busy
        read, last = await operator.reads(node, FINISHED)
        await system.until(is_well, f"{node} is Ready again", seconds=60)
        await operator.is_done_with(node)
        result = await system.ended(before)
        assert result.outcome is Outcome.RECOVERED
        assert judge(system.cluster, system.witness, before, result) + await left_over(system.cluster, before) == []
        assert result.freed_pods >= 1
        assert read == [each for each in (STARTED, FENCED, FINISHED) if each in read]
        assert reasons(last) == {
            PROCESSING: "RemediationFinishedSuccessfully",
            ACTION: "FenceAgentSucceeded",
            SUCCEEDED: "RemediationFinishedSuccessfully",
        }
        assert not last["metadata"].get("finalizers"), "its deletion waits for nobody"
