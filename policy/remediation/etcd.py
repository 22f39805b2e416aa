"""What is left of an etcd cluster after a change: who votes, how many of them are unwell, and whether that is a quorum (S15).

Computed from the member list, as KubeadmControlPlane does it. Only the list counts: a machine that is not in it is not missed,
and a member without its machine still votes. To remove a member from the list and to switch off its machine are different acts:
a member that is switched off is still counted, so of two members one may be removed, but none be switched off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One entry of the list. name "": it has just been added and not started yet. alarm: which one it raises (`NOSPACE`).

    healthy None: its state is unknown, since its machine is not known; then it is well unless it raises an alarm.
    """

    name: str
    learner: bool = False
    alarm: str = ""
    healthy: bool | None = None

    @property
    def well(self) -> bool:
        """Whether it counts towards the quorum."""
        return self.healthy is not False and not self.alarm and bool(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The cluster after the change. safe: it has a quorum, and no learner. why: the numbers in words."""

    safe: bool
    why: str


def removing(members: Iterable[Member], name: str) -> Projection:
    """The cluster without that member: its machine is deleted, and it is removed from the list."""
    return _projected([member for member in members if not name or member.name != name], f"without {name or 'a member'}")


def stopping(members: Iterable[Member], name: str) -> Projection:
    """The cluster with that member in the list but not running: its machine is switched off or restarted."""
    present = tuple(members)
    stopped = [member for member in present if member.name == name and name]
    return _projected([member for member in present if member not in stopped], f"while {name or 'a member'} is stopped", stopped)


def _projected(running: Sequence[Member], change: str, stopped: Sequence[Member] = ()) -> Projection:
    present = (*running, *stopped)
    # One without a name is still starting: it will be a learner, if it gets that far.
    learners = sum(member.learner or not member.name for member in present)
    voting = len(present) - learners
    unwell = [member for member in running if not member.well]
    unhealthy = len(unwell) + sum(not member.learner for member in stopped)
    quorum = voting // 2 + 1
    safe = voting - unhealthy >= quorum and learners == 0
    return Projection(
        safe=safe,
        why=f"{change} {max(voting - unhealthy, 0)} of etcd's {voting} voters would be well, a quorum is {quorum}"
        + _beside(learners, unwell),
    )


def _beside(learners: int, unwell: Iterable[Member]) -> str:
    """The learners and the members that are unwell, behind the numbers."""
    names = sorted(f"{each.name or 'one without a name'}{f' ({each.alarm})' if each.alarm else ''}" for each in unwell)
    starting = f"; {learners} of its members {'is' if learners == 1 else 'are'} no voter yet" if learners else ""
    return starting + (f"; unwell: {', '.join(names)}" if names else "")
