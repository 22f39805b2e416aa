"""Open preservations as a table: the one that ends first is the first. Words come from `starter/wording.py`."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from policy.episode.messages import Phase
from policy.values.counting import counted
from starter import wording
from starter.handles.preservations import PreservedNodes
from starter.output.table import columns


def as_table(found: PreservedNodes) -> RenderableType:
    """One line for each, and how long all of them have been kept together."""
    if not found.preservations and not found.silent:
        return Text(f"no node of {found.cluster} is preserved", style="dim")
    table = columns("NODE", "PHASE", "UNTIL", "LEFT", "HELD", "WHO", "WHY", flexible="WHY")
    for each in found.preservations:
        table.add_row(
            each.node,
            Text(each.phase.value, style="yellow" if each.phase is Phase.FAILED_PRESERVED else "cyan"),
            wording.moment(each.until) if each.until else "-",
            wording.countdown(each.until, found.at) if each.until else "-",
            f"{each.hours:.1f} h",
            each.requester or "-",
            Text(each.reason or "-"),
        )
    for silent in found.silent:
        table.add_row(silent.node, Text("no answer", style="red"), "", "", "", "", Text(silent.problem, style="red"))
    hours = sum(each.hours for each in found.preservations)
    count = len(found.preservations)
    parts: list[RenderableType] = [table]
    parts += [Text(f"{each.node}: {each.problem}", style="red") for each in found.preservations if each.problem]
    parts.append(Text(f"{counted(count, 'node')} preserved, {hours:.1f} machine hours held so far", style="dim"))
    if found.left_out:
        parts.append(Text(f"… and {found.left_out} more", style="dim"))
    return Group(*parts)
