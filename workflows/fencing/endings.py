"""How a fencing stops: it ends (`Endings`: what is undone, what is left as it is, who is notified), or it waits for a person
(`Parking`).

Every end gives back what carries our mark (S35). The story decides which of the two (`workflows/fencing/story.py`). An `End` is
only the outcome: `workflows/episode/end.py` makes it the end of the episode.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from temporalio import workflow

from policy.episode.fencing import may_restore_path
from policy.episode.fencing_requests import Stage
from policy.episode.messages import Outcome, Phase
from policy.episode.needs import NeedKind
from policy.fence.config import FenceStep
from policy.fence.plan import UNCORDON
from workflows.episode.preflight import FIRST_PAUSE, LONGEST_PAUSE
from workflows.episode.state import End, Turn
from workflows.fencing.case import Case
from workflows.fencing.power_steps import PowerManagement
from workflows.kit.interrupts import AbortAsked, Interrupt
from workflows.kit.messages import AbortRequest


class Endings:
    """The ends of one fencing, each with its compensation."""

    def __init__(self, case: Case, power_management: PowerManagement) -> None:
        self._case = case
        self._episode = case.episode
        self._management = power_management

    async def returned(self) -> End:
        """The machine is back: whose is it, and was an abort asked for meanwhile?"""
        if self._case.pinned_node.is_replaced():
            return self.replaced()
        if (abort := self._episode.state.abort_asked) is not None:
            return await self.restored(Outcome.ABORTED, f"aborted by {abort.by}: {abort.reason}; the node is back")
        proof = self._episode.state.off_proof
        proven = f"off {proof.former_basis}; " if proof is not None else ""
        return await self.restored(Outcome.RECOVERED, f"{proven}the node is back Ready with a new boot id")

    def replaced(self) -> End:
        """Another machine stands under the name: nothing of ours is on it."""
        message = f"another machine has taken the name {self._episode.state.node}{self._case.isolation.paths.left}"
        return End(outcome=Outcome.REPLACED, message=message)

    async def restored(self, outcome: Outcome, message: str) -> End:
        """Recovery: give the paths back and undo what carries our mark, however long the API is away; no circuit breaker holds it
        up (S17).

        After an abort, and where the machine is left off, a path whose pods were freed stays cut: that is a decision of its own
        (S35).
        """
        case = self._case
        if case.progress.end is None and not case.touched and case.plan.levels and case.need.kind is not NeedKind.CLEAN_UP:
            self._episode.note(FenceStep.POWER_MANAGEMENT.value, "skipped", message)
        case.progress.end = End(outcome=outcome, message=message)
        with self._episode.undertaking("the end", by_itself=True):
            left = await self.give_back_paths(patient=outcome not in {Outcome.ABORTED, Outcome.FENCED_OFF})
            keep_cordon = UNCORDON.act not in {method.act for method in case.plan.recovery}
            tainted = case.progress.freeing.may_be_tainted
            await case.desk.remove_marks(case.plan.retry_interval, keep_cordon=keep_cordon, tainted=tainted)
        return End(outcome=outcome, message=f"{message}{left}{case.freeing.left}")

    async def give_back_paths(self, *, patient: bool) -> str:
        """What was cut is connected again as far as it may be. Returns what is left cut, in words to end a sentence with.

        patient: however long it takes.
        """
        case = self._case
        if case.isolation.paths.left:
            await case.freeing.leave()  # giving paths back may take long
            if case.isolation.paths.found_cut and not self._may_restore_path(found_cut=True):
                await case.isolation.let_go_of_open_paths()
        return await case.isolation.undo(
            may_restore=lambda found_cut: self._may_restore_path(found_cut=found_cut), patient=patient
        )

    async def aborted(self, reason: str) -> End:
        """Aborted while we waited or tried. An off that was commanded is waited out and read before anything is undone."""
        if not self._case.touched:
            but = "; its pods may have been freed while its kernel dumped" if self._episode.state.kernel_dead is not None else ""
            return await self.restored(Outcome.ABORTED, f"{reason}{but}")
        abort, is_off, but = self._episode.state.abort_asked, await self._management.is_off_after_all(), ""
        if is_off:
            try:
                await self._management.try_free()
            except Interrupt as interrupt:
                but = f"; not all is freed: {interrupt.reason}"
            if self._case.leaves_off:
                return await self.left_off(but)
        if is_off or (abort is not None and abort.power_on):
            try:
                await self._management.switch_on()
                await self._management.wait_for_return()
            except Interrupt as interrupt:
                but += f"; power on: {interrupt.reason}"
        elif self._case.progress.power.powered_on_at is None:
            on = [each.endpoint for each in self._episode.says_on]
            but = f"; {' and '.join(on)} said on" if on else "; the power state is not known, it may be off"
        return await self.restored(Outcome.ABORTED, f"{reason}{but}")

    async def left_off(self, but: str = "") -> End:
        """Consequences are finished and power stays off: switching it on again is a decision of its own (S35)."""
        abort = self._episode.state.abort_asked
        who = f" by {abort.by}: {abort.reason}" if abort else ""
        proof = self._case.power.proof
        how = proof.former_basis if proof is not None else "was proven"
        return await self.restored(Outcome.ABORTED, f"aborted{who}; off {how}, and the machine is left off{but}")

    def _may_restore_path(self, *, found_cut: bool) -> bool:
        consequences = self._case.freed_something
        if (consequences or found_cut) and self._episode.state.restart_proof is None:
            self._case.pinned_node.is_back()  # keeps the proof of a restart that somebody else made
        return may_restore_path(consequences=consequences, found_cut=found_cut, restart=self._episode.state.restart_proof)


def after_off(request: AbortRequest, node: str) -> str:
    """What comes of an abort where the machine may be off."""
    if request.power_on:
        return "what was begun is finished, then the machine is switched on"
    how = f"`nodewarden fence {node} --reason …` brings it back"
    return f"it ends once the power state is read; a machine that is off stays off, {how}"


# Parked: an open episode that does nothing more until a person decides (needs-human), or until no person is needed any more.
#
# Nothing is in flight, the permit is given back, id and marks are kept. What a person may send is
# `workflows/episode/conversation.py`.

Ending = Callable[[], Awaitable[End]]


class Parking:
    """The waits of one episode for a person."""

    def __init__(self, case: Case, power_management: PowerManagement, endings: Endings) -> None:
        self._case = case
        self._episode = case.episode
        self._management = power_management
        self._endings = endings
        self._progress = case.progress

    @property
    def wants_a_word(self) -> bool:
        """Whether it waits for a person now, and off has yet to be proven. Who is asked since marks or paths can't be given back
        need not speak of off: nothing would be done with it."""
        return bool(self._progress.parked) and self._episode.state.phase is Phase.NEEDS_HUMAN and self._case.lacks_proof

    async def park(self, problem: str) -> End | None:
        """Wait until a person has it go on (None), or until it ends."""
        if self._progress.parked != problem:
            await self._ask(problem)
        ending = await self._wait(problem)
        self._progress.parked = ""
        return await ending() if ending is not None else None

    async def _ask(self, problem: str) -> None:
        self._progress.parked = problem
        self._case.power.remember_what_is_said()
        await self._case.freeing.pause()
        await self._case.desk.ask_for_a_person(problem)
        await self._case.answering.say(Stage.FAILED, problem)

    async def _wait(self, problem: str) -> Ending | None:
        episode, case = self._episode, self._case
        pause = FIRST_PAUSE
        while True:
            wait: timedelta | None = None
            if (abort := episode.state.abort_asked) is not None:
                turn = Turn(interrupt=AbortAsked.__name__, reason=f"aborted by {abort.by}: {abort.reason}; {problem}")
                self._progress.turn = turn
                return partial(self._endings.aborted, turn.reason)
            if case.progress.freeing.may_be_tainted:
                await case.freeing.pause()  # it could not be removed before, and nobody reads the proof
            if case.pinned_node.seems_changed() and (ending := await self._ended_by_itself()):
                return ending
            word = episode.state.resumed or (episode.state.acknowledgement if case.lacks_proof else None)
            if word is not None and not episode.is_held:
                if case.only_restoring_is_left:
                    break  # a circuit breaker holds up nothing that restores (S17)
                refused = await episode.obtain_permit(case.permit_request())
                if not refused and await self._stands(word.by, problem):
                    break
                if not refused:
                    continue
                # What refuses it passes: a worker's view is young after its start, a scanner is stopped. A person's word is kept
                # until it is obeyed, or taken back by a hold or an abort (S44).
                wait, pause = pause, min(pause * 2, LONGEST_PAUSE)
                episode.state.problem = f"{problem}; the answer of {word.by} is kept until there is a permit: {refused}"
                episode.enter(phase=Phase.NEEDS_HUMAN, doing="waits for a permit to go on")
            if wait is None and case.progress.freeing.may_be_tainted:
                wait, pause = pause, min(pause * 2, LONGEST_PAUSE)
            if episode.state.abort_asked is None:  # it may have come while we looked elsewhere
                await episode.rest(wait, "a permit" if wait else "a person's word")
        episode.state.restarts, episode.state.problem, self._progress.resumed_at = 0, "", workflow.now()
        self._management.take_word()
        episode.enter(phase=Phase.RUNNING, doing="goes on")
        return None

    async def _stands(self, who: str, problem: str) -> bool:
        """Whether there is a word still, now that there is a permit: another boot that is seen only by now ends one for off (S6,
        S8), and whoever gave it is asked again."""
        episode, case = self._episode, self._case
        if not (case.touched or case.freed_something):
            await case.see_which_boot()
        if episode.state.resumed is not None or episode.state.acknowledgement is not None:
            return True
        void = f"the acknowledgement by {who} is void: the node shows another boot than the one seen off"
        await case.desk.ask_for_a_person(f"{problem}; {void}")
        return False

    async def _ended_by_itself(self) -> Ending | None:
        """A parked node that came back, or was replaced, needs nobody any more. Believed only of what was read just now."""
        case = self._case
        if not await case.preflight.refresh():
            return None
        if case.pinned_node.is_replaced() or case.pinned_node.is_back():
            return self._endings.returned
        if case.power.proof is None and await case.preflight.need_is_gone():
            return await self._back_by_itself()
        return None

    async def _back_by_itself(self) -> Ending | None:
        """A parked episode whose need is gone. Where the machine can't be switched on again it stays parked, and says so."""
        message = "the node came back by itself" if self._case.pinned_node.says_ready() else "the need is gone"
        if problem := self._case.doubt() or await self._management.switch_on_again():
            self._episode.state.problem = f"{message}; but {problem}"
            self._episode.enter(doing="needs a person")
            return None
        return partial(self._endings.restored, Outcome.RECOVERED, message)
