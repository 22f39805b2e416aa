"""Label and field selectors, as strings of a request and as `matchLabels`/`matchExpressions` of an object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from simulator.api import errors
from simulator.api.storage.kinds import Resource
from simulator.api.storage.store import Document, Record, value_at

_NAME = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_SET = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_COMPARE = re.compile(r"^(?P<key>[^\s=!<>]+)\s*(?P<operator>==|=|!=|<|>)\s*(?P<value>[^\s=!<>]*)$")
_EXISTS = re.compile(r"^(?P<absent>!?)\s*(?P<key>[^\s=!<>()]+)$")
_FIELD = re.compile(r"^(?P<key>[^=!]+)(?P<operator>==|=|!=)(?P<value>.*)$", re.DOTALL)
# Booleans that read as false when they are absent; every other missing field reads as the empty string.
_FALSE_WHEN_MISSING = frozenset({"spec.unschedulable", "spec.hostNetwork"})


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One term of a label selector."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER | Operator.LESS:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        (limit,) = self.values
        if value is None or not value.lstrip("-").isdigit():
            return False
        return int(value) > int(limit) if self.operator is Operator.GREATER else int(value) < int(limit)


def is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
        return False
    return bool(_NAME.match(name))


def is_label_value(value: object) -> bool:
    return isinstance(value, str) and bool(_VALUE.match(value))


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """`zone in (a,b),!gone,tier!=front` and so on; a selector that cannot be read is a bad request."""
    return tuple(_requirement(term.strip()) for term in _terms(text))


def _terms(text: str) -> list[str]:
    if not text.strip():
        return []
    terms, depth, begin = [], 0, 0
    for position, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            terms.append(text[begin:position])
            begin = position + 1
    return [*terms, text[begin:]]


def _requirement(term: str) -> Requirement:
    requirement = _read(term)
    if requirement is None or not is_label_key(requirement.key):
        raise errors.bad_request(f"unable to parse requirement: {term!r} is not a label selector term")
    numeric = requirement.operator in (Operator.GREATER, Operator.LESS)
    for value in requirement.values:
        if not is_label_value(value) or (numeric and not value.lstrip("-").isdigit()):
            raise errors.bad_request(f"unable to parse requirement: {value!r} is not a valid label value in {term!r}")
    return requirement


def _read(term: str) -> Requirement | None:
    if found := _SET.match(term):
        values = frozenset(value.strip() for value in found["values"].split(","))
        operator = Operator.IN if found["operator"] == "in" else Operator.NOT_IN
        return Requirement(key=found["key"], operator=operator, values=values)
    if found := _COMPARE.match(term):
        operators = {"=": Operator.IN, "==": Operator.IN, "!=": Operator.NOT_IN, ">": Operator.GREATER}
        operator = operators.get(found["operator"], Operator.LESS)
        return Requirement(key=found["key"], operator=operator, values=frozenset({found["value"]}))
    if found := _EXISTS.match(term):
        operator = Operator.DOES_NOT_EXIST if found["absent"] else Operator.EXISTS
        return Requirement(key=found["key"], operator=operator)
    return None


def from_object(selector: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """A LabelSelector object; an empty one matches everything."""
    equal = [
        Requirement(key=key, operator=Operator.IN, values=frozenset({value}))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    expressed = [
        Requirement(key=term["key"], operator=Operator(term["operator"]), values=frozenset(term.get("values") or ()))
        for term in selector.get("matchExpressions") or ()
    ]
    return (*equal, *expressed)


def matches_labels(requirements: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    return all(requirement.matches(labels) for requirement in requirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldTerm:
    """One term of a field selector."""

    path: str
    value: str
    negated: bool = False

    def matches(self, document: Document) -> bool:
        return (field_value(document, self.path) == self.value) is not self.negated


def field_value(document: Document, path: str) -> str:
    value = value_at(document, path)
    if value is None:
        return "false" if path in _FALSE_WHEN_MISSING else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):  # events select by `source`, which means its component
        return str(value.get("component", ""))
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a list, watch or collection delete asks for."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def everything(self) -> bool:
        return not self.labels and not self.fields

    def matches(self, record: Record) -> bool:
        if self.labels and not matches_labels(self.labels, record.labels):
            return False
        return all(term.matches(record.document) for term in self.fields)

    def exact(self, path: str) -> str | None:
        """The one value that a field must have, if the selection says so."""
        for term in self.fields:
            if term.path == path and not term.negated:
                return term.value
        return None


def select(resource: Resource, label_selector: str, field_selector: str) -> Selection:
    """Read both selectors of a request, refusing fields that this kind does not select by."""
    allowed = {"metadata.name", *resource.selectable}
    if resource.namespaced:
        allowed.add("metadata.namespace")
    terms = []
    for text in filter(None, field_selector.split(",")):
        found = _FIELD.match(text)
        if found is None:
            raise errors.bad_request(f"invalid field selector {field_selector!r}: cannot read {text!r}")
        if found["key"] not in allowed:
            told = f'Unable to find "{resource.api_version}, Resource={resource.plural}" that match'
            why = f'field label not supported: "{found["key"]}"'
            raise errors.bad_request(f'{told} label selector "{label_selector}", field selector "{text}": {why}')
        terms.append(FieldTerm(path=found["key"], value=found["value"], negated=found["operator"] == "!="))
    return Selection(labels=parse_labels(label_selector), fields=tuple(terms))
