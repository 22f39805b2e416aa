"""Which nodes may be disrupted now: the scanner's decision over one report and its permit table, with the reason for every "no".

The same report, table and moment give the same answer, so a scanner may decide again at any time. The ledger has judged before
which targets are unhealthy and which circuit breakers are open (`policy/scan/ledger.py`); a live look follows before each act
(`activities/cluster/`). Acts that restore a node never pass through here (S17).

The first section counts the room that is left; the second decides: `admit` for what a report shows, `answer_request` for an
episode that asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from policy.checks.circuit_breakers import OpenReason
from policy.checks.fence_policies import PowerMoment, quiet_left
from policy.episode.messages import Kind, NeedKind, Observation
from policy.episode.operator_commands import CIRCUIT_BREAKER
from policy.episode.permits import Permit, PermitAnswer, PermitDecision, PermitRequest, PermitState, Replacing
from policy.objects.machines import machine_behind
from policy.objects.scopes import CLUSTER, GroupCount, called, scope_of
from policy.remediation.ladder import removes
from policy.scan.scan_report import Candidate, CheckReport, ScanReport
from policy.values.object_refs import ObjectRef
from policy.values.times import format_duration, written

# Room for one more: the caps of groups, a check's own limit, a control plane's quorum, and how many of a group are left Ready
# (S14, S15, S17). Numbers only, each with the sentence that says what is full.


def control_plane_guard(
    members: int,
    ready: int,
    *,
    target_ready: bool,
    open_member_episodes: Collection[str],
    removes: bool = False,
    lost: Collection[str] = (),
) -> str:
    """Why a control-plane member may not be taken, "" when it may (S15).

    Never the only member, never while another member's episode is open (parked counts: it may be off), and never so that fewer
    Ready members are left than a quorum: of those that there are, or where its machine is replaced (`removes`) of those that
    are left then, so that one of two may be. lost: members that are not among the Nodes counted
    (`ScanReport.members_without_node`); each may vote in etcd, and none is Ready.
    """
    if open_member_episodes:
        return f"another control-plane member is in an episode: {', '.join(sorted(open_member_episodes))}"
    members += len(lost)
    if members <= 1:
        return "it is the only control-plane member"
    counted = members - 1 if removes else members
    left, quorum = ready - (1 if target_ready else 0), counted // 2 + 1
    if left < quorum:
        told = f"{left} of {counted} control-plane members would be left Ready, a quorum needs {quorum}"
        return told + (f"; {names_of(lost)} counted without a Node: the machine may run and vote in etcd" if lost else "")
    return ""


def groups_of(report: ScanReport, node: str) -> tuple[str, ...]:
    """The groups of a node that was watched, none where it was not seen."""
    return next((seen.groups for seen in report.observations if seen.node == node), ())


def checks_of(report: ScanReport, node: str) -> frozenset[str] | None:
    """The checks that count the node among their targets, None where the report does not tell of it."""
    told = [each.checks for each in report.observations if each.node == node and (each.present or each.checks)]
    told += [each.checks for each in report.candidates if each.node == node]
    return frozenset[str]().union(*told) if told else None


def limit_reached(
    report: ScanReport, checks: Collection[str] | None, counted: Iterable[Permit], taken: Iterable[Candidate] = ()
) -> str:
    """Which check's own limit has no room for one more of its targets, "" where all have (`nodewarden.io/max-in-flight`).

    checks: those that count it, None for all. A holder counts under those that counted it when it was granted and those that
    count it now; one that nobody has told of counts under all (S14). A preservation remediates nothing.
    """
    limits = [each for each in report.checks if each.at_once is not None and (checks is None or each.ref.key in checks)]
    if not limits:
        return ""
    holders = [(each.node, _counted_under(report, each)) for each in counted if each.kind is not Kind.PRESERVATION]
    holders += [(each.node, frozenset(each.checks)) for each in taken]
    for limit in limits:
        busy = [node for node, keys in holders if keys is None or limit.ref.key in keys]
        if limit.at_once is not None and len(busy) >= limit.at_once:
            return f"{limit.ref.key} lets {limit.at_once} be remediated at once: {names_of(busy) or 'none'}"
    return ""


def _counted_under(report: ScanReport, permit: Permit) -> frozenset[str] | None:
    """None: all checks."""
    now = checks_of(report, permit.node)
    return None if permit.found and now is None else (now or frozenset()).union(permit.checks)


def room_in_scopes(report: ScanReport, permits: Iterable[Permit], node: str) -> bool:
    """Whether the caps of all scopes leave room for an episode of the node that is found to be open."""
    others = [permit for permit in permits if permit.holding is not PermitState.PARKED and permit.node != node]
    return not ScopeBudgets(report, others).objection(groups_of(report, node))


class ScopeBudgets:
    """Who holds permits in which group, against the caps of the fence policies (S14).

    A holder counts in the groups that it was granted in and in those that it is seen in now. One of which a scope's group is not
    known (its line was taken in from an open episode, its Node is gone) counts in all groups of that scope.
    """

    def __init__(self, report: ScanReport, counted: Iterable[Permit]) -> None:
        self._caps = report.policies.caps
        self._seen = {seen.node: seen.groups for seen in report.observations}
        self._holders: list[tuple[str, frozenset[str]]] = []
        for permit in counted:
            self.spend(permit.node, (*permit.groups, *self._seen.get(permit.node, ())))

    def spend(self, node: str, groups: Collection[str]) -> None:
        """Count a holder from now on."""
        self._holders.append((node, frozenset(groups)))

    def objection(self, groups: Collection[str]) -> str:
        """Which group has no room for one more, "" where all have."""
        for each in self._caps:
            mine = {group for group in groups if scope_of(group) == each.scope}
            holders = [node for node, theirs in self._holders if _meet(each.scope, mine, theirs)]
            if len(holders) >= each.cap:
                where = called(min(mine)) if mine else f"whatever {each.scope} it is in"
                return f"{len(holders)} of {each.cap} permits of {where} are held: {names_of(holders)}"
        return ""


class ReadyOnes:
    """Of each group how many nodes still say Ready that somebody may disrupt: a storm rule that counts those alone that are down
    would let all of them go down together (S17)."""

    def __init__(self, report: ScanReport, permits: Iterable[Permit], *, but_for: str = "") -> None:
        self._ready: Counter[str] = Counter()
        seen = {each.node: each for each in report.observations}
        for permit in permits:
            if permit.holding is not PermitState.PARKED and permit.node != but_for and permit.node in seen:
                self.count({*permit.groups, *seen[permit.node].groups}, ready=seen[permit.node].ready)

    def count(self, groups: Collection[str], *, ready: bool) -> None:
        """A node of these groups that may be disrupted from now on."""
        self._ready.update({CLUSTER, *groups} if ready else ())

    def with_one(self, groups: Collection[str], *, ready: bool) -> Mapping[str, int]:
        """The numbers if one more is."""
        return self._ready + Counter({CLUSTER, *groups} if ready else ())


def _meet(scope: str, mine: Collection[str], theirs: Collection[str]) -> bool:
    """Whether two nodes may be in one group of a scope; unknown is always perhaps."""
    them = {group for group in theirs if scope_of(group) == scope}
    return not mine or not them or bool(them.intersection(mine))


def names_of(nodes: Collection[str]) -> str:
    """Some names for a sentence, never a fleet."""
    shown = sorted(nodes)[:3]
    return ", ".join(shown) + (f" and {len(nodes) - len(shown)} more" if len(nodes) > len(shown) else "")


OVERRIDABLE = frozenset({OpenReason.TOO_MANY_UNHEALTHY, OpenReason.STORM})
"""The reasons of an open circuit breaker that a person may override for one node: counts, which people can weigh (S17)."""

CLOCKS_APART = timedelta(seconds=30)
"""By how much the API server's clock and Temporal's may differ."""


class AdmissionRefusal(StrEnum):
    """Why a node is not admitted, as one word for programs. People are not told of `IN_HAND`: its episode is under way."""

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


WAIT_FOR_A_PERMIT = frozenset({AdmissionRefusal.CAP, AdmissionRefusal.SCOPE_CAP, AdmissionRefusal.IN_FLIGHT})
"""Why a node waits for others to be done, and for nothing else."""


class HeldOffNode(Protocol):
    """A node that gets no new episode for now (S19). `until` None: until somebody lifts it. `looked_well`: since when
    nothing seems to ail it although those that knew better are silent; it is not held off for what began later."""

    @property
    def node(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def until(self) -> datetime | None: ...
    @property
    def looked_well(self) -> datetime | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A candidate that may not be acted on now, and why."""

    node: str
    check: ObjectRef
    reason: AdmissionRefusal
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Every candidate of the report is in exactly one of these. exhausted: nothing but a person's word helps them any more, so
    that one is asked. again: when the first of those that wait for nothing but their time is due."""

    admitted: tuple[Candidate, ...] = ()
    refused: tuple[Refused, ...] = ()
    exhausted: tuple[Candidate, ...] = ()
    again: datetime | None = None


def admit(
    report: ScanReport,
    permits: Iterable[Permit],
    *,
    cap: int,
    now: datetime,
    held_off: Iterable[HeldOffNode] = (),
    power: Iterable[PowerMoment] = (),
    replaced: Iterable[Replacing] = (),
    paused: str = "",
) -> Admission:
    """Who gets a permit now: oldest offence first, then by name. The caller reserves the permits before it acts on this (S14).

    cap: at once in the whole cluster, unless the fence policies say another number. power: the last power command of nodes whose
    episode has ended. replaced: remediations that have ended lately. paused: by whom and why, where
    a person has paused the cluster.
    """
    replaced = tuple(replaced)
    table = _Table(report, tuple(permits), cap=cap, now=now, held_off=held_off, power=power, replaced=replaced, paused=paused)
    admitted: list[Candidate] = []
    refused: list[Refused] = []
    exhausted: list[Candidate] = []
    due: list[datetime] = []
    for candidate in sorted(report.candidates, key=lambda candidate: (candidate.since, candidate.node)):
        reason, message = table.objection(candidate) or (None, "")
        if reason is None and candidate.exhausted:
            exhausted.append(candidate)
        elif reason is None:
            table.reserve(candidate)
            admitted.append(candidate)
        else:
            refused.append(Refused(node=candidate.node, check=candidate.check, reason=reason, message=message))
        if reason is AdmissionRefusal.RETRY_LATER and candidate.not_before is not None:
            due.append(candidate.not_before)
        if reason is AdmissionRefusal.REPLACEMENT:
            due += [each.until for each in replaced if each.until is not None and _may_be_the_successor(candidate, each)]
    return Admission(admitted=tuple(admitted), refused=tuple(refused), exhausted=tuple(exhausted), again=min(due, default=None))


def answer_request(
    report: ScanReport | None,
    permits: Iterable[Permit],
    request: PermitRequest,
    *,
    cap: int,
    ahead: int = 0,
    now: datetime | None = None,
    power: Iterable[PowerMoment] = (),
    held_off: Iterable[HeldOffNode] = (),
    paused: str = "",
    counted_under: Collection[str] = (),
) -> PermitAnswer:
    """The answer to an open episode that asks for a permit. `ahead`: how many requests wait in the queue before it.

    Nobody knows which checks cover the node of such a request, so any open circuit breaker refuses it. A check that selects
    nothing or cannot be read stands in nobody's way. An incident that holds the node already is granted again. now, power: for
    the quiet time; without a moment none is kept. held_off: only a person's request is not refused for it (S19). paused:
    see `admit`; it is queued until that is over, also with a permit of its own (S44). counted_under: the checks that counted
    it when it had its last permit. A person's override passes over the circuit breakers of checks, and over nothing else (S17).
    """
    permits = tuple(permits)
    if paused:
        return PermitAnswer(decision=PermitDecision.QUEUED, reason=paused)
    for holder in _holders(permits, request.node, request.node_uid, request.provider_id):
        if holder.incident != request.incident:
            return _refusal(_held_by(request.node, holder))
        if holder.holding is not PermitState.PARKED:
            return PermitAnswer(decision=PermitDecision.GRANTED, reason="the permit is held already")
    if report is None:
        return _refusal("the scanner has not seen the cluster yet; ask again in a moment")
    if unlicensed := _unlicensed(report):
        return _refusal(unlicensed[1])
    if not request.by_person and (held := next((each for each in held_off if each.node == request.node), None)) is not None:
        return _refusal(f"held off: {held.reason}")
    passed_over = OVERRIDABLE if request.override == CIRCUIT_BREAKER else frozenset[OpenReason]()
    if opened := next(filter(None, (against_requests(each) for each in report.checks if each.reason not in passed_over)), ""):
        return _refusal(opened)
    groups = groups_of(report, request.node)
    taking = ReadyOnes(report, permits, but_for=request.node)
    if braked := _braked(report, groups, taking.with_one(groups, ready=_ready_now(report, request))):
        return _refusal(braked[1])
    if request.control_plane:
        others = {permit.node for permit in permits if permit.control_plane is not False and permit.node != request.node}
        members, ready = report.control_plane.members, report.control_plane.ready
        lost = report.members_without_node(request.node, request.node_uid)
        guard = control_plane_guard(
            members,
            ready,
            target_ready=request.ready and request.node not in lost,
            open_member_episodes=others,
            removes=request.removes,
            lost=lost,
        )
        if guard:
            return _refusal(guard)
    if now is not None and (quiet := _quiet(report, request.node, power, now)):
        return _refusal(quiet[1])
    counted, cap = [permit for permit in permits if permit.holding is not PermitState.PARKED], report.policies.cap or cap
    checks = () if request.kind is Kind.PRESERVATION else checks_of(report, request.node)
    checks = checks if checks is None else {*checks, *counted_under}
    if full := limit_reached(report, checks, counted) or ScopeBudgets(report, counted).objection(groups):
        return PermitAnswer(decision=PermitDecision.QUEUED, reason=full)
    if len(counted) + ahead >= cap:
        waiting = f", {ahead} asked before" if ahead else ""
        return PermitAnswer(decision=PermitDecision.QUEUED, reason=_cap_reached(counted, cap) + waiting)
    return PermitAnswer(decision=PermitDecision.GRANTED, reason=f"{len(counted) + 1} of {cap} permits are held now")


def orphans(observations: Iterable[Observation], known_open: Collection[str]) -> tuple[Observation, ...]:
    """Nodes that carry the mark of an incident that is not open although nothing ails them: candidates for a clean-up (S35).

    A node that is not Ready, or whose timeout runs, is left alone: its marks are adopted by the episode that it gets if it stays
    so. A mark that can't be read is a person's case, and one on a node that is preserved may be of that. known_open: the
    incidents of all permits, parked ones too.
    """
    return tuple(
        seen
        for seen in sorted(observations, key=lambda seen: seen.node)
        if seen.present and seen.incident and not seen.mark_problem and seen.incident not in known_open
        and seen.ready and not seen.unhealthy and not seen.soon and not seen.preserved
    )  # fmt: skip


class _Table:
    """The permit table while one admission goes on: every reservation counts against those after it."""

    def __init__(
        self,
        report: ScanReport,
        permits: tuple[Permit, ...],
        *,
        cap: int,
        now: datetime,
        held_off: Iterable[HeldOffNode],
        power: Iterable[PowerMoment],
        replaced: Iterable[Replacing],
        paused: str,
    ) -> None:
        self._report = report
        self._permits = permits
        self._cap = report.policies.cap or cap
        self._now = now
        self._power = tuple(power)
        self._replacing = [
            *(Replacing(owner=each.owner, node=each.node, since=each.granted_at) for each in permits if each.owner),
            *replaced,
        ]
        self._budgets = ScopeBudgets(report, [permit for permit in permits if permit.holding is not PermitState.PARKED])
        self._taking = ReadyOnes(report, permits)
        self._unlicensed = _unlicensed(report) or ((AdmissionRefusal.PAUSED, paused) if paused else None)
        self._checks = {check.ref.key: check for check in report.checks}
        self._control_plane = report.control_plane
        self._held_off = {held.node: held for held in held_off if held.until is None or held.until > now}
        self._counted = [permit.node for permit in permits if permit.holding is not PermitState.PARKED]
        self._members = {permit.node for permit in permits if permit.control_plane is not False}
        self._taken: list[Candidate] = []
        self._remaining = {key: check.remaining for key, check in self._checks.items()}
        shown = {candidate.node for candidate in report.candidates}
        for candidate in report.candidates:
            if self._holders(candidate):
                # Granted already and not marked yet: the report still counts it as healthy under these.
                self._spend(candidate.healthy_under)
        marks = {seen.node: seen.incident for seen in report.observations}
        for permit in permits:
            # The same where the report has no room for it among so many candidates.
            unmarked = permit.holding is not PermitState.PARKED and marks.get(permit.node, "") != permit.incident
            if unmarked and permit.node not in shown:
                self._spend(permit.healthy_under)

    def objection(self, candidate: Candidate) -> tuple[AdmissionRefusal, str] | None:
        """The first reason against it; reasons of the node itself go before those of the cluster."""
        holders = self._holders(candidate)
        if holders:
            mine = all(holder.node == candidate.node for holder in holders)
            return (AdmissionRefusal.IN_HAND if mine else AdmissionRefusal.NODE_HELD), _held_by(candidate.node, holders[0])
        if any(_same_target(candidate, taken) for taken in self._taken):
            return AdmissionRefusal.NODE_HELD, f"another candidate of this scan is the same machine as {candidate.node}"
        if candidate.refused:
            vetoed = bool(candidate.vetoed_by)
            return AdmissionRefusal.HELD_OFF if vetoed else AdmissionRefusal.NOT_CARRIED_OUT, candidate.refused
        if (held := self._held_off.get(candidate.node)) is not None and not _began_after(candidate, held.looked_well):
            return AdmissionRefusal.HELD_OFF, f"held off: {held.reason}"
        if candidate.exhausted:
            return self._unlicensed  # nothing is done about it but to ask a person
        return (
            self._unlicensed
            or self._put_off(candidate)
            or self._closed_brake(candidate)
            or _braked(self._report, candidate.groups, self._taking.with_one(candidate.groups, ready=candidate.ready))
            or self._guarded(candidate)
            or _quiet(self._report, candidate.node, self._power, self._now)
            or self._under_way(candidate)
            or self._full(candidate)
        )

    def _put_off(self, candidate: Candidate) -> tuple[AdmissionRefusal, str] | None:
        """Its next try is not due yet; or it may be what an open remediation waits for, and will be told what to remember."""
        if candidate.not_before is not None and self._now < candidate.not_before:
            return (
                AdmissionRefusal.RETRY_LATER,
                candidate.waits or f"its next remediation is postponed until {candidate.not_before}",
            )
        for each in self._replacing:
            over = each.until is not None and each.until <= self._now
            if _may_be_the_successor(candidate, each) and not over:
                return AdmissionRefusal.REPLACEMENT, f"it may be what {each.owner} has made in the place of {each.node}"
        return None

    def _under_way(self, candidate: Candidate) -> tuple[AdmissionRefusal, str] | None:
        """A check's own limit, whatever the cluster's (`nodewarden.io/max-in-flight`)."""
        held = [permit for permit in self._permits if permit.holding is not PermitState.PARKED]
        full = limit_reached(self._report, candidate.checks, held, self._taken)
        return (AdmissionRefusal.IN_FLIGHT, full) if full else None

    def reserve(self, candidate: Candidate) -> None:
        """Count it from now on (S14)."""
        self._taken.append(candidate)
        self._counted.append(candidate.node)
        self._budgets.spend(candidate.node, candidate.groups)
        self._taking.count(candidate.groups, ready=candidate.ready)
        if candidate.control_plane:
            self._members.add(candidate.node)
        self._spend(candidate.healthy_under)

    def _closed_brake(self, candidate: Candidate) -> tuple[AdmissionRefusal, str] | None:
        if candidate.need is NeedKind.FOREIGN_OBJECT:
            # As for a person's request. That the operator which asks us looks after its own checks is no open circuit breaker.
            for closed in self._checks.values():
                if (closed.reason != OpenReason.OBSERVE_ONLY or closed.breached) and (opened := against_requests(closed)):
                    return AdmissionRefusal.CIRCUIT_BREAKER, opened
        elif (check := self._checks.get(candidate.check.key)) is None or not check.allowed:
            return AdmissionRefusal.CIRCUIT_BREAKER, f"{candidate.check.key}: {_why_closed(check)}"
        for key in candidate.healthy_under:
            other = self._checks.get(key)
            if other is None or not other.allowed:
                return AdmissionRefusal.CIRCUIT_BREAKER, f"{key}: {_why_closed(other)}"
            if self._remaining[key] < 1:
                return AdmissionRefusal.THRESHOLD, f"{key} counts the node as healthy and can spare no more: {other.message}"
        return None

    def _guarded(self, candidate: Candidate) -> tuple[AdmissionRefusal, str] | None:
        if not candidate.control_plane:
            return None
        guard = control_plane_guard(
            self._control_plane.members,
            self._control_plane.ready,
            target_ready=candidate.ready,
            open_member_episodes=self._members - {candidate.node},
            removes=removes(candidate.ladder),
            lost=self._report.members_without_node(candidate.node, candidate.uid),
        )
        return (AdmissionRefusal.CONTROL_PLANE, guard) if guard else None

    def _full(self, candidate: Candidate) -> tuple[AdmissionRefusal, str] | None:
        if len(self._counted) < self._cap:
            full = self._budgets.objection(candidate.groups)
            return (AdmissionRefusal.SCOPE_CAP, full) if full else None
        return AdmissionRefusal.CAP, f"{len(self._counted)} of {self._cap} permits are held: {names_of(self._counted)}"

    def _spend(self, healthy_under: Iterable[str]) -> None:
        for key in healthy_under:
            if key in self._remaining:
                self._remaining[key] -= 1

    def _holders(self, candidate: Candidate) -> list[Permit]:
        return _holders(self._permits, candidate.node, candidate.uid, candidate.provider_id)


def _may_be_the_successor(candidate: Candidate, replacing: Replacing) -> bool:
    """Whether it is young enough, and knows of nothing yet. One that knows counts by what it knows."""
    if not candidate.fresh or candidate.created is None or candidate.owner != replacing.owner:
        return False
    return candidate.created >= replacing.since - CLOCKS_APART


def _began_after(candidate: Candidate, moment: datetime | None) -> bool:
    return moment is not None and candidate.dated and candidate.since > moment


def _ready_now(report: ScanReport, request: PermitRequest) -> bool:
    """What was seen of the node; else what its episode says, which assumes the worse."""
    return next((seen.ready for seen in report.observations if seen.node == request.node and seen.present), request.ready)


def _braked(report: ScanReport, groups: Collection[str], taking: Mapping[str, int]) -> tuple[AdmissionRefusal, str] | None:
    """Which fence policy forbids new episodes in these groups (S17). A group that was not counted may be in a storm. taking: of
    each group how many are Ready and may be disrupted, with the one that is asked about."""
    policies, counts = report.policies, {count.group: count for count in report.groups}
    if off := policies.off_for(groups):
        return AdmissionRefusal.SWITCHED_OFF, off
    cluster = counts.get(CLUSTER, GroupCount(group=CLUSTER))
    if down := policies.storage_down(cluster):
        return AdmissionRefusal.STORAGE_DOWN, down
    for rule in policies.storms:
        mine = [group for group in (CLUSTER, *groups) if scope_of(group) == rule.scope]
        if not mine or any(group not in counts for group in mine):
            return AdmissionRefusal.SCOPE_STORM, rule.why_not_counted
        for group in mine:
            if rule.closed(counts[group], taking.get(group, 0)):
                return AdmissionRefusal.SCOPE_STORM, rule.said(counts[group], taking.get(group, 0))
    return None


def _quiet(report: ScanReport, node: str, power: Iterable[PowerMoment], now: datetime) -> tuple[AdmissionRefusal, str] | None:
    """Whether the node was switched on so lately that it may not be switched off again."""
    last = next((moment for moment in power if moment.node == node), None)
    left = quiet_left(last, on=False, quiet_time=report.policies.quiet_time, now=now)
    if last is None or left <= timedelta(0):
        return None
    seconds = format_duration(timedelta(seconds=-(-left // timedelta(seconds=1))))
    return AdmissionRefusal.QUIET_TIME, f"{node} was switched on at {written(last.at)}; it is left alone for another {seconds}"


def _unlicensed(report: ScanReport) -> tuple[AdmissionRefusal, str] | None:
    """What forbids every new episode, whoever asks (S18, S38)."""
    if not report.view.synced or report.view.stale:
        return AdmissionRefusal.STALE_VIEW, f"the view of the cluster is stale: {report.view.stale or 'not synced'}"
    if not report.lease.held:
        held_by = f", {report.lease.holder} holds it" if report.lease.holder else ""
        trouble = f" ({report.lease.problem})" if report.lease.problem else ""
        return AdmissionRefusal.NO_CLUSTER_LEASE, f"the cluster Lease is not ours{held_by}{trouble}"
    if report.policies.problem:
        return AdmissionRefusal.BAD_POLICIES, f"the fence policies can't be used: {report.policies.problem}"
    return None


def against_requests(check: CheckReport) -> str:
    """What a check says against a request, for whichever node; "" where nothing. One that selects nothing, can't be read or is
    looked after from elsewhere stands in nobody's way."""
    if check.allowed or check.error or not check.total or check.reason == OpenReason.ELSEWHERE:
        return ""
    also = "until it closes no request begins, not even on nodes that this check does not cover"
    how = f"; a person may override it for one node: `--override {CIRCUIT_BREAKER}` of `nodewarden fence`, remediate and ack-off"
    how = how if check.reason in OVERRIDABLE else ""
    return f"{check.ref.key} has its circuit breaker open: {check.message}; {also}{how}"


