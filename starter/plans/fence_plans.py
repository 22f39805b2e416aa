"""What would be done to fence one node, for `nodewarden fence plan`: resolved as an episode resolves it, from files or live.

Nothing is done and no secret is read. The answer is `policy/fence/config.py`; here it gets its table, and what can go wrong
before there is a configuration at all becomes one of its errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import NODES
from activities.cluster.api.refusals import unless_gone
from activities.cluster.api.served_cluster import Connections
from activities.cluster.live.plans import configuration_for
from activities.cluster.objects.decoding import decode_node
from activities.cluster.objects.object_reader import ApiReader, FileObjects
from activities.cluster.objects.workload import read_pods
from activities.errors import ErrorType, error_type
from policy.checks.fence_policies import PolicySource
from policy.dialects.common import DEFAULT_NAMESPACE
from policy.episode.messages import EpisodeStatus, Need
from policy.fence.config import INSTANCE, FenceConfig, FenceStep, acts_in_order, has_placeholder, shown_parameters
from policy.fence.device_check import DeviceReport, Reachability
from policy.fence.plan_compiler import compile_config
from policy.fence.template_reader import KIND as FENCING_TEMPLATE
from policy.objects.machines import uncounted
from policy.objects.nodes import NodeView
from policy.values.display_text import counted, some_of
from policy.values.errors import PolicyError
from policy.values.object_refs import ObjectRef
from starter.errors import NoSuchNodeError, RequestError
from starter.plans.cluster_objects import Manifest, Unreadable, read_files
from starter.wording import span

PREFIX = "fence-"


async def planned(
    reader: ApiReader,
    node: str,
    template: ObjectRef | None = None,
    *,
    source: PolicySource,
    machines: ApiReader | None = None,
    live: bool = True,
) -> FenceConfig:
    """What an episode begun by hand would do. template: the one that it is asked to carry out. live: a Node that is not there is
    none, instead of one that is in no file given.

    Errors: those of reading the API, and NoSuchNodeError; all others are in the answer.
    """
    connections = Connections(nodes=reader, machines=machines or reader, machine_namespaces=source.machines)
    body = await unless_gone(reader.get_bytes(NODES.path(node)))
    known = decode_node(body) if body is not None else None
    if known is None and live:
        raise NoSuchNodeError(node)
    try:
        found = await configuration_for(connections, known or NodeView(name=node, uid=""), template, Need(), source=source)
    except ApplicationError as error:
        if error_type(error) is not ErrorType.INVALID_CONFIG:
            raise
        return _refused(node, error.message)
    if known is None:
        unknown = f"Node/{node}: there is no such Node here, so its labels and its providerID are taken as empty"
        found = replace(found, warnings=(unknown, *found.warnings))
        return found if any(method.driver == INSTANCE for step in FenceStep for method in found.step(step)) else _compiled(found)
    return _compiled(found)


async def planned_from_files(
    files: Sequence[str], node: str, template: ObjectRef | None = None, *, source: PolicySource
) -> FenceConfig:
    """The same for the objects in these files. What can't be read in them is an error, since it may be what was meant."""
    objects: list[JsonObject] = []
    problems: list[str] = []
    for found in read_files(files):
        if isinstance(found, Unreadable):
            problems.append(f"{found.source}: {found.problem}")
        else:
            problems += _misnamed(found)
            objects.append(found.document)
    answer = await planned(FileObjects(objects), node, template, source=source, live=False)
    elsewhere = _elsewhere(objects, source)
    return replace(answer, errors=(*problems, *answer.errors), warnings=(*answer.warnings, *elsewhere))


def as_table(config: FenceConfig) -> RenderableType:
    """What is done, in its order, with the parameters of each method where it is first named; then what is wrong and what is
    doubtful."""
    order = acts_in_order(config)
    head = f"{config.node}: {config.name} ({config.source})" if config.name else f"{config.node}: no fence configuration"
    lines: list[RenderableType] = [Text(head)]
    shown, number = set[tuple[FenceStep, str]](), count(1)
    for step in FenceStep:
        acts, methods = [each for each in order if each.step is step], {each.name: each for each in config.step(step)}
        lines.append(Text(f"{step.value}:{'' if acts else ' nothing'}", style="bold"))
        table = Table.grid(padding=(0, 1))
        table.add_column(justify="right", min_width=4)
        table.add_column(overflow="fold")
        for act in acts:
            does, method = Text(act.does), methods.get(act.method)
            if method is not None:
                does.append(f" [{method.name}{f' of {method.template}' if method.template else ''}]", style="dim")
                if (step, method.name) not in shown:
                    does.append("".join(f"\n{name}={value}" for name, value in shown_parameters(method).items()))
                shown.add((step, method.name))
            table.add_row(f"{next(number)}.", does)
        lines.append(table)
    lines += [Text(f"error: {error}", style="red") for error in config.errors]
    lines += [Text(f"warning: {warning}", style="yellow") for warning in config.warnings]
    return Group(*lines)


