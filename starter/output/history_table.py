"""Episodes that have ended, as a table and for programs: newest first. Words come from `starter/wording.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from policy.values.moments import written
from starter import wording
from starter.handles.history import EndedEpisode, EndedEpisodes
from starter.output.table import ROOM_FOR_SENTENCES, WIDEST, columns

_GOOD = frozenset(each.value for each in wording.GOOD_ENDS)


def as_table(found: EndedEpisodes) -> RenderableType:
    """One line for each, and below it how it ended and why it was begun, where a line has no room for that."""
    return _History(found)


@dataclass(frozen=True, slots=True)
class _History:
    found: EndedEpisodes

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.found.episodes:
            yield Text(f"no episode of {self.found.cluster} has ended in that time, as far as Temporal remembers", style="dim")
            return
        bare = _table(self.found.episodes, within=False)
        room = options.max_width - console.measure(bare, options=options.update(width=WIDEST)).maximum
        if room >= ROOM_FOR_SENTENCES:
            yield _table(self.found.episodes, within=True)
        else:
            yield bare
            yield ""
            for each in self.found.episodes:
                yield Text.assemble((f"{each.node} {each.incident}: ", "bold"), _why(each))
        if self.found.more:
            yield Text("… and older ones; --since and --node show fewer", style="dim")


def _table(episodes: Sequence[EndedEpisode], *, within: bool) -> Table:
    names = ("NODE", "KIND", "OUTCOME", "ENDED", "TOOK", "INCIDENT")
    table = columns(*names, *(("WHY",) if within else ()), flexible="WHY" if within else "NODE")
    for each in episodes:
        table.add_row(
            each.node,
            each.kind.value,
            Text(each.outcome, style="green" if each.outcome in _GOOD else "red"),
            wording.moment(each.ended),
            wording.span(each.ended - each.started),
            each.incident or "-",
            *((_why(each),) if within else ()),
        )
    return table


def _why(each: EndedEpisode) -> str:
    return f"{each.why or 'nobody said why'}; {each.message}"


def as_json(found: EndedEpisodes) -> dict[str, Any]:
    """For programs."""
    return {
        "cluster": found.cluster,
        "episodes": [
            {
                "node": each.node,
                "kind": each.kind.value,
                "outcome": each.outcome,
                "message": each.message,
                "why": each.why,
                "incident": each.incident,
                "started": written(each.started),
                "ended": written(each.ended),
                "seconds": round((each.ended - each.started).total_seconds(), 3),
                "workflowId": each.workflow_id,
                "runId": each.run_id,
            }
            for each in found.episodes
        ],
        "more": found.more,
    }
