"""What people are warned of beside the scan: what keeps nodes from being repaired, data at risk, mistaken objects.

What keeps a cluster's nodes from being repaired becomes levels for Prometheus and notifications for people
(`policy/scan/obstacles.py`), also where only the scanner knows it and says so with each request.

The long poll sets them, because it always runs somewhere; why the scanner does not is `activities/contracts/metrics.py`. Which
notifications were sent is known to this worker alone: another one that takes over sends them again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.api.paths import NODES
from activities.cluster.objects.workload import Pod, claim_of, read_attachment, read_pods
from activities.cluster.report.background_writer import BackgroundWriter
from activities.contracts import metrics
from activities.contracts.scan import ScanRequest
from activities.licences import Licences
from activities.notification_sender import Notify, discard_notice
from policy.episode.advice import ASK_STATUS
from policy.episode.events import When
from policy.episode.notices import Notice
from policy.scan.data_at_risk import DataAtRisk, DataAtRiskWarning, PodStay, patience_of
from policy.scan.obstacles import Alarm, alarms, opened_breakers
from policy.scan.permit_rules import WAIT_FOR_A_PERMIT
from policy.scan.scan_report import ScanReport
from policy.values.object_refs import Mistaken, ObjectRef
from policy.values.times import moment_of, written

PATIENCE: Mapping[When, timedelta] = {
    When.CIRCUIT_BREAKER: timedelta(0),
    When.VIEW_STALE: timedelta(minutes=2),
    When.NO_PERMIT: timedelta(minutes=10),
}
"""How long it lasts before people are notified: a worker that has just begun reads the cluster first, and permits come back."""


class ClusterGauges:
    """Of one cluster, as one worker knows them."""

    def __init__(self, cluster: str, meter: MetricMeter) -> None:
        self._began = metrics.SCAN_BEGAN.on(meter, cluster=cluster)
        self._halted = metrics.HALTED.on(meter, cluster=cluster)
        self._stale = metrics.VIEW_STALE.on(meter, cluster=cluster)
        self._breakers = metrics.CIRCUIT_BREAKERS_OPEN.on(meter, cluster=cluster)
        self._needed = metrics.LEASE_NEEDED.on(meter, cluster=cluster)
        self._held = metrics.LEASE_HELD.on(meter, cluster=cluster)
        self._attempts = metrics.SCANNER_ATTEMPTS.on(meter, cluster=cluster)
        self._need_person = metrics.NEED_PERSON.on(meter, cluster=cluster)
        self._used = metrics.PERMITS_USED.on(meter, cluster=cluster)
        self._waiting = metrics.PERMITS_WAITING.on(meter, cluster=cluster)

    def worker_began(self) -> None:
        """This worker serves the cluster, and was not asked to scan it yet: the alarm that no scan runs goes by that."""
        self._began.set(0)

    def scan_began(self, request: ScanRequest, began: datetime) -> None:
        """What the scanner says of itself. began: when Temporal gave us the scan."""
        self._attempts.set(0)
        self._halted.set(float(bool(request.halted)))
        if request.in_flight is not None:  # else the scanner does not know yet which episodes are open
            self._need_person.set(request.need_person)
            self._used.set(request.permits)
            self._waiting.set(_waiting(request))
        self._began.set(began.timestamp())  # last: until then an earlier worker is believed

    def scan_is_lost(self, attempts: int) -> None:
        """attempts: at the scanner's workflow task; 0 where the scan is not lost."""
        self._attempts.set(attempts)

    def cluster_seen(self, report: ScanReport) -> None:
        self._stale.set(float(bool(report.view.stale)))
        self._breakers.set(float(sum(1 for _ in opened_breakers(report))))
        self._needed.set(float(report.lease.needed))
        self._held.set(float(report.lease.held))

    def scanner_stopped(self) -> None:
        """No Lease is needed."""
        self._needed.set(0)
        self._held.set(0)


