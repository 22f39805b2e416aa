"""One machine read live for the question whether it is kept: its Machine, its Node, the deployment and the pool it belongs to.

Reading only; what follows from it is `policy/preservation`, what is written `acts/preservation.py`. Machines live where Cluster
API's objects do when that is another API server than the nodes'.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import msgspec
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import (
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    NODES,
    PRESERVATION_POLICIES,
    Resource,
    deployments_above,
    ref_of,
    set_of,
)
from activities.cluster.api.refusals import ObjectNotFound, unless_gone
from activities.cluster.api.served_cluster import Connections, as_served
from activities.cluster.live.plans import readable_checks
from activities.cluster.objects.decoding import NODE_DECODING
from activities.cluster.objects.live_machines import (
    LiveMachine,
    Subject,
    api_of,
    cluster_of,
    find_machine,
    is_of_cluster,
    machine_of,
    machines_by_node,
    require_counted,
    resource_of,
)
from activities.cluster.objects.live_node import LiveNode, find_node
from activities.cluster.objects.machines_decoding import WireSet, counting_machines, deployment_of, read_machine
from activities.cluster.objects.object_reader import Readers, list_counting, read_views, reading_once
from activities.errors import ErrorType, failure
from policy.checks.health_check import HealthCheck
from policy.checks.rules import rules_of
from policy.checks.verdict import HEALTHY, Health
from policy.episode.proofs import CLOCK_TOLERANCE
from policy.objects.machines import MachineView, counted_in, taken_name
from policy.objects.nodes import NodeView
from policy.preservation.keep_or_release import Automatic, Overridden, Override, WantedReplicas, overridden_by
from policy.preservation.machine_snapshot import EXPIRY_ANNOTATION, Held, MachinePhase
from policy.preservation.pool_cap import (
    DeploymentPool,
    deployment_name,
    is_automatic,
    key_of_controller,
    labels_of,
    survey,
    until_well,
)
from policy.preservation.requests import DEFAULT_TIMEOUT, Pool, read_policy
from policy.values.errors import PolicyError
from policy.values.machine_apis import MACHINE_APIS, MCM
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.times import moment_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservedMachine:
    """As just read. `held` None: there is neither Machine nor Node. problem: why the pools are not all known. only_called:
    it has failed by the word of a health check alone."""

    held: Held | None
    node: LiveNode | None = None
    machine: JsonObject | None = None
    owner: str = ""
    timeout: timedelta = DEFAULT_TIMEOUT
    problem: str = ""
    only_called: bool = False

    def called(self, unhealthy: str) -> PreservedMachine:
        """The same machine as a health check sees it, where nothing else calls it failed."""
        held = self.held
        if not unhealthy or held is None or held.failed:
            return self
        return replace(self, held=replace(held, failed=unhealthy, phase=MachinePhase.FAILED), only_called=True)

    @property
    def machine_uid(self) -> str:
        """Of the Machine object, "" where there is none."""
        return str(self.machine["metadata"].get("uid", "")) if self.machine is not None else ""

    @property
    def view(self) -> NodeView | None:
        return self.node.view if self.node is not None else None

    @property
    def node_uid(self) -> str:
        """Of the Node object, "" where there is none."""
        return self.node.view.uid if self.node is not None else ""


class PreservedMachineReader:
    def __init__(self, connections: Connections[ClusterConnection], *, pools: Iterable[Pool] = ()) -> None:
        """pools: those of the settings, each of which holds as long as no object of its name does."""
        self._given = tuple(pools)
        self._nodes = connections.nodes
        self._connections = connections

    def connection_of(self, ref: ObjectRef) -> ClusterConnection:
        """Where a Machine of that group is read and written."""
        return self._connections.of(ref.api_version)

    def path_of(self, ref: ObjectRef, *, subresource: str = "") -> str:
        return resource_of(ref).path(ref.name, namespace=ref.namespace, subresource=subresource)

    async def look(self, node: str, machine: ObjectRef | None, *, unhealthy: str = "") -> PreservedMachine:
        """Machine first, Node last: the Node's word is the one that beats, so that it is the freshest.

        machine: None where it is not known yet; then it is found by its Node.
        """
        read = await (find_machine(self._connections, machine) if machine is not None else self._machine_of(node))
        found, deployment = (read.view if read is not None else None), None
        if read is not None and found is not None:
            if found.preservation_problem:
                raise failure(ErrorType.INVALID_CONFIG, f"{read.ref.key}: {found.preservation_problem}")
            deployment = await self._deployment(read.ref, found)
        pools, problem = await self._pools()
        name = (found.node_name if found is not None else "") or node
        live = await find_node(self._nodes, name) if name else None
        if live is not None and found is not None and taken_name(found, live.view):
            live = None
        if machine is not None and read is not None:
            require_counted(read, live.view if live is not None else None)
        held = _held(found, live.view if live is not None else None)
        if held is None:
            return PreservedMachine(held=None)
        if deployment is not None and not held.deployment:
            held = replace(held, deployment=deployment.name)
        labels = labels_of(held, deployment)
        pool = next((each for each in pools if each.matches(labels)), None)
        if pool is not None and pool.isolate:
            held = replace(held, pool_isolates=True)
        own = deployment.timeout if deployment is not None else None
        return PreservedMachine(
            held=held,
            node=live,
            machine=read.document if read is not None else None,
            owner=found.controller if found is not None else "",
            timeout=pool.timeout if pool is not None else own or DEFAULT_TIMEOUT,
            problem=problem,
        ).called(unhealthy)

    async def as_called(self, sight: PreservedMachine, now: datetime) -> PreservedMachine:
        """As the health checks see it now: that one calls it unhealthy only the request says, which any caller can make (S42)."""
        held, machine = sight.held, sight.machine
        if held is None or held.failed:
            return sight
        view = read_machine(machine, api_of(ref_of(machine))) if machine is not None else None
        called, _ = await called_unhealthy(self._connections, held, view, now)
        return sight.called(called) if called else sight

    async def overridden(self, machine: ObjectRef | None, owner: str) -> Overridden:
        """Who has overridden the preservation of a machine that others delete, or have deleted. None: of a Node alone."""
        if machine is None:
            return Overridden(override=Override.DELETION, why="the Node was deleted")
        try:
            return await _overridden_by_sets(self.connection_of(machine), machine, owner)
        except (ApplicationError, msgspec.MsgspecError) as error:
            return Overridden(override=Override.DELETION, why=f"what is above it can't be read: {error}")

    async def is_surplus(self, held: Held, now: datetime) -> bool:
        """Whether the cap of its pool gives that machine up, by all machines as they are now (S24). Where a pool can't be read
        no cap does; the machines of a set that can't be read are given up by none, and count for none."""
        pools, problem = await self._pools()
        nodes = {each.name: each for each in await read_views(self._nodes, NODES, NODE_DECODING)}
        deployments, above, unread = await self._deployments()
        machines, once = list[Held](), reading_once(self._connections)
        for api in MACHINE_APIS:
            named = self._connections.machine_namespaces
            read = partial(read_views, self._connections.of(api.api_version), decoding=counting_machines(api, named))
            views = await as_served(MACHINES[api], read) or ()
            counted = (each for each in views if not counted_in(named, each).uncounted)
            for view in (each for each in counted if not (each.unreadable or each.preservation_problem)):
                own = key_of_controller(view.controller, view.namespace)
                name = deployment_name(view.controller, above.get(own, ""))
                one = Held.of(view, nodes.pop(view.node_name, None), deployment=name)
                if unread.isdisjoint({own.partition("/")[2], one.set_key}):
                    machines.append(await _as_called(once, one, view, now))
        machines += [await _as_called(once, Held.alone(node), None, now) for node in nodes.values()]
        # As the scanner's index has it: a set that can't be seen keeps none.
        keyed = {
            each.set_key: DeploymentPool(name=each.deployment, namespace=each.namespace) for each in machines if each.set_key
        }
        found = survey(machines, pools, [deployments.get(key, none) for key, none in keyed.items()], now=now, blocked=problem)
        return any(each.held.key == held.key and each.automatic is Automatic.RELEASED for each in found.decisions)

    async def _deployments(self) -> tuple[dict[str, DeploymentPool], dict[str, str], set[str]]:
        """Those of machine-controller-manager by `DeploymentPool.key`, what controls each, by its kind and that, and the keys of
        those that can't be read."""
        deployments, above, unread = dict[str, DeploymentPool](), dict[str, str](), set[str]()
        for kind in (MACHINE_SETS[MCM], MACHINE_DEPLOYMENTS[MCM]):
            counting = list_counting(self._nodes, kind, self._connections.machine_namespaces)
            for document in await unless_gone(counting) or ():
                try:
                    one, owner = deployment_of(kind.whole(document))
                except (msgspec.MsgspecError, ValueError) as error:
                    unread.add(f"{document['metadata']['namespace']}/{document['metadata']['name']}")
                    log.warning("%s in %s can't be read: %s", kind.kind, document["metadata"]["namespace"], error)
                else:
                    deployments[one.key], above[f"{kind.kind}/{one.key}"] = one, owner
        return deployments, above, unread

    async def _machine_of(self, node: str) -> LiveMachine | None:
        """A hold that began on a Node alone stays there, or its expiry would begin anew on the Machine (S22)."""
        live = await find_node(self._nodes, node) if node else None
        if live is None or EXPIRY_ANNOTATION in live.annotations:
            return None
        return await machine_of(self._connections, live.view)

    async def _deployment(self, ref: ObjectRef, found: MachineView) -> DeploymentPool | None:
        """What the set says that it is a replica of; the MachineDeployment above it where there is one."""
        kind, _, name = found.controller.partition("/")
        if kind != MACHINE_SETS[MCM].kind or found.api is not MCM:
            return DeploymentPool(name=name) if name else None
        try:
            path = MACHINE_SETS[MCM].path(name, namespace=ref.namespace)
            one, above = deployment_of(await self._nodes.get(path))
            kind, _, name = above.partition("/")
            if kind == MACHINE_DEPLOYMENTS[MCM].kind:
                path = MACHINE_DEPLOYMENTS[MCM].path(name, namespace=ref.namespace)
                one, _ = deployment_of(await self._nodes.get(path))
        except ObjectNotFound:
            return DeploymentPool(name=name)
        except (msgspec.MsgspecError, ValueError) as error:
            raise failure(ErrorType.INVALID_CONFIG, f"{kind}/{ref.namespace}/{name}: {error}") from error
        return one

    async def _pools(self) -> tuple[list[Pool], str]:
        """All that can be used, in the order of their names, and what is wrong with the others."""
        pools, problem = {pool.name: pool for pool in self._given}, ""
        documents = await unless_gone(self._nodes.list_objects(PRESERVATION_POLICIES.path()))
        for document in documents or ():  # None where the kind is not installed
            try:
                pool = read_policy(PRESERVATION_POLICIES.whole(document))
            except PolicyError as error:
                problem = problem or str(error)
                pools.pop(str(document["metadata"]["name"]), None)
            else:
                pools[pool.name] = pool
        return [pool for _, pool in sorted(pools.items())], problem


