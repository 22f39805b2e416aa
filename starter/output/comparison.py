"""What `nodewarden compare` and the page's view *Would have* show: the same parts as text, as Markdown and as HTML.

The numbers are those of `policy/history/comparison.py`; here they only become sentences and tables.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from policy.episode.gate import MODE
from policy.episode.messages import REPAIRED
from policy.history.comparison import (
    FEWEST_CASES,
    FEWEST_DAYS,
    FEWEST_REPAIRS,
    SICK_AGAIN,
    ArmedTally,
    CheckComparison,
    Comparison,
    Estimate,
    JudgedSpell,
    Judgement,
    ReplayedCheck,
)
from policy.history.spells import Ending
from policy.values.display_text import counted, in_a_line
from policy.values.times import written
from starter.handles.observations import ClusterComparison
from starter.output.status_table import columns
from starter.wording import span

MOST_SHOWN = 200
"""Cases of one check that people are shown."""
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|])")

LONGER_COUNTS = (
    "Repairs that would have begun all the same, and how many of them would have been false. Undecided: sick now, and in no "
    "other column. Later, in all: by how much later the repairs that are not false would have begun, all together."
)
BRAKE_COUNTS = (
    "Spells: how often it kept a due node from a repair to the end, and in how many storms of many nodes. Rightly: the node came "
    "back by itself. Wrongly: it had to be repaired, or stayed sick. Undecided: neither is known. In all: how long it held them."
)
CASES = "Each node at the moment at which its repair was due: what became of it and how long after, and where that is recorded."
BECAME = {
    Judgement.FALSE: "false repair: came back by itself",
    Judgement.LATER: "came back by itself, but later",
    Judgement.OTHERS: "repaired by others",
    Judgement.OURS: "repaired by nodewarden",
    Judgement.BEGUN: "an episode began, not known to have repaired it",
    Judgement.STILL_SICK: "still sick",
    Judgement.UNDECIDED: "not decided yet",
    Judgement.NOT_WATCHED: "no check asks any more",
    Judgement.HELD: "no repair: held",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """A heading, sentences, and a table. links: of each row its page or, where there is none, its workflow. workflows: the id of
    that. notes: of each row a sentence about it."""

    heading: str
    lines: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    links: Sequence[str] = ()
    workflows: Sequence[str] = ()
    notes: Sequence[str] = ()


def parts(answer: ClusterComparison) -> tuple[ReportPart, ...]:
    """Everything, in the order in which it is read."""
    found = answer.comparison
    title = f"{answer.cluster}: what would have been repaired, {written(found.since)} to {written(found.until)}"
    nothing = () if found.checks else ("Nothing is recorded of that: no spell, no node-day, no repair.",)
    head = ReportPart(heading=title, lines=(*nothing, *(f"Not known: {each}" for each in answer.unknown)))
    return (head, *(part for check in found.checks for part in _of_check(found, check)))


def _of_check(found: Comparison, check: CheckComparison) -> Iterator[ReportPart]:
    yield ReportPart(heading=check.check, lines=tuple(_answers(found, check)))
    if check.would_repair:
        rows = [
            (
                f"+{span(each.longer)}" if each.longer else "as it is",
                *map(str, (each.repairs, each.false_repairs, each.undecided)),
                span(each.later),
            )
            for each in check.timeouts
        ]
        names = ("TIME-OUT", "REPAIRS", "FALSE", "UNDECIDED", "LATER, IN ALL")
        yield ReportPart(heading="Had the time-out been longer", lines=(LONGER_COUNTS,), columns=names, rows=rows)
    if check.brakes:
        rows = [
            (each.code, *map(str, (each.spells, each.storms, each.rightly, each.wrongly, each.undecided)), span(each.held))
            for each in check.brakes
        ]
        names = ("HELD BY", "SPELLS", "STORMS", "RIGHTLY", "WRONGLY", "UNDECIDED", "IN ALL")
        yield ReportPart(heading="What held nodes", lines=(BRAKE_COUNTS,), columns=names, rows=rows)
    if check.armed is not None:
        yield ReportPart(heading="Repairs of this check", lines=tuple(_of_armed(check.armed)))
    shown = tuple(reversed(check.cases))[:MOST_SHOWN]
    if shown:
        older = f"The latest {MOST_SHOWN} of {len(check.cases)}; `nodewarden compare -o json` has all."
        yield ReportPart(
            heading="Each case",
            lines=(CASES, *((older,) if len(check.cases) > len(shown) else ())),
            columns=("NODE", "DUE", "WHAT BECAME OF IT", "AFTER"),
            rows=[(each.spell.node, written(each.spell.due), _became(each), _after(each)) for each in shown],
            links=[each.page or each.workflow_id for each in shown],
            workflows=[each.workflow_id for each in shown],
        )


def _answers(found: Comparison, check: CheckComparison) -> Iterator[str]:
    armed = f", and for {check.armed_days:,.1f} in mode repair" if check.armed_days else ""
    yield f"Observed for {check.observed_days:,.1f} node-days{armed} (one is one node, looked at for a day)."
    yield f"Would have repaired: {check.would_repair}."
    if not check.would_repair:
        return
    usual = found.repair_time
    measured = (
        f"the median of {usual.repairs} of ours"
        if usual.repairs
        else f"the default, as fewer than {FEWEST_REPAIRS} of ours have ended"
    )
    yield f"False repairs: {check.false_repairs}, back by itself within the {span(usual.span)} that a repair takes ({measured})."
    if check.rate is not None:
        yield f"False repairs in 1,000 node-days: {_estimate(check.rate, f'{FEWEST_DAYS} node-days')}."
    if check.share is not None:
        yield f"False among {check.share.of:.0f} that are decided: {_estimate(check.share, str(FEWEST_CASES), percent=True)}."
    yield from (
        f"{BECAME[each].capitalize()}: {number}." for each, number in check.judgements.items() if each not in _WITH_A_SENTENCE
    )
    if (others := check.others) is not None:
        yield (
            f"Repaired by others: {check.judgements[Judgement.OTHERS]}, after {span(others.after)} (median; nine of ten within "
            f"{span(others.after_p90)}). Ours would have been sooner by {span(others.sooner)} (nine of ten by at most "
            f"{span(others.sooner_p90)})."
        )


_WITH_A_SENTENCE = frozenset({Judgement.FALSE, Judgement.OTHERS, Judgement.HELD})


def _of_armed(armed: ArmedTally) -> Iterator[str]:
    yield f"{counted(armed.repairs, 'repair')} brought the node back; {counted(armed.otherwise, 'episode')} ended otherwise."
    day = f"{SICK_AGAIN // timedelta(hours=1)}h"
    if armed.share is not None:
        said = _estimate(armed.share, str(FEWEST_CASES), percent=True)
        yield f"Did not help, as the node was sick again within {day}: {armed.not_helped} of {armed.share.of:.0f}, {said}."
    if armed.undecided:
        yield f"Not decided yet, as {day} have not passed since the repair: {armed.undecided}."
    yield f"Reboots: {armed.reboots}; after {armed.same_cause} of them the same reason came back within {day}."
    if armed.incidents:
        yield f"Those that did not help: {', '.join(f'`nodewarden record {shlex.quote(each)}`' for each in armed.incidents)}."


def _estimate(found: Estimate, needed: str, *, percent: bool = False) -> str:
    """`1.4 (95 % interval: 0.37 to 3.5)`; no number where it would say nothing. needed: of what, at least."""
    if not found.enough:
        return f"too few to say, {needed} are needed"
    value, low, high = (_figure(each * (100 if percent else 1)) for each in (found.value, found.low, found.high))
    return f"{value}{' %' if percent else ''} (95 % interval: {low} to {high})"


def _figure(number: float) -> str:
    return f"{number:.0f}" if number >= 20 or not number else f"{number:.2g}"


def _became(each: JudgedSpell) -> str:
    codes = dict.fromkeys(held.code for held in each.spell.held if held.code != MODE)
    by = f" by {', '.join(codes)}" if each.judgement is Judgement.HELD and codes else ""
    traces = f" ({', '.join(each.spell.traces)})" if each.spell.traces else ""
    became = BECAME[each.judgement]
    if each.spell.ending is Ending.OURS and each.spell.ended is not None:
        became = f"an episode began at {written(each.spell.ended)}"
        became += f", and ended {each.outcome}" if each.outcome is not None else ""
        became = BECAME[Judgement.OURS] if each.outcome in REPAIRED else became
        became += " after it was held" if each.judgement is Judgement.HELD else ""
        by += ": its episode began" if each.outcome in REPAIRED else ""
    return in_a_line(became + by + traces)


def _after(each: JudgedSpell) -> str:
    return span(each.spell.ended - each.spell.due) if each.spell.ended is not None else "lasts"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAnswer:
    """Changed checks on the spells of a file. repair_time: how long a repair took."""

    cluster: str
    repair_time: timedelta
    checks: tuple[ReplayedCheck, ...]


def replayed_parts(answer: ReplayAnswer) -> tuple[ReportPart, ...]:
    """One for each check. Of spells to which the change makes no difference it has only the number."""
    shown = [ReportPart(heading=f"{answer.cluster}: a repair takes {span(answer.repair_time)}")]
    for check in answer.checks:
        changed = [each for each in check.spells if each.before.begins != each.after.begins]
        was = f"As it was: {counted(check.repairs_before, 'repair')}, {check.false_before} false."
        would = f"Changed: {counted(check.repairs, 'repair')}, {check.false_repairs} false."
        shown.append(
            ReportPart(
                heading=f"{check.check}, {counted(len(check.spells), 'spell')}",
                lines=(was, would),
                columns=("NODE", "SICK SINCE"),
                rows=[(each.before.spell.node, written(each.before.spell.since)) for each in changed],
                notes=[f"{_begun(each.before, each.before.spell.due)} → {_begun(each.after, each.due)}" for each in changed],
            )
        )
    return tuple(shown)


def _begun(each: JudgedSpell, due: datetime | None) -> str:
    if each.begins is not None:
        return f"at {written(each.begins)}, {BECAME[each.judgement]}"
    return BECAME[Judgement.HELD] if due is not None else "not due"


def as_text(found: Sequence[ReportPart]) -> RenderableType:
    """For a terminal. What has a note or a link is a line with that below it; its moments and times have their column's name."""
    shown: list[RenderableType] = []
    for part in found:
        shown += [Text(part.heading, style="bold"), *(Padding(Text(line), (0, 0, 0, 2)) for line in part.lines)]
        if below := part.notes or part.links:
            for (first, *others), under in zip(part.rows, below, strict=True):
                named = zip(part.columns[1:], others, strict=True)
                line = "  ".join([first, *(f"{name.lower()} {each}" if each[:1].isdigit() else each for name, each in named)])
                shown += [Padding(Text(line), (0, 0, 0, 2)), Padding(Text(under, style="dim"), (0, 0, 0, 4))]
        elif part.rows:
            table = columns(*part.columns, flexible=part.columns[0])
            for row in part.rows:
                table.add_row(*row)
            shown.append(Padding(table, (0, 0, 0, 2)))
        shown.append(Text())
    return Group(*shown[:-1])


def as_markdown(found: Sequence[ReportPart]) -> str:
    """To paste. What others have written is text and nothing else (S50)."""
    lines = list[str]()
    for number, part in enumerate(found):
        lines += [f"{'#' if number == 0 else '##'} {_plain(part.heading)}", ""]
        lines += [line for each in part.lines for line in (_plain(each), "")]
        if part.rows:
            names = [*(each.capitalize() for each in part.columns), *(["Recorded by"] if part.workflows else [])]
            lines += [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
            links = part.links or [""] * len(part.rows)
            for row, link, recorded in zip_longest(part.rows, links, part.workflows, fillvalue=""):
                first, *rest = (_plain(each) for each in (*row, *([recorded] if part.workflows else [])))
                lines.append("| " + " | ".join([f"[{first}]({link})" if link.startswith("http") else first, *rest]) + " |")
            lines.append("")
    return "\n".join(lines).rstrip()


def _plain(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", in_a_line(text))
