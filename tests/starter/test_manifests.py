"""Files from anywhere: what is read out of them, and that whatever can't be read is one error with file and line."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from policy.checks.health_check import Overlap
from starter.plans.cluster_objects import (
    DEEPEST,
    LARGEST_EXPANSION,
    Manifest,
    Unreadable,
    cluster_from_files,
    read_files,
    read_text,
)

NODE = "apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n"
LONGEST_MESSAGE = 500


def node(name: str) -> str:
    return NODE.format(name=name)


def read(text: str) -> list[Manifest | Unreadable]:
    return list(read_text(text, "cluster.yaml"))


def names(found: list[Manifest | Unreadable]) -> list[str]:
    """Of objects their names, of what can't be read where it was."""
    return [each.document["metadata"]["name"] if isinstance(each, Manifest) else each.source for each in found]


def only_problem(text: str) -> Unreadable:
    (found,) = read(text)
    assert isinstance(found, Unreadable)
    assert len(found.problem) < LONGEST_MESSAGE
    return found


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n\n", "# nothing here\n", "---\n---\n", "null\n", "%YAML 1.1\n---\n"),
        '{"apiVersion": "v1", "kind": "List", "items": []}',
        '{"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": null}',  # as programs in Go write an empty one
    ],
)
def test_a_file_without_objects_is_no_mistake(text: str) -> None:
    assert read(text) == []


def test_every_document_of_a_file_is_read_in_order() -> None:
    found = read(f"{node('a')}---\n{node('b')}---\n# empty\n---\n{node('c')}...\n")
    assert names(found) == ["a", "b", "c"]
    assert {each.source for each in found} == {"cluster.yaml"}


LISTED = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}} for name in ("a", "b")]
A_LIST = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": LISTED}


@pytest.mark.parametrize(
    "document",
    [
        A_LIST,
        LISTED,
        {"apiVersion": "v1", "kind": "List", "items": [A_LIST]},
        [[LISTED[0]], {"apiVersion": "v1", "kind": "List", "items": [[LISTED[1]]]}],
        {"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": name}} for name in ("a", "b")]},
    ],
    ids=["List", "array", "List in a List", "array in an array", "typed list"],
)
@pytest.mark.parametrize("spelled", ["json", "indented json", "yaml"])
def test_lists_of_every_kind_are_taken_apart(document: Any, spelled: str) -> None:
    text = json.dumps(document, indent=None if spelled == "json" else 2)
    found = read(f"---\n{text}\n" if spelled == "yaml" else text)
    assert names(found) == ["a", "b"]
    assert [each.document["kind"] for each in found if isinstance(each, Manifest)] == ["Node", "Node"]
    assert [each.document["apiVersion"] for each in found if isinstance(each, Manifest)] == ["v1", "v1"]