def _compiled(config: FenceConfig) -> FenceConfig:
    """With what only shows once the plan is made."""
    if config.errors:
        return config
    try:
        compile_config(config)
    except PolicyError as error:
        return replace(config, errors=(str(error),))
    return config


def _refused(node: str, message: str) -> FenceConfig:
    return FenceConfig(node=node, name="", source="", subject=f"Node/{node}", errors=(message,))


def _misnamed(manifest: Manifest) -> list[str]:
    """An object with the name of a document configures no node, and its node would silently get the default."""
    metadata = manifest.document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name.startswith(PREFIX) or not has_placeholder(name):
        return []
    return [f"{manifest.source}: ConfigMap/{name}: metadata.name: expected the name of a node in the place of what stands for it"]


def _elsewhere(objects: Sequence[JsonObject], source: PolicySource) -> list[str]:
    """What is written where it is not read."""
    found = []
    for obj in objects:
        kind, metadata = obj.get("kind"), obj.get("metadata")
        if not isinstance(metadata, dict):
            continue
        theirs, name = str(metadata.get("namespace") or DEFAULT_NAMESPACE), str(metadata.get("name", ""))
        if kind == "ConfigMap" and name.startswith(PREFIX) and theirs != source.namespace:
            found.append(f"ConfigMap/{theirs}/{name}: is not read: the setting fence_namespace is {source.namespace}")
        if kind == FENCING_TEMPLATE and theirs not in source.templates:
            read = ", ".join(source.templates)
            found.append(f"{FENCING_TEMPLATE}/{theirs}/{name}: is not read: the setting template_namespaces is {read}")
        ref = ObjectRef(api_version=str(obj.get("apiVersion")), kind=str(kind), name=name, namespace=theirs)
        if kind == "MachineHealthCheck" and (why := uncounted(ref, source.machines)):
            found.append(f"{kind}/{theirs}/{name}: {why}")
    return found


# What is at stake before a person commands something: which volumes the machine may write to, what its devices read (S8).

MOST_NAMED = 5
SECONDS_TO_READ = 10.0


async def pods_on(connection: ClusterConnection, node: str) -> str:
    """The pods there, and the claims by which they write, as far as the caller's rights let that be seen."""
    try:
        pods = await read_pods(connection, node, cached=True)
    except ApplicationError as error:
        return unread("what runs on it", error)
    claims = sorted({f"{pod.metadata.namespace}/{claim}" for pod in pods if not pod.finished for claim in pod.claims})
    named = some_of(claims, MOST_NAMED)
    return f"{counted(len(pods), 'pod')} on it, with {counted(len(claims), 'persistent volume')}{named and f': {named}'}"


async def device_lines(episode: EpisodeStatus, read: Awaitable[DeviceReport]) -> list[str]:
    """What each device of its node says now, as it is read, and what it has last said to the episode."""
    said = list[str]()
    try:
        async with asyncio.timeout(SECONDS_TO_READ):
            for row in (await read).rows:
                last = f"; it answered {_age(row.last_success)} ago" if row.last_success is not None else ""
                answers = row.answer is Reachability.ANSWERS
                said.append(f"{row.endpoint} {f'says {row.state.value} now' if answers else f'does not answer now{last}'}")
    except (RequestError, TimeoutError) as error:
        said.append(unread("its devices", error))
    return said + [f"{each.endpoint} said {each.state.value} {_age(each.at)} ago" for each in episode.readings]


def unread(what: str, error: Exception) -> str:
    """Only an API server that refuses it says something of the caller's rights."""
    why = error.message if isinstance(error, ApplicationError) else str(error) or f"no answer within {SECONDS_TO_READ:g}s"
    return f"{what} can't be read {'with your rights' if error_type(error) is ErrorType.FORBIDDEN else 'now'}: {why}"


def _age(at: datetime) -> str:
    return span(datetime.now(UTC) - at)
