"""What the scanner believes of an episode that it has heard the end of."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow

from activities.contracts.episodes import DescribeResult, EpisodeActivities, EpisodeDescription, FoundOpen
from policy.episode.permits import PermitState, Release
from tests.policy.builders import a_permit
from tests.workflows.scanned import NOW, report
from workflows.scanner.backoff import CLOSING, note_release
from workflows.scanner.permits import Holders
from workflows.scanner.state import ScannerInput, ScannerState

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
    holders = Holders(ScannerInput(cluster="c", concurrency=2), state)
    expected = {"n": PermitState.PARKED, "opening": PermitState.RESERVED}
    await holders.rebuild(report(run="first"))
    assert {line.node: line.holding for line in state.permits.values()} == expected
    await holders.rebuild(report(run="after the reset"))
    assert state.known
    counts = PermitState.PARKED if parked else PermitState.OPEN
    assert {line.node: line.holding for line in state.permits.values()} == expected | {"n": counts}
