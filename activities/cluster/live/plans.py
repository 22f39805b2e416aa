"""Which fence configuration holds for a node, and the plan it becomes: resolved at the start of an episode, then kept. A last
look resolves it again and compares the devices (S9); only a person's `resume` takes another plan, while no device was touched.

The order: the template the request names, else the one the node's health checks name, else a FenceConfig that is about the node,
else ConfigMaps of the node-fencing proposal, else the only FencingTemplate in the cluster, else the default: the instance of the
providerID. Whatever is ambiguous or unreadable is refused with what to write, and nothing else is fallen back to: a wrong fence
configuration shoots the wrong machine. How each kind is read is `policy/fence/`; no secret is read here, plans carry references
only (S12).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import (
    CAPI_MACHINE_HEALTH_CHECKS,
    CONFIG_MAPS,
    FENCE_CONFIGS,
    FENCING_TEMPLATES,
    LEASES,
    NODE_HEALTH_CHECKS,
    OPENSHIFT_MACHINE_HEALTH_CHECKS,
    SECRETS,
    Resource,
)
from activities.cluster.api.refusals import ObjectNotFound, unless_gone
from activities.cluster.api.served_cluster import as_served
from activities.cluster.objects.fencing_requests import find_request, plan_asked_for
from activities.cluster.objects.live_machines import Subject, find_check, find_target, machines_by_node
from activities.cluster.objects.object_reader import ApiReader, Readers, list_counting
from activities.errors import ErrorType, as_invalid_config, error_type, failure
from policy.checks.fence_policies import DEFAULT_SOURCE, FencePolicies, PolicySource, stricter
from policy.checks.health_check import HealthCheck
from policy.checks.rules import Rules, rules_of
from policy.checks.verdict import JudgedTarget
from policy.dialects import parse
from policy.dialects.node_fencing import CLUSTER_CONFIG, POLICY_PREFIX, parse_cluster_config, read_policies
from policy.episode.fencing_requests import by_devices_of, read_request
from policy.episode.messages import Kind, Need, NeedKind
from policy.episode.proofs import lists
from policy.fence.config import FenceConfig
from policy.fence.configmap_methods import ConfigMap, Forbidden, Found, LookupKind, ObjectLookup, ObjectName
from policy.fence.configmaps import read_config_maps, winner_for
from policy.fence.plan import FencingPlan, isolation_plan
from policy.fence.plan_compiler import Findings, compile_config
from policy.fence.power import PowerAct
from policy.fence.template_reader import (
    FenceConfigs,
    SpecReader,
    is_fencing_template,
    read_fencing_template,
    why_untrusted,
)
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.remediation.ladder import body_of, ladder_of, read_strategies
from policy.remediation.strategy_rules import RULES, Strategy
from policy.values.errors import PolicyError, shown
from policy.values.object_refs import ObjectRef
from policy.values.times import moment_of

# Fence configuration from ConfigMaps and Secrets, read by name from one namespace until a reader has seen all it wants.
#
# Nothing is listed. Of a Secret only the names of its keys leave this module (S12). What the objects mean is `policy/fence/`.

MOST_ROUNDS = 8
"""Objects name others, at most a few steps deep: configuration, methods, templates, Secrets."""

Answer = TypeVar("Answer")


async def answered(reader: ApiReader, namespace: str, read: Callable[[ObjectLookup], Answer]) -> Answer:
    """What `read` makes of the objects, once it misses none. Errors: those of reading the API; an object that we may not see is
    no error here, but something that the reader is given."""
    objects: dict[ObjectName, Found] = {}
    for _ in range(MOST_ROUNDS):
        lookup = ObjectLookup(namespace, objects)
        answer = read(lookup)
        if not lookup.wanted:
            return answer
        for name in lookup.wanted:
            objects[name] = await _fetched(reader, namespace, name)
    raise failure(ErrorType.INVALID_CONFIG, f"the fence configuration in {namespace} names objects that name objects without end")


async def _fetched(reader: ApiReader, namespace: str, wanted: ObjectName) -> Found:
    resource = SECRETS if wanted.kind is LookupKind.SECRET else CONFIG_MAPS
    try:
        found = await reader.get(resource.path(wanted.name, namespace=namespace))
    except ObjectNotFound:
        return None
    except ApplicationError as error:
        if error_type(error) is not ErrorType.FORBIDDEN:
            raise
        return Forbidden(reason=error.message)
    if wanted.kind is LookupKind.SECRET:
        return tuple(sorted({*(found.get("data") or {}), *(found.get("stringData") or {})}))
    data = found.get("data") or {}
    if not isinstance(data, Mapping):
        return Forbidden(reason=f"data: expected texts by their keys, got {shown(data)}")
    return ConfigMap(name=wanted.name, namespace=namespace, data=data)


TAINT_HONOURED_SINCE = (1, 26)
"""Since then PodGC and attach-detach act on the out-of-service taint without a feature gate set by hand."""

TEMPLATE_GROUP = FENCING_TEMPLATES.api_version.partition("/")[0]
HOW_TO = (
    f"write a {FENCING_TEMPLATES.kind} ({FENCING_TEMPLATES.api_version}) and name it in the request's `template`,"
    " or in the remediationTemplate of a health check that covers the node"
)
MAXIMUM_NAMED = 5

CHECKS = (NODE_HEALTH_CHECKS, OPENSHIFT_MACHINE_HEALTH_CHECKS, CAPI_MACHINE_HEALTH_CHECKS)


async def plan_for(
    connections: Readers,
    node: NodeView,
    template: ObjectRef | None,
    need: Need,
    *,
    source: PolicySource = DEFAULT_SOURCE,
) -> FencingPlan:
    """The plan for this node. source: where configuration is read. Errors: InvalidConfig, saying what to write."""
    version = await connections.nodes.server_version()
    honoured = (version.major, version.minor) >= TAINT_HONOURED_SINCE
    if need.kind is NeedKind.CLEAN_UP:
        # Only marks are removed: nothing of it touches a device, so a cluster without templates can be cleaned too.
        return FencingPlan(source="clean-up", levels=(), taint_honoured=honoured)
    asked, reader = None, connections.nodes
    if need.kind is NeedKind.FOREIGN_OBJECT:
        asked = await plan_asked_for(reader, need, node.name, source.requests, taint_honoured=honoured)
        template, need = None, Need()  # which devices are the node's only the operator's own configuration says (S46)
    config = await configuration_for(connections, node, template, need, source=source)
    if config.errors:
        more = f"; and {len(config.errors) - MAXIMUM_NAMED} more" if len(config.errors) > MAXIMUM_NAMED else ""
        raise failure(ErrorType.INVALID_CONFIG, "; ".join(config.errors[:MAXIMUM_NAMED]) + more)
    with as_invalid_config():
        own = compile_config(config, taint_honoured=honoured, after_health_check=need.kind is NeedKind.CHECK)
        return by_devices_of(asked, own) if asked is not None else own


async def configuration_for(
    connections: Readers,
    node: NodeView,
    template: ObjectRef | None,
    need: Need,
    *,
    source: PolicySource = DEFAULT_SOURCE,
) -> FenceConfig:
    """The configuration that holds, its errors in it. Errors: InvalidConfig where it is not clear which one does."""
    return await Configurations(connections, source).of(node, template, need)


class Configurations:
    """How the nodes of a cluster are fenced, as its readers have it: each check, template and FenceConfig is understood once,
    however many nodes are asked for. It never reads again what it has understood."""

    def __init__(self, connections: Readers, source: PolicySource = DEFAULT_SOURCE) -> None:
        self._connections, self._source = connections, source
        self._unreadable: list[str] = []
        self._checks: dict[Resource, list[tuple[ObjectRef, HealthCheck, Rules]]] = {}
        """Those that name a template of ours: the first one, the check, and which nodes it covers."""
        self._machines: dict[str, Mapping[str, list[MachineView]]] = {}
        self._templates: dict[ObjectRef, SpecReader] = {}
        self._fence_configs: FenceConfigs | None = None

    async def of(self, node: NodeView, template: ObjectRef | None = None, need: Need | None = None) -> FenceConfig:
        """The node's, its errors in it. template: what the request names. Errors: InvalidConfig where it is not clear which
        configuration holds."""
        reader, source = self._connections.nodes, self._source
        chosen = await self._template_named(node, template, need or Need())
        with as_invalid_config():
            if chosen is not None:
                return (await self._template(*chosen)).of(node)
            if self._fence_configs is None:
                self._fence_configs = FenceConfigs(await all_of(reader, FENCE_CONFIGS.path()))
            own = self._fence_configs.holding(node)
            winner = await answered(reader, source.namespace, lambda lookup: winner_for(node, lookup, Findings()))
            if own is not None and winner.holder is not None:
                found = f"{own.subject} and {winner.subject}"
                raise failure(ErrorType.INVALID_CONFIG, f"Node/{node.name}: {found} are both about it: keep one of them")
            if own is not None:
                return own.of(node)
            only = await _only_template(reader, node, self._unreadable, source) if winner.holder is None else None
            if only is not None:
                metadata = only["metadata"]
                return self._understood(FENCING_TEMPLATES.ref(metadata["name"], metadata["namespace"]), only).of(node)
            return await answered(reader, source.namespace, lambda lookup: read_config_maps(node, lookup))

    async def _template_named(self, node: NodeView, template: ObjectRef | None, need: Need) -> tuple[ObjectRef, str] | None:
        """The template that the request or the node's health checks name, and which of them; None where none is named."""
        if template is not None:
            await _require_named(self._connections, template, need)
            return template, "the request"
        named = await self._named_by_checks(node, need)
        if len(named) > 1:
            raise failure(
                ErrorType.INVALID_CONFIG,
                f"Node/{node.name}: its health checks name different templates ({_listed(each.key for each in named)}):"
                " name one in the request's `template`",
            )
        return next(((ref, check.key) for ref, check in named.items()), None)

    async def _named_by_checks(self, node: NodeView, need: Need) -> dict[ObjectRef, ObjectRef]:
        """Templates of ours that checks covering the node, or a Machine of it, name first, with the check. The need's own check
        goes first."""
        named: dict[ObjectRef, ObjectRef] = {}
        for resource in CHECKS:
            if resource not in self._checks:
                self._checks[resource] = [
                    (template, check, rules_of(check))
                    for check in await _checks_of(self._connections, resource, self._unreadable)
                    for template in [rung.template for rung in check.rungs if is_fencing_template(rung.template)][:1]
                ]
            for rung, check, rules in self._checks[resource]:
                if not await self._covers(check, rules, node):
                    continue
                if need.check is not None and check.ref.key == need.check.key:
                    return {rung: check.ref}
                named.setdefault(rung, check.ref)
        return named

    async def _covers(self, check: HealthCheck, rules: Rules, node: NodeView) -> bool:
        if check.of_machines and check.ref.key not in self._machines:
            self._machines[check.ref.key] = await machines_by_node(self._connections, check)
        return _covers(check, rules, node, self._machines.get(check.ref.key, {}))

    async def _template(self, ref: ObjectRef, named_by: str) -> SpecReader:
        if ref in self._templates:
            return self._templates[ref]
        return self._understood(ref, await _read(self._connections.nodes, ref, named_by, self._source.templates))

    def _understood(self, ref: ObjectRef, template: JsonObject) -> SpecReader:
        if ref not in self._templates:
            self._templates[ref] = read_fencing_template(template)
        return self._templates[ref]


