"""The scanner's long poll over one cluster.

A scan sits on the watch cache (`watch/view.py`) and answers as soon as the report is another one than the scanner has; the
report is a level, so a lost answer or another worker loses nothing. Meanwhile it keeps the cluster Lease (`cluster_lease.py`)
while something asks us to act: with no policy in the cluster and no work in hand nothing is ever written.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson
from temporalio import activity
from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError

from activities.cluster.acts.cluster_lease import ABANDONED_AFTER, LOST_AFTER, LeaseRenewal, ScannerLease
from activities.cluster.acts.node_actions import Dispatch, NodeActionHandler
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster
from activities.cluster.objects.live_node import find_node
from activities.cluster.report.alarms import AlarmNotifier, ClusterGauges, DataAtRiskReporter, MistakeReporter
from activities.cluster.report.background_writer import BackgroundWriter
from activities.cluster.report.nodefences import NodeFences
from activities.cluster.report.status_writer import StatusWriter
from activities.cluster.watch.freshness import marks_of
from activities.cluster.watch.view import ClusterView
from activities.contracts import metrics
from activities.contracts.scan import ObservationActivities, RecordRequest, RecordResult, ScanActivities, ScanRequest
from activities.decision_stream import RecordDecisions
from activities.errors import ErrorType, failure
from activities.keyring import Keyring
from activities.licences import Licences
from activities.notification_sender import Notify, discard_notice
from activities.worker_clock import ANOTHER_WORKER, utc_now, wrong_clock
from policy.history.spell_lifecycle import LONGEST, with_traces
from policy.history.spells import Ending, ObservationRecord, Spell
from policy.scan.report_builder import Urgency, urgency
from policy.scan.scan_report import ClusterLease, ScanReport
from policy.values.display_text import in_a_line

LATER_SECONDS = 1.0
"""How long a change that matters to no decision is held back, so that neither a restless fleet nor our own writes are a scan
each."""

RARELY_SECONDS = 5.0
"""The same for what only people read of nodes that are in hand."""

SOON_SECONDS = 0.25
"""Between an answer and the next one that tells nothing but what episodes wait for."""

DRAWN_UP_EVERY, RESTS = 0.05, 9
"""Between two reports that are drawn up because something has changed: seconds, and times what the last one has taken, so that
a storm leaves the worker to those who act. A verdict's end breaks in upon that."""

WITHOUT_SCAN_SECONDS = 60.0
"""So often a worker without Temporal looks whether data is at risk, where nothing changes."""

LOOKS = 2
"""So often a worker without a scan reads the cluster Lease until one that stands still says that the scan is lost."""

LOOKED_AFTER = 5
"""With so many such looks, at the latest, the scanner is looked after again. Temporal takes half a minute to report a refusal."""

PREPARED_FOR = 3
"""So many nodes stand, with their devices, for all others: most clusters have one kind."""

DOUBTED_SECONDS = 5.0
"""The longest that a worker with a wrong clock keeps the scan: a good one may have come since no other would take it."""

PUBLISH_HALT_SECONDS = 4.0
"""How long a scanner that is stopped may take to say so on every check."""

PREPARING, SWEEPING, UNSCANNED = "preparing", "sweep of NodeFences", "looks for scans"

LARGEST_REPORT, LONGEST_SHOWN = 1024 * 1024, 200
"""Bytes, and characters of its largest part where there are more. Temporal takes twice as many at once; the scanner has a report
in its state and parts of it in its next request, and would be stuck for good with what Temporal does not take."""

REMEMBERED = 16
"""Reports that scanners may know of still."""


