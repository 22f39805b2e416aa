"""A health check whose template is missing says so when it is written and acts on nobody, until the template is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from activities.cluster.acts.scan import ClusterScan
from activities.cluster.objects.check_statuses import condition_of
from policy.checks.fence_policies import DEFAULT_SOURCE
from policy.scan.scan_report import ScanReport
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.builders import (
    CHECKS,
    DEFINITIONS,
    NODES,
    TEMPLATE,
    check,
    definition,
    node,
    templates,
    with_template_of,
)
from tests.cluster.machines import CLUSTER_API, COUNTING, OPENSHIFT, System, turn
from tests.cluster.scans import Open, fleet, observe_until
from tests.cluster.skipping import now
from tests.documents import document

pytestmark = pytest.mark.timeout(20)

SNR = {
    "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
    "kind": "SelfNodeRemediationTemplate",
    "name": "quick",
    "namespace": "default",
}
REBOOT = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "RebootTemplate", "name": "default", "namespace": "nodewarden"}


async def sick_fleet(person: ApiClient, **spec: Any) -> None:
    """Four nodes and one that is silent, and a check that would act on it at once."""
    await fleet(person)
    await person.create(NODES, node("node-4", "Unknown", now().replace(year=2020)))
    await person.create(DEFINITIONS, definition())
    wanted = check(duration="1s", **spec)
    if "escalatingRemediations" in spec:
        del wanted["spec"]["remediationTemplate"]
    await person.create(CHECKS, wanted)


def acts(report: ScanReport) -> list[str]:
    return [each.node for each in report.candidates]


def seeing(report: ScanReport) -> bool:
    return report.view.synced and not report.view.stale and bool(report.checks)


async def until_said(
    person: ApiClient,
    scan: ClusterScan,
    report: ScanReport | None,
    said: Callable[[dict[str, Any]], bool],
    path: str = f"{CHECKS}/workers",
) -> tuple[ScanReport, dict[str, Any]]:
    """Scan as a scanner does, until the status reads so."""
    async with asyncio.timeout(15):
        while True:
            report = await observe_until(scan, report, seeing, in_flight=(), wait=0.2)
            status = (await person.get(path)).get("status") or {}
            if said(status):
                return report, status
            report = None


async def test_a_template_that_is_missing_disables_its_check_until_it_is_there(person: ApiClient, open_scan: Open) -> None:
    """As the NodeHealthCheck operator has it: Disabled, RemediationTemplateNotFound. Another check goes on meanwhile."""
    scan = await open_scan()
    await person.delete(f"{templates()}/default")
    await sick_fleet(person)
    report, status = await until_said(person, scan, None, lambda found: found.get("phase") == "Disabled")
    disabled, allowed = (condition_of(status, each) for each in ("Disabled", "RemediationAllowed"))
    missing = "NodeHealthCheck/workers: it names FencingTemplate/nodewarden/default, which does not exist"
    assert (disabled["status"], disabled["reason"], disabled["message"]) == ("True", "RemediationTemplateNotFound", missing)
    assert (allowed["status"], allowed["reason"]) == ("False", "RemediationTemplateNotFound")
    assert status["reason"] == missing
    assert acts(report) == []
    told = [each["reason"] for each in (await person.get("/api/v1/namespaces/default/events"))["items"]]
    assert told.count("Disabled") == 1

    await person.create(CHECKS, check("others", duration="1s", remediationTemplate=SNR))
    await with_template_of(person, SNR)
    report = await observe_until(scan, report, lambda seen: acts(seen) == ["node-4"])
    assert [each.check.name for each in report.candidates] == ["others"]
    await person.delete(f"{CHECKS}/others")

    await person.create(templates(), TEMPLATE)
    report, status = await until_said(person, scan, report, lambda found: found.get("phase") == "Enabled")
    assert condition_of(status, "Disabled")["reason"] == "NodeHealthCheckEnabled"
    report = await observe_until(scan, report, lambda seen: acts(seen) == ["node-4"])

    await person.delete(f"{templates()}/default")
    await observe_until(scan, report, lambda seen: acts(seen) == [])


async def test_a_kind_that_is_not_served_counts_as_missing_until_it_is_installed(person: ApiClient, open_scan: Open) -> None:
    """Also one of ours, and on any step of a ladder."""
    rungs = [{"order": order, "timeout": "5m", "remediationTemplate": each} for order, each in enumerate((SNR, REBOOT))]
    scan = await open_scan()
    await sick_fleet(person, escalatingRemediations=rungs)
    report = await observe_until(scan, None, lambda seen: seeing(seen) and seen.checks[0].error)
    assert f"{SNR['kind']}/default/quick, and no such kind is served in {SNR['apiVersion']}" in report.checks[0].error
    await with_template_of(person, SNR)
    report = await observe_until(scan, report, lambda seen: "RebootTemplate/nodewarden/default, and no" in seen.checks[0].error)
    await person.create(DEFINITIONS, document("deploy/crds/reboottemplates.nodewarden.io.yaml"))
    report = await observe_until(scan, report, lambda seen: "default, which does not exist" in seen.checks[0].error)
    made = {**TEMPLATE, "kind": "RebootTemplate", "spec": {"template": {"spec": {}}}}
    await person.create(templates(plural="reboottemplates"), made)
    await observe_until(scan, report, lambda seen: acts(seen) == ["node-4"])


async def test_a_template_of_a_namespace_that_does_not_count_disables_its_check(person: ApiClient, open_scan: Open) -> None:
    """S40."""
    scan = await open_scan(source=DEFAULT_SOURCE)
    named = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "name": "default", "namespace": "clusters"}
    await sick_fleet(person, remediationTemplate=named)
    report = await observe_until(scan, None, seeing)
    [seen] = report.checks
    assert (seen.reason, acts(report)) == ("RemediationTemplateInvalid", [])
    assert "templates count in nodewarden (setting template_namespaces)" in seen.error


async def test_what_we_may_not_see_is_not_missing(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    """S18."""
    api.faults.add(Fault(accident=Accident.STATUS, status=403, path="fencingtemplates", user_agent="nodewarden/"))
    await sick_fleet(person)
    report = await observe_until(await open_scan(), None, lambda seen: acts(seen) == ["node-4"])
    assert [each.error for each in report.checks] == [""]


@pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
async def test_a_machine_health_check_says_it_by_its_own_condition(system: System, person: ApiClient, open_scan: Open) -> None:
    scan = await open_scan()
    await person.delete(f"{templates(system.namespace)}/default")
    await system.install(person)
    await system.fleet(person)
    await turn(person, "node-1", "Unknown", since=now().replace(year=2020))
    await person.create(system.path("machinehealthchecks"), system.check(timeout=1))
    report, status = await until_said(
        person, scan, None, lambda found: bool(found.get("conditions")), system.path("machinehealthchecks", "workers")
    )
    said = system.conditions(status)["RemediationAllowed"]
    assert (said["status"], said["reason"]) == ("False", "RemediationTemplateNotFound")
    assert said["message"].endswith(f"FencingTemplate/{system.namespace}/default, which does not exist")
    assert acts(report) == []
    told = [each["reason"] for each in (await person.get(f"/api/v1/namespaces/{system.namespace}/events"))["items"]]
    assert told.count("RemediationRestricted") == 1


@pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
async def test_a_template_beside_a_machine_health_check_counts_where_settings_name_the_namespace(
    system: System, person: ApiClient, open_scan: Open
) -> None:
    """S40, S46: who may write Machines, checks and templates in a namespace of their own names no device of a Node."""
    scan = await open_scan(source=replace(DEFAULT_SOURCE, machines=COUNTING))
    await system.install(person)
    await system.fleet(person)
    await turn(person, "node-1", "Unknown", since=now().replace(year=2020))
    await person.create(system.path("machinehealthchecks"), system.check(timeout=1))
    report, status = await until_said(
        person, scan, None, lambda found: bool(found.get("conditions")), system.path("machinehealthchecks", "workers")
    )
    assert (
        "templates count in nodewarden (setting template_namespaces)"
        in system.conditions(status)["RemediationAllowed"]["message"]
    )
    assert acts(report) == []
