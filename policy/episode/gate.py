"""May we touch it? The one table of everything that keeps an act from a node or its machine, and the one question put to it.

A scan (`policy/scan/candidates.py`), `explain`, `evaluate`, the last look and every write ask `objection`. The caller brings what
was read (`Seen`); reading is `activities/cluster/live`. A new reason not to act is a row of `RULES`, and a line of the table in
docs/semantics.md with its case in `tests/policy/episode/test_gate.py`. The first section is the one place that reads labels,
annotations and taints of people and other systems as reasons not to act. What stops new episodes and nothing else (circuit
breakers, limits of fence policies, permits) is `policy/scan/permit_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cache

from policy.checks.fence_policies import FencePolicies, lease_wait, still_renewed
from policy.episode.modes import ARM, ModeAnswer
from policy.objects.machines import PAUSED_ANNOTATION, SKIP_ANNOTATION, MachineView
from policy.objects.nodes import EXCLUDE_LABEL, PRESERVE_ANNOTATION, NodeEvent, NodeView
from policy.objects.scopes import CLUSTER, group_of
from policy.preservation.machine_snapshot import CLUSTER_API_DELETE, CONDITION, OPENSHIFT_DELETE, PRIORITY_ANNOTATION, TAINT
from policy.preservation.requests import KEEPING, Annotated, Intent, isolation_asked, requested
from policy.remediation.control_plane import BlockingRule, ControlPlaneObjection
from policy.values.errors import Unread, unread_text
from policy.values.mode import Mode
from policy.values.times import format_duration, written

# What labels, annotations and taints of people and other systems mean. Functions that return a text return the reason, "" for
# none.

HOLD_ANNOTATION = "nodewarden.io/hold"
"""A person's "not now" on a node. Any value but `false` holds the node, because the key alone says what is meant."""

FENCING_LABEL = "nodewarden.io/fencing"
"""`off` on a node keeps it from being fenced; people put it on all nodes of a scope by a selector. So does any other value but
`on`: a person who stops something in a hurry writes `OFF`, or `false`, and that counts (S44)."""

ON = "on"

TAKEN_AWAY_BY = {
    "ToBeDeletedByClusterAutoscaler": "the cluster autoscaler",
    "karpenter.sh/disrupted": "karpenter",
    "karpenter.sh/disruption": "karpenter",
}
"""The taints of controllers that are taking a node away at this moment. The autoscaler's `DeletionCandidateOfClusterAutoscaler`
is no reason: it may come to nothing."""

DELETION_TRIGGER_ANNOTATION = "node.machine.sapcloud.io/trigger-deletion-by-mcm"
"""On a Node (`true`): machine-controller-manager deletes its Machine."""

FIRST_TO_GO = "1"
"""The priority that the autoscaler gives a Machine of MCM that it has chosen."""

WITHOUT_LABEL = f"remove the label {EXCLUDE_LABEL} from the node"
WITHOUT_MACHINE_ANNOTATION = f"remove the annotation {PAUSED_ANNOTATION} or {SKIP_ANNOTATION} from the Machine"
"""How a person ends it."""


LONGEST_HOLD = 300
"""Characters that a report and a record repeat of such an annotation: a kubelet may write 256 KB into its own Node's (S41)."""


def excluded(node: NodeView) -> str:
    """The medik8s label keeps it out of remediation."""
    return f"the label {EXCLUDE_LABEL}=true keeps {node.name} out of remediation" if node.excluded else ""


def is_held(value: str | None) -> bool:
    """Whether that value of the annotation holds a node."""
    return value is not None and value != "false"


def held(node: NodeView) -> str:
    hold = node.annotations.get(HOLD_ANNOTATION)
    if not is_held(hold):
        return ""
    return f"the annotation {HOLD_ANNOTATION} holds the node" + (f": {hold[:LONGEST_HOLD]}" if hold else "")


def switched_off_node(node: NodeView) -> str:
    value = node.labels.get(FENCING_LABEL, ON)
    return f"the label {FENCING_LABEL}={value} switches fencing off for it" if value.lower() != ON else ""


