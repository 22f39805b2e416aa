"""What a replacement inherits, and when its turn comes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.checks.health_check import (
    AUTOSCALER_PATIENCE,
    BACKOFF_ANNOTATION,
    BACKOFF_LIMIT_ANNOTATION,
    MAX_RETRY_ANNOTATION,
    MIN_HEALTHY_PERIOD_ANNOTATION,
    RETRY_PERIOD_ANNOTATION,
    HealthCheck,
    RetryBackoff,
    RetryRules,
    read_backoff,
    read_rules,
    strictest,
)
from policy.checks.verdict import JudgedTarget
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.remediation.memory import (
    LAST_REMEDIATION_ANNOTATION,
    MOST_FAILED,
    REMEDIATION_FOR_ANNOTATION,
    LastRemediation,
    memory_of,
    next_turn,
    read_memory,
    turn_of,
    written_memory,
)
from policy.values.errors import PolicyError
from policy.values.object_refs import Dialect
from policy.values.times import written
from tests.policy.builders import NOW, a_machine, a_node, ago, openshift

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
LAST = LastRemediation(of="M1", at=NOW, incident="i-1")
SUBJECT = "Machine/default/M1-1"


def test_the_sequence_of_the_proposal() -> None:
    """M1 is replaced by M1-1, which is remediation-retry #1 when it fails, M1-2 is #2; five are allowed, two minutes apart."""
    rules = RetryRules(max_retry=5, retry_period=2 * MINUTE, min_healthy_period=2 * HOUR)
    last, now, said = LAST, NOW, list[str]()
    for number in range(1, 6):
        turn = next_turn(last, rules, now + SECOND)
        assert (turn.retry, turn.not_before, turn.exhausted) == (number, now + 2 * MINUTE, "")
        said.append(turn.why)
        now += 2 * MINUTE
        turn = next_turn(last, rules, now)
        assert (turn.retry, turn.not_before) == (number, None)
        last = LastRemediation(of=f"M1-{number}", at=now, retry=turn.retry)
    assert (
        said[1]
        == "retry 2 of 5, not before 2026-03-01T12:04:00Z: M1-1 was remediated at 2026-03-01T12:02:00Z, and the retryPeriod is 2m"
    )
    turn = next_turn(last, rules, now + 2 * MINUTE)
    assert (turn.retry, turn.not_before) == (5, None)
    assert turn.why == "M1-5 was remediated at 2026-03-01T12:10:00Z; from 2026-03-01T14:10:00Z on it would be a new story"
    assert turn.exhausted == "it was remediated 6 times and did not stay well for 2h: maxRetry is 5, last was M1-5"


def test_without_a_limit_it_goes_on_at_once_and_for_ever() -> None:
    last = replace(LAST, retry=9999)
    assert next_turn(last, RetryRules(), NOW) == next_turn(last, RetryRules(), NOW + HOUR - SECOND)
    turn = next_turn(last, RetryRules(), NOW)
    assert (turn.retry, turn.not_before, turn.exhausted) == (10_000, None, "")


def test_who_was_well_for_an_hour_begins_a_new_sequence() -> None:
    """At exactly an hour it is over; what failed before is forgotten with it."""
    last, rules = replace(LAST, retry=3, failed=("fence",)), RetryRules(max_retry=3)
    before, after = next_turn(last, rules, NOW + HOUR - SECOND), next_turn(last, rules, NOW + HOUR)
    assert (bool(before.exhausted), before.failed) == (True, ("fence",))
    assert (after.retry, after.exhausted, after.failed) == (0, "", ())


def test_a_backoff_is_waited_out_also_where_everything_is_forgotten_at_once() -> None:
    """The failing MachineSet of the autoscaler's scenarios: nobody sets a loop going by a short minHealthyPeriod."""
    rules = RetryRules(min_healthy_period=timedelta(0), backoff=RetryBackoff())
    turn = next_turn(LAST, rules, NOW + SECOND)
    assert (turn.retry, turn.not_before) == (0, NOW + 30 * SECOND)
    assert turn.why == "not before 2026-03-01T12:00:30Z: M1 was remediated at 2026-03-01T12:00:00Z, and the backoff is 30s"
    assert next_turn(LAST, rules, NOW + 30 * SECOND).not_before is None


