"""What a NodeHealthCheck's status and Events say of our work, and that saying it once is enough."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.scan import ClusterScan
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.api.refusals import ATTEMPTS
from activities.cluster.objects.check_statuses import Situation, condition_of, status_change
from activities.cluster.report.status_writer import DROPPED_FOR, Published
from activities.cluster.watch.freshness import ViewLimits
from activities.cluster.watch.view import ClusterView
from activities.contracts.scan import OpenEpisode
from policy.episode.nodefence import node_fence_name
from policy.objects.remediations import RemediationObject
from policy.scan.admission import Refused
from policy.scan.scan_report import CheckReport, ClusterLease
from policy.values.mode import Mode
from policy.values.object_refs import ObjectRef
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.builders import CHECKS, DEFINITIONS, NODES, check, conditions, definition, node, until
from tests.cluster.scans import Open, asked, fleet, observe
from tests.cluster.skipping import now

pytestmark = pytest.mark.timeout(10)

REF = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers")
OPEN = CheckReport(ref=REF, uid="u", generation=3, total=12, healthy=11, unhealthy=1, remaining=4, allowed=True)
CLOSED = replace(
    OPEN, healthy=2, unhealthy=10, allowed=False, reason="TooManyUnhealthy", message="2 of 12 nodes are healthy, needs 7"
)
BAD = CheckReport(
    ref=REF, uid="u", reason="InvalidObject", message="x", error="NodeHealthCheck/workers: spec.minHealthy: expected ..."
)
AT = datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)
EPISODE = OpenEpisode(node="node-1", since="2026-11-21T09:59:00+00:00", incident="inc-1")
EVENTS = "/api/v1/namespaces/default/events"


def change(report: CheckReport, current: dict[str, Any], in_flight: tuple[OpenEpisode, ...] = ()) -> dict[str, Any]:
    """The status after the patch, as a merge patch leaves it, with the reasons of the Events beside it."""
    made = status_change(Situation(report=report, current=current, unhealthy=["node-1"], in_flight=in_flight), AT)
    if made is None:
        return {**current, "told": []}
    merged = {**current, **made.patch["status"]}
    merged["inFlightRemediations"] = {k: v for k, v in (merged.get("inFlightRemediations") or {}).items() if v is not None}
    return {**merged, "told": [happening.reason for happening in made.happenings]}


def told(status: dict[str, Any]) -> list[str]:
    reasons: list[str] = status.pop("told")
    return reasons


@pytest.mark.parametrize(
    ("report", "in_flight", "phase", "disabled", "allowed"),
    [
        (OPEN, (), "Enabled", "False", "True"),
        (OPEN, (EPISODE,), "Remediating", "False", "True"),
        (
            replace(OPEN, paused="upgrade", allowed=False, reason="Paused", message="paused: upgrade"),
            (),
            "Paused",
            "False",
            "False",
        ),
        (CLOSED, (), "Enabled", "False", "False"),
        (CLOSED, (EPISODE,), "Remediating", "False", "False"),
        (BAD, (), "Disabled", "True", "False"),
    ],
)
def test_the_phase_and_the_conditions(
    report: CheckReport, in_flight: tuple[OpenEpisode, ...], phase: str, disabled: str, allowed: str
) -> None:
    status = change(report, {}, in_flight)
    assert status["phase"] == phase
    assert condition_of(status, "Disabled")["status"] == disabled
    assert condition_of(status, "RemediationAllowed")["status"] == allowed
    assert status["reason"]


def test_nodes_in_remediation_are_listed_as_medik8s_users_expect() -> None:
    status = change(OPEN, {}, (EPISODE,))
    assert status["observedNodes"] == 12
    assert status["healthyNodes"] == 11
    assert status["inFlightRemediations"] == {"node-1": "2026-11-21T09:59:00Z"}
    [listed] = status["unhealthyNodes"]
    assert listed["name"] == "node-1"
    assert listed["remediations"][0]["started"] == "2026-11-21T09:59:00Z"
    fence = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "NodeFence", "name": node_fence_name("node-1")}
    assert listed["remediations"][0]["resource"] == fence
    assert status["lastUpdateTime"] == "2026-11-21T10:00:00Z"


def test_remediation_objects_are_listed_as_the_operator_lists_them() -> None:
    """Each with its template and, once its time is over, since when; and whose node is well but not for long enough yet."""
    made = RemediationObject(
        ref=ObjectRef(api_version="s/v1", kind="SelfNodeRemediation", name="node-1-abc", namespace="ops"),
        target="node-1",
        uid="uid-of-it",
        created=AT - timedelta(minutes=2),
        template="soft",
        timed_out=AT - timedelta(minutes=1),
        well_since=AT - timedelta(seconds=5),
    )
    episode = replace(EPISODE, kind="Remediation")
    situation = Situation(report=OPEN, current={}, unhealthy=["node-1"], in_flight=(episode,), objects={"node-1": [made]})
    found = status_change(situation, AT)
    assert found is not None
    [listed] = found.patch["status"]["unhealthyNodes"]
    theirs, ours = listed["remediations"]
    assert theirs == {
        "resource": {
            "apiVersion": "s/v1",
            "kind": "SelfNodeRemediation",
            "namespace": "ops",
            "name": "node-1-abc",
            "uid": "uid-of-it",
        },
        "started": "2026-11-21T09:58:00Z",
        "templateName": "soft",
        "timedOut": "2026-11-21T09:59:00Z",
    }
    assert ours["resource"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1"}, "where there is no NodeFence"
    assert (listed["healthyDelayed"], listed["conditionsHealthyTimestamp"]) == (True, "2026-11-21T09:59:55Z")


def test_what_its_owner_should_know_of_a_check_is_a_condition_until_it_is_mended() -> None:
    """Checks that share sick targets, and one whose budget could cost the quorum."""
    doubtful = replace(OPEN, overlaps=("NodeHealthCheck/gpu",), mixed_control_plane=True)
    status = change(doubtful, {})
    shared, mixed = (condition_of(status, each) for each in ("OverlappingHealthChecks", "MixedControlPlane"))
    assert (shared["status"], mixed["status"]) == ("True", "True")
    assert shared["message"] == "NodeHealthCheck/workers and NodeHealthCheck/gpu cover the same sick targets"
    assert "set maxUnhealthy to 1" in mixed["message"]
    mended = change(OPEN, status)
    assert {"OverlappingHealthChecks", "MixedControlPlane"}.isdisjoint(each["type"] for each in mended["conditions"])


@pytest.mark.parametrize("paused", ["", "upgrade"])
def test_a_check_says_which_of_its_episodes_need_a_person(paused: str) -> None:
    """S44: after what stops all, and with the command that says what to do; also by a condition that all dialects have."""
    report = replace(OPEN, paused=paused, allowed=not paused, reason="Paused" if paused else "")
    asking = replace(EPISODE, needs_person=True)
    status = change(report, {}, (asking, replace(EPISODE, node="node-2", incident="inc-2")))
    words = "a person is needed for node-1: `nodewarden status` says what to do"
    condition = condition_of(status, "NeedsPerson")
    assert (condition["status"], condition["message"]) == ("True", words)
    assert status["reason"].startswith(f"paused: {paused}; {words}" if paused else words)
    assert condition_of(change(report, status, (EPISODE,)), "NeedsPerson") == {}


def test_a_status_that_says_it_already_is_left_alone() -> None:
    for report, in_flight in ((OPEN, ()), (CLOSED, (EPISODE,)), (BAD, ()), (OPEN, (replace(EPISODE, since=""),))):
        status = change(report, {}, in_flight)
        told(status)
        situation = Situation(report=report, current=status, unhealthy=["node-1"], in_flight=in_flight)
        again = status_change(situation, AT + timedelta(hours=1))
        assert again is None


def test_conditions_of_others_and_times_of_unchanged_ones_stay() -> None:
    foreign = {"type": "TheirOwn", "status": "False", "reason": "X", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    first = change(OPEN, {"conditions": [foreign]})
    told(first)
    later = status_change(Situation(report=CLOSED, current=first), AT + timedelta(minutes=5))
    assert later is not None
    status = later.patch["status"]
    assert status["conditions"][0] == foreign
    assert condition_of(status, "Disabled")["lastTransitionTime"] == "2026-11-21T10:00:00Z"
    assert condition_of(status, "RemediationAllowed")["lastTransitionTime"] == "2026-11-21T10:05:00Z"


def test_events_are_told_when_something_flips_and_only_then() -> None:
    status = change(OPEN, {})
    assert told(status) == [], "a closed circuit breaker is nothing new"
    status = change(CLOSED, status)
    assert told(status) == ["RemediationSkipped"]
    status = change(replace(CLOSED, healthy=1, message="1 of 12 nodes are healthy, needs 7"), status)
    assert told(status) == [], "still closed"
    status = change(OPEN, status, (EPISODE,))
    assert told(status) == ["RemediationAllowed", "RemediationCreated"]
    status = change(BAD, status, (EPISODE,))
    assert told(status) == ["Disabled"]
    status = change(OPEN, status)
    assert told(status) == ["Enabled", "RemediationRemoved"]
    assert status["inFlightRemediations"] == {}


def test_an_episode_that_waits_for_its_first_permit_has_begun_nothing_and_one_that_waits_again_has_not_ended() -> None:
    queued = replace(EPISODE, queued=True)
    status = change(OPEN, {}, (queued,))
    assert (told(status), status["phase"], status["inFlightRemediations"]) == ([], "Enabled", {})
    assert status["reason"] == "waiting for a permit: node-1"
    status = change(OPEN, status, (EPISODE,))
    assert (told(status), status["phase"], status["reason"]) == (["RemediationCreated"], "Remediating", "remediating node-1")
    status = change(OPEN, status, (queued,))
    assert (told(status), [*status["inFlightRemediations"]]) == ([], ["node-1"])
    assert (status["phase"], status["reason"]) == ("Remediating", "waiting for a permit: node-1")


def test_a_check_that_may_act_on_some_nodes_only_says_on_how_many() -> None:
    """S52: a person who has armed one rack reads that it is one, in the condition and in the Event."""
    observed = replace(OPEN, allowed=False, reason="Observed", message="the mode of all its targets is observe")
    before = change(observed, {})
    told(before)
    armed = replace(OPEN, modes=((Mode.OBSERVE, 9), (Mode.REPAIR, 3)), message="12 of 12 nodes are healthy")
    found = status_change(Situation(report=armed, current=before), AT)
    assert found is not None
    some = "only on 3 of 12, the mode of the others is observe; "
    assert condition_of(found.patch["status"], "RemediationAllowed")["message"] == f"{some}the check may act"
    assert [each.message for each in found.happenings] == [
        f"new remediations are allowed again: {some}12 of 12 nodes are healthy"
    ]


def test_a_mistake_in_a_check_does_not_end_its_storm() -> None:
    """S17: the conditions are the storm's memory; the check that is mended is read from them."""
    stormy = replace(CLOSED, storm_active=AT - timedelta(minutes=3), storm_cooling=AT - timedelta(minutes=1))
    status = change(stormy, {})
    before = [condition_of(status, kind) for kind in ("StormActive", "StormCooldownActive")]
    assert [each["status"] for each in before] == ["True", "True"]
    told(status)
    status = change(BAD, status)
    assert [condition_of(status, kind) for kind in ("StormActive", "StormCooldownActive")] == before


