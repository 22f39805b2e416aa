"""Another controller at work, seen over the API: then health checks are judged, and left to it until the user says otherwise."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from activities.cluster.acts.scan import ClusterScan
from activities.cluster.objects.check_statuses import CONFLICTING, Conflicts, Situation, status_change
from policy.checks.circuit_breakers import OpenReason
from policy.dialects import parse
from policy.scan.ledger import Ledger
from policy.scan.scan_report import CheckReport, ClusterLease, ScanReport
from policy.values.object_refs import Dialect
from simulator.client import ApiClient
from tests.cluster.builders import CHECKS, DEFINITIONS, NODES, check, definition, node, stamp
from tests.cluster.fencing_requests import LEASES, NAMESPACE, leader
from tests.cluster.machines import CLUSTER_API
from tests.cluster.scans import Open, observe_until
from tests.cluster.skipping import now

pytestmark = pytest.mark.timeout(20)

LEADER = "e1f13584.medik8s.io"
EVENTS = "/api/v1/namespaces/default/events"


async def furnish(person: ApiClient, *, age: float = 0.0) -> None:
    """A sick node under a check of the operator, whose leader was alive so many seconds ago."""
    await person.create(DEFINITIONS, definition())
    for number in range(4):
        since = now() - timedelta(minutes=1)
        await person.create(NODES, node(f"node-{number}", "Unknown" if number == 0 else "True", since))
    await person.create(CHECKS, check(duration="1s"))
    await person.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    await leader(person, LEADER, age=age)


async def first_report(scan: ClusterScan) -> ScanReport:
    """A report with the check and the leader's Lease in it."""
    return await observe_until(scan, None, lambda seen: bool(seen.checks) and not seen.view.stale)


async def test_while_the_operators_leader_is_alive_its_checks_are_only_looked_at(person: ApiClient, open_scan: Open) -> None:
    await furnish(person)
    scan = await open_scan()
    report = await first_report(scan)
    [found] = report.checks
    assert (found.unhealthy, found.allowed, found.reason) == (1, False, OpenReason.OBSERVE_ONLY)
    assert "medik8s/e1f13584.medik8s.io is renewed by manager-0" in found.message
    assert report.candidates == ()
    await publish(scan, report.checks)
    status = (await person.get(f"{CHECKS}/workers"))["status"]
    assert [condition["type"] for condition in status["conditions"]] == ["ConflictingController"]
    assert list(status) == ["conditions"], "the rest of the status is the other controller's"
    assert [event["reason"] for event in (await person.list(EVENTS))["items"]] == ["ConflictingController"]


