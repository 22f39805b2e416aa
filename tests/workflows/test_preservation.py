"""Preservation through its workflow: the proposal's diagrams and use cases by name, 72 h timers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio import activity
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from activities.contracts.evidence import Collected, DeviceEvidenceRequest, EvidenceFile, NotFetched
from activities.contracts.target import DrainResult
from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome, Phase
from policy.episode.node_action import ActionName, Verb
from policy.fence.plan import PowerDevice
from policy.preservation.machine_snapshot import CONDITION, ENDED_ANNOTATION, ISOLATION_ANNOTATION, SCALE_DOWN_DISABLED
from policy.values.mode import Mode
from tests.workflows import contract, preservation_run
from tests.workflows.plans import switched
from tests.workflows.preservation_run import WORD, Run, kept, machine, preserving
from tests.workflows.surroundings import asked_until, worker
from tests.workflows.world import World
from workflows.definitions.episodes import Preservation
from workflows.episode.preflight import MODE_AGAIN
from workflows.kit.messages import ExtendRequest
from workflows.kit.options import power_queue

HOURS_72 = timedelta(hours=72)


async def test_diagram_1_a_running_machine_is_preserved_until_its_timeout_and_runs_on(env: WorkflowEnvironment) -> None:
    """Seed 001, diagram 1 and item 4; S22: 72 h to the second."""
    world = machine("true")
    async with preserving(env, world) as run:
        status = await run.is_in(Phase.RUNNING_PRESERVED)
        expiry = world.held.expiry
        assert status.waiting_until == expiry
        assert [way.verb.value for way in status.ways] == ["release", "extend", "isolate", "hold", "abort"]
        assert world.held.on_node[SCALE_DOWN_DISABLED] == "true"
        result = await run.timeout(Outcome.RELEASED)
    assert timedelta(0) <= result.ended - expiry < timedelta(seconds=2)
    assert timedelta(0) <= expiry - result.started - HOURS_72 < timedelta(seconds=5)
    assert world.held.expiry is None
    assert dict(world.held.on_node) == {}
    assert world.acts == ["preserve", "stop"]


async def test_diagram_1_preserve_false_ends_it_before_the_timeout(env: WorkflowEnvironment) -> None:
    """Use case 3 of a running machine; S26."""
    world = machine("now")
    async with kept(env, world) as run:
        world.annotate("false")
        await run.news()
        await run.result(Outcome.RELEASED)
    assert world.acts == ["preserve", "stop"]
    assert world.held.expiry is None


async def test_diagram_2_an_automatically_preserved_machine_is_terminated_at_its_timeout(env: WorkflowEnvironment) -> None:
    """Use case 2: drained, Failed:Preserved, and after the timeout given to Remediation under the same id; S25."""
    world = machine(fails=True)
    async with kept(env, world) as run:
        assert world.held.tainted
        assert world.held.drain_is_over
        result = await run.timeout(Outcome.REPLACED)
    assert world.acts == ["preserve", "mark Preservation", "evict", "terminate", "permit", "delete", "unmark Remediation"]
    assert timedelta(0) <= world.gave_up_at - result.started - HOURS_72 < timedelta(seconds=10)
    assert ENDED_ANNOTATION in world.held.annotations


async def test_started_with_nothing_but_a_node_it_learns_its_machine(env: WorkflowEnvironment) -> None:
    """As `temporal workflow start` does. S38: without our name neither a drain nor the deletion is licensed."""
    world = machine(fails=True)
    async with preserving(env, world, keep=True, holder="", machine=None) as run:
        await run.is_in(Phase.FAILED_PRESERVED)
        await run.timeout(Outcome.REPLACED)
    assert "default/1" in world.named


async def test_diagram_2_value_false_terminates_a_failed_machine_at_once(env: WorkflowEnvironment) -> None:
    """Use case 3 of a failed machine."""
    world = machine(fails=True)
    async with kept(env, world) as run:
        world.annotate("false")
        await run.news()
        result = await run.timeout(Outcome.REPLACED)
    assert result.ended - result.started < timedelta(hours=1)


async def test_diagram_2_a_node_that_is_healthy_before_the_timeout_runs_on(env: WorkflowEnvironment) -> None:
    """Item 6, and the arrow from Failed:Preserved to Running: an automatic preservation ends with recovery."""
    world = machine(fails=True)
    async with kept(env, world) as run:
        world.recovers()
        await run.news()
        await run.result(Outcome.RECOVERED)
    assert (world.held.tainted, world.gave_up_at) == (False, None)


async def test_item_6_a_node_found_healthy_at_the_timeout_runs_on(env: WorkflowEnvironment) -> None:
    world = machine(fails=True)
    async with kept(env, world) as run:
        world.node_gets_well()
        await run.timeout(Outcome.RECOVERED)
    assert (world.held.tainted, world.gave_up_at) == (False, None)


async def test_use_case_1_a_machine_preserved_in_time_stays_when_it_fails_and_its_expiry_does_not_move(
    env: WorkflowEnvironment,
) -> None:
    """S22: drained with the failure; `now` stays preserved when it recovers."""
    world = machine("now")
    async with kept(env, world) as run:
        expiry = world.held.expiry
        world.fails()
        await run.news()
        await run.is_in(Phase.FAILED_PRESERVED)
        assert world.held.expiry == expiry
        world.recovers()
        await run.news()
        await run.is_in(Phase.RUNNING_PRESERVED)
        assert world.held.expiry == expiry
        assert not world.held.tainted
        await run.says(Preservation.release)
        result = await run.result(Outcome.RELEASED)
    assert "ada" in result.message
    assert world.acts == ["preserve", "drain", "mark Preservation", "evict", "unmark Preservation", "stop"]


async def test_an_extension_moves_the_end_and_nothing_else_does(env: WorkflowEnvironment) -> None:
    """S22: only an explicit edit."""
    world = machine("now")
    async with kept(env, world) as run:
        word = ExtendRequest(who="ada", reason="not done yet", hold=timedelta(hours=100))
        told = await run.says(Preservation.extend, word)
        assert "preserved until" in told
        sooner = replace(word, hold=None, until=world.held.expiry - timedelta(hours=1))
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await run.says(Preservation.extend, sooner)
        assert "to end it earlier say so" in str(refused.value.cause)
        result = await run.timeout()
    assert result.ended - result.started >= timedelta(hours=172)


@pytest.mark.parametrize("hours", [10, 100])
async def test_an_expiry_that_is_edited_on_the_object_is_the_one_that_counts(env: WorkflowEnvironment, hours: int) -> None:
    """Point 7 of the proposal, S22: sooner or later than the 72 h with which it began."""
    world = machine("now")
    async with kept(env, world) as run:
        begun = world.held.expiry
        edited = begun + timedelta(hours=hours) - HOURS_72
        world.held = replace(world.held, expiry=edited)
        await run.news()
        result = await run.timeout()
    assert timedelta(0) <= result.ended - edited < timedelta(seconds=2)
    assert world.held.expiry is None


async def test_a_bad_extension_is_refused(env: WorkflowEnvironment) -> None:
    """Point by point: neither until when nor how long, an end that is over, nobody who says so."""
    async with kept(env, machine("now")) as run:
        for who, hold, expected in (("ada", None, "exactly one of until"), ("ada", -1, "above 0"), ("", 1, "who: expected")):
            word = ExtendRequest(who=who, reason="r", hold=hold and timedelta(hours=hold))
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await run.says(Preservation.extend, word)
            assert expected in str(refused.value.cause)


async def test_an_abort_undoes_our_marks_and_gives_no_machine_up(env: WorkflowEnvironment) -> None:
    """S28, S35: stopping the episode is no decision to delete anything."""
    world = machine(fails=True)
    async with kept(env, world) as run:
        await run.abort()
        await run.result(Outcome.ABORTED)
    assert (world.held.tainted, world.held.expiry, world.gave_up_at) == (False, None, None)


async def test_s21_a_cancellation_releases_no_machine_that_is_kept(env: WorkflowEnvironment) -> None:
    """Any client of Temporal can ask for it, without a name; the episode says so and goes on."""
    world = machine(fails=True)
    async with kept(env, world) as run:
        await run.is_in(Phase.FAILED_PRESERVED)
        await run.handle.cancel()
        refused = await asked_until(
            env, run.record, lambda record: [each.detail for each in record if (each.act, each.outcome) == ("cancel", "refused")]
        )
        assert "no person's word" in str(refused)
        await run.handle.cancel()
        await run.news()
        await run.skip(timedelta(minutes=1))
        status = await run.is_in(Phase.FAILED_PRESERVED)
        assert (world.held.tainted, world.held.expiry, world.gave_up_at) == (True, status.preserved_until, None)
        await run.abort()
        await run.result(Outcome.ABORTED)


async def test_s42_what_the_worker_does_not_take_for_a_persons_word_ends_nothing_and_is_on_record(
    env: WorkflowEnvironment,
) -> None:
    """Neither a release nor an abort. A word that it takes does, later as well."""
    world = machine(fails=True)
    world.refuses = "ada has said release of node-7 as it was with boot 1: look at it, and say it again"
    async with kept(env, world) as run:
        for number, said in enumerate((Preservation.release, Preservation.abort), start=1):
            await (run.says(said, WORD) if said is Preservation.release else run.abort())
            await asked_until(
                env, run.record, lambda record, times=number: [each.detail for each in record].count(world.refuses) == times
            )
            status = await run.is_in(Phase.FAILED_PRESERVED)
            assert (world.held.tainted, status.preserved_until, world.gave_up_at) == (True, world.held.expiry, None)
        looked = world.looks
        await run.skip(timedelta(minutes=5))
        assert world.looks == looked
        world.refuses = ""
        await run.abort()
        await run.result(Outcome.ABORTED)


async def test_an_annotation_before_the_deletion_is_asked_for_keeps_the_machine(env: WorkflowEnvironment) -> None:
    """S27: the last look of the deletion hears the word that came after the decision; the hand-over goes back, under one id."""
    world = machine(fails=True)
    async with kept(env, world) as run:
        world.late = "now"
        await run.says(Preservation.release)
        await run.until(lambda status: world.acts.count("preserve") == 2 and status.phase is Phase.FAILED_PRESERVED)
        assert world.held.expiry is not None
        assert "delete" not in world.acts
        again = await run.handle.query(Preservation.record)
    assert [entry.outcome for entry in again if entry.act == "hand-over"] == ["begins", "back"]
    assert world.collected == 1
    assert world.broken == []


async def test_pods_that_may_not_be_moved_are_told_and_the_machine_is_kept(env: WorkflowEnvironment) -> None:
    """P27; S30, S36: nothing is forced while the machine has power."""
    world = machine(fails=True)
    world.devices.drains = [DrainResult(evicted=1, left=1, withheld=("default/db-0",))] * 400
    async with preserving(env, world, automatic=True) as run:
        await run.until(lambda status: "db-0" in status.doing)
        await run.skip(timedelta(hours=3))
        await run.is_in(Phase.FAILED_PRESERVED)
        condition = world.held.node.condition(CONDITION) if world.held.node else None
        assert condition.message.startswith("Preserved node could not be drained.")
        assert any(event.startswith("PreservedNotFenced") and "db-0" in event for event in world.events)


async def test_s52_what_a_pool_keeps_is_evicted_isolated_and_given_up_as_its_mode_is_raised(env: WorkflowEnvironment) -> None:
    """S52: nothing in observe; kept in cordon, and no more for as long as that lasts; then evicted, cut off, given up."""
    world = machine(fails=True)
    world.devices = World(plan=switched(), mode=Mode.OBSERVE)
    world.held = replace(world.held, pool_isolates=True)
    async with preserving(env, world, automatic=True) as run:
        result = await run.result(Outcome.RELEASED)
        assert "its mode is observe" in result.message
    assert (world.acts, world.devices.acts) == ([], [])
    world.devices.mode = Mode.CORDON
    async with kept(env, world) as run:
        await run.until(lambda status: status.doing.endswith("its mode is cordon"))
        await run.skip(timedelta(hours=6))
        assert (world.acts, world.devices.mark, world.held.tainted) == (["preserve"], None, True)
        world.devices.mode = Mode.DRAIN
        await run.news()
        await run.until(lambda status: status.doing.endswith("its mode is drain"))
        await run.skip(timedelta(hours=6))
        assert world.acts == ["preserve", "drain", "mark Preservation", "evict"]
        assert ISOLATION_ANNOTATION not in world.held.on_node
        world.devices.mode = Mode.REPAIR
        await run.skip(MODE_AGAIN)  # without a signal, which may be lost
        await run.until(lambda _: world.held.on_node.get(ISOLATION_ANNOTATION) == "cut")
        assert "permit" in world.acts
        await run.timeout(Outcome.REPLACED)
    assert world.devices.commands == []


async def test_s52_a_drain_that_a_mode_interrupts_has_its_whole_time_again(env: WorkflowEnvironment) -> None:
    world = machine(fails=True)
    world.devices.drains = [DrainResult(evicted=1, left=1, blocked=("demo/database-0: a disruption budget",))] * 400
    async with preserving(env, world, automatic=True) as run:
        await run.until(lambda status: "disruption budget" in status.doing)
        world.devices.mode = Mode.CORDON
        await run.news()
        await run.until(lambda status: status.doing.endswith("its mode is cordon"))
        asked = world.acts.count("evict")
        await run.skip(timedelta(hours=3))
        assert world.acts.count("evict") == asked
        world.devices.mode = Mode.DRAIN
        await run.news()
        await run.until(lambda status: "disruption budget" in status.doing)
        await run.skip(timedelta(hours=1))
        assert world.acts.count("evict") > asked + 2
        world.devices.drains.clear()
        await run.is_in(Phase.FAILED_PRESERVED)
        await run.says(Preservation.release)
        await run.timeout()


async def test_s42_the_word_by_which_a_person_releases_it_goes_to_all_that_gives_it_up(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S42, S52: else no worker could know in a lower mode that a person has."""
    monkeypatch.setattr(preservation_run, "IN_THE_CLUSTER", (*preservation_run.IN_THE_CLUSTER, contract.AttestationActivities))
    world = machine(fails=True)
    world.devices.speaker = "ada@example.com"
    async with kept(env, world) as run:
        await run.is_in(Phase.FAILED_PRESERVED)
        await run.says(Preservation.release, replace(WORD, action=ActionName(name="word-x7", uid="u-1")))
        await run.timeout(Outcome.REPLACED)
    assert len(world.words) > 2
    assert {(each.spec.action, each.speaker) for each in world.words if each is not None} == {(Verb.RELEASE, "ada@example.com")}
    assert None not in world.words


