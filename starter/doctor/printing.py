"""What the doctor has found, as people and programs read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from starter.doctor.examination import Examined
from starter.doctor.findings import Finding, Level

STYLE = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def as_table(found: Sequence[Examined]) -> RenderableType:
    """A line for each finding, and below it what to do about it."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for examined in found:
        for first, finding in enumerate(examined.findings):
            name = examined.check if first == 0 else ""
            table.add_row(name, Text(finding.level.value, style=STYLE[finding.level]), _said(finding))
    return table


def _said(finding: Finding) -> Text:
    text = Text(finding.what)
    return text.append(f"\n> {finding.do}", style="dim") if finding.do else text


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One line: which check, how bad it is, what it is, and what to do about it ("" for nothing)."""

    check: str
    level: Level
    what: str
    do: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorAnswer:
    """What was found of an installation."""

    cluster: str
    findings: tuple[DoctorFinding, ...]


def as_model(cluster: str, found: Sequence[Examined]) -> DoctorAnswer:
    """For programs."""
    return DoctorAnswer(
        cluster=cluster,
        findings=tuple(
            DoctorFinding(check=examined.check, level=each.level, what=each.what, do=each.do)
            for examined in found
            for each in examined.findings
        ),
    )
