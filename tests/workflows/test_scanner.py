"""The scanner: admits what policy allows, reserves before it opens, loses nothing over continue-as-new, stop and terminate."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowFailureError, WorkflowHistory
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import EpisodeDescription, FoundOpen, Opened
from policy.checks.circuit_breakers import OpenReason
from policy.checks.health_check import HealthCheck
from policy.checks.inventory import ControlPlane
from policy.episode.messages import FencingInput, NeedKind, Phase, SeenNode, episode_id
from policy.episode.node_action import CIRCUIT_BREAKER
from policy.episode.permits import (
    PermitDecision,
    PermitQuestion,
    PermitQuestions,
    PermitRequest,
    PermitState,
    Portion,
    PortionRequest,
    ScannerQuestion,
)
from policy.objects.nodes import Condition
from policy.remediation.ladder import EscalationStep
from policy.remediation.strategy_rules import Strategy
from policy.scan.repeat_alarm import RepeatAlarm
from policy.scan.scan_report import ClusterLease, LeftOver, ScanReport, ViewState
from tests.policy.builders import a_check, a_node, ago, ledger_of
from tests.replay.divergence import diverges
from tests.workflows.scanner_run import CHECK, NOW, Scan, ScriptedCluster, candidate, check, report, report_of, scanning
from tests.workflows.surroundings import eventually, let_pass, worker
from workers.interceptors.activity_guards import pause_between_beats
from workflows.definitions.scanner import HealthScanner
from workflows.kit import continuation, options
from workflows.kit.continuation import HISTORY_LIMIT
from workflows.kit.messages import PauseRequest, StopRequest
from workflows.scanner.hold_offs import CLOSING
from workflows.scanner.permits import LIST_LAG
from workflows.scanner.state import ScannerInput, ScannerState
from workflows.scanner.story import AT_REST, BREATH, HASTY_IN_A_ROW, Poll, ScannerStory

SCANS_OF_A_RUN = HISTORY_LIMIT // 6
"""Three events of its activity and three of the task that hears of it: so many scans fill a history."""


async def test_what_another_systems_object_asks_for_is_opened_in_its_name_and_a_refusal_is_published(
    env: WorkflowEnvironment,
) -> None:
    """S13, S14: the same table; where no health check is there, whoever is refused hears of it all the same."""
    asking = replace(CHECK, kind="FenceAgentsRemediation", name="node-1", namespace="medik8s")
    wish = replace(
        candidate("node-1"), check=asking, need=NeedKind.FOREIGN_OBJECT, object_uid="uid-far", delegate="NodeHealthCheck-workers"
    )
    refused = replace(candidate("node-2"), check=replace(asking, name="node-2"), refused="another controller acts")
    world = ScriptedCluster(report("node-1", checks=(), candidates=(wish, refused)))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.opened == 1)
        need = world.opened[0].need
        assert (need.kind, need.check, need.object_uid) == (NeedKind.FOREIGN_OBJECT, asking, "uid-far")
        assert need.delegate == "NodeHealthCheck-workers"
        await eventually(env, lambda: [each.check.name for each in world.requests[-1].refusals] == ["node-2"])


async def test_a_candidate_gets_its_episode_with_a_permit_reserved_before(env: WorkflowEnvironment) -> None:
    """S14: the line stands in the table before anything is opened; the episode is told who grants."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        opened = world.opened[0]
        assert (opened.node, opened.permit_granted, opened.holder) == ("node-1", True, "us")
        assert opened.need.kind is NeedKind.CHECK
        status = await scan.until(lambda status: bool(status.permits))
        assert status.permits[0].incident == opened.incident
        asked = [PermitQuestion(node="node-1", incident=incident) for incident in (opened.incident, "other")]
        answer = await scan.handle.query(HealthScanner.holds_permits, PermitQuestions(questions=tuple(asked)))
        assert [(each.incident, each.held) for each in answer.questions] == [(opened.incident, True), ("other", False)]


