"""Fence devices are read by the clock and when asked; told once when one falls silent, once when it is back; never in the way."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.contracts import metrics
from activities.contracts.device_check import (
    READ_AT_ONCE,
    DeviceReadingActivities,
    DevicesRead,
    FenceDeviceActivities,
    FenceDevices,
    FenceDevicesRequest,
    NodeNames,
    NodeNamesRequest,
    PublishDeviceNoticesRequest,
    ReadDevicesRequest,
)
from activities.errors import ErrorType, error_type, failure
from activities.our_workflows import OurWorkflows
from activities.temporal_clients import DeviceCheckClient
from policy.episode.messages import device_check_id
from policy.fence.device_check import (
    DeviceAnswer,
    DeviceMemory,
    DeviceNotice,
    DeviceReport,
    DeviceRow,
    DeviceToCheck,
    NodeToCheck,
    Reachability,
)
from policy.fence.plan import CredentialRef, PowerDevice
from policy.fence.power import PowerState
from tests.replay.recording import keep_history
from tests.workflows.surroundings import Measured
from workers.interceptors.activity_guards import Liveness
from workflows.definitions.device_check import BATCH, HISTORY_LIMIT, PAGE, DeviceCheck, DeviceCheckPage
from workflows.kit import continuation
from workflows.kit.messages import CheckRequest, DeviceCheckInput, DeviceCheckResult, PageToCheck
from workflows.kit.options import cluster_queue, power_queue

HOUR = timedelta(hours=1)
LATENCY = 0.02
"""Of a batch, in seconds; long enough for another one to come in between, if anything let it."""
REFUSED = "{}: the BMC refuses our password"


@dataclass
class Devices(FenceDeviceActivities, DeviceReadingActivities):
    """A cluster whose devices a test lets fall silent. `rounds`: what is silent in the first, second, ... check of all nodes.

    No more than `allowed` of them are begun: nothing else would stop a clock that skips.
    """

    nodes: dict[str, NodeToCheck] = field(default_factory=dict)
    rounds: list[set[str]] = field(default_factory=list)
    checked: int = 0
    allowed: int = 0
    held_back: bool = False
    may_begin: asyncio.Event = field(default_factory=asyncio.Event)
    list_errors: int = 0
    telling_errors: int = 0
    told: list[DeviceNotice] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    batches: list[tuple[str, int]] = field(default_factory=list)
    at_once: Counter[str] = field(default_factory=Counter)
    most_at_once: Counter[str] = field(default_factory=Counter)
    gate: asyncio.Event | None = None
    insecurity: str = ""
    unreadable: str = ""

    def put(self, name: str, *, site: str = "default", devices: int = 1, **more: Any) -> None:
        """A node with its BMCs."""
        found = tuple(
            DeviceToCheck(device=PowerDevice(driver="ipmi", endpoint=f"ipmi://{name}-{number}:623", site=site))
            for number in range(1, devices + 1)
        )
        self.nodes[name] = NodeToCheck(**({"node": name, "uid": f"uid-{name}", "publishes": True, "devices": found} | more))

    def allow(self, rounds: int) -> None:
        """So many checks of all devices, from the first."""
        self.allowed = rounds
        self.held_back = False
        self.may_begin.set()

    @activity.defn(name="device-check.list-nodes")
    async def list_nodes(self, request: NodeNamesRequest) -> NodeNames:
        if self.list_errors:
            self.list_errors -= 1
            raise failure(ErrorType.FORBIDDEN, "nodes is forbidden")
        while self.checked >= self.allowed:
            self.held_back = True
            self.may_begin.clear()
            await self.may_begin.wait()
        self.held_back = False
        self.checked += 1
        return NodeNames(names=tuple(sorted(self.nodes)))

    @activity.defn(name="device-check.find-devices")
    async def find_devices(self, request: FenceDevicesRequest) -> FenceDevices:
        assert len(request.nodes) <= PAGE
        if self.unreadable in request.nodes:
            raise failure(ErrorType.INVALID_CONFIG, f"{self.unreadable} is a riddle")
        gone = [NodeToCheck(node=name, problem=f"Node/{name}: there is no such Node") for name in request.nodes]
        return FenceDevices(nodes=tuple(self.nodes.get(each.node, each) for each in gone))

    @activity.defn(name="device-check.notify")
    async def publish_device_notices(self, request: PublishDeviceNoticesRequest) -> None:
        if self.telling_errors:
            self.telling_errors -= 1
            raise failure(ErrorType.FORBIDDEN, "events is forbidden")
        self.told += request.notices

    @activity.defn(name="device-check.read-devices")
    async def read_devices(self, request: ReadDevicesRequest) -> DevicesRead:
        if self.gate is not None:
            await self.gate.wait()
        site = request.devices[0].device.site
        self.batches.append((site, len(request.devices)))
        self.at_once[site] += 1
        self.most_at_once[site] = max(self.most_at_once[site], self.at_once[site])
        await asyncio.sleep(LATENCY)
        self.at_once[site] -= 1
        answers = (self._answer(each.device.endpoint) for each in request.devices)
        return DevicesRead(answers=tuple(replace(each, insecurity=self.insecurity) for each in answers))

    def _answer(self, endpoint: str) -> DeviceAnswer:
        self.read.append(endpoint)
        at = activity.info().current_attempt_scheduled_time
        silent = self.rounds[min(self.checked, len(self.rounds)) - 1] if self.rounds else set()
        if endpoint in silent:
            return DeviceAnswer(endpoint=endpoint, answer=Reachability.SILENT, at=at, problem=REFUSED.format(endpoint))
        state, latency = PowerState.ON, timedelta(milliseconds=120)
        return DeviceAnswer(endpoint=endpoint, answer=Reachability.ANSWERS, at=at, state=state, latency=latency)


@dataclass
class Check:
    """A running check of a cluster of its own."""

    cluster: str
    devices: Devices
    client: Client
    queue: str

    @property
    def handle(self) -> WorkflowHandle[Any, DeviceCheckResult]:
        return self.client.get_workflow_handle_for(DeviceCheck.run, device_check_id(self.cluster))

    async def start(self, *, repeat: timedelta | None = None, heard: str = "", **changes: Any) -> None:
        """repeat: with that signal, as `scan start` does; heard: with that of policies."""
        signal: dict[str, Any] = {"start_signal": "repeat", "start_signal_args": [repeat]} if repeat is not None else {}
        if heard:
            signal = {"start_signal": "note_policies", "start_signal_args": [heard]}
        await self.client.start_workflow(
            DeviceCheck.run,
            DeviceCheckInput(cluster=self.cluster, **changes),
            id=device_check_id(self.cluster),
            task_queue=self.queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            **signal,
        )

    async def asked(self, node: str = "", *, admit: bool = False) -> DeviceReport:
        """As the command asks: starting it for the question where it does not run."""
        if not node:
            self.devices.allow(self.devices.allowed + 1)
        start = WithStartWorkflowOperation(
            DeviceCheck.run,
            DeviceCheckInput(cluster=self.cluster, every=None),
            id=device_check_id(self.cluster),
            task_queue=self.queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        return await self.client.execute_update_with_start_workflow(
            DeviceCheck.check, CheckRequest(node=node, admit=admit), start_workflow_operation=start
        )

    async def rounds(self, number: int) -> DeviceReport:
        """Let so many checks of all devices be made by the clock that skips, and wait for the next one; the last one's report."""
        self.devices.allow(number)
        async with asyncio.timeout(20):
            while not self.devices.held_back:
                await asyncio.sleep(0.01)
        report = await self.handle.query(DeviceCheck.report)
        assert report is not None
        return report

    async def stopped(self) -> DeviceCheckResult:
        """Stop it, and let the check end that is under way."""
        await self.handle.signal(DeviceCheck.stop)
        self.devices.allow(self.devices.allowed + 1)
        return await asyncio.wait_for(self.handle.result(), 20)


