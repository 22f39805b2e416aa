"""How an episode ends: what is undone on the way out, what is left as it is, and who is told.

Every end gives back what carries our mark (S35). Deciding that it is the end is the story's (`workflows/fencing/story.py`),
waiting for a person instead `workflows/fencing/parking.py`. An `End` is only what came out: `workflows/episode/closing.py` makes
it the end of the episode.
"""

from __future__ import annotations

from policy.episode.fencing import may_restore_path
from policy.episode.messages import Outcome
from policy.episode.needs import NeedKind
from policy.fence.config import FenceStep
from policy.fence.plan import UNCORDON
from workflows.episode.state import End
from workflows.fencing.case import Case
from workflows.fencing.power_management import PowerManagement
from workflows.kit.interrupts import Interrupt
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
        if (abort := self._episode.abort_asked) is not None:
            return await self.restored(Outcome.ABORTED, f"aborted by {abort.by}: {abort.reason}; the node is back")
        proof = self._episode.off_proof
        proven = f"off {proof.former_basis}; " if proof is not None else ""
        return await self.restored(Outcome.RECOVERED, f"{proven}the node is back Ready with a new boot id")

    def replaced(self) -> End:
        """Another machine stands under the name: nothing of ours is on it."""
        message = f"another machine has taken the name {self._episode.node}{self._case.isolation.paths.left}"
        return End(outcome=Outcome.REPLACED, message=message)

    async def restored(self, outcome: Outcome, message: str) -> End:
        """Recovery: give the paths back and undo what carries our mark, however long the API is away; no brake holds this up
        (S17).

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
            but = "; its pods may have been freed while its kernel dumped" if self._episode.kernel_dead is not None else ""
            return await self.restored(Outcome.ABORTED, f"{reason}{but}")
        abort, is_off, but = self._episode.abort_asked, await self._management.is_off_after_all(), ""
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
        abort = self._episode.abort_asked
        who = f" by {abort.by}: {abort.reason}" if abort else ""
        proof = self._case.power.proof
        how = proof.former_basis if proof is not None else "was proven"
        return await self.restored(Outcome.ABORTED, f"aborted{who}; off {how}, and the machine is left off{but}")

    def _may_restore_path(self, *, found_cut: bool) -> bool:
        consequences = self._case.freed_something
        if (consequences or found_cut) and self._episode.restart_proof is None:
            self._case.pinned_node.is_back()  # keeps the proof of a restart that somebody else made
        return may_restore_path(consequences=consequences, found_cut=found_cut, restart=self._episode.restart_proof)


def after_off(request: AbortRequest, node: str) -> str:
    """What comes of an abort where the machine may be off."""
    if request.power_on:
        return "what was begun is finished, then the machine is switched on"
    how = f"`nodewarden fence {node} --reason …` brings it back"
    return f"it ends once the power state is read; a machine that is off stays off, {how}"