def kept_by_annotation(node: NodeView | None, machines: Iterable[MachineView]) -> str:
    """An annotation asks for it to be preserved, on the Node or on one of its Machines alone (S21, S27): the Node's value beats
    the Machine's. The annotation counts before a preservation acts on it. A value that was removed from the Node does not matter
    here: a Machine's annotation holds while it is there."""
    on_node = node.annotations.get(PRESERVE_ANNOTATION) if node is not None else None
    if node is not None and requested(Annotated(node=on_node)).intent in KEEPING:
        return f"the annotation {PRESERVE_ANNOTATION}={on_node} preserves the node"
    for machine in machines:
        on_machine = machine.annotations.get(PRESERVE_ANNOTATION)
        if requested(Annotated(node=on_node, machine=on_machine), node_stayed=node is not None).intent in KEEPING:
            return f"the annotation {PRESERVE_ANNOTATION}={on_machine} on Machine {machine.name} preserves the node"
    return ""


def kept_by(node: NodeView, machines: Iterable[MachineView]) -> By:
    """Who keeps it: a person, where an annotation of Node or Machine says so, else its pool."""
    on_node = node.annotations.get(PRESERVE_ANNOTATION)
    on_machines = (None, *(each.annotations.get(PRESERVE_ANNOTATION) for each in machines))
    intents = {requested(Annotated(node=on_node, machine=value)).intent for value in on_machines}
    return By.POOL if intents.isdisjoint({Intent.NOW, Intent.WHEN_FAILED}) else By.PERSON


def isolated_by(node: NodeView | None, machines: Iterable[MachineView]) -> By:
    """Who wants it isolated while it is kept: a person, where an annotation of Node or Machine says so, else its pool."""
    on_node = node.annotations if node is not None else {}
    asked = any(isolation_asked(on_node, values, pool=False)[0] for values in ({}, *(each.annotations for each in machines)))
    return By.PERSON if asked else By.POOL


def kept(node: NodeView) -> bool:
    """Whether its condition says that it is preserved now."""
    condition = node.condition(CONDITION)
    return condition is not None and condition.status == "True"


def preserved_as_failed(node: NodeView) -> bool:
    """Whether the Node is kept although it failed, as its condition says, and the taint that it has only then."""
    return kept(node) and begun_as_failed(node)


def begun_as_failed(node: NodeView) -> bool:
    """The same for a Node at the beginning of its preservation, when its pods may be about to be moved; the condition is written
    after that. A kubelet can't taint its own Node. The annotation `false` counts before anything of the preservation was written
    (S26)."""
    if requested(Annotated(node=node.annotations.get(PRESERVE_ANNOTATION))).intent is Intent.FALSE:
        return False
    return any(taint.key == TAINT for taint in node.taints)


def taken_away(node: NodeView | None, machines: Iterable[MachineView]) -> str:
    for taint in node.taints if node is not None else ():
        if (who := TAKEN_AWAY_BY.get(taint.key)) is not None:
            return f"{who} is taking the node away, as the taint {taint.key} says"
    if node is not None and node.annotations.get(DELETION_TRIGGER_ANNOTATION) == "true":
        return f"machine-controller-manager is to delete its Machine, as the annotation {DELETION_TRIGGER_ANNOTATION} says"
    return next(filter(None, (_chosen(machine.name, machine.annotations) for machine in machines)), "")


def _chosen(name: str, annotations: Mapping[str, str]) -> str:
    """That Machine is chosen to be removed when its set is scaled down, which the autoscaler does at once."""
    found = next((each for each in OPENSHIFT_DELETE if annotations.get(each)), "")
    if CLUSTER_API_DELETE in annotations:
        found = CLUSTER_API_DELETE
    elif annotations.get(PRIORITY_ANNOTATION) == FIRST_TO_GO:
        found = f"{PRIORITY_ANNOTATION}={FIRST_TO_GO}"
    return f"Machine {name} is chosen to be scaled down, as the annotation {found} says" if found else ""


