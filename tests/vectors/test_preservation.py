"""Every case of `preservation.json`, as real objects through the loader and the JSON of `nodewarden preserve plan`.

What a decision writes is tried on the objects as well: written, read again, and nothing is left to write.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.keep_or_release import PreservationAction, PreservationDecision, decide, effects
from policy.preservation.machine_snapshot import (
    CONDITION,
    DRAINED,
    SCALE_DOWN_BEFORE,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_OURS,
    TAINT,
    Held,
)
from policy.preservation.pool_cap import shares
from policy.preservation.requests import DEFAULT_TIMEOUT, LAST_APPLIED_ANNOTATION
from policy.values.times import written
from simulator.machine_systems import machine_system_named
from simulator.machine_systems.contract import MachineSettings, Sighting
from starter.plans.cluster_objects import Manifest
from starter.plans.preserve_plans import PreservePlan, as_model, planned
from tests.documents import encoded
from tests.policy.builders import carried_out
from tests.vectors.objects import NOW, Json, moment

CASES: list[Json] = json.loads(Path(__file__).with_name("preservation.json").read_text(encoding="utf-8"))

RAN = {"mcm_manage", "released", "mcm_may_fail"}


def cases(*kinds: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] in kinds]


def machine(given: Json) -> Json:
    status: Json = {"phase": given["phase"]}
    if given.get("expires_in_s") is not None:
        status["preserveExpiryTime"] = moment(-given["expires_in_s"])
    annotations = dict(given.get("annotations", {}))
    if given.get("preserve") is not None:
        annotations[PRESERVE_ANNOTATION] = given["preserve"]
    owner = [{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "set", "uid": "u", "controller": True}]
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": {
            "name": given["name"],
            "namespace": "shoot",
            "uid": f"uid-{given['name']}",
            "labels": {"node": given["node"]} if given.get("node") else {},
            "annotations": annotations,
            "creationTimestamp": moment(given.get("age_s", 86400)),
            "ownerReferences": owner,
        },
        "spec": {"machinePreserveTimeout": given["timeout"]} if given.get("timeout") else {},
        "status": {"currentStatus": status},
    }


def node(given: Json) -> Json:
    conditions = []
    if given.get("preserved"):
        conditions = [{"type": CONDITION, "status": "True", "reason": "Preserved by user.", "message": given["preserved"]}]
    taints = [{"key": TAINT, "effect": "NoSchedule"}] if given.get("tainted") else []
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": given["name"], "uid": f"uid-{given['name']}", "annotations": dict(given.get("annotations", {}))},
        "spec": {"taints": taints, "unschedulable": bool(given.get("unschedulable"))},
        "status": {"conditions": conditions},
    }


def machine_set(cap: int) -> Json:
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "MachineSet",
        "metadata": {"name": "set", "namespace": "shoot"},
        "spec": {"autoPreserveFailedMachineMax": cap},
    }


def plan_of(objects: list[Json]) -> PreservePlan:
    plan = planned([Manifest(document=json.loads(json.dumps(each)), source="vector") for each in objects], NOW)
    assert plan.errors == ()
    return plan


def entry(objects: list[Json], name: str) -> Json:
    (found,) = [each for each in encoded(as_model(plan_of(objects)))["machines"] if each["name"] == name]
    return dict(found)


def the_decision(objects: list[Json]) -> PreservationDecision:
    (found,) = [decision for decision in plan_of(objects).survey.decisions if decision.held.machine]
    return found


def settled(decision: PreservationDecision) -> tuple[Held, bool]:
    """What the objects look like when all is written, and whether that drained the node. Then there is nothing left to do."""
    first = effects(decision)
    after = carried_out(decision.held, first)
    if first.drain:
        after = carried_out(after, effects(replace(decision, held=after), drained=True))
    if decision.action is not PreservationAction.TERMINATE:
        again = decide(after, now=NOW, timeout=DEFAULT_TIMEOUT)
        assert again.action is PreservationAction.NONE, f"{again.action} once everything is written: {again.reason}"
        assert effects(again).nothing, f"left to write: {effects(again)}"
    return after, first.drain


@pytest.mark.parametrize("case", cases("mcm_manage"))
def test_what_is_written(case: Json) -> None:
    """Beside the decision: S28, the user's cordon is never changed."""
    given, expect = case["given"], case["expect"]
    has_node = isinstance(given["node"], dict)
    facts = given["node"] if has_node else {}
    name = facts.get("name") or given["node"]
    objects = [
        machine(
            {
                "name": "m",
                "phase": given["phase"],
                "node": name,
                "preserve": given.get("machine_value"),
                "expires_in_s": given.get("expires_in_s"),
            }
        )
    ]
    if has_node:
        annotations = {PRESERVE_ANNOTATION: facts["value"]} if facts["value"] is not None else {}
        if facts.get("scale_down_disabled"):
            annotations |= {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_OURS: "true"}
        objects.append(node(facts | {"annotations": annotations, "preserved": "Machine preserved" if facts["condition"] else ""}))
    after, drained = settled(the_decision(objects))
    condition = after.node.condition(CONDITION) if after.node else None
    assert {
        "preserved": after.expiry is not None,
        "condition": condition.status if condition else None,
        "last_applied": after.annotations.get(LAST_APPLIED_ANNOTATION, ""),
        "tainted": after.tainted,
        "machine_annotation": after.annotations.get(PRESERVE_ANNOTATION, ""),
        "drained": drained,
        "scale_down_disabled": after.on_node.get(SCALE_DOWN_DISABLED) == "true",
        "unschedulable": after.node is not None and after.node.unschedulable,
    } == expect


