"""Whom a kept machine's isolation is asked for by, what its Node says of it, and what of a fencing plan carries it out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from policy.episode.gate import By, Operation, Seen, objection, preserved_as_failed
from policy.fence.plan import CORDON, UNCORDON, Act, CutStorage, FencingPlan, PlannedMethod, PowerDevice, isolation_plan
from policy.objects.nodes import PRESERVE_ANNOTATION, READY, Condition, NodeView, Taint
from policy.preservation.keep_or_release import PreservationDecision, decide, effects
from policy.preservation.machine_snapshot import CONDITION, ISOLATION_ANNOTATION, TAINT, Held, Isolation, MachinePhase
from policy.preservation.pool_cap import survey
from policy.preservation.requests import ISOLATE_ANNOTATION, Pool, isolation_asked
from policy.values.selectors import Selector

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
PORT = PowerDevice(driver="fence_brocade", endpoint="fence_brocade://switch-1/2")
INSTANCE = PowerDevice(driver="ec2", endpoint="ec2://eu-west-1/i-1")
IPMI = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623")
FC_OFF = PlannedMethod(name="fc-off", act=Act.CUT_PATH, device=PORT, storage=CutStorage(classes=("san",)))
QUARANTINE = PlannedMethod(name="quarantine", act=Act.QUARANTINE, device=INSTANCE)


def held(*, failed: bool = True, machine: dict[str, str] | None = None, **node: str) -> Held:
    view = NodeView(name="n", uid="u", annotations={PRESERVE_ANNOTATION: "now"} | node)
    phase = MachinePhase.FAILED if failed else MachinePhase.RUNNING
    told = "its phase is Failed" if failed else ""
    return Held(
        key="s/m", machine="m", namespace="s", node_name="n", node=view, phase=phase, failed=told, annotations=machine or {}
    )


def decided(found: Held) -> PreservationDecision:
    return decide(found, now=NOW, timeout=HOUR)


@pytest.mark.parametrize(
    ("node", "machine", "pool", "expected"),
    [
        ({}, {}, False, False),
        ({}, {}, True, True),
        ({}, {ISOLATE_ANNOTATION: "true"}, False, True),
        ({ISOLATE_ANNOTATION: "false"}, {ISOLATE_ANNOTATION: "true"}, True, False),
        ({ISOLATE_ANNOTATION: "true"}, {ISOLATE_ANNOTATION: "false"}, False, True),
    ],
)
def test_the_node_s_word_beats_the_machine_s_and_both_beat_the_pool(
    node: dict[str, str], machine: dict[str, str], pool: bool, expected: bool
) -> None:
    assert isolation_asked(node, machine, pool=pool) == (expected, "")


def test_an_unreadable_annotation_isolates_no_machine_and_is_reported() -> None:
    found = decided(held(**{ISOLATE_ANNOTATION: "yes"}))
    assert not found.isolate
    assert any("expected true or false, got 'yes'" in warning for warning in found.warnings)


def test_only_a_machine_that_failed_is_cut_off() -> None:
    assert decided(held(**{ISOLATE_ANNOTATION: "true"})).isolate
    assert not decided(held(failed=False, **{ISOLATE_ANNOTATION: "true"})).isolate
    assert not decided(held(**{ISOLATE_ANNOTATION: "true", PRESERVE_ANNOTATION: "false"})).isolate


def test_its_node_says_how_far_it_has_come_until_it_is_released() -> None:
    """Also while it runs again, kept and still cut; S28: nothing of it is left afterwards."""
    asked = held(**{ISOLATE_ANNOTATION: "true"})
    assert effects(decided(asked)).node[ISOLATION_ANNOTATION] == "asked"
    begun = held(**{ISOLATE_ANNOTATION: "true", ISOLATION_ANNOTATION: "asked"})
    assert ISOLATION_ANNOTATION not in effects(decided(begun)).node
    assert effects(decided(begun), isolation=Isolation.CUT).node[ISOLATION_ANNOTATION] == "cut"
    cut = held(failed=False, **{ISOLATION_ANNOTATION: "cut"})
    assert ISOLATION_ANNOTATION not in effects(decided(replace(cut, expiry=NOW + HOUR))).node
    released = held(**{ISOLATION_ANNOTATION: "cut", PRESERVE_ANNOTATION: "false"})
    assert effects(decided(replace(released, expiry=NOW + HOUR))).node[ISOLATION_ANNOTATION] is None


def test_the_word_goes_with_the_preservation_it_belongs_to() -> None:
    over = replace(held(machine={ISOLATE_ANNOTATION: "true"}, **{ISOLATE_ANNOTATION: "true"}), expiry=NOW)
    assert effects(decided(over)).node[ISOLATE_ANNOTATION] is None


def test_a_pool_may_ask_for_it() -> None:
    pool = Pool(name="all", selector=Selector(), isolate=True)
    (found,) = survey([held()], [pool], now=NOW).decisions
    assert found.isolate
    (found,) = survey([held()], [replace(pool, isolate=False)], now=NOW).decisions
    assert not found.isolate


def test_of_a_plan_only_what_cuts_is_carried_out_and_given_back() -> None:
    """S21: neither power nor the cordon is any part of it."""
    plan = FencingPlan(source="x", levels=((IPMI,),), isolation=(CORDON, FC_OFF), recovery=(UNCORDON,))
    found = isolation_plan(plan)
    assert [method.act for method in found.isolation] == [Act.CUT_PATH, Act.FREE_CUT_PODS]
    assert [(method.act, method.device) for method in found.recovery] == [(Act.RESTORE_PATH, PORT)]


def test_the_volumes_of_an_instance_are_known_without_any_configuration() -> None:
    found = isolation_plan(FencingPlan(source="x", levels=((INSTANCE,),)))
    assert [(method.act, method.device) for method in found.isolation] == [
        (Act.DETACH_VOLUMES, INSTANCE),
        (Act.FREE_CUT_PODS, None),
    ]


def test_a_quarantine_alone_frees_nothing() -> None:
    """S1: connections that are open live on."""
    found = isolation_plan(FencingPlan(source="x", levels=((INSTANCE,),), isolation=(CORDON, QUARANTINE)))
    assert [method.act for method in found.isolation] == [Act.QUARANTINE]
    assert [method.act for method in found.recovery] == [Act.LIFT_QUARANTINE]


def test_a_node_says_that_it_is_kept_as_failed_by_condition_and_taint_unless_vetoed() -> None:
    """S26: `false` is heard before anything of it was written."""
    kept = Condition(type=CONDITION, status="True", reason="x", message="x")
    taint = Taint(key=TAINT, effect="NoSchedule")
    node = NodeView(name="n", uid="u", conditions=(kept, Condition(type=READY, status="Unknown")), taints=(taint,))
    assert preserved_as_failed(node)
    assert objection(Seen(node=node, machines=()), Operation.UNCORDON, By.PERSON, NOW) is not None
    assert objection(Seen(node=node, machines=(), preserving=True), Operation.UNCORDON, By.PERSON, NOW) is None
    assert not preserved_as_failed(replace(node, taints=()))
    assert not preserved_as_failed(replace(node, conditions=()))
    assert not preserved_as_failed(replace(node, annotations={PRESERVE_ANNOTATION: "false"}))
