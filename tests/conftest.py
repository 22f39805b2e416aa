"""How the tests are spread over processes, and the tables that they leave for the end of the run.

`make test` runs three processes (pytest-xdist): first all take what is not hurried, then two of them have the machine for
themselves and run simulated clusters and whole systems, which mostly wait.
"""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import report

ALONE = ("tests/simulator/cluster/", "tests/system/")
"""Where accidents and time-outs are measured in fractions of a second."""

PATIENT = tuple(
    f"tests/system/test_{each}.py"
    for each in ("kills", "platforms", "racks", "management_cluster", "preservation_caps", "preservation_kills")
)
"""Of those the ones that wait for results and no moments: they run beside all others."""

hypothesis.settings.register_profile("shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("shared")  # how long an example takes says nothing here: the machine is shared


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What wants the machine for itself comes last, in one process or in several."""
    items.sort(key=lambda item: (item.nodeid.startswith(ALONE), not item.nodeid.startswith(PATIENT)))


class BySurroundings(LoadScopeScheduling):
    """A file's tests stay together, and so do all that want the machine for themselves, but for those that are patient."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(PATIENT):
            return "patient"
        return "alone" if nodeid.startswith(ALONE) else nodeid.partition("::")[0]


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
