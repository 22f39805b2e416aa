"""An act that sets others to work brings the request of its last look, and so whoever schedules it chooses that, too (S20, S42).

The attacker names a look that says go of itself: one that restores, one that waits for others, one at a node that is nobody's, or
one at a node whose permit is held. Neither Lease nor permit is in his way but by the look; nothing may be written for him.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.isolation import ClusterIsolation
from activities.cluster.acts.preservation import ClusterPreservation
from activities.cluster.acts.remediation import ClusterRemediation
from activities.cluster.acts.remediation_objects import ClusterRemediationObjects
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.preservation import GiveUpRequest
from activities.contracts.remediation import BeforeActing, ExternalRequest, MachineRequest
from activities.contracts.target import CordonRequest, LookRequest, LookVerdict, TaintRequest, Target
from activities.errors import ErrorType
from policy.episode.gate import DESTRUCTIVE, Operation
from policy.episode.messages import Need, NeedKind, Pinned
from policy.objects.nodes import Taint
from policy.values.object_refs import ObjectRef
from simulator.resources import NODES
from tests.cluster.acts.test_remediation_objects import GROUP, install
from tests.cluster.acts.world import CLUSTER, HOLDER, INCIDENT, NODE, NOW, World, refused
from tests.cluster.builders import owner
from tests.cluster.machines import CLUSTER_API, OPERATORS, machine_of
from tests.licensing import LICENCES

SOON = NOW + timedelta(seconds=10)
TEMPLATE = ObjectRef(api_version=f"{GROUP}/v1alpha1", kind="FencerTemplate", name="fencer", namespace=CLUSTER_API.namespace)

Forged = Callable[[World, LookRequest, str], Awaitable[Any]]


@pytest.fixture
async def attacked(world: World) -> World:
    """A Machine that a set would replace, and no permit: `world.permits` knows of none."""
    await CLUSTER_API.install(world.others)
    await CLUSTER_API.add_machine(world.others, machine_of(NODE), node=NODE)
    path = CLUSTER_API.path("machines", machine_of(NODE))
    await world.others.patch(path, {"metadata": {"ownerReferences": [owner("MachineSet", "workers")]}})
    await install(world, "Fencer", "FencerTemplate")
    template = {"apiVersion": TEMPLATE.api_version, "kind": TEMPLATE.kind, "metadata": {"name": "fencer"}, "spec": {}}
    folder = f"/apis/{TEMPLATE.api_version}/namespaces/{TEMPLATE.namespace}"
    await world.others.create(f"{folder}/fencertemplates", template)
    world.permits.answer = (False, "the permit is held by nobody")
    return world


async def uid_of(world: World) -> str:
    return str((await world.others.get(CLUSTER_API.path("machines", machine_of(NODE))))["metadata"]["uid"])


async def give_up(world: World, look: LookRequest, uid: str) -> Any:
    request = GiveUpRequest(
        cluster=CLUSTER,
        node="",
        machine=CLUSTER_API.machine_ref(machine_of(NODE)),
        machine_uid=uid,
        holder=HOLDER,
        not_after=SOON,
        incident=look.target.incident,
        unhealthy="x",
        before=BeforeActing(look=look),
    )
    served = ServedCluster(CLUSTER, world.connection, clock=world.clock, source=OPERATORS)
    acts = ClusterPreservation(served, world.target.last_look, world.permits)
    return await ActivityEnvironment().run(acts.give_up, request)


def on_machine(look: LookRequest, uid: str) -> MachineRequest:
    return MachineRequest(
        target=look.target,
        machine=CLUSTER_API.machine_ref(machine_of(NODE)),
        machine_uid=uid,
        not_after=SOON,
        before=BeforeActing(look=look),
    )


async def request_owner(world: World, look: LookRequest, uid: str) -> Any:
    return await remediation(world).request_owner(on_machine(look, uid))


async def annotate_external(world: World, look: LookRequest, uid: str) -> Any:
    return await remediation(world).annotate_external(on_machine(look, uid))


def remediation(world: World) -> ClusterRemediation:
    return ClusterRemediation(ServedCluster(CLUSTER, world.connection, clock=world.clock), world.target.last_look)


async def create_object(world: World, look: LookRequest, uid: str) -> Any:
    machine = CLUSTER_API.machine_ref(machine_of(NODE))
    request = ExternalRequest(
        target=look.target,
        template=TEMPLATE,
        check=None,
        machine=machine,
        machine_uid=uid,
        before=BeforeActing(look=look),
        not_after=SOON,
    )
    acts = ClusterRemediationObjects(ServedCluster(CLUSTER, world.connection, clock=world.clock), world.target.last_look)
    return await ActivityEnvironment().run(acts.create, request)


async def cordon(world: World, look: LookRequest, _uid: str) -> Any:
    return await isolation(world).mark_unschedulable(CordonRequest(look=look, not_after=SOON))


async def taint(world: World, look: LookRequest, _uid: str) -> Any:
    return await isolation(world).taint(TaintRequest(look=look, taint=Taint(key="sick", effect="NoSchedule"), not_after=SOON))


def isolation(world: World) -> ClusterIsolation:
    served = ServedCluster(CLUSTER, world.connection, clock=world.clock)
    return ClusterIsolation(served, world.target.last_look, world.permits, LICENCES)


ACTS: tuple[Forged, ...] = (give_up, request_owner, annotate_external, create_object, cordon, taint)
HARMLESS: dict[str, Operation] = {
    "waits for others": Operation.WAIT,
    "restores": Operation.GIVE_BACK,
    "deletes a Node": Operation.DELETE_NODE,
    "removes, whatever the need": Operation.HAND_OVER,
    "is asked hardly anything": Operation.UNCORDON,
}


@pytest.mark.parametrize("operation", HARMLESS.values(), ids=HARMLESS)
async def test_s42_a_look_that_licenses_something_else_lets_nothing_be_done(operation: Operation, attacked: World) -> None:
    """Also where it would say go: the permit that it would ask for is held here."""
    attacked.permits.answer = (True, "")
    await attacked.hold_cluster_lease()
    uid, look, writes = await uid_of(attacked), await attacked.look(operation=operation), attacked.writes
    for act in ACTS:
        with refused(ErrorType.NOT_LICENSED, "expected a look at node-7 for "):
            await act(attacked, look, uid)
        assert attacked.writes == writes, act


async def test_s15_what_deletes_a_machine_is_looked_at_as_that(attacked: World) -> None:
    """A member of a control plane may be switched off where it may not be removed."""
    attacked.permits.answer = (True, "")
    await attacked.hold_cluster_lease()
    writes = attacked.writes
    for act in (give_up, request_owner):
        with refused(ErrorType.NOT_LICENSED, "for remove, got one at node-7 for disrupt"):
            await act(attacked, await attacked.look(), await uid_of(attacked))
    assert attacked.writes == writes


async def test_s20_the_attack_that_was_carried_out_deletes_no_machine(attacked: World) -> None:
    """No Lease, no permit, a look at a node that there is not."""
    pinned = Pinned(node="no-such", uid="")
    target = Target(cluster=CLUSTER, pinned=pinned, incident="", kind="Remediation", workflow_id="", run_id="")
    look = await attacked.look(target, operation=Operation.WAIT)
    uid = await uid_of(attacked)
    with refused(ErrorType.NOT_LICENSED):
        await give_up(attacked, look, uid)
    assert "deletionTimestamp" not in (await attacked.others.get(CLUSTER_API.path("machines", machine_of(NODE))))["metadata"]


async def test_s42_what_cleans_up_marks_lets_nothing_be_done_to_a_healthy_node(attacked: World) -> None:
    """Any client may ask for a permit, and may call its need a clean-up."""
    attacked.permits.answer = (True, "")
    await attacked.hold_cluster_lease()
    target = await attacked.pinned(kind="Remediation")
    uid, writes = await uid_of(attacked), attacked.writes
    looks = {each: await attacked.look(target, need=Need(kind=NeedKind.CLEAN_UP), operation=each) for each in DESTRUCTIVE}
    answers = [await ActivityEnvironment().run(attacked.target.last_look, look) for look in looks.values()]
    answers += [
        (await give_up(attacked, looks[Operation.REMOVE], uid)).look,
        (await cordon(attacked, looks[Operation.CORDON], uid)).look,
    ]
    why = "what cleans up marks that were left disrupts nothing"
    assert {(each.verdict, each.reason) for each in answers} == {(LookVerdict.NOT_LICENSED, why)}
    assert attacked.writes == writes


@pytest.mark.parametrize("name", ["no-such", "node-8", "machine/test/another"])
async def test_s9_a_look_at_one_node_licenses_nothing_of_another_ones_machine(name: str, attacked: World) -> None:
    """Where he holds the permit for a node of his own choice."""
    attacked.permits.answer = (True, "")
    await attacked.hold_cluster_lease()
    if name == "node-8":
        await attacked.others.create(NODES.path(), {"metadata": {"name": name}})
    pinned = Pinned(node=name, uid="")
    target = Target(cluster=CLUSTER, pinned=pinned, incident=INCIDENT, kind="Remediation", workflow_id="", run_id="")
    look = await attacked.look(target, operation=Operation.REMOVE)
    uid, writes = await uid_of(attacked), attacked.writes
    for act in (give_up, request_owner, annotate_external, create_object):
        with refused(ErrorType.TARGET_CHANGED, f"expected the Machine of {name}"):
            await act(attacked, look, uid)
        assert attacked.writes == writes, act


async def test_s42_a_look_at_another_target_than_the_acts_licenses_nothing(attacked: World) -> None:
    attacked.permits.answer = (True, "")
    await attacked.hold_cluster_lease()
    request = on_machine(await attacked.look(), await uid_of(attacked))
    other = replace(request.target, pinned=replace(request.target.pinned, node="node-8"))
    writes = attacked.writes
    with refused(ErrorType.NOT_LICENSED, "expected a look at node-8"):
        await remediation(attacked).annotate_external(replace(request, target=other))
    assert attacked.writes == writes
