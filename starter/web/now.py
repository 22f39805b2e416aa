"""The questions of the night, answered from one status: is it safe, does it need a person, what is done, who waits for what. The
page of one cluster shows them all (`templates/now.html`), that of all clusters a line of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from policy.checks.verdict import Health
from policy.episode import gate
from policy.episode.advice import MOST_NAMED, until_well_or_asked
from policy.episode.messages import REPAIRED, EpisodeResult, EpisodeStatus, Kind, Phase
from policy.episode.permits import PermitState
from policy.fence.config import FenceStep
from policy.scan import permit_rules
from policy.scan.obstacles import BLIND, BY_PEOPLE, ObstacleCode, opened_breakers, seen_at
from policy.scan.pauses import Pause
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import AtRisk, CheckReport, NodeAtRisk, ScanReport, TargetRow
from policy.values.display_text import counted, some_of
from policy.values.object_refs import in_natural_order
from starter import wording
from starter.handles.episodes import SilentEpisode
from starter.handles.status import ClusterStatus
from starter.output.status_table import sickest_first
from starter.web.pages import EVERY, render
from starter.web.views import views_of
from workflows.kit.messages import ScannerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingNode:
    """A node for which something would be done, and what holds it: the guard, as the scanner calls it, and why.

    turn: its place in the queue for permits, None where it is not in it. until: when that is over by itself, where it is. moves:
    what else would move it, in a sentence.
    """

    node: str
    why: str
    turn: int | None = None
    until: datetime | None = None
    guard: str = ""
    moves: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaker:
    """A health check with an open circuit breaker. nodes: unhealthy ones that it keeps waiting, as far as they are known by
    name, of so many. closes: what would close it."""

    check: str
    why: str
    nodes: tuple[str, ...]
    of: int
    closes: str = permit_rules.unblocks(AdmissionRefusal.CIRCUIT_BREAKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One cluster at a moment. headline: the one sentence; also: what else is not as it should be. safe: whether nothing keeps us
    from acting and no data is at risk. stops: what keeps us from acting, each with its way out. pauses: those in force.
    blocked: of the stops those that hold under every check; obstacle: the first of them in a few words. seen: when the cluster
    was as it is shown; blind: why it may be otherwise now, "" where it is seen. unknown: why episodes, permits and pauses are not
    known now, and shown as of `at` if they are, "" where they are known. at_risk: the nearest of
    at_risk_nodes; at_risk_problem: why what is attached can't be followed, so that there may be more."""

    cluster: str
    at: datetime
    headline: str
    also: tuple[str, ...] = ()
    safe: bool = True
    stops: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    obstacle: str = ""
    seen: datetime | None = None
    blind: str = ""
    unknown: str = ""
    pauses: tuple[Pause, ...] = ()
    nodes: int = 0
    permits_used: int = 0
    permits_of: int = 0
    persons: tuple[EpisodeStatus, ...] = ()
    breakers: tuple[OpenBreaker, ...] = ()
    under_way: tuple[EpisodeStatus, ...] = ()
    ended: tuple[EpisodeResult, ...] = ()
    silent: tuple[SilentEpisode, ...] = ()
    left_out: int = 0
    waiting: tuple[WaitingNode, ...] = ()
    at_risk: tuple[NodeAtRisk, ...] = ()
    at_risk_nodes: int = 0
    at_risk_problem: str = ""
    checks: tuple[CheckReport, ...] = ()
    rows: tuple[TargetRow, ...] = ()


def overview_of(status: ClusterStatus) -> Overview:
    """Everything in its place; nothing is decided here."""
    scanner = status.scanner
    report = scanner.report if scanner is not None else None
    found = wording.obstacles(scanner, status.at) if scanner is not None else ()
    halts = tuple(filter(None, (status.problem, *(each.text for each in found if each.code in BY_PEOPLE))))
    others = tuple(each.text for each in found if each.code not in BY_PEOPLE and each.text != status.problem)
    stops = (*others, *filter(None, map(stop_of, report.checks if report is not None else ())))
    at_risk = wording.still_at_risk(report.at_risk, status.episodes) if report is not None else AtRisk()
    alarms = (*halts, *_risks(at_risk), *stops)
    first = {row.node: place for place, row in enumerate(at_risk.nearest)}
    persons = [each for each in status.episodes if each.phase is Phase.NEEDS_HUMAN]
    persons.sort(key=lambda each: first.get(each.node, len(first)))
    queued = {each.node for each in scanner.queue} if scanner is not None else set()
    permits = scanner.permits if scanner is not None else ()
    notices = tuple(_notices(len(persons), sorted({row.node for row in status.devices}, key=in_natural_order)))
    return Overview(
        cluster=status.cluster,
        at=status.at,
        headline=_headline(alarms, notices, next((each.text for each in found if each.code is ObstacleCode.MODE), "")),
        also=(*alarms[1:], *notices) if alarms else notices[1:],
        safe=not alarms,
        stops=(*halts, *stops),
        blocked=(*halts, *(each.text for each in found if each.code not in {*BY_PEOPLE, ObstacleCode.MODE})),
        obstacle=wording.blocked(scanner, status.at),
        seen=seen_at(report) if report is not None else None,
        blind=next((each.text for each in found if each.code in BLIND), status.problem),
        unknown=status.problem if status.unanswered else "",
        pauses=scanner.pauses if scanner is not None else (),
        nodes=report.inventory if report is not None else 0,
        permits_used=sum(each.state is not PermitState.PARKED for each in permits),
        permits_of=scanner.cap if scanner is not None and scanner.known else 0,
        persons=tuple(persons),
        breakers=tuple(_breakers(report)) if report is not None else (),
        under_way=tuple(
            each
            for each in status.episodes
            if each.phase is not Phase.NEEDS_HUMAN and not (each.phase is Phase.QUEUED and each.node in queued)
        ),
        ended=status.ended,
        silent=status.silent,
        left_out=status.left_out,
        waiting=tuple(_waiting(scanner, status)) if scanner is not None else (),
        at_risk=at_risk.nearest,
        at_risk_nodes=at_risk.nodes,
        at_risk_problem=at_risk.problem,
        checks=report.checks if report is not None else (),
        rows=tuple(sorted(report.rows, key=sickest_first)) if report is not None else (),
    )