@pytest.mark.parametrize("case", cases("released"))
def test_what_becomes_of_those_that_were_kept(case: Json) -> None:
    """P21, P30; S24: exactly the surplus, the earliest expiry first; S25: what has expired is not kept again."""
    given, expect = case["given"], case["expect"]
    plan = plan_of([machine_set(given["max"]), *(machine(each | {"node": "n"}) for each in given["machines"])])
    answer = encoded(as_model(plan))
    assert answer["auto"]["released"] == expect["released"]
    assert answer["auto"]["selected"] == []
    kept = [each["name"] for each in answer["machines"] if each["phase"] == "Failed:Preserved"]
    assert kept == expect["kept"]
    gone = [each["name"] for each in answer["machines"] if each["action"] == "terminate"]
    assert gone == sorted(expect.get("terminated", expect["released"]))
    for decision in plan.survey.decisions:
        if decision.action is PreservationAction.TERMINATE:
            after, _ = settled(decision)
            again = planned_again(after, given["max"])
            assert again.action is PreservationAction.TERMINATE, "one preservation for one failure"


def planned_again(held: Held, cap: int) -> PreservationDecision:
    facts = {"name": held.machine, "phase": "Failed", "node": "n", "annotations": dict(held.annotations)}
    return the_decision([machine_set(cap), machine(facts)])


def test_p18_failing_while_preserved_drains_and_moves_no_expiry() -> None:
    """S22."""
    objects = [
        machine({"name": "m", "phase": "Failed", "node": "n", "preserve": "now", "expires_in_s": 324000}),
        node({"name": "n", "preserved": "Machine preserved until"}),
    ]
    after, drained = settled(the_decision(objects))
    assert drained
    assert after.tainted
    assert after.expiry == NOW + timedelta(seconds=324000)
    condition = after.node.condition(CONDITION) if after.node else None
    assert condition is not None
    assert condition.message == f"{DRAINED} Machine preserved until {written(NOW + timedelta(seconds=324000))}."


@pytest.mark.parametrize("before", [{}, {SCALE_DOWN_DISABLED: "true"}, {SCALE_DOWN_DISABLED: "false"}])
def test_p23_what_a_user_wrote_for_the_autoscaler_is_there_again(before: Json) -> None:
    """S28: byte-equal before and after; a user who turns it off meanwhile is overruled while the machine is kept."""
    facts = {"name": "m", "phase": "Running", "node": "n"}
    begun, _ = settled(the_decision([machine(facts | {"preserve": "now"}), node({"name": "n", "annotations": before})]))
    assert begun.on_node[SCALE_DOWN_DISABLED] == "true"
    kept = facts | {"annotations": dict(begun.annotations), "expires_in_s": 60}
    there = dict(begun.on_node)
    if before.get(SCALE_DOWN_DISABLED) != "true":
        there[SCALE_DOWN_DISABLED] = "false"
        said = {"name": "n", "annotations": there, "preserved": "Machine preserved until"}
        again, _ = settled(the_decision([machine(kept), node(said)]))
        assert again.on_node[SCALE_DOWN_DISABLED] == "true"
        there = dict(again.on_node)
    released = kept | {"annotations": {PRESERVE_ANNOTATION: "false"}}
    said = {"name": "n", "annotations": there, "preserved": "Machine preserved until"}
    ended, _ = settled(the_decision([machine(released), node(said)]))
    assert ended.on_node == before
    assert SCALE_DOWN_BEFORE not in ended.on_node


def test_a_cap_is_spread_over_the_zones_of_a_pool() -> None:
    """The proposal's example, and what is left over goes to the first."""
    assert shares(2, ["a", "b"]) == {"a": 1, "b": 1}
    assert shares(5, ["c", "a", "b"]) == {"a": 2, "b": 2, "c": 1}
    assert shares(0, ["a"]) == {"a": 0}


@pytest.mark.parametrize("case", cases("mcm_may_fail"))
def test_whether_a_machine_may_be_called_failed_at_all(case: Json) -> None:
    """A limit of the controller that owns the machines: our simulated one has it, so that whole systems are tried with it."""
    given = case["given"]

    def one(name: str, phase: str, *, preserved: bool = False) -> Json:
        current = {"phase": phase} | ({"preserveExpiryTime": moment(-3600)} if preserved else {})
        metadata = {"name": name, "namespace": "shoot", "labels": {"name": "of-one-deployment"}}
        conditions = [{"type": "Ready", "status": "Unknown" if phase == "Unknown" else "True"}]
        status = {"currentStatus": current, "conditions": conditions}
        return {"metadata": metadata, "spec": {"providerID": f"simulated:///{name}"}, "status": status}

    silent = one("silent", "Unknown")
    others = [
        one(f"other-{index}", each["phase"], preserved=each.get("preserved", False)) for index, each in enumerate(given["others"])
    ]
    seen = Sighting(
        machine=silent,
        node=None,
        has_instance=True,
        refused=False,
        in_phase=given["unknown_for_s"],
        age=given["unknown_for_s"],
        settings=MachineSettings(health_timeout=given["health_timeout_s"]),
        siblings=[silent, *others],
    )
    found = machine_system_named("gardener").judge(seen).status.get("currentStatus", {}).get("phase")
    assert (found == "Failed") is case["expect"]["may_mark_failed"]


def test_no_case_is_left_out() -> None:
    assert {case["kind"] for case in CASES} == RAN
