"""Remediation objects: what a health check has created from its template, and whose they are.

A `SelfNodeRemediation`, a `Metal3Remediation`, whatever kind a template names (its kind without the word Template). Such an
object stands for a remediation under way: it is created once, followed by its conditions and deleted when its node is well.
What is to be done with one is `policy/remediation/remedies.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from policy.values.object_refs import ObjectRef

SUFFIX = "Template"
NODE_NAME_ANNOTATION = "remediation.medik8s.io/node-name"
GIVEN_UP_ANNOTATION = "remediation.medik8s.io/nhc-timed-out"
"""On one: by this the NodeHealthCheck operator says that it waits no longer and will try something else. Any value."""

HEALTHY_DELAY_ANNOTATION = "remediation.medik8s.io/healthy-delay"
"""On a remediation object: since when its node has been well (medik8s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One owner reference of an object."""

    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationObject:
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


def kind_of(template: ObjectRef) -> tuple[str, str]:
    """Group and kind of the objects that a template makes; whichever version is served is the same object."""
    return template.api_version.partition("/")[0], template.kind.removesuffix(SUFFIX)


def plurals_of(kind: str) -> tuple[str, ...]:
    """How the resource of a kind may be called, the likeliest first: as the generators of definitions form it."""
    singular = kind.lower()
    if singular.endswith("y") and singular[-2:-1] not in set("aeiou"):
        return (f"{singular[:-1]}ies", f"{singular}s")
    return (f"{singular}es", f"{singular}s") if singular.endswith(("s", "x", "z", "ch", "sh")) else (f"{singular}s",)
