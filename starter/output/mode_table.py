"""How `nodewarden mode` shows what is set, and which nodes are in which mode."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from policy.episode.modes import ClusterModes, ModeRule
from policy.scan.mode_table import ModeLine
from policy.values.display_text import counted
from policy.values.mode import Mode
from starter.output.models import ModesAnswer
from starter.output.status_table import columns

SHOWN = 8
"""Nodes of one line; JSON has them all."""


def as_table(modes: ClusterModes, lines: Sequence[ModeLine], idle: Sequence[ModeRule], unread: str) -> RenderableType:
    """idle: the rules that cover no node. unread: why the nodes are not known, "" where they are."""
    parts: list[RenderableType] = [Text(f"nodes without a rule: {modes.default} ({modes.why})")]
    for rule in reversed(modes.rules):
        parts.append(Text(f"{rule.mode}: {rule}"))
        if rule in idle:
            parts.append(Text("  it covers no node now", style="yellow"))
    if unread:
        return Group(*parts, Text(unread, style="yellow"))
    table = columns("mode", "nodes", "health check", "why", flexible="why")
    for line in lines:
        more = len(line.nodes) - SHOWN
        names = ", ".join(line.nodes[:SHOWN]) + (f" and {more} more" if more > 0 else "")
        shown = Text(names) if len(names) <= 40 else Text(counted(len(line.nodes), "node"))
        style = "" if line.mode is Mode.REPAIR else "yellow"
        table.add_row(Text(line.mode.value, style=style), shown, line.check or "(none)", line.why)
    return Group(*parts, Text(), table)


def as_model(cluster: str, modes: ClusterModes, lines: Sequence[ModeLine], unread: str) -> ModesAnswer:
    """The same for programs."""
    return ModesAnswer(
        cluster=cluster, default=modes.default, why=modes.why, rules=modes.rules, nodes=tuple(lines), unread=unread or None
    )
