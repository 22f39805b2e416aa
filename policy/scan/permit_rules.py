"""The one ordered list of what keeps a node from being disrupted now, and the numbers that its rules compare.

A scan asks it about each node that a report offers, and an open episode about its permit (`policy/scan/admission.py`). The
order of a report, `evaluate` and `explain` ask the rules that need only the objects of a cluster (`candidates.py`,
`evaluation.py`). So all of them give the same reason in the same words. The first rule that objects is the answer: first the
rules about the node itself, then those about the cluster, last those that only wait for room. A new rule is a row of `RULES`
and a line of the table in docs/semantics.md, which a test compares (`tests/policy/scan/test_admission.py`).

The table of `policy/episode/gate.py` keeps single acts of an open episode from a node. Acts that restore a node never pass
through here (S17).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import NamedTuple, Protocol

from policy.checks.circuit_breakers import CircuitBreaker, OpenReason
from policy.checks.fence_policies import FencePolicies, PowerMoment, quiet_left
from policy.episode.gate import MODE
from policy.episode.messages import Kind
from policy.episode.node_action import CIRCUIT_BREAKER
from policy.episode.permits import Permit, PermitState, Replacing
from policy.objects.machines import machine_behind
from policy.objects.scopes import CLUSTER, GroupCount, group_phrase, scope_of
from policy.remediation.control_plane import objection_by_count
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.scan_report import ALL_OBSERVED, OBSERVED, Candidate, CheckReport, ScanReport
from policy.values.display_text import some_of
from policy.values.times import format_duration, written

OVERRIDABLE = frozenset({OpenReason.TOO_MANY_UNHEALTHY, OpenReason.STORM})
"""The reasons of an open circuit breaker that a person may override for one node: counts, which a person can judge (S17)."""

CLOCKS_APART = timedelta(seconds=30)
"""By how much the API server's clock and Temporal's may differ."""


class AdmissionRefusal(StrEnum):
    """The code of a rule, for programs. `IN_HAND` is not shown to people: the node's own episode is under way."""

    IN_HAND = "InHand"
    NODE_HELD = "NodeHeld"
    NOT_CARRIED_OUT = "NotCarriedOut"
    HELD_OFF = "HeldOff"
    STALE_VIEW = "StaleView"
    NO_CLUSTER_LEASE = "NoClusterLease"
    CIRCUIT_BREAKER = "CircuitBreakerOpen"
    THRESHOLD = "Threshold"
    CONTROL_PLANE = "ControlPlaneGuard"
    CAP = "CapReached"
    BAD_POLICIES = "FencePoliciesUnusable"
    SWITCHED_OFF = "FencingSwitchedOff"
    PAUSED = "Paused"
    STORAGE_DOWN = "StorageDown"
    SCOPE_STORM = "ScopeStorm"
    SCOPE_CAP = "ScopeCapReached"
    QUIET_TIME = "QuietTime"
    RETRY_LATER = "RetryLater"
    IN_FLIGHT = "InFlightLimit"
    REPLACEMENT = "ReplacementUnderWay"
    MODE = "Mode"


class Asker(StrEnum):
    """What asks whether the node may be disrupted."""

    SCAN = "a scan"
    """A report offers the node, under a health check or an object of another system."""
    LAST_RESORT = "to ask a person"
    """A report offers the node so that an episode asks a person: nothing else helps any more."""
    EPISODE = "an episode"
    """An open episode asks for a permit."""
    PERSON = "a person"
    """The same, because a person wants it now."""
    HOLDER = "its holder"
    """An episode that has a permit asks for it again."""
    OBJECTS = "evaluate"
    """The objects of a cluster are judged: the order of a report, `evaluate` and `explain`. No permit is known."""


