"""A decision record as a table: what happened when, counted from a beginning, with the proofs of off standing out.

The demo's "What happened" is this table, too, from the moment of its accident on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from policy.episode.messages import RecordEntry
from policy.episode.proofs import OFF_PROVEN
from policy.history.spells import dated
from policy.values.times import written
from starter import wording

if TYPE_CHECKING:
    from starter.handles.history import EpisodeRecord

END = "end"
"""The act of an episode's last entry; one that was terminated has none."""

NOT_REPAIRED = "Sick and not repaired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    at: datetime
    what: str
    detail: str = ""
    proof: bool = False


def moments_of(entries: Iterable[RecordEntry]) -> Iterator[Moment]:
    """Each entry of a record. That it went well is not said of each."""
    for entry in entries:
        outcome = "" if entry.outcome == "ok" else entry.outcome
        outcome = wording.phase(outcome) if entry.act == "phase" else outcome
        yield Moment(
            at=entry.at,
            what=entry.act.replace("-", " "),
            detail=": ".join(part for part in (outcome, entry.detail) if part),
            proof=entry.act == OFF_PROVEN,
        )


def story(title: RenderableType, began: datetime, moments: Iterable[Moment]) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(justify="right", style="cyan", no_wrap=True)
    table.add_column()
    table.add_column(overflow="fold")  # an endpoint may be longer than a line, and is never cut
    for moment in moments:
        table.add_row(
            f"+{(moment.at - began).total_seconds():.1f} s",
            Text(moment.what, style="bold green" if moment.proof else ""),
            Text(moment.detail, style="green" if moment.proof else "dim"),
        )
    return Group(title, table)


def as_table(record: EpisodeRecord) -> RenderableType:
    """Who, why, what happened, and what proves that the machine was off."""
    spells = (
        *((Text(f"\n{NOT_REPAIRED}", style="bold"),) if record.spells else ()),
        *(Padding(Text(dated(each)), (0, 0, 0, 2)) for each in record.spells),
    )
    if record.kind is None:
        return Group(Text.assemble((record.node, "bold"), f": {record.message}"), *spells)
    title = Text.assemble((record.node, "bold"), f": {record.kind.value}, incident {record.incident}, {_stands(record)}")
    why = Text(f"because: {record.why or 'no reason given'}\n")
    has_end = any(entry.act == END for entry in record.entries)
    end = [Moment(at=record.ended, what=record.outcome, detail=record.message)] if record.ended and not has_end else []
    opened = Moment(at=record.started, what="episode opened", detail=written(record.started))
    return Group(
        title,
        why,
        story(Text("What happened", style="bold"), record.started, (opened, *moments_of(record.entries), *end)),
        *([Text(f"\n{record.proof}", style="green" if record.off_proof is not None else "yellow")] if record.proof else []),
        *spells,
    )


def _stands(record: EpisodeRecord) -> str:
    if record.ended is None:
        return f"open, {wording.phase(record.outcome)}: {record.message}"
    return f"{record.outcome} after {wording.span(record.ended - record.started)}"
