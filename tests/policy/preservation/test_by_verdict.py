"""What only a health check calls failed: one decision keeps it or lets fencing at it, never both and never neither.

Ledger and index are asked as a view asks them; what a preservation writes and what a fencing does is carried out on the
snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from policy.checks.fence_policies import OFF
from policy.episode.fencing_requests import FencingRequest
from policy.episode.gate import FENCING_LABEL
from policy.objects.machines import MachineView
from policy.objects.nodes import EXCLUDE_LABEL, MARK_ANNOTATION, PRESERVE_ANNOTATION, ZONE_LABEL, Condition, NodeView
from policy.preservation.keep_or_release import Automatic, decide, effects
from policy.preservation.machine_snapshot import BY_US, CONDITION, EXPIRY_ANNOTATION, Held
from policy.preservation.preservation_index import PreservationIndex, PreservationNeed
from policy.preservation.requests import Pool
from policy.scan.admission import admit
from policy.scan.ledger import Ledger
from policy.scan.scan_report import ReportParts
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.selectors import Selector
from policy.values.times import RESOLUTION
from tests.policy.builders import (
    NOW,
    PROD,
    TEMPLATE,
    WORKER,
    a_check,
    a_machine,
    a_node,
    a_report,
    carried_out,
    confirmed,
    mark_text,
    openshift,
)

LIMIT = timedelta(seconds=10) + RESOLUTION
"""When a node is called unhealthy by the check of these tests."""
SETTLE = timedelta(seconds=5)
TIMEOUT = timedelta(hours=72)


@dataclass(frozen=True)
class Scan:
    """What one report says: who is begun with, who is let at, who is named as kept, and who is neither yet."""

    needs: dict[str, PreservationNeed]
    parts: ReportParts

    @property
    def keeps(self) -> set[str]:
        return {name for name, need in self.needs.items() if need.action == "preserve"}

    @property
    def admitted(self) -> set[str]:
        """By the scanner's own rule, with room for everybody."""
        report = a_report(*self.parts.candidates, checks=self.parts.checks)
        return {each.node for each in admit(report, (), cap=100, now=NOW).admitted}

    @property
    def refused(self) -> dict[str, str]:
        return {each.node: each.refused for each in self.parts.candidates if each.refused}


class Fleet:
    """Nodes without Machines under one NodeHealthCheck, and one pool."""

    def __init__(self, cap: int, *, zones: tuple[str, ...] = (), min_healthy: int | str = 0) -> None:
        self.now = NOW
        self.ledger, self.index = Ledger(), PreservationIndex()
        self.nodes: dict[str, NodeView] = {}
        self.pool = Pool(name="workers", selector=Selector(), cap=cap, timeout=TIMEOUT, settle=SETTLE, zones=zones)
        self.index.put_pool("workers", self.pool)
        self.ledger.put_check(a_check(minHealthy=min_healthy))

    def put(self, node: NodeView) -> None:
        self.nodes[node.name] = node
        self.ledger.put_node(node, self.now)
        self.index.put_node(node)

    def add(self, name: str, zone: str = "a", **fields: Any) -> None:
        self.put(a_node(name, labels={WORKER: "", ZONE_LABEL: zone}, **fields))

    def turn(self, name: str, ready: str) -> None:
        """Its kubelet says another thing from now on."""
        node = self.nodes[name]
        others = tuple(each for each in node.conditions if each.type != "Ready")
        self.put(replace(node, conditions=(*others, Condition(type="Ready", status=ready, since=self.now))))

    def annotate(self, name: str, key: str, value: str | None) -> None:
        rest = {each: said for each, said in self.nodes[name].annotations.items() if each != key}
        annotations = rest if value is None else {**rest, key: value}
        labels = {**self.nodes[name].labels, **confirmed(annotations)}
        self.put(replace(self.nodes[name], annotations=annotations, labels=labels))

    def set_cap(self, cap: int) -> None:
        self.pool = replace(self.pool, cap=cap)
        self.index.put_pool("workers", self.pool)

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def scan(self, *, watching: Iterable[str] = (), begun: Iterable[str] = ()) -> Scan:
        """As `ClusterView.report` does."""
        failing = self.ledger.failing(self.now, tuple(watching)) if self.index.keeps_failed else None
        sick = self.ledger.sickness_of, self.ledger.sick_nodes
        needs, _ = self.index.needs(self.now, *sick, failing=failing, begun=tuple(begun))
        parts = self.ledger.report_parts(self.now, tuple(watching), self.index.exempt)
        return Scan({need.victim: need for need in needs}, parts)

    def held(self, name: str) -> Held:
        node = self.nodes[name]
        expiry = node.annotations.get(EXPIRY_ANNOTATION)
        moment = datetime.fromisoformat(expiry) if expiry else None
        return Held(key=f"node/{name}", node_name=name, node=node, expiry=moment)

    def look(self, need: PreservationNeed, *, automatic: bool) -> bool:
        """What an episode that looks now writes, the drain included; whether the node is kept afterwards."""
        held = self.held(need.victim)
        if need.unhealthy:
            held = replace(held, failed=need.unhealthy)
        word = Automatic.SELECTED if automatic else Automatic.RELEASED if need.released else Automatic.NOTHING
        decision = decide(held, now=self.now, timeout=self.pool.timeout, automatic=word)
        found = effects(decision, drained=True)
        after = carried_out(held, found)
        assert after.node is not None
        annotations = {key: each for key, each in after.node.annotations.items() if key != EXPIRY_ANNOTATION}
        if after.expiry is not None:
            annotations[EXPIRY_ANNOTATION] = after.expiry.isoformat()
        self.put(replace(after.node, annotations=annotations))
        return after.expiry is not None

    def settle(self) -> Scan:
        """Scans and looks until nobody has anything to write."""
        for _ in range(6):
            found = self.scan()
            if not found.needs:
                return found
            for need in found.needs.values():
                self.look(need, automatic=need.automatic)
        raise AssertionError("there is always something left to write")


