"""The last look before a member of a control plane is taken: what is left of it is read live, too (S15, S20).

The rules in tables are in `tests/policy/remediation/test_control_plane.py`; here, that they are asked of what the API says now.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.target import LookResult, LookVerdict, Target
from policy.episode.gate import Operation
from policy.episode.messages import Need, NeedKind, Pinned
from simulator.api.control.faults import Accident, Fault
from simulator.client import ApiClient
from simulator.resources import DISRUPTION_BUDGETS, NAMESPACES, PODS
from tests.cluster.acts.world import CLUSTER, NODE, World, empty_world
from tests.cluster.builders import of_kind, owner
from tests.cluster.machines import CLUSTER_NAME, OPENSHIFT, OPERATORS, SYSTEMS, machine_of, management_cluster
from tests.cluster.scans import OURS
from tests.licensing import LICENCES

pytestmark = pytest.mark.timeout(10)

PERSON = Need(kind=NeedKind.PERSON, reason="asked by ada")
MEMBER = {"node-role.kubernetes.io/control-plane": ""}
NEWER = next(system for system in SYSTEMS if str(system).endswith("v1beta2"))
KCP = f"/apis/controlplane.cluster.x-k8s.io/v1beta2/namespaces/{NEWER.namespace}/kubeadmcontrolplanes"
WELL = ("EtcdMemberHealthy", "EtcdPodHealthy", "APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy")

GO, WAIT, NEVER = LookVerdict.GO, LookVerdict.NOT_LICENSED, LookVerdict.VETOED


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """With the cluster Lease; the members come with `members`."""
    async with empty_world() as opened:
        await opened.hold_cluster_lease()
        yield opened


async def members(
    world: World, *others: str, sick: str = "Unknown", labels: Mapping[str, str] = MEMBER, ties: Mapping[str, str] | None = None
) -> None:
    """The sick one is `NODE`; beside it so many others, each with what its Ready says."""
    await world.add_node(ready=sick, labels=labels, annotations=ties)
    for number, ready in enumerate(others, start=2):
        await world.add_node(
            f"member-{number}", ready=ready, labels=labels, provider_id=f"metal://{number}", system_uuid=f"{number}"
        )


async def static_pod(
    world: World,
    node: str,
    component: str = "etcd",
    *,
    ready: str = "True",
    namespace: str = "kube-system",
    labels: Mapping[str, str] | None = None,
    mirror: bool = True,
) -> None:
    metadata: dict[str, Any] = {
        "name": f"{component}-{node}",
        "namespace": namespace,
        "labels": labels or {"component": component},
    }
    if mirror:
        metadata["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    pod = {"metadata": metadata, "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example"}]}}
    await world.others.create(PODS.path(namespace=namespace), pod)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    await world.others.patch(PODS.path(metadata["name"], namespace=namespace, subresource="status"), {"status": status})


async def look(world: World, *, need: Need = PERSON, **fields: Any) -> LookResult:
    return await world.target.last_look(await world.look(need=need, **fields))


async def budget(world: World, name: str = "etcd", *, allowed: int) -> None:
    """A budget of OpenShift's etcd."""
    place = {"namespace": "openshift-etcd"}
    await world.others.create(DISRUPTION_BUDGETS.path(**place), {"metadata": {"name": name}, "spec": {"minAvailable": 2}})
    status = {"status": {"disruptionsAllowed": allowed}}
    await world.others.patch(DISRUPTION_BUDGETS.path(name, subresource="status", **place), status)


async def replaced_by(world: World, kind: str) -> dict[str, str]:
    """Its Machine, which such an owner replaces; OpenShift's own guard of etcd has nothing against it. Returns what ties the Node
    to it."""
    await world.others.create(NAMESPACES.path(), {"metadata": {"name": "openshift-etcd"}})
    await budget(world, allowed=1)
    await OPENSHIFT.install(world.others)
    await OPENSHIFT.add_machine(world.others, machine_of(NODE), node=NODE)
    reference = owner(kind, "cluster", api_version="machine.openshift.io/v1")
    await world.others.patch(OPENSHIFT.path("machines", machine_of(NODE)), {"metadata": {"ownerReferences": [reference]}})
    return OPENSHIFT.ties(NODE)


async def of_members(world: World, *machines: str) -> None:
    labels = {"role": "worker", "machine.openshift.io/cluster-api-machine-role": "master"}
    for name in machines:
        await world.others.patch(OPENSHIFT.path("machines", name), {"metadata": {"labels": labels}})


