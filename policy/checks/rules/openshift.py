"""How an OpenShift MachineHealthCheck judges: Machines of its namespace with their Nodes.

In this order, the first that holds: the Machine has failed; it has no Node within the start-up timeout, counted from the last
time that its status was written; its Node is gone; a listed condition of the Node has expired. A Machine that is being deleted
is never healthy and stays in the total.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from policy.checks.health_check import HealthCheck
from policy.checks.targets import JudgedTarget
from policy.checks.verdicts import DELETING, RECOVERS, Health, Standing, Verdict, by_conditions, offences, unread, watched
from policy.objects.machines import EXTERNAL_REMEDIATION_ANNOTATION, FAILED, MachineView
from policy.values.machine_apis import OPENSHIFT
from policy.values.times import RESOLUTION, format_duration, later, written

MACHINE_FAILED = "MachineFailed"
NODE_STARTUP_TIMEOUT = "NodeStartupTimeout"
NODE_STARTING = "NodeNotStarted"
NODE_DELETED = "NodeDeleted"
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
        """What the check thinks of a Machine that it covers."""
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
