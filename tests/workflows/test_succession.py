"""Whose state a run may go on with, on a real server: that of its own earlier run, of our types and on our queue (S42).

The attacker has a client, and a worker for a queue and types of his own.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

import pytest
from temporalio import activity, workflow
from temporalio.client import WorkflowContinuedAsNewError, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.episodes import EpisodeService
from activities.licences import FIRST_RUN
from policy.episode.messages import FencingInput, Need, NeedKind, episode_id
from policy.episode.node_action import NodeActionSpec, SealedCommand, Verb
from workers.configuration.process_settings import WorkerSettings
from workers.interceptors.activity_guards import RunGuard
from workers.interceptors.workflow_guards import ContinuationGuard
from workers.worker import Serving, activities_of, build
from workflows.definitions.episodes import Fencing
from workflows.kit import continuation


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """As those of ours: the first run has no state."""

    state: str | None = None


@workflow.defn(name="Ours", sandboxed=False)
class Ours:
    """Acts on what it is told by the run before."""

    @workflow.run
    async def run(self, request: Request) -> str:
        """The state."""
        if request.state is None:
            workflow.continue_as_new(Request(state="ours"))
        return request.state


@workflow.defn(name="Hop", sandboxed=False)
class Hop:
    """The attacker's: goes on as ours."""

    @workflow.run
    async def run(self, queue: str) -> None:
        """With a state of his own."""
        workflow.continue_as_new(args=[Request(state="forged")], workflow="Ours", task_queue=queue)


@workflow.defn(name="Ours", sandboxed=False)
class Disguised(Hop):
    """The same by the name of ours."""

    @workflow.run
    async def run(self, queue: str) -> None:
        """With a state of his own."""
        await super().run(queue)


async def unused(_client: object) -> str:
    return ""


async def test_a_state_is_believed_of_an_earlier_run_of_ours_only(server: WorkflowEnvironment) -> None:
    queue, his = f"ours-{uuid.uuid4().hex}", f"his-{uuid.uuid4().hex}"
    client = server.client
    service = EpisodeService(client, task_queue=queue, holder=unused)
    serving = Serving(queue=queue, workflows=[Ours], activities=activities_of(service))
    async with build(client, serving, WorkerSettings()):
        handle = await client.start_workflow("Ours", Request(), id=f"true-{queue}", task_queue=queue)
        assert await handle.result() == "ours"
        for disguise in (Hop, Disguised):
            async with Worker(client, task_queue=his, workflows=[disguise], workflow_runner=UnsandboxedWorkflowRunner()):
                name = "Hop" if disguise is Hop else "Ours"
                forged = await client.start_workflow(name, queue, id=f"forged-{name}-{queue}", task_queue=his)
                with pytest.raises(WorkflowFailureError) as refused:
                    await forged.result()
            assert f"that was {name} on task queue '{his}'" in str(refused.value.cause)


async def test_nor_of_one_of_another_type(server: WorkflowEnvironment) -> None:
    queue = f"ours-{uuid.uuid4().hex}"
    service = activities_of(EpisodeService(server.client, task_queue=queue, holder=unused))
    asking = ContinuationGuard({"Another"})
    async with Worker(server.client, task_queue=queue, workflows=[Ours], activities=service, interceptors=[asking]):
        with pytest.raises(WorkflowFailureError) as refused:
            await server.client.execute_workflow("Ours", Request(), id=f"type-{queue}", task_queue=queue)
    assert "that was Ours" in str(refused.value.cause)


async def test_nor_is_a_state_believed_of_who_has_it_begun_again_by_a_schedule(server: WorkflowEnvironment) -> None:
    """The run before is of our type, on our queue, and has ended: what it was begun with is what the attacker has written."""
    queue = f"ours-{uuid.uuid4().hex}"
    client = server.client
    serving = Serving(
        queue=queue, workflows=[Ours], activities=activities_of(EpisodeService(client, task_queue=queue, holder=unused))
    )
    async with build(client, serving, WorkerSettings()):
        forged = Request(state="forged")
        handle = await client.start_workflow("Ours", forged, id=f"cron-{queue}", task_queue=queue, cron_schedule="@every 1s")
        try:
            for _ in range(2):
                run = client.get_workflow_handle(handle.id, run_id=(await handle.describe()).run_id)
                with pytest.raises((WorkflowFailureError, WorkflowContinuedAsNewError)):
                    await run.result(follow_runs=False)
                last = [each async for each in run.fetch_history_events()][-1]
                assert "there was none" in last.workflow_execution_failed_event_attributes.failure.message
        finally:
            await handle.terminate("the test is over")


@pytest.mark.parametrize("node", ["$(id)", "node 7", "machine/shoot", "--yes", "node-7`id`", "machine/a/b/c"])
async def test_s41_no_episode_is_of_a_name_that_no_node_has(server: WorkflowEnvironment, node: str) -> None:
    """Its name stands in commands that people are shown, to be copied."""
    queue, cluster = f"ours-{uuid.uuid4().hex}", f"c-{uuid.uuid4().hex[:8]}"
    async with Worker(server.client, task_queue=queue, workflows=[Fencing], workflow_runner=UnsandboxedWorkflowRunner()):
        wanted = FencingInput(cluster=cluster, node=node, reason="x", requester="ada", incident="i")
        with pytest.raises(WorkflowFailureError) as refused:
            await server.client.execute_workflow("Fencing", wanted, id=episode_id(cluster, node), task_queue=queue)
    assert str(refused.value.cause).startswith(
        "InvalidConfig: node: expected the name of a Node, or machine/<namespace>/<name>, got"
    )


