"""Preserve and isolate: a machine that failed is cut off while it is kept, under the proofs of a fencing, and never its power."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.testing import WorkflowEnvironment

from activities.contracts.target import LookVerdict
from activities.errors import ErrorType, failure
from policy.episode.messages import EpisodeStatus, Outcome, Phase
from policy.episode.node_action import Verb
from policy.episode.permits import PermitAnswer, PermitDecision, PortionAnswer
from policy.fence.plan import CORDON, FencingPlan
from policy.fence.power import PowerState, VolumeState
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import ISOLATION_ANNOTATION
from policy.preservation.requests import ISOLATE_ANNOTATION
from policy.values.times import LATEST
from tests.workflows.plans import CLOUD, CUT, PORT, QUARANTINE, switched
from tests.workflows.preservation_run import KeptMachine, Run, machine, preserving
from tests.workflows.world import World, left_by, plan
from workflows.definitions.episodes import Preservation
from workflows.kit import continuation

CUTS = {"note cut", "cut-path", "free-cut-pods", "restore-path", "note back"}
NOT_WANTED = {ISOLATE_ANNOTATION: "false"}


def failed(found: FencingPlan, **annotations: str) -> KeptMachine:
    """A machine that has failed, is kept on somebody's word and is to be cut off."""
    world = machine()
    world.devices = World(plan=found)
    asked = {PRESERVE_ANNOTATION: "now", ISOLATE_ANNOTATION: "true"} | annotations
    world.held = replace(world.held, node=replace(world.held.node, annotations=asked))
    world.fails()
    return world


def uncuttable(**annotations: str) -> KeptMachine:
    """The same, whose port accepts what it is told while nothing comes of it: nothing is freed behind it (S2)."""
    world = failed(switched(tries=1), **annotations)
    world.devices.stuck.add(PORT.endpoint)
    return world


def cuts(world: KeptMachine) -> list[str]:
    """What was done about the paths, in order."""
    assert world.devices.broken == []
    assert world.devices.commands == []  # S21: nobody touches its power
    return [act for act in world.devices.acts if act in CUTS]


def isolation_of(world: KeptMachine) -> str:
    """How far it has come, as people see it on the Node."""
    return world.held.on_node.get(ISOLATION_ANNOTATION, "")


async def until(run: Run, isolation: str) -> EpisodeStatus:
    """Wait until it is cut off, or incomplete, and kept as failed."""
    return await run.until(lambda status: isolation_of(run.world) == isolation and status.phase is Phase.FAILED_PRESERVED)


