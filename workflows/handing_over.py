"""From one kind of episode to another, or to a new history of the same, without ever giving the workflow id back (S13)."""

from __future__ import annotations

from typing import NoReturn

from temporalio import workflow

from policy.episodes import Kind, PreservationInput, RemediationInput


def go_on_as(kind: Kind, request: PreservationInput | RemediationInput, *, incident: str) -> NoReturn:
    """Continue as that kind of episode, on the version of the worker that is current by now."""
    workflow.continue_as_new(
        args=[request],
        workflow=kind.value,
        memo={"incident": incident},
        initial_versioning_behavior=workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE,
    )
