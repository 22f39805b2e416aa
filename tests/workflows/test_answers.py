"""What episodes ask their scanner by signal, and read the answer of by query."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from activities import episodes
from activities.contracts.episodes import AskPermit
from activities.errors import ErrorType
from activities.our_workflows import OurWorkflows
from policy.episode.messages import episode_id, scanner_id
from policy.episode.permits import PermitAnswer, PermitDecision, PermitRequest, ScannerAnswer, ScannerQuestion, silent_scanner
from tests.cluster.acts.world import refused
from tests.workflows.scanner_run import ScriptedCluster, report, scanning
from tests.workflows.test_describing import service
from workflows.definitions.scanner import HealthScanner
from workflows.scanner.answers import MOST_KEPT


def request_for(cluster: str, node: str, incident: str = "by-hand") -> PermitRequest:
    return PermitRequest(node=node, workflow_id=episode_id(cluster, node), incident=incident, by_person=True)


async def test_an_activity_asks_and_has_the_answer_that_the_scanner_gives(server: WorkflowEnvironment) -> None:
    async with scanning(server, ScriptedCluster(report()), cap=1) as scan:

        async def ask(node: str, queue: str = "") -> PermitAnswer:
            asking = service(server.client, queue or f"scanners-{scan.cluster}")
            request = AskPermit(cluster=scan.cluster, permit=request_for(scan.cluster, node))
            answer = await ActivityEnvironment().run(asking.request_permit, request)
            assert isinstance(answer, PermitAnswer)
            return answer

        assert (await ask("node-1")).decision is PermitDecision.GRANTED
        assert (await ask("node-2")).decision is PermitDecision.QUEUED
        assert (await ask("node-1")).decision is PermitDecision.GRANTED, "it holds it already"
        # S49: a scanner of another queue is none, and hands out neither permits nor pods (S14).
        assert (await ask("node-1", queue="another")).reason.startswith("no scanner runs for cluster")


async def test_without_a_scanner_a_permit_is_refused_and_where_it_is_silent_nothing_is_known(
    server: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S44: no answer is no refusal, and is asked for again."""
    asking = service(server.client, "of-no-worker")
    request = AskPermit(cluster="nowhere", permit=request_for("nowhere", "n"))
    answer = await ActivityEnvironment().run(asking.request_permit, request)
    assert answer == PermitAnswer(
        decision=PermitDecision.REFUSED,
        reason="no scanner runs for cluster 'nowhere': start it with `nodewarden scan start`",
    )
    monkeypatch.setattr(episodes, "ANSWERED_WITHIN", timedelta(seconds=1))
    await server.client.start_workflow("HealthScanner", id="scanner/silent", task_queue="of-no-worker")
    with refused(ErrorType.UNREACHABLE, silent_scanner("silent")):
        await ActivityEnvironment().run(asking.request_permit, replace(request, cluster="silent"))


async def test_answers_are_read_one_after_the_other_and_a_silent_scanner_holds_up_those_of_no_other(
    server: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 500 episodes that asked together some forty had no answer in time: Temporal lets one query wait, and others come too
    late."""
    under_way, most, query = Counter[str](), Counter[str](), OurWorkflows.query

    async def counted(self: OurWorkflows, workflow_id: str, *asked: Any, **how: Any) -> Any:
        under_way[workflow_id] += 1
        most[workflow_id] = max(most[workflow_id], under_way[workflow_id])
        try:
            if "silent" in workflow_id:
                await asyncio.Event().wait()
            return await query(self, workflow_id, *asked, **how)
        finally:
            under_way[workflow_id] -= 1

    monkeypatch.setattr(OurWorkflows, "query", counted)
    async with scanning(server, ScriptedCluster(report())) as scan:
        asking, other = service(server.client, f"scanners-{scan.cluster}"), f"silent-{scan.cluster}"
        await server.client.start_workflow("HealthScanner", id=scanner_id(other), task_queue="of-no-worker")

        async def ask(cluster: str, node: str) -> object:
            return await ActivityEnvironment().run(
                asking.request_permit, AskPermit(cluster=cluster, permit=request_for(cluster, node))
            )

        silent = asyncio.create_task(ask(other, "node-1"))
        answers = await asyncio.gather(*(ask(scan.cluster, f"node-{number}") for number in range(1, 21)))
        assert (len(answers), silent.done()) == (20, False)
        silent.cancel()
        await asyncio.gather(silent, return_exceptions=True)
    assert most[scanner_id(scan.cluster)] == 1


async def test_the_same_question_is_answered_once(env: WorkflowEnvironment) -> None:
    """An activity that is tried again asks as it did: between the two the permit may have gone to another one."""
    async with scanning(env, ScriptedCluster(report()), cap=1) as scan:
        question = ScannerQuestion(id="q", permit=request_for(scan.cluster, "node-1"))
        assert (await scan.put(question)).reason == (await scan.put(question)).reason
        anew = await scan.put(replace(question, id="q-2"))
        assert anew.reason == "the permit is held already"


async def test_s14_a_question_under_the_id_of_another_one_is_another_question(env: WorkflowEnvironment) -> None:
    """Else a client of Temporal could have an episode refused before it asks."""
    async with scanning(env, ScriptedCluster(report())) as scan:
        forged = replace(request_for(scan.cluster, "node-1"), incident="")
        assert (await scan.put(ScannerQuestion(id="q", permit=forged))).decision is PermitDecision.REFUSED
        honest = ScannerQuestion(id="q", permit=request_for(scan.cluster, "node-1"))
        assert (await scan.put(honest)).decision is PermitDecision.GRANTED


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"workflow_id": "episode/x/node-2"}, "workflow_id: expected"),
        ({"incident": ""}, "incident: expected"),
        ({"override": "everything"}, "override: expected"),
    ],
)
async def test_a_request_that_can_t_be_is_refused_with_what_was_expected(
    env: WorkflowEnvironment, changes: dict[str, str], why: str
) -> None:
    """S13: the workflow with the node's id is the only one that may have the node's permit."""
    async with scanning(env, ScriptedCluster(report())) as scan:
        request = replace(request_for(scan.cluster, "node-1"), **changes)
        answer = await scan.put(ScannerQuestion(id="q", permit=request))
        assert answer.decision is PermitDecision.REFUSED
        assert why in answer.reason
        empty = ScannerQuestion(id="q")
        await scan.client_handle().signal(HealthScanner.ask, empty)
        said = await scan.client_handle().query(HealthScanner.answer, empty)
        assert said.portion is not None
        assert said.portion.problem.endswith("expected a permit or a portion, got neither")


async def test_answers_are_bounded_and_the_oldest_go(env: WorkflowEnvironment) -> None:
    """S44: a history, and what it hands on, stays small however often it is asked."""
    async with scanning(env, ScriptedCluster(report())) as scan:
        asked = [ScannerQuestion(id=str(each)) for each in range(MOST_KEPT + 5)]
        for each in asked:
            await scan.client_handle().signal(HealthScanner.ask, each)

        async def is_answered(question: ScannerQuestion) -> bool:
            return await scan.client_handle().query(HealthScanner.answer, question) != ScannerAnswer()

        assert [await is_answered(each) for each in (*asked[:6], asked[-1])] == [*[False] * 5, True, True]
