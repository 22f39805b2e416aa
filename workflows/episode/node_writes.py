"""The small writes that an episode makes: on its node marks, the maintenance lease and Events for people (`NodeWriter`), and what
it adopts of a terminated predecessor (`Adoption`); on the object that asked for it conditions (`RequestAnswers`).

Each is an idempotent look-and-write on the API's side (`activities/cluster/`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.target import (
    ActRequest,
    ActResult,
    AnswerRequest,
    AnswerResult,
    FreeingActivities,
    IsolationActivities,
    LookRequest,
    PublishedEvent,
    ReleaseRequest,
    RestoreRequest,
    TargetActivities,
    UntaintRequest,
)
from activities.errors import error_message
from policy.episode.events import WARNINGS, EventReason
from policy.episode.fencing_requests import RequestAnswer, Stage, last_stage
from policy.episode.messages import Need, NeedKind, Outcome, Phase
from policy.fence.config import FenceStep
from policy.values.object_refs import ObjectRef
from workflows.episode.episode import Episode
from workflows.episode.permit import give_back_permit
from workflows.episode.state import FencingProgress
from workflows.episode.tries import Patience
from workflows.kit import options
from workflows.kit.interrupts import Interrupt, NeedGone, PassingRefusal, as_interrupt

UNMARK_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=10)
FAILURES_REPORTED = 3
"""So many failures in a row of what has to be done in the end, and a person is told."""
Activities = TypeVar("Activities")


class NodeWriter:
    """Writes in the name of one episode on its one node. Each may be repeated; none of them is a consequence."""

    def __init__(self, episode: Episode, *, machine: ObjectRef | None = None, machine_uid: str = "") -> None:
        """machine: on which the story is told as well."""
        self._episode = episode
        self._machine = (machine, machine_uid) if machine is not None else (None, "")

    async def write(self, act: Callable[[Activities, ActRequest], Awaitable[ActResult]], summary: str) -> ActResult:
        """Carry out one write; a failed one is raised as the interrupt it means."""
        not_after = workflow.now() + options.WRITE_WINDOW
        request = ActRequest(target=self._episode.target, not_after=not_after, added=self._episode.state.added)
        with as_interrupt(summary):
            result = await self._episode.execute_publishing(act, request, options.cluster_write, summary)
        self._episode.learns_of(result.added)
        return result

    async def untaint(self, *, ours: bool = False, look: LookRequest | None = None) -> ActResult:
        """Remove our out-of-service taint. ours, look: see UntaintRequest. Raises ActivityError."""
        not_after = workflow.now() + options.WRITE_WINDOW
        target, added = self._episode.target.without_devices, self._episode.state.added
        request = UntaintRequest(target=target, ours=ours, added=added, look=look, not_after=not_after)
        return await self._episode.execute(
            FreeingActivities.untaint_out_of_service, request, options.cluster_write, "power-management: removes our taint"
        )

    async def mark_again(self) -> bool:
        """Whether our mark was gone and is written again. As long as this workflow is open the node belongs to it; raises
        Vetoed where another mark stands. It says again what we have added, or that would stay for ever (S35)."""
        result = await self.write(TargetActivities.mark, "writes our mark again, if it is gone")
        if result.changed:
            self._episode.note("mark", "again", result.detail, version=result.version)
        return result.changed

    async def release_node_lease(self) -> None:
        """Give the node lease back; one that can't be given back lapses by itself."""
        state, target = self._episode.state, self._episode.target.without_devices
        request = ReleaseRequest(target=target, adopted=state.adopted, holder=state.holder)
        summary = "recovery: gives the node's maintenance lease back"
        try:
            await self._episode.execute_publishing(TargetActivities.release_lease, request, options.cluster_write, summary)
        except ActivityError as error:
            self._episode.note("release-lease", "failed", f"{error_message(error)}; it lapses by itself")

    async def remove_marks(self, pause: timedelta, *, keep_cordon: bool = False, tainted: bool = False) -> None:
        """Recovery: undo what carries our mark, however long the API is away. tainted: see RestoreRequest."""

        summary = "recovery: marks the node schedulable"

        async def remove() -> None:
            request = RestoreRequest(
                target=self._episode.target.without_devices,
                not_after=workflow.now() + options.WRITE_WINDOW,
                keep_cordon=keep_cordon,
                tainted=tainted,
                added=self._episode.state.added,
            )
            act, how = IsolationActivities.mark_schedulable, options.cluster_write
            with as_interrupt(summary):
                result = await self._episode.execute_publishing(act, request, how, summary)
            self._episode.note("mark-schedulable", "ok", result.detail, version=result.version)

        self._episode.enter(step=FenceStep.RECOVERY, doing="removes our marks")
        await self.insist("mark-schedulable", remove, failing="our marks can't be removed", pause=pause)

    async def insist(
        self, act: str, carry_out: Callable[[], Awaitable[None]], *, failing: str, pause: timedelta, abort_ends: bool = False
    ) -> bool:
        """Carry out what must be done in the end, however often it takes and at growing intervals; no circuit breaker holds it up
        (S17).

        After some failures in a row a person is asked, once, and our permit is free for another episode meanwhile. What is
        refused for a moment, by an API server that has just started or by a worker with a wrong clock, is no failure yet (S18).
        abort_ends: an abort that comes after a failure ends it; False is answered then.
        """
        doing = self._episode.state.doing
        with self._episode.undertaking(failing) as under, self._episode.insisting(failed=under.failures > 0):
            if under.aborts is None:
                under.aborts = self._episode.state.aborts
            patience = Patience(self._episode, under)
            while True:
                try:
                    await carry_out()
                    break
                except Interrupt as interrupt:
                    passes = isinstance(interrupt, PassingRefusal) and not patience.is_over(interrupt)
                    under.failures += not passes
                    self._episode.insists = True
                    self._episode.state.problem = interrupt.reason
                    self._episode.note(act, "failed", interrupt.reason)
                    if abort_ends and self._episode.state.aborts > under.aborts:
                        return False
                    self._episode.enter(doing=f"{failing} yet")
                    if under.failures == FAILURES_REPORTED and not passes:
                        await self.ask_for_a_person(f"{failing}: {interrupt.reason}")
                    await patience.rest(interrupt, under.next_pause(pause, LONGEST_PAUSE), f"until {act} is tried again")
                self._episode.enter(doing=doing)
        self._episode.state.problem = ""
        return True

    def note_off(self, off_proven: datetime | None) -> None:
        """Note in our mark since when the node is proven off, so that no person is warned of data at risk (S36)."""
        self._episode.publisher.note_off(off_proven)

    async def ask_for_a_person(self, problem: str, *, path: str = "") -> None:
        """Give the permit back, so that no other episode waits for us, and say what is wrong. path: what may be given back at the
        word of a person only, where that is asked."""
        self._episode.ask(problem, path)
        self._episode.enter(phase=Phase.NEEDS_HUMAN, doing="needs a person")
        self.send_event(EventReason.NEEDS_HUMAN, "; ".join(filter(None, (problem, self._episode.advice))))
        self._episode.publish()
        await give_back_permit(self._episode, parked=True, problem=problem)

    def send_event(self, reason: EventReason, message: str, *, warning: bool = False, outcome: str = "") -> None:
        """An Event on the Node, for people with kubectl; telling never blocks or fails an episode. warning: also where the reason
        alone makes none. outcome: see `PublishedEvent`."""
        about, about_uid = self._machine
        self._episode.publisher.add_event(
            PublishedEvent(
                reason=reason.value,
                message=message,
                warning=warning or reason in WARNINGS,
                about=about,
                about_uid=about_uid,
                outcome=outcome,
                commands_given=self._episode.state.commands_given,
            )
        )


