"""Label selectors: matchLabels and matchExpressions, as every Kubernetes object spells them, and how they are read.

The reader is more tolerant than an API server as far as the NodeHealthCheck proposal's own examples need it, each time with a
warning: a single expression may be written without its list, the list may be called `matchingExpression`, keys may begin with a
capital, and operators may be written in any case. It is stricter in one point: a key that no label can have is refused, because
under `NotIn` and `DoesNotExist` it would select everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from policy.values.errors import PolicyError, shown
from policy.values.fields import Fields


class Operator(StrEnum):
    """The four operators of matchExpressions."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


_OPERATORS = {spelling: operator for operator in Operator for spelling in (operator.value, operator.value.lower())}
_KEY = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_DRAFT_NAMES = ("matchingExpression", "matchingExpressions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One line of matchExpressions; matchLabels become `In` with one value."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """NotIn is true for an object without the key, as in apimachinery."""
        operator = self.operator
        if operator is Operator.IN:
            return labels.get(self.key) in self.values
        if operator is Operator.NOT_IN:
            return labels.get(self.key) not in self.values
        return (self.key in labels) is (operator is Operator.EXISTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """All requirements must hold. An empty selector matches everything; whether a dialect allows one is the dialect's rule."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        for requirement in self.requirements:  # noqa: SIM110 - asked of every object for every check: twice as fast as all()
            if not requirement.matches(labels):
                return False
        return True


_TERM = re.compile(
    r"(?P<no>!)?\s*(?P<key>[^\s!=,()]+)\s*"
    r"(?:(?P<is>==?|!=)\s*(?P<value>[^\s!=,()]*)|(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?"
)
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def read_selector(text: str) -> Selector:
    """A selector as kubectl's -l has it: `rack=r7,zone in (a,b),!gpu`. Raises PolicyError, also for one that selects all."""
    found: list[Requirement] = []
    for term in re.split(r",(?![^(]*\))", text):
        parts = _TERM.fullmatch(term.strip())
        values = tuple(each.strip() for each in (parts["values"] or parts["value"] or "").split(",")) if parts else ()
        if parts is None or _KEY.fullmatch(parts["key"]) is None or any(_VALUE.fullmatch(each) is None for each in values):
            raise PolicyError("selector", shown(term), "expected such as rack=r7, 'zone in (a,b)' or !gpu")
        plain, refuses = not (parts["is"] or parts["set"]), parts["is"] == "!=" or parts["set"] == "notin"
        if parts["no"] and not plain:
            raise PolicyError("selector", shown(term), "expected !KEY without a value")
        operator = (Operator.DOES_NOT_EXIST if parts["no"] else Operator.EXISTS) if plain else Operator.IN
        operator = Operator.NOT_IN if refuses else operator
        found.append(Requirement(key=parts["key"], operator=operator, values=() if plain else values))
    return Selector(requirements=tuple(found))


def parse_selector(fields: Fields, warnings: list[str], *, draft: bool = False) -> Selector:
    """The selector; an empty one without requirements (the dialect decides whether that is allowed).

    draft: whether the NodeHealthCheck proposal's spellings are accepted; each adds one of the `warnings`.
    """
    fields.only("matchLabels", "matchExpressions", *(_DRAFT_NAMES if draft else ()))
    name = "matchExpressions"
    if draft and (written := next((each for each in _DRAFT_NAMES if fields.has(each)), "")):
        if fields.has(name):
            raise fields.refuse(written, f"expected only one of {name} and {written}")
        warnings.append(f"{fields.at(written)} was read as {name}")
        name = written
    labels = fields.within_or_empty("matchLabels")
    requirements = [_label(labels, key) for key in sorted(labels.names())]
    requirements += [_expression(expression, warnings, draft=draft) for expression in fields.each(name, single=draft)]
    if draft and requirements and isinstance(fields.value(name), Mapping):
        warnings.append(f"{fields.at(name)} was read as a list of one")
    return Selector(requirements=tuple(requirements))


def _label(labels: Fields, key: str) -> Requirement:
    value = labels.value(key)
    if not isinstance(value, str):
        raise labels.refuse(key, f"expected a string (quote it), got {value!r}")
    return Requirement(key=_checked(labels, key, key), operator=Operator.IN, values=(value,))


def _expression(fields: Fields, warnings: list[str], *, draft: bool) -> Requirement:
    if draft and (capitals := [name for name in fields.names() if name in {"Key", "Operator", "Values"}]):
        warnings.append(f"{fields.at(capitals[0])} was read as {capitals[0].lower()}")
        fields = fields.renamed({name: name.lower() for name in capitals})
    fields.only("key", "operator", "values")
    key = _checked(fields, "key", fields.text("key"))
    written = fields.text("operator")
    operator = _OPERATORS.get(written.lower()) if draft else _OPERATORS.get(written)
    if operator is None:
        raise fields.refuse("operator", f"expected one of {', '.join(Operator)}, got {written!r}")
    if written != operator.value:
        warnings.append(f"{fields.at('operator')} {written!r} was read as {operator}")
    values = fields.texts("values")
    if operator in {Operator.IN, Operator.NOT_IN} and not values:
        raise fields.refuse("values", f"expected at least one value with operator {operator}")
    if operator in {Operator.EXISTS, Operator.DOES_NOT_EXIST} and values:
        raise fields.refuse("values", f"expected none with operator {operator}, got {', '.join(values)}")
    return Requirement(key=key, operator=operator, values=values)


def _checked(fields: Fields, name: str, key: str) -> str:
    if _KEY.fullmatch(key) is None:
        raise fields.refuse(name, f"expected a label key such as node-role.kubernetes.io/worker, got {key!r}")
    return key
