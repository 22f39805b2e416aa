"""A last look asks the scanner whether the permit is held: whoever can't be asked has said no (S20, S37)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import Client, Interceptor, OutboundInterceptor, QueryWorkflowInput, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.permitbook import ScannerPermits
from policy.ids import scanner_id
from policy.permits import PermitQuestion

pytestmark = pytest.mark.timeout(30)


@workflow.defn(name="HealthScanner")
class Answering:
    """A scanner that knows of one permit."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.query
    def holds_permit(self, question: PermitQuestion) -> PermitQuestion:
        held = question.incident == "i-1"
        return PermitQuestion(node=question.node, incident=question.incident, held=held, reason="" if held else "held by i-1")


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
