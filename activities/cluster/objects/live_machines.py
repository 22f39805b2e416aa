"""The health check of an episode, and the Machines of its node, read live for a last look.

A Node says by annotation which Machine is its own; where it does not, or where that one gives no reason to act, the check's
namespace is listed, since a scan judges every Machine that refers to the node. Those that no check of Machines asks for and no
Node names `live/claims.py` adds. A Machine's own `nodeRef` has the last word: an
annotation alone never makes a Machine a Node's. One without a `nodeRef` is tied as `policy/checks/inventory.py` ties it for a
scan.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.paths import (
    CAPI_CLUSTERS,
    CONFIG_MAPS,
    MACHINES,
    NODE_HEALTH_CHECKS,
    NODES,
    Resource,
    in_version,
    ref_of,
    versions_of,
)
from activities.cluster.api.refusals import unless_gone
from activities.cluster.api.served_cluster import as_served
from activities.cluster.objects.decoding import NODE_DECODING, Decoding, decode_node
from activities.cluster.objects.machines_decoding import CLUSTER_DECODING, machine_decoding, read_machine
from activities.cluster.objects.object_reader import ApiReader, Readers, list_counting
from activities.errors import ErrorType, failure
from policy.checks.health_check import HealthCheck
from policy.checks.inventory import Inventory
from policy.checks.verdict import MACHINE, JudgedTarget
from policy.dialects import parse
from policy.episode.messages import Need
from policy.objects.machines import MachineView, WorkloadCluster, clusters_of, counted_in, may_be_its_node, named_by, uncounted
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError
from policy.values.machine_apis import MACHINE_APIS, MCM, MachineApi, machine_api
from policy.values.object_refs import Dialect, ObjectRef

PLURALS = {
    "NodeHealthCheck": NODE_HEALTH_CHECKS.plural,
    "MachineHealthCheck": "machinehealthchecks",
    CONFIG_MAPS.kind: CONFIG_MAPS.plural,
}

LONGEST_LABEL = 63
"""As the API server takes it."""

OF_NODES = (NODE_HEALTH_CHECKS.kind, CONFIG_MAPS.kind)
"""The kinds of health checks that know no Machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMachine:
    """A Machine as just read: what decisions use, and the whole object, since an edit must know what a view leaves out."""

    ref: ObjectRef
    view: MachineView
    document: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a check judges beside the Node. machines: those of the node; where no check of Machines asks, the one that the Node
    names, or those that refer to it, which are not judged then. whole: there are no others, False where only that one was asked
    for. pause: see `pause_of`, None where it was not asked for."""

    of_machines: bool = False
    machines: tuple[MachineView, ...] = ()
    whole: bool = True
    cluster: WorkloadCluster | None = None
    pause: str | None = None

    def targets(self, node: NodeView | None) -> list[JudgedTarget]:
        """The targets as they are now; a Node of that name in another cluster is none of them."""
        if not self.of_machines:
            return [JudgedTarget(node.name, node=node)] if node is not None else []
        found = []
        for machine in self.machines_of(node):
            target = JudgedTarget(machine.key, node=node, machine=machine)
            target.cluster = self.cluster
            found.append(target)
        return found

    def machines_of(self, node: NodeView | None) -> list[MachineView]:
        """Without those that have a Node of that name in another cluster, or where it is another machine's (S9), or that do not
        count (S46)."""
        if node is None:
            return [machine for machine in self.machines if not machine.uncounted]
        return [machine for machine in self.machines if may_be_its_node(machine, node)]


def api_of(ref: ObjectRef) -> MachineApi:
    """Of which API a Machine is. Errors: InvalidConfig for what is no Machine."""
    api = machine_api(ref.api_version)
    if ref.kind != "Machine" or api is None or not ref.api_version.partition("/")[2]:
        expected = ", ".join(sorted(each.group for each in MACHINE_APIS))
        raise failure(ErrorType.INVALID_CONFIG, f"{ref.key}: expected a Machine of {expected}")
    return api


def resource_of(ref: ObjectRef) -> Resource:
    """The kind of a Machine, by its group and in its version. Errors: InvalidConfig for what is no Machine."""
    return in_version(MACHINES[api_of(ref)], ref.api_version.partition("/")[2])


async def find_machine(connections: Readers, ref: ObjectRef) -> LiveMachine | None:
    """That Machine as it is now, None where there is none of that name. Errors: InvalidConfig for what is no Machine."""
    path = resource_of(ref).path(ref.name, namespace=ref.namespace)
    document = await unless_gone(connections.of(ref.api_version).get(path))
    return _live(connections, ref, document) if document is not None else None


def _live(connections: Readers, ref: ObjectRef, document: JsonObject) -> LiveMachine:
    try:
        view = counted_in(connections.machine_namespaces, read_machine(document, api_of(ref)))
        return LiveMachine(ref=ref, view=view, document=document)
    except msgspec.MsgspecError as error:
        raise failure(ErrorType.INVALID_CONFIG, f"{ref.key}: {error}") from error


def require_counted(machine: LiveMachine, node: NodeView | None) -> None:
    """Refuse one that does not count, but for that of a Node which names it as well: any client of Temporal may name any Machine
    in what an episode begins with (S46). Raises InvalidConfig."""
    if machine.view.uncounted and not may_be_its_node(machine.view, node):
        raise failure(ErrorType.INVALID_CONFIG, f"{machine.ref.key}: {machine.view.uncounted}")


async def find_check(connections: Readers, need: Need | None) -> JsonObject | None:
    """The need's health check as it is now, None where it was deleted, or does not count (S46), or none is asked for."""
    if need is None:
        return None
    if need.check is None:
        raise failure(ErrorType.INVALID_CONFIG, "the need is a health check's, but names none")
    check, connection = need.check, connections.of(need.check.api_version)
    if uncounted(check, connections.machine_namespaces):
        return None
    return await as_served(_resource(check), lambda version: connection.get(version.path(check.name, namespace=check.namespace)))


