"""A test that takes too long is cancelled, and nothing of it runs on beside the next ones; a second chance is one anew."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import APART, CALM, PATIENT, TOGETHER, bounded
from tests.system.worker_process import ROOT


async def test_what_takes_too_long_is_cancelled_and_cleans_up_before_the_next_one() -> None:
    told: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cleaned up")

    with pytest.raises(TimeoutError):
        await bounded(endless, 0.01)()
    assert told == ["cleaned up"]


def test_what_has_a_lane_is_there() -> None:
    """A file that was renamed would be run among those that keep a processor busy, or last of all."""
    assert [name for name in (*PATIENT, *CALM, *APART, *TOGETHER) if not (ROOT / name).exists()] == []


async def test_every_coroutine_of_this_run_is_bounded(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")
    assert marker is not None
    assert marker.args[0] > float(request.config.getini("timeout"))


FLAKY = """
import pytest

BEGUN, ENDED = [], []

@pytest.fixture(scope="module")
async def shared():
    BEGUN.append(len(BEGUN))
    yield BEGUN[-1]
    ENDED.append(BEGUN[-1])

@pytest.fixture(scope="module")
async def upon_it(shared):
    yield shared

async def test_passes_only_in_surroundings_of_its_own(upon_it):
    assert (upon_it, ENDED) == (1, [0])

async def test_comes_after_it(upon_it):
    assert upon_it == 1
"""


def test_a_second_chance_is_one_in_new_surroundings(tmp_path: Path) -> None:
    """The node that the first one has left off, and its open episode, would make it fail again."""
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    settings = [f"--rootdir={ROOT}", f"--config-file={ROOT / 'pyproject.toml'}", "-p", "tests.conftest", "--reruns", "1"]
    command = [sys.executable, "-m", "pytest", *settings, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert "2 passed, 1 rerun" in done.stdout, done.stdout
