"""Fence policies: which new fencing they forbid, and what people are told."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.checks.fence_policies import (
    Attempts,
    FencePolicies,
    PowerMoment,
    ScopeCap,
    StormRule,
    left_alone_until,
    still_renewed,
    stricter,
)
from policy.episode.permits import Permit, PermitDecision, PermitRequest, PermitState
from policy.objects.nodes import Condition, NodeEvent, NodeView
from policy.scan.admission import admit, answer_request, room_in_scopes
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import MAXIMUM_CANDIDATES, ScanReport
from tests.policy.builders import NOW, RACK, a_candidate, a_permit, a_report, ago, in_rack, racks, report_of, tolerant_ledger

STORM = StormRule(name="racks", percentage=40, scope=RACK)
ONE_PER_RACK = ScopeCap(scope=RACK, cap=1)


def scan(nodes: list[NodeView], policies: FencePolicies, *, watching: tuple[str, ...] = ()) -> ScanReport:
    """What the ledger would say of these nodes."""
    ledger = tolerant_ledger(nodes)
    ledger.follow(policies)
    return report_of(ledger.report_parts(NOW, watching))


def sick(nodes: list[NodeView], *names: str, age: float = 60) -> list[NodeView]:
    return [
        replace(node, conditions=(Condition(type="Ready", status="Unknown", since=ago(age)),)) if node.name in names else node
        for node in nodes
    ]


def answers(report: ScanReport, *permits: Permit, cap: int = 5, **more: Any) -> dict[str, str]:
    """Each candidate with the machine's word for its refusal, "" for those admitted."""
    admission = admit(report, permits, cap=cap, now=NOW, **more)
    return {each.node: "" for each in admission.admitted} | {each.node: each.reason for each in admission.refused}


def a_request(node: str) -> PermitRequest:
    return PermitRequest(node=node, workflow_id=f"episode/c/{node}", incident=f"by-hand-{node}")


def test_a_rack_at_the_percentage_is_left_alone_and_the_others_are_not() -> None:
    """S17: in the rack of five two are down, at 40%; the other rack has lost one."""
    report = scan(sick(racks(2, 5), "r0-0", "r0-1", "r1-0"), FencePolicies(storms=(STORM,)))
    admission = admit(report, (), cap=5, now=NOW)
    assert [each.node for each in admission.admitted] == ["r1-0"]
    assert {each.reason for each in admission.refused} == {AdmissionRefusal.SCOPE_STORM}
    assert admission.refused[0].message == (f"{RACK}=r0: 2 of 5 nodes, 40%, are unresponsive; the policy racks fences below 40%")


def test_nodes_that_no_check_covers_count_in_their_scope_too() -> None:
    """S17: what is unresponsive is unresponsive, whoever is to act on it."""
    bystanders = [replace(in_rack(f"db-{each}", "r0", "Unknown"), labels={RACK: "r0"}) for each in range(2)]
    report = scan(sick([*racks(1, 3), *bystanders], "r0-0"), FencePolicies(storms=(replace(STORM, percentage=60),)))
    assert answers(report) == {"r0-0": AdmissionRefusal.SCOPE_STORM}


def test_a_group_that_was_not_counted_may_be_in_a_storm() -> None:
    """S17: unknown is never go; so it is for a candidate whose scope nobody knows."""
    policies = FencePolicies(storms=(STORM,))
    for groups in ((f"{RACK}=r9",), ()):
        report = a_report(a_candidate("a", groups=groups), policies=policies)
        assert answers(report) == {"a": AdmissionRefusal.SCOPE_STORM}


def test_candidates_of_a_storm_take_no_places_on_the_list() -> None:
    """Two hundred nodes of one rack are down for longer than the one node elsewhere that may be fenced."""
    nodes = [in_rack(f"down-{each:03}", "r0", "Unknown", 900) for each in range(200)]
    nodes += [*racks(3, 100)[100:], in_rack("alone", "r2", "Unknown", 60)]
    report = scan(nodes, FencePolicies(storms=(STORM,)))
    assert len(report.candidates) == MAXIMUM_CANDIDATES
    assert [node for node, reason in answers(report).items() if not reason] == ["alone"]


