"""Snapshots of a Machine and of its Cluster API Cluster, which Node and Machine belong together, and what identifies a machine.

The views have the fields that decisions use, and nothing else, as in `policy/objects/nodes.py`. The Machines of OpenShift,
Cluster API and machine-controller-manager differ in spelling only (`policy/values/machine_apis.py`). How they are decoded is
`activities/cluster/objects/machines_decoding.py`, what their fields mean for health is `policy/checks/rules/`, and for whether a
machine is kept `policy/preservation/`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice

from policy.objects.nodes import Condition, NodeView
from policy.values.display_text import some_of
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT, MachineApi, machine_api
from policy.values.object_refs import ObjectRef, is_object_name
from policy.values.times import moment_of

PAUSED_ANNOTATION = "cluster.x-k8s.io/paused"
"""On a check, a Cluster or a Machine; any value pauses, also an empty one."""

CLUSTER_NAME_LABEL = "cluster.x-k8s.io/cluster-name"
UPGRADE_STEP_ANNOTATION = "topology.internal.cluster.x-k8s.io/upgrade-step"
"""On a Cluster: the step of a chained upgrade that is under way (Cluster API 3c7007896f)."""

SKIP_ANNOTATION = "cluster.x-k8s.io/skip-remediation"
REMEDIATE_ANNOTATION = "cluster.x-k8s.io/remediate-machine"
EXTERNAL_REMEDIATION_ANNOTATION = "host.metal3.io/external-remediation"

FAILED = "Failed"
"""The phase of a Machine that will never work again, in all three APIs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """One Machine as last seen: from the watch cache, a live read, or files. An empty string means that the object does not have
    the field.

    node_name: the Node that it names. phase: as its API spells it. failure: reason and message of a terminal failure.
    deletion_waits: what its deletion waits for, "" if that is not known. last_updated: OpenShift's start-up clock. controller:
    kind and name of the owner that controls it, "" for a Machine that no controller would replace. expiry: until when it is
    preserved, None while it is not. preserve_timeout: for how long, by its own specification, None if that does not say.
    preservation_problem: why its preservation can't be read, "" if it can. unreadable: why an existing Machine could not be
    decoded, "" for all others. uncounted: see `uncounted`.
    """

    api: MachineApi
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    phase: str = ""
    failure: str = ""
    deleting: bool = False
    deleting_since: datetime | None = None
    deletion_waits: str = ""
    created: datetime | None = None
    last_updated: datetime | None = None
    node_name: str = ""
    provider_id: str = ""
    cluster_name: str = ""
    controller: str = ""
    control_plane: bool = False
    expiry: datetime | None = None
    preserve_timeout: timedelta | None = None
    preservation_problem: str = ""
    unreadable: str = ""
    uncounted: str = ""

    @property
    def key(self) -> str:
        """Unique among all targets: no name of a Node contains a slash."""
        return machine_key(self.api, self.namespace, self.name)

    @property
    def kept_out_by(self) -> str:
        """The annotation by which people keep it out of remediation, "" if it has none."""
        return next((each for each in (PAUSED_ANNOTATION, SKIP_ANNOTATION) if each in self.annotations), "")

    @property
    def failed(self) -> str:
        """Why it will never work, "" if it may."""
        if self.phase == FAILED:
            return f"its phase is {FAILED}{f' ({self.failure})' if self.failure else ''}"
        return f"it reports a failure that it can't recover from ({self.failure})" if self.failure else ""

    @property
    def goes_first(self) -> str:
        """The value of the annotation that makes it the first to go when its set is scaled down, "" without one."""
        for annotation in self.api.goes_first:
            value = self.annotations.get(annotation)
            if self.api is MCM and moment_of(value) is None:
                continue  # there only a moment counts
            if value or (value is not None and self.api.empty_goes_first):
                return value or "marked"
        return ""

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, None if the Machine does not report it."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCluster:
    """A Cluster API `Cluster`. A moment is None while its flag is False; paused: why it is paused, "" if it is not. version: of
    Kubernetes, as its topology wants it, "" if it has none. upgrade_step: the version that a chained upgrade wants for now.
    """

    namespace: str
    name: str
    paused: str = ""
    control_plane_initialized: bool = False
    control_plane_initialized_since: datetime | None = None
    infrastructure_ready: bool = False
    infrastructure_ready_since: datetime | None = None
    version: str = ""
    upgrade_step: str = ""

    @property
    def key(self) -> str:
        """Unique among Clusters."""
        return f"{self.namespace}/{self.name}"


def machine_key(api: MachineApi, namespace: str, name: str) -> str:
    return f"{api.name}/{namespace}/{name}"


# Which Machines count.

EVERY_NAMESPACE = "*"


