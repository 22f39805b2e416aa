"""Keeping a machine and giving one up, over a simulated API server: what is written, in which order, and what is
left alone."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.cluster_lease import ScannerLease
from activities.cluster.acts.preservation import ClusterPreservation
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.lease_view import CLUSTER_LEASE
from activities.cluster.api.paths import MACHINE_DEPLOYMENTS
from activities.cluster.api.paths import MACHINES as MACHINE_RESOURCES
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.live.last_look import LastLook
from activities.cluster.objects.machines_decoding import read_machine
from activities.cluster.watch.intake import PreservationIntake
from activities.cluster.watch.kinds import Destination, ReadKind
from activities.contracts.preservation import GiveUpRequest, GiveUpResult, Hold, HoldRequest, Wish
from activities.contracts.remediation import BeforeActing, RememberRequest
from activities.contracts.target import LookRequest, LookResult, LookVerdict, Target
from activities.errors import ErrorType, error_type
from activities.keyring import Keyring
from activities.licences import Licences
from policy.episode.gate import Operation
from policy.episode.messages import Kind, Need, NeedKind, Pinned, SeenNode
from policy.episode.modes import REPAIRS, ClusterModes
from policy.episode.node_action import NodeActionSpec, SealedCommand, Verb
from policy.objects.machines import IgnoredObjects
from policy.objects.marks import TERMINATING_ANNOTATION, TERMINATING_LABEL, Mark, digest_of
from policy.objects.nodes import EXCLUDE_LABEL, MARK_ANNOTATION, PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import (
    CONDITION,
    ENDED_ANNOTATION,
    EXPIRY_ANNOTATION,
    ISOLATION_ANNOTATION,
    KEPT_AUTOMATICALLY,
    KEPT_ON_REQUEST,
    PRIORITY_ANNOTATION,
    PRIORITY_OURS,
    SCALE_DOWN_DISABLED,
    SINCE_ANNOTATION,
    TAINT,
    Isolation,
)
from policy.preservation.preservation_index import PreservationIndex
from policy.preservation.requests import ISOLATE_ANNOTATION, LAST_APPLIED_ANNOTATION, PRESERVE_FOR_ANNOTATION, Pool, pool_of
from policy.values.machine_apis import MCM
from policy.values.mode import Mode
from policy.values.object_refs import ObjectRef
from simulator.client import ApiClient, ApiError
from tests.cluster.acts.world import Permits, refused
from tests.cluster.builders import owner
from tests.cluster.machines import CLUSTER_API, CLUSTER_NAME, OPENSHIFT, OPERATORS, System, machine_of
from tests.documents import document
from tests.licensing import LICENCES
from tests.policy.builders import a_cluster_config, confirmed

GROUP = "machine.sapcloud.io"
NODE = "/api/v1/nodes/node-7"
MACHINES = f"/apis/{GROUP}/v1alpha1/namespaces/shoot/machines"
REF = ObjectRef(api_version=f"{GROUP}/v1alpha1", kind="Machine", name="w-7", namespace="shoot")
MACHINE = machine_of("node-7")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
BEGUN = {SINCE_ANNOTATION: "2026-11-21T12:00:00Z"}
FOREVER = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

Object = dict[str, Any]


def definition(kind: str = "Machine", *, group: str = GROUP, served: str = "v1alpha1") -> Object:
    """Of machine-controller-manager, or of another group."""
    schema = {"type": "object", "properties": {"spec": FOREVER, "status": FOREVER}}
    version = {
        "name": served,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    one = kind.lower()
    names = {"plural": f"{one}s", "singular": one, "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{one}s.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def node(**annotations: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-7", "annotations": annotations, "labels": confirmed(annotations)},
        "spec": {"unschedulable": True, "taints": [{"key": "mine", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}]},
    }


def machine(phase: str = "Running", **annotations: str) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Machine",
        "metadata": {
            "name": "w-7",
            "namespace": "shoot",
            "labels": {"node": "node-7"},
            "annotations": annotations,
            "ownerReferences": [owner("MachineSet", api_version=f"{GROUP}/v1alpha1")],
        },
        "spec": {},
        "status": {"currentStatus": {"phase": phase}},
    }


class Surroundings:
    """A person with a client, and our activities with a clock that the test moves."""

    def __init__(self, person: ApiClient, connection: ClusterConnection) -> None:
        self.person = person
        self.connection = connection
        self.now = NOW
        connection.clock = lambda: self.now
        self.permits = Permits()
        self.look = LastLook(ServedCluster("prod", connection, clock=lambda: self.now, source=OPERATORS), self.permits).look
        self.serve()

    def serve(self, *pools: Pool) -> None:
        """With these pools of the settings."""
        served = ServedCluster("prod", self.connection, clock=lambda: self.now, source=OPERATORS)
        self.activities = ClusterPreservation(served, self.look, self.permits, pools=pools)

    async def has(self, node: Object | None, machine: Object | None) -> None:
        for path, found in (("/api/v1/nodes", node), (MACHINES, machine)):
            if found is not None:
                created = await self.person.create(path, found)
                status = {"metadata": {"name": created["metadata"]["name"]}, "status": found["status"]}
                await self.person.patch(f"{path}/{created['metadata']['name']}/status", status)

    async def hold(self, **changes: Any) -> Hold:
        request = HoldRequest(**({"cluster": "prod", "node": "node-7", "machine": REF} | changes))
        found = await ActivityEnvironment().run(self.activities.hold, request)
        assert isinstance(found, Hold)
        return found

    async def give_up(self, **changes: Any) -> GiveUpResult:
        given = {"cluster": "prod", "node": "node-7", "machine": REF, "holder": "us"}
        if "machine_uid" not in changes:
            given["machine_uid"] = (await self.machine())["metadata"]["uid"]
        request = GiveUpRequest(**(given | {"not_after": self.now + timedelta(seconds=10)} | changes))
        found = await ActivityEnvironment().run(self.activities.give_up, request)
        assert isinstance(found, GiveUpResult)
        return found

    async def node(self) -> Object:
        return await self.person.get(NODE)

    async def machine(self) -> Object:
        return await self.person.get(f"{MACHINES}/w-7")

    async def annotate(self, path: str, **annotations: str | None) -> None:
        await self.person.patch(path, {"metadata": {"annotations": annotations}})


@pytest.fixture
async def world(person: ApiClient, connection: ClusterConnection) -> Surroundings:
    await person.create(DEFINITIONS, definition())
    await person.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shoot"}})
    return Surroundings(person, connection)


def keys(found: Object) -> list[str]:
    """Of its taints, but for the one that the server puts on every new Node."""
    return [taint["key"] for taint in found["spec"]["taints"] if not taint["key"].startswith("node.kubernetes.io/")]


def condition(found: Object) -> Object:
    return next((each for each in found["status"]["conditions"] if each["type"] == CONDITION), {})


async def test_p01_preserving_a_running_machine_writes_its_expiry_and_keeps_the_autoscaler_off(world: Surroundings) -> None:
    """S28: cordon and taint of others stay; a second look writes nothing."""
    await world.has(node(**{PRESERVE_ANNOTATION: "now"}), machine())
    hold = await world.hold()
    assert (hold.phase, hold.preserved, hold.drain) == ("Running:Preserved", True, False)
    found, kept = await world.machine(), await world.node()
    assert found["status"]["currentStatus"] == {"phase": "Running", "preserveExpiryTime": "2026-11-24T12:00:00Z"}
    last_to_go = {PRIORITY_ANNOTATION: KEPT_ON_REQUEST, PRIORITY_OURS: KEPT_ON_REQUEST}
    assert found["metadata"]["annotations"] == {LAST_APPLIED_ANNOTATION: "now", **BEGUN, **last_to_go}
    assert kept["metadata"]["annotations"][SCALE_DOWN_DISABLED] == "true"
    assert (condition(kept)["status"], condition(kept)["reason"]) == ("True", "Preserved by user.")
    assert keys(kept) == ["mine"]
    assert kept["spec"]["unschedulable"] is True
    again = await world.hold()
    assert (again.changed, again.expiry) == ((), hold.expiry)


@pytest.mark.parametrize("seen", [True, False], ids=["seen without its Node", "made anew between two looks"])
@pytest.mark.parametrize("phase", ["Running", "Failed"])
async def test_s21_a_machine_stays_kept_of_which_the_node_is_deleted_and_made_anew(
    phase: str, seen: bool, world: Surroundings
) -> None:
    """The Node took the annotation with it: no person has released the machine (machine-controller-manager #1135)."""
    await world.has(node(**{PRESERVE_ANNOTATION: "now"}), machine(phase))
    first = await world.hold()
    await world.person.delete(NODE)
    if seen:
        alone = await world.hold()
        assert (alone.preserved, alone.terminate, alone.expiry) == (True, False, first.expiry)
    await world.has(node(), None)
    anew = await world.hold()
    assert (anew.preserved, anew.terminate, anew.expiry) == (True, False, first.expiry)
    assert (await world.machine())["metadata"]["annotations"][PRESERVE_ANNOTATION] == "now"
    await world.annotate(f"{MACHINES}/w-7", **{PRESERVE_ANNOTATION: None})
    assert not (await world.hold()).preserved, "a person has released it"


async def test_what_is_said_on_a_node_that_is_another_machine_by_now_keeps_none_of_its_former_name(world: Surroundings) -> None:
    """S9, S39: the host name went to another machine, and a person wants that one kept."""
    other = node(**{PRESERVE_ANNOTATION: "now"})
    other["spec"]["providerID"] = "aws:///eu-west-1/i-2"
    former = machine()
    former["spec"]["providerID"] = "aws:///eu-west-1/i-1"
    await world.has(other, former)
    before = await world.node()
    assert not (await world.hold()).preserved
    assert await world.node() == before
    assert "preserveExpiryTime" not in (await world.machine())["status"]["currentStatus"]


async def test_releasing_it_leaves_the_objects_as_they_were(world: Surroundings) -> None:
    """S28."""
    before = {"team": "db", SCALE_DOWN_DISABLED: "false"}
    await world.has(node(**before), machine(**{"team": "db", PRIORITY_ANNOTATION: " 3"}))
    await world.hold(wish=Wish(keep=True, duration=timedelta(hours=24)))
    there = await world.node()
    assert there["metadata"]["annotations"][PRESERVE_FOR_ANNOTATION] == "24h"
    hold = await world.hold(wish=Wish(release="released by ada: seen enough"))
    assert (hold.ended, hold.preserved, hold.terminate) == (True, False, False)
    found, kept = await world.machine(), await world.node()
    assert kept["metadata"]["annotations"] == before
    assert found["metadata"]["annotations"] == {"team": "db", PRIORITY_ANNOTATION: " 3"}
    assert "preserveExpiryTime" not in found["status"]["currentStatus"]
    assert condition(kept)["status"] == "False"


async def test_a_failed_machine_is_tainted_and_its_drain_is_told_once_it_is_over(world: Surroundings) -> None:
    """P18; S25: what expired is marked as having had its preservation."""
    await world.has(node(), machine("Failed"))
    hold = await world.hold(wish=Wish(automatic=True))
    assert (hold.phase, hold.drain) == ("Failed:Preserved", True)
    last_to_go = {PRIORITY_ANNOTATION: KEPT_AUTOMATICALLY, PRIORITY_OURS: KEPT_AUTOMATICALLY}
    assert (await world.machine())["metadata"]["annotations"] == {PRESERVE_ANNOTATION: "auto-preserved", **BEGUN, **last_to_go}
    hold = await world.hold(drained=True)
    kept = await world.node()
    assert keys(kept) == ["mine", TAINT]
    assert condition(kept)["message"].startswith("Preserved node drained successfully.")
    assert not hold.drain
    sick = {**condition(kept), "type": "Ready", "status": "False"}
    await world.person.patch("/api/v1/nodes/node-7/status", {"status": {"conditions": [sick, condition(kept)]}})
    world.now += timedelta(hours=72)
    hold = await world.hold()
    assert (hold.terminate, hold.preserved) == (True, False)
    assert ENDED_ANNOTATION in (await world.machine())["metadata"]["annotations"]
    assert (await world.hold()).terminate
    since = "2026-11-24T12:00:00Z"
    for phase, wish in (("Failed", Wish(keep=True)), ("Running", Wish())):  # kept anew, and well: a word since then ends that
        await world.person.patch(f"{MACHINES}/w-7/status", {"status": {"currentStatus": {"phase": phase}}})
        well = {**sick, "status": "True"} if phase == "Running" else sick
        await world.person.patch("/api/v1/nodes/node-7/status", {"status": {"conditions": [well, condition(await world.node())]}})
        assert (await world.hold(wish=wish)).phase == f"{phase}:Preserved"
        assert (await world.machine())["metadata"]["annotations"][SINCE_ANNOTATION] == since
    assert ENDED_ANNOTATION not in (await world.machine())["metadata"]["annotations"]


async def test_how_far_an_isolation_has_come_stands_on_the_node_and_nothing_of_it_is_left(world: Surroundings) -> None:
    """S28; the pool's wish counts where nobody else says anything."""
    await world.has(node(), machine("Failed"))
    hold = await world.hold(wish=Wish(keep=True, isolate=True))
    assert (hold.phase, hold.isolate) == ("Failed:Preserved", True)
    annotations = (await world.node())["metadata"]["annotations"]
    assert (annotations[ISOLATE_ANNOTATION], annotations[ISOLATION_ANNOTATION]) == ("true", "asked")
    await world.hold(drained=True, isolation=Isolation.CUT)
    again = await world.hold(drained=True, isolation=Isolation.CUT)
    assert again.changed == ()
    assert (await world.node())["metadata"]["annotations"][ISOLATION_ANNOTATION] == "cut"
    await world.hold(wish=Wish(release="released by ada: seen enough"))
    assert "annotations" not in (await world.node())["metadata"] or not (await world.node())["metadata"]["annotations"]


async def test_a_pool_of_the_settings_says_how_long_and_an_object_of_its_name_goes_before_it(
    world: Surroundings, person: ApiClient
) -> None:
    await person.create(DEFINITIONS, document("deploy/crds/preservationpolicies.nodewarden.io.yaml"))
    world.serve(pool_of("workers", {"selector": {}, "machinePreserveTimeout": "2h"}))
    await world.has(node(**{PRESERVE_ANNOTATION: "now"}), machine())
    assert (await world.hold()).expiry == NOW + timedelta(hours=2)
    await world.hold(wish=Wish(release="released by ada: enough"))
    policy = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "PreservationPolicy", "metadata": {"name": "workers"}}
    spec = {"selector": {}, "machinePreserveTimeout": "3h", "isolate": True}
    await person.create("/apis/nodewarden.io/v1alpha1/preservationpolicies", policy | {"spec": spec})
    await world.annotate(NODE, **{PRESERVE_ANNOTATION: "now"})
    assert (await world.hold()).expiry == NOW + timedelta(hours=3)


