"""Which steps a target has, in which order, and why one that a check names can't be taken."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.checks.health_check import HealthCheck
from policy.dialects import parse
from policy.fence.template_reader import OWN_KINDS
from policy.remediation.ladder import (
    ESCALATION_ANNOTATION,
    MAX_IN_FLIGHT_ANNOTATION,
    Body,
    EscalationStep,
    fences_only,
    first_step,
    next_step,
    possible,
    read_limit,
    read_strategies,
    removes,
    timed_out,
)
from policy.remediation.strategy_rules import BY_TEMPLATE, DELETION_TIMEOUT, RULES, Action, Needs, Strategy, StrategyRule
from policy.values.errors import PolicyError
from policy.values.fields import Threshold
from policy.values.times import format_duration
from tests.policy.builders import FOREIGN, NOW, TEMPLATE, a_check, check_object, cluster_api, openshift
from workflows.remediation.story import STEPS

NODE = Body(has_node=True)
OWNED = Body(has_node=True, phase="Running", owner="MachineSet/workers")


def annotated(check: dict[str, Any], **annotations: str) -> HealthCheck:
    return parse(check | {"metadata": check["metadata"] | {"annotations": annotations}})


def rung(order: int, template: dict[str, Any], timeout: str = "5m") -> dict[str, Any]:
    return {"order": order, "timeout": timeout, "remediationTemplate": template}


def own(kind: str) -> dict[str, Any]:
    return {"apiVersion": "nodewarden.io/v1alpha1", "kind": kind, "name": "it", "namespace": "ops"}


def test_a_ladder_of_templates_is_climbed_by_order_ours_by_ourselves() -> None:
    check = a_check(
        remediationTemplate=None,
        escalatingRemediations=[
            rung(3, own("MachineDeletionTemplate")),
            rung(1, FOREIGN, "90s"),
            rung(2, TEMPLATE),
            rung(4, own("RebootTemplate")),
        ],
    )
    steps, refused = possible(check, NODE)
    assert refused == ""
    assert [step.strategy for step in steps] == [Strategy.EXTERNAL, Strategy.FENCE, Strategy.DELETE_MACHINE, Strategy.REBOOT]
    assert [step.timeout for step in steps] == [timedelta(seconds=90), *[timedelta(minutes=5)] * 3]
    assert len({step.name for step in steps}) == 4
    assert not fences_only(check, steps)


def test_a_single_fencing_template_stays_a_plain_fencing_unless_retries_are_to_be_remembered() -> None:
    check = a_check()
    steps, _ = possible(check, NODE)
    assert fences_only(check, steps)
    remembers = annotated(check_object(), **{"nodewarden.io/max-retry": "3"})
    assert not fences_only(remembers, possible(remembers, NODE)[0])


@pytest.mark.parametrize(
    ("check", "phase", "strategy"),
    [
        (openshift("w"), "Running", Strategy.DELETE_MACHINE),
        (openshift("w"), "Failed", Strategy.DELETE_MACHINE),
        (cluster_api("w"), "Running", Strategy.REQUEST_OWNER),
        (openshift("w", remediationTemplate=FOREIGN), "Running", Strategy.EXTERNAL),
        (cluster_api("w", template=FOREIGN), "Running", Strategy.EXTERNAL),
    ],
)
def test_without_a_ladder_the_dialects_own_way_is_the_only_step(check: HealthCheck, phase: str, strategy: Strategy) -> None:
    steps, refused = possible(check, Body(has_node=True, phase=phase, owner="MachineSet/s"))
    assert (refused, [step.strategy for step in steps]) == ("", [strategy])
    own = strategy is not Strategy.EXTERNAL
    assert steps[0].timeout == (DELETION_TIMEOUT if own else None), "as shipped, others' objects never time out"


def test_the_old_bare_metal_strategy_annotates_but_for_a_machine_that_has_failed() -> None:
    plain: dict[str, Any] = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineHealthCheck",
        "metadata": {"name": "w", "namespace": "m"},
        "spec": {"selector": {}, "unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "1s"}]},
    }
    check = annotated(plain, **{"machine.openshift.io/remediation-strategy": "external-baremetal"})
    for phase, strategy in (("Running", Strategy.ANNOTATE_EXTERNAL), ("Failed", Strategy.DELETE_MACHINE)):
        steps, _ = possible(check, Body(has_node=True, phase=phase, owner="MachineSet/s"))
        assert [step.strategy for step in steps] == [strategy]


def test_strategies_named_by_annotation_hold_instead_and_find_their_template() -> None:
    check = annotated(check_object(remediationTemplate=FOREIGN), **{ESCALATION_ANNOTATION: "reboot=10m, external, fence"})
    steps, _ = possible(check, NODE)
    assert [(step.strategy, step.timeout) for step in steps] == [
        (Strategy.REBOOT, timedelta(minutes=10)),
        (Strategy.EXTERNAL, None),
        (Strategy.FENCE, None),
    ]
    assert steps[1].template is not None
    assert steps[1].template.kind == FOREIGN["kind"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected strategies of"),
        ("restart", "got 'restart'"),
        ("reboot,reboot", "expected every strategy once"),
        ("reboot=soon", "expected a time-out such as 10m"),
        ("reboot=0s", "more than nothing"),
        ("reboot=", "expected a time-out such as 10m"),
    ],
)
def test_bad_strategies_are_refused_with_what_was_expected(text: str, expected: str) -> None:
    with pytest.raises(PolicyError, match=r"NodeHealthCheck/workers") as refused:
        annotated(check_object(), **{ESCALATION_ANNOTATION: text})
    assert expected in str(refused.value)


@pytest.mark.parametrize(
    ("strategies", "body", "why"),
    [
        ("delete-machine", Body(has_node=True, phase="Running"), "no controller owns the Machine"),
        ("request-owner", Body(has_node=True, phase="Running"), "no controller owns the Machine"),
        ("request-owner", Body(has_node=True, phase="Running", owner="MachinePool/p"), "its owner MachinePool/p does not"),
        ("fence", Body(has_node=False, phase="Failed", owner="MachineSet/s"), "it has no Node"),
        ("reboot", Body(has_node=False), "it has no Node"),
        ("external", OWNED, "names no template"),
        ("annotate-external", NODE, "needs a Machine"),
    ],
)
def test_a_step_that_is_impossible_is_left_out_and_alone_it_is_told_why(strategies: str, body: Body, why: str) -> None:
    """Never a Machine that nobody would replace."""
    named = read_strategies(strategies, subject="x", field="y")
    steps, refused = possible(None, body, named)
    assert steps == ()
    assert why in refused
    with_another = (*named, *read_strategies("delete-machine", subject="x", field="y"))
    if "delete-machine" not in strategies and body.owner:
        left, refused = possible(None, body, with_another)
        assert [step.strategy for step in left] == [Strategy.DELETE_MACHINE]
        assert refused == ""


def test_a_machine_that_a_check_of_nodes_can_not_know_is_looked_for_live() -> None:
    step = read_strategies("delete-machine", subject="x", field="y")
    assert possible(None, NODE, step)[1] == ""
    assert "it has none" in possible(None, NODE, step, live=True)[1]


@pytest.mark.parametrize(
    ("strategies", "whole"),
    [("delete-machine", True), ("request-owner", True), ("reboot, delete-machine", False), ("fence", False)],
)
def test_a_ladder_removes_a_machine_only_where_every_step_does(strategies: str, whole: bool) -> None:
    """S15: a control plane counts one member less only then."""
    assert removes(read_strategies(strategies, subject="x", field="y")) is whole


# The order of a ladder, and the end of a step.

MINUTE = timedelta(minutes=1)


@given(st.sets(st.sampled_from(["a", "b", "c", "d", "e"])), st.sets(st.sampled_from(["a", "b", "c", "d", "e"])))
def test_every_step_that_has_not_failed_is_tried_once(failed: set[str], fails_now: set[str]) -> None:
    """Whichever of them fail: the climb ends, with each of the others tried in its order."""
    ladder = tuple(EscalationStep(strategy=Strategy.FENCE, name=name) for name in "abcde")
    tried: list[str] = []
    at = first_step(ladder, failed)
    while at is not None and len(tried) <= len(ladder):
        tried.append(ladder[at].name)
        at = next_step(ladder, at, failed | fails_now)
    assert at is None
    assert tried == [name for name in "abcde" if name not in failed and (name not in fails_now or name == tried[0])]


def test_a_step_has_its_time_to_the_last_moment() -> None:
    assert not timed_out(NOW, MINUTE, NOW + MINUTE)
    assert timed_out(NOW, MINUTE, NOW + MINUTE + timedelta(microseconds=1))
    assert not timed_out(NOW, None, NOW + timedelta(days=36500)), "a classic template has no time-out"


# How many targets of a health check may be remediated at once.


def test_the_limit_of_a_health_check_is_an_annotation() -> None:
    assert read_limit({}, "NodeHealthCheck/w") is None
    assert read_limit({MAX_IN_FLIGHT_ANNOTATION: "3"}, "NodeHealthCheck/w") == Threshold(value=3)
    assert read_limit({MAX_IN_FLIGHT_ANNOTATION: "20%"}, "NodeHealthCheck/w") == Threshold(value=20, percent=True)


@pytest.mark.parametrize("text", ["", "-1", "101%", "a few", "9" * 5000])
def test_a_limit_that_cannot_be_used_is_refused_by_name(text: str) -> None:
    with pytest.raises(PolicyError, match=r"NodeHealthCheck/w: metadata\.annotations\.nodewarden\.io/max-in-flight: expected"):
        read_limit({MAX_IN_FLIGHT_ANNOTATION: text}, "NodeHealthCheck/w")


# The table of strategies is whole: each has a row, a class that carries it out, and its words in the docs.

DOCS = Path(__file__).parents[3] / "docs"


def cells(page: str, first: str) -> list[str]:
    """The row of a table that begins with that cell."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^\| {re.escape(first)} \|.*$", text, flags=re.MULTILINE)
    assert found is not None, f"docs/{page} has no row {first}"
    return [each.strip() for each in found[0].strip("|").split(" | ")]


def test_each_strategy_has_a_row_and_a_class() -> None:
    assert set(RULES) == set(STEPS) == set(Strategy)


def test_each_template_of_ours_means_one_strategy() -> None:
    assert set(BY_TEMPLATE) == set(OWN_KINDS)


@pytest.mark.parametrize(("strategy", "rule"), RULES.items())
def test_the_docs_name_its_time_out(strategy: Strategy, rule: StrategyRule) -> None:
    default = "that of its plan" if rule.needs is Needs.NODE else "none"
    assert cells("remediation.md", f"`{strategy}`")[-1] == (format_duration(rule.timeout) if rule.timeout else default)


def test_the_docs_name_what_evaluate_calls_it() -> None:
    text = (DOCS / "semantics.md").read_text(encoding="utf-8")
    table = text.partition("| action | what it is | by |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\|[^|]+\|", table, flags=re.MULTILINE)))) == set(Action)
