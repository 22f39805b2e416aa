"""What Prometheus is told of a cluster, and by whom: the worker whose scan began last knows best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.common import MetricGaugeFloat
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.scan import ClusterScan
from activities.cluster.report.alarms import AlarmNotifier
from activities.contracts import metrics
from activities.contracts.scan import OpenEpisode
from activities.notification_sender import Notice
from policy.checks.circuit_breakers import OpenReason
from policy.episode.events import When
from policy.episode.notices import Severity
from policy.scan.admission import Refused
from policy.scan.obstacles import alarms as alarms_of
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import ScanReport, ViewState
from policy.values.object_refs import ObjectRef
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.builders import NODES, node, until
from tests.cluster.scans import Open, asked, with_policy
from tests.policy.builders import NOW, a_check_report, a_report

pytestmark = pytest.mark.timeout(15)

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
CHECK = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers")
WHY = "paused by ada: drill"


class Levels(dict[str, float]):
    """A process's meter, as far as gauges go: by name, of the cluster `prod`."""

    def with_additional_attributes(self, additional_attributes: Mapping[str, Any]) -> Levels:
        raise AssertionError("the process's own meter has no labels")

    def create_gauge_float(self, name: str, description: str | None = None, unit: str | None = None) -> Gauge:
        return Gauge(self, name)

    def of(self, *gauges: metrics.Gauge) -> list[float | None]:
        return [self.get(each.name) for each in gauges]


class Gauge(MetricGaugeFloat):
    description = unit = None
    name = ""

    def __init__(self, levels: Levels, name: str) -> None:
        self._levels, self.name = levels, name

    def with_additional_attributes(self, additional_attributes: Mapping[str, Any]) -> Gauge:
        assert additional_attributes == {"cluster": "prod"}
        return self

    def set(self, value: float, additional_attributes: Mapping[str, Any] | None = None) -> None:
        self._levels[self.name] = value


async def scanned(scan: ClusterScan, act: str = "observe_cluster", *, began: datetime = BEGAN, **changes: Any) -> None:
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, started_time=began)
    await environment.run(getattr(scan, act), asked(wait=0.5, **changes))


async def test_the_levels_are_what_the_scanner_says_of_itself_and_what_the_scan_sees(person: ApiClient, open_scan: Open) -> None:
    """S18, S38, S44. Before the first scan there is a series that says so, for whoever waits for one."""
    scan = await open_scan(meter=(levels := Levels()))
    assert dict(levels) == {metrics.SCAN_BEGAN.name: 0}
    await person.create(NODES, node("node-1"))
    await with_policy(person)
    full = [Refused(node=name, check=CHECK, reason=AdmissionRefusal.CAP, message="") for name in ("b", "b", "c")]
    refusals = (*full, Refused(node="d", check=CHECK, reason=AdmissionRefusal.PAUSED, message=""))
    open_ones = (OpenEpisode(node="a", since="", incident="i"),)
    known = {"in_flight": open_ones, "refusals": refusals, "need_person": 2, "permits": 1, "queued": 1}
    await scanned(scan, work_in_hand=True, **known)
    counts = (metrics.NEED_PERSON, metrics.PERMITS_USED, metrics.PERMITS_WAITING)
    assert levels.of(metrics.SCAN_BEGAN, metrics.HALTED, *counts) == [BEGAN.timestamp(), 0, 2, 1, 3]
    assert levels.of(metrics.VIEW_STALE, metrics.LEASE_NEEDED, metrics.LEASE_HELD) == [0, 1, 1]
    await scanned(scan, halted=WHY)  # of a scanner that does not know yet who is open
    assert levels.of(metrics.HALTED, *counts) == [1, 2, 1, 3]


