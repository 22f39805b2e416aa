"""One of two workers has a wrong clock: what it may not do the other one does, and people are told why (S18, S44)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from policy.episode.messages import Outcome
from tests.system.fixtures import MakeSystem

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(150),
    pytest.mark.skipif(not LIBRARIES, reason="not installed: faketime (package faketime)"),
]

VICTIM = "demo/database-0"


def wrong_by(seconds: int) -> Mapping[str, str]:
    """The environment of a process whose clock is so many seconds fast."""
    return {"LD_PRELOAD": str(LIBRARIES[0]), "FAKETIME": f"{seconds:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


async def test_a_worker_with_a_wrong_clock_says_so_alone_and_parks_nothing_that_a_good_one_beside_it_can_finish(
    make_system: MakeSystem,
) -> None:
    """S44: alone it has `status` give the reason, and nothing is admitted on what it sees (S18). S45: beside a good one nobody is
    asked for anything, and nothing is done twice."""
    system = await make_system(nodes=4)
    bad = await system.start_worker(environment=wrong_by(600))
    await system.apply_policy()
    await system.warden.start_scanner(system.cluster_name, cap=1)

    async def stale() -> str | None:
        status = await system.scanner()
        return status.report.view.stale if status is not None and status.report is not None else None

    async def says_so() -> bool:
        return "clock" in (await stale() or "")

    await system.until(says_so, "the scanner says that the worker's clock is wrong", seconds=60)
    status = await system.scanner()
    assert status is not None
    assert not status.permits
    assert "clock" in bad.tail(200)
    # Temporal gives a workflow's activities to the worker that has the workflow, so that the other one may not be asked for long.
    await system.start_worker()

    async def seen_rightly() -> bool:
        return await stale() == ""

    await system.until(seen_rightly, "the worker that has come has the scan", seconds=60)
    await system.settled()
    before = system.break_node(system.node_of_pod(VICTIM))
    result = await system.ended(before, seconds=100)
    assert result.outcome is Outcome.RECOVERED
    assert await system.judge(before, result) == []
    assert bad.alive
    assert not [entry for entry in result.record if entry.act == "needs-human"]
