"""What interrupts the story of an episode: raised where it is noticed, answered by the story of its kind.

None of them is a failure of the workflow. Anything else that is raised is a bug, fails the workflow *task*, and is retried
once a mended worker is there. A cancellation interrupts nothing: what it means, `run_to_its_end` has noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

from temporalio.exceptions import ActivityError, RetryState, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeout

from activities.errors import ErrorType, error_message, error_type

T = TypeVar("T")


class Interrupt(Exception):  # noqa: N818 - most of them are no errors
    """The story cannot simply go on. `reason` is the one line for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StepFailed(Interrupt):
    """A step used up its tries; the flow may be restarted while restarts are left."""


class ProofLost(StepFailed):
    """Off no longer holds: nothing that needs it can be tried again, only proving it anew (S6)."""


class WordRefuted(ProofLost):
    """A person's word for off is not true: the person is asked anew, and nothing more is done on it (S8)."""


class Unlicensed(StepFailed):
    """The cluster Lease is not ours just now: nothing was done and no try is used up; wait and look again (S38)."""

    patience: ClassVar = timedelta(minutes=30)
    """How long it is waited with before a person is asked."""
    pause: ClassVar = timedelta(seconds=10)
    waits: ClassVar = "waits for its licence"


class PassingRefusal(Unlicensed):
    """What is not repeated without another look was refused, and may not be the next time. The Kubernetes API refuses everybody
    for a moment after its start; after a minute of that a right is missing. A worker with a wrong clock leaves all to others, and
    none begins what comes too late."""

    patience: ClassVar = timedelta(minutes=1)
    pause: ClassVar = timedelta(seconds=2)
    waits: ClassVar = "was refused, and tries again"


class TooSlow(Unlicensed):
    """Looks were answered later than what follows them may wait: nothing was done, and they may be faster in a while (S45)."""

    patience: ClassVar = timedelta(minutes=10)
    pause: ClassVar = timedelta(minutes=1)
    waits: ClassVar = "waits before it looks again"


class NonRetryable(Interrupt):
    """Trying again cannot help (wrong password, bad configuration): a person is needed at once."""


class LicenceMissing(NonRetryable):
    """What licenses an act has been missing for as long as that is waited with: no other step of a ladder may act either."""


class OffenderFound(Interrupt):
    """The machine is repaired again and again, and a person is asked before it is switched on; also where this is a step of a
    ladder, which then begins with no further one."""


class TargetChanged(Interrupt):
    """What the API or a device shows now is not what was pinned (S9): nothing destructive may follow."""


class NeedGone(Interrupt):
    """The node came back, or its check is gone: the way back."""


class MachineGone(Interrupt):
    """The machine that was to be switched on again has gone for good: nothing is left to be given back."""


class Vetoed(Interrupt):
    """A person or another owner says no before off; wins (S20)."""


class AbortAsked(Interrupt):
    """A person aborted before off."""


INTERRUPTS = {
    each.__name__: each
    for each in (
        StepFailed,
        ProofLost,
        WordRefuted,
        Unlicensed,
        PassingRefusal,
        TooSlow,
        NonRetryable,
        LicenceMissing,
        OffenderFound,
        TargetChanged,
        NeedGone,
        MachineGone,
        Vetoed,
        AbortAsked,
    )
} | {"Hopeless": NonRetryable}
"""By their names, by which a new history learns of them. One that is renamed keeps its former name here: an episode that a person
is asked about may be left in it by an earlier build, its machine off (S35)."""

_HOPELESS = frozenset({ErrorType.INVALID_CONFIG, ErrorType.UNAUTHORIZED, ErrorType.NOT_SUPPORTED})
"""What answers like this answers like this for ever: a person is needed, not another try."""


def interrupt_for(error: ActivityError, what: str) -> Interrupt:
    """The turn that a failed activity means, `what` saying in people's words what it was about."""
    kind, reason = error_type(error), failure_line(what, error)
    if kind in {ErrorType.WRONG_CLOCK, ErrorType.EXPIRED}:
        return PassingRefusal(reason)  # neither says anything of the target (S18)
    if kind is ErrorType.FORBIDDEN:
        # Whatever may be repeated has been, for a minute at least (`options.py`): only of single attempts another may help.
        return PassingRefusal(reason) if error.retry_state is RetryState.MAXIMUM_ATTEMPTS_REACHED else NonRetryable(reason)
    if kind in _HOPELESS:
        return NonRetryable(reason)
    if kind is ErrorType.TARGET_CHANGED:
        return TargetChanged(reason)
    if kind is ErrorType.NOT_LICENSED:
        return Unlicensed(reason)
    return Vetoed(reason) if kind is ErrorType.VETOED else StepFailed(reason)


@contextmanager
def as_interrupt(what: str) -> Iterator[None]:
    """Raise a failed activity as the interrupt it means, `what` saying in people's words what it was about."""
    try:
        yield
    except ActivityError as error:
        raise interrupt_for(error, what) from error


async def run_to_its_end(work: Coroutine[Any, Any, T], *, on_cancel: Callable[[], None]) -> T:
    """Returns what the work returns, however often the workflow is cancelled meanwhile: each time on_cancel is called (S35)."""
    task = asyncio.create_task(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            on_cancel()
    return task.result()


def failure_line(what: str, error: ActivityError) -> str:
    """The line for people: what it is about, once, and what went wrong with it."""
    message = error_message(error)
    return message if message.startswith(what) else f"{what}: {message}"


def never_began(error: ActivityError) -> bool:
    """Whether no worker took the act in time, or the one that was asked declined because of its clock: nothing happened. Of acts
    that are tried once."""
    untaken = isinstance(error.cause, ActivityTimeout) and error.cause.type is TimeoutType.SCHEDULE_TO_START
    declined = error_type(error) is ErrorType.WRONG_CLOCK and error.retry_state is RetryState.MAXIMUM_ATTEMPTS_REACHED
    return untaken or declined


def is_unclear(error: ActivityError) -> bool:
    """Whether the act may have been carried out all the same: its worker was lost, it ran out of time, or it says so itself.

    An act that never began is clear.
    """
    kind = error_type(error)
    return kind is ErrorType.AMBIGUOUS or (kind is None and not never_began(error))