def failed(fleet: Fleet, *names: str) -> None:
    """They fail now, and are called unhealthy and have settled after this."""
    for name in names:
        fleet.turn(name, "Unknown")
    fleet.wait((LIMIT + SETTLE).total_seconds())


def fleet_of(count: int, cap: int, **options: Any) -> Fleet:
    fleet = Fleet(cap, **options)
    for number in range(count):
        fleet.add(f"n-{number}")
    return fleet


def test_an_object_of_another_system_that_asks_for_a_node_waits_as_well() -> None:
    """S21: until the failure has settled nothing is said of it, then it is told that the node is kept."""
    fleet = fleet_of(3, cap=1)
    ref = ObjectRef(api_version="fence-agents-remediation.medik8s.io/v1alpha1", kind="FenceAgentsRemediation", name="n-1")
    fleet.ledger.remove_check(a_check().ref.key)
    fleet.ledger.put_check(a_check(minHealthy=0, remediationTemplate={**TEMPLATE, "kind": "FenceAgentsRemediationTemplate"}))
    fleet.ledger.put_request(FencingRequest(ref=ref, uid="u", node="n-1", created=NOW, requester="workers"))
    fleet.turn("n-1", "Unknown")
    fleet.wait(LIMIT.total_seconds())
    assert fleet.scan().parts.candidates == ()
    fleet.wait(SETTLE.total_seconds())
    found = fleet.scan()
    assert (found.keeps, found.admitted) == ({"n-1"}, set())
    assert {each.check.kind: "preserved" in each.refused for each in found.parts.candidates}["FenceAgentsRemediation"]


@pytest.mark.parametrize("when", ["before it fails", "while it settles", "once it is chosen", "once it is kept"])
def test_the_value_false_has_it_fenced(when: str) -> None:
    """S26, at every interleaving; on a node without a Machine nothing but fencing comes of it."""
    fleet = fleet_of(3, cap=1)
    chosen: PreservationNeed | None = None
    if when == "before it fails":
        fleet.annotate("n-1", PRESERVE_ANNOTATION, "false")
    fleet.turn("n-1", "Unknown")
    fleet.wait(LIMIT.total_seconds())
    if when == "while it settles":
        fleet.annotate("n-1", PRESERVE_ANNOTATION, "false")
        assert fleet.scan().admitted == {"n-1"}, "nobody is to be heard any more"
    fleet.wait(SETTLE.total_seconds())
    if when == "once it is chosen":
        chosen = fleet.scan().needs["n-1"]
        fleet.annotate("n-1", PRESERVE_ANNOTATION, "false")
        assert not fleet.look(chosen, automatic=True), "the episode that was begun looks live"
    if when == "once it is kept":
        fleet.settle()
        fleet.annotate("n-1", PRESERVE_ANNOTATION, "false")
    found = fleet.settle()
    assert (found.keeps, found.admitted) == (set(), {"n-1"})
    assert EXPIRY_ANNOTATION not in fleet.nodes["n-1"].annotations


