"""A check of fence devices as a table: what needs somebody's attention first. Words for spans come from `starter/wording.py`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from policy.fence.device_check import DeviceReport, DeviceRow, Reachability
from policy.values.counting import counted
from starter import wording
from starter.output.table import columns


def as_table(report: DeviceReport) -> RenderableType:
    """One line for each device, and for each node that has none."""
    table = columns("NODE", "DEVICE", "STATE", "LATENCY", "LAST SUCCESS", "PROBLEM", flexible="PROBLEM")
    for row in report.rows:
        table.add_row(row.node, row.endpoint or "-", _state(row), _latency(row), _last_success(row, report), _problem(row))
    parts: list[RenderableType] = [table] if report.rows else []
    if report.left_out:
        parts.append(Text(f"… and {report.left_out} more lines, no worse than these", style="dim"))
    parts.append(_summary(report))
    return Group(*parts)


def _state(row: DeviceRow) -> Text:
    if row.answer is Reachability.ANSWERS:
        return Text(row.state.value, style="yellow" if row.warning else "green")
    return Text("silent", style="red") if row.answer is Reachability.SILENT else Text("not read", style="yellow")


def _latency(row: DeviceRow) -> str:
    return f"{row.latency_ms} ms" if row.latency_ms is not None else "-"


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
    text = Text(f"{report.answering} of {devices} of {nodes} answered", style="red" if report.problems else "green")
    if report.problems:
        text.append(f", {counted(report.problems, 'problem')}")
    return text
