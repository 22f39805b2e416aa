"""What was recorded of nodes that were not repaired, read back from Temporal: for the report that compares, and for its export.

As of episodes, it is known as long as the namespace remembers closed workflows; what that leaves out is said beside the numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle

from activities.contracts.episode_start import page_of
from activities.contracts.search_attributes import NODE_DAYS, STORM, literal
from policy.episode.messages import EpisodeResult, scanner_id
from policy.history.comparison import Comparison, RecordedSpell, compare
from policy.history.spells import (
    LATELY,
    OBSERVATION,
    NodeDays,
    ObservationRecord,
    ScannerSpells,
    Spell,
    is_about,
    unsound,
)
from policy.values.times import written
from starter.errors import MissingError, RequestError
from starter.handles.calls import result_of
from starter.handles.history import ASKED_AT_ONCE, MOST_LISTED, EpisodeRecord, History
from starter.handles.scanners import ScannerHandle
from workers.temporal_namespace import retention

MOST_READ = 10_000
"""Records and ended episodes of one report, each."""
OF_ONE_NODE = 20
"""The last records, among which are those of all storms."""
EVER = datetime(2020, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is known since a moment. unknown: what is not, as sentences."""

    spells: tuple[RecordedSpell, ...] = ()
    days: tuple[NodeDays, ...] = ()
    episodes: tuple[EpisodeResult, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterComparison:
    """The report on one cluster. unknown: what its numbers leave out, as sentences."""

    cluster: str
    comparison: Comparison
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpellsThen:
    """Spells that are about a moment or a time, the oldest first. unknown: what is not among them, as sentences."""

    spells: tuple[Spell, ...] = ()
    unknown: tuple[str, ...] = ()


NONE_OBSERVED = SpellsThen()


class Observations:
    """Records never change, so each is fetched once. page: the address of our page, "" for none."""

    def __init__(self, client: Client, history: History, *, page: str = "") -> None:
        self._client = client
        self._history = history
        self._page = page
        self._records: dict[str, ObservationRecord] = {}
        self._at_once = asyncio.Semaphore(ASKED_AT_ONCE)

    async def compared(self, cluster: str, *, since: datetime, check: str = "") -> tuple[ClusterComparison, Observed]:
        """The report on the time since then, and what it was made of. check: its key or name, "" for all. Raises SilentError."""
        found = await self.observed(cluster, since=since)
        comparison = compare(found.spells, found.days, found.episodes, since=since, now=datetime.now(UTC), check=check)
        unknown = (*found.unknown, *_missing(comparison.missing_days))
        return ClusterComparison(cluster=cluster, comparison=comparison, unknown=unknown), found

    async def spells_at(self, cluster: str, moment: datetime, *, node: str = "") -> SpellsThen:
        """The spells that say how a node, or "" for all of them, was at a moment. Raises SilentError.

        As in `observed`, the scanner is asked first. A record wins over the spell while it lasted.
        """
        found = await self._spells(cluster, since=moment - LATELY, node=node, limit=MOST_READ)
        return replace(found, spells=tuple(each for each in found.spells if is_about(each, moment)))

    async def _spells(self, cluster: str, *, since: datetime, node: str, limit: int) -> SpellsThen:
        lasting, unknown = await self._lasting(cluster)
        recorded = await self.ended_spells(cluster, since=since, node=node, limit=limit)
        known = (each for each in (*lasting.spells, *recorded.spells) if node in {"", each.node})
        found = {(each.node, each.check, each.due): each for each in known}
        return SpellsThen(
            spells=tuple(sorted(found.values(), key=lambda each: (each.due, each.node))), unknown=(*unknown, *recorded.unknown)
        )

    async def ended_spells(self, cluster: str, *, since: datetime, node: str = "", limit: int = MOST_LISTED) -> SpellsThen:
        """The spells that ended since then and are recorded, by the latest records. node: "" for all. Raises SilentError."""
        state = f"ExecutionStatus = 'Completed' AND CloseTime >= '{written(since)}'"
        state += f" AND (Node = {literal(node)} OR Outcome = '{STORM}')" if node else f" AND Outcome != '{NODE_DAYS}'"
        runs = await self._history.listed(cluster, state, kinds=(OBSERVATION,), limit=limit + 1)
        records = await asyncio.gather(*(self._record(cluster, run.id, run.run_id) for run in runs[:limit]))
        found = [each for record in records if record is not None for each in record.spells]
        found = [each for each in found if node in {"", each.node} and each.ended is not None and each.ending is not None]
        unread = len(runs) > limit or None in records
        return SpellsThen(
            spells=tuple(sorted(found, key=lambda each: (each.due, each.node))),
            unknown=("some records of nodes that were not repaired, which are too many or could not be read",) if unread else (),
        )

    async def last_spells(self, cluster: str, node: str, *, lasting: bool = True) -> SpellsThen:
        """The last spells of a node. lasting: also the one that lasts, of which the scanner is asked. Raises SilentError."""
        spells = self._spells if lasting else self.ended_spells
        return await spells(cluster, since=EVER, node=node, limit=OF_ONE_NODE)

    async def record(self, cluster: str, name: str) -> EpisodeRecord:
        """As `History.record`; of a node also its last spells, of an incident those that its episode ended. Raises MissingError
        where there is neither."""
        try:
            found = await self._history.record(cluster, name)
        except MissingError:
            if not (spells := (await self.last_spells(cluster, name)).spells):
                raise
            none = "no episode, as far as Temporal remembers"
            return EpisodeRecord(cluster=cluster, node=name, message=none, started=spells[0].due, spells=spells)
        spells = (await self.last_spells(cluster, found.node)).spells
        return replace(found, spells=tuple(each for each in spells if name == found.node or each.incident == found.incident))

    async def observed(self, cluster: str, *, since: datetime) -> Observed:
        """Recorded spells and those that last, node-days, and ended episodes. Raises SilentError.

        The scanner is asked first: what is recorded meanwhile is then in both answers, and in none if it were asked last.
        """
        lasting, unknown = await self._lasting(cluster)
        since = since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        state = f"ExecutionStatus = 'Completed' AND CloseTime >= '{written(since)}'"
        runs, ended, remembered = await asyncio.gather(
            self._history.listed(cluster, state, kinds=(OBSERVATION,), limit=MOST_READ + 1),
            self._history.ended(cluster, since=since, limit=MOST_READ),
            retention(self._client),
        )
        records = await asyncio.gather(*(self._record(cluster, run.id, run.run_id) for run in runs[:MOST_READ]))
        read = [(record, run.id) for record, run in zip(records, runs, strict=False) if record is not None]
        if remembered is not None and datetime.now(UTC) - remembered > since:
            unknown.append(f"what ended more than {remembered // _DAY} days ago: Temporal's namespace remembers no longer")
        if len(runs) > MOST_READ or ended.more:
            unknown.append(f"older records than the latest {MOST_READ:,}: ask for less time")
        if len(read) < min(len(runs), MOST_READ):
            unknown.append(f"{min(len(runs), MOST_READ) - len(read)} records, which could not be read")
        spells = [(spell, workflow_id) for record, workflow_id in read for spell in record.spells]
        days = [day for record, _ in read for day in record.days]
        known = {(spell.node, spell.check, spell.due) for spell, _ in spells}
        spells += [(each, scanner_id(cluster)) for each in lasting.spells if (each.node, each.check, each.due) not in known]
        days += {*lasting.days, *(day for record in lasting.records for day in record.days)} - set(days)
        return Observed(
            spells=tuple(self._recorded(cluster, *each) for each in spells),
            days=tuple(days),
            episodes=tuple(each.result for each in ended.episodes if each.result is not None),
            unknown=tuple(unknown),
        )

    async def _lasting(self, cluster: str) -> tuple[ScannerSpells, list[str]]:
        """What the scanner says of spells that last, and what is not known of them, as sentences."""
        try:
            found = await ScannerHandle(self._client, cluster).spells()
        except RequestError as error:
            return ScannerSpells(), [f"spells that last, as the scanner does not say: {error}"]
        more = f"{found.left_out} more nodes that are due now: the scanner keeps no more spells"
        late = "spells that last: the scanner has not learned yet what the one before it knew"
        return found, [late] if found.former_run else [more] if found.left_out else []

    def _recorded(self, cluster: str, spell: Spell, workflow_id: str) -> RecordedSpell:
        page = page_of(self._page, cluster, spell.node)
        return RecordedSpell(spell=spell, workflow_id=workflow_id, page=f"{page}?at={written(spell.due)}" if page else "")

    async def _record(self, cluster: str, workflow_id: str, run_id: str) -> ObservationRecord | None:
        """None where its history was removed between the two calls, and where no scanner of the cluster has made it: any
        client of Temporal may start a workflow that bears its marks (S49)."""
        if run_id not in self._records:
            handle: WorkflowHandle[Any, ObservationRecord] = self._client.get_workflow_handle(
                workflow_id, run_id=run_id, result_type=ObservationRecord
            )
            async with self._at_once:
                found = await result_of(handle, ObservationRecord)
            try:
                if not isinstance(found, ObservationRecord) or found.cluster != cluster or found.workflow_id != workflow_id:
                    return None
            except ValueError:  # it is about nothing
                return None
            if any(map(unsound, found.spells)):
                return None
            self._records[run_id] = found
        return self._records[run_id]


def _missing(days: tuple[str, ...]) -> Iterator[str]:
    if days:
        named = ", ".join(days[:3]) + (f" and {len(days) - 3} more" if len(days) > 3 else "")
        yield f"what was on {len(days)} days, of which no node-days are recorded: {named}"
