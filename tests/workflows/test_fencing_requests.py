"""A fencing that another system's object asked for: it ends with the wish, and the wish always gets its answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.target import LookVerdict
from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome, Phase
from policy.episode.needs import Need, NeedKind
from policy.values.object_refs import ObjectRef
from tests.workflows.fencing_run import fenced, fencing
from tests.workflows.world import World, plan

ABOUT = ObjectRef(
    api_version="fence-agents-remediation.medik8s.io/v1alpha1", kind="FenceAgentsRemediation", name="node-7", namespace="medik8s"
)
OPERATOR = "NodeHealthCheck-workers"
NEED = Need(
    kind=NeedKind.FOREIGN_OBJECT,
    reason="asked for",
    check=ABOUT,
    object_uid="uid-far",
    delegate=OPERATOR,
    cause="FenceAgentsRemediation",
)
STARTED, FENCED, FINISHED = "RemediationStarted", "FenceAgentSucceeded", "RemediationFinishedSuccessfully"
FAILED, HELD_BACK = "FenceAgentFailed", "RemediationHeldBack"


def world(**changes: Any) -> World:
    return World(need=NEED, **({"plan": plan(restarts=0)} | changes))


async def test_the_wish_is_answered_from_the_beginning_to_the_end(env: WorkflowEnvironment) -> None:
    """S1, S35. Its success is told once the machine is switched on again, before the node is back, as its operator is used to."""
    there = world(boots=False)
    async with fencing(env, there) as run:
        await run.did(f"answer {FINISHED}")
        await run.sees(boot_id="boot-2", ready=True)
        await run.result(Outcome.RECOVERED)
    assert there.answers_given == [STARTED, FENCED, FINISHED, FINISHED]
    acts = [act for act in there.acts if act.startswith("answer") or act in {"mark", "off", "taint", "on", "uncordon"}]
    words = [f"answer {stage}" for stage in (STARTED, FENCED, FINISHED)]
    assert acts == ["mark", words[0], "off", words[1], "taint", "on", words[2], "uncordon", words[2]]


async def test_its_operators_lease_on_the_node_is_no_veto(env: WorkflowEnvironment) -> None:
    """S13: it is held for what it has asked us to do."""
    there = world(lease_holder=OPERATOR)
    await fenced(env, there)
    stranger = world(lease_holder="NodeHealthCheck-others")
    await fenced(env, stranger, Outcome.RELEASED)
    assert stranger.count("off") == 0
    assert stranger.answers_given == [STARTED, HELD_BACK], "a veto is no failure: its operator waits as long as it is used to"


@pytest.mark.parametrize("why", ["was deleted", "has timed out"])
async def test_a_wish_that_is_withdrawn_during_the_wait_is_the_way_back(env: WorkflowEnvironment, why: str) -> None:
    """S20: a hint of the scanner is confirmed by a look, and nothing is switched off."""
    there = world(plan=plan(wait_before_power=timedelta(days=3650)))
    async with fencing(env, there) as run:
        await run.until(lambda status: status.doing == "waits before power-management")
        await run.sees(withdrawn=why)
        await run.result(Outcome.RECOVERED)
    assert (there.count("off"), there.count("uncordon")) == (0, 1)
    assert not there.marked


async def test_a_wish_that_is_withdrawn_at_the_last_look_stops_the_power_off(env: WorkflowEnvironment) -> None:
    """S20."""
    there = world(looks=[LookVerdict.NEED_GONE])
    await fenced(env, there)
    assert (there.count("off"), there.count("uncordon")) == (0, 1)


async def test_a_wish_that_is_withdrawn_after_off_frees_nothing_and_the_machine_comes_back(env: WorkflowEnvironment) -> None:
    """S6, S35: its object may be gone at once; what we did is undone all the same."""
    there = world()
    async with fencing(env, there, at=f"answer {FENCED}") as run:
        there.withdrawn = "was deleted"
        await run.result(Outcome.RECOVERED)
    assert there.consequences == []
    assert (there.count("off"), there.count("on"), there.count("uncordon")) == (1, 1, 1)


async def test_tries_that_are_used_up_are_a_final_answer_and_the_episode_ends_with_the_wish(env: WorkflowEnvironment) -> None:
    """S3, S35: its operator goes on to its next remedy; what it then gives up needs no person of ours."""
    there = world(ignores_off=True)
    async with fencing(env, there) as run:
        await run.parked()
        await run.did(f"answer {FAILED}")
        assert there.count("off") == 2, "as often as the object says"
        await run.sees(withdrawn="has timed out", ignores_off=False)
        await run.result(Outcome.RECOVERED)
    assert there.answers_given == [STARTED, FAILED]
    assert there.consequences == []


async def test_a_success_that_is_told_after_a_resume_is_the_last_word(env: WorkflowEnvironment) -> None:
    """S35: the node is pinned anew by a person's word; the failure that was told before is not taken up again at the end."""
    there = world(boots=False, read_errors=[failure(ErrorType.UNAUTHORIZED, "wrong password")])
    async with fencing(env, there) as run:
        await run.parked()
        await run.resume("the password is mended")
        await run.did(f"answer {FINISHED}")
        await run.abort()
        await run.sees(boot_id="boot-2", ready=True)
        await run.result()
    assert there.answers_given == [STARTED, FAILED, FENCED, FINISHED, FINISHED]