def uncounted(about: ObjectRef, namespaces: Collection[str]) -> str:
    """Why no Node is a Machine's of that namespace, and no Machine is judged by a check of it; "" where they count, and for all
    other kinds (S46). The right to create objects in a namespace is no right to any node. namespaces: of the setting."""
    api = machine_api(about.api_version)
    if api is None or about.namespace == api.home or not {about.namespace, EVERY_NAMESPACE}.isdisjoint(namespaces):
        return ""
    return _ignored(about.namespace)


def counting_namespaces(api_version: str, namespaces: Collection[str]) -> tuple[str, ...]:
    """In which Machines, their sets and their health checks count; "" stands for all, also of other kinds. What lies elsewhere
    need not be read: tenants have room for more than a worker has memory (S41)."""
    api = machine_api(api_version)
    if api is None or EVERY_NAMESPACE in namespaces:
        return ("",)
    return tuple(dict.fromkeys(filter(None, (api.home, *namespaces))))


def _ignored(namespace: str) -> str:
    return f"it is ignored: the setting machine_namespaces does not name {namespace}"


def counted_in(namespaces: Collection[str], machine: MachineView) -> MachineView:
    """The Machine with why it does not count, where it does not."""
    ref = ObjectRef(api_version=machine.api.api_version, kind="Machine", name=machine.name, namespace=machine.namespace)
    why = uncounted(ref, namespaces)
    return replace(machine, uncounted=why) if why != machine.uncounted else machine


_CHECK = "MachineHealthCheck"
"""How the keys of checks begin (`ObjectRef.key`), and those of Machines do not."""


class IgnoredObjects:
    """The Machines and health checks that do not count, for one sentence to people. version: another one with each namespace that
    comes or goes."""

    def __init__(self) -> None:
        self.version = 0
        self._api_of: dict[str, tuple[MachineApi, str]] = {}
        self._numbers: Counter[tuple[MachineApi, str]] = Counter()

    def checks(self) -> Iterator[tuple[str, str]]:
        """The key of each health check, and that it is ignored."""
        return ((key, _ignored(namespace)) for key, (_, namespace) in sorted(self._api_of.items()) if key.startswith(_CHECK))

    def note(self, machine: MachineView) -> None:
        """A Machine as it is now, whether or not it counts."""
        if machine.uncounted:
            self.put(machine.key, machine.api, machine.namespace)
        else:
            self.drop(machine.key)

    def put(self, key: str, api: MachineApi, namespace: str) -> None:
        if key not in self._api_of:
            self._api_of[key] = api, namespace
            self.version += not self._numbers[api, namespace]
            self._numbers[api, namespace] += 1

    def drop(self, key: str) -> None:
        """One that is gone, or counts; does nothing for any other."""
        if (place := self._api_of.pop(key, None)) is not None:
            self._numbers -= Counter([place])
            self.version += place not in self._numbers

    def text(self, clusters: Iterable[str]) -> str:
        """In which namespaces they are, "" for none. clusters: that Nodes here name; of Cluster API's others are not ours."""
        ours = {each.partition("/")[0] for each in clusters}
        found = sorted({namespace for api, namespace in self._numbers if api is not CLUSTER_API or namespace in ours})
        what = f"Machines and MachineHealthChecks in {some_of(found)} are ignored"
        return f"{what}: the setting machine_namespaces does not name {'it' if len(found) == 1 else 'them'}" if found else ""


NONE_IGNORED = IgnoredObjects()


# Which Node and which Machine belong together, by the names that each carries; for a scan and for a live read alike.
#
# A Machine's Node is the one that it names. While it names none, it is the one Node that names the Machine by annotation, or that
# has the Machine's providerID; if several have it, none of them counts (S9). A Node's annotation alone never makes a Machine its
# own that names another Node. For many of both, `policy/checks/inventory.py` ties them by claims and answers.
#
# A Machine that does not count has a Node only where each of them names the other: what it says may then keep programs from that
# Node, and no check judges it. A kubelet may write these annotations of its own Node, so they give such a Machine no other.

OPENSHIFT_MACHINE_ANNOTATION = "machine.openshift.io/machine"
CAPI_MACHINE_ANNOTATION = "cluster.x-k8s.io/machine"
"""With these a Node names its Machine: `<namespace>/<name>`, or a name in the namespace of the annotation below."""

MOST_NAMED = 3
"""How many Nodes with one identity a message names."""

CLUSTER_NAME_ANNOTATION = "cluster.x-k8s.io/cluster-name"
CLUSTER_NAMESPACE_ANNOTATION = "cluster.x-k8s.io/cluster-namespace"
"""With these Cluster API writes on a Node to which of its Clusters the Node belongs."""