async def test_a_node_that_never_was_is_not_called_deleted(world: Surroundings) -> None:
    hold = await world.hold(machine=None, node="node-99")
    assert hold.gone == "node-99: there is no such Node or Machine"


async def test_a_node_without_a_machine_carries_its_expiry_itself(world: Surroundings) -> None:
    await world.has(node(**{PRESERVE_ANNOTATION: "true"}), None)
    hold = await world.hold(machine=None)
    assert hold.phase == "Running:Preserved"
    assert (await world.node())["metadata"]["annotations"][EXPIRY_ANNOTATION] == "2026-11-24T12:00:00Z"
    hold = await world.hold(machine=None, wish=Wish(until=NOW + timedelta(hours=1)))
    assert (await world.node())["metadata"]["annotations"][EXPIRY_ANNOTATION] == "2026-11-21T13:00:00Z"
    world.now += timedelta(hours=1)
    hold = await world.hold(machine=None)
    assert hold.ended
    assert set((await world.node())["metadata"].get("annotations") or {}) <= {""}


async def test_another_machine_of_the_name_is_not_the_one_that_was_kept(world: Surroundings) -> None:
    """S9."""
    await world.has(node(), machine())
    hold = await world.hold(machine_uid="another")
    assert (hold.replaced, hold.override) == (True, "deletion")
    assert hold.gone.startswith("another Machine has taken the name, deletion: ")
    assert hold.changed == ()


