"""The main job, end to end, with nothing in its way: what it does to the cluster, and how people find and understand it.

Two accidents one after the other in one system: a kubelet that stops while its pods go on writing (the accident in which
freeing without proof would corrupt a volume), and a kernel that hangs with its volumes attached.
"""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowExecutionStatus

from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, Outcome, Phase, episode_id
from simulator.client import ApiError
from simulator.objects import JsonObject, is_ready, is_terminating, name_of, namespace_of, node_of
from simulator.resources import EVENTS, LEASES, STATEFUL_SETS, Resource
from simulator.storage import WriteInterval
from starter.errors import RequestError
from tests.system.fixtures import MakeSystem
from tests.system.harness import CHECK, CHECKS, Pace, System
from tests.system.witness import Before
from workers.temporal_namespace import holder

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

DATABASE, NAMESPACE = "database", "demo"
NODE_FENCES = Resource(api_version="nodewarden.io/v1alpha1", kind="NodeFence", plural="nodefences", namespaced=False)
STEPS = ("isolation", "power-management", "recovery")


class Showing:
    """One accident and everything that was seen until it was over."""

    def __init__(self, system: System, before: Before, pod: str) -> None:
        self.system = system
        self.before = before
        self.pod = pod
        self.statuses: list[EpisodeStatus] = []
        self.details: list[str] = []
        self.checks: list[JsonObject] = []
        self.result: EpisodeResult

    async def watch(self) -> None:
        """Ask the open episode and its check again and again, as people do, until it has ended."""
        episode = self.system.warden.episode(self.system.cluster_name, self.before.node)

        async def over() -> bool:
            try:
                status = await episode.status()
            except RequestError:
                return bool(self.statuses)
            if status.started < self.before.at:
                return False
            self.statuses.append(status)
            self.details.append(await self._details())
            self.checks.append((await self.system.client.get(CHECKS.path(CHECK))).get("status") or {})
            return False

        await self.system.until(over, f"the episode of {self.before.node} has been seen and is over", seconds=60)
        self.result = await self.system.ended(self.before)

    async def _details(self) -> str:
        """The text on the workflow's page."""
        handle = self.system.warden.client.get_workflow_handle(episode_id(self.system.cluster_name, self.before.node))
        metadata: WorkflowMetadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        return metadata.current_details

    def pod_elsewhere(self) -> bool:
        pod = self.system.cluster.view.pods.get(f"{NAMESPACE}/{self.pod}")
        return pod is not None and is_ready(pod) and not is_terminating(pod) and node_of(pod) not in {"", self.before.node}

    def handover(self) -> tuple[WriteInterval, WriteInterval]:
        """The last writer of the pod's volume on the broken node, and its successor."""
        storage = self.system.cluster.storage
        ours = [each for each in storage.intervals if each.pod == f"{NAMESPACE}/{self.pod}"]
        last = max((each for each in ours if each.node == self.before.node), key=lambda each: each.begin)
        following = min((each for each in ours if each.begin > last.begin), key=lambda each: each.begin)
        return last, following


@pytest.fixture
async def system(make_system: MakeSystem) -> System:
    """Five nodes with a StatefulSet of three members and their single-writer volumes, and the job to keep them working.

    The garbage collector of Kubernetes, which looks every 20 s, looks here within an hour only: nobody waits for it.
    """
    running: System = await make_system(nodes=5, zones=3, pace=Pace(pod_garbage=3600.0))
    await running.start_worker(anew=True)
    await running.apply_policy()
    await running.start_scanner()
    await running.settled()
    return running


async def test_a_node_dies_and_its_work_goes_on_without_a_human(system: System) -> None:
    """S1, S2, S5, S28, S32, S35: proven off, freed, back; the member of the StatefulSet runs elsewhere, never twice."""
    for pod, how in (("database-0", "kubelet-stops"), ("database-1", "kernel-hangs")):
        node = system.node_of_pod(f"{NAMESPACE}/{pod}")
        showing = Showing(system, system.break_node(node, how), pod)
        await showing.watch()
        await system.until(showing.pod_elsewhere, f"{pod} runs elsewhere", seconds=20)
        assert await system.judge(showing.before, showing.result) == []
        assert showing.result.outcome is Outcome.RECOVERED
        assert showing.result.freed_pods >= 1
        at = {each.act: each.at for each in showing.result.record}
        assert at["free-workloads"] - at["taint-out-of-service"] < timedelta(seconds=10)
        _status_told_the_story(showing)
        _check_told_the_story(showing)
        await _history_is_readable(showing)
        await _can_be_found(showing)
        await _events_tell(showing)
        await system.settled()
        await _check_is_calm(system)
    assert system.cluster.storage.violations == []
    await _can_be_scaled(system)
    await _lets_go_of_the_cluster(system)


def _status_told_the_story(showing: Showing) -> None:
    """The `status` query and the page say at each moment what is done and why; the proof is in them as soon as there is one."""
    steps = [status.step for status in showing.statuses]
    assert {status.node for status in showing.statuses} == {showing.before.node}
    assert {"power-management"} <= set(steps) <= set(STEPS)
    assert steps == sorted(steps, key=STEPS.index)
    assert all(f"NodeHealthCheck/{CHECK}" in status.reason for status in showing.statuses[1:])
    permits = [status.permit for status in showing.statuses]
    assert permits == sorted(permits, reverse=True), "a permit that was given back stays so"
    assert all(status.permit for status in showing.statuses if status.step != "recovery")
    assert any(status.off_proof is not None for status in showing.statuses)
    assert any(f"`{showing.before.node}`" in text and "off is proven" in text for text in showing.details)


