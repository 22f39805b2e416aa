"""Who may be disrupted now, and what everyone else is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.checks.circuit_breakers import OpenReason
from policy.checks.fence_policies import FencePolicies, PowerMoment, StormRule
from policy.checks.health_check import EscalatingRemediation
from policy.checks.inventory import ControlPlane
from policy.episode.fencing_requests import FencingRequest, Stage, read_request
from policy.episode.messages import Kind, NeedKind
from policy.episode.node_action import CIRCUIT_BREAKER
from policy.episode.permits import Permit, PermitDecision, PermitRequest, PermitState, Replacing
from policy.objects.nodes import EXCLUDE_LABEL, Condition, NodeView
from policy.objects.remediations import Owner, RemediationObject
from policy.objects.scopes import CLUSTER, GroupCount
from policy.remediation.control_plane import objection_by_count
from policy.remediation.ladder import EscalationStep
from policy.remediation.strategy_rules import Strategy
from policy.scan import permit_rules
from policy.scan.admission import Refused, admit, answer_request, orphans, quorum_objection
from policy.scan.candidates import MOST_UNCOUNTED, answer_without_trying
from policy.scan.evaluation import evaluate
from policy.scan.ledger import Ledger
from policy.scan.pauses import Pause
from policy.scan.permit_rules import RULES, AdmissionRefusal, Asker, PermitRule
from policy.scan.scan_report import MAXIMUM_CANDIDATES, Candidate, ClusterLease, ReportParts, ScanReport, ViewState
from policy.values.object_refs import ObjectRef
from tests.policy.builders import (
    NOW,
    WORKER,
    a_candidate,
    a_check,
    a_check_report,
    a_node,
    a_permit,
    a_report,
    ago,
    check_ref,
    ledger_of,
    report_of,
    seen,
)
from tests.policy.episode.test_fence_agents_remediations import remediation


@dataclass(frozen=True)
class Held:
    node: str
    reason: str = "3 attempts failed"
    until: datetime | None = None
    looked_well: datetime | None = None


def names(candidates: tuple[Candidate, ...]) -> list[str]:
    return [candidate.node for candidate in candidates]


def only_refusal(report: ScanReport, *permits: Permit, cap: int = 5, held_off: tuple[Held, ...] = ()) -> Refused:
    admission = admit(report, permits, cap=cap, now=NOW, held_off=held_off)
    assert admission.admitted == ()
    (refused,) = admission.refused
    assert refused.check == check_ref()
    return refused


def test_the_oldest_offence_goes_first_then_the_name() -> None:
    report = a_report(a_candidate("c", age=60), a_candidate("b", age=90), a_candidate("a", age=60))
    admission = admit(report, (), cap=2, now=NOW)
    assert names(admission.admitted) == ["b", "a"]
    assert admission.refused == (
        Refused(node="c", check=check_ref(), reason=AdmissionRefusal.CAP, message="2 of 2 permits are held: a, b"),
    )


@pytest.mark.parametrize(
    ("holding", "counts"), [(PermitState.RESERVED, True), (PermitState.OPEN, True), (PermitState.PARKED, False)]
)
def test_reserved_and_open_permits_count_and_parked_ones_do_not(holding: PermitState, counts: bool) -> None:
    """S14."""
    admission = admit(a_report(a_candidate("a")), [a_permit("other", holding)], cap=1, now=NOW)
    assert names(admission.admitted) == ([] if counts else ["a"])


def test_a_node_in_an_episode_gets_no_second_one() -> None:
    """S13. Parked ones keep the node, too."""
    for holding in PermitState:
        refused = only_refusal(a_report(a_candidate("a")), a_permit("a", holding))
        assert refused.reason is AdmissionRefusal.IN_HAND
        assert refused.message == f"a is held by episode/c/a, incident incident-a ({holding})"


@pytest.mark.parametrize("same", [{"node_uid": "uid-of-a"}, {"provider_id": "sim:///a"}, {"provider_id": "SIM:///a"}])
def test_a_machine_that_is_held_under_another_name_is_held(same: dict[str, str]) -> None:
    """S13: by node uid and by providerID."""
    holder = a_permit("old-name", PermitState.PARKED, **({"node_uid": "x", "provider_id": "y"} | same))
    refused = only_refusal(a_report(a_candidate("a")), holder)
    assert refused.reason is AdmissionRefusal.NODE_HELD
    assert "under the name old-name" in refused.message


def test_unknown_identities_are_never_taken_for_equal() -> None:
    holder = a_permit("b", node_uid="", provider_id="")
    assert names(admit(a_report(a_candidate("a", uid="", provider_id="")), [holder], cap=2, now=NOW).admitted) == ["a"]


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({"view": ViewState(synced=False)}, AdmissionRefusal.STALE_VIEW, "the view of the cluster is stale: not synced"),
        ({"view": ViewState(synced=True, stale="quiet")}, AdmissionRefusal.STALE_VIEW, "the view of the cluster is stale: quiet"),
        (
            {"lease": ClusterLease(held=False, holder="other:7233", problem="renewed by it")},
            AdmissionRefusal.NO_CLUSTER_LEASE,
            "the cluster Lease is not ours, other:7233 holds it (renewed by it)",
        ),
        (
            {"checks": (a_check_report(allowed=False, message="3 of 7 nodes are healthy"),)},
            AdmissionRefusal.CIRCUIT_BREAKER,
            "NodeHealthCheck/workers: 3 of 7 nodes are healthy",
        ),
        ({"checks": ()}, AdmissionRefusal.CIRCUIT_BREAKER, "NodeHealthCheck/workers: the check is gone"),
    ],
)
def test_nothing_is_admitted_from_a_doubtful_view_without_the_lease_or_under_an_open_circuit_breaker(
    fields: dict[str, object], reason: AdmissionRefusal, message: str
) -> None:
    """S17, S18, S38; and the candidates stay listed with the reason."""
    refused = only_refusal(a_report(a_candidate("a"), **fields))
    assert (refused.node, refused.reason, refused.message) == ("a", reason, message)


def test_a_candidate_that_cannot_be_carried_out_says_so_whatever_else_is_the_matter() -> None:
    report = a_report(a_candidate("a", refused="no template"), view=ViewState(synced=False))
    assert only_refusal(report).message == "no template"


@pytest.mark.parametrize(("until", "held"), [(None, True), (ago(-1), True), (NOW, False), (ago(1), False)])
def test_a_node_is_held_off_until_its_time_is_over(until: datetime | None, held: bool) -> None:
    """S19: other nodes are unaffected."""
    report = a_report(a_candidate("a"), a_candidate("b"))
    admission = admit(report, (), cap=5, now=NOW, held_off=[Held("a", until=until)])
    assert names(admission.admitted) == (["b"] if held else ["a", "b"])
    assert [refused.message for refused in admission.refused] == (["held off: 3 attempts failed"] if held else [])


@pytest.mark.parametrize(
    ("looked_well", "dated", "held"), [(None, True, True), (ago(59), True, True), (ago(61), True, False), (ago(61), False, True)]
)
def test_a_node_that_seemed_well_is_held_off_for_what_ailed_it_before(
    looked_well: datetime | None, *, dated: bool, held: bool
) -> None:
    """S19: since 60 s something ails it, or nobody says since when."""
    report = a_report(a_candidate("a", age=60, dated=dated))
    admission = admit(report, (), cap=5, now=NOW, held_off=[Held("a", looked_well=looked_well)])
    assert names(admission.admitted) == ([] if held else ["a"])


def test_a_check_that_counts_a_candidate_as_healthy_spares_as_many_as_it_has_remaining() -> None:
    other = a_check_report("disks", remaining=1, message="9 of 10 nodes are healthy, minHealthy 8 needs 8")
    under: dict[str, Any] = {"healthy_under": ("NodeHealthCheck/disks",)}
    report = a_report(a_candidate("a", age=90, **under), a_candidate("b", **under), checks=(a_check_report(), other))
    admission = admit(report, (), cap=5, now=NOW)
    assert names(admission.admitted) == ["a"]
    assert admission.refused[0].reason is AdmissionRefusal.THRESHOLD
    held = admit(report, [a_permit("a", PermitState.RESERVED)], cap=5, now=NOW)
    assert held.admitted == (), "the permit that this report does not show yet has taken the last one"


def test_a_closed_circuit_breaker_with_nothing_remaining_still_lets_the_unhealthy_be_repaired() -> None:
    """As the shipped systems do: they are within the threshold as they are, and disrupting them makes it no worse."""
    assert names(admit(a_report(a_candidate("a"), checks=(a_check_report(remaining=0),)), (), cap=1, now=NOW).admitted) == ["a"]


ONE_OF_3, ONE_OF_2 = (f"1 of {members} control-plane members would be left Ready, a quorum needs 2" for members in (3, 2))
LAST = "it is the only member that the control plane has or wants"
SICK, WELL = {"target_ready": False}, {"target_ready": True}
REMOVED_SICK, REMOVED_WELL = SICK | {"removes": True}, WELL | {"removes": True}
NO_NODE = REMOVED_SICK | {"lost": ("m",)}
SWITCHED_OFF = SICK | {"lost": ("m",)}


@pytest.mark.parametrize(
    ("members", "ready", "target", "others", "refusal"),
    [
        (3, 2, SICK, (), ""),
        (3, 3, WELL, (), ""),
        (3, 2, WELL, (), ONE_OF_3),
        (3, 1, SICK, (), ONE_OF_3),
        (5, 3, WELL, (), "2 of 5 control-plane members would be left Ready, a quorum needs 3"),
        (2, 1, SICK, (), ONE_OF_2),
        (2, 2, WELL, (), ONE_OF_2),
        (4, 2, SICK, (), "2 of 4 control-plane members would be left Ready, a quorum needs 3"),
        (1, 0, SICK, (), LAST),
        (0, 0, WELL, (), LAST),
        (5, 5, WELL, ("m2",), "another control-plane member is in an episode: m2"),
        # Seed 003: one that is replaced is counted out, so that a control plane of two can be remediated; the last one never is.
        (3, 1, REMOVED_SICK, (), "would be left Ready"),
        (2, 1, REMOVED_SICK, (), ""),
        (2, 2, REMOVED_WELL, (), ""),
        (2, 1, REMOVED_WELL, (), "would be left Ready"),
        (1, 0, REMOVED_SICK, (), LAST),
        (1, 1, REMOVED_WELL, (), LAST),
        # One whose Node is gone, or has never come, is one more than the Nodes: the Nodes must do without it.
        (1, 1, NO_NODE, (), ""),
        (2, 2, NO_NODE, (), ""),
        (2, 1, NO_NODE, (), ONE_OF_2),
        (2, 2, SWITCHED_OFF, (), ""),
        (1, 1, SWITCHED_OFF, (), ONE_OF_2),
        (0, 0, NO_NODE, (), LAST),
        (2, 1, REMOVED_SICK | {"lost": ("other",)}, (), ONE_OF_2),
        (3, 3, NO_NODE, ("b",), "another control-plane member is in an episode: b"),
    ],
)
def test_a_quorum_of_the_control_plane_stays(
    members: int, ready: int, target: dict[str, Any], others: tuple[str, ...], refusal: str
) -> None:
    """S15."""
    found = objection_by_count(members, ready, open_member_episodes=others, **target)
    assert refusal in found
    assert bool(found) is bool(refusal)


@pytest.mark.parametrize("name", ["cp-1", "machine/clusters/cp-1"], ids=["its Node is gone", "it never had one"])
@pytest.mark.parametrize(("ready", "taken"), [(2, True), (1, False)])
def test_a_member_without_a_node_is_counted_by_the_check_that_admits_it(name: str, ready: int, *, taken: bool) -> None:
    """S15: its machine may run, and vote in etcd; the Nodes that are left must be a quorum by themselves."""
    plane = ControlPlane(members=2, ready=ready, lost=() if name.startswith("machine/") else (name,))
    deletion = EscalationStep(strategy=Strategy.DELETE_MACHINE, name="delete-machine")
    report = a_report(a_candidate(name, uid="", control_plane=True, ladder=(deletion,)), control_plane=plane)
    assert names(admit(report, (), cap=5, now=NOW).admitted) == ([name] if taken else [])
    asks = a_request(name, node_uid="", control_plane=True, removes=True)
    assert (answer_request(report, (), asks, cap=5).decision is PermitDecision.GRANTED) is taken
    if not taken:
        assert (
            f"1 of 2 control-plane members would be left Ready, a quorum needs 2; {name} counted" in only_refusal(report).message
        )


def test_of_two_sick_members_one_is_taken_and_workers_are_not_held_up() -> None:
    """S15, as the shipped operator has it."""
    report = a_report(
        a_candidate("m1", age=90, control_plane=True),
        a_candidate("m2", age=80, control_plane=True),
        a_candidate("w1", age=70),
        control_plane=ControlPlane(members=5, ready=3),
    )
    admission = admit(report, (), cap=5, now=NOW)
    assert names(admission.admitted) == ["m1", "w1"]
    assert admission.refused[0].message == "another control-plane member is in an episode: m1"


@pytest.mark.parametrize("holding", PermitState)
def test_a_member_waits_for_the_end_of_another_members_episode_even_a_parked_one(holding: PermitState) -> None:
    """S15: a parked machine may be off."""
    refused = only_refusal(a_report(a_candidate("m1", control_plane=True)), a_permit("m2", holding, control_plane=True))
    assert refused.reason is AdmissionRefusal.CONTROL_PLANE


def a_request(node: str = "a", **fields: object) -> PermitRequest:
    values: dict[str, object] = {
        "workflow_id": f"episode/c/{node}",
        "incident": f"incident-{node}",
        "node_uid": f"uid-of-{node}",
        "provider_id": f"sim:///{node}",
    } | fields
    return PermitRequest(node=node, **values)  # type: ignore[arg-type]


ONE_AT_ONCE = a_check_report(at_once=1)
WHOEVER = "until it closes no request begins, not even on nodes that this check does not cover"
GRANTED, QUEUED, DENIED = PermitDecision.GRANTED, PermitDecision.QUEUED, PermitDecision.REFUSED
PARKED = a_permit("a", PermitState.PARKED)


@pytest.mark.parametrize(
    ("report", "permits", "cap", "decision", "reason"),
    [
        (a_report(), [a_permit("b")], 2, GRANTED, "2 of 2 permits are held now"),
        (a_report(), [a_permit("b")], 1, QUEUED, "1 of 1 permits are held: b"),
        (a_report(), [a_permit("a", incident="other")], 5, DENIED, "a is held by episode/c/a, incident other (open)"),
        # The same incident asks again, also while nothing new would be granted.
        (None, [a_permit("a", PermitState.RESERVED)], 1, GRANTED, ""),
        # One that has parked gave its permit back, and asks like anybody else.
        (a_report(), [PARKED], 1, GRANTED, ""),
        (a_report(), [PARKED, a_permit("b")], 1, QUEUED, ""),
        (None, [PARKED], 1, DENIED, "the scanner has not seen the cluster yet"),
        (a_report(view=ViewState(synced=True, stale="quiet")), [], 5, DENIED, "the view of the cluster is stale: quiet"),
        (a_report(lease=ClusterLease(held=False)), [], 5, DENIED, "the cluster Lease is not ours"),
        (
            a_report(checks=(a_check_report(), a_check_report("others", allowed=False, message="paused: upgrade"))),
            [], 5, DENIED,
            f"NodeHealthCheck/others has its circuit breaker open: paused: upgrade; {WHOEVER}",
        ),
    ],
)  # fmt: skip
def test_a_request_is_granted_queued_or_refused_with_the_reason(
    report: ScanReport | None, permits: list[Permit], cap: int, decision: PermitDecision, reason: str
) -> None:
    """S13, S14, S17, S18, S38."""
    answer = answer_request(report, permits, a_request(), cap=cap)
    assert answer.decision is decision
    assert reason in answer.reason


def test_a_request_does_not_jump_the_queue() -> None:
    answer = answer_request(a_report(), (), a_request(), cap=1, ahead=1)
    assert (answer.decision, answer.reason) == (QUEUED, "0 of 1 permits are held: none, 1 asked before")


@pytest.mark.parametrize("check", [a_check_report(allowed=False, error="bad", total=3), a_check_report(allowed=False, total=0)])
def test_a_check_that_is_unreadable_or_selects_nothing_blocks_no_node(check: object) -> None:
    assert answer_request(a_report(checks=(check,)), (), a_request(), cap=1).decision is PermitDecision.GRANTED


def test_a_request_for_a_control_plane_member_is_guarded() -> None:
    """S15."""
    report, member = a_report(control_plane=ControlPlane(members=3, ready=2)), a_request(control_plane=True)
    answer = answer_request(report, (), member, cap=5)
    assert (answer.decision, answer.reason) == (DENIED, "1 of 3 control-plane members would be left Ready, a quorum needs 2")
    assert answer_request(report, (), replace(member, ready=False), cap=5).decision is GRANTED


def test_s15_a_member_that_is_not_watched_yet_is_as_ready_as_its_candidate() -> None:
    """Its first look comes before the next report: counted as Ready it is called one that the others can't spare."""
    silent, permit = a_candidate("a", control_plane=True), a_permit("a", control_plane=True)
    report = a_report(silent, control_plane=ControlPlane(members=3, ready=2))
    assert quorum_objection(report, (permit,), permit) == ""
    assert "1 of 3" in quorum_objection(replace(report, candidates=(replace(silent, ready=True),)), (permit,), permit)
    assert "1 of 3" in quorum_objection(replace(report, candidates=()), (permit,), permit), "nothing is known of it"


