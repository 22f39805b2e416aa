"""What every health check thinks of every target, kept up to date change by change: the memory behind a scan.

A change of one object costs as much as there are checks that cover its targets, and time costs only the targets whose timeout has
expired, so a fleet of 50,000 nodes is never walked on a tick. It has no clock: every call that needs the time is given it. What
it says depends only on the objects and the moment, never on the way there, so any worker says the same.

Judging one target is `policy/rules/`, the brakes are `policy/brakes.py`; what a report shows of all this is drawn up in
`policy/reporting.py`, what one check thinks of everybody in `policy/evaluation.py`, and keeping the cache that feeds it is
`activities/cluster/`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from datetime import datetime
from operator import attrgetter

from policy.brakes import Brake, Circumstances, Closed, Counts, brake, threshold_breached
from policy.healthcheck import Dialect, HealthCheck, ObjectRef
from policy.machines import MachineView, WorkloadCluster
from policy.nodes import NodeView
from policy.remediations import Remediation
from policy.report import ControlPlane, ReportParts
from policy.reporting import Known, draw_up, shown
from policy.rules import Rules, rules_of
from policy.storms import Storm, advance, over
from policy.surroundings import Surroundings
from policy.targets import Target
from policy.verdicts import Health, Standing, Verdict

_node_content = attrgetter(*(field.name for field in fields(NodeView) if field.name != "resource_version"))
_machine_content = attrgetter(*(field.name for field in fields(MachineView) if field.name != "resource_version"))
"""All of a view but its resource version, which every heartbeat changes."""

_SPARE_DEADLINES = 1024

CLUSTER_NAME_ANNOTATION = "cluster.x-k8s.io/cluster-name"
CLUSTER_NAMESPACE_ANNOTATION = "cluster.x-k8s.io/cluster-namespace"
"""By these Cluster API says on a Node to which of its Clusters the Node belongs."""


class Ledger:
    """Objects, checks and the verdicts between them. Not thread-safe: one event loop owns it.

    sees_all_nodes: every Node of every workload cluster is put here, so that one which is not here is gone. Else only the Nodes
    of Clusters that a Node here says it belongs to are known; the Machines of others are not judged by their Nodes.
    """

    def __init__(self, *, sees_all_nodes: bool = True, overlap_strictest: bool = True) -> None:
        self._sees_all_nodes = sees_all_nodes
        self._overlap_strictest = overlap_strictest
        self._checks: dict[str, HealthCheck] = {}
        self._rules: dict[str, Rules] = {}
        self._bad: dict[str, tuple[ObjectRef, str]] = {}
        self._nodes: dict[str, Target] = {}
        self._machines: dict[str, Target] = {}
        self._machines_of: defaultdict[str, dict[str, Target]] = defaultdict(dict)
        self._clusters: dict[str, WorkloadCluster] = {}
        self._machines_in: defaultdict[str, dict[str, Target]] = defaultdict(dict)
        self._nodes_in: Counter[str] = Counter()
        self._remediations: dict[str, Remediation] = {}
        self._surroundings = Surroundings()
        self._holds: dict[Dialect, dict[Closed, str]] = {dialect: {} for dialect in Dialect}
        self._storms: dict[str, Storm] = {}
        self._names: list[str] | None = None
        self._sick: dict[str, Target] = {}
        self._marked: dict[str, Target] = {}
        self._tallies: dict[str, _Tally] = {}
        self._deadlines: list[tuple[datetime, str, str]] = []
        self._members = 0
        self._members_ready = 0
        self._now: datetime | None = None
        self._version = 0

    @property
    def version(self) -> int:
        """Another number after each change of something that a report shows or a decision depends on, and only then."""
        return self._version

    @property
    def next_due(self) -> datetime | None:
        """The first moment at which `advance` will change something, None while no time runs."""
        self._drop_stale_deadlines()
        moments = [self._deadlines[0][0]] if self._deadlines else []
        for key, storm in self._storms.items():
            if (end := over(storm, self._checks[key].storm_cooldown)) is not None:
                moments.append(end)
        return min(moments, default=None)

    def __len__(self) -> int:
        return len(self._nodes)

    # Checks ---------------------------------------------------------------------------------------------------------

    def put_check(self, check: HealthCheck) -> None:
        """A check that is new or has changed. Only a change of what it selects or looks for costs a walk over the targets."""
        key = check.ref.key
        known = self._checks.get(key)
        if known == check:
            return
        self._version += 1
        self._bad.pop(key, None)
        self._checks[key] = check
        if known is None or known.storm != check.storm:
            self._storms[key] = check.storm
        if known is not None and _same_judgement(known, check):
            return
        self._forget(key)
        self._rules[key] = rules = rules_of(check)
        self._tallies[key] = _Tally()
        for target in self._targets(check):
            if rules.covers(target):
                self._judge(target, key, rules)

    def put_bad_check(self, ref: ObjectRef, error: str) -> None:
        """A check that can't be used as written. It selects nothing and admits nothing; what it said before is forgotten, so
        that every worker says the same, and the other checks go on."""
        if self._bad.get(ref.key) == (ref, error):
            return
        self._version += 1
        if self._checks.pop(ref.key, None) is not None:
            self._forget(ref.key)
        self._bad[ref.key] = (ref, error)

    def remove_check(self, key: str) -> None:
        """A check that was deleted, good or bad."""
        known, bad = self._checks.pop(key, None), self._bad.pop(key, None)
        if known is not None:
            self._forget(key)
        if known is not None or bad is not None:
            self._version += 1

    # Nodes and Machines -----------------------------------------------------------------------------------------------

    def put_node(self, node: NodeView, now: datetime) -> None:
        """A node as last seen, new or changed."""
        self._hear(now)
        target = self._nodes.get(node.name)
        if target is None:
            target = Target(node.name, node=node)
            target.remediations = self._about(target)
            self._add(target)
            self._select(target)
            self._move(None, node)
            self._see_from_machines(node.name, node)
            return
        before = target.node
        assert before is not None
        if _node_content(before) == _node_content(node):
            target.node = node
            return
        seen = shown(target)
        self._uncount(target)
        target.see(node)
        self._count(target)
        self._rejudge(target, reselect=before.labels != node.labels)
        self._move(before, node)
        self._see_from_machines(node.name, node)
        if shown(target) != seen:
            self._version += 1

    def remove_node(self, name: str) -> None:
        """A Node object that is gone."""
        target = self._nodes.pop(name, None)
        if target is None:
            return
        self._version += 1
        self._uncount(target)
        self._drop_verdicts(target)
        if self._names is not None:
            del self._names[bisect_left(self._names, name)]
        self._move(target.node, None)
        self._see_from_machines(name, None)

    def put_machine(self, machine: MachineView, now: datetime) -> None:
        """A Machine as last seen, new or changed; together with the Node it refers to it is a target."""
        self._hear(now)
        target = self._machines.get(machine.key)
        if target is None:
            target = Target(machine.key, machine=machine)
            self._machines[machine.key] = target
            self._tie(target, machine)
            self._select(target)
            self._version += 1
            return
        before = target.machine
        assert before is not None
        if _machine_content(before) == _machine_content(machine):
            target.machine = machine
            return
        seen = shown(target)
        self._untie(target, before)
        target.machine = machine
        self._tie(target, machine)
        self._rejudge(target, reselect=(before.labels, before.cluster_name) != (machine.labels, machine.cluster_name))
        if shown(target) != seen:
            self._version += 1

    def remove_machine(self, key: str) -> None:
        """A Machine object that is gone."""
        target = self._machines.pop(key, None)
        if target is None:
            return
        assert target.machine is not None
        self._untie(target, target.machine)
        self._drop_verdicts(target)
        self._version += 1

    # What surrounds them ------------------------------------------------------------------------------------------------

    def put_cluster(self, cluster: WorkloadCluster, now: datetime) -> None:
        """A Cluster API Cluster; what it says of itself decides whether its Machines are judged at all."""
        self._hear(now)
        if self._clusters.get(cluster.key) == cluster:
            return
        self._clusters[cluster.key] = cluster
        self._recluster(cluster.key)

    def remove_cluster(self, key: str) -> None:
        """A Cluster that is gone: nothing is admitted for its Machines any more."""
        if self._clusters.pop(key, None) is not None:
            self._recluster(key)

    def put_remediation(self, remediation: Remediation, now: datetime) -> None:
        """A remediation object, whoever created it."""
        self._hear(now)
        if self._remediations.get(remediation.ref.key) == remediation:
            return
        self._remediations[remediation.ref.key] = remediation
        self._attend(remediation)

    def remove_remediation(self, key: str) -> None:
        """A remediation object that is gone."""
        if (known := self._remediations.pop(key, None)) is not None:
            self._attend(known)

    def surround(self, surroundings: Surroundings) -> None:
        """What the cluster does at the moment."""
        if self._surroundings != surroundings:
            self._surroundings = surroundings
            self._version += 1

    def hold(self, dialect: Dialect, reason: Closed, why: str) -> None:
        """A hold on all checks of a dialect, "" lifts it: they are judged, and nothing is admitted. OBSERVE_ONLY: another
        controller acts on them. STALE_MACHINES: their Machines can't be followed just now."""
        known = self._holds[dialect]
        if known.get(reason, "") == why:
            return
        self._version += 1
        if why:
            known[reason] = why
        else:
            known.pop(reason, None)

    # Time -----------------------------------------------------------------------------------------------------------

    def advance(self, now: datetime) -> None:
        """Judge again whatever time alone has changed. Where the clock has stepped back, that is every target that ails."""
        stepped_back = self._now is not None and now < self._now
        self._now = now
        if stepped_back:
            for target in tuple(self._sick.values()):
                self._judge_again(target, tuple(target.verdicts))
        while self._deadlines and self._deadlines[0][0] <= now:
            due, key, check = heapq.heappop(self._deadlines)
            ailing = self._sick.get(key)
            if ailing is not None and ailing.due(check) == due:
                self._judge_again(ailing, (check,))
        self._advance_storms(now)

    def report_parts(self, now: datetime, watching: Collection[str] = ()) -> ReportParts:
        """What is known now. watching: nodes of open episodes, observed even without our mark and even when they are gone."""
        return draw_up(self.known(now), watching=frozenset(watching), names=self._in_order())

    def known(self, now: datetime) -> Known:
        """All that a report or an evaluation is drawn from. It is the ledger's own memory: to be read at once, never kept."""
        self.advance(now)
        return Known(
            now=now,
            checks=self._checks,
            bad=self._bad,
            counts={key: tally.counts() for key, tally in self._tallies.items()},
            brakes=self._brakes(),
            storms=self._storms,
            nodes=self._nodes,
            machines=self._machines,
            machines_of=self._machines_of,
            sick=self._sick,
            marked=self._marked,
            remediations=self._remediations,
            surroundings=self._surroundings,
            control_plane=ControlPlane(members=self._members, ready=self._members_ready),
            overlap_strictest=self._overlap_strictest,
            next_due=self.next_due,
        )

    def covered(self, key: str, names: Iterable[str]) -> set[str]:
        """Those of the nodes that a good check covers, by themselves or by a Machine that refers to them."""
        covered: set[str] = set()
        for name in names:
            node = self._nodes.get(name)
            ties = self._machines_of.get(name, {}).values()
            if (node is not None and key in node.verdicts) or any(key in target.verdicts for target in ties):
                covered.add(name)
        return covered

    def targets_of(self, key: str) -> list[str]:
        """The names of all targets in a check's total; for the dialect that lists them, and whose groups are small."""
        check = self._checks.get(key)
        if check is None or check.dialect is not Dialect.CLUSTER_API:
            return []
        found = (target for target in self._machines.values() if key in target.verdicts)
        return [target.name for target in found if target.verdicts[key].standing is not Standing.LEFT_OUT]

    def __contains__(self, node: str) -> bool:
        """Whether there is a Node object of that name."""
        return node in self._nodes

    # Inside: storms and brakes ----------------------------------------------------------------------------------------

    def _brakes(self) -> dict[str, Brake]:
        return {
            key: brake(check, self._tallies[key].counts(), self._circumstances(key, check)) for key, check in self._checks.items()
        }

    def _circumstances(self, key: str, check: HealthCheck) -> Circumstances:
        cluster = self._clusters.get(f"{check.ref.namespace}/{check.cluster_name}") if check.cluster_name else None
        return Circumstances(
            surroundings=self._surroundings,
            cluster=cluster,
            storm=self._storms.get(key, Storm()),
            held=next(iter(sorted(self._holds[check.dialect].items())), None),
        )

    def _advance_storms(self, now: datetime) -> None:
        for key, storm in self._storms.items():
            check = self._checks[key]
            breached = threshold_breached(check, self._tallies[key].counts())
            after = advance(storm, check.storm_cooldown, breached=breached, now=now)
            if after != storm:
                self._storms[key] = after
                self._version += 1

    # Inside: what belongs together ------------------------------------------------------------------------------------

    def _hear(self, now: datetime) -> None:
        self._now = now if self._now is None else max(self._now, now)

    def _targets(self, check: HealthCheck) -> Iterable[Target]:
        return tuple((self._machines if check.of_machines else self._nodes).values())

    def _tie(self, target: Target, machine: MachineView) -> None:
        cluster = _cluster_of(machine)
        if machine.node_name:
            self._machines_of[machine.node_name][target.key] = target
        if cluster:
            self._machines_in[cluster][target.key] = target
        node = self._nodes.get(machine.node_name)
        target.see(node.node if node is not None and _of_one_cluster(machine, node.node) else None)
        target.cluster = self._clusters.get(cluster)
        target.unseen = self._unseen(machine)
        target.remediations = self._about(target)

    def _untie(self, target: Target, machine: MachineView) -> None:
        for index, key in ((self._machines_of, machine.node_name), (self._machines_in, _cluster_of(machine))):
            if key in index:
                index[key].pop(target.key, None)
                if not index[key]:
                    del index[key]

    def _unseen(self, machine: MachineView) -> str:
        cluster = _cluster_of(machine)
        if self._sees_all_nodes or not cluster or self._nodes_in[cluster]:
            return ""
        return f"no Node here belongs to the Cluster {cluster}: the Machine's Node can't be looked up"

    def _see_from_machines(self, name: str, node: NodeView | None) -> None:
        """Let the Machines that refer to a Node see it as it is now."""
        for target in tuple(self._machines_of.get(name, {}).values()):
            machine = target.machine
            assert machine is not None
            before = shown(target)
            target.see(node if _of_one_cluster(machine, node) else None)
            self._judge_all(target)
            if shown(target) != before:
                self._version += 1

    def _recluster(self, cluster: str) -> None:
        """Judge the Machines of a Cluster again: it has changed, or whether its Nodes can be seen has."""
        self._version += 1
        for target in tuple(self._machines_in.get(cluster, {}).values()):
            assert target.machine is not None
            target.cluster = self._clusters.get(cluster)
            target.unseen = self._unseen(target.machine)
            self._judge_all(target)

    def _about(self, target: Target) -> tuple[Remediation, ...]:
        machine = target.machine
        namespace = machine.namespace if machine is not None else None
        if not self._remediations:
            return ()
        return tuple(
            sorted(
                (
                    each
                    for each in self._remediations.values()
                    if each.target == target.name and (namespace is None or each.ref.namespace == namespace)
                ),
                key=lambda each: each.ref.key,
            )
        )

    def _attend(self, remediation: Remediation) -> None:
        """Judge the targets again that a remediation object is about."""
        self._version += 1
        targets = [self._nodes.get(remediation.target)]
        targets += [self._machines.get(f"{dialect}/{remediation.ref.namespace}/{remediation.target}") for dialect in Dialect]
        for target in targets:
            if target is not None:
                target.remediations = self._about(target)
                self._judge_all(target)

    def _add(self, target: Target) -> None:
        self._version += 1
        self._nodes[target.key] = target
        self._count(target)
        if self._names is not None:
            insort(self._names, target.key)

    def _in_order(self) -> Iterator[str]:
        if self._names is None:
            self._names = sorted(self._nodes)
        return iter(self._names)

    def _count(self, target: Target) -> None:
        """Put a node into every count and index that its view alone decides."""
        node = target.node
        assert node is not None
        if node.control_plane:
            self._members += 1
            self._members_ready += node.ready
        if target.marked:
            self._marked[node.name] = target

    def _uncount(self, target: Target) -> None:
        node = target.node
        assert node is not None
        if node.control_plane:
            self._members -= 1
            self._members_ready -= node.ready
        self._marked.pop(node.name, None)

    def _move(self, before: NodeView | None, after: NodeView | None) -> None:
        """Keep count of the Nodes that say to which Cluster they belong; the first and the last of one change what is seen."""
        left, joined = _says_it_is_in(before), _says_it_is_in(after)
        if left == joined:
            return
        for cluster, step in ((left, -1), (joined, 1)):
            if not cluster:
                continue
            seen = self._nodes_in[cluster] > 0
            self._nodes_in[cluster] += step
            if seen != (self._nodes_in[cluster] > 0) and not self._sees_all_nodes:
                self._recluster(cluster)
            if not self._nodes_in[cluster]:
                del self._nodes_in[cluster]

    # Inside: judging --------------------------------------------------------------------------------------------------

    def _select(self, target: Target) -> None:
        """Find out which checks cover a target that is new or has other labels."""
        for key, rules in self._rules.items():
            if rules.covers(target):
                self._judge(target, key, rules)
            elif key in target.verdicts:
                self._withdraw(target, key)

    def _rejudge(self, target: Target, *, reselect: bool) -> None:
        if reselect:
            self._select(target)
        self._judge_all(target)

    def _judge_all(self, target: Target) -> None:
        for key in tuple(target.verdicts):
            self._judge(target, key, self._rules[key])

    def _judge_again(self, target: Target, keys: Collection[str]) -> None:
        before = shown(target)
        for key in keys:
            self._judge(target, key, self._rules[key])
        if shown(target) != before:
            self._version += 1

    def _judge(self, target: Target, key: str, rules: Rules) -> None:
        assert self._now is not None, "an object was put, so the time is known"
        verdict = rules.judge(target, self._now)
        tally = self._tallies[key]
        before = target.verdicts.get(key)
        if before is not None:
            if verdict == before and not tally.restates(target, verdict):
                return
            tally.remove(target, before)
        tally.add(target, verdict)
        target.verdicts[key] = verdict
        if verdict.health is not Health.HEALTHY or verdict.due is not None:
            self._sick[target.key] = target
        elif before is not None and not target.sick:
            self._sick.pop(target.key, None)
        if verdict.due is not None and (before is None or before.due != verdict.due):
            self._drop_surplus_deadlines()
            heapq.heappush(self._deadlines, (verdict.due, target.key, key))

    def _withdraw(self, target: Target, key: str) -> None:
        self._tallies[key].remove(target, target.verdicts.pop(key))
        if not target.sick:
            self._sick.pop(target.key, None)

    def _drop_verdicts(self, target: Target) -> None:
        for key in tuple(target.verdicts):
            self._withdraw(target, key)
        self._sick.pop(target.key, None)

    def _forget(self, key: str) -> None:
        if key not in self._checks:
            self._storms.pop(key, None)
        self._rules.pop(key, None)
        if key in self._tallies:
            for target in (*self._nodes.values(), *self._machines.values()):
                if key in target.verdicts:
                    self._withdraw(target, key)
            del self._tallies[key]

    def _runs(self, deadline: tuple[datetime, str, str]) -> bool:
        due, key, check = deadline
        target = self._sick.get(key)
        return target is not None and target.due(check) == due

    def _drop_stale_deadlines(self) -> None:
        while self._deadlines and not self._runs(self._deadlines[0]):
            heapq.heappop(self._deadlines)

    def _drop_surplus_deadlines(self) -> None:
        """A flapping node leaves a stale deadline with every flap; they must not pile up until they would be due."""
        if len(self._deadlines) > _SPARE_DEADLINES + 4 * len(self._sick):
            self._deadlines = [deadline for deadline in self._deadlines if self._runs(deadline)]
            heapq.heapify(self._deadlines)


