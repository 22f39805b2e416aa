"""A cluster in a bad night, with something to see in every view: what the pages are looked at with, and photographed.

Everything counts back from one moment, so that nothing on the page depends on when the tests run but the countdowns.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from policy.checks.verdict import Health
from policy.episode.advice import advice, ways
from policy.episode.messages import EpisodeStatus, Kind, OffProof, Outcome, Phase, Reading, RecordEntry, episode_id
from policy.episode.modes import ModeChange, ModeChanges
from policy.episode.node_action import Verb
from policy.episode.permits import HoldOff, Permit, PermitRequest, PermitState
from policy.fence.device_check import DeviceReport, DeviceRow, Reachability
from policy.fence.power import PowerState
from policy.history.comparison import compare
from policy.history.offenders import OffenderRules, RepairedMachine
from policy.history.spells import Ending, HeldSpan, Spell, is_about
from policy.scan.admission import Refused
from policy.scan.pauses import PastPause, Pause, Pauses
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import AtRisk, NodeAtRisk, TargetRow
from policy.values.object_refs import ObjectRef
from starter.errors import MissingError
from starter.handles.episodes import NodeEpisodes
from starter.handles.history import EndedEpisode, EndedEpisodes, EpisodeRecord
from starter.handles.observations import ClusterComparison, Observed, SpellsThen
from starter.handles.status import ClusterStatus, PreservedNode, PreservedNodes
from tests.policy.builders import node_days, recorded, spell
from tests.starter.builders import check, report, result, row, scanner
from workflows.kit.messages import ScannerStatus

CLUSTER = "prod"
NOW = datetime.now(UTC).replace(microsecond=0)
GPU = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="gpu")
BMC = "ipmi://10.7.0.{}:623"
ZONES = 3
GPUS = frozenset({12, 16, 21, 22})
SICK = (
    (9, "Unknown", 28 * 60, True),
    (7, "Unknown", 9 * 60, True),
    (12, "False", 375, True),
    (15, "Unknown", 331, False),
    (18, "False", 50 * 60, False),
    (22, "False", 330, False),
)
"""By number: how Ready is, for how many seconds, and whether an episode has cordoned it. Checks wait for 5 minutes."""
WAYS = ways(
    "node-9",
    {
        Verb.RESUME: "it goes on from where it waits",
        Verb.ACK_OFF: "your word is taken for the proof: its pods are freed, though no device has read off",
        Verb.ABORT: "it ends, and the machine stays as it is",
    },
    1,
)


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


def hence(**span: float) -> datetime:
    return NOW + timedelta(**span)


def clock(seconds: float) -> str:
    """The time of day, so long ago."""
    return f"{ago(seconds=seconds):%H:%M:%S}"


def zone(number: int) -> str:
    return f"zone-{'abc'[number % ZONES]}"


def pool(number: int) -> str:
    return "gpu" if number in GPUS else "workers"


def sick(number: int, ready: str, seconds: float, held: bool) -> TargetRow:
    """As the scanner sees it. held: an episode has cordoned it."""
    return row(
        f"node-{number}",
        Health.UNHEALTHY,
        ready=ready,
        since=ago(seconds=seconds),
        reason=f"Ready{ready}",
        schedulable=not held,
        zone=zone(number),
    )


def proof() -> OffProof:
    read = Reading(endpoint=BMC.format(7), state=PowerState.OFF, at=ago(seconds=41))
    return OffProof(commanded_at=ago(seconds=52), readings=(read,))


def _episode(node: str, kind: Kind, phase: Phase, step: str, doing: str, **more: object) -> EpisodeStatus:
    made = EpisodeStatus(
        incident=f"inc-{node}",
        cluster=CLUSTER,
        node=node,
        kind=kind,
        phase=phase,
        step=step,
        doing=doing,
        reason=f"NodeHealthCheck/workers: Ready is Unknown since {clock(540)}",
        started=ago(minutes=4),
        permit=True,
    )
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


FENCED = _episode(
    *("node-7", Kind.FENCING, Phase.DONE, "recovery", "waits for the node to come back Ready"),
    off_proof=proof(),
    waiting_until=hence(minutes=9),
)
DISOBEYED = f"off is not proven within 20 s: {BMC.format(12)} says on"
REBOOTED = _episode(
    *("node-12", Kind.REMEDIATION, Phase.RUNNING, "power-management", "waits until off is read back"),
    problem=DISOBEYED,
    try_number=2,
    tries=3,
    reason=f"NodeHealthCheck/gpu: Ready is False since {clock(375)}",
    rung="1 of 3: reboot",
    rung_until=hence(minutes=6),
    waiting_until=hence(seconds=50),
    started=ago(seconds=75),
)
SILENT = _episode(
    *("node-9", Kind.FENCING, Phase.NEEDS_HUMAN, "power-management", "needs a person"),
    reason=f"NodeHealthCheck/workers: Ready is Unknown since {clock(28 * 60)}",
    problem=f"{BMC.format(9)} has not answered for 10m: whether the machine is off is not known",
    advice=advice(WAYS),
    ways=WAYS,
    started=ago(minutes=22, seconds=55),
    permit=False,
    try_number=3,
    tries=3,
    restarts=1,
    most_restarts=1,
)
QUEUED = _episode(
    *("node-15", Kind.REMEDIATION, Phase.QUEUED, "isolation", "waits for a permit"),
    reason=f"NodeHealthCheck/workers: Ready is Unknown since {clock(331)}",
    queued="2 of 2 permits are in use, by node-7 and node-12",
    started=ago(seconds=31),
    permit=False,
)
KEEPING = {
    Verb.RELEASE: "it is kept no longer, and a failed machine is remediated",
    Verb.EXTEND: "it is kept longer",
}
FAILED = _episode(
    *("node-3", Kind.PRESERVATION, Phase.FAILED_PRESERVED, "", "is kept as it is"),
    reason="kernel panic, vendor case 4711",
    requester="bob",
    ways=ways("node-3", KEEPING, 0),
    started=ago(days=1, hours=3),
    preserved_until=hence(hours=45),
    permit=False,
)
KEPT = _episode(
    *("node-5", Kind.PRESERVATION, Phase.RUNNING_PRESERVED, "", "is kept as it is"),
    reason="benchmark",
    requester="ann",
    ways=ways("node-5", KEEPING, 0),
    started=ago(hours=2, minutes=30),
    preserved_until=hence(hours=3),
    permit=False,
)
OPEN = (FENCED, REBOOTED, SILENT, QUEUED, FAILED, KEPT)


def night() -> ClusterStatus:
    """Two are under repair, one waits for a person, three wait for their turn; the GPU pool's circuit breaker is open."""
    few = "1 of 4 nodes are healthy, minHealthy 51% needs 3"
    refused = Refused(check=GPU, node="node-22", reason=AdmissionRefusal.CIRCUIT_BREAKER, message=f"NodeHealthCheck/gpu: {few}")
    rows = [sick(*each) for each in SICK] + [
        row(
            "node-16", Health.SOON, ready="False", since=ago(minutes=2), due=hence(minutes=3), reason="ReadyFalse", zone=zone(16)
        ),
        row("node-20", schedulable=False, zone=zone(20)),
        row("node-21", zone=zone(21)),
    ]
    holding = {"node-7": Kind.FENCING, "node-12": Kind.REMEDIATION}
    permits = tuple(
        Permit(node=name, workflow_id=episode_id(CLUSTER, name), incident=f"inc-{name}", kind=kind, state=PermitState.OPEN,
               granted_at=ago(minutes=1))
        for name, kind in holding.items()
    )  # fmt: skip
    opened = check(
        ref=GPU,
        total=4,
        healthy=1,
        unhealthy=2,
        soon=1,
        remaining=0,
        allowed=False,
        reason="TooManyUnhealthy",
        message=few,
    )
    seen = report(
        *rows,
        inventory=24,
        answered_at=datetime.now(UTC) + timedelta(minutes=20),  # seen just now, however long the tests of a page take
        checks=(check(total=20, healthy=16, unhealthy=4, remaining=5), opened),
        at_risk=AtRisk(nodes=1, nearest=(NodeAtRisk(node="node-9", since=ago(minutes=28), volumes=3, due=hence(minutes=2)),)),
    )
    return ClusterStatus(
        cluster=CLUSTER,
        at=NOW,
        scanner=scanner(
            seen,
            cap=2,
            permits=permits,
            queue=(PermitRequest(node="node-15", workflow_id=episode_id(CLUSTER, "node-15"), incident="inc-node-15"),),
            held_off=(HoldOff(node="node-18", reason="aborted by ann: rack maintenance", until=hence(minutes=40)),),
            refused=(refused,),
        ),
        episodes=OPEN,
        devices=tuple(each for each in devices().rows if each.problem),
        ended=tuple(
            result(f"node-{number}", started=ago(hours=number, minutes=7), ended=ago(hours=number)) for number in range(1, 5)
        ),
    )


