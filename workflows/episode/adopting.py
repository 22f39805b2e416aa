"""What a terminated predecessor has left on a node: adopted before anything else is done, by every kind of episode.

Its workflow id is ours, so that it is not open any more. But its last command may still be on its way to a device (S34), its
out-of-service taint goes on freeing pods on a proof that nobody reads any more (S1, S32), and whether pods were freed behind the
paths it has cut is not known (S35). Only the mark that was read by the pin tells of all this: once the mark is in our own name it
tells of the cordon, the taints and the paths only, so that what else follows from it is kept here.
"""

from __future__ import annotations

from temporalio import workflow

from activities.contracts.target import TargetActivities
from policy.fence.limits import LONGEST_ACT
from workflows.episode.bookkeeping import Bookkeeping
from workflows.episode.episode import Episode
from workflows.kit import options
from workflows.kit.interrupts import as_interrupt


def cut_unseen(episode: Episode, paths: tuple[str, ...]) -> None:
    """The paths were cut in a history that is not known here: pods may have been freed behind them (S1, S35)."""
    episode.freed = episode.freed or bool(paths)


class Adoption:
    """What one episode adopts of another, whose incident its pin has found in the mark."""

    def __init__(self, episode: Episode, desk: Bookkeeping) -> None:
        self._episode = episode
        self._desk = desk

    def begin(self, incident: str, paths: tuple[str, ...] = ()) -> None:
        """Another one's mark was found, "" for none. paths: those that it says are cut."""
        episode = self._episode
        if not incident:
            return
        episode.adopted, episode.taken_over = incident, False
        episode.settled_at = workflow.now() + LONGEST_ACT + options.ACT_WINDOW + options.IN_FLIGHT_MARGIN
        cut_unseen(episode, paths)

    async def take_over(self) -> None:
        """The mark in our name, then the taint off: it restores, so that it waits for no permit (S17). The order matters: the
        predecessor's own writes are refused from the mark on."""
        if not self._episode.taken_over:
            await self._desk.write(TargetActivities.mark, "isolation: marks the node")
            with as_interrupt("the out-of-service taint can't be removed"):
                await self._desk.untaint()
            self._episode.taken_over = True
            self._episode.note("adopt", "ok", f"the marks of incident {self._episode.adopted}, which is not open")

    async def settle(self) -> None:
        """Wait until nothing of the predecessor can be in flight: what is looked at from then on is what it has left."""
        if (settled_at := self._episode.settled_at) is not None:
            await self._episode.settle(settled_at - workflow.now())
