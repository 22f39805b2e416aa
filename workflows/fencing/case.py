"""The case of one node: all that a fencing has at hand once its target is pinned (`Case`), and what the latest look says of the
machine (`PinnedNode`).

`open_case` builds it after the pin, and again in each new history from the episode's state. The parts of the story share it: the
steps (`workflows/fencing/isolation.py`, `workflows/fencing/power_steps.py`), the ends and the wait for a person
(`workflows/fencing/story.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from activities.contracts.target import Configured
from policy.episode.messages import Need, NeedKind, Pinned
from policy.episode.permits import PermitRequest
from policy.episode.proofs import restart_proven, same_machine
from policy.fence.plan import FencingPlan
from workflows.episode.episode import Episode
from workflows.episode.node_writes import Adoption, NodeWriter, RequestAnswers
from workflows.episode.permit import permit_request
from workflows.episode.preflight import Preflight
from workflows.episode.state import FencingProgress
from workflows.episode.tries import Tries
from workflows.fencing.consequences import FreeingSequence
from workflows.fencing.isolation import IsolationSequence
from workflows.fencing.power_sequence import PowerSequence

# What the latest look says about the pinned machine: is it back, is it another one, which boot is it?
#
# Proofs use only `EpisodeState.last_look`, which live looks keep (`workflows/episode/preflight.py`). What signals say
# (`EpisodeState.last_seen`) is a reason to look, or to refrain (S42). The rules are `policy/episode/proofs.py`.


class PinnedNode:
    """The pinned machine as it was last seen."""

    def __init__(self, episode: Episode, progress: FencingProgress, power: PowerSequence, isolation: IsolationSequence) -> None:
        self._episode = episode
        self._progress = progress
        self._need = progress.pin.need
        self._power = power
        self._isolation = isolation

    @property
    def pinned(self) -> Pinned:
        """The node and machine that the episode is about."""
        return self._episode.target.pinned

    def seems_changed(self) -> bool:
        """A hint that the node is back or gone, or that the request for it is withdrawn, to be confirmed by a live look before
        anything follows from it."""
        seen = self._episode.state.last_seen
        if seen is None:
            return False
        unasked = self._need.kind is NeedKind.FOREIGN_OBJECT and self._need.object_uid not in seen.asked_by
        return seen.ready or not seen.present or seen.uid != self.pinned.uid or unasked

    def says_ready(self) -> bool:
        """Whether the node is there and Ready, whatever its boot."""
        seen = self._episode.state.last_look
        return seen is not None and seen.present and seen.ready

    def is_back(self) -> bool:
        """Ready with a boot id that is new since our command, on the name we pinned."""
        seen = self._episode.state.last_look
        off = self._power.proof
        word = off.acknowledgement.at if off is not None and off.acknowledgement is not None else None
        off_since = (self._power.off_commanded_at or word) if off is not None else None
        dead_since = dead.last if (dead := self._episode.state.kernel_dead) is not None else None
        since = self._progress.power.powered_on_at or off_since or dead_since or self._isolation.paths.cut_since
        if seen is None or since is None or not self.says_ready() or self.is_replaced():
            return False  # another machine's first boot is no restart of the pinned one (S9)
        proof = restart_proven(self.pinned, seen, since, boot_ids_before=self._progress.boots_before)
        self._episode.state.restart_proof = proof or self._episode.state.restart_proof
        return proof is not None

    def has_restarted(self) -> bool:
        """Whether it is Ready with a boot id that is new since our off, whatever has become of the proof of that, and also where
        another party has switched it on."""
        seen, off = self._episode.state.last_look, self._power.off_commanded_at
        if seen is None or not self.says_ready() or self.is_replaced():
            return False
        return restart_proven(self.pinned, seen, off, boot_ids_before=self._progress.boots_before) is not None

    def is_replaced(self) -> bool:
        """Whether another machine has taken the name; a new Node object of the same machine has not."""
        seen = self._episode.state.last_look
        if seen is None or not seen.present or seen.uid == self.pinned.uid:
            return False
        return not same_machine(self.pinned, seen)

    def is_gone(self) -> bool:
        seen = self._episode.state.last_look
        return seen is not None and not seen.present

    def is_registered_anew(self) -> bool:
        """Whether the Node is another object than the pinned one, and stands for the same machine."""
        seen = self._episode.state.last_look
        return seen is not None and seen.present and seen.uid != self.pinned.uid and same_machine(self.pinned, seen)

    def adopt_node(self) -> None:
        """The Node object as it is now is the one that we are about."""
        if (seen := self._episode.state.last_look) is not None:
            self._episode.note("pin", "uid", f"{self.pinned.uid} has become {seen.uid}, which is the same machine")
            self._episode.state.pinned = replace(self.pinned, uid=seen.uid)

    def has_booted(self) -> bool:
        """Whether the node shows another boot than the pinned one, or is said to."""
        seen = self._episode.state.last_seen
        return seen is not None and bool(seen.boot_id) and seen.boot_id != self.pinned.boot_id

    def follow_boot(self) -> None:
        """The boot of the pinned Node as it is now, and since when it is not Ready."""
        seen = self._episode.state.last_look
        if seen is None or not seen.present or seen.uid != self.pinned.uid or not same_machine(self.pinned, seen):
            return
        self.pin_boot()
        pinned = replace(self.pinned, not_ready_since=None if seen.ready else seen.ready_since)
        self._episode.state.pinned = pinned

    def pin_boot(self) -> None:
        """The boot that we end is the one seen just now; the node may have rebooted by itself since the target was pinned."""
        seen = self._episode.state.last_look
        if seen is not None and seen.boot_id and seen.boot_id != self.pinned.boot_id:
            self._episode.note("pin", "boot id", f"{self.pinned.boot_id} has become {seen.boot_id}")
            self._episode.state.pinned = replace(self.pinned, boot_id=seen.boot_id)
            self._episode.begin_round()

    def remember_boot(self) -> None:
        """Before power-on: the boot shown now is an old one, too; it may have rebooted by itself between the pin and our off."""
        if (seen := self._episode.state.last_look) is not None:
            self._progress.boots_before.append(seen.boot_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The parts of one episode. `plan` and `need` never change; what has been done and proven stands in `progress`."""

    episode: Episode
    progress: FencingProgress
    plan: FencingPlan
    need: Need
    preflight: Preflight
    node_writer: NodeWriter
    adoption: Adoption
    answering: RequestAnswers
    power: PowerSequence
    freeing: FreeingSequence
    tries: Tries
    isolation: IsolationSequence
    pinned_node: PinnedNode

    @property
    def touched(self) -> bool:
        """Whether anything may have been done to the machine or its workloads that more than our marks would have to be undone
        for."""
        done = not self.power.untouched or self.power.proof is not None or self.progress.freeing.began
        return done or self.episode.was_reset

    @property
    def freed_something(self) -> bool:
        """Whether pods may run elsewhere by now, on whatever proof."""
        freed = self.progress.freeing.began or self.progress.isolation.freed or self.episode.state.kernel_dead is not None
        return freed or self.episode.state.freed

    def doubt(self) -> str:
        """Why a node that is well again is a person's case all the same: whatever said that its kernel was dead, or that it was
        off, was perhaps a lie, and it has run all the while (S2)."""
        node, dead = self.pinned_node, self.episode.state.kernel_dead is not None
        freed = dead or (self.progress.freeing.began and node.says_ready())
        if not freed or self.episode.state.restart_proof is not None or node.is_back() or node.has_restarted():
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
        """Whether an abort leaves the machine as it is, which is off."""
        abort = self.episode.state.abort_asked
        return abort is not None and not abort.power_on and self.power.proof is not None

    async def look_while_waiting(self) -> None:
        """Before off a wait ends with an abort, and a node that seems to be back is looked at before anything more is done."""
        await self.preflight.may_go_on()
        if self.pinned_node.seems_changed():
            await self.preflight.before_destruction()

    async def see_which_boot(self) -> None:
        """After a time in the queue for a permit: what is fenced is the boot that is there now. The machine that it is about
        stays as it was pinned (S9). A node that can't be read keeps its pin, and frees nothing if that boot is over."""
        if await self.preflight.refresh():
            self.pinned_node.follow_boot()

    def permit_request(self) -> PermitRequest:
        """What the scanner is asked for, at the beginning and after a person's word."""
        return permit_request(self.episode, self.need)


