"""What the scanner sees and does not repair: it keeps the open spells, counts node-days, and has what is over recorded. What it
has left unrecorded, and which nodes are left alone, the next scanner takes over.

A record is made beside the scan, so that no deadline waits for it, and is asked for until it exists: only then does what it is
about leave the state. A repetition finds it made, by its workflow id. What can't be recorded now holds back nothing else. Which
spells open and end is `policy/history/spell_lifecycle.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import EpisodeActivities, FormerRun
from activities.contracts.scan import ObservationActivities, RecordRequest
from activities.errors import error_message
from policy.episode.permits import HoldOff, PermitState
from policy.history import spell_lifecycle
from policy.history.spells import MOST_RECORDED, NodeDays, ObservationRecord, ScannerSpells
from policy.scan.admission import Refused
from policy.scan.scan_report import MAXIMUM_WATCHED, ScanReport
from workflows.kit import options
from workflows.scanner.background_tasks import BackgroundTasks, CoalescedTask, is_cut_off
from workflows.scanner.state import ScannerInput, ScannerState

MOST_SHOWN = 50
MOST_LOOKED_AT = 100
"""So many ended spells one activity looks at."""
AGAIN = timedelta(minutes=1)
"""How long after a failure a record is asked for again."""
ON_STOP = timedelta(seconds=15)
TAKEN_OVER = timedelta(seconds=10)
"""So long one try at what the last scanner knew may take, and the first decision waits for the first one only."""
ASKED_FOR, ASKED_AGAIN = timedelta(minutes=2), timedelta(seconds=5)
"""How long it is asked for, and the pause between two tries: a queue of Temporal's that is full for a moment loses no spell."""
ASKED_LATER = "the last scanner is asked again for its spells"
HANDED_OVER = "nodes-that-people-want-left-alone-are-so-by-the-next-scanner"
"""Histories of builds that forgot them go on so."""
RECORDS = "what is not repaired is recorded"
"""Marks the histories that record it: one of an earlier build leaves it to the next one."""


