"""What holds a member of a control plane back (S15)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from policy.checks.health_check import RetryRules
from policy.objects.machines import MachineView
from policy.objects.nodes import Condition, EtcdGuard, NodeView
from policy.remediation.control_plane import (
    COMPONENTS,
    ETCD_MEMBER,
    ETCD_POD,
    IN_PROGRESS_ANNOTATION,
    BlockingRule,
    Component,
    ControlPlaneMember,
    ControlPlaneView,
    EtcdMember,
    MemberFate,
    StaticPod,
    after_removal,
    begun_by_owner,
    component_of,
    is_of_openshift,
    members_from_machines,
    members_from_nodes,
    objection_to,
    read_strategy,
    taking_of,
    while_stopped,
)
from policy.values import machine_apis
from policy.values.errors import PolicyError
from policy.values.fields import Fields
from tests.policy.builders import NOW, a_node

ALL = frozenset({ETCD_MEMBER, ETCD_POD, *COMPONENTS})
CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
REMOVED, STOPPED = MemberFate.REMOVED, MemberFate.STOPPED


def member(name: str, *, well: bool = True, **fields: object) -> ControlPlaneMember:
    values: dict[str, object] = {
        "node": name,
        "created": NOW,
        "unhealthy": not well,
        "true": ALL if well else frozenset(),
    } | fields
    return ControlPlaneMember(name=name, **values)  # type: ignore[arg-type]


def plane(*members: ControlPlaneMember, **fields: object) -> ControlPlaneView:
    """With an etcd whose members are as well as theirs."""
    voters = tuple(EtcdMember(name=each.node, healthy=ETCD_MEMBER in each.true) for each in members if each.node)
    return ControlPlaneView(members=members, **{"etcd": voters, "replicas": len(members)} | fields)  # type: ignore[arg-type]


def blocked(view: ControlPlaneView, name: str, taking: MemberFate = REMOVED) -> BlockingRule | None:
    objection = objection_to(view, name, taking)
    assert objection is None or objection.why
    return objection.rule if objection else None


SICK, WELL = member("m1", well=False), member("m1")
SECOND, THIRD = member("m2"), member("m3")


LAST, QUORUM, NO_API = BlockingRule.LAST_MEMBER, BlockingRule.QUORUM, BlockingRule.NO_API_SERVER
WITHOUT_ETCD = member("m1", true=ALL - {ETCD_MEMBER})


@pytest.mark.parametrize(
    ("view", "name", "removed", "stopped"),
    [
        pytest.param(plane(SICK, SECOND, THIRD), "m1", None, None, id="the failed one of three"),
        pytest.param(plane(SICK, member("m2", well=False), THIRD), "m1", QUORUM, QUORUM, id="one of two failed"),
        pytest.param(plane(SICK, SECOND), "m1", None, QUORUM, id="the failed one of two: stopped it goes on counting"),
        pytest.param(plane(SICK, SECOND), "m2", NO_API, NO_API, id="the well one of two"),
        pytest.param(plane(WITHOUT_ETCD, SECOND), "m2", QUORUM, QUORUM, id="the one of etcd"),
        pytest.param(plane(SICK, SECOND, etcd=(EtcdMember(name="m2", healthy=True),)), "m1", None, None, id="unlisted"),
        pytest.param(plane(SICK), "m1", LAST, LAST, id="alone"),
        pytest.param(plane(WELL), "m1", LAST, LAST, id="alone and well"),
        pytest.param(plane(SICK, SECOND, replicas=1), "m1", LAST, LAST, id="to be alone"),
    ],
)
def test_a_member_is_taken_where_the_others_are_a_quorum_without_it(
    view: ControlPlaneView, name: str, removed: BlockingRule | None, stopped: BlockingRule | None
) -> None:
    """S15: where a quorum is lost already, to take a second one would only make it certain."""
    assert (blocked(view, name, REMOVED), blocked(view, name, STOPPED)) == (removed, stopped)


def test_before_it_is_initialized_there_is_nothing_to_protect() -> None:
    """Its first machine may be the one that fails: nobody else could be its quorum."""
    alone = plane(member("m1", well=False), initialized=False, etcd=None)
    assert blocked(alone, "m1") is None
    assert blocked(replace(alone, initialized=True), "m1") is BlockingRule.LAST_MEMBER
    assert blocked(replace(alone, upgrade="v1.35.0"), "m1") is BlockingRule.UPGRADE_PENDING
    assert blocked(replace(alone, in_progress=("m0",)), "m1") is BlockingRule.IN_PROGRESS


def test_one_at_a_time() -> None:
    view = plane(
        member("m1", well=False), member("m2", well=False), member("m3"), member("m4"), member("m5"), in_progress=("m1",)
    )
    assert blocked(view, "m2") is BlockingRule.IN_PROGRESS
    assert blocked(view, "m1") is None, "an episode is no objection to itself"


def test_a_member_that_comes_or_goes_is_waited_for() -> None:
    sick, well = member("m1", well=False), (member("m2"), member("m3"))
    assert blocked(plane(sick, *well, member("m4", node="", true=frozenset())), "m1") is BlockingRule.PROVISIONING
    assert blocked(plane(sick, *well, member("m4", well=False, node="")), "m1") is None, "that one will not come"
    assert blocked(plane(sick, *well, member("m4", deleting=True)), "m1") is BlockingRule.DELETING
    assert blocked(plane(member("m1", well=False, deleting=True), *well), "m1") is BlockingRule.DELETING


def test_without_the_member_list_nothing_is_taken() -> None:
    sick, well = member("m1", well=False), (member("m2"), member("m3"))
    for unknown in (None, ()):
        assert blocked(plane(sick, *well, etcd=unknown), "m1") is BlockingRule.ETCD_UNKNOWN
    assert blocked(plane(sick, *well, etcd=None, managed_etcd=False), "m1") is None
    never_joined = member("m1", well=False, node="")
    assert blocked(plane(never_joined, *well, etcd=None), "m1") is None, "it has no member that could be missed"


def test_an_annotation_that_outlived_the_remediation_is_a_remnant() -> None:
    """KubeadmControlPlane may have crashed between creating the replacement and removing its annotation."""
    text = json.dumps({"machine": "m0", "timestamp": "2026-03-01T12:00:00Z", "retryCount": 0})
    annotations = {IN_PROGRESS_ANNOTATION: text}
    before = [member("m1", created=NOW), member("m2", created=None)]
    assert begun_by_owner(annotations, before, subject="KubeadmControlPlane/cp") == ("m0",)
    assert begun_by_owner({}, before, subject="KubeadmControlPlane/cp") == ()
    replaced = [*before, member("m0-1", created=NOW + timedelta(seconds=1))]
    assert begun_by_owner(annotations, replaced, subject="KubeadmControlPlane/cp") == ()
    with pytest.raises(PolicyError, match="remediation-in-progress"):
        begun_by_owner({IN_PROGRESS_ANNOTATION: "x"}, before, subject="KubeadmControlPlane/cp")


@pytest.mark.parametrize(
    "spec",
    [
        {"remediationStrategy": {"maxRetry": 5, "retryPeriod": "2m", "minHealthyPeriod": "2h"}},
        {"remediation": {"maxRetry": 5, "retryPeriodSeconds": 120, "minHealthyPeriodSeconds": 7200}},
    ],
)
def test_the_strategy_of_a_kubeadm_control_plane_is_read_in_both_versions(spec: dict[str, object]) -> None:
    rules = read_strategy(Fields(spec, subject="KubeadmControlPlane/cp", path="spec"))
    assert rules == RetryRules(max_retry=5, retry_period=timedelta(minutes=2), min_healthy_period=timedelta(hours=2))
    assert read_strategy(Fields({}, subject="KubeadmControlPlane/cp", path="spec")) == RetryRules()


def nodes(*ready: str, total: int = 3) -> list[NodeView]:
    """Three of a control plane, and a worker."""
    names = [f"n{index}" for index in range(1, total + 1)]
    members = [a_node(name, "True" if name in ready else "Unknown", labels=CONTROL_PLANE) for name in names]
    return [*members, a_node("worker")]


def pods(component: Component, *ready: str, total: int = 3) -> list[StaticPod]:
    names = [f"n{index}" for index in range(1, total + 1)]
    return [StaticPod(component=component, node=name, ready=name in ready) for name in names]


ALL_3 = nodes("n1", "n2", "n3")
ETCD_ON_3 = pods(Component.ETCD, "n1", "n2", "n3")
ETCD_ON_2 = pods(Component.ETCD, "n1", "n2")
API_ON_1 = [*ETCD_ON_3, *pods(Component.API_SERVER, "n1")]


@pytest.mark.parametrize(
    ("members", "seen", "name", "taking", "because"),
    [
        pytest.param(nodes("n2", "n3"), (), "n1", STOPPED, None, id="nodes alone are the voters"),
        pytest.param(nodes("n3"), (), "n1", STOPPED, BlockingRule.QUORUM, id="two of three nodes are down"),
        pytest.param(nodes("n2", total=2), (), "n1", STOPPED, BlockingRule.QUORUM, id="one of two nodes is stopped"),
        pytest.param(nodes("n2", total=2), (), "n1", REMOVED, None, id="one of two nodes is removed"),
        pytest.param(nodes("n1", total=1), (), "n1", STOPPED, BlockingRule.LAST_MEMBER, id="the only node"),
        pytest.param(ALL_3, ETCD_ON_3, "n1", STOPPED, None, id="a node and its pod of etcd"),
        pytest.param(ALL_3, ETCD_ON_2, "n1", STOPPED, BlockingRule.QUORUM, id="a node whose pod of etcd is not ready"),
        pytest.param(ALL_3, ETCD_ON_2[:2], "n1", STOPPED, BlockingRule.QUORUM, id="its pod may only not be there yet"),
        # Nobody updates the pod of a kubelet that is silent.
        pytest.param(nodes("n1", "n2"), ETCD_ON_3, "n1", STOPPED, BlockingRule.QUORUM, id="a ready pod on a node that is not"),
        pytest.param(ALL_3, API_ON_1, "n1", STOPPED, BlockingRule.NO_API_SERVER, id="the last API server that answers"),
        pytest.param(ALL_3, API_ON_1, "n2", STOPPED, None, id="another than the last API server"),
    ],
)
def test_a_node_votes_only_with_its_pod_of_etcd(
    members: list[NodeView], seen: Sequence[StaticPod], name: str, taking: MemberFate, because: BlockingRule | None
) -> None:
    """S15: by what is seen of a control plane whose machines nobody knows."""
    view = members_from_nodes(members, seen)
    assert [each.name for each in view.members] == [each.name for each in members if each.control_plane]
    assert blocked(view, name, taking) is because


ETCD_ONLY, SERVES_ONLY = {"node-role.kubernetes.io/etcd": "true"}, {"node-role.kubernetes.io/controlplane": "true"}


@pytest.mark.parametrize("seen", [(), ETCD_ON_3], ids=["within another process", "as static pods"])
def test_nodes_that_have_nothing_but_etcd_vote(seen: Sequence[StaticPod]) -> None:
    """S15: RKE, RKE2 and k3s label them so, and no API server is on them."""

    def split(*sick: str) -> ControlPlaneView:
        roles = {"n1": ETCD_ONLY, "n2": ETCD_ONLY, "n3": ETCD_ONLY, "s1": SERVES_ONLY, "s2": SERVES_ONLY}
        return members_from_nodes(
            [a_node(name, "Unknown" if name in sick else "True", labels=labels) for name, labels in roles.items()], seen
        )

    assert blocked(split("n1"), "n1", STOPPED) is None
    assert blocked(split("n1", "n2"), "n1", STOPPED) is BlockingRule.QUORUM
    assert blocked(split("s1"), "s1", STOPPED) is None
    assert blocked(split("s1", "s2"), "s1", STOPPED) is BlockingRule.NO_API_SERVER


def test_an_arbiter_votes_and_serves_no_client() -> None:
    """S15: OpenShift's third voter, which bears no other role."""

    def seen(*sick: str) -> ControlPlaneView:
        roles = {"n1": CONTROL_PLANE, "n2": CONTROL_PLANE, "n3": {"node-role.kubernetes.io/arbiter": ""}}
        ready = [a_node(name, "Unknown" if name in sick else "True", labels=labels) for name, labels in roles.items()]
        return members_from_nodes(ready, [*ETCD_ON_3, *pods(Component.API_SERVER, "n1", "n2")])

    assert blocked(seen("n3"), "n3", STOPPED) is None
    assert blocked(seen("n1", "n3"), "n3", STOPPED) is BlockingRule.QUORUM
    assert blocked(seen("n1", "n2"), "n1", STOPPED) is BlockingRule.NO_API_SERVER


