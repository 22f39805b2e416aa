"""Which machine goes last when a set is to have fewer, as its controller reads it: what is written for that, and what is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from policy.objects.machines import MachineView
from policy.objects.nodes import PRESERVE_ANNOTATION, READY, Condition, NodeView
from policy.preservation.keep_or_release import (
    NOT_OVERRIDDEN,
    Automatic,
    Override,
    PreservationDecision,
    WantedReplicas,
    decide,
    effects,
    overridden_by,
)
from policy.preservation.machine_snapshot import (
    CLUSTER_API_DELETE,
    KEPT_AUTOMATICALLY,
    KEPT_ON_REQUEST,
    OPENSHIFT_DELETE,
    PRIORITY_ANNOTATION,
    PRIORITY_BEFORE,
    PRIORITY_OURS,
    Held,
    MachinePhase,
    first_to_go_mark,
    priority_of,
)
from policy.preservation.pool_cap import scale_down_order
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT, MachineApi
from tests.policy.builders import carried_out

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOURS = timedelta(hours=72)
OURS = {PRIORITY_ANNOTATION: KEPT_ON_REQUEST, PRIORITY_OURS: KEPT_ON_REQUEST}


def held(word: str = "now", **annotations: str) -> Held:
    """A machine that is well, whose Node is annotated."""
    words = {PRESERVE_ANNOTATION: word} if word else {}
    node = NodeView(name="n", uid="u", annotations=words, conditions=(Condition(type=READY, status="True"),))
    return Held(key="s/w", machine="w", namespace="s", node_name="n", node=node, annotations=annotations, has_priority=True)


def decided(machine: Held, *, released: str = "", automatic: Automatic = Automatic.NOTHING) -> PreservationDecision:
    return decide(machine, now=NOW, timeout=HOURS, released=released, automatic=automatic)


def kept(machine: Held) -> Held:
    return carried_out(machine, effects(decided(machine)))


def released(machine: Held) -> Held:
    return carried_out(machine, effects(decided(machine, released="seen enough")))


def ranks(machine: Held) -> dict[str, str]:
    return {
        key: value for key, value in machine.annotations.items() if key in {PRIORITY_ANNOTATION, PRIORITY_OURS, PRIORITY_BEFORE}
    }


def with_priority(machine: Held, value: str | None) -> Held:
    """As somebody else writes it."""
    rest = {key: each for key, each in machine.annotations.items() if key != PRIORITY_ANNOTATION}
    return replace(machine, annotations=rest if value is None else {**rest, PRIORITY_ANNOTATION: value})


@pytest.mark.parametrize("theirs", ["1", "0", "-1", "+2"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_wish_that_it_goes_first_counts_and_is_reported(theirs: str, when: str) -> None:
    """S21, S26: machine-controller-manager writes 1 for what the autoscaler has drained, and would write it again and again."""
    machine = held(**{PRIORITY_ANNOTATION: theirs}) if when == "before" else with_priority(kept(held()), theirs)
    decision = decided(machine)
    after = carried_out(machine, effects(decision))
    assert (decision.preserved, ranks(after)) == (True, {PRIORITY_ANNOTATION: theirs})
    (warning,) = decision.warnings
    assert f"{PRIORITY_ANNOTATION}={theirs}: it goes first" in warning
    assert ranks(released(after)) == {PRIORITY_ANNOTATION: theirs}


def test_what_stands_higher_than_ours_stays() -> None:
    """S28."""
    begun = kept(held(**{PRIORITY_ANNOTATION: "5000"}))
    assert ranks(begun) == {PRIORITY_ANNOTATION: "5000"}


def test_an_automatic_one_goes_before_one_that_was_asked_for() -> None:
    """S23, S24; and one that somebody asks for afterwards moves back."""
    failed = replace(held(""), phase=MachinePhase.FAILED, failed="its phase is Failed")
    begun = carried_out(failed, effects(decided(failed, automatic=Automatic.SELECTED), drained=True))
    assert ranks(begun) == {PRIORITY_ANNOTATION: KEPT_AUTOMATICALLY, PRIORITY_OURS: KEPT_AUTOMATICALLY}
    assert begun.node is not None
    asked = replace(begun, node=replace(begun.node, annotations={**begun.on_node, PRESERVE_ANNOTATION: "now"}))
    assert ranks(kept(asked)) == OURS


def test_an_unreadable_annotation_moves_no_machine() -> None:
    """Invalid values change nothing: neither where it stands nor whom it counts for (S23)."""
    failed = replace(held(""), phase=MachinePhase.FAILED, failed="its phase is Failed")
    begun = carried_out(failed, effects(decided(failed, automatic=Automatic.SELECTED), drained=True))
    assert begun.node is not None
    wrong = replace(begun, node=replace(begun.node, annotations={**begun.on_node, PRESERVE_ANNOTATION: "forever"}))
    decision = decided(wrong)
    assert (decision.preserved, len(decision.warnings)) == (True, 1)
    assert effects(decision).nothing


@pytest.mark.parametrize(
    ("text", "priority"),
    [("1", 1), ("+4", 4), ("-7", -7), ("", 3), (None, 3), ("3.5", 3), (" 1", 3), ("1_0", 3), ("+-1", 3), ("²", 3), ("9" * 40, 3)],
)
def test_a_priority_is_read_as_its_controller_reads_it(text: str | None, priority: int) -> None:
    assert priority_of(text) == priority


def of(api: MachineApi, **annotations: str) -> Held:
    return Held.of(MachineView(api=api, namespace="s", name="w", phase="Running", annotations=annotations))


def test_where_there_is_no_lever_nothing_is_written() -> None:
    """OpenShift and Cluster API: no word says "last"."""
    for api in (OPENSHIFT, CLUSTER_API):
        machine = of(api, **{PRESERVE_ANNOTATION: "now"})
        decision = decided(machine)
        assert (decision.preserved, decision.warnings) == (True, ())
        assert set(effects(decision).machine) == set()
    assert set(effects(decided(of(MCM, **{PRESERVE_ANNOTATION: "now"}))).machine) == {PRIORITY_ANNOTATION, PRIORITY_OURS}


@pytest.mark.parametrize(
    ("machine", "marked"),
    [
        (of(CLUSTER_API, **{CLUSTER_API_DELETE: ""}), "marked"),
        (of(CLUSTER_API, **{CLUSTER_API_DELETE: "yes"}), "yes"),
        (of(CLUSTER_API, **{OPENSHIFT_DELETE[0]: "yes"}), ""),
        (of(OPENSHIFT, **{OPENSHIFT_DELETE[0]: "yes"}), "yes"),
        (of(OPENSHIFT, **{OPENSHIFT_DELETE[1]: "yes"}), "yes"),
        (of(OPENSHIFT, **{OPENSHIFT_DELETE[0]: ""}), ""),
        (of(OPENSHIFT, **{CLUSTER_API_DELETE: ""}), ""),
        (of(MCM, **{MCM.goes_first[0]: "2026-11-21T12:00:00Z"}), "2026-11-21T12:00:00Z"),
        (of(MCM, **{MCM.goes_first[0]: "soon"}), ""),
        (of(MCM, **{CLUSTER_API_DELETE: ""}), ""),
    ],
)
def test_a_wish_that_it_goes_first_is_read_as_its_controller_reads_it(machine: Held, marked: str) -> None:
    assert machine.marked_for_deletion == marked
    assert bool(first_to_go_mark(machine)) is (bool(marked) and not machine.has_priority)


def test_marks_are_compared_as_moments() -> None:
    """As machine-controller-manager does: 13:00 at +02:00 was before 12:00."""
    early = replace(of(MCM, **{MCM.goes_first[0]: "2026-11-21T13:00:00+02:00"}), key="b")
    late = replace(of(MCM, **{MCM.goes_first[0]: "2026-11-21T12:00:00Z"}), key="a")
    unmarked = replace(of(MCM), key="0")
    assert [each.key for each in scale_down_order([unmarked, late, early], NOW)] == ["b", "a", "0"]


def test_a_wish_that_it_goes_first_stays_and_is_said_while_it_is_kept() -> None:
    """S26, S28: the number of replicas beats preservation."""
    machine = of(CLUSTER_API, **{CLUSTER_API_DELETE: "", PRESERVE_ANNOTATION: "now"})
    decision = decided(machine)
    (warning,) = decision.warnings
    assert CLUSTER_API_DELETE in warning
    assert carried_out(machine, effects(decision)).annotations[CLUSTER_API_DELETE] == ""
    assert decided(replace(machine, annotations={CLUSTER_API_DELETE: ""})).warnings == ()


# Which override it was, from what the sets above a machine say.

OLD = WantedReplicas(kind="MachineSet", name="w-1", replicas=2, revision=1, created=NOW)
NEW = WantedReplicas(kind="MachineSet", name="w-2", replicas=2, revision=2, created=NOW + timedelta(hours=1))
TOP = WantedReplicas(kind="MachineDeployment", name="w", replicas=4)


@pytest.mark.parametrize(
    ("own", "top", "others", "override", "words"),
    [
        (None, None, (), Override.DELETION, "no MachineSet is known above it"),
        (replace(OLD, replicas=None), None, (), Override.DELETION, "or by MachineSet w-1"),
        (OLD, None, (), Override.DELETION, "by MachineSet w-1, which is to have 2"),
        (replace(OLD, replicas=0), None, (), Override.HIBERNATION, "MachineSet w-1 is scaled to 0"),
        (OLD, replace(TOP, replicas=0), (NEW,), Override.HIBERNATION, "MachineDeployment w is scaled to 0"),
        (
            OLD,
            TOP,
            (NEW,),
            Override.ROLLING_UPDATE,
            "MachineDeployment w replaces the machines of MachineSet w-1 by those of MachineSet w-2",
        ),
        (replace(OLD, replicas=0), TOP, (NEW,), Override.ROLLING_UPDATE, "by those of MachineSet w-2"),
        (NEW, TOP, (OLD,), Override.DELETION, "by MachineSet w-2"),
        (NEW, TOP, (replace(OLD, revision=3),), Override.ROLLING_UPDATE, "by those of MachineSet w-1"),
        (OLD, TOP, (replace(NEW, replicas=0),), Override.DELETION, "by MachineSet w-1"),
        (OLD, TOP, (replace(NEW, deleting=True),), Override.DELETION, "by MachineSet w-1"),
        (replace(OLD, revision=0), TOP, (replace(NEW, revision=0),), Override.ROLLING_UPDATE, "MachineSet w-2"),
        (replace(OLD, replicas=0), TOP, (), Override.HIBERNATION, "MachineSet w-1 is scaled to 0"),
        (OLD, replace(TOP, deleting=True), (NEW,), Override.DELETION, "MachineDeployment w is being deleted"),
    ],
)
def test_which_override_it_was(
    own: WantedReplicas | None, top: WantedReplicas | None, others: tuple[WantedReplicas, ...], override: Override, words: str
) -> None:
    """S21: recorded by its name. A roll-back is a roll-out, too: the set with the newest revision counts."""
    found = overridden_by(own, top, others)
    assert found.override is override
    assert words in found.sentence
    assert found.sentence.startswith(f"{override.value}: ")


def test_nothing_is_said_where_nothing_was_overridden() -> None:
    assert NOT_OVERRIDDEN.sentence == ""
