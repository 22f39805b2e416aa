"""The arrows between the rooms, and the purity of policy and workflows: held by contracts and lint, proved here to bite.

A rule that has never failed may not be one: each contract and each banned name is broken once, in a copy.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
PRODUCT = ("policy", "workflows", "activities", "workers", "starter")
ROOMS = (*PRODUCT, "simulator", "demo")

WRONG_ARROWS = {
    "rooms": ("policy.values.planted_arrow", "workflows.kit.options"),
    "activities-know-no-order": ("activities.cluster.acts.planted", "workflows.kit.options"),
    "workflows-see-contracts-only": ("workflows.kit.planted", "activities.cluster.api.connection"),
    "rooms-of-cluster": ("activities.cluster.live.planted", "activities.cluster.acts.isolation"),
    "rooms-of-power": ("activities.power.gce.planted", "activities.power.registry"),
    "rooms-of-policy": ("policy.checks.planted", "policy.episode.permits"),
    "rooms-of-the-simulated-api": ("simulator.api.storage.planted", "simulator.api.wire.door"),
    "no-circles": ("policy.fence.drivers.planted", "policy.fence.configmap_methods"),
    "rooms-of-workflows": ("workflows.episode.planted", "workflows.fencing.case"),
    "activities": ("activities.contracts.planted", "activities.episodes"),
    "rooms-of-starter": ("starter.handles.planted", "starter.output.status_table"),
    "rooms-of-workers": ("workers.configuration.planted", "workers.composition"),
    "policy-is-pure": ("policy.values.planted_dice", "random"),
    "workflows-hold-no-client": ("workflows.kit.planted_client", "kubernetes"),
    "simulator-stands-alone": ("simulator.planted", "policy.episode.messages"),
    "nobody-needs-the-simulator": ("workers.planted", "simulator.client"),
    "deploy-is-a-table": ("starter.deploy.planted", "workers.configuration.settings"),
}
"""For each contract of .importlinter: who imports what to break it."""

CIRCLE = ".drivers -> .configmap_methods"
"""How the contract against circles names its wrong arrow: by the two that lie side by side."""

OF_ROOM = {"policy": "policy/values/times.py", "workflows": "workflows/kit/options.py"}
"""A module of each room that has rules of its own."""

PURE = (
    *(
        "__future__",
        "abc",
        "bisect",
        "collections",
        "collections.abc",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "difflib",
    ),
    *("decimal", "enum", "fnmatch", "fractions", "functools", "hashlib", "heapq", "ipaddress", "itertools", "json", "math"),
    *("operator", "re", "shlex", "string", "types", "typing"),
)
"""What of the standard library policy may use: what computes, never what looks at the world."""

SAMPLES = {
    "datetime.datetime.now": "from datetime import UTC, datetime\n\nAT = datetime.now(UTC)",
    "datetime.datetime.utcnow": "import datetime\n\nAT = datetime.datetime.utcnow()",
    "datetime.datetime.today": "from datetime import datetime as moment\n\nAT = moment.today()",
    "datetime.date.today": "from datetime import date\n\nDAY = date.today()",
    "time": "from time import monotonic\n\nAT = monotonic()",
    "random": "from random import choice\n\nPICK = choice",
    "uuid": "from uuid import uuid4\n\nNAME = uuid4()",
    "os": "from os import environ\n\nHOME = environ",
    "asyncio": "import asyncio",
    "asyncio.sleep": "import asyncio\n\nPAUSE = asyncio.sleep",
    "asyncio.wait": "from asyncio import wait\n\nWAIT = wait",
    "asyncio.as_completed": "import asyncio\n\nFIRST = asyncio.as_completed",
    "asyncio.to_thread": "import asyncio\n\nASIDE = asyncio.to_thread",
}
"""How a banned name would really be written; for the others, `import name`."""


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=50, check=False)


def _lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    return _run(BIN / "lint-imports", "--no-cache", "--no-logo", cwd=tree)


@cache
def _policy() -> list[tuple[str, list[ast.AST]]]:
    """Each file, and all that stands in it."""
    return [
        (path.relative_to(ROOT).as_posix(), list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
        for path in sorted((ROOT / "policy").rglob("*.py"))
    ]


def _copy(rooms: tuple[str, ...], tree: Path) -> None:
    for room in rooms:
        shutil.copytree(
            ROOT / room, tree / room, ignore=lambda folder, names: [name for name in names if _is_ballast(folder, name)]
        )
    for name in ("pyproject.toml", ".importlinter"):
        shutil.copy(ROOT / name, tree / name)


def _is_ballast(folder: str, name: str) -> bool:
    return not (Path(folder, name).is_dir() or name.endswith((".py", ".toml"))) or name == "__pycache__"


def test_the_import_contracts_hold() -> None:
    """Imports point one way only: docs/architecture.md, "Folders and arrows"."""
    result = _lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


def test_every_room_is_under_contract() -> None:
    """A new top-level package must find its place among the arrows."""
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks", "supply_chain"}
    config = ConfigParser()
    config.read(ROOT / ".importlinter", encoding="utf-8")
    assert set(config["importlinter"]["root_packages"].split()) == rooms == set(ROOMS)


def test_every_contract_breaks_when_its_arrow_is_turned(tmp_path: Path) -> None:
    """No contract is decoration: one wrong import each, and each is broken by the import that was planted for it."""
    config = ConfigParser()
    config.read(ROOT / ".importlinter", encoding="utf-8")
    prefix = "importlinter:contract:"
    assert {name.removeprefix(prefix) for name in config.sections() if name.startswith(prefix)} == set(WRONG_ARROWS)

    _copy(ROOMS, tmp_path)
    for importer, imported in WRONG_ARROWS.values():
        (tmp_path / importer.replace(".", "/")).with_suffix(".py").write_text(f"import {imported}\n", encoding="utf-8")
    result = _lint_imports(tmp_path)

    assert result.returncode != 0
    assert f"0 kept, {len(WRONG_ARROWS)} broken" in result.stdout, result.stdout
    for contract, (importer, imported) in WRONG_ARROWS.items():
        arrow = CIRCLE if contract == "no-circles" else f"{importer} -> {imported}"
        assert arrow in result.stdout, result.stdout


def test_a_new_kind_of_activity_must_choose_its_layer(tmp_path: Path) -> None:
    """An implementation that nobody placed would be invisible to the contract that keeps clients apart."""
    _copy(ROOMS, tmp_path)
    (tmp_path / "activities/unplaced.py").write_text("", encoding="utf-8")
    result = _lint_imports(tmp_path)
    assert result.returncode != 0
    assert "activities.unplaced" in result.stdout, result.stdout


def test_policy_uses_only_what_computes() -> None:
    """S-rules are tested in tables: policy imports itself and the pure part of the standard library, by name, nothing else."""
    strangers = [
        f"{path}: {name}"
        for path, nodes in _policy()
        for node in nodes
        for name in _imported(node)
        if name.split(".")[0] != "policy" and name not in PURE
    ]
    assert strangers == []


def test_policy_opens_and_runs_nothing() -> None:
    """What needs no import to reach outside: open, input, eval, exec and dynamic imports."""
    reaching = {"open", "input", "eval", "exec", "compile", "__import__", "breakpoint"}
    found = [
        f"{path}:{node.lineno}: {node.func.id}()"
        for path, nodes in _policy()
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in reaching
    ]
    assert found == []


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["." * node.level + (node.module or "")]
    return []


@pytest.mark.parametrize("room", ["policy", "workflows"])
def test_ruff_refuses_every_banned_name(room: str, tmp_path: Path) -> None:
    """Clocks, dice and the outside are refused where they are written; Temporal's sandbox does not see all of these modules."""
    _copy((room,), tmp_path)
    banned = tomllib.loads((ROOT / room / "ruff.toml").read_text(encoding="utf-8"))["lint"]["flake8-tidy-imports"]["banned-api"]
    for number, name in enumerate(banned):
        (tmp_path / room / f"planted_{number}.py").write_text(SAMPLES.get(name, f"import {name}") + "\n", encoding="utf-8")

    result = _run(BIN / "ruff", "check", "--no-cache", "--output-format", "json", room, cwd=tmp_path)
    caught: dict[str, list[str]] = {}
    for finding in json.loads(result.stdout):
        if finding["code"] == "TID251":
            caught.setdefault(Path(finding["filename"]).stem, []).append(finding["message"])

    assert set(caught) == {f"planted_{number}" for number in range(len(banned))}
    for number, (name, rule) in enumerate(banned.items()):
        assert any(name in message and rule["msg"] in message for message in caught[f"planted_{number}"]), name


