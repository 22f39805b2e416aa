"""The typed client against a real Temporal server."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock, Mock

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest, RespondWorkflowTaskFailedRequest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from activities.contracts import search_attributes
from activities.our_workflows import BUSY
from activities.temporal_clients import ObservationStarter
from policy.episode.messages import FencingInput, NeedKind, Outcome, Phase, device_check_id, scanner_id
from policy.history.spells import OBSERVATION, Ending, NodeDays, ObservationRecord, Spell
from policy.values.display_text import STAND_IN
from policy.values.mode import Mode
from policy.values.object_refs import ObjectRef
from starter.client import Nodewarden
from starter.errors import EpisodeHeldError, MissingError, RefusedError, RequestError, SilentError
from starter.handles import calls
from starter.handles.calls import task_failure
from starter.handles.history import History
from starter.handles.observations import Observations
from tests.replay.recording import keep_history
from tests.starter.standins import ScannerStandIn
from tests.workers.server import SILENT
from tests.workflows.test_asking_for_the_permit import full
from workers.configuration.settings import load
from workers.errors import OLD_MOMENT
from workers.temporal_namespace import holder
from workflows.definitions.device_check import DeviceCheck
from workflows.definitions.episodes import RecordedObservation
from workflows.definitions.scanner import HealthScanner
from workflows.kit import options
from workflows.kit.messages import DeviceCheckInput
from workflows.kit.options import WORKFLOW_QUEUE
from workflows.scanner.state import ScannerInput
from workflows.scanner.story import NOT_TAKEN_OVER

TEMPLATE = ObjectRef(api_version="nodewarden.io/v1alpha1", kind="FencingTemplate", name="ipmi", namespace="nodewarden")


async def test_a_fencing_starts_with_all_that_people_look_for(warden: Nodewarden, cluster: str) -> None:
    episode = await warden.fence(cluster, "node-1", reason="smells of smoke", requester="amy", template=TEMPLATE)
    assert not episode.joined
    handle = warden.client.get_workflow_handle(f"episode/{cluster}/node-1", run_id=episode.run_id)
    described = await handle.describe()
    assert described.workflow_type == "Fencing"
    assert await described.static_summary() == "node-1: smells of smoke"
    assert {pair.key.name: pair.value for pair in described.typed_search_attributes} | {"BuildIds": None} == {
        "Cluster": cluster,
        "Node": "node-1",
        "Zone": "",
        "Kind": "Fencing",
        "Phase": "new",
        "Reason": "smells of smoke",
        "BuildIds": None,
    }
    started = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
    (sent,) = await warden.client.data_converter.decode(started.input.payloads, [FencingInput])
    assert (sent.cluster, sent.node, sent.template, sent.permit_granted) == (cluster, "node-1", TEMPLATE, False)
    assert sent.need.kind is NeedKind.PERSON
    assert (await described.memo())["incident"] == sent.incident == (await episode.status()).incident


async def test_what_a_command_reads_of_an_episode_is_cleaned_for_people(warden: Nodewarden, cluster: str) -> None:
    """S50: also in `nodewarden up`, whose client is its workers' own: their plugin must not put the raw converter back."""
    episode = await warden.fence(cluster, "node-1", reason="smoke\x1b[2J\nnodewarden: off is proven")
    assert (await episode.status()).reason == f"smoke{STAND_IN}[2J nodewarden: off is proven"


@pytest.mark.parametrize("status", [RPCStatusCode.UNKNOWN, RPCStatusCode.UNAVAILABLE])
async def test_a_command_is_refused_to_the_person_while_temporal_is_away(
    warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch, status: RPCStatusCode
) -> None:
    """S44: also where the connection breaks in the middle."""

    async def breaks(*_arguments: object, **_options: object) -> None:
        raise RPCError("transport error", status, b"")

    monkeypatch.setattr(warden.client.workflow_service, "describe_namespace", breaks)
    monkeypatch.setattr(warden, "_expect_served", AsyncMock())
    monkeypatch.setattr(WorkflowHandle, "describe", breaks)
    for command in (
        warden.preserve(cluster, "node-1", reason="to look at it"),
        warden.start_scanner(cluster),
        warden.episode(cluster, "node-1").is_open(),
    ):
        with pytest.raises(SilentError, match="Temporal is not available: transport error"):
            await command


