"""The long poll: exact, quiet, honest about its age, and without a write where nothing asks for one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.scan import ClusterScan
from activities.cluster.api.connection import ClusterConnection, Timeouts
from activities.cluster.api.lease_view import CLUSTER_LEASE
from activities.cluster.watch.freshness import ViewLimits
from activities.cluster.watch.reflector import WatchLimits
from activities.cluster.watch.view import ClusterView
from activities.contracts.scan import OpenEpisode
from activities.errors import ErrorType, error_type
from activities.worker_clock import wrong_clock
from policy.checks.health_check import ACTIVE, COOLING_DOWN
from policy.objects.marks import Mark
from policy.scan.scan_report import ScanReport, SeenVersion
from policy.values.object_refs import Dialect
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient, ApiError
from tests.cluster.builders import CHECKS, DEFINITIONS, NODES, check, conditions, definition, node, until
from tests.cluster.scans import LIVE, OURS, Open, asked, fleet, observe, observe_until, with_policy
from tests.cluster.skipping import now
from tests.policy.builders import mark_metadata

pytestmark = pytest.mark.timeout(15)


async def turn(person: ApiClient, name: str, ready: str, age: float = 0.0) -> None:
    since = now() - timedelta(seconds=age)
    await person.patch(f"{NODES}/{name}/status", {"status": {"conditions": conditions(ready, since)}})


async def test_with_no_policy_nothing_is_ever_written(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    """S38, opt-in: neither Lease nor Event nor status."""
    await fleet(person)
    scan = await open_scan()
    report = await observe(scan, asked())
    again = await observe(scan, asked(report, wait=0.3))
    assert again.digest == report.digest
    assert report.view.stale == ""
    assert report.inventory == 4
    assert not report.lease.needed
    assert report.cluster_uid
    assert {agent: count for agent, count in api.requests.writes.items() if agent.startswith(OURS)} == {}


async def test_something_that_asks_us_to_act_is_prepared_for_once(person: ApiClient, connection: ClusterConnection) -> None:
    prepared = list[tuple[str, ...]]()

    async def prepare(nodes: Sequence[str]) -> None:
        prepared.append(tuple(nodes))

    await fleet(person, 5)
    async with ClusterScan("prod", ClusterView(connection, limits=ViewLimits(grace=timedelta(0))), prepare=prepare) as scan:
        await observe(scan, asked(wait=0.2))
        assert prepared == [], "nothing asks us to act"
        await with_policy(person)
        for _ in range(2):
            await observe(scan, asked(wait=0.5))
        assert prepared == [("node-0", "node-1", "node-2")]


async def test_the_answer_comes_within_milliseconds_of_a_timeout_s_end(person: ApiClient, open_scan: Open) -> None:
    await fleet(person)
    await with_policy(person, duration="1500ms")
    scan = await open_scan()
    report = await observe(scan, asked())
    await turn(person, "node-1", "Unknown")
    report = await observe(scan, asked(report))
    assert report.checks[0].soon == 1
    due = report.next_due
    assert due is not None
    assert due > now()
    report = await observe(scan, asked(report, wait=5.0))
    late = (now() - due).total_seconds()
    assert [candidate.node for candidate in report.candidates] == ["node-1"]
    assert 0 <= late < 0.2


async def test_a_check_that_appears_takes_the_lease_and_one_that_is_bad_is_shown(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    await fleet(person)
    scan = await open_scan()
    report = await observe(scan, asked())
    await with_policy(person)
    report = await observe(scan, asked(report))
    assert report.checks[0].allowed
    assert report.lease.held
    lease = await person.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/nodewarden")
    assert lease["spec"]["holderIdentity"] == "temporal-a/default"
    await person.patch(
        f"{CHECKS}/workers", {"spec": {"minHealthy": None, "selector": {"matchLabels": None, "matchExpressions": None}}}
    )
    report = await observe(scan, asked(report))
    assert "selector" in report.checks[0].error
    await person.delete(f"{CHECKS}/workers")
    report = await observe(scan, asked(report))
    assert report.checks == ()
    assert not report.lease.needed


async def test_only_one_of_two_temporal_servers_gets_a_cluster(person: ApiClient, open_scan: Open) -> None:
    """S38."""
    await fleet(person)
    await with_policy(person)
    first, second = await open_scan(), await open_scan()
    assert (await observe(first, asked())).lease.held
    refused = await observe(second, asked(holder="temporal-b/default"))
    assert not refused.lease.held
    assert refused.lease.holder == "temporal-a/default"
    assert "temporal-a/default" in refused.lease.problem
    await ActivityEnvironment().run(first.release_lease, asked())
    report = await observe(second, asked(refused, holder="temporal-b/default", wait=4.0))
    assert report.lease.held


async def test_a_scan_that_outlives_its_scanner_does_not_take_the_lease_again(person: ApiClient, open_scan: Open) -> None:
    """S38: a cancelled long poll hears of it seconds later; a Lease given back meanwhile stays given back."""
    await fleet(person)
    await person.create(DEFINITIONS, definition())
    await person.create(CHECKS, check())
    scan = await open_scan()
    report = await observe_until(scan, None, lambda report: report.lease.held)
    lingering = asyncio.create_task(observe(scan, asked(report, wait=10.0)))
    await until(lambda: bool(scan.view._waiting))
    await ActivityEnvironment().run(scan.release_lease, asked())
    await person.create(NODES, node("node-9"))
    assert not (await lingering).lease.held
    with pytest.raises(ApiError, match="404"):
        await person.get(CLUSTER_LEASE)
    assert (await observe(scan, asked(wait=0.5))).lease.held, "the next scanner's scan may"


async def test_a_restless_fleet_is_told_at_most_once_a_second(person: ApiClient, open_scan: Open) -> None:
    """Only the lines for people differ here: nothing that a decision could depend on."""
    await fleet(person)
    await with_policy(person, duration="1h")
    await turn(person, "node-1", "False")
    scan = await open_scan()
    report = await observe(scan, asked())
    began = asyncio.get_running_loop().time()
    await person.patch(f"{NODES}/node-1", {"spec": {"unschedulable": True}})
    changed = await observe(scan, asked(report))
    assert changed.digest != report.digest
    assert changed.candidates == report.candidates
    assert 0.9 < asyncio.get_running_loop().time() - began < 1.9
    began = asyncio.get_running_loop().time()
    await turn(person, "node-2", "False")
    closed = await observe(scan, asked(changed))
    assert not closed.checks[0].allowed
    assert asyncio.get_running_loop().time() - began < 0.9, "S17: that a circuit breaker has opened does not wait"


async def own_writes(person: ApiClient, name: str) -> None:
    """For ever: what an episode writes on its node, and the lines that people read of it."""
    for number in count():
        mark = Mark(incident=f"incident-{number}", kind="Fencing", workflow_id=f"episode/prod/{name}").to_json()
        await person.patch(f"{NODES}/{name}", {"metadata": mark_metadata(mark)})
        await person.patch(f"{NODES}/{name}", {"spec": {"unschedulable": number % 2 == 0}})
        await asyncio.sleep(0.2)


@pytest.fixture
async def busy(person: ApiClient, open_scan: Open) -> AsyncIterator[tuple[ClusterScan, ScanReport]]:
    """node-1 is in the hand of an episode that writes all the time; a check with a timeout of 1.5 s that may act."""
    await fleet(person, 12)
    await with_policy(person, duration="1500ms")
    await turn(person, "node-1", "Unknown", age=60)
    scan = await open_scan()
    report = await observe(scan, asked(watching=("node-1",)))
    writing = asyncio.create_task(own_writes(person, "node-1"))
    yield scan, report
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def test_what_an_open_episode_writes_ends_no_poll(person: ApiClient, busy: tuple[ClusterScan, ScanReport]) -> None:
    """It knows what it has written, and nobody decides by it; what becomes of its node is told as ever."""
    scan, report = busy
    in_hand = asked(report, watching=("node-1",), in_flight=(OpenEpisode(node="node-1", since="", incident="i"),))
    known, loop = await observe(scan, in_hand), asyncio.get_running_loop()
    began = loop.time()
    await observe(scan, replace(in_hand, known_digest=known.digest, wait=timedelta(seconds=1.5)))
    assert loop.time() - began > 1.4
    began = loop.time()
    await turn(person, "node-1", "True")
    while not report.seen_nodes[0].ready:
        report = await observe(scan, replace(in_hand, known_digest=report.digest))
    assert loop.time() - began < 0.8


async def test_a_report_that_takes_long_is_drawn_up_rarely_and_a_deadline_breaks_in(
    person: ApiClient, busy: tuple[ClusterScan, ScanReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, report = busy
    drawing, drawn = scan.view.report, list[float]()

    def slowly(**request: Any) -> ScanReport:
        drawn.append(asyncio.get_running_loop().time())
        time.sleep(0.1)
        return drawing(**request)

    monkeypatch.setattr(scan.view, "report", slowly)
    await turn(person, "node-2", "Unknown")
    began = asyncio.get_running_loop().time()
    while not (late := [each for each in report.candidates if each.node == "node-2"]):
        report = await observe(scan, asked(report, watching=("node-1",)))
    assert (report.at - late[0].since).total_seconds() < 1.5 + 1 + 0.3, "the check's timeout, and a second for the API's rounding"
    waited = asyncio.get_running_loop().time() - began
    assert len(drawn) < 4 + 2 * waited, "one a second, and one with which each poll begins, amid ten writes a second"


async def test_a_silent_api_is_noticed_by_the_probe_before_the_watch_would(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S18: every watch is still open, and says nothing."""
    await fleet(person)
    await person.create(DEFINITIONS, definition())
    scan = await open_scan()
    scan.view.connection._timeouts = type(scan.view.connection._timeouts)(read=0.2)
    report = await observe(scan, asked())
    api.faults.add(Fault(accident=Accident.HALF_OPEN, user_agent=OURS))
    api.faults.add(Fault(accident=Accident.DELAY, latency=timedelta(seconds=20), user_agent=OURS))
    report = await observe(scan, asked(report))
    assert "does not answer" in report.view.stale


