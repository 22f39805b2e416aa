"""What the page costs: CPU of the process that serves it, by how many pages are open.

The system of `detection.py`, and beside it `nodewarden ui` as a process of its own, which asks the API server about each token,
as in a cluster. An open page is a client of this process that does what `starter/web/static/page.js` does: it listens to the
server's events and fetches the page again when it has changed, at most once a second, and as often as the page itself says
where no event tells of it. Quiet: nothing happens but reports of nodes. Busy: ten nodes are broken, acted upon and well again,
over and over. What one page costs is what they cost together, less what the process does for none.

    python -m benchmarks.page [--sizes 500] [--open 0 1 5] [--views ""] [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import aiohttp

from benchmarks.detection import TOGETHER, TOKEN, Bench, running
from benchmarks.stage.figures import number, table
from benchmarks.stage.processes import cpu_time
from starter.web.views import LINGERS
from tests.starter.process import nodewarden

LEAST = 1.0
"""Seconds between two fetches of a page, as `page.js` has it."""
SETTLES = LINGERS.total_seconds() + 3
"""Seconds until nothing is done any more for pages that were open before, and all is done that a page costs once."""
WANTED = "<= 1"
EVERY = re.compile(r'data-every="(\d+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One measurement. percent: of a core, all pages together; kilobytes: of one page."""

    pages: int
    percent: float
    fetched_per_second: float
    kilobytes: float


class OpenPage:
    """A page that a browser has open."""

    def __init__(self, browser: aiohttp.ClientSession, cluster: str, view: str) -> None:
        self._browser = browser
        self._page, self._events = f"c/{cluster}{view}", f"api/v1/clusters/{cluster}/events"
        self._changed = asyncio.Event()
        self.fetched = self.size = 0

    async def look(self) -> None:
        """Until it is closed."""
        found = EVERY.search(await self._fetch())
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._renew())
            if found is not None:
                group.create_task(self._ask_by_itself(int(found[1])))

    async def _listen(self) -> None:
        async with self._browser.get(self._events) as stream:
            async for line in stream.content:
                if line == b"event: changed\n":
                    self._changed.set()

    async def _renew(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._fetch()
            await asyncio.sleep(LEAST)

    async def _ask_by_itself(self, seconds: int) -> None:
        while True:
            await asyncio.sleep(seconds)
            self._changed.set()

    async def _fetch(self) -> str:
        async with self._browser.get(self._page, raise_for_status=True) as answer:
            text = await answer.text()
        self.fetched, self.size = self.fetched + 1, len(text)
        return text


@asynccontextmanager
async def opened(url: str, cluster: str, view: str, pages: int) -> AsyncIterator[list[OpenPage]]:
    """So many, each with connections of its own."""
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(asyncio.TaskGroup())
        headers = {"Authorization": f"Bearer {TOKEN}"}
        browsers = [await stack.enter_async_context(aiohttp.ClientSession(url, headers=headers)) for _ in range(pages)]
        found = [OpenPage(browser, cluster, view) for browser in browsers]
        looking = [group.create_task(each.look()) for each in found]
        try:
            await asyncio.sleep(SETTLES)
            yield found
        finally:
            for each in looking:
                each.cancel()


async def _repairs(bench: Bench) -> None:
    while True:
        await bench.round(TOGETHER)


async def _cost(pid: int, looked: list[OpenPage], seconds: float) -> Cost:
    spent, fetched, began = cpu_time(pid).total, sum(each.fetched for each in looked), time.monotonic()
    await asyncio.sleep(seconds)
    spent, fetched = cpu_time(pid).total - spent, sum(each.fetched for each in looked) - fetched
    took, largest = time.monotonic() - began, max((each.size for each in looked), default=0)
    return Cost(pages=len(looked), percent=spent / took * 100, fetched_per_second=fetched / took, kilobytes=largest / 1000)


async def measure(size: int, views: list[str], pages: list[int], seconds: float) -> dict[str, list[Cost]]:
    """One cluster: each view of it, quiet and busy, with each number of pages."""
    found: dict[str, list[Cost]] = {}
    async with running(size, "object") as (bench, _, folder):
        options = ("--config", str(folder / "nodewarden.yaml"), "ui", "--port", "0", "--behind-proxy")
        async with nodewarden(*options) as ui:
            url = (await ui.says("the page is at ")).partition("the page is at ")[2].split()[0]
            for mood in ("quiet", "busy"):
                repairs = asyncio.create_task(_repairs(bench)) if mood == "busy" else None
                for view in views:
                    costs = found[f"{size} nodes, {mood}, {view or 'now'}"] = []
                    for count in pages:
                        async with opened(url, bench.name, view, count) as looked:
                            costs.append(await _cost(ui.process.pid, looked, seconds))
                if repairs is not None:
                    repairs.cancel()
                    await asyncio.gather(repairs, return_exceptions=True)
    return found


def show(found: dict[str, list[Cost]]) -> str:
    """The table for people."""
    rows = []
    for title, costs in found.items():
        anyway = next((each.percent for each in costs if not each.pages), 0.0)
        for each in costs:
            alone = number((each.percent - anyway) / each.pages) if each.pages else "-"
            figures = (number(each.percent), alone, WANTED, number(each.fetched_per_second, 1), number(each.kilobytes, 0))
            rows.append([title, str(each.pages), *figures])
    return table(["", "pages open", "CPU, % of a core", "each page", "wanted", "fetches per second", "KB of a page"], rows)


async def _measure_all(options: argparse.Namespace) -> dict[str, list[Cost]]:
    measured = [await measure(size, options.views, options.open, options.seconds) for size in options.sizes]
    return {title: costs for each in measured for title, costs in each.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[500], metavar="NODES")
    parser.add_argument("--open", type=int, nargs="+", default=[0, 1, 5], metavar="PAGES")
    parser.add_argument("--views", nargs="+", default=[""])
    parser.add_argument("--seconds", type=float, default=20)
    print(show(asyncio.run(_measure_all(parser.parse_args()))))


if __name__ == "__main__":
    main()
