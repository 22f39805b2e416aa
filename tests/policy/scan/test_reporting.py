"""What a report shows of a ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from activities.cluster.objects.check_statuses import allowed
from policy.checks.fence_policies import FencePolicies, StormRule
from policy.checks.health_check import HealthCheck
from policy.checks.inventory import ControlPlane
from policy.checks.verdict import Health
from policy.episode.gate import HOLD_ANNOTATION
from policy.episode.messages import SeenNode
from policy.episode.modes import ClusterModes, ModeRule
from policy.objects.machines import PAUSED_ANNOTATION, REMEDIATE_ANNOTATION, SKIP_ANNOTATION
from policy.objects.nodes import EXCLUDE_LABEL, MARK_ANNOTATION, ZONE_LABEL, Condition, NodeView
from policy.objects.remediations import RemediationObject
from policy.objects.scopes import GroupCount
from policy.preservation.machine_snapshot import CONDITION
from policy.remediation.ladder import RESTORING
from policy.remediation.strategy_rules import Action
from policy.scan.admission import admit
from policy.scan.evaluation import evaluate
from policy.scan.ledger import Ledger
from policy.scan.permit_rules import against_requests
from policy.scan.report_builder import NOT_COVERED, Urgency, stamp_of, urgency
from policy.scan.scan_report import (
    MAXIMUM_CANDIDATES,
    MAXIMUM_ROWS,
    MAXIMUM_SEEN,
    OBSERVED,
    AtRisk,
    ClusterLease,
    NodeAtRisk,
    NodeStanding,
    TargetRow,
    ViewState,
)
from policy.values.mode import MODE_KEY, Mode
from policy.values.object_refs import Dialect, ObjectRef
from starter.wording import may_act
from tests.policy.builders import (
    NOW,
    PROD,
    WORKER,
    a_candidate,
    a_check,
    a_check_report,
    a_machine,
    a_node,
    a_report,
    ago,
    check_ref,
    cluster_api,
    ledger_of,
    mark_text,
    openshift,
)

FOREIGN = {"apiVersion": "snr.medik8s.io/v1alpha1", "kind": "SelfNodeRemediationTemplate", "name": "a", "namespace": "b"}


ACTS = frozenset(Action) - {Action.NONE, Action.SKIP_NO_OWNER} - RESTORING


def fleet(number: int, **fields: object) -> list[NodeView]:
    return [a_node(f"healthy-{index:03}", **fields) for index in range(number)]  # type: ignore[arg-type]


def sick_ledger(*sick: NodeView, healthy: int = 10) -> Ledger:
    return ledger_of(a_check(), *sick, *fleet(healthy))


def test_a_candidate_says_everything_admission_needs() -> None:
    sick = a_node("a", "Unknown", 60, labels={WORKER: "", ZONE_LABEL: "z1", "node-role.kubernetes.io/control-plane": ""})
    (candidate,) = sick_ledger(sick).report_parts(NOW).candidates
    assert (candidate.node, candidate.uid, candidate.provider_id) == ("a", "uid-of-a", "sim:///a")
    assert (candidate.check, candidate.since, candidate.reason) == (check_ref(), ago(60), "ReadyUnknown")
    assert (candidate.zone, candidate.control_plane, candidate.ready, candidate.refused) == ("z1", True, False, "")
    assert candidate.template is not None
    assert candidate.template.name == "bmc"


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([a_node("a", labels={})], "it selects none of the Nodes here"),
        ([a_node("a", labels={}), a_node("b")], ""),
        ([a_node("a", labels={WORKER: "", EXCLUDE_LABEL: "true"})], ""),
        ([], ""),
    ],
    ids=["nobody", "somebody", "somebody who is excluded", "before any Node is known"],
)
def test_a_check_that_selects_no_node_says_so(nodes: list[NodeView], said: str) -> None:
    """As `evaluate` says it; an empty pool is legal, so that it may act all the same."""
    ledger = ledger_of(a_check(), *nodes)
    (seen,) = ledger.report_parts(NOW).checks
    (evaluated,) = evaluate(ledger.known(NOW))
    assert seen.no_targets == said
    assert (said in seen.warnings, said in evaluated.warnings, seen.allowed) == (bool(said), bool(said), True)


@pytest.mark.parametrize(
    ("check", "ailing"),
    [
        (openshift("pool", maxUnhealthy="100%"), {"dialect": Dialect.OPENSHIFT, "phase": "Failed", "last_updated": ago(30)}),
        (openshift("pool", maxUnhealthy="100%"), {"dialect": Dialect.OPENSHIFT, "node_name": "n-gone", "last_updated": ago(30)}),
        (cluster_api("prod", limit="100%"), {"annotations": {REMEDIATE_ANNOTATION: ""}, "last_updated": None}),
        (cluster_api("prod", limit="100%"), {"failure": "no such image", "last_updated": None, "created": ago(30)}),
    ],
    ids=["failed", "its Node is gone", "marked", "failed for good"],
)
def test_an_undated_failure_waits_no_longer_than_one_after_it(check: HealthCheck, ailing: dict[str, object]) -> None:
    """One permit at a time, and one newly sick node at each look: the Machine's turn comes before theirs."""
    ledger = ledger_of(a_check(), check, a_node("n1"), *fleet(40), PROD, a_machine(**ailing))  # type: ignore[arg-type]
    served = list[str]()
    for look in range(5):
        moment = NOW + timedelta(minutes=look)
        fell_silent = moment - timedelta(seconds=15)
        ledger.put_node(a_node(f"sick-{look}", "Unknown", (NOW - fell_silent).total_seconds()), moment)
        parts = ledger.report_parts(moment)
        (admitted,) = admit(a_report(*parts.candidates, checks=parts.checks), (), cap=1, now=moment).admitted
        served.append(admitted.machine or admitted.node)
        assert admitted.dated is (not admitted.machine), "what stands for a beginning is told from one"
        ledger.put_node(a_node(admitted.node), moment)
        if admitted.machine:
            break
    assert served == ["machines/m1"]


