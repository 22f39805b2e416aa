"""All objects that are judged, and which of them belong together: Nodes, Machines, Clusters and remediation objects.

`policy/objects/machines.py` decides which Node is a Machine's. Every change returns the targets that it touches, so that only
those are judged again. `policy/scan/ledger.py` keeps the verdicts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from operator import attrgetter

from policy.checks.health_check import HealthCheck
from policy.checks.verdict import JudgedTarget
from policy.objects.machines import (
    MOST_NAMED,
    MachineView,
    WorkloadCluster,
    answers_of,
    claimed_otherwise,
    claims_of,
    cluster_named_by,
    cluster_of,
    contested,
    is_machine_of,
    machine_behind,
    machine_key,
    of_one_cluster,
    taken_name,
)
from policy.objects.nodes import NodeView
from policy.objects.remediations import RemediationObject
from policy.objects.scopes import GroupTally
from policy.values.machine_apis import MACHINE_APIS
from policy.values.object_refs import Mistake

_node_content = attrgetter(*(field.name for field in fields(NodeView) if field.name != "resource_version"))
_machine_content = attrgetter(*(field.name for field in fields(MachineView) if field.name != "resource_version"))
"""All of a view but its resource version, which every heartbeat changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """Control-plane nodes and how many of them are Ready (S15). lost: the names of Nodes that control-plane Machines name and
    that are gone: the machine runs on without its Node, and etcd counts it. remediated: members about which there is a
    remediation object of any operator, which may be about to switch them off, where a health check has these made."""

    members: int = 0
    ready: int = 0
    lost: tuple[str, ...] = ()
    remediated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TargetToJudge:
    """A target to be judged again. relabelled: other checks may cover it now, too."""

    target: JudgedTarget
    relabelled: bool = False


class StrangeNodes:
    """The Nodes that seem to be the same machine as another one (S39), and those with a mark that is not ours (S41). version:
    another one after each change."""

    def __init__(self) -> None:
        self.version = 0
        self._targets: dict[str, JudgedTarget] = {}

    def __iter__(self) -> Iterator[Mistake]:
        """One sentence for people about each of them."""
        for target in list(self._targets.values()):
            node = target.node
            assert node is not None, "the target of a Node has one"
            if target.contested:
                words = f"{target.contested}; until then nothing is done to either"
                yield Mistake(about=node.ref, uid=node.uid, reason="IdentityContested", messages=(words,))
            if target.strange_mark:
                yield Mistake(about=node.ref, uid=node.uid, reason="MarkNotOurs", messages=(target.strange_mark,))

    def put(self, target: JudgedTarget) -> None:
        """A Node with a change of what is strange about it."""
        self.version += 1
        if target.contested or target.strange_mark:
            self._targets[target.key] = target
        else:
            self._targets.pop(target.key, None)

    def drop(self, name: str) -> None:
        """A Node that is gone."""
        if self._targets.pop(name, None) is not None:
            self.version += 1


class _NodesByClaim:
    """The Nodes that answer to a claim. Nearly each has one, and a dictionary for each would be a fifth of what a node takes."""

    def __init__(self) -> None:
        self._one: dict[str, JudgedTarget] = {}
        self._more: dict[str, dict[str, JudgedTarget]] = {}

    def put(self, claim: str, target: JudgedTarget) -> None:
        """It answers to that, too."""
        if claim in self._more:
            self._more[claim][target.key] = target
        elif self._one.setdefault(claim, target).key != target.key:
            first = self._one.pop(claim)
            self._more[claim] = {first.key: first, target.key: target}
        else:
            self._one[claim] = target

    def drop(self, claim: str, target: JudgedTarget) -> None:
        """It answers to that no more."""
        more, one = self._more.get(claim), self._one.get(claim)
        if more is not None:
            more.pop(target.key, None)
            if len(more) == 1:
                (self._one[claim],) = self._more.pop(claim).values()
        elif one is not None and one.key == target.key:
            del self._one[claim]

    def having(self, claim: str) -> dict[str, JudgedTarget]:
        """All that do, by their keys, in the order in which they came."""
        one = self._one.get(claim)
        return {one.key: one} if one is not None else self._more.get(claim, {})