# What a terminated predecessor has left on a node: every kind of episode adopts it before it does anything else.
#
# It had our workflow id, so it is not open any more. But its last command may still be on its way to a device (S34), its
# out-of-service taint goes on freeing pods on a proof that no episode repeats (S1, S32), and it is not known whether pods were
# freed behind the paths that it cut (S35). Only the mark that the pin read says all this: a mark in our own name holds the
# cordon, the taints and the paths only, so the rest is kept here.


def note_unseen_cuts(episode: Episode, paths: tuple[str, ...]) -> None:
    """The paths were cut in a history that is not known here: pods may have been freed behind them (S1, S35)."""
    episode.state.freed = episode.state.freed or bool(paths)


class Adoption:
    """What one episode adopts of another one: its pin has found the incident of that one in the mark."""

    def __init__(self, episode: Episode, node_writer: NodeWriter) -> None:
        self._episode = episode
        self._node_writer = node_writer

    def begin(self, incident: str, paths: tuple[str, ...] = ()) -> None:
        """Another one's mark was found, "" for none. paths: those that it says are cut."""
        episode = self._episode
        if not incident:
            return
        episode.state.adopted, episode.state.taken_over = incident, False
        episode.state.settled_at = workflow.now() + options.LONGEST_IN_FLIGHT
        note_unseen_cuts(episode, paths)

    async def take_over(self) -> None:
        """The mark in our name, then the taint off: it restores, so that it waits for no permit (S17). The order matters: the
        predecessor's own writes are refused from the mark on."""
        if not self._episode.state.taken_over:
            await self._node_writer.write(TargetActivities.mark, "isolation: marks the node")
            with as_interrupt("the out-of-service taint can't be removed"):
                await self._node_writer.untaint()
            self._episode.state.taken_over = True
            self._episode.note("adopt", "ok", f"the marks of incident {self._episode.state.adopted}, which is not open")

    async def settle(self) -> None:
        """Wait until nothing of the predecessor can be in flight: what is looked at from then on is what it has left."""
        if (settled_at := self._episode.state.settled_at) is not None:
            await self._episode.settle(settled_at - workflow.now())


