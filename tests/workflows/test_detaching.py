"""A restart that is about failed volumes: those pods evicted, those volumes detached, nothing else of the node touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.remediation import FailedVolumes
from activities.contracts.target import DrainResult
from activities.errors import ErrorType, failure
from policy.episode.messages import EpisodeResult, Need, NeedKind, Outcome
from policy.fence.plan import CutStorage, FencingPlan
from policy.fence.power import VolumeState
from policy.remediation.failed_volumes import AttachedVolume, Failure, PodOnNode, detaching
from policy.remediation.strategy_rules import Strategy
from tests.workflows.fencing_run import fenced, fencing, parked, story, told
from tests.workflows.plans import CLOUD
from tests.workflows.remediation_run import DELETE, MINUTE, Remediated, remediated, step
from tests.workflows.world import World, plan
from workflows.remediation.steps import rebooting

ATTACHED, UNKNOWN = VolumeState.ATTACHED, VolumeState.UNKNOWN
FAILED = AttachedVolume(name="pvc-1", handle="vol-1")
POD = PodOnNode(key="demo/database-0", uid="uid-1", volumes=("pvc-1",))
PERSON = Need(kind=NeedKind.PERSON, reason="its volume can't be reached")
TOUCHING = {"cordon", "drain", "detach vol-1", "detach vol-2", "detach vol-root", "free-cut-pods", "off", "on"}


def restart(*volumes: AttachedVolume, **changes: object) -> FencingPlan:
    """What the step makes of the plan of an instance."""
    whole = plan(levels=((CLOUD,),), **changes)
    return replace(rebooting(whole), isolation=detaching(whole, Failure(volumes=volumes or (FAILED,), mounting=(POD,))))


def world_of(wanted: FencingPlan, **state: object) -> World:
    """Two volumes are attached, one of them failed."""
    volumes = {"vol-1": ATTACHED, "vol-2": ATTACHED}
    return World(**({"plan": wanted, "volumes": volumes} | state))  # type: ignore[arg-type]


def touched(world: World | Remediated) -> list[str]:
    """In their order; rounds of a drain are one."""
    return [act for act, _ in groupby(act for act in world.acts if act in TOUCHING)]


def noted(result: EpisodeResult, act: str) -> list[tuple[str, str]]:
    return [(entry.outcome, entry.detail) for entry in result.record if entry.act == act]


ALIVE = {"ready": True, "need": PERSON}
ELSEWHERE = failure(ErrorType.TARGET_CHANGED, "vol-1 is not attached here: in-use, attached i-8")

ONCE = restart(tries=1, restarts=0)
STORIES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "S9: a volume that moves just then is left to its new machine, says the cloud": (
        story(
            **ALIVE, errors={"detach": [ELSEWHERE]}, at="detach vol-1", then={"volumes": {"vol-1": UNKNOWN, "vol-2": ATTACHED}}
        ),
        ["cordon", "drain", "detach vol-1", "off", "on"],
    ),
    "what the machine boots from is never detached, and nothing at all is touched for its sake": (
        story(plan=restart(AttachedVolume(name="pvc-0", handle="vol-root")), ends=None, says="vol-root is the machine's own"),
        [],
    ),
    "S1, S2: a volume that is attached again is read just before, frees nothing and holds up nothing": (
        story(**ALIVE, at="off", then={"volumes": {"vol-1": ATTACHED, "vol-2": ATTACHED}}, freed=[]),
        ["cordon", "drain", "detach vol-1", "off", "on"],
    ),
    "S1, S30: behind a kubelet that answers pods are given the time until it is off to go": (
        story(**ALIVE, freed=["free-cut-pods"]),
        ["cordon", "drain", "detach vol-1", "off", "free-cut-pods", "on"],
    ),
    "a crashing pod that a budget keeps, which mounts nothing of it, holds nothing up": (
        story(plan=restart(), drains=[DrainResult(left=1, blocked=("demo/client: budget clients",))] * 200),
        ["cordon", "drain", "detach vol-1", "free-cut-pods", "off", "free-cut-pods", "on"],
    ),
    "S3: a volume that the cloud does not know touches nothing": (
        story(plan=ONCE, volumes={"vol-1": UNKNOWN}, ends=None, says="nothing is touched: vol-1 is unknown"),
        [],
    ),
    "a volume that stays fails the step before power is touched": (
        story(plan=ONCE, stuck={"vol-1"}, ends=None, says=f"still attached to {CLOUD.endpoint}: vol-1", freed=[]),
        ["cordon", "drain", "detach vol-1"],
    ),
    "S9: a machine that is another one keeps its volumes; it still lists what it says is not attached to it": (
        story(**ALIVE, errors={"detach": [ELSEWHERE]}, ends=None, says="vol-1 is not attached here", leaves={"commands": []}),
        ["cordon", "drain", "detach vol-1"],
    ),
}


@pytest.mark.parametrize("story", STORIES)
async def test_a_story(env: WorkflowEnvironment, story: str) -> None:
    row, acts = STORIES[story]
    world, _ = await told(env, **({"plan": restart(), "volumes": {"vol-1": ATTACHED, "vol-2": ATTACHED}} | row))
    assert touched(world) == acts


async def test_a_volume_that_leaves_with_its_pods_is_not_detached_by_force(env: WorkflowEnvironment) -> None:
    """Another machine may have it by then: nothing is proven of it, and nothing is freed for it (S1)."""
    world = world_of(restart(), ready=True, need=PERSON)
    async with fencing(env, world, at="drain") as run:
        world.volumes["vol-1"] = VolumeState.UNKNOWN
        result = await run.result(Outcome.RECOVERED)
    assert touched(world) == ["cordon", "drain", "off", "on"]
    assert noted(result, "detach-volumes") == [("ok", "vol-1 left the machine; by themselves")]


async def test_force_is_for_what_does_not_leave_by_itself(env: WorkflowEnvironment) -> None:
    world = world_of(restart(), ready=True, need=PERSON)
    result = await fenced(env, world)
    drained = next(entry.at for entry in result.record if entry.act == "drain")
    sent = next(entry.at for entry in result.record if entry.act == "detach-volume")
    assert sent - drained >= timedelta(seconds=20)


async def test_a_volume_that_is_detached_already_is_one_thing_less_to_do(env: WorkflowEnvironment) -> None:
    """The proposal: in case it is attached."""
    world = world_of(restart(), volumes={"vol-1": VolumeState.AVAILABLE}, ready=True, need=PERSON)
    await fenced(env, world)
    assert touched(world) == ["cordon", "drain", "off", "on"]


async def test_nothing_is_detached_from_under_a_pod_whose_budget_keeps_it(env: WorkflowEnvironment) -> None:
    """S30: the next step of the ladder, which has another proof, may."""
    blocked = DrainResult(left=1, blocked=("demo/database-0: budget db",), mounting=("demo/database-0",))
    world = world_of(restart(), drains=[blocked] * 200)
    assert "nothing is detached: demo/database-0: budget db" in (await parked(env, world)).problem
    assert set(touched(world)) == {"cordon", "drain"}


DETACH = step(Strategy.DETACH_VOLUMES, 30 * MINUTE)
DETACHING = "isolation.detach-volume"


def failed() -> FailedVolumes:
    return FailedVolumes(failure=Failure(volumes=(FAILED,), mounting=(POD,)), eviction_timeout=MINUTE)


def instance() -> World:
    """A machine of a cloud, with two volumes."""
    volumes = {"vol-1": VolumeState.ATTACHED, "vol-2": VolumeState.ATTACHED}
    return World(plan=plan(levels=((CLOUD,),), tries=1, restarts=0), volumes=volumes)


def test_the_failed_volume_goes_and_the_machine_is_restarted_in_one_episode() -> None:
    """S1, S30: in the order of the proposal's example, and the node is schedulable again at its end."""
    world = Remediated(ladder=(DETACH, DELETE), node=instance(), found=failed())
    result = remediated(world, Outcome.RECOVERED)
    assert touched(world) == ["cordon", "drain", "detach vol-1", "free-cut-pods", "off", "free-cut-pods", "on"]
    assert (world.node.freed_storage, world.node.volumes["vol-2"]) == (CutStorage(handles=("vol-1",)), VolumeState.ATTACHED)
    assert not world.node.unschedulable
    assert [entry.detail for entry in result.record if entry.act == "find-volumes"] == ["vol-1 (pvc-1); demo/database-0 mounting"]


def test_words_that_name_no_volume_leave_everything_as_it_is_to_the_next_step() -> None:
    """S7: nothing to do is no success; the reason is remembered with the step."""
    unclear = FailedVolumes(failure=Failure(refused="that names no volume attached to the node"), eviction_timeout=MINUTE)
    world = Remediated(ladder=(DETACH, DELETE), node=instance(), found=unclear)
    result = remediated(world, Outcome.REPLACED)
    assert touched(world) == []
    assert world.remembered[-1] == ("detach-volumes",)
    assert any("names no volume attached" in entry.detail for entry in result.record if entry.outcome == "failed")


def test_a_worker_that_is_lost_after_it_has_detached_detaches_once() -> None:
    """S33, S34: what it may have done is waited out, and read."""
    world = Remediated(ladder=(DETACH, DELETE), node=instance(), found=failed(), errors={DETACHING: ["after"]})
    remediated(world, Outcome.RECOVERED)
    assert (world.count("detach vol-1"), world.count("detach vol-2")) == (1, 0)
