"""The last look of an episode that a MachineHealthCheck called for: check, Machine and Cluster are read live, too (S20).

What holds for every look, whatever called for it, is in `acts/test_last_look.py`. Each test here speaks for OpenShift and for
Cluster API in both versions, unless only one of them has the thing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.targets import ClusterTarget
from activities.contracts.target import LookResult, LookVerdict, PinRequest, PinResult, RestoreRequest
from policy.episode.messages import FencingInput
from policy.episode.needs import Need, NeedKind
from policy.objects.marks import TERMINATING_ANNOTATION, claim_of
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.values.object_refs import ObjectRef
from simulator.api.faults import Accident, Fault
from tests.cluster.acts.world import CLUSTER, NODE, NOW, World, empty_world
from tests.cluster.builders import now
from tests.cluster.machines import CLUSTER_NAME, OF_CLUSTER_API, OPENSHIFT, PAUSED, SKIP, SYSTEMS, System, machine_of
from tests.cluster.management import management_cluster
from tests.cluster.test_preserving import DEFINITIONS, definition
from tests.cluster.test_preserving import MACHINES as MCM_MACHINES
from tests.cluster.test_preserving import machine as mcm_machine
from tests.cluster.test_scan import OURS

pytestmark = pytest.mark.timeout(10)

MACHINE = machine_of(NODE)
OF_NODES = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers")

every_system = pytest.mark.parametrize("system", SYSTEMS, ids=str)
both_versions = pytest.mark.parametrize("system", OF_CLUSTER_API, ids=str)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The sick node; its Machine and the check come with `licensed`."""
    async with empty_world() as opened:
        yield opened


async def licensed(world: World, system: System, *, said_by_the_node: bool = True, **check: Any) -> World:
    """Everything is as it should be for a destructive act: sick node, its Machine, check, cluster Lease, permit."""
    await system.install(world.others)
    await system.add_cluster(world.others)
    await world.add_node(annotations=system.ties(NODE) if said_by_the_node else None)
    await system.add_machine(world.others, MACHINE, node=NODE)
    await world.others.create(system.path("machinehealthchecks"), system.check(timeout=60, **check))
    await world.hold_cluster_lease()
    return world


def need_of(system: System) -> Need:
    return Need(kind=NeedKind.CHECK, reason="ReadyUnknown", check=system.check_ref())


async def look(world: World, system: System, **fields: Any) -> LookResult:
    return await world.target.last_look(await world.look(need=need_of(system), **fields))


