"""Which Node a machine is, where others claim the same (S39), and the groups in which nodes are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.objects.machines import (
    IgnoredObjects,
    MachineView,
    claimed_otherwise,
    contested,
    counted_in,
    identities_of,
    is_machine_of,
    taken_name,
    uncounted,
)
from policy.objects.nodes import ZONE_LABEL, Condition, NodeView
from policy.objects.scopes import CLUSTER, GroupCount, GroupTally, group_of, group_phrase, is_scope
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT, MachineApi
from policy.values.object_refs import ObjectRef
from tests.policy.builders import RACK, a_node, in_rack

AMI = "03000200-0400-0500-0006-000700080009"


def told(node: NodeView, *others: NodeView) -> str:
    everybody = (node, *others)
    return contested(node, lambda key: [each.name for each in everybody if key in identities_of(each)])


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("provider_id", "sim:///a", "providerID sim:///a"),
        ("system_uuid", "system-A", "system UUID SYSTEM-a"),
        ("boot_id", "boot-1-of-a", "boot id boot-1-of-a"),
    ],
)
def test_a_node_with_the_same_identity_is_named_with_it(field: str, value: str, words: str) -> None:
    """S39: a system UUID is the same in any case of its letters."""
    node, twin = a_node("a"), replace(a_node("b"), **{field: value})
    assert told(node, twin, a_node("c")) == f"Node/a has the same {words} as b: find out which of them is that machine"
    assert told(twin, node).startswith("Node/b has the same ")


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        # The drivers of both read the same instance out of either.
        ("aws:///eu-west-1a/i-1", "aws:///eu-west-1b/i-1", True),
        ("aws:///eu-west-1a/i-1", "aws:////i-1", True),
        ("aws:///eu-west-1a/i-1", "aws:///eu-west-1a/i-2", False),
        ("openstack:///6f2b", "openstack://region-1/6F2B", True),
        ("azure:///subscriptions/S/vm-1", "azure:///subscriptions/s/VM-1", True),
        ("azure:///pools/a/virtualMachines/0", "azure:///pools/b/virtualMachines/0", False),
        ("gce://p/zone-a/n1", "gce://p/zone-b/n1", False),
    ],
)
def test_one_machine_is_the_same_in_each_spelling_of_its_provider_id(ours: str, theirs: str, *, same: bool) -> None:
    """S39: else whoever spells another's differently has that one switched off. A Machine finds its Node by it, too (S9)."""
    node, twin = a_node("a", provider_id=ours), a_node("b", provider_id=theirs)
    assert (told(node, twin) != "", told(twin, node) != "") == (same, same)
    machine = MachineView(api=CLUSTER_API, namespace="ns", name="m", provider_id=theirs)
    assert is_machine_of(machine, "a", node) is same
    elsewhere = replace(machine, node_name="gone")
    assert (claimed_otherwise(node, [elsewhere]) != "", taken_name(replace(machine, node_name="a"), node) == "") == (same, same)


@pytest.mark.parametrize(
    "uuid", ["", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", AMI, AMI.upper()]
)
def test_what_firmware_has_not_been_given_tells_nothing(uuid: str) -> None:
    assert told(a_node("a", system_uuid=uuid), a_node("b", system_uuid=uuid)) == ""


def test_a_machine_that_says_no_provider_id_is_not_that_of_a_node_which_another_one_has() -> None:
    """S9, S39: the host name of a failed machine went to another one, which is well, and either Machine names the Node."""
    node = a_node("n1", provider_id="sim:///two")
    two = MachineView(api=OPENSHIFT, namespace="ns", name="two", node_name="n1", provider_id="sim:///two")
    one = replace(two, name="one", provider_id="")
    assert "is named by Machine/ns/one, which says no providerID" in claimed_otherwise(node, [one, two])
    assert claimed_otherwise(node, [one]) == claimed_otherwise(node, [two]) == ""
    assert claimed_otherwise(node, [replace(one, api=CLUSTER_API), two]) == "", "another system's twin of the same machine"


def test_s39_a_node_of_two_machines_of_one_api_is_neithers() -> None:
    """A tenant who may create Machines gave one the providerID and the name of a Node, and with a health check of their own, by
    which a Ready node is sick, had the healthy machine rebooted. One that is being deleted makes room for the other."""
    node = a_node("n1", provider_id="sim:///one")
    real = MachineView(api=OPENSHIFT, namespace="infra", name="real", node_name="n1", provider_id="sim:///one")
    forged = replace(real, namespace="tenant", name="forged")
    both = "Node/n1 has the providerID sim:///one, and so it is that of Machine/infra/real and of Machine/tenant/forged: find out"
    for machines in ([real, forged], [forged, real], [replace(real, node_name=""), forged]):
        assert claimed_otherwise(node, machines).startswith(both)
    for machines in ([real, replace(forged, deleting=True)], [real, replace(forged, api=CLUSTER_API)]):
        assert claimed_otherwise(node, machines) == ""


@pytest.mark.parametrize(
    ("api", "namespace", "named", "counts"),
    [
        (OPENSHIFT, "openshift-machine-api", (), True),
        (OPENSHIFT, "tenant", (), False),
        (OPENSHIFT, "tenant", ("infra", "tenant"), True),
        (CLUSTER_API, "openshift-machine-api", (), False),
        (CLUSTER_API, "clusters", ("clusters",), True),
        (CLUSTER_API, "tenant", ("*",), True),
        (MCM, "shoot", ("shoots",), False),
    ],
)
def test_s46_machines_and_their_checks_count_where_the_setting_says_so(
    api: MachineApi, namespace: str, named: tuple[str, ...], counts: bool
) -> None:
    """And OpenShift's where its operator works: elsewhere a tenant may have a namespace of that name. Other kinds count."""
    machine = ObjectRef(api_version=api.api_version, kind="Machine", name="m", namespace=namespace)
    for ref in (machine, replace(machine, kind="MachineHealthCheck")):
        assert (uncounted(ref, named) == "") is counts
    assert uncounted(ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="n"), ()) == ""