@pytest.fixture
async def scan(person: ApiClient, open_scan: Open) -> ClusterScan:
    await person.create(DEFINITIONS, definition())
    await fleet(person)
    opened: ClusterScan = await open_scan()
    return opened


async def with_check(scan: ClusterScan, person: ApiClient, **spec: Any) -> None:
    await person.create(CHECKS, check(**spec))
    await until(lambda: scan.view.check_objects)


async def reports(scan: ClusterScan) -> tuple[CheckReport, ...]:
    """Of a poll that tells nobody anything."""
    return (await observe(scan, asked())).checks


async def publish(scan: ClusterScan, checks: tuple[CheckReport, ...], **more: Any) -> Published:
    seen = replace(scan.view.report(lease=ClusterLease(held=True)), checks=checks)
    return await scan.publishing.publish(seen, **more)


async def test_a_status_is_written_once_and_again_only_when_it_differs(
    scan: ClusterScan, api: ApiServer, person: ApiClient
) -> None:
    await with_check(scan, person, duration="0s")
    checks = await reports(scan)
    assert await publish(scan, checks) == Published(written=1)
    generation = (await person.get(f"{CHECKS}/workers"))["metadata"]["generation"]
    before = api.requests.total("patch", "nodehealthchecks")
    for _ in range(3):
        assert await publish(scan, checks) == Published(written=0)
    assert api.requests.total("patch", "nodehealthchecks") <= before + 1, "at most one, against our own older copy"
    await person.patch(f"{NODES}/node-1/status", {"status": {"conditions": conditions("False", now() - timedelta(hours=1))}})
    await until(lambda: scan.view.ledger.report_parts(now(), ()).candidates)
    episode = OpenEpisode(node="node-1", since=now().isoformat(), incident="inc-1")
    assert (await publish(scan, await reports(scan), in_flight=(episode,))).written == 1
    found = await person.get(f"{CHECKS}/workers")
    assert found["status"]["phase"] == "Remediating"
    assert list(found["status"]["inFlightRemediations"]) == ["node-1"]
    assert (found["status"]["observedNodes"], found["status"]["healthyNodes"]) == (4, 3)
    assert found["metadata"]["generation"] == generation
    await publish(scan, await reports(scan))
    found = await person.get(f"{CHECKS}/workers")
    assert not found["status"].get("inFlightRemediations")
    events = [event["reason"] for event in (await person.list(EVENTS))["items"]]
    assert sorted(events) == ["DetectedUnhealthy", "RemediationCreated", "RemediationRemoved"]


