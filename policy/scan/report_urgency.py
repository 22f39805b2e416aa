"""How long a change of what a scan shows may wait until the scanner gets it, so that a storm is not one scan per write.

Most of what changes while nodes are acted upon we have written ourselves, as marks, cordons and taints, and the writer
knows it already: such changes are reported together. What a decision could depend on is reported at once, and nothing is left
out: a report is a level, and the next one says it all.
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
    """Of a change. none: there is none to report. rarely: only people read it, of a node whose episode shows more. later: no
    decision depends on it. soon: an open episode waits for it. now: it may change which node is acted on."""

    NONE = 0
    RARELY = 1
    LATER = 2
    SOON = 3
    NOW = 4


def urgency(known: ScanReport, seen: ScanReport, watching: Collection[str], in_hand: Collection[str]) -> Urgency:
    """What has changed between the report that the scanner knows and the one that it would get now.

    watching: nodes of open episodes, and those held off. Who is admitted depends on the others only. in_hand: the former alone.
    """
    watched, held = frozenset(watching), frozenset(in_hand)
    if _decisive(known, watched) != _decisive(seen, watched):
        return Urgency.NOW
    if _spared(known, watched) != _spared(seen, watched):
        return Urgency.NOW
    if _matters_to_episodes(known, seen, watched, held):
        return Urgency.SOON
    if _of_the_others(known, watched, held) != _of_the_others(seen, watched, held) or _unexpected(known, seen, held):
        return Urgency.LATER
    return Urgency.RARELY if _read_by_people(known) != _read_by_people(seen) else Urgency.NONE


def _decisive(report: ScanReport, watched: frozenset[str]) -> object:
    """All by which a node is admitted or kept, or by which that is refused (S15, S17, S18, S38)."""
    lease = report.lease
    return (
        (report.view, report.cluster_uid, lease.held, lease.needed, lease.holder),
        (report.control_plane, report.policies, _stormy_groups(report.policies, report.groups)),
        [_breaker(check) for check in report.checks],
        _candidates(report, watched),
        (report.preservations, report.preservations_left_out, report.left_over),
    )


def _candidates(report: ScanReport, watched: frozenset[str]) -> list[Candidate]:
    """Those without an episode. Of a node in hand its episode has to know, not the admission."""
    return [candidate for candidate in report.candidates if candidate.node not in watched]


def _spared(report: ScanReport, watched: frozenset[str]) -> list[tuple[str, int]]:
    """How many more may be taken of the checks under which the waiting candidates are healthy: ours to spend, and never by too
    many."""
    keys = {key for candidate in _candidates(report, watched) for key in candidate.healthy_under}
    return [(check.ref.key, check.remaining) for check in report.checks if check.ref.key in keys]


def _breaker(check: CheckReport) -> object:
    """Whether it lets us act, and why not; not its counts."""
    why = check.reason, check.paused, check.error, check.another_controller
    return check.ref, check.uid, check.allowed, check.breached, check.at_once, why


def _stormy_groups(policies: FencePolicies, groups: Collection[GroupCount]) -> object:
    """In which groups fence policies forbid new fencing."""
    cluster = next((count for count in groups if count.group == CLUSTER), None)
    return bool(policies.storage_down(cluster)), policies.storms_among(groups)


def _matters_to_episodes(known: ScanReport, seen: ScanReport, watched: frozenset[str], in_hand: frozenset[str]) -> bool:
    """Whether anything has become of a node in hand that its episode could wait for. One that is seen for the first time is back
    or gone already, or was sick when it was taken in hand."""
    before = {each.node: each for each in known.observations if each.node in watched}
    return any(
        facts_for_episode(each) != facts_for_episode(before[each.node]) if each.node in before else each.ready or not each.present
        for each in seen.observations
        if each.node in before or each.node in in_hand
    )


def _of_the_others(report: ScanReport, watched: frozenset[str], in_hand: frozenset[str]) -> object:
    """All that a digest is of, but what becomes of nodes in hand, and what was seen of a node that is no longer asked for. That
    an open episode writes its mark, a cordon or a taint is reported to people only."""
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
    )


def _unexpected(known: ScanReport, seen: ScanReport, in_hand: frozenset[str]) -> bool:
    """Whether a node in hand is seen for the first time, and otherwise than its episode must have found it."""
    shown = {each.node for each in known.observations}
    return any(each.node in in_hand and each.node not in shown and not plainly_sick(each) for each in seen.observations)


def _read_by_people(report: ScanReport) -> tuple[list[TargetRow], list[str]]:
    """The rows of sick nodes, and whose data is at risk."""
    return [row for row in report.rows if is_sick(row)], [each.node for each in report.at_risk.nearest]


def is_sick(row: TargetRow) -> bool:
    """Whether something ails it: the others are for people only, and fill up the list."""
    return row.health in {Health.UNHEALTHY, Health.SOON}


def plainly_sick(seen: Observation) -> bool:
    """Whether it shows no more than for what an episode is opened: that episode looks for itself."""
    more = seen.asked_by or seen.preserved or seen.confirmed_well or seen.others
    return seen.present and seen.unhealthy and not seen.ready and not more


def stamp_of(seen: Observation) -> str:
    """A short text of what an observation tells the episode of its node, another one for whatever else it tells."""
    return hashlib.sha256(str(facts_for_episode(seen)).encode()).hexdigest()[:16]


def facts_for_episode(seen: Observation) -> object:
    """What an observation tells the episode of its node: all but its own mark, and the groups that only permits ask for."""
    since = seen.ready_since.isoformat() if seen.ready_since is not None else ""
    return (
        (seen.node, seen.present, seen.uid, seen.ready, since, seen.boot_id, seen.provider_id, seen.system_uuid),
        (seen.unhealthy, seen.soon, seen.asked_by, seen.preserved, seen.confirmed_well, seen.others),
    )
