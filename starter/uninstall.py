"""What of ours is left, where, and what removes it: looked for side by side, printed for people and programs. Nothing is removed.

Where the account may not look, that is said and counts as left: something may be there. What people have written, such as a hold
or a preservation, is theirs.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.lease_view import (
    CLUSTER_LEASE,
    CLUSTER_LEASE_NAME,
    CLUSTER_LEASE_NAMESPACE,
    NODE_LEASE_NAMESPACE,
    is_nodewarden,
)
from activities.cluster.api.paths import LEASES, MACHINES, NAMESPACES, NODE_FENCES, NODES, PROPOSED_NODE_FENCES, Resource
from activities.cluster.api.refusals import unless_gone
from activities.cluster.api.served_cluster import Connections, as_served
from activities.cluster.report.nodefences import OURS as OUR_FENCES
from activities.contracts.search_attributes import literal
from policy.episode.messages import Kind, device_check_id, episode_id, scanner_id
from policy.episode.node_action import POLICY
from policy.objects.marks import digest_of, parse_mark
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL, OUR_TAINT, PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import (
    PRIORITY_ANNOTATION,
    PRIORITY_BEFORE,
    PRIORITY_OURS,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_OURS,
    TAINT,
)
from policy.preservation.requests import ISOLATE_ANNOTATION, PRESERVE_FOR_ANNOTATION
from policy.values.display_text import counted
from policy.values.errors import PolicyError
from starter.client import Nodewarden
from starter.deploy.admission import ANNOTATIONS, admission
from starter.deploy.admission import OURS as OURS_OF_NODES
from starter.deploy.features import ALL, ON_DEMAND, Feature, Process
from starter.deploy.rights import NAMESPACE, rbac
from starter.doctor import OURS, definition_name, served
from starter.errors import RequestError
from starter.handles.calls import ANSWER_WITHIN, answered
from workers.configuration.clusters import open_cluster
from workers.configuration.settings import Settings
from workers.errors import NamespaceMissingError, SettingsError, TemporalUnreachableError
from workers.temporal_namespace import existing_search_attributes, required_search_attributes

LOOK = "look again with an account that may, or once it answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """place: among which things it was found. what: which it is and where. remove: the command that removes it, or what a person
    does."""

    place: str = ""
    what: str
    remove: str


Look = Callable[[], Awaitable[list[Leftover]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UninstallAnswer:
    """All that is left of nodewarden, in the order in which it should go."""

    cluster: str
    left: tuple[Leftover, ...]


async def left_of(settings: Settings, cluster: str) -> dict[str, list[Leftover]]:
    """Everything of ours by its place: first what runs, then what it has left, then what it ran on."""
    async with AsyncExitStack() as stack:
        looks: dict[str, Look] = {}
        missing: dict[str, list[Leftover]] = {}
        try:
            warden = await stack.enter_async_context(Nodewarden.connect(settings))
            looks["open workflows"] = partial(workflows, warden, cluster)
        except (TemporalUnreachableError, NamespaceMissingError, SettingsError) as error:
            warden = None
            missing["Temporal"] = _unknown(error)
        if (known := settings.connections().get(cluster)) is None:
            missing["Kubernetes"] = _unknown(f"how the API of {cluster} is reached is not known here")
        else:
            connection, management = await stack.enter_async_context(open_cluster(cluster, known))
            looks |= {
                "Nodes": partial(nodes, connection),
                "Machines": partial(machines, connection, management),
                "NodeFences": partial(node_fences, connection),
                "Leases": partial(leases, connection),
                "admission policies": partial(policies, connection),
                "rights": partial(rights, connection),
                "definitions": partial(definitions, connection),
                "namespaces": partial(namespaces, connection),
            }
        if warden is not None:
            looks["search attributes"] = partial(search_attributes, warden)
        found = await asyncio.gather(*map(_look, looks.values()))
    return missing | dict(zip(looks, found, strict=True))


async def _look(look: Look) -> list[Leftover]:
    try:
        return await look()
    except ApplicationError as error:
        return _unknown(error.message)
    except (RequestError, SettingsError) as error:
        return _unknown(error)


def _unknown(why: object) -> list[Leftover]:
    return [Leftover(what=f"not looked at: {why}", remove=LOOK)]


def as_table(found: Mapping[str, Sequence[Leftover]]) -> RenderableType:
    """What is left at each place, and below it the command that removes it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for place, left in found.items():
        if not left:
            table.add_row(place, Text("nothing", style="green"))
        for number, each in enumerate(left):
            table.add_row(place if number == 0 else "", Text(f"{each.what}\n").append(f"> {each.remove}", style="dim"))
    return table