class ClusterScan(ScanActivities):
    """Served by the workers of one cluster's queue; owns the cluster's view. An async context: watching begins with it.

    prepare: is called once, beside the scan, when something first asks us to act; with the names of some nodes. dispatch: carries
    NodeActions out; None: they stay as they are. notify_device_check: is called with a digest of the policies that name devices,
    when it has changed: a wrong address or password is found when it is written, and not an hour later. A Secret alone that
    changes is not noticed: it is read, and not watched (S40). report_lost_scan: is called when the cluster Lease stands still;
    raises Unreachable. look_after_scanner: is called while it stands still, less and less often, and answers at which attempt the
    scanner's workflow task is; raises Unreachable. meter: the process's own, for what is known of the cluster. record: writes the
    decision stream, None where none is configured. licences: by these, workers know one another's warnings; None: this one
    believes its own alone.
    """

    def __init__(
        self,
        cluster: str,
        view: ClusterView,
        *,
        lease: ScannerLease | None = None,
        clock: Callable[[], datetime] = utc_now,
        fences: NodeFences | None = None,
        prepare: Callable[[Sequence[str]], Coroutine[Any, Any, None]] | None = None,
        dispatch: Dispatch | None = None,
        notify_device_check: Callable[[str], Awaitable[None]] | None = None,
        report_lost_scan: Callable[[], Awaitable[None]] | None = None,
        look_after_scanner: Callable[[], Awaitable[int]] | None = None,
        meter: MetricMeter = MetricMeter.noop,
        notify: Notify = discard_notice,
        record: RecordDecisions | None = None,
        licences: Licences | None = None,
    ) -> None:
        self._cluster = cluster
        self.view = view
        watches = view.watches
        self._cluster_lease = lease or ScannerLease(view.connection, clock=clock)
        self._lease = LeaseRenewal(self._cluster_lease, on_change=view.wake_scans)
        watches.on_cluster_lease = self._cluster_lease.show
        self._risks = DataAtRiskReporter(
            cluster,
            view.connection,
            view.at_risk,
            licences=licences or Licences(Keyring([secrets.token_bytes()])),
            clock=view.now,
            on_change=view.wake_scans,
            notify=notify,
        )
        self._mistakes = MistakeReporter(view.mistaken, connection_of=watches.connection_of, on_change=view.wake_scans)
        actions = watches.actions
        self._actions = (
            NodeActionHandler(cluster, view.connection, actions, dispatch, on_change=view.wake_scans) if dispatch else None
        )
        self._notify_device_check = notify_device_check
        self._report_lost_scan = report_lost_scan
        self._look_after_scanner = look_after_scanner
        self._reported = ""
        """The version of the cluster Lease at which the scan was last reported as lost."""
        self._device_check = BackgroundWriter(f"policies of {cluster}", on_change=view.wake_scans)
        self._policies = ""
        """The digest that the check of fence devices was last notified of."""
        self._gauges = ClusterGauges(cluster, meter)
        self._alarms = AlarmNotifier(cluster, clock=view.now, notify=notify)
        self._clock = clock
        self.publishing = StatusWriter(view, clock=clock)
        self._fences = fences
        self._record = record
        self._prepare = prepare
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._answered: OrderedDict[str, ScanReport] = OrderedDict()
        """What was answered, by its digest."""
        self._scans = 0
        """How many are under way here."""
        self._latest: ScanRequest | None = None
        self._answered_at = float("-inf")
        self._given_back = 0
        self._stopped = False
        self._meter = meter

    async def __aenter__(self) -> Self:
        self.view.watches.start()
        self._gauges.worker_began()
        self._tasks[UNSCANNED] = asyncio.create_task(self._look_for_scans(), name=UNSCANNED)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._lease.stop()
        for writer in (self._risks, self._mistakes, self._actions, self.publishing, self._device_check):
            if writer is not None:
                await writer.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.view.close()

    async def observe_cluster(self, request: ScanRequest) -> ScanReport:
        """The long poll. Ends early when the worker shuts down: what it knows is as good as it gets."""
        ending = asyncio.Event()
        if self._latest is None or request.number != self._latest.number + 1:
            self.publishing.forget()
        self._latest, self._stopped = request, False
        self.view.wake_scans()  # one that rests here ends now
        self._publish_scanner(request)
        self._sweep(request)
        self._scans += 1
        try:
            async with _beside(self._shutting_down(ending)):
                report, _ = await asyncio.gather(self._observe(request, ending), self._write_decisions(request))
                return report
        finally:
            self._scans -= 1

    async def release_lease(self, request: ScanRequest) -> None:
        """Give the cluster Lease back if it is ours. A scan that still runs hears of its cancellation seconds later, and must
        not take it again."""
        self._given_back += 1
        self._stopped = True
        self.view.wake_scans()
        self._publish_scanner(request)
        self._gauges.scanner_stopped()
        await self._write_decisions(request)
        await self._publish_halt(request)
        await self._lease.release(request.holder)

    async def without_temporal(self) -> None:
        """While Temporal is away, until it is cancelled: no scan runs, and nothing is begun (S37). People are notified of that,
        and are warned of data at risk all the same, by each worker (S36). It takes and renews no Lease (S38)."""
        self._alarms.temporal_away()
        try:
            while True:
                stamp, began = self.view.stamp, asyncio.get_running_loop().time()
                due = WITHOUT_SCAN_SECONDS
                self.view.ledger.advance(self.view.now())  # no report does: a verdict that is due would end every wait at once
                if (
                    not self._stopped
                    and self.view.asked
                    and not self._lease.is_of_another(self._latest.holder if self._latest is not None else "")
                ):
                    due = self._warn_of_data_at_risk()
                await self.view.changed(stamp, due)
                await self.view.gather(began + LATER_SECONDS)
        finally:
            self._alarms.temporal_away(over=True)

    async def _look_for_scans(self) -> None:
        """For ever, while no scan runs here. Where another worker's has ended without a sign, the scanner is asked for another
        one. Where Temporal answers this process and no scan runs all the same (a key that it refuses to all workers, a scanner
        that is stuck), people are warned of data at risk, too (S36). A scanner that is stopped gives its Lease back."""
        lasts = self._cluster_lease.duration.total_seconds()
        due = pause = LOST_AFTER * lasts / LOOKS
        looked_after, again = "", 0.0
        while True:
            await asyncio.sleep(min(due, pause))
            due = pause
            # One that has just started takes the place of one that may have died: it does not wait to see.
            new = not (self._latest or self._reported)
            if self._scans or not self.view.asked:
                continue
            seen = await self._cluster_lease.standstill(watched=self.view.watches.follows_cluster_lease and not new)
            if seen is None:
                self._gauges.scan_is_lost(0)
                continue
            if seen.seconds > ABANDONED_AFTER * lasts:
                due = self._warn_of_data_at_risk()
            ours = self._latest is None or seen.holder == self._latest.holder
            lost = seen.seconds >= LOST_AFTER * lasts or new
            with suppress(ApplicationError):  # Temporal is away: with the next look
                if ours and lost and seen.version != self._reported and self._report_lost_scan is not None:
                    await self._report_lost_scan()
                    self._reported = seen.version
                if not (ours and lost) or self._look_after_scanner is None:
                    self._gauges.scan_is_lost(0)
                elif seen.version != looked_after or seen.seconds >= again:
                    self._gauges.scan_is_lost(await self._look_after_scanner())
                    looked_after, again = seen.version, min(2 * seen.seconds, seen.seconds + LOOKED_AFTER * pause)

    def _warn_of_data_at_risk(self) -> float:
        self.view.watches.follow_volumes()
        return self._risks.begin_due_work(self._meter)

    async def _write_decisions(self, request: ScanRequest) -> None:
        if self._record is not None:
            await self._record(request.decisions)

    def _publish_scanner(self, request: ScanRequest) -> None:
        """Halts and reminders, as metrics and notifications."""
        began = activity.info().started_time
        self._gauges.scan_began(request, began)
        self._alarms.scan_began(request, began)

    async def _publish_halt(self, request: ScanRequest) -> None:
        """On every check, as long as the cluster is ours: no later scan would (S44)."""
        lease = self._lease.known_to(request.holder)
        if not (request.halted and request.in_flight is not None and lease is not None and self.view.synced):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(PUBLISH_HALT_SECONDS):
                await self.publishing.publish(self.view.report(lease=lease), request.in_flight, (), request.halted)

    async def _observe(self, request: ScanRequest, ending: asyncio.Event) -> ScanReport:
        loop = asyncio.get_running_loop()
        wait = min(request.wait.total_seconds(), DOUBTED_SECONDS) if wrong_clock.get() else request.wait.total_seconds()
        end, given_back = loop.time() + wait, self._given_back
        await self.view.first_list(before=end)
        marks = marks_of(request.resource_version, request.check_versions)
        await self.view.catch_up(marks, before=end)
        answer_by, lease = float("inf"), None
        report: ScanReport | None = None
        drawn_from, shows_until, rest = (0, 0), float("-inf"), DRAWN_UP_EVERY
        while True:
            stamp, drawn_up, first = self.view.stamp, loop.time(), lease is None
            if request.rests:
                self._require_ours(request, given_back)
            wanted = request.work_in_hand or self.view.asked
            if wanted:
                self.view.watches.follow_volumes()
                self._prepare_once()
            needed = wanted and given_back == self._given_back
            lease = await self._lease_of(request, needed=needed, first=first)
            began = loop.time()
            self.view.ledger.put_modes(request.modes)
            # One that shows a view that may be acted on is drawn up anew where something has changed, and to be answered.
            shows = drawn_from == (stamp, self.view.ledger.version) and began + DRAWN_UP_EVERY < min(shows_until, end, answer_by)
            if report is None or report.view.stale or report.lease != lease or not shows or ending.is_set():
                report = self.view.report(
                    lease=lease,
                    known_inventory=request.inventory,
                    marks=marks,
                    watching=request.watching,
                    notified=request.notified,
                    begun=request.begun,
                    spells=request.spells,
                    doubt=wrong_clock.get(),
                )
                drawn_from, shows_until = (stamp, self.view.ledger.version), self.view.shows_until()
                if request is self._latest and given_back == self._given_back:  # one that was cancelled hears of it seconds later
                    self._gauges.cluster_seen(report)
                rest = max(DRAWN_UP_EVERY, RESTS * (loop.time() - began))
                urgent = self._urgency(request, report)
                answer_by = min(answer_by, self._answer_by(urgent)) if urgent is not Urgency.NONE else float("inf")
            pause = min(end, answer_by) - loop.time()
            if request.rests:
                if pause <= 0 or ending.is_set():
                    return self._answer(report)
                # Before whatever is done below: it may have been given up long ago, and hears of that from the Lease alone.
                self._require_ours(request, given_back, kept=first or not needed or await self._lease.renew(request.holder))
            look_again = float("inf")
            # Where something asks us to act, and no other deployment holds the cluster; a Lease that can't be renewed just now
            # silences nothing.
            if lease.needed and (lease.held or lease.holder in {"", request.holder}):
                mistakes = (
                    self._mistakes.begin_due_work() if self.view.synced else float("inf")
                )  # a Machine's Node may be still to come
                risks = self._risks.begin_due_work(activity.metric_meter())
                look_again = min(risks, mistakes, self._alarms.begin_due_work(report, request))
            if self._actions is not None and lease.holder in {"", request.holder}:
                look_again = min(look_again, self._actions.begin_due_work())
            if lease.held:
                self._notify_of_policies(self.view.fencing)
            # One that was cancelled hears of it seconds later, and the next one knows better what is in flight.
            if lease.held and request.in_flight is not None and request is self._latest:
                look_again = min(
                    look_again, self.publishing.begin_due_work(report, request.in_flight, request.refusals, request.halted)
                )
            if pause <= 0 or ending.is_set():
                return self._answer(report)
            pause = min(pause, look_again)
            await self.view.changed(stamp, min(pause, self._lease.seconds_left()) if needed else pause)
            await self.view.gather(drawn_up + rest)

    async def _lease_of(self, request: ScanRequest, *, needed: bool, first: bool) -> ClusterLease:
        if not (needed and request.rests):
            return await self._lease.current(request.holder, needed=needed)
        known = await self._lease.take(request.holder) if first else self._lease.known_to(request.holder)
        return known or ClusterLease(held=False)

    def _require_ours(self, request: ScanRequest, given_back: int, *, kept: bool = True) -> None:
        """Of a scan that rests: that the scanner has neither stopped nor begun another one, here or, where the Lease is not kept,
        elsewhere. Raises Transient: if the scan is still wanted, Temporal begins it anew, and then it takes the Lease."""
        if not kept or request is not self._latest or given_back != self._given_back:
            problem = "the cluster Lease was renewed by another scan or given back: this one ends"
            raise failure(ErrorType.TRANSIENT, problem, retry_after=ANOTHER_WORKER)

    def _notify_of_policies(self, policies: str) -> None:
        """Notify the check of fence devices of policies that it does not know, "" for none. A former worker may have done so: a
        check that knows them does nothing."""
        notify = self._notify_device_check
        if notify is None or policies in {"", self._policies} or self._device_check.busy:
            return

        async def work() -> None:
            with suppress(ApplicationError):  # Temporal is away: with the next change, or the next scan
                await notify(policies)
                self._policies = policies

        self._device_check.begin(work())

    def _urgency(self, request: ScanRequest, report: ScanReport) -> Urgency:
        """Of the difference to what the scanner knows."""
        if report.digest == request.known_digest:
            return Urgency.NONE
        known, in_hand = self._answered.get(request.known_digest), {each.node for each in request.in_flight or ()}
        return urgency(known, report, request.watching, in_hand) if known is not None else Urgency.NOW

    def _answer_by(self, urgent: Urgency) -> float:
        """When at the latest a difference that is seen now is answered, by the loop's clock."""
        now = asyncio.get_running_loop().time()
        match urgent:
            case Urgency.NOW:
                return now
            case Urgency.SOON:
                return min(self._answered_at + SOON_SECONDS, now + LATER_SECONDS)
            case Urgency.LATER:
                return now + LATER_SECONDS
            case Urgency.RARELY:
                return now + RARELY_SECONDS
            case Urgency.NONE:
                return float("inf")

    def _answer(self, report: ScanReport) -> ScanReport:
        _require_short(report)
        self._answered_at = asyncio.get_running_loop().time()
        self._answered[report.digest] = report
        self._answered.move_to_end(report.digest)
        while len(self._answered) > REMEMBERED:
            self._answered.popitem(last=False)
        now = self._clock()
        return replace(
            report,
            answered_at=now,
            seen_at=self.view.seen_at(now),
            run=activity.info().workflow_run_id or "",
            streams=self._record is not None,
        )

    def _prepare_once(self) -> None:
        if self._prepare is not None and PREPARING not in self._tasks and self.view.synced:
            nodes = tuple(islice(self.view.ledger.names(), PREPARED_FOR))
            self._tasks[PREPARING] = asyncio.create_task(self._prepare(nodes), name=PREPARING)

    def _sweep(self, request: ScanRequest) -> None:
        """Delete NodeFences that have expired, beside the scan and not ended with it: one that is answered at once leaves no
        time. A scanner that has not had its first report does not know who is open."""
        idle = SWEEPING not in self._tasks or self._tasks[SWEEPING].done()
        if self._fences is not None and request.known_digest and idle:
            self._tasks[SWEEPING] = asyncio.create_task(self._fences.sweep(request.watching), name=SWEEPING)

    async def _shutting_down(self, ending: asyncio.Event) -> None:
        await activity.wait_for_worker_shutdown()
        ending.set()
        self.view.wake_scans()


