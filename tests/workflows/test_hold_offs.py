"""Which nodes the scanner begins nothing for by itself, and when it says that the cause is always the same."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from temporalio import activity, workflow
from temporalio.testing import WorkflowEnvironment

from activities.contracts import metrics
from activities.contracts.episodes import EpisodeDescription, Opened, OpenOutcome, OpenRequest, OpenResult
from policy.checks.fence_policies import Attempts, FencePolicies
from policy.episode.messages import FencingInput, Kind, Need, NeedKind, Outcome, SeenNode, scanner_id
from policy.episode.permits import HoldOff, Permit, PermitDecision, PermitRequest, PermitState, Release
from policy.scan.repeat_alarm import RepeatAlarm
from policy.scan.scan_report import CheckReport, ScanReport
from tests.workflows.fencing_run import fencing
from tests.workflows.scanner_run import NOW, Scan, ScriptedCluster, candidate, check, report, scanning
from tests.workflows.surroundings import Measured, eventually, let_pass, worker
from tests.workflows.world import World
from workflows.definitions.scanner import HealthScanner
from workflows.scanner import hold_offs
from workflows.scanner.hold_offs import AFTER_REFUSAL, UNJUDGED
from workflows.scanner.state import ScannerInput, ScannerState

OPEN = EpisodeDescription(node="n", known=True, open=True, workflow_id="w", incident="i")


def test_a_node_is_left_alone_that_is_held_off_or_whose_episode_has_just_ended() -> None:
    """S19: neither alone is leave to clean up there."""
    state = ScannerState(started=NOW, held_off={"held": HoldOff(node="held", reason="failed")}, settling={"settling"})
    assert [hold_offs.is_left_alone(state, node) for node in ("held", "settling", "other")] == [True, True, False]


def test_a_new_history_knows_at_once_how_many_attempts_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """S19: an episode may end before the first scan of that history, in which the policies would be read again."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    policies = FencePolicies(maximum_attempts=2, attempts_pause=timedelta(hours=1))
    failed = {"n": Attempts(node="n", failed=1, at=NOW)}
    permit = Permit(node="n", workflow_id="w", incident="i", kind=Kind.FENCING, state=PermitState.OPEN, granted_at=NOW)
    state = ScannerState(started=NOW, report=report(policies=policies), attempts=failed, permits={"n": permit})
    hold_offs.note_release(state, Release(node="n", incident="i", outcome=Outcome.REFUSED, problem="no template"))
    assert [each.until for each in state.held_off.values()] == [NOW + timedelta(hours=1)]


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.FENCED_OFF, Outcome.RELEASED])
def test_a_report_from_before_an_episodes_end_does_not_call_its_node_well_again(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S19, S43: a node that flaps was well for the last scan; since a person has ended its episode nobody has seen it so."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    state = ScannerState(started=NOW)
    hold_offs.note_release(state, Release(node="n", incident="i", outcome=outcome, problem="aborted by ada"))
    well = report(seen_nodes=(SeenNode(node="n", present=True, ready=True),))
    seen_by(state, well)
    assert [each.node for each in state.held_off.values()] == ["n"]
    state.settling.clear()
    seen_by(state, well)
    assert not state.held_off


def seen_by(state: ScannerState, seen: ScanReport) -> None:
    """The next scan has come in, and is decided upon."""
    state.report = seen
    hold_offs.forget_what_is_over(state, seen)


@pytest.mark.parametrize("by_person", [True, False])
def test_only_a_person_s_request_ends_what_failed_attempts_have_begun(by_person: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """S19: an episode that asks again by itself would begin to count anew. What is held off because another one is open is in the
    way of no request, and none ends it."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    held, failed = HoldOff(node="n", reason="another one is open", holder="another"), Attempts(node="n", failed=1, at=NOW)
    state = ScannerState(started=NOW, known=True, held_off={"n": held}, attempts={"n": failed})
    scanner = HealthScanner(ScannerInput(cluster="c", state=state))
    request = PermitRequest(node="n", workflow_id="w", incident="i", by_person=by_person)
    assert scanner._story.queue._answer(report(), request).decision is PermitDecision.GRANTED
    hold_offs.end_by_person(state, replace(OPEN, by_person=by_person))
    assert (state.held_off, state.attempts) == ({"n": held}, {} if by_person else {"n": failed})
    state.permits, state.held_off = {}, {"n": replace(held, holder="")}
    again = scanner._story.queue._answer(report(), replace(request, incident="j"))
    assert again.decision is (PermitDecision.GRANTED if by_person else PermitDecision.REFUSED), again.reason
    hold_offs.end_by_person(state, replace(OPEN, incident="j", by_person=by_person))
    assert bool(state.held_off) is not by_person


@pytest.mark.parametrize("seen", [{"open": False}, {"incident": "another"}, {"by_person": False}], ids=str)
def test_s19_a_request_in_a_person_s_name_ends_no_hold_off_unless_temporal_shows_its_episode(
    seen: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any client may send it, and a release after it; what it says of a veto is no shorter hold-off either."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    held, failed = HoldOff(node="n", reason="aborted by ada"), Attempts(node="n", failed=1, at=NOW)
    state = ScannerState(started=NOW, known=True, held_off={"n": held}, attempts={"n": failed}, described_at=NOW)
    asked = PermitRequest(node="n", workflow_id="w", incident="i", by_person=True)
    story = HealthScanner(ScannerInput(cluster="c", state=state))._story
    assert story.queue._answer(report(), asked).decision is PermitDecision.GRANTED
    assert state.described_at is None, "it is looked for at once"
    hold_offs.end_by_person(state, replace(OPEN, **{"by_person": True, **seen}))  # type: ignore[arg-type]
    assert (state.held_off, state.attempts) == ({"n": held}, {"n": failed})
    hold_offs.note_release(state, Release(node="n", incident="i", outcome=Outcome.RELEASED, problem="vetoed"))
    assert state.held_off == {"n": held}


def test_s19_a_person_s_request_that_only_waits_in_the_queue_ends_no_hold_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be given up there, and what failed before would be tried again at once."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    held, failed, other = HoldOff(node="n", reason="aborted"), Attempts(node="n", failed=1, at=NOW), replace(HELD_WITH, node="m")
    state = ScannerState(started=NOW, known=True, held_off={"n": held}, attempts={"n": failed}, permits={"m": other})
    story = HealthScanner(ScannerInput(cluster="c", state=state))._story
    asked = PermitRequest(node="n", workflow_id="w", incident="j", by_person=True)
    assert story.queue._answer(report(), asked).decision is PermitDecision.QUEUED
    hold_offs.end_by_person(state, replace(OPEN, incident="j", by_person=True))
    assert (state.held_off, state.attempts) == ({"n": held}, {"n": failed})
    state.permits.clear()
    assert story.queue._answer(report(), asked).decision is PermitDecision.GRANTED
    hold_offs.end_by_person(state, replace(OPEN, incident="j", by_person=True))
    assert (state.held_off, state.attempts) == ({}, {})


JUDGE = check()
HELD_WITH = Permit(
    node="n", workflow_id="w", incident="i", kind=Kind.FENCING, state=PermitState.OPEN, granted_at=NOW, checks=(JUDGE.ref.key,)
)
SEEMS_WELL = (SeenNode(node="n", ready=True, checks=(JUDGE.ref.key,)),)


def aborted(state: ScannerState) -> ScannerState:
    """Under the check as it was then."""
    state.permits["n"] = HELD_WITH
    hold_offs.note_release(state, Release(node="n", incident="i", outcome=Outcome.ABORTED, problem="aborted by ada"))
    state.settling.clear()
    return state


@pytest.mark.parametrize(
    ("judge", "seen", "stands"),
    [
        (JUDGE, SEEMS_WELL, False),
        (replace(JUDGE, generation=2), SEEMS_WELL, True),
        (replace(JUDGE, uid="another"), SEEMS_WELL, True),
        (replace(JUDGE, error="spec.selector: no"), SEEMS_WELL, True),
        (JUDGE, (replace(SEEMS_WELL[0], checks=()),), True),
        (replace(JUDGE, generation=2), (SeenNode(node="n", present=False),), False),
    ],
    ids=["as it was", "edited", "made anew", "unreadable", "selects it no more", "the node is gone"],
)
def test_only_who_called_it_sick_calls_an_aborted_node_well_within_a_day(
    judge: CheckReport, seen: tuple[SeenNode, ...], *, stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S19, S44: else an abort would be forgotten while a check is replaced or corrected."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    state = aborted(ScannerState(started=NOW, report=report(checks=(JUDGE,))))
    told = report(checks=(judge,), seen_nodes=seen)
    seen_by(state, told)
    assert [each.looked_well for each in state.held_off.values()] == ([NOW] if stands else [])
    monkeypatch.setattr(workflow, "now", lambda: NOW + UNJUDGED - timedelta(seconds=1))
    seen_by(state, told)
    assert [each.looked_well for each in state.held_off.values()] == ([NOW] if stands else [])
    monkeypatch.setattr(workflow, "now", lambda: NOW + UNJUDGED)
    seen_by(state, report(checks=(judge,), seen_nodes=(replace(seen[0], ready=False),)))
    assert bool(state.held_off) is stands, "it is as sick as before"
    seen_by(state, told)
    assert not state.held_off


def test_a_node_without_checks_in_its_line_is_judged_by_those_that_count_it_after_an_abort(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S19: its line was taken in from Temporal, after a reset, or is not there at all. Else the abort would be forgotten with the
    first report in which the check is not to be seen."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    for line in (replace(HELD_WITH, checks=(), found=True), None):
        state = ScannerState(started=NOW, permits={"n": line} if line is not None else {})
        seen_by(state, report(checks=(JUDGE,), seen_nodes=(replace(SEEMS_WELL[0], ready=False),)))
        release = Release(node=HELD_WITH.node, incident=HELD_WITH.incident, outcome=Outcome.ABORTED.value, problem="by ada")
        hold_offs.note_release(state, release)
        state.settling.clear()
        seen_by(state, report(checks=(), seen_nodes=(replace(SEEMS_WELL[0], checks=()),)))
        assert [each.looked_well for each in state.held_off.values()] == [NOW]


def test_what_was_held_off_when_an_episode_could_not_be_opened_knows_who_called_it_sick(monkeypatch: pytest.MonkeyPatch) -> None:
    """S19: Temporal remembers an abort that the scanner does not."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    outcome = OpenOutcome(node="n", incident="i", opened=Opened.HELD_OFF, workflow_id="w", reason="aborted by ada")
    for opened in (Opened.HELD_OFF, Opened.REFUSED):
        state = ScannerState(started=NOW, report=report(checks=(JUDGE,)))
        hold_offs.note_refused_opening(state, HELD_WITH, replace(outcome, opened=opened))
        seen_by(state, report(checks=(), seen_nodes=SEEMS_WELL))
        assert bool(state.held_off) is (opened is Opened.HELD_OFF)


def test_a_refused_request_for_a_node_that_is_well_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """S19, S46: that the node is well ends what a check would begin, and no request. It would be refused again in every scan."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    state = ScannerState(started=NOW)
    problem = "is not the node's device"
    for node in ("asked for", "n"):
        hold_offs.note_release(state, Release(node=node, incident="i", outcome=Outcome.REFUSED, problem=problem))
    state.settling.clear()
    wish = replace(candidate("asked for"), need=NeedKind.FOREIGN_OBJECT)
    seen = tuple(SeenNode(node=node, present=True, ready=True) for node in ("asked for", "n"))
    seen_by(state, report(seen_nodes=seen, candidates=(wish,)))
    assert [each.node for each in state.held_off.values()] == ["asked for"]
    monkeypatch.setattr(workflow, "now", lambda: NOW + AFTER_REFUSAL)
    seen_by(state, report(seen_nodes=seen, candidates=(wish,)))
    assert not state.held_off


def test_while_any_check_can_t_be_read_an_aborted_node_is_not_known_to_be_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """S19: that check may be the one that calls it sick, though it could not say so when the episode was begun by hand."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    state = aborted(ScannerState(started=NOW, report=report(checks=(JUDGE,))))
    other = replace(JUDGE, ref=replace(JUDGE.ref, name="other"), error="spec: a typo")
    seen_by(state, report(checks=(JUDGE, other), seen_nodes=SEEMS_WELL))
    assert [each.looked_well for each in state.held_off.values()] == [NOW]
    seen_by(state, report(checks=(JUDGE,), seen_nodes=SEEMS_WELL))
    assert not state.held_off


# The scanner remembers what its episodes were about, and says when it is always the same.

TWICE = RepeatAlarm(count=2, window=timedelta(hours=24))


async def told(scan: Scan, count: int) -> None:
    """Wait until so many repetitions have been told."""
    await eventually(scan.env, lambda: len(scan.world.repetitions) >= count)


async def end(scan: Scan, number: int, **fields: object) -> FencingInput:
    """The number-th episode is opened and ends."""
    await scan.has_opened(number)
    episode = scan.world.opened[number - 1]
    assert episode.need is not None
    await scan.release(episode, **({"cause": episode.need.cause} | fields))
    await scan.until(lambda status: all(permit.incident != episode.incident for permit in status.permits))
    scan.world.show(report("node-1"))
    return episode


async def test_a_node_that_fails_again_and_again_is_told_with_what_was_there_each_time(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world, repeat_alarm=TWICE) as scan:
        first = await end(scan, 1, workloads=("default/db-0", "default/web"), node_uid="uid-node-1")
        assert world.repetitions == []
        second = await end(scan, 2, workloads=("default/db-0",), node_uid="uid-node-1")
        await told(scan, 1)
    [request] = world.repetitions
    again = request.repetition
    assert (request.cluster, again.node, again.node_uid, again.cause) == (scan.cluster, "node-1", "uid-node-1", "Ready")
    assert again.incidents == (first.incident, second.incident)
    assert again.workloads == ("default/db-0",)


async def test_an_alarm_that_cant_be_told_holds_up_nothing(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report("node-1"), fails={"tell": 1})
    async with scanning(env, world, repeat_alarm=TWICE) as scan:
        for number in (1, 2, 3):
            await end(scan, number)
        await told(scan, 1)
        await scan.has_opened(4)
    assert world.repetitions[0].repetition.count == 3


@workflow.defn(sandboxed=False)
class Listener:
    """In the scanner's place: ends with the first release that it hears."""

    def __init__(self) -> None:
        self._heard: Release | None = None

    @workflow.run
    async def run(self) -> Release:
        await workflow.wait_condition(lambda: self._heard is not None)
        assert self._heard is not None
        return self._heard

    @workflow.signal
    def release(self, release: Release) -> None:
        self._heard = release


async def heard_from(env: WorkflowEnvironment, world: World) -> Release:
    """What the scanner hears of an episode."""
    world.gates["pin"] = asyncio.Event()
    async with fencing(env, world) as run:
        cluster = run.handle.id.split("/")[1]
        async with worker(env.client, task_queue=f"listeners-{cluster}", workflows=[Listener]):
            listener = await env.client.start_workflow(
                Listener.run, id=scanner_id(cluster), task_queue=f"listeners-{cluster}", result_type=Release
            )
            world.gates["pin"].set()
            return await asyncio.wait_for(listener.result(), 20)


async def test_an_episode_says_at_its_end_what_ailed_the_node_and_what_stood_there(env: WorkflowEnvironment) -> None:
    need = Need(kind=NeedKind.CHECK, reason="Ready is Unknown since noon", cause="ReadyUnknown")
    release = await heard_from(env, World(need=need))
    assert (release.outcome, release.cause, release.node_uid) == ("recovered", "ReadyUnknown", "uid-1")
    assert release.workloads == ("pod-0", "pod-1", "pod-2")


async def test_an_alarm_is_counted_once_by_a_metric(server: WorkflowEnvironment, measured: Measured) -> None:
    """Also where no Event can be written."""
    world = ScriptedCluster(report("node-1"), fails={"tell": 1})
    async with scanning(server, world, client=measured.client, repeat_alarm=TWICE) as scan:
        for number in (1, 2):
            await end(scan, number)
        await scan.has_opened(3)
    counted = measured.updates(metrics.REPEATED_FENCING)
    assert [(update.value, update.attributes["node"], update.attributes["cause"]) for update in counted] == [
        (1, "node-1", "Ready")
    ]


class HeldByAPerson(ScriptedCluster):
    """Its last episode was terminated while a person held it."""

    until: datetime | None = None

    async def open(self, request: OpenRequest) -> OpenResult:
        now = activity.info().started_time
        self.until = self.until or now + timedelta(minutes=30)
        self.outcomes = {"node-1": Opened.HELD_OFF if now < self.until else Opened.STARTED}
        return OpenResult(outcomes=tuple(replace(each, until=self.until) for each in (await super().open(request)).outcomes))


async def test_s44_a_node_that_is_held_until_a_moment_is_repaired_from_then_on(env: WorkflowEnvironment) -> None:
    world = HeldByAPerson(report("node-1"))
    async with scanning(env, world) as scan:
        (held,) = (await scan.until(lambda status: bool(status.held_off))).held_off
        assert held.until == world.until
        for minutes, opened in ((29, []), (2, ["node-1"])):
            await let_pass(env, scan.handle, timedelta(minutes=minutes))
            world.show(world.current)
            await let_pass(env, scan.handle, timedelta(seconds=5))
            assert [each.node for each in world.opened] == opened
