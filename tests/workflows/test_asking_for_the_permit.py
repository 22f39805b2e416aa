"""A last look asks the scanner whether the permit is held: whoever can't be asked has said no (S20, S37)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, cast
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import GrpcStatus
from temporalio.api.enums.v1 import ResourceExhaustedCause
from temporalio.api.errordetails.v1 import ResourceExhaustedFailure
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from activities import temporal_clients
from activities.errors import ErrorType
from activities.our_workflows import BUSY, OurWorkflows
from activities.temporal_clients import DeviceCheckClient, ScannerPermits
from policy.episode.messages import scanner_id
from policy.episode.modes import ClusterModes
from policy.episode.permits import PermitQuestions
from policy.fence.credential_hosts import CredentialHosts
from policy.values.mode import Mode
from tests.cluster.acts.world import refused
from tests.workflows.test_describing import foreign_worker

pytestmark = pytest.mark.timeout(30)


@workflow.defn(name="HealthScanner")
class Speechless:
    """A scanner whose build knows no such query."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)


OBSERVES = ClusterModes(setting=Mode.OBSERVE)


@workflow.defn(name="HealthScanner")
class Answering(Speechless):
    """A scanner that knows of one permit."""

    @workflow.run
    async def run(self) -> None:
        await super().run()

    @workflow.query
    def holds_permits(self, asked: PermitQuestions) -> PermitQuestions:
        answers = [replace(each, held=each.incident == "i-1", reason="held by i-1") for each in asked.questions]
        return PermitQuestions(
            questions=tuple(replace(each, reason="") if each.held else each for each in answers), modes=OBSERVES
        )


@pytest.mark.parametrize("served", [Answering, Speechless])
async def test_a_permit_is_held_where_the_scanner_says_so(server: WorkflowEnvironment, served: type) -> None:
    """S20, S38: one that is not there, that knows no such question, or that has been stopped, has not said yes."""
    cluster, queue = f"c{uuid4().hex[:8]}", f"permits-{uuid4()}"
    permits = ScannerPermits(OurWorkflows(server.client, task_queue=queue))
    with refused(ErrorType.UNREACHABLE, "can't be asked"):
        await permits.holds(cluster, "node-1", "i-1")
    async with foreign_worker(server.client, queue, served):
        handle = await server.client.start_workflow("HealthScanner", id=scanner_id(cluster), task_queue=queue)
        if served is Answering:
            assert (await permits.holds(cluster, "node-1", "i-1"))[0]
            assert await permits.holds(cluster, "node-1", "i-2") == (False, "held by i-1")
            assert await permits.modes(cluster) == OBSERVES
        else:
            with refused(ErrorType.UNREACHABLE, "can't be asked"):
                await permits.holds(cluster, "node-1", "i-1")
            with refused(ErrorType.UNREACHABLE, "can't be asked"):  # S52: that is no mode
                await permits.modes(cluster)
        await handle.terminate()
    assert await permits.holds(cluster, "node-1", "i-1") == (False, f"the scanner of {cluster} has been stopped")
    with refused(ErrorType.UNREACHABLE, "has been stopped"):
        await permits.modes(cluster)


async def test_s49_no_permit_is_held_that_a_scanner_of_another_queue_grants(server: WorkflowEnvironment) -> None:
    """S14, S17: who had terminated the scanner granted every episode a permit in its place, through open circuit breakers. Once
    ours runs again it is the one that is asked, also where another one took its place meanwhile."""
    cluster, ours, theirs = f"c{uuid4().hex[:8]}", f"ours-{uuid4()}", f"theirs-{uuid4()}"
    permits = ScannerPermits(OurWorkflows(server.client, task_queue=ours))
    async with foreign_worker(server.client, ours, Answering), foreign_worker(server.client, theirs, Answering):
        for queue in (theirs, ours, theirs, ours):
            handle = await server.client.start_workflow("HealthScanner", id=scanner_id(cluster), task_queue=queue)
            if queue is ours:
                assert (await permits.holds(cluster, "node-1", "i-1"))[0]
            else:
                with refused(ErrorType.UNREACHABLE, f"runs on task queue {theirs}, which is not ours"):
                    await permits.holds(cluster, "node-1", "i-1")
            await handle.terminate()


