"""What `evaluate` and `explain` say of files is what a scan of the same cluster would do: tried on random clusters.

Seeded, so that every run sees the same ones: `NODEWARDEN_TEST_WORLDS` says how many, `NODEWARDEN_TEST_SEED` from which number on.
Room for everybody is assumed on both sides: budgets, what is remembered of earlier tries and holds of episodes are the scanner's.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, replace
from random import Random

import pytest

from policy.checks.fence_policies import NO_POLICIES, FencePolicies, ScopeCap, StormRule
from policy.checks.health_check import HealthCheck, Overlap
from policy.episode.gate import TAKEN_AWAY_BY
from policy.episode.permits import Permit, PermitDecision, PermitRequest, PermitState
from policy.objects.machines import EXTERNAL_REMEDIATION_ANNOTATION, FAILED, PAUSED_ANNOTATION, REMEDIATE_ANNOTATION, MachineView
from policy.objects.nodes import CONTROL_PLANE_LABELS, EXCLUDE_LABEL, ZONE_LABEL, Condition, NodeView, Surroundings, Taint
from policy.remediation.ladder import RESTORING, removes
from policy.remediation.strategies import RULES, Action
from policy.scan import permit_rules
from policy.scan.admission import admit, answer_request
from policy.scan.evaluation import TargetEvaluation, evaluate
from policy.scan.explanation import explain
from policy.scan.ledger import Ledger
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.permit_rules import OF_FENCE_POLICIES, AdmissionRefusal, Asker
from policy.scan.scan_report import Candidate, ClusterLease, ScanReport, ViewState
from policy.values.object_refs import Dialect
from tests.policy.builders import (
    FOREIGN,
    NAMESPACE,
    NOW,
    PROD,
    TEMPLATE,
    WORKER,
    a_check,
    a_machine,
    a_node,
    a_permit,
    a_report,
    ago,
    cluster_api,
    openshift,
    put,
    seen,
)

pytestmark = pytest.mark.timeout(900)  # thousands of worlds, where somebody asks for them

WORLDS = int(os.environ.get("NODEWARDEN_TEST_WORLDS", "600"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))

ACTS = frozenset(Action) - {Action.NONE, Action.SKIP_NO_OWNER} - RESTORING
SPENT_BY_OTHERS = {AdmissionRefusal.THRESHOLD, AdmissionRefusal.SCOPE_CAP, AdmissionRefusal.SCOPE_STORM}
"""Why one is refused that would be let in alone: what others of the same scan have taken."""
LIMITS = {*OF_FENCE_POLICIES, AdmissionRefusal.THRESHOLD}
"""What files and a scan's report both show, so that both have to say it in the same words."""
MEMBER = CONTROL_PLANE_LABELS[0]
DELETION = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "MachineDeletionTemplate", "name": "md", "namespace": "nodewarden"}
DISKS = [{"type": "DiskPressure", "status": "True", "duration": "20s"}]
HERE = {"namespace": NAMESPACE}
ANY = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
MEMBERS = {"matchLabels": {MEMBER: ""}}


def climbing(check: HealthCheck, steps: str) -> HealthCheck:
    return replace(check, escalation=steps)


