"""The typed refusals of `policy`: what is wrong, in which object and field, and what was expected.

Raised for people's input (policy objects, templates, requests). They never mean "act differently": a bad object stops
new episodes under it. What activities raise is in `activities/errors.py`.
"""

from __future__ import annotations

LONGEST_SHOWN = 80


class PolicyError(ValueError):
    """A policy object, template or request that cannot be used as written.

    `subject` names the object (`NodeHealthCheck/workers`), `field` the path inside it (`spec.minHealthy`).
    """

    def __init__(self, subject: str, field: str, problem: str) -> None:
        super().__init__(f"{subject}: {field}: {problem}")
        self.subject = subject
        self.field = field
        self.problem = problem


def shown(value: object) -> str:
    """A wrong value for a message: as JSON people would name it, and never long."""
    if value is None:
        return "nothing"
    if isinstance(value, str) and len(value) > LONGEST_SHOWN:
        return f"{value[: LONGEST_SHOWN - 3]!r}..."
    text = repr(value) if not isinstance(value, dict | list) or len(value) < LONGEST_SHOWN else f"{len(value)} entries"
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}..."