async def is_released_well(run: Run) -> None:
    """It is well again, and nobody wants it kept any more."""
    run.world.recovers()
    run.world.annotate("false")
    await run.news()


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Once it is set, the first history is left at its next rest."""
    grown = asyncio.Event()
    monkeypatch.setattr(continuation, "roll_is_due", lambda **_: grown.is_set() and workflow.info().continued_run_id is None)
    return grown


async def test_a_failed_machine_that_is_kept_is_cut_off_and_what_lies_behind_the_cut_is_freed(env: WorkflowEnvironment) -> None:
    """S1, S2, S21: one that runs is not; the path is noted, cut and read as cut, only then are pods freed, and power is not
    touched."""
    world = failed(switched())
    world.recovers()
    async with preserving(env, world) as run:
        await run.is_in(Phase.RUNNING_PRESERVED)
        assert cuts(world) == []
        world.fails()
        await run.news()
        status = await until(run, "cut")
        assert not status.permit
        assert status.path_proofs
        await run.until(lambda _: any(event.startswith("PreservedIsolated") for event in world.events))
    assert cuts(world) == ["note cut", "cut-path", "free-cut-pods"]
    assert world.acts.index("permit") > world.acts.index("evict")
    assert "release-lease" in world.devices.acts


async def test_a_recovered_machine_whose_pods_were_freed_gets_its_path_back_after_a_restart(env: WorkflowEnvironment) -> None:
    """S35: un-isolated only once it is released, well again, and whoever wrote behind the cut has gone with its boot."""
    world = failed(switched())
    async with preserving(env, world) as run:
        await until(run, "cut")
        world.devices.ready = True
        world.recovers()
        await run.news()
        await run.is_in(Phase.RUNNING_PRESERVED)
        assert world.devices.paths[PORT.endpoint] is PowerState.OFF  # kept on: still cut, and our mark tells of it
        assert "unmark Preservation" not in world.acts
        world.annotate("false")
        await run.news()
        await run.is_in(Phase.NEEDS_HUMAN)
        world.devices.boot_id = "boot-2"
        await run.skip(timedelta(minutes=2))
        await run.result(Outcome.RELEASED)
    assert cuts(world)[-2:] == ["restore-path", "note back"]
    assert world.acts[-1] == "unmark Preservation"
    assert isolation_of(world) == ""


async def test_or_on_a_persons_word_which_lifts_the_quarantine_as_well(env: WorkflowEnvironment) -> None:
    """S35: what was freed may run elsewhere, so that the old one has neither its disks nor its network until then. A word that
    was said before it was asked for does not count."""
    world = failed(switched(isolation=(CORDON, QUARANTINE, CUT)))
    async with preserving(env, world) as run:
        await until(run, "cut")
        await run.says(Preservation.hold)
        await run.says(Preservation.resume)
        await is_released_well(run)
        await run.is_in(Phase.NEEDS_HUMAN)
        assert (world.devices.count("lift-quarantine"), world.devices.count("restore-path")) == (0, 0)
        world.devices.word = True
        await run.says(Preservation.return_path)
        result = await run.result()
    assert "left cut" not in result.message
    assert (world.devices.count("lift-quarantine"), world.devices.count("restore-path")) == (1, 1)


async def test_s48_what_is_given_back_is_asked_for_no_more(env: WorkflowEnvironment) -> None:
    """While its marks can't be taken off yet, `return-path` offered what was done, and `resume` was refused for it."""
    world = failed(switched())
    async with preserving(env, world) as run:
        await until(run, "cut")
        await is_released_well(run)
        await run.is_in(Phase.NEEDS_HUMAN)
        gate = world.devices.gates["unmark"] = world.devices.gates["uncordon"] = asyncio.Event()
        world.devices.word = True
        await run.says(Preservation.return_path)
        status = await run.until(lambda _: "unmark Preservation" in world.acts)
        gate.set()
        await run.result()
    assert Verb.RETURN_PATH not in {way.verb for way in status.ways}


async def test_s49_what_was_cut_off_more_than_a_week_ago_is_given_back(env: WorkflowEnvironment) -> None:
    """By the devices that it began with: what they were sealed with has ended by then, and is made anew."""
    world = failed(switched(isolation=(CORDON, QUARANTINE, CUT)))
    async with preserving(env, world) as run:
        await until(run, "cut")
        await is_released_well(run)
        await run.is_in(Phase.NEEDS_HUMAN)
        await run.skip(timedelta(days=8))
        world.devices.word = True
        await run.says(Preservation.return_path)
        result = await run.result()
    assert "left cut" not in result.message
    assert (world.devices.count("lift-quarantine"), world.devices.count("restore-path")) == (1, 1)


@pytest.mark.parametrize("ends", ["its time is over", "aborted"])
async def test_what_has_failed_and_stays_is_left_cut_though_no_pod_was_freed(env: WorkflowEnvironment, ends: str) -> None:
    """S35: un-isolated only where the machine is well again: it may be cut although it was never read so. A Node without a
    Machine is replaced by nobody; our mark goes on telling of what is cut."""
    world = uncuttable()
    world.alone = ends != "aborted"
    async with preserving(env, world, **({"machine": None} if world.alone else {})) as run:
        await until(run, "incomplete")
        world.devices.stuck.clear()
        if world.alone:
            result = await run.timeout(Outcome.RELEASED)
        else:
            await run.abort()
            result = await run.result(Outcome.ABORTED)
    assert f"left cut: {PORT.endpoint}" in result.message
    assert "restore-path" not in cuts(world)


