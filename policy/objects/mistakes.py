"""Mistakes in objects that others write, published as warning Events on them, also without an episode.

`activities/cluster/report/mistakes.py` publishes them; the cache of each kind of object finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """about: the object, with its uid. reason: of the Event. messages: what is wrong, one text for each Event."""

    about: ObjectRef
    uid: str
    reason: str
    messages: tuple[str, ...]


class Mistaken(Protocol):
    """The mistakes of one kind in one cluster."""

    @property
    def version(self) -> int:
        """Another number after each change."""

    def __iter__(self) -> Iterator[Mistake]:
        """All present mistakes."""
