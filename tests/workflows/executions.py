"""One run of a workflow on the clockwork: its tasks, timers, signals and updates, and the instance that a kill throws away.

An instance that is built anew is told the whole history, and must answer as the one before it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_activation import (
    CancelWorkflow,
    DoUpdate,
    FireTimer,
    InitializeWorkflow,
    NotifyHasPatch,
    QueryWorkflow,
    RemoveFromCache,
    ResolveSignalExternalWorkflow,
    SignalWorkflow,
    UpdateRandomSeed,
    WorkflowActivation,
    WorkflowActivationJob,
)
from temporalio.bridge.proto.workflow_commands import ScheduleActivity, UpdateResponse, WorkflowCommand
from temporalio.common import MetricMeter, Priority, TypedSearchAttributes
from temporalio.converter import DefaultFailureConverter
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails

from tests.workflows.attempts import CONVERTER, Activity

if TYPE_CHECKING:
    from tests.workflows.clockwork import Clockwork

UNREADABLE = "no code replays its history"
TASK_TIMEOUT = timedelta(seconds=10)
"""After which a workflow task whose worker has died is given to another (the server's default)."""

ENDINGS = frozenset(f"{ending}_workflow_execution" for ending in ("complete", "fail", "cancel", "continue_as_new"))
"""Commands after which a run is over."""


@dataclass(slots=True, kw_only=True)
class Word:
    """What became of an update. taken: when the workflow accepted it."""

    taken: datetime | None = None
    refused: str = ""
    answer: Any = None
    done: bool = False
    response: UpdateResponse | None = None
    """The last that was said to it."""


@dataclass(slots=True)
class Timer:
    """One timer of a workflow."""

    stopped: bool = False


RESOLVED_BY = {
    "schedule_activity": "resolve_activity",
    "request_cancel_activity": "resolve_activity",
    "signal_external_workflow_execution": "resolve_signal_external_workflow",
}
RESOLUTIONS = {"fire_timer", *RESOLVED_BY.values()}
"""What a run learns of that it has begun, by the command that has begun it."""

REPLAYS_OF_EACH = 4
"""About so often each task of a history is told again, where instances are thrown away by chance."""


@dataclass(slots=True)
class Task:
    """A workflow task of the history: what the workflow was told, and what it answered."""

    activation: WorkflowActivation
    answer: list[bytes]
    copied: bool = False
    """It was done in the run that this one was reset from: what names the run may be another."""


@dataclass
class Execution:
    """One run of a workflow."""

    clockwork: Clockwork
    definition: Any
    workflow_id: str
    run_id: str
    incident: str
    closed: bool = False
    ended: datetime | None = None
    result: Any = None
    failure: str = ""
    ending: WorkflowCommand | None = None
    """What it has ended with; None: it is open, or was ended by others."""
    original: str = ""
    """The run that its history began in: another one where that was reset."""
    former: Execution | None = None
    """The run that it goes on with."""
    continued: str = ""
    """The run that goes on with it."""
    attributes: dict[str, Payload] = field(default_factory=dict)
    memo: dict[str, Payload] = field(default_factory=dict)
    """What it can be searched by."""
    first_memo: dict[str, Payload] = field(default_factory=dict)
    """The memo that it began with."""
    suggests_rolling: bool = False
    is_of_old_build: bool = False
    """Whether the worker deployment has another version by now."""
    deaf_until: datetime | None = None
    """Until when no worker takes its next task."""
    started: datetime = field(init=False)
    arguments: list[Payload] = field(init=False)
    """What it was begun with."""
    attempt: int = 1
    next_is_replaced: bool = False
    """Whether Temporal begins the run that it goes on in once more where that fails."""
    _seed: int = field(init=False)
    _instance: WorkflowInstance | None = None
    _replayed_to: int = 0
    """How long the history was when the instance was made."""
    _history: list[Task] = field(default_factory=list)
    _length: int = 3
    _jobs: list[WorkflowActivationJob] = field(default_factory=list)
    _awake: bool = False
    _timers: dict[int, Timer] = field(default_factory=dict)
    _activities: dict[int, Activity] = field(default_factory=dict)
    _words: dict[str, Word] = field(default_factory=dict)
    _accepted: set[str] = field(default_factory=set)
    """Updates that were accepted, whatever became of them."""

    def __post_init__(self) -> None:
        self.started, self.original = self.clockwork.now, self.run_id
        self._seed = self.clockwork.random.getrandbits(60)

    # What comes from outside ----------------------------------------------------------------------------------------

    def begin(self, arguments: list[Payload], *, attempt: int = 1) -> None:
        """The first task."""
        self.arguments, self.attempt = arguments, attempt
        job = InitializeWorkflow(
            workflow_type=self.definition.name,
            workflow_id=self.workflow_id,
            arguments=arguments,
            randomness_seed=self._seed,
            attempt=attempt,
        )
        job.start_time.FromDatetime(self.started)
        self.deliver(initialize_workflow=job)

    def inherit(self, before: Execution) -> None:
        """Signals and updates that came too late for the run before."""
        kept = [job for job in before._jobs if job.HasField("signal_workflow") or job.HasField("do_update")]
        self._words |= before._words
        self._jobs += kept

    def go_back(self, before: Execution, tasks: int, *, reapplies: bool) -> None:
        """Begin with the first tasks of another run. What these had begun and not seen the end of begins anew; a timer ends when
        it was to end."""
        kept, later = before._history[:tasks], before._history[tasks:]
        self.started, self._seed, self.former, self._words = before.started, before._seed, before.former, before._words
        self.original, self.arguments, self.attempt = before.original, before.arguments, before.attempt
        self.memo, self.first_memo = dict(before.first_memo), dict(before.first_memo)
        jobs = [job for task in kept for job in task.activation.jobs]
        over = {(kind, getattr(job, kind).seq) for job in jobs if (kind := job.WhichOneof("variant") or "") in RESOLUTIONS}
        for task in kept:
            activation = WorkflowActivation()
            activation.CopyFrom(task.activation)
            activation.run_id = self.run_id
            self._history.append(Task(activation, task.answer, copied=True))
            self._length += 3 + len(activation.jobs) + len(task.answer)
            at = activation.timestamp.ToDatetime(tzinfo=UTC)
            for command in map(WorkflowCommand.FromString, task.answer):
                kind = command.WhichOneof("variant") or ""
                known = getattr(command, kind)
                if kind == "start_timer":
                    over_at = at + known.start_to_fire_timeout.ToTimedelta()
                    if ("fire_timer", known.seq) not in over:
                        self._start_timer(known.seq, over_at - self.clockwork.now)
                elif (RESOLVED_BY.get(kind, ""), getattr(known, "seq", 0)) not in over and kind != "update_response":
                    self._obey(command, at)
        if not kept:
            first = next(job for task in before._history for job in task.activation.jobs if job.HasField("initialize_workflow"))
            self._seed = first.initialize_workflow.randomness_seed = before._seed + 1
            self.deliver(initialize_workflow=first.initialize_workflow)
        else:
            self.deliver(update_random_seed=UpdateRandomSeed(randomness_seed=self.clockwork.random.getrandbits(60)))
        given = [*(job for task in later for job in task.activation.jobs), *before._jobs] if reapplies else []
        for job in given:
            if job.HasField("do_update"):
                job.do_update.run_validator = True
            if job.HasField("do_update") or job.HasField("signal_workflow"):
                self._jobs.append(job)

    def deliver(self, **job: Any) -> None:
        """Something has happened that the workflow is to hear of with its next task."""
        if self.closed:
            return
        self._jobs.append(WorkflowActivationJob(**job))
        if not self._awake:
            self._awake = True
            clockwork = self.clockwork
            lost = clockwork.chance(clockwork.perils.dies) and bool(self._history)
            delay = TASK_TIMEOUT if lost else clockwork.moments(0.001, 0.01)
            if self.deaf_until is not None:
                delay, self.deaf_until = max(delay, self.deaf_until - clockwork.now), None
            clockwork.after(delay, self._work)

    def signal(self, name: str, *arguments: Any) -> None:
        """Signal it."""
        payloads = [CONVERTER.to_payload(argument) for argument in arguments]
        self.deliver(signal_workflow=SignalWorkflow(signal_name=name, input=payloads))

    def update(self, name: str, argument: Any) -> Word:
        """Say something to it; what becomes of that is filled in as it happens."""
        return self.tell(name, [CONVERTER.to_payload(argument)])

    def tell(self, name: str, payloads: Sequence[Payload]) -> Word:
        """The same, of what is converted already."""
        number = f"{name}-{len(self._words)}"
        self._words[number] = word = Word()
        self.deliver(do_update=DoUpdate(id=number, protocol_instance_id=number, name=name, input=payloads, run_validator=True))
        return word

    def cancel(self, reason: str) -> None:
        """Ask it to end."""
        self.deliver(cancel_workflow=CancelWorkflow(reason=reason))

    def terminate(self) -> None:
        """End it in mid-air. What its activities have begun goes on."""
        self.closed, self.ended = True, self.ended or self.clockwork.now
        self.failure = "terminated"
        self.forget()

    def query(self, name: str, *arguments: Any) -> Any:
        """Ask it. Raises LookupError before its first task, and where it fails to answer."""
        answer = self.ask(name, [CONVERTER.to_payload(argument) for argument in arguments])
        return _value(answer, self.definition.queries[name].ret_type)

    def ask(self, name: str, payloads: Sequence[Payload]) -> Payload:
        """The same, of what is converted already."""
        if not self._history:
            raise LookupError(f"{self.workflow_id} has not begun yet")
        job = QueryWorkflow(query_id="asked", query_type=name, arguments=payloads)
        completion = self.clockwork.activate(self._replayed(), self._activation([WorkflowActivationJob(query_workflow=job)]))
        if completion.HasField("failed") or len(completion.successful.commands) != 1:
            raise LookupError(f"{name} of {self.workflow_id}: {completion.failed.failure.message}")
        answer = completion.successful.commands[0].respond_to_query
        if not answer.HasField("succeeded"):
            raise LookupError(f"{name} of {self.workflow_id}: {answer.failed.message}")
        return answer.succeeded.response

    @property
    def first(self) -> Execution:
        """The run that all began with."""
        run = self
        while run.former is not None:
            run = run.former
        return run

    @property
    def begun(self) -> bool:
        """Whether its first task is over: before that nothing can be asked of it."""
        return bool(self._history)

    @property
    def hears(self) -> bool:
        """Whether a task of it is under way: what it is asked now is answered after that."""
        return self._awake and not self.closed

    @property
    def tasks(self) -> int:
        """How many of its tasks are over."""
        return len(self._history)

    @property
    def moments(self) -> list[datetime]:
        """When each of them was."""
        return [task.activation.timestamp.ToDatetime(tzinfo=UTC) for task in self._history]

    @property
    def length(self) -> int:
        """Of its history."""
        return self._length

    @property
    def waits(self) -> bool:
        """Whether nothing is under way: it only moves when it is spoken to."""
        return not (self._awake or self._timers or any(not each.over for each in reversed(self._activities.values())))

    # Tasks ----------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        self._awake = False
        if self.closed or not self._jobs:
            return
        jobs, self._jobs = self._jobs, []
        if not self._history:
            self.first_memo = dict(self.memo)
        activation = self._activation(jobs)
        completion = self.clockwork.activate(self._replayed(), activation)
        if completion.HasField("failed"):
            self.clockwork.problems.append(f"{self.workflow_id}: a workflow task failed: {completion.failed.failure.message}")
            self.failure, self.closed = completion.failed.failure.message, True
            return
        commands = list(completion.successful.commands)
        self._remember(activation, commands, completion.successful.used_internal_flags)
        for command in commands:
            self._obey(command)
        if not self.closed and self.clockwork.chance(self.clockwork.perils.forgets) and self._is_worth_a_replay():
            self.forget()

    def _is_worth_a_replay(self) -> bool:
        """Not again before a history has grown by a part: else one of a thousand tasks is told a hundred times."""
        return REPLAYS_OF_EACH * (len(self._history) - self._replayed_to) >= len(self._history)

    def _activation(self, jobs: list[WorkflowActivationJob]) -> WorkflowActivation:
        activation = WorkflowActivation(
            run_id=self.run_id, history_length=self._length, jobs=jobs, continue_as_new_suggested=self.suggests_rolling
        )
        activation.target_worker_deployment_version_changed = self.is_of_old_build
        if self._history:
            activation.available_internal_flags.extend(self._history[-1].activation.available_internal_flags)
        activation.timestamp.FromDatetime(self.clockwork.now)
        return activation

    def _remember(self, activation: WorkflowActivation, commands: list[WorkflowCommand], flags: Iterable[int]) -> None:
        """An update that its validator refused leaves no trace in a history, nor does a task that consisted of it alone.
        flags: ways of the SDK that the task has gone, which the server keeps with it, so a replay goes them from there on."""
        said = [each.update_response for each in commands if each.HasField("update_response")]
        self._accepted |= {each.protocol_instance_id for each in said if each.HasField("accepted")}
        refused = {each.protocol_instance_id for each in said if each.HasField("rejected")} - self._accepted
        kept = [job for job in activation.jobs if not (job.HasField("do_update") and job.do_update.id in refused)]
        if not kept:
            return
        told = WorkflowActivation()
        told.CopyFrom(activation)
        del told.jobs[:]
        patches = [each.set_patch_marker.patch_id for each in commands if each.HasField("set_patch_marker")]
        told.jobs.extend(WorkflowActivationJob(notify_has_patch=NotifyHasPatch(patch_id=each)) for each in patches)
        told.jobs.extend(kept)
        told.is_replaying = True
        told.available_internal_flags.extend(set(flags) - set(told.available_internal_flags))
        for job in told.jobs:
            if job.HasField("do_update"):
                job.do_update.run_validator = False
        self._history.append(Task(told, [_words_of(each) for each in commands if _answers(each) not in refused]))
        begun = sum(job.HasField("resolve_activity") for job in kept)  # that a worker has taken it is an event of its own
        self._length += 3 + len(kept) + begun + len(commands)

    def _replayed(self) -> WorkflowInstance:
        """The instance; a new one is told the history, and must answer as the one before it did."""
        if self._instance is None:
            self._instance = instance = self.clockwork.in_a_loop(self._make)
            self._replayed_to = len(self._history)
            for number, task in enumerate(self._history):
                completion = self.clockwork.activate(instance, task.activation)
                answer = [_words_of(each) for each in completion.successful.commands]
                same = [*map(_kind_of, answer)] == [*map(_kind_of, task.answer)] if task.copied else answer == task.answer
                if completion.HasField("failed") or not same:
                    self.clockwork.problems.append(f"{self.workflow_id}: its replay goes another way at task {number}")
                    break
        return self._instance

    def _make(self) -> WorkflowInstance:
        info = workflow.Info(
            attempt=self.attempt,
            continued_run_id=self.former.run_id if self.former is not None else None,
            cron_schedule=None,
            execution_timeout=None,
            first_execution_run_id=self.first.run_id,
            headers={},
            namespace="default",
            original_execution_run_id=self.original,
            parent=None,
            root=None,
            priority=Priority.default,
            raw_memo=dict(self.memo),  # what a replay changes there is no memo
            retry_policy=None,
            run_id=self.run_id,
            run_timeout=None,
            search_attributes={},
            start_time=self.started,
            workflow_start_time=self.started,
            task_queue="nodewarden",
            task_timeout=TASK_TIMEOUT,
            typed_search_attributes=TypedSearchAttributes([]),
            workflow_id=self.workflow_id,
            workflow_type=self.definition.name,
        )
        details = WorkflowInstanceDetails(
            payload_converter_factory=lambda: CONVERTER,
            failure_converter_class=DefaultFailureConverter,
            interceptor_classes=[],
            defn=self.definition,
            info=info,
            randomness_seed=self._seed,
            extern_functions={"__temporal_get_metric_meter": lambda: MetricMeter.noop},
            disable_eager_activity_execution=False,
            worker_level_failure_exception_types=self.clockwork.failing,
            patch_activation_callback=None,
            last_completion_result=InitializeWorkflow().last_completion_result,
            last_failure=None,
        )
        return self.clockwork.runner_of(self.definition).create_instance(details)

    def forget(self) -> None:
        """Its worker dies, or needs the room."""
        if self._instance is not None:
            evict = WorkflowActivationJob(remove_from_cache=RemoveFromCache(message="forgotten"))
            self.clockwork.activate(self._instance, WorkflowActivation(run_id=self.run_id, jobs=[evict]))
            self._instance = None

    def close(self) -> None:
        """Nothing more will be asked of it."""
        self.closed = True
        self.forget()

    # Commands -------------------------------------------------------------------------------------------------------

    def _obey(self, command: WorkflowCommand, decided: datetime | None = None) -> None:
        """decided: when it was said, where that was before a reset."""
        if command.WhichOneof("variant") in ENDINGS:
            self.closed, self.ended, self.ending = True, self.clockwork.now, command
        match command.WhichOneof("variant"):
            case "start_timer":
                self._start_timer(command.start_timer.seq, command.start_timer.start_to_fire_timeout.ToTimedelta())
            case "cancel_timer":
                if (timer := self._timers.pop(command.cancel_timer.seq, None)) is not None:
                    timer.stopped = True
            case "schedule_activity":
                self._schedule(command.schedule_activity, decided or self.clockwork.now)
            case "request_cancel_activity":
                self._activities[command.request_cancel_activity.seq].cancel()
            case "signal_external_workflow_execution":
                self._signal(command)
            case "update_response":
                self._answer(command)
            case "complete_workflow_execution":
                self.result = _value(command.complete_workflow_execution.result, self.definition.ret_type)
            case "fail_workflow_execution":
                self.failure = command.fail_workflow_execution.failure.message
            case "cancel_workflow_execution":
                self.failure = "cancelled"
            case "continue_as_new_workflow_execution":
                anew = command.continue_as_new_workflow_execution
                self.next_is_replaced = anew.HasField("retry_policy")
                self.clockwork.roll(self, anew.workflow_type, list(anew.arguments), dict(anew.memo))
            case "upsert_workflow_search_attributes":
                self.attributes.update(command.upsert_workflow_search_attributes.search_attributes.indexed_fields)
            case "set_patch_marker":
                pass  # what is new is done from the beginning
            case "modify_workflow_properties":
                self.memo.update(command.modify_workflow_properties.upserted_memo.fields)
            case other:
                raise NotImplementedError(f"{self.workflow_id} asks for {other}")

    def _start_timer(self, number: int, span: timedelta) -> None:
        self._timers[number] = timer = Timer()

        def fire() -> None:
            if not timer.stopped and not self.closed:
                self._timers.pop(number, None)
                self.deliver(fire_timer=FireTimer(seq=number))

        self.clockwork.after(span, fire)

    def _schedule(self, command: ScheduleActivity, decided: datetime) -> None:
        call = self.clockwork.call_of(command.activity_type)
        request = _value(command.arguments[0], call.takes)
        self.clockwork.decided(call, request)
        self._activities[command.seq] = activity = Activity(self, command, call, request, decided, self.clockwork.now)
        activity.schedule()

    def _signal(self, command: WorkflowCommand) -> None:
        asked = command.signal_external_workflow_execution
        to, name, payloads = asked.workflow_execution.workflow_id, asked.signal_name, list(asked.args)

        def send() -> None:
            resolution = ResolveSignalExternalWorkflow(seq=asked.seq)
            argument = CONVERTER.from_payload(payloads[0]) if payloads else None
            if (other := self.clockwork.open(to)) is not None:
                other.deliver(signal_workflow=SignalWorkflow(signal_name=name, input=payloads))
                self.clockwork.heard(to, name, argument)
            elif not self.clockwork.unheard(to, name, argument):
                resolution.failure.message = f"{to} was not found"
                resolution.failure.application_failure_info.type = "ExternalWorkflowExecutionNotFound"
            self.deliver(resolve_signal_external_workflow=resolution)

        self.clockwork.after(self.clockwork.moments(0.001, 0.05), send)

    def _answer(self, command: WorkflowCommand) -> None:
        response = command.update_response
        word = self._words[response.protocol_instance_id]
        word.response = response
        match response.WhichOneof("response"):
            case "accepted":
                word.taken = self.clockwork.now
            case "rejected":
                word.refused, word.done = response.rejected.message, True
            case "completed":
                name = response.protocol_instance_id.rpartition("-")[0]
                word.answer, word.done = _value(response.completed, self.definition.updates[name].ret_type), True


def _value(payload: Payload, kind: Any) -> Any:
    return CONVERTER.from_payload(payload, kind)


def _words_of(command: WorkflowCommand) -> bytes:
    return command.SerializeToString(deterministic=True)


def _kind_of(command: bytes) -> tuple[str | None, int]:
    """What a replay compares of it (the server's does no more): its kind, and its number among those of its kind."""
    known = WorkflowCommand.FromString(command)
    kind = known.WhichOneof("variant")
    return kind, getattr(getattr(known, kind or ""), "seq", 0)


def _answers(command: WorkflowCommand) -> str:
    """The update that it is about, "" for none."""
    return command.update_response.protocol_instance_id
