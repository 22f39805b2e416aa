"""Which episodes hold nodes by Temporal's own account: holders are described, and a table without memory is built anew (S14)."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import DescribeRequest, EpisodeActivities, EpisodeDescription, FindRequest, FoundOpen
from activities.errors import error_message
from policy.episode.messages import Kind, episode_id
from policy.episode.permits import Permit, PermitState
from policy.scan.admission import room_in_scopes
from policy.scan.scan_report import ScanReport
from workflows.kit import options
from workflows.scanner.backoff import CLOSING, closing
from workflows.scanner.state import ScannerInput, ScannerState

DESCRIBE_EVERY = timedelta(seconds=60)
"""How often holders are described, in case the release of an episode never arrived."""
PAUSE_AFTER_FAILURE = timedelta(seconds=5)
LIST_LAG = timedelta(seconds=10)
"""How long at most Temporal's list of open workflows lacks one that has begun; a second is usual."""
DESCRIBED_AT_ONCE = 200


def strangers(cluster: str, state: ScannerState, report: ScanReport) -> tuple[Permit, ...]:
    """Marked nodes without a permit: an episode holds them that we know nothing of, as after a reset of this workflow, and counts
    as it would at worst until it is described as closed (S14)."""
    just_released = closing(state)
    return tuple(
        Permit(
            node=seen.node,
            workflow_id=episode_id(cluster, seen.node),
            incident=seen.incident,
            kind=Kind.FENCING,
            holding=PermitState.OPEN,
            granted_at=workflow.now(),
            provider_id=seen.provider_id,
            control_plane=None,
            node_uid=seen.uid,
            groups=seen.groups,
            found=True,
        )
        for seen in report.observations
        if seen.incident and seen.node not in state.permits and seen.incident not in just_released
        and state.described.get(seen.incident, True)
    )  # fmt: skip


class Holders:
    """Keeps one scanner's permit table as Temporal's account of its episodes says."""

    def __init__(self, scanner: ScannerInput, state: ScannerState) -> None:
        self._scanner = scanner
        self._state = state
        self._list_complete_from = state.started + LIST_LAG
        self._run, self._forgotten = "", False
        """Of this history only: another run in a report, or a call of `forget`, shows a reset."""
        self.problem = ""
        self.former = ""
        """The run of the last scanner, once the list has all that it did; "" where there was none."""
        self.repaired: bool | None = None
        """Whether an episode of this cluster ever was; None while that was not asked."""

    def forget(self) -> None:
        """The table may lack what an earlier life of this history has granted. Called where the time can't be read."""
        self._state.known, self._forgotten = False, True

    async def rebuild(self, report: ScanReport) -> None:
        """Without carried state nothing is granted before all open episodes are in the table: those that Temporal lists, and
        those of marks that are seen (S14).

        An earlier scanner granted nothing after we began. So a list that is `LIST_LAG` younger than that beginning misses no
        episode that it let act. A reset of this workflow takes back what it knew, which its first report shows: built anew, too.
        """
        state = self._state
        if self._forgotten or (report.run and self._run not in {"", report.run}):
            state.known, self._forgotten, self._list_complete_from = False, False, workflow.now() + LIST_LAG
        self._run = report.run or self._run
        if state.known or not report.view.synced:
            return  # before the first sync there may be marks that were not seen yet
        found = await self._find_open()
        if found is not None and found.earlier and (lag := self._list_complete_from - workflow.now()) > timedelta(0):
            await workflow.sleep(lag, summary="until the list of open episodes has all that the last scanner admitted")
            found = await self._find_open()
        if found is not None:
            self.repaired, self.former = found.repaired, found.former
            marked = (seen.node for seen in report.observations if seen.incident or seen.mark_problem)
            # Those may be opening: that there is no episode yet says nothing.
            reserved = {permit.node for permit in state.permits.values() if permit.holding is PermitState.RESERVED}
            nodes = tuple(sorted({*found.nodes, *marked, *state.permits} - reserved))
            state.known = not nodes or await self._describe(nodes, report)
            state.described_at = workflow.now()
        if not state.known:
            await workflow.sleep(PAUSE_AFTER_FAILURE, summary="before the open episodes are looked for again")

    def to_be_described(self, report: ScanReport, opening: set[str]) -> tuple[str, ...]:
        """The nodes of episodes that are to be described now, none where that is not due. opening: nodes of episodes that are
        being opened; until that is over, it is not known that there is none."""
        state = self._state
        if not state.known:
            return ()  # an episode that is found while the table is built is no stranger
        found = strangers(self._scanner.cluster, state, report)
        new = not self.problem and any(each.incident not in state.described for each in found)
        if not new and state.described_at is not None and workflow.now() - state.described_at < DESCRIBE_EVERY:
            return ()
        marked = (seen.node for seen in report.observations if seen.incident)
        return tuple(sorted({*state.nodes_in_hand(), *marked, *state.need_person} - opening))

    async def describe(self, nodes: tuple[str, ...], report: ScanReport) -> bool:
        """Release what has closed without a release that arrived, and learn what became of unknown openings. report: of the
        marks that are seen.

        Returns whether that changed the table.
        """
        state = self._state
        state.described_at = workflow.now()
        marks = {seen.node: seen.incident for seen in report.observations if seen.incident}
        before = (dict(state.permits), list(state.queue), state.described)
        if await self._describe(nodes):
            permits = {permit.incident for permit in state.permits.values()}
            state.described = {marks[node]: marks[node] in permits for node in nodes if node in marks}
        return before != (state.permits, state.queue, state.described)

    async def _describe(self, nodes: tuple[str, ...], report: ScanReport | None = None) -> bool:
        """Ask what the nodes' episodes do. report: where the table is built anew; its policies say how many permits count."""
        state = self._state
        asked_at, described = workflow.now(), list[EpisodeDescription]()
        for first in range(0, len(nodes), DESCRIBED_AT_ONCE):
            request = DescribeRequest(cluster=self._scanner.cluster, nodes=nodes[first : first + DESCRIBED_AT_ONCE])
            try:
                result = await workflow.execute_activity_method(
                    EpisodeActivities.describe,
                    request,
                    **(options.temporal_call() | {"summary": "describes the holders of permits"}),
                )
            except ActivityError as error:
                self.problem = f"holders can't be described: {error_message(error)}"
                return False
            described += result.episodes
        self.problem = ""
        for episode in sorted(described, key=lambda each: (each.started or asked_at, each.node)):
            released_at = state.released.get(episode.incident)
            if not episode.open or released_at is None or asked_at - released_at >= CLOSING:
                # An episode that a predecessor granted keeps its permit, as far as the cap goes; later strangers must ask (S14,
                # S15, S17).
                room = not state.known and state.counted() < self._scanner.cap(report)
                room = room and report is not None and room_in_scopes(report, state.permits.values(), episode.node)
                state.reconcile(episode, asked_at, room=room, anew=not state.known)
        return True

    async def _find_open(self) -> FoundOpen | None:
        """None where they could not be listed: the problem says why."""
        try:
            return await workflow.execute_activity_method(
                EpisodeActivities.find_open,
                FindRequest(cluster=self._scanner.cluster),
                **(options.temporal_call() | {"summary": "lists the open episodes of the cluster"}),
            )
        except ActivityError as error:
            self.problem = f"no permit is granted before all open episodes are known: {error_message(error)}"
            return None
