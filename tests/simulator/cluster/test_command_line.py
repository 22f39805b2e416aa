"""`python -m simulator` as people and scripts use it: one process is the cluster, others break it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulator.__main__ import main
from simulator.scenario import FOLDER, Scenario
from tests.power.process_table import alive
from tests.simulator.cluster.conftest import Observer

pytestmark = pytest.mark.timeout(90)

UP = ["-m", "simulator", "up", "--nodes", "2", "--zones", "2", "--heartbeat", "0.1", "--grace", "1", "--boot", "0.1"]
ROOT = Path(__file__).parents[3]


def until(condition: Callable[[], bool], what: str, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)


class Running:
    """A cluster in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], state_dir: Path) -> None:
        self.process = process
        self.state_dir = state_dir
        assert process.stdout is not None
        self.state: dict[str, Any] = json.loads(process.stdout.readline())

    def steer(self, *arguments: str) -> int:
        return main([*arguments, "--state-dir", str(self.state_dir)])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    command = [sys.executable, *UP, "--bmc", "python", "--state-dir", str(tmp_path / "s")]
    command += ["--kubeconfig-out", str(tmp_path / "kubeconfig")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield Running(process, tmp_path / "s")
        finally:
            process.terminate()


def test_a_cluster_is_broken_healed_and_ended_from_outside(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = running.state
    assert state["nodes"].keys() == {"node-1", "node-2"}
    kubeconfig = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    assert kubeconfig["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")
    bmcs = [node["bmc"]["pid"] for node in state["nodes"].values()]
    assert all(alive(pid) for pid in bmcs)

    assert running.steer("break", "node-1", "kernel-hangs") == 0
    assert running.steer("state") == 0
    output = capsys.readouterr().out
    assert '"state": "hung"' in output
    assert running.steer("heal", "node-1") == 0
    assert running.steer("violations") == 0
    assert running.steer("scenario", "lying-bmc") == 0
    capsys.readouterr()
    assert running.steer("break", "node-9", "kernel-hangs") == 2
    assert "node-9" in capsys.readouterr().err

    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(timeout=20) == 0
    until(lambda: not any(alive(pid) for pid in bmcs), "the BMCs are gone")
    assert running.steer("state") == 2
    assert "no simulated cluster is running" in capsys.readouterr().err


def test_a_cluster_ends_with_its_parent(tmp_path: Path) -> None:
    # The parent in between starts the cluster, hands over its first line, and waits to be killed.
    parent = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE, text=True)\n"
        "print(child.stdout.readline(), end='', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", parent, *UP, "--bmc", "python", "--state-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        state = json.loads(process.stdout.readline())
        pids = [state["pid"], *(node["bmc"]["pid"] for node in state["nodes"].values())]
        assert all(alive(pid) for pid in pids)
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pids), "the cluster and its BMCs are gone")


# Scenario files: what they may say, what they refuse and how, and that they happen.


def test_steps_come_in_the_order_of_their_times() -> None:
    scenario = Scenario.read("steps: [{at: 2s, heal: {node: a}}, {at: 1s, break: {node: a, how: power-cut}}]")
    assert [step.how for step in scenario.steps] == ["power-cut", ""]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
async def test_every_scenario_that_we_ship_can_be_read(path: object) -> None:
    scenario = Scenario.load(str(path))
    assert scenario.description
    assert scenario.steps


async def test_a_scenario_happens(observer: Observer) -> None:
    member = observer.cluster.node_of_pod("demo/database-0")
    scenario = Scenario.read(
        """
        steps:
          - {at: 0s, break: {pod: demo/database-0, how: kernel-hangs}}
          - {at: 0s, break: {zone: zone-b, how: power-cut}}
          - {at: 50ms, heal: {all: true}}
          - {at: 60ms, break: {nodes: [node-1, node-3], how: kubelet-stops}}
        """
    )
    scenario.steps[0].carry_out(observer.cluster)
    assert observer.cluster.node(member).fault == "kernel-hangs"
    scenario.steps[1].carry_out(observer.cluster)
    assert [node.name for node in observer.cluster.nodes.values() if not node.is_on] == ["node-2", "node-5"]
    await scenario.run(observer.cluster)
    assert {node.name for node in observer.cluster.nodes.values() if node.fault} == {"node-1", "node-3"}
    assert all(node.is_on for node in observer.cluster.nodes.values())
