"""How a simulated KubeadmControlPlane remediates: one Machine at a time, and never what it could not do without."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from simulator.etcd import EtcdMember
from simulator.machine_systems.control_plane import (
    COMPONENTS,
    ETCD_MEMBER,
    IN_PROGRESS,
    REMEDIATION_FOR,
    Attempt,
    decide,
    etcd_survives,
    may_grow,
)
from simulator.machine_systems.remediation import CANNOT, DEFERRED, DELETING
from simulator.objects import JsonObject, name_of, timestamp
from tests.simulator.machines.fleets import condition

pytestmark = pytest.mark.timeout(40)

NOW = datetime.now(UTC).replace(microsecond=0)
ALL = (*COMPONENTS, ETCD_MEMBER)


def machine(
    name: str,
    *,
    sick: bool = False,
    joined: bool = True,
    broken: tuple[str, ...] = (),
    going: bool = False,
    age: int = 100,
    annotations: dict[str, str] | None = None,
) -> JsonObject:
    """One whose node has its name. sick: condemned. broken: the conditions that are not True."""
    listed = [condition("HealthCheckSucceeded", "False" if sick else "True", "AsJudged")]
    listed += [condition("OwnerRemediated", "False", "WaitingForRemediation")] if sick else []
    listed += [condition(each, "Unknown" if each in broken else "True", "Seen") for each in ALL]
    return {
        "metadata": {
            "name": name,
            "labels": {},
            "annotations": annotations or {},
            "creationTimestamp": timestamp(NOW - timedelta(seconds=age)),
            **({"deletionTimestamp": timestamp(NOW)} if going else {}),
        },
        "status": {"conditions": listed, **({"nodeRef": {"name": name}} if joined else {})},
    }


def sick(name: str, **more: Any) -> JsonObject:
    return machine(name, sick=True, **{"broken": ALL, **more})


def control_plane(*, initialized: bool = True, mark: str = "", remediation: dict[str, int] | None = None) -> JsonObject:
    return {
        "metadata": {"name": "control-plane", "annotations": {IN_PROGRESS: mark} if mark else {}},
        "spec": {"replicas": 3, "remediation": remediation or {}},
        "status": {"initialization": {"controlPlaneInitialized": initialized}},
    }


def members(*names: str) -> list[EtcdMember]:
    return [EtcdMember(name=name) for name in names]


M1, M2, M3 = sick("m1"), machine("m2"), machine("m3")
THREE = members("m1", "m2", "m3")
ADDED = EtcdMember(name="m4", learner=True)
MARK = Attempt(machine="gone", at=NOW, retries=0).written()


@pytest.mark.parametrize(
    ("machines", "known", "owner", "expected"),
    [
        ([machine("m1"), M2, M3], THREE, control_plane(), None),
        ([M1, M2, M3], THREE, control_plane(), "m1 is deleted"),
        ([M1, M2], members("m1", "m2"), control_plane(), "m1 is deleted"),
        ([M1], members("m1"), control_plane(), f"m1 {CANNOT}"),
        ([M1], members("m1"), control_plane(initialized=False), "m1 is deleted"),
        ([M1, M2, M3], THREE, control_plane(mark=MARK), "m1 None"),
        ([M1, M2, machine("m3", age=-5)], THREE, control_plane(mark=MARK), "m1 is deleted"),
        ([M1, M2, machine("m3", annotations={REMEDIATION_FOR: MARK})], THREE, control_plane(mark=MARK), "m1 is deleted"),
        ([M1, M2, machine("m3", joined=False)], THREE, control_plane(), f"m1 {DEFERRED}"),
        ([M1, M2, machine("m3", going=True)], THREE, control_plane(), f"m1 {DEFERRED}"),
        ([sick("m1", going=True), M2, M3], THREE, control_plane(), "m1 None"),
        ([sick("m1", going=True), M2, M3], THREE, control_plane(mark=MARK.replace("gone", "m1")), f"m1 {DELETING}"),
        ([M1, M2, M3], [], control_plane(), f"m1 {DEFERRED}"),
        ([M1, machine("m2", broken=COMPONENTS), machine("m3", broken=COMPONENTS)], THREE, control_plane(), f"m1 {CANNOT}"),
        ([M1, machine("m2", broken=("SchedulerPodHealthy",)), M3], THREE, control_plane(), "m1 is deleted"),
        ([M1, machine("m2", broken=(ETCD_MEMBER,)), M3], THREE, control_plane(), f"m1 {CANNOT}"),
        ([M1, M2, M3], [*THREE, ADDED], control_plane(), f"m1 {CANNOT}"),
        ([sick("m1", joined=False), M2, M3], [*THREE, ADDED], control_plane(), "m1 is deleted"),
    ],
)
def test_who_is_remediated_and_who_has_to_wait(
    machines: list[JsonObject], known: list[EtcdMember], owner: JsonObject, expected: str | None
) -> None:
    decision = decide(owner, machines, known, NOW)
    said = None
    if decision is not None:
        said = f"{name_of(decision.machine)} {'is deleted' if decision.attempt else decision.reason}"
    assert said == expected


FOUR = [sick("m1"), machine("m2"), machine("m3"), machine("m4")]
FIVE = members("m1", "m2", "m3", "m4", "m5")
NEW = EtcdMember(name="")


@pytest.mark.parametrize(
    ("machines", "known", "without", "plus", "safe"),
    [
        ([M1, M2, M3], THREE, "m1", False, True),
        ([M1, sick("m2"), M3], THREE, "m1", False, False),
        ([M1, M2], members("m1", "m2"), "m1", False, True),
        ([M1], members("m1"), "m1", False, False),
        ([*FOUR, machine("m5")], FIVE, "m1", False, True),
        ([*FOUR, sick("m5")], FIVE, "m1", False, True),
        ([*FOUR[:2], sick("m3"), FOUR[3], sick("m5")], FIVE, "m1", False, False),
        ([M1, M2, M3], [*THREE, NEW], "m1", False, False),
        (FOUR, [*THREE, ADDED], "m1", False, False),
        ([M1, M2], THREE, "m1", False, True),
        ([M1, M2], [*members("m1", "m2"), EtcdMember(name="m3", alarm="NOSPACE")], "m1", False, False),
        ([], [], "", True, True),
        ([M2], members("m2"), "", True, True),
        ([M2, M3], members("m2", "m3"), "", True, True),
        ([M1, M3], members("m1", "m3"), "", True, False),
    ],
)
def test_whether_etcd_keeps_its_quorum(
    machines: list[JsonObject], known: list[EtcdMember], without: str, *, plus: bool, safe: bool
) -> None:
    assert etcd_survives(machines, known, without=without, plus=plus) is safe


def test_where_there_is_no_machine_one_may_be_added() -> None:
    assert may_grow(control_plane(), [], [])