class TestTheMachineOfANode:
    @every_system
    async def test_go_when_all_is_as_it_should_be(self, system: System, world: World) -> None:
        await licensed(world, system)
        result = await look(world, system)
        assert (result.verdict, result.reason) == (LookVerdict.GO, "nothing is in the way")
        assert result.observation.unhealthy
        assert world.writes == 0

    @every_system
    async def test_the_node_s_annotation_spares_the_list(self, system: System, world: World) -> None:
        await licensed(world, system)
        world.server.requests.reset()
        assert (await look(world, system)).verdict is LookVerdict.GO
        assert world.server.requests.total("list", "machines", OURS) == 0
        assert world.server.requests.total("get", "machines", OURS) == 1

    @every_system
    async def test_without_an_annotation_it_is_found_among_its_namespace_s(self, system: System, world: World) -> None:
        await licensed(world, system, said_by_the_node=False)
        for number in range(3):
            await system.add_machine(world.others, f"another-{number}", node=f"another-node-{number}")
        world.server.requests.reset()
        assert (await look(world, system)).verdict is LookVerdict.GO
        assert world.server.requests.total("list", "machines", OURS) == 1

    @every_system
    async def test_an_annotation_that_names_another_s_machine_makes_it_nobody_s(self, system: System, world: World) -> None:
        """S9: the Machine's own nodeRef has the last word; else a mistaken annotation would fence for another's need."""
        await licensed(world, system)
        await system.set_status(world.others, MACHINE, {"nodeRef": {"name": "another-node"}})
        result = await look(world, system)
        assert result.verdict is LookVerdict.NEED_GONE
        assert "no longer selects" in result.reason

    @every_system
    async def test_an_annotation_that_lies_does_not_hide_the_machine_that_is_the_node_s(
        self, system: System, world: World
    ) -> None:
        """A scan goes by the nodeRef alone: were a look to disagree, episodes would begin and end for ever."""
        await licensed(world, system)
        await system.add_machine(world.others, "the-real-one", node=NODE)
        await system.set_status(world.others, MACHINE, {"nodeRef": {"name": "another-node"}})
        assert (await look(world, system)).verdict is LookVerdict.GO

    @every_system
    async def test_a_machine_of_that_name_that_was_made_anew_is_another_target(self, system: System, world: World) -> None:
        """S9: the uid of the Machine is pinned, too."""
        await licensed(world, system)
        await world.install_kinds()
        template = await world.add_template()
        request = FencingInput(cluster=CLUSTER, node=NODE, need=need_of(system), template=template)
        pinned: PinResult = await ActivityEnvironment().run(world.target.pin, PinRequest(wanted=request))
        target = replace(await world.pinned(), pinned=pinned.pinned)
        assert (await look(world, system, target=target)).verdict is LookVerdict.GO
        await world.others.delete(system.path("machines", MACHINE))
        await system.add_machine(world.others, MACHINE, node=NODE)
        result = await look(world, system, target=target)
        assert result.verdict is LookVerdict.TARGET_CHANGED
        assert "Machine uid" in result.reason

    @both_versions
    async def test_a_machine_of_another_cluster_with_a_node_of_that_name_is_passed_over(
        self, system: System, world: World
    ) -> None:
        """S9: one namespace may hold several Clusters, and names of Nodes repeat between them."""
        await licensed(world, system, said_by_the_node=False)
        await system.add_machine(world.others, "a-machine-of-green", node=NODE, cluster="green")
        assert (await look(world, system)).verdict is LookVerdict.GO

    @both_versions
    async def test_a_node_that_says_it_is_of_another_cluster_is_not_the_machine_s(self, system: System, world: World) -> None:
        """S9: a scan would not judge the Machine by it; neither may a look."""
        await licensed(world, system, said_by_the_node=False)
        says = {"cluster.x-k8s.io/cluster-name": "green", "cluster.x-k8s.io/cluster-namespace": system.namespace}
        await world.change_node({"metadata": {"annotations": says}})
        result = await look(world, system)
        assert (result.verdict, result.reason) == (
            LookVerdict.NEED_GONE,
            f"{system.check_ref().key} no longer selects the node",
        )

    @every_system
    async def test_of_two_machines_on_one_node_the_one_that_is_selected_counts(self, system: System, world: World) -> None:
        """A scan judges both, whichever of them the Node names: were a look to disagree, episodes would repeat without end."""
        await licensed(world, system)
        await system.add_machine(world.others, "a-second", node=NODE)
        await world.others.patch(system.path("machines", MACHINE), {"metadata": {"labels": {"role": "other"}}})
        assert (await look(world, system)).verdict is LookVerdict.GO

    async def test_of_two_machines_on_one_node_the_one_that_has_failed_is_enough(self, world: World) -> None:
        await licensed(world, OPENSHIFT)
        await world.set_ready("True")
        assert (await look(world, OPENSHIFT)).verdict is LookVerdict.NEED_GONE
        await OPENSHIFT.add_machine(world.others, "a-second", node=NODE)
        await OPENSHIFT.set_status(world.others, "a-second", {"phase": "Failed"})
        result = await look(world, OPENSHIFT)
        assert (result.verdict, result.observation.unhealthy) == (LookVerdict.GO, True)

    @every_system
    async def test_a_machine_without_a_node_of_its_own_is_found_by_provider_id(self, system: System, world: World) -> None:
        await self.by_provider_id(system, world)
        assert (await look(world, system)).verdict is LookVerdict.GO

    @every_system
    async def test_of_two_nodes_with_one_provider_id_neither_is_the_machine_s(self, system: System, world: World) -> None:
        """S9: nobody knows which; a scan takes neither."""
        provider_id = await self.by_provider_id(system, world)
        twin = {"metadata": {"name": "twin", "annotations": system.ties("twin")}, "spec": {"providerID": provider_id}}
        await world.others.create("/api/v1/nodes", twin)
        result = await look(world, system)
        assert result.verdict is LookVerdict.NEED_GONE
        assert "no longer selects" in result.reason

    async def by_provider_id(self, system: System, world: World) -> str:
        """Nothing but the providerID ties Machine and Node."""
        await licensed(world, system)
        await world.others.delete(system.path("machines", MACHINE))
        provider_id = str((await world.node())["spec"]["providerID"])
        machine = system.machine("of-that-provider-id")
        machine["spec"]["providerID"] = provider_id
        await world.others.create(system.path("machines"), machine)
        return provider_id


