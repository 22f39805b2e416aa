"""Remediation objects, which a health check creates from its template, and their owners.

The kind is that of the template without the word Template: a `SelfNodeRemediation`, a `Metal3Remediation`. Such an object stands
for a remediation under way: it is created once, followed by its conditions and deleted when its node is well. What is to be done
with one is `policy/remediation/ladder.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from policy.values.object_refs import ObjectRef

SUFFIX = "Template"
NODE_NAME_ANNOTATION = "remediation.medik8s.io/node-name"
GIVEN_UP_ANNOTATION = "remediation.medik8s.io/nhc-timed-out"
"""On a remediation object: the NodeHealthCheck operator waits for it no longer and will try something else. Any value."""

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
    """One remediation object as last seen. `target`: the name of its Node or Machine. template: the name of the template that it
    was made from, "" if it does not say. timed_out: since when an annotation says that its time is over.
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
    """Group and kind of the objects that a template makes; the object is the same in all versions."""
    return template.api_version.partition("/")[0], template.kind.removesuffix(SUFFIX)


def plurals_of(kind: str) -> tuple[str, ...]:
    """The possible names of a kind's resource, the likeliest first, as the generators of definitions form them."""
    singular = kind.lower()
    if singular.endswith("y") and singular[-2:-1] not in set("aeiou"):
        return (f"{singular[:-1]}ies", f"{singular}s")
    return (f"{singular}es", f"{singular}s") if singular.endswith(("s", "x", "z", "ch", "sh")) else (f"{singular}s",)
