"""Every right of nodewarden in Kubernetes, and why: what `nodewarden deploy rbac` prints.

What is followed of a cluster is the table of `activities/cluster/watch/kinds.py`, from which the rights to it are made; a kind
with a row there that no line here mentions comes last. What is written, and what is read otherwise, stands here.

tests/deploy/test_rbac.py runs whole episodes under these rights and fails for a missing verb as well as for one that nothing
needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from activities.cluster.api import paths
from activities.cluster.api.paths import Resource
from activities.cluster.watch.kinds import KINDS, ReadKind
from policy.episode.fencing_requests import GROUP as FENCE_AGENTS
from policy.episode.node_action import NAMESPACE as ACTIONS
from policy.episode.node_action import POLICY
from policy.remediation.remediation_objects import REMEDIATORS
from policy.values.errors import PolicyError
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT
from policy.values.object_refs import FENCE_NAMESPACE, is_object_name
from starter.deploy.features import SHIPPED, Feature, Process
from starter.deploy.manifests import WHY

# Where a right holds, and the rights ---------------------------------------------------------------------------------------

NAMESPACE = FENCE_NAMESPACE
"""Of the workers, and of whatever decides on machines."""

LEASES_NAMESPACE = "medik8s-leases"
"""Of the node leases. It may be medik8s' own."""

SIGNING_KEYS = "nodewarden-signing-keys"
PAYLOAD_KEYS = "nodewarden-payload-keys"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A Role of its own in one namespace, for what is not needed in the whole cluster."""

    role: str
    namespace: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One rule. features: it is there for any of them, and always where none is named. place: None for the whole cluster.
    processes: who needs it where processes have ServiceAccounts of their own. Empty `why`: it belongs to the rule before it.
    """

    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ("",)
    names: tuple[str, ...] = ()
    why: str = ""
    features: frozenset[Feature] = frozenset()
    place: Place | None = None
    processes: frozenset[Process] = frozenset({Process.CLUSTER})


@dataclass(frozen=True, slots=True)
class Followed:
    """The rights to follow these resources, as the table of kinds has them. also: further verbs. The rest as of a right."""

    resources: tuple[Resource, ...]
    _: KW_ONLY
    also: tuple[str, ...] = ()
    why: str = ""
    place: Place | None = None


def _for(*features: Feature) -> frozenset[Feature]:
    return frozenset(features)


_LOOK = ("get", "list", "watch")
_POWER = frozenset({Process.POWER})
_MACHINES = (OPENSHIFT.group, CLUSTER_API.group)
_OTHERS = _for(Feature.REMEDIATION_TEMPLATES)

_CLUSTER_LEASE = Place(
    role="nodewarden-cluster-lease",
    namespace="kube-system",
    why="The cluster lease: one scanner per cluster (S38). A create cannot be limited to a name.",
)
_NODE_LEASES = Place(
    role="nodewarden-node-leases", namespace=LEASES_NAMESPACE, why="One lease per node that an episode has in hand."
)
_FENCE_CONFIGURATION = Place(
    role="nodewarden-fence-configuration",
    namespace=NAMESPACE,
    why="Fence configuration in ConfigMaps, read by name in the namespace that the setting `fence_namespace` names"
    " (`nodewarden`). Who may write there decides on machines. To keep it elsewhere, repeat this Role and its binding"
    " there, and name the Secrets beside them (secret-fence-method-<method>-<node>) with `--secrets`.",
)
_NODE_EVENTS = Place(
    role="nodewarden-node-events",
    namespace="default",
    why="Recent Events of a Node (the policy skip-if-host-lost-storage, and evidence): Events about objects without a"
    " namespace are in `default`, and a list by field selector is the only way to ask for those of one Node.",
)
_ACTIONS = Place(
    role="nodewarden-commands",
    namespace=ACTIONS,
    why="Commands of people, as Kubernetes attests them: answered in their status, and deleted after a day.",
)
_KUBELET_LEASES = Place(
    role="nodewarden-kubelet-leases",
    namespace="kube-node-lease",
    why="Whether a kubelet that is not Ready renews its Lease all the same (the policy skip-if-host-renews-lease).",
)
_CREDENTIALS = Place(
    role="nodewarden-credentials",
    namespace=NAMESPACE,
    why="Credentials of power devices: read by name, in this namespace only. Keep FencingTemplates and their Secrets here."
    " Which Secrets these are is best said (`nodewarden deploy rbac --secrets bmc,other-namespace/bmc`): then no others"
    " are read, and those of templates elsewhere can be.",
)
_SIGNING_KEYS = Place(
    role=SIGNING_KEYS,
    namespace=NAMESPACE,
    why="The keys with which the workers verify each other's messages (worker.signing_keys_secret), and those that encrypt what"
    " Temporal stores (temporal.payload_keys_secret). The first worker fills them, and applying this again leaves them alone;"
    " docs/security.md says how to change a key. A reader of the first can license power acts: give no other account the right.",
)

