"""The fence configurations of the node-fencing proposal (seed 002), verbatim, and the cases of its published code that are about
configuration. `seeds/002-*.yaml` hold the proposal's YAML and nothing else; only what stands for a node is put in.
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

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
from policy.checks.verdict import Health
from policy.dialects import parse
from policy.dialects.node_fencing import parse_cluster_config, read_policies
from policy.fence.config import FenceConfig, shown_config
from policy.fence.plan_compiler import compile_config
from policy.objects.scopes import CLUSTER
from policy.scan.admission import admit
from policy.scan.view_state import view_state
from policy.values.errors import PolicyError
from policy.values.fields import parse_properties
from tests.documents import encoded
from tests.policy.builders import (
    NOW,
    PDU,
    SWITCH,
    a_cluster_config,
    a_node,
    a_policy,
    ago,
    judged,
    lines,
    node,
    read,
    report_of,
    tolerant_ledger,
)
from tests.vectors.objects import VECTORS

SEEDS = Path(__file__).with_name("seeds")
NODE = "k8s-cluster-host1.usersys.redhat.com"
EC2 = "aws:///us-east-1a/i-0123456789abcdef0"

TEMPLATES = {"fence-method-template-fc-switch-brocade": SWITCH, "fence-method-template-eaton-pdu": PDU}
"""The proposal only names them."""


def written(name: str) -> dict[str, Any]:
    """The one ConfigMap of a file, by its name, with our node put in."""
    text = (SEEDS / f"002-{name}.yaml").read_text(encoding="utf-8").replace("[NODE_NAME]", NODE)
    (found,) = yaml.safe_load(text)
    return {found["metadata"]["name"]: found["data"]}


def steps(found: FenceConfig) -> dict[str, list[str]]:
    return {step: [each["method"] for each in methods] for step, methods in encoded(shown_config(found))["steps"].items()}


DEFAULT_STEPS = {"isolation": ["mark-unschedulable"], "power-management": ["restart-instance"], "recovery": ["mark-schedulable"]}


def test_the_default_written_out_means_what_it_means_when_it_is_not_written() -> None:
    """ "Given this configuration is default, it does not have to be specified at all." Its recovery is a slip."""
    said, unsaid = read(written("default"), of=node(NODE, provider_id=EC2)), read({}, of=node(NODE, provider_id=EC2))
    assert (said.name, said.source) == (f"fence-config-{NODE}", "node")
    assert (unsaid.name, unsaid.source) == ("default", "default")
    assert steps(said) == steps(unsaid) == DEFAULT_STEPS
    assert [len(said.warnings), len(unsaid.warnings)] == [1, 0]
    assert "mark-unschedulable is taken as mark-schedulable" in said.warnings[0]
    assert said.errors == unsaid.errors == ()


def test_bare_metal_as_the_proposal_writes_it() -> None:
    found = read(written("bare-metal") | TEMPLATES, of=node(NODE))
    shown = encoded(shown_config(found))
    assert [each["method"] for each in shown.pop("order") if each["method"]] == ["fc-off", "eaton-off", "eaton-on", "fc-on"]
    assert shown == {
        "node": NODE,
        "config": f"fence-config-{NODE}",
        "source": "node",
        "steps": {
            "isolation": [method("fc-off", "fc-switch-brocade", "fence_brocade", "off", ipaddr="10.0.0.8", plug="2")],
            "power-management": [
                method("eaton-off", "eaton-pdu", "fence_eaton_snmp", "off", ip="10.0.0.9", plug="1", snmp_version="3"),
                method("eaton-on", "eaton-pdu", "fence_eaton_snmp", "on", ip="10.0.0.9", plug="1", snmp_version="3"),
            ],
            "recovery": [method("fc-on", "fc-switch-brocade", "fence_brocade", "on", ipaddr="10.0.0.8", plug="2")],
        },
        "warnings": [],
        "errors": [],
        "frees": "automatic",
    }
    assert len(compile_config(found).devices) == 1


def method(name: str, template: str, driver: str, action: str, **parameters: str) -> dict[str, Any]:
    return {
        "method": name,
        "template": f"fence-method-template-{template}",
        "driver": driver,
        "action": action,
        "parameters": parameters,
        "level": 1 if name.startswith("eaton") else 0,
    }


def test_the_configuration_of_a_type_overrides_the_default_unless_the_node_has_its_own() -> None:
    """ "overrides the default node fence configuration of all nodes with `type=compute` label unless more specific
    `fence-config-node-[NODE_NAME]` is available"."""
    (of_type,) = written("type-compute")
    lines = {"config.properties": "isolation=cordon\npower_management=restart-instance\nrecovery=uncordon"}
    own = {f"fence-config-node-{NODE}": {"config.properties": "power_management=restart-instance"}}
    compute = node(NODE, provider_id=EC2, type="compute")
    assert steps(read({of_type: lines}, of=compute)) == DEFAULT_STEPS | {"isolation": ["cordon"], "recovery": ["uncordon"]}
    assert read({of_type: lines}, of=node(NODE, provider_id=EC2, type="storage")).source == "default"
    more_specific = read({of_type: lines} | own, of=compute)
    assert (more_specific.name, more_specific.source) == (f"fence-config-node-{NODE}", "node")
    assert steps(more_specific) == {"isolation": [], "power-management": ["restart-instance"], "recovery": []}


