"""Parked: an open episode that can do nothing more until a person says so (needs-human), or until nobody is needed any more.

Nothing is in flight, the permit is given back, id and marks are kept. What a person may say is
`workflows/episode/conversation.py`; what becomes of an episode that ends while it is parked is `workflows/fencing/endings.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

from temporalio import workflow

from policy.episode.fencing_requests import Stage
from policy.episode.messages import Outcome, Phase
from workflows.episode.preflight import FIRST_PAUSE, LONGEST_PAUSE
from workflows.episode.state import End, Turn
from workflows.fencing.case import Case
from workflows.fencing.endings import Endings
from workflows.fencing.power_management import PowerManagement
from workflows.kit.interrupts import AbortAsked

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
        return bool(self._progress.parked) and self._episode.phase is Phase.NEEDS_HUMAN and self._case.lacks_proof

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
            if (abort := episode.abort_asked) is not None:
                turn = Turn(interrupt=AbortAsked.__name__, reason=f"aborted by {abort.by}: {abort.reason}; {problem}")
                self._progress.turn = turn
                return partial(self._endings.aborted, turn.reason)
            if case.progress.freeing.may_be_tainted:
                await case.freeing.pause()  # it could not be removed before, and nobody reads the proof
            if case.pinned_node.seems_changed() and (ending := await self._ended_by_itself()):
                return ending
            word = episode.resumed or (episode.acknowledgement if case.lacks_proof else None)
            if word is not None and not episode.is_held:
                if case.only_restoring_is_left:
                    break  # a brake holds up nothing that restores (S17)
                refused = await episode.obtain_permit(case.permit_request())
                if not refused and await self._stands(word.by, problem):
                    break
                if not refused:
                    continue
                # What refuses it passes: a worker's view is young after its start, a scanner is stopped. A person's word is kept
                # until it is obeyed, or taken back by a hold or an abort (S44).
                wait, pause = pause, min(pause * 2, LONGEST_PAUSE)
                episode.problem = f"{problem}; the answer of {word.by} is kept until there is a permit: {refused}"
                episode.enter(phase=Phase.NEEDS_HUMAN, doing="waits for a permit to go on")
            if wait is None and case.progress.freeing.may_be_tainted:
                wait, pause = pause, min(pause * 2, LONGEST_PAUSE)
            if episode.abort_asked is None:  # it may have come while we looked elsewhere
                await episode.rest(wait, "a permit" if wait else "a person's word")
        episode.restarts, episode.problem, self._progress.resumed_at = 0, "", workflow.now()
        self._management.take_word()
        episode.enter(phase=Phase.RUNNING, doing="goes on")
        return None

    async def _stands(self, who: str, problem: str) -> bool:
        """Whether there is a word still, now that there is a permit: another boot that is seen only by now ends one for off (S6,
        S8), and whoever gave it is asked again."""
        episode, case = self._episode, self._case
        if not (case.touched or case.freed_something):
            await case.see_which_boot()
        if episode.resumed is not None or episode.acknowledgement is not None:
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
            self._episode.problem = f"{message}; but {problem}"
            self._episode.enter(doing="needs a person")
            return None
        return partial(self._endings.restored, Outcome.RECOVERED, message)
