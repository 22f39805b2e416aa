"""The fence policies of a cluster: storm limits and caps by scope, quiet times, failed attempts, and the off switch.

Typed, and merged from all sources: `policy/dialects/node_fencing.py` reads the ConfigMaps of the node-fencing proposal, and the
worker's settings have a section of their own. Where several sources set a limit, the strictest holds. Whether a limit is
reached is decided here and nowhere else; `policy/scan/permit_rules.py` has a row for each, which a scan, an episode's request
and `explain` ask. No policy stops an act that is under way (S17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from policy.objects.machines import EVERY_NAMESPACE
from policy.objects.nodes import NodeEvent, NodeView, newest_recent_event
from policy.objects.scopes import CLUSTER, GroupCount, group_phrase, lost_storage, percent, scope_of
from policy.values.object_refs import FENCE_NAMESPACE

OFF = "off"

DEFAULT_ATTEMPTS = 10
DEFAULT_ATTEMPTS_PAUSE = timedelta(minutes=15)
"""Pacemaker's: after too many failed attempts on a target the next one waits for the next regular look."""

STORAGE_CONDITIONS = ("StorageUnreachable", "ReadonlyFilesystem")
"""Node conditions that report, where True, that a node has lost its storage; the second is the node problem detector's."""

STORAGE_EVENTS = ("StorageUnreachable", "FilesystemIsReadOnly", "IOError")
"""Reasons of Events on a node that report the same; the last two are the node problem detector's."""

STORAGE_EVENT_AGE = timedelta(minutes=5)
"""How long such an Event counts after its last occurrence: no program withdraws an Event."""

LEASE_INTERVAL = timedelta(seconds=90)
"""How long after its last renewal a host's lease still counts as renewed (oVirt's HostStorageLeaseAliveCheckingInterval)."""

MOST_SCOPES = 4
"""The most ways to divide one cluster: each is counted for every node and reported for every candidate."""

