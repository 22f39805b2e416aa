"""All that `policy` answers about a case's world, in short and stable words: codes where there are any, else the sentence."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from activities.cluster.api.paths import FENCE_AGENTS_REMEDIATIONS
from activities.cluster.objects.fencing_requests import FencingRequests
from activities.cluster.objects.object_reader import FileObjects
from activities.cluster.watch.offline import ClusterSnapshot
from policy.checks.circuit_breakers import OpenReason
from policy.checks.fence_policies import DEFAULT_SOURCE, PowerMoment
from policy.checks.health_check import Overlap
from policy.checks.verdict import MACHINE, Health
from policy.episode.messages import SeenNode
from policy.episode.modes import ClusterModes, ModeRule
from policy.episode.permits import Permit, PermitDecision, PermitRequest, PermitState
from policy.fence.config import FenceStep, acts_in_order
from policy.remediation.ladder import TemplateSeen, TemplateSight, removes
from policy.remediation.strategy_rules import RULES, Action
from policy.scan.admission import Admission, admit, answer_request, orphans
from policy.scan.evaluation import CheckEvaluation, TargetEvaluation, evaluate
from policy.scan.explanation import Outlook, conclude, explain
from policy.scan.ledger import Ledger
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.scan_report import Candidate, ClusterLease, ScanReport, ViewState
from policy.values.mode import Mode
from policy.values.object_refs import Dialect
from starter.output.evaluation import as_model
from starter.plans.cluster_objects import Manifest
from starter.plans.fence_plans import planned as fence_planned
from starter.plans.preserve_plans import planned
from tests.cases.worlds import NOW, Json, at_moment, expanded_all, moment, seconds
from tests.documents import encoded, load
from tests.policy.builders import a_permit, a_report, seen

ROOM_FOR_ALL = 99
KEEPS = ("preserve", "sapcloud.io", "PreservationPolicy", "Shoot")
"""Words of a world in which a machine may be kept."""
NUMBERS = {"needs": "needs", "allows": "allows", "counted": "unhealthy:"}
FENCES = {"FencingTemplate", "FenceConfig"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOff:
    """A node that the scanner leaves alone after an episode."""

    node: str
    reason: str
    until: datetime | None = None
    looked_well: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedWorld:
    """What a case gives, read as the product reads files, and what a scanner would make of it. permits: those of the case, and a
    parked one for each mark."""

    objects: list[Json]
    cluster: ClusterSnapshot
    known: LedgerSnapshot
    report: ScanReport
    permits: tuple[Permit, ...]
    cap: int
    paused: str

    held_off: tuple[HeldOff, ...] = ()
    power: tuple[PowerMoment, ...] = ()

    def admitted(self, *candidates: Candidate) -> Admission:
        """What a scan decides about these; about all without any."""
        report = replace(self.report, candidates=candidates) if candidates else self.report
        held_off, power = self.held_off, self.power
        return admit(report, self.permits, cap=self.cap, now=NOW, paused=self.paused, held_off=held_off, power=power)


PARTS = frozenset({"case", "why", "given", "scan", "peer", "differs", "then"})
OF_SCANNERS = frozenset(
    {"overlap", "modes", "stale", "lease", "permits", "cap", "paused", "missing", "held off", "switched on", "obeys", "held back"}
)


def played(case: Json) -> PlayedWorld:
    """Raises ValueError for a key that means nothing: without it the opposite might be stored."""
    objects, scan = expanded_all(case["given"]), case.get("scan", {})
    for found, known in ((case, PARTS), (scan, OF_SCANNERS)):
        if unknown := sorted(found.keys() - known):
            raise ValueError(f"{case.get('case', 'a case')}: {', '.join(unknown)}: expected one of {', '.join(sorted(known))}")
    cluster = load([(each, "case") for each in objects], NOW, overlap=Overlap(scan.get("overlap", Overlap.STRICTEST)))
    requests = FencingRequests(cluster.ledger, takeover=False, namespaces=scan.get("obeys", ()))
    for each in objects:
        if each["kind"] == FENCE_AGENTS_REMEDIATIONS.kind:
            metadata = each["metadata"]
            requests.put(FENCE_AGENTS_REMEDIATIONS.ref(metadata["name"], metadata["namespace"]), each)
    for dialect, reasons in scan.get("held back", {}).items():
        for reason, why in reasons.items():
            cluster.ledger.hold_back(Dialect(dialect), OpenReason(reason), why)
    if missing := scan.get("missing"):
        for check in cluster.checks:
            named = [rung.template for rung in check.rungs if f"{rung.template.namespace}/{rung.template.name}" in missing]
            cluster.templates[check.ref.key] = dict.fromkeys(named, TemplateSeen(sight=TemplateSight.MISSING))
        cluster.judge_templates()
    if modes := scan.get("modes"):
        cluster.ledger.put_modes(_modes(modes))
    known, stale = cluster.ledger.known(NOW), scan.get("stale", "")
    view, lease = ViewState(synced=not stale, stale=stale), ClusterLease(held=scan.get("lease", True))
    report = replace(report_of(cluster.ledger, NOW), view=view, lease=lease)
    planes = {name for name, each in known.nodes.items() if each.control_plane}
    # Parked: an open episode keeps its node, and a member of the control plane from others, but takes no room.
    permits = [
        a_permit(each.node, PermitState.PARKED, incident=each.incident, control_plane=each.node in planes)
        for each in report.seen_nodes
        if each.incident
    ]
    for name, written in scan.get("permits", {}).items():
        known_of_it = {"state": written} if isinstance(written, str) else written
        fields_of_it = {"control_plane": name in planes} | known_of_it | {"state": PermitState(known_of_it.get("state", "open"))}
        permits.append(a_permit(name, **fields_of_it))
    return PlayedWorld(
        objects=objects,
        cluster=cluster,
        known=known,
        report=report,
        permits=tuple(permits),
        cap=scan.get("cap", ROOM_FOR_ALL),
        paused=scan.get("paused", ""),
        held_off=tuple(HeldOff(node=name, **_moments(each)) for name, each in scan.get("held off", {}).items()),
        power=tuple(
            PowerMoment(node=name, on=True, at=datetime.fromisoformat(moment(seconds(age))))
            for name, age in scan.get("switched on", {}).items()
        ),
    )


def _moments(written: Json) -> Json:
    return {
        key: datetime.fromisoformat(at_moment(value)) if key in {"until", "looked_well"} else value
        for key, value in written.items()
    }


def report_of(ledger: Ledger, now: datetime) -> ScanReport:
    """What a scan that sees everything makes of the ledger."""
    parts = ledger.report_parts(now)
    return replace(a_report(), **{each.name: getattr(parts, each.name) for each in fields(parts)}, at=now)


def _modes(written: Json) -> ClusterModes:
    rules = [
        ModeRule(
            mode=Mode(mode), by="ada", reason="why", at=NOW, **({"selector": nodes} if "=" in nodes else {"nodes": (nodes,)})
        )
        for nodes, mode in written.items()
        if nodes != "all"
    ]
    return ClusterModes(setting=Mode(written["all"]) if "all" in written else None, rules=tuple(rules))


def decisions(case: Json) -> Json:
    """The `then` of a case; what nothing is said about is left out."""
    world = played(case)
    evaluated = evaluate(world.known)
    found = {
        "errors": [f"{each.ref.key if each.ref else each.source}: {each.message}" for each in world.cluster.mistakes],
        "checks": {each.check.ref.key: _check(each) for each in evaluated},
        "verdicts": {
            each.check.ref.key: {_named(one): _verdict(world.known, each, one) for one in each.verdicts} for each in evaluated
        },
        "scan": _scan(world),
        "explain": dict(_explained(world)),
    }
    text = str(world.objects)
    if any(each["kind"] in FENCES or each["metadata"]["name"].startswith("fence-config") for each in world.objects):
        found["plan"] = dict(_plans(world))
    if any(word in text for word in KEEPS):
        found["preserve"] = _preserved(world.objects)
    return {key: value for key, value in found.items() if value}


def peers_view(case: Json) -> Json:
    """What the only check of a case answers, in the words in which a case says what its peer does. counted: the number that the
    message of an open circuit breaker has. needs, allows: the threshold's number, as far as the message says it."""
    world = played(case)
    if not (world.known.checks or world.cluster.mistakes):
        return _kept_view(world.objects)
    answer = encoded(as_model(evaluate(world.known), world.cluster.mistakes))
    check = answer["checks"][-1]
    verdicts = check["verdicts"]
    numbers = {name: re.search(rf"{word} (\d+)", check["message"]) for name, word in NUMBERS.items()}
    return {name: int(found[1]) if found else None for name, found in numbers.items()} | {
        "accepted": not answer["errors"],
        "healthy": f"{check['healthy']} of {check['targets']}",
        "unhealthy": sorted(each["target"] for each in verdicts if each["verdict"] == "unhealthy"),
        "acts": {each["target"]: each["action"] for each in verdicts if each["action"] != "none" and not each["heldBy"]},
        "soon": {each["target"]: each["dueInSeconds"] for each in verdicts if each["verdict"] == "soon"},
        "reasons": {each["target"]: each["reason"] for each in verdicts if each["verdict"] == "unhealthy"},
        "next": check["nextCheckSeconds"],
        "allowed": check["allowed"],
        "closed": check["reason"],
        "spare": check["remediationsAllowed"],
        "says": [check["message"], *(each["message"] for each in verdicts)],
    }


