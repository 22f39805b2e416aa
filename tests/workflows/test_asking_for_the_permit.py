"""A last look asks the scanner whether the permit is held: whoever can't be asked has said no (S20, S37)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import Client, Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities import permitbook
from activities.permitbook import ScannerPermits
from policy.episode.ids import scanner_id
from policy.episode.permits import PermitQuestions

pytestmark = pytest.mark.timeout(30)


@workflow.defn(name="HealthScanner")
class Answering:
    """A scanner that knows of one permit."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def holds_permits(self, asked: PermitQuestions) -> PermitQuestions:
        answers = [replace(each, held=each.incident == "i-1", reason="held by i-1") for each in asked.questions]
        return PermitQuestions(questions=tuple(replace(each, reason="") if each.held else each for each in answers))


@workflow.defn(name="HealthScanner")
class Speechless:
    """A scanner whose build knows no such query."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


class Failing(Interceptor):
    """Every query of its client fails so."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - as the SDK has it
        error = self._error

        class Refusing(OutboundInterceptor):
            async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002 - as the SDK has it
                raise error

        return Refusing(next)


@pytest.fixture
def env(server: WorkflowEnvironment) -> WorkflowEnvironment:
    """The real one: what it says of workflows that are not there, or have ended, is its own."""
    return server


@asynccontextmanager
async def scanner(client: Client, cluster: str, served: type) -> AsyncIterator[None]:
    """A scanner of that kind, until the test is over."""
    plain = Client(client.service_client, namespace=client.namespace, data_converter=client.data_converter)
    queue = f"permits-{uuid4()}"
    async with Worker(plain, task_queue=queue, workflows=[served], workflow_runner=UnsandboxedWorkflowRunner()):
        handle = await plain.start_workflow("HealthScanner", id=scanner_id(cluster), task_queue=queue)
        try:
            yield
        finally:
            await handle.terminate()


async def test_a_permit_is_held_where_the_scanner_says_so(env: WorkflowEnvironment) -> None:
    cluster = f"c{uuid4().hex[:8]}"
    async with scanner(env.client, cluster, Answering):
        assert await ScannerPermits(env.client).holds(cluster, "node-1", "i-1") == (True, "")
        assert await ScannerPermits(env.client).holds(cluster, "node-1", "i-2") == (False, "held by i-1")
    stopped = await ScannerPermits(env.client).holds(cluster, "node-1", "i-1")
    assert stopped == (False, f"the scanner of {cluster} has been stopped")


async def test_without_a_scanner_no_permit_is_held(env: WorkflowEnvironment) -> None:
    """S20, S38."""
    held, why = await ScannerPermits(env.client).holds("nobody", "node-1", "i-1")
    assert (held, "can't be asked for the permit" in why) == (False, True)


async def test_a_scanner_that_knows_no_such_question_has_not_said_yes(env: WorkflowEnvironment) -> None:
    """S20: of an older build."""
    cluster = f"c{uuid4().hex[:8]}"
    async with scanner(env.client, cluster, Speechless):
        held, why = await ScannerPermits(env.client).holds(cluster, "node-1", "i-1")
    assert (held, "can't be asked for the permit" in why) == (False, True)


@pytest.mark.parametrize(
    "error",
    [
        RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b""),
        RPCError("too slow", RPCStatusCode.DEADLINE_EXCEEDED, b""),
        WorkflowQueryFailedError("it has no worker"),
    ],
    ids=["away", "slow", "unserved"],
)
async def test_with_temporal_unreachable_no_permit_is_held(env: WorkflowEnvironment, error: Exception) -> None:
    """S37: nothing destructive starts."""
    connected = env.client.config()
    client = Client(connected["service_client"], namespace=connected["namespace"], interceptors=[Failing(error)])
    held, why = await ScannerPermits(client).holds("prod", "node-1", "i-1")
    assert (held, str(error) in why) == (False, True)


@dataclass
class Slow(Interceptor):
    """Queries that wait to be let through; what the scanner knows, it knows at the sending."""

    held: set[tuple[str, str]] = field(default_factory=set)
    sent: list[list[str]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    let_through: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:  # noqa: A002 - as the SDK has it
        slow = self

        class Waiting(OutboundInterceptor):
            async def query_workflow(self, input: QueryWorkflowInput) -> Any:  # noqa: A002 - as the SDK has it
                questions: PermitQuestions = input.args[0]
                slow.sent.append([each.node for each in questions.questions])
                answers = [replace(each, held=(each.node, each.incident) in slow.held) for each in questions.questions]
                slow.under_way += 1
                slow.most_under_way = max(slow.most_under_way, slow.under_way)
                await slow.let_through.acquire()
                slow.under_way -= 1
                return PermitQuestions(questions=tuple(answers))

        return Waiting(next)


@pytest.fixture
def slow(env: WorkflowEnvironment) -> tuple[Slow, ScannerPermits]:
    """A scanner that takes its time, and who asks it."""
    connected, interceptor = env.client.config(), Slow()
    client = Client(connected["service_client"], namespace=connected["namespace"], interceptors=[interceptor])
    return interceptor, ScannerPermits(client)


async def test_looks_of_one_moment_are_one_query_and_each_gets_its_own_answer(slow: tuple[Slow, ScannerPermits]) -> None:
    """S14: hundreds of looks are no more work for the one scanner than two; a yes is of that node and that incident."""
    scanner, permits = slow
    scanner.held = {("node-1", "i-1"), ("node-3", "i-3")}
    looks = [asyncio.create_task(permits.holds("prod", f"node-{number}", f"i-{number}")) for number in range(200)]
    looks.append(asyncio.create_task(permits.holds("prod", "node-1", "another incident")))
    scanner.let_through.release()
    held = [(await look)[0] for look in looks]
    assert [number for number, yes in enumerate(held) if yes] == [1, 3]
    assert [len(questions) for questions in scanner.sent] == [201]


async def test_no_answer_is_older_than_the_look_that_asked(slow: tuple[Slow, ScannerPermits]) -> None:
    """S14, S20, S38: a permit that has gone while a query was under way is not held for a look that began meanwhile."""
    scanner, permits = slow
    scanner.held = {("node-1", "i-1")}
    first = asyncio.create_task(permits.holds("prod", "node-1", "i-1"))
    await asyncio.sleep(0.01)
    assert len(scanner.sent) == 1
    scanner.held.clear()
    later = [asyncio.create_task(permits.holds("prod", f"node-{number}", "i-1")) for number in (1, 2)]
    await asyncio.sleep(0.01)
    for _ in range(2):
        scanner.let_through.release()
    assert (await first)[0]
    assert [(await look)[0] for look in later] == [False, False]
    assert scanner.sent == [["node-1"], ["node-1", "node-2"]]
    assert scanner.most_under_way == 1


async def test_a_scanner_that_does_not_answer_in_time_has_said_no(
    slow: tuple[Slow, ScannerPermits], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S20, S37: waiting for one's turn counts; whoever gives up leaves the others their answer."""
    scanner, permits = slow
    scanner.held = {("node-1", "i-1"), ("node-2", "i-2")}
    first = asyncio.create_task(permits.holds("prod", "node-1", "i-1"))
    await asyncio.sleep(0.01)
    monkeypatch.setattr(permitbook, "QUERY_TIMEOUT", timedelta(milliseconds=50))
    held, why = await permits.holds("prod", "node-2", "i-2")
    assert (held, "not answered in time" in why) == (False, True)
    scanner.let_through.release()
    assert (await first)[0]
