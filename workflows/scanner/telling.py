"""What the scanner tells others of a report: episodes what became of their nodes, people the status of health checks.

Both are levels and both are compared with what was told last. Neither holds up the scan: they are told beside it (`beside.py`),
one call at a time, with what is known when it begins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import EpisodeActivities, TellRequest
from activities.contracts.scan import InFlight, PublishRequest, Refusal, ScanActivities
from activities.errors import error_message
from policy.episode.observation import Observation
from policy.episode.permits import Permit
from policy.scan.report import ScanReport
from policy.scan.urgency import stamp_of
from workflows.kit import options


class Telling:
    """Of one scanner; `told` and `published` are carried over by it."""

    def __init__(self, cluster: str, *, told: Iterable[tuple[str, str]], published: str) -> None:
        self._cluster = cluster
        self._told = dict(told)
        self.published = published

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """What the episode of each node was told last."""
        return tuple(self._told.items())

    def news(self, report: ScanReport, permits: tuple[Permit, ...]) -> tuple[Observation, ...]:
        """Of which nodes in hand something else is seen than their episodes were told."""
        if report.view.stale:
            return ()  # what is not live is no news
        held = {permit.node for permit in permits}
        self._told = {node: told for node, told in self._told.items() if node in held}
        ours = (each for each in report.observations if each.node in held)
        return tuple(each for each in ours if self._told.get(each.node) != stamp_of(each))

    async def tell_episodes(self, news: tuple[Observation, ...]) -> bool:
        """Signal them. False: some of them have closed without our hearing of it."""
        names = ", ".join(each.node for each in news)
        try:
            result = await workflow.execute_activity_method(
                EpisodeActivities.tell,
                TellRequest(cluster=self._cluster, observations=news),
                **(options.temporal_call() | {"summary": f"tells episodes of their nodes: {names}"[:200]}),
            )
        except ActivityError as error:
            workflow.logger.warning("episodes can't be told of their nodes: %s", error_message(error))
            return True
        self._told |= {each.node: stamp_of(each) for each in news if each.node not in result.gone}
        return not result.gone

    def to_publish(self, report: ScanReport, permits: Iterable[Permit], refusals: tuple[Refusal, ...]) -> PublishRequest | None:
        """What the checks' status and Events are to say, None where that is what was published last."""
        if not (report.checks or refusals) or not report.lease.held:
            return None
        in_flight = tuple(
            InFlight(
                node=permit.node,
                since=permit.granted_at.isoformat(),
                incident=permit.incident,
                phase=permit.holding.value,
                kind=permit.kind.value,
            )
            for permit in permits
        )
        request = PublishRequest(cluster=self._cluster, checks=report.checks, in_flight=in_flight, refusals=refusals)
        return None if _stamp(request) == self.published else request

    async def publish(self, request: PublishRequest) -> None:
        """Write it."""
        try:
            result = await workflow.execute_activity_method(
                ScanActivities.publish_status,
                request,
                **(options.report(self._cluster) | {"summary": "writes the checks' status"}),
            )
        except ActivityError as error:
            workflow.logger.warning("the checks' status can't be written: %s", error_message(error))
            return
        self.published = "" if result.failed else _stamp(request)


def _stamp(told: object) -> str:
    """Another text for whatever else is told, and a short one: it is carried over for each node in hand."""
    return hashlib.sha256(str(told).encode()).hexdigest()[:16]
