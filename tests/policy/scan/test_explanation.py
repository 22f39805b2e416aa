"""What would unblock a node, in words that are true and that name the right check."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from policy.checks.fence_policies import FencePolicies, StormRule
from policy.checks.health_check import HealthCheck, RetryRules
from policy.dialects import parse
from policy.episode.gate import HOLD_ANNOTATION
from policy.objects.machines import SKIP_ANNOTATION, MachineView
from policy.objects.nodes import EXCLUDE_LABEL, Condition, NodeView
from policy.remediation.ladder import Body, read_strategies
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, REMEDIATION_FOR_ANNOTATION, LastRemediation, written_memory
from policy.remediation.strategy_rules import Action
from policy.scan.evaluation import evaluate
from policy.scan.explanation import Outlook, OwnersRules, conclude, explain, outlook, outlook_by_hand
from policy.scan.ledger import Ledger
from policy.values.object_refs import Dialect
from tests.policy.builders import (
    NOW,
    PROD,
    RACK,
    TEMPLATE,
    WORKER,
    a_check,
    a_machine,
    a_node,
    ago,
    check_object,
    check_ref,
    cluster_api,
    in_rack,
    ledger_of,
    openshift,
    put,
    racks,
    tolerant_ledger,
)

SICK = a_node("n1", "Unknown", 60)


def test_a_hold_of_a_node_that_is_well_is_said_before_it_fails() -> None:
    """S20, S44: a person forgets it, and the night in which the node dies is late to learn of it."""
    held = a_node("n2", annotations={HOLD_ANNOTATION: "by ada: new disks"})
    found = explain(ledger_of(a_check(minHealthy=1), held, SICK).known(NOW), "n2")
    assert found.outlook is not None
    assert found.outlook.unblock == f"`kubectl annotate node n2 {HOLD_ANNOTATION}-` ends it"
    why = f"the annotation {HOLD_ANNOTATION} holds the node: by ada: new disks"
    assert conclude(found, halted="", kept_from=()) == f"healthy; if it fails nothing is begun: {why}"


def test_s44_a_silent_node_is_not_simply_healthy_while_a_check_that_may_count_it_cannot_be_used() -> None:
    """Its Machine has not failed, which is all that the other check asks for."""
    ledger = ledger_of(openshift("machines", unhealthyConditions=None), a_machine("m1", Dialect.OPENSHIFT), SICK)
    assert _concluded(ledger) == "healthy"
    ledger.put_bad_check(check_ref(), "a typo")
    assert _concluded(ledger) == "healthy; what NodeHealthCheck/workers says of it is not known: it can't be used"


def _concluded(ledger: Ledger) -> str:
    return conclude(explain(ledger.known(NOW), "n1"), halted="", kept_from=())


def unblocking(*objects: object) -> dict[str, tuple[str, tuple[str, ...]]]:
    """By check: what holds n1 back, and what would unblock it."""
    ledger = ledger_of(*objects)  # type: ignore[arg-type]
    opinions = explain(ledger.known(NOW), "n1").opinions
    return {each.check.check.ref.name: (each.target.held_by, each.unblock) for each in opinions}


def test_the_check_in_the_way_is_named_although_another_is_called_almost_the_same() -> None:
    checks = (a_check("work", minHealthy=1), a_check("workers", pauseRequests=["upgrade"]), a_check("zz", minHealthy=1))
    found = unblocking(*checks, SICK, a_node("n2"))
    for name in ("work", "zz"):
        held_by, unblock = found[name]
        assert held_by.startswith("NodeHealthCheck/workers covers it too")
        assert unblock == ("NodeHealthCheck/workers: end the pause: spec.pauseRequests",)
    assert found["workers"][1] == ("end the pause: spec.pauseRequests",)


def test_the_check_that_is_next_is_named_and_nothing_is_advised() -> None:
    found = unblocking(a_check("a", minHealthy=1), a_check("b", minHealthy=1), SICK, a_node("n2"))
    assert found["a"] == ("", ())
    assert found["b"] == ("NodeHealthCheck/a gives the remedy: of two with one deadline the name decides", ())
    slow = a_check("a", minHealthy=1, unhealthyConditions=[{"type": "Ready", "status": "Unknown", "duration": "50s"}])
    found = unblocking(slow, a_check("b", minHealthy=1), SICK, a_node("n2"))
    assert found["a"] == ("NodeHealthCheck/b gives the remedy: its deadline expired first", ())


def test_a_check_that_can_spare_no_node_says_how_many_must_get_well() -> None:
    disks = a_check("disks", minHealthy=1, unhealthyConditions=[{"type": "DiskPressure", "status": "True", "duration": "1s"}])
    full = a_check("disks", minHealthy=2, unhealthyConditions=[{"type": "DiskPressure", "status": "True", "duration": "1s"}])
    assert unblocking(a_check(minHealthy=1), disks, SICK, a_node("n2"))["workers"] == ("", ())
    held_by, unblock = unblocking(a_check(minHealthy=1), full, SICK, a_node("n2"))["workers"]
    assert "NodeHealthCheck/disks counts it as healthy and allows no more disruption" in held_by
    assert unblock == ("NodeHealthCheck/disks: its threshold lets none of 2 nodes be remediated",)


def test_a_persons_word_is_to_be_taken_back() -> None:
    excluded = a_node("n1", "Unknown", 60, labels={WORKER: "", EXCLUDE_LABEL: "true"})
    assert unblocking(a_check(minHealthy=1), excluded, a_node("n2"))["workers"][1] == (
        f"remove the label {EXCLUDE_LABEL} from the node",
    )
    ledger = ledger_of(a_check(minHealthy=1), SICK, a_node("n2"), PROD, a_machine(annotations={SKIP_ANNOTATION: ""}))
    (opinion,) = explain(ledger.known(NOW), "n1").opinions
    assert SKIP_ANNOTATION in opinion.target.held_by
    assert SKIP_ANNOTATION in opinion.unblock[0]


OF_PROD = {"cluster.x-k8s.io/cluster-name": "prod", "cluster.x-k8s.io/cluster-namespace": PROD.namespace}


@pytest.mark.parametrize(
    "whose", [(replace(SICK, annotations=OF_PROD),), (SICK, a_machine())], ids=["its Node says whose it is", "its Machine does"]
)
def test_a_paused_cluster_holds_back_a_check_of_nodes_and_what_ends_it_is_told(whose: tuple[NodeView | MachineView, ...]) -> None:
    """S20, S44."""
    paused = replace(PROD, paused="spec.paused of Cluster prod is true")
    ledger = ledger_of(a_check(minHealthy=1), *whose, a_node("n2"), PROD)
    assert ledger.report_parts(NOW).candidates[0].refused == ""
    version = ledger.version
    ledger.put_cluster(paused, NOW)
    assert ledger.version != version
    (candidate,) = ledger.report_parts(NOW).candidates
    assert candidate.refused == "its Cluster is paused: spec.paused of Cluster prod is true"
    said = "spec.paused of Cluster prod is true: nothing is begun for its nodes"
    assert (said in ledger.report_parts(NOW).checks[0].warnings) is (whose[0].annotations == OF_PROD)
    (opinion,) = explain(ledger.known(NOW), "n1").opinions
    assert (opinion.target.action, opinion.target.held_by) == (Action.NONE, candidate.refused)
    assert opinion.unblock == ("end the pause of the Cluster: spec.paused, or its annotation cluster.x-k8s.io/paused",)


STORM = StormRule(name="racks", percentage=40, scope=RACK)


@pytest.mark.parametrize(
    ("policies", "held_by", "unblock"),
    [
        (FencePolicies(storms=(STORM,)), f"{RACK}=r0: 2 of 5 nodes, 40%, are", f"1 more of the 5 nodes of {RACK}=r0 must become"),
        (FencePolicies(switched_off=("by ada",)), "fencing is switched off: by ada", "switch fencing on again: by ada"),
        (FencePolicies(off_groups=(f"{RACK}=r0",)), f"fencing is switched off for {RACK}=r0", "take its part of the cluster out"),
        (FencePolicies(problem="a typo"), "the fence policies can't be used: a typo", "correct the fence policies: a typo"),
        (
            FencePolicies(skip_lost_storage=True),
            "its condition StorageUnreachable is True",
            "its storage must be reachable again",
        ),
        (FencePolicies(storage_percentage=20), "1 of 5 nodes have lost their storage", "fewer than 20% of the nodes may say"),
    ],
    ids=["storm", "switch", "part", "unusable", "host", "storage"],
)
def test_a_fence_policy_that_holds_a_node_back_is_named_with_what_would_unblock_it(
    policies: FencePolicies, held_by: str, unblock: str
) -> None:
    """S17: whoever waits is told why, and for what."""
    lost = Condition(type="StorageUnreachable", status="True", since=ago(60))
    down = [in_rack("r0-0", "r0", "Unknown", 60), in_rack("r0-1", "r0", "Unknown", 60)]
    sick = replace(down[0], conditions=(*down[0].conditions, lost))
    ledger = tolerant_ledger([*racks(1, 5)[2:], sick, down[1]])
    ledger.follow(policies)
    (opinion,) = explain(ledger.known(NOW), "r0-0").opinions
    assert (held_by in opinion.target.held_by, unblock in opinion.unblock[0]) == (True, True), opinion
    assert (len(opinion.unblock), opinion.target.action) == (1, Action.NONE)


# What people are told of a remediation is what the scanner would do, and what a person's wish would.

SELF_NODE = {
    "apiVersion": "self-node-remediation.medik8s.io/v1alpha1",
    "kind": "SelfNodeRemediationTemplate",
    "name": "automatic",
    "namespace": "medik8s",
}
DELETION = {
    "apiVersion": "nodewarden.io/v1alpha1",
    "kind": "MachineDeletionTemplate",
    "name": "replace",
    "namespace": "nodewarden",
}
LADDER = [
    {"order": 1, "timeout": "5m", "remediationTemplate": SELF_NODE},
    {"order": 2, "timeout": "10m", "remediationTemplate": TEMPLATE},
    {"order": 3, "timeout": "1h", "remediationTemplate": DELETION},
]
FIRST, SECOND, THIRD = (
    "SelfNodeRemediationTemplate/medik8s/automatic",
    "FencingTemplate/nodewarden/bmc",
    "MachineDeletionTemplate/nodewarden/replace",
)


def climbing(**annotations: str) -> HealthCheck:
    """A check with a ladder of three; keywords are annotations of it."""
    obj = check_object(remediationTemplate=None, escalatingRemediations=LADDER, minHealthy=1)
    obj["metadata"] |= {"annotations": {f"nodewarden.io/{key.replace('_', '-')}": text for key, text in annotations.items()}}  # type: ignore[operator]
    return parse(obj)


def remembers(*failed: str, age: float = 30, retry: int = 0) -> dict[str, str]:
    last = LastRemediation(of="n1", at=ago(age), retry=retry, failed=failed, incident="i")
    return {LAST_REMEDIATION_ANNOTATION: written_memory(last)}


def looked(*objects: HealthCheck | NodeView | MachineView, **given: OwnersRules) -> Outlook:
    found = outlook(
        ledger_of(PROD, *objects).known(NOW), "n1", {f"{a_machine().namespace}/{name}": own for name, own in given.items()}
    )
    assert found is not None
    return found


def states(found: Outlook) -> list[tuple[str, bool, bool]]:
    return [(planned.step.name, planned.failed, planned.next) for planned in found.steps]


def test_what_has_failed_is_passed_over_and_put_off_as_the_scanner_puts_it_off() -> None:
    """The same memory, read by the same rules: what `explain` tells and what is done can't disagree."""
    check = climbing(max_retry="3", backoff="exponential", max_in_flight="40%")
    ledger = ledger_of(check, a_node("n1", "Unknown", 60, annotations=remembers(FIRST)), *(a_node(f"n{i}") for i in range(2, 6)))
    known = ledger.known(NOW)
    found = outlook(known, "n1")
    (candidate,) = ledger.report_parts(NOW).candidates
    assert found is not None
    assert states(found) == [(FIRST, True, False), (SECOND, False, True), (THIRD, False, False)]
    assert found.last is not None
    assert (found.last.of, found.last.failed) == ("n1", (FIRST,))
    turn = found.turn
    assert (turn.retry, turn.not_before, turn.why) == (candidate.retry, candidate.not_before, candidate.waits)
    assert turn.why.startswith("retry 1 of 3")
    (limit,) = found.in_flight
    assert (limit.check, limit.most, limit.total) == (check.ref.key, 2, 5)
    assert candidate.checks == (check.ref.key,)