async def test_all_that_ask_a_run_that_has_ended_ask_the_next_one(server: WorkflowEnvironment) -> None:
    """S14: hundreds of episodes may ask for their permits in the moment in which the scanner begins a new history."""
    cluster, queue = f"c{uuid4().hex[:8]}", f"permits-{uuid4()}"
    workflows, nothing = OurWorkflows(server.client, task_queue=queue), PermitQuestions(questions=())
    async with foreign_worker(server.client, queue, Answering):
        for askers in (1, 20, 20):
            handle = await server.client.start_workflow("HealthScanner", id=scanner_id(cluster), task_queue=queue)
            asked = partial(workflows.query, handle.id, "holds_permits", nothing, answer=PermitQuestions)
            answers = await asyncio.gather(*(asked(within=timedelta(seconds=10)) for _ in range(askers)))
            assert {answer.modes for answer in answers} == {OBSERVES}
            await handle.terminate()


@workflow.defn(name="HealthScanner")
class NotKnowingYet(Speechless):
    """A scanner that has not found out which mode its cluster begins with, or one of a version without modes."""

    @workflow.run
    async def run(self) -> None:
        await super().run()

    @workflow.query
    def holds_permits(self, asked: PermitQuestions) -> PermitQuestions:
        return asked


async def test_s52_a_scanner_that_knows_no_mode_yet_has_set_none(server: WorkflowEnvironment) -> None:
    cluster, queue = f"c{uuid4().hex[:8]}", f"permits-{uuid4()}"
    permits = ScannerPermits(OurWorkflows(server.client, task_queue=queue))
    async with foreign_worker(server.client, queue, NotKnowingYet):
        handle = await server.client.start_workflow("HealthScanner", id=scanner_id(cluster), task_queue=queue)
        with refused(ErrorType.UNREACHABLE, "has not found out yet which modes are set"):
            await permits.modes(cluster)
        await handle.terminate()


@dataclass
class Scanner:
    """In a client's place: a scanner that answers once it is let, by what it knew when it was asked; or fails so. Asked
    nothing, it says where a credential may go, as a check of devices does."""

    held: set[tuple[str, str]] = field(default_factory=set)
    error: Exception | None = None
    sent: list[list[str]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    let_through: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    run_id, task_queue, status = "run", "ours", WorkflowExecutionStatus.RUNNING

    def get_workflow_handle(self, _workflow_id: str, *, run_id: str = "") -> Scanner:
        return self

    async def describe(self, **_: Any) -> Scanner:
        """As a description of its run."""
        return self

    async def query(self, _name: str, *, args: tuple[PermitQuestions, ...], **_: Any) -> PermitQuestions | CredentialHosts:
        if self.error is not None:
            raise self.error
        questions = [each for asked in args for each in asked.questions]
        self.sent.append([each.node for each in questions])
        answers = [replace(each, held=(each.node, each.incident) in self.held) for each in questions]
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await self.let_through.acquire()
        self.under_way -= 1
        return PermitQuestions(questions=tuple(answers)) if args else {"Secret/nodewarden/bmc": ("10.0.0.7",)}


def asking(scanner: Scanner) -> ScannerPermits:
    return ScannerPermits(OurWorkflows(cast(Client, scanner), task_queue="ours"))


FULL = "consistent query buffer is full, this may be caused by too many queries"
FAILED = RPCStatusCode.FAILED_PRECONDITION
SILENT = "the scanner of prod does not answer: `nodewarden status -c prod` says why, and what to do"


def full(cause: ResourceExhaustedCause.ValueType) -> RPCError:
    """As Temporal refuses one question while another one waits, or one that is too many for it."""
    status = GrpcStatus(code=RPCStatusCode.RESOURCE_EXHAUSTED, message=FULL)
    status.details.add().Pack(ResourceExhaustedFailure(cause=cause))
    return RPCError(FULL, RPCStatusCode.RESOURCE_EXHAUSTED, status.SerializeToString())


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b""), "connection refused"),
        (RPCError("Timeout expired", RPCStatusCode.CANCELLED, b""), SILENT),
        (RPCError("Unable to query workflow due to Workflow Task in failed state.", FAILED, b""), SILENT),
        (full(BUSY), SILENT),
        (full(ResourceExhaustedCause.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT), FULL),
        (WorkflowQueryFailedError("it has no worker"), "it has no worker"),
    ],
    ids=["away", "slow", "failed", "full", "limited", "unserved"],
)
async def test_with_temporal_unreachable_no_permit_is_held(error: Exception, says: str) -> None:
    """S37: nothing destructive starts. A scanner that is stuck is not told of in Temporal's own words (S44)."""
    permits = asking(Scanner(error=error))
    for asked in (permits.holds("prod", "node-1", "i-1"), permits.paused("prod"), permits.modes("prod")):
        with refused(ErrorType.UNREACHABLE, says) as found:
            await asked
        assert (FULL in str(found.value)) is (says == FULL)