class _Tally:
    """The counts of one check while they change.

    Which targets are of the control plane, and which of the unhealthy are on their way to another machine config, is kept by
    name: a node may become either while its verdict stays the same.
    """

    __slots__ = ("_control_plane", "_standings", "_updating")

    def __init__(self) -> None:
        self._standings = dict.fromkeys(Standing, 0)
        self._updating: set[str] = set()
        self._control_plane: set[str] = set()

    def add(self, target: Target, verdict: Verdict) -> None:
        self._standings[verdict.standing] += 1
        if target.control_plane:
            self._control_plane.add(target.key)
        if target.updating and verdict.standing is Standing.UNHEALTHY:
            self._updating.add(target.key)

    def remove(self, target: Target, verdict: Verdict) -> None:
        self._standings[verdict.standing] -= 1
        self._control_plane.discard(target.key)
        self._updating.discard(target.key)

    def restates(self, target: Target, verdict: Verdict) -> bool:
        """Whether the same verdict is to be counted otherwise."""
        updating = target.updating and verdict.standing is Standing.UNHEALTHY
        of_control_plane = target.key in self._control_plane
        return updating != (target.key in self._updating) or target.control_plane != of_control_plane

    def counts(self) -> Counts:
        standings = self._standings
        return Counts(
            healthy=standings[Standing.HEALTHY],
            soon=standings[Standing.SOON],
            starting=standings[Standing.STARTING],
            unhealthy=standings[Standing.UNHEALTHY],
            deleting=standings[Standing.DELETING],
            excluded=standings[Standing.EXCLUDED],
            recovering=standings[Standing.RECOVERING],
            left_out=standings[Standing.LEFT_OUT],
            updating=len(self._updating),
            control_plane=len(self._control_plane),
        )


