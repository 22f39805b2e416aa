"""What every step of a ladder is: begun once, looked at until the target is well or replaced, and taken back at the end.

A step keeps nothing of its own between histories: whatever it must know later is a field of its state (`StepProgress`). Which
class belongs to which strategy is `workflows/remediation/story.py`; what a step may do about its target, and how, is
`workflows/remediation/target.py`. How to add one: `docs/adding-a-strategy.md`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from temporalio import workflow

from workflows.episode.state import End, StepProgress
from workflows.remediation.target import FIRST_LOOK, LOOK_AGAIN, RemediationTarget


class LadderStep(ABC):
    """One step, as the story carries it out (`workflows/remediation/story.py`)."""

    begins_anew: ClassVar[bool] = False
    """Whether a person's `resume` finds nothing of it: it is taken back before the ladder begins with its first step again."""

    def __init__(self, target: RemediationTarget, state: StepProgress, left_before: tuple[str, ...] = ()) -> None:
        """left_before: the devices that earlier steps have left off."""
        self._target = target
        self._state = state
        self._episode = target.episode
        self._left_before = left_before

    @property
    def state(self) -> StepProgress:
        """How far it has come."""
        return self._state

    @property
    def deletes(self) -> bool:
        """Whether it has asked for the deletion of the Machine, which nobody can take back."""
        return False

    @abstractmethod
    async def carry_out(self) -> End:
        """Until the target is well or replaced. Raises what interrupts the story: Hopeless, and the next step comes."""

    async def give_up(self, why: str) -> None:  # noqa: B027 - a step may have nobody to tell
        """It has failed, or its time is over: whatever it set going is told so. What it leaves stays until the end."""

    @abstractmethod
    async def take_back(self) -> str:
        """The episode ends: nothing of it may stay behind. Answers what does, in words to end a sentence with, "" for nothing."""


class WatchedStep(LadderStep):
    """One that has others begin something, once, and looks what comes of it: most are."""

    @abstractmethod
    async def begin(self) -> None:
        """Have it begun, by `RemediationTarget.act`. Raises the interrupt where it may not be."""

    @abstractmethod
    async def look(self) -> End | None:
        """Look once. Answers the end of the episode, None while it goes on; `Episode.doing` then says what is waited for."""

    async def carry_out(self) -> End:
        """Begin, then look, ever less often, until it is over or out of time."""
        if self._state.asked is None:
            await self.begin()
            self._state.began = self._state.asked = workflow.now()  # what was waited for until then is not its time
        pause = FIRST_LOOK
        while True:
            if (end := await self.look()) is not None:
                return end
            await self._target.wait(self._state, pause, self._episode.state.doing)
            pause = min(pause * 2, LOOK_AGAIN)