@pytest.mark.parametrize(("by_person", "decision"), [(False, PermitDecision.REFUSED), (True, PermitDecision.GRANTED)])
def test_a_node_that_is_held_off_is_refused_to_programs_only(by_person: bool, decision: PermitDecision) -> None:
    """S19."""
    answer = answer_request(a_report(), (), a_request(by_person=by_person), cap=1, held_off=[Held("a")])
    assert (answer.decision, "3 attempts failed" in answer.reason) == (decision, decision is PermitDecision.REFUSED)


def test_an_open_episode_of_which_nothing_is_known_counts_as_it_would_at_worst() -> None:
    """S14, S15: it may be a member of the control plane, and one of those that a check lets be remediated at once."""
    silent = a_permit("cp-1", control_plane=None, found=True)
    plane = ControlPlane(members=3, ready=3)
    refused = only_refusal(a_report(a_candidate("cp-2", control_plane=True), control_plane=plane), silent)
    assert (refused.reason, "cp-1" in refused.message) == (AdmissionRefusal.CONTROL_PLANE, True)
    answer = answer_request(a_report(control_plane=plane), [silent], a_request("cp-2", control_plane=True), cap=5)
    assert (answer.decision, "cp-1" in answer.reason) == (PermitDecision.REFUSED, True)
    limited = replace(a_candidate("w-2"), checks=(check_ref().key,))
    assert only_refusal(a_report(limited, checks=(ONE_AT_ONCE,)), silent).reason is AdmissionRefusal.IN_FLIGHT
    told = a_report(limited, checks=(ONE_AT_ONCE,), seen_nodes=(seen(node="cp-1"),))
    assert names(admit(told, [silent], cap=5, now=NOW).admitted) == ["w-2"], "no check counts it"


