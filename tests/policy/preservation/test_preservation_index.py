"""What the scanner hears of preservation: only machines that are not as they should be, each in time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from policy.objects.machines import MachineView
from policy.objects.nodes import PRESERVE_ANNOTATION, ZONE_LABEL, Condition, NodeView, Taint
from policy.preservation.machine_snapshot import (
    BY_A_USER,
    BY_US,
    CONDITION,
    DRAINED,
    EXPIRY_ANNOTATION,
    ISOLATION_ANNOTATION,
    KEPT_AUTOMATICALLY,
    KEPT_ON_REQUEST,
    PRIORITY_ANNOTATION,
    PRIORITY_OURS,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_OURS,
    STOPPED,
    TAINT,
)
from policy.preservation.pool_cap import DeploymentPool
from policy.preservation.preservation_index import MAXIMUM_PRESERVATIONS, REPORT_GONE_FOR, PreservationIndex, PreservationNeed
from policy.preservation.requests import ISOLATE_ANNOTATION, LAST_APPLIED_ANNOTATION, Pool
from policy.values.machine_apis import MCM
from policy.values.mode import Mode
from policy.values.object_refs import ObjectRef
from policy.values.selectors import Operator, Requirement, Selector

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=72)
SETTLED = timedelta(seconds=5)
OBSERVE, CORDON = Mode.OBSERVE, Mode.CORDON


LAST = {PRIORITY_ANNOTATION: KEPT_AUTOMATICALLY, PRIORITY_OURS: KEPT_AUTOMATICALLY}
WRITTEN = {LAST_APPLIED_ANNOTATION: "now", PRIORITY_ANNOTATION: KEPT_ON_REQUEST, PRIORITY_OURS: KEPT_ON_REQUEST}
"""What a machine carries that is kept, once everything is written."""


class Fleet:
    """Machines `m-<n>` on Nodes `n-<n>`, told to one index."""

    def __init__(self, *pools: Pool) -> None:
        self.index = PreservationIndex()
        for pool in pools:
            self.index.put_pool(pool.name, pool)
        self.said: dict[str, str] = {}

    def node(
        self, number: int, *, zone: str = "a", conditions: tuple[Condition, ...] = (), tainted: bool = False, **annotations: str
    ) -> None:
        taints = (Taint(key=TAINT, effect="NoSchedule"),) if tainted else ()
        view = NodeView(
            name=f"n-{number}",
            uid=f"uid-{number}",
            labels={ZONE_LABEL: zone},
            annotations=annotations,
            conditions=conditions,
            taints=taints,
        )
        self.index.put_node(view)

    def machine(self, number: int, *, failed: bool = False, now: datetime = NOW, **changes: object) -> None:
        machine = MachineView(
            api=MCM,
            namespace="shoot",
            name=f"m-{number}",
            node_name=f"n-{number}",
            phase="Failed" if failed else "Running",
            created=NOW - timedelta(hours=100 - number),
            controller="MachineSet/set",
        )
        ref = ObjectRef(api_version="machine.sapcloud.io/v1alpha1", kind="Machine", name=machine.name, namespace="shoot")
        self.index.put_machine(ref, replace(machine, **changes), now)  # type: ignore[arg-type]

    def kept(self, number: int, *, expiry: datetime = LATER, word: str | None = "now", **annotations: str) -> None:
        """Preserved on request, with everything written; word: what its Node asks for by now."""
        self.told_by_node(number, expiry=expiry, **({PRESERVE_ANNOTATION: word} if word else {}), **annotations)
        self.machine(number, expiry=expiry, annotations=WRITTEN)

    def told_by_node(
        self,
        number: int,
        *,
        expiry: datetime = LATER,
        reason: str = BY_A_USER,
        failed: bool = False,
        drained: bool = False,
        **annotations: str,
    ) -> None:
        """The Node of a machine that is kept, once everything is written. drained: as is one that failed, in the end."""
        message = f"Machine preserved until {expiry.strftime('%Y-%m-%dT%H:%M:%SZ')}."
        said = Condition(type=CONDITION, status="True", reason=reason, message=f"{DRAINED} {message}" if drained else message)
        ours = {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_OURS: "true"}
        self.node(number, conditions=(said,), tainted=failed or drained, **ours, **annotations)

    def needs(self, now: datetime = NOW) -> list[PreservationNeed]:
        found, _ = self.index.needs(now, lambda node: self.said.get(node, ""), self.said)
        return list(found)

    def actions(self, now: datetime = NOW) -> dict[str, str]:
        return {need.victim: need.action for need in self.needs(now)}


def pool(cap: int, **changes: object) -> Pool:
    return replace(Pool(name="workers", selector=Selector(), cap=cap), **changes)  # type: ignore[arg-type]


def test_an_unasked_node_is_never_reported() -> None:
    """Opt-in: failed machines without a pool and an annotation are somebody else's."""
    fleet = Fleet()
    for number in range(3):
        fleet.node(number)
        fleet.machine(number, failed=number == 1)
    assert fleet.actions(NOW + timedelta(hours=1)) == {}