def _same_judgement(before: HealthCheck, after: HealthCheck) -> bool:
    """Whether two versions of a check cover the same targets and think the same of each."""
    return _judged_by(before) == _judged_by(after)


def _judged_by(check: HealthCheck) -> tuple[object, ...]:
    return (
        check.dialect,
        check.uid,
        check.selector,
        check.conditions,
        check.machine_conditions,
        check.startup_timeout,
        check.cluster_name,
        check.healthy_delay,
        check.rungs,
    )


def _cluster_of(machine: MachineView) -> str:
    return f"{machine.namespace}/{machine.cluster_name}" if machine.dialect is Dialect.CLUSTER_API else ""


def _says_it_is_in(node: NodeView | None) -> str:
    if node is None:
        return ""
    name, namespace = node.annotations.get(CLUSTER_NAME_ANNOTATION), node.annotations.get(CLUSTER_NAMESPACE_ANNOTATION)
    return f"{namespace}/{name}" if name and namespace else ""


def _of_one_cluster(machine: MachineView, node: NodeView | None) -> bool:
    """Whether a Node of the right name may be the Machine's: names repeat between workload clusters."""
    if node is None:
        return False
    says = _says_it_is_in(node)
    return not says or machine.dialect is not Dialect.CLUSTER_API or says == _cluster_of(machine)
