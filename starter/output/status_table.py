"""The live table: nodes with verdicts and countdowns, checks with their circuit breakers, episodes with their step; then those
of a check of devices and of open preservations.

Pure rendering of a `ClusterStatus` at a moment, so that countdowns move without asking anybody. Where there is no terminal
`starter/output/display.py` says the same in lines. Words come from `starter/wording.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from policy.checks.verdict import SICKNESS, Health
from policy.episode.gate import MODE, unblocks
from policy.episode.messages import EpisodeStatus, Phase
from policy.fence.device_check import DeviceReport, DeviceRow, Reachability, fenceable
from policy.history.spells import ending, held_by
from policy.scan import obstacles
from policy.scan.obstacles import ObstacleCode, opened_breakers, seen_at
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import AtRisk, CheckReport, ScanReport, TargetRow
from policy.values.display_text import counted
from policy.values.object_refs import in_natural_order
from policy.values.times import written
from starter import wording
from starter.handles.status import ClusterStatus, PreservedNode, PreservedNodes, still_stopped_by
from starter.output.console import Sentences
from workflows.kit.messages import ScannerStatus

OLD = timedelta(seconds=5)
"""From this age on it is said how old the rows of nodes are."""
MOST_SPELLS = 10
ALIKE = 60
"""Characters at which two sentences begin that are the same one."""
_PHASE_STYLE = {
    Phase.NEEDS_HUMAN: "bold red",
    Phase.ERROR: "red",
    Phase.QUEUED: "yellow",
    Phase.FINAL: "green",
    Phase.FAILED_PRESERVED: "yellow",
}


def render(status: ClusterStatus, *, now: datetime, where: str = "") -> RenderableType:
    """The whole table. `where`: a line about the service, such as its UI's address."""
    parts: list[RenderableType] = [_head(status, now, where)]
    scanner = status.scanner
    seen = scanner or status.last
    report = seen.report if seen is not None else None
    # What is being done goes first: a terminal of 24 lines cuts the end off, and the healthy can wait.
    if status.episodes or status.silent:
        parts.append(_episodes(status, now))
        if status.left_out:
            parts.append(Text(f"… and {status.left_out} more open episodes", style="dim"))
    if scanner is not None and (scanner.queue or scanner.refused or scanner.held_off):
        parts.append(_waiting(status, now))
    at_work = {each.node for each in (*status.episodes, *status.silent)}
    if scanner is not None and (spells := [each for each in scanner.spells if each.ended or each.node not in at_work]):
        hidden = len(scanner.spells) - len(spells)
        parts.append(_would_have(replace(scanner, spells=tuple(spells), open_spells=scanner.open_spells - hidden), now))
    if scanner is None and report is not None:
        parts.append(Text(f"as the scanner saw it last, at {written(seen_at(report) or report.at)}:", style="yellow"))
    at_risk = _still_at_risk(status, report)
    if at_risk.nodes or at_risk.problem:
        parts.append(_at_risk(at_risk, now))
    if status.devices:
        parts.append(_devices(status.devices))
    if report is not None:
        if report.checks:
            parts.append(_checks(report.checks, blocked=wording.blocked(scanner, now)))
        else:
            parts.append(Text("no health check in this cluster: nothing will be done to it", style="dim"))
        parts.append(_nodes(report, now, live=scanner is not None))
    if status.ended:
        parts.append(_ended(status, now))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts))