def test_s52_in_observe_a_pool_begins_to_keep_no_machine() -> None:
    """The place goes to another one; what a person asks for is offered in every mode."""
    fleet = Fleet()
    fleet.index.put_pool("workers", pool(2))
    for number in range(3):
        fleet.node(number, **({PRESERVE_ANNOTATION: "now"} if number == 2 else {}))
        fleet.machine(number, failed=True)
    found, _ = fleet.index.needs(
        NOW + timedelta(hours=1), lambda _: "", mode=lambda victim, _: CORDON if victim == "n-1" else OBSERVE
    )
    assert {(need.victim, need.automatic) for need in found} == {("n-1", True), ("n-2", False)}


def test_s52_in_observe_the_annotation_of_a_pool_asks_for_nothing() -> None:
    fleet = Fleet()
    fleet.index.put_pool("workers", pool(1))
    fleet.node(0, **{PRESERVE_ANNOTATION: "auto-preserved"})
    fleet.machine(0, failed=True)
    assert [need.victim for need in fleet.index.needs(NOW + timedelta(hours=1), lambda _: "")[0]] == ["n-0"]
    assert fleet.index.needs(NOW + timedelta(hours=1), lambda _: "", mode=lambda *_: OBSERVE) == ((), 0)


def test_s52_what_its_pool_wants_done_to_a_kept_machine_is_offered_once_the_mode_allows_it() -> None:
    """Else its episode would be woken every minute, and would write that it is to be isolated. A person's wish is offered."""
    fleet = Fleet(pool(3, isolate=True))
    kept = {PRIORITY_ANNOTATION: KEPT_AUTOMATICALLY, PRIORITY_OURS: KEPT_AUTOMATICALLY, PRESERVE_ANNOTATION: "auto-preserved"}
    for number, (drained, asked) in enumerate([(False, {}), (True, {}), (True, {ISOLATE_ANNOTATION: "true"})]):
        fleet.told_by_node(number, reason=BY_US, failed=True, drained=drained, **asked)
        fleet.machine(number, failed=True, expiry=LATER, annotations=kept)
    offered = {}
    for mode in Mode:
        found, _ = fleet.index.needs(NOW + SETTLED, lambda _: "", mode=lambda *_, mode=mode: mode)
        offered[mode] = {need.victim for need in found}
    assert offered == {OBSERVE: {"n-2"}, CORDON: {"n-2"}, Mode.DRAIN: {"n-0", "n-2"}, Mode.REPAIR: {"n-0", "n-1", "n-2"}}


def test_an_annotation_is_heard_at_once() -> None:
    fleet = Fleet()
    fleet.machine(1)
    fleet.node(1, **{PRESERVE_ANNOTATION: "true"})
    (need,) = fleet.needs()
    assert (need.victim, need.action, need.automatic) == ("n-1", "preserve", False)
    assert need.machine is not None
    assert need.machine.name == "m-1"


def test_a_pool_of_the_settings_holds_where_no_object_of_its_name_does() -> None:
    index = PreservationIndex([pool(2)])
    assert index.asked
    index.put_pool("workers", pool(0))
    assert not index.asked
    index.put_pool("workers", None, "PreservationPolicy/workers: can't be read")
    assert not index.asked, "what it says instead is not known"
    index.put_pool("workers", None)
    assert index.asked


def test_a_failure_settles_before_the_pool_decides() -> None:
    """Who annotates it in the moment of its failure is heard first (S27)."""
    fleet = Fleet(pool(1))
    fleet.node(1)
    fleet.machine(1, failed=True)
    assert fleet.actions(NOW) == {}
    assert fleet.index.next_due(NOW) == NOW + SETTLED
    (need,) = fleet.needs(NOW + SETTLED)
    assert (need.action, need.automatic) == ("preserve", True)