class Spells:
    """Of one scanner."""

    def __init__(self, scanner: ScannerInput, state: ScannerState, tasks: BackgroundTasks) -> None:
        self._scanner = scanner
        self._state = state
        self._recording = CoalescedTask(tasks, self._record_next, repeated=True)
        self._asking = CoalescedTask(tasks, self._ask_former)
        self._not_before = state.started
        self._tried_storms = list[str]()
        """In this history, the latest try last: a storm that can't be recorded takes turns with the others."""

    def decide(self, report: ScanReport, refused: Iterable[Refused], opening: Collection[str]) -> None:
        """After each decision about a report. opening: the nodes of which an episode is being opened. While it is not known which
        spells were open before, none begins or ends: a second one would begin for the same sickness."""
        state = self._state
        if state.former_run:
            self._asking.ask()
            return
        begun = {
            each.node: each
            for each in state.permits.values()
            if each.state is not PermitState.RESERVED and each.node not in opening
        }
        changes = spell_lifecycle.next_spells(
            state.spells,
            report,
            refused,
            begun=begun,
            busy={*opening, *state.settling, *state.nodes_in_hand()} - begun.keys(),
            waiting=(*state.spells_ended, *state.spells_of_storms),
            now=workflow.now(),
        )
        state.spells, state.spells_left_out = changes.spells, changes.left_out
        state.spells_ended += changes.ended
        if workflow.now() >= self._not_before and self._next_request() is not None and workflow.patched(RECORDS):
            self._recording.ask()

    def count_days(self, report: ScanReport, wait: timedelta) -> None:
        """Of each report, as soon as it comes and before it takes the last one's place: the time between counts for the nodes of
        the last one, and a Node that is gone takes none of it along. wait: the longest of the scans between the two."""
        state, now, longest = self._state, workflow.now(), wait + options.SCAN_GRACE
        live = report.view.synced and not report.view.stale and not state.former_run
        if live and state.report is not None:
            since = state.days_counted_at
            state.node_days = spell_lifecycle.counted_days(state.node_days, state.report, since, now, longest=longest)
        state.days_counted_at = now if live else None

    def to_be_watched(self) -> tuple[str, ...]:
        """The nodes of which the next report says how they stand: those of open spells, and those that are left alone, which are
        no candidates either under an open circuit breaker."""
        state = self._state
        return spell_lifecycle.to_be_watched(
            {*state.spells, *state.held_off}, state.report, room=MAXIMUM_WATCHED, now=workflow.now()
        )

    def handed_over(self, most: int | None = None) -> ScannerSpells:
        """All that is not recorded yet, and which nodes the next scanner leaves alone. most: so many spells, the oldest."""
        state = self._state
        held_off = tuple(each for each in state.held_off.values() if each.is_handed_over)
        if state.former_run:
            return ScannerSpells(former_run=state.former_run, held_off=held_off)
        found = sorted((*state.spells.values(), *state.spells_ended, *state.spells_of_storms), key=lambda each: each.due)
        spells, left_out = tuple(found[:most]), state.spells_left_out
        return ScannerSpells(spells=spells, left_out=left_out, days=state.node_days, records=state.unrecorded, held_off=held_off)

    async def take_over(self, run_id: str) -> None:
        """What the last scanner knew, which was terminated, stopped, or reset into this one: its spells in place of what is known
        here, so that each keeps its id, and which nodes are left alone (S19). Before the first decision of this life; where it is
        not answered by then, it is asked for beside the scan."""
        left = await self._take_over_from(run_id)
        if left and workflow.patched(ASKED_LATER):
            self._state.former_run, self._state.former_until = left, workflow.now() + ASKED_FOR

    async def _take_over_from(self, run_id: str) -> str:
        """Ask that run what it knew. Returns the run that is to be asked next: itself again, or one that it could not ask either.
        "": none."""
        state = self._state
        try:
            request = FormerRun(workflow_id=workflow.info().workflow_id, run_id=run_id)
            call = options.temporal_call()
            call["schedule_to_close_timeout"] = TAKEN_OVER
            found = await options.execute(EpisodeActivities.former_spells, request, call, "takes over open spells")
        except ActivityError as error:
            workflow.logger.warning("what the last scanner has not recorded is not known: %s", error_message(error))
            return run_id
        if found.held_off and workflow.patched(HANDED_OVER):
            self.leave_alone(found.held_off)
        if found.former_run:
            return found.former_run
        state.spells = {each.node: each for each in found.spells if each.ended is None}
        state.spells_ended = [each for each in found.spells if each.ended is not None]
        state.spells_of_storms, state.node_days, state.unrecorded = [], found.days, found.records
        return ""

    def leave_alone(self, nodes: Iterable[HoldOff]) -> None:
        """But for one of which an episode has begun before that was known: a person has asked for it since."""
        state = self._state
        for each in nodes:
            permit, known = state.permits.get(each.node), state.held_off.get(each.node)
            has_begun = bool(state.former_run) and permit is not None and permit.state is PermitState.OPEN
            lasts = known is not None and (known.until is None or (each.until is not None and each.until <= known.until))
            if not has_begun and not lasts:
                state.held_off[each.node] = each

    async def _ask_former(self) -> None:
        """Until it is answered, in this history or the next; after that time its spells are lost."""
        state = self._state
        if state.former_run:
            state.former_run = await self._take_over_from(state.former_run)
        if state.former_run and state.former_until is not None and workflow.now() >= state.former_until:
            workflow.logger.warning("what the last scanner has not recorded is lost")
            state.former_run = ""
        elif state.former_run:
            await workflow.sleep(ASKED_AGAIN, summary="before the last scanner is asked again for its spells")
            self._asking.ask()

    async def end(self, *, stopped: bool) -> None:
        """stopped: no history follows, so that all is recorded now, open spells as still sick. What can't be recorded in that
        time the next scanner takes over. Else the next history goes on with all of it."""
        self._recording.end()
        self._asking.end()
        state, stop = self._state, workflow.now()
        if state.former_run:
            return
        known = state.spells or state.spells_ended or state.spells_of_storms or state.node_days or state.unrecorded
        if not stopped or not known or not workflow.patched(RECORDS):
            return
        state.spells_ended += spell_lifecycle.closed_unended(state.spells.values(), stop)
        # From here on they have the id of their record: it can't be known whether one that was not answered was made.
        state.unrecorded, state.node_days, state.spells = (*state.unrecorded, *self._of_days(stop)), (), {}
        while workflow.now() < stop + ON_STOP and await self._record(within=ON_STOP):
            pass

    # Record ---------------------------------------------------------------------------------------------------------

    async def _record_next(self) -> None:
        if await self._record() and self._next_request() is not None:
            self._recording.ask()

    async def _record(self, *, within: timedelta | None = None) -> bool:
        """Whether all that is next was recorded."""
        state, request = self._state, self._next_request()
        if request is None:
            return False
        storms = {record.spells[0].storm for record in request.records if record.spells}
        self._tried_storms = [*(each for each in self._tried_storms if each not in storms), *storms]
        about = [*(each.node for each in request.ended), *(each.workflow_id for each in request.records)]
        call = options.observations(self._scanner.cluster)
        if within is not None:
            call["schedule_to_close_timeout"] = within
        try:
            result = await options.execute(ObservationActivities.record, request, call, f"records: {', '.join(about)}"[:200])
        except ActivityError as error:
            if not is_cut_off(error):
                workflow.logger.warning("what was not repaired can't be recorded: %s", error_message(error))
            self._not_before = workflow.now() + AGAIN
            return False
        left, cluster = set(result.left), self._scanner.cluster
        late = {record.spells[0].storm for record in request.records if record.spells and record.workflow_id in left}
        if left:
            workflow.logger.warning("%d records of what was not repaired can't be made: %s", len(left), result.problem)
            self._not_before = workflow.now() + AGAIN
        # A storm leaves the state with all of its parts: the number of a part is that of its members.
        recorded = {(each.node, each.due) for record in request.records for each in record.spells if each.storm not in late}
        made = [each for each in request.records if each.workflow_id not in left]
        days = {(each.day, each.check, each.mode) for record in made if record not in state.unrecorded for each in record.days}
        waiting = [each for each in request.ended if each.record_id(cluster) in left]
        state.spells_ended = [*(each for each in state.spells_ended if each not in request.ended), *waiting]
        state.spells_of_storms = [
            *(each for each in state.spells_of_storms if (each.node, each.due) not in recorded),
            *result.of_storms,
        ]
        state.node_days = tuple(each for each in state.node_days if (each.day, each.check, each.mode) not in days)
        state.unrecorded = tuple(each for each in state.unrecorded if each not in made)
        return not left

    def _next_request(self) -> RecordRequest | None:
        """What is to be recorded next, None for nothing. One storm at once: it may be large."""
        state, cluster = self._state, self._scanner.cluster
        ended = tuple(state.spells_ended[:MOST_LOOKED_AT])
        going_on = {each.storm for each in (*state.spells.values(), *state.spells_ended)}
        over = {each.storm for each in state.spells_of_storms} - going_on
        tried = {storm: number for number, storm in enumerate(self._tried_storms)}
        storm = min(over, key=lambda each: (tried.get(each, -1), each), default="")
        members = sorted((each for each in state.spells_of_storms if each.storm == storm), key=lambda each: (each.due, each.node))
        records = [
            ObservationRecord(cluster=cluster, spells=tuple(members[first : first + MOST_RECORDED]), part=first // MOST_RECORDED)
            for first in range(0, len(members) if storm else 0, MOST_RECORDED)
        ]
        records += [*state.unrecorded, *self._of_days(None)]
        return RecordRequest(cluster=cluster, ended=ended, records=tuple(records)) if ended or records else None

    def _of_days(self, stop: datetime | None) -> list[ObservationRecord]:
        """A record for each day that is over. stop: of this day as well, until then."""
        today = workflow.now().astimezone(UTC).date().isoformat()
        by_day: dict[str, list[NodeDays]] = {}
        for each in self._state.node_days:
            if stop is not None or each.day < today:
                by_day.setdefault(each.day, []).append(each)
        return [
            ObservationRecord(cluster=self._scanner.cluster, days=tuple(found), until=stop if day == today else None)
            for day, found in by_day.items()
        ]
