"""What the server says of the workflow under an episode's id, also of one that does not answer or is none of ours; and who begins
a preservation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import RetryPolicy, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities import episodes
from activities.contracts import metrics
from activities.contracts.episodes import (
    STOPPED_MEMO,
    TOOK_OVER_MEMO,
    DescribeRequest,
    EpisodeDescription,
    FindRequest,
    FormerRun,
    FoundOpen,
    NotifyRequest,
    Opened,
    OpenOutcome,
    OpenRequest,
)
from activities.contracts.preservation import Hold, HoldRequest, PreserveOutcome, PreserveRequest
from activities.contracts.search_attributes import OUTCOME
from activities.episodes import EpisodeService, _last_that_knew
from activities.errors import ErrorType
from policy.episode.messages import (
    EpisodeResult,
    EpisodeStatus,
    FencingInput,
    Kind,
    Need,
    NeedKind,
    Outcome,
    Phase,
    PreservationInput,
    PreservationUpdate,
    SeenNode,
    episode_id,
    scanner_id,
)
from policy.episode.modes import MODES_MEMO, ClusterModes
from policy.episode.permits import HoldOff
from policy.history.spell_lifecycle import MOST_BYTES
from policy.history.spells import MOST_DAYS, NodeDays, ObservationRecord, ScannerSpells, Spell
from policy.preservation.preservation_index import PreservationNeed
from policy.scan.pauses import PAUSES_MEMO, PastPause, Pause
from policy.values.mode import Mode
from tests.cluster.acts.world import refused
from tests.workflows.fencing_run import fencing
from tests.workflows.preservation_run import MACHINE, ScriptedMachine, machine, preserving
from tests.workflows.surroundings import Measured, eventually, let_pass
from tests.workflows.world import NODE, World, plan
from workers.errors import OLD_MOMENT
from workers.payloads.encryption import Encryption
from workflows.definitions.episodes import Fencing, Preservation
from workflows.kit.messages import ResumeRequest
from workflows.kit.options import WORKFLOW_QUEUE

pytestmark = pytest.mark.timeout(30)

Result = TypeVar("Result")
CLUSTER = "describing"
OURS = f"describing-{uuid4()}"
"""The task queue of our workflows."""
SIGNALED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
SINCE = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
ENDED = SINCE + timedelta(minutes=5)


@workflow.defn(name="Fencing")
class AnsweringEpisode:
    """Holds its node and answers like an episode."""

    @workflow.run
    async def run(self, request: FencingInput) -> None:
        self._request = request
        await asyncio.Future[None]()

    @workflow.query
    def status(self) -> EpisodeStatus:
        return EpisodeStatus(
            incident=self._request.incident,
            cluster=CLUSTER,
            node=self._request.node,
            kind=Kind.FENCING,
            phase=Phase.RUNNING,
            step="",
            doing="",
            reason="",
            started=SINCE,
            control_plane=True,
            node_uid="uid-1",
            provider_id="sim:///1",
            by_person=True,
        )


@workflow.defn(name="Fencing")
class SpeechlessEpisode:
    """An episode whose build knows no such query."""

    @workflow.run
    async def run(self, request: FencingInput) -> None:
        await asyncio.Future[None]()


@workflow.defn(name="Fencing")
class EndedEpisode:
    """One that ends at once as its request says."""

    @workflow.run
    async def run(self, request: FencingInput) -> EpisodeResult:
        return EpisodeResult(
            outcome=Outcome(request.reason),
            incident=request.incident,
            cluster=CLUSTER,
            node=request.node,
            message="aborted by ada (the rack is being moved)",
            started=SINCE,
            ended=ENDED,
        )


async def nameless(_: Client) -> str:
    return "ours"


def service(client: Client, queue: str = OURS) -> EpisodeService:
    return EpisodeService(client, task_queue=queue, holder=nameless)


def foreign_worker(client: Client, queue: str, served: type) -> Worker:
    """Without our plugin, whose sandbox admits the shipped workflows only."""
    plain = Client(client.service_client, namespace=client.namespace, data_converter=client.data_converter)
    return Worker(plain, task_queue=queue, workflows=[served], workflow_runner=UnsandboxedWorkflowRunner())


async def described(client: Client, node: str) -> EpisodeDescription:
    found = await ActivityEnvironment().run(service(client).describe, DescribeRequest(cluster=CLUSTER, nodes=(node,)))
    (only,) = found.episodes
    assert isinstance(only, EpisodeDescription)
    return only


async def test_s18_what_a_reset_has_scheduled_anew_long_after_it_was_decided_is_not_opened() -> None:
    environment, decided = ActivityEnvironment(), datetime(2026, 11, 1, tzinfo=UTC)
    environment.info = replace(environment.info, started_time=decided + timedelta(seconds=61))
    anew, preserve = service(cast(Client, None)), PreserveRequest(cluster=CLUSTER, holder="us", needs=(), decided=decided)
    with pytest.raises(ApplicationError, match="was decided at 2026-11-01"):
        await environment.run(anew.open, OpenRequest(cluster=CLUSTER, decided=decided))
    with pytest.raises(ApplicationError, match="was decided at 2026-11-01"):
        await environment.run(anew.preserve, preserve)
    environment.info = replace(environment.info, started_time=decided + timedelta(seconds=60))
    await environment.run(anew.open, OpenRequest(cluster=CLUSTER, decided=decided))
    await environment.run(anew.preserve, preserve)


async def tried(activity: Callable[[Any], Awaitable[Result]], request: object) -> Result:
    """As Temporal does, again where what it asks is not answered yet: a worker refuses each question about events that no task of
    the episode has brought."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, started_time=datetime.now(UTC))
    for attempt in range(1, episodes.ASKED_AGAIN):
        environment.info = replace(environment.info, attempt=attempt)
        try:
            return await environment.run(activity, request)
        except ApplicationError as error:
            if error.type != ErrorType.UNREACHABLE:
                raise
    environment.info = replace(environment.info, attempt=episodes.ASKED_AGAIN)
    return await environment.run(activity, request)