def test_the_cap_is_spread_over_all_zones_of_the_pool_also_over_those_that_are_well() -> None:
    """S23: of two places one belongs to zone b, where nothing has failed."""
    fleet = Fleet(pool(2, zones=("a", "b")))
    for number, zone in ((1, "a"), (2, "a"), (3, "b")):
        fleet.node(number, zone=zone)
        fleet.machine(number, failed=zone == "a")
    assert fleet.actions(NOW + SETTLED) == {"n-2": "preserve"}, "the newest of zone a, and only one"


@pytest.mark.parametrize("edited", [LATER - timedelta(hours=5), LATER + timedelta(hours=5)])
def test_an_end_that_is_edited_on_a_quiet_machine_is_the_one_that_counts(edited: datetime) -> None:
    """S22: an operator writes another expiry onto the object itself."""
    fleet = Fleet()
    fleet.kept(1)
    assert fleet.actions() == {}
    fleet.kept(1, expiry=edited)
    assert fleet.actions(edited - timedelta(seconds=1)) == {}
    assert fleet.actions(edited) == {"n-1": "stop"}


@pytest.mark.parametrize(("value", "action"), [("false", "stop"), (None, "stop"), ("noww", None), ("when-failed", "stop")])
def test_a_changed_word_on_a_quiet_machine_is_heard(value: str | None, action: str | None) -> None:
    fleet = Fleet()
    fleet.kept(1)
    assert fleet.actions() == {}
    fleet.kept(1, word=value)
    assert fleet.actions() == ({"n-1": action} if action else {})


def test_a_quiet_machine_that_changes_all_the_time_is_remembered_once() -> None:
    """For 72 hours: what nobody decides by (an annotation of somebody's) must not cost memory with every change."""
    fleet = Fleet()
    fleet.kept(1)
    for turn in range(3000):
        fleet.machine(1, expiry=LATER, annotations=WRITTEN | {"turn": str(turn)})
        fleet.actions()
    assert len(fleet.index._quiet) == 1
    assert fleet.index.next_due(NOW) == LATER
    assert fleet.actions(LATER) == {"n-1": "stop"}


def test_a_wish_to_cut_off_a_quiet_machine_that_failed_is_heard_once() -> None:
    fleet = Fleet()
    fleet.machine(1, failed=True, expiry=LATER, annotations=WRITTEN)
    for words, heard in (
        ({}, {}),
        ({ISOLATE_ANNOTATION: "true"}, {"n-1": "none"}),
        ({ISOLATE_ANNOTATION: "true", ISOLATION_ANNOTATION: "asked"}, {}),
    ):
        fleet.told_by_node(1, drained=True, **{PRESERVE_ANNOTATION: "now"}, **words)
        assert fleet.actions() == heard


def test_a_lower_cap_releases_the_surplus_by_name() -> None:
    """S24: the earliest expiry."""
    fleet = Fleet(pool(1))
    for number in (1, 2):
        expiry = LATER + timedelta(hours=number)
        fleet.told_by_node(number, expiry=expiry, reason=BY_US, drained=True)
        fleet.machine(number, failed=True, expiry=expiry, annotations={PRESERVE_ANNOTATION: "auto-preserved"} | LAST)
    (need,) = fleet.needs(NOW + SETTLED)
    assert (need.victim, need.action, bool(need.released)) == ("n-1", "terminate", True)


def kept_by_the_cap(fleet: Fleet, *numbers: int, zone: str = "a", **changes: object) -> None:
    for number in numbers:
        expiry = LATER + timedelta(hours=number)
        words = {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_OURS: "true"}
        said = Condition(
            type=CONDITION, status="True", reason=BY_US, message=f"{DRAINED} Machine preserved until {expiry:%Y-%m-%dT%H:%M:%SZ}."
        )
        fleet.node(number, zone=zone, conditions=(said,), tainted=True, **words)
        annotations = {PRESERVE_ANNOTATION: "auto-preserved"} | LAST
        fleet.machine(number, failed=True, expiry=expiry, annotations=annotations, **changes)