def open_case(episode: Episode, progress: FencingProgress, *, configured: Configured | None = None) -> Case:
    """The parts over what is known of the pinned node. configured: see `Preflight`."""
    plan, need = progress.pin.plan, progress.pin.need
    preflight = Preflight(
        episode,
        need,
        fencing=progress,
        configured=configured,
        plan=plan,
        idle=lambda: not (case.touched or case.freed_something or episode.state.added.paths or case.isolation.has_detached),
        may_rest=lambda: (
            not (case.touched or case.freed_something or case.isolation.paths.cut_since or case.isolation.has_detached)
        ),
    )
    node_writer = NodeWriter(episode)
    power = PowerSequence(episode, plan, progress.power)
    freeing = FreeingSequence(episode, plan, node_writer, power, preflight, progress=progress.freeing)

    async def may_try_again() -> None:
        """While there is a way back, a hold or an abort is heard between two tries as well."""
        if power.proof is None and not progress.freeing.done:
            await preflight.may_go_on()

    tries = Tries(episode, plan, before_next=may_try_again)
    isolation = IsolationSequence(episode, plan, node_writer, preflight, tries, progress=progress.isolation)
    case = Case(
        episode=episode,
        progress=progress,
        plan=plan,
        need=need,
        preflight=preflight,
        node_writer=node_writer,
        adoption=Adoption(episode, node_writer),
        answering=RequestAnswers(episode, need, node_writer, progress),
        power=power,
        freeing=freeing,
        tries=tries,
        isolation=isolation,
        pinned_node=PinnedNode(episode, progress, power, isolation),
    )
    return case
