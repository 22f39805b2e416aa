"""The scanner of one cluster from outside, and the check of its fence devices, which is started and stopped with it: start them,
ask them, stop them. Their workflow ids admit one of each per cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.contracts import search_attributes
from activities.errors import ErrorType, error_type
from policy.episode.messages import device_check_id, scanner_id
from policy.episode.modes import MODE_CHANGES_MEMO, MODES_MEMO, REPAIRS, ClusterModes, ModeChanges
from policy.episode.node_action import NodeActionSpec, Verb
from policy.fence.device_check import DeviceMemory, DeviceReport
from policy.history.spells import ScannerSpells
from policy.scan.pauses import PAUSES_MEMO, Pauses
from policy.scan.repeat_alarm import DEFAULT_ALARM, RepeatAlarm
from policy.values.mode import Mode
from policy.values.times import written
from starter.errors import MissingError, RefusedError, RequestError, SilentError
from starter.handles.calls import (
    ANSWER_WITHIN,
    ASK_AGAIN,
    DECIDED_WITHIN,
    answered,
    ask,
    our_holder,
    remembered,
    send_update,
    unanswered,
    why_silent,
)
from starter.handles.node_actions import Speaker, attested
from workflows.kit import continuation, options
from workflows.kit.messages import (
    CheckRequest,
    DeviceCheckInput,
    DeviceCheckResult,
    ModeRequest,
    OperatorCommand,
    PauseRequest,
    ScannerResult,
    ScannerStatus,
    StopRequest,
    UnpauseRequest,
)
from workflows.kit.options import WORKFLOW_QUEUE
from workflows.scanner.state import ScannerInput

SCANNER = "HealthScanner"
STOPS_WITHIN = timedelta(seconds=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedScanner:
    """`started` False: it ran already, and keeps the settings it was started with. `holder`: our name on the Lease."""

    cluster: str
    workflow_id: str
    run_id: str
    started: bool
    holder: str


class ScannerHandle:
    """Where there is no scanner, questions and requests raise MissingError."""

    def __init__(self, client: Client, cluster: str, *, speaker: Speaker | None = None) -> None:
        self._speaker = speaker
        self.cluster = cluster
        self.workflow_id = scanner_id(cluster)
        self._client = client
        self._handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(self.workflow_id)
        self._what = f"scanner of {cluster}"

    async def start(
        self,
        *,
        cap: int = 1,
        wait: timedelta = timedelta(seconds=60),
        repeat_alarm: RepeatAlarm = DEFAULT_ALARM,
        mode: Mode | None = Mode.REPAIR,
    ) -> StartedScanner:
        """Start it; one that runs already is left as it is. One that is just stopping is waited for. One that can't be replayed
        ends by itself, and Temporal starts the next, which builds its table again from our marks. A pause that is in force goes
        on, and so do the rules of modes. mode: `scan.mode`, None where it is not set.
        """
        ours = await our_holder(self._client)
        wanted = ScannerInput(cluster=self.cluster, holder=ours, cap=cap, wait=wait, repeat_alarm=repeat_alarm)
        for _ in range(2):
            try:
                # S44, S52: a pause, or a mode, is ended by its moment or a person, and not by another start.
                modes = replace(await self.modes(), setting=mode)
                changes = await self.mode_changes()
                run_id = await self._start(replace(wanted, pauses=await self.pauses(), modes=modes, mode_changes=changes))
            except WorkflowAlreadyStartedError as error:
                if not await self._makes_way():
                    return self._started(error.run_id, ours, started=False)
            else:
                return self._started(run_id, ours, started=True)
        raise RefusedError(f"the {self._what} is being started and stopped by others at this moment")

    async def stop(self, *, who: str, reason: str) -> str:
        """Stop it and give the cluster Lease back; open episodes pause before their next destructive act."""
        return await self._request("stop", Verb.STOP_SCAN, StopRequest(who=who, reason=reason))

    async def withdraw(self) -> None:
        """End one that this process has started. No person asks for it, so that no identity has to be verified (S42)."""
        await self._handle.cancel(rpc_timeout=ANSWER_WITHIN)
        await self.ended()

    async def _request(self, update: str, verb: Verb, request: OperatorCommand, **further: Any) -> str:
        """further: what the command says besides who and why."""
        spec = NodeActionSpec(action=verb, node="", reason=request.reason, **further)
        request = await attested(self._speaker, self.cluster, request, spec)
        return await send_update(self._client, self.workflow_id, update, request, str, what=self._what)

    async def pause(self, *, who: str, reason: str, until: datetime | None = None) -> str:
        """Begin nothing new and do nothing destructive, until then or until `unpause`. What is off is still freed and switched on
        again."""
        return await self._request("pause", Verb.PAUSE, PauseRequest(who=who, reason=reason, until=until), until=until)

    async def unpause(self, *, who: str, reason: str, of: str = "") -> str:
        """End a pause; the cluster goes on when none is left. of: its owner, "" for one's own; RefusedError names the owners
        where the pauses are those of other people."""
        return await self._request("unpause", Verb.UNPAUSE, UnpauseRequest(who=who, reason=reason, of=of), of=of)

    async def pauses(self) -> Pauses:
        """The last ones that this scanner or, where none runs, the last one was given; needs no worker. () where Temporal
        remembers no scanner. Raises SilentError where Temporal does not answer."""
        if (last := await remembered(self._handle, what=self._what)) is None:
            return ()
        found: Pauses = await last.memo_value(PAUSES_MEMO, default=(), type_hint=Pauses)
        return found

    async def set_mode(self, mode: str, *, who: str, reason: str, nodes: tuple[str, ...] = (), selector: str = "") -> str:
        """Set how far programs may go with these nodes, or with all; `unset` takes a rule back."""
        request = ModeRequest(who=who, reason=reason, mode=mode, nodes=nodes, selector=selector)
        return await self._request("set_mode", Verb.SET_MODE, request, mode=mode, nodes=nodes, selector=selector)

    async def modes(self) -> ClusterModes:
        """What this scanner or, where none runs, the last one has set; needs no worker. Raises SilentError."""
        last = await remembered(self._handle, what=self._what)
        found: ClusterModes = await last.memo_value(MODES_MEMO, default=REPAIRS, type_hint=ClusterModes) if last else REPAIRS
        return found

    async def mode_changes(self) -> ModeChanges:
        """The last ones by people, also of earlier scanners; needs no worker. Raises SilentError."""
        last = await remembered(self._handle, what=self._what)
        return await last.memo_value(MODE_CHANGES_MEMO, default=(), type_hint=ModeChanges) if last else ()

    async def status(self) -> ScannerStatus:
        """What it knows. Raises MissingError, which says how the last one ended, where none runs, SilentError where no worker
        answers."""
        try:
            return await ask(self._client, self.workflow_id, "status", ScannerStatus, what=self._what, only_open=True)
        except MissingError as error:
            raise MissingError(f"{error}, nothing is begun: {await self._why_none()}") from error

    async def spells(self) -> ScannerSpells:
        """What it saw and did not repair, as far as it is not recorded yet. Raises as `status` does."""
        return await ask(self._client, self.workflow_id, "spells", ScannerSpells, what=self._what, only_open=True)

    async def last_run(self) -> str:
        """The run of the scanner, or of the last one; "" where there was none, as far as Temporal remembers."""
        last = await remembered(self._handle, what=self._what)
        return (last.run_id or "") if last is not None else ""

    async def first_look(self) -> ScannerStatus | None:
        """What it knows once it has scanned; None: it has not within that time."""
        try:
            async with asyncio.timeout(DECIDED_WITHIN.total_seconds()):
                while True:
                    status = await self.status()
                    if status.report is not None or status.problem:
                        return status
                    await asyncio.sleep(ASK_AGAIN.total_seconds())
        except (TimeoutError, SilentError):
            return None

    async def last_status(self) -> ScannerStatus | None:
        """What the last one knew when it ended; None where there was none, or Temporal forgot it. A worker replays it for
        that."""
        try:
            return await ask(self._client, self.workflow_id, "status", ScannerStatus, what=self._what)
        except RequestError:
            return None

    async def _why_none(self) -> str:
        """Who ended the last one, and what starts the next (S44)."""
        begin = "`nodewarden scan start` starts it"
        try:
            last = await self._handle.describe()
            if last.status is not WorkflowExecutionStatus.COMPLETED or last.close_time is None:
                return f"the last one was {last.status.name.lower()}; {begin}" if last.status is not None else begin
            result = await self._client.get_workflow_handle(self.workflow_id, result_type=ScannerResult).result()
        except (RPCError, WorkflowFailureError):
            return begin
        return f"stopped by {result.stopped_by} at {written(last.close_time)}: {result.reason}; {begin}"

    async def ended(self) -> bool:
        """Wait until a scanner that is stopping has given the Lease back; False where that takes too long."""
        try:
            async with asyncio.timeout(STOPS_WITHIN.total_seconds()):
                await self._handle.result()
        except TimeoutError:
            return False
        except WorkflowFailureError:
            return True  # terminated: over, too
        return True

    async def _start(self, wanted: ScannerInput) -> str | None:
        with answered(self._what):
            started: WorkflowHandle[Any, Any] = await self._client.start_workflow(
                SCANNER,
                wanted,
                id=self.workflow_id,
                task_queue=WORKFLOW_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                priority=options.URGENT,
                retry_policy=continuation.ANEW,
                memo={
                    PAUSES_MEMO: wanted.pauses,
                    MODES_MEMO: wanted.modes,
                    MODE_CHANGES_MEMO: wanted.mode_changes,
                },
                static_summary=f"scans {self.cluster}, at most {wanted.cap} disrupted at once",
                search_attributes=TypedSearchAttributes(
                    [
                        SearchAttributePair(search_attributes.CLUSTER, self.cluster),
                        SearchAttributePair(search_attributes.KIND, SCANNER),
                    ]
                ),
            )
        return started.result_run_id

    async def _makes_way(self) -> bool:
        """Whether the running one has gone. One that does not answer counts as running."""
        try:
            return (await self.status()).stopping and await self.ended()
        except MissingError:
            return True  # it has ended since
        except SilentError:
            return False

    def _started(self, run_id: str | None, ours: str, *, started: bool) -> StartedScanner:
        return StartedScanner(
            cluster=self.cluster, workflow_id=self.workflow_id, run_id=run_id or "", started=started, holder=ours
        )


# The check of one cluster's fence devices from outside: ask for it, have it repeated, stop that.
#
# It runs beside the scanner and is started and stopped with it; asked where it does not run, it is started for the question. What
# it remembers of a former run goes into the next one.

DEVICE_CHECK = "DeviceCheck"
AWAY = frozenset({ErrorType.UNREACHABLE, ErrorType.TRANSIENT, ErrorType.RATE_LIMITED})
ATTEMPTS = 3
"""One that is just ending does not take a question any more: the next attempt starts another."""

_ENDING = frozenset({RPCStatusCode.ABORTED, RPCStatusCode.NOT_FOUND})


class DeviceCheckHandle:
    """The check of one cluster, running or not."""

    def __init__(self, client: Client, cluster: str) -> None:
        self.cluster = cluster
        self.workflow_id = device_check_id(cluster)
        self._client = client
        self._handle: WorkflowHandle[Any, DeviceCheckResult] = client.get_workflow_handle(
            self.workflow_id, result_type=DeviceCheckResult
        )
        self._what = f"check of the fence devices of {cluster}"

    async def check(self, node: str = "", *, admit: bool = False) -> DeviceReport:
        """Read all devices of the cluster, or of one node, now. Takes as long as they do. admit: see `CheckRequest`.

        Raises SilentError where no worker answers or the cluster can't be reached, RequestError where it can't be read.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._asked(CheckRequest(node=node, admit=admit))
            except WorkflowUpdateFailedError as error:
                # "AcceptedUpdateCompletedWorkflow": it ended, or was terminated, with the question in hand.
                if getattr(error.cause, "type", "") != "AcceptedUpdateCompletedWorkflow" or attempt == ATTEMPTS:
                    kind = SilentError if error_type(error) in AWAY else RequestError
                    raise kind(str(getattr(error.cause, "message", "") or error.cause)) from error
            except RPCError as error:
                if error.status not in _ENDING or attempt == ATTEMPTS:
                    raise unanswered(error, what=self._what) from error
        raise AssertionError("the last attempt returns or raises")

    async def last_report(self) -> DeviceReport | None:
        """What the last check of all devices has found, None before this run has made one. Raises MissingError where none
        runs."""
        answer: Any = DeviceReport | None
        report: DeviceReport | None = await ask(self._client, self.workflow_id, "report", answer, what=self._what, only_open=True)
        return report

    async def repeat(self, every: timedelta) -> None:
        """Have all devices checked by the clock. One that runs takes the interval over."""
        with answered(self._what):
            await self._client.start_workflow(
                DEVICE_CHECK,
                DeviceCheckInput(cluster=self.cluster, every=every, memory=await self._memory()),
                start_signal="repeat",
                start_signal_args=[every],
                **self._start_options(f"reads the fence devices of {self.cluster} by the clock"),
            )

    async def stop(self) -> None:
        """No more checks by the clock. One that is waited for is still answered."""
        try:
            await self._handle.signal("stop", rpc_timeout=ANSWER_WITHIN)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise unanswered(error, what=self._what) from error

    async def _asked(self, request: CheckRequest) -> DeviceReport:
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            DEVICE_CHECK,
            DeviceCheckInput(cluster=self.cluster, every=None, memory=await self._memory()),
            **self._start_options(f"reads the fence devices of {self.cluster} as asked"),
        )
        try:
            async with asyncio.timeout(ANSWER_WITHIN.total_seconds()):
                accepted = await self._client.start_update_with_start_workflow(
                    "check",
                    request,
                    start_workflow_operation=start,
                    wait_for_stage=WorkflowUpdateStage.ACCEPTED,
                    result_type=DeviceReport,
                )
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise SilentError(await why_silent(self._client, self.workflow_id, self._what)) from error
        try:
            report: DeviceReport = await accepted.result()
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                # The SDK has an error of its own for a cancelled wait; a caller's time-out knows only asyncio's.
                raise asyncio.CancelledError from error
            raise SilentError(await why_silent(self._client, self.workflow_id, self._what)) from error
        return report

    async def _memory(self) -> DeviceMemory:
        """What the last run ended with; nothing where there was none, or it was not let end."""
        try:
            last = await self._handle.describe(rpc_timeout=ANSWER_WITHIN)
            if last.status is not WorkflowExecutionStatus.COMPLETED or last.task_queue != WORKFLOW_QUEUE:
                return DeviceMemory()  # a stranger's worker may have ended one with places for our passwords (S40, S49)
            ended: WorkflowHandle[Any, DeviceCheckResult] = self._client.get_workflow_handle(
                self.workflow_id, run_id=last.run_id, result_type=DeviceCheckResult
            )
            return (await ended.result(follow_runs=False, rpc_timeout=ANSWER_WITHIN)).memory
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return DeviceMemory()
            raise unanswered(error, what=self._what) from error

    def _start_options(self, summary: str) -> dict[str, Any]:
        return {
            "id": self.workflow_id,
            "task_queue": WORKFLOW_QUEUE,
            "id_conflict_policy": WorkflowIDConflictPolicy.USE_EXISTING,
            "retry_policy": continuation.ANEW,
            "static_summary": summary,
            "search_attributes": TypedSearchAttributes(
                [
                    SearchAttributePair(search_attributes.CLUSTER, self.cluster),
                    SearchAttributePair(search_attributes.KIND, DEVICE_CHECK),
                ]
            ),
        }
