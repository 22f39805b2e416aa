"""Warns people in time that Kubernetes is about to take volumes from a node that is not proven off (S36).

`policy/scan/data_at_risk.py` says when that is so; here the pods of such a node are read (a list for that node alone, and one in
some minutes at most) and people are warned: an Event on the Node and a metric. It needs no episode and no permit, and no circuit
breaker stops it. The scan's long poll calls `begin_due_work` whenever something is due; the work is done beside it, so that no
answer waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.api.paths import NODES
from activities.cluster.objects.workload import INLINE_DISKS, Pod, read_pods
from activities.cluster.report.background_writer import BackgroundWriter
from activities.contracts import metrics
from activities.notification_sender import Notify, discard_notice
from policy.episode.events import When
from policy.episode.notices import Notice
from policy.scan.data_at_risk import DataAtRisk, DataAtRiskWarning, PodStay, patience_of
from policy.values.times import written

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Nodes looked at, or warned of, side by side: a whole zone may go down at once."""

REASON = "DataAtRisk"
CLOCKS_DIFFER = timedelta(minutes=1)
"""Less than this before its repetition is due, a warning of another worker is repeated."""


class DataAtRiskReporter(BackgroundWriter):
    """Of one cluster. One per view; `close` ends what is under way."""

    def __init__(
        self,
        cluster: str,
        connection: ClusterConnection,
        at_risk: DataAtRisk,
        *,
        clock: Callable[[], datetime],
        on_change: Callable[[], None],
        notify: Notify = discard_notice,
    ) -> None:
        super().__init__(f"data at risk of {cluster}", on_change=on_change)
        self._cluster = cluster
        self._notify = notify
        self._connection = connection
        self._at_risk = at_risk
        self._clock = clock
        self._recorder = EventRecorder(connection)

    def begin_due_work(self, meter: MetricMeter) -> float:
        """See to whatever is due, beside the caller. In how many seconds to call again; `on_change` says when work has ended."""
        due = self._at_risk.next_due
        if self.busy or due is None:
            return float("inf")
        if due > (now := self._clock()):
            return (due - now).total_seconds()
        self.begin(self._work(meter))
        return float("inf")

    async def _work(self, meter: MetricMeter) -> None:
        """Warnings go first: they are known already, and reading a zone's pods takes its time."""
        while True:
            now = self._clock()
            warnings = self._at_risk.due_notifications(now, AT_ONCE)
            nodes = self._at_risk.to_look_at(now, AT_ONCE) if not warnings else []
            if not warnings and not nodes:
                return
            await asyncio.gather(*(self._warn(each, meter) for each in warnings), *(self._look(each) for each in nodes))

    async def _look(self, node: str) -> None:
        at = self._clock()
        try:
            pods = await read_pods(self._connection, node, cached=True)
        except ApplicationError as error:
            log.warning("the pods of Node/%s can't be read, what is at risk there is guessed: %s", node, error.message)
            self._at_risk.not_looked(node, at)
            return
        stays = [_stay(pod) for pod in pods if not pod.finished]
        self._at_risk.looked(node, [stay for stay in stays if stay.volumes], at)

    async def _warn(self, warned: DataAtRiskWarning, meter: MetricMeter) -> None:
        """The metric counts whatever becomes of the Event; what another worker has warned of is counted there."""
        now = self._clock()
        self._notify(
            Notice(when=When.DATA_AT_RISK, cluster=self._cluster, node=warned.node, subject=warned.uid, text=_message(warned))
        )
        try:
            told = await self._recorder.publish(_happening(warned), quiet=self._at_risk.repeat - CLOCKS_DIFFER)
        except ApplicationError as error:
            log.warning("the Event %s on Node/%s was not written: %s", REASON, warned.node, error.message)
            self._at_risk.not_notified(warned.node, now)
            told = True
        else:
            self._at_risk.notified(warned.node, now)
        if told and not warned.counted:
            log.warning("DataAtRisk: Node/%s: %s", warned.node, _message(warned))
            metrics.DATA_AT_RISK.add(meter, cluster=self._cluster)


def _stay(pod: Pod) -> PodStay:
    """What is inline in a pod is its own; a claim may be several pods'."""
    metadata, volumes = pod.metadata, pod.spec.volumes or ()
    disks = [f"{metadata.uid}/{number}" for number, volume in enumerate(volumes) if INLINE_DISKS & volume.keys()]
    return PodStay(
        uid=metadata.uid,
        volumes=frozenset([*(f"{metadata.namespace}/{claim}" for claim in pod.claims), *disks]),
        requested=pod.deletion_requested,
        patience=patience_of(pod.spec.tolerations or ()),
    )


def _happening(warned: DataAtRiskWarning) -> Happening:
    return Happening(
        about=NODES.ref(warned.node),
        uid=warned.uid,
        reason=REASON,
        message=_message(warned),
        warning=True,
        identity=written(warned.since),
    )


def _message(warned: DataAtRiskWarning) -> str:
    several = warned.volumes != 1
    return (
        f"{warned.volumes} volume{'s are' if several else ' is'} attached, and the node, not Ready since {written(warned.since)},"
        f" is not proven off: Kubernetes may detach {'them' if several else 'it'} by force from {written(warned.detached_at)} on,"
        " and if the machine still writes, data is lost. Switch it off, or see that it is off."
    )
