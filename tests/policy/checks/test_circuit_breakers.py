"""The circuit breaker of a check (S17): the shipped systems' numbers, and the sentence people read."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from policy.checks.circuit_breakers import Circumstances, Counts, OpenReason, circuit_breaker
from policy.checks.health_check import HealthCheck, Storm, advance, over, stricter
from policy.dialects import parse
from policy.scan.ledger import Ledger
from tests.policy.builders import NOW, a_check, a_node, ago, check_object, ledger_of


def test_more_allowed_failures_than_nodes_is_an_error_in_medik8s_not_a_free_pass() -> None:
    found = circuit_breaker(a_check(minHealthy=None, maxUnhealthy=12), Counts(healthy=10))
    assert (found.allowed, found.reason) == (False, OpenReason.INVALID_THRESHOLD)
    assert found.message == "maxUnhealthy is greater than the number of selected nodes: 12 of 10"


def test_a_check_without_any_threshold_never_acts() -> None:
    assert not circuit_breaker(replace(a_check(), min_healthy=None), Counts(healthy=10)).allowed


# The storm of a health check (S17): after a breach, all must have been well for a while before anybody is acted on again.

COOLDOWN = timedelta(seconds=60)
WELL_AGAIN = Storm(active=ago(300), cooling=ago(30))


@pytest.mark.parametrize(
    ("before", "breached", "after"),
    [
        (Storm(), False, Storm()),
        (Storm(), True, Storm(active=NOW)),
        (Storm(active=ago(300)), True, Storm(active=ago(300))),
        (Storm(active=ago(300)), False, Storm(active=ago(300), cooling=NOW)),
        (WELL_AGAIN, False, WELL_AGAIN),
        (WELL_AGAIN, True, Storm(active=ago(300))),
        (Storm(active=ago(300), cooling=ago(60)), False, Storm(active=ago(300), cooling=ago(60))),
        (Storm(active=ago(300), cooling=ago(61)), False, Storm()),
    ],
)
def test_a_storm_begins_with_a_breach_and_ends_once_all_has_been_well_for_the_cooldown(
    before: Storm, *, breached: bool, after: Storm
) -> None:
    """The moments are whole seconds, so the cooldown has certainly passed only a second after its end."""
    assert advance(before, COOLDOWN, breached=breached, now=NOW) == after


def test_without_a_cooldown_there_are_no_storms() -> None:
    assert advance(WELL_AGAIN, None, breached=True, now=NOW) == Storm()
    assert over(WELL_AGAIN, None) is None


def stormy(**spec: object) -> HealthCheck:
    return a_check(stormCooldownDuration="60s", **spec)


def watched(check: HealthCheck, *, sick: int, of: int = 4) -> Ledger:
    return ledger_of(check, *(a_node(f"n{number}", "Unknown" if number < sick else "True", 60) for number in range(of)))


def test_after_a_breach_no_node_is_a_candidate_before_the_cooldown_is_over() -> None:
    """S17."""
    ledger = watched(stormy(), sick=3)
    assert ledger.report_parts(NOW).checks[0].reason == OpenReason.TOO_MANY_UNHEALTHY
    later = NOW + timedelta(seconds=10)
    for number in range(2):
        ledger.put_node(a_node(f"n{number}", "True", 0), later)
    parts = ledger.report_parts(later)
    assert (parts.checks[0].reason, parts.candidates) == (OpenReason.STORM, ())
    assert ledger.next_due == later + COOLDOWN + timedelta(seconds=1)
    parts = ledger.report_parts(later + COOLDOWN)
    assert parts.checks[0].reason == OpenReason.STORM
    parts = ledger.report_parts(later + COOLDOWN + timedelta(seconds=1))
    assert parts.checks[0].allowed
    assert [candidate.node for candidate in parts.candidates] == ["n2"]


@pytest.mark.parametrize(
    ("known", "told", "kept"),
    [
        (Storm(), Storm(active=NOW), Storm(active=NOW)),
        (Storm(active=NOW), Storm(), Storm(active=NOW)),
        (Storm(active=ago(60)), Storm(active=ago(60), cooling=ago(10)), Storm(active=ago(60))),
        (Storm(active=ago(60), cooling=ago(5)), Storm(active=ago(90), cooling=ago(10)), Storm(active=ago(90), cooling=ago(5))),
    ],
)
def test_of_two_accounts_of_a_storm_the_stricter_counts(known: Storm, told: Storm, kept: Storm) -> None:
    assert stricter(known, told) == stricter(told, known) == kept


def test_the_echo_of_a_status_does_not_take_back_a_breach_that_came_after_it() -> None:
    """S17: the status that says that all is well again is on its way while the next node falls ill."""
    written = check_object(stormCooldownDuration="60s")
    ledger = watched(parse(written), sick=3)
    ledger.report_parts(NOW)

    def see(sick: int, seconds: float) -> None:
        for number in range(4):
            ledger.put_node(a_node(f"n{number}", "Unknown" if number < sick else "True", 60), NOW + timedelta(seconds=seconds))
        ledger.advance(NOW + timedelta(seconds=seconds))

    see(sick=1, seconds=10)
    see(sick=3, seconds=12)
    told = [
        {"type": "StormActive", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"},
        {"type": "StormCooldownActive", "status": "True", "lastTransitionTime": "2026-03-01T12:00:10Z"},
    ]
    ledger.put_check(parse(written | {"status": {"conditions": told}}))
    see(sick=1, seconds=13)
    assert ledger.report_parts(NOW + timedelta(seconds=71)).candidates == ()
    assert ledger.report_parts(NOW + timedelta(seconds=74)).candidates


def test_a_cooldown_does_not_run_out_while_nothing_is_heard_and_begins_anew_afterwards() -> None:
    """S17, S18: that all has been well for the cooldown was not seen by anybody."""
    ledger = watched(stormy(minHealthy=2), sick=2, of=3)
    ledger.advance(NOW)
    ledger.put_node(a_node("n1"), NOW)
    ledger.advance(NOW)
    ledger.blind()
    assert ledger.next_due is None, "nothing that would have to be looked at by then"
    later = NOW + timedelta(seconds=600)
    before = ledger.report_parts(NOW)
    assert before.checks[0].storm_cooling == NOW
    assert ledger.report_parts(later).checks == before.checks, "blindness alone is no news"
    ledger.sees(later)
    parts = ledger.report_parts(later)
    assert (parts.checks[0].reason, parts.checks[0].storm_cooling) == (OpenReason.STORM, later)
    assert ledger.next_due == later + timedelta(seconds=61)
    ledger.sees(later + timedelta(seconds=30))
    parts = ledger.report_parts(later + timedelta(seconds=61))
    assert (parts.checks[0].reason, [each.node for each in parts.candidates]) == ("", ["n0"])


def test_a_breach_that_is_still_there_when_all_is_heard_again_is_the_same_storm() -> None:
    ledger, later = watched(stormy(minHealthy=2), sick=2, of=3), NOW + timedelta(seconds=600)
    ledger.advance(NOW)
    ledger.blind()
    ledger.sees(later)
    check = ledger.report_parts(later).checks[0]
    assert (check.storm_active, check.storm_cooling) == (NOW, None)


def test_the_sentence_says_since_when_and_until_when() -> None:
    found = circuit_breaker(stormy(), Counts(healthy=4), Circumstances(storm=WELL_AGAIN))
    assert found.message == (
        "a storm since 2026-03-01T11:55:00Z; well since 2026-03-01T11:59:30Z, acting again from 2026-03-01T12:00:31Z"
    )