def test_a_backoff_doubles_up_to_its_limit() -> None:
    pauses = [RetryBackoff().before(retry) / SECOND for retry in range(1, 9)]
    assert pauses == [30, 60, 120, 240, 480, 600, 600, 600]
    assert RetryBackoff().before(10**6) == 10 * MINUTE
    assert RetryBackoff(base=HOUR).before(1) == 10 * MINUTE
    microsecond = timedelta(microseconds=1)
    assert RetryBackoff(base=2 * microsecond, limit=3 * microsecond).before(2) == 3 * microsecond


periods = st.integers(0, 7200).map(lambda seconds: timedelta(seconds=seconds))
backoffs = st.none() | st.builds(RetryBackoff, base=periods, limit=periods)
rules_of_checks = st.builds(
    RetryRules, max_retry=st.none() | st.integers(0, 5), retry_period=periods, min_healthy_period=periods, backoff=backoffs
)
lasts = st.builds(
    LastRemediation,
    of=st.just("M1"),
    at=st.just(NOW),
    retry=st.integers(0, 60),
    failed=st.lists(st.sampled_from(["a", "b"])).map(tuple),
)


@given(lasts, rules_of_checks, periods)
def test_at_the_moment_that_was_named_it_is_its_turn(last: LastRemediation, rules: RetryRules, passed: timedelta) -> None:
    turn = next_turn(last, rules, NOW + passed)
    if turn.not_before is not None:
        assert turn.not_before > NOW + passed
        assert turn.why
        then = next_turn(last, rules, turn.not_before)
        assert then.not_before is None
        assert not then.exhausted


@given(lasts, st.lists(rules_of_checks, min_size=1, max_size=4), periods)
def test_overlapping_checks_are_all_obeyed(last: LastRemediation, rules: list[RetryRules], passed: timedelta) -> None:
    """Whatever one of them forbids for now is forbidden by all of them together, as long as none has forgotten the last one."""
    now = NOW + passed
    together = next_turn(last, strictest(rules), now)
    for each in rules:
        alone = next_turn(last, each, now)
        if alone.exhausted:
            assert together.exhausted
        elif alone.not_before is not None and not together.exhausted:
            assert together.not_before is not None
            assert together.not_before >= alone.not_before


def test_no_rules_are_those_by_default() -> None:
    assert strictest(()) == RetryRules()
    assert strictest([RetryRules(), RetryRules(max_retry=2), RetryRules(max_retry=5)]) == RetryRules(max_retry=2)


@given(lasts)
def test_what_is_written_is_read(last: LastRemediation) -> None:
    assert read_memory(written_memory(replace(last, incident="i-7"))) == replace(
        last, incident="i-7", failed=last.failed[-MOST_FAILED:]
    )


def test_the_annotation_has_the_keys_of_cluster_api() -> None:
    assert json.loads(written_memory(replace(LAST, retry=2, failed=("fence",)))) == {
        "machine": "M1",
        "timestamp": "2026-03-01T12:00:00Z",
        "retryCount": 2,
        "failed": ["fence"],
        "incident": "i-1",
    }


def test_the_memory_of_a_kubeadm_control_plane_is_read_too() -> None:
    theirs = f'{{"machine":"m1","timestamp":"{written(NOW + MINUTE)}","retryCount":1}}'
    annotations = {REMEDIATION_FOR_ANNOTATION: theirs}
    assert memory_of({}, subject=SUBJECT) is None
    assert memory_of(annotations, subject=SUBJECT) == LastRemediation(of="m1", at=NOW + MINUTE, retry=1)
    ours = {LAST_REMEDIATION_ANNOTATION: written_memory(LAST)}
    assert memory_of(annotations | ours, subject=SUBJECT) == LastRemediation(of="m1", at=NOW + MINUTE, retry=1)
    newer = {LAST_REMEDIATION_ANNOTATION: written_memory(replace(LAST, at=NOW + HOUR))}
    assert memory_of(annotations | newer, subject=SUBJECT) == replace(LAST, at=NOW + HOUR)


