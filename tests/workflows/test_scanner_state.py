"""The permit state against what the server says of its holders (S14)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.episodes import DescribeResult, EpisodeActivities, EpisodeDescription, FoundOpen
from policy.checks.health_check import HealthCheck
from policy.checks.inventory import ControlPlane
from policy.episode.messages import Kind, Phase, SeenNode
from policy.episode.notices import REMIND_EVERY
from policy.episode.permits import Permit, PermitDecision, PermitQuestion, PermitQuestions, PermitState, Release
from policy.objects.nodes import Condition, NodeView
from policy.scan.scan_report import ScanReport
from policy.values.fields import Threshold
from policy.values.object_refs import ObjectRef
from tests.policy import builders
from tests.policy.builders import a_check, a_node, a_permit, ago, put
from tests.workflows.scanner_run import CHECK, NOW, ScriptedCluster, candidate, check, report, report_of, scanning
from tests.workflows.surroundings import eventually, let_pass
from workflows.definitions.scanner import HealthScanner
from workflows.scanner import hold_offs, permits
from workflows.scanner.hold_offs import CLOSING, note_release
from workflows.scanner.permits import DESCRIBE_EVERY, LIST_LAG, Holders
from workflows.scanner.state import ScannerInput, ScannerState


def line(node: str, state: PermitState = PermitState.OPEN, incident: str = "mine") -> Permit:
    """A line granted a while ago."""
    return Permit(
        node=node,
        workflow_id=f"episode/c/{node}",
        incident=incident,
        kind=Kind.FENCING,
        state=state,
        granted_at=NOW - timedelta(minutes=5),
    )


def described(node: str, incident: str = "mine", **changes: object) -> EpisodeDescription:
    """An open episode that says it has its permit."""
    plain = EpisodeDescription(
        node=node, known=True, open=True, workflow_id=f"episode/c/{node}", incident=incident, permit=True, started=NOW
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def state_with(*lines: Permit) -> ScannerState:
    return ScannerState(started=NOW, permits={each.node: each for each in lines})


def holdings(state: ScannerState) -> dict[str, PermitState]:
    """Line by line."""
    return {permit.node: permit.state for permit in state.permits.values()}


OPEN, PARKED, KEPT = PermitState.OPEN, PermitState.PARKED, {"kind": Kind.PRESERVATION}
MINE = line("node-1")

SAID: dict[str, tuple[tuple[Permit, ...], EpisodeDescription, dict[str, PermitState]]] = {
    "S14, S15, S17: an episode nobody granted, by hand or a late start, keeps its node and counts once the queue grants it": (
        (MINE,),
        described("node-2", "stranger"),  # that does not say what its node is: of the control plane, then
        {"node-1": OPEN, "node-2": PARKED},
    ),
    "a grant may be younger than its answer: the episode does not say yet that it has its permit": (
        (MINE,),
        described("node-1", permit=False),
        {"node-1": OPEN},
    ),
    "only the episode's own parking parks a line": ((MINE,), described("node-1", permit=False, parked=True), {"node-1": PARKED}),
    "a reservation whose episode is open is no reservation any more": (
        (replace(MINE, state=PermitState.RESERVED),),
        described("node-1"),
        {"node-1": OPEN},
    ),
    "S14: only its own word takes a line out of where it was parked": (
        (line("node-1", PARKED),),
        described("node-1"),
        {"node-1": PARKED},
    ),
    "S14: unknown is not another one": ((MINE,), described("node-1", ""), {"node-1": OPEN}),
    "what was asked before a grant says nothing about it": (
        (replace(MINE, granted_at=NOW),),
        described("node-1", open=False),
        {"node-1": OPEN},
    ),
    "a preservation disrupts nothing, and its line would keep everybody else from the node once it has ended": (
        (),
        described("node-1", permit=False, **KEPT),
        {},
    ),
    "S14: one that cuts its machine off has a permit, and counts": ((MINE,), described("node-1", **KEPT), {"node-1": OPEN}),
    "a grant of a preservation may be younger than its answer, too": (
        (MINE,),
        described("node-1", permit=False, **KEPT),
        {"node-1": OPEN},
    ),
}


@pytest.mark.parametrize("said", SAID)
def test_a_state_follows_what_is_said_of_its_holders(said: str) -> None:
    lines, description, after = SAID[said]
    state = state_with(*lines)
    state.reconcile(description, NOW, room=not lines)
    assert holdings(state) == after
    assert all(permit.incident == "mine" for permit in state.permits.values() if permit.node == "node-1")
    assert [(asked.incident, asked.control_plane) for asked in state.queue] == [("stranger", True)] * ("node-2" in after)


def test_a_rebuilt_state_takes_holders_in_while_there_is_room() -> None:
    """S14: who was granted by a predecessor keeps it, with all that the guards need to know of it (S15)."""
    state = state_with()
    state.reconcile(described("cp-1", control_plane=True, node_uid="u", provider_id="p"), NOW, room=True)
    permit = state.permits["cp-1"]
    assert (permit.state, permit.control_plane, permit.node_uid, permit.provider_id) == (PermitState.OPEN, True, "u", "p")


def test_a_state_built_anew_gives_no_permit_to_an_episode_that_says_it_has_none() -> None:
    """S14: it parked, and asked again, after the moment that a reset has gone back to; others may have its place by now. Asked as
    one that holds its permit already it would be let in beside them."""
    state = state_with(MINE)
    state.reconcile(described("node-1", permit=False), NOW, room=False, anew=True)
    assert holdings(state) == {"node-1": PARKED}


def test_a_closed_holder_goes_with_its_place_in_the_queue() -> None:
    """S14: proven gone."""
    state = state_with(line("node-1"))
    state.reconcile(described("node-2", "stranger"), NOW, room=False)
    state.reconcile(described("node-2", "stranger", open=False), NOW + timedelta(minutes=1), room=False)
    state.reconcile(described("node-1", open=False), NOW, room=False)
    assert holdings(state) == {}
    assert state.queue == []


def test_what_a_silent_holder_could_not_say_is_learnt_once_it_answers() -> None:
    """S15: until its episode says what its node is, it may be a member of the control plane."""
    state = state_with()
    state.reconcile(described("cp-1"), NOW, room=True)
    permit = state.permits["cp-1"]
    assert (permit.state, permit.control_plane, permit.node_uid) == (PermitState.OPEN, None, "")
    later = NOW + timedelta(minutes=1)
    state.reconcile(described("cp-1", control_plane=False, node_uid="u", provider_id="p"), later, room=True)
    permit = state.permits["cp-1"]
    assert (permit.state, permit.control_plane, permit.node_uid, permit.provider_id) == (PermitState.OPEN, False, "u", "p")


@pytest.mark.parametrize(("line_says", "episode_says", "after"), [(False, True, True), (True, False, True), (False, None, False)])
def test_a_node_that_was_once_of_the_control_plane_stays_so(line_says: bool, episode_says: bool | None, after: bool) -> None:
    """S15: who asked before the node was pinned took it for a worker; a silent episode takes nothing back."""
    state = state_with(replace(line("cp-1"), control_plane=line_says))
    state.reconcile(described("cp-1", control_plane=episode_says), NOW, room=False)
    assert [permit.control_plane for permit in state.permits.values()] == [after]


def test_who_has_asked_for_a_person_since_the_server_was_asked_is_not_forgotten() -> None:
    """S44: the answer is older than the question to the person; another time it would be told as a new one."""
    state = state_with(MINE)
    state.park("node-1", "mine", asks=NOW)
    state.reconcile(described("node-1"), NOW - timedelta(seconds=1), room=False)
    assert [(each.node, each.since) for each in state.need_person.values()] == [("node-1", NOW)]
    state.reconcile(described("node-1", phase=Phase.RUNNING), NOW + timedelta(seconds=1), room=False)
    assert state.need_person == {}


@pytest.mark.parametrize("incident", ["mine", ""])
def test_s44_an_episode_that_gives_no_answer_waits_for_a_person_as_before(incident: str) -> None:
    """Its worker is busy: people were told that none is needed, and a minute later of a new question, with a new reminder."""
    state = state_with(MINE)
    state.park("node-1", "mine", asks=NOW)
    silent = described("node-1", permit=True, incident=incident)
    state.reconcile(silent, NOW + timedelta(minutes=1), room=False)
    assert [(each.incident, each.since) for each in state.need_person.values()] == [("mine", NOW)]
    state.reconcile(replace(silent, incident="foreign Backup"), NOW + timedelta(minutes=2), room=False)
    assert state.need_person == {}


# What the scanner believes of an episode that it has heard the end of.

SAYS_OPEN = EpisodeDescription(node="n", known=True, open=True, workflow_id="episode/c/n", incident="i", permit=True)


@pytest.mark.parametrize(("later", "believed"), [(timedelta(0), False), (CLOSING - timedelta(seconds=1), False), (CLOSING, True)])
async def test_an_episode_that_closes_is_not_taken_in_again_but_one_that_goes_on_is(
    later: timedelta, *, believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S14: what was asked before its end may be heard after it; a line of that would stand until the next description."""

    async def described(*_: object, **__: object) -> DescribeResult:
        return DescribeResult(episodes=(SAYS_OPEN,))

    state = ScannerState(started=NOW, known=True)
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    monkeypatch.setattr(workflow, "execute_activity_method", described)
    holders = Holders(ScannerInput(cluster="c"), state)
    note_release(state, Release(node="n", incident="i", outcome="recovered"))
    monkeypatch.setattr(workflow, "now", lambda: NOW + later)
    assert await holders.describe(("n",), report()) is believed
    assert [line.incident for line in state.permits.values()] == (["i"] if believed else [])


