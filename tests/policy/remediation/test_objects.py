"""Remediation objects as we make them: their names, their owners, and whose one is that is there already."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.objects.remediations import plurals_of
from policy.remediation.remediation_objects import (
    LONGEST_NAME,
    PHASE_DELETING,
    REMEDIATORS,
    Progress,
    RemediationConditions,
    Remediator,
    WantedObject,
    follow,
    made,
    not_ours,
    phase_of,
    progress_message,
    remediator_of,
    statuses_of,
    to_be_given_up,
)
from policy.values.errors import PolicyError
from policy.values.object_refs import ObjectRef

TOLD = ("Succeeded", "Processing")

GROUP = "self-node-remediation.medik8s.io"
TEMPLATE = ObjectRef(api_version=f"{GROUP}/v1alpha1", kind="SelfNodeRemediationTemplate", name="quick", namespace="medik8s")
CHECK = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers")
MACHINE = ObjectRef(api_version="machine.openshift.io/v1beta1", kind="Machine", name="machine-7", namespace="machines")
OF_MACHINES = ObjectRef(api_version=MACHINE.api_version, kind="MachineHealthCheck", name="workers", namespace="machines")

ABOUT_NODE = WantedObject(template=TEMPLATE, node="node-7", node_uid="uid-7", incident="one", check=CHECK, check_uid="uid-check")
ABOUT_MACHINE = replace(ABOUT_NODE, check=OF_MACHINES, machine=MACHINE, machine_uid="uid-machine")

INNER: dict[str, Any] = {"spec": {"template": {"spec": {"strategy": "Automatic"}}}}


def test_what_was_made_for_a_step_is_known_again() -> None:
    for wanted in (ABOUT_NODE, ABOUT_MACHINE, replace(ABOUT_NODE, several=True), replace(ABOUT_NODE, check=None)):
        assert not_ours(made(INNER, wanted), wanted) == ""


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (replace(ABOUT_NODE, check=replace(CHECK, name="others")), "NodeHealthCheck/others has not made it"),
        (replace(ABOUT_NODE, check_uid="another"), "NodeHealthCheck/workers has not made it"),
        (replace(ABOUT_NODE, check=None, incident="two"), "this episode has not"),
        (replace(ABOUT_NODE, node_uid="another"), "another Node"),
        (replace(ABOUT_NODE, node="node-8"), "it is about node-7"),
        (replace(ABOUT_NODE, template=replace(TEMPLATE, name="slow")), "from the template quick"),
        (ABOUT_MACHINE, "not owned by Machine/machines/machine-7"),
    ],
)
def test_what_was_made_for_another_is_not_ours(wanted: WantedObject, words: str) -> None:
    """S9."""
    assert words in not_ours(made(INNER, ABOUT_NODE), wanted)


def test_a_predecessor_s_object_is_not_that_of_a_machine_of_the_same_name() -> None:
    """S9."""
    assert not_ours(made(INNER, ABOUT_MACHINE), replace(ABOUT_MACHINE, machine_uid="another"))


def test_the_object_of_a_node_is_its_node_s_by_name_where_nothing_else_says_so() -> None:
    """Older versions of the shipped operator write no annotations."""
    owner = {"kind": "NodeHealthCheck", "name": "workers", "uid": "uid-check"}
    assert not_ours({"metadata": {"name": "node-7", "ownerReferences": [owner]}}, ABOUT_NODE) == ""
    assert not_ours({"metadata": {"name": "node-7x", "ownerReferences": [owner]}}, ABOUT_NODE) == "it is about node-7x"


@given(
    node=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?", fullmatch=True),
    names=st.lists(st.from_regex(r"[a-z]{1,12}", fullmatch=True), min_size=2, max_size=4, unique=True),
    uids=st.tuples(st.uuids(), st.uuids()).filter(lambda pair: pair[0] != pair[1]),
)
def test_a_name_of_its_own_is_one_for_each_template_and_each_node_object(
    node: str, names: list[str], uids: tuple[Any, Any]
) -> None:
    """S33: the same question has the same answer, and no two have one."""

    def found() -> list[str]:
        each = replace(ABOUT_NODE, node=node, several=True)
        templates = [replace(TEMPLATE, name=name) for name in names]
        return [replace(each, template=template, node_uid=str(uid)).name for template in templates for uid in uids]

    assert found() == found()
    assert len(set(found())) == 2 * len(names)
    assert all(len(name) <= LONGEST_NAME and name.startswith(node[:200]) for name in found())


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({}, "spec.template"),
        ({"spec": {}}, "spec.template"),
        ({"spec": {"template": "x"}}, "spec.template"),
        ({"spec": {"template": {"spec": "x"}}}, "spec.template.spec"),
    ],
)
def test_a_template_that_makes_nothing_is_a_mistake(template: dict[str, Any], field: str) -> None:
    with pytest.raises(PolicyError) as refused:
        made(template, ABOUT_NODE)
    assert refused.value.field == field


def test_a_template_says_the_spec_and_labels_and_never_its_owner() -> None:
    metadata = {"name": "x", "namespace": "y", "labels": {"a": "b"}, "annotations": {"c": "d", "nodewarden.io/incident": "two"}}
    template = {"spec": {"template": {"metadata": {**metadata, "ownerReferences": [{}]}}}}
    found = made(template, ABOUT_MACHINE, cluster_name="blue", control_plane=True)
    assert (found["metadata"]["name"], found["metadata"]["namespace"], found["spec"]) == ("machine-7", "machines", {})
    assert found["metadata"]["labels"] == {"a": "b", "cluster.x-k8s.io/cluster-name": "blue"}
    assert found["metadata"]["annotations"]["c"] == "d"
    assert found["metadata"]["annotations"]["nodewarden.io/incident"] == "one"
    assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == ["uid-machine"]


def test_what_is_made_shares_nothing_with_its_template() -> None:
    found = made(INNER, ABOUT_NODE)
    found["spec"]["strategy"] = "changed"
    assert INNER["spec"]["template"]["spec"] == {"strategy": "Automatic"}


@pytest.mark.parametrize("status", [None, "x", [], {"conditions": "x"}, {"conditions": ["x", {}]}, {"conditions": None}])
def test_a_status_of_any_shape_says_nothing(status: object) -> None:
    """Any controller's object: what it writes is not ours to choose."""
    document = {"metadata": {}, "status": status}
    assert (statuses_of(document).get("Succeeded", ""), progress_message(document, TOLD), phase_of(document)) == ("", "", "")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"lastError": "no watchdog", "conditions": [{"type": "Succeeded", "message": "x"}]}, "no watchdog"),
        ({"conditions": [{"type": "Processing", "message": "at work"}, {"type": "Succeeded", "message": "done"}]}, "done"),
        ({"conditions": [{"type": "Processing", "reason": "Started", "message": ""}]}, "Started"),
        ({"failureMessage": "out of tries"}, "out of tries"),
    ],
)
def test_its_controller_s_words_are_found_wherever_it_writes_them(status: dict[str, Any], words: str) -> None:
    assert progress_message({"metadata": {}, "status": status}, TOLD) == words


