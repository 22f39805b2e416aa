"""Int-or-percentage thresholds (`3`, `"3"`, `"40%"`): read from JSON, and scaled to a group of targets.

Each dialect rounds in its own way; `policy/checks/circuit_breakers.py` compares the result with the counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from policy.values.errors import shown

_TEXT = re.compile(r"(-?[0-9]{1,9})(%?)", re.ASCII)
LARGEST = 10**9

EXPECTED = 'a whole number of at least 0 or a percentage from "0%" to "100%"'
"""For messages: what every threshold field expects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """An int-or-percentage as Kubernetes objects write it: `3` or `"40%"`. Rounding is the dialect's
    (`policy/checks/circuit_breakers.py`)."""

    value: int
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.value}%" if self.percent else str(self.value)


class Rounding(StrEnum):
    """How a percentage of a group rounds fractions of a target."""

    UP = "up"
    DOWN = "down"


def parse_threshold(value: object, *, plain_text: bool = True, negative: bool = False) -> Threshold:
    """The threshold in a decoded JSON value. Raises ValueError saying what was expected.

    plain_text: whether a number written as text (`"3"`) is accepted; medik8s and OpenShift accept it, Cluster API does not.
    negative: whether numbers below 0 are accepted; for MachineHealthChecks these allow nothing.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST and (negative or value >= 0):
        return Threshold(value=value)
    if isinstance(value, str) and (matched := _TEXT.fullmatch(value)):
        number, percent = int(matched[1]), bool(matched[2])
        if ((percent and number <= 100) or (not percent and plain_text)) and (negative or not matched[1].startswith("-")):
            return Threshold(value=number, percent=percent)
    only = "" if plain_text else "; a number must not be quoted"
    raise ValueError(f"expected {EXPECTED}{only}, got {shown(value)}")


def scaled(threshold: Threshold, total: int, rounding: Rounding) -> int:
    """The threshold as a number of targets in a group of `total`."""
    if not threshold.percent:
        return threshold.value
    product = threshold.value * total
    return -(-product // 100) if rounding is Rounding.UP else product // 100
