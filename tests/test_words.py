"""The product says who acts: no docstring, comment, name or message of it hides the subject behind whoever, whose or nobody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("policy", "activities", "workflows", "workers", "starter")
RIDDLES = re.compile(r"(?<![a-z])(?:whoever|whomever|whose|whom|nobody|somebody)(?![a-z])", re.IGNORECASE)
JUSTIFIED: dict[str, str] = {}
"""Lines that may have one, and why: none so far."""
HIDDEN = ("# Whoever asks", "def _whose(target):", 'f"somebody else\'s"', "nobody_asks = 1", "of whom it is")


def riddles(text: str) -> list[tuple[int, str]]:
    """Its lines that hide who acts, by their numbers."""
    every = enumerate(text.splitlines(), 1)
    return [(number, line.strip()) for number, line in every if RIDDLES.search(line) and line.strip() not in JUSTIFIED]


@pytest.mark.parametrize("folder", PRODUCT)
def test_the_product_says_who_acts(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert len(files) > 20
    found = [f"{file.relative_to(ROOT)}:{number} {line}" for file in files for number, line in riddles(file.read_text())]
    assert found == []


@pytest.mark.parametrize("line", HIDDEN)
def test_a_line_that_hides_who_acts_is_found(line: str) -> None:
    assert riddles(line) == [(1, line)]
