"""Which episode's mark stands on a node, and what it should say next: the rules by which an episode claims, adopts or respects
one.

The text of a mark is `policy/objects/marks.py`, writing it is `node_edits.py`. A mark of another incident under our own workflow
id is adopted: we hold that id, so that episode cannot be open any more. Under another workflow id it may well be, and is left
alone.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from activities.cluster.objects.live_node import LiveNode, readable_mark, seen_node
from activities.cluster.objects.node_edits import (
    Edit,
    Operations,
    remove_taints,
    set_annotations,
    set_labels,
)
from activities.contracts.target import OffNote, Target
from activities.errors import ErrorType, failure
from policy.episode.proofs import compare_identity
from policy.objects.marks import NOTHING_ADDED, TERMINATING_ANNOTATION, TERMINATING_LABEL, Added, Mark, digest_of, is_marked
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL, OUR_TAINT, Taint
from policy.values.times import written


def is_ours(mark: Mark | None, target: Target) -> bool:
    return mark is not None and mark.incident == target.incident and mark.workflow_id == target.workflow_id


def owner(mark: Mark | None) -> str:
    """Who holds the node, in words."""
    return f"{mark.kind} {mark.incident} ({mark.workflow_id})" if mark else "no episode"


def claim(mark: Mark | None, target: Target, now: datetime, added: Added = NOTHING_ADDED, *, boot_id: str = "") -> Mark:
    """The mark in this episode's name, keeping what an earlier one says was added; without any, what we know of. boot_id: that
    the node shows. Raises Vetoed where another may be open."""
    if mark is None:
        return Mark(
            incident=target.incident,
            kind=target.kind,
            workflow_id=target.workflow_id,
            run_id=target.run_id,
            since=_stamp(now),
            cordoned=added.cordoned,
            taints=added.taints,
            paths=added.paths,
            boot_id=boot_id,
        )
    if mark.workflow_id != target.workflow_id:
        raise failure(
            ErrorType.VETOED,
            f"Node/{target.pinned.node} carries the mark of {owner(mark)}, which may be open:"
            f" end it, or remove the annotation {MARK_ANNOTATION} and the label {MARK_LABEL} if it is long gone",
        )
    named = replace(mark, incident=target.incident, kind=target.kind, run_id=target.run_id)
    if mark.incident == target.incident:
        return named
    # What an earlier episode had proven, it had proven: ours proves for itself (S6).
    return replace(named, since=_stamp(now), off_proven="", boot_id=boot_id)


def write_mark(node: LiveNode, mark: Mark, *, cordons: bool = False) -> Operations:
    """Put that mark on the node, with the label that makes it ours; nothing where it says so already. What is there and is not
    ours goes: its writer must not keep the node from us. A cordon that is gone is not noted any more: when it is set again, it
    is meant (S28). cordons: it is set in the same write."""
    if mark.cordoned and not (cordons or node.view.unschedulable):
        mark = replace(mark, cordoned=False)
    value = mark.to_json()
    if node.annotations.get(MARK_ANNOTATION) == value and is_marked(node.view):
        return ()
    annotation = set_annotations(node.document, {MARK_ANNOTATION: value})
    return (*annotation, *set_labels(node.document, {MARK_LABEL: digest_of(value)}))


def with_note(mark: Mark, note: OffNote) -> Mark:
    """Since when the node is proven off, or that it is so no longer."""
    return replace(mark, off_proven=written(note.off_proven) if note.off_proven is not None else "")


def untainted(node: LiveNode, mark: Mark, now: datetime) -> Operations:
    """Take our out-of-service taint off, and the note of it in that mark. Where none stands, the request for it may still be on
    its way, its answer being lost: noting this moment makes another version of the Node, in which it is refused (S1, S32)."""
    gone = replace(mark, out_of_service=False)
    if OUR_TAINT not in node.taints:
        gone = replace(gone, untainted=_stamp(now))
    return (*write_mark(node, gone), *remove_taints(node, {OUR_TAINT}))


def remove_mark(node: LiveNode) -> Operations:
    """Take the mark and its label away. An annotation that is not ours stays for a person to look at; without the label it
    can't be made ours."""
    annotation = set_annotations(node.document, {MARK_ANNOTATION: None}) if is_marked(node.view) else ()
    return (*annotation, *set_labels(node.document, {MARK_LABEL: None}))


def write_claim(node: LiveNode, claim: str | None) -> Operations:
    """Put the claim of a deletion on the node, with the label that makes it ours; None takes both away."""
    label = None if claim is None else digest_of(claim)
    return (
        *set_annotations(node.document, {TERMINATING_ANNOTATION: claim}),
        *set_labels(node.document, {TERMINATING_LABEL: label}),
    )


def mark_edit(node: LiveNode, target: Target, now: datetime, added: Added = NOTHING_ADDED) -> Edit:
    """An episode's first act: claim the node, or adopt what a predecessor left on it. added: what the episode has added before
    our mark was removed. Of either what is not there any more is not noted: when it is added again, it is meant (S28)."""
    require_pinned(node, target)
    found = readable_mark(node.view)
    if found is not None:
        there = still_there(node, found.added)
        found = replace(found, cordoned=there.cordoned, taints=there.taints)
    mark = claim(found, target, now, still_there(node, added), boot_id=node.view.boot_id)
    operations = write_mark(node, mark)
    if found is None:
        return Edit(detail="marked", operations=operations, mark=mark)
    if is_ours(found, target):
        return Edit(detail="marked already", operations=operations, mark=mark)
    left_there = [name for name, ours in (("cordon", found.cordoned), ("out-of-service taint", found.out_of_service)) if ours]
    left_there += [f"taint {taint}" for taint in found.taints]
    left = f" with its {' and '.join(left_there)}" if left_there else ""
    return Edit(detail=f"adopted the mark of {owner(found)}{left}", operations=operations, mark=mark)


def still_there(node: LiveNode, added: Added) -> Added:
    return replace(
        added,
        cordoned=added.cordoned and node.view.unschedulable,
        taints=tuple(taint for taint in added.taints if taint in map(spelled, node.taints)),
    )


def require_pinned(node: LiveNode, target: Target) -> None:
    """Refuse a node that is another object or another machine under the same name (S9)."""
    pinned = target.pinned
    if difference := compare_identity(pinned, seen_node(pinned.node, node.view), destructive=True):
        raise failure(ErrorType.TARGET_CHANGED, f"Node/{pinned.node} is not the one pinned: {difference}")


def require_held(node: LiveNode, target: Target, otherwise: str) -> Mark:
    """Our mark on the pinned node. Refuses another node, and one that another episode holds, saying what is not done.

    Without any mark, too: the episode marked it first, so that it has ended since or the mark was taken away.
    """
    require_pinned(node, target)
    found = readable_mark(node.view)
    if found is None or not is_ours(found, target):
        raise failure(ErrorType.VETOED, f"Node/{target.pinned.node} is held by {owner(found)}, {otherwise}")
    return found


def spelled(taint: Taint) -> str:
    """A taint as kubectl writes it, and as a mark notes it."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _stamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
