"""Remediation objects of other controllers, over a simulated API server: created once whatever happens, and taken back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.remediation import ClusterRemediation
from activities.cluster.acts.remediation_objects import ClusterRemediationObjects
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.remediation import External, ExternalRequest, RemediationPin, RememberRequest
from activities.contracts.target import LookVerdict, Target
from activities.errors import ErrorType
from policy.checks.fence_policies import PolicySource
from policy.episode.messages import Need, NeedKind, RemediationInput
from policy.objects.nodes import EXCLUDE_LABEL
from policy.objects.remediations import GIVEN_UP_ANNOTATION, HEALTHY_DELAY_ANNOTATION
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION as MEMORY
from policy.remediation.remediation_objects import SEVERAL_ANNOTATION
from policy.values.object_refs import ObjectRef
from policy.values.times import moment_of
from simulator.api.control.faults import Accident, Fault
from simulator.objects import JsonObject, timestamp
from simulator.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES
from tests.cluster import builders
from tests.cluster.acts.world import CHECK_REF, CHECKS, CLUSTER, INCIDENT, NODE, NOW, World, empty_world, our_mark, refused
from tests.cluster.builders import of_kind
from tests.cluster.machines import CLUSTER_API, CLUSTER_NAME, OPENSHIFT, OPERATORS, PAUSED, System, machine_of
from tests.cluster.test_preserving import definition
from workers.configuration.settings import RemediationSettings

GROUP = "self-node-remediation.medik8s.io"
NAMESPACE = "medik8s"
FOLDER = f"/apis/{GROUP}/v1alpha1/namespaces/{NAMESPACE}"
OBJECTS = f"{FOLDER}/selfnoderemediations"
TEMPLATE = ObjectRef(api_version=f"{GROUP}/v1alpha1", kind="SelfNodeRemediationTemplate", name="quick", namespace=NAMESPACE)
NODE_NAME, TEMPLATE_NAME = "remediation.medik8s.io/node-name", "remediation.medik8s.io/template-name"
CONTROL_PLANE = "remediation.medik8s.io/isControlPlaneNode"


class Objects:
    """The world with a check, a template and our activities: `asks` is the request of a step for the sick node."""

    def __init__(self, world: World, asks: ExternalRequest) -> None:
        self.world = world
        self.asks = asks
        self.acts = ClusterRemediationObjects(
            ServedCluster(CLUSTER, world.connection, own_node="node-1", clock=world.clock, source=OPERATORS), world.looks
        )

    async def create(self, **changes: Any) -> External:
        return await self.acts.create(replace(self.asks, **changes))

    async def all(self, path: str = OBJECTS) -> list[JsonObject]:
        found: list[JsonObject] = (await self.world.others.list(path))["items"]
        return found

    async def only(self, path: str = OBJECTS) -> JsonObject:
        (found,) = await self.all(path)
        return found

    async def says(self, status: JsonObject, name: str = NODE) -> None:
        await self.world.others.patch(f"{OBJECTS}/{name}/status", {"status": status})


async def add_template(world: World, name: str = "quick", *, several: bool = False, inner: JsonObject | None = None) -> ObjectRef:
    annotations = {SEVERAL_ANNOTATION: "true"} if several else {}
    made = inner if inner is not None else {"spec": {"remediationStrategy": "Automatic"}, "metadata": {"labels": {"team": "a"}}}
    body = {
        "apiVersion": TEMPLATE.api_version,
        "kind": TEMPLATE.kind,
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"template": made} if made else {},
    }
    await world.others.create(f"{FOLDER}/selfnoderemediationtemplates", body)
    return replace(TEMPLATE, name=name)


async def install(world: World, *kinds: str, group: str = GROUP, served: str = "v1alpha1") -> None:
    for kind in kinds:
        await world.others.create(CUSTOM_RESOURCE_DEFINITIONS.path(), definition(kind, group=group, served=served))


@pytest.fixture
async def objects(world: World) -> Objects:
    await world.others.create(CUSTOM_RESOURCE_DEFINITIONS.path(), builders.definition())
    await install(world, "SelfNodeRemediation", "SelfNodeRemediationTemplate")
    await world.others.create(NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
    await add_template(world)
    check = await world.add_check(templates=(TEMPLATE,))
    await world.hold_cluster_lease()
    asks = ExternalRequest(
        target=await world.pinned(),
        template=TEMPLATE,
        check=CHECK_REF,
        check_uid=check["metadata"]["uid"],
        before=await world.before(),
        not_after=NOW + timedelta(seconds=30),
    )
    return Objects(world, asks)


async def test_an_object_is_what_its_controller_knows_its_node_by(objects: Objects) -> None:
    made = await objects.create()
    found = await objects.only()
    metadata = found["metadata"]
    assert (found["kind"], metadata["name"], found["spec"]) == ("SelfNodeRemediation", NODE, {"remediationStrategy": "Automatic"})
    assert metadata["annotations"] == {NODE_NAME: NODE, TEMPLATE_NAME: "quick", "nodewarden.io/incident": INCIDENT}
    assert metadata["labels"] == {"team": "a"}
    check, node = metadata["ownerReferences"]
    assert (check["kind"], check["name"], check["uid"]) == ("NodeHealthCheck", "workers", objects.asks.check_uid)
    assert (node["kind"], node["name"], node["uid"]) == ("Node", NODE, objects.asks.target.pinned.uid)
    assert not check["controller"]
    assert not node["controller"]
    assert (made.present, made.uid, made.incident) == (True, metadata["uid"], INCIDENT)
    assert made.ref == ObjectRef(api_version=TEMPLATE.api_version, kind="SelfNodeRemediation", name=NODE, namespace=NAMESPACE)


@pytest.mark.parametrize("accident", [Accident.LOSE_ANSWER, Accident.REFUSE])
async def test_a_lost_answer_is_settled_by_asking_again(objects: Objects, accident: Accident) -> None:
    """S33: whether it was carried out or not, there is one object in the end, then a note on it, and then none."""

    def accidents(verb: str) -> None:
        objects.world.server.faults.add(Fault(accident=accident, verb=verb, path="selfnoderem", count=1))

    accidents("create")
    made = await objects.create()
    assert (await objects.only())["metadata"]["uid"] == made.uid
    accidents("patch")
    assert (await objects.acts.time_out(objects.asks)).timed_out
    accidents("delete")
    assert not (await objects.acts.delete(objects.asks)).present
    assert await objects.all() == []


async def test_what_may_have_been_carried_out_is_never_called_not_begun(objects: Objects) -> None:
    """S20, S33: its time is over when the answer is lost, and nothing is there yet: whoever asked looks again."""

    def wait() -> None:
        objects.world.now += timedelta(seconds=31)

    objects.world.connection.after_writes = wait
    objects.world.server.faults.add(Fault(accident=Accident.REFUSE, verb="create", path="selfnoderemediations", count=1))
    with refused(ErrorType.AMBIGUOUS, "may have been carried out"):
        await objects.create()


async def test_what_is_not_ours_is_left_alone_and_said(objects: Objects) -> None:
    theirs = await objects.world.others.create(OBJECTS, of_kind("SelfNodeRemediation", OBJECTS, name=NODE))
    with refused(ErrorType.VETOED, "NodeHealthCheck/workers has not made it"):
        await objects.create()
    told = await objects.acts.read(objects.asks)
    assert not told.present
    assert "has not made it" in told.message
    assert not (await objects.acts.delete(objects.asks)).present
    assert await objects.only() == theirs


# Before it is created ---------------------------------------------------------------------------------------------------


Change = Callable[[Objects], Awaitable[object]]


def asking(**changes: Any) -> Change:
    async def change(objects: Objects) -> None:
        objects.asks = replace(objects.asks, **changes)

    return change


async def _too_late(objects: Objects) -> None:
    objects.world.now += timedelta(seconds=31)


async def _own_node(objects: Objects) -> None:
    world = objects.world
    objects.acts = ClusterRemediationObjects(
        ServedCluster(CLUSTER, world.connection, own_node=NODE, clock=world.clock, source=OPERATORS), world.looks
    )


async def _empty_template(objects: Objects) -> None:
    objects.asks = replace(objects.asks, template=await add_template(objects.world, "empty", inner={}))


async def _check_gone(objects: Objects) -> None:
    await objects.world.others.delete(CHECKS.path("workers"))
    objects.asks = replace(objects.asks, check_uid="")


def on_the_node(**metadata: Any) -> Change:
    return lambda objects: objects.world.change_node({"metadata": metadata})


ELSEWHERE = ObjectRef(api_version="example.io/v1", kind="ThingRemediationTemplate", name="x", namespace=NAMESPACE)
OF_A_CONFIG_MAP = ObjectRef(api_version="v1", kind="ConfigMap", name="fence-cluster-config", namespace="default")
REFUSALS: dict[str, tuple[Change, ErrorType, str]] = {
    "S20 too late": (_too_late, ErrorType.EXPIRED, "not begun"),
    "S16 our own node": (_own_node, ErrorType.OWN_NODE, "this worker runs on Node/node-7"),
    "S9 another node": (lambda objects: objects.world.recreate_node(), ErrorType.TARGET_CHANGED, "not the one pinned"),
    "S9 no node": (lambda objects: objects.world.delete_node(), ErrorType.TARGET_CHANGED, "is gone"),
    "S20 excluded": (on_the_node(labels={EXCLUDE_LABEL: "true"}), ErrorType.VETOED, "exclude-from-remediation=true"),
    "no template": (
        lambda objects: objects.world.others.delete(f"{FOLDER}/selfnoderemediationtemplates/quick"),
        ErrorType.INVALID_CONFIG,
        "there is no such template",
    ),
    "an empty template": (_empty_template, ErrorType.INVALID_CONFIG, "spec.template"),
    "an unknown kind": (asking(template=ELSEWHERE), ErrorType.INVALID_CONFIG, "knows no ThingRemediation of example.io/v1"),
    "no kind of a template": (
        asking(template=replace(TEMPLATE, kind="SelfNodeRemediation")),
        ErrorType.INVALID_CONFIG,
        "expected a kind that ends in Template",
    ),
    "two of a kind": (asking(several=True), ErrorType.INVALID_CONFIG, SEVERAL_ANNOTATION),
    "of a ConfigMap": (
        asking(check=OF_A_CONFIG_MAP),
        ErrorType.INVALID_CONFIG,
        "expected a NodeHealthCheck or a MachineHealthCheck",
    ),
    "the check is gone": (_check_gone, ErrorType.VETOED, "is not needed"),
}


@pytest.mark.parametrize("why", REFUSALS)
async def test_nothing_is_created_where_something_speaks_against_it(why: str, objects: Objects) -> None:
    """Looked at live right before the write."""
    change, kind, words = REFUSALS[why]
    await change(objects)
    with refused(kind, words):
        await objects.create()
    assert objects.world.writes == 0


async def test_nothing_is_created_or_noted_where_the_last_look_does_not_say_go(objects: Objects) -> None:
    """S20: in the activity that creates."""
    objects.world.verdict = LookVerdict.NOT_LICENSED
    told = await objects.create(before=await objects.world.before(memory="noted"))
    assert (told.present, told.look and told.look.verdict) == (False, LookVerdict.NOT_LICENSED)
    assert objects.world.writes == 0


@pytest.mark.parametrize("attempt", [1, 2])
async def test_what_a_lost_attempt_has_made_is_found_whatever_it_has_set_going(objects: Objects, attempt: int) -> None:
    """S33: the node is being deleted by then, and the look says no."""
    made = await objects.create()
    objects.world.verdict, environment = LookVerdict.VETOED, ActivityEnvironment()
    environment.info = replace(environment.info, attempt=attempt)
    told: External = await environment.run(objects.acts.create, objects.asks)
    assert told.look is not None
    assert (told.uid, told.look.verdict) == ((made.uid, LookVerdict.GO) if attempt == 2 else ("", LookVerdict.VETOED))


async def test_what_is_done_is_noted_on_the_target_before_it_is(objects: Objects) -> None:
    """A target that is lost from sight was remediated all the same."""
    objects.world.server.faults.add(Fault(accident=Accident.REFUSE, verb="create", path="selfnoderemediations", count=9))
    with pytest.raises(ApplicationError):
        await objects.create(before=await objects.world.before(memory="noted"))
    assert (await objects.world.node())["metadata"]["annotations"][LAST_REMEDIATION_ANNOTATION] == "noted"
    assert await objects.all() == []


async def test_the_uid_of_the_owner_is_read_where_it_is_unknown(objects: Objects) -> None:
    await objects.create(check_uid="")
    assert (await objects.only())["metadata"]["ownerReferences"][0]["uid"] == objects.asks.check_uid


async def test_a_control_plane_node_is_told_by_a_label(objects: Objects) -> None:
    await objects.world.change_node({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})
    await objects.create()
    assert (await objects.only())["metadata"]["labels"] == {"team": "a", CONTROL_PLANE: ""}


# Several of one kind ----------------------------------------------------------------------------------------------------


async def test_two_templates_of_a_kind_make_two_objects_each_once(objects: Objects) -> None:
    """S33: neither name is made up by the server, so that a lost answer makes no third."""
    templates = [await add_template(objects.world, name, several=True) for name in ("first", "second")]
    for template in (*templates, *templates):
        objects.world.server.faults.add(Fault(accident=Accident.LOSE_ANSWER, verb="create", path="selfnoderem", count=1))
        made = await objects.create(template=template, several=True)
        objects.world.server.faults.clear()
        asked = replace(objects.asks, template=template, several=True)
        assert await objects.acts.read(asked) == replace(made, look=None)
    found = {each["metadata"]["annotations"][TEMPLATE_NAME]: each["metadata"] for each in await objects.all()}
    assert sorted(found) == ["first", "second"]
    assert all(each["name"].startswith(f"{NODE}-") and each["annotations"][NODE_NAME] == NODE for each in found.values())


async def test_one_under_a_name_that_the_server_made_up_is_found(objects: Objects) -> None:
    template = await add_template(objects.world, "first", several=True)
    owner = {"apiVersion": CHECKS.api_version, "kind": CHECKS.kind, "name": "workers", "uid": objects.asks.check_uid}
    for of_node, of_template in ((NODE, "second"), ("node-8", "first"), (NODE, "first")):
        annotations = {NODE_NAME: of_node, TEMPLATE_NAME: of_template}
        metadata = {"generateName": f"{of_node}-", "annotations": annotations, "ownerReferences": [owner]}
        theirs = await objects.world.others.create(OBJECTS, of_kind("SelfNodeRemediation", OBJECTS, **metadata))
    made = await objects.create(template=template, several=True)
    assert made.uid == theirs["metadata"]["uid"]
    assert len(await objects.all()) == 3


# Following, and the way back --------------------------------------------------------------------------------------------


async def test_one_of_another_uid_is_not_there(objects: Objects) -> None:
    """S9: somebody has deleted ours, and another of the name has been made since."""
    first = await objects.create()
    await objects.world.others.delete(f"{OBJECTS}/{NODE}")
    assert (await objects.create()).uid != first.uid
    asks = replace(objects.asks, name=NODE, uid=first.uid)
    for act in (objects.acts.read, objects.acts.time_out, objects.acts.note_well, objects.acts.delete):
        told = await act(asks)
        assert (told.present, told.message) == (False, f"another object is called SelfNodeRemediation/{NAMESPACE}/{NODE} now")
    assert len(await objects.all()) == 1


@pytest.mark.parametrize(
    ("api_version", "kind", "folder"),
    [
        ("storage.k8s.io/v1", "VolumeAttachment", "/apis/storage.k8s.io/v1"),
        ("v1", "Pod", f"/api/v1/namespaces/{NAMESPACE}"),
        (TEMPLATE.api_version, "SelfNodeRemediation", FOLDER),
    ],
)
@pytest.mark.parametrize("has_check", [True, False])
async def test_what_is_no_object_of_the_step_is_left_alone_by_those_who_know_its_uid(
    api_version: str, kind: str, folder: str, *, has_check: bool, objects: Objects
) -> None:
    """S1, S9: a caller names kind, name and uid. By a VolumeAttachment or a pod that goes without proof two write one volume."""
    spec: JsonObject = {"attacher": "csi.example.com", "nodeName": "node-2", "source": {"persistentVolumeName": "data"}}
    if kind == "Pod":
        spec = {"nodeName": "node-2", "containers": [{"name": "a", "image": "a"}]}
    path = f"{folder}/{kind.lower()}s"
    made = await objects.world.others.create(
        path, {"apiVersion": api_version, "kind": kind, "metadata": {"name": "victim"}, "spec": spec}
    )
    namespace = made["metadata"].get("namespace", "")
    template = ObjectRef(api_version=api_version, kind=f"{kind}Template", name="x", namespace=namespace)
    asks = replace(objects.asks, template=template, name="victim", uid=made["metadata"]["uid"])
    asks = asks if has_check else replace(asks, check=None, check_uid="")
    for act in (objects.acts.delete, objects.acts.time_out, objects.acts.note_well, objects.acts.read):
        assert not (await act(asks)).present
        assert (await objects.only(f"{folder}/{kind.lower()}s"))["metadata"] == made["metadata"]


async def test_only_the_one_that_was_looked_at_is_deleted(objects: Objects) -> None:
    """S9: another of the name is made between our look and our write."""
    first = await objects.create()

    async def exchange() -> None:
        await objects.world.others.delete(f"{OBJECTS}/{NODE}")
        await objects.world.others.create(OBJECTS, of_kind("SelfNodeRemediation", OBJECTS, name=NODE))

    objects.world.connection.before_writes.append(exchange)
    assert not (await objects.acts.delete(replace(objects.asks, uid=first.uid))).present
    assert (await objects.only())["metadata"]["uid"] != first.uid


async def test_a_kind_that_is_uninstalled_has_no_objects(objects: Objects) -> None:
    gone = ObjectRef(api_version="gone.example.io/v1", kind="ThingRemediationTemplate", name="x", namespace=NAMESPACE)
    told = await objects.acts.delete(replace(objects.asks, template=gone))
    assert (told.present, told.message) == (False, "the API server knows no ThingRemediation of gone.example.io/v1")


async def test_its_controller_is_told_once_that_its_time_is_over(objects: Objects) -> None:
    await objects.create()
    told = await objects.acts.time_out(objects.asks)
    assert told.timed_out
    objects.world.now += timedelta(minutes=1)
    assert (await objects.acts.time_out(objects.asks)).timed_out
    assert (await objects.only())["metadata"]["annotations"][GIVEN_UP_ANNOTATION] == timestamp(NOW)


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        ({"FencingInProgress": ("True", "writes")}, ("True", "", "writes")),
        ({"FencingInProgress": ("False", "no slot"), "Ready": ("False", "no slot")}, ("False", "False", "no slot")),
        (
            {"FencingInProgress": ("False", ""), "FencingSucceeded": ("True", "fenced"), "Ready": ("True", "")},
            ("False", "True", "fenced"),
        ),
    ],
    ids=["at work", "failed", "done"],
)
async def test_a_storage_based_remediation_is_read_in_its_own_words(
    conditions: dict[str, tuple[str, str]], told: tuple[str, str, str], objects: Objects
) -> None:
    """Its failure is the next step's turn at once, and no matter of time."""
    group, kind = "storage-based-remediation.medik8s.io", "StorageBasedRemediation"
    await install(objects.world, kind, f"{kind}Template", group=group)
    folder = f"/apis/{group}/v1alpha1/namespaces/{NAMESPACE}"
    path = f"{folder}/{kind.lower()}templates"
    await objects.world.others.create(path, of_kind(f"{kind}Template", path, name="sbr", spec={"template": {"spec": {}}}))
    asks = replace(
        objects.asks, template=ObjectRef(api_version=f"{group}/v1alpha1", kind=f"{kind}Template", name="sbr", namespace=NAMESPACE)
    )
    made = await objects.acts.create(asks)
    assert made.ref is not None
    said = [{"type": each, "status": status, "message": words} for each, (status, words) in conditions.items()]
    await objects.world.others.patch(f"{folder}/{kind.lower()}s/{made.ref.name}/status", {"status": {"conditions": said}})
    seen = await objects.acts.read(asks)
    assert (seen.processing, seen.succeeded, seen.message) == told


