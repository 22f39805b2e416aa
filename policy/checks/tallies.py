"""The counts of one health check while its verdicts change one by one; the sum that `policy/checks/brakes.py` judges."""

from __future__ import annotations

from policy.checks.brakes import Counts
from policy.checks.targets import JudgedTarget
from policy.checks.verdicts import Standing, Verdict


class Tally:
    """How many targets stand how.

    Which targets are of the control plane, and which of the unhealthy are on their way to another machine config, is kept by
    name: a node may become either while its verdict stays the same.
    """

    __slots__ = ("_control_plane", "_standings", "_updating")

    def __init__(self) -> None:
        self._standings = dict.fromkeys(Standing, 0)
        self._updating: set[str] = set()
        self._control_plane: set[str] = set()

    def add(self, target: JudgedTarget, verdict: Verdict) -> None:
        """Count a verdict that is new."""
        self._standings[verdict.standing] += 1
        if _of_control_plane(target, verdict):
            self._control_plane.add(target.key)
        if target.updating and verdict.standing is Standing.UNHEALTHY:
            self._updating.add(target.key)

    def remove(self, target: JudgedTarget, verdict: Verdict) -> None:
        """Count a verdict no more, however the target has changed since it was counted."""
        self._standings[verdict.standing] -= 1
        self._control_plane.discard(target.key)
        self._updating.discard(target.key)

    def restates(self, target: JudgedTarget, verdict: Verdict) -> bool:
        """Whether the same verdict is to be counted otherwise."""
        updating = target.updating and verdict.standing is Standing.UNHEALTHY
        counted_as_member = target.key in self._control_plane
        return updating != (target.key in self._updating) or _of_control_plane(target, verdict) != counted_as_member

    def counts(self) -> Counts:
        """The sum as it is now."""
        standings = self._standings
        return Counts(
            healthy=standings[Standing.HEALTHY],
            soon=standings[Standing.SOON],
            starting=standings[Standing.STARTING],
            unhealthy=standings[Standing.UNHEALTHY],
            deleting=standings[Standing.DELETING],
            excluded=standings[Standing.EXCLUDED],
            recovering=standings[Standing.RECOVERING],
            left_out=standings[Standing.LEFT_OUT],
            updating=len(self._updating),
            control_plane=len(self._control_plane),
        )


def _of_control_plane(target: JudgedTarget, verdict: Verdict) -> bool:
    """Whether it counts among the check's control-plane members: whoever is in no total is in no group either."""
    return target.control_plane and verdict.standing is not Standing.LEFT_OUT