async def _require_named(connections: Readers, template: ObjectRef, need: Need) -> None:
    """By which template a check has its nodes fenced only the check says, as it is now, and no request in its name (S42)."""
    document = await find_check(connections, need) if need.kind is NeedKind.CHECK else None
    if document is None:
        return  # a person names it; or a check that is gone, which licenses nothing
    with as_invalid_config():
        check = parse(document)
    if template not in [rung.template for rung in check.rungs]:
        raise failure(
            ErrorType.INVALID_CONFIG, f"{check.ref.key} does not name {template.key}, by which the request has it fenced"
        )


async def require_replacing(connections: Readers, need: Need, name: str) -> None:
    """Refuse to end with another machine where the check that asks wants no such step of that target, as it is now (S42). A check
    that is gone is the last look's to refuse. Raises Vetoed."""
    document = await find_check(connections, need) if need.kind is NeedKind.CHECK else None
    if document is None:
        return
    target = await find_target(connections, name)
    with as_invalid_config():
        check = parse(document)
        steps = ladder_of(check, body_of(target or JudgedTarget(name)))
    if not any(RULES[each.strategy].replaces for each in steps):
        raise failure(ErrorType.VETOED, f"{check.ref.key} names no step that replaces the machine of {name}; nothing was done")


def why_not_wanted(act: PowerAct, plan: FencingPlan | None, need: Need, asking: JsonObject | None, target: JudgedTarget) -> str:
    """Why no licence of that act is due although all else says go, "" where it is: an act is licensed that the node's plan has
    now, and a step of what asks for it (S42). plan: None where no device of a live node is configured. asking: the need's check,
    as it is now. Errors: InvalidConfig for a check that names steps which can't be read."""
    steps = set(Strategy)  # which ones a person wants is not always said
    if need.kind is NeedKind.CHECK and asking is not None:
        with as_invalid_config():
            steps = {each.strategy for each in ladder_of(parse(asking), body_of(target))}
    elif need.command is not None and need.command.spec.strategies:
        words = ", ".join(need.command.spec.strategies)
        with as_invalid_config():
            steps = {each.strategy for each in read_strategies(words, subject=target.name, field="strategies")}
    if act is PowerAct.TERMINATE and Strategy.FENCE not in steps:
        return f"what asks for {target.name} names no step that gives its machine up"
    if act is PowerAct.DETACH_VOLUME and Strategy.DETACH_VOLUMES in steps:
        return ""
    if plan is not None and lists(isolation_plan(plan) if need.kind is NeedKind.PRESERVATION else plan, act):
        return ""
    return f"{plan.source if plan is not None else 'what is configured now'} has no {act.value} of Node/{target.name}"