def _record(*entries: tuple[float, str, str, str, str]) -> tuple[RecordEntry, ...]:
    return tuple(
        RecordEntry(at=ago(seconds=seconds), step=step, act=act, outcome=outcome, detail=detail)
        for seconds, step, act, outcome, detail in entries
    )


RECORDS = {
    "node-7": _record(
        (238, "isolation", "look", "ok", f"Ready is Unknown since {clock(540)}; boot id 5d0c…"),
        (236, "isolation", "mark", "ok", "annotated the node as ours"),
        (231, "isolation", "cordon", "ok", ""),
        (170, "power-management", "power-off", "ok", BMC.format(7)),
        (52, "power-management", "off-proven", "ok", f"{BMC.format(7)} read off twice"),
        (47, "power-management", "out-of-service", "ok", "4 pods are freed, 3 volumes detached"),
        (30, "recovery", "power-on", "failed", "the BMC answered busy; tried again"),
        (26, "recovery", "power-on", "ok", BMC.format(7)),
    ),
    "node-12": _record(
        (74, "isolation", "look", "ok", f"Ready is False since {clock(375)}; boot id 77ab…"),
        (73, "isolation", "mark", "ok", "annotated the node as ours"),
        (71, "isolation", "cordon", "ok", ""),
        (45, "power-management", "power-off", "ok", BMC.format(12)),
        (24, "power-management", "power-management", "failed", f"try 1 of 3: {DISOBEYED}"),
        (10, "power-management", "power-off", "ok", BMC.format(12)),
    ),
    "node-9": _record(
        (1374, "isolation", "look", "ok", f"Ready is Unknown since {clock(28 * 60)}; boot id 19e2…"),
        (1373, "isolation", "mark", "ok", "annotated the node as ours"),
        (1371, "isolation", "cordon", "ok", ""),
        (1310, "power-management", "power-off", "failed", f"{BMC.format(9)}: no answer to 3 tries in 10s"),
        (710, "power-management", "phase", "needs-human", f"{BMC.format(9)} has not answered for 10m"),
    ),
    "node-15": _record((30, "isolation", "phase", "queued", "")),
    "node-3": _record((27 * 3600, "", "phase", "Failed:Preserved", "")),
    "node-5": _record((9000, "", "phase", "Running:Preserved", "")),
}
"""Of the open episodes, by node."""


