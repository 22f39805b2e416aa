"""Converter and sandbox in one plugin, given to clients, workers and the replayer, so that the three can never disagree.

The sandbox is also an import guard: a worker refuses to start when a workflow imports a module of ours that is not passed
through, such as an activity's implementation with its client. Only the modules that define workflows are loaded anew in the
sandbox. The others are passed through: half the memory of an episode, and equal types on both sides, but out of the
sandbox's sight; their purity is held by lint and by `tests/workers/test_plugin.py`.
"""

from __future__ import annotations

import pkgutil

from temporalio.plugin import SimplePlugin
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import SandboxImportNotificationPolicy

import workflows
from workers.converting import DATA_CONVERTER

DEFINITIONS = "workflows.definitions"
"""The package of the modules that define workflows: never passed through."""

PASSED_THROUGH = (
    "policy",
    "activities.contracts",
    "activities.errors",
    *(room.name for room in pkgutil.iter_modules(workflows.__path__, prefix="workflows.") if room.name != DEFINITIONS),
)

RUNNER = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH).with_import_notification_policy(
        SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        | SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    )
)

PLUGIN = SimplePlugin("nodewarden", data_converter=DATA_CONVERTER, workflow_runner=lambda _given: RUNNER)
