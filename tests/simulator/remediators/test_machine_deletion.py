"""machine-deletion-remediation, simulated: it deletes Machines of OpenShift, and waits for as many Nodes as there were."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.cluster import SimulatedCluster
from simulator.objects import JsonObject, uid_of
from simulator.remediation import OPERATORS
from simulator.remediators.machine_deletion import HANDLED, OWNER, PERMANENT, MachineDeletionRemediations
from tests.simulator.remediators.conftest import Asker, cluster_with, reason, told

pytestmark = pytest.mark.timeout(40)

KIND = MachineDeletionRemediations.remediations
CONDITIONS = ("Processing", "Succeeded", PERMANENT)


def running(**changes: Any) -> SimulatedCluster:
    return cluster_with("machine-deletion-remediation", machines="openshift", **changes)


async def machine_by_hand(cluster: SimulatedCluster, name: str, *, provider_id: str, owner: JsonObject | None) -> JsonObject:
    """A Machine whose instance nobody has made."""
    system = cluster.machines.system
    metadata: JsonObject = {"name": name, "namespace": system.namespace}
    if owner is not None:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
        metadata["ownerReferences"] = [{**reference, "uid": uid_of(owner), "controller": True}]
    spec = {"providerID": provider_id} if provider_id else {}
    body = {"apiVersion": system.machines.api_version, "kind": "Machine", "metadata": metadata, "spec": spec}
    return await cluster.client.create(system.machines.path(namespace=system.namespace), body)


async def until_says(asker: Asker, operator: MachineDeletionRemediations, name: str, why: str) -> None:
    def says() -> bool:
        return reason(operator.objects.get(f"{asker.namespace}/{name}")) == why

    await asker.cluster.wait_until(says, what=f"{name}: {why}")


async def test_a_machine_is_deleted_once_and_its_replacement_ends_it() -> None:
    async with running() as cluster:
        asker, operator = Asker(cluster, KIND), cluster.remediator(MachineDeletionRemediations)
        fleet, key = cluster.machines, f"{asker.namespace}/node-1"
        fleet.instances.refuses = True
        await asker.ask("node-1")
        await cluster.wait_until(lambda: "machine-1" not in fleet.names, what="machine-1 is gone")
        await asker.look_again_at("node-1", operator)
        await asker.ask("no-such-node")
        await until_says(asker, operator, "no-such-node", "RemediationCannotStartNodeNotFound")
        remediation = await asker.read("node-1")
        assert remediation is not None
        assert told(remediation, *CONDITIONS) == ("True", "Unknown", "True"), "the owner has a node too few"
        assert reason(remediation, PERMANENT) == "MachineDeletionOnCloudProviderCausesNewNodeName"
        assert remediation["metadata"]["annotations"][HANDLED] == "openshift-machine-api/machine-1"
        assert remediation["metadata"]["annotations"][OWNER] == "MachineSet/workers-zone-a"
        fleet.instances.refuses = False
        path = fleet.system.machines.path(namespace=fleet.system.namespace)
        # A Machine that was Failed because of the provider stays it.
        for machine in (await cluster.client.list(path))["items"]:
            if not machine["spec"].get("providerID"):
                await cluster.client.delete(f"{path}/{machine['metadata']['name']}")
        await cluster.wait_until(lambda: reason(operator.objects.get(key)) == "MachineDeleted", what="done")
        assert told(await asker.read("node-1"), *CONDITIONS) == ("False", "True", "True")
        assert [each.user_agent for each in fleet.deletions("machine-1")] == [OPERATORS]


async def test_it_works_on_openshifts_machines_alone() -> None:
    for machines in ("", "gardener"):
        with pytest.raises(ValueError, match="expected machines='openshift'"):
            cluster_with("machine-deletion-remediation", machines=machines)