async def test_an_abort_is_no_failure_of_the_agent(env: WorkflowEnvironment) -> None:
    there = world(plan=plan(wait_before_power=timedelta(days=3650)))
    async with fencing(env, there) as run:
        await run.until(lambda status: status.doing == "waits before power-management")
        await run.abort()
        await run.result(Outcome.ABORTED)
    assert there.answers_given == [STARTED, HELD_BACK]


async def test_a_machine_that_is_to_be_left_off_is_a_success(env: WorkflowEnvironment) -> None:
    there = world(plan=plan(restarts=0, power_on=False))
    await fenced(env, there, Outcome.FENCED_OFF)
    assert there.answers_given == [STARTED, FENCED, FINISHED, FINISHED]
    assert there.count("on") == 0


async def test_whoever_can_not_be_answered_is_not_acted_for(env: WorkflowEnvironment) -> None:
    """S33: an object that never hears that it has been served would be served again and again."""
    there = world(answer_errors=[failure(ErrorType.FORBIDDEN, "may not patch its status")] * 50)
    assert "may not patch its status" in (await fenced(env, there, Outcome.REFUSED)).message
    assert (there.count("cordon"), there.count("off")) == (0, 0)
    assert not there.marked


async def test_a_wish_that_is_gone_before_the_beginning_begins_nothing(env: WorkflowEnvironment) -> None:
    there = world(withdrawn="was deleted")
    await fenced(env, there, Outcome.REFUSED)
    assert (there.count("cordon"), there.marked) == (0, "")


async def test_words_in_between_hold_nothing_up_and_the_last_one_is_tried_until_it_is_written(env: WorkflowEnvironment) -> None:
    """S33: an episode that ended without it would leave a wish without its answer, and the node would be fenced again."""
    there = world()
    async with fencing(env, there, at=f"answer {FENCED}") as run:
        there.answer_errors.extend(failure(ErrorType.FORBIDDEN, "not now") for _ in range(50))
        await run.result(Outcome.RECOVERED)
    assert there.answers_given == [STARTED, FINISHED]
    assert there.count("event NeedsHuman") == 1


async def test_an_abort_ends_the_attempts_at_the_last_word(env: WorkflowEnvironment) -> None:
    """Rights that nobody will ever give must not keep an episode for ever."""
    there = world(answer_errors=[])
    async with fencing(env, there, at=f"answer {FENCED}") as run:
        there.answer_errors.extend(failure(ErrorType.FORBIDDEN, "never") for _ in range(500))
        run.go_on()
        await run.until(lambda status: status.phase is Phase.NEEDS_HUMAN)
        await run.abort()
        await run.result(Outcome.RECOVERED)
    assert there.answers_given == [STARTED]
