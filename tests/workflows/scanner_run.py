"""A scripted cluster for scanner tests, and a scanner of it under way."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.decisions import Decision
from policy.episode.messages import FencingInput, SeenNode, episode_id, scanner_id
from policy.episode.modes import mode_of
from policy.episode.permits import PermitAnswer, PermitRequest, Release, ScannerQuestion
from policy.history.spells import ObservationRecord, ScannerSpells
from policy.scan.ledger import Ledger
from policy.scan.scan_report import Candidate, CheckReport, ClusterLease, ScanReport, ViewState
from policy.values.mode import Mode
from policy.values.object_refs import ObjectRef
from tests.policy.builders import NOW as BUILT_AT
from tests.replay.recording import keep_history
from tests.workflows import contract
from tests.workflows.contract import served_by
from tests.workflows.surroundings import asked_until, eventually, worker
from workers.payloads.converter import DATA_CONVERTER
from workflows.definitions.scanner import HealthScanner
from workflows.kit.messages import ScannerResult, ScannerStatus
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue
from workflows.scanner.state import ScannerInput, ScannerState

CHECK = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers")
TEMPLATE = ObjectRef(api_version="nodewarden.io/v1alpha1", kind="FencingTemplate", name="ipmi", namespace="nodewarden")
NOW = datetime(2026, 11, 1, tzinfo=UTC)


def candidate(node: str, minutes: int = 10) -> Candidate:
    """A node that offends since some minutes."""
    since = NOW - timedelta(minutes=minutes)
    return Candidate(
        node=node, uid=f"uid-{node}", check=CHECK, since=since, reason="Ready", message="Ready is Unknown", template=TEMPLATE
    )


def check(*, allowed: bool = True, unhealthy: int = 1, message: str = "") -> CheckReport:
    """Twelve nodes under one check."""
    return CheckReport(
        ref=CHECK, total=12, healthy=12 - unhealthy, unhealthy=unhealthy, remaining=6, allowed=allowed, message=message
    )


def report(*nodes: str, **changes: object) -> ScanReport:
    """A live view with these candidates."""
    plain = ScanReport(
        digest="",
        at=NOW,
        resource_version="100",
        inventory=12,
        view=ViewState(synced=True),
        lease=ClusterLease(held=True),
        checks=(check(unhealthy=len(nodes)),),
        candidates=tuple(candidate(node) for node in nodes),
        streams=True,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def report_of(ledger: Ledger, watching: Iterable[str] = (), now: datetime = BUILT_AT) -> ScanReport:
    """What a scan would say of it; at the moment of `tests/policy/builders.py` unless it is said."""
    parts = ledger.report_parts(now, tuple(watching))
    told = {each.name: getattr(parts, each.name) for each in fields(parts)}
    return replace(report(), **told)


@dataclass
class ScriptedCluster:
    """A cluster whose report a test sets; a long poll that waits like the real one."""

    current: ScanReport = field(default_factory=report)
    requests: list[contract.ScanRequest] = field(default_factory=list)
    opened: list[FencingInput] = field(default_factory=list)
    outcomes: dict[str, contract.Opened] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    """Who was to be opened, call by call."""
    unasked: list[bool] = field(default_factory=list)
    known: dict[str, contract.EpisodeDescription] = field(default_factory=dict)
    described: list[tuple[str, ...]] = field(default_factory=list)
    found: list[contract.FoundOpen] = field(default_factory=lambda: [contract.FoundOpen(nodes=())])
    """What one list after the other tells; the last one is told again and again."""
    former: ScannerSpells = field(default_factory=ScannerSpells)
    """What the last scanner did not record."""
    former_runs: dict[str, str] = field(default_factory=dict)
    """Of runs that could not ask the one before them: which one that is."""
    told: list[tuple[SeenNode, ...]] = field(default_factory=list)
    there: set[str] = field(default_factory=set)
    """Nodes whose episodes hear what they are told; what was opened here never was."""
    listed: int = 0
    repetitions: list[contract.RepetitionRequest] = field(default_factory=list)
    preserved: list[contract.PreserveRequest] = field(default_factory=list)
    recorded: list[ObservationRecord] = field(default_factory=list)
    record_requests: list[contract.RecordRequest] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    """Openings and beginnings of preservations."""
    released: int = 0
    last_word: str = ""
    """Why nothing is begun, as the request that gives the Lease back says it."""
    last_decisions: tuple[Decision, ...] = ()
    """What the request that gives the Lease back takes along."""
    first: ScanReport | None = None
    """What the first scan sees, where that is not the current report."""
    underway: list[timedelta] = field(default_factory=list)
    """How long the next answers are on their way, one after the other; those after them are there at once."""
    lost: bool = False
    """Whether the worker of the cluster gives back what it is at; how often it has."""
    given_back: int = 0
    idle: int = 0
    """How many scans take their whole time."""
    restless: int = 0
    """How many scans answer at once with a new digest."""
    fails: dict[str, int] = field(default_factory=dict)
    """How often which act fails."""
    refuses: Callable[[ObservationRecord], bool] = lambda _: False
    """Which records Temporal does not take."""
    named: int = 0
    may_open: asyncio.Event = field(default_factory=asyncio.Event)
    may_describe: asyncio.Event = field(default_factory=asyncio.Event)
    may_list: asyncio.Event = field(default_factory=asyncio.Event)
    may_release: asyncio.Event = field(default_factory=asyncio.Event)
    may_tell: asyncio.Event = field(default_factory=asyncio.Event)
    by_mode: bool = False
    """Whether candidates are offered by the modes of the request, as a real scan does."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        for each in (self.may_open, self.may_describe, self.may_list, self.may_release, self.may_tell):
            each.set()
        self.show(self.current)

    def show(self, new: ScanReport) -> None:
        """The cluster changes."""
        self.current = replace(new, digest=uuid.uuid4().hex)
        self.changed.set()

    def _fails(self, act: str, why: str) -> None:
        if self.fails.get(act):
            self.fails[act] -= 1
            raise failure(ErrorType.INVALID_CONFIG, why)

    async def observe_cluster(self, request: contract.ScanRequest) -> ScanReport:
        self.requests.append(request)
        self._fails("scan", "the API server said no")
        if self.restless:
            self.restless -= 1
            return replace(self.current, digest=f"restless-{self.restless}")
        while request.known_digest == self.current.digest and self._lease_is(request):
            if self.idle:
                self.idle -= 1
                break
            self.changed.clear()
            if self.lost:
                self.given_back += 1
                raise failure(ErrorType.TRANSIENT, "the worker ends")
            activity.heartbeat()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), 0.05)
        lease = self.current.lease
        if not lease.held and request.work_in_hand and not lease.holder:
            self.current = replace(self.current, lease=ClusterLease(held=True), digest=uuid.uuid4().hex)
        underway = self.underway.pop(0) if self.underway else timedelta(0)
        answer, self.first = self.first or self.current, None
        if self.by_mode:
            answer = replace(answer, candidates=tuple(each for each in answer.candidates if _may_begin(request, each.node)))
        return replace(answer, answered_at=activity.info().started_time - underway)

    def _lease_is(self, request: contract.ScanRequest) -> bool:
        return self.current.lease.held or bool(self.current.lease.holder) or not request.work_in_hand

    async def publish_repetition(self, request: contract.RepetitionRequest) -> None:
        self._fails("tell", "the API server said no")
        self.repetitions.append(request)

    async def release_lease(self, request: contract.ScanRequest) -> None:
        await self.may_release.wait()
        self.released += 1
        self.last_word = request.halted
        self.last_decisions = request.decisions

    async def open(self, request: contract.OpenRequest) -> contract.OpenResult:
        self.asked.append(tuple(episode.node for episode in (*request.episodes, *request.remediations)))
        self.unasked.append(request.unasked)
        await self.may_open.wait()
        self._fails("open", "nobody knows")
        self.order.append("open")
        outcomes = []
        for episode in request.episodes:
            opened = self.outcomes.get(episode.node, contract.Opened.STARTED)
            if opened is contract.Opened.STARTED:
                self.opened.append(episode)
            outcomes.append(
                contract.OpenOutcome(
                    node=episode.node,
                    incident=episode.incident,
                    opened=opened,
                    workflow_id=episode_id(episode.cluster, episode.node),
                    reason=f"scripted {opened}",
                    holder="Preservation i-1" if opened is contract.Opened.REFUSED else "",
                )
            )
        return contract.OpenResult(outcomes=tuple(outcomes))

    async def record(self, request: contract.RecordRequest) -> contract.RecordResult:
        self.record_requests.append(request)
        self._fails("record", "Temporal is away")
        ended = [ObservationRecord(cluster=request.cluster, spells=(each,)) for each in request.ended if not each.storm]
        records = [*ended, *request.records]
        left = [each.workflow_id for each in records if self.refuses(each)]
        of_storms = tuple(each for each in request.ended if each.storm)
        if left and len(left) == len(records) and not of_storms:
            raise failure(ErrorType.INVALID_CONFIG, f"Temporal can't record {left[0]}")
        self.recorded += [each for each in records if each.workflow_id not in left]
        return contract.RecordResult(of_storms=of_storms, left=tuple(left))

    async def preserve(self, request: contract.PreserveRequest) -> contract.PreserveResult:
        self._fails("preserve", "Temporal is away")
        self.preserved.append(request)
        self.order.append("preserve")
        started = [contract.PreserveOutcome(victim=each.victim, opened=contract.Opened.STARTED) for each in request.needs]
        return contract.PreserveResult(outcomes=tuple(started))

    async def notify(self, request: contract.NotifyRequest) -> contract.NotifyResult:
        self.told.append(request.seen_nodes)
        await self.may_tell.wait()
        return contract.NotifyResult(gone=tuple(seen.node for seen in request.seen_nodes if seen.node not in self.there))

    async def describe(self, request: contract.DescribeRequest) -> contract.DescribeResult:
        self.described.append(request.nodes)
        await self.may_describe.wait()
        self._fails("describe", "Temporal is away")
        closed = [contract.EpisodeDescription(node=node, known=False, open=False, workflow_id="") for node in request.nodes]
        return contract.DescribeResult(episodes=tuple(self.known.get(found.node, found) for found in closed))

    async def find_open(self, request: contract.FindRequest) -> contract.FoundOpen:
        self.listed += 1
        await self.may_list.wait()
        self._fails("list", "Temporal can't list")
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]

    async def former_spells(self, request: contract.FormerRun) -> ScannerSpells:
        self._fails("former", "its history was written by another version")
        if (before := self.former_runs.get(request.run_id)) is not None:
            return ScannerSpells(former_run=before)
        assert request.run_id in {self.found[0].former, *self.former_runs.values()}
        return self.former

    async def name_deployment(self, request: contract.NameRequest) -> contract.DeploymentName:
        self.named += 1
        self._fails("name", "Temporal is away")
        return contract.DeploymentName(holder="default/0815")