def test_what_cannot_be_acted_on_never_crowds_out_what_can() -> None:
    excluded = [
        a_node(f"excluded-{index:03}", "Unknown", 999, labels={WORKER: "", EXCLUDE_LABEL: "true"})
        for index in range(MAXIMUM_CANDIDATES)
    ]
    in_hand = [a_node(f"in-hand-{index:03}", "Unknown", 500) for index in range(MAXIMUM_CANDIDATES)]
    ledger = ledger_of(a_check(), a_node("newest", "Unknown", 11), *excluded, *in_hand, *fleet(300))
    parts = ledger.report_parts(NOW, watching=[node.name for node in in_hand])
    assert parts.candidates[0].node == "newest"
    assert parts.candidates[1].node == "in-hand-000"
    assert parts.candidates_left_out == MAXIMUM_CANDIDATES + 1


@pytest.mark.parametrize("check", [openshift("all"), cluster_api("all")], ids=["openshift", "cluster-api"])
def test_a_failed_machine_has_no_node_fenced_that_only_bears_its_old_name(check: HealthCheck) -> None:
    """S9, S39: server-1 has failed, and its host name went to server-2. The old Machine is left alone, and it is said why: its
    deletion would drain the Node of that name."""
    old = a_machine("old", check.dialect, provider_id="sim:///server-1", phase="Failed", failure="it burnt")
    new = a_machine("new", check.dialect, provider_id="sim:///n1")
    (candidate,) = ledger_of(check, PROD, a_node("n1"), old, new).report_parts(NOW).candidates
    assert candidate.node == "machine/machines/old"
    assert "the name is another machine's by now" in candidate.refused


def test_an_excluded_node_is_listed_with_the_reason() -> None:
    (candidate,) = (
        sick_ledger(a_node("a", "Unknown", 60, labels={WORKER: "", EXCLUDE_LABEL: "true"})).report_parts(NOW).candidates
    )
    assert EXCLUDE_LABEL in candidate.refused


QUICK = openshift("quick", unhealthyConditions=[{"type": "Ready", "status": "Unknown", "timeout": "5s"}], maxUnhealthy="100%")


@pytest.mark.parametrize(
    ("owner", "workers", "by", "refused"),
    [
        ("MachineSet/set", a_check(), QUICK.ref.key, ""),
        ("", a_check(), check_ref().key, ""),
        ("", replace(a_check(), escalation="no-such-strategy"), QUICK.ref.key, "nothing would replace it"),
        ("", a_check(remediationTemplate=FOREIGN), check_ref().key, "that this check did not create"),
    ],
    ids=["can be done", "can't be done", "neither can be done", "the other's is in other hands"],
)
def test_a_check_that_can_have_nothing_done_leaves_the_remedy_to_one_that_can(
    owner: str, workers: HealthCheck, by: str, refused: str
) -> None:
    """`skip-no-owner` of the check whose deadline expired first must not keep the node from ever being fenced."""
    machine = a_machine("m1", Dialect.OPENSHIFT, node_name="node-1", controller=owner)
    foreign = RemediationObject(
        ref=ObjectRef(api_version=FOREIGN["apiVersion"], kind="SelfNodeRemediation", name="node-1", namespace="b"),
        target="node-1",
    )
    ledger = ledger_of(QUICK, workers, a_node("node-1", "Unknown", 60), *fleet(3), machine, foreign)
    (candidate,) = ledger.report_parts(NOW).candidates
    assert (candidate.check.key, refused in candidate.refused, bool(candidate.refused)) == (by, True, bool(refused))
    named = [check.check.ref.key for check in evaluate(ledger.known(NOW)) for each in check.verdicts if each.action in ACTS]
    assert named == ([] if refused else [by])


