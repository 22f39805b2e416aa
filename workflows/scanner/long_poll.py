"""The long poll of one scanner: what a scan is told, its report, and whether that may still be acted on.

What is done with a report, and meanwhile, is `workflows/definitions/scanner.py`; the scan is `activities/cluster/acts/scan.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, CancelledError

from activities.contracts.scan import OpenEpisode, ScanActivities, ScanRequest
from activities.errors import error_message
from policy.objects.scopes import CLUSTER
from policy.scan.scan_report import ScanReport
from policy.scan.views import another_cluster
from policy.values.times import format_duration
from workflows.kit import options
from workflows.kit.interrupts import never_began
from workflows.kit.messages import ScannerState
from workflows.scanner.episode_notifier import Telling
from workflows.scanner.permit_lines import Grantor
from workflows.scanner.permits import Granting
from workflows.scanner.preservations import Preserving

HASTY, HASTY_IN_A_ROW, BREATH = timedelta(milliseconds=200), 20, timedelta(seconds=1)


@dataclass(slots=True)
class _Poll:
    """One that is under way."""

    request: ScanRequest
    began: datetime
    scan: workflow.ActivityHandle[ScanReport]


class Polling:
    """One per scanner; report, scans, polls and what people were told of a halt are carried over by it."""

    def __init__(
        self,
        state: ScannerState,
        wait: timedelta,
        *,
        grantor: Grantor,
        granting: Granting,
        telling: Telling,
        preserving: Preserving,
    ) -> None:
        """wait: how long a poll without news takes."""
        self._grantor = grantor
        self._granting = granting
        self._telling = telling
        self._preserving = preserving
        self._wait = wait
        self._poll: _Poll | None = None
        self._fresh = False
        self._heard_at: datetime | None = None
        self._told_at: datetime | None = None
        self._asked_with = frozenset[str]()
        self._hasty = 0
        self.report: ScanReport | None = state.report
        self.scans, self.polls = state.scans, state.polls
        self.halted_told = state.halted
        self.cluster_uid = state.cluster_uid or (state.report.cluster_uid if state.report is not None else "")
        """Of the cluster that is scanned, "" as long as nobody has said."""
        self.asking: list[str] = []
        """The nodes whose episodes wait for an answer that only a report can give."""
        self.problem = ""

    @property
    def awaited(self) -> bool:
        """Whether a scan is under way."""
        return self._poll is not None and not self._poll.scan.done()

    @property
    def is_fresh(self) -> bool:
        """Whether the last report may still be acted on: without a worker no scan fails, it is only not answered (S18)."""
        oldest = self._wait + options.SCAN_GRACE
        return self._fresh and self._heard_at is not None and workflow.now() - self._heard_at < oldest

    def may_be_acted_on(self) -> bool:
        """Whether the last report is young enough, while no scan is under way that would tell of a storm (S17, S18, S45). Where
        it was long on its way, or something else has taken its time since, the next scan answers at once with what is so then."""
        late = workflow.now() - self._told_at if self._told_at is not None else timedelta(0)
        if late <= options.TOLD_LATELY:
            return True
        self._fresh = False
        seconds = timedelta(seconds=late // timedelta(seconds=1))
        self.problem = f"the last report came when it was {format_duration(seconds)} old: another one is asked for"
        return False

    @property
    def unanswered(self) -> bool:
        """Whether the last scan went well, and the one since has not been answered for too long."""
        return self._fresh and not self.is_fresh

    def sees(self, node: str) -> bool:
        """Whether the last report says in which parts of the cluster the node is, where policies ask for that."""
        report = self.report
        if report is None or not set(report.policies.scopes) - {CLUSTER}:
            return True
        return any(seen.node == node for seen in report.observations)

    def begin(self, halted: str, halt_over: str) -> None:
        """The next scan. halted: why nothing is begun, "" else; halt_over: how the last pause has ended."""
        self.polls += 1
        began, request = workflow.now(), self.request(halted, halt_over)
        scan = workflow.start_activity_method(
            ScanActivities.observe_cluster,
            request,
            **(options.scan(self._grantor.cluster, self._wait) | {"summary": "awaits a change of the cluster"}),
        )
        self._poll = _Poll(request=request, began=began, scan=scan)

    def cut_short(self) -> None:
        """End the scan that is under way: there is something else to ask."""
        if self._poll is not None:
            self._poll.scan.cancel()

    def tells_all(self, halted: str) -> bool:
        """Whether the scan under way tells people of the episodes and refusals that there are."""
        assert self._poll is not None
        told = self._poll.request
        return (told.in_flight, told.refusals, told.halted) == (self._granting.in_flight(), self._granting.refusals, halted)

    async def ended(self) -> bool:
        """Take the report of the scan that was begun. False: there is none, it was cut short or is another cluster's. Raises
        ActivityError where the cluster can't be scanned, which is the `problem` then."""
        poll = self._poll
        assert poll is not None
        try:
            report = await poll.scan
        except ActivityError as error:
            if isinstance(error.cause, CancelledError):
                return False
            why = "no worker of the cluster takes the scan: does one run?" if never_began(error) else error_message(error)
            self._fresh, self.problem = False, f"the cluster can't be scanned: {why}"
            raise
        finally:
            self._poll = None
        # Only now: a scan that was cancelled may have been begun by nobody, while no worker served the cluster.
        self.halted_told = poll.request.halted
        self._granting.table.reminded([each.incident for each in poll.request.remind], poll.began)
        await self._take_breath(poll.began)
        if report.cluster_uid not in {"", self.cluster_uid} and self.cluster_uid:
            # Workers of two clusters serve one name: nobody here can know of which of them the next act would be (S9).
            self._fresh, self.problem = False, another_cluster(self._grantor.cluster, report.cluster_uid, self.cluster_uid)
            await workflow.sleep(BREATH, summary="before the cluster is scanned again: another one has answered")
            return False
        self.report, self.cluster_uid = report, self.cluster_uid or report.cluster_uid
        self._fresh, self._heard_at, self.problem = True, workflow.now(), ""
        # A stale one says itself why it lets nobody act: by a wrong clock, say.
        answered = self.report.answered_at if not self.report.view.stale else None
        self._told_at = min(answered or self._heard_at, self._heard_at)
        self.scans += 1
        self._granting.holding_off.hear_report()
        return True

    async def _take_breath(self, began: datetime) -> None:
        """Two workers whose views differ (one is stale) would answer each other's digests at once, for ever."""
        self._hasty = self._hasty + 1 if workflow.now() - began < HASTY else 0
        if self._hasty >= HASTY_IN_A_ROW:
            self._hasty = 0
            await workflow.sleep(BREATH, summary="many scans in a row were answered at once")

    def request(self, halted: str, halt_over: str) -> ScanRequest:
        """What a scan is told now. halted, halt_over: see `begin`."""
        report, table = self.report, self._granting.table
        heard = report is not None and self.is_fresh and (self._granting.holders.known or not report.view.synced)
        # What is to become of a node whose episode has just ended, a younger report says, also where nothing else has changed.
        heard = heard and not self._granting.holding_off.settling
        # Whoever asks would wait until his node is told of anyway.
        heard = heard and all(self.sees(node) or node in self._asked_with for node in self.asking)
        self._asked_with = frozenset(self.asking)
        return ScanRequest(
            cluster=self._grantor.cluster,
            holder=self._grantor.holder,
            known_digest=report.digest if report is not None and heard else "",
            resource_version=report.resource_version if report is not None else "",
            inventory=report.inventory if report is not None else 0,
            work_in_hand=bool(self.asking or table.permits() or table.queue()),
            watching=tuple(dict.fromkeys((*self._granting.watched(), *self.asking))),
            told=self._telling.told,
            wait=self._wait,
            check_versions=report.check_versions if report is not None else (),
            begun=tuple(each.victim for each in self._preserving.told),
            in_flight=self._granting.in_flight(),
            refusals=self._granting.refusals,
            number=self.polls,
            halted=halted,
            need_person=len(table.need_person),
            permits=table.counted(),
            queued=len(table.queue()),
            remind=tuple(
                OpenEpisode(node=each.node, since=(each.since or each.told).isoformat(), incident=each.incident)
                for each in table.to_be_reminded_of(workflow.now())
            ),
            halted_is_new=bool(halted) and halted != self.halted_told,
            halt_over=halt_over if self.halted_told and not halted else "",
        )
