"""What a ledger knows at one moment, for the modules that draw conclusions from all of it.

`policy/scan/ledger.py` makes and keeps it. `policy/scan/candidates.py` ranks what is acted on first,
`policy/scan/report_builder.py` builds the report, `policy/scan/evaluation.py` lists one check's verdicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from policy.checks.circuit_breakers import CircuitBreaker, Counts, OpenReason
from policy.checks.fence_policies import FencePolicies
from policy.checks.health_check import HealthCheck, Overlap, RetryRules, Storm
from policy.checks.inventory import ControlPlane
from policy.checks.verdict import MACHINE, JudgedTarget, Standing, Verdict
from policy.episode.fencing_requests import FencingRequest
from policy.episode.modes import REPAIRS, ClusterModes, ModeAnswer, ModeRule, mode_of
from policy.objects.machines import NONE_IGNORED, IgnoredObjects, WorkloadCluster, clusters_of
from policy.objects.nodes import NodeView, Surroundings
from policy.objects.remediations import RemediationObject
from policy.objects.scopes import GroupTally
from policy.preservation.preservation_index import NONE_EXEMPT, ExemptNodes
from policy.remediation.ladder import Unusable
from policy.remediation.memory import DEFAULT_RETRIES
from policy.values.mode import Mode
from policy.values.object_refs import Dialect, ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class BadCheck:
    """A health check that can't be used, and why. reason: a code for programs. check: as it was read, None where it can't be."""

    ref: ObjectRef
    error: str
    reason: Unusable = Unusable.OBJECT
    uid: str = ""
    generation: int = 0
    check: HealthCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSnapshot:
    """A ledger's memory at one moment; `sick`, `marked` and `machines_of` are indexes into `nodes` and `machines`.

    controllers: the other controller that acts, by dialect. requests: objects of other systems that ask for a node;
    requests_held_back: why none of them is carried out, "" where nothing is in the way. exempt: nodes that preservation keeps.
    retries: how failed remediations are tried again where a check does not say. modes: what is set for the cluster;
    mode_exceptions: nodes to which a rule or their label gives another mode. ignored: what does not count.
    """

    now: datetime
    checks: Mapping[str, HealthCheck]
    bad: Mapping[str, BadCheck]
    counts: Mapping[str, Counts]
    breakers: Mapping[str, CircuitBreaker]
    storms: Mapping[str, Storm]
    nodes: Mapping[str, JudgedTarget]
    machines: Mapping[str, JudgedTarget]
    machines_of: Mapping[str, Mapping[str, JudgedTarget]]
    sick: Mapping[str, JudgedTarget]
    marked: Mapping[str, JudgedTarget]
    clusters: Mapping[str, WorkloadCluster]
    remediations: Mapping[str, RemediationObject]
    surroundings: Surroundings
    control_plane: ControlPlane
    overlap: Overlap
    next_due: datetime | None
    controllers: Mapping[Dialect, str]
    policies: FencePolicies
    groups: GroupTally
    requests: Mapping[str, FencingRequest] = field(default_factory=dict)
    requests_held_back: str = ""
    exempt: ExemptNodes = NONE_EXEMPT
    retries: RetryRules = DEFAULT_RETRIES
    modes: ClusterModes = REPAIRS
    mode_exceptions: Mapping[str, Mode] = field(default_factory=dict)
    ignored: IgnoredObjects = NONE_IGNORED

    def mode_of(self, victim: str, key: str = "") -> ModeAnswer:
        """How far a program may go with the victim under the check with that key, "" for none. victim: "" for a Node of which
        nothing is special."""
        node = next(iter(self.nodes_of(victim)), None)
        annotation = self.checks[key].mode if key in self.checks else None
        labels = node.labels if node is not None else None if victim else {}
        return mode_of(self.modes, victim, labels, annotation, key)

    def idle_rules(self) -> tuple[ModeRule, ...]:
        """Those that cover no Node and name no Machine that there is now, as one with a misspelt label."""
        nodes = [(name, each.node.labels) for name, each in self.nodes.items() if each.node is not None]
        machines = {each.victim_name for each in self.machines.values() if each.node is None}
        return tuple(
            rule for rule in self.modes.rules if machines.isdisjoint(rule.nodes) and not any(rule.covers(*each) for each in nodes)
        )

    def together(self, victim: str) -> list[JudgedTarget]:
        """All targets with that victim: the Node and the Machines that refer to it, or the one Machine without a Node."""
        node, machine = self.nodes.get(victim), self.machines.get(victim)
        found = [*self.machines_of.get(victim, {}).values()]
        found += [target for target in (node, machine) if target is not None]
        return found

    def pause_of(self, victim: str) -> str:
        """Why the Cluster of the victim is paused, "" where it is not, or no Cluster is known."""
        together = self.together(victim) if self.clusters else ()
        keys = {key for each in together for key in clusters_of(each.node, (each.machine,) if each.machine is not None else ())}
        known = (self.clusters.get(key) for key in sorted(keys))
        return next((each.paused for each in known if each is not None and each.paused), "")

    def is_at_rest(self, key: str) -> bool:
        """Whether a check of Machines is paused, or its Cluster: then it touches nothing, and removes no remediation either."""
        return self.checks[key].of_machines and self.breakers[key].reason is OpenReason.PAUSED

    def called(self, name: str) -> list[JudgedTarget]:
        """All targets of the victim with that name, under which it is shown and has its episode (`JudgedTarget.victim_name`)."""
        if not name.startswith(MACHINE):
            return self.together(name)
        own = name.removeprefix(MACHINE)
        return [target for dialect in Dialect if (target := self.machines.get(f"{dialect}/{own}")) is not None]

    def verdicts_on(self, victim: str) -> dict[str, list[tuple[JudgedTarget, Verdict]]]:
        """Every check's verdicts on all targets of one victim, by the check's key."""
        opinions: defaultdict[str, list[tuple[JudgedTarget, Verdict]]] = defaultdict(list)
        for target in self.together(victim):
            for key, verdict in target.verdicts.items():
                if verdict.standing is not Standing.LEFT_OUT:
                    opinions[key].append((target, verdict))
        return dict(opinions)

    def nodes_of(self, victim: str) -> list[NodeView]:
        """The Node of a victim, where it has one."""
        found = {target.node.name: target.node for target in self.together(victim) if target.node is not None}
        return list(found.values())