def as_model(cluster: str, found: Mapping[str, Sequence[Leftover]]) -> UninstallAnswer:
    return UninstallAnswer(
        cluster=cluster, left=tuple(replace(each, place=place) for place, left in found.items() for each in left)
    )


# In Temporal: workflows that run, and the search attributes of the namespace.

MOST = 1000


async def workflows(warden: Nodewarden, cluster: str) -> list[Leftover]:
    """Those of the cluster that run, the scanner first: it would begin more. Found by their ids, as the search attributes may be
    gone already."""
    scanner, check, episodes = scanner_id(cluster), device_check_id(cluster), episode_id(cluster, "")
    ours = f"(WorkflowId IN ({literal(scanner)}, {literal(check)}) OR WorkflowId STARTS_WITH {literal(episodes)})"
    with answered(f"workflows of {cluster}"):
        found = warden.client.list_workflows(f"ExecutionStatus = 'Running' AND {ours}", limit=MOST, rpc_timeout=ANSWER_WITHIN)
        runs = {run.id: run.workflow_type or "" async for run in found}
    left = list[Leftover]()
    beside = [f"{runs.pop(each)} {each}" for each in (check, scanner) if each in runs]
    if any(each.endswith(scanner) for each in beside):
        left.append(Leftover(what=", ".join(beside), remove=f"nodewarden scan stop -c {cluster} --reason uninstalled"))
    elif beside:  # it ends some seconds after its scanner, but only a worker can end it; it acts on nothing
        terminate = f"temporal workflow terminate -n {warden.client.namespace} --workflow-id {check}"
        left.append(Leftover(what=beside[0], remove=terminate))
    for run, kind in runs.items():
        node = run.removeprefix(episodes)
        command = "release" if kind == Kind.PRESERVATION else "abort"
        left.append(
            Leftover(what=f"{kind} {run}", remove=f"nodewarden {command} {shlex.quote(node)} -c {cluster} --reason uninstalled")
        )
    return left


async def search_attributes(warden: Nodewarden) -> list[Leftover]:
    """They are the namespace's: of all clusters that are looked after from it."""
    with answered("search attributes"):
        there = [name for name in required_search_attributes() if name in await existing_search_attributes(warden.client)]
    if not there:
        return []
    namespace = warden.client.namespace
    names = " ".join(f"--name {name}" for name in there)
    what = f"{', '.join(there)} in namespace {namespace!r}: of every cluster that is looked after from it"
    return [Leftover(what=what, remove=f"temporal operator search-attribute remove -n {namespace} {names} --yes")]


# In the cluster.

_PEOPLES = frozenset({PRESERVE_ANNOTATION, PRESERVE_FOR_ANNOTATION, ISOLATE_ANNOTATION})
"""People write these, too, and then they are theirs."""
_CLAIMED = {SCALE_DOWN_DISABLED: SCALE_DOWN_DISABLED_OURS, PRIORITY_ANNOTATION: PRIORITY_OURS}
"""Of these the other annotation says that we have written them."""
_WRITTEN = (*(each for each in ANNOTATIONS if each not in _PEOPLES), PRIORITY_ANNOTATION, PRIORITY_OURS, PRIORITY_BEFORE)
_PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
"""ServiceAccounts and Secrets go with their namespace."""
_OF_PEOPLE = tuple(
    {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}}
    for group, kind, name in (
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", POLICY),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", POLICY),
        ("rbac.authorization.k8s.io", "ClusterRole", "nodewarden-operator"),
        ("rbac.authorization.k8s.io", "ClusterRole", "nodewarden-viewer"),
        ("rbac.authorization.k8s.io", "ClusterRole", "nodewarden-page"),
    )
)
"""What `nodewarden deploy people` prints."""