@pytest.mark.parametrize(
    ("kind", "first"), [("Metal3Remediation", "metal3remediations"), ("NodeRemedy", "noderemedies"), ("NodeFix", "nodefixes")]
)
def test_resources_are_called_as_their_generators_call_them(kind: str, first: str) -> None:
    assert plurals_of(kind)[0] == first


# What the words of a remediation object mean, and how long they are waited for.

MINUTE = timedelta(minutes=1)
STATUSES = ("", "True", "False", "Unknown")


@pytest.mark.parametrize(
    ("told", "progress", "why"),
    [
        (RemediationConditions(), Progress.WORKING, "no controller has taken it up yet"),
        (RemediationConditions(processing="True", succeeded="Unknown"), Progress.WORKING, "Processing is True"),
        (RemediationConditions(processing="False", succeeded="True"), Progress.SUCCEEDED, "Succeeded is True"),
        (RemediationConditions(processing="True", succeeded="True"), Progress.SUCCEEDED, "Succeeded is True"),
        (RemediationConditions(processing="False", succeeded="False"), Progress.FAILED, "Succeeded is False"),
        (RemediationConditions(processing="True", succeeded="False"), Progress.FAILED, "Succeeded is False"),
        (
            RemediationConditions(processing="False", succeeded="Unknown"),
            Progress.WORKING,
            "Processing is False, and its result is not reported",
        ),
        (RemediationConditions(phase="Running"), Progress.WORKING, "its phase is Running"),
        (RemediationConditions(phase="Waiting"), Progress.WORKING, "its phase is Waiting"),
        (RemediationConditions(phase="Failed"), Progress.FAILED, "its phase is Failed"),
        (RemediationConditions(phase="Failed", succeeded="True"), Progress.FAILED, "its phase is Failed"),
    ],
)
def test_what_a_remediation_says(told: RemediationConditions, progress: Progress, why: str) -> None:
    followed = follow(told)
    assert (followed.progress, followed.why) == (progress, why)