@pytest.fixture
def env(server: WorkflowEnvironment) -> WorkflowEnvironment:
    """The real one: a check is begun and asked in one, with the worker's own interceptors."""
    return server


@asynccontextmanager
async def checking(
    env: WorkflowEnvironment, devices: Devices, *sites: str, client: Client | None = None, **options: Any
) -> AsyncIterator[Check]:
    """Workers for a cluster of its own. sites: those served, besides `default`. client, options: of the workflow's worker."""
    cluster = f"c{uuid.uuid4().hex[:8]}"
    check = Check(cluster, devices, env.client, f"checks-{cluster}")
    for name, node in devices.nodes.items():  # sites of its own, since other tests use the same server
        devices.nodes[name] = _moved(node, cluster)
    async with AsyncExitStack() as stack:
        find = [devices.list_nodes, devices.find_devices, devices.publish_device_notices]
        serving: list[dict[str, Any]] = [{"task_queue": cluster_queue(cluster), "activities": find}]
        serving += [
            {"task_queue": power_queue(f"{cluster}-{site}"), "activities": [devices.read_devices]} for site in ("default", *sites)
        ]
        for each in serving:
            await stack.enter_async_context(Worker(env.client, interceptors=[Liveness()], **each))
        worker = Worker(client or env.client, task_queue=check.queue, workflows=[DeviceCheck, DeviceCheckPage], **options)
        await stack.enter_async_context(worker)
        try:
            yield check
        finally:
            with contextlib.suppress(RPCError):  # it has ended
                await check.handle.terminate("the test is over")


