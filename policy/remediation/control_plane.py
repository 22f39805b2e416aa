"""Whether a member of a control plane may be taken now, and why not (S15).

The preconditions are KubeadmControlPlane's. They also serve control planes without such an owner; then the members are read
from the Nodes and the pods of etcd (`members_from_nodes`). Before a control plane is initialized the rules that protect it do
not apply: there is nothing yet that could be lost.

A scan knows only how many members there are and how many are Ready (`objection_by_count`). All of it is checked again right
before the act (`activities/cluster/live/last_look.py`). OpenShift's own guard of etcd is `policy/objects/nodes.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from policy.checks.health_check import DEFAULT_MIN_HEALTHY_PERIOD, MOST_RETRIES, RetryRules
from policy.objects.machines import OPENSHIFT_MACHINE_ANNOTATION, MachineView
from policy.objects.nodes import CURRENT_CONFIG_ANNOTATION, ETCD_LABEL, SERVING_LABELS, NodeView
from policy.remediation.ladder import OWNER_REMEDIATED
from policy.remediation.memory import read_memory
from policy.values.display_text import some_of
from policy.values.fields import Fields

ETCD_MEMBER, ETCD_POD = "EtcdMemberHealthy", "EtcdPodHealthy"
COMPONENTS = ("APIServerPodHealthy", "ControllerManagerPodHealthy", "SchedulerPodHealthy")
"""Conditions of a control-plane Machine of Cluster API."""

_OF_COMPONENTS = (ETCD_MEMBER, ETCD_POD, *COMPONENTS)

IN_PROGRESS_ANNOTATION = "controlplane.cluster.x-k8s.io/remediation-in-progress"
"""On a KubeadmControlPlane: the machine without its replacement yet, in the format of `memory.REMEDIATION_FOR_ANNOTATION`."""

IGNORANT_OWNERS = ("", "MachineSet")
"""Owners that take no member out of etcd's list when its Machine is deleted."""


class Component(StrEnum):
    """The program that a static pod of a control plane runs."""

    ETCD = "etcd"
    API_SERVER = "kube-apiserver"


_LABELS = {
    ("kube-system", "component", "etcd"): Component.ETCD,
    ("openshift-etcd", "app", "etcd"): Component.ETCD,
    ("kube-system", "component", "kube-apiserver"): Component.API_SERVER,
    ("openshift-kube-apiserver", "app", "openshift-kube-apiserver"): Component.API_SERVER,
}
"""Their namespaces, and the labels by which kubeadm and OpenShift mark them."""


class MemberFate(StrEnum):
    """What happens to a member that is taken."""

    REMOVED = "removed"
    """Its machine is deleted by an owner that takes the member out of etcd's list."""
    STOPPED = "stopped"
    """Its machine is switched off or restarted; etcd goes on counting it."""


class BlockingRule(StrEnum):
    """Which rule holds a member back; a code for programs, beside the sentence."""

    IN_PROGRESS = "in-progress"
    DELETING = "deleting"
    UPGRADE_PENDING = "upgrade-pending"
    LAST_MEMBER = "last-member"
    PROVISIONING = "provisioning"
    NO_API_SERVER = "no-api-server"
    ETCD_UNKNOWN = "etcd-unknown"
    QUORUM = "quorum"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneMember:
    """One Machine, or Node where there are no Machines. node: the name of its Node, which is also the name of its etcd member;
    "" before it has one. true: the types of its conditions that are True; an unknown one is not True. unhealthy: its owner has
    been asked to remediate it."""

    name: str
    node: str = ""
    created: datetime | None = None
    unhealthy: bool = False
    deleting: bool = False
    true: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneView:
    """One control plane at one moment.

    replicas: how many members are wanted, None where no object says. in_progress: machines that a KubeadmControlPlane has begun
    to remediate and not replaced yet. upgrade: the version that it is about to get, "" for none. etcd: its member list, None
    where it can't be read; managed_etcd False: etcd runs elsewhere, and nothing here can harm it.
    """

    members: tuple[ControlPlaneMember, ...]
    replicas: int | None = None
    initialized: bool = True
    in_progress: tuple[str, ...] = ()
    upgrade: str = ""
    etcd: tuple[EtcdMember, ...] | None = None
    managed_etcd: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPod:
    """One static pod of a Node's kubelet, if it belongs to a control plane."""

    component: Component
    node: str
    ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneObjection:
    """Why a member may not be taken now."""

    rule: BlockingRule
    why: str


