"""One reading of a live cluster, for people who ask: the objects that health checks are about, listed once.

Which kinds are listed is the table of `kinds.py`. A scanner never works from this; it follows (`watches.py`). Kinds that the
server does not know are passed over; what may not be read is a mistake of the answer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import Resource, ref_of
from activities.cluster.api.refusals import unless_gone
from activities.cluster.api.served_cluster import Connections, Discovery
from activities.cluster.objects.check_statuses import Conflicts
from activities.cluster.objects.decoding import OBJECT_DECODING, Item
from activities.cluster.watch.kinds import Destination, Reader, ReadKind, Since, made_for, read_by
from activities.cluster.watch.offline import ClusterSnapshot, ManifestMistake
from activities.cluster.watch.templates import see_templates
from activities.errors import ErrorType, failure
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.checks.health_check import Overlap, RetryRules
from policy.objects.machines import MachineView, cluster_named_by, uncounted
from policy.objects.nodes import NodeView
from policy.remediation.memory import DEFAULT_RETRIES, OWNERS_OWN
from policy.remediation.remediation_objects import REMEDIATORS, Remediator
from policy.values.object_refs import Dialect


async def take_snapshot(
    connection: ClusterConnection,
    *,
    machines: ClusterConnection | None,
    overlap: Overlap,
    takeover: bool,
    source: PolicySource = DEFAULT_SOURCE,
    retries: RetryRules = DEFAULT_RETRIES,
    leased: bool = True,
    remediators: tuple[Remediator, ...] = REMEDIATORS,
) -> ClusterSnapshot:
    """Everything at one moment: that of the API server's clock, by which the scanner judges too. What can't be read
    is a mistake. leased: also which nodes others hold by a node lease; workers may not list these. Raises what the API refuses
    where not even Nodes can be listed."""
    connections = Connections(nodes=connection, machines=machines or connection)
    nodes, *others = read_by(Reader.SNAPSHOT)
    listed = await _list(connection, nodes, source)
    now = connection.now()  # the server's clock is known by its first answer
    cluster = ClusterSnapshot(now, overlap=overlap, sees_all_nodes=False, policies=source, retries=retries)
    reading = _Reading(cluster, Conflicts(cluster.ledger, takeover=takeover), now, source.machines)
    reading.take(nodes, listed)
    for kind in others:
        if reading.is_due(kind) and (leased or kind.destination is not Destination.NODE_LEASES):
            await reading.read(connections.machines if kind.with_machines else connection, kind, source)
    made = {key: (check, kind) for check in cluster.checks for key, kind in made_for(check, remediators).items()}
    for check, kind in made.values():
        await reading.read(connections.machines if check.dialect is Dialect.CLUSTER_API else connection, kind, source)
    kinds = Connections(nodes=Discovery(connection), machines=Discovery(connections.machines))
    for check in cluster.checks:
        cluster.templates[check.ref.key] = await see_templates(check, connections, kinds)
    cluster.judge_templates()
    reading.conflicts.hold_back(now)
    cluster.finish()
    return cluster


class _Reading:
    """One snapshot that is being taken, and what it has shown so far that has more kinds read."""

    def __init__(self, cluster: ClusterSnapshot, conflicts: Conflicts, now: datetime, namespaces: Collection[str]) -> None:
        """namespaces: in which Machines and their checks count."""
        self.conflicts = conflicts
        self._namespaces = namespaces
        self._cluster = cluster
        self._now = now
        self._since = {Since.START}
        self._dialects = set[Dialect]()

    def is_due(self, kind: ReadKind) -> bool:
        of_a_check = Since.CHECK in self._since and kind.dialect in {None, *self._dialects}
        return bool((kind.since - {Since.CHECK}) & self._since) or (Since.CHECK in kind.since and of_a_check)

    async def read(self, connection: ClusterConnection, kind: ReadKind, source: PolicySource) -> None:
        """List it. Without it there is still something to say."""
        try:
            self.take(kind, await _list(connection, kind, source))
        except ApplicationError as error:
            message = f"{kind.resource.plural}: {error.message}"
            self._cluster.mistakes.append(ManifestMistake(source=connection.url, message=message))

    def take(self, kind: ReadKind, listed: list[Item[Any]]) -> None:
        for key, value in ((each.key, each.value) for each in listed):
            if kind.decoding is not OBJECT_DECODING:
                self._take_view(kind, key, value)
            elif kind.destination is Destination.LEADERS:
                self.conflicts.lease_changed(_dialect(kind), key, value, self._now)
            elif kind.about(value):
                self._cluster.put(value, kind.resource.plural)
                if kind.destination in {Destination.CHECKS, Destination.FENCE_POLICIES}:
                    self._since.add(Since.CHECK)
                    self._dialects.add(_dialect(kind))
                if kind.destination is Destination.CHECKS and not uncounted(ref_of(value), self._namespaces):
                    self.conflicts.check_changed(_dialect(kind), ref_of(value), value)

    def _take_view(self, kind: ReadKind, key: str, view: Any) -> None:
        """One that can't be read counts all the same, as it does for the scanner."""
        self._cluster.take(kind, key, view)
        if isinstance(view, NodeView | MachineView) and view.unreadable:
            ref = kind.resource.ref(view.name, view.namespace if isinstance(view, MachineView) else "")
            message = f"expected a {kind.resource.kind}: {view.unreadable}"
            self._cluster.mistakes.append(ManifestMistake(source=kind.resource.plural, ref=ref, message=message))
        if isinstance(view, NodeView) and cluster_named_by(view):
            self._since.add(Since.NAMED_CLUSTER)
        if isinstance(view, MachineView) and view.controller.startswith(f"{OWNERS_OWN}/"):
            self._since.add(Since.OWNED_MACHINE)


def _dialect(kind: ReadKind) -> Dialect:
    assert kind.dialect is not None
    return kind.dialect


async def _list(connection: ClusterConnection, kind: ReadKind, source: PolicySource) -> list[Item[Any]]:
    """All of its objects that are meant, under the first name that is served; none where none is."""
    query = {"fieldSelector": f"metadata.name={kind.only}"} if kind.only else None

    async def listed(resource: Resource) -> list[Item[Any]]:
        pages = connection.list_pages(resource.path(namespace=kind.namespace(source)), query=query)
        found = [item async for page in pages for item in kind.decoding_for(source).items(page.body)]
        if kind.decoding is OBJECT_DECODING:
            return [replace(item, value=resource.whole(item.value)) for item in found]
        return found

    try:
        for resource in kind.spellings:
            if (found := await unless_gone(listed(resource))) is not None:
                return found
    except msgspec.DecodeError as error:
        line = f"{kind.resource.plural}: expected a list of them, got something else: {error}"
        raise failure(ErrorType.NOT_SUPPORTED, line) from error
    return []