async def test_s52_at_the_end_of_its_time_no_machine_is_given_up_below_repair(env: WorkflowEnvironment) -> None:
    world = machine(fails=True)
    world.devices.mode = Mode.DRAIN
    async with kept(env, world) as run:
        await run.timeout(Outcome.RELEASED)
    assert (world.gave_up_at, world.held.expiry, world.held.tainted) == (None, None, False)


def file(name: str, size: int = 7) -> EvidenceFile:
    return EvidenceFile(name=name, of=name, size=size, sha256="ab", at=datetime(2026, 11, 21, tzinfo=UTC))


async def noted(run: Run) -> list[tuple[str, str]]:
    """What the record says of evidence, once it says how it ended."""
    record = await asked_until(run.env, run.record, lambda record: any(entry.act == "evidence" for entry in record))
    return [(entry.outcome, entry.detail) for entry in record if entry.act == "evidence"]


@asynccontextmanager
async def at_a_site(env: WorkflowEnvironment, read: Callable[[DeviceEvidenceRequest], EvidenceFile]) -> AsyncIterator[str]:
    """A site whose worker reads its devices so."""

    @activity.defn(name="evidence.read-device")
    async def read_device(request: DeviceEvidenceRequest) -> EvidenceFile:
        return read(request)

    site = f"s{uuid.uuid4().hex[:8]}"
    async with worker(env.client, task_queue=power_queue(site), activities=[read_device]):
        yield site