async def test_one_node_at_a_time_and_the_next_at_once_after_a_release(env: WorkflowEnvironment) -> None:
    """S14: the cap counts; a release lets the next in without waiting for a scan."""
    world = ScriptedCluster(report("node-1", "node-2", "node-3"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        status = await scan.until(lambda status: len(status.refused) == 2)
        assert {refused.reason for refused in status.refused} == {"CapReached"}
        scans = len(world.requests)
        await scan.release(world.opened[0])
        await scan.has_opened(2)
        assert world.opened[1].node == "node-2"
        assert len(world.requests) <= scans + 1


async def test_a_parked_episode_gives_its_permit_back_and_keeps_its_node(env: WorkflowEnvironment) -> None:
    """S13, S14: the next node is served, the parked one gets no second episode."""
    world = ScriptedCluster(report("node-1", "node-2"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], parked=True, outcome="", problem="the BMC says on")
        await scan.has_opened(2)
        held = [PermitState.PARKED, PermitState.OPEN]
        await scan.until(lambda status: [permit.state for permit in status.permits] == held)
        asked = tuple(PermitQuestion(node=each.node, incident=each.incident) for each in world.opened)
        answer = await scan.handle.query(HealthScanner.holds_permits, PermitQuestions(questions=asked))
        assert [each.held for each in answer.questions] == [False, True]


@pytest.mark.parametrize(
    "unfit",
    [
        {"view": ViewState(synced=True, stale="nothing was heard for 75 s")},
        {"lease": ClusterLease(held=False, holder="somebody else", problem="held by somebody else")},
    ],
    ids=["stale view", "foreign lease"],
)
async def test_nothing_is_opened_without_a_live_view_and_the_cluster_lease(
    env: WorkflowEnvironment, unfit: dict[str, object]
) -> None:
    """S18, S38."""
    world = ScriptedCluster(report("node-1", **unfit))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 1 and bool(status.refused))
        assert world.opened == []


async def test_a_report_that_is_long_past_admits_no_node(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """S18: without a worker no scan fails, it is only not answered; what was true then is not acted upon now."""
    monkeypatch.setattr(options, "SCAN_GRACE", timedelta(seconds=1))
    world = ScriptedCluster(report("node-1", "node-2"))
    async with scanning(env, world, wait=timedelta(seconds=1)) as scan:
        await scan.has_opened(1)
        await let_pass(env, scan.handle, timedelta(seconds=2.5))  # scans time out meanwhile, and are tried again
        await scan.release(world.opened[0])
        await scan.until(lambda status: not status.permits)
        await let_pass(env, scan.handle, timedelta(seconds=0.5))
        assert len(world.opened) == 1
        world.show(report("node-2"))
        await scan.has_opened(2)


async def test_where_the_cluster_has_lost_its_workers_no_node_is_admitted_by_an_old_report(env: WorkflowEnvironment) -> None:
    """S17, S18, S44: what has taken them may have taken half of the nodes as well. They are missed in seconds, and not only once
    their scan would have been over."""
    world = ScriptedCluster(report("node-1", "node-2"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.loses_the_cluster()
        lost_at = await env.get_current_time(scan.handle)
        await scan.until(lambda status: "no worker" in status.problem)
        assert await env.get_current_time(scan.handle) - lost_at < timedelta(seconds=40)
        await scan.release(world.opened[0], parked=True)
        await scan.until(lambda status: status.permits[0].state is PermitState.PARKED)
        await let_pass(env, scan.handle, timedelta(seconds=2))
        assert len(world.opened) == 1
        asked = await scan.ask("node-3")
        assert (asked.decision, "no worker" in asked.reason) == (PermitDecision.REFUSED, True)


async def test_a_scan_that_brings_nothing_is_followed_by_a_longer_one_which_all_that_comes_ends(env: WorkflowEnvironment) -> None:
    """While nothing is in hand. What the scanner knows may be too old by then to act on (S18): the next scan answers at once."""
    world = ScriptedCluster(idle=1)
    async with scanning(env, world) as scan:
        await eventually(env, lambda: len(world.requests) == 3)
        longest = AT_REST * world.requests[0].wait
        assert [each.wait for each in world.requests] == [world.requests[0].wait] * 2 + [longest]
        await let_pass(env, scan.handle, longest - timedelta(seconds=10))
        status = await scan.until(lambda status: status.wait == longest)
        assert (status.problem, len(world.requests)) == ("", 3), "it is not called unanswered while its worker holds it"
        await scan.release(FencingInput(cluster=scan.cluster, node="node-9", incident="another"))
        await eventually(env, lambda: len(world.requests) == 4)
        assert (world.requests[3].wait, world.requests[3].known_digest) == (world.requests[0].wait, "")
        assert (await scan.ask("node-1")).decision is PermitDecision.GRANTED
        world.idle = 1
        await eventually(env, lambda: not world.idle)
        await eventually(env, lambda: world.requests[-1].known_digest == world.current.digest)
        assert world.requests[-1].wait == world.requests[0].wait, "it rests with a permit in use"


async def test_a_report_ends_a_rest_as_any_other_scan(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(idle=1)
    async with scanning(env, world) as scan:
        await eventually(env, lambda: len(world.requests) == 3)
        world.show(report("node-1"))
        await scan.has_opened(1)
        assert world.requests[2].wait > world.requests[3].wait


async def test_a_rest_that_a_worker_calls_lost_ends_and_no_other_scan_does(env: WorkflowEnvironment) -> None:
    """Its worker may have been killed. A signal that is not true costs one scan: the next one rests only after a whole one."""
    world = ScriptedCluster(idle=1)
    async with scanning(env, world) as scan:
        await eventually(env, lambda: len(world.requests) == 3)
        assert [each.rests for each in world.requests] == [False, False, True]
        await scan.handle.signal(HealthScanner.scan_is_lost)
        await eventually(env, lambda: len(world.requests) == 4)
        for _ in range(3):
            await scan.handle.signal(HealthScanner.scan_is_lost)
        await let_pass(env, scan.handle, world.requests[0].wait / 2)
        assert (len(world.requests), world.requests[3].rests) == (4, False)


async def test_what_an_earlier_build_was_told_of_a_lost_scan_stays_without_effect(
    server: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of two builds may serve a cluster: a scanner of the earlier one has gone on resting, and is replayed so."""
    world = ScriptedCluster(idle=1)
    async with scanning(server, world) as scan:
        await eventually(server, lambda: len(world.requests) == 3)
        events = list((await scan.handle.fetch_history()).events)
    completed = [each for each in events if each.HasField("workflow_task_completed_event_attributes")]
    events = events[: events.index(completed[-1]) + 2]
    assert events[-1].HasField("activity_task_scheduled_event_attributes")
    for kind, what in (
        (EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, "execution_signaled"),
        (EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, "task_scheduled"),
        (EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED, "task_started"),
        (EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, "task_completed"),
    ):
        last = len(events)
        about = {"execution_signaled": {"signal_name": "scan_is_lost"}, "task_started": {"scheduled_event_id": last}}
        about["task_completed"] = {"scheduled_event_id": last - 1, "started_event_id": last}
        said: dict[str, Any] = {f"workflow_{what}_event_attributes": about.get(what, {})}
        at = events[-1].event_time.ToDatetime() + timedelta(seconds=1)
        events.append(HistoryEvent(event_id=last + 1, event_time=at, event_type=kind, **said))
    polls, begin = list[bool](), ScannerStory._begin_poll

    def begin_poll(story: ScannerStory) -> Poll:
        polls.append((poll := begin(story)).rests)
        return poll

    monkeypatch.setattr(ScannerStory, "_begin_poll", begin_poll)
    assert await diverges("rests", WorkflowHistory(scan.handle.id, events), [HealthScanner]) is None
    assert polls == [False, False, True]


def test_a_scan_that_rests_shows_a_sign_of_life_rarely_and_no_other_does() -> None:
    """Each is a write of Temporal's: at most one in forty seconds, for each cluster."""
    wait = timedelta(minutes=1)
    assert options.scan("prod", wait)["heartbeat_timeout"] == options.LOST_SCAN
    assert pause_between_beats(options.scan("prod", wait, rests=True)["heartbeat_timeout"] or wait) >= timedelta(seconds=40)


@pytest.mark.parametrize("what", ["a candidate", "a stale view", "a held-off node", "another's Lease"])
async def test_no_scan_rests_while_something_waits(env: WorkflowEnvironment, what: str) -> None:
    shown = {
        "a candidate": report("node-1", checks=(check(allowed=False, message="9 of 12 are unhealthy"),)),
        "a stale view": report(view=ViewState(synced=True, stale="the API is away")),
        "a held-off node": report("node-1"),
        "another's Lease": report(lease=ClusterLease(held=False, holder="them", problem="theirs")),
    }
    world = ScriptedCluster(shown[what], outcomes={"node-1": Opened.HELD_OFF})
    async with scanning(env, world) as scan:
        if what == "a held-off node":
            await scan.until(lambda status: bool(status.held_off))
            world.show(report())
        world.idle = 3
        await eventually(env, lambda: not world.idle)
        await eventually(env, lambda: world.requests[-1].known_digest == world.current.digest)
        assert len({each.wait for each in world.requests}) == 1
        assert not any(each.rests for each in world.requests)


async def test_a_request_while_the_report_is_stale_is_answered_at_once(env: WorkflowEnvironment) -> None:
    """S44: an `ack-off` asks for its permit again, with data at risk. Polls that were cut short have told nothing for long, and
    nothing has changed in the cluster, so that a poll which says what is known would wait for a minute."""
    world, wait = ScriptedCluster(report()), timedelta(seconds=20)
    async with scanning(env, world, wait=wait) as scan:
        await scan.until(lambda status: status.scans > 0)
        await let_pass(env, scan.handle, wait + options.SCAN_GRACE - timedelta(seconds=10))
        scans = len(world.requests)
        assert (await scan.ask("node-1")).decision is PermitDecision.GRANTED
        await eventually(env, lambda: len(world.requests) > scans)  # people are to be told of it: the poll is cut short
        assert world.requests[-1].known_digest
        await let_pass(env, scan.handle, timedelta(seconds=11))
        await scan.release(FencingInput(cluster=scan.cluster, node="node-9", incident="another"))
        await scan.until(lambda status: "no scan has been answered lately" in status.problem)
        asked_at = await env.get_current_time(scan.handle)
        answer = await scan.ask("node-2")
        assert answer.decision is not PermitDecision.REFUSED, answer.reason
        assert await env.get_current_time(scan.handle) - asked_at < timedelta(seconds=3)
        assert not world.requests[-1].known_digest
        await scan.until(lambda status: not status.problem)


async def test_a_report_that_was_long_on_its_way_admits_no_node_and_another_is_asked_for_at_once(
    env: WorkflowEnvironment,
) -> None:
    """S17, S18, S45: no worker was there for the workflow when the cluster's answered; a storm has begun since, which a last look
    does not know of."""
    storm = report("node-1", checks=(check(allowed=False, message="9 of 12 are unhealthy"),))
    world = ScriptedCluster(storm, first=replace(report("node-1"), digest="calm"), underway=[timedelta(minutes=10)])
    async with scanning(env, world) as scan:
        status = await scan.until(lambda status: bool(status.refused) or status.opened > 0)
        assert ({each.reason for each in status.refused}, world.opened) == ({"CircuitBreakerOpen"}, [])
        assert [each.known_digest for each in world.requests[:2]] == ["", ""]
        await scan.until(lambda status: not status.problem)


async def test_a_storm_that_begins_while_open_episodes_are_looked_for_is_seen_before_anybody_is_admitted(
    env: WorkflowEnvironment,
) -> None:
    """S17, S18: the report from before that admits nobody."""
    world = ScriptedCluster(report("node-1"))
    world.may_list.clear()
    async with scanning(env, world) as scan:
        await eventually(env, lambda: world.listed == 1)
        await let_pass(env, scan.handle, options.OLDEST_REPORT + timedelta(seconds=1))
        world.show(report("node-1", checks=(check(allowed=False, message="9 of 12 are unhealthy"),)))
        world.may_list.set()
        status = await scan.until(lambda status: bool(status.refused) or status.opened > 0)
        assert ({each.reason for each in status.refused}, world.opened) == ({"CircuitBreakerOpen"}, [])


@asynccontextmanager
async def after_an_abort(env: WorkflowEnvironment, world: ScriptedCluster) -> AsyncIterator[Scan]:
    """A person has aborted the episode of node-1, which is as unhealthy as before."""
    world.show(report("node-1"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], outcome="aborted", problem="aborted by ada")
        world.show(report("node-1"))
        yield scan


async def test_a_report_of_another_cluster_under_the_same_name_is_not_believed(env: WorkflowEnvironment) -> None:
    """S9, S18, S38: workers of two clusters serve one name, such as the chart's own, on one Temporal. Nodes have the same names
    in both; an episode that began in one of them must not go on in the other."""
    world = ScriptedCluster(report(cluster_uid="uid-a"))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 1)
        assert await scan.client_handle().query(HealthScanner.cluster_uid) == "uid-a"
        world.show(report("node-1", cluster_uid="uid-b"))
        status = await scan.until(lambda status: "uid-b" in status.problem)
        assert "another cluster" in status.problem
        assert status.report is not None
        assert status.report.cluster_uid == "uid-a"
        assert await scan.client_handle().query(HealthScanner.cluster_uid) == "uid-a"
        assert world.opened == []
        world.show(report("node-1", cluster_uid="uid-a"))
        await scan.has_opened(1)


async def test_an_aborted_node_is_left_alone_until_it_was_healthy_once(env: WorkflowEnvironment) -> None:
    """S19: a person's abort is not answered with the next episode."""
    world = ScriptedCluster()
    async with after_an_abort(env, world) as scan:
        status = await scan.until(lambda status: bool(status.held_off) and bool(status.refused))
        assert "aborted by ada" in status.refused[0].message
        # S44: the way out is said with the reason.
        assert status.held_off[0].reason.endswith(
            "until it is healthy once, or a person asks: `nodewarden fence node-1 --reason …`"
        )
        world.show(report(seen_nodes=(SeenNode(node="node-1", ready=True),)))
        await scan.until(lambda status: not status.held_off)
        world.show(report("node-1"))
        await scan.has_opened(2)


@pytest.mark.parametrize(
    "seen",
    [
        (),
        (SeenNode(node="node-1", unhealthy=True),),
        (SeenNode(node="node-1", ready=True, unhealthy=True),),
        (SeenNode(node="node-1", soon=True),),
    ],
)
async def test_a_circuit_breaker_that_opens_does_not_make_an_abort_forgotten(
    env: WorkflowEnvironment, seen: tuple[SeenNode, ...]
) -> None:
    """S19: under an open circuit breaker nobody is a candidate, and the node is as sick as before."""
    world = ScriptedCluster()
    async with after_an_abort(env, world) as scan:
        await scan.until(lambda status: bool(status.held_off))
        scans = len(world.requests)
        world.show(report(seen_nodes=seen))
        await scan.until(lambda status: len(world.requests) >= scans + 2 and not status.refused)
        assert "node-1" in world.requests[-1].watching, "what becomes of it must be heard"
        world.show(report("node-1", seen_nodes=(SeenNode(node="node-1", unhealthy=True),)))
        status = await scan.until(lambda status: bool(status.refused))
        assert "aborted by ada" in status.refused[0].message
        assert len(world.opened) == 1


DISKS = a_check("disks", minHealthy=1, unhealthyConditions=[{"type": "DiskPressure", "status": "True", "duration": "10s"}])
ALSO = a_check("workers", minHealthy=1)


@pytest.mark.parametrize(
    "for_a_while",
    [
        pytest.param(None, id="it is deleted and made anew"),
        pytest.param("a typo", id="it can't be read"),
        pytest.param(replace(DISKS, selector=a_check(selector={"matchLabels": {"no": "body"}}).selector), id="it selects others"),
        pytest.param(replace(DISKS, conditions=ALSO.conditions, generation=2), id="it looks for something else"),
    ],
)
@pytest.mark.parametrize("others", [(), (ALSO,)], ids=["alone", "beside another check"])
async def test_an_abort_stands_while_the_check_that_asked_is_replaced_or_mended(
    env: WorkflowEnvironment, for_a_while: HealthCheck | str | None, others: tuple[HealthCheck, ...]
) -> None:
    """S19, S44: a node that is Ready and sick all the time is not well because nobody calls it sick for a while."""
    conditions = [Condition(type=kind, status="True", since=ago(60)) for kind in ("Ready", "DiskPressure")]
    ledger = ledger_of(DISKS, *others, a_node("node-1", conditions=tuple(conditions)), a_node("node-2"))
    world = ScriptedCluster(report_of(ledger))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], outcome="aborted", problem="aborted by ada")
        await scan.until(lambda status: bool(status.held_off) and bool(status.refused))
        ledger.remove_check(DISKS.ref.key)
        if isinstance(for_a_while, str):
            ledger.put_bad_check(DISKS.ref, for_a_while)
        elif for_a_while is not None:
            ledger.put_check(for_a_while)
        world.show(report_of(ledger, ["node-1"]))
        await scan.until(lambda status: not status.refused)
        ledger.put_check(replace(DISKS, uid="another", generation=3))
        world.show(report_of(ledger, ["node-1"]))
        status = await scan.until(lambda status: bool(status.refused) or status.opened > 1)
        assert ["aborted by ada" in each.message for each in status.refused] == [True]


async def test_the_report_from_before_an_end_does_not_open_the_next_episode(env: WorkflowEnvironment) -> None:
    """The node was still shown sick when its episode ended; only a younger scan decides."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0])
        status = await scan.until(lambda status: bool(status.refused))
        assert "just ended" in status.refused[0].message
        world.show(report())
        await scan.until(lambda status: not status.refused)
        assert len(world.opened) == 1


async def test_an_unknown_opening_counts_until_it_is_described(env: WorkflowEnvironment) -> None:
    """S14: an unknown outcome counts as held."""
    world = ScriptedCluster(report("node-1", "node-2"), fails={"open": 1})
    async with scanning(env, world) as scan:
        status = await scan.until(lambda status: bool(status.problem) or bool(world.described))
        assert world.opened == [] or status.permits
        await scan.has_opened(1)
        assert world.described


async def test_a_person_is_granted_queued_or_refused(env: WorkflowEnvironment) -> None:
    """S13, S14: manual starts go the same way, and a queued one is served when a permit is free."""
    world = ScriptedCluster(report())
    async with scanning(env, world) as scan:
        first = await scan.ask("node-1", "one")
        assert (first.decision, first.holder) == (PermitDecision.GRANTED, "us")
        assert (await scan.ask("node-1", "one")).decision is PermitDecision.GRANTED
        assert (await scan.ask("node-1", "other")).decision is PermitDecision.REFUSED
        assert (await scan.ask("node-2", "two")).decision is PermitDecision.QUEUED
        await scan.release(FencingInput(cluster=scan.cluster, node="node-1", incident="one"))
        # nobody runs under node-2's id, so its place is given up again as soon as it is told
        await scan.until(lambda status: not status.queue)


@pytest.mark.parametrize("ends", ["", "-2"], ids=["another node's", "one that begins alike"])
async def test_a_permit_is_for_the_node_with_the_id_that_its_episode_holds(env: WorkflowEnvironment, ends: str) -> None:
    """S13: any other workflow could run beside the node's own episode."""
    world = ScriptedCluster(report())
    async with scanning(env, world) as scan:
        held = episode_id(scan.cluster, "node-1" if ends else "node-2") + ends
        request = PermitRequest(node="node-1", workflow_id=held, incident="i-1", by_person=True)
        assert (await scan.put(ScannerQuestion(id="q", permit=request))).decision is PermitDecision.REFUSED
        assert (await scan.until(lambda status: True)).permits == ()


async def test_a_request_without_any_policy_takes_the_lease_first(env: WorkflowEnvironment) -> None:
    """S38, and opt-in: the Lease is taken only once there is work."""
    world = ScriptedCluster(report(checks=(), lease=ClusterLease(held=False, needed=False)))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 1)
        assert not world.requests[0].work_in_hand
        assert (await scan.ask("node-1")).decision is PermitDecision.GRANTED
        assert world.requests[-1].work_in_hand


async def test_a_scanner_without_memory_finds_its_holders_again_before_it_admits(env: WorkflowEnvironment) -> None:
    """S14: terminated and started anew, it counts the episode whose mark it finds."""
    world = ScriptedCluster(report("node-1", "node-2", seen_nodes=(SeenNode(node="node-1", incident="old"),)))
    world.known["node-1"] = EpisodeDescription(
        node="node-1", known=True, open=True, workflow_id="episode/x/node-1", incident="old", permit=True
    )
    async with scanning(env, world) as scan:
        status = await scan.until(lambda status: bool(status.permits))
        assert status.permits[0].incident == "old"
        await scan.until(lambda status: bool(status.refused))
        assert world.opened == []


def held(node: str, **changes: object) -> EpisodeDescription:
    """An open episode that says it has its permit."""
    plain = EpisodeDescription(node=node, known=True, open=True, workflow_id="w", incident="old", permit=True)
    return replace(plain, **changes)  # type: ignore[arg-type]


async def test_a_node_without_a_mark_may_have_an_episode_that_a_failed_list_lacks(env: WorkflowEnvironment) -> None:
    """S14: no mark shows them, and the cap would have room."""
    world = ScriptedCluster(report("node-1"), fails={"list": 1000})
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 2 and "no permit is granted" in status.problem)
        assert (world.opened, world.asked) == ([], [])
        world.fails.clear()
        await scan.has_opened(1)


async def test_what_the_last_scanner_opened_at_its_end_is_waited_for(env: WorkflowEnvironment) -> None:
    """S14: Temporal lists a workflow a moment after its start. Where an earlier scanner ran, nothing is granted before that."""
    lists = [FoundOpen(nodes=(), earlier=True), FoundOpen(nodes=("node-1",), earlier=True)]
    world = ScriptedCluster(report("node-2"), found=lists, known={"node-1": held("node-1")})
    async with scanning(env, world) as scan:
        began = await env.get_current_time(scan.handle)
        status = await scan.until(lambda status: bool(status.refused))
        assert [(each.node, each.reason) for each in status.refused] == [("node-2", "CapReached")]
        assert (world.opened, world.listed) == ([], 2)
        assert await env.get_current_time(scan.handle) - began > LIST_LAG - timedelta(seconds=1)


async def test_nothing_is_granted_while_the_open_episodes_cannot_be_listed(env: WorkflowEnvironment) -> None:
    """S14: neither to a candidate nor to a person, who is told why; then the list is asked for again without another report."""
    world = ScriptedCluster(report("node-1", seen_nodes=(SeenNode(node="node-2", incident="old"),)), fails={"list": 2})
    world.known["node-2"] = held("node-2")
    async with scanning(env, world) as scan:
        status = await scan.until(lambda status: "Temporal can't list" in status.problem)
        assert (status.permits, world.described, world.opened) == ((), [], [])
        status = await scan.until(lambda status: bool(status.permits))
        assert [(each.node, each.state) for each in status.permits] == [("node-2", PermitState.OPEN)], "it is no stranger"
        assert (world.opened, world.listed) == ([], 3)


async def test_a_mark_without_an_episode_on_a_healthy_node_is_cleaned_up(env: WorkflowEnvironment) -> None:
    """S35: marks of an episode that was terminated."""
    world = ScriptedCluster(report(seen_nodes=(SeenNode(node="node-1", uid="u", ready=True, incident="old"),)))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        assert world.opened[0].need.kind is NeedKind.CLEAN_UP


async def test_a_scanner_started_with_a_cluster_alone_learns_its_name_before_it_scans(env: WorkflowEnvironment) -> None:
    """S38: the namespace's name is not ours alone; two deployments with the same one would both hold the Lease."""
    world = ScriptedCluster(report("node-1"), fails={"name": 1})
    async with scanning(env, world, holder="") as scan:
        await scan.has_opened(1)
        assert world.opened[0].holder == "default/0815"
        assert {request.holder for request in world.requests} == {"default/0815"}
        await scan.until(lambda status: status.holder == "default/0815")
        assert world.named == 2


async def test_stop_gives_the_lease_back(env: WorkflowEnvironment) -> None:
    """S38: whoever comes next need not wait for it to lapse."""
    world = ScriptedCluster(report())
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 1)
        await scan.handle.execute_update(HealthScanner.stop, StopRequest(who="ada", reason="maintenance"))
        result = await scan.handle.result()
        assert (result.stopped_by, world.released) == ("ada (identity not verified)", 1)