async def test_a_check_says_who_keeps_all_from_being_begun_and_goes_on_afterwards(scan: ClusterScan, person: ApiClient) -> None:
    """S44: phase, reason, condition and one Event. A mistake in the check goes first; who stops the scanner has the last word."""
    await with_check(scan, person)
    await reports(scan)
    paused, stopped = "paused by ada until somebody ends it: drill", "the scanner was stopped by bob: for good"

    async def says() -> tuple[str, str, str]:
        status = (await person.get(f"{CHECKS}/workers"))["status"]
        condition = condition_of(status, "RemediationAllowed")
        return status["phase"], status["reason"], f"{condition['status']} {condition['reason']}: {condition['message']}"

    checks = await reports(scan)
    for halted in (paused, paused, ""):
        await publish(scan, checks, halted=halted)
        assert await says() == (
            ("Paused", halted, f"False Halted: {halted}")
            if halted
            else ("Enabled", "enabled, no ongoing remediation", "True RemediationAllowed: the check may act")
        )
    change_told = change(replace(BAD, uid=""), {})["reason"]
    await publish(scan, (replace(BAD, uid=""),), halted=paused)
    assert (await says())[1] == change_told
    await observe(scan, asked())
    await ActivityEnvironment().run(scan.release_lease, asked(in_flight=(), halted=stopped))
    assert (await says())[:2] == ("Paused", stopped)
    skipped = [event["message"] for event in (await person.list(EVENTS))["items"] if event["reason"] == "RemediationSkipped"]
    assert set(skipped) == {f"no new remediation: {paused}", f"no new remediation: {stopped}"}