async def test_a_kind_of_the_settings_is_read_in_its_own_words(objects: Objects) -> None:
    """Also one that is known without them: what the settings say of it goes first."""
    mine = RemediationSettings.model_validate(
        {"remediators": [{"group": GROUP, "kind": "SelfNodeRemediation", "succeeded": "Done", "failed": "Done"}]}
    ).known_remediators()
    world = objects.world
    served = ServedCluster(CLUSTER, world.connection, clock=world.clock, remediators=mine, source=OPERATORS)
    acts = ClusterRemediationObjects(served, world.looks)
    made = await acts.create(objects.asks)
    assert made.ref is not None
    said = [{"type": "Done", "status": "False"}, {"type": "Succeeded", "status": "True"}]
    await world.others.patch(f"{FOLDER}/selfnoderemediations/{made.ref.name}/status", {"status": {"conditions": said}})
    assert (await acts.read(objects.asks)).succeeded == "False"
    assert (await objects.acts.read(objects.asks)).succeeded == "True"


async def test_one_that_is_two_days_old_is_flagged_once_for_people_to_look(objects: Objects) -> None:
    """A step without a time-out may wait for its controller for ever; alerts of the operators select by this annotation."""
    await objects.create()
    made = moment_of((await objects.only())["metadata"]["creationTimestamp"])
    assert made is not None
    objects.world.now = made + timedelta(hours=48)
    writes = objects.world.writes
    await objects.acts.read(objects.asks)
    assert objects.world.writes == writes
    objects.world.now += timedelta(seconds=1)
    asks = replace(objects.asks, not_after=objects.world.now + timedelta(seconds=30))
    for _ in range(2):
        assert (await objects.acts.read(asks)).present
    there = (await objects.only())["metadata"]["annotations"]
    assert there["nodehealthcheck.medik8s.io/old-remediation-cr-flag"] == "flagon"
    assert objects.world.writes == writes + 1


