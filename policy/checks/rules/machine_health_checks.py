"""How the two kinds of MachineHealthCheck judge, OpenShift's and Cluster API's: Machines with their Nodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from policy.checks.health_check import HealthCheck
from policy.checks.verdict import (
    DELETING,
    HEALTHY,
    RECOVERS,
    FailingCondition,
    Health,
    JudgedTarget,
    Standing,
    Verdict,
    by_conditions,
    offences,
    unread,
    watched,
)
from policy.objects.machines import (
    EXTERNAL_REMEDIATION_ANNOTATION,
    FAILED,
    PAUSED_ANNOTATION,
    REMEDIATE_ANNOTATION,
    MachineView,
    WorkloadCluster,
)
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT
from policy.values.times import RESOLUTION, format_duration, go_duration, later, written

# How an OpenShift MachineHealthCheck judges: Machines of its namespace with their Nodes.
#
# In this order, the first that holds: the Machine has failed; it has no Node within the start-up timeout, counted from the last
# time that its status was written; its Node is gone; a listed condition of the Node has expired. A Machine that is being deleted
# is never healthy and stays in the total.

MACHINE_FAILED = "MachineFailed"
NODE_STARTING = "NodeNotStarted"
NODE_UNSEEN = "NodeUnseen"
EXTERNALLY_REMEDIATED = "ExternallyRemediated"


class OpenShiftRules:
    """One MachineHealthCheck, prepared for many Machines."""

    __slots__ = ("_check", "_watched")

    def __init__(self, check: HealthCheck) -> None:
        self._check = check
        self._watched = watched(check.conditions)

    def covers(self, target: JudgedTarget) -> bool:
        """Machines of the check's namespace that the selector matches; an empty one matches all of them."""
        machine = target.machine
        return (
            machine is not None
            and machine.api is OPENSHIFT
            and machine.namespace == self._check.ref.namespace
            and self._check.selector.matches(machine.labels)
        )

    def judge(self, target: JudgedTarget, now: datetime) -> Verdict:
        machine = target.machine
        assert machine is not None, "a MachineHealthCheck covers Machines"
        verdict = self._by_criteria(target, machine, now)
        if machine.deleting:
            return deleting(verdict, "; the Machine is being deleted")
        if verdict.health is Health.HEALTHY and EXTERNAL_REMEDIATION_ANNOTATION in machine.annotations:
            message = f"well again; the annotation {EXTERNAL_REMEDIATION_ANNOTATION} says that its remediation has not ended"
            return Verdict(health=Health.SKIPPED, standing=Standing.RECOVERING, reason=EXTERNALLY_REMEDIATED, message=message)
        if verdict.health is Health.HEALTHY and target.marked:
            return RECOVERS
        return verdict

    def _by_criteria(self, target: JudgedTarget, machine: MachineView, now: datetime) -> Verdict:
        if problem := target.unreadable:
            return unread(problem)
        if machine.phase == FAILED:
            why = f": {machine.failure}" if machine.failure else ""
            return unhealthy(reason=MACHINE_FAILED, message=f"the Machine's phase is Failed{why}")
        if target.node is None and not machine.node_name:
            return self._starting(machine, now)
        if target.node is None and target.unseen:
            return skipped(reason=NODE_UNSEEN, message=target.unseen)
        if target.node is None:
            return unhealthy(reason=NODE_DELETED, message=f"Node {machine.node_name} has been deleted")
        return by_conditions(offences(target.node.conditions, self._watched), now)

    def _starting(self, machine: MachineView, now: datetime) -> Verdict:
        timeout = self._check.startup_timeout
        if timeout is None:
            return skipped(
                reason=NODE_STARTING, message="the Machine has no Node yet, and nodeStartupTimeout is 0: it may take for ever"
            )
        since = machine.last_updated
        limit = format_duration(timeout)
        if since is None:
            message = f"the Machine has no Node, and its status was never written: the whole {limit} is waited again"
            return starting(message=message, again=timeout)
        due = later(since, timeout, RESOLUTION)
        if now >= due:
            message = f"the Machine has no Node {limit} after its status was last written, at {written(since)}"
            return unhealthy(reason=NODE_STARTUP_TIMEOUT, message=message, since=since, expired=due)
        message = f"the Machine has no Node yet; unhealthy {limit} after its status was last written, at {written(since)}"
        return starting(message=message, since=since, due=due)


unhealthy = partial(Verdict, health=Health.UNHEALTHY, standing=Standing.UNHEALTHY)
"""A Machine that needs remediation for another reason than a condition of its Node. due: when the message will change."""

skipped = partial(Verdict, health=Health.SKIPPED, standing=Standing.STARTING)
"""A Machine without a Node to judge by, for which no clock runs."""

starting = partial(Verdict, health=Health.SOON, standing=Standing.STARTING, reason=NODE_STARTING)
"""A Machine without a Node, with a clock that runs."""


def deleting(verdict: Verdict, note: str = "") -> Verdict:
    """The verdict on a Machine that is being deleted: never healthy. note: put behind the message about its illness."""
    if verdict.health is Health.UNHEALTHY:
        return replace(verdict, standing=Standing.DELETING, message=verdict.message + note)
    message = "the Machine is being deleted"
    return Verdict(health=Health.SKIPPED, standing=Standing.DELETING, reason=DELETING, message=message, due=verdict.due)


# How a Cluster API MachineHealthCheck judges: the Machines of one workload cluster with their Nodes there.
#
# A paused Machine, and one that says skip-remediation, leaves the totals altogether. Then, in this order: a person asks for the
# remediation; nothing is judged before the control plane is initialized (but for its own Machines) and the infrastructure ready;
# the Machine's conditions and the Node's are judged together, and the Machine's reason wins. Messages are in the words of Cluster
# API's condition HealthCheckSucceeded.

# Reasons of the condition HealthCheckSucceeded, as Cluster API writes them.
HAS_REMEDIATE_ANNOTATION = "HasRemediateAnnotation"
UNHEALTHY_MACHINE = "UnhealthyMachine"
UNHEALTHY_NODE = "UnhealthyNode"
NODE_STARTUP_TIMEOUT = "NodeStartupTimeout"
NODE_DELETED = "NodeDeleted"
MACHINE_HAS_FAILURE = "MachineHasFailure"

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
        reason = (MACHINE_HAS_FAILURE if machine.failure else UNHEALTHY_MACHINE) if faults else node_reason
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