_RIGHTS: tuple[Right | Followed, ...] = (
    Followed(
        (paths.NODES,),
        also=("patch",),
        why="Judged from a watch; marked, cordoned and tainted by a patch with preconditions; admission.yaml"
        " limits its fields. Never created.",
    ),
    Right(
        why="Last of all, for a fence configuration with the method delete-node; without this right such an episode asks for"
        " a person.",
        resources=("nodes",),
        verbs=("delete",),
        features=_for(Feature.DELETE_NODE),
    ),
    Right(
        why="Whether and until when it is preserved stands among its conditions.",
        resources=("nodes/status",),
        verbs=("patch",),
        features=_for(Feature.PRESERVATION),
    ),
    Right(why="What keeps a node from being acted on.", resources=("pods",), verbs=("list",)),
    Followed((paths.VOLUME_ATTACHMENTS,)),
    Right(
        why='What holds a node that is proven off. RBAC cannot say "proven off": safety rule S1 does.',
        resources=("pods",),
        verbs=("delete",),
        features=_for(Feature.FENCING),
    ),
    Right(groups=("storage.k8s.io",), resources=("volumeattachments",), verbs=("delete",), features=_for(Feature.FENCING)),
    Right(
        why="A drain asks, and disruption budgets answer. What a DaemonSet keeps on the node is left there, unless it is no"
        " more.",
        resources=("pods/eviction",),
        verbs=("create",),
        features=_for(Feature.DRAIN),
    ),
    Right(groups=("apps",), resources=("daemonsets",), verbs=("get",), features=_for(Feature.DRAIN)),
    Right(
        why="Which volume a pod's claim is bound to, and whether it lies behind a path that was cut.",
        resources=("persistentvolumeclaims", "persistentvolumes"),
        verbs=("get",),
    ),
    Followed(
        (paths.CUSTOM_RESOURCE_DEFINITIONS,),
        why="When a kind comes to be served that was unknown so far; names and versions are read, no schema. Without this"
        " right kinds that are installed later are noticed within five minutes. In a management cluster as well.",
    ),
    Followed((paths.NODE_HEALTH_CHECKS,), why="The policies, and where their state is reported."),
    Right(
        groups=("remediation.medik8s.io",),
        resources=("nodehealthchecks/status",),
        verbs=("patch",),
        features=_for(Feature.HEALTH_CHECKS),
    ),
    Followed(
        (
            paths.OPENSHIFT_MACHINE_HEALTH_CHECKS,
            paths.CAPI_MACHINE_HEALTH_CHECKS,
            paths.MACHINES[OPENSHIFT],
            paths.MACHINES[CLUSTER_API],
        ),
        why="The same for Machines: OpenShift's health checks, and Cluster API's with the Clusters that they are about. In a"
        " management cluster only these are needed.",
    ),
    Right(
        groups=_MACHINES,
        resources=("machinehealthchecks/status",),
        verbs=("patch",),
        features=_for(Feature.MACHINES),
    ),
    Right(
        why="What a health check thinks of a Machine of Cluster API stands on the Machine.",
        groups=(CLUSTER_API.group,),
        resources=("machines/status",),
        verbs=("patch",),
        features=_for(Feature.MACHINES),
    ),
    Followed((paths.CAPI_CLUSTERS,)),
    Right(
        why="Before a member of a control plane is taken: who looks after it there, and whether OpenShift's etcd can do"
        " without one. The Nodes and pods of the others are read for it, too.",
        groups=("controlplane.cluster.x-k8s.io",),
        resources=("kubeadmcontrolplanes",),
        verbs=("get",),
    ),
    Right(groups=("policy",), resources=("poddisruptionbudgets",), verbs=("list",)),
    Right(
        why="Annotated with what was done about it, or with the expiry of what is kept; and deleted, by uid and version, when"
        " it has failed and is no longer kept, for its owner to replace it. Never created.",
        groups=_MACHINES,
        resources=("machines",),
        verbs=("patch", "delete"),
        features=_for(Feature.MACHINES, Feature.PRESERVATION),
    ),
    Followed((paths.MACHINES[MCM], paths.MACHINE_SETS[MCM], paths.MACHINE_DEPLOYMENTS[MCM])),
    Right(
        why="There the expiry stands in the Machine's status, and the sets above it say how many are kept, and for how long.",
        groups=(MCM.group,),
        resources=("machines",),
        verbs=("patch", "delete"),
        features=_for(Feature.PRESERVATION),
    ),
    Right(groups=(MCM.group,), resources=("machines/status",), verbs=("patch",), features=_for(Feature.PRESERVATION)),
    Right(
        why="Of a kept Machine that others delete: whether its set is scaled to nothing, or rolled, which is reported.",
        groups=(OPENSHIFT.group,),
        resources=("machinesets",),
        verbs=("get",),
    ),
    Right(groups=(CLUSTER_API.group,), resources=("machinesets",), verbs=("get", "list")),
    Right(groups=(CLUSTER_API.group,), resources=("machinedeployments",), verbs=("get",)),
    Followed((paths.CLUSTER_VERSIONS,), why="Whether OpenShift is being upgraded."),
    Followed((paths.MACHINE_CONFIG_POOLS,)),
    Followed(
        (paths.FENCE_AGENTS_REMEDIATIONS,),
        why="What asks for single nodes, or was asked of other controllers; their templates are read below.",
    ),
    Right(
        why="What other controllers are asked for by a health check that names their template: one object, created once, told"
        " when its time is over, taken back. Templates of other groups need a rule like these two each. The resource of a"
        " kind is found by discovery, which every authenticated client may read. FenceAgentsRemediations of others ask for"
        " single nodes.",
        groups=("fence-agents-remediation.medik8s.io",),
        resources=("fenceagentsremediations",),
        verbs=("create", "patch", "delete"),
        features=_OTHERS,
    ),
    *(
        right
        for group, kind in ((each.group, each.kind.lower()) for each in REMEDIATORS if each.group != FENCE_AGENTS)
        for right in (
            Right(groups=(group,), resources=(f"{kind}s",), verbs=(*_LOOK, "create", "patch", "delete"), features=_OTHERS),
            Right(groups=(group,), resources=(f"{kind}templates",), verbs=_LOOK, features=_OTHERS),
        )
    ),
    Right(
        groups=("fence-agents-remediation.medik8s.io",),
        resources=("fenceagentsremediationtemplates",),
        verbs=_LOOK,
        features=_OTHERS,
    ),
    Right(
        why="Where those who ask for single nodes are answered.",
        groups=("fence-agents-remediation.medik8s.io",),
        resources=("fenceagentsremediations/status",),
        verbs=("patch",),
        features=_OTHERS,
    ),
    Followed(
        (paths.LEASES,),
        why="Whether the controllers that health checks and these come from, and a scan of ours, are at work, too.",
    ),
    Followed(
        (paths.FENCING_TEMPLATES, paths.VOLUME_DETACHMENTS),
        why="How nodes are fenced. Which FenceConfig is about a node stands in each of them; which conditions of a node tell"
        " of failed volumes, in a VolumeDetachmentTemplate. All templates are watched: a health check with a missing template"
        " says so.",
    ),
    Followed((paths.FENCE_CONFIGS, paths.MACHINE_DELETIONS, paths.REBOOTS)),
    Right(
        why="Episodes as the node-fencing proposal shows them: one object per node, taken away some time after the end.",
        groups=("nodewarden.io",),
        resources=("nodefences",),
        verbs=("get", "list", "create", "update", "delete"),
        features=_for(Feature.NODE_FENCE),
    ),
    Right(
        groups=("ha.k8s.io",),
        resources=("nodefences",),
        verbs=("get", "list", "create", "update", "delete"),
        features=_for(Feature.PROPOSED_NODE_FENCE),
    ),
    Followed((paths.PRESERVATION_POLICIES,), why="How many failed machines of a pool are kept."),
    Right(
        why="Whether the API server refuses a NodeAction in another person's name.",
        groups=("admissionregistration.k8s.io",),
        resources=("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        names=(POLICY,),
        verbs=("get",),
    ),
    Right(
        why="Events stand in the namespace of the object that they are about; those about nodes in `default`.",
        resources=("events",),
        verbs=("get", "create", "patch"),
    ),
    Right(
        why="Its uid is the cluster's identity: nothing is done, and no credential read, in another one of the same name.",
        resources=("namespaces",),
        names=("kube-system",),
        verbs=("get",),
        processes=frozenset({Process.CLUSTER, Process.POWER}),
    ),
    Right(
        why="Who the caller is, and whether it may: asked by the proxy before the metrics, for each request.",
        groups=("authentication.k8s.io",),
        resources=("tokenreviews",),
        verbs=("create",),
        features=_for(Feature.METRICS_PROXY),
        processes=frozenset(Process),
    ),
    Right(
        groups=("authorization.k8s.io",),
        resources=("subjectaccessreviews",),
        verbs=("create",),
        features=_for(Feature.METRICS_PROXY),
        processes=frozenset(Process),
    ),
    Right(groups=("coordination.k8s.io",), resources=("leases",), verbs=("create",), place=_CLUSTER_LEASE),
    Right(
        groups=("coordination.k8s.io",),
        resources=("leases",),
        names=("nodewarden",),
        verbs=("get", "update", "delete"),
        place=_CLUSTER_LEASE,
    ),
    Right(
        groups=("coordination.k8s.io",),
        resources=("leases",),
        verbs=("get", "create", "update", "delete"),
        place=_NODE_LEASES,
    ),
    Followed(
        (paths.CONFIG_MAPS,),
        why="Listed and watched for fence-cluster-config and the policies that it names: a policy's name is free, so that no"
        " right can be limited to it, and a limit or a switch that is only read from time to time would be seen too late.",
        place=_FENCE_CONFIGURATION,
    ),
    Right(
        why="Credentials in lines of the configuration itself.",
        resources=("configmaps",),
        verbs=("get",),
        place=_FENCE_CONFIGURATION,
        features=_for(Feature.FENCE_CONFIGMAPS),
        processes=_POWER,
    ),
    Right(resources=("events",), verbs=("list",), place=_NODE_EVENTS),
    Right(groups=("coordination.k8s.io",), resources=("leases",), verbs=("get",), place=_KUBELET_LEASES),
    Followed((paths.NODE_ACTIONS,), also=("delete",), place=_ACTIONS),
    Right(groups=("nodewarden.io",), resources=("nodeactions/status",), verbs=("patch",), place=_ACTIONS),
    Right(resources=("secrets",), verbs=("get",), place=_CREDENTIALS, features=_for(Feature.FENCING), processes=_POWER),
    Right(resources=("secrets",), verbs=("get",), place=_CREDENTIALS, features=_for(Feature.FENCE_CONFIGMAPS)),
    Right(resources=("secrets",), names=(SIGNING_KEYS, PAYLOAD_KEYS), verbs=("get", "update"), place=_SIGNING_KEYS),
    Right(
        why="Filled by a worker of the cluster: one beside the devices ends, and is started anew, until that is done.",
        resources=("secrets",),
        names=(SIGNING_KEYS, PAYLOAD_KEYS),
        verbs=("get",),
        place=_SIGNING_KEYS,
        processes=_POWER,
    ),
    Right(
        resources=("secrets",),
        names=(PAYLOAD_KEYS,),
        verbs=("get",),
        place=_SIGNING_KEYS,
        processes=frozenset({Process.WORKFLOWS}),
    ),
)


def rights_to(kinds: Iterable[ReadKind]) -> tuple[Right, ...]:
    """All rights, in the order in which they are printed, of a deployment that follows these kinds."""
    followed = [kind for kind in kinds if kind.verbs]
    found: list[Right] = []
    for each in _RIGHTS:
        if isinstance(each, Right):
            found.append(each)
        else:
            found += _rights([kind for resource in each.resources for kind in followed if kind.resource == resource], each)
    mentioned = {resource for each in _RIGHTS if isinstance(each, Followed) for resource in each.resources}
    for kind in followed:
        found += _rights([kind], Followed(resources=())) if kind.resource not in mentioned else []
    return tuple(found)


def _rights(rows: list[ReadKind], line: Followed) -> list[Right]:
    """One rule for all groups with the same resources, since a rule is about each of its resources in each of its groups."""
    groups: dict[str, list[ReadKind]] = {}
    for kind in rows:
        groups.setdefault(kind.resource.api_version.rpartition("/")[0], []).append(kind)
    rules: dict[tuple[str, ...], list[str]] = {}
    for group, there in groups.items():
        rules.setdefault(tuple(dict.fromkeys(kind.resource.plural for kind in there)), []).append(group)
    verbs = {verb for kind in rows for verb in kind.verbs}
    return [
        Right(
            groups=tuple(each),
            resources=resources,
            names=tuple(kind.only for kind in rows if kind.only),
            verbs=(*(verb for verb in _LOOK if verb in verbs), *line.also),
            why=line.why,
            place=line.place,
        )
        for resources, each in rules.items()
    ]


RIGHTS = rights_to(KINDS)


# What `nodewarden deploy rbac` prints, and deploy/rbac.yaml holds: namespaces, ServiceAccounts, Roles and their bindings -------

_GROUP = "rbac.authorization.k8s.io"
_HEAD = (
    "What nodewarden may do in a cluster, and nothing else: printed by `nodewarden deploy rbac`, which also prints less"
    " (`--help`). The namespace medik8s-leases comes first (medik8s-leases.yaml). tests/deploy/test_rbac.py runs a whole episode"
    " under these rules and fails for a missing verb as well as for one that nothing needs."
)
_LEASES = (
    "Node leases live here, shared with the medik8s operators. Shipped, so that the right to create namespaces is not needed; in"
    " a file of its own (`nodewarden deploy leases`), so that deleting our rights does not delete theirs."
)

Objects = list[dict[str, Any]]


def rbac(
    *,
    features: Collection[Feature] = SHIPPED,
    processes: Collection[Process] = (Process.ALL,),
    secrets: Iterable[str] = (),
) -> Objects:
    """secrets: the only ones that are read for devices, NAME or NAMESPACE/NAME; none named: all of nodewarden's namespace.

    Raises PolicyError for a name that is none.
    """
    named = _by_namespace(secrets)
    found: Objects = [{WHY: _HEAD, **_namespace(NAMESPACE)}]
    found += [_object("v1", "Secret", name, NAMESPACE, type="Opaque") for name in (SIGNING_KEYS, PAYLOAD_KEYS)]
    for process in processes:
        found += _of_process(process, features, named)
    return found


def leases() -> Objects:
    """The namespace of the node leases, which has to be there before the rights in it are applied."""
    return [{WHY: _LEASES, **_namespace(LEASES_NAMESPACE)}]


def _of_process(process: Process, features: Collection[Feature], named: dict[str, tuple[str, ...]]) -> Objects:
    account = process.account
    found: Objects = [_object("v1", "ServiceAccount", account, NAMESPACE)]
    rights = [each for right in RIGHTS if _needed(right, process, features) for each in _narrowed(right, named)]
    places = dict.fromkeys(right.place for right in rights)
    for place in places:
        rules = list(_rules(right for right in rights if right.place == place))
        found += _granted(account, process, place, rules)
    return found


def _needed(right: Right, process: Process, features: Collection[Feature]) -> bool:
    serves = process is Process.ALL or process in right.processes
    return serves and (not right.features or not right.features.isdisjoint(features))


def _narrowed(right: Right, named: dict[str, tuple[str, ...]]) -> Iterator[Right]:
    """The Secrets of devices by their names, where those are known."""
    if not named or right.resources != ("secrets",) or right.names:
        yield right
        return
    assert right.place is not None
    for namespace, names in named.items():
        yield replace(right, names=names, place=replace(right.place, namespace=namespace))


def _rules(rights: Iterable[Right]) -> Iterator[dict[str, Any]]:
    """Without those that are part of one before: what two processes need, one that is both needs once."""
    listed: list[Right] = []
    for right in rights:
        if any(_covers(each, right) for each in listed):
            continue
        listed.append(right)
        rule: dict[str, Any] = {WHY: _comment(right)} if right.why or right.features else {}
        rule |= {"apiGroups": right.groups, "resources": right.resources}
        if right.names:
            rule["resourceNames"] = right.names
        yield rule | {"verbs": right.verbs}


def _covers(one: Right, other: Right) -> bool:
    named = not one.names or (bool(other.names) and set(other.names) <= set(one.names))
    return (one.groups, one.resources) == (other.groups, other.resources) and named and set(other.verbs) <= set(one.verbs)


def _comment(right: Right) -> str:
    features = ", ".join(sorted(right.features))
    return " ".join(part for part in (f"[{features}]" if features else "", right.why) if part)


def _granted(account: str, process: Process, place: Place | None, rules: Objects) -> Objects:
    suffix = "" if process is Process.ALL else f"-{process}"
    name, namespace = (account, "") if place is None else (f"{place.role}{suffix}", place.namespace)
    kind = "ClusterRole" if place is None else "Role"
    role = _object(f"{_GROUP}/v1", kind, name, namespace, rules=rules)
    binding = _object(
        f"{_GROUP}/v1",
        f"{kind}Binding",
        name,
        namespace,
        roleRef={"apiGroup": _GROUP, "kind": kind, "name": name},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    )
    return [role if place is None else {WHY: place.why, **role}, binding]


def _by_namespace(secrets: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for each in secrets:
        namespace, _, name = each.rpartition("/")
        if not is_object_name(name) or not is_object_name(namespace or NAMESPACE):
            raise PolicyError("--secrets", each, "expected the name of a Secret, or NAMESPACE/NAME")
        key = namespace or NAMESPACE
        found[key] = (*found.get(key, ()), name)
    return found


def _namespace(name: str) -> dict[str, Any]:
    return _object("v1", "Namespace", name)


def _object(version: str, kind: str, name: str, namespace: str = "", **parts: Any) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}