def test_unquoted_moments_stay_the_text_that_was_written() -> None:
    (found,) = read(
        f"{node('a')}  creationTimestamp: 2026-11-21T09:30:00Z\n  day: 2026-11-21\n  old: 2001-12-14t21:59:43.10-05:00\n"
    )
    assert isinstance(found, Manifest)
    metadata = found.document["metadata"]
    assert metadata["creationTimestamp"] == "2026-11-21T09:30:00Z"
    assert (metadata["day"], metadata["old"]) == ("2026-11-21", "2001-12-14t21:59:43.10-05:00")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"\ufeff{NODE}", "a"),
        (NODE.replace("\n", "\r\n"), "a"),
        ('\ufeff{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "{name}"}}', "a"),
        ('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "{name}"},}', "a"),
        ("{apiVersion: v1, kind: Node, metadata: {name: '{name}'}}", "a"),
        ("apiVersion: v1\nkind: Node\nmetadata: &m {name: '{name}'}\nother: *m\n", "a"),
        ("base: &b {apiVersion: v1}\n<<: *b\nkind: Node\nmetadata: {name: '{name}'}\n", "a"),
    ],
    ids=["byte order mark", "CR LF", "mark and JSON", "JSON with a comma too many", "flow", "alias", "merge"],
)
def test_unusual_spellings_are_read(text: str, name: str) -> None:
    assert names(read(text.replace("{name}", name))) == [name]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hello\n", "expected a Kubernetes object, got 'hello'"),
        ("7\n", "expected a Kubernetes object, got '7'"),
        ("- 7\n", "expected a Kubernetes object, got '7'"),
        ("[7]", "expected a Kubernetes object, got '7'"),
        ('{"a": 1}', "expected a Kubernetes object with apiVersion and kind"),
        ("kind: Node\n", "expected a Kubernetes object with apiVersion and kind"),
        ("apiVersion: v1\n", "expected a Kubernetes object with apiVersion and kind"),
        ("apiVersion: 1\nkind: Node\n", "expected a Kubernetes object with apiVersion and kind"),
        ("apiVersion: v1\nkind: [Node]\n", "expected a Kubernetes object with apiVersion and kind"),
        ("apiVersion: v1\nkind: List\nitems: [7]\n", "expected a Kubernetes object, got '7'"),
        ("apiVersion: v1\nkind: NodeList\nitems: [[a]]\n", "expected a Kubernetes object, got 'a'"),
    ],
)
def test_a_document_that_is_no_object_is_one_error(text: str, problem: str) -> None:
    found = only_problem(text)
    assert (found.source, found.problem) == ("cluster.yaml", problem)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\n c: 3\n", 3, "mapping values are not allowed"),
        ("a:\n  - b\n - c\n", 3, "did not find expected"),
        ("a:\n\tb: c\n", 2, "cannot start any token"),
        ("a: [1, 2\nb: 3\n", 2, "did not find expected ',' or ']'"),
        ("a: 'open\n", 2, "unexpected end of stream"),
        ("a: 1\nb: *nowhere\n", 2, "the alias 'nowhere' stands for nothing"),
        ("a: 1\nb: &x\n  c: *x\n", 3, "the alias 'x' stands for itself"),
        ("&x [*x]\n", 1, "the alias 'x' stands for itself"),
        ("a: 1\nb: !!python/object/apply:os.system [x]\n", 2, "could not determine a constructor"),
        ("a: 1\nb: !custom x\n", 2, "could not determine a constructor"),
        ("? {a: b}\n: c\n", 1, "unhashable key"),
        ("a: 1\n<<: 5\n", 2, "expected a mapping or list of mappings"),
        ("[\n1,\n2\n", 4, "expected JSON: "),
        ('{\n"a": 1\n"b": 2}', 3, "did not find expected ',' or '}'"),
    ],
)
def test_what_is_malformed_is_one_error_that_names_its_line(text: str, line: int, words: str) -> None:
    found = only_problem(text)
    assert found.source == f"cluster.yaml, line {line}"
    assert words in found.problem


@pytest.mark.parametrize("text", ["a: \0b\n", "a: \x07\n", f"a: {'9' * 5000}\n"])
def test_what_is_malformed_nowhere_in_particular_is_one_error(text: str) -> None:
    assert only_problem(text).problem.startswith("expected YAML: ")


@pytest.mark.parametrize(
    "mistake", ["a: 1\n b: 2\n", "a: 'open\n", "a: *nowhere\n", "a: !custom x\n", f"{'[' * (DEEPEST + 1)}\n"]
)
def test_what_comes_before_a_mistake_is_used(mistake: str) -> None:
    found = read(f"{node('a')}---\n{node('b')}---\n{mistake}---\n{node('c')}")
    assert [isinstance(each, Manifest) for each in found] == [True, True, False]
    assert names(found)[:2] == ["a", "b"]


