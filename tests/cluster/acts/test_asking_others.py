"""What an owner or an operator of Machines is asked for: on that very Machine, and taken back; and what becomes of one whose
replacement was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.remediation import ClusterRemediation
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.remediation import FollowRequest, MachineRequest
from activities.contracts.target import ActResult, LookVerdict
from activities.errors import ErrorType
from policy.objects.machines import EXTERNAL_REMEDIATION_ANNOTATION
from policy.objects.nodes import PRESERVE_ANNOTATION
from simulator.objects import JsonObject
from tests.cluster.acts.world import CLUSTER, NODE, NOW, World, refused
from tests.cluster.builders import owner
from tests.cluster.machines import CLUSTER_API, CLUSTER_NAME, OPENSHIFT, OPERATORS, PAUSED, SKIP, System, machine_of
from tests.cluster.skipping import now


async def machine(world: World, system: System, annotations: Mapping[str, str] | None = None) -> MachineRequest:
    """A Machine with the sick node, that a MachineSet owns."""
    await system.install(world.others)
    await world.hold_cluster_lease()
    await system.add_machine(world.others, machine_of(NODE), node=NODE, annotations=annotations or {})
    path = system.path("machines", machine_of(NODE))
    made = await world.others.patch(path, {"metadata": {"ownerReferences": [owner("MachineSet", "workers")]}})
    return MachineRequest(
        target=await world.pinned(),
        machine=system.machine_ref(machine_of(NODE)),
        machine_uid=made["metadata"]["uid"],
        before=await world.before(),
        not_after=NOW + timedelta(seconds=30),
    )


def acts(world: World) -> ClusterRemediation:
    return ClusterRemediation(
        ServedCluster(CLUSTER, world.connection, own_node="node-1", clock=world.clock, source=OPERATORS), world.looks
    )


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


@pytest.mark.parametrize("system", [CLUSTER_API, OPENSHIFT], ids=str)
async def test_no_controller_is_asked_where_the_last_look_does_not_say_go(system: System, world: World) -> None:
    """S20: in the activity that asks; nothing is noted either."""
    request = replace(await machine(world, system), before=await world.before(memory="noted"))
    world.verdict, writes = LookVerdict.NOT_LICENSED, world.writes
    told = await (acts(world).request_owner if system.of_cluster_api else acts(world).annotate_external)(request)
    assert (told.changed, told.look and told.look.verdict) == (False, LookVerdict.NOT_LICENSED)
    assert world.writes == writes


async def test_what_a_health_check_has_said_of_it_stays(world: World) -> None:
    request = await machine(world, CLUSTER_API)
    sick = {"type": "HealthCheckSucceeded", "status": "False", "reason": "UnhealthyNode", "message": "Ready is Unknown"}
    sick["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    path = CLUSTER_API.path("machines", machine_of(NODE), subresource="status")
    await world.others.patch(path, {"status": {"conditions": [sick]}})
    await acts(world).request_owner(request)
    await acts(world).take_back(request)
    assert await said(world, CLUSTER_API) == {"HealthCheckSucceeded": "False"}


@pytest.mark.parametrize(
    ("system", "on_machine", "on_node", "words"),
    [
        (CLUSTER_API, {PRESERVE_ANNOTATION: "now"}, None, PRESERVE_ANNOTATION),
        (CLUSTER_API, {PAUSED: "now"}, None, PAUSED),
        (CLUSTER_API, {SKIP: "now"}, None, SKIP),
        (OPENSHIFT, {PRESERVE_ANNOTATION: "now"}, None, PRESERVE_ANNOTATION),
        (OPENSHIFT, {PRESERVE_ANNOTATION: "false"}, "now", f"{PRESERVE_ANNOTATION}=now preserves the node"),
    ],
    ids=["preserved", "paused", "skipped", "preserved, of OpenShift", "the node since the last look, whatever its machine says"],
)
async def test_no_controller_is_asked_for_a_machine_that_is_kept(
    system: System, on_machine: dict[str, str], on_node: str | None, words: str, world: World
) -> None:
    """S20, S21, S27: also where its annotation is on the Machine alone, and no scan has seen it yet."""
    request = await machine(world, system, on_machine)
    await world.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: on_node}}})
    with refused(ErrorType.VETOED, words):
        await (acts(world).request_owner if system.of_cluster_api else acts(world).annotate_external)(request)
    assert await said(world, system) == {}
    assert EXTERNAL_REMEDIATION_ANNOTATION not in (await found(world, system))["metadata"]["annotations"]


async def test_no_controller_is_asked_for_a_machine_of_a_cluster_that_is_paused(world: World) -> None:
    """S20: `clusterctl move` has begun since the last look."""
    request = await machine(world, CLUSTER_API)
    await CLUSTER_API.add_cluster(world.others)
    await world.others.patch(CLUSTER_API.path("clusters", CLUSTER_NAME), {"spec": {"paused": True}})
    with refused(ErrorType.VETOED, f"spec.paused of Cluster {CLUSTER_NAME}"):
        await acts(world).request_owner(request)
    assert await said(world, CLUSTER_API) == {}


async def test_nothing_is_asked_of_the_owner_of_a_machine_that_goes(world: World) -> None:
    """S33: it is being deleted since the last look, whoever asked for that; a person's look does not mind."""
    request = await machine(world, CLUSTER_API)
    path = CLUSTER_API.path("machines", machine_of(NODE))
    await world.others.patch(path, {"metadata": {"finalizers": ["example.io/drain"]}})
    await world.others.delete(path)
    told = await acts(world).request_owner(request)
    assert (told.changed, await said(world, CLUSTER_API)) == (False, {})