def _check_told_the_story(showing: Showing) -> None:
    """The NodeHealthCheck says whom it remediates, in medik8s' words."""
    in_flight = [status for status in showing.checks if showing.before.node in (status.get("inFlightRemediations") or {})]
    assert in_flight, showing.checks
    assert all(status["phase"] == "Remediating" for status in in_flight)


async def _check_is_calm(system: System) -> None:
    async def calm() -> bool:
        status = (await system.client.get(CHECKS.path(CHECK))).get("status") or {}
        return (status.get("phase"), status.get("healthyNodes"), status.get("observedNodes")) == ("Enabled", 5, 5) and not (
            status.get("inFlightRemediations")
        )

    await system.until(calm, "the check's status says that all is well")


async def _history_is_readable(showing: Showing) -> None:
    """A summary for the workflow and one for each activity and timer, naming its step."""
    handle = showing.system.warden.client.get_workflow_handle(episode_id(showing.system.cluster_name, showing.before.node))
    summary = await (await handle.describe()).static_summary()
    assert summary is not None
    assert showing.before.node in summary
    silent: list[str] = []
    told: list[str] = []
    async for event in handle.fetch_history_events():
        if event.HasField("activity_task_scheduled_event_attributes") or event.HasField("timer_started_event_attributes"):
            text = json.loads(event.user_metadata.summary.data) if event.user_metadata.summary.data else ""
            told.append(text)
            if not text:
                silent.append(f"{event.event_id} {EventType.Name(event.event_type)}")
    assert silent == []
    assert {text.split(":")[0] for text in told} >= set(STEPS)


async def _can_be_found(showing: Showing) -> None:
    """Every search attribute leads to the episode, and to this one alone."""
    system, node = showing.system, showing.before.node
    zone = system.cluster.nodes[node].identity.zone
    started = showing.before.at.isoformat()
    query = (
        f"Cluster = '{system.cluster_name}' AND Node = '{node}' AND Zone = '{zone}' AND Kind = '{Kind.FENCING.value}' "
        f"AND Phase = '{Phase.FINAL.value}' AND Reason STARTS_WITH 'NodeHealthCheck/{CHECK}' AND StartTime >= '{started}'"
    )

    async def found() -> bool:
        runs = [run async for run in system.warden.client.list_workflows(query)]
        return [(run.id, run.status) for run in runs] == [
            (episode_id(system.cluster_name, node), WorkflowExecutionStatus.COMPLETED)
        ]

    await system.until(found, f"visibility finds the episode by {query}", seconds=10)


async def _events_tell(showing: Showing) -> None:
    """`kubectl describe node` shows what was done, with the incident; `kubectl get nodefences` how it stands."""
    fence = await showing.system.client.get(NODE_FENCES.path(f"node-fence-{showing.before.node}"))
    assert (fence["step"], fence["status"], fence["outcome"]) == ("Recovery", "Final", "recovered")
    assert fence["incident"] == showing.result.incident
    listed = await showing.system.client.list(EVENTS.path(namespace="default"))
    ours = [
        event
        for event in listed["items"]
        if event["involvedObject"]["name"] in {showing.before.node, fence["metadata"]["name"]}
        and showing.result.incident in event["message"]
    ]
    ours.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    story = ["NodeIsolated", "NodePoweredOff", "EpisodeEnded"]
    for kind in ("Node", "NodeFence"):
        told = [event["reason"] for event in ours if event["involvedObject"]["kind"] == kind]
        assert [reason for reason in told if reason in story] == story
        assert (told.count("StepStarted"), told.count("StepSucceeded")) <= (3, 3)
        assert len(told) <= 8, "each of it once"
    assert "recovered" in next(event["message"] for event in ours if event["reason"] == "EpisodeEnded")


async def _can_be_scaled(system: System) -> None:
    """Nothing of the old members is in the way of new ones, or of their going."""
    path = STATEFUL_SETS.path(DATABASE, namespace=NAMESPACE)
    for replicas in (5, 1, 3):
        await system.client.patch(path, {"spec": {"replicas": replicas}})

        def scaled(replicas: int = replicas) -> bool:
            pods = [
                pod
                for pod in system.cluster.view.pods
                if namespace_of(pod) == NAMESPACE and name_of(pod).startswith(f"{DATABASE}-")
            ]
            names = {name_of(pod) for pod in pods if is_ready(pod) and not is_terminating(pod)}
            return len(pods) == replicas and names == {f"{DATABASE}-{number}" for number in range(replicas)}

        await system.until(scaled, f"the StatefulSet has {replicas} members that run", seconds=30)
    assert system.cluster.storage.violations == []


async def _lets_go_of_the_cluster(system: System) -> None:
    """The cluster Lease was ours while the scanner ran, and is given back when it is stopped (S38)."""
    path = LEASES.path("nodewarden", namespace="kube-system")
    lease = await system.client.get(path)
    assert lease["spec"]["holderIdentity"] == await holder(system.warden.client)
    await system.warden.stop_scanner(system.cluster_name, who="test", reason="it is over")

    async def gone() -> bool:
        try:
            await system.client.get(path)
        except ApiError as error:
            if error.not_found:
                return True
            raise
        return False

    await system.until(gone, "the cluster Lease is given back")
