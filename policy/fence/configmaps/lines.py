"""Lines `key=value` of configuration, each with the place it was written at: what merging and messages both need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from policy.fence.configmaps.object_lookup import ConfigMap
from policy.fence.variables import VariableError, fill_in
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError
from policy.values.fields import parse_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line. written: its key as it stands there; data_key: of the ConfigMap; specific: it is about one node only (S10)."""

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


def read_lines(holder: ConfigMap, data_key: str, *, specific: bool = False) -> dict[str, Line]:
    """The lines under one key of a ConfigMap, by key as written. Raises PolicyError."""
    text = holder.text(data_key)
    if text is None:
        keys = ", ".join(sorted(holder.data)) or "nothing"
        raise PolicyError(holder.subject, f"data[{data_key}]", f"expected lines key=value here; the object has {keys}")
    values = parse_properties(text, subject=holder.subject, field=f"data[{data_key}]")
    return {
        written: Line(written=written, value=value, holder=holder, data_key=data_key, specific=specific)
        for written, value in values.items()
    }


def under_one_name(lines: Iterable[Line], name: Callable[[str], str]) -> dict[str, Line]:
    """The lines of one object by the one name of their key. Raises PolicyError where two of them are the same parameter."""
    found: dict[str, Line] = {}
    for line in lines:
        key = name(line.written)
        if key in found:
            raise line.refuse(f"is the same parameter as {found[key].written}: expected one of them")
        found[key] = line
    return found


def whole_number(line: Line, *, minimum: int, maximum: int) -> int:
    """A number without a unit."""
    if not line.value.isascii() or not line.value.isdigit() or len(line.value) > 9:
        raise line.refuse(f"expected a whole number from {minimum} to {maximum} without a unit")
    number = int(line.value)
    if not minimum <= number <= maximum:
        raise line.refuse(f"expected a whole number from {minimum} to {maximum}, got {number}")
    return number


def seconds(line: Line, *, minimum: int = 0, maximum: timedelta) -> timedelta:
    """Whole seconds, as the proposal's demo writes them. `5m` is refused: its own controller read it as never."""
    most = int(maximum.total_seconds())
    if not line.value.isascii() or not line.value.isdigit() or len(line.value) > 9:
        raise line.refuse(f"expected whole seconds from {minimum} to {most}, without a unit")
    number = int(line.value)
    if not minimum <= number <= most:
        raise line.refuse(f"expected whole seconds from {minimum} to {most}, got {number}")
    return timedelta(seconds=number)