async def opened(client: Client, episode: FencingInput, *, unasked: bool = False) -> OpenOutcome:
    request = OpenRequest(cluster=CLUSTER, episodes=(episode,), unasked=unasked)
    result = await ActivityEnvironment().run(service(client).open, request)
    (only,) = result.outcomes
    assert isinstance(only, OpenOutcome)
    return only


@asynccontextmanager
async def holding(
    client: Client, node: str, kind: str, *, memo: dict[str, Any], by: type | None = None, queue: str = OURS
) -> AsyncIterator[None]:
    """A workflow under the id of the node's episode, run by a worker where there is a class for it."""
    request = FencingInput(cluster=CLUSTER, node=node, incident="i-1")
    handle = await client.start_workflow(kind, request, id=episode_id(CLUSTER, node), task_queue=queue, memo=memo)
    try:
        if by is None:
            yield
        else:
            async with foreign_worker(client, queue, by):
                yield
    finally:
        await handle.terminate()


@pytest.fixture
def env(server: WorkflowEnvironment) -> WorkflowEnvironment:
    """The real one: it is asked what it knows of workflows."""
    return server


async def test_a_workflow_of_a_foreign_type_holds_its_node_and_hides_no_other(env: WorkflowEnvironment) -> None:
    """S13, S14: what is not known counts."""
    async with holding(env.client, "node-1", "Backup", memo={"incident": "i-9"}):
        found = await described(env.client, "node-1")
        assert (found.known, found.open, found.permit, found.parked) == (True, True, True, False)
        assert (found.kind, found.incident) == (Kind.FENCING, "foreign Backup")
        outcome = await opened(env.client, FencingInput(cluster=CLUSTER, node="node-1", incident="foreign"))
        assert outcome.opened is Opened.REFUSED
        assert outcome.reason == "foreign Backup holds node-1"
    closed = await described(env.client, "node-1")
    assert (closed.known, closed.open, closed.permit) == (True, False, False)


async def test_what_an_episode_says_of_its_node_is_passed_on(env: WorkflowEnvironment) -> None:
    """S15: whoever rebuilds the table of permits needs to know of members of the control plane."""
    async with holding(env.client, "node-2", "Fencing", memo={"incident": "i-1"}, by=AnsweringEpisode):
        found = await described(env.client, "node-2")
    assert (found.incident, found.started, found.permit) == ("i-1", SINCE, False)
    assert (found.control_plane, found.node_uid, found.provider_id, found.by_person) == (True, "uid-1", "sim:///1", True)


async def test_open_episodes_are_told_of_their_nodes_and_the_others_are_named(env: WorkflowEnvironment) -> None:
    """One that has closed, or never was, keeps nobody else from being told."""
    seen = tuple(SeenNode(node=node, boot_id="b2") for node in ("node-5", "node-6"))
    async with holding(env.client, "node-6", "Fencing", memo={}):
        result = await ActivityEnvironment().run(service(env.client).notify, NotifyRequest(cluster=CLUSTER, seen_nodes=seen))
        history = await env.client.get_workflow_handle(episode_id(CLUSTER, "node-6")).fetch_history()
    assert result.gone == ("node-5",)
    (signal,) = [event.workflow_execution_signaled_event_attributes for event in history.events if event.event_type == SIGNALED]
    assert signal.signal_name == "node_changed"
    assert b"b2" in signal.input.payloads[0].data


@pytest.mark.parametrize(("memo", "incident"), [({"incident": "i-1"}, "i-1"), ({}, "")])
async def test_an_episode_that_does_not_answer_keeps_its_permit(
    env: WorkflowEnvironment, memo: dict[str, Any], incident: str
) -> None:
    """S14. Without a memo its incident stays unknown, which is not the same as another one."""
    async with holding(env.client, "node-3", "Fencing", memo=memo, by=SpeechlessEpisode):
        found = await described(env.client, "node-3")
    assert (found.open, found.permit, found.incident, found.node_uid) == (True, True, incident, "")
    assert found.control_plane is None, "S15: it may be a member of the control plane"


async def ends(client: Client, node: str, outcome: Outcome, *, queue: str, cluster: str = CLUSTER) -> None:
    """A workflow under the id of the node's episode that has that result."""
    tagged = TypedSearchAttributes([SearchAttributePair(OUTCOME, outcome.value)])
    async with foreign_worker(client, queue, EndedEpisode):
        ended = FencingInput(cluster=CLUSTER, node=node, incident="i-1", reason=outcome.value)
        workflow_id = episode_id(cluster, node)
        await client.execute_workflow("Fencing", ended, id=workflow_id, task_queue=queue, search_attributes=tagged)


async def test_s49_that_a_person_has_aborted_it_is_believed_of_no_workflow_of_another_queue(env: WorkflowEnvironment) -> None:
    """A worker of a stranger's own ended one with words of a person, and the sick node was left alone with them."""
    node = f"aborted-{uuid4()}"
    await ends(env.client, node, Outcome.ABORTED, queue=f"theirs-{uuid4()}")
    need = Need(kind=NeedKind.CHECK, since=SINCE)
    found = await opened(env.client, FencingInput(cluster=CLUSTER, node=node, incident="i-2", need=need))
    await env.client.get_workflow_handle(found.workflow_id).terminate()
    assert found.opened is Opened.STARTED


async def test_s49_what_another_queue_s_worker_says_of_an_episode_is_not_believed(env: WorkflowEnvironment) -> None:
    """It holds its node and counts as it would at worst (S14), whatever it answers."""
    theirs = f"theirs-{uuid4()}"
    async with holding(env.client, "node-4", "Fencing", memo={"incident": "i-1"}, by=AnsweringEpisode, queue=theirs):
        found = await described(env.client, "node-4")
    assert (found.open, found.permit, found.incident, found.node_uid) == (True, True, "foreign Fencing", "")


