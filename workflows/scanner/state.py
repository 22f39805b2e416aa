"""What a scanner remembers: one object, which each step of the scanner changes in place and the next history begins with.

Whatever must outlive continue-as-new is a field here, and there is no copy of it anywhere else. The permit table has its rules of
bookkeeping here, too; who gets a permit is `policy/scan/admission.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

from activities.contracts.episodes import EpisodeDescription
from policy.checks.fence_policies import Attempts, PowerMoment
from policy.episode.decisions import Decision, DecisionKind
from policy.episode.messages import Kind
from policy.episode.modes import REPAIRS, ClusterModes, ModeChanges
from policy.episode.notices import REMIND_EVERY
from policy.episode.permits import (
    HoldOff,
    NeedsPerson,
    Permit,
    PermitRequest,
    PermitState,
    Portion,
    Release,
    Replacing,
    ScannerAnswer,
)
from policy.history.spells import NodeDays, ObservationRecord, Spell
from policy.scan.pauses import Pauses
from policy.scan.repeat_alarm import DEFAULT_ALARM, PastIncident, RepeatAlarm, Repetition
from policy.scan.scan_report import ScanReport
from policy.values.times import format_duration
from workflows.kit import options
from workflows.kit.messages import StopRequest

PARKED_LEAVES_QUEUE = "an-episode-that-parks-leaves-the-queue"
"""Histories of builds that granted it a permit all the same go on so."""
MOST_DECISIONS = 1000
"""Records that wait for a scan; of more the oldest go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservationNotice:
    """Which need of a machine its preservation was last notified of, and when."""

    victim: str
    stamp: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class UnconfirmedRelease:
    """What a signal has said in an episode's name, and when it came."""

    release: Release
    at: datetime


