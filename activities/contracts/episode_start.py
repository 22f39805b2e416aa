"""How an episode is started and found: its one id (S13), what Temporal's UI shows of it, and the addresses of our page and of
Temporal's UI.

An address is "" if the settings name none (`page_url`, `temporal.ui_url`); then there is no link, and nothing else is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict
from urllib.parse import quote

from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy

from activities.contracts import search_attributes
from policy.episode.messages import EpisodeInput, Kind, episode_id
from policy.history.spells import OBSERVATION
from policy.values.display_text import without_calls

SUMMARY_LENGTH = 200
"""Temporal's UI shows a line of it; 400 bytes are the least that servers take (limit.userMetadataSummaryBytes)."""

_EPISODES = "({})".format(", ".join(f"'{each.value}'" for each in Kind))
_BROKEN = "('Failed', 'Terminated', 'Canceled', 'TimedOut')"


def page_of(address: str, cluster: str, node: str = "") -> str:
    if not address:
        return ""
    return f"{address}/c/{_part(cluster)}" + (f"/nodes/{_part(node)}" if node else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporalUi:
    """Temporal's own pages of one namespace."""

    address: str
    namespace: str

    def of(self, workflow_id: str, run_id: str = "") -> str:
        """The page of a workflow's run; without run_id, of its latest run."""
        return f"{self._workflows}/{_part(workflow_id)}" + (f"/{_part(run_id)}" if run_id else "")

    def found(self, query: str) -> str:
        """The page that lists the workflows which a query finds."""
        return f"{self._workflows}?query={quote(query, safe='')}"

    @property
    def _workflows(self) -> str:
        return f"{self.address}/namespaces/{_part(self.namespace)}/workflows"


class Introduction(TypedDict):
    """Arguments of `Client.start_workflow`."""

    static_summary: str
    static_details: str


def introduced(kind: Kind, *, cluster: str, node: str, reason: str, requester: str, page: str) -> Introduction:
    """What Temporal's UI shows of a workflow. page: the address of our page."""
    reason, requester, name = map(without_calls, (reason, requester, node))  # it is shown as Markdown
    asked = f"asked by {requester}" if requester else "asked without a name"
    details = f"{kind.value} of `{name}` in `{cluster}`, {asked}: {reason or '-'}"
    if link := page_of(page, cluster, node):
        details += f"\n\n[{name} on nodewarden's page]({link})"
    return Introduction(static_summary=f"{name}: {reason or asked}"[:SUMMARY_LENGTH], static_details=details)


def queries(cluster: str) -> Mapping[str, str]:
    """The Temporal queries of docs/temporal.md, by their names."""
    of_cluster = f"Cluster = '{cluster}'"
    return {
        "Needs a person": f"{of_cluster} AND Phase = 'needs-human' AND ExecutionStatus = 'Running'",
        "Open episodes": f"{of_cluster} AND Kind IN {_EPISODES} AND ExecutionStatus = 'Running'",
        "Did not come back": f"{of_cluster} AND Outcome IN ('fenced-off', 'aborted')",
        "Ended without a result": f"{of_cluster} AND Kind IN {_EPISODES} AND ExecutionStatus IN {_BROKEN}",
        "Would have been repaired": f"{of_cluster} AND Kind = '{OBSERVATION}'",
    }


class StartOptions(TypedDict):
    """Arguments of `Client.start_workflow`."""

    id: str
    id_conflict_policy: WorkflowIDConflictPolicy
    static_summary: str
    static_details: str
    search_attributes: TypedSearchAttributes


def start_options(kind: Kind, request: EpisodeInput, *, page: str) -> StartOptions:
    """How to start the requested episode. page: the address of our page."""
    cluster, node, reason = request.cluster, request.node, request.reason
    return StartOptions(
        id=episode_id(cluster, node),
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        **introduced(kind, cluster=cluster, node=node, reason=reason, requester=request.requester, page=page),
        search_attributes=search_attributes.of_episode(kind, cluster=cluster, node=node, reason=reason),
    )


def _part(text: str) -> str:
    return quote(text, safe="")
