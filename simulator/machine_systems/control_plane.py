"""A KubeadmControlPlane of Cluster API: its objects, and the rules by which it remediates one of its Machines.

Pure, like the other modules here; `controllers/kubeadm_control_plane.py` acts. One Machine at a time: it is deleted only where
what would be left has a quorum of etcd and one control plane of which everything is well, and its replacement inherits what has
been tried. Left out, knowingly: upgrades and their preconditions, etcd that the control plane does not manage.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from simulator.etcd import EtcdMember
from simulator.machine_systems.cluster_api import CLUSTER_NAME, ClusterApi
from simulator.machine_systems.contract import ZONE, annotation, created_at
from simulator.machine_systems.remediation import CANNOT, DEFERRED, DELETING, is_condemned, says_remediate
from simulator.objects import READY, JsonObject, condition_status, is_terminating, name_of, owner_reference, timestamp
from simulator.resources import Resource

KUBEADM_CONTROL_PLANES = Resource(
    api_version="controlplane.cluster.x-k8s.io/v1beta2", kind="KubeadmControlPlane", plural="kubeadmcontrolplanes"
)
NAME = "control-plane"
LABEL = "cluster.x-k8s.io/control-plane"
IN_PROGRESS = "controlplane.cluster.x-k8s.io/remediation-in-progress"
"""On the KubeadmControlPlane, from the deletion of a Machine until its replacement is created."""
REMEDIATION_FOR = "controlplane.cluster.x-k8s.io/remediation-for"
"""On the replacement: for which Machine, since when, and how many have been tried before."""

ETCD_MEMBER = "EtcdMemberHealthy"
COMPONENTS = ("APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy", "EtcdPodHealthy")
MIN_HEALTHY_SECONDS = 3600
FEWEST = 2
"""So many Machines an initialized control plane has to have before one of them is taken."""


# Objects ---------------------------------------------------------------------------------------------------------------------


def control_plane(system: ClusterApi, *, replicas: int, remediation: Mapping[str, int]) -> JsonObject:
    """remediation: maxRetry, retryPeriodSeconds, minHealthyPeriodSeconds, each as far as it is set."""
    reference = {"apiGroup": "infrastructure.simulated", "kind": "SimulatedMachineTemplate", "name": NAME}
    return {
        "apiVersion": KUBEADM_CONTROL_PLANES.api_version,
        "kind": KUBEADM_CONTROL_PLANES.kind,
        "metadata": {"name": NAME, "namespace": system.namespace, "labels": {"cluster.x-k8s.io/cluster-name": CLUSTER_NAME}},
        "spec": {
            "replicas": replicas,
            "version": "v1.34.0",
            "machineTemplate": {"spec": {"infrastructureRef": reference}},
            **({"remediation": dict(remediation)} if remediation else {}),
        },
    }


def machine_of(system: ClusterApi, owner: JsonObject, *, zone: str, remediation_for: str = "") -> JsonObject:
    """A new Machine of the control plane, without a name of its own."""
    return {
        "apiVersion": system.machines.api_version,
        "kind": system.machines.kind,
        "metadata": {
            "generateName": f"{name_of(owner)}-",
            "namespace": system.namespace,
            "labels": {
                **system.labels(zone),
                "role": "control-plane",
                LABEL: "",
                "cluster.x-k8s.io/control-plane-name": name_of(owner),
            },
            "annotations": {REMEDIATION_FOR: remediation_for} if remediation_for else {},
            "ownerReferences": [owner_reference(owner)],
            "finalizers": [system.finalizer],
        },
        "spec": system.machine_spec(name_of(owner)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is known of a remediation: the Machine that was deleted, when, and how many had been tried before in this sequence."""

    machine: str
    at: datetime
    retries: int

    @classmethod
    def read(cls, text: str) -> Attempt | None:
        """As an annotation has it; None for ""."""
        if not text:
            return None
        raw = json.loads(text)
        return cls(machine=raw["machine"], at=datetime.fromisoformat(raw["timestamp"]), retries=int(raw["retryCount"]))

    def written(self) -> str:
        return json.dumps({"machine": self.machine, "timestamp": timestamp(self.at), "retryCount": self.retries})


# Health ----------------------------------------------------------------------------------------------------------------------


