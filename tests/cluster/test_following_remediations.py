"""Remediation objects of other controllers as a scan sees them: followed from the first health check on that names a template."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from activities.cluster.acts.scan import ClusterScan
from policy.objects.remediations import RemediationObject
from policy.remediation.remediation_objects import INCIDENT_ANNOTATION
from policy.scan.scan_report import ScanReport
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.builders import CHECKS, DEFINITIONS, NODES, check, conditions, definition, of_kind, with_template_of
from tests.cluster.fencing_requests import REMEDIATIONS
from tests.cluster.machines import CLUSTER_API, OPENSHIFT, System
from tests.cluster.scans import Open, fleet, observe_until
from tests.cluster.test_fencing_requests import REF, furnish
from tests.cluster.test_preserving import definition as definition_of

pytestmark = pytest.mark.timeout(20)

GROUP = "self-node-remediation.medik8s.io"
OBJECTS = f"/apis/{GROUP}/v1alpha1/namespaces/default/selfnoderemediations"
TEMPLATE = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "SelfNodeRemediationTemplate", "name": "quick", "namespace": "default"}


def known(scan: ClusterScan) -> Mapping[str, RemediationObject]:
    return scan.view.ledger.known(scan.view.now()).remediations


async def first(scan: ClusterScan) -> ScanReport:
    return await observe_until(scan, None, lambda seen: seen.view.synced and not seen.view.stale)


async def with_check(person: ApiClient, template: Mapping[str, str] = TEMPLATE) -> str:
    """Four nodes, and a check that has them remediated by that template: its uid."""
    await fleet(person)
    await person.create(DEFINITIONS, definition())
    await with_template_of(person, template)
    uid = (await person.create(CHECKS, check(remediationTemplate=dict(template))))["metadata"]["uid"]
    assert isinstance(uid, str)
    return uid


def healthy(report: ScanReport) -> int:
    (of_check,) = report.checks
    return of_check.healthy


async def test_what_a_template_makes_is_followed_and_its_node_is_not_yet_well(person: ApiClient, open_scan: Open) -> None:
    """S17: such a node counts against the threshold, whoever has made the object. The kind is installed after the check."""
    uid = await with_check(person)
    scan = await open_scan()
    report = await first(scan)
    assert healthy(report) == 4

    await person.create(DEFINITIONS, definition_of("SelfNodeRemediation", group=GROUP))
    owner = {"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "name": "workers", "uid": uid}
    await person.create(OBJECTS, of_kind("SelfNodeRemediation", OBJECTS, name="node-0", ownerReferences=[owner]))
    report = await observe_until(scan, report, lambda seen: healthy(seen) == 3)
    [found] = known(scan).values()
    assert (found.ref.key, found.target) == ("SelfNodeRemediation/default/node-0", "node-0")

    await person.delete(f"{OBJECTS}/node-0")
    await observe_until(scan, report, lambda seen: healthy(seen) == 4)
    assert known(scan) == {}


@pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
async def test_machines_are_followed_beside_a_check_of_nodes_as_one_may_claim_a_nodes_machine(
    person: ApiClient, open_scan: Open, system: System
) -> None:
    """S39: the kind is installed after the check."""
    await with_check(person)
    scan = await open_scan()
    report = await first(scan)
    assert scan.view.follow_claims()
    await system.install(person)
    await person.patch(f"{NODES}/node-0/status", {"status": {"conditions": conditions("Unknown")}})
    machine = system.machine("claims")
    machine["spec"]["providerID"] = "sim:///node-0"
    await person.create(system.path("machines"), machine)
    await system.set_status(person, "claims", {"nodeRef": {"name": "another-node"}})
    report = await observe_until(scan, report, lambda seen: bool(seen.candidates and seen.candidates[0].refused))
    assert f"Machine/{system.namespace}/claims of Node/another-node" in report.candidates[0].refused


async def test_machines_that_can_t_be_listed_are_not_taken_for_known(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    """S39: the view goes on without them, and a last look lists them itself, or is refused."""
    await OPENSHIFT.install(person)
    await with_check(person)
    api.faults.add(Fault(accident=Accident.STATUS, status=403, path="/machines"))
    scan = await open_scan()
    report = await first(scan)
    await observe_until(scan, report, lambda seen: "can't list machines" in seen.view.notice)
    assert scan.view.synced
    assert not scan.view.follow_claims()


async def test_an_unreadable_one_counts_as_under_way(person: ApiClient, open_scan: Open) -> None:
    """S18."""
    await person.create(DEFINITIONS, definition_of("SelfNodeRemediation", group=GROUP))
    await person.create(OBJECTS, of_kind("SelfNodeRemediation", OBJECTS, name="node-0"))
    await person.patch(f"{OBJECTS}/node-0/status", {"status": {"conditions": "none"}})
    await with_check(person)
    scan = await open_scan()
    await first(scan)
    [found] = known(scan).values()
    assert (found.target, found.owners) == ("node-0", ())


async def test_a_kind_that_we_may_not_list_makes_no_check_wait(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    """Nothing of it can be created either; other checks, and other steps, go on. People are told."""
    await person.create(DEFINITIONS, definition_of("SelfNodeRemediation", group=GROUP))
    api.faults.add(Fault(accident=Accident.STATUS, status=403, path="selfnoderemediations"))
    await with_check(person)
    scan = await open_scan()
    report = await first(scan)
    assert "can't list selfnoderemediations" in report.view.notice
    assert [each.reason for each in report.checks] == [""]


async def test_what_we_have_made_for_another_controller_asks_nothing_of_us(person: ApiClient, open_scan: Open) -> None:
    """S13: fence-agents-remediation is to carry it out, and not we beside it."""
    await furnish(person)
    scan = await open_scan()
    report = await first(scan)
    assert [each.check for each in report.candidates] == [REF]
    ours = {"metadata": {"annotations": {INCIDENT_ANNOTATION: "incident-1"}}}
    await person.patch(f"{REMEDIATIONS}/{REF.name}", ours)
    await observe_until(scan, report, lambda seen: seen.candidates == ())
    assert scan.view.watches.requests.objects == {}
