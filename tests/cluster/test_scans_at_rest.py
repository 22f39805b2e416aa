"""A scan while nothing happens (S38): Temporal has a sign of life of it once in a while only, so the cluster Lease says whether
it is still wanted, and to other workers whether it is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.scan import ClusterScan
from activities.cluster.api.lease_view import CLUSTER_LEASE
from activities.contracts.metrics import SCANNER_ATTEMPTS
from activities.errors import ErrorType, error_type, failure
from policy.scan.scan_report import ScanReport
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient, ApiError
from tests.cluster.builders import CHECKS, until
from tests.cluster.scans import Open, asked, fleet, observe, observe_until, with_policy
from tests.cluster.test_levels import Levels

pytestmark = pytest.mark.timeout(20)

Resting = asyncio.Task[ScanReport]


async def rest(scan: ClusterScan, **changes: Any) -> Resting:
    """A scan that rests there, once it has settled."""
    report = await observe_until(scan, None, lambda report: report.lease.held or not scan.view.asked, **changes)
    resting = asyncio.create_task(observe(scan, asked(report, wait=15.0, rests=True, **changes)))
    await until(lambda: scan._scans and scan.view._waiting)
    return resting


async def has_ended(resting: Resting) -> None:
    with pytest.raises(ApplicationError, match="renewed by another scan or given back") as ended:
        await resting
    assert error_type(ended.value) is ErrorType.TRANSIENT
    assert not ended.value.non_retryable, "Temporal begins it anew if it is still wanted"


async def version(person: ApiClient) -> str:
    return str((await person.get(CLUSTER_LEASE))["metadata"]["resourceVersion"])


async def changed(person: ApiClient, since: str) -> str:
    """The next version of the cluster Lease."""
    while (now := await version(person)) == since:
        await asyncio.sleep(0.01)
    return now


async def test_it_renews_the_lease(person: ApiClient, open_scan: Open) -> None:
    await fleet(person)
    await with_policy(person)
    resting = await rest(await open_scan())
    seen = await version(person)
    for _ in range(3):
        seen = await changed(person, seen)
    assert not resting.done()
    resting.cancel()


async def test_s38_one_that_was_given_up_does_not_renew_what_another_worker_gave_back(person: ApiClient, open_scan: Open) -> None:
    """`scan stop` gives it back on another worker, and this one hears of its cancellation much later."""
    await fleet(person)
    await with_policy(person)
    resting = await rest(await open_scan())
    await ActivityEnvironment().run((await open_scan()).release_lease, asked())
    await has_ended(resting)
    with pytest.raises(ApiError, match="404"):
        await person.get(CLUSTER_LEASE)


async def test_s38_one_that_was_given_up_takes_no_lease(person: ApiClient, open_scan: Open) -> None:
    """Its scanner may have stopped before the first policy was there."""
    await fleet(person)
    scan = await open_scan()
    resting = await rest(scan)
    await with_policy(person)
    answered = await resting
    assert (answered.lease.needed, answered.lease.held) == (True, False)
    with pytest.raises(ApiError, match="404"):
        await person.get(CLUSTER_LEASE)
    assert (await observe_until(scan, answered, lambda report: report.lease.held)).checks


async def test_s44_what_the_next_scan_says_elsewhere_is_not_overwritten(person: ApiClient, open_scan: Open) -> None:
    """It sees the other one's status, and would say once more that nothing is wrong."""
    await fleet(person)
    await with_policy(person)
    resting = await rest(await open_scan(), in_flight=())
    other = await open_scan()
    said: list[str] = []

    async def says(text: str) -> bool:
        found = (await person.get(f"{CHECKS}/workers")).get("status") or {}
        said.append(str(found))
        return text in said[-1]

    halted = {"halted": "paused by amy: the network is being rebuilt", "in_flight": ()}
    scanning = asyncio.create_task(observe(other, asked(await observe(other, asked(**halted)), wait=3.0, **halted)))
    await has_ended(resting)
    while not await says("paused by amy"):
        await asyncio.sleep(0.01)
    await scanning
    assert await says("paused by amy"), said


@pytest.mark.parametrize("what", ["another scan", "a stop"])
async def test_it_ends_at_once_where_the_same_worker_is_told(person: ApiClient, open_scan: Open, what: str) -> None:
    """Also without a Lease."""
    await fleet(person)
    scan = await open_scan()
    resting = await rest(scan)
    if what == "another scan":
        await observe(scan, asked(wait=0.2))
    else:
        await ActivityEnvironment().run(scan.release_lease, asked())
    await has_ended(resting)


