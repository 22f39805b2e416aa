"""A restart that is about failed volumes: those pods evicted, those volumes detached, nothing else of the node touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from temporalio.testing import WorkflowEnvironment

from activities.contracts.target import DrainResult
from activities.errors import ErrorType, failure
from policy.episode.messages import EpisodeResult, Outcome
from policy.episode.needs import Need, NeedKind
from policy.fence.plan import CutStorage, FencingPlan, PowerDevice
from policy.fence.power import VolumeState
from policy.remediation.volumes import AttachedVolume, Failure, PodThere, detaching
from tests.workflows.fencing_run import fenced, fencing, parked
from tests.workflows.world import World, plan
from workflows.remediation.fencing_step import rebooting

INSTANCE = PowerDevice(driver="ec2", endpoint="ec2://eu-west-1/i-7")
FAILED = AttachedVolume(name="pvc-1", handle="vol-1")
POD = PodThere(key="demo/database-0", uid="uid-1", volumes=("pvc-1",))
PERSON = Need(kind=NeedKind.PERSON, reason="its volume can't be reached")
TOUCHING = {"cordon", "drain", "detach vol-1", "detach vol-2", "detach vol-root", "free-cut-pods", "off", "on"}


def restart(*volumes: AttachedVolume, **changes: object) -> FencingPlan:
    """What the step makes of the plan of an instance."""
    whole = plan(levels=((INSTANCE,),), **changes)
    return replace(rebooting(whole), isolation=detaching(whole, Failure(volumes=volumes or (FAILED,), mounting=(POD,))))


def world_of(wanted: FencingPlan, **state: object) -> World:
    """Two volumes are attached, one of them failed."""
    volumes = {"vol-1": VolumeState.ATTACHED, "vol-2": VolumeState.ATTACHED}
    return World(**({"plan": wanted, "volumes": volumes} | state))  # type: ignore[arg-type]


def touched(world: World) -> list[str]:
    return [act for act in world.acts if act in TOUCHING]


def noted(result: EpisodeResult, act: str) -> list[tuple[str, str]]:
    return [(entry.outcome, entry.detail) for entry in result.record if entry.act == act]


async def test_only_the_failed_volume_is_detached_and_the_machine_restarted_once(env: WorkflowEnvironment) -> None:
    """S1, S36: pods that no kubelet would end are freed on the proof that exactly their volume is cut."""
    world = world_of(restart())
    await fenced(env, world)
    assert touched(world) == ["cordon", "drain", "detach vol-1", "free-cut-pods", "off", "free-cut-pods", "on"]
    assert world.storage == CutStorage(handles=("vol-1",))
    assert world.volumes["vol-2"] is VolumeState.ATTACHED
    assert world.acts.index("list-volumes") < world.acts.index("cordon")


async def test_behind_a_kubelet_that_answers_pods_are_freed_only_once_it_is_off(env: WorkflowEnvironment) -> None:
    """S1, S30: whoever was asked to go is given the time until then."""
    world = world_of(restart(), ready=True, need=PERSON)
    result = await fenced(env, world)
    assert touched(world) == ["cordon", "drain", "detach vol-1", "off", "free-cut-pods", "on"]
    assert result.freed_pods == 2


async def test_a_volume_that_leaves_with_its_pods_is_not_detached_by_force(env: WorkflowEnvironment) -> None:
    """Another machine may have it by then: nothing is proven of it, and nothing is freed for it (S1)."""
    world = world_of(restart(), ready=True, need=PERSON)
    async with fencing(env, world, at="drain") as run:
        world.volumes["vol-1"] = VolumeState.UNKNOWN
        result = await run.result(Outcome.RECOVERED)
    assert touched(world) == ["cordon", "drain", "off", "on"]
    assert noted(result, "detach-volumes") == [("ok", "vol-1 left the machine; by themselves")]


async def test_a_volume_that_moves_just_then_is_left_to_its_new_machine(env: WorkflowEnvironment) -> None:
    """S9: the cloud says that it is not attached here any more."""
    elsewhere = failure(ErrorType.TARGET_CHANGED, "vol-1 is not attached here: in-use, attached i-8")
    world = world_of(restart(), ready=True, need=PERSON, detach_errors=[elsewhere])
    async with fencing(env, world, at="detach vol-1") as run:
        world.volumes["vol-1"] = VolumeState.UNKNOWN
        await run.result(Outcome.RECOVERED)
    assert touched(world) == ["cordon", "drain", "detach vol-1", "off", "on"]


async def test_a_machine_that_is_another_one_keeps_its_volumes(env: WorkflowEnvironment) -> None:
    """S9: it still lists what it says is not attached to it."""
    other = failure(ErrorType.TARGET_CHANGED, "vol-1 is not attached here: in-use, attached i-8")
    world = world_of(restart(), ready=True, need=PERSON, detach_errors=[other])
    assert "vol-1 is not attached here" in (await parked(env, world)).problem
    assert world.commands == []


async def test_force_is_for_what_does_not_leave_by_itself(env: WorkflowEnvironment) -> None:
    world = world_of(restart(), ready=True, need=PERSON)
    result = await fenced(env, world)
    drained = next(entry.at for entry in result.record if entry.act == "drain")
    sent = next(entry.at for entry in result.record if entry.act == "detach-volume")
    assert sent - drained >= timedelta(seconds=20)


async def test_what_the_machine_boots_from_is_never_detached(env: WorkflowEnvironment) -> None:
    """Nothing at all is touched for its sake."""
    world = world_of(restart(AttachedVolume(name="pvc-0", handle="vol-root")))
    assert "vol-root is what the machine boots from" in (await parked(env, world)).problem
    assert touched(world) == []


async def test_a_volume_that_the_cloud_does_not_know_touches_nothing(env: WorkflowEnvironment) -> None:
    """S3."""
    world = world_of(restart(tries=1, restarts=0), volumes={"vol-1": VolumeState.UNKNOWN})
    assert "nothing is touched: vol-1 is unknown" in (await parked(env, world)).problem
    assert touched(world) == []


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


async def test_a_crashing_pod_whose_budget_keeps_it_holds_nothing_up(env: WorkflowEnvironment) -> None:
    blocked = DrainResult(left=1, blocked=("demo/client: budget clients",))
    world = world_of(restart(), drains=[blocked] * 200)
    await fenced(env, world)
    assert "detach vol-1" in world.acts


async def test_a_volume_that_stays_fails_the_step_before_power_is_touched(env: WorkflowEnvironment) -> None:
    world = world_of(restart(tries=1, restarts=0), stuck={"vol-1"})
    assert f"still attached to {INSTANCE.endpoint}: vol-1" in (await parked(env, world)).problem
    assert world.commands == []
    assert world.consequences == []


async def test_a_volume_that_is_attached_again_frees_nothing_and_holds_up_nothing(env: WorkflowEnvironment) -> None:
    """S1, S2: read again just before; the machine is to come back all the same."""
    world = world_of(restart(), ready=True, need=PERSON)
    async with fencing(env, world, at="off") as run:
        world.volumes["vol-1"] = VolumeState.ATTACHED
        await run.result(Outcome.RECOVERED)
    assert world.consequences == []
