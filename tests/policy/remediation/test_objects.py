"""Remediation objects as we make them: their names, their owners, and whose one is that is there already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.objects.remediations import plurals_of
from policy.remediation.remediation_objects import (
    LONGEST_NAME,
    WantedObject,
    made,
    not_ours,
    phase_of,
    progress_message,
    statuses_of,
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


def test_a_template_says_the_spec_and_labels_and_never_whose_it_is() -> None:
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