@pytest.mark.parametrize(
    ("fields", "orphan"),
    [
        ({"incident": "i-1"}, True),
        ({"incident": ""}, False),
        ({"incident": "i-open"}, False),
        ({"incident": "i-1", "unhealthy": True}, False),
        ({"incident": "i-1", "soon": True}, False),
        ({"incident": "i-1", "ready": False}, False),
        ({"incident": "i-1", "present": False}, False),
        ({"mark_problem": "can't be read"}, False),
        ({"incident": "i-1", "preserved": True}, False),
    ],
)
def test_a_healthy_node_with_the_mark_of_a_closed_incident_is_to_be_cleaned(fields: dict[str, object], orphan: bool) -> None:
    """S35."""
    assert bool(orphans([seen(**fields)], {"i-open"})) is orphan


node_names = [f"n{index}" for index in range(6)]
candidates_of_any_kind = st.lists(
    st.builds(
        a_candidate,
        st.sampled_from(node_names),
        age=st.integers(1, 99),
        control_plane=st.booleans(),
        ready=st.booleans(),
        refused=st.sampled_from(["", "", "no"]),
        provider_id=st.sampled_from(["", "sim:///n0", "sim:///n1"]),
        healthy_under=st.sampled_from([(), (), ("NodeHealthCheck/other",)]),
    ),
    max_size=8,
    unique_by=lambda candidate: candidate.node,
)
permits_of_any_kind = st.lists(
    st.builds(a_permit, st.sampled_from(node_names), st.sampled_from(list(PermitState)), control_plane=st.booleans()),
    max_size=4,
    unique_by=lambda permit: permit.node,
)


