"""Where statuses go: a table that redraws itself on a terminal, lines elsewhere, JSON for programs."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console, Group
from rich.live import Live

from policy.values.display_text import visible
from policy.values.times import written
from starter.client import Nodewarden
from starter.errors import RequestError
from starter.handles.status import ClusterStatus
from starter.output.changes import changes
from starter.output.console import fitting_console
from starter.output.encoding import encoded
from starter.output.table import render

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
    """A status now; where nobody answers, the last one with the problem named in it."""
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


class Display(Protocol):
    """Shows the latest statuses. `expect` is called before the first look, `redraw` between looks, when only time has passed."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def expect(self, clusters: Sequence[str]) -> None: ...

    def show(self, statuses: Sequence[ClusterStatus]) -> None: ...

    def redraw(self) -> None: ...


class _Quiet:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def expect(self, clusters: Sequence[str]) -> None:  # noqa: ARG002 - only a live table has something to say by then
        return None

    def redraw(self) -> None:
        return None


class JsonDisplay(_Quiet):
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


class OnceDisplay(_Quiet):
    """The table, printed."""

    def __init__(self, console: Console | None = None, *, where: str = "") -> None:
        self._console = console or fitting_console()
        self._where = where

    def show(self, statuses: Sequence[ClusterStatus]) -> None:
        for status in statuses:
            self._console.print(render(status, now=datetime.now(UTC), where=self._where))


class LineDisplay(_Quiet):
    """A line for each change, with the time: for logs and pipes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._last: dict[str, ClusterStatus] = {}

    def show(self, statuses: Sequence[ClusterStatus]) -> None:
        for status in statuses:
            for line in changes(self._last.get(status.cluster), status):
                print(visible(f"{written(status.at)} {line}"), file=self._stream, flush=True)
            self._last[status.cluster] = status


class LiveDisplay:
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
