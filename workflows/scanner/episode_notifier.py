"""What the scanner tells episodes of a report: what became of their nodes.

A level, compared with what was told last. It does not hold up the scan: they are told beside it (`background_tasks.py`), one
call at a time, with what is known when it begins. People are told by the scan itself
(`activities/cluster/report/status_writer.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import EpisodeActivities, NewsRequest
from activities.errors import error_message
from policy.episode.messages import Observation
from policy.episode.permits import Permit
from policy.scan.scan_report import ScanReport
from policy.scan.urgency import plainly_sick, stamp_of
from workflows.kit import options

AS_FOUND = ""
"""Of an episode that was told nothing yet: that its node is sick it knows."""


class Telling:
    """Of one scanner; `told` is carried over by it."""

    def __init__(self, cluster: str, told: Iterable[tuple[str, str]]) -> None:
        self._cluster = cluster
        self._told = dict(told)

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What the episode of each node was told last."""
        return tuple(self._told.items())

    def begin(self, node: str) -> None:
        """An episode is being opened for it, and looks for itself what it finds."""
        self._told[node] = AS_FOUND

    def forget(self, node: str) -> None:
        """It was not opened: another one may have the node."""
        self._told.pop(node, None)

    def news(self, report: ScanReport, permits: tuple[Permit, ...]) -> tuple[Observation, ...]:
        """Of which nodes in hand something else is seen than their episodes were told."""
        if report.view.stale:
            return ()  # what is not live is no news
        held = {permit.node for permit in permits}
        self._told = {node: told for node, told in self._told.items() if node in held}
        stamps = {each: stamp_of(each) for each in report.observations if each.node in held}
        self._told |= {
            each.node: stamp for each, stamp in stamps.items() if self._told.get(each.node) == AS_FOUND and plainly_sick(each)
        }
        return tuple(each for each, stamp in stamps.items() if self._told.get(each.node) != stamp)

    async def tell_episodes(self, news: tuple[Observation, ...]) -> bool:
        """Signal them. False: some of them have closed without our hearing of it."""
        names = ", ".join(each.node for each in news)
        try:
            result = await workflow.execute_activity_method(
                EpisodeActivities.tell,
                NewsRequest(cluster=self._cluster, observations=news),
                **(options.temporal_call() | {"summary": f"tells episodes of their nodes: {names}"[:200]}),
            )
        except ActivityError as error:
            workflow.logger.warning("episodes can't be told of their nodes: %s", error_message(error))
            return True
        self._told |= {each.node: stamp_of(each) for each in news if each.node not in result.gone}
        return not result.gone
