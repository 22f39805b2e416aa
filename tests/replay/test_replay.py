"""Stored histories still replay: a new version may take over every run that an older one has left open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from tests.replay.recording import HISTORIES, KEPT
from workers.plugin import PLUGIN
from workflows.definitions.device_check import DeviceCheck
from workflows.definitions.episodes import Fencing, Preservation, RecordedObservation, Remediation
from workflows.definitions.scanner import HealthScanner

STORED = sorted(HISTORIES.glob("*.json"))


def load(path: Path) -> WorkflowHistory:
    """A stored history."""
    stored = json.loads(path.read_text())
    return WorkflowHistory.from_json(stored["workflow_id"], stored["history"])


def test_every_history_that_should_be_kept_is_there() -> None:
    assert {path.stem for path in STORED} == set(KEPT.values())


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
async def test_a_stored_history_replays(path: Path) -> None:
    kinds = [DeviceCheck, Fencing, HealthScanner, RecordedObservation, Preservation, Remediation]
    # Without the limit of 2 s a task: what is asked is the order of commands, not how soon a loaded machine answers.
    await Replayer(workflows=kinds, plugins=[PLUGIN], debug_mode=True).replay_workflow(load(path))


async def test_a_changed_sequence_of_commands_is_noticed() -> None:
    """The replay can fail: the same history with one activity renamed is refused."""
    path = HISTORIES / "fencing-recovered.json"
    renamed = path.read_text().replace("isolation.mark-unschedulable", "isolation.something-else")
    stored = json.loads(renamed)
    replayer = Replayer(workflows=[Fencing, HealthScanner], plugins=[PLUGIN])
    with pytest.raises(NondeterminismError):
        await replayer.replay_workflow(WorkflowHistory.from_json(stored["workflow_id"], stored["history"]))
