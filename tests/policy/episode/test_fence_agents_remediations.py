"""FenceAgentsRemediations: whom they want fenced, the plan that they become, and what they are answered. Cases A01 to A07 are in
`tests/vectors/fence.json`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from policy.episode.fencing_requests import (
    FINALIZER,
    GROUP,
    KIND,
    VERSION,
    Stage,
    conditions_of,
    is_taken_up,
    last_stage,
    plan_of,
    read_request,
    why_ended,
)
from policy.episode.messages import Outcome
from policy.objects.remediations import GIVEN_UP_ANNOTATION
from policy.values.errors import PolicyError
from tests.vectors.objects import VECTORS

NODE = "node-7"
SPEC = {"agent": "fence_ipmilan", "nodeparameters": {"--ip": {NODE: "10.0.0.7"}}}


def remediation(spec: Any = None, *, name: str = NODE, status: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": name, "namespace": "medik8s", "uid": "uid-far", **metadata},
        "spec": SPEC if spec is None else spec,
        "status": status or {},
    }


def said(**conditions: str) -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": status} for kind, status in conditions.items()]}


@pytest.mark.parametrize("case", VECTORS["A"]["cases"], ids=lambda case: case["id"])
def test_the_rules_of_the_object_that_is_read(case: dict[str, Any]) -> None:
    """S7, S9, S10, S12: what is doubtful shoots the wrong machine or none, and is refused with its field."""
    obj = remediation(case["spec"])
    if "refused" in case:
        with pytest.raises(PolicyError) as refusal:
            plan_of(obj, NODE)
        assert case["refused"] in str(refusal.value)
        assert "hush" not in str(refusal.value)
        assert read_request(obj).problem == str(refusal.value)
        return
    assert read_request(obj).problem == ""
    plan = plan_of(obj, NODE)
    [[device]] = plan.levels
    found = {
        "parameters": device.parameters,
        "endpoint": device.endpoint,
        "secrets": [each.name for each in device.credentials],
        "power_on": plan.power_on,
        "freeing": plan.freeing.value,
        "tries": plan.tries,
        "warnings": len(plan.warnings),
        "retry_seconds": plan.retry_interval.total_seconds(),
        "off_seconds": plan.off_timeout.total_seconds(),
        "act_seconds": plan.act_deadline.total_seconds(),
    }
    assert {key: found[key] for key in case if key in found} == {key: case[key] for key in case if key in found}
    assert len(case) > 2, "a case that expects nothing"
    assert {each.namespace for each in device.credentials} <= {"medik8s"}


def test_the_plan_waits_for_nothing_and_never_starts_over() -> None:
    """Whoever made the object has waited, and counts tries by its number alone."""
    plan = plan_of(remediation(), NODE)
    assert (plan.wait_before_power, plan.restarts, plan.tries) == (timedelta(0), 0, 5)
    assert plan.source == f"{KIND}/medik8s/{NODE}"


def plugged(written: str) -> dict[str, Any]:
    return {"agent": "fence_virsh", "sharedparameters": {"--ip": "10.0.0.1"}, "nodeparameters": {"--plug": {NODE: written}}}


@pytest.mark.parametrize("written", ["{{.NodeName}}", "{{ .NodeName }}", "{{- .NodeName -}}"])
def test_the_name_of_the_node_is_filled_in(written: str) -> None:
    spec = {"agent": "fence_virsh", "sharedparameters": {"--ip": "10.0.0.1", "--plug": written}}
    assert plan_of(remediation(spec), NODE).endpoints == ("fence_virsh://10.0.0.1:22/node-7",)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"agent": "fence_ifmib", "nodeparameters": {"--plug": {NODE: "3"}}}, "cuts a path"),
        ({"agent": "fence_scsi", "nodeparameters": {"--plug": {NODE: "3"}}}, "takes a node's reservation away"),
        ({"agent": "ipmi", "nodeparameters": {"ip": {NODE: "10.0.0.7"}}}, "spec.agent"),
        ({"agent": "fence_ipmilan", "nodeparameters": {"--ip": {NODE: 7}}}, "expected a string"),
        ({"agent": "fence_ipmilan", "nodeparameters": {"--ip": {NODE: "a"}, "ipaddr": {NODE: "b"}}}, "given twice"),
        ({**SPEC, "sharedparameters": {"--missing-as-off": ""}}, "a plug that is missing is never off"),
        ({**SPEC, "sharedparameters": {"--community": "public"}}, "is a credential"),
        ({**SPEC, "timeout": "0s"}, "spec.timeout"),
        ({**SPEC, "retrycount": True}, "spec.retrycount"),
        ({}, "spec.agent"),
        # A plug that is spelled `{{.Node}}` is nobody's.
        *((plugged(written), "expected no other variable") for written in ("{{.Node}}", "{{ printf .NodeName }}", "{{.NodeName")),
    ],
)
def test_what_can_not_be_carried_out_is_refused(spec: dict[str, Any], words: str) -> None:
    """S10, S12."""
    with pytest.raises(PolicyError) as refusal:
        plan_of(remediation(spec), NODE)
    assert words in str(refusal.value)


def test_the_taint_is_refused_where_no_controller_acts_on_it() -> None:
    with pytest.raises(PolicyError, match="out-of-service taint"):
        plan_of(remediation({**SPEC, "remediationStrategy": "OutOfServiceTaint"}), NODE, taint_honoured=False)


def test_an_object_about_another_node_makes_no_plan() -> None:
    """S9."""
    with pytest.raises(PolicyError, match="this one is about node-8"):
        plan_of(remediation(name="node-8"), NODE)


def test_a_login_name_may_stand_in_the_object() -> None:
    """Where it stands in the object of the system that it is from; a password may not (S12)."""
    plan = plan_of(remediation({**SPEC, "sharedparameters": {"--username": "admin"}, "sharedSecretName": "bmc"}), NODE)
    assert plan.devices[0].parameters["username"] == "admin"


def test_the_node_is_the_annotations_or_the_objects_name() -> None:
    annotated = remediation(name="far-x7k", annotations={"remediation.medik8s.io/node-name": NODE})
    assert read_request(annotated).node == NODE
    assert read_request(remediation(name="node-8")).node == "node-8"


def test_the_owner_is_the_holder_of_the_lease() -> None:
    owner = {"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "name": "workers", "uid": "u"}
    found = read_request(remediation(ownerReferences=[owner]))
    assert (found.requester, found.delegate) == ("NodeHealthCheck/workers", "NodeHealthCheck-workers")
    nobody = read_request(remediation(ownerReferences=[{**owner, "kind": "ConfigMap"}]))
    assert (nobody.requester, nobody.delegate) == ("", "")


@pytest.mark.parametrize(
    ("changes", "ended"),
    [
        ({}, False),
        ({"status": said(Processing="True", Succeeded="Unknown")}, False),
        ({"status": said(Processing="False", Succeeded="True")}, True),
        ({"status": said(Processing="False", Succeeded="False")}, True),
        ({"deletionTimestamp": "2026-11-21T12:00:00Z"}, True),
        ({"annotations": {GIVEN_UP_ANNOTATION: "2026-11-21T12:00:00Z"}}, True),
        ({"annotations": {GIVEN_UP_ANNOTATION: ""}}, True),
    ],
)
def test_it_asks_until_it_has_its_answer_or_is_given_up(changes: dict[str, Any], ended: bool) -> None:
    obj = remediation(**changes)
    assert bool(why_ended(obj)) is ended
    assert read_request(obj).asks is not ended


def test_a_finalizer_names_its_controller() -> None:
    assert is_taken_up(remediation(finalizers=[FINALIZER]))
    assert not is_taken_up(remediation(finalizers=["somebody.else/finalizer"]))


@pytest.mark.parametrize(
    ("stage", "before", "expected"),
    [
        (Stage.STARTED, {}, "True Unknown Unknown"),
        (Stage.STARTED, {"FenceAgentActionSucceeded": "True"}, "True Unknown Unknown"),
        (Stage.FENCED, {}, "- True -"),
        (Stage.FINISHED, {}, "False True True"),
        (Stage.FAILED, {}, "False False False"),
        (Stage.FAILED, {"FenceAgentActionSucceeded": "True"}, "False True False"),
        (Stage.INTERRUPTED, {}, "False False False"),
        (Stage.INTERRUPTED, {"Succeeded": "True"}, "- - -"),
        (Stage.NODE_NOT_FOUND, {}, "False False False"),
        (Stage.HELD_BACK, {}, "False Unknown Unknown"),
    ],
)
def test_the_conditions_of_each_stage(stage: Stage, before: dict[str, str], expected: str) -> None:
    """Succeeded is False only where trying is over: that is when an operator goes on to its next remedy."""
    found = conditions_of(stage, said(**before))
    assert " ".join(found.get(kind, "-") for kind in ("Processing", "FenceAgentActionSucceeded", "Succeeded")) == expected


def test_every_end_has_its_last_word_and_a_final_one_stays() -> None:
    ends = {outcome: last_stage(outcome, Stage.FENCED) for outcome in Outcome}
    assert ends == {
        Outcome.RECOVERED: Stage.INTERRUPTED,
        Outcome.REPLACED: Stage.FAILED,
        Outcome.FENCED_OFF: Stage.FINISHED,
        Outcome.RELEASED: Stage.HELD_BACK,
        Outcome.ABORTED: Stage.HELD_BACK,
        Outcome.REFUSED: Stage.HELD_BACK,
    }
    for outcome in Outcome:
        assert last_stage(outcome, Stage.FINISHED) is Stage.FINISHED
        assert last_stage(outcome, Stage.FAILED) is Stage.FAILED


def test_two_readings_of_one_object_are_equal() -> None:
    """S18: else every heartbeat of a watch would be news."""
    assert read_request(remediation()) == read_request(remediation())
    assert read_request(remediation()) != replace(read_request(remediation()), uid="another")
