"""The levels of one cluster for Prometheus: what its scanner and its scan know now.

They are set by the scan's long poll, because that one is always somewhere, and hears of the scanner with each request what only
the scanner knows. Why not by the scanner itself is `activities/contracts/metrics.py`.
"""

from __future__ import annotations

from datetime import datetime

from temporalio.common import MetricMeter

from activities.contracts import metrics
from activities.contracts.scan import ScanRequest
from policy.scan.permit_rules import WAIT_FOR_A_PERMIT
from policy.scan.readiness import opened_breakers
from policy.scan.scan_report import ScanReport


class Levels:
    """Of one cluster, as one worker knows them."""

    def __init__(self, cluster: str, meter: MetricMeter) -> None:
        self._began = metrics.SCAN_BEGAN.on(meter, cluster=cluster)
        self._halted = metrics.HALTED.on(meter, cluster=cluster)
        self._stale = metrics.VIEW_STALE.on(meter, cluster=cluster)
        self._breakers = metrics.CIRCUIT_BREAKERS_OPEN.on(meter, cluster=cluster)
        self._needed = metrics.LEASE_NEEDED.on(meter, cluster=cluster)
        self._held = metrics.LEASE_HELD.on(meter, cluster=cluster)
        self._need_person = metrics.NEED_PERSON.on(meter, cluster=cluster)
        self._used = metrics.PERMITS_USED.on(meter, cluster=cluster)
        self._waiting = metrics.PERMITS_WAITING.on(meter, cluster=cluster)

    def serve(self) -> None:
        """This worker serves the cluster, and has not been asked to scan it: the alarm that nobody scans goes by that."""
        self._began.set(0)

    def hear(self, request: ScanRequest, began: datetime) -> None:
        """What the scanner says of itself. began: when Temporal gave us the scan."""
        self._halted.set(float(bool(request.halted)))
        if request.in_flight is not None:  # else the scanner does not know yet who is open
            held_back = {each.node for each in request.refusals if each.reason in WAIT_FOR_A_PERMIT}
            self._need_person.set(request.need_person)
            self._used.set(request.permits)
            self._waiting.set(request.queued + len(held_back))
        self._began.set(began.timestamp())  # last: until then an earlier worker is believed

    def see(self, report: ScanReport) -> None:
        """What the scan has seen."""
        self._stale.set(float(bool(report.view.stale)))
        self._breakers.set(float(sum(1 for _ in opened_breakers(report))))
        self._needed.set(float(report.lease.needed))
        self._held.set(float(report.lease.held))

    def give_back(self) -> None:
        """The scanner is stopped: nobody needs the Lease."""
        self._needed.set(0)
        self._held.set(0)
