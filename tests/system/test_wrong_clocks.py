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


async def test_a_worker_with_a_wrong_clock_parks_nothing_that_a_good_one_beside_it_can_finish(make_system: MakeSystem) -> None:
    """S18, S45: nobody is asked for anything, and nothing is done twice."""
    system = await make_system(nodes=4)
    bad = await system.start_worker(environment=wrong_by(600))
    await system.apply_policy()
    await system.warden.start_scanner(system.cluster_name, cap=1)

    async def declines() -> bool:
        return "clock" in bad.tail(200)

    # Temporal gives a workflow's activities to the worker that has the workflow, so that the other one may never be asked.
    await system.until(declines, "the worker with the wrong clock leaves the scan to others", seconds=60)
    await system.start_worker()
    await system.settled()
    before = system.break_node(system.node_of_pod(VICTIM))
    result = await system.ended(before, seconds=100)
    assert result.outcome is Outcome.RECOVERED
    assert await system.judge(before, result) == []
    assert bad.alive
    assert not [entry for entry in result.record if entry.act == "needs-human"]


async def test_a_worker_with_a_wrong_clock_that_is_alone_says_why_nothing_is_done(make_system: MakeSystem) -> None:
    """S44: `status` and `explain` give the reason, and nothing is admitted on what it sees (S18)."""
    system = await make_system(nodes=2, demo_workloads=False)
    await system.start_worker(environment=wrong_by(-600))
    await system.apply_policy()
    await system.warden.start_scanner(system.cluster_name, cap=1)

    async def says_so() -> bool:
        status = await system.scanner()
        return status is not None and status.report is not None and "clock" in status.report.view.stale

    await system.until(says_so, "the scanner says that the worker's clock is wrong", seconds=60)
    status = await system.scanner()
    assert status is not None
    assert not status.permits
    await system.start_worker()

    async def seen_rightly() -> bool:
        status = await system.scanner()
        return status is not None and status.report is not None and not status.report.view.stale

    await system.until(seen_rightly, "the worker that has come has the scan", seconds=60)
