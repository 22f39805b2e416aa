"""Machines that are repaired again and again (`nodewarden offenders`), and what helps (`nodewarden report`), as tables."""

from __future__ import annotations

from datetime import timedelta

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from policy.observation.outcomes import OutcomesReport
from policy.values.times import written
from starter import wording
from starter.output.console import Sentences
from starter.output.models import OffendersAnswer
from starter.output.status_table import columns


def offenders_table(found: OffendersAnswer) -> RenderableType:
    """One line for each machine, offenders marked; its names, the latest first, and its last reasons beside or below it."""
    if not found.machines:
        return Text(f"no machine of {found.cluster} was repaired since {written(found.since)}, as far as Temporal remembers")
    cells = [
        (
            Text(each.hardware),
            Text(f"{len(each.repairs)}{', offends' if each.offends else ''}", style="red" if each.offends else ""),
        )
        for each in found.machines
    ]
    last = [written(each.repairs[0].started) for each in found.machines]
    whys = [Text(f"{', '.join(each.nodes)}: {'; '.join(each.reasons) or 'no reason given'}") for each in found.machines]

    def table(within: bool) -> Table:
        drawn = columns("HARDWARE", "REPAIRS", "LAST", *(("NODES AND REASONS",) if within else ()), flexible="NODES AND REASONS")
        for (hardware, number), moment, why in zip(cells, last, whys, strict=True):
            drawn.add_row(hardware, number, moment, *((why,) if within else ()))
        return drawn

    lines = [Text("  ").join([*both, Text(moment)]) for both, moment in zip(cells, last, strict=True)]
    below = f"offends: {found.limit} repairs or more since {written(found.since)}"
    below += "; there are older ones: --since asks for less" if found.more else ""
    return Group(Sentences(table=table, below=list(zip(lines, whys, strict=True)), alone=True), Text(below, style="dim"))


def report_table(found: OutcomesReport) -> RenderableType:
    """One line for each step, under its reason."""
    if not found.steps:
        return Text(f"no step was tried in {found.cluster} since {written(found.since)}, as far as Temporal remembers")
    names = ("REASON", "STEP", "TRIES", "HELPED", "TO SAFE", "TO SERVICE", "WAITED FOR PEOPLE")
    table = columns(*names, flexible="REASON")
    for each in found.steps:
        helped = Text(f"{each.succeeded} ({100 * each.succeeded // each.tries} %)", style="" if each.succeeded else "red")
        waited = f"{wording.span(each.waited)} in {each.waiting}" if each.waiting else "-"
        safe, service = _both(each.to_safe, each.to_safe_most), _both(each.to_service, each.to_service_most)
        table.add_row(Text(each.reason), Text(each.step), str(each.tries), helped, safe, service, waited)
    below = (
        f"{found.episodes} ended episodes; times: half of the tries, and 90 of a hundred, took no longer; waiting is not in them"
    )
    return Group(table, Text(f"{below}; there are older ones: --since asks for less" if found.more else below, style="dim"))


def _both(half: timedelta | None, most: timedelta | None) -> str:
    """`3m07s, 5m00s`, or `-` where there is none."""
    return f"{wording.span(half)}, {wording.span(most)}" if half is not None and most is not None else "-"