def _moved(node: NodeToCheck, cluster: str) -> NodeToCheck:
    moved = [replace(each, device=replace(each.device, site=f"{cluster}-{each.device.site}")) for each in node.devices]
    return replace(node, devices=tuple(moved))


def lines(report: DeviceReport) -> list[tuple[str, str, str]]:
    return [(row.node, row.endpoint, row.problem or row.warning) for row in report.rows]


def row_of(report: DeviceReport, node: str) -> DeviceRow:
    (row,) = [row for row in report.rows if row.node == node]
    return row


BMC = "ipmi://node-1-1:623"


async def test_s49_a_page_is_read_for_the_check_of_its_cluster_alone(env: WorkflowEnvironment) -> None:
    """Any client could have each device of a cluster read, with its credentials, in as many pages side by side as it began."""
    devices = Devices()
    devices.put("node-1")
    async with checking(env, devices) as check:
        page = PageToCheck(cluster=check.cluster, nodes=("node-1",), also_held=True)
        with pytest.raises(WorkflowFailureError) as refused:
            await check.client.execute_workflow(DeviceCheckPage.run, page, id=uuid.uuid4().hex, task_queue=check.queue)
        assert f"'device-check/{check.cluster}' to ask" in str(refused.value.cause)
    assert devices.read == []


async def test_a_device_that_falls_silent_and_comes_back_is_told_exactly_once_each_way(env: WorkflowEnvironment) -> None:
    """Hour after hour; and how long ago it last answered is right after hours of silence."""
    devices = Devices(rounds=[set(), {BMC}, {BMC}, set(), set()])
    devices.put("node-1")
    devices.put("node-2")
    async with checking(env, devices) as check:
        await check.start()
        first = await check.rounds(1)
        assert [row.answer for row in first.rows] == [Reachability.ANSWERS, Reachability.ANSWERS]
        answered_at = row_of(first, "node-1").last_success
        assert answered_at is not None
        report = await check.rounds(5)
        await check.stopped()
        await keep_history(check.handle)
    silent, back = devices.told
    assert (silent.node, silent.node_uid, silent.endpoint) == ("node-1", "uid-node-1", BMC)
    assert (silent.reason.value, back.reason.value) == ("FenceDeviceSilent", "FenceDeviceAnswers")
    assert silent.since == back.since == answered_at
    assert "refuses our password" in silent.message
    assert report.problems == 0


async def test_a_device_of_two_nodes_is_told_on_both_and_is_a_problem_of_both(env: WorkflowEnvironment) -> None:
    """S39: also where they are on different pages."""
    devices = Devices()
    for number in range(PAGE + 1):
        devices.put(f"node-{number:02}")
    last = f"node-{PAGE:02}"
    devices.nodes[last] = replace(devices.nodes[last], devices=devices.nodes["node-00"].devices)
    async with checking(env, devices) as check:
        await check.start()
        report = await check.rounds(3)
        shared = await asking(check).shared(check.cluster)
    (device,) = devices.nodes[last].devices
    assert shared == {device.device.endpoint: {"node-00", last}}  # which looks go by
    assert [(each.node, each.reason.value) for each in devices.told] == [
        ("node-00", "FenceDeviceShared"),
        (last, "FenceDeviceShared"),
    ]
    assert [row.node for row in report.rows if row.problem] == ["node-00", last]


