"""What is counted of every episode, for dashboards and alerts: each phase that it enters, and its end with how long it took.

Without the names of nodes, of which there may be any number: an alert says that something needs a person, and the search
attribute `Phase` says where. How long each act takes is measured by Temporal's own metrics, since an act's name has its step in
it. An episode that goes on in a new history enters its phase once more.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow

from activities.contracts import metrics
from policy.episode.messages import Kind, Outcome, Phase


def entered(cluster: str, kind: Kind, phase: Phase) -> None:
    """An episode is in another phase than before."""
    metrics.EPISODE_PHASES.add(workflow.metric_meter(), cluster=cluster, kind=kind.value, phase=phase.value)


def unexpected_phase(cluster: str, kind: Kind, before: Phase, after: Phase) -> None:
    """An episode has gone from one phase to another to which no arrow leads (`policy/episode/phases.py`)."""
    metrics.UNEXPECTED_PHASES.add(
        workflow.metric_meter(), cluster=cluster, kind=kind.value, before=before.value, after=after.value
    )


def detected(cluster: str, kind: Kind, since: datetime) -> None:
    """An episode knows since when its node has offended."""
    metrics.TIME_TO_DETECT.record(workflow.metric_meter(), workflow.now() - since, cluster=cluster, kind=kind.value)


def proven_off(cluster: str, kind: Kind, since: datetime | None) -> None:
    """Its node is off. since: None where it is not known when it began to offend."""
    if since is not None:
        metrics.TIME_TO_OFF.record(workflow.metric_meter(), workflow.now() - since, cluster=cluster, kind=kind.value)


def ended(cluster: str, kind: Kind, outcome: Outcome, lasted: timedelta, since: datetime | None) -> None:
    """An episode is over: how many have been, how long each was open, and how long its node was of no use."""
    meter = workflow.metric_meter()
    metrics.EPISODES_ENDED.record(meter, lasted, cluster=cluster, kind=kind.value, outcome=outcome.value)
    if since is not None and outcome in {Outcome.RECOVERED, Outcome.REPLACED}:
        metrics.TIME_TO_SERVICE.record(meter, workflow.now() - since, cluster=cluster, kind=kind.value)