@pytest.mark.parametrize("parked", [False, True])
async def test_after_a_reset_a_line_that_was_parked_is_what_its_episode_says(
    *, parked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S14: it may have been granted its permit again in the part of the history that is gone, and counts then. What is being
    opened goes on counting."""

    async def answered(method: object, request: Any, **_: object) -> object:
        if method is EpisodeActivities.find_open:
            return FoundOpen(nodes=("n",))
        told = (replace(SAYS_OPEN, node=node, open=node == "n", parked=parked) for node in request.nodes)
        return DescribeResult(episodes=tuple(told))

    monkeypatch.setattr(workflow, "now", lambda: NOW)
    monkeypatch.setattr(workflow, "execute_activity_method", answered)
    lines = (a_permit("n", PermitState.PARKED, incident="i"), a_permit("opening", PermitState.RESERVED))
    state = ScannerState(started=NOW, known=True, permits={each.node: each for each in lines})
    holders = Holders(ScannerInput(cluster="c", cap=2), state)
    expected = {"n": PermitState.PARKED, "opening": PermitState.RESERVED}
    await holders.rebuild(report(run="first"))
    assert {line.node: line.state for line in state.permits.values()} == expected
    await holders.rebuild(report(run="after the reset"))
    assert state.known
    counts = PermitState.PARKED if parked else PermitState.OPEN
    assert {line.node: line.state for line in state.permits.values()} == expected | {"n": counts}


@pytest.mark.parametrize("at", [EpisodeActivities.find_open, EpisodeActivities.describe], ids=["listed", "described"])
async def test_s14_what_was_asked_for_before_a_reset_is_not_believed_after_it(
    at: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is in the part of the history that is kept, and older than what was granted in the part that is gone."""

    async def answered(method: object, request: Any, **_: object) -> object:
        if method == at:
            holders.forget()
        if method is EpisodeActivities.find_open:
            return FoundOpen(nodes=("n",))
        return DescribeResult(episodes=tuple(replace(SAYS_OPEN, node=node, open=False) for node in request.nodes))

    monkeypatch.setattr(workflow, "now", lambda: NOW)
    monkeypatch.setattr(workflow, "sleep", AsyncMock())
    monkeypatch.setattr(workflow, "execute_activity_method", answered)
    state = ScannerState(started=NOW)
    holders = Holders(ScannerInput(cluster="c"), state)
    await holders.rebuild(report())
    assert not state.known
    at = None
    await holders.rebuild(report())
    assert state.known


# The scanner's table keeps what a line counts under, whatever its episode asks meanwhile (S14).

ONE_AT_ONCE = replace(check(), at_once=1)


@pytest.mark.parametrize("gives_back", [False, True], ids=["granted again", "held and asked anew"])
async def test_a_check_counts_an_episode_that_has_asked_for_its_permit_again(env: WorkflowEnvironment, gives_back: bool) -> None:
    """S14: `max-in-flight` of a check; a person's hold that ends, or a question that is asked twice, makes nobody uncounted."""
    first, second = (replace(candidate(node), checks=(CHECK.key,)) for node in ("node-1", "node-2"))
    world = ScriptedCluster(report("node-1", candidates=(first,), checks=(ONE_AT_ONCE,)))
    async with scanning(env, world, cap=5) as scan:
        await scan.has_opened(1)
        await scan.until(lambda status: [each.state for each in status.permits] == [PermitState.OPEN])
        if gives_back:
            await scan.release(world.opened[0], held=True, outcome="")
            await scan.until(lambda status: [each.state for each in status.permits] == [PermitState.PARKED])
        answer = await scan.ask("node-1", world.opened[0].incident, by_person=False)
        assert answer.decision is PermitDecision.GRANTED
        world.show(report("node-1", "node-2", candidates=(first, second), checks=(ONE_AT_ONCE,)))
        status = await scan.until(lambda status: bool(status.refused) or status.opened == 2)
        assert {each.node: each.reason for each in status.refused} == {"node-2": "InFlightLimit"}


@pytest.mark.parametrize("is_candidate", [False, True])
async def test_a_node_with_unknown_checks_counts_under_each_until_a_report_names_them(
    env: WorkflowEnvironment, is_candidate: bool
) -> None:
    """S14: an episode that a new scanner has found open, and that asks for its permit."""
    open_one = EpisodeDescription(
        node="node-1", known=True, open=True, workflow_id="episode", incident="i-1", control_plane=False, node_uid="uid-node-1"
    )
    limited = replace(candidate("node-2"), checks=(CHECK.key,))
    others = (candidate("node-1"),) if is_candidate else ()
    world = ScriptedCluster(report(), found=[FoundOpen(nodes=("node-1",))], known={"node-1": open_one})
    async with scanning(env, world, cap=5) as scan:
        await scan.until(lambda status: [each.state for each in status.permits] == [PermitState.PARKED])
        world.show(report(candidates=others))
        await scan.until(lambda status: status.report is not None and len(status.report.candidates) == len(others))
        assert (await scan.ask("node-1", "i-1")).decision is PermitDecision.GRANTED
        world.show(report(candidates=(*others, limited), checks=(ONE_AT_ONCE,)))
        status = await scan.until(lambda status: bool(status.refused) or status.opened == 1)
        assert [each.reason for each in status.refused] == ([] if is_candidate else ["InFlightLimit"])


WORKERS = a_check("workers", minHealthy=None, maxUnhealthy="100%")
DISKS = a_check(
    "disks",
    minHealthy=None,
    maxUnhealthy="100%",
    unhealthyConditions=[{"type": "DiskPressure", "status": "True", "duration": "10s"}],
)


def limited(check: HealthCheck, most: int) -> HealthCheck:
    return replace(check, max_in_flight=Threshold(value=most))


def sick(number: int) -> NodeView:
    """Not Ready; of several the one with the lower number for longer."""
    return a_node(f"node-{number}", "Unknown", age=1000 - number)


def bad_disk(number: int) -> NodeView:
    conditions = [Condition(type=kind, status="True", since=ago(1000 - number)) for kind in ("Ready", "DiskPressure")]
    return a_node(f"node-{number}", conditions=tuple(conditions))


async def test_a_limit_that_is_written_while_as_many_are_under_way_counts_them(env: WorkflowEnvironment) -> None:
    """S14: also one whose Machine and Node are gone by then."""
    ledger = builders.ledger_of(WORKERS, *map(sick, (1, 2, 3)))
    world = ScriptedCluster(report_of(ledger))
    async with scanning(env, world, cap=9) as scan:
        await scan.has_opened(3)
        ledger.remove_node("node-3")
        put(ledger, limited(WORKERS, 3))
        put(ledger, sick(4))
        world.show(report_of(ledger, ("node-1", "node-2", "node-3")))
        status = await scan.until(lambda status: bool(status.refused) or status.opened == 4)
        assert {each.node: each.reason for each in status.refused} == {"node-4": "InFlightLimit"}


async def test_a_target_that_is_remediated_under_another_check_counts(env: WorkflowEnvironment) -> None:
    """S14: the limit is of the check's targets, whoever has asked; and it holds up whoever else asks."""
    ledger = builders.ledger_of(limited(WORKERS, 1), DISKS, bad_disk(1))
    world = ScriptedCluster(report_of(ledger))
    async with scanning(env, world, cap=9) as scan:
        await scan.has_opened(1)
        put(ledger, sick(2))
        put(ledger, bad_disk(3))
        world.show(report_of(ledger, ("node-1",)))
        status = await scan.until(lambda status: bool(status.refused) or status.opened > 1)
        assert {each.node: each.reason for each in status.refused} == dict.fromkeys(("node-2", "node-3"), "InFlightLimit")


@pytest.mark.parametrize("is_told", [True, False], ids=["told by the report", "not told yet"])
async def test_one_that_asks_while_more_wait_than_a_report_names_is_held_to_its_checks(
    env: WorkflowEnvironment, is_told: bool
) -> None:
    """S14: whoever is not named is not free of limits. A report that does not tell anything of the node yet speaks of all."""
    ledger = builders.ledger_of(limited(WORKERS, 1), *map(sick, range(1, 60)))
    world = ScriptedCluster(report_of(ledger))
    async with scanning(env, world, cap=90) as scan:
        await scan.has_opened(1)
        world.show(report_of(ledger, ("node-1", "node-59") if is_told else ("node-1",)))
        await scan.until(lambda status: len(status.report.seen_nodes if status.report is not None else ()) == 1 + is_told)
        answer = await scan.ask("node-59")
        assert (answer.decision, answer.reason) == (
            PermitDecision.QUEUED,
            "NodeHealthCheck/workers lets 1 be remediated at once: node-1",
        )
        await scan.release(world.opened[0])
        put(ledger, a_node("node-1"))
        world.show(report_of(ledger, ("node-59",)))
        status = await scan.until(lambda status: "node-59" in [each.node for each in status.permits] or status.opened > 1)
        assert [each.node for each in status.permits] == ["node-59"]


# What an episode says of its end and what others say of it, the server or a scan, reach the scanner in any order.


async def test_the_scan_is_told_how_many_wait_for_a_person_and_for_a_permit(env: WorkflowEnvironment) -> None:
    """For the metrics: a preservation that has no line counts, one that is held does not, and who goes on counts no more."""
    keeper = EpisodeDescription(node="kept", known=True, open=True, workflow_id="w", incident="i", kind=Kind.PRESERVATION)
    world = ScriptedCluster(report("node-1", "node-2"), known={"kept": replace(keeper, parked=True)})

    async def told(*numbers: int) -> None:
        def as_expected() -> bool:
            world.show(world.current)
            last = world.requests[-1]
            return (last.need_person, last.permits, last.queued) == numbers

        await eventually(env, as_expected)

    async with scanning(env, world, cap=1) as scan:
        await scan.has_opened(1)
        await told(0, 1, 0)
        assert (await scan.ask("node-3")).decision is PermitDecision.QUEUED
        await told(0, 1, 1)
        await scan.client_handle().signal(HealthScanner.release, Release(node="kept", incident="i", parked=True))
        await told(1, 1, 1)
        await scan.release(world.opened[0], parked=True, problem="off is not proven")
        await told(2, 1, 0)
        asking = [each.node for each in world.requests[-1].in_flight or () if each.needs_person]
        assert asking == [world.opened[0].node], "its check says so, too"
        await scan.has_opened(2)
        await scan.release(world.opened[1], held=True)
        await told(2, 0, 0)
        world.known, world.current = {}, report()  # when they are described next, both have ended
        await let_pass(env, scan.handle, permits.DESCRIBE_EVERY)
        await told(0, 0, 0)


async def test_people_are_told_every_half_hour_that_an_episode_still_waits_for_them(env: WorkflowEnvironment) -> None:
    """S44: with a long poll that begins anyway; and for as long as he waits."""
    keeper = EpisodeDescription(node="kept", known=True, open=True, workflow_id="w", incident="i", kind=Kind.PRESERVATION)
    world = ScriptedCluster(known={"kept": replace(keeper, parked=True)})

    since = list[str]()

    async def reminded() -> list[str]:
        """By two polls after another."""
        first = len(world.requests)
        for count in (1, 2):
            world.show(world.current)
            await eventually(env, lambda count=count: len(world.requests) >= first + count)
        since.extend(each.since for request in world.requests[first:] for each in request.remind)
        return [each.node for request in world.requests[first:] for each in request.remind]

    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.report is not None)
        await scan.client_handle().signal(HealthScanner.release, Release(node="kept", incident="i", parked=True))
        assert await reminded() == []
        for _ in range(2):
            await let_pass(env, scan.handle, REMIND_EVERY)
            assert await reminded() == ["kept"]
        world.known = {}
        await let_pass(env, scan.handle, REMIND_EVERY)
        await reminded()  # it is described now
        await let_pass(env, scan.handle, REMIND_EVERY)
        assert await reminded() == []
    assert len(set(since)) == 1, "since when he waits, whenever people were told"