async def test_what_only_reading_needs_is_in_no_history_but_that_of_its_page(env: WorkflowEnvironment) -> None:
    """So that no size of a cluster ends the check: Temporal ends a history of 50 MB. One page needs none of its own."""
    devices, marked = Devices(), {"ip": "only-reading-needs-it"}
    for number in range(PAGE + 1):
        devices.put(f"node-{number:02}")
    for name, node in devices.nodes.items():
        (one,) = node.devices
        devices.nodes[name] = replace(node, devices=(replace(one, device=replace(one.device, parameters=marked)),))
    async with checking(env, devices) as check:
        report = await check.asked()
        begun = await check.handle.fetch_history()
        pages = [await env.client.get_workflow_handle(each).fetch_history() for each in _children(begun)]
        await check.asked("node-07")
        later = _children(await check.handle.fetch_history())  # of this run, or of another one that the question has begun
    assert (report.devices, report.answering, len(pages)) == (PAGE + 1, PAGE + 1, 2)
    assert later in ([], _children(begun))
    assert "only-reading-needs-it" not in _decoded(begun)
    assert all("only-reading-needs-it" in _decoded(each) for each in pages)


def _children(history: WorkflowHistory) -> list[str]:
    begun = [each for each in history.events if each.HasField("start_child_workflow_execution_initiated_event_attributes")]
    return [each.start_child_workflow_execution_initiated_event_attributes.workflow_id for each in begun]


def _decoded(history: WorkflowHistory) -> str:
    return "".join(base64.b64decode(each).decode() for each in re.findall(r'"data": "([^"]+)"', history.to_json()))


async def test_a_page_that_cant_be_read_fails_the_question(env: WorkflowEnvironment) -> None:
    """S39: what is known of the other pages alone is no check of all."""
    devices = Devices(unreadable="node-24")
    for number in range(PAGE + 1):
        devices.put(f"node-{number:02}")
    async with checking(env, devices) as check:
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await check.asked()
        assert error_type(refused.value) is ErrorType.INVALID_CONFIG
        assert f"the cluster {check.cluster} can't be read: node-24 is a riddle" in str(refused.value.cause)


async def test_s40_where_a_credential_may_go_is_learnt_once_and_then_admitted_by_a_person(env: WorkflowEnvironment) -> None:
    """Also by whoever goes on: in another history, and in the next run."""

    def move(host: str) -> None:
        (before,) = devices.nodes["node-1"].devices
        moved = replace(before.device, parameters={"ip": host}, credentials=(CredentialRef(name="bmc", namespace="nodewarden"),))
        devices.nodes["node-1"] = replace(devices.nodes["node-1"], devices=(replace(before, device=moved),))

    devices, secret = Devices(), "Secret/nodewarden/bmc"
    devices.put("node-1")
    move("10.0.0.7")
    async with checking(env, devices) as check:
        await check.start()
        claims = asking(check)
        await check.asked("node-1")
        assert await claims.hosts(check.cluster) == {}
        await check.rounds(1)
        assert await claims.hosts(check.cluster) == {secret: ("10.0.0.7",)}
        move("10.6.6.6")
        await check.rounds(2)
        await check.asked("node-1")
        assert await claims.hosts(check.cluster) == {secret: ("10.0.0.7",)}
        await check.asked("node-1", admit=True)
        assert await claims.hosts(check.cluster) == {secret: ("10.0.0.7", "10.6.6.6")}
        devices.allow(3)
        async with asyncio.timeout(10):  # a run that replaces it knows it
            while (await begun_with(check)).memory.hosts != {secret: ("10.0.0.7", "10.6.6.6")}:
                await asyncio.sleep(0.02)
        assert (await check.stopped()).memory.hosts == {secret: ("10.0.0.7", "10.6.6.6")}
        assert await asking(check).hosts("a-cluster-without-one") == {}
        assert await asking(check).hosts(check.cluster) == {secret: ("10.0.0.7", "10.6.6.6")}, "it has ended, and is remembered"
        assert await asking(check, queue="another").hosts(check.cluster) == {}, "S49: what another queue's worker says"


