"""What the scanner believes of an episode that it has heard the end of."""

from __future__ import annotations

from datetime import timedelta

import pytest
from temporalio import workflow

from activities.contracts.episodes import DescribeResult, EpisodeDescription
from policy.episode.permits import Release
from tests.workflows.scanned import NOW
from workflows.kit.messages import ScannerState
from workflows.scanner.holders import Holders
from workflows.scanner.holding_off import CLOSING, HoldingOff
from workflows.scanner.permit_table import PermitTable
from workflows.scanner.reserving import Grantor

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
    table, holding = PermitTable(), HoldingOff(state)
    holders = Holders(Grantor(cluster="c", holder="us", concurrency=1), state, table, holding)
    holding.hear_release(Release(node="n", incident="i", outcome="recovered"), None)
    monkeypatch.setattr(workflow, "now", lambda: NOW + later)
    assert await holders.describe(("n",)) is believed
    assert [line.incident for line in table.permits()] == (["i"] if believed else [])
