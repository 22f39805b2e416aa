"""Pinning: who the target is, and by which plan, before anything is touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts import targets
from activities.cluster.acts.preservation import ClusterPreservation
from activities.cluster.acts.remediation import LEAVES_BEHIND, ClusterRemediation
from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.preservation import GiveUpRequest
from activities.contracts.target import Configured, LookVerdict, PinRequest, PinResult
from activities.errors import ErrorType
from policy.checks.fence_policies import PolicySource
from policy.checks.health_check import RetryRules
from policy.episode.messages import FencingInput, Need, NeedKind, RemediationInput
from policy.history.offenders import FoundRepairs
from policy.remediation.ladder import ESCALATION_ANNOTATION, EscalationStep
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, LastRemediation, written_memory
from policy.remediation.strategy_rules import Strategy
from policy.values.object_refs import ObjectRef
from policy.values.times import written
from simulator.api.control.faults import Accident, Fault
from simulator.resources import NAMESPACES
from tests.cluster.acts.world import (
    CHECK_REF,
    CHECKS,
    CLUSTER,
    ENDPOINT,
    HOLDER,
    INCIDENT,
    NODE,
    SICK_SINCE,
    TEMPLATE_NAMESPACE,
    TEMPLATES,
    WORKFLOW,
    World,
    our_mark,
    refused,
    template_ref,
)
from tests.cluster.builders import owner
from tests.cluster.machines import CLUSTER_API, OPENSHIFT, OPERATORS, machine_of
from tests.licensing import LICENCES


@pytest.fixture
async def ready(world: World) -> World:
    """The sick node's cluster, with our kinds and one template in it."""
    await world.install_kinds()
    await world.add_template()
    world.server.requests.reset()
    return world


def asked(**fields: Any) -> FencingInput:
    return replace(FencingInput(cluster=CLUSTER, node=NODE, incident=INCIDENT), **fields)


async def pin(
    world: World,
    *,
    run_id: str = "run-1",
    workflow_type: str = "Fencing",
    marks_as: str = "",
    cordons: bool = False,
    **fields: Any,
) -> PinResult:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, workflow_run_id=run_id, workflow_type=workflow_type, workflow_id=WORKFLOW)
    result: PinResult = await environment.run(
        world.target.pin, PinRequest(wanted=asked(**fields), marks_as=marks_as, cordons=cordons)
    )
    return result


async def test_the_whole_identity_of_the_node_and_its_device_is_pinned(ready: World) -> None:
    """S9."""
    result = await pin(ready)
    node = await ready.node()
    pinned = result.pinned
    assert (pinned.node, pinned.uid) == (NODE, node["metadata"]["uid"])
    assert (pinned.provider_id, pinned.system_uuid) == ("metal://rack-3/7", "4c4c4544-0007")
    assert (pinned.boot_id, pinned.zone) == ("boot-1", "zone-a")
    assert pinned.not_ready_since == SICK_SINCE
    assert pinned.endpoints == (ENDPOINT,)
    assert result.seen is not None
    assert result.seen.uid == pinned.uid
    assert not result.control_plane
    assert ready.writes == 0


async def test_the_number_that_a_cloud_has_for_the_node_is_pinned_where_the_node_says_it(ready: World) -> None:
    """S39: GKE does."""
    await ready.change_node({"metadata": {"annotations": {"container.googleapis.com/instance_id": "7146341255239083172"}}})
    assert (await pin(ready)).pinned.instance_id == "7146341255239083172"


async def test_another_uid_than_asked_for_is_another_target(ready: World) -> None:
    """S9."""
    uid = (await ready.node())["metadata"]["uid"]
    assert (await pin(ready, node_uid=uid)).pinned.uid == uid
    await ready.recreate_node()
    with refused(ErrorType.TARGET_CHANGED, uid):
        await pin(ready, node_uid=uid)


async def test_a_node_that_does_not_exist_is_not_found(empty: World) -> None:
    with refused(ErrorType.NOT_FOUND):
        await pin(empty)


async def test_a_slip_of_the_pen_is_told_which_name_is_meant(ready: World) -> None:
    said = "nodw-7: there is no such Node or Machine; did you mean node-7?"
    with refused(ErrorType.NOT_FOUND, said):
        await pin(ready, node="nodw-7")
    remediation = ClusterRemediation(ServedCluster(CLUSTER, ready.connection, source=OPERATORS), ready.looks)
    with refused(ErrorType.NOT_FOUND, said):
        await ActivityEnvironment().run(remediation.pin, RemediationInput(cluster=CLUSTER, node="nodw-7", incident=INCIDENT))