def asking(check: Check, *, queue: str = "") -> DeviceCheckClient:
    """A worker's side of it. queue: of our workflows, where it is not the check's."""
    client = check.client
    return DeviceCheckClient(client, OurWorkflows(client, task_queue=queue or check.queue))


async def begun_with(check: Check) -> DeviceCheckInput:
    """What a run begins with that replaces this one."""
    begun = await anext(check.handle.fetch_history_events())
    payloads = begun.workflow_execution_started_event_attributes.input.payloads
    (request,) = await check.client.data_converter.decode(payloads, [DeviceCheckInput])
    return request


async def test_the_interval_that_people_set_begins_a_history(env: WorkflowEnvironment) -> None:
    """A run whose history no code can replay is replaced by one that begins with the same."""
    async with checking(env, Devices()) as check:
        await check.start(every=HOUR)
        await check.handle.signal(DeviceCheck.repeat, HOUR / 2)
        async with asyncio.timeout(10):
            while (await begun_with(check)).every == HOUR:
                await asyncio.sleep(0.02)
        assert (await begun_with(check)).every == HOUR / 2
        begun = await anext(check.handle.fetch_history_events())
        policy = begun.workflow_execution_started_event_attributes.retry_policy
        assert policy.maximum_interval.ToTimedelta() == continuation.ANEW.maximum_interval, "whatever has started it"


async def test_many_devices_are_read_a_few_at_a_time_at_each_site(env: WorkflowEnvironment) -> None:
    """So that fencing never waits: one request per site at once, whoever else asks, each with a few devices side by side."""
    devices = Devices()
    for number in range(PAGE + 5):
        devices.put(f"node-{number}", site="oslo" if number % 2 else "default", devices=2)
    async with checking(env, devices, "oslo") as check:
        report, *single = await asyncio.gather(check.asked(), *(check.asked("node-7") for _ in range(3)))
    assert (report.nodes, report.devices, report.answering, report.problems) == (PAGE + 5, 2 * PAGE + 10, 2 * PAGE + 10, 0)
    assert [each.devices for each in single] == [2, 2, 2]
    assert set(devices.most_at_once.values()) == {1}
    assert max(count for _, count in devices.batches) <= BATCH
    assert READ_AT_ONCE <= 4
    assert sum(count for _, count in devices.batches) == 2 * PAGE + 10 + 6


async def test_a_node_of_an_open_episode_is_left_alone_unless_it_is_asked_for(env: WorkflowEnvironment) -> None:
    """Its devices are the episode's; and silence then is the episode's to tell."""
    devices = Devices(rounds=[{BMC}])
    devices.put("node-1", held="incident-1")
    devices.put("node-2")
    async with checking(env, devices) as check:
        report = await check.asked()
        assert lines(report)[0] == (
            "node-1",
            BMC,
            "not read: incident incident-1 is open; `nodewarden fence check --node node-1` reads it all the same",
        )
        assert (report.devices, report.answering) == (2, 1), "a device that nobody read is no device that answers"
        assert devices.read == ["ipmi://node-2-1:623"]
        alone = await check.asked("node-1")
    assert (row_of(alone, "node-1").answer, alone.problems) == (Reachability.SILENT, 1)
    assert devices.told == []