async def test_evidence_is_fetched_once_and_its_manifest_is_in_the_record(env: WorkflowEnvironment) -> None:
    """The cluster's first, each device at its site, the manifest last; a failure later is no reason to fetch it again."""
    asked: list[DeviceEvidenceRequest] = []
    world = machine("now")
    async with at_a_site(env, lambda request: asked.append(request) or file("console.txt", 20)) as site:
        device = PowerDevice(driver="ec2", endpoint="ec2://i-1", site=site)
        world.evidence = Collected(files=(file("node.json"),), devices=(device, device), room=100)
        async with preserving(env, world) as run:
            ((outcome, detail),) = await noted(run)
            assert (outcome, detail) == ("kept", "prod/manifest.json: 3 files, 47 bytes; sha256 of the manifest 5ea1ed")
            assert [each.room for each in asked] == [100, 80]
            world.fails()
            await run.news()
            await run.is_in(Phase.FAILED_PRESERVED)
            await run.says(Preservation.release)
            await run.timeout()
            assert await noted(run) == [(outcome, detail)]
    assert world.collected == len(world.sealed) == 1


async def test_evidence_that_hangs_delays_neither_drain_nor_hold_nor_release(env: WorkflowEnvironment) -> None:
    """S21, S22: evidence is beside the story."""
    world = machine(fails=True)
    world.devices.gates["collect"] = asyncio.Event()
    async with kept(env, world) as run:
        assert world.collected == 1
        assert "evict" in world.acts
        assert world.held.tainted
        await run.says(Preservation.release)
        await run.is_in(Phase.TERMINATING)
        assert [outcome for outcome, _ in await noted(run)] == ["incomplete"]
        world.devices.gates["collect"].set()
        await run.timeout(Outcome.REPLACED)


