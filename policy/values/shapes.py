"""What should be an object, or a list of objects, where nobody vouches for it: what is something else tells nothing.

For what is read in passing, such as another controller's status. What people configure is read by `fields.py`, which refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: object) -> Mapping[str, Any]:
    """The object, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list, none of anything else."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