def _may_begin(request: contract.ScanRequest, node: str) -> bool:
    return mode_of(request.modes, node, {}).mode.allows(Mode.CORDON)


def carried_over(scanner: HealthScanner) -> ScannerState:
    """What a scanner remembers, as the next history reads it."""
    converter = DATA_CONVERTER.payload_converter
    (request,) = converter.from_payloads(converter.to_payloads([scanner._carried()]), [ScannerInput])
    assert request.state is not None
    return request.state


@dataclass
class Scan:
    """A scanner under way."""

    env: WorkflowEnvironment
    cluster: str
    world: ScriptedCluster
    handle: WorkflowHandle[HealthScanner, ScannerResult]
    client_handle: Callable[[], WorkflowHandle[HealthScanner, ScannerResult]]
    of_cluster: AsyncExitStack
    """The worker of the cluster."""

    async def loses_the_cluster(self) -> None:
        """Its one worker ends."""
        self.world.lost = True
        await eventually(self.env, lambda: self.world.given_back > 0)
        await self.of_cluster.aclose()

    async def until(self, condition: Callable[[ScannerStatus], bool]) -> ScannerStatus:
        """Wait until the scanner's status is as wished."""
        return await asked_until(self.env, lambda: self.client_handle().query(HealthScanner.status), condition, within=200)

    async def has_opened(self, count: int) -> None:
        """Wait until so many episodes have been opened."""
        await eventually(self.env, lambda: len(self.world.opened) >= count)

    async def release(self, episode: FencingInput, **changes: object) -> None:
        """An episode says that it has ended or parked, and Temporal shows the same."""
        release = replace(Release(node=episode.node, incident=episode.incident, outcome="recovered"), **changes)  # type: ignore[arg-type]
        self.world.known[episode.node] = contract.EpisodeDescription(
            node=episode.node,
            known=True,
            open=release.parked or release.held,
            parked=release.parked,
            incident=release.incident,
            workflow_id=episode_id(self.cluster, episode.node),
            ended=None if release.parked or release.held else await self.env.get_current_time(self.handle),
        )
        await self.client_handle().signal(HealthScanner.release, release)

    async def ask(self, node: str, incident: str = "by-hand", *, by_person: bool = True, override: str = "") -> PermitAnswer:
        """An open episode asks for a permit, a person's unless it is said."""
        workflow_id = episode_id(self.cluster, node)
        request = PermitRequest(node=node, workflow_id=workflow_id, incident=incident, by_person=by_person, override=override)
        return await self.put(ScannerQuestion(id=uuid.uuid4().hex, permit=request))

    async def put(self, question: ScannerQuestion) -> PermitAnswer:
        """An episode's question, as its activity asks it."""
        await self.client_handle().signal(HealthScanner.ask, question)
        answer = await asked_until(
            self.env, lambda: self.client_handle().query(HealthScanner.answer, question), lambda said: said.permit is not None
        )
        assert answer.permit is not None
        return answer.permit


