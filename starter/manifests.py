"""Kubernetes objects from files: what `kubectl get … -o yaml`, a must-gather or a hand-written manifest holds.

YAML and JSON, several documents and Lists. Files come from anywhere, so nothing here trusts them: nesting and aliases are bounded
before anything is built (the C parser would overflow its stack on the one and memory on the other), and whatever can't be read
is one error that names file and line. What the objects mean is `activities/cluster/offline.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

STANDARD_INPUT = "-"
SUFFIXES = frozenset({".yaml", ".yml", ".json"})

DEEPEST = 100
"""Of mappings and lists inside each other; Kubernetes' own objects stay below 30."""

LARGEST_EXPANSION = 1_000_000
"""Of values in one file once every alias has been replaced by what it stands for."""

LONGEST_PROBLEM = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One object with the place it was read from, for messages."""

    document: dict[str, Any]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A file, or a part of one, that is no Kubernetes object."""

    source: str
    problem: str


class _Loader(yaml.CSafeLoader):
    """Moments stay the text that the API writes: PyYAML would make dates of those that nobody quoted."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_files(paths: Iterable[str]) -> Iterator[Manifest | Unreadable]:
    """Every object in these files; `-` is standard input, a directory stands for all YAML and JSON files below it."""
    for path in paths:
        if path == STANDARD_INPUT:
            yield from read_text(sys.stdin.read(), "standard input")
            continue
        place = Path(path)
        files = sorted(each for each in place.rglob("*") if each.suffix in SUFFIXES) if place.is_dir() else [place]
        if not files:
            yield Unreadable(source=path, problem="expected YAML or JSON files in this directory, found none")
        for file in files:
            try:
                text = file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                yield Unreadable(source=str(file), problem=f"expected a readable text file: {problem[:LONGEST_PROBLEM]}")
                continue
            yield from read_text(text, str(file))


def read_text(text: str, source: str) -> Iterator[Manifest | Unreadable]:
    """Every object in a text. What comes before a mistake is used; what comes after it is not."""
    if text.lstrip()[:1] in {"{", "["}:
        try:
            yield from _objects(orjson.loads(text), source)
        except orjson.JSONDecodeError as error:
            if text.lstrip().startswith("["):
                yield Unreadable(source=f"{source}, line {error.lineno}", problem=f"expected JSON: {error.msg}")
                return
        else:
            return
    try:
        _bounded(text)
        for document in yaml.load_all(text, Loader=_Loader):
            if document is not None:
                yield from _objects(document, source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark is not None else ""
        yield Unreadable(source=f"{source}{line}", problem=f"expected YAML: {(error.problem or '')[:LONGEST_PROBLEM]}")
    except _RefusedError as error:
        yield Unreadable(source=f"{source}, line {error.line}", problem=str(error))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        yield Unreadable(source=source, problem=f"expected YAML: {str(error).splitlines()[0][:LONGEST_PROBLEM]}")


def _objects(document: Any, source: str) -> Iterator[Manifest | Unreadable]:
    if isinstance(document, list):
        for each in document:
            yield from _objects(each, source)
        return
    if not isinstance(document, dict):
        yield Unreadable(source=source, problem=f"expected a Kubernetes object, got {str(document)[:80]!r}")
        return
    kind, items = document.get("kind"), document.get("items")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(items, list):
        # The items of a typed list (NodeList) do not repeat what they are.
        implied = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
        for item in items:
            if isinstance(item, dict):
                yield from _objects({**implied, **item}, source)
            else:
                yield from _objects(item, source)
        return
    if not isinstance(kind, str) or not isinstance(document.get("apiVersion"), str):
        yield Unreadable(source=source, problem="expected a Kubernetes object with apiVersion and kind")
        return
    yield Manifest(document=document, source=source)


class _RefusedError(ValueError):
    """What the parser would take, and we do not."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


def _refused(problem: str, event: yaml.Event) -> _RefusedError:
    return _RefusedError(problem, event.start_mark.line + 1 if event.start_mark is not None else 1)


def _bounded(text: str) -> None:
    """Refuse what would break the loader: too deep, or too large once expanded. One pass over the parser's events."""
    sizes: list[int] = []
    anchors: dict[str, int] = {}
    opened: list[str | None] = []
    total = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        size = 0
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise _refused(f"the alias {event.anchor!r} stands for itself", event)
            size = anchors[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            size = 1
            if event.anchor:
                anchors[event.anchor] = 1
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(sizes) >= DEEPEST:
                raise _refused(f"nested more than {DEEPEST} levels deep", event)
            sizes.append(1)
            opened.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            size = sizes.pop()
            if (anchor := opened.pop()) is not None:
                anchors[anchor] = size
        if sizes:
            sizes[-1] += size
            total = sizes[-1]
        if max(total, size) > LARGEST_EXPANSION and anchors:
            problem = f"its aliases expand to more than {LARGEST_EXPANSION} values"
            raise _refused(problem, event)
