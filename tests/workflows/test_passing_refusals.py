"""A Kubernetes API that has just been restarted refuses everybody until it knows who may do what: some tenths of a second.

Nobody is asked for that, wherever in an episode it comes; for a refusal that lasts longer than a minute somebody is (S35).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.target import LookVerdict
from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.fence.plan import Act, Freeing, PlannedMethod, PowerDevice
from policy.remediation.strategies import Strategy
from tests.workflows.fencing_run import fenced, fencing
from tests.workflows.remediated import Remediated, step
from tests.workflows.remediating import Play
from tests.workflows.world import World, clock, plan

OBJECT = "SelfNodeRemediation"
FORBIDDEN = failure(ErrorType.FORBIDDEN, "403 Forbidden: nodes is forbidden: User nodewarden cannot list resource nodes")
RESTART = timedelta(milliseconds=500)
FOR_EVER = timedelta(days=365)


@dataclass
class Refusing(World):
    """An API that refuses one act of its own: from the first time that it is asked for, for so long."""

    refused: str = ""
    lasts: timedelta = RESTART
    refusals: list[datetime] = field(default_factory=list)

    async def act(self, name: str) -> None:
        if name == self.refused and clock() - (self.refusals or [clock()])[0] < self.lasts:
            self.refusals.append(clock())
            raise FORBIDDEN
        await super().act(name)


# `read`, `off` and `on` are refused where the device's password is read from a Secret.
ACTS = ("mark", "look", "read", "off", "taint", "untaint", "glance", "on", "uncordon")


@pytest.mark.parametrize("refused", ACTS)
async def test_a_refusal_that_passes_parks_nobody(env: WorkflowEnvironment, refused: str) -> None:
    """S35: nobody has to mend anything, and the machine may be off meanwhile."""
    world = Refusing(plan=plan(tries=1, restarts=0), refused=refused)
    result = await fenced(env, world)
    assert world.refusals
    assert result.outcome is Outcome.RECOVERED
    assert "needs-human" not in [entry.outcome for entry in result.record]
    assert (world.count("off"), world.count("on")) == (1, 1)


@pytest.mark.parametrize("refused", [each for each in ACTS if each != "read"])
async def test_a_refusal_is_waited_for_as_long_as_is_promised(env: WorkflowEnvironment, refused: str) -> None:
    """S35: that is a minute, wherever the pauses between the tries come to lie. Unread devices have the plan's time."""
    world = Refusing(plan=plan(tries=1, restarts=0), refused=refused, lasts=timedelta(seconds=58))
    result = await fenced(env, world)
    assert world.refusals
    assert "needs-human" not in [entry.outcome for entry in result.record]


async def test_deleting_pods_outlives_a_refusal_that_passes(env: WorkflowEnvironment) -> None:
    """S35, S2: and the proof was read again before the deletion that was carried out."""
    world = Refusing(plan=plan(tries=1, restarts=0, freeing=Freeing.DELETION), refused="delete-workload")
    await fenced(env, world)
    assert world.acts[world.acts.index("delete-workload") - 1] == "read"


@pytest.mark.parametrize("refused", ["look", "taint", "off"])
async def test_a_refusal_that_lasts_for_a_minute_is_told_to_a_person(env: WorkflowEnvironment, refused: str) -> None:
    """S35: a right is missing, and only a person can give it. Once it is there, a word is enough."""
    world = Refusing(plan=plan(tries=1, restarts=0), refused=refused, lasts=FOR_EVER)
    async with fencing(env, world) as run:
        assert "nodes is forbidden" in (await run.parked()).problem
        tried = world.refusals[-1] - world.refusals[0]
        assert timedelta(seconds=30) < tried < timedelta(seconds=90)
        world.lasts = RESTART
        await run.resume("the right is there now")
        await run.result(Outcome.RECOVERED)


