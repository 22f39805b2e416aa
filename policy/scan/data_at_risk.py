"""When Kubernetes will take volumes away from a node that is not proven off, and so when people must know (S36).

The attach-detach controller of Kubernetes has a clock of its own. Six minutes after no pod needs a volume of a NotReady node
any more, it detaches the volume by force, whether or not the machine still writes to it. A pod stops needing its volumes when
its deletion is requested; on a node that is down that is when its tolerations run out. So the moment is known beforehand, with
or without an episode or an open circuit breaker.

A prediction is not enough: a person or a program may delete a pod sooner. But six minutes pass between a deletion and a
detachment, so a look at the pods at least every six minutes misses none. `activities/cluster/report/alarms.py` reads the pods
and notifies people. That *we* request no deletion before off is proven is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Protocol

from policy.checks.verdict import NEVER
from policy.objects.marks import mark_of
from policy.objects.nodes import OUT_OF_SERVICE_TAINT, READY, NodeView
from policy.scan.scan_report import MAXIMUM_AT_RISK, AtRisk, NodeAtRisk
from policy.values.agenda import Agenda
from policy.values.errors import PolicyError
from policy.values.times import later

FORCE_DETACH_AFTER = timedelta(minutes=6)
"""How long the attach-detach controller waits for an unmount that never comes; a constant in its code, no flag changes it."""

DEFAULT_TOLERATION = timedelta(seconds=300)
"""Admission gives every pod this for each of the two taints below. Where that plugin is off, a pod without tolerations is
deleted at once, and the next look at the pods sees that in time."""

TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Kubernetes sets one or the other on a node that is not Ready; which one may change while it is down, so the shorter of the two
tolerations counts."""

NO_CLOUD = ("k3s://", "rke2://")
"""The beginnings of providerIDs that no cloud knows: their cloud controller deletes no Node."""

TRY_AGAIN_AFTER = timedelta(seconds=30)
"""How soon pods that could not be read are read again, and people who could not be notified are notified again."""