class Operation(StrEnum):
    """What is about to be done."""

    OFFER = "offer"
    """A program begins an episode: a scan offers it to admission, `explain` and `evaluate` show it."""
    KEEP = "keep"
    """A program has a machine preserved, or gives one up that a pool's cap no longer covers. For a person's request the gate is
    not asked."""
    CORDON = "cordon"
    """Cordon or taint."""
    DRAIN = "drain"
    """Begin a drain, or go on with one."""
    DISRUPT = "disrupt"
    """Cut a path, quarantine, switch off, have other controllers act: all else that a last look licenses."""
    REMOVE = "remove"
    """The same, and the machine is deleted for another one to take its place."""
    HAND_OVER = "hand-over"
    """The same, of a machine that was kept; the need does not matter."""
    DELETE_NODE = "delete-node"
    EVICT = "evict"
    """A round of evictions, right before its requests."""
    ASK = "ask"
    """A condition or annotation on the Machine asks its owner, or its operator, to act; right before that is written."""
    CREATE = "create"
    """A remediation object is created for another controller, right before that."""
    WAIT = "wait"
    """Another controller was asked and has not begun, or marks without an owner are to be removed."""
    FREE = "free"
    """Pods, attachments and the out-of-service taint of a machine that is proven off."""
    GIVE_BACK = "give-back"
    """Power on, a path or a network given back (S17: no circuit breaker is asked)."""
    UNCORDON = "uncordon"


MODE_NEEDED = {
    Operation.OFFER: Mode.CORDON,
    Operation.KEEP: Mode.CORDON,
    Operation.CORDON: Mode.CORDON,
    Operation.DRAIN: Mode.DRAIN,
    Operation.EVICT: Mode.DRAIN,
}
"""The least mode that allows it to a program: `repair` for every other one that `RULES` holds to the mode (S52)."""


class By(StrEnum):
    PROGRAM = "program"
    POOL = "pool"
    """A pool keeps the machine, and no person has asked for the act. Of the rows for programs alone only those of the mode stop
    it: to keep a machine is to leave it alone."""
    PERSON = "person"


MAY_NOT_ACT = "may not act yet"
"""How the text about a waiting episode begins while the last look does not let it act."""


class Weight(StrEnum):
    """What an objection means for the caller."""

    VETOED = "vetoed"
    """A person or another system says no: the act, and mostly its episode, is given up."""
    NOT_LICENSED = "not-licensed"
    """It may pass: ask again later."""
    NEED_GONE = "need-gone"
    TARGET_CHANGED = "target-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """One reason not to act. rule: the row's name. until: when it ends by itself, None if that is not known."""

    rule: str
    reason: str
    weight: Weight = Weight.VETOED
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was read of one target for one act, live or by a watch.

    If a field on which an act depends is None, it was not read, which is an objection (S20); a read that failed is one of
    `doubts`. node: None if there is none. machines: empty if there are none. pause: why the Cluster API Cluster of the Node or
    of one of its Machines is paused, "" if none is. identity, devices: how the target, and the devices configured for it, differ
    from what was pinned. devices_unread: why the latter is not known. contested: what else claims to be this machine. need: the
    objection of the need itself. lease: the other holder of the node's lease, "" for none. cluster_lease, permit: what is wrong
    with them, "" for nothing. renewed: when its kubelet last renewed its Lease; None is no objection. held_by: the other episode
    that has its mark on the node; mark_unread: why that is not known; marked: it carries our mark. exempt: why preservation
    keeps it. preserving: the caller is the preservation that holds it. deletes_it: the calling episode deletes its Machine.
    mode: how far programs may go with it; mode_unread: why that is not known.
    """

    node: NodeView | None = None
    machines: tuple[MachineView, ...] | None = None
    pause: str | None = None
    doubts: tuple[Unread, ...] = ()
    identity: str = ""
    devices: str = ""
    devices_unread: str = ""
    contested: str = ""
    need: Objection | None = None
    lease: str | None = None
    lease_until: datetime | None = None
    cluster_lease: str | None = None
    permit: str | None = None
    policies: FencePolicies | None = None
    events: tuple[NodeEvent, ...] = ()
    renewed: datetime | None = None
    held_by: str = ""
    mark_unread: str = ""
    marked: bool = False
    control_plane: Objection | None = None
    exempt: str = ""
    preserving: bool = False
    deletes_it: bool = False
    mode: ModeAnswer | None = None
    mode_unread: str = ""


Answer = str | Objection | None
Operations = frozenset[Operation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row. name: unique. source: the safety rule, or the system that the reason comes from. says: why not, "" or None for no
    reason. stops: which acts.

    weight: what the reason means for them; passes: the acts among them that wait for its end. programs_only: neither a person's
    act nor a pool's is stopped; pools_too: the latter is. spares: which of those acts it lets pass all the same. unblocks: what
    would end it, for people.
    """

    name: str
    source: str
    says: Callable[[Seen, datetime], Answer]
    stops: Operations
    weight: Weight = Weight.VETOED
    passes: Operations = frozenset()
    programs_only: bool = False
    pools_too: bool = False
    spares: Callable[[Seen, Operation], bool] = lambda _seen, _operation: False
    unblocks: str = ""

    def objection(self, seen: Seen, operation: Operation, now: datetime) -> Objection | None:
        if not (answer := self.says(seen, now)) or self.spares(seen, operation):
            return None
        if isinstance(answer, Objection):
            return replace(answer, rule=self.name)
        return Objection(rule=self.name, reason=answer, weight=Weight.NOT_LICENSED if operation in self.passes else self.weight)