def _head(status: ClusterStatus, now: datetime, where: str) -> RenderableType:
    """One line, and below it one for each thing that holds all nodes."""
    line, below = Text.assemble(("nodewarden", "bold"), "  cluster ", (status.cluster, "bold")), list[Text]()
    if status.scanner is None:
        line.append(f"  {status.problem or 'no scanner'}", style="red")
    else:
        scanner = status.scanner
        inventory = counted(scanner.report.inventory, "node") if scanner.report else ""
        line.append(f"  {', '.join(filter(None, (inventory, wording.sees(scanner, now), wording.permits_in_use(scanner))))}")
        for each in wording.obstacles(scanner, now):
            below.append(Text(each.text, style="yellow" if each.code in {ObstacleCode.MODE, ObstacleCode.UNSEEN} else "red"))
        if waiting := sum(episode.phase is Phase.NEEDS_HUMAN for episode in status.episodes):
            line.append(f", {counted(waiting, 'episode')} {'needs' if waiting == 1 else 'need'} a person", style="bold red")
        if breakers := len(list(opened_breakers(scanner.report))) if scanner.report is not None else 0:
            line.append(f", {counted(breakers, 'circuit breaker')} {'is' if breakers == 1 else 'are'} open", style="bold red")
        if lost := _still_at_risk(status, scanner.report).nodes:
            line.append(f", data of {counted(lost, 'node')} is at risk", style="bold red")
        if scanner.stopping:
            line.append("  stopping", style="yellow")
    line.append(f"  {written(now)}", style="dim")
    below += [Text(where, style="dim")] if where else []
    if status.scanner is not None and status.problem:
        below.append(Text(f"as of {written(status.at)}: {status.problem}", style="red"))
    return Group(line, *below)


def _still_at_risk(status: ClusterStatus, report: ScanReport | None) -> AtRisk:
    return wording.still_at_risk(report.at_risk, status.episodes) if report is not None else AtRisk()


def columns(*names: str, flexible: str) -> Table:
    """An empty table in the style of all of ours. flexible: the column that may be folded."""
    table = Table(box=None, header_style="bold dim", pad_edge=False, padding=(0, 3, 0, 0), show_edge=False)
    for column in names:
        if column == flexible:
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, no_wrap=True)
    return table


def _devices(rows: tuple[DeviceRow, ...]) -> RenderableType:
    table = columns("CAN'T BE FENCED", "WHY", flexible="WHY")
    for row in rows:
        table.add_row(row.node, Text(row.named, style="red"))
    return Group(table, Text("as read last; `nodewarden fence check` reads all devices now", style="dim"))


def _nodes(report: ScanReport, now: datetime, *, live: bool) -> RenderableType:
    rows, below = report.rows, list[Text]()
    table = columns("NODE", "ZONE", "READY", "VERDICT", "SCHEDULABLE", flexible="VERDICT")
    for row in sorted(rows, key=sickest_first):
        ready = Text(row.ready, style="green" if row.ready == "True" else "red")
        verdict = Text(wording.verdict(row, now), style=wording.HEALTH_STYLE[row.health])
        table.add_row(row.node, row.zone, ready, verdict, "yes" if row.schedulable else Text("cordoned", style="yellow"))
    if report.inventory > len(rows):
        below.append(Text(f"… and {report.inventory - len(rows)} more nodes, no sicker than these", style="dim"))
    if live and (seen := seen_at(report)) is not None and now - seen >= OLD:
        # That a healthy node is cordoned, or another one Ready again, is no reason for a scan to be answered at once.
        below.append(Text(f"as the scanner saw them {wording.span(now - seen)} ago", style="dim"))
    return Group(table, *below)


def sickest_first(row: TargetRow) -> tuple[int, list[tuple[bool, int, str]]]:
    """The order of the nodes, also on the page: the sickest first, and of one verdict node-2 before node-10."""
    return SICKNESS[row.health], in_natural_order(row.node)


def _checks(checks: Collection[CheckReport], *, blocked: str) -> RenderableType:
    table = columns("CHECK", "HEALTHY", "MAY IT ACT", flexible="MAY IT ACT")
    for check in checks:
        style = "default" if check.allowed and not check.error and not blocked else "red"
        table.add_row(
            check.ref.key,
            f"{check.healthy}/{check.total}{wording.besides(check)}",
            Text(wording.may_act(check, blocked), style=style),
        )
    return table