async def test_a_site_that_no_worker_serves_is_said_and_is_no_silence(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3: nobody has asked the devices, so nothing is known of them, and nothing is told of them."""
    monkeypatch.setattr("workflows.kit.options.CHECK_PATIENCE", timedelta(seconds=1))
    devices = Devices()
    devices.put("node-1", site="nowhere")
    devices.put("node-2")
    async with checking(env, devices) as check:
        report = await check.asked()
    row = row_of(report, "node-1")
    assert (row.answer, row.state, report.answering) == (Reachability.UNREAD, PowerState.UNKNOWN, 1)
    assert "no worker took it from the task queue power." in row.problem
    assert devices.told == []


async def test_a_cluster_that_cant_be_read_fails_the_question_and_is_tried_again_soon_by_the_clock(
    env: WorkflowEnvironment,
) -> None:
    """What the API refuses is tried again for three minutes, as it refuses everybody for a moment after its start."""
    devices = Devices(list_errors=50)
    devices.put("node-1")
    async with checking(env, devices) as check:
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await check.asked()
        assert error_type(refused.value) is ErrorType.FORBIDDEN
        assert "can't be read: nodes is forbidden" in str(refused.value.cause)
        devices.list_errors = 25
        await check.start(repeat=HOUR)
        report = await check.rounds(1)
        started = (await check.handle.describe()).start_time
    assert report.began - started < timedelta(minutes=20)


@pytest.mark.parametrize(("known", "soon"), [("", True), ("before", True), ("now", False)])
async def test_new_policies_are_read_at_once_and_known_by_the_clock(env: WorkflowEnvironment, known: str, soon: bool) -> None:
    """Every process of a cluster tells of them, and does so again when it starts."""
    devices = Devices()
    devices.put("node-1")
    async with checking(env, devices) as check:
        await check.start(heard="now", memory=DeviceMemory(policies=known))
        report = await check.rounds(1)
        started = (await check.handle.describe()).start_time
        assert (report.began - started < timedelta(minutes=4)) is soon
        assert (await check.stopped()).memory.policies == "now"


async def test_a_long_history_is_left_behind_with_nothing_forgotten(env: WorkflowEnvironment) -> None:
    """What was told is not told again, and the last success is known."""
    devices = Devices(rounds=[set(), {BMC}])
    devices.put("node-1")
    async with checking(env, devices) as check:
        await check.start()
        await check.rounds(2)
        first_run = (await check.handle.describe()).run_id
        for _ in range(HISTORY_LIMIT // 100):
            await asyncio.gather(*(check.handle.signal(DeviceCheck.repeat, HOUR) for _ in range(100)))
        report = await check.rounds(4)
        assert (await check.handle.describe()).run_id != first_run
    assert [each.reason.value for each in devices.told] == ["FenceDeviceSilent"]
    assert row_of(report, "node-1").last_success is not None


async def test_each_unanswered_reading_is_counted_by_a_metric_that_is_there_before(
    env: WorkflowEnvironment, measured: Measured
) -> None:
    devices = Devices(rounds=[set(), {BMC}, {BMC}, set()])
    devices.put("node-1")
    async with checking(env, devices, client=measured.client) as check:
        await check.start()
        await check.rounds(4)
    assert [update.value for update in measured.updates(metrics.DEVICE_INSECURE)] == [0, 0, 0, 0]
    counted = measured.updates(metrics.DEVICE_SILENT)
    assert [update.value for update in counted][:4] == [0, 1, 1, 0]
    labels = {key: counted[0].attributes[key] for key in ("cluster", "node", "endpoint")}
    assert labels == {"cluster": check.cluster, "node": "node-1", "endpoint": BMC}


@pytest.mark.parametrize("cluster", ["", "another"])
async def test_an_input_that_does_not_fit_the_workflow_id_is_refused(env: WorkflowEnvironment, cluster: str) -> None:
    devices = Devices()
    async with checking(env, devices) as check:
        await env.client.start_workflow(
            DeviceCheck.run, DeviceCheckInput(cluster=cluster), id=device_check_id(check.cluster), task_queue=check.queue
        )
        with pytest.raises(WorkflowFailureError) as refused:
            await check.handle.result()
    assert error_type(refused.value) is ErrorType.INVALID_CONFIG


async def test_a_page_is_read_for_its_check_alone(env: WorkflowEnvironment) -> None:
    """S49: not for a client that starts it."""
    devices = Devices()
    devices.put("node-1")
    async with checking(env, devices) as check:
        page = PageToCheck(cluster=check.cluster, nodes=("node-1",))
        with pytest.raises(WorkflowFailureError) as refused:
            await env.client.execute_workflow(DeviceCheckPage.run, page, id=f"{check.cluster}-page", task_queue=check.queue)
    assert error_type(refused.value) is ErrorType.INVALID_CONFIG
    assert devices.read == []


async def test_what_could_not_be_told_is_told_by_the_next_check(env: WorkflowEnvironment) -> None:
    devices = Devices(rounds=[{BMC}], telling_errors=2)  # both attempts of the first check
    devices.put("node-1")
    async with checking(env, devices) as check:
        await check.start()
        await check.rounds(3)
    assert [each.since for each in devices.told] == [None]
