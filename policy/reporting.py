"""What a report shows of a ledger: which checks may act, who is to be acted on first, and what people see.

Drawn up from the nodes that something ails, never from all of them, and cut to the sizes of `policy/report.py`. Keeping the
verdicts is `policy/ledger.py`; who of the candidates is really admitted is `policy/admission.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import islice

from policy.brakes import Brake, Counts, brake
from policy.errors import PolicyError
from policy.healthcheck import HealthCheck, ObjectRef
from policy.marks import mark_of
from policy.nodes import MARK_ANNOTATION, READY, NodeView
from policy.report import (
    MAXIMUM_CANDIDATES,
    MAXIMUM_OBSERVATIONS,
    MAXIMUM_ROWS,
    Candidate,
    CheckReport,
    ControlPlane,
    Observation,
    ReportParts,
    TargetRow,
)
from policy.templates import is_fencing_template
from policy.verdicts import EXCLUDED, Health, Verdict

NOT_COVERED = "NotCovered"
"""The reason in the row of a node that no health check selects."""

_SICKNESS = {Health.UNHEALTHY: 0, Health.SOON: 1, Health.SKIPPED: 2, Health.HEALTHY: 3}
_NEVER = datetime.max.replace(tzinfo=UTC)


class Judged:
    """One node and what each check that selects it thinks of it, by the check's key."""

    __slots__ = ("marked", "verdicts", "view")

    def __init__(self, view: NodeView) -> None:
        self.view = view
        self.verdicts: dict[str, Verdict] = {}
        self.marked = MARK_ANNOTATION in view.annotations

    @property
    def sick(self) -> bool:
        """Whether some check does not call it healthy."""
        return any(verdict.health is not Health.HEALTHY for verdict in self.verdicts.values())

    def due(self, key: str) -> datetime | None:
        """When that check's verdict expires."""
        verdict = self.verdicts.get(key)
        return verdict.due if verdict is not None else None

    def worst(self) -> tuple[str, Verdict] | None:
        """The gravest verdict and its check: the oldest of the sickest, None where no check selects the node."""
        if not self.verdicts:
            return None
        return min(self.verdicts.items(), key=lambda item: (_SICKNESS[item[1].health], item[1].since or _NEVER, item[0]))

    def shown(self) -> tuple[object, ...]:
        """Whatever of the node a report may show or a decision may depend on. Nothing else is a change."""
        view = self.view
        ready = view.condition(READY)
        return (
            dict(self.verdicts),
            (ready.status, ready.since) if ready else None,
            (view.uid, view.boot_id, view.provider_id, view.system_uuid),
            (view.zone, view.control_plane, view.unschedulable),
            view.annotations.get(MARK_ANNOTATION),
        )


def draw_up(
    *,
    checks: Mapping[str, HealthCheck],
    bad: Mapping[str, tuple[ObjectRef, str]],
    counts: Mapping[str, Counts],
    nodes: Mapping[str, Judged],
    sick: Mapping[str, Judged],
    marked: Mapping[str, Judged],
    watching: frozenset[str],
    names: Iterator[str],
    control_plane: ControlPlane,
    next_due: datetime | None,
) -> ReportParts:
    """The report's parts. `sick` and `marked` are indexes into `nodes`, `names` all names in order."""
    brakes = {key: brake(check, counts[key]) for key, check in checks.items()}
    ranked, waiting = _rank(sick, checks, brakes, watching)
    chosen = nsmallest(MAXIMUM_CANDIDATES, ranked)
    candidates = tuple(_candidate(sick[name], checks[key], refused) for _, _, name, key, refused in chosen)
    reports = [_check_report(checks[key], counts[key], brakes[key], waiting[key]) for key in checks]
    reports += [CheckReport(ref=ref, reason="InvalidObject", message=error, error=error) for ref, error in bad.values()]
    return ReportParts(
        inventory=len(nodes),
        checks=tuple(sorted(reports, key=lambda report: report.ref.key)),
        candidates=candidates,
        candidates_left_out=len(ranked) - len(candidates),
        observations=_observations(nodes, marked, watching),
        control_plane=control_plane,
        rows=_rows(nodes, sick, marked, watching, names),
        next_due=next_due,
    )


# Candidates ---------------------------------------------------------------------------------------------------------

_Ranked = tuple[int, datetime, str, str, str]
"""Rank, since, node, check and why it can't be acted on: sorts as candidates go into the report."""


def _rank(
    sick: Mapping[str, Judged], checks: Mapping[str, HealthCheck], brakes: Mapping[str, Brake], watching: frozenset[str]
) -> tuple[list[_Ranked], defaultdict[str, Counter[str]]]:
    """The candidates in brief, and for each check by which others' brakes its nodes are held back.

    Every check that selects a node has a say: one closed brake is enough. Those that can be acted on go first, then those whose
    episode is open already, then those that can't be acted on, so that neither of the latter crowds out the first.
    """
    ranked: list[_Ranked] = []
    waiting: defaultdict[str, Counter[str]] = defaultdict(Counter)
    if not any(brake.allowed for brake in brakes.values()):
        return ranked, waiting
    for name, judged in sick.items():
        offended = [key for key, verdict in judged.verdicts.items() if _calls_for_action(verdict) and brakes[key].allowed]
        if not offended:
            continue
        closed = sorted(key for key in judged.verdicts if not brakes[key].allowed)
        if closed:
            for key in offended:
                waiting[key][closed[0]] += 1
            continue
        since, key, refused = _under_which(judged, offended, checks)
        rank = 2 if refused else 1 if name in watching else 0
        ranked.append((rank, since, name, key, refused))
    return ranked, waiting