@pytest.mark.parametrize("api", [OPENSHIFT, CLUSTER_API])
def test_s46_a_machine_that_does_not_count_is_that_of_a_node_only_where_each_names_the_other(api: MachineApi) -> None:
    """S39: neither by name nor by providerID, and it contests none. A kubelet writes the annotations of its own Node alone."""
    forged = MachineView(api=api, namespace="tenant", name="forged", node_name="n1", provider_id="sim:///one", cluster_name="c")
    forged = counted_in((), forged)
    real = MachineView(api=OPENSHIFT, namespace="openshift-machine-api", name="real", node_name="n1", provider_id="sim:///one")
    ties = {
        "machine.openshift.io/machine": "tenant/forged",
        "cluster.x-k8s.io/machine": "forged",
        "cluster.x-k8s.io/cluster-namespace": "tenant",
        "cluster.x-k8s.io/cluster-name": "c",
    }
    plain, naming = a_node("n1", provider_id="sim:///one"), a_node("n1", provider_id="sim:///one", annotations=ties)
    another = a_node("n2", provider_id="sim:///one", annotations=ties)
    assert is_machine_of(replace(forged, uncounted=""), "n1", plain), "else this test would see nothing"
    for machine in (forged, replace(forged, node_name="")):
        assert not is_machine_of(machine, "n1", plain)
        assert not is_machine_of(machine, "n1", None), "nor once the Node is gone"
        assert not is_machine_of(machine, "n2", another), "a Node that is named by none of them"
        assert claimed_otherwise(plain, [real, machine]) == claimed_otherwise(another, [machine]) == ""
    assert is_machine_of(forged, "n1", naming)
    assert not is_machine_of(replace(forged, node_name=""), "n1", naming)


def test_s46_many_that_do_not_count_are_one_sentence_and_one_change_for_each_namespace() -> None:
    """S44: a tenant who goes on making them wakes no scan. Of Cluster API's, namespaces of Clusters here alone are named."""
    ignored = IgnoredObjects()
    for number in range(100):
        ignored.put(f"MachineHealthCheck/tenant/{number}", OPENSHIFT, "tenant")
        ignored.put(f"MachineHealthCheck.cluster.x-k8s.io/blue/{number}", CLUSTER_API, "blue")
    assert ignored.version == 2
    assert "in tenant are ignored: the setting machine_namespaces does not name it" in ignored.text(["green/c"])
    assert "in blue, tenant are ignored: the setting machine_namespaces does not name them" in ignored.text(["blue/c"])
    for number in range(100):
        ignored.drop(f"MachineHealthCheck/tenant/{number}")
        ignored.drop("never there")
    assert (ignored.version, ignored.text([])) == (3, "")


def test_of_many_a_few_are_named() -> None:
    fleet = [a_node(f"n{number}", system_uuid="one-for-all") for number in range(9)]
    assert "as n1, n2, n3 and 5 more:" in told(*fleet)


def test_nodes_that_say_nothing_of_themselves_are_no_twins() -> None:
    silent = [a_node(name, provider_id="", system_uuid="", boot_id="") for name in "ab"]
    assert told(*silent) == ""
    assert claimed_otherwise(silent[0], [MachineView(api=OPENSHIFT, namespace="ns", name="m", node_name="b")]) == ""


@pytest.mark.parametrize("api", [OPENSHIFT, CLUSTER_API])
@pytest.mark.parametrize(
    ("name", "node_name", "belongs"),
    [
        ("machine/ns/m-1", "", True),
        ("machine/ns/m-1", "node-1", False),
        ("machine/ns/m-2", "", False),
        ("node-1", "node-1", True),
    ],
)
def test_a_machine_that_never_had_a_node_is_the_target_of_its_own_name(
    api: MachineApi, name: str, node_name: str, *, belongs: bool
) -> None:
    """S9: one that has a Node goes by that, whose health is looked at."""
    machine = MachineView(api=api, namespace="ns", name="m-1", uid="u", node_name=node_name)
    assert is_machine_of(machine, name, None) is belongs