class Identity(NamedTuple):
    """What identifies a node: its name, the uid of its Node object, its machine."""

    node: str
    uid: str
    provider_id: str

    @property
    def claims(self) -> Iterator[tuple[str, str]]:
        """What stands for it. Two that share a claim are one node, Node object or machine (S13): a machine that came back under
        a new name is the same one. What is not known is no claim."""
        yield "node", self.node
        if self.uid:
            yield "uid", self.uid
        if self.provider_id:
            yield "machine", machine_behind(self.provider_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """The node that is asked about, and what asks.

    ready: whether its Ready condition is True, as the quorum counts it (S15); ready_now: as it was seen last, for storms.
    groups: all but the cluster. checks: those that count it among their targets; None where that is not known. needs_closed:
    the checks that must have a closed circuit breaker, the one that would act first; None for all. spends: the checks that
    count it as healthy, and lose one. passes: reasons of open circuit breakers that do not stop it. candidate: as the report
    has it; None for a request. impossible: why nothing can be done about it, vetoed_by: the row of the gate that says so, ""
    for none.
    """

    asker: Asker
    node: str
    uid: str = ""
    provider_id: str = ""
    incident: str = ""
    kind: Kind = Kind.FENCING
    ready: bool = True
    ready_now: bool = True
    control_plane: bool = False
    removes: bool = False
    groups: tuple[str, ...] = ()
    checks: frozenset[str] | None = frozenset()
    needs_closed: tuple[str, ...] | None = None
    spends: tuple[str, ...] = ()
    passes: frozenset[OpenReason] = frozenset()
    candidate: Candidate | None = None
    impossible: str = ""
    vetoed_by: str = ""

    @property
    def identity(self) -> Identity:
        return Identity(self.node, self.uid, self.provider_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitObjection:
    """Why not. check: the key of the check that objects, "" where none does. waits: the objection ends once other nodes give
    their permits back, or a pause ends; a request that meets it waits in the queue."""

    code: AdmissionRefusal
    message: str
    check: str = ""
    waits: bool = False


# What the rules compare -----------------------------------------------------------------------------------------------


class ObjectLimits:
    """The limits that the objects of a cluster alone show.

    breakers: of all checks by key. count_of: of a group, None where it was not counted.
    """

    def __init__(
        self,
        policies: FencePolicies,
        breakers: Mapping[str, CircuitBreaker] | Mapping[str, CheckReport],
        count_of: Callable[[str], GroupCount | None],
    ) -> None:
        self.policies = policies
        self.breakers: Mapping[str, CircuitBreaker | CheckReport] = breakers
        self.count_of = count_of

    @classmethod
    def of(cls, snapshot: LedgerSnapshot) -> ObjectLimits:
        """The limits as a ledger counts them at this moment."""
        return cls(snapshot.policies, snapshot.breakers, snapshot.groups.of)

    def spare(self, key: str) -> int:
        """How many more of the check's healthy targets may be disrupted."""
        return self.breakers[key].remaining

    def going_down(self, applicant: Applicant) -> Mapping[str, int]:
        """How many nodes of each group are Ready and may be disrupted, this one included."""
        return Counter({CLUSTER, *applicant.groups} if applicant.ready_now else ())


class HeldOffNode(Protocol):
    """A node that gets no new episode for now (S19). `until` None: until a person ends it. `looked_well`: since when no check
    calls it unhealthy; an illness that began later is not held off.

    A Protocol, since the scanner carries it over as a message of its workflow, which policy does not import.
    """

    @property
    def node(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def until(self) -> datetime | None: ...
    @property
    def looked_well(self) -> datetime | None: ...


class Occupancy(ObjectLimits):
    """Which permits are held, and what room they leave in the cluster that a report shows (S14).

    Every reservation counts against the later ones. A parked permit keeps its node and counts in no budget. report: None where
    the scanner has not seen the cluster yet. ahead: how many requests wait in the queue before this one. power: the last power
    command for nodes after the end of their episode. replaced: remediations that have ended lately. paused: who paused the
    cluster and why, "" while it is not paused. now: None where no moment is to be compared.
    """

    def __init__(
        self,
        report: ScanReport | None,
        permits: Iterable[Permit],
        *,
        cap: int,
        ahead: int = 0,
        now: datetime | None = None,
        held_off: Iterable[HeldOffNode] = (),
        power: Iterable[PowerMoment] = (),
        replaced: Iterable[Replacing] = (),
        paused: str = "",
    ) -> None:
        self.report = report
        self.permits = tuple(permits)
        self.counted = [permit for permit in self.permits if permit.state is not PermitState.PARKED]
        self._claimed = defaultdict[tuple[str, str], dict[int, Permit]](dict)
        """The permits by each claim, with their places in the table: each candidate of a storm would be compared with all."""
        for place, permit in enumerate(self.permits):
            for claim in Identity(permit.node, permit.node_uid, permit.provider_id).claims:
                self._claimed[claim][place] = permit
        self.reserved: list[Candidate] = []
        self._reserved = set[tuple[str, str]]()
        self.ahead = ahead
        self.now = now
        self.held_off = {each.node: each for each in held_off if each.until is None or now is None or each.until > now}
        self.power = {each.node: each for each in power}
        self.paused = paused
        self.replacing = [
            *(Replacing(owner=each.owner, node=each.node, since=each.granted_at) for each in self.permits if each.owner),
            *replaced,
        ]
        counts = {count.group: count for count in report.groups} if report is not None else {}
        super().__init__(
            report.policies if report is not None else FencePolicies(),
            {check.ref.key: check for check in report.checks} if report is not None else {},
            counts.get,
        )
        self.cap = self.policies.cap or cap
        self._spent = Counter[str]()
        if report is not None:
            self._spend_unseen(report)

    def _spend_unseen(self, report: ScanReport) -> None:
        """Count a node that was granted a permit and is not marked yet: the report still shows it as healthy."""
        offered = {candidate.node for candidate in report.candidates}
        for candidate in report.candidates:
            if self.holders(Identity(candidate.node, candidate.uid, candidate.provider_id)):
                self._spent.update(candidate.healthy_under)
        marks = {seen.node: seen.incident for seen in report.seen_nodes}
        for permit in self.counted:
            # The same where the report has no room for it among so many candidates.
            if permit.node not in offered and marks.get(permit.node, "") != permit.incident:
                self._spent.update(permit.healthy_under)

    def reserve(self, candidate: Candidate) -> None:
        """Count the candidate from now on."""
        self.reserved.append(candidate)
        self._reserved.update(Identity(candidate.node, candidate.uid, candidate.provider_id).claims)
        self._spent.update(candidate.healthy_under)

    def spare(self, key: str) -> int:
        """See `ObjectLimits.spare`; nodes that hold permits are subtracted."""
        return super().spare(key) - self._spent[key]

    def going_down(self, applicant: Applicant) -> Mapping[str, int]:
        """See `ObjectLimits.going_down`; nodes that hold permits count too: a storm rule that counts only nodes that are down
        already would let all the others be taken down together (S17)."""
        assert self.report is not None
        counts = Counter[str](super().going_down(applicant))
        seen = {each.node: each for each in self.report.seen_nodes}
        for permit in self.counted:
            if permit.node != applicant.node and permit.node in seen and seen[permit.node].ready:
                counts.update({CLUSTER, *permit.groups, *seen[permit.node].groups})
        for candidate in self.reserved:
            counts.update({CLUSTER, *candidate.groups} if candidate.ready else ())
        return counts

    def holders(self, identity: Identity) -> list[Permit]:
        """The permits of the same node, Node object or machine."""
        found = dict[int, Permit]()
        for claim in identity.claims:
            found |= self._claimed.get(claim, {})
        return [found[place] for place in sorted(found)]

    def is_reserved(self, identity: Identity) -> bool:
        return not self._reserved.isdisjoint(identity.claims)

    @property
    def names(self) -> list[str]:
        return [*(permit.node for permit in self.counted), *(each.node for each in self.reserved)]

    def other_members(self, node: str) -> set[str]:
        """The other control-plane members in episodes, parked ones too: their machines may be off (S15)."""
        held = {permit.node for permit in self.permits if permit.control_plane is not False}
        return (held | {each.node for each in self.reserved if each.control_plane}) - {node}

    def full_check(self, applicant: Applicant) -> str:
        """Which check's own limit has no room for one more of its targets, "" where all have (`nodewarden.io/max-in-flight`).

        A permit counts under the checks that counted its node when it was granted and those that count it now; a permit of a
        node without known checks counts under all (S14). A preservation remediates nothing.
        """
        assert self.report is not None
        if applicant.kind is Kind.PRESERVATION:
            return ""
        keys = applicant.checks
        limits = [each for each in self.report.checks if each.at_once is not None and (keys is None or each.ref.key in keys)]
        if not limits:
            return ""
        held = [(each.node, self._counted_under(each)) for each in self.counted if each.kind is not Kind.PRESERVATION]
        held += [(each.node, frozenset(each.checks)) for each in self.reserved]
        for limit in limits:
            busy = [node for node, checks in held if checks is None or limit.ref.key in checks]
            if limit.at_once is not None and len(busy) >= limit.at_once:
                return f"{limit.ref.key} lets {limit.at_once} be remediated at once: {some_of(sorted(busy)) or 'none'}"
        return ""

    def _counted_under(self, permit: Permit) -> frozenset[str] | None:
        """The checks that count the permit; None: all checks."""
        assert self.report is not None
        now = checks_of(self.report, permit.node)
        return None if permit.found and now is None else (now or frozenset()).union(permit.checks)

    def full_group(self, groups: Collection[str]) -> str:
        """Which group has no room for one more by the caps of the fence policies, "" where all have.

        A permit counts in the groups that its node was in when it was granted and in those that it is seen in now. Where a
        scope's group is not known (the permit was adopted from an open episode and its Node is gone), it counts in all groups
        of that scope.
        """
        assert self.report is not None
        if not self.policies.caps:
            return ""
        seen = {each.node: each.groups for each in self.report.seen_nodes}
        held = [(each.node, {*each.groups, *seen.get(each.node, ())}) for each in self.counted]
        held += [(each.node, {*each.groups, *seen.get(each.node, ())}) for each in self.reserved]
        for each in self.policies.caps:
            mine = {group for group in groups if scope_of(group) == each.scope}
            busy = [node for node, theirs in held if _may_share(each.scope, mine, theirs)]
            if len(busy) >= each.cap:
                where = group_phrase(min(mine)) if mine else f"whatever {each.scope} it is in"
                return f"{len(busy)} of {each.cap} permits of {where} are held: {some_of(sorted(busy))}"
        return ""


def groups_of(report: ScanReport, node: str) -> tuple[str, ...]:
    """The groups of a node that was watched, empty where it was not seen."""
    return next((seen.groups for seen in report.seen_nodes if seen.node == node), ())


def checks_of(report: ScanReport, node: str) -> frozenset[str] | None:
    """The checks that count the node among their targets, None where the report does not say."""
    found = [each.checks for each in report.seen_nodes if each.node == node and (each.present or each.checks)]
    found += [each.checks for each in report.candidates if each.node == node]
    return frozenset[str]().union(*found) if found else None


def _may_share(scope: str, mine: Collection[str], theirs: Collection[str]) -> bool:
    """Whether two nodes may be in one group of a scope; where it is not known, they may."""
    them = {group for group in theirs if scope_of(group) == scope}
    return not mine or not them or bool(them.intersection(mine))


# The rules, in the order of the table ---------------------------------------------------------------------------------


class _OfCheck(NamedTuple):
    """A sentence, and the check that it is about."""

    message: str
    check: str


_Answer = str | _OfCheck


def _in_hand(applicant: Applicant, room: Occupancy) -> _Answer:
    holders = room.holders(applicant.identity)
    return _held_by(applicant.node, holders[0]) if holders and all(each.node == applicant.node for each in holders) else ""


def _node_held(applicant: Applicant, room: Occupancy) -> _Answer:
    for holder in room.holders(applicant.identity):
        if not applicant.incident or holder.incident != applicant.incident:  # of a holder that was found it may be unknown, too
            return _held_by(applicant.node, holder)
    if room.is_reserved(applicant.identity):
        return f"another candidate of this scan is the same machine as {applicant.node}"
    return ""


def _held_by(node: str, holder: Permit) -> str:
    under = "" if holder.node == node else f" under the name {holder.node}"
    return f"{node} is held by {holder.workflow_id}, incident {holder.incident}{under} ({holder.state})"


def _backed_off(applicant: Applicant, room: Occupancy) -> _Answer:
    held, candidate = room.held_off.get(applicant.node), applicant.candidate
    if held is None:
        return ""
    if candidate is not None and held.looked_well is not None and candidate.dated and candidate.since > held.looked_well:
        return ""  # it has looked well since, and this began later
    return f"held off: {held.reason}"


def _stale_view(_applicant: Applicant, room: Occupancy) -> _Answer:
    if room.report is None:
        return "the scanner has not seen the cluster yet; ask again in a moment"
    view = room.report.view
    return f"the view of the cluster is stale: {view.stale or 'not synced'}" if not view.synced or view.stale else ""


def _no_cluster_lease(_applicant: Applicant, room: Occupancy) -> _Answer:
    assert room.report is not None
    lease = room.report.lease
    if lease.held:
        return ""
    held_by = f", {lease.holder} holds it" if lease.holder else ""
    trouble = f" ({lease.problem})" if lease.problem else ""
    return f"the cluster Lease is not ours{held_by}{trouble}"


def _bad_policies(_applicant: Applicant, limits: ObjectLimits) -> _Answer:
    return f"the fence policies can't be used: {limits.policies.problem}" if limits.policies.problem else ""


def _retry_later(applicant: Applicant, room: Occupancy) -> _Answer:
    candidate = applicant.candidate
    if candidate is None or candidate.not_before is None or room.now is None or room.now >= candidate.not_before:
        return ""
    return candidate.waits or f"its next remediation is postponed until {candidate.not_before}"


def _replacement(applicant: Applicant, room: Occupancy) -> _Answer:
    """Whether the candidate may be the replacement that an open remediation waits for, which will inherit its memory."""
    for each in room.replacing:
        over = each.until is not None and room.now is not None and each.until <= room.now
        if not over and applicant.candidate is not None and may_be_successor(applicant.candidate, each):
            return f"it may be what {each.owner} has made in the place of {each.node}"
    return ""


def may_be_successor(candidate: Candidate, replacing: Replacing) -> bool:
    """Whether it is young enough, and has no memory yet. One with a memory is judged by that."""
    if not candidate.fresh or candidate.created is None or candidate.owner != replacing.owner:
        return False
    return candidate.created >= replacing.since - CLOCKS_APART


def _circuit_breaker(applicant: Applicant, limits: ObjectLimits) -> _Answer:
    """A request without a check is stopped by an open circuit breaker of any check."""
    if applicant.needs_closed is None:
        for key, check in limits.breakers.items():
            passes = check.reason in applicant.passes and not (check.reason == OpenReason.OBSERVE_ONLY and check.breached)
            if not passes and isinstance(check, CheckReport) and (opened := against_requests(check)):
                return _OfCheck(opened, key)
    own = (applicant.needs_closed or ())[:1]
    for key in (*(applicant.needs_closed or ()), *applicant.spends):
        check = limits.breakers.get(key)
        if check is None or not (check.allowed or check.reason == OBSERVED):
            why = check.message if check is not None else "the check is gone"
            return _OfCheck(
                f"{key}: {why}" if key in own else f"{key} covers it too, and its circuit breaker is open: {why}", key
            )
    return ""


def against_requests(check: CheckReport) -> str:
    """Why a check's open circuit breaker stops a request for any node, "" where it does not. A check that selects nothing,
    can't be read or is looked after from elsewhere stops no request."""
    if check.closed or check.error or not check.total or check.reason == OpenReason.ELSEWHERE:
        return ""
    also = "until it closes no request begins, not even on nodes that this check does not cover"
    how = f"; a person may override it for one node: `--override {CIRCUIT_BREAKER}` of `nodewarden fence`, remediate and ack-off"
    how = how if check.reason in OVERRIDABLE else ""
    return f"{check.ref.key} has its circuit breaker open: {check.message}; {also}{how}"


def _threshold(applicant: Applicant, limits: ObjectLimits) -> _Answer:
    for key in applicant.spends:
        if limits.spare(key) < 1:
            why = limits.breakers[key].message.removeprefix(ALL_OBSERVED)  # its numbers hold it, not its mode
            return _OfCheck(f"{key} counts it as healthy and allows no more disruption: {why}", key)
    return ""


def _switched_off(applicant: Applicant, limits: ObjectLimits) -> _Answer:
    return limits.policies.off_for((CLUSTER, *applicant.groups))


def _storage_down(_applicant: Applicant, limits: ObjectLimits) -> _Answer:
    return limits.policies.storage_down(limits.count_of(CLUSTER))


def _scope_storm(applicant: Applicant, limits: ObjectLimits) -> _Answer:
    if not limits.policies.storms:
        return ""
    storm = limits.policies.storm(applicant.groups, limits.count_of, limits.going_down(applicant))
    return storm.message if storm is not None else ""


def quorum(applicant: Applicant, room: Occupancy) -> str:
    """Why a control-plane member may not be taken, "" where it may, or the node is none (S15)."""
    if not applicant.control_plane or room.report is None:
        return ""
    plane, lost = room.report.control_plane, room.report.members_without_node(applicant.node, applicant.uid)
    if others := sorted({*plane.remediated} - {applicant.node}):
        return f"another control-plane member has a remediation object: {some_of(others)}"
    return objection_by_count(
        plane.members,
        plane.ready,
        target_ready=applicant.ready and applicant.node not in lost,
        open_member_episodes=room.other_members(applicant.node),
        removes=applicant.removes,
        lost=lost,
    )


def _quiet_time(applicant: Applicant, room: Occupancy) -> _Answer:
    """Its machine was switched on so lately that it may not be switched off again."""
    last = room.power.get(applicant.node)
    if last is None or room.now is None:
        return ""
    left = quiet_left(last, on=False, quiet_time=room.policies.quiet_time, now=room.now)
    if left <= timedelta(0):
        return ""
    seconds = format_duration(timedelta(seconds=-(-left // timedelta(seconds=1))))
    return f"{applicant.node} was switched on at {written(last.at)}; it is left alone for another {seconds}"


def _cap(_applicant: Applicant, room: Occupancy) -> _Answer:
    if len(names := room.names) + room.ahead < room.cap:
        return ""
    before = f", {room.ahead} asked before" if room.ahead else ""
    return f"{len(names)} of {room.cap} permits are held: {some_of(sorted(names)) or 'none'}{before}"


@dataclass(frozen=True, slots=True)
class PermitRule:
    """One row. source: the safety rule. says: why not, "" for no objection. stops: which askers it stops. unblocks: what ends
    it, for people, "" where the message says so. waits: see `PermitObjection`."""

    code: AdmissionRefusal
    source: str
    says: Callable[[Applicant, Occupancy], _Answer] | Callable[[Applicant, ObjectLimits], _Answer]
    stops: frozenset[Asker]
    unblocks: str = ""
    waits: bool = False


_OFFERS = frozenset({Asker.SCAN, Asker.LAST_RESORT})
_REQUESTS = frozenset({Asker.EPISODE, Asker.PERSON})
_DISRUPTS = frozenset({Asker.SCAN, *_REQUESTS})
_OBJECTS = frozenset({Asker.OBJECTS})

_C = AdmissionRefusal  # short, so that the table below reads as one

RULES: tuple[PermitRule, ...] = (
    # Of the node itself.
    PermitRule(_C.IN_HAND, "S13", _in_hand, _OFFERS),
    PermitRule(
        _C.NODE_HELD, "S13", _node_held, _OFFERS | _REQUESTS | {Asker.HOLDER}, "the holder of the node has to give it back"
    ),
    PermitRule(_C.NOT_CARRIED_OUT, "S7", lambda applicant, _: "" if applicant.vetoed_by else applicant.impossible, _OFFERS),
    PermitRule(
        _C.MODE, "S52", lambda applicant, _: applicant.impossible if applicant.vetoed_by == MODE else "", _OFFERS | _OBJECTS
    ),
    PermitRule(_C.HELD_OFF, "S20", lambda applicant, _: applicant.impossible if applicant.vetoed_by else "", _OFFERS | _OBJECTS),
    PermitRule(_C.HELD_OFF, "S19", _backed_off, _OFFERS | {Asker.EPISODE}),
    # Of the whole cluster. Only these stop an episode that just asks a person: it disrupts nothing.
    PermitRule(
        _C.PAUSED,
        "S44",
        lambda _, room: room.paused,
        _OFFERS | _REQUESTS | {Asker.HOLDER},
        "each pause has to end: `nodewarden unpause --of NAME`",
        waits=True,
    ),
    PermitRule(_C.STALE_VIEW, "S18", _stale_view, _OFFERS | _REQUESTS, "the view of the cluster has to be live again"),
    PermitRule(_C.NO_CLUSTER_LEASE, "S38", _no_cluster_lease, _OFFERS | _REQUESTS, "the cluster Lease has to be ours"),
    PermitRule(_C.BAD_POLICIES, "S17", _bad_policies, _OFFERS | _REQUESTS | _OBJECTS, "the fence policies have to be corrected"),
    # Not yet.
    PermitRule(_C.RETRY_LATER, "S19", _retry_later, frozenset({Asker.SCAN}), "time alone, or a person who has it remediated"),
    PermitRule(_C.REPLACEMENT, "S19", _replacement, frozenset({Asker.SCAN}), "the replacement under way has to be done"),
    # Too many are unwell already: of a check, of a fence policy's group, of the control plane.
    PermitRule(
        _C.CIRCUIT_BREAKER,
        "S17",
        _circuit_breaker,
        _DISRUPTS | _OBJECTS,
        "enough targets of the check have to be healthy again, which closes its circuit breaker",
    ),
    PermitRule(
        _C.THRESHOLD, "S17", _threshold, frozenset({Asker.SCAN, Asker.OBJECTS}), "enough nodes have to be responsive again"
    ),
    PermitRule(_C.SWITCHED_OFF, "S17", _switched_off, _DISRUPTS | _OBJECTS, "fencing has to be switched on again"),
    PermitRule(_C.STORAGE_DOWN, "S17", _storage_down, _DISRUPTS | _OBJECTS, "the storage has to be back"),
    PermitRule(
        _C.SCOPE_STORM, "S17", _scope_storm, _DISRUPTS | _OBJECTS, "enough nodes of the same group have to be responsive again"
    ),
    PermitRule(_C.CONTROL_PLANE, "S15", quorum, _DISRUPTS, "the control plane has to be able to spare it"),
    PermitRule(_C.QUIET_TIME, "S17", _quiet_time, _DISRUPTS, "the quiet time has to pass"),
    # Room.
    PermitRule(
        _C.IN_FLIGHT,
        "S14",
        lambda applicant, room: room.full_check(applicant),
        _DISRUPTS,
        "a repair under the same check has to end",
        waits=True,
    ),
    PermitRule(_C.CAP, "S14", _cap, _DISRUPTS, "an episode that ends gives its permit back", waits=True),
    PermitRule(
        _C.SCOPE_CAP,
        "S14",
        lambda applicant, room: room.full_group(applicant.groups),
        _DISRUPTS,
        "an episode in the same group has to end",
        waits=True,
    ),
)

OF_FENCE_POLICIES = frozenset(
    {
        AdmissionRefusal.BAD_POLICIES,
        AdmissionRefusal.SWITCHED_OFF,
        AdmissionRefusal.STORAGE_DOWN,
        AdmissionRefusal.SCOPE_STORM,
    }
)
"""The limits of fence policies that objects alone show. Only the scanner can compare their caps and quiet times."""

WAIT_FOR_A_PERMIT = frozenset(rule.code for rule in RULES if rule.waits) - {AdmissionRefusal.PAUSED}
"""The objections that end only when other nodes give their permits back."""

STOPS_NO_QUESTION = frozenset(rule.code for rule in RULES if Asker.SCAN in rule.stops and Asker.LAST_RESORT not in rule.stops)
"""The objections to a disruption that let an episode be opened which only asks a person."""


@cache
def _rows(asker: Asker, codes: frozenset[AdmissionRefusal] | None) -> tuple[PermitRule, ...]:
    return tuple(rule for rule in RULES if asker in rule.stops and (codes is None or rule.code in codes))


def objections(
    applicant: Applicant, room: ObjectLimits, codes: frozenset[AdmissionRefusal] | None = None
) -> Iterator[PermitObjection]:
    """All objections, the first one is the answer. codes: only of these rules, None for all. room: an `Occupancy`, or
    `ObjectLimits` where objects alone are judged."""
    for rule in _rows(applicant.asker, codes):
        if found := rule.says(applicant, room):  # type: ignore[arg-type]
            check = found.check if isinstance(found, _OfCheck) else ""
            message = found.message if isinstance(found, _OfCheck) else found
            yield PermitObjection(code=rule.code, message=message, check=check, waits=rule.waits)


def beside_mode(found: Iterable[PermitObjection], applicant: Applicant) -> PermitObjection | None:
    """The first objection that would stand in mode repair as well; None where only the mode objects."""
    if applicant.vetoed_by != MODE:
        return next(iter(found), None)
    of_mode = (AdmissionRefusal.MODE, AdmissionRefusal.HELD_OFF)
    return next((each for each in found if each.code not in of_mode or each.message != applicant.impossible), None)


def unblocks(code: AdmissionRefusal) -> str:
    """What would end the objections of that code, for people; "" where the message says so."""
    return next((rule.unblocks for rule in RULES if rule.code is code), "")
