"""A month of a fleet in a minute: a real scanner on Temporal's clock, which skips the time in which nothing happens.

The cluster is a simulated API server whose Nodes change as `simulator/fleet_history.py` has it. What reads it, judges it and
answers the scanner is what a worker has. Only the wait is another: a scan that has nothing new to say is tried again at the next
moment at which something happens, and the server skips that pause, as it does with every timer. So the scanner, its records and
the cluster live by one clock, which is ahead of ours.
"""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from temporalio import activity
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment
from temporalio.testing._timeskipping import TimeSkippingConfig
from temporalio.worker import Worker

from activities.cluster.acts.cluster_lease import ScannerLease
from activities.cluster.acts.scan import ClusterObservations, ClusterScan
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.watch.freshness import ViewLimits
from activities.cluster.watch.view import ClusterView
from activities.contracts import search_attributes
from activities.contracts.scan import ScanRequest
from activities.errors import ErrorType, failure
from activities.temporal_clients import ObservationStarter
from activities.worker_clock import utc_now
from demo.manifests import NAMESPACE, fencing_template, health_check
from demo.simulation import CRDS
from policy.scan.scan_report import ScanReport
from simulator.cluster import SimulatedCluster
from simulator.fleet_history import MIN_HEALTHY, MONTH, TIMEOUT, Event, FleetHistory
from simulator.objects import JsonObject
from simulator.resources import NODES
from workers.composition import workflow_serving
from workers.embedded.server import find_binary
from workers.interceptors.activity_guards import Liveness
from workers.plugin import PLUGIN
from workers.worker import activities_of
from workflows.kit.options import cluster_queue

LONGEST_WAIT = timedelta(hours=6)
"""Between two answers to the scanner."""
START = timedelta(seconds=10)
AT_LEAST = timedelta(milliseconds=1)
SKIPS = 100_000
SERVER = (
    "frontend.WorkflowTimeSkippingEnabled=true",
    'history.timerProcessorMaxTimeShift="10ms"',
    "history.timerProcessorMaxPollRPS=2000",
    "history.transferProcessorMaxPollRPS=2000",
)


