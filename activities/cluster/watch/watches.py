"""Which collections of a cluster are followed, and what each change of them tells the ledger: first all that health checks need,
then what preservation needs, then templates.

Nodes, health checks and the ConfigMaps of fence policies always; Machines and what tells of upgrades from the first health
check or pool of preservations on, or the first last look, as FencingTemplates and FenceConfigs; Clusters from the first check
on that needs them, or the first Node that names one; remediation objects and templates from the first check on that names one.
A kind that the server does not know is looked for when its definition comes, and every few minutes. Cluster API's objects may
live behind another connection (a management cluster). `view.py` judges how fresh all of it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import (
    CAPI_CLUSTERS,
    CAPI_MACHINE_HEALTH_CHECKS,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    FENCE_AGENTS_REMEDIATIONS,
    FENCE_CONFIGS,
    FENCING_TEMPLATES,
    LEASES,
    MACHINE_DEPLOYMENTS,
    MACHINE_SETS,
    MACHINES,
    NODE_ACTIONS,
    NODE_HEALTH_CHECKS,
    NODES,
    OPENSHIFT_MACHINE_HEALTH_CHECKS,
    PRESERVATION_POLICIES,
    VOLUME_ATTACHMENTS,
    Resource,
    versions_of,
)
from activities.cluster.api.served_cluster import Connections
from activities.cluster.live.templates import place_of
from activities.cluster.objects.clusters_decoding import CLUSTER_DECODING, remediation_decoding
from activities.cluster.objects.conflicts import Conflicts
from activities.cluster.objects.decoding import ATTACHMENT_DECODING, NAME_DECODING, NODE_DECODING, OBJECT_DECODING, Decoding
from activities.cluster.objects.fencing_requests import FencingRequests
from activities.cluster.objects.machine_sets import deployment_of
from activities.cluster.objects.machines_decoding import machine_decoding
from activities.cluster.watch.intake import SURROUNDING_KINDS, Intake
from activities.cluster.watch.kinds import made_for
from activities.cluster.watch.reflector import Reflector, WatchLimits
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.checks.health_check import HealthCheck
from policy.checks.rival_controllers import FENCE_AGENTS_REMEDIATION_LEASE, LEADER_LEASES
from policy.dialects.node_fencing import CLUSTER_CONFIG
from policy.episode.operator_commands import NAMESPACE
from policy.fence.templates import is_fencing_template
from policy.objects.belonging import cluster_named_by
from policy.objects.machines import MachineView, WorkloadCluster, machine_key
from policy.objects.nodes import NodeView
from policy.objects.remediations import RemediationObject, plurals_of
from policy.preservation.pools import read_policy
from policy.preservation.preservation_index import PreservationBook
from policy.remediation.remediation_objects import REMEDIATORS, Remediator
from policy.remediation.templates import UNKNOWN, TemplateSeen, TemplateSight, judged, templates_of
from policy.scan.data_at_risk import DataAtRisk
from policy.scan.ledger import Ledger
from policy.values.errors import PolicyError
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT, MachineApi
from policy.values.object_refs import Dialect, ObjectRef

# What is followed for preservation alone: Machines of machine-controller-manager with their sets, and PreservationPolicies.
#
# Nodes, and the Machines of OpenShift and Cluster API, come from the section above: those where health checks or a pool have them
# followed. Kinds that the server does not know cost a question now and then.


class PreservationWatches:
    """Feeds one book. `on_change` is called after each change of what a report might say."""

    def __init__(
        self,
        connection: ClusterConnection,
        book: PreservationBook,
        *,
        clock: Callable[[], datetime],
        on_change: Callable[[], None],
        on_state: Callable[[], None],
        on_pool: Callable[[], None],
        limits: WatchLimits | None,
    ) -> None:
        """on_pool: is called when there is a pool, whose Machines are to be followed."""
        self._book = book
        self._on_pool = on_pool
        self._clock = clock
        self._on_change = on_change

        def following(resource: Resource, decoding: Decoding[Any], changed: Callable[[str, Any], None]) -> Reflector[Any]:
            return Reflector(
                connection,
                resource,
                decoding,
                on_change=changed,
                on_state=on_state,
                optional=True,
                limits=limits,
            )

        self._reflectors = (
            following(PRESERVATION_POLICIES, OBJECT_DECODING, self._policy_changed),
            following(MACHINES[MCM], machine_decoding(MCM), partial(self.machine_changed, MACHINES[MCM])),
            following(MACHINE_SETS[MCM], OBJECT_DECODING, partial(self._set_changed, MACHINE_SETS[MCM])),
            following(MACHINE_DEPLOYMENTS[MCM], OBJECT_DECODING, partial(self._set_changed, MACHINE_DEPLOYMENTS[MCM])),
        )

    def __iter__(self) -> Iterator[Reflector[Any]]:
        """Everything that is followed for it."""
        yield from self._reflectors

    @property
    def doubt(self) -> str:
        """Why the pools are not known, "" where they are. A server that does not know the kind has none."""
        policies = self._reflectors[0]
        if policies.synced or policies.absent:
            return ""
        return f"PreservationPolicies can't be listed: {policies.problem or 'their first list is still to come'}"

    def machine_changed(self, resource: Resource, key: str, machine: MachineView | None) -> None:
        """A Machine, None for one that is gone. resource: in the version that the server knows."""
        if machine is None:
            self._changed(lambda: self._book.remove_machine(key))
            return
        if machine.preservation_problem:
            log.warning("Machine %s is left out of preservation: %s", key, machine.preservation_problem)
        ref = resource.ref(machine.name, machine.namespace)
        self._changed(lambda: self._book.put_machine(ref, machine, self._clock()))

    def _set_changed(self, resource: Resource, key: str, found: JsonObject | None) -> None:
        name = key.rpartition("/")[2]
        if found is None:
            self._changed(lambda: self._book.put_deployment(f"{resource.kind}/{name}", None))
            return
        try:
            deployment, owner = deployment_of(found)
        except (msgspec.MsgspecError, ValueError) as error:
            log.warning("%s %s can't be read: %s", resource.kind, key, error)
            return
        self._changed(lambda: self._book.put_deployment(f"{resource.kind}/{name}", deployment, owner))

    def _policy_changed(self, name: str, found: JsonObject | None) -> None:
        if found is None:
            self._changed(lambda: self._book.put_pool(name, None))
            return
        self._on_pool()
        try:
            pool = read_policy(PRESERVATION_POLICIES.whole(found))
        except PolicyError as error:
            problem = str(error)
            log.warning("%s", problem)
            self._changed(lambda: self._book.put_pool(name, None, problem))
            return
        self._changed(lambda: self._book.put_pool(name, pool))

    def _changed(self, change: Callable[[], object]) -> None:
        before = self._book.version
        change()
        if self._book.version != before:
            self._on_change()


# The templates that health checks name: followed by kind from the first check on that names one, and judged with every change.
#
# So that a check without its remedy says so when it is written, and is in use again once its template is there. A kind that we
# may not list tells nothing of its templates, and its checks go on.

_Kind = tuple[ClusterConnection, str, str]
"""Where it lives, its version, its name."""


class TemplateWatches:
    """Those of one cluster's checks. judge: is called when anything may have changed; it has the intake judge again."""

    def __init__(
        self, connections: Connections[ClusterConnection], *, judge: Callable[[], None], limits: WatchLimits | None
    ) -> None:
        self._connections = connections
        self._judge = judge
        self._limits = limits
        self._followed: dict[_Kind, Reflector[JsonObject]] = {}
        self._found: dict[tuple[_Kind, str], TemplateSeen] = {}
        self._fencing: dict[tuple[_Kind, str], Any] = {}
        """What FencingTemplates say."""

    def __iter__(self) -> Iterator[Reflector[Any]]:
        return iter(self._followed.values())

    def follow(self, check: HealthCheck) -> tuple[Reflector[Any], ...]:
        """The kinds of its templates; they stay followed. Those that are new, to be started."""
        new = {self._kind(check, each) for each in templates_of(check)} - self._followed.keys()
        for kind in sorted(new, key=lambda each: each[1:]):
            connection, version, name = kind
            first, *others = (Resource(api_version=version, kind=name, plural=plural) for plural in plurals_of(name))
            self._followed[kind] = Reflector(
                connection,
                first,
                OBJECT_DECODING,
                on_change=partial(self._changed, kind),
                on_state=self._judge,
                optional=True,
                alternatives=others,
                limits=self._limits,
            )
        return tuple(self._followed[kind] for kind in new)

    def judge(self, intake: Intake, *, only: str = "") -> None:
        """All checks by what is known now, or the one of that key."""
        intake.judge_templates(self._seen, only=only)

    def fencing(self, checks: Iterable[HealthCheck]) -> list[Any]:
        """Which FencingTemplates these checks name, and what each says, as far as it is there."""
        named = ((check, template) for check in checks for template in templates_of(check) if is_fencing_template(template))
        keys = ((check.ref.key, self._kind(check, each), f"{each.namespace}/{each.name}") for check, each in named)
        return sorted([check, key, self._fencing[kind, key]] for check, kind, key in keys if (kind, key) in self._fencing)

    def _kind(self, check: HealthCheck, template: ObjectRef) -> _Kind:
        return place_of(template, check, self._connections), template.api_version, template.kind

    def _seen(self, check: HealthCheck, template: ObjectRef) -> TemplateSeen:
        kind = self._kind(check, template)
        reflector = self._followed.get(kind)
        if reflector is None or not (reflector.synced or reflector.lists):
            return UNKNOWN
        if reflector.absent:
            return TemplateSeen(sight=TemplateSight.NO_KIND)
        # A cluster-scoped kind has no namespace, whatever the reference says.
        keys = (f"{template.namespace}/{template.name}" if template.namespace else template.name, template.name)
        found = (self._found.get((kind, key)) for key in keys)
        return next((each for each in found if each is not None), TemplateSeen(sight=TemplateSight.MISSING))

    def _changed(self, kind: _Kind, key: str, found: JsonObject | None) -> None:
        if found is None:
            self._found.pop((kind, key), None)
            self._fencing.pop((kind, key), None)
        else:
            namespace, _, name = key.rpartition("/")
            ref = ObjectRef(api_version=kind[1], kind=kind[2], name=name, namespace=namespace)
            self._found[kind, key] = judged(ref, found)
            if is_fencing_template(ref):
                self._fencing[kind, key] = json.dumps(found.get("spec"), sort_keys=True)
        if self._followed[kind].synced:  # else the list is being taken in, and what is missing may be still to come
            self._judge()