async def readable_checks(connections: Readers, unreadable: list[str]) -> AsyncIterator[HealthCheck]:
    """All health checks of all kinds. What can't be read of them is noted."""
    for resource in CHECKS:
        for check in await _checks_of(connections, resource, unreadable):
            yield check


async def _checks_of(connections: Readers, resource: Resource, unreadable: list[str]) -> list[HealthCheck]:
    """All health checks of a kind, in whatever version, but for those on their way out. What can't be read is noted."""
    reader = connections.of(resource.api_version)

    try:
        found = await as_served(resource, lambda version: list_counting(reader, version, connections.machine_namespaces)) or []
    except ApplicationError as error:
        if error_type(error) is not ErrorType.FORBIDDEN or resource is NODE_HEALTH_CHECKS:
            raise
        unreadable.append(f"{resource.plural}: {error.message}")  # a right that we were not given, where the kind is not used
        return []
    checks: list[HealthCheck] = []
    for each in found:
        if not each["metadata"].get("deletionTimestamp"):
            try:
                checks.append(parse(each))
            except PolicyError as error:
                unreadable.append(str(error))
    return checks


async def covers(connections: Readers, check: HealthCheck, node: NodeView) -> bool:
    """Whether it is about that node, or about a Machine of it."""
    return _covers(check, rules_of(check), node, await machines_by_node(connections, check) if check.of_machines else {})