def _held(machine: MachineView | None, node: NodeView | None) -> Held | None:
    if machine is not None:
        return Held.of(machine, node)
    if node is None:
        return None
    held = Held.alone(node)
    if held.expiry_problem:
        raise failure(ErrorType.INVALID_CONFIG, f"Node/{node.name}: {held.expiry_problem}")
    return held


# Whether a health check calls a machine unhealthy now, for a hold that is said to be for it: any client may say so (S42).
#
# As the scanner's ledger says it (`Ledger.sickness_of`), of what is read live, and of one that is kept as the index does.


async def called_unhealthy(
    connections: Readers, held: Held, machine: MachineView | None, now: datetime
) -> tuple[str, dict[str, str | None]]:
    """In words, "" where none does; and the annotation of the mode of each check that does not call it healthy, by its key. The
    scanner's clock may be ahead of `now`. Unreadable checks are skipped."""
    words, checks = "", dict[str, str | None]()
    async for check in readable_checks(connections, []):
        rules = rules_of(check)
        for target in (await _subject(connections, check, held.node_name, machine)).targets(held.node):
            found = rules.judge(target, now + CLOCK_TOLERANCE) if rules.covers(target) else HEALTHY
            if found.health is not Health.HEALTHY:
                checks[check.ref.key] = check.mode
            if found.health is Health.UNHEALTHY:
                words = words or f"{check.ref.key} calls it unhealthy: {found.reason}"
    return words or until_well(held).failed, checks