def health(machine: JsonObject, node: JsonObject | None, members: Sequence[EtcdMember]) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of the conditions of a Machine by type. Components are looked at through the kubelet, so no
    caller knows them once it is silent."""
    if is_terminating(machine):
        return dict.fromkeys((*COMPONENTS, ETCD_MEMBER), ("False", "Deleting", "its Machine is being deleted"))
    name = node_named(machine)
    if node is None or not name:
        return dict.fromkeys((*COMPONENTS, ETCD_MEMBER), ("Unknown", "InspectionFailed", "it has no Node"))
    match condition_status(node, READY):
        case "True":
            said = dict.fromkeys(COMPONENTS, ("True", "Running", ""))
        case "False":
            said = dict.fromkeys(COMPONENTS, ("False", "NotRunning", "its Node is not ready"))
        case _:
            said = dict.fromkeys(COMPONENTS, ("Unknown", "InspectionFailed", "its Node is silent"))
    member = next((each for each in members if each.name == name), None)
    if member is None:
        problem = "etcd has no member of this name"
    elif member.learner:
        problem = "the member is still a learner"
    elif member.alarm:
        problem = f"the member raises the alarm {member.alarm}"
    else:
        status = said[COMPONENTS[-1]][0]
        return said | {
            ETCD_MEMBER: {
                "True": ("True", "Healthy", ""),
                "False": ("False", "NotHealthy", "its Node is not ready"),
                "Unknown": ("Unknown", "InspectionFailed", "its Node is silent"),
            }[status]
        }
    return said | {ETCD_MEMBER: ("False", "NotHealthy", problem)}


def node_named(machine: JsonObject) -> str:
    return str(((machine.get("status") or {}).get("nodeRef") or {}).get("name", ""))


def is_whole(machine: JsonObject) -> bool:
    """All of it is known to be well."""
    return bool(node_named(machine)) and all(condition_status(machine, each) == "True" for each in (*COMPONENTS, ETCD_MEMBER))


# Decisions -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What comes of a condemned Machine: it is deleted, and `attempt` is remembered; or what it is told instead. Both are None
    where there is nothing to say. look_again: in how many seconds, where only time has to pass."""

    machine: JsonObject
    attempt: Attempt | None = None
    reason: str | None = None
    message: str = ""
    look_again: float | None = None


def decide(
    control_plane: JsonObject, machines: Sequence[JsonObject], members: Sequence[EtcdMember], now: datetime
) -> Decision | None:
    """The Machine that is worst off, and what is done with it; None where none is condemned."""
    condemned = sorted(filter(is_condemned, machines), key=urgency)
    if not condemned:
        return None
    machine = condemned[0]
    mark = Attempt.read(annotation(control_plane, IN_PROGRESS))
    if is_terminating(machine) and mark is not None and mark.machine == name_of(machine):
        return Decision(machine=machine, reason=DELETING, message="its KubeadmControlPlane deletes it")
    if is_terminating(machine) or in_progress(control_plane, machines) is not None:
        return Decision(machine=machine)
    strategy = control_plane["spec"].get("remediation") or {}
    decision = try_again(machine, strategy, now)
    initialization = (control_plane.get("status") or {}).get("initialization") or {}
    if decision.reason is not None or not initialization.get("controlPlaneInitialized"):
        return decision
    if len(machines) < FEWEST:
        return Decision(machine=machine, reason=CANNOT, message="it is the only Machine of the control plane")
    if any(condition_status(each, "HealthCheckSucceeded") != "False" and not node_named(each) for each in machines):
        return Decision(machine=machine, reason=DEFERRED, message="another Machine of the control plane is being provisioned")
    if any(map(is_terminating, machines)):
        return Decision(machine=machine, reason=DEFERRED, message="another Machine of the control plane is being deleted")
    if not members:
        return Decision(machine=machine, reason=DEFERRED, message="the members of etcd are not known")
    if not components_survive(machines, without=name_of(machine)):
        return Decision(machine=machine, reason=CANNOT, message="no other control plane has all of its components well")
    if node_named(machine) and not etcd_survives(machines, members, without=node_named(machine)):
        return Decision(machine=machine, reason=CANNOT, message="etcd would lose its quorum")
    return decision


