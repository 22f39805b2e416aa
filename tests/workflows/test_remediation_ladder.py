"""Remediation by a ladder, on the clockwork: our own fencing as a step, what failed is remembered, and a person at the end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome, Phase
from policy.episode.permits import PermitAnswer, PermitDecision
from policy.fence.kdump import KdumpRule
from policy.fence.plan import CORDON
from policy.fence.power import PowerState
from policy.remediation.ladder import EscalationStep
from policy.remediation.memory import read_memory
from policy.remediation.strategy_rules import Strategy
from tests.workflows.plans import CUT as FABRIC_CUT
from tests.workflows.plans import FREE as FREE_CUT
from tests.workflows.plans import PORT, switched
from tests.workflows.remediation_run import (
    DELETE,
    FENCE,
    MINUTE,
    OBJECT,
    OWNER,
    REBOOT,
    SELF,
    Play,
    Remediated,
    RemediationObject,
    remediated,
    silent,
    step,
)
from tests.workflows.world import World, plan


@pytest.mark.parametrize(("only", "freed"), [(FENCE, ["taint"]), (REBOOT, [])], ids=["fence", "reboot"])
def test_a_fencing_is_carried_out_with_all_its_proofs_inside_the_same_workflow(only: EscalationStep, freed: list[str]) -> None:
    """S1, S2, S5, S13: one workflow id; off is proven before anything is freed, and the node comes back. A reboot
    frees nothing."""
    world = Remediated(ladder=(only,))
    remediated(world, Outcome.RECOVERED)
    assert world.node.commands == ["off ipmi://10.0.0.7:623", "on ipmi://10.0.0.7:623"]
    assert world.node.consequences == freed
    assert [act for act in world.acts if act in {"off", "taint", "on"}] == ["off", *freed, "on"]
    assert (world.node.pods, world.count("event EpisodeEnded")) == (0 if freed else 3, 1)
    assert [release.outcome for release in world.releases] == ["recovered"]


def test_a_node_without_a_power_device_is_not_called_rebooted() -> None:
    """S7: at once, not after the time for its return."""
    world = Remediated(ladder=(REBOOT, DELETE), node=World(plan=plan(levels=())))
    result = remediated(world, Outcome.REPLACED)
    assert "no power device" in next(entry.detail for entry in result.record if entry.outcome == "failed")
    assert "cordon" not in world.acts
    assert world.remembered[-1] == ("reboot",)


@pytest.mark.parametrize("off", [False, True], ids=["before off", "after off"])
def test_the_time_of_a_fencing_ends(*, off: bool) -> None:
    """S5: however long its plan would wait, the next step comes in time. Nothing is commanded any more, or it is off, freed and
    on again: its return is waited for no longer, and it is not switched off again."""
    slow = {"boot_timeout": timedelta(hours=2)} if off else {"wait_before_power": timedelta(hours=2)}
    world = Remediated(ladder=(step(Strategy.FENCE, 5 * MINUTE), DELETE), node=World(boot_seconds=None, plan=plan(**slow)))
    with Play(world) as play:
        play.did("give-up")
        assert timedelta(0) < play.passed - 5 * MINUTE < MINUTE
        result = play.result(Outcome.REPLACED)
    assert len(world.node.commands) == (2 if off else 0)
    back = "its time is over, and the node is not back"
    assert off is any(back in entry.detail for entry in result.record)


def test_no_taint_of_a_fencing_that_failed_goes_on_freeing_beside_the_next_step() -> None:
    """S1, S32: nobody reads the proof any more. It stood because not all pods went, and the machine could not be switched on."""
    node = World(plan=plan(tries=1, restarts=0), stubborn=True)
    world = Remediated(ladder=(FENCE, SELF), node=node)
    forbidden = [failure(ErrorType.FORBIDDEN, "no right to patch nodes")] * 15
    world.after["power-management.taint-out-of-service"] = lambda: world.errors.update(
        {"power-management.untaint-out-of-service": forbidden}
    )
    with Play(world) as play:
        play.did("taint")
        play.did(f"create {OBJECT}")
        assert not node.out_of_service
        play.abort()
        result = play.result(Outcome.ABORTED)
    assert "the machine may be off" in result.message


def test_self_node_remediation_then_fence_then_deletion() -> None:
    """Each is tried once, what failed is written down before the next one, and told. A fencing that would ask for a person is
    followed by the next step: the person comes last."""
    world = Remediated(ladder=(SELF, FENCE, DELETE), node=silent())
    remediated(world, Outcome.REPLACED)
    assert ("event NeedsHuman" in world.acts, world.node.unschedulable) == (False, False)
    assert world.remembered == [(), (SELF.name,), (SELF.name, "fence")]
    assert world.count("event RemediationStepFailed") == 2
    order = [world.acts.index(act) for act in (f"create {OBJECT}", f"time-out {OBJECT}", "read", "give-up", f"delete {OBJECT}")]
    assert order == sorted(order)
    assert world.objects == {}


def test_a_deletion_that_hangs_is_followed_by_a_fencing_that_lets_it_end() -> None:
    """The deletion stands: what the fencing brings back goes all the same, and only its end is the end."""
    world = Remediated(ladder=(DELETE, FENCE), goes_after=None)
    with Play(world) as play:
        play.did("off")
        assert 30 * MINUTE < play.passed < 32 * MINUTE
        play.did("on")
        world.goes_after = play.clockwork.now - play.began + MINUTE
        result = play.result(Outcome.REPLACED)
    assert "w-8 has taken its place" in result.message
    assert (len(world.deletions), world.count("give-up"), world.count("event RemediationTimedOut")) == (1, 1, 1)


@pytest.mark.parametrize("after", [FENCE, SELF], ids=["fence", "external"])
def test_a_veto_against_the_next_step_does_not_call_a_machine_that_goes_left_alone(after: EscalationStep) -> None:
    """A check of Machines lets nobody touch one that goes; its end is waited for all the same."""
    world = Remediated(ladder=(DELETE, after), goes_after=40 * MINUTE, of_machines=True)
    remediated(world, Outcome.REPLACED)
    assert (world.node.commands, world.objects, world.count("event NeedsHuman")) == ([], {}, 0)


def test_a_ladder_that_is_used_up_parks_loudly_without_a_permit() -> None:
    """S14, S35: an Event, the permit back, the mark kept."""
    world = Remediated(ladder=(SELF, FENCE), node=silent())
    with Play(world) as play:
        status = play.parked()
        assert "every step has failed: fence: " in status.problem
        play.until(lambda _: bool(world.releases))
        assert [release.parked for release in world.releases] == [True]
        assert world.count("event NeedsHuman") == 1
        assert (world.node.marked, world.permit) == ("i-1", False)
    assert world.node.marked == ""


def test_resume_begins_anew_with_the_first_step_and_a_new_permit() -> None:
    """An object that has been given up is made anew, or its old word would hold."""
    world = Remediated(ladder=(SELF, FENCE), node=silent())
    made = list[RemediationObject]()

    def controller(each: RemediationObject) -> None:
        made.append(each)
        each.succeeded = "False" if len(made) == 1 else "True"
        world.node.ready = len(made) > 1

    world.on_create = controller
    with Play(world) as play:
        play.parked()
        play.resume()
        play.result(Outcome.RECOVERED)
    assert len(made) == 2
    assert (world.count("ask-permit"), world.remembered[-1]) == (1, ())
    assert world.objects == {}


@pytest.mark.parametrize("outcome", [Outcome.RECOVERED, Outcome.REPLACED])
def test_a_patient_that_is_well_or_gone_while_parked_needs_no_person(outcome: Outcome) -> None:
    world = Remediated(ladder=(FENCE,), node=silent())
    with Play(world) as play:
        play.parked()
        if outcome is Outcome.RECOVERED:
            world.node.ready = True
            play.tell(world.node.seen_node())
        else:
            world.present = world.node.present = False
        play.result(outcome)


def test_a_deletion_that_ends_while_parked_tells_the_successor_what_to_remember() -> None:
    """What never ended in its time was a try all the same: the replacement is not a new story, or a set whose machines always
    fail is a hot loop."""
    world = Remediated(ladder=(DELETE,), goes_after=40 * MINUTE)
    with Play(world) as play:
        play.parked()
        result = play.result(Outcome.REPLACED)
    assert "w-8 has taken its place" in result.message
    remembered = read_memory(world.successor().memory)
    assert (remembered.of, remembered.failed) == ("w-7", ("delete-machine",))


def test_an_owner_is_asked_anew_once_a_person_has_it_go_on() -> None:
    """Its old word, that it can't, would end the step at once."""
    world = Remediated(ladder=(OWNER,))
    world.owner_says = ("CannotBeRemediated", "it wants one replica only")
    with Play(world) as play:
        play.parked()
        world.owner_says, world.owner_acts_after = ("", ""), MINUTE
        play.resume()
        play.result(Outcome.REPLACED)
    asked = [act for act in world.acts if act in {"request-owner", "take-back"}]
    assert asked[:3] == ["request-owner", "take-back", "request-owner"]


