"""Random histories of one pool, driven through `survey` and `effects` as scanner and episodes drive them: S21 to S28 hold.

Users annotate either object and write their own annotations, machines fail and get well, the cap and the time-out change, time
passes, people extend, release and delete, and whoever writes the effects of a decision dies between any two of the writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from policy.objects.nodes import PRESERVE_ANNOTATION, READY, ZONE_LABEL, Condition, NodeView, Taint
from policy.preservation.keep_or_release import (
    Automatic,
    Effects,
    PreservationAction,
    PreservationDecision,
    decide,
    effects,
    keeps,
)
from policy.preservation.machine_snapshot import (
    BY_US,
    CONDITION,
    DEFAULT_PRIORITY,
    KEPT_AUTOMATICALLY,
    KEPT_ON_REQUEST,
    PRIORITY_ANNOTATION,
    PRIORITY_BEFORE,
    PRIORITY_OURS,
    SCALE_DOWN_BEFORE,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_OURS,
    Held,
    MachinePhase,
    priority_of,
)
from policy.preservation.pool_cap import Survey, survey
from policy.preservation.requests import KEEPING, LAST_APPLIED_ANNOTATION, Intent, Pool, requested
from policy.values.selectors import Selector
from tests.policy.builders import carried_out

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ZONES = ("z1", "z2")
MINE = Taint(key="mine", effect="NoSchedule")
OURS = {PRESERVE_ANNOTATION, SCALE_DOWN_DISABLED_OURS, SCALE_DOWN_BEFORE}
MEANING = {"now": Intent.NOW, "true": Intent.NOW, "when-failed": Intent.WHEN_FAILED, "auto-preserved": Intent.AUTOMATIC}
MACHINES = 4
DIES_NOWHERE = -1

Event = tuple[str, int, tuple[Any, ...], int]
RELEASED = "released by ada"

BUSY = settings(derandomize=True, max_examples=250, phases=[Phase.explicit, Phase.generate, Phase.shrink])


@dataclass
class Kept:
    """One machine, and what is known of it beside its objects. ended: that this failure has had its preservation (S25);
    word: that somebody has asked for it since. priority: what somebody has written there last, None where nobody has."""

    held: Held
    users: dict[str, str] = field(default_factory=dict)
    priority: str | None = None
    ended: bool = False
    word: bool = False


class Pools:
    """One pool and its machines, and all that happens to them."""

    def __init__(self, cap: int) -> None:
        self.now = NOW
        self.cap = cap
        self.timeout = timedelta(hours=72)
        self.born = 0
        self.machines = [self._fresh(index) for index in range(MACHINES)]

    def _fresh(self, index: int) -> Kept:
        self.born += 1
        name = f"m-{100 - self.born}"  # the younger one is the first by name: nothing works by accident
        users = {"team": f"team-{index}"}
        conditions = (Condition(type=READY, status="True"),)
        node = NodeView(name=name, uid=name, annotations=dict(users), taints=(MINE,), conditions=conditions)
        held = Held(
            key=f"shoot/{name}",
            machine=name,
            namespace="shoot",
            node_name=name,
            node=node,
            labels={ZONE_LABEL: ZONES[index % 2]},
            annotations={"team": "m"},
            created=NOW + timedelta(seconds=self.born),
            has_priority=True,
        )
        return Kept(held=held, users=users)

    def see(self, event: Event) -> None:
        what, index, words, writes = event
        getattr(self, what)(self.machines[index], *words)
        if writes == DIES_NOWHERE:
            self.settle()
        else:
            self.write(self.machines[index], self.decision(self.machines[index]), writes)

    def annotate(self, machine: Kept, where: str, value: str | None) -> None:
        held = machine.held
        if where == "node":
            machine.held = replace(held, node=replace(_node(held), annotations=_with(held.on_node, PRESERVE_ANNOTATION, value)))
        else:
            machine.held = replace(held, annotations=_with(held.annotations, PRESERVE_ANNOTATION, value))
        machine.word = machine.word or requested(machine.held.annotated).intent in KEEPING

    def scale(self, machine: Kept, value: str | None) -> None:
        """A user's own word to the autoscaler; while ours stands he is overruled, which is another test's."""
        if SCALE_DOWN_DISABLED_OURS in machine.held.on_node:
            return
        machine.users = _with(machine.users, SCALE_DOWN_DISABLED, value)
        annotations = _with(machine.held.on_node, SCALE_DOWN_DISABLED, value)
        machine.held = replace(machine.held, node=replace(_node(machine.held), annotations=annotations))

    def prioritize(self, machine: Kept, value: str | None) -> None:
        """Somebody's word to the MachineSet, also over ours."""
        machine.priority = value
        machine.held = replace(machine.held, annotations=_with(machine.held.annotations, PRIORITY_ANNOTATION, value))

    def fail(self, machine: Kept) -> None:
        if not machine.held.failed:
            machine.held = _ready(replace(machine.held, phase=MachinePhase.FAILED, failed="its phase is Failed"), "Unknown")

    def recover(self, machine: Kept) -> None:
        machine.held = _ready(replace(machine.held, phase=MachinePhase.RUNNING, failed=""), "True")
        machine.ended = machine.word = False

    def node_gets_well(self, machine: Kept) -> None:
        machine.held = _ready(machine.held, "True")

    def move(self, machine: Kept, zone: str) -> None:
        """It loses its zone, or is found in one that the pool does not name: a part of its own comes or goes."""
        machine.held = replace(machine.held, labels={**machine.held.labels, ZONE_LABEL: zone})

    def change_cap(self, _: Kept, cap: int) -> None:
        self.cap = cap

    def change_timeout(self, _: Kept, hours: int) -> None:
        self.timeout = timedelta(hours=hours)

    def wait(self, _: Kept, hours: int) -> None:
        self.now += timedelta(hours=hours)

    def extend(self, machine: Kept, hours: int) -> None:
        """The only thing that moves an expiry."""
        if machine.held.expiry is not None:
            machine.held = replace(machine.held, expiry=self.now + timedelta(hours=hours))

    def delete(self, machine: Kept) -> None:
        """By somebody else: it beats any preservation."""
        machine.held = replace(machine.held, deleting=True)

    def go(self, machine: Kept) -> None:
        """What is being deleted, or was given up, is replaced. S21: nothing that is kept."""
        held = machine.held
        decision = self.decision(machine)
        given_up = decision.action is PreservationAction.TERMINATE and effects(decision).nothing and not keeps(held, self.now)
        if given_up:
            assert held.expiry is None, "S21"
        if held.deleting or given_up:
            index = self.machines.index(machine)
            self.machines[index] = self._fresh(index)

    def release(self, machine: Kept, writes: int) -> None:
        """A person does; it is repeated until it is written."""
        for allowed in (writes, DIES_NOWHERE):
            if machine.held.expiry is not None and not machine.held.deleting:
                decision = decide(machine.held, now=self.now, timeout=self.timeout, released=RELEASED)
                self.write(machine, decision, allowed)

    def settle(self) -> None:
        """Until nothing is left to write, and then everything has to be as the rules say."""
        for _round in range(8):
            found = self.found()
            wanting = [decision for decision in found.decisions if not effects(decision).nothing]
            if not wanting:
                break
            for machine in self.machines:
                self.write(machine, self.decision(machine), DIES_NOWHERE)
        else:
            raise AssertionError("there is always something left to write")
        self.quiescent(found)

    def found(self) -> Survey:
        pool = Pool(name="a", selector=Selector(), cap=self.cap, timeout=self.timeout, zones=ZONES)
        found = survey([machine.held for machine in self.machines], [pool], now=self.now)
        self.check_choice(found)
        return found

    def decision(self, machine: Kept) -> PreservationDecision:
        return next(each for each in self.found().decisions if each.held.key == machine.held.key)

    def write(self, machine: Kept, decision: PreservationDecision, writes: int) -> None:
        drained: bool | None = None
        while True:
            found = effects(decision, drained=drained)
            if machine.held.deleting:
                begun = found.machine or found.node or found.taint is not None or found.expiry is not None or found.drain
                assert not begun, "an explicit deletion beats preservation (S26)"
            for piece in pieces(decision, found):
                if writes == 0:
                    return
                writes -= 1
                self.change(machine, decision, piece)
            if not found.drain:
                break
            drained = True
            decision = self.decision(machine)

    def change(self, machine: Kept, decision: PreservationDecision, piece: Effects) -> None:
        before = machine.held
        after = carried_out(before, piece)
        if before.expiry is not None and after.expiry is not None:
            assert before.expiry == after.expiry, "S22"
        if before.expiry is None and after.expiry is not None:
            assert not machine.ended or machine.word, "S25"
            assert after.failed or requested(after.annotated).intent is Intent.NOW
        if before.expiry is not None and after.expiry is None:
            assert self.may_end(before, decision), "S21"
            if before.failed:
                machine.ended, machine.word = True, False
        machine.held = after

    def may_end(self, before: Held, decision: PreservationDecision) -> bool:
        """Expiry, a word, the cap, or recovery from what it was kept for."""
        value = requested(decision.held.annotated).intent
        well = not before.failed and value is not Intent.NOW
        return (
            before.expired(self.now)
            or before.deleting
            or decision.reason == RELEASED
            or decision.automatic is Automatic.RELEASED
            or value is Intent.FALSE
            or (value is Intent.NONE and decision.held.condition_reason != BY_US)  # what the cap gave nobody's removal ends
            or well
        )

    def check_choice(self, found: Survey) -> None:
        """S23, S24, S26, S27 of every decision, quiescent or not."""
        zones = sorted(
            {*ZONES, *(machine.held.labels[ZONE_LABEL] for machine in self.machines)}, key=lambda zone: (not zone, zone)
        )
        room = self.cap
        taken, given_back = 0, 0
        for index, zone in enumerate(zones):
            mine = [machine.held for machine in self.machines if machine.held.labels[ZONE_LABEL] == zone]
            kept = [held for held in mine if automatic(held) and held.failed and not held.deleting and not held.expired(self.now)]
            share = self.cap // len(zones) + (index < self.cap % len(zones))
            decisions = [each for each in found.decisions if each.held.labels[ZONE_LABEL] == zone]
            released = [each.held for each in decisions if each.automatic is Automatic.RELEASED]
            selected = [each.held for each in decisions if each.automatic is Automatic.SELECTED]
            room, taken, given_back = room - len(kept), taken + len(selected), given_back + len(released)
            assert len(released) <= max(0, len(kept) - share), "S24: of parts that have more than their share"
            assert len(selected) <= max(0, share - len(kept)), "S23"
            assert all(automatic(held) for held in released), "S23: what was asked for is not released by the cap"
            stay = [held.expiry for held in kept if held not in released and held.expiry is not None]
            gone = [held.expiry for held in released if held.expiry is not None]
            assert not stay or not gone or max(gone) <= min(stay), "S24: the earliest expiry first"
            order = [held for held in found.order if held in kept and held.expiry is not None]
            going = [held for held in released if held.expiry is not None]
            assert sorted(held.key for held in order[: len(going)]) == sorted(held.key for held in going), "S24: the order agrees"
        assert given_back == max(0, -room), "S24: exactly what exceeds the whole cap"
        assert taken <= max(0, room), "S23"
        for decision in found.decisions:
            value = requested(decision.held.annotated).intent
            if value is Intent.FALSE:
                assert not decision.preserved, "S26"
            if value in {Intent.NOW, Intent.WHEN_FAILED} and decision.held.failed and decision.held.expiry is None:
                assert decision.action is not PreservationAction.TERMINATE or decision.held.deleting, "S27"

    def quiescent(self, found: Survey) -> None:
        counted = 0
        decisions = {decision.held.key: decision for decision in found.decisions}
        assert len(decisions) == len(self.machines)
        for machine in self.machines:
            decision = decisions[machine.held.key]
            held, node = machine.held, _node(machine.held)
            assert decision.held is held
            if held.deleting:
                continue
            counted += held.expiry is not None and automatic(held)
            assert not held.expired(self.now)
            assert held.tainted is (held.expiry is not None and bool(held.failed))
            condition = node.condition(CONDITION)
            assert (condition is not None and condition.status == "True") is (held.expiry is not None)
            assert MINE in node.taints, "S28"
            users = {key: value for key, value in node.annotations.items() if key not in OURS}
            if held.expiry is None:
                assert users == machine.users, "S28"
                assert OURS & set(node.annotations) <= {PRESERVE_ANNOTATION}, "S28"
            else:
                assert users == {**machine.users, SCALE_DOWN_DISABLED: "true"}
            assert held.annotations["team"] == "m", "S28"
            self.priority_is_right(machine)
            if decision.action is PreservationAction.TERMINATE:
                assert not keeps(held, self.now), "S27: the look before the deletion would give it back for ever"
            if held.expiry is None and not held.failed:
                left = set(held.annotations) - {"team", PRESERVE_ANNOTATION, LAST_APPLIED_ANNOTATION, PRIORITY_ANNOTATION}
                assert not left, "S28: of ours nothing stays on a machine that is well"
        assert counted <= self.cap, "S23"

    def priority_is_right(self, machine: Kept) -> None:
        """Last to go while it is kept, unless somebody wants it to go first; and else as others have written it."""
        there = machine.held.annotations
        stands, theirs = there.get(PRIORITY_ANNOTATION), priority_of(machine.priority)
        if machine.held.expiry is None:
            assert {PRIORITY_OURS, PRIORITY_BEFORE}.isdisjoint(there), "S28"
            assert stands == machine.priority, "S28"
        elif theirs < DEFAULT_PRIORITY:
            assert stands == machine.priority, "S26: who names the one to go is heard"
        else:
            assert priority_of(stands) >= int(KEPT_AUTOMATICALLY), "S21"
            assert stands in {machine.priority, KEPT_AUTOMATICALLY, KEPT_ON_REQUEST}


