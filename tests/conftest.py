"""How the tests are spread over processes, and the tables that they leave for the end of the run.

`make test` runs seven processes (pytest-xdist). One takes the whole systems that are work, four the calm ones, which mostly
wait, file by file, and the others what keeps a processor busy. Then come the systems that are measured in moments, when nothing
beside them but others that mostly wait is left: four processes have those, and the rest take what is left of the calm ones.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests import report
from tests.patience import PATIENCE
from tests.system.real_api import VARIABLE, assets, no_simulated_server

pytest_plugins = ("tests.system.fixtures",)


def _files(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/system/test_{name}.py" for name in names)


PATIENT = _files("kills", "racks", "platforms", "preservation_caps")
"""Whole systems that wait for results and no moments, many machines or many systems at once: most of the work, so first."""

CALM = (
    "tests/demo/test_observe.py",
    "tests/security/test_matrix.py",
    *_files("chaos", "frozen", "docs_upgrade", "scanner_life"),
    *("tests/docs/test_start.py", "tests/docs/test_a_day.py", "tests/benchmarks/test_whole_benchmarks.py"),
    *_files("decision_stream", "api_restarts", "worker_ends"),
    "tests/deploy/test_chart_page.py",
    "tests/security/test_duplicated_identity.py",
    "tests/web/test_killed_worker.py",
    *_files("preservation_kills"),
    *("tests/workers/test_embedded.py", "tests/starter/test_up.py", "tests/deploy/test_chart_life.py"),
    *_files("remediation", "management_cluster", "remediation_owners", "one_name"),
    *_files("remediation_ladder", "temporal_cli", "autoscaler", "opt_in", "handed_over", "observing"),
    *_files("volumes"),
    "tests/test_wheel.py",
    "tests/security/",
    *_files("wrong_clocks"),
)
"""Whole systems one at a time that mostly wait: for time-outs, for workers that come back, for a cluster that is away, for others
to remediate. The longest come first, so that the run ends with no process alone."""

APART = tuple(f"tests/workflows/test_{name}.py" for name in ("fencing_properties", "guards", "fleet_properties"))
"""Long files of tests that share nothing: each test goes by itself, so that the run ends with no process alone."""

TOGETHER = ("tests/web/", "tests/power/ec2/")
"""What one process takes whole: pages, as each process has a browser of its own; and EC2, as each process would load moto, for
four seconds of a processor."""

PROMPT = (_files("without_temporal"), _files("main_job", "preservation_modes"), ("tests/simulator/cluster/",), ("tests/system/",))
"""The other whole systems, and simulated clusters, where accidents and time-outs are measured in fractions of a second: each of
these has one process, so that few stand side by side, and none of them alone for a minute while the run waits for it."""

LANES = {"patient": PATIENT, "calm": CALM, "prompt": tuple(file for each in PROMPT for file in each)}
"""The first that fits counts. One process has all that are patient: two at a time would be too much work."""

ORDER = ("patient", "", "prompt", "calm")
"""In which order they are begun; "" is what needs no lane."""

WAITING = (1, 2, 3, 4)
"""Which of the processes begin with the calm lane, which the others come to last: it needs little of a processor, and some of
its tests take more than a minute."""

BACKSTOP = 60
"""Seconds that a test which was cancelled, and what it had set up, have to end."""

sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
"""jsonschema would make 38 grammars of it as it is imported, a second of a processor in each process, for a format (iri) that no
schema here has."""

os.environ.pop("COLUMNS", None)  # readline, which pytest loads, sets it in the processes that come after
hypothesis.settings.register_profile(
    "shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], max_examples=60
)  # how long an example takes says nothing here: the machine is shared; and each run draws others
hypothesis.settings.load_profile("shared")
hypothesis.settings.register_profile(
    "mutants", hypothesis.settings.get_profile("shared"), phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate]
)  # `tests/mutation.py` asks whether an example fails, and not for the smallest one


def _lane(nodeid: str) -> str:
    """The lane of a test or its file, "" where it needs none."""
    return next((name for name, begins in LANES.items() if nodeid.startswith(begins)), "")


@functools.cache
def _turn(file: str) -> tuple[int, int]:
    """When the lane of a file's tests comes, and the file within the lane: of those that need none, what one process takes whole
    comes first, since it takes long."""
    name = _lane(file)
    files = [index for index, begin in enumerate(LANES.get(name, (*TOGETHER, ""))) if file.startswith(begin)]
    return (ORDER.index(name), files[0])


def bounded(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def within(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return within


def pytest_configure(config: pytest.Config) -> None:
    """A folder that lacks a program is refused at once."""
    try:
        assets()
    except FileNotFoundError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with no_simulated_server(item.nodeid):
        return (yield)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The lanes come last, in one process or in several.

    A coroutine that takes too long is cancelled within its event loop. pytest-timeout interrupts the loop from outside, which
    leaves the test running beside all that follow in the same loop: that is kept for what does not give the loop back.
    """
    items.sort(key=lambda item: _turn(item.nodeid.partition("::")[0]))
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            marker = item.get_closest_marker("timeout")
            seconds = PATIENCE * float(marker.args[0] if marker is not None else item.config.getini("timeout"))
            item.obj = bounded(item.obj, seconds)
            item.add_marker(pytest.mark.timeout(seconds + BACKSTOP), append=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A second chance (`--reruns`) is one in new surroundings: those that a file's tests share have the node that is off, or the
    episode that is open, because of which it would fail again."""
    if isinstance(item, pytest.Function) and getattr(item, "execution_count", 1) > 1:
        for name in item.fixturenames:
            for shared in item._fixtureinfo.name2fixturedefs.get(name, ()):
                if shared.scope == "module":
                    shared.finish(item._request)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing of what is collected is garbage, and looking for it takes an eighth of the collection, in each process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Thousands of tests and all modules stay until the end: looking through them again and again for garbage takes 5% of the
    time, and stands in the way of tests that measure moments. Nor is it looked through now: little of it is garbage. What tests
    make is looked through a hundredth as often as usual, which had taken a twelfth of their time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


class BySurroundings(LoadScopeScheduling):
    """A file's tests stay together, and so do those of a lane. But each file of the calm one goes to the process that is free."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if len(self.nodes) > max(WAITING) + 1 and self.nodes.index(node) in WAITING:
            calm = next((scope for scope in self.workqueue if _lane(scope) == "calm"), None)
            if calm is not None:
                self.workqueue.move_to_end(calm, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """A process needs its next test to begin one, and takes no file before that: two tests ahead may be minutes of the calm
        lane, for which others would stand idle."""
        if not self.workqueue or self._pending_of(self.assigned_work[node]) <= 1:
            super()._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        lane = _lane(nodeid)
        if lane == "patient":
            return lane
        together = next((begin for begin in TOGETHER if lane != "calm" and nodeid.startswith(begin)), None)
        if lane == "prompt":
            together = next(files[0] for files in PROMPT if nodeid.startswith(files))
        if together is not None:
            return together
        return nodeid if nodeid.startswith(APART) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BySurroundings:
    """Which process runs what (`--dist loadgroup` of this version leaves the groups out with this pytest)."""
    return BySurroundings(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In one of several processes: hand the tables over."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tables"] = report.TABLES


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the process that prints: take them."""
    report.TABLES.update(getattr(node, "workeroutput", {}).get("tables", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The tables, also without -s; and why what passed at its second chance had failed, as a flake of CI is seen nowhere else."""
    for failed in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"failed at first: {failed.nodeid}")
        terminalreporter.write_line(failed.longreprtext)
    if os.environ.get(VARIABLE):
        report.TABLES["not run on the real control plane"] = report.not_run(terminalreporter.stats)
    for title, lines in report.TABLES.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
