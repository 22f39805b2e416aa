"""Label selectors: matchLabels and matchExpressions, as every Kubernetes object spells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Operator(StrEnum):
    """The four operators of matchExpressions."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


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
        """Whether an object with these labels is selected."""
        for requirement in self.requirements:  # noqa: SIM110 - asked of every object for every check: twice as fast as all()
            if not requirement.matches(labels):
                return False
        return True
