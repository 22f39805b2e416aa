"""How a person's command is taken: it needs a name and a reason, and where it names a NodeAction, Kubernetes says who made that
(S42).

A caller's claim that it was verified is not believed. Whether a command without a NodeAction is accepted at all the worker
decides, not the workflow (`workers/interceptors/workflow_guards.py`, `activities/cluster/acts/node_actions.py`). A command that
names no object costs no activity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from activities.contracts.attestation import AttestationActivities, VerifyRequest
from activities.errors import ErrorType, error_message
from policy.episode.messages import EpisodeInput
from policy.episode.node_action import NodeActionSpec, Verified, name_problem, one_line, reason_problem
from workflows.kit import options
from workflows.kit.messages import OperatorCommand

Command = TypeVar("Command", bound=OperatorCommand)


def name_or_reason_problem(who: str, reason: str) -> str:
    """What a person's command lacks, "" for nothing: its name and its reason go into the decision record."""
    if problem := name_problem(who):
        return f"who: {problem}"
    return f"reason: {problem}" if (problem := reason_problem(reason)) else ""


def require_name_and_reason(command: OperatorCommand) -> None:
    """Raises ValueError for a command that lacks them."""
    if problem := name_or_reason_problem(command.who, command.reason):
        raise ValueError(problem)


def require_future(until: datetime | None) -> None:
    """Raises ValueError for a moment that is over, or that could be another one elsewhere."""
    if until is not None and (until.tzinfo is None or until <= workflow.now()):
        expected = "expected a moment that is still to come, such as 2126-11-24T09:30:00Z"
        raise ValueError(f"until: {expected}, got {until.isoformat()}")


def requester_command(request: EpisodeInput) -> OperatorCommand:
    """An episode's request as the command of its requester. A name that claims how it was verified is dropped."""
    return OperatorCommand(
        who=request.requester if not name_problem(request.requester) else "unknown",
        reason=one_line(request.reason),
        action=request.action,
    )


async def verified_command(
    command: Command, spec: NodeActionSpec, *, cluster: str, incident: str = "", still: Callable[[Command], None] | None = None
) -> Command:
    """A person's command, with how it was verified. incident: of the episode that it is given to. still: raises ValueError where
    it can't be given (any more); asked once that is known.

    Raises ApplicationError, which refuses it to the person.
    """
    if command.action is None:
        return replace(command, verified=Verified.NO, speaker="", sealed=None)
    update = workflow.current_update_info()
    request = VerifyRequest(
        cluster=cluster,
        spec=spec,
        action=command.action,
        incident=incident,
        use=update.id if update is not None else "",
    )
    try:
        verification = await options.execute(
            AttestationActivities.verify, request, options.attestation(cluster), f"verifies who says {spec.action.value}"
        )
    except ActivityError as error:
        raise refused(f"it could not be verified who says {spec.action.value}: {error_message(error)}") from error
    try:
        if still is not None:
            still(command)
    except ValueError as error:
        raise refused(str(error)) from error
    if not verification.speaker:
        workflow.logger.warning("who says %s is not verified: %s", spec.action.value, verification.problem)
        return replace(command, verified=Verified.NO, speaker="", sealed=None)
    return replace(command, verified=Verified.KUBERNETES, speaker=verification.speaker, sealed=verification.sealed)


def refused(message: str) -> ApplicationError:
    """How an update that was accepted is refused to the person after all."""
    return ApplicationError(message, type=ErrorType.NOT_LICENSED.value, non_retryable=True)
