"""Where statuses go: a table that redraws itself on a terminal, a line for each change elsewhere, JSON for programs."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live

from policy.checks.verdict import Health
from policy.episode.messages import EpisodeStatus
from policy.scan.report_builder import NOT_COVERED
from policy.scan.scan_report import TargetRow
from policy.values.display_text import counted, visible
from policy.values.times import written
from starter import wording
from starter.client import Nodewarden
from starter.errors import RequestError
from starter.handles.status import ClusterStatus
from starter.output.console import fitting_console
from starter.output.encoding import encoded
from starter.output.status_table import render

# What changed between two looks, one line each: for logs, pipes and terminals that cannot redraw.
#
# Countdowns are no changes; a verdict, a breaker, a phase, a step, a problem and an end are.


def changes(before: ClusterStatus | None, after: ClusterStatus) -> list[str]:
    """The lines to print. Before the first look everything but health is a change."""
    return [*_scanner(before, after), *_nodes(before, after), *_checks(before, after), *_episodes(before, after)]


def _scanner(before: ClusterStatus | None, after: ClusterStatus) -> Iterator[str]:
    now_says = _condition(after)
    if before is None or _condition(before) != now_says:
        yield f"cluster {after.cluster}: {now_says}"


def _condition(status: ClusterStatus) -> str:
    if status.scanner is None:
        return status.problem or "no scanner"
    nodes = f"{counted(status.scanner.report.inventory, 'node')}, " if status.scanner.report else ""
    return nodes + wording.view(status.scanner, status.at)


def _nodes(before: ClusterStatus | None, after: ClusterStatus) -> Iterator[str]:
    known = _rows(before)
    left_out: list[str] = []
    covered: list[str] = []
    for name, row in _rows(after).items():
        former = known.get(name)
        was = former.health if former else Health.HEALTHY
        if former is not None and former.ready != row.ready:
            yield f"node {name}: Ready is {row.ready}"
        if row.reason == NOT_COVERED:
            left_out += [name] if former is None or former.reason != NOT_COVERED else []
        elif former is not None and former.reason == NOT_COVERED and row.health is Health.HEALTHY:
            covered.append(name)
        elif row.health is not was:
            yield f"node {name}: {wording.verdict(row, after.at)}"
        if former is not None and former.schedulable != row.schedulable:
            yield f"node {name}: {'schedulable again' if row.schedulable else 'cordoned'}"
    # One line each: without a check that is every node of the cluster.
    for names, what in ((left_out, "covered by no check"), (covered, "covered by a check now, and healthy")):
        if names:
            yield f"node {names[0]}: {what}" if len(names) == 1 else f"{counted(len(names), 'node')} are {what}"
    for name, former in known.items():
        if name not in _rows(after) and former.health is not Health.HEALTHY and _rows(after):
            yield f"node {name}: no longer {former.health.value}, or gone"


def _rows(status: ClusterStatus | None) -> dict[str, TargetRow]:
    report = status.scanner.report if status is not None and status.scanner is not None else None
    return {row.node: row for row in report.rows} if report else {}


def _checks(before: ClusterStatus | None, after: ClusterStatus) -> Iterator[str]:
    known = _breakers(before)
    current = _breakers(after)
    for key, (breaker, line) in current.items():
        if known.get(key, ("", ""))[0] != breaker:
            yield line
    for key in known:
        if key not in current and _rows(after):
            yield f"check {key}: gone"


def _breakers(status: ClusterStatus | None) -> dict[str, tuple[str, str]]:
    """By check: what must change for its line to be printed, and the line."""
    report = status.scanner.report if status is not None and status.scanner is not None else None
    if report is None:
        return {}
    return {
        check.ref.key: (
            f"{check.allowed} {check.paused} {check.error} {check.reason}",
            f"check {check.ref.key}: {check.healthy}/{check.total} healthy{wording.besides(check)}, {wording.may_act(check)}",
        )
        for check in report.checks
    }


def _episodes(before: ClusterStatus | None, after: ClusterStatus) -> Iterator[str]:
    known = {episode.incident: episode for episode in before.episodes} if before else {}
    for episode in after.episodes:
        yield from episode_changes(known.get(episode.incident), episode)
    quiet = {silent.node: silent.problem for silent in before.silent} if before else {}
    for silent in after.silent:
        if quiet.get(silent.node) != silent.problem:
            yield f"episode {silent.node}: {silent.problem}"
    known_ends = {result.incident for result in before.ended} if before else set()
    for result in reversed(after.ended):
        if result.incident not in known_ends:
            proof = wording.off_proof(result)
            yield f"episode {result.node}: {wording.ending(result)}{f' ({proof})' if proof else ''}"


def episode_changes(former: EpisodeStatus | None, episode: EpisodeStatus) -> Iterator[str]:
    name = f"episode {episode.node}"
    if former is None:
        yield f"{name}: {episode.kind.value} {episode.incident} open: {episode.reason or 'no reason given'}"
    # What is proven comes before what is done on that proof.
    if episode.off_proof is not None and (former is None or former.off_proof is None):
        yield f"{name}: {wording.off_proof(episode)}"
    if episode.restart_proof is not None and (former is None or former.restart_proof is None):
        yield f"{name}: restart proven, boot id {episode.restart_proof.boot_id}"
    doing = (episode.phase, episode.step, episode.doing)
    if former is None or (former.phase, former.step, former.doing) != doing:
        where = ", ".join(filter(None, (wording.phase(episode.phase), episode.step, wording.repeated(episode))))
        yield f"{name}: {where}: {episode.doing}"
    if episode.rung and (former is None or former.rung != episode.rung):
        yield f"{name}: step {episode.rung}{f', machine {episode.machine}' if episode.machine else ''}"
    if episode.preserved_until is not None and (former is None or former.preserved_until != episode.preserved_until):
        yield f"{name}: preserved until {written(episode.preserved_until)}"
    if episode.problem and (former is None or former.problem != episode.problem):
        yield f"{name}: problem: {episode.problem}"
    if episode.held != (former.held if former is not None else ""):
        yield f"{name}: {episode.held or 'held no more'}"
    if episode.aborted and (former is None or not former.aborted):
        yield f"{name}: {episode.aborted}"
    if episode.advice and (former is None or former.advice != episode.advice):
        yield f"{name}: what to do: {episode.advice}"


# Looking again and again: as often as there is something to see, and no oftener than that.
#
# The server is asked every second while an episode is open, else when the next verdict falls due, at least every few seconds.
# In between the picture is drawn anew from what is known, so that countdowns move. Temporal being away is something to show,
# not a reason to stop.

BUSY = timedelta(seconds=1)
IDLE = timedelta(seconds=3)
AFTER_DUE = timedelta(milliseconds=300)
SHORTEST = timedelta(milliseconds=300)


async def look(warden: Nodewarden, cluster: str, last: ClusterStatus | None = None) -> ClusterStatus:
    """A status now; where there is no answer, the last one with the problem named in it."""
    try:
        return await warden.status(cluster)
    except RequestError as error:
        former = last or ClusterStatus(cluster=cluster, at=datetime.now(UTC))
        return dataclasses.replace(former, problem=str(error), unanswered=True)


def until_next(status: ClusterStatus) -> timedelta:
    """When it is worth asking again."""
    scanner = status.scanner
    if status.episodes or status.silent or scanner is None or scanner.queue or scanner.report is None:
        return BUSY
    due = scanner.report.next_due
    if due is None:
        return IDLE
    return min(IDLE, max(SHORTEST, due + AFTER_DUE - datetime.now(UTC)))


REDRAW_SECONDS = 1.0


class Display(ABC):
    """Shows the latest statuses. What does not say otherwise has nothing to say before the first look, or when only time has
    passed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def expect(self, clusters: Sequence[str]) -> None:  # noqa: B027 - only a live table has something to say by then
        """Called before the first look."""

    @abstractmethod
    def show(self, statuses: Sequence[ClusterStatus]) -> None: ...

    def redraw(self) -> None:  # noqa: B027 - what is a line or a document stays as it is
        """Called between two looks."""


