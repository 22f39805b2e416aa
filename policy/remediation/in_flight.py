"""How many targets of a health check may be remediated at the same time.

What a MachineSet has as `maxInFlight`. It is another thing than the brake of a health check (`policy/checks/brakes.py`): that one
asks how many are unwell, this one how many are under way. Those are never stopped by it. `policy/scan/admission.py` says whose
turn it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from policy.values.errors import PolicyError
from policy.values.thresholds import Rounding, Threshold, parse_threshold, scaled

MAX_IN_FLIGHT_ANNOTATION = "nodewarden.io/max-in-flight"
"""On a health check: a number or a percentage of its targets."""


def most_at_once(limit: Threshold, total: int) -> int:
    """How many that is of so many. 0: none at all; a percentage is rounded up."""
    return scaled(limit, total, Rounding.UP)


def read_limit(annotations: Mapping[str, str], subject: str) -> Threshold | None:
    """The limit in the annotation of a health check, None where there is none. Raises PolicyError."""
    text = annotations.get(MAX_IN_FLIGHT_ANNOTATION)
    if text is None:
        return None
    try:
        return parse_threshold(text)
    except ValueError as error:
        raise PolicyError(subject, f"metadata.annotations.{MAX_IN_FLIGHT_ANNOTATION}", str(error)) from error