class TestNeedGone:
    @every_system
    @pytest.mark.parametrize("said", [True, False], ids=["annotated", "listed"])
    async def test_a_machine_that_is_gone_takes_the_need_with_it(self, system: System, said: bool, world: World) -> None:
        await licensed(world, system, said_by_the_node=said)
        await world.others.delete(system.path("machines", MACHINE))
        assert (await look(world, system)).verdict is LookVerdict.NEED_GONE

    @every_system
    async def test_a_check_that_was_deleted_takes_the_need_with_it(self, system: System, world: World) -> None:
        await licensed(world, system)
        await world.others.delete(system.path("machinehealthchecks", "workers"))
        result = await look(world, system)
        assert result.verdict is LookVerdict.NEED_GONE
        assert "deleted" in result.reason


class TestVetoes:
    """Whoever says "hands off" is obeyed in the instant before the act, however long ago the scan was."""

    @every_system
    async def test_a_paused_check_is_a_veto(self, system: System, world: World) -> None:
        await licensed(world, system)
        await system.annotate(world.others, "machinehealthchecks", "workers", {PAUSED: ""})
        result = await look(world, system)
        assert result.verdict is LookVerdict.VETOED
        assert PAUSED in result.reason
        assert result.observation.unhealthy

    @both_versions
    async def test_a_paused_cluster_is_a_veto(self, system: System, world: World) -> None:
        await licensed(world, system)
        await world.others.patch(system.path("clusters", CLUSTER_NAME), {"spec": {"paused": True}})
        result = await look(world, system)
        assert result.verdict is LookVerdict.VETOED
        assert f"Cluster {CLUSTER_NAME}" in result.reason

    @both_versions
    async def test_a_cluster_that_is_gone_licenses_nothing(self, system: System, world: World) -> None:
        """As a scan admits nothing then: its Machines are on their way out, or the check is of another cluster now."""
        await licensed(world, system)
        await world.others.delete(system.path("clusters", CLUSTER_NAME))
        result = await look(world, system)
        assert (result.verdict, result.reason) == (
            LookVerdict.VETOED,
            f"{system.check_ref().key}: there is no Cluster {CLUSTER_NAME}",
        )

    @both_versions
    @pytest.mark.parametrize("annotation", [PAUSED, SKIP])
    async def test_a_machine_that_people_took_out_is_a_veto(self, system: System, annotation: str, world: World) -> None:
        await licensed(world, system)
        await system.annotate(world.others, "machines", MACHINE, {annotation: ""})
        result = await look(world, system)
        assert result.verdict is LookVerdict.VETOED
        assert annotation in result.reason
        assert not result.observation.unhealthy

    @every_system
    @pytest.mark.parametrize("kind", [NeedKind.CHECK, NeedKind.PERSON])
    async def test_a_preservation_that_is_asked_for_on_the_machine_alone_is_a_veto(
        self, system: System, kind: NeedKind, world: World
    ) -> None:
        """S21, S27: also before anything was made of it, which an open episode of the node delays. The Node's value beats it."""
        await licensed(world, system)
        await system.annotate(world.others, "machines", MACHINE, {PRESERVE_ANNOTATION: "now"})
        need = need_of(system) if kind is NeedKind.CHECK else Need(kind=kind, reason="asked by ada")
        request = await world.look(need=need)
        result = await world.target.last_look(request)
        assert result.verdict is LookVerdict.VETOED
        assert f"{PRESERVE_ANNOTATION}=now on Machine {MACHINE}" in result.reason
        await world.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: "false"}}})
        assert (await world.target.last_look(request)).verdict is LookVerdict.GO

    @every_system
    async def test_a_machine_that_is_being_deleted_is_left_to_whoever_deletes_it(self, system: System, world: World) -> None:
        await licensed(world, system)
        machine = system.path("machines", MACHINE)
        await world.others.patch(machine, {"metadata": {"finalizers": ["example.io/drain"]}})
        await world.others.delete(machine)
        result = await look(world, system)
        assert result.verdict is LookVerdict.VETOED
        assert ("Health check failed" if system.of_cluster_api else "the Machine is being deleted") in result.reason

    @every_system
    async def test_a_machine_whose_deletion_this_episode_asked_for_is_left_to_nobody_else(
        self, system: System, world: World
    ) -> None:
        """It has got stuck, and the next step of the ladder may be what ends it. The claim on the Node says who asked."""
        await licensed(world, system)
        machine = system.path("machines", MACHINE)
        await world.others.patch(machine, {"metadata": {"finalizers": ["example.io/drain"]}})
        await world.others.delete(machine)
        request = await world.look(need=need_of(system))
        for incident, verdict in (("another", LookVerdict.VETOED), (request.target.incident, LookVerdict.GO)):
            await world.change_node({"metadata": {"annotations": {TERMINATING_ANNOTATION: claim_of(NOW, incident)}}})
            assert (await world.target.last_look(request)).verdict is verdict
        await world.set_ready("True")
        assert (await world.target.last_look(request)).verdict is LookVerdict.NEED_GONE