def _kept_view(objects: list[Json]) -> Json:
    """The same of machines that may be kept, without any health check. order: of a scale-down. doubtful: how many warnings."""
    plan = planned([Manifest(document=each, source="case") for each in objects], NOW).survey
    machines = [each for each in plan.decisions if each.held.machine]
    return {
        "asked": {each.held.name: each.intent.value for each in machines},
        "acts": {each.held.name: each.action.value for each in machines},
        "phases": {each.held.name: each.phase for each in machines},
        "expires": {each.held.name: _seconds(each.expiry - NOW) for each in machines if each.expiry},
        "terminates": sorted(each.held.name for each in machines if each.action == "terminate"),
        "keeps": [each.name for pool in plan.pools for each in pool.choice.selected],
        "releases": [each.name for pool in plan.pools for each in pool.choice.released],
        "count": sum(pool.choice.count for pool in plan.pools),
        "order": [each.name for each in plan.order],
        "doubtful": len(plan.warnings),
    }


def _check(each: CheckEvaluation) -> str:
    counts, (acts, reason, _) = each.counts, each.may_act
    parts = [f"{counts.healthy} of {counts.total} healthy", "may act" if acts else reason]
    parts.append(f"{max(each.breaker.remaining, 0)} to spare")
    if each.next_look is not None:
        parts.append(f"looks again in {_seconds(each.next_look)}")
    warnings = [
        "overlaps" if warning.startswith("its sick targets are covered by") else f"warns: {warning}" for warning in each.warnings
    ]
    return "; ".join([*parts, *warnings])


