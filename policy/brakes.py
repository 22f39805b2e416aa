"""The brake of one health check: whether so many targets are unwell that acting would make matters worse (S17).

Only the sum is judged here; single targets are `policy/verdicts.py`, who may act now is `policy/admission.py`. Whatever is not
plainly healthy counts against the group: targets whose timeout runs, that are deleted, excluded, or still held by an episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from policy.healthcheck import Dialect, HealthCheck
from policy.thresholds import Rounding, scaled

_ROUNDING = {Dialect.MEDIK8S: Rounding.UP, Dialect.OPENSHIFT: Rounding.DOWN, Dialect.CLUSTER_API: Rounding.DOWN}


class Closed(StrEnum):
    """Why a brake is closed; the machine's word beside the sentence."""

    NO = ""
    PAUSED = "Paused"
    SHORT_CIRCUIT = "ShortCircuit"
    INVALID_THRESHOLD = "InvalidThreshold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many targets a check selects, by what it thinks of them; `total` is their sum."""

    healthy: int = 0
    soon: int = 0
    unhealthy: int = 0
    skipped: int = 0
    recovering: int = 0

    @property
    def total(self) -> int:
        """All targets that the check selects."""
        return self.healthy + self.soon + self.unhealthy + self.skipped + self.recovering


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """Whether the check lets us act, with the numbers in a sentence. `remaining` is explained at `report.CheckReport`."""

    allowed: bool
    remaining: int
    reason: Closed
    message: str


def brake(check: HealthCheck, counts: Counts) -> Brake:
    """The brake as the check's dialect has it: medik8s rounds up and compares healthy ones, the others round down."""
    if check.paused:
        return _closed(Closed.PAUSED, f"paused: {check.paused}")
    needed, stated = _needed(check, counts.total)
    numbers = f"{counts.healthy} of {counts.total} nodes are healthy, {stated}"
    if needed < 0 and check.dialect is Dialect.MEDIK8S:
        problem = f"maxUnhealthy {check.max_unhealthy} is more than the {counts.total} nodes selected"
        return _closed(Closed.INVALID_THRESHOLD, problem)
    if counts.healthy < needed:
        return _closed(Closed.SHORT_CIRCUIT, numbers)
    return Brake(allowed=True, remaining=counts.healthy - needed, reason=Closed.NO, message=numbers)


def _needed(check: HealthCheck, total: int) -> tuple[int, str]:
    """How many must be healthy, and that in words. Below 0 where more may be unhealthy than there are."""
    rounding = _ROUNDING[check.dialect]
    if check.min_healthy is not None:
        needed = scaled(check.min_healthy, total, rounding)
        return needed, f"minHealthy {check.min_healthy} needs {needed}"
    if check.max_unhealthy is not None:
        needed = total - scaled(check.max_unhealthy, total, rounding)
        return needed, f"maxUnhealthy {check.max_unhealthy} needs {max(needed, 0)}"
    # No dialect hands over a check without a threshold; without one nothing may be assumed to be harmless.
    return total + 1, "no threshold is set"


def _closed(reason: Closed, message: str) -> Brake:
    return Brake(allowed=False, remaining=0, reason=reason, message=message)
