"""The rules for fence_kdump: how long power-off waits for a node that writes its crash dump, and what else its messages mean.

The messages are unauthenticated datagrams, so by themselves they only delay, and never for longer than a bound of ours: a forger
can delay a power-off by that much, and can't cause one. They prove nothing about off (S2). By the node-fencing proposal a kernel
which dumps runs no pods any more; that is an option for networks without forgers (`trusted`), and it holds only for moments
after a message, since after the dump the machine boots. `activities/power/kdump_listener.py` receives the messages, the workflow
asks and waits.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from policy.values.times import format_duration, later

BEFORE_NOT_READY = timedelta(minutes=2)
"""A kernel dumps at once when it crashes; the node becomes not Ready later. Earlier messages are from another crash (S43)."""

STILL_DEAD = timedelta(seconds=15)
"""For how long one message says that the kernel is dead. The next one is due after 10 s; no machine ends its dump, boots and has
its pods write again before that time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KdumpRule:
    """window: how long the first message may take from NotReady on. silence: a dump is over after that long without a message
    (one is sent every 10 s). longest: bound of the whole wait, from the moment power-off was due.

    trusted: messages also say that the node's kernel is dead. Raises ValueError for a rule that would never wait, or for ever.
    """

    window: timedelta = timedelta(seconds=60)
    silence: timedelta = timedelta(seconds=30)
    longest: timedelta = timedelta(minutes=10)
    trusted: bool = False

    def __post_init__(self) -> None:
        for name, value in (("window", self.window), ("silence", self.silence), ("longest", self.longest)):
            if not timedelta(0) < value <= timedelta(days=1):
                raise ValueError(f"{name}: expected more than 0 and at most a day, got {format_duration(value)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KdumpReading:
    """The messages that a listener has received from a node up to `at`. first, last: of the messages of one dump, None without
    any.

    All moments are by the listener's clock. listening: since when it has listened without a break; address: the sender's. seal:
    shows a cluster worker that a listener of ours has received the last one (S1, S42).
    """

    at: datetime
    listening: datetime
    address: str = ""
    first: datetime | None = None
    last: datetime | None = None
    messages: int = 0
    seal: str = field(default="", compare=False)

    def by_another_clock(self, at: datetime) -> KdumpReading:
        """The same by another clock, which shows `at` at the reading's moment `self.at`."""
        ahead = self.at - at
        first, last = (moment - ahead if moment is not None else None for moment in (self.first, self.last))
        return replace(self, at=at, listening=self.listening - ahead, first=first, last=last)


class Kdump(StrEnum):
    """The state of a dump. Only `awaited`, `dumping` and, for a while, `deaf` hold power-off back."""

    AWAITED = "awaited"
    DUMPING = "dumping"
    ENDED = "ended"
    SILENT = "silent"
    DEAF = "deaf"
    OVERDUE = "overdue"


@dataclass(frozen=True, slots=True, kw_only=True)
class KdumpAnswer:
    """wait: how long until the listener is to be asked again, before power is switched off; 0: go on."""

    state: Kdump
    wait: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDead:
    """`kernel dead (fence_kdump, trusted network)`: a message from the node's own address, later than `after`, which is when the
    node stopped being Ready or the episode began.

    It licenses freeing the node's pods for moments (`STILL_DEAD` from `last` on), if the configuration trusts the network; it is
    never `off proven`. `last` and `read_at` are by the clock of the listener. seal: as in a KdumpReading.
    """

    address: str
    messages: int
    last: datetime
    read_at: datetime
    after: datetime
    seal: str = field(default="", compare=False)

    def __str__(self) -> str:
        messages = f"{self.messages} messages from {self.address}, the last one {_ago(self.read_at - self.last)}"
        return f"kernel dead (fence_kdump, trusted network): {messages}"


def kdump_wait(
    rule: KdumpRule, reading: KdumpReading | None, *, not_ready_since: datetime | None, due: datetime, now: datetime
) -> KdumpAnswer:
    """Whether power-off waits. reading None: no listener answered. due: when power-off would have begun without kdump.

    not_ready_since None: not known, then the window counts from `due`.
    """
    began = min(not_ready_since or due, due)
    left = later(due, rule.longest) - now
    if reading is None:
        return _until(Kdump.DEAF, min(later(due, rule.window) - now, left), "no listener of kdump messages answers")
    last = reading.last
    if last is not None and last >= later(began, -BEFORE_NOT_READY):
        messages = f"{reading.messages} kdump messages from {reading.address}, the last one {_ago(reading.at - last)}"
        quiet = rule.silence - (reading.at - last)
        if quiet <= timedelta(0):
            return KdumpAnswer(state=Kdump.ENDED, wait=timedelta(0), reason=f"{messages}: the dump is over")
        if left <= timedelta(0):
            bound = format_duration(rule.longest)
            reason = f"{messages}, but power-off has waited {bound} for it"
            return KdumpAnswer(state=Kdump.OVERDUE, wait=timedelta(0), reason=reason)
        return KdumpAnswer(state=Kdump.DUMPING, wait=min(quiet, left), reason=messages)
    # Messages from before the listener began are not known.
    window = rule.window - (reading.at - max(began, reading.listening))
    answer = _until(Kdump.AWAITED, min(window, left), "no kdump message was heard")
    return answer if answer.wait else KdumpAnswer(state=Kdump.SILENT, wait=answer.wait, reason=answer.reason)


def kernel_dead(
    rule: KdumpRule,
    reading: KdumpReading | None,
    *,
    addresses: Iterable[str],
    not_ready_since: datetime | None,
    began: datetime,
) -> KernelDead | None:
    """The proof that the node's kernel is dead by its own messages, if these are trusted; None if it is not, or not known (S2,
    S3).

    addresses: the node's. began: when the episode did. Messages from before that, or from while the node was Ready, are of
    another crash.
    """
    if not rule.trusted or reading is None or reading.last is None or not_ready_since is None:
        return None
    proof = KernelDead(
        address=reading.address,
        messages=reading.messages,
        last=reading.last,
        read_at=reading.at,
        after=max(not_ready_since, began),
        seal=reading.seal,
    )
    return proof if dead_stands(proof, not_ready_since=not_ready_since, addresses=addresses) else None


def dead_stands(proof: KernelDead, *, not_ready_since: datetime | None, addresses: Iterable[str]) -> bool:
    """Whether a proof is whole: from an address of the node, later than NotReady, and young when it was read (S1)."""
    ours = {normal_address(address) for address in addresses} - {""}
    is_of_this_crash = not_ready_since is not None and not_ready_since <= proof.after < proof.last
    return is_of_this_crash and proof.address in ours and timedelta(0) <= proof.read_at - proof.last <= STILL_DEAD


def normal_address(address: str) -> str:
    """One spelling per address, "" for a text that is none: an IPv4 address from an IPv6 socket as IPv4, and without a zone."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def _until(state: Kdump, wait: timedelta, reason: str) -> KdumpAnswer:
    return KdumpAnswer(state=state, wait=max(wait, timedelta(0)), reason=reason)


def _ago(age: timedelta) -> str:
    return f"{format_duration(timedelta(seconds=max(int(age.total_seconds()), 0)))} ago"