def ended(number: int) -> EndedEpisode:
    """The last ones: most well, some that waited for a person."""
    outcome = (Outcome.RECOVERED, Outcome.RECOVERED, Outcome.REPLACED, Outcome.RECOVERED, Outcome.FENCED_OFF, Outcome.ABORTED)[
        number % 6
    ]
    kind = Kind.FENCING if number % 3 else Kind.REMEDIATION
    node, end = f"node-{number % 9 + 1}", ago(hours=5 * number + 1)
    start = end - timedelta(seconds=150 + 37 * (number % 7), hours=number % 5 == 4)
    waited = (
        RecordEntry(at=start + timedelta(minutes=2), step="power-management", act="phase", outcome="needs-human"),
        RecordEntry(at=end - timedelta(minutes=2), step="power-management", act="resume", outcome="asked", detail="by ann"),
        RecordEntry(at=end - timedelta(minutes=2), step="power-management", act="phase", outcome="running"),
    )
    record = waited if number % 5 == 4 else ()
    return _past(node, kind, f"past-{number}", started=start, over=end, outcome=outcome, record=record)


def _past(
    node: str,
    kind: Kind,
    incident: str,
    *,
    started: datetime,
    over: datetime,
    outcome: Outcome,
    record: tuple[RecordEntry, ...],
) -> EndedEpisode:
    came_back = outcome in {Outcome.RECOVERED, Outcome.REPLACED}
    made = result(
        node,
        outcome=outcome,
        incident=incident,
        started=started,
        ended=over,
        record=record,
        message="the node is back Ready with a new boot id" if came_back else "it stays off",
    )
    return EndedEpisode(
        node=node,
        kind=kind,
        outcome=outcome.value,
        message=made.message,
        why="NodeHealthCheck/workers: Ready is Unknown",
        incident=incident,
        started=started,
        ended=over,
        workflow_id=episode_id(CLUSTER, node),
        run_id=f"run-{incident}",
        result=made,
    )