def objection(seen: Seen, operation: Operation, by: By, now: datetime) -> Objection | None:
    """The first reason against the act, None if there is none."""
    return next(objections(seen, operation, by, now), None)


def objections(seen: Seen, operation: Operation, by: By, now: datetime) -> Iterator[Objection]:
    """All reasons, in the order of `RULES`."""
    for rule in _rows(operation, by):
        if found := rule.objection(seen, operation, now):
            yield found


def of_control_plane(needed: ControlPlaneObjection | None) -> Objection | None:
    """The last member is a veto; any other objection is waited for."""
    if needed is None:
        return None
    weight = Weight.VETOED if needed.rule is BlockingRule.LAST_MEMBER else Weight.NOT_LICENSED
    return Objection(rule="control plane", reason=f"the control plane can't do without it: {needed.why}", weight=weight)


def shown_hold(node: NodeView) -> str:
    """A person's hold of a node, as a screen shows it, "" without one. Whether an act may go on is what `objections` says."""
    return held(node)


def unblocks(rule: str, node: str) -> str:
    """What would end the objection of that row to that node, in words; "" if only time does, or if it is not known."""
    return next((row.unblocks.replace("NODE", node) for row in RULES if row.name == rule and row.unblocks), "")


@cache
def _rows(operation: Operation, by: By) -> tuple[Rule, ...]:
    def spares(rule: Rule) -> bool:
        return rule.programs_only and (by is By.PERSON or (by is By.POOL and not rule.pools_too))

    return tuple(rule for rule in RULES if operation in rule.stops and not spares(rule))


def _doubts(seen: Seen, _now: datetime) -> Answer:
    return unread_text(seen.doubts)


def _need_gone(seen: Seen, _now: datetime) -> Answer:
    return seen.need if seen.need is not None and seen.need.weight is Weight.NEED_GONE else None


def _unread(what: str) -> Objection:
    return Objection(rule="", reason=f"{what} was not read", weight=Weight.NOT_LICENSED)


def _cluster_lease(seen: Seen, _now: datetime) -> Answer:
    return _unread("the cluster Lease") if seen.cluster_lease is None else seen.cluster_lease


def _permit(seen: Seen, _now: datetime) -> Answer:
    return _unread("the permit") if seen.permit is None else seen.permit


def _node_lease(seen: Seen, _now: datetime) -> Answer:
    if seen.lease is None:
        return _unread("the node's lease")
    words = f"the node's lease is held by {seen.lease!r}"
    return Objection(rule="", reason=words, until=seen.lease_until) if seen.lease else None


def _of_machines(words: Callable[[Seen, tuple[MachineView, ...]], str]) -> Callable[[Seen, datetime], Answer]:
    return lambda seen, _: _unread("the Machine") if seen.machines is None else words(seen, seen.machines)


def _cluster_paused(seen: Seen, _now: datetime) -> Answer:
    if seen.pause is None:
        return _unread("its Cluster")
    return f"its Cluster is paused: {seen.pause}" if seen.pause else ""


def _preserved(seen: Seen, now: datetime) -> Answer:
    if seen.machines is None:
        return _unread("the Machine")
    if seen.preserving:
        return ""
    if found := kept_by_annotation(seen.node, seen.machines):
        return found
    if seen.node is not None and kept(seen.node):
        return f"the condition {CONDITION} says that the node is preserved"
    for machine in seen.machines:  # a Node that was deleted, or made anew, says nothing of it
        if machine.expiry is not None and machine.expiry > now:
            return f"Machine {machine.name} is preserved until {written(machine.expiry)}"
    return ""