async def test_a_node_that_was_sick_again_is_well_since_the_last_time(objects: Objects) -> None:
    """The shipped operator counts from the first moment, so that a flapping node is let go too early."""

    async def noted(well_since: datetime | None) -> datetime | None:
        told = await objects.acts.note_well(replace(objects.asks, well_since=well_since))
        return told.well_since

    await objects.create()
    assert await noted(NOW) == NOW
    writes = objects.world.writes
    assert await noted(NOW) == NOW
    assert objects.world.writes == writes
    assert await noted(None) is None
    assert HEALTHY_DELAY_ANNOTATION not in (await objects.only())["metadata"]["annotations"]
    later = NOW + timedelta(minutes=3)
    assert await noted(later) == later


async def test_one_that_its_controller_holds_is_present_until_it_is_gone(objects: Objects) -> None:
    """A finalizer: self-node-remediation takes its taint off first."""
    await objects.create()
    path = f"{OBJECTS}/{NODE}"
    await objects.world.others.patch(path, {"metadata": {"finalizers": ["self-node-remediation.medik8s.io/snr-finalizer"]}})
    for _ in range(2):
        told = await objects.acts.delete(objects.asks)
        assert (told.present, told.deleting) == (True, True)
    assert (await objects.create()).deleting
    await objects.world.others.patch(path, {"metadata": {"finalizers": None}})
    told = await objects.acts.delete(objects.asks)
    assert (told.present, told.message) == (False, f"there is no SelfNodeRemediation/{NAMESPACE}/{NODE}")