def devices(count: int = 24) -> DeviceReport:
    """One is silent, one refuses its password, one is another machine's; the rest answer."""
    problems = {
        9: ("no answer to 3 tries in 10s", Reachability.SILENT),
        14: ("the BMC refuses the credentials of Secret/bmc-node-14", Reachability.UNREAD),
    }
    rows = [
        DeviceRow(
            node=f"node-{number}",
            endpoint=BMC.format(number),
            driver="ipmi",
            site="rack-1",
            answer=problems.get(number, ("", Reachability.ANSWERS))[1],
            state=PowerState.UNKNOWN if number in problems else PowerState.ON,
            latency_ms=None if number in problems else 8 + number * 3,
            last_success=ago(minutes={9: 34, 14: 60 * 48}.get(number, 11)),
            problem=problems.get(number, ("",))[0],
        )
        for number in sorted(range(1, count + 1), key=lambda number: (number not in problems, number))
    ]
    return DeviceReport(
        cluster=CLUSTER,
        began=ago(minutes=11),
        ended=ago(minutes=11, seconds=-4),
        nodes=count,
        devices=count,
        answering=count - len(problems),
        problems=len(problems),
        rows=tuple(rows),
    )


def preserved() -> PreservedNodes:
    """One that failed and is kept for a person to look at, and one that is merely kept."""
    kept = PreservedNode(
        node="node-3",
        phase=Phase.FAILED_PRESERVED,
        reason="kernel panic, vendor case 4711",
        requester="bob",
        since=ago(days=1, hours=3),
        until=hence(hours=45),
        hours=27.0,
        incident="inc-node-3",
        workflow_id=episode_id(CLUSTER, "node-3"),
    )
    well = dataclasses.replace(
        kept,
        node="node-5",
        workflow_id=episode_id(CLUSTER, "node-5"),
        incident="inc-node-5",
        phase=Phase.RUNNING_PRESERVED,
        reason="benchmark",
        requester="ann",
        hours=2.5,
        until=hence(hours=3),
        problem="the drain waits for a disruption budget",
    )
    return PreservedNodes(cluster=CLUSTER, at=NOW, preservations=(well, kept))