async def _as_called(connections: Readers, held: Held, machine: MachineView | None, now: datetime) -> Held:
    """A machine that a pool keeps and that only a health check calls failed, as one that has failed."""
    if held.failed or held.expiry is None or not is_automatic(held):
        return held
    words, _ = await called_unhealthy(connections, held, machine, now)
    return replace(held, failed=words, phase=MachinePhase.FAILED) if words else held


async def _subject(connections: Readers, check: HealthCheck, node: str, machine: MachineView | None) -> Subject:
    if not check.of_machines:
        return Subject()
    if machine is not None:
        of_its = machine.api is check.machine_api and machine.namespace == check.ref.namespace and is_of_cluster(machine, check)
        machines = [machine] if of_its else []
    else:
        machines = (await machines_by_node(connections, check)).get(node, []) if node else []
    cluster = await cluster_of(connections, check) if machines and check.dialect is Dialect.CLUSTER_API else None
    return Subject(of_machines=True, machines=tuple(machines), cluster=cluster)


# Who has overridden the preservation of a machine: read live from the sets above a Machine that is being deleted, or is gone.
#
# For people; what it means is `policy/preservation/keep_or_release.py`. A preservation ends with its machine whether or not
# this can be read: a server that refuses it, or does not know the kind, is reported and hinders nothing.

