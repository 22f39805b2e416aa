"""machine-deletion-remediation, simulated: it deletes Machines of OpenShift, and waits for as many Nodes as there were."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.client import ApiError
from simulator.cluster import SimulatedCluster
from simulator.objects import JsonObject, name_of, uid_of
from simulator.remediation import OPERATORS
from simulator.remediators.machine_deletion import HANDLED, OWNER, PERMANENT, MachineDeletionRemediations
from tests.simulator.remediators.conftest import Asker, cluster_with, ensure_namespace, reason, told

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


async def test_who_has_no_owner_no_machine_or_no_node_is_not_remediated() -> None:
    async with running() as cluster:
        asker, operator = Asker(cluster, KIND, namespace="openshift-machine-api"), cluster.remediator(MachineDeletionRemediations)
        orphan = await machine_by_hand(cluster, "orphan", provider_id="baremetalhost:///x", owner=None)
        await asker.ask("orphan", owner=orphan)
        await asker.ask("no-such-node")
        ownerless = {**orphan, "metadata": {**orphan["metadata"], "name": "never-was"}}
        await asker.ask("never-was", owner=ownerless)
        expected = {
            "orphan": "RemediationCannotStartNoControllerOwner",
            "no-such-node": "RemediationCannotStartNodeNotFound",
            "never-was": "RemediationCannotStartMachineNotFound",
        }
        for name, why in expected.items():
            await until_says(asker, operator, name, why)
            assert told(await asker.read(name), "Processing", "Succeeded") == ("False", "False")
        assert cluster.machines.deletions() == []
        assert "orphan" in cluster.machines.names


async def test_given_up_it_begins_nothing_and_takes_nothing_back() -> None:
    async with running() as cluster:
        asker, operator = Asker(cluster, KIND), cluster.remediator(MachineDeletionRemediations)
        fleet = cluster.machines
        await asker.ask("node-1", annotations={"remediation.medik8s.io/nhc-timed-out": "now"})
        await asker.ask("node-2")
        await cluster.wait_until(lambda: bool(fleet.deletions("machine-2")), what="machine-2 is deleted")
        await asker.give_up("node-2")
        for node in ("node-1", "node-2"):
            await until_says(asker, operator, node, "RemediationStoppedByNHC")
        await cluster.wait_until(lambda: "machine-2" not in fleet.names, what="machine-2 is gone all the same")
        assert fleet.deletions("machine-1") == []
        assert told(await asker.read("node-2"), "Processing", "Succeeded") == ("False", "False")


async def test_it_works_on_openshifts_machines_alone() -> None:
    for machines in ("", "gardener"):
        with pytest.raises(ValueError, match="expected machines='openshift'"):
            cluster_with("machine-deletion-remediation", machines=machines)


async def test_kinds_are_there_only_where_they_are_asked_for() -> None:
    async with running() as cluster:
        group = "/apis/self-node-remediation.medik8s.io/v1alpha1/selfnoderemediations"
        assert (await cluster.client.list(KIND.path()))["items"] == []
        await ensure_namespace(cluster, "remediators")
        template = MachineDeletionRemediations.template("delete", namespace="remediators")
        templates = MachineDeletionRemediations.templates()
        await cluster.client.create(templates.path(namespace="remediators"), template)
        assert [name_of(each) for each in (await cluster.client.list(templates.path()))["items"]] == ["delete"]
        with pytest.raises(ApiError, match="404"):
            await cluster.client.list(group)
        with pytest.raises(LookupError, match="without a remediator that works on BareMetalHosts"):
            cluster.hosts.of_node("node-1")
    with pytest.raises(ValueError, match="there is no remediator 'nobody'"):
        cluster_with("nobody")