class Clock:
    """Temporal's, as the scan knows it: never behind ours."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def now(self) -> datetime:
        """The moment."""
        return utc_now() + self._ahead

    def follow(self, moment: datetime) -> None:
        """It is that late by now."""
        self._ahead = max(self._ahead, moment - utc_now())


class MonthScan(ClusterScan):
    """A worker's scan of a cluster that changes by a script. over: set once the month is."""

    def __init__(self, cluster: str, view: ClusterView, simulated: SimulatedCluster, history: FleetHistory, clock: Clock) -> None:
        super().__init__(cluster, view, lease=ScannerLease(view.connection, clock=clock.now), clock=clock.now)
        self._simulated = simulated
        self._temporals = clock
        self._history = history
        self._start: datetime | None = None
        self._events: deque[Event] = deque()
        self.over = asyncio.Event()

    @activity.defn(name="scan.observe-cluster")
    async def observe_cluster(self, request: ScanRequest) -> ScanReport:
        """Answers at once what is new. Else it is tried again at the next moment at which something happens."""
        info = activity.info()
        self._temporals.follow(info.started_time)
        if self._start is None:
            self._start = (info.started_time + timedelta(minutes=1)).replace(second=0, microsecond=0)
            self._events.extend(self._history.events(self._start))
        end, answer_by = self._start + MONTH, info.scheduled_time + LONGEST_WAIT
        now = self._temporals.now()
        await self._let_happen(now)
        if now >= end:
            self.over.set()
            return await super().observe_cluster(request)
        report = await super().observe_cluster(replace(request, wait=timedelta(0) if self.view.synced else START))
        if report.digest != request.known_digest or now >= answer_by:
            return report
        moments = [end, answer_by, *(self._start + each.at for each in list(self._events)[:1])]
        moments += [due] if (due := self.view.ledger.next_due) is not None else []
        raise failure(ErrorType.TRANSIENT, "nothing happens until then", retry_after=max(min(moments) - now, AT_LEAST))

    async def _let_happen(self, now: datetime) -> None:
        """What is due by the script, and wait until the view has it."""
        assert self._start is not None
        written: dict[str, str | None] = {}
        while self._events and self._start + self._events[0].at <= now:
            event = self._events.popleft()
            written[event.name] = await self._write(event)
        while written and not self._sees(written):  # noqa: ASYNC110 - a view's own event is for scans
            await asyncio.sleep(0.003)

    async def _write(self, event: Event) -> str | None:
        """The version of the Node after it, None for one that is gone."""
        client, path = self._simulated.client, NODES.path(event.name)
        if event.node is None:
            await client.delete(path)
            return None
        known = {each.name for each in self.view.ledger.nodes()}
        if event.name not in known:
            created = await client.create(NODES.path(), event.node)
            return str(created["metadata"]["resourceVersion"])
        by_people = {"unschedulable": event.node["spec"].get("unschedulable")}
        owned = {"managedFields": event.node["metadata"].get("managedFields", [])}
        await client.patch(path, {"metadata": owned, "spec": by_people})
        changed = await client.patch(NODES.path(event.name, subresource="status"), {"status": event.node["status"]})
        return str(changed["metadata"]["resourceVersion"])

    def _sees(self, written: dict[str, str | None]) -> bool:
        seen = {each.name: each.resource_version for each in self.view.ledger.nodes()}
        return all(seen.get(name) == version for name, version in written.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """One under way. now: by the clock of Temporal and the cluster."""

    client: Client
    kubeconfig: Path
    over: asyncio.Event
    now: Callable[[], datetime]


@asynccontextmanager
async def month(cluster: str, history: FleetHistory, *, state: Path) -> AsyncIterator[Month]:
    """Runs all of it but the scanner, which a client starts."""
    warnings.filterwarnings("ignore", "Cannot find activity to cancel")  # the scan that goes on when all is over
    async with AsyncExitStack() as stack:
        simulated = SimulatedCluster(
            nodes=0, demo_workloads=False, controllers_elsewhere=True, custom_resource_definitions=[CRDS], state_dir=state
        )
        await stack.enter_async_context(simulated)
        for path, manifest in _manifests():
            await simulated.client.create(path, manifest)
        env = await WorkflowEnvironment.start_time_skipping_v2(
            ts_config=TimeSkippingConfig(max_session_skip_count=SKIPS),
            dev_server_existing_path=str(find_binary()),
            dev_server_extra_args=["--output", "none", *(f"--dynamic-config-value={setting}" for setting in SERVER)],
            dev_server_log_level="error",
            plugins=[PLUGIN],
            search_attributes=search_attributes.ALL,
        )
        await stack.enter_async_context(env)
        connection = await stack.enter_async_context(ClusterConnection.to(simulated.url, token=simulated.token))
        clock = Clock()
        view = ClusterView(connection, clock=clock.now, limits=ViewLimits(grace=timedelta(0)))
        scan = await stack.enter_async_context(MonthScan(cluster, view, simulated, history, clock))
        serving = workflow_serving(env.client, page="")
        await stack.enter_async_context(
            Worker(env.client, task_queue=serving.queue, workflows=serving.workflows, activities=serving.activities)
        )
        starter = ObservationStarter(env.client, task_queue=serving.queue)
        records = ClusterObservations(ServedCluster(cluster, connection, clock=clock.now), start=starter.start)
        activities = activities_of(scan, records)
        await stack.enter_async_context(
            Worker(env.client, task_queue=cluster_queue(cluster), activities=activities, interceptors=[Liveness()])
        )
        yield Month(client=env.client, kubeconfig=simulated.kubeconfig_path, over=scan.over, now=clock.now)


def _manifests() -> Iterator[tuple[str, JsonObject]]:
    """What an operator would apply: a template, and a check as the plan of the month has it."""
    platform = {"name": "redfish", "address": "192.0.2.1", "port": 443, "authority": "/etc/ssl/certs/ca.pem"}
    template = fencing_template({"platform": platform, "nodes": {}, "secret": f"{NAMESPACE}/bmc"})
    yield f"/apis/nodewarden.io/v1alpha1/namespaces/{NAMESPACE}/fencingtemplates", template
    check = health_check()
    spec = check["spec"] | {"minHealthy": MIN_HEALTHY}
    spec["unhealthyConditions"] = [each | {"duration": f"{TIMEOUT.seconds}s"} for each in spec["unhealthyConditions"]]
    yield "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks", check | {"spec": spec}
