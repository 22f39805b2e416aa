"""From one history of a workflow to the next, without ever giving its id back; of an episode also as another kind (S13)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

from policy.episode.messages import FencingInput, Kind, PreservationInput, RemediationInput

T = TypeVar("T")

HISTORY_LIMIT = 3000
"""Events after which a new history starts, well below the server's own suggestion, so that replays stay short."""


class NewHistory(Exception):  # noqa: N818 - no error, a change of paper
    """The episode goes on in a new history, where it stands. Raised while nothing is in flight; only the shell catches it.

    request: what it goes on with as another kind; None: as what it is.
    """

    def __init__(self, request: FencingInput | RemediationInput | PreservationInput | None = None) -> None:
        super().__init__()
        self.request: Any = request


LONG_REST = timedelta(minutes=5)
"""An episode that rests for less is at work, and ends on the version of the worker that it is on."""


def is_long(rest: timedelta | None) -> bool:
    """None: without end."""
    return rest is None or rest >= LONG_REST


def roll_is_due(*, may_move: bool, events: int | None = None) -> bool:
    """Whether it is time for a new history, since this one is long, or to have it on the version of the worker that is current by
    now. A run is pinned to the build it began on, which no worker runs any more one day; unversioned workers never see that.

    may_move: whether such a change is a reason now. events: how many are many, HISTORY_LIMIT where nothing is said.
    """
    info = workflow.info()
    long = info.is_continue_as_new_suggested() or info.get_current_history_length() >= (events or HISTORY_LIMIT)
    return long or (may_move and is_another_build_current())


def is_another_build_current() -> bool:
    """Temporal says so with a workflow task, and begins none for it: one that rests has to be woken, by any signal."""
    return workflow.info().is_target_worker_deployment_version_changed()


def build() -> str:
    """Of the worker that has this workflow now, "" where it names none."""
    version = workflow.info().get_current_deployment_version()
    return version.build_id if version is not None else ""


ANEW = RetryPolicy(maximum_interval=timedelta(minutes=1))
"""Of scanners and checks of devices: starts the next run where the workers can't replay the history of one. An input that is
wrong is not tried again."""

BEGIN_ANEW = frozenset({"HealthScanner"})
"""Workflows of which a run that replaces one that failed believes no state."""


def is_retry() -> bool:
    """Whether this run replaces one that failed, and so is given what that one was given, and not what it knew."""
    return workflow.info().attempt > 1


def carried(state: T | None) -> T | None:
    """The state that an earlier history has left; None in the first one, and where this run replaces one that failed: who wrote
    the state is no more to be seen then (`workers/interceptors/workflow_guards.py`). For a workflow of BEGIN_ANEW."""
    return None if is_retry() else state


def go_on(
    request: object,
    *,
    kind: Kind | None = None,
    memo: Mapping[str, Any] | None = None,
    retry_policy: RetryPolicy | None = None,
) -> NoReturn:
    """Continue in a new history, on the version of the worker that is current by now. kind: of episode, None: as what it is.
    memo, retry_policy: None: as this run has them."""
    workflow.continue_as_new(
        args=[request],
        workflow=kind.value if kind is not None else workflow.info().workflow_type,
        memo=memo,
        retry_policy=retry_policy,
        initial_versioning_behavior=workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE,
    )
