"""How the tests are spread over processes, and the tables that they leave for the end of the run.

`make test` runs two processes (pytest-xdist): one waits for whole systems most of the time, the other takes the rest meanwhile.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import report


class BySurroundings(LoadScopeScheduling):
    """A file's tests stay together. The system tests share a server and the machine's time: one process runs them all."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/system" if nodeid.startswith("tests/system/") else nodeid.partition("::")[0]


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
