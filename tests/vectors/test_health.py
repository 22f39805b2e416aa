"""The cases of `health.json` on health checks, as real objects through the loader and the JSON of `nodewarden evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policy.objects.nodes import EtcdGuard
from tests.vectors import objects
from tests.vectors.objects import Json, evaluated, the_check
from tests.vectors.test_remediation import HELD as HELD_BY_REMEDIATION

CASES: list[Json] = json.loads(Path(__file__).with_name("health.json").read_text(encoding="utf-8"))

UPSTREAM_COUNTS_NOTHING = {"nhc-paused", "nhc-hcp-upgrading-node"}
"""Their counters are 0/0 in the operator; ours go on counting (the case x-nhc-paused-status-zero)."""


def cases(*kinds: str) -> list[Any]:
    return [pytest.param(case["given"], case["expect"], id=case["id"]) for case in CASES if case["kind"] in kinds]


def names(check: Json, **wanted: object) -> list[str]:
    """Targets of the verdicts with these values; a callable judges."""
    return sorted(each["target"] for each in check["verdicts"] if all(each[key] == value for key, value in wanted.items()))


def soon(check: Json) -> dict[str, float]:
    return {each["target"]: each["dueInSeconds"] for each in check["verdicts"] if each["verdict"] == "soon"}


@pytest.mark.parametrize(("given", "expect"), cases("nhc_evaluate"))
def test_a_node_health_check(given: Json, expect: Json, request: pytest.FixtureRequest) -> None:
    check = the_check(objects.of_nodes(given))
    created = [each["target"] for each in check["verdicts"] if each["action"] == "create-remediation" and not each["heldBy"]]
    if request.node.callspec.id == "nhc-cp-two-unhealthy-one-at-a-time":
        assert "unhealthy-worker-node-1" in created
        assert len(created) == 2, "exactly one of the two control-plane nodes goes first"
    else:
        assert sorted(created) == expect["created"]
    assert names(check, action="delete-remediation") == expect["deleted"]
    assert soon(check) == expect["soon"]
    if request.node.callspec.id in UPSTREAM_COUNTS_NOTHING:
        assert (check["targets"], check["healthy"]) == (3, 2)
    else:
        assert (check["targets"], check["healthy"]) == (expect["observed_nodes"], expect["healthy_nodes"])
        assert names(check, verdict="unhealthy") == expect["unhealthy_nodes"]
    assert check["nextCheckSeconds"] == expect["next_check_s"]
    if "min_healthy" in expect:
        assert f"needs {expect['min_healthy']}" in check["message"]
    closed = {"min-healthy": "TooManyUnhealthy", "pause-requests": "Paused", "cluster-upgrade": "UpgradeInProgress"}
    if "skipped" in expect:
        assert (check["allowed"], check["reason"]) == (False, closed[expect["skipped"]])


ACTIONS = {
    "skip-no-controller-owner": "skip-no-owner",
    "delete-machine": "delete-machine",
    "create-remediation-cr": "create-remediation",
    "delete-remediation-cr": "delete-remediation",
}


@pytest.mark.parametrize(("given", "expect"), cases("mao_evaluate"))
def test_an_openshift_machine_health_check(given: Json, expect: Json) -> None:
    check = the_check(objects.of_openshift_machines(given))
    if expect.get("reconciled") is False:
        assert (check["paused"], check["allowed"]) == (True, False)
        assert names(check, action="none") == [each["target"] for each in check["verdicts"]]
        return
    _of_machines(check, expect)
    wanted = sorted((target, ACTIONS[action]) for target, action in expect["actions"])
    assert sorted((each["target"], each["action"]) for each in check["verdicts"] if each["action"] != "none") == wanted


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize(("given", "expect"), cases("capi_evaluate"))
def test_a_cluster_api_machine_health_check(given: Json, expect: Json, version: str) -> None:
    check = the_check(objects.of_cluster_api_machines(given, version=version))
    _of_machines(check, expect)
    assert names(check, action="request-owner-remediation") == expect["owner_remediated"]
    reasons = {each["target"]: each["reason"] for each in check["verdicts"] if each["verdict"] == "unhealthy"}
    assert reasons == expect["reasons"]
    if "condition_message" in expect:
        assert expect["condition_message"] in {check["message"], *(each["message"] for each in check["verdicts"])}


def _of_machines(check: Json, expect: Json) -> None:
    assert (check["targets"], check["healthy"]) == (expect["expected_machines"], expect["current_healthy"])
    assert check["unhealthy"] == expect["unhealthy_count"]
    assert (check["allowed"], check["remediationsAllowed"]) == (expect["allowed"], expect["remediations_allowed"])
    assert names(check, verdict="unhealthy") == expect["needs_remediation"]
    assert names(check, verdict="healthy") == expect["healthy"]
    assert soon(check) == expect["soon"]
    assert check["nextCheckSeconds"] == expect["next_check_s"]


def group(total: int, healthy: int) -> list[Json]:
    return [
        {
            "name": f"n{index}",
            "conditions": [{"type": "Ready", "status": "True" if index < healthy else "Unknown", "age_s": 1000}],
        }
        for index in range(total)
    ]


LISTED = [{"type": "Ready", "status": "Unknown", "timeout_s": 300}]


def of_a_group(given: Json) -> list[Json]:
    """A check with this threshold and as many targets as the case says."""
    total = given["total"]
    targets = group(total, given.get("healthy", total))
    if given["system"] == "nhc":
        return [objects.node_health_check(given | {"unhealthy_conditions": LISTED}), *map(objects.node, targets)]
    machine = {"labels": {"pool": "a"}, "controller_owner": True, "cluster": "test-cluster", "created_age_s": 10000}
    machines = [machine | {"name": node["name"], "node_ref": node["name"], "node": node} for node in targets]
    spec = {"selector": {"matchLabels": {"pool": "a"}}, **given}
    if given["system"] == "mao":
        return objects.of_openshift_machines(
            {"spec": spec | {"unhealthy_conditions": LISTED}, "annotations": {}, "machines": machines}
        )
    cluster = {"control_plane_initialized_age_s": 9000, "infrastructure_ready_age_s": 9000, "paused": False}
    return objects.of_cluster_api_machines(
        {"spec": spec | {"unhealthy_node_conditions": LISTED}, "cluster": cluster, "machines": machines}
    )


@pytest.mark.parametrize(("given", "expect"), cases("threshold"))
def test_a_threshold(given: Json, expect: Json) -> None:
    answer = evaluated(of_a_group(given))
    (check,) = answer["checks"]
    if "error" in expect:
        assert check["allowed"] is False
        about = expect["error"].partition(":")[0].replace(" is negative", " must not be negative")
        assert about in check["message"]
        return
    assert answer["errors"] == []
    for field, name in (("allowed", "allowed"), ("remediations_allowed", "remediationsAllowed")):
        if field in expect:
            assert check[name] == expect[field]
    if "min_healthy" in expect:
        assert f"needs {expect['min_healthy']}" in check["message"]
    if expect.get("max_unhealthy") is not None and check["allowed"]:
        assert f"allows {expect['max_unhealthy']}" in check["message"]


@pytest.mark.parametrize(("given", "expect"), cases("conditions"))
def test_conditions_of_a_node(given: Json, expect: Json) -> None:
    spec = {"unhealthy_conditions": given["unhealthy_conditions"], "min_healthy": 0}
    check = the_check([objects.node_health_check(spec), objects.node(given["node"])])
    (verdict,) = check["verdicts"]
    assert (verdict["verdict"] == "unhealthy") is expect["unhealthy"]
    assert check["nextCheckSeconds"] == expect["next_check_s"]


def written(given: Json) -> list[Json]:
    """The object of a `validation` case, twice where it is about a change."""
    if given["object"] == "MachineHealthCheck":
        return [objects.cluster_api_check(given)]
    check = objects.node_health_check(given)
    if given.get("change"):
        status = {"unhealthyNodes": [{"name": "n", "remediations": [{"resource": {"kind": "X", "name": "n"}, "started": "x"}]}]}
        changed = objects.node_health_check({"selector": {"matchLabels": {"other": "nodes"}}}, status=status)
        return [check | {"status": status}, changed]
    spec = check["spec"]
    match given.get("selector"):
        case "invalid":
            spec["selector"] = {"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}
        case "empty":
            spec["selector"] = {}
    if kind := given.get("template_kind"):
        spec["remediationTemplate"] = objects.template(kind)
    if ("template" in given and given["template"] is None) or "escalating" in given:
        del spec["remediationTemplate"]
        spec["escalatingRemediations"] = [
            {"order": each["order"], "timeout": f"{each['timeout_s']}s", "remediationTemplate": objects.template(each["kind"])}
            for each in given["escalating"]
        ]
    return [check]


@pytest.mark.parametrize(("given", "expect"), [case for case in cases("validation") if "object" in case.values[0]])
def test_what_an_admission_webhook_would_say(given: Json, expect: Json) -> None:
    answer = evaluated(written(given))
    accepted = not answer["errors"]
    assert accepted is expect["accepted"]
    if not accepted:
        (error,) = answer["errors"]
        assert error["name"] == "check"
        assert error["field"].startswith("spec.")
        assert answer["checks"][0]["allowed"] is False


@pytest.mark.parametrize(
    ("given", "expect"), [case for case in cases("validation") if "guard" in case.values[0] or "control_plane" in case.values[0]]
)
def test_openshifts_guard_of_etcd(given: Json, expect: Json) -> None:
    guards = {} if given.get("guard") is None else {"n": given["guard"]}
    guard = EtcdGuard(known=True, disruptions_allowed=(given["disruptions_allowed"],), guards=guards)
    assert (guard.objection("n") == "") is expect["accepted"]


def test_the_message_of_a_short_circuit_has_the_number_that_decided() -> None:
    """x-capi-message-count-differs-from-decision: machines that have not started count too."""
    (case,) = [each for each in CASES if each["id"] == "x-capi-message-count-differs-from-decision"]
    given, expect = case["given"], case["expect"]
    found = of_a_group({"system": "capi", "max_unhealthy": given["max_unhealthy"], "total": 2, "healthy": 1})
    machine = next(obj for obj in found if obj["kind"] == "Machine")
    for index in range(given["not_started"]):
        starting = json.loads(json.dumps(machine))
        starting["metadata"] |= {"name": f"starting-{index}", "creationTimestamp": objects.moment(5)}
        starting["status"] = {"conditions": []}
        found.append(starting)
    check = the_check(found)
    assert (check["targets"], check["healthy"], check["needRemediation"]) == (given["total"], given["healthy"], 1)
    assert (check["allowed"], check["unhealthy"]) == (expect["allowed"], expect["reported_unhealthy"])
    assert f"unhealthy: {expect['reported_unhealthy']}," in check["message"]


def test_a_paused_check_goes_on_counting() -> None:
    """x-nhc-paused-status-zero."""
    (case,) = [each for each in CASES if each["id"] == "x-nhc-paused-status-zero"]
    given, expect = case["given"], case["expect"]
    found = of_a_group({"system": "nhc", "total": given["nodes"], "healthy": given["healthy"], "min_healthy": 1})
    found[0]["spec"]["pauseRequests"] = given["pause_requests"]
    check = the_check(found)
    assert (check["targets"], check["healthy"]) == (expect["observed_nodes"], expect["healthy_nodes"])
    assert names(check, action="create-remediation") == expect["created"]
    assert (check["paused"], check["reason"]) == (True, "Paused")


def test_no_case_is_left_out() -> None:
    """Of `flow` and of Metal3's, which are about what the remediators of others do, `test_remediators.py` holds the cases."""
    kinds = {case["kind"] for case in CASES}
    here = {"nhc_evaluate", "mao_evaluate", "capi_evaluate", "threshold", "conditions", "validation", "improvement"}
    assert kinds == here | HELD_BY_REMEDIATION | {"flow", "metal3_timer", "metal3_retry"}