async def test_a_port_that_does_not_close_is_told_once_and_tried_again(env: WorkflowEnvironment) -> None:
    """S2: an accepted command is no proof; the machine is kept meanwhile, and its end stays exact."""
    world = uncuttable()
    async with preserving(env, world) as run:
        await until(run, "incomplete")
        assert "free-cut-pods" not in cuts(world)
        tries = world.devices.count("cut-path")
        await run.news()
        await run.skip(timedelta(seconds=20))
        assert world.devices.count("cut-path") == tries, "what happens meanwhile is no reason to try again before its time"
        await run.skip(timedelta(minutes=5))
        assert world.devices.count("cut-path") >= 2
        world.devices.stuck.clear()
        await run.skip(timedelta(minutes=30))
        await until(run, "cut")
    assert "free-cut-pods" in cuts(world)
    assert sum(event.startswith("PreservedNotIsolated") for event in world.events) == 1


async def test_what_has_failed_is_not_tried_again_once_its_time_is_over(env: WorkflowEnvironment) -> None:
    """S20, S45: the API's clock is behind, so that the looks after its end still call it kept; no permit is asked for by then."""
    world = uncuttable()
    world.timeout, world.behind = timedelta(minutes=30), timedelta(minutes=20)
    async with preserving(env, world) as run:
        status = await until(run, "incomplete")
        assert status.preserved_until is not None
        await run.skip(status.preserved_until - await env.get_current_time())
        asked, looks = world.acts.count("permit"), world.looks
        await run.skip(timedelta(minutes=19))
        assert world.looks > looks, "it is looked at, and still kept"
        assert world.acts.count("permit") == asked
        await run.timeout()


async def test_a_machine_that_boots_between_two_tries_is_cut_off_as_it_runs_now(env: WorkflowEnvironment) -> None:
    """S6, S9: what is freed is of the boot that the second try has cut off; of the first one's nothing is believed."""
    world = uncuttable()
    async with preserving(env, world) as run:
        await until(run, "incomplete")
        world.devices.boot_id = "boot-2"
        world.devices.stuck.clear()
        await run.skip(timedelta(minutes=30))
        await until(run, "cut")
    assert "free-cut-pods" in cuts(world)


def queueing() -> KeptMachine:
    """No permit is left for it."""
    world = failed(switched())
    world.devices.answers.extend([PermitAnswer(decision=PermitDecision.QUEUED, reason="3 of 3 permits are held")] * 200)
    return world


@pytest.mark.parametrize("end", ["a word", "an annotation", "its time"])
async def test_its_end_does_not_wait_for_a_permit(env: WorkflowEnvironment, end: str) -> None:
    """S14, S20, S26: a machine is cut off within the budget of disruptions, like any other; whoever releases it is heard."""
    world = queueing()
    if end == "its time":
        world.timeout = timedelta(hours=2)
    async with preserving(env, world) as run:
        await run.until(lambda status: "waits for a permit" in status.doing and status.phase is Phase.FAILED_PRESERVED)
        if end == "a word":
            await run.says(Preservation.release)
        elif end == "an annotation":
            world.annotate("false")
            await run.news()
        else:
            await run.skip(timedelta(minutes=119))
            assert "terminate" not in world.acts
            await run.skip(timedelta(minutes=2))
        await run.until(lambda _: "terminate" in world.acts)
        assert end != "its time" or timedelta(0) <= world.ended_at - world.expiries[0] < timedelta(seconds=3)
        world.devices.answers.clear()
        result = await run.timeout(Outcome.REPLACED)
    assert result.ended - result.started < timedelta(hours=3)
    assert cuts(world) == []


