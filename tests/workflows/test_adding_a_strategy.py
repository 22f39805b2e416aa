"""docs/adding-a-strategy.md is followed to the letter, in a copy of the repository, and what it adds is tested there.

The page's strategy is none of the product's. Whatever the page names must be there: files, names, and each line that it says a
change stands beside.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from policy.remediation.strategy_rules import Strategy

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding-a-strategy.md").read_text(encoding="utf-8")
NEW = "ask-technician"
LEFT_OUT = shutil.ignore_patterns(".*", "histories", "state", "dist")
FEW = {"NODEWARDEN_TEST_EPISODES": "12"}
RUN = (
    "tests/workflows/test_remediation_technician.py",
    "tests/cluster/acts/test_asking_others.py",
    "tests/policy/remediation/test_ladder.py",
    "tests/starter/test_docs_remediation.py",
    "tests/starter/test_offline_commands.py::test_remediate_plan_tells_what_a_person_and_what_the_scanner_would_do",
    "tests/workflows/test_fencing_properties.py::test_whatever_happens_the_rules_hold_and_every_episode_ends",
)


@dataclass(frozen=True, slots=True)
class Block:
    """One of the page: a change of a file, or a new one."""

    language: str
    file: str
    text: str

    def applied(self, before: str) -> str:
        """The file with the change. Each part of it names lines that there are, once."""
        for part in self.text.split("@@\n"):
            lines = part.splitlines()
            there, wanted = [line[1:] for line in lines if line[:1] != "+"], [line[1:] for line in lines]
            found, put = "\n".join(there) + "\n", "\n".join(wanted) + "\n"
            count = before.count(found)
            assert count == 1, f"{self.file}: expected these lines once, found them {count} times:\n{found}"
            before = before.replace(found, put)
        return before


BLOCKS = [Block(*found) for found in re.findall(r'^```(\w+) title="(\S+)"\n(.*?)^```$', PAGE, flags=re.MULTILINE | re.DOTALL)]
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)


def named() -> Iterator[str]:
    """What the page's sentences have between backticks."""
    yield from re.findall(r"`([^`\n]+)`", PROSE)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository, after all that the page says was done."""
    tree = tmp_path_factory.mktemp("adding") / "tree"
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
    shutil.copy(ROOT / ".importlinter", tree)
    for block in BLOCKS:
        path = tree / block.file
        if block.language == "diff":
            path.write_text(block.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            assert not path.exists(), f"{block.file} is no new file"
            path.write_text(block.text, encoding="utf-8")
    return tree


def run(tree: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=250, check=False, env=os.environ | FEW)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_the_strategy_of_the_page_is_none_of_the_product() -> None:
    assert NEW not in set(Strategy)


def test_the_page_shows_each_place_in_a_block() -> None:
    fenced = re.findall(r"^```(.*)$", PAGE, flags=re.MULTILINE)
    assert len(fenced) == 2 * len(BLOCKS)
    assert len({block.file for block in BLOCKS}) == len(BLOCKS)


@pytest.mark.timeout(270)
def test_a_ladder_with_the_strategy_of_the_page_is_played(copy: Path) -> None:
    """Its own tests, those of the tables that it must be in, and a few episodes against the adversary."""
    run(copy, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *RUN)


def test_the_code_of_the_page_is_in_the_style_of_the_house(copy: Path) -> None:
    touched = [block.file for block in BLOCKS if block.file.endswith(".py")]
    ruff = str(Path(sys.executable).with_name("ruff"))
    run(copy, ruff, "check", "--no-cache", *touched)
    run(copy, ruff, "format", "--no-cache", "--check", *touched)


def test_each_file_that_the_page_names_is_there(copy: Path) -> None:
    files = {each for each in named() if "/" in each and not each.startswith("nodewarden.io/")}
    links = set(re.findall(r"\]\(([^)#]+)\)", PROSE))
    assert len(files) > 10
    assert [file for file in sorted(files) if not (copy / file).exists()] == []
    assert [link for link in sorted(links) if not (copy / "docs" / link).exists()] == []


def test_each_name_that_the_page_uses_is_there() -> None:
    """Before it is followed, in a file that it names."""
    files = {each for each in (*named(), *(block.file for block in BLOCKS)) if (ROOT / each).is_file()}
    files.remove(str(Path(__file__).relative_to(ROOT)))
    text = "\n".join((ROOT / file).read_text(encoding="utf-8") for file in files if file.endswith(".py"))
    names = {each for each in named() if re.fullmatch(r"[\w.]+", each)}
    assert {"LadderStep", "RULES", "STEPS", "begins_anew"} <= names
    assert [name for name in sorted(names) if not re.search(rf"\b{name.rpartition('.')[2]}\b", text)] == []


def test_its_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"`make ([a-z-]+)`", PROSE)
    assert targets
    assert [target for target in targets if f"\n{target}:" not in makefile] == []
