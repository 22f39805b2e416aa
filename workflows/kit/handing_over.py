"""From one history of an episode to the next, also as another kind, without ever giving the workflow id back (S13)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NoReturn

from temporalio import workflow

from policy.episode.messages import FencingInput, Kind, PreservationInput, RemediationInput

HISTORY_LIMIT = 3000
"""Events after which a long hold starts a new history, well below the server's own suggestion, so that replays stay short."""


class NewHistory(Exception):  # noqa: N818 - no error, a change of paper
    """The episode goes on in a new history, where it stands. Raised while nothing is in flight; only the shell catches it.

    request: what it goes on with as another kind; None: as what it is.
    """

    def __init__(self, request: FencingInput | RemediationInput | PreservationInput | None = None) -> None:
        super().__init__()
        self.request: Any = request


LONG_REST = timedelta(minutes=5)
"""An episode that rests for less is at work, and ends on the version of the worker that it is on."""


def roll_is_due(rest: timedelta | None = None) -> bool:
    """Whether a rest is to be had in a new history, since this one is long, or, where it is a long one, on the version of the
    worker that is current by now. rest: how long, None for without end."""
    info = workflow.info()
    if info.is_continue_as_new_suggested() or info.get_current_history_length() >= HISTORY_LIMIT:
        return True
    return (rest is None or rest >= LONG_REST) and info.is_target_worker_deployment_version_changed()


def go_on_as(kind: Kind, request: object, *, incident: str) -> NoReturn:
    """Continue as that kind of episode, on the version of the worker that is current by now."""
    workflow.continue_as_new(
        args=[request],
        workflow=kind.value,
        memo={**workflow.memo(), "incident": incident},
        initial_versioning_behavior=workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE,
    )
