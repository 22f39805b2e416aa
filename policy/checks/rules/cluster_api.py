"""How a Cluster API MachineHealthCheck judges: the Machines of one workload cluster with their Nodes there.

A paused Machine, and one that says skip-remediation, leaves the totals altogether. Then, in this order: a person asks for the
remediation; nothing is judged before the control plane is initialized (but for its own Machines) and the infrastructure ready;
the Machine's conditions and the Node's are judged together, and the Machine's reason wins. Messages are in the words of Cluster
API's condition HealthCheckSucceeded.
"""

from __future__ import annotations

from datetime import datetime

from policy.checks.health_check import HealthCheck
from policy.checks.rules.openshift import NODE_STARTING, NODE_UNSEEN, deleting, skipped, starting, unhealthy
from policy.checks.targets import JudgedTarget
from policy.checks.verdicts import (
    HEALTHY,
    RECOVERS,
    FailingCondition,
    Health,
    Standing,
    Verdict,
    by_conditions,
    offences,
    unread,
    watched,
)
from policy.objects.machines import PAUSED_ANNOTATION, REMEDIATE_ANNOTATION, MachineView, WorkloadCluster
from policy.values.machine_apis import CLUSTER_API
from policy.values.times import RESOLUTION, go_duration, later, written

# Reasons of the condition HealthCheckSucceeded, as Cluster API writes them.
HAS_REMEDIATE_ANNOTATION = "HasRemediateAnnotation"
UNHEALTHY_MACHINE = "UnhealthyMachine"
UNHEALTHY_NODE = "UnhealthyNode"
NODE_STARTUP_TIMEOUT = "NodeStartupTimeout"
NODE_DELETED = "NodeDeleted"
MACHINE_FAILED = "MachineHasFailure"

PAUSED = "Paused"
SKIPPED = "SkipRemediation"
NOT_INITIALIZED = "ControlPlaneNotInitialized"
NOT_PROVISIONED = "InfrastructureNotReady"
INFRASTRUCTURE_READY = "InfrastructureReady"

_ASSUMED = WorkloadCluster(namespace="", name="", control_plane_initialized=True, infrastructure_ready=True)
"""Without a Cluster object the circuit breaker is open; its Machines are judged as those of a running cluster."""