def test_a_method_overrides_its_template() -> None:
    """N05: shipped the other way round, which switches the template's plug."""
    found = read(written("bare-metal") | TEMPLATES, of=node(NODE))
    assert "plug=1" not in PDU["template.properties"].replace("port", "plug")
    assert {each.parameters["plug"] for each in found.power_management} == {"1"}


def test_methods_are_a_sequence() -> None:
    """N06: off before on, whatever else; that the on waits for the off is `tests/workflows/test_fencing_vectors.py`."""
    objects = written("bare-metal")
    (data,) = objects.values()
    data["config.properties"] = data["config.properties"].replace("eaton-off eaton-on", "eaton-on eaton-off")
    errors = read(objects | TEMPLATES, of=node(NODE)).errors
    assert "eaton-on switches on what nothing before it has switched off" in errors[0]
    assert "eaton-off switches off what eaton-on has switched on" in errors[1]


def test_a_value_may_contain_equals_signs_and_bad_numbers_are_named() -> None:
    """N08, S7: shipped, what was no number became 0, and fencing was silently off. Here nothing of such a configuration holds: no
    node is fenced by it (`tests/policy/checks/test_fence_policies.py` has what becomes of the rest), and never by half of it."""
    vector = VECTORS["N08"]
    assert parse_properties(vector["method"], subject="s", field="f") == vector["parsed"]
    properties = lines(**vector["cluster"])
    found = read({"fence-cluster-config": {"config.properties": properties}}, of=node(NODE, provider_id=EC2))
    assert [next(key for key in vector["refused"] if key in error) for error in found.errors] == vector["refused"]
    with pytest.raises(PolicyError, match=".*".join(vector["refused"])):
        parse_cluster_config(a_cluster_config(**vector["cluster"]))


# No case of `fence.json` is forgotten: each is used by a test, which is found by the case's name.

TESTS = Path(__file__).parents[1]
USED = re.compile(r'(?:VECTORS\[|given\()"(\w+)"')


def test_every_case_is_held_by_some_test() -> None:
    used = {name for path in TESTS.rglob("test_*.py") for name in USED.findall(path.read_text(encoding="utf-8"))}
    assert set(VECTORS) - used == set()
    assert used - set(VECTORS) == set(), "a case that is not written down"


# The examples of fence policies: node-fencing's, oVirt's and Pacemaker's, through the functions that decide.
#
# `fence.json` holds the cases by the names that the comparison of those systems gave them. Where oVirt counts attempts, waits and
# agents that we do not have, the case has only the part that is ours.


def given(case: str) -> Any:
    return VECTORS[case]["given"]


def expected(case: str) -> Any:
    return VECTORS[case]["expect"]


def some_are_down(nodes: int, down: int, policies: FencePolicies) -> tuple[int, bool]:
    """The percentage that is counted, and whether the first of those that are down is fenced."""
    ledger = tolerant_ledger(a_node(f"n{number:03}", "Unknown" if number < down else "True", age=900) for number in range(nodes))
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
                synced_at=ago(case["engine_uptime"]),
                confirmed_until=NOW,
                now=NOW,
                silence_limit=timedelta(minutes=1),
                grace=window,
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
