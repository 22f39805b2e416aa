"""The steps of the Dockerfile without an engine: those that need no registry are run as they stand, in other folders.

What is not tried here is the base image, and the download of the locked wheels, in whose place are those that the tests run with.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT

TEXT = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
BUILD, FINAL = (stage.splitlines() for stage in re.split(r"^FROM .*$", TEXT, flags=re.MULTILINE)[1:])
DOWNLOADS = re.compile(
    r"pip (?:--python \S+ )?install --require-hashes --only-binary :all: --requirement requirements(?:-build)?\.lock"
)


def _said(stage: list[str], word: str) -> list[str]:
    return [line.removeprefix(f"{word} ") for line in stage if line.startswith(f"{word} ")]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What .dockerignore lets in."""
    folder = tmp_path_factory.mktemp("context")
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        for path in ROOT.glob(line[1:]) if line.startswith("!") else ():
            subprocess.run(["cp", "-R", path, folder], check=True, timeout=30)
    return folder


@pytest.fixture(scope="module")
def image(context: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in the place of / after the first stage. `pip` and `python` are those of the tests."""
    root = tmp_path_factory.mktemp("image")
    programs = root / "usr" / "local" / "bin"
    programs.mkdir(parents=True)
    for name, words in (("pip", f"{sys.executable} -m pip"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for command in _said(BUILD, "RUN"):
        steps = [step for step in command.split(" && ") if not DOWNLOADS.fullmatch(step.strip())]
        script = " && ".join(steps).replace("/opt/", f"{root}/opt/").replace("/wheels", f"{root}/wheels")
        done = subprocess.run(
            ["sh", "-ec", script], cwd=context, env=environment, capture_output=True, text=True, timeout=50, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        for site in root.glob("opt/nodewarden/lib/python*/site-packages"):
            packages = next(path for path in sys.path if path.endswith("site-packages"))
            (site / "of-the-tests.pth").write_text(packages, encoding="utf-8")
    return root


def test_nothing_comes_from_a_registry_but_what_is_locked() -> None:
    """Each download by hash, wheels only; all else is told that there is no index, or resolves nothing."""
    steps = [step.strip() for command in (*_said(BUILD, "RUN"), *_said(FINAL, "RUN")) for step in command.split(" && ")]
    pips = [step for step in steps if step.startswith("pip ")]
    assert sum(bool(DOWNLOADS.fullmatch(step)) for step in pips) == 2
    for step in pips:
        harmless = "--no-index" in step or "--no-deps --no-build-isolation" in step or shlex.split(step)[-1] in {"check", "pip"}
        assert harmless or DOWNLOADS.fullmatch(step), step
    assert not re.search(r"\b(apt-get|apk|curl|wget|ADD)\b", TEXT)


def test_what_starts_is_in_the_environment_and_needs_no_folder_of_its_own(image: Path, tmp_path: Path) -> None:
    """A read-only root: nothing of the environment, the home or the working folder is written."""
    entry = json.loads(_said(FINAL, "ENTRYPOINT")[0])
    assert entry == ["nodewarden"]
    assert json.loads(_said(FINAL, "CMD")[0]) == ["worker"]
    program = image / "opt" / "nodewarden" / "bin" / entry[0]
    (home := tmp_path / "home").mkdir()
    environment = {"PATH": f"{program.parent}", "HOME": str(home), "PYTHONUNBUFFERED": "1"}
    before = _stamps(image)
    for words in (["version"], ["worker", "--help"], ["deploy", "crds"]):
        done = subprocess.run(
            [program, *words], cwd=home, env=environment, capture_output=True, text=True, timeout=50, check=False
        )
        assert done.returncode == 0, done.stderr
        assert str(ROOT) not in done.stdout
    assert _stamps(image) == before
    assert list(home.iterdir()) == []


def _stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_the_environment_has_no_tools_and_no_simulator(image: Path) -> None:
    """What makes or installs packages stays in the first stage, or goes in the last; simulator and demo are for one machine."""
    [site] = image.glob("opt/nodewarden/lib/python*/site-packages")
    own = {path.name for path in site.iterdir()}
    assert {"starter", "workers", "policy"} <= own
    assert not own & {"pip", "setuptools", "wheel", "hatchling", "simulator", "demo"}
    assert not list((image / "opt/nodewarden/bin").glob("pip*"))
    [command] = _said(FINAL, "RUN")
    assert "pip uninstall" in command
    assert "ensurepip" in command
    assert _said(FINAL, "COPY") == ["--from=build /opt/nodewarden /opt/nodewarden"]


def test_the_process_is_the_user_that_the_chart_runs() -> None:
    """Not root, by number, so that Kubernetes can tell (runAsNonRoot)."""
    assert _said(FINAL, "USER") == ["10001:10001"]
    chart = (ROOT / "deploy/chart/nodewarden/templates/workers.yaml").read_text(encoding="utf-8")
    assert {"runAsUser: 10001", "runAsGroup: 10001"} <= {line.strip() for line in chart.splitlines()}
    assert FINAL.index("USER 10001:10001") < FINAL.index('ENTRYPOINT ["nodewarden"]')
