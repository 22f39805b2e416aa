"""A cluster as it really is, and the worker that serves its scanner: the truth for random plays of the scanner's side.

The scanner is the real workflow on the clockwork, and what it sees is drawn up by the real ledger from Nodes and checks as they
are, a moment late where a watch is behind. Its episodes are played: each looks with the real gate before each act, by its
check as it is and the scanner's own answer about permits and modes. What may happen is `fleet_moves.py`, what must not is
`fleet_referee.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from itertools import takewhile
from random import Random
from typing import Any, cast

from activities.contracts.episodes import (
    OPENED_WITHIN,
    STOPPED_MEMO,
    TOOK_OVER_MEMO,
    DeploymentName,
    DescribeRequest,
    DescribeResult,
    EpisodeDescription,
    FindRequest,
    FormerRun,
    FoundOpen,
    NotifyRequest,
    NotifyResult,
    Opened,
    OpenOutcome,
    OpenRequest,
    OpenResult,
)
from activities.contracts.scan import RecordRequest, RecordResult, ScanRequest
from activities.episodes import LEFT_ALONE_FOR_NOW, UNCONFIRMED
from activities.errors import ErrorType, failure
from policy.checks.fence_policies import NO_POLICIES, FencePolicies
from policy.dialects import parse
from policy.episode.decisions import Decision
from policy.episode.gate import By, Objection, Operation, Seen, objection
from policy.episode.messages import FencingInput, NeedKind, Outcome, Phase, RemediationInput, episode_id, scanner_id
from policy.episode.modes import MODE_CHANGES_MEMO, MODE_KEY, MODES_MEMO, ClusterModes, ModeChanges, mode_of
from policy.episode.permits import HoldOff, PermitQuestion, PermitQuestions, Release
from policy.history.spells import ObservationRecord, ScannerSpells, Spell
from policy.objects.machines import FAILED, MachineView
from policy.objects.marks import Mark
from policy.objects.nodes import MARK_ANNOTATION, Condition, NodeView
from policy.remediation.ladder import ESCALATION_ANNOTATION
from policy.remediation.strategy_rules import Strategy
from policy.scan.ledger import Ledger
from policy.scan.pauses import PAUSES_MEMO, Pauses, with_said
from policy.scan.scan_report import ClusterLease, ScanReport, ViewState
from policy.scan.view_state import digest
from policy.values.errors import PolicyError
from policy.values.mode import Mode
from policy.values.object_refs import Dialect
from tests.policy.builders import NAMESPACE, WORKER, a_machine, check_object, confirmed, openshift_object
from tests.workflows.attempts import CONVERTER, START, Attempt, Lost, Work
from tests.workflows.clockwork import Clockwork, Perils
from tests.workflows.executions import UNREADABLE, Execution
from workflows.definitions.scanner import HealthScanner
from workflows.kit.options import cluster_queue
from workflows.scanner.state import ScannerInput

CLUSTER = "fleet"
RUNNING = "Running"
"""Phase of a Machine that has not failed."""
SCANNER = scanner_id(CLUSTER)
TIMEOUT = timedelta(seconds=10)
"""Of every check."""
WAIT = timedelta(seconds=30)
"""Of a long poll."""
BOOT = timedelta(seconds=40)


@dataclass
class Body:
    """A node as it really is. machine: the number of the machine behind the name; born: how many Node objects there have been."""

    name: str
    rack: str
    since: datetime
    ready: str = "True"
    present: bool = True
    machine: int = 1
    born: int = 1
    boots: int = 1
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    mark: str = ""
    was: str = ""
    """Under which name its machine came first, "" for its own."""
    phase: str = ""
    """Of its Machine, "" where no Machine is known."""

    @property
    def uid(self) -> str:
        """Of its Node object."""
        return f"{self.name}/{self.born}"

    @property
    def boot_id(self) -> str:
        """Of its kernel."""
        return f"boot-{self.was or self.name}-{self.machine}-{self.boots}"

    @property
    def well(self) -> bool:
        """Whether its kubelet says so."""
        return self.present and self.ready == "True"

    @property
    def failed(self) -> bool:
        """Whether its Machine's controller says so, without a moment."""
        return self.phase == FAILED

    def machine_view(self) -> MachineView:
        """Its Machine."""
        known = {"node_name": self.name, "provider_id": self.view().provider_id, "uid": f"{self.name}/{self.machine}"}
        return a_machine(f"m-{self.name}-{self.machine}", Dialect.OPENSHIFT, phase=self.phase, **known)

    def view(self) -> NodeView:
        """Its Node."""
        mark = Mark(incident=self.mark, kind="Fencing", workflow_id=episode_id(CLUSTER, self.name), cordoned=True)
        annotations = self.annotations | ({MARK_ANNOTATION: mark.to_json()} if self.mark else {})
        return NodeView(
            name=self.name,
            uid=self.uid,
            labels={WORKER: "", "rack": self.rack, **self.labels, **confirmed(annotations)},
            annotations=annotations,
            conditions=(Condition(type="Ready", status=self.ready, since=self.since),),
            provider_id=f"sim:///{self.was or self.name}/{self.machine}",
            boot_id=self.boot_id,
            system_uuid=f"system-{self.was or self.name}-{self.machine}",
            unschedulable=bool(self.mark),
        )