async def read_subject(connections: Readers, need: Need | None, node: str, *, whole: bool = False) -> Subject:
    """The Machines of the node, for a check of Machines; for all else the one that the Node names. whole: all of them, though the
    Node names one."""
    if need is None or need.check is None or need.check.kind in OF_NODES:
        if node.startswith(MACHINE):
            return Subject(machines=await _named_alone(connections, node))
        view = await _node(connections, node)
        # What people, or those who take it away, say on the Machine holds whatever calls for the act.
        named = [each.view for each in await _named(connections, view) if each.view.node_name in {"", node}] if view else []
        named = [each for each in named if may_be_its_node(each, view)]
        if named:
            return Subject(machines=(named[0],))
        return Subject(machines=tuple(each.view for each in await _labelled(connections, node)))
    document = await find_check(connections, need)
    if document is None:
        return Subject(of_machines=True)
    try:
        check = parse(document)
    except PolicyError:
        return Subject(of_machines=True)  # the look says what is wrong with it
    if node.startswith(MACHINE):
        return await _alone(connections, check, node.removeprefix(MACHINE))
    view = None if whole else await _node(connections, node)
    machine = await _named_by_the_node(connections, check, view) if view is not None else None
    machines = (machine,) if machine is not None else tuple((await machines_by_node(connections, check)).get(node, ()))
    cluster = await cluster_of(connections, check) if check.dialect is Dialect.CLUSTER_API else None
    return Subject(of_machines=True, machines=machines, whole=machine is None, cluster=cluster)


async def _node(connections: Readers, name: str) -> NodeView | None:
    body = await unless_gone(connections.nodes.get_bytes(NODES.path(name)))
    return decode_node(body) if body is not None else None


async def _alone(connections: Readers, check: HealthCheck, name: str) -> Subject:
    """A Machine that has no Node, by its own name. One that has got a Node meanwhile is a case of that Node's, also where only a
    scan would tie them."""
    namespace, _, own = name.partition("/")
    cluster = await cluster_of(connections, check) if check.dialect is Dialect.CLUSTER_API else None
    machine = await find_machine(connections, check.machine_ref(namespace, own))
    alone = Subject(of_machines=True, cluster=cluster)
    if machine is None or machine.view.node_name or not is_of_cluster(machine.view, check):
        return alone
    return alone if await node_of(connections, machine.view) else replace(alone, machines=(machine.view,))


