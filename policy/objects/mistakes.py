"""What is wrong with objects that others write, and is told by a warning Event on them, episode or not.

Telling is `activities/cluster/report/mistakes.py`; what is wrong is found out by whoever keeps the objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """about: the object, with its uid. reason: of the Event. words: what is wrong, one for each Event."""

    about: ObjectRef
    uid: str
    reason: str
    words: tuple[str, ...]


class Mistaken(Protocol):
    """Whoever knows of mistakes of one kind in one cluster."""

    @property
    def version(self) -> int:
        """Another number after each change."""

    def __iter__(self) -> Iterator[Mistake]:
        """All that stand now."""