async def test_a_request_by_the_node_finds_and_keeps_its_machine(world: Surroundings) -> None:
    """Of machine-controller-manager, by the label on the Machine; one that is on its way out gives way to its successor."""
    await world.has(node(), machine())
    gone = machine()
    gone["metadata"] |= {"name": "w-6", "finalizers": ["example.com/wait"]}
    await world.person.create(MACHINES, gone)
    await world.person.delete(f"{MACHINES}/w-6")
    hold = await world.hold(machine=None, wish=Wish(keep=True))
    assert (hold.machine, hold.machine_uid) == (REF, (await world.machine())["metadata"]["uid"])
    assert (await world.machine())["status"]["currentStatus"]["preserveExpiryTime"] == "2026-11-24T12:00:00Z"
    assert EXPIRY_ANNOTATION not in (await world.node())["metadata"]["annotations"]


async def test_where_two_machines_claim_a_node_nothing_is_written(world: Surroundings) -> None:
    """S9."""
    await world.has(node(), machine())
    other = machine()
    other["metadata"]["name"] = "w-6"
    await world.person.create(MACHINES, other)
    with pytest.raises(ApplicationError, match=r"several Machines say that it is theirs: shoot/w-6, shoot/w-7") as refused:
        await world.hold(machine=None, wish=Wish(keep=True))
    assert refused.value.type == "InvalidConfig"
    assert (await world.node())["metadata"].get("annotations", {}) == {}


@pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
async def test_the_node_names_its_machine_in_other_systems(
    system: System, person: ApiClient, connection: ClusterConnection
) -> None:
    """There the kinds of machine-controller-manager are not installed."""
    await system.install(person)
    await system.add_cluster(person)
    await person.create("/api/v1/nodes", system.node("node-7"))
    await system.add_machine(person, MACHINE, node="node-7")
    hold = await Surroundings(person, connection).hold(machine=None, wish=Wish(keep=True))
    assert hold.machine == system.machine_ref(MACHINE)
    found = await person.get(system.path("machines", "machine-7"))
    expiry = {EXPIRY_ANNOTATION: "2026-11-24T12:00:00Z"}
    assert found["metadata"]["annotations"] == {LAST_APPLIED_ANNOTATION: "now", **BEGUN, **expiry}


async def test_a_machine_that_does_not_refer_to_the_node_is_not_its_own(person: ApiClient, connection: ClusterConnection) -> None:
    """S9: an annotation alone makes no Machine somebody's; and a hold that began on a Node alone stays there (S22)."""
    await OPENSHIFT.install(person)
    await person.create("/api/v1/nodes", OPENSHIFT.node("node-7"))
    await OPENSHIFT.add_machine(person, MACHINE, node="node-8")
    world = Surroundings(person, connection)
    hold = await world.hold(machine=None, wish=Wish(keep=True))
    assert (hold.machine, hold.phase) == (None, "Running:Preserved")
    await OPENSHIFT.set_status(person, MACHINE, {"nodeRef": {"name": "node-7"}})
    world.now += timedelta(hours=1)
    again = await world.hold(machine=None)
    assert (again.machine, again.expiry) == (None, hold.expiry)


async def leased(world: Surroundings) -> None:
    await ScannerLease(world.connection, clock=lambda: world.now).keep("us")


async def test_a_failed_machine_that_is_not_kept_is_deleted_by_uid(world: Surroundings) -> None:
    await world.has(node(), machine("Failed"))
    await leased(world)
    result = await world.give_up()
    assert (result.kept, result.gone) == ("", False)
    said = (await world.node())["metadata"]
    assert said["labels"][TERMINATING_LABEL] == digest_of(said["annotations"][TERMINATING_ANNOTATION])  # S41
    assert (await world.person.list(MACHINES))["items"] == []


@pytest.mark.parametrize("where", [NODE, f"{MACHINES}/w-7"])
async def test_an_earlier_annotation_keeps_it(world: Surroundings, where: str) -> None:
    """S27: on either object."""
    await world.has(node(), machine("Failed"))
    await leased(world)
    await world.annotate(where, **{PRESERVE_ANNOTATION: "when-failed"})
    result = await world.give_up()
    assert result.kept == "its preservation is still asked for"
    assert len((await world.person.list(MACHINES))["items"]) == 1
    assert TERMINATING_ANNOTATION not in ((await world.node())["metadata"].get("annotations") or {})


async def test_where_fencing_is_switched_off_a_pool_keeps_no_machine_and_lets_none_go(world: Surroundings) -> None:
    """S20: what a program would write waits. A machine that has failed is not let go for that."""
    await world.has(node(), machine("Failed"))
    await switch(world, "off")
    before = await world.node(), await world.machine()
    with pytest.raises(ApplicationError, match="fencing is switched off") as refused:
        await world.hold(wish=Wish(automatic=True))
    assert error_type(refused.value) is ErrorType.NOT_LICENSED
    assert (await world.node(), await world.machine()) == before
    await switch(world, "on")
    assert (await world.hold(wish=Wish(automatic=True))).phase == "Failed:Preserved"
    await switch(world, "off")
    world.serve(NONE_KEPT)
    assert (await world.hold(wish=Wish(surplus=True))).phase == "Failed:Preserved"
    await switch(world, "on")
    assert (await world.hold(wish=Wish(surplus=True))).terminate


NONE_KEPT, ONE_KEPT = (pool_of("workers", {"selector": {}, "autoPreserveFailedMax": cap}) for cap in (0, 1))


async def test_s24_a_cap_gives_up_what_exceeds_it_as_it_is_now_and_nothing_that_a_signal_says(world: Surroundings) -> None:
    """S21, S42: any client of Temporal may say that a cap has fallen. Of two that are kept the earlier end goes."""
    await world.has(node(), machine("Failed"))
    world.serve(ONE_KEPT)
    await world.hold(wish=Wish(automatic=True))
    before = await world.node(), await world.machine()
    found = await world.hold(wish=Wish(surplus=True), drained=None)
    assert (found.preserved, found.terminate) == (True, False)
    assert "no cap that has fallen releases it" in found.refused
    assert (await world.node(), await world.machine()) == before
    other = machine("Failed", **{PRESERVE_ANNOTATION: "auto-preserved"})
    other["metadata"] |= {"name": "w-8", "labels": {}}
    other["status"]["currentStatus"]["preserveExpiryTime"] = "2026-11-30T12:00:00Z"
    await world.has(None, other)
    found = await world.hold(wish=Wish(surplus=True), machine=replace(REF, name="w-8"), node="")
    assert (found.preserved, "no cap" in found.refused) == (True, True)
    assert (await world.hold(wish=Wish(surplus=True))).terminate
    found = await world.hold(wish=Wish(surplus=True), machine=replace(REF, name="w-8"), node="")
    assert found.preserved