@settings(max_examples=100, deadline=None)
@given(
    candidates=candidates_of_any_kind,
    permits=permits_of_any_kind,
    cap=st.integers(0, 4),
    members=st.integers(0, 7),
    ready=st.integers(0, 7),
    remaining=st.integers(0, 2),
)
def test_no_admission_ever_breaks_a_budget_or_a_quorum(
    *, candidates: list[Candidate], permits: list[Permit], cap: int, members: int, ready: int, remaining: int
) -> None:
    """S13, S14, S15 over any table; and every candidate is answered once."""
    report = a_report(
        *candidates,
        control_plane=ControlPlane(members=members, ready=min(ready, members)),
        checks=(a_check_report(), a_check_report("other", remaining=remaining)),
    )
    admission = admit(report, permits, cap=cap, now=NOW)
    assert sorted(names(admission.admitted) + [refused.node for refused in admission.refused]) == sorted(names(tuple(candidates)))
    counted = [permit for permit in permits if permit.state is not PermitState.PARKED]
    if admission.admitted:
        assert len(counted) + len(admission.admitted) <= cap
    held = {permit.node for permit in permits}
    machines = [candidate.provider_id for candidate in admission.admitted if candidate.provider_id]
    assert not held & set(names(admission.admitted))
    assert len(machines) == len(set(machines))
    assert not {permit.provider_id for permit in permits} & set(machines)
    taken = [candidate for candidate in admission.admitted if candidate.control_plane]
    assert len(taken) <= 1
    for member in taken:
        assert not any(permit.control_plane for permit in permits)
        assert members > 1
        assert report.control_plane.ready - member.ready >= members // 2 + 1
    spared = [candidate for candidate in admission.admitted if candidate.healthy_under]
    assert len(spared) <= remaining
    assert admit(replace(report, candidates=tuple(reversed(candidates))), permits, cap=cap, now=NOW) == admission


STEP = EscalationStep(strategy=Strategy.DELETE_MACHINE, name="delete-machine")


def a_remediation(node: str, **fields: Any) -> Candidate:
    return replace(a_candidate(node), ladder=(STEP,), owner="MachineSet/workers", **fields)


def test_one_that_is_not_due_waits_and_says_until_when() -> None:
    later = NOW + timedelta(seconds=30)
    admission = admit(a_report(a_remediation("a", not_before=later, waits="retry 2, not before")), (), cap=2, now=NOW)
    (refused,) = admission.refused
    assert (refused.reason, refused.message, admission.again) == (AdmissionRefusal.RETRY_LATER, "retry 2, not before", later)
    assert names(admit(a_report(a_remediation("a", not_before=later)), (), cap=2, now=later).admitted) == ["a"]


def test_one_that_nothing_helps_any_more_is_a_persons_case_whatever_the_cap_says() -> None:
    """Never silence: it is opened, without a permit, to ask a person."""
    full = [a_permit("other")]
    admission = admit(a_report(a_remediation("a", exhausted="maxRetry is 3")), full, cap=1, now=NOW)
    assert (names(admission.admitted), names(admission.exhausted), admission.refused) == ([], ["a"], ())
    held = admit(a_report(a_remediation("a", exhausted="x")), full, cap=1, now=NOW, held_off=(Held("a"),))
    assert held.exhausted == (), "a person has just ended it"


def test_a_checks_own_limit_of_remediations_at_once_counts_those_under_way_and_those_just_let_in() -> None:
    candidates = [a_remediation(name, checks=(check_ref().key,)) for name in ("a", "b")]
    under_way = a_permit("x", checks=(check_ref().key,))
    report = a_report(*candidates, checks=(replace(ONE_AT_ONCE, at_once=2),))
    admission = admit(report, [under_way], cap=9, now=NOW)
    assert names(admission.admitted) == ["a"]
    assert [(each.node, each.reason) for each in admission.refused] == [("b", AdmissionRefusal.IN_FLIGHT)]
    for nothing in (replace(under_way, state=PermitState.PARKED), replace(under_way, kind=Kind.PRESERVATION)):
        assert names(admit(report, [nothing], cap=9, now=NOW).admitted) == ["a", "b"]


def test_who_is_still_ready_counts_as_down_from_its_permit_on() -> None:
    """S17: several that are let in at one moment, or before the first of them is seen down, must not be the storm themselves."""
    counts = (GroupCount(group=CLUSTER, nodes=10, unresponsive=2),)
    limit: dict[str, Any] = {"policies": FencePolicies(storms=(StormRule(name="limit", percentage=40),)), "groups": counts}
    candidates = [a_candidate(name, age=age, ready=True) for name, age in (("a", 90), ("b", 80), ("c", 70))]
    admission = admit(a_report(*candidates, **limit), (), cap=9, now=NOW)
    assert names(admission.admitted) == ["a"]
    assert {each.reason for each in admission.refused} == {AdmissionRefusal.SCOPE_STORM}
    assert admission.refused[0].message.startswith("the cluster: 4 of 10 nodes, 40%, are unresponsive, or will be with this one")
    under_way = a_report(*candidates, seen_nodes=(seen(node="x", ready=True),), **limit)
    assert names(admit(under_way, [a_permit("x")], cap=9, now=NOW).admitted) == []
    assert answer_request(under_way, [a_permit("x")], a_request("a"), cap=9).decision is DENIED
    parked = [a_permit("x", PermitState.PARKED)]
    assert answer_request(under_way, parked, a_request("a"), cap=9).decision is GRANTED
    down = a_report(*candidates, seen_nodes=(seen(node="x", ready=False), seen(node="a", ready=False)), **limit)
    assert names(admit(down, [a_permit("x")], cap=9, now=NOW).admitted) == ["a"]
    assert answer_request(down, [a_permit("x")], a_request("a"), cap=9).decision is GRANTED, "it is one of the two"