def _breakers(report: ScanReport) -> Iterator[OpenBreaker]:
    for check in opened_breakers(report):
        kept = [row.node for row in report.rows if row.check == check.ref.key and row.health is Health.UNHEALTHY]
        yield OpenBreaker(check=check.ref.key, why=check.message, nodes=tuple(kept[:MOST_NAMED]), of=check.unhealthy)


def _headline(alarms: tuple[str, ...], notices: tuple[str, ...], mode: str) -> str:
    """mode: how far programs may go, where it is not all the way. That makes nothing unsafe."""
    if alarms:
        return f"{'It holds back' if alarms[0] == mode else 'No'}: {alarms[0]}"
    return f"Yes, but {notices[0]}" if notices else "Yes: nodes are watched, and may be acted on"


def _notices(persons: int, unfenceable: list[str]) -> Iterator[str]:
    """What does not keep us from acting, and wants a person all the same."""
    if persons:
        yield f"{counted(persons, 'episode')} {'waits' if persons == 1 else 'wait'} for a person"
    if unfenceable:
        named = some_of(unfenceable, MOST_NAMED)
        said = f"a fence device of {named} has a problem" if len(unfenceable) == 1 else f"fence devices of {named} have problems"
        yield f"{said}: fencing might wait for a person"


def _risks(found: AtRisk) -> Iterator[str]:
    """Without the time that is left: it would be another sentence each second."""
    if found.nodes == 1 and found.nearest:
        (row,) = found.nearest
        yield f"data of {row.node} is at risk: it is down with {counted(row.volumes, 'volume')} attached, and not proven off"
    elif found.nodes:
        yield f"data of {found.nodes} nodes is at risk: they are down with volumes attached, and not proven off"


def stop_of(check: CheckReport) -> str:
    """What keeps the scanner from acting under that check, "" where nothing does."""
    return f"{check.ref.key}: {wording.may_act(check)}" if check.error or check.paused or not check.closed else ""


def _waiting(scanner: ScannerStatus, status: ClusterStatus) -> Iterator[WaitingNode]:
    queued = {episode.node: episode.queued for episode in status.episodes}
    guard = AdmissionRefusal.PAUSED if scanner.pauses else AdmissionRefusal.CAP
    for turn, request in enumerate(scanner.queue, start=1):
        why = queued.get(request.node) or "others have all permits"
        yield WaitingNode(node=request.node, why=why, turn=turn, guard=guard, moves=permit_rules.unblocks(guard))
    for held in scanner.held_off:
        moves = "" if held.until is not None else until_well_or_asked(held.node)
        yield WaitingNode(node=held.node, why=held.reason, until=held.until, guard=AdmissionRefusal.HELD_OFF, moves=moves)
    held_off = {held.node for held in scanner.held_off}
    candidates = {each.node: each for each in scanner.report.candidates} if scanner.report is not None else {}
    for refused in scanner.refused:
        if refused.reason == AdmissionRefusal.HELD_OFF and refused.node in held_off:
            continue
        candidate = candidates.get(refused.node)
        later = candidate.not_before if candidate is not None and refused.reason == AdmissionRefusal.RETRY_LATER else None
        moves = permit_rules.unblocks(AdmissionRefusal(refused.reason)) if refused.reason in set(AdmissionRefusal) else ""
        moves = moves or (gate.unblocks(candidate.vetoed_by, refused.node) if candidate is not None else "")
        yield WaitingNode(node=refused.node, why=refused.message, until=later, guard=refused.reason, moves=moves)


# How far an episode is, for the eye: which of the three steps, whether off is proven, what comes next, when it may be back.
#
# For display only. The steps are the node-fencing proposal's; that nothing is freed before off is proven is S2.