async def test_where_the_lease_can_not_be_renewed_it_is_kept_until_it_lapses(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    await fleet(person)
    await with_policy(person)
    resting = await rest(await open_scan())
    refused = api.faults.add(Fault(accident=Accident.STATUS, status=503, method="PUT", path="leases", count=2))
    await until(lambda: api.faults.hits(refused) == 2)
    seen = await version(person)
    await changed(person, seen)
    assert not resting.done()
    resting.cancel()


class Reports:
    """What a worker reports as lost, and what keeps it from that."""

    def __init__(self) -> None:
        self.count = 0
        self.away = False

    async def __call__(self) -> None:
        if self.away:
            raise failure(ErrorType.UNREACHABLE, "Temporal is away")
        self.count += 1


async def opened(open_scan: Callable[..., Any], reports: Reports) -> ClusterScan:
    """A worker without a scan that has looked for one for the first time: it may have followed one that died."""
    scan: ClusterScan = await open_scan(report_lost_scan=reports)
    await until(lambda: reports.count == 1)
    return scan


async def test_a_worker_reports_a_scan_that_is_lost_once(person: ApiClient, open_scan: Open) -> None:
    """Where it was killed, or stands still: the Lease is not renewed. As long as it is, nothing is reported."""
    await fleet(person)
    await with_policy(person)
    first, reports = await open_scan(), Reports()
    resting = await rest(first)
    await opened(open_scan, reports)
    seen = await version(person)
    for _ in range(4):
        seen = await changed(person, seen)
    assert reports.count == 1
    resting.cancel()
    reports.away = True
    with pytest.raises(TimeoutError):
        await until(lambda: reports.count > 1, 1.2)
    reports.away = False
    await until(lambda: reports.count == 2)
    with pytest.raises(TimeoutError):
        await until(lambda: reports.count > 2, 1.2)
    (await rest(first)).cancel()
    await until(lambda: reports.count == 3)


async def test_a_worker_without_a_scan_asks_nothing_of_the_api_as_long_as_the_lease_is_renewed(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """A watch shows it each renewal. It was a request every 3 s, of each worker and cluster."""
    await fleet(person)
    await with_policy(person)
    first, reports = await open_scan(), Reports()
    resting = await rest(first)
    second = await opened(open_scan, reports)
    await until(lambda: second.view.watches.follows_cluster_lease)
    before = api.requests.total("get", "leases", "nodewarden")
    seen = await version(person)
    for _ in range(5):
        seen = await changed(person, seen)
    assert api.requests.total("get", "leases", "nodewarden") - before <= 1
    resting.cancel()
    await until(lambda: reports.count == 2)


async def test_s44_a_scanner_that_is_stuck_shows_as_a_metric_as_long_as_it_is(person: ApiClient, open_scan: Open) -> None:
    """Its workflow task fails, and no scan runs: within 15 s each worker shows at which attempt it is."""
    await fleet(person)
    await with_policy(person)
    first, meter, attempts = await open_scan(), Levels(), AsyncMock(return_value=7)
    resting = await rest(first)
    await open_scan(report_lost_scan=Reports(), look_after_scanner=attempts, meter=meter)
    await until(lambda: meter.get(SCANNER_ATTEMPTS.name) == 7, 2)  # it may have followed one that died: it asks at once
    await until(lambda: meter.get(SCANNER_ATTEMPTS.name) == 0)
    resting.cancel()
    await until(lambda: meter.get(SCANNER_ATTEMPTS.name) == 7, 1.5)
    attempts.side_effect = failure(ErrorType.UNREACHABLE, "Temporal is away")
    asked_for = attempts.await_count
    await until(lambda: attempts.await_count > asked_for + 1)
    assert meter.get(SCANNER_ATTEMPTS.name) == 7, "not known anew"


async def test_a_scanner_that_is_stuck_is_looked_after_less_and_less_often(person: ApiClient, open_scan: Open) -> None:
    """Each time is a request to Temporal, of each worker and cluster. Here the Lease is looked at each 0.3 s."""
    await fleet(person)
    await with_policy(person)
    moments = list[float]()

    async def look_after() -> int:
        moments.append(asyncio.get_running_loop().time())
        return 7

    (await rest(await open_scan())).cancel()
    await open_scan(report_lost_scan=Reports(), look_after_scanner=look_after)
    await until(lambda: len(moments) >= 5)
    assert moments[-1] - moments[-2] > 1.0, "with the fifth look"


@pytest.mark.parametrize("why", ["it is given back", "another deployment's", "it scans itself"])
async def test_no_scan_is_reported_as_lost(person: ApiClient, open_scan: Open, why: str) -> None:
    """One that is stopped, and one that is not ours to look after."""
    await fleet(person)
    await with_policy(person)
    reports = Reports()
    scan = await open_scan(report_lost_scan=reports)
    report = await observe_until(scan, None, lambda report: report.lease.held)
    scanning: Resting | None = None
    if why == "it scans itself":
        scanning = asyncio.create_task(observe(scan, asked(report, wait=10.0, rests=True)))
        await until(lambda: scan._scans)
    else:
        await ActivityEnvironment().run(scan.release_lease, asked())
    if why == "another deployment's":
        await observe_until(await open_scan(), None, lambda report: report.lease.held, holder="temporal-b/default")
    reports.count = 0
    with pytest.raises(TimeoutError):
        await until(lambda: reports.count, 2)
    if scanning is not None:
        scanning.cancel()