OF_A_SET = [owner("MachineDeployment", name="workers", api_version=f"{GROUP}/v1alpha1")]


def a_set(namespace: str, cap: int, name: str = "workers") -> Object:
    spec = {"autoPreserveFailedMachineMax": cap, "replicas": 1}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": f"{GROUP}/v1alpha1", "kind": "MachineDeployment", "metadata": metadata, "spec": spec}


async def test_s24_only_the_set_of_its_own_namespace_gives_a_machine_up(world: Surroundings) -> None:
    """S21, S24: a tenant's set of the name releases none that ours keeps, and one that can't be read blocks its own machines."""
    sets = f"/apis/{GROUP}/v1alpha1/namespaces/%s/machinedeployments"
    await world.person.create(DEFINITIONS, definition("MachineDeployment"))
    await world.person.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}})
    one = machine("Failed")
    one["metadata"]["ownerReferences"] = OF_A_SET
    await world.has(node(), one)
    await world.person.create(sets % "shoot", a_set("shoot", 1))
    assert (await world.hold(wish=Wish(automatic=True))).preserved
    for found in (a_set("tenant", 0), a_set("tenant", -1, "other")):
        await world.person.create(sets % "tenant", found)
    for cap, kept in ((1, True), (-1, True), (0, False)):
        await world.person.patch(f"{sets % 'shoot'}/workers", {"spec": {"autoPreserveFailedMachineMax": cap}})
        found = await world.hold(wish=Wish(surplus=True))
        assert (found.preserved, found.terminate) == (kept, not kept), cap


@pytest.mark.parametrize(("namespace", "released"), [("shoot", True), ("tenant", False)])
def test_s24_a_scan_reads_a_cap_of_the_machines_own_namespace(namespace: str, released: bool) -> None:
    index, deployments = PreservationIndex(), MACHINE_DEPLOYMENTS[MCM]
    intake = PreservationIntake(index, lambda: NOW, namespaces=OPERATORS.machines)
    one = machine("Failed", **{PRESERVE_ANNOTATION: "auto-preserved"})
    one["metadata"]["ownerReferences"] = OF_A_SET
    one["status"]["currentStatus"]["preserveExpiryTime"] = "2026-11-24T12:00:00Z"
    index.put_machine(REF, read_machine(one, MCM), NOW - timedelta(hours=1))
    for where, cap in (("shoot", 1), (namespace, 0)):
        kind = ReadKind(resource=deployments, destination=Destination.SETS)
        intake.take(kind, deployments, f"{where}/workers", a_set(where, cap))
    assert any(need.released for need in index.needs(NOW, lambda _: "")[0]) is released


@pytest.mark.parametrize("counts", [True, False])
def test_s46_a_machine_that_does_not_count_keeps_no_node(counts: bool) -> None:
    """S44: nor does its set say anything. That it is ignored is for people to see."""
    index, ignored, namespaces = PreservationIndex(), IgnoredObjects(), ("shoot",) if counts else ()
    intake = PreservationIntake(index, lambda: NOW - timedelta(hours=1), namespaces=namespaces, ignored=ignored)
    of_machines, of_sets = (
        ReadKind(resource=resource, destination=destination)
        for resource, destination in (
            (MACHINE_RESOURCES[MCM], Destination.KEPT_MACHINES),
            (MACHINE_DEPLOYMENTS[MCM], Destination.SETS),
        )
    )
    one = read_machine(machine("Failed", **{PRESERVE_ANNOTATION: "now"}), MCM)
    intake.take(of_machines, of_machines.resource, "shoot/w-7", one)
    assert [need.victim for need in index.needs(NOW, lambda _: "")[0]] == (["node-7"] if counts else [])
    intake.take(of_sets, of_sets.resource, "shoot/workers", a_set("shoot", -1))
    assert (len(list(index.mistakes)), ignored.text([]) == "") == ((1, True) if counts else (0, False))
    intake.take(of_machines, of_machines.resource, "shoot/w-7", None)
    assert ignored.text([]) == ""


def test_s24_people_are_told_of_a_set_that_can_t_be_read() -> None:
    """By an Event on it, as long as it stands: its failed machines are neither kept nor repaired meanwhile."""
    index, deployments = PreservationIndex(), MACHINE_DEPLOYMENTS[MCM]
    intake, kind = (
        PreservationIntake(index, lambda: NOW, namespaces=OPERATORS.machines),
        ReadKind(resource=MACHINE_DEPLOYMENTS[MCM], destination=Destination.SETS),
    )
    told = []
    for cap in (1, -1, 1):
        intake.take(kind, deployments, "shoot/workers", a_set("shoot", cap))
        told.append([(each.about.key, each.reason, *each.messages) for each in index.mistakes])
    before, ((about, reason, message),), after = told
    assert (before, after, about, reason) == ([], [], "MachineDeployment/shoot/workers", "InvalidPreservation")
    assert message.startswith("it can't be read: ")
    assert message.endswith("until then its failed machines are neither kept nor repaired")


SILENT = {
    **node(),
    "status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": ""}]},
}


def only(mode: Mode) -> ClusterModes:
    return ClusterModes(setting=mode)


async def test_s52_only_in_repair_is_a_machine_given_up_whose_time_is_over(world: Surroundings) -> None:
    """S52: by a program. One that a person has released is given up as ever."""
    await world.has(SILENT, machine("Failed"))
    hold = await world.hold(wish=Wish(keep=True))
    assert hold.expiry is not None
    world.now, world.permits.set = hold.expiry, only(Mode.DRAIN)
    ended = await world.hold()
    assert (ended.preserved, ended.terminate) == (False, False)
    assert "its Machine is not given up: its mode is drain" in ended.reason
    assert (await world.hold(wish=Wish(release="released by ada: enough"))).terminate
    await leased(world)
    with refused(ErrorType.NOT_LICENSED, "its mode is drain"):
        await world.give_up(victim="node-7", incident="i-1")
    assert "deletionTimestamp" not in (await world.machine())["metadata"]
    await world.give_up(victim="node-7", incident="i-1", released=True)


Found = dict[str, Any]


def verified(world: Surroundings) -> None:
    """A person's word is needed from here on."""
    served = ServedCluster("prod", world.connection, clock=lambda: world.now, source=OPERATORS)
    world.activities = ClusterPreservation(served, world.look, world.permits, licences=LICENCES)


def released_by(
    found: Found,
    verb: Verb = Verb.RELEASE,
    *,
    by: Licences = LICENCES,
    incident: str = "i-1",
    node: str = "node-7",
    boot: str | None = None,
    kind: Kind = Kind.PRESERVATION,
    **said: Any,
) -> SealedCommand:
    """A person's word, as a cluster worker has verified it. found: the Node then. said: what it says besides."""
    spoken = NodeActionSpec(action=verb, node=node, reason="enough", **said)
    boot = found["status"].get("nodeInfo", {}).get("bootID", "") if boot is None else boot
    machine = {"node_uid": found["metadata"]["uid"], "boot_id": boot}
    unsealed = SealedCommand(spec=spoken, action="u-1", speaker="ada", kind=kind.value, **machine)
    return ActivityEnvironment().run(lambda: by.seal_command("prod", incident, unsealed))


