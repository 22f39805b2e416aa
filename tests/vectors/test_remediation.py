"""The cases of `health.json` on retries, control planes, limits, ladders and leases, through `policy/remediation`."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from policy.healthcheck import Dialect
from policy.machines import MachineView
from policy.nodes import Condition
from policy.remediation.control_plane import (
    COMPONENTS,
    ETCD_POD,
    ControlPlaneMember,
    ControlPlaneView,
    choose,
    member_of,
    without_api_server,
)
from policy.remediation.escalation import Step, Strategy, first_step, next_step, timed_out
from policy.remediation.etcd import Member, adding, removing
from policy.remediation.following import Told, to_be_given_up
from policy.remediation.in_flight import Waiting
from policy.remediation.in_flight import choose as choose_of_set
from policy.remediation.lease import (
    OLD_ANNOTATION,
    OLD_REMEDIATION,
    OLD_VALUE,
    lease_duration,
    overdue,
    overdue_after,
    to_be_flagged,
)
from policy.remediation.memory import REMEDIATION_FOR_ANNOTATION, RetryRules, memory_of, next_turn
from policy.thresholds import parse_threshold
from tests.policy.builders import a_check
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
}
"""The kinds of which every case is run here; of `flow`, one is."""

SECOND = timedelta(seconds=1)
WELL = frozenset({*COMPONENTS, ETCD_POD})


def cases(kind: str) -> list[Any]:
    return [pytest.param(case["given"], case["expect"], id=case["id"]) for case in CASES if case["kind"] == kind]


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


def a_machine(
    name: str, *, age: float = 0, true: tuple[str, ...] = (), node: str = "", unhealthy: bool = True
) -> ControlPlaneMember:
    view = MachineView(
        dialect=Dialect.CLUSTER_API,
        namespace="default",
        name=name,
        created=NOW - seconds(age),
        node_name=node,
        conditions=tuple(Condition(type=kind, status="True") for kind in true),
    )
    return member_of(view, unhealthy=unhealthy)


@pytest.mark.parametrize(("given", "expect"), cases("kcp_pick"))
def test_who_of_a_control_plane_goes_first(given: Json, expect: Json) -> None:
    members = tuple(
        a_machine(each["name"], age=each["age_s"], true=tuple(each["true_conditions"]), node=each["node_ref"])
        for each in given["machines"]
    )
    assert choose(ControlPlaneView(members=members, initialized=False)).remediate == expect["pick"]


@pytest.mark.parametrize(("given", "expect"), cases("control_plane_guard"))
def test_what_holds_a_control_plane_back(given: Json, expect: Json) -> None:
    """S15."""
    ages = given.get("age_order_oldest_first", [])
    names = [*given.get("healthy", []), *given["unhealthy"]]
    members = tuple(
        a_machine(
            name,
            age=len(ages) - ages.index(name) if name in ages else 0,
            true=(
                *(("EtcdMemberHealthy", ETCD_POD) if name in given.get("etcd_healthy", []) else ()),
                *(COMPONENTS if name in given.get("k8s_components_healthy", []) else ()),
            ),
            node=f"node-{name}",
            unhealthy=name in given["unhealthy"],
        )
        for name in names
    )
    begun = (given["remediation_in_progress_for"],) if "remediation_in_progress_for" in given else ()
    plane = ControlPlaneView(
        members=members,
        replicas=given.get("replicas"),
        initialized=given.get("initialized", True),
        in_progress=begun,
        upgrade_pending=given.get("topology_upgrade_pending", False),
        etcd=tuple(Member(name=f"node-{name}", healthy=name in given["etcd_healthy"]) for name in names) if ages else None,
    )
    choice = choose(plane)
    assert (choice.remediate or None) == expect["remediate"]
    if "blocked_by" in expect:
        assert choice.objection is not None
        assert choice.objection.rule == expect["blocked_by"]
    if "waiting" in expect:
        assert list(choice.waiting) == expect["waiting"]
        assert next_turn(None, RetryRules(), NOW).retry == expect["retry_count"]
        again = choose(ControlPlaneView(members=members, etcd=plane.etcd, in_progress=(choice.remediate,)))
        assert (again.remediate or None) == expect["second_pass_remediate"]


@pytest.mark.parametrize(("given", "expect"), cases("etcd_transition"))
def test_the_members_of_etcd_after_a_change(given: Json, expect: Json) -> None:
    """S15."""
    healthy = {each["node"]: each["etcd_healthy"] for each in given["machines"]}
    members = [
        Member(
            name=each["name"],
            learner=each.get("learner", False),
            alarm=each.get("alarm", ""),
            healthy=healthy.get(each["name"]),
        )
        for each in given["members"]
    ]
    after = adding(members) if given["operation"] == "add" else removing(members, given["remove"])
    assert (after.safe, after.voting, after.unhealthy, after.quorum) == (
        expect["safe"],
        expect["target_voting"],
        expect["target_unhealthy"],
        expect["quorum"],
    )


@pytest.mark.parametrize(("given", "expect"), cases("k8s_cp_transition"))
def test_the_api_servers_after_a_change(given: Json, expect: Json) -> None:
    """S15: at least one that is well stays."""
    members = tuple(
        ControlPlaneMember(name=each["name"], true=WELL if each["components_healthy"] else frozenset())
        for each in given["machines"]
    )
    said = without_api_server(ControlPlaneView(members=members), remove=given["remove"] or "", add=given["operation"] == "add")
    assert (said == "") is expect["safe"]


@pytest.mark.parametrize(("given", "expect"), cases("machineset_inflight"))
def test_how_many_of_a_set_at_once(given: Json, expect: Json) -> None:
    limit, machines = given["max_in_flight"], given["machines"]
    chosen = choose_of_set(
        [
            Waiting(name=each["name"], created=NOW - seconds(each["age_s"]))
            for each in machines
            if each["unhealthy"] and not each["deleting"]
        ],
        limit=None if limit is None else parse_threshold(limit, plain_text=False),
        replicas=given.get("replicas"),
        in_flight=sum(each.get("deleting_by_remediation", False) for each in machines),
        unfit="a preflight check fails" if given.get("preflight_failed") else "",
    )
    assert (list(chosen.begin), list(chosen.defer)) == (expect["delete"], expect["defer"])
    assert (chosen.again.total_seconds() if chosen.again else None) == expect.get("next_check_s")
    assert bool(chosen.why) is bool(chosen.defer)


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
        Step(strategy=Strategy.EXTERNAL, name=rung.template.name, timeout=timeouts[rung.template.name]) for rung in check.rungs
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
                    "timed_out_annotation": to_be_given_up(Told(processing="True")),
                }
            )
            at, started = next_step(ladder, at, ()), now + SECOND
    assert timeline == expect["timeline"]
    assert (at is None) is expect["exhausted"]


@pytest.mark.parametrize(("given", "expect"), cases("lease"))
def test_a_lease_of_a_node(given: Json, expect: Json) -> None:
    current, previous = seconds(given["current_timeout_s"]), [seconds(given["previous_timeouts_s"])]
    assert lease_duration(current, buffer=seconds(given["buffer_s"])) == seconds(expect["lease_duration_s"])
    assert overdue_after(current, previous) == seconds(expect["overdue_after_s"])
    assert overdue(NOW - seconds(given["held_for_s"]), current, previous, NOW) is expect["overdue"]


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


def test_the_kinds_are_there() -> None:
    assert {case["kind"] for case in CASES} >= HELD
