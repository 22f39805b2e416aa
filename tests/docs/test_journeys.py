"""The four journeys of docs/architecture.md are ways that one can walk: each step exists, and an earlier one leads to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from tests.docs.reading import ROOT, pages

AIMS = {"Fencing opens": 20, "first off is licensed": 20, "An off by IPMI": 18, "`nodewarden explain NODE`": 20}
"""Files at most, by what the heading of a journey says."""

HEADING = re.compile(r"^### (?P<title>.+): (?P<files>\d+) files$", re.MULTILINE)
STEP = re.compile(
    r"^(?P<number>\d+)\. `(?P<file>[\w/]+\.py)::(?P<name>\w+)`(?: as `(?P<reached>[\w.]+)`)?(?P<rest>.*)$", re.MULTILINE
)
NAME = re.compile(r"`(?P<name>\w+)`")


@dataclass(frozen=True, slots=True)
class Step:
    """number: as it is written. reached: the name by which the caller reaches it. also: other functions of that file."""

    number: int
    file: str
    name: str
    reached: str
    also: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.number}. {self.file}::{self.name}"


@dataclass(frozen=True, slots=True)
class Journey:
    """stated: how many files its heading says."""

    title: str
    stated: int
    steps: tuple[Step, ...]


def _journeys() -> list[Journey]:
    whole = pages()["docs/architecture.md"]
    section = whole.partition("\n## Four journeys\n")[2].partition("\n## ")[0]
    found, headings = [], list(HEADING.finditer(section))
    for heading, end in zip(headings, [*(each.start() for each in headings[1:]), len(section)], strict=True):
        steps = []
        for each in STEP.finditer(section, heading.end(), end):
            brackets = re.search(r"\((.*)\)", each["rest"])
            also = tuple(NAME.findall(brackets[1])) if brackets else ()
            steps.append(Step(int(each["number"]), each["file"], each["name"], each["reached"] or each["name"], also))
        found.append(Journey(heading["title"], int(heading["files"]), tuple(steps)))
    return found


JOURNEYS = _journeys()


@cache
def _defined(file: str) -> set[str]:
    """The names of all functions and classes of a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}


@cache
def _identifiers(file: str) -> frozenset[str]:
    """The names that the code of a file uses, its docstrings and comments aside."""
    return frozenset(_used(file))


def _used(file: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def _mentions(file: str, name: str) -> bool:
    """A name with a dot, of a member or of a file that is started by its path, is looked for as it is written."""
    return name in (ROOT / file).read_text(encoding="utf-8") if "." in name else name in _identifiers(file)


def test_all_four_are_there() -> None:
    assert [sum(aim in each.title for aim in AIMS) for each in JOURNEYS] == [1, 1, 1, 1]
    for journey in JOURNEYS:
        assert [step.number for step in journey.steps] == list(range(1, len(journey.steps) + 1)), journey.title


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.title)
def test_each_step_exists(journey: Journey) -> None:
    missing = [
        f"{step}: no {name}"
        for step in journey.steps
        for name in (step.name, *step.also)
        if not (ROOT / step.file).is_file() or name not in _defined(step.file)
    ]
    assert missing == []


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.title)
def test_an_earlier_step_leads_to_each(journey: Journey) -> None:
    """Its name stands in an earlier file. A name that only leads to it stands in its own file, too."""
    astray = []
    for index, step in enumerate(journey.steps[1:], start=1):
        before = [each.file for each in journey.steps[:index]]
        led = any(_mentions(file, step.reached) for file in before)
        if not led or (step.reached != step.name and not _mentions(step.file, step.reached)):
            astray.append(f"{step}, as {step.reached}")
    assert astray == []


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.title)
def test_it_is_as_long_as_it_says(journey: Journey) -> None:
    files = {step.file for step in journey.steps}
    assert len(files) == len(journey.steps) == journey.stated
    (aim,) = [aim for aim in AIMS if aim in journey.title]
    assert len(files) <= AIMS[aim]