def _episodes(status: ClusterStatus, now: datetime) -> RenderableType:
    doing = [(episode.node, _doing(status, episode, now)) for episode in status.episodes]
    silent = [(each.node, Text(each.problem, style="red")) for each in status.silent]

    def table(within: bool) -> Table:
        names = ("EPISODE", "KIND", "PHASE", "STEP", "TRY", "OPEN FOR")
        table = columns(*names, *(("DOING",) if within else ()), flexible="DOING" if within else "EPISODE")
        for episode, (_, said) in zip(status.episodes, doing, strict=True):
            table.add_row(
                episode.node,
                episode.kind.value,
                Text(wording.phase(episode.phase), style=_PHASE_STYLE.get(episode.phase, "cyan")),
                episode.step or "-",
                str(episode.try_number or "-"),
                wording.span(now - episode.started),
                *((said,) if within else ()),
            )
        for node, said in silent:
            table.add_row(node, "", Text("no answer", style="red"), "", "", "", *((said,) if within else ()))
        return table

    return Sentences(table=table, below=(*doing, *silent))


def _doing(status: ClusterStatus, episode: EpisodeStatus, now: datetime) -> Text:
    text = Text(wording.doing(episode, now))
    if rung := wording.rung(episode, now):
        text.append(f"\n{rung}", style="dim")
    if said := wording.repeated(episode):
        text.append(f"\n{said}", style="yellow")
    known = wording.proof_or_problem(episode)
    if known and known not in episode.doing:
        text.append(f"\n{known}", style="red" if episode.problem else "green")
    if said := wording.commanded(episode):
        text.append(f"\n{said}", style="yellow")
    if first := wording.first_step(episode):
        text.append(f"\n{first}", style="yellow")
    if episode.advice:
        text.append(f"\n{episode.advice}", style="yellow")
    if stopped := still_stopped_by(status.scanner, episode, now):
        text.append(f"\n{wording.not_yet(stopped)}", style="yellow")
    return text


def _waiting(status: ClusterStatus, now: datetime) -> RenderableType:
    table = columns("WAITING", "WHY", flexible="WHY")
    assert status.scanner is not None
    why = {episode.node: episode.queued for episode in status.episodes}
    for request in status.scanner.queue:
        said = f"queued for a permit{': ' if why.get(request.node) else ''}{why.get(request.node, '')}"
        table.add_row(request.node, Text(said))
    for held in status.scanner.held_off:
        table.add_row(held.node, Text(wording.held_off(held, now)))
    held_off = {held.node for held in status.scanner.held_off}
    candidates = status.scanner.report.candidates if status.scanner.report is not None else ()
    due = {each.node: each for each in candidates}
    for refused in status.scanner.refused:
        if refused.reason == AdmissionRefusal.HELD_OFF and refused.node in held_off:
            continue
        candidate, said = due.get(refused.node), held_by(refused.reason, refused.message)
        if candidate is not None and refused.reason == AdmissionRefusal.HELD_OFF and candidate.vetoed_by:
            ends = unblocks(candidate.vetoed_by, refused.node)
            said = "; ".join(filter(None, (refused.message, ends)))
        moment = candidate.not_before if candidate is not None and refused.reason == AdmissionRefusal.RETRY_LATER else None
        left = f", due in {wording.countdown(moment, now)}" if moment is not None and moment > now else ""
        table.add_row(refused.node, Text(f"{said}{left}"))
    return table


