"""Which nodes the scanner begins nothing for by itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio import workflow

from policy.checks.fence_policies import Attempts, FencePolicies
from policy.episode.messages import Kind, Outcome
from policy.episode.needs import NeedKind
from policy.episode.observation import Observation
from policy.episode.permits import Permit, PermitState, Release
from tests.workflows.scanned import NOW, candidate, report
from workflows.kit.messages import Backoff, ScannerState
from workflows.scanner.holding_off import AFTER_REFUSAL, HoldingOff


def test_a_node_is_left_alone_that_is_held_off_or_whose_episode_has_just_ended() -> None:
    """S19: neither alone is leave to clean up there."""
    holding = HoldingOff(
        ScannerState(started=datetime(2026, 11, 1, tzinfo=UTC), held_off=(Backoff(node="held", reason="failed"),))
    )
    holding.settling.add("settling")
    assert [holding.leaves_alone(node) for node in ("held", "settling", "other")] == [True, True, False]


def test_a_new_history_knows_at_once_how_many_attempts_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """S19: an episode may end before the first scan of that history, in which the policies would be read again."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    policies = FencePolicies(maximum_attempts=2, attempts_pause=timedelta(hours=1))
    failed = (Attempts(node="n", failed=1, at=NOW),)
    holding = HoldingOff(ScannerState(started=NOW, report=report(policies=policies), attempts=failed))
    permit = Permit(node="n", workflow_id="w", incident="i", kind=Kind.FENCING, holding=PermitState.OPEN, granted_at=NOW)
    holding.hear_release(Release(node="n", incident="i", outcome=Outcome.REFUSED, problem="no template"), permit)
    assert [each.until for each in holding.held_off] == [NOW + timedelta(hours=1)]


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.FENCED_OFF, Outcome.RELEASED])
def test_a_report_from_before_an_episodes_end_does_not_call_its_node_well_again(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S19, S43: a node that flaps was well for the last scan; since a person has ended its episode nobody has seen it so."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    holding = HoldingOff(ScannerState(started=NOW))
    holding.hear_release(Release(node="n", incident="i", outcome=outcome, problem="aborted by ada"), None)
    well = report(observations=(Observation(node="n", present=True, ready=True),))
    holding.forget(well)
    assert [each.node for each in holding.held_off] == ["n"]
    holding.hear_report()
    holding.forget(well)
    assert holding.held_off == ()


def test_a_refused_request_for_a_node_that_is_well_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """S19, S46: that the node is well ends what a check would begin, and no request. It would be refused again in every scan."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    holding = HoldingOff(ScannerState(started=NOW))
    problem = "is not the node's device"
    for node in ("asked for", "n"):
        holding.hear_release(Release(node=node, incident="i", outcome=Outcome.REFUSED, problem=problem), None)
    holding.hear_report()
    wish = replace(candidate("asked for"), need=NeedKind.FOREIGN_OBJECT)
    seen = tuple(Observation(node=node, present=True, ready=True) for node in ("asked for", "n"))
    holding.forget(report(observations=seen, candidates=(wish,)))
    assert [each.node for each in holding.held_off] == ["asked for"]
    monkeypatch.setattr(workflow, "now", lambda: NOW + AFTER_REFUSAL)
    holding.forget(report(observations=seen, candidates=(wish,)))
    assert holding.held_off == ()
