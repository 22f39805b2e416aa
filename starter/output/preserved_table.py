"""Open preservations as a table: the one that ends first is the first. Words come from `starter/wording.py`."""

from __future__ import annotations

from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from policy.episode.messages import Phase
from policy.values.display_text import counted
from policy.values.times import written
from starter import wording
from starter.handles.preservations import PreservedNode, PreservedNodes
from starter.output.console import Sentences
from starter.output.status_table import columns


def as_table(found: PreservedNodes) -> RenderableType:
    """One line for each, and how long all of them have been kept together."""
    if not found.preservations and not found.silent:
        return Text(f"no node of {found.cluster} is preserved", style="dim")
    below = [(each.node, _why(each)) for each in found.preservations]
    below += [(silent.node, Text(silent.problem, style="red")) for silent in found.silent]
    hours = sum(each.hours for each in found.preservations)
    count = len(found.preservations)
    parts: list[RenderableType] = [Sentences(table=partial(_table, found), below=below)]
    parts.append(Text(f"{counted(count, 'node')} preserved, {hours:.1f} machine hours held so far", style="dim"))
    if found.left_out:
        parts.append(Text(f"… and {found.left_out} more", style="dim"))
    return Group(*parts)


def _table(found: PreservedNodes, within: bool) -> Table:
    names = ("NODE", "PHASE", "UNTIL", "LEFT", "HELD")
    table = columns(*names, *(("WHY",) if within else ()), flexible="WHY" if within else "NODE")
    for each in found.preservations:
        table.add_row(
            each.node,
            Text(each.phase.value, style="yellow" if each.phase is Phase.FAILED_PRESERVED else "cyan"),
            written(each.until) if each.until else "-",
            wording.countdown(each.until, found.at) if each.until else "-",
            f"{each.hours:.1f} h",
            *((_why(each),) if within else ()),
        )
    for silent in found.silent:
        said = (Text(silent.problem, style="red"),) if within else ()
        table.add_row(silent.node, Text("no answer", style="red"), "", "", "", *said)
    return table


def _why(each: PreservedNode) -> Text:
    """Who has it kept and why, and what is wrong."""
    text = Text(wording.kept_by(each))
    return text.append(f"\n{each.problem}", style="red") if each.problem else text