def _require_short(report: ScanReport) -> None:
    """Raises InvalidConfig for one that Temporal might not take, with the part of it that has to become smaller."""
    if (size := _size(report)) <= LARGEST_REPORT:
        return
    name, part = max(((each.name, getattr(report, each.name)) for each in fields(report)), key=lambda each: _size(each[1]))
    largest = max(part, key=_size, default="") if isinstance(part, tuple) else part
    what = f"{_size(part)} of them are {name}, and {_size(largest)} of these {in_a_line(str(largest), LONGEST_SHOWN)}"
    raise failure(ErrorType.INVALID_CONFIG, f"its report takes {size} bytes, which is more than {LARGEST_REPORT}: {what}")


def _size(found: object) -> int:
    return len(orjson.dumps(found, default=str, option=orjson.OPT_NON_STR_KEYS))


@asynccontextmanager
async def _beside(coroutine: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run it while the block runs, and end it with it."""
    task = asyncio.create_task(coroutine)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# Records what was seen and not repaired, after one look at each Node: who has laid a hand on it since it fell sick.
#
# Each record is made on its own: one that can't be made, or that Temporal refuses as it is, holds back no other.

T = TypeVar("T")

AT_ONCE, MOST_TRACES, LONGEST_NAME = 20, 5, 60
GIVEN_UP = LONGEST
"""So long after its end a record that Temporal refuses is asked for again: a search attribute that is missing can be added."""
PROGRAMS = frozenset({"kubelet", "kube-controller-manager", "cloud-controller-manager", "nodewarden"})
"""Field managers of which a taint or a cordon is no sign that another hand repairs the node."""


class ClusterObservations(ClusterActivities, ObservationActivities):
    """start: starts the workflow of a record, unless there is one."""

    def __init__(self, served: ServedCluster, *, start: Callable[[ObservationRecord], Awaitable[None]]) -> None:
        super().__init__(served)
        self._start = start
        self._room = asyncio.Semaphore(AT_ONCE)

    async def record(self, request: RecordRequest) -> RecordResult:
        """Side by side."""
        looks = await asyncio.gather(*(_attempt(self._looked_at(each)) for each in request.ended))
        ended = [each for each in looks if isinstance(each, Spell)]
        of_storms = tuple(each for each in ended if each.storm)
        single = [ObservationRecord(cluster=self._cluster, spells=(each,)) for each in ended if not each.storm]
        records = (*single, *request.records)
        tries = await asyncio.gather(*(_attempt(self._recorded(each)) for each in records))
        problems = {spell.record_id(self._cluster): look for spell, look in zip(request.ended, looks, strict=True)}
        problems |= {record.workflow_id: tried for record, tried in zip(records, tries, strict=True)}
        failed = {name: each for name, each in problems.items() if isinstance(each, ApplicationError)}
        over = [each for each in records if each.workflow_id not in failed]
        if failed and not over and not of_storms:
            raise next(iter(failed.values()))
        if self._served.record is not None:
            await self._served.record([decision for each in over for decision in each.decisions()])
        return RecordResult(of_storms=of_storms, left=tuple(failed), problem=next((each.message for each in failed.values()), ""))

    async def _recorded(self, record: ObservationRecord) -> None:
        """It counts as recorded, too, once it has been refused for long enough: only the decision stream has it then."""
        try:
            async with self._room:
                await self._start(record)
        except ApplicationError as error:
            if error.type != ErrorType.INVALID_CONFIG or self._served.clock() - record.over < GIVEN_UP:
                raise
            metrics.OBSERVATIONS_DROPPED.add(activity.metric_meter(), cluster=self._cluster)
            activity.logger.error("%s is dropped after %s: %s", record.workflow_id, GIVEN_UP, error.message)

    async def _looked_at(self, spell: Spell) -> Spell:
        if spell.ending is not Ending.CAME_BACK or "/" in spell.node:  # a Machine that never had a Node
            return spell
        async with self._room:
            node = await find_node(self._connection, spell.node)
        same = node is not None and node.view.uid == (spell.uid or node.view.uid)
        return with_traces(spell, tuple(hands_on(node.document, spell.since))[:MOST_TRACES] if node is not None and same else ())


async def _attempt(work: Awaitable[T]) -> T | ApplicationError:
    """What comes of it, or why nothing does."""
    try:
        return await work
    except ApplicationError as error:
        return error


def hands_on(node: dict[str, Any], since: datetime) -> Iterator[str]:
    """Who has cordoned or tainted the Node since then, by its managedFields: what a manager wrote last, and when."""
    for entry in node["metadata"].get("managedFields") or ():
        manager, fields = str(entry.get("manager") or ""), (entry.get("fieldsV1") or {}).get("f:spec") or {}
        try:
            at = datetime.fromisoformat(entry.get("time") or "")
        except ValueError:
            continue
        if manager in PROGRAMS or entry.get("subresource") or at.astimezone(UTC) < since:
            continue
        if "f:unschedulable" in fields:
            yield f"cordoned by {in_a_line(manager, LONGEST_NAME)}"
        elif "f:taints" in fields:
            yield f"tainted by {in_a_line(manager, LONGEST_NAME)}"
