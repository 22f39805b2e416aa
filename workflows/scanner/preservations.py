"""The scanner's part in preservation: begin one for each machine that is not as it should be, or let the open one look again.

A machine whose preservation is as it should be is in no report, so that ten thousand of them cost nothing here. What was told is
told again only when it has changed, or after a while, in case an episode that should have acted never heard of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.preservation import PreservationStarts, PreserveRequest
from activities.errors import error_message
from policy.scan.scan_report import ScanReport
from workflows.kit import options
from workflows.kit.messages import PreservationNotice

TELL_AGAIN = timedelta(minutes=1)


class Preserving:
    """One per scanner; its state is carried over by it."""

    def __init__(self, cluster: str, told: Iterable[PreservationNotice] = ()) -> None:
        self._cluster = cluster
        self._told = {each.victim: each for each in told}
        self.problem = ""

    @property
    def told(self) -> tuple[PreservationNotice, ...]:
        """What was last told of which machine; bounded, as a report is."""
        return tuple(self._told.values())

    async def act(self, report: ScanReport, holder: str) -> None:
        """Nothing is begun or told on a stale view, or without the cluster Lease (S18, S38)."""
        if report.view.stale or not report.lease.held:
            return
        now = workflow.now()
        needs = {need.victim: need for need in report.preservations}
        self._told = {victim: each for victim, each in self._told.items() if victim in needs}
        due = [
            need
            for victim, need in needs.items()
            if (told := self._told.get(victim)) is None or told.stamp != need.stamp or now - told.at >= TELL_AGAIN
        ]
        if not due:
            return
        names = ", ".join(need.victim for need in due)
        try:
            await workflow.execute_activity_method(
                PreservationStarts.preserve,
                PreserveRequest(cluster=self._cluster, holder=holder, needs=tuple(due)),
                **(options.temporal_call() | {"summary": f"preservations: {names}"[:200]}),
            )
        except ActivityError as error:
            self.problem = f"preservations can't be begun: {error_message(error)}"
            return
        self.problem = ""
        self._told |= {need.victim: PreservationNotice(victim=need.victim, stamp=need.stamp, at=now) for need in due}