class TestDoubt:
    """S20: what cannot be read is never taken for leave to act."""

    @every_system
    @pytest.mark.parametrize("said", [True, False], ids=["annotated", "listed"])
    async def test_a_machine_that_cannot_be_read_licenses_nothing(self, system: System, said: bool, world: World) -> None:
        await licensed(world, system, said_by_the_node=said)
        request = await world.look(need=need_of(system))
        world.server.faults.add(Fault(accident=Accident.STATUS, path="/machines", user_agent=OURS))
        result = await world.target.last_look(request)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert "its Machine could not be read" in result.reason

    @both_versions
    async def test_a_cluster_that_cannot_be_read_licenses_nothing(self, system: System, world: World) -> None:
        await licensed(world, system)
        request = await world.look(need=need_of(system))
        world.server.faults.add(Fault(accident=Accident.REFUSE, path="/clusters/", user_agent=OURS))
        result = await world.target.last_look(request)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert "its Machine could not be read" in result.reason

    @every_system
    async def test_a_check_that_can_no_longer_be_read_as_written_licenses_nothing(self, system: System, world: World) -> None:
        await licensed(world, system)
        path = system.path("machinehealthchecks", "workers")
        await world.others.patch(path, {"spec": system.bad_check()["spec"] | {"selector": {"matchLabels": None}}})
        result = await look(world, system)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert "can no longer be read" in result.reason


class TestTheMachineUnderACheckOfNodes:
    """S20: the annotations are Cluster API's, but whoever sets them means the machine, whatever calls for the act."""

    async def licensed(self, world: World, system: System, *, node: str = NODE) -> World:
        await system.install(world.others)
        await system.add_machine(world.others, MACHINE, node=node)
        return await self.licensed_without_machines(world, system)

    async def licensed_without_machines(self, world: World, system: System) -> World:
        await world.install_kinds()
        await world.add_node(annotations=system.ties(NODE))
        await world.add_check()
        await world.hold_cluster_lease()
        return world

    async def look(self, world: World) -> LookResult:
        need = Need(kind=NeedKind.CHECK, reason="ReadyUnknown", check=OF_NODES)
        return await world.target.last_look(await world.look(need=need))

    @both_versions
    @pytest.mark.parametrize("annotation", [PAUSED, SKIP])
    async def test_a_machine_that_people_keep_out_is_a_veto(self, system: System, annotation: str, world: World) -> None:
        await self.licensed(world, system)
        assert (await self.look(world)).verdict is LookVerdict.GO
        await system.annotate(world.others, "machines", MACHINE, {annotation: ""})
        result = await self.look(world)
        assert result.verdict is LookVerdict.VETOED
        assert annotation in result.reason

    @both_versions
    async def test_a_machine_of_another_node_has_no_say(self, system: System, world: World) -> None:
        await self.licensed(world, system, node="another-node")
        await system.annotate(world.others, "machines", MACHINE, {SKIP: ""})
        assert (await self.look(world)).verdict is LookVerdict.GO

    async def test_where_no_machines_are_known_nothing_is_in_the_way(self, world: World) -> None:
        await self.licensed_without_machines(world, OF_CLUSTER_API[0])
        assert (await self.look(world)).verdict is LookVerdict.GO


