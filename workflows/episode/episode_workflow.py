"""The shell round the story of an episode of any kind: its histories, and what can be said to it.

It begins with a request, or with the state that an earlier history has left; a cancellation is an abort; where the story
leaves its history the next one is given the whole state. Handlers only check, have verified who speaks (`attestation.py`), and
store (`commands.py`); the story acts. An update that is refused at once leaves no trace in history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from policy.checks.verdict import is_target
from policy.episode.advice import advice, ways
from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, Outcome, RecordEntry, SeenNode, episode_id
from policy.episode.node_action import CIRCUIT_BREAKER, AcceptedCommand, NodeActionSpec, Verb, one_line, override_problem
from policy.values.errors import shown
from workflows.episode import commands
from workflows.episode.attestation import (
    Command,
    name_or_reason_problem,
    refused,
    requester_command,
    require_future,
    require_name_and_reason,
    verified_command,
)
from workflows.episode.end import close
from workflows.episode.episode import Episode
from workflows.episode.state import End, EpisodeState, History
from workflows.kit import continuation
from workflows.kit.continuation import NewHistory
from workflows.kit.interrupts import run_to_its_end
from workflows.kit.messages import AbortRequest, HoldEpisodeRequest, PersonRequest, ResumeRequest, invalid_input


def opened(kind: Kind, request: History, **given: Any) -> Episode:
    """The episode that was asked for, or as an earlier history has left it. given: further fields of a new one."""
    asks = requester_command(request)
    reason = one_line(given.pop("reason", request.reason))
    return Episode(
        request.state
        or EpisodeState(
            kind=kind,
            cluster=request.cluster,
            node=request.node,
            incident=request.incident or workflow.uuid4().hex[:12],
            started=workflow.now(),
            holder=request.holder,
            requester=(asks.by if request.by_a_person else asks.who) if request.requester else "",
            reason=reason,
            **given,
        )
    )


NOT_ATTESTED = "override: expected a NodeAction by which Kubernetes attests who overrides (`nodewarden deploy people`)"


class Story(Protocol):
    """What an episode of a kind does."""

    async def run(self) -> EpisodeResult:
        """To the end of the episode, from wherever its state says. Raises NewHistory."""


class EpisodeWorkflow:
    """Base of the workflows of every kind of episode."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        episode.advise = lambda: advice(self.ways())

    async def carry_out(self, story: Story, request: History) -> EpisodeResult:
        """The story to its end, or to the next history. A cancellation is an abort, however often it comes: what was done
        is undone before the end (S35). It bears no person's name, and so changes nothing of what only a person ends."""
        self._check_identity(request)
        result = await run_to_its_end(self._run_and_answer_all(story, request), on_cancel=self._take_cancellation)
        if isinstance(result, EpisodeResult):
            return result
        episode = self.episode
        episode.note_reset()
        goes_on = replace(result.request or request, incident=episode.state.incident, state=episode.state)
        raise continuation.go_on(goes_on, kind=episode.state.kind, memo={**workflow.memo(), "incident": episode.state.incident})

    def _take_cancellation(self) -> None:
        if kept := self.only_a_person_ends():
            self.episode.note("cancel", "refused", kept)
        else:
            commands.take_abort(self.episode, AbortRequest(who="Temporal", reason="the workflow was cancelled"))

    def _check_identity(self, request: History) -> None:
        """Fail at once under any id but the node's own: the id is what keeps a node's episodes single (S13). A state comes from
        an earlier history, and each leaves one: what that history was is asked by the worker
        (`workers/interceptors/workflow_guards.py`)."""
        expected, info = episode_id(request.cluster, request.node), workflow.info()
        if not request.cluster or not request.node or info.workflow_id != expected:
            raise invalid_input(
                f"expected an input with cluster and node, run under the workflow id {expected!r}; "
                f"this one runs under {info.workflow_id!r}"
            )
        if not is_target(request.node):
            raise invalid_input(f"node: expected the name of a Node, or machine/<namespace>/<name>, got {shown(request.node)}")
        if request.state is not None and info.continued_run_id is None:
            raise invalid_input("expected nothing but a request: the state of an episode comes from its own earlier history")
        if request.state is None and info.continued_run_id is not None:
            raise invalid_input(
                "expected the state of the history before: an episode is begun by a request, and never by another workflow"
            )

    async def _learn_who_asks(self, request: History) -> str:
        """Verify who wants this episode, where Kubernetes attests it. Returns why it may not begin, or ""."""
        command, spec = requester_command(request), request.node_action()
        if problem := override_problem(spec.override, spec.action):
            return f"override: {problem}"
        if spec.action is Verb.ACK_OFF and (problem := name_or_reason_problem(request.requester, request.reason)):
            return problem
        if request.action is not None:
            if beyond := request.unattested_field():
                return f"{beyond}: expected nothing but what NodeAction/{request.action.name} says"
            try:
                command = await verified_command(command, spec, cluster=request.cluster, incident=self.episode.state.incident)
            except ApplicationError as error:
                return error.message
            self.episode.state.requester, self.episode.state.requester_verified = command.by, command.verified
            self.episode.state.wish = command.sealed
            self.episode.note("request", "asked", f"by {command.by}: {command.reason}", who=command.by)
        if CIRCUIT_BREAKER in spec.override and command.sealed is None:
            return NOT_ATTESTED
        commands.take_override(self.episode, command.sealed)
        if spec.action is Verb.ACK_OFF:
            commands.take_acknowledgement(self.episode, command)
        return ""

    async def _run_and_answer_all(self, story: Story, request: History) -> EpisodeResult | NewHistory:
        """Return once what is new is published, and every update has its answer."""
        result: EpisodeResult | NewHistory
        objection = ""
        try:
            if request.state is not None:
                await self.episode.finish_rest()
            else:
                objection = await self._learn_who_asks(request)
            if objection:
                result = await close(self.episode, End(outcome=Outcome.REFUSED, message=objection), None)
            else:
                result = await story.run()
        except NewHistory as new_history:
            result = new_history
        await self.episode.publish_the_rest(last=isinstance(result, EpisodeResult))
        await workflow.wait_condition(workflow.all_handlers_finished)
        return result

    @workflow.query(description="What the episode does now.")
    def status(self) -> EpisodeStatus:
        """What the episode does now."""
        return replace(self.episode.status(), ways=self.ways())

    @workflow.query(description="The decision record so far.")
    def record(self) -> tuple[RecordEntry, ...]:
        """The decision record so far."""
        return tuple(self.episode.state.record)

    @workflow.signal(description="Look at the node now.")
    def node_changed(self, seen: SeenNode) -> None:
        """The scanner saw a change of our node."""
        self.episode.node_changed(seen)

    @workflow.signal(description="The scanner grants the permit that the episode waits for (not for people).")
    def permit_granted(self) -> None:
        """The scanner grants the permit that we queued for."""
        self.episode.take_grant()

    @workflow.signal(description="Another build is current (not for people).")
    def build_changed(self) -> None:
        """Another build is current: one that rests goes on under that. Temporal tells of it with the task that this brings."""

    async def _verified(self, action: Verb, command: Command, still: Callable[[Command], None], **said: Any) -> Command:
        """See `attestation.verified_command`. said: what the command says besides."""
        episode = self.episode
        spec = NodeActionSpec(action=action, node=episode.state.node, reason=command.reason, **said)
        return await verified_command(command, spec, cluster=episode.state.cluster, incident=episode.state.incident, still=still)

    def ways(self) -> tuple[AcceptedCommand, ...]:
        """The commands that would be accepted now, with what comes of each: what a validator refuses is not among them."""
        accepted = {verb: means for verb, means in self.consequences().items() if not self.why_not(verb)}
        return ways(self.episode.state.node, accepted, self.episode.state.question, self.episode.hold_owners)

    def consequences(self) -> dict[Verb, str]:
        """Every verb that this kind of episode has, and what comes of it."""
        abort = self.what_abort_means(AbortRequest(who="", reason=""))
        return commands.consequences(self.episode, abort=abort, before=self.what_hold_stops())

    def why_not(self, verb: Verb) -> str:
        """Why this episode does not accept that verb in its state, whatever the command says besides; "" where it does."""
        return commands.why_not(self.episode, verb)

    def check(self, verb: Verb, question: int | None = None) -> None:
        """Raises ValueError where it is not accepted, or answers another question than is asked (S48). question: of what
        answers."""
        if objection := self.why_not(verb):
            raise ValueError(objection)
        if question is not None:
            commands.require_question(self.episode, verb, question)

    @workflow.update(description="Stop it: before off our cordon and annotation are removed, after off the machine stays off.")
    async def abort(self, request: AbortRequest) -> str:
        """Stop the episode."""
        request = await self._verified(Verb.ABORT, request, self._check_abort, power_on=request.power_on)
        return f"{commands.take_abort(self.episode, request)}: {self.what_abort_means(request)}"

    def what_abort_means(self, request: AbortRequest) -> str:  # noqa: ARG002 - some kinds ask
        """What comes of an abort now, for the person who asks for it."""
        return "the episode ends, and our cordon and annotation are removed"

    def only_a_person_ends(self) -> str:
        """Why a cancellation does not end it, "" where it does (S53)."""
        return f"a cancellation is no person's word: {self.episode.repairs.question}" if self.episode.repairs.keeps else ""

    def stays_off(self) -> bool:
        """Whether it is on its way out, and the machine stays off whatever is said from now on."""
        return False

    @abort.validator
    def _check_abort(self, request: AbortRequest) -> None:
        require_name_and_reason(request)
        self.check(Verb.ABORT)
        node, former = self.episode.state.node, self.episode.state.abort_asked
        if request.power_on and not (former is not None and former.power_on) and self.stays_off():
            raise ValueError(
                f"abort --power-on: expected an episode that has not ended yet; this one ends, and leaves the machine off: "
                f"`nodewarden fence {node} --reason …` brings it back"
            )

    @workflow.update(description="Do nothing destructive until resume, or until a moment.")
    async def hold(self, request: HoldEpisodeRequest) -> str:
        """Nothing destructive until `resume`, or a moment."""
        request = await self._verified(Verb.HOLD, request, self._check_hold, until=request.until)
        return commands.take_hold(self.episode, request, before=self.what_hold_stops())

    def what_hold_stops(self) -> str:
        """What comes next that a hold keeps it from, "" where nothing is left."""
        return commands.NEXT_ACT

    @hold.validator
    def _check_hold(self, request: HoldEpisodeRequest) -> None:
        require_name_and_reason(request)
        require_future(request.until)
        self.check(Verb.HOLD)

    @workflow.update(description="End a hold, or let a parked episode try again.")
    async def resume(self, request: ResumeRequest) -> str:
        """End a hold, or let a parked episode try again."""
        request = await self._verified(Verb.RESUME, request, self._check_resume, question=request.question, of=request.of)
        try:
            return commands.take_resume(self.episode, request, needs_permit=self.needs_permit())
        except ValueError as error:
            raise refused(str(error)) from error

    def needs_permit(self) -> bool:
        """Whether one that waits for a person goes on with a permit only."""
        return True

    @resume.validator
    def _check_resume(self, request: ResumeRequest) -> None:
        require_name_and_reason(request)
        self.check(Verb.RESUME, request.question)

    @workflow.update(
        description="Have a path given back behind which pods were freed: be sure that nothing writes there any more."
    )
    async def return_path(self, request: PersonRequest) -> str:
        """Give back the paths that are still cut."""
        request = await self._verified(Verb.RETURN_PATH, request, self._check_return_path, question=request.question)
        return commands.take_return_path(self.episode, request)

    @return_path.validator
    def _check_return_path(self, request: PersonRequest) -> None:
        require_name_and_reason(request)
        self.check(Verb.RETURN_PATH, request.question)