@pytest.mark.parametrize("kind", ["Fencing", "Remediation"])
async def test_a_pin_says_how_often_the_machine_was_repaired_by_what_its_node_says_now(ready: World, kind: str) -> None:
    asked, found = list[tuple[str, str]](), FoundRepairs(offence="again and again", asks=True)

    async def repairs(node: str, system_uuid: str) -> FoundRepairs:
        asked.append((node, system_uuid))
        return found

    served = ServedCluster(CLUSTER, ready.connection, clock=ready.clock, repairs=repairs, source=OPERATORS)
    if kind == "Fencing":
        ready.target = ClusterTarget(served, ready.permits, LICENCES)
        pinned: Any = await pin(ready)
    else:
        request = RemediationInput(cluster=CLUSTER, node=NODE, incident=INCIDENT, strategies=("reboot",))
        pinned = await ActivityEnvironment().run(ClusterRemediation(served, ready.looks).pin, request)
    assert pinned.repairs == found
    assert asked == [(NODE, pinned.pinned.system_uuid)]
    assert pinned.pinned.system_uuid


async def test_without_a_need_the_request_is_a_persons(ready: World) -> None:
    result = await pin(ready, reason="fan failure", requester="ada")
    assert result.need == Need(kind=NeedKind.PERSON, reason="fan failure", requester="ada")


async def test_that_a_machine_is_to_be_cut_off_only_its_own_preservation_may_say(ready: World) -> None:
    """S21: to that need its preservation is no veto. The input of a workflow may say anything, its type may not."""
    need = Need(kind=NeedKind.PRESERVATION, reason="as somebody has written it")
    for kind in ("Fencing", "Remediation"):
        with refused(ErrorType.INVALID_CONFIG, "need.kind: expected one of"):
            await pin(ready, workflow_type=kind, need=need)
    assert (await pin(ready, workflow_type="Preservation", need=need)).need == need
    with refused(ErrorType.INVALID_CONFIG, "expected one of preservation, got person"):
        await pin(ready, workflow_type="Preservation")


@pytest.mark.parametrize("kind", [NeedKind.PRESERVATION, NeedKind.CLEAN_UP, NeedKind.FOREIGN_OBJECT])
async def test_a_remediation_is_for_a_check_or_a_person(ready: World, kind: NeedKind) -> None:
    """S21."""
    remediation = ClusterRemediation(ServedCluster(CLUSTER, ready.connection, source=OPERATORS), ready.looks)
    request = RemediationInput(cluster=CLUSTER, node=NODE, incident=INCIDENT, need=Need(kind=kind, check=CHECK_REF))
    with refused(ErrorType.INVALID_CONFIG, "need.kind: expected one of check, person"):
        await ActivityEnvironment().run(remediation.pin, request)


async def test_s15_a_member_of_the_control_plane_by_its_machine_alone_is_pinned_as_one(ready: World) -> None:
    """As a scan counts it: while its episode is open, no other member is taken, also where a person asked for it."""
    await OPENSHIFT.install(ready.others)
    await OPENSHIFT.add_machine(ready.others, machine_of(NODE), node=NODE)
    labels = {"machine.openshift.io/cluster-api-machine-role": "master"}
    await ready.others.patch(OPENSHIFT.path("machines", machine_of(NODE)), {"metadata": {"labels": labels}})
    await ready.change_node({"metadata": {"annotations": OPENSHIFT.ties(NODE)}})
    remediation = ClusterRemediation(ServedCluster(CLUSTER, ready.connection, source=OPERATORS), ready.looks)
    request = RemediationInput(cluster=CLUSTER, node=NODE, incident=INCIDENT, strategies=("reboot=10m",))
    assert (await ActivityEnvironment().run(remediation.pin, request)).control_plane
    assert (await pin(ready)).control_plane


async def test_a_machine_that_has_a_node_is_remediated_by_the_nodes_name(ready: World) -> None:
    """S15, S20: else what the Node says, its lease, and that it is a member of a control plane would be asked of nobody."""
    await OPENSHIFT.install(ready.others)
    await OPENSHIFT.add_machine(ready.others, machine_of(NODE), node=NODE)
    remediation = ClusterRemediation(ServedCluster(CLUSTER, ready.connection, source=OPERATORS), ready.looks)
    name = f"machine/{OPENSHIFT.namespace}/{machine_of(NODE)}"
    for need in (None, Need(kind=NeedKind.PERSON, reason="as the command line says it")):
        request = RemediationInput(cluster=CLUSTER, node=name, incident=INCIDENT, need=need)
        with refused(ErrorType.INVALID_CONFIG, f"has Node/{NODE}: name that"):
            await ActivityEnvironment().run(remediation.pin, request)


