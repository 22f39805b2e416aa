"""May I touch it? The one table of everything that keeps an act from a node or its machine, and the one question put to it.

A scan (`policy/scan/candidates.py`), `explain`, `evaluate`, the last look and every write ask `objection`. Who asks brings what
was read (`Seen`); reading is `activities/cluster/live`. A new reason not to act is a row here, and a line of the table in
docs/semantics.md with its case in `tests/policy/episode/test_gate.py`; what a label or annotation means is `vetoes.py` beside
this. What stops new episodes and nothing else (circuit breakers, limits of fence policies, permits) is
`policy/scan/permit_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cache

from policy.checks.fence_policies import FencePolicies, lease_wait, still_renewed
from policy.episode.vetoes import (
    FENCING_LABEL,
    HOLD_ANNOTATION,
    WITHOUT_LABEL,
    WITHOUT_MACHINE_ANNOTATION,
    deleted,
    excluded,
    held,
    kept_by_condition,
    kept_by_word,
    kept_out,
    switched_off_node,
    taken_away,
)
from policy.objects.machines import PAUSED_ANNOTATION, MachineView
from policy.objects.nodes import NodeEvent, NodeView
from policy.objects.scopes import CLUSTER, group_of
from policy.remediation.control_plane import BlockingRule, ControlPlaneObjection
from policy.values.times import format_duration
from policy.values.unread import Unread, unread_in_words


class Operation(StrEnum):
    """What is about to be done."""

    OFFER = "offer"
    """A program begins an episode: what a scan offers to admission, and what `explain` and `evaluate` tell."""
    KEEP = "keep"
    """A program has a machine preserved, or gives one up that a pool's cap no longer covers. A person's word asks nobody."""
    DISRUPT = "disrupt"
    """Cordon, taint, drain, cut a path, quarantine, switch off, have others act: whatever a last look licenses."""
    REMOVE = "remove"
    """The same, and the machine is deleted for another one to take its place."""
    HAND_OVER = "hand-over"
    """The same, of a machine that was kept; whatever has become of the need."""
    DELETE_NODE = "delete-node"
    EVICT = "evict"
    """A round of evictions, right before its requests."""
    ASK = "ask"
    """The owner of a Machine, or its operator, is asked by a word on the Machine, right before that is written."""
    CREATE = "create"
    """A remediation object is created for another controller, right before that."""
    WAIT = "wait"
    """Others have been asked and have not begun, or marks without an owner are to be taken away."""
    FREE = "free"
    """Pods, attachments and the out-of-service taint of a machine that is proven off."""
    GIVE_BACK = "give-back"
    """Power on, a path or a network given back (S17: no circuit breaker is asked)."""
    UNCORDON = "uncordon"


class By(StrEnum):
    """Who has decided on the act."""

    PROGRAM = "program"
    PERSON = "person"


MAY_NOT_ACT = "may not act yet"
"""How what an episode does begins in words while the last look does not let it act."""


class Weight(StrEnum):
    """What an objection means for whoever asked."""

    VETOED = "vetoed"
    """Somebody says no: the act, and mostly its episode, is given up."""
    NOT_LICENSED = "not-licensed"
    """It may pass: ask again later."""
    NEED_GONE = "need-gone"
    TARGET_CHANGED = "target-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """One reason not to act. rule: the row's name. until: when it ends by itself, None where nobody says."""

    rule: str
    words: str
    weight: Weight = Weight.VETOED
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was read of one target for one act, live or by a watch.

    None of a field that an act depends on means that nobody read it, which is an objection (S20); a read that failed is one of
    `doubts`. node: None where there is none. machines: none are empty. pause: why the Cluster API Cluster of the Node or of one
    of them is paused, "" where none is. identity, devices: how the target and the devices configured for it differ from what was
    pinned. devices_unread: why the latter is not known. contested: who else says that he is this machine. need: what is to be
    said of the need. lease: who else holds the node's lease, "" for nobody. cluster_lease, permit: what is wrong with them, ""
    for nothing. renewed: when its kubelet last renewed its Lease; None keeps nobody. held_by: whose mark stands on it, where that
    is not ours; mark_unread: why that can't be told; marked: ours does. exempt: why preservation keeps it. preserving: who asks
    is the preservation that holds it. deletes_it: the deletion of its Machine is the asking episode's own doing.
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


