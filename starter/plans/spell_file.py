"""Spells in a file, one JSON document a line: written by `compare --export`, read by `evaluate --replay`.

The first line says of which cluster and time they are; docs/schemas/spells.json is the schema of all lines. A file comes from
outside: it is bounded, and a line that can't be used is refused with its number and the field.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from policy.checks.health_check import HealthCheck
from policy.episode.messages import Outcome
from policy.history.comparison import CheckThen, RecordedSpell, check_then, with_outcomes
from policy.history.spells import Spell, unsound
from policy.values.errors import shown
from starter.handles.observations import ClusterComparison, Observed
from starter.output.encoding import decoded, schemas_of, to_json
from workers.errors import SettingsError, expectations

LARGEST_LINE, MOST_LINES = 256 * 1024, 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportHead:
    """The first line. repair_seconds: how long a repair took. checks: as far as a replay compares them; none where the cluster's
    objects could not be read. version: of all lines; 2 has no outcomes."""

    cluster: str
    since: datetime
    until: datetime
    repair_seconds: float
    checks: tuple[CheckThen, ...]
    version: Literal[2, 3]
    kind: Literal["export"] = "export"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpellLine:
    """A spell that was recorded, or lasted when the file was written. outcome: of the episode of ours that ended it; null where
    none did, and where its end was not known."""

    spell: Spell
    workflow_id: str = ""
    outcome: Outcome | None = None
    kind: Literal["spell"] = "spell"


LINES: dict[str, type[Any]] = {"export": ExportHead, "spell": SpellLine}
"""By the `kind` that each line has."""


def schema() -> dict[str, Any]:
    """The document docs/schemas/spells.json: of one line."""
    found = schemas_of(LINES)
    title = "One line of what `nodewarden compare --export` writes"
    return {"$schema": found["$schema"], "title": title, "oneOf": list(found["commands"].values()), "$defs": found["$defs"]}


def write(path: str, found: Observed, compared: ClusterComparison, checks: Sequence[HealthCheck]) -> int:
    """Into the file, - for standard output. How many spells. Raises SettingsError where it can't be written."""
    report = compared.comparison
    keys = {each.check for each in report.checks}
    head = ExportHead(
        version=3,
        cluster=compared.cluster,
        since=report.since,
        until=report.until,
        repair_seconds=report.repair_time.span.total_seconds(),
        checks=tuple(check_then(each) for each in checks if each.ref.key in keys),
    )
    spells = [
        each
        for each in with_outcomes(found.spells, found.episodes)
        if each.spell.check in keys and each.spell.due >= report.since
    ]
    lines = [head, *(SpellLine(spell=each.spell, workflow_id=each.workflow_id, outcome=each.outcome) for each in spells)]
    try:
        with nullcontext(sys.stdout) if path == "-" else Path(path).open("w", encoding="utf-8") as out:
            out.writelines(f"{to_json(each)}\n" for each in lines)
    except OSError as error:
        raise SettingsError(f"--export: {path}: {error.strerror}") from error
    return len(spells)


def read(path: str) -> tuple[ExportHead, list[RecordedSpell]]:
    """Raises SettingsError, naming line and field."""
    head: ExportHead | None = None
    spells = list[RecordedSpell]()
    for number, line in _lines(path):
        where = f"--replay: {path}, line {number}"
        read = _parsed(line, where)
        if isinstance(read, ExportHead) is (number > 1):
            raise SettingsError(f"{where}: kind: expected export in the first line, and only there")
        if isinstance(read, ExportHead):
            head = read
        elif isinstance(read, SpellLine):
            if problem := unsound(read.spell):
                raise SettingsError(f"{where}: spell.{problem}")
            spells.append(RecordedSpell(spell=read.spell, workflow_id=read.workflow_id, outcome=read.outcome))
    if head is None:
        raise SettingsError(f"--replay: {path}: expected what `nodewarden compare --export` writes, got an empty file")
    return head, spells


def _lines(path: str) -> Iterator[tuple[int, str]]:
    try:
        with nullcontext(sys.stdin) if path == "-" else Path(path).open(encoding="utf-8") as file:
            for number in range(1, MOST_LINES + 2):
                if not (line := file.readline(LARGEST_LINE + 1)):
                    return
                if number > MOST_LINES or len(line) > LARGEST_LINE:
                    most = f"at most {MOST_LINES:,} lines of at most {LARGEST_LINE:,} characters"
                    raise SettingsError(f"--replay: {path}, line {number}: expected {most}, got more")
                yield number, line
    except OSError as error:
        raise SettingsError(f"--replay: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"--replay: {path}: expected text in UTF-8, got other bytes") from error


def _parsed(line: str, where: str) -> object:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise SettingsError(f"{where}: expected a JSON object, got {shown(line.strip())}") from None
    kind = document.get("kind") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in LINES:
        raise SettingsError(f"{where}: kind: expected one of {', '.join(LINES)}, got {shown(kind)}")
    try:
        return decoded(LINES[kind], line)
    except ValidationError as error:
        raise SettingsError(f"{where}: {expectations(error.errors()[:3], kind)}") from None