def test_a_request_by_hand_is_refused_in_a_storm_of_its_rack_and_granted_elsewhere() -> None:
    """S17 holds for people, too, with the reason."""
    nodes = sick(racks(2, 5), "r0-0", "r0-1")
    report = scan(nodes, FencePolicies(storms=(STORM,)), watching=("r0-3", "r1-3"))
    refused = answer_request(report, (), a_request("r0-3"), cap=5)
    assert refused.decision is PermitDecision.REFUSED
    assert "the policy racks fences below 40%" in refused.reason
    assert answer_request(report, (), a_request("r1-3"), cap=5).decision is PermitDecision.GRANTED


def test_a_holder_of_an_unknown_rack_may_be_in_any() -> None:
    """S14: its line was taken in from an open episode, and its Node is gone."""
    report = scan(sick(racks(2, 4), "r0-0"), FencePolicies(caps=(ONE_PER_RACK,)))
    assert answers(report, a_permit("stranger")) == {"r0-0": AdmissionRefusal.SCOPE_CAP}
    assert not room_in_scopes(report, [a_permit("stranger")], "r0-0")
    assert room_in_scopes(report, [a_permit("stranger", PermitState.PARKED)], "r0-0")


def test_a_request_waits_for_its_rack() -> None:
    """S14."""
    report = scan(racks(2, 4), FencePolicies(caps=(ONE_PER_RACK,)), watching=("r0-0", "r1-0"))
    held = [a_permit("r0-3", groups=(f"{RACK}=r0",))]
    queued = answer_request(report, held, a_request("r0-0"), cap=5)
    assert (queued.decision, queued.reason) == (PermitDecision.QUEUED, f"1 of 1 permits of {RACK}=r0 are held: r0-3")
    assert answer_request(report, held, a_request("r1-0"), cap=5).decision is PermitDecision.GRANTED


def test_the_clusters_own_cap_goes_before_the_scanners() -> None:
    report = scan(sick(racks(1, 9), "r0-0", "r0-1", "r0-2"), FencePolicies(cap=2))
    assert sorted(answers(report, cap=1).values()) == ["", "", AdmissionRefusal.CAP]
    assert sorted(answers(report, cap=9).values()) == ["", "", AdmissionRefusal.CAP]


def test_a_rack_that_has_been_ill_for_longest_does_not_take_every_place_on_the_list() -> None:
    nodes = [in_rack(f"old-{each:03}", "r0", "Unknown", 900) for each in range(80)]
    nodes += [in_rack(f"new-{each}", f"r{each + 1}", "Unknown", 60) for each in range(4)]
    report = scan(nodes, FencePolicies(caps=(ONE_PER_RACK,)))
    admitted = {node for node, reason in answers(report).items() if not reason}
    assert admitted == {"old-000", "new-0", "new-1", "new-2", "new-3"}


def test_nothing_new_is_fenced_while_fencing_is_switched_off() -> None:
    """S20: for everybody, and for people."""
    report = scan(sick(racks(1, 9), "r0-0"), FencePolicies(switched_off=("fencing=off in it",)), watching=("r0-1",))
    admission = admit(report, (), cap=1, now=NOW)
    assert [(each.reason, each.message) for each in admission.refused] == [
        (AdmissionRefusal.SWITCHED_OFF, "fencing is switched off: fencing=off in it")
    ]
    assert answer_request(report, (), a_request("r0-1"), cap=1).decision is PermitDecision.REFUSED


def test_policies_that_cannot_be_used_stop_everything_new() -> None:
    """S17: a limit that people think they have is worth more than an episode."""
    report = scan(sick(racks(1, 4), "r0-0"), FencePolicies(problem="policies: there is no ConfigMap"), watching=("r0-1",))
    assert answers(report) == {"r0-0": AdmissionRefusal.BAD_POLICIES}
    assert answer_request(report, (), a_request("r0-1"), cap=1).decision is PermitDecision.REFUSED


def without_storage(nodes: list[NodeView], *names: str) -> list[NodeView]:
    lost = Condition(type="StorageUnreachable", status="True", since=ago(60))
    return [replace(node, conditions=(*node.conditions, lost)) if node.name in names else node for node in nodes]