@pytest.mark.parametrize(
    "forged",
    [
        lambda _: None,
        lambda found: released_by(found, by=Licences(Keyring([b"a key that somebody else has made up himself"]))),
        lambda found: released_by(found, Verb.RESUME),
        lambda found: released_by(found, incident="i-0"),
        lambda found: released_by(found, node="node-8"),
        lambda found: released_by(found, boot="a former one"),
    ],
    ids=["no word", "signed by others", "another command", "of another incident", "about another node", "of another boot"],
)
@pytest.mark.parametrize("mode", [Mode.DRAIN, Mode.REPAIR])
async def test_s21_that_a_person_has_released_a_machine_is_not_believed_of_the_request(
    forged: Callable[[Found], SealedCommand | None], mode: Mode, world: Surroundings
) -> None:
    """S42, S52: an episode that any client of Temporal has started would have it deleted in every mode. It stays kept."""
    verified(world)
    await world.has(SILENT, machine("Failed"))
    await world.hold(wish=Wish(keep=True))
    world.permits.set, before = only(mode), (await world.node(), await world.machine())
    wish = Wish(release="released by ada: enough")
    found = await world.hold(wish=wish, incident="i-1", word=forged(await world.node()))
    assert (found.released, found.terminate, found.preserved) == (False, False, True)
    assert found.refused.startswith("it is not released: ")
    assert (await world.node(), await world.machine()) == before
    await leased(world)
    given_up = await world.give_up(victim="node-7", incident="i-1", released=True, word=forged(await world.node()))
    assert given_up.kept == "its preservation is still asked for"
    for until in (world.now, world.now + timedelta(hours=1)):  # an end that is over, or earlier, lets it go as well
        found = await world.hold(wish=Wish(until=until), incident="i-1", moved=forged(await world.node()))
        assert (found.preserved, found.refused.partition(":")[0]) == (True, "it does not end earlier")
    assert (await world.node(), await world.machine()) == before
    if mode is Mode.DRAIN:  # nor of one that a person has released: below repair no other word gives it up
        assert (await world.hold(wish=wish, incident="i-1", word=released_by(await world.node()))).terminate
        with refused(ErrorType.NOT_LICENSED, "its mode is drain"):
            await world.give_up(victim="node-7", incident="i-1", released=True, word=forged(await world.node()))


async def test_s42_a_person_ends_a_preservation_earlier_by_that_word_alone(world: Surroundings) -> None:
    """And no earlier than it says; later, as any person may have a machine kept."""
    verified(world)
    await world.has(SILENT, machine("Failed"))
    later = (await world.hold(wish=Wish(keep=True))).expiry
    assert later is not None
    soon, found = world.now + timedelta(hours=1), await world.node()
    moved = released_by(found, Verb.EXTEND, until=soon, shorten=True)
    for wrong in (moved, released_by(found, Verb.EXTEND, until=soon)):
        until = soon if wrong is not moved else soon - timedelta(seconds=1)
        assert (await world.hold(wish=Wish(until=until), incident="i-1", moved=wrong)).expiry == later
    assert (await world.hold(wish=Wish(until=soon), incident="i-1", moved=moved)).expiry == soon
    assert (await world.hold(wish=Wish(until=later))).expiry == later


async def test_s44_a_word_for_a_time_holds_where_there_is_no_end_yet_to_count_from(world: Surroundings) -> None:
    """S22: and not for less than it says."""
    verified(world)
    await world.has(SILENT, machine("Failed"))
    moved, world.now = released_by(await world.node(), Verb.EXTEND, hold=timedelta(hours=2)), datetime.now(UTC)
    soon = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    less = await world.hold(wish=Wish(until=soon), incident="i-1", moved=moved)
    assert (less.preserved, less.refused.partition(":")[0]) == (False, "it does not end earlier")
    said = soon + timedelta(hours=1)
    assert (await world.hold(wish=Wish(keep=True, until=said), incident="i-1", moved=moved)).expiry == said


@pytest.mark.parametrize("kind", [Kind.PRESERVATION, Kind.FENCING])
async def test_s21_no_word_ends_a_preservation_that_was_not_said_to_it(kind: Kind, world: Surroundings) -> None:
    """S49: one to a former preservation of that boot, or to a fencing. Nor is it a word for the deletion of the machine."""
    verified(world)
    await world.has(SILENT, machine("Failed"))
    found, soon = await world.node(), datetime.now(UTC) + timedelta(hours=2)
    words = [released_by(found, verb, kind=kind) for verb in (Verb.RELEASE, Verb.ABORT)]
    moved = released_by(found, Verb.EXTEND, kind=kind, until=soon.replace(microsecond=0), shorten=True)
    if kind is Kind.PRESERVATION:
        world.now = datetime.now(UTC) + timedelta(minutes=1)
    else:
        words = words[1:]  # said while it is kept
    expiry = (await world.hold(wish=Wish(keep=True))).expiry
    assert expiry is not None
    for word in words:
        held = await world.hold(wish=Wish(release="enough"), incident="i-1", word=word)
        assert (held.released, held.terminate, held.expiry) == (False, False, expiry)
        assert "say it again" in held.refused or "to another episode (Fencing)" in held.refused
    if kind is Kind.PRESERVATION:
        assert (await world.hold(wish=Wish(until=moved.spec.until), incident="i-1", moved=moved)).expiry == expiry
    world.now, world.permits.set = expiry, only(Mode.OBSERVE)
    assert (await world.hold()).ended
    await leased(world)
    for word in words:
        with refused(ErrorType.NOT_LICENSED, "its mode is observe"):
            await world.give_up(victim="node-7", incident="i-1", released=True, word=word)


async def test_s42_an_earlier_end_is_not_that_of_a_word_for_an_even_earlier_one(world: Surroundings) -> None:
    """S21: what was said counts for that moment, and not for each later one for ever."""
    verified(world)
    await world.has(SILENT, machine("Failed"))
    expiry = (await world.hold(wish=Wish(keep=True))).expiry
    moved = released_by(await world.node(), Verb.EXTEND, until=world.now + timedelta(minutes=1), shorten=True)
    world.now += timedelta(hours=2)
    held = await world.hold(wish=Wish(until=world.now), incident="i-1", moved=moved)
    assert (held.expiry, held.terminate) == (expiry, False)


@pytest.mark.parametrize("begun", [True, False])
async def test_s21_no_word_about_a_former_machine_without_a_node_releases_its_successor(begun: bool, world: Surroundings) -> None:
    """S9, S49: it names a Machine by its name, which another one has taken."""
    verified(world)
    about = NodeActionSpec(action=Verb.RELEASE, node="machine/shoot/w-7", reason="enough")
    unsealed = SealedCommand(spec=about, action="u-1", speaker="ada", kind=Kind.PRESERVATION.value)
    word = ActivityEnvironment().run(lambda: LICENCES.seal_command("prod", "i-1", unsealed))
    world.now = datetime.now(UTC) + timedelta(minutes=1)
    await world.has(None, machine("Failed", **{PRESERVE_ANNOTATION: "now"}))
    if begun:
        assert (await world.hold(node="")).preserved
    held = await world.hold(node="", wish=Wish(release="enough"), incident="i-1", word=word)
    assert (held.released, held.preserved) == (False, True)
    assert "say it again" in held.refused


