"""Our remediation objects, read by simulated operators of others: they find their target by them, and end what was begun."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from activities.cluster.acts.cluster_lease import ScannerLease
from activities.cluster.acts.remediation_objects import ClusterRemediationObjects
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.live.looks import LastLook
from activities.contracts.remediation import BeforeActing, ExternalRequest
from activities.contracts.target import LookRequest, Target
from policy.episode.messages import Pinned
from policy.episode.needs import Need, NeedKind
from policy.remediation.objects import SEVERAL_ANNOTATION
from policy.values.object_refs import ObjectRef
from simulator.cluster import SimulatedCluster
from simulator.objects import condition_status, uid_of
from simulator.remediators.contract import Remediator
from simulator.remediators.machine_deletion import MachineDeletionRemediations
from simulator.remediators.self_node import CAPABLE, SelfNodeRemediations
from simulator.resources import NODES
from tests.cluster.acts.world import Permits
from tests.cluster.builders import CHECKS, check
from tests.simulator.remediators.conftest import NAMESPACE, cluster_with, ensure_namespace

pytestmark = pytest.mark.timeout(40)

HOLDER = "temporal-a/default"
NODE = "node-1"


async def add_template(cluster: SimulatedCluster, of: type[Remediator], namespace: str, name: str = "default") -> ObjectRef:
    await ensure_namespace(cluster, namespace)
    template = of.template(name, namespace=namespace)
    template["metadata"]["annotations"] = {SEVERAL_ANNOTATION: "true"}
    await cluster.client.create(of.templates().path(namespace=namespace), template)
    return ObjectRef(api_version=template["apiVersion"], kind=template["kind"], name=name, namespace=namespace)


async def request_for(cluster: SimulatedCluster, template: ObjectRef, connection: ClusterConnection) -> ExternalRequest:
    """A step for the first node, of a NodeHealthCheck."""
    await ScannerLease(connection).keep(HOLDER)
    made = await cluster.client.create(CHECKS, check())
    node = await cluster.client.get(NODES.path(NODE))
    pinned = Pinned(node=NODE, uid=uid_of(node))
    target = Target(cluster="prod", pinned=pinned, incident="one", kind="Remediation", workflow_id="w", run_id="r")
    look = LookRequest(target=target, need=Need(kind=NeedKind.PERSON), holder=HOLDER)
    return ExternalRequest(
        target=target,
        template=template,
        check=ObjectRef(api_version=made["apiVersion"], kind=made["kind"], name="workers"),
        check_uid=uid_of(made),
        before=BeforeActing(look=look),
        not_after=datetime.now(UTC) + timedelta(seconds=30),
    )


async def until_succeeded(cluster: SimulatedCluster, operator: Remediator, name: str, namespace: str) -> None:
    def says() -> bool:
        known = operator.objects.get(f"{namespace}/{name}")
        return known is not None and condition_status(known, "Succeeded") == "True"

    await cluster.wait_until(says, what=f"{name} has succeeded")


@pytest.mark.parametrize("several", [False, True])
async def test_a_node_is_rebooted_by_the_operator_that_is_asked(several: bool) -> None:
    """By its name, and by the annotation where there are several objects for it."""
    async with (
        cluster_with("self-node-remediation", nodes=1) as cluster,
        ClusterConnection.to(cluster.url, token=cluster.address.token) as connection,
    ):
        operator, objects = (
            cluster.remediator(SelfNodeRemediations),
            ClusterRemediationObjects("prod", connection, LastLook(connection, Permits()).look),
        )
        asks = await request_for(cluster, await add_template(cluster, SelfNodeRemediations, NAMESPACE), connection)
        await cluster.wait_until(
            lambda: (cluster.view.nodes.get(NODE) or {"metadata": {}})["metadata"].get("annotations", {}).get(CAPABLE) == "true",
            what="its agent is there",
        )
        cluster.break_node(NODE, "kubelet-stops")
        made = await objects.create(replace(asks, several=several))
        assert made.ref is not None
        assert (made.ref.name == NODE) is not several
        await until_succeeded(cluster, operator, made.ref.name, NAMESPACE)
        asks = replace(asks, name=made.ref.name, uid=made.uid)
        told = await objects.read(asks)
        assert (told.processing, told.succeeded, told.phase) == ("False", "True", "Fencing-Completed")
        assert operator.reboots == [NODE]
        assert not (await objects.time_out(asks)).timed_out
        assert (await objects.delete(asks)).deleting, "its operator has something to undo first"
        await cluster.wait_until(lambda: not operator.objects.objects, what="the object is gone")
        assert not (await objects.read(asks)).present


async def test_a_machine_is_replaced_by_the_operator_that_its_owner_reference_tells() -> None:
    """The object bears the Machine's name and nothing else that says whose it is."""
    async with (
        cluster_with("machine-deletion-remediation", machines="openshift") as cluster,
        ClusterConnection.to(cluster.url, token=cluster.address.token) as connection,
    ):
        system = cluster.machines.system
        template = await add_template(cluster, MachineDeletionRemediations, system.namespace)
        asks = await request_for(cluster, template, connection)
        machine = await cluster.client.get(system.machines.path("machine-1", namespace=system.namespace))
        api_version = system.machines.api_version
        asks = replace(
            asks,
            check=ObjectRef(api_version=api_version, kind="MachineHealthCheck", name="w", namespace=system.namespace),
            machine=ObjectRef(api_version=api_version, kind="Machine", name="machine-1", namespace=system.namespace),
            machine_uid=uid_of(machine),
        )
        objects = ClusterRemediationObjects("prod", connection, LastLook(connection, Permits()).look)
        made = await objects.create(asks)
        assert made.ref is not None
        await cluster.wait_until(lambda: "machine-1" not in cluster.machines.names, what="machine-1 is gone")
        told = await objects.read(replace(asks, name=made.ref.name, uid=made.uid))
        assert (told.present, told.node_deletion) in {(True, "True"), (False, "")}
        assert len(cluster.machines.deletions("machine-1")) == 1