def bomb(levels: int, width: int = 9) -> str:
    """Each level is the one before, `width` times over: a billion laughs at 9 levels of 9."""
    lines = [f"a0: &a0 [{', '.join(['lol'] * width)}]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, levels)]
    return "\n".join(lines)


def merged_bomb(levels: int, width: int = 9) -> str:
    """The same by merge keys."""
    lines = ["a0: &a0 {x: lol}"]
    lines += [
        f"a{level}: &a{level} {{y{level}: [{', '.join([f'*a{level - 1}'] * width)}], <<: *a0}}" for level in range(1, levels)
    ]
    return "\n".join(lines)


def long_bomb() -> str:
    """Few values, each of them long: 32 KB that became 1.5 GB."""
    few, many = (", ".join([name] * times) for name, times in (("*a", 100), ("*b", 500)))
    return f"a: &a {'x' * 30_000}\nb: &b [{few}]\nc: [{many}]"


@pytest.mark.parametrize("text", [bomb(9), bomb(40), bomb(30, width=2), merged_bomb(9), long_bomb()])
def test_a_bomb_of_aliases_is_refused_before_it_goes_off(text: str) -> None:
    found = only_problem(text)
    assert f"expand to more than {LARGEST_EXPANSION} values" in found.problem
    assert found.source.startswith("cluster.yaml, line ")


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{a: " * 100_000, '{"a":' * 100_000, "- " * 100_000, "[" * 100_000 + "]" * 100_000],
    ids=["flow lists", "flow mappings", "JSON objects", "block lists", "JSON lists"],
)
def test_nesting_without_end_is_refused_before_the_stack_is_used_up(text: str) -> None:
    found = only_problem(text)
    assert "deep" in found.problem or "depth" in found.problem
    assert found.source == "cluster.yaml, line 1"


@pytest.mark.parametrize("levels", [DEEPEST - 3, DEEPEST + 1])
def test_the_bound_of_nesting_is_where_it_says(levels: int) -> None:
    (found,) = read(f"{node('a')}deep: {'[' * levels}{']' * levels}\n")
    assert isinstance(found, Manifest) is (levels < DEEPEST)


def test_all_yaml_and_json_files_below_a_directory_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "b.yml").write_text(node("b"), encoding="utf-8")
    (tmp_path / "a.yaml").write_text(node("a"), encoding="utf-8")
    (tmp_path / "deeper" / "c.json").write_text(json.dumps(LISTED[0] | {"metadata": {"name": "c"}}), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("not: [for us", encoding="utf-8")
    found = list(read_files([str(tmp_path)]))
    assert names(found) == ["a", "b", "c"]
    assert [Path(each.source).name for each in found] == ["a.yaml", "b.yml", "c.json"]


def test_what_cannot_be_read_is_one_error_and_holds_up_no_other(tmp_path: Path) -> None:
    """A file that is missing, one that is a directory, and a directory without objects."""
    (tmp_path / "folder" / "folder.yaml").mkdir(parents=True)
    (tmp_path / "folder" / "a.yaml").write_text(node("a"), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    missing, folder, empty = (str(tmp_path / name) for name in ("missing.yaml", "folder", "empty"))
    first, *found = read_files([missing, folder, empty])
    assert first == Unreadable(source=missing, problem="expected a readable text file: No such file or directory")
    assert names(found) == ["a", f"{folder}/folder.yaml", empty]
    assert found[1:] == [
        Unreadable(source=f"{folder}/folder.yaml", problem="expected a readable text file: Is a directory"),
        Unreadable(source=empty, problem="expected YAML or JSON files in this directory, found none"),
    ]


@pytest.mark.parametrize("content", [b"a: \xff\xfe\n", "a: \u00e4\n".encode("latin-1"), node("a").encode("utf-16")])
def test_a_file_that_is_not_utf_8_is_one_error(content: bytes, tmp_path: Path) -> None:
    """A PowerShell's redirection writes UTF-16."""
    file = tmp_path / "a.yaml"
    file.write_bytes(content)
    (found,) = read_files([str(file)])
    assert isinstance(found, Unreadable)
    assert found.source == str(file)
    assert "'utf-8' codec can't decode byte" in found.problem


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(node("a")))
    (found,) = read_files(["-"])
    assert names([found]) == ["a"]
    assert found.source == "standard input"


@pytest.mark.parametrize("name", ["$(id)", "node 7", "--yes", "node-7;id"])
def test_s41_an_object_from_a_file_has_a_name_that_an_api_server_takes(name: str, tmp_path: Path) -> None:
    """A must-gather comes from anywhere, and what is said of a node holds commands with its name, to be copied."""
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))
    found = cluster_from_files([str(file)], datetime(2026, 11, 30, tzinfo=UTC), overlap=Overlap.STRICTEST)
    assert ([*found.ledger.known(found.now).nodes], len(found.mistakes)) == ([], 1)
    assert "metadata.name: expected a name as an API server takes it" in found.mistakes[0].message
