"""The cases of `health.json` on retries, control planes, limits, ladders and leases, through `policy/remediation`.

Those that are about what nodewarden never does are named in `NOT_PLAYED`, with the reason.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from policy.checks.health_check import RetryRules
from policy.objects.nodes import EtcdGuard
from policy.remediation.control_plane import (
    COMPONENTS,
    ETCD_MEMBER,
    ETCD_POD,
    BlockingRule,
    ControlPlaneMember,
    ControlPlaneView,
    EtcdMember,
    MemberFate,
    after_removal,
    objection_to,
)
from policy.remediation.ladder import (
    BUFFER,
    OLD_ANNOTATION,
    OLD_REMEDIATION,
    OLD_VALUE,
    EscalationStep,
    first_step,
    lease_duration,
    most_at_once,
    next_step,
    timed_out,
    to_be_flagged,
)
from policy.remediation.memory import REMEDIATION_FOR_ANNOTATION, memory_of, next_turn
from policy.remediation.remediation_objects import RemediationConditions, to_be_given_up
from policy.remediation.strategy_rules import Strategy
from policy.scan.admission import admit
from policy.scan.permit_rules import AdmissionRefusal
from policy.values.fields import parse_threshold
from tests.policy.builders import a_candidate, a_check, a_check_report, a_permit, a_report
from tests.vectors.objects import NOW, Json, moment, template

CASES: list[Json] = json.loads(Path(__file__).with_name("health.json").read_text(encoding="utf-8"))

HELD = {
    "machineset_inflight",
    "kcp_retry",
    "kcp_pick",
    "etcd_transition",
    "k8s_cp_transition",
    "control_plane_guard",
    "escalation",
    "lease",
    "validation",
}
"""The kinds of which every case is run here or named below; of `flow`, one is."""

SECOND = timedelta(seconds=1)

_OWNERS_CHOICE = "which member goes first is for the KubeadmControlPlane to decide, which is asked to remediate"
_ADDS = "nodewarden adds no member to a control plane"
NOT_PLAYED = {
    "kcp-pick-etcd-first": _OWNERS_CHOICE,
    "kcp-pick-apiserver-first": _OWNERS_CHOICE,
    "kcp-etcd-add-1-bad": _ADDS,
    "kcp-etcd-add-2": _ADDS,
    "kcp-etcd-add-2-one-bad": _ADDS,
    "kcp-etcd-add-4-one-bad": _ADDS,
    "kcp-etcd-add-with-learner": _ADDS,
    "kcp-k8s-add-empty": _ADDS,
    "kcp-k8s-add-healthy": _ADDS,
    "kcp-k8s-add-unhealthy": _ADDS,
    "machineset-preflight-failed": "a MachineSet's preflight checks hold back the replacement that it makes, which is its own",
}
"""Cases of these kinds that are about something else than nodewarden does, and why. Of the others nothing is left out but: the
order in which a MachineSet or a KubeadmControlPlane takes its machines (here the oldest offence goes first), and when a lease is
overdue (here it ends with the time of its step).
"""


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(case["given"], case["expect"], id=case["id"])
        for case in CASES
        if case["kind"] == kind and case["id"] not in NOT_PLAYED
    ]


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@pytest.mark.parametrize(("given", "expect"), cases("kcp_retry"))
def test_retries_of_a_control_plane(given: Json, expect: Json) -> None:
    annotations = {}
    if last := given["last_remediation"]:
        text = {"machine": last["machine"], "timestamp": moment(last["age_s"]), "retryCount": last["retry_count"]}
        annotations[REMEDIATION_FOR_ANNOTATION] = json.dumps(text)
    turn = next_turn(memory_of(annotations, subject="Machine/m1"), RetryRules(max_retry=given["max_retry"]), NOW)
    assert (not turn.exhausted and turn.not_before is None) is expect["allowed"]
    assert bool(turn.exhausted) is (expect.get("reason") == "CannotBeRemediated")
    assert turn.retry == expect["retry_count"]


@pytest.mark.parametrize(("given", "expect"), cases("control_plane_guard"))
def test_what_holds_a_control_plane_back(given: Json, expect: Json) -> None:
    """S15."""
    names = [*given.get("healthy", []), *given["unhealthy"]]
    etcd, components = given.get("etcd_healthy", []), given.get("k8s_components_healthy", [])
    begun = given.get("remediation_in_progress_for")
    plane = ControlPlaneView(
        members=tuple(
            ControlPlaneMember(
                name=name,
                node=f"node-{name}",
                unhealthy=name in given["unhealthy"],
                true=frozenset({*((ETCD_MEMBER, ETCD_POD) if name in etcd else ()), *(COMPONENTS if name in components else ())}),
            )
            for name in names
        ),
        replicas=given.get("replicas"),
        initialized=given.get("initialized", True),
        in_progress=(begun,) if begun else (),
        upgrade="v1.35.0" if given.get("topology_upgrade_pending") else "",
        etcd=tuple(EtcdMember(name=f"node-{name}", healthy=name in etcd) for name in names),
    )
    if taken := expect["remediate"]:
        assert objection_to(plane, taken, MemberFate.REMOVED) is None
        assert next_turn(None, RetryRules(), NOW).retry == expect["retry_count"]
        plane = replace(plane, in_progress=(taken,))
    for name in expect.get("waiting", given["unhealthy"]):
        objection = objection_to(plane, name, MemberFate.REMOVED)
        assert objection is not None
        assert objection.rule == expect.get("blocked_by", BlockingRule.IN_PROGRESS)


@pytest.mark.parametrize(("given", "expect"), cases("etcd_transition"))
def test_the_members_of_etcd_after_a_change(given: Json, expect: Json) -> None:
    """S15."""
    healthy = {each["node"]: each["etcd_healthy"] for each in given["machines"]}
    members = [
        EtcdMember(
            name=each["name"], learner=each.get("learner", False), alarm=each.get("alarm", ""), healthy=healthy.get(each["name"])
        )
        for each in given["members"]
    ]
    after = after_removal(members, given["remove"])
    well = max(expect["target_voting"] - expect["target_unhealthy"], 0)
    assert after.safe is expect["safe"]
    assert f" {well} of etcd's {expect['target_voting']} voters would be well, a quorum is {expect['quorum']}" in after.why


@pytest.mark.parametrize(("given", "expect"), cases("machineset_inflight"))
def test_how_many_of_a_set_at_once(given: Json, expect: Json) -> None:
    """As for the targets of a health check; a number needs no total."""
    limit = parse_threshold(given["max_in_flight"], plain_text=False)
    check = a_check_report(at_once=most_at_once(limit, given.get("replicas", 0)))
    sick = [each for each in given["machines"] if each["unhealthy"]]
    under_way = [a_permit(each["name"], checks=(check.ref.key,)) for each in sick if each["deleting"]]
    waiting = [replace(a_candidate(each["name"]), checks=(check.ref.key,)) for each in sick if not each["deleting"]]
    admission = admit(a_report(*waiting, checks=(check,)), under_way, cap=99, now=NOW)
    assert len(admission.admitted) == len(expect["delete"])
    assert [each.reason for each in admission.refused] == [AdmissionRefusal.IN_FLIGHT] * len(expect["defer"])


@pytest.mark.parametrize(("given", "expect"), cases("escalation"))
def test_a_ladder_in_its_order(given: Json, expect: Json) -> None:
    """Looked at once a second, as the operator does; the second between two steps is how soon it comes back to a node. The order
    is read from an object, whose time-outs may not be as short as the case's.
    """
    timeouts = {each["name"]: seconds(each["timeout_s"]) for each in given["templates"]}
    escalating = [
        {
            "order": each["order"],
            "timeout": f"{60 * each['timeout_s']}s",
            "remediationTemplate": template(f"Kind{each['name']}Template") | {"name": each["name"]},
        }
        for each in given["templates"]
    ]
    check = a_check(remediationTemplate=None, escalatingRemediations=escalating)
    ladder = tuple(
        EscalationStep(strategy=Strategy.EXTERNAL, name=rung.template.name, timeout=timeouts[rung.template.name])
        for rung in check.rungs
    )
    timeline: list[Json] = []
    at = first_step(ladder, ())
    started = NOW + seconds(given["unhealthy_at_s"])
    for now in (NOW + seconds(tick) for tick in range(given["healthy_at_s"])):
        if at is not None and timed_out(started, ladder[at].timeout, now):
            timeline.append(
                {
                    "template": ladder[at].name,
                    "start_s": (started - NOW) / SECOND,
                    "end_s": (now - NOW) / SECOND,
                    "why": "timeout",
                    "timed_out_annotation": to_be_given_up(RemediationConditions(processing="True")),
                }
            )
            at, started = next_step(ladder, at, ()), now + SECOND
    assert timeline == expect["timeline"]
    assert (at is None) is expect["exhausted"]


@pytest.mark.parametrize(("given", "expect"), cases("lease"))
def test_a_lease_of_a_node(given: Json, expect: Json) -> None:
    """Of what is added to a step's time ours is always a minute."""
    added = lease_duration(seconds(given["current_timeout_s"])) - BUFFER + seconds(given["buffer_s"])
    assert added == seconds(expect["lease_duration_s"])


