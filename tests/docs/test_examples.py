"""Blocks of commands that need nothing but this machine are run as they stand, and say what the page shows below them.

A block of YAML with a title (`yaml title="nodes.yaml"`) is a file that the commands find.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.reading import COMMANDS, ROOT, Block, blocks, pages

HERE = "tests/docs/test_examples.py::test_the_example_is_run_as_it_stands"
EXAMPLES = [block for page, text in pages().items() if HERE in text for block in blocks(page) if block.marker == ("run-by", HERE)]
COLUMNS = "130"
"""As wide as the pages' tables."""


def _files(page: str) -> dict[str, str]:
    return {named[1]: block.text for block in blocks(page) if (named := re.search(r'title="([\w.-]+\.yaml)"', block.info))}


def _shown_below(example: Block) -> Block | None:
    """The block of output that follows, with nothing but a remark in brackets between."""
    every = blocks(example.page)
    following = every[every.index(example) + 1 :]
    return following[0] if following and following[0].language in ("", "text") and following[0].fenced else None


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_example_is_run_as_it_stands(example: Block, tmp_path: Path) -> None:
    for name, text in _files(example.page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {"HOME": str(tmp_path), "COLUMNS": COLUMNS, "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = ["bash", "-euo", "pipefail", "-c", example.text]
    ran = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
    shown = _shown_below(example)
    if shown is not None:
        assert ran.stdout.rstrip().splitlines() == shown.text.splitlines()


def test_there_are_examples() -> None:
    assert {"docs/try-a-policy.md", "docs/semantics.md", "docs/preservation.md"} <= {each.page for each in EXAMPLES}
    assert sum(_shown_below(each) is not None for each in EXAMPLES) >= 4


PROGRAMS = ("nodewarden", "kubectl", "make", "temporal", "docker", "pip", "openssl", "helm", "uv")
NEEDS = {"a cluster", "hardware", "your files", "ten minutes"}


def test_a_block_of_commands_is_run_by_a_test_or_says_what_it_needs() -> None:
    for block in (each for page in pages() for each in blocks(page) if each.language in COMMANDS):
        kind, what = block.marker
        assert kind, f"{block}: expected a line above it, <!-- run-by: TEST --> or <!-- needs: … -->"
        if kind == "needs":
            assert what in NEEDS, f"{block}: expected one of {', '.join(sorted(NEEDS))}"
            continue
        file, _, name = what.partition("::")
        there = re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert there is not None, f"{block}: there is no test {what}"


def test_no_command_stands_in_a_block_without_a_language() -> None:
    """It would have no mark, and no button to copy it."""
    bare = [
        str(block)
        for page in pages()
        for block in blocks(page)
        if not block.language and re.search(rf"^({'|'.join(PROGRAMS)}) ", block.text, re.MULTILINE)
    ]
    assert bare == []