@pytest.mark.usefixtures("rolls_once")
async def test_a_new_history_waits_for_evidence_under_way_and_never_fetches_it_again(env: WorkflowEnvironment) -> None:
    """What is in flight would be lost with the old history; a hold of 72 h has no news that would come of itself."""
    world = machine("now")
    world.evidence = Collected(files=(file("node.json"),))
    world.devices.gates["collect"] = asyncio.Event()
    async with kept(env, world) as run:
        first = (await run.handle.describe()).run_id
        world.devices.gates["collect"].set()
        await run.goes_on_after(first)
        await run.is_in(Phase.RUNNING_PRESERVED)
        await run.says(Preservation.release)
        result = await run.result()
    assert [each.outcome for each in result.record if each.act == "evidence"] == ["kept"]
    assert world.collected == len(world.sealed) == 1


async def test_an_unknown_name_is_missing_and_preserves_nothing(env: WorkflowEnvironment) -> None:
    """S44: whoever mistyped it is told that, and finds no preservation that was released."""
    world = machine("now")
    world.present = False
    async with preserving(env, world) as run:
        result = await run.result(Outcome.REFUSED)
    assert (result.missing, result.message) == (True, "the Machine is gone")


async def test_an_abort_after_its_deletion_was_asked_for_is_told_that_it_goes_on(env: WorkflowEnvironment) -> None:
    """S44: he was told that the episode ends, and it follows the deletion to its end, which nobody can take back."""
    world = machine("false", fails=True)
    world.lingers = 5
    async with preserving(env, world) as run:
        await run.until(lambda _: "delete" in world.acts)
        told = await run.abort()
        await run.timeout(Outcome.REPLACED)
    assert "the deletion of its machine was asked for and goes on" in told
    assert "the episode ends, and our" not in told