@pytest.mark.parametrize(
    ("kind", "since", "outcome", "expected"),
    [
        (NeedKind.FOREIGN_OBJECT, SINCE, Outcome.ABORTED, Opened.HELD_OFF),
        (NeedKind.FOREIGN_OBJECT, ENDED, Outcome.ABORTED, Opened.HELD_OFF),
        (NeedKind.FOREIGN_OBJECT, ENDED + timedelta(seconds=1), Outcome.ABORTED, Opened.STARTED),
        (NeedKind.CHECK, SINCE, Outcome.ABORTED, Opened.HELD_OFF),
        (NeedKind.CHECK, ENDED + timedelta(seconds=1), Outcome.ABORTED, Opened.STARTED),
        (NeedKind.PERSON, SINCE, Outcome.ABORTED, Opened.STARTED),
        (NeedKind.FOREIGN_OBJECT, SINCE, Outcome.RELEASED, Opened.STARTED),
    ],
    ids=["its object", "made then", "a new object", "its check", "well meanwhile", "a person", "no abort"],
)
async def test_a_persons_abort_holds_for_the_wish_that_stood_then_even_where_no_scanner_remembers_it(
    env: WorkflowEnvironment, kind: NeedKind, since: datetime, outcome: Outcome, expected: Opened
) -> None:
    """S19, S20: also for another system's object, whose age is its need's; one that is made later is a new wish."""
    node = f"aborted-{uuid4()}"
    await ends(env.client, node, outcome, queue=OURS)
    again = FencingInput(cluster=CLUSTER, node=node, incident="i-2", need=Need(kind=kind, since=since))
    found = await opened(env.client, again)
    if found.opened is Opened.STARTED:
        await env.client.get_workflow_handle(found.workflow_id).terminate()
    assert found.opened is expected
    assert ("incident i-1 was ended by a person" in found.reason) is (expected is Opened.HELD_OFF)
    assert (f"`nodewarden fence {node} --reason …`" in found.reason) is (expected is Opened.HELD_OFF)


@pytest.mark.parametrize(
    ("outcome", "kind", "expected"),
    [
        (Outcome.ABORTED, NeedKind.CHECK, Opened.HELD_OFF),
        (Outcome.FENCED_OFF, NeedKind.CHECK, Opened.HELD_OFF),
        (Outcome.RECOVERED, NeedKind.CHECK, Opened.STARTED),
        (Outcome.ABORTED, NeedKind.PERSON, Opened.STARTED),
    ],
)
async def test_s19_what_may_be_left_alone_waits_until_the_last_scanner_has_said_so(
    env: WorkflowEnvironment, outcome: Outcome, kind: NeedKind, expected: Opened
) -> None:
    """S19, S44: nothing says since when the node is sick, so that only that scanner knows. For a moment, and then anew."""
    node = f"left-alone-{uuid4()}"
    await ends(env.client, node, outcome, queue=OURS)
    found = await opened(env.client, FencingInput(cluster=CLUSTER, node=node, incident="i-2", need=Need(kind=kind)), unasked=True)
    if found.opened is Opened.STARTED:
        await env.client.get_workflow_handle(found.workflow_id).terminate()
    assert (found.opened, found.until is not None) == (expected, expected is Opened.HELD_OFF)


async def test_s19_the_very_incident_that_a_person_has_aborted_does_not_begin_again(env: WorkflowEnvironment) -> None:
    """Its opening was not answered and is tried again, or a reset of the scanner's workflow has scheduled it anew; nothing says
    since when the node is sick."""
    node = f"aborted-{uuid4()}"
    await ends(env.client, node, Outcome.ABORTED, queue=OURS)
    again = FencingInput(cluster=CLUSTER, node=node, incident="i-1", need=Need(kind=NeedKind.CHECK))
    found = await opened(env.client, again)
    if found.opened is Opened.STARTED:
        await env.client.get_workflow_handle(found.workflow_id).terminate()
    assert (found.opened, found.until) == (Opened.HELD_OFF, None)


@pytest.mark.parametrize(
    ("outcome", "ours"), [(Outcome.REFUSED, True), (Outcome.RECOVERED, False)], ids=["refused", "a stranger's"]
)
async def test_s44_a_word_is_ended_by_no_request_that_was_refused_and_by_no_workflow_of_a_stranger(
    env: WorkflowEnvironment, outcome: Outcome, ours: bool
) -> None:
    """S19, S49: the node was fenced by the next scan, since only the latest run of its id was asked what people had said."""
    node = f"aborted-{uuid4()}"
    await ends(env.client, node, Outcome.ABORTED, queue=OURS)
    await ends(env.client, node, outcome, queue=OURS if ours else f"theirs-{uuid4()}")
    async with asyncio.timeout(30):
        while (await env.client.count_workflows(f"WorkflowId = '{episode_id(CLUSTER, node)}'")).count < 2:
            await asyncio.sleep(0.1)
    again = FencingInput(cluster=CLUSTER, node=node, incident="i-2", need=Need(kind=NeedKind.CHECK, since=SINCE))
    found = await opened(env.client, again)
    if found.opened is Opened.STARTED:
        await env.client.get_workflow_handle(found.workflow_id).terminate()
    assert (found.opened, "incident i-1 was ended by a person" in found.reason) == (Opened.HELD_OFF, True)


BY_PEOPLE = [
    ("hold", None, Opened.HELD_OFF, "held by ada (identity not verified): we look first"),
    ("hold", timedelta(hours=1), Opened.HELD_OFF, "held by ada (identity not verified), until "),
    ("hold", timedelta(milliseconds=300), Opened.STARTED, ""),
    ("abort", None, Opened.HELD_OFF, "by ada (identity not verified): drill"),
    ("resume", None, Opened.STARTED, ""),
]


