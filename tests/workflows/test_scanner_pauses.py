"""A person has a scanner begin nothing: everybody is told who, why and until when (S44)."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, ResetReapplyExcludeType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from activities.episodes import EpisodeService
from activities.our_workflows import OurWorkflows
from activities.temporal_clients import PROBLEMS, look_after_scanner
from policy.episode.decisions import Decision, DecisionKind
from policy.episode.messages import FencingInput, Outcome
from policy.episode.modes import MODE_CHANGES_MEMO, MODES_MEMO, ClusterModes, ModeChange, ModeChanges, ModeRule, mode_of
from policy.episode.permits import PermitDecision, PermitQuestion, PermitQuestions, Release
from policy.preservation.preservation_index import PreservationNeed
from policy.scan.pauses import PAUSES_MEMO, Pause, PauseEnd, Pauses, described
from policy.scan.scan_report import ScanReport, ViewState
from policy.values.mode import Mode
from policy.values.times import moment_of
from tests.workflows import contract
from tests.workflows.scanner_run import NOW, Scan, ScriptedCluster, report, scanning
from tests.workflows.surroundings import asked_until, eventually, let_pass
from workflows.definitions.scanner import HealthScanner
from workflows.kit import continuation
from workflows.kit.messages import ModeRequest, PauseRequest, StopRequest, UnpauseRequest
from workflows.scanner import commands, story
from workflows.scanner.releases import Releases
from workflows.scanner.state import ScannerInput, ScannerState
from workflows.scanner.story import Poll

WHY = "the switch is being replaced"


async def paused(scan: Scan, **changes: object) -> str:
    """Ada pauses."""
    return await scan.client_handle().execute_update(
        HealthScanner.pause,
        PauseRequest(who="ada", reason=WHY, **changes),  # type: ignore[arg-type]
    )


async def told(scan: Scan, words: str) -> None:
    """Wait until the cluster's worker is told why nothing is begun."""
    await eventually(scan.env, lambda: words in scan.world.requests[-1].halted)


async def heard(scan: Scan) -> Pauses:
    """As people and the next scanner read them."""
    pauses: Pauses = await (await scan.client_handle().describe()).memo_value(PAUSES_MEMO, type_hint=Pauses)
    return pauses


async def test_a_pause_begins_nothing_and_keeps_those_who_have_a_permit_from_acting(env: WorkflowEnvironment) -> None:
    """S20, S44: a candidate waits, a last look is answered no, a request waits in the queue; unpausing serves them all."""
    world = ScriptedCluster(report("node-1"))
    async with scanning(env, world, cap=5) as scan:
        await scan.has_opened(1)
        assert "paused by ada (identity not verified), until it is ended by hand: the switch is being replaced" in await paused(
            scan
        )
        world.show(report("node-1", "node-2"))
        status = await scan.until(lambda status: bool(status.refused))
        assert (status.refused[0].reason, WHY in status.refused[0].message) == ("Paused", True)
        nobody = PermitQuestion(node="", incident="")  # a preservation, which needs no permit
        asked = PermitQuestions(questions=(PermitQuestion(node="node-1", incident=world.opened[0].incident), nobody))
        for answer in (await scan.handle.query(HealthScanner.holds_permits, asked)).questions:
            assert (answer.held, WHY in answer.paused) == (False, True)
        assert (await scan.ask("node-3")).decision is PermitDecision.QUEUED
        await told(scan, WHY)
        world.show(world.current)
        await eventually(env, lambda: world.requests[-1].halted != "" and not world.requests[-1].halted_is_new)
        assert {each.halted for each in world.requests if each.halted_is_new} == {world.requests[-1].halted}
        assert len(world.opened) == 1
        await scan.client_handle().execute_update(HealthScanner.unpause, UnpauseRequest(who="bob", reason="replaced", of="ada"))
        await scan.has_opened(2)
        answers = (await scan.handle.query(HealthScanner.holds_permits, asked)).questions
        assert [(each.held, each.paused) for each in answers] == [(True, ""), (False, "")]
        await eventually(env, lambda: not world.requests[-1].halted)
        world.show(world.current)
        await eventually(env, lambda: not world.requests[-1].halt_over)
        (over,) = {each.halt_over for each in world.requests if each.halt_over}
        assert over.startswith(
            "new repairs begin again; the pause was by ada (identity not verified), until it is ended by hand: "
        )
        assert over.endswith(f"{WHY}; ended by bob (identity not verified): replaced")


