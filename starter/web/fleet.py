"""All nodes of a cluster at once, by zone and by one more group: how many are well, and by name those that are not.

From one reading of the cluster (`views.py`), judged as `nodewarden evaluate` judges. A node that a person has cordoned has not
failed, and does not look so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import groupby

from activities.cluster.watch.offline import ClusterSnapshot
from policy.checks.verdict import NEVER, Health, JudgedTarget, Verdict
from policy.objects.scopes import group_of, is_scope
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.values.object_refs import in_natural_order
from starter.errors import UnreadableError
from starter.output.evaluation import in_one_line

MOST_NAMED = 60
"""Of one group; further ones that are not well are counted."""


class NodeState(StrEnum):
    """How a node looks, the worst first. not-ready: no check covers it, or none minds. needs-a-person: its episode waits for one;
    in-hand: an episode holds it, and goes on."""

    NEEDS_PERSON = "needs-a-person"
    UNHEALTHY = "unhealthy"
    SOON = "soon"
    IN_HAND = "in-hand"
    NOT_READY = "not-ready"
    SKIPPED = "skipped"
    CORDONED = "cordoned"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class OddNode:
    """One that is not simply well, and why. due: when a check will call it unhealthy."""

    node: str
    state: NodeState
    said: str
    cordoned: bool = False
    since: datetime | None = None
    due: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRun:
    """So many nodes in a row that look alike, in the order of their names."""

    state: NodeState
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGroup:
    """name: such as `pool=workers`; `pool=` is the nodes without. odd: the worst first. left_out: how many more there are."""

    zone: str
    name: str
    nodes: int
    counts: dict[NodeState, int]
    cells: tuple[StateRun, ...]
    odd: tuple[OddNode, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAnswer:
    """by: the scope by which zones are divided further, `pool` or the key of a label. unread: what of the cluster could not be
    read, which may change how nodes look."""

    cluster: str
    at: datetime
    by: str
    nodes: int
    counts: dict[NodeState, int]
    groups: tuple[FleetGroup, ...]
    unread: tuple[str, ...] = ()


def fleet(cluster: str, found: ClusterSnapshot, by: str, persons: Mapping[str, str]) -> FleetAnswer:
    """persons: the nodes with an episode that waits for a person, and why: a Node does not say so. Raises
    UnreadableError where `by` can't name a scope."""
    if not is_scope(by):
        raise UnreadableError(f"by: expected pool or the key of a node label, got {by!r}")
    known = found.ledger.known(found.now)
    groups: defaultdict[tuple[str, str], list[OddNode]] = defaultdict(list)
    for target in known.nodes.values():
        if target.node is not None:
            groups[target.node.zone, group_of(by, target.node)].append(_seen(known, target, persons))
    made = tuple(_group(zone, name, nodes) for (zone, name), nodes in sorted(groups.items()))
    return FleetAnswer(
        cluster=cluster,
        at=found.now,
        by=by,
        nodes=len(known.nodes),
        counts=_ordered(sum((Counter(each.counts) for each in made), Counter())),
        groups=made,
        unread=tuple(each.message for each in found.mistakes),
    )


def _group(zone: str, name: str, nodes: list[OddNode]) -> FleetGroup:
    nodes.sort(key=lambda each: in_natural_order(each.node))
    states = list(NodeState)
    odd = sorted((each for each in nodes if each.state is not NodeState.HEALTHY), key=lambda each: states.index(each.state))
    return FleetGroup(
        zone=zone,
        name=name,
        nodes=len(nodes),
        counts=_ordered(Counter(each.state for each in nodes)),
        cells=tuple(StateRun(state=state, nodes=len(list(run))) for state, run in groupby(nodes, key=lambda each: each.state)),
        odd=tuple(odd[:MOST_NAMED]),
        left_out=max(0, len(odd) - MOST_NAMED),
    )


def _ordered(found: Counter[NodeState]) -> dict[NodeState, int]:
    return {state: found[state] for state in NodeState if found[state]}


def _seen(snapshot: LedgerSnapshot, target: JudgedTarget, persons: Mapping[str, str]) -> OddNode:
    node = target.node
    assert node is not None, "only Nodes are asked about"
    if node.name in persons:
        return OddNode(node=node.name, state=NodeState.NEEDS_PERSON, said=persons[node.name], cordoned=node.unschedulable)
    verdicts = [verdict for each in snapshot.together(node.name) for verdict in each.verdicts.values()]
    worst = min(verdicts, key=_badness, default=None)
    ready = node.condition("Ready")
    said = f"Ready is {ready.status}" if ready is not None else "does not say whether it is Ready"
    state = _state(target, worst)
    if worst is not None and state in {NodeState.UNHEALTHY, NodeState.SOON, NodeState.SKIPPED}:
        said = in_one_line(worst.message) or worst.reason or said
    if state is NodeState.NOT_READY and worst is None:
        said = f"{said}; no health check covers it"
    counts = worst is not None and state in {NodeState.UNHEALTHY, NodeState.SOON}
    return OddNode(
        node=node.name,
        state=state,
        said="" if state in {NodeState.HEALTHY, NodeState.CORDONED} else said,
        cordoned=node.unschedulable,
        since=worst.since if counts and worst is not None else node.ready_since if not node.ready else None,
        due=worst.due if counts and worst is not None else None,
    )


def _badness(verdict: Verdict) -> tuple[int, datetime]:
    order = (Health.UNHEALTHY, Health.SOON, Health.SKIPPED, Health.HEALTHY)
    return order.index(verdict.health), verdict.since or NEVER


def _state(target: JudgedTarget, worst: Verdict | None) -> NodeState:
    node = target.node
    assert node is not None, "only Nodes are asked about"
    if worst is not None and worst.health is Health.UNHEALTHY and not target.marked:
        return NodeState.UNHEALTHY
    if target.marked:
        return NodeState.IN_HAND
    if worst is not None and worst.health is Health.SOON:
        return NodeState.SOON
    if not node.ready:
        return NodeState.NOT_READY
    if worst is not None and worst.health is Health.SKIPPED:
        return NodeState.SKIPPED
    return NodeState.CORDONED if node.unschedulable else NodeState.HEALTHY
