"""What episodes ask their scanner, a permit or a portion of pods, and what each question was answered.

A question comes by signal and its answer is read by query. An update would be one message less, but of updates that meet a worker
which has not replayed the scanner yet, after a task that timed out, Temporal's SDK writes a history that no worker can go on with
(temporalio/sdk-python#1591; temporalio/sdk-rust#888), and episodes ask most while workers are being lost.
"""

from __future__ import annotations

import hashlib

from policy.episode.messages import episode_id
from policy.episode.node_action import CIRCUIT_BREAKER
from policy.episode.permits import (
    PermitAnswer,
    PermitDecision,
    PermitRequest,
    PortionAnswer,
    PortionRequest,
    ScannerAnswer,
    ScannerQuestion,
)
from workflows.scanner.permits import Permits
from workflows.scanner.queue import PermitQueue
from workflows.scanner.state import ScannerState

MOST_KEPT = 200
"""Answers, the newest: each is read within seconds, and a question of which the answer is gone is asked again."""


class Answers:
    """Of one scanner, kept in its state: a question may be asked of one history and its answer be read of the next."""

    def __init__(self, cluster: str, state: ScannerState, queue: PermitQueue, permits: Permits) -> None:
        self._cluster = cluster
        self._state = state
        self._queue = queue
        self._permits = permits
        self._open: set[str] = set()

    async def take(self, question: ScannerQuestion) -> None:
        """Answer it, once: an activity that is tried again asks the same."""
        if (key := _key(question)) in self._state.answers or key in self._open:
            return
        self._open.add(key)
        try:
            answer = await self._answer(question)
        finally:
            self._open.discard(key)
        if answer is None:
            return
        self._state.answers[key] = answer
        while len(self._state.answers) > MOST_KEPT:
            del self._state.answers[next(iter(self._state.answers))]

    def of(self, question: ScannerQuestion) -> ScannerAnswer:
        """Empty while there is none."""
        return self._state.answers.get(_key(question), ScannerAnswer())

    async def _answer(self, question: ScannerQuestion) -> ScannerAnswer | None:
        if (permit := question.permit) is not None:
            if wrong := _wrong_permit(permit, self._cluster):
                refused = PermitAnswer(decision=PermitDecision.REFUSED, reason=f"the scanner refused the request: {wrong}")
                return ScannerAnswer(permit=refused)
            answer = await self._queue.ask(permit)
            return ScannerAnswer(permit=answer) if answer is not None else None
        portion = question.portion
        wrong = _wrong_portion(portion) if portion is not None else "expected a permit or a portion, got neither"
        if portion is not None and not wrong:
            return ScannerAnswer(portion=self._permits.hand_out(portion))
        return ScannerAnswer(portion=PortionAnswer(problem=f"the scanner refused the question: {wrong}"))


def _key(question: ScannerQuestion) -> str:
    """What a client asks under the id of another one's question is another question (S14), and a long one has no long key."""
    return hashlib.sha256(repr(question).encode()).hexdigest()[:24]


def _wrong_permit(request: PermitRequest, cluster: str) -> str:
    """Why it can't be answered, "" where it can. The workflow that has the node's id is the only one that may have its permit
    (S13)."""
    if request.workflow_id != episode_id(cluster, request.node):
        return "workflow_id: expected that of the node's episode, got another one"
    if not request.incident:
        return "incident: expected the episode's incident id, got nothing"
    if request.override not in {"", CIRCUIT_BREAKER}:
        return f"override: expected {CIRCUIT_BREAKER} or nothing, got another word"
    return ""


def _wrong_portion(request: PortionRequest) -> str:
    """Why it can't be answered, "" where it can."""
    if request.pods < 1 or request.per_minute < 1 or not request.incident:
        return f"expected an incident, at least one pod and a limit of at least 1, got {request.pods} and {request.per_minute}"
    return ""