async def test_a_leader_whose_clock_is_behind_is_seen_by_its_renewals(person: ApiClient, open_scan: Open) -> None:
    """S17: else two controllers act on one object for as long as the clocks differ."""
    await furnish(person, age=60)
    scan = await open_scan()
    assert (await first_report(scan)).checks[0].allowed, "at first sight it is one that went a minute ago"
    written = (now() - timedelta(seconds=58)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    await person.patch(f"{LEASES}/{LEADER}", {"spec": {"renewTime": written}})
    report = await observe_until(scan, None, lambda seen: bool(seen.checks) and not seen.checks[0].allowed)
    assert report.checks[0].reason == OpenReason.OBSERVE_ONLY
    assert report.candidates == ()


async def test_who_was_seen_once_counts_until_the_user_takes_over(person: ApiClient, open_scan: Open) -> None:
    """A controller whose pod is moved comes back; what says that it was seen stands on the health check."""
    await furnish(person)
    scan = await open_scan()
    await publish(scan, (await first_report(scan)).checks)
    await person.delete(f"{LEASES}/{LEADER}")
    assert (await first_report(scan)).checks[0].reason == OpenReason.OBSERVE_ONLY
    scan = await open_scan()
    report = await first_report(scan)
    assert report.checks[0].reason == OpenReason.OBSERVE_ONLY
    assert "NodeHealthCheck/workers says that it has been seen" in report.checks[0].message
    scan = await open_scan(takeover=True)
    report = await first_report(scan)
    assert [candidate.node for candidate in report.candidates] == ["node-0"]
    await publish(scan, report.checks)
    conditions = (await person.get(f"{CHECKS}/workers"))["status"]["conditions"]
    assert "ConflictingController" not in {condition["type"] for condition in conditions}
    scan = await open_scan()
    assert (await first_report(scan)).checks[0].allowed, "the other one is gone, and nothing says otherwise any more"


async def test_a_pause_does_not_forget_the_other_controller(person: ApiClient, open_scan: Open) -> None:
    """Its condition is the only memory that outlives a worker; the pause may end while the operator's pod is being moved."""
    await furnish(person)
    scan = await open_scan()
    report = await first_report(scan)
    await publish(scan, report.checks)
    await person.patch(f"{CHECKS}/workers", {"spec": {"pauseRequests": ["a person"]}})
    report = await observe_until(scan, report, lambda seen: seen.checks[0].reason == OpenReason.PAUSED)
    await publish(scan, report.checks)
    await person.delete(f"{LEASES}/{LEADER}")
    await person.patch(f"{CHECKS}/workers", {"spec": {"pauseRequests": None}})
    scan = await open_scan()
    report = await first_report(scan)
    assert (report.checks[0].reason, report.candidates) == (OpenReason.OBSERVE_ONLY, ())


async def test_what_the_other_controller_keeps_in_a_status_stays_even_if_we_would_not_use_the_check(
    person: ApiClient, open_scan: Open
) -> None:
    """The operator remembers in `unhealthyNodes` what it has begun."""
    await furnish(person)
    remediation = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediation", "name": "node-0"}
    theirs = {
        "unhealthyNodes": [{"name": "node-0", "remediations": [{"resource": remediation, "started": stamp(now())}]}],
        "observedNodes": 4,
        "healthyNodes": 3,
        "phase": "Remediating",
        "reason": "theirs",
    }
    await person.patch(f"{CHECKS}/workers/status", {"status": theirs})
    stands = (await person.get(f"{CHECKS}/workers"))["status"]
    await person.patch(f"{CHECKS}/workers", {"spec": {"minHealthy": "many"}})
    scan = await open_scan()
    report = await first_report(scan)
    assert report.checks[0].reason == "InvalidObject"
    await publish(scan, report.checks)
    status = (await person.get(f"{CHECKS}/workers"))["status"]
    assert [condition["type"] for condition in status.pop("conditions")] == ["ConflictingController"]
    assert status == stands


def test_a_report_that_an_older_worker_made_is_understood() -> None:
    """It names the other controller in its reason and message only."""
    report = CheckReport(ref=CLUSTER_API.check_ref(), dialect=CLUSTER_API.dialect, reason=CONFLICTING, message="it acts")
    made = status_change(Situation(report=report, current={}), now())
    assert made is not None
    assert [condition["message"] for condition in made.patch["status"]["conditions"]] == ["it acts"]


async def publish(scan: ClusterScan, checks: tuple[CheckReport, ...]) -> None:
    await scan.publishing.publish(replace(scan.view.report(lease=ClusterLease(held=True)), checks=checks))


def test_a_status_written_by_another_controller_counts_until_the_check_is_gone() -> None:
    """As an API server records it in managedFields; ours do not count."""
    ledger, found = Ledger(), check()
    conflicts = Conflicts(ledger, takeover=False)
    ledger.put_check(parse(found))
    ref = ledger.report_parts(now()).checks[0].ref
    entry = {"manager": "manager", "operation": "Update", "subresource": "status", "time": stamp(now())}
    for manager, reason in (("nodewarden", ""), ("kubectl", ""), ("manager", OpenReason.OBSERVE_ONLY)):
        found["metadata"]["managedFields"] = [entry | {"manager": manager}]
        conflicts.check_changed(Dialect.MEDIK8S, ref, found)
        conflicts.hold_back(now())
        assert ledger.report_parts(now()).checks[0].reason == reason
    assert "manager writes the status of NodeHealthCheck/workers" in ledger.report_parts(now()).checks[0].message
