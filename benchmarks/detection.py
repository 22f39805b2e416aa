"""How fast a sick node is acted upon, visibly: until the object that asks for remediation is there, or the node is cordoned.

A Temporal dev server and a worker as processes; in this one a simulated API server over HTTP with its watches, and nodes that
are nothing but objects, which report as often as real kubelets do. Two health checks are measured, each on a cluster of its own:
one has an operator remediate (a SelfNodeRemediation, as the NodeHealthCheck operator makes it), the other fences (the cordon;
before it the power device is read, at a simulated Compute Engine). No power is touched: what would follow waits long, and every
node comes back before. Nodes fail one alone, and ten at the same moment.

Moments are the API server's at the writing of the object, counted from the node's deadline: a second after its condition's
time-out (`policy/values/times.py`). Beside them stand the start of the episode's first activity, by Temporal's clock, and the
bare floor: what Temporal needs for an event in a long poll, a scanner, and a first activity, with nothing of ours
(`stage/floor.py`). A small and a large cluster in one run show whether anything loops over the nodes.

    python -m benchmarks.detection [--sizes 500] [--large] [--acts object cordon] [--alone 20] [--rounds 10] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count as counting
from pathlib import Path
from typing import Any

import yaml
from temporalio.client import Client

from benchmarks.stage import floor
from benchmarks.stage.figures import Spread, number, printed, table
from benchmarks.stage.histories import history_cost
from benchmarks.stage.processes import cpu_time, resident_megabytes
from benchmarks.stage.running import as_shipped
from policy.episode.messages import episode_id
from policy.values.times import RESOLUTION
from simulator.api.server import ApiServer
from simulator.api.storage.kinds import StorageKey
from simulator.api.storage.store import ADDED, DELETED, Change
from simulator.client import ApiAddress, ApiClient, ApiError
from simulator.cloud.gce import GceEndpoint
from simulator.objects import JsonObject, timestamp
from starter.client import Nodewarden
from tests.system.temporal_server import TemporalServer
from tests.system.worker_process import ROOT, WorkerProcess
from workers.configuration.settings import load
from workflows.scanner.state import ScannerInput

CRDS = (ROOT / "deploy" / "crds", ROOT / "simulator" / "crds", ROOT / "simulator" / "crds" / "self-node-remediation")
DURATION = timedelta(seconds=2)
TOGETHER = 10
TOKEN = "abc"  # noqa: S105 - the simulated API server's own, on the loopback
NAMESPACE, SECRET = "nodewarden", "gce-credentials"
PROJECT, ZONE = "nodewarden-bench", "us-central1-a"
REPORT_EVERY = timedelta(minutes=5)
"""How often a kubelet reports the status of a node to which nothing happens."""
AT_ONCE = 50
PATIENCE = 60.0
AFTERWARDS = 1.0
"""Seconds after the last end of a round that are still counted as its cost."""

SELF_NODE_REMEDIATION = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediationTemplate"}
REMEDIATIONS: StorageKey = ("self-node-remediation.medik8s.io", "selfnoderemediations")
NODES: StorageKey = ("", "nodes")
ACTS = ("object", "cordon")
WANTED = {
    "alone": "<= 0.25 / 0.4",
    f"{TOGETHER} together": "<= 0.4 / 0.8",
}


class Cluster:
    """Nodes that are objects only, and a check over them. act: which visible act its remediation begins with."""

    def __init__(self, size: int, act: str, api: ApiServer, client: ApiClient, cloud: GceEndpoint, *, name: str = "") -> None:
        self.size = size
        self.act = act
        self.name = name or f"{act}-{size}"
        self.api = api
        self._client = client
        self._cloud = cloud
        self._next = 0
        self._ready: dict[str, tuple[str, datetime]] = {}
        self._acted: dict[str, asyncio.Future[datetime]] = {}
        api.store.listeners.append(self._written)

    async def prepare(self) -> None:
        """Nodes with their machines, the template, the check."""
        for path in (path for folder in CRDS for path in sorted(folder.glob("*.yaml"))):
            await self._client.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(path.read_text()))
        slots = asyncio.Semaphore(AT_ONCE)

        async def create(name: str) -> None:
            async with slots:
                await self._create_node(name)

        await asyncio.gather(*(create(f"node-{number}") for number in range(self.size)))
        await self._client.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        )
        await self._client.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", self._secret())
        template = self._template()
        group = f"/apis/{template['apiVersion']}/namespaces/{NAMESPACE}/{template['kind'].lower()}s"
        await self._create_served(group, template)
        await self._create_served("/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks", _check(template))

    async def report(self) -> None:
        """For ever: the nodes report that nothing has changed, each as often as a kubelet does."""
        while True:
            for name in list(self._ready):
                await asyncio.sleep(REPORT_EVERY / self.size / timedelta(seconds=1))
                await self._write_status(name)

    async def flap(self, seconds: float) -> None:
        """For ever: so often another node says that it is not ready, or ready again."""
        for turn in counting():
            name = f"node-{turn % self.size}"
            self._ready[name] = ("Unknown" if self._ready[name][0] == "True" else "True", datetime.now(UTC))
            await self._write_status(name)
            await asyncio.sleep(seconds)

    def victims(self, count: int) -> list[str]:
        """The next ones, so that none is taken again before all others were."""
        found = [f"node-{(self._next + number) % self.size}" for number in range(count)]
        self._next += count
        return found

    async def break_(self, names: Iterable[str]) -> tuple[datetime, dict[str, asyncio.Future[datetime]]]:
        """All of them in one moment; answers their deadline, and what will tell when each was acted upon."""
        since = datetime.now(UTC).replace(microsecond=0)
        for name in names:
            self._ready[name] = ("Unknown", since)
            self._acted[name] = asyncio.get_running_loop().create_future()
        await asyncio.gather(*(self._write_status(name) for name in names))
        return since + DURATION + RESOLUTION, {name: self._acted[name] for name in names}

    async def mend(self, names: Iterable[str]) -> None:
        """They are Ready again, without a boot."""
        for name in names:
            self._ready[name] = ("True", datetime.now(UTC))
        await asyncio.gather(*(self._write_status(name) for name in names))

    def _written(self, storage: StorageKey, change: Change) -> None:
        if change.type == DELETED:
            return
        if self.act == "object":
            acted = storage == REMEDIATIONS and change.type == ADDED
        else:
            acted = storage == NODES and bool(change.record.document["spec"].get("unschedulable"))
        told = self._acted.get(change.record.name) if acted else None
        if told is not None and not told.done():
            told.set_result(datetime.now(UTC))

    async def _create_node(self, name: str) -> None:
        self._cloud.add_instance(PROJECT, ZONE, name)
        self._ready[name] = ("True", datetime.now(UTC))
        labels = {"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": ZONE, "kubernetes.io/hostname": name}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": f"gce://{PROJECT}/{ZONE}/{name}"},
            "status": {"nodeInfo": {"bootID": f"boot-of-{name}"}, "conditions": self._conditions(name)},
        }
        await self._client.create("/api/v1/nodes", body)

    async def _write_status(self, name: str) -> None:
        await self._client.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": self._conditions(name)}})

    def _conditions(self, name: str) -> list[JsonObject]:
        status, since = self._ready[name]
        kept = {"lastHeartbeatTime": timestamp(), "lastTransitionTime": timestamp(since), "reason": "Bench"}
        pressures = [{"type": f"{what}Pressure", "status": "False", **kept} for what in ("Memory", "Disk", "PID")]
        return [*pressures, {"type": "Ready", "status": status, **kept}]

    def _secret(self) -> JsonObject:
        values = {"service-account-json": self._cloud.service_account()}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}, "stringData": values}

    def _template(self) -> JsonObject:
        metadata = {"name": "bench", "namespace": NAMESPACE}
        if self.act == "object":
            return {**SELF_NODE_REMEDIATION, "metadata": metadata, "spec": {"template": {"spec": {}}}}
        power = {"driver": "gce", "parameters": {"api-endpoint": self._cloud.url}, "secretRef": {"name": SECRET}}
        spec = {"template": {"spec": {"waitBeforePower": "1h", "power": [power]}}}
        return {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "metadata": metadata, "spec": spec}

    async def _create_served(self, path: str, body: JsonObject) -> None:
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


def _check(template: JsonObject) -> JsonObject:
    reference = {"apiVersion": template["apiVersion"], "kind": template["kind"], "namespace": NAMESPACE, "name": "bench"}
    return {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": "bench"},
        "spec": {
            "minHealthy": 1,
            "selector": {"matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]},
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": f"{DURATION.total_seconds():g}s"}],
            "remediationTemplate": reference,
        },
    }


@dataclass(slots=True, kw_only=True)
class Round:
    """Some nodes that failed in one moment. Seconds after their deadline; CPU seconds of worker and Temporal."""

    visible: list[float]
    begun: list[float]
    spent_until_visible: float
    spent: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """CPU seconds per second, and memory, while nothing happens but reports of nodes."""

    worker: float
    temporal: float
    worker_megabytes: float
    temporal_megabytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One cluster: `alone`, and so many `together`; what nodes did and what the floor was, by that name."""

    act: str
    size: int
    together: int
    rounds: dict[str, list[Round]]
    floor: dict[str, list[float]]
    idle: Idle

    def cost_together(self) -> tuple[float, float]:
        """CPU seconds of worker and Temporal for all that fail together: until the last act is visible; and to the end of their
        episodes, less what both use anyway."""
        found = self.rounds[_together(self.together)]
        idle = (self.idle.worker + self.idle.temporal) * sum(each.seconds for each in found) / len(found)
        return (
            sum(each.spent_until_visible for each in found) / len(found),
            sum(each.spent for each in found) / len(found) - idle,
        )

    def as_json(self) -> dict[str, Any]:
        """Seconds, fractions of a core, megabytes."""
        until_visible, whole = self.cost_together()
        return {
            "act": self.act,
            "nodes": self.size,
            "failing": {
                how: {
                    "visible": Spread.of([value for each in rounds for value in each.visible]).as_json(),
                    "firstActivity": Spread.of([value for each in rounds for value in each.begun]).as_json(),
                    "floor": Spread.of(self.floor[how]).as_json(),
                }
                for how, rounds in self.rounds.items()
            },
            "cpuTogether": {"untilVisible": until_visible, "whole": whole},
            "idleCores": {"worker": self.idle.worker, "temporal": self.idle.temporal},
            "megabytes": {"worker": self.idle.worker_megabytes, "temporal": self.idle.temporal_megabytes},
        }


