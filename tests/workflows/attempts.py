"""One activity of a workflow on the clockwork: its queue, its attempts, its time-outs and retries, as the server has them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.activity_result import ActivityResolution, Cancellation, Success
from temporalio.bridge.proto.activity_result import Failure as ActivityFailed
from temporalio.bridge.proto.workflow_activation import ResolveActivity
from temporalio.bridge.proto.workflow_commands import ScheduleActivity
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DefaultFailureConverter
from temporalio.exceptions import ApplicationError, FailureError

from tests.workflows.contract import Call

if TYPE_CHECKING:
    from tests.workflows.clockwork import Clockwork
    from tests.workflows.executions import Execution

START = datetime(2026, 11, 1, tzinfo=UTC)
"""When every clock begins."""
CONVERTER = pydantic_data_converter.payload_converter
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


@dataclass(slots=True)
class Activity:
    """One activity of a workflow, over all its attempts."""

    execution: Execution
    command: ScheduleActivity
    call: Call
    request: Any
    decided: datetime
    number: int = 0
    over: bool = False

    @property
    def clockwork(self) -> Clockwork:
        return self.execution.clockwork

    def schedule(self) -> None:
        """Queue for a worker."""
        self.number += 1
        clockwork, patience = self.clockwork, _span(self.command, "schedule_to_start_timeout")
        wait = clockwork.moments(0.001, 0.02)
        if clockwork.chance(clockwork.perils.queues):
            wait = clockwork.moments(1, 40)
        if self.call.method in clockwork.unserved:
            clockwork.unserved.remove(self.call.method)
            wait = timedelta(hours=1)
        if patience is not None and wait > patience:
            clockwork.after(patience, lambda: self._time_out(TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START))
        else:
            clockwork.after(wait, self._begin)

    def _begin(self) -> None:
        if self.over or self.execution.closed:
            return
        clockwork = self.clockwork
        attempt = Attempt(
            workflow_id=self.execution.workflow_id,
            run_id=self.execution.run_id,
            call=self.call,
            request=self.request,
            number=self.number,
            decided=self.decided,
            now=clockwork.now,
        )
        limits = [
            (span, kind)
            for name, kind in (
                ("start_to_close_timeout", TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE),
                ("heartbeat_timeout", TimeoutType.TIMEOUT_TYPE_HEARTBEAT),
            )
            if (span := _span(self.command, name)) is not None
        ]
        if (whole := _span(self.command, "schedule_to_close_timeout")) is not None:
            limits.append((max(self.decided + whole - clockwork.now, timedelta(0)), TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE))
        end, kind = min(limits)
        reply = min(clockwork.moments(0.005, 3.0 if clockwork.chance(0.1) else 0.2), end * 0.9)
        try:
            value = clockwork.perform(attempt)
        except Lost:
            clockwork.after(end, lambda: self._time_out(kind))
        except FailureError as error:
            failure = Failure()
            error.__traceback__ = None
            FAILURES.to_failure(error, CONVERTER, failure)
            delay = error.next_retry_delay if isinstance(error, ApplicationError) else None
            clockwork.after(reply, lambda: self._fail(failure, delay))
        else:
            payload = CONVERTER.to_payload(value)
            clockwork.after(reply, lambda: self._resolve(ActivityResolution(completed=Success(result=payload))))

    def _time_out(self, kind: TimeoutType.ValueType) -> None:
        failure = Failure(message=f"activity {TimeoutType.Name(kind)}")
        failure.timeout_failure_info.timeout_type = kind
        self._fail(failure, None)

    def _fail(self, failure: Failure, delay: timedelta | None) -> None:
        if self.over or self.execution.closed:
            return
        pause = self._pause(failure, delay)
        if pause is not None:
            self.clockwork.after(pause, self.schedule)
            return
        outer = Failure(message="Activity task failed", cause=failure)
        outer.activity_failure_info.activity_id = self.command.activity_id
        outer.activity_failure_info.activity_type.name = self.command.activity_type
        self._resolve(ActivityResolution(failed=ActivityFailed(failure=outer)))

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
        return None if whole is not None and self.clockwork.now + pause >= self.decided + whole else pause

    def cancel(self) -> None:
        """The workflow wants it no more, and does not wait to hear how it ended."""
        if self.command.cancellation_type != workflow.ActivityCancellationType.TRY_CANCEL:
            return
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