async def test_what_is_queued_waits_for_what_is_so_at_the_moment(env: WorkflowEnvironment) -> None:
    """S44: the pause while it lasts, and then what else keeps the permit from it; so does the one behind it."""
    async with scanning(env, ScriptedCluster(report("node-1")), cap=1) as scan:
        await scan.has_opened(1)
        await paused(scan)
        assert [(await scan.ask(node, f"of-{node}")).decision for node in ("node-3", "node-4")] == [PermitDecision.QUEUED] * 2
        status = await scan.until(lambda status: len(status.queue) == 2)
        assert (status.known, [WHY in each for each in status.why_queued]) == (True, [True, True])
        await scan.client_handle().execute_update(HealthScanner.unpause, UnpauseRequest(who="ada", reason="replaced"))
        held = "1 of 1 permits are held: node-1"
        assert (await scan.until(lambda _: True)).why_queued == (held, f"{held}, 1 asked before")


async def test_a_scanner_that_has_yet_to_find_the_open_episodes_says_so(env: WorkflowEnvironment) -> None:
    """S14: its table is empty meanwhile, which says nothing."""
    world = ScriptedCluster(report("node-1", view=ViewState(synced=False)))
    async with scanning(env, world) as scan:
        assert not (await scan.until(lambda status: status.report is not None)).known
        world.show(report("node-1"))
        await scan.until(lambda status: status.known)


