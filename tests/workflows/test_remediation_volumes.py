"""`detach-volumes` as a step of a ladder, on the clockwork: found out once, carried out about that, else the next step's turn."""

from __future__ import annotations

from dataclasses import replace

from activities.contracts.remediation import FailedVolumes
from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.fence.plan import PowerDevice
from policy.fence.power import VolumeState
from policy.remediation.strategies import Strategy
from policy.remediation.volumes import AttachedVolume, Failure, PodOnNode
from tests.workflows.remediated import DELETE, MINUTE, Remediated, step
from tests.workflows.remediating import remediated
from tests.workflows.world import World, plan

DETACH = step(Strategy.DETACH_VOLUMES, 30 * MINUTE)
INSTANCE = PowerDevice(driver="ec2", endpoint="ec2://eu-west-1/i-7")
DATABASE = PodOnNode(key="demo/database-0", uid="uid-1", volumes=("pvc-1",))
VOLUME = AttachedVolume(name="pvc-1", handle="vol-1")
DETACHING = "isolation.detach-volume"
TOUCHING = {"cordon", "drain", "detach vol-1", "detach vol-2", "free-cut-pods", "taint", "off", "on"}


def failed(volume: AttachedVolume = VOLUME) -> FailedVolumes:
    return FailedVolumes(failure=Failure(volumes=(volume,), mounting=(DATABASE,)), eviction_timeout=MINUTE)


def instance() -> World:
    """A machine of a cloud, with two volumes."""
    volumes = {"vol-1": VolumeState.ATTACHED, "vol-2": VolumeState.ATTACHED}
    return World(plan=plan(levels=((INSTANCE,),), tries=1, restarts=0), volumes=volumes)


def touched(world: Remediated) -> list[str]:
    return [act for act in world.acts if act in TOUCHING]


def test_the_failed_volume_goes_and_the_machine_is_restarted_in_one_episode() -> None:
    """S1, S30: in the order of the proposal's example, and the node is schedulable again at its end."""
    world = Remediated(ladder=(DETACH, DELETE), node=instance(), found=failed())
    result = remediated(world, Outcome.RECOVERED)
    assert touched(world) == ["cordon", "drain", "detach vol-1", "free-cut-pods", "off", "free-cut-pods", "on"]
    assert world.node.volumes["vol-2"] is VolumeState.ATTACHED
    assert not world.node.cordoned
    assert [entry.detail for entry in result.record if entry.act == "find-volumes"] == ["vol-1 (pvc-1); demo/database-0 mounting"]


def test_words_that_name_no_volume_leave_everything_as_it_is_to_the_next_step() -> None:
    """S7: nothing to do is no success; the reason is remembered with the step."""
    unclear = FailedVolumes(failure=Failure(refused="that names no volume attached to the node"), eviction_timeout=MINUTE)
    world = Remediated(ladder=(DETACH, DELETE), node=instance(), found=unclear)
    result = remediated(world, Outcome.REPLACED)
    assert touched(world) == []
    assert world.remembered[-1] == ("detach-volumes",)
    assert any("names no volume attached" in entry.detail for entry in result.record if entry.outcome == "failed")


def test_a_machine_whose_volumes_nobody_knows_is_the_next_step_s() -> None:
    world = Remediated(ladder=(DETACH, DELETE), found=failed())
    result = remediated(world, Outcome.REPLACED)
    assert touched(world) == []
    assert any("a cloud whose volumes are known" in entry.detail for entry in result.record if entry.outcome == "failed")


def test_a_template_that_is_not_there_is_the_next_step_s() -> None:
    missing = failure(ErrorType.INVALID_CONFIG, "VolumeDetachmentTemplate/nodewarden/volumes does not exist")
    world = Remediated(ladder=(DETACH, DELETE), node=instance(), errors={"remediation.find-volumes": [missing]})
    remediated(world, Outcome.REPLACED)
    assert touched(world) == []


def test_a_worker_that_is_lost_after_it_has_detached_detaches_once() -> None:
    """S33, S34: what it may have done is waited out, and read."""
    world = Remediated(ladder=(DETACH, DELETE), node=instance(), found=failed(), errors={DETACHING: ["after"]})
    remediated(world, Outcome.RECOVERED)
    assert (world.count("detach vol-1"), world.count("detach vol-2")) == (1, 0)


def test_a_worker_that_is_lost_before_it_has_detached_is_followed_by_one_more_try() -> None:
    node = instance()
    node.plan = replace(node.plan, tries=2)
    world = Remediated(ladder=(DETACH, DELETE), node=node, found=failed(), errors={DETACHING: ["before"]})
    remediated(world, Outcome.RECOVERED)
    assert touched(world) == ["cordon", "drain", "detach vol-1", "free-cut-pods", "off", "free-cut-pods", "on"]
