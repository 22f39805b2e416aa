"""The decision stream of a worker that is killed in the middle of a fencing: each line of the record at least once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from policy.episode.messages import Outcome, episode_id
from tests.documents import ROOT
from tests.system.fixtures import MakeSystem
from tests.system.worker_process import KillOrder, When

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

VICTIM = "demo/database-0"
SCHEMA = json.loads((ROOT / "docs/reference/decisions.schema.json").read_text(encoding="utf-8"))
KILLS = (
    KillOrder(when=When.AFTER, activity="isolation.pin-target"),
    KillOrder(when=When.BEFORE, activity="power-management.power-off"),
)


def by_id(stream: Path) -> tuple[dict[str, dict[str, Any]], int]:
    """The lines, and how many are doubles. Each is whole, as the schema says, and the same as its doubles."""
    found: dict[str, dict[str, Any]] = {}
    lines = [json.loads(line) for line in stream.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        jsonschema.validate(line, SCHEMA)
        assert found.setdefault(line["id"], line) == line
    return found, len(lines) - len(found)


async def test_a_killed_worker_loses_no_line_of_the_record(make_system: MakeSystem, tmp_path: Path) -> None:
    stream = tmp_path / "decisions.jsonl"
    system = await make_system(nodes=3, settings={"stream": {"file": str(stream)}})
    worker = await system.start_worker()
    await system.apply_policy()
    await system.start_scanner()
    doubles = 0
    for order in KILLS:
        await system.settled()
        worker.obey(order)
        before = system.break_node(system.node_of_pod(VICTIM))
        assert await worker.wait() == -9, "it was killed"
        worker = await system.start_worker()
        result = await system.ended(before, seconds=120)
        assert result.outcome is Outcome.RECOVERED
        found, doubles = by_id(stream)
        run = next(line["run_id"] for line in found.values() if line["incident"] == result.incident and line["run_id"])
        written = {number: found.get(f"{run}/{number}") for number in (entry.number for entry in result.record)}
        assert [number for number, line in written.items() if line is None] == [], f"lost by a kill {order}"
        for entry in result.record:
            line = found[f"{run}/{entry.number}"]
            assert (line["act"], line["outcome"], line["message"]) == (entry.act, entry.outcome, entry.detail)
            assert (line["node"], line["workflow_id"]) == (before.node, episode_id(system.cluster_name, before.node))
        kinds = {line["kind"] for line in found.values() if line["incident"] == result.incident}
        assert kinds >= {"admitted", "looked", "acted", "read-back", "entered", "ended"}
    assert doubles, "a kill after an act leaves lines that come again"