def _together(count: int) -> str:
    return f"{count} together"


class Bench:
    """A worker for one cluster, and what it costs."""

    def __init__(self, cluster: Cluster, warden: Nodewarden, worker: WorkerProcess, temporal: TemporalServer) -> None:
        self.cluster = cluster
        self.name = cluster.name
        self._warden = warden
        self.worker = worker
        self._temporal = temporal

    async def begin(self) -> None:
        """The scanner, until it has seen all nodes."""
        await self._warden.start_scanner(self.cluster.name, cap=2 * TOGETHER)
        async with asyncio.timeout(PATIENCE):
            while True:
                status = await self._warden.status(self.cluster.name)
                report = status.scanner.report if status.scanner else None
                seen = report is not None and report.inventory == self.cluster.size
                if report is not None and seen and not report.view.stale and report.lease.held:
                    return
                await asyncio.sleep(0.5)

    async def devices_read(self) -> None:
        """Which they are soon after a policy names them, and then once in hours: nothing that an idle cluster does."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if await self._warden.device_check(self.cluster.name).last_report() is not None:
                    return
                await asyncio.sleep(0.5)

    async def rests(self) -> None:
        """Until its scan rests: a whole one has brought nothing since the last node was acted upon."""
        while True:
            if (await self._warden.scanner_status(self.cluster.name)).wait > ScannerInput().wait:
                return
            await asyncio.sleep(1)

    async def idle(self, seconds: float) -> Idle:
        """What it costs while nothing happens."""
        await asyncio.sleep(2)
        worker, temporal = self._spent()
        await asyncio.sleep(seconds)
        worker_now, temporal_now = self._spent()
        return Idle(
            worker=(worker_now - worker) / seconds,
            temporal=(temporal_now - temporal) / seconds,
            worker_megabytes=resident_megabytes(self.worker.pid),
            temporal_megabytes=resident_megabytes(self._temporal.pid),
        )

    async def round(self, count: int) -> Round:
        """Break so many, see each of them acted upon, mend them, and wait until their episodes have ended."""
        loop, names = asyncio.get_running_loop(), self.cluster.victims(count)
        began, spent = loop.time(), sum(self._spent())
        since = datetime.now(UTC)
        deadline, acted = await self.cluster.break_(names)
        try:
            # `wait_for` of a gathering that is cancelled leaves an exception that is never retrieved.
            async with asyncio.timeout(PATIENCE):
                moments = await asyncio.gather(*acted.values())
        except TimeoutError:
            missing = [name for name, told in acted.items() if not told.done() or told.cancelled()]
            raise TimeoutError(f"{self.cluster.name}: not acted upon within {PATIENCE:.0f} s: {', '.join(missing)}") from None
        spent_until_visible = sum(self._spent()) - spent
        await self.cluster.mend(names)
        ids = [episode_id(self.cluster.name, name) for name in names]
        client = self._warden.client
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(client.get_workflow_handle(each).result() for each in ids))
        await asyncio.sleep(AFTERWARDS)
        whole, seconds = sum(self._spent()) - spent, loop.time() - began
        costs = [await history_cost(client, each, since=since) for each in ids]
        begun = [cost.first_activity for cost in costs if cost.first_activity is not None]
        return Round(
            visible=[(moment - deadline).total_seconds() for moment in moments],
            begun=[(moment - deadline).total_seconds() for moment in begun],
            spent_until_visible=spent_until_visible,
            spent=whole,
            seconds=seconds,
        )

    def _spent(self) -> tuple[float, float]:
        return cpu_time(self.worker.pid).total, cpu_time(self._temporal.pid).total


@asynccontextmanager
async def running(size: int, act: str) -> AsyncIterator[tuple[Bench, Client, Path]]:
    """One cluster with its worker, the client of the floor's namespace, and the folder with `nodewarden.yaml`."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodewarden-bench-")))
        temporal = await stack.enter_async_context(TemporalServer(folder, namespaces=["default", "floor"]))
        api = await stack.enter_async_context(ApiServer(tokens={TOKEN: "admin"}))
        client = await stack.enter_async_context(ApiClient(ApiAddress(url=api.url, token=TOKEN), user_agent="bench"))
        cluster = Cluster(size, act, api, client, await stack.enter_async_context(GceEndpoint()))
        await cluster.prepare()
        reports = asyncio.create_task(cluster.report(), name="reports of the nodes")
        stack.push_async_callback(end, reports)
        (folder / "kubeconfig").write_text(api.kubeconfig())
        config = folder / "nodewarden.yaml"
        written = {
            "temporal": {"address": temporal.address, "namespace": "default"},
            "clusters": {cluster.name: {"kubeconfig": str(folder / "kubeconfig")}},
            "scan": {"start_up_grace": "1s"},
            "state": str(folder / "state"),
            "log": {"level": "warning"},
            **as_shipped(),
        }
        config.write_text(yaml.safe_dump(written))
        worker = await WorkerProcess.start(folder, config=config)
        stack.push_async_callback(worker.kill)
        connection = Nodewarden.connect(load(config=config), address=temporal.address, namespace="default")
        bench = Bench(cluster, await stack.enter_async_context(connection), worker, temporal)
        try:
            await bench.begin()
            floor_client = await Client.connect(temporal.address, namespace="floor")
            yield bench, floor_client, folder
        except BaseException:
            print(worker.tail(20), file=sys.stderr)
            raise