async def test_s35_a_scanner_that_is_cancelled_while_it_stops_gives_the_lease_back(env: WorkflowEnvironment) -> None:
    """S38: an episode still waits for its answer. The person who stopped it is still named."""
    world = ScriptedCluster(report(lease=ClusterLease(held=False, holder="another deployment")))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 1)
        polls = len(world.requests)
        asked = asyncio.create_task(scan.ask("node-1"))
        await eventually(env, lambda: len(world.requests) > polls)
        await scan.handle.execute_update(HealthScanner.stop, StopRequest(who="ada", reason="maintenance"))
        await scan.handle.cancel()
        result = await scan.handle.result()
        assert (result.stopped_by, world.released) == ("ada (identity not verified)", 1)
        assert (await asked).decision is PermitDecision.REFUSED


@pytest.mark.timeout(240)
async def test_scans_that_are_answered_at_once_over_and_over_are_followed_by_a_pause(env: WorkflowEnvironment) -> None:
    """Of two workers whose views differ each would answer at once what the other one has told, and fill history after history."""
    world = ScriptedCluster(report("node-1", candidates=()))
    async with scanning(env, world):
        await eventually(env, lambda: bool(world.requests))
        began = await env.get_current_time()
        world.restless = 3 * HASTY_IN_A_ROW
        world.show(world.current)
        await eventually(env, lambda: not world.restless, within=60)
        assert await env.get_current_time() - began >= 2 * BREATH