def _named(one: TargetEvaluation) -> str:
    return one.target if one.target == one.node or not one.node else f"{one.target} of {one.node}"


def _verdict(known: LedgerSnapshot, check: CheckEvaluation, one: TargetEvaluation) -> str:
    health = one.verdict.health
    parts = [health.value if health is Health.HEALTHY else f"{health} {one.verdict.reason}".strip()]
    if one.due_in is not None:
        parts.append(f"in {_seconds(one.due_in)}")
    if one.action is not Action.NONE:
        parts.append(one.action.value)
    if one.held_by_rule or one.held_by:
        under = f" of {one.held_under}" if one.held_under not in {"", check.check.ref.key} else ""
        parts.append(f"held by {one.held_by_rule or one.held_by}{under}{one.vetoed_by and f' ({one.vetoed_by})'}")
    mode = known.mode_of(one.node or one.target, check.check.ref.key).mode
    return "; ".join([*parts, *([] if mode is Mode.REPAIR else [f"mode {mode}"])])


def _seconds(wait: timedelta) -> str:
    return f"{wait.total_seconds():g}s"


def _scan(world: PlayedWorld) -> Json:
    answer = world.admitted()
    by_name = {each.node: each for each in world.report.candidates}
    found = {
        "admits": [f"{each.node}: {act_of(each)}" for each in answer.admitted],
        "asks a person": [each.node for each in answer.exhausted],
        "refuses": {each.node: _refused(world, by_name[each.node], each.reason) for each in answer.refused},
        "in repair": {each.node: f"{each.reason}" for each in answer.in_repair},
        "takes back": {each.node: each.reason for each in world.report.left_over},
        "cleans up": [each.node for each in orphans(world.report.seen_nodes, {each.incident for each in world.permits})],
    }
    return {key: value for key, value in found.items() if value}


def act_of(candidate: Candidate) -> Action:
    return RULES[candidate.ladder[0].strategy].action if candidate.ladder else Action.FENCE


