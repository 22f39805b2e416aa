"""How fast a sick node is noticed: from the moment its condition's time-out expires to its episode's first activity.

Everything is real: the Temporal dev server, a worker, the simulated API server over HTTP with its watches. The same run
measures a small and a large cluster side by side, because absolute times say more about the machine than about us, while
their ratio shows whether anything loops over the nodes. No power is touched: the templates' wait is long, and every node
comes back before it ends. Measured on the server's own clock (`ActivityTaskStarted`), on the machine that also makes the load.

    python -m benchmarks.detection [--samples 50] [--sizes 12 2000]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from policy.ids import episode_id
from policy.moments import RESOLUTION
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient, ApiError
from starter.client import Nodewarden
from workers import process
from workers.connect import start_runtime
from workers.settings import Settings, load
from workers.together import alongside

CRDS = (Path(__file__).parent.parent / "deploy" / "crds", Path(__file__).parent.parent / "simulator" / "crds")
DURATION = timedelta(seconds=2)
TOKEN = "abc"  # noqa: S105 - the simulated API server's own, on the loopback
AT_ONCE = 5
"""Samples under way side by side; staggered, so that each expires at a moment of its own."""


class Bench:
    """One cluster of a given size, and the samples taken on it."""

    def __init__(self, size: int, client: ApiClient, warden: Nodewarden) -> None:
        self.cluster = f"size-{size}"
        self._size = size
        self._client = client
        self._warden = warden

    async def prepare(self) -> None:
        """Nodes, a template, a check; then the scanner, until it has seen them all."""
        for path in (path for folder in CRDS for path in sorted(folder.glob("*.yaml"))):
            await self._client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(path.read_text()))
        await asyncio.gather(*(self._create_node(number) for number in range(self._size)))
        await self._client.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nodewarden"}}
        )
        await self._retry("/apis/nodewarden.io/v1alpha1/namespaces/nodewarden/fencingtemplates", _template())
        await self._retry("/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks", _check())
        await self._warden.start_scanner(self.cluster, cap=AT_ONCE * 2)
        async with asyncio.timeout(60):
            while True:
                status = await self._warden.status(self.cluster)
                report = status.scanner.report if status.scanner else None
                if report is not None and report.inventory == self._size and not report.view.stale and report.lease.held:
                    return
                await asyncio.sleep(0.2)

    async def sample(self, number: int) -> timedelta:
        """Break a node, wait for its episode's first activity, mend it; returns the delay."""
        node = f"node-{number % self._size}"
        since = datetime.now(UTC).replace(microsecond=0)
        await self._set_ready(node, "Unknown", since)
        expires = since + DURATION + RESOLUTION
        handle = self._warden.client.get_workflow_handle(episode_id(self.cluster, node))
        async with asyncio.timeout(60):
            started = await self._first_activity(handle, after=since)
            await self._set_ready(node, "True", datetime.now(UTC).replace(microsecond=0))
            await handle.result()
        return started - expires

    async def _first_activity(self, handle: Any, *, after: datetime) -> datetime:
        from temporalio.service import RPCError

        while True:
            try:
                description = await handle.describe()
                if description.start_time >= after:
                    async for event in handle.fetch_history_events(wait_new_event=True):
                        if event.HasField("activity_task_started_event_attributes"):
                            moment: datetime = event.event_time.ToDatetime(tzinfo=UTC)
                            return moment
            except RPCError:
                await asyncio.sleep(0.05)  # not started yet
            await asyncio.sleep(0.05)

    async def _create_node(self, number: int) -> None:
        name = f"node-{number}"
        await self._client.create(
            "/api/v1/nodes",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": "a"}},
                "spec": {"providerID": f"bench://{name}"},
                "status": {"nodeInfo": {"bootID": f"boot-{number}"}, "conditions": [_ready("True", datetime.now(UTC))]},
            },
        )

    async def _set_ready(self, node: str, status: str, since: datetime) -> None:
        path = f"/api/v1/nodes/{node}/status"
        await self._client.patch(path, {"status": {"conditions": [_ready(status, since)]}})

    async def _retry(self, path: str, body: dict[str, Any]) -> None:
        """A kind is served a moment after its definition was accepted."""
        async with asyncio.timeout(10):
            while True:
                try:
                    await self._client.create(path, body)
                except ApiError as error:
                    if not error.not_found:
                        raise
                    await asyncio.sleep(0.05)
                else:
                    return