@pytest.mark.parametrize("value", ["now", "when-failed"])
def test_what_a_person_asked_for_is_kept_without_a_place_and_not_fenced(value: str) -> None:
    """S21, S23, S27: also while its failure settles."""
    fleet = fleet_of(4, cap=1)
    fleet.annotate("n-2", PRESERVE_ANNOTATION, value)
    fleet.turn("n-2", "Unknown")
    fleet.wait(LIMIT.total_seconds())
    found = fleet.scan()
    assert (found.keeps, found.admitted) == ({"n-2"}, set())
    fleet.settle()
    failed(fleet, "n-1")
    found = fleet.scan()
    assert (found.keeps, found.admitted) == ({"n-1"}, set())


def test_the_newest_failure_is_kept_first() -> None:
    """By the moment at which the check called it unhealthy, not by name, and not by the node's age."""
    fleet = fleet_of(4, cap=1)
    for name in ("n-1", "n-3", "n-2"):
        fleet.turn(name, "Unknown")
        fleet.wait(1)
    fleet.wait(30)
    found = fleet.scan()
    assert (found.keeps, found.admitted) == ({"n-2"}, {"n-1", "n-3"})


def test_a_need_that_was_not_carried_out_yet_is_no_news_every_second() -> None:
    fleet = fleet_of(3, cap=1)
    failed(fleet, "n-1")
    before = fleet.scan().needs
    fleet.wait(2)
    assert fleet.scan().needs == before


def test_the_place_of_one_that_is_released_early_is_free_for_another() -> None:
    """Use case 3 of the proposal; S23, S25: and it does not go back to the one that was released."""
    fleet = fleet_of(4, cap=1)
    failed(fleet, "n-1")
    fleet.settle()
    failed(fleet, "n-2")
    assert fleet.scan().keeps == set(), "there is no place yet"
    fleet.annotate("n-1", PRESERVE_ANNOTATION, "false")
    found = fleet.settle()
    assert fleet.nodes["n-2"].annotations[PRESERVE_ANNOTATION] == "auto-preserved"
    assert found.admitted == {"n-1"}


def test_one_that_gets_well_is_let_go_and_a_new_failure_is_kept_anew() -> None:
    """S25, S28."""
    fleet = fleet_of(3, cap=1)
    before = dict(fleet.nodes["n-1"].annotations)
    failed(fleet, "n-1")
    fleet.settle()
    fleet.turn("n-1", "True")
    found = fleet.settle()
    assert found.admitted == set()
    assert fleet.nodes["n-1"].annotations == before
    failed(fleet, "n-1")
    assert fleet.scan().keeps == {"n-1"}


@pytest.mark.parametrize("asked", ["by its pool", "by a person"])
@pytest.mark.parametrize("how", ["the check is deleted", "its time begins anew"])
def test_no_node_is_made_well_by_a_check_that_says_nothing_any_more(how: str, asked: str) -> None:
    """S22, S25: it would be kept a second time for one failure, and for longer."""
    fleet = fleet_of(3, cap=1)
    if asked == "by a person":
        fleet.annotate("n-1", PRESERVE_ANNOTATION, "when-failed")
    failed(fleet, "n-1")
    fleet.settle()
    expiry = fleet.nodes["n-1"].annotations[EXPIRY_ANNOTATION]
    if how == "the check is deleted":
        fleet.ledger.remove_check(a_check().ref.key)
    else:
        fleet.turn("n-1", "False")
    fleet.settle()
    assert fleet.nodes["n-1"].annotations[EXPIRY_ANNOTATION] == expiry