async def test_a_view_that_may_not_be_acted_on_and_a_lease_that_another_holds_are_told(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S18, S38."""
    await person.create(NODES, node("node-1"))
    await scanned(await open_scan(), holder="temporal-b/default", work_in_hand=True)
    scan = await open_scan(meter=(levels := Levels()))
    await scanned(scan, work_in_hand=True)
    assert levels.of(metrics.VIEW_STALE, metrics.LEASE_NEEDED, metrics.LEASE_HELD) == [0, 1, 0]
    await api.stop()
    await until(scan.view.doubt, 10)
    await scanned(scan)
    assert levels.of(metrics.VIEW_STALE) == [1]


async def test_what_only_the_scanner_knows_is_told_to_people_elsewhere(person: ApiClient, open_scan: Open) -> None:
    """S44: a pause when it begins and when it is over, and who still waits for a person when the scanner says that it is time."""
    told = list[Notice]()
    scan = await open_scan(notify=told.append)
    waiting = OpenEpisode(node="node-1", since=(BEGAN - timedelta(hours=1)).isoformat(), incident="i-1")
    await scanned(scan, halted=WHY, halted_is_new=True, remind=(waiting,))
    await scanned(scan, halted=WHY)
    await scanned(scan, halt_over="new repairs begin again")
    assert [(each.when, each.cluster, each.node, each.subject, each.over) for each in told] == [
        (When.HALTED, "prod", "", "halted", False),
        (When.NEEDS_HUMAN, "prod", "node-1", "i-1", False),
        (When.HALTED, "prod", "", "halted", True),
    ]
    assert [each.waited for each in told[:2]] == [timedelta(0), timedelta(hours=1)], "by which is escalated"
    assert told[0].thread == told[2].thread


def test_an_open_breaker_a_blind_view_and_a_lack_of_permits_are_notified_once_and_when_over() -> None:
    """S44: in the worst outage nothing was begun and no person was told."""
    notices, now = list[Notice](), NOW
    alarms = AlarmNotifier("prod", clock=lambda: now, notify=notices.append)
    open_breaker = a_check_report(allowed=False, reason=OpenReason.TOO_MANY_UNHEALTHY, message="2 of 6 nodes are healthy")
    blind = ViewState(synced=True, stale="its API is away")
    bad = a_report(checks=(open_breaker,), view=blind)

    def hears(report: ScanReport, **changes: Any) -> tuple[float, list[tuple[When, bool]]]:
        notices.clear()
        due = alarms.begin_due_work(report, asked(**changes))
        return due, [(each.when, each.over) for each in notices]

    assert hears(bad, queued=1) == (120.0, [(When.CIRCUIT_BREAKER, False)])
    assert notices[0].severity is Severity.CRITICAL
    assert "NodeHealthCheck/workers: the circuit breaker is open and 2 unhealthy targets wait: 2 of 6" in notices[0].text
    assert hears(bad, queued=1) == (120.0, [])
    now = NOW + timedelta(minutes=2)
    assert hears(bad, queued=1) == (480.0, [(When.VIEW_STALE, False)])
    now = NOW + timedelta(minutes=10)
    assert hears(bad, queued=1)[1] == [(When.NO_PERMIT, False)]
    assert sorted(hears(a_report())[1]) == [(When.CIRCUIT_BREAKER, True), (When.NO_PERMIT, True), (When.VIEW_STALE, True)]
    assert hears(bad)[0] == 120.0, "each time anew"


@pytest.mark.parametrize(
    "changes", [{"paused": "an upgrade", "reason": OpenReason.PAUSED}, {"unhealthy": 0}, {"reason": OpenReason.OBSERVE_ONLY}]
)
def test_a_breaker_that_people_or_others_hold_open_or_that_keeps_none_waiting_alarms_no_one(changes: dict[str, Any]) -> None:
    """S44: those who paused the check know it, and nodes that start are no outage."""
    check = a_check_report(**{"allowed": False, "reason": OpenReason.TOO_MANY_UNHEALTHY} | changes)
    assert list(alarms_of(a_report(checks=(check,)), 0)) == []


async def test_what_a_scan_sees_is_notified_and_counted(person: ApiClient, open_scan: Open) -> None:
    """S44: by the worker that scans."""
    notices, levels = list[Notice](), Levels()
    scan = await open_scan(notify=notices.append, meter=levels)
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    for name in ("node-1", "node-2", "node-3"):
        await person.create(NODES, node(name, "Unknown", long_ago))
    await with_policy(person)
    await scanned(scan)
    assert levels.of(metrics.CIRCUIT_BREAKERS_OPEN) == [1]
    assert [each.when for each in notices] == [When.CIRCUIT_BREAKER]


async def test_the_last_word_of_a_scanner_that_is_stopped_stands(person: ApiClient, open_scan: Open) -> None:
    """S44: it is younger than every scan, so that it is believed until the next scanner scans, on whatever worker."""
    await with_policy(person)
    scan = await open_scan(meter=(levels := Levels()))
    await scanned(scan)
    later = BEGAN + timedelta(minutes=1)
    await scanned(scan, "release_lease", began=later, halted="the scanner was stopped by ada: drill", in_flight=())
    shown = levels.of(metrics.SCAN_BEGAN, metrics.HALTED, metrics.LEASE_NEEDED, metrics.LEASE_HELD)
    assert shown == [later.timestamp(), 1, 0, 0]
