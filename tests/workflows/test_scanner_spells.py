"""What a scanner has recorded: spells that it does not repair, never lost and never twice, and its decisions in the stream."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.scan import ScanRequest
from activities.errors import ErrorType, failure
from policy.episode.decisions import Decision, DecisionKind
from policy.episode.gate import MODE
from policy.episode.messages import Kind, SeenNode, episode_id
from policy.episode.permits import HoldOff, Permit, PermitState
from policy.history.spells import MOST_RECORDED, Ending, NodeDays, ObservationRecord, ScannerSpells, Spell
from policy.scan.scan_report import NodeStanding, ScanReport, WatchedNode
from policy.values.mode import Mode
from tests.workflows import contract
from tests.workflows.scanner_run import CHECK, NOW, ScriptedCluster, report, scanning
from tests.workflows.surroundings import eventually, let_pass
from workers.payloads.converter import DATA_CONVERTER
from workflows.definitions.scanner import HealthScanner
from workflows.kit.messages import ModeRequest, PauseRequest, StopRequest, UnpauseRequest
from workflows.scanner.background_tasks import BackgroundTasks
from workflows.scanner.spells import Spells
from workflows.scanner.state import ScannerInput, ScannerState


def well(*nodes: str) -> tuple[WatchedNode, ...]:
    return tuple(WatchedNode(node=node, standing=NodeStanding.WELL, uid=f"uid-{node}", ready=True) for node in nodes)


def endings(recorded: list[ObservationRecord]) -> dict[str, Ending | None]:
    return {spell.node: spell.ending for record in recorded for spell in record.spells}


async def test_a_node_that_waits_has_a_spell_until_it_is_well_and_then_a_record(env: WorkflowEnvironment) -> None:
    """One permit: "a" is repaired, "b" waits and comes back. The record is asked for until it is made."""
    world = ScriptedCluster(report("a", "b"))
    world.fails["record"] = 1
    async with scanning(env, world) as scan:
        status = await scan.until(lambda status: bool(status.spells))
        assert [(each.node, each.held[0].code) for each in status.spells] == [("b", "CapReached")]
        world.show(report("a"))
        await eventually(env, lambda: world.requests[-1].spells == ("b",))
        assert (await scan.until(lambda status: len(status.spells) == 1)).open_spells == 1, "left out is not well"
        world.show(report("a", watched=well("b")))
        await eventually(env, lambda: world.fails["record"] == 0)
        assert (await scan.until(lambda status: status.open_spells == 0)).spells, "over, and not recorded"
        await let_pass(env, scan.handle, timedelta(seconds=61))
        world.show(report("a"))
        await eventually(env, lambda: bool(world.recorded))
        await scan.until(lambda status: not status.spells)
        assert endings(world.recorded) == {"b": Ending.CAME_BACK}


async def test_a_spell_under_a_mode_says_what_would_have_held_it_in_mode_repair(env: WorkflowEnvironment) -> None:
    seen = report("a", "b", "c")
    first, *others = seen.candidates
    observed = (replace(each, refused="mode observe", vetoed_by=MODE) for each in others)
    async with scanning(env, ScriptedCluster(replace(seen, candidates=(first, *observed)))) as scan:
        status = await scan.until(lambda status: bool(status.spells))
        assert {(each.node, each.reason) for each in status.refused} == {("b", "Mode"), ("c", "Mode")}
        assert {(each.node, each.held[0].code) for each in status.spells} == {("b", "CapReached"), ("c", "CapReached")}


async def test_a_spell_under_a_pause_names_no_command_that_ends_it(env: WorkflowEnvironment) -> None:
    """The record is read when the pause is over. What is in force says above all else how it ends (S44)."""
    world = ScriptedCluster(report())
    async with scanning(env, world) as scan:
        await scan.handle.execute_update(HealthScanner.pause, PauseRequest(who="ada", reason="drill"))
        world.show(report("a"))
        status = await scan.until(lambda status: bool(status.spells))
        ((held,),) = (each.held for each in status.spells)
        assert held.message == "paused by ada (identity not verified), until it is ended by hand: drill"
        assert [each.message for each in status.refused] == [held.message]
        assert (await scan.ask("b")).reason == held.message


async def test_a_node_that_is_repaired_after_waiting_has_its_incident_on_record(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report("a", "b"))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: bool(status.spells))
        await scan.has_opened(1)
        await scan.release(world.opened[0])
        world.show(report("b"))
        await scan.has_opened(2)
        await scan.until(lambda status: status.opened == 2)
        world.show(report("b"))
        await eventually(env, lambda: bool(world.recorded))
        (spell,) = world.recorded[0].spells
        assert (spell.node, spell.ending, spell.incident) == ("b", Ending.OURS, world.opened[1].incident)


async def test_a_node_that_is_left_alone_has_a_spell_under_an_open_circuit_breaker(
    env: WorkflowEnvironment,
) -> None:
    """S44: it is no candidate then, and the scanner asks how it stands."""
    world = ScriptedCluster(report("a"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        world.show(report())
        await scan.release(world.opened[0], outcome="aborted", problem="by ada")
        await eventually(env, lambda: world.requests[-1].spells == ("a",))
        held = WatchedNode(
            node="a", standing=NodeStanding.DUE, check=CHECK.key, code="CircuitBreakerOpen", message="0 are healthy"
        )
        world.show(report(watched=(held,)))
        status = await scan.until(lambda status: bool(status.spells))
        assert [(each.node, each.held[0].code) for each in status.spells] == [("a", "CircuitBreakerOpen")]


async def test_a_storm_is_recorded_once_all_of_it_is_over(env: WorkflowEnvironment) -> None:
    nodes = [f"n{number:02}" for number in range(12)]
    world = ScriptedCluster(report(*nodes))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: len(status.spells) == 11)
        waiting = nodes[1:]
        world.show(report("n00", watched=well(*waiting[:-1])))
        status = await scan.until(lambda status: status.open_spells == 1)
        assert not world.recorded
        assert len(status.spells) == 11, "what is over and not recorded is shown"
        world.show(report("n00", watched=well(waiting[-1])))
        await eventually(env, lambda: bool(world.recorded))
        (record,) = world.recorded
        assert [each.node for each in record.spells] == waiting
        assert "/-storm/" in record.workflow_id


async def test_a_record_that_is_refused_is_kept_and_holds_back_no_other(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report("a", "b", "c"))
    world.refuses = lambda record: record.spells[0].node == "b"
    async with scanning(env, world) as scan:
        await scan.until(lambda status: len(status.spells) == 2)
        world.show(report("a", watched=well("b", "c")))
        status = await scan.until(lambda status: status.open_spells == 0 and len(status.spells) == 1)
        assert ([each.node for each in status.spells], endings(world.recorded)) == (["b"], {"c": Ending.CAME_BACK})
        world.refuses = lambda _: False
        await let_pass(env, scan.handle, timedelta(seconds=61))
        world.show(report("a"))
        await scan.until(lambda status: not status.spells)
        assert [spell.node for record in world.recorded for spell in record.spells] == ["c", "b"]


def of_storm(storm: str, number: int) -> list[Spell]:
    found = Spell(node="", check="c", cause="Ready", since=NOW, due=NOW, ended=NOW, ending=Ending.CAME_BACK, storm=storm)
    return [replace(found, node=f"{storm}-{each:03}") for each in range(number)]


async def test_a_storm_that_is_refused_keeps_all_its_parts_and_another_goes_first(env: WorkflowEnvironment) -> None:
    """A part that was left alone in the state would be recorded under the number of one that exists, and be lost."""
    storms = [*of_storm("a", MOST_RECORDED + 1), *of_storm("b", 2)]
    world = ScriptedCluster(report("x"))
    world.refuses = lambda record: (record.spells[0].storm, record.part) == ("a", 1)
    async with scanning(env, world, state=ScannerState(started=NOW, spells_of_storms=storms)) as scan:
        await eventually(env, lambda: len(world.recorded) == 1)
        await let_pass(env, scan.handle, timedelta(seconds=61))
        world.show(report("x"))
        await eventually(env, lambda: len(world.recorded) >= 2)
        assert [(each.spells[0].storm, each.part) for each in world.recorded[:2]] == [("a", 0), ("b", 0)]
        world.refuses = lambda _: False
        await let_pass(env, scan.handle, timedelta(seconds=61))
        world.show(report("x"))
        await scan.until(lambda status: not status.spells)
        assert {(each.part, len(each.spells)) for each in world.recorded if each.spells[0].storm == "a"} == {
            (0, MOST_RECORDED),
            (1, 1),
        }


async def test_refused_storms_take_turns(env: WorkflowEnvironment) -> None:
    """A storm is dropped only where it is tried: one that waits for the end of another would stay twice as long."""
    world = ScriptedCluster(report("x"))
    world.refuses = lambda record: bool(record.spells)
    async with scanning(
        env, world, state=ScannerState(started=NOW, spells_of_storms=[*of_storm("a", 1), *of_storm("b", 1)])
    ) as scan:
        for tries in range(1, 5):
            await eventually(env, lambda tries=tries: len(world.record_requests) >= tries)
            await let_pass(env, scan.handle, timedelta(seconds=61))
            world.show(report("x"))
    assert [each.records[0].spells[0].storm for each in world.record_requests[:4]] == ["a", "b", "a", "b"]


def after_another(world: ScriptedCluster, *spells: Spell) -> ScriptedCluster:
    """Another scanner of the cluster has left these."""
    days = (NodeDays(day=f"{datetime.now(UTC):%Y-%m-%d}", check="c", mode=Mode.OBSERVE, seconds=7.0),)
    world.former = ScannerSpells(spells=spells, days=days)
    world.found = [contract.FoundOpen(nodes=(), earlier=True, former="run-1")]
    return world


LEFT = Spell(node="b", check=CHECK.key, cause="Ready", since=NOW, due=datetime.now(UTC) - timedelta(minutes=5), uid="uid-b")


async def test_a_scanner_goes_on_with_the_spells_of_one_that_was_terminated(env: WorkflowEnvironment) -> None:
    """With their moments, so that their records have the ids that the last scanner would have used."""
    over = replace(LEFT, node="c", ended=LEFT.due, ending=Ending.CAME_BACK)
    world = after_another(ScriptedCluster(report("a", "b")), LEFT, over)
    async with scanning(env, world) as scan:
        status = await scan.until(lambda status: status.opened == 1 and len(status.spells) == 1)
        assert [(each.node, each.due) for each in status.spells] == [("b", LEFT.due)]
        assert [each.spells for each in world.recorded] == [(over,)]
        world.show(report("a", watched=well("b")))
        await scan.until(lambda status: not status.spells)
        assert world.recorded[-1].spells[0].due == LEFT.due
        assert (await scan.client_handle().query(HealthScanner.spells)).days[0].seconds >= world.former.days[0].seconds


ABORTED = HoldOff(node="a", reason="aborted by ada: wrong rack")


async def test_s19_a_node_that_a_person_wants_left_alone_is_so_by_the_next_scanner(env: WorkflowEnvironment) -> None:
    """S19, S44: a person has aborted its episode, and the scanner is stopped and begun anew. Until it is well, as ever; also
    where that scanner was still to ask the one before it."""
    world = after_another(ScriptedCluster(report("a")))
    world.former = replace(world.former, held_off=(ABORTED,))
    async with scanning(env, world) as scan:
        status = await scan.until(lambda status: bool(status.refused))
        assert [(each.node, each.reason) for each in status.held_off] == [(ABORTED.node, ABORTED.reason)]
        assert not world.opened
        world.show(report(seen_nodes=(SeenNode(node="a", ready=True),)))
        await scan.until(lambda status: not status.held_off)
        world.show(report("a"))
        await scan.has_opened(1)


async def test_s19_a_node_that_was_aborted_while_no_scanner_ran_is_left_alone(env: WorkflowEnvironment) -> None:
    """S19, S44."""
    world = after_another(ScriptedCluster(report("a")))
    world.found = [replace(world.found[0], left_alone=(ABORTED,))]
    async with scanning(env, world) as scan:
        await scan.until(lambda status: bool(status.refused))
        assert not world.opened


@pytest.mark.parametrize("late", [False, True])
def test_s19_what_the_last_scanner_says_of_who_is_left_alone_outlives_what_holds_off_for_a_moment(late: bool) -> None:
    """S19, S44: a reset has brought back what was refused for a minute. Where it is said late, a person may have asked since."""
    short = HoldOff(node="a", reason="refused", until=NOW + timedelta(minutes=1))
    asked = Permit(workflow_id="w", node="b", kind=Kind.FENCING, incident="i", state=PermitState.OPEN, granted_at=NOW)
    state = ScannerState(started=NOW, held_off={"a": short}, permits={"b": asked}, former_run="run-1" if late else "")
    Spells(ScannerInput(cluster="c"), state, BackgroundTasks()).leave_alone([ABORTED, replace(ABORTED, node="b")])
    assert state.held_off.get("a") == ABORTED
    assert ("b" in state.held_off) is not late


async def test_s19_an_opening_says_that_the_last_scanner_has_not_said_who_is_left_alone(env: WorkflowEnvironment) -> None:
    """S19, S44: its answer comes after the first scan, as where a queue is full for a moment. An aborted node got an episode."""
    world = after_another(ScriptedCluster(report("a", "b")))
    world.former, world.fails["former"] = replace(world.former, held_off=(replace(ABORTED, node="z"),)), 2
    async with scanning(env, world) as scan:
        await scan.until(lambda status: bool(status.held_off))
        await scan.release(world.opened[0])
        world.show(report("b"))
        await scan.has_opened(2)
    assert world.unasked == [True, False]


async def test_s19_a_scanner_that_was_stopped_says_who_is_to_be_left_alone(env: WorkflowEnvironment) -> None:
    """S19: those that a person or a machine that stays off keeps, or that have failed too often, and none that is kept by what is
    open."""
    failed = HoldOff(node="b", reason="attempts failed in a row: 3", until=NOW + timedelta(days=9999))
    state = ScannerState(started=NOW, held_off={"a": ABORTED, "b": failed, "c": replace(ABORTED, node="c", holder="another")})
    async with scanning(env, ScriptedCluster(report("a", "b", "c")), state=state) as scan:
        await scan.until(lambda status: bool(status.refused))
        await scan.client_handle().execute_update(HealthScanner.stop, StopRequest(who="ada", reason="maintenance"))
        await scan.client_handle().result()
        assert (await scan.client_handle().query(HealthScanner.spells)).held_off == (ABORTED, failed)


async def test_what_a_reset_took_back_is_what_the_last_life_knew(env: WorkflowEnvironment) -> None:
    """What was open before, and is recorded by now, is not begun again under another moment; what began later is kept."""
    before = replace(LEFT, due=NOW)
    world = after_another(ScriptedCluster(report("a", "b")), LEFT)
    state = ScannerState(started=NOW, spells={"b": before, "z": replace(before, node="z")}, spells_ended=[of_storm("s", 1)[0]])
    async with scanning(env, world, state=state) as scan:
        status = await scan.until(lambda status: status.opened == 1)
        assert [(each.node, each.due) for each in status.spells] == [("b", LEFT.due)]
        assert not world.recorded


async def test_a_last_scanner_that_answers_late_loses_no_spell_and_keeps_no_node_waiting(env: WorkflowEnvironment) -> None:
    """S44: until it has answered no spell begins, since a second one would for the same sickness; it may name one before it."""
    world = after_another(ScriptedCluster(report("a", "b")), LEFT)
    world.fails["former"] = 2
    world.former_runs = {"run-1": "run-0"}
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        early = await scan.client_handle().query(HealthScanner.spells)
        assert (early.spells, early.former_run) == ((), "run-1")
        await let_pass(env, scan.handle, timedelta(seconds=21))
        status = await scan.until(lambda status: bool(status.spells))
        assert [(each.node, each.due) for each in status.spells] == [("b", LEFT.due)]


async def test_a_scanner_that_is_stopped_before_the_last_one_has_answered_leaves_its_spells_to_the_next(
    env: WorkflowEnvironment,
) -> None:
    world = after_another(ScriptedCluster(report("a", "b")), LEFT)
    world.fails["former"] = 99
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await scan.client_handle().execute_update(HealthScanner.stop, StopRequest(who="ada", reason="maintenance"))
        await scan.handle.result()
        assert (await scan.handle.query(HealthScanner.spells)).former_run == "run-1"
    assert not world.recorded


async def test_a_last_scanner_that_never_answers_keeps_no_spell_waiting_for_long(env: WorkflowEnvironment) -> None:
    world = after_another(ScriptedCluster(report("a", "b")), LEFT)
    world.fails["former"] = 99
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await let_pass(env, scan.handle, timedelta(seconds=130))
        world.show(report("a", "b"))
        status = await scan.until(lambda status: len(status.spells) == 1)
        assert (status.spells[0].node, status.spells[0].due > LEFT.due) == ("b", True)


async def test_a_scanner_that_is_stopped_records_what_is_open(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report("a", "b"))
    async with scanning(env, world) as scan:
        await scan.until(lambda status: bool(status.spells))
        await scan.client_handle().execute_update(HealthScanner.stop, StopRequest(who="ada", reason="maintenance"))
        await scan.handle.result()
        assert endings(world.recorded) == {"b": Ending.STILL_SICK}


async def test_node_days_that_a_stop_can_t_record_are_recorded_by_the_next_scanner(env: WorkflowEnvironment) -> None:
    """Under the moment of the stop: a record that was made, although no answer came, is made once."""
    days = (NodeDays(day=f"{datetime.now(UTC):%Y-%m-%d}", check="c", mode=Mode.OBSERVE, seconds=7.0),)
    world = ScriptedCluster(report("a"))
    world.fails["record"] = 99
    async with scanning(env, world, state=ScannerState(started=NOW, node_days=days)) as scan:
        await scan.until(lambda status: status.scans > 0)
        await scan.client_handle().execute_update(HealthScanner.stop, StopRequest(who="ada", reason="maintenance"))
        await scan.handle.result()
        left = await scan.handle.query(HealthScanner.spells)
        tried = {each.workflow_id for request in world.record_requests for each in request.records}
    assert ([each.workflow_id for each in left.records], left.days) == ([*tried], ())
    after = after_another(ScriptedCluster(report("a")))
    after.former = replace(left, days=days)  # of the same day, which goes on
    async with scanning(env, after) as scan:
        await eventually(env, lambda: bool(after.recorded))
        known = await scan.client_handle().query(HealthScanner.spells)
    assert [each.days for each in after.recorded] == [each.days for each in left.records]
    assert ([each.seconds >= 7.0 for each in known.days if each.check == "c"], known.records) == ([True], ())


def test_fifteen_hundred_spells_are_less_than_temporal_takes() -> None:
    """2 MB is the most for one payload; the state is carried over in one."""
    from policy.history.spell_lifecycle import LONGEST_TEXT, MANY, MOST_BYTES, MOST_OPEN, MOST_SPANS, MOST_SPANS_OF_MANY
    from policy.history.spells import HeldSpan

    span = HeldSpan(code="CircuitBreakerOpen", message="m" * LONGEST_TEXT, since=NOW, until=NOW)
    largest = Spell(
        node="node-0000.europe-west1.example.com",
        check="NodeHealthCheck//workers",
        cause="ReadyUnknown",
        since=NOW,
        due=NOW,
        uid="0" * 36,
        boot_id="0" * 36,
        steps=("reboot", "delete-machine"),
        storm=NOW.isoformat(),
    )
    for number, spans in ((MOST_OPEN, MOST_SPANS_OF_MANY), (MANY, MOST_SPANS)):
        spells = tuple(replace(largest, held=(span,) * spans) for _ in range(number))
        (payload,) = DATA_CONVERTER.payload_converter.to_payloads([spells])
        assert len(payload.data) < MOST_BYTES, "the rest is for the report and the permits"


# What the scanner decides goes to the decision stream with its scans: each change once, and again until a scan was answered.


def written(world: ScriptedCluster) -> dict[str, Decision]:
    """By id; a double has to be the same."""
    found: dict[str, Decision] = {}
    for request in world.requests:
        for each in request.decisions:
            assert found.setdefault(each.id, each) == each
    return found


def numbers(world: ScriptedCluster) -> list[int]:
    return sorted(int(each.rpartition("/")[2]) for each in written(world))


async def test_who_is_admitted_and_by_which_rule_the_others_are_refused_is_written_once(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report("node-1", "node-2", "node-3"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        for _ in range(3):  # the same again is nothing new
            scans = len(world.requests)
            world.show(world.current)
            await eventually(env, lambda scans=scans: len(world.requests) > scans)  # type: ignore[misc]
        await eventually(env, lambda: len(written(world)) == 3)
        (admitted,) = [each for each in written(world).values() if each.kind is DecisionKind.ADMITTED]
        opened = world.opened[0]
        assert (admitted.node, admitted.uid, admitted.incident) == ("node-1", "uid-node-1", opened.incident)
        assert admitted.workflow_id == episode_id(opened.cluster, "node-1")
        assert admitted.check == "NodeHealthCheck/workers"
        assert admitted.numbers == {"permits": 1.0, "cap": 1.0}
        refused = {each.node: each for each in written(world).values() if each.kind is DecisionKind.REFUSED}
        assert {node: each.rule for node, each in refused.items()} == {"node-2": "CapReached", "node-3": "CapReached"}
        assert refused["node-2"].uid == "uid-node-2"
        assert refused["node-2"].versions == {"Node": "100"}
        assert not any(each.who for each in written(world).values())
        assert numbers(world) == [1, 2, 3]


@dataclass
class Unanswered(ScriptedCluster):
    """A cluster whose worker is lost the first times that a scan takes records along."""

    failures: int = 2

    async def observe_cluster(self, request: ScanRequest) -> ScanReport:
        if request.decisions and self.failures:
            self.failures -= 1
            self.requests.append(request)
            raise failure(ErrorType.INVALID_CONFIG, "the worker is gone")
        return await super().observe_cluster(request)


async def test_what_a_scan_without_an_answer_took_along_goes_with_the_next(env: WorkflowEnvironment) -> None:
    """Its worker may have been killed before it wrote anything."""
    world = Unanswered(report("node-1", "node-2"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        await eventually(env, lambda: len([request for request in world.requests if len(request.decisions) == 2]) == 3)
        world.show(world.current)
        await eventually(env, lambda: not world.requests[-1].decisions)
        assert numbers(world) == [1, 2]


async def test_where_no_stream_is_configured_no_record_is_kept_or_travels(env: WorkflowEnvironment) -> None:
    """Once a stream is configured they begin, with the number 1: nothing is missing before it."""
    world = ScriptedCluster(report("node-1", "node-2", streams=False))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        world.show(report("node-1", "node-2", "node-3", streams=False))
        await eventually(env, lambda: "node-3" in {each.node for each in world.requests[-1].refusals})
        assert written(world) == {}
        world.show(report("node-1", "node-2", "node-3", "node-4"))
        await eventually(env, lambda: bool(written(world)))
        assert [(each.node, numbers(world)) for each in written(world).values()] == [("node-4", [1])]


async def test_a_pause_and_a_stop_are_written_with_the_person_also_by_the_last_scan(env: WorkflowEnvironment) -> None:
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world) as scan:
        await scan.has_opened(1)
        handle = scan.client_handle()
        await handle.execute_update(HealthScanner.pause, PauseRequest(who="ada", reason="drill"))
        await handle.execute_update(HealthScanner.unpause, UnpauseRequest(who="ada", reason="over"))
        await handle.execute_update(
            HealthScanner.set_mode, ModeRequest(who="ada", reason="only look", mode="observe", nodes=("node-9",))
        )
        await handle.execute_update(HealthScanner.stop, StopRequest(who="amy", reason="move"))
        await eventually(env, lambda: world.released == 1)
    said = {(each.act, each.who) for each in (*written(world).values(), *world.last_decisions) if each.who}
    ada, amy = "ada (identity not verified)", "amy (identity not verified)"
    assert said == {("pause", ada), ("unpause", ada), ("set-mode", ada), ("stop-scan", amy)}
    (mode,) = [each for each in (*written(world).values(), *world.last_decisions) if each.act == "set-mode"][-1:]
    assert (mode.kind, mode.outcome, mode.message) == (DecisionKind.MODE_CHANGED, "observe", "node-9: only look")
