"""What a wheel and a source archive carry, and what they are worth without a clone: installed, run from an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from starter.deploy.manifests import write_chart
from tests.documents import ROOT, documents
from tests.test_packaging import PROJECT, ROOMS

SETTINGS = ("NODEWARDEN_", "TEMPORAL_", "KUBECONFIG", "PYTHONPATH")


def _build(target: str, source: Path, folder: Path) -> Path:
    """By the locked backend, without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=50, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    [made] = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of a fresh environment: the wheel is installed into it, and its dependencies are those that tests run with."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder)
    pip = [sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, capture_output=True, timeout=50, check=True)
    [site] = folder.glob("lib/python*/site-packages")
    # Packages only: the editable install's own .pth, which would show this checkout, is not followed from there.
    (site / "of-the-tests.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")), encoding="utf-8")
    return folder / "bin" / "nodewarden"


def _run(program: Path, folder: Path, *words: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(SETTINGS)}
    done = subprocess.run([program, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_installed_wheel_knows_nothing_of_this_checkout(program: Path, tmp_path: Path) -> None:
    python = program.with_name("python")
    code = "import starter, workers; print(starter.__file__, workers.__file__)"
    assert str(ROOT) not in _run(python, tmp_path, "-c", code)


def test_its_commands_run_from_an_empty_folder(program: Path, tmp_path: Path) -> None:
    for word in ("--help", "version"):
        assert _run(program, tmp_path, word)
    assert list(tmp_path.iterdir()) == []


FILES = {
    "crds": [f"deploy/crds/{path.name}" for path in sorted((ROOT / "deploy/crds").glob("*.yaml"))],
    "rbac": ["deploy/rbac.yaml"],
    "leases": ["deploy/medik8s-leases.yaml"],
    "admission": ["deploy/admission.yaml"],
    "people": ["deploy/people.yaml"],
    "alerts": ["deploy/alerts.yaml"],
    "dashboard": ["deploy/dashboard.json"],
}
PRINTED = """
import json, sys
from starter.cli import app
from typer.testing import CliRunner
print(json.dumps({word: CliRunner().invoke(app, ["deploy", word]).stdout for word in sys.argv[1:]}))
"""
"""In one process: what starts one for each word takes more than all that they do."""


def test_it_prints_all_that_a_checkout_has_as_files(program: Path, tmp_path: Path) -> None:
    printed = json.loads(_run(program.with_name("python"), tmp_path, "-c", PRINTED, *FILES, "network"))
    assert printed.pop("network")
    assert {word: list(yaml.safe_load_all(text)) for word, text in printed.items()} == {
        word: documents(*files) for word, files in FILES.items()
    }
    assert list(tmp_path.iterdir()) == []


def test_it_writes_the_chart_as_it_is_here_and_over_nothing(program: Path, tmp_path: Path) -> None:
    _run(program, tmp_path, "deploy", "chart", "mine")
    source = ROOT / "deploy/chart/nodewarden"
    written = {
        path.relative_to(tmp_path / "mine"): path.read_bytes() for path in (tmp_path / "mine").rglob("*") if path.is_file()
    }
    here = {Path(folder, name) for folder, _, names in os.walk(source, followlinks=True) for name in names}
    assert written == {path.relative_to(source): path.read_bytes() for path in here}
    assert not any(path.is_symlink() for path in (tmp_path / "mine").rglob("*"))
    again = subprocess.run([program, "deploy", "chart", "mine"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "mine: expected a folder that is not there yet" in again.stderr


def test_from_a_checkout_the_chart_is_written_without_its_links(tmp_path: Path) -> None:
    """They lead into deploy/, which whoever takes the chart elsewhere does not have."""
    write_chart(tmp_path / "mine")
    assert not any(path.is_symlink() for path in (tmp_path / "mine").rglob("*"))
    assert (tmp_path / "mine" / "files" / "alerts.yaml").read_bytes() == (ROOT / "deploy/alerts.yaml").read_bytes()


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def test_a_wheel_carries_every_room_and_what_it_reads(wheel: Path) -> None:
    """Modules and the files beside them: schemas, scenarios, definitions."""
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == ROOMS
    ballast = {".pyc", ".md", ".toml"}
    for room in ROOMS:
        paths = (path.relative_to(ROOT) for path in (ROOT / room).rglob("*") if path.is_file())
        files = {path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts)}
        assert {file for file in files if Path(file).suffix not in ballast} - _names(wheel) == set()


def test_a_wheel_carries_nothing_else(wheel: Path) -> None:
    metadata = f"nodewarden-{PROJECT['project']['version']}.dist-info"
    assert {name.split("/")[0] for name in _names(wheel)} == ROOMS | {metadata}
    with zipfile.ZipFile(wheel) as opened:
        assert opened.read(f"{metadata}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_the_image_has_no_simulator_no_demo_and_no_temporal_server(wheel: Path, tmp_path: Path) -> None:
    """Its wheel is built from what .dockerignore lets in, its packages are requirements.lock."""
    (context := tmp_path / "context").mkdir()
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        for path in ROOT.glob(line[1:]) if line.startswith("!") else ():
            (context / path.name).symlink_to(path)
    whole, built = _names(wheel), _names(_build("wheel", context, tmp_path / "wheel"))
    left_out = {name.split("/")[0] for name in whole} - {name.split("/")[0] for name in built}
    assert left_out == {"simulator", "demo"}
    assert {name for name in whole if name.split("/")[0] not in left_out} == built


def test_every_imported_package_is_a_package(wheel: Path) -> None:
    """A folder without __init__.py is importable here and lost to tools that look for packages."""
    folders = {Path(name).parent.as_posix() for name in _names(wheel) if name.endswith(".py")}
    assert {folder for folder in folders if f"{folder}/__init__.py" not in _names(wheel)} == set()


def test_a_source_archive_has_what_is_built_from_and_no_more(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    tops = {name.partition("/")[0] for name in names}
    rooms = {"policy", "workflows", "activities", "workers", "starter", "simulator", "demo", "deploy"}
    plain = {"CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert tops == rooms | plain
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".lock"))]


def test_the_archive_builds_the_same_wheel(archive: Path, wheel: Path, tmp_path: Path) -> None:
    """Byte for byte: whoever builds from the archive gets what was tested."""
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], check=True, timeout=30)
    [source] = tmp_path.iterdir()
    links = [path for path in source.rglob("*") if path.is_symlink()]
    assert links
    assert all(path.resolve().is_relative_to(source.resolve()) for path in links), "pip refuses links that lead out"
    assert _build("wheel", source, tmp_path / "wheel").read_bytes() == wheel.read_bytes()
