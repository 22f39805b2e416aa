"""One scanner per cluster (S38): the Lease is taken, renewed, refused, and taken over by our own clock alone."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta

import pytest

from activities.cluster.acts.cluster_lease import LeaseRenewal, NotAsWritten, ScannerLease
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.lease_view import CLUSTER_LEASE
from activities.cluster.live.cluster_lease import cluster_lease_problem
from policy.scan.scan_report import ClusterLease
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.builders import until
from tests.cluster.skipping import now

pytestmark = pytest.mark.timeout(10)


class Time:
    """A monotonic clock that only the test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def lease(connection: ClusterConnection, time: Time) -> ScannerLease:
    return ScannerLease(connection, monotonic=time)


async def test_it_is_taken_renewed_and_given_back(lease: ScannerLease, connection: ClusterConnection, person: ApiClient) -> None:
    assert await lease.keep("ours") == ClusterLease(held=True, holder="ours")
    first = await person.get(CLUSTER_LEASE)
    assert first["spec"]["leaseDurationSeconds"] == 30
    assert await cluster_lease_problem(connection, "ours", now()) == "", "the last look agrees"
    assert (await lease.keep("ours")).held
    second = await person.get(CLUSTER_LEASE)
    assert second["spec"]["renewTime"] > first["spec"]["renewTime"]
    assert second["spec"]["acquireTime"] == first["spec"]["acquireTime"]
    await lease.release("someone else")
    await person.get(CLUSTER_LEASE)
    await lease.release("ours")
    await lease.release("ours")
    assert (await person.list("/apis/coordination.k8s.io/v1/leases"))["items"] == []


