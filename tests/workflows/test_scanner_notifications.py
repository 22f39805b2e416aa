"""Which episodes the scanner notifies of their nodes."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio import workflow

from activities.contracts.episodes import NotifyResult
from policy.episode.messages import Kind, Observation
from policy.episode.permits import Permit, PermitState
from policy.scan.report_builder import stamp_of
from policy.scan.scan_report import ViewState
from tests.workflows.scanned import NOW, report
from workflows.definitions.scanner import HealthScanner
from workflows.scanner.state import ScannerInput, ScannerState

SEEN = Observation(node="n", ready=True)


@pytest.mark.parametrize(("stale", "notified"), [("", ["n"]), ("nothing was heard for a minute", [])])
async def test_what_a_stale_view_shows_of_a_node_is_no_change(
    stale: str, notified: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S18: an episode would take its node for well, or gone."""
    asked = list[str]()

    async def tell(_: object, request: Any, **__: object) -> NotifyResult:
        asked.extend(each.node for each in request.observations)
        return NotifyResult()

    monkeypatch.setattr(workflow, "now", lambda: NOW)
    monkeypatch.setattr(workflow, "execute_activity_method", tell)
    permit = Permit(node="n", workflow_id="w", incident="i", kind=Kind.FENCING, holding=PermitState.OPEN, granted_at=NOW)
    seen = report(observations=(SEEN,), view=ViewState(synced=True, stale=stale))
    state = ScannerState(started=NOW, report=seen, permits={"n": permit}, notified={"n": "as it was"})
    await HealthScanner(ScannerInput(cluster="c", state=state))._notify_episodes()
    assert asked == notified
    assert state.notified == {"n": "as it was" if stale else stamp_of(SEEN)}
