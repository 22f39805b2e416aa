"""What an owner or an operator of Machines is asked for, over a simulated API server: on that very Machine, and taken back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from activities.cluster.acts.remediating import ClusterRemediation
from activities.contracts.remediation import MachineRequest
from activities.errors import ErrorType
from policy.objects.machines import EXTERNAL_REMEDIATION_ANNOTATION
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.values.object_refs import ObjectRef
from simulator.objects import JsonObject
from tests.cluster.acts.world import CLUSTER, HOLDER, NODE, NOW, World, refused
from tests.cluster.machines import CLUSTER_API, OPENSHIFT, PAUSED, SKIP, System, machine_of

OWNER = {"apiVersion": "v1", "kind": "MachineSet", "name": "workers", "uid": "uid-of-the-set", "controller": True}


async def machine(world: World, system: System, annotations: Mapping[str, str] | None = None) -> MachineRequest:
    """A Machine with the sick node, that a MachineSet owns."""
    await system.install(world.others)
    await world.hold_cluster_lease()
    await system.add_machine(world.others, machine_of(NODE), node=NODE, annotations=annotations or {})
    path = system.path("machines", machine_of(NODE))
    made = await world.others.patch(path, {"metadata": {"ownerReferences": [OWNER]}})
    return MachineRequest(
        target=await world.pinned(),
        machine=ObjectRef(api_version=system.api_version, kind="Machine", name=machine_of(NODE), namespace=system.namespace),
        machine_uid=made["metadata"]["uid"],
        holder=HOLDER,
        not_after=NOW + timedelta(seconds=30),
    )


def acts(world: World) -> ClusterRemediation:
    return ClusterRemediation(CLUSTER, world.connection, own_node="node-1", clock=world.clock)


async def found(world: World, system: System) -> JsonObject:
    document: JsonObject = await world.others.get(system.path("machines", machine_of(NODE)))
    return document


async def said(world: World, system: System) -> dict[str, str]:
    """Its conditions of both kinds, by type."""
    conditions = (await found(world, system)).get("status", {}).get("conditions") or ()
    kinds = {"OwnerRemediated", "HealthCheckSucceeded"}
    return {each["type"]: each["status"] for each in conditions if each["type"] in kinds}


async def test_what_is_asked_of_an_owner_is_taken_back_without_a_trace(world: World) -> None:
    """S28, S35: a machine that goes on being called unhealthy is the first to go when its set is scaled down."""
    request = await machine(world, CLUSTER_API)
    await acts(world).request_owner(request)
    assert await said(world, CLUSTER_API) == {"OwnerRemediated": "False", "HealthCheckSucceeded": "False"}
    assert not (await acts(world).request_owner(request)).changed
    await acts(world).take_back(request)
    assert await said(world, CLUSTER_API) == {}


async def test_what_a_health_check_has_said_of_it_stays(world: World) -> None:
    request = await machine(world, CLUSTER_API)
    sick = {"type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode", "message": "Ready is Unknown"}
    sick["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    path = CLUSTER_API.path("machines", machine_of(NODE), subresource="status")
    await world.others.patch(path, {"status": {"conditions": [sick]}})
    await acts(world).request_owner(request)
    await acts(world).take_back(request)
    assert await said(world, CLUSTER_API) == {"HealthCheckSucceeded": "False"}


@pytest.mark.parametrize("annotation", [PRESERVE_ANNOTATION, PAUSED, SKIP])
async def test_no_owner_is_asked_for_a_machine_that_somebody_keeps(annotation: str, world: World) -> None:
    """S20, S27: also where its annotation is on the Machine alone, and no scan has seen it yet."""
    request = await machine(world, CLUSTER_API, {annotation: "now"})
    with refused(ErrorType.VETOED, annotation):
        await acts(world).request_owner(request)
    assert await said(world, CLUSTER_API) == {}


async def told(world: World, on_node: str, on_machine: str) -> MachineRequest:
    """A Machine of OpenShift, with what its Node and it say of preservation."""
    request = await machine(world, OPENSHIFT, {PRESERVE_ANNOTATION: on_machine})
    await world.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: on_node}}})
    return request


async def test_the_node_s_word_beats_its_machine_s(world: World) -> None:
    """S26, S27: as for a preservation itself, and for the last look."""
    request = await told(world, "false", "now")
    result = await world.target.last_look(await world.look(target=request.target))
    assert PRESERVE_ANNOTATION not in result.reason
    assert (await acts(world).annotate_external(request)).changed


async def test_a_node_that_asks_to_be_kept_is_heard_whatever_its_machine_says(world: World) -> None:
    """S27: on the Node since the last look."""
    request = await told(world, "now", "false")
    with refused(ErrorType.VETOED, f"{PRESERVE_ANNOTATION}=now preserves the node"):
        await acts(world).annotate_external(request)


async def test_no_operator_is_asked_for_a_machine_that_somebody_keeps(world: World) -> None:
    """S21, S27."""
    request = await machine(world, OPENSHIFT, {PRESERVE_ANNOTATION: "now"})
    with refused(ErrorType.VETOED, PRESERVE_ANNOTATION):
        await acts(world).annotate_external(request)
    assert EXTERNAL_REMEDIATION_ANNOTATION not in (await found(world, OPENSHIFT))["metadata"]["annotations"]