async def test_looks_of_one_moment_are_one_query_and_each_gets_its_own_answer() -> None:
    """S14: hundreds of looks are no more work for the one scanner than two; a yes is of that node and that incident."""
    scanner = Scanner(held={("node-1", "i-1"), ("node-3", "i-3")})
    permits = asking(scanner)
    looks = [asyncio.create_task(permits.holds("prod", f"node-{number}", f"i-{number}")) for number in range(200)]
    looks.append(asyncio.create_task(permits.holds("prod", "node-1", "another incident")))
    scanner.let_through.release()
    held = [(await look)[0] for look in looks]
    assert [number for number, yes in enumerate(held) if yes] == [1, 3]
    assert [len(questions) for questions in scanner.sent] == [201]


async def test_nodes_that_are_pinned_in_one_moment_ask_once_where_credentials_may_go() -> None:
    """S40: Temporal lets one query wait for the one check of devices, and hundreds that were refused held up the whole worker."""
    check = Scanner()
    devices = DeviceCheckClient(cast(Client, check), OurWorkflows(cast(Client, check), task_queue="ours"))
    first = asyncio.create_task(devices.hosts("prod"))
    await asyncio.sleep(0.01)
    later = [asyncio.create_task(devices.hosts("prod")) for _ in range(200)]
    await asyncio.sleep(0.01)
    assert len(check.sent) == 1
    for _ in range(2):
        check.let_through.release()
    assert {str(await each) for each in (first, *later)} == {"{'Secret/nodewarden/bmc': ('10.0.0.7',)}"}
    assert len(check.sent) == 2, "who asks after a query was sent gets no answer of it"


async def test_no_answer_is_older_than_the_look_that_asked() -> None:
    """S14, S20, S38: a permit that has gone while a query was under way is not held for a look that began meanwhile."""
    scanner = Scanner(held={("node-1", "i-1")})
    permits = asking(scanner)
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


async def test_a_scanner_that_does_not_answer_in_time_has_said_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """S20, S37: waiting for one's turn counts; whoever gives up leaves the others their answer."""
    scanner = Scanner(held={("node-1", "i-1"), ("node-2", "i-2")})
    permits = asking(scanner)
    first = asyncio.create_task(permits.holds("prod", "node-1", "i-1"))
    await asyncio.sleep(0.01)
    monkeypatch.setattr(temporal_clients, "QUERY_TIMEOUT", timedelta(milliseconds=50))
    with refused(ErrorType.UNREACHABLE, SILENT):
        await permits.holds("prod", "node-2", "i-2")
    scanner.let_through.release()
    assert (await first)[0]