OF_MACHINES = [
    openshift("pool", maxUnhealthy="100%"),
    openshift("fences", selector={}, maxUnhealthy="100%", remediationTemplate=TEMPLATE | HERE),
    openshift("deletes", selector={}, maxUnhealthy="60%", remediationTemplate=DELETION | HERE),
    openshift("asks", selector={}, maxUnhealthy="100%", remediationTemplate=FOREIGN | HERE),
    climbing(openshift("climbs", selector={}, maxUnhealthy="100%"), "fence=5m, delete-machine"),
    cluster_api("prod", limit="100%"),
    cluster_api("prod-fences", limit="100%", template=TEMPLATE | HERE),
    cluster_api("prod-deletes", limit="80%", template=DELETION | HERE),
    climbing(cluster_api("prod-climbs", limit="100%"), "reboot, request-owner"),
]
OF_NODES = [
    a_check("workers", minHealthy=None, maxUnhealthy="100%"),
    a_check("members", selector=MEMBERS, minHealthy=None, maxUnhealthy="100%"),
    a_check("anybody", selector=ANY, minHealthy="34%", remediationTemplate=DELETION),
    a_check("disks", selector=ANY, minHealthy=1, unhealthyConditions=DISKS),
    a_check("asks", selector=ANY, minHealthy=1, unhealthyConditions=DISKS, remediationTemplate=FOREIGN),
    a_check("reboots", selector=ANY, minHealthy=1, remediationTemplate=TEMPLATE | {"kind": "RebootTemplate"}),
    climbing(a_check("climbs", selector=ANY, minHealthy=None, maxUnhealthy="100%"), "detach-volumes, delete-machine"),
]
POLICIES = [
    FencePolicies(storms=(StormRule(name="limit", percentage=60),)),
    FencePolicies(storms=(StormRule(name="zones", percentage=75, scope="zone"),), caps=(ScopeCap(scope="zone", cap=1),)),
    FencePolicies(off_groups=("zone=b",)),
    FencePolicies(switched_off=("ada, by hand",)),
    FencePolicies(problem="no number"),
]


MOSTLY_WELL, MOSTLY_SICK = ["True", "True", "True", "False", "Unknown"], ["True", "False", "Unknown", "Unknown"]


def once_in(chance: Random, times: int) -> bool:
    return chance.randrange(times) == 0


def a_random_node(chance: Random, name: str, *, member: bool) -> NodeView:
    labels = {"pool": chance.choice("ab"), ZONE_LABEL: chance.choice("ab")} | ({MEMBER: ""} if member else {WORKER: ""})
    labels |= {EXCLUDE_LABEL: "true"} if once_in(chance, 12) else {}
    since = [ago(chance.choice([5, 60, 90, 7200])) for _ in range(2)]
    found = a_node(
        name,
        conditions=(
            Condition(type="Ready", status=chance.choice(MOSTLY_WELL if member else MOSTLY_SICK), since=since[0]),
            Condition(type="DiskPressure", status=chance.choice(["True", "False", "False"]), since=since[1]),
        ),
        labels=labels,
        mark="i-1" if once_in(chance, 15) else "",
        deleting=once_in(chance, 20),
    )
    return replace(found, taints=(Taint(key=min(TAKEN_AWAY_BY), effect="NoSchedule"),)) if once_in(chance, 15) else found


def a_random_machine(chance: Random, number: int, dialect: Dialect, *, node: str, member: bool) -> MachineView:
    owner = "KubeadmControlPlane/kcp" if member and dialect is Dialect.CLUSTER_API else "MachineSet/set"
    says = [EXTERNAL_REMEDIATION_ANNOTATION, PAUSED_ANNOTATION, REMEDIATE_ANNOTATION]
    annotations = {each: "" for each in says if once_in(chance, 15)}
    return a_machine(
        f"m{number}",
        dialect,
        labels={"pool": chance.choice("ab")},
        annotations=annotations,
        phase=FAILED if once_in(chance, 3 if member else 6) else "Running",
        deleting=once_in(chance, 15),
        created=ago(9999 + number),
        last_updated=ago(chance.choice([30, 90, 9999])),
        provider_id=f"sim:///{node}" if node and once_in(chance, 2) else "",
        node_name="" if once_in(chance, 15 if member else 5) else node,
        controller=chance.choice([owner, owner, owner, "", "Strange/owner"]),
        control_plane=member,
    )


def a_world(seed: int) -> Ledger:
    """A few nodes, most of them sick, with Machines of one system or none."""
    chance = Random(seed)
    ledger = Ledger(overlap=Overlap.INDEPENDENT if once_in(chance, 6) else Overlap.STRICTEST)
    dialect = chance.choice([None, Dialect.OPENSHIFT, Dialect.CLUSTER_API])
    members = chance.choice([0, 1, 2, 3, 3, 5])
    for number in range(members + chance.randint(1, 4)):
        member, name = number < members, f"n{number}"
        if not once_in(chance, 25 if member else 7):
            put(ledger, a_random_node(chance, name, member=member))
        if dialect is not None and not once_in(chance, 6):
            put(ledger, a_random_machine(chance, number, dialect, node=name, member=member))
    put(ledger, replace(PROD, control_plane_initialized=not once_in(chance, 10)))
    mine = [each for each in OF_MACHINES if each.dialect is dialect]
    for check in (*chance.sample(mine, min(len(mine), chance.randint(0, 2))), *chance.sample(OF_NODES, chance.randint(1, 3))):
        put(ledger, replace(check, paused="paused") if once_in(chance, 20) else check)
    ledger.follow(chance.choice(POLICIES) if once_in(chance, 4) else NO_POLICIES)
    ledger.surround(Surroundings(upgrade="ClusterVersion version is Progressing") if once_in(chance, 25) else Surroundings())
    return ledger