def request_of(candidate: Candidate) -> PermitRequest:
    """The same node's open episode asks."""
    return PermitRequest(
        node=candidate.node,
        workflow_id=f"episode/c/{candidate.node}",
        incident="new",
        control_plane=candidate.control_plane,
        node_uid=candidate.uid,
        provider_id=candidate.provider_id,
        ready=candidate.ready,
        removes=removes(candidate.ladder),
    )


def watched(candidate: Candidate) -> SeenNode:
    """What a report shows of the node of an open episode."""
    present = not candidate.node.startswith(MACHINE)
    return seen(node=candidate.node, present=present, ready=candidate.ready, groups=candidate.groups)


def _refused(world: PlayedWorld, candidate: Candidate, reason: str) -> str:
    """With what an episode, and a person who passes the circuit breaker, would be answered."""
    report = replace(world.report, seen_nodes=(*world.report.seen_nodes, watched(candidate)))
    said = [f"{reason}"]
    for who, request in (
        ("an episode", request_of(candidate)),
        ("a person", replace(request_of(candidate), by_person=True, override="circuit-breaker")),
    ):
        answer = answer_request(
            report,
            world.permits,
            request,
            cap=world.cap,
            now=NOW,
            paused=world.paused,
            held_off=world.held_off,
            power=world.power,
        )
        same = answer.decision is PermitDecision.REFUSED and answer.rule == reason
        said += [] if same else [f"{who} {f'is {answer.decision}'} {answer.rule}".strip()]
    return "; ".join(said)


def _explained(world: PlayedWorld) -> Iterator[tuple[str, Any]]:
    names = [*world.known.nodes, *(each.victim_name for each in world.known.machines.values() if each.node is None)]
    for name in sorted(dict.fromkeys(names)):
        answer = explain(world.known, name, world.cluster.owners, world.cluster.leased)
        said = [conclude(answer, halted="", kept_from=())]
        said += dict.fromkeys(f"unblocks: {words}" for opinion in answer.opinions for words in opinion.unblock)
        if (
            answer.outlook is not None
            and not answer.outlook.plain
            and any(each.target.held_by or each.target.action is not Action.NONE for each in answer.opinions)
        ):
            said.append(f"ladder: {_ladder(answer.outlook)}")
        if said != ["healthy"]:
            yield name, said[0] if len(said) == 1 else said


def _ladder(outlook: Outlook) -> str:
    found = [
        each.step.name
        + (f" (not: {each.impossible})" if each.impossible else " (next)" if each.next else " (failed)" * each.failed)
        for each in outlook.steps
    ]
    return ", ".join(found) or outlook.problem


def _plans(world: PlayedWorld) -> Iterator[tuple[str, Any]]:
    reader = FileObjects(world.objects)
    for name in sorted(world.known.nodes):
        plan = asyncio.run(fence_planned(reader, name, source=DEFAULT_SOURCE, live=False))
        order = acts_in_order(plan)
        steps = {
            step.value: [f"{act.does} [{act.method}]" if act.method else act.does for act in order if act.step is step]
            for step in FenceStep
            if plan.step(step)
        }
        yield name, {"by": f"{plan.name} ({plan.source})"} | steps | ({"errors": list(plan.errors)} if plan.errors else {})


def _preserved(objects: list[Json]) -> Json:
    plan = planned([Manifest(document=each, source="case") for each in objects], NOW)
    found = {
        "machines": {
            each.held.name: f"{each.action} as {each.intent or 'not asked'}; {each.phase}"
            + (f"; until {_seconds(each.expiry - NOW)}" if each.expiry else "")
            for each in plan.survey.decisions
            if each.intent or each.expiry or each.held.expiry or each.action != "none"
        },
        "pools": {
            pool.name or "no pool": f"at most {pool.cap}, found {pool.choice.count}, keeps {_list(pool.choice.selected)}, "
            f"releases {_list(pool.choice.released)}"
            for pool in plan.survey.pools
            if pool.cap or pool.choice.count
        },
        "order": [each.name for each in plan.survey.order] if len(plan.survey.order) > 1 else [],
        "warnings": list(plan.survey.warnings),
        "errors": list(plan.errors),
    }
    return {key: value for key, value in found.items() if value}


def _list(machines: Any) -> str:
    return ", ".join(each.name for each in machines) or "none"
