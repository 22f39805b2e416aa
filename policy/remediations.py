"""Remediation objects: what a health check has created from its template, and whose they are.

A `SelfNodeRemediation`, a `Metal3Remediation`, whatever kind a template names (its kind without the word Template). Such an
object stands for a remediation under way: it is created once, followed by its conditions and deleted when its node is well.
What is to be done with one is `policy/remedies.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from policy.healthcheck import HealthCheck, ObjectRef

SUFFIX = "Template"
NODE_NAME_ANNOTATION = "remediation.medik8s.io/node-name"
HEALTHY_DELAY_ANNOTATION = "remediation.medik8s.io/healthy-delay"
"""On a remediation object: since when its node has been well (medik8s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One owner reference of an object."""

    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remediation:
    """One remediation object as last seen. `target`: the Node or Machine that it is about, by name. template: the name of the
    template that it was made from, "" where it does not say. timed_out: since when its controller is told that its time is over.
    """

    ref: ObjectRef
    target: str
    uid: str = ""
    created: datetime | None = None
    template: str = ""
    timed_out: datetime | None = None
    owners: tuple[Owner, ...] = ()
    deleting: bool = False
    succeeded: str = ""
    permanent_node_deletion_expected: str = ""
    well_since: datetime | None = None

    def owned_by(self, check: HealthCheck) -> bool:
        """Whether that health check created it. A uid that both know decides; without one the name does."""
        return any(
            owner.kind == check.ref.kind
            and owner.name == check.ref.name
            and (not owner.uid or not check.uid or owner.uid == check.uid)
            for owner in self.owners
        )


def kind_of(template: ObjectRef) -> tuple[str, str]:
    """Group and kind of the objects that a template makes; whichever version is served is the same object."""
    return template.api_version.partition("/")[0], template.kind.removesuffix(SUFFIX)


def made_from(remediation: Remediation, check: HealthCheck) -> bool:
    """Whether the object is of a kind that one of the check's templates makes."""
    made = (remediation.ref.api_version.partition("/")[0], remediation.ref.kind)
    return any(kind_of(rung.template) == made for rung in check.rungs)


def plurals_of(kind: str) -> tuple[str, ...]:
    """How the resource of a kind may be called, the likeliest first: as the generators of definitions form it."""
    singular = kind.lower()
    if singular.endswith("y") and singular[-2:-1] not in set("aeiou"):
        return (f"{singular[:-1]}ies", f"{singular}s")
    return (f"{singular}es", f"{singular}s") if singular.endswith(("s", "x", "z", "ch", "sh")) else (f"{singular}s",)