def component_of(namespace: str, labels: Mapping[str, str]) -> Component | None:
    """Which component a static pod runs, None for all others."""
    return next(
        (found for (space, key, value), found in _LABELS.items() if space == namespace and labels.get(key) == value), None
    )


def is_of_openshift(node: NodeView) -> bool:
    """Whether OpenShift's operators of machines or of their configuration say that the node is theirs."""
    return any(key in node.annotations for key in (CURRENT_CONFIG_ANNOTATION, OPENSHIFT_MACHINE_ANNOTATION))


def members_from_nodes(nodes: Iterable[NodeView], pods: Iterable[StaticPod] = (), lost: Iterable[str] = ()) -> ControlPlaneView:
    """A control plane of which only Nodes and static pods can be read: every control-plane Node is a member.

    Where etcd pods are seen, a Node is a sound voter only with a Ready one, and a pod on any other Node, or on one that is
    gone, is a voter too. Where none is seen, etcd runs within another process or elsewhere: then a Ready Node is a sound voter.
    Where pods of API servers are seen, a Node serves only with a Ready one. Where a label marks the Nodes with etcd, no other
    Node votes, and Nodes with nothing but etcd do not serve. lost: Nodes of control-plane Machines that are gone, and their
    pods with them: each may vote, and none is known to be sound.
    """
    members, seen = {node.name: node for node in nodes if node.control_plane}, tuple(pods)
    voting = {name for name, node in members.items() if ETCD_LABEL in node.labels} or set(members)
    serving = {name for name, node in members.items() if any(label in node.labels for label in SERVING_LABELS)}
    kinds = {pod.component for pod in seen}
    ready = {(pod.component, pod.node) for pod in seen if pod.ready}

    def sound(name: str, component: Component) -> bool:
        node = members.get(name)
        return node is not None and node.ready and (component not in kinds or (component, name) in ready)

    voters = {*voting, *lost, *(pod.node for pod in seen if pod.component is Component.ETCD)}
    return ControlPlaneView(
        members=tuple(
            ControlPlaneMember(
                name=name,
                node=name,
                deleting=node.deleting,
                true=frozenset(
                    ((ETCD_MEMBER, ETCD_POD) if name not in voters or sound(name, Component.ETCD) else ())
                    + (COMPONENTS if name in serving and sound(name, Component.API_SERVER) else ())
                ),
            )
            for name, node in sorted(members.items())
        ),
        etcd=tuple(EtcdMember(name=name, healthy=sound(name, Component.ETCD)) for name in sorted(voters)),
    )


def _member_of(machine: MachineView) -> ControlPlaneMember:
    return ControlPlaneMember(
        name=machine.name,
        node=machine.node_name,
        created=machine.created,
        unhealthy=_given_to_owner(machine),
        deleting=machine.deleting,
        true=frozenset(condition.type for condition in machine.conditions if condition.status == "True"),
    )


def members_from_machines(
    machines: Iterable[MachineView],
    spec: Fields,
    annotations: Mapping[str, str],
    *,
    initialized: bool,
    version: str = "",
    upgrade_step: str = "",
    subject: str,
) -> ControlPlaneView | None:
    """A control plane that a KubeadmControlPlane looks after, by that object and the conditions that it sets on its Machines.
    None where no Machine has any of them: then the controller has not looked, and nothing is known. Raises PolicyError.

    version, upgrade_step: as its Cluster wants them (`WorkloadCluster`), "" where it does not. A member of etcd has the name of
    its Node; a member without a Machine is not seen here.
    """
    listed = [machine for machine in machines if machine.control_plane]
    if not any(condition.type in _OF_COMPONENTS for machine in listed for condition in machine.conditions):
        return None
    members = tuple(_member_of(machine) for machine in sorted(listed, key=lambda each: each.name))
    etcd_of = spec.within_or_empty("kubeadmConfigSpec").within_or_empty("clusterConfiguration").within_or_empty("etcd")
    return ControlPlaneView(
        members=members,
        replicas=spec.whole("replicas", minimum=0, maximum=2**31 - 1) if spec.has("replicas") else None,
        initialized=initialized,
        in_progress=begun_by_owner(annotations, members, subject=subject),
        upgrade=(upgrade_step or version) if version and spec.text("version", "") not in {version, upgrade_step} else "",
        etcd=tuple(EtcdMember(name=each.node, healthy=ETCD_MEMBER in each.true) for each in members if each.node),
        managed_etcd=not etcd_of.has("external"),
    )


def _given_to_owner(machine: MachineView) -> bool:
    condition = machine.condition(OWNER_REMEDIATED)
    return condition is not None and condition.status == "False"


