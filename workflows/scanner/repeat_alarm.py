"""The scanner's alarm about nodes that are fenced again and again: counted as episodes end, told by an Event and a metric.

What counts and what the workloads in common are is `policy/scan/repeat_alarm.py`. The metric is counted once per alarm, whether
or not the Event can be written.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts import metrics
from activities.contracts.scan import RepetitionActivities, RepetitionRequest
from activities.errors import error_message
from policy.episode.permits import Release
from policy.scan.repeat_alarm import PastIncident, RepeatAlarm, Repetition, hear
from workflows.kit import options


class Repeating:
    """One per scanner; `incidents` and `untold` are what it carries over."""

    def __init__(
        self, cluster: str, alarm: RepeatAlarm, incidents: tuple[PastIncident, ...] = (), untold: tuple[Repetition, ...] = ()
    ) -> None:
        self._cluster = cluster
        self._alarm = alarm
        self.incidents = incidents
        self.untold = list(untold)

    def hear(self, release: Release) -> None:
        """An episode has ended or parked."""
        self.incidents, repetition = hear(self.incidents, release, workflow.now(), self._alarm)
        if repetition is not None:
            self.untold.append(repetition)
            meter = workflow.metric_meter()
            metrics.REPEATED_FENCING.add(meter, cluster=self._cluster, node=repetition.node, cause=repetition.cause)

    async def tell(self) -> None:
        """Tell what is new. One that can't be told is left to the metric: the next repetition says it all again."""
        while self.untold:
            repetition = self.untold.pop(0)
            try:
                await workflow.execute_activity_method(
                    RepetitionActivities.tell_repetition,
                    RepetitionRequest(cluster=self._cluster, repetition=repetition),
                    **(options.report(self._cluster) | {"summary": f"{repetition.node} is fenced again and again"}),
                )
            except ActivityError as error:
                workflow.logger.warning("%s: %s; it can't be told: %s", repetition.node, repetition.message, error_message(error))
