"""What is read of a cluster: the one table of kinds.

A scanner's watches, a snapshot for people, the reader of files, and the rights that a deployment asks for are all made from it: a
kind with a row here is followed, listed, read from files and granted; one without is not. The kinds that health checks name are
not known before a check names them: `made_for` and `template_kind` say what they are. `watches.py` follows, `snapshot.py` lists,
`offline.py` reads files, `starter/deploy/rights.py` prints; how a decoded object enters the ledger is `intake.py`.

Loaded by commands that need no client, so nothing here imports one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from functools import cache
from typing import Any

from activities.cluster.api import paths
from activities.cluster.api.lease_view import CLUSTER_LEASE_NAME, CLUSTER_LEASE_NAMESPACE, NODE_LEASE_NAMESPACE
from activities.cluster.api.paths import Resource, in_management_cluster, versions_of
from activities.cluster.objects.decoding import (
    ATTACHMENT_DECODING,
    NAME_DECODING,
    NODE_DECODING,
    OBJECT_DECODING,
    TEMPLATE_DECODING,
    Decoding,
    brief_object,
    remediation_decoding,
)
from activities.cluster.objects.machines_decoding import CLUSTER_DECODING, counting_machines, machine_decoding
from policy.checks.circuit_breakers import FENCE_AGENTS_REMEDIATION_LEASE, LEADER_LEASES
from policy.checks.fence_policies import PolicySource
from policy.checks.health_check import HealthCheck
from policy.dialects.node_fencing import is_cluster_config, is_fence_policy
from policy.episode.node_action import NAMESPACE
from policy.fence.template_reader import is_own_template
from policy.objects.machines import uncounted
from policy.objects.nodes import ETCD_NAMESPACE, is_guard
from policy.objects.remediations import kind_of, plurals_of
from policy.remediation.remediation_objects import Remediator
from policy.values.fields import mapping
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT
from policy.values.object_refs import Dialect, ObjectRef


class Destination(Enum):
    """Where the objects of a kind go. The first seven go into the ledger (`Intake.take`)."""

    NODES = auto()
    CHECKS = auto()
    FENCE_POLICIES = auto()
    MACHINES = auto()
    CLUSTERS = auto()
    SURROUNDINGS = auto()
    """What tells of upgrades and of etcd."""
    REMEDIATIONS = auto()
    """What the templates of health checks have had made."""
    REQUESTS = auto()
    """Objects of another controller that ask for single nodes."""
    LEADERS = auto()
    """Leases by which the controllers of health checks elect their leader."""
    REQUEST_LEADERS = auto()
    """The same of the controller that requests are made for."""
    POOLS = auto()
    KEPT_MACHINES = auto()
    """Machines that are followed for preservation alone."""
    SETS = auto()
    VOLUMES = auto()
    ACTIONS = auto()
    """Commands that people give with kubectl."""
    DEFINITIONS = auto()
    TEMPLATES = auto()
    FENCE_OBJECTS = auto()
    """What names nodes beside devices (S39)."""
    OWNERS = auto()
    """Control planes that remediate their own Machines; only to be explained."""
    NODE_LEASES = auto()
    """Which nodes others hold; only to be explained."""
    CLUSTER_LEASE = auto()
    """By which a worker without a scan knows that another one has it (S38)."""


class Reader(Flag):
    WATCH = auto()
    """A scanner, which follows it."""
    SNAPSHOT = auto()
    """A person's question about a live cluster, which lists it once."""
    FILES = auto()
    """A person's question about files."""


EVERY_READER = Reader.WATCH | Reader.SNAPSHOT | Reader.FILES
LEDGER_ALONE = Reader.SNAPSHOT | Reader.FILES


class Since(Enum):
    """From when on a kind is read; a watch of it then stays. A server that does not know a kind costs a question now and then."""

    START = auto()
    CHECK = auto()
    """The first health check; for a kind with a dialect, the first of that dialect."""
    POOL = auto()
    """The first pool of preservations."""
    NAMED_CLUSTER = auto()
    """The first Node that names its Cluster."""
    REQUEST = auto()
    """The first object of another controller that asks for a node."""
    ACT = auto()
    """As soon as there is work, or something asks for it."""
    LAST_LOOK = auto()
    """The first question who else claims a machine or its devices (S39)."""
    TEMPLATE = auto()
    """The first health check that names an object of it."""
    OWNED_MACHINE = auto()
    """The first Machine that a control plane of Cluster API owns."""


