"""The questions of the night, answered from one status: is it safe, does it need a person, what is done, who waits for what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from policy.episode.advice import until_well_or_asked
from policy.episode.messages import EpisodeResult, EpisodeStatus, Phase
from policy.episode.permits import PermitState
from policy.scan.admission import AdmissionRefusal
from policy.scan.report import CheckReport, NodeAtRisk, TargetRow
from starter import wording
from starter.handles.status import ClusterStatus, SilentEpisode
from workflows.kit.messages import ScannerStatus

MOVES = {
    AdmissionRefusal.CAP: "an episode that ends gives its permit back",
    AdmissionRefusal.SCOPE_CAP: "an episode in the same group has to end",
    AdmissionRefusal.IN_FLIGHT: "a repair under the same check has to end",
    AdmissionRefusal.REPLACEMENT: "the replacement under way has to be done",
    AdmissionRefusal.NODE_HELD: "whoever holds the node has to give it back",
    AdmissionRefusal.STALE_VIEW: "the view of the cluster has to be live again",
    AdmissionRefusal.NO_CLUSTER_LEASE: "the cluster Lease has to be ours",
    AdmissionRefusal.SHORT_CIRCUIT: "enough targets of its check have to be healthy again",
    AdmissionRefusal.THRESHOLD: "enough nodes have to be responsive again",
    AdmissionRefusal.CONTROL_PLANE: "the control plane has to be able to spare it",
    AdmissionRefusal.BAD_POLICIES: "the fence policies have to be mended",
    AdmissionRefusal.SWITCHED_OFF: "fencing has to be switched on again",
    AdmissionRefusal.PAUSED: "the pause has to end: `nodewarden unpause`",
    AdmissionRefusal.STORAGE_DOWN: "the storage has to be back",
    AdmissionRefusal.SCOPE_STORM: "enough nodes of the same group have to be responsive again",
    AdmissionRefusal.QUIET_TIME: "the quiet time has to pass",
    AdmissionRefusal.RETRY_LATER: "time alone, or a person who has it remediated",
}
"""What ends each of the guards that keep a node waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingNode:
    """A node for which something would be done, and what holds it: the guard, as the scanner calls it, and why. until: when that
    is over by itself, where it is. moves: what else would move it, in a sentence."""

    node: str
    why: str
    until: datetime | None = None
    guard: str = ""
    moves: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One cluster at a moment. headline: the one sentence; stops: what keeps us from acting, each with its way out."""

    cluster: str
    at: datetime
    headline: str
    stops: tuple[str, ...] = ()
    nodes: int = 0
    permits_used: int = 0
    permits_of: int = 0
    persons: tuple[EpisodeStatus, ...] = ()
    under_way: tuple[EpisodeStatus, ...] = ()
    ended: tuple[EpisodeResult, ...] = ()
    silent: tuple[SilentEpisode, ...] = ()
    left_out: int = 0
    waiting: tuple[WaitingNode, ...] = ()
    at_risk: tuple[NodeAtRisk, ...] = ()
    checks: tuple[CheckReport, ...] = ()
    rows: tuple[TargetRow, ...] = ()


def overview_of(status: ClusterStatus) -> Overview:
    """Everything in its place; nothing is decided here."""
    scanner = status.scanner
    report = scanner.report if scanner is not None else None
    stops = tuple(_stops(status))
    persons = tuple(each for each in status.episodes if each.phase is Phase.NEEDS_HUMAN)
    permits = scanner.permits if scanner is not None else ()
    return Overview(
        cluster=status.cluster,
        at=status.at,
        headline=_headline(stops, len(persons), report is not None and bool(report.at_risk.nodes)),
        stops=stops,
        nodes=report.inventory if report is not None else 0,
        permits_used=sum(each.holding is not PermitState.PARKED for each in permits),
        permits_of=scanner.concurrency if scanner is not None else 0,
        persons=persons,
        under_way=tuple(each for each in status.episodes if each.phase is not Phase.NEEDS_HUMAN),
        ended=status.ended,
        silent=status.silent,
        left_out=status.left_out,
        waiting=tuple(_waiting(scanner, status)) if scanner is not None else (),
        at_risk=report.at_risk.nearest if report is not None else (),
        checks=report.checks if report is not None else (),
        rows=report.rows if report is not None else (),
    )


def _headline(stops: tuple[str, ...], persons: int, at_risk: bool) -> str:
    if stops:
        return f"No: {stops[0]}"
    if persons:
        return f"Yes, but {'one episode waits' if persons == 1 else f'{persons} episodes wait'} for a person"
    return "Yes, but there is data at risk" if at_risk else "Yes: nodes are watched, and may be acted on"


def _stops(status: ClusterStatus) -> Iterator[str]:
    scanner = status.scanner
    if status.problem:
        yield status.problem
    if scanner is None:
        return
    if said := wording.halted(scanner):
        yield said
    if scanner.problem:
        yield scanner.problem
    report = scanner.report
    if report is None:
        yield "the scanner has not seen the cluster yet"
        return
    if report.view.stale or not report.view.synced:
        yield f"the view is not live: {report.view.stale or 'still reading the cluster'}"
    if report.policies.problem:
        yield f"the fence policies can't be used: {report.policies.problem}"
    if report.lease.needed and not report.lease.held:
        yield f"the cluster Lease is not held: {report.lease.problem or report.lease.holder or 'nobody has it'}"
    for check in report.checks:
        if check.error or check.paused or not check.allowed:
            yield f"{check.ref.key}: {wording.brake(check)}"


def _waiting(scanner: ScannerStatus, status: ClusterStatus) -> Iterator[WaitingNode]:
    queued = {episode.node: episode.queued for episode in status.episodes}
    for request in scanner.queue:
        why = queued.get(request.node) or "others have all permits"
        yield WaitingNode(node=request.node, why=why, guard=AdmissionRefusal.CAP, moves=MOVES[AdmissionRefusal.CAP])
    for held in scanner.held_off:
        moves = "" if held.until is not None else until_well_or_asked(held.node)
        yield WaitingNode(node=held.node, why=held.reason, until=held.until, guard=AdmissionRefusal.HELD_OFF, moves=moves)
    told = {held.node for held in scanner.held_off}
    due = {each.node: each.not_before for each in scanner.report.candidates} if scanner.report is not None else {}
    for refused in scanner.refused:
        if refused.reason == AdmissionRefusal.HELD_OFF and refused.node in told:
            continue
        later = due.get(refused.node) if refused.reason == AdmissionRefusal.RETRY_LATER else None
        moves = MOVES.get(AdmissionRefusal(refused.reason), "") if refused.reason in set(AdmissionRefusal) else ""
        yield WaitingNode(node=refused.node, why=refused.message, until=later, guard=refused.reason, moves=moves)
