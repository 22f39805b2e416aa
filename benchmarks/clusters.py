"""What many clusters cost one cell: one Temporal server, and the two workers that docs/production.md recommends.

Each cluster has a simulated API server of its own over HTTP, twenty nodes that report as often as kubelets do, and a check that
fences (the cordon; no power is touched, as in `detection.py`). Measured: CPU, memory and requests to Temporal while nothing
happens, how soon a node that fails alone is cordoned, the same while another cluster never comes to rest, and after a worker was
killed. One cluster alone, in the same run, shows what each further one takes.

Requests to Temporal are those that workers count themselves (`temporal_request`), answered at once, and long polls
(`temporal_long_request`), which the server holds for up to a minute.

    python -m benchmarks.clusters [--clusters 50] [--nodes 20] [--seconds 60] [--sample 10] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.detection import TOKEN, Bench, Cluster, end
from benchmarks.stage.figures import Spread, number, printed, table
from benchmarks.stage.processes import cpu_time, resident_megabytes
from benchmarks.stage.running import as_shipped
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from simulator.cloud.gce import GceEndpoint
from starter.client import Nodewarden
from tests.system.temporal_server import TemporalServer
from tests.system.worker_process import WorkerProcess
from workers.configuration.settings import load
from workers.embedded.server import free_ports

AT_REST = {
    "workers": ("workers, % of a core", 100, 2, ""),
    "temporal": ("Temporal, % of a core", 100, 2, ""),
    "requests": ("requests to Temporal, each second", 1, 3, "<= 0.05"),
    "longPolls": ("long polls of Temporal, each second", 1, 3, ""),
    "apiRequests": ("requests to the clusters' API servers, each second", 1, 3, ""),
    "workerMegabytes": ("memory of a worker, MB", 1, 1, "<= 10"),
    "temporalMegabytes": ("memory of Temporal, MB", 1, 1, ""),
}
"""What is measured while nothing happens: its line, its scale and digits there, and what is wanted of each further cluster."""
WORKERS = 2
AT_ONCE = 5
"""So many clusters are set up, or fail, side by side."""
FLAPS_EVERY = 0.02
"""Seconds between two reports of the noisy cluster's nodes, each of which says something else than the one before."""
_COUNTED = re.compile(r"^temporal_(long_)?request(?:_total)?\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(slots=True)
class Cell:
    """What runs."""

    temporal: TemporalServer
    workers: list[WorkerProcess]
    metrics: list[int]
    benches: list[Bench]

    async def spent(self) -> dict[str, float]:
        """CPU seconds of workers and Temporal, its requests that were answered at once, its long polls, and what the workers have
        asked of the clusters; all since they began."""
        found = {"workers": sum(cpu_time(each.pid).total for each in self.workers), "temporal": cpu_time(self.temporal.pid).total}
        asked = [each.cluster.api.requests.counts for each in self.benches]
        ours = (count for counts in asked for (agent, _, _), count in counts.items() if agent.startswith("nodewarden"))
        found |= {"requests": 0.0, "longPolls": 0.0, "apiRequests": float(sum(ours))}
        async with aiohttp.ClientSession() as session:
            for port in self.metrics:
                async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    requests, long_polls = counted(await answer.text())
                found["requests"] += requests
                found["longPolls"] += long_polls
        return found

    async def at_rest(self, seconds: float) -> dict[str, float]:
        """The same for each second in which nothing happens but reports of nodes, and megabytes of each process."""
        before = await self.spent()
        await asyncio.sleep(seconds)
        found = {name: (after - before[name]) / seconds for name, after in (await self.spent()).items()}
        megabytes = [resident_megabytes(each.pid) for each in self.workers]
        return found | {"workerMegabytes": max(megabytes), "temporalMegabytes": resident_megabytes(self.temporal.pid)}

    async def acted_upon(self, benches: list[Bench], *, together: bool = False) -> dict[str, Any]:
        """Seconds from the deadline of one node of each of these clusters to its cordon, one cluster after the other or all at
        once."""
        tasks: list[Callable[[], Awaitable[Any]]] = [partial(each.round, 1) for each in benches]
        rounds = await _side_by_side(tasks) if together else [await task() for task in tasks]
        return Spread.of([value for each in rounds for value in each.visible]).as_json()


def counted(metrics: str) -> tuple[float, float]:
    """Requests that were answered at once, and long polls, by a worker's own metrics."""
    found = _COUNTED.findall(metrics)
    return sum(float(count) for long, count in found if not long), sum(float(count) for long, count in found if long)


async def _side_by_side(tasks: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(task: Callable[[], Awaitable[Any]]) -> Any:
        async with room:
            return await task()

    return list(await asyncio.gather(*map(one, tasks)))


async def _rest(benches: list[Bench]) -> None:
    for each in benches:
        await each.rests()


@asynccontextmanager
async def cell(count: int, nodes: int) -> AsyncIterator[Cell]:
    """So many clusters, each seen by its scanner and its devices read once."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodewarden-bench-")))
        temporal = await stack.enter_async_context(TemporalServer(folder))
        cloud = await stack.enter_async_context(GceEndpoint())
        clusters: list[Cluster] = []
        settings: dict[str, Any] = {}
        for index in range(count):
            api = await stack.enter_async_context(ApiServer(tokens={TOKEN: "admin"}))
            client = await stack.enter_async_context(ApiClient(ApiAddress(url=api.url, token=TOKEN), user_agent="bench"))
            cluster = Cluster(nodes, "cordon", api, client, cloud, name=f"c{index:02}")
            await cluster.prepare()
            stack.push_async_callback(end, asyncio.create_task(cluster.report()))
            (folder / f"{cluster.name}.kubeconfig").write_text(api.kubeconfig())
            settings[cluster.name] = {"kubeconfig": str(folder / f"{cluster.name}.kubeconfig")}
            clusters.append(cluster)
        ports, workers = free_ports("127.0.0.1", WORKERS), list[WorkerProcess]()
        for index, port in enumerate(ports):
            config = folder / f"{index}.yaml"
            written = {
                "temporal": {"address": temporal.address, "namespace": "default"},
                "clusters": settings,
                "scan": {"start_up_grace": "1s"},
                "metrics": f"127.0.0.1:{port}",
                "state": str(folder / "state"),
                "log": {"level": "warning"},
                **as_shipped(),
            }
            config.write_text(yaml.safe_dump(written))
            workers.append(await WorkerProcess.start(folder, config=config, name=f"worker-{index}"))
            stack.push_async_callback(workers[-1].kill)
        connected = Nodewarden.connect(load(config=config), address=temporal.address, namespace="default")
        warden = await stack.enter_async_context(connected)
        benches = [Bench(each, warden, workers[0], temporal) for each in clusters]
        try:
            await _side_by_side([each.begin for each in benches])
            await _side_by_side([each.devices_read for each in benches])
            yield Cell(temporal, workers, list(ports), benches)
        except BaseException:
            print(*(each.tail(20) for each in workers), sep="\n", file=sys.stderr)
            raise


async def measure(count: int, nodes: int, seconds: float, sample: int, chance: random.Random) -> dict[str, Any]:
    """All that is asked of one cell."""
    async with cell(count, nodes) as running:
        benches = chance.sample(running.benches, min(sample, count))
        await running.acted_upon(benches, together=True)  # what is done for the first time only
        await _rest(running.benches)
        found: dict[str, Any] = {"clusters": count, "nodes": nodes, "atRest": await running.at_rest(seconds)}
        found["alone"] = await running.acted_upon(benches * (sample // len(benches)))
        if count == 1:
            return found
        noisy = next(each for each in running.benches if each not in benches[1:])
        flapping = asyncio.create_task(noisy.cluster.flap(FLAPS_EVERY))
        await asyncio.sleep(5)
        quiet = [each for each in benches if each is not noisy]
        found["besideANoisyOne"] = await running.acted_upon(quiet)
        await end(flapping)
        await _rest(quiet)
        killed = running.workers.pop(0)
        running.metrics.pop(0)
        for each in running.benches:
            each.worker = running.workers[0]
        await killed.kill()
        found["afterAKill"] = await running.acted_upon(quiet, together=True)
        return found


def show(one: dict[str, Any], many: dict[str, Any]) -> str:
    """The table for people."""
    count = many["clusters"]
    rows = []
    for key, (title, scale, digits, wanted) in AT_REST.items():
        first, all_ = one["atRest"][key] * scale, many["atRest"][key] * scale
        rows.append([title, number(first, digits), number(all_, digits), number((all_ - first) / (count - 1), digits), wanted])
    texts = [table(["at rest", "1 cluster", f"{count} clusters", "each further one", "wanted"], rows)]
    rows = [
        [title, *(number(found[key][how]) for how in ("p50", "p99", "max"))]
        for title, found, key in (
            ("1 cluster", one, "alone"),
            (f"{count} clusters", many, "alone"),
            ("... beside a noisy one", many, "besideANoisyOne"),
            ("... after one of two workers was killed", many, "afterAKill"),
        )
    ]
    texts.append(table(["seconds from deadline to cordon", "median", "p99", "max"], rows))
    return "\n\n".join(texts)


async def _measure_both(options: argparse.Namespace) -> list[dict[str, Any]]:
    chance = random.Random(options.seed)
    return [await measure(count, options.nodes, options.seconds, options.sample, chance) for count in (1, options.clusters)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clusters", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=20, help="of each")
    parser.add_argument("--seconds", type=float, default=60, help="at rest")
    parser.add_argument("--sample", type=int, default=10, help="clusters of which a node fails")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = asyncio.run(_measure_both(options))
    print(printed(measured, seed=options.seed) if options.json else show(*measured))


if __name__ == "__main__":
    main()