async def test_a_live_foreign_holder_is_named_and_left_alone(
    lease: ScannerLease, connection: ClusterConnection, person: ApiClient, time: Time
) -> None:
    moments = (datetime(2031, 1, 1, tzinfo=UTC) + timedelta(seconds=20 * turn) for turn in itertools.count())
    other = ScannerLease(connection, clock=lambda: next(moments))
    await other.keep("theirs")
    before = await person.get(CLUSTER_LEASE)
    for _ in range(3):
        refused = await lease.keep("ours")
        assert not refused.held
        assert refused.holder == "theirs"
        assert "'theirs' since 2031-01-01" in refused.problem
        time.seconds += 20
        await other.keep("theirs")
    assert (await person.get(CLUSTER_LEASE))["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.parametrize("written", [datetime(2001, 1, 1, tzinfo=UTC), datetime(2051, 1, 1, tzinfo=UTC)])
async def test_only_what_did_not_change_before_our_eyes_is_taken_over(
    lease: ScannerLease, connection: ClusterConnection, person: ApiClient, time: Time, written: datetime
) -> None:
    """Whatever its times say: the clocks of two machines may differ by more than a Lease lasts."""
    await ScannerLease(connection, clock=lambda: written).keep("theirs")
    assert not (await lease.keep("ours")).held
    time.seconds += 29
    assert not (await lease.keep("ours")).held
    time.seconds += 2
    assert (await lease.keep("ours")).held
    spec = (await person.get(CLUSTER_LEASE))["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("ours", 1)


async def test_a_foreign_lease_without_an_end_is_never_taken(
    lease: ScannerLease, person: ApiClient, connection: ClusterConnection, time: Time
) -> None:
    await ScannerLease(connection).keep("theirs")
    await person.patch(CLUSTER_LEASE, {"spec": {"leaseDurationSeconds": None}})
    assert not (await lease.keep("ours")).held
    time.seconds += 100_000
    assert not (await lease.keep("ours")).held


async def test_it_stands_still_while_it_is_neither_renewed_nor_given_back(
    lease: ScannerLease, connection: ClusterConnection, time: Time
) -> None:
    """S36: by our own clock, since we have seen that version."""
    scanner = ScannerLease(connection)
    assert await lease.standstill() is None
    for _ in range(3):
        await scanner.keep("ours")
        for seconds in (0, 90):
            time.seconds += seconds
            seen = await lease.standstill()
            assert seen is not None
            assert (seen.holder, seen.seconds) == ("ours", seconds)
    await scanner.release("ours")
    assert await lease.standstill() is None


async def test_s38_what_was_written_is_renewed_in_that_version_alone(connection: ClusterConnection, person: ApiClient) -> None:
    """By that a worker that was given up without hearing of it finds that another one scans, or that the scanner has stopped."""
    first, second = ScannerLease(connection), ScannerLease(connection)
    with pytest.raises(NotAsWritten):
        await first.keep("ours", as_written=True)
    await first.keep("ours")
    assert (await first.keep("ours", as_written=True)).held
    assert (await second.keep("ours")).held
    written = await person.get(CLUSTER_LEASE)
    with pytest.raises(NotAsWritten):
        await first.keep("ours", as_written=True)
    assert await person.get(CLUSTER_LEASE) == written
    await ScannerLease(connection).release("ours")
    with pytest.raises(NotAsWritten):
        await second.keep("ours", as_written=True)
    assert (await person.list("/apis/coordination.k8s.io/v1/leases"))["items"] == []


async def test_a_renewal_reads_nothing_unless_another_has_written(connection: ClusterConnection, api: ApiServer) -> None:
    lease = ScannerLease(connection)
    await lease.keep("ours")
    before = sum(api.requests.reads.values())
    for _ in range(3):
        await lease.keep("ours")
    assert sum(api.requests.reads.values()) == before
    await ScannerLease(connection).keep("ours")
    assert (await lease.keep("ours")).held


async def test_of_two_takers_one_wins(connection: ClusterConnection) -> None:
    takers = [ScannerLease(connection) for _ in range(5)]
    answers = await asyncio.gather(*(taker.keep(f"scanner-{number}") for number, taker in enumerate(takers)))
    winners = [answer for answer in answers if answer.held]
    assert len(winners) == 1
    assert {answer.holder for answer in answers} == {winners[0].holder}


async def test_a_renewal_whose_answer_is_lost_counts_if_it_arrived(lease: ScannerLease, api: ApiServer) -> None:
    await lease.keep("ours")
    api.faults.add(Fault(accident=Accident.LOSE_ANSWER, method="PUT", count=1))
    assert await lease.keep("ours") == ClusterLease(held=True, holder="ours")


async def test_while_the_api_is_away_it_is_held_until_it_would_lapse(lease: ScannerLease, api: ApiServer, time: Time) -> None:
    await lease.keep("ours")
    api.faults.add(Fault(accident=Accident.REFUSE))
    time.seconds += 29
    still = await lease.keep("ours")
    assert still.held
    assert "cannot renew it" in still.problem
    time.seconds += 2
    assert not (await lease.keep("ours")).held
    assert not (await lease.keep("another name")).held


async def test_renewals_run_beside_the_scans(connection: ClusterConnection, api: ApiServer) -> None:
    changes = 0

    def changed() -> None:
        nonlocal changes
        changes += 1

    keeping = LeaseRenewal(ScannerLease(connection, duration=timedelta(milliseconds=600)), on_change=changed)
    assert not (await keeping.current("ours", needed=False)).needed
    assert sum(api.requests.writes.values()) == 0
    assert (await keeping.current("ours", needed=True)).held
    assert 0 < keeping.seconds_left() <= 0.2
    first = sum(api.requests.writes.values())
    due = asyncio.get_running_loop().time() + keeping.seconds_left()
    await until(lambda: asyncio.get_running_loop().time() > due)
    slow = api.faults.add(Fault(accident=Accident.DELAY, latency=timedelta(milliseconds=100), method="PUT"))
    began = asyncio.get_running_loop().time()
    assert (await keeping.current("ours", needed=True)).held
    assert asyncio.get_running_loop().time() - began < 0.09, "nobody waits for a renewal"
    await until(lambda: sum(api.requests.writes.values()) == first + 1)
    assert api.faults.hits(slow) == 1
    assert changes == 1
    await keeping.stop()