def automatic(held: Held) -> bool:
    """Kept by the cap: by what stands on the objects."""
    intent = requested(held.annotated).intent
    if intent is Intent.AUTOMATIC:
        return not held.ended or held.expiry is not None
    return intent is Intent.NONE and held.expiry is not None and held.condition_reason == BY_US


def pieces(decision: PreservationDecision, found: Effects) -> list[Effects]:
    """The single writes, in the order in which they are made: see `Effects`."""
    said = [Effects(condition=found.condition)] if found.condition is not None else []
    objects = [Effects(node=found.node, taint=found.taint)] if found.node or found.taint is not None else []
    objects += [Effects(machine=found.machine)] if found.machine else []
    expiry = [Effects(expiry=found.expiry, expiry_differs=True)] if found.expiry_differs else []
    return [*objects, *expiry, *said] if decision.preserved else [*said, *objects, *expiry]


def _node(held: Held) -> NodeView:
    assert held.node is not None
    return held.node


def _with(there: Any, key: str, value: str | None) -> dict[str, str]:
    rest = {name: each for name, each in there.items() if name != key}
    return rest if value is None else {**rest, key: value}


def _ready(held: Held, status: str) -> Held:
    node = _node(held)
    others = tuple(each for each in node.conditions if each.type != READY)
    return replace(held, node=replace(node, conditions=(*others, Condition(type=READY, status=status))))


