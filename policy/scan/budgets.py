"""Whether there is room for one more: the caps of groups, a check's own limit, a control plane's quorum, and how many of a group
are left Ready (S14, S15, S17).

Numbers only, each with the sentence that says what is full. What else stands against a node, and in which order that is asked, is
`policy/scan/admission.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from policy.episode.messages import Kind
from policy.episode.permits import Permit, PermitState
from policy.objects.scopes import CLUSTER, called, scope_of
from policy.scan.report import Candidate, ScanReport


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
