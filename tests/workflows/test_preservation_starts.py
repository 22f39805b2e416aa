"""Who begins a preservation, and who is only told: of a machine that others delete, nobody begins one."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from activities.contracts.episodes import Opened
from activities.contracts.preservation import PreserveOutcome, PreserveRequest
from policy.episode.ids import episode_id
from policy.episode.messages import PreservationInput, PreservationNews
from policy.preservation.book import PreservationNeed
from tests.workflows.test_describing import CLUSTER, holding, service

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def env(server: WorkflowEnvironment) -> WorkflowEnvironment:
    """The real one: it says who has an id."""
    return server


@workflow.defn(name="Preservation")
class SpeechlessKeeper:
    """Keeps a machine for ever, and hears everything."""

    @workflow.run
    async def run(self, request: PreservationInput) -> None:
        await asyncio.Future[None]()

    @workflow.signal
    def look_again(self, news: PreservationNews) -> None:
        """The scanner has something to say."""


@workflow.defn(name="Remediation")
class SpeechlessRemediation(SpeechlessKeeper):
    """Has taken the machine over."""

    @workflow.run
    async def run(self, request: PreservationInput) -> None:
        await super().run(request)


async def asked(client: Client, node: str, *, going: bool) -> PreserveOutcome:
    need = PreservationNeed(victim=node, action="none", reason="it is gone, and was kept", stamp="one", going=going)
    request = PreserveRequest(cluster=CLUSTER, holder="us", needs=(need,))
    (outcome,) = (await ActivityEnvironment().run(service(client).preserve, request)).outcomes
    assert isinstance(outcome, PreserveOutcome)
    return outcome


async def signals(client: Client, node: str) -> list[str]:
    history = await client.get_workflow_handle(episode_id(CLUSTER, node)).fetch_history()
    signalled = [event.workflow_execution_signaled_event_attributes for event in history.events]
    return [each.signal_name for each in signalled if each.signal_name]


async def test_whoever_keeps_a_machine_that_is_going_is_told(env: WorkflowEnvironment) -> None:
    node = f"node-{uuid4().hex[:6]}"
    async with holding(env.client, node, "Preservation", memo={"incident": "i-1"}, by=SpeechlessKeeper):
        assert (await asked(env.client, node, going=True)).opened is Opened.JOINED
        assert await signals(env.client, node) == ["look_again"]


@pytest.mark.parametrize("before", [False, True], ids=["nobody ever did", "one has ended"])
async def test_where_nobody_keeps_it_nobody_begins_to(env: WorkflowEnvironment, *, before: bool) -> None:
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


async def test_another_kind_of_episode_is_not_told(env: WorkflowEnvironment) -> None:
    """S13: it may be the one that deletes the machine."""
    node = f"node-{uuid4().hex[:6]}"
    async with holding(env.client, node, "Remediation", memo={"incident": "i-1"}, by=SpeechlessRemediation):
        outcome = await asked(env.client, node, going=True)
        assert (outcome.opened, outcome.holder) == (Opened.REFUSED, "Remediation i-1")
        assert await signals(env.client, node) == []
