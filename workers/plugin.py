"""Converter and workflow runner in one plugin, given to clients, workers and the replayer, so that the three can never disagree.

The SDK's sandbox is our import guard, and no more: each workflow is loaded in it once, when a worker starts, which is refused
where a workflow imports a module of ours that is not passed through, such as an activity's implementation with its client.
Episodes run outside of it: it watches no module but those that define workflows, and was a sixth of what a worker spends on an
episode (docs/adr/005-workflows-outside-the-sandbox.md). That workflows are deterministic is held by lint and by
`tests/workers/test_plugin.py`.
"""

from __future__ import annotations

import pkgutil

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import SandboxImportNotificationPolicy, _Definition

import workflows
from workers.interceptors.input_guard import Activate, InputGuard
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


class TimeGuard:
    """Refuses what has happened since the last workflow task where it comes with the moment of that task.

    A worker that replays a workflow for a query may get events that no task has brought yet (temporalio 1.35), and the task after
    it goes on from there: `workflow.now()` would have said an old moment (S18), and no later replay would do again what was done
    then, so that the workflow would be stuck for good. A refusal fails the query and drops what was replayed; Temporal gives the
    task with its own moment.
    """

    def __init__(self, activate: Activate) -> None:
        self._activate = activate
        self._moment: tuple[int, int] | None = None
        self._events = 0

    def __call__(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """What the workflow answers, or that the task failed."""
        if {job.WhichOneof("variant") for job in act.jobs} <= {"query_workflow", "remove_from_cache"}:
            return self._activate(act)
        moment = act.timestamp.seconds, act.timestamp.nanos
        if moment == self._moment and act.history_length > self._events:
            completion = WorkflowActivationCompletion(run_id=act.run_id)
            completion.failed.failure.message = "these events have the moment of the task before them: they are asked for again"
            return completion
        self._moment, self._events = moment, act.history_length
        return self._activate(act)


class GuardedRunner(UnsandboxedWorkflowRunner):
    """Runs workflows as they are, once the sandbox has let them in."""

    def prepare_workflow(self, defn: _Definition) -> None:
        """Raises UnintentionalPassthroughError for a workflow that imports what workflows may not."""
        SANDBOX.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """A workflow behind its entrance."""
        instance = super().create_instance(det)
        instance.activate = TimeGuard(InputGuard(det, instance.activate))  # type: ignore[method-assign]
        return instance


RUNNER = GuardedRunner()


def plugin_with(encryption: Encryption | None) -> SimplePlugin:
    """For a deployment with keys for its payloads, or None without."""
    return SimplePlugin("nodewarden", data_converter=converter_with(encryption), workflow_runner=lambda _given: RUNNER)


PLUGIN = plugin_with(None)
