"""What helps: tries, successes and times of each step, by the records of ended episodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from policy.episode.messages import Kind, Outcome, RecordEntry
from policy.history.offenders import MOST_NAMES, OffenderRules, Repair, hardware_of, machines, offence
from policy.history.step_outcomes import BY_A_PERSON, EndedRepair, outcomes
from policy.values.times import quantile

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


# Machines that are repaired again and again, by their hardware.

UUID = "4c4c4544-0042-3510-8052-b7c04f565931"
ASKED_AT = datetime(2026, 11, 28, 3, 12, tzinfo=UTC)


def repair(node: str = "node-7", *, hardware: str = UUID, days_ago: int = 1, reason: str = "ReadyUnknown") -> Repair:
    return Repair(hardware=hardware, node=node, kind="Fencing", reason=reason, started=ASKED_AT - timedelta(days=days_ago))


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (UUID, UUID),
        (UUID.upper(), UUID),
        (UUID.replace("-", ""), UUID),
        ("", ""),
        ("sys-7", ""),
        ("00000000-0000-0000-0000-000000000000", ""),
        ("03000200-0400-0500-0006-000700080009", ""),
        (f"{UUID}' OR Node = 'x", ""),
        (f"{UUID[:-1]}\x1b", ""),
        (f"{UUID[:-1]}٣", ""),
        (f"{UUID}{UUID}", ""),
    ],
    ids=[
        "as it is",
        "capitals",
        "machine-id",
        "none",
        "no UUID",
        "zeros",
        "of a board",
        "a query",
        "an escape",
        "a digit",
        "long",
    ],
)
def test_s41_a_kubelets_word_becomes_one_spelling_of_a_uuid_or_nothing(said: str, known: str) -> None:
    assert hardware_of(said) == known


def test_it_offends_from_the_limit_on_the_repair_under_way_included() -> None:
    rules = OffenderRules(limit=3)
    assert offence(UUID, "node-7", [repair()], rules) == ""
    assert offence(UUID, "node-9", [repair(), repair()], rules) == (
        f"this machine (system UUID {UUID}) was repaired 3 times within 28 days: as node-7 2 times, node-9 1 time; "
        "`nodewarden offenders` lists its repairs"
    )


def test_a_kubelet_that_takes_many_names_makes_no_long_sentence() -> None:
    names = [repair(f"node-{number}") for number in range(50)]
    said = offence(UUID, "node-0", names, OffenderRules(window=timedelta(hours=36)))
    assert f"and {50 - MOST_NAMES} more names" in said
    assert "within 36h" in said
    assert len(said) < 300


def test_a_machine_that_was_renamed_is_one_and_the_latest_name_comes_first() -> None:
    other = "7d2f0a31-1111-4222-8333-944455556666"
    found = machines(
        [
            repair("node-7", days_ago=20, reason="DiskFailed"),
            repair("gpu-1", days_ago=2),
            repair("node-7", days_ago=9),
            repair("node-2", hardware=other, days_ago=1),
        ],
        OffenderRules(limit=3),
    )
    assert [(each.hardware, each.nodes, len(each.repairs), each.offends) for each in found] == [
        (UUID, ("gpu-1", "node-7"), 3, True),
        (other, ("node-2",), 1, False),
    ]
    assert found[0].reasons == ("ReadyUnknown", "DiskFailed")