@asynccontextmanager
async def scanning(
    env: WorkflowEnvironment,
    world: ScriptedCluster,
    *,
    client: Client | None = None,
    fails_by: Sequence[type[BaseException]] = (Exception,),
    **changes: object,
) -> AsyncIterator[Scan]:
    """Start a scanner of a cluster of its own. client: of its worker, where it is not the environment's. fails_by: what ends it;
    none, as it runs in life: any other failure is one of its task."""
    cluster = f"c{uuid.uuid4().hex[:8]}"
    request = replace(ScannerInput(cluster=cluster, holder="us"), **changes)  # type: ignore[arg-type]
    queue = f"scanners-{cluster}"
    at_temporal = served_by(world, contract.EpisodeActivities, contract.PreservationStarts)
    in_the_cluster = served_by(world, contract.ScanActivities, contract.RepetitionActivities, contract.ObservationActivities)
    async with (
        worker(client or env.client, task_queue=queue, workflows=[HealthScanner], workflow_failure_exception_types=fails_by),
        worker(env.client, task_queue=WORKFLOW_QUEUE, activities=at_temporal),
        AsyncExitStack() as of_cluster,
    ):
        await of_cluster.enter_async_context(worker(env.client, task_queue=cluster_queue(cluster), activities=in_the_cluster))
        handle = await env.client.start_workflow(HealthScanner.run, request, id=scanner_id(cluster), task_queue=queue)
        scan = Scan(
            env,
            cluster,
            world,
            handle,
            lambda: env.client.get_workflow_handle_for(HealthScanner.run, scanner_id(cluster)),
            of_cluster,
        )
        try:
            yield scan
            await keep_history(scan.client_handle())
        finally:
            if not world.released:
                await scan.client_handle().terminate("the test is over")