def test_a_voter_without_a_node_is_still_a_voter() -> None:
    """A Node that was deleted, or one that runs nothing of the control plane but etcd."""
    gone = [*pods(Component.ETCD, "n1", "n2"), StaticPod(component=Component.ETCD, node="n4", ready=True)]
    view = members_from_nodes(nodes("n1", "n2", total=2), gone[:2] + gone[3:])
    assert view.etcd is not None
    assert [(each.name, each.healthy) for each in view.etcd] == [("n1", True), ("n2", True), ("n4", False)]
    assert blocked(view, "n1", STOPPED) is BlockingRule.QUORUM


def machines(*well: str, total: int = 3, told: frozenset[str] = ALL, **fields: object) -> list[MachineView]:
    """m1 and so on, of a KubeadmControlPlane, each with its Node n1 and so on."""
    return [
        MachineView(
            api=machine_apis.CLUSTER_API,
            namespace="clusters",
            name=f"m{number}",
            node_name=f"n{number}",
            controller="KubeadmControlPlane/cp",
            control_plane=True,
            created=NOW,
            conditions=tuple(Condition(type=kind, status="True" if f"n{number}" in well else "Unknown") for kind in sorted(told)),
            **fields,  # type: ignore[arg-type]
        )
        for number in range(1, total + 1)
    ]