def test_an_exhausted_lineage_asks_a_person_before_anything_is_done() -> None:
    """maxRetry: at once, without a permit, a mark or any act; a person's word gets a permit and goes on."""
    world = Remediated(ladder=(DELETE,))
    with Play(world, exhausted="maxRetry is 2, last was w-6", retry=2) as play:
        status = play.parked()
        assert world.acts == ["pin-target", "event NeedsHuman"]
        assert status.problem == "maxRetry is 2, last was w-6"
        play.skip(timedelta(hours=3))
        assert not {"mark", "give-up", "remember"} & set(world.acts)
        play.resume()
        play.result(Outcome.REPLACED)
    assert world.acts.index("ask-permit") < world.acts.index("mark") < world.acts.index("give-up")


def test_the_status_tells_which_step_it_is_at_and_until_when_also_in_a_new_history() -> None:
    world = Remediated(ladder=(SELF, FENCE, DELETE), node=silent())
    with Play(world) as play:
        first = play.until(lambda status: status.rung.startswith("1 of 3"))
        assert (first.rung, first.machine) == (f"1 of 3: {SELF.name}", "capi/w-7")
        assert first.rung_until is not None
        assert first.rung_until - first.started < 6 * MINUTE
        assert play.until(lambda status: status.rung.startswith("2 of 3")).rung == "2 of 3: fence"
        last = play.until(lambda status: status.rung.startswith("3 of 3"))
        play.roll()
        assert play.until(lambda status: status.rung == last.rung).rung_until == last.rung_until
        waiting = play.until(lambda status: status.doing.startswith("waits for its replacement"))
        assert (waiting.rung, waiting.rung_until) == (last.rung, None)
        play.result()
        assert (play.status().rung, play.status().rung_until) == ("", None)