@pytest.mark.parametrize(("word", "lasts", "expected", "said"), BY_PEOPLE, ids=str)
async def test_s44_what_a_person_has_said_to_an_episode_holds_where_that_is_terminated(
    env: WorkflowEnvironment, word: str, lasts: timedelta | None, expected: Opened, said: str
) -> None:
    """S20: the next one fenced the machine that a person had in hand. A hold that is over, or was ended, keeps nothing back."""
    world = World(need=Need(kind=NeedKind.CHECK, since=datetime.now(UTC) - timedelta(minutes=1)))
    async with fencing(env, world, at="mark") as run:
        cluster, until = run.handle.id.split("/")[1], datetime.now(UTC) + lasts if lasts is not None else None
        if word == "abort":
            await run.abort()
        else:
            await run.hold(until=until)
        if word == "resume":
            await run.resume()
        await run.handle.terminate()
        if until is not None and expected is Opened.STARTED:
            await asyncio.sleep((until - datetime.now(UTC)).total_seconds())
        ours = EpisodeService(env.client, task_queue=f"{WORKFLOW_QUEUE}-{cluster}", holder=nameless)
        again = FencingInput(cluster=cluster, node=NODE, incident="i-2", need=world.need)
        (found,) = (await tried(ours.open, OpenRequest(cluster=cluster, episodes=(again,)))).outcomes
        if found.opened is Opened.STARTED:
            await env.client.get_workflow_handle(found.workflow_id).terminate()
    assert (found.opened, said in found.reason) == (expected, True), found.reason
    assert found.until == (until if expected is Opened.HELD_OFF else None)
    assert (f"`nodewarden fence {NODE} --reason …`" in found.reason) is (expected is Opened.HELD_OFF)


@pytest.mark.parametrize(
    ("word", "expected"), [("hold", Opened.HELD_OFF), ("abort", Opened.HELD_OFF), ("resume", Opened.STARTED)]
)
async def test_s44_what_a_person_has_said_is_known_where_workers_refuse_each_question_about_the_episode(
    env: WorkflowEnvironment, word: str, expected: Opened
) -> None:
    """S20: they do where it ended before a task had brought all that happened; the machine was fenced all the same."""
    world = World(need=Need(kind=NeedKind.CHECK, since=datetime.now(UTC) - timedelta(minutes=1)))
    async with fencing(env, world, at="mark") as run:
        await (run.abort() if word == "abort" else run.hold())
        if word == "resume":
            await run.resume()

        async def ends_before_its_next_task() -> None:
            await run.handle.signal(Fencing.node_changed, SeenNode(node=NODE))
            await run.handle.terminate()

        await run.restart_worker(ends_before_its_next_task)
        for _ in range(episodes.ASKED_AGAIN):
            with pytest.raises(WorkflowQueryFailedError, match=OLD_MOMENT):
                await run.status()
        cluster = run.handle.id.split("/")[1]
        ours = EpisodeService(env.client, task_queue=f"{WORKFLOW_QUEUE}-{cluster}", holder=nameless)
        again = FencingInput(cluster=cluster, node=NODE, incident="i-2", need=world.need)
        (found,) = (await tried(ours.open, OpenRequest(cluster=cluster, episodes=(again,)))).outcomes
        if found.opened is Opened.STARTED:
            await env.client.get_workflow_handle(found.workflow_id).terminate()
    said = {
        "hold": "held by ada (identity not verified): we look first",
        "abort": "aborted by ada (identity not verified): drill",
    }
    assert (found.opened, said.get(word, "") in found.reason) == (expected, True), found.reason


async def test_s44_a_word_that_cant_be_read_keeps_its_node_from_being_repaired_and_no_other(env: WorkflowEnvironment) -> None:
    """S20, S14: the key of an ended episode was gone, and no episode began of all nodes that failed in the same second; and of an
    open one, none of them was described."""
    node, other = f"held-{uuid4()}", f"well-{uuid4()}"
    with_key = replace(env.client.data_converter, payload_codec=Encryption([b"a key that is lost by now, and was long enough"]))
    lost = Client(env.client.service_client, namespace=env.client.namespace, data_converter=with_key)
    await ends(lost, node, Outcome.RECOVERED, queue=OURS)
    need = Need(kind=NeedKind.CHECK, since=SINCE)
    both = tuple(FencingInput(cluster=CLUSTER, node=each, incident="i-2", need=need) for each in (node, other))
    result = await ActivityEnvironment().run(service(env.client).open, OpenRequest(cluster=CLUSTER, episodes=both))
    unread, started = result.outcomes
    assert (unread.opened, started.opened) == (Opened.HELD_OFF, Opened.STARTED)
    assert f"whether a person held the last episode of {node} can't be read: " in unread.reason
    assert f"`nodewarden fence {node} --reason …`" in unread.reason
    await env.client.get_workflow_handle(started.workflow_id).terminate()
    async with holding(lost, node, "Fencing", memo={"incident": "i-1"}):
        found = await described(env.client, node)
        assert (found.open, found.incident) == (True, "")


