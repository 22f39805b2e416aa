"""The processes that tests start end with the test, whatever becomes of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.power.process_table import alive
from tests.starter.process import nodewarden

PARENT = """import subprocess, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("started", child.pid, flush=True)
time.sleep(600)
"""


async def fails(folder: Path, started: list[int]) -> None:
    async with nodewarden(module="parent_of_one", PYTHONPATH=str(folder)) as process:
        started += [int(each) for each in re.findall(r"started (\d+)", await process.says("started"))]
        assert not all(map(alive, started)), "it fails"


async def test_what_a_failed_test_leaves_running_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    """As the Temporal server of a demo."""
    (tmp_path / "parent_of_one.py").write_text(PARENT, encoding="utf-8")
    started = list[int]()
    with pytest.raises(AssertionError, match="it fails"):
        await fails(tmp_path, started)
    assert len(started) == 1
    assert not alive(started[0])
