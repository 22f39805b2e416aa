"""What `evaluate` and `explain` say of files is what a scan of the same cluster would do: tried on random clusters.

Seeded, so that every run sees the same ones: `NODEWARDEN_TEST_WORLDS` says how many, `NODEWARDEN_TEST_SEED` from which number on.
Room for everybody is assumed on both sides: budgets and holds of episodes are the scanner's.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from policy.episode.permits import PermitDecision
from policy.remediation.ladder import RESTORING
from policy.remediation.strategy_rules import Action
from policy.scan import permit_rules
from policy.scan.admission import Admission, answer_request
from policy.scan.evaluation import TargetEvaluation, evaluate
from policy.scan.explanation import conclude, explain
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.permit_rules import OF_FENCE_POLICIES, AdmissionRefusal, Asker
from policy.scan.scan_report import Candidate
from tests.cases.decisions import PlayedWorld, act_of, played, request_of, watched
from tests.cases.drawn_worlds import drawn
from tests.cases.worlds import NOW
from tests.policy.builders import NAMESPACE

pytestmark = pytest.mark.timeout(900)  # thousands of worlds, where somebody asks for them

WORLDS = int(os.environ.get("NODEWARDEN_TEST_WORLDS", "300"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))

ACTS = frozenset(Action) - {Action.NONE, Action.SKIP_NO_OWNER} - RESTORING
SPENT_BY_OTHERS = {
    AdmissionRefusal.THRESHOLD,
    AdmissionRefusal.SCOPE_CAP,
    AdmissionRefusal.SCOPE_STORM,
    AdmissionRefusal.IN_FLIGHT,
    AdmissionRefusal.REPLACEMENT,
}
"""Why one is refused that would be let in alone: what others of the same scan have taken."""
LATER = {AdmissionRefusal.RETRY_LATER, AdmissionRefusal.IN_FLIGHT}
"""What `explain` says beside the act that is due: the outlook has the memory and the limits of a check."""
LIMITS = {*OF_FENCE_POLICIES, AdmissionRefusal.THRESHOLD}
"""What files and a scan's report both show, so that both have to say it in the same words."""


def victim_of(each: TargetEvaluation) -> str:
    return each.node or f"machine/{NAMESPACE}/{each.machine}"


def is_under_way(each: TargetEvaluation) -> bool:
    """It has been asked for: nothing is asked for twice, and the episode follows what was."""
    return each.action is Action.NONE and ("already" in each.message or "has been asked" in each.message)


def kept_by_etcd(known: LedgerSnapshot, victim: str) -> bool:
    """Whether OpenShift's guard of etcd keeps a member that a scan lets in: `evaluate` reads it from files, a live cluster right
    before each act."""
    targets = [each for each in (*known.nodes.values(), *known.machines.values()) if each.victim_name == victim]
    member = any(each.control_plane for each in targets)
    return member and bool(known.surroundings.etcd.objection(next(each.node_name for each in targets)))


def requests_differ(seed: int, world: PlayedWorld) -> Iterator[str]:
    """What a scan and an open episode's request are answered differently about one node. By what the two are asked alike, in the
    order of `RULES`, both get the same answer in the same words."""
    alike = {rule.code for rule in permit_rules.RULES if {Asker.SCAN, Asker.EPISODE, Asker.PERSON} <= rule.stops}
    for candidate in world.report.candidates:
        if candidate.exhausted:
            continue  # its episode asks a person, and nothing else
        (*refused,) = world.admitted(candidate).refused
        # A request has its groups from the nodes that are watched.
        asked = replace(world.report, seen_nodes=(*world.report.seen_nodes, watched(candidate)))
        answer = answer_request(asked, world.permits, request_of(candidate), cap=99, now=NOW)
        told = f"world {seed}: {candidate.node}: a scan {refused[0].message if refused else 'admits'}, a request: {answer.reason}"
        if refused and refused[0].reason in alike:
            if answer.decision is PermitDecision.GRANTED:
                yield f"granted: {told}"
            elif refused[0].message not in answer.reason and "circuit breaker" not in answer.reason:
                yield f"in other words: {told}"
        if not refused and answer.decision is not PermitDecision.GRANTED and "circuit breaker" not in answer.reason:
            yield f"refused: {told}"