@dataclass(slots=True, kw_only=True)
class ScannerState:
    """Bounded: it grows with open episodes and spells, never with nodes. The order of `permits` and `queue` counts, on the wire
    as well."""

    started: datetime
    holder: str = ""
    """Our name in the cluster Lease, "" until it is known."""
    build: str = ""
    """Of the worker under which the episodes that rest were woken last."""
    polls: int = 0
    scans: int = 0
    opened: int = 0
    """How many episodes it has opened."""
    report: ScanReport | None = None
    """Of the last scan."""
    cluster_uid: str = ""
    """Of the cluster that was seen first, "" until a report says it. A report of another cluster is not believed."""

    # The permit table
    permits: dict[str, Permit] = field(default_factory=dict)
    """One per node, in the order in which they were granted; the parked ones as well."""
    queue: list[PermitRequest] = field(default_factory=list)
    """The episodes that wait for a permit, first come first; one request of each incident."""
    releases: list[UnconfirmedRelease] = field(default_factory=list)
    """Those that Temporal has not shown to be so yet (`releases.py`); bounded there."""
    need_person: dict[str, NeedsPerson] = field(default_factory=dict)
    """The open episodes that wait for a person, by node."""
    known: bool = False
    """Whether the table holds all open episodes: carried over, or built again on a complete view. Before, nothing is granted."""
    described_at: datetime | None = None
    """When the holders of permits were last described; None: describe them at the next occasion."""
    described: dict[str, bool] = field(default_factory=dict)
    """Of marks that are seen, by incident: whether there was a permit of it when the node's episode was last described."""
    portions: tuple[Portion, ...] = ()
    """Of the pods that may be freed in a minute; no more of them than pods."""
    answers: dict[str, ScannerAnswer] = field(default_factory=dict)
    """Of the questions that episodes asked last; keyed and bounded in `answers.py`."""
    pauses: Pauses = ()
    modes: ClusterModes = REPAIRS
    mode_changes: ModeChanges = ()

    # What has become of episodes (`hold_offs.py`)
    held_off: dict[str, HoldOff] = field(default_factory=dict)
    """Nodes that get no new episode for now, and why."""
    settling: set[str] = field(default_factory=set)
    """Nodes of episodes that have ended since the last report was made: it still shows them as they were before."""
    released: dict[str, datetime] = field(default_factory=dict)
    """When episodes ended of which a report may still show what they have left; by their incidents."""
    power: dict[str, PowerMoment] = field(default_factory=dict)
    """By node, the last power command that may still be too young for the opposite one."""
    attempts: dict[str, Attempts] = field(default_factory=dict)
    """Nodes on which the last attempts have failed."""
    replaced: list[Replacing] = field(default_factory=list)
    """Remediations that have ended lately, and brought a machine that reports may not know enough of yet."""
    incidents: tuple[PastIncident, ...] = ()
    """What the alarm about repetitions remembers; bounded in `policy/scan/repeat_alarm.py`."""

    # What was seen and not repaired (`spells.py`)
    spells: dict[str, Spell] = field(default_factory=dict)
    """The open ones, by node; bounded in `policy/history/spell_lifecycle.py`."""
    spells_left_out: int = 0
    """How many due nodes of the last report had no room among them."""
    spells_ended: list[Spell] = field(default_factory=list)
    """Not looked at and not recorded yet."""
    spells_of_storms: list[Spell] = field(default_factory=list)
    """Ended and looked at; they are recorded once all of their storm are."""
    node_days: tuple[NodeDays, ...] = ()
    """Of this day, and of earlier ones until they are recorded."""
    unrecorded: tuple[ObservationRecord, ...] = ()
    """Node-days until a stop, at which they could not be recorded: of this scanner, or of the one before."""
    days_counted_at: datetime | None = None
    """Up to when; None: the last report was not live."""
    former_run: str = ""
    """The run of the last scanner that is still to be asked what it had not recorded, "" for none; until when."""
    former_until: datetime | None = None

    # What was published
    notified: dict[str, str] = field(default_factory=dict)
    """By node, the stamp (`policy/scan/report_builder.py`) of what its episode was last notified of."""
    preservations: dict[str, PreservationNotice] = field(default_factory=dict)
    """By machine; bounded, as a report is."""
    unpublished: list[Repetition] = field(default_factory=list)
    """Alarms that are still to be published."""
    halted: str = ""
    """Why nothing was begun, as people were last informed of it."""

    # The decision stream
    decided: int = 0
    """How many records there have been, but for those of times without a stream."""
    decisions: list[Decision] = field(default_factory=list)
    """Those that no answered scan has taken along yet."""
    refused: dict[str, str] = field(default_factory=dict)
    """By node, the rule by which it was last refused; of candidates that still are."""

    def record(self, cluster: str, kind: DecisionKind, **known: Any) -> None:
        """A record for the decision stream, which the next scan takes along, if there is one. known: fields of Decision."""
        if self.report is not None and self.report.streams is False:
            return
        self.decided += 1
        id_ = f"{workflow.info().run_id}/{self.decided}"
        decision = Decision(id=id_, at=workflow.now(), cluster=cluster, kind=kind, **known)
        self.decisions = [*self.decisions, decision][-MOST_DECISIONS:]

    # The permit table -----------------------------------------------------------------------------------------------

    def put(self, permit: Permit) -> None:
        """Reserve or grant: a request of that incident waits no more."""
        self.permits[permit.node] = permit
        self._leave_queue(permit.incident)
        self.need_person.pop(permit.node, None)

    def enqueue(self, request: PermitRequest) -> None:
        """An episode that asks twice keeps its place, and what it asked last counts."""
        places = [place for place, waiting in enumerate(self.queue) if waiting.incident == request.incident]
        if places:
            self.queue[places[0]] = request
        else:
            self.queue.append(request)

    def park(self, node: str, incident: str, *, asks: datetime | None = None) -> None:
        """The episode waits: it keeps its node, counts no more, and waits for no permit. asks: when it asked for a person; None:
        it has not."""
        if any(waiting.incident == incident for waiting in self.queue) and workflow.patched(PARKED_LEAVES_QUEUE):
            self._leave_queue(incident)
        permit = self.permits.get(node)
        if permit is not None and permit.incident == incident:
            self.permits[node] = replace(permit, state=PermitState.PARKED)
        if asks is not None:
            self.need_person[node] = NeedsPerson(node=node, incident=incident, reminded=asks, since=asks)

    def remove(self, node: str, incident: str) -> None:
        """The episode has ended. The permit of another incident is left alone."""
        self._leave_queue(incident)
        asking, permit = self.need_person.get(node), self.permits.get(node)
        if asking is not None and asking.incident == incident:
            del self.need_person[node]
        if permit is not None and permit.incident == incident:
            del self.permits[node]

    def _leave_queue(self, incident: str) -> None:
        self.queue[:] = [waiting for waiting in self.queue if waiting.incident != incident]

    def in_use(self) -> int:
        """How many permits count in the budgets: all but the parked ones (S14)."""
        return sum(permit.state is not PermitState.PARKED for permit in self.permits.values())

    def nodes_in_hand(self) -> tuple[str, ...]:
        """Nodes that an episode holds or waits for."""
        return tuple(dict.fromkeys([*self.permits, *(request.node for request in self.queue)]))

    def reminders_due(self, now: datetime) -> tuple[NeedsPerson, ...]:
        """The episodes that people are to be reminded of."""
        return tuple(each for each in self.need_person.values() if now - each.reminded >= REMIND_EVERY)

    def note_reminded(self, incidents: Collection[str], at: datetime) -> None:
        """People were reminded of these."""
        self.need_person |= {
            each.node: replace(each, reminded=at) for each in self.need_person.values() if each.incident in incidents
        }

    def reconcile(
        self,
        episode: EpisodeDescription,
        asked_at: datetime,
        *,
        room: bool,
        anew: bool = False,
        unclaimed: bool = False,
        follows: bool = False,
    ) -> None:
        """Believe the server: closed or unknown holders go, open ones that have no permit are taken in.

        A permit granted after the server was asked is left alone: the answer is older than it. A holder that has no permit
        counts at once if there is room, else it keeps its node and asks again like any other (its last look stops it until
        then). anew: a reset has made our account an old one, so what an episode says of its permit goes before it.
        unclaimed: so it does of one that was granted long ago, and that it does not have. follows: the server was asked in the
        very task that granted the permit, and so after that.
        """
        permit = self.permits.get(episode.node)
        if permit is not None and permit.granted_at >= asked_at and not follows:
            return
        asking = self.need_person.get(episode.node)
        silent = episode.open and episode.phase is None and permit is not None and episode.incident in {"", permit.incident}
        if not silent and (asking is None or (asking.since or asking.reminded) < asked_at):  # such a one waits as before
            self.need_person.pop(episode.node, None)
        if episode.open and episode.parked:
            known = asking is not None and asking.incident == episode.incident
            new = NeedsPerson(node=episode.node, incident=episode.incident, reminded=asked_at, since=asked_at)
            self.need_person[episode.node] = asking if known and asking is not None else new
        if not episode.open:
            if permit is not None:
                self.remove(episode.node, permit.incident)
            self.queue[:] = [waiting for waiting in self.queue if waiting.node != episode.node]
            return
        parked = permit is not None and permit.state is PermitState.PARKED
        forgotten = anew and parked and episode.permit and not episode.parked
        if permit is not None and episode.incident in {"", permit.incident} and not forgotten:
            self._confirm(permit, episode, parked=episode.parked or unclaimed or (anew and not episode.permit))
            return
        if episode.kind is Kind.PRESERVATION and not episode.permit:
            return  # its workflow id holds the node; a permit here would outlive it, for it never gives one back
        asks = not episode.parked and not room
        permit = self.permits[episode.node] = Permit(
            node=episode.node,
            workflow_id=episode.workflow_id,
            incident=episode.incident,
            kind=episode.kind,
            state=PermitState.OPEN if room and not episode.parked and episode.permit else PermitState.PARKED,
            granted_at=episode.started or asked_at,
            provider_id=episode.provider_id,
            control_plane=episode.control_plane,
            node_uid=episode.node_uid,
            found=True,
            override=episode.override,
        )
        if asks and episode.permit and episode.incident:
            member = episode.control_plane is not False
            self.enqueue(PermitRequest(**permit.as_subject() | {"control_plane": member}))

    def _confirm(self, permit: Permit, episode: EpisodeDescription, *, parked: bool) -> None:
        """The permit of an open episode. Only the episode's own parking parks it: a grant may be younger than its answer. What
        kind of episode it is and which node that has the episode says, where it answers: what asked for its permit may have been
        any client of Temporal (S14). A node that either of them calls a member of the control plane is one (S15)."""
        said = {permit.control_plane, episode.control_plane}
        holding = PermitState.OPEN if permit.state is PermitState.RESERVED else permit.state
        self.permits[permit.node] = replace(
            permit,
            kind=episode.kind,
            state=PermitState.PARKED if parked else holding,
            control_plane=next((each for each in (True, False) if each in said), None),
            node_uid=episode.node_uid or permit.node_uid,
            provider_id=episode.provider_id or permit.provider_id,
        )