async def test_no_other_nodes_machine_is_remediated_in_a_nodes_name(ready: World) -> None:
    """S9: an input of a workflow may name any Machine beside any node, and every look is about the node."""
    await OPENSHIFT.install(ready.others)
    for node in (NODE, "node-9"):
        await OPENSHIFT.add_machine(ready.others, machine_of(node), node=node)
    remediation = ClusterRemediation(ServedCluster(CLUSTER, ready.connection, source=OPERATORS), ready.looks)
    request = RemediationInput(
        cluster=CLUSTER,
        node=NODE,
        incident=INCIDENT,
        strategies=("reboot=10m",),
        machine=OPENSHIFT.machine_ref(machine_of("node-9")),
    )
    with refused(ErrorType.INVALID_CONFIG, f"machine: expected the Machine of {NODE}, "):
        await ActivityEnvironment().run(remediation.pin, request)
    pin = await ActivityEnvironment().run(remediation.pin, replace(request, machine=OPENSHIFT.machine_ref(machine_of(NODE))))
    assert pin.machine.name == machine_of(NODE)


@pytest.mark.parametrize("named", [True, False], ids=["named", "found by the Node's annotation"])
async def test_a_machine_with_another_provider_id_is_not_the_nodes(ready: World, named: bool) -> None:
    """S9: both name the Node; its host name went to another machine."""
    await OPENSHIFT.install(ready.others)
    await OPENSHIFT.add_machine(ready.others, machine_of(NODE), node=NODE)
    await ready.others.patch(OPENSHIFT.path("machines", machine_of(NODE)), {"spec": {"providerID": "metal://server-1"}})
    await ready.change_node({"metadata": {"annotations": OPENSHIFT.ties(NODE)}})
    remediation = ClusterRemediation(ServedCluster(CLUSTER, ready.connection, source=OPERATORS), ready.looks)
    request = RemediationInput(cluster=CLUSTER, node=NODE, incident=INCIDENT, strategies=("reboot=10m",))
    if not named:
        assert (await ActivityEnvironment().run(remediation.pin, request)).machine is None
        return
    with refused(ErrorType.TARGET_CHANGED, "the name is another machine's by now"):
        await ActivityEnvironment().run(remediation.pin, replace(request, machine=OPENSHIFT.machine_ref(machine_of(NODE))))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"node_uid": "another"}, "is another object now"), ({"machine_uid": "another"}, "another Machine has that name now")],
    ids=["the Node", "the Machine"],
)
async def test_a_remediation_pins_nothing_that_was_made_anew_since_it_was_asked_for(
    ready: World, changes: dict[str, str], words: str
) -> None:
    """S9: the scan named what it had seen."""
    await OPENSHIFT.install(ready.others)
    await OPENSHIFT.add_machine(ready.others, machine_of(NODE), node=NODE)
    remediation = ClusterRemediation(ServedCluster(CLUSTER, ready.connection, source=OPERATORS), ready.looks)
    request = RemediationInput(
        cluster=CLUSTER,
        node=NODE,
        incident=INCIDENT,
        strategies=("reboot=10m",),
        machine=OPENSHIFT.machine_ref(machine_of(NODE)),
    )
    assert (await ActivityEnvironment().run(remediation.pin, request)).machine is not None
    with refused(ErrorType.TARGET_CHANGED, words):
        await ActivityEnvironment().run(remediation.pin, replace(request, **changes))


@pytest.mark.parametrize("kind", [NeedKind.CHECK, NeedKind.PERSON])
async def test_no_request_may_say_which_lease_of_the_node_does_not_count(ready: World, kind: NeedKind) -> None:
    """S20: a delegate is the operator of an object that asks, and no word of whoever starts a workflow."""
    need = Need(kind=kind, check=CHECK_REF, delegate="somebody's maintenance")
    assert (await pin(ready, need=need)).need.delegate == ""


async def test_the_next_episode_learns_which_paths_are_cut(ready: World) -> None:
    """S35: also for a mere clean-up, which then needs the plan that knows their devices."""
    await ready.mark_as_ours(paths=("fence_brocade://switch-1/2",))
    found = await pin(ready, run_id="another", need=Need(kind=NeedKind.CLEAN_UP, reason="left over"))
    assert found.adopted_paths == ("fence_brocade://switch-1/2",)
    assert found.plan.devices