def poll(scan: ClusterScan, *in_flight: OpenEpisode, known: str = "", number: int = 0) -> asyncio.Task[Any]:
    """A scanner's long poll, which knows who is in flight."""
    return asyncio.create_task(observe(scan, asked(wait=5.0, known_digest=known, in_flight=in_flight, number=number)))


async def phase_of(worker: ClusterScan, person: ApiClient) -> str:
    """What the check says a moment after that worker had reason to look."""
    worker.view.wake_scans()
    await asyncio.sleep(0.1)
    return str((await person.get(f"{CHECKS}/workers")).get("status", {}).get("phase"))


async def test_polls_write_the_status_once_a_second_at_most_and_the_last_word_all_the_same(
    scan: ClusterScan, api: ApiServer, person: ApiClient
) -> None:
    """S44."""
    await with_check(scan, person)
    await reports(scan)
    assert api.requests.total("patch", "nodehealthchecks") == 0, "who is in flight is not known yet"
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(20):
        await poll(scan, replace(EPISODE, since=f"2026-11-21T09:{number:02}:00+00:00"))
        await asyncio.sleep(0.05)
    writes = api.requests.total("patch", "nodehealthchecks")
    assert 1 <= writes <= 2 * (1 + loop.time() - began), "each write and at most one against our own older copy"
    lingering = poll(scan, EPISODE, known=(await poll(scan, EPISODE)).digest)

    async with asyncio.timeout(2.5):
        while True:
            (listed,) = (await person.get(f"{CHECKS}/workers"))["status"]["unhealthyNodes"]
            if [each["started"] for each in listed["remediations"]] == ["2026-11-21T09:59:00Z"]:
                break
            await asyncio.sleep(0.05)
    lingering.cancel()


async def test_an_older_poll_that_has_not_heard_of_its_end_publishes_nothing(scan: ClusterScan, person: ApiClient) -> None:
    await with_check(scan, person)
    known = (await observe(scan, asked())).digest

    older = poll(scan, EPISODE, known=known)
    async with asyncio.timeout(2.5):
        while await phase_of(scan, person) != "Remediating":
            pass
    newer = poll(scan, known=known)
    async with asyncio.timeout(2.5):
        while await phase_of(scan, person) != "Enabled":
            pass
    assert {await phase_of(scan, person) for _ in range(15)} == {"Enabled"}
    assert not older.done()
    older.cancel()
    newer.cancel()