def test_a_check_that_says_nothing_of_retries_has_those_of_the_settings() -> None:
    rules = RetryRules(max_retry=0, min_healthy_period=timedelta(hours=2))
    ledger = Ledger(retries=rules)
    for each in (climbing(), a_node("n1", "Unknown", 60, annotations=remembers()), a_node("n2")):
        put(ledger, each)
    found = outlook(ledger.known(NOW), "n1")
    (candidate,) = ledger.report_parts(NOW).candidates
    assert found is not None
    assert (found.rules, found.turn.exhausted) == (rules, candidate.exhausted)
    assert candidate.exhausted.endswith("maxRetry is 0, last was n1")
    told = climbing(max_retry="7")
    assert looked(told, a_node("n1", "Unknown", 60, annotations=remembers()), a_node("n2")).rules == RetryRules(max_retry=7)


def test_a_memory_that_cannot_be_read_is_a_persons_case() -> None:
    found = looked(climbing(), a_node("n1", "Unknown", 60, annotations={LAST_REMEDIATION_ANNOTATION: "yes"}), a_node("n2"))
    assert found.last is None
    assert "expected the JSON of the last remediation" in found.turn.exhausted


def test_what_is_not_possible_says_why() -> None:
    check = openshift("pool", maxUnhealthy=1)
    orphan = a_machine(dialect=Dialect.OPENSHIFT, controller="")
    found = looked(check, orphan, a_node("n1", "Unknown", 600))
    assert found.problem == "no controller owns the Machine: nothing would replace it"
    assert [(planned.impossible, planned.next) for planned in found.steps] == [(found.problem, False)]


