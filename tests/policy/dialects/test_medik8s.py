"""NodeHealthCheck of medik8s: what is taken, what it becomes, and what is refused in which words."""

from __future__ import annotations

from datetime import timedelta

import pytest

from policy.checks.healthcheck import Rung, UnhealthyCondition
from policy.dialects import parse
from policy.values.errors import PolicyError
from policy.values.object_refs import Dialect
from policy.values.thresholds import Threshold
from tests.policy.builders import TEMPLATE, a_check

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


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "2"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, {"a": "2"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "EXISTS"}]}, {"a": "1"}, False),
    ],
)
def test_a_selector_means_what_it_means_everywhere(selector: object, labels: dict[str, str], selected: bool) -> None:
    assert a_check(selector=selector).selector.matches(labels) is selected


def test_our_own_template_may_stand_on_several_rungs() -> None:
    ladder = [rung(1, TEMPLATE | {"name": "soft"}), rung(2, TEMPLATE | {"name": "hard"})]
    assert [found.template.name for found in a_check(remediationTemplate=None, escalatingRemediations=ladder).rungs] == [
        "soft",
        "hard",
    ]


def test_several_templates_of_one_kind_need_its_controllers_word_which_is_told() -> None:
    ladder = [rung(1, FOREIGN), rung(2, FOREIGN | {"name": "harder"})]
    check = a_check(remediationTemplate=None, escalatingRemediations=ladder)
    assert [found.template.name for found in check.rungs] == ["a", "harder"]
    assert "multiple-templates-support" in check.warnings[0]


def test_a_single_template_has_no_timeout() -> None:
    (single,) = a_check().rungs
    assert single == Rung(template=single.template, order=0, timeout=None)


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
