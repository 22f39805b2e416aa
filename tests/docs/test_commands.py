"""Every command that a page shows or the product advises exists: of nodewarden with its options, of make, of kubectl files."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.exceptions import TyperException

from policy.episode.advice import ways
from policy.episode.node_action import ANSWERS, AcceptedCommand, Verb
from starter.cli import app
from starter.commands.arguments import NodeOrCommand
from tests.docs.reading import COMMANDS, ROOT, Block, Line, blocks, lines_of, pages, spelled_out, words_of

COMMAND: Any = typer.main.get_command(app)
LACKS = {"MissingParameter", "BadOptionUsage"}
"""How click says that an argument, or an option's value, is not there: as in "`nodewarden deploy rbac --secrets` names them"."""


def understood(line: Line) -> None:
    """Raises what click would say of a line that is wrong."""
    for each in spelled_out(line.text):
        command: Any = COMMAND
        words = words_of(re.sub(r"--question (?:NODE|N)\b", "--question 7", each))
        context = command.make_context("nodewarden", list(words), resilient_parsing=True)
        words = [*context._protected_args, *context.args]  # what follows the global options
        while hasattr(command, "commands"):
            if not words:
                alone = getattr(command, "invoke_without_command", False)
                assert alone or not line.whole or "--help" in each or "--version" in each, f"{line}: what of {command.name}?"
                return
            if isinstance(command, NodeOrCommand):
                words = command.spelled_out(words)
            found = command.get_command(context, words[0])
            assert found is not None, f"{line}: no command {words[0]!r}; there are {', '.join(sorted(command.commands))}"
            command, words = found, words[1:]
        try:
            made = command.make_context(command.name, list(words), parent=context)
            assert command.name not in ANSWERS - {Verb.ACK_OFF} or made.params["question"], (
                f"{line}: expected --question, without which it is refused"
            )
        except TyperException as error:
            if line.whole or type(error).__name__ not in LACKS:
                raise


def advised_by_the_product() -> Iterator[Line]:
    """What it advises people to type, in messages and docstrings, between backquotes; what is filled in is a word."""
    for room in ("starter", "policy", "workflows", "activities", "workers", "demo"):
        for file in sorted((ROOT / room).rglob("*.py")):
            source = file.read_text(encoding="utf-8")
            if "`nodewarden" not in source:
                continue
            for node in ast.walk(ast.parse(source)):
                text = ""
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    text = node.value
                elif isinstance(node, ast.JoinedStr):
                    text = "".join(str(each.value) if isinstance(each, ast.Constant) else "NODE" for each in node.values)
                for command in re.findall(r"`(nodewarden [a-z-][^`]+)`", text):
                    yield Line(page=str(file.relative_to(ROOT)), line=node.lineno, text=command, whole=False)


# Read by the test and not beside it: what is read beside it is read in each process of the tests.
@pytest.mark.parametrize(
    ("lines", "some"),
    [
        (
            lambda: lines_of("nodewarden"),
            {"docs/use.md", "docs/fencing.md", "docs/migrate.md", "docs/runbooks/needs-a-person.md"},
        ),
        (advised_by_the_product, {"policy/episode/advice.py", "starter/doctor.py"}),
    ],
    ids=["pages", "product"],
)
def test_every_command_line_is_understood(lines: Callable[[], Iterable[Line]], some: set[str]) -> None:
    """The command exists and takes these options; a line in a block has all its arguments, too."""
    found = {str(line): line for line in lines()}
    assert len(found) > 40
    assert some <= {line.page for line in found.values()}
    wrong = dict[str, str]()
    for each, line in found.items():
        try:
            understood(line)
        except (AssertionError, TyperException) as error:
            wrong[each] = str(error)
    assert wrong == {}


@pytest.mark.parametrize("way", ways("node-7", dict.fromkeys(Verb, ""), 3), ids=lambda way: way.verb.value)
def test_what_an_episode_offers_has_all_that_its_command_asks_for(way: AcceptedCommand) -> None:
    """S44: it is copied as it stands."""
    if way.verb not in {
        Verb.FENCE,
        Verb.REMEDIATE,
        Verb.STOP_SCAN,
        Verb.PAUSE,
        Verb.UNPAUSE,
        Verb.SET_MODE,
    }:  # said to no episode
        understood(Line(page="policy/episode/advice.py", line=0, text=way.command, whole=True))


@pytest.mark.parametrize(
    "text",
    [
        "nodewarden fense node-7",
        "nodewarden hold node-7 --fore 2h",
        "nodewarden deploy",
        "nodewarden abort",
        "nodewarden resume node-7",
        "nodewarden return-path node-7 --question 3",
        "nodewarden scan begin",
    ],
)
def test_a_line_that_is_wrong_is_found(text: str) -> None:
    with pytest.raises((AssertionError, TyperException)):
        understood(Line(page="", line=0, text=text, whole=True))


def test_every_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for line in lines_of("make"):
        named = [word for word in words_of(line.text) if re.fullmatch(r"[a-z-]+", word)]
        assert set(named) <= targets, line


def test_every_file_that_kubectl_is_given_exists() -> None:
    given = {(line, file) for line in lines_of("kubectl") for file in re.findall(r"-f ((?:deploy|simulator)/\S+)", line.text)}
    assert given
    assert [str(line) for line, file in given if not (ROOT / file).exists()] == []


# Blocks of commands that need nothing but this machine are run as they stand, and say what the page shows below them.
#
# A block of YAML with a title (`yaml title="nodes.yaml"`) is a file that the commands find.

HERE = "tests/docs/test_commands.py::test_the_example_is_run_as_it_stands"
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