def _kept_out(_seen: Seen, machines: tuple[MachineView, ...]) -> str:
    for machine in machines:
        if found := machine.kept_out_by:
            return f"the annotation {found} keeps the Machine {machine.name} out of remediation"
    return ""


def _of_node(word: Callable[[NodeView], str]) -> Callable[[Seen, datetime], Answer]:
    return lambda seen, _: word(seen.node) if seen.node is not None else ""


def _switched_off(seen: Seen, _now: datetime) -> Answer:
    if seen.policies is None:
        return _unread("the fence policies")
    scopes = seen.policies.scopes if seen.node is not None else ()
    return seen.policies.off_for((CLUSTER, *(group_of(scope, seen.node) for scope in scopes if seen.node is not None)))


def _being_deleted(seen: Seen, machines: tuple[MachineView, ...]) -> str:
    if seen.node is not None and seen.node.deleting:
        return f"Node {seen.node.name} is being deleted"
    others = () if seen.deletes_it else machines
    return next((f"Machine {machine.name} is being deleted" for machine in others if machine.deleting), "")


def _storage_condition(seen: Seen, _now: datetime) -> Answer:
    return seen.policies.host_lost_storage(seen.node) if seen.policies is not None and seen.node is not None else ""


def _storage_event(seen: Seen, now: datetime) -> Answer:
    return seen.policies.storage_lost_lately(seen.events, now) if seen.policies is not None and seen.node is not None else ""


def _renewed(seen: Seen, now: datetime) -> Answer:
    if seen.policies is None or seen.node is None or not seen.policies.skip_renewed_lease:
        return ""
    return still_renewed(seen.renewed, None if seen.node.ready else seen.node.ready_since, now)


def _renewal_unknown(seen: Seen, now: datetime) -> Answer:
    """The Lease of a host that just fell silent says nothing yet. One that can't be read is no objection."""
    node, asked = seen.node, seen.policies is not None and seen.policies.skip_renewed_lease and seen.renewed is not None
    if not asked or node is None or node.ready or not (left := lease_wait(node.ready_since, now)):
        return ""
    return f"whether its kubelet renews its Lease is known in {format_duration(left)} (skip-if-host-renews-lease)"


def _without_mark(seen: Seen, _now: datetime) -> Answer:
    """Without our mark only another deployment's Lease stops us: a missing or lapsed one leaves no machine off (S17). Our own
    mark shows that no other deployment has the node: it would write its mark first, and wait until nothing of ours is in
    flight."""
    if seen.marked:
        return ""
    if seen.cluster_lease is None:
        return _unread("the cluster Lease")
    return f"{seen.cluster_lease}, and the Node does not carry our mark" if seen.cluster_lease else ""


def _mode(seen: Seen, _now: datetime) -> Answer:
    """A program's episode that may observe only is given up; one that may go a part of the way rests there."""
    if seen.mode is None or seen.mode.mode is Mode.REPAIR:
        return None
    weight = Weight.VETOED if seen.mode.mode is Mode.OBSERVE else Weight.NOT_LICENSED
    return Objection(rule="", reason=str(seen.mode), weight=weight)


def _mode_unread(seen: Seen, _now: datetime) -> Answer:
    """What others are asked for comes after a last look, which has read the mode."""
    return None if seen.mode is not None else seen.mode_unread or _unread("the mode")


def _within_mode(seen: Seen, operation: Operation) -> bool:
    """What needs no more than the mode."""
    return seen.mode is None or seen.mode.mode.allows(MODE_NEEDED.get(operation, Mode.REPAIR))


MODE = "mode"

