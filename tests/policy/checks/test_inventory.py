"""Which objects belong together: a Machine and its Node, by reference, annotation or providerID."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policy.checks.inventory import ControlPlane, Inventory
from policy.objects.machines import MachineView, WorkloadCluster
from policy.objects.nodes import NodeView
from policy.values.machine_apis import CLUSTER_API
from policy.values.machine_apis import OPENSHIFT as OPENSHIFT_API
from tests.policy.builders import a_node

CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
OPENSHIFT = {"machine.openshift.io/machine": "machines/m"}
CAPI = {"cluster.x-k8s.io/machine": "m", "cluster.x-k8s.io/cluster-namespace": "machines", "cluster.x-k8s.io/cluster-name": "c"}


def a_machine(name: str = "m", **fields: Any) -> MachineView:
    values: dict[str, Any] = {"api": OPENSHIFT_API, "namespace": "machines", "cluster_name": "c"} | fields
    return MachineView(name=name, **values)


def filled(*objects: NodeView | MachineView, sees_all_nodes: bool = True) -> Inventory:
    inventory = Inventory(sees_all_nodes=sees_all_nodes)
    for each in objects:
        if isinstance(each, NodeView):
            inventory.put_node(each)
        else:
            inventory.put_machine(each)
    return inventory


def node_of(inventory: Inventory, machine: MachineView) -> str:
    target = inventory.machines[machine.key]
    return target.node.name if target.node is not None else ""


@pytest.mark.parametrize("machine_first", [True, False])
@pytest.mark.parametrize(
    ("machine", "nodes", "found"),
    [
        (a_machine(node_name="n"), [a_node("n")], "n"),
        (a_machine(node_name="gone"), [a_node("n", annotations=OPENSHIFT)], ""),
        (a_machine(), [a_node("n", annotations=OPENSHIFT)], "n"),
        (a_machine(), [a_node("n", annotations={"machine.openshift.io/machine": "others/m"})], ""),
        (a_machine(api=CLUSTER_API), [a_node("n", annotations=CAPI)], "n"),
        (a_machine(api=CLUSTER_API), [a_node("n", annotations=CAPI | {"cluster.x-k8s.io/cluster-name": "d"})], ""),
        (a_machine(provider_id="sim:///n"), [a_node("n")], "n"),
        (a_machine(provider_id="sim:///n"), [a_node("n"), a_node("o", provider_id="sim:///n")], ""),
        (a_machine(), [a_node("n", provider_id="")], ""),
        (a_machine(provider_id="sim:///o"), [a_node("n", annotations=OPENSHIFT), a_node("o")], "o"),
        (a_machine(provider_id="sim:///o", node_name="n"), [a_node("n"), a_node("o")], ""),
    ],
)
def test_a_machine_finds_its_node_by_reference_else_by_annotation_else_by_provider_id(
    *, machine: MachineView, nodes: list[NodeView], found: str, machine_first: bool
) -> None:
    """S9: a reference goes before everything, and of several Nodes none is taken."""
    objects = [machine, *nodes] if machine_first else [*nodes, machine]
    inventory = filled(*objects)
    assert node_of(inventory, machine) == found
    if found:
        assert list(inventory.machines_of) == [found]


def test_the_nodes_of_a_cluster_are_seen_once_one_of_them_says_so() -> None:
    """Else a management cluster's Machines would all seem to have lost their Nodes."""
    machine = a_machine(api=CLUSTER_API, node_name="n")
    inventory = filled(machine, a_node("other"), sees_all_nodes=False)
    assert "no Node here belongs to the Cluster machines/c" in inventory.machines[machine.key].unseen
    touched = inventory.put_node(a_node("other", annotations=CAPI))
    assert machine.key in {each.target.key for each in touched}
    assert inventory.machines[machine.key].unseen == ""
    inventory.remove_node("other")
    assert inventory.machines[machine.key].unseen


def test_a_control_plane_machine_whose_node_is_gone_is_a_member_that_is_lost() -> None:
    """S15: until its Node is back, or its Machine is gone too; never for a worker, one without a Node, or one that is unseen."""
    members = {"cp-1": a_machine("m1", node_name="cp-1", control_plane=True), "cp-2": a_machine("m2", control_plane=True)}
    inventory = filled(*members.values(), a_machine("w", node_name="w-1"), a_node("cp-1", labels=CONTROL_PLANE))
    assert inventory.control_plane == ControlPlane(members=1, ready=1)
    inventory.remove_node("cp-1")
    assert inventory.control_plane == ControlPlane(lost=("cp-1",))
    inventory.put_node(a_node("cp-1", labels=CONTROL_PLANE))
    assert inventory.control_plane.lost == ()
    inventory.remove_node("cp-1")
    inventory.remove_machine(members["cp-1"].key)
    assert inventory.control_plane == ControlPlane()
    elsewhere = a_machine("m3", api=CLUSTER_API, node_name="cp-3", control_plane=True)
    assert filled(elsewhere, sees_all_nodes=False).control_plane == ControlPlane()