def owned(listed: list[MachineView], annotations: dict[str, str] | None = None, **spec: object) -> ControlPlaneView | None:
    return members_from_machines(
        listed, Fields(spec, subject="cp"), annotations or {}, initialized=True, subject="KubeadmControlPlane/cp"
    )


@pytest.mark.parametrize(
    ("has", "step", "waits_for"),
    [
        ("v1.33.0", "", "v1.35.0"),
        ("v1.33.0", "v1.34.0", "v1.34.0"),
        ("v1.34.0", "v1.34.0", ""),
        ("v1.35.0", "v1.34.0", ""),
        ("v1.35.0", "", ""),
    ],
)
def test_a_chained_upgrade_is_waited_for_up_to_its_present_step(has: str, step: str, waits_for: str) -> None:
    """Cluster API 3c7007896f: in between, a KubeadmControlPlane remediates."""
    view = members_from_machines(
        machines("n1"),
        Fields({"version": has}, subject="cp"),
        {},
        initialized=True,
        version="v1.35.0",
        upgrade_step=step,
        subject="KubeadmControlPlane/cp",
    )
    assert view is not None
    assert view.upgrade == waits_for


@pytest.mark.parametrize(("replicas", "read"), [(0, True), (2**31 - 1, True), (-1, False), (2**31, False)])
def test_how_many_members_are_wanted_is_what_the_api_takes_for_a_number(replicas: int, *, read: bool) -> None:
    with nullcontext() if read else pytest.raises(PolicyError, match="replicas"):
        view = owned(machines("n1"), replicas=replicas)
        assert view is not None
        assert view.replicas == replicas