def test_in_a_storm_no_machine_is_kept_since_none_is_acted_on() -> None:
    """S17: keeping drains a node; under an open circuit breaker no new episode begins."""
    fleet = fleet_of(4, cap=4, min_healthy=3)
    failed(fleet, "n-1", "n-2")
    found = fleet.scan()
    assert (found.keeps, found.admitted) == (set(), set())
    assert fleet.index.next_due(fleet.now) is None
    fleet.turn("n-2", "True")
    assert fleet.scan().keeps == {"n-1"}
    fleet.ledger.put_check(a_check("second", pauseRequests=["an upgrade"]))
    assert fleet.scan().keeps == set(), "one open circuit breaker is enough"


@pytest.mark.parametrize("label", [{EXCLUDE_LABEL: "true"}, {FENCING_LABEL: OFF}])
def test_what_people_keep_out_of_remediation_is_not_kept_by_a_pool(label: dict[str, str]) -> None:
    fleet = fleet_of(3, cap=1)
    fleet.put(replace(fleet.nodes["n-1"], labels={WORKER: "", **label}))
    failed(fleet, "n-1")
    found = fleet.scan()
    assert (found.keeps, found.admitted) == (set(), set())


@pytest.mark.parametrize("sign", ["its mark", "its permit"])
def test_what_an_episode_holds_takes_no_place(sign: str) -> None:
    """One that was beyond the cap and is being fenced stays fenced when a place becomes free."""
    fleet = fleet_of(4, cap=1)
    watching = [] if sign == "its mark" else ["n-1"]
    if sign == "its mark":
        fleet.annotate("n-1", MARK_ANNOTATION, mark_text("abc"))
    failed(fleet, "n-1")
    assert fleet.scan(watching=watching).keeps == set()
    failed(fleet, "n-2")
    assert fleet.scan(watching=watching).keeps == {"n-2"}


def test_a_node_that_is_kept_with_a_machine_that_we_do_not_see_takes_a_place() -> None:
    """S23: the Node says by its condition that it is kept, and until when."""
    fleet = fleet_of(4, cap=1)
    said = Condition(type=CONDITION, status="True", reason=BY_US, message="Machine preserved until 2026-03-04T12:00:00Z.")
    node = fleet.nodes["n-1"]
    ours = {"cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm": "true"}
    fleet.put(replace(node, conditions=(*node.conditions, said), annotations=ours))
    failed(fleet, "n-1", "n-2")
    found = fleet.scan()
    assert (found.keeps, found.admitted) == (set(), {"n-2"})


def test_a_machine_that_only_its_health_check_calls_failed_is_kept_as_a_machine() -> None:
    """Of OpenShift and Cluster API; also one whose Node never came, which stays powered so that people see why."""
    fleet = Fleet(2)
    fleet.ledger.put_cluster(PROD, NOW)
    fleet.ledger.put_check(openshift("machines", maxUnhealthy="100%"))
    for name, node in (("m1", "n-1"), ("m2", "")):
        view: MachineView = a_machine(name, Dialect.OPENSHIFT, node_name=node, phase="Running")
        fleet.ledger.put_machine(view, NOW)
        ref = ObjectRef(api_version="machine.openshift.io/v1beta1", kind="Machine", name=name, namespace=view.namespace)
        fleet.index.put_machine(ref, view, NOW)
    fleet.put(a_node("n-1", "Unknown", 60, labels={}))
    found = fleet.scan()
    assert {(victim, need.machine.name if need.machine else "") for victim, need in found.needs.items()} == {
        ("n-1", "m1"),
        ("machine/machines/m2", "m2"),
    }
    assert found.admitted == set()


Step = tuple[str, int, Any]
NODES = 4