VALUES = st.sampled_from([*MEANING, "false", "forever", "", None])
INDEX = st.integers(0, MACHINES - 1)
AFTERWARDS = st.sampled_from([DIES_NOWHERE, DIES_NOWHERE, DIES_NOWHERE, 0, 1, 2, 3, 4])
"""How many writes the machine's episode makes after each event before it dies; nowhere: all machines' episodes end their work."""


def events(what: str, *words: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    return st.tuples(st.just(what), INDEX, st.tuples(*words), AFTERWARDS)


ANNOTATED = events("annotate", st.sampled_from(["node", "machine"]), VALUES)
EXTENDED = events("extend", st.integers(1, 100))
EVENTS = st.one_of(
    ANNOTATED,
    ANNOTATED,
    ANNOTATED,
    events("fail"),
    events("fail"),
    events("fail"),
    events("recover"),
    events("node_gets_well"),
    events("scale", st.sampled_from(["true", "false", None])),
    events("prioritize", st.sampled_from(["1", "3", "7", "1500", "-1", "soon", "", None])),
    events("change_cap", st.integers(0, 4)),
    events("change_cap", st.integers(0, 4)),
    events("move", st.sampled_from(["z1", "z2", "z3", ""])),
    events("change_timeout", st.integers(1, 100)),
    events("wait", st.sampled_from([1, 30, 72])),
    EXTENDED,
    EXTENDED,
    events("release", st.integers(0, 4)),
    events("delete"),
    events("go"),
)


@BUSY
@example(cap=1, history=[("fail", 0, (), 2), ("change_cap", 0, (0,), 0)])  # dies before the expiry, and is not kept after all
@example(cap=4, history=[("fail", 0, (), -1), ("fail", 2, (), -1), ("extend", 0, (100,), -1), ("change_cap", 0, (2,), -1)])
@example(cap=1, history=[("fail", 0, (), -1), ("node_gets_well", 0, (), 0), ("wait", 0, (72,), -1)])  # still called Failed
@example(cap=4, history=[("fail", 0, (), -1), ("annotate", 0, ("machine", None), -1)])
@given(cap=st.integers(0, 4), history=st.lists(EVENTS, min_size=4, max_size=20))
def test_the_rules_hold_over_any_history(cap: int, history: list[Event]) -> None:
    """S21, S22, S23, S24, S25, S26, S27, S28."""
    pools = Pools(cap)
    for event in history:
        pools.see(event)
    pools.settle()


@settings(BUSY, max_examples=60)
@given(failures=st.lists(st.integers(0, 2), min_size=MACHINES, max_size=MACHINES), left=st.integers(0, MACHINES // 2 - 1))
def test_while_no_expiry_is_edited_the_older_ones_go_first(failures: list[int], left: int) -> None:
    """S24 says the earliest expiry, the proposal says the older machine: machines that fail in the order in which they were made
    go in the same order under both. failures: the hours between them."""
    pools = Pools(MACHINES)
    for machine, pause in zip(pools.machines, failures, strict=True):
        pools.wait(machine, pause)
        pools.fail(machine)
        pools.settle()
    pools.change_cap(pools.machines[0], 2 * left)
    released = {each.held.key for each in pools.found().decisions if each.automatic is Automatic.RELEASED}
    for zone in ZONES:
        mine = [machine.held for machine in pools.machines if machine.held.labels[ZONE_LABEL] == zone]
        older_first = sorted(mine, key=lambda held: held.created or NOW)
        assert {held.key for held in mine} & released == {held.key for held in older_first[: len(mine) - left]}
