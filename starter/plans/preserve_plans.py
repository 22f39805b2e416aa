"""What would be kept, released and given up, for `nodewarden preserve plan`: objects from files, judged as a scanner judges them.

The JSON is a stable interface, `docs/preservation.md` has its schema. Nothing is asked of any server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from activities.cluster.api.connection import JsonObject
from activities.cluster.objects.decoding import decode_node
from activities.cluster.objects.machines_decoding import deployment_of, machine_decoding
from activities.cluster.watch.offline import ClusterSnapshot
from policy.checks.verdict import Health
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.preservation import requests as pool_objects
from policy.preservation.keep_or_release import PreservationDecision, for_its_pool
from policy.preservation.machine_snapshot import Held, MachinePhase
from policy.preservation.pool_cap import (
    NOT_WELL,
    DeploymentPool,
    PoolSurvey,
    Queue,
    Survey,
    deployment_name,
    key_of_controller,
    survey,
    until_well,
)
from policy.preservation.requests import Pool
from policy.scan.evaluation import evaluate
from policy.values.errors import PolicyError
from policy.values.machine_apis import MACHINE_APIS, MCM, MachineApi, machine_api
from policy.values.mode import Mode
from policy.values.times import written
from starter.output.evaluation import described
from starter.output.models import AllPools, MachinePlan, PoolPlan, PreservePlanAnswer
from starter.plans.cluster_objects import Manifest, Unreadable, read_files


@dataclass(slots=True)
class _World:
    nodes: dict[str, NodeView] = field(default_factory=dict)
    machines: list[MachineView] = field(default_factory=list)
    deployments: dict[str, DeploymentPool] = field(default_factory=dict)
    above: dict[str, str] = field(default_factory=dict)
    """Kind and name of what controls a MachineSet, by kind, namespace and name of that."""
    pools: list[Pool] = field(default_factory=list)
    bad_pools: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservePlan:
    """The answer: what is found, and which objects could not be used."""

    survey: Survey
    errors: tuple[str, ...]


def planned_from_files(files: list[str], now: datetime) -> PreservePlan:
    """What would be done at that moment with the machines in these files."""
    return planned(read_files(files, blocks=(pool_objects.BLOCK,)), now)


def planned(manifests: Iterable[Manifest | Unreadable], now: datetime) -> PreservePlan:
    """The same for documents that were read already."""
    world, errors, checks = _World(), list[str](), ClusterSnapshot(now)
    for found in manifests:
        if isinstance(found, Unreadable):
            errors.append(f"{found.source}: {found.problem}")
            continue
        if problem := _take(world, found):
            errors.append(f"{found.source}: {problem}")
        elif found.document.get("kind") is not None and machine_api(str(found.document.get("apiVersion"))) is not MCM:
            # A health check may say something of it; machine-controller-manager's objects have no checks of their own.
            checks.put(found.document, found.source)
    checks.finish()
    errors += [described(mistake) for mistake in checks.mistakes]
    blocked = "a pool's configuration can't be used" if world.bad_pools else ""
    unhealthy, failing = _unhealthy(checks), checks.ledger.failing(now)
    machines = [_called_since(held, unhealthy, failing) for held in _machines(world, unhealthy)]
    called = {*unhealthy.values(), NOT_WELL, ""}
    modes = {held.key: checks.ledger.mode_of_pool(held.victim, held.failed in called) for held in machines}
    barred = {held.key for held in machines if held.failed in unhealthy.values() and held.victim not in failing}
    barred |= {key for key, answer in modes.items() if answer.mode is Mode.OBSERVE}
    queue = Queue(barred=barred)
    found_all = survey(machines, world.pools, world.deployments.values(), now=now, blocked=blocked, queue=queue)
    decisions = tuple(
        for_its_pool(each, modes[each.held.key].mode, str(modes[each.held.key]), now) for each in found_all.decisions
    )
    return PreservePlan(survey=replace(found_all, decisions=decisions), errors=tuple(dict.fromkeys(errors)))


def _called_since(held: Held, unhealthy: Mapping[str, str], failing: Mapping[str, datetime | None]) -> Held:
    """With the moment since which a check that may act on it calls it unhealthy, where nothing else says that it has failed."""
    return replace(held, failed_at=failing.get(held.victim)) if held.failed in unhealthy.values() else held


def as_model(plan: PreservePlan) -> PreservePlanAnswer:
    pools = tuple(PoolPlan(name=pool.name, **_auto([pool])) for pool in plan.survey.pools)
    return PreservePlanAnswer(
        machines=tuple(_machine_of(decision) for decision in plan.survey.decisions),
        auto=AllPools(pools=pools, **_auto(plan.survey.pools)),
        scale_down_order=tuple(machine.name for machine in plan.survey.order),
        warnings=tuple(plan.survey.warnings),
        errors=tuple(plan.errors),
    )


def _auto(pools: Sequence[PoolSurvey]) -> dict[str, Any]:
    return {
        "max": sum(pool.cap for pool in pools),
        "count": sum(pool.choice.count for pool in pools),
        "selected": tuple(machine.name for pool in pools for machine in pool.choice.selected),
        "released": tuple(machine.name for pool in pools for machine in pool.choice.released),
    }


def as_table(plan: PreservePlan) -> RenderableType:
    """A line for each machine, then why each, the caps, and what is doubtful or wrong."""
    table = Table(box=None, header_style="bold dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("MACHINE", "NODE"):
        table.add_column(name, overflow="fold")
    for name in ("VALUE", "PHASE", "ACTION", "UNTIL"):
        table.add_column(name, no_wrap=True)
    for decision in plan.survey.decisions:
        until = written(decision.expiry) if decision.expiry else ""
        held = decision.held
        row = (held.machine, held.node_name, decision.intent.value, decision.phase, decision.action.value, until)
        table.add_row(*(each or "-" for each in row))
    lines: list[RenderableType] = [table] if plan.survey.decisions else [Text("no machine in these files", style="dim")]
    lines += [Text(f"{decision.held.name}: {decision.reason}") for decision in plan.survey.decisions]
    for pool in plan.survey.pools:
        if pool.cap or pool.choice.count:
            chosen = ", ".join(machine.name for machine in pool.choice.selected) or "none"
            released = ", ".join(machine.name for machine in pool.choice.released) or "none"
            head = f"{pool.name or 'no pool'}: keeps at most {pool.cap} failed machines, found {pool.choice.count}"
            lines.append(Text(f"{head}; begins to keep {chosen}; releases {released}"))
    if len(plan.survey.order) > 1:
        lines.append(Text(f"scaled down in this order: {', '.join(machine.name for machine in plan.survey.order)}"))
    lines += [Text(f"error: {error}", style="red") for error in plan.errors]
    lines += [Text(f"warning: {warning}", style="yellow") for warning in plan.survey.warnings]
    return Group(*lines)


def _machine_of(decision: PreservationDecision) -> MachinePlan:
    held = decision.held
    return MachinePlan(
        name=held.name,
        namespace=held.namespace or None,
        node=held.node_name or None,
        effective=decision.intent.value,
        was=f"{held.phase.value}:Preserved" if held.expiry is not None else held.phase.value,
        phase=decision.phase,
        action=decision.action.value,
        expiry=decision.expiry,
        reason=decision.reason,
    )


# From documents -------------------------------------------------------------------------------------------------------


def _take(world: _World, manifest: Manifest) -> str:
    """Put one document where it belongs; what is wrong with it, "" where nothing is."""
    document = manifest.document
    try:
        reader = _reader(world, document)
        if reader is not None:
            reader(document)
    except PolicyError as error:
        world.bad_pools += 1
        return str(error)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        return f"{document.get('kind')}/{name or '?'}: expected a {document.get('kind')}: {str(error)[:200]}"
    return ""


def _reader(world: _World, document: JsonObject) -> Callable[[JsonObject], None] | None:
    group, kind = str(document.get("apiVersion", "")).rpartition("/")[0], document.get("kind")
    readers: dict[tuple[str, object], Callable[[JsonObject], None]] = {
        ("", None): lambda obj: world.pools.append(pool_objects.read_block(obj[pool_objects.BLOCK], subject=pool_objects.BLOCK)),
        ("", "Node"): lambda obj: world.nodes.update({obj["metadata"]["name"]: decode_node(orjson.dumps(obj))}),
        (MCM.group, "MachineSet"): lambda obj: _take_set(world, obj),
        (MCM.group, "MachineDeployment"): lambda obj: _take_set(world, obj),
        **{(api.group, "Machine"): partial(_take_machine, world, api) for api in MACHINE_APIS},
        ("nodewarden.io", pool_objects.KIND): lambda obj: world.pools.append(pool_objects.read_policy(obj)),
        ("core.gardener.cloud", "Shoot"): lambda obj: world.pools.extend(pool_objects.read_shoot(obj)),
    }
    return readers.get((group, kind))


def _take_machine(world: _World, api: MachineApi, obj: JsonObject) -> None:
    machine = machine_decoding(api).one(orjson.dumps(obj)).value
    if machine.preservation_problem:
        raise ValueError(machine.preservation_problem)
    world.machines.append(machine)


def _take_set(world: _World, obj: JsonObject) -> None:
    deployment, above = deployment_of(obj)
    if above.startswith("MachineDeployment/"):
        world.above[f"{obj['kind']}/{deployment.key}"] = above
    else:
        world.deployments[deployment.key] = deployment


def _unhealthy(checks: ClusterSnapshot) -> dict[str, str]:
    """What covering checks say of Nodes and of Machines that they call unhealthy, by `node/<name>` and `machine/<name>`."""
    found: dict[str, str] = {}
    for check in evaluate(checks.ledger.known(checks.now)):
        for each in check.verdicts:
            if each.verdict.health is Health.UNHEALTHY:
                words = f"{check.check.ref.key} calls it unhealthy: {each.message or each.verdict.reason}"
                found.setdefault(f"machine/{each.machine}" if each.machine else f"node/{each.node}", words)
    return found


def _machines(world: _World, unhealthy: Mapping[str, str]) -> list[Held]:
    """Machines with their Nodes, and Nodes that belong to none."""
    machines, taken = [], set[str]()
    for found in world.machines:
        above = world.above.get(key_of_controller(found.controller, found.namespace), "")
        held = Held.of(found, world.nodes.get(found.node_name), deployment=deployment_name(found.controller, above))
        if held.node is not None:
            taken.add(held.node_name)
        said = unhealthy.get(f"machine/{held.machine}") or unhealthy.get(f"node/{held.node_name}")
        machines.append(_called_failed(held, said))
    for name, node in world.nodes.items():
        if name not in taken:
            held = Held.alone(node)
            if held.expiry_problem:
                raise ValueError(held.expiry_problem)
            machines.append(_called_failed(held, unhealthy.get(f"node/{name}")))
    return machines


def _called_failed(held: Held, said: str | None) -> Held:
    if said is None or held.failed:
        return until_well(held)
    return replace(held, failed=said, phase=MachinePhase.FAILED)