def _calls_for_action(verdict: Verdict) -> bool:
    """Unhealthy, or it would be if nobody had excluded the node: those are listed too, so that people learn why."""
    return verdict.health is Health.UNHEALTHY or verdict.reason == EXCLUDED


def _under_which(judged: Judged, offended: list[str], checks: Mapping[str, HealthCheck]) -> tuple[datetime, str, str]:
    """Since when, under which check, and why not: of several checks one that can be carried out, then the oldest offence."""
    choices = []
    for key in offended:
        verdict = judged.verdicts[key]
        refused = verdict.message if verdict.reason == EXCLUDED else _not_carried_out(checks[key])
        choices.append((bool(refused), verdict.since or _NEVER, key, refused))
    _, since, key, refused = min(choices)
    return since, key, refused


def _not_carried_out(check: HealthCheck) -> str:
    if not check.rungs:
        return f"{check.ref.key} names no remediation template"
    template = check.rungs[0].template
    if not is_fencing_template(template):
        return f"{template.kind} of {template.api_version} is carried out by a later version; this one needs a FencingTemplate"
    return ""


def _candidate(judged: Judged, check: HealthCheck, refused: str) -> Candidate:
    view, verdict = judged.view, judged.verdicts[check.ref.key]
    healthy_under = () if judged.marked else (key for key, other in judged.verdicts.items() if other.health is Health.HEALTHY)
    return Candidate(
        node=view.name,
        uid=view.uid,
        check=check.ref,
        since=verdict.since or _NEVER,
        reason=verdict.reason,
        message=verdict.message,
        template=check.rungs[0].template if check.rungs else None,
        provider_id=view.provider_id,
        zone=view.zone,
        control_plane=view.control_plane,
        refused=refused,
        ready=view.ready,
        healthy_under=tuple(sorted(healthy_under)),
    )


def _check_report(check: HealthCheck, counts: Counts, brake: Brake, waiting: Counter[str]) -> CheckReport:
    held_back = [
        f"{number} unhealthy {'node waits' if number == 1 else 'nodes wait'} because {other} selects them too and may not act now"
        for other, number in sorted(waiting.items())
    ]
    return CheckReport(
        ref=check.ref,
        uid=check.uid,
        generation=check.generation,
        total=counts.total,
        healthy=counts.healthy,
        soon=counts.soon,
        unhealthy=counts.unhealthy,
        skipped=counts.skipped,
        recovering=counts.recovering,
        remaining=brake.remaining,
        allowed=brake.allowed,
        paused=check.paused,
        reason=brake.reason.value,
        message="; ".join((brake.message, *held_back)),
        warnings=check.warnings,
    )


# What episodes see --------------------------------------------------------------------------------------------------


def _observations(nodes: Mapping[str, Judged], marked: Mapping[str, Judged], watching: frozenset[str]) -> tuple[Observation, ...]:
    """Watched nodes first: an open episode must hear of its node whatever the number of stray marks."""
    strays = nsmallest(max(MAXIMUM_OBSERVATIONS - len(watching), 0), (name for name in marked if name not in watching))
    return tuple(_observation(name, nodes.get(name)) for name in [*sorted(watching)[:MAXIMUM_OBSERVATIONS], *strays])


def _observation(name: str, judged: Judged | None) -> Observation:
    if judged is None:
        return Observation(node=name, present=False)
    view, incident, problem = judged.view, "", ""
    try:
        mark = mark_of(view)
        incident = mark.incident if mark else ""
    except PolicyError as error:
        problem = str(error)
    unhealthy = any(_calls_for_action(verdict) for verdict in judged.verdicts.values())
    return Observation(
        node=name,
        uid=view.uid,
        ready=view.ready,
        ready_since=view.ready_since,
        boot_id=view.boot_id,
        provider_id=view.provider_id,
        system_uuid=view.system_uuid,
        unhealthy=unhealthy,
        incident=incident,
        mark_problem=problem,
        soon=not unhealthy and any(verdict.health is Health.SOON for verdict in judged.verdicts.values()),
    )


# What people see ----------------------------------------------------------------------------------------------------


def _rows(
    nodes: Mapping[str, Judged],
    sick: Mapping[str, Judged],
    marked: Mapping[str, Judged],
    watching: frozenset[str],
    names: Iterator[str],
) -> tuple[TargetRow, ...]:
    """The sickest first, then those in an episode, then as many others as there is room for."""
    shown = nsmallest(MAXIMUM_ROWS, (_sickness(name, judged) for name, judged in sick.items()))
    chosen = [name for *_, name in shown]
    in_hand = sorted(name for name in watching.union(marked) if name in nodes and name not in sick)
    chosen += in_hand[: MAXIMUM_ROWS - len(chosen)]
    seen = set(chosen)
    chosen += islice((name for name in names if name not in sick and name not in seen), MAXIMUM_ROWS - len(chosen))
    return tuple(_row(nodes[name]) for name in chosen)


def _sickness(name: str, judged: Judged) -> tuple[int, datetime, str]:
    worst = judged.worst()
    assert worst is not None, "a node that something ails is selected by a check"
    return _SICKNESS[worst[1].health], worst[1].since or _NEVER, name


def _row(judged: Judged) -> TargetRow:
    view, worst, ready = judged.view, judged.worst(), judged.view.condition(READY)
    key, verdict = worst or ("", Verdict(health=Health.SKIPPED, reason=NOT_COVERED))
    return TargetRow(
        node=view.name,
        zone=view.zone,
        ready=ready.status if ready else "",
        health=verdict.health,
        check=key,
        reason=verdict.reason,
        since=verdict.since,
        due=verdict.due,
        schedulable=not view.unschedulable,
    )
