"""A person says how far programs may go: it holds at once, for the next scanner too, and a new cluster is only observed (S52)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from temporalio import workflow
from temporalio.client import WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from policy.episode.modes import MODES_MEMO, ClusterModes
from policy.episode.permits import PermitQuestion, PermitQuestions
from policy.scan.scan_report import ScanReport
from policy.values.mode import Mode
from tests.workflows import contract
from tests.workflows.scanned import Scan, ScriptedCluster, report, scanning
from tests.workflows.surroundings import eventually
from workflows.definitions.scanner import HealthScanner, _Poll
from workflows.kit.messages import ModeRequest
from workflows.scanner.state import ScannerInput, ScannerState

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


@pytest.mark.parametrize(
    "of", [{"mode": "Repair"}, {"mode": "unset", "selector": "a=b"}, {"mode": "repair", "selector": "rack in r7"}]
)
async def test_what_can_t_be_read_is_refused_to_the_person(of: dict[str, str], env: WorkflowEnvironment) -> None:
    """S44: and changes nothing."""
    async with scanning(env, ScriptedCluster(), modes=OBSERVES) as scan:
        await scan.until(lambda status: status.report is not None)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await says(scan, **of)
        assert "expected" in str(refused.value.cause)
        assert await asked(scan) == OBSERVES


async def test_no_report_of_former_modes_is_acted_on(env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """S52: the mode is taken back while a scan is on its way that still offers the node."""
    world = ScriptedCluster()
    async with scanning(env, world, concurrency=5) as scan:
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
    async with scanning(env, world, concurrency=5) as scan:
        await scan.until(lambda status: status.modes.default is Mode.OBSERVE and status.scans > 1)
        assert world.opened == []
        await says(scan, "repair", nodes=("node-1",))
        await scan.has_opened(1)


async def test_a_report_that_comes_in_the_moment_in_which_the_mode_is_taken_back_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S52: it had been answered before the scan could be cut short."""
    now = report().at
    monkeypatch.setattr(workflow, "now", lambda: now)
    scanner = HealthScanner(ScannerInput(cluster="prod", state=ScannerState(started=now)))
    answered: asyncio.Future[ScanReport] = asyncio.get_running_loop().create_future()
    answered.set_result(report("node-1"))
    poll = _Poll(request=scanner._scan_request(), began=now, scan=answered)  # type: ignore[arg-type]
    scanner._state.modes = OBSERVES
    assert (await scanner._take_report(poll), scanner._state.report) == (None, None)
    poll = _Poll(request=scanner._scan_request(), began=now, scan=answered)  # type: ignore[arg-type]
    assert await scanner._take_report(poll) is not None