def test_of_two_machines_of_one_node_the_one_that_can_be_replaced_is() -> None:
    """A candidate without a ladder would be fenced."""
    machines = [a_machine(name, Dialect.OPENSHIFT, controller=owner) for name, owner in (("m1", ""), ("m2", "MachineSet/set"))]
    ledger = ledger_of(QUICK, a_node("n1", "Unknown", 60, provider_id=""), *machines)
    (candidate,) = ledger.report_parts(NOW).candidates
    assert (candidate.refused, candidate.machine, [each.name for each in candidate.ladder]) == (
        "",
        "machines/m2",
        ["delete-machine"],
    )


def test_of_two_checks_the_one_whose_deadline_expired_first_gives_the_remedy() -> None:
    """Whoever carries it out: what another controller begins is not to be begun twice."""
    slow = [{"type": "Ready", "status": "Unknown", "duration": "30s"}]

    def remedied_by(foreign: dict[str, object], ours: dict[str, object]) -> tuple[str, bool]:
        found = (a_check("a-foreign", remediationTemplate=FOREIGN, **foreign), a_check("ours", **ours))
        (candidate,) = ledger_of(*found, a_node("a", "Unknown", 60), *fleet(4)).report_parts(NOW).candidates
        return candidate.check.name, bool(candidate.ladder)

    assert remedied_by({}, {"unhealthyConditions": slow}) == ("a-foreign", True)
    assert remedied_by({"unhealthyConditions": slow}, {}) == ("ours", False)
    assert remedied_by({}, {}) == ("a-foreign", True), "ties go by name"


def test_one_open_circuit_breaker_holds_the_node_back_and_the_closed_one_says_why() -> None:
    """S17: overlapping checks, the strictest counts."""
    paused = a_check("zone-b", selector={"matchLabels": {"zone": "b"}}, pauseRequests=["maintenance"])
    held = a_node("held", "Unknown", 60, labels={WORKER: "", "zone": "b"})
    ledger = ledger_of(a_check(), paused, held, a_node("free", "Unknown", 60), *fleet(10))
    parts = ledger.report_parts(NOW)
    assert [candidate.node for candidate in parts.candidates] == ["free"]
    workers = next(report for report in parts.checks if report.ref.name == "workers")
    assert workers.allowed
    assert "1 unhealthy node waits because NodeHealthCheck/zone-b selects them too" in workers.message


@pytest.mark.parametrize("annotation", [SKIP_ANNOTATION, PAUSED_ANNOTATION])
@pytest.mark.parametrize("checks", [(), (cluster_api("prod", limit="100%"),)], ids=["alone", "beside a MachineHealthCheck"])
def test_a_machine_that_people_keep_out_keeps_its_node_out_of_every_check(
    annotation: str, checks: tuple[HealthCheck, ...]
) -> None:
    """S20: the annotation is Cluster API's, the person's wish is not."""
    ledger = ledger_of(a_check(), *checks, a_node("n1", "Unknown", 60), *fleet(4), PROD, a_machine())
    assert [each.refused for each in ledger.report_parts(NOW).candidates if each.check.kind == "NodeHealthCheck"] == [""]
    version = ledger.version
    ledger.put_machine(a_machine(annotations={annotation: ""}), NOW)
    (candidate,) = ledger.report_parts(NOW).candidates
    assert (candidate.node, annotation in candidate.refused) == ("n1", True)
    assert ledger.version != version, "else nobody would look"


def test_who_is_in_no_total_does_not_make_a_check_mixed() -> None:
    member = a_machine("m2", node_name="n2", control_plane=True)
    ledger = ledger_of(cluster_api("prod"), a_node("n1"), a_node("n2"), PROD, a_machine(), member)
    assert ledger.report_parts(NOW).checks[0].mixed_control_plane
    ledger.put_machine(a_machine("m2", node_name="n2", control_plane=True, annotations={SKIP_ANNOTATION: ""}), NOW)
    assert not ledger.report_parts(NOW).checks[0].mixed_control_plane


