"""Who holds a node by Temporal's own account: holders are described, and a table without memory is built anew (S14)."""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import DescribeRequest, EpisodeActivities, EpisodeDescription, FindRequest, FoundOpen
from activities.errors import error_message
from policy.episode.messages import Kind
from policy.episode.permits import Permit, PermitState
from policy.scan.admission import room_in_scopes
from policy.scan.scan_report import ScanReport
from workflows.kit import options
from workflows.kit.ids import episode_id
from workflows.kit.messages import ScannerState
from workflows.scanner.backoff import CLOSING, HoldingOff
from workflows.scanner.permit_lines import Grantor
from workflows.scanner.permit_table import PermitTable

DESCRIBE_EVERY = timedelta(seconds=60)
"""How often holders are described, in case a closing episode's release never reached us."""
PAUSE_AFTER_FAILURE = timedelta(seconds=5)
LIST_LAG = timedelta(seconds=10)
"""How long at most Temporal's list of open workflows does not tell of one that has begun; a second is usual."""
DESCRIBED_AT_ONCE = 200


class Holders:
    """What Temporal says of the lines in one scanner's table."""

    def __init__(self, grantor: Grantor, state: ScannerState, table: PermitTable, holding_off: HoldingOff) -> None:
        self._grantor = grantor
        self._table = table
        self._holding_off = holding_off
        self._began = state.started
        self.known = state.known
        """Whether the table holds all open episodes; before, nothing is granted."""
        self.described_at: datetime | None = state.described_at
        """None: at the next occasion, whenever they were described last."""
        self.problem = ""
        self._run, self._forgotten = "", False
        self._described = dict[str, bool]()
        """Of marks that are seen, by incident: whether there was a line of that when the node's episode was described last."""
        self._marks = dict[str, str]()

    def strangers(self, report: ScanReport) -> tuple[Permit, ...]:
        """Marked nodes without a line: an episode holds them that we know nothing of, as after a reset of this workflow, and
        counts as it would at worst until it is described as closed (S14)."""
        closing = self._holding_off.closing()
        return tuple(
            Permit(
                node=seen.node,
                workflow_id=episode_id(self._grantor.cluster, seen.node),
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
            if seen.incident and self._table.of(seen.node) is None and seen.incident not in closing
            and self._described.get(seen.incident, True)
        )  # fmt: skip

    def forget(self) -> None:
        """The table may lack what an earlier life of this history has granted. Called where nobody can tell the time."""
        self.known, self._forgotten = False, True

    async def rebuild(self, report: ScanReport) -> None:
        """Without carried state nothing is granted before all open episodes are in the table: those that Temporal lists, and
        those whose marks are seen (S14).

        An earlier scanner granted nothing after we began. So a list that is `LIST_LAG` younger than that beginning misses nobody
        whom it has let act. A reset of this workflow takes back what it knew, which its first report shows: built anew, too.
        """
        if self._forgotten or (report.run and self._run not in {"", report.run}):
            self.known, self._forgotten, self._began = False, False, workflow.now()
        self._run = report.run or self._run
        if self.known or not report.view.synced:
            return  # before the first sync there may be marks that nobody has seen yet
        found = await self._find_open()
        if found is not None and found.earlier and (lag := self._began + LIST_LAG - workflow.now()) > timedelta(0):
            await workflow.sleep(lag, summary="until the list of open episodes has all that the last scanner admitted")
            found = await self._find_open()
        if found is not None:
            marked = (seen.node for seen in report.observations if seen.incident or seen.mark_problem)
            lines = self._table.permits()
            # Those may be opening: that there is no episode yet says nothing.
            reserved = {line.node for line in lines if line.holding is PermitState.RESERVED}
            nodes = tuple(sorted({*found.nodes, *marked, *(line.node for line in lines)} - reserved))
            self.known = not nodes or await self._describe(nodes, report)
            self.described_at = workflow.now()
        if not self.known:
            await workflow.sleep(PAUSE_AFTER_FAILURE, summary="before the open episodes are looked for again")

    def to_be_described(self, report: ScanReport, opening: set[str]) -> tuple[str, ...]:
        """Whose episodes to describe now, none where that is not due. opening: nodes whose episode is being opened; until that is
        over, nobody can say that there is none."""
        if not self.known:
            return ()  # whoever is found while the table is built is no stranger
        self._marks = {seen.node: seen.incident for seen in report.observations if seen.incident}
        marked = self._marks
        new = not self.problem and any(each.incident not in self._described for each in self.strangers(report))
        due = new or self.described_at is None or workflow.now() - self.described_at >= DESCRIBE_EVERY
        asking = (each.node for each in self._table.need_person)
        return tuple(sorted({*self._table.nodes(), *marked, *asking} - opening)) if due else ()

    async def describe(self, nodes: tuple[str, ...]) -> bool:
        """Release what has closed without our hearing of it, and learn what became of unknown openings.

        Returns whether that changed the table.
        """
        self.described_at = workflow.now()
        before, marks = (self._table.permits(), self._table.queue(), self._described), self._marks
        if await self._describe(nodes):
            lines = {line.incident for line in self._table.permits()}
            self._described = {marks[node]: marks[node] in lines for node in nodes if node in marks}
        return before != (self._table.permits(), self._table.queue(), self._described)

    async def _describe(self, nodes: tuple[str, ...], report: ScanReport | None = None) -> bool:
        """Ask what the nodes' episodes do. report: where the table is built anew, by whose policies it is filled."""
        asked_at, described = workflow.now(), list[EpisodeDescription]()
        for first in range(0, len(nodes), DESCRIBED_AT_ONCE):
            request = DescribeRequest(cluster=self._grantor.cluster, nodes=nodes[first : first + DESCRIBED_AT_ONCE])
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
            released_at = self._holding_off.released_at(episode.incident)
            if not episode.open or released_at is None or asked_at - released_at >= CLOSING:
                # Who was granted by a predecessor keeps it, as far as the cap goes; later strangers must ask (S14, S15, S17).
                room = not self.known and self._table.counted() < self._grantor.cap(report)
                room = room and report is not None and room_in_scopes(report, self._table.permits(), episode.node)
                self._table.reconcile(episode, asked_at, room=room, anew=not self.known)
        return True

    async def _find_open(self) -> FoundOpen | None:
        """None where they could not be listed: the problem says why."""
        try:
            return await workflow.execute_activity_method(
                EpisodeActivities.find_open,
                FindRequest(cluster=self._grantor.cluster),
                **(options.temporal_call() | {"summary": "lists the open episodes of the cluster"}),
            )
        except ActivityError as error:
            self.problem = f"no permit is granted before all open episodes are known: {error_message(error)}"
            return None
