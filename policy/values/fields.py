"""Reads decoded JSON field by field (`Fields`), so that every refusal names the object, the field and what was expected; the
`key=value` lines of the node-fencing proposal; and thresholds.

The dialects and the templates share it. It knows no kind of object: the readers say which fields exist and what they mean. A
field that is `null` counts as absent, as for an API server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from policy.values.errors import PolicyError, shown
from policy.values.object_refs import LONGEST_NAME, ObjectRef
from policy.values.times import format_duration, parse_duration

LONGEST_DURATION = 64
"""Characters of the text; a longer one is garbage that is not worth parsing."""


class Fields:
    """One JSON object inside a Kubernetes object, with the path that leads to it."""

    __slots__ = ("_path", "_subject", "_values")

    def __init__(self, values: Mapping[str, object], *, subject: str, path: str = "") -> None:
        self._values = values
        self._subject = subject
        self._path = path

    def refuse(self, name: str, problem: str) -> PolicyError:
        """The error about one field of this object, to be raised by the caller. `name` "": about the object itself."""
        return PolicyError(self._subject, self.at(name), problem)

    def at(self, name: str) -> str:
        """The path of one field of this object, for warnings."""
        return f"{self._path}.{name}" if self._path and name else self._path or name

    def renamed(self, names: Mapping[str, str]) -> Fields:
        """The same object with other names for some fields."""
        values = {names.get(name, name): value for name, value in self._values.items()}
        return Fields(values, subject=self._subject, path=self._path)

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(name) is not None

    def value(self, name: str) -> object:
        """The raw value, None where absent."""
        return self._values.get(name)

    def names(self) -> tuple[str, ...]:
        """The names of all fields, also of those that are null."""
        return tuple(self._values)

    def only(self, *names: str) -> None:
        """Refuse fields that have no reader: a misspelt one would silently mean its default."""
        for name in self.names():
            if name not in names:
                raise self.refuse(name, f"is not a known field; expected one of {', '.join(sorted(names))}")

    def must_be(self, api_version: str, kind: str) -> None:
        """Refuse an object of another version or kind."""
        for name, expected in (("apiVersion", api_version), ("kind", kind)):
            if (found := self.text(name)) != expected:
                raise self.refuse(name, f"expected {expected}, got {found!r}")

    def text(self, name: str, default: str | None = None) -> str:
        """A non-empty string, or the default where the field is absent."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or (not value and default != ""):
            quote = " (quote it)" if isinstance(value, bool | int | float) else ""
            raise self.refuse(name, f"expected a non-empty string{quote}, got {shown(value)}")
        return value

    def name(self, name: str, default: str | None = None) -> str:
        """The same where no object's name, kind or version is longer: no schema says so."""
        if len(value := self.text(name, default)) > LONGEST_NAME:
            raise self.refuse(name, f"expected at most {LONGEST_NAME} characters, got {len(value)}")
        return value

    def whole(self, name: str, default: int | None = None, *, minimum: int, maximum: int | None = None) -> int:
        """A whole number within bounds."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        within = isinstance(value, int) and value >= minimum and (maximum is None or value <= maximum)
        if not isinstance(value, int) or isinstance(value, bool) or not within:
            bounds = f"of at least {minimum}" + (f" and at most {maximum}" if maximum is not None else "")
            raise self.refuse(name, f"expected a whole number {bounds}, got {shown(value)}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """true or false, or the default where the field is absent."""
        value = self._values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(name, f"expected true or false, got {shown(value)}")
        return value

    def duration(
        self,
        name: str,
        default: timedelta | None = None,
        *,
        minimum: timedelta = timedelta(0),
        maximum: timedelta | None = None,
    ) -> timedelta:
        """A Go duration within bounds."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        bounds = f"of at least {format_duration(minimum)}" + (f" and at most {format_duration(maximum)}" if maximum else "")
        if not isinstance(value, str) or len(value) > LONGEST_DURATION:
            raise self.refuse(name, f'expected a duration such as "300s", {bounds}, got {shown(value)}')
        try:
            duration = parse_duration(value)
        except ValueError as error:
            raise self.refuse(name, str(error)) from error
        if duration < minimum or (maximum is not None and duration > maximum):
            raise self.refuse(name, f"expected a duration {bounds}, got {value!r}")
        return duration

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, empty where the field is absent."""
        values = self._list(name)
        if not all(isinstance(value, str) for value in values):
            raise self.refuse(name, f"expected a list of strings, got {shown(values)}")
        return tuple(str(value) for value in values)

    def within(self, name: str) -> Fields:
        """The object in a mandatory field."""
        value = self._values.get(name)
        if not isinstance(value, Mapping):
            raise self.refuse(name, f"expected an object, got {shown(value)}")
        return Fields(value, subject=self._subject, path=self.at(name))

    def within_or_empty(self, name: str) -> Fields:
        """The object in an optional field; an empty one where the field is absent."""
        if self.has(name):
            return self.within(name)
        return Fields({}, subject=self._subject, path=self.at(name))

    def each(self, name: str, *, single: bool = False) -> tuple[Fields, ...]:
        """The objects of a list, none if the field is absent. `single`: one object without a list around it is accepted, too."""
        if single and isinstance(self._values.get(name), Mapping):
            return (self.within(name),)
        values = self._list(name)
        found = []
        for index, value in enumerate(values):
            path = f"{name}[{index}]"
            if not isinstance(value, Mapping):
                raise self.refuse(path, f"expected an object, got {shown(value)}")
            found.append(Fields(value, subject=self._subject, path=self.at(path)))
        return tuple(found)

    def reference(self, name: str) -> ObjectRef:
        """A mandatory reference to another object: apiVersion, kind and name; a namespace if it has one."""
        fields = self.within(name)
        fields.only("apiVersion", "kind", "name", "namespace", "uid", "resourceVersion", "fieldPath")
        return ObjectRef(
            api_version=fields.name("apiVersion"),
            kind=fields.name("kind"),
            name=fields.name("name"),
            namespace=fields.name("namespace", ""),
        )

    def _list(self, name: str) -> list[object]:
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.refuse(name, f"expected a list, got {shown(value)}")
        return value


# Lenient reading, for example of another controller's status: a value that is no object, or no list of objects, counts as an
# empty one. What people configure is read by `Fields`, which refuses.


def mapping(value: object) -> Mapping[str, Any]:
    """The object, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: object) -> list[Mapping[str, Any]]:
    """The objects of a list, none of anything else."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


# The lines `key=value` in which the node-fencing proposal writes its configuration (`config.properties`, `method.properties`).
#
# A value may contain `=`: base64 passwords do. Blank lines and lines that begin with `#` are skipped; a line without `=`, an
# empty key and a key written twice are refused, because a guess could carry out the wrong one. The readers know what the keys
# mean. Texts of errors never repeat a value: it may be a password (S12).


def parse_properties(text: str, *, subject: str, field: str) -> dict[str, str]:
    """The keys and values in their order. Raises PolicyError naming object, field and line."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        written = line.strip()
        if not written or written.startswith("#"):
            continue
        key, separator, value = written.partition("=")
        key = key.strip()
        if not separator or not key:
            raise PolicyError(subject, field, f"line {number}: expected key=value")
        if key in found:
            raise PolicyError(subject, field, f"line {number}: {key} is written twice")
        found[key] = value.strip()
    return found


