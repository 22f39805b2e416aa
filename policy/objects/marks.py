"""Our mark on a node: which episode holds it, since when, and what exactly we added, so that only that is ever removed. Beside
it our claim that its Machine is being deleted, for as long as that takes.

The mark is one annotation (`nodewarden.io/episode`) with JSON in it, so that `kubectl describe node` answers "who did this?". A
label that no kubelet may write holds its digest: an annotation without it is not ours, and is obeyed in nothing (S41). A caller
that may write that label may remove taints and cordons itself. `activities/cluster/objects/marks.py` writes a mark, with
preconditions; this module only reads and composes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime

from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL, NodeView
from policy.values.errors import PolicyError
from policy.values.times import written

TERMINATING_ANNOTATION = "nodewarden.io/terminating"
"""On the Node: since when the deletion of its Machine is being asked for, and by which incident."""

TERMINATING_LABEL = "nodewarden.node-restriction.kubernetes.io/terminating"
"""The digest of that annotation, as for a mark: a kubelet, which may write the annotation alone, can't make such a claim."""

LONGEST_SHOWN = 120
"""Characters of a value that is not ours: an annotation may be 256 KB, and its problem goes into every report and history."""

LONGEST_NAME = 1000
"""Characters of incident, kind and workflow id, which go there too; Temporal accepts no longer id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What an episode has added to its node, as far as it knows; taints as kubectl writes them, paths by their endpoints.
    out_of_service: it added that taint. seals: they show a cluster worker what a cluster worker has added (S49)."""

    cordoned: bool = False
    taints: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    out_of_service: bool = False
    seals: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __or__(self, other: Added) -> Added:
        return Added(
            cordoned=self.cordoned or other.cordoned,
            taints=tuple(dict.fromkeys((*self.taints, *other.taints))),
            paths=tuple(dict.fromkeys((*self.paths, *other.paths))),
            out_of_service=self.out_of_service or other.out_of_service,
            seals={**self.seals, **other.seals},
        )


NOTHING_ADDED = Added()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What an episode left on a node. `cordoned`/`out_of_service`: whether *we* added the cordon or that taint.

    taints: other taints that we added, as kubectl writes them (`key=value:effect`). off_proven: since when the node is proven
    off with no power-on since, "" if it is not; it is for people who look at the node, and licenses nothing (S2). `since` and
    `off_proven` are RFC 3339. untainted: the last moment at which no out-of-service taint of ours was on the node, even if one
    had been asked for. `mark_of` reports a mark that cannot be read as a PolicyError, and never as absent.
    """

    incident: str
    kind: str
    workflow_id: str
    run_id: str = ""
    since: str = ""
    cordoned: bool = False
    out_of_service: bool = False
    paths: tuple[str, ...] = ()
    """Endpoints of paths that we have cut, or were about to cut."""
    taints: tuple[str, ...] = ()
    off_proven: str = ""
    untainted: str = ""
    boot_id: str = ""
    """That the node showed when this incident marked it first: a person's word of that boot goes on through the restarts of its
    repair (S42)."""

    @property
    def added(self) -> Added:
        """The part that says what we added."""
        return Added(cordoned=self.cordoned, taints=self.taints, paths=self.paths, out_of_service=self.out_of_service)

    def to_json(self) -> str:
        """The annotation's value; keys sorted, so that equal marks are equal strings."""
        return json.dumps(asdict(self), sort_keys=True)


def parse_mark(value: str, *, node: str) -> Mark:
    """The mark in an annotation's value. Unknown keys are ignored (a newer nodewarden may have written them).

    Raises PolicyError naming the node if the value is no mark.
    """
    subject, field = f"Node/{node}", f"metadata.annotations[{MARK_ANNOTATION}]"
    try:
        raw = json.loads(value)
    except (ValueError, RecursionError) as error:  # also for a number too long and for brackets too deep
        raise PolicyError(subject, field, f"expected the JSON of a mark, got {_shown(value)} ({error})") from error
    names = [raw.get(key) for key in ("incident", "kind", "workflow_id")] if isinstance(raw, dict) else [None]
    if not all(isinstance(name, str) and len(name) <= LONGEST_NAME for name in names):
        expected = f"an object with incident, kind and workflow_id of at most {LONGEST_NAME} characters"
        raise PolicyError(subject, field, f"expected {expected}, got {_shown(value)}")
    return Mark(
        incident=raw["incident"],
        kind=raw["kind"],
        workflow_id=raw["workflow_id"],
        run_id=str(raw.get("run_id", "")),
        since=str(raw.get("since", "")),
        cordoned=raw.get("cordoned") is True,
        out_of_service=raw.get("out_of_service") is True,
        paths=_texts(raw.get("paths"), "paths to be a list of endpoints", subject, field),
        taints=_texts(raw.get("taints"), "taints to be a list of taints", subject, field),
        off_proven=off_proven if isinstance(off_proven := raw.get("off_proven"), str) else "",
        untainted=untainted if isinstance(untainted := raw.get("untainted"), str) else "",
        boot_id=boot_id if isinstance(boot_id := raw.get("boot_id"), str) else "",
    )


def _texts(value: object, expected: str, subject: str, field: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) and len(each) <= LONGEST_NAME for each in value):
        raise PolicyError(subject, field, f"expected {expected}, got {_shown(json.dumps(value))}")
    return tuple(str(each) for each in value)


def digest_of(value: str) -> str:
    """The value of the label that confirms this annotation; shorter than the 63 characters of a label's value."""
    return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:40]


def is_marked(node: NodeView) -> bool:
    """Whether the node carries a mark of ours, readable or not."""
    value = node.annotations.get(MARK_ANNOTATION)
    return value is not None and node.labels.get(MARK_LABEL) == digest_of(value)


def strange_mark(node: NodeView) -> str:
    """What is wrong with an annotation that has the name of our mark and is not ours; "" if there is no such annotation."""
    if MARK_ANNOTATION not in node.annotations or is_marked(node):
        return ""
    return (
        f"the annotation {MARK_ANNOTATION} is not ours, or was changed: its label {MARK_LABEL} does not confirm it; nothing of it"
        " is obeyed, and what it says of cordons and taints is for a person to look at and remove"
    )


def mark_of(node: NodeView) -> Mark | None:
    """The mark a node carries, None if it carries none of ours. Raises PolicyError for one of ours that cannot be read."""
    return parse_mark(node.annotations[MARK_ANNOTATION], node=node.name) if is_marked(node) else None


def marked_boot(node: NodeView, incident: str) -> str:
    """The boot in which that incident marked the node, "" where the node does not carry its mark, readable."""
    try:
        mark = mark_of(node)
    except PolicyError:
        return ""
    return mark.boot_id if mark is not None and mark.incident == incident else ""


def claim_of(since: datetime, incident: str) -> str:
    return f"{written(since)} by incident {incident}"


def is_deleted_by(node: NodeView, incident: str) -> bool:
    value = node.annotations.get(TERMINATING_ANNOTATION, "")
    return value.endswith(f" by incident {incident}") and node.labels.get(TERMINATING_LABEL) == digest_of(value)


def _shown(value: str) -> str:
    return repr(value) if len(value) <= LONGEST_SHOWN else f"{value[:LONGEST_SHOWN]!r}... ({len(value)} characters)"
