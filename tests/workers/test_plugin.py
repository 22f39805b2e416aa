"""The sandbox as an import guard, and the purity of what it passes through."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import temporalio.workflow
from temporalio.worker import Replayer
from temporalio.worker.workflow_sandbox import UnintentionalPassthroughError

import workflows
import workflows.definitions
from workers.plugin import DEFINITIONS, PASSED_THROUGH, PLUGIN, RUNNER
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
