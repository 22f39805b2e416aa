"""What the scanner decides goes to the decision stream with its scans: each change once, and again until a scan was answered."""

from __future__ import annotations

from dataclasses import dataclass

from temporalio.testing import WorkflowEnvironment

from activities.contracts.scan import ScanRequest
from activities.errors import ErrorType, failure
from policy.episode.decisions import Decision, DecisionKind
from policy.episode.messages import episode_id
from policy.scan.scan_report import ScanReport
from tests.workflows.scanned import ScriptedCluster, report, scanning
from tests.workflows.surroundings import eventually
from workflows.definitions.scanner import HealthScanner
from workflows.kit.messages import ModeRequest, PauseRequest, StopRequest, UnpauseRequest


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
