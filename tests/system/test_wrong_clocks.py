"""A worker has a wrong clock: people are told why nothing is done, and another worker beside it does what it may not (S18, S44).

One system for both, in this order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from policy.episode.messages import Outcome
from tests.system.fixtures import Standing
from tests.system.harness import System

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


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    """Its only worker is ten minutes late."""
    async with standing(nodes=4) as running:
        await running.start_worker(environment=wrong_by(-600))
        await running.apply_policy()
        await running.warden.start_scanner(running.cluster_name, cap=1)
        yield running


async def test_a_worker_with_a_wrong_clock_that_is_alone_says_why_nothing_is_done(system: System) -> None:
    """S44: `status` and `explain` give the reason, and nothing is admitted on what it sees (S18)."""

    async def says_so() -> bool:
        status = await system.scanner()
        return status is not None and status.report is not None and "clock" in status.report.view.stale

    await system.until(says_so, "the scanner says that the worker's clock is wrong", seconds=60)
    status = await system.scanner()
    assert status is not None
    assert not status.permits


async def test_a_worker_with_a_wrong_clock_parks_nothing_that_a_good_one_beside_it_can_finish(system: System) -> None:
    """S18, S45: nobody is asked for anything, and nothing is done twice."""
    bad = system.workers[0]
    await system.start_worker()
    await system.start_scanner()
    await system.settled()
    before = system.break_node(system.node_of_pod(VICTIM))
    result = await system.ended(before, seconds=100)
    assert result.outcome is Outcome.RECOVERED
    assert await system.judge(before, result) == []
    assert bad.alive
    assert "clock" in bad.tail(200)
    assert not [entry for entry in result.record if entry.act == "needs-human"]