class ClusterApiRules:
    """One MachineHealthCheck, prepared for many Machines."""

    __slots__ = ("_check", "_machine_watched", "_node_watched")

    def __init__(self, check: HealthCheck) -> None:
        self._check = check
        self._node_watched = watched(check.conditions)
        self._machine_watched = watched(check.machine_conditions)

    def covers(self, target: JudgedTarget) -> bool:
        """Machines of the check's namespace and cluster that the selector matches."""
        machine = target.machine
        return (
            machine is not None
            and machine.api is CLUSTER_API
            and machine.namespace == self._check.ref.namespace
            and machine.cluster_name == self._check.cluster_name
            and self._check.selector.matches(machine.labels)
        )

    def judge(self, target: JudgedTarget, now: datetime) -> Verdict:
        """What the check thinks of a Machine that it covers."""
        machine = target.machine
        assert machine is not None, "a MachineHealthCheck covers Machines"
        if annotation := machine.kept_out_by:
            message = f"the annotation {annotation} keeps the Machine out of the check and of its totals"
            reason = PAUSED if annotation == PAUSED_ANNOTATION else SKIPPED
            return Verdict(health=Health.SKIPPED, standing=Standing.LEFT_OUT, reason=reason, message=message)
        verdict = self._by_criteria(target, machine, now)
        if machine.deleting:
            return deleting(verdict)
        if verdict is HEALTHY and target.marked:
            return RECOVERS
        return verdict

    def _by_criteria(self, target: JudgedTarget, machine: MachineView, now: datetime) -> Verdict:
        if problem := target.unreadable:
            return unread(problem)
        if REMEDIATE_ANNOTATION in machine.annotations:
            message = f"Health check failed: marked for remediation via {REMEDIATE_ANNOTATION} annotation"
            return unhealthy(reason=HAS_REMEDIATE_ANNOTATION, message=message)
        cluster = target.cluster or _ASSUMED
        if not cluster.control_plane_initialized and not machine.control_plane:
            return skipped(reason=NOT_INITIALIZED, message="not judged: the cluster's control plane is not initialized yet")
        if not cluster.infrastructure_ready:
            if target.node is not None:
                return HEALTHY
            return skipped(reason=NOT_PROVISIONED, message="not judged: the cluster's infrastructure is not ready yet")
        return self._judged(target, machine, cluster, now)

    def _judged(self, target: JudgedTarget, machine: MachineView, cluster: WorkloadCluster, now: datetime) -> Verdict:
        of_machine = offences(machine.conditions, self._machine_watched)
        node = target.node if cluster.control_plane_initialized else None  # until then none is looked up
        of_node = offences(node.conditions, self._node_watched) if node is not None else []
        faults = [f"Machine has failed: {machine.failure}"] if machine.failure else []
        faults += [_fault_message("Machine", offence) for offence in of_machine if offence.over(now)]
        over = [offence for offence in (*of_machine, *of_node) if offence.over(now)]
        node_reason, node_faults, waiting = self._node(target, machine, cluster, of_node, now)
        if not faults and not node_faults:
            running = by_conditions([*of_machine, *of_node], now)
            return waiting if waiting is not None and _sooner(waiting, running) else running
        reason = (MACHINE_FAILED if machine.failure else UNHEALTHY_MACHINE) if faults else node_reason
        message = "Health check failed:\n" + "\n".join(f"  * {fault}" for fault in (*faults, *node_faults))
        started = _startup_clock(machine, cluster) if node_reason == NODE_STARTUP_TIMEOUT else None
        timed_out = later(started, self._check.startup_timeout, RESOLUTION) if started and self._check.startup_timeout else None
        pending = [offence.due for offence in (*of_machine, *of_node) if not offence.over(now)]
        return unhealthy(
            reason=reason,
            message=message,
            since=_earliest([*(offence.condition.since for offence in over), started]),
            expired=_earliest([*(offence.due for offence in over), timed_out]),
            # More faults join the message as they expire.
            due=_earliest([*pending, waiting.due if waiting is not None else None]),
        )

    def _node(
        self, target: JudgedTarget, machine: MachineView, cluster: WorkloadCluster, of_node: list[FailingCondition], now: datetime
    ) -> tuple[str, list[str], Verdict | None]:
        """What is wrong with the Node, and where the check still waits for it, the verdict that says so."""
        if target.node is not None and cluster.control_plane_initialized:
            return UNHEALTHY_NODE, [_fault_message("Node", offence) for offence in of_node if offence.over(now)], None
        if machine.node_name:
            if target.unseen:
                return "", [], skipped(reason=NODE_UNSEEN, message=target.unseen)
            if not cluster.control_plane_initialized:
                return (
                    "",
                    [],
                    skipped(
                        reason=NOT_INITIALIZED,
                        message="the cluster's control plane is not initialized: its Node is not looked up",
                    ),
                )
            return NODE_DELETED, [f"Node {machine.node_name} has been deleted"], None
        timeout = self._check.startup_timeout
        if timeout is None:
            return (
                "",
                [],
                skipped(
                    reason=NODE_STARTING,
                    message="the Machine has no Node yet, and its start-up timeout is 0: it may take for ever",
                ),
            )
        started = _startup_clock(machine, cluster)
        limit = go_duration(timeout)
        if started is None:
            return (
                "",
                [],
                starting(message=f"the Machine has no Node, and nothing says since when: {limit} is waited again", again=timeout),
            )
        due = later(started, timeout, RESOLUTION)
        if now >= due:
            return NODE_STARTUP_TIMEOUT, [f"Node failed to report startup in {limit}"], None
        message = f"the Machine has no Node yet; unhealthy {limit} after {written(started)}"
        return "", [], starting(message=message, since=started, due=due)


def _startup_clock(machine: MachineView, cluster: WorkloadCluster) -> datetime | None:
    """The latest of the moments from which on a Node could have come up, None where that is not known."""
    ready = machine.condition(INFRASTRUCTURE_READY)
    if ready is not None and ready.status == "True" and ready.since is None:
        return None  # its moment could not be read; it may be later than all the others
    moments = (
        machine.created,
        cluster.control_plane_initialized_since if cluster.control_plane_initialized else None,
        cluster.infrastructure_ready_since if cluster.infrastructure_ready else None,
        ready.since if ready is not None and ready.status == "True" else None,
    )
    return max((each for each in moments if each is not None), default=None)


def _earliest(moments: list[datetime | None]) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _fault_message(subject: str, offence: FailingCondition) -> str:
    condition = offence.condition
    return (
        f"Condition {condition.type} on {subject} is reporting status {condition.status} with reason {condition.reason} "
        f"for more than {go_duration(offence.duration)}"
    )


def _sooner(waiting: Verdict, running: Verdict) -> bool:
    """Whether the missing Node is the reason to show: always, unless a condition of the Machine expires before its clock does."""
    return running.due is None or (waiting.due is not None and waiting.due <= running.due)
