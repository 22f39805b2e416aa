"""The typed way in for programs: `async with Nodewarden.connect() as warden: await warden.fence("prod", "node-7", reason="…")`.

It starts, asks and tells workflows and decides nothing: permits are the scanner's, consequences the episode's. The command
line (`starter/cli.py`) is a thin skin over it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from activities.contracts.episode_start import start_options
from policy.episode.messages import (
    EpisodeStatus,
    FencingInput,
    Kind,
    Need,
    NeedKind,
    Outcome,
    PreservationInput,
    RemediationInput,
    episode_id,
)
from policy.fence.device_check import DeviceReport, acted_on
from policy.remediation.ladder import read_strategies
from policy.scan.repeat_alarm import DEFAULT_ALARM, RepeatAlarm
from policy.values.mode import Mode
from policy.values.object_refs import ObjectRef, in_natural_order
from starter import wording
from starter.errors import EpisodeHeldError, MissingError, RequestError, SilentError
from starter.handles.calls import ANSWER_WITHIN, answered, our_holder, unanswered
from starter.handles.episodes import EpisodeHandle, NodeEpisodes, SilentEpisode, named
from starter.handles.history import History
from starter.handles.node_actions import Speaker, attested, own_connection
from starter.handles.observations import Observations
from starter.handles.scanners import DeviceCheckHandle, ScannerHandle, StartedScanner
from starter.handles.status import ClusterStatus, PreservedNodes, open_preservations, still_stopped_by
from workers.configuration.settings import Settings, load
from workers.connect import connect
from workers.embedded.server import running_endpoint
from workers.errors import TemporalUnreachableError
from workers.payloads.converter import for_people
from workflows.kit.messages import OperatorCommand, ScannerStatus
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue

_log = logging.getLogger(__name__)

CHECK_EVERY = timedelta(hours=1)
SHOWN_ENDED = 10
SHOWN_DEVICES = 5
SHOWN_OPEN = 50


class Nodewarden:
    """Episodes and scanners of one Temporal namespace. Make one with `connect`, or round a client that has our converter."""

    def __init__(self, client: Client, *, speaker: Speaker | None = None, page: str = "") -> None:
        """speaker: who speaks to workflows; None: that is not attested, and each method is given the caller's name. page: the
        address of our page, which Temporal's is to link to."""
        config: dict[str, Any] = {**client.config(active_config=True), "data_converter": for_people(client.data_converter)}
        self.client = client = Client(**config | {"plugins": []})  # a worker's plugin would put its own converter back (S50)
        self.page = page
        self.history = History(client)
        """Episodes that have ended, and the decision record of each."""
        self.observations = Observations(client, self.history, page=page)
        """What was seen of nodes and not repaired."""
        self._speaker = speaker
        self._last: dict[str, ScannerStatus | None] = {}

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        settings: Settings | None = None,
        *,
        address: str = "",
        namespace: str = "",
        speaker: Speaker | None = None,
    ) -> AsyncIterator[Nodewarden]:
        """Connect to the Temporal of the arguments, else of the settings, else to the embedded one that `nodewarden up` runs.

        speaker: who speaks; None: the caller, as Kubernetes knows it by the settings or the kubeconfig that are read here.
        """
        settings = settings or load()
        speaker = speaker or Speaker(partial(own_connection, settings), otherwise="", complain=_log.warning)
        temporal = settings.temporal
        found = address or temporal.address or _embedded_address(settings)
        temporal = temporal.model_copy(update={"address": found, "namespace": namespace or temporal.namespace})
        try:
            connected = await connect(temporal, clusters=settings.connections, patience=temporal.patience, runs_workflows=False)
            yield cls(connected, speaker=speaker, page=settings.page_url)
        finally:
            await asyncio.sleep(0.2)  # lets the bridge's threads end: an interpreter that exits at once after can crash

    async def fence(
        self,
        cluster: str,
        node: str,
        *,
        reason: str,
        requester: str = "",
        template: ObjectRef | None = None,
        incident: str = "",
        override: str = "",
        seen_off: bool = False,
    ) -> EpisodeHandle:
        """Start a fencing episode, or join the same request if it runs already. override: see `NodeActionSpec`. seen_off: the
        requester vouches that the machine is off (S8): its pods are freed on that word.

        Raises EpisodeHeldError, naming the holder, where another episode has the node (S13).
        """
        incident = incident or uuid.uuid4().hex[:12]
        request = FencingInput(
            cluster=cluster,
            node=node,
            reason=reason,
            requester=requester,
            incident=incident,
            template=template,
            override=override,
            seen_off=seen_off,
        )
        how = (template.key if template else "") + override + (", seen off" if seen_off else "")
        return await self._start(Kind.FENCING, request, how=how)

    async def remediate(
        self,
        cluster: str,
        node: str,
        *,
        reason: str,
        requester: str = "",
        strategies: Sequence[str] = (),
        skip_impossible: bool = False,
        incident: str = "",
        override: str = "",
    ) -> EpisodeHandle:
        """Have a node repaired or replaced, step by step, or join the same request if it runs already. node: a Machine without a
        Node is `machine/<namespace>/<name>`. strategies: the steps in their order, such as `["reboot=10m", "delete-machine"]`;
        none: those of the health check that covers the node, else the deletion of its Machine. skip_impossible: named steps that
        can't be carried out are left out; else the episode is refused before any is begun.

        Raises PolicyError for a step that there is none of, EpisodeHeldError, naming the holder, where another episode has the
        node (S13).
        """
        if strategies:
            read_strategies(", ".join(strategies), subject=node, field="strategies")
        request = RemediationInput(
            cluster=cluster,
            node=node,
            reason=reason,
            requester=requester,
            incident=incident or uuid.uuid4().hex[:12],
            strategies=tuple(strategies),
            skip_impossible=skip_impossible,
            override=override,
        )
        how = ", ".join(strategies) + (", skips" if skip_impossible else "") + override
        return await self._start(Kind.REMEDIATION, request, how=how)

    async def preserve(
        self,
        cluster: str,
        node: str,
        *,
        reason: str,
        requester: str = "",
        hold: timedelta | None = None,
        isolate: bool = False,
        incident: str = "",
    ) -> EpisodeHandle:
        """Begin to preserve a node, or join the open preservation of it, which ends as it would have (S22): see
        `extend`. hold: for how long, None for the time-out of the node's pool. isolate: cut it off from its volumes and its
        network once it has failed; an open preservation is asked to, too.

        Raises EpisodeHeldError, naming the holder, where an episode of another kind has the node (S13).
        """
        request = PreservationInput(
            cluster=cluster,
            node=node,
            reason=reason,
            requester=requester,
            incident=incident or uuid.uuid4().hex[:12],
            keep=True,
            hold=hold,
            isolate=isolate,
            holder=await our_holder(self.client),
        )
        episode = await self._start(Kind.PRESERVATION, request)
        if episode.joined and isolate:
            await episode.isolate(who=requester, reason=reason)
        return episode

    async def preserved(self, cluster: str) -> PreservedNodes:
        """The open preservations: who is kept, why, and until when. To be looked at; nothing is decided by it."""
        return await open_preservations(self.client, cluster)

    async def _start(
        self, kind: Kind, request: FencingInput | PreservationInput | RemediationInput, *, how: str = ""
    ) -> EpisodeHandle:
        cluster, node, reason = request.cluster, request.node, request.reason
        await self._expect_served(cluster)
        command = await attested(
            self._speaker, cluster, OperatorCommand(who=request.requester, reason=reason), request.node_action()
        )
        requester = command.who
        request = replace(request, requester=requester, action=command.action)
        if not isinstance(request, PreservationInput):
            request = replace(request, need=Need(kind=NeedKind.PERSON, reason=reason, requester=requester))
        digest = _digest(kind, reason, requester, how)
        try:
            started: WorkflowHandle[Any, Any] = await self.client.start_workflow(
                kind.value,
                request,
                task_queue=WORKFLOW_QUEUE,
                memo={"incident": request.incident, "request": digest},
                **start_options(kind, request, page=self.page),
            )
        except WorkflowAlreadyStartedError as error:
            return await self._join(kind, cluster, node, incident=request.incident, digest=digest, because=error)
        except RPCError as error:
            raise unanswered(error, what=f"episode of {node}") from error
        return EpisodeHandle(self.client, cluster=cluster, node=node, run_id=started.result_run_id or "", speaker=self._speaker)

    async def _join(
        self, kind: Kind, cluster: str, node: str, *, incident: str, digest: str, because: Exception
    ) -> EpisodeHandle:
        handle = self.client.get_workflow_handle(episode_id(cluster, node))
        with answered(f"episode of {node}"):
            described = await handle.describe(rpc_timeout=ANSWER_WITHIN)
            memo = await described.memo()
        kept = kind is Kind.PRESERVATION and described.workflow_type == kind.value
        if kept or memo.get("incident") == incident or memo.get("request") == digest:
            run_id = described.run_id or ""
            return EpisodeHandle(self.client, cluster=cluster, node=node, run_id=run_id, joined=True, speaker=self._speaker)
        try:
            name = named(await self.episode(cluster, node).status())
        except RequestError:
            name = f"{described.workflow_type} {memo.get('incident', '')} (run {described.run_id})"
        raise EpisodeHeldError(node, name) from because

    def episode(self, cluster: str, node: str) -> EpisodeHandle:
        """The episode of a node, open or ended; whether there is one shows when it is asked."""
        return EpisodeHandle(self.client, cluster=cluster, node=node, speaker=self._speaker)

    async def serves(self, cluster: str) -> bool:
        """Whether a worker has lately asked for work on the cluster's queue; Temporal remembers some five minutes."""
        return await self.last_polled(cluster_queue(cluster)) is not None

    async def is_known(self, cluster: str) -> bool:
        """Whether a worker serves the cluster, or it has ever had a scanner."""
        return await self.serves(cluster) or bool(await self.scanner(cluster).last_run())

    async def _expect_served(self, cluster: str) -> None:
        """Raises SilentError where an episode would end unrepaired after a minute, as no worker takes its first look."""
        if not await self.is_known(cluster):
            raise SilentError(
                f"no worker serves the cluster {cluster}, and it has never had a scanner: "
                "start a worker (`nodewarden worker`), or correct the name"
            )

    async def last_polled(self, queue: str, *, workflows: bool = False) -> datetime | None:
        """When a worker has last asked the task queue for activities, None where none has for some five minutes. workflows: for
        workflows instead."""
        kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if workflows else TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
        with answered(f"task queue {queue}"):
            described = await self.client.workflow_service.describe_task_queue(
                DescribeTaskQueueRequest(
                    namespace=self.client.namespace,
                    task_queue=TaskQueue(name=queue),
                    task_queue_type=kind,
                ),
                timeout=ANSWER_WITHIN,
            )
        return max((each.last_access_time.ToDatetime(UTC) for each in described.pollers), default=None)

    def scanner(self, cluster: str) -> ScannerHandle:
        """The scanner of a cluster; whether one runs shows when it is asked."""
        return ScannerHandle(self.client, cluster, speaker=self._speaker)

    async def start_scanner(
        self,
        cluster: str,
        *,
        cap: int = 1,
        wait: timedelta = timedelta(seconds=60),
        repeat_alarm: RepeatAlarm = DEFAULT_ALARM,
        check_every: timedelta | None = CHECK_EVERY,
        mode: Mode | None = Mode.REPAIR,
    ) -> StartedScanner:
        """See `ScannerHandle.start`. check_every: between two checks of the fence devices beside it, None for none."""
        started = await self.scanner(cluster).start(cap=cap, wait=wait, repeat_alarm=repeat_alarm, mode=mode)
        if check_every is not None:
            await self.device_check(cluster).repeat(check_every)
        else:
            await self.device_check(cluster).stop()
        return started

    async def stop_scanner(self, cluster: str, *, who: str, reason: str) -> str:
        """See `ScannerHandle.stop`. The fence devices are no longer checked by the clock, either."""
        answer = await self.scanner(cluster).stop(who=who, reason=reason)
        await self.device_check(cluster).stop()
        return answer

    def device_check(self, cluster: str) -> DeviceCheckHandle:
        """The check of the cluster's fence devices, running or not."""
        return DeviceCheckHandle(self.client, cluster)

    async def check_devices(self, cluster: str, node: str = "", *, admit: bool = False) -> DeviceReport:
        """See `DeviceCheckHandle.check`. Raises SilentError where no worker has ever served the cluster."""
        await self._expect_served(cluster)
        return await self.device_check(cluster).check(node, admit=admit)

    async def scanner_status(self, cluster: str) -> ScannerStatus:
        return await self.scanner(cluster).status()

    async def in_the_way(self, episode: EpisodeHandle) -> str:
        """What would keep the episode although a person has it go on, "" where nothing does, or that can't be asked."""
        try:
            status, scanner = await asyncio.gather(episode.status(), self.scanner_status(episode.cluster))
        except MissingError:
            return ""
        except RequestError as error:
            return wording.not_yet(str(error))
        stopped = still_stopped_by(scanner, status, datetime.now(UTC))
        return wording.not_yet(stopped) if stopped else ""

    async def status(self, cluster: str) -> ClusterStatus:
        """Everything there is to show. What does not answer is named in it instead of failing the whole."""
        # Together: where no worker runs each of them is silent for as long as is waited for it, and a page says so only then.
        seen, open_runs, ended, devices = await asyncio.gather(
            self._scanner_seen(cluster),
            self.history.open(cluster),
            self.history.completed(cluster, limit=SHOWN_ENDED),
            self._devices_read(cluster),
        )
        scanner = seen.scanner
        held = [permit.node for permit in scanner.permits] if scanner is not None else []
        # Thousands may be kept for days; whatever is being done to a node is shown before them.
        open_runs = sorted(open_runs, key=lambda run: run.workflow_type == Kind.PRESERVATION)
        listed = [run.id.removeprefix(episode_id(cluster, "")) for run in open_runs]
        nodes = list(dict.fromkeys([*held, *listed]))
        shown = sorted(nodes[:SHOWN_OPEN], key=in_natural_order)
        answers = await asyncio.gather(*(self.episode(cluster, node).seen() for node in shown))
        known = [answer for answer in answers if isinstance(answer, EpisodeStatus)]
        episodes = tuple(wording.as_queued_now(each, scanner, unanswered=seen.unanswered) for each in known)
        rows = acted_on(devices, wording.failing(episodes)).rows if devices is not None else ()
        return ClusterStatus(
            cluster=cluster,
            at=datetime.now(UTC),
            scanner=scanner,
            problem=seen.problem,
            unanswered=seen.unanswered,
            episodes=episodes,
            silent=tuple(answer for answer in answers if isinstance(answer, SilentEpisode)),
            left_out=len(nodes) - len(shown),
            ended=tuple(each for each in ended if each.outcome is not Outcome.REFUSED),
            last=seen.last,
            devices=tuple(row for row in rows if row.problem)[:SHOWN_DEVICES],
        )

    async def _scanner_seen(self, cluster: str) -> ClusterStatus:
        """Of a status what the scanner tells."""
        try:
            return ClusterStatus(cluster=cluster, at=datetime.now(UTC), scanner=await self.scanner_status(cluster))
        except RequestError as error:
            run = await self.scanner(cluster).last_run() if isinstance(error, MissingError) else ""
            if run and run not in self._last:  # asked once of each that has ended: what it knew stays what it was
                self._last[run] = await self.scanner(cluster).last_status()
            unread, last = not isinstance(error, MissingError), self._last.get(run)
            return ClusterStatus(cluster=cluster, at=datetime.now(UTC), problem=str(error), unanswered=unread, last=last)

    async def _devices_read(self, cluster: str) -> DeviceReport | None:
        """As the last check knows them. Where none is known, `fence check` and `doctor` say why."""
        try:
            return await self.device_check(cluster).last_report()
        except RequestError:
            return None

    async def of_node(self, cluster: str, node: str) -> NodeEpisodes:
        """The node's open episode, if there is one, and how its last ones ended."""
        open_one, ended = await asyncio.gather(
            self.episode(cluster, node).seen(), self.history.completed(cluster, node=node, limit=SHOWN_ENDED)
        )
        return NodeEpisodes(
            episode=open_one if isinstance(open_one, EpisodeStatus) else None,
            silent=open_one if isinstance(open_one, SilentEpisode) else None,
            ended=ended,
        )


def _embedded_address(settings: Settings) -> str:
    endpoint = running_endpoint(settings.state)
    if endpoint is None:
        raise TemporalUnreachableError(
            "temporal.address (TEMPORAL_ADDRESS): expected host:port of a Temporal service; "
            "none is set, and no `nodewarden up` runs here with one of its own"
        )
    return endpoint.address


def _digest(kind: Kind, reason: str, requester: str, how: str = "") -> str:
    """Two requests with equal digests are the same request, asked twice."""
    whole = "\0".join((kind.value, reason, requester, how))
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
