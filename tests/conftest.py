"""How the tests are spread over processes, and the tables that they leave for the end of the run.

`make test` runs three processes (pytest-xdist): first all take what keeps a processor busy, then each has a lane of its own in
which simulated clusters and whole systems run one after the other. Those mostly wait, so that three of them leave two cores room.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import report

WHOLE = ("tests/simulator/cluster/", "tests/system/")
"""Simulated clusters and whole systems."""


def _files(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/system/test_{name}.py" for name in names)


PATIENT = _files("kills", "racks", "platforms", "preservation_caps")
"""Whole systems that wait for results and no moments, many machines or many systems at once: most of the work."""

CALM = (
    *_files("scanner_life", "worker_ends", "management_cluster", "deployment_version", "temporal_cli", "isolated"),
    *_files("preservation", "preservation_kills", "fence_check"),
    "tests/benchmarks/test_whole_benchmarks.py",
)
"""Whole systems one at a time that mostly wait: for time-outs, for workers that come back, for a cluster that is away."""

LANES = {"patient": PATIENT, "calm": CALM, "prompt": WHOLE}
"""The rest of them is prompt: there accidents and time-outs are measured in fractions of a second. The longest lane is first."""

BACKSTOP = 60
"""Seconds that a test which was cancelled, and what it had set up, have to end."""

hypothesis.settings.register_profile("shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("shared")  # how long an example takes says nothing here: the machine is shared
hypothesis.settings.register_profile(
    "mutants", hypothesis.settings.get_profile("shared"), phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate]
)  # `tests/mutation.py` asks whether an example fails, and not for the smallest one


def _lane(nodeid: str) -> str:
    """The lane of a test, "" where it needs none."""
    return next((name for name, begin in LANES.items() if nodeid.startswith(begin)), "")


def bounded(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def within(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return within


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The lanes come last, in one process or in several.

    A coroutine that takes too long is cancelled within its event loop. pytest-timeout interrupts the loop from outside, which
    leaves the test running beside all that follow in the same loop: that is kept for what does not give the loop back.
    """
    order = ["", *LANES]
    items.sort(key=lambda item: order.index(_lane(item.nodeid)))
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            marker = item.get_closest_marker("timeout")
            seconds = float(marker.args[0] if marker is not None else item.config.getini("timeout"))
            item.obj = bounded(item.obj, seconds)
            item.add_marker(pytest.mark.timeout(seconds + BACKSTOP), append=False)


def pytest_collection_finish() -> None:
    """Thousands of tests and all modules stay until the end: looking through them again and again for garbage takes 5% of the
    time, and stands in the way of tests that measure moments."""
    gc.collect()
    gc.freeze()


class BySurroundings(LoadScopeScheduling):
    """A file's tests stay together, and so do those of a lane."""

    def _split_scope(self, nodeid: str) -> str:
        return _lane(nodeid) or nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BySurroundings:
    """Who runs what (`--dist loadgroup` of this version leaves the groups out with this pytest)."""
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
    """The tables, also without -s."""
    for title, lines in report.TABLES.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)
