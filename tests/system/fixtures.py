"""One Temporal server and one nursery for all whole systems of a process, wherever their tests are, and a search for secrets in
all that they leave behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import report
from tests.system.canary import RUN
from tests.system.harness import System
from tests.system.nursery import Nursery
from tests.system.process_watch import ProcessWatch
from tests.system.temporal_server import TemporalServer
from tests.system.worker_process import ROOT

NAMESPACES = 64
"""As many systems may live in one session; each has a namespace of its own."""

MakeSystem = Callable[..., Awaitable[System]]
Standing = Callable[..., AbstractAsyncContextManager[System]]


@pytest.fixture(scope="session")
def no_secret_gets_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """S12: no secret of these tests is in a history, a log, an object, a metric or what can be seen of a process."""
    with RUN.hearing(), ProcessWatch(RUN.look_at_process):
        yield
    RUN.look_at_files(tmp_path_factory.getbasetemp())
    report.TABLES["searched for secrets"] = [RUN.told()]
    if problems := RUN.problems():
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test of whole systems prints is searched, too."""
    told = yield
    if item.get_closest_marker("system") is not None:
        RUN.look_at_report(told)
    return told


@pytest.fixture(scope="session")
async def temporal(no_secret_gets_out: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TemporalServer]:
    """Shared, because it takes seconds to start. A test that kills its server starts one of its own."""
    names = [f"system-{number}" for number in range(NAMESPACES)]
    async with TemporalServer(tmp_path_factory.mktemp("temporal"), namespaces=names) as server:
        yield server


@pytest.fixture(scope="session")
async def nursery(no_secret_gets_out: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nursery]:
    """Where killable workers come from."""
    async with Nursery(ROOT, tmp_path_factory.mktemp("nursery") / "nursery.log") as running:
        yield running


@pytest.fixture(scope="session")
def free_namespaces(temporal: TemporalServer) -> list[str]:
    return list(temporal.namespaces)


@pytest.fixture(scope="session")
def standing(
    temporal: TemporalServer, free_namespaces: list[str], nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> Standing:
    """A system in a namespace of its own, for all tests of a module: `async with standing(nodes=4) as running:`."""

    @asynccontextmanager
    async def stand(**options: Any) -> AsyncIterator[System]:
        namespace = free_namespaces.pop(0)
        places = {"temporal": temporal, "namespace": namespace, "nursery": nursery}
        async with System(tmp_path_factory.mktemp(namespace), **places, **options) as system:
            yield system

    return stand


@pytest.fixture
async def make_system(
    temporal: TemporalServer, free_namespaces: list[str], nursery: Nursery, tmp_path: Path
) -> AsyncIterator[MakeSystem]:
    """Systems in namespaces of their own, ended with the test: `await make_system(nodes=4)`."""
    async with AsyncExitStack() as stack:

        async def make(**options: Any) -> System:
            namespace = free_namespaces.pop(0)
            options = {"temporal": temporal, "nursery": nursery, **options}
            if options["temporal"] is temporal:
                options.setdefault("namespace", namespace)
            return await stack.enter_async_context(System(tmp_path / namespace, **options))

        yield make
