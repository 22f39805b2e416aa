"""Converter and workflow runner in one plugin, given to clients, workers and the replayer, so that the three can never disagree.

The SDK's sandbox is our import guard, and no more: each workflow is loaded in it once, when a worker starts, which is refused
where a workflow imports a module of ours that is not passed through, such as an activity's implementation with its client.
Episodes run outside of it: it watches no module but those that define workflows, and was a sixth of what a worker spends on an
episode (docs/adr/005-workflows-outside-the-sandbox.md). That workflows are deterministic is held by lint and by
`tests/workers/test_plugin.py`.
"""

from __future__ import annotations

import pkgutil

from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import SandboxImportNotificationPolicy, _Definition

import workflows
from workers.interceptors.input_guard import InputGuard
from workers.payloads.codec import Encryption
from workers.payloads.converter import converter_with

DEFINITIONS = "workflows.definitions"
"""The package of the modules that define workflows: never passed through."""

PASSED_THROUGH = (
    "policy",
    "activities.contracts",
    "activities.errors",
    *(room.name for room in pkgutil.iter_modules(workflows.__path__, prefix="workflows.") if room.name != DEFINITIONS),
)

SANDBOX = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH).with_import_notification_policy(
        SandboxImportNotificationPolicy.WARN_ON_DYNAMIC_IMPORT
        | SandboxImportNotificationPolicy.RAISE_ON_UNINTENTIONAL_PASSTHROUGH
    )
)


class GuardedRunner(UnsandboxedWorkflowRunner):
    """Runs workflows as they are, once the sandbox has let them in."""

    def prepare_workflow(self, defn: _Definition) -> None:
        """Raises UnintentionalPassthroughError for a workflow that imports what workflows may not."""
        SANDBOX.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """A workflow behind its entrance."""
        instance = super().create_instance(det)
        instance.activate = InputGuard(det, instance.activate)  # type: ignore[method-assign]
        return instance


RUNNER = GuardedRunner()


def plugin_with(encryption: Encryption | None) -> SimplePlugin:
    """For a deployment with keys for its payloads, or None without."""
    return SimplePlugin("nodewarden", data_converter=converter_with(encryption), workflow_runner=lambda _given: RUNNER)


PLUGIN = plugin_with(None)
