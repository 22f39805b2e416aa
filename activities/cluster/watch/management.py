"""How fresh our picture of a management cluster is, where Cluster API's objects live in one, and the limits of every view (S18).

It can be lost from sight while the cluster itself is seen well: then only the checks that live there wait. Until it has been
heard once nobody knows which of its checks cover our nodes too. What follows from all this for a report is `view.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from activities.cluster.api.probe import Probe
from activities.cluster.watch.watches import Following, Watches
from policy.values.times import format_duration
from policy.values.unread import Unread, by_cause

# How long a view may be quiet, broken or new before that counts (S18).


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewLimits:
    """What makes a view stale (S18).

    silence: bookmarks come about once a minute, so a watch that is quiet for longer is not one. broken: how long a watch may
    take to come back before that counts. grace: after the first complete list, and after an outage, in which nodes could not
    report either. shrunk: how long an empty or halved inventory must last to be believed. probe: how long all watches may be
    quiet before the server is asked whether it is there; probe_again: how soon after it was not.
    """

    silence: timedelta = timedelta(seconds=75)
    broken: timedelta = timedelta(seconds=5)
    grace: timedelta = timedelta(seconds=15)
    shrunk: timedelta = timedelta(minutes=5)
    probe: timedelta = timedelta(seconds=10)
    probe_again: timedelta = timedelta(seconds=2)
    catch_up: timedelta = timedelta(seconds=2)
    first_list: timedelta = timedelta(seconds=10)


MOST_NAMED = 3


class Management:
    """The part of the watches that goes over the other connection. `probe` asks that server; None where there is no other."""

    def __init__(self, watches: Watches, limits: ViewLimits, probe: Probe | None) -> None:
        self._watches = watches
        self._limits = limits
        self._probe = probe
        self._broken_since: float | None = None
        self._whole_since: float | None = None

    async def stop(self) -> None:
        """Drop the question that is open."""
        if self._probe is not None:
            await self._probe.stop()

    def ask_if_due(self) -> None:
        """Ask the server whether it is there, where all of it has been quiet for long."""
        if self._probe is not None:
            self._probe.ask_if_due(shortest_silence(self._watches.elsewhere()))

    def lost(self) -> str:
        """Why what lives there is out of sight, "" while it is not."""
        others, elapsed = self._watches.elsewhere(), asyncio.get_running_loop().time()
        if not others:
            return ""
        since, patience = self._broken_since, self._limits.broken.total_seconds()
        lasting = since is not None and elapsed - since >= patience
        if lasting:
            self._whole_since = None
        if all(each.streaming for each in others):
            self._broken_since, lasting = None, False
        elif since is None:
            self._broken_since = elapsed
        if why := self._trouble(others, lasting=lasting):
            self._whole_since = None
            return why
        # A watch that is open again has not yet told what it missed: a pause, or a Machine that somebody took out.
        self._whole_since = elapsed if self._whole_since is None else self._whole_since
        if elapsed - self._whole_since < self._limits.grace.total_seconds():
            return f"the management cluster has been followed again for less than {format_duration(self._limits.grace)}"
        return ""

    def never_listed(self) -> list[Following]:
        """What has not been heard of even once."""
        return [each for each in self._watches.elsewhere() if not each.lists and not each.absent]

    def unheard(self) -> str:
        """Until the management cluster has been heard, nobody knows which of its checks cover our nodes too, and are paused: a
        worker that starts while it is down would act past brakes that its predecessor held closed."""
        if not (missing := self.never_listed()):
            return ""
        return f"the management cluster {self._watches.machines.url} has never been heard: no list yet of {listed(missing)}"

    def moments(self) -> list[float]:
        """Seconds until each moment at which an answer can change though nothing happens."""
        elapsed, found = asyncio.get_running_loop().time(), list[float]()
        if self._probe is not None:
            others = self._watches.elsewhere()
            found.append(self._probe.seconds_left(shortest_silence(others)))
            found.append(self._limits.silence.total_seconds() - longest_silence(others))
        if self._broken_since is not None:
            found.append(self._broken_since + self._limits.broken.total_seconds() - elapsed)
        if self._whole_since is not None:
            found.append(self._whole_since + self._limits.grace.total_seconds() - elapsed)
        return found

    def _trouble(self, others: list[Following], *, lasting: bool) -> str:
        if self._probe is not None and self._probe.problem:
            return self._probe.problem
        if broken := [each for each in others if not each.synced or (lasting and not each.streaming)]:
            return f"the watch is down on {listed(broken)} in the management cluster"
        if longest_silence(others) > self._limits.silence.total_seconds():
            return "nothing was heard from the management cluster lately"
        return ""


def listed(reflectors: Iterable[Following]) -> str:
    """Kinds, and what is the matter with them, by cause: an outage has one. Of many kinds the first ones."""
    found = by_cause(Unread(what=each.resource.plural, why=each.problem or "no answer") for each in reflectors)
    more = {cause: f" and {len(kinds) - MOST_NAMED} more" if len(kinds) > MOST_NAMED else "" for cause, kinds in found.items()}
    return "; ".join(f"{', '.join(kinds[:MOST_NAMED])}{more[cause]} ({cause})" for cause, kinds in found.items())


def longest_silence(reflectors: Iterable[Following]) -> float:
    """The same where it is longest; a kind that the server does not know has nothing to say."""
    return max((each.silent_for() for each in reflectors if not each.absent), default=0.0)


def shortest_silence(reflectors: Iterable[Following]) -> float:
    """Of what is watched, in seconds. A kind that the server does not know is asked for anew each time: that says nothing of the
    watches."""
    return min((each.silent_for() for each in reflectors if not each.absent), default=float("inf"))