Said = str | Objection | None
Operations = frozenset[Operation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row. name: no other row has it. source: the safety rule, or whose system it is. says: why not, "" or None for no
    reason. stops: which acts.

    weight: what that means for them; passes: acts among them for which it is something to wait for. programs_only: a person's
    act is not stopped. unblocks: what would end it, for people.
    """

    name: str
    source: str
    says: Callable[[Seen, datetime], Said]
    stops: Operations
    weight: Weight = Weight.VETOED
    passes: Operations = frozenset()
    programs_only: bool = False
    unblocks: str = ""

    def objection(self, seen: Seen, operation: Operation, now: datetime) -> Objection | None:
        """This row's answer alone."""
        if not (said := self.says(seen, now)):
            return None
        if isinstance(said, Objection):
            return replace(said, rule=self.name)
        return Objection(rule=self.name, words=said, weight=Weight.NOT_LICENSED if operation in self.passes else self.weight)


def objection(seen: Seen, operation: Operation, by: By, now: datetime) -> Objection | None:
    """The first reason against the act, None where nothing is in the way."""
    return next(objections(seen, operation, by, now), None)


def objections(seen: Seen, operation: Operation, by: By, now: datetime) -> Iterator[Objection]:
    """All of them, the one that is told first."""
    for rule in _rows(operation, by):
        if found := rule.objection(seen, operation, now):
            yield found


def of_control_plane(needed: ControlPlaneObjection | None) -> Objection | None:
    """What may pass is waited for; that there is no other member is final."""
    if needed is None:
        return None
    weight = Weight.VETOED if needed.rule is BlockingRule.LAST_MEMBER else Weight.NOT_LICENSED
    return Objection(rule="control plane", words=f"the control plane can't do without it: {needed.why}", weight=weight)


def unblocks(rule: str) -> str:
    """What would end the objection of that row, in words; "" where nothing but time does, or nobody can say."""
    return next((row.unblocks for row in RULES if row.name == rule and row.unblocks), "")


@cache
def _rows(operation: Operation, by: By) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if operation in rule.stops and not (rule.programs_only and by is By.PERSON))


def _doubts(seen: Seen, _now: datetime) -> Said:
    return unread_in_words(seen.doubts)


def _need_gone(seen: Seen, _now: datetime) -> Said:
    return seen.need if seen.need is not None and seen.need.weight is Weight.NEED_GONE else None


def _unread(what: str) -> Objection:
    return Objection(rule="", words=f"{what} was not read", weight=Weight.NOT_LICENSED)


def _cluster_lease(seen: Seen, _now: datetime) -> Said:
    return _unread("the cluster Lease") if seen.cluster_lease is None else seen.cluster_lease


def _permit(seen: Seen, _now: datetime) -> Said:
    return _unread("the permit") if seen.permit is None else seen.permit


def _node_lease(seen: Seen, _now: datetime) -> Said:
    if seen.lease is None:
        return _unread("the node's lease")
    words = f"the node's lease is held by {seen.lease!r}"
    return Objection(rule="", words=words, until=seen.lease_until) if seen.lease else None


def _of_machines(words: Callable[[Seen, tuple[MachineView, ...]], str]) -> Callable[[Seen, datetime], Said]:
    return lambda seen, _: _unread("the Machine") if seen.machines is None else words(seen, seen.machines)


def _cluster_paused(seen: Seen, _now: datetime) -> Said:
    if seen.pause is None:
        return _unread("its Cluster")
    return f"its Cluster is paused: {seen.pause}" if seen.pause else ""


def _preserved(seen: Seen, machines: tuple[MachineView, ...]) -> str:
    if seen.preserving:
        return ""
    return kept_by_word(seen.node, machines) or (kept_by_condition(seen.node) if seen.node is not None else "")


def _of_node(word: Callable[[NodeView], str]) -> Callable[[Seen, datetime], Said]:
    return lambda seen, _: word(seen.node) if seen.node is not None else ""


def _switched_off(seen: Seen, _now: datetime) -> Said:
    if seen.policies is None:
        return _unread("the fence policies")
    scopes = seen.policies.scopes if seen.node is not None else ()
    return seen.policies.off_for((CLUSTER, *(group_of(scope, seen.node) for scope in scopes if seen.node is not None)))