def taking_of(owner: str, *, removes: bool) -> MemberFate:
    """What happens to a member. owner: kind and name of its Machine's controller: a MachineSet makes another Machine, and knows
    nothing of etcd, which goes on counting the one that is gone."""
    return MemberFate.REMOVED if removes and owner.partition("/")[0] not in IGNORANT_OWNERS else MemberFate.STOPPED


def begun_by_owner(annotations: Mapping[str, str], members: Iterable[ControlPlaneMember], *, subject: str) -> tuple[str, ...]:
    """The machine that a KubeadmControlPlane has begun to remediate. Once a machine is created after that, the annotation is
    only a remnant. Raises PolicyError."""
    text = annotations.get(IN_PROGRESS_ANNOTATION)
    if text is None:
        return ()
    begun = read_memory(text, subject=subject, annotation=IN_PROGRESS_ANNOTATION)
    replaced = any(member.created is not None and member.created > begun.at for member in members)
    return () if replaced else (begun.of,)


def read_strategy(spec: Fields) -> RetryRules:
    """The retry rules in the spec of a KubeadmControlPlane: `remediationStrategy`, or `remediation` since v1beta2. Raises
    PolicyError."""
    old = spec.within_or_empty("remediationStrategy")
    new = spec.within_or_empty("remediation")
    given = new if spec.has("remediation") else old
    return RetryRules(
        max_retry=given.whole("maxRetry", minimum=0, maximum=MOST_RETRIES) if given.has("maxRetry") else None,
        retry_period=_period(old, new, "retryPeriod", timedelta(0)),
        min_healthy_period=_period(old, new, "minHealthyPeriod", DEFAULT_MIN_HEALTHY_PERIOD),
    )


def objection_to(plane: ControlPlaneView, name: str, taking: MemberFate) -> ControlPlaneObjection | None:
    """Why that member may not be taken now, None when it may. Its own remediation, if it has begun, is no objection."""
    others = [member for member in plane.members if member.name != name]
    target = next((member for member in plane.members if member.name == name), None)
    if begun := [each for each in plane.in_progress if each != name]:
        return ControlPlaneObjection(
            rule=BlockingRule.IN_PROGRESS, why=f"one at a time: {', '.join(sorted(begun))} is being remediated"
        )
    if target is not None and target.deleting:
        return ControlPlaneObjection(rule=BlockingRule.DELETING, why=f"{name} is being deleted already")
    if plane.upgrade:
        why = f"the control plane is about to be upgraded to {plane.upgrade}; that goes first"
        return ControlPlaneObjection(rule=BlockingRule.UPGRADE_PENDING, why=why)
    if not plane.initialized:
        return None
    if why := only_member(name, len(others), wanted=plane.replicas):
        return ControlPlaneObjection(rule=BlockingRule.LAST_MEMBER, why=why)
    if joining := sorted(member.name for member in others if not member.node and not member.unhealthy and not member.deleting):
        return ControlPlaneObjection(
            rule=BlockingRule.PROVISIONING, why=f"{', '.join(joining)} is about to join; that goes first"
        )
    if deleting := sorted(member.name for member in others if member.deleting):
        return ControlPlaneObjection(rule=BlockingRule.DELETING, why=f"{', '.join(deleting)} is being deleted; one at a time")
    return _without_api_server(plane, name) or _of_etcd(plane, target.node if target is not None else name, taking)


def objection_by_count(
    members: int,
    ready: int,
    *,
    target_ready: bool,
    open_member_episodes: Collection[str],
    removes: bool = False,
    lost: Collection[str] = (),
) -> str:
    """Why a member may not be taken now where only numbers are known, "" where it may.

    Never the only member, never while another member's episode is open (also a parked one: its machine may be off), and never
    so that fewer Ready members are left than a quorum: of today's members, or where its machine is replaced (`removes`) of
    those that are left then, so that one of two may be. lost: members without a Node that is counted
    (`ScanReport.members_without_node`); each may vote in etcd, and none is Ready.
    """
    if open_member_episodes:
        return f"another control-plane member is in an episode: {', '.join(sorted(open_member_episodes))}"
    members += len(lost)
    if why := only_member("it", members - 1):
        return why
    counted = members - 1 if removes else members
    left, needed = ready - (1 if target_ready else 0), _quorum(counted)
    if left < needed:
        why = f"{left} of {counted} control-plane members would be left Ready, a quorum needs {needed}"
        return why + (f"; {some_of(sorted(lost))} counted without a Node: the machine may run and vote in etcd" if lost else "")
    return ""