ANSWER_PAUSE = timedelta(seconds=5)


class RequestAnswers:
    """The conditions of the object that asked for a fencing, as far as this episode is their author. Without such an object it
    answers none.

    How things go never holds the story up. The first answer and the last are different: without the first the owner of the object
    does not know that the request is in hand, and without the last the scanner would find a request without an answer and fence
    the node again. What each stage means is `policy/episode/fencing_requests.py`.
    """

    def __init__(self, episode: Episode, need: Need, node_writer: NodeWriter, progress: FencingProgress) -> None:
        self._episode = episode
        self._node_writer = node_writer
        self._about = need.check if need.kind is NeedKind.FOREIGN_OBJECT else None
        self._uid = need.object_uid
        self._progress = progress

    async def begin(self) -> None:
        """The request is in hand. Raises the interrupt: an object that can't be answered is not acted upon."""
        if self._about is None:
            return
        with as_interrupt(f"{self._about.key} can't be answered"):
            result = await self._write(Stage.STARTED, f"nodewarden fences the node, incident {self._episode.state.incident}")
        if result.withdrawn:
            raise NeedGone(result.withdrawn)
        self._progress.answered = Stage.STARTED

    async def report(self, stage: Stage, message: str) -> None:
        """How far it has come. A success that was told is not taken back."""
        if self._about is None or self._progress.answered is Stage.FINISHED:
            return
        self._progress.answered = stage
        try:
            await self._write(stage, message, patiently=False)
        except ActivityError as error:
            self._episode.note("answer", "failed", error_message(error))

    async def finish(self, outcome: Outcome, message: str) -> None:
        """The last answer, however long the API is away; where the rights for it are missing a person's abort ends it."""
        if self._about is None:
            return
        about, stage = self._about, last_stage(outcome, self._progress.answered)

        async def answer() -> None:
            with as_interrupt(f"{about.key} can't be answered"):
                result = await self._write(stage, message)
            self._episode.note("answer", result.withdrawn or stage.value, message)

        self._episode.enter(doing=f"answers {about.key}")
        await self._node_writer.insist(
            "answer", answer, failing=f"{about.key} can't be answered", pause=ANSWER_PAUSE, abort_ends=True
        )

    async def _write(self, stage: Stage, message: str, *, patiently: bool = True) -> AnswerResult:
        assert self._about is not None, "an object asks"
        cluster = self._episode.target.cluster
        answer = RequestAnswer(about=self._about, uid=self._uid, stage=stage, message=message)
        request = AnswerRequest(target=self._episode.target, answer=answer)
        config = options.cluster_write(cluster) if patiently else options.report(cluster)
        return await options.execute(
            TargetActivities.answer_request, request, config, f"answers {self._about.key}: {stage.value}"
        )