NAMES = {FenceStep.ISOLATION: "isolate", FenceStep.POWER_MANAGEMENT: "power", FenceStep.RECOVERY: "recover"}
ENOUGH = 3
"""Repairs that have to be known before anything is said of the next one."""


class StepState(StrEnum):
    """As the bar shows it: stuck is where a person is waited for."""

    DONE = "done"
    NOW = "now"
    STUCK = "stuck"
    TO_COME = "to-come"


class Proof(StrEnum):
    """Whether the machine is known to be off. ambiguous: the devices did not say, and a person is asked for it."""

    PROVEN = "off is proven"
    NOT_YET = "off is not proven yet"
    AMBIGUOUS = "ambiguous: whether it is off is not known"


COLOURS = {Proof.PROVEN: "green", Proof.NOT_YET: "yellow", Proof.AMBIGUOUS: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeProgress:
    """steps: none of a preservation. proof: None where nothing is to be proven, or not yet. next: "" where it is not known.
    usual: how long such repairs took, None where too few are known. back: when it should then be back, None once that has
    passed."""

    steps: tuple[tuple[str, StepState], ...] = ()
    proof: Proof | None = None
    next: str = ""
    usual: timedelta | None = None
    back: datetime | None = None

    @property
    def colour(self) -> str:
        """Of the badge that says what is proven."""
        return COLOURS[self.proof] if self.proof is not None else ""


def progress(episode: EpisodeStatus, ended: Sequence[EpisodeResult], now: datetime) -> EpisodeProgress:
    """ended: how the last episodes ended, by which the return is estimated."""
    if episode.kind is Kind.PRESERVATION:
        return EpisodeProgress()
    usual = _usual(ended) if episode.phase not in {Phase.NEEDS_HUMAN, Phase.QUEUED} and not episode.held else None
    back = episode.started + usual if usual is not None else None
    return EpisodeProgress(
        steps=tuple(_steps(episode)),
        proof=_proof(episode),
        next=_next(episode),
        usual=usual,
        back=back if back is not None and back > now else None,
    )


def _steps(episode: EpisodeStatus) -> list[tuple[str, StepState]]:
    order = list(FenceStep)
    at = order.index(FenceStep(episode.step)) if episode.step in set(FenceStep) else -1
    here = StepState.STUCK if episode.phase is Phase.NEEDS_HUMAN else StepState.NOW
    if episode.phase is Phase.QUEUED:
        here = StepState.TO_COME
    states = {-1: StepState.DONE, 0: here, 1: StepState.TO_COME}
    return [(NAMES[step], states[(index > at) - (index < at)]) for index, step in enumerate(order)]


def _proof(episode: EpisodeStatus) -> Proof | None:
    if episode.phase is Phase.QUEUED:
        return None  # nothing has been begun
    if episode.off_proof is not None:
        return Proof.PROVEN
    asked = episode.phase is Phase.NEEDS_HUMAN and episode.step == FenceStep.POWER_MANAGEMENT
    return Proof.AMBIGUOUS if asked else Proof.NOT_YET


def _next(episode: EpisodeStatus) -> str:
    """After what it does now. A remediation's ladder is only known to itself."""
    if episode.phase is Phase.NEEDS_HUMAN:
        return "whatever a person says"
    if episode.phase is Phase.QUEUED:
        return "it begins as soon as it has a permit"
    if episode.kind is not Kind.FENCING:
        return ""
    if episode.step == FenceStep.ISOLATION:
        return "power off"
    if episode.step == FenceStep.POWER_MANAGEMENT and episode.off_proof is None:
        return "read the power state until off is proven; then free the pods"
    return "let the node work again once it is Ready"


def _usual(ended: Sequence[EpisodeResult]) -> timedelta | None:
    """The median of the last repairs, waiting and all."""
    took = [(each.ended - each.started).total_seconds() for each in ended if each.outcome in REPAIRED]
    return timedelta(seconds=round(median(took))) if len(took) >= ENOUGH else None


router = APIRouter(include_in_schema=False)


@router.get("/")
async def clusters(request: Request) -> Response:
    """All clusters, or the only one."""
    admitted: tuple[str, ...] = request.state.clusters
    if len(admitted) == 1:
        return RedirectResponse(f"/c/{quote(admitted[0], safe='')}")
    found = [overview_of(await views_of(request).known(name).status()) for name in admitted]
    return render(request, "clusters.html", "Clusters", overviews=found)


@router.get("/c/{cluster}")
async def now(request: Request, cluster: str) -> Response:
    """Is it safe, who is waited for, what is under way, who waits."""
    status = await views_of(request).known(cluster).status()
    overview, scanner = overview_of(status), status.scanner
    return render(request, "now.html", "Now", cluster=cluster, overview=overview, scanner=scanner, progress=progress, every=EVERY)


def visible(overview: Overview) -> Overview:
    """Without what changes by itself: a page is not drawn anew for the time of day."""
    return replace(overview, at=datetime.min)  # noqa: DTZ901 - no moment at all