async def test_hundreds_of_scans_and_their_continue_as_new_lose_nothing(env: WorkflowEnvironment) -> None:
    """S14: permits, parked lines and counts outlive every roll."""
    world = ScriptedCluster(report("node-1", "node-2"))
    portion = Portion(incident="old", number=1, pods=5, until=datetime(2100, 1, 1, tzinfo=UTC))
    state = ScannerState(started=datetime.now(UTC), portions=(portion,))
    async with scanning(env, world, holder="", repeat_alarm=RepeatAlarm(count=2), state=state) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], parked=True, outcome="", problem="x", cause="Ready")
        await scan.has_opened(2)
        for episode, parked in zip(world.opened, (True, False), strict=True):
            world.known[episode.node] = EpisodeDescription(
                node=episode.node, known=True, open=True, workflow_id="w", incident=episode.incident, parked=parked, permit=True
            )
        world.restless = SCANS_OF_A_RUN + 50
        world.changed.set()
        world.show(world.current)
        await eventually(env, lambda: not world.restless, within=200)
        status = await scan.until(lambda status: status.scans > SCANS_OF_A_RUN + 50)
        assert [permit.state for permit in status.permits] == [PermitState.PARKED, PermitState.OPEN]
        assert [permit.incident for permit in status.permits] == [episode.incident for episode in world.opened]
        description = await scan.client_handle().describe()
        assert description.run_id != scan.handle.first_execution_run_id
        assert len(world.opened) == 2
        assert (world.named, status.holder) == (1, "default/0815"), "the name is carried over too"
        asked = PortionRequest(node="node-3", incident="new", number=1, pods=1, per_minute=5)
        question = ScannerQuestion(id="q", portion=asked)
        await scan.client_handle().signal(HealthScanner.ask, question)
        answer = (await scan.client_handle().query(HealthScanner.answer, question)).portion
        assert answer is not None
        assert answer.again == portion.counts_until, "and so is what was handed out of the pods of a minute"
        await scan.release(world.opened[0], incident="another", cause="Ready")
        await eventually(env, lambda: bool(world.repetitions))
        assert world.repetitions[0].repetition.incidents == (world.opened[0].incident, "another")