def conclusions_differ(seed: int, world: PlayedWorld, answer: Admission) -> Iterator[str]:
    """Where the one sentence that `explain` concludes with is not what a scan does with the node."""
    refused = {each.node: each.reason for each in answer.refused}
    asked, admitted = {each.node for each in answer.exhausted}, {each.node for each in answer.admitted}
    for name in world.known.nodes:
        said = conclude(explain(world.known, name, world.cluster.owners), halted="", kept_from=())
        told = f"world {seed}: {name}: {said}; a scan: {'admits' if name in admitted else refused.get(name, 'nothing')}"
        if " is due under " in said and "delete-remediation" not in said:
            if name not in admitted and refused.get(name) not in SPENT_BY_OTHERS | {AdmissionRefusal.CONTROL_PLANE}:
                yield f"not due: {told}"
        elif " is put off under " in said:
            if refused.get(name) is not AdmissionRefusal.RETRY_LATER:
                yield f"not put off: {told}"
        elif said.startswith("a person is needed") is not (name in asked) and refused.get(name) != AdmissionRefusal.IN_HAND:
            yield f"no person is asked: {told}" if name not in asked else f"a person is asked: {told}"
        elif kept_by_etcd(world.known, name) and said.startswith("unhealthy, and held back: ControlPlaneGuard: "):
            continue
        elif name in admitted and "already" not in said and "has been asked" not in said:
            yield f"done all the same: {told}"


def differences(seed: int) -> Iterator[str]:
    """What the two say differently of one cluster, the kind of difference first."""
    world = played(drawn(seed))
    known, report, held = world.known, world.report, world.permits
    said = [(each.check.ref.key, verdict) for each in evaluate(known) for verdict in each.verdicts]
    answer = world.admitted()
    refused = {each.node: each.reason for each in answer.refused}
    admitted = {each.node: each for each in answer.admitted}
    exhausted = {each.node for each in answer.exhausted}
    candidates = {each.node: each for each in report.candidates}

    def alone(candidate: Candidate) -> AdmissionRefusal | None:
        return next((AdmissionRefusal(each.reason) for each in world.admitted(candidate).refused), None)

    for key, each in said:
        if each.action not in ACTS:
            continue
        victim, told = victim_of(each), f"world {seed}: {key} says {each.action} of {each.target}"
        candidate = candidates.get(victim)
        if candidate is None or candidate.check.key != key or candidate.refused:
            yield f"no scan has it done: {told}, a scan {candidate.refused if candidate else 'nothing'}"
        elif victim in exhausted or candidate.exhausted:
            continue  # an episode asks a person for the act, which conclusions_differ compares
        elif candidate.not_before is None and act_of(candidate) is not each.action:
            yield f"another act: {told}, a scan {act_of(candidate)}"
        elif each.held_by:
            if victim in admitted and not kept_by_etcd(known, victim):
                yield f"the guard of the control plane: {told}, not yet, but a scan lets it in"
        elif victim not in admitted and (
            alone(candidate) not in {None, *LATER} or refused[victim] not in SPENT_BY_OTHERS | LATER
        ):
            kind = "the guard of the control plane" if refused[victim] is AdmissionRefusal.CONTROL_PLANE else "refused"
            yield f"{kind}: {told}, a scan refuses: {refused[victim]}"
    for victim, candidate in admitted.items():
        mine = [each for key, each in said if key == candidate.check.key and victim_of(each) == victim]
        if not any(
            (each.action in ACTS and (not each.held_by or kept_by_etcd(known, victim))) or is_under_way(each) for each in mine
        ):
            yield f"not named: world {seed}: a scan has {act_of(candidate)} done to {victim} for {candidate.check.key}, {mine}"
    for key, each in said:
        candidate, rule = candidates.get(victim_of(each)), each.held_by_rule
        if rule == AdmissionRefusal.CIRCUIT_BREAKER and candidate is not None and candidate.check.key == key:
            yield f"offered all the same: world {seed}: {key} holds {each.target} back by {each.held_by}"
        mine = candidate is not None and candidate.check.key == key and not candidate.refused and not candidate.exhausted
        if rule in LIMITS and candidate is not None and mine and candidate.node not in {permit.node for permit in held}:
            refused_alone = next(iter(world.admitted(candidate).refused), None)
            if refused_alone is not None and refused_alone.reason in LATER:
                continue  # the scanner names what time alone ends first
            if refused_alone is None or refused_alone.reason != rule or not refused_alone.message.startswith(each.held_by):
                yield f"another reason: world {seed}: {key} of {each.target}: {each.held_by}, a scan: {refused_alone}"
    yield from requests_differ(seed, world)
    yield from conclusions_differ(seed, world, answer)
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
    acts, refusals = Counter[Action](), Counter[str]()
    for world in (played(drawn(seed)) for seed in range(1, 201)):
        acts.update(each.action for check in evaluate(world.known) for each in check.verdicts if not each.held_by)
        refusals.update(each.reason for each in world.admitted().refused)
    assert set(acts) >= ACTS - {Action.PRESERVE} | {Action.SKIP_NO_OWNER}
    assert set(refusals) >= {AdmissionRefusal.CONTROL_PLANE, AdmissionRefusal.NOT_CARRIED_OUT, AdmissionRefusal.THRESHOLD}