@pytest.mark.parametrize(
    ("well", "total", "stopped", "removed"),
    [
        (("n2", "n3"), 3, None, None),
        (("n1", "n2", "n3"), 3, None, None),
        (("n2",), 3, BlockingRule.QUORUM, BlockingRule.QUORUM),
        (("n2",), 2, BlockingRule.QUORUM, None),
        ((), 2, BlockingRule.NO_API_SERVER, BlockingRule.NO_API_SERVER),
        (("n1",), 1, BlockingRule.LAST_MEMBER, BlockingRule.LAST_MEMBER),
    ],
)
def test_an_owner_s_machines_say_how_many_are_left(
    well: tuple[str, ...], total: int, stopped: BlockingRule | None, removed: BlockingRule | None
) -> None:
    """S15."""
    view = owned(machines(*well, total=total), replicas=total)
    assert view is not None
    assert (blocked(view, "m1", STOPPED), blocked(view, "m1", REMOVED)) == (stopped, removed)


def test_unset_conditions_say_nothing_of_a_control_plane() -> None:
    assert owned(machines("n1", "n2", "n3", told=frozenset())) is None
    assert owned(machines("n1", "n2", "n3", told=frozenset({"Ready"}))) is None
    assert owned([replace(each, control_plane=False) for each in machines("n2", "n3")]) is None