async def test_no_controller_is_asked_where_another_node_has_the_name_by_then(world: World) -> None:
    """S9: since the last look."""
    request = await machine(world, CLUSTER_API)
    await world.recreate_node()
    with refused(ErrorType.TARGET_CHANGED, "is another object now"):
        await acts(world).request_owner(request)
    assert await said(world, CLUSTER_API) == {}


@pytest.mark.parametrize("who", ["a sibling that is being deleted", "a Machine that nobody owns either"])
async def test_no_successor_is_seen_in(who: str, world: World) -> None:
    """S25, S33: its memory would be lost with it, or the end of a remediation told that has brought nothing."""
    await CLUSTER_API.install(world.others)
    await CLUSTER_API.add_machine(world.others, "w-2")
    path = CLUSTER_API.path("machines", "w-2")
    if owned := who.startswith("a sibling"):
        set_of = [owner("MachineSet", api_version=CLUSTER_API.api_version)]
        await world.others.patch(path, {"metadata": {"ownerReferences": set_of, "finalizers": ["example.io/drain"]}})
        await world.others.delete(path)
    wanted = FollowRequest(
        target=await world.pinned(),
        machine=CLUSTER_API.machine_ref("w-1"),
        machine_uid="uid-of-one-that-is-gone",
        owner="MachineSet/set" if owned else "",
        since=now() - timedelta(hours=1),
    )
    assert (await acts(world).follow(wanted)).replacement is None


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize("system", [CLUSTER_API, OPENSHIFT], ids=str)
async def test_what_a_lost_attempt_has_written_is_found_whatever_it_has_set_going(
    system: System, attempt: int, world: World
) -> None:
    """S33: its owner has begun by then, and the look says no. Only a repetition takes it for its own."""
    request = await machine(world, system)
    act = acts(world).request_owner if system.of_cluster_api else acts(world).annotate_external
    await act(request)
    world.verdict, environment = LookVerdict.VETOED, ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    told: ActResult = await environment.run(act, request)
    assert told.look is not None
    assert (told.look.verdict is LookVerdict.GO) is (attempt == 2)


async def test_a_word_that_is_put_on_the_node_while_others_write_its_machine_is_obeyed(world: World) -> None:
    """S20, S27: after a conflict both are read anew."""
    request = await machine(world, OPENSHIFT)

    async def meanwhile() -> None:
        await world.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: "now"}}})
        path = OPENSHIFT.path("machines", machine_of(NODE))
        await world.others.patch(path, {"metadata": {"annotations": {"example.com/touched": "by others"}}})

    world.connection.before_writes.append(meanwhile)
    with refused(ErrorType.VETOED, PRESERVE_ANNOTATION):
        await acts(world).annotate_external(request)
    assert EXTERNAL_REMEDIATION_ANNOTATION not in (await found(world, OPENSHIFT))["metadata"]["annotations"]


@pytest.mark.parametrize(
    "status",
    [{"phase": "Failed"}, {"deprecated": {"v1beta1": {"failureReason": "CreateError", "failureMessage": "no such image"}}}],
    ids=["phase", "failure of the older generation"],
)
async def test_a_successor_that_says_it_will_never_work_is_seen_to_have_failed(status: dict[str, Any], world: World) -> None:
    """As a scan and a preservation see it: else a remediation waits for it until its time is over."""
    await CLUSTER_API.install(world.others)
    await CLUSTER_API.add_machine(world.others, "w-2")
    await CLUSTER_API.set_status(world.others, "w-2", status)
    await world.others.patch(
        CLUSTER_API.path("machines", "w-2"),
        {"metadata": {"ownerReferences": [owner("MachineSet", api_version=CLUSTER_API.api_version)]}},
    )
    remediation = ClusterRemediation(ServedCluster(CLUSTER, world.connection, clock=world.clock, source=OPERATORS), world.looks)
    gone = CLUSTER_API.machine_ref("w-1")
    found = await remediation.follow(
        FollowRequest(
            target=await world.pinned(),
            machine=gone,
            machine_uid="uid-of-one-that-is-gone",
            owner="MachineSet/set",
            since=now() - timedelta(hours=1),
        )
    )
    assert found.replacement is not None
    assert (found.replacement.machine, bool(found.replacement.failed)) == ("w-2", True)
