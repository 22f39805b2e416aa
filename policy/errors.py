"""The typed refusals of `policy`: what is wrong, in which object and field, and what was expected.

Raised for people's input (policy objects, templates, requests). They never mean "act differently": a bad object stops
new episodes under it. What activities raise is in `activities/errors.py`.
"""

from __future__ import annotations


class PolicyError(ValueError):
    """A policy object, template or request that cannot be used as written.

    `subject` names the object (`NodeHealthCheck/workers`), `field` the path inside it (`spec.minHealthy`).
    """

    def __init__(self, subject: str, field: str, problem: str) -> None:
        super().__init__(f"{subject}: {field}: {problem}")
        self.subject = subject
        self.field = field
        self.problem = problem
