"""How an episode is called as a NodeFence, and which of its lines become Events."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from policy.episode.events import WARNINGS, EpisodeEvent, EventReason, event_of, events_between, without_repetition
from policy.episode.messages import EpisodeStatus, Kind, Phase, RecordEntry
from policy.episode.nodefence import LONGEST_NAME, STATUSES, STEPS, job_of, node_fence_name, retries, transition
from policy.fence.config import FenceStep
from tests.policy.builders import NOW

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def status(phase: Phase = Phase.RUNNING, step: FenceStep = FenceStep.POWER_MANAGEMENT, **fields: object) -> EpisodeStatus:
    plain = EpisodeStatus(
        incident="abc",
        cluster="prod",
        node="node-7",
        kind=Kind.FENCING,
        phase=phase,
        step=step.value,
        doing="does",
        reason="Ready is Unknown",
        started=NOW,
        try_number=1,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def line(act: str, outcome: str, detail: str = "") -> RecordEntry:
    return RecordEntry(at=NOW, step="isolation", act=act, outcome=outcome, detail=detail)


def told(before: EpisodeStatus | None, after: EpisodeStatus, failure: str = "") -> list[str]:
    return [event.reason.value for event in events_between(before, after, failure)]


def test_the_name_is_the_seeds() -> None:
    node = "k8s-cluster-host1.usersys.redhat.com"
    assert node_fence_name(node) == f"node-fence-{node}"


@pytest.mark.parametrize(
    "node", ["n" * 253, f"{'a' * 215}.{'b' * 37}", "Node_7", "machine/default/worker-0", "n" * 226 + "." * 20]
)
def test_a_name_that_no_object_could_have_is_cut_to_one(node: str) -> None:
    name = node_fence_name(node)
    assert OBJECT_NAME.fullmatch(name)
    assert len(name) <= LONGEST_NAME


def test_every_step_and_state_has_the_seeds_spelling() -> None:
    assert set(STEPS) == {step.value for step in FenceStep}
    of_other_kinds = {Phase.RUNNING_PRESERVED, Phase.FAILED_PRESERVED, Phase.TERMINATING}
    assert set(STATUSES) == set(Phase) - of_other_kinds
    assert set(STATUSES.values()) == {"New", "Running", "Done", "Final", "Error"}
    assert STEPS[FenceStep.POWER_MANAGEMENT] == "Power-Management"


def test_retries_are_tries_after_the_first() -> None:
    assert [retries(status(try_number=number)) for number in (0, 1, 2, 3)] == [0, 0, 1, 2]


def test_what_an_episode_is_doing_makes_no_new_state_but_a_persons_problem_does() -> None:
    assert transition(status()) == transition(status(doing="something else", problem="the BMC says on"))
    parked = status(Phase.NEEDS_HUMAN, problem="the BMC says on")
    assert transition(parked) != transition(replace(parked, problem="no permit"))


@pytest.mark.parametrize(
    ("entry", "job"),
    [
        (line("power-off", "sent"), "power-off-abc"),
        (line("power-off", "unclear"), "power-off-abc"),
        (line("fc-off", "ok"), "fc-off-abc"),
        (line("power-on", "needless"), ""),
        (line("read-power", "failed"), ""),
        (line("last-look", "go"), ""),
        (line("power-management", "failed"), ""),
        (line("free-workloads", "ok"), ""),
    ],
)
def test_a_job_is_a_method_that_ran(entry: RecordEntry, job: str) -> None:
    assert job_of(entry, "abc", 0) == job


def test_the_second_run_of_a_method_is_numbered() -> None:
    assert job_of(line("power-off", "sent"), "abc", 1) == "power-off-abc-2"


def test_the_first_state_of_a_step_starts_it() -> None:
    assert told(None, status(Phase.NEW, FenceStep.ISOLATION)) == ["StepStarted"]
    assert told(status(Phase.RUNNING, FenceStep.ISOLATION), status()) == ["StepStarted"]


def test_waiting_for_a_permit_starts_nothing() -> None:
    assert told(None, status(Phase.QUEUED, FenceStep.ISOLATION)) == []


def test_another_try_names_the_failure_before_it() -> None:
    [event] = events_between(status(), status(try_number=2), "try 1 of 3: no answer")
    assert (event.reason, event.warning) == (EventReason.STEP_RETRIED, True)
    assert event.message == "power-management: try 2 after try 1 of 3: no answer"


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        (status(Phase.NEW, FenceStep.ISOLATION), status(Phase.RUNNING, FenceStep.ISOLATION), ["StepSucceeded"]),
        (status(Phase.RUNNING), status(Phase.DONE), ["StepSucceeded"]),
        (status(Phase.RUNNING), status(Phase.ERROR), ["StepFailed"]),
        (status(Phase.DONE, FenceStep.RECOVERY), status(Phase.FINAL, FenceStep.RECOVERY), ["StepSucceeded"]),
        (status(Phase.ERROR), status(Phase.NEEDS_HUMAN), []),
        (status(Phase.NEEDS_HUMAN, FenceStep.ISOLATION), status(Phase.RUNNING, FenceStep.ISOLATION), []),
        (status(Phase.NEEDS_HUMAN), status(Phase.FINAL), []),
    ],
)
def test_a_state_says_how_the_step_went(before: EpisodeStatus, after: EpisodeStatus, reasons: list[str]) -> None:
    """A step that a person let go on has not succeeded by that, and an end without recovery is none of it."""
    assert told(before, after) == reasons


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (line("power-management", "skipped", "61 % of zone a are unresponsive"), EventReason.STEP_SKIPPED),
        (line("restart", "begins", "1 of 1: off is not proven"), EventReason.FLOW_RESTARTED),
        (line("free-workloads", "ok", "3 pods freed"), EventReason.WORKLOADS_FREED),
        (line("free-workloads", "dropped", "the need was gone"), EventReason.WORKLOADS_NOT_FREED),
    ],
)
def test_a_line_of_the_record_that_is_worth_an_event(entry: RecordEntry, reason: EventReason) -> None:
    event = event_of(entry)
    assert event is not None
    assert event.reason is reason
    assert event.message.endswith(entry.detail)


@pytest.mark.parametrize("entry", [line("last-look", "go"), line("phase", "skipped"), line("power-off", "sent")])
def test_most_lines_are_not(entry: RecordEntry) -> None:
    assert event_of(entry) is None


def test_every_reason_is_spelled_as_those_of_kubernetes_are() -> None:
    """Alerts and scripts select by them. That each is in this table is for the type checker: `tell` takes nothing else."""
    assert all(re.fullmatch(r"([A-Z][a-z]+)+", reason.value) for reason in EventReason)
    assert set(EventReason) > WARNINGS


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("StepStarted isolation: sick, NodeIsolated sick, StepSucceeded isolation", "NodeIsolated"),
        ("StepStarted isolation: sick, StepSucceeded isolation", "StepSucceeded"),
        ("NodeIsolated sick", "NodeIsolated"),
        ("StepStarted power-management: sick, NodePoweredOff off is proven", "NodePoweredOff"),
        ("StepStarted power-management: sick, StepRetried power-management: try 2", "StepStarted StepRetried"),
        ("StepSucceeded power-management, StepStarted recovery: sick", "StepSucceeded StepStarted"),
        ("StepStarted recovery: sick, EpisodeEnded recovered, StepSucceeded recovery", "EpisodeEnded"),
        (
            "StepStarted isolation: a, StepSucceeded isolation, StepStarted power-management: a, StepFailed power-management",
            "StepSucceeded StepStarted StepFailed",
        ),
    ],
)
def test_of_one_moment_is_told_what_came_of_it(lines: str, kept: str) -> None:
    events = [EpisodeEvent(reason=EventReason(each.split()[0]), message=each.partition(" ")[2]) for each in lines.split(", ")]
    assert [event.reason for event in without_repetition(events)] == kept.split()