DESTRUCTIVE: Operations = frozenset(
    {
        Operation.CORDON,
        Operation.DRAIN,
        Operation.DISRUPT,
        Operation.REMOVE,
        Operation.HAND_OVER,
        Operation.DELETE_NODE,
    }
)
"""The acts that a last look licenses: everything is read for it, right before."""
LOOKED_AT: Operations = DESTRUCTIVE | {Operation.WAIT, Operation.GIVE_BACK}
"""The acts for which a last look is made: to license one, to see whether it is still needed, or before something is given
back."""
REMOVING: Operations = frozenset({Operation.REMOVE, Operation.HAND_OVER})
"""The machine's owner takes it out of a control plane; else it goes on being counted there (S15)."""
NEEDED: Operations = frozenset({Operation.CORDON, Operation.DRAIN, Operation.DISRUPT, Operation.REMOVE, Operation.WAIT})
"""The acts that are done only while the need stands."""
_HANDS_OUT: Operations = frozenset({Operation.ASK, Operation.CREATE})
"""The acts that a last look has licensed a moment before: the rules ask again only what the objects say that the write reads."""
_LEAVES: Operations = frozenset({Operation.WAIT})
_OFFERS: Operations = frozenset({Operation.OFFER})
_BACK: Operations = frozenset({Operation.GIVE_BACK})
_FREES: Operations = frozenset({Operation.FREE})
_EVICTS: Operations = frozenset({Operation.EVICT})
_KEEPS: Operations = frozenset({Operation.KEEP})

