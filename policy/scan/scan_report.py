"""The report of a scan: a *level*, never an edge, and never the fleet.

It holds counts, circuit breakers, the first candidates and the nodes that carry our mark. Its `digest` covers what decisions
depend on, so two scans of an unchanged world are equal whichever worker made them, and a lost result loses nothing. Bounded: no
list here grows with the number of nodes (see the MAXIMUM_ constants), so a report stays far below Temporal's payload limit at
50,000 nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from policy.checks.circuit_breakers import StandingCounts
from policy.checks.fence_policies import NO_POLICIES, FencePolicies
from policy.checks.inventory import ControlPlane
from policy.checks.verdict import Health
from policy.episode.messages import NeedKind, SeenNode
from policy.objects.scopes import GroupCount
from policy.preservation.preservation_index import PreservationNeed
from policy.remediation.ladder import EscalationStep
from policy.values.mode import Mode
from policy.values.object_refs import Dialect, ObjectRef

MAXIMUM_CANDIDATES = 100
MAXIMUM_ROWS = 30
MAXIMUM_SEEN = 200
MAXIMUM_WATCHED = 200
MAXIMUM_AT_RISK = 10
MAXIMUM_GROUPS = 400
MAXIMUM_LEFT_OVER = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """Whether our view of the cluster may be acted on (S18). `stale`: why not, "" when it may.

    notice: what is missing from a view that may be acted on all the same, "" where it is complete.
    """

    synced: bool
    stale: str = ""
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLease:
    """The cluster Lease as this scan left it (S38). `needed` is False while nothing asks us to act: then it is not taken."""

    held: bool
    needed: bool = True
    holder: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVersion:
    """How far the health checks of a dialect have been followed: the newest resourceVersion seen on one of them."""

    dialect: Dialect
    version: str


OBSERVED = "Observed"
"""The reason of a check that is not `allowed` because the mode of all its targets is observe. It binds no person (S52)."""
ALL_OBSERVED = "the mode of all its targets is observe; "
"""What its message begins with then; the circuit breaker's own follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(StandingCounts):
    """One health check: its counts and whether its circuit breaker, and the mode of any of its targets, let us act. `error` is
    set for an object that cannot be used.

    unhealthy: those that need remediation. The dialects' own status counts as unhealthy every target that is not healthy, so
    also soon, starting, deleting, excluded and recovering ones. left_out ones are not in the total at all. remaining: how many
    targets that now count as healthy may be disrupted before the circuit breaker opens. To disrupt a target that is unhealthy
    already uses none of it, so a closed circuit breaker with 0 remaining still lets those be repaired. modes: how many of its
    targets are in which mode.
    """

    ref: ObjectRef
    uid: str = ""
    generation: int = 0
    total: int = 0
    remaining: int = 0
    allowed: bool = False
    paused: str = ""
    reason: str = ""
    message: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()
    dialect: Dialect = Dialect.MEDIK8S
    storm_active: datetime | None = None
    storm_cooling: datetime | None = None
    overlaps: tuple[str, ...] = ()
    mixed_control_plane: bool = False
    no_targets: str = ""
    """In words, that its selector matches no existing object, which may be right for an empty pool; "" where it matches some."""
    modes: tuple[tuple[Mode, int], ...] = ()
    another_controller: str = ""
    """Which other controller acts on the checks of this dialect, in words. `reason` names a pause or a mistake in the object
    first; the other controller writes the status all the same."""
    breached: bool = False
    """The threshold alone would open the circuit breaker."""
    at_once: int | None = None
    """How many of its targets may be remediated at once (`nodewarden.io/max-in-flight`); None where it sets no limit."""

    @property
    def closed(self) -> bool:
        """Whether its circuit breaker lets us act, whatever the mode of its targets is."""
        return self.allowed or self.reason == OBSERVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node that a check with a closed circuit breaker calls unhealthy. `refused` says why it can't be acted on all the same;
    vetoed_by: the row of the gate that says so (S17), "" where no step of the check is possible.

    ready: whether its Ready condition is True (assumed where unknown: the stricter reading for quorum, S15). healthy_under:
    keys of checks that select the node and count it as healthy; disrupting it uses one of their `remaining`. machine: namespace
    and name of its Machine, where a check covers that. A Machine that has never had a node has the name
    `machine/<namespace>/<name>`. groups: its groups under the scopes that policies use (`policy/objects/scopes.py`). need: what
    asks; where that is an object of another system, `check` is that object, `object_uid` its uid and `delegate` its operator
    (see `policy.episode.messages.Need`). ladder: the steps by which it is remediated; empty where it is a plain fencing by
    `template`. retry: the number of this remediation in a row. not_before: the moment until which its next remediation is put
    off, and `waits` why. exhausted: why only a person can help any more. failed: steps of the ladder that have failed already.
    machine_ref, machine_uid, owner: its Machine, and the controller of that. fresh: that Machine has never had a Node, and has
    no memory; created: when it was made. memory: the annotation of its Machine or Node. checks: the keys of all checks that
    count it among their targets. steps: the names of those that can be taken, also where it is refused. boot_id: of its Node.
    dated: whether the beginning of its illness is known; else `since` is the last change of its
    Machine, which serves as an order and nothing else.
    """

    node: str
    uid: str
    check: ObjectRef
    since: datetime
    reason: str
    message: str
    template: ObjectRef | None = None
    provider_id: str = ""
    zone: str = ""
    control_plane: bool = False
    refused: str = ""
    vetoed_by: str = ""
    ready: bool = True
    healthy_under: tuple[str, ...] = ()
    machine: str = ""
    groups: tuple[str, ...] = ()
    need: NeedKind = NeedKind.CHECK
    object_uid: str = ""
    delegate: str = ""
    ladder: tuple[EscalationStep, ...] = ()
    retry: int = 0
    not_before: datetime | None = None
    waits: str = ""
    exhausted: str = ""
    failed: tuple[str, ...] = ()
    machine_ref: ObjectRef | None = None
    machine_uid: str = ""
    owner: str = ""
    memory: str = ""
    fresh: bool = False
    created: datetime | None = None
    checks: tuple[str, ...] = ()
    dated: bool = True
    steps: tuple[str, ...] = ()
    boot_id: str = ""
    mode: Mode = Mode.REPAIR


class NodeStanding(StrEnum):
    """How a watched node stands. due: a check calls it unhealthy. unclear: none does, but it is not well either: a time-out runs,
    or it can't be judged. uncovered: no check counts it among its targets."""

    DUE = "due"
    UNCLEAR = "unclear"
    WELL = "well"
    UNCOVERED = "uncovered"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedNode:
    """A node that is no candidate of the report, as `policy/history/` needs it: the scanner has asked about it, or it is due.

    check, cause, since, steps: of a due one, as a candidate's. code, message: what keeps a due one from being a candidate, or
    from being acted on: as `policy.history.spells.HeldSpan` has them. mode: under that check.
    """

    node: str
    standing: NodeStanding
    uid: str = ""
    boot_id: str = ""
    ready: bool = False
    ready_since: datetime | None = None
    check: str = ""
    cause: str = ""
    since: datetime | None = None
    steps: tuple[str, ...] = ()
    code: str = ""
    message: str = ""
    mode: Mode = Mode.REPAIR


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOver:
    """A remediation object that is not needed any more and will be deleted. node: the victim's name; name: the object's. step:
    the step that made it."""

    node: str
    check: ObjectRef
    step: EscalationStep
    name: str
    reason: str
    node_uid: str = ""
    machine_ref: ObjectRef | None = None
    machine_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRow:
    """A line for people: the sickest nodes first, filled up with healthy ones to MAXIMUM_ROWS. As old as the report (`at`): a
    change of a healthy node alone does not end a scan early. held: what a person's annotation says that holds it, "" for none."""

    node: str
    zone: str
    ready: str
    health: Health
    check: str = ""
    reason: str = ""
    since: datetime | None = None
    due: datetime | None = None
    schedulable: bool = True
    machine: str = ""
    held: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAtRisk:
    """A node that is not Ready, has volumes attached and is not proven off (S36).

    due: from when on Kubernetes may detach the volumes by force; None while that is not known, or where its pods tolerate the
    node's state for ever. People are notified shortly before.
    """

    node: str
    since: datetime
    volumes: int
    due: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRisk:
    """All nodes at risk, as a number and by the first of them. unread: how many nodes' pods have yet to be read for the first
    time.

    problem: why it is not known which volumes are attached, "" where it is.
    """

    nodes: int = 0
    unread: int = 0
    nearest: tuple[NodeAtRisk, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportParts:
    """The part of a report that `policy/scan/ledger.py` knows; the scan itself adds the rest."""

    inventory: int
    checks: tuple[CheckReport, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    candidates_left_out: int = 0
    seen_nodes: tuple[SeenNode, ...] = ()
    control_plane: ControlPlane = ControlPlane()
    rows: tuple[TargetRow, ...] = ()
    next_due: datetime | None = None
    at_risk: AtRisk = AtRisk()
    policies: FencePolicies = NO_POLICIES
    groups: tuple[GroupCount, ...] = ()
    preservations: tuple[PreservationNeed, ...] = ()
    preservations_left_out: int = 0
    left_over: tuple[LeftOver, ...] = ()
    watched: tuple[WatchedNode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanReport(ReportParts):
    """Everything that the scanner learns from one scan.

    groups: the counts of the cluster and of every group that a candidate or a watched node belongs to, then of other groups
    that have reached a limit, as many as there is room for. A group that is not listed was not counted, and nothing is known of
    it.
    """

    digest: str
    at: datetime
    resource_version: str
    view: ViewState
    lease: ClusterLease
    cluster_uid: str = ""
    answered_at: datetime | None = None
    """When it was sent, by the worker's own clock, which is compared with Temporal's; None from a worker that does not say.
    `at` is the earlier one of this and the API server's."""
    seen_at: datetime | None = None
    """The moment up to which all watches were confirmed, by the same clock; None where they never were."""
    check_versions: tuple[SeenVersion, ...] = ()
    """For each dialect's health checks what `resource_version` is for the nodes."""
    run: str = ""
    """Which run of the scanner's workflow has asked for it, "" from a worker that does not say. A change within one history
    shows a reset."""
    streams: bool | None = None
    """Whether the worker that answers has a decision stream, to which the scanner's decisions are to go; None from an older
    one."""

    def members_without_node(self, node: str, uid: str) -> frozenset[str]:
        """The members of the control plane without a Node, `node` among them where its own is gone or has never come. uid: of
        its Node, as last known by the caller, "" for none."""
        there = next((seen.present for seen in self.seen_nodes if seen.node == node), bool(uid))
        return frozenset((*self.control_plane.lost, *(() if there else (node,))))