# Machines ---------------------------------------------------------------------------------------------------------------

INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"


async def of_machine(
    objects: Objects, system: System, *, there: World | None = None, annotations: Mapping[str, str] | None = None
) -> tuple[ExternalRequest, str]:
    """A Machine of that system with the sick node, and a Metal3RemediationTemplate beside it. there: where these live."""
    world = there or objects.world
    await system.install(world.others)
    await install(world, "Metal3Remediation", "Metal3RemediationTemplate", group=INFRASTRUCTURE, served="v1beta1")
    machine = await system.add_machine(world.others, machine_of(NODE), node=NODE, annotations=annotations or {})
    folder = f"/apis/{INFRASTRUCTURE}/v1beta1/namespaces/{system.namespace}"
    path, spec = f"{folder}/metal3remediationtemplates", {"strategy": {"type": "Reboot", "retryLimit": 1}}
    its = {"template": {"spec": spec}}
    await world.others.create(path, of_kind("Metal3RemediationTemplate", path, name="metal", spec=its))
    asks = replace(
        objects.asks,
        template=ObjectRef(
            api_version=f"{INFRASTRUCTURE}/v1beta1", kind="Metal3RemediationTemplate", name="metal", namespace=system.namespace
        ),
        check=system.check_ref(),
        check_uid="uid-of-the-check",
        machine=system.machine_ref(machine_of(NODE)),
        machine_uid=machine["metadata"]["uid"],
    )
    return asks, f"{folder}/metal3remediations"


@pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
async def test_an_object_of_a_machine_bears_its_name_and_is_owned_by_it_alone(system: System, objects: Objects) -> None:
    asks, path = await of_machine(objects, system)
    made = await objects.acts.create(asks)
    found = await objects.only(path)
    metadata = found["metadata"]
    assert (metadata["name"], metadata["namespace"]) == (machine_of(NODE), system.namespace)
    assert found["spec"] == {"strategy": {"type": "Reboot", "retryLimit": 1}}
    assert metadata["ownerReferences"] == [
        {"apiVersion": system.api_version, "kind": "Machine", "name": machine_of(NODE), "uid": asks.machine_uid}
    ]
    assert metadata["annotations"] == {
        f"{system.group}/cloned-from-name": "metal",
        f"{system.group}/cloned-from-groupkind": f"Metal3RemediationTemplate.{INFRASTRUCTURE}",
        "nodewarden.io/incident": INCIDENT,
    }
    assert metadata.get("labels", {}) == ({"cluster.x-k8s.io/cluster-name": "blue"} if system.of_cluster_api else {})
    assert await objects.acts.create(asks) == made
    assert not (await objects.acts.delete(asks)).present


async def test_no_object_is_made_in_a_cluster_that_is_paused(objects: Objects) -> None:
    """S20: `clusterctl move` has begun since the last look."""
    asks, path = await of_machine(objects, CLUSTER_API)
    await CLUSTER_API.add_cluster(objects.world.others)
    await CLUSTER_API.annotate(objects.world.others, "clusters", CLUSTER_NAME, {PAUSED: ""})
    with refused(ErrorType.VETOED, f"Cluster {CLUSTER_NAME} carries the annotation {PAUSED}"):
        await objects.acts.create(asks)
    assert await objects.all(path) == []