class JsonDisplay(Display):
    """One JSON object a line, or a YAML document, for each status that says something new."""

    def __init__(self, stream: TextIO | None = None, *, as_yaml: bool = False) -> None:
        self._stream = stream or sys.stdout
        self._as_yaml = as_yaml
        self._last: dict[str, str] = {}

    def show(self, statuses: Sequence[ClusterStatus]) -> None:
        for status in statuses:
            line = "---\n" * self._as_yaml + encoded(status, as_yaml=self._as_yaml)
            if self._last.get(status.cluster) != line:
                self._last[status.cluster] = line
                print(line, file=self._stream, flush=True)


class OnceDisplay(Display):
    """The table, printed."""

    def __init__(self, console: Console | None = None, *, where: str = "") -> None:
        self._console = console or fitting_console()
        self._where = where

    def show(self, statuses: Sequence[ClusterStatus]) -> None:
        for status in statuses:
            self._console.print(render(status, now=datetime.now(UTC), where=self._where))


class LineDisplay(Display):
    """A line for each change, with the time: for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._last: dict[str, ClusterStatus] = {}

    def show(self, statuses: Sequence[ClusterStatus]) -> None:
        for status in statuses:
            for line in changes(self._last.get(status.cluster), status):
                print(visible(f"{written(status.at)} {line}"), file=self._stream, flush=True)
            self._last[status.cluster] = status


class LiveDisplay(Display):
    """The table in place, redrawn every second. What is printed meanwhile appears above it; the last picture stays."""

    def __init__(self, console: Console | None = None, *, where: str = "") -> None:
        self.console = console or fitting_console()
        self.where = where
        self._statuses: Sequence[ClusterStatus] = ()
        self._live = Live(console=self.console, auto_refresh=False, redirect_stderr=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def expect(self, clusters: Sequence[str]) -> None:
        now = datetime.now(UTC)
        self.show([ClusterStatus(cluster=name, at=now, problem="asking the scanner …") for name in clusters])

    def show(self, statuses: Sequence[ClusterStatus]) -> None:
        self._statuses = list(statuses)
        self.redraw()

    def redraw(self) -> None:
        now = datetime.now(UTC)
        tables = [render(status, now=now, where=self.where) for status in self._statuses]
        self._live.update(Group(*tables), refresh=True)


def display_for(output: str | None, *, live: bool, where: str = "") -> Display:
    """What fits where stdout goes. output: as `-o` has it."""
    if output in {"json", "yaml"}:
        return JsonDisplay(as_yaml=output == "yaml")
    if not live:
        return OnceDisplay(where=where)
    return LiveDisplay(where=where) if sys.stdout.isatty() else LineDisplay()


async def watch(
    warden: Nodewarden,
    clusters: Sequence[str],
    display: Display,
    *,
    each: Callable[[Sequence[ClusterStatus]], None] = lambda _statuses: None,
) -> None:
    """Show until cancelled, or until `each` raises: it is called with every look."""
    statuses: dict[str, ClusterStatus] = {}
    clock_now = asyncio.get_running_loop().time
    with display:
        display.expect(clusters)
        while True:
            found = await asyncio.gather(*(look(warden, name, statuses.get(name)) for name in clusters))
            statuses = dict(zip(clusters, found, strict=True))
            display.show(found)
            each(found)
            again = clock_now() + min(until_next(status) for status in found).total_seconds()
            while (left := again - clock_now()) > 0:
                await asyncio.sleep(min(left, REDRAW_SECONDS))
                display.redraw()