@pytest.mark.parametrize("wish", [Wish(until=NOW), Wish(keep=True, until=NOW), Wish(keep=True, duration=timedelta(seconds=1))])
async def test_s22_what_a_person_has_armed_is_kept_for_its_pools_time_whatever_a_caller_wishes(
    wish: Wish, world: Surroundings
) -> None:
    """S21, S42: an end that is over, or near, would begin and end it at once, and have the machine deleted."""
    verified(world)
    armed = {**SILENT, "metadata": {**SILENT["metadata"], "annotations": {PRESERVE_ANNOTATION: "when-failed"}}}
    await world.has(armed, machine("Failed"))
    assert (await world.hold(wish=wish)).expiry == NOW + timedelta(hours=72)
    world.now += timedelta(seconds=2)
    assert (await world.hold()).preserved


async def test_s28_a_wish_to_keep_replaces_no_annotation_of_a_person(world: Surroundings) -> None:
    """S42: it would be removed with the end of that, and a failure kept by no more than a pool."""
    await world.has(node(**{PRESERVE_ANNOTATION: "when-failed"}), machine())
    held = await world.hold(wish=Wish(keep=True, duration=timedelta(seconds=1)))
    assert not held.preserved
    assert held.refused == f"it is not kept yet: a person has annotated it with {PRESERVE_ANNOTATION}=when-failed"
    assert (await world.node())["metadata"]["annotations"] == {PRESERVE_ANNOTATION: "when-failed"}


async def test_a_machine_that_a_person_has_released_is_given_up_in_every_mode(world: Surroundings) -> None:
    verified(world)
    await world.has(SILENT, machine("Failed"))
    await world.hold(wish=Wish(keep=True))
    world.permits.set = only(Mode.OBSERVE)
    found = await world.hold(wish=Wish(release="released by ada: enough"), incident="i-1", word=released_by(await world.node()))
    assert (found.released, found.terminate) == (True, True)
    await leased(world)
    await world.give_up(victim="node-7", incident="i-1", released=True, word=released_by(await world.node()))
    with pytest.raises(ApiError):
        await world.machine()


async def test_s52_whether_a_machine_is_given_up_waits_for_a_mode_that_can_t_be_read(world: Surroundings) -> None:
    await world.has(SILENT, machine("Failed"))
    hold = await world.hold(wish=Wish(keep=True))
    assert hold.expiry is not None
    world.now, world.permits.modes_error = hold.expiry, RuntimeError("the scanner has been stopped")
    with pytest.raises(ApplicationError, match="the scanner has been stopped"):
        await world.hold()
    world.permits.modes_error = None
    assert (await world.hold()).terminate


async def test_where_fencing_is_switched_off_a_person_keeps_and_releases(world: Surroundings) -> None:
    """S17, S44: a person's word is carried out, and what ends is ended."""
    await world.has(node(), machine("Running"))
    await switch(world, "off")
    assert (await world.hold(wish=Wish(keep=True))).phase == "Running:Preserved"
    assert (await world.hold(wish=Wish(release="seen enough"))).phase == "Running"


async def test_s52_in_observe_a_pool_begins_to_keep_nothing_and_gives_nothing_up(world: Surroundings) -> None:
    """S52: what is kept already stays kept, and no mode brakes a person."""
    await world.has(node(), machine("Failed"))
    before = await world.node(), await world.machine()
    world.permits.set = ClusterModes(setting=Mode.OBSERVE)
    hold = await world.hold(wish=Wish(automatic=True))
    assert (hold.preserved, hold.terminate, hold.changed) == (False, False, ())
    assert "its mode is observe" in hold.reason
    world.permits.set, world.permits.modes_error = REPAIRS, RuntimeError("Temporal is away")
    with pytest.raises(ApplicationError, match="the mode could not be read: Temporal is away"):
        await world.hold(wish=Wish(automatic=True))
    assert (await world.node(), await world.machine()) == before
    world.permits.set, world.permits.modes_error = ClusterModes(setting=Mode.CORDON), None
    assert (await world.hold(wish=Wish(automatic=True))).phase == "Failed:Preserved"
    world.serve(NONE_KEPT)
    world.permits.set = ClusterModes(setting=Mode.OBSERVE)
    assert (await world.hold(wish=Wish(surplus=True))).phase == "Failed:Preserved"
    assert (await world.hold()).phase == "Failed:Preserved"


async def test_s52_only_in_repair_is_a_kept_machine_released_because_its_cap_has_fallen(world: Surroundings) -> None:
    """S52: in every lower mode what is kept stays kept."""
    await world.has(node(), machine("Failed"))
    assert (await world.hold(wish=Wish(automatic=True))).phase == "Failed:Preserved"
    world.serve(NONE_KEPT)
    for mode in (Mode.OBSERVE, Mode.CORDON, Mode.DRAIN):
        world.permits.set = only(mode)
        assert (await world.hold(wish=Wish(surplus=True))).phase == "Failed:Preserved", mode
    world.permits.set = only(Mode.REPAIR)
    assert (await world.hold(wish=Wish(surplus=True))).terminate


@pytest.mark.parametrize("of_node", [True, False])
async def test_s52_the_annotation_of_a_pool_begins_to_keep_nothing_in_observe(of_node: bool, world: Surroundings) -> None:
    """S52: a kubelet may write it to its Node, and a pool whose write was cut short has: no person asks for it."""
    said = {PRESERVE_ANNOTATION: "auto-preserved"}
    await world.has(node(**said) if of_node else node(), machine("Failed") if of_node else machine("Failed", **said))
    before = await world.node(), await world.machine()
    world.permits.set = only(Mode.OBSERVE)
    hold = await world.hold()
    assert (hold.preserved, hold.terminate, hold.changed) == (False, False, ())
    assert "its mode is observe" in hold.reason
    assert (await world.node(), await world.machine()) == before
    world.permits.set, world.permits.modes_error = REPAIRS, RuntimeError("Temporal is away")
    with pytest.raises(ApplicationError, match="the mode could not be read: Temporal is away"):
        await world.hold()
    world.permits.modes_error = None
    assert (await world.hold()).phase == "Failed:Preserved"


async def test_s52_in_observe_a_person_keeps_and_releases(world: Surroundings) -> None:
    await world.has(node(), machine("Failed"))
    world.permits.set = ClusterModes(setting=Mode.OBSERVE)
    assert (await world.hold(wish=Wish(keep=True))).phase == "Failed:Preserved"
    assert (await world.hold(wish=Wish(release="seen enough"))).terminate


FAR = {Mode.OBSERVE: (False, False), Mode.CORDON: (False, False), Mode.DRAIN: (True, False), Mode.REPAIR: (True, True)}
"""How far a pool goes with a machine that it keeps: whether its pods are evicted, whether it is cut off."""


@pytest.mark.parametrize("mode", Mode)
async def test_s52_what_a_pool_wants_done_to_a_kept_machine_waits_for_its_mode_and_nothing_is_written(
    mode: Mode, world: Surroundings
) -> None:
    """S52: the episode is not asked to do it, so it takes no permit for it and marks no node."""
    world.serve(pool_of("workers", {"selector": {}, "isolate": True}))
    await world.has(node(), machine("Failed"))
    hold = await world.hold(wish=Wish(automatic=True))
    assert (hold.drain, hold.isolate, hold.rests) == (True, True, False)
    await world.annotate(NODE, **{ISOLATION_ANNOTATION: None})
    world.permits.set = only(mode)
    hold = await world.hold()
    assert hold.phase == "Failed:Preserved"
    assert (hold.drain, hold.isolate) == FAR[mode]
    assert hold.rests is (mode is not Mode.REPAIR)
    assert (f"its mode is {mode}" in hold.reason) is hold.rests
    said = (await world.node())["metadata"]["annotations"]
    assert (said.get(ISOLATION_ANNOTATION) == Isolation.ASKED) is (mode is Mode.REPAIR)
    assert condition(await world.node()).get("message", "").startswith("Machine preserved until ") is not hold.drain
    cut = await world.hold(drained=True, isolation=Isolation.CUT)
    assert (cut.drain, cut.isolate, cut.rests) == (False, True, False)  # all is done


