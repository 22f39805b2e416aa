"""Which Node and which Machine belong together, by what each of them says; for a scan and for a live read alike.

A Machine's Node is the one that it names. While it names none, it is the one Node that says by annotation that it is the
Machine's, or that has its providerID: of several nobody knows which (S9). A Node's annotation alone never makes a Machine its own
that names another Node. Whoever has many of both ties them by claims and answers (`policy/checks/inventory.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice

from policy.objects.machines import MachineView, machine_key
from policy.objects.nodes import NodeView
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT, MachineApi
from policy.values.system_uuids import tells_nothing

OPENSHIFT_MACHINE_ANNOTATION = "machine.openshift.io/machine"
CAPI_MACHINE_ANNOTATION = "cluster.x-k8s.io/machine"
"""By these a Node says whose it is: `<namespace>/<name>`, or a name in the namespace of the annotation below."""

MOST_NAMED = 3
"""Of those who have one identity."""

CLUSTER_NAME_ANNOTATION = "cluster.x-k8s.io/cluster-name"
CLUSTER_NAMESPACE_ANNOTATION = "cluster.x-k8s.io/cluster-namespace"
"""By these Cluster API says on a Node to which of its Clusters the Node belongs."""


def named_by(node: NodeView) -> list[tuple[MachineApi, str, str]]:
    """The Machines that the Node says are its own, each by API, namespace and name."""
    annotations = node.annotations
    found = [(OPENSHIFT, *annotations.get(OPENSHIFT_MACHINE_ANNOTATION, "").partition("/")[::2])]
    found += [(CLUSTER_API, annotations.get(CLUSTER_NAMESPACE_ANNOTATION, ""), annotations.get(CAPI_MACHINE_ANNOTATION, ""))]
    return [(api, namespace, name) for api, namespace, name in found if namespace and name]


def machine_behind(provider_id: str) -> str:
    """One spelling of a providerID, to compare it: in any case of its letters, and of EC2 and OpenStack by the id of the instance
    alone, whatever zone or region stands before it (S39)."""
    cloud, _, place = provider_id.casefold().partition(":")
    return f"{cloud}:{place.rpartition('/')[2] if cloud in {'aws', 'openstack'} else place}" if provider_id else ""


def claims_of(machine: MachineView) -> tuple[str, ...]:
    """How a Machine calls its Node, the surest way first. One that names its Node means that one and no other."""
    if machine.node_name:
        return (f"node/{machine.node_name}",)
    whose = f"machine/{machine.key}"
    return (whose, f"provider/{machine_behind(machine.provider_id)}") if machine.provider_id else (whose,)


def answers_of(node: NodeView | None) -> set[str]:
    """The claims that a Node answers to."""
    if node is None:
        return set()
    answers = {f"node/{node.name}", *(f"machine/{machine_key(*named)}" for named in named_by(node))}
    return answers | identities_of(node).keys()


def is_machine_of(machine: MachineView, name: str, node: NodeView | None) -> bool:
    """Whether that Machine is the target of that name, or the Machine of the Node that is. One that has never had a Node goes by
    its own name, in whatever API. node: of that name, None where it is gone."""
    if not machine.node_name and name == f"machine/{machine.namespace}/{machine.name}":
        return True
    claims = set(claims_of(machine))
    if node is None:
        return f"node/{name}" in claims
    return bool(claims & answers_of(node)) and may_be_its_node(machine, node)


def identities_of(node: NodeView | None) -> dict[str, str]:
    """What only one machine can have, each by a key and in words. A kubelet says all of it of itself when it registers."""
    if node is None:
        return {}
    found = {}
    if node.provider_id:
        found[f"provider/{machine_behind(node.provider_id)}"] = f"providerID {node.provider_id}"
    uuid = node.system_uuid.casefold()
    if uuid and not tells_nothing(uuid):
        found[f"system/{uuid}"] = f"system UUID {node.system_uuid}"
    if node.boot_id:
        found[f"boot/{node.boot_id}"] = f"boot id {node.boot_id}"
    return found


def contested(node: NodeView, having: Callable[[str], Collection[str]]) -> str:
    """Who else says that he is this machine, in words; "" for nobody (S39). having: the names of the Nodes that have an identity,
    by its key."""
    for key, words in identities_of(node).items():
        names = having(key)
        some = list(islice((name for name in names if name != node.name), MOST_NAMED))
        if some:
            more = len(names) - len(some) - (node.name in names)
            told = ", ".join(some) + (f" and {more} more" if more else "")
            return f"Node/{node.name} has the same {words} as {told}: find out which of them is that machine"
    return ""


def claimed_otherwise(node: NodeView, machines: Iterable[MachineView]) -> str:
    """Which Machine has the Node's providerID and another Node, or says none and names this Node beside the Machine that has it,
    in words; "" for none (S39). One that names no Node may be its own."""
    ours, find_out = machine_behind(node.provider_id), "find out which of them is that machine"
    known = [each for each in machines if of_one_cluster(each, node)] if ours else []
    same = [each for each in known if machine_behind(each.provider_id) == ours]
    for machine in same:
        if machine.node_name not in {"", node.name}:
            told = f"the same providerID {node.provider_id} as Machine/{machine.namespace}/{machine.name}"
            return f"Node/{node.name} has {told} of Node/{machine.node_name}: {find_out}"
    own = {each.api for each in same if each.node_name == node.name}
    for machine in known:
        if machine.node_name == node.name and not machine.provider_id and machine.api in own:
            told = f"is named by Machine/{machine.namespace}/{machine.name}, which says no providerID"
            return f"Node/{node.name} {told}, and by the Machine that has its: {find_out}"
    return ""


def cluster_of(machine: MachineView) -> str:
    """Namespace and name of the Cluster API Cluster that a Machine is of, "" where it is of none."""
    return f"{machine.namespace}/{machine.cluster_name}" if machine.api is CLUSTER_API else ""


def cluster_named_by(node: NodeView | None) -> str:
    """The same of a Node, as Cluster API says it there."""
    if node is None:
        return ""
    name, namespace = node.annotations.get(CLUSTER_NAME_ANNOTATION), node.annotations.get(CLUSTER_NAMESPACE_ANNOTATION)
    return f"{namespace}/{name}" if name and namespace else ""


def clusters_of(node: NodeView | None, machines: Iterable[MachineView]) -> tuple[str, ...]:
    """The Clusters that the Node says it is of, or one of its Machines: namespace and name of each."""
    named = (cluster_named_by(node), *(cluster_of(each) for each in machines if each.cluster_name))
    return tuple(dict.fromkeys(filter(None, named)))


def of_one_cluster(machine: MachineView, node: NodeView | None) -> bool:
    """Whether a Node of the right name may be the Machine's: names repeat between workload clusters."""
    if node is None:
        return False
    says = cluster_named_by(node)
    return not says or machine.api is not CLUSTER_API or says == cluster_of(machine)


def taken_name(machine: MachineView, node: NodeView | None) -> str:
    """How the Node is another machine than the Machine that names it, by both providerIDs; "" where they agree, or one is unknown
    (S9). machine-controller-manager spells regions and accounts its own way: of its Machines only the last part is compared."""
    if node is None or not machine.provider_id or not node.provider_id:
        return ""
    ours, theirs = machine_behind(machine.provider_id), machine_behind(node.provider_id)
    if ours == theirs or (machine.api is MCM and ours.rpartition("/")[2] == theirs.rpartition("/")[2]):
        return ""
    told = f"Node/{node.name} has the providerID {node.provider_id}, Machine/{machine.namespace}/{machine.name}"
    return f"{told} has {machine.provider_id}: the name is another machine's by now"


def may_be_its_node(machine: MachineView, node: NodeView | None) -> bool:
    """Whether nothing speaks against it that a Node of the right name, or with the right claims, is the Machine's."""
    return of_one_cluster(machine, node) and not taken_name(machine, node)


def of_control_plane(node: NodeView | None, machine: MachineView | None) -> bool:
    """Whether either says that it is a member of the control plane (S15)."""
    return (machine is not None and machine.control_plane) or (node is not None and node.control_plane)