async def removal(world: World, node: str) -> LookResult:
    """What the last look says before the Machine is deleted, as a health check of Machines would have it."""
    await of_members(world, machine_of(NODE))
    check = OPENSHIFT.check(timeout=1)
    await world.others.create(OPENSHIFT.path("machinehealthchecks"), check)
    await OPENSHIFT.set_status(world.others, machine_of(NODE), {"phase": "Failed"})
    need = Need(kind=NeedKind.CHECK, reason="Failed", check=OPENSHIFT.check_ref())
    uid = (await world.others.get(OPENSHIFT.path("machines", machine_of(NODE))))["metadata"]["uid"]
    pinned = Pinned(node=node, uid="", machine_uids=(uid,))
    target = Target(cluster=CLUSTER, pinned=pinned, incident="i", kind="Remediation", workflow_id="e", run_id="r")
    return await world.target.last_look(await world.look(target, need=need, operation=Operation.REMOVE))


class TestNodes:
    """Where no pods of etcd are seen, each Node that is Ready is a sound voter."""

    @pytest.mark.parametrize(
        ("others", "fenced", "deleted"),
        [
            ((), NEVER, NEVER),
            (("True",), WAIT, GO),
            (("True", "True", "Unknown", "True"), GO, GO),
            (("True", "Unknown", "Unknown", "True"), WAIT, WAIT),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
    )
    async def test_so_many_are_left(
        self, others: tuple[str, ...], fenced: LookVerdict, deleted: LookVerdict, world: World
    ) -> None:
        """S15: one of two may be replaced, since its owner takes it out of etcd; switched off it goes on being counted."""
        await members(world, *others, ties=await replaced_by(world, "ControlPlaneMachineSet"))
        assert (await look(world)).verdict is fenced
        assert (await look(world, operation=Operation.REMOVE)).verdict is deleted

    @pytest.mark.parametrize("role", ["etcd", "arbiter"])
    @pytest.mark.parametrize(("others", "verdict"), [(("True", "True"), GO), (("True", "Unknown"), WAIT)])
    async def test_a_node_that_has_nothing_but_etcd_is_a_member(
        self, others: tuple[str, ...], verdict: LookVerdict, role: str, world: World
    ) -> None:
        """S15: as RKE2, k3s and OpenShift have them, beside Nodes of the rest of the control plane."""
        await members(world, *others, labels={f"node-role.kubernetes.io/{role}": "true"})
        await world.add_node("server", ready="True", labels=MEMBER, provider_id="metal://server", system_uuid="server")
        assert (await look(world)).verdict is verdict

    @pytest.mark.parametrize("kind", ["ControlPlaneMachineSet", "MachineSet"])
    @pytest.mark.parametrize("had_node", [True, False], ids=["its Node is gone", "it never had one"])
    @pytest.mark.parametrize(("others", "verdict"), [(("True", "True"), GO), (("True", "Unknown"), WAIT)])
    async def test_a_machine_without_its_node_is_a_member_all_the_same(
        self, others: tuple[str, ...], verdict: LookVerdict, had_node: bool, kind: str, world: World
    ) -> None:
        """S15: `kubectl delete node` stops no machine, and etcd counts it. Of one that never had a Node nobody knows."""
        await members(world, *others)
        await replaced_by(world, kind)
        if not had_node:
            await OPENSHIFT.set_status(world.others, machine_of(NODE), {"nodeRef": None})
        await world.others.delete(f"/api/v1/nodes/{NODE}")
        result = await removal(world, NODE if had_node else f"machine/{OPENSHIFT.namespace}/{machine_of(NODE)}")
        assert result.verdict is verdict, result.reason
        assert ("of etcd's" in result.reason) is (verdict is WAIT), result.reason

    async def test_another_machine_without_its_node_votes_too(self, world: World) -> None:
        """S15: three voters, of which one is stopped, and nothing says that the one without a Node is well."""
        await members(world, "True", ties=await replaced_by(world, "ControlPlaneMachineSet"))
        await OPENSHIFT.add_machine(world.others, "lost", node="member-3")
        await of_members(world, "lost")
        result = await look(world, operation=Operation.REMOVE)
        assert (result.verdict, "1 of etcd's 2 voters would be well" in result.reason) == (WAIT, True), result.reason

    async def test_it_holds_for_every_caller_and_keeps_no_machine_down(self, world: World) -> None:
        """S17: what is off may be switched on again whatever the others are."""
        await members(world)
        result = await look(world)
        assert (result.verdict, "is the only member" in result.reason) == (NEVER, True)
        assert (await look(world, operation=Operation.GIVE_BACK)).verdict is GO


class TestPods:
    """Where they are seen, a Node votes and serves only with Ready ones."""

    @pytest.mark.parametrize("component", ["etcd", "kube-apiserver"])
    async def test_a_pod_that_is_not_ready_on_another_member_keeps_this_one(self, component: str, world: World) -> None:
        """S15: its Node says Ready all the same."""
        await members(world, "True", "True")
        for node, ready in ((NODE, "False"), ("member-2", "False"), ("member-3", "True")):
            await static_pod(world, node, component, ready=ready)
        expected = WAIT if component == "etcd" else GO  # one API server is enough
        result = await look(world)
        assert result.verdict is expected, result.reason

    @pytest.mark.parametrize("voter", ["a pod of somebody else", "one that is being deleted"])
    async def test_only_a_static_pod_that_stays_speaks_for_its_node(self, voter: str, world: World) -> None:
        """S15: anybody who may create pods in kube-system can label one; and one that goes says Ready to the end."""
        await members(world, "True", "True")
        going = voter == "one that is being deleted"
        for node, ready in ((NODE, "False"), ("member-2", "True" if going else "False"), ("member-3", "True")):
            await static_pod(world, node, ready=ready)
        place = PODS.path("etcd-member-2", namespace="kube-system")
        if going:
            assert (await look(world)).verdict is GO
            await world.others.patch(place, {"metadata": {"finalizers": ["example.io/keep"]}})
            await world.others.delete(place)
        else:
            await static_pod(world, "member-2", "impostor", labels={"component": "etcd"}, mirror=False)
        result = await look(world)
        assert (result.verdict, "1 of etcd's 3 voters would be well" in result.reason) == (WAIT, True), result.reason

    @pytest.mark.parametrize("path", ["/pods", "/nodes$"])
    async def test_what_cannot_be_read_licenses_nothing(self, path: str, world: World) -> None:
        """S20."""
        await members(world, "True", "True")
        request = await world.look(need=PERSON)
        world.server.faults.add(Fault(accident=Accident.STATUS, path=path, user_agent=OURS))
        result = await world.target.last_look(request)
        assert result.verdict is WAIT
        unread = "the control plane" if path == "/pods" else "who else has its identity"
        assert f"{unread} could not be read" in result.reason


class TestOpenShift:
    """The rule of the NodeHealthCheck operator, beside the quorum."""

    async def guarded(self, world: World, *, allowed: int, guard: str = "True") -> None:
        await members(world, "True", "True")
        await world.others.create(NAMESPACES.path(), {"metadata": {"name": "openshift-etcd"}})
        for node in (NODE, "member-2", "member-3"):
            await static_pod(world, node, namespace="openshift-etcd", labels={"app": "etcd"})
        if guard:
            labels = {"app": "guard"}
            await static_pod(world, NODE, "etcd-guard", namespace="openshift-etcd", labels=labels, ready=guard, mirror=False)
        await budget(world, allowed=allowed)

    @pytest.mark.parametrize(("allowed", "guard", "verdict"), [(1, "True", GO), (0, "True", WAIT), (0, "False", GO)])
    async def test_its_budget_and_its_guard_are_asked(self, allowed: int, guard: str, verdict: LookVerdict, world: World) -> None:
        """S15."""
        await self.guarded(world, allowed=allowed, guard=guard)
        result = await look(world)
        assert result.verdict is verdict, result.reason
        assert ("PodDisruptionBudget" in result.reason) is (verdict is WAIT)

    @pytest.mark.parametrize(("allowed", "verdict"), [(1, GO), (0, WAIT)])
    async def test_a_member_whose_node_is_gone_is_one_of_which_no_guard_pod_says_that_it_is_unwell(
        self, allowed: int, verdict: LookVerdict, world: World
    ) -> None:
        """S15: the guard pod went with the Node."""
        await members(world, "True", "True")
        await replaced_by(world, "ControlPlaneMachineSet")
        place = DISRUPTION_BUDGETS.path("etcd", namespace="openshift-etcd", subresource="status")
        await world.others.patch(place, {"status": {"disruptionsAllowed": allowed}})
        await world.others.delete(f"/api/v1/nodes/{NODE}")
        result = await removal(world, NODE)
        assert (result.verdict, "PodDisruptionBudget" in result.reason) == (verdict, verdict is WAIT), result.reason

    async def test_where_neither_budget_nor_guard_is_to_be_seen_no_member_is_taken(self, world: World) -> None:
        """S15: whoever can't see what guards etcd does not know what etcd can do without."""
        await members(world, "True", "True", ties={"machine.openshift.io/machine": "openshift-machine-api/master-0"})
        result = await look(world)
        assert result.verdict is WAIT
        assert "neither a PodDisruptionBudget nor a guard pod of etcd can be seen in openshift-etcd" in result.reason


class TestClusterApi:
    """What a KubeadmControlPlane says of its Machines is asked beside it."""

    async def owned(
        self, world: World, *others: str, api: ApiClient | None = None, spec: Mapping[str, Any] | None = None
    ) -> None:
        """As many Machines as Nodes, all well but the one of `NODE`, under one owner."""
        manager = api or world.others
        await NEWER.install(manager)
        await NEWER.add_cluster(manager)
        its = {"replicas": len(others) + 1, **_required(spec or {})}
        await manager.create(KCP, of_kind("KubeadmControlPlane", KCP, name="cp", spec=its))
        names = [NODE, *(f"member-{number}" for number, _ in enumerate(others, start=2))]
        await members(world, *others, ties=NEWER.ties(NODE))
        for name in names:
            await self.machine(manager, name, well=name != NODE)

    async def machine(self, manager: ApiClient, node: str, *, well: bool, broken: str = "", has_node: bool = True) -> None:
        name = machine_of(node)
        await NEWER.add_machine(manager, name, node=node if has_node else "")
        reference = owner("KubeadmControlPlane", "cp", api_version="controlplane.cluster.x-k8s.io/v1beta2")
        labels = {"cluster.x-k8s.io/control-plane": "", "cluster.x-k8s.io/cluster-name": CLUSTER_NAME}
        await manager.patch(NEWER.path("machines", name), {"metadata": {"ownerReferences": [reference], "labels": labels}})
        await self.conditions(manager, node, {kind: "True" if well and kind != broken else "False" for kind in WELL})

    async def conditions(self, manager: ApiClient, node: str, said: Mapping[str, str]) -> None:
        listed = [
            {"type": kind, "status": status, "reason": "AsSeen", "message": "", "lastTransitionTime": "2026-11-21T11:00:00Z"}
            for kind, status in said.items()
        ]
        await NEWER.set_status(manager, machine_of(node), {"conditions": listed})

    async def initialized(self, world: World, done: bool) -> None:
        said = {"type": "ControlPlaneInitialized", "status": "True" if done else "False", "reason": "AsSeen", "message": ""}
        status = {
            "conditions": [said | {"lastTransitionTime": "2026-11-21T11:00:00Z"}],
            "initialization": {"controlPlaneInitialized": done},
        }
        await world.others.patch(NEWER.path("clusters", CLUSTER_NAME, subresource="status"), {"status": status})

    @pytest.mark.parametrize(
        ("others", "fenced", "deleted"),
        [(("True",), WAIT, GO), (("True", "Unknown"), WAIT, WAIT)],
        ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
    )
    async def test_so_many_are_left(
        self, others: tuple[str, ...], fenced: LookVerdict, deleted: LookVerdict, world: World
    ) -> None:
        """S15."""
        await self.owned(world, *others)
        assert (await look(world)).verdict is fenced
        result = await look(world, operation=Operation.REMOVE)
        assert result.verdict is deleted, result.reason

    async def test_before_it_is_initialized_nothing_of_it_could_be_lost(self, world: World) -> None:
        await self.owned(world, "Unknown", "Unknown")
        await self.initialized(world, False)
        assert (await look(world)).verdict is GO
        await self.initialized(world, True)
        assert (await look(world)).verdict is not GO

    async def test_an_owner_that_is_gone_tells_nothing_and_one_that_cannot_be_read_licenses_nothing(self, world: World) -> None:
        """S20."""
        await self.owned(world, "True", "True")
        await self.conditions(world.others, "member-2", dict.fromkeys(WELL, "False"))
        assert (await look(world)).verdict is WAIT
        await world.others.delete(f"{KCP}/cp")
        assert (await look(world)).verdict is GO
        request = await world.look(need=PERSON)
        world.server.faults.add(Fault(accident=Accident.STATUS, path="kubeadmcontrolplanes", user_agent=OURS))
        assert (await world.target.last_look(request)).verdict is WAIT

    async def test_it_is_asked_in_the_management_cluster(self, world: World) -> None:
        async with management_cluster() as (_, manager, machines):
            await self.owned(world, "True", "True", api=manager)
            target = ClusterTarget(
                ServedCluster(CLUSTER, world.connection, machines=machines, clock=world.clock, source=OPERATORS),
                world.permits,
                LICENCES,
            )
            request = await world.look(need=PERSON)
            assert (await target.last_look(request)).verdict is GO
            await self.conditions(manager, "member-2", dict.fromkeys(WELL, "False"))
            assert (await target.last_look(request)).verdict is WAIT


def _required(spec: Mapping[str, Any]) -> dict[str, Any]:
    """With what the schema wants of every KubeadmControlPlane."""
    reference = {"apiGroup": "example.io", "kind": "ExampleMachineTemplate", "name": "cp"}
    return {"version": "v1.34.0", "machineTemplate": {"spec": {"infrastructureRef": reference}}, **spec}