@dataclass(slots=True, kw_only=True)
class Underway:
    """What its story, its queue and what people command share of one history; the next one begins without any of it. Until when
    the last report may be acted on is said here and nowhere else (S17, S18, S45)."""

    wait: timedelta
    """How long a scan waits for a change."""
    stop: StopRequest | None = None
    leaves: bool = False
    """Whether the next history is to go on from here: nothing is scanned any more, and what needs a scan is not waited for."""
    changed: bool = False
    """Whether another node may be admitted since the last decision."""
    scan: workflow.ActivityHandle[ScanReport] | None = None
    """The long poll."""
    scan_problem: str = ""
    """Why there is no report to act on, or what was wrong with the last one."""
    received_at: datetime | None = None
    """When the last report came in; None: there is none to act on, since the last scan failed, or its report was too old or was
    made under other modes."""
    true_at: datetime | None = None
    """The moment that the last report describes."""

    def cut_short(self) -> None:
        """The long poll is answered with nothing, and another one begins."""
        if self.scan is not None:
            self.scan.cancel()

    def take_report(self, report: ScanReport) -> None:
        """It may be acted on from now."""
        self.received_at, self.scan_problem = workflow.now(), ""
        # A stale one says itself why it lets no node be disrupted: by a wrong clock, say.
        answered = report.answered_at if not report.view.stale else None
        self.true_at = min(answered or self.received_at, self.received_at)

    def drop_report(self, problem: str = "") -> None:
        """There is none to act on before the next scan is answered."""
        self.received_at, self.scan_problem = None, problem or self.scan_problem

    def drop_late_report(self) -> None:
        """Not to be acted on while no scan is under way that would show a storm: where it was long on its way, or something else
        has taken its time since, the next scan answers at once with what is so then."""
        late = workflow.now() - self.true_at if self.true_at is not None else timedelta(0)
        if self.received_at is not None and late > options.OLDEST_REPORT:
            seconds = format_duration(timedelta(seconds=late // timedelta(seconds=1)))
            self.drop_report(f"the last report came when it was {seconds} old: another one is asked for")

    @property
    def is_fresh(self) -> bool:
        """Whether the last report may still be acted on: without a worker no scan fails, it is only not answered (S18)."""
        return self.received_at is not None and workflow.now() - self.received_at < self.wait + options.SCAN_GRACE

    @property
    def may_begin(self) -> bool:
        """Whether anything may be begun on the last report."""
        return self.received_at is not None and self.stop is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerInput:
    """Input of `HealthScanner`; only `cluster` is needed: `{"cluster": "prod"}`.

    holder: our name in the cluster Lease (`starter` fills it in, else the scanner asks once). cap: how many nodes of this
    cluster may be disrupted at once. repeat_alarm: how many fencings of one node for one reason are reported as a repetition.
    pauses: those of the last scanner; a pause that is in force goes on. modes: what is set, with the rules of the last scanner.
    mode_changes: the last ones, for people.
    """

    cluster: str = ""
    holder: str = ""
    cap: int = 1
    wait: timedelta = timedelta(seconds=60)
    state: ScannerState | None = None
    repeat_alarm: RepeatAlarm = DEFAULT_ALARM
    pauses: Pauses = ()
    modes: ClusterModes = REPAIRS
    mode_changes: ModeChanges = ()

    def cap_under(self, report: ScanReport | None) -> int:
        """How many nodes may be disrupted at once: what the cluster's fence policies say, else `cap`."""
        return (report.policies.cap if report is not None else None) or self.cap
