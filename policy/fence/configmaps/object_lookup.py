"""The objects a reader may look at, by name: those that were fetched, and a note of those that it would like to see.

Readers are pure and objects are fetched by name, never listed (whoever may list Secrets reads all of them). So a reader runs on
what is there, the lookup notes the names it did not know of, the caller fetches those and repeats it, until nothing is missing.
Of a Secret only the names of its keys get here (S12).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from policy.values.errors import PolicyError, shown


class ShelfKind(StrEnum):
    """What can be looked up."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - a kind of object


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """One object of the namespace in which fence configuration lives."""

    kind: ShelfKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMap:
    """A ConfigMap as read."""

    name: str
    namespace: str
    data: Mapping[str, object] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        """For messages."""
        return f"ConfigMap/{self.namespace}/{self.name}"

    def text(self, key: str) -> str | None:
        """The text under a key, None without it. Raises PolicyError for what is no text."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            raise PolicyError(self.subject, f"data[{key}]", f"expected a text, got {type(value).__name__}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbidden:
    """An object that nobody lets us see. reason: what the API said."""

    reason: str


Found = ConfigMap | tuple[str, ...] | Forbidden | None
"""A ConfigMap, the keys of a Secret, or None: there is no object of that name."""


class ObjectLookup:
    """`objects`: what is known, None for what is known not to be there. `complete`: everything that exists is among them."""

    __slots__ = ("_complete", "_objects", "_wanted", "namespace")

    def __init__(self, namespace: str, objects: Mapping[ObjectName, Found], *, complete: bool = False) -> None:
        self.namespace = namespace
        self._objects = objects
        self._complete = complete
        self._wanted: dict[ObjectName, None] = {}

    @property
    def wanted(self) -> tuple[ObjectName, ...]:
        """What was asked for and is not known. Empty: the answer that was given with this lookup stands."""
        return tuple(self._wanted)

    def config_map(self, name: str) -> ConfigMap | None:
        """The ConfigMap of that name, None where there is none, or not yet. Raises PolicyError where it may not be read."""
        found = self._find(ObjectName(kind=ShelfKind.CONFIG_MAP, name=name))
        if isinstance(found, Forbidden):
            raise PolicyError(f"ConfigMap/{self.namespace}/{name}", "metadata", f"it can't be read: {found.reason}")
        if found is not None and not isinstance(found, ConfigMap):
            raise TypeError(f"expected a ConfigMap, got {shown(type(found))}")
        return found

    def secret_keys(self, name: str) -> tuple[str, ...] | Forbidden | None:
        """The names of the keys of that Secret, None where there is none, or not yet."""
        found = self._find(ObjectName(kind=ShelfKind.SECRET, name=name))
        if isinstance(found, ConfigMap):
            raise TypeError("expected the keys of a Secret, got a ConfigMap")
        return found

    def _find(self, name: ObjectName) -> Found:
        if name not in self._objects and not self._complete:
            self._wanted[name] = None
        return self._objects.get(name)
