"""What people, programs and the scanner can say to an episode of any kind, with validators that refuse bad input clearly.

Handlers only check and store (`workflows/episode/episode.py`); the story acts. A refused update leaves no trace in history.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from activities.errors import ErrorType
from policy.episode.messages import EpisodeStatus, Phase, RecordEntry
from policy.episode.observation import Observation
from workflows.episode.episode import Episode
from workflows.kit.ids import episode_id
from workflows.kit.messages import AbortRequest, PersonRequest


def by_a_person(who: str, reason: str) -> None:
    """A person's word needs a name and a reason; both go into the decision record."""
    for name, value in (("who", who), ("reason", reason)):
        if not value.strip():
            raise ValueError(f"{name}: expected a name or a sentence, got nothing; it goes into the decision record")


class EpisodeConversation:
    """Base of the workflows of every kind of episode."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode

    def check_identity(self, cluster: str, node: str) -> None:
        """Fail at once under any id but the node's own: the id is what keeps a node's episodes single (S13)."""
        expected = episode_id(cluster, node)
        if not cluster or not node or workflow.info().workflow_id != expected:
            raise ApplicationError(
                f"expected an input with cluster and node, run under the workflow id {expected!r}; "
                f"this one runs under {workflow.info().workflow_id!r}",
                type=ErrorType.INVALID_CONFIG.value,
                non_retryable=True,
            )

    async def all_is_said(self) -> None:
        """Return once people have been told what is new, and everybody who asked has his answer."""
        await self.episode.tell_the_rest()
        await workflow.wait_condition(workflow.all_handlers_finished)

    @workflow.query
    def status(self) -> EpisodeStatus:
        """What the episode does now."""
        return self.episode.status()

    @workflow.query
    def record(self) -> tuple[RecordEntry, ...]:
        """The decision record so far."""
        return tuple(self.episode.record)

    @workflow.signal
    def observe(self, observation: Observation) -> None:
        """The scanner saw a change of our node."""
        self.episode.observe(observation)

    @workflow.signal
    def permit_granted(self) -> None:
        """The scanner grants the permit that we queued for."""
        self.episode.hear_grant()

    @workflow.update
    def abort(self, request: AbortRequest) -> str:
        """Stop the episode."""
        return f"{self.episode.take_abort(request)}: {self.what_abort_means(request)}"

    def what_abort_means(self, request: AbortRequest) -> str:  # noqa: ARG002 - some kinds ask
        """What comes of an abort now, for whoever has asked for it."""
        return "the episode ends, and takes what it has added off the node"

    @abort.validator
    def _check_abort(self, request: AbortRequest) -> None:
        by_a_person(request.who, request.reason)
        self._still_open("abort")

    @workflow.update
    def hold(self, request: PersonRequest) -> str:
        """Nothing destructive until `resume`."""
        return self.episode.take_hold(request)

    @hold.validator
    def _check_hold(self, request: PersonRequest) -> None:
        by_a_person(request.who, request.reason)
        self._still_open("hold")
        if (abort := self.episode.abort_asked) is not None:
            raise ValueError(
                f"hold: expected an episode that goes on; this one was aborted by {abort.who}, which ends every hold"
            )

    @workflow.update
    def resume(self, request: PersonRequest) -> str:
        """End a hold, or let a parked episode try again."""
        return self.episode.take_resume(request)

    @resume.validator
    def _check_resume(self, request: PersonRequest) -> None:
        by_a_person(request.who, request.reason)
        waits = self.episode.phase is Phase.NEEDS_HUMAN or self.episode.acknowledgement is not None
        if self.episode.held is None and not waits:
            raise ValueError("resume: expected an episode that is held or needs a person; this one goes on by itself")

    def _still_open(self, what: str) -> None:
        if self.episode.phase is Phase.FINAL:
            raise ValueError(f"{what}: this episode has ended: {self.episode.doing}")