def test_who_goes_on_after_a_persons_word_waits_for_a_checks_own_limit_as_well() -> None:
    """S14: another node of the check was let in while this one was parked."""
    report = a_report(a_remediation("a", checks=(check_ref().key,)), checks=(ONE_AT_ONCE,))
    under_way = a_permit("x", checks=(check_ref().key,))
    answer = answer_request(report, [under_way], a_request("a"), cap=9)
    assert (answer.decision, answer.reason) == (QUEUED, "NodeHealthCheck/workers lets 1 be remediated at once: x")
    parked = replace(under_way, state=PermitState.PARKED)
    assert answer_request(report, [parked], a_request("a"), cap=9).decision is GRANTED
    gone = a_report(checks=(ONE_AT_ONCE,), seen_nodes=(seen(node="a", present=False), seen(node="b")))
    assert answer_request(gone, [under_way], a_request("b"), cap=9).decision is GRANTED, "no check counts it"
    counted = answer_request(gone, [under_way], a_request("b"), cap=9, counted_under=(check_ref().key,))
    assert counted.decision is QUEUED, "one did when it had its last permit"
    assert answer_request(gone, [under_way], a_request("a"), cap=9).decision is QUEUED, "nobody tells of it"
    keeping = a_request("a", kind=Kind.PRESERVATION)
    assert answer_request(gone, [under_way], keeping, cap=9).decision is GRANTED, "it remediates nothing"


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({}, True),
        ({"fresh": False}, False),
        ({"owner": "MachineSet/others"}, False),
        ({"created": ago(100)}, False),
        ({"created": None}, False),
    ],
)
def test_a_machine_that_may_be_the_replacement_of_an_open_remediation_is_not_its_patient(
    fields: dict[str, Any], waits: bool
) -> None:
    """Until it is known whose successor it is, and what it is to remember."""
    young = {"fresh": True, "created": ago(1)} | fields
    permit = a_permit("gone", owner="MachineSet/workers", granted_at=ago(20))
    candidate = replace(a_remediation("a"), **young)
    admission = admit(a_report(candidate), [permit], cap=9, now=NOW)
    assert [each.reason for each in admission.refused] == ([AdmissionRefusal.REPLACEMENT] if waits else [])
    ended = Replacing(owner="MachineSet/workers", node="gone", since=ago(20), until=NOW + timedelta(seconds=5))
    admission = admit(a_report(candidate), (), cap=9, now=NOW, replaced=[ended])
    assert [each.reason for each in admission.refused] == ([AdmissionRefusal.REPLACEMENT] if waits else [])
    assert admission.again == (ended.until if waits else None)
    assert names(admit(a_report(candidate), (), cap=9, now=NOW + timedelta(seconds=6), replaced=[ended]).admitted) == ["a"]


def test_while_all_is_paused_no_node_is_admitted_and_requests_wait() -> None:
    """S44: with who and why; whoever has a permit already waits with it."""
    pause = Pause(who="ada", owner="ada", reason="the switch is being replaced", since=NOW)
    asks = {"incident": "i-1", "workflow_id": "episode/c/node-1"}
    held = a_permit(node="node-1", state=PermitState.OPEN, **asks)
    admission = admit(a_report(a_candidate("node-2")), (held,), cap=5, now=NOW, paused=str(pause))
    assert [(each.reason, each.message) for each in admission.refused] == [(AdmissionRefusal.PAUSED, str(pause))]
    answer = answer_request(a_report(), (held,), PermitRequest(node="node-1", **asks), cap=5, paused=str(pause))
    assert (answer.decision, answer.reason) == (PermitDecision.QUEUED, str(pause))
    assert answer_request(a_report(), (held,), PermitRequest(node="node-1", **asks), cap=5).decision is PermitDecision.GRANTED


@pytest.mark.parametrize(("until", "holds"), [(None, True), (ago(0), False), (ago(-1), True)])
def test_a_pause_holds_until_its_moment(until: datetime | None, *, holds: bool) -> None:
    """S44: and says until when."""
    assert Pause(who="ada", owner="ada", reason="x", since=ago(60), until=until).holds(NOW) is holds


OPEN = {"allowed": False, "message": "4 of 6 nodes are healthy, minHealthy 5 needs 5"}
OVERRIDES = {"override": CIRCUIT_BREAKER, "by_person": True}
SWITCHED_ON = PowerMoment(node="a", on=True, at=NOW)


@pytest.mark.parametrize(
    ("reason", "passes"),
    [
        (OpenReason.TOO_MANY_UNHEALTHY, True),
        (OpenReason.STORM, True),
        (OpenReason.PAUSED, False),
        (OpenReason.UPGRADE, False),
        (OpenReason.OBSERVE_ONLY, False),
        (OpenReason.STALE_MACHINES, False),
        (OpenReason.NO_CLUSTER, False),
        (OpenReason.INVALID_THRESHOLD, False),
    ],
)
def test_a_person_overrides_the_counts_of_a_check_and_no_other_reason(reason: OpenReason, passes: bool) -> None:
    """S17: that too many are unwell a person can weigh; a pause, an upgrade or a mistake is no number."""
    report = a_report(checks=(a_check_report("others", reason=reason, **OPEN), a_check_report()))
    assert answer_request(report, (), a_request(by_person=True), cap=1).decision is DENIED
    assert (answer_request(report, (), a_request(**OVERRIDES), cap=1).decision is GRANTED) is passes
    beside = (*report.checks, a_check_report("paused", allowed=False, reason=OpenReason.PAUSED, message="paused: storage"))
    answer = answer_request(replace(report, checks=beside), (), a_request(**OVERRIDES), cap=1)
    assert (answer.decision, "its circuit breaker open" in answer.reason) == (DENIED, True), "another check says no"
    said = answer_request(report, (), a_request(by_person=True), cap=1).reason
    assert ("`--override circuit-breaker`" in said) is passes, "nobody is told of a way that there is not"


MINE = a_permit("b", checks=(check_ref().key,))


@pytest.mark.parametrize(
    ("fields", "request_fields", "options", "decision"),
    [
        ({}, {}, {"paused": "paused by ada: storage"}, QUEUED),
        ({"view": ViewState(synced=True, stale="quiet")}, {}, {}, DENIED),
        ({"lease": ClusterLease(held=False)}, {}, {}, DENIED),
        ({"policies": FencePolicies(problem="no number")}, {}, {}, DENIED),
        ({"policies": FencePolicies(switched_off=("ada",))}, {}, {}, DENIED),
        ({"policies": FencePolicies(storms=(StormRule(name="storm", percentage=1),))}, {}, {}, DENIED),
        ({"control_plane": ControlPlane(members=3, ready=2)}, {"control_plane": True}, {}, DENIED),
        ({"policies": FencePolicies(quiet_time=timedelta(hours=1))}, {}, {"power": [SWITCHED_ON]}, DENIED),
        ({}, {}, {"permits": [a_permit("a", incident="other")]}, DENIED),
        ({}, {}, {"permits": [a_permit("b")], "cap": 1}, QUEUED),
        ({}, {}, {"permits": [MINE]}, QUEUED),
    ],
    ids=["pause", "view", "lease", "bad", "switched off", "storm", "quorum", "quiet time", "one owner", "cap", "check's limit"],
)
def test_all_but_the_circuit_breaker_is_asked_of_an_override_as_of_any_request(
    fields: dict[str, Any], request_fields: dict[str, Any], options: dict[str, Any], decision: PermitDecision
) -> None:
    """S13, S14, S15, S17, S18, S38, S44."""
    closed = a_check_report("others", reason=OpenReason.TOO_MANY_UNHEALTHY, **OPEN)
    report = a_report(**({"checks": (closed, ONE_AT_ONCE)} | fields))
    given = {"permits": [], "cap": 5, "now": NOW} | options
    answer = answer_request(report, given.pop("permits"), a_request(**OVERRIDES, **request_fields), **given)
    assert (answer.decision, "circuit breaker" in answer.reason) == (decision, False), answer.reason