async def end(task: asyncio.Task[None]) -> None:
    """Cancel it."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def measure(size: int, act: str, *, alone: int, rounds: int, idle: float, together: int = TOGETHER) -> Measured:
    """One cluster, and right after it the floor on the same Temporal server, in the same mood of the machine."""
    hows = {"alone": (1, alone), _together(together): (together, rounds)}
    async with running(size, act) as (bench, floor_client, folder):
        await bench.round(1)  # whatever is done for the first time only
        if act == "cordon":
            await bench.devices_read()
        at_rest = await bench.idle(idle)
        found = {how: [await bench.round(count) for _ in range(times)] for how, (count, times) in hows.items()}
        bare = await floor.start_worker(floor_client.service_client.config.target_host, "floor", folder / "floor.log")
        try:
            await floor.delays(floor_client, rounds=1, victims=1)
            floors = {how: await floor.delays(floor_client, rounds=times, victims=count) for how, (count, times) in hows.items()}
        finally:
            bare.kill()
            await bare.wait()
    return Measured(act=act, size=size, together=together, rounds=found, floor=floors, idle=at_rest)


def show(measured: list[Measured]) -> str:
    """The table for people."""
    head = ["seconds after the deadline: median / p99 / max", "visible act", "first activity", "bare floor", "wanted"]
    rows = []
    for each in measured:
        act = "the object is there" if each.act == "object" else "the node is cordoned"
        for how, rounds in each.rounds.items():
            spreads = [
                Spread.of([value for one in rounds for value in one.visible]),
                Spread.of([value for one in rounds for value in one.begun]),
                Spread.of(each.floor[how]),
            ]
            stated = (" / ".join(number(value) for value in (one.median, one.p99, one.largest)) for one in spreads)
            rows.append([f"{each.size} nodes, {act}, {how}", *stated, WANTED.get(how, "")])
    costs = [["", "CPU of ten until visible, s", "to the end, s", "idle, % of a core", "worker + Temporal, MB"]]
    for each in measured:
        until_visible, whole = each.cost_together()
        idle = each.idle
        percent = f"{(idle.worker + idle.temporal) * 100:.1f} ({idle.worker * 100:.1f} + {idle.temporal * 100:.1f})"
        memory = f"{idle.worker_megabytes:.0f} + {idle.temporal_megabytes:.0f}"
        costs.append([f"{each.size} nodes, {each.act}", number(until_visible), number(whole), percent, memory])
    costs.append(["wanted", "", "<= 1", "<= 1 at 500 nodes", ""])
    return f"{table(head, rows)}\n\n{table(costs[0], costs[1:])}"


async def _measure_all(options: argparse.Namespace) -> list[Measured]:
    sizes = [*options.sizes, *([5000] if options.large else [])]
    return [
        await measure(size, act, alone=options.alone, rounds=options.rounds, idle=options.idle)
        for size in sizes
        for act in options.acts
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[500], metavar="NODES")
    parser.add_argument("--large", action="store_true", help="also 5,000 nodes")
    parser.add_argument("--acts", nargs="+", default=list(ACTS), choices=ACTS)
    parser.add_argument("--alone", type=int, default=20, help="nodes that fail alone, one after the other")
    parser.add_argument("--rounds", type=int, default=10, help=f"of {TOGETHER} nodes that fail together")
    parser.add_argument("--idle", type=float, default=20, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = asyncio.run(_measure_all(options))
    print(printed([each.as_json() for each in measured]) if options.json else show(measured))


if __name__ == "__main__":
    main()