AZURE = "azure:///subscriptions/S/resourceGroups/Group/providers/Microsoft.Compute/virtualMachines/vm-1"


@pytest.mark.parametrize(
    ("api", "machine", "node", "another"),
    [
        (CLUSTER_API, "metal3://server-1", "metal3://server-2", True),
        (OPENSHIFT, "aws:///eu-west-1a/i-1", "aws:///eu-west-1a/i-2", True),
        (CLUSTER_API, "gce://p/zone-a/n1", "gce://p/zone-b/n1", True),
        (OPENSHIFT, AZURE, AZURE.lower(), False),
        # As machine-controller-manager and the cloud's own controller spell one instance.
        (MCM, "aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-1", False),
        (MCM, "azure:///westeurope/vm-1", AZURE, False),
        (MCM, "aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-2", True),
        (OPENSHIFT, "", "aws:///eu-west-1a/i-2", False),
        (OPENSHIFT, "aws:///eu-west-1a/i-1", "", False),
    ],
)
def test_a_machine_whose_provider_id_differs_is_not_that_nodes(
    api: MachineApi, machine: str, node: str, *, another: bool
) -> None:
    """S9: both name n1; the name went to the next machine."""
    old = MachineView(api=api, namespace="ns", name="old", node_name="n1", provider_id=machine)
    seen = a_node("n1", provider_id=node)
    assert (is_machine_of(old, "n1", seen), bool(taken_name(old, seen))) == (not another, another)


# Groups of nodes: to which a node belongs, and counts that stay right whatever happens to it.


@pytest.mark.parametrize(
    ("scope", "labels", "group"),
    [
        ("cluster", {}, "cluster"),
        ("zone", {ZONE_LABEL: "b"}, "zone=b"),
        ("zone", {}, "zone="),
        ("pool", {"eks.amazonaws.com/nodegroup": "big"}, "pool=big"),
        ("pool", {}, "pool="),
        (RACK, {RACK: "r1"}, f"{RACK}=r1"),
        (RACK, {"rack": "r1"}, f"{RACK}="),
    ],
)
def test_a_node_belongs_to_one_group_of_every_scope(scope: str, labels: dict[str, str], group: str) -> None:
    """Nodes without the label are one group: a misspelt key holds back too much, never too little."""
    assert group_of(scope, a_node(labels=labels)) == group


def test_a_scope_is_a_word_or_the_key_of_a_label() -> None:
    assert all(map(is_scope, ("rack", RACK, "zone")))
    assert not any(map(is_scope, ("", "a b", "rack=1", "/rack", "-r")))


def test_groups_are_called_as_people_would() -> None:
    assert [group_phrase(group) for group in (CLUSTER, "zone=a", "rack=")] == ["the cluster", "zone=a", "the nodes without rack"]


LOST = Condition(type="StorageUnreachable", status="True")
states = st.builds(
    in_rack, st.sampled_from(["a", "b", "c"]), st.sampled_from([None, "r1", "r2"]), st.sampled_from(["True", "False", "Unknown"])
)
changes = st.lists(st.tuples(states, st.booleans(), st.booleans()), max_size=20)


@settings(max_examples=150, deadline=None)
@given(changes=changes, recount_at=st.integers(0, 20))
def test_the_counts_are_always_those_of_a_recount(changes: list[tuple[NodeView, bool, bool]], recount_at: int) -> None:
    tally, nodes = GroupTally(), dict[str, NodeView]()
    for step, (state, gone, lost) in enumerate(changes):
        before = nodes.pop(state.name, None)
        after = None
        if not gone:
            conditions = (*state.conditions, LOST) if lost else state.conditions
            after = nodes[state.name] = a_node(state.name, labels=state.labels, conditions=conditions)
        tally.move(before, after)
        if step == recount_at:
            tally.count_by([RACK], ["StorageUnreachable"], nodes.values())
    tally.count_by([RACK], ["StorageUnreachable"], nodes.values())
    fresh = GroupTally()
    fresh.count_by([RACK], ["StorageUnreachable"], nodes.values())
    assert tally.all() == fresh.all()
    assert tally.of(CLUSTER).nodes == len(nodes)
    for group in {group_of(RACK, node) for node in nodes.values()}:
        mine = [node for node in nodes.values() if group_of(RACK, node) == group]
        assert tally.of(group) == GroupCount(
            group=group,
            nodes=len(mine),
            unresponsive=sum(not node.ready for node in mine),
            without_storage=sum(LOST in node.conditions for node in mine),
        )


def test_a_change_that_moves_no_count_is_no_news() -> None:
    tally = GroupTally()
    node = in_rack("a", "r1")
    tally.move(None, node)
    version = tally.version
    tally.move(node, in_rack("a", "r1", age=7))
    assert tally.version == version
    tally.move(node, in_rack("a", "r1", "Unknown"))
    assert tally.version > version
    assert tally.of(CLUSTER).percent == 100
