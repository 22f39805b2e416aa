"""How fresh our picture of a management cluster is, where Cluster API's objects live in one, and the limits of every view (S18).

It can be lost from sight while the cluster itself is seen well: then only the checks that live there wait. Until it has been
listed once it is not known which of its checks cover our nodes too. What follows from all this for a report is `view.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.refusals import Unconnected
from activities.cluster.watch.reflector import version_number
from activities.cluster.watch.watches import Following, Watches
from policy.scan.scan_report import SeenVersion
from policy.values.display_text import some_of
from policy.values.errors import Unread, by_cause
from policy.values.times import format_duration

# A cheap live question beside the watches: does the API server answer at all, and is it still the same cluster?
#
# A watch may be silent for a minute because nothing happens or because nothing arrives any more; nodes in particular are quiet,
# since their heartbeats are Leases. Reading one small object tells the two apart within seconds. Judging the view is `view.py`.

log = logging.getLogger(__name__)

Call = Callable[[], None]


class Probe:
    """Asks for the namespace kube-system, by the uid of which the cluster is known. `problem`: why not to believe in the view."""

    def __init__(self, connection: ClusterConnection, *, on_answer: Call, on_return: Call, every: float, again: float) -> None:
        """on_return: for a server that answers again."""
        self.uid = ""
        self.problem = ""
        self._connection = connection
        self._on_answer = on_answer
        self._on_return = on_return
        self._every = every
        self._again = again
        self.answered_at = self._asked_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def seconds_left(self, quiet: float) -> float:
        """Until the next question is due, for watches that have been quiet for so long."""
        if self._asking is not None:
            return float("inf")
        since_asked = asyncio.get_running_loop().time() - self._asked_at
        if self.problem or not self.uid:
            return self._again - since_asked
        return self._every - min(since_asked, quiet)

    def ask_if_due(self, quiet: float) -> None:
        """Ask in the background where it is time; never two at once."""
        if self._asking is None and self.seconds_left(quiet) <= 0:
            self._asked_at = asyncio.get_running_loop().time()
            self._asking = asyncio.create_task(self._ask(), name="probe")
            self._asking.add_done_callback(self._answered)

    async def stop(self) -> None:
        """Drop the question that is open."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> None:
        try:
            uid = await self._connection.cluster_uid(live=True)
        except ApplicationError as error:
            if not self.problem:
                level = logging.DEBUG if isinstance(error, Unconnected) else logging.WARNING  # the connection has said it
                log.log(level, "%s does not answer: %s", self._connection.url, error.message)
                self.problem = f"the API server does not answer: {error.message}"
            return
        self.answered_at = asyncio.get_running_loop().time()
        if self.uid and uid != self.uid:
            # Not forgiven: it can't be known here which of the two clusters the episodes are about.
            self.problem = (
                f"another cluster answers now: the uid of kube-system was {self.uid} and is {uid}; `nodewarden scan stop`,"
                " a restart of this worker and `scan start` accept it"
            )
            return
        if self.problem:
            self._on_return()
        self.uid, self.problem = uid, ""

    def _answered(self, _: asyncio.Task[None]) -> None:
        self._asking = None
        self._on_answer()


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


class ManagementCluster:
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
        # A watch that is open again has not yet shown what it missed: a pause, or a Machine that a person took out.
        self._whole_since = elapsed if self._whole_since is None else self._whole_since
        if elapsed - self._whole_since < self._limits.grace.total_seconds():
            return f"the management cluster has been followed again for less than {format_duration(self._limits.grace)}"
        return ""

    def never_listed(self) -> list[Following]:
        """What has not been listed even once."""
        return [each for each in self._watches.elsewhere() if not each.lists and not each.absent]

    def unlisted(self) -> str:
        """Until the management cluster has been listed, it is not known which of its checks cover our nodes too, and are
        paused: a worker that starts while it is down would act past the open circuit breakers of its predecessor."""
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

    def _trouble(self, others: Sequence[Following], *, lasting: bool) -> str:
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
    return "; ".join(f"{some_of(kinds, MOST_NAMED)} ({cause})" for cause, kinds in found.items())