class AlarmNotifier:
    def __init__(self, cluster: str, *, clock: Callable[[], datetime], notify: Notify = discard_notice) -> None:
        self._cluster = cluster
        self._clock = clock
        self._notify = notify
        self._since: dict[tuple[When, str], datetime] = {}
        self._notified: dict[tuple[When, str], Alarm] = {}

    def scan_began(self, request: ScanRequest, began: datetime) -> None:
        """Notify people of a new halt, of its end, and once more of episodes that wait for a person."""
        if request.halted_is_new:
            self._notify(Notice(when=When.HALTED, cluster=self._cluster, subject="halted", text=request.halted))
        if request.halt_over:
            over = Notice(when=When.HALTED, cluster=self._cluster, subject="halted", text=request.halt_over, over=True)
            self._notify(over)
        for each in request.remind:
            since = moment_of(each.since)
            self._notify(
                Notice(
                    when=When.NEEDS_HUMAN,
                    cluster=self._cluster,
                    node=each.node,
                    subject=each.incident,
                    text=f"incident {each.incident}: still waits for a person: {ASK_STATUS}",
                    waited=began - since if since is not None else timedelta(0),
                )
            )

    def temporal_away(self, *, over: bool = False) -> None:
        """Notify people that Temporal does not answer, or that it does again."""
        text = "Temporal answers again" if over else "nothing is begun: Temporal does not answer (`nodewarden doctor`)"
        self._notify(Notice(when=When.TEMPORAL_AWAY, cluster=self._cluster, subject="temporal-away", text=text, over=over))

    def begin_due_work(self, report: ScanReport, request: ScanRequest) -> float:
        """Notify people of what has lasted long enough, and of what is over. In how many seconds to call again."""
        now, due = self._clock(), float("inf")
        stands = {(each.when, each.subject): each for each in alarms(report, _waiting(request))}
        for key in self._since.keys() - stands.keys():
            del self._since[key]
            if (former := self._notified.pop(key, None)) is not None:
                self._notify(self._notice(former, over=True))
        for key, alarm in stands.items():
            left = (self._since.setdefault(key, now) + PATIENCE[alarm.when] - now).total_seconds()
            if left > 0:
                due = min(due, left)
            elif key not in self._notified:
                self._notified[key] = alarm
                self._notify(self._notice(alarm))
        return due

    def _notice(self, alarm: Alarm, *, over: bool = False) -> Notice:
        text = f"no longer so: {alarm.text}" if over else f"{alarm.text} (`nodewarden status -c {self._cluster}`)"
        subject = " ".join(filter(None, (alarm.when.value, alarm.subject)))
        return Notice(when=alarm.when, cluster=self._cluster, subject=subject, text=text, over=over)


def _waiting(request: ScanRequest) -> int:
    """How many nodes wait for a permit: those in the queue, and those that the last admission has refused one."""
    return request.queued + len({each.node for each in request.refusals if each.reason in WAIT_FOR_A_PERMIT})


# Warns people in time that Kubernetes is about to take volumes from a node that is not proven off (S36).
#
# `policy/scan/data_at_risk.py` says when that is so; here the pods of such a node are read (a list for that node alone, and one
# in some minutes at most), once each volume that is attached to it if it stays down for minutes, and people are warned: an Event
# on the Node and a metric. It needs no episode and no permit, and no circuit breaker stops it. The scan's long poll calls
# `begin_due_work` whenever something is due; the work is done beside it, so that no answer waits for it.

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Nodes looked at, or warned of, side by side: a whole zone may go down at once."""

REASON = "DataAtRisk"


class DataAtRiskReporter(BackgroundWriter):
    """Of one cluster. One per view; `close` ends what is under way."""

    def __init__(
        self,
        cluster: str,
        connection: ClusterConnection,
        at_risk: DataAtRisk,
        *,
        licences: Licences,
        clock: Callable[[], datetime],
        on_change: Callable[[], None],
        notify: Notify = discard_notice,
    ) -> None:
        """licences: by these, workers know one another's Events, of each period of repetition one. That it is there is all that
        is believed: kubelets write Events too, and who may patch one could write into it that it was just repeated."""
        super().__init__(f"data at risk of {cluster}", on_change=on_change)
        self._cluster = cluster
        self._notify = notify
        self._connection = connection
        self._at_risk = at_risk
        self._licences = licences
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
        standing = [pod for pod in pods if not pod.finished]
        stays = [_stay(pod) for pod in standing]
        self._at_risk.looked(node, [stay for stay in stays if stay.volumes], at)
        claims = frozenset[tuple[str, str]]().union(*(pod.claimed for pod in standing))
        attached = self._at_risk.to_trace(node, at)
        self._at_risk.traced(node, {name: await self._is_needed(name, claims) for name in attached})

    async def _is_needed(self, attachment: str, claims: frozenset[tuple[str, str]]) -> bool:
        """Whether it is of a volume that is bound to one of these claims, as that volume says itself (S41), or is gone. Where
        that can't be known, as of what is inline in a pod, people are warned early rather than late."""
        try:
            found = await read_attachment(self._connection, attachment)
            return found is None or (bool(found.volume) and await claim_of(self._connection, found.volume) in claims)
        except ApplicationError as error:
            log.warning(
                "the volume of VolumeAttachment/%s can't be read, and counts as one at risk: %s", attachment, error.message
            )
            return False

    async def _warn(self, warned: DataAtRiskWarning, meter: MetricMeter) -> None:
        """People are notified, and the metric counts, whatever becomes of the Event; where another worker has warned, it has done
        that. While Temporal is away each worker of the cluster comes here."""
        now = self._clock()
        try:
            published = await self._recorder.publish_unless_kept(self._happening(warned))
        except ApplicationError as error:
            log.warning("the Event %s on Node/%s was not written: %s", REASON, warned.node, error.message)
            self._at_risk.not_notified(warned.node, now)
            published = True
        else:
            self._at_risk.notified(warned.node, now)
        if published and not warned.counted:
            log.warning("DataAtRisk: Node/%s: %s", warned.node, _message(warned))
            self._notify(
                Notice(when=When.DATA_AT_RISK, cluster=self._cluster, node=warned.node, subject=warned.uid, text=_message(warned))
            )
            metrics.DATA_AT_RISK.add(meter, cluster=self._cluster)

    def _happening(self, warned: DataAtRiskWarning) -> Happening:
        return Happening(
            about=NODES.ref(warned.node),
            uid=warned.uid,
            reason=REASON,
            message=_message(warned),
            warning=True,
            identity=self._licences.identity_of(self._cluster, REASON, warned.uid, written(warned.since), warned.period),
        )