def report_of(ledger: Ledger) -> ScanReport:
    parts = ledger.report_parts(NOW)
    told = {each.name: getattr(parts, each.name) for each in fields(parts)}
    return replace(a_report(), **told, view=ViewState(synced=True), lease=ClusterLease(held=True))


def victim_of(each: TargetEvaluation) -> str:
    return each.node or f"machine/{NAMESPACE}/{each.machine}"


def act_of(candidate: Candidate) -> Action:
    return RULES[candidate.ladder[0].strategy].action if candidate.ladder else Action.FENCE


def is_under_way(each: TargetEvaluation) -> bool:
    """It has been asked for: nothing is asked for twice, and the episode follows what was."""
    return each.action is Action.NONE and ("already" in each.message or "has been asked" in each.message)


def guarded_more_strictly(known: LedgerSnapshot) -> bool:
    """`evaluate` counts members by their Machines, too; admission by their Nodes alone."""
    return any(each.control_plane and each.node is None for each in known.machines.values())


def requests_differ(seed: int, report: ScanReport, held: list[Permit]) -> Iterator[str]:
    """What a scan and an open episode's request are answered differently about one node. By what the two are asked alike, in the
    order of `RULES`, both get the same answer in the same words."""
    alike = {rule.code for rule in permit_rules.RULES if {Asker.SCAN, Asker.EPISODE, Asker.PERSON} <= rule.stops}
    for candidate in report.candidates:
        (*refused,) = admit(replace(report, candidates=(candidate,)), held, cap=99, now=NOW).refused
        request = PermitRequest(
            node=candidate.node,
            workflow_id=f"episode/c/{candidate.node}",
            incident="new",
            control_plane=candidate.control_plane,
            node_uid=candidate.uid,
            ready=candidate.ready,
            removes=removes(candidate.ladder),
        )
        # A request has its groups from the nodes that are watched.
        watched = seen(node=candidate.node, ready=candidate.ready, groups=candidate.groups)
        asked = replace(report, seen_nodes=(*report.seen_nodes, watched))
        answer = answer_request(asked, held, request, cap=99, now=NOW)
        told = f"world {seed}: {candidate.node}: a scan {refused[0].message if refused else 'admits'}, a request: {answer.reason}"
        if refused and refused[0].reason in alike:
            if answer.decision is PermitDecision.GRANTED:
                yield f"granted: {told}"
            elif refused[0].message not in answer.reason and "circuit breaker" not in answer.reason:
                yield f"in other words: {told}"
        if not refused and answer.decision is not PermitDecision.GRANTED and "circuit breaker" not in answer.reason:
            yield f"refused: {told}"