def test_a_node_that_has_lost_its_storage_is_left_alone_where_the_policy_says_so() -> None:
    """The node-fencing proposal: "skip fencing if detected the host cannot connect to storage"."""
    nodes = without_storage(sick(racks(1, 4), "r0-0", "r0-1"), "r0-0")
    assert answers(scan(nodes, FencePolicies())) == {"r0-0": "", "r0-1": ""}
    report = scan(nodes, FencePolicies(skip_lost_storage=True))
    assert answers(report) == {"r0-0": AdmissionRefusal.HELD_OFF, "r0-1": ""}
    assert "its condition StorageUnreachable is True" in admit(report, (), cap=5, now=NOW).refused[0].message


def test_nothing_is_fenced_while_the_storage_itself_fails() -> None:
    nodes = sick(racks(1, 4), "r0-3")
    policies = FencePolicies(storage_percentage=50)
    assert answers(scan(without_storage(nodes, "r0-0"), policies)) == {"r0-3": ""}
    report = scan(without_storage(nodes, "r0-0", "r0-1"), policies)
    assert answers(report) == {"r0-3": AdmissionRefusal.STORAGE_DOWN}
    assert "2 of 4 nodes have lost their storage, at or above 50%" in admit(report, (), cap=5, now=NOW).refused[0].message


def test_a_node_that_was_just_switched_on_is_not_switched_off_again() -> None:
    policies = FencePolicies(quiet_time=timedelta(minutes=3))
    report = scan(sick(racks(1, 4), "r0-0", "r0-1"), policies)
    lately = [PowerMoment(node="r0-0", on=True, at=ago(60))]
    assert answers(report, power=lately) == {"r0-0": AdmissionRefusal.QUIET_TIME, "r0-1": ""}
    assert admit(report, (), cap=5, now=NOW, power=lately).refused[0].message.endswith("left alone for another 2m")
    assert answers(report, power=[replace(lately[0], at=ago(180))]) == {"r0-0": "", "r0-1": ""}
    assert answers(report, power=[replace(lately[0], on=False)]) == {"r0-0": "", "r0-1": ""}
    by_hand = answer_request(report, (), a_request("r0-0"), cap=5, now=NOW, power=lately)
    assert by_hand.decision is PermitDecision.REFUSED


def test_a_node_is_left_alone_after_so_many_failures_until_the_pause_is_over() -> None:
    """S19."""
    policies = FencePolicies(maximum_attempts=3, attempts_pause=timedelta(minutes=5))
    assert left_alone_until(Attempts(node="a", failed=2, at=NOW), policies) is None
    assert left_alone_until(Attempts(node="a", failed=3, at=NOW), policies) == NOW + timedelta(minutes=5)


def test_what_several_say_holds_as_the_strictest_says() -> None:
    one = FencePolicies(
        storms=(STORM,),
        cap=3,
        caps=(ScopeCap(scope="zone", cap=2),),
        quiet_time=timedelta(seconds=5),
        maximum_attempts=4,
        pods_per_minute=60,
    )
    other = FencePolicies(cap=2, caps=(ScopeCap(scope="zone", cap=3), ONE_PER_RACK), skip_lost_storage=True, problem="no")
    both = stricter(one, other)
    assert both == replace(stricter(other, one), caps=both.caps)
    caps = (ONE_PER_RACK, ScopeCap(scope="zone", cap=2))
    assert both == replace(one, cap=2, caps=caps, skip_lost_storage=True, problem="no")
    assert stricter(one, FencePolicies(pods_per_minute=90)).pods_per_minute == 60
    assert both.scopes == (RACK, "zone")


rack_names = ["r0", "r1", "r2", None]
nodes_of_any_kind = st.lists(
    st.builds(
        in_rack,
        st.sampled_from([f"n{number}" for number in range(12)]),
        st.sampled_from(rack_names),
        st.sampled_from(["True", "Unknown", "False"]),
        st.sampled_from([5.0, 60.0, 600.0]),
    ),
    max_size=12,
    unique_by=lambda node: node.name,
)
policies_of_any_kind = st.builds(
    FencePolicies,
    storms=st.lists(
        st.builds(StormRule, name=st.just("s"), percentage=st.integers(1, 100), scope=st.sampled_from(["cluster", RACK, "zone"])),
        max_size=2,
    ).map(tuple),
    cap=st.sampled_from([None, 1, 2, 4]),
    caps=st.lists(
        st.builds(ScopeCap, scope=st.sampled_from([RACK, "zone"]), cap=st.integers(1, 2)),
        max_size=2,
        unique_by=lambda cap: cap.scope,
    ).map(tuple),
    off_groups=st.sampled_from([(), (f"{RACK}=r0",)]),
)
holders_of_any_kind = st.lists(
    st.builds(
        a_permit,
        st.sampled_from([f"n{number}" for number in range(14)]),
        st.sampled_from(list(PermitState)),
        groups=st.sampled_from([(), (f"{RACK}=r0", "zone="), (f"{RACK}=r1", "zone=")]),
    ),
    max_size=4,
    unique_by=lambda permit: permit.node,
)


