"""Which collections of a cluster are followed, and what each change of them changes.

Which kinds there are, from when on each is followed and which checks wait for it is the one table, `kinds.py`; what is followed
stays followed. A kind that the server does not know is looked for when its definition comes, and every few minutes. Cluster API's
objects may live behind another connection (a management cluster). `view.py` judges how fresh all of it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import Resource
from activities.cluster.api.served_cluster import Connections
from activities.cluster.objects.check_statuses import Conflicts
from activities.cluster.objects.fencing_requests import FencingRequests
from activities.cluster.watch.intake import Intake, PreservationIntake
from activities.cluster.watch.kinds import Destination, Reader, ReadKind, Since, made_for, read_by
from activities.cluster.watch.reflector import Reflector, WatchLimits
from activities.cluster.watch.templates import TemplateWatches
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.checks.health_check import HealthCheck
from policy.dialects.node_fencing import CLUSTER_CONFIG
from policy.fence.configmaps import FENCE_MAPS
from policy.objects.machines import MachineView, cluster_named_by, uncounted
from policy.objects.nodes import NodeView
from policy.preservation.preservation_index import PreservationIndex
from policy.remediation.remediation_objects import REMEDIATORS, Remediator
from policy.scan.data_at_risk import DataAtRisk
from policy.scan.ledger import Ledger
from policy.values.object_refs import Dialect, ObjectRef

log = logging.getLogger(__name__)

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
        preservation_index: PreservationIndex | None = None,
        remediators: tuple[Remediator, ...] = REMEDIATORS,
    ) -> None:
        """patience: for so many seconds a kind may be refused before only those checks wait that need it. at_risk: is given nodes
        and what is attached to them."""
        self.machines = machines or connection
        self.intake = Intake(ledger, clock, source=source)
        self.conflicts = Conflicts(ledger, takeover=takeover)
        self.requests = FencingRequests(ledger, takeover=takeover, namespaces=source.requests)
        self.actions: dict[str, JsonObject] = {}
        """The commands that people give with kubectl, by key."""
        self.on_cluster_lease: Callable[[JsonObject | None], object] = lambda _: None
        """Gets the cluster Lease as it changes, None where it is given back. No report is made for that."""
        self._connection = connection
        self._connections = Connections(nodes=connection, machines=self.machines, machine_namespaces=source.machines)
        self._ledger = ledger
        self._clock = clock
        self._on_change = on_change
        self._on_state = on_state
        self._limits = limits
        self._patience = patience
        self._source = source
        self._remediators = remediators
        self._at_risk = at_risk or DataAtRisk(forced=False)
        self._preservation_index = preservation_index or PreservationIndex()
        self._preservations = PreservationIntake(
            self._preservation_index, clock, namespaces=source.machines, ignored=ledger.ignored
        )
        self._templates = TemplateWatches(self._connections, self._reflector, judge=self._judge_templates)
        self._fence_objects: dict[tuple[ReadKind, str], JsonObject] = {}
        self._fence_maps: dict[str, Any] = {}
        """What ConfigMaps of fence configuration say."""
        self._followed: dict[ReadKind, tuple[Following, ...]] = {}
        self._remediations: dict[tuple[str, str], Following] = {}
        """What checks here have had created, by group and kind: a node that has one is not yet well (medik8s)."""
        self._remediations_elsewhere: dict[tuple[str, str], Following] = {}
        """The same for checks that live over the other connection. No view waits for it: no check is judged by them."""
        self._nodes: Following | None = None
        self._whole: tuple[Following, ...] = ()
        self._elsewhere: tuple[Following, ...] = ()
        self._found: dict[tuple[Destination, ...], dict[ReadKind, Following]] = {}
        """As `_followed` has them: each report asks dozens of times."""
        self._refused_since: dict[Following, float] = {}
        self._started = False
        self._takes: Mapping[Destination, Callable[[ReadKind, str, Any], None]] = {
            Destination.NODES: self._node_changed,
            Destination.CHECKS: self._check_changed,
            Destination.FENCE_POLICIES: self._config_map_changed,
            Destination.MACHINES: self._machine_changed,
            Destination.CLUSTERS: self._ledger_changed,
            Destination.SURROUNDINGS: self._surrounding_changed,
            Destination.REMEDIATIONS: self._ledger_changed,
            Destination.REQUESTS: self._request_changed,
            Destination.LEADERS: self._leader_changed,
            Destination.REQUEST_LEADERS: self._request_leader_changed,
            Destination.POOLS: self._pool_changed,
            Destination.KEPT_MACHINES: self._preservation_changed,
            Destination.SETS: self._preservation_changed,
            Destination.VOLUMES: self._attachment_changed,
            Destination.ACTIONS: self._action_changed,
            Destination.FENCE_OBJECTS: self._fence_object_changed,
            Destination.CLUSTER_LEASE: lambda _kind, _key, found: self.on_cluster_lease(found),
        }
        self._follow(Since.START)
        connection.lacks = self._lacks
        if self._preservation_index.has_pools:
            self._follow(Since.POOL)

    # What is followed

    def __iter__(self) -> Iterator[Following]:
        """Everything that is followed now and that a whole view takes."""
        return iter(self._whole)

    def _beside(self) -> Iterator[Following]:
        """What is followed and nothing waits for."""
        for kind in read_by(Reader.WATCH):
            if not kind.waited_for:
                yield from self._followed.get(kind, ())
        yield from self._remediations_elsewhere.values()
        yield from self._templates

    def _of(self, *destinations: Destination) -> dict[ReadKind, Following]:
        """What is followed now of the kinds that go there."""
        if destinations not in self._found:
            found = {kind: each[0] for kind, each in self._followed.items() if kind.destination in destinations}
            self._found[destinations] = found
        return self._found[destinations]

    @property
    def nodes(self) -> Following:
        assert self._nodes is not None, "they are followed from the start"
        return self._nodes

    @property
    def volumes(self) -> Following | None:
        """What is attached where; None while nothing asks us to act, or where Kubernetes never takes it away by force."""
        return next(iter(self._of(Destination.VOLUMES).values()), None)

    @property
    def follows_cluster_lease(self) -> bool:
        """Whether its changes reach us just now."""
        return any(each.streaming for each in self._of(Destination.CLUSTER_LEASE).values())

    def checks(self) -> Mapping[Dialect, Following]:
        found = self._of(Destination.CHECKS, Destination.FENCE_POLICIES)
        return {kind.dialect: each for kind, each in found.items() if kind.dialect is not None}

    def elsewhere(self) -> tuple[Following, ...]:
        """What is followed over the other connection and a whole view takes; nothing where there is only one connection."""
        return self._elsewhere

    def here(self) -> Sequence[Following]:
        """What is followed over the cluster's own connection, but for the unlisted."""
        other = {*self._elsewhere, *self.unlisted()}
        return [each for each in self._whole if each not in other] if other else self._whole

    def unlisted(self) -> dict[Following, tuple[Dialect, ...]]:
        """Kinds of the cluster itself that the server has refused to list ever since we asked, and the dialects of which the
        checks wait for each.

        A conversion webhook that is down, or a right that we were never given, must not stop the judgement of everything else.
        Nodes are never among them, and neither is a kind that was listed once: what we know of it is then out of date. What can't
        be listed of another controller can't be created either, so that no check waits for it.
        """
        if not (self._refused_since or any(each.problem for each in self._whole)):
            return {}  # as nearly always, and each report asks dozens of times
        now, nodes = asyncio.get_running_loop().time(), self.nodes
        found: dict[Following, tuple[Dialect, ...]] = {}
        for each in self._whole:
            refused = each.problem and not each.synced and not each.lists and nodes.streaming
            if not refused or each is nodes or each in self._elsewhere:
                self._refused_since.pop(each, None)
                continue
            if each not in self._refused_since:
                each.wake()  # its last try may have been while nothing at all was answered
            if now - self._refused_since.setdefault(each, now) >= self._patience:
                needed_by = (kind.needed_by for kind, reflectors in self._followed.items() if each in reflectors)
                found[each] = next(needed_by, ())
        return found

    def next_unlisted(self) -> float | None:
        """Seconds until one more kind is among the unlisted if nothing happens, None where that cannot be."""
        now = asyncio.get_running_loop().time()
        left = [since + self._patience - now for since in self._refused_since.values()]
        return min((each for each in left if each > 0), default=None)

    def start(self) -> None:
        """Begin to watch; does nothing where it has begun."""
        self._started = True
        for reflector in (*self, *self._beside()):
            reflector.start()

    async def stop(self) -> None:
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
        self._follow(Since.LAST_LOOK)
        return all(each.synced for each in self._of(Destination.MACHINES).values())

    def follow_volumes(self) -> None:
        """Follow what is attached to nodes from now on (S36)."""
        self._follow(Since.ACT)

    def connection_of(self, ref: ObjectRef) -> ClusterConnection:
        """Over which connection an object is read and written."""
        return self._connections.of(ref.api_version)

    def _follow(self, since: Since, dialect: Dialect | None = None) -> None:
        """Follow from now on what is followed since then. dialect: of the first health check."""
        for kind in read_by(Reader.WATCH):
            due = since in kind.since and (since is not Since.CHECK or kind.dialect in {None, dialect})
            if kind.destination is Destination.VOLUMES and not self._at_risk.forced:
                continue  # Kubernetes never takes it away by force
            if due and kind not in self._followed:
                servers = [self.machines if kind.with_machines else self._connection]
                if kind.each_server and self.machines is not self._connection:
                    servers.append(self.machines)
                self._followed[kind] = tuple(self._reflector_of(kind, server) for server in servers)
                self._begin(self._followed[kind])

    def _note_followed(self) -> None:
        waited_for = [(kind, self._followed.get(kind, ())) for kind in read_by(Reader.WATCH) if kind.waited_for]
        self._whole = (*(each for _, reflectors in waited_for for each in reflectors), *self._remediations.values())
        there = [reflectors for kind, reflectors in waited_for if kind.with_machines]
        self._elsewhere = () if self.machines is self._connection else tuple(each for reflectors in there for each in reflectors)
        self._found = {}
        self._nodes = next(iter(self._of(Destination.NODES).values()))

    def _reflector_of(self, kind: ReadKind, server: ClusterConnection) -> Following:
        changed = self._takes.get(kind.destination, partial(self._definition_changed, server))
        return self._reflector(kind, server, partial(changed, kind))

    def _reflector(
        self,
        kind: ReadKind,
        server: ClusterConnection,
        on_change: Callable[[str, Any], None],
        on_state: Callable[[], None] | None = None,
    ) -> Following:
        first, *others = kind.spellings
        return Reflector(
            server,
            first,
            kind.decoding_for(self._source),
            on_change=on_change,
            on_state=on_state or self._on_state,
            optional=kind.optional,
            alternatives=others,
            only=kind.only,
            namespace=kind.namespace(self._source),
            metadata_only=kind.metadata_only,
            limits=self._limits,
        )

    def _begin(self, reflectors: Sequence[Following]) -> None:
        """Those that are followed from now on, if there are any."""
        self._note_followed()
        if self._started and reflectors:
            for reflector in reflectors:
                reflector.start()
            self._on_state()

    # Changes

    def _ledger_changed(self, kind: ReadKind, key: str, found: Any) -> None:
        self._changed(lambda: self.intake.take(kind, key, found))

    def _node_changed(self, kind: ReadKind, name: str, node: NodeView | None) -> None:
        if cluster_named_by(node):
            self._follow(Since.NAMED_CLUSTER)

        def change() -> None:
            if node is None:
                self._at_risk.delete_node(name, self._clock())
                self._preservation_index.remove_node(name)
            else:
                self._at_risk.put_node(node, self._clock())
                self._preservation_index.put_node(node)
            self.intake.take(kind, name, node)

        self._changed(change)

    def _definition_changed(self, server: ClusterConnection, _kind: ReadKind, definition: str, _version: str | None) -> None:
        """A kind that was unknown until now may be served from now on."""
        for reflector in (*self, *self._beside()):
            if reflector.absent and reflector.follows(server, definition):
                reflector.wake()

    def _lacks(self, resource: Resource) -> bool:
        """Whether the nodes' server is seen to have no definition of that kind."""
        return any(each.lacks(resource.definition) for each in self._of(Destination.DEFINITIONS).values())

    def _action_changed(self, _kind: ReadKind, key: str, found: JsonObject | None) -> None:
        if found is None:
            self.actions.pop(key, None)
        else:
            self.actions[key] = found
        self._on_change()

    def _attachment_changed(self, _kind: ReadKind, name: str, node: str | None) -> None:
        if node is None:
            self._changed(lambda: self._at_risk.remove_attachment(name))
        else:
            self._changed(lambda: self._at_risk.put_attachment(name, node, self._clock()))

    def _check_changed(self, kind: ReadKind, key: str, found: JsonObject | None) -> None:
        dialect = kind.dialect
        assert dialect is not None
        namespace, _, name = key.rpartition("/")
        version = str((found or {}).get("apiVersion") or self._followed[kind][0].resource.api_version)
        ref = ObjectRef(api_version=version, kind=kind.resource.kind, name=name, namespace=namespace)
        counts = found is not None and not uncounted(ref, self._source.machines)
        self.conflicts.check_changed(dialect, ref, found if counts else None)
        if found is None:
            self._changed(lambda: self.intake.remove_check(ref.key))
            return
        if counts:
            self._follow(Since.CHECK, dialect)
        self._changed(lambda: self.intake.put_check(ref, found))
        if (check := self.intake.checks.get(ref.key)) is not None:
            self._follow_remediations(check)
            self._begin(self._templates.follow(check))
            self._judge_templates(only=ref.key)

    def _follow_remediations(self, check: HealthCheck) -> None:
        """What the check's templates make, by any controller; it stays followed."""
        elsewhere = check.dialect is Dialect.CLUSTER_API and self.machines is not self._connection
        followed = self._remediations_elsewhere if elsewhere else self._remediations
        server = self.machines if elsewhere else self._connection
        for made, kind in made_for(check, self._remediators).items():
            if made not in followed:
                followed[made] = self._reflector_of(kind, server)
                self._begin((followed[made],))

    def fencing(self) -> str:
        """A digest of the policies that name devices: another one as soon as one comes, goes or is changed; "" for none."""
        named = [*self._templates.fencing(self.intake.checks.values()), *sorted(self._fence_maps.items())]
        return hashlib.sha256(json.dumps(named, default=str).encode()).hexdigest()[:16] if named else ""

    def _judge_templates(self, *, only: str = "") -> None:
        self._changed(lambda: self._templates.judge(self.intake, only=only))

    def _config_map_changed(self, kind: ReadKind, key: str, found: JsonObject | None) -> None:
        """One of the namespace in which fence policies live; most of them are of other owners."""
        _, _, name = key.rpartition("/")
        if name == CLUSTER_CONFIG and found is not None:
            self._follow(Since.CHECK, kind.dialect)
        if name.startswith(FENCE_MAPS) and found is not None:
            self._fence_maps[name] = found.get("data")
        else:
            self._fence_maps.pop(name, None)
        self._ledger_changed(kind, key, found)

    def fence_maps(self) -> Mapping[str, Any] | None:
        """What the ConfigMaps of fence configuration say, by name; None where not all are known, or changes do not reach us."""
        followed = self._of(Destination.FENCE_POLICIES).values()
        return self._fence_maps if followed and all(each.synced and each.streaming for each in followed) else None

    def fence_objects(self) -> list[JsonObject] | None:
        """All FencingTemplates and FenceConfigs that count, None where not all are known, or changes do not reach us."""
        followed = self._of(Destination.FENCE_OBJECTS).values()
        known = followed and all(each.synced and each.streaming for each in followed)
        return list(self._fence_objects.values()) if known else None

    def _fence_object_changed(self, kind: ReadKind, key: str, found: JsonObject | None) -> None:
        if found is None or not kind.counts(self._source, kind.resource.ref("", key.rpartition("/")[0])):
            self._fence_objects.pop((kind, key), None)
        else:
            self._fence_objects[kind, key] = found

    def _machine_changed(self, kind: ReadKind, key: str, machine: MachineView | None) -> None:
        self._preservation_changed(kind, key, machine)
        self._ledger_changed(kind, key, machine)

    def _preservation_changed(self, kind: ReadKind, key: str, found: Any) -> None:
        version = self._followed[kind][0].resource  # in which the server has it
        self._changed(lambda: self._preservations.take(kind, version, key, found))

    def _pool_changed(self, kind: ReadKind, name: str, found: JsonObject | None) -> None:
        if found is not None:
            self._follow(Since.POOL)
        self._preservation_changed(kind, name, found)

    @property
    def pools_doubt(self) -> str:
        """Why it is not known which machines pools keep, "" where it is. A server that does not know the kind has none."""
        for policies in self._of(Destination.POOLS).values():
            if not (policies.synced or policies.absent):
                return f"PreservationPolicies can't be listed: {policies.problem or 'their first list is still to come'}"
        return ""

    def _surrounding_changed(self, kind: ReadKind, key: str, found: JsonObject | None) -> None:
        def change() -> None:
            try:
                self.intake.take(kind, key, found)
            except ValueError as error:
                log.warning("%s %s can't be read: %s", kind.resource.kind, key, error)

        self._changed(change)

    def _leader_changed(self, kind: ReadKind, key: str, found: JsonObject | None) -> None:
        now = self._clock()
        assert kind.dialect is not None
        self.conflicts.lease_changed(kind.dialect, key, found, now)
        self._changed(lambda: self.conflicts.hold_back(now))

    def _request_changed(self, kind: ReadKind, key: str, found: JsonObject | None) -> None:
        namespace, _, name = key.rpartition("/")
        if found is not None:
            self._follow(Since.REQUEST)
        now = self._clock()

        def change() -> None:
            self.requests.put(kind.resource.ref(name, namespace), found)
            self.requests.hold_back(now)

        self._changed(change)

    def _request_leader_changed(self, _kind: ReadKind, key: str, found: JsonObject | None) -> None:
        now = self._clock()
        self.requests.lease_changed(key, found, now)
        self._changed(lambda: self.requests.hold_back(now))

    def hold_back(self, now: datetime) -> None:
        """Hold back what other controllers act on at that moment."""
        self.conflicts.hold_back(now)
        self.requests.hold_back(now)

    def _changed(self, change: Callable[[], object]) -> None:
        before = (self._ledger.version, self._at_risk.version, self._preservation_index.version)
        change()
        if (self._ledger.version, self._at_risk.version, self._preservation_index.version) != before:
            self._on_change()
