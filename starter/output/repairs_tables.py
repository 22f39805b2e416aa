"""Machines that are repaired again and again (`nodewarden offenders`), and what helps (`nodewarden report`), as tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from policy.observation.outcomes import OutcomesReport, StepOutcomes
from policy.values.times import written
from starter import wording
from starter.output.console import Sentences
from starter.output.models import OffendersAnswer
from starter.output.status_table import columns


def offenders_table(found: OffendersAnswer) -> RenderableType:
    """One line for each machine, offenders marked; its names, the latest first, and its last reasons beside or below it."""
    if not found.machines:
        return Text(f"no machine of {found.cluster} was repaired since {written(found.since)}, as far as Temporal remembers")
    cells = []
    for each in found.machines:
        marks = ", offends" * each.offends + ", waits for a person" * each.waits
        cells.append((Text(each.hardware), Text(f"{len(each.repairs)}{marks}", style="red" if marks else "")))
    last = [written(each.repairs[0].started) for each in found.machines]
    whys = [Text(f"{', '.join(each.nodes)}: {'; '.join(each.reasons) or 'no reason given'}") for each in found.machines]

    def table(within: bool) -> Table:
        drawn = columns("HARDWARE", "REPAIRS", "LAST", *(("NODES AND REASONS",) if within else ()), flexible="NODES AND REASONS")
        for (hardware, number), moment, why in zip(cells, last, whys, strict=True):
            drawn.add_row(hardware, number, moment, *((why,) if within else ()))
        return drawn

    lines = [
        Text("  ").join([each, Text(f"repairs: {number}, the last at {moment}")])
        for (each, number), moment in zip(cells, last, strict=True)
    ]
    below = f"offends: {found.limit} repairs or more since {written(found.since)}"
    below += "; there are older ones: --since asks for less" if found.more else ""
    return Group(Sentences(table=table, below=list(zip(lines, whys, strict=True)), alone=True), Text(below, style="dim"))


def report_table(found: OutcomesReport) -> RenderableType:
    """One line for each step, under its reason; how long its tries took beside or below it."""
    if not found.steps:
        return Text(f"no step was tried in {found.cluster} since {written(found.since)}, as far as Temporal remembers")
    helped = [
        Text(f"{each.succeeded} ({100 * each.succeeded // each.tries} %)", style="" if each.succeeded else "red")
        for each in found.steps
    ]

    def table(within: bool) -> Table:
        names = ("REASON", "STEP", "TRIES", "HELPED", *(("HOW LONG IT TOOK",) if within else ()))
        drawn = columns(*names, flexible="HOW LONG IT TOOK" if within else "REASON")
        for each, well in zip(found.steps, helped, strict=True):
            drawn.add_row(Text(each.reason), Text(each.step), str(each.tries), well, *((_took(each),) if within else ()))
        return drawn

    below = [(f"{each.reason}, {each.step}", _took(each)) for each in found.steps]
    end = f"{found.episodes} ended episodes; safe: the machine was proven off; waiting for people is not in the times"
    end += "; there are older ones: --since asks for less" if found.more else ""
    return Group(Sentences(table=table, below=below), Text(end, style="dim"))


def _took(each: StepOutcomes) -> Text:
    """The times of half of the tries and of nine of ten, and how long people were waited for."""
    said = [
        f"{what} within {wording.span(half)} (half), {wording.span(most)} (nine of ten)"
        for what, half, most in (
            ("safe", each.to_safe, each.to_safe_most),
            ("in service", each.to_service, each.to_service_most),
        )
        if half is not None and most is not None
    ]
    if each.waiting:
        said.append(f"{each.waiting} waited for people, {wording.span(each.waited)} in all")
    return Text("; ".join(said) or "neither safe nor in service")
