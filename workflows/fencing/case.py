"""The case of one node: whatever an episode has at hand once its target is pinned, and what is known of it at any moment.

Put together after the pin, and again in each new history, over what the state tells. Shared by the parts of the story: the
steps (`workflows/fencing/isolation.py`, `workflows/fencing/power_management.py`), the ends (`workflows/fencing/endings.py`) and
the wait for a person (`workflows/fencing/parking.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from activities.contracts.target import Configured
from policy.episode.needs import Need
from policy.episode.permits import PermitRequest
from policy.fence.plan import FencingPlan
from workflows.episode.adopting import Adoption
from workflows.episode.answering import Answering
from workflows.episode.bookkeeping import Bookkeeping
from workflows.episode.episode import Episode
from workflows.episode.preflight import Preflight
from workflows.episode.state import FencingProgress
from workflows.episode.tries import Tries
from workflows.fencing.freeing import FreeingSequence
from workflows.fencing.isolation import IsolationSequence
from workflows.fencing.pinned_node import PinnedNode
from workflows.fencing.power import PowerSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The parts of one episode. `plan` and `need` never change; what has been done and proven stands in `progress`."""

    episode: Episode
    progress: FencingProgress
    plan: FencingPlan
    need: Need
    preflight: Preflight
    desk: Bookkeeping
    adoption: Adoption
    answering: Answering
    power: PowerSequence
    freeing: FreeingSequence
    tries: Tries
    isolation: IsolationSequence
    pinned_node: PinnedNode

    @property
    def touched(self) -> bool:
        """Whether anything has been done to the machine or its workloads that more than our marks would have to be undone for."""
        return not self.power.untouched or self.power.proof is not None or self.progress.freeing.began

    @property
    def freed_something(self) -> bool:
        """Whether pods may run elsewhere by now, on whatever proof."""
        freed = self.progress.freeing.began or self.progress.isolation.freed or self.episode.kernel_dead is not None
        return freed or self.episode.freed

    def doubt(self) -> str:
        """Why a node that is well again is a person's case all the same: whatever said that its kernel was dead, or that it was
        off, was perhaps a lie, and it has run all the while (S2)."""
        node, dead = self.pinned_node, self.episode.kernel_dead is not None
        freed = dead or (self.progress.freeing.began and node.says_ready())
        if not freed or self.episode.restart_proof is not None or node.is_back() or node.has_restarted():
            return ""
        said = "its kernel was said to be dead" if dead else "it was said to be off"
        return f"its pods may have been freed when {said}, and no restart of it is proven"

    @property
    def lacks_proof(self) -> bool:
        """Whether off has yet to be proven for what the plan wants: only then is a person's word for it of use."""
        return self.power.proof is None and not self.progress.freeing.done

    @property
    def only_restoring_is_left(self) -> bool:
        """Whether all that was to be destroyed is done: switching on and giving back need no permit."""
        return self.progress.freeing.done and not self.power.is_to_be_given_up

    @property
    def leaves_off(self) -> bool:
        """Whether somebody wants the machine left as it is, which is off."""
        abort = self.episode.abort_asked
        return abort is not None and not abort.power_on and self.power.proof is not None

    async def look_while_waiting(self) -> None:
        """Before off a wait ends with an abort, and whoever seems to be back is looked at before anything more is done."""
        await self.preflight.may_go_on()
        if self.pinned_node.seems_changed():
            await self.preflight.before_destruction()

    async def see_which_boot(self) -> None:
        """After a time in the queue for a permit: what is fenced is the boot that is there now. Whom the episode is about stays
        as it was pinned (S9). A node that can't be read keeps its pin, and frees nothing if that boot is over."""
        if await self.preflight.refresh():
            self.pinned_node.follow_boot()

    def permit_request(self) -> PermitRequest:
        """What the scanner is asked for, at the beginning and after a person's word."""
        return self.episode.permit_request(self.need)


def open_case(episode: Episode, progress: FencingProgress, *, configured: Configured | None = None) -> Case:
    """The parts over what is known of the pinned node. configured: see `Preflight`."""
    plan, need = progress.pin.plan, progress.pin.need
    preflight = Preflight(
        episode,
        need,
        fencing=progress,
        configured=configured,
        plan=plan,
        idle=lambda: not (case.touched or case.freed_something or episode.added.paths or case.isolation.has_detached),
    )
    desk = Bookkeeping(episode)
    power = PowerSequence(episode, plan, progress.power)
    freeing = FreeingSequence(episode, plan, desk, power, preflight, progress=progress.freeing)

    async def may_try_again() -> None:
        """While there is a way back, a hold or an abort is heard between two tries as well."""
        if power.proof is None and not progress.freeing.done:
            await preflight.may_go_on()

    tries = Tries(episode, plan, before_next=may_try_again)
    isolation = IsolationSequence(episode, plan, desk, preflight, tries, progress=progress.isolation)
    case = Case(
        episode=episode,
        progress=progress,
        plan=plan,
        need=need,
        preflight=preflight,
        desk=desk,
        adoption=Adoption(episode, desk),
        answering=Answering(episode, need, desk, progress),
        power=power,
        freeing=freeing,
        tries=tries,
        isolation=isolation,
        pinned_node=PinnedNode(episode, progress, power, isolation),
    )
    return case