class Inventory:
    """The objects of one cluster, each once, linked to the objects that it belongs to.

    sees_all_nodes: every Node of every workload cluster is here, so one that is not here is gone. Else only Clusters count that
    a Node here belongs to; the Machines of other Clusters are not judged by their Nodes.
    """

    def __init__(self, *, sees_all_nodes: bool) -> None:
        self.nodes: dict[str, JudgedTarget] = {}
        self.machines: dict[str, JudgedTarget] = {}
        self.machines_of: defaultdict[str, dict[str, JudgedTarget]] = defaultdict(dict)
        """Machines by the name of their Node, also where that is gone."""
        self.marked: dict[str, JudgedTarget] = {}
        self.clusters: dict[str, WorkloadCluster] = {}
        self.remediations: dict[str, RemediationObject] = {}
        self.groups = GroupTally()
        self.strange = StrangeNodes()
        self.clusters_seen = 0
        """Another number after each change of which Clusters have Nodes here."""
        self._sees_all_nodes = sees_all_nodes
        self._claims: defaultdict[str, dict[str, JudgedTarget]] = defaultdict(dict)
        self._known_as = _NodesByClaim()
        self._machines_as: defaultdict[str, dict[str, JudgedTarget]] = defaultdict(dict)
        """Machines by their providerID."""
        self._machines_in: defaultdict[str, dict[str, JudgedTarget]] = defaultdict(dict)
        self._nodes_in: Counter[str] = Counter()
        self._names: list[str] | None = None
        self._members = 0
        self._members_ready = 0
        self._members_lost: dict[str, str] = {}  # by the key of the Machine

    @property
    def control_plane(self) -> ControlPlane:
        """The control-plane Nodes, and how many of them are Ready."""
        lost = tuple(sorted(set(self._members_lost.values())))
        return ControlPlane(members=self._members, ready=self._members_ready, lost=lost)

    def remediated_members(self, checks: Collection[HealthCheck]) -> tuple[str, ...]:
        """The control-plane Nodes that any operator may be about to switch off: a remediation object is about them, where the
        template of one of these checks has them made (S15). One that lies elsewhere means nothing (S46)."""
        return tuple(
            sorted(
                {
                    target.node_name
                    for each in self.remediations.values()
                    for target in self._targets_of(each)
                    if target.control_plane and target.node_name and not target.unseen
                    if any(check.of_machines is (target.machine is not None) and check.makes(each) for check in checks)
                }
            )
        )

    def names(self) -> Iterator[str]:
        if self._names is None:
            self._names = sorted(self.nodes)
        return iter(self._names)

    def put_node(self, node: NodeView) -> list[TargetToJudge]:
        target = self.nodes.get(node.name)
        before = target.node if target is not None else None
        if target is None:
            target = JudgedTarget(node.name, node=node)
            self.nodes[node.name] = target
            if self._names is not None:
                insort(self._names, node.name)
            if self.remediations:
                target.remediations = self._about(target)
            self._find_strange(target, "")
        else:
            assert before is not None, "the target of a Node has one"
            if _node_content(before) == _node_content(node):
                target.node = node
                return []
            self._uncount(target)
            was_strange = target.strange_mark
            target.see(node)
            self._find_strange(target, was_strange)
        self._count(target)
        self.groups.move(before, node)
        claims = self._know(target, before, node)
        touched = [TargetToJudge(target, relabelled=before is None or before.labels != node.labels)]
        return [*touched, *self._move(before, node), *self._seen_by_machines(claims), *self._contest(target, claims)]

    def remove_node(self, name: str) -> tuple[JudgedTarget | None, list[TargetToJudge]]:
        """A Node object that is gone: its target, and the other targets that this touches."""
        target = self.nodes.pop(name, None)
        if target is None:
            return None, []
        self._uncount(target)
        self.strange.drop(name)
        self.groups.move(target.node, None)
        if self._names is not None:
            del self._names[bisect_left(self._names, name)]
        claims = self._know(target, target.node, None)
        return target, [*self._move(target.node, None), *self._seen_by_machines(claims), *self._contest(target, claims)]

    def put_machine(self, machine: MachineView) -> list[TargetToJudge]:
        target = self.machines.get(machine.key)
        if target is None:
            target = JudgedTarget(machine.key, machine=machine)
            self.machines[machine.key] = target
            self._tie(target, machine)
            return [TargetToJudge(target, relabelled=True), *self._contest_nodes(machine)]
        before = target.machine
        assert before is not None, "the target of a Machine has one"
        if _machine_content(before) == _machine_content(machine):
            target.machine = machine
            return []
        self._untie(target, before)
        target.machine = machine
        self._tie(target, machine)
        relabelled = (before.labels, before.cluster_name) != (machine.labels, machine.cluster_name)
        return [TargetToJudge(target, relabelled=relabelled), *self._contest_nodes(before, machine)]

    def remove_machine(self, key: str) -> tuple[JudgedTarget | None, list[TargetToJudge]]:
        """A Machine object that is gone: its target, and the other targets that this touches."""
        target = self.machines.pop(key, None)
        if target is None:
            return None, []
        assert target.machine is not None
        self._untie(target, target.machine)
        return target, self._contest_nodes(target.machine)

    def put_cluster(self, cluster: WorkloadCluster) -> list[TargetToJudge] | None:
        """A Cluster as last seen; None where nothing has changed."""
        if self.clusters.get(cluster.key) == cluster:
            return None
        self.clusters[cluster.key] = cluster
        return self._in_cluster(cluster.key)

    def remove_cluster(self, key: str) -> list[TargetToJudge] | None:
        """A Cluster that is gone; None where it was not known."""
        return self._in_cluster(key) if self.clusters.pop(key, None) is not None else None

    def put_remediation(self, remediation: RemediationObject) -> list[TargetToJudge] | None:
        """A remediation object as last seen; None where nothing has changed."""
        known = self.remediations.get(remediation.ref.key)
        if known == remediation:
            return None
        self.remediations[remediation.ref.key] = remediation
        moved = known is not None and known.target != remediation.target
        return [*(self._touched_by(known) if known is not None and moved else ()), *self._touched_by(remediation)]

    def remove_remediation(self, key: str) -> list[TargetToJudge] | None:
        """A remediation object that is gone; None where it was not known."""
        known = self.remediations.pop(key, None)
        return self._touched_by(known) if known is not None else None

    # Nodes

    def _count(self, target: JudgedTarget) -> None:
        """Put a Node into the counts and indexes that depend on its own view alone."""
        node = target.node
        assert node is not None
        if node.control_plane:
            self._members += 1
            self._members_ready += node.ready
        if target.marked:
            self.marked[node.name] = target

    def _uncount(self, target: JudgedTarget) -> None:
        node = target.node
        assert node is not None
        if node.control_plane:
            self._members -= 1
            self._members_ready -= node.ready
        self.marked.pop(node.name, None)

    def _move(self, before: NodeView | None, after: NodeView | None) -> list[TargetToJudge]:
        """Count the Nodes of each Cluster; the first and the last of one change which Clusters have Nodes here."""
        left, joined = cluster_named_by(before), cluster_named_by(after)
        if left == joined:
            return []
        touched: list[TargetToJudge] = []
        for cluster, step in ((left, -1), (joined, 1)):
            if not cluster:
                continue
            seen = cluster in self._nodes_in
            self._nodes_in[cluster] += step
            if not self._nodes_in[cluster]:
                del self._nodes_in[cluster]
            if seen != (cluster in self._nodes_in) and not self._sees_all_nodes:
                self.clusters_seen += 1
                touched += self._in_cluster(cluster)
        return touched

    def _know(self, target: JudgedTarget, before: NodeView | None, after: NodeView | None) -> set[str]:
        """Update the index of the claims by which Machines find this Node; returns old and new claims."""
        old, new = answers_of(before), answers_of(after)
        for claim in old - new:
            self._known_as.drop(claim, target)
        for claim in new - old:
            self._known_as.put(claim, target)
        return old | new

    def _seen_by_machines(self, claims: set[str]) -> list[TargetToJudge]:
        """Link the Machines that claim a Node to it as it is now."""
        targets = {target.key: target for claim in claims for target in self._claims.get(claim, {}).values()}
        touched = []
        for target in targets.values():
            assert target.machine is not None
            self._find_node(target, target.machine)
            touched.append(TargetToJudge(target))
        return touched

    def _find_strange(self, target: JudgedTarget, before: str) -> None:
        if target.strange_mark != before:
            self.strange.put(target)

    def contested(self, node: NodeView) -> str:
        """Which other Nodes seem to be that Node's machine, in words; "" for none (S39)."""
        claiming = self._machines_as.get(machine_behind(node.provider_id), {}) if node.provider_id else {}
        machines = (claiming | self.machines_of.get(node.name, {})).values() if claiming else ()
        others = contested(node, self._known_as.having)
        return others or claimed_otherwise(node, (each.machine for each in machines if each.machine is not None))

    def machines_claiming(self, node: NodeView) -> list[MachineView]:
        """Those that may be that Node's by any claim, also where another Node answers to it too, or none here is of their
        Cluster."""
        found = {key: each.machine for claim in answers_of(node) for key, each in self._claims.get(claim, {}).items()}
        return [each for each in found.values() if each is not None and is_machine_of(each, node.name, node)]

    def _contest(self, changed: JudgedTarget, claims: set[str]) -> list[TargetToJudge]:
        """Update the Nodes with one of these claims: whether another Node has it too. If there are many, only the changed one
        is updated: the others are contested already, and a fleet may be made of machines with one number."""
        targets = {changed.key: changed}
        for claim in claims:
            having = self._known_as.having(claim)
            if len(having) <= MOST_NAMED + 2:
                targets |= having
        return self._contest_all(targets.values())

    def _contest_nodes(self, *machines: MachineView) -> list[TargetToJudge]:
        """Update the Nodes that have the providerID of a Machine which has changed."""
        targets: dict[str, JudgedTarget] = {}
        for machine in machines:
            if machine.provider_id:
                targets |= self._known_as.having(f"provider/{machine_behind(machine.provider_id)}")
            elif machine.node_name in self.nodes:
                targets[machine.node_name] = self.nodes[machine.node_name]
        return self._contest_all(list(targets.values())[: MOST_NAMED + 2])

    def _contest_all(self, targets: Iterable[JudgedTarget]) -> list[TargetToJudge]:
        touched = []
        for target in targets:
            if (node := target.node) is None or node.name not in self.nodes:
                continue
            before, target.contested = target.contested, self.contested(node)
            if before != target.contested:
                self.strange.put(target)
                touched.append(TargetToJudge(target))
        return touched

    # Machines

    def _tie(self, target: JudgedTarget, machine: MachineView) -> None:
        cluster = cluster_of(machine)
        for claim in claims_of(machine):
            self._claims[claim][target.key] = target
        if cluster:
            self._machines_in[cluster][target.key] = target
        if machine.provider_id:
            self._machines_as[machine_behind(machine.provider_id)][target.key] = target
        target.cluster = self.clusters.get(cluster)
        self._find_node(target, machine)
        target.remediations = self._about(target)

    def _untie(self, target: JudgedTarget, machine: MachineView) -> None:
        _forget(self.machines_of, target.node_name, target)
        _forget(self._machines_in, cluster_of(machine), target)
        _forget(self._machines_as, machine_behind(machine.provider_id), target)
        self._members_lost.pop(target.key, None)
        for claim in claims_of(machine):
            _forget(self._claims, claim, target)

    def _find_node(self, target: JudgedTarget, machine: MachineView) -> None:
        """If several Nodes answer to one claim, the Machine gets none of them: it is not known which is right."""
        _forget(self.machines_of, target.node_name, target)
        taken = ""
        found: NodeView | None = None
        for claim in claims_of(machine):
            answering = [each.node for each in self._known_as.having(claim).values() if of_one_cluster(machine, each.node)]
            nodes = [node for node in answering if not taken_name(machine, node)]
            if machine.node_name and answering and not nodes:
                taken = taken_name(machine, answering[0])
            if nodes:
                found = nodes[0] if len(nodes) == 1 else None
                break
        hidden = self._unseen(machine) or (machine.uncounted if found is None else "")
        target.unseen = hidden or taken
        target.see(found)
        if machine.control_plane and machine.node_name and found is None and not hidden:
            self._members_lost[target.key] = machine.node_name if not taken else machine.name
        else:
            self._members_lost.pop(target.key, None)
        if target.node_name and not target.unseen:
            self.machines_of[target.node_name][target.key] = target

    @property
    def clusters_named(self) -> Iterable[str]:
        """Namespace and name of each Cluster that Nodes here name."""
        return self._nodes_in

    def unseen(self, cluster: str) -> bool:
        """Whether no Node here belongs to that Cluster, so that its Nodes can't be looked up here."""
        return not self._sees_all_nodes and cluster not in self._nodes_in

    def _unseen(self, machine: MachineView) -> str:
        cluster = cluster_of(machine)
        if not cluster or not self.unseen(cluster):
            return ""
        return f"no Node here belongs to the Cluster {cluster}: the Machine's Node can't be looked up"

    def _in_cluster(self, cluster: str) -> list[TargetToJudge]:
        """The Machines of a Cluster that has changed, or that has gained its first or lost its last Node here."""
        touched = []
        for target in self._machines_in.get(cluster, {}).values():
            assert target.machine is not None
            target.cluster = self.clusters.get(cluster)
            self._find_node(target, target.machine)
            touched.append(TargetToJudge(target))
        return touched

    # Remediation objects

    def _about(self, target: JudgedTarget) -> tuple[RemediationObject, ...]:
        """A remediation of a Machine lives in its namespace; one of a Node may live anywhere."""
        namespace = target.machine.namespace if target.machine is not None else None
        found = [
            each for each in self.remediations.values() if each.target == target.name and namespace in {None, each.ref.namespace}
        ]
        return tuple(sorted(found, key=lambda each: each.ref.key))

    def _touched_by(self, remediation: RemediationObject) -> list[TargetToJudge]:
        touched = []
        for target in self._targets_of(remediation):
            target.remediations = self._about(target)
            touched.append(TargetToJudge(target))
        return touched

    def _targets_of(self, remediation: RemediationObject) -> list[JudgedTarget]:
        targets = [self.nodes.get(remediation.target)]
        targets += [self.machines.get(machine_key(api, remediation.ref.namespace, remediation.target)) for api in MACHINE_APIS]
        return [target for target in targets if target is not None]


def _forget(index: defaultdict[str, dict[str, JudgedTarget]], key: str, target: JudgedTarget) -> None:
    if key in index:
        index[key].pop(target.key, None)
        if not index[key]:
            del index[key]
