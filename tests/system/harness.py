"""A whole system on real parts, for tests: a cluster over HTTP, BMCs over UDP, Temporal and its file, workers that can be killed.

`async with System(folder, temporal=temporal) as system:` gives a cluster whose nodes are Ready, with nothing of ours in it yet.
A test then starts workers, applies the check and the template, starts the scanner, breaks something, and waits:

    await system.start_worker()
    await system.apply_policy()
    await system.start_scanner()
    before = system.break_node("node-2", "kernel-hangs")
    result = await system.ended(before)
    assert await system.judge(before, result) == []

Time is compressed: a node is NotReady after a second and back two seconds after its power-on. With `KUBEBUILDER_ASSETS` set the
cluster stands on a real kube-apiserver (`real_api.py`). What really happened is seen by `witness.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from temporalio.client import WorkflowExecutionDescription

from demo.manifests import power_device
from policy.episode.messages import EpisodeResult, episode_id
from policy.episode.node_action import SETTLED
from policy.values.mode import Mode
from simulator.client import ApiClient
from simulator.cluster import SimulatedCluster
from simulator.control import describe
from simulator.machines import MachineOptions
from simulator.objects import JsonObject, is_ready, is_terminating, node_of
from simulator.resources import NODES, Resource
from starter.client import Nodewarden
from starter.errors import RequestError
from tests.documents import path_of
from tests.node_actions import PEOPLE, of_old
from tests.patience import PATIENCE
from tests.system.canary import RUN
from tests.system.nursery import Born, Nursery
from tests.system.real_api import RealApiServer, assets
from tests.system.temporal_server import TemporalServer
from tests.system.witness import Before, Witness, judge, left_over
from tests.system.worker_process import ORDER_VARIABLE, ROOT, WorkerProcess, clean_environment
from workers.configuration.settings import Settings, load
from workers.deployment_keys import OWN_FILE
from workflows.kit.messages import ScannerStatus

CRDS = ROOT / "deploy" / "crds"
TEMPLATE_NAMESPACE, TEMPLATE, CHECK = "nodewarden", "bmc", "workers"
TEMPLATES = Resource(api_version="nodewarden.io/v1alpha1", kind="FencingTemplate", plural="fencingtemplates")
SERVICE_ACCOUNTS = Resource(api_version="v1", kind="ServiceAccount", plural="serviceaccounts")
CHECKS = Resource(
    api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", plural="nodehealthchecks", namespaced=False
)

LOCAL_PAUSE, REMOTE_PAUSE = 0.02, 0.25
"""Seconds between two looks at a condition: in our memory, or at a service that has better things to do."""

Condition = Callable[[], bool | Awaitable[bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast the cluster's clocks go, in seconds."""

    heartbeat: float = 0.4
    grace: float = 1.2
    boot: float = 1.0
    pod_garbage: float = 0.5


FAST_PLAN: Mapping[str, Any] = {
    "waitBeforePower": "1s",
    "retryInterval": "1s",
    "actDeadline": "3s",
    "offTimeout": "4s",
    "freeTimeout": "30s",
    "bootTimeout": "60s",
}
"""A template's durations, as short as they can be without making the simulated hardware look slow."""