def _would_have(scanner: ScannerStatus, now: datetime) -> RenderableType:
    """Due nodes that are not repaired. Where the table of those that wait has said what holds one, only the code is repeated; a
    spell keeps the beginning of that sentence. Of a node that the mode holds it has what would hold it in mode repair."""
    above = {each.node: each for each in scanner.refused}
    table = columns("WOULD HAVE", "SICK FOR", "WHAT HOLDS IT", flexible="WHAT HOLDS IT")
    for spell in scanner.spells[:MOST_SPELLS]:
        last = spell.held[-1] if spell.held and spell.held[-1].until is None else None
        held = held_by(last.code, last.message) if last is not None else "its episode is under way"
        if last is not None and (refused := above.get(spell.node)) is not None:
            if last.message[:ALIKE] == refused.message[:ALIKE]:
                held = f"{last.code}, as above"
            else:
                more_than_mode = refused.reason == AdmissionRefusal.MODE and last.code != MODE
                held = f"{refused.reason}, as above" + (f"; in mode repair also {held}" if more_than_mode else "")
        table.add_row(spell.node, wording.span((spell.ended or now) - spell.since), Text(ending(spell) or held))
    more = scanner.open_spells - sum(each.ended is None for each in scanner.spells[:MOST_SPELLS])
    return Group(table, Text(f"… and {counted(more, 'more node')}", style="dim")) if more > 0 else table


def _at_risk(found: AtRisk, now: datetime) -> RenderableType:
    table = columns("DATA AT RISK", "WHY", flexible="WHY")
    for row in found.nearest:
        style = "red" if row.due is not None and row.due <= now else "yellow"
        table.add_row(row.node, Text(wording.at_risk(row, now), style=style))
    if found.problem:
        table.add_row("not known", Text(f"what is attached can't be followed: {found.problem}", style="red"))
    if found.nodes <= len(found.nearest):
        return table
    return Group(table, Text(f"… and {found.nodes - len(found.nearest)} more nodes, no nearer than these", style="dim"))


def _ended(status: ClusterStatus, now: datetime) -> RenderableType:
    table = columns("ENDED", "AGE", "HOW", flexible="HOW")
    for result in status.ended:
        style = wording.end_style(result.outcome)
        table.add_row(result.node, wording.span(now - result.ended), Text(wording.ending(result), style=style))
    return table


# All clusters at a glance, a line each: what is sick, what is being done, who waits for a person, and what stands in the way.


def as_table(found: Sequence[ClusterStatus]) -> RenderableType:
    """`nodewarden status -c CLUSTER` has all of one."""
    return Sentences(table=partial(_table, found), below=[(each.cluster, _condition(each)) for each in found])


def _table(found: Sequence[ClusterStatus], within: bool) -> Table:
    names = ("CLUSTER", "NODES", "UNHEALTHY", "EPISODES", "WAIT FOR A PERSON")
    table = columns(*names, *(("STATE",) if within else ()), flexible="STATE" if within else "CLUSTER")
    for each in found:
        report = each.scanner.report if each.scanner is not None else None
        waiting = sum(episode.phase is Phase.NEEDS_HUMAN for episode in each.episodes)
        sick = sum(row.health is Health.UNHEALTHY for row in report.rows) if report is not None else 0
        table.add_row(
            each.cluster,
            str(report.inventory) if report is not None else "-",
            Text(str(sick) if report is not None else "-", style="red" if sick else ""),
            str(len(each.episodes) + len(each.silent) + each.left_out) if not each.is_unknown else "-",
            Text(str(waiting) if not each.is_unknown else "-", style="bold red" if waiting else ""),
            *((_condition(each),) if within else ()),
        )
    return table


def _condition(status: ClusterStatus) -> Text:
    scanner = status.scanner
    if scanner is None:
        return Text(status.problem or "no scanner", style="red")
    halted = obstacles.halted(scanner.report, scanner.pauses)
    return Text(wording.view(scanner, status.at), style="red" if halted else "")


# A check of fence devices: what needs attention first.

_STYLES = {True: "green", None: "yellow", False: "red"}


def devices_table(report: DeviceReport) -> RenderableType:
    """One line for each device, and for each node that has none."""
    below = [(" ".join(filter(None, (row.node, row.endpoint))), _device_problem(row)) for row in report.rows]
    parts: list[RenderableType] = [Sentences(table=partial(_device_table, report), below=below)] if report.rows else []
    if report.left_out:
        parts.append(Text(f"… and {report.left_out} more lines, no worse than these", style="dim"))
    parts.append(_device_summary(report))
    return Group(*parts)


