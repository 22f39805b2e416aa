"""Remediation through its workflow, on the clockwork: each step of a ladder by itself, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from activities.errors import ErrorType, failure
from policy.episode.messages import Need, NeedKind, Outcome, Phase
from policy.episode.permits import PermitAnswer, PermitDecision
from policy.remediation.ladder import EscalationStep
from policy.remediation.memory import read_memory
from policy.remediation.strategy_rules import Strategy
from tests.workflows.attempts import START
from tests.workflows.contract import LookVerdict
from tests.workflows.remediation_run import (
    ANNOTATE,
    DELETE,
    FENCE,
    MINUTE,
    OBJECT,
    OWNER,
    SELF,
    Play,
    Remediated,
    RemediationObject,
    remediated,
    step,
    succeeds,
)


def strategy_of(value: object) -> str:
    return value.strategy.value if isinstance(value, EscalationStep) else ""


def test_a_machine_is_deleted_once_and_its_successor_seen_to_become_ready() -> None:
    """S33; the successor is told what to remember, and the permit goes back at the end."""
    world = Remediated(ladder=(DELETE,))
    result = remediated(world, retry=2, failed=("reboot",), outcome=Outcome.REPLACED)
    assert len(world.deletions) == 1
    assert "w-8 has taken its place, its Node node-8 is Ready" in result.message
    memory = read_memory(world.successor().memory)
    assert (memory.of, memory.retry, memory.failed, memory.incident) == ("w-7", 2, ("reboot",), "i-1")
    assert [release.outcome for release in world.releases] == ["replaced"]
    assert "EpisodeEnded" not in world.node.warnings, "it came as it was to come"
    assert world.acts.index("mark") < world.acts.index("remember") < world.acts.index("give-up") < world.acts.index("uncordon")


@pytest.mark.parametrize(
    ("changes", "said", "event"),
    [
        (
            {"ready_after": None, "successor_fails": "InsufficientResources"},
            "has failed: InsufficientResources",
            "ReplacementFailed",
        ),
        ({"follows_after": None, "scaled_down": "its owner wants 2"}, "and its owner wants 2", ""),
        ({"follows_after": None}, "no other Machine is there yet after 20m", "ReplacementLate"),
    ],
    ids=["it fails", "scaled down", "there is none"],
)
def test_it_ends_without_a_ready_successor(changes: dict[str, object], said: str, event: str) -> None:
    """The successor is a case of its own; people are told."""
    world = replace(Remediated(ladder=(DELETE,)), **changes)  # type: ignore[arg-type]
    result = remediated(world, Outcome.REPLACED)
    assert said in result.message
    assert not event or f"event {event}" in world.acts


@pytest.mark.parametrize(("has_machine", "owner"), [(False, ""), (True, "")], ids=["no machine", "no owner"])
def test_nothing_is_deleted_that_no_owner_would_replace(has_machine: bool, owner: str) -> None:
    world = Remediated(ladder=(DELETE,), has_machine=has_machine, owner=owner)
    with Play(world) as play:
        status = play.parked()
    assert "delete-machine: " in status.problem
    assert world.deletions == []


@pytest.mark.parametrize("seen", ["when it is taken", "at the last look"])
def test_until_when_others_hold_the_node_is_told_to_the_scanner(seen: str) -> None:
    """Else it would open the next episode a minute later, and the next."""
    world, until = Remediated(ladder=(DELETE,)), datetime(2030, 1, 1, 12, tzinfo=UTC)
    world.node.lease_until = until
    if seen == "at the last look":
        world.node.looks = [LookVerdict.VETOED]
    else:
        world.node.lease_holder = "node-maintenance"
    remediated(world, outcome=Outcome.RELEASED)
    assert [release.vetoed_until for release in world.releases] == [until]


@pytest.mark.parametrize(
    ("only", "removes"), [(DELETE, True), (OWNER, True), (SELF, False), (ANNOTATE, False), (FENCE, False)], ids=strategy_of
)
def test_only_what_replaces_the_machine_takes_it_out_of_a_control_plane(only: EscalationStep, *, removes: bool) -> None:
    """S15: whatever else is done, etcd goes on counting the member."""
    world = Remediated(ladder=(only,), owner="KubeadmControlPlane/cp")
    with Play(world) as play:
        play.until(lambda _: bool(world.removing))
        play.abort()
    assert set(world.removing) == {removes}


def test_a_machine_that_never_had_a_node_is_replaced_without_touching_one() -> None:
    """There is none to mark, and none whose lease could be taken."""
    world = Remediated(ladder=(DELETE,))
    world.node.present = False
    remediated(world, node="machine/capi/w-7", outcome=Outcome.REPLACED)
    assert len(world.deletions) == 1
    assert not {"mark", "uncordon", "release-lease"} & set(world.acts)


def test_an_owner_that_defers_is_waited_for() -> None:
    """S33: asked once; deferring is no failure."""
    world = Remediated(ladder=(OWNER,), owner="KubeadmControlPlane/prod", owner_acts_after=20 * MINUTE, of_machines=True)
    world.owner_says = ("RemediationDeferred", "another member is being replaced")
    with Play(world) as play:
        status = play.until(lambda status: "another member is being replaced" in status.doing)
        result = play.result()
    assert status.doing.startswith("waits for KubeadmControlPlane/prod")
    assert (result.outcome, world.count("request-owner")) == (Outcome.REPLACED, 1)
    assert world.memories == [], "a control plane of Cluster API remembers by itself"


def test_the_word_of_a_kubeadm_control_plane_that_it_can_not_may_pass() -> None:
    """It says so while too few members are well, and after an error of its own, and tries again."""
    world = Remediated(ladder=(OWNER, DELETE), owner="KubeadmControlPlane/prod", owner_acts_after=3 * MINUTE, of_machines=True)
    world.owner_says = ("CannotBeRemediated", "too few members are well")
    result = remediated(world, Outcome.REPLACED)
    assert ("event RemediationStepFailed" in world.acts, result.outcome) == (False, Outcome.REPLACED)
    world = Remediated(ladder=(OWNER, DELETE), owner="KubeadmControlPlane/prod", of_machines=True)
    world.owner_says = ("CannotBeRemediated", "maxRetry is reached")
    remediated(world, Outcome.REPLACED)
    assert "event RemediationStepFailed" in world.acts


def test_an_owner_that_gives_up_has_failed_and_the_next_step_comes() -> None:
    world = Remediated(ladder=(OWNER, DELETE), of_machines=True)
    world.owner_says = ("CannotBeRemediated", "maxRetry is reached")
    remediated(world, Outcome.REPLACED)
    assert world.remembered == [(), ("request-owner",)]
    assert "event RemediationStepFailed" in world.acts
    assert world.owner_asked is not None, "it goes: what it says stays"


@pytest.mark.parametrize("outcome", [Outcome.RECOVERED, Outcome.RELEASED], ids=["it recovers", "somebody keeps it"])
def test_what_is_seen_before_its_owner_acts_takes_the_request_back(outcome: Outcome) -> None:
    """S27: seen before its termination begins, whatever ran first."""
    world = Remediated(ladder=(OWNER,))
    world.owner_says = ("RemediationDeferred", "later")
    with Play(world) as play:
        play.until(lambda status: "later" in status.doing)
        if outcome is Outcome.RECOVERED:
            world.node.ready = True
        else:
            world.node.glances = [LookVerdict.VETOED]
        result = play.result(outcome)
    assert (world.owner_asked, world.count("take-back")) == (None, 1)
    assert "before anything came of request-owner" in result.message or outcome is Outcome.RECOVERED


def test_a_wish_that_an_earlier_episode_has_left_is_taken_back_and_nothing_else_is_done() -> None:
    """S35: without a permit, since nothing is disrupted."""
    world = Remediated(ladder=(OWNER,))
    world.node.ready, world.owner_asked = True, datetime(2026, 1, 1, tzinfo=UTC)
    remediated(world, permit_granted=False, ladder=(OWNER,), adopts="OwnerRemediated", outcome=Outcome.RECOVERED)
    assert world.owner_asked is None
    assert not {"request-owner", "give-up", "mark", "remember"} & set(world.acts)


def test_an_object_is_created_once_followed_and_deleted_at_recovery() -> None:
    """S33, S35."""
    world = Remediated(ladder=(SELF,), has_machine=False, owner="")
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.objects[OBJECT].processing = "True"
        status = play.until(lambda status: "Processing is True" in status.doing)
        succeeds(world)(world.objects[OBJECT])
        result = play.result()
    assert status.phase is Phase.RUNNING
    assert result.outcome is Outcome.RECOVERED
    assert (world.count(f"create {OBJECT}"), world.objects) == (1, {})
    assert world.count(f"time-out {OBJECT}") == 0


@pytest.mark.parametrize(("minutes", "lease"), [(45, 46), (5, 11), (None, 11)])
def test_the_lease_of_the_node_lasts_as_long_as_the_step(minutes: int | None, lease: int) -> None:
    """medik8s: whoever would maintain the node keeps out while another controller repairs it, however long that may take."""
    ladder = (step(Strategy.EXTERNAL, minutes * MINUTE if minutes is not None else None),)
    with Play(Remediated(ladder=ladder, has_machine=False, owner="")) as play:
        play.did(f"create {OBJECT}")
        (leased,) = play.world.node.leased
    assert timedelta(0) <= lease * MINUTE - leased < timedelta(seconds=30)


def test_an_object_that_an_earlier_episode_has_left_is_followed_and_taken_back_and_nothing_else_is_done() -> None:
    """S35: without a permit, since nothing is disrupted."""
    world = Remediated(ladder=(SELF,), has_machine=False, owner="")
    made = RemediationObject(created=datetime(2026, 1, 1, tzinfo=UTC))
    world.objects[OBJECT] = made
    succeeds(world)(made)
    result = remediated(world, permit_granted=False, ladder=(SELF,), adopts="node-7")
    assert result.outcome is Outcome.RECOVERED, result.message
    assert world.objects == {}
    assert world.count(f"create {OBJECT}") == 0
    assert {"mark", "remember", "cordon", "off"}.isdisjoint(world.acts)
    assert not any("permit" in act for act in world.acts)


def test_an_object_that_was_left_behind_stays_while_its_check_of_machines_is_paused() -> None:
    """Nobody is asked for help with it, and it is not tried again: the next scan that finds it unpaused does it."""
    world = Remediated(ladder=(SELF,), has_machine=False, owner="", check_paused=True)
    world.objects[OBJECT] = made = RemediationObject(created=datetime(2026, 1, 1, tzinfo=UTC))
    succeeds(world)(made)
    result = remediated(world, permit_granted=False, ladder=(SELF,), adopts="node-7")
    assert result.message.endswith("left as it is: deletes SelfNodeRemediation: MachineHealthCheck/a/m is paused")
    assert (list(world.objects), world.count(f"delete {OBJECT}")) == ([OBJECT], 1)


def test_an_object_that_others_have_given_up_is_not_waited_for() -> None:
    """medik8s: its controller has been told to stop, so that nothing comes of it however long it is followed."""
    world = Remediated(ladder=(SELF, DELETE))
    world.objects[OBJECT] = RemediationObject(created=START, timed_out=True)  # by the shipped operator, a moment before
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        began = play.clockwork.now
        play.did("give-up")
        assert play.clockwork.now - began < MINUTE
        play.result(Outcome.REPLACED)
    assert world.remembered[-1] == (SELF.name,)


def test_an_object_of_a_node_that_is_gone_is_taken_back_and_its_node_is_not_called_replaced() -> None:
    """S35: nobody pinned a Node that could have been replaced."""
    world = Remediated(ladder=(SELF,), has_machine=False, owner="")
    world.node.present = False
    world.objects[OBJECT] = RemediationObject(created=datetime(2026, 1, 1, tzinfo=UTC))
    result = remediated(world, permit_granted=False, ladder=(SELF,), adopts="node-7")
    assert (result.outcome is Outcome.REPLACED, "the Node was deleted" in result.message, world.objects) == (False, False, {})


def test_an_object_that_says_that_it_failed_is_told_that_its_time_is_over() -> None:
    world = Remediated(ladder=(SELF, DELETE))
    world.on_create = lambda made: setattr(made, "succeeded", "False")
    with Play(world) as play:
        play.did("give-up")
        assert world.objects[OBJECT].timed_out, "others look for it, so that it stays until the end"
        play.result(Outcome.REPLACED)
    assert world.remembered[-1] == (SELF.name,)
    assert world.objects == {}


def test_the_time_of_an_object_counts_from_its_creation_strictly() -> None:
    world = Remediated(ladder=(SELF, DELETE), has_machine=True)
    with Play(world) as play:
        play.did(f"time-out {OBJECT}")
        created = world.objects[OBJECT].created
        assert timedelta(0) < play.clockwork.now - created - 5 * MINUTE < timedelta(seconds=10)
        play.result()


def test_a_healthy_delay_begins_anew_when_the_node_falls_sick_again() -> None:
    world = Remediated(ladder=(step(Strategy.EXTERNAL),), has_machine=False, healthy_delay=5 * MINUTE)
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.node.ready = True
        play.did("note-well")
        play.skip(3 * MINUTE)
        world.node.ready = False
        play.did("note-sick")
        assert world.objects[OBJECT].well_since is None
        world.node.ready = True
        play.did("note-well", 2)
        well = play.clockwork.now
        result = play.result(Outcome.RECOVERED)
    assert timedelta(0) <= result.ended - well - 5 * MINUTE < timedelta(seconds=20)


def test_a_negative_healthy_delay_waits_for_a_persons_confirmation() -> None:
    world = Remediated(ladder=(step(Strategy.EXTERNAL),), has_machine=False, healthy_delay=-MINUTE)
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.node.ready = True
        play.until(lambda status: "a person has to confirm it" in status.doing)
        play.skip(timedelta(hours=1))
        assert OBJECT in world.objects
        world.node.confirmed_well = True
        play.result(Outcome.RECOVERED)
    assert world.objects == {}


def test_what_was_to_go_is_not_given_up_when_it_goes() -> None:
    """PermanentNodeDeletionExpected: until its controller, as machine-deletion-remediation, says that it has succeeded."""
    world = Remediated(ladder=(SELF,))
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.objects[OBJECT].node_deletion = "True"
        world.deleting = play.clockwork.now
        play.skip(5 * MINUTE)
        assert (world.node.present, OBJECT in world.objects) == (False, True)
        world.objects[OBJECT].succeeded = "True"
        play.result(Outcome.REPLACED)
    assert world.objects == {}


def test_an_object_that_goes_with_its_machine_ends_it_replaced() -> None:
    """Metal3: it hands the Machine to its owner, and is collected with it. Nobody is asked for anything."""
    world = Remediated(ladder=(SELF,))
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.objects[OBJECT].phase = "Deleting machine"
        play.until(lambda status: "Deleting machine" in status.doing)
        world.present = world.node.present = False
        world.objects.clear()
        play.result(Outcome.REPLACED)
    assert not {"event NeedsHuman", "event RemediationStepFailed"} & set(world.acts)


@pytest.mark.parametrize("by", ["its controller", "an object", "an annotation"])
def test_a_persons_wish_is_fulfilled_once_its_controller_says_so_or_the_node_has_started_anew(by: str) -> None:
    """S14: no check ever says that a person's need is gone. Neither Metal3 nor OpenShift's operator ever says that it has
    succeeded, and a permit is not held for ever."""
    need = Need(kind=NeedKind.PERSON, reason="a drill", requester="ada")
    world = Remediated(ladder=(step(Strategy.ANNOTATE_EXTERNAL if by == "an annotation" else Strategy.EXTERNAL),), need=need)
    world.node.ready = by != "its controller"
    if by == "its controller":
        world.on_create = succeeds(world)
    with Play(world) as play:
        if by != "its controller":
            play.did("annotate-external" if by == "an annotation" else f"create {OBJECT}")
            play.skip(5 * MINUTE)
            assert not play.execution.closed
            world.node.boot_id = "boot-2"
        play.result(Outcome.RECOVERED)
    assert (world.objects, world.annotated) == ({}, False)


def test_a_machine_is_annotated_for_its_operator_until_the_node_is_well() -> None:
    world = Remediated(ladder=(ANNOTATE,))
    with Play(world) as play:
        play.did("annotate-external")
        play.skip(20 * MINUTE)
        assert world.annotated
        world.node.ready = True
        play.result(Outcome.RECOVERED)
    assert (world.annotated, world.count("annotate-external")) == (False, 1)


@pytest.mark.parametrize("times", [2, 1000], ids=["after some tries", "never"])
def test_an_abort_takes_the_annotations_back_however_often_it_takes(times: int) -> None:
    """S35: and what can't be taken back is told once a person gives up."""
    world = Remediated(ladder=(ANNOTATE,))
    world.errors["remediation.take-back"] = [failure(ErrorType.FORBIDDEN, "no right to write")] * times
    with Play(world) as play:
        play.did("annotate-external")
        play.abort()
        if times > 2:
            play.parked()
            play.abort()
        result = play.result(Outcome.ABORTED)
    assert world.annotated is ("the annotations of the Machine can't be taken back" in result.message) is (times > 2)


