"""What people have written to have a machine kept, and what means nothing: it changes nothing, and they are told so once.

Kept change by change, so that nobody has to go through all machines to know of it; telling is
`activities/cluster/report/mistakes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from policy.objects.mistakes import Mistake
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.held import Held
from policy.preservation.requests import ISOLATE_ANNOTATION, PRESERVE_FOR_ANNOTATION, asked_for, isolation_asked, requested
from policy.values.object_refs import ObjectRef

WORDS = frozenset({PRESERVE_ANNOTATION, PRESERVE_FOR_ANNOTATION, ISOLATE_ANNOTATION})
"""The annotations of Node or Machine that may be mistaken."""


REASON = "InvalidPreservation"


class Mistakes:
    """All that stand in one cluster now. version: another one after each change."""

    def __init__(self) -> None:
        self.version = 0
        self._known: dict[str, Mistake] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Mistake]:
        """In the order in which they were seen."""
        return iter(list(self._known.values()))

    def look(self, held: Held | None, key: str, ref: ObjectRef | None) -> None:
        """A machine as last seen, None for one that is gone or bears none of `WORDS`. ref: its Machine, None for a Node alone."""
        found = _mistake(held, ref) if held is not None else None
        if found == self._known.get(key):
            return
        self.version += 1
        if found is None:
            del self._known[key]
        else:
            self._known[key] = found


def mistaken(held: Held) -> tuple[str, ...]:
    """What is wrong with the annotations of that machine, in words."""
    request = requested(held.annotated, node_exists=held.node is not None)
    on_machine = held.annotations if held.machine else {}
    _, no_duration = asked_for(held.on_node, on_machine)
    _, no_answer = isolation_asked(held.on_node, on_machine, pool=held.pool_isolates)
    return tuple(word for word in (request.unreadable, request.ignored, no_duration, no_answer) if word)


def _mistake(held: Held, ref: ObjectRef | None) -> Mistake | None:
    words = mistaken(held)
    if not words:
        return None
    if held.node is not None:
        return Mistake(about=held.node.ref, uid=held.node.uid, reason=REASON, words=words)
    return Mistake(about=ref, uid=held.uid, reason=REASON, words=words) if ref is not None else None