class Toleration(Protocol):
    """One entry of a pod's `spec.tolerations`, in the words of core/v1."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def effect(self) -> str: ...
    @property
    def toleration_seconds(self) -> int | None: ...


def patience_of(tolerations: Iterable[Toleration]) -> timedelta | None:
    """How long after NotReady Kubernetes requests the deletion of a pod with these tolerations; None: never.

    The first toleration that matches a taint counts, as in the taint manager; a negative time is zero.
    """
    given = tuple(tolerations)
    waits = [wait for taint in TAINTS if (wait := _tolerated(given, taint)) is not None]
    return min(waits, default=None)


def _tolerated(tolerations: Sequence[Toleration], taint: str) -> timedelta | None:
    for each in tolerations:
        by_key = each.key == taint and (each.operator == "Exists" or not each.value)
        by_any = not each.key and each.operator == "Exists"
        if each.effect in {"", "NoExecute"} and (by_key or by_any):
            return None if each.toleration_seconds is None else timedelta(seconds=max(each.toleration_seconds, 0))
    return DEFAULT_TOLERATION


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStay:
    """How long a pod needs its volumes. requested: when its deletion was requested, None where it was not.

    volumes: names of its claims, or of its disks, the same for pods that share one. patience: see `patience_of`.
    """

    uid: str
    volumes: frozenset[str]
    requested: datetime | None = None
    patience: timedelta | None = DEFAULT_TOLERATION


def deadline(since: datetime, requested: datetime | None, patience: timedelta | None, *, margin: timedelta) -> datetime | None:
    """When people must know: that margin before the earliest forced detachment. None: pods tolerate it for ever, and are not
    deleted.

    since: when the node stopped being Ready. requested: the earliest request for the deletion of a pod with volumes. patience:
    the shortest of its pods, None where none of them runs out.
    """
    ends = [requested] if requested is not None else []
    if patience is not None:
        ends.append(later(since, patience))
    return later(min(ends), FORCE_DETACH_AFTER, -margin) if ends else None


def vouched_off(node: NodeView) -> bool:
    """Whether our mark on the node says that it is proven off, or the node carries the taint that we set only then (S32).

    A mark that can't be read proves nothing, and neither does an out-of-service taint of another writer.
    """
    try:
        mark = mark_of(node)
    except PolicyError:
        return False
    if mark is None:
        return False
    tainted = mark.out_of_service and any(taint.key == OUT_OF_SERVICE_TAINT for taint in node.taints)
    return tainted or bool(mark.off_proven)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataAtRiskWarning:
    """One notification to people: the node, since when it is down, how many volumes, and when they may be taken away.

    period: which repetition it is, counted from `since`; the next notification of a worker is always of a later one. counted: an
    earlier attempt failed, less than a repetition ago, and people were notified then.
    """

    node: str
    uid: str
    since: datetime
    volumes: int
    detached_at: datetime
    period: int
    counted: bool = False


class _Incident:
    """A NotReady node with volumes attached, not proven off.

    tried: its pods were read, with or without success. pods: the uids of those with volumes at the last look. needed: attachments
    that a pod needed once; that one of its pods goes is seen by its uid.
    """

    __slots__ = (
        "counted_at",
        "deadline",
        "looked_at",
        "needed",
        "node",
        "notified_at",
        "patience",
        "pods",
        "requested",
        "since",
        "tried",
        "uid",
    )

    def __init__(self, node: str, uid: str, since: datetime) -> None:
        self.node = node
        self.uid = uid
        self.since = since
        self.tried = False
        self.looked_at: datetime | None = None
        self.requested: datetime | None = None
        self.patience: timedelta | None = None
        self.pods: frozenset[str] = frozenset()
        self.needed: frozenset[str] = frozenset()
        self.deadline: datetime | None = None
        self.notified_at: datetime | None = None
        self.counted_at: datetime | None = None


class DataAtRisk:
    """All NotReady nodes of one cluster that have volumes attached. It has no clock, and nodes that are well cost nothing.

    margin: how long before the forced detachment people are notified. repeat: how often again while nothing changes. forced
    False: kube-controller-manager runs with `--disable-force-detach-on-timeout`: no such clock runs and nothing is ever at
    risk.
    """

    def __init__(
        self,
        *,
        margin: timedelta = timedelta(minutes=1),
        repeat: timedelta = timedelta(minutes=30),
        forced: bool = True,
    ) -> None:
        self.forced = forced
        self.repeat = repeat
        self.version = 0
        """Another number after each change of which nodes are at risk."""
        self._margin = margin
        self._down: dict[str, tuple[str, datetime, bool]] = {}
        self._by_hand: set[str] = set()
        """Nodes of `_down` that no cloud knows: no controller deletes their Node object when the machine is gone."""
        self._gone: set[str] = set()
        """Nodes of `_by_hand` without their Node object."""
        self._attached_to: dict[str, str] = {}
        self._attachments: dict[str, tuple[str, ...]] = {}
        self._incidents: dict[str, _Incident] = {}
        self._looks = Agenda[str]()
        self._notifications = Agenda[str]()
        """Both agendas: when each node's pods are read, and when people are notified of it. A node is in neither while that is
        done."""

    @property
    def next_due(self) -> datetime | None:
        """The next moment at which a look or a notification is due, None while there is nothing to wait for."""
        moments = (self._looks.first, self._notifications.first)
        return min((moment for moment in moments if moment is not None), default=None)

    # What the watches say -------------------------------------------------------------------------------------------

    def put_node(self, node: NodeView, now: datetime) -> None:
        """A Node as last seen. One without a Ready condition is not known to be down; one that can't be read stays as it was."""
        if node.unreadable:
            return
        ready = node.condition(READY)
        if ready is None or ready.status == "True":
            self.remove_node(node.name)
            return
        known = self._down.get(node.name)
        since = min(ready.since or now, now)
        if known is not None and known[0] == node.uid:
            since = min(known[1], since)  # from False to Unknown is no new beginning: the taint manager counts on
        elif known is not None:
            self._end(node.name)
        self._down[node.name] = (node.uid, since, vouched_off(node))
        self._gone.discard(node.name)
        cloud = bool(node.provider_id) and not node.provider_id.startswith(NO_CLOUD)
        (self._by_hand.discard if cloud else self._by_hand.add)(node.name)
        self._weigh(node.name, now)

    def delete_node(self, name: str, now: datetime) -> None:
        """A Node that is gone. Its pods go with it, and then its volumes. A cloud's controller deletes a Node because its
        machine is gone, and so does the controller that deletes a Machine; a Node that no cloud knows was deleted by hand, and
        its machine may run."""
        incident = self._incidents.get(name)
        if incident is None or name not in self._by_hand:
            self.remove_node(name)
            return
        self._gone.add(name)
        incident.requested = min(filter(None, (incident.requested, now)))
        self._set_deadline(incident)

    def remove_node(self, name: str) -> None:
        """A Node that is Ready again, or that has lost its machine."""
        self._gone.discard(name)
        self._by_hand.discard(name)
        if self._down.pop(name, None) is not None:
            self._end(name)

    def put_attachment(self, name: str, node: str, now: datetime) -> None:
        """A VolumeAttachment, confirmed or not: an unconfirmed one may be attached."""
        before = self._attached_to.get(name)
        if before == node:
            return
        if before is not None:
            self._detach(name, before)
        self._attached_to[name] = node
        self._attachments[node] = (*self._attachments.get(node, ()), name)
        if node in self._down:
            self._weigh(node, now)

    def remove_attachment(self, name: str) -> None:
        node = self._attached_to.pop(name, None)
        if node is not None:
            self._detach(name, node)

    # What is to be done about it ------------------------------------------------------------------------------------

    def to_look_at(self, now: datetime, limit: int) -> list[str]:
        """Nodes that need a look at their pods now; call `looked`, then `traced`, or `not_looked` for each."""
        chosen = list[str]()
        while len(chosen) < limit and (node := self._looks.take(now)) is not None:
            chosen.append(node)
        return chosen

    def looked(self, node: str, pods: Iterable[PodStay], at: datetime) -> None:
        """The pods with volumes that were bound to the node at that moment, without finished ones.

        A pod that is gone since the last look counts as deleted right after that look, the worst case. Where more volumes are
        attached than the pods have, one is attached that no pod needs: since this look, or at the first look since the node
        went down. Where no more are, that proves nothing: a pod may have a claim of what nothing attaches (see `to_trace`).
        """
        incident = self._incidents.get(node)
        if incident is None:
            return
        found = tuple(pods)
        requests = [pod.requested for pod in found if pod.requested is not None]
        wanted = {volume for pod in found for volume in pod.volumes}
        if incident.pods - {pod.uid for pod in found} or len(wanted) < len(self._attachments[node]):
            requests.append(incident.looked_at or incident.since)
        if incident.requested is not None:
            requests.append(incident.requested)
        incident.requested = min(requests, default=None)
        incident.patience = min((pod.patience for pod in found if pod.patience is not None), default=None)
        incident.pods = frozenset(pod.uid for pod in found)
        incident.looked_at, incident.tried = at, True
        # No deletion after this look leads to a detachment before the next one, nor what was unwanted when the node went down.
        first = self._traced_from(incident)
        self._plan_look(incident, first if at < first else later(at, FORCE_DETACH_AFTER, -self._margin))
        self._set_deadline(incident)

    def to_trace(self, node: str, at: datetime) -> tuple[str, ...]:
        """After a look: the attachments of which it must be known whether a pod needs them; call `traced`. None before people
        would have to know of one that no pod has needed since the node went down: most nodes are back or proven off by then, and
        each costs requests."""
        incident = self._incidents.get(node)
        if incident is None or at < self._traced_from(incident) or (incident.deadline or NEVER) <= at:
            return ()
        return tuple(name for name in self._attachments[node] if name not in incident.needed)

    def traced(self, node: str, needed: Mapping[str, bool]) -> None:
        """For each of `to_trace`, whether a pod has its claim; False where that is not known. One that none has counts as
        unwanted since the node went down, the worst case."""
        incident = self._incidents.get(node)
        if incident is None:
            return
        incident.needed |= {name for name, is_needed in needed.items() if is_needed}
        if not incident.needed.issuperset(needed.keys() & set(self._attachments[node])):
            incident.requested = min(filter(None, (incident.requested, incident.since)))
            self._set_deadline(incident)

    def not_looked(self, node: str, now: datetime) -> None:
        """The pods could not be read: what was known stays; where nothing was, the default toleration counts."""
        incident = self._incidents.get(node)
        if incident is None:
            return
        if not incident.tried:
            incident.patience, incident.tried = DEFAULT_TOLERATION, True
        self._plan_look(incident, later(now, TRY_AGAIN_AFTER))
        self._set_deadline(incident)

    def due_notifications(self, now: datetime, limit: int) -> list[DataAtRiskWarning]:
        """The notifications that are due now; call `notified` or `not_notified` for each."""
        chosen = list[DataAtRiskWarning]()
        while len(chosen) < limit and (node := self._notifications.take(now)) is not None:
            incident = self._incidents[node]
            assert incident.deadline is not None, "only an incident with a deadline is notified"
            if incident.counted_at is not None and now - incident.counted_at >= self.repeat:
                incident.counted_at = None
            warned = DataAtRiskWarning(
                node=incident.node,
                uid=incident.uid,
                since=incident.since,
                volumes=len(self._attachments[incident.node]),
                detached_at=later(incident.deadline, self._margin),
                period=(now - incident.since) // self.repeat,
                counted=incident.counted_at is not None,
            )
            chosen.append(warned)
        return chosen

    def notified(self, node: str, at: datetime) -> None:
        """People have been notified; again after `repeat`."""
        incident = self._incidents.get(node)
        if incident is not None:
            incident.notified_at, incident.counted_at = at, None
            self._looks.drop(node)  # a look could only bring the notification forward
            self._notifications.put(node, later(at, self.repeat))

    def not_notified(self, node: str, now: datetime) -> None:
        """People could not be notified; again soon."""
        incident = self._incidents.get(node)
        if incident is not None:
            incident.counted_at = incident.counted_at or now
            self._notifications.put(node, later(now, TRY_AGAIN_AFTER))

    def report(self) -> AtRisk:
        """How many nodes are at risk, and the ones that are due first."""
        first = nsmallest(MAXIMUM_AT_RISK, self._incidents.values(), key=lambda each: (each.deadline or NEVER, each.node))
        rows = tuple(
            NodeAtRisk(
                node=each.node,
                since=each.since,
                volumes=len(self._attachments[each.node]),
                due=later(each.deadline, self._margin) if each.deadline is not None else None,
            )
            for each in first
        )
        unread = sum(not each.tried for each in self._incidents.values())
        return AtRisk(nodes=len(self._incidents), unread=unread, nearest=rows)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _weigh(self, node: str, now: datetime) -> None:
        """Whether there is an incident, by what the watches have seen."""
        uid, since, off = self._down[node]
        if off or not self.forced or node not in self._attachments:
            self._end(node)
            return
        incident = self._incidents.get(node)
        if incident is None:
            incident = self._incidents[node] = _Incident(node, uid, since)
            self.version += 1
            self._plan_look(incident, now)

    def _detach(self, name: str, node: str) -> None:
        left = tuple(each for each in self._attachments[node] if each != name)
        if left:
            self._attachments[node] = left
        else:
            del self._attachments[node]
            self._end(node)
            if node in self._gone:
                self.remove_node(node)

    def _end(self, node: str) -> None:
        if self._incidents.pop(node, None) is not None:
            self._looks.drop(node)
            self._notifications.drop(node)
            self.version += 1

    def _traced_from(self, incident: _Incident) -> datetime:
        return later(incident.since, FORCE_DETACH_AFTER, -self._margin)

    def _set_deadline(self, incident: _Incident) -> None:
        incident.deadline = deadline(incident.since, incident.requested, incident.patience, margin=self._margin)
        if incident.notified_at is None:
            self._notifications.put(incident.node, incident.deadline)

    def _plan_look(self, incident: _Incident, moment: datetime) -> None:
        if incident.notified_at is None:
            self._looks.put(incident.node, moment)
