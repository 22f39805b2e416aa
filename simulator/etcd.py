"""The list of an etcd cluster's members, as etcd would answer an authorized client; nothing is stored in it.

The simulated API server keeps its objects elsewhere, so members come and go without a consequence for it. A KubeadmControlPlane
decides by this list; a test changes it through the doors here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdMember:
    """One member. name: that of its node, "" while it has not started yet. learner: it has no vote. alarm: such as NOSPACE."""

    name: str
    learner: bool = False
    alarm: str = ""


class Etcd:
    """The members, and the doors to them."""

    def __init__(self) -> None:
        self.members: tuple[EtcdMember, ...] = ()
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def member(self, name: str) -> EtcdMember | None:
        return next((each for each in self.members if each.name == name), None)

    # Doors

    def add(self, name: str = "", *, learner: bool = False, alarm: str = "") -> None:
        """A member that joins; without a name it has not started yet. One that is there of that name is replaced."""
        others = [each for each in self.members if not name or each.name != name]
        self._become((*others, EtcdMember(name=name, learner=learner, alarm=alarm)))

    def change(self, name: str, *, learner: bool | None = None, alarm: str | None = None) -> None:
        """What is None stays as it is. Raises LookupError where there is no such member."""
        known = self.member(name)
        if known is None:
            raise LookupError(f"etcd has no member {name!r}; there are {', '.join(each.name for each in self.members)}")
        changed = replace(
            known,
            learner=known.learner if learner is None else learner,
            alarm=known.alarm if alarm is None else alarm,
        )
        self._become(tuple(changed if each.name == name else each for each in self.members))

    def remove(self, name: str = "") -> None:
        """A member that leaves; without a name all that have not started yet."""
        self._become(tuple(each for each in self.members if each.name != name))

    def _become(self, members: tuple[EtcdMember, ...]) -> None:
        if members != self.members:
            self.members = members
            for listener in self._listeners:
                listener()