def _why_closed(check: CheckReport | None) -> str:
    return "the check is gone" if check is None else check.error or check.message


def _holders(permits: Iterable[Permit], node: str, uid: str, provider_id: str) -> list[Permit]:
    """Lines of the same node, Node object or machine (S13): a machine that came back under a new name is the same one."""
    return [
        permit
        for permit in permits
        if permit.node == node
        or (uid and permit.node_uid == uid)
        or (provider_id and machine_behind(permit.provider_id) == machine_behind(provider_id))
    ]  # fmt: skip


def _same_target(candidate: Candidate, other: Candidate) -> bool:
    return (
        candidate.node == other.node
        or bool(candidate.uid and candidate.uid == other.uid)
        or bool(candidate.provider_id and machine_behind(candidate.provider_id) == machine_behind(other.provider_id))
    )


def _held_by(node: str, holder: Permit) -> str:
    under = "" if holder.node == node else f" under the name {holder.node}"
    return f"{node} is held by {holder.workflow_id}, incident {holder.incident}{under} ({holder.holding})"


def _cap_reached(counted: Collection[Permit], cap: int) -> str:
    return f"{len(counted)} of {cap} permits are held: {names_of([permit.node for permit in counted]) or 'none'}"


def _refusal(reason: str) -> PermitAnswer:
    return PermitAnswer(decision=PermitDecision.REFUSED, reason=reason)
