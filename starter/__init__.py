"""How people and programs begin, watch and steer episodes. Programs: `from starter import Nodewarden`; people: `nodewarden`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starter.client import Nodewarden

__all__ = ["Nodewarden"]


def __getattr__(name: str) -> Any:
    """Loaded when first used: the command line imports this package, and its help must not wait for Temporal's SDK."""
    if name == "Nodewarden":
        from starter.client import Nodewarden

        return Nodewarden
    raise AttributeError(f"module 'starter' has no attribute {name!r}")
