"""The ladder of a remediation: an ordered list of steps, each with a time-out, gone through until one of them helps.

What a step does is `workflows/remediation.py`; which ladder a target has is `policy/remediation/ladder.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from policy.healthcheck import ObjectRef


class Strategy(StrEnum):
    """What a step does; the values are the words of annotations, records and tables."""

    DELETE_MACHINE = "delete-machine"
    REQUEST_OWNER = "request-owner"
    EXTERNAL = "external"
    ANNOTATE_EXTERNAL = "annotate-external"
    FENCE = "fence"
    REBOOT = "reboot"
    DETACH_VOLUMES = "detach-volumes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. name: unique in its ladder; by it what has failed is remembered. timeout None: it never times out."""

    strategy: Strategy
    name: str
    template: ObjectRef | None = None
    timeout: timedelta | None = None


def first_step(ladder: tuple[Step, ...], failed: Collection[str]) -> int | None:
    """The first step that has not failed, None where all have."""
    return next((index for index, step in enumerate(ladder) if step.name not in failed), None)


def next_step(ladder: tuple[Step, ...], index: int, failed: Collection[str]) -> int | None:
    """The next one behind that step that has not failed, None where the ladder is used up."""
    found = first_step(ladder[index + 1 :], failed)
    return index + 1 + found if found is not None else None


def timed_out(started: datetime, timeout: timedelta | None, now: datetime) -> bool:
    """Whether a step's time is over: strictly more than its time-out has passed."""
    return timeout is not None and now > started + timeout