async def test_s52_no_mode_delays_what_a_person_wants_done_to_a_kept_machine(world: Surroundings) -> None:
    """Also while none can be asked for: only what its pool wants besides waits for that."""
    world.serve(pool_of("workers", {"selector": {}, "isolate": True}))
    world.permits.modes_error = RuntimeError("Temporal is away")
    await world.has(node(), machine("Failed"))
    hold = await world.hold(wish=Wish(keep=True))
    assert (hold.phase, hold.drain, hold.isolate, hold.rests) == ("Failed:Preserved", True, False, True)
    assert hold.reason.endswith("; it is not cut off: the mode could not be read: Temporal is away")
    hold = await world.hold(wish=Wish(isolate=True))
    assert (hold.isolate, hold.rests) == (True, False)


async def switch(world: Surroundings, fencing: str) -> None:
    """The off switch of the whole cluster."""
    path, config = "/api/v1/namespaces/nodewarden/configmaps", a_cluster_config(fencing=fencing)
    if (await world.person.list(path))["items"]:
        await world.person.patch(f"{path}/fence-cluster-config", {"data": config["data"]})
    else:
        await world.person.create("/api/v1/namespaces", {"metadata": {"name": "nodewarden"}})
        await world.person.create(path, config)


OLD_CLAIM = "2026-11-20T12:00:00Z"


@pytest.mark.parametrize(
    ("path", "claim"),
    [(NODE, {TERMINATING_ANNOTATION: OLD_CLAIM}), (f"{MACHINES}/w-7", {})],
    ids=["Node, where an old claim stands", "Machine"],
)
async def test_a_word_at_any_moment_is_heard_or_came_after_the_deletion_had_begun(
    world: Surroundings, path: str, claim: dict[str, str]
) -> None:
    """S27: the word comes before each request of ours in turn. The machine is kept, or it was annotated when its Node said
    already that it is being given up (or was gone itself). The claim of an earlier remediation that was aborted says nothing."""
    await leased(world)
    send = world.connection._request
    kept = late = 0
    for moment in itertools.count():
        await world.has(node(**claim), machine("Failed"))
        requests, said = itertools.count(), list[Object | None]()

        async def request(*args: Any, turn: Iterator[int], at: int, said: list[Object | None], **options: Any) -> Any:
            if next(turn) == at:
                said.append(await spoken(world, path))
            return await send(*args, **options)

        world.connection._request = partial(request, turn=requests, at=moment, said=said)  # type: ignore[method-assign]
        result = await world.give_up()
        there = (await world.person.list(MACHINES))["items"]
        if not said:
            break
        if there:
            kept += 1
            assert result.kept
            await world.person.delete(f"{MACHINES}/w-7")
        else:
            late += 1
            assert said[0] is None or claim_on(said[0]) not in {"", OLD_CLAIM}, "a word was lost"
        await world.person.delete(NODE)
    assert kept > 3
    assert (late > 0) is (path == NODE)


async def spoken(world: Surroundings, path: str) -> Object | None:
    """What was annotated, None where nothing is there any more."""
    try:
        return await world.person.patch(path, {"metadata": {"annotations": {PRESERVE_ANNOTATION: "now"}}})
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def claim_on(found: Object) -> str:
    """Of a deletion, "" for none."""
    return str(found["metadata"].get("annotations", {}).get(TERMINATING_ANNOTATION, ""))


async def test_the_cap_releases_no_machine_that_a_person_has_asked_for_meanwhile(world: Surroundings) -> None:
    """S23: the scanner saw it as automatically preserved; the word comes before the release is carried out."""
    await world.has(node(), machine("Failed"))
    await world.hold(wish=Wish(automatic=True))
    await world.hold(drained=True)
    await world.annotate(NODE, **{PRESERVE_ANNOTATION: "now"})
    world.serve(NONE_KEPT)
    hold = await world.hold(wish=Wish(surplus=True))
    assert (hold.preserved, hold.terminate) == (True, False)
    assert (await world.node())["metadata"]["annotations"][PRESERVE_ANNOTATION] == "now"


async def test_a_claim_is_taken_off_without_the_cluster_lease(world: Surroundings) -> None:
    """S17: to withdraw is to restore."""
    await world.has(node(), machine("Failed"))
    await world.annotate(NODE, **{TERMINATING_ANNOTATION: "2026-11-20T12:00:00Z"})
    assert (await world.give_up(withdraw=True)).kept == "it is not asked for any more"
    assert TERMINATING_ANNOTATION not in ((await world.node())["metadata"].get("annotations") or {})


async def test_a_deletion_that_was_asked_for_is_followed_without_a_licence(world: Surroundings) -> None:
    """S17: nothing is done any more, and to see that it is gone needs no leave."""
    held = machine("Failed")
    held["metadata"]["finalizers"] = ["example.com/wait"]
    await world.has(node(), held)
    await leased(world)
    await world.give_up()
    world.permits.answer = (False, "the permit of node-7 is held by nobody")
    assert (await world.give_up()).detail == "its deletion was asked for before"


async def _anew(world: Surroundings) -> None:
    """Its owner has made another in the place of the one that was pinned, under the same name, and it has failed as well."""
    await world.person.delete(f"{MACHINES}/w-7")
    await world.has(None, machine("Failed"))


async def _without_permit(world: Surroundings) -> None:
    world.permits.answer = (False, "the permit of node-7 is held by nobody")


async def _late(world: Surroundings) -> None:
    world.now += timedelta(seconds=11)


def on_the_node(**metadata: Any) -> Callable[[Surroundings], Awaitable[object]]:
    return lambda world: world.person.patch(NODE, {"metadata": metadata})


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (_anew, ErrorType.TARGET_CHANGED, "another Machine has that name now"),
        (lambda world: world.person.delete(CLUSTER_LEASE), ErrorType.NOT_LICENSED, ""),
        (_without_permit, ErrorType.NOT_LICENSED, "held by nobody"),
        (
            lambda world: world.person.patch(f"{MACHINES}/w-7", {"metadata": {"ownerReferences": None}}),
            ErrorType.NOT_SUPPORTED,
            "no controller owns it",
        ),
        (_late, ErrorType.EXPIRED, ""),
        (lambda world: switch(world, "off"), ErrorType.VETOED, "fencing is switched off"),
        (on_the_node(labels={EXCLUDE_LABEL: "true"}), ErrorType.VETOED, "out of remediation"),
        (on_the_node(labels={"node-role.kubernetes.io/control-plane": ""}), ErrorType.NOT_SUPPORTED, "only a remediation"),
    ],
    ids=[
        "S9 another Machine that has taken the name",
        "S38 no cluster Lease",
        "S14 no permit",
        "nothing would replace it",
        "S20 late",
        "S20 fencing switched off in the whole cluster, which no last look of a preservation comes before",
        "S20 excluded",
        "S15 a member of the control plane",
    ],
)
async def test_no_machine_is_deleted_where_something_speaks_against_it(
    world: Surroundings, change: Callable[[Surroundings], Awaitable[object]], kind: ErrorType, words: str
) -> None:
    """Looked at right before the deletion, and nothing of it is begun. The scanner is asked for the permit by the name and the
    incident that it would have granted, whatever the episode was told."""
    await world.has(node(), machine("Failed"))
    await leased(world)
    asked = {"machine_uid": (await world.machine())["metadata"]["uid"], "not_after": world.now + timedelta(seconds=10)}
    await change(world)
    with refused(kind, words):
        await world.give_up(victim="node-7", incident="i-1", **asked)
    assert world.permits.asked in ([], [("prod", "node-7", "i-1")])
    assert "deletionTimestamp" not in (await world.machine())["metadata"]
    assert TERMINATING_ANNOTATION not in ((await world.node())["metadata"].get("annotations") or {})