class History(Fleet):
    """Scans interleave with everything else. fenced: who is in a fencing; begun: who was told to be kept."""

    def __init__(self, cap: int) -> None:
        super().__init__(cap, zones=("a", "b"))
        for number in range(NODES):
            self.add(f"n-{number}", "ab"[number % 2])
        self.fenced: set[str] = set()
        self.told: dict[str, PreservationNeed] = {}
        self.expiries: dict[str, str] = {}

    def step(self, step: Step) -> None:
        what, number, value = step
        name = f"n-{number}"
        if what == "turn":
            self.turn(name, value)
        elif what == "annotate":
            self.annotate(name, PRESERVE_ANNOTATION, value)
        elif what == "cap":
            self.set_cap(value)
        elif what == "wait":
            self.wait(value)
        elif what == "scan":
            self.act()
        elif what == "look" and name in self.told:
            self.write(self.told[name])
        elif what == "fenced" and name in self.fenced:
            # It comes back; marks are gone with the episode.
            self.fenced.discard(name)
            self.annotate(name, MARK_ANNOTATION, None)
            self.turn(name, "True")
        self.check()

    def act(self) -> Scan:
        """One scan of the scanner: preservations first, then permits; who is told is named to the next scan."""
        found = self.scan(watching=self.fenced, begun=self.told)
        self.told = found.needs
        for name in found.admitted - self.fenced:
            held = self.held(name)
            assert name not in found.needs, "S21: one decision"
            assert held.expiry is None, "S21"
            self.fenced.add(name)
            self.annotate(name, MARK_ANNOTATION, mark_text(name))
        for name in self.nodes.keys() - self.fenced:
            verdict = self.ledger.sickness_of(name)
            settled = name not in self.index.exempt.unsettled
            if verdict and settled:
                assert name in self.index.exempt.kept or name in found.admitted, "neither kept nor fenced"
        return found

    def write(self, need: PreservationNeed) -> None:
        if need.victim in self.fenced:
            return  # its workflow id is held: nothing is begun
        before = self.held(need.victim)
        self.look(need, automatic=need.automatic)
        after = self.held(need.victim)
        if before.expiry is not None and after.expiry is not None:
            assert before.expiry == after.expiry, "S22"
        if before.expiry is None and after.expiry is not None:
            asked = before.annotated.node
            assert asked != "false", "S26"
            assert not before.ended or asked in {"now", "when-failed"}, "S25"

    def quiesce(self) -> None:
        for _ in range(8):
            found = self.act()
            if not found.needs.keys() - self.fenced:
                break
            for need in found.needs.values():
                self.write(need)
        else:
            raise AssertionError("there is always something left to write")
        for zone, share in (("a", self.pool.cap - self.pool.cap // 2), ("b", self.pool.cap // 2)):
            kept = [
                name
                for name, node in self.nodes.items()
                if node.labels[ZONE_LABEL] == zone
                and EXPIRY_ANNOTATION in node.annotations
                and node.annotations.get(PRESERVE_ANNOTATION) == "auto-preserved"
            ]
            assert len(kept) <= share, "S23"

    def check(self) -> None:
        for name in self.fenced:
            assert EXPIRY_ANNOTATION not in self.nodes[name].annotations, "S13, S21: nobody is kept and fenced"


def steps(what: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(what), st.integers(0, NODES - 1), values)


STEPS = st.one_of(
    steps("turn", st.sampled_from(["Unknown", "Unknown", "False", "True"])),
    steps("turn", st.just("Unknown")),
    steps("annotate", st.sampled_from(["now", "when-failed", "false", None])),
    steps("cap", st.integers(0, 4)),
    steps("wait", st.sampled_from([1, 5, 16, 16, 80 * 3600])),
    steps("scan", st.none()),
    steps("scan", st.none()),
    steps("look", st.none()),
    steps("look", st.none()),
    steps("fenced", st.none()),
)


@settings(derandomize=True, max_examples=150, phases=[Phase.explicit, Phase.generate, Phase.shrink])
@example(cap=2, history=[("turn", 0, "Unknown"), ("wait", 0, 16), ("scan", 0, None), ("turn", 2, "Unknown"), ("wait", 0, 16)])
@example(cap=2, history=[("turn", 0, "Unknown"), ("wait", 0, 16), ("scan", 0, None), ("look", 0, None), ("cap", 0, 0)])
@given(cap=st.integers(0, 4), history=st.lists(STEPS, min_size=4, max_size=25))
def test_over_any_history_a_failed_node_is_kept_or_fenced(cap: int, history: list[Step]) -> None:
    """S21, S22, S23, S25, S26; and who is sick and settled is always one of the two."""
    fleet = History(cap)
    for step in history:
        fleet.step(step)
    fleet.quiesce()
