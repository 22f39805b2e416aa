"""NodeHealthCheck of medik8s: what is taken, what it becomes, and what is refused in which words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from policy.checks.health_check import UnhealthyCondition
from policy.dialects import parse
from policy.values.errors import PolicyError
from policy.values.fields import Threshold
from policy.values.object_refs import Dialect
from tests.policy.builders import a_check

FOREIGN = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediationTemplate", "name": "a"}


def rung(order: int, template: object = FOREIGN, timeout: str = "60s") -> dict[str, object]:
    return {"order": order, "timeout": timeout, "remediationTemplate": template}


def test_a_whole_check_is_read() -> None:
    check = a_check(minHealthy=None, maxUnhealthy=3, pauseRequests=["upgrade of rack 4", ""])
    assert check.ref.key == "NodeHealthCheck/workers"
    assert (check.dialect, check.uid, check.generation) == (Dialect.MEDIK8S, "uid-of-workers", 1)
    assert check.min_healthy is None
    assert check.max_unhealthy == Threshold(value=3)
    assert check.conditions[0] == UnhealthyCondition(type="Ready", status="False", duration=timedelta(seconds=10))
    assert [rung.template.name for rung in check.rungs] == ["bmc"]
    assert check.paused == "upgrade of rack 4; a pause request without a reason"


def test_several_templates_of_one_kind_need_its_controllers_word_which_is_told() -> None:
    ladder = [rung(1, FOREIGN), rung(2, FOREIGN | {"name": "harder"})]
    check = a_check(remediationTemplate=None, escalatingRemediations=ladder)
    assert [found.template.name for found in check.rungs] == ["a", "harder"]
    assert "multiple-templates-support" in check.warnings[0]


def test_a_healthy_delay_is_taken_with_a_warning() -> None:
    assert "healthyDelay" in a_check(healthyDelay="-1s").warnings[0]
    assert a_check(healthyDelay="0").warnings == ()


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"apiVersion": "v1", "kind": "Node"},
        {"apiVersion": "other.io/v1", "kind": "NodeHealthCheck"},
        {"apiVersion": 1, "kind": ["NodeHealthCheck"]},
    ],
)
def test_an_unknown_kind_is_refused_with_what_is_known(obj: dict[str, object]) -> None:
    with pytest.raises(PolicyError, match=r"expected MachineHealthCheck of .*, NodeHealthCheck of remediation\.medik8s\.io"):
        parse(obj)
