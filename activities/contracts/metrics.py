"""The table of all nodewarden metrics: name, meaning and labels. All code that measures takes its metric from here.

Temporal's SDK serves them (setting `metrics`). Only metrics about what is wrong with one node have node names in their labels.
Counters and histograms are added to wherever something happens, in workflows too: queries sum them over all workers.

A gauge is a level, and a worker shows the last value that was set for as long as it lives. A workflow moves between workers and
would leave its old levels behind; so would an activity. Therefore the scan's long poll (`activities/cluster/report/alarms.py`),
which always knows the levels of its cluster, sets them, together with the moment at which that poll began, by Temporal's clock:
of several workers the one with the latest moment counts (`deploy/alerts.yaml`, `docs/metrics.md`). It sets them on the
process's own meter, because the labels of the activity's meter would make another series for each type of activity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from temporalio.common import MetricGaugeFloat, MetricMeter

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
BUCKETS = (5.0, 15.0, 30.0, MINUTE, 120.0, 300.0, 600.0, 1200.0, 1800.0, HOUR, 3 * HOUR, 12 * HOUR, DAY, 3 * DAY, 7 * DAY)
"""Seconds: an episode takes half a minute if all goes well, and days while a machine is kept. The SDK's own buckets end at 10
s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One line of the table. unit: "" for a count. meaning: a sentence, for people."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ("cluster",)
    unit: str = ""

    def attributes(self, labels: Mapping[str, str]) -> dict[str, str]:
        """All of its labels, and no others: a series with fewer would be another one."""
        return {each: labels[each] for each in self.labels}


class Counter(Metric):
    """How often something has happened, since its worker began."""

    def add(self, meter: MetricMeter, amount: int = 1, /, **labels: str) -> None:
        """Count. With 0 the series is there before anything happens."""
        meter.create_counter(self.name, self.meaning, self.unit or None).add(amount, self.attributes(labels))


class Histogram(Metric):
    """How long something has taken, each time."""

    def record(self, meter: MetricMeter, lasted: timedelta, /, **labels: str) -> None:
        """Clocks of two machines may make a short time a negative one, which no histogram takes."""
        histogram = meter.create_histogram_timedelta(self.name, self.meaning, self.unit or None)
        histogram.record(max(lasted, timedelta(0)), self.attributes(labels))


class Gauge(Metric):
    """A level; the module says on which meter it is set."""

    def on(self, meter: MetricMeter, **labels: str) -> MetricGaugeFloat:
        """The series with these labels; set it whenever the level is known."""
        gauge = meter.create_gauge_float(self.name, self.meaning, self.unit or None)
        return gauge.with_additional_attributes(self.attributes(labels))