# Admission where there are more candidates than a report has room for.

SPARED = 3


def test_those_just_let_in_are_counted_under_the_checks_they_were_well_under_though_no_report_has_room_for_them() -> None:
    """S14, S17: their marks are not seen yet, and candidates that nobody holds go first into a report."""
    total = MAXIMUM_CANDIDATES * 2
    ill = (Condition(type="Ready", status="True", since=ago(9000)), Condition(type="Slow", status="True", since=ago(9000)))
    nodes = [a_node(f"n{number:03}", conditions=ill) for number in range(total)]
    slow = a_check("slow", minHealthy=0, unhealthyConditions=[{"type": "Slow", "status": "True", "duration": "60s"}])
    strict = a_check("strict", minHealthy=total - SPARED)
    ledger = ledger_of(slow, strict, *nodes)

    def admitted(permits: list[Permit]) -> list[Permit]:
        parts = ledger.report_parts(NOW, tuple(permit.node for permit in permits))
        report = replace(a_report(), **{name: getattr(parts, name) for name in parts.__dataclass_fields__})
        found = admit(report, permits, cap=50, now=NOW).admitted
        return [a_permit(each.node, PermitState.RESERVED, healthy_under=each.healthy_under) for each in found]

    first = admitted([])
    assert len(first) == SPARED
    assert admitted(first) == []