def test_marked_and_watched_nodes_are_observed_and_others_are_not() -> None:
    ledger = ledger_of(a_check(), a_node("marked", mark="i-1"), a_node("watched", "Unknown", 5), a_node("other"))
    found = {seen.node: seen for seen in ledger.report_parts(NOW, watching=["watched", "gone"]).seen_nodes}
    assert set(found) == {"marked", "watched", "gone"}
    assert (found["marked"].incident, found["marked"].ready, found["marked"].boot_id) == ("i-1", True, "boot-1-of-marked")
    assert (found["watched"].unhealthy, found["watched"].soon, found["watched"].ready_since) == (False, True, ago(5))
    assert not found["gone"].present


@pytest.mark.parametrize(
    "value",
    [
        "scribble",
        "x" * 200_000,
        "[" * 200_000,
        "9" * 200_000,
        '{"incident": 1, "note": "' + "x" * 200_000 + '"}',
        mark_text("i" * 200_000),
    ],
    ids=["short", "text", "brackets", "number", "object", "incident"],
)
def test_a_mark_that_cannot_be_read_is_a_problem_and_leaves_a_report_small(value: str) -> None:
    """It is no absence. An annotation may be 256 KB, and fifty of them in one report would be more than a history takes."""
    (found,) = ledger_of(a_node("a", annotations={MARK_ANNOTATION: value})).report_parts(NOW).seen_nodes
    assert found.incident == ""
    assert f"{value[:20]}" in found.mark_problem
    assert len(found.mark_problem) < 600


def test_of_more_nodes_in_hand_than_a_report_shows_none_is_passed_over() -> None:
    """Their episodes hear of their nodes from the scanner alone; by name the last ones would never."""
    names = [f"n-{index:03}" for index in range(2 * MAXIMUM_SEEN)]
    ledger, told = ledger_of(*map(a_node, names)), dict[str, str]()
    for _ in range(2):
        shown = ledger.report_parts(NOW, watching=names, notified=told.items()).seen_nodes
        assert len(shown) == MAXIMUM_SEEN
        told |= {seen.node: stamp_of(seen) for seen in shown}
    assert told.keys() == set(names)
    ledger.put_node(a_node(names[-1], "False", 5), NOW)
    assert ledger.report_parts(NOW, watching=names, notified=told.items()).seen_nodes[0].node == names[-1]


def test_members_of_the_control_plane_are_always_shown() -> None:
    """S15: every look at one of them asks what is seen of it."""
    names = [f"n-{index:03}" for index in range(MAXIMUM_SEEN)]
    member = a_node("z", labels={"node-role.kubernetes.io/control-plane": ""})
    ledger = ledger_of(member, *map(a_node, names))
    (seen,) = ledger.report_parts(NOW, watching=["z"]).seen_nodes
    found = ledger.report_parts(NOW, watching=[*names, "z"], notified=[("z", stamp_of(seen))]).seen_nodes
    assert found[0] == seen


def test_kept_machines_hide_no_other_mark() -> None:
    """S14: of a scanner that starts without state, marks are one of two ways to know who acts on what."""
    condition = Condition(type=CONDITION, status="True", since=ago(60))
    kept = [a_node(f"a-{index:03}", mark="i", conditions=(condition,)) for index in range(MAXIMUM_SEEN + 50)]
    found = ledger_of(*kept, a_node("z", "Unknown", 60, mark="of-a-fencing")).report_parts(NOW).seen_nodes
    assert len(found) == MAXIMUM_SEEN
    assert (found[0].node, found[0].incident) == ("z", "of-a-fencing")


def test_rows_show_the_sickest_first_then_those_in_hand_then_the_rest() -> None:
    ledger = ledger_of(
        a_check(),
        a_node("z-sick", "Unknown", 60),
        a_node("y-sicker", "Unknown", 90),
        a_node("x-soon", "False", 5),
        a_node("w-excluded", "Unknown", 60, labels={WORKER: "", EXCLUDE_LABEL: "true"}),
        a_node("v-in-hand", mark="i"),
        a_node("b-uncovered", labels={}),
        a_node("a-healthy", unschedulable=True, annotations={HOLD_ANNOTATION: "by ada"}),
    )
    rows = ledger.report_parts(NOW).rows
    assert [row.node for row in rows] == ["y-sicker", "z-sick", "x-soon", "w-excluded", "v-in-hand", "a-healthy", "b-uncovered"]
    assert [row.health for row in rows[:4]] == [Health.UNHEALTHY, Health.UNHEALTHY, Health.SOON, Health.SKIPPED]
    assert (rows[2].due, rows[2].check, rows[2].ready) == (ago(-6), "NodeHealthCheck/workers", "False")
    assert (rows[5].health, rows[5].schedulable) == (Health.HEALTHY, False)
    assert [row.held for row in rows if row.held] == [f"the annotation {HOLD_ANNOTATION} holds the node: by ada"]
    assert (rows[6].health, rows[6].reason) == (Health.SKIPPED, NOT_COVERED)