def _covers(check: HealthCheck, rules: Rules, node: NodeView, machines: Mapping[str, Sequence[MachineView]]) -> bool:
    subject = Subject(of_machines=check.of_machines, machines=tuple(machines.get(node.name, ())))
    return any(rules.covers(target) for target in subject.targets(node))


async def _read(connection: ApiReader, ref: ObjectRef, named_by: str, trusted: Collection[str]) -> JsonObject:
    """trusted: where templates count. The namespace of a Machine health check is among them where settings name it: an
    account that may write Machines and checks there says which Machine a Node is, and must not say by which device it is off, too
    (S40, S46)."""
    if not is_fencing_template(ref):
        raise failure(
            ErrorType.INVALID_CONFIG,
            f"{named_by} names {ref.key} ({ref.api_version}), expected a {FENCING_TEMPLATES.kind} of {TEMPLATE_GROUP}",
        )
    if not ref.namespace:
        raise failure(ErrorType.INVALID_CONFIG, f"{named_by} names {ref.key} without its namespace")
    if counts := why_untrusted(ref, trusted):
        raise failure(ErrorType.INVALID_CONFIG, f"{named_by} names {ref.key}: {counts}")
    try:
        return await connection.get(FENCING_TEMPLATES.path(ref.name, namespace=ref.namespace))
    except ObjectNotFound as error:
        raise failure(ErrorType.INVALID_CONFIG, f"{named_by} names {ref.key}, which does not exist") from error


async def _only_template(reader: ApiReader, node: NodeView, unreadable: list[str], source: PolicySource) -> JsonObject | None:
    """The only template of a cluster without any other fence configuration, None where there is none. What an owner of another
    namespace has written there is none, and makes no other one ambiguous (S40)."""
    found = await templates_that_count(reader, source)
    if len(found) <= 1:
        return found[0] if found else None
    broken = f"; health checks that cannot be read: {'; '.join(unreadable[:MAXIMUM_NAMED])}" if unreadable else ""
    names = _listed(f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in found)
    raise failure(
        ErrorType.INVALID_CONFIG,
        f"Node/{node.name}: no health check names its template and there are several ({names}): {HOW_TO}{broken}",
    )


