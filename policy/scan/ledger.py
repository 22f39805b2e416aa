"""What every health check thinks of every target, kept up to date change by change: the memory behind a scan.

A change of one object costs as much as there are checks that cover its targets, and time costs only the targets with an expired
timeout, so a fleet of 50,000 nodes is never walked on a tick. It has no clock: every call that needs the time gets it as an
argument. Its verdicts depend only on the objects and the moment, never on the order of changes, so all workers agree.

`policy/checks/inventory.py` holds the objects and which belong together. `policy/checks/rules/` judges one target,
`policy/checks/circuit_breakers.py` the counts. `policy/scan/report_builder.py` builds the report, `policy/scan/evaluation.py`
lists one check's verdicts on all targets, and `activities/cluster/` keeps the cache that feeds the ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from policy.checks.circuit_breakers import CircuitBreaker, Circumstances, OpenReason, Tally, circuit_breaker, threshold_breached
from policy.checks.fence_policies import NO_POLICIES, FencePolicies
from policy.checks.health_check import HealthCheck, Overlap, RetryRules, Storm, advance, over, stricter
from policy.checks.inventory import Inventory, StrangeNodes, TargetToJudge
from policy.checks.rules import Rules, rules_of
from policy.checks.verdict import HEALTHY, MACHINE, Health, JudgedTarget, Standing
from policy.episode.fencing_requests import FencingRequest
from policy.episode.modes import REPAIRS, ClusterModes, ModeAnswer, mode_of, mode_under
from policy.episode.notices import KnownNode
from policy.objects.machines import IgnoredObjects, MachineView, WorkloadCluster
from policy.objects.nodes import NodeView, Surroundings
from policy.objects.remediations import RemediationObject
from policy.preservation.preservation_index import NONE_EXEMPT, ExemptNodes
from policy.remediation.ladder import Unusable
from policy.remediation.memory import DEFAULT_RETRIES
from policy.scan.candidates import failing
from policy.scan.ledger_snapshot import BadCheck, LedgerSnapshot
from policy.scan.report_builder import build_report_parts, shown
from policy.scan.scan_report import ReportParts
from policy.values.agenda import Agenda
from policy.values.machine_apis import machine_api
from policy.values.mode import Mode
from policy.values.object_refs import Dialect, ObjectRef


class Ledger:
    """Checks, and their verdicts on an inventory. Not thread-safe: one event loop owns it. `sees_all_nodes`: see `Inventory`.
    retries: see `LedgerSnapshot`."""

    def __init__(
        self, *, sees_all_nodes: bool = True, overlap: Overlap = Overlap.STRICTEST, retries: RetryRules = DEFAULT_RETRIES
    ) -> None:
        self._inventory = Inventory(sees_all_nodes=sees_all_nodes)
        self._overlap = overlap
        self._retries = retries
        self._modes = REPAIRS
        self._mode_exceptions: dict[str, Mode] = {}
        self._checks: dict[str, HealthCheck] = {}
        self._rules: dict[str, Rules] = {}
        self._bad: dict[str, BadCheck] = {}
        self.ignored = IgnoredObjects()
        self._surroundings = Surroundings()
        self._policies = NO_POLICIES
        self._held_back: dict[Dialect, dict[OpenReason, str]] = {dialect: {} for dialect in Dialect}
        self._requests: dict[str, FencingRequest] = {}
        self._requests_held_back = ""
        self._storms: dict[str, Storm] = {}
        self._tallies: dict[str, Tally] = {}
        self._sick: dict[str, JudgedTarget] = {}
        self._deadlines = Agenda[tuple[str, str]]()
        """By target and check: when the verdict expires."""
        self._now: datetime | None = None
        self._blind = False
        self._version = 0

    @property
    def version(self) -> int:
        """Another number after each change of something that a report shows or a decision depends on."""
        return self._version + self.ignored.version

    @property
    def next_due(self) -> datetime | None:
        """The first moment at which `advance` will change something, None while no time runs."""
        moments = [first] if (first := self._deadlines.first) is not None else []
        for key, storm in self._storms.items():
            if not self._blind and (end := over(storm, self._checks[key].storm_cooldown)) is not None:
                moments.append(end)
        return min(moments, default=None)

    def __len__(self) -> int:
        return len(self._inventory.nodes)

    def names(self) -> Iterator[str]:
        """The names of all Nodes in order."""
        return self._inventory.names()

    @property
    def strange(self) -> StrangeNodes:
        """The Nodes that seem to be the same machine as another one."""
        return self._inventory.strange

    def contested(self, node: NodeView) -> str:
        """Which other Node is the same machine by its own account, in words; "" for none (S39)."""
        return self._inventory.contested(node)

    def nodes(self) -> list[NodeView]:
        return [target.node for target in self._inventory.nodes.values() if target.node is not None]

    def machines_claiming(self, node: NodeView) -> list[MachineView]:
        """See `Inventory.machines_claiming`."""
        return self._inventory.machines_claiming(node)

    def __contains__(self, node: str) -> bool:
        """Whether there is a Node object of that name."""
        return node in self._inventory.nodes

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
        if known is None:
            self._storms[key] = check.storm
        elif known.storm != check.storm:
            # The object may show what we wrote a moment ago, which is older than what we know.
            self._storms[key] = stricter(self._storms[key], check.storm)
        if known is not None and _judged_by(known) == _judged_by(check):
            return
        self._forget(key)
        self._rules[key] = rules = rules_of(check)
        self._tallies[key] = Tally()
        for target in (self._inventory.machines if check.of_machines else self._inventory.nodes).values():
            if rules.covers(target):
                self._judge(target, key, rules)
                target.shown_as = None  # the next look at it counts as a change

    def put_bad_check(
        self,
        ref: ObjectRef,
        error: str,
        *,
        uid: str = "",
        generation: int = 0,
        reason: Unusable = Unusable.OBJECT,
        check: HealthCheck | None = None,
    ) -> None:
        """A check that can't be used as written. It selects nothing and admits nothing, and its former verdicts are forgotten,
        so that all workers agree; the other checks go on."""
        bad = BadCheck(ref=ref, error=error, uid=uid, generation=generation, reason=reason, check=check)
        if self._bad.get(ref.key) == bad:
            return
        self._version += 1
        self._drop(ref.key)
        self._bad[ref.key] = bad

    def ignore_check(self, ref: ObjectRef) -> None:
        """A check that does not count (S46). It selects nothing, and there may be any number: only its name is kept."""
        api = machine_api(ref.api_version)
        assert api is not None, "only checks of Machines may not count"
        self.ignored.put(ref.key, api, ref.namespace)

    @property
    def ignored_text(self) -> str:
        """Which Machines and health checks are ignored, in words; "" for none."""
        return self.ignored.text(self._inventory.clusters_named)

    def remove_check(self, key: str) -> None:
        """A check that was deleted, good or bad, or is ignored by now."""
        self.ignored.drop(key)
        bad = self._bad.pop(key, None)
        if self._drop(key) or bad is not None:
            self._version += 1

    @property
    def modes(self) -> ClusterModes:
        """What is set for the cluster, as it was last put."""
        return self._modes

    def put_modes(self, modes: ClusterModes) -> None:
        """What is set for the cluster, as the caller of the next report knows it. Only a change costs a walk over the nodes."""
        if modes == self._modes:
            return
        self._modes = modes
        for node in self.nodes():
            self._note_mode(node)

    def mode_for_pool(self, name: str, called: bool) -> Mode:
        """See `PoolMode`."""
        return self.mode_of_pool(name, called).mode

    def mode_of_pool(self, name: str, called: bool) -> ModeAnswer:
        """The same with what sets it."""
        target = self._inventory.nodes.get(name)
        labels = target.node.labels if target is not None and target.node is not None else None
        verdicts = [each for target in self._named(name) for each in target.verdicts.items()] if called else []
        checks = {key: self._checks[key].mode for key, verdict in verdicts if verdict.health is not Health.HEALTHY}
        return mode_under(self._modes, name, labels, checks)

    # Objects --------------------------------------------------------------------------------------------------------

    def put_node(self, node: NodeView, now: datetime) -> None:
        """A Node as last seen, new or changed."""
        self._note_moment(now)
        seen = self._inventory.clusters_seen, self._inventory.groups.version
        touched = self._inventory.put_node(node)
        if touched and touched[0].relabelled:
            self._note_mode(node)
        self._judge_touched(touched)
        self._version += seen != (self._inventory.clusters_seen, self._inventory.groups.version)

    def remove_node(self, name: str) -> None:
        """A Node object that is gone."""
        self._mode_exceptions.pop(name, None)
        target, touched = self._inventory.remove_node(name)
        if target is not None:
            self._remove(target)
            self._judge_touched(touched)

    def put_machine(self, machine: MachineView, now: datetime) -> None:
        """A Machine as last seen, new or changed; together with the Node it refers to it is a target."""
        self._note_moment(now)
        self.ignored.note(machine)
        self._judge_touched(self._inventory.put_machine(machine))

    def remove_machine(self, key: str) -> None:
        """A Machine object that is gone."""
        self.ignored.drop(key)
        target, touched = self._inventory.remove_machine(key)
        if target is not None:
            self._remove(target)
        self._judge_touched(touched)

    def put_cluster(self, cluster: WorkloadCluster, now: datetime) -> None:
        """A Cluster API Cluster; its status decides whether its Machines are judged at all."""
        self._note_moment(now)
        self._judge_because(self._inventory.put_cluster(cluster))

    def remove_cluster(self, key: str) -> None:
        """A Cluster that is gone: nothing is admitted for its Machines any more."""
        self._judge_because(self._inventory.remove_cluster(key))

    def put_remediation(self, remediation: RemediationObject, now: datetime) -> None:
        """A remediation object, ours or another controller's."""
        self._note_moment(now)
        self._judge_because(self._inventory.put_remediation(remediation))

    def remove_remediation(self, key: str) -> None:
        """A remediation object that is gone."""
        self._judge_because(self._inventory.remove_remediation(key))

    def put_request(self, request: FencingRequest) -> None:
        """A request of another system for a node, as last seen."""
        if self._requests.get(request.ref.key) != request:
            self._version += 1
            self._requests[request.ref.key] = request

    def remove_request(self, key: str) -> None:
        if self._requests.pop(key, None) is not None:
            self._version += 1

    # What holds checks back -------------------------------------------------------------------------------------------

    def surround(self, surroundings: Surroundings) -> None:
        """The cluster's surroundings at this moment, such as an upgrade under way."""
        if self._surroundings != surroundings:
            self._surroundings = surroundings
            self._version += 1

    def follow(self, policies: FencePolicies) -> None:
        """The fence policies of the cluster. Other scopes than before cost a walk over the nodes."""
        if self._policies == policies:
            return
        self._policies = policies
        self._version += 1
        nodes = (target.node for target in self._inventory.nodes.values() if target.node is not None)
        self._inventory.groups.count_by(policies.scopes, policies.lost_storage_conditions, nodes)

    def hold_back(self, dialect: Dialect, reason: OpenReason, why: str) -> None:
        """Hold back all checks of a dialect, or no longer with "": they are judged, and nothing is admitted. OBSERVE_ONLY:
        another controller acts on them. STALE_MACHINES: an object that decides their verdicts can't be followed."""
        known = self._held_back[dialect]
        if known.get(reason, "") == why:
            return
        self._version += 1
        if why:
            known[reason] = why
        else:
            known.pop(reason, None)

    def hold_back_requests(self, why: str) -> None:
        """Hold back all requests of other systems for nodes, or no longer with ""."""
        if self._requests_held_back != why:
            self._requests_held_back = why
            self._version += 1

    # Time -----------------------------------------------------------------------------------------------------------

    def advance(self, now: datetime) -> None:
        """Judge again every target that time alone has changed. Where the clock has stepped back, that is every sick target."""
        stepped_back = self._now is not None and now < self._now
        self._now = now
        if stepped_back:
            for target in tuple(self._sick.values()):
                self._judge_again(target, tuple(target.verdicts))
        while (expired := self._deadlines.take(now)) is not None:
            key, check = expired
            self._judge_again(self._sick[key], (check,))
        self._advance_storms(now)

    def blind(self) -> None:
        """The cluster can't be seen: until `sees` no cooldown of a storm ends, since it is not known that all targets stay
        well."""
        self._blind = True

    def sees(self, now: datetime) -> None:
        """The cluster is seen: a cooldown that ran while we were blind starts again."""
        if not self._blind:
            return
        self._blind = False
        for key, storm in self._storms.items():
            if storm.cooling is not None:
                self._storms[key] = replace(storm, cooling=now.replace(microsecond=0))
                self._version += 1

    def report_parts(
        self,
        now: datetime,
        watching: Collection[str] = (),
        exempt: ExemptNodes = NONE_EXEMPT,
        notified: Iterable[tuple[str, str]] = (),
        spells: Collection[str] = (),
    ) -> ReportParts:
        """The parts of a report now. watching: nodes of open episodes, observed even without our mark and even when they are
        gone. notified: the stamp of the node as each episode was last sent it, by node. spells: nodes with an open
        spell."""
        known, names = replace(self.known(now), exempt=exempt), self.names()
        return build_report_parts(
            known, watching=frozenset(watching), notified=dict(notified), names=names, spells=frozenset(spells)
        )

    def failing(self, now: datetime, watching: Collection[str] = ()) -> dict[str, datetime | None]:
        """Victims that a check would have acted on now unless a pool keeps them, by name, and since when it is called
        unhealthy."""
        return failing(self.known(now), frozenset(watching))

    @property
    def sick_nodes(self) -> list[str]:
        """The names of the Nodes that are not well, and of Machines without one."""
        return [target.victim_name for target in self._sick.values()]

    def sickness_of(self, node: str) -> str:
        """Which check calls the node, or a Machine of it, unhealthy, in words; "" while none does. node: or the victim name of
        a Machine without a Node."""
        for target in self._named(node):
            for key, verdict in sorted(target.verdicts.items()):
                if verdict.health is Health.UNHEALTHY:
                    return f"{key} calls it unhealthy: {verdict.reason}"
        return ""

    def described(self, node: str) -> KnownNode | None:
        """The labels of a node, or of a Machine without one, and the checks that cover it; None where nothing is known of it."""
        targets = self._named(node)
        labels = [each.labels for target in targets if (each := target.node or target.machine) is not None]
        if not labels or any(target.node is not None and target.node.unreadable for target in targets):
            return None
        return KnownNode(labels=labels[0], checks=frozenset(key for target in targets for key in target.verdicts))

    def _named(self, victim: str) -> list[JudgedTarget]:
        """The node and its Machines, or the Machines without one of that name."""
        inventory = self._inventory
        found = [inventory.nodes.get(victim), *inventory.machines_of.get(victim, {}).values()]
        if victim.startswith(MACHINE):
            found += [inventory.machines.get(f"{dialect}/{victim.removeprefix(MACHINE)}") for dialect in Dialect]
        return [each for each in found if each is not None]

    def known(self, now: datetime) -> LedgerSnapshot:
        """The input of a report or an evaluation. It shares the ledger's own memory: read it at once, never keep it."""
        self.advance(now)
        inventory = self._inventory
        return LedgerSnapshot(
            now=now,
            checks=self._checks,
            bad=self._bad,
            counts={key: tally.counts() for key, tally in self._tallies.items()},
            breakers=self._breakers(),
            storms=self._storms,
            nodes=inventory.nodes,
            machines=inventory.machines,
            machines_of=inventory.machines_of,
            sick=self._sick,
            marked=inventory.marked,
            clusters=inventory.clusters,
            remediations=inventory.remediations,
            requests=self._requests,
            requests_held_back=self._requests_held_back,
            surroundings=self._surroundings,
            control_plane=replace(inventory.control_plane, remediated=inventory.remediated_members(self._checks.values())),
            overlap=self._overlap,
            next_due=self.next_due,
            policies=self._policies,
            groups=inventory.groups,
            controllers={
                dialect: why for dialect, held in self._held_back.items() if (why := held.get(OpenReason.OBSERVE_ONLY, ""))
            },
            retries=self._retries,
            modes=self._modes,
            mode_exceptions=self._mode_exceptions,
            ignored=self.ignored,
        )

    def covered(self, key: str, names: Iterable[str]) -> set[str]:
        """Those of the nodes that a good check covers, directly or by a Machine that refers to them."""
        covered: set[str] = set()
        for name in names:
            node = self._inventory.nodes.get(name)
            ties = self._inventory.machines_of.get(name, {}).values()
            if (node is not None and key in node.verdicts) or any(key in target.verdicts for target in ties):
                covered.add(name)
        return covered

    def targets_of(self, key: str) -> list[str]:
        """The names of all targets in a check's total; for the dialect that lists them in its status, where groups are small."""
        check = self._checks.get(key)
        if check is None or check.dialect is not Dialect.CLUSTER_API:
            return []
        found = (target for target in self._inventory.machines.values() if key in target.verdicts)
        return [target.name for target in found if target.verdicts[key].standing is not Standing.LEFT_OUT]

    def made_by(self, key: str) -> dict[str, list[RemediationObject]]:
        """The remediation objects that a check of Nodes has created, by the name of their node."""
        check, found = self._checks.get(key), defaultdict[str, list[RemediationObject]](list)
        if check is None or check.of_machines:
            return {}
        for each in self._inventory.remediations.values():
            if check.makes(each) and check.owns(each):
                found[each.target].append(each)
        return {node: sorted(objects, key=lambda each: each.ref.key) for node, objects in found.items()}

    # Inside: circuit breakers -----------------------------------------------------------------------------------------

    def _breakers(self) -> dict[str, CircuitBreaker]:
        return {
            key: circuit_breaker(check, self._tallies[key].counts(), self._circumstances(key, check))
            for key, check in self._checks.items()
        }

    def _circumstances(self, key: str, check: HealthCheck) -> Circumstances:
        cluster = f"{check.ref.namespace}/{check.cluster_name}" if check.cluster_name else ""
        held = next(iter(sorted(self._held_back[check.dialect].items())), None)
        if cluster and self._inventory.unseen(cluster):
            held = (OpenReason.ELSEWHERE, f"no Node here belongs to the Cluster {cluster}: it is looked after from elsewhere")
        return Circumstances(
            surroundings=self._surroundings,
            cluster=self._inventory.clusters.get(cluster),
            storm=self._storms.get(key, Storm()),
            held=held,
        )

    def _advance_storms(self, now: datetime) -> None:
        for key, storm in self._storms.items():
            check = self._checks[key]
            breached = threshold_breached(check, self._tallies[key].counts())
            if self._blind and storm.cooling is not None and not breached:
                continue
            after = advance(storm, check.storm_cooldown, breached=breached, now=now)
            if after != storm:
                self._storms[key] = after
                self._version += 1

    # Inside: judging --------------------------------------------------------------------------------------------------

    def _note_moment(self, now: datetime) -> None:
        self._now = now if self._now is None else max(self._now, now)

    def _note_mode(self, node: NodeView) -> None:
        mode = mode_of(self._modes, node.name, node.labels).mode
        if mode is mode_of(self._modes, "", {}).mode:
            self._mode_exceptions.pop(node.name, None)
        else:
            self._mode_exceptions[node.name] = mode

    def _judge_because(self, touched: list[TargetToJudge] | None) -> None:
        """Judge the touched targets after a change of another object; None: nothing has changed."""
        if touched is not None:
            self._version += 1
            self._judge_touched(touched)

    def _judge_touched(self, touched: list[TargetToJudge]) -> None:
        for each in touched:
            target = each.target
            if each.relabelled:
                self._select(target)
            else:
                for key in tuple(target.verdicts):
                    self._judge(target, key, self._rules[key])
            self._note(target)

    def _select(self, target: JudgedTarget) -> None:
        """Judge a target by all checks that cover it; it is new, or has other labels."""
        for key, rules in self._rules.items():
            if rules.covers(target):
                self._judge(target, key, rules)
            elif key in target.verdicts:
                self._withdraw(target, key)

    def _judge_again(self, target: JudgedTarget, keys: Collection[str]) -> None:
        for key in keys:
            self._judge(target, key, self._rules[key])
        self._note(target)

    def _note(self, target: JudgedTarget) -> None:
        """Count a change where a report would show the target differently than at the last look."""
        seen = shown(target)
        if target.shown_as != seen:
            target.shown_as = seen
            self._version += 1

    def _judge(self, target: JudgedTarget, key: str, rules: Rules) -> None:
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
        if verdict is not HEALTHY and (verdict.standing is not Standing.HEALTHY or verdict.due is not None):
            self._sick[target.key] = target
        elif before is not None and not target.sick:
            self._sick.pop(target.key, None)
        if verdict.due != (before.due if before is not None else None):
            self._deadlines.put((target.key, key), verdict.due)

    def _withdraw(self, target: JudgedTarget, key: str) -> None:
        self._tallies[key].remove(target, target.verdicts.pop(key))
        self._deadlines.drop((target.key, key))
        if not target.sick:
            self._sick.pop(target.key, None)

    def _remove(self, target: JudgedTarget) -> None:
        self._version += 1
        for key in tuple(target.verdicts):
            self._withdraw(target, key)
        self._sick.pop(target.key, None)

    def _drop(self, key: str) -> bool:
        """Forget a good check altogether; whether there was one."""
        if self._checks.pop(key, None) is None:
            return False
        self._storms.pop(key, None)
        self._forget(key)
        return True

    def _forget(self, key: str) -> None:
        """Forget all verdicts of a check."""
        self._rules.pop(key, None)
        if self._tallies.pop(key, None) is None:
            return
        for targets in (self._inventory.nodes, self._inventory.machines):
            for target in targets.values():
                if target.verdicts.pop(key, None) is None:
                    continue
                self._deadlines.drop((target.key, key))
                if not target.sick:
                    self._sick.pop(target.key, None)


def _judged_by(check: HealthCheck) -> tuple[object, ...]:
    """The fields of a check that decide which targets it covers and its verdict on each."""
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
        check.escalation,
        check.retry,
        check.max_in_flight,
        check.autoscaler_patience,
    )