async def test_a_permit_that_no_episode_waits_for_is_given_back(env: WorkflowEnvironment) -> None:
    """S14: it would count until the hold is over, and others would wait for it so long."""
    world = queueing()
    async with preserving(env, world) as run:
        await run.until(lambda status: "waits for a permit" in status.doing and bool(status.queued))
        asked = {**world.held.node.annotations, **NOT_WANTED}
        world.held = replace(world.held, node=replace(world.held.node, annotations=asked))
        await run.news()
        await run.until(lambda status: "waits for a permit" not in status.doing and not status.queued)
        await run.handle.signal(Preservation.permit_granted)
        await run.until(lambda status: not status.permit)
        assert world.acts.count("permit") >= 1
    assert cuts(world) == []


async def test_volumes_that_are_detached_are_known_to_a_new_history(env: WorkflowEnvironment, grown: asyncio.Event) -> None:
    """S1: the cloud lists them no more, and what used them is freed behind them all the same, once they are read again."""
    world = failed(plan(levels=((CLOUD,),)))
    world.devices.volumes = {"vol-1": VolumeState.ATTACHED}
    world.devices.looks.extend([LookVerdict.GO, LookVerdict.VETOED])
    async with preserving(env, world) as run:
        await until(run, "incomplete")
        grown.set()
        await run.news()
        await run.skip(timedelta(minutes=2))
        await until(run, "cut")
    assert world.devices.cut_pods == 0
    assert world.devices.count("detach vol-1") == 1


async def test_what_a_predecessor_freed_behind_its_cut_is_not_known_and_needs_a_person(env: WorkflowEnvironment) -> None:
    """S35: the mark of a preservation that was terminated tells of a path, and nothing of pods."""
    world = uncuttable()
    world.devices.mark = left_by("older", paths=(PORT.endpoint,))
    async with preserving(env, world) as run:
        await run.skip(timedelta(minutes=3))  # what it may have had in flight is waited out (S34)
        await until(run, "incomplete")
        await is_released_well(run)
        await run.is_in(Phase.NEEDS_HUMAN)
        assert "restore-path" not in cuts(world)
        world.devices.stuck.clear()
        await run.says(Preservation.return_path)
        await run.result()
    assert cuts(world)[-2:] == ["restore-path", "note back"]


@pytest.mark.parametrize("then", ["a person's word", "somebody opens it"])
async def test_a_path_that_was_cut_before_is_not_opened_though_no_pod_was_freed(env: WorkflowEnvironment, then: str) -> None:
    """S35: whoever had cut it has left no mark, and may have freed what lies behind it. Where it is open, nobody is needed."""
    world = failed(switched(tries=1))
    world.devices.paths[PORT.endpoint] = PowerState.OFF
    world.devices.looks.extend([LookVerdict.GO, *[LookVerdict.VETOED] * 20])
    async with preserving(env, world) as run:
        await until(run, "incomplete")
        await is_released_well(run)
        status = await run.is_in(Phase.NEEDS_HUMAN)
        assert "may have been cut before this episode" in status.problem
        assert [act for act in cuts(world) if act in {"free-cut-pods", "restore-path"}] == []
        if then == "a person's word":
            await run.says(Preservation.return_path)
        else:
            world.devices.paths[PORT.endpoint] = PowerState.ON
            await run.skip(timedelta(minutes=2))
        result = await run.result(Outcome.RELEASED)
    assert "left cut" not in result.message
    assert cuts(world).count("restore-path") == (then == "a person's word")
    assert cuts(world)[-1] == "note back"


async def test_a_taint_of_a_terminated_episode_goes_before_a_machine_is_kept(env: WorkflowEnvironment) -> None:
    """S1, S34, S35: the machine may be kept for days, and nobody reads the proof any more; its last act is waited out."""
    world = failed(switched())
    devices = world.devices
    devices.mark, devices.out_of_service = left_by("older", out_of_service=True), True
    async with preserving(env, world) as run:
        await run.until(lambda status: "untaint" in devices.acts)
        assert (devices.out_of_service, "evict" in world.acts) == (False, False)
        await run.skip(timedelta(minutes=1))
        await until(run, "cut")


