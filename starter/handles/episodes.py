"""One episode from outside: ask it, command it, wait for its end. Every refusal comes back as a typed error with its reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.service import RPCError

from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, Phase, RecordEntry, episode_id
from policy.episode.node_action import NodeActionSpec, Verb
from starter import wording
from starter.errors import MissingError, RefusedError, RequestError, SilentError
from starter.handles.calls import ASK_AGAIN, DECIDED_WITHIN, ask, remembered, send_update, unanswered
from starter.handles.node_actions import Speaker, attested, hold_node, resume_node
from workflows.kit.messages import (
    AbortRequest,
    AcknowledgeRequest,
    ExtendRequest,
    HoldEpisodeRequest,
    OperatorCommand,
    PersonRequest,
    ResumeRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentEpisode:
    """An open episode that did not answer its query, and why."""

    node: str
    workflow_id: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEpisodes:
    """One node's episodes: the open one (`silent` where it does not answer), and how the last ones ended, newest first."""

    episode: EpisodeStatus | None = None
    silent: SilentEpisode | None = None
    ended: tuple[EpisodeResult, ...] = ()


class EpisodeHandle:
    """The episode of one node. `joined`: `fence` found an equal request running and started nothing."""

    def __init__(
        self,
        client: Client,
        *,
        cluster: str,
        node: str,
        run_id: str = "",
        joined: bool = False,
        speaker: Speaker | None = None,
    ) -> None:
        """speaker: who says what is said to it; None: that is not attested, and `who` is required."""
        self._speaker = speaker
        self.cluster = cluster
        self.node = node
        self.joined = joined
        self.workflow_id = episode_id(cluster, node)
        self.run_id = run_id
        self._client = client
        self._what = f"episode of {node}"
        self._handle: WorkflowHandle[Any, EpisodeResult] = client.get_workflow_handle(
            self.workflow_id, run_id=run_id or None, result_type=EpisodeResult
        )

    async def status(self) -> EpisodeStatus:
        """What it does now. Raises MissingError where none is open."""
        return await ask(
            self._client, self.workflow_id, "status", EpisodeStatus, what=self._what, run_id=self.run_id, only_open=True
        )

    async def seen(self) -> EpisodeStatus | SilentEpisode | None:
        """The same where many are shown: why it does not answer, None where it has ended since it was listed."""
        try:
            return await self.status()
        except MissingError:
            return None
        except RequestError as error:
            return SilentEpisode(node=self.node, workflow_id=self.workflow_id, problem=str(error))

    async def record(self) -> tuple[RecordEntry, ...]:
        """The decision record, also of an episode that has ended."""
        return await ask(self._client, self.workflow_id, "record", tuple[RecordEntry, ...], what=self._what, run_id=self.run_id)

    async def decided(self) -> EpisodeStatus | EpisodeResult | None:
        """Wait for the scanner's word on its permit: its status once it has one, queues for one or waits for a person, its result
        where it has ended by then. None: there was no answer within that time; the request stands all the same.
        """
        return await self._settled(lambda status: status.permit or bool(status.queued) or status.phase is Phase.NEEDS_HUMAN)

    async def is_open(self) -> bool:
        """Whether it runs. False also where there never was one. Raises SilentError where Temporal does not answer."""
        description = await remembered(self._handle, what=self._what)
        return description is not None and description.status is WorkflowExecutionStatus.RUNNING

    async def result(self) -> EpisodeResult:
        """Wait for the end. Raises MissingError where there is no such episode, RequestError where it did not end properly."""
        try:
            return await self._handle.result()
        except WorkflowFailureError as error:
            cause: BaseException = error.cause or error
            message = f"the episode of {self.node} ended without a result: {getattr(cause, 'message', '') or cause}"
            raise RequestError(message) from error
        except RPCError as error:
            raise unanswered(error, what=self._what) from error

    async def kept(self) -> EpisodeStatus | EpisodeResult | None:
        """Wait until a preservation is in force, or meets a problem: its status then, its result where it has ended by then.

        None: there was no answer within that time; the request stands all the same.
        """
        return await self._settled(lambda status: status.preserved_until is not None or bool(status.problem))

    async def _settled(self, settled: Callable[[EpisodeStatus], bool]) -> EpisodeStatus | EpisodeResult | None:
        try:
            async with asyncio.timeout(DECIDED_WITHIN.total_seconds()):
                while True:
                    try:
                        status = await self.status()
                    except MissingError:
                        return await self.result()
                    if settled(status):
                        return status
                    await asyncio.sleep(ASK_AGAIN.total_seconds())
        except (TimeoutError, SilentError):
            return None

    async def release(self, *, who: str, reason: str) -> str:
        """End the preservation now. Raises RefusedError where the node is held for something else."""
        await self._expect_preservation()
        return await self._send("release", Verb.RELEASE, PersonRequest(who=who, reason=reason))

    async def extend(
        self, *, who: str, reason: str, until: datetime | None = None, hold: timedelta | None = None, shorten: bool = False
    ) -> str:
        """Move the end of the preservation: to a moment, or by so much. Exactly one of the two. Raises RefusedError where the
        moment is earlier than the present end without `shorten`, or the node is held for something else.
        """
        await self._expect_preservation()
        request = ExtendRequest(who=who, reason=reason, until=until, hold=hold, shorten=shorten)
        return await self._send("extend", Verb.EXTEND, request, until=until, hold=hold, shorten=shorten)

    async def isolate(self, *, who: str, reason: str) -> str:
        """Have a preserved machine cut off from its volumes and its network while it is kept as failed. Raises RefusedError where
        the node is held for something else.
        """
        await self._expect_preservation()
        return await self._send("isolate", Verb.ISOLATE, PersonRequest(who=who, reason=reason))

    async def _expect_preservation(self) -> None:
        status = await self.status()
        if status.kind is not Kind.PRESERVATION:
            raise RefusedError(f"{self.node} is not preserved: it has an open {named(status)}")

    async def abort(self, *, who: str, reason: str, power_on: bool = False) -> str:
        """Stop it. Before off our marks are undone; after off consequences are finished and power stays off, unless asked."""
        request = AbortRequest(who=who, reason=reason, power_on=power_on)
        return await self._send("abort", Verb.ABORT, request, power_on=power_on)

    async def ack_off(self, *, who: str, reason: str, question: int, override: str = "") -> str:
        """Vouch that the machine is off (S8): the only substitute for reading it. question: its number, as of the
        status that the person saw; RefusedError says what is asked where that is another one by now (S48). override: see
        `NodeActionSpec`."""
        request = AcknowledgeRequest(who=who, reason=reason, question=question, override=override)
        return await self._send("acknowledge_off", Verb.ACK_OFF, request, question=question, override=override)

    async def hold(self, *, who: str, reason: str, until: datetime | None = None) -> str:
        """Nothing destructive until `resume`, or that moment. Where no episode is open, none begins until `resume`."""
        try:
            return await self._send("hold", Verb.HOLD, HoldEpisodeRequest(who=who, reason=reason, until=until), until=until)
        except MissingError as error:
            if self._speaker is None:
                raise
            if until is not None:
                raise RefusedError(f"{error}, and a hold of a node without one ends only by `resume`: leave out --for") from error
            return await hold_node(self._speaker.opening, self.cluster, self.node, reason=reason)

    async def resume(self, *, who: str, reason: str, question: int, of: str = "") -> str:
        """End a hold, or let a parked episode try again. question: see `ack_off`. of: the owner of the hold, "" for one's
        own; RefusedError names the owner where that is another person."""
        request = ResumeRequest(who=who, reason=reason, question=question, of=of)
        try:
            return await self._send("resume", Verb.RESUME, request, question=question, of=of)
        except MissingError as error:
            if self._speaker is None:
                raise
            return await resume_node(self._speaker.opening, self.cluster, self.node, of=of, missing=error)

    async def return_path(self, *, who: str, reason: str, question: int) -> str:
        """Have a path given back behind which pods were freed. question: see `ack_off`."""
        request = PersonRequest(who=who, reason=reason, question=question)
        return await self._send("return_path", Verb.RETURN_PATH, request, question=question)

    async def _send(self, update: str, action: Verb, request: OperatorCommand, **further: Any) -> str:
        """further: what the command says besides who and why. No NodeAction is made where no episode is open to take it."""
        if self._speaker is not None and not await self.is_open():
            raise MissingError(f"no open {self._what}")
        spec = NodeActionSpec(action=action, node=self.node, reason=request.reason, **further)
        request = await attested(self._speaker, self.cluster, request, spec)
        return await send_update(self._client, self.workflow_id, update, request, str, what=self._what, run_id=self.run_id)


def named(status: EpisodeStatus) -> str:
    """The holder of a node, in the refusal of another request."""
    why = f": {status.reason}" if status.reason else ""
    return f"{status.kind.value} {status.incident} ({wording.phase(status.phase)}){why}"
