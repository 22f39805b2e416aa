"""The sandbox as an import guard, the purity of what it passes through, and workflow tasks on a slow machine."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import sys
import time
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import temporalio.workflow
from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Replayer, Worker, WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import UnintentionalPassthroughError

import workflows
import workflows.definitions
from tests.patience import PATIENCE
from workers.plugin import DEFINITIONS, PASSED_THROUGH, PLUGIN, RUNNER, GuardedRunner
from workflows.definitions.episodes import Fencing
from workflows.definitions.scanner import HealthScanner

TRIAL = """
from temporalio import workflow
{imported}

@workflow.defn(name="Trial")
class Trial:
    @workflow.run
    async def run(self) -> None: ...
"""


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[type]:
    name = f"trial_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(TRIAL.format(imported=request.param), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(name).Trial
    del sys.modules[name]


@pytest.mark.parametrize("module", sorted(each.name for each in pkgutil.iter_modules(workflows.definitions.__path__)))
async def test_every_workflow_loads_in_the_sandbox(module: str) -> None:
    defined = vars(importlib.import_module(f"{DEFINITIONS}.{module}")).values()
    found = [temporalio.workflow._Definition.from_class(each) for each in defined if isinstance(each, type)]
    definitions = [each for each in found if each is not None]
    assert definitions
    for each in definitions:
        RUNNER.prepare_workflow(each)


def test_the_replayer_takes_the_same_plugin() -> None:
    config = Replayer(workflows=[Fencing, HealthScanner], plugins=[PLUGIN]).config(active_config=True)
    assert config["workflow_runner"] is RUNNER


@pytest.mark.parametrize(
    "trial",
    [
        "import activities.cluster.api.connection",
        "from activities.power.service import PowerService",
        "import workers.configuration.settings",
    ],
    indirect=True,
)
async def test_a_workflow_that_drags_in_a_client_or_an_implementation_is_refused(trial: type) -> None:
    with pytest.raises(UnintentionalPassthroughError):
        RUNNER.prepare_workflow(temporalio.workflow._Definition.must_from_class(trial))


@pytest.mark.parametrize(
    "trial", ["from activities.contracts.target import TargetActivities\nimport policy.fence.plan"], indirect=True
)
async def test_contracts_and_policy_are_let_in(trial: type) -> None:
    RUNNER.prepare_workflow(temporalio.workflow._Definition.must_from_class(trial))


def test_modules_that_define_workflows_are_never_passed_through() -> None:
    folder = Path(workflows.__path__[0])
    defining = {path.parent.name for path in folder.rglob("*.py") if "@workflow.defn" in path.read_text(encoding="utf-8")}
    assert {f"workflows.{name}" for name in defining} == {DEFINITIONS}
    assert DEFINITIONS not in PASSED_THROUGH


GIVEN_UP_AFTER = 2.0
"""Seconds of a workflow task, after which the SDK gives it up."""


@workflow.defn(name="Answers")
class Answers:
    @workflow.run
    async def run(self) -> str:
        """What a coroutine of its own says."""
        return await asyncio.create_task(self._answer())

    async def _answer(self) -> str:
        return "done"


class Starved(deque[Any]):
    """What is next in a workflow's event loop, where its thread has no processor for a while between two coroutines."""

    def __init__(self, ready: deque[Any], seconds: float) -> None:
        super().__init__(ready)
        self._taken, self._seconds = 0, seconds

    def popleft(self) -> Any:
        item = super().popleft()
        self._taken += 1
        if self._taken == 2:
            time.sleep(self._seconds)
        return item


class StarvedRunner(GuardedRunner):
    """The first instance of each workflow is starved."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self.instances, self.inside, self.most_inside = seconds, 0, 0, 0

    def prepare_workflow(self, defn: temporalio.workflow._Definition) -> None:
        """This file is no module that the sandbox would let in."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance: Any = super().create_instance(det)
        self.instances += 1
        if self.instances == 1:
            instance._ready = Starved(instance._ready, self._seconds)
            run_once = instance._run_once

            def counted(**how: Any) -> None:
                self.inside += 1
                self.most_inside = max(self.most_inside, self.inside)
                try:
                    run_once(**how)
                finally:
                    self.inside -= 1

            instance._run_once = counted
        return instance  # type: ignore[no-any-return]


@pytest.mark.parametrize("late", [0.5, 3.0], ids=["soon", "after the first try to evict it"])
async def test_s35_a_workflow_whose_task_was_given_up_on_a_slow_machine_goes_on(server: str, late: float) -> None:
    """The SDK interrupted its thread, or had two in it: a coroutine was lost, and the episode stood still for good."""
    client = await Client.connect(server)
    runner = StarvedRunner(GIVEN_UP_AFTER + late)
    async with Worker(client, task_queue="slow", workflows=[Answers], workflow_runner=runner):
        handle = await client.start_workflow(
            Answers.run, id=f"slow-{late}", task_queue="slow", execution_timeout=timedelta(seconds=10 * PATIENCE)
        )
        assert await handle.result() == "done"
    assert (runner.instances, runner.most_inside) == (2, 1)
