"""docs/conformance.md names no test that is not there, and leaves no promise without a test or a reason.

Whether a test shows what its row says, nobody can check but a reader. The modules are parsed and not imported: a name is looked
for where it stands, in its class if it has one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "conformance.md"
DOCUMENTS = (
    "OpenShift machine health checking enhancement",
    'Gardener "Preservation of Machines"',
    "Kubernetes node fencing proposal",
    'Cluster API book "Configure a MachineHealthCheck"',
    "Node health check enhancement",
    "The fixed frame",
    "Who is believed",
)
HOW_TO_READ = "How to read it"
UNFINISHED = "Remediation in full"
SENTENCE = "not done yet: remediation in full"
MARKER = "not done, because issue 6 is under way"

NAMED = re.compile(r"`(?P<file>tests/[\w/]+\.py)::(?P<name>\w+(?:::\w+)*)(?P<case>\[[^`]+\])?`")
REASON = re.compile(r"not done, because \S.{8,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One promise. `table`: the heading above it."""

    section: str
    table: str
    number: str
    promise: str
    where: str
    what: str
    test: str


@cache
def sections() -> dict[str, str]:
    """The text below each heading of the second level."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@cache
def rows() -> tuple[Row, ...]:
    return tuple(row for section, text in sections().items() if section != HOW_TO_READ for row in _rows_of(section, text))


def _rows_of(section: str, text: str) -> Iterator[Row]:
    table = ""
    for line in text.splitlines():
        if line.startswith("### "):
            table = line.removeprefix("### ")
        elif line.startswith("| ") and not line.startswith("| |"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == 5, f"{section}: expected five cells: {line}"
            yield Row(
                section=section, table=table, **dict(zip(("number", "promise", "where", "what", "test"), cells, strict=True))
            )


def without_its_tests(cell: str) -> str:
    """What is left in a cell once the names of tests and the commas between them are taken out."""
    return NAMED.sub("", cell).replace(",", "").strip()


@cache
def named_in(file: str) -> dict[str, bool]:
    """Each test of a module by its name as pytest has it, and whether it has cases."""
    return dict(_named_in(ast.parse((ROOT / file).read_text(encoding="utf-8")).body))


def _named_in(body: list[ast.stmt], classes: str = "") -> Iterator[tuple[str, bool]]:
    for each in body:
        if isinstance(each, ast.ClassDef) and each.name.startswith("Test"):
            yield from _named_in(each.body, f"{classes}{each.name}::")
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
            yield f"{classes}{each.name}", bool(each.decorator_list)


def test_each_document_has_a_section_with_as_many_promises_as_it_says() -> None:
    """A row that is lost in an edit is missed."""
    assert list(sections()) == [HOW_TO_READ, *DOCUMENTS]
    for document in DOCUMENTS:
        told = re.match(r"\s*(\d+) promises\b", sections()[document])
        assert told is not None, f"{document}: expected the number of its promises first"
        found = [row for row in rows() if row.section == document]
        assert len(found) >= int(told[1]) > 0, f"{document}: {len(found)} rows"


def test_rows_are_numbered_through() -> None:
    """Each number is cited by somebody."""
    for document in DOCUMENTS:
        numbers = [row.number for row in rows() if row.section == document]
        letter = numbers[0][0]
        assert numbers == [f"{letter}{number}" for number in range(1, len(numbers) + 1)], document
    assert len({row.number for row in rows()}) == len(rows())


def test_every_test_that_is_named_exists() -> None:
    named = [(row.number, found) for row in rows() for found in NAMED.finditer(row.test)]
    assert named
    missing = []
    for number, found in named:
        tests = named_in(found["file"]) if (ROOT / found["file"]).is_file() else {}
        if not tests.get(found["name"], False) if found["case"] else found["name"] not in tests:
            missing.append(f"{number}: {found[0]}")
    assert missing == []


def test_no_row_is_without_a_test_or_a_reason() -> None:
    """Nothing stands in its last cell but names of tests, or the reason why there are none."""
    wanting = []
    for row in rows():
        tested = bool(row.test) and without_its_tests(row.test) == ""
        if not (tested or REASON.fullmatch(row.test)):
            wanting.append(f"{row.number}: {row.test!r}")
    assert wanting == []


def test_every_row_says_what_was_promised_where_and_what_becomes_of_it() -> None:
    assert [row.number for row in rows() if not (row.promise and row.where and row.what)] == []


def test_what_is_under_way_stands_where_it_is_looked_for() -> None:
    """In the tables of that name alone, and never half closed: both the sentence and the marker, or neither."""
    for row in rows():
        assert (SENTENCE in row.what) is (row.test == MARKER), row.number
        assert row.test != MARKER or row.table == UNFINISHED, row.number


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", PAGE.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


@pytest.mark.parametrize(
    "cell", ["", "`tests/test_conformance.py`", "`tests/x.py::test_y` perhaps", "tests/x.py::test_y", "see above"]
)
def test_a_cell_without_the_name_of_a_test_is_noticed(cell: str) -> None:
    """The test above can fail."""
    assert not cell or without_its_tests(cell) != ""
    assert REASON.fullmatch(cell) is None


def test_tests_in_classes_and_with_cases_are_found() -> None:
    """And a name that stands in another class is not."""
    found = named_in("tests/cluster/acts/test_last_look.py")
    assert "TestDoubt::test_a_read_that_hangs_licenses_nothing" in found
    assert not {"test_a_read_that_hangs_licenses_nothing", "TestVetoes::test_a_read_that_hangs_licenses_nothing"} & found.keys()
    assert named_in("tests/test_conformance.py")["test_a_cell_without_the_name_of_a_test_is_noticed"]
