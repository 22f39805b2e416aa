"""What an episode has added to its Node it knows throughout, so that a mark that is gone can be written again (S28, S35)."""

from __future__ import annotations

from dataclasses import replace

from activities.errors import ErrorType, failure
from policy.fence.plan import CORDON, Act, PlannedMethod
from policy.objects.marks import Mark
from tests.workflows.remediated import FENCE, OBJECT, REBOOT, SELF, Remediated
from tests.workflows.remediating import Play
from tests.workflows.world import World, left_by, plan

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


def test_what_a_predecessor_had_added_is_known() -> None:
    """Its own mark tells of it, until that is gone."""
    world = Remediated(ladder=(FENCE,), node=isolated(isolation=()), has_machine=False)
    world.node.mark = replace(left_by("i-0"), cordoned=True, taints=SAID[1])
    removed(world)
    with Play(world) as play:
        assert written_again(play, world) == SAID


def test_what_was_added_is_known_in_the_next_history() -> None:
    """The fencing has failed for a silent BMC; its cordon stands while others are waited for."""
    world = Remediated(ladder=(FENCE, SELF, REBOOT), node=isolated(), has_machine=False)
    world.node.off_errors = [failure(ErrorType.UNREACHABLE, "no answer")] * 2
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.node.off_errors.clear()
        play.goes_on_anew()
        world.node.mark = None
        assert written_again(play, world) == SAID


def test_a_path_that_no_step_gives_back_is_told_also_in_the_next_history() -> None:
    """S35: a predecessor had cut it, and the ladder has no step that knows of paths."""
    world = Remediated(ladder=(SELF,), has_machine=False)
    world.node.mark = left_by("i-0", paths=("snmp://10.0.0.9:1",))
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        play.goes_on_anew()
        play.abort()
        assert play.result().message.endswith("; left cut: snmp://10.0.0.9:1")
