"""Label selectors as the dialects write them; the typed selector is `policy/selectors.py`.

More tolerant than an API server in two ways that the NodeHealthCheck proposal's own example needs: a single expression may
stand without its list, and operators may be written in any case. Stricter in one: a key that no label can have is refused,
because under `NotIn` and `DoesNotExist` it would select everything.
"""

from __future__ import annotations

import re

from policy.fields import Fields
from policy.selectors import Operator, Requirement, Selector

_OPERATORS = {operator.value.lower(): operator for operator in Operator}
_KEY = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


def parse_selector(fields: Fields) -> Selector:
    """The selector; an empty one where nothing is required (whether that is allowed is the dialect's rule)."""
    labels = fields.within_or_empty("matchLabels")
    requirements = [_label(labels, key) for key in sorted(labels.names())]
    requirements += [_expression(expression) for expression in fields.each("matchExpressions", single=True)]
    return Selector(requirements=tuple(requirements))


def _label(labels: Fields, key: str) -> Requirement:
    value = labels.value(key)
    if not isinstance(value, str):
        raise labels.refuse(key, f"expected a string (quote it), got {value!r}")
    return Requirement(key=_checked(labels, key, key), operator=Operator.IN, values=(value,))


def _expression(fields: Fields) -> Requirement:
    key = _checked(fields, "key", fields.text("key"))
    written = fields.text("operator")
    operator = _OPERATORS.get(written.lower())
    if operator is None:
        raise fields.refuse("operator", f"expected one of {', '.join(Operator)}, got {written!r}")
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