async def _named_alone(connections: Readers, name: str) -> tuple[MachineView, ...]:
    """The Machine that a person has named, by itself: what it is a part of, and who keeps it, holds as if it had a Node (S15)."""
    machine = await machine_named(connections, name)
    if machine is not None and (node := machine.view.node_name or await node_of(connections, machine.view)):
        raise failure(ErrorType.TARGET_CHANGED, f"{machine.ref.key} has Node/{node}: that is what is to be named")
    return (machine.view,) if machine is not None else ()


async def _named_by_the_node(connections: Readers, check: HealthCheck, node: NodeView) -> MachineView | None:
    """The Machine that the Node says is its own, where that one refers to the Node as well."""
    for api, namespace, name in named_by(node):
        if api is not check.machine_api or namespace != check.ref.namespace:
            continue
        machine = await find_machine(connections, check.machine_ref(namespace, name))
        if machine is not None and machine.view.node_name == node.name and is_of_cluster(machine.view, check):
            return machine.view if may_be_its_node(machine.view, node) else None
    return None


async def machine_of(connections: Readers, node: NodeView) -> LiveMachine | None:
    """The Machine of that Node, None for a Node that belongs to none. Its own word is the last: an annotation of the Node alone
    never makes a Machine the Node's (S9). Errors: InvalidConfig where several claim it."""
    for machine in await _named(connections, node):
        if machine.view.node_name == node.name and may_be_its_node(machine.view, node):
            return machine
    found = [each for each in await _labelled(connections, node.name) if may_be_its_node(each.view, node)]
    # One that is being deleted gives way to its successor of the same name.
    chosen = [machine for machine in found if not machine.view.deleting] or found
    if len(chosen) > 1:
        names = ", ".join(sorted(f"{machine.ref.namespace}/{machine.ref.name}" for machine in chosen))
        problem = f"Node/{node.name}: several Machines say that it is theirs: {names}; expected one"
        raise failure(ErrorType.INVALID_CONFIG, problem)
    return chosen[0] if chosen else None


async def machine_named(connections: Readers, name: str) -> LiveMachine | None:
    """The Machine that a person may mean by `machine/<namespace>/<name>`, of whichever API; None where there is none. Errors:
    InvalidConfig for one that does not count: whether it has a Node is not known (S46)."""
    namespace, _, own = name.removeprefix(MACHINE).partition("/")
    if not (name.startswith(MACHINE) and namespace and own):
        return None
    for kind in (version for api in MACHINE_APIS for version in versions_of(MACHINES[api])):
        if (machine := await find_machine(connections, kind.ref(own, namespace))) is not None:
            require_counted(machine, None)
            return machine
    return None


async def find_target(connections: Readers, name: str) -> JudgedTarget | None:
    """A Node with its Machine, or a Machine named `machine/<namespace>/<name>`, as it is now; None where there is neither.
    Errors: InvalidConfig where several Machines claim the Node."""
    node = None if name.startswith(MACHINE) else await _node(connections, name)
    machine = await (machine_of(connections, node) if node is not None else machine_named(connections, name))
    if node is None and machine is None:
        return None
    return JudgedTarget(name, node=node, machine=machine.view if machine is not None else None)


async def _named(connections: Readers, node: NodeView) -> list[LiveMachine]:
    """Those that the Node says are its own, whatever they say themselves."""
    found = []
    for api, namespace, name in named_by(node):
        if (machine := await find_served(connections, api, namespace, name)) is not None:
            found.append(machine)
    return found


async def find_served(connections: Readers, api: MachineApi, namespace: str, name: str) -> LiveMachine | None:
    """That Machine as it is now, in whichever version of its API is served; None where there is none of that name."""
    for resource in versions_of(MACHINES[api]):
        if (machine := await find_machine(connections, resource.ref(name, namespace))) is not None:
            return machine
    return None


async def _labelled(connections: Readers, node: str) -> list[LiveMachine]:
    """Those of machine-controller-manager, which name their Node by a label, and count."""
    if len(node) > LONGEST_LABEL or connections.nodes.lacks(MACHINES[MCM]):
        return []  # no label can name it; or there is no such kind
    label = (MCM.node_label, node)
    listed = list_counting(connections.nodes, MACHINES[MCM], connections.machine_namespaces, label=label)
    # None where the kind is not installed.
    return [_live(connections, ref_of(document), document) for document in await unless_gone(listed) or []]


