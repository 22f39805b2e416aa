"""NodeHealthCheck of medik8s: what is taken, what it becomes, and what is refused in which words."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from policy.checks.healthcheck import Rung, UnhealthyCondition
from policy.dialects import parse
from policy.values.errors import PolicyError
from policy.values.object_refs import Dialect
from policy.values.selectors import Operator
from policy.values.thresholds import Threshold
from tests.policy.builders import TEMPLATE, WORKER, a_check, check_object

FIVE_MINUTES = timedelta(seconds=300)
FOREIGN = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediationTemplate", "name": "a"}
OTHER = {"apiVersion": "fence-agents-remediation.medik8s.io/v1alpha1", "kind": "FenceAgentsRemediationTemplate", "name": "b"}
DELETING = {"apiVersion": "x.medik8s.io/v1", "kind": "MachineDeletionRemediationTemplate", "name": "c"}


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


def test_what_is_left_out_takes_the_defaults_of_the_proposal() -> None:
    check = a_check(selector=None, minHealthy=None, unhealthyConditions=None)
    assert check.selector.matches({WORKER: ""})
    assert not check.selector.matches({"node-role.kubernetes.io/control-plane": ""})
    assert check.max_unhealthy == Threshold(value=49, percent=True)
    assert {(listed.type, listed.status, listed.duration) for listed in check.conditions} == {
        ("Ready", "False", FIVE_MINUTES),
        ("Ready", "Unknown", FIVE_MINUTES),
    }
    assert check.paused == ""


def test_the_proposals_own_example_is_read() -> None:
    """One expression without its list, and its operator in lower case."""
    check = a_check(selector={"matchExpressions": {"key": WORKER, "operator": "exists"}}, minHealthy=None, maxUnhealthy="49%")
    (requirement,) = check.selector.requirements
    assert (requirement.key, requirement.operator) == (WORKER, Operator.EXISTS)


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


def test_rungs_are_climbed_by_order_not_by_place() -> None:
    check = a_check(remediationTemplate=None, escalatingRemediations=[rung(8, OTHER, "2m"), rung(-1, FOREIGN, "60s")])
    assert [(found.template.kind, found.timeout) for found in check.rungs] == [
        ("SelfNodeRemediationTemplate", timedelta(seconds=60)),
        ("FenceAgentsRemediationTemplate", timedelta(seconds=120)),
    ]
    assert check.warnings == ()


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


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"selector": {}}, "spec.selector", "expected matchLabels or matchExpressions"),
    ({"selector": "invalid"}, "spec.selector", "expected an object"),
    ({"selector": {"matchLabels": {"a": 1}}}, "spec.selector.matchLabels.a", "expected a string"),
    ({"selector": {"matchLabels": {"a": None}}}, "spec.selector.matchLabels.a", "expected a string"),
    (
        {"selector": {"matchExpressions": [{"key": "not a key", "operator": "DoesNotExist"}]}},
        "spec.selector.matchExpressions[0].key",
        "expected a label key",
    ),
    (
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
        "spec.selector.matchExpressions[0].operator",
        "In, NotIn",
    ),
    (
        {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
        "spec.selector.matchExpressions[0].values",
        "at least one",
    ),
    (
        {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]}},
        "spec.selector.matchExpressions[0].values",
        "expected none",
    ),
    ({"minHealthy": 1, "maxUnhealthy": 1}, "spec.maxUnhealthy", "only one of minHealthy and maxUnhealthy"),
    ({"minHealthy": None, "maxUnhealthy": -1}, "spec.maxUnhealthy", "got -1"),
    ({"minHealthy": "-30%"}, "spec.minHealthy", "got '-30%'"),
    ({"minHealthy": "many"}, "spec.minHealthy", "got 'many'"),
    ({"minHealthy": None, "maxUnhealthy": 1, "remediationTemplate": DELETING}, "spec.minHealthy", "maxUnhealthy can't be used"),
    ({"minHealthy": None, "remediationTemplate": DELETING}, "spec.minHealthy", "maxUnhealthy can't be used"),
    ({"unhealthyConditions": []}, "spec.unhealthyConditions", "at least one condition"),
    (
        {"unhealthyConditions": [{"type": "Ready", "status": False, "duration": "5m"}]},
        "spec.unhealthyConditions[0].status",
        "quote it",
    ),
    ({"unhealthyConditions": [{"type": "Ready", "status": "False"}]}, "spec.unhealthyConditions[0].duration", "got nothing"),
    (
        {"unhealthyConditions": [{"type": "Ready", "status": "False", "duration": 300}]},
        "spec.unhealthyConditions[0].duration",
        "got 300",
    ),
    (
        {"unhealthyConditions": [{"type": "Ready", "status": "False", "duration": "-5m"}]},
        "spec.unhealthyConditions[0].duration",
        "of at least 0s",
    ),
    ({"remediationTemplate": None}, "spec.remediationTemplate", "or escalatingRemediations"),
    (
        {"remediationTemplate": {"kind": "FencingTemplate", "name": "b"}},
        "spec.remediationTemplate.apiVersion",
        "non-empty string",
    ),
    (
        {"remediationTemplate": {key: value for key, value in TEMPLATE.items() if key != "namespace"}},
        "spec.remediationTemplate.namespace",
        "the namespace of the FencingTemplate",
    ),
    ({"escalatingRemediations": [rung(1)]}, "spec.escalatingRemediations", "only one of"),
    (
        {"remediationTemplate": None, "escalatingRemediations": [rung(1), rung(1, OTHER)]},
        "spec.escalatingRemediations[1].order",
        "got 1 twice",
    ),
    (
        {"remediationTemplate": None, "escalatingRemediations": [rung(1), rung(2)]},
        "spec.escalatingRemediations[1].remediationTemplate.kind",
        "every kind once",
    ),
    (
        {"remediationTemplate": None, "escalatingRemediations": [rung(1, FOREIGN, "59s")]},
        "spec.escalatingRemediations[0].timeout",
        "of at least 1m",
    ),
    ({"pauseRequests": "me"}, "spec.pauseRequests", "expected a list"),
    ({"stormCooldownDuration": "soon"}, "spec.stormCooldownDuration", "expected a duration"),
]


@pytest.mark.parametrize(
    ("spec", "field", "problem"), REFUSED, ids=[f"{field}-{index}" for index, (_, field, _) in enumerate(REFUSED)]
)
def test_a_bad_object_is_refused_as_a_whole_with_object_field_and_expectation(
    spec: dict[str, Any], field: str, problem: str
) -> None:
    """A bad policy object stops new episodes under it and never becomes a looser brake."""
    with pytest.raises(PolicyError) as refusal:
        parse(check_object(**spec))
    assert refusal.value.subject == "NodeHealthCheck/workers"
    assert refusal.value.field == field
    assert problem in refusal.value.problem


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


def test_an_unknown_version_of_a_known_kind_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"expected remediation\.medik8s\.io/v1alpha1, got "):
        parse(check_object() | {"apiVersion": "remediation.medik8s.io/v9"})