async def test_s38_a_new_history_waits_for_nothing_that_it_does_anew_itself(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S14, S18: while hundreds are in hand a description of holders takes half a minute and a record a whole one. In that time
    nothing was scanned, no Lease renewed, and no episode could act. The next history finds out what this one was to find."""
    monkeypatch.setattr(continuation, "HISTORY_LIMIT", 60)
    world = ScriptedCluster(report("node-1", "node-2"))
    async with scanning(env, world, cap=5) as scan:
        await scan.has_opened(2)
        gone, left = world.opened
        world.known[left.node] = EpisodeDescription(
            node=left.node, known=True, open=True, workflow_id="w", incident=left.incident, permit=True
        )
        world.may_describe.clear()
        world.may_tell.clear()
        await scan.release(gone)
        run = (await scan.client_handle().describe()).run_id
        while (await scan.client_handle().describe()).run_id == run:
            before, began = len(world.requests), await env.get_current_time()
            world.show(report("node-1", "node-2", seen_nodes=(SeenNode(node="node-2", uid=f"{before}"),)))
            await eventually(env, lambda before=before: len(world.requests) > before)
            assert await env.get_current_time() - began < timedelta(seconds=5)
        asked = len(world.described)
        world.may_describe.set()
        world.may_tell.set()
        status = await scan.until(lambda status: [each.node for each in status.permits] != [gone.node, left.node])
        assert (gone.incident in {each.incident for each in status.permits}, len(world.described) > asked) == (False, True)
        assert left.incident in {each.incident for each in status.permits}


async def test_a_scanner_under_a_foreign_id_fails_at_once(env: WorkflowEnvironment) -> None:
    """S38: the id keeps a cluster's scanner single."""
    queue = f"scanners-{uuid.uuid4().hex}"
    async with worker(env.client, task_queue=queue, workflows=[HealthScanner], workflow_failure_exception_types=[Exception]):
        with pytest.raises(WorkflowFailureError):
            await env.client.execute_workflow(
                HealthScanner.run, ScannerInput(cluster="prod"), id=f"other-{uuid.uuid4().hex}", task_queue=queue
            )


async def test_a_view_that_is_not_complete_rebuilds_nothing(env: WorkflowEnvironment) -> None:
    """S14: before the first sync marks may be unseen; concluding "nobody holds anything" would double a permit."""
    world = ScriptedCluster(report("node-1", view=ViewState(synced=False, stale="not synced")))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 1)
        assert (world.listed, world.described) == (0, [])
        world.known["node-1"] = held("node-1")
        world.show(report("node-2", seen_nodes=(SeenNode(node="node-1", incident="old"),)))
        status = await scan.until(lambda status: bool(status.permits))
        assert [(each.node, each.state) for each in status.permits] == [("node-1", PermitState.OPEN)]
        assert world.opened == []


