"""What a health check's status says of our work, in the terms that its dialect's users and tools know.

Only composed here, from the scan's report and what stands in the object; written by `activities/cluster/report/status_writer.py`,
and only where something differs. A condition carries the memory of what was published already, so that a circuit breaker that
opens or closes becomes one Event whichever worker sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.events import Happening
from activities.cluster.api.lease_view import read_lease
from activities.cluster.api.paths import NODE_FENCES, NODES
from activities.contracts.scan import OpenEpisode
from policy.checks.circuit_breakers import LeaderLease, OpenReason, StatusWrite, conflict
from policy.checks.health_check import ACTIVE, COOLING_DOWN
from policy.episode.advice import MOST_NAMED, waiting
from policy.episode.messages import Kind
from policy.episode.modes import only_some
from policy.episode.nodefence import node_fence_name
from policy.objects.remediations import RemediationObject
from policy.remediation.ladder import Unusable
from policy.scan.ledger import Ledger
from policy.scan.scan_report import CheckReport
from policy.values.display_text import some_of, visible
from policy.values.fields import mapping, mappings
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.times import moment_of

REMEDIATION_ALLOWED = "RemediationAllowed"
OVERLAPPING = "OverlappingHealthChecks"
MIXED = "MixedControlPlane"
NO_TARGETS = "NoTargets"
NEEDS_PERSON = "NeedsPerson"
CONFLICTING = "ConflictingController"

MAXIMUM_CONDITION_MESSAGE = 32768
MAXIMUM_OLDER_MESSAGE = 10240
"""Of Cluster API's older generation of conditions."""

INVALID = "InvalidConfiguration"
_LACKING = (Unusable.TEMPLATE_MISSING, Unusable.TEMPLATE_INVALID)

HALTED = "Halted"
"""Reason of RemediationAllowed=False where a person has paused all, or has stopped the scanner (S44)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One check as the scan found it, and its object's status as it stands.

    unhealthy, in_flight: the nodes of this check alone. targets: names of everything that counts, for the dialects that list
    them. objects: the remediation objects that the check has had made, by the name of their node.
    """

    report: CheckReport
    current: Mapping[str, Any]
    unhealthy: Sequence[str] = ()
    in_flight: Sequence[OpenEpisode] = ()
    targets: Sequence[str] = ()
    objects: Mapping[str, Sequence[RemediationObject]] = field(default_factory=dict)
    paused: bool = False

    @property
    def waiting(self) -> str:
        """Which of its episodes wait for a person, in words; "" where none does."""
        return waiting([each.node for each in self.in_flight if each.needs_person])

    @property
    def dialect(self) -> Dialect:
        """The dialect of the check: its controller would write such a status."""
        return self.report.dialect


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """A merge patch for the status subresource, and what it makes worth telling."""

    patch: JsonObject
    happenings: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionText:
    """One condition as it is to read. `extra`: fields that only some dialects' conditions have."""

    status: str
    reason: str
    message: str
    extra: Mapping[str, object] = field(default_factory=dict)


def status_change(situation: Situation, now: datetime) -> StatusChange | None:
    """What is to be written over the status as it stands; None where it says all of it already.

    While another controller acts on the object, its status is that controller's, also where the check is paused or only we refuse
    it: there it remembers what it has begun. Only our condition that says so is put beside, and stays.
    """
    if another_controller(situation.report):
        return conflicting_status(situation, now)
    match situation.dialect:
        case Dialect.MEDIK8S:
            return medik8s_status(situation, now)
        case Dialect.OPENSHIFT:
            return openshift_status(situation, now)
        case Dialect.CLUSTER_API:
            return cluster_api_status(situation, now)
        case Dialect.NODE_FENCING:
            return None  # a ConfigMap has no status: Events say it


# What the dialects share: conditions, and Events for what flipped.


def allowed(report: CheckReport) -> ConditionText:
    """The condition RemediationAllowed, which all dialects have (medik8s by our doing)."""
    if report.error:
        return ConditionText(status="False", reason=unusable(report), message=report.error)
    if report.allowed:
        return ConditionText(status="True", reason=REMEDIATION_ALLOWED, message=f"{only_some(report.modes)}the check may act")
    return ConditionText(status="False", reason=report.reason or "NotAllowed", message=report.message)


def unusable(report: CheckReport) -> str:
    """Why a check with an error is not in use: what ails its templates, in its operator's words, or a mistake."""
    return report.reason if report.reason in _LACKING else INVALID