log = logging.getLogger(__name__)

POLICY_KINDS: dict[Resource, Dialect] = {
    NODE_HEALTH_CHECKS: Dialect.MEDIK8S,
    OPENSHIFT_MACHINE_HEALTH_CHECKS: Dialect.OPENSHIFT,
    CAPI_MACHINE_HEALTH_CHECKS: Dialect.CLUSTER_API,
}
"""The kinds of health checks that are followed; how each is read is `policy/dialects`."""

_MAY_CLAIM = (OPENSHIFT, CLUSTER_API)
"""Followed from the first policy on, whatever it judges: a Machine of another Node may have a Node's providerID (S39)."""

FENCE_MAPS = "fence-"
"""How the names of all ConfigMaps of fence configuration begin."""

Following = Reflector[Any]


class Watches:
    """All reflectors of one cluster, feeding one ledger. `on_change` is called after each change of what the ledger says."""

    def __init__(
        self,
        connection: ClusterConnection,
        ledger: Ledger,
        *,
        machines: ClusterConnection | None,
        clock: Callable[[], datetime],
        on_change: Callable[[], None],
        on_state: Callable[[], None],
        limits: WatchLimits | None,
        takeover: bool = False,
        patience: float = 5.0,
        at_risk: DataAtRisk | None = None,
        source: PolicySource = DEFAULT_SOURCE,
        book: PreservationBook | None = None,
        remediators: tuple[Remediator, ...] = REMEDIATORS,
    ) -> None:
        """patience: for so many seconds a kind may be refused before only those checks wait that need it. at_risk: is told of
        nodes and of what is attached to them."""
        self.intake = Intake(ledger, clock, source=source)
        self.conflicts = Conflicts(ledger, takeover=takeover)
        self.requests = FencingRequests(ledger, takeover=takeover, namespaces=source.requests)
        self.nodes = Reflector(connection, NODES, NODE_DECODING, on_change=self._node_changed, on_state=on_state, limits=limits)
        self._connection = connection
        self.machines = machines or connection
        self._connections = Connections(nodes=connection, machines=self.machines)
        self._ledger = ledger
        self._clock = clock
        self._on_change = on_change
        self._on_state = on_state
        self._limits = limits
        self._policies: dict[Dialect, Following] = {
            dialect: self._reflector(resource, OBJECT_DECODING, partial(self._check_changed, resource))
            for resource, dialect in POLICY_KINDS.items()
        }
        self._policies[Dialect.NODE_FENCING] = Reflector(
            connection,
            CONFIG_MAPS,
            OBJECT_DECODING,
            on_change=self._config_map_changed,
            on_state=on_state,
            limits=limits,
            optional=True,
            namespace=source.namespace,
        )
        self._requests: tuple[Following, ...] = (
            self._reflector(FENCE_AGENTS_REMEDIATIONS, OBJECT_DECODING, self._request_changed),
        )
        """What asks for nodes, and from the first such object on the leader Lease of the controller that it is made for."""
        self._companions: dict[Dialect, tuple[Following, ...]] = {}
        self._machines: dict[MachineApi, Following] = {}
        self._clusters: tuple[Following, ...] = ()
        """Of Cluster API, from its first Machine on or the first Node that names one: one that is paused is left alone."""
        self._remediators = remediators
        self._remediations: dict[tuple[str, str], Following] = {}
        """What checks here have had created, by group and kind: a node that has one is not yet well (medik8s)."""
        self._remediations_elsewhere: dict[tuple[str, str], Following] = {}
        """The same for checks that live over the other connection. No part of `self`: no check is judged by them."""
        self._surroundings: tuple[Following, ...] = ()
        self._at_risk = at_risk or DataAtRisk(forced=False)
        self.volumes: Following | None = None
        """What is attached where; None while nothing asks us to act. No part of `self`: no check is judged by it, and so none
        waits for it."""
        self._book = book or PreservationBook()
        self._preservations = PreservationWatches(
            connection,
            self._book,
            clock=clock,
            on_change=on_change,
            on_state=on_state,
            on_pool=partial(self._follow_machines, *_MAY_CLAIM),  # a pool may have the Machines of either
            limits=limits,
        )
        self._templates = TemplateWatches(self._connections, judge=self._judge_templates, limits=limits)
        self.actions: dict[str, JsonObject] = {}
        """What people say by kubectl, by its key."""
        self._actions = Reflector(
            connection,
            NODE_ACTIONS,
            OBJECT_DECODING,
            on_change=self._action_changed,
            optional=True,
            namespace=NAMESPACE,
            limits=limits,
        )
        servers = {id(each): each for each in (connection, self.machines)}.values()
        self._fencing: tuple[Following, ...] = ()
        """What names nodes beside devices, from the first last look on. No part of `self`: no check is judged by it."""
        self._fence_objects: dict[tuple[Resource, str], JsonObject] = {}
        self._fence_maps: dict[str, Any] = {}
        """What ConfigMaps of fence configuration say."""
        self._definitions = [
            Reflector(
                server,
                CUSTOM_RESOURCE_DEFINITIONS,
                NAME_DECODING,
                on_change=partial(self._definition_changed, server),
                metadata_only=True,
                limits=limits,
            )
            for server in servers
        ]
        """What each server is told of kinds. One that does not show it to us is looked at from time to time."""
        self._patience = patience
        self._refused_since: dict[Following, float] = {}
        self._started = False
        if self._book.has_pools:
            self._follow_machines(*_MAY_CLAIM)

    def __iter__(self) -> Iterator[Following]:
        """Everything that is followed now."""
        yield self.nodes
        yield from self._policies.values()
        yield from self._requests
        yield from self._preservations
        yield from self._machines.values()
        yield from self._clusters
        for companions in self._companions.values():
            yield from companions
        yield from self._surroundings
        yield from self._remediations.values()

    def _beside(self) -> Iterator[Following]:
        """What is followed and nothing waits for."""
        yield from self._definitions
        yield self._actions
        if self.volumes is not None:
            yield self.volumes
        yield from self._remediations_elsewhere.values()
        yield from self._templates
        yield from self._fencing

    def checks(self) -> Mapping[Dialect, Following]:
        """The collections of health checks."""
        return self._policies

    def elsewhere(self) -> list[Following]:
        """What is followed over the other connection; nothing where there is only one."""
        if self.machines is self._connection:
            return []
        theirs = [self._machines[CLUSTER_API]] if CLUSTER_API in self._machines else []
        return [self._policies[Dialect.CLUSTER_API], *theirs, *self._clusters, *self._companions.get(Dialect.CLUSTER_API, ())]

    def here(self) -> list[Following]:
        """What is followed over the cluster's own connection, but for the unlisted."""
        other = [*self.elsewhere(), *self.unlisted()]
        return [each for each in self if each not in other]

    def unlisted(self) -> dict[Following, tuple[Dialect, ...]]:
        """Kinds of the cluster itself that the server has refused to list ever since we asked, and whose checks wait for each.

        A conversion webhook that is down, or a right that we were never given, must not stop the judgement of everything else.
        Nodes are never among them, and neither is a kind that was listed once: what we know of it is then out of date.
        """
        now, other = asyncio.get_running_loop().time(), self.elsewhere()
        found: dict[Following, tuple[Dialect, ...]] = {}
        for each in self:
            refused = self.nodes.streaming and each.problem and not each.synced and not each.lists
            if not refused or each is self.nodes or each in other:
                self._refused_since.pop(each, None)
                continue
            if each not in self._refused_since:
                each.wake()  # its last try may have been while nothing at all was answered
            if now - self._refused_since.setdefault(each, now) >= self._patience:
                found[each] = self._needed_by(each)
        return found

    def next_unlisted(self) -> float | None:
        """Seconds until one more kind is among the unlisted if nothing happens, None where that cannot be."""
        now = asyncio.get_running_loop().time()
        left = [since + self._patience - now for since in self._refused_since.values()]
        return min((each for each in left if each > 0), default=None)

    def _needed_by(self, reflector: Following) -> tuple[Dialect, ...]:
        judged = {api.name: machines for api, machines in self._machines.items()}
        for dialect, policy in self._policies.items():
            clusters = self._clusters if dialect is Dialect.CLUSTER_API else ()
            if reflector in (policy, judged.get(dialect), *clusters, *self._companions.get(dialect, ())):
                return (dialect,)
        if reflector in (*self._requests, *self._preservations, *self._remediations.values()):
            return ()  # what can't be listed of another controller can't be created either
        return tuple(Dialect)  # of upgrades, which hold back all checks

    def start(self) -> None:
        """Begin to watch; does nothing where it has begun."""
        self._started = True
        for reflector in (*self, *self._beside()):
            reflector.start()

    async def stop(self) -> None:
        """Stop watching."""
        self._started = False
        for reflector in (*self, *self._beside()):
            await reflector.stop()

    def retry(self, server: ClusterConnection) -> None:
        """That server answers again: ask it for whatever it did not answer."""
        for reflector in (*self, *self._beside()):
            reflector.retry(server)

    def follow_claims(self) -> bool:
        """Follow from now on what can claim a machine or its devices (S39). Whether all Machines that can have been listed, or
        are of a kind that is not served."""
        self._follow_machines(*_MAY_CLAIM)
        if not self._fencing:
            kinds = (FENCING_TEMPLATES, FENCE_CONFIGS)
            self._fencing = tuple(self._reflector(each, OBJECT_DECODING, partial(self._fencing_changed, each)) for each in kinds)
            self._begin(self._fencing)
        return all(self._machines[api].synced for api in _MAY_CLAIM)

    def fence_objects(self) -> list[JsonObject] | None:
        """All FencingTemplates and FenceConfigs, None where not all are known, or changes do not reach us."""
        known = self._fencing and all(each.synced and each.streaming for each in self._fencing)
        return list(self._fence_objects.values()) if known else None

    @property
    def pools_doubt(self) -> str:
        """Why it is not known which machines pools keep, "" where it is."""
        return self._preservations.doubt

    def hold(self, now: datetime) -> None:
        """Hold what other controllers act on at that moment."""
        self.conflicts.hold(now)
        self.requests.hold(now)

    def follow_volumes(self) -> None:
        """Follow what is attached to nodes from now on, where Kubernetes ever takes it away by force (S36)."""
        if self.volumes is not None or not self._at_risk.forced:
            return
        self.volumes = self._reflector(VOLUME_ATTACHMENTS, ATTACHMENT_DECODING, self._attachment_changed)
        if self._started:
            self.volumes.start()

    def connection_of(self, ref: ObjectRef) -> ClusterConnection:
        """Over which connection an object is read and written."""
        return self._connections.of(ref.api_version)

    # Changes

    def _node_changed(self, name: str, node: NodeView | None) -> None:
        if cluster_named_by(node):
            self._follow_clusters()

        def change() -> None:
            if node is None:
                self._at_risk.delete_node(name, self._clock())
                self._book.remove_node(name)
                self._ledger.remove_node(name)
            else:
                now = self._clock()
                self._at_risk.put_node(node, now)
                self._book.put_node(node)
                self._ledger.put_node(node, now)

        self._changed(change)

    def _definition_changed(self, server: ClusterConnection, definition: str, _version: str | None) -> None:
        """A kind that was unknown until now may be served from now on."""
        for reflector in (*self, *self._beside()):
            if reflector.absent and reflector.follows(server, definition):
                reflector.wake()

    def _action_changed(self, key: str, found: JsonObject | None) -> None:
        if found is None:
            self.actions.pop(key, None)
        else:
            self.actions[key] = found
        self._on_change()

    def _attachment_changed(self, name: str, node: str | None) -> None:
        if node is None:
            self._changed(lambda: self._at_risk.remove_attachment(name))
        else:
            self._changed(lambda: self._at_risk.put_attachment(name, node, self._clock()))

    def _check_changed(self, resource: Resource, key: str, found: JsonObject | None) -> None:
        dialect = POLICY_KINDS[resource]
        namespace, _, name = key.rpartition("/")
        version = str((found or {}).get("apiVersion") or self._policies[dialect].resource.api_version)
        ref = ObjectRef(api_version=version, kind=resource.kind, name=name, namespace=namespace)
        self.conflicts.check_changed(dialect, ref, found)
        if found is None:
            self._changed(lambda: self.intake.remove_check(ref.key))
            return
        self._accompany(dialect)
        self._changed(lambda: self.intake.put_check(ref, found))
        if (check := self.intake.checks.get(ref.key)) is not None:
            self._follow_remediations(check)
            self._begin(self._templates.follow(check))
            self._judge_templates(only=ref.key)

    def fencing(self) -> str:
        """A digest of the policies that name devices: another one as soon as one comes, goes or is changed; "" for none."""
        named = [*self._templates.fencing(self.intake.checks.values()), *sorted(self._fence_maps.items())]
        return hashlib.sha256(json.dumps(named, default=str).encode()).hexdigest()[:16] if named else ""

    def _judge_templates(self, *, only: str = "") -> None:
        self._changed(lambda: self._templates.judge(self.intake, only=only))

    def _config_map_changed(self, key: str, found: JsonObject | None) -> None:
        """One of the namespace in which fence policies live; most of them are somebody else's."""
        _, _, name = key.rpartition("/")
        if name == CLUSTER_CONFIG and found is not None:
            self._accompany(Dialect.NODE_FENCING)
        if name.startswith(FENCE_MAPS):
            self._fence_maps[name] = (found or {}).get("data")
        self._changed(lambda: self.intake.put_config_map(name, found))

    def _fencing_changed(self, resource: Resource, key: str, found: JsonObject | None) -> None:
        if found is None:
            self._fence_objects.pop((resource, key), None)
        else:
            self._fence_objects[resource, key] = found

    def _machine_changed(self, api: MachineApi, key: str, machine: MachineView | None) -> None:
        self._preservations.machine_changed(self._machines[api].resource, key, machine)
        if machine is None:
            namespace, _, name = key.partition("/")
            self._changed(lambda: self._ledger.remove_machine(machine_key(api, namespace, name)))
        else:
            self._changed(lambda: self._ledger.put_machine(machine, self._clock()))

    def _cluster_changed(self, key: str, cluster: WorkloadCluster | None) -> None:
        if cluster is None:
            self._changed(lambda: self._ledger.remove_cluster(key))
        else:
            self._changed(lambda: self._ledger.put_cluster(cluster, self._clock()))

    def _surrounding_changed(self, resource: Resource, key: str, found: JsonObject | None) -> None:
        def change() -> None:
            try:
                self.intake.put_surrounding(resource.kind, key, found)
            except ValueError as error:
                log.warning("%s %s tells nothing: %s", resource.kind, key, error)

        self._changed(change)

    def _remediation_changed(self, resource: Resource, key: str, remediation: RemediationObject | None) -> None:
        if remediation is None:
            namespace, _, name = key.rpartition("/")
            gone = resource.ref(name, namespace)
            self._changed(lambda: self._ledger.remove_remediation(gone.key))
        else:
            self._changed(lambda: self._ledger.put_remediation(remediation, self._clock()))

    def _leader_changed(self, dialect: Dialect, key: str, found: JsonObject | None) -> None:
        now = self._clock()
        self.conflicts.lease_changed(dialect, key, found, now)
        self._changed(lambda: self.conflicts.hold(now))

    def _request_changed(self, key: str, found: JsonObject | None) -> None:
        namespace, _, name = key.rpartition("/")
        resource = FENCE_AGENTS_REMEDIATIONS
        ref = resource.ref(name, namespace)
        if found is not None and len(self._requests) == 1:
            self.follow_volumes()
            leader = self._leader(FENCE_AGENTS_REMEDIATION_LEASE, self._connection, self._request_leader_changed)
            self._requests += (leader,)
            self._begin((leader,))
        now = self._clock()

        def change() -> None:
            self.requests.put(ref, found)
            self.requests.hold(now)

        self._changed(change)

    def _request_leader_changed(self, key: str, found: JsonObject | None) -> None:
        now = self._clock()
        self.requests.lease_changed(key, found, now)
        self._changed(lambda: self.requests.hold(now))

    def _changed(self, change: Callable[[], object]) -> None:
        before = (self._ledger.version, self._at_risk.version, self._book.version)
        change()
        if (self._ledger.version, self._at_risk.version, self._book.version) != before:
            self._on_change()

    # What a health check needs beside the nodes

    def _accompany(self, dialect: Dialect) -> None:
        """Follow what checks of that dialect are judged by; it stays followed."""
        self.follow_volumes()
        if not self._surroundings:
            self._surroundings = tuple(
                self._reflector(resource, OBJECT_DECODING, partial(self._surrounding_changed, resource))
                for resource in SURROUNDING_KINDS
            )
            self._begin(self._surroundings)
        if dialect in self._companions:
            return
        there = self.machines if dialect is Dialect.CLUSTER_API else self._connection
        companions: tuple[Following, ...] = ()
        if dialect in LEADER_LEASES:
            companions += (self._leader(LEADER_LEASES[dialect], there, partial(self._leader_changed, dialect)),)
        self._follow_machines(*_MAY_CLAIM)
        self._companions[dialect] = companions
        self._begin(companions)

    def _follow_machines(self, *apis: MachineApi) -> None:
        """Of those APIs, which stay followed."""
        for api in apis:
            if api not in self._machines:
                changed = partial(self._machine_changed, api)
                self._machines[api] = self._reflector(MACHINES[api], machine_decoding(api), changed)
                self._begin((self._machines[api],))
        if CLUSTER_API in apis:
            self._follow_clusters()

    def _follow_clusters(self) -> None:
        if not self._clusters:
            self._clusters = (self._reflector(CAPI_CLUSTERS, CLUSTER_DECODING, self._cluster_changed),)
            self._begin(self._clusters)

    def _follow_remediations(self, check: HealthCheck) -> None:
        """What the check's templates make, whoever makes it; it stays followed."""
        elsewhere = check.dialect is Dialect.CLUSTER_API and self.machines is not self._connection
        followed = self._remediations_elsewhere if elsewhere else self._remediations
        for made, (resource, *others) in made_for(check).items():
            if made in followed:
                continue
            followed[made] = Reflector(
                self.machines if elsewhere else self._connection,
                resource,
                remediation_decoding(resource.api_version, resource.kind, self._remediators),
                on_change=partial(self._remediation_changed, resource),
                on_state=self._on_state,
                optional=True,
                alternatives=others,
                limits=self._limits,
            )
            self._begin((followed[made],))

    def _leader(self, name: str, connection: ClusterConnection, on_change: Callable[[str, JsonObject | None], None]) -> Following:
        """The Lease by which a controller elects its leader, wherever it is installed."""
        return Reflector(
            connection,
            LEASES,
            OBJECT_DECODING,
            on_change=on_change,
            on_state=self._on_state,
            only=name,
            limits=self._limits,
        )

    def _begin(self, reflectors: tuple[Following, ...]) -> None:
        if self._started:
            for reflector in reflectors:
                reflector.start()
            self._on_state()

    def _reflector(self, resource: Resource, decoding: Decoding[Any], on_change: Callable[[str, Any], None]) -> Following:
        return Reflector(
            self._connections.of(resource.api_version),
            resource,
            decoding,
            on_change=on_change,
            on_state=self._on_state,
            optional=True,
            alternatives=versions_of(resource)[1:],
            limits=self._limits,
        )