async def test_a_release_between_the_cut_and_the_freeing_counts_before_the_freeing(env: WorkflowEnvironment) -> None:
    """S20: what was decided a moment ago may hold no longer."""
    world = failed(switched())
    world.devices.gates["cut-path"] = asyncio.Event()
    async with preserving(env, world) as run:
        await run.until(lambda _: "cut-path" in cuts(world))
        await run.says(Preservation.release)
        world.devices.gates["cut-path"].set()
        await run.timeout(Outcome.REPLACED)
    assert cuts(world) == ["note cut", "cut-path"]


async def test_s20_a_release_right_before_pods_behind_the_cut_are_freed_keeps_them(env: WorkflowEnvironment) -> None:
    """It came after the last look, while it was asked how many pods may go, and they were freed all the same."""
    world = failed(switched())
    world.devices.per_minute, world.devices.portions = 10, [PortionAnswer(pods=2, until=LATEST)]
    world.devices.gates[asked := f"ask for {world.devices.cut_pods} pods"] = asyncio.Event()
    async with preserving(env, world) as run:
        await run.until(lambda _: asked in world.devices.acts)
        before = world.devices.cut_pods
        await run.says(Preservation.release)
        world.devices.gates[asked].set()
        await run.timeout(Outcome.REPLACED)
    assert (world.devices.cut_pods, before > 0) == (before, True)


@pytest.mark.usefixtures("rolls_once")
async def test_what_was_left_on_a_node_that_is_gone_is_not_adopted_for_ever(env: WorkflowEnvironment) -> None:
    """S35: nothing is left on it, so that the machine is kept as any other, and its history does not grow without an end."""
    world = machine()
    world.devices = devices = World(plan=switched(), mark=left_by("older"))
    devices.errors["mark"] = [failure(ErrorType.NOT_FOUND, "Node/node-7 does not exist")] * 500
    world.annotate("now")
    async with preserving(env, world) as run:
        await run.until(lambda status: "does not exist" in status.problem)
        first = (await run.handle.describe()).run_id
        devices.mark = None
        await run.news()
        await run.skip(timedelta(minutes=10))  # what the predecessor may have had in flight (S34)
        await run.goes_on_after(first)
    assert world.acts.count("mark Preservation") == 1


async def test_a_person_who_has_mended_what_was_in_the_way_says_so(env: WorkflowEnvironment) -> None:
    world = failed(plan())
    async with preserving(env, world) as run:
        assert "names no path to cut" in (await until(run, "incomplete")).problem
        world.devices.plan = switched()
        world.devices.paths[PORT.endpoint] = PowerState.ON
        await run.says(Preservation.isolate)
        await until(run, "cut")
    assert "free-cut-pods" in cuts(world)


async def test_where_no_pod_was_freed_the_path_comes_back_at_once(env: WorkflowEnvironment) -> None:
    world = uncuttable()
    async with preserving(env, world) as run:
        await until(run, "incomplete")
        world.devices.stuck.clear()
        await is_released_well(run)
        await run.result(Outcome.RELEASED)
    assert "free-cut-pods" not in cuts(world)
    assert cuts(world)[-2:] == ["restore-path", "note back"]


async def test_pods_that_stay_behind_the_cut_are_told_and_tried_again(env: WorkflowEnvironment) -> None:
    """A pod with a finalizer runs nowhere else: the machine is not called cut off before it is gone."""
    world = failed(switched(tries=1, free_timeout=timedelta(seconds=2)))
    world.devices.cut_pods_stay = 1
    async with preserving(env, world) as run:
        status = await until(run, "incomplete")
        assert "1 pods behind the cut are still there" in status.problem
        world.devices.cut_pods_stay = 0
        await run.skip(timedelta(minutes=5))
        await until(run, "cut")