def _being_deleted(seen: Seen, machines: tuple[MachineView, ...]) -> str:
    return deleted(seen.node, () if seen.deletes_it else machines)


def _storage_condition(seen: Seen, _now: datetime) -> Said:
    return seen.policies.host_lost_storage(seen.node) if seen.policies is not None and seen.node is not None else ""


def _storage_event(seen: Seen, now: datetime) -> Said:
    return seen.policies.storage_lost_lately(seen.events, now) if seen.policies is not None and seen.node is not None else ""


def _renewed(seen: Seen, now: datetime) -> Said:
    if seen.policies is None or seen.node is None or not seen.policies.skip_renewed_lease:
        return ""
    return still_renewed(seen.renewed, None if seen.node.ready else seen.node.ready_since, now)


def _renewal_unknown(seen: Seen, now: datetime) -> Said:
    """The Lease of a host that just fell silent tells nothing yet. One that can't be read keeps nobody."""
    node, asked = seen.node, seen.policies is not None and seen.policies.skip_renewed_lease and seen.renewed is not None
    if not asked or node is None or node.ready or not (left := lease_wait(node.ready_since, now)):
        return ""
    return f"whether its kubelet renews its Lease is known in {format_duration(left)} (skip-if-host-renews-lease)"


def _without_mark(seen: Seen, _now: datetime) -> Said:
    """Where there is no mark, only another deployment's Lease stops us: one that is missing or has lapsed keeps no machine off
    (S17). Our own mark says that nobody has the node: who takes it over writes his first, and waits until nothing of ours is in
    flight."""
    if seen.marked:
        return ""
    if seen.cluster_lease is None:
        return _unread("the cluster Lease")
    return f"{seen.cluster_lease}, and the Node does not carry our mark" if seen.cluster_lease else ""


DESTRUCTIVE: Operations = frozenset({Operation.DISRUPT, Operation.REMOVE, Operation.HAND_OVER, Operation.DELETE_NODE})
"""What a last look licenses: everything is read for it, right before."""
LOOKED_AT: Operations = DESTRUCTIVE | {Operation.WAIT, Operation.GIVE_BACK}
"""What a last look may be about: with a licence, to see whether it is needed still, or on the way back."""
REMOVING: Operations = frozenset({Operation.REMOVE, Operation.HAND_OVER})
"""The machine's owner takes it out of a control plane; else it goes on being counted there (S15)."""
NEEDED: Operations = frozenset({Operation.DISRUPT, Operation.REMOVE, Operation.WAIT})
"""What is only done while somebody needs it."""
_HANDS_OUT: Operations = frozenset({Operation.ASK, Operation.CREATE})
"""What a last look has licensed a moment before: asked again is what stands on the very objects that the write reads."""
_LEAVES: Operations = frozenset({Operation.WAIT})
_OFFERS: Operations = frozenset({Operation.OFFER})
_BACK: Operations = frozenset({Operation.GIVE_BACK})
_FREES: Operations = frozenset({Operation.FREE})
_EVICTS: Operations = frozenset({Operation.EVICT})
_KEEPS: Operations = frozenset({Operation.KEEP})

RULES: tuple[Rule, ...] = (
    # Whom it is about, and why. What was not read can't be judged; the way back needs no licence.
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
    # The licence.
    Rule(
        name="cluster Lease",
        source="S38",
        says=_cluster_lease,
        stops=DESTRUCTIVE | _HANDS_OUT | _EVICTS | _FREES,
        weight=Weight.NOT_LICENSED,
    ),
    Rule(name="permit", source="S14", says=_permit, stops=DESTRUCTIVE | _EVICTS, weight=Weight.NOT_LICENSED),
    # A person's word, or a maintenance. All but what is freed of a machine that is off, and what the act does not touch.
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
        says=_of_machines(lambda _, machines: next(filter(None, map(kept_out, machines)), "")),
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
        says=_of_machines(_preserved),
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
        unblocks=f"remove the annotation {HOLD_ANNOTATION} from the node",
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
    # Who is taking it away at this moment. A person may know that he has got stuck.
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
    # Before something is given back: another episode may have switched the machine off since (S5). To be left alone needs no
    # more than one who says so, and so comes before what could not be read.
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
"""In the order in which they are told."""
