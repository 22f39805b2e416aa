"""What the scanner tells episodes of their nodes."""

from __future__ import annotations

import pytest

from policy.episode.messages import Kind, Observation
from policy.episode.permits import Permit, PermitState
from policy.scan.scan_report import ViewState
from tests.workflows.scanned import NOW, report
from workflows.scanner.episode_notifier import Telling


@pytest.mark.parametrize(("stale", "told"), [("", ["n"]), ("nothing was heard for a minute", [])])
def test_what_a_stale_view_shows_of_a_node_is_no_news(stale: str, told: list[str]) -> None:
    """S18: an episode would take its node for well, or gone."""
    permit = Permit(node="n", workflow_id="w", incident="i", kind=Kind.FENCING, holding=PermitState.OPEN, granted_at=NOW)
    telling = Telling("c", (("n", "as it was"),))
    seen = report(observations=(Observation(node="n", ready=True),), view=ViewState(synced=True, stale=stale))
    assert [each.node for each in telling.news(seen, (permit,))] == told
    assert telling.told == (("n", "as it was"),)