def test_rows_are_bounded_and_stay_in_order_as_nodes_come_and_go() -> None:
    ledger = sick_ledger(healthy=MAXIMUM_ROWS + 20)
    assert len(ledger.report_parts(NOW).rows) == MAXIMUM_ROWS
    ledger.remove_node("healthy-000")
    ledger.put_node(a_node("healthy-0005"), NOW)
    assert [row.node for row in ledger.report_parts(NOW).rows[:5]] == [
        "healthy-0005",
        "healthy-001",
        "healthy-002",
        "healthy-003",
        "healthy-004",
    ]


def test_a_due_node_under_an_open_circuit_breaker_is_watched_although_it_is_no_candidate() -> None:
    sick = [a_node(name, "Unknown", 60, labels={WORKER: ""}) for name in ("a", "b")]
    parts = ledger_of(a_check(), *sick).report_parts(NOW, spells=("gone", "a"))
    assert not parts.candidates
    assert [(each.node, each.standing, each.code) for each in parts.watched] == [
        ("a", NodeStanding.DUE, "CircuitBreakerOpen"),
        ("gone", NodeStanding.GONE, ""),
        ("b", NodeStanding.DUE, "CircuitBreakerOpen"),
    ]
    assert (parts.watched[0].since, parts.watched[0].cause, parts.watched[0].steps) == (
        ago(60),
        "ReadyUnknown",
        ("FencingTemplate/nodewarden/bmc",),
    )


def test_a_watched_node_says_how_it_stands_and_a_candidate_is_none() -> None:
    nodes = [a_node("sick", "Unknown", 60), a_node("soon", "Unknown", 0.5), a_node("stray", labels={})]
    parts = ledger_of(a_check(), *nodes, *fleet(10)).report_parts(NOW, spells=("sick", "soon", "stray", "healthy-001"))
    assert [each.node for each in parts.candidates] == ["sick"]
    assert {each.node: each.standing for each in parts.watched} == {
        "soon": NodeStanding.UNCLEAR,
        "stray": NodeStanding.UNCOVERED,
        "healthy-001": NodeStanding.WELL,
    }


def test_what_a_spell_watches_changes_no_decision() -> None:
    """S14, S17: neither the order of the candidates nor what an episode sees depends on it."""
    ledger = sick_ledger(a_node("a", "Unknown", 60), a_node("b", "Unknown", 90))
    plain, watching = ledger.report_parts(NOW), ledger.report_parts(NOW, spells=("a", "b", "healthy-001"))
    assert replace(watching, watched=()) == plain
    assert [each.node for each in watching.watched] == ["healthy-001"]


def test_rules_that_cover_no_node_are_found() -> None:
    """A misspelt label arms nothing, and takes nothing back."""
    ledger = ledger_of(a_check(), a_node("node-1"))
    rules = [
        ModeRule(mode=Mode.OBSERVE, by="ada", reason="r", at=NOW, **scope)  # type: ignore[arg-type]
        for scope in ({"selector": "rack=r7"}, {"nodes": ("node-2",)}, {"nodes": ("node-2", "node-1")}, {})
    ]
    ledger.put_modes(ClusterModes(rules=tuple(rules)))
    assert ledger.known(NOW).idle_rules() == tuple(rules[:2])


def test_the_rule_for_all_nodes_is_not_counted_among_its_exceptions() -> None:
    """S44: what people are told first."""
    alone, armed = (
        tuple(ModeRule(mode=mode, by="ada", reason="r", at=NOW, selector=selector) for mode, selector in rules)
        for rules in ([(Mode.OBSERVE, "")], [(Mode.OBSERVE, ""), (Mode.REPAIR, "rack=r1")])
    )
    assert ClusterModes(rules=alone).limited.startswith("programs only observe nodes, and repair none: set for all nodes")
    assert ClusterModes(rules=armed).limited.startswith("programs only observe nodes, and repair none: set for all nodes by ada ")
    many = tuple(ModeRule(mode=Mode.REPAIR, by="ada", reason="r", at=NOW, nodes=(f"node-{each}",)) for each in range(5))
    said = ClusterModes(setting=Mode.OBSERVE, rules=many).limited
    assert (
        ": the setting scan.mode is observe; node-0, node-1, node-2 and 2 more: by a rule of their own; `nodewarden mode`" in said
    )