def _stay(pod: Pod) -> PodStay:
    """What is inline in a pod is its own; a claim may be several pods'."""
    metadata = pod.metadata
    disks = [f"{metadata.uid}/{disk}" for disk in pod.spec.volumes.disks]
    return PodStay(
        uid=metadata.uid,
        volumes=frozenset([*(f"{metadata.namespace}/{claim}" for claim in pod.claims), *disks]),
        requested=pod.deletion_requested,
        patience=patience_of(pod.spec.tolerations or ()),
    )


def _message(warned: DataAtRiskWarning) -> str:
    several = warned.volumes != 1
    return (
        f"{warned.volumes} volume{'s are' if several else ' is'} attached, and the node, not Ready since {written(warned.since)},"
        f" is not proven off: Kubernetes may detach {'them' if several else 'it'} by force from {written(warned.detached_at)} on,"
        " and if the machine still writes, data is lost. Switch it off, or see that it is off."
    )


# Reports what is wrong with objects that they, or kubelets, have written: one warning Event for each mistake.
#
# Whether an episode is open or not: what stands on the objects is seen by the scan; its long poll calls `begin_due_work`, and the
# work is done beside it. A value that was reported is not reported again by this process as long as it stands there, and by no
# other while the server keeps the Event: its name is derived from what it says. Nothing is asked of the API while nothing
# changes.

MOST = 50
"""So many Events before a pause: a whole fleet with a wrong annotation is no flood."""
PAUSE_SECONDS = 60.0
TRY_AGAIN_SECONDS = 30.0
"""Until what could not be written is tried again."""


class MistakeReporter(BackgroundWriter):
    """Of one cluster. One per view; `close` ends what is under way."""

    def __init__(
        self,
        mistaken: Sequence[Mistaken],
        *,
        connection_of: Callable[[ObjectRef], ClusterConnection],
        on_change: Callable[[], None],
    ) -> None:
        super().__init__("mistaken annotations", on_change=on_change)
        self._mistaken = mistaken
        self._connection_of = connection_of
        self._pause = PAUSE_SECONDS
        self._recorders: dict[int, EventRecorder] = {}
        self._recorded: set[str] = set()
        """Names of the Events of what stands there now."""
        self._seen: tuple[int, ...] = ()
        self._not_before = float("-inf")

    def begin_due_work(self) -> float:
        """See to what is new, beside the caller. In how many seconds to call again; `on_change` says when work has ended."""
        if self.busy or self._seen == self._versions():
            return float("inf")
        if (left := self._not_before - asyncio.get_running_loop().time()) > 0:
            return left
        self.begin(self._work())
        return float("inf")

    def failed(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + TRY_AGAIN_SECONDS

    async def _work(self) -> None:
        versions, loop = self._versions(), asyncio.get_running_loop()
        standing = {happening.name: happening for happening in self._happenings()}
        self._recorded &= standing.keys()
        due = [happening for name, happening in standing.items() if name not in self._recorded]
        some, failed = due[:MOST], False
        for first in range(0, len(some), AT_ONCE):
            recorded = await asyncio.gather(*(self._record(each) for each in some[first : first + AT_ONCE]))
            failed = failed or not all(recorded)
        if failed:
            self._not_before = loop.time() + TRY_AGAIN_SECONDS
        elif len(due) > len(some):
            self._not_before = loop.time() + self._pause
        else:
            self._seen = versions

    def _happenings(self) -> list[Happening]:
        return [
            Happening(about=mistake.about, uid=mistake.uid, reason=mistake.reason, message=message, warning=True)
            for mistaken in self._mistaken
            for mistake in mistaken
            for message in mistake.messages
        ]

    def _versions(self) -> tuple[int, ...]:
        return tuple(each.version for each in self._mistaken)

    async def _record(self, happening: Happening) -> bool:
        connection = self._connection_of(happening.about)
        recorder = self._recorders.setdefault(id(connection), EventRecorder(connection))
        try:
            await recorder.publish_unless_kept(happening)
        except ApplicationError as error:
            log.warning("the Event %s on %s was not written: %s", happening.reason, happening.about.key, error.message)
            return False
        self._recorded.add(happening.name)
        return True