REVISIONS = ("deployment.kubernetes.io/revision", "machinedeployment.clusters.x-k8s.io/revision")
"""On a MachineSet: which roll-out it is of, as machine-controller-manager and Cluster API count them."""
LONGEST_NUMBER = 20


async def _overridden_by_sets(connection: ClusterConnection, machine: ObjectRef, owner: str) -> Overridden:
    """machine: by its group, version and namespace. owner: kind and name of what controls it, "" where that is not known."""
    found_set = set_of(machine, owner)
    if found_set is None or (own := await _find_set(connection, found_set[0], machine.namespace, found_set[1])) is None:
        return overridden_by(None)
    sets, name = found_set
    above = own.metadata.controller
    kind, _, above_name = above.partition("/")
    deployments = deployments_above(machine)
    if deployments is None or kind != deployments.kind:
        return overridden_by(_wanted(sets, own))
    deployment = await _find_set(connection, deployments, machine.namespace, above_name)
    if deployment is None:
        return overridden_by(_wanted(sets, own))
    found = [msgspec.convert(each, WireSet) for each in await connection.list_objects(sets.path(namespace=machine.namespace))]
    others = [each for each in found if each.metadata.controller == above and each.metadata.name != name]
    return overridden_by(_wanted(sets, own), _wanted(deployments, deployment), [_wanted(sets, each) for each in others])


async def _find_set(connection: ClusterConnection, resource: Resource, namespace: str, name: str) -> WireSet | None:
    found = await unless_gone(connection.get(resource.path(name, namespace=namespace)))
    return msgspec.convert(found, WireSet) if found is not None else None


def _wanted(resource: Resource, found: WireSet) -> WantedReplicas:
    metadata = found.metadata
    return WantedReplicas(
        kind=resource.kind,
        name=metadata.name,
        replicas=found.spec.replicas if found.spec is not None else None,
        deleting=metadata.deletion_timestamp is not None,
        revision=_revision(metadata.annotations or {}),
        created=moment_of(metadata.creation_timestamp),
    )


def _revision(annotations: Mapping[str, str]) -> int:
    texts = (annotations.get(key, "") for key in REVISIONS)
    return next((int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < LONGEST_NUMBER), 0)
