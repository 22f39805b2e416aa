"""fence-cluster-config as a scan follows it: a health check of every node, and policies that hold for all fencing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.api.paths import CONFIG_MAPS, NAMESPACES
from policy.checks.fence_policies import StormRule
from policy.scan.admission import admit
from policy.scan.evaluation import evaluate
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import ScanReport
from policy.values.object_refs import FENCE_NAMESPACE, Dialect
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.builders import NODES, node
from tests.cluster.scans import Open, asked, fleet, observe, observe_until
from tests.cluster.skipping import now
from tests.documents import load
from tests.policy.builders import a_cluster_config, a_policy, config_map

pytestmark = pytest.mark.timeout(15)

MAPS = CONFIG_MAPS.path(namespace=FENCE_NAMESPACE)


async def put(person: ApiClient, *maps: dict[str, Any]) -> None:
    if all(each["metadata"]["name"] != FENCE_NAMESPACE for each in (await person.list(NAMESPACES.path()))["items"]):
        await person.create(NAMESPACES.path(), {"metadata": {"name": FENCE_NAMESPACE}})
    for each in maps:
        await person.create(MAPS, each)


async def rewrite(person: ApiClient, obj: dict[str, Any]) -> None:
    await person.patch(CONFIG_MAPS.path(obj["metadata"]["name"], namespace=FENCE_NAMESPACE), {"data": obj["data"]})


async def a_sick_fleet(person: ApiClient) -> None:
    await fleet(person, 4)
    await person.create(NODES, node("sick", "Unknown", now() - timedelta(minutes=1)))


def reasons(report: ScanReport) -> list[str]:
    admission = admit(report, (), cap=1, now=report.at)
    return [*("" for _ in admission.admitted), *(each.reason for each in admission.refused)]


async def test_the_configuration_alone_is_enough_to_act_on(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    """S38, opt-in: without it nothing is asked for, with it the cluster Lease is taken."""
    await a_sick_fleet(person)
    scan = await open_scan()
    report = await observe(scan, asked())
    assert (report.checks, report.candidates, report.lease.needed) == ((), (), False)
    await put(person, a_cluster_config(grace_timeout=5))
    report = await observe_until(scan, report, lambda report: bool(report.candidates) and report.lease.held)
    (candidate,) = report.candidates
    assert (candidate.node, candidate.check.key, candidate.template) == (
        "sick",
        "ConfigMap/nodewarden/fence-cluster-config",
        None,
    )
    assert candidate.refused == ""
    assert reasons(report) == [""]
    (check,) = report.checks
    assert (check.dialect, check.total, check.healthy, check.allowed) == (Dialect.NODE_FENCING, 5, 4, True)
    published = await scan.publishing.publish(report)
    assert published.failed == ()


async def test_policies_are_followed_by_the_names_that_the_configuration_gives(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S17: also where the policy is written before, or changed after."""
    await a_sick_fleet(person)
    await put(person, a_policy("limit", precentage=20), a_cluster_config(grace_timeout=5))
    scan = await open_scan()
    report = await observe_until(scan, None, lambda report: bool(report.candidates))
    assert reasons(report) == [""]
    await rewrite(person, a_cluster_config(grace_timeout=5, policies="limit"))
    report = await observe_until(scan, report, lambda report: bool(report.policies.storms))
    assert report.policies.storms == (StormRule(name="limit", percentage=20),)
    assert reasons(report) == [AdmissionRefusal.SCOPE_STORM]
    await rewrite(person, a_policy("limit", percentage=21))
    report = await observe_until(scan, report, lambda report: report.policies.storms[0].percentage == 21)
    assert reasons(report) == [""]