def named_by(node: NodeView) -> list[tuple[MachineApi, str, str]]:
    """The Machines that the Node names as its own, each by API, namespace and name."""
    annotations = node.annotations
    found = [(OPENSHIFT, *annotations.get(OPENSHIFT_MACHINE_ANNOTATION, "").partition("/")[::2])]
    found += [(CLUSTER_API, annotations.get(CLUSTER_NAMESPACE_ANNOTATION, ""), annotations.get(CAPI_MACHINE_ANNOTATION, ""))]
    return [(api, namespace, name) for api, namespace, name in found if is_object_name(namespace) and is_object_name(name)]


def machine_behind(provider_id: str) -> str:
    """One spelling of a providerID for comparisons: without regard to case, and for EC2 and OpenStack the id of the instance
    alone, without zone or region (S39)."""
    cloud, _, place = provider_id.casefold().partition(":")
    return f"{cloud}:{place.rpartition('/')[2] if cloud in {'aws', 'openstack'} else place}" if provider_id else ""


def claims_of(machine: MachineView) -> tuple[str, ...]:
    """How a Machine names its Node, the surest claim first. A Machine with a node_name means that Node and no other."""
    if machine.node_name:
        return (f"node/{machine.node_name}",)
    claim = f"machine/{machine.key}"
    return (claim, f"provider/{machine_behind(machine.provider_id)}") if machine.provider_id else (claim,)


def answers_of(node: NodeView | None) -> set[str]:
    if node is None:
        return set()
    answers = {f"node/{node.name}", *(f"machine/{machine_key(*named)}" for named in named_by(node))}
    return answers | identities_of(node).keys()


def is_machine_of(machine: MachineView, name: str, node: NodeView | None) -> bool:
    """Whether that Machine is the target of that name, or the Machine of the Node of that name. A Machine that has never had a
    Node has a name of its own, in any API. node: None if it is gone."""
    if not machine.node_name and name == f"machine/{machine.namespace}/{machine.name}":
        return True
    claims = set(claims_of(machine))
    if node is None:
        return f"node/{name}" in claims and not machine.uncounted
    return bool(claims & answers_of(node)) and may_be_its_node(machine, node)


def identities_of(node: NodeView | None) -> dict[str, str]:
    """The identities that only one machine can have, as text, by their keys. A kubelet itself reports all of them when it
    registers."""
    if node is None:
        return {}
    found = {}
    if node.provider_id:
        found[f"provider/{machine_behind(node.provider_id)}"] = f"providerID {node.provider_id}"
    uuid = node.system_uuid.casefold()
    if uuid and not is_placeholder_uuid(uuid):
        found[f"system/{uuid}"] = f"system UUID {node.system_uuid}"
    if node.boot_id:
        found[f"boot/{node.boot_id}"] = f"boot id {node.boot_id}"
    return found


def contested(node: NodeView, having: Callable[[str], Collection[str]]) -> str:
    """Which other Nodes claim to be this machine, as a sentence; "" for none (S39). having: the names of the Nodes that have an
    identity, by its key."""
    for key, words in identities_of(node).items():
        names = having(key)
        some = list(islice((name for name in names if name != node.name), MOST_NAMED))
        if some:
            more = len(names) - len(some) - (node.name in names)
            others = ", ".join(some) + (f" and {more} more" if more else "")
            return f"Node/{node.name} has the same {words} as {others}: find out which of them is that machine"
    return ""


def claimed_otherwise(node: NodeView, machines: Iterable[MachineView]) -> str:
    """Which other Machine claims this Node, as a sentence; "" for none (S39): it has the Node's providerID and another Node, or
    it has it as another Machine of its API does that is not being deleted, or it has no providerID and names this Node beside the
    Machine that has its providerID. A Machine that names no Node may be the Node's own."""
    ours, find_out = machine_behind(node.provider_id), "find out which of them is that machine"
    known = [each for each in machines if of_one_cluster(each, node)] if ours else []
    same = [each for each in known if machine_behind(each.provider_id) == ours]
    for machine in same:
        if machine.node_name not in {"", node.name}:
            what = f"the same providerID {node.provider_id} as Machine/{machine.namespace}/{machine.name}"
            return f"Node/{node.name} has {what} of Node/{machine.node_name}: {find_out}"
    live: dict[MachineApi, MachineView] = {}
    for machine in sorted(same, key=lambda each: each.key):
        if not machine.deleting and (twin := live.setdefault(machine.api, machine)) is not machine:
            both = f"Machine/{twin.namespace}/{twin.name} and of Machine/{machine.namespace}/{machine.name}"
            return f"Node/{node.name} has the providerID {node.provider_id}, and so it is that of {both}: {find_out}"
    own = {each.api for each in same if each.node_name == node.name}
    for machine in known:
        if machine.node_name == node.name and not machine.provider_id and machine.api in own:
            what = f"is named by Machine/{machine.namespace}/{machine.name}, which says no providerID"
            return f"Node/{node.name} {what}, and by the Machine that has its: {find_out}"
    return ""