async def test_the_same_request_joins_and_a_different_one_is_refused_with_the_holders_name(
    warden: Nodewarden, cluster: str
) -> None:
    """S13."""
    first = await warden.fence(cluster, "node-1", reason="smoke", requester="amy")
    again = await warden.fence(cluster, "node-1", reason="smoke", requester="amy")
    assert again.joined
    assert again.run_id == first.run_id
    for reason, requester in (("noise", "amy"), ("smoke", "bob")):
        with pytest.raises(EpisodeHeldError) as refusal:
            await warden.fence(cluster, "node-1", reason=reason, requester=requester)
        assert refusal.value.holder == f"Fencing {(await first.status()).incident} (in progress): smoke"
    with pytest.raises(EpisodeHeldError):
        await warden.fence(cluster, "node-1", reason="smoke", requester="amy", template=TEMPLATE)


async def test_a_retried_request_is_recognised_by_its_incident(warden: Nodewarden, cluster: str) -> None:
    incident = uuid.uuid4().hex[:12]
    first = await warden.fence(cluster, "node-1", reason="smoke", incident=incident)
    again = await warden.fence(cluster, "node-1", reason="said in other words", incident=incident)
    assert again.joined
    assert again.run_id == first.run_id


async def test_an_episode_can_be_asked_told_and_waited_for(warden: Nodewarden, cluster: str) -> None:
    await warden.fence(cluster, "sick-1", reason="smoke")
    episode = warden.episode(cluster, "sick-1")
    assert await episode.is_open()
    assert (await episode.status()).phase is Phase.NEEDS_HUMAN
    assert await warden.episode(cluster, "sick-1").resume(who="amy", reason="password mended", question=7) == "goes on for amy"
    assert await episode.hold(who="amy", reason="wait") == "held by amy"
    assert await warden.episode(cluster, "sick-1").ack_off(who="amy", reason="pulled the plug", question=7) == "off acknowledged"
    assert (await episode.result()).message == "by amy: pulled the plug"
    assert not await episode.is_open()
    assert [entry.act for entry in await episode.record()] == ["off-proven"]


async def test_power_on_after_an_abort_is_passed_on(warden: Nodewarden, cluster: str) -> None:
    """S35: it is a decision of its own."""
    episode = await warden.fence(cluster, "node-1", reason="smoke")
    await warden.episode(cluster, "node-1").abort(who="amy", reason="enough", power_on=True)
    assert (await episode.result()).message == "by amy: enough, power on"


async def test_a_terminated_episode_has_no_result(warden: Nodewarden, cluster: str) -> None:
    episode = await warden.fence(cluster, "node-1", reason="smoke")
    await warden.client.get_workflow_handle(episode.workflow_id).terminate("by hand")
    with pytest.raises(RequestError, match="ended without a result"):
        await episode.result()


async def test_a_program_hears_at_once_that_no_worker_serves_the_cluster(warden: Nodewarden, unserved: str) -> None:
    """S37: an episode of it would end a minute later, for it waits in vain for its first look."""
    for began in (warden.fence, warden.remediate, warden.preserve):
        with pytest.raises(SilentError, match=rf"^no worker serves the cluster {unserved}, and it has never had a scanner"):
            await began(unserved, "node-1", reason="smoke")
    with pytest.raises(SilentError, match=f"^no worker serves the cluster {unserved}"):
        await warden.check_devices(unserved)
    assert not await warden.episode(unserved, "node-1").is_open()


async def test_a_request_to_a_cluster_that_has_had_a_scanner_waits_for_a_worker(warden: Nodewarden, unserved: str) -> None:
    """Its worker may be away for an hour; what is asked for meanwhile stands."""
    await warden.start_scanner(unserved)
    await warden.fence(unserved, "node-1", reason="smoke")
    assert await warden.episode(unserved, "node-1").is_open()


