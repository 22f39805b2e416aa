"""Freeing where a cluster limits how many pods go in a minute: in portions, each on a fresh proof, and never without one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

from activities.contracts.episodes import AskPortion
from activities.episodes import EpisodeService
from policy.episode.messages import Outcome
from policy.episode.permits import MINUTE, PortionAnswer, PortionRequest
from policy.fence.plan import CORDON, UNCORDON
from tests.workflows.fencing_run import fenced
from tests.workflows.plans import BACK, CUT, FREE
from tests.workflows.scanner_run import ScriptedCluster, scanning
from tests.workflows.test_describing import service
from tests.workflows.world import World, plan
from workflows.kit.options import WORKFLOW_QUEUE

FAR = datetime(2100, 1, 1, tzinfo=UTC)


def now(pods: int) -> PortionAnswer:
    return PortionAnswer(pods=pods, until=FAR)


async def test_pods_are_deleted_in_portions_and_waiting_is_no_failure(env: WorkflowEnvironment) -> None:
    """S1, S2: every portion on a reading of its own. The wait for the second is longer than freeing may take, and it is not given
    up for that."""
    wait = PortionAnswer(again=datetime.now(UTC) + timedelta(hours=4))
    world = World(plan=plan(free_timeout=timedelta(seconds=5)), per_minute=2, portions=[now(2), wait, now(1)])
    result = await fenced(env, world)
    assert result.ended - result.started > timedelta(hours=3)
    assert result.freed_pods == 3
    acts = [act for act in world.acts if act in {"read", "taint", "delete-workload", "on"} or act.startswith("ask for")]
    begin = acts.index("ask for 3 pods") - 1
    assert acts[begin : begin + 8] == [
        "read",
        "ask for 3 pods",
        "delete-workload",
        "read",
        "ask for 1 pods",
        "read",
        "ask for 1 pods",
        "delete-workload",
    ]
    assert "taint" not in acts, "a taint would free all at once"
    assert (
        next(entry.detail for entry in result.record if entry.act == "portion") == "2 of 3 pods may be freed now, 2 in a minute"
    )


async def test_a_portion_is_used_while_it_is_one(env: WorkflowEnvironment) -> None:
    """S14, S20: afterwards the scanner may have let others go; what is freed is freed by then or not at all."""
    begins = await env.get_current_time()
    world = World(plan=plan(), per_minute=5, portions=[PortionAnswer(pods=3, until=begins - timedelta(minutes=1)), now(3)])
    result = await fenced(env, world)
    assert (result.freed_pods, world.count("ask for 3 pods")) == (3, 2)


async def test_while_the_scanner_can_not_be_asked_nothing_is_freed(env: WorkflowEnvironment) -> None:
    """S38: it is waited with, no try is used up, and it goes on once there is somebody."""
    world = World(plan=plan(tries=1, restarts=0), per_minute=50)
    world.portions.extend([PortionAnswer(problem="no scanner runs")] * 3 + [now(3)])
    await fenced(env, world)
    assert world.count("ask for 3 pods") == 4
    assert world.consequences == ["delete-workload"]
    assert world.count("off") == 1


async def test_pods_behind_a_cut_path_go_in_portions_too(env: WorkflowEnvironment) -> None:
    """S1, S20: after a wait the last look and the readings are new."""
    wait = PortionAnswer(again=datetime.now(UTC) + timedelta(hours=4))
    methods = {"isolation": (CORDON, CUT, FREE), "recovery": (BACK, UNCORDON)}
    world = World(plan=plan(**methods), per_minute=2, pods=0, portions=[wait, now(2)])
    result = await fenced(env, world)
    assert (result.outcome, result.freed_pods) == (Outcome.RECOVERED, 2)
    acts = [act for act in world.acts if act in {"look", "read-path", "free-cut-pods"} or act.startswith("ask for")]
    begin = acts.index("free-cut-pods")
    look = ["look", "read-path"]
    assert acts[begin : begin + 8] == ["free-cut-pods", *look, "ask for 2 pods", *look, "ask for 2 pods", "free-cut-pods"]


async def test_the_scanner_hands_out_what_is_left_to_every_episode(env: WorkflowEnvironment) -> None:
    """S33: asked again after a lost answer it answers the same."""
    world, asking = ScriptedCluster(), service(env.client, WORKFLOW_QUEUE)
    async with scanning(env, world) as scan:

        async def ask(incident: str, pods: int, number: int = 1) -> PortionAnswer:
            return await _ask(asking, scan.cluster, incident, pods, number)

        first = await ask("a", 4)
        assert (first.pods, first.problem) == (4, "")
        assert await ask("a", 4) == first
        assert (await ask("b", 4)).pods == 1
        none = await ask("c", 4)
        assert (none.pods, none.until) == (0, None)
        assert first.until is not None
        assert none.again == first.until + MINUTE
        assert "at least one pod" in (await ask("d", 0)).problem


async def test_without_a_scanner_there_is_no_answer(env: WorkflowEnvironment) -> None:
    answer = await _ask(service(env.client, WORKFLOW_QUEUE), "nowhere", "a", 4, 1)
    assert answer == PortionAnswer(problem="no scanner runs for cluster 'nowhere'")


async def _ask(asking: EpisodeService, cluster: str, incident: str, pods: int, number: int) -> PortionAnswer:
    request = PortionRequest(node="node-7", incident=incident, number=number, pods=pods, per_minute=5)
    answer = await ActivityEnvironment().run(asking.ask_portion, AskPortion(cluster=cluster, portion=request))
    assert isinstance(answer, PortionAnswer)
    return answer