class TestTemplate:
    """Which template holds: the request's, else the health checks', else the only one."""

    async def test_a_health_check_names_it_by_its_first_rung_of_ours(self, ready: World) -> None:
        foreign = ObjectRef(
            api_version="self-node-remediation.medik8s.io/v1alpha1",
            kind="SelfNodeRemediationTemplate",
            name="self",
            namespace="kube-system",
        )
        chosen = await ready.add_template("second", tries=5)
        await ready.add_check(templates=(foreign, chosen, template_ref("blades")))
        assert (await pin(ready)).plan.tries == 5

    async def test_the_needs_own_check_goes_before_other_checks(self, ready: World) -> None:
        await ready.add_template("second", tries=5)
        await ready.add_check("another")
        await ready.add_check("workers", templates=(template_ref("second"),))
        with refused(ErrorType.INVALID_CONFIG, "different templates"):
            await pin(ready)
        assert (await pin(ready, need=Need(kind=NeedKind.CHECK, check=CHECK_REF))).plan.tries == 5

    @pytest.mark.parametrize(
        ("check", "going", "words"),
        [
            ({"selector": {"matchLabels": {"topology.kubernetes.io/zone": "zone-z"}}}, False, "nodewarden/second"),
            ({}, True, "several"),
            ({"unhealthyConditions": []}, False, "NodeHealthCheck/workers"),
            ({"templates": (template_ref("missing"),)}, False, "workers names FencingTemplate/nodewarden/missing"),
        ],
        ids=["it does not select the node", "it is being deleted", "it cannot be read", "what it names is not there"],
    )
    async def test_a_check_that_names_nothing_leaves_several_to_choose_from(
        self, ready: World, check: dict[str, Any], going: bool, words: str
    ) -> None:
        await ready.add_check(**{"templates": (template_ref("second"),), **check})
        if going:
            await ready.others.patch(CHECKS.path("workers"), {"metadata": {"finalizers": ["example.io/keep"]}})
            await ready.others.delete(CHECKS.path("workers"))
        if "templates" not in check:
            assert (await pin(ready)).plan.source.endswith("blades"), "the only one"
        await ready.add_template("second")
        with refused(ErrorType.INVALID_CONFIG, words):
            await pin(ready)

    async def test_a_check_over_machines_names_it_for_the_nodes_of_its_machines(self, ready: World) -> None:
        """Its template, in its own namespace, is not the only one. It may disagree with other checks as well."""
        system = CLUSTER_API
        await system.install(ready.others)
        await system.add_cluster(ready.others)
        template = await ready.others.get(TEMPLATES.path("blades", namespace=TEMPLATE_NAMESPACE))
        metadata = {"name": "default", "namespace": system.namespace}
        await ready.others.create(TEMPLATES.path(namespace=system.namespace), template | {"metadata": metadata})
        await ready.others.create(system.path("machinehealthchecks"), system.check())
        await system.add_machine(ready.others, "machine-7", node="another-node")
        assert (await pin(ready)).plan.source == "FencingTemplate/nodewarden/blades"
        await system.set_status(ready.others, "machine-7", {"nodeRef": {"name": NODE}})
        with refused(ErrorType.INVALID_CONFIG, "templates count in nodewarden"):
            await pin(ready)  # a tenant's Machine, check and template name no device of a Node (S40, S46)
        with refused(ErrorType.INVALID_CONFIG, "templates count in nodewarden"):
            await pin(ready, need=Need(kind=NeedKind.CHECK, check=system.check_ref()))
        source = PolicySource(templates=("nodewarden", system.namespace), machines=(system.namespace,))
        served = ServedCluster(CLUSTER, ready.connection, clock=ready.clock, source=source)
        ready.target = ClusterTarget(served, ready.permits, LICENCES)
        assert (await pin(ready)).plan.source == f"FencingTemplate/{system.namespace}/default"
        await ready.add_check()
        with refused(ErrorType.INVALID_CONFIG, "different templates"):
            await pin(ready)
        need = Need(kind=NeedKind.CHECK, check=system.check_ref())
        assert (await pin(ready, need=need)).plan.source == f"FencingTemplate/{system.namespace}/default"

    async def test_checks_over_machines_that_we_may_not_list_are_said_where_they_might_have_chosen(self, ready: World) -> None:
        """Rights of an earlier release."""
        await OPENSHIFT.install(ready.others)
        path = "/machinehealthchecks$"
        ready.server.faults.add(Fault(accident=Accident.STATUS, status=403, path=path, user_agent="nodewarden/"))
        assert (await pin(ready)).plan.source.endswith("blades")
        await ready.add_template("second")
        with refused(ErrorType.INVALID_CONFIG, "machinehealthchecks"):
            await pin(ready)

    async def test_a_template_in_an_unnamed_namespace_counts_for_nothing(self, ready: World) -> None:
        """S40: whoever may write templates there decides on no machine, and makes no other template ambiguous."""
        strange = await self.stranger(ready)
        assert (await pin(ready)).plan.source == "FencingTemplate/nodewarden/blades"
        with refused(ErrorType.INVALID_CONFIG, "templates count in nodewarden"):
            await pin(ready, template=strange)
        await ready.add_check(templates=(strange,))
        with refused(ErrorType.INVALID_CONFIG, "workers names FencingTemplate/tenant/mine: templates count in nodewarden"):
            await pin(ready)

    async def stranger(self, world: World) -> ObjectRef:
        """A tenant's template, which sends a password to an address of his own."""
        template = await world.others.get(TEMPLATES.path("blades", namespace=TEMPLATE_NAMESPACE))
        await world.others.create(NAMESPACES.path(), {"metadata": {"name": "tenant"}})
        metadata = {"name": "mine", "namespace": "tenant"}
        await world.others.create(TEMPLATES.path(namespace="tenant"), template | {"metadata": metadata})
        return replace(template_ref("mine"), namespace="tenant")

    async def test_none_at_all_says_what_to_write(self, world: World) -> None:
        """S7: nothing to execute is a configuration error, also where our kinds are not even installed."""
        with refused(ErrorType.INVALID_CONFIG, "(metal); write a FencingTemplate, a FenceConfig or ConfigMap"):
            await pin(world)
        await world.install_kinds()
        with refused(ErrorType.INVALID_CONFIG, "write a FencingTemplate"):
            await pin(world)

    @pytest.mark.parametrize(
        "ref",
        [
            ObjectRef(api_version="example.io/v1", kind="FencingTemplate", name="blades", namespace="kube-system"),
            ObjectRef(api_version="nodewarden.io/v1alpha1", kind="FencingTemplate", name="blades"),
        ],
        ids=["another group", "no namespace"],
    )
    async def test_a_reference_that_cannot_be_ours_is_refused(self, ready: World, ref: ObjectRef) -> None:
        with refused(ErrorType.INVALID_CONFIG, "the request names"):
            await pin(ready, template=ref)