def test_no_candidate_is_compared_with_each_permit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand nodes that fail at once are decided about again with each of them that ends."""
    compared: list[str] = []
    spell = permit_rules.machine_behind
    monkeypatch.setattr(permit_rules, "machine_behind", lambda given: compared.append(given) or spell(given))
    held = [a_permit(f"held-{number}", provider_id=f"sim:///held-{number}") for number in range(200)]
    offered = [a_candidate(f"new-{number}") for number in range(20)]
    assert len(admit(a_report(*offered), held, cap=500, now=NOW).admitted) == len(offered)
    assert len(compared) <= len(held) + 5 * len(offered)


def test_nodes_that_another_check_can_not_spare_crowd_none_out() -> None:
    """S17 holds them back, and nobody else: the one dead node of another check has its place in the report."""
    total = MAXIMUM_CANDIDATES + 10
    slow = a_check("slow", minHealthy=0, unhealthyConditions=[{"type": "Slow", "status": "True", "duration": "60s"}])
    strict = a_check("strict", minHealthy=total)
    other = a_check("other", selector={"matchLabels": {"pool": "other"}})
    ill = (Condition(type="Ready", status="True", since=ago(9000)), Condition(type="Slow", status="True", since=ago(9000)))
    crowd = [a_node(f"n{number:03}", conditions=ill) for number in range(total)]
    dead = [a_node(f"z{number}", "Unknown" if number == 0 else "True", 600, labels={"pool": "other"}) for number in range(5)]
    parts = ledger_of(slow, strict, other, *crowd, *dead).report_parts(NOW)
    report = replace(a_report(), **{name: getattr(parts, name) for name in parts.__dataclass_fields__})
    assert [each.node for each in admit(report, [], cap=50, now=NOW).admitted] == ["z0"]


# The one list of what keeps a node from a permit, as docs/semantics.md has it, and that its rows keep their order.

DOCS = Path(__file__).parents[3] / "docs" / "semantics.md"
HEADER = ["rule", "source", "says no while", *(asker.value for asker in Asker)]


def documented() -> Iterator[tuple[str, ...]]:
    """Code, source and the cells of each row of the table in the docs."""
    section = DOCS.read_text().partition("\n## What keeps a node from a permit\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
    assert rows[0] == HEADER
    for code, source, _, *cells in rows[2:]:
        yield code.strip("`"), source, *cells


def of(rule: PermitRule) -> tuple[str, ...]:
    waits = {Asker.EPISODE, Asker.PERSON, Asker.HOLDER} if rule.waits else set[Asker]()
    cells = ("waits" if asker in waits else "no" if asker in rule.stops else "" for asker in Asker)
    cells = ("" if asker not in rule.stops else cell for asker, cell in zip(Asker, cells, strict=True))
    return rule.code.value, rule.source, *cells


def test_the_docs_have_each_rule_in_its_place() -> None:
    """S13, S14, S15, S17, S18, S19, S20, S38, S44."""
    assert [*documented()] == [of(rule) for rule in RULES]


def test_every_code_has_a_rule() -> None:
    assert {rule.code for rule in RULES} == set(AdmissionRefusal)


CLOSED = a_check_report(allowed=False, reason=OpenReason.TOO_MANY_UNHEALTHY, message="3 of 7 nodes are healthy")
CLUSTER_DOWN = (GroupCount(group=CLUSTER, nodes=4, without_storage=4),)

OBSTACLES = {
    AdmissionRefusal.STALE_VIEW: {"view": ViewState(synced=True, stale="quiet")},
    AdmissionRefusal.NO_CLUSTER_LEASE: {"lease": ClusterLease(held=False)},
    AdmissionRefusal.BAD_POLICIES: {"policies": FencePolicies(problem="no number")},
    AdmissionRefusal.CIRCUIT_BREAKER: {"checks": (CLOSED,)},
    AdmissionRefusal.STORAGE_DOWN: {"policies": FencePolicies(storage_percentage=50), "groups": CLUSTER_DOWN},
    AdmissionRefusal.CAP: {},
}
"""In the order of the table; a cap of 0 stands for the last one."""


@pytest.mark.parametrize("first", range(len(OBSTACLES)))
@pytest.mark.parametrize("by_person", [False, True])
def test_the_first_of_several_reasons_is_the_same_for_a_scan_and_a_request(first: int, *, by_person: bool) -> None:
    """S14, S17, S18, S38: a person who reads one reason here and another one there takes the wrong one away."""
    codes = [*OBSTACLES][first:]
    fields: dict[str, object] = {}
    for code in reversed(codes):
        fields |= OBSTACLES[code]
    report: ScanReport = a_report(a_candidate("a"), **fields)
    (refused,) = admit(report, (), cap=0, now=NOW).refused
    request = PermitRequest(node="a", workflow_id="episode/c/a", incident="i", by_person=by_person)
    answer = answer_request(report, (), request, cap=0)
    assert refused.reason is codes[0]
    assert refused.message in answer.reason or refused.reason is AdmissionRefusal.CIRCUIT_BREAKER
    assert (answer.decision is PermitDecision.QUEUED) is (codes[0] is AdmissionRefusal.CAP)


def test_an_episode_with_a_permit_has_it_still_whatever_keeps_others_from_one() -> None:
    """S17: what stops new episodes stops none that is open; S44: but a pause does."""
    report = replace(a_report(checks=(CLOSED,)), view=ViewState(synced=True, stale="quiet"))
    request = PermitRequest(node="a", workflow_id="episode/c/a", incident="incident-a")
    held = a_permit("a", PermitState.OPEN)
    assert answer_request(report, [held], request, cap=0).decision is PermitDecision.GRANTED
    assert answer_request(report, [held], request, cap=0, paused="by ada").decision is PermitDecision.QUEUED


# Objects of other systems that ask for a node: the same admission as for health checks, with the circuit breakers of a
# person's request.

SPEC = {"agent": "fence_ipmilan", "nodeparameters": {"--ip": {"node-1": "10.0.0.1"}}}
KEY = "FenceAgentsRemediation/medik8s/node-1"
SNR = "self-node-remediation.medik8s.io"


def a_wish(node: str = "node-1", **fields: Any) -> Candidate:
    ref = read_request(remediation(name=node)).ref
    return replace(a_candidate(node), check=ref, need=NeedKind.FOREIGN_OBJECT, object_uid=f"uid-{node}", **fields)


def refusal_of_request(report: ScanReport, **options: Any) -> Refused:
    admission = admit(report, options.pop("permits", ()), cap=options.pop("cap", 5), now=NOW, **options)
    assert admission.admitted == ()
    (refused,) = admission.refused
    return refused


def test_a_wish_needs_no_check() -> None:
    assert len(admit(a_report(a_wish(), checks=()), (), cap=1, now=NOW).admitted) == 1


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"reason": "TooManyUnhealthy"}, AdmissionRefusal.CIRCUIT_BREAKER),
        ({"reason": "Paused"}, AdmissionRefusal.CIRCUIT_BREAKER),
        ({"reason": "StormActive"}, AdmissionRefusal.CIRCUIT_BREAKER),
        ({"reason": "UpgradeInProgress"}, AdmissionRefusal.CIRCUIT_BREAKER),
        ({"reason": "ConflictingController", "breached": True}, AdmissionRefusal.CIRCUIT_BREAKER),
        ({"reason": "ConflictingController"}, None),
        ({"reason": "AnotherCluster"}, None),
        ({"reason": "TooManyUnhealthy", "total": 0}, None),
        ({"reason": "InvalidObject", "error": "no selector"}, None),
    ],
)
def test_every_open_circuit_breaker_holds_a_wish_up(changes: dict[str, Any], because: AdmissionRefusal | None) -> None:
    """S17: also the ones of an operator that looks after them itself, by their numbers; that it does is none."""
    report = a_report(a_wish(), checks=(replace(a_check_report(), allowed=False, message="closed", **changes),))
    if because is None:
        assert len(admit(report, (), cap=1, now=NOW).admitted) == 1
    else:
        assert refusal_of_request(report).reason is because


def test_budgets_holds_quorum_and_licence_are_those_of_everybody() -> None:
    """S13, S14, S15, S18, S38."""
    assert refusal_of_request(a_report(a_wish()), permits=(a_permit("node-2"),), cap=1).reason is AdmissionRefusal.CAP
    assert refusal_of_request(a_report(a_wish()), permits=(a_permit("node-1"),)).reason is AdmissionRefusal.IN_HAND
    assert refusal_of_request(a_report(a_wish(), view=ViewState(synced=True, stale="deaf"))).reason is AdmissionRefusal.STALE_VIEW
    assert refusal_of_request(a_report(a_wish(), lease=ClusterLease(held=False))).reason is AdmissionRefusal.NO_CLUSTER_LEASE
    member = a_report(a_wish(control_plane=True), control_plane=ControlPlane(members=3, ready=1))
    assert refusal_of_request(member).reason is AdmissionRefusal.CONTROL_PLANE


def test_of_a_check_and_a_wish_for_one_node_only_one_is_admitted() -> None:
    """S13."""
    admission = admit(a_report(a_candidate(), a_wish()), (), cap=5, now=NOW)
    assert (len(admission.admitted), [each.reason for each in admission.refused]) == (1, [AdmissionRefusal.NODE_HELD])


def parts(request: FencingRequest, node: NodeView) -> ReportParts:
    return ledger_of(node, a_check(), request).report_parts(NOW)


def a_fencing_request(**changes: Any) -> FencingRequest:
    return replace(read_request(remediation(SPEC, name="node-1")), created=ago(30), **changes)


def test_a_wish_for_a_node_is_a_candidate_since_it_was_made() -> None:
    [found] = parts(a_fencing_request(delegate="NodeHealthCheck-workers"), a_node(ready="Unknown", age=5)).candidates
    assert (found.node, found.uid, found.refused, found.since) == ("node-1", "uid-of-node-1", "", ago(30))
    assert (found.need, found.object_uid, found.delegate) == (NeedKind.FOREIGN_OBJECT, "uid-far", "NodeHealthCheck-workers")
    assert found.healthy_under == ()


def test_a_wish_for_a_node_that_is_well_says_under_which_checks() -> None:
    [found] = parts(a_fencing_request(), a_node()).candidates
    assert found.healthy_under == ("NodeHealthCheck/workers",)
    assert found.ready


@pytest.mark.parametrize(
    ("changes", "node", "held", "words", "answer"),
    [
        ({"ended": "deleted"}, a_node(), "", None, None),
        ({"problem": "spec.retrycount: no"}, a_node(), "", "spec.retrycount: no", Stage.FAILED),
        ({"taken_up": True}, a_node(), "", "another controller works on it", None),
        ({"taken_up": True, "problem": "bad"}, a_node(), "", "another controller works on it", None),
        ({}, a_node(), "another controller acts", "another controller acts", None),
        ({"problem": "bad"}, a_node(), "another controller acts", "another controller acts", None),
        ({}, a_node("node-2"), "", "node-1, which does not exist", Stage.NODE_NOT_FOUND),
        ({}, a_node(labels={WORKER: "", EXCLUDE_LABEL: "true"}), "", "out of remediation", None),
        ({}, replace(a_node(), unreadable="status: no"), "", "can't be read", None),
        ({}, replace(a_node(), deleting=True), "", "is being deleted", None),
        ({}, a_node(), "", "", None),
    ],
)
def test_why_a_wish_is_not_carried_out_and_whether_that_is_final(
    changes: dict[str, Any], node: NodeView, held: str, words: str | None, answer: Stage | None
) -> None:
    """Only what nothing but another object could mend is final: its operator then goes on to something else."""
    request = a_fencing_request(**changes)
    ledger = ledger_of(node, a_check(), request)
    ledger.hold_back_requests(held)
    found = [each.refused for each in ledger.report_parts(NOW).candidates]
    if words is None:
        assert found == []
    else:
        assert len(found) == 1
        assert words in found[0]
        assert bool(found[0]) is bool(words)
    assert answer_without_trying(ledger.known(NOW), request) is answer


def test_only_a_change_is_news() -> None:
    """S18: a watch repeats itself."""
    ledger = Ledger()
    ledger.put_request(a_fencing_request())
    version = ledger.version
    ledger.put_request(a_fencing_request())
    ledger.hold_back_requests("")
    ledger.remove_request("FenceAgentsRemediation/medik8s/other")
    assert ledger.version == version
    ledger.put_request(a_fencing_request(ended="deleted"))
    assert ledger.version == version + 1
    ledger.remove_request(KEY)
    assert ledger.version == version + 2
    assert ledger.report_parts(NOW).candidates == ()


def test_a_request_of_a_stranger_is_refused_unread_and_answered_once() -> None:
    """S46, S44: refused with the setting's name and not for good, and behind all others. What it says is not read."""
    strange = read_request(remediation({"agent": 7}, name="node-1"), uncounted="no setting names its namespace")
    mine = replace(a_fencing_request(node="node-2", problem="bad"), ref=replace(strange.ref, name="node-2"))
    ledger = ledger_of(a_node("node-1"), a_node("node-2"), replace(strange, created=ago(90)), mine)
    found = ledger.report_parts(NOW).candidates
    assert [each.refused for each in found] == ["bad", "no setting names its namespace"]
    assert found[1].uid == ""
    assert answer_without_trying(ledger.known(NOW), strange) is None