async def nodes(connection: ClusterConnection) -> list[Leftover]:
    return [each for node in await connection.list_objects(NODES.path()) for each in _of_node(node)]


def _of_node(node: JsonObject) -> Iterator[Leftover]:
    name = str(node["metadata"]["name"])
    annotations, labels = _annotations(node), node["metadata"].get("labels") or {}
    mark = annotations.get(MARK_ANNOTATION)
    if mark is not None and labels.get(MARK_LABEL) == digest_of(mark):
        yield from _added(name, node, mark)
    if ours := _ours(annotations):
        yield _annotated(f"node/{name}", f"Node/{name}", ours)
    for label in OURS_OF_NODES["labels"]:
        if label in labels:
            yield Leftover(what=f"Node/{name}: label {label}", remove=f"kubectl label node {name} {label}-")
    if any(taint.get("key") == TAINT for taint in _taints(node)):
        yield Leftover(what=f"Node/{name}: taint {TAINT}", remove=f"kubectl taint node {name} {TAINT}-")


def _added(name: str, node: JsonObject, value: str) -> Iterator[Leftover]:
    """What our mark says that we have added: only with it is it known to be ours."""
    try:
        mark = parse_mark(value, node=name)
    except PolicyError as error:
        yield Leftover(what=f"Node/{name}: {error}", remove="check its cordon and its taints yourself")
        return
    if mark.cordoned and (node.get("spec") or {}).get("unschedulable"):
        yield Leftover(what=f"Node/{name}: cordoned by incident {mark.incident}", remove=f"kubectl uncordon {name}")
    keys = {taint.get("key") for taint in _taints(node)}
    ours = [str(OUR_TAINT.key)] if mark.out_of_service else []
    for key in (*ours, *(taint.partition("=")[0].partition(":")[0] for taint in mark.taints)):
        if key in keys:
            yield Leftover(
                what=f"Node/{name}: taint {key} of incident {mark.incident}", remove=f"kubectl taint node {name} {key}-"
            )


async def machines(connection: ClusterConnection, management: ClusterConnection | None) -> list[Leftover]:
    """Annotations on the Machines of every API that is served."""
    connections = Connections(nodes=connection, machines=management or connection)
    found = []
    for resource in MACHINES.values():
        holder = connections.of(resource.api_version)

        async def listed(version: Resource, holder: ClusterConnection = holder) -> list[JsonObject]:
            return await holder.list_objects(version.path())

        for machine in await as_served(resource, listed) or ():
            name, namespace = machine["metadata"]["name"], machine["metadata"]["namespace"]
            if ours := _ours(_annotations(machine)):
                kind = definition_name(resource)
                found.append(_annotated(f"-n {namespace} {kind}/{name}", f"Machine/{namespace}/{name}", ours))
    return found


async def node_fences(connection: ClusterConnection) -> list[Leftover]:
    """The objects that show fencings, if their kind is there."""
    found = []
    for kind in (NODE_FENCES, PROPOSED_NODE_FENCES):
        name = definition_name(kind)
        if fences := await unless_gone(connection.list_objects(kind.path(), query={"labelSelector": OUR_FENCES})):
            remove = f"kubectl delete {name} -l {OUR_FENCES}"
            found.append(Leftover(what=f"{counted(len(fences), 'NodeFence')} ({name})", remove=remove))
    return found


