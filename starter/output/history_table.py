"""Episodes that have ended, as a table and for programs: newest first. Words come from `starter/wording.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from policy.values.moments import written
from starter import wording
from starter.handles.history import EndedEpisode, EndedEpisodes
from starter.output.models import HistoryAnswer, HistoryLine
from starter.output.sentences import Sentences
from starter.output.table import columns

_GOOD = frozenset(each.value for each in wording.GOOD_ENDS)


def as_table(found: EndedEpisodes) -> RenderableType:
    """One line for each, and below it how it ended and why it was begun, where a line has no room for that."""
    if not found.episodes:
        return Text(f"no episode of {found.cluster} has ended in that time, as far as Temporal remembers", style="dim")
    below = [(f"{each.node} {each.incident}", _why(each)) for each in found.episodes]
    table: RenderableType = Sentences(table=partial(_table, found.episodes), below=below)
    return Group(table, Text("… and older ones; --since and --node show fewer", style="dim")) if found.more else table


def _table(episodes: Sequence[EndedEpisode], within: bool) -> Table:
    names = ("NODE", "KIND", "OUTCOME", "STARTED", "TOOK", "INCIDENT")
    table = columns(*names, *(("WHY",) if within else ()), flexible="WHY" if within else "NODE")
    for each in episodes:
        table.add_row(
            each.node,
            each.kind.value,
            Text(each.outcome, style="green" if each.outcome in _GOOD else "red"),
            written(each.started),
            wording.span(each.ended - each.started),
            each.incident or "-",
            *((_why(each),) if within else ()),
        )
    return table


def _why(each: EndedEpisode) -> Text:
    return Text(f"{each.why or 'nobody said why'}; {each.message}")


def as_model(found: EndedEpisodes) -> HistoryAnswer:
    """For programs."""
    return HistoryAnswer(
        cluster=found.cluster,
        episodes=tuple(
            HistoryLine(
                node=each.node,
                kind=each.kind,
                outcome=each.outcome,
                message=each.message,
                why=each.why,
                incident=each.incident,
                started=each.started,
                ended=each.ended,
                seconds=round((each.ended - each.started).total_seconds(), 3),
                workflow_id=each.workflow_id,
                run_id=each.run_id,
            )
            for each in found.episodes
        ),
        more=found.more,
    )
