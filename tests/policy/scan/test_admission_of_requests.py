"""Objects of other systems that ask for a node: the same admission as for health checks, with the circuit breakers of a
person's request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.checks.health_check import EscalatingRemediation
from policy.checks.inventory import ControlPlane
from policy.episode.fencing_requests import FencingRequest, Stage, read_request
from policy.episode.messages import NeedKind
from policy.objects.nodes import EXCLUDE_LABEL, NodeView
from policy.objects.remediations import Owner, RemediationObject
from policy.scan.admission import Refused, admit
from policy.scan.candidates import MOST_UNCOUNTED, answer_without_trying
from policy.scan.ledger import Ledger
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import Candidate, ClusterLease, ReportParts, ScanReport, ViewState
from policy.values.object_refs import ObjectRef
from tests.policy.builders import NOW, WORKER, a_candidate, a_check, a_check_report, a_node, a_permit, a_report, ago, ledger_of
from tests.policy.episode.test_fence_agents_remediations import remediation
from tests.policy.fencing_builders import report_of

SPEC = {"agent": "fence_ipmilan", "nodeparameters": {"--ip": {"node-1": "10.0.0.1"}}}
KEY = "FenceAgentsRemediation/medik8s/node-1"
SNR = "self-node-remediation.medik8s.io"


def a_wish(node: str = "node-1", **fields: Any) -> Candidate:
    ref = read_request(remediation(name=node)).ref
    return replace(a_candidate(node), check=ref, need=NeedKind.FOREIGN_OBJECT, object_uid=f"uid-{node}", **fields)


def only_refusal(report: ScanReport, **options: Any) -> Refused:
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
        assert only_refusal(report).reason is because


def test_budgets_holds_quorum_and_licence_are_those_of_everybody() -> None:
    """S13, S14, S15, S18, S38."""
    assert only_refusal(a_report(a_wish()), permits=(a_permit("node-2"),), cap=1).reason is AdmissionRefusal.CAP
    assert only_refusal(a_report(a_wish()), permits=(a_permit("node-1"),)).reason is AdmissionRefusal.IN_HAND
    assert only_refusal(a_report(a_wish(), view=ViewState(synced=True, stale="deaf"))).reason is AdmissionRefusal.STALE_VIEW
    assert only_refusal(a_report(a_wish(), lease=ClusterLease(held=False))).reason is AdmissionRefusal.NO_CLUSTER_LEASE
    member = a_report(a_wish(control_plane=True), control_plane=ControlPlane(members=3, ready=1))
    assert only_refusal(member).reason is AdmissionRefusal.CONTROL_PLANE


def test_of_a_check_and_a_wish_for_one_node_only_one_is_admitted() -> None:
    """S13."""
    admission = admit(a_report(a_candidate(), a_wish()), (), cap=5, now=NOW)
    assert (len(admission.admitted), [each.reason for each in admission.refused]) == (1, [AdmissionRefusal.NODE_HELD])


def parts(request: FencingRequest, node: NodeView) -> ReportParts:
    return ledger_of(node, a_check(), request).report_parts(NOW)


def a_request(**changes: Any) -> FencingRequest:
    return replace(read_request(remediation(SPEC, name="node-1")), created=ago(30), **changes)


def test_a_wish_for_a_node_is_a_candidate_since_it_was_made() -> None:
    [found] = parts(a_request(delegate="NodeHealthCheck-workers"), a_node(ready="Unknown", age=5)).candidates
    assert (found.node, found.uid, found.refused, found.since) == ("node-1", "uid-of-node-1", "", ago(30))
    assert (found.need, found.object_uid, found.delegate) == (NeedKind.FOREIGN_OBJECT, "uid-far", "NodeHealthCheck-workers")
    assert found.healthy_under == ()


def test_a_wish_for_a_node_that_is_well_says_under_which_checks() -> None:
    [found] = parts(a_request(), a_node()).candidates
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
    request = a_request(**changes)
    ledger = ledger_of(node, a_check(), request)
    ledger.hold_requests(held)
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
    ledger.put_request(a_request())
    version = ledger.version
    ledger.put_request(a_request())
    ledger.hold_requests("")
    ledger.remove_request("FenceAgentsRemediation/medik8s/other")
    assert ledger.version == version
    ledger.put_request(a_request(ended="deleted"))
    assert ledger.version == version + 1
    ledger.remove_request(KEY)
    assert ledger.version == version + 2
    assert ledger.report_parts(NOW).candidates == ()


def test_a_request_of_a_stranger_is_refused_unread_and_answered_once() -> None:
    """S46, S44: refused with the setting's name and not for good, and behind all others. What it says is not read."""
    strange = read_request(remediation({"agent": 7}, name="node-1"), uncounted="no setting names its namespace")
    mine = replace(a_request(node="node-2", problem="bad"), ref=replace(strange.ref, name="node-2"))
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
    honest = replace(a_request(), created=ago(30))
    things = [a_node(ready=ready, age=900), *(a_node(f"node-{number}") for number in range(2, 6)), a_check(), honest]
    without, ledger = ledger_of(*things), ledger_of(*things)
    for name, node, agent, age in strange:
        wish = remediation({"agent": agent, "nodeparameters": {"--ip": {node: "203.0.113.66"}}}, name=node)
        found = read_request(wish, uncounted="no setting names its namespace")
        ref = replace(found.ref, name=f"{node}-{name}", namespace="tenant")
        ledger.put_request(replace(found, ref=ref, created=ago(age)))
    for each in (without, ledger):
        each.hold_requests("another controller acts" if held else "")
    alone, together = (report_of(each.report_parts(NOW)) for each in (without, ledger))
    admitted = [admit(each, (), cap=5, now=NOW).admitted for each in (alone, together)]
    assert admitted[0] == admitted[1]
    theirs = [each for each in together.candidates if each.check.namespace == "tenant"]
    assert [each for each in together.candidates if each not in theirs] == list(alone.candidates)
    assert len(theirs) <= MOST_UNCOUNTED
    assert together.checks == alone.checks
