"""What helps: tries, successes and times of each step, by the records of ended episodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from policy.episode.messages import Kind, Outcome, RecordEntry
from policy.observation.outcomes import BY_A_PERSON, EndedRepair, outcomes, quantile

NOW = datetime(2026, 11, 28, 3, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def line(minute: int, act: str, outcome: str, detail: str = "") -> RecordEntry:
    return RecordEntry(at=NOW + minute * MINUTE, step="", act=act, outcome=outcome, detail=detail)


def fencing(
    *record: RecordEntry, outcome: Outcome = Outcome.RECOVERED, cause: str = "ReadyUnknown", ends: int = 10
) -> EndedRepair:
    return EndedRepair(
        kind=Kind.FENCING, cause=cause, outcome=outcome.value, started=NOW, ended=NOW + ends * MINUTE, record=record
    )


ISOLATED = line(1, "phase", "running")
OFF = line(2, "off-proven", "ok")


def test_a_fencing_is_one_try_and_its_waiting_for_a_person_stands_apart() -> None:
    """By hand: safe after 2 minutes; 10 minutes to its end, of which 5 waited for a person."""
    waits = fencing(ISOLATED, OFF, line(3, "phase", "needs-human"), line(8, "phase", "running"))
    (found,) = outcomes("prod", NOW, [waits]).steps
    assert (found.reason, found.step, found.tries, found.succeeded) == ("ReadyUnknown", "fencing", 1, 1)
    assert (found.to_safe, found.to_service) == (2 * MINUTE, 5 * MINUTE)
    assert (found.waiting, found.waited) == (1, 5 * MINUTE)


def test_waiting_before_off_is_not_in_the_time_to_safe() -> None:
    waits = fencing(ISOLATED, line(2, "phase", "needs-human"), line(6, "phase", "running"), line(7, "off-proven", "ok"))
    (found,) = outcomes("prod", NOW, [waits]).steps
    assert (found.to_safe, found.to_service, found.waited) == (3 * MINUTE, 6 * MINUTE, 4 * MINUTE)


@pytest.mark.parametrize("outcome", [Outcome.RELEASED, Outcome.ABORTED, Outcome.FENCED_OFF])
def test_what_did_not_bring_the_node_back_was_tried_and_did_not_help(outcome: Outcome) -> None:
    (found,) = outcomes("prod", NOW, [fencing(ISOLATED, OFF, outcome=outcome)]).steps
    assert (found.tries, found.succeeded, found.to_service) == (1, 0, None)


def test_an_episode_that_ended_before_it_isolated_the_node_has_tried_nothing() -> None:
    report = outcomes("prod", NOW, [fencing(line(1, "phase", "queued")), fencing(outcome=Outcome.REFUSED)])
    assert (report.episodes, report.steps) == (2, ())


def test_each_step_of_a_ladder_is_a_try_of_its_own() -> None:
    """The reboot failed, the deletion helped: its time counts from its own beginning."""
    ladder = EndedRepair(
        kind=Kind.REMEDIATION,
        cause="",
        outcome=Outcome.REPLACED.value,
        started=NOW,
        ended=NOW + 30 * MINUTE,
        record=(
            line(1, "step", "begins", "1 of 2: reboot"),
            line(3, "off-proven", "ok"),
            line(9, "step", "failed", "reboot: the node is not back"),
            line(10, "step", "begins", "2 of 2: delete-machine"),
        ),
    )
    report = outcomes("prod", NOW, [ladder])
    found = {each.step: (each.tries, each.succeeded, each.to_safe, each.to_service) for each in report.steps}
    assert found == {"reboot": (1, 0, 2 * MINUTE, None), "delete-machine": (1, 1, None, 20 * MINUTE)}
    assert {each.reason for each in report.steps} == {BY_A_PERSON}


def test_times_are_ones_that_have_been_and_the_most_frequent_reason_comes_first() -> None:
    takes = [fencing(ISOLATED, OFF, ends=number) for number in (10, 20, 30, 40)]
    report = outcomes("prod", NOW, [fencing(ISOLATED, cause="DiskFailed"), *takes], more=True)
    assert [(each.reason, each.tries) for each in report.steps] == [("ReadyUnknown", 4), ("DiskFailed", 1)]
    assert (report.steps[0].to_service, report.steps[0].to_service_most) == (20 * MINUTE, 40 * MINUTE)
    assert report.more
    assert quantile([3 * MINUTE, MINUTE], 0.5) == MINUTE