def differences(seed: int) -> Iterator[str]:
    """What the two say differently of one cluster, the kind of difference first."""
    ledger = a_world(seed)
    known, report = ledger.known(NOW), report_of(ledger)
    said = [(each.check.ref.key, verdict) for each in evaluate(known) for verdict in each.verdicts]
    planes = {name for name, each in known.nodes.items() if each.control_plane}
    marks = [(each.node, each.incident) for each in report.seen_nodes if each.incident]
    # Parked: an open episode keeps its node, and a member of the control plane from others, but takes no room.
    held = [a_permit(node, PermitState.PARKED, incident=incident, control_plane=node in planes) for node, incident in marks]
    answer = admit(report, held, cap=99, now=NOW)
    refused = {each.node: each.reason for each in answer.refused}
    admitted = {each.node: each for each in answer.admitted}
    candidates = {each.node: each for each in report.candidates}
    members = {each.node for each in report.candidates if each.control_plane}
    strict = guarded_more_strictly(known)

    def alone(candidate: Candidate) -> AdmissionRefusal | None:
        return next(
            (each.reason for each in admit(replace(report, candidates=(candidate,)), held, cap=99, now=NOW).refused), None
        )

    for key, each in said:
        if each.action not in ACTS:
            continue
        victim, told = victim_of(each), f"world {seed}: {key} says {each.action} of {each.target}"
        candidate = candidates.get(victim)
        if candidate is None or candidate.check.key != key or candidate.refused:
            yield f"no scan has it done: {told}, a scan {candidate.refused if candidate else 'nothing'}"
        elif act_of(candidate) is not each.action:
            yield f"another act: {told}, a scan {act_of(candidate)}"
        elif strict and victim in members:
            continue
        elif each.held_by:
            if victim in admitted:
                yield f"the guard of the control plane: {told}, not yet, but a scan lets it in"
        elif victim not in admitted and (alone(candidate) is not None or refused[victim] not in SPENT_BY_OTHERS):
            kind = "the guard of the control plane" if refused[victim] is AdmissionRefusal.CONTROL_PLANE else "refused"
            yield f"{kind}: {told}, a scan refuses: {refused[victim]}"
    for victim, candidate in admitted.items():
        mine = [each for key, each in said if key == candidate.check.key and victim_of(each) == victim]
        if not (strict and victim in members) and not any(
            (each.action in ACTS and not each.held_by) or is_under_way(each) for each in mine
        ):
            yield f"not named: world {seed}: a scan has {act_of(candidate)} done to {victim} for {candidate.check.key}, {mine}"
    for key, each in said:
        candidate, rule = candidates.get(victim_of(each)), each.held_by_rule
        if rule == AdmissionRefusal.CIRCUIT_BREAKER and candidate is not None and candidate.check.key == key:
            yield f"offered all the same: world {seed}: {key} holds {each.target} back by {each.held_by}"
        mine = candidate is not None and candidate.check.key == key and not candidate.refused
        if rule in LIMITS and candidate is not None and mine and candidate.node not in {permit.node for permit in held}:
            (refused_alone,) = admit(replace(report, candidates=(candidate,)), held, cap=99, now=NOW).refused
            if refused_alone.reason != rule or not refused_alone.message.startswith(each.held_by):
                yield f"another reason: world {seed}: {key} of {each.target}: {each.held_by}, a scan: {refused_alone.message}"
    yield from requests_differ(seed, report, held)
    for victim in known.nodes:
        for opinion in explain(known, victim).opinions:
            if (opinion.check.check.ref.key, opinion.target) not in said:
                yield f"explained otherwise: world {seed}: {opinion.check.check.ref.key} of {victim}: {opinion.target}"


def test_what_is_said_of_files_is_what_a_scan_does() -> None:
    """S13, S15, S17: an answer that no scan gives sends people looking for what will never happen, or hides what will."""
    found = [difference for seed in range(FIRST_SEED, FIRST_SEED + WORLDS) for difference in differences(seed)]
    kinds = Counter(each.partition(":")[0] for each in found)
    first = {kind: next(each for each in found if each.startswith(kind)) for kind in kinds}
    assert not found, f"{dict(kinds)}; of each kind the first: {first}"


def test_the_worlds_are_busy() -> None:
    """Else nothing is compared."""
    acts, refusals = Counter[Action](), Counter[AdmissionRefusal]()
    for seed in range(1, 401):
        ledger = a_world(seed)
        acts.update(each.action for check in evaluate(ledger.known(NOW)) for each in check.verdicts if not each.held_by)
        refusals.update(each.reason for each in admit(report_of(ledger), (), cap=99, now=NOW).refused)
    assert set(acts) >= ACTS - {Action.PRESERVE, Action.ANNOTATE_EXTERNAL} | {Action.SKIP_NO_OWNER}
    assert set(refusals) >= {AdmissionRefusal.CONTROL_PLANE, AdmissionRefusal.NOT_CARRIED_OUT, AdmissionRefusal.THRESHOLD}
