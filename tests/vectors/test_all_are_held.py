"""No case of `fence.json` is forgotten: each is used by a test, which is found by the case's name."""

from __future__ import annotations

import re
from pathlib import Path

from tests.vectors.fencing import VECTORS

TESTS = Path(__file__).parents[1]
USED = re.compile(r'(?:VECTORS\[|given\()"(\w+)"')


def test_every_case_is_held_by_some_test() -> None:
    used = {name for path in TESTS.rglob("test_*.py") for name in USED.findall(path.read_text(encoding="utf-8"))}
    assert set(VECTORS) - used == set()
    assert used - set(VECTORS) == set(), "a case that is not written down"