def test_a_word_without_a_permit_stays_parked_and_says_so() -> None:
    """S14."""
    world = Remediated(ladder=(FENCE,), node=silent())
    with Play(world) as play:
        play.parked()
        world.node.answers = [PermitAnswer(decision=PermitDecision.REFUSED, reason="too many are unhealthy")]
        play.resume()
        status = play.until(lambda status: "too many are unhealthy" in status.problem and status.phase is Phase.NEEDS_HUMAN)
        assert not status.permit
        play.abort()
        play.result(Outcome.ABORTED)


def test_a_word_whose_mark_cannot_be_left_gives_the_permit_back() -> None:
    """S14: who is parked holds none."""
    world = Remediated(ladder=(FENCE,), node=silent())
    with Play(world) as play:
        play.parked()
        world.errors["isolation.mark"] = [failure(ErrorType.VETOED, "another incident has marked it")]
        play.resume()
        play.until(lambda status: "another incident" in status.problem and status.phase is Phase.NEEDS_HUMAN)
        play.skip(MINUTE)
        assert not world.permit


def test_an_abort_while_the_successor_of_a_parked_one_is_awaited_ends_it() -> None:
    with Play(Remediated(ladder=(DELETE,), goes_after=40 * MINUTE, ready_after=None)) as play:
        play.parked()
        play.until(lambda status: "waits for its replacement" in status.doing)
        play.abort()
        play.result(Outcome.ABORTED)