class TestAMachineOfMachineControllerManager:
    """S21, S27: no Node names it, so that it is found by the label that it bears."""

    async def licensed(self, world: World, *, node: str = NODE, **annotations: str) -> World:
        await world.others.create(DEFINITIONS, definition())
        await world.others.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "shoot"}})
        machine = mcm_machine(**annotations)
        machine["metadata"]["labels"] = {"node": node}
        await world.others.create(MCM_MACHINES, machine)
        await world.install_kinds()
        await world.add_node()
        await world.add_check()
        await world.hold_cluster_lease()
        return world

    async def look(self, world: World, **changes: Any) -> LookResult:
        need = Need(kind=NeedKind.CHECK, reason="ReadyUnknown", check=OF_NODES)
        return await world.target.last_look(await world.look(**({"need": need} | changes)))

    @pytest.mark.parametrize("restores", [False, True], ids=["destroys", "restores"])
    async def test_a_word_on_it_alone_is_heard(self, restores: bool, world: World) -> None:
        await self.licensed(world)
        how = {"destructive": False, "need_matters": False} if restores else {}
        assert (await self.look(world, **how)).verdict is LookVerdict.GO
        await world.others.patch(f"{MCM_MACHINES}/w-7", {"metadata": {"annotations": {PRESERVE_ANNOTATION: "now"}}})
        result = await self.look(world, **how)
        assert result.verdict is LookVerdict.VETOED
        assert result.reason == f"the annotation {PRESERVE_ANNOTATION}=now on Machine w-7 preserves the node"

    async def test_the_word_on_the_node_beats_it(self, world: World) -> None:
        await self.licensed(world, **{PRESERVE_ANNOTATION: "now"})
        await world.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: "false"}}})
        assert (await self.look(world)).verdict is LookVerdict.GO

    async def test_a_word_on_the_machine_of_another_node_is_none(self, world: World) -> None:
        await self.licensed(world, node="another-node", **{PRESERVE_ANNOTATION: "now"})
        assert (await self.look(world)).verdict is LookVerdict.GO

    async def test_what_is_kept_on_its_machine_alone_stays_cordoned(self, world: World) -> None:
        """S21: nobody uncordons what somebody wants kept."""
        await self.licensed(world, **{PRESERVE_ANNOTATION: "now"})
        await world.target.mark(await world.act())
        await world.isolation.mark_unschedulable(await world.cordon())
        result = await world.isolation.mark_schedulable(RestoreRequest(target=await world.pinned()))
        assert "left cordoned" in result.detail

    async def test_where_it_cannot_be_read_nothing_is_done(self, world: World) -> None:
        await self.licensed(world)
        request = await world.look(need=Need(kind=NeedKind.CHECK, reason="ReadyUnknown", check=OF_NODES))
        world.server.faults.add(Fault(accident=Accident.STATUS, path="/machines", user_agent=OURS))
        result = await world.target.last_look(request)
        assert result.verdict is LookVerdict.NOT_LICENSED
        assert "its Machine could not be read" in result.reason


class TestTwoServers:
    """Machines, Cluster and check are read from the management cluster, the Node and the licence from its own."""

    @both_versions
    async def test_the_check_and_the_machine_are_read_there(self, system: System, world: World) -> None:
        async with management_cluster() as (management, manager, machines):
            await system.install(manager)
            await system.add_cluster(manager)
            await system.add_machine(manager, MACHINE, node=NODE)
            await manager.create(system.path("machinehealthchecks"), system.check(timeout=60))
            await world.add_node(annotations=system.ties(NODE))
            await world.hold_cluster_lease()
            target = ClusterTarget(CLUSTER, world.connection, world.permits, machines=machines, clock=world.clock)
            request = await world.look(need=need_of(system))
            assert (await target.last_look(request)).verdict is LookVerdict.GO
            await system.annotate(manager, "machines", MACHINE, {SKIP: ""})
            assert (await target.last_look(request)).verdict is LookVerdict.VETOED
            await management.stop()
            result = await target.last_look(request)
            assert result.verdict is LookVerdict.NOT_LICENSED
            assert "its health check could not be read" in result.reason


class TestClocks:
    """Time is measured as a scan measures it, by the earlier of the server's clock and ours. Else the two disagree for as long as
    the clocks differ."""

    @every_system
    @pytest.mark.parametrize(
        ("error", "age", "verdict"),
        [
            (timedelta(minutes=10), timedelta(seconds=20), LookVerdict.VETOED),
            (timedelta(minutes=10), timedelta(minutes=5), LookVerdict.GO),
            (timedelta(minutes=-10), timedelta(minutes=10, seconds=20), LookVerdict.VETOED),
            (timedelta(minutes=-10), timedelta(minutes=15), LookVerdict.GO),
        ],
        ids=["ahead", "ahead-due", "behind", "behind-due"],
    )
    async def test_a_server_with_another_clock_makes_no_look_late_or_early(
        self, system: System, error: timedelta, age: timedelta, verdict: LookVerdict
    ) -> None:
        async with empty_world(clock_error=error) as world:
            await licensed(world, system)
            await world.set_ready("Unknown", since=now() - age)
            await world.hold_cluster_lease(renewed=now())
            target = ClusterTarget(CLUSTER, world.connection, world.permits)
            result = await target.last_look(await world.look(need=need_of(system)))
            assert result.verdict is verdict