def test_s52_nodes_of_a_rack_that_is_armed_against_a_rule_for_all_are_counted_in_their_own_mode() -> None:
    """Also where the rule of the rack and the setting say the same, and the rule for all says another mode."""
    nodes = [replace(each, labels={**each.labels, "rack": f"r{n}"}) for n, each in enumerate(map(a_node, ("n-0", "n-1", "n-2")))]
    for before in (True, False):
        ledger = ledger_of(a_check(), *(nodes if before else ()))
        everywhere, rack = (
            ModeRule(mode=mode, by="ada", reason="r", at=NOW, selector=selector)
            for mode, selector in ((Mode.OBSERVE, ""), (Mode.REPAIR, "rack=r1"))
        )
        ledger.put_modes(ClusterModes(setting=Mode.REPAIR, rules=(everywhere, rack)))
        for node in () if before else nodes:
            ledger.put_node(node, NOW)
        (check,) = ledger.report_parts(NOW, ()).checks
        assert (check.modes, check.allowed) == (((Mode.OBSERVE, 2), (Mode.REPAIR, 1)), True)
        assert [ledger.mode_for_pool(each.name, False) for each in nodes] == [Mode.OBSERVE, Mode.REPAIR, Mode.OBSERVE]
        assert may_act(check).startswith("only on 1 of 3, the mode of the others is observe; may act: ")


def test_s52_a_check_of_nothing_but_observed_nodes_is_not_allowed_and_stops_no_person() -> None:
    """The same answer in its status, in JSON, on the page and in the table; its circuit breaker is closed all the same."""
    ledger = ledger_of(a_check(), a_node("node-1"), a_node("node-2"), a_node("node-3"))
    ledger.put_modes(ClusterModes(setting=Mode.OBSERVE))
    (check,) = ledger.report_parts(NOW, ()).checks
    assert (check.allowed, check.closed, check.reason) == (False, True, OBSERVED)
    assert may_act(check).startswith("only observed: the mode of all its targets is observe; ")
    assert against_requests(check) == ""
    condition = allowed(check)
    assert (condition.status, condition.reason, condition.message) == ("False", OBSERVED, check.message)
    assert admit(a_report(a_candidate("node-1"), checks=(check,)), (), cap=1, now=NOW).admitted


def test_s52_a_pool_goes_as_far_as_the_checks_allow_that_call_its_machine_failed() -> None:
    """Not as far as one that covers it and calls it well, nor where its controller calls it failed."""
    observed, short, sick = (
        replace(a_check("a"), mode="observe"),
        replace(a_check("b"), mode="drain"),
        a_node("n", "Unknown", 3600),
    )
    assert ledger_of(observed, sick).mode_for_pool("n", True) is Mode.OBSERVE
    assert ledger_of(observed, sick).mode_for_pool("n", False) is Mode.REPAIR
    assert ledger_of(observed, a_node("n")).mode_for_pool("n", True) is Mode.REPAIR
    assert ledger_of(observed, short, sick).mode_for_pool("n", True) is Mode.DRAIN
    assert ledger_of(observed, short, a_node("n", "Unknown", 1)).mode_for_pool("n", True) is Mode.DRAIN, "its time runs anew"


def test_a_rule_that_names_a_machine_without_a_node_counts_for_it() -> None:
    ledger = ledger_of(PROD, a_machine("m1", node_name=""), a_machine("m2", node_name="gone"))
    names = [each.victim_name for each in ledger.known(NOW).machines.values()]
    rules = [ModeRule(mode=Mode.REPAIR, by="ada", reason="r", at=NOW, nodes=(name,)) for name in (*names, "machine/x/m3")]
    ledger.put_modes(ClusterModes(rules=tuple(rules)))
    assert names == [f"machine/{a_machine().namespace}/m1", "gone"]
    assert ledger.known(NOW).idle_rules() == (rules[2],)


