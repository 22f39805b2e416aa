"""Episodes that have ended, pauses, offenders, and which steps help, as tables and for programs. Words: `starter/wording.py`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from policy.episode.messages import Outcome
from policy.history.spells import OBSERVATION, Ending, Spell, would_have
from policy.history.step_outcomes import OutcomesReport, StepOutcomes
from policy.scan.pauses import PastPause
from policy.scan.pauses import since as pauses_since
from policy.values.times import written
from starter import wording
from starter.handles.history import MOST_LISTED, OUTCOMES, EndedEpisode, EndedEpisodes
from starter.handles.observations import NONE_OBSERVED, SpellsThen
from starter.output.console import Sentences
from starter.output.models import HistoryAnswer, HistoryLine, OffendersAnswer, PauseLine
from starter.output.status_table import columns

if TYPE_CHECKING:
    from starter.client import Nodewarden


def outcome_problem(outcomes: Collection[str]) -> str:
    """What is wrong with these names of outcomes, "" where nothing is."""
    known = (*OUTCOMES, *Ending)
    unknown = sorted(set(outcomes) - set(known))
    return f"expected some of {', '.join(known)}, got {', '.join(unknown)}" if unknown else ""


async def read_history(
    warden: Nodewarden,
    cluster: str,
    *,
    since: datetime,
    node: str = "",
    outcomes: Collection[str] = (),
    everything: bool = False,
    limit: int = MOST_LISTED,
) -> tuple[EndedEpisodes, Sequence[PastPause], datetime, SpellsThen]:
    """What ended since then, as `as_table` and `as_model` take it. outcomes: only what ended so; none: all, but requests
    that were refused only with `everything`. Pauses are left out where a node or outcomes are asked for. Raises SilentError."""
    now = datetime.now(UTC)
    found = await warden.history.ended(cluster, node=node, since=since, limit=limit)
    observed = await warden.observations.ended_spells(cluster, node=node, since=since, limit=limit)
    remembered = await warden.scanner(cluster).pauses() if not node and not outcomes else ()
    wanted = set(outcomes) or (set(OUTCOMES) - (set() if everything else {Outcome.REFUSED}))
    found = replace(found, episodes=tuple(each for each in found.episodes if each.outcome in wanted))
    observed = replace(observed, spells=tuple(each for each in observed.spells if not outcomes or each.ending in wanted))
    return found, pauses_since(remembered, since, now), now, observed


def as_table(
    found: EndedEpisodes, pauses: Sequence[PastPause], now: datetime, observed: SpellsThen = NONE_OBSERVED, *, node: str = ""
) -> RenderableType:
    """One line for each; where that has no room for how it ended and why it was begun, a list with that under each. A pause that
    is in force stands first, as nothing is newer. node: the only one that was asked about, "" for all."""
    if not found.episodes and not pauses and not observed.spells and not observed.unknown:
        return Text(f"no episode of {node or found.cluster} has ended in that time, as far as Temporal remembers", style="dim")
    dated = [(each.ended, _of_episode(each)) for each in found.episodes]
    dated += [(each.over_at(now) or now, _of_pause(each, now)) for each in pauses]
    dated += [(each.ended or now, _of_spell(each, now)) for each in observed.spells]
    lines = [line for _, line in sorted(dated, key=lambda each: each[0], reverse=True)]
    table: RenderableType = Sentences(table=partial(_table, lines), below=[(line.whole, line.why) for line in lines], alone=True)
    more = ["… and older ones; --since and --node show fewer"] if found.more else []
    more += [f"not shown: {each}" for each in observed.unknown]
    return Group(table, *(Text(each, style="dim") for each in more)) if more else table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """cells: node, kind, outcome, began, took, incident."""

    cells: Sequence[str | Text]
    why: Text

    @property
    def whole(self) -> Text:
        name, kind, outcome, started, took, incident = self.cells
        others = (kind, outcome, f"began {started}, took {took}", incident)  # no head says which is which
        return Text("  ").join([Text(str(name), style="bold"), *(Text("").append(each) for each in others)])


def _of_episode(each: EndedEpisode) -> _Line:
    outcome = Text(each.outcome, style=wording.end_style(each.outcome))
    took = wording.span(each.ended - each.started)
    return _Line(
        cells=(each.node, each.kind.value, outcome, written(each.started), took, each.incident or "-"),
        why=Text(f"{each.why or 'no reason given'}; {each.message}"),
    )


def _of_spell(each: Spell, now: datetime) -> _Line:
    took = wording.span((each.ended or now) - each.due)
    return _Line(
        cells=(each.node, OBSERVATION, Text(each.ending or "", style="yellow"), written(each.due), took, each.incident or "-"),
        why=Text(would_have(each)),
    )


def _of_pause(each: PastPause, now: datetime) -> _Line:
    end, pause = each.end(now), each.pause
    took = wording.span((each.over_at(now) or now) - pause.since)
    return _Line(
        cells=("(all)", "Pause", Text(end.value, style="yellow"), written(pause.since), took, "-"),
        why=Text(each.described(now)),
    )


def _table(lines: Sequence[_Line], within: bool) -> Table:
    names = ("NODE", "KIND", "OUTCOME", "STARTED", "TOOK", "INCIDENT")
    table = columns(*names, *(("WHY",) if within else ()), flexible="WHY" if within else "NODE")
    for line in lines:
        table.add_row(*line.cells, *((line.why,) if within else ()))
    return table


def as_model(
    found: EndedEpisodes, pauses: Sequence[PastPause], now: datetime, observed: SpellsThen = NONE_OBSERVED
) -> HistoryAnswer:
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
        pauses=tuple(
            PauseLine(
                state=each.end(now),
                by=each.pause.who,
                why=each.pause.reason,
                since=each.pause.since,
                until=each.pause.until,
                ended=each.over_at(now),
                ended_by=each.ended_by or None,
                ended_why=each.ended_why or None,
            )
            for each in reversed(pauses)
        ),
        more=found.more,
        observations=observed.spells[::-1],
        unknown=observed.unknown,
    )


# Machines that are repaired again and again (`nodewarden offenders`), and what helps (`nodewarden report`) -------------------


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