async def test_a_check_that_vanished_is_no_failure_and_one_that_cannot_be_written_holds_up_no_other(
    scan: ClusterScan, api: ApiServer, person: ApiClient
) -> None:
    for name in ("first", "second", "third"):
        await person.create(CHECKS, check(name))
    await until(lambda: len(scan.view.check_objects) == 3)
    checks = await reports(scan)
    await person.delete(f"{CHECKS}/first")
    api.faults.add(Fault(accident=Accident.STATUS, status=403, method="PATCH", path="second"))
    assert await publish(scan, checks) == Published(written=1, failed=("NodeHealthCheck/second",))


async def test_a_refusal_is_told_once_on_its_check_and_on_the_sick_node(scan: ClusterScan, person: ApiClient) -> None:
    """A step that a policy skips is told where people look first."""
    await person.create(CHECKS, check(duration="0s"))
    patch = {"status": {"conditions": conditions("Unknown", now() - timedelta(hours=1))}}
    await person.patch(f"{NODES}/node-1/status", patch)
    await until(lambda: [candidate.node for candidate in scan.view.ledger.report_parts(now(), ()).candidates] == ["node-1"])
    refusal = Refused(node="node-1", check=REF, reason="CapReached", message="1 of 1 in use: node-2")
    for _ in range(3):
        await publish(scan, (), refusals=(refusal,))
    told = {each["involvedObject"]["kind"]: each for each in (await person.list(EVENTS))["items"]}
    on_check, on_node = told["NodeHealthCheck"], told["Node"]
    assert (on_check["count"], "Node/node-1" in on_check["message"]) == (1, True)
    assert on_check["involvedObject"]["uid"] == (await person.get(f"{CHECKS}/workers"))["metadata"]["uid"]
    assert (on_node["reason"], on_node["type"], on_node["count"]) == ("FencingSkipped", "Normal", 1)
    assert on_node["message"] == "not fenced for NodeHealthCheck/workers: 1 of 1 in use: node-2"
    assert on_node["involvedObject"]["uid"] == (await person.get(f"{NODES}/node-1"))["metadata"]["uid"]


async def test_an_event_that_could_not_be_counted_is_not_taken_for_told(
    scan: ClusterScan, api: ApiServer, person: ApiClient
) -> None:
    await with_check(scan, person)
    uid = (await person.get(f"{CHECKS}/workers"))["metadata"]["uid"]
    refusal = Refused(node="node-1", check=REF, reason="Quorum", message="too few")
    happening = Happening(
        about=REF, uid=uid, reason="RemediationSkipped", message="nothing is begun for Node/node-1: too few", warning=True
    )
    async with ClusterConnection.to(api.url, token="abc") as other:
        await EventRecorder(other).publish(happening)
    api.faults.add(Fault(accident=Accident.STATUS, status=409, method="PATCH", path="/events/", count=ATTEMPTS))
    missed = await publish(scan, (), refusals=(refusal,))
    assert missed.failed == ("Event RemediationSkipped on NodeHealthCheck/workers",)
    assert await publish(scan, (), refusals=(refusal,)) == Published(written=0)
    [event] = (await person.list(EVENTS))["items"]
    assert event["count"] == 2


async def test_a_field_that_the_server_has_dropped_is_written_again_later(
    person: ApiClient, connection: ClusterConnection
) -> None:
    """S17: the conditions are a storm's memory; a definition without them is brought up to date without a word to us."""
    passed = timedelta(0)
    older = definition()
    for version in older["spec"]["versions"]:
        status = {"type": "object", "properties": {name: {"type": "string"} for name in ("phase", "lastUpdateTime")}}
        version["schema"]["openAPIV3Schema"]["properties"]["status"] = status
    await person.create(DEFINITIONS, older)
    await person.create(NODES, node("node-1"))
    await person.create(CHECKS, check())
    async with ClusterScan(
        "prod",
        ClusterView(connection, limits=ViewLimits(grace=timedelta(0)), clock=lambda: now() + passed),
        clock=lambda: now() + passed,
    ) as scan:
        await until(lambda: scan.view.check_objects)
        assert (await publish(scan, await reports(scan))).written == 1
        assert (await publish(scan, await reports(scan))).written == 0, "it would be dropped again"
        versions = definition()["spec"]["versions"]
        await person.patch(f"{DEFINITIONS}/{older['metadata']['name']}", {"spec": {"versions": versions}})
        assert (await publish(scan, await reports(scan))).written == 0
        passed = DROPPED_FOR
        assert (await publish(scan, await reports(scan))).written == 1
    assert condition_of((await person.get(f"{CHECKS}/workers"))["status"], "RemediationAllowed")
