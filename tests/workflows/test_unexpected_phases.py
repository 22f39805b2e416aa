"""A change of phase that the automaton does not have is on record and counted, and stops no episode.

Every other test of this folder fails by such a change (`unexpected_phases` in `conftest.py`).
"""

from __future__ import annotations

import pytest
from temporalio.testing import WorkflowEnvironment

from policy.episode import phases
from policy.episode.messages import Kind, Outcome, Phase
from tests.workflows.fencing_run import fencing
from tests.workflows.world import World


async def test_a_change_that_no_arrow_allows_is_on_record_and_counted_and_the_machine_comes_back(
    env: WorkflowEnvironment, monkeypatch: pytest.MonkeyPatch, unexpected_phases: list[tuple[Kind, Phase, Phase]]
) -> None:
    """S35: a task that fails for ever, after off, would leave the machine off."""
    without = {before: following for before, following in phases.FENCING.items() if before is not Phase.RUNNING}
    monkeypatch.setattr(phases, "ARROWS", {Kind.FENCING: without})
    async with fencing(env, World()) as run:
        result = await run.result()
    assert result.outcome is Outcome.RECOVERED
    assert unexpected_phases == [(Kind.FENCING, Phase.RUNNING, Phase.DONE)]
    told = [entry.detail for entry in result.record if (entry.act, entry.outcome) == ("phase", "unexpected")]
    assert told == ["Fencing: after running expected no other phase, got done"]
    unexpected_phases.clear()