class _Failing:
    @workflow.run
    async def run(self, request: Request) -> str:
        """The state that is believed."""
        if request.state is None:
            workflow.continue_as_new(Request(state="as it was"))
        if workflow.info().attempt == 1:
            raise ApplicationError("no code can replay it")
        return str(continuation.carried(request.state))


@workflow.defn(name="HealthScanner", sandboxed=False)
class FailingScanner(_Failing):
    """It begins anew."""

    @workflow.run
    async def run(self, request: Request) -> str:
        """The same."""
        return await super().run(request)


@workflow.defn(name="Fencing", sandboxed=False)
class FailingEpisode(_Failing):
    """It would act on the state."""

    @workflow.run
    async def run(self, request: Request) -> str:
        """The same."""
        return await super().run(request)


async def test_a_run_that_replaces_one_that_failed_believes_no_state(server: WorkflowEnvironment) -> None:
    """S42, S44: a scanner whose history can't be replayed is replaced also after continue-as-new, and begins anew; no other kind
    of run begins at all. A caller can have its own run fail, with a state that no run of ours has left."""
    queue, client = f"ours-{uuid.uuid4().hex}", server.client
    service = EpisodeService(client, task_queue=queue, holder=unused)
    serving = Serving(queue=queue, workflows=[FailingScanner, FailingEpisode], activities=activities_of(service))
    again = RetryPolicy(initial_interval=timedelta(milliseconds=10))
    async with build(client, serving, WorkerSettings()):
        common = {"task_queue": queue, "retry_policy": again, "result_type": str}
        found = await client.execute_workflow("HealthScanner", Request(), id=f"scanner-{queue}", **common)
        assert found == "None"
        with pytest.raises(WorkflowFailureError) as refused:
            await client.execute_workflow("Fencing", Request(), id=f"episode-{queue}", **common)
        assert "there was none" in str(refused.value.cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request with a person's word in it."""

    need: Need


@activity.defn
async def first_run(asked: Asked) -> str:
    """As the guard has found it."""
    return FIRST_RUN.get()


@workflow.defn(name="Told", sandboxed=False)
class Told:
    """Asks with a word, in two histories."""

    @workflow.run
    async def run(self, queue: str, found: list[str]) -> list[str]:
        """What each has found."""
        spec = NodeActionSpec(action=Verb.FENCE, node="n", reason="r")
        need = Need(kind=NeedKind.PERSON, reason="r", command=SealedCommand(spec=spec, action="u", speaker="ada"))
        call = {"task_queue": queue, "start_to_close_timeout": timedelta(seconds=20)}
        found = [*found, await workflow.execute_activity(first_run, Asked(need=need), **call)]
        if len(found) == 1:
            workflow.continue_as_new(args=[queue, found])
        return found


async def test_s49_a_word_is_of_the_chain_of_runs_that_temporal_names(server: WorkflowEnvironment) -> None:
    """Also in a new history; another workflow of the same id is another chain, whatever it says."""
    client, queue, acts = server.client, f"told-{uuid.uuid4().hex}", f"acts-{uuid.uuid4().hex}"
    async with (
        Worker(client, task_queue=queue, workflows=[Told], workflow_runner=UnsandboxedWorkflowRunner()),
        Worker(client, task_queue=acts, activities=[first_run], interceptors=[RunGuard(client, queue)]),
    ):
        chains = []
        for _ in range(2):
            handle = await client.start_workflow("Told", args=[acts, []], id=queue, task_queue=queue, result_type=list[str])
            assert await handle.result() == [handle.first_execution_run_id] * 2
            chains.append(handle.first_execution_run_id)
        assert chains[0] != chains[1]


async def test_s49_nothing_is_done_for_a_workflow_that_another_queue_s_worker_carries_out(server: WorkflowEnvironment) -> None:
    """Under the id and the type of an episode it had nodes drained, people's NodeActions sealed for itself, and devices read."""
    client, theirs, acts = server.client, f"theirs-{uuid.uuid4().hex}", f"acts-{uuid.uuid4().hex}"
    async with (
        Worker(client, task_queue=theirs, workflows=[Told], workflow_runner=UnsandboxedWorkflowRunner()),
        build(client, Serving(queue=acts, activities=[first_run]), WorkerSettings()),
    ):
        with pytest.raises(WorkflowFailureError) as failed:
            await client.execute_workflow("Told", args=[acts, []], id=theirs, task_queue=theirs)
    refused = failed.value.cause.__cause__
    assert isinstance(refused, ApplicationError)
    assert f"expected a workflow on task queue 'nodewarden', Told {theirs!r} runs on {theirs!r}; nothing was done" in str(refused)
