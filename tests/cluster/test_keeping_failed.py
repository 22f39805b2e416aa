"""What only a health check calls failed, over live watches: the pool keeps the newest, the same report lets fencing at others.

The scans are real, and so is what an episode writes; who begins it is `tests/workflows/test_scanner_preservations.py`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.preservation import ClusterPreservation
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.live.last_look import LastLook
from activities.contracts.preservation import Hold, HoldRequest, Wish
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.preservation_index import PreservationNeed
from policy.preservation.requests import Pool
from policy.scan.scan_report import ScanReport
from policy.values.selectors import Selector
from simulator.client import ApiClient
from tests.cluster.acts.world import Permits
from tests.cluster.builders import DEFINITIONS
from tests.cluster.machines import CLUSTER_API, OPENSHIFT, OPERATORS, System, machine_of, turn
from tests.cluster.scans import Open, observe_until, with_policy
from tests.cluster.skipping import now
from tests.documents import document

pytestmark = pytest.mark.timeout(20)

POLICIES = "/apis/nodewarden.io/v1alpha1/preservationpolicies"


async def with_pool(person: ApiClient, cap: int) -> None:
    await person.create(DEFINITIONS, document("deploy/crds/preservationpolicies.nodewarden.io.yaml"))
    pool = {"metadata": {"name": "workers"}, "spec": {"selector": {}, "autoPreserveFailedMax": cap}}
    await person.create(POLICIES, {"apiVersion": "nodewarden.io/v1alpha1", "kind": "PreservationPolicy", **pool})


async def fail_two(person: ApiClient) -> None:
    """Both so long ago that it has settled; node-2 is the newer failure."""
    for name, age in (("node-1", 60), ("node-2", 30)):
        await turn(person, name, "Unknown", since=now() - timedelta(seconds=age))


async def held(connection: ClusterConnection, need: PreservationNeed, **changes: Any) -> Hold:
    """What the episode's first look writes."""
    activities = ClusterPreservation(
        ServedCluster("prod", connection, source=OPERATORS),
        LastLook(ServedCluster("prod", connection, source=OPERATORS), Permits()).look,
        Permits(),
    )
    wish = Wish(automatic=need.automatic)
    request = {"cluster": "prod", "node": need.victim, "machine": need.machine, "wish": wish, "unhealthy": need.unhealthy}
    found = await ActivityEnvironment().run(activities.hold, HoldRequest(**(request | changes)))
    assert isinstance(found, Hold)
    return found


def kept(report: ScanReport) -> dict[str, str]:
    return {need.victim: need.machine.name if need.machine else "" for need in report.preservations if need.action == "preserve"}


def refused(report: ScanReport) -> dict[str, str]:
    return {candidate.node: candidate.refused for candidate in report.candidates}


@pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
async def test_of_two_machines_that_a_health_check_calls_failed_the_pool_keeps_one(
    system: System, person: ApiClient, connection: ClusterConnection, open_scan: Open
) -> None:
    """S21, S23: the newer one is kept as a Machine; the other is a candidate as ever, before and after that is written."""
    await system.install(person)
    await with_pool(person, 1)
    await system.fleet(person)
    await person.create(system.path("machinehealthchecks"), system.check(timeout=1, most="60%"))
    await fail_two(person)
    scan = await open_scan()
    report = await observe_until(scan, None, lambda seen: bool(seen.preservations))
    assert kept(report) == {"node-2": machine_of("node-2")}
    assert refused(report)["node-1"] == ""
    assert "preserved" in refused(report)["node-2"]
    (need,) = report.preservations
    hold = await held(connection, need)
    assert (hold.preserved, hold.phase) == (True, "Failed:Preserved")
    annotations = (await person.get(system.path("machines", machine_of("node-2"))))["metadata"]["annotations"]
    assert annotations[PRESERVE_ANNOTATION] == "auto-preserved"
    report = await observe_until(scan, report, lambda seen: "auto" in refused(seen).get("node-2", ""))
    assert (kept(report), refused(report)["node-1"]) == ({}, "")


@pytest.mark.parametrize("source", ["an object", "the settings"])
async def test_a_pool_has_the_machines_followed_that_a_health_check_of_nodes_knows_nothing_of(
    person: ApiClient, open_scan: Open, source: str
) -> None:
    """Else the Node would be kept as one of nobody, and nobody would know it as kept, since that stands on the Machine (S23)."""
    await OPENSHIFT.install(person)
    pools: tuple[Pool, ...] = ()
    if source == "an object":
        await with_pool(person, 1)
    else:
        pools = (Pool(name="workers", selector=Selector(), cap=1),)
    await OPENSHIFT.fleet(person, 6)
    await with_policy(person, duration="1s")
    await fail_two(person)
    scan = await open_scan(pools=pools)
    report = await observe_until(scan, None, lambda seen: bool(seen.preservations))
    assert kept(report) == {"node-2": machine_of("node-2")}


async def test_what_only_a_check_calls_failed_and_was_never_kept_is_not_given_up_here(
    person: ApiClient, connection: ClusterConnection, open_scan: Open
) -> None:
    """S25: what becomes of it is for whoever acts on that check; its remedy may be to restart it."""
    await OPENSHIFT.install(person)
    await with_pool(person, 1)
    await OPENSHIFT.fleet(person)
    await person.create(OPENSHIFT.path("machinehealthchecks"), OPENSHIFT.check(timeout=1, most="60%"))
    await fail_two(person)
    scan = await open_scan()
    report = await observe_until(scan, None, lambda seen: bool(seen.preservations))
    (need,) = report.preservations
    hold = await held(connection, need, wish=Wish())
    assert (hold.preserved, hold.terminate) == (False, False)
    assert "nothing keeps it" in hold.reason


@pytest.mark.parametrize("how", ["its Node is deleted", "a client of Temporal does not say that it is unhealthy"])
async def test_s21_a_machine_that_a_pool_keeps_is_made_well_by_its_node_alone(
    how: str, person: ApiClient, connection: ClusterConnection, open_scan: Open
) -> None:
    await OPENSHIFT.install(person)
    await with_pool(person, 1)
    await OPENSHIFT.fleet(person, 6)
    await with_policy(person, duration="1s")
    await fail_two(person)
    scan = await open_scan()
    report = await observe_until(scan, None, lambda seen: bool(seen.preservations))
    (need,) = report.preservations
    first = await held(connection, need)
    assert first.preserved
    told = need.unhealthy
    if how == "its Node is deleted":
        await person.delete("/api/v1/nodes/node-2")
    else:
        told = ""
    hold = await held(connection, need, wish=Wish(), unhealthy=told)
    assert (hold.preserved, hold.recovered, hold.expiry) == (True, False, first.expiry)