def test_the_rules_of_a_control_plane_are_its_owners_and_only_explained() -> None:
    """Never carried out twice: what is put off is the owner's affair, ours is to ask it."""
    memory = {REMEDIATION_FOR_ANNOTATION: json.dumps({"machine": "cp-0", "timestamp": "2026-03-01T11:55:00Z", "retryCount": 2})}
    machine = a_machine(controller="KubeadmControlPlane/kcp", control_plane=True, annotations=memory)
    theirs = RetryRules(max_retry=5, retry_period=timedelta(minutes=10))
    found = looked(cluster_api("pool", limit=1), machine, a_node("n1", "Unknown", 600), kcp=OwnersRules(rules=theirs))
    assert (found.turn.retry, found.turn.not_before) == (0, None)
    own = found.owners_own
    assert own is not None
    assert own.turn is not None
    assert (own.rules, own.turn.retry, own.turn.not_before) == (theirs, 3, NOW + timedelta(minutes=5))
    unread = looked(cluster_api("pool", limit=1), machine, a_node("n1", "Unknown", 600)).owners_own
    assert unread is not None
    assert (unread.rules, unread.problem) == (None, "it is not among the objects that were read")


def test_a_persons_wish_begins_with_the_first_step_whatever_has_failed() -> None:
    ledger = ledger_of(climbing(), a_node("n1", "Unknown", 60, annotations=remembers(FIRST)), a_node("n2"))
    found = outlook_by_hand(ledger.known(NOW), "n1")
    assert found is not None
    assert states(found)[0] == (FIRST, False, True)
    assert found.last is not None
    named = read_strategies("reboot=10m, delete-machine", subject="n1", field="strategies")
    asked = outlook_by_hand(ledger.known(NOW), "n1", named=named, whole=False, body=Body(has_node=True))
    refused = outlook_by_hand(ledger.known(NOW), "n1", named=named, body=Body(has_node=True))
    assert asked is not None
    assert refused is not None
    assert refused.problem == "not every step can be carried out: delete-machine: delete-machine needs a Machine, and it has none"
    assert [planned.next for planned in refused.steps] == [False, False]
    assert [(planned.step.name, planned.next, planned.impossible) for planned in asked.steps] == [
        ("reboot", True, ""),
        ("delete-machine", False, "delete-machine needs a Machine, and it has none"),
    ]
    assert outlook_by_hand(ledger.known(NOW), "nobody") is None