@pytest.mark.parametrize("paused", ["machinehealthchecks", "clusters"])
async def test_what_was_left_behind_is_not_deleted_while_its_check_of_machines_is_paused(paused: str, objects: Objects) -> None:
    """It was not when the scan found it. What an episode has made itself it takes back all the same (S35)."""
    system, others = CLUSTER_API, objects.world.others
    asks, path = await of_machine(objects, system)
    await system.add_cluster(others)
    await others.create(system.path("machinehealthchecks"), system.check())
    await objects.acts.create(asks)
    await system.annotate(others, paused, CLUSTER_NAME if paused == "clusters" else "workers", {PAUSED: ""})
    with refused(ErrorType.VETOED, "is paused"):
        await objects.acts.delete(replace(asks, adopted=True))
    assert len(await objects.all(path)) == 1
    await objects.acts.delete(asks)
    assert await objects.all(path) == []


async def test_no_object_is_made_for_another_machine(objects: Objects) -> None:
    """S9: also not where one of its predecessor of the same name is still there."""
    asks, path = await of_machine(objects, CLUSTER_API)
    await objects.acts.create(asks)
    await objects.world.others.delete(f"{path}/{machine_of(NODE)}")
    with refused(ErrorType.TARGET_CHANGED, "another Machine has that name"):
        await objects.acts.create(replace(asks, machine_uid="another"))
    with refused(ErrorType.INVALID_CONFIG, "expected the Machine that it is about"):
        await objects.acts.create(replace(asks, machine_uid=""))
    await objects.world.others.delete(CLUSTER_API.path("machines", machine_of(NODE)))
    with refused(ErrorType.TARGET_CHANGED, "is gone"):
        await objects.acts.create(asks)
    assert await objects.all(path) == []