# Int-or-percentage thresholds (`3`, `"3"`, `"40%"`): read from JSON, and scaled to a group of targets.
#
# Each dialect rounds in its own way; `policy/checks/circuit_breakers.py` compares the result with the counts.

_TEXT = re.compile(r"(-?[0-9]{1,9})(%?)", re.ASCII)
LARGEST = 10**9

EXPECTED = 'a whole number of at least 0 or a percentage from "0%" to "100%"'
"""For messages: what every threshold field expects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """An int-or-percentage as Kubernetes objects write it: `3` or `"40%"`. Rounding is the dialect's
    (`policy/checks/circuit_breakers.py`)."""

    value: int
    percent: bool = False

    def __str__(self) -> str:
        return f"{self.value}%" if self.percent else str(self.value)


class Rounding(StrEnum):
    """How a percentage of a group rounds fractions of a target."""

    UP = "up"
    DOWN = "down"


def parse_threshold(value: object, *, plain_text: bool = True, negative: bool = False) -> Threshold:
    """The threshold in a decoded JSON value. Raises ValueError saying what was expected.

    plain_text: whether a number written as text (`"3"`) is accepted; medik8s and OpenShift accept it, Cluster API does not.
    negative: whether numbers below 0 are accepted; for MachineHealthChecks these allow nothing.
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST and (negative or value >= 0):
        return Threshold(value=value)
    if isinstance(value, str) and (matched := _TEXT.fullmatch(value)):
        number, percent = int(matched[1]), bool(matched[2])
        if ((percent and number <= 100) or (not percent and plain_text)) and (negative or not matched[1].startswith("-")):
            return Threshold(value=number, percent=percent)
    only = "" if plain_text else "; a number must not be quoted"
    raise ValueError(f"expected {EXPECTED}{only}, got {shown(value)}")


def scaled(threshold: Threshold, total: int, rounding: Rounding) -> int:
    """The threshold as a number of targets in a group of `total`."""
    if not threshold.percent:
        return threshold.value
    product = threshold.value * total
    return -(-product // 100) if rounding is Rounding.UP else product // 100