@pytest.mark.parametrize(
    "silent",
    [RPCError("Timeout expired", RPCStatusCode.CANCELLED, b""), WorkflowQueryFailedError(OLD_MOMENT)],
    ids=["busy", "a history that it has not seen yet"],
)
async def test_s44_workers_that_give_no_answer_are_asked_again_what_a_person_has_said_to_an_episode(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, silent: Exception
) -> None:
    """Nothing but a history that no code can replay, and no word in its memo, keeps no node from being repaired."""
    world = World(need=Need(kind=NeedKind.CHECK, since=datetime.now(UTC) - timedelta(minutes=1)))
    async with fencing(env, world, at="mark") as run:
        await run.handle.terminate()
        cluster = run.handle.id.split("/")[1]
        ours = EpisodeService(env.client, task_queue=f"{WORKFLOW_QUEUE}-{cluster}", holder=nameless)
        again = FencingInput(cluster=cluster, node=NODE, incident="i-2", need=world.need)
        monkeypatch.setattr(WorkflowHandle, "query", AsyncMock(side_effect=silent))
        environment, asked_in = ActivityEnvironment(), OpenRequest(cluster=cluster, episodes=(again,))
        with refused(ErrorType.UNREACHABLE, "does not say yet whether a person held it"):
            await environment.run(ours.open, asked_in)
        environment.info = replace(environment.info, attempt=episodes.ASKED_AGAIN)
        (found,) = (await environment.run(ours.open, asked_in)).outcomes
        assert found.opened is Opened.STARTED
        await env.client.get_workflow_handle(found.workflow_id).terminate()


@pytest.mark.parametrize("word", ["hold", "abort", "resume"])
async def test_s44_a_preservation_goes_on_held_where_a_person_held_the_one_that_was_terminated(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """S20: the next one gave up the machine that a person had in hand once its time was over. It is kept all the same (S21)."""
    world, real = machine("now", fails=True), ScriptedMachine.hold

    async def hold(self: ScriptedMachine, request: HoldRequest) -> Hold:
        if request.wish.release:
            await asyncio.Event().wait()  # an abort is heard, and not carried out yet
        return await real(self, request)

    monkeypatch.setattr(ScriptedMachine, "hold", hold)
    monkeypatch.setattr(episodes, "QUERY_TIMEOUT", timedelta(seconds=20))  # on a busy machine
    async with preserving(env, world) as run:
        await run.is_in(Phase.FAILED_PRESERVED)
        if word == "abort":
            await run.abort()
        else:
            await run.says(Preservation.hold)
        if word == "resume":
            await run.says(Preservation.resume)
        await run.handle.terminate()
        cluster = run.handle.id.split("/")[1]
        ours = EpisodeService(env.client, task_queue=f"{WORKFLOW_QUEUE}-{cluster}", holder=nameless)
        need = PreservationNeed(victim=NODE, action="none", reason="it has failed", stamp="two", machine=MACHINE)
        await tried(ours.preserve, PreserveRequest(cluster=cluster, holder="us", needs=(need,)))
        status = await run.is_in(Phase.FAILED_PRESERVED)
        was = {"hold": "held by ada (identity not verified): its disks", "abort": "aborted by ada (identity not verified)"}
        assert status.held.startswith(f"held by scanner/{cluster} (identity not verified): incident ") is (word != "resume")
        assert (was.get(word, "") in status.held, world.held.expiry is not None) == (True, True)
        await run.skip(timedelta(hours=73))
        await let_pass(env, run.handle, timedelta(minutes=1))
        assert ("delete" in world.acts) is (word == "resume")
        if word != "resume":
            ends = ResumeRequest(who="bob", reason="seen", of=f"scanner/{cluster}", question=status.question)
            await env.client.get_workflow_handle(run.handle.id).execute_update(Preservation.resume, ends)
            await eventually(env, lambda: "delete" in world.acts)


@dataclass(frozen=True)
class Run:
    """A run of a scanner, as visibility lists it."""

    run_id: str
    knew: str
    status: WorkflowExecutionStatus = WorkflowExecutionStatus.TERMINATED

    async def memo_value(self, _key: str, *, default: str, **_: object) -> str:
        return self.knew or default


@pytest.mark.parametrize(
    ("lives", "knew"),
    [
        ([Run("b", "b"), Run("a", "a")], "b"),
        ([Run("b", "a"), Run("a", "a")], "a"),  # reset, and terminated before it had taken over
        ([Run("c", ""), Run("b", "a"), Run("a", "a")], "a"),  # started anew, and terminated at once
        ([Run("b", "a"), Run("a", "a", WorkflowExecutionStatus.CONTINUED_AS_NEW)], "b"),
        (
            [Run("c", "a"), Run("b", "a"), Run("a", "a", WorkflowExecutionStatus.CONTINUED_AS_NEW)],
            "b",
        ),  # its new history was reset
        ([Run("b", ""), Run("a", "")], "b"),  # of an older version
    ],
)
async def test_s44_s52_what_was_known_is_taken_over_from_the_last_run_that_knew_it(lives: list[Run], knew: str) -> None:
    """S44, S52: else a reset that is followed by an end at once loses open spells, pauses and lowered modes."""
    assert (await _last_that_knew(cast(Any, lives))).run_id == knew  # type: ignore[union-attr]
    assert await _last_that_knew([]) is None


async def found(client: Client, cluster: str) -> FoundOpen:
    result = await ActivityEnvironment().run(service(client).find_open, FindRequest(cluster=cluster))
    assert isinstance(result, FoundOpen)
    return result


@pytest.mark.parametrize(
    ("kind", "repaired"), [("Fencing", True), ("Remediation", True), ("Preservation", False), ("Observation", False)]
)
async def test_whether_a_cluster_was_ever_repaired_is_seen_by_what_has_ended(
    kind: str, repaired: bool, env: WorkflowEnvironment
) -> None:
    """S52: under a scanner without modes a cluster of which a machine was only kept, or a node only watched, is a new one."""
    cluster = f"c{uuid4().hex[:8]}"
    await was(env.client, kind, episode_id(cluster, "node-1"))
    await was(env.client, "Scanner", scanner_id(cluster))
    for _ in range(200):  # visibility lags: what has ended is listed as open for a while
        seen = await found(env.client, cluster)
        if (seen.repaired, seen.nodes, seen.earlier) == (repaired, (), True):
            break
        await asyncio.sleep(0.05)
    assert (seen.repaired, seen.nodes) == (repaired, ())
    assert (await found(env.client, f"{cluster}x")).repaired is False


async def test_s19_what_a_person_has_aborted_while_no_scanner_ran_is_left_alone_by_the_next_one(env: WorkflowEnvironment) -> None:
    """S19, S44: none was told of it, and nothing need say since when the node is sick. So it may be of one that ended
    right before it. Not what another episode has followed, nor a stranger's. What can't be read holds
    up no other node."""
    cluster = f"c{uuid4().hex[:8]}"
    await ends(env.client, "before", Outcome.ABORTED, queue=OURS, cluster=cluster)
    await was(env.client, "HealthScanner", scanner_id(cluster))
    for node, outcome in (("a", Outcome.ABORTED), ("off", Outcome.FENCED_OFF), ("well", Outcome.RECOVERED)):
        await ends(env.client, node, outcome, queue=OURS, cluster=cluster)
    for outcome in (Outcome.ABORTED, Outcome.RECOVERED):
        await ends(env.client, "again", outcome, queue=OURS, cluster=cluster)
    tagged = TypedSearchAttributes([SearchAttributePair(OUTCOME, Outcome.ABORTED.value)])
    async with foreign_worker(env.client, OURS, UnreadableEpisode):
        unread = episode_id(cluster, "unread")
        await env.client.execute_workflow("Fencing", id=unread, task_queue=OURS, search_attributes=tagged)
    await ends(env.client, "strange", Outcome.ABORTED, queue=f"theirs-{uuid4()}", cluster=cluster)
    async with asyncio.timeout(30):
        while (await env.client.count_workflows(f"WorkflowId STARTS_WITH '{episode_id(cluster, '')}'")).count < 8:
            await asyncio.sleep(0.1)
    seen = await found(env.client, cluster)
    assert {each.node for each in seen.left_alone} == {"a", "before", "off", "unread"}
    said = {
        "aborted by ada (the rack is being moved) (incident i-1)" in each.reason
        for each in seen.left_alone
        if each.node != "unread"
    }
    assert said == {True}


@workflow.defn(name="Fencing")
class UnreadableEpisode:
    """What it answers is no result of an episode."""

    @workflow.run
    async def run(self) -> str:
        return "?"


@workflow.defn(name="HealthScanner")
class FailingScanner:
    """Each run is paused by another person and fails; the first one alone had taken over what was before it."""

    @workflow.run
    async def run(self) -> None:
        info = workflow.info()
        pause = Pause(who=f"of run {info.attempt}", owner=f"of run {info.attempt}", reason="r", since=workflow.now())
        workflow.upsert_memo({PAUSES_MEMO: (PastPause(pause=pause),)})
        if info.attempt == 1:
            workflow.upsert_memo({TOOK_OVER_MEMO: info.run_id, STOPPED_MEMO: ("ada", "r")})
        if info.attempt < 3:
            raise ApplicationError("no code replays it")
        await asyncio.Future[None]()


async def test_s44_what_people_have_set_since_a_scanner_failed_is_found_with_what_that_one_knew(env: WorkflowEnvironment) -> None:
    """S44, S52: also where the run that replaced it has failed before it had taken anything over."""
    cluster, queue = f"c{uuid4().hex[:8]}", f"describing-{uuid4()}"
    again = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1.0)
    async with foreign_worker(env.client, queue, FailingScanner):
        handle = await env.client.start_workflow("HealthScanner", id=scanner_id(cluster), task_queue=queue, retry_policy=again)
        asking = ActivityEnvironment()
        for _ in range(200):  # visibility lags, and each run begins a second after the last
            run_id = (await env.client.get_workflow_handle(handle.id).describe()).run_id
            asking.info = replace(asking.info, workflow_run_id=run_id)
            seen = await asking.run(service(env.client).find_open, FindRequest(cluster=cluster))
            if len(seen.pauses) == 2 and not seen.untaken:
                break
            await asyncio.sleep(0.05)
        await env.client.get_workflow_handle(handle.id).terminate()
    assert [each.pause.who for each in seen.pauses] == ["of run 1", "of run 2"]
    assert (seen.former, seen.untaken, seen.stopped) == (handle.first_execution_run_id, False, ("ada", "r"))


