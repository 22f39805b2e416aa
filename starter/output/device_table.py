"""A check of fence devices as a table: what needs attention first. Words for spans come from `starter/wording.py`."""

from __future__ import annotations

from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from policy.fence.device_check import DeviceReport, DeviceRow, Reachability, fenceable
from policy.values.display_text import counted
from starter import wording
from starter.output.console import Sentences
from starter.output.status_table import columns

_STYLES = {True: "green", None: "yellow", False: "red"}


def as_table(report: DeviceReport) -> RenderableType:
    """One line for each device, and for each node that has none."""
    below = [(" ".join(filter(None, (row.node, row.endpoint))), _problem(row)) for row in report.rows]
    parts: list[RenderableType] = [Sentences(table=partial(_table, report), below=below)] if report.rows else []
    if report.left_out:
        parts.append(Text(f"… and {report.left_out} more lines, no worse than these", style="dim"))
    parts.append(_summary(report))
    return Group(*parts)


def _table(report: DeviceReport, within: bool) -> Table:
    names = ("NODE", "DEVICE", "STATE", "LATENCY", "LAST SUCCESS")
    table = columns(*names, *(("PROBLEM",) if within else ()), flexible="PROBLEM" if within else "DEVICE")
    for row in report.rows:
        told = (_problem(row),) if within else ()
        latency = f"{row.latency_ms} ms" if row.latency_ms is not None else "-"
        table.add_row(row.node, row.endpoint or "-", _state(row), latency, _last_success(row, report), *told)
    return table


def _state(row: DeviceRow) -> Text:
    if row.answer is Reachability.ANSWERS:
        return Text(row.state.value, style="yellow" if row.warning else "green")
    return Text("silent", style="red") if row.answer is Reachability.SILENT else Text("not read", style="yellow")


def _last_success(row: DeviceRow, report: DeviceReport) -> str:
    if not row.endpoint:
        return "-"
    if row.last_success is None:
        return "not known"
    return f"{wording.span(report.ended - row.last_success)} ago"


def _problem(row: DeviceRow) -> Text:
    return Text(row.problem, style="red") if row.problem else Text(row.warning, style="yellow")


def _summary(report: DeviceReport) -> Text:
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