async def test_machines_of_a_management_cluster_are_remediated_there(objects: Objects) -> None:
    """The Machine, the template and the object live in one cluster, the Node and the leases in another."""
    async with empty_world() as there:
        here = objects.world
        asks, path = await of_machine(objects, replace(CLUSTER_API, namespace=NAMESPACE), there=there)
        source = PolicySource(machines=(NAMESPACE,))
        served = ServedCluster(CLUSTER, here.connection, machines=there.connection, clock=there.clock, source=source)
        acts = ClusterRemediationObjects(served, here.looks)
        assert (await acts.create(asks)).present
        assert (await there.others.get(f"{path}/{machine_of(NODE)}"))["metadata"]["ownerReferences"][0]["uid"] == asks.machine_uid
        told = await acts.create(replace(objects.asks, machine=asks.machine, machine_uid=asks.machine_uid))
        assert told.present  # of a check of Nodes: it lives here, and what lives there can't own it
        assert [each["kind"] for each in (await objects.only())["metadata"]["ownerReferences"]] == ["NodeHealthCheck", "Node"]


# What is remembered of a remediation: on both objects of a machine, and read from the one that the deciding check looks at.

MACHINE = CLUSTER_API.machine_ref(machine_of(NODE))
MACHINE_PATH = CLUSTER_API.path("machines", machine_of(NODE))

OLD = "an old record"
NEW = "a new record"


@pytest.fixture
async def remediation(world: World) -> ClusterRemediation:
    await CLUSTER_API.install(world.others)
    await world.hold_cluster_lease()
    await CLUSTER_API.add_machine(world.others, machine_of(NODE), node=NODE)
    names = {"cluster.x-k8s.io/machine": machine_of(NODE), "cluster.x-k8s.io/cluster-namespace": CLUSTER_API.namespace}
    await world.change_node({"metadata": {"annotations": names}})
    return ClusterRemediation(
        ServedCluster(
            CLUSTER,
            world.connection,
            own_node="node-1",
            clock=world.clock,
            source=OPERATORS,
        ),
        world.looks,
    )


async def remembered(world: World) -> tuple[str, str]:
    """What the Machine and the Node say, "" where one says nothing."""
    machine = await world.others.get(MACHINE_PATH)
    return tuple(each["metadata"].get("annotations", {}).get(MEMORY, "") for each in (machine, await world.node()))  # type: ignore[return-value]


async def asked(world: World, memory: str = NEW, target: Target | None = None) -> RememberRequest:
    uid = (await world.others.get(MACHINE_PATH))["metadata"]["uid"]
    return RememberRequest(target=target or await world.pinned(), memory=memory, machine=MACHINE, machine_uid=uid)