async def test_a_configuration_that_cannot_be_used_stops_everything_new_and_is_told(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S7, S17: nothing of it is half applied; an Event on it says why, once."""
    await a_sick_fleet(person)
    await put(person, a_policy("limit", percentage=50), a_cluster_config(grace_timeout=5, policies="limit"))
    scan = await open_scan()
    report = await observe_until(scan, None, lambda report: bool(report.candidates))
    await person.delete(f"{MAPS}/fence-policy-limit")
    report = await observe_until(scan, report, lambda report: bool(report.policies.problem))
    assert "there is no ConfigMap fence-policy-limit" in report.policies.problem
    assert (report.candidates, report.checks[0].allowed, report.policies.storms) == ((), False, ())
    for _ in range(2):
        await scan.publishing.publish(report)
    events = (await person.get("/api/v1/namespaces/nodewarden/events"))["items"]
    (event,) = (each for each in events if each["involvedObject"]["name"] == "fence-cluster-config")
    assert (event["reason"], event["type"]) == ("InvalidConfiguration", "Warning")
    assert "there is no ConfigMap fence-policy-limit" in event["message"]
    await put(person, a_policy("limit", percentage=50))
    report = await observe_until(scan, report, lambda report: bool(report.candidates))
    assert reasons(report) == [""]


async def test_other_config_maps_change_nothing(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    await fleet(person)
    scan = await open_scan()
    report = await observe(scan, asked())
    await put(person, config_map("an-application", "a=b"), a_policy("not-asked-for", percentage="nonsense"))
    await person.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    elsewhere = a_cluster_config(grace_timeout=5)
    elsewhere["metadata"] = {"name": "fence-cluster-config"}
    await person.create("/api/v1/namespaces/elsewhere/configmaps", elsewhere)
    assert (await observe(scan, asked(report, wait=0.4))).digest == report.digest


async def test_a_configuration_that_is_deleted_is_forgotten(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    await a_sick_fleet(person)
    await put(person, a_cluster_config(grace_timeout=5, fencing="off"))
    scan = await open_scan()
    report = await observe_until(scan, None, lambda report: bool(report.candidates))
    assert reasons(report) == [AdmissionRefusal.SWITCHED_OFF]
    await person.delete(f"{MAPS}/fence-cluster-config")
    report = await observe_until(scan, report, lambda report: not report.checks)
    assert (report.candidates, report.policies.switched_off) == ((), ())


async def test_a_configuration_that_only_holds_back_is_no_check(person: ApiClient, open_scan: Open) -> None:
    """S44: a switch that is thrown and thrown back has armed nobody, control plane included; more than that arms all nodes."""
    says = {"fencing": "on", "fencing_off": "rack=r1", "policies": "limit"}
    await a_sick_fleet(person)
    await put(person, a_policy("limit", percentage=90), a_cluster_config(**says))
    scan = await open_scan()
    report = await observe(scan, asked())
    assert (report.checks, report.candidates, report.policies.problem) == ((), (), "")
    path = f"{MAPS}/fence-cluster-config"
    await person.patch(path, {"data": a_cluster_config(grace_timeout=5)["data"]})
    report = await observe_until(scan, report, lambda report: bool(report.candidates))
    await person.patch(path, {"data": a_cluster_config(**says)["data"]})
    await observe_until(scan, report, lambda report: not report.checks)


async def test_policies_that_may_not_be_listed_stop_everything_new(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    """S18: what is not read may say off."""
    await a_sick_fleet(person)
    api.faults.add(Fault(accident=Accident.REFUSE, path="configmaps"))
    scan = await open_scan()
    report = await observe_until(scan, None, lambda report: bool(report.policies.problem))
    assert "can't list configmaps" in report.policies.problem


def test_files_are_judged_by_the_same_policies_in_whatever_order_they_come() -> None:
    """`nodewarden evaluate -f`: the policy after the configuration that names it."""
    sick = node("sick", "Unknown", now() - timedelta(minutes=1))
    config, limit = a_cluster_config(grace_timeout=5, policies="limit"), a_policy("limit", percentage=50)
    cluster = load([(config, "a"), (node("well"), "b"), (sick, "c"), (limit, "d")], now())
    assert cluster.mistakes == []
    (evaluation,) = evaluate(cluster.ledger.known(cluster.now))
    held = {each.target: each.held_by for each in evaluation.verdicts}
    assert held["sick"] == "the cluster: 1 of 2 nodes, 50%, are unresponsive; the policy limit fences below 50%"


def test_a_mistake_in_files_is_named_once_with_its_object() -> None:
    cluster = load([(a_cluster_config(grace_timeout="5m", giveup_retries="x"), "file.yaml")], now())
    (mistake,) = cluster.mistakes
    assert mistake.ref is not None
    assert (mistake.source, mistake.ref.key, mistake.field) == (
        "file.yaml",
        "ConfigMap/nodewarden/fence-cluster-config",
        "config.properties",
    )
    assert "giveup_retries" in mistake.message