async def templates_that_count(reader: ApiReader, source: PolicySource) -> list[JsonObject]:
    """All FencingTemplates of the namespaces that settings name: those of others may be more than there is memory for (S41)."""
    places = dict.fromkeys(source.templates)
    return [each for place in places for each in await all_of(reader, FENCING_TEMPLATES.path(namespace=place))]


async def all_of(connection: ApiReader, path: str) -> list[JsonObject]:
    """All objects of a kind that may not be installed."""
    return await unless_gone(connection.list_objects(path)) or []


def _listed(names: Iterable[str]) -> str:
    whole = sorted(names)
    return ", ".join(whole[:MAXIMUM_NAMED]) + (" and more" if len(whole) > MAXIMUM_NAMED else "")


# A cluster's fence policies as they are at this moment, for a last look: never from the watch cache (S20).
#
# How they are written is `policy/dialects/node_fencing.py`; what a scan makes of them goes through `watch/intake.py`.

NODE_LEASES = "kube-node-lease"
"""The namespace in which every kubelet renews a Lease that is named as its node."""


async def live_policies(connection: ClusterConnection, source: PolicySource) -> FencePolicies:
    """All policies that hold now. Errors: NotLicensed for those that can't be used: what they were to say is not known."""
    cluster = await _config_map(connection, source, CLUSTER_CONFIG)
    if cluster is None:
        return source.policies
    try:
        written = {}
        for name in parse_cluster_config(cluster).names:
            found = await _config_map(connection, source, f"{POLICY_PREFIX}{name}")
            if found is not None:
                written[f"{POLICY_PREFIX}{name}"] = found
        return stricter(source.policies, read_policies(cluster, written))
    except PolicyError as error:
        raise failure(ErrorType.NOT_LICENSED, f"the fence policies can't be used: {error}") from error


async def lease_renewed(connection: ClusterConnection, node: str) -> datetime | None:
    """When the node's kubelet last renewed its Lease; None where there is none, or it does not say."""
    lease = await unless_gone(connection.get(LEASES.path(node, namespace=NODE_LEASES)))
    return moment_of((lease.get("spec") or {}).get("renewTime")) if lease is not None else None


async def _config_map(connection: ClusterConnection, source: PolicySource, name: str) -> JsonObject | None:
    return await unless_gone(connection.get(CONFIG_MAPS.path(name, namespace=source.namespace)))


# How far is believed what others ask for: the need in a workflow's input, and the author of a NodeAction.
#
# Any client of Temporal may start a workflow, and what it writes into the input is data.
#
# A person may want a node acted on, and a scanner says which check or which object does. Each of these is judged again by every
# last look, on live objects. This module settles, at the pin, what would switch a look off or stand for another's command.

OF_A_FENCING = frozenset({NeedKind.PERSON, NeedKind.CHECK, NeedKind.FOREIGN_OBJECT, NeedKind.CLEAN_UP})
OF_A_REMEDIATION = frozenset({NeedKind.PERSON, NeedKind.CHECK})


def kinds_for(workflow_type: str | None) -> Collection[NeedKind]:
    """The needs with which a workflow of that type may have a node pinned for a fencing. Its own preservation is no veto to
    the workflow that carries it out, so that no other may claim to do so (S21)."""
    return {NeedKind.PRESERVATION} if workflow_type == Kind.PRESERVATION.value else OF_A_FENCING


def require_kind(need: Need, kinds: Collection[NeedKind]) -> None:
    """Raises InvalidConfig for a need that is not of these kinds."""
    if need.kind not in kinds:
        expected = ", ".join(sorted(kind.value for kind in kinds))
        raise failure(ErrorType.INVALID_CONFIG, f"need.kind: expected one of {expected}, got {need.kind.value}")


async def with_live_delegate(connection: ApiReader, need: Need, node: str, namespaces: Collection[str]) -> Need:
    """Who may hold the node's lease although we act is what the object that asks says, of that node, and nothing else (S20).
    namespaces: where objects are obeyed."""
    if need.kind is not NeedKind.FOREIGN_OBJECT:
        return replace(need, delegate="")
    found = await find_request(connection, need, namespaces)
    if found is None:
        return replace(need, delegate="")  # the plan says that it is gone
    with as_invalid_config():
        request = read_request(found)
    if request.node != node:
        raise failure(ErrorType.INVALID_CONFIG, f"{request.ref.key} asks for node {request.node}, not for {node}")
    return replace(need, delegate=request.delegate)