CONTRACT, STORAGE = "self-node-remediation.medik8s.io/v1alpha1", "storage-based-remediation.medik8s.io/v1alpha1"


@pytest.mark.parametrize(
    ("kind", "conditions", "succeeded"),
    [
        ((CONTRACT, "SelfNodeRemediation"), {"Processing": "False", "Succeeded": "False"}, "False"),
        ((CONTRACT, "SelfNodeRemediation"), {"Processing": "False", "Succeeded": "True"}, "True"),
        (("example.io/v1", "ThingRemediation"), {"Processing": "True", "Succeeded": "Unknown"}, "Unknown"),
        ((STORAGE, "StorageBasedRemediation"), {}, ""),
        ((STORAGE, "StorageBasedRemediation"), {"FencingInProgress": "True"}, ""),
        ((STORAGE, "StorageBasedRemediation"), {"FencingInProgress": "False", "Ready": "False"}, "False"),
        # After a failure it tries again, and says so by the one condition alone.
        ((STORAGE, "StorageBasedRemediation"), {"FencingInProgress": "True", "Ready": "False"}, ""),
        (
            (STORAGE, "StorageBasedRemediation"),
            {"FencingInProgress": "False", "FencingSucceeded": "True", "Ready": "True"},
            "True",
        ),
        ((STORAGE, "StorageBasedRemediation"), {"Succeeded": "False"}, ""),
        (("infrastructure.cluster.x-k8s.io/v1beta1", "Metal3Remediation"), {"Succeeded": "True"}, ""),
        (("customized-user-remediation.medik8s.io/v1alpha1", "CustomizedUserRemediation"), {"Succeeded": "True"}, ""),
    ],
)
def test_each_kind_is_read_in_its_own_words(kind: tuple[str, str], conditions: dict[str, str], succeeded: str) -> None:
    """What a kind never says is not taken from it."""
    assert remediator_of(*kind).has_succeeded(conditions) == succeeded


def test_a_row_of_the_settings_goes_before_ours() -> None:
    mine = Remediator(group="self-node-remediation.medik8s.io", kind="SelfNodeRemediation", succeeded="Done", failed="Done")
    assert remediator_of(CONTRACT, "SelfNodeRemediation", (mine, *REMEDIATORS)).has_succeeded({"Done": "True"}) == "True"


def test_nothing_but_the_word_itself_is_success() -> None:
    """S3, S7: unknown, absent or contradictory is never success."""
    for processing, succeeded, permanent, phase in product(STATUSES, STATUSES, STATUSES, ("", "Running", "Failed")):
        told = RemediationConditions(
            processing=processing, succeeded=succeeded, permanent_node_deletion_expected=permanent, phase=phase
        )
        assert (follow(told).progress is Progress.SUCCEEDED) is (succeeded == "True" and phase != "Failed")
        assert to_be_given_up(told) is (succeeded != "True")


def test_a_node_that_is_to_go_is_told_apart_from_one_that_vanishes() -> None:
    assert follow(RemediationConditions(permanent_node_deletion_expected="True")).node_goes
    assert follow(RemediationConditions(phase=PHASE_DELETING)).node_goes
    assert not follow(RemediationConditions(permanent_node_deletion_expected="Unknown")).node_goes
    assert not follow(RemediationConditions(permanent_node_deletion_expected="False", succeeded="True")).node_goes