def test_a_machine_that_joins_the_pool_releases_none_that_is_kept() -> None:
    """S21, S24: a new Machine has no Node yet, so no zone: it is a part of its own, and the shares of the others are smaller."""
    fleet = Fleet(pool(3, zones=("a", "b")))
    kept_by_the_cap(fleet, 1, 2, zone="a")
    kept_by_the_cap(fleet, 3, zone="b")
    assert fleet.actions(NOW + SETTLED) == {}
    fleet.machine(4, node_name="", phase="Pending")
    assert fleet.actions(NOW + SETTLED) == {}
    fleet.node(4, zone="c")
    fleet.machine(4)
    assert fleet.actions(NOW + SETTLED) == {}


def test_a_new_machine_set_releases_none_that_is_kept() -> None:
    """S21, S24: it is a part of the pool from its first moment, and healthy."""
    fleet = Fleet(pool(3))
    kept_by_the_cap(fleet, 1, 2, 3)
    for name in ("set", "new"):
        fleet.index.put_deployment(f"MachineSet/shoot/{name}", DeploymentPool(name=name, namespace="shoot"))
    assert fleet.actions(NOW + SETTLED) == {}
    fleet.node(4)
    fleet.machine(4, controller="MachineSet/new")
    assert fleet.actions(NOW + SETTLED) == {}


def test_of_the_whole_surplus_the_part_that_has_more_than_its_share_gives_back_first() -> None:
    """S24: one too many in all. Zone a has more than its share: its earliest goes, though zone b has an earlier."""
    fleet = Fleet(pool(2, zones=("a", "b")))
    kept_by_the_cap(fleet, 1, zone="b")
    kept_by_the_cap(fleet, 2, 3, zone="a")
    assert fleet.actions(NOW + SETTLED) == {"n-2": "terminate"}


def test_a_part_that_has_more_than_its_share_leaves_less_for_the_others() -> None:
    """S23: zone b may keep one by its share, but the whole cap is used up."""
    fleet = Fleet(pool(2, zones=("a", "b")))
    kept_by_the_cap(fleet, 1, 2, zone="a")
    fleet.node(3, zone="b")
    fleet.machine(3, failed=True)
    assert "n-3" not in fleet.actions(NOW + SETTLED)


def test_a_kept_machine_that_loses_its_node_is_not_released_by_another_cap() -> None:
    """S21, S24: the pool selects by labels of Nodes; without its Node the machine seems to be of a MachineSet that keeps none."""
    fleet = Fleet(pool(1, selector=Selector(requirements=(Requirement(key=ZONE_LABEL, operator=Operator.IN, values=("a",)),))))
    fleet.index.put_deployment("MachineSet/shoot/set", DeploymentPool(name="set", namespace="shoot"))
    kept_by_the_cap(fleet, 1)
    assert fleet.actions(NOW + SETTLED) == {}
    fleet.index.remove_node("n-1")
    assert "terminate" not in fleet.actions(NOW + SETTLED).values()


@pytest.mark.parametrize("above", [False, True])
def test_s24_failed_machines_of_a_set_that_can_t_be_read_are_neither_kept_nor_repaired(above: bool) -> None:
    """Its cap would count as 0, and what it keeps would be repaired, which a live look then refuses. The others go on."""
    fleet = Fleet(pool(2))
    unread = DeploymentPool(name="set", namespace="shoot", problem="it can't be read")
    if above:
        fleet.index.put_deployment("MachineSet/shoot/set", DeploymentPool(name="set", namespace="shoot"), "MachineDeployment/d")
        fleet.index.put_deployment("MachineDeployment/shoot/d", replace(unread, name="d"))
    else:
        fleet.index.put_deployment("MachineSet/shoot/set", unread)
    for number in (1, 2, 3):
        fleet.node(number)
    fleet.machine(1, failed=True)
    fleet.machine(2)
    fleet.machine(3, failed=True, controller="MachineSet/other")
    failing = {"n-2": None}
    fleet.said = {"n-2": "a check calls it unhealthy"}
    fleet.index.needs(NOW + SETTLED, lambda name: fleet.said.get(name, ""), fleet.said, failing=failing)
    assert fleet.index.exempt.unsettled == {"n-1", "n-2"}
    assert fleet.actions(NOW + SETTLED) == {"n-3": "preserve"}
    fleet.index.put_deployment("MachineSet/shoot/set", DeploymentPool(name="set", namespace="shoot"))
    fleet.actions(NOW + SETTLED)
    assert not fleet.index.exempt.unsettled