async def test_a_clean_up_needs_no_template_and_gets_no_device(world: World) -> None:
    result = await pin(world, need=Need(kind=NeedKind.CLEAN_UP))
    assert result.plan.devices == ()
    assert result.pinned.endpoints == ()


class TestMarkFound:
    """A mark of an earlier episode is reported, so that it can be adopted (S35)."""

    async def test_our_own_of_another_run_is_adopted(self, ready: World) -> None:
        """S34: a terminated or reset run may have left an act under way, whatever its incident was called."""
        await ready.mark_as_ours()
        assert (await pin(ready, run_id="run-2")).adopted_incident == INCIDENT

    async def test_an_unreadable_one_is_never_taken_for_absent(self, ready: World) -> None:
        await ready.put_mark("not json")
        with refused(ErrorType.INVALID_CONFIG, "nodewarden.io/episode"):
            await pin(ready)


class TestMarkedAtOnce:
    """Where the permit came with the start the mark is written by the pin."""

    async def test_the_mark_is_in_the_name_of_the_episode(self, ready: World) -> None:
        result = await pin(ready, marks_as="run-1")
        mark = await ready.mark()
        assert mark is not None
        assert (mark.incident, mark.run_id, mark.kind) == (INCIDENT, "run-1", "Fencing")
        assert (result.added, ready.writes) == (mark.added, 1)
        again = await pin(ready, marks_as="run-1")
        assert (again.adopted_incident, again.added, ready.writes) == ("", mark.added, 1)

    @pytest.mark.parametrize("workflow_id", ["", "episode/other/node-7"], ids=["left by our predecessor", "of another workflow"])
    async def test_a_mark_of_others_is_left_to_what_follows(self, ready: World, workflow_id: str) -> None:
        """S13, S35: it is adopted in an order of its own, or refused."""
        found = replace(our_mark(cordoned=True), incident="incident-0")
        found = replace(found, workflow_id=workflow_id or found.workflow_id)
        await ready.put_mark(found)
        ready.server.requests.reset()
        result = await pin(ready, marks_as="run-1")
        assert (result.adopted_incident, result.added, ready.writes) == ("incident-0", None, 0)

    async def test_a_mark_that_fails_fails_no_pin(self, ready: World) -> None:
        """It is told by the mark that follows."""
        ready.server.faults.add(Fault(accident=Accident.STATUS, method="PATCH", status=500))
        assert (await pin(ready, marks_as="run-1")).added is None


HELD = {"metadata": {"annotations": {"nodewarden.io/hold": "true"}}}
BY_CHECK = Need(kind=NeedKind.CHECK, check=CHECK_REF)
AT_ONCE: dict[str, Any] = {"marks_as": "run-1", "cordons": True, "need": BY_CHECK, "holder": HOLDER}


