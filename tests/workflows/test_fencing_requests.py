"""A fencing that another system's object asked for: it ends with the wish, and the wish always gets its answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Need, NeedKind, Outcome, Phase
from policy.values.object_refs import ObjectRef
from tests.workflows.fencing_run import fencing, story, told
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


STORIES: dict[str, dict[str, Any]] = {
    "S13: the lease that its operator holds on the node is held for what it has asked us to do": story(lease_holder=OPERATOR),
    "S13: a stranger's lease is a veto, and no failure: the operator waits as long as it is used to": story(
        lease_holder="NodeHealthCheck-others",
        ends=Outcome.RELEASED,
        did={"off": 0},
        leaves={"answers_given": [STARTED, HELD_BACK]},
    ),
    "S6, S35: a wish that is withdrawn after off frees nothing; its object may be gone, and the machine comes back": story(
        at=f"answer {FENCED}", then={"withdrawn": "was deleted"}, did={"off": 1, "on": 1, "uncordon": 1}, freed=[]
    ),
    "a machine that is to be left off is a success": story(
        plan=plan(restarts=0, power_on=False),
        ends=Outcome.FENCED_OFF,
        did={"on": 0},
        leaves={"answers_given": [STARTED, FENCED, FINISHED, FINISHED]},
    ),
    "S33: an object that never hears that it has been served would be served again and again: it is not acted for": story(
        errors={"answer": [failure(ErrorType.FORBIDDEN, "may not patch its status")] * 50},
        ends=Outcome.REFUSED,
        says="may not patch its status",
        did={"cordon": 0, "off": 0},
        leaves={"marked": ""},
    ),
    "a wish that is gone before the beginning begins nothing": story(
        withdrawn="was deleted", ends=Outcome.REFUSED, did={"cordon": 0}, leaves={"marked": ""}
    ),
    "an abort is no failure of the agent": story(
        plan=plan(wait_before_power=timedelta(days=3650)),
        at="event NodeIsolated",
        abort="off",
        ends=Outcome.ABORTED,
        leaves={"answers_given": [STARTED, HELD_BACK]},
    ),
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_story(env: WorkflowEnvironment, story: str) -> None:
    await told(env, **({"need": NEED, "plan": plan(restarts=0)} | STORIES[story]))


async def test_the_wish_is_answered_from_the_beginning_to_the_end(env: WorkflowEnvironment) -> None:
    """S1, S35. Its success is told once the machine is switched on again, before the node is back, as its operator is used to."""
    there = world(boot_seconds=None)
    async with fencing(env, there) as run:
        await run.did(f"answer {FINISHED}")
        await run.sees(boot_id="boot-2", ready=True)
        await run.result(Outcome.RECOVERED)
    assert there.answers_given == [STARTED, FENCED, FINISHED, FINISHED]
    acts = [act for act in there.acts if act.startswith("answer") or act in {"mark", "off", "taint", "on", "uncordon"}]
    words = [f"answer {stage}" for stage in (STARTED, FENCED, FINISHED)]
    assert acts == ["mark", words[0], "off", words[1], "taint", "on", words[2], "uncordon", words[2]]


async def test_tries_that_are_used_up_are_a_final_answer_and_the_episode_ends_with_the_wish(env: WorkflowEnvironment) -> None:
    """S3, S35: its operator goes on to its next remedy; what it then gives up needs no person of ours."""
    there = world(ignores_off=True)
    async with fencing(env, there, parks=True) as run:
        await run.did(f"answer {FAILED}")
        assert there.count("off") == 2, "as often as the object says"
        await run.sees(withdrawn="has timed out", ignores_off=False)
        await run.result(Outcome.RECOVERED)
    assert there.answers_given == [STARTED, FAILED]
    assert there.consequences == []


async def test_words_in_between_hold_nothing_up_and_the_last_one_is_tried_until_it_is_written(env: WorkflowEnvironment) -> None:
    """S33: an episode that ended without it would leave a wish without its answer, and the node would be fenced again."""
    there = world()
    async with fencing(env, there, at=f"answer {FENCED}") as run:
        there.errors["answer"].extend(failure(ErrorType.FORBIDDEN, "not now") for _ in range(50))
        await run.result(Outcome.RECOVERED)
    assert there.answers_given == [STARTED, FINISHED]
    assert there.count("event NeedsHuman") == 1


async def test_an_abort_ends_the_attempts_at_the_last_word(env: WorkflowEnvironment) -> None:
    """Rights that nobody will ever give must not keep an episode for ever."""
    there = world(errors={"answer": []})
    async with fencing(env, there, at=f"answer {FENCED}") as run:
        there.errors["answer"].extend(failure(ErrorType.FORBIDDEN, "never") for _ in range(500))
        run.go_on()
        await run.until(lambda status: status.phase is Phase.NEEDS_HUMAN)
        await run.abort()
        await run.result(Outcome.RECOVERED)
    assert there.answers_given == [STARTED]
