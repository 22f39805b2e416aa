"""docs/safety.md lists the safety rules: every number that is cited is defined there, and every rule has a place and tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "safety.md"
PRODUCT = ("policy", "workflows", "activities", "workers", "starter")
CITED = re.compile(r"\bS([1-9]\d?)\b")
RULE = re.compile(r"^### S(\d+) (.+)$", re.MULTILINE)
HELD = re.compile(r"^Held in: `([^`]+)` · Tests: (.+)$", re.MULTILINE)
NO_RULES = {"tests/vectors"}
"""Folders where S and a number is something else: the names of cases that other systems' tests have."""


def _rules() -> dict[int, str]:
    """The text of each rule by its number."""
    parts = RULE.split(PAGE.read_text())[1:]
    numbers = [int(number) for number in parts[::3]]
    assert len(set(numbers)) == len(numbers), "a number is defined twice"
    return dict(zip(numbers, parts[2::3], strict=True))


@cache
def _text(path: str) -> str:
    return (ROOT / path).read_text()


@cache
def _functions(path: str) -> dict[str, str]:
    """The text of each function and class of a file, and the file's docstring under ""."""
    lines, module = _text(path).splitlines(), ast.parse(_text(path))
    named = [each for each in ast.walk(module) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    return {each.name: "\n".join(lines[each.lineno - 1 : each.end_lineno]) for each in named} | {
        "": ast.get_docstring(module) or ""
    }


def _cites(text: str, number: int) -> bool:
    """Also as the name of a test: `test_s22_...`."""
    return number in {int(found) for found in CITED.findall(text)} or f"test_s{number}_" in text


def test_the_numbers_have_no_gap() -> None:
    assert list(_rules()) == list(range(1, len(_rules()) + 1))


def test_every_number_that_is_cited_is_defined() -> None:
    defined, unknown = set(_rules()), dict[str, set[int]]()
    for folder in (*PRODUCT, "docs", "tests", "deploy", "demo"):
        for path in (ROOT / folder).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in {".py", ".md", ".yaml"} or any(name.startswith(each) for each in NO_RULES):
                continue
            missing = {int(number) for number in re.findall(r"(?<![\w/.-])S([1-9]\d?)(?![\w/-]|\.\d)", _text(name))} - defined
            if missing:
                unknown[name] = missing
    assert unknown == {}


@pytest.mark.parametrize("number", sorted(_rules()))
def test_a_rule_is_held_where_the_page_says_and_its_tests_name_it(number: int) -> None:
    found = HELD.search(_rules()[number])
    assert found is not None, "expected a line 'Held in: `file` · Tests: `test`, `test`'"
    assert found[1].startswith(PRODUCT), "a place in product code"
    assert _cites(_text(found[1]), number), f"{found[1]} does not cite S{number}"
    tests = re.findall(r"`([^`]+)`", found[2])
    assert len(tests) >= 2
    for test in tests:
        path, _, function = test.partition("::")
        assert path.startswith("tests/"), path
        text = _text(path)
        if function:
            assert function in _functions(path), f"{test} does not exist"
            text = f"{_functions(path)[function]}\n{_functions(path)['']}"
        assert _cites(text, number), f"{test} does not name S{number}"