def at_three_twelve() -> EndedEpisode:
    """The last time that it was that late and its end is a while ago: node-4 was fenced, and came back."""
    began = NOW.replace(hour=3, minute=12, second=6)
    while began > ago(hours=1):
        began -= timedelta(days=1)
    over = began + timedelta(minutes=4)
    done = (
        (4, "isolation", "cordon", ""),
        (9, "power-management", "power-off", BMC.format(4)),
        (52, "power-management", "off-proven", "read off twice"),
        (57, "power-management", "out-of-service", "2 pods are freed"),
        (66, "recovery", "power-on", BMC.format(4)),
    )
    record = tuple(
        RecordEntry(at=began + timedelta(seconds=seconds), step=step, act=act, outcome="ok", detail=detail)
        for seconds, step, act, detail in done
    )
    return _past("node-4", Kind.FENCING, "at-night", started=began, over=over, outcome=Outcome.RECOVERED, record=record)


def _past_episodes() -> tuple[EndedEpisode, ...]:
    found = [*(ended(number) for number in range(34)), at_three_twelve()]
    return tuple(sorted(found, key=lambda each: each.ended, reverse=True))


@dataclass
class _Past:
    episodes: tuple[EndedEpisode, ...] = field(default_factory=_past_episodes)

    async def offenders(self, cluster: str, since: datetime, rules: OffenderRules) -> tuple[tuple[RepairedMachine, ...], bool]:
        return (), False

    async def ended(self, cluster: str, *, node: str = "", since: datetime | None = None, limit: int = 500) -> EndedEpisodes:
        found = [each for each in self.episodes if node in {"", each.node} and (since is None or each.ended >= since)]
        return EndedEpisodes(cluster=cluster, episodes=tuple(found[:limit]), more=len(found) > limit)

    async def between(
        self, cluster: str, first: datetime, last: datetime, *, node: str = ""
    ) -> tuple[tuple[EpisodeRecord, ...], bool]:
        past = [each for each in self.episodes if each.started <= last and each.ended >= first]
        found = [*past, *(each for each in OPEN if each.started <= last)]
        names = [each.incident for each in found if node in {"", each.node}]
        return tuple([await self.record(cluster, each) for each in names]), False

    async def was_scanned(self, cluster: str, moment: datetime) -> bool:
        return True

    async def record(self, cluster: str, name: str) -> EpisodeRecord:
        for each in OPEN:
            if name in {each.node, each.incident}:
                return EpisodeRecord(
                    cluster=cluster,
                    node=each.node,
                    kind=each.kind,
                    outcome=each.phase.value,
                    message=each.doing,
                    why=each.reason,
                    incident=each.incident,
                    started=each.started,
                    off_proof=each.off_proof,
                    entries=RECORDS[each.node],
                )
        for past in self.episodes:
            if name in {past.node, past.incident} and past.result is not None:
                return EpisodeRecord(
                    cluster=cluster,
                    node=past.node,
                    kind=past.kind,
                    outcome=past.outcome,
                    message=past.message,
                    why=past.why,
                    incident=past.incident,
                    started=past.started,
                    ended=past.ended,
                    off_proof=past.result.off_proof,
                    entries=past.result.record,
                )
        raise MissingError(f"no episode of {cluster} is about a node {name}")


@dataclass
class _Devices:
    found: DeviceReport

    async def last_report(self) -> DeviceReport:
        return self.found


PAUSES = (
    PastPause(pause=Pause(who="bob", owner="bob", reason="switch upgrade", since=ago(hours=9), until=ago(hours=7))),
    PastPause(
        pause=Pause(who="ann", owner="ann", reason="storage move", since=ago(hours=3), until=ago(hours=1)),
        ended=ago(hours=2),
        ended_by="ann",
        ended_why="moved",
    ),
)
CHANGES = (
    ModeChange(at=ago(hours=20), by="ann", mode="observe", scope="all nodes", reason="something is odd"),
    ModeChange(at=ago(hours=19), by="bob", mode="unset", scope="nodes with rack=r7", reason="enough for today"),
)