async def test_a_deadline_does_not_wait_for_the_opening_of_others_whose_permits_count(env: WorkflowEnvironment) -> None:
    """S14: all of one moment are opened together, oldest first; what is being opened counts, whoever comes meanwhile."""
    first = (candidate("node-1", 5), candidate("node-2", 20), candidate("node-3", 10))
    world = ScriptedCluster(report(candidates=first))
    world.may_open.clear()
    async with scanning(env, world, cap=4) as scan:
        try:
            await eventually(env, lambda: len(world.asked) == 1)
            assert world.asked == [("node-2", "node-3", "node-1")]
            world.show(report(candidates=(*first, candidate("node-4", 4), candidate("node-5", 3))))
            await eventually(env, lambda: len(world.asked) == 2)
            assert world.asked[1] == ("node-4",)
            status = await scan.until(lambda status: bool(status.refused))
            assert [refused.node for refused in status.refused] == ["node-5"]
        finally:
            world.may_open.set()
        await scan.until(lambda status: status.opened == 4)


async def test_an_episode_that_asks_is_answered_once_the_opening_under_its_id_has_come_to_nothing(
    env: WorkflowEnvironment,
) -> None:
    """S13: until then the node is reserved for an episode that can't begin, and a person would be refused for it."""
    world = ScriptedCluster(report("node-1"), outcomes={"node-1": Opened.REFUSED})
    world.may_open.clear()
    async with scanning(env, world) as scan:
        await eventually(env, lambda: world.asked == [("node-1",)])
        asking = asyncio.create_task(scan.ask("node-1"))
        await scan.until(lambda status: [each.state for each in status.permits] == [PermitState.RESERVED])
        world.may_open.set()
        assert (await asking).decision is PermitDecision.GRANTED


async def test_no_episode_is_described_as_gone_while_it_is_being_opened(env: WorkflowEnvironment) -> None:
    """S14: an answer from before the opening would give his permit to the next one, and two would act."""
    mark = SeenNode(node="node-9", uid="u9", incident="of-another", unhealthy=True)
    world = ScriptedCluster(report("node-1", "node-2", seen_nodes=(mark,)))
    world.may_open.clear()
    state = ScannerState(started=NOW, known=True)
    async with scanning(env, world, state=state) as scan:
        try:
            await eventually(env, lambda: bool(world.asked) and bool(world.described))
            assert world.described == [("node-9",)]
            world.show(report("node-1", "node-2", seen_nodes=(mark,), inventory=13))
            status = await scan.until(lambda status: status.report is not None and status.report.inventory == 13)
            assert [(line.node, line.state) for line in status.permits] == [("node-1", PermitState.RESERVED)]
        finally:
            world.may_open.set()
        await scan.until(lambda status: [line.state for line in status.permits] == [PermitState.OPEN])


def in_hand(world: ScriptedCluster, **changes: object) -> ScanReport:
    """node-1 and node-2, whose episodes hear what they are told, as they are seen: not Ready, or as it is said."""
    world.there = {"node-1", "node-2"}
    plain = [SeenNode(node=node, uid=f"uid-{node}", unhealthy=True, boot_id="b1") for node in ("node-1", "node-2")]
    return report("node-1", "node-2", seen_nodes=tuple(replace(each, **changes) for each in plain))  # type: ignore[arg-type]


async def test_episodes_are_told_together_one_call_at_a_time_and_the_latest_last(env: WorkflowEnvironment) -> None:
    """Nothing is lost, however long a call takes; that their own mark is seen is no news to them."""
    world = ScriptedCluster()
    world.show(in_hand(world))
    async with scanning(env, world, cap=2) as scan:
        await scan.until(lambda status: status.opened == 2)
        world.show(in_hand(world, boot_id="b2"))
        await eventually(env, lambda: bool(world.told) and world.told[-1][0].boot_id == "b2")
        told = len(world.told)
        world.show(in_hand(world, boot_id="b2", incident=world.opened[0].incident))
        await scan.until(lambda status: status.report is not None and bool(status.report.seen_nodes[0].incident))
        assert len(world.told) == told
        world.may_tell.clear()
        before = (await scan.until(lambda status: bool(status.scans))).scans
        for number, boot in enumerate(("b3", "b4", "b5")):
            world.show(in_hand(world, boot_id=boot))
            await scan.until(lambda status, least=before + number: status.scans > least)
        assert len(world.told) == told + 1
        world.may_tell.set()
        await eventually(env, lambda: len(world.told) == told + 2)
        assert [[seen.boot_id for seen in call] for call in world.told[told:]] == [["b3", "b3"], ["b5", "b5"]]