def cluster_of(machine: MachineView) -> str:
    """Namespace and name of the Machine's Cluster API Cluster, "" if it has none."""
    return f"{machine.namespace}/{machine.cluster_name}" if machine.api is CLUSTER_API else ""


def cluster_named_by(node: NodeView | None) -> str:
    """Namespace and name of the Node's Cluster, as Cluster API writes it there, "" if it has none."""
    if node is None:
        return ""
    name, namespace = (node.annotations.get(each, "") for each in (CLUSTER_NAME_ANNOTATION, CLUSTER_NAMESPACE_ANNOTATION))
    return f"{namespace}/{name}" if is_object_name(name) and is_object_name(namespace) else ""


def clusters_of(node: NodeView | None, machines: Iterable[MachineView]) -> tuple[str, ...]:
    """The Clusters of the Node and of its Machines: namespace and name of each."""
    named = (cluster_named_by(node), *(cluster_of(each) for each in machines if each.cluster_name))
    return tuple(dict.fromkeys(filter(None, named)))


def of_one_cluster(machine: MachineView, node: NodeView | None) -> bool:
    """Whether a Node of the right name may be the Machine's: names of Nodes repeat between workload clusters, and a stranger may
    write any name (S46)."""
    if node is None or (machine.uncounted and not _names(node, machine)):
        return False
    says = cluster_named_by(node)
    return not says or machine.api is not CLUSTER_API or says == cluster_of(machine)


def _names(node: NodeView, machine: MachineView) -> bool:
    """Whether each of them names the other."""
    return machine.node_name == node.name and (machine.api, machine.namespace, machine.name) in named_by(node)


def taken_name(machine: MachineView, node: NodeView | None) -> str:
    """How the providerIDs of the Node and of the Machine that names it differ; "" if they agree, or one is unknown (S9).
    machine-controller-manager spells regions and accounts its own way: of its Machines only the last part is compared."""
    if node is None or not machine.provider_id or not node.provider_id:
        return ""
    ours, theirs = machine_behind(machine.provider_id), machine_behind(node.provider_id)
    if ours == theirs or (machine.api is MCM and ours.rpartition("/")[2] == theirs.rpartition("/")[2]):
        return ""
    both = f"Node/{node.name} has the providerID {node.provider_id}, Machine/{machine.namespace}/{machine.name}"
    return f"{both} has {machine.provider_id}: the name is another machine's by now"


def may_be_its_node(machine: MachineView, node: NodeView | None) -> bool:
    """Whether a Node of the right name, or with the right claims, may be the Machine's."""
    return of_one_cluster(machine, node) and not taken_name(machine, node)


def of_control_plane(node: NodeView | None, machine: MachineView | None) -> bool:
    """Whether one of them says that it is a member of the control plane (S15)."""
    return (machine is not None and machine.control_plane) or (node is not None and node.control_plane)


# System UUIDs (SMBIOS), as a Node shows them and as a management controller reports them.

PLACEHOLDERS = frozenset(
    {
        "03000200-0400-0500-0006-000700080009",  # American Megatrends' default
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "fefefefe-fefe-fefe-fefe-fefefefefefe",
    }
)
"""System UUIDs that firmware has if its vendor did not write one: thousands of machines have them, so they identify none."""

_DIGITS = re.compile(r"[0-9a-f]{32}")
_EMPTY = frozenset(bytes.fromhex(each.replace("-", "")) for each in PLACEHOLDERS)


def is_placeholder_uuid(uuid: str) -> bool:
    return uuid.casefold() in PLACEHOLDERS or len(set(uuid) - {"-"}) <= 1


def same_system(reported: str, shown: str) -> bool | None:
    """Whether a device's GUID is the system UUID that a Node shows; None where they can't be compared.

    Firmwares disagree on the byte order of a GUID (SMBIOS, RFC 4122, wholly reversed), so each is accepted.
    """
    theirs, ours = _read(reported), _read(shown)
    if theirs is None or ours is None:
        return None
    orders = {_swapped(theirs), theirs, theirs[::-1], _swapped(theirs[::-1]), _swapped(theirs)[::-1]}
    return None if orders & _EMPTY or ours in _EMPTY else ours in orders


def _read(uuid: str) -> bytes | None:
    """None for a text that is no UUID, or that repeats one digit."""
    digits = uuid.casefold().replace("-", "")
    return bytes.fromhex(digits) if _DIGITS.fullmatch(digits) and len(set(digits)) > 1 else None


def _swapped(uuid: bytes) -> bytes:
    """With its first three fields in the other byte order, as SMBIOS keeps them."""
    return uuid[3::-1] + uuid[5:3:-1] + uuid[7:5:-1] + uuid[8:]