SCAN_BEGAN = Gauge(
    name="nodewarden_scan_began_timestamp_seconds",
    unit="s",
    meaning="When the last scan that this worker made for the cluster's scanner began, by Temporal's clock; 0 before the first.",
)
HALTED = Gauge(
    name="nodewarden_halted",
    meaning="1 while nothing is begun in the cluster because of a person: a pause, or a scanner that was stopped.",
)
VIEW_STALE = Gauge(
    name="nodewarden_view_stale",
    meaning="1 while what is seen of the cluster may not be acted on: its API is away, a watch behind, a worker just begun.",
)
CIRCUIT_BREAKERS_OPEN = Gauge(
    name="nodewarden_circuit_breakers_open",
    meaning="Health checks with an open circuit breaker that keeps unhealthy targets waiting.",
)
LEASE_NEEDED = Gauge(
    name="nodewarden_cluster_lease_needed",
    meaning="1 while something asks nodewarden to act in the cluster: a policy, or an open episode.",
)
LEASE_HELD = Gauge(
    name="nodewarden_cluster_lease_held",
    meaning="1 while the cluster Lease is held; without it nothing is admitted and nothing destructive is done.",
)
SCANNER_ATTEMPTS = Gauge(
    name="nodewarden_scanner_task_attempts",
    meaning="Where no scan runs: the attempt that the scanner's workflow task is at. From 3 on the task fails, and the scanner "
    "is stuck.",
)
NEED_PERSON = Gauge(
    name="nodewarden_episodes_need_person",
    meaning="Open episodes that wait for a person. As old as a long poll, `scan.wait`.",
)
PERMITS_USED = Gauge(
    name="nodewarden_permits_used",
    meaning="Permits in use: nodes that may be disrupted now, or are about to be. As old as a long poll, `scan.wait`.",
)
PERMITS_WAITING = Gauge(
    name="nodewarden_permits_waiting",
    meaning="Nodes that something asks to act on, and that wait for a permit. As old as a long poll, `scan.wait`.",
)
CLOCK_AHEAD = Gauge(
    name="nodewarden_worker_clock_ahead_seconds",
    labels=(),
    unit="s",
    meaning="How far the worker's clock was ahead of Temporal's when it was given its last activity. More than 5 ahead or 3 "
    "behind, and it leaves its work to others.",
)
TEMPORAL_AWAY = Gauge(
    name="nodewarden_temporal_away",
    labels=(),
    meaning="1 while Temporal does not answer this worker: nothing is begun, and data at risk is still warned of.",
)
EPISODE_PHASES = Counter(
    name="nodewarden_episode_phases",
    labels=("cluster", "kind", "phase"),
    meaning="Phases that episodes have entered. One that goes on in a new history enters its phase once more.",
)
UNEXPECTED_PHASES = Counter(
    name="nodewarden_unexpected_phases",
    labels=("cluster", "kind", "before", "after"),
    meaning="Changes of an episode's phase that its automaton does not have: a defect of nodewarden, which stopped nothing.",
)
REPEATED_FENCING = Counter(
    name="nodewarden_repeated_fencing",
    labels=("cluster", "node", "cause"),
    meaning="Alarms about a node that is fenced again and again for the same reason (`repeat_alarm`).",
)
DATA_AT_RISK = Counter(
    name="nodewarden_data_at_risk",
    meaning="Nodes that were not proven off when Kubernetes was about to detach their volumes by force (Event `DataAtRisk`).",
)
DEVICE_SILENT = Counter(
    name="nodewarden_device_silent",
    labels=("cluster", "node", "endpoint"),
    meaning="Readings that a fence device did not answer. The series is there from its first reading on.",
)
DEVICE_INSECURE = Counter(
    name="nodewarden_device_insecure",
    labels=("cluster", "node", "endpoint"),
    meaning="Readings of a fence device where others could have listened or answered.",
)
REFUSED_POWER_REQUESTS = Counter(
    name="nodewarden_refused_power_requests",
    labels=("reason",),
    meaning="Requests to power workers that no worker of this deployment had signed: `device`, `licence`, or `used` before.",
)
NOTIFICATIONS = Counter(
    name="nodewarden_notifications",
    labels=("result",),
    meaning="Messages to the services of `notifications`: `sent`, or `failed` after three tries.",
)
DECISIONS = Counter(
    name="nodewarden_decisions",
    labels=("sink", "result"),
    meaning="Records of the decision stream (`stream`), by sink: `written`, or `lost`: too many waited, or the worker ended.",
)
OBSERVATIONS_DROPPED = Counter(
    name="nodewarden_observations_dropped",
    meaning="Records of what was not repaired that Temporal has refused for seven days: they are in the decision stream only.",
)
EPISODES_ENDED = Histogram(
    name="nodewarden_episodes_ended",
    labels=("cluster", "kind", "outcome"),
    unit="s",
    meaning="Episodes that have ended, by how long each was open.",
)
TIME_TO_DETECT = Histogram(
    name="nodewarden_time_to_detect_seconds",
    labels=("cluster", "kind"),
    unit="s",
    meaning="From when a node began to offend to its episode's first look. Here and below: where it is not known since "
    "when, as when a person asked, nothing is measured.",
)
TIME_TO_OFF = Histogram(
    name="nodewarden_time_to_off_seconds",
    labels=("cluster", "kind"),
    unit="s",
    meaning="From when a node began to offend until it was proven off, or a person vouched for that: from then on its pods are "
    "freed. A proof that was lost and given anew counts anew.",
)
TIME_TO_SERVICE = Histogram(
    name="nodewarden_time_to_service_seconds",
    labels=("cluster", "kind"),
    unit="s",
    meaning="From when a node began to offend to the end of its episode, of those that ended `recovered` or `replaced`.",
)

TABLE: tuple[Metric, ...] = tuple(each for each in list(globals().values()) if isinstance(each, Metric))
"""In the order of this module."""


def buckets() -> dict[str, tuple[float, ...]]:
    """The buckets of each histogram in seconds, for the process that serves them."""
    return {each.name: BUCKETS for each in TABLE if isinstance(each, Histogram)}