def test_one_that_its_owner_was_given_is_not_about_to_join() -> None:
    """It never got a Node, and will not."""
    lost = replace(machines()[2], node_name="")
    well = machines("n2", "n3", "n4", total=4)
    listed = [*well[:2], lost, well[3]]
    view = owned(listed)
    assert view is not None
    assert blocked(view, "m1") is BlockingRule.PROVISIONING
    given = replace(lost, conditions=(*lost.conditions, Condition(type="OwnerRemediated", status="False")))
    view = owned([*well[:2], given, well[3]])
    assert view is not None
    assert blocked(view, "m1") is None


def test_etcd_elsewhere_and_what_has_begun_are_read_off_the_owner() -> None:
    external = {"clusterConfiguration": {"etcd": {"external": {"endpoints": ["https://192.0.2.7"]}}}}
    view = owned(machines("n2", total=2), kubeadmConfigSpec=external)
    assert view is not None
    assert blocked(view, "m1", STOPPED) is None
    begun = json.dumps({"machine": "m0", "timestamp": "2026-03-01T12:30:00Z", "retryCount": 0})
    view = owned(machines("n2", "n3"), {IN_PROGRESS_ANNOTATION: begun})
    assert view is not None
    assert blocked(view, "m1") is BlockingRule.IN_PROGRESS
    with pytest.raises(PolicyError, match="remediation-in-progress"):
        owned(machines("n2", "n3"), {IN_PROGRESS_ANNOTATION: "{"})


@pytest.mark.parametrize(
    ("owner", "removes", "taking"),
    [
        ("KubeadmControlPlane/cp", True, REMOVED),
        ("ControlPlaneMachineSet/cluster", True, REMOVED),
        ("KubeadmControlPlane/cp", False, STOPPED),
        ("MachineSet/masters", True, STOPPED),
        ("", True, STOPPED),
    ],
)
def test_only_who_knows_of_etcd_takes_a_member_out_of_it(owner: str, removes: bool, taking: MemberFate) -> None:
    """S15: a member whose machine is gone goes on being counted."""
    assert taking_of(owner, removes=removes) is taking


@pytest.mark.parametrize(
    ("namespace", "labels", "component"),
    [
        ("kube-system", {"component": "etcd", "tier": "control-plane"}, Component.ETCD),
        ("openshift-etcd", {"app": "etcd", "etcd": "true"}, Component.ETCD),
        ("openshift-etcd", {"app": "guard"}, None),
        ("kube-system", {"component": "kube-apiserver"}, Component.API_SERVER),
        ("openshift-kube-apiserver", {"app": "openshift-kube-apiserver"}, Component.API_SERVER),
        ("default", {"component": "etcd"}, None),
        ("kube-system", {}, None),
    ],
)
def test_which_static_pods_are_looked_at(namespace: str, labels: dict[str, str], component: Component | None) -> None:
    assert component_of(namespace, labels) is component


# What a change leaves of etcd (S15).

KINDS = (
    {"healthy": True},
    {"healthy": False},
    {"healthy": None},
    {"healthy": True, "alarm": "NOSPACE"},
    {"healthy": True, "learner": True},
)


def a_list(*healthy: bool) -> tuple[EtcdMember, ...]:
    return tuple(EtcdMember(name=f"m{index}", healthy=well) for index, well in enumerate(healthy, start=1))


EVERY_LIST = [
    tuple(EtcdMember(name=f"m{index}", **kind) for index, kind in enumerate(kinds, start=1))  # type: ignore[arg-type]
    for size in range(1, 5)
    for kinds in product(KINDS, repeat=size)
]