@settings(max_examples=120, deadline=None)
@given(nodes=nodes_of_any_kind, policies=policies_of_any_kind, permits=holders_of_any_kind, cap=st.integers(1, 5))
def test_no_scope_ever_exceeds_its_budget_and_a_storm_admits_nothing(
    nodes: list[NodeView], policies: FencePolicies, permits: list[Permit], cap: int
) -> None:
    """S14, S17 over any cluster, table and policies, counted anew from the nodes themselves."""
    report = scan(nodes, policies, watching=tuple(permit.node for permit in permits))
    admission = admit(report, permits, cap=cap, now=NOW)
    counted = [permit for permit in permits if permit.state is not PermitState.PARKED]
    rack_of = {node.name: node.labels.get(RACK, "") for node in nodes}

    def places(scope: str, name: str, granted_in: tuple[str, ...] = ()) -> set[str]:
        """Every group in which somebody must be counted."""
        if scope == "zone":
            return {"zone="}  # nobody here says in which zone it is
        told = {group.partition("=")[2] for group in granted_in if group.startswith(f"{RACK}=")}
        told |= {rack_of[name]} if name in rack_of else set()
        return told or {"r0", "r1", "r2", ""}

    if admission.admitted:
        assert len(counted) + len(admission.admitted) <= (policies.cap or cap)
    for each in policies.caps:
        for new in admission.admitted:
            (mine,) = places(each.scope, new.node)
            held = [permit for permit in counted if mine in places(each.scope, permit.node, permit.groups)]
            granted = [other for other in admission.admitted if mine in places(each.scope, other.node)]
            assert len(held) + len(granted) <= each.cap
    for rule in policies.storms:
        for new in admission.admitted:
            alike = [node for node in nodes if rule.scope != RACK or rack_of[node.name] == rack_of[new.node]]
            assert 100 * sum(not node.ready for node in alike) < rule.percentage * len(alike)
    if policies.off_groups:
        assert not [new for new in admission.admitted if rack_of[new.node] == "r0"]
    assert len(admission.admitted) + len(admission.refused) == len(report.candidates)


@pytest.mark.parametrize("off", [timedelta(days=365 * 7000), timedelta(minutes=5, seconds=1)])
def test_an_event_from_the_future_holds_no_node_for_ever(off: timedelta) -> None:
    """Whoever may write Events chooses their moments."""
    policies = FencePolicies(skip_lost_storage=True)
    assert policies.storage_lost_lately([NodeEvent(reason="IOError", source="x", at=NOW + off)], NOW) == ""
    assert policies.storage_lost_lately([NodeEvent(reason="IOError", source="x", at=NOW + timedelta(seconds=30))], NOW) != ""


def test_of_several_events_the_newest_is_told_and_without_the_policy_none() -> None:
    events = [NodeEvent(reason="IOError", source="x", at=NOW - timedelta(seconds=ago)) for ago in (90, 20, 60)]
    assert "x/IOError reported it 20 s ago" in FencePolicies(skip_lost_storage=True).storage_lost_lately(events, NOW)
    assert FencePolicies(storage_events=("IOError",)).storage_lost_lately(events, NOW) == ""


@pytest.mark.parametrize(
    ("renewed", "last_contact", "lives"),
    [
        (ago(90), None, True),
        (ago(91), None, False),
        (ago(30), ago(31), True),
        (ago(30), ago(30), False),
        (None, None, False),
    ],
    ids=["at the end of its time", "too long ago", "after it was heard last", "not since it was heard last", "not read"],
)
def test_a_kubelet_lives_while_its_lease_was_renewed_since_it_was_heard_last(
    renewed: datetime | None, last_contact: datetime | None, lives: bool
) -> None:
    """As oVirt's leases: ninety seconds, and a renewal from before the last contact proves nothing."""
    assert bool(still_renewed(renewed, last_contact, NOW)) is lives
