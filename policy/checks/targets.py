"""A target: what a health check judges, a Node alone or a Machine with its Node, and what every check thinks of it.

The pieces are snapshots; a target only holds the newest of each together. It is filled by `policy/scan/ledger.py` and read by
`policy/checks/rules/` (one check, one target) and `policy/scan/report_builder.py` (all of them).
"""

from __future__ import annotations

from datetime import UTC, datetime

from policy.checks.verdicts import Health, Standing, Verdict
from policy.objects.machines import MachineView, WorkloadCluster, of_control_plane
from policy.objects.marks import is_marked, strange_mark
from policy.objects.nodes import NodeView
from policy.objects.remediations import RemediationObject
from policy.objects.surroundings import being_updated

SICKNESS = {Health.UNHEALTHY: 0, Health.SOON: 1, Health.SKIPPED: 2, Health.HEALTHY: 3}
MACHINE = "machine/"
"""Begins the name of a victim that is a Machine without a Node."""

NEVER = datetime.max.replace(tzinfo=UTC)


class JudgedTarget:
    """One target and the verdicts on it, by the check's key.

    node: the Node itself, or the Machine's; None while there is none. unseen: why the Machine's Node can't be looked up, ""
    where it can, so that a missing Node is really gone. cluster: the Cluster API Cluster, None where it is not known.
    remediations: the remediation objects about it, ours and others'. contested: which other Node seems to be the same machine,
    in words. marked: an episode of ours holds the node. shown_as: what a report showed of it at the last look, None before
    that.
    """

    __slots__ = (
        "cluster",
        "contested",
        "control_plane",
        "key",
        "machine",
        "marked",
        "node",
        "remediations",
        "shown_as",
        "strange_mark",
        "unseen",
        "updating",
        "verdicts",
    )

    def __init__(self, key: str, *, node: NodeView | None = None, machine: MachineView | None = None) -> None:
        self.key = key
        self.machine = machine
        self.cluster: WorkloadCluster | None = None
        self.remediations: tuple[RemediationObject, ...] = ()
        self.unseen = ""
        self.contested = ""
        self.verdicts: dict[str, Verdict] = {}
        self.shown_as: object = None
        self.see(node)

    def see(self, node: NodeView | None) -> None:
        """Set the Node as it is now, and work out once what is asked of every target again and again."""
        self.node = node
        self.control_plane = of_control_plane(node, self.machine)
        self.marked = node is not None and is_marked(node)
        self.strange_mark = strange_mark(node) if node is not None else ""
        self.updating = node is not None and being_updated(node)

    @property
    def changed(self) -> datetime:
        """When its Machine's status last changed, else when it was made. It stands in for the beginning of illnesses without a
        date, such as a Machine that is marked, has failed or has lost its Node."""
        machine = self.machine
        if machine is None:
            return NEVER
        moments = [each.since for each in machine.conditions if each.since is not None]
        if machine.last_updated is not None:
            moments.append(machine.last_updated)
        return max(moments, default=machine.created or NEVER)

    @property
    def name(self) -> str:
        """The object that the check selects, by its own name."""
        if self.machine is not None:
            return self.machine.name
        assert self.node is not None, "a target without a Machine is a Node"
        return self.node.name

    @property
    def node_name(self) -> str:
        """The Node's name, also where the Node is gone; "" where there has never been one."""
        if self.node is not None:
            return self.node.name
        return self.machine.node_name if self.machine is not None else ""

    @property
    def victim(self) -> str:
        """What an act would hit: targets with the same victim share one episode. A Machine with a Node that can't be looked up
        here is its own victim: a Node of that name may well be another cluster's."""
        return (self.node_name or self.key) if not self.unseen else self.key

    @property
    def victim_name(self) -> str:
        """The victim's name for people and for ids: a Machine that has never had a Node is `machine/<namespace>/<name>`."""
        if self.machine is None or (self.node_name and not self.unseen):
            return self.node_name
        return f"{MACHINE}{self.machine.namespace}/{self.machine.name}"

    @property
    def unreadable(self) -> str:
        """Why the Machine or the Node can't be read, so that the target's health is unknown; "" where both can."""
        for kind, view in (("Machine", self.machine), ("Node", self.node)):
            if view is not None and view.unreadable:
                return f"{kind} {view.name} can't be read: {view.unreadable}"
        return ""

    @property
    def sick(self) -> bool:
        """Whether some check does not call it healthy, or will stop doing so as time passes."""
        return any(verdict.standing is not Standing.HEALTHY or verdict.due is not None for verdict in self.verdicts.values())
