"""How soon a changed report is sent to the scanner, so that a storm is not one scan per write.

Most changes while nodes are acted upon are our own marks, cordons and taints, which the writer knows already: they are reported
together. A change that may change a decision is reported at once. Nothing is lost: a report is a level, and the next one is
complete.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from enum import IntEnum

from policy.checks.fence_policies import FencePolicies
from policy.checks.verdicts import Health
from policy.episode.messages import Observation
from policy.objects.scopes import CLUSTER, GroupCount
from policy.scan.scan_report import Candidate, CheckReport, ScanReport, TargetRow


class Urgency(IntEnum):
    """How soon a changed report is sent. none: no reader uses the change. rarely: people read it, about a node that has an
    episode, and the episode reports more. later: no decision depends on it. soon: an open episode waits for it. now: admission
    may decide otherwise."""

    NONE = 0
    RARELY = 1
    LATER = 2
    SOON = 3
    NOW = 4


def urgency(previous: ScanReport, current: ScanReport, watching: Collection[str], in_hand: Collection[str]) -> Urgency:
    """How soon the scanner, which has the report `previous`, needs the report `current`.

    watching: nodes of open episodes, and those held off. Admission depends on the other nodes only. in_hand: the nodes of open
    episodes alone.
    """
    watched, held = frozenset(watching), frozenset(in_hand)
    if _decisive(previous, watched) != _decisive(current, watched):
        return Urgency.NOW
    if _spared(previous, watched) != _spared(current, watched):
        return Urgency.NOW
    if _matters_to_episodes(previous, current, watched, held):
        return Urgency.SOON
    if _of_the_others(previous, watched, held) != _of_the_others(current, watched, held) or _unexpected(previous, current, held):
        return Urgency.LATER
    return Urgency.RARELY if _read_by_people(previous) != _read_by_people(current) else Urgency.NONE


def _decisive(report: ScanReport, watched: frozenset[str]) -> object:
    """The part that admission, preservation and clean-ups decide by (S15, S17, S18, S38)."""
    lease = report.lease
    return (
        (report.view, report.cluster_uid, lease.held, lease.needed, lease.holder),
        (report.control_plane, report.policies, _stormy_groups(report.policies, report.groups)),
        [_breaker(check) for check in report.checks],
        _candidates(report, watched),
        (report.preservations, report.preservations_left_out, report.left_over),
    )


def _candidates(report: ScanReport, watched: frozenset[str]) -> list[Candidate]:
    """The candidates without an episode: the others concern their episodes, not admission."""
    return [candidate for candidate in report.candidates if candidate.node not in watched]


def _spared(report: ScanReport, watched: frozenset[str]) -> list[tuple[str, int]]:
    """How many healthy targets each check can still spare, of the checks that the waiting candidates would take one from. We
    must not take one too many."""
    keys = {key for candidate in _candidates(report, watched) for key in candidate.healthy_under}
    return [(check.ref.key, check.remaining) for check in report.checks if check.ref.key in keys]


def _breaker(check: CheckReport) -> object:
    """Whether and why its circuit breaker is open, without its counts."""
    why = check.reason, check.paused, check.error, check.another_controller
    return check.ref, check.uid, check.allowed, check.breached, check.at_once, why


def _stormy_groups(policies: FencePolicies, groups: Collection[GroupCount]) -> object:
    """The groups in which fence policies forbid new fencing."""
    cluster = next((count for count in groups if count.group == CLUSTER), None)
    return bool(policies.storage_down(cluster)), policies.storms_among(groups)


def _matters_to_episodes(previous: ScanReport, current: ScanReport, watched: frozenset[str], in_hand: frozenset[str]) -> bool:
    """Whether a node in hand has changed in a way that its episode may wait for. A node without an earlier observation counts
    if it is Ready or gone: it was sick when its episode began."""
    before = {each.node: each for each in previous.observations if each.node in watched}
    return any(
        facts_for_episode(each) != facts_for_episode(before[each.node]) if each.node in before else each.ready or not each.present
        for each in current.observations
        if each.node in before or each.node in in_hand
    )


def _of_the_others(report: ScanReport, watched: frozenset[str], in_hand: frozenset[str]) -> object:
    """The part of the digest that no urgent decision needs: without the state of nodes in hand, and without nodes that are
    watched no more. Marks, cordons and taints that an open episode writes are shown to people only."""
    limits = {check.ref.key for check in report.checks if check.at_once is not None}
    of_nodes = []
    for seen in report.observations:
        counted = seen.groups, limits.intersection(seen.checks)
        if any(counted) if seen.node in in_hand else seen.node in watched or seen.incident or seen.mark_problem:
            of_nodes.append((seen.node, counted) if seen.node in in_hand else seen)
    rows, at_risk = _read_by_people(report)
    return (
        (report.inventory, report.checks, report.groups, report.candidates_left_out, of_nodes),
        [row for row in rows if row.node not in in_hand],
        [node for node in at_risk if node not in in_hand],
        [(each.node, each.standing, each.uid, each.boot_id, each.code) for each in report.watched],
    )


def _unexpected(previous: ScanReport, current: ScanReport, in_hand: frozenset[str]) -> bool:
    """Whether a node in hand is seen for the first time, in another state than its episode must have found."""
    known = {each.node for each in previous.observations}
    return any(each.node in in_hand and each.node not in known and not plainly_sick(each) for each in current.observations)


def _read_by_people(report: ScanReport) -> tuple[list[TargetRow], list[str]]:
    """The rows of sick nodes, and the nodes with data at risk."""
    return [row for row in report.rows if is_sick(row)], [each.node for each in report.at_risk.nearest]


def is_sick(row: TargetRow) -> bool:
    """Whether it is not well. The rows of other targets are for people only, and fill up the list."""
    return row.health in {Health.UNHEALTHY, Health.SOON}


def plainly_sick(seen: Observation) -> bool:
    """Whether it shows no more than the illness for which an episode is opened: that episode looks for itself."""
    more = seen.asked_by or seen.preserved or seen.confirmed_well or seen.others
    return seen.present and seen.unhealthy and not seen.ready and not more


def stamp_of(seen: Observation) -> str:
    """A short hash of `facts_for_episode`: it changes when the observation changes for the episode."""
    return hashlib.sha256(str(facts_for_episode(seen)).encode()).hexdigest()[:16]


def facts_for_episode(seen: Observation) -> object:
    """The part of an observation that the episode of its node uses: all but its own mark, and the groups that only permits
    need."""
    since = seen.ready_since.isoformat() if seen.ready_since is not None else ""
    return (
        (seen.node, seen.present, seen.uid, seen.ready, since, seen.boot_id, seen.provider_id, seen.system_uuid),
        (seen.unhealthy, seen.soon, seen.asked_by, seen.preserved, seen.confirmed_well, seen.others),
    )
