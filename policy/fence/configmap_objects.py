"""The ConfigMaps and Secrets that a reader of configuration looks up by name, and their lines `key=value`.

Readers are pure, and objects are fetched by name, never listed (a right to list Secrets is a right to read all of them). So a
reader runs on the objects that are there, the lookup records the names that it did not know, the caller fetches those and runs
the reader again, until nothing is missing. Of a Secret only the names of its keys get here (S12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from policy.fence.config import VariableError, fill_in
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError, shown
from policy.values.fields import parse_properties


class LookupKind(StrEnum):
    """What can be looked up."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - a kind of object


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectName:
    """One object of the namespace in which fence configuration lives."""

    kind: LookupKind
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
    """An object that we may not read. reason: what the API said."""

    reason: str


Found = ConfigMap | tuple[str, ...] | Forbidden | None
"""A ConfigMap, the keys of a Secret, or None: there is no object of that name."""


class ObjectLookup:
    """objects: those that were fetched, None for a name that does not exist. complete: everything that exists is among them."""

    __slots__ = ("_complete", "_objects", "_wanted", "namespace")

    def __init__(self, namespace: str, objects: Mapping[ObjectName, Found], *, complete: bool = False) -> None:
        self.namespace = namespace
        self._objects = objects
        self._complete = complete
        self._wanted: dict[ObjectName, None] = {}

    @property
    def wanted(self) -> tuple[ObjectName, ...]:
        """The names that were looked up and are not known. Empty: what was read with this lookup stands."""
        return tuple(self._wanted)

    def config_map(self, name: str) -> ConfigMap | None:
        """The ConfigMap of that name, None if there is none, or it is not fetched yet. Raises PolicyError if we may not read
        it."""
        found = self._find(ObjectName(kind=LookupKind.CONFIG_MAP, name=name))
        if isinstance(found, Forbidden):
            raise PolicyError(f"ConfigMap/{self.namespace}/{name}", "metadata", f"it can't be read: {found.reason}")
        if found is not None and not isinstance(found, ConfigMap):
            raise TypeError(f"expected a ConfigMap, got {shown(type(found))}")
        return found

    def secret_keys(self, name: str) -> tuple[str, ...] | Forbidden | None:
        """The names of the keys of that Secret, None if there is none, or it is not fetched yet."""
        found = self._find(ObjectName(kind=LookupKind.SECRET, name=name))
        if isinstance(found, ConfigMap):
            raise TypeError("expected the keys of a Secret, got a ConfigMap")
        return found

    def _find(self, name: ObjectName) -> Found:
        if name not in self._objects and not self._complete:
            self._wanted[name] = None
        return self._objects.get(name)


# Lines `key=value`, each with the place at which it is written: merging and messages both need it.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLine:
    """One line. written: its key as it is spelled there; data_key: of the ConfigMap; specific: it is about one node only
    (S10)."""

    written: str
    value: str
    holder: ConfigMap
    data_key: str
    specific: bool = False

    @property
    def subject(self) -> str:
        """The object, for messages."""
        return self.holder.subject

    @property
    def field(self) -> str:
        """The place inside it, for messages."""
        return f"data[{self.data_key}].{self.written}"

    def refuse(self, problem: str) -> PolicyError:
        """The error about this line, to be raised by the caller. Its value may be a password: the problem must not repeat it."""
        return PolicyError(self.subject, self.field, problem)

    def filled_in(self, node: NodeView) -> str:
        """The value for that node. Raises PolicyError where it can't be filled in."""
        try:
            return fill_in(self.value, node)
        except VariableError as error:
            raise self.refuse(str(error)) from error


def read_lines(holder: ConfigMap, data_key: str, *, specific: bool = False) -> dict[str, ConfigLine]:
    """The lines under one key of a ConfigMap, by key as written. Raises PolicyError."""
    text = holder.text(data_key)
    if text is None:
        keys = ", ".join(sorted(holder.data)) or "nothing"
        raise PolicyError(holder.subject, f"data[{data_key}]", f"expected lines key=value here; the object has {keys}")
    values = parse_properties(text, subject=holder.subject, field=f"data[{data_key}]")
    return {
        written: ConfigLine(written=written, value=value, holder=holder, data_key=data_key, specific=specific)
        for written, value in values.items()
    }


def under_one_name(lines: Iterable[ConfigLine], name: Callable[[str], str]) -> dict[str, ConfigLine]:
    """The lines of one object by the one name of their keys. Raises PolicyError if two of them are the same parameter."""
    found: dict[str, ConfigLine] = {}
    for line in lines:
        key = name(line.written)
        if key in found:
            raise line.refuse(f"is the same parameter as {found[key].written}: expected one of them")
        found[key] = line
    return found


def whole_number(line: ConfigLine, *, minimum: int, maximum: int, what: str = "a whole number") -> int:
    """A number without a unit. what: it counts, for messages."""
    if not line.value.isascii() or not line.value.isdigit() or len(line.value) > 9:
        raise line.refuse(f"expected {what} from {minimum} to {maximum}, without a unit")
    number = int(line.value)
    if not minimum <= number <= maximum:
        raise line.refuse(f"expected {what} from {minimum} to {maximum}, got {number}")
    return number


def seconds(line: ConfigLine, *, minimum: int = 0, maximum: timedelta) -> timedelta:
    """Whole seconds, as the proposal's demo writes them. `5m` is refused: its own controller read it as never."""
    number = whole_number(line, minimum=minimum, maximum=int(maximum.total_seconds()), what="whole seconds")
    return timedelta(seconds=number)
