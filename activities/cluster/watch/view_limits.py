"""How long a view may be quiet, broken or new before that counts (S18)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


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