async def was(client: Client, kind: str, workflow_id: str, modes: ClusterModes | None = None) -> None:
    """A workflow that has ended."""
    memo = None if modes is None else {MODES_MEMO: modes}
    ended = await client.start_workflow(kind, id=workflow_id, task_queue=f"describing-{uuid4()}", memo=memo)
    await ended.terminate()


@pytest.mark.parametrize(
    ("modes", "repaired"),
    [
        (ClusterModes(found=Mode.REPAIR), True),
        (ClusterModes(setting=Mode.REPAIR), True),
        (ClusterModes(found=Mode.OBSERVE), False),
        (ClusterModes(), False),
    ],
)
async def test_s52_no_episode_arms_a_cluster_that_its_last_scanner_observed(
    modes: ClusterModes, repaired: bool, env: WorkflowEnvironment
) -> None:
    cluster = f"c{uuid4().hex[:8]}"
    await was(env.client, "Fencing", episode_id(cluster, "node-1"))
    await was(env.client, "Scanner", scanner_id(cluster), modes)
    for _ in range(100):  # visibility lags
        if (seen := await found(env.client, cluster)).earlier:
            break
        await asyncio.sleep(0.05)
    assert (seen.earlier, seen.repaired) == (True, repaired)


async def test_s52_no_episode_arms_a_cluster_without_a_scanner_before(env: WorkflowEnvironment) -> None:
    """An open one neither: any client may have started it, and a person before the first scanner."""
    cluster = f"c{uuid4().hex[:8]}"
    queue = f"describing-{uuid4()}"
    opened_by_hand = await env.client.start_workflow("Fencing", id=episode_id(cluster, "node-1"), task_queue=queue)
    try:
        for _ in range(100):  # visibility lags
            if (seen := await found(env.client, cluster)).nodes:
                break
            await asyncio.sleep(0.05)
    finally:
        await opened_by_hand.terminate()
    assert (seen.nodes, seen.earlier, seen.repaired) == (("node-1",), False, False)