@dataclass
class Written:
    """A NodeHealthCheck as it is written now, or a MachineHealthCheck. rack: of the nodes that it is for, "" for all workers.
    typo: it can't be read. of_machines: it calls for action where a Machine has failed."""

    name: str
    least: int = 1
    rack: str = ""
    uid: int = 1
    generation: int = 1
    present: bool = True
    paused: bool = False
    typo: bool = False
    annotations: dict[str, str] = field(default_factory=dict)
    of_machines: bool = False

    @property
    def key(self) -> str:
        """As people and reports name it."""
        return f"MachineHealthCheck/{NAMESPACE}/{self.name}" if self.of_machines else f"NodeHealthCheck/{self.name}"

    def covers(self, body: Body) -> bool:
        """Whether it is for that node."""
        known = bool(body.phase) if self.of_machines else self.rack in {"", body.rack}
        return self.present and not self.typo and body.present and known

    def calls_sick(self, body: Body, now: datetime) -> bool:
        """Whether it is for that node, and calls for action by now."""
        sick = body.failed if self.of_machines else not body.well and now - body.since >= TIMEOUT
        return sick and self.covers(body)

    def document(self) -> dict[str, Any]:
        """The object."""
        labels = {WORKER: ""} | ({"rack": self.rack} if self.rack else {})
        spec = {"selector": {"matchLabels": labels}, "minHealthy": "many" if self.typo else self.least}
        if self.of_machines:
            found = openshift_object(self.name, unhealthyConditions=None, maxUnhealthy="100%")
        else:
            found = check_object(self.name, **spec, pauseRequests=["later"] if self.paused else None)
        found["metadata"] |= {"uid": f"{self.name}/{self.uid}", "generation": self.generation, "annotations": self.annotations}
        return found


@dataclass
class Poll:
    """A long poll under way. slow: for how long its answer is on its way."""

    attempt: Attempt
    request: ScanRequest
    answer: Future[ScanReport]
    until: datetime
    slow: timedelta = timedelta(0)


@dataclass
class Episode:
    """One that is open, as it really is. judged: what Temporal was asked to open it for, None for a person's."""

    node: str
    incident: str
    uid: str
    provider_id: str
    began: datetime
    asked: FencingInput | RemediationInput | None
    permit: bool = False
    parked: bool = False
    by_person: bool = False
    cleans_up: bool = False
    done: int = 0
    """How many of its acts are done."""
    tries: int = 0
    rack: str = ""
    """Of its node when it began."""