def test_an_unreadable_policy_gives_no_machine_up_and_keeps_none() -> None:
    fleet = Fleet()
    fleet.index.put_pool("workers", None, "PreservationPolicy/workers: spec.selector: expected a selector")
    fleet.node(1)
    fleet.machine(1, failed=True)
    assert fleet.actions(NOW + SETTLED) == {}


def test_a_kept_machine_that_others_delete_is_reported_until_its_hold_is_over() -> None:
    """S26; also where machine-controller-manager itself has taken the expiry away: then the Node still says that it is kept."""
    fleet = Fleet()
    fleet.kept(1)
    assert fleet.actions() == {}
    for expiry in (LATER, None):
        fleet.machine(1, deleting=True, expiry=expiry)
        (need,) = fleet.needs()
        assert (need.victim, need.action, need.going) == ("n-1", "none", True)
    said = Condition(type=CONDITION, status="False", reason=STOPPED, message="the machine is being deleted")
    fleet.node(1, conditions=(said,), **{PRESERVE_ANNOTATION: "now", SCALE_DOWN_DISABLED_OURS: "true"})
    assert fleet.actions() == {}
    fleet.index.remove_machine("shoot/m-1")
    fleet.index.remove_node("n-1")
    assert fleet.actions() == {}, "it was told in time"


def test_what_was_kept_until_it_was_gone_is_told_for_a_while() -> None:
    """Its episode would else wait for the expiry of a machine that is nobody's any more. A Node that is left is cleaned up."""
    fleet = Fleet()
    for number in (1, 2):
        fleet.kept(number)
    fleet.node(3, **{PRESERVE_ANNOTATION: "now", EXPIRY_ANNOTATION: "2026-11-24T12:00:00Z"})
    fleet.needs()
    for number in (1, 2):
        fleet.index.remove_machine(f"shoot/m-{number}")
    for number in (1, 3):
        fleet.index.remove_node(f"n-{number}")
    found = {need.victim: need for need in fleet.needs()}
    assert {victim: need.going for victim, need in found.items()} == {"n-1": True, "n-2": False, "n-3": True}
    assert found["n-1"].machine is not None
    assert found["n-3"].machine is None
    assert fleet.index.next_due(NOW) == NOW + REPORT_GONE_FOR
    assert set(fleet.actions(NOW + REPORT_GONE_FOR - timedelta(seconds=1))) == {"n-1", "n-2", "n-3"}
    assert set(fleet.actions(NOW + REPORT_GONE_FOR)) == {"n-2"}


def test_so_many_that_are_gone_at_once_are_told_one_report_after_another() -> None:
    """Hibernation takes a whole pool; and nobody who has to be acted for waits behind them."""
    fleet = Fleet()
    for number in range(2 * MAXIMUM_PRESERVATIONS):
        fleet.kept(number)
    fleet.needs()
    for number in range(2 * MAXIMUM_PRESERVATIONS):
        fleet.index.remove_machine(f"shoot/m-{number}")
        fleet.index.remove_node(f"n-{number}")
    fleet.node(999, **{PRESERVE_ANNOTATION: "now"})
    told = {need.victim for need in fleet.needs()}
    assert (len(told), "n-999" in told) == (MAXIMUM_PRESERVATIONS, True)
    told |= {need.victim for need in fleet.needs(NOW + REPORT_GONE_FOR)}
    told |= {need.victim for need in fleet.needs(NOW + 2 * REPORT_GONE_FOR)}
    assert len(told) == 2 * MAXIMUM_PRESERVATIONS + 1
    assert fleet.actions(NOW + 3 * REPORT_GONE_FOR).keys() == {"n-999"}


def test_a_thousand_that_are_kept_are_in_no_report() -> None:
    """No list grows with them, and none of them is looked at again."""
    fleet = Fleet()
    for number in range(1_000):
        fleet.kept(number)
    assert fleet.actions() == {}
    looked_at = []
    fleet.index.needs(NOW, lambda node: looked_at.append(node) or "")
    assert looked_at == []
    found, more = fleet.index.needs(LATER, lambda _: "")
    assert (len(found), more) == (MAXIMUM_PRESERVATIONS, 1_000 - MAXIMUM_PRESERVATIONS)
