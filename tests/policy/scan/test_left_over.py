"""Remediation objects that an episode has left behind are found once nobody needs them, and never while somebody does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policy.objects.nodes import Condition
from policy.objects.remediations import Owner, RemediationObject
from policy.remediation.strategy_rules import Strategy
from policy.scan.scan_report import LeftOver
from policy.values.object_refs import Dialect, ObjectRef
from tests.policy.builders import FOREIGN, NAMESPACE, NOW, PROD, a_check, a_machine, a_node, cluster_api, ledger_of, openshift

CHECK = a_check(remediationTemplate=FOREIGN | {"namespace": "ops"})
OF_NODE = RemediationObject(
    ref=ObjectRef(api_version=FOREIGN["apiVersion"], kind="SelfNodeRemediation", name="a", namespace="ops"),
    target="a",
    owners=(Owner(kind="NodeHealthCheck", name="workers", uid="uid-of-workers"),),
)


def found(
    *nodes: Any, made: RemediationObject = OF_NODE, watching: tuple[str, ...] = (), check: Any = CHECK
) -> tuple[LeftOver, ...]:
    return ledger_of(check, *nodes, made).report_parts(NOW, watching).left_over


def test_of_a_node_that_is_well_and_in_no_episode_it_is_to_be_taken_back() -> None:
    """S35: whoever made it was terminated."""
    (left,) = found(a_node("a"))
    assert (left.node, left.name, left.step.timeout, left.node_uid) == ("a", "a", None, "uid-of-a")
    assert "its node is well" in left.reason


@pytest.mark.parametrize(
    ("node", "made", "watching"),
    [
        (a_node("a", "Unknown", 60), OF_NODE, ()),
        (a_node("a", "Unknown", 2), OF_NODE, ()),
        (a_node("a"), OF_NODE, ("a",)),
        (a_node("a"), replace(OF_NODE, deleting=True), ()),
        (a_node("a"), replace(OF_NODE, owners=()), ()),
        (a_node("a"), replace(OF_NODE, ref=replace(OF_NODE.ref, kind="Metal3Remediation")), ()),
    ],
    ids=["still sick", "soon sick", "its episode is open", "on its way out", "somebody else's", "of no template"],
)
def test_what_is_needed_or_not_ours_is_left(node: Any, made: RemediationObject, watching: tuple[str, ...]) -> None:
    assert found(node, made=made, watching=watching) == ()


@pytest.mark.parametrize(("expected", "succeeded", "gone"), [("", "", True), ("True", "", False), ("True", "True", True)])
def test_of_a_node_that_is_gone_unless_it_was_to_go(expected: str, succeeded: str, gone: bool) -> None:
    made = replace(OF_NODE, permanent_node_deletion_expected=expected, succeeded=succeeded)
    assert bool(found(a_node("b"), made=made)) is gone


def test_of_a_machine_that_is_well_where_the_machine_owns_it() -> None:
    check = openshift("m", remediationTemplate=FOREIGN)
    ref = ObjectRef(api_version=FOREIGN["apiVersion"], kind="SelfNodeRemediation", name="m1", namespace=NAMESPACE)
    made = RemediationObject(ref=ref, target="m1", owners=(Owner(kind="Machine", name="m1"),))
    for owned, expected in ((made, ["n1"]), (replace(made, owners=()), [])):
        left = ledger_of(check, a_node("n1"), a_machine("m1", Dialect.OPENSHIFT), owned).report_parts(NOW).left_over
        assert [each.node for each in left] == expected
        assert all(each.machine_ref is not None and each.machine_ref.name == "m1" for each in left)


@pytest.mark.parametrize("paused", ["check", "cluster"])
def test_a_paused_check_of_machines_gives_nothing_back(paused: str) -> None:
    """As `evaluate` says it, and the shipped controllers do it; a paused NodeHealthCheck restores (S17)."""
    check = replace(cluster_api("m", template=FOREIGN), paused="so it is" if paused == "check" else "")
    prod = replace(PROD, paused="spec.paused is true" if paused == "cluster" else "")
    ref = ObjectRef(api_version=FOREIGN["apiVersion"], kind="SelfNodeRemediation", name="m1", namespace=NAMESPACE)
    made = RemediationObject(ref=ref, target="m1", owners=(Owner(kind="Machine", name="m1"),))
    wished = a_machine("m1", uid="uid-m1", conditions=(Condition(type="OwnerRemediated", status="False"),))
    for machine, objects in ((a_machine("m1"), (made,)), (wished, ())):
        ledger = ledger_of(prod, check, a_node("n1"), machine, *objects)
        assert ledger.report_parts(NOW).left_over == ()
        ledger.put_check(replace(check, paused=""))
        ledger.put_cluster(PROD, NOW)
        assert [each.node for each in ledger.report_parts(NOW).left_over] == ["n1"]
    assert found(a_node("a"), check=replace(CHECK, paused="an upgrade")) != ()


def asked(**fields: Any) -> tuple[LeftOver, ...]:
    """A Machine whose owner is still asked to remediate it."""
    node = fields.pop("node", a_node("n1"))
    given = {"uid": "uid-m1", "conditions": (Condition(type="OwnerRemediated", status="False"),)} | fields
    return ledger_of(PROD, cluster_api("m"), node, a_machine("m1", **given)).report_parts(NOW).left_over


def test_a_wish_to_the_owner_of_a_machine_that_is_well_is_to_be_taken_back() -> None:
    """S14, S17, S35: the owner would act on it at the next bad moment, without a permit and whatever circuit breaker is open
    then."""
    (left,) = asked()
    assert (left.node, left.machine_uid, left.step.strategy) == ("n1", "uid-m1", Strategy.REQUEST_OWNER)


@pytest.mark.parametrize(
    "fields",
    [
        {"node": a_node("n1", "Unknown", 60)},
        {"deleting": True},
        {"controller": "Other/x"},
        {"conditions": (Condition(type="OwnerRemediated", status="True"),)},
        {"conditions": ()},
    ],
    ids=["still sick", "on its way out", "of nobody who remediates", "done", "never asked"],
)
def test_a_wish_that_is_needed_or_none_is_left(fields: dict[str, Any]) -> None:
    assert asked(**fields) == ()
