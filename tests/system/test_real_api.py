"""What a folder of Kubernetes' programs needs to have for `make test-real`, and how it lists the tests that it can't run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from simulator.api.server import ApiServer
from tests import report
from tests.patience import PATIENCE
from tests.system import real_api
from tests.system.real_api import CONTROLLERS, RESTART_PAUSE, VARIABLE, RealApiServer, no_simulated_server, simulated_only

START = ApiServer.start
"""As it is where no test runs: on a real control plane it is refused while the tests of this file run."""
UNVERSIONED = "v0.0.0-master+$Format:%H$"


def folder_of(folder: Path, **versions: str) -> Path:
    """Programs that say no more than their versions, beside an etcd; "_" in a name stands for "-"."""
    for name, version in {"etcd": "3.6.4", **versions}.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\necho 'Kubernetes {version}'\n")
        program.chmod(0o700)
    return folder


def test_a_folder_with_what_is_needed_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of Kubernetes, envtest's archives have the API server alone."""
    monkeypatch.setenv(VARIABLE, str(folder_of(tmp_path, kube_apiserver="v1.36.2")))
    assert real_api.main() == 0
    assert capsys.readouterr().out == f"etcd, kube-apiserver v1.36.2 of {tmp_path}\n"
    folder_of(tmp_path, kube_scheduler="v1.36.1", kube_controller_manager="v1.36.2")
    assert real_api.main() == 0


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({}, "expected a program kube-apiserver there"),
        ({"kube_apiserver": "v1.29.9"}, "kube-apiserver is 'Kubernetes v1.29.9': expected 'Kubernetes v1.30.0' or newer"),
        ({"kube_apiserver": UNVERSIONED}, "-X k8s.io/component-base/version.gitVersion=v1.X.Y"),
        ({"kube_apiserver": "v1.36.2", "kube_scheduler": UNVERSIONED}, f"kube-scheduler is 'Kubernetes {UNVERSIONED}'"),
        ({"kube_apiserver": "v1.36.2", "kube_scheduler": "v1.35.0"}, "expected programs of one minor version"),
    ],
)
def test_a_folder_that_lacks_a_program_or_has_a_wrong_version_is_refused(
    versions: dict[str, str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, str(folder_of(tmp_path, **versions)))
    assert real_api.main() == 2
    assert told in capsys.readouterr().err


def test_without_a_folder_it_says_what_to_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert real_api.main() == 2
    assert "expected KUBEBUILDER_ASSETS=/folder with etcd and kube-apiserver" in capsys.readouterr().err


async def test_where_a_real_one_is_asked_for_no_simulated_one_stands_in_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test either says why it is skipped there, or fails; elsewhere than in the folders that stand on it, nothing is asked."""
    monkeypatch.setenv(VARIABLE, str(folder_of(tmp_path, kube_apiserver="v1.36.2")))
    with pytest.raises(pytest.skip.Exception, match="simulated API server only: it counts"):
        simulated_only("it counts")
    with no_simulated_server("tests/system/test_it.py::test_it"), pytest.raises(AssertionError, match="expected simulated_only"):
        await ApiServer().start()
    monkeypatch.setattr(ApiServer, "start", START)
    with no_simulated_server("tests/cluster/test_it.py::test_it"):
        async with ApiServer():
            pass


async def test_a_controller_that_ends_by_itself_is_started_again(tmp_path: Path) -> None:
    """As its kubelet would: kube-scheduler ended after the API server was killed, and no pod was placed any more."""
    programs, folder = tmp_path / "programs", tmp_path / "api"
    programs.mkdir()
    folder.mkdir()
    for name in CONTROLLERS:
        (programs / name).write_text("#!/bin/sh\necho began\nexit 1\n")
        (programs / name).chmod(0o700)
    server = RealApiServer(programs, folder)
    await server.start_controllers()
    async with asyncio.timeout(10 * PATIENCE):
        while any((folder / f"{name}.log").read_text().count("began") < 2 for name in CONTROLLERS):
            await asyncio.sleep(0.05)
    await server.__aexit__(None, None, None)
    begun = [(folder / f"{name}.log").read_text() for name in CONTROLLERS]
    await asyncio.sleep(2 * RESTART_PAUSE)
    assert [(folder / f"{name}.log").read_text() for name in CONTROLLERS] == begun


def skipped(nodeid: str, reason: str) -> pytest.TestReport:
    where = (nodeid.partition("::")[0], 1, f"Skipped: {reason}")
    return pytest.TestReport(nodeid, ("", 0, ""), {}, "skipped", where, "setup")


def test_what_could_not_run_is_listed_with_its_reasons() -> None:
    passed = pytest.TestReport("tests/a.py::test_one", ("", 0, ""), {}, "passed", None, "call")
    left = [skipped("tests/a.py::test_two[x]", "it counts"), skipped("tests/a.py::test_two[y]", "it counts")]
    left += [skipped("tests/a.py::test_three", "no faketime"), skipped("tests/b.py::test_four", "it counts")]
    assert report.not_run({"passed": [passed], "skipped": left}) == [
        "tests/a.py: test_two (2)",
        "    it counts",
        "tests/a.py: test_three",
        "    no faketime",
        "tests/b.py: all 1",
        "    it counts",
        "4 in all",
    ]