@pytest.mark.timeout(20)
async def test_a_report_says_when_the_cluster_was_seen_last_however_long_nothing_has_been_heard(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S18, S44: minutes after the API server had stood still, what was shown had been seen a second ago; and a watch that was
    quieter than the others put its own sentence before the better one."""
    await fleet(person)
    loop = asyncio.get_running_loop()
    scan = await open_scan()
    scan.view.connection._timeouts = Timeouts(read=0.2)
    report = await observe_until(scan, None, lambda report: not report.view.stale)
    for _ in range(3):
        report = await observe(scan, asked(report, wait=1))
        assert report.answered_at - report.seen_at < timedelta(seconds=0.6), "it is asked whether it is there each 0.3 s"
    half = api.faults.add(Fault(accident=Accident.HALF_OPEN, user_agent=OURS))
    frozen = api.faults.add(Fault(accident=Accident.DELAY, latency=timedelta(seconds=20), user_agent=OURS))
    stopped, began = now(), loop.time()
    report = await observe_until(scan, report, lambda report: report.view.stale)
    while loop.time() - began < 7:
        assert "does not answer" in report.view.stale
        assert timedelta(0) <= stopped - report.seen_at < timedelta(seconds=0.6)
        report = await observe(scan, asked(report, wait=1))
    for fault in (half, frozen):
        api.faults.remove(fault)
    report = await observe_until(scan, report, lambda report: not report.view.stale)
    assert report.answered_at - report.seen_at < timedelta(seconds=0.6)


async def test_a_watch_that_is_down_makes_what_is_shown_as_old_as_it_is(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S44: the API server answers, and of Nodes nothing is heard."""
    await fleet(person)
    loop, scan = asyncio.get_running_loop(), await open_scan()
    report = await observe_until(scan, None, lambda report: not report.view.stale)
    api.faults.add(Fault(accident=Accident.STATUS, status=503, path="/nodes"))
    api.faults.add(Fault(accident=Accident.CUT_WATCHES, path="/nodes"))
    cut, began = now(), loop.time()
    while loop.time() - began < 3:
        report = await observe(scan, asked(report, wait=1))
    assert "the watch is down on nodes" in report.view.stale
    assert report.seen_at <= cut + timedelta(seconds=0.1)


async def test_within_the_grace_after_start_nothing_may_be_done(person: ApiClient, open_scan: Open) -> None:
    """S18."""
    await fleet(person)
    scan = await open_scan(ViewLimits(grace=timedelta(milliseconds=500)))
    report = await observe(scan, asked())
    assert "watched for less than" in report.view.stale
    report = await observe(scan, asked(report))
    assert report.view.stale == ""


async def test_the_first_check_does_not_begin_the_grace_anew(person: ApiClient, open_scan: Open) -> None:
    """S18: kinds that are followed from now on say nothing of whether nodes could report."""
    await fleet(person)
    scan = await open_scan(ViewLimits(grace=timedelta(seconds=1)))
    report = await observe_until(scan, None, lambda seen: not seen.view.stale)
    since = scan.view._whole_since
    await with_policy(person, duration="300s")
    report = await observe_until(scan, report, lambda seen: seen.checks and not seen.view.stale)
    assert all(each.lists or each.absent for each in scan.view.watches.here())
    assert scan.view._whole_since == since


async def test_a_view_that_is_behind_catches_up_or_says_so(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    """S18: the scanner has seen more through another worker."""
    await fleet(person)
    scan = await open_scan()
    report = await observe(scan, asked())
    api.faults.add(Fault(accident=Accident.HALF_OPEN, path=NODES, user_agent=OURS))
    newer = await person.patch(f"{NODES}/node-1", {"spec": {"unschedulable": True}})
    lists = scan.view.watches.nodes.lists
    caught_up = await observe(scan, asked(report, resource_version=newer["metadata"]["resourceVersion"]))
    assert scan.view.watches.nodes.lists == lists + 1
    assert caught_up.view.stale == ""
    assert not next(row for row in caught_up.rows if row.node == "node-1").schedulable
    api.faults.add(Fault(accident=Accident.STATUS, status=500, verb="list", path=NODES, user_agent=OURS))
    behind = await observe(scan, asked(caught_up, wait=0.5, resource_version=str(api.store.revision + 1)))
    assert behind.view.stale


async def test_a_worker_that_has_not_heard_of_a_pause_another_has_seen_does_not_act_past_it(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S17, S18: the versions of nodes say nothing of how far the health checks have been followed."""
    await fleet(person)
    await with_policy(person, duration="0s")
    await person.create(CHECKS, check("guard", duration="3600s"))
    first, second = await open_scan(), await open_scan()
    for scan in (first, second):
        report = await observe_until(scan, None, lambda seen: len(seen.checks) == 2)
    deaf = api.faults.add(Fault(accident=Accident.HALF_OPEN, path="nodehealthchecks", user_agent=OURS))
    await person.patch(f"{CHECKS}/guard", {"spec": {"pauseRequests": ["maintenance"]}})
    await turn(person, "node-1", "False", age=60)
    api.faults.remove(deaf)
    await first.view.watches.checks()[
        Dialect.MEDIK8S
    ].relist()  # the first worker's watch is a new one, the second's is open and silent
    report = await observe_until(first, report, lambda seen: any(each.reason == "Paused" for each in seen.checks))
    report = await observe_until(first, report, lambda seen: any(each.unhealthy for each in seen.checks))
    assert not report.candidates
    caught_up = await observe(second, asked(report, wait=1.0))
    assert [each.reason for each in caught_up.checks if each.ref.name == "guard"] == ["Paused"]
    assert not caught_up.candidates
    api.faults.add(Fault(accident=Accident.STATUS, status=500, verb="list", path="nodehealthchecks", user_agent=OURS))
    ahead = (SeenVersion(dialect=Dialect.MEDIK8S, version=str(api.store.revision + 1)),)
    behind = await observe(second, asked(caught_up, wait=0.5, check_versions=ahead))
    assert behind.view.stale


async def test_a_mark_of_a_history_that_was_lost_is_dropped(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    """After a restore from a backup the newest version is lower than what the scanner remembers."""
    await fleet(person)
    scan = await open_scan()
    await with_policy(person)
    ahead = str(api.store.revision + 1000)
    marks = {"resource_version": ahead, "check_versions": (SeenVersion(dialect=Dialect.MEDIK8S, version=ahead),)}
    report = await observe(scan, asked(**marks))
    assert report.view.stale == ""
    assert all(int(each.version) <= api.store.revision for each in report.check_versions)
    assert int(report.resource_version) <= api.store.revision
    lists = scan.view.watches.nodes.lists
    await observe(scan, asked(report, wait=0.1, **marks))
    assert scan.view.watches.nodes.lists == lists


async def test_a_worker_that_shuts_down_answers_at_once(person: ApiClient, open_scan: Open) -> None:
    await fleet(person)
    scan = await open_scan()
    report = await observe(scan, asked())
    environment = ActivityEnvironment()
    running = asyncio.create_task(environment.run(scan.observe_cluster, asked(report, wait=60.0)))
    await until(lambda: scan.view._waiting)
    environment.worker_shutdown()
    async with asyncio.timeout(1):
        assert (await running).digest == report.digest


async def test_a_node_with_a_moment_of_no_calendar_holds_up_no_other(person: ApiClient, open_scan: Open) -> None:
    """S18: any kubelet may write its own status, and must not be able to silence the watch over all others."""
    await fleet(person, 6)
    await with_policy(person, duration="0s")
    scan = await open_scan()
    report = await observe(scan, asked())
    bad = [condition | {"lastTransitionTime": "0000-12-31T00:00:00Z"} for condition in conditions("Unknown")]
    await person.patch(f"{NODES}/node-2/status", {"status": {"conditions": bad}})
    report = await observe_until(scan, report, lambda seen: bool(seen.checks[0].soon))
    assert report.view.stale == ""
    assert (report.checks[0].healthy, report.checks[0].soon, report.candidates) == (5, 1, ())
    await turn(person, "node-1", "Unknown", age=60)
    fresh = await open_scan()
    for each in (scan, fresh):
        report = await observe_until(each, None, lambda seen: bool(seen.checks and seen.candidates))
        assert ([candidate.node for candidate in report.candidates], report.view.stale) == (["node-1"], "")


async def test_s41_a_report_that_temporal_would_not_take_is_refused_in_words_until_it_is_shorter(
    person: ApiClient, open_scan: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scanner would be stuck with it for good; so it says why there is no report, and asks again."""
    await fleet(person)
    await with_policy(person)
    scan = await open_scan()
    monkeypatch.setattr("activities.cluster.acts.scan.LARGEST_REPORT", 500)
    with pytest.raises(ApplicationError, match=r"more than 500: \d+ of them are rows, .*node='node-") as refused:
        await observe(scan, asked())
    assert error_type(refused.value) is ErrorType.INVALID_CONFIG
    monkeypatch.undo()
    assert (await observe(scan, asked())).rows


async def test_a_check_that_is_being_deleted_counts_no_more(person: ApiClient, open_scan: Open) -> None:
    """A last look takes it for deleted: a scan that did not would begin the same episode again and again."""
    await fleet(person)
    await with_policy(person, duration="0s")
    await turn(person, "node-1", "Unknown", age=60)
    scan = await open_scan()
    report = await observe_until(scan, None, lambda seen: bool(seen.candidates))
    await person.patch(f"{CHECKS}/workers", {"metadata": {"finalizers": ["example.io/keep"]}})
    await person.delete(f"{CHECKS}/workers")
    report = await observe_until(scan, report, lambda seen: not seen.checks)
    assert report.candidates == ()
    fresh = await open_scan()
    report = await observe(fresh, asked())
    assert (report.checks, report.candidates, report.view.stale) == ((), (), "")


async def test_kinds_that_are_refused_for_a_moment_after_a_restart_are_followed_like_any_other(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S18: a server that was just started refuses everybody (403), then some kinds (429), until it has read what it needs."""
    await fleet(person)
    await with_policy(person)
    scan = await open_scan()
    restarting = api.faults.add(Fault(accident=Accident.STATUS, status=403, verb="list"))
    waiting = asyncio.ensure_future(observe(scan, asked()))
    await asyncio.sleep(0.5)
    api.faults.remove(restarting)
    api.faults.add(Fault(accident=Accident.STATUS, status=429, verb="list", path="healthchecks", count=2, retry_after=1))
    report = await observe_until(scan, await waiting, lambda report: bool(report.checks) and not report.view.stale)
    assert report.view.notice == ""
    assert report.inventory == 4


async def test_a_worker_with_a_wrong_clock_says_so_and_nothing_is_admitted_on_what_it_sees(
    person: ApiClient, open_scan: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S18, S44. It gives the scan back long before its time, with nothing new to tell: another worker may have come."""
    await fleet(person)
    scan = await open_scan()
    await observe_until(scan, None, lambda report: report.inventory == 4 and not report.view.stale)
    monkeypatch.setattr("activities.cluster.acts.scan.DOUBTED_SECONDS", 0.1)
    token = wrong_clock.set("the clock of worker 7@host is 10m ahead of Temporal's")
    try:
        closed = await observe(scan, asked())
        again = await observe(scan, asked(closed, wait=600))
        assert again.digest == closed.digest
    finally:
        wrong_clock.reset(token)
    assert closed.view.stale == "the clock of worker 7@host is 10m ahead of Temporal's"
    assert (await observe_until(scan, closed, lambda report: not report.view.stale)).inventory == 4


async def test_an_inventory_that_halves_node_by_node_is_as_doubtful_as_one_that_halves_at_once(
    person: ApiClient, open_scan: Open
) -> None:
    """S18: a cloud's controller that takes its machines for gone deletes one Node after the other; each report of it has hardly
    fewer than the one before."""
    await fleet(person, 7)
    scan = await open_scan(limits=replace(LIVE, shrunk=timedelta(seconds=20)))
    report = await observe_until(scan, None, lambda report: report.inventory == 7)
    for number in range(3):
        assert report.view.stale == ""
        await person.delete(f"{NODES}/node-{number}")
        report = await observe_until(scan, report, lambda report, left=6 - number: report.inventory == left)
    await person.delete(f"{NODES}/node-3")
    report = await observe_until(scan, report, lambda report: report.inventory == 3 or report.view.stale)
    assert "the inventory fell from 7 nodes to 3" in report.view.stale
    assert report.inventory == 4, "what is remembered is the last size that was believed, or the next worker believes this one"


async def test_a_clock_that_jumps_makes_no_halved_inventory_the_truth(
    person: ApiClient, open_scan: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S18: a worker that was suspended, or whose clock was set right, has not seen it for five minutes."""
    await fleet(person, 4)
    scan = await open_scan(limits=replace(LIVE, shrunk=timedelta(seconds=20)))
    await observe_until(scan, None, lambda report: report.inventory == 4)
    await asyncio.gather(*(person.delete(f"{NODES}/node-{number}") for number in range(3)))
    await until(lambda: len(scan.view.ledger) == 1)
    assert "fell from 4" in scan.view.doubt()
    clock = scan.view._clock
    monkeypatch.setattr(scan.view, "_clock", lambda: clock() + timedelta(hours=1))
    assert "fell from 4" in scan.view.doubt()


async def test_clocks_that_differ_are_told_of_where_people_look(
    person: ApiClient, open_scan: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S44: where the API server's clock is ahead, every timeout lasts that much longer."""
    await fleet(person)
    there = datetime.now(UTC) + timedelta(minutes=10)
    monkeypatch.setattr("activities.cluster.api.connection.moment_in_header", lambda _: there)
    report = await observe(await open_scan(), asked())
    assert "the API server's clock is 10m ahead of this worker's" in report.view.notice


RARELY = WatchLimits(silence=4, first_pause=0.01, longest_pause=0.2)
"""Kinds that are not served are looked for as rarely as in real life."""


async def test_an_idle_hour_costs_no_list(api: ApiServer, person: ApiClient, open_scan: Open) -> None:
    """However often its scanner looks, and whatever kinds are not served; one that comes is followed at once."""
    await fleet(person)
    scan = await open_scan(watches=RARELY)
    report = await observe(scan, asked())
    await until(lambda: scan.view.synced)
    before, lists = sum(api.requests.reads.values()), api.requests.total("list", "nodes", OURS)
    for _ in range(5):
        report = await observe(scan, asked(report, wait=0.3))
    assert sum(api.requests.reads.values()) - before <= 8, "whether the server is there is asked every 0.3 s"
    assert (report.view.stale, api.requests.total("list", "nodes", OURS)) == ("", lists)
    await with_policy(person)
    await observe_until(scan, report, lambda report: bool(report.checks))


async def test_an_outage_is_one_line_when_it_begins_and_one_when_it_ends(
    api: ApiServer, person: ApiClient, open_scan: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """S18: the view is stale meanwhile. In words for people: however many kinds are followed, and however long it lasts."""
    await fleet(person)
    scan = await open_scan(watches=RARELY)
    report = await observe(scan, asked())
    caplog.set_level(logging.INFO)
    caplog.clear()
    await api.stop()
    report = await observe_until(scan, report, lambda report: bool(report.view.stale))
    report = await observe(scan, asked(report, wait=1.0))
    assert len(report.view.stale) < 500
    await api.start()
    assert (await observe_until(scan, report, lambda report: not report.view.stale)).inventory == 4
    told = [record for record in caplog.records if record.name.startswith("activities")]
    assert [record.levelname for record in told] == ["WARNING", "INFO"]
    assert not [record for record in told if "object at 0x" in record.getMessage()]


@pytest.mark.timeout(20)
async def test_once_the_api_answers_again_everything_is_asked_for_at_once(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S18: kinds that the cluster does not have, too. Their tries fail while it is away, and the next one was minutes off."""
    await fleet(person)
    loop = asyncio.get_running_loop()
    scan = await open_scan(watches=WatchLimits(silence=4, first_pause=0.01, longest_pause=8.0, absence=12.0))
    report = await observe_until(scan, None, lambda report: not report.view.stale)
    await api.stop()
    began = loop.time()
    while loop.time() - began < 14:
        report = await observe(scan, asked(report))
    assert any(each.absent and each.problem for each in scan.view.watches.here())
    await api.start()
    began = loop.time()
    await observe_until(scan, report, lambda report: not report.view.stale)
    assert loop.time() - began < 1, "each pause is 4 to 8 s"


async def test_a_kind_that_was_listed_once_and_is_refused_since_holds_up_everything(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S18: what is known of it is out of date; only one that nobody has ever seen is left out, and its checks alone wait."""
    await fleet(person)
    await with_policy(person)
    scan = await open_scan()
    report = await observe_until(scan, None, lambda report: bool(report.checks) and not report.view.stale)
    api.faults.add(Fault(accident=Accident.STATUS, status=403, path="/nodehealthchecks"))
    api.faults.add(Fault(accident=Accident.CUT_WATCHES, path="/nodehealthchecks"))
    report = await observe_until(scan, report, lambda report: bool(report.view.stale or report.view.notice))
    later = await observe(scan, asked(report, wait=3 * LIVE.broken.total_seconds()))
    for seen in (report, later):
        assert "the watch is down on nodehealthchecks" in seen.view.stale
        assert seen.view.notice == ""


async def test_a_view_that_has_not_listed_all_remembers_the_size_that_was_believed(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S18: a worker that has just begun and can't list Nodes knows none, and the next one would believe whatever is left."""
    await fleet(person)
    first = await open_scan()
    report = await observe_until(first, None, lambda report: report.inventory == 4 and not report.view.stale)
    api.faults.add(Fault(accident=Accident.STATUS, status=403, verb="list", path="/nodes"))
    fresh = await open_scan()
    blind = await observe(fresh, asked(report))
    assert (blind.view.synced, bool(blind.view.stale), blind.inventory) == (False, True, 4)


async def test_what_an_api_that_answers_nothing_refuses_for_long_is_followed_like_any_other_once_it_answers(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S18: while not even Nodes are listed nothing is learnt about a single kind. The view is whole with all of them, or not."""
    await fleet(person)
    await with_policy(person)
    scan = await open_scan(limits=replace(LIVE, broken=timedelta(0)))
    outage = api.faults.add(Fault(accident=Accident.STATUS, status=403, verb="list"))
    report = await observe_until(scan, None, lambda _: scan.view.watches.checks()[Dialect.MEDIK8S].problem)
    assert scan.view.watches.unlisted() == {}
    assert (report.view.synced, report.view.notice) == (False, "")
    api.faults.remove(outage)
    await observe_until(scan, report, lambda report: bool(report.checks) and not report.view.stale)


async def test_a_storm_s_cooldown_begins_anew_after_an_outage_without_reports(
    api: ApiServer, person: ApiClient, open_scan: Open
) -> None:
    """S17: nobody saw that all stayed well meanwhile, also where no worker was asked what it sees."""
    began = now().replace(microsecond=0) - timedelta(minutes=2)
    await fleet(person)
    await with_policy(person, stormCooldownDuration="10m")
    since = {"status": "True", "reason": "x", "message": "", "lastTransitionTime": began.isoformat().replace("+00:00", "Z")}
    storm = [{"type": each, **since} for each in (ACTIVE, COOLING_DOWN)]
    await person.patch(f"{CHECKS}/workers/status", {"status": {"conditions": storm}})
    scan = await open_scan(limits=replace(LIVE, broken=timedelta(0)))
    report = await observe_until(scan, None, lambda report: bool(report.checks) and not report.view.stale)
    assert report.checks[0].storm_cooling == began
    refused = api.faults.add(Fault(accident=Accident.STATUS, status=503, path="/nodes"))
    cut = api.faults.add(Fault(accident=Accident.CUT_WATCHES, path="/nodes"))
    await until(lambda: not scan.view.watches.nodes.streaming)
    for fault in (refused, cut):
        api.faults.remove(fault)
    await until(lambda: scan.view.watches.nodes.streaming)
    report = await observe(scan, asked(report))
    assert report.view.stale == ""
    assert report.checks[0].storm_cooling is not None
    assert report.checks[0].storm_cooling > began


async def test_what_we_write_into_a_check_s_status_makes_no_report(person: ApiClient, open_scan: Open) -> None:
    """Each episode has it written several times."""
    await fleet(person)
    await with_policy(person)
    scan = await open_scan()
    await observe_until(scan, None, lambda report: bool(report.checks) and not report.view.stale)
    view, before = scan.view, scan.view.stamp
    await person.patch(f"{CHECKS}/workers/status", {"status": {"observedNodes": 4, "reason": "as we would have it"}})
    await until(lambda: view.check_objects["NodeHealthCheck/workers"].get("status", {}).get("reason") == "as we would have it")
    assert view.stamp == before


async def test_a_report_is_drawn_up_anew_where_something_has_changed_and_to_be_answered(
    person: ApiClient, open_scan: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S18: what is answered was seen just before, however long nothing had changed."""
    await fleet(person)
    await with_policy(person)
    scan = await open_scan(limits=replace(LIVE, probe=timedelta(seconds=30), silence=timedelta(seconds=60)))
    known = await observe_until(scan, None, lambda report: bool(report.checks) and not report.view.stale)
    drawn, draw_up = list[ScanReport](), scan.view.report

    def drawn_up(**given: Any) -> ScanReport:
        drawn.append(draw_up(**given))
        return drawn[-1]

    monkeypatch.setattr(scan.view, "report", drawn_up)
    polling = asyncio.create_task(observe(scan, asked(known, wait=2.0)))
    await until(lambda: drawn)
    await asyncio.sleep(0.2)
    at_first = len(drawn)
    for _ in range(5):
        scan.view.look_again()
        await asyncio.sleep(0.06)
    assert len(drawn) == at_first
    answered = await polling
    assert answered.at == drawn[-1].at
    assert len(drawn) > at_first