@workflow.defn(name="HealthScanner")
class ForgedScanner:
    """Any client of Temporal may run one."""

    @workflow.run
    async def run(self) -> None:
        await asyncio.Future[None]()

    @workflow.query
    def spells(self) -> ScannerSpells:
        sound = NodeDays(day="2026-11-28", check="c", mode=Mode.REPAIR, seconds=1.0)
        forged = (replace(sound, day="yesterday"), replace(sound, day="2026-13-01"), replace(sound, seconds=-1.0))
        naive = Spell(node="n", check="c", cause="x", since=datetime(2026, 11, 28), due=SINCE)  # noqa: DTZ001 - no zone
        mine = workflow.info().workflow_id.removeprefix(scanner_id(""))
        records = [
            ObservationRecord(cluster=cluster, days=days, until=until)
            for cluster, days, until in (
                (mine, (sound,), None),
                ("another", (sound,), None),
                (mine, forged[:1], None),
                (mine, (sound, replace(sound, day="2026-11-27")), None),
                (mine, (sound,), datetime(2026, 11, 28)),  # noqa: DTZ001 - no zone
            )
        ]
        held_off = (
            HoldOff(node="n", reason="aborted by ada"),
            HoldOff(node="n", reason="refused", until=SINCE),
            HoldOff(node="n" * 254, reason="aborted by ada"),
            HoldOff(node="n", reason="x" * 4001),
        )
        days = (*forged, *[sound] * (MOST_DAYS + 1))
        return ScannerSpells(spells=(naive,), days=days, records=tuple(records), held_off=held_off)


async def test_s49_what_no_scanner_counts_is_not_taken_over_from_the_last_one(env: WorkflowEnvironment) -> None:
    """S49: one record that can't be made would hold back all others, for ever."""
    cluster, queue = f"c{uuid4().hex[:8]}", f"describing-{uuid4()}"
    async with foreign_worker(env.client, queue, ForgedScanner):
        handle = await env.client.start_workflow("HealthScanner", id=scanner_id(cluster), task_queue=queue)
        run = FormerRun(workflow_id=handle.id, run_id=handle.first_execution_run_id or "")
        taken: ScannerSpells = await ActivityEnvironment().run(service(env.client).former_spells, run)
        await handle.terminate()
    assert taken.spells == ()
    assert {(each.day, each.seconds) for each in taken.days} == {("2026-11-28", 1.0)}
    assert len(taken.days) == MOST_DAYS
    assert [each.workflow_id for each in taken.records] == [f"observation/{cluster}/-days/2026-11-28"]
    assert [(each.node, each.reason) for each in taken.held_off] == [("n", "aborted by ada"), ("n", "refused")]


@workflow.defn(name="HealthScanner")
class TalkativeScanner:
    """Fewer spells than a scanner keeps, and longer ones."""

    @workflow.run
    async def run(self) -> None:
        await asyncio.Future[None]()

    @workflow.query
    def spells(self) -> ScannerSpells:
        long = Spell(node="n", check="c", cause="x" * 100_000, since=SINCE, due=SINCE)
        day = NodeDays(day="2026-11-28", check="y" * 100_000, mode=Mode.REPAIR, seconds=1.0)
        return ScannerSpells(spells=tuple(replace(long, node=f"n-{number}") for number in range(15)), days=(day,) * 4)


async def test_s49_no_more_is_taken_over_than_a_scanner_s_state_may_take(env: WorkflowEnvironment) -> None:
    """S49: what is over 2 MB ends the workflow that would carry it."""
    cluster, queue = f"c{uuid4().hex[:8]}", f"describing-{uuid4()}"
    async with foreign_worker(env.client, queue, TalkativeScanner):
        handle = await env.client.start_workflow("HealthScanner", id=scanner_id(cluster), task_queue=queue)
        run = FormerRun(workflow_id=handle.id, run_id=handle.first_execution_run_id or "")
        taken: ScannerSpells = await ActivityEnvironment().run(service(env.client).former_spells, run)
        await handle.terminate()
    assert (len(taken.spells), len(taken.days)) == (15, 1)
    (payload,) = env.client.data_converter.payload_converter.to_payloads([taken])
    assert len(payload.data) <= MOST_BYTES + 1000


async def test_all_open_episodes_of_a_cluster_are_found_but_for_preservations(env: WorkflowEnvironment) -> None:
    """S14: whatever holds a node's id, also a Machine's without a Node and a workflow that is none of ours. Nothing of another
    cluster, whose name begins alike, and nothing that has ended."""
    cluster, other, queue = f"c{uuid4().hex[:8]}", f"c{uuid4().hex[:8]}", f"describing-{uuid4()}"
    kinds = {"node-1": "Fencing", "machine/ns/m-1": "Remediation", "node-2": "Backup", "node-3": "Preservation"}
    begun = [
        await env.client.start_workflow(kind, id=episode_id(where, node), task_queue=queue)
        for where, node, kind in [
            *((cluster, node, kind) for node, kind in kinds.items()),
            (cluster + other, "node-4", "Fencing"),
        ]
    ]
    ended = await env.client.start_workflow("Fencing", id=episode_id(cluster, "node-5"), task_queue=queue)
    await ended.terminate()
    try:
        for _ in range(100):  # visibility lags
            seen = await found(env.client, cluster)
            if len(seen.nodes) == 3:
                break
            await asyncio.sleep(0.1)
        assert sorted(seen.nodes) == ["machine/ns/m-1", "node-1", "node-2"]
        assert not seen.earlier
        scanner = await env.client.start_workflow("HealthScanner", id=scanner_id(cluster), task_queue=queue)
        await scanner.terminate()
        for _ in range(100):
            if (await found(env.client, cluster)).earlier:
                break
            await asyncio.sleep(0.1)
        assert (await found(env.client, cluster)).earlier
    finally:
        for each in begun:
            await each.terminate()