async def machines_by_node(connections: Readers, check: HealthCheck) -> Mapping[str, list[MachineView]]:
    """The Machines that the check may cover, by the names of their nodes, found as a scan finds them."""
    kind = check.machine_ref("", "")
    resource, decoding, pages = resource_of(kind), machine_decoding(api_of(kind)), connections.of(kind.api_version)
    listed = [
        item.value
        async for page in pages.list_pages(resource.path(namespace=check.ref.namespace))
        for item in decoding.items(page.body)
        if is_of_cluster(item.value, check)
    ]
    found: defaultdict[str, list[MachineView]] = defaultdict(list)
    for machine in listed:
        if machine.node_name:
            found[machine.node_name].append(machine)
    if unnamed := [machine for machine in listed if not machine.node_name]:
        for node, machine in await _tied(connections.nodes, unnamed):
            found[node].append(machine)
    return found


async def _tied(connection: ApiReader, unnamed: list[MachineView]) -> list[tuple[str, MachineView]]:
    """The nodes of Machines that name no Node. All Nodes are asked for: where several answer to one Machine, it is not known
    which one's it is (S9)."""
    inventory = Inventory(sees_all_nodes=False)
    async for page in connection.list_pages(NODES.path()):
        for item in NODE_DECODING.items(page.body):
            inventory.put_node(item.value)
    for machine in unnamed:
        inventory.put_machine(machine)
    return [(node, machine) for machine in unnamed if (node := inventory.machines[machine.key].node_name)]


async def node_of(connections: Readers, machine: MachineView) -> str:
    """The Node of that Machine that is there now, "" for none: the one that it names, else the one that a scan takes for its
    own."""
    if machine.node_name:
        return machine.node_name if await _node(connections, machine.node_name) is not None else ""
    return next((name for name, _ in await _tied(connections.nodes, [machine])), "")


async def machines_with(connections: Readers, uids: Collection[str]) -> tuple[MachineView, ...]:
    """Those with these uids, of whichever API, as they are now: for a Node that is gone, by which none can be found."""
    found = list[MachineView]()
    for api, resource in MACHINES.items():
        reader, decoding = connections.of(resource.api_version), machine_decoding(api)

        async def listed(version: Resource, reader: ApiReader = reader, decoding: Decoding[MachineView] = decoding) -> None:
            async for page in reader.list_pages(version.path()):
                found.extend(item.value for item in decoding.items(page.body) if item.value.uid in uids)

        await as_served(resource, listed)
    return tuple(found)


def is_of_cluster(machine: MachineView, check: HealthCheck) -> bool:
    """Whether the Machine is of the Cluster that the check names, where it names one."""
    return not check.cluster_name or machine.cluster_name == check.cluster_name


async def cluster_of(connections: Readers, check: HealthCheck) -> WorkloadCluster | None:
    return await read_cluster(connections.machines, f"{check.ref.namespace}/{check.cluster_name}")


async def read_cluster(reader: ApiReader, key: str) -> WorkloadCluster | None:
    """The Cluster API Cluster of that namespace and name; None where there is none, or the key names none."""
    namespace, _, name = key.partition("/")
    if not name:
        return None
    body = await as_served(CAPI_CLUSTERS, lambda version: reader.get_bytes(version.path(name, namespace=namespace)))
    return CLUSTER_DECODING.one(body).value if body is not None else None


async def pause_of(connections: Readers, node: NodeView | None, machines: Iterable[MachineView]) -> str:
    """Why the Cluster API Cluster of the Node or of one of its Machines is paused now, "" where none is."""
    for key in clusters_of(node, machines):
        cluster = await read_cluster(connections.machines, key)
        if cluster is not None and cluster.paused:
            return cluster.paused
    return ""


def _resource(ref: ObjectRef) -> Resource:
    plural = PLURALS.get(ref.kind)
    if plural is None:
        raise failure(ErrorType.NOT_SUPPORTED, f"{ref.key} of {ref.api_version} is no kind we judge by")
    return Resource(api_version=ref.api_version, kind=ref.kind, plural=plural, namespaced=bool(ref.namespace))