NOBODY = failure(ErrorType.NOT_FOUND, "there is no such Node or Machine")
UNOWNED = "no controller owns the Machine: nothing would replace it"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ladder": (), "refused": UNOWNED}, UNOWNED),
        ({"errors": {"remediation.pin-target": [NOBODY]}}, "there is no such Node or Machine"),
        ({"permit_granted": False}, "too many are unhealthy"),
    ],
    ids=["no step is possible", "nobody is there", "the permit is refused"],
)
def test_what_cannot_be_begun_is_refused(changes: dict[str, object], message: str) -> None:
    """The scanner's reservation goes back, and nothing was touched."""
    granted = {"permit_granted": changes.pop("permit_granted", True)}
    world = Remediated(**({"ladder": (DELETE,)} | changes))
    world.node.answers = [PermitAnswer(decision=PermitDecision.REFUSED, reason="too many are unhealthy")]
    result = remediated(world, Outcome.REFUSED, **granted)
    assert (result.message, result.missing) == (message, message == str(NOBODY.message))
    assert [release.outcome for release in world.releases] == ["refused"]
    assert {*world.acts} <= {"pin-target", "ask-permit"}


def test_an_object_that_another_client_deletes_has_failed() -> None:
    world = Remediated(ladder=(SELF, DELETE))
    with Play(world) as play:
        play.did(f"create {OBJECT}")
        world.objects.clear()
        result = play.result(Outcome.REPLACED)
    assert any(f"{OBJECT} was deleted by another party" in entry.detail for entry in result.record)


def test_a_node_without_a_machine_can_not_be_annotated() -> None:
    """It may have lost its Machine since the scan: the workflow must not be wedged by that."""
    world = Remediated(ladder=(ANNOTATE,), has_machine=False)
    with Play(world) as play:
        assert "belongs to no Machine" in play.parked().problem