async def test_a_scan_that_no_worker_has_taken_is_told_with_its_moment(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S18: a worker may serve the cluster again by then, and what is shown is true all the same."""
    monkeypatch.setattr(story, "never_began", lambda _: True)
    async with scanning(env, ScriptedCluster(fails={"scan": 1})) as scan:
        began = await env.get_current_time()
        problem = (await scan.until(lambda status: "the scan" in status.problem)).problem
        asked = moment_of(problem.removeprefix("no worker has taken the scan that was asked for at ")[:20])
        assert asked is not None, problem
        assert abs(asked - began) < timedelta(seconds=5)
        assert problem.endswith("Z: does one serve the cluster?")
        await scan.until(lambda status: not status.problem)


async def test_a_pause_ends_by_itself_when_its_time_is_over(env: WorkflowEnvironment) -> None:
    """S44: at that moment, not with the next change of the cluster."""
    async with scanning(env, world := ScriptedCluster()) as scan:
        await scan.until(lambda status: status.report is not None)
        until = await env.get_current_time() + timedelta(minutes=1)
        await paused(scan, until=until)
        world.show(report("node-1"))
        await scan.until(lambda status: bool(status.refused) and [each.until for each in status.pauses] == [until])
        await let_pass(env, scan.handle, timedelta(minutes=1))
        await scan.has_opened(1)
        assert timedelta(0) <= await env.get_current_time() - until < timedelta(seconds=30)


def test_s41_the_owner_of_a_pause_is_one_word_of_the_command_that_ends_it() -> None:
    """A name is any text on one line, and another person copies the command."""
    pause = Pause(who="x", owner="it's $(id) (identity not verified)", reason=WHY, since=datetime(2026, 11, 30, tzinfo=UTC))
    assert """`nodewarden unpause --of 'it'"'"'s $(id)'` ends it""" in described((pause,))


async def test_pauses_stack_and_the_cluster_goes_on_when_none_is_left(env: WorkflowEnvironment) -> None:
    """S20, S44: Ada restores etcd for an hour; Bob pauses for a moment and unpauses, and ends nothing of hers."""
    async with scanning(env, world := ScriptedCluster()) as scan:
        await scan.until(lambda status: status.report is not None)

        async def says(update: object, word: object) -> str:
            return str(await scan.client_handle().execute_update(update, word))  # type: ignore[call-overload]

        soon = await env.get_current_time() + timedelta(minutes=1)
        await paused(scan)
        beside = await says(HealthScanner.pause, PauseRequest(who="bob", reason="a reboot"))
        assert f"it is also paused by ada (identity not verified), until it is ended by hand: {WHY}" in beside
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await says(HealthScanner.unpause, UnpauseRequest(who="cem", reason="go on"))
        assert "expected a pause of cem (identity not verified), and there is none; in force: paused by ada" in str(
            refused.value.cause
        )
        still = await says(HealthScanner.unpause, UnpauseRequest(who="bob", reason="booted"))
        # `nodewarden unpause` alone ends it for Ada only; that was what the refusal of it offered to all others
        assert f": {WHY} (`nodewarden unpause --of ada` ends it); you have ended" in still
        assert f"is still paused by ada (identity not verified), until it is ended by hand: {WHY}" in still
        assert still.endswith("you have ended: paused by bob (identity not verified), until it is ended by hand: a reboot")
        assert [each.owner for each in (await scan.until(lambda _: True)).pauses] == ["ada (identity not verified)"]
        world.show(report("node-1"))
        await scan.until(lambda status: bool(status.refused))
        assert world.opened == []
        replaced = await paused(scan, until=soon)  # her own she may replace
        assert "before, it was paused by ada" in replaced
        await let_pass(env, scan.handle, timedelta(minutes=1))
        await scan.has_opened(1)


async def test_the_owner_of_a_pause_is_told_who_has_ended_it(env: WorkflowEnvironment) -> None:
    """S44: while another one is still in force."""
    async with scanning(env, ScriptedCluster()) as scan:
        await scan.until(lambda status: status.report is not None)
        bob = PauseRequest(who="bob", reason="a reboot")
        await scan.client_handle().execute_update(HealthScanner.pause, bob)
        await paused(scan)
        await scan.client_handle().execute_update(HealthScanner.unpause, UnpauseRequest(who="bob", reason="enough", of="ada"))
        await told(
            scan,
            f"no longer in force: by ada (identity not verified), until it is ended by hand: {WHY}; "
            "ended by bob (identity not verified): enough",
        )


async def test_a_pause_outlives_a_history(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """S33, S44."""
    monkeypatch.setattr(continuation, "HISTORY_LIMIT", 60)
    async with scanning(env, world := ScriptedCluster()) as scan:
        await scan.until(lambda status: status.report is not None)
        await paused(scan)
        run = (await scan.client_handle().describe()).run_id
        while (await scan.client_handle().describe()).run_id == run:
            before = len(world.requests)
            world.show(report("node-1"))
            await eventually(env, lambda before=before: len(world.requests) > before)
        status = await scan.until(lambda status: bool(status.pauses))
        assert ([each.who for each in status.pauses], world.opened) == (["ada (identity not verified)"], [])
        assert [each.pause.who for each in await heard(scan)] == ["ada (identity not verified)"], "and people find it in the memo"
        await scan.client_handle().execute_update(HealthScanner.unpause, UnpauseRequest(who="bob", reason="replaced", of="ada"))
        await paused(scan)
        ends = [each.end(await env.get_current_time(scan.client_handle())) for each in await heard(scan)]
        assert ends == [PauseEnd.UNPAUSED, PauseEnd.IN_FORCE]


@pytest.mark.parametrize("changes", [{"who": " "}, {"reason": ""}, {"until": "2020-01-01T00:00:00+00:00"}])
async def test_a_pause_says_who_and_why_and_ends_in_the_future(env: WorkflowEnvironment, changes: dict[str, str]) -> None:
    """S44: one that nobody could ask about is refused."""
    async with scanning(env, ScriptedCluster()) as scan:
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await scan.client_handle().execute_update("pause", {"who": "ada", "reason": "x"} | changes)
        assert next(iter(changes)) in str(refused.value.cause)


async def test_a_pause_outlives_its_scanner(env: WorkflowEnvironment) -> None:
    """S44: who starts the next one finds it in the memo of the last; that one begins nothing. Who ends it is known there, too."""
    async with scanning(env, ScriptedCluster()) as scan:
        await scan.until(lambda status: status.report is not None)
        await paused(scan)
        await scan.client_handle().execute_update(HealthScanner.stop, StopRequest(who="bob", reason="new settings"))
        await scan.handle.result()
        left = await heard(scan)
        assert [(each.pause.who, each.pause.reason) for each in left] == [("ada (identity not verified)", WHY)]
    async with scanning(env, world := ScriptedCluster(report("node-1")), pauses=left) as scan:
        await scan.until(lambda status: bool(status.refused))
        assert world.opened == []
        await scan.client_handle().execute_update(HealthScanner.unpause, UnpauseRequest(who="bob", reason="replaced", of="ada"))
        await scan.has_opened(1)
        (ended,) = await heard(scan)
        assert (ended.pause, ended.ended_by, ended.ended_why) == (left[0].pause, "bob (identity not verified)", "replaced")


async def test_a_scanner_that_is_stopped_says_so_before_it_gives_the_lease_back(env: WorkflowEnvironment) -> None:
    """S44: whoever looks at the checks afterwards reads who stopped it, and what starts it."""
    async with scanning(env, world := ScriptedCluster()) as scan:
        await scan.until(lambda status: status.report is not None)
        await scan.client_handle().execute_update(HealthScanner.stop, StopRequest(who="ada", reason=WHY))
        await scan.handle.result()
        assert (
            world.last_word
            == f"the scanner was stopped by ada (identity not verified): {WHY} (`nodewarden scan start` starts it)"
        )


async def stopped(scan: Scan) -> None:
    await scan.client_handle().execute_update(HealthScanner.stop, StopRequest(who="ada", reason=WHY))


async def test_once_it_is_stopped_no_permit_licenses_an_act(env: WorkflowEnvironment) -> None:
    """S20, S44: a person who has read that the scanner stops is not to see a machine switched off afterwards, though the Lease is
    still ours."""
    async with scanning(env, world := ScriptedCluster(report("node-1"))) as scan:
        await scan.has_opened(1)
        question = PermitQuestion(node="node-1", incident=world.opened[0].incident)
        world.may_release.clear()
        await stopped(scan)
        (answer,) = (await scan.handle.query(HealthScanner.holds_permits, PermitQuestions(questions=(question,)))).questions
        assert not answer.held
        assert (
            answer.reason
            == answer.paused
            == f"the scanner was stopped by ada (identity not verified): {WHY} (`nodewarden scan start` starts it)"
        )
        world.may_release.set()
        await scan.handle.result()


async def test_what_was_awaited_when_it_was_stopped_admits_no_node(env: WorkflowEnvironment) -> None:
    """S44: the stop came between a report and whom it would have admitted."""
    kept = PreservationNeed(victim="node-2", action="preserve", reason="asked for by annotation", stamp="one")
    world = ScriptedCluster(report("node-1", preservations=(kept,)))
    world.may_list.clear()
    async with scanning(env, world) as scan:
        await eventually(env, lambda: world.listed == 1)
        await stopped(scan)
        world.may_list.set()
        await scan.handle.result()
        assert (world.asked, world.opened, world.preserved) == ([], [], [])


async def test_a_stop_while_the_queue_is_served_admits_no_node(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """S38, S44: the one who was granted first had ended, and his permit went to whoever came next after the stop."""
    external, asked = workflow.get_external_workflow_handle, list[str]()
    may_end = asyncio.Event()

    def slow(workflow_id: str) -> object:
        async def signal(name: str) -> None:
            asked.append(workflow_id)
            await workflow.wait_condition(may_end.is_set)
            await external(workflow_id).signal(name)

        return SimpleNamespace(signal=signal)

    world = ScriptedCluster(report())
    async with scanning(env, world) as scan:
        assert (await scan.ask("node-1", "one")).decision is PermitDecision.GRANTED
        assert (await scan.ask("node-2", "two")).decision is PermitDecision.QUEUED
        assert (await scan.ask("node-3", "three")).decision is PermitDecision.QUEUED
        world.show(report("node-9"))
        await scan.until(lambda status: bool(status.refused))
        monkeypatch.setattr(workflow, "get_external_workflow_handle", slow)
        await scan.release(FencingInput(cluster=scan.cluster, node="node-1", incident="one"))
        await eventually(env, lambda: bool(asked))
        may_end.set()
        await stopped(scan)
        await scan.handle.result()
        assert [each.rpartition("/")[2] for each in asked] == ["node-2"]
        assert world.asked == []


# A person says how far programs may go: it holds at once, for the next scanner too, and a new cluster is only observed (S52).

OBSERVES = ClusterModes(setting=Mode.OBSERVE)


async def says(scan: Scan, mode: str, **of: object) -> str:
    """Ada sets a mode."""
    request = ModeRequest(who="ada", reason="rack 7 first", mode=mode, **of)  # type: ignore[arg-type]
    return await scan.client_handle().execute_update(HealthScanner.set_mode, request)


async def asked(scan: Scan) -> ClusterModes | None:
    """What a last look is answered."""
    question = PermitQuestions(questions=(PermitQuestion(node="node-1", incident="i"),))
    return (await scan.handle.query(HealthScanner.holds_permits, question)).modes


async def test_what_is_set_holds_for_the_next_scan_and_the_next_look(env: WorkflowEnvironment) -> None:
    """S52."""
    world = ScriptedCluster()
    async with scanning(env, world, modes=OBSERVES) as scan:
        await scan.until(lambda status: status.report is not None)
        assert world.requests[-1].modes == OBSERVES == await asked(scan)
        answer = await says(scan, "repair", selector="rack=r7")
        assert answer == f"{scan.cluster}: the mode of nodes with rack=r7 is repair"
        set_now = await asked(scan)
        assert set_now is not None
        (rule,) = set_now.rules
        assert (rule.by, rule.reason) == ("ada (identity not verified)", "rack 7 first")
        await eventually(env, lambda: world.requests[-1].modes == set_now)
        assert (await scan.until(lambda status: bool(status.modes.rules))).modes == set_now
        memo = await (await scan.client_handle().describe()).memo_value(MODES_MEMO, type_hint=ClusterModes)
        assert memo == set_now
        assert "without a rule the mode is observe (the setting scan.mode is observe)" in await says(
            scan, "unset", selector="rack=r7"
        )
        assert await asked(scan) == OBSERVES


async def test_who_changed_a_mode_is_known_also_once_its_rule_is_gone(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S44: a person who finds a cluster observed asks who set that, and when. What was refused is no change."""
    monkeypatch.setattr(commands, "CHANGES_REMEMBERED", 3)
    earlier = ModeChange(at=NOW, by="bob", mode="observe", scope="all nodes", reason="install")
    async with scanning(env, ScriptedCluster(), modes=OBSERVES, mode_changes=(earlier,)) as scan:
        await scan.until(lambda status: status.report is not None)
        await says(scan, "repair", selector="rack=r7")
        await says(scan, "unset", selector="rack=r7")
        with pytest.raises(WorkflowUpdateFailedError):
            await says(scan, "unset", selector="rack=r7")
        memo = await (await scan.client_handle().describe()).memo_value(MODE_CHANGES_MEMO, type_hint=ModeChanges)
        by, why = "by ada (identity not verified)", "rack 7 first"
        assert [str(each).partition(": ")[2] for each in memo] == [
            "observe was set for all nodes by bob: install",
            f"repair was set for nodes with rack=r7 {by}: {why}",
            f"the rule for nodes with rack=r7 was taken back {by}: {why}",
        ]
        await says(scan, "drain", nodes=("node-1",))
        memo = await (await scan.client_handle().describe()).memo_value(MODE_CHANGES_MEMO, type_hint=ModeChanges)
        assert [each.mode for each in memo] == ["repair", "unset", "drain"]


@pytest.mark.parametrize(
    ("of", "why"),
    [
        ({"mode": "Repair"}, "expected"),
        ({"mode": "unset", "selector": "a=b"}, "no rule is for exactly these nodes: there is no rule"),
        ({"mode": "repair", "selector": "rack in r7"}, "expected"),
    ],
)
async def test_what_can_t_be_read_is_refused_to_the_person(of: dict[str, str], why: str, env: WorkflowEnvironment) -> None:
    """S44: and changes nothing."""
    async with scanning(env, ScriptedCluster(), modes=OBSERVES) as scan:
        await scan.until(lambda status: status.report is not None)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await says(scan, **of)
        assert why in str(refused.value.cause)
        assert await asked(scan) == OBSERVES


async def test_s20_a_command_that_stops_acts_names_the_nodes_where_one_may_be_under_way(env: WorkflowEnvironment) -> None:
    """S20: what a look licensed a moment before the command is done; the person reads where that may be."""
    async with scanning(env, ScriptedCluster(), modes=OBSERVES, cap=5) as scan:
        await scan.until(lambda status: status.report is not None)
        under_way = "; an act that was licensed before may still be done within 15s: node-1"
        assert under_way not in await says(scan, "drain", nodes=("node-1",))
        assert (await scan.ask("node-1", "one")).decision is PermitDecision.GRANTED
        assert (await says(scan, "observe", nodes=("node-1",))).endswith(under_way)
        assert under_way not in await says(scan, "repair", nodes=("node-1",))
        paused = await scan.client_handle().execute_update(HealthScanner.pause, PauseRequest(who="ada", reason="stop"))
        assert paused.endswith(under_way)
        await scan.client_handle().execute_update(HealthScanner.unpause, UnpauseRequest(who="ada", reason="go on"))
        for number in range(2, 6):  # the last one asked for may be the very one that is switched off
            assert (await scan.ask(f"node-{number}", f"i-{number}")).decision is PermitDecision.GRANTED
        every = f"{under_way}, node-2, node-3, node-4, node-5"
        assert (await says(scan, "observe", nodes=("node-5",))).endswith(every)
        stopped = await scan.client_handle().execute_update(HealthScanner.stop, StopRequest(who="ada", reason="stop"))
        assert stopped.endswith(every)


async def test_no_report_of_former_modes_is_acted_on(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """S52: the mode is taken back while a scan is on its way that still offers the node."""
    world = ScriptedCluster()
    async with scanning(env, world, cap=5) as scan:
        await scan.until(lambda status: status.report is not None)
        late = asyncio.Event()
        scan_now = world.observe_cluster

        async def answers_late(request: contract.ScanRequest) -> ScanReport:
            answer = await scan_now(request)
            if answer.candidates and not request.modes.rules:
                with contextlib.suppress(asyncio.CancelledError):  # what it has seen is on its way, and not cut short
                    await late.wait()
            return answer

        monkeypatch.setattr(world, "observe_cluster", answers_late)
        world.by_mode = True
        world.show(report("node-1"))
        await says(scan, "observe")
        late.set()
        await scan.until(lambda status: status.scans > 1)
        assert world.opened == []
        await says(scan, "repair", nodes=("node-1",))
        await scan.has_opened(1)


@pytest.mark.parametrize(("repaired", "mode"), [(True, Mode.REPAIR), (False, Mode.OBSERVE), (None, Mode.REPAIR)])
async def test_a_cluster_in_which_nothing_was_ever_repaired_is_observed(
    repaired: bool | None, mode: Mode, env: WorkflowEnvironment
) -> None:
    """S52: asked once, before anything is begun; where an older version answers, it is as it was."""
    world = ScriptedCluster(found=[contract.FoundOpen(nodes=(), repaired=repaired)])
    async with scanning(env, world) as scan:
        status = await scan.until(lambda status: status.report is not None and status.modes.is_known is (repaired is not None))
        assert status.modes.default is mode
        if repaired is not None:
            await eventually(env, lambda: world.requests[-1].modes.default is mode)
            memo = await (await scan.client_handle().describe()).memo_value(MODES_MEMO, type_hint=ClusterModes)
            assert memo.default is mode


async def test_a_new_cluster_s_first_report_opens_nothing(env: WorkflowEnvironment) -> None:
    """S52: it was made before it was known that the cluster is to be observed."""
    world = ScriptedCluster(report("node-1"), found=[contract.FoundOpen(nodes=(), repaired=False)])
    world.by_mode = True
    async with scanning(env, world, cap=5) as scan:
        await scan.until(lambda status: status.modes.default is Mode.OBSERVE and status.scans > 1)
        assert world.opened == []
        await says(scan, "repair", nodes=("node-1",))
        await scan.has_opened(1)


async def test_s52_no_mode_is_answered_before_it_is_known_with_which_one_the_cluster_begins(env: WorkflowEnvironment) -> None:
    """S52: while Temporal can't list episodes, a pool would keep and give up machines of a cluster that is to be observed."""
    world = ScriptedCluster(found=[contract.FoundOpen(nodes=(), repaired=False)])
    world.may_list.clear()
    async with scanning(env, world) as scan:
        await scan.until(lambda status: status.report is not None)
        assert await asked(scan) is None
        await says(scan, "repair", nodes=("node-1",))
        assert await asked(scan) is None
        world.may_list.set()
        await scan.until(lambda status: status.modes.is_known)
        modes = await asked(scan)
        assert modes is not None
        assert modes.default is Mode.OBSERVE


class RealList(ScriptedCluster):
    """What Temporal itself says of scanners and episodes."""

    client: Client

    async def find_open(self, request: contract.FindRequest) -> contract.FoundOpen:
        self.listed += 1
        await self.may_list.wait()
        self.found = [await EpisodeService(self.client, task_queue="", holder=AsyncMock()).find_open(request)]
        return self.found[0]


async def test_s52_what_a_reset_takes_back_goes_on_as_far_as_it_lowers_or_stops(server: WorkflowEnvironment) -> None:
    """S44, S52: a real reset, to before a person had set anything. What was armed meanwhile stays as it was before."""
    world = RealList(report())
    world.client, world.by_mode = server.client, True
    modes = ClusterModes(setting=Mode.REPAIR).ruled(ModeRule(mode=Mode.DRAIN, by="ada", reason=WHY, at=NOW, nodes=("node-3",)))
    async with scanning(server, world, cap=5, modes=modes) as scan:
        await scan.until(lambda status: status.scans > 0)
        await asyncio.sleep(1.1)  # by Temporal's clock
        await says(scan, "observe", nodes=("node-1",))
        await says(scan, "repair", nodes=("node-3",))
        await paused(scan)
        before = world.listed
        world.may_list.clear()
        described = await scan.client_handle().describe()
        done = [1]
        async for each in scan.client_handle().fetch_history_events():
            if each.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                break
            done += [each.event_id] if each.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED else []
        request = ResetWorkflowExecutionRequest(
            namespace=server.client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=scan.handle.id, run_id=described.run_id),
            reason="test",
            request_id="test",
            workflow_task_finish_event_id=done[-2],
            reset_reapply_exclude_types=[ResetReapplyExcludeType.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE],
        )
        await server.client.workflow_service.reset_workflow_execution(request)
        world.show(report())
        await eventually(server, lambda: world.listed > before)
        assert await asked(scan) is None, "what was lowered is not known yet"
        world.may_list.set()
        status = await scan.until(lambda status: bool(status.modes.before))
        found = {name: mode_of(status.modes, name, {}).mode for name in ("node-1", "node-2", "node-3")}
        assert found == {"node-1": Mode.OBSERVE, "node-2": Mode.REPAIR, "node-3": Mode.DRAIN}
        assert [each.reason for each in status.pauses] == [WHY]
        memo = await (await scan.client_handle().describe()).memo_value(MODES_MEMO, type_hint=ClusterModes)
        assert (memo, await asked(scan)) == (status.modes, status.modes)
        await says(scan, "repair", nodes=("node-1",))
        await scan.client_handle().execute_update(HealthScanner.unpause, UnpauseRequest(who="ada", reason="replaced"))
        world.show(report("node-1"))
        await scan.has_opened(1)


class AfterWhatItSaw(OurWorkflows):
    """Of a worker that goes on, later than others, by what it had seen."""

    saw: WorkflowExecutionDescription | None = None

    async def described(self, workflow_id: str, *, within: timedelta) -> WorkflowExecutionDescription:
        saw, self.saw = self.saw, None
        return saw or await super().described(workflow_id, within=within)


def of_our_queue(scan: Scan) -> AfterWhatItSaw:
    return AfterWhatItSaw(scan.env.client, task_queue=f"scanners-{scan.cluster}")


def refuse(*_: object) -> None:
    """In a workflow: have Temporal refuse what its task answers."""
    workflow.start_activity("none", activity_id=2_000 * "x", schedule_to_close_timeout=timedelta(seconds=1))


def say_too_much() -> None:
    """The same by what it takes, which the SDK does not even send."""
    workflow.start_activity("none", 3_000_000 * "x", schedule_to_close_timeout=timedelta(seconds=1))


async def refused_run(scan: Scan) -> WorkflowExecutionDescription:
    """The scanner once Temporal reports that its tasks fail."""

    async def described() -> WorkflowExecutionDescription:
        return await scan.client_handle().describe()

    return await asked_until(scan.env, described, lambda found: bool(found.typed_search_attributes.get(PROBLEMS)))


@pytest.mark.parametrize("refused_by", ["Temporal", "its length", "our code"])
async def test_s44_s52_a_scanner_of_which_temporal_refuses_each_answer_begins_anew_and_knows_what_people_set(
    server: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, refused_by: str
) -> None:
    """Once, although several workers see it. One that fails by itself waits for another version of its code, and one that another
    worker carries out is none of ours (S49)."""
    world, runs, taken = RealList(report()), [""], Releases.take
    world.client, world.by_mode = server.client, True

    def refused(self: Releases, release: Release) -> None:
        if workflow.info().run_id != runs[0]:
            taken(self, release)
        elif refused_by == "our code":
            raise RuntimeError(WHY)
        elif refused_by == "its length":
            say_too_much()
        else:
            refuse()

    monkeypatch.setattr(Releases, "take", refused)
    async with scanning(server, world, cap=5, modes=ClusterModes(setting=Mode.REPAIR), fails_by=()) as scan:
        await scan.until(lambda status: status.scans > 0)
        await asyncio.sleep(1.1)  # by Temporal's clock: no reset is noticed that comes within a second of the start
        await says(scan, "observe")
        await paused(scan)
        runs[0] = (await scan.client_handle().describe()).run_id or ""
        ours = of_our_queue(scan)
        await look_after_scanner(server.client, ours, scan.cluster)
        assert (await scan.client_handle().describe()).run_id == runs[0]
        await scan.client_handle().signal(HealthScanner.release, Release(node="node-1", incident="i", outcome=Outcome.RECOVERED))
        saw = await refused_run(scan)
        assert await look_after_scanner(server.client, OurWorkflows(server.client, task_queue="another"), scan.cluster) == 0
        assert (await scan.client_handle().describe()).run_id == runs[0]
        assert await look_after_scanner(server.client, ours, scan.cluster) > 0
        begun = (await scan.client_handle().describe()).run_id
        ours.saw = saw
        await look_after_scanner(server.client, ours, scan.cluster)
        assert (await scan.client_handle().describe()).run_id == begun
        is_another = begun != runs[0]
        assert is_another is (refused_by != "our code"), saw.typed_search_attributes.get(PROBLEMS)
        if not is_another:
            return
        status = await scan.until(lambda status: bool(status.pauses))
        assert mode_of(status.modes, "node-1", {}).mode is Mode.OBSERVE
        assert [each.reason for each in status.pauses] == [WHY]


async def test_a_scanner_of_which_the_first_task_is_refused_is_left_as_it_is(
    server: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one would begin with the same, and Temporal knows no task to which it could be reset."""
    monkeypatch.setattr(HealthScanner, "_check_identity", refuse)
    async with scanning(server, ScriptedCluster(report()), fails_by=()) as scan:
        saw = await refused_run(scan)
        assert await look_after_scanner(server.client, of_our_queue(scan), scan.cluster) > 0
        assert (await scan.client_handle().describe()).run_id == saw.run_id


async def test_s44_s52_a_scanner_that_is_started_with_nothing_but_its_cluster_goes_on_as_the_terminated_one_was_told(
    server: WorkflowEnvironment,
) -> None:
    """As Temporal's own command starts it. No look gets a mode before that is known."""
    world = RealList(report())
    world.client, world.by_mode = server.client, True
    async with scanning(server, world, cap=5, modes=ClusterModes(setting=Mode.REPAIR)) as scan:
        await scan.until(lambda status: status.scans > 0)
        await says(scan, "observe")
        await paused(scan)
        await scan.client_handle().terminate("it is stuck")
        before = world.listed
        world.may_list.clear()
        world.show(report("node-1"))
        plain, queue = ScannerInput(cluster=scan.cluster), f"scanners-{scan.cluster}"
        await server.client.start_workflow(HealthScanner.run, plain, id=scan.handle.id, task_queue=queue)
        await eventually(server, lambda: world.listed > before)
        assert await asked(scan) is None, "what was lowered is not known yet"
        world.may_list.set()
        status = await scan.until(lambda status: status.modes.is_known)
        assert mode_of(status.modes, "node-1", {}).mode is Mode.OBSERVE
        assert [each.reason for each in status.pauses] == [WHY]
        assert await asked(scan) == status.modes
        assert [each.pause.reason for each in await heard(scan)] == [WHY]
        await scan.client_handle().execute_update(HealthScanner.unpause, UnpauseRequest(who="ada", reason="replaced"))
        seen = len(world.requests)
        await eventually(server, lambda: len(world.requests) > seen and not world.requests[-1].halted)
        assert world.opened == []
        await says(scan, "repair", nodes=("node-1",))
        await scan.has_opened(1)


@pytest.mark.parametrize(
    ("handed", "mode"),
    [
        ({}, Mode.OBSERVE),
        ({"modes": ClusterModes(setting=Mode.REPAIR)}, Mode.REPAIR),
        ({"state": ScannerState(started=NOW)}, Mode.REPAIR),
    ],
)
async def test_s52_only_who_was_handed_nothing_goes_on_as_the_last_scanner_was_told(
    handed: dict[str, Any], mode: Mode, env: WorkflowEnvironment
) -> None:
    """Not who was started by `nodewarden scan start`, nor in a new history."""
    rule = ModeRule(mode=Mode.OBSERVE, by="ada", reason=WHY, at=NOW)
    told = {"modes": ClusterModes(setting=Mode.REPAIR).ruled(rule), "ended": NOW, "former": "run-1"}
    world = ScriptedCluster(found=[contract.FoundOpen(nodes=(), earlier=True, repaired=True, **told)])
    async with scanning(env, world, **handed) as scan:
        status = await scan.until(lambda status: status.modes.is_known)
        assert mode_of(status.modes, "node-1", {}).mode is mode


async def test_s44_what_a_person_has_ended_since_is_not_taken_over_again(env: WorkflowEnvironment) -> None:
    """Where the table is built a second time, as after another run in a report."""
    async with scanning(env, ScriptedCluster()) as last:
        await last.until(lambda status: status.report is not None)
        await paused(last)
        left = await heard(last)
        await stopped(last)
        await last.handle.result()
    world = ScriptedCluster(report(run="a"), found=[contract.FoundOpen(nodes=(), earlier=True, former="run-1", pauses=left)])
    async with scanning(env, world) as scan:
        await scan.until(lambda status: bool(status.pauses))
        await scan.client_handle().execute_update(HealthScanner.unpause, UnpauseRequest(who="ada", reason="replaced"))
        listed = world.listed
        world.show(report("node-1", run="b"))
        await eventually(env, lambda: world.listed > listed)
        await scan.has_opened(1)


@pytest.mark.parametrize(
    ("answer", "left"), [({"streams": None}, 1), ({"streams": False}, 0), ({"streams": False, "cluster_uid": "another"}, 1)]
)
async def test_only_a_worker_of_this_cluster_that_has_no_stream_ends_what_waits_for_it(
    answer: dict[str, Any], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S9: a worker of another cluster under the same name, and one of an older version, know nothing of our stream."""
    now = report().at
    monkeypatch.setattr(workflow, "now", lambda: now)
    monkeypatch.setattr(workflow, "sleep", AsyncMock())
    scanner = HealthScanner(ScannerInput(cluster="prod", state=ScannerState(started=now, cluster_uid="uid-1")))
    answered: asyncio.Future[ScanReport] = asyncio.get_running_loop().create_future()
    answered.set_result(report(**({"cluster_uid": "uid-1"} | answer)))
    poll = Poll(scanner._story._scan_request(), now, answered, rests=False)
    scanner._state.decisions = [Decision(id="run/1", at=now, cluster="prod", kind=DecisionKind.ADMITTED)]
    await scanner._story._report_of(poll)
    assert len(scanner._state.decisions) == left
    monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(run_id="run"))
    scanner._state.record("prod", DecisionKind.ANSWERED, act="pause", who="ada")
    assert len(scanner._state.decisions) == 2 * left


async def test_a_report_that_comes_in_the_moment_in_which_the_mode_is_taken_back_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S52: it had been answered before the scan could be cut short."""
    now = report().at
    monkeypatch.setattr(workflow, "now", lambda: now)
    scanner = HealthScanner(ScannerInput(cluster="prod", state=ScannerState(started=now)))
    answered: asyncio.Future[ScanReport] = asyncio.get_running_loop().create_future()
    answered.set_result(report("node-1"))
    poll = Poll(scanner._story._scan_request(), now, answered, rests=False)
    scanner._state.modes = OBSERVES
    assert (await scanner._story._report_of(poll), scanner._state.report) == (None, None)
    poll = Poll(scanner._story._scan_request(), now, answered, rests=False)
    assert await scanner._story._report_of(poll) is not None