def test_nodes_in_each_mode_are_counted_and_a_held_one_names_its_mode() -> None:
    """S52: what a check would have repaired is compared with how long it only observed."""
    nodes = []
    for number in range(4):
        labels = {"rack": f"r{number % 2}"} | ({MODE_KEY: "observe"} if number == 2 else {})
        node = a_node(f"node-{number}", "Unknown" if number == 1 else "True")
        nodes.append(replace(node, labels={**node.labels, **labels}))
    ledger = ledger_of(a_check(), *nodes)
    rule = ModeRule(mode=Mode.OBSERVE, by="ada", reason="r", at=NOW, selector="rack=r1")
    (check,) = ledger.report_parts(NOW, ()).checks
    assert check.modes == ((Mode.OBSERVE, 1), (Mode.REPAIR, 3))
    ledger.put_modes(ClusterModes(setting=Mode.DRAIN, rules=(rule,)))
    parts = ledger.report_parts(NOW, ())
    (check,) = parts.checks
    assert check.modes == ((Mode.DRAIN, 1), (Mode.OBSERVE, 3))
    (candidate,) = parts.candidates
    assert (candidate.mode, candidate.vetoed_by) == (Mode.OBSERVE, "mode")
    ledger.put_node(replace(nodes[1], labels={**nodes[1].labels, "rack": "r0"}), NOW)  # its labels move it out of the rule
    ledger.remove_node("node-2")
    (check,) = ledger.report_parts(NOW, ()).checks
    assert check.modes == ((Mode.DRAIN, 2), (Mode.OBSERVE, 1))


# What the scanner is told at once, and what may wait: all that somebody is admitted by, and nothing that we have written.

CHECKED, SPARED = a_check_report(), a_check_report("others", healthy=12, unhealthy=0, remaining=2, at_once=2)


def row(node: str) -> TargetRow:
    """As people read of it."""
    return TargetRow(node=node, zone="z", ready="Unknown", health=Health.UNHEALTHY)


def at_risk(node: str) -> AtRisk:
    """The one node whose volumes are attached and that is not off."""
    return AtRisk(nodes=1, nearest=(NodeAtRisk(node=node, since=NOW, volumes=1),))


MINE = SeenNode(node="mine", uid="uid-mine", unhealthy=True, boot_id="b1")
STRAY = SeenNode(node="stray", uid="uid-stray", incident="terminated")
TOLD = a_report(
    a_candidate("mine"),
    a_candidate("waiting", healthy_under=(check_ref("others").key,)),
    checks=(SPARED, CHECKED),
    seen_nodes=(MINE, STRAY),
    policies=FencePolicies(storms=(StormRule(name="storm", percentage=40),)),
    groups=(GroupCount(group="cluster", nodes=10, unresponsive=2),),
)


def changed(**changes: object) -> Urgency:
    """Of a report that differs so from the one that was told; `mine` is in the hand of an episode."""
    return urgency(TOLD, replace(TOLD, digest="seen", **changes), ("mine", "held-off"), ("mine",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"candidates": (*TOLD.candidates, a_candidate("new"))}, id="a deadline has come"),
        pytest.param({"candidates": TOLD.candidates[:1]}, id="one that waits is well again"),
        pytest.param({"candidates": (TOLD.candidates[0], a_candidate("waiting", refused="held"))}, id="one may not be acted on"),
        pytest.param(
            {"checks": (SPARED, replace(CHECKED, allowed=False, reason="Threshold"))}, id="a circuit breaker has opened"
        ),
        pytest.param({"checks": (SPARED, replace(CHECKED, paused="by hand"))}, id="a check is paused"),
        pytest.param({"checks": (SPARED,)}, id="a check is gone"),
        pytest.param({"checks": (replace(SPARED, at_once=3), CHECKED)}, id="more may be remediated at once"),
        pytest.param({"checks": (replace(SPARED, remaining=1), CHECKED)}, id="fewer can be spared of whom one waits"),
        pytest.param({"view": ViewState(synced=True, stale="silent")}, id="the view is stale"),
        pytest.param({"lease": ClusterLease(held=False, holder="others")}, id="the Lease is lost"),
        pytest.param({"control_plane": ControlPlane(members=3, ready=2)}, id="a member of the control plane is down"),
        pytest.param({"policies": FencePolicies(switched_off="by hand")}, id="fencing is switched off"),
        pytest.param({"groups": (GroupCount(group="cluster", nodes=10, unresponsive=4),)}, id="a storm"),
    ],
)
def test_a_change_that_admits_a_node_is_sent_at_once(changes: dict[str, object]) -> None:
    """S15, S17, S18, S38."""
    assert changed(**changes) is Urgency.NOW