def test_a_machine_without_a_node_is_found_by_the_name_of_its_episode() -> None:
    machine = a_machine("m9", node_name="")
    known = ledger_of(PROD, cluster_api("pool", limit=1), machine).known(NOW)
    victim = f"machine/{machine.namespace}/m9"
    for name in ("m9", victim):
        found = outlook(known, name)
        assert found is not None
        assert (found.victim, [planned.step.name for planned in found.steps]) == (victim, ["request-owner"])
    by_hand = outlook_by_hand(known, victim, body=Body(has_node=False, phase="", owner="MachineSet/set"))
    assert by_hand is not None
    assert (by_hand.check, [planned.step.name for planned in by_hand.steps]) == ("", ["delete-machine"])


@pytest.mark.parametrize(
    ("template", "action"),
    [
        (TEMPLATE, Action.FENCE),
        (DELETION, Action.DELETE_MACHINE),
        (DELETION | {"kind": "RebootTemplate"}, Action.REBOOT),
        (DELETION | {"kind": "VolumeDetachmentTemplate"}, Action.DETACH_VOLUMES),
        (SELF_NODE, Action.CREATE_REMEDIATION),
    ],
)
def test_a_template_of_ours_makes_no_object(template: dict[str, str], action: Action) -> None:
    check = a_check(minHealthy=1, remediationTemplate=template)
    (found,) = evaluate(ledger_of(check, a_node("n1", "Unknown", 60), a_node("n2")).known(NOW))
    assert found.warnings == ()
    assert [each.action for each in found.verdicts if each.node == "n1"] == [action]


@pytest.mark.parametrize(
    ("words", "controller", "action"),
    [
        ("reboot=10m, delete-machine", "MachineSet/set", Action.REBOOT),
        ("delete-machine", "MachineSet/set", Action.DELETE_MACHINE),
        ("request-owner", "MachineSet/set", Action.REQUEST_OWNER_REMEDIATION),
        ("delete-machine", "", Action.SKIP_NO_OWNER),
    ],
)
def test_strategies_by_annotation_go_before_the_dialects_own(words: str, controller: str, action: Action) -> None:
    check = replace(cluster_api("pool", limit=1), escalation=words)
    ledger = ledger_of(PROD, check, a_machine(controller=controller), a_node("n1", "Unknown", 600))
    (found,) = evaluate(ledger.known(NOW))
    assert [each.action for each in found.verdicts] == [action]