@pytest.mark.parametrize("room", ["policy", "workflows"])
def test_the_rooms_own_rules_only_add_to_the_house_rules(room: str) -> None:
    """A file of its own must not switch off what pyproject.toml asks of everybody: the rules of the house are all still on."""

    def enabled(path: str) -> set[str]:
        shown = _run(BIN / "ruff", "check", "--show-settings", path, cwd=ROOT).stdout
        listed = shown.split("linter.rules.enabled = [", 1)[1].split("]", 1)[0]
        return {line.strip().rstrip(",") for line in listed.splitlines() if line.strip()}

    of_house = enabled("workers/worker.py")
    missing = {rule for rule in of_house - enabled(OF_ROOM[room]) if not rule.endswith("(A005)")}
    assert "banned-api (TID251)" in of_house
    assert missing == set()


def test_workflows_are_bound_to_what_the_whole_house_is() -> None:
    """A folder's list of banned names replaces the one in pyproject.toml, so it must repeat it."""
    key = ("tool", "ruff", "lint", "flake8-tidy-imports", "banned-api")
    everywhere = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for part in key:
        everywhere = everywhere[part]
    own = tomllib.loads((ROOT / "workflows/ruff.toml").read_text(encoding="utf-8"))["lint"]["flake8-tidy-imports"]["banned-api"]
    assert everywhere.keys() <= own.keys()


def test_a_class_name_has_one_meaning() -> None:
    meanings: dict[str, list[str]] = {}
    for room in PRODUCT:
        for file in sorted((ROOT / room).rglob("*.py")):
            for name in re.findall(r"^ *class ([A-Za-z]\w*)[(:]", file.read_text(), flags=re.MULTILINE):
                meanings.setdefault(name, []).append(str(file.relative_to(ROOT)))
    assert meanings["Preflight"], "nothing was found"
    assert {name: places for name, places in meanings.items() if len(places) > 1} == {}


def test_conflicts_are_answered_in_one_loop() -> None:
    """Read, decide, write, and anew where others were faster: `edit()`, and nothing else tries again after a conflict."""
    loops = set()
    for file in sorted((ROOT / "activities").rglob("*.py")):
        text = file.read_text()
        if not re.search(r"except [^:]*(ObjectConflict|ObjectExists|again)", text):
            continue
        for loop in ast.walk(ast.parse(text)):
            if isinstance(loop, ast.For | ast.While | ast.AsyncFor):
                caught = {ast.unparse(each.type) for each in ast.walk(loop) if isinstance(each, ast.ExceptHandler) and each.type}
                if any(name in each for each in caught for name in ("ObjectConflict", "ObjectExists", "again")):
                    loops.add(str(file.relative_to(ROOT)))
    assert loops == {"activities/cluster/api/refusals.py"}
