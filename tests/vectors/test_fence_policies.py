"""The examples of fence policies: node-fencing's, oVirt's and Pacemaker's, through the functions that decide.

`fence.json` holds the cases by the names that the comparison of those systems gave them. Where oVirt counts attempts, waits and
agents that we do not have, the case has only the part that is ours.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from policy.checks.fence_policies import (
    Attempts,
    FencePolicies,
    PowerMoment,
    StormRule,
    lease_wait,
    left_alone_until,
    quiet_left,
    still_renewed,
)
from policy.checks.verdicts import Health
from policy.dialects import parse
from policy.dialects.node_fencing import read_policies
from policy.objects.scopes import CLUSTER
from policy.scan.admission import admit
from policy.scan.readiness import view_state
from tests.policy.builders import NOW, a_node, ago, judged
from tests.policy.fencing_builders import a_cluster_config, a_policy, ledger_of, report_of
from tests.vectors.fencing import VECTORS


def given(case: str) -> Any:
    return VECTORS[case]["given"]


def expected(case: str) -> Any:
    return VECTORS[case]["expect"]


def some_are_down(nodes: int, down: int, policies: FencePolicies) -> tuple[int, bool]:
    """The percentage that is counted, and whether the first of those that are down is fenced."""
    ledger = ledger_of(a_node(f"n{number:03}", "Unknown" if number < down else "True", age=900) for number in range(nodes))
    ledger.follow(policies)
    report = report_of(ledger.report_parts(NOW))
    (cluster,) = (count for count in report.groups if count.group == CLUSTER)
    return cluster.percent, bool(admit(report, (), cap=1, now=NOW).admitted)


def test_n10_new_fencing_is_skipped_at_or_above_the_percentage() -> None:
    """S17."""
    policy = given("N10")["policy"]
    config = a_cluster_config(policies=policy["name"])
    written = a_policy(policy["name"], precentage=policy["percentage"])
    policies = read_policies(config, {f"fence-policy-{policy['name']}": written})
    allowed = [some_are_down(case["nodes"], case["not_ready"], policies)[1] for case in given("N10")["cases"]]
    assert allowed == expected("N10")["new_fencing_allowed"]


def test_o01_the_percentage_is_truncated_and_the_target_counts() -> None:
    """S17."""
    policies = FencePolicies(storms=(StormRule(name="connectivity", percentage=given("O01")["threshold"]),))
    cases = given("O01")["cases"]
    found = [some_are_down(case["hosts"], case.get("Connecting", 0) + case["NonResponsive"], policies) for case in cases]
    assert [percent for percent, _ in found] == expected("O01")["percent_truncated"]
    assert [not allowed for _, allowed in found] == expected("O01")["skip"]


def test_o02_a_host_that_renews_its_lease_is_left_alone() -> None:
    """An unreadable lease proves no silence, and keeps nobody from power fencing."""
    last_contact = ago(given("O02")["last_host_update_seconds_ago"])
    wait = lease_wait(last_contact, NOW)
    assert wait == timedelta(seconds=expected("O02")["wait_before_check_seconds"])
    looked_at = NOW + wait
    renewals = {True: looked_at - timedelta(seconds=10), False: last_contact - timedelta(seconds=10), None: None}
    found = [
        bool(still_renewed(renewals[case.get("storage_lease_renewed_by_host")], last_contact, looked_at))
        for case in given("O02")["cases"]
    ]
    assert found == expected("O02")["skipped"]


def test_o06_a_host_is_in_its_grace_until_that_is_over() -> None:
    """Ours counts time, not attempts: the case of too few attempts is not ours."""
    check = parse(a_cluster_config(grace_timeout=60))
    pairs = zip(given("O06")["grace"], expected("O06")["in_grace_for_60s_host"], strict=True)
    for case, in_grace in [pair for pair in pairs if pair[0]["failed_attempts"] > 2]:
        verdict = judged(check, a_node(ready="Unknown", age=case["since_last_update"]))
        assert (verdict.health is Health.SOON) is in_grace, case


def test_o07_nothing_is_begun_after_a_start_and_opposite_commands_keep_their_quiet() -> None:
    """S18; the window is the setting scan.start_up_grace."""
    window, quiet = (
        timedelta(seconds=given("O07")["startup_window_seconds"]),
        timedelta(seconds=given("O07")["quiet_time_seconds"]),
    )
    begun = []
    for case in given("O07")["cases"]:
        if "engine_uptime" in case:
            state = view_state(
                synced_at=ago(case["engine_uptime"]), last_heard=NOW, now=NOW, silence_limit=timedelta(minutes=1), grace=window
            )
            begun.append(not state.stale)
        else:
            last = PowerMoment(node="n", on=False, at=ago(case["manual_start_seconds_after_a_manual_stop"]))
            left = quiet_left(last, on=True, quiet_time=quiet, now=NOW)
            begun.append(not left)
            assert left == timedelta(seconds=expected("O07")["seconds_left"])
    assert begun == expected("O07")["begun"]


def test_s06_failures_are_counted_for_each_target() -> None:
    """S19: the next attempt is at most fifteen minutes later; the other target has none of it."""
    policies = FencePolicies()
    assert policies.attempts == given("S06")["fencing_max_attempts"] == expected("S06")["default"]
    until = left_alone_until(Attempts(node="n1", failed=given("S06")["failures_of_n1"], at=NOW), policies)
    assert until is not None
    assert timedelta(0) < until - NOW <= timedelta(minutes=expected("S06")["next_at_most_minutes_later"])
    assert left_alone_until(Attempts(node="n2", failed=given("S06")["failures_of_n2"], at=NOW), policies) is None