def _ready(status: str, since: datetime) -> dict[str, str]:
    return {"type": "Ready", "status": status, "reason": "Bench", "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _template() -> dict[str, Any]:
    power = {"driver": "ipmi", "parameters": {"ip": "{{ .NodeName }}.invalid"}, "secretRef": {"name": "none"}}
    return {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "FencingTemplate",
        "metadata": {"name": "bench", "namespace": "nodewarden"},
        "spec": {"template": {"spec": {"waitBeforePower": "1h", "power": [power]}}},
    }


def _check() -> dict[str, Any]:
    seconds = f"{DURATION.total_seconds():g}s"
    return {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": "bench"},
        "spec": {
            "minHealthy": 1,
            "selector": {"matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]},
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": seconds}],
            "remediationTemplate": {
                "apiVersion": "nodewarden.io/v1alpha1",
                "kind": "FencingTemplate",
                "namespace": "nodewarden",
                "name": "bench",
            },
        },
    }


async def measure(sizes: list[int], samples: int) -> dict[int, list[timedelta]]:
    """All clusters in one run, their samples interleaved, so that the machine's moods hit them alike."""
    async with AsyncExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodewarden-bench-")))
        servers = {size: await stack.enter_async_context(ApiServer()) for size in sizes}
        kubeconfigs = {size: state / f"kubeconfig-{size}" for size in sizes}
        for size, server in servers.items():
            kubeconfigs[size].write_text(server.kubeconfig())
        settings = _settings(state, kubeconfigs)
        start_runtime(metrics=settings.metrics)
        running = await stack.enter_async_context(process.temporal(settings, embed=True))
        warden = Nodewarden(running.client)
        benches = {
            size: Bench(
                size,
                await stack.enter_async_context(ApiClient(ApiAddress(url=server.url, token=TOKEN))),
                warden,
            )
            for size, server in servers.items()
        }
        delays: dict[int, list[timedelta]] = {size: [] for size in sizes}

        async def take(bench: Bench, number: int, size: int) -> None:
            await asyncio.sleep(0.37 * (number % AT_ONCE))
            delays[size].append(await bench.sample(number))

        async def run() -> None:
            for bench in benches.values():
                await bench.prepare()
            for first in range(0, samples, AT_ONCE):
                for size, bench in benches.items():
                    numbers = range(first, min(first + AT_ONCE, samples))
                    await asyncio.gather(*(take(bench, number, size) for number in numbers))
                print(".", end="", flush=True)
            print()
            running.stop.set()

        await alongside(process.work(settings, running, clusters=settings.connections()), run())
        return delays


def _settings(state: Path, kubeconfigs: dict[int, Path]) -> Settings:
    path = state / "nodewarden.yaml"
    written = {
        "clusters": {f"size-{size}": {"kubeconfig": str(kubeconfig)} for size, kubeconfig in kubeconfigs.items()},
        "scan": {"start_up_grace": "1s"},
        "state": str(state / "temporal"),
        "log": {"level": "error"},
    }
    path.write_text(yaml.safe_dump(written))
    return load(config=path)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__)
    parser.add_argument("--samples", type=int, default=50, help="per cluster size")
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 2000], metavar="NODES")
    options = parser.parse_args()
    delays = asyncio.run(measure(options.sizes, options.samples))
    print("from the expiry of a condition's time-out to the start of its episode's first activity")
    print(f"{'nodes':>8} {'samples':>8} {'median':>10} {'p99':>10} {'worst':>10}")
    medians: list[float] = []
    for size, found in delays.items():
        milliseconds = sorted(delay / timedelta(milliseconds=1) for delay in found)
        medians.append(statistics.median(milliseconds))
        p99 = milliseconds[min(len(milliseconds) - 1, int(len(milliseconds) * 0.99))]
        print(f"{size:>8} {len(found):>8} {medians[-1]:>7.0f} ms {p99:>7.0f} ms {milliseconds[-1]:>7.0f} ms")
    if len(medians) > 1:
        print(f"ratio of medians, largest to smallest cluster: {medians[-1] / medians[0]:.2f}")


if __name__ == "__main__":
    main()
