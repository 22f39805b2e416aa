"""Stored histories still replay: a new version may take over every run that an older one has left open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.workflow import _Definition

from tests.replay.divergence import WAY_OUT, Divergence, diverges
from tests.replay.recording import HISTORIES, KEPT, RESTS
from tests.replay.rests import noted, places, reached
from workflows.definitions.device_check import DeviceCheck
from workflows.definitions.episodes import Fencing, Preservation, RecordedObservation, Remediation
from workflows.definitions.scanner import HealthScanner

STORED = sorted(HISTORIES.glob("*.json"))
MOST_BYTES = 350_000
REPLAYED: dict[str, tuple[Divergence | None, set[tuple[str, int]]]] = {}
KINDS = [DeviceCheck, Fencing, HealthScanner, RecordedObservation, Preservation, Remediation]


def load(text: str) -> WorkflowHistory:
    """A stored history."""
    stored = json.loads(text)
    return WorkflowHistory.from_json(stored["workflow_id"], stored["history"])


def test_every_history_that_should_be_kept_is_there() -> None:
    assert {path.stem for path in STORED} == {*KEPT.values(), *(name for name, _ in RESTS.values())}


async def replayed(path: Path) -> tuple[Divergence | None, set[tuple[str, int]]]:
    """What a replay of it came to, and where it waited; each is replayed once."""
    if path.stem not in REPLAYED:
        with noted() as lines:
            REPLAYED[path.stem] = await diverges(path.stem, load(path.read_text()), KINDS), lines  # noqa: ASYNC240 - some hundred kB
    return REPLAYED[path.stem]


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
async def test_a_stored_history_replays(path: Path) -> None:
    found, _ = await replayed(path)
    if found is not None:
        pytest.fail(f"{found}\n{WAY_OUT}", pytrace=False)


NOT_STORED = {
    "remediation/story.py: before the machine is looked at again": "beside a fencing, with an API that is away",
    "scanner/story.py: many scans in a row were answered at once": "a breath, after hundreds of scans",
    "scanner/story.py: before episodes that rest are woken": "under a build that wrote no history yet",
}
"""Places without a history, and why: what is played on the clockwork alone."""


async def test_each_place_where_a_run_rests_has_a_history() -> None:
    """A new one needs a test that reaches it, and a line of RESTS in `recording.py`."""
    lines = set[tuple[str, int]]().union(*[(await replayed(path))[1] for path in STORED])
    missing = {each.name for each in places()} - reached(lines)
    assert missing == NOT_STORED.keys()


def test_a_history_is_small() -> None:
    sizes = {path.stem: path.stat().st_size for path in STORED}
    assert {name: size for name, size in sizes.items() if size > MOST_BYTES} == {}


def test_each_kind_of_workflow_has_a_history() -> None:
    begun = [load(path.read_text()).events[0].workflow_execution_started_event_attributes for path in STORED]
    assert {each.workflow_type.name for each in begun} == {_Definition.must_from_class(each).name for each in KINDS}


TAINTS = "power-management.taint-out-of-service"


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("power-management.something-else", "activity power-management.something-else"),
        ("power-management.read-power", "activity power-management.read-power"),
    ],
)
async def test_a_changed_sequence_of_commands_is_named(then: str, expected: str) -> None:
    """The replay can fail: an activity is another one in the history than in the code. So it is known which event that is."""
    stored = (HISTORIES / "fencing-recovered.json").read_text().replace(TAINTS, then)
    found = await diverges("fencing-recovered", load(stored), KINDS)
    assert found is not None
    assert found.expected.startswith(expected)
    assert found.actual == f"activity {TAINTS} (power-management: taints the node out-of-service)"
    event = next(each for each in load(stored).events if each.event_id == found.event)
    assert event.activity_task_scheduled_event_attributes.activity_type.name == then
    assert "TMPRL1100" in found.error