def notices(situation: Situation) -> dict[str, ConditionText | None]:
    """Our own warning conditions; None for one that is to go."""
    report = situation.report
    overlap = f"{report.ref.key} and {', '.join(report.overlaps)} cover the same sick targets"
    mixed = "control-plane and worker machines are covered together: give them a check each, or set maxUnhealthy to 1"
    return {
        OVERLAPPING: ConditionText(status="True", reason="SeveralChecks", message=overlap) if report.overlaps else None,
        MIXED: ConditionText(status="True", reason="ControlPlaneAndWorkers", message=mixed)
        if report.mixed_control_plane
        else None,
        NO_TARGETS: ConditionText(status="True", reason=NO_TARGETS, message=report.no_targets) if report.no_targets else None,
        NEEDS_PERSON: ConditionText(status="True", reason=NEEDS_PERSON, message=situation.waiting) if situation.waiting else None,
        CONFLICTING: None,  # while there is one, `conflicting_status` is all that is written
    }


def another_controller(report: CheckReport) -> str:
    """Which other controller acts on the check, in words, "" for none. A report of an older worker has it only where its circuit
    breaker says so."""
    return report.another_controller or (report.message if report.reason == CONFLICTING else "")


def conflicting_status(situation: Situation, now: datetime) -> StatusChange | None:
    """Our condition that another controller is at work, and nothing else."""
    report, listed = situation.report, situation.current.get("conditions") or []
    why = another_controller(report)
    wanted = conditions(listed, {CONFLICTING: ConditionText(status="True", reason=CONFLICTING, message=why)}, now)
    if wanted == listed:
        return None
    published = condition_in(listed, CONFLICTING).get("status") == "True"
    happenings = () if published else (happening(report, CONFLICTING, why, warning=True),)
    return StatusChange(patch={"status": {"conditions": wanted}}, happenings=happenings)


def conditions(
    listed: Sequence[Mapping[str, Any]] | None, wanted: Mapping[str, ConditionText | None], now: datetime, *, older: bool = False
) -> list[JsonObject]:
    """The list with ours put in or taken out, and the conditions of others left where they are.

    older: of the generation that takes no empty reason or message, but that they are missing.
    """
    before = list(listed or ())
    ours = {kind: _condition(kind, said, condition_in(before, kind), now) for kind, said in wanted.items() if said is not None}
    if older:
        ours = {
            kind: {
                name: value[:MAXIMUM_OLDER_MESSAGE] if isinstance(value, str) else value for name, value in each.items() if value
            }
            for kind, each in ours.items()
        }
    kept: list[JsonObject] = []
    for entry in before:
        kind = str(entry.get("type"))
        if kind in ours:
            kept.append(ours.pop(kind))
        elif kind not in wanted:
            kept.append(dict(entry))
    return [*kept, *ours.values()]


def _condition(kind: str, text: ConditionText, before: Mapping[str, Any], now: datetime) -> JsonObject:
    same = before.get("status") == text.status and before.get("lastTransitionTime")
    return {
        "type": kind,
        "status": text.status,
        "reason": text.reason,
        "message": visible(text.message)[:MAXIMUM_CONDITION_MESSAGE],
        "lastTransitionTime": before["lastTransitionTime"] if same else seconds(now),
        **text.extra,
    }


def status_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The status of an object, without what is not of the shape that it has in all kinds of them: we would write it anew."""
    return {name: value for name, value in mapping(document.get("status")).items() if _has_its_shape(name, value)}


def _has_its_shape(name: str, value: object) -> bool:
    if name == "conditions":
        return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)
    if name in {"v1beta2", "v1beta1", "deprecated"}:
        return isinstance(value, Mapping) and all(map(_has_its_shape, value, value.values()))
    return name != "inFlightRemediations" or isinstance(value, Mapping)


def condition_of(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The condition of that type in a status, an empty one where there is none."""
    return condition_in(status.get("conditions") or (), kind)