@pytest.mark.parametrize(
    ("strategy", "method", "act"),
    [
        (Strategy.DELETE_MACHINE, "preservation.give-up", "give-up"),
        (Strategy.EXTERNAL, "remediation.create-object", f"create {OBJECT}"),
        (Strategy.ANNOTATE_EXTERNAL, "remediation.annotate-external", "annotate-external"),
    ],
)
def test_a_step_of_a_ladder_outlives_a_refusal_that_passes(strategy: Strategy, method: str, act: str) -> None:
    """S35: the next step may be a worse one."""
    world = Remediated(ladder=(step(strategy), step(Strategy.REBOOT)))
    world.errors[method] = [FORBIDDEN] * 2
    with Play(world) as play:
        play.did(act)
        assert not [entry for entry in play.record() if (entry.act, entry.outcome) == ("step", "failed")]
        if strategy is not Strategy.DELETE_MACHINE:
            play.abort()
        play.result()


def test_a_deletion_that_is_refused_for_good_is_the_next_steps_turn_after_a_minute() -> None:
    """S35: of a ladder a right that is missing fails the step, and not a person's patience."""
    world = Remediated(ladder=(step(Strategy.DELETE_MACHINE), step(Strategy.EXTERNAL)))
    world.errors["preservation.give-up"] = [FORBIDDEN] * 1000
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        assert timedelta(minutes=1) <= play.passed < timedelta(minutes=3)


DECLINED = failure(
    ErrorType.WRONG_CLOCK, "the clock of worker 7@host is 10m ahead of Temporal's: it leaves this to another worker"
)


@dataclass
class Declining(World):
    """One of two workers has a wrong clock, and the bad luck to be asked first, three times for each act."""

    declined: Counter[str] = field(default_factory=Counter)

    async def act(self, name: str) -> None:
        self.declined[name] += 1
        if self.declined[name] % 4:
            raise DECLINED
        await super().act(name)


async def test_a_worker_that_declines_because_of_its_clock_parks_nothing(env: WorkflowEnvironment) -> None:
    """S18, S35: nothing has begun there, so that no try is used up, no reading is taken for silence, and nobody is told."""
    switch = PowerDevice(driver="snmp", endpoint="snmp://10.0.0.9:1")
    cut, back = (PlannedMethod(name=act.value, act=act, device=switch) for act in (Act.CUT_PATH, Act.RESTORE_PATH))
    world = Declining(plan=plan(tries=1, restarts=0, isolation=(cut,), recovery=(back,)))
    result = await fenced(env, world)
    assert "needs-human" not in [entry.outcome for entry in result.record]
    assert (world.count("off"), world.count("on")) == (1, 1)
    assert not [entry for entry in result.record if (entry.act, entry.outcome) == ("read-power", "failed")]


async def test_a_consequence_that_a_worker_declined_has_not_begun(env: WorkflowEnvironment) -> None:
    """S6: the need is gone before the next try, and nothing is freed any more."""
    world = World(plan=plan(power_on=False), free_errors=[DECLINED])
    world.glances = [LookVerdict.GO, LookVerdict.NEED_GONE]
    result = await fenced(env, world, Outcome.FENCED_OFF)
    assert [entry.detail for entry in result.record if entry.act == "free-workloads"] == [
        "the need was gone before any consequence began"
    ]
    assert world.consequences == []


LEASELESS = failure(ErrorType.NOT_LICENSED, "the cluster Lease is not ours")


async def test_a_refusal_that_passes_after_a_wait_for_the_lease_parks_nobody(env: WorkflowEnvironment) -> None:
    """S35: each has its own patience, and minutes without the Lease use up none of the refusal's."""
    world = World(plan=plan(tries=1, restarts=0))
    world.free_errors.extend([*[LEASELESS] * 12, FORBIDDEN])
    result = await fenced(env, world)
    assert "needs-human" not in [entry.outcome for entry in result.record]


def test_a_step_of_a_ladder_outlives_a_refusal_after_a_wait_for_the_lease() -> None:
    """S35: the same, where the next step may be a worse one."""
    world = Remediated(ladder=(step(Strategy.DELETE_MACHINE), step(Strategy.REBOOT)))
    world.errors["preservation.give-up"] = [*[LEASELESS] * 5, FORBIDDEN]
    with Play(world) as play:
        play.did("give-up")
        assert not [entry for entry in play.record() if (entry.act, entry.outcome) == ("step", "failed")]
        play.result()
