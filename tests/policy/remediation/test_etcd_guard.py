"""OpenShift's own guard of etcd: its budget and the guard pods, by the rule of the NodeHealthCheck operator."""

from __future__ import annotations

import pytest

from policy.objects.nodes import EtcdGuard, NodeView
from policy.remediation.control_plane import is_of_openshift

UNSEEN, TWO, WELL = "neither a PodDisruptionBudget nor a guard pod", "expected one PodDisruptionBudget", "allows no disruption"


@pytest.mark.parametrize(
    ("guard", "says"),
    [
        (EtcdGuard(), ""),
        (EtcdGuard(known=True), UNSEEN),
        (EtcdGuard(known=True, guards={"cp-1": "True"}), TWO),
        (EtcdGuard(known=True, disruptions_allowed=(1, 1), guards={"cp-1": "True"}), TWO),
        (EtcdGuard(known=True, disruptions_allowed=(1,)), ""),
        (EtcdGuard(known=True, disruptions_allowed=(1,), guards={"cp-1": "True"}), ""),
        (EtcdGuard(known=True, disruptions_allowed=(0,), guards={"cp-1": "True"}), WELL),
        (EtcdGuard(known=True, disruptions_allowed=(0,), guards={"cp-1": "Unknown"}), WELL),
        (EtcdGuard(known=True, disruptions_allowed=(0,), guards={"cp-1": "False"}), ""),
        (EtcdGuard(known=True, disruptions_allowed=(0,), guards={"cp-2": "True"}), ""),
    ],
)
def test_what_guards_etcd_holds_a_member_or_lets_it_go(guard: EtcdGuard, says: str) -> None:
    """S15: what was looked for and can't be seen holds it as well."""
    objection = guard.objection("cp-1")
    assert says in objection
    assert bool(objection) is bool(says)


@pytest.mark.parametrize(
    ("annotations", "openshift"),
    [
        ({}, False),
        ({"cluster.x-k8s.io/machine": "cp-1"}, False),
        ({"machine.openshift.io/machine": "openshift-machine-api/cp-1"}, True),
        ({"machineconfiguration.openshift.io/currentConfig": "rendered-master-1"}, True),
    ],
)
def test_openshift_is_known_by_what_its_operators_write_on_a_node(annotations: dict[str, str], openshift: bool) -> None:
    assert is_of_openshift(NodeView(name="cp-1", uid="uid-1", annotations=annotations)) is openshift
