"""One activity of a workflow on the clockwork: its queue, its attempts, its time-outs and retries, as the server has them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.api.enums.v1 import RetryState, TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.activity_result import ActivityResolution, Cancellation, Success
from temporalio.bridge.proto.activity_result import Failure as ActivityFailed
from temporalio.bridge.proto.workflow_activation import ResolveActivity
from temporalio.bridge.proto.workflow_commands import ScheduleActivity
from temporalio.converter import DefaultFailureConverter
from temporalio.exceptions import ApplicationError, FailureError

from tests.workflows.contract import Call
from workers.payloads.converter import DATA_CONVERTER

if TYPE_CHECKING:
    from tests.workflows.clockwork import Clockwork
    from tests.workflows.executions import Execution

START = datetime(2026, 11, 1, tzinfo=UTC)
"""When every clock begins."""
Limit = tuple[timedelta, TimeoutType.ValueType]
CONVERTER = DATA_CONVERTER.payload_converter
FAILURES = DefaultFailureConverter()


class Lost(BaseException):
    """Raised while an activity is carried out: its worker is dead, and nobody ever hears of the attempt again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at an activity. decided: when the workflow scheduled the activity."""

    workflow_id: str
    run_id: str
    call: Call
    request: Any
    number: int
    decided: datetime
    now: datetime
    queue: str = ""
    kind: str = ""
    """Of the workflow."""
    activity_id: str = ""
    scheduled: datetime = START
    """From when its time counts: see `Activity`."""

    @property
    def repeats(self) -> bool:
        """Whether it may have been carried out before, for the same decision: an answer was lost, or a reset has had the server
        schedule it anew."""
        return self.number > 1 or self.scheduled > self.decided


@dataclass(slots=True)
class Work:
    """An attempt that takes its time. alive: its worker has shown a sign of life."""

    task: asyncio.Task[Any]
    alive: bool = False
    given_up: bool = False

    @property
    def waited_for(self) -> bool:
        """Whether its end would be heard of."""
        return not (self.given_up or self.task.done())

    def give_up(self) -> None:
        """Nobody waits for it any more; it hears of that with its next sign of life, if it gives any."""
        self.given_up = True
        if self.alive:
            self.task.cancel()


@dataclass(slots=True)
class Activity:
    """One activity of a workflow, over all its attempts."""

    execution: Execution
    command: ScheduleActivity
    call: Call
    request: Any
    decided: datetime
    scheduled: datetime
    """From when its time counts: later than it was decided where the server has scheduled it anew, after a reset."""
    number: int = 0
    answered: int = 0
    """The last attempt of which it is known how it ended."""
    over: bool = False
    _queued: datetime = START
    _work: Work | None = None
    _said: Failure | None = None
    """What the last attempt that was tried again has failed with."""

    @property
    def clockwork(self) -> Clockwork:
        return self.execution.clockwork

    def schedule(self) -> None:
        """Queue for a worker."""
        self.number += 1
        clockwork, patience = self.clockwork, _span(self.command, "schedule_to_start_timeout")
        self._queued = clockwork.now
        wait = clockwork.moments(0.001, 0.02)
        if clockwork.chance(clockwork.perils.queues):
            wait = clockwork.moments(1, 40)
        if self.call.method in clockwork.unserved:
            clockwork.unserved.remove(self.call.method)
            wait = timedelta(hours=1)
        whole = _span(self.command, "schedule_to_close_timeout")
        left = self.scheduled + whole - clockwork.now if whole is not None else None
        if patience is not None and wait > patience:
            clockwork.after(patience, lambda: self._time_out(TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START))
        elif left is not None and wait > left:
            clockwork.after(left, lambda: self._time_out(TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE))
        else:
            clockwork.after(wait, self._begin)

    def _begin(self) -> None:
        if self.over or self.execution.closed:
            return
        clockwork = self.clockwork
        if not clockwork.serves(self.command.task_queue, self.command.activity_type):
            self._wait_for_a_worker()
            return
        attempt = Attempt(
            workflow_id=self.execution.workflow_id,
            run_id=self.execution.run_id,
            call=self.call,
            request=self.request,
            number=self.number,
            decided=self.decided,
            now=clockwork.now,
            queue=self.command.task_queue,
            kind=self.execution.definition.name,
            activity_id=self.command.activity_id,
            scheduled=self.scheduled,
        )
        silence = _span(self.command, "heartbeat_timeout")
        limits = [(silence, TimeoutType.TIMEOUT_TYPE_HEARTBEAT)] if silence is not None else []
        if (span := _span(self.command, "start_to_close_timeout")) is not None:
            limits.append((span, TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE))
        if (whole := _span(self.command, "schedule_to_close_timeout")) is not None:
            limits.append((max(self.scheduled + whole - clockwork.now, timedelta(0)), TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE))
        end, kind = min(limits)
        reply = min(clockwork.moments(0.005, 3.0 if clockwork.chance(0.1) else 0.2), end * 0.9)
        try:
            value = clockwork.perform(attempt)
        except Lost:
            clockwork.after(end, lambda: self._time_out(kind))
        except FailureError as error:
            self._tell(error, reply)
        else:
            if isinstance(value, Work):
                self._follow(value, reply, [limit for limit in limits if limit[1] != TimeoutType.TIMEOUT_TYPE_HEARTBEAT], silence)
                return
            payload = CONVERTER.to_payload(value)
            clockwork.after(reply, lambda: self._resolve(ActivityResolution(completed=Success(result=payload))))

    def _wait_for_a_worker(self) -> None:
        now = self.clockwork.now
        if (patience := _span(self.command, "schedule_to_start_timeout")) is not None and now - self._queued >= patience:
            self._time_out(TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START)
        elif (whole := _span(self.command, "schedule_to_close_timeout")) is not None and now - self.scheduled >= whole:
            self._time_out(TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE)
        else:
            self.clockwork.after(timedelta(seconds=1), self._begin)

    def _follow(self, work: Work, reply: timedelta, limits: list[Limit], silence: timedelta | None) -> None:
        """Wait for an attempt until its time is over, or until nothing was heard of its worker for so long."""
        clockwork, number = self.clockwork, self.number
        self._work = work

        def ended(task: asyncio.Task[Any]) -> None:
            if self.answered >= number or task.cancelled():
                return
            self.answered = number
            if (error := task.exception()) is None:
                payload = CONVERTER.to_payload(task.result())
                clockwork.after(reply, lambda: self._resolve(ActivityResolution(completed=Success(result=payload))))
                return
            self._tell(error, reply)

        def late(kind: TimeoutType.ValueType) -> None:
            if self.answered >= number:
                return
            if kind == TimeoutType.TIMEOUT_TYPE_HEARTBEAT and silence is not None and work.alive:
                clockwork.after(silence, lambda: late(kind))
                return
            self.answered = number
            work.give_up()
            self._time_out(kind)

        end, last = min(limits)
        work.task.add_done_callback(ended)
        clockwork.after(end, lambda: late(last))
        if silence is not None:
            clockwork.after(silence, lambda: late(TimeoutType.TIMEOUT_TYPE_HEARTBEAT))

    def _tell(self, error: BaseException, reply: timedelta) -> None:
        """Where a failure was raised nobody asks, and one that a world raises again and again comes from further each time."""
        failure = Failure()
        if isinstance(error, FailureError):
            error.__traceback__ = None
        FAILURES.to_failure(error, CONVERTER, failure)
        delay = error.next_retry_delay if isinstance(error, ApplicationError) else None
        self.clockwork.after(reply, lambda: self._fail(failure, delay))

    def _time_out(self, kind: TimeoutType.ValueType) -> None:
        failure = Failure(message=f"activity {TimeoutType.Name(kind)}")
        failure.timeout_failure_info.timeout_type = kind
        self._fail(failure, None)

    def _fail(self, failure: Failure, delay: timedelta | None) -> None:
        if self.over or self.execution.closed:
            return
        pause = self._pause(failure, delay)
        if pause is not None:
            self._said = failure
            self.clockwork.after(pause, self.schedule)
            return
        if failure.HasField("timeout_failure_info") and self._said is not None:
            failure.cause.CopyFrom(self._said)
        outer = Failure(message="Activity task failed", cause=failure)
        outer.activity_failure_info.activity_id = self.command.activity_id
        outer.activity_failure_info.activity_type.name = self.command.activity_type
        outer.activity_failure_info.retry_state = self._retry_state(failure)
        self._resolve(ActivityResolution(failed=ActivityFailed(failure=outer)))

    def _retry_state(self, failure: Failure) -> RetryState.ValueType:
        """Why there is no further attempt."""
        policy, application = self.command.retry_policy, failure.application_failure_info
        if application.non_retryable or application.type in policy.non_retryable_error_types:
            return RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE
        if self.number == policy.maximum_attempts:
            return RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED
        return RetryState.RETRY_STATE_TIMEOUT

    def _pause(self, failure: Failure, delay: timedelta | None) -> timedelta | None:
        """How long until the next attempt; None: there is none."""
        policy, application = self.command.retry_policy, failure.application_failure_info
        too_late = failure.timeout_failure_info.timeout_type in {
            TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START,
            TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE,
        }
        final = application.non_retryable or application.type in policy.non_retryable_error_types
        if too_late or final or self.number == policy.maximum_attempts:
            return None
        first = policy.initial_interval.ToTimedelta() or timedelta(seconds=1)
        longest = policy.maximum_interval.ToTimedelta() or first * 100
        pause = delay or min(first * (policy.backoff_coefficient or 2.0) ** (self.number - 1), longest)
        whole = _span(self.command, "schedule_to_close_timeout")
        return None if whole is not None and self.clockwork.now + pause >= self.scheduled + whole else pause

    def cancel(self) -> None:
        """The workflow wants it no more, and does not wait to hear how it ended."""
        if self.command.cancellation_type != workflow.ActivityCancellationType.TRY_CANCEL:
            return
        if self._work is not None:
            self._work.give_up()
        failure = Failure(message="Activity cancelled")
        failure.cause.canceled_failure_info.SetInParent()
        failure.activity_failure_info.activity_id = self.command.activity_id
        failure.activity_failure_info.activity_type.name = self.command.activity_type
        self._resolve(ActivityResolution(cancelled=Cancellation(failure=failure)))

    def _resolve(self, resolution: ActivityResolution) -> None:
        if not self.over and not self.execution.closed:
            self.over = True
            self.execution.deliver(resolve_activity=ResolveActivity(seq=self.command.seq, result=resolution))


def _span(command: ScheduleActivity, name: str) -> timedelta | None:
    return getattr(command, name).ToTimedelta() if command.HasField(name) else None  # type: ignore[arg-type]