def test_what_stays_of_a_removal_is_a_quorum_of_those_that_stay() -> None:
    """S15, for every list of up to four members."""
    for members in EVERY_LIST:
        left = [member for member in members if member.name != "m1"]
        well = [member for member in left if member.healthy in {True, None} and not member.alarm]
        majority = len(well) * 2 > len(left)
        all_vote = not any(member.learner for member in left)
        assert after_removal(members, "m1").safe is (majority and all_vote), members


def test_what_is_stopped_goes_on_being_counted() -> None:
    """S15, for every list of up to four members: the voters that are left are a quorum of all that are in the list."""
    for members in EVERY_LIST:
        well = [member for member in members[1:] if member.healthy in {True, None} and not member.alarm]
        majority = len(well) * 2 > len(members)
        all_vote = not any(member.learner for member in members)
        assert while_stopped(members, "m1").safe is (majority and all_vote), members
        if while_stopped(members, "m1").safe:
            assert after_removal(members, "m1").safe, "to remove one is never more dangerous than to stop it"


def test_a_member_that_is_gone_from_the_list_is_not_missed() -> None:
    only = (EtcdMember(name="m2", healthy=True),)
    assert after_removal(only, "m1").safe
    assert while_stopped(only, "m1").safe


def test_who_is_still_starting_is_waited_for() -> None:
    """One without a name may be anybody's, also that of the member that is to be taken."""
    starting = (*a_list(False, True, True), EtcdMember(name=""))
    after = after_removal(starting, "m1")
    assert (after.safe, "of etcd's 2 voters" in after.why) == (False, True)
    assert not after_removal(starting, "").safe
    assert not while_stopped(starting, "").safe
    assert "1 of its members is no voter yet" in after.why
    assert "one without a name" in after.why


# OpenShift's own guard of etcd: its budget and the guard pods, by the rule of the NodeHealthCheck operator.

UNSEEN, TWO_BUDGETS, SPENT = (
    "neither a PodDisruptionBudget nor a guard pod",
    "expected one PodDisruptionBudget",
    "allows no disruption",
)


@pytest.mark.parametrize(
    ("guard", "says"),
    [
        (EtcdGuard(), ""),
        (EtcdGuard(known=True), UNSEEN),
        (EtcdGuard(known=True, guards={"cp-1": "True"}), TWO_BUDGETS),
        (EtcdGuard(known=True, disruptions_allowed=(1, 1), guards={"cp-1": "True"}), TWO_BUDGETS),
        (EtcdGuard(known=True, disruptions_allowed=(1,)), ""),
        (EtcdGuard(known=True, disruptions_allowed=(1,), guards={"cp-1": "True"}), ""),
        (EtcdGuard(known=True, disruptions_allowed=(0,), guards={"cp-1": "True"}), SPENT),
        (EtcdGuard(known=True, disruptions_allowed=(0,), guards={"cp-1": "Unknown"}), SPENT),
        (EtcdGuard(known=True, disruptions_allowed=(0,), guards={"cp-1": "False"}), ""),
        (EtcdGuard(known=True, disruptions_allowed=(0,), guards={"cp-2": "True"}), ""),
    ],
)
def test_what_guards_etcd_holds_a_member_or_lets_it_go(guard: EtcdGuard, says: str) -> None:
    """S15: what was looked for and can't be seen holds it as well."""
    objection = guard.objection("cp-1")
    assert says in objection
    assert bool(objection) is bool(says)


@pytest.mark.parametrize(
    ("annotations", "openshift"),
    [
        ({}, False),
        ({"cluster.x-k8s.io/machine": "cp-1"}, False),
        ({"machine.openshift.io/machine": "openshift-machine-api/cp-1"}, True),
        ({"machineconfiguration.openshift.io/currentConfig": "rendered-master-1"}, True),
    ],
)
def test_openshift_is_known_by_what_its_operators_write_on_a_node(annotations: dict[str, str], openshift: bool) -> None:
    assert is_of_openshift(NodeView(name="cp-1", uid="uid-1", annotations=annotations)) is openshift
