"""One thing of ours that is left."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """what: which it is and where; remove: the command that removes it, or what a person does."""

    what: str
    remove: str
