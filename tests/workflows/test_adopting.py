"""What a terminated episode has left on a node is adopted by the next one, of whatever kind, before that does anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Need, NeedKind, Outcome, Phase
from policy.episode.permits import PermitAnswer, PermitDecision
from policy.fence.config import LONGEST_ACT
from policy.fence.plan import CORDON, Act, FencingPlan, PlannedMethod
from policy.objects.marks import Mark
from policy.remediation.ladder import EscalationStep
from policy.remediation.strategy_rules import Strategy
from policy.values.object_refs import ObjectRef
from tests.workflows.fencing_run import fencing
from tests.workflows.plans import BACK
from tests.workflows.remediation_run import FENCE, MINUTE, OBJECT, REBOOT, SELF, Play, Remediated, step
from tests.workflows.world import World, left_by, plan
from workflows.kit import options

IN_FLIGHT = LONGEST_ACT + options.ACT_WINDOW + options.IN_FLIGHT_MARGIN
"""How long the last act of a predecessor may still have an effect."""
ASKED = Need(
    kind=NeedKind.FOREIGN_OBJECT,
    reason="asked for",
    check=ObjectRef(api_version="fence-agents-remediation.medik8s.io/v1alpha1", kind="FenceAgentsRemediation", name="node-7"),
    object_uid="uid-far",
)
QUEUED = PermitAnswer(decision=PermitDecision.QUEUED, reason="the cap is reached", holder="us")


def switched(*isolation: PlannedMethod, **changes: object) -> FencingPlan:
    """A plan that cuts a path, tries everything once, and gives the path back."""
    return plan(**({"tries": 1, "restarts": 0, "isolation": isolation, "recovery": (BACK,)} | changes))


def tainted(**changes: object) -> World:
    """A node on which the out-of-service taint of an episode that was terminated still stands."""
    return World(mark=left_by("old", out_of_service=True), out_of_service=True, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "act"),
    [
        (FENCE, "off"),
        (step(Strategy.REBOOT, 20 * MINUTE), "off"),
        (step(Strategy.DELETE_MACHINE, 30 * MINUTE), "give-up"),
        (step(Strategy.REQUEST_OWNER, 30 * MINUTE), "request-owner"),
        (step(Strategy.ANNOTATE_EXTERNAL, 30 * MINUTE), "annotate-external"),
        (SELF, f"create {OBJECT}"),
    ],
    ids=lambda value: value.strategy.value if isinstance(value, EscalationStep) else "",
)
def test_no_step_of_a_remediation_begins_while_an_act_of_a_terminated_episode_may_be_in_flight(
    first: EscalationStep, act: str
) -> None:
    """S34: the off of a predecessor may still be on its way to the device, whatever this one does."""
    world = Remediated(ladder=(first,), node=World(mark=left_by("old")))
    with Play(world) as play:
        play.did(act)
        assert play.passed >= IN_FLIGHT


def test_marks_are_not_removed_while_an_act_of_a_terminated_episode_may_be_in_flight() -> None:
    """S34, S35: where a remediation can't begin after all, whoever comes next would else know of nothing."""
    world = Remediated(ladder=(FENCE,), node=tainted())
    unreadable = failure(ErrorType.INVALID_CONFIG, "the mark can't be read any more")
    world.errors["power-management.untaint-out-of-service"] = [unreadable]
    with Play(world) as play:
        play.did("uncordon")
        assert play.passed >= IN_FLIGHT
        play.result(Outcome.REFUSED)
    assert world.count("off") == 0


MOMENTS: dict[str, tuple[dict[str, Any], Callable[[Play], object]]] = {
    "the first step": ({}, lambda play: play.did("remember")),
    "S17: its permit is waited for, which no circuit breaker holds up": (
        {"permit_granted": False},
        lambda play: play.until(lambda status: status.doing.startswith("waits for a permit")),
    ),
    "a person says whether it is remediated once more, which may take days": (
        {"permit_granted": False, "exhausted": "it was remediated 3 times"},
        Play.parked,
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_taint_of_a_terminated_episode_goes_in_a_remediation_before(moment: str) -> None:
    """S1, S32: it goes on freeing pods, and nobody reads the proof any more."""
    given, reach = MOMENTS[moment]
    world = Remediated(ladder=(FENCE,), node=tainted(answers=[QUEUED] * 100))
    with Play(world, **given) as play:
        reach(play)
        assert not world.node.out_of_service


async def test_a_taint_of_a_terminated_episode_goes_before_a_fencing_waits_for_its_permit(env: WorkflowEnvironment) -> None:
    """S1, S17."""
    world = World(mark=left_by("old", out_of_service=True), out_of_service=True, answers=[QUEUED] * 100)
    async with fencing(env, world, permit_granted=False) as run:
        await run.until(lambda status: status.phase is Phase.QUEUED and status.doing.startswith("waits for a permit"))
        assert not world.out_of_service
        await run.abort()
        await run.result(Outcome.ABORTED)
    assert world.marked, "the next episode adopts what else is left"


# What an episode has added it knows throughout, so that a mark that is gone can be written again ----------------------


SICK = PlannedMethod(name="taint", act=Act.TAINT, parameters={"key": "example.com/sick"})
SAID = (True, ("example.com/sick:NoSchedule",))


def isolated(**changes: object) -> World:
    """A node that is cordoned and tainted before it is switched off."""
    return World(plan=plan(**({"isolation": (CORDON, SICK), "tries": 1, "restarts": 0} | changes)))


def removed(world: Remediated) -> None:
    """Somebody removes our mark once the machine is off."""
    world.before["power-management.taint-out-of-service"] = lambda: setattr(world.node, "mark", None)


def written_again(play: Play, world: Remediated) -> tuple[bool, tuple[str, ...]]:
    """What the mark says that was written again."""
    play.did("on")
    mark: Mark | None = world.node.mark
    play.result()
    assert mark is not None
    return mark.cordoned, mark.taints


def test_what_was_added_is_known_though_the_answer_was_lost() -> None:
    """S33: what is asked for again finds it done, and by us."""
    world = Remediated(ladder=(FENCE,), node=isolated(), has_machine=False)
    for name in ("isolation.mark-unschedulable", "isolation.taint"):
        world.errors[name] = ["after"]
    removed(world)
    with Play(world) as play:
        assert written_again(play, world) == SAID


def test_what_was_added_is_known_in_the_next_history() -> None:
    """The fencing has failed for a silent BMC; its cordon stands while others are waited for."""
    world = Remediated(ladder=(FENCE, SELF, REBOOT), node=isolated(), has_machine=False)
    world.node.errors["off"] = [failure(ErrorType.UNREACHABLE, "no answer")] * 2
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.node.errors["off"].clear()
        play.goes_on_anew()
        world.node.mark = None
        assert written_again(play, world) == SAID


async def test_marks_are_not_taken_away_while_an_act_of_a_terminated_episode_may_be_in_flight(env: WorkflowEnvironment) -> None:
    """S34: who asked has withdrawn it before anything was begun. Once the mark is gone nobody knows that there is an off on its
    way, and the next episode would not wait for it."""
    world = World(mark=left_by("old"), need=ASKED, withdrawn="it was deleted")
    async with fencing(env, world) as run:
        result = await run.result(Outcome.REFUSED)
    assert result.ended - result.started >= IN_FLIGHT
    assert (world.marked, world.count("uncordon")) == ("", 1)
