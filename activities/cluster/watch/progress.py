"""How far the scanner has seen a cluster's history, through whatever worker, and whether our copies have come as far (S18).

A watch that is half-open shows an old world and looks well for a minute. Versions of one kind tell which copy is newer, those of
two kinds do not: nodes have a mark, and so have the health checks of each dialect, since a pause or another threshold that one
worker has seen must hold back every other. What to do about it is `view.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import timedelta

from activities.cluster.watch.reflector import version_number
from activities.cluster.watch.watches import Following, Watches
from policy.scan.scan_report import SeenVersion

log = logging.getLogger(__name__)

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
            if self._counted(key, marks) > _reached(copy) and not self._is_gone(copy)
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


def _reached(copy: Following) -> int:
    return max(copy.newest_change, version_number(copy.resource_version))
