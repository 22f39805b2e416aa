"""The health checks and fence configuration of a cluster: whether they can be used, before a node dies.

The cluster is read once, as `nodewarden explain` reads it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import CONFIG_MAPS, NODES, SECRETS
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.api.served_cluster import Connections
from activities.cluster.live.plans import configuration_for
from activities.cluster.objects.decoding import NODE_DECODING
from activities.cluster.objects.object_reader import read_views, reading_once
from activities.errors import ErrorType, error_type
from policy.checks.fence_policies import PolicySource
from policy.episode.messages import Need
from policy.fence.device_check import devices_of
from policy.fence.plan import CredentialKind, CredentialRef, PowerDevice
from policy.fence.plan_compiler import compile_config
from policy.objects.nodes import NodeView
from policy.remediation.ladder import TemplateSight, Unusable
from policy.scan.evaluation import evaluate
from policy.values.display_text import counted, some_of
from policy.values.errors import PolicyError
from starter.doctor.findings import Finding, ok, problem, warning
from starter.output.evaluation import described
from starter.plans.live import read_live
from workers.configuration.settings import Settings

MOST_NODES = 200
MOST_NAMED = 5
AT_ONCE = 4
PLAN = "`nodewarden fence plan NODE` says why"


async def health_checks(settings: Settings, connection: ClusterConnection, machines: ClusterConnection | None) -> list[Finding]:
    """Whether each can be used, selects a target, and names templates that exist."""
    cluster = await read_live(settings, connection, machines, leased=False)
    found = [problem(described(each), "correct that object" if each.ref else "see `rights`") for each in cluster.mistakes]
    known = cluster.ledger.known(cluster.now)
    checks, lacking = evaluate(known), [each for each in known.bad.values() if each.reason is not Unusable.OBJECT]
    if not (checks or lacking):
        return [*found, warning("there is no health check: nothing is done but what people ask for", "write a NodeHealthCheck")]
    found += [problem(f"{each.reason}: {each.error}", "correct it, or name another template") for each in lacking]
    for check in checks:
        key = check.check.ref.key
        own = [warning(f"{key}: {each}", "correct its selector, or delete it") for each in check.warnings]
        own += [
            warning(f"{key} names {template.key}, and it is not known whether that exists: {seen.problem}", "grant `get` on it")
            for template, seen in cluster.templates[key].items()
            if seen.sight is TemplateSight.UNKNOWN
        ]
        found += own or [ok(f"{key}: {counted(check.counts.total, 'target')}, its templates exist")]
    return found


@dataclass(slots=True)
class _Named:
    """What nodes' configurations name. devices: of each credential one that needs it."""

    devices: dict[str, PowerDevice] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)


async def credentials(connection: ClusterConnection, machines: ClusterConnection | None, source: PolicySource) -> list[Finding]:
    """Whether the Secrets that nodes would be fenced with exist, and have the keys that are named. Only names stay."""
    nodes = await read_views(connection, NODES, NODE_DECODING)
    named = await _named(connection, machines, nodes[:MOST_NODES], source)
    without = defaultdict[str, list[str]](list)
    for node, why in named.unusable.items():
        without[why.replace(f"node-{node}", "node-NODE")].append(node)
    found = [
        warning(f"no fence configuration can be used for {some_of(affected, MOST_NAMED)}: {why}", PLAN)
        for why, affected in sorted(without.items(), key=lambda each: -len(each[1]))[:MOST_NAMED]
    ]
    objects: dict[str, frozenset[str] | Finding] = {}
    for device in named.devices.values():
        for reference in device.credentials:
            if reference.kind in {CredentialKind.SECRET, CredentialKind.CONFIG_MAP} and _key(reference) not in objects:
                objects[_key(reference)] = await _keys(connection, reference)
    found += [each for each in objects.values() if isinstance(each, Finding)]
    keys = {name: each for name, each in objects.items() if not isinstance(each, Finding)}
    found += dict.fromkeys(each for device in named.devices.values() for each in _lacking(device, keys))
    if len(nodes) > MOST_NODES:
        found.append(
            warning(f"of {len(nodes)} nodes the first {MOST_NODES} were looked at", "`nodewarden fence check` reads all")
        )
    return found or [ok(f"{counted(len(objects), 'object')} with credentials: there, with the keys that are needed")]


async def _named(
    connection: ClusterConnection, machines: ClusterConnection | None, nodes: list[NodeView], source: PolicySource
) -> _Named:
    readers = reading_once(Connections(nodes=connection, machines=machines or connection))
    gate, named = asyncio.Semaphore(AT_ONCE), _Named()

    async def one(node: NodeView) -> None:
        async with gate:
            try:
                config = await configuration_for(readers, node, None, Need(), source=source)
                if config.errors:
                    raise PolicyError(config.subject, "spec", "; ".join(config.errors))
                devices = devices_of(compile_config(config))
            except PolicyError as error:
                named.unusable[node.name] = str(error)
            except ApplicationError as error:
                named.unusable[node.name] = error.message
            else:
                for each in devices:
                    key = f"{each.device.driver} {sorted(each.device.parameters)} {each.device.credentials}"
                    named.devices.setdefault(key, each.device)

    await asyncio.gather(*(one(node) for node in nodes))
    return named


def _key(reference: CredentialRef) -> str:
    return f"{reference.kind.value}/{reference.namespace}/{reference.name}"


async def _keys(connection: ClusterConnection, reference: CredentialRef) -> frozenset[str] | Finding:
    resource = SECRETS if reference.kind is CredentialKind.SECRET else CONFIG_MAPS
    try:
        found = await connection.get(resource.path(reference.name, namespace=reference.namespace))
    except ObjectNotFound:
        return problem(f"{_key(reference)} does not exist, and fence configuration names it", "create it (docs/fencing.md)")
    except ApplicationError as error:
        if error_type(error) is not ErrorType.FORBIDDEN:
            raise
        do = "ask a person who may, or run doctor in a power worker's pod; `deploy rbac --secrets` grants it by name"
        return warning(f"{_key(reference)}: this account may not read it, so whether it exists is not known", do)
    return frozenset(found.get("data") or {})


def _lacking(device: PowerDevice, objects: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    """What the objects lack that a device's references name, as far as they could be read."""
    for reference in device.credentials:
        named = {reference.properties} if reference.properties else set(reference.keys.values())
        there = objects.get(_key(reference), frozenset(named))
        if lacking := sorted(named - there):
            yield problem(f"{_key(reference)} lacks {', '.join(lacking)}, which fence configuration names", "add the key")