def _everywhere(_: PolicySource) -> str:
    return ""


def _all_count(_source: PolicySource, _ref: ObjectRef) -> bool:
    return True


def _as_machines(source: PolicySource, ref: ObjectRef) -> bool:
    return not uncounted(ref, source.machines)


def _as_templates(source: PolicySource, ref: ObjectRef) -> bool:
    return ref.namespace in {"", *source.templates}


def _all_objects(_: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReadKind:
    """One kind. Reading it is part of every deployment, whatever features it has: a scan that sees less judges wrongly.

    destination: where its objects go. since: any of these. dialect: of these health checks, or of the controller with that Lease.
    needed_by: the checks of these dialects wait while it can't be listed. waited_for: whether a view is whole only with it.
    optional: whether a server may not know it.
    read_singly: whether a last look reads single ones, which takes a right of its own. only: the one name that is read.
    namespace: the one namespace, "" for all. counts: whether an object of that namespace does. about: which of its objects are
    meant. alternatives: other names of its resource. metadata_only: whether no more of it is asked for. each_server: also of the
    management cluster.
    """

    resource: Resource
    destination: Destination
    decoding: Decoding[Any] = OBJECT_DECODING
    readers: Reader = Reader.WATCH
    since: frozenset[Since] = frozenset({Since.START})
    dialect: Dialect | None = None
    needed_by: tuple[Dialect, ...] = ()
    waited_for: bool = True
    optional: bool = True
    read_singly: bool = False
    only: str = ""
    namespace: Callable[[PolicySource], str] = _everywhere
    counts: Callable[[PolicySource, ObjectRef], bool] = _all_count
    about: Callable[[Mapping[str, Any]], bool] = _all_objects
    alternatives: tuple[Resource, ...] = ()
    metadata_only: bool = False
    each_server: bool = False

    @property
    def with_machines(self) -> bool:
        """Whether it lives where Cluster API's objects do, where that is another server than the nodes'."""
        return in_management_cluster(self.resource.api_version) or self.dialect is Dialect.CLUSTER_API

    @property
    def spellings(self) -> tuple[Resource, ...]:
        """The resource, and in which other versions or under which other names a server may have it."""
        return (*versions_of(self.resource), *self.alternatives)

    def decoding_for(self, source: PolicySource) -> Decoding[Any]:
        """What is held of its objects: of those that do not count little more than their names (S41)."""
        if self.counts is _all_count:
            return self.decoding
        if (api := MACHINE_API_OF.get(self.resource)) is not None:
            return counting_machines(api, source.machines)
        return self.decoding.brief_unless(lambda namespace: self.counts(source, self.resource.ref("", namespace)), brief_object)

    @property
    def verbs(self) -> tuple[str, ...]:
        """The rights that following it takes."""
        if Reader.WATCH not in self.readers:
            return ()
        return ("get", "list", "watch") if self.read_singly else ("list", "watch")


def _check(resource: Resource, dialect: Dialect) -> ReadKind:
    return ReadKind(
        resource=resource,
        destination=Destination.CHECKS,
        readers=EVERY_READER,
        counts=_as_machines if resource.namespaced else _all_count,
        dialect=dialect,
        needed_by=(dialect,),
        read_singly=True,
    )


def _leader(dialect: Dialect) -> ReadKind:
    """The Lease of that dialect's controller, in whatever namespace it is installed."""
    return ReadKind(
        resource=paths.LEASES,
        destination=Destination.LEADERS,
        readers=Reader.WATCH | Reader.SNAPSHOT,
        since=frozenset({Since.CHECK}),
        dialect=dialect,
        needed_by=(dialect,),
        optional=False,
        only=LEADER_LEASES[dialect],
    )


def _surrounding(resource: Resource) -> ReadKind:
    return ReadKind(
        resource=resource,
        destination=Destination.SURROUNDINGS,
        readers=EVERY_READER,
        since=frozenset({Since.CHECK}),
        needed_by=tuple(Dialect),  # an upgrade holds all checks back
    )


def _of_etcd(obj: Mapping[str, Any]) -> bool:
    return mapping(obj.get("metadata")).get("namespace") == ETCD_NAMESPACE


def _of_a_node(obj: Mapping[str, Any]) -> bool:
    metadata = mapping(obj.get("metadata"))
    return metadata.get("namespace") == NODE_LEASE_NAMESPACE and str(metadata.get("name")).startswith("node-")


_CLAIMS = frozenset({Since.CHECK, Since.POOL, Since.LAST_LOOK})
"""Machines are followed from the first policy on, whatever it judges: one of another Node may have a Node's providerID (S39)."""

MACHINE_API_OF = {resource: api for api, resource in paths.MACHINES.items()}

KINDS: tuple[ReadKind, ...] = (
    ReadKind(
        resource=paths.NODES,
        destination=Destination.NODES,
        decoding=NODE_DECODING,
        readers=EVERY_READER,
        needed_by=tuple(Dialect),
        optional=False,
        read_singly=True,
    ),
    _check(paths.NODE_HEALTH_CHECKS, Dialect.MEDIK8S),
    _check(paths.OPENSHIFT_MACHINE_HEALTH_CHECKS, Dialect.OPENSHIFT),
    _check(paths.CAPI_MACHINE_HEALTH_CHECKS, Dialect.CLUSTER_API),
    ReadKind(
        resource=paths.CONFIG_MAPS,
        destination=Destination.FENCE_POLICIES,
        readers=EVERY_READER,
        dialect=Dialect.NODE_FENCING,
        needed_by=(Dialect.NODE_FENCING,),
        read_singly=True,
        namespace=lambda source: source.namespace,
        about=lambda obj: is_cluster_config(obj) or is_fence_policy(obj),
    ),
    ReadKind(
        resource=paths.FENCE_AGENTS_REMEDIATIONS,
        destination=Destination.REQUESTS,
        read_singly=True,
        counts=lambda source, ref: ref.namespace in source.requests,
    ),
    ReadKind(resource=paths.PRESERVATION_POLICIES, destination=Destination.POOLS),
    ReadKind(
        resource=paths.MACHINES[MCM],
        destination=Destination.KEPT_MACHINES,
        decoding=machine_decoding(MCM),
        read_singly=True,
        counts=_as_machines,
    ),
    *(
        ReadKind(resource=resource, destination=Destination.SETS, read_singly=True, counts=_as_machines)
        for resource in (paths.MACHINE_SETS[MCM], paths.MACHINE_DEPLOYMENTS[MCM])
    ),
    *(
        ReadKind(
            resource=paths.MACHINES[api],
            destination=Destination.MACHINES,
            decoding=machine_decoding(api),
            readers=EVERY_READER,
            counts=_as_machines,
            since=_CLAIMS,
            needed_by=(dialect,),
            read_singly=True,
        )
        for api, dialect in ((OPENSHIFT, Dialect.OPENSHIFT), (CLUSTER_API, Dialect.CLUSTER_API))
    ),
    ReadKind(
        resource=paths.CAPI_CLUSTERS,
        destination=Destination.CLUSTERS,
        decoding=CLUSTER_DECODING,
        readers=EVERY_READER,
        since=_CLAIMS | {Since.NAMED_CLUSTER},  # one that is paused is left alone
        needed_by=(Dialect.CLUSTER_API,),
        read_singly=True,
    ),
    _leader(Dialect.MEDIK8S),
    ReadKind(
        resource=paths.LEASES,
        destination=Destination.REQUEST_LEADERS,
        since=frozenset({Since.REQUEST}),
        optional=False,
        only=FENCE_AGENTS_REMEDIATION_LEASE,
    ),
    _leader(Dialect.OPENSHIFT),
    _leader(Dialect.CLUSTER_API),
    _surrounding(paths.CLUSTER_VERSIONS),
    _surrounding(paths.MACHINE_CONFIG_POOLS),
    ReadKind(
        resource=paths.DISRUPTION_BUDGETS, destination=Destination.SURROUNDINGS, readers=Reader.FILES, about=_of_etcd
    ),  # a last look reads them, and the guards, live
    ReadKind(resource=paths.PODS, destination=Destination.SURROUNDINGS, readers=Reader.FILES, about=is_guard),
    ReadKind(
        resource=paths.KUBEADM_CONTROL_PLANES,
        destination=Destination.OWNERS,
        readers=LEDGER_ALONE,
        since=frozenset({Since.OWNED_MACHINE}),
    ),
    ReadKind(
        resource=paths.LEASES,
        destination=Destination.NODE_LEASES,
        readers=LEDGER_ALONE,
        since=frozenset({Since.CHECK}),
        namespace=lambda _: NODE_LEASE_NAMESPACE,
        about=_of_a_node,
    ),
    # No check is judged by what follows, so that no view waits for it.
    ReadKind(
        resource=paths.CUSTOM_RESOURCE_DEFINITIONS,
        destination=Destination.DEFINITIONS,
        decoding=NAME_DECODING,
        waited_for=False,
        optional=False,
        metadata_only=True,
        each_server=True,
    ),
    ReadKind(
        resource=paths.LEASES,
        destination=Destination.CLUSTER_LEASE,
        waited_for=False,
        optional=False,
        only=CLUSTER_LEASE_NAME,
        namespace=lambda _: CLUSTER_LEASE_NAMESPACE,
    ),
    ReadKind(
        resource=paths.NODE_ACTIONS,
        destination=Destination.ACTIONS,
        waited_for=False,
        read_singly=True,
        namespace=lambda _: NAMESPACE,
    ),
    ReadKind(
        resource=paths.VOLUME_ATTACHMENTS,
        destination=Destination.VOLUMES,
        decoding=ATTACHMENT_DECODING,
        since=frozenset({Since.CHECK, Since.REQUEST, Since.ACT}),
        waited_for=False,
    ),
    *(
        ReadKind(
            resource=resource,
            destination=Destination.TEMPLATES,
            since=frozenset({Since.TEMPLATE}),
            waited_for=False,
            read_singly=read_singly,
        )
        for resource, read_singly in (
            (paths.FENCING_TEMPLATES, True),
            (paths.VOLUME_DETACHMENTS, True),
            (paths.MACHINE_DELETIONS, False),
            (paths.REBOOTS, False),
        )
    ),
    *(
        ReadKind(
            resource=resource,
            destination=Destination.FENCE_OBJECTS,
            since=frozenset({Since.LAST_LOOK}),
            waited_for=False,
            counts=_as_templates if resource.namespaced else _all_count,
        )
        for resource in (paths.FENCING_TEMPLATES, paths.FENCE_CONFIGS)
    ),
)
"""In the order in which a snapshot lists them: what a row waits for comes before it."""


@cache
def read_by(reader: Reader) -> tuple[ReadKind, ...]:
    return tuple(kind for kind in KINDS if reader in kind.readers)


def template_kind(template: ObjectRef) -> ReadKind:
    """The kind of a template that a health check names, under the likely names of its resource."""
    first, *others = (
        Resource(api_version=template.api_version, kind=template.kind, plural=plural) for plural in plurals_of(template.kind)
    )
    ours = is_own_template(template)
    return ReadKind(
        resource=first,
        destination=Destination.TEMPLATES,
        decoding=OBJECT_DECODING if ours else TEMPLATE_DECODING,
        since=frozenset({Since.TEMPLATE}),
        waited_for=False,
        counts=_as_templates if ours else _all_count,
        alternatives=tuple(others),
    )


def made_for(check: HealthCheck, remediators: tuple[Remediator, ...]) -> dict[tuple[str, str], ReadKind]:
    """What the check's templates make, by group and kind, under the likely names of its resource. Ours make none."""
    found = {}
    for template in (rung.template for rung in check.rungs if not is_own_template(rung.template)):
        group, kind = kind_of(template)
        if group and kind != template.kind:
            version = template.api_version
            first, *others = (Resource(api_version=version, kind=kind, plural=plural) for plural in plurals_of(kind))
            found[group, kind] = ReadKind(
                resource=first,
                destination=Destination.REMEDIATIONS,
                decoding=remediation_decoding(version, kind, remediators),
                since=frozenset({Since.TEMPLATE}),
                alternatives=tuple(others),
            )
    return found