RULES: tuple[Rule, ...] = (
    # Which target, and why. What was not read can't be judged; giving back needs no licence.
    Rule(
        name="identity",
        source="S9",
        says=lambda seen, _: seen.identity,
        stops=DESTRUCTIVE | _LEAVES | _BACK,
        weight=Weight.TARGET_CHANGED,
    ),
    Rule(name="unread", source="S20", says=_doubts, stops=DESTRUCTIVE | _LEAVES, weight=Weight.NOT_LICENSED),
    Rule(name="need gone", source="S20", says=_need_gone, stops=DESTRUCTIVE | _LEAVES, weight=Weight.NEED_GONE),
    Rule(
        name="devices unread while others act",
        source="S9",
        says=lambda seen, _: seen.devices_unread,
        stops=_LEAVES,
        weight=Weight.NOT_LICENSED,
    ),
    Rule(
        name="contested",
        source="S39",
        says=lambda seen, _: seen.contested,
        stops=_OFFERS | DESTRUCTIVE | _FREES,
        passes=_FREES,
        unblocks="delete the Node that is not that machine, or correct what it says of itself or how it is to be fenced",
    ),
    Rule(name="need", source="S20", says=lambda seen, _: seen.need, stops=DESTRUCTIVE | _LEAVES),
    Rule(name="devices", source="S9", says=lambda seen, _: seen.devices, stops=DESTRUCTIVE, weight=Weight.TARGET_CHANGED),
    Rule(
        name="devices unread",
        source="S9",
        says=lambda seen, _: seen.devices_unread,
        stops=DESTRUCTIVE,
        weight=Weight.NOT_LICENSED,
    ),
    # The licence. The mode comes first: what rests because of it asks for no permit.
    Rule(
        name=MODE,
        source="S52",
        says=_mode,
        stops=_OFFERS | DESTRUCTIVE | _HANDS_OUT | _EVICTS | _KEEPS,
        programs_only=True,
        pools_too=True,
        spares=_within_mode,
        unblocks=f"its mode has to be raised: `nodewarden mode` shows what sets it; `{ARM}` arms it, but where a label or an"
        " annotation sets it, that has to go",
    ),
    Rule(
        name="cluster Lease",
        source="S38",
        says=_cluster_lease,
        stops=DESTRUCTIVE | _HANDS_OUT | _EVICTS | _FREES,
        weight=Weight.NOT_LICENSED,
    ),
    Rule(name="permit", source="S14", says=_permit, stops=DESTRUCTIVE | _EVICTS, weight=Weight.NOT_LICENSED),
    # The scanner gives both. One that is gone is named by what it no longer holds, and the need is judged without it.
    Rule(
        name="mode unread",
        source="S52",
        says=_mode_unread,
        stops=_OFFERS | DESTRUCTIVE | _EVICTS | _KEEPS,
        weight=Weight.NOT_LICENSED,
        programs_only=True,
        pools_too=True,
    ),
    # A person's request, or a maintenance. It does not stop the freeing of a machine that is off, or what the act does not touch.
    Rule(
        name="node lease",
        source="S20, medik8s",
        says=_node_lease,
        stops=DESTRUCTIVE | _LEAVES | _BACK | {Operation.CREATE},
        unblocks="the node's lease must be given back, or lapse",
    ),
    Rule(
        name="kept out",
        source="S20, Cluster API",
        says=_of_machines(_kept_out),
        stops=_OFFERS | DESTRUCTIVE | _LEAVES | _HANDS_OUT,
        unblocks=WITHOUT_MACHINE_ANNOTATION,
    ),
    Rule(
        name="Cluster paused",
        source="S20, Cluster API",
        says=_cluster_paused,
        stops=_OFFERS | DESTRUCTIVE | _LEAVES | _HANDS_OUT,
        unblocks=f"end the pause of the Cluster: spec.paused, or its annotation {PAUSED_ANNOTATION}",
    ),
    Rule(
        name="preserved",
        source="S21, S27, Gardener",
        says=_preserved,
        stops=DESTRUCTIVE | _LEAVES | _BACK | _HANDS_OUT | {Operation.UNCORDON},
    ),
    Rule(
        name="excluded",
        source="S20, medik8s",
        says=_of_node(excluded),
        stops=_OFFERS | DESTRUCTIVE | _LEAVES | _BACK | _HANDS_OUT,
        unblocks=WITHOUT_LABEL,
    ),
    Rule(
        name="hold",
        source="S20",
        says=_of_node(held),
        stops=_OFFERS | DESTRUCTIVE | _LEAVES | _BACK | _HANDS_OUT | _EVICTS | _FREES,
        passes=_FREES,
        unblocks=f"`kubectl annotate node NODE {HOLD_ANNOTATION}-` ends it",
    ),
    Rule(
        name="fencing off",
        source="S20, node-fencing",
        says=_of_node(switched_off_node),
        stops=_OFFERS | DESTRUCTIVE | _HANDS_OUT | _EVICTS | _FREES | _KEEPS,
        passes=_FREES | _KEEPS,
        unblocks=f"remove the label {FENCING_LABEL} from the node",
    ),
    Rule(
        name="switched off",
        source="S20, node-fencing",
        says=_switched_off,
        stops=DESTRUCTIVE | _EVICTS | _FREES | _KEEPS,
        passes=_FREES | _KEEPS,
    ),
    # What is taking it away at this moment. A person may know that it got stuck.
    Rule(name="being deleted", source="S20", says=_of_machines(_being_deleted), stops=_OFFERS | DESTRUCTIVE, programs_only=True),
    Rule(
        name="being deleted before others act",
        source="S20",
        says=_of_machines(_being_deleted),
        stops=frozenset({Operation.CREATE}),
    ),
    Rule(
        name="taken away",
        source="S20, autoscalers",
        says=_of_machines(lambda seen, machines: taken_away(seen.node, machines)),
        stops=_OFFERS | DESTRUCTIVE | {Operation.ASK},
        programs_only=True,
    ),
    # What keeps a host for its own sake.
    Rule(
        name="storage lost",
        source="oVirt",
        says=_storage_condition,
        stops=_OFFERS | DESTRUCTIVE,
        programs_only=True,
        unblocks="its storage must be reachable again, as its conditions say",
    ),
    Rule(name="storage lost lately", source="oVirt", says=_storage_event, stops=DESTRUCTIVE, programs_only=True),
    Rule(name="Lease renewed", source="oVirt", says=_renewed, stops=DESTRUCTIVE, programs_only=True),
    Rule(
        name="Lease not known yet",
        source="oVirt",
        says=_renewal_unknown,
        stops=DESTRUCTIVE,
        weight=Weight.NOT_LICENSED,
        programs_only=True,
    ),
    Rule(name="exempt", source="S21", says=lambda seen, _: seen.exempt, stops=_OFFERS, programs_only=True),
    Rule(name="control plane", source="S15", says=lambda seen, _: seen.control_plane, stops=DESTRUCTIVE),
    # Before something is given back: another episode may have switched the machine off since (S5). The reasons above are enough
    # to leave it alone, and so come before what could not be read.
    Rule(name="unread before giving back", source="S20", says=_doubts, stops=_BACK, weight=Weight.NOT_LICENSED),
    Rule(
        name="mark unread",
        source="S38",
        says=lambda seen, _: seen.mark_unread,
        stops=_BACK,
        weight=Weight.NOT_LICENSED,
    ),
    Rule(name="in other hands", source="S5, S38", says=lambda seen, _: seen.held_by, stops=_BACK),
    Rule(name="another deployment", source="S38", says=_without_mark, stops=_BACK, weight=Weight.NOT_LICENSED),
)
"""In the order in which they are shown."""
