"""Which volumes have failed, by what is said of a node: only what is named counts, and only what is there can be named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from policy.fence.plan import CORDON, Act, Chosen, FencingPlan, PlannedMethod, PowerDevice
from policy.remediation.failed_volumes import (
    AttachedVolume,
    Failure,
    PodOnNode,
    VolumeMessage,
    VolumeRule,
    detaching,
    find_failure,
    read_volume_template,
)
from policy.values.errors import PolicyError

DATABASE = AttachedVolume(name="pvc-5d1b", handle="vol-0aa1")
LOGS = AttachedVolume(name="pvc-77c0", handle="vol-0aa12")
PLAIN = AttachedVolume(name="data", handle="projects/p/zones/z/disks/backup")
NOWHERE = AttachedVolume(name="pvc-99", handle="")
ATTACHED = (DATABASE, LOGS, PLAIN)

MOUNTS = PodOnNode(key="demo/database-0", uid="0f3c-1", volumes=("pvc-5d1b",))
BOTH = PodOnNode(key="demo/report", uid="0f3c-2", volumes=("pvc-5d1b", "pvc-77c0"))
CRASHES = PodOnNode(key="demo/client", uid="0f3c-3")
ALIKE = PodOnNode(key="demo/client-2", uid="0f3c-4")
AGENT = PodOnNode(key="demo/agent", uid="0f3c-5", stays=True)
PODS = (MOUNTS, BOTH, CRASHES, ALIKE, AGENT)


def found(*messages: str, attached: tuple[AttachedVolume, ...] = ATTACHED, pods: tuple[PodOnNode, ...] = PODS) -> Failure:
    return find_failure([VolumeMessage(by="VolumeUnavailable", message=each) for each in messages], attached, pods)


@pytest.mark.parametrize(
    ("message", "volumes"),
    [
        ("I/O errors on vol-0aa1", [DATABASE]),
        ("vol-0aa12: not accessible", [LOGS]),
        ("PersistentVolume pvc-5d1b can't be read", [DATABASE]),
        ("/var/lib/kubelet/plugins/pv/pvc-77c0/globalmount: Input/output error", [LOGS]),
        ("aws://eu-west-1a/vol-0aa1 is gone", [DATABASE]),
        ("projects/p/zones/z/disks/backup is gone", [PLAIN]),
        ('applications lost the disk "backup"', [PLAIN]),
        ("PersistentVolume/data is gone", [PLAIN]),
        ("lost data, no backup", []),
        ("myvol-0aa1 is gone", []),
        ("vol-0aa1-copy is gone", []),
        ("vol-0bb2 of another node is gone", []),
        ("", []),
    ],
)
def test_a_volume_is_named_by_whatever_it_is_called_as_a_word_of_its_own(message: str, volumes: list[AttachedVolume]) -> None:
    """S9: a longer id that begins alike is another volume, and a word of prose is none."""
    failure = found(message)
    assert list(failure.volumes) == volumes
    assert bool(failure.refused) is (not volumes)


@pytest.mark.parametrize(
    ("message", "crashing"),
    [
        ("vol-0aa12: demo/client crashes", [CRASHES]),
        ("vol-0aa12: demo/client-2 crashes", [ALIKE]),
        ("vol-0aa12: (demo/client, demo/client-2).", [CRASHES, ALIKE]),
        ("vol-0aa12: pod 0f3c-3 crashes", [CRASHES]),
        ("vol-0aa12: other-demo/client crashes", []),
        ("vol-0aa12: demo/client/sidecar crashes", []),
        ("vol-0aa12: client crashes", []),
        ("vol-0aa12: demo/agent crashes", []),
    ],
)
def test_pods_that_crash_are_named_with_their_namespace(message: str, crashing: list[PodOnNode]) -> None:
    """S29: what belongs to the node stays."""
    assert list(found(message).crashing) == crashing


def test_both_kinds_of_pods_go_those_that_mount_it_and_those_that_crash() -> None:
    """The example of the node-fencing proposal."""
    failure = found("vol-0aa1 can't be reached", "demo/client and demo/report crash")
    assert failure.volumes == (DATABASE,)
    assert failure.mounting == (MOUNTS, BOTH)
    assert failure.crashing == (CRASHES,)
    assert str(failure) == "vol-0aa1 (pvc-5d1b); demo/database-0, demo/report mounting; demo/client crashing"


@pytest.mark.parametrize(
    ("messages", "attached", "pods", "why"),
    [
        (["demo/client crashes"], ATTACHED, PODS, "'demo/client crashes': that names no volume attached to the node (attached"),
        ([], ATTACHED, PODS, "no message mentions a volume"),
        (["vol-0aa1 is gone"], (), PODS, "(attached: none)"),
        (["pvc-99 is gone"], (NOWHERE,), PODS, "pvc-99 does not say what its cloud calls it"),
        (["vol-0aa1"], ATTACHED, (PodOnNode(key="a/logs", uid="u", volumes=("pvc-5d1b",), stays=True),), "a/logs mounts it"),
    ],
)
def test_where_it_is_not_clear_nothing_is_named_at_all(
    messages: list[str], attached: tuple[AttachedVolume, ...], pods: tuple[PodOnNode, ...], why: str
) -> None:
    """S7: nothing to do is no success, and the reason is told."""
    failure = found(*messages, attached=attached, pods=pods)
    assert why in failure.refused
    assert (failure.volumes, failure.mounting, failure.crashing) == ((), (), ())


INSTANCE = PowerDevice(driver="ec2", endpoint="ec2://eu-west-1/i-7")
BMC = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623")
ONE = Failure(volumes=(DATABASE,), mounting=(MOUNTS,), crashing=(CRASHES,))


def test_the_methods_come_in_the_order_of_the_proposal_and_are_about_those_volumes_only() -> None:
    methods = detaching(FencingPlan(source="t", levels=((INSTANCE,),)), ONE, eviction_timeout=timedelta(minutes=1))
    wanted = [Act.CHECK_VOLUMES, Act.CORDON, Act.DRAIN, Act.DETACH_VOLUMES, Act.FREE_CUT_PODS]
    assert [method.act for method in methods] == wanted
    only = Chosen(handles=("vol-0aa1",), volumes=("pvc-5d1b",), pods=("0f3c-3",))
    assert {method.act for method in methods if method.only != only} == {CORDON.act}
    assert methods[2].timeout == timedelta(minutes=1)
    assert "force" not in methods[2].parameters, "a pod that nothing would make anew is not evicted"


def test_the_machine_is_the_one_whose_volumes_the_plan_names_else_that_of_its_cloud() -> None:
    named = PlannedMethod(name="detach", act=Act.DETACH_VOLUMES, device=INSTANCE)
    methods = detaching(FencingPlan(source="t", levels=((BMC,),), isolation=(named,)), ONE)
    assert [method.device for method in methods if method.device is not None] == [INSTANCE, INSTANCE]
    with pytest.raises(PolicyError, match="expected a device of a cloud with volumes that we know"):
        detaching(FencingPlan(source="t", levels=((BMC,),)), ONE)


@pytest.mark.parametrize(
    ("handle", "listed", "has"),
    [
        ("vol-1", "vol-1", True),
        ("vol-1", "vol-12", False),
        ("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/a", "projects/p/zones/z/disks/a", True),
        ("a", "projects/p/zones/z/disks/a", True),
        ("projects/p/zones/y/disks/a", "projects/p/zones/z/disks/a", False),
        ("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/a", "projects/p/zones/z/disks/aa", False),
    ],
)
def test_a_handle_from_before_csi_is_the_disk_of_that_name(handle: str, listed: str, has: bool) -> None:
    assert Chosen(handles=(handle,), volumes=("pv",)).has(listed) is has


def template(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "VolumeDetachmentTemplate",
        "metadata": {"name": "volumes", "namespace": "nodewarden"},
        "spec": {"template": {"spec": spec}},
    }


def test_a_template_names_conditions_and_times() -> None:
    rule = read_volume_template(template(conditions=["A", "B", "A"], eventsWithin="1h", evictionTimeout="30s"))
    assert rule == VolumeRule(conditions=("A", "B"), events_within=timedelta(hours=1), eviction_timeout=timedelta(seconds=30))
    assert read_volume_template(template(conditions=["A"])) == VolumeRule(conditions=("A",))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"conditions": []}, "conditions"),
        ({}, "conditions"),
        ({"conditions": [""]}, "conditions"),
        ({"conditions": "A"}, "conditions"),
        ({"conditions": ["A"], "evictionTimeOut": "1m"}, "evictionTimeOut"),
        ({"conditions": ["A"], "eventsWithin": "48h"}, "eventsWithin"),
        ({"conditions": ["A"], "evictionTimeout": "soon"}, "evictionTimeout"),
    ],
)
def test_what_can_not_be_read_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(PolicyError, match=rf"VolumeDetachmentTemplate/nodewarden/volumes.*{field}"):
        read_volume_template(template(**changes))
    with pytest.raises(PolicyError, match="expected VolumeDetachmentTemplate"):
        read_volume_template(template(conditions=["A"]) | {"kind": "RebootTemplate"})
