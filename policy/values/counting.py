"""Numbers of things as people write them: `1 pod`, `2 pods`."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """noun: in the singular, of those that take an s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