class System:
    """See the module. `cluster_name` is how settings, workflow ids and task queues call the cluster; `platform` what its machines
    are; `machines` says how the management cluster is reached, where there is one; `workers_as`: its workers are Machines that a
    MachineSet replaces; `own_disks`: its volumes are disks of the platform; `real_controllers`: those of Kubernetes look after
    it, which needs a real API server; `people`: deploy/people.yaml is in force, which else a chart brings; `users`: who, beside
    kubelets, has a token (`token_of`); `shape`: what else a `SimulatedCluster` is told; `longest_act`: see
    `LONGEST_ACT_VARIABLE`."""

    def __init__(
        self,
        folder: Path,
        *,
        temporal: TemporalServer,
        nursery: Nursery | None = None,
        namespace: str = "",
        cluster_name: str = "sim",
        nodes: int = 4,
        zones: int = 2,
        pace: Pace | None = None,
        demo_workloads: bool = True,
        platform: str = "ipmi",
        settings: Mapping[str, Any] | None = None,
        machines: Mapping[str, Any] | None = None,
        workers_as: MachineOptions | None = None,
        own_disks: bool = False,
        real_controllers: bool = False,
        people: bool = True,
        users: Sequence[str] = (),
        shape: Mapping[str, Any] | None = None,
        longest_act: float | None = None,
    ) -> None:
        self.folder = folder
        self.temporal = temporal
        self._nursery = nursery
        self.namespace = namespace or temporal.namespaces[0]
        self.cluster_name = cluster_name
        self.workers: list[WorkerProcess] = []
        self.real_api: RealApiServer | None = None
        self.config = folder / "nodewarden.yaml"
        self._shape = (nodes, zones)
        self._pace = pace or Pace()
        self._demo_workloads = demo_workloads
        self._platform = platform
        self._more_settings = dict(settings or {})
        self._machines = {"machines": dict(machines)} if machines else {}
        self._workers_as = workers_as
        self._own_disks = own_disks
        self._real_controllers = real_controllers
        self._people = people
        self._users = (*users, *(f"system:node:node-{number}" for number in range(1, nodes + 1)))
        self._of_cluster = dict(shape or {})
        self._longest_act = longest_act
        self._stack = AsyncExitStack()

    # Life ------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.cluster = await self._stack.enter_async_context(await self._make_cluster())
            self.witness = Witness(self.cluster)
            RUN.learn(self.cluster.platform.secret(), self.cluster.platform.wrong_secret(), {"token": self.cluster.token})
            if self.cluster.api is not None:
                RUN.listen(self.namespace, self.cluster.api.store)
            self.client = await self._stack.enter_async_context(ApiClient(self.cluster.address, user_agent="test"))
            self.settings = self._write_settings()
            if self._people:
                await self._know_people()
            connection = Nodewarden.connect(self.settings, address=self.temporal.address, namespace=self.namespace)
            self.warden = await self._stack.enter_async_context(connection)
            self._stack.push_async_callback(self._look_for_secrets)
            self._stack.push_async_callback(self._end_workers)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and not isinstance(error, asyncio.CancelledError):
            await self.show_logs()
        await self._stack.aclose()

    async def show_logs(self) -> None:
        """What each worker said last; pytest shows it beside a failure."""
        for worker in self.workers:
            await worker.tell_where_it_stands()
            print(f"\n--- {worker.log.name} ({'alive' if worker.alive else 'ended'}), {self.cluster_name}", file=sys.stderr)
            print(worker.tail(), file=sys.stderr)

    async def _make_cluster(self) -> SimulatedCluster:
        nodes, zones = self._shape
        where: dict[str, Any] = {}
        if (programs := assets()) is not None:
            real = RealApiServer(programs, self.folder / "api", users=self._users)
            api = self.real_api = await self._stack.enter_async_context(real)
            where = {"api_url": api.url, "api_token": api.token, "api_certificate_authority": api.certificate_authority}
            where["api_audit_log"] = api.audit_log
            if self._real_controllers:
                await api.start_controllers()
                where["controllers_elsewhere"] = True
        return SimulatedCluster(
            nodes=nodes,
            zones=zones,
            heartbeat_seconds=self._pace.heartbeat,
            grace_seconds=self._pace.grace,
            boot_seconds=self._pace.boot,
            pod_garbage_seconds=self._pace.pod_garbage,
            platform=self._platform,
            custom_resource_definitions=[CRDS],
            demo_workloads=self._demo_workloads,
            state_dir=self.folder / "cluster",
            secret_mark=RUN.value,
            machines=self._workers_as,
            own_disks=self._own_disks,
            **self._of_cluster,
            **where,
        )

    def _write_settings(self) -> Settings:
        written = {
            "temporal": {"address": self.temporal.address, "namespace": self.namespace},
            "clusters": {self.cluster_name: {"kubeconfig": str(self.cluster.kubeconfig_path), **self._machines}},
            "scan": {"start_up_grace": "500ms"},
            "worker": {"sticky_timeout": "500ms", "graceful_shutdown": "15s"},
            "state": str(self.folder / "state"),
            "machine_namespaces": ["clusters", "shoot--simulated"],
        }
        for section, values in self._more_settings.items():
            written[section] = {**written.get(section, {}), **values} if isinstance(values, Mapping) else values  # type: ignore[dict-item]
        self.config.write_text(yaml.safe_dump(written))
        settings = load(config=self.config)
        settings.state.mkdir(exist_ok=True)
        keys = settings.state / OWN_FILE  # as a worker would make them, but that they would be found
        keys.touch(mode=0o600)
        keys.write_text(f"{RUN.value}-with-which-the-workers-of-a-test-sign\n")
        return settings

    async def _know_people(self) -> None:
        """The policy by which the API server attests who speaks: since long on a simulated server, where nobody has to wait."""
        for document in PEOPLE:
            await self.client.create(path_of(document), document)
        await self.people_are_known()

    async def people_are_known(self) -> None:
        """Returns once words are believed, after the policy has been made."""
        if self.cluster.api is not None:
            of_old(self.cluster.api.store)
        else:
            await asyncio.sleep(SETTLED.total_seconds() + 1)

    async def token_of(self, user: str) -> str:
        """Of anyone on a simulated API server; on a real one of a service account, a kubelet, and of who is among `users`."""
        if self.cluster.api is not None:
            self.cluster.api.authorization.tokens[token := f"{RUN.value}of-{user}"] = user
            return token
        kind, _, account = user.rpartition("serviceaccount:")
        if not kind:
            assert self.real_api is not None
            return self.real_api.token_of(user)
        namespace, _, name = account.partition(":")
        path = SERVICE_ACCOUNTS.path(name, namespace=namespace, subresource="token")
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str((await self.client.create(path, body))["status"]["token"])

    async def kill_api(self) -> None:
        """The API server is away until `start_api`; a real one is killed."""
        if self.real_api is not None:
            await self.real_api.kill()
        elif self.cluster.api is not None:
            await self.cluster.api.stop()

    async def start_api(self) -> None:
        if self.real_api is not None:
            await self.real_api.start()
        elif self.cluster.api is not None:
            await self.cluster.api.start()

    # Workers ---------------------------------------------------------------------------------------------------------

    async def start_worker(
        self, *, anew: bool = False, environment: Mapping[str, str] | None = None, config: Path | None = None
    ) -> WorkerProcess:
        """One more worker process; it polls as soon as it can. It comes from the nursery, spared its imports, and obeys a
        `KillOrder`. anew: as a user starts one; so is one with an environment of its own, or of a system without a nursery.
        config: of another deployment."""
        name = f"worker-{len(self.workers) + 1}"
        if self._nursery is not None and not anew and environment is None:
            worker = await WorkerProcess.start_killable(
                self.folder, config=config or self.config, name=name, nursery=self._nursery, longest_act=self._longest_act
            )
        else:
            worker = await WorkerProcess.start(self.folder, config=config or self.config, name=name, environment=environment)
        self.workers.append(worker)
        return worker

    async def command(self, *arguments: str, log: Path) -> Born:
        """The command line with these arguments, from the nursery: spared its imports, which cost more than all that it does."""
        assert self._nursery is not None
        environment = clean_environment({ORDER_VARIABLE: str(log.with_suffix(".order"))})
        return await self._nursery.bear(
            ["--config", str(self.config), *arguments], folder=self.folder, environment=environment, log=log
        )

    async def _end_workers(self) -> None:
        if self.settings.metrics and any(worker.alive for worker in self.workers):
            await RUN.look_at_metrics(self.settings.metrics)
        await asyncio.gather(*(worker.kill() for worker in self.workers if worker.alive))

    async def _look_for_secrets(self) -> None:
        """When all is over, where nobody could listen to the API server meanwhile (S12)."""
        if self.cluster.api is None:
            await RUN.look_at_api(self.namespace, self.client)

    # Policy and scanner ----------------------------------------------------------------------------------------------

    async def apply_policy(self, *, plan: Mapping[str, Any] | None = None, check: Mapping[str, Any] | None = None) -> None:
        """A FencingTemplate for all nodes and a NodeHealthCheck that waits a second; `plan`, `check` change their specs."""
        await self.client.create(TEMPLATES.path(namespace=TEMPLATE_NAMESPACE), self.fencing_template(plan))
        await self.client.create(CHECKS.path(), self.health_check(check))

    def fencing_template(self, changes: Mapping[str, Any] | None = None) -> JsonObject:
        """How each node's machine is switched, written as the demo writes it."""
        device = power_device(describe(self.cluster))
        return {
            "apiVersion": TEMPLATES.api_version,
            "kind": TEMPLATES.kind,
            "metadata": {"name": TEMPLATE, "namespace": TEMPLATE_NAMESPACE},
            "spec": {"template": {"spec": {**FAST_PLAN, "power": [device], **(changes or {})}}},
        }

    def health_check(self, changes: Mapping[str, Any] | None = None) -> JsonObject:
        """Workers that are not Ready for a second are fenced, as long as half of them are well."""
        conditions = [{"type": "Ready", "status": status, "duration": "1s"} for status in ("False", "Unknown")]
        kind = {"apiVersion": TEMPLATES.api_version, "kind": TEMPLATES.kind}
        spec = {
            "minHealthy": "51%",
            "selector": {"matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]},
            "unhealthyConditions": conditions,
            "remediationTemplate": {**kind, "namespace": TEMPLATE_NAMESPACE, "name": TEMPLATE},
        }
        return {
            "apiVersion": CHECKS.api_version,
            "kind": CHECKS.kind,
            "metadata": {"name": CHECK},
            "spec": {**spec, **(changes or {})},
        }

    async def start_scanner(self, *, cap: int = 1, mode: Mode = Mode.REPAIR) -> None:
        """Start it and wait until it has seen the cluster."""
        await self.warden.start_scanner(self.cluster_name, cap=cap, mode=mode)

        async def sees() -> bool:
            status = await self.scanner()
            return status is not None and status.report is not None and status.report.lease.held and not status.report.view.stale

        await self.until(sees, "the scanner sees the cluster and holds its Lease", seconds=40)

    async def scanner(self) -> ScannerStatus | None:
        """What the scanner says of itself, None while nobody answers for it."""
        try:
            return await self.warden.scanner_status(self.cluster_name)
        except RequestError:
            return None

    # Accidents and ends ----------------------------------------------------------------------------------------------

    def break_node(self, name: str, how: str = "kernel-hangs") -> Before:
        """One accident; returns how the node stood just before."""
        before = Before.of(self.cluster, name)
        self.cluster.break_node(name, how)
        return before

    def node_of_pod(self, key: str) -> str:
        return self.cluster.node_of_pod(key)

    async def ended(self, before: Before, *, seconds: float = 60.0) -> EpisodeResult:
        """The end of the episode that began after `before`, whatever is killed meanwhile."""
        found: list[EpisodeResult] = []

        async def closed() -> bool:
            handle = self.warden.client.get_workflow_handle(episode_id(self.cluster_name, before.node), result_type=EpisodeResult)
            described = await handle.describe()
            run_id: str | None = described.run_id
            if described.start_time < before.at:
                return False
            if described.close_time is None:
                run_id = await self._completed_before(described, since=before.at)
            if run_id is None:
                return False
            pinned = self.warden.client.get_workflow_handle(handle.id, run_id=run_id, result_type=EpisodeResult)
            found.append(await pinned.result(follow_runs=False))
            return True

        await self.until(closed, f"the episode of {before.node} ends", seconds=seconds, tolerate=True)
        return found[0]

    async def _completed_before(self, now: WorkflowExecutionDescription, *, since: datetime) -> str | None:
        """The run of another kind that ended before this one began, under the same id: a preservation may begin so soon after a
        fencing that nobody has seen the end of that one. None where there is none."""
        query = f"WorkflowId = '{now.id}' AND ExecutionStatus = 'Completed' AND WorkflowType != '{now.workflow_type}'"
        runs = [run async for run in self.warden.client.list_workflows(query) if run.start_time >= since]
        return min(runs, key=lambda run: run.start_time).run_id if runs else None

    async def judge(self, before: Before, result: EpisodeResult, *, seconds: float = 15.0) -> list[str]:
        """Everything that is wrong with an episode that should have recovered its node and left no trace; also its permit."""
        problems = judge(self.cluster, self.witness, before, result)
        problems += await left_over(self.cluster, before)

        async def table_is_empty() -> bool:
            status = await self.scanner()
            return status is not None and not status.permits and not status.queue

        try:
            await self.until(table_is_empty, "the permit table is empty", seconds=seconds)
        except AssertionError as error:
            problems.append(f"incident {result.incident} ended {result.ended}, but {error}")
        return problems

    async def settled(self, *, seconds: float = 30.0) -> None:
        """Every node Ready and schedulable, every pod of a workload running on one, nothing attached twice."""

        await self.until(self.at_rest, "the cluster is at rest", seconds=seconds)

    def at_rest(self) -> bool:
        """The same, now."""
        view = self.cluster.view
        nodes = all(is_ready(node) and not node["spec"].get("unschedulable") for node in view.nodes)
        pods = all(node_of(pod) and is_ready(pod) and not is_terminating(pod) for pod in view.pods)
        wanted = sum(each["spec"]["replicas"] for informer in (view.stateful_sets, view.replica_sets) for each in informer)
        return nodes and pods and sum(1 for _ in view.pods) >= wanted

    async def live_node(self, name: str) -> JsonObject:
        """The Node as the API has it now."""
        return await self.client.get(NODES.path(name))

    async def until(self, condition: Condition, what: str, *, seconds: float = 20.0, tolerate: bool = False) -> None:
        """Wait for a condition. `tolerate`: a service that is away meanwhile is waited for, not failed on."""
        last = ""
        try:
            async with asyncio.timeout(seconds * PATIENCE):
                while True:
                    pause = LOCAL_PAUSE
                    try:
                        answer = condition()
                        if inspect.isawaitable(answer):
                            answer, pause = await answer, REMOTE_PAUSE
                        if answer:
                            return
                    except Exception as error:
                        if not tolerate:
                            raise
                        last, pause = f" (last: {type(error).__name__}: {error})", REMOTE_PAUSE
                    await asyncio.sleep(pause)
        except TimeoutError:
            status = await self.warden.status(self.cluster_name)
            told = f"; the scanner says: {_told(status.scanner)}" if status.scanner else "; no scanner answers"
            told += "".join(f"; {each.node} is {each.phase.value}: {each.doing} {each.problem}" for each in status.episodes)
            told += "".join(f"; the episode of {each.node} does not answer" for each in status.silent)
            ends = "".join(f"; {worker.end}" for worker in self.workers if worker.end)
            raise AssertionError(f"not within {seconds * PATIENCE:.0f} s: {what}{last}{told}{ends}") from None


def _told(status: ScannerStatus) -> str:
    """The lines of a scanner's status that explain why something does not happen."""
    parts = [f"{status.scans} scans, {status.opened} opened", status.problem]
    parts += [f"{permit.node} {permit.state.value} by {permit.incident} since {permit.granted_at}" for permit in status.permits]
    parts += [f"held off {held.node}: {held.reason}" for held in status.held_off]
    parts += [f"refused {refused.node}: {refused.message}" for refused in status.refused]
    if status.report is not None:
        parts += [f"lease: {status.report.lease.problem or 'held'}", f"view: {status.report.view.stale or 'live'}"]
    return "; ".join(part for part in parts if part)