def _device_table(report: DeviceReport, within: bool) -> Table:
    names = ("NODE", "DEVICE", "STATE", "LATENCY", "LAST SUCCESS")
    table = columns(*names, *(("PROBLEM",) if within else ()), flexible="PROBLEM" if within else "DEVICE")
    for row in report.rows:
        problem = (_device_problem(row),) if within else ()
        latency = f"{row.latency_ms} ms" if row.latency_ms is not None else "-"
        table.add_row(row.node, row.endpoint or "-", _device_state(row), latency, _last_success(row, report), *problem)
    return table


def _device_state(row: DeviceRow) -> Text:
    if row.answer is Reachability.ANSWERS:
        return Text(row.state.value, style="yellow" if row.warning else "green")
    return Text("silent", style="red") if row.answer is Reachability.SILENT else Text("not read", style="yellow")


def _last_success(row: DeviceRow, report: DeviceReport) -> str:
    if not row.endpoint:
        return "-"
    if row.last_success is None:
        return "not known"
    return f"{wording.span(report.ended - row.last_success)} ago"


def _device_problem(row: DeviceRow) -> Text:
    return Text(row.problem, style="red") if row.problem else Text(row.warning, style="yellow")


def _device_summary(report: DeviceReport) -> Text:
    if not report.nodes:
        return Text(f"no node in {report.cluster}", style="yellow")
    devices = counted(report.devices, "device")
    nodes = counted(report.nodes, "node")
    text = Text(f"{report.answering} of {devices} of {nodes} answered", style=_STYLES[fenceable(report)[0]])
    if report.problems:
        text.append(f", {counted(report.problems, 'problem')}")
    if held := len({row.node for row in report.rows if row.held}):
        text.append(f"; not read: those of {counted(held, 'node')} with an open episode", style="yellow")
    return text


# Open preservations: the one that ends first is the first.


def preservations_table(found: PreservedNodes) -> RenderableType:
    """One line for each, and how long all of them have been kept together."""
    if not found.preservations and not found.silent:
        return Text(f"no node of {found.cluster} is preserved", style="dim")
    below = [(each.node, _why_preserved(each)) for each in found.preservations]
    below += [(silent.node, Text(silent.problem, style="red")) for silent in found.silent]
    hours = sum(each.hours for each in found.preservations)
    count = len(found.preservations)
    parts: list[RenderableType] = [Sentences(table=partial(_preservation_table, found), below=below)]
    parts.append(Text(f"{counted(count, 'node')} preserved, {hours:.1f} machine hours held so far", style="dim"))
    if found.left_out:
        parts.append(Text(f"… and {found.left_out} more", style="dim"))
    return Group(*parts)


def _preservation_table(found: PreservedNodes, within: bool) -> Table:
    names = ("NODE", "PHASE", "UNTIL", "LEFT", "HELD")
    table = columns(*names, *(("WHY",) if within else ()), flexible="WHY" if within else "NODE")
    for each in found.preservations:
        table.add_row(
            each.node,
            Text(each.phase.value, style="yellow" if each.phase is Phase.FAILED_PRESERVED else "cyan"),
            written(each.until) if each.until else "-",
            wording.countdown(each.until, found.at) if each.until else "-",
            f"{each.hours:.1f} h",
            *((_why_preserved(each),) if within else ()),
        )
    for silent in found.silent:
        said = (Text(silent.problem, style="red"),) if within else ()
        table.add_row(silent.node, Text("no answer", style="red"), "", "", "", *said)
    return table


def _why_preserved(each: PreservedNode) -> Text:
    text = Text(wording.kept_by(each))
    return text.append(f"\n{each.problem}", style="red") if each.problem else text
