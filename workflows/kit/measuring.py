"""What is counted of every episode, for dashboards and alerts: each phase that it enters, and its end with how long it took.

Without the names of nodes, of which there may be any number: an alert says that something needs a person, and the search
attribute `Phase` says where. How long each act takes is measured by Temporal's own metrics, since an act's name has its step in
it. An episode that goes on in a new history enters its phase once more.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

from policy.episode.messages import Kind, Outcome, Phase

PHASES = "nodewarden_episode_phases"
ENDED = "nodewarden_episodes_ended"


def entered(cluster: str, kind: Kind, phase: Phase) -> None:
    """An episode is in another phase than before."""
    counter = workflow.metric_meter().create_counter(PHASES, "Phases that episodes have entered")
    counter.add(1, {"cluster": cluster, "kind": kind.value, "phase": phase.value})


def ended(cluster: str, kind: Kind, outcome: Outcome, lasted: timedelta) -> None:
    """An episode is over: how many have been, and how long each was open."""
    histogram = workflow.metric_meter().create_histogram_timedelta(ENDED, "How long episodes were open that have ended")
    histogram.record(lasted, {"cluster": cluster, "kind": kind.value, "outcome": outcome.value})