@pytest.mark.parametrize(("given", "expect"), cases("validation"))
def test_openshifts_guard_of_etcd(given: Json, expect: Json) -> None:
    """What the webhook of the NodeMaintenance operator answers."""
    guards = {} if given.get("guard") is None else {"n": given["guard"]}
    guard = EtcdGuard(known=True, disruptions_allowed=(given["disruptions_allowed"],), guards=guards)
    assert (guard.objection("n") == "") is expect["accepted"]


def test_a_remediation_that_is_two_days_old_is_flagged_once() -> None:
    """nhc-old-cr-alert."""
    (case,) = [each for each in CASES if each["id"] == "nhc-old-cr-alert"]
    given, expect = case["given"], case["expect"]
    created = NOW - seconds(given["remediation_age_s"])
    assert seconds(given["alert_after_s"]) == OLD_REMEDIATION
    assert to_be_flagged(created, NOW, flagged=given["already_flagged"]) is expect["flag_set"]
    assert not to_be_flagged(created, NOW, flagged=True)
    assert not to_be_flagged(NOW - OLD_REMEDIATION, NOW, flagged=False), "exactly two days are not too long yet"
    assert f"{OLD_ANNOTATION}={OLD_VALUE}" == expect["annotation"]


def test_no_case_is_left_out() -> None:
    """Of `flow` and of Metal3's, which are about what the remediators of others do, `test_remediators.py` holds the cases."""
    assert {case["kind"] for case in CASES} == HELD | {"flow", "metal3_timer", "metal3_retry", "improvement"}
    assert {case["id"] for case in CASES if case["kind"] in HELD} >= set(NOT_PLAYED)