MOST_PER_MINUTE = 10_000
"""The most pods that may be freed in a minute; a higher number is no limit and is refused."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StormRule:
    """No new fencing of a node while at least that percentage of its group under the scope is unresponsive, the node included."""

    name: str
    percentage: int
    scope: str = CLUSTER

    def holds(self, count: GroupCount, taking: int = 0) -> bool:
        """Whether a group has reached the limit. The node-fencing proposal says "more than", oVirt at or above: the stricter
        one. taking: how many more of the group our acts may take down."""
        return count.and_more(taking).percent >= self.percentage


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStorm:
    """A storm rule that forbids new fencing in a group. count: None where the group of the node, or of a Machine without one,
    was not counted: it may be in a storm. taking: how many Ready nodes of the group our acts may take down."""

    rule: StormRule
    count: GroupCount | None = None
    taking: int = 0

    @property
    def message(self) -> str:
        if self.count is None:
            return f"the policy {self.rule.name} needs its {self.rule.scope}, which this scan has not counted"
        then = self.count.and_more(self.taking)
        share = f"{then.unresponsive} of {then.nodes} nodes, {then.percent}%"
        how = "are unresponsive, or will be with this one" if then != self.count else "are unresponsive"
        return f"{group_phrase(then.group)}: {share}, {how}; the policy {self.rule.name} fences below {self.rule.percentage}%"

    @property
    def unblocks(self) -> str:
        """How many nodes must come back, "" where the group was not counted."""
        if (count := self.count) is None:
            return ""

        def with_more(more: int) -> GroupCount:
            return replace(count, unresponsive=max(count.unresponsive - more, 0))

        numbers = range(1, count.nodes + 1)
        enough = next((more for more in numbers if not self.rule.holds(with_more(more), self.taking)), count.nodes)
        return f"{enough} more of the {count.nodes} nodes of {group_phrase(count.group)} must become responsive"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeCap:
    """How many nodes of each group under the scope may be disrupted at once."""

    scope: str
    cap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FencePolicies:
    """All policies of one cluster; None and empty where no source sets one.

    cap: nodes at once in the whole cluster, instead of the scanner's own number. quiet_time: between opposite power commands
    for one node. maximum_attempts: failed ones in a row, before a node is left alone for attempts_pause. storage_percentage:
    while at least that many nodes have lost their storage nothing is fenced, since the storage fails, not the nodes.
    skip_lost_storage: a node that reports lost storage is not fenced, by its conditions or by Events on it that are no older
    than storage_event_age. skip_renewed_lease: neither is one with a kubelet that renews its Lease. pods_per_minute: how many
    pods are freed by force, of all nodes together (`policy/episode/permits.py`). switched_off: who switched fencing off
    altogether, in words; off_groups: parts of the cluster where it is off. problem: why the configuration can't be used; then
    nothing new is begun, and an earlier configuration does not count.
    """

    storms: tuple[StormRule, ...] = ()
    cap: int | None = None
    caps: tuple[ScopeCap, ...] = ()
    quiet_time: timedelta | None = None
    maximum_attempts: int | None = None
    attempts_pause: timedelta | None = None
    storage_percentage: int | None = None
    storage_conditions: tuple[str, ...] = ()
    storage_events: tuple[str, ...] = ()
    storage_event_age: timedelta | None = None
    skip_lost_storage: bool = False
    skip_renewed_lease: bool = False
    pods_per_minute: int | None = None
    switched_off: tuple[str, ...] = ()
    off_groups: tuple[str, ...] = ()
    problem: str = ""

    @property
    def scopes(self) -> tuple[str, ...]:
        """Every scope that some policy uses."""
        named = (
            {rule.scope for rule in self.storms}
            | {each.scope for each in self.caps}
            | {scope_of(each) for each in self.off_groups}
        )
        return tuple(sorted(named))

    @property
    def attempts(self) -> int:
        """How many attempts on a node may fail in a row."""
        return self.maximum_attempts or DEFAULT_ATTEMPTS

    @property
    def pause(self) -> timedelta:
        """How long a node is left alone after too many failed attempts."""
        return self.attempts_pause if self.attempts_pause is not None else DEFAULT_ATTEMPTS_PAUSE

    @property
    def lost_storage_conditions(self) -> tuple[str, ...]:
        """The conditions by which nodes report that they have lost their storage; empty where no policy uses them."""
        asked = self.skip_lost_storage or self.storage_percentage is not None
        return (self.storage_conditions or STORAGE_CONDITIONS) if asked else ()

    def off_for(self, groups: Iterable[str]) -> str:
        """Why nothing new is fenced among these groups, "" where fencing is on."""
        if self.switched_off:
            return f"fencing is switched off: {'; '.join(self.switched_off)}"
        found = next((group for group in groups if group in self.off_groups), None)
        return f"fencing is switched off for {group_phrase(found)}" if found is not None else ""

    def storm(
        self, groups: Iterable[str], count_of: Callable[[str], GroupCount | None], taking: Mapping[str, int]
    ) -> GroupStorm | None:
        """The storm of one of these groups, or of the cluster; None where there is none. count_of: returns None for a group
        that was not counted. taking: how many nodes of each group are Ready and may be disrupted, this one included."""
        for rule in self.storms:
            mine = [group for group in (CLUSTER, *groups) if scope_of(group) == rule.scope]
            if not mine:
                return GroupStorm(rule=rule)
            for group in mine:
                count = count_of(group)
                if count is None or rule.holds(count, taking.get(group, 0)):
                    return GroupStorm(rule=rule, count=count, taking=taking.get(group, 0))
        return None

    def storms_among(self, counts: Iterable[GroupCount]) -> list[tuple[str, str]]:
        """The rules and groups that are in a storm now, by name."""
        counts = tuple(counts)
        return [
            (rule.name, count.group)
            for rule in self.storms
            for count in counts
            if scope_of(count.group) == rule.scope and rule.holds(count)
        ]

    def storage_down(self, cluster: GroupCount | None) -> str:
        """Why the shared storage as a whole counts as down, "" where it does not. cluster: None where it was not counted."""
        limit = self.storage_percentage
        cluster = cluster or GroupCount(group=CLUSTER)
        if limit is None or percent(cluster.without_storage, cluster.nodes) < limit:
            return ""
        numbers = f"{cluster.without_storage} of {cluster.nodes} nodes have lost their storage"
        return f"{numbers}, at or above {limit}%: the storage fails, not the nodes"

    def host_lost_storage(self, node: NodeView) -> str:
        """Why the node is left alone as one that can't reach its storage, "" where it is not."""
        condition = lost_storage(node, self.lost_storage_conditions) if self.skip_lost_storage else ""
        return f"it has lost its storage: its condition {condition} is True (skip-if-host-lost-storage)" if condition else ""

    def storage_lost_lately(self, events: Iterable[NodeEvent], now: datetime) -> str:
        """The same, by Events on the node, which only a live look reads."""
        if not self.skip_lost_storage:
            return ""
        age = self.storage_event_age if self.storage_event_age is not None else STORAGE_EVENT_AGE
        event = newest_recent_event(events, self.storage_events or STORAGE_EVENTS, age=age, now=now)
        if event is None:
            return ""
        ago = max(int((now - event.at).total_seconds()), 0)
        return f"it has lost its storage: the Event {event.full_name} reported it {ago} s ago (skip-if-host-lost-storage)"