@dataclass
class _Scanner:
    heard: Pauses
    cluster: str = CLUSTER

    async def pauses(self) -> Pauses:
        return self.heard

    async def mode_changes(self) -> ModeChanges:
        return CHANGES


def unrepaired() -> tuple[Spell, ...]:
    """Nodes that were due three days ago, and that no check was allowed to repair."""
    due = ago(days=3)
    return (
        *(spell(f"node-{number}", due=due, lasted=timedelta(minutes=number)) for number in range(1, 9)),
        *(spell(f"node-2{number}", due=due, lasted=timedelta(hours=number + 1), ending=Ending.OTHERS) for number in range(6)),
        spell("node-30", due=due, held=(HeldSpan(code="CircuitBreakerOpen", message="", since=due),), storm="s-1"),
    )


class _Observations(_Past):
    async def compared(self, cluster: str, *, since: datetime, check: str = "") -> tuple[ClusterComparison, Observed]:
        days = [node_days(24, f"{ago(days=number):%Y-%m-%d}") for number in range(20)]
        found = compare(recorded(*unrepaired()), days, (), since=since, now=ago(), check=check)
        return ClusterComparison(cluster=cluster, comparison=found, unknown=("what was on 10 days",)), Observed()

    async def spells_at(self, cluster: str, moment: datetime, *, node: str = "") -> SpellsThen:
        return SpellsThen(spells=tuple(each for each in unrepaired() if node in {"", each.node} and is_about(each, moment)))

    async def ended_spells(self, cluster: str, *, since: datetime, node: str = "", limit: int = 0) -> SpellsThen:
        ended = (each for each in unrepaired() if each.ended is not None and each.ended >= since)
        return SpellsThen(spells=tuple(each for each in ended if node in {"", each.node}))

    async def last_spells(self, cluster: str, node: str, *, lasting: bool = True) -> SpellsThen:
        return SpellsThen(spells=tuple(each for each in unrepaired() if each.node == node and (lasting or each.ended)))


@dataclass
class _Episode:
    node: str

    async def status(self) -> EpisodeStatus:
        found = next((each for each in OPEN if each.node == self.node), None)
        if found is None:
            raise MissingError(f"{self.node} has no open episode")
        return found


@dataclass
class NightWarden:
    """Answers as Nodewarden would in that night."""

    answer: ClusterStatus = field(default_factory=night)
    history: _Past = field(default_factory=_Past)
    observations: _Observations = field(default_factory=_Observations)
    devices: DeviceReport = field(default_factory=devices)
    pauses: Pauses = PAUSES

    def scanner(self, cluster: str) -> _Scanner:
        return _Scanner(self.pauses)

    def episode(self, cluster: str, node: str) -> _Episode:
        return _Episode(node)

    async def status(self, cluster: str) -> ClusterStatus:
        return dataclasses.replace(self.answer, cluster=cluster, at=datetime.now(UTC))

    async def scanner_status(self, cluster: str) -> ScannerStatus:
        assert self.answer.scanner is not None
        return self.answer.scanner

    async def of_node(self, cluster: str, node: str) -> NodeEpisodes:
        open_one = next((each for each in self.answer.episodes if each.node == node), None)
        past = tuple(each.result for each in self.history.episodes if each.node == node and each.result is not None)
        return NodeEpisodes(episode=open_one, ended=past[:5])

    async def preserved(self, cluster: str) -> PreservedNodes:
        return preserved()

    async def check_devices(self, cluster: str, node: str) -> DeviceReport:
        return dataclasses.replace(self.devices, rows=tuple(each for each in self.devices.rows if each.node == node))

    def device_check(self, cluster: str) -> _Devices:
        return _Devices(self.devices)