@pytest.fixture
async def licensed(world: World) -> World:
    """Everything is as it should be for a cordon in a check's name: sick node, check, template, cluster Lease, permit."""
    await world.install_kinds()
    await world.add_check()
    await world.hold_cluster_lease()
    return world


class TestCordonedAtOnce:
    """What a check calls sick is cordoned by the pin, after a last look of the pin's own (S20)."""

    async def test_the_cordon_is_noted_in_the_mark(self, licensed: World) -> None:
        await licensed.add_template()
        result = await pin(licensed, **AT_ONCE)
        mark, node = await licensed.mark(), await licensed.node()
        assert mark is not None
        assert (result.cordoned, result.added) == ("cordoned", mark.added)
        assert (mark.cordoned, node["spec"].get("unschedulable")) == (True, True)
        again = await pin(licensed, **AT_ONCE)
        assert (again.cordoned, again.added) == ("cordoned already by us", mark.added)

    async def test_s20_the_node_is_read_for_the_pin_and_for_its_look_and_written_as_it_was_read(self, licensed: World) -> None:
        await licensed.add_template()
        licensed.server.requests.reset()
        assert (await pin(licensed, **AT_ONCE)).cordoned == "cordoned"
        assert licensed.server.requests.total("get", "nodes", "nodewarden/") == 2
        assert licensed.writes == 1, "our mark and the cordon"

    async def test_s20_what_others_write_after_the_look_is_not_cordoned_without_another(self, licensed: World) -> None:
        """A person holds the node: it is marked as it is then."""
        await licensed.add_template()
        licensed.connection.before_writes.append(lambda: licensed.change_node(HELD))
        result, node = await pin(licensed, **AT_ONCE), await licensed.node()
        assert (result.cordoned, node["spec"].get("unschedulable"), result.added is not None) == ("", None, True)

    async def test_s20_the_look_of_the_cordon_does_not_believe_what_the_pin_has_read(
        self, licensed: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await licensed.add_template()

        async def held_meanwhile() -> dict[str, tuple[str, ...]]:
            await licensed.change_node(HELD)
            return {}

        monkeypatch.setattr(licensed.target, "_served", replace(licensed.target._served, credential_hosts=held_meanwhile))
        result, node = await pin(licensed, **AT_ONCE), await licensed.node()
        assert (result.cordoned, node["spec"].get("unschedulable"), result.added is not None) == ("", None, True)

    @pytest.mark.parametrize("in_the_way", ["hold", "permit", "lease", "well"])
    async def test_s20_not_without_a_look_that_says_go(self, licensed: World, in_the_way: str) -> None:
        """What is in the way is said by the isolation that follows."""
        await licensed.add_template()
        if in_the_way == "hold":
            await licensed.change_node(HELD)
        elif in_the_way == "permit":
            licensed.permits.answer = (False, "held by no episode")
        elif in_the_way == "lease":
            await licensed.hold_cluster_lease("temporal.other:7233/default")
        else:
            await licensed.set_ready("True")
        result, node = await pin(licensed, **AT_ONCE), await licensed.node()
        assert (result.cordoned, node["spec"].get("unschedulable")) == ("", None)
        assert result.added is not None, "it is marked all the same"
        assert not result.added.cordoned

    async def test_only_where_its_plan_begins_with_a_cordon(self, licensed: World) -> None:
        await licensed.add_template(isolation=[])
        result, node = await pin(licensed, **AT_ONCE), await licensed.node()
        assert (result.cordoned, node["spec"].get("unschedulable")) == ("", None)

    @pytest.mark.parametrize(
        ("fault", "why"),
        [
            (Fault(accident=Accident.STATUS, method="PATCH", status=500), "500"),
            (Fault(accident=Accident.DELAY, method="PATCH", latency=timedelta(seconds=5)), "not done within 1 s"),
        ],
        ids=["refused", "slow"],
    )
    async def test_a_cordon_that_fails_fails_no_pin(
        self, licensed: World, fault: Fault, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(targets, "AT_ONCE_SECONDS", 1.0)
        await licensed.add_template()
        await pin(licensed, **AT_ONCE | {"cordons": False})  # marked by now
        licensed.server.faults.add(fault)
        with caplog.at_level("INFO"):
            result = await pin(licensed, **AT_ONCE)
        assert (result.cordoned, result.added is not None) == ("", True)
        assert [why in each.getMessage() for each in caplog.records if "not cordoned yet" in each.getMessage()] == [True]


# What a request says in a health check's name, which any client may (S42) --------------------------------------------------


async def test_s42_a_template_in_a_checks_name_is_one_that_the_check_names(ready: World) -> None:
    """Read live at the pin, and whenever a last look resolves the devices again. A person may name any that counts."""
    other = await ready.add_template("others")
    await ready.add_check()
    said = f"{CHECK_REF.key} does not name {other.key}"
    with refused(ErrorType.INVALID_CONFIG, said):
        await pin(ready, need=BY_CHECK, template=other)
    assert (await pin(ready, need=BY_CHECK, template=template_ref("blades"))).pinned.endpoints == (ENDPOINT,)
    assert (await pin(ready, template=other)).pinned.endpoints == (ENDPOINT,)
    await ready.hold_cluster_lease()
    look = await ready.look(need=BY_CHECK, configured=Configured(template=other))
    found = await ready.target.last_look(look)
    assert (found.verdict, said in found.reason) == (LookVerdict.NOT_LICENSED, True)


async def test_s42_a_step_has_failed_only_where_the_target_remembers_it(ready: World) -> None:
    """Any client may start an episode with an input, and would choose with which step it begins."""
    await ready.add_check()
    served = ServedCluster(CLUSTER, ready.connection, clock=ready.clock, source=OPERATORS)
    request = RemediationInput(cluster=CLUSTER, node=NODE, incident=INCIDENT, need=BY_CHECK, failed=("reboot", "fence"))

    async def failed() -> tuple[str, ...]:
        return (await ActivityEnvironment().run(ClusterRemediation(served, ready.looks).pin, request)).failed

    assert await failed() == ()
    memory = written_memory(LastRemediation(of=NODE, at=ready.now, failed=("reboot",)))
    for text, known in ((memory, ("reboot",)), ("{", ())):
        await ready.change_node({"metadata": {"annotations": {LAST_REMEDIATION_ANNOTATION: text}}})
        assert await failed() == known


async def test_s19_s42_how_often_it_was_remediated_is_what_the_target_remembers(ready: World) -> None:
    """Any client may begin a remediation in a check's name, and would call each the first."""
    await ready.add_check()
    rules = RetryRules(max_retry=1, retry_period=timedelta(minutes=10), min_healthy_period=timedelta(hours=2))
    served = ServedCluster(CLUSTER, ready.connection, clock=ready.clock, source=OPERATORS, retries=rules)

    async def refusal(*, ago: timedelta, before: int, **said: Any) -> str:
        memory = written_memory(LastRemediation(of=NODE, at=ready.now - ago, retry=before))
        await ready.change_node({"metadata": {"annotations": {LAST_REMEDIATION_ANNOTATION: memory}}})
        request = RemediationInput(cluster=CLUSTER, node=NODE, incident=INCIDENT, need=BY_CHECK, **said)
        return (await ActivityEnvironment().run(ClusterRemediation(served, ready.looks).pin, request)).refused

    minutes = timedelta(minutes=1)
    assert "not before" in await refusal(ago=5 * minutes, before=0, retry=1)
    assert "retry: expected 1 or more, got 0" in await refusal(ago=11 * minutes, before=0)
    assert await refusal(ago=11 * minutes, before=0, retry=1) == ""
    assert "maxRetry is 1" in await refusal(ago=11 * minutes, before=1, retry=2)
    assert await refusal(ago=11 * minutes, before=1, retry=1, exhausted="a person is asked first") == ""
    assert await refusal(ago=121 * minutes, before=1) == ""


@pytest.mark.parametrize("strategy", sorted({*Strategy} - LEAVES_BEHIND))
async def test_s28_s42_what_an_earlier_episode_has_left_is_what_a_scan_sees(strategy: Strategy, ready: World) -> None:
    """Taken back would be what others have asked of the Machine: any client of Temporal may say that it was left behind."""
    await ready.add_check()
    served = ServedCluster(CLUSTER, ready.connection, clock=ready.clock, source=OPERATORS)
    ladder = (EscalationStep(strategy=strategy, name="x"),)
    request = RemediationInput(cluster=CLUSTER, node=NODE, incident=INCIDENT, need=BY_CHECK, ladder=ladder, adopts="x")
    pinned = await ActivityEnvironment().run(ClusterRemediation(served, ready.looks).pin, request)
    assert (pinned.ladder, pinned.refused) == ((), "adopts: expected an object or a wish that an earlier episode has left, got x")


@pytest.mark.parametrize(("reason", "refused"), [("NodeNotReady", True), ("RemediationRequested", False)])
async def test_s28_s42_what_a_check_asks_of_an_owner_is_nothing_left_behind(reason: str, ready: World, *, refused: bool) -> None:
    await ready.add_check()
    await CLUSTER_API.install(ready.others)
    await CLUSTER_API.add_machine(ready.others, machine_of(NODE), node=NODE)
    await ready.change_node({"metadata": {"annotations": CLUSTER_API.ties(NODE)}})
    said = {"status": "False", "reason": reason, "message": "x", "lastTransitionTime": written(SICK_SINCE)}
    asked = [{"type": each, **said} for each in ("HealthCheckSucceeded", "OwnerRemediated")]
    await CLUSTER_API.set_status(ready.others, machine_of(NODE), {"conditions": asked})
    served = ServedCluster(CLUSTER, ready.connection, clock=ready.clock, source=OPERATORS)
    wish = EscalationStep(strategy=Strategy.REQUEST_OWNER, name="request-owner")
    request = RemediationInput(
        cluster=CLUSTER, node=NODE, incident=INCIDENT, need=BY_CHECK, ladder=(wish,), adopts="OwnerRemediated"
    )
    pinned = await ActivityEnvironment().run(ClusterRemediation(served, ready.looks).pin, request)
    assert ("its owner goes on being asked" in pinned.refused) is refused


async def test_s42_what_an_earlier_episode_has_left_is_of_a_kind_that_its_check_makes(ready: World) -> None:
    """A Machine owns its instance as well, which would be deleted with no look at all."""
    await ready.add_check()
    served = ServedCluster(CLUSTER, ready.connection, clock=ready.clock, source=OPERATORS)
    kind = ObjectRef(
        api_version="infrastructure.cluster.x-k8s.io/v1beta1", kind="AWSMachineTemplate", name="x", namespace="clusters"
    )
    ladder = (EscalationStep(strategy=Strategy.EXTERNAL, name="x", template=kind),)
    request = RemediationInput(cluster=CLUSTER, node=NODE, incident=INCIDENT, need=BY_CHECK, ladder=ladder, adopts="w-7")
    pinned = await ActivityEnvironment().run(ClusterRemediation(served, ready.looks).pin, request)
    assert (pinned.ladder, "makes no AWSMachine" in pinned.refused) == ((), True)


@pytest.mark.parametrize("how", ["ladder", "strategies"])
async def test_s42_the_steps_in_a_checks_name_are_those_that_the_check_wants_now(how: str, ready: World) -> None:
    """One that fences has no Machine deleted, whatever its request brings, neither at the pin nor at the act itself."""
    await ready.add_check()
    await OPENSHIFT.install(ready.others)
    await OPENSHIFT.add_machine(ready.others, machine_of(NODE), node=NODE)
    await ready.change_node({"metadata": {"annotations": OPENSHIFT.ties(NODE)}})
    path = OPENSHIFT.path("machines", machine_of(NODE))
    owned = {"ownerReferences": [owner("MachineSet", "set", api_version=OPENSHIFT.api_version)]}
    uid = (await ready.others.patch(path, {"metadata": owned}))["metadata"]["uid"]
    await OPENSHIFT.set_status(ready.others, machine_of(NODE), {"phase": "Failed"})
    served = ServedCluster(CLUSTER, ready.connection, clock=ready.clock, source=OPERATORS)
    deletion = EscalationStep(strategy=Strategy.DELETE_MACHINE, name="delete-machine")
    brings = {"ladder": (deletion,)} if how == "ladder" else {"strategies": ("delete-machine",)}
    request = RemediationInput(cluster=CLUSTER, node=NODE, incident=INCIDENT, need=BY_CHECK, **brings)

    async def steps() -> list[Strategy]:
        pinned = await ActivityEnvironment().run(ClusterRemediation(served, ready.looks).pin, request)
        return [each.strategy for each in pinned.ladder]

    async def gives_up() -> bool:
        asked = GiveUpRequest(
            cluster=CLUSTER,
            node=NODE,
            machine=OPENSHIFT.machine_ref(machine_of(NODE)),
            machine_uid=uid,
            holder=HOLDER,
            not_after=ready.now + timedelta(seconds=10),
            incident=INCIDENT,
            before=await ready.before(need=BY_CHECK),
        )
        await ActivityEnvironment().run(ClusterPreservation(served, ready.looks, ready.permits).give_up, asked)
        return not (await ready.others.list(path.rpartition("/")[0]))["items"]

    assert await steps() == [Strategy.FENCE]
    with refused(ErrorType.VETOED, f"{CHECK_REF.key} names no step that replaces the machine of {NODE}"):
        await gives_up()
    annotations = {ESCALATION_ANNOTATION: "fence=10m, delete-machine"}
    await ready.others.patch(CHECKS.path("workers"), {"metadata": {"annotations": annotations}})
    assert await steps() == [Strategy.FENCE, Strategy.DELETE_MACHINE]
    assert await gives_up()
