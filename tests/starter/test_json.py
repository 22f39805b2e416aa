"""Every answer for programs has one spelling, and the schema in docs says it, which `tests/docs/reference.py` makes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.episode.permits import HoldOff
from starter.client import Nodewarden
from starter.output.encoding import to_json
from tests.docs.answers import ANSWERS, schemas
from tests.documents import validate
from tests.starter.builders import NOW, episode, nodewarden, report, result, row, scanner, status
from tests.starter.conftest import SETTINGS
from tests.starter.test_offline_commands import files as files  # noqa: PLC0414 - a fixture

CAMEL = re.compile(r"[a-z][A-Za-z0-9]*")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def fields_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Every field in it, at any depth, with its value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner
            yield from fields_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from fields_of(inner)


def test_every_field_of_the_schema_is_camel_case() -> None:
    for name, definition in schemas()["$defs"].items():
        for field in definition.get("properties", {}):
            assert CAMEL.fullmatch(field), (name, field)
        assert set(definition.get("required", ())) == set(definition.get("properties", {})), name


@cache
def strict() -> Any:
    """The schema of all answers by their commands, by which nothing else may be there."""
    schema = schemas()
    for definition in schema["$defs"].values():
        if definition.get("type") == "object":
            definition["additionalProperties"] = False
    return {"properties": schema["commands"], "additionalProperties": False, "$defs": schema["$defs"]}


def conforms(command: str, document: Any) -> None:
    """It is what the schema says of that command, and nothing else."""
    validate({command: document}, strict())
    for name, value in fields_of(document):
        if isinstance(value, str) and MOMENT.match(value):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value), (name, value)


def test_a_full_status_is_as_the_schema_says() -> None:
    """Moments without fractions, durations as Kubernetes writes them."""
    moment = NOW + timedelta(microseconds=123456)
    seen = scanner(report(row("node-1"), at=moment), held_off=(HoldOff(node="node-4", reason="aborted", until=moment),))
    shown = status(scanner=seen, episodes=(episode(started=moment),), ended=(result(),), last=seen)
    document = json.loads(to_json(shown))
    conforms("status", document)
    assert document["scanner"]["heldOff"][0]["until"] == "2026-11-21T12:00:00Z"
    assert document["episodes"][0]["tryNumber"] == 1


@pytest.mark.parametrize("words", [("version",), ("history",)], ids=" ".join)
async def test_yaml_is_the_same_document(keyboard: Path, cluster: str, client: object, words: tuple[str, ...]) -> None:
    as_json, as_yaml = await nodewarden(*words, "-o", "json"), await nodewarden(*words, "-o", "yaml")
    assert as_yaml.exit_code == as_json.exit_code
    assert yaml.safe_load(as_yaml.stdout) == json.loads(as_json.stdout)
    assert not as_yaml.stdout.startswith("{")


async def test_a_status_in_yaml_is_a_document_for_each_cluster(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    await warden.start_scanner(cluster)
    result = await nodewarden("status", "-c", cluster, "-o", "yaml")
    (document,) = yaml.safe_load_all(result.stdout)
    conforms("status", document)
    assert result.stdout.startswith(f"---\ncluster: {cluster}\n")


PRINTED = {
    "status": "status",
    "scan status": "scan status",
    "history": "history",
    "history --at 00:00": "history --at",
    "record node-1": "record",
    "preserved": "preserved",
    "explain node-1": "explain",
    "fence check": "fence check",
    "fence node-2 --reason x -y": "fence",
    "fence refused-1 --reason x -y": "fence --wait",
    "remediate node-3 --reason smoke --yes": "remediate",
    "preserve node-4": "preserve",
    "hold node-1": "hold",
    "pause --reason drill": "pause",
    "scan start": "scan start",
    "doctor": "doctor",
    "uninstall --check": "uninstall",
    "version": "version",
    "scan stop": "scan stop",
}
"""In this order, each on what the one before has left."""


async def test_what_commands_print_is_as_the_schema_says(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    (keyboard / SETTINGS).write_text(f"clusters: {{{cluster}: {{server: 'http://127.0.0.1:1'}}}}", encoding="utf-8")
    await warden.start_scanner(cluster)
    await warden.fence(cluster, "node-1", reason="smoke")
    await warden.preserve(cluster, "node-9", reason="look at it")
    await (await warden.fence(cluster, "gone-1", reason="smoke")).abort(who="amy", reason="enough")
    while not (await warden.history.ended(cluster)).episodes:
        await asyncio.sleep(0.1)
    for words, command in PRINTED.items():
        printed = await nodewarden(*words.split(), "-o", "json")
        assert printed.stdout, (words, printed.stderr)
        conforms(command, json.loads(printed.stdout))


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("evaluate",), "evaluate"),
        (("explain", "node-1"), "explain"),
        (("remediate", "plan", "node-1"), "remediate plan"),
        (("fence", "plan", "node-1"), "fence plan"),
        (("preserve", "plan"), "preserve plan"),
    ],
)
async def test_what_is_said_of_files_is_as_the_schema_says(files: list[str], words: tuple[str, ...], command: str) -> None:
    at = files.index("--now")
    given = [*files[:at], *files[at + 2 :]] if command == "fence plan" else files
    conforms(command, json.loads((await nodewarden(*words, *given, "-o", "json")).stdout))


def test_every_command_that_prints_json_is_in_the_table() -> None:
    from starter.cli import app  # its commands, as they are

    found = {" ".join(path) for path in _commands(app)}
    told = {name.partition(" --")[0] for name in ANSWERS}
    others = {
        name for name in found if name.startswith("deploy ") or name in {"worker", "codec keys", "ui"}
    }  # manifests, logs, keys, pages
    assert {name.removesuffix(" begin") for name in found - others} == told


def _commands(app: Any, *around: str) -> Iterator[tuple[str, ...]]:
    for each in app.registered_commands:
        yield (*around, each.name or each.callback.__name__)
    for group in app.registered_groups:
        callback = group.typer_instance.registered_callback
        if callback is not None and callback.invoke_without_command is True:
            yield (*around, group.name)
        yield from _commands(group.typer_instance, *around, group.name)