@pytest.mark.parametrize(
    "changes",
    [
        {"ready": True},
        {"unhealthy": False, "soon": True},
        {"boot_id": "b2"},
        {"uid": "another"},
        {"present": False},
        {"preserved": True},
        {"asked_by": ("uid-of-a-request",)},
        {"others": "machine-1 Deleting"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_becomes_of_a_node_in_hand_is_told_soon(changes: dict[str, object]) -> None:
    """Its episode waits for it."""
    assert changed(seen_nodes=(replace(MINE, **changes), STRAY)) is Urgency.SOON  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"seen_nodes": (MINE,)}, id="a mark is gone"),
        pytest.param({"seen_nodes": (replace(MINE, groups=("rack/7",)), STRAY)}, id="a node in hand counts in another group"),
        pytest.param({"seen_nodes": (MINE, STRAY, replace(MINE, node="held-off", incident="left"))}, id="a mark is left behind"),
        pytest.param({"rows": (row("other"),)}, id="a node is ill"),
        pytest.param({"at_risk": at_risk("other")}, id="data is at risk of which no episode takes care"),
        pytest.param({"checks": (SPARED, replace(CHECKED, healthy=7, recovering=1, remaining=2))}, id="it counts as recovering"),
        pytest.param({"checks": (SPARED, replace(CHECKED, soon=1))}, id="a timeout has begun"),
        pytest.param({"groups": (GroupCount(group="cluster", nodes=10, unresponsive=3),)}, id="no storm yet"),
        pytest.param({"inventory": 11}, id="a node more"),
        pytest.param({"seen_nodes": (replace(MINE, checks=(SPARED.ref.key,)), STRAY)}, id="a check with a limit counts it, too"),
    ],
)
def test_a_change_that_decides_nothing_waits(changes: dict[str, object]) -> None:
    assert changed(**changes) is Urgency.LATER


@pytest.mark.parametrize("changes", [{"rows": (row("mine"),)}, {"at_risk": at_risk("mine")}], ids=["its row", "its data at risk"])
def test_what_people_read_of_a_node_in_hand_is_rarely_told(changes: dict[str, object]) -> None:
    """Its episode tells them more."""
    assert changed(**changes) is Urgency.RARELY


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"seen_nodes": (replace(MINE, incident="ours"), STRAY)}, id="our mark"),
        pytest.param({"seen_nodes": (replace(MINE, checks=(CHECKED.ref.key,)), STRAY)}, id="a check without a limit counts it"),
        pytest.param({"candidates": TOLD.candidates[1:]}, id="a node in hand is no candidate any more"),
        pytest.param({"rows": (replace(row("well"), health=Health.HEALTHY),)}, id="a row of a healthy node"),
    ],
)
def test_what_an_episode_writes_is_told_with_something_else(changes: dict[str, object]) -> None:
    assert changed(**changes) is Urgency.NONE


def test_a_node_that_has_just_been_taken_in_hand_is_no_news() -> None:
    """The scanner did that itself, and its next request for a report says so."""
    waiting = replace(MINE, node="waiting")
    seen = replace(TOLD, digest="seen", candidates=TOLD.candidates[:1], seen_nodes=(MINE, STRAY, waiting))
    in_hand = ("mine", "waiting")
    assert urgency(TOLD, seen, in_hand, in_hand) is Urgency.NONE
    for more in ({"unhealthy": False}, {"preserved": True}, {"asked_by": ("uid",)}, {"others": "machine-1"}):
        found = replace(seen, seen_nodes=(MINE, STRAY, replace(waiting, **more)))  # type: ignore[arg-type]
        assert urgency(TOLD, found, in_hand, in_hand) is Urgency.LATER, more
    for more in ({"ready": True, "unhealthy": False}, {"present": False}):
        found = replace(seen, seen_nodes=(MINE, STRAY, replace(waiting, **more)))  # type: ignore[arg-type]
        assert urgency(TOLD, found, in_hand, in_hand) is Urgency.SOON, "since it was taken in hand nothing else had to be told"


def test_a_node_that_is_given_back_is_told_of_by_the_mark_it_still_has() -> None:
    """S35: what the scanner knows of it was seen before its end."""
    assert urgency(TOLD, replace(TOLD, digest="seen", seen_nodes=(STRAY,)), (), ()) is Urgency.NONE
    marked = replace(TOLD, seen_nodes=(replace(MINE, incident="ended"), STRAY))
    assert urgency(marked, replace(marked, digest="seen", seen_nodes=(STRAY,)), (), ()) is Urgency.LATER


def test_how_many_can_be_spared_matters_to_those_who_wait_only() -> None:
    """S14: else our own marks, each of which spends one, would be told at once."""
    alone = replace(TOLD, candidates=TOLD.candidates[:1])
    spent = replace(alone, checks=(replace(SPARED, remaining=0), CHECKED))
    assert urgency(alone, spent, ("mine",), ("mine",)) is Urgency.LATER
    waits = replace(spent, candidates=TOLD.candidates)
    assert urgency(spent, waits, ("mine",), ("mine",)) is Urgency.NOW, (
        "whoever comes then is told of with the numbers of that moment"
    )
