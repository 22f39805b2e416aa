"""What the names of objects, and of places in a worker's mount and environment, look like.

People write them, and variables of a node are filled into them. They become paths of the API and of files, so that nothing may be
more than a name (S41).
"""

from __future__ import annotations

import re

FENCE_NAMESPACE = "nodewarden"
"""Where ConfigMaps with fence configuration are read unless the settings say otherwise: not in `default`, where many people may
write without being trusted with machines."""

_OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_FILE = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.:@+=~-]+")
_VARIABLE = re.compile(r"[A-Za-z_][-._A-Za-z0-9]*")


def is_object_name(text: str) -> bool:
    """Whether an object of Kubernetes may be called so."""
    return _OBJECT_NAME.fullmatch(text) is not None


def is_relative_file(text: str) -> bool:
    """Whether it leads from a folder to a file below it."""
    return len(text) < 512 and all(_FILE.fullmatch(part) is not None for part in text.split("/"))


def is_variable(text: str) -> bool:
    """Whether a variable of an environment may be called so."""
    return _VARIABLE.fullmatch(text) is not None


def in_natural_order(name: str) -> list[tuple[bool, int, str]]:
    """A key to sort names by: of two nodes, node-2 comes before node-10."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"([0-9]+)", name) if part]
