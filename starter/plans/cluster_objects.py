"""Kubernetes objects for people who ask: a cluster as its API shows it now, or files with what `kubectl get … -o yaml`, a
must-gather or a hand-written manifest holds. A scanner never works from this. Light on purpose: who judges files needs no client.

Files are YAML and JSON, several documents and Lists. They come from anywhere, so nothing here trusts them: nesting and aliases
are bounded before anything is built (the C parser would overflow its stack on the one and memory on the other), and whatever
can't be read is one error that names file and line. What the objects mean is `activities/cluster/watch/offline.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import yaml

from activities.cluster.watch.offline import ClusterSnapshot, ManifestMistake
from policy.checks.health_check import Overlap
from starter.errors import SilentError
from workers.errors import SettingsError

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection
    from workers.configuration.settings import Settings

STANDARD_INPUT = "-"
SUFFIXES = frozenset({".yaml", ".yml", ".json"})

DEEPEST = 100
"""Of mappings and lists inside each other; Kubernetes' own objects stay below 30."""

LARGEST_EXPANSION = 1_000_000
"""Of values in one document once every alias has been replaced by what it stands for; a text counts once more for each
`COUNTED_TEXT` characters."""
COUNTED_TEXT = 20

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
    """Moments stay the text that the API writes: PyYAML would make dates of those that are not quoted."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read_files(paths: Iterable[str], *, blocks: Collection[str] = ()) -> Iterator[Manifest | Unreadable]:
    """Every object in these files; `-` is standard input, a directory stands for all YAML and JSON files below it.

    blocks: names of settings that may stand alone, in a document that is no Kubernetes object.
    """
    for path in paths:
        if path == STANDARD_INPUT:
            yield from _read(sys.stdin.read, "standard input", blocks)
            continue
        place = Path(path)
        files = sorted(each for each in place.rglob("*") if each.suffix in SUFFIXES) if place.is_dir() else [place]
        if not files:
            yield Unreadable(source=path, problem="expected YAML or JSON files in this directory, found none")
        for file in files:
            yield from _read(partial(file.read_text, encoding="utf-8"), str(file), blocks)


def _read(reading: Callable[[], str], source: str, blocks: Collection[str]) -> Iterator[Manifest | Unreadable]:
    try:
        text = reading()
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        yield Unreadable(source=source, problem=f"expected a readable text file: {problem[:LONGEST_PROBLEM]}")
        return
    yield from read_text(text, source, blocks=blocks)


def read_text(text: str, source: str, *, blocks: Collection[str] = ()) -> Iterator[Manifest | Unreadable]:
    """Every object in a text. What comes before a mistake is used; what comes after it is not."""
    if text.lstrip()[:1] in {"{", "["}:
        try:
            yield from _objects(orjson.loads(text), source, blocks)
        except orjson.JSONDecodeError as error:
            if text.lstrip().startswith("["):
                yield Unreadable(source=f"{source}, line {error.lineno}", problem=f"expected JSON: {error.msg}")
                return
        else:
            return
    sound, mistake = _looked_through(text, source)
    try:
        for document in islice(yaml.load_all(text, Loader=_Loader), sound):
            if document is not None:
                yield from _objects(document, source, blocks)
    except yaml.YAMLError as error:
        mistake = _malformed(error, source)
    except (ValueError, KeyError, IndexError, AttributeError, TypeError, RecursionError) as error:
        # What PyYAML's constructors raise for a value that is not what its tag says.
        mistake = Unreadable(source=source, problem=f"expected YAML: {str(error)[:LONGEST_PROBLEM] or type(error).__name__}")
    if mistake is not None:
        yield mistake


def _malformed(error: yaml.YAMLError, source: str) -> Unreadable:
    if not isinstance(error, yaml.MarkedYAMLError):
        return Unreadable(source=source, problem=f"expected YAML: {str(error).splitlines()[0][:LONGEST_PROBLEM]}")
    mark = error.problem_mark or error.context_mark
    line = f", line {mark.line + 1}" if mark is not None else ""
    return Unreadable(source=f"{source}{line}", problem=f"expected YAML: {(error.problem or '')[:LONGEST_PROBLEM]}")


def _objects(document: Any, source: str, blocks: Collection[str]) -> Iterator[Manifest | Unreadable]:
    """The objects in a document, lists of lists included, in their order."""
    waiting: list[tuple[Any, dict[str, Any]]] = [(document, {})]
    while waiting:
        found, implied = waiting.pop()
        if isinstance(found, list):
            waiting += [(each, {}) for each in reversed(found)]
            continue
        if not isinstance(found, dict):
            yield Unreadable(source=source, problem=f"expected a Kubernetes object, got {str(found)[:80]!r}")
            continue
        whole = {**implied, **found}
        kind, items = whole.get("kind"), whole.get("items")
        if isinstance(kind, str) and kind.endswith("List") and "items" in whole and (items is None or isinstance(items, list)):
            # The items of a typed list (NodeList) do not repeat what they are.
            mine = {"apiVersion": whole.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
            waiting += [(item, mine) for item in reversed(items or [])]
        elif kind is None and whole and whole.keys() <= set(blocks):
            yield Manifest(document=whole, source=source)
        elif not isinstance(kind, str) or not isinstance(whole.get("apiVersion"), str):
            yield Unreadable(source=source, problem="expected a Kubernetes object with apiVersion and kind")
        else:
            yield Manifest(document=whole, source=source)


def _looked_through(text: str, source: str) -> tuple[int, Unreadable | None]:
    """How many documents are sound, and what is wrong with the one after them: malformed, too deep, or too large once expanded.

    One pass over the parser's events, before anything is built.
    """
    sizes: list[int] = []
    anchors: dict[str, int] = {}
    opened: list[str | None] = []
    documents = 0
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            size = 0
            if isinstance(event, yaml.DocumentEndEvent):
                documents += 1
                anchors.clear()
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in anchors:
                    itself = "itself" if event.anchor in opened else "nothing"
                    return documents, _refused(f"the alias {event.anchor!r} stands for {itself}", event, source)
                size = anchors[event.anchor]
            elif isinstance(event, yaml.ScalarEvent):
                size = 1 + len(event.value) // COUNTED_TEXT
                if event.anchor:
                    anchors[event.anchor] = size
            elif isinstance(event, yaml.CollectionStartEvent):
                if len(sizes) >= DEEPEST:
                    return documents, _refused(f"nested more than {DEEPEST} levels deep", event, source)
                sizes.append(1)
                opened.append(event.anchor)
            elif isinstance(event, yaml.CollectionEndEvent):
                size = sizes.pop()
                if (anchor := opened.pop()) is not None:
                    anchors[anchor] = size
            if sizes:
                sizes[-1] += size
            if anchors and max(size, sizes[-1] if sizes else 0) > LARGEST_EXPANSION:
                return documents, _refused(f"its aliases expand to more than {LARGEST_EXPANSION} values", event, source)
    except yaml.YAMLError as error:
        return documents, _malformed(error, source)
    return documents, None


def _refused(problem: str, event: yaml.Event, source: str) -> Unreadable:
    line = event.start_mark.line + 1 if event.start_mark is not None else 1
    return Unreadable(source=f"{source}, line {line}", problem=problem)


async def read_live(
    settings: Settings, connection: ClusterConnection, machines: ClusterConnection | None, *, leased: bool = True
) -> ClusterSnapshot:
    """The cluster as its API shows it now, judged by these settings; leased: see `take_snapshot`. Raises what the API refuses."""
    from activities.cluster.watch.snapshot import take_snapshot

    return await take_snapshot(
        connection,
        machines=machines,
        overlap=settings.scan.overlap,
        takeover=settings.scan.takeover,
        source=settings.policy_source(),
        retries=settings.remediation.retries(),
        leased=leased,
        remediators=settings.remediation.known_remediators(),
    )


async def read_named(settings: Settings, name: str) -> ClusterSnapshot:
    """The same of a cluster that the settings name, by the rights of this process. Raises SilentError where it can't be read."""
    from temporalio.exceptions import ApplicationError

    from activities.errors import ErrorType
    from workers.configuration.clusters import open_cluster

    try:
        async with open_cluster(name, settings.connections()[name]) as (connection, machines):
            return await read_live(settings, connection, machines)
    except (KeyError, SettingsError, ApplicationError) as error:
        said = error.message if isinstance(error, ApplicationError) else str(error)
        if isinstance(error, ApplicationError) and error.type == ErrorType.FORBIDDEN:
            # The rest is the server's own sentence, with the name of our account in it.
            what, why = (*said.split(": ", 2), "")[:2]
            read_by = "`nodewarden explain NODE` reads them with your own rights"
            raise SilentError(f"the objects of the cluster {name} are not read here ({what}: {why}): {read_by}") from error
        raise SilentError(f"the objects of the cluster {name} can't be read from here: {said}") from error


def cluster_from_files(files: list[str] | None, now: datetime, *, overlap: Overlap) -> ClusterSnapshot:
    """The cluster that the files describe, mistakes and all. Raises SettingsError where no file is named."""
    if not files:
        raise SettingsError("-f: expected a file with Kubernetes objects, got nothing")
    cluster = ClusterSnapshot(now, overlap=overlap)
    for found in read_files(files):
        if isinstance(found, Unreadable):
            cluster.mistakes.append(ManifestMistake(source=found.source, message=found.problem))
        else:
            cluster.put(found.document, found.source)
    cluster.finish()
    return cluster