async def leases(connection: ClusterConnection) -> list[Leftover]:
    """The cluster Lease, and node leases that we hold. Those of others are theirs."""
    found = []
    if await _exists(connection, CLUSTER_LEASE):
        where = f"-n {CLUSTER_LEASE_NAMESPACE} {CLUSTER_LEASE_NAME}"
        what = f"Lease/{CLUSTER_LEASE_NAMESPACE}/{CLUSTER_LEASE_NAME}"
        found.append(Leftover(what=what, remove=f"kubectl delete lease {where}"))
    for lease in await connection.list_objects(LEASES.path(namespace=NODE_LEASE_NAMESPACE)):
        if is_nodewarden(str((lease.get("spec") or {}).get("holderIdentity"))):
            name = lease["metadata"]["name"]
            remove = f"kubectl delete lease -n {NODE_LEASE_NAMESPACE} {name}"
            found.append(Leftover(what=f"Lease/{NODE_LEASE_NAMESPACE}/{name}", remove=remove))
    return found


async def policies(connection: ClusterConnection) -> list[Leftover]:
    """Our admission policies, and what deploy/people.yaml brings beside its own."""
    return [
        *await _printed(connection, admission(), "nodewarden deploy admission | kubectl delete --ignore-not-found -f -"),
        *await _printed(connection, _OF_PEOPLE, "nodewarden deploy people | kubectl delete --ignore-not-found -f -"),
    ]


async def rights(connection: ClusterConnection) -> list[Leftover]:
    """Roles and bindings of every feature, for one account and for one of each process."""
    everything = frozenset(Feature)
    split = [each for each in Process if each is not Process.ALL]
    features = ",".join((ALL, *sorted(ON_DEMAND)))
    remove = f"nodewarden deploy rbac --features {features}{{}} | kubectl delete --ignore-not-found -f -"
    return [
        *await _printed(connection, rbac(features=everything), remove.format("")),
        *await _printed(
            connection, rbac(features=everything, processes=split), remove.format(" --roles cluster,power,workflows")
        ),
    ]


async def definitions(connection: ClusterConnection) -> list[Leftover]:
    """Our kinds. Their objects go with them, also those that people have written."""
    there, found = await served(connection), []
    for resource in OURS:
        if (name := definition_name(resource)) in there:
            objects = await connection.list_objects(resource.path())
            what = f"{name}, with {counted(len(objects), 'object')}"
            found.append(Leftover(what=what, remove=f"kubectl delete crd {name}"))
    return found


async def namespaces(connection: ClusterConnection) -> list[Leftover]:
    """Ours. That of the node leases may be medik8s' own and is not ours to name."""
    if not await _exists(connection, NAMESPACES.path(NAMESPACE)):
        return []
    what = f"Namespace/{NAMESPACE}, with the accounts, keys and credentials in it"
    return [Leftover(what=what, remove=f"kubectl delete namespace {NAMESPACE}")]


async def _printed(connection: ClusterConnection, documents: Iterable[Mapping[str, Any]], remove: str) -> list[Leftover]:
    """One line for what one command removes."""
    there = []
    for each in documents:
        kind, metadata = str(each["kind"]), each["metadata"]
        if kind not in _PLURALS:
            continue
        namespace = str(metadata.get("namespace") or "")
        resource = Resource(api_version=str(each["apiVersion"]), kind=kind, plural=_PLURALS[kind], namespaced=bool(namespace))
        if await _exists(connection, resource.path(metadata["name"], namespace=namespace)):
            there.append("/".join(filter(None, (kind, namespace, metadata["name"]))))
    return [Leftover(what=", ".join(there), remove=remove)] if there else []


async def _exists(connection: ClusterConnection, path: str) -> bool:
    return await unless_gone(connection.get(path)) is not None


def _annotated(target: str, what: str, keys: list[str]) -> Leftover:
    return Leftover(what=f"{what}: {', '.join(keys)}", remove=f"kubectl annotate {target} {' '.join(f'{key}-' for key in keys)}")


def _ours(annotations: Mapping[str, str]) -> list[str]:
    return [key for key in _WRITTEN if key in annotations and _CLAIMED.get(key, key) in annotations]


def _annotations(obj: JsonObject) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def _taints(node: JsonObject) -> list[JsonObject]:
    return (node.get("spec") or {}).get("taints") or []