def condition_in(listed: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    """The condition of that type in a list, an empty one where there is none."""
    return next((entry for entry in listed if entry.get("type") == kind), {})


def differing(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> JsonObject:
    """The fields of a status that do not read as wanted; what is empty equals what is absent."""
    return {name: value for name, value in wanted.items() if value != (current.get(name) or type(value)())}


def happening(report: CheckReport, reason: str, message: str, *, warning: bool = False) -> Happening:
    """Something about the check that is worth an Event."""
    return Happening(about=report.ref, uid=report.uid, reason=reason, message=message, warning=warning)


def seconds(moment: datetime) -> str:
    """A moment as schemas want it (date-time, whole seconds)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# The status of a NodeHealthCheck: counts, who is unhealthy and what is done about it, phase and reason.
#
# Two conditions carry the memory of what was said already: `Disabled` (theirs) and `RemediationAllowed` (as the other two
# dialects have it). The storm's two, where the check has a cooldown, are its memory across processes
# (`policy/checks/health_check.py`).

DISABLED = "Disabled"
UPDATED = "lastUpdateTime"
"""The field that says when any other was written; alone it says nothing."""

STORM_REASON = "HealthyNodeThresholdChange"

MAXIMUM_UNHEALTHY_NODES = 100
"""Nodes named in one status; more are only counted. A status is for people, and etcd refuses objects beyond 1.5 MB."""


def medik8s_status(situation: Situation, now: datetime) -> StatusChange | None:
    """What is to be written over the status as it stands; None where it says all of it already."""
    report, current = situation.report, situation.current
    before = current.get("inFlightRemediations") or {}
    # One that waits for its first permit has begun nothing; one that waits again is listed from before.
    remediating = {each.node: each for each in situation.in_flight if not each.queued or each.node in before}
    started_at = {node: _stamp(each.since, before.get(node), now) for node, each in remediating.items()}
    wanted: JsonObject = {
        "observedNodes": report.total,
        "healthyNodes": report.healthy,
        "unhealthyNodes": _unhealthy_nodes(situation, remediating, started_at, now),
        "inFlightRemediations": dict(sorted(started_at.items())),
        "phase": _phase(report, remediating),
        "reason": _reason(situation, remediating),
        "conditions": _conditions(situation, now),
    }
    patch = differing(wanted, current)
    if not patch:
        return None
    started, ended = sorted(remediating.keys() - before.keys()), sorted(before.keys() - remediating.keys())
    if "inFlightRemediations" in patch:
        # In a merge patch a key that is left out stays.
        patch["inFlightRemediations"] |= dict.fromkeys(ended)
    patch[UPDATED] = seconds(now)
    happenings = (*_node_check_events(report, current), *_remediations(report, remediating, started, ended))
    return StatusChange(patch={"status": patch}, happenings=happenings)


def _phase(report: CheckReport, remediating: Mapping[str, OpenEpisode]) -> str:
    if report.error:
        return "Disabled"
    if report.paused:
        return "Paused"
    return "Remediating" if remediating else "Enabled"


def _reason(situation: Situation, remediating: Mapping[str, OpenEpisode]) -> str:
    report, stops = situation.report, situation.report.error
    if report.paused and not stops:
        stops = report.paused if report.reason == HALTED else f"paused: {report.paused}"
    if stops:
        return "; ".join(filter(None, (stops, situation.waiting)))
    queued = sorted(each.node for each in situation.in_flight if each.queued)
    lists = {"remediating": sorted(remediating.keys() - set(queued)), "waiting for a permit:": queued}
    doing = [f"{what} {some_of(nodes, MOST_NAMED)}" for what, nodes in lists.items() if nodes]
    stopped = "" if report.allowed else f"no new remediation: {report.message}"
    return "; ".join(filter(None, (situation.waiting, *doing, stopped))) or "enabled, no ongoing remediation"


def _unhealthy_nodes(
    situation: Situation, remediating: Mapping[str, OpenEpisode], started_at: Mapping[str, str], now: datetime
) -> list[JsonObject]:
    handled, objects = {*remediating, *situation.objects}, situation.objects
    names = sorted({*situation.unhealthy, *handled}, key=lambda node: (node not in handled, node))[:MAXIMUM_UNHEALTHY_NODES]
    found: list[JsonObject] = []
    for name in sorted(names):
        entry: JsonObject = {"name": name}
        listed = [_object(each, now) for each in objects.get(name, ())]
        if name in remediating:
            listed.append(_remediation(remediating[name], started_at[name]))
        if listed:
            entry["remediations"] = listed
        if (well := max((each.well_since for each in objects.get(name, ()) if each.well_since), default=None)) is not None:
            entry |= {"conditionsHealthyTimestamp": seconds(well), "healthyDelayed": True}
        found.append(entry)
    return found


def _remediation(episode: OpenEpisode, started_at: str) -> JsonObject:
    """An episode is a workflow, and no object: named is what shows it, a fencing's NodeFence, else the Node with our mark."""
    node, fences = episode.node, episode.kind == Kind.FENCING
    about = NODE_FENCES.ref(node_fence_name(node)) if fences else NODES.ref(node)
    return {"resource": {"apiVersion": about.api_version, "kind": about.kind, "name": about.name}, "started": started_at}


def _object(made: RemediationObject, now: datetime) -> JsonObject:
    """One of another controller, as the operator lists them."""
    names = {"apiVersion": made.ref.api_version, "kind": made.ref.kind, "namespace": made.ref.namespace, "name": made.ref.name}
    entry: JsonObject = {"resource": names | ({"uid": made.uid} if made.uid else {}), "started": seconds(made.created or now)}
    if made.template:
        entry["templateName"] = made.template
    if made.timed_out is not None:
        entry["timedOut"] = seconds(made.timed_out)
    return entry


def _conditions(situation: Situation, now: datetime) -> list[JsonObject]:
    report, current = situation.report, situation.current
    if report.error:
        disabled = ConditionText(status="True", reason=unusable(report), message=report.error)
    else:
        disabled = ConditionText(status="False", reason="NodeHealthCheckEnabled", message="; ".join(("in use", *report.warnings)))
    texts: dict[str, ConditionText | None] = {DISABLED: disabled, REMEDIATION_ALLOWED: allowed(report), **notices(situation)}
    if not report.error:
        texts |= _storm(report, current)  # a check that can't be used knows of no storm; what stands there is its memory
    generation = {"observedGeneration": report.generation}
    observed = {kind: replace(each, extra=generation) if each is not None else None for kind, each in texts.items()}
    listed = conditions(current.get("conditions"), observed, now)
    since = {ACTIVE: report.storm_active, COOLING_DOWN: report.storm_cooling}
    for condition in listed:
        moment = since.get(condition["type"])
        if moment is not None and condition["status"] == "True":
            condition["lastTransitionTime"] = seconds(moment)
    return listed


def _storm(report: CheckReport, current: Mapping[str, Any]) -> dict[str, ConditionText | None]:
    """Conditions that do not hold are left out where they never did: most checks have no storms."""
    found: dict[str, ConditionText | None] = {}
    for kind, since in ((ACTIVE, report.storm_active), (COOLING_DOWN, report.storm_cooling)):
        if since is not None:
            found[kind] = ConditionText(status="True", reason=STORM_REASON, message=report.message)
        elif condition_of(current, kind):
            found[kind] = ConditionText(status="False", reason=STORM_REASON, message="")
    return found


def _node_check_events(report: CheckReport, current: Mapping[str, Any]) -> list[Happening]:
    was_disabled = condition_of(current, DISABLED).get("status") == "True"
    was_closed = condition_of(current, REMEDIATION_ALLOWED).get("status") == "False"
    if report.error:
        return [] if was_disabled else [happening(report, "Disabled", report.error, warning=True)]
    found = [happening(report, "Enabled", "the check is in use")] if was_disabled else []
    if not report.allowed and (was_disabled or not was_closed):
        found.append(happening(report, "RemediationSkipped", f"no new remediation: {report.message}", warning=True))
    if report.allowed and was_closed and not was_disabled:
        found.append(
            happening(
                report, "RemediationAllowed", f"new remediations are allowed again: {only_some(report.modes)}{report.message}"
            )
        )
    return found


def _remediations(
    report: CheckReport, remediating: Mapping[str, OpenEpisode], started: Sequence[str], ended: Sequence[str]
) -> list[Happening]:
    began = [
        happening(
            report,
            "RemediationCreated",
            f"{remediating[node].kind.lower()} of Node/{node} has begun, incident {remediating[node].incident}",
        )
        for node in started
    ]
    return [*began, *(happening(report, "RemediationRemoved", f"the episode of Node/{node} has ended") for node in ended)]


def _stamp(since: str, recorded: str | None, now: datetime) -> str:
    """A moment as the schema wants it (date-time, whole seconds). Where none was given: what stands there already, else now."""
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        return recorded or seconds(now)
    return seconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


# The status of MachineHealthChecks: OpenShift's, and Cluster API's in either version.
#
# Both count expected and healthy Machines and have one condition, RemediationAllowed. OpenShift leaves a paused check's status
# alone, and so do we; Cluster API says that it is paused and leaves the rest.

PAUSED = "Paused"
RESTRICTED = "RemediationRestricted"
MOST_TARGETS = 10000
"""As many names as Cluster API's schema takes."""

V1BETA1 = "v1beta1"

NOT_PAUSED = ConditionText(status="False", reason="NotPaused", message="")

ConditionTexts = Mapping[str, ConditionText | None]
"""Conditions by their type; None for one that is to go."""


def openshift_status(situation: Situation, now: datetime) -> StatusChange | None:
    """Counts and conditions with a severity, as machine-api writes them."""
    report, current = situation.report, situation.current
    if situation.paused:
        return None
    texts = _with_severity({REMEDIATION_ALLOWED: _allowed(report), **notices(situation)})
    counts = {} if report.error else _counts(report)
    wanted = counts | {"conditions": conditions(current.get("conditions"), texts, now, older=True)}
    return _change(situation, wanted, current.get("conditions") or (), zeros=True)


def cluster_api_status(situation: Situation, now: datetime) -> StatusChange | None:
    """Counts, the targets' names, and the conditions in both generations of them, each where its version has it."""
    report, current = situation.report, situation.current
    pause = ConditionText(status="True", reason=PAUSED, message=report.message) if situation.paused else NOT_PAUSED
    texts: dict[str, ConditionText | None] = {PAUSED: pause}
    if not situation.paused:
        texts |= {REMEDIATION_ALLOWED: _allowed(report), **notices(situation)}
    old = _with_severity({kind: each for kind, each in texts.items() if kind != PAUSED})
    generation = {"observedGeneration": report.generation} if report.generation else {}
    observed = {kind: replace(each, extra=generation) if each is not None else None for kind, each in texts.items()}
    older = report.ref.api_version.endswith(f"/{V1BETA1}")
    both = _both_generations(current, observed, old, now, older=older)
    listed = (current.get("v1beta2") or {} if older else current).get("conditions") or ()
    counts = {} if situation.paused or report.error else _counts(report) | {"targets": sorted(situation.targets)[:MOST_TARGETS]}
    before = condition_in(listed, REMEDIATION_ALLOWED) or condition_in(current.get("conditions") or (), REMEDIATION_ALLOWED)
    return _change(situation, counts | both | generation, [before], zeros=not situation.paused)


def machine_conditions(
    current: Mapping[str, Any], wanted: Mapping[str, tuple[ConditionText, ConditionText] | None], now: datetime, *, older: bool
) -> JsonObject:
    """The status of a Cluster API Machine with these conditions in both generations, the newer spelling and the older one; None
    for one that is to go. older: of an object in v1beta1, which keeps them in other places."""
    new = {kind: each[0] if each is not None else None for kind, each in wanted.items()}
    old = _with_severity({kind: each[1] if each is not None else None for kind, each in wanted.items()})
    return _both_generations(current, new, old, now, older=older)


def _both_generations(
    current: Mapping[str, Any], new: ConditionTexts, old: ConditionTexts, now: datetime, *, older: bool
) -> JsonObject:
    if older:
        newer = current.get("v1beta2") or {}
        return {
            "conditions": conditions(current.get("conditions"), old, now, older=True),
            "v1beta2": {"conditions": conditions(newer.get("conditions"), new, now)},
        }
    deprecated = (current.get("deprecated") or {}).get(V1BETA1) or {}
    return {
        "conditions": conditions(current.get("conditions"), new, now),
        "deprecated": {V1BETA1: {"conditions": conditions(deprecated.get("conditions"), old, now, older=True)}},
    }


def _allowed(report: CheckReport) -> ConditionText:
    """As the shipped controllers write it: a closed circuit breaker needs no message."""
    said = allowed(report)
    return replace(said, message="") if said.status == "True" else said


def _counts(report: CheckReport) -> JsonObject:
    return {
        "expectedMachines": report.total,
        "currentHealthy": report.healthy,
        "remediationsAllowed": max(report.remaining, 0) if report.allowed else 0,
    }


def _change(situation: Situation, wanted: JsonObject, listed: Any, *, zeros: bool) -> StatusChange | None:
    patch = differing(wanted, situation.current)
    if zeros:
        # A count that was never written is not the same as 0.
        patch |= {name: value for name, value in wanted.items() if isinstance(value, int) and situation.current.get(name) is None}
    if not patch:
        return None
    return StatusChange(
        patch={"status": patch}, happenings=_machine_check_events(situation, condition_in(listed, REMEDIATION_ALLOWED))
    )


def _machine_check_events(situation: Situation, before: Mapping[str, Any]) -> tuple[Happening, ...]:
    report = situation.report
    if situation.paused:
        return ()
    was_closed = before.get("status") == "False"
    if report.error:
        why = unusable(report)
        published = before.get("reason") == why and before.get("message") == report.error
        reason = "InvalidMachineHealthCheck" if why == INVALID else RESTRICTED
        return () if published else (happening(report, reason, report.error, warning=True),)
    if not report.allowed and (not was_closed or before.get("reason") != report.reason):
        # `target_happenings` of the status writer publishes too many unhealthy, once a target is to be remediated.
        known = report.reason == OpenReason.TOO_MANY_UNHEALTHY
        return () if known else (happening(report, RESTRICTED, report.message, warning=True),)
    if report.allowed and was_closed:
        return (
            happening(report, "RemediationAllowed", f"remediations are allowed again: {only_some(report.modes)}{report.message}"),
        )
    return ()


def _with_severity(texts: ConditionTexts) -> dict[str, ConditionText | None]:
    """Conditions of the older generation: a severity where they are False."""
    return {
        kind: replace(each, extra={"severity": "Warning"}) if each is not None and each.status == "False" else each
        for kind, each in texts.items()
    }


# What shows another controller at work on the health checks: its leader Lease, and who has written their status.
#
# Only gathered here; what it means is `policy/checks/circuit_breakers.py`, that the checks are then held is the ledger's.

NO_CONTROLLERS = ("nodewarden", "kubectl")
"""How API servers name the managers of fields that we or people write: the user agent up to its slash."""


class Conflicts:
    """Keeps one ledger's holds for other controllers. takeover: the user knows, and wants us to act.

    A controller that was seen once counts until then, also in another process: the condition on the health check says so.
    """

    def __init__(self, ledger: Ledger, *, takeover: bool) -> None:
        self._ledger = ledger
        self._takeover = takeover
        self._leases: dict[Dialect, dict[str, LeaderLease]] = {dialect: {} for dialect in Dialect}
        self._writes: dict[Dialect, dict[str, StatusWrite]] = {dialect: {} for dialect in Dialect}
        self._standing: dict[Dialect, set[str]] = {dialect: set() for dialect in Dialect}
        self._seen: dict[Dialect, str] = {}

    def lease_changed(self, dialect: Dialect, key: str, lease: JsonObject | None, now: datetime) -> None:
        """A leader Lease as it is since this moment, None for one that is gone."""
        if lease is None:
            self._leases[dialect].pop(key, None)
            return
        self._leases[dialect][key] = leader_lease(key, lease).seen(self._leases[dialect].get(key), now)

    def check_changed(self, dialect: Dialect, ref: ObjectRef, check: JsonObject | None) -> None:
        """A health check as it is now, None for one that is gone."""
        write = newest_foreign_write(ref, check) if check is not None else None
        if write is None:
            self._writes[dialect].pop(ref.key, None)
        else:
            self._writes[dialect][ref.key] = write
        if check is not None and condition_of(status_of(check), CONFLICTING).get("status") == "True":
            self._standing[dialect].add(ref.key)
        else:
            self._standing[dialect].discard(ref.key)

    def hold_back(self, now: datetime) -> None:
        """Hold back the checks that another controller acts on."""
        for dialect in Dialect:
            if dialect not in self._seen and (
                why := conflict(self._leases[dialect].values(), self._writes[dialect].values(), self._standing[dialect], now)
            ):
                self._seen[dialect] = why
            self._ledger.hold_back(dialect, OpenReason.OBSERVE_ONLY, "" if self._takeover else self._seen.get(dialect, ""))


def leader_lease(key: str, lease: JsonObject) -> LeaderLease:
    """A leader Lease as it says of itself."""
    found = read_lease(lease)
    return LeaderLease(name=key, holder=found.holder, renewed=found.renewed, duration=found.duration or timedelta(0))


def newest_foreign_write(ref: ObjectRef, check: Mapping[str, Any]) -> StatusWrite | None:
    """The newest write of the object's status by another controller, None where there is none."""
    newest: StatusWrite | None = None
    for entry in mappings(check["metadata"].get("managedFields")):
        manager, at = str(entry.get("manager") or ""), moment_of(entry.get("time"))
        if entry.get("subresource") != "status" or at is None or manager.startswith(NO_CONTROLLERS):
            continue
        if newest is None or at > newest.at:
            newest = StatusWrite(check=ref.key, manager=manager or "unknown", at=at)
    return newest