def looked(world: Surroundings, verdict: LookVerdict) -> BeforeActing:
    """What a remediation says comes first, and what is seen then."""

    async def look(_request: LookRequest) -> LookResult:
        return LookResult(verdict=verdict, reason="as told", at=world.now, seen=SeenNode(node="node-7"))

    world.activities = ClusterPreservation(
        ServedCluster("prod", world.connection, clock=lambda: world.now, source=OPERATORS), look, world.permits
    )
    target = Target(cluster="prod", pinned=Pinned(node="node-7", uid=""), incident="", kind="", workflow_id="", run_id="")
    return BeforeActing(look=LookRequest(target=target, need=Need(kind=NeedKind.PERSON), holder="us", operation=Operation.REMOVE))


async def test_a_remediation_deletes_no_machine_where_its_last_look_does_not_say_go(world: Surroundings) -> None:
    """S20: in the activity that deletes."""
    verdict = LookVerdict.NOT_LICENSED
    await world.has(node(), machine("Failed"))
    told = await world.give_up(before=looked(world, verdict))
    assert (told.gone, told.look and told.look.verdict) == (False, verdict)
    assert "deletionTimestamp" not in (await world.machine())["metadata"]
    assert TERMINATING_ANNOTATION not in ((await world.node())["metadata"].get("annotations") or {})


async def test_a_machine_whose_cluster_was_paused_after_the_last_look_is_not_deleted(
    person: ApiClient, connection: ClusterConnection
) -> None:
    """S20: `clusterctl move` deletes it here itself, and without its host."""
    await CLUSTER_API.install(person)
    await CLUSTER_API.add_cluster(person)
    await CLUSTER_API.add_machine(person, MACHINE, node="node-7")
    path = CLUSTER_API.path("machines", MACHINE)
    owned = {"ownerReferences": [owner("MachineSet", "set", api_version=CLUSTER_API.api_version)]}
    uid = (await person.patch(path, {"metadata": owned}))["metadata"]["uid"]
    await CLUSTER_API.set_status(person, MACHINE, {"phase": "Failed"})
    world = Surroundings(person, connection)
    await person.patch(CLUSTER_API.path("clusters", CLUSTER_NAME), {"spec": {"paused": True}})
    before = looked(world, LookVerdict.GO)
    with refused(ErrorType.VETOED, f"spec.paused of Cluster {CLUSTER_NAME}"):
        await world.give_up(machine=CLUSTER_API.machine_ref(MACHINE), machine_uid=uid, before=before)
    assert "deletionTimestamp" not in (await person.get(path))["metadata"]


async def test_a_remediation_may_give_up_a_member_of_the_control_plane_that_its_last_look_lets_go(world: Surroundings) -> None:
    """S15: the look has counted the healthy members. A preservation that hands its machine over has not, and is refused."""
    await world.has(node(), machine("Failed"))
    await on_the_node(labels={"node-role.kubernetes.io/control-plane": ""})(world)
    told = await world.give_up(before=looked(world, LookVerdict.GO))
    assert told.kept == ""
    with pytest.raises(ApiError) as gone:
        await world.machine()
    assert gone.value.status == 404


async def test_a_member_of_the_control_plane_whose_node_is_gone_is_given_up_by_no_preservation(
    person: ApiClient, connection: ClusterConnection
) -> None:
    """S15: its machine may run on, and its etcd vote with it; the Machine says whose it is."""
    await OPENSHIFT.install(person)
    await OPENSHIFT.add_machine(person, MACHINE, node="node-7")
    role = {"machine.openshift.io/cluster-api-machine-role": "master"}
    member = {"labels": role, "ownerReferences": [owner("ControlPlaneMachineSet", "cluster", api_version=OPENSHIFT.api_version)]}
    uid = (await person.patch(OPENSHIFT.path("machines", MACHINE), {"metadata": member}))["metadata"]["uid"]
    await OPENSHIFT.set_status(person, MACHINE, {"phase": "Failed"})
    world = Surroundings(person, connection)
    await leased(world)
    with refused(ErrorType.NOT_SUPPORTED, "only a remediation may ask for"):
        await world.give_up(machine=OPENSHIFT.machine_ref(MACHINE), machine_uid=uid)
    assert "deletionTimestamp" not in (await person.get(OPENSHIFT.path("machines", MACHINE)))["metadata"]


async def test_a_worker_on_the_node_itself_writes_nothing_of_a_deletion_that_it_refuses(world: Surroundings) -> None:
    """S16: no claim, and no note of what it was about to do."""
    await world.has(node(), machine("Failed"))
    uid, look = (await world.machine())["metadata"]["uid"], looked(world, LookVerdict.GO).look
    served = ServedCluster("prod", world.connection, own_node="node-7", clock=lambda: world.now, source=OPERATORS)
    world.activities = ClusterPreservation(served, world.look, world.permits)
    noted = RememberRequest(target=look.target, memory="noted", machine=REF, machine_uid=uid)
    versions = [each["metadata"]["resourceVersion"] for each in (await world.node(), await world.machine())]
    with refused(ErrorType.OWN_NODE, "this worker runs on Node/node-7"):
        await world.give_up(before=BeforeActing(look=look, remember=noted), victim="node-7")
    assert [each["metadata"]["resourceVersion"] for each in (await world.node(), await world.machine())] == versions


async def test_the_mark_of_the_node_is_reported_before_anything_is_done(world: Surroundings) -> None:
    """S35: an episode of the node that was terminated may have left a taint, or an act in flight."""
    mark = Mark(incident="incident-0", kind="Fencing", workflow_id="episode/prod/node-7")
    await world.has(node(**{MARK_ANNOTATION: mark.to_json(), PRESERVE_ANNOTATION: "now"}), machine())
    assert (await world.hold()).left_by == "incident-0"


async def test_s9_a_hold_under_one_name_touches_no_machine_of_another(world: Surroundings) -> None:
    """Any client may start a preservation for a node that does not exist, and name another one's Machine."""
    await world.has(SILENT, machine("Failed"))
    await world.hold(wish=Wish(keep=True))
    before = (await world.node(), await world.machine())
    with pytest.raises(ApplicationError, match="expected the Machine of no-such"):
        await world.hold(node="no-such", wish=Wish(release="the workflow was cancelled"))
    assert (await world.node(), await world.machine()) == before


async def test_s42_that_a_machine_is_unhealthy_is_not_believed_when_it_is_given_up(world: Surroundings) -> None:
    """It runs, its Node is Ready, and no health check calls it unhealthy: that it has a condition of another kind any pod can
    bring about."""
    pressed = node()
    pressed["status"]["conditions"].append({"type": "DiskPressure", "status": "True", "reason": "x", "message": ""})
    await world.has(pressed, machine("Running"))
    await leased(world)
    answer = await world.give_up(unhealthy="x")
    assert (answer.gone, answer.kept) == (False, "it is well again")
    assert "deletionTimestamp" not in (await world.machine())["metadata"]