@workflow.defn(name="Preservation")
class SpeechlessKeeper:
    """Keeps a machine for ever, and hears everything."""

    @workflow.run
    async def run(self, request: PreservationInput) -> None:
        await asyncio.Future[None]()

    @workflow.signal
    def look_again(self, news: PreservationUpdate) -> None:
        """The scanner has something to say."""


async def asked(client: Client, node: str, *, going: bool) -> PreserveOutcome:
    need = PreservationNeed(victim=node, action="none", reason="it is gone, and was kept", stamp="one", going=going)
    request = PreserveRequest(cluster=CLUSTER, holder="us", needs=(need,))
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, attempt=episodes.ASKED_AGAIN)  # no worker answers for one that has ended
    (outcome,) = (await environment.run(service(client).preserve, request)).outcomes
    assert isinstance(outcome, PreserveOutcome)
    return outcome


async def signals(client: Client, node: str) -> list[str]:
    history = await client.get_workflow_handle(episode_id(CLUSTER, node)).fetch_history()
    signalled = [event.workflow_execution_signaled_event_attributes for event in history.events]
    return [each.signal_name for each in signalled if each.signal_name]


async def test_keeping_a_machine_that_is_going_is_refused_with_the_reason(env: WorkflowEnvironment) -> None:
    node = f"node-{uuid4().hex[:6]}"
    async with holding(env.client, node, "Preservation", memo={"incident": "i-1"}, by=SpeechlessKeeper):
        assert (await asked(env.client, node, going=True)).opened is Opened.JOINED
        assert await signals(env.client, node) == ["look_again"]


@pytest.mark.parametrize("before", [False, True], ids=["nobody ever did", "one has ended"])
async def test_a_machine_that_is_not_kept_stays_so(env: WorkflowEnvironment, *, before: bool) -> None:
    """S26: an explicit deletion beats preservation."""
    node = f"node-{uuid4().hex[:6]}"
    if before:
        async with holding(env.client, node, "Preservation", memo={"incident": "i-1"}):
            pass
    outcome = await asked(env.client, node, going=True)
    assert (outcome.opened, outcome.holder) == (Opened.REFUSED, "")
    started = await asked(env.client, node, going=False)
    await env.client.get_workflow_handle(episode_id(CLUSTER, node)).terminate()
    assert started.opened is Opened.STARTED, "nothing was begun before"


# What dashboards and alerts can be made of: the flow of an episode, counted as it goes.


async def test_the_flow_of_a_fencing_is_counted_and_each_act_measured_under_its_step(
    env: WorkflowEnvironment, measured: Measured
) -> None:
    """The roadmap of the node-fencing proposal. For a person, since the pin of a check's fencing cordons, too."""
    world = World(need=Need(kind=NeedKind.PERSON, reason="smoke"))
    async with fencing(env, world, client=measured.client) as run:
        result = await run.result()
        cluster = run.handle.id.split("/")[1]
    assert measured.of(metrics.EPISODE_PHASES, "cluster", "kind", "phase") == {
        (cluster, "Fencing", phase): 1 for phase in ("running", "done", "final")
    }
    assert measured.of(metrics.EPISODES_ENDED, "cluster", "kind", "outcome") == {(cluster, "Fencing", "recovered"): 1}
    assert measured.longest(metrics.EPISODES_ENDED) == pytest.approx((result.ended - result.started).total_seconds(), abs=1)
    acts = measured.of("temporal_activity_execution_latency", "activity_type")
    assert acts["isolation.mark-unschedulable",] == acts["power-management.power-off",] == acts["recovery.mark-schedulable",] == 1


async def test_how_long_a_node_was_of_no_use_is_measured_from_when_it_began_to_offend(
    env: WorkflowEnvironment, measured: Measured
) -> None:
    """To its episode, to off, to service, in that order. Where nobody says since when, nothing is made up."""
    since = datetime.now(UTC) - timedelta(minutes=10)
    times = (metrics.TIME_TO_DETECT, metrics.TIME_TO_OFF, metrics.TIME_TO_SERVICE)
    async with fencing(env, World(), client=measured.client) as run:
        await run.result()
    assert [measured.updates(each) for each in times] == [[], [], []]
    need = Need(kind=NeedKind.CHECK, reason="NodeHealthCheck/workers: Ready is Unknown", since=since)
    async with fencing(env, World(need=need), client=measured.client) as run:
        await run.result()
    assert [len(measured.updates(each)) for each in times] == [1, 1, 1]
    detected, off, service = (measured.longest(each) for each in times)
    assert 590 <= detected <= off <= service


async def test_an_episode_that_needs_a_person_is_counted_though_it_never_ends(
    env: WorkflowEnvironment, measured: Measured
) -> None:
    world = World(plan=plan(tries=1, restarts=0), ignores_off=True)
    async with fencing(env, world, client=measured.client) as run:
        await run.parked()
    phases = measured.of(metrics.EPISODE_PHASES, "phase")
    assert phases["error",] == phases["needs-human",] == 1
    assert measured.of(metrics.EPISODES_ENDED, "outcome") == {}


async def test_a_preservation_is_counted_by_its_own_kind(env: WorkflowEnvironment, measured: Measured) -> None:
    world = machine("now")
    async with preserving(env, world, client=measured.client) as run:
        assert (await run.timeout()).outcome is Outcome.RELEASED
    assert measured.of(metrics.EPISODE_PHASES, "kind", "phase")["Preservation", "Running:Preserved"] == 1
    assert measured.of(metrics.EPISODES_ENDED, "kind", "outcome") == {("Preservation", "released"): 1}
    assert measured.longest(metrics.EPISODES_ENDED) >= 72 * 3600