async def test_people_are_told_by_the_scan_which_machine_it_has_in_hand_and_never_before_that_is_known(
    env: WorkflowEnvironment,
) -> None:
    """S44: where nothing else changes, the running scan is given up for one that tells the truth; and whoever is free again and
    still sick is served."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await eventually(env, lambda: bool(world.requests[-1].in_flight))
        assert world.requests[0].in_flight is None
        assert [each.incident for each in world.requests[-1].in_flight or ()] == [world.opened[0].incident]
        before = len(world.requests)
        await scan.release(world.opened[0])
        await scan.has_opened(2)
        again = world.opened[1].incident
        await eventually(env, lambda: [each.incident for each in world.requests[-1].in_flight or ()] == [again])
        assert [(each.in_flight, each.known_digest == "") for each in world.requests[before:-1]] == [((), True)]
        assert [each.number for each in world.requests] == list(range(1, len(world.requests) + 1))


async def test_a_failing_scan_admits_nothing_and_is_tried_again(env: WorkflowEnvironment) -> None:
    """S18: no view, no episodes."""
    world = ScriptedCluster(report("node-1"), fails={"scan": 2})
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        assert len(world.requests) >= 3


@pytest.mark.parametrize("name", ["cp-1", "machine/clusters/cp-1"], ids=["its Node is gone", "it never had one"])
@pytest.mark.parametrize(("ready", "held"), [(2, True), (1, False)])
async def test_a_member_without_a_node_is_taken_only_while_the_nodes_that_are_left_are_a_quorum(
    env: WorkflowEnvironment, name: str, ready: int, held: bool
) -> None:
    """S15: also in its last look, whether or not the report shows it as watched."""
    episode = EpisodeDescription(
        node=name, known=True, open=True, permit=True, workflow_id="e", incident="i", control_plane=True, started=NOW
    )
    for watched in ((), (SeenNode(node=name, present=False),)):
        plane = ControlPlane(members=2, ready=ready, lost=() if name.startswith("machine/") else (name,))
        seen = report(control_plane=plane, seen_nodes=watched)
        world = ScriptedCluster(seen, found=[FoundOpen(nodes=(name,))], known={name: episode})
        async with scanning(env, world) as scan:
            await scan.until(lambda status: len(status.permits) == 1)
            asked = PermitQuestions(questions=(PermitQuestion(node=name, incident="i"),))
            (answer,) = (await scan.handle.query(HealthScanner.holds_permits, asked)).questions
            assert (answer.held, f"{name} counted without a Node" in answer.reason) == (held, not held), answer.reason


@pytest.mark.parametrize("said", [None, True, False])
async def test_an_episode_without_a_role_may_be_a_members_in_its_last_look_as_well(
    env: WorkflowEnvironment, said: bool | None
) -> None:
    """S15: two open episodes were found, of which one is silent, and at worst both are of the control plane."""
    nodes = ("cp-1", "cp-2")
    known = {
        node: EpisodeDescription(
            node=node,
            known=True,
            open=True,
            permit=True,
            workflow_id="episode",
            incident=f"i-{node}",
            control_plane=said if node == "cp-1" else True,
            node_uid=f"uid-{node}",
            started=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for node in nodes
    }
    world = ScriptedCluster(report(control_plane=ControlPlane(members=5, ready=5)), found=[FoundOpen(nodes=nodes)], known=known)
    async with scanning(env, world, cap=5) as scan:
        await scan.until(lambda status: len(status.permits) == 2)
        asked = PermitQuestions(questions=(PermitQuestion(node="cp-1", incident="i-cp-1"),))
        (answer,) = (await scan.handle.query(HealthScanner.holds_permits, asked)).questions
        assert answer.held is (said is False)
        assert ("cp-2" in answer.reason) is (said is not False)


async def test_s15_what_a_silent_episode_says_of_its_node_counts_once_it_has_asked_for_its_permit(
    env: WorkflowEnvironment,
) -> None:
    """It was found while its worker had no time for a question. What it said later was taken for older than its permit, as both
    bore the moment of one task, and so its acts were refused for minutes."""
    silent = EpisodeDescription(node="node-1", known=True, open=True, permit=True, workflow_id="e", incident="i", started=NOW)
    plane = ControlPlane(members=1, ready=1)
    world = ScriptedCluster(report(control_plane=plane), found=[FoundOpen(nodes=("node-1",))], known={"node-1": silent})
    async with scanning(env, world) as scan:
        await scan.until(lambda status: len(status.permits) == 1)
        world.known["node-1"] = replace(silent, phase=Phase.RUNNING, control_plane=False, node_uid="uid")
        request = PermitRequest(node="node-1", workflow_id=episode_id(scan.cluster, "node-1"), incident="i", node_uid="uid")
        assert (await scan.put(ScannerQuestion(id=uuid.uuid4().hex, permit=request))).decision is PermitDecision.GRANTED
        await let_pass(scan.env, scan.handle, timedelta(seconds=5))
        asked = PermitQuestions(questions=(PermitQuestion(node="node-1", incident="i"),))
        (answer,) = (await scan.handle.query(HealthScanner.holds_permits, asked)).questions
        assert answer.held, answer.reason


async def test_an_override_lasts_while_the_breaker_is_open_and_only_for_looks_that_see_it_attested(
    env: WorkflowEnvironment,
) -> None:
    """S17, S20: what a person has overridden is not withdrawn, and a request alone grants nothing. One node each."""
    closed = replace(check(allowed=False, message="9 of 12 nodes are healthy"), reason=OpenReason.TOO_MANY_UNHEALTHY)
    world = ScriptedCluster(report(checks=(closed,)))
    async with scanning(env, world, cap=2) as scan:

        async def held(override: str = "") -> bool:
            asked = PermitQuestion(node="node-1", incident="one", override=override)
            (answer,) = (await scan.handle.query(HealthScanner.holds_permits, PermitQuestions(questions=(asked,)))).questions
            assert answer.held or "no NodeAction attests" in answer.reason or "paused" in answer.reason
            return answer.held

        assert (await scan.ask("node-1", "one")).decision is PermitDecision.REFUSED
        assert (await scan.ask("node-1", "one", override=CIRCUIT_BREAKER)).decision is PermitDecision.GRANTED
        assert [await held(), await held(CIRCUIT_BREAKER)] == [False, True]
        scans = world.restless = 3
        await scan.until(lambda status: status.scans >= scans)
        assert [await held(), await held(CIRCUIT_BREAKER)] == [False, True]
        assert (await scan.ask("node-2", "two")).decision is PermitDecision.REFUSED
        assert (await scan.ask("node-1", "one")).decision is PermitDecision.GRANTED, "it holds it already"
        assert [await held(), await held(CIRCUIT_BREAKER)] == [False, True], "asked again without, it is the same permit"
        refused = await scan.ask("node-3", "three", override="x\x1b[2J" * 1000)
        assert refused.decision is PermitDecision.REFUSED
        assert refused.reason.endswith("override: expected circuit-breaker or nothing, got another word"), "S50"
        await scan.handle.execute_update(HealthScanner.pause, PauseRequest(who="ada", reason="storage"))
        assert not await held(CIRCUIT_BREAKER), "S44: nobody overrides a pause"


async def test_an_override_that_waits_for_its_turn_is_one_when_it_comes(env: WorkflowEnvironment) -> None:
    """S14, S17: it had asked without one before; and a scanner that has forgotten it hears of it from the episode."""
    closed = replace(check(allowed=False, message="9 of 12 nodes are healthy"), reason=OpenReason.TOO_MANY_UNHEALTHY)
    world = ScriptedCluster(report())
    async with scanning(env, world) as scan:
        assert (await scan.ask("node-1", "one")).decision is PermitDecision.GRANTED
        for override in ("", CIRCUIT_BREAKER):
            assert (await scan.ask("node-2", "two", override=override)).decision is PermitDecision.QUEUED
        assert [each.override for each in (await scan.until(lambda status: True)).queue] == [CIRCUIT_BREAKER]
        world.show(report(checks=(closed,)))
    described = EpisodeDescription(
        node="node-1", known=True, open=True, workflow_id="e", incident="i", permit=True, started=NOW, override=CIRCUIT_BREAKER
    )
    world = ScriptedCluster(report(), found=[FoundOpen(nodes=("node-1",))], known={"node-1": described})
    async with scanning(env, world) as scan:
        await scan.until(lambda status: [each.override for each in status.permits] == [CIRCUIT_BREAKER])


# When the scanner begins to clean up what others have left: marks without an episode, objects that nobody needs (S35).

STEP = EscalationStep(strategy=Strategy.DELETE_MACHINE, name=Strategy.DELETE_MACHINE.value)
MARK = SeenNode(node="node-1", uid="u", ready=True, incident="old")
OBJECT = LeftOver(node="node-1", check=CHECK, step=STEP, name="node-1", reason="it is left over: its node is well")
LEFT: list[dict[str, object]] = [{"seen_nodes": (MARK,)}, {"left_over": (OBJECT,)}]
each_left = pytest.mark.parametrize("left", LEFT, ids=["a mark", "an object"])


@pytest.mark.parametrize(
    "blind",
    [
        {"view": ViewState(synced=True, stale="nothing was heard for a minute")},
        {"lease": ClusterLease(held=False, holder="another deployment")},
    ],
    ids=["stale view", "no Lease"],
)
@each_left
async def test_nothing_is_cleaned_up_on_a_stale_view_or_without_the_lease(
    env: WorkflowEnvironment, left: dict[str, object], blind: dict[str, object]
) -> None:
    """S18, S38: the mark may be of an episode of the deployment that holds the Lease."""
    world = ScriptedCluster(report(**left, **blind))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.scans >= 1)
        await scan.ask("node-9", by_person=False)  # whatever is to be begun has been by then
        world.show(report("node-2", **left, **blind))
        await scan.until(lambda status: [each.node for each in status.refused] == ["node-2"])
        assert world.asked == []
        world.show(report(**left))
        await scan.until(lambda status: world.asked == [("node-1",)])


@each_left
async def test_nothing_is_cleaned_up_where_an_episode_is_open_or_has_just_ended(
    env: WorkflowEnvironment, left: dict[str, object]
) -> None:
    """S13, S35: it removes itself what it has added; a report from before its end shows that still."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world, cap=2) as scan:
        await scan.has_opened(1)
        await scan.until(lambda status: [each.state for each in status.permits] == [PermitState.OPEN])
        shown = report("node-2", candidates=(replace(candidate("node-2"), refused="not now"),), **left)
        world.show(shown)
        await scan.until(lambda status: [each.node for each in status.refused] == ["node-2"])
        assert world.asked == [("node-1",)]
        await scan.release(world.opened[0])
        await scan.until(lambda status: not status.permits)
        if "seen_nodes" in left:
            await eventually(env, lambda: bool(world.described))  # till then it could be the mark of somebody else
        for incident in ("by-hand", "again"):
            await scan.ask("node-9", incident)
        assert world.asked == [("node-1",)], "the next scan decides"
        world.show(shown)
        await scan.until(lambda status: world.asked == [("node-1",), ("node-1",)])


