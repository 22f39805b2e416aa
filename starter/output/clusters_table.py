"""All clusters at a glance, a line each: what is sick, what is being done, who waits for a person, and what stands in the way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from policy.checks.verdicts import Health
from policy.episode.messages import Phase
from starter import wording
from starter.handles.status import ClusterStatus
from starter.output.sentences import Sentences
from starter.output.table import columns


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
            str(len(each.episodes) + len(each.silent) + each.left_out),
            Text(str(waiting), style="bold red" if waiting else ""),
            *((_condition(each),) if within else ()),
        )
    return table


def _condition(status: ClusterStatus) -> Text:
    if status.scanner is None:
        return Text(status.problem or "no scanner", style="red")
    return Text(wording.view(status.scanner, status.at), style="red" if wording.halted(status.scanner) else "")