def test_a_machine_whose_host_name_went_to_another_one_stands_for_itself() -> None:
    """S9, S15: it is no target of that Node, and as a member of a control plane one more than the Nodes."""
    old = a_machine("old", node_name="n", provider_id="sim:///server-1", control_plane=True)
    new = a_machine("new", node_name="n", provider_id="sim:///n", control_plane=True)
    inventory = filled(old, new, a_node("n", labels=CONTROL_PLANE))
    assert [*inventory.machines_of["n"]] == [new.key]
    target = inventory.machines[old.key]
    assert (target.node, target.victim, target.victim_name) == (None, old.key, "machine/machines/old")
    assert "Machine/machines/old has sim:///server-1: the name is another machine's by now" in target.unseen
    assert inventory.control_plane == ControlPlane(members=1, ready=1, lost=("old",))
    inventory.put_node(a_node("n", provider_id="sim:///server-1", labels=CONTROL_PLANE))
    assert ([*inventory.machines_of["n"]], target.unseen, inventory.control_plane.lost) == ([old.key], "", ("new",))


def test_a_cluster_touches_its_own_machines_only() -> None:
    machines = [a_machine("m", api=CLUSTER_API), a_machine("o", api=CLUSTER_API, cluster_name="d")]
    inventory = filled(*machines)
    cluster = WorkloadCluster(namespace="machines", name="c")
    assert [each.target.name for each in inventory.put_cluster(cluster) or ()] == ["m"]
    assert inventory.put_cluster(cluster) is None
    assert inventory.remove_cluster("machines/unknown") is None


def test_two_nodes_with_one_identity_are_both_contested_until_one_is_gone_or_says_something_else() -> None:
    """S39: it is told of both, and each change is another version of what is told."""
    inventory = filled(a_node("a"), a_node("b", provider_id="sim:///a"), a_node("c"))
    assert {each.about.name for each in inventory.strange} == {"a", "b"}
    assert [inventory.nodes[name].contested != "" for name in "abc"] == [True, True, False]
    versions = [inventory.strange.version]
    for change in (a_node("b"), a_node("b", provider_id="sim:///a")):
        touched = {each.target.key for each in inventory.put_node(change)}
        assert touched == {"a", "b"}
        versions.append(inventory.strange.version)
    inventory.remove_node("b")
    assert (list(inventory.strange), inventory.nodes["a"].contested) == ([], "")
    assert versions == sorted(set(versions))
    last = inventory.strange.version
    assert last > versions[-1]
    inventory.remove_node("c")
    assert inventory.strange.version == last


def test_each_of_several_nodes_with_one_identity_is_contested_until_it_is_the_last() -> None:
    """S39: in whichever order they go, and also where the last one comes and goes again."""
    inventory = filled(*(a_node(name, provider_id="sim:///one") for name in "abc"))
    for gone, left in (("b", "ac"), ("a", "c")):
        inventory.remove_node(gone)
        assert [inventory.nodes[name].contested != "" for name in left] == [len(left) > 1] * len(left)
    inventory.put_node(a_node("a", provider_id="sim:///one"))
    assert [inventory.nodes[name].contested != "" for name in "ac"] == [True, True]
    assert "Node/a" in inventory.nodes["a"].contested
    for name in "ac":
        inventory.remove_node(name)
    inventory.put_node(a_node("d", provider_id="sim:///one"))
    assert inventory.nodes["d"].contested == ""


def test_a_heartbeat_changes_no_verdict_and_keeps_the_version() -> None:
    """Every kubelet writes one every few minutes, whatever its Node says."""
    inventory = filled(a_node("n", resource_version="1"), a_machine(node_name="n", resource_version="1"))
    assert inventory.put_node(a_node("n", resource_version="2")) == []
    assert inventory.put_machine(a_machine(node_name="n", resource_version="2")) == []
    node, machine = inventory.nodes["n"].node, inventory.machines[a_machine().key].machine
    assert node is not None
    assert machine is not None
    assert (node.resource_version, machine.resource_version) == ("2", "2")


def test_a_fleet_with_one_number_costs_no_walk_for_each_of_its_nodes() -> None:
    """Firmware that nobody has given a UUID: all are told, and a change of one touches none of the others."""
    inventory = filled(*(a_node(f"n{number}", system_uuid="one-for-all") for number in range(40)))
    assert sum(1 for _ in inventory.strange) == 40
    touched = inventory.put_node(a_node("n7", "False", system_uuid="one-for-all"))
    assert {each.target.key for each in touched} == {"n7"}


@pytest.mark.parametrize("machine_first", [True, False])
@pytest.mark.parametrize("spelled", ["aws:///eu-west-1a/i-1", "aws:///eu-west-1/i-1"])
def test_a_node_with_the_provider_id_of_another_nodes_machine_is_contested_until_that_is_gone(
    spelled: str, *, machine_first: bool
) -> None:
    """S39: also where the Node that it copies is not there, or does not say its own."""
    machine = a_machine(provider_id="aws:///eu-west-1a/i-1", node_name="gone")
    node = a_node("n", provider_id=spelled)
    inventory = filled(*((machine, node) if machine_first else (node, machine)))
    assert "Machine/machines/m of Node/gone" in inventory.nodes["n"].contested
    assert [each.about.name for each in inventory.strange] == ["n"]
    touched = inventory.put_machine(replace(machine, node_name="n"))
    assert ({each.target.key for each in touched}, inventory.nodes["n"].contested) == ({machine.key, "n"}, "")
    inventory.put_machine(machine)
    _, touched = inventory.remove_machine(machine.key)
    assert ([each.target.key for each in touched], inventory.nodes["n"].contested) == (["n"], "")