GOOD: dict[str, object] = {"machine": "M1", "timestamp": "2026-03-01T12:00:00Z", "retryCount": 1}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "JSON"),
        ("{" + " " * 30_000 + "}", "an object"),
        (json.dumps(GOOD | {"machine": None}), "machine to be a name"),
        (json.dumps(GOOD | {"machine": "x" * 501}), "machine to be a name"),
        (json.dumps(GOOD | {"timestamp": "yesterday"}), "timestamp to be a moment"),
        (json.dumps(GOOD | {"retryCount": -1}), "retryCount to be a whole number"),
        (json.dumps(GOOD | {"retryCount": 10**30}), "retryCount to be a whole number"),
        (json.dumps(GOOD | {"failed": [1]}), "failed to be a list"),
        (json.dumps(GOOD | {"failed": ["x"] * 51}), "failed to be a list"),
        (json.dumps(GOOD | {"incident": 7}), "incident to be a name"),
    ],
)
def test_a_memory_that_cannot_be_read_is_never_taken_for_none(text: str, expected: str) -> None:
    """S19: whoever spoils the annotation does not begin a new sequence by it."""
    with pytest.raises(PolicyError) as refused:
        memory_of({LAST_REMEDIATION_ANNOTATION: text}, subject=SUBJECT)
    assert refused.value.subject == SUBJECT
    assert LAST_REMEDIATION_ANNOTATION in refused.value.field
    assert expected in refused.value.problem


@given(
    st.text()
    | st.dictionaries(
        st.sampled_from([*GOOD, "failed", "incident"]),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5),
    ).map(json.dumps)
)
def test_nothing_that_anybody_writes_is_more_than_refused(text: str) -> None:
    try:
        last = read_memory(text)
    except PolicyError:
        return
    assert next_turn(last, RetryRules(backoff=RetryBackoff()), NOW).retry >= 0


def test_rules_are_set_by_annotations() -> None:
    annotations = {
        MAX_RETRY_ANNOTATION: "5",
        RETRY_PERIOD_ANNOTATION: "2m",
        MIN_HEALTHY_PERIOD_ANNOTATION: "2h",
        BACKOFF_ANNOTATION: "exponential",
        BACKOFF_LIMIT_ANNOTATION: "5m",
    }
    wanted = RetryRules(max_retry=5, retry_period=2 * MINUTE, min_healthy_period=2 * HOUR, backoff=RetryBackoff(limit=5 * MINUTE))
    assert read_rules(annotations, "NodeHealthCheck/w", RetryRules()) == wanted
    assert read_rules({}, "NodeHealthCheck/w", wanted) == wanted
    assert read_rules({BACKOFF_ANNOTATION: "none"}, "NodeHealthCheck/w", wanted) == replace(wanted, backoff=None)
    limited = read_rules({BACKOFF_LIMIT_ANNOTATION: "1h"}, "NodeHealthCheck/w", wanted)
    assert limited.backoff == RetryBackoff(limit=HOUR)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({MAX_RETRY_ANNOTATION: "-1"}, "a whole number"),
        ({MAX_RETRY_ANNOTATION: "9" * 5000}, "a whole number"),
        ({RETRY_PERIOD_ANNOTATION: "2"}, "duration"),
        ({RETRY_PERIOD_ANNOTATION: "1s" * 1000}, "duration"),
        ({MIN_HEALTHY_PERIOD_ANNOTATION: "9000h"}, "duration"),
        ({BACKOFF_ANNOTATION: "linear"}, "exponential or none"),
        ({BACKOFF_ANNOTATION: "exponential", BACKOFF_LIMIT_ANNOTATION: "0s"}, "duration"),
        ({BACKOFF_LIMIT_ANNOTATION: "5m"}, "set nodewarden.io/backoff to exponential"),
        ({BACKOFF_ANNOTATION: "none", BACKOFF_LIMIT_ANNOTATION: "5m"}, "expected none without a backoff"),
    ],
)
def test_an_annotation_that_cannot_be_used_is_refused_by_name(annotations: dict[str, str], expected: str) -> None:
    with pytest.raises(PolicyError) as refused:
        read_rules(annotations, "NodeHealthCheck/w", RetryRules())
    assert refused.value.subject == "NodeHealthCheck/w"
    assert refused.value.field.removeprefix("metadata.annotations.") in annotations
    assert expected in refused.value.problem


def test_the_backoff_of_the_proposal_is_read_where_a_spec_has_it() -> None:
    assert read_backoff({"type": "exponential", "limit": "20m"}, "NodeHealthCheck/w") == RetryBackoff(limit=20 * MINUTE)
    assert read_backoff({"type": "exponential"}, "NodeHealthCheck/w") == RetryBackoff()
    assert read_backoff(None, "NodeHealthCheck/w") is None


def test_the_longest_memory_that_is_written_can_be_read() -> None:
    """Of more failures than anybody has steps, the last ones are kept."""
    names = tuple(f"{number}-{'x' * 490}" for number in range(2 * MOST_FAILED))
    assert read_memory(written_memory(replace(LAST, failed=names))).failed == names[MOST_FAILED:]