async def pinned(world: World, remediation: ClusterRemediation, memory: str, machine: ObjectRef | None) -> RemediationPin:
    """As the scanner starts an episode: for a check of Nodes without a Machine, for one of Machines with it."""
    request = RemediationInput(
        cluster=CLUSTER,
        node=NODE,
        machine=machine,
        need=Need(kind=NeedKind.PERSON, reason="a test asks"),
        strategies=("reboot=10m",),
        memory=memory,
    )
    pin: RemediationPin = await ActivityEnvironment().run(remediation.pin, request)
    assert pin.machine == MACHINE
    return pin


async def test_a_remediation_learns_what_a_terminated_episode_has_left(world: World, remediation: ClusterRemediation) -> None:
    """S34, S35: before its own mark stands, which would hide it from whoever pins later."""
    await world.put_mark(replace(our_mark(paths=("fence_brocade://switch-1/2",)), incident="incident-0"))
    found = await pinned(world, remediation, "", None)
    assert (found.adopted_incident, found.adopted_paths) == ("incident-0", ("fence_brocade://switch-1/2",))


@pytest.mark.parametrize(("skips", "steps"), [(False, []), (True, ["reboot"])])
async def test_a_person_who_names_a_step_that_cannot_be_is_told_before_any_is_begun(
    world: World, remediation: ClusterRemediation, *, skips: bool, steps: list[str]
) -> None:
    """S44: it is not dropped in silence, and the next one begun instead."""
    need, named = Need(kind=NeedKind.PERSON, reason="a test asks"), ("external", "reboot")
    wanted = RemediationInput(cluster=CLUSTER, node=NODE, need=need, strategies=named, skip_impossible=skips)
    pin: RemediationPin = await ActivityEnvironment().run(remediation.pin, wanted)
    assert [step.name.partition("=")[0] for step in pin.ladder] == steps
    assert ("not every step can be carried out: external" in pin.refused) is not skips


async def test_it_is_on_the_machine_and_on_the_node(world: World, remediation: ClusterRemediation) -> None:
    """A check of Nodes knows no Machines, and what is on the Node alone goes with it."""
    assert (await remediation.remember(await asked(world))).changed
    assert await remembered(world) == (NEW, NEW)
    assert not (await remediation.remember(await asked(world))).changed


@pytest.mark.parametrize("before", [("", ""), (OLD, ""), (OLD, "an older one")])
async def test_what_was_noted_of_an_attempt_that_never_happened_is_put_back(
    before: tuple[str, str], world: World, remediation: ClusterRemediation
) -> None:
    """S28: to what either object said when the target was pinned, or to nothing."""
    values = [{"metadata": {"annotations": {MEMORY: each or None}}} for each in before]
    await world.others.patch(MACHINE_PATH, values[0])
    await world.change_node(values[1])
    found = await pinned(world, remediation, before[1], None)
    assert found.remembers == before
    await remediation.remember(await asked(world))
    machine, node = found.remembers
    back = replace(await asked(world, memory=machine), on_node=node, instead_of=NEW)
    await remediation.remember(back)
    assert await remembered(world) == before
    assert not (await remediation.remember(back)).changed


async def test_what_others_have_written_since_is_not_put_back(world: World, remediation: ClusterRemediation) -> None:
    await remediation.remember(await asked(world))
    await world.change_node({"metadata": {"annotations": {MEMORY: "of others"}}})
    await remediation.remember(replace(await asked(world, memory=""), instead_of=NEW))
    assert await remembered(world) == ("", "of others")


async def test_a_check_of_nodes_goes_by_the_node_and_one_of_machines_by_the_machine(
    world: World, remediation: ClusterRemediation
) -> None:
    """The record of an earlier episode on the other object refuses nothing."""
    await world.others.patch(MACHINE_PATH, {"metadata": {"annotations": {MEMORY: OLD}}})
    assert not (await pinned(world, remediation, "", None)).refused
    assert not (await pinned(world, remediation, OLD, MACHINE)).refused
    await world.others.patch(NODES.path(NODE), {"metadata": {"annotations": {MEMORY: NEW}}})
    assert not (await pinned(world, remediation, NEW, None)).refused


@pytest.mark.parametrize("machine", [None, MACHINE], ids=["of-nodes", "of-machines"])
async def test_what_was_remembered_since_the_scan_is_decided_anew(
    machine: ObjectRef | None, world: World, remediation: ClusterRemediation
) -> None:
    await remediation.remember(await asked(world))
    refused = (await pinned(world, remediation, OLD, machine)).refused
    assert f"{MEMORY} has changed since the scan" in refused
