"""Whom a selector takes."""

from __future__ import annotations

import pytest

from policy.values.selectors import Operator, Requirement, Selector

ROLES = {"infra": {"role": "infra"}, "master": {"role": "master"}, "worker": {"role": "worker"}, "none": {}}


@pytest.mark.parametrize(
    ("operator", "values", "taken"),
    [
        (Operator.IN, ("worker", "infra"), ["infra", "worker"]),
        (Operator.NOT_IN, ("master",), ["infra", "worker", "none"]),
        (Operator.EXISTS, (), ["infra", "master", "worker"]),
        (Operator.DOES_NOT_EXIST, (), ["none"]),
    ],
)
def test_an_expression_takes_objects_by_one_label(operator: Operator, values: tuple[str, ...], taken: list[str]) -> None:
    """000's own example is "every Machine that is not of the control plane": one that has no role is none of it either."""
    requirement = Requirement(key="role", operator=operator, values=values)
    assert [name for name, labels in ROLES.items() if requirement.matches(labels)] == taken
    both = Selector(requirements=(requirement, Requirement(key="zone", operator=Operator.EXISTS)))
    assert not any(both.matches(labels) for labels in ROLES.values())
    assert [name for name, labels in ROLES.items() if both.matches({**labels, "zone": "a"})] == taken