@pytest.mark.parametrize(
    ("lasts", "least", "most"),
    [
        (None, timedelta(seconds=30), hold_offs.AFTER_REFUSAL),
        (timedelta(seconds=-5), timedelta(seconds=30), hold_offs.AFTER_REFUSAL),
        (timedelta(minutes=6), timedelta(minutes=5), timedelta(minutes=6)),
        (timedelta(hours=1), timedelta(minutes=9), hold_offs.AFTER_VETO),
    ],
    ids=["no lease", "lapsed", "short", "long"],
)
async def test_a_node_under_a_lease_of_another_holder_gets_no_new_episode_while_that_lasts(
    env: WorkflowEnvironment, lasts: timedelta | None, least: timedelta, most: timedelta
) -> None:
    """One episode a minute, each begun only to be vetoed, would be all that people see. Who holds it is told meanwhile."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        now = await env.get_current_time(scan.handle)
        until = now + lasts if lasts is not None else None
        vetoed = "given up before power-off: the node's lease is held by 'node-maintenance'"
        await scan.release(world.opened[0], outcome="released", problem=vetoed, vetoed_until=until)
        world.show(report("node-1"))
        status = await scan.until(lambda status: bool(status.held_off) and bool(status.refused))
        (held,) = status.held_off
        assert held.until is not None
        assert least <= held.until - now <= most + timedelta(seconds=5)
        assert "node-maintenance" in status.refused[0].message
        # S44: the veto may be over by then, and a node that nothing holds any more read as if something still did.
        assert held.reason.startswith("its last episode ended released (incident ")


async def test_a_held_episode_makes_room_and_has_not_failed(env: WorkflowEnvironment) -> None:
    """S14, S19: it keeps its node, and nobody is left alone for it."""
    world = ScriptedCluster(report("node-1", "node-2"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.release(world.opened[0], outcome="", held=True)
        await scan.has_opened(2)
        status = await scan.until(lambda status: len(status.permits) == 2)
        assert {permit.node: permit.state for permit in status.permits}["node-1"] is PermitState.PARKED
        carried = await scan.handle.query(HealthScanner.status)
        assert carried.held_off == ()
        assert (await scan.ask("node-1", world.opened[0].incident)).decision is PermitDecision.QUEUED


# What a scanner has forgotten counts all the same: a reset of its workflow takes back what it knew of its permits (S14).

AFTER_RESET = ScannerState(started=NOW, known=True, described_at=NOW)
"""It believes that it knows all open episodes."""
LOST = SeenNode(node="node-1", uid="uid-node-1", unhealthy=True, incident="i-1", provider_id="sim:///1")
OPEN_EPISODE = EpisodeDescription(
    node="node-1", known=True, open=True, workflow_id="episode", incident="i-1", permit=True, control_plane=False
)


def marked(*nodes: str, **changes: object) -> ScanReport:
    """node-1 carries a mark, these are candidates."""
    return report(*nodes, **({"seen_nodes": (LOST,)} | changes))


async def test_a_marked_node_without_a_line_counts_until_its_episode_is_described_as_closed(env: WorkflowEnvironment) -> None:
    """S14: in the very report that is acted on, also against who asks."""
    world = ScriptedCluster(marked("node-2"), known={"node-1": OPEN_EPISODE})
    async with scanning(env, world, cap=1, state=AFTER_RESET) as scan:
        status = await scan.until(lambda status: bool(status.refused) or status.opened > 0)
        assert {each.node: each.reason for each in status.refused} == {"node-2": "CapReached"}
        assert (await scan.ask("node-3")).decision is PermitDecision.QUEUED
        assert world.opened == []
        world.known = {}
        await let_pass(env, scan.handle, DESCRIBE_EVERY)
        world.show(marked("node-2"))
        await scan.has_opened(1)


async def test_an_episode_that_is_found_again_counts_while_it_waits_for_its_permit(env: WorkflowEnvironment) -> None:
    """S14, S17: a circuit breaker refuses it its permit; its machine may be off all the same."""
    other = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="others")
    checks = (check(), replace(check(allowed=False, message="9 of 12 are unhealthy"), ref=other))
    world = ScriptedCluster(marked("node-2", checks=checks), known={"node-1": OPEN_EPISODE})
    async with scanning(env, world, cap=1, state=AFTER_RESET) as scan:
        status = await scan.until(lambda status: (bool(status.queue) and bool(status.refused)) or status.opened > 0)
        assert ([each.node for each in status.queue], world.opened) == (["node-1"], [])
        scans = len(world.requests)
        world.show(marked("node-2", "node-3", checks=checks))
        status = await scan.until(
            lambda status: (len(world.requests) > scans + 1 and len(status.refused) == 2) or status.opened > 0
        )
        assert {each.node: each.reason for each in status.refused} == dict.fromkeys(("node-2", "node-3"), "CapReached")
        assert [each.queued for each in world.requests[-1].in_flight or ()] == [True], "people read that it waits"


@pytest.mark.parametrize("later", [False, True], ids=["to its beginning", "to a later moment"])
async def test_a_real_reset_has_the_table_built_anew_before_anything_is_granted(
    server: WorkflowEnvironment, *, later: bool
) -> None:
    """S14: of a history that began with carried state, before its first report; node-1 holds a permit and bears no mark."""
    world = ScriptedCluster(report(), known={"node-1": OPEN_EPISODE})
    async with scanning(server, world, cap=1, state=AFTER_RESET) as scan:
        await scan.until(lambda status: status.scans > 0)
        assert world.listed == 0
        run = (await scan.client_handle().describe()).run_id
        done = [
            each.event_id
            async for each in scan.client_handle().fetch_history_events()
            if each.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]
        await asyncio.sleep(0 if later else LIST_LAG.total_seconds())
        world.found = [FoundOpen(nodes=("node-1",))]
        world.show(report("node-2"))
        await server.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=server.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=scan.handle.id, run_id=run),
                reason="test",
                request_id="test",
                workflow_task_finish_event_id=done[1 if later else 0],
            )
        )
        status = await scan.until(lambda status: bool(status.refused) or status.opened > 0)
        assert {each.node: each.reason for each in status.refused} == {"node-2": "CapReached"}


@pytest.mark.parametrize(
    "description",
    [None, replace(OPEN_EPISODE, kind=Kind.PRESERVATION, permit=False)],
    ids=["its episode was terminated", "it is kept"],
)
async def test_a_mark_without_an_episode_counts_no_longer_than_it_takes_to_ask(
    env: WorkflowEnvironment, description: EpisodeDescription | None
) -> None:
    world = ScriptedCluster(marked("node-2"), known={"node-1": description} if description is not None else {})
    async with scanning(env, world, cap=1, state=AFTER_RESET) as scan:
        before = await scan.env.get_current_time()
        await scan.has_opened(1)
        assert [episode.node for episode in world.opened] == ["node-2"]
        assert await scan.env.get_current_time() - before < DESCRIBE_EVERY
        assert world.described[:1] == [("node-1",)]


async def test_a_stranger_counts_in_the_last_look_at_a_member_of_the_control_plane(env: WorkflowEnvironment) -> None:
    """S15, S14: its line was lost, and it may have off the one member that the others can spare."""
    own = a_permit("cp-1", control_plane=True)
    seen = report(seen_nodes=(LOST,), control_plane=ControlPlane(members=3, ready=3))
    world = ScriptedCluster(
        seen, known={"node-1": OPEN_EPISODE, "cp-1": replace(OPEN_EPISODE, node="cp-1", incident=own.incident)}
    )
    asked = PermitQuestions(questions=(PermitQuestion(node="cp-1", incident=own.incident),))
    async with scanning(env, world, cap=5, state=replace(AFTER_RESET, permits={own.node: own})) as scan:
        await scan.until(lambda status: status.scans > 0)
        (answer,) = (await scan.handle.query(HealthScanner.holds_permits, asked)).questions
        assert (answer.held, "node-1" in answer.reason) == (False, True), answer.reason