# What a target's past means for its next remediation.

OPENSHIFT = Dialect.OPENSHIFT
CHECK = openshift("workers")
AT_ONCE = replace(CHECK, retry=RetryRules(), autoscaler_patience=timedelta(0))


def remembering(seconds: float, retry: int = 0, failed: tuple[str, ...] = ()) -> dict[str, str]:
    return {LAST_REMEDIATION_ANNOTATION: written_memory(LastRemediation(of="m0", at=ago(seconds), retry=retry, failed=failed))}


def target(machine: MachineView | None = None, node: NodeView | None = None) -> JudgedTarget:
    return JudgedTarget("t", machine=machine, node=node)


def never_joined(age: float, memory: dict[str, str] | None = None, **fields: object) -> JudgedTarget:
    return target(a_machine(dialect=OPENSHIFT, node_name="", created=ago(age), annotations=memory or {}, **fields))


def due_in(found: JudgedTarget, *checks: HealthCheck) -> float:
    """Seconds until its next remediation may begin; 0 for at once."""
    moment = turn_of(found, checks or (CHECK,), NOW).not_before
    return (moment - NOW).total_seconds() if moment is not None else 0.0


def test_what_was_never_remediated_is_so_at_once() -> None:
    assert due_in(never_joined(5)) == 0
    assert due_in(target(node=a_node())) == 0


def test_a_successor_that_never_came_to_be_a_node_is_left_to_the_autoscaler_first() -> None:
    """Seed 000: whoever replaces it before 15 minutes are over starts the autoscaler's clock anew."""
    found = never_joined(60, remembering(70))
    assert due_in(found) == AUTOSCALER_PATIENCE.total_seconds() - 60
    assert "autoscaler" in turn_of(found, (CHECK,), NOW).why
    assert due_in(never_joined(AUTOSCALER_PATIENCE.total_seconds(), remembering(1000))) == 0
    assert due_in(never_joined(60, remembering(70)), replace(CHECK, autoscaler_patience=timedelta(0))) == 0


def test_it_backs_off_by_default_and_not_where_that_is_set() -> None:
    found = never_joined(60, remembering(20, retry=2))
    impatient = replace(CHECK, autoscaler_patience=timedelta(0))
    assert due_in(found, impatient) == RetryBackoff().before(3).total_seconds() - 20
    assert due_in(found, AT_ONCE) == 0


def test_a_machine_that_had_a_node_is_remediated_again_at_once_by_default() -> None:
    """Seed 003: retryPeriod unset."""
    found = target(a_machine(dialect=OPENSHIFT, annotations=remembering(20, retry=4)))
    turn = turn_of(found, (CHECK,), NOW)
    assert (turn.retry, turn.not_before, turn.exhausted) == (5, None, "")


def test_the_longest_delay_and_the_smallest_limit_of_all_checks_win() -> None:
    found = target(a_machine(dialect=OPENSHIFT, annotations=remembering(20, retry=1)))
    short = replace(AT_ONCE, retry=RetryRules(retry_period=timedelta(seconds=60)))
    long = replace(AT_ONCE, retry=RetryRules(backoff=RetryBackoff(base=timedelta(minutes=5))))
    assert due_in(found, short, long) == 600 - 20
    limited = replace(AT_ONCE, retry=RetryRules(max_retry=1))
    assert turn_of(found, (long, limited), NOW).exhausted


def test_of_machine_and_node_the_later_one_counts() -> None:
    both = target(
        a_machine(dialect=OPENSHIFT, annotations=remembering(500, retry=1)), a_node("n1", annotations=remembering(100, retry=2))
    )
    assert turn_of(both, (CHECK,), NOW).retry == 3


@pytest.mark.parametrize("retry", [0, 7])
def test_a_kubeadm_control_plane_remembers_by_itself(retry: int) -> None:
    """Its own remediationStrategy is carried out by it, and never twice."""
    machine = a_machine(annotations=remembering(1, retry), controller="KubeadmControlPlane/cp", node_name="")
    limited = replace(CHECK, retry=RetryRules(max_retry=0, retry_period=timedelta(hours=1)))
    turn = turn_of(target(machine), (limited,), NOW)
    assert (turn.retry, turn.not_before, turn.exhausted) == (0, None, "")
