"""With what an episode is started, whoever starts it: its one id (S13), how it is found, and what Temporal's UI shows of it."""

from __future__ import annotations

from typing import TypedDict

from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy

from activities.contracts import search
from activities.contracts.pages import introduced
from policy.episode.ids import episode_id
from policy.episode.messages import EpisodeInput, Kind


class StartOptions(TypedDict):
    """Words of `Client.start_workflow`."""

    id: str
    id_conflict_policy: WorkflowIDConflictPolicy
    static_summary: str
    static_details: str
    search_attributes: TypedSearchAttributes


def start_options(kind: Kind, request: EpisodeInput, *, page: str) -> StartOptions:
    """Of the episode that is asked for. page: the address of ours."""
    cluster, node, reason = request.cluster, request.node, request.reason
    return StartOptions(
        id=episode_id(cluster, node),
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        **introduced(kind, cluster=cluster, node=node, reason=reason, requester=request.requester, page=page),
        search_attributes=search.of_episode(kind, cluster=cluster, node=node, reason=reason),
    )