async def test_a_look_that_fails_is_repeated_and_nothing_is_lost(env: WorkflowEnvironment) -> None:
    world = machine("now")
    world.devices.errors["hold"] = [failure(ErrorType.INVALID_CONFIG, "Machine/shoot/w-7: $.status: not readable")] * 3
    async with preserving(env, world) as run:
        await run.skip(timedelta(hours=1))
        await run.is_in(Phase.RUNNING_PRESERVED)
        result = await run.timeout(Outcome.RELEASED)
    assert sum(entry.outcome == "failed" for entry in result.record) == 3


async def test_a_drain_that_a_release_ends_is_not_called_a_drain_that_went_well(env: WorkflowEnvironment) -> None:
    """The record is what people judge by afterwards."""
    world = machine("now", fails=True)
    world.devices.drains.extend([DrainResult(evicted=1, left=1, blocked=("demo/database-0: a disruption budget",))] * 50)
    async with preserving(env, world) as run:
        await run.until(lambda status: "disruption budget" in status.doing)
        await run.says(Preservation.release)
        result = await run.timeout()
    assert [entry.outcome for entry in result.record if entry.act == "drain"] == ["stopped"]


async def test_a_device_that_does_not_answer_is_named_as_missing_and_the_rest_is_kept(env: WorkflowEnvironment) -> None:
    def silent(request: DeviceEvidenceRequest) -> EvidenceFile:
        raise failure(ErrorType.UNREACHABLE, f"{request.device.endpoint}: no answer from the BMC")

    world = machine("now")
    async with at_a_site(env, silent) as site:
        missing, device = NotFetched(of="machine", why="slow"), PowerDevice(driver="ipmi", endpoint="bmc-7", site=site)
        world.evidence = Collected(files=(file("node.json"),), missing=(missing,), devices=(device,))
        async with preserving(env, world) as run:
            ((outcome, detail),) = await noted(run)
            assert outcome == "kept"
            assert detail.endswith("; not fetched: machine (slow); bmc-7 (bmc-7: no answer from the BMC)")
            await run.says(Preservation.release)
            await run.result(Outcome.RELEASED)
    assert [each.name for sealed in world.sealed for each in sealed.files] == ["node.json"]