@pytest.mark.parametrize(
    ("failures", "asked", "ended"),
    [([OLD_MOMENT, OLD_MOMENT], 3, None), (["no such query"], 1, None), ([OLD_MOMENT], 1, datetime(2026, 11, 1, tzinfo=UTC))],
)
async def test_a_worker_that_has_an_old_moment_is_asked_again(failures: list[str], asked: int, ended: datetime | None) -> None:
    """`nodewarden up` after a kill: the first question of the new worker's life may come before the task that has the time. None
    comes to what has ended."""
    described = AsyncMock(return_value=Mock(task_queue=WORKFLOW_QUEUE, close_time=ended))
    handle = Mock(query=AsyncMock(side_effect=[*map(WorkflowQueryFailedError, failures), "well"]), describe=described)
    client = Mock(get_workflow_handle=Mock(return_value=handle))
    if asked > 1:
        assert await calls.ask(client, "scanner/c", "status", str, what="scanner of c") == "well"
    else:
        with pytest.raises(RefusedError, match="it ended before a worker had seen all" if ended else "no such query"):
            await calls.ask(client, "scanner/c", "status", str, what="scanner of c")
    assert handle.query.await_count == asked


async def test_without_a_worker_silence_is_told_apart_from_absence(
    server: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S37: whoever asks must know that nothing is being done now."""
    monkeypatch.setattr(calls, "ANSWER_WITHIN", timedelta(seconds=1))
    async with Nodewarden.connect(load(), address=server, namespace=SILENT) as warden:
        await warden.start_scanner(cluster)
        episode = await warden.fence(cluster, "node-1", reason="smoke")
        with pytest.raises(SilentError, match="does a worker run"):
            await episode.status()
        with pytest.raises(SilentError, match="the request may still arrive"):
            await episode.abort(who="amy", reason="enough")
        with pytest.raises(EpisodeHeldError, match=r"Fencing \w+ \(run "):
            await warden.fence(cluster, "node-1", reason="another")


@pytest.mark.parametrize(("error", "unanswered"), [(SilentError, True), (RefusedError, True), (MissingError, False)])
async def test_a_scanner_that_is_silent_and_its_device_check_are_waited_for_together(
    warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch, error: type[RequestError], unanswered: bool
) -> None:
    """S44: where no worker runs both are silent, and a page has nothing to say until the last of them has been given up. One with
    an answer that can't be read may run: only of one that is missing a queued episode is said that no scanner runs."""
    asked = asyncio.Event()

    class SilentCheck:
        async def last_report(self) -> None:
            asked.set()

    async def silent_scanner(_cluster: str) -> None:
        await asyncio.wait_for(asked.wait(), 10)
        raise error("no answer")

    monkeypatch.setattr(warden, "scanner_status", silent_scanner)
    monkeypatch.setattr(warden, "device_check", lambda _cluster: SilentCheck())
    status = await warden.status(cluster)
    assert (status.problem, status.unanswered) == ("no answer", unanswered)


async def test_a_scanner_is_started_once_with_our_name_and_its_settings(warden: Nodewarden, client: Client, cluster: str) -> None:
    """S38."""
    started = await warden.start_scanner(cluster, cap=3)
    described = await warden.client.get_workflow_handle(scanner_id(cluster)).describe()
    first = described.raw_description.workflow_execution_info.priority.priority_key
    assert first == options.URGENT.priority_key, "in a storm all episodes wait for it"
    again = await warden.start_scanner(cluster, cap=5)
    assert (started.started, again.started) == (True, False)
    assert again.run_id == started.run_id
    status = await warden.scanner_status(cluster)
    assert status.holder == started.holder == await holder(client)
    assert status.cap == 3


async def test_a_scanner_that_is_stopping_is_waited_for_and_started_anew(warden: Nodewarden, cluster: str) -> None:
    first = await warden.start_scanner(cluster)
    await warden.stop_scanner(cluster, who="amy", reason="new settings")
    second = await warden.start_scanner(cluster, cap=2)
    assert second.started
    assert second.run_id != first.run_id


@workflow.defn(name="HealthScanner", sandboxed=False)
class OtherVersion:
    """A scanner that began otherwise, and answers nothing."""

    @workflow.run
    async def run(self, request: ScannerInput) -> None:
        await workflow.sleep(timedelta(hours=1))


@pytest.fixture
async def outdated(warden: Nodewarden, client: Client, cluster: str) -> str:
    """A scanner whose history our workers cannot read."""
    former = f"former-{cluster}"
    async with Worker(client, task_queue=former, workflows=[OtherVersion]):
        handle = await client.start_workflow(
            "HealthScanner", ScannerInput(cluster=cluster), id=f"scanner/{cluster}", task_queue=former
        )
        while not [event async for event in handle.fetch_history_events() if event.HasField("timer_started_event_attributes")]:
            await asyncio.sleep(0.05)
    return former


@pytest.fixture
async def stuck(client: Client, cluster: str, outdated: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Our worker has tried it, and failed."""
    monkeypatch.setattr(calls, "ANSWER_WITHIN", timedelta(seconds=3))
    async with Worker(client, task_queue=outdated, workflows=[ScannerStandIn]):
        await client.get_workflow_handle(f"scanner/{cluster}").signal("anything")
        while await task_failure(client, f"scanner/{cluster}") is None:
            await asyncio.sleep(0.05)
        yield


async def test_s49_what_another_queue_s_worker_says_in_the_scanner_s_place_is_shown_to_none(
    warden: Nodewarden, client: Client, cluster: str
) -> None:
    """It said who had paused the cluster, as verified by Kubernetes."""
    theirs = f"theirs-{cluster}"
    async with Worker(client, task_queue=theirs, workflows=[ScannerStandIn]):
        await client.start_workflow("HealthScanner", ScannerInput(cluster=cluster), id=f"scanner/{cluster}", task_queue=theirs)
        with pytest.raises(RefusedError, match=f"runs on task queue {theirs}, and is none of nodewarden's: "):
            await warden.scanner_status(cluster)


@pytest.mark.usefixtures("stuck")
async def test_what_is_stuck_on_a_history_that_can_t_be_replayed_says_so(warden: Nodewarden, cluster: str) -> None:
    """It is told from a missing worker, and not blamed on another version alone."""
    with pytest.raises(SilentError, match=calls.CANNOT_REPLAY) as silent:
        await warden.scanner_status(cluster)
    assert "either since another version of nodewarden wrote it, or by a fault of Temporal's SDK" in str(silent.value)
    assert f"terminate --workflow-id scanner/{cluster} " in str(silent.value)


async def test_s44_a_scanner_with_a_task_that_fails_without_a_trace_says_so_and_what_ends_it(
    server: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporal refuses each answer to a task after one that timed out (temporalio/sdk-rust#888): no failure in its history."""
    async with Nodewarden.connect(load(), address=server, namespace=SILENT) as warden:
        client, queue = warden.client, f"failing-{cluster}"
        await client.start_workflow(
            "HealthScanner",
            ScannerInput(cluster=cluster),
            id=scanner_id(cluster),
            task_queue=queue,
            task_timeout=timedelta(seconds=1),
        )
        poll = PollWorkflowTaskQueueRequest(namespace=client.namespace, task_queue=TaskQueue(name=queue), identity="w")
        service = client.workflow_service
        await service.poll_workflow_task_queue(poll)  # it is killed with this one
        for _ in range(2):
            task = await service.poll_workflow_task_queue(poll)
            cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_BAD_UPDATE_WORKFLOW_EXECUTION_MESSAGE
            failed = RespondWorkflowTaskFailedRequest(task_token=task.task_token, cause=cause, namespace=client.namespace)
            await service.respond_workflow_task_failed(failed)
        assert await task_failure(client, scanner_id(cluster)) is None, "its history keeps none"
        with pytest.raises(SilentError, match=r"its workflow task fails: attempt [3-9]") as stuck:
            await warden.scanner_status(cluster)
        assert f"`temporal workflow terminate --workflow-id scanner/{cluster} --reason …`" in str(stuck.value)
        assert "`nodewarden scan start` begins the next one" in str(stuck.value)
        monkeypatch.setattr(WorkflowHandle, "query", AsyncMock(side_effect=full(BUSY)))
        with pytest.raises(SilentError, match=re.escape(str(stuck.value))):
            await warden.scanner_status(cluster)


async def test_a_scanner_whose_history_no_worker_can_replay_is_replaced_by_itself(server: str, cluster: str) -> None:
    """S44: no upgrade and no fault of Temporal's SDK (temporalio/sdk-python#1591) leaves a cluster without a scanner, and
    the next one begins nothing before it knows what people had set."""
    async with Nodewarden.connect(load(), address=server, namespace=SILENT) as warden:
        async with Worker(warden.client, task_queue=WORKFLOW_QUEUE, workflows=[OtherVersion]):
            first = await warden.start_scanner(cluster)
            handle = warden.client.get_workflow_handle(scanner_id(cluster), run_id=first.run_id)
            while not [each async for each in handle.fetch_history_events() if each.HasField("timer_started_event_attributes")]:
                await asyncio.sleep(0.05)
        async with Worker(warden.client, task_queue=WORKFLOW_QUEUE, workflows=[HealthScanner]):
            await handle.signal("anything")
            while (ended := await handle.describe()).status is WorkflowExecutionStatus.RUNNING:
                await asyncio.sleep(0.05)
            assert ended.status is WorkflowExecutionStatus.FAILED
            assert (await warden.scanner_status(cluster)).problem == NOT_TAKEN_OVER
            assert not (await warden.start_scanner(cluster)).started


@workflow.defn(name="DeviceCheck", sandboxed=False)
class OtherCheck:
    """A check of devices that began otherwise."""

    @workflow.run
    async def run(self, request: DeviceCheckInput) -> None:
        await workflow.execute_activity("unknown", start_to_close_timeout=timedelta(hours=1))

    @workflow.signal
    def repeat(self, every: timedelta) -> None:
        """It is set already."""


async def test_a_check_of_devices_whose_history_no_worker_can_replay_is_replaced_by_itself(server: str, cluster: str) -> None:
    """S39, S40: else no device would be looked at any more, and no look would learn which are shared."""
    every = timedelta(minutes=40)
    async with Nodewarden.connect(load(), address=server, namespace=SILENT) as warden:
        async with Worker(warden.client, task_queue=WORKFLOW_QUEUE, workflows=[OtherCheck]):
            await warden.device_check(cluster).repeat(every)
            check = warden.client.get_workflow_handle(device_check_id(cluster))
            first = warden.client.get_workflow_handle(check.id, run_id=(await check.describe()).run_id)
            begun = "activity_task_scheduled_event_attributes"
            while not [each async for each in first.fetch_history_events() if each.HasField(begun)]:
                await asyncio.sleep(0.05)
        async with Worker(warden.client, task_queue=WORKFLOW_QUEUE, workflows=[DeviceCheck]):
            await first.signal("build_changed")
            while (ended := await first.describe()).status is WorkflowExecutionStatus.RUNNING:
                await asyncio.sleep(0.05)
            assert ended.status is WorkflowExecutionStatus.FAILED
            assert await warden.device_check(cluster).last_report() is None, "one runs, and answers"
            started = (await anext(check.fetch_history_events())).workflow_execution_started_event_attributes
            (request,) = await warden.client.data_converter.decode(started.input.payloads, [DeviceCheckInput])
            assert request.every == every
            await check.terminate("the test is over")


async def test_a_scanner_without_a_worker_is_not_replaced(server: str, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "ANSWER_WITHIN", timedelta(seconds=1))
    async with Nodewarden.connect(load(), address=server, namespace=SILENT) as warden:
        first = await warden.start_scanner(cluster)
        again = await warden.start_scanner(cluster)
        assert (first.started, again.started) == (True, False)
        assert again.run_id == first.run_id


async def test_the_status_of_a_cluster_joins_scanner_open_and_ended_episodes(warden: Nodewarden, cluster: str) -> None:
    await warden.start_scanner(cluster)
    await warden.fence(cluster, "node-held", reason="smoke")  # in the scanner's table: seen however much visibility lags
    for node in ("node-10", "node-9"):
        await warden.fence(cluster, node, reason="smoke")
    ended = await warden.fence(cluster, "node-3", reason="noise")
    await ended.abort(who="amy", reason="enough")
    await ended.result()
    status = await warden.status(cluster)
    assert status.scanner is not None
    assert "node-held" in [episode.node for episode in status.episodes]
    while not status.ended or len(status.episodes) < 3:  # visibility lags
        status = await warden.status(cluster)
    assert [episode.node for episode in status.episodes] == ["node-9", "node-10", "node-held"]
    assert [(result.node, result.outcome) for result in status.ended] == [("node-3", Outcome.ABORTED)]


async def test_a_status_never_shows_another_clusters_episodes(warden: Nodewarden, cluster: str) -> None:
    await warden.start_scanner(f"{cluster}-2")
    await warden.fence(f"{cluster}-2", "node-1", reason="smoke")
    assert (await warden.status(cluster)).episodes == ()


# A record of what was not repaired, on a real server: one per id, five events, found by its search attributes.

DUE = datetime(2026, 11, 28, 3, 12, tzinfo=UTC)
SPELL = Spell(node="node-7", check="c", cause="ReadyUnknown", since=DUE, due=DUE, ended=DUE, ending=Ending.CAME_BACK)


@pytest.fixture
async def starter(client: Client) -> AsyncIterator[ObservationStarter]:
    queue = f"observations-{uuid.uuid4().hex}"
    async with Worker(client, task_queue=queue, workflows=[RecordedObservation]):
        yield ObservationStarter(client, task_queue=queue)


async def test_a_repetition_makes_no_second_record(starter: ObservationStarter, client: Client) -> None:
    record = ObservationRecord(cluster=f"c-{uuid.uuid4().hex[:8]}", spells=(SPELL,))
    await starter.start(record)
    handle = client.get_workflow_handle(record.workflow_id, result_type=ObservationRecord)
    assert await handle.result() == record
    await keep_history(handle)
    first = (await handle.describe()).run_id
    await starter.start(replace(record, spells=(replace(SPELL, traces=("told again",)),)))
    described = await handle.describe()
    assert (described.run_id, (await handle.fetch_history()).events[-1].event_id <= 6) == (first, True)
    found = {pair.key.name: pair.value for pair in described.typed_search_attributes}
    expected = {"Kind": OBSERVATION, "Node": "node-7", "Reason": "ReadyUnknown", "Outcome": "came-back", "RepairMode": "repair"}
    assert found | expected | {"Cluster": record.cluster} == found


async def test_a_record_under_another_id_is_refused(starter: ObservationStarter, client: Client) -> None:
    """It could hide the one of another node."""
    record = ObservationRecord(cluster="c", spells=(SPELL,))
    with pytest.raises(WorkflowFailureError) as refused:
        await client.execute_workflow(OBSERVATION, record, id=f"observation/{uuid.uuid4().hex}", task_queue=starter._task_queue)
    assert "expected the workflow id" in str(refused.value.cause)


async def test_node_days_and_storms_are_found_apart(starter: ObservationStarter, client: Client) -> None:
    cluster = f"c-{uuid.uuid4().hex[:8]}"
    days = ObservationRecord(cluster=cluster, days=(NodeDays(day="2026-11-28", check="c", mode=Mode.REPAIR, seconds=1.0),))
    storm = ObservationRecord(cluster=cluster, spells=(replace(SPELL, storm="s"), replace(SPELL, node="b", storm="s")))
    await asyncio.gather(starter.start(days), starter.start(storm))
    query = f"Cluster = '{cluster}' AND Kind = '{OBSERVATION}'"
    deadline = asyncio.get_running_loop().time() + timedelta(seconds=20).total_seconds()
    while len(found := [run async for run in client.list_workflows(query)]) < 2:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)
    outcomes = {pair.value for run in found for pair in run.typed_search_attributes if pair.key.name == "Outcome"}
    assert outcomes == {"node-days", "storm"}


async def test_a_record_is_found_for_its_node_and_for_the_cluster_at_its_moment(
    starter: ObservationStarter, client: Client
) -> None:
    """One of a storm has no node's name in visibility, and node-days are no spells."""
    cluster = f"c-{uuid.uuid4().hex[:8]}"
    due = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    held = replace(SPELL, since=due, due=due, ended=due + timedelta(minutes=9))
    days = NodeDays(day="2026-11-28", check="c", mode=Mode.REPAIR, seconds=1.0)
    in_storm = tuple(replace(held, node=node, storm="s") for node in ("a", "b"))
    await starter.start(ObservationRecord(cluster=cluster, days=(days,)))
    await starter.start(ObservationRecord(cluster=cluster, spells=in_storm))
    await starter.start(ObservationRecord(cluster=cluster, spells=(held,)))
    read, then = Observations(client, History(client)), due + timedelta(minutes=5)
    async with asyncio.timeout(20):
        while [each.node for each in (await read.spells_at(cluster, then)).spells] != ["a", "b", "node-7"]:
            await asyncio.sleep(0.1)
    assert (await read.spells_at(cluster, then, node="b")).spells == (in_storm[1],)
    assert (await read.spells_at(cluster, due - timedelta(minutes=1))).spells == ()
    (unknown,) = (await read.spells_at(cluster, then, node="b")).unknown
    assert unknown.startswith("spells that last, as the scanner does not say: ")
    found = await read.ended_spells(cluster, since=due, node="node-7")
    assert (found.spells, found.unknown) == ((held,), ())
    assert (await read.last_spells(cluster, "a")).spells == (in_storm[0],)
    assert (await read.ended_spells(cluster, since=due, limit=1)).unknown, "one record of two was left out"


@pytest.mark.parametrize(
    "found",
    [
        ValueError("no such field"),
        KeyError("Unknown payload encoding x"),
        None,
        ObservationRecord(cluster="b", spells=(SPELL,)),
        ObservationRecord(cluster="a", spells=(replace(SPELL, node="node-8"),)),
        ObservationRecord(cluster="a"),
        ObservationRecord(cluster="a", spells=(replace(SPELL, ended=datetime(2026, 11, 28)),)),  # noqa: DTZ001
    ],
    ids=[
        "unreadable",
        "in another encoding",
        "nothing",
        "of another cluster",
        "under another id",
        "of nothing",
        "without a zone",
    ],
)
async def test_s49_a_record_that_no_scanner_makes_is_left_out_and_counted(found: ObservationRecord | Exception | None) -> None:
    """S49: else one workflow that any client has started would end each `compare` and each look at a past moment for 90 days."""
    own = ObservationRecord(cluster="a", spells=(SPELL,))
    handle = SimpleNamespace(result=AsyncMock(side_effect=[found, own]))
    client = cast("Client", SimpleNamespace(get_workflow_handle=lambda *_args, **_options: handle))
    observations = Observations(client, cast("History", None))
    assert await observations._record("a", own.workflow_id, "run-1") is None
    assert await observations._record("a", own.workflow_id, "run-1") == own


@workflow.defn(name="Fencing", sandboxed=False)
class StrangeFencing:
    """Answers what no version of ours has written."""

    @workflow.run
    async def run(self, _request: dict[str, str]) -> None:
        await workflow.sleep(timedelta(hours=1))

    @workflow.query
    def status(self) -> dict[str, str]:
        return {"phase": "a phase of no build"}


async def test_s44_an_episode_of_a_stranger_with_an_answer_that_can_not_be_read_hides_no_other(
    warden: Nodewarden, client: Client, cluster: str
) -> None:
    """S44, S49: one that any client of Temporal has started failed `status`, and each page, for the whole cluster."""
    queue = f"theirs-{cluster}"
    attributes = [SearchAttributePair(search_attributes.CLUSTER, cluster), SearchAttributePair(search_attributes.KIND, "Fencing")]
    await warden.fence(cluster, "node-1", reason="smoke")
    async with Worker(client, task_queue=queue, workflows=[StrangeFencing]):
        await client.start_workflow(
            "Fencing",
            {},
            id=f"episode/{cluster}/node-9",
            task_queue=queue,
            search_attributes=TypedSearchAttributes(attributes),
        )
        async with asyncio.timeout(20):
            while len(await warden.history.open(cluster)) < 2:
                await asyncio.sleep(0.1)
        status = await warden.status(cluster)
    assert [each.node for each in status.episodes] == ["node-1"]
    assert [(each.node, "is none of nodewarden's" in each.problem) for each in status.silent] == [("node-9", True)]


async def test_s44_an_episode_of_another_build_is_shown_as_one_that_can_not_be_read_here(
    warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S44: a phase that only the newer worker knows. The page and the commands are rolled before or after the workers."""
    query = WorkflowHandle.query

    async def of_another_build(handle: WorkflowHandle[object, object], *asked: object, **options: object) -> object:
        if handle.id.endswith("/node-9"):
            options["result_type"] = dict[str, Phase]
        return await query(handle, *asked, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(WorkflowHandle, "query", of_another_build)
    for node in ("node-1", "node-9"):
        await warden.fence(cluster, node, reason="smoke")
    async with asyncio.timeout(20):
        while len(await warden.history.open(cluster)) < 2:
            await asyncio.sleep(0.1)
    status = await warden.status(cluster)
    assert [each.node for each in status.episodes] == ["node-1"]
    (unread,) = status.silent
    assert unread.problem.startswith("episode of node-9: its answer can't be read here: another version of nodewarden wrote it")