def only_member(name: str, others: int, *, wanted: int | None = None) -> str:
    """Why the last member is never taken, "" where others are left. wanted: how many the control plane is to have, None where
    no object says."""
    last = others < 1 or (wanted is not None and wanted <= 1)
    return f"{name} is the only member that the control plane has or wants" if last else ""


def _quorum(voters: int) -> int:
    return voters // 2 + 1


def _without_api_server(plane: ControlPlaneView, name: str) -> ControlPlaneObjection | None:
    """Whether no complete set of API server, controller manager and scheduler would be left. Each of kubeadm's talks to the
    others on its own machine, and its API server to the etcd beside it: an incomplete set is of no use."""
    needed = {*COMPONENTS, ETCD_POD} if plane.managed_etcd else set(COMPONENTS)
    left = [member for member in plane.members if member.name != name]
    if any(needed <= member.true for member in left):
        return None
    why = f"no control-plane member of the {len(left)} that would be left has all its components well"
    return ControlPlaneObjection(rule=BlockingRule.NO_API_SERVER, why=why)


def _of_etcd(plane: ControlPlaneView, member: str, taking: MemberFate) -> ControlPlaneObjection | None:
    if not plane.managed_etcd or not member:  # a machine that never had a Node has no known member
        return None
    if not plane.etcd:
        return ControlPlaneObjection(
            rule=BlockingRule.ETCD_UNKNOWN, why="the members of etcd can't be read: what would be left is not known"
        )
    after = after_removal(plane.etcd, member) if taking is MemberFate.REMOVED else while_stopped(plane.etcd, member)
    return None if after.safe else ControlPlaneObjection(rule=BlockingRule.QUORUM, why=after.why)


def _period(old: Fields, new: Fields, name: str, default: timedelta) -> timedelta:
    seconds = f"{name}Seconds"
    if new.has(seconds):
        return timedelta(seconds=new.whole(seconds, minimum=0, maximum=2**31 - 1))
    return old.duration(name, default)


# What is left of an etcd cluster after a change: who votes, how many of them are unwell, and whether that is a quorum (S15).
#
# Computed from the member list, as KubeadmControlPlane does it. Only the list counts: a machine that is not in it is not missed,
# and a member without its machine still votes. To remove a member from the list and to switch off its machine are different acts:
# a member that is switched off is still counted, so of two members one may be removed, but none be switched off.


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdMember:
    """One entry of the list. name "": it has just been added and not started yet. alarm: which one it raises (`NOSPACE`).

    healthy None: its state is unknown, since its machine is not known; then it is well unless it raises an alarm.
    """

    name: str
    learner: bool = False
    alarm: str = ""
    healthy: bool | None = None

    @property
    def well(self) -> bool:
        """Whether it counts towards the quorum."""
        return self.healthy is not False and not self.alarm and bool(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The cluster after the change. safe: it has a quorum, and no learner. why: the numbers in words."""

    safe: bool
    why: str


def after_removal(members: Iterable[EtcdMember], name: str) -> Projection:
    """The cluster without that member: its machine is deleted, and it is removed from the list."""
    return _projected([member for member in members if not name or member.name != name], f"without {name or 'a member'}")


def while_stopped(members: Iterable[EtcdMember], name: str) -> Projection:
    """The cluster with that member in the list but not running: its machine is switched off or restarted."""
    present = tuple(members)
    stopped = [member for member in present if member.name == name and name]
    return _projected([member for member in present if member not in stopped], f"while {name or 'a member'} is stopped", stopped)


def _projected(running: Sequence[EtcdMember], change: str, stopped: Sequence[EtcdMember] = ()) -> Projection:
    present = (*running, *stopped)
    # One without a name is still starting: it will be a learner, if it gets that far.
    learners = sum(member.learner or not member.name for member in present)
    voting = len(present) - learners
    unwell = [member for member in running if not member.well]
    unhealthy = len(unwell) + sum(not member.learner for member in stopped)
    quorum = _quorum(voting)
    safe = voting - unhealthy >= quorum and learners == 0
    return Projection(
        safe=safe,
        why=f"{change} {max(voting - unhealthy, 0)} of etcd's {voting} voters would be well, a quorum is {quorum}"
        + _beside(learners, unwell),
    )


def _beside(learners: int, unwell: Iterable[EtcdMember]) -> str:
    """The learners and the members that are unwell, behind the numbers."""
    names = sorted(f"{each.name or 'one without a name'}{f' ({each.alarm})' if each.alarm else ''}" for each in unwell)
    starting = f"; {learners} of its members {'is' if learners == 1 else 'are'} no voter yet" if learners else ""
    return starting + (f"; unwell: {', '.join(names)}" if names else "")
