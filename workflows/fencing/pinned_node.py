"""What the latest look says about the machine that was pinned: is it back, is it another one, which boot is it?

All that proves anything is concluded from `Episode.looked`, which live looks keep (`workflows/episode/preflight.py`). What
signals say besides (`Episode.observation`) is a reason to look, or to refrain (S42). The rules are `policy/episode/fencing.py`
and `policy/episode/identity.py`.
"""

from __future__ import annotations

from dataclasses import replace

from policy.episode.fencing import restart_proven
from policy.episode.identity import same_machine
from policy.episode.messages import Pinned
from policy.episode.needs import NeedKind
from workflows.episode.episode import Episode
from workflows.episode.state import FencingProgress
from workflows.fencing.isolation import IsolationSequence
from workflows.fencing.power import PowerSequence


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
        """Whom the episode is about."""
        return self._episode.target.pinned

    def seems_changed(self) -> bool:
        """A hint that the node is back or gone, or that nobody asks for it any more, to be confirmed by a live look before
        anything follows from it."""
        seen = self._episode.observation
        if seen is None:
            return False
        unasked = self._need.kind is NeedKind.FOREIGN_OBJECT and self._need.object_uid not in seen.asked_by
        return seen.ready or not seen.present or seen.uid != self.pinned.uid or unasked

    def says_ready(self) -> bool:
        """Whether the node is there and Ready, whatever its boot."""
        seen = self._episode.looked
        return seen is not None and seen.present and seen.ready

    def is_back(self) -> bool:
        """Ready with a boot id that is new since our command, on the name we pinned."""
        seen = self._episode.looked
        off = self._power.proof
        word = off.acknowledgement.at if off is not None and off.acknowledgement is not None else None
        off_since = (self._power.off_commanded_at or word) if off is not None else None
        dead_since = dead.last if (dead := self._episode.kernel_dead) is not None else None
        since = self._progress.power.powered_on_at or off_since or dead_since or self._isolation.paths.cut_since
        if seen is None or since is None or not self.says_ready() or self.is_replaced():
            return False  # another machine's first boot is no restart of the pinned one (S9)
        proof = restart_proven(self.pinned, seen, since, boot_ids_before=self._progress.boots_before)
        self._episode.restart_proof = proof or self._episode.restart_proof
        return proof is not None

    def has_restarted(self) -> bool:
        """Whether it is Ready with a boot id that is new since our off, whatever has become of the proof of that, and whoever has
        switched it on."""
        seen, off = self._episode.looked, self._power.off_commanded_at
        if seen is None or not self.says_ready() or self.is_replaced():
            return False
        return restart_proven(self.pinned, seen, off, boot_ids_before=self._progress.boots_before) is not None

    def is_replaced(self) -> bool:
        """Whether another machine has taken the name; a new Node object of the same machine has not."""
        seen = self._episode.looked
        if seen is None or not seen.present or seen.uid == self.pinned.uid:
            return False
        return not same_machine(self.pinned, seen)

    def is_gone(self) -> bool:
        """Whether there is no Node of that name any more."""
        seen = self._episode.looked
        return seen is not None and not seen.present

    def is_registered_anew(self) -> bool:
        """Whether the Node is another object than the pinned one, and stands for the same machine."""
        seen = self._episode.looked
        return seen is not None and seen.present and seen.uid != self.pinned.uid and same_machine(self.pinned, seen)

    def adopt_node(self) -> None:
        """The Node object as it is now is the one that we are about."""
        if (seen := self._episode.looked) is not None:
            self._episode.note("pin", "uid", f"{self.pinned.uid} has become {seen.uid}, which is the same machine")
            self._episode.pinned = replace(self.pinned, uid=seen.uid)

    def has_booted(self) -> bool:
        """Whether the node shows another boot than the pinned one, or is said to."""
        seen = self._episode.observation
        return seen is not None and bool(seen.boot_id) and seen.boot_id != self.pinned.boot_id

    def follow_boot(self) -> None:
        """The boot of the pinned Node as it is now, and since when it is not Ready."""
        seen = self._episode.looked
        if seen is None or not seen.present or seen.uid != self.pinned.uid or not same_machine(self.pinned, seen):
            return
        self.pin_boot()
        pinned = replace(self.pinned, not_ready_since=None if seen.ready else seen.ready_since)
        self._episode.pinned = pinned

    def pin_boot(self) -> None:
        """The boot that we end is the one seen just now; the node may have rebooted by itself since the target was pinned."""
        seen = self._episode.looked
        if seen is not None and seen.boot_id and seen.boot_id != self.pinned.boot_id:
            self._episode.note("pin", "boot id", f"{self.pinned.boot_id} has become {seen.boot_id}")
            self._episode.pinned = replace(self.pinned, boot_id=seen.boot_id)
            self._episode.begin_round()

    def remember_boot(self) -> None:
        """Before power-on: the boot shown now is an old one, too; it may have rebooted by itself between the pin and our off."""
        if (seen := self._episode.looked) is not None:
            self._progress.boots_before.append(seen.boot_id)