class FleetClockwork(Clockwork):
    """The clockwork with a cluster that no worker serves for a while."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.away_until = START
        self.runs: list[Execution] = []
        """Of the scanner, the oldest first."""

    def _run(self, name: str, workflow_id: str, incident: str) -> Execution:
        execution = super()._run(name, workflow_id, incident)
        self.runs += [execution] if workflow_id == SCANNER else []
        return execution

    def serves(self, queue: str, activity: str) -> bool:
        """Whether a worker takes that."""
        return queue != cluster_queue(CLUSTER) or self.now >= self.away_until


class Fleet:
    """See the module. changed: is called after each change of what is so."""

    def __init__(self, seed: int, *, nodes: int, cap: int, setting: Mode | None, perils: Perils) -> None:
        self.chance = Random(seed)
        self.cap, self.setting = cap, setting
        self.clockwork = FleetClockwork((HealthScanner,), self.perform, self.chance, perils=perils, unheard=self._signalled)
        self.nodes = {f"n{number}": Body(f"n{number}", "ab"[number % 2], START - timedelta(days=1)) for number in range(nodes)}
        self.checks = {each.name: each for each in (Written("workers", least=nodes // 3), Written("rack-a", least=1, rack="a"))}
        self.checks["rack-a"].present = False
        self.ledger = Ledger()
        self.lag, self._in_order = timedelta(0), START
        self.stale = ""
        self.policies = NO_POLICIES
        self.lease = ClusterLease(held=True)
        self.polls: list[Poll] = []
        self.slow: deque[timedelta] = deque()
        self.frozen = 0
        """So many next polls show no sign of life."""
        self.faults: dict[str, deque[str]] = {}
        """What befalls the next attempts at an activity."""
        self.open: dict[str, Episode] = {}
        self.ended: dict[str, tuple[str, datetime, str]] = {}
        """By node, the outcome of its last episode, its end and its incident."""
        self.aborted: dict[str, tuple[datetime, str]] = {}
        """Nodes of which a person has aborted the last episode that was not refused: when, and its incident."""
        self.records: dict[str, ObservationRecord] = {}
        self.stream: dict[str, Decision] = {}
        self.begun = START
        """When the scanner was started or reset last."""
        self.late = timedelta(0)
        """How long signals of episodes are on their way."""
        self.changed: Callable[[], None] = lambda: None
        self.opens: Callable[[FencingInput | RemediationInput, Attempt], None] = lambda _episode, _attempt: None
        self.began: Callable[[Episode], None] = lambda _episode: None
        for body in self.nodes.values():
            self.ledger.put_node(body.view(), START)
        for check in self.checks.values():
            self.write(check)

    @property
    def now(self) -> datetime:
        return self.clockwork.now

    @property
    def scanner(self) -> Execution | None:
        """The open one, None where none is."""
        return self.clockwork.open(SCANNER)

    # The scanner ------------------------------------------------------------------------------------------------------

    def start(self) -> bool:
        """`nodewarden scan start`: pauses and rules of modes are those of the last one."""
        last = self.clockwork.executions.get(SCANNER)
        if last is not None and not last.closed:
            return False
        pauses, modes = self._memo(last, PAUSES_MEMO, (), Pauses), self._memo(last, MODES_MEMO, ClusterModes(), ClusterModes)
        modes = replace(modes, setting=self.setting)
        request = ScannerInput(cluster=CLUSTER, holder="us", cap=self.cap, wait=WAIT, pauses=pauses, modes=modes)
        execution = self.clockwork.start("HealthScanner", SCANNER, request)
        assert execution is not None
        self.begun = self.now
        execution.memo = {PAUSES_MEMO: CONVERTER.to_payload(pauses), MODES_MEMO: CONVERTER.to_payload(modes)}
        return True

    def _memo(self, run: Execution | None, key: str, otherwise: Any, kind: Any) -> Any:
        payload = run.memo.get(key) if run is not None else None
        return CONVERTER.from_payload(payload, kind) if payload is not None else otherwise

    # What is so ---------------------------------------------------------------------------------------------------------

    def write(self, check: Written) -> None:
        """A check is written, edited or deleted."""
        if not check.present:
            key = check.key
            self.shown(lambda ledger: ledger.remove_check(key))
            return
        document = check.document()
        try:
            parsed = parse(document)
        except PolicyError as error:
            why, ref = str(error), parse(replace(check, typo=False).document()).ref
            self.shown(
                lambda ledger: ledger.put_bad_check(ref, why, uid=document["metadata"]["uid"], generation=check.generation)
            )
        else:
            self.shown(lambda ledger: ledger.put_check(parsed))

    def put(self, body: Body) -> None:
        """A Node is another one than before, or gone, and its Machine with it."""
        view, name = body.view() if body.present else None, body.name
        if view is None:
            self.lose_machine(body)
        self.shown(lambda ledger: ledger.put_node(view, self.now) if view is not None else ledger.remove_node(name))

    def follow(self, policies: FencePolicies) -> None:
        """The fence policies are others."""
        self.policies = policies
        self.shown(lambda ledger: ledger.follow(policies))

    def put_machine(self, machine: MachineView) -> None:
        """A Machine is another one than before, or new."""
        self.shown(lambda ledger: ledger.put_machine(machine, self.now))

    def show_machine(self, body: Body, phase: str) -> None:
        """Its Machine is in that phase. A check of Machines is there with the first one of which that is known."""
        if "machines" not in self.checks:
            fences = {ESCALATION_ANNOTATION: Strategy.FENCE.value}
            self.checks["machines"] = Written("machines", least=0, of_machines=True, annotations=fences)
            self.write(self.checks["machines"])
        body.phase = phase
        self.put_machine(body.machine_view())

    def lose_machine(self, body: Body) -> None:
        """Its Machine is gone, where one was known."""
        if body.phase:
            key, body.phase = body.machine_view().key, ""
            self.shown(lambda ledger: ledger.remove_machine(key))

    def shown(self, change: Callable[[Ledger], None]) -> None:
        """The watch shows a change, in its order, as late as the watch is."""
        self.changed()
        self._in_order = max(self._in_order, self.now + self.lag)

        def arrives() -> None:
            change(self.ledger)
            self.look()

        if self._in_order <= self.now:
            arrives()
        else:
            self.clockwork.after(self._in_order - self.now, arrives)

    # Scans ------------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Each poll is answered as soon as there is something else to see, or its time is over."""
        self.ledger.advance(self.now)
        self.changed()
        for poll in tuple(self.polls):
            if poll.answer.done():
                self.polls.remove(poll)
                continue
            report = self._report(poll)
            if report.digest != poll.request.known_digest or self.now >= poll.until:
                self.polls.remove(poll)
                self.clockwork.after(poll.slow, lambda poll=poll, report=report: self._answers(poll, report))  # type: ignore[misc]
        if self.ledger.next_due is not None and self.polls:
            self.clockwork.after(self.ledger.next_due - self.now, self.look)

    def _answers(self, poll: Poll, report: ScanReport) -> None:
        if not poll.answer.done():
            poll.answer.set_result(report)

    def _report(self, poll: Poll) -> ScanReport:
        request = poll.request
        self.ledger.put_modes(request.modes)
        parts = self.ledger.report_parts(self.now, request.watching, notified=request.notified, spells=request.spells)
        view = ViewState(synced=True, stale=self.stale)
        return ScanReport(
            digest=digest(parts, view=view, lease=self.lease),
            at=self.now,
            resource_version="1",
            view=view,
            lease=self.lease,
            answered_at=self.now,
            run=poll.attempt.run_id,
            streams=True,
            **{each.name: getattr(parts, each.name) for each in fields(parts)},
        )

    # Activities -------------------------------------------------------------------------------------------------------

    def perform(self, attempt: Attempt) -> Any:
        """Carry one out. Raises what its worker would, or `Lost`."""
        method = attempt.call.method
        fault = self.faults[method].popleft() if self.faults.get(method) else ""
        if fault == "fails":
            raise failure(ErrorType.TRANSIENT, f"{method}: etcdserver: request timed out")
        if fault == "forbidden":
            raise failure(ErrorType.FORBIDDEN, f"{method}: 403")
        if fault == "lost before":
            raise Lost
        self._attempt = attempt
        answer = getattr(self, "open_all" if method == "open" else method)(attempt.request)
        if fault == "lost after":
            raise Lost
        return answer

    def observe_cluster(self, request: ScanRequest) -> Work:
        for each in request.decisions:
            self.stream[each.id] = each
        answer = Future[ScanReport]()
        poll = Poll(self._attempt, request, answer, self.now + request.wait)
        work = Work(cast(Any, answer), alive=not self.frozen)
        if self.frozen:
            self.frozen -= 1
            return work
        poll.slow = self.slow.popleft() if self.slow else timedelta(0)
        self.polls.append(poll)
        self.clockwork.after(timedelta(milliseconds=1), self.look)
        self.clockwork.after(request.wait, self.look)
        return work

    def release_lease(self, request: ScanRequest) -> None:
        for each in request.decisions:
            self.stream[each.id] = each

    def publish_repetition(self, request: object) -> None:
        """It is told."""

    def name_deployment(self, request: object) -> DeploymentName:
        return DeploymentName(holder="us")

    def open_all(self, request: OpenRequest) -> OpenResult:
        if request.decided is not None and self.now - request.decided > OPENED_WITHIN:
            raise failure(ErrorType.EXPIRED, "open: too late")
        return OpenResult(outcomes=tuple(self._opened(request)))

    def _opened(self, request: OpenRequest) -> Iterator[OpenOutcome]:
        for asked in (*request.episodes, *request.remediations):
            outcome = OpenOutcome(node=asked.node, incident=asked.incident, opened=Opened.STARTED, workflow_id="")
            found = self.open.get(asked.node)
            if found is not None and found.incident == asked.incident:
                yield replace(outcome, opened=Opened.JOINED)
            elif found is not None:
                yield replace(outcome, opened=Opened.REFUSED, holder=f"Fencing {found.incident}")
            elif (aborted := self.aborted.get(asked.node)) is not None and self._is_held(asked, aborted):
                yield replace(outcome, opened=Opened.HELD_OFF, reason="it was ended by a person")
            elif aborted is not None and request.unasked:
                until = self.now + LEFT_ALONE_FOR_NOW
                yield replace(outcome, opened=Opened.HELD_OFF, reason="the last scanner is still asked", until=until)
            else:
                self.opens(asked, self._attempt)
                body = self.nodes[asked.node].view()
                episode = Episode(asked.node, asked.incident, asked.node_uid, body.provider_id, self.now, asked, permit=True)
                episode.rack = self.nodes[asked.node].rack
                episode.cleans_up = asked.need is not None and asked.need.kind is NeedKind.CLEAN_UP
                self.open[asked.node] = episode
                self.began(episode)
                yield outcome

    def _is_held(self, asked: FencingInput | RemediationInput, aborted: tuple[datetime, str]) -> bool:
        need, (ended, incident) = asked.need, aborted
        if need is None or not need.kind.automatic:
            return False
        return incident == asked.incident or (need.since is not None and need.since <= ended)

    def describe(self, request: DescribeRequest) -> DescribeResult:
        return DescribeResult(episodes=tuple(map(self._described, request.nodes)))

    # As a last look has it: with the Node and the check as they are, and the scanner's answer.

    def asked(self, node: str, incident: str) -> PermitQuestions | None:
        """What the scanner says to a last look; None: it can't be asked."""
        scanner = self.scanner
        try:
            one = PermitQuestions(questions=(PermitQuestion(node=node, incident=incident),))
            return scanner.query("holds_permits", one) if scanner is not None else None
        except LookupError:
            return None

    def objection(self, episode: Episode, operation: Operation, answer: PermitQuestions | None, **known: Any) -> Objection | None:
        """Of the real gate. known: fields of `Seen`."""
        body, need = self.nodes[episode.node], episode.asked.need if episode.asked is not None else None
        check = self.checks[need.check.name] if need is not None and need.check is not None else None
        annotation = check.annotations.get(MODE_KEY) if check is not None and check.present else None
        node = body.view() if body.present else None
        labels = node.labels if node is not None else None
        mode = (
            mode_of(answer.modes, episode.node, labels, annotation) if answer is not None and answer.modes is not None else None
        )
        held = answer.questions[0] if answer is not None else None
        by = By.PROGRAM if need is not None and need.kind is not NeedKind.PERSON else By.PERSON
        seen = {
            "node": node,
            "machines": (),
            "pause": "",
            "lease": "",
            "cluster_lease": self.lease.problem,
            "permit": "no scanner answers" if held is None else "" if held.held else held.reason or "no permit",
            "policies": NO_POLICIES,
            "mode": mode,
        }
        return objection(Seen(**(seen | known)), operation, by, self.now)

    def _described(self, node: str) -> EpisodeDescription:
        found = self.open.get(node)
        if found is None:
            _, ended, incident = self.ended.get(node, ("", None, ""))
            known = {"known": ended is not None, "ended": ended, "incident": incident}
            return EpisodeDescription(node=node, open=False, workflow_id=episode_id(CLUSTER, node), **known)
        return EpisodeDescription(
            node=node,
            known=True,
            open=True,
            workflow_id=episode_id(CLUSTER, node),
            incident=found.incident,
            permit=found.permit,
            parked=found.parked,
            phase=Phase.NEEDS_HUMAN if found.parked else Phase.RUNNING,
            started=found.began,
            control_plane=False,
            node_uid=found.uid,
            provider_id=found.provider_id,
            by_person=found.by_person,
        )

    def find_open(self, request: FindRequest) -> FoundOpen:
        """Visibility lags: what has begun within the last two seconds is not listed yet."""
        nodes = tuple(node for node, each in self.open.items() if self.now - each.began > timedelta(seconds=2))
        lives = [each for each in reversed(self.clockwork.runs) if each.run_id != self._attempt.run_id]
        if not lives:
            return FoundOpen(nodes=nodes, repaired=False)
        former = next((run for run, before in zip(lives, [*lives[1:], None], strict=True) if self.knew(run, before)), lives[0])
        modes, pauses = self._memo(former, MODES_MEMO, None, ClusterModes), self._memo(former, PAUSES_MEMO, (), Pauses)
        later = lives[: lives.index(former)]
        replaced = all(each.failure == UNREADABLE for each in (*later, former))
        for each in reversed(later):
            since = former.ended or START
            pauses = with_said(pauses, self._memo(each, PAUSES_MEMO, (), Pauses), since, self.now)
            modes = modes and modes.with_said(self._memo(each, MODES_MEMO, modes, ClusterModes), since)
        stopping = (*later, former) if replaced else [*takewhile(lambda each: each.result is None, (*later, former))]
        said = [(found, each.ended) for each in stopping if (found := self._memo(each, STOPPED_MEMO, (), tuple[str, ...]))]
        stopped, stop_ended = next(iter(said), ((), None))
        armed = modes is not None and modes.is_known and modes.default is Mode.REPAIR
        return FoundOpen(
            nodes=nodes,
            earlier=True,
            repaired=armed,
            former=former.run_id,
            ended=lives[0].ended,
            modes=modes,
            pauses=pauses,
            mode_changes=self._memo(former, MODE_CHANGES_MEMO, (), ModeChanges),
            untaken=bool(later) and not replaced,
            stopped=stopped,
            stop_ended=stop_ended,
            left_alone=tuple(
                HoldOff(node=node, reason="aborted while no scanner ran")
                for node, (at, _) in self.aborted.items()
                if former.ended is not None and at >= former.ended - UNCONFIRMED and node not in self.open
            ),
        )

    def knew(self, run: Execution, before: Execution | None) -> bool:
        """Whether it had taken over what the runs before it knew."""
        goes_on = {before.run_id} if before is not None and before.continued == run.run_id else set[str]()
        return self._memo(run, TOOK_OVER_MEMO, "", str) in {run.run_id, *goes_on}

    def former_spells(self, request: FormerRun) -> ScannerSpells:
        run = next(each for each in self.clockwork.runs if each.run_id == request.run_id)
        try:
            found: ScannerSpells = run.query("spells")
        except LookupError as error:
            raise failure(ErrorType.UNREACHABLE, str(error)) from error
        return found

    def notify(self, request: NotifyRequest) -> NotifyResult:
        return NotifyResult(gone=tuple(each.node for each in request.seen_nodes if each.node not in self.open))

    def record(self, request: RecordRequest) -> RecordResult:
        single = [ObservationRecord(cluster=CLUSTER, spells=(each,)) for each in request.ended if not each.storm]
        for each in (*single, *request.records):
            self.records.setdefault(each.workflow_id, each)
        return RecordResult(of_storms=tuple(each for each in request.ended if each.storm))

    def recorded(self) -> list[Spell]:
        """Of all records."""
        return [spell for record in self.records.values() for spell in record.spells]

    # Episodes -----------------------------------------------------------------------------------------------------------

    def ends(self, episode: Episode, outcome: str, problem: str = "") -> None:
        """It gives back what it did, and its permit."""
        if self.open.get(episode.node) is not episode:
            return
        del self.open[episode.node]
        self.ended[episode.node] = (outcome, self.now, episode.incident)
        if outcome == Outcome.ABORTED:
            self.aborted[episode.node] = self.now, episode.incident
        elif outcome != Outcome.REFUSED:
            self.aborted.pop(episode.node, None)
        body = self.nodes[episode.node]
        if body.mark == episode.incident:
            body.mark = ""
            self.put(body)
        self.release(Release(node=episode.node, incident=episode.incident, outcome=outcome, problem=problem))

    def release(self, release: Release) -> None:
        """The scanner hears of it a moment later, if there is one then."""

        def arrives() -> None:
            if (scanner := self.scanner) is not None:
                scanner.signal("release", release)

        self.clockwork.after(self.late + self.clockwork.moments(0.01, 0.3), arrives)

    def _signalled(self, workflow_id: str, signal: str, _argument: Any) -> bool:
        found = self.open.get(workflow_id.rpartition("/")[2])
        if found is None:
            return False
        if signal == "permit_granted":
            found.permit, found.parked = True, False
            self.began(found)
        return True