def urgency(machine: JsonObject) -> tuple[bool | float | str, ...]:
    """The smallest goes first: what a person has marked, what never got a Node, what is broken in it, then the oldest."""
    broken = [condition_status(machine, kind) == "True" for kind in (ETCD_MEMBER, COMPONENTS[-1], *COMPONENTS[:-1])]
    return (not says_remediate(machine), bool(node_named(machine)), *broken, created_at(machine), name_of(machine))


def in_progress(control_plane: JsonObject, machines: Sequence[JsonObject]) -> Attempt | None:
    """The remediation without its replacement. The mark may be older than that, where its controller has ended between
    the creation of the replacement and the removal of the mark."""
    text = annotation(control_plane, IN_PROGRESS)
    attempt = Attempt.read(text)
    if attempt is None:
        return None
    replaced = any(created_at(each) > attempt.at.timestamp() or annotation(each, REMEDIATION_FOR) == text for each in machines)
    return None if replaced else attempt


def try_again(machine: JsonObject, strategy: Mapping[str, int], now: datetime) -> Decision:
    """Whether the control plane's own limits let it be tried. A replacement that fails within minHealthyPeriod is one more try of
    the same sequence; after that it is a new trouble, and counting begins anew."""
    last = Attempt.read(annotation(machine, REMEDIATION_FOR))
    first = Attempt(machine=name_of(machine), at=now, retries=0)
    if last is None or last.at + timedelta(seconds=strategy.get("minHealthyPeriodSeconds", MIN_HEALTHY_SECONDS)) <= now:
        return Decision(machine=machine, attempt=first)
    left = (last.at + timedelta(seconds=strategy.get("retryPeriodSeconds", 0)) - now).total_seconds()
    if left > 0:
        message = f"the last try, of {last.machine}, is too recent (retryPeriodSeconds)"
        return Decision(machine=machine, reason=DEFERRED, message=message, look_again=left + 0.01)
    if "maxRetry" in strategy and last.retries >= strategy["maxRetry"]:
        return Decision(machine=machine, reason=CANNOT, message=f"it has been tried {last.retries} times already (maxRetry)")
    return Decision(machine=machine, attempt=Attempt(machine=name_of(machine), at=now, retries=last.retries + 1))


def components_survive(machines: Sequence[JsonObject], *, without: str) -> bool:
    """Whether one control plane of which everything is well remains."""
    return any(
        all(condition_status(machine, kind) == "True" for kind in COMPONENTS)
        for machine in machines
        if name_of(machine) != without
    )


def etcd_survives(
    machines: Sequence[JsonObject], members: Sequence[EtcdMember], *, without: str = "", plus: bool = False
) -> bool:
    """Whether etcd keeps its quorum without the member of a node, or with one more. The worst is assumed: a member without a name
    never starts, and a new one is unhealthy, except where there is one at most to begin with."""
    by_node = {node_named(machine): machine for machine in machines if node_named(machine)}
    voting, learners, unhealthy = int(plus), 0, int(plus and len(members) > 1)
    for member in members:
        if not member.name:
            learners, unhealthy = learners + 1, unhealthy + 1
            continue
        if member.name == without:
            continue
        learners, voting = learners + member.learner, voting + (not member.learner)
        machine = by_node.get(member.name)
        healthy = condition_status(machine, ETCD_MEMBER) == "True" if machine is not None else not member.alarm
        unhealthy += not healthy
    return learners == 0 and voting - unhealthy >= voting // 2 + 1


def may_grow(control_plane: JsonObject, machines: Sequence[JsonObject], members: Sequence[EtcdMember]) -> bool:
    """Whether a Machine may be added: once all is well, or, for a replacement, once what there is can bear one that fails."""
    if not machines:
        return True
    if any(map(is_terminating, machines)):
        return False
    if all(map(is_whole, machines)):
        return True
    replaces = bool(annotation(control_plane, IN_PROGRESS))
    return replaces and bool(members) and components_survive(machines, without="") and etcd_survives(machines, members, plus=True)


def zone_for(machines: Sequence[JsonObject], zones: Sequence[str]) -> str:
    """The zone with the fewest Machines, the first of several."""
    taken = [str((machine["metadata"].get("labels") or {}).get(ZONE, "")) for machine in machines]
    return min(zones, key=lambda zone: (taken.count(zone), zone))
