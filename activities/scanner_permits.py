"""Whether a permit is held, asked of the scanner at the moment of use: the last look's question (S20).

A scanner that can't be asked is a "no" with its reason, also while Temporal is away (S37): what can't be proven held is not held.
Of one cluster there is one query under way at most, however many nodes are looked at: looks that ask meanwhile go into the next
one, all together. No answer is older than the look that asked for it, because a look joins only a query that has not been sent
yet (S14, S20, S38).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.common import QueryRejectCondition
from temporalio.service import RPCError

from activities.errors import ErrorType, failure
from policy.episode.messages import scanner_id
from policy.episode.modes import ClusterModes
from policy.episode.permits import PermitQuestion, PermitQuestions

QUERY_TIMEOUT = timedelta(seconds=5)
"""So long a look waits for its answer, its turn included."""


class ScannerPermits:
    """Asks the running scanners of the clusters that this process serves."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lines: dict[str, _Line] = {}

    async def holds(self, cluster: str, node: str, incident: str, override: str = "") -> tuple[bool, str]:
        """Whether that incident may disrupt that node, and why not."""
        answer = await self._answer(cluster, PermitQuestion(node=node, incident=incident, override=override))
        return answer.held, answer.reason

    async def paused(self, cluster: str) -> str:
        """Why nothing may be disrupted now, "" where a permit decides. A scanner that can't be asked is a reason, too (S20)."""
        return (await self._answer(cluster, PermitQuestion(node="", incident=""))).paused

    async def modes(self, cluster: str) -> ClusterModes:
        """What modes are set for its nodes. Raises where the scanner can't be asked (S20, S52)."""
        answers = await self._answers(cluster, PermitQuestion(node="", incident=""))
        if answers.modes is None:
            raise failure(ErrorType.UNREACHABLE, answers.problem)
        return answers.modes

    async def _answer(self, cluster: str, question: PermitQuestion) -> PermitQuestion:
        return (await self._answers(cluster, question)).of(question)

    async def _answers(self, cluster: str, question: PermitQuestion) -> _Answers:
        line = self._lines.setdefault(cluster, _Line())
        if line.next is None:
            questions: list[PermitQuestion] = []
            line.next = _Query(questions=questions, answers=asyncio.create_task(self._ask_in_turn(cluster, line, questions)))
        query = line.next
        query.questions.append(question)
        try:
            async with asyncio.timeout(QUERY_TIMEOUT.total_seconds()):
                return await asyncio.shield(query.answers)
        except TimeoutError:
            return _Answers(problem=f"the scanner of {cluster} can't be asked for the permit: it has not answered in time")

    async def _ask_in_turn(self, cluster: str, line: _Line, questions: list[PermitQuestion]) -> _Answers:
        async with line.under_way:
            line.next = None  # in one step with the sending: who comes after this is not in the query, and gets no answer of it
            return await self._ask(cluster, tuple(questions))

    async def _ask(self, cluster: str, questions: tuple[PermitQuestion, ...]) -> _Answers:
        scanner = self._client.get_workflow_handle(scanner_id(cluster))
        try:
            answered = await scanner.query(
                "holds_permits",
                PermitQuestions(questions=questions),
                result_type=PermitQuestions,
                reject_condition=QueryRejectCondition.NOT_OPEN,
                rpc_timeout=QUERY_TIMEOUT,
            )
        except WorkflowQueryRejectedError:
            return _Answers(problem=f"the scanner of {cluster} has been stopped")
        except (RPCError, WorkflowQueryFailedError) as error:
            return _Answers(problem=f"the scanner of {cluster} can't be asked for the permit: {error}")
        found = {(each.node, each.incident, each.override): each for each in answered.questions}
        return _Answers(problem=f"the scanner of {cluster} has not said who holds the permit", modes=answered.modes, found=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """To what was asked together. problem: why what is not found here is a no."""

    problem: str
    modes: ClusterModes | None = None
    found: Mapping[tuple[str, str, str], PermitQuestion] = field(default_factory=dict)

    def of(self, asked: PermitQuestion) -> PermitQuestion:
        """The answer to one question."""
        no = replace(asked, reason=self.problem, paused=self.problem)
        return self.found.get((asked.node, asked.incident, asked.override), no)


@dataclass(frozen=True, slots=True)
class _Query:
    """What is asked together, and the task that answers it."""

    questions: list[PermitQuestion]
    answers: asyncio.Task[_Answers]


@dataclass(slots=True)
class _Line:
    """Of one cluster: the query that may still be joined, None where there is none, and the lock of the one that is under way."""

    next: _Query | None = None
    under_way: asyncio.Lock = field(default_factory=asyncio.Lock)
