"""Converter and workflow runner in one plugin, given to clients, workers and the replayer, so that the three can never disagree.

The SDK's sandbox is our import guard, and no more: each workflow is loaded in it once, when a worker starts, which is refused
where a workflow imports a module of ours that is not passed through, such as an activity's implementation with its client.
Episodes run outside of it: it watches no module but those that define workflows, and was a sixth of what a worker spends on an
episode (docs/adr/005-workflows-outside-the-sandbox.md). That workflows are deterministic is held by lint and by
`tests/workers/test_plugin.py`.
"""

from __future__ import annotations

import logging
import pkgutil
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import WorkflowActivation, WorkflowActivationJob
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.plugin import SimplePlugin
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
from temporalio.workflow import SandboxImportNotificationPolicy, _Definition

import workflows
from activities.errors import ErrorType, failure
from workers.errors import OLD_MOMENT, expectations
from workers.payloads.converter import converter_with
from workers.payloads.encryption import Encryption

# What a workflow is given, looked at before it gets it: its input, and the arguments of its signals.
#
# The SDK fails a workflow *task* over an input that it can't read, or a signal with an argument too few, and tries that task
# again for ever: the episode stands still, its node's id is taken, and no person learns why. A signal stays in its history for
# good. So an input that is none ends the workflow with InvalidConfig, and such a signal is dropped with a line in the log. What
# a workflow left itself (continue-as-new) is not refused here: that we can't read our own is a defect, and a mended worker goes
# on with it. Updates and queries are refused by the SDK.

log = logging.getLogger(__name__)

Activate = Callable[[WorkflowActivation], WorkflowActivationCompletion]

MOST_MISTAKES = 3


class InputGuard:
    """Stands before one instance of a workflow; `activate` is the SDK's."""

    def __init__(self, details: WorkflowInstanceDetails, activate: Activate) -> None:
        self._details = details
        self._activate = activate
        self._converter = details.payload_converter_factory()
        self._refused = ""

    def __call__(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """What the workflow answers, or what is answered in its place."""
        for job in act.jobs:
            if job.HasField("initialize_workflow") and not job.initialize_workflow.continued_from_execution_run_id:
                self._refused = self._problem(job.initialize_workflow.arguments, self._details.defn.arg_types)
        if self._refused and not any(job.HasField("remove_from_cache") or job.HasField("query_workflow") for job in act.jobs):
            return self._refusal(act.run_id)
        kept = [job for job in act.jobs if not self._is_dropped(job)]
        if len(kept) != len(act.jobs):
            del act.jobs[:]
            act.jobs.extend(kept)
        return self._activate(act)

    def _is_dropped(self, job: WorkflowActivationJob) -> bool:
        if not job.HasField("signal_workflow"):
            return False
        signal, info = job.signal_workflow, self._details.info
        known = self._details.defn.signals.get(signal.signal_name)
        problem = self._problem(signal.input, known.arg_types) if known is not None else ""
        if problem:
            log.warning("%s %s: the signal %s is dropped: %s", info.workflow_type, info.workflow_id, signal.signal_name, problem)
        return bool(problem)

    def _problem(self, payloads: Sequence[Payload], types: Sequence[type] | None) -> str:
        types = types or ()
        if len(payloads) != len(types):
            return f"expected {len(types)} argument{'' if len(types) == 1 else 's'}, got {len(payloads)}"
        try:
            values: list[Any] = self._converter.from_payloads(payloads, list(types))
        except ValidationError as error:
            return expectations(error.errors(include_url=False, include_input=False)[:MOST_MISTAKES], "the argument")
        except Exception as error:  # noqa: BLE001 - each encoding has failures of its own
            return f"an argument can't be read ({type(error).__name__}: {str(error)[:200]})"
        wrong = [
            kind for kind, value in zip(types, values, strict=True) if isinstance(kind, type) and not isinstance(value, kind)
        ]
        return f"expected {wrong[0].__name__}, as JSON" if wrong else ""

    def _refusal(self, run_id: str) -> WorkflowActivationCompletion:
        completion = WorkflowActivationCompletion(run_id=run_id)
        shown = completion.successful.commands.add().fail_workflow_execution.failure
        error = failure(ErrorType.INVALID_CONFIG, f"the input of {self._details.info.workflow_type}: {self._refused}")
        self._details.failure_converter_class().to_failure(error, self._converter, shown)
        return completion


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
            completion.failed.failure.message = OLD_MOMENT
            return completion
        self._moment, self._events = moment, act.history_length
        return self._activate(act)


class ThreadGuard:
    """Lets one thread at a time into an instance of a workflow.

    The SDK gives a workflow task up after two seconds (TMPRL1101), which a slow machine needs for the first ones of a worker. It
    then evicts the workflow while the task's thread is still in it (1.35: `wait_for` has cancelled what it means to wait for).
    """

    TURN_SECONDS = 1.0

    def __init__(self, activate: Activate) -> None:
        self._activate = activate
        self._inside = threading.Lock()

    def __call__(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """What the workflow answers. Raises RuntimeError while another thread is in it: the SDK evicts again in two seconds."""
        if not self._inside.acquire(timeout=self.TURN_SECONDS):
            raise RuntimeError("an earlier task of this workflow still runs")
        try:
            return self._activate(act)
        finally:
            self._inside.release()


def no_thread() -> None:
    """What the SDK is told of a workflow's thread: it would interrupt a slow one. An exception that strikes between two of a
    workflow's coroutines loses one: then no eviction ends ("Eviction processed, but 3 tasks remain"), and the episode stands
    still for as long as its worker lives (S35)."""


class GuardedRunner(UnsandboxedWorkflowRunner):
    """Runs workflows as they are, once the sandbox has let them in."""

    def __init__(self) -> None:
        super().__init__()
        self._let_in = set[type]()

    def prepare_workflow(self, defn: _Definition) -> None:
        """Raises UnintentionalPassthroughError for a workflow that imports what workflows may not. A class is tried once: it is
        the same for each worker of a process, and imports all of ours that is not passed through."""
        if defn.cls not in self._let_in:
            SANDBOX.prepare_workflow(defn)
            self._let_in.add(defn.cls)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance = super().create_instance(det)
        instance.activate = ThreadGuard(TimeGuard(InputGuard(det, instance.activate)))  # type: ignore[method-assign]
        instance.get_thread_id = no_thread  # type: ignore[method-assign]
        return instance


RUNNER = GuardedRunner()


def plugin_with(encryption: Encryption | None) -> SimplePlugin:
    """For a deployment with keys for its payloads, or None without."""
    return SimplePlugin("nodewarden", data_converter=converter_with(encryption), workflow_runner=lambda _given: RUNNER)


PLUGIN = plugin_with(None)