@pytest.mark.parametrize(("namespace", "vetoes"), [("medik8s", True), ("tenant", False)])
def test_a_remediation_object_of_a_stranger_blocks_no_episode(namespace: str, vetoes: bool) -> None:
    """S46: another controller acts on a Node by objects beside the template, and on none that a tenant makes elsewhere."""
    template = ObjectRef(api_version=f"{SNR}/v1alpha1", kind="SelfNodeRemediationTemplate", name="a", namespace="medik8s")
    found = RemediationObject(
        ref=replace(template, kind="SelfNodeRemediation", name="node-1", namespace=namespace), target="node-1"
    )
    check = replace(a_check(), rungs=(EscalatingRemediation(template=template),))
    well = [a_node(f"well-{number}") for number in range(3)]
    [candidate] = ledger_of(a_node(ready="Unknown", age=900), *well, check, found).report_parts(NOW).candidates
    assert ("that this check did not create" in candidate.refused) is vetoes, candidate.refused


@pytest.mark.parametrize(("namespace", "vetoes"), [("medik8s", True), ("tenant", False)])
def test_s15_a_remediation_object_of_a_stranger_about_a_well_member_holds_back_no_other(namespace: str, vetoes: bool) -> None:
    """S15, S46: of an object beside the template a scan and the looks of an open episode say that another member goes first."""
    template = ObjectRef(api_version=f"{SNR}/v1alpha1", kind="SelfNodeRemediationTemplate", name="a", namespace="medik8s")
    found = RemediationObject(ref=replace(template, kind="SelfNodeRemediation", name="n0", namespace=namespace), target="n0")
    labels = {WORKER: "", "node-role.kubernetes.io/control-plane": ""}
    nodes = [
        a_node(name, labels=labels, **how) for name, how in (("n0", {}), ("n1", {"ready": "Unknown", "age": 900}), ("n2", {}))
    ]
    check = replace(a_check(), rungs=(EscalatingRemediation(template=template),))
    ledger = ledger_of(*nodes, check, found)
    report = replace(report_of(ledger.report_parts(NOW)), view=ViewState(synced=True), lease=ClusterLease(held=True))
    [refused] = [each.reason for each in admit(report, (), cap=5, now=NOW).refused] or [""]
    member = a_permit("n1", control_plane=True)
    assert (refused == "ControlPlaneGuard", "n0" in quorum_objection(report, (member,), member)) == (vetoes, vetoes)
    assert any("ControlPlaneGuard" in str(each.held_by) for one in evaluate(ledger.known(NOW)) for each in one.verdicts) is vetoes


def test_what_a_stranger_lays_at_a_checks_door_makes_no_node_of_it_unwell() -> None:
    """S46, S44: anybody who may create an object may name its owner. A hundred of them opened the check's circuit breaker, and
    each had an episode opened that was to take it back."""
    template = ObjectRef(api_version=f"{SNR}/v1alpha1", kind="SelfNodeRemediationTemplate", name="a", namespace="medik8s")
    check = replace(a_check(), rungs=(EscalatingRemediation(template=template),))
    owner = Owner(kind=check.ref.kind, name=check.ref.name, uid=check.uid)
    nodes = [a_node(f"well-{number}") for number in range(3)]
    forged = [
        RemediationObject(
            ref=replace(template, kind="SelfNodeRemediation", name=each.name, namespace="tenant"),
            target=each.name,
            owners=(owner,),
        )
        for each in nodes
    ]
    found = ledger_of(*nodes, check, *forged).report_parts(NOW)
    assert ([each.healthy for each in found.checks], found.left_over) == ([3], ())
    true = [replace(each, ref=replace(each.ref, namespace="medik8s")) for each in forged]
    assert len(ledger_of(*nodes, check, *true).report_parts(NOW).left_over) == 3


STRANGE = st.builds(
    lambda name, node, agent, age: (name, node, agent, age),
    st.integers(0, 60),
    st.sampled_from(["node-1", "node-2", "node-3", "gone"]),
    st.sampled_from(["fence_docker", "fence_ipmilan", 7]),
    st.integers(0, 900),
)


@given(st.lists(STRANGE, max_size=60), st.booleans(), st.sampled_from(["Unknown", "True"]))
def test_whatever_a_tenant_asks_for_is_admitted_never_and_changes_nothing_for_others(
    strange: list[tuple[int, str, object, int]], held: bool, ready: str
) -> None:
    """S46, S44: the adversary's move, a request from a tenant, as often as he likes and about whatever node."""
    honest = replace(a_fencing_request(), created=ago(30))
    things = [a_node(ready=ready, age=900), *(a_node(f"node-{number}") for number in range(2, 6)), a_check(), honest]
    without, ledger = ledger_of(*things), ledger_of(*things)
    for name, node, agent, age in strange:
        wish = remediation({"agent": agent, "nodeparameters": {"--ip": {node: "203.0.113.66"}}}, name=node)
        found = read_request(wish, uncounted="no setting names its namespace")
        ref = replace(found.ref, name=f"{node}-{name}", namespace="tenant")
        ledger.put_request(replace(found, ref=ref, created=ago(age)))
    for each in (without, ledger):
        each.hold_back_requests("another controller acts" if held else "")
    alone, together = (report_of(each.report_parts(NOW)) for each in (without, ledger))
    admitted = [admit(each, (), cap=5, now=NOW).admitted for each in (alone, together)]
    assert admitted[0] == admitted[1]
    theirs = [each for each in together.candidates if each.check.namespace == "tenant"]
    assert [each for each in together.candidates if each not in theirs] == list(alone.candidates)
    assert len(theirs) <= MOST_UNCOUNTED
    assert together.checks == alone.checks