def longest_silence(reflectors: Iterable[Following]) -> float:
    """The same where it is longest; a kind that the server does not know has nothing to say."""
    return max((each.silent_for() for each in reflectors if not each.absent), default=0.0)


def shortest_silence(reflectors: Iterable[Following]) -> float:
    """Of what is watched, in seconds. A kind that the server does not know is asked for anew each time: that says nothing of the
    watches."""
    return min((each.silent_for() for each in reflectors if not each.absent), default=float("inf"))


# How far the scanner has seen a cluster's history, through whatever worker, and whether our copies have come as far (S18).
#
# A watch that is half-open shows an old world and looks well for a minute. Versions of one kind tell which copy is newer, those
# of two kinds do not: nodes have a mark, and so have the health checks of each dialect, since a pause or another threshold that
# one worker has seen must hold back every other. What to do about it is `view.py`.

Marks = Mapping[str, str]
"""A resourceVersion for the nodes, and one by the name of each dialect."""

_NODES = "nodes"


def marks_of(nodes: str, checks: Collection[SeenVersion]) -> Marks:
    """What a scanner says it has seen."""
    return {_NODES: nodes, **{str(seen.dialect): seen.version for seen in checks}}


class WatchProgress:
    """Compares marks with one view's copies. believed_gone: how long a kind must be unknown before nothing is missing of it."""

    def __init__(self, watches: Watches, *, believed_gone: timedelta) -> None:
        self._watches = watches
        self._believed_gone = believed_gone.total_seconds()
        self._void: dict[str, int] = {}

    def behind(self, marks: Marks) -> str:
        """Why the view must not be acted on, "" where every copy has come as far."""
        for key, copy in self.lagging(marks).items():
            return f"another worker has seen version {marks[key]} of {copy.resource.plural}, this view has not come so far yet"
        return ""

    def lagging(self, marks: Marks) -> dict[str, Following]:
        """The copies that have not come as far."""
        return {
            key: copy
            for key, copy in self._copies().items()
            if self._counted(key, marks) > max(copy.newest_change, version_number(copy.resource_version))
            if not self._is_gone(copy)
        }

    def drop(self, marks: Marks, keys: Collection[str]) -> None:
        """Those that lag although they have just been listed. A list is never older than anything that was ever seen, so it is
        the mark that is of another history."""
        for key, copy in self.lagging(marks).items():
            if key in keys:
                log.warning(
                    "the server is at %s, a scan had seen %s of %s: it went back in time",
                    copy.resource_version,
                    marks[key],
                    copy.resource.plural,
                )
                self._void[key] = version_number(marks[key])

    def nodes_version(self, marks: Marks) -> str:
        """The mark of the nodes, as it is now."""
        return str(max(self._watches.nodes.newest_change, self._counted(_NODES, marks)))

    def check_versions(self, marks: Marks) -> tuple[SeenVersion, ...]:
        """The marks of the health checks, as they are now; none of a kind that has none, or is gone."""
        found = (
            SeenVersion(dialect=dialect, version=str(max(copy.newest_change, self._counted(dialect, marks))))
            for dialect, copy in self._watches.checks().items()
            if not self._is_gone(copy)
        )
        return tuple(seen for seen in found if seen.version != "0")

    def _copies(self) -> dict[str, Following]:
        return {_NODES: self._watches.nodes, **{str(dialect): copy for dialect, copy in self._watches.checks().items()}}

    def _counted(self, key: str, marks: Marks) -> int:
        number = version_number(marks.get(key, ""))
        return 0 if number <= self._void.get(key, 0) else number

    def _is_gone(self, copy: Following) -> bool:
        return copy.absent and copy.unknown_for() >= self._believed_gone