async def test_s35_nothing_is_cleaned_up_where_temporal_shows_that_an_episode_has_just_ended(
    env: WorkflowEnvironment,
) -> None:
    """S13: of hundreds that are described some have ended since the last report, and their releases are on the way."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world, cap=2) as scan:
        await scan.has_opened(1)
        await scan.until(lambda status: [each.state for each in status.permits] == [PermitState.OPEN])
        marked = SeenNode(node="node-1", uid="u", ready=True, incident=world.opened[0].incident)
        world.show(shown := report(candidates=(), seen_nodes=(marked,)))
        await eventually(env, lambda: bool(world.described))
        await scan.until(lambda status: not status.permits)
        for incident in ("by-hand", "again"):
            await scan.ask("node-9", incident)
        assert world.asked == [("node-1",)], "what the last report shows is from before its end"
        await let_pass(env, scan.handle, CLOSING)
        world.show(shown)
        await scan.until(lambda status: world.asked == [("node-1",), ("node-1",)])


async def test_an_object_of_a_node_that_is_held_off_is_left_alone(env: WorkflowEnvironment) -> None:
    """S19: a person has ended its episode, and perhaps looks at what that has left."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], outcome="aborted", problem="aborted by ada")
        world.show(report("node-1", left_over=(OBJECT,)))
        await scan.until(lambda status: ["aborted by ada" in each.message for each in status.refused] == [True])
        assert world.asked == [("node-1",)]
        world.show(report(left_over=(OBJECT,), seen_nodes=(replace(MARK, incident=""),)))
        await scan.until(lambda status: world.asked == [("node-1",), ("node-1",)])