def test_a_ladder_that_is_aborted_while_the_return_is_waited_for_asks_no_person() -> None:
    """S44: at the end of the wait people were paged for an episode that one of them had aborted."""
    world = Remediated(ladder=(FENCE,), node=World(boot_seconds=None), has_machine=False)
    with Play(world) as play:
        play.until(lambda status: "come back Ready" in status.doing)
        play.abort()
        assert "the node is not back Ready" in play.result(Outcome.ABORTED).message
    assert not any(release.parked for release in world.releases)


def _second_round(play: Play, node: World) -> None:
    """The first one has brought the node back on another boot; its machine was to go and did not, and a person has it go on."""
    node.ready, node.boot_id = True, "boot-2"
    play.tell(node.seen_node())
    play.did("uncordon")
    node.ready, node.pods, node.cut_pods, node.kdump = False, 3, 2, None
    play.parked()
    play.resume()


def test_s49_a_path_that_a_step_has_cut_is_given_back_after_its_seal_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fencing failed, and the next step had the machine restarted in the end: the port is asked under a new seal."""
    for module in ("policy.fence.plan", "tests.workflows.world"):  # a week of looks at an object would take minutes here
        monkeypatch.setattr(f"{module}.SEALED_FOR", timedelta(minutes=30))
    node = World(plan=switched(tries=1, restarts=0), ignores_off=True)
    world = Remediated(ladder=(FENCE, step(Strategy.EXTERNAL, timedelta(hours=5))), node=node, has_machine=False)
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        assert node.paths[PORT.endpoint] is PowerState.OFF
        play.skip(timedelta(hours=1))
        node.ready, node.boot_id, node.excused = True, "boot-2", True
        play.tell(node.seen_node())
        play.result(Outcome.RECOVERED)
    assert (node.count("restore-path"), node.paths[PORT.endpoint]) == (1, PowerState.ON)


def test_a_restart_that_one_round_has_proven_opens_no_path_of_the_next() -> None:
    """S1, S2, S35: what the second round frees ran on boot-2, on which the node is Ready again: its processes have run all the
    while, and somebody else may write by now what they write."""
    node = World(plan=switched(levels=(), isolation=(CORDON, FABRIC_CUT, FREE_CUT), boot_timeout=timedelta(hours=1)))
    world = Remediated(ladder=(DELETE, FENCE), goes_after=None, node=node)
    with Play(world) as play:
        play.did("free-cut-pods")
        _second_round(play, node)
        play.did("free-cut-pods", 2)
        node.ready = True
        play.tell(node.seen_node())
        assert f"{PORT.endpoint} is left cut: pods were freed and no restart is proven" in play.parked().problem
        assert (node.count("restore-path"), node.paths[PORT.endpoint]) == (1, PowerState.OFF)
        node.boot_id = "boot-3"
        play.tell(node.seen_node())
        play.did("restore-path", 2)


def test_a_kernel_that_was_dead_in_one_round_is_no_reason_to_free_in_the_next() -> None:
    """S6, S35: that its pods were freed while it dumped says nothing of the boot that followed. The need is gone before
    anything of that boot is freed, and nothing is."""
    rule = KdumpRule(trusted=True)
    node = World(plan=plan(kdump=rule, wait_before_power=timedelta(days=1)), kdump=timedelta(days=1))
    world = Remediated(ladder=(DELETE, FENCE), goes_after=None, node=node)
    with Play(world) as play:
        play.did("free-while-dumping")
        _second_round(play, node)
        node.plan = plan()
        world.after["power-management.power-off"] = lambda: setattr(node, "excused", True)
        play.did("on")
        assert (node.consequences, node.pods) == (["free-while-dumping"], 3)


def test_a_restart_that_one_round_has_proven_takes_no_doubt_from_the_next() -> None:
    """S2, S44: in the second round the off was a lie, and the node is well on the boot that was pinned for it."""
    node = World(plan=plan(tries=1, free_timeout=timedelta(hours=1)))
    world = Remediated(ladder=(DELETE, FENCE), goes_after=None, node=node)
    with Play(world) as play:
        play.did("on")
        _second_round(play, node)
        node.stubborn = True
        play.did("taint", 2)
        node.power = dict.fromkeys(node.power, PowerState.ON)
        node.ready = True
        play.tell(node.seen_node())
        assert "its pods may have been freed when it was said to be off, and no restart of it is proven" in play.parked().problem