NO_POLICIES = FencePolicies()
"""The policies where no source sets any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySource:
    """Where fence configuration and the fence policies of a cluster come from: ConfigMaps in that namespace, FencingTemplates
    in those of `templates` (S40), and the worker's settings. requests: the namespaces in which requests of other systems are
    obeyed, machines: those in which Machines and their health checks count (S46)."""

    namespace: str = FENCE_NAMESPACE
    templates: tuple[str, ...] = (FENCE_NAMESPACE,)
    requests: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    policies: FencePolicies = NO_POLICIES


DEFAULT_SOURCE = PolicySource()
OF_FILES = PolicySource(machines=(EVERY_NAMESPACE,))
"""Files say nothing of a worker's settings, and hold what their reader has chosen."""


def stricter(one: FencePolicies, other: FencePolicies) -> FencePolicies:
    """Both together: every limit of either, and of two numbers the stricter one."""
    caps: dict[str, int] = {}
    for each in (*one.caps, *other.caps):
        caps[each.scope] = min(each.cap, caps.get(each.scope, each.cap))
    return FencePolicies(
        storms=tuple(dict.fromkeys((*one.storms, *other.storms))),
        cap=_of(min, one.cap, other.cap),
        caps=tuple(ScopeCap(scope=scope, cap=cap) for scope, cap in sorted(caps.items())),
        quiet_time=_of(max, one.quiet_time, other.quiet_time),
        maximum_attempts=_of(min, one.maximum_attempts, other.maximum_attempts),
        attempts_pause=_of(max, one.attempts_pause, other.attempts_pause),
        storage_percentage=_of(min, one.storage_percentage, other.storage_percentage),
        storage_conditions=tuple(dict.fromkeys((*one.storage_conditions, *other.storage_conditions))),
        storage_events=tuple(dict.fromkeys((*one.storage_events, *other.storage_events))),
        storage_event_age=_of(max, one.storage_event_age, other.storage_event_age),
        skip_lost_storage=one.skip_lost_storage or other.skip_lost_storage,
        skip_renewed_lease=one.skip_renewed_lease or other.skip_renewed_lease,
        pods_per_minute=_of(min, one.pods_per_minute, other.pods_per_minute),
        switched_off=tuple(dict.fromkeys((*one.switched_off, *other.switched_off))),
        off_groups=tuple(dict.fromkeys((*one.off_groups, *other.off_groups))),
        problem="; ".join(filter(None, (one.problem, other.problem))),
    )


def unusable(known: FencePolicies, problem: str) -> FencePolicies:
    """The other policies, with the problem of a configuration that can't be used."""
    return replace(known, problem=problem)


def _of(choose: Callable[[T, T], T], one: T | None, other: T | None) -> T | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerMoment:
    """The last power command that an episode gave a node, and when."""

    node: str
    on: bool
    at: datetime


def quiet_left(last: PowerMoment | None, *, on: bool, quiet_time: timedelta | None, now: datetime) -> timedelta:
    """How long the opposite power command must still wait, zero where it need not. Inside one episode there is no quiet time:
    its on follows its off."""
    if last is None or quiet_time is None or last.on is on:
        return timedelta(0)
    return max(last.at + quiet_time - now, timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Failed attempts on a node in a row, and when the last one failed."""

    node: str
    failed: int
    at: datetime


def left_alone_until(attempts: Attempts, policies: FencePolicies) -> datetime | None:
    """Until when a node is left alone because attempts on it keep failing (S19), None where it is not."""
    return attempts.at + policies.pause if attempts.failed >= policies.attempts else None


def lease_wait(last_contact: datetime | None, now: datetime) -> timedelta:
    """How long to wait before a host's Lease proves silence: it may have been renewed just before the host stopped answering."""
    return max(last_contact + LEASE_INTERVAL - now, timedelta(0)) if last_contact is not None else timedelta(0)


def still_renewed(renewed: datetime | None, last_contact: datetime | None, now: datetime) -> str:
    """Why a host is left alone because its kubelet lives, "" where it is not. renewed: None where the Lease can't be read: that
    proves no silence, but does not stop power fencing, which reads the off back."""
    if renewed is None or now - renewed > LEASE_INTERVAL or (last_contact is not None and renewed <= last_contact):
        return ""
    return f"its kubelet renewed its Lease {int((now - renewed).total_seconds())} s ago (skip-if-host-renews-lease)"
