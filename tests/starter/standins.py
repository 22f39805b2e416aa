"""Scripted workflows under the real names: they answer what the starter asks, and do nothing else.

The real stories are tested in tests/workflows and on the whole system; here it is the other side of the wire that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from policy.checks.verdict import Health
from policy.episode.advice import ways
from policy.episode.messages import (
    EpisodeResult,
    EpisodeStatus,
    FencingInput,
    Kind,
    Outcome,
    Phase,
    PreservationInput,
    Reading,
    RecordEntry,
    RemediationInput,
)
from policy.episode.modes import MODE_CHANGES_MEMO, ModeChange, scope_of
from policy.episode.node_action import Verb
from policy.episode.permits import Permit, PermitState
from policy.fence.device_check import DeviceMemory, DeviceReport, DeviceRow, Reachability, report_of
from policy.fence.power import PowerState
from policy.history.spells import ScannerSpells, Spell
from policy.scan.pauses import PAUSES_MEMO, Pause, Pauses, described, in_force, paused, to_be_ended, unpaused
from policy.scan.scan_report import CheckReport, ClusterLease, ScanReport, TargetRow, ViewState
from policy.values.mode import Mode
from policy.values.object_refs import ObjectRef
from policy.values.times import written
from workflows.kit.messages import (
    AbortRequest,
    AcknowledgeRequest,
    CheckRequest,
    DeviceCheckInput,
    DeviceCheckResult,
    ExtendRequest,
    ModeRequest,
    PauseRequest,
    PersonRequest,
    ScannerResult,
    ScannerStatus,
    StopRequest,
    UnpauseRequest,
)
from workflows.scanner.state import ScannerInput

CHECK = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers")
QUESTION = 7
"""The number of what a parked one asks."""


Asked = FencingInput | RemediationInput | PreservationInput


def ended(request: Asked, outcome: Outcome, message: str, started: datetime, record: Sequence[RecordEntry] = ()) -> EpisodeResult:
    return EpisodeResult(
        outcome=outcome,
        incident=request.incident,
        cluster=request.cluster,
        node=request.node,
        message=message,
        started=started,
        ended=workflow.now(),
        missing=request.node.startswith("refused-nosuch"),
        record=tuple(record),
    )


def at_work(request: Asked, kind: Kind, started: datetime, **changes: Any) -> EpisodeStatus:
    status = EpisodeStatus(
        incident=request.incident,
        cluster=request.cluster,
        node=request.node,
        kind=kind,
        phase=Phase.RUNNING,
        step="power-management",
        doing="does as the script says",
        reason=request.reason,
        started=started,
    )
    return replace(status, **changes)


SICK_BMC = "ipmi://sick:623"
"""Of each node that is called `sick-…`."""


@workflow.defn(name="Fencing", sandboxed=False)
class FencingStandIn:
    """Runs until it is aborted (ends `aborted`), acknowledged (`recovered`), or the node's name says `refused-…`.

    A node called `sick-…` parks at once; `resume` lets it go on; a device of `sick-on` said on. One called `long-…` does so,
    too, and goes on in a new history. One called `queued-…` waits for its permit.
    """

    @workflow.init
    def __init__(self, request: FencingInput) -> None:
        self._input = request
        self._goes_on = request.node.startswith("long") and workflow.info().continued_run_id is None
        parked = request.node.startswith("sick") or self._goes_on
        queued = Phase.QUEUED if request.node.startswith("queued") else Phase.RUNNING
        self._phase = Phase.NEEDS_HUMAN if parked else queued
        self._outcome: Outcome | None = Outcome.REFUSED if request.node.startswith("refused") else None
        self._message = "no permit was to be had"
        self._record: list[RecordEntry] = []
        self._started = workflow.now()

    @workflow.run
    async def run(self, request: FencingInput) -> EpisodeResult:
        rolls = lambda: self._goes_on and self._phase is Phase.RUNNING  # noqa: E731 - asked twice
        await workflow.wait_condition(lambda: self._outcome is not None or rolls())
        await workflow.wait_condition(workflow.all_handlers_finished)
        if rolls():
            workflow.continue_as_new(request)
        assert self._outcome is not None
        return ended(request, self._outcome, self._message, self._started, self._record)

    @workflow.query
    def status(self) -> EpisodeStatus:
        return at_work(
            self._input,
            Kind.FENCING,
            self._started,
            phase=self._phase,
            step="isolation",
            permit=self._phase is Phase.RUNNING and self._outcome is None,
            queued="1 of 1 in use: node-held" if self._phase is Phase.QUEUED else "",
            problem=f"{SICK_BMC}: the BMC refuses our password" if self._phase is Phase.NEEDS_HUMAN else "",
            advice="fix the cause, then `nodewarden resume`" if self._phase is Phase.NEEDS_HUMAN else "",
            question=QUESTION,
            ways=ways(self._input.node, self._consequences(), QUESTION),
            readings=(Reading(endpoint="ipmi://10.0.0.9:623", state=PowerState.ON, at=self._started),)
            if self._input.node == "sick-on"
            else (),
        )

    def _consequences(self) -> dict[Verb, str]:
        heard = {Verb.HOLD: "keeps it from what is destructive", Verb.ABORT: "the episode ends"}
        if self._phase is not Phase.NEEDS_HUMAN:
            return heard
        off = (
            {Verb.ACK_OFF: "is refused; with `--override device-reads-on` it has its pods started"}
            if self._input.node == "sick-on"
            else {}
        )
        return {Verb.RESUME: "tries again", **heard, **off}

    @workflow.query
    def record(self) -> tuple[RecordEntry, ...]:
        return tuple(self._record)

    @workflow.update
    def abort(self, request: AbortRequest) -> str:
        self._end(Outcome.ABORTED, "abort", f"by {request.who}: {request.reason}{', power on' if request.power_on else ''}")
        return "abort noted"

    @abort.validator
    def _check_abort(self, request: AbortRequest) -> None:
        if not request.reason:
            raise ValueError("reason: expected a sentence, got nothing")

    @workflow.update
    def acknowledge_off(self, request: AcknowledgeRequest) -> str:
        override = f" ({request.override})" if request.override else ""
        self._end(Outcome.RECOVERED, "off-proven", f"by {request.who}: {request.reason}{override}")
        return "off acknowledged"

    @acknowledge_off.validator
    def _check_acknowledge(self, request: AcknowledgeRequest) -> None:
        _require_answered("ack-off", request)

    @workflow.update
    def return_path(self, request: PersonRequest) -> str:
        return f"given back for {request.who}"

    @return_path.validator
    def _check_return(self, request: PersonRequest) -> None:
        _require_answered("return-path", request)

    @workflow.update
    def hold(self, request: PersonRequest) -> str:
        return f"held by {request.who}"

    @workflow.update
    def resume(self, request: PersonRequest) -> str:
        self._phase = Phase.RUNNING
        return f"goes on for {request.who}"

    @resume.validator
    def _check_resume(self, request: PersonRequest) -> None:
        if self._phase is not Phase.NEEDS_HUMAN:
            raise ValueError("resume: this one goes on by itself")
        _require_answered("resume", request)

    def _end(self, outcome: Outcome, act: str, message: str) -> None:
        self._outcome, self._message = outcome, message
        self._record.append(RecordEntry(at=workflow.now(), step="", act=act, outcome=outcome.value, detail=message))


def _require_answered(word: str, request: PersonRequest | AcknowledgeRequest) -> None:
    if request.question != QUESTION:
        raise ValueError(f"{word}: asked now is {QUESTION}")


@workflow.defn(name="Remediation", sandboxed=False)
class RemediationStandIn:
    """At the first of its steps until it is aborted; one of `gone-…` is replaced at once, one of `refused-…` is
    refused, and one of `left-…` is let go unrepaired."""

    @workflow.init
    def __init__(self, request: RemediationInput) -> None:
        self._input = request
        self._started = workflow.now()
        ends = {"gone": Outcome.REPLACED, "refused": Outcome.REFUSED, "left": Outcome.RELEASED}
        self._outcome = ends.get(request.node.split("-")[0])

    @workflow.run
    async def run(self, request: RemediationInput) -> EpisodeResult:
        await workflow.wait_condition(lambda: self._outcome is not None)
        await workflow.wait_condition(workflow.all_handlers_finished)
        assert self._outcome is not None
        return ended(request, self._outcome, "as the script says", self._started)

    @workflow.query
    def status(self) -> EpisodeStatus:
        steps = self._input.strategies or ("delete-machine",)
        return at_work(
            self._input,
            Kind.REMEDIATION,
            self._started,
            permit=self._outcome is None,
            rung=f"1 of {len(steps)}: {steps[0]}",
            rung_until=self._started + timedelta(minutes=10),
            machine="default/w-1",
        )

    @workflow.update
    def abort(self, request: AbortRequest) -> str:
        self._outcome = Outcome.ABORTED
        return f"aborted by {request.who}"


@workflow.defn(name="Preservation", sandboxed=False)
class PreservationStandIn:
    """Kept for 72 h, or as long as was asked for, from its start until it is released.

    A node called `blind-…` can't be looked at, one called `gone-…` is not there, and the machine of `failed-…` has failed.
    """

    @workflow.init
    def __init__(self, request: PreservationInput) -> None:
        self._input = request
        self._started = workflow.now().replace(microsecond=0)
        self._until = self._started + (request.hold or timedelta(hours=72))
        self._end = "there is no such machine" if request.node.startswith("gone") else ""

    @workflow.run
    async def run(self, request: PreservationInput) -> EpisodeResult:
        await workflow.wait_condition(lambda: bool(self._end))
        await workflow.wait_condition(workflow.all_handlers_finished)
        return ended(request, Outcome.RELEASED, self._end, self._started)

    @workflow.query
    def status(self) -> EpisodeStatus:
        blind = self._input.node.startswith("blind")
        failed = self._input.node.startswith("failed")
        return at_work(
            self._input,
            Kind.PRESERVATION,
            self._started,
            phase=Phase.NEW if blind else Phase.FAILED_PRESERVED if failed else Phase.RUNNING_PRESERVED,
            step="",
            doing="can't look at the machine" if blind else "preserved on request",
            requester=self._input.requester,
            problem="nodes is forbidden" if blind else "",
            preserved_until=None if blind or self._end else self._until,
        )

    @workflow.update
    def release(self, request: PersonRequest) -> str:
        self._end = f"released by {request.who}: {request.reason}"
        return f"{self._input.node} is released"

    @workflow.update
    def extend(self, request: ExtendRequest) -> str:
        self._until = request.until or self._started + (request.hold or timedelta(0))
        return f"{self._input.node} is preserved until {written(self._until)}"

    @extend.validator
    def _check_extend(self, request: ExtendRequest) -> None:
        if request.until is not None and request.until <= workflow.now():
            raise ValueError("extend: expected a moment that is still to come")


@workflow.defn(name="HealthScanner", sandboxed=False)
class ScannerStandIn:
    """Sees two nodes, one of them ill, holds a permit for `node-held`, and runs until it is stopped."""

    @workflow.init
    def __init__(self, request: ScannerInput) -> None:
        self._input = request
        self._stop: StopRequest | None = None
        self._started = workflow.now()
        self._pauses = request.pauses

    @workflow.run
    async def run(self, request: ScannerInput) -> ScannerResult:
        await workflow.wait_condition(lambda: self._stop is not None)
        await workflow.wait_condition(workflow.all_handlers_finished)
        assert self._stop is not None
        return ScannerResult(cluster=request.cluster, stopped_by=self._stop.who, reason=self._stop.reason, scans=1, opened=0)

    @workflow.query
    def status(self) -> ScannerStatus:
        lease = ClusterLease(held=True, holder=self._input.holder)
        return ScannerStatus(
            cluster=self._input.cluster,
            holder=self._input.holder,
            started=self._started,
            cap=self._input.cap,
            scans=1,
            opened=0,
            report=ScanReport(
                digest="d",
                at=self._started,
                resource_version="7",
                inventory=2,
                view=ViewState(synced=True),
                lease=lease,
                rows=(
                    TargetRow(node="node-1", zone="zone-a", ready="Unknown", health=Health.UNHEALTHY, reason="ReadyUnknown"),
                    TargetRow(node="node-2", zone="zone-b", ready="True", health=Health.HEALTHY),
                ),
                checks=(CheckReport(ref=CHECK, total=2, healthy=1, unhealthy=1, message="only 1 of 2 nodes is healthy"),),
            ),
            permits=(
                Permit(
                    node="node-held",
                    workflow_id=f"episode/{self._input.cluster}/node-held",
                    incident="i",
                    kind=Kind.FENCING,
                    state=PermitState.OPEN,
                    granted_at=self._started,
                ),
            ),
            stopping=self._stop is not None,
            pauses=in_force(self._pauses, workflow.now()),
        )

    @workflow.query
    def spells(self) -> ScannerSpells:
        lasting = Spell(
            node="node-lasting",
            check=CHECK.key,
            cause="ReadyUnknown",
            since=self._started,
            due=self._started,
            mode=Mode.OBSERVE,
        )
        return ScannerSpells(spells=(lasting,))

    @workflow.update
    def pause(self, request: PauseRequest) -> str:
        pause = Pause(who=request.who, owner=request.who, reason=request.reason, since=workflow.now(), until=request.until)
        self._keep(paused(self._pauses, pause))
        return f"{self._input.cluster} is {described((pause,))}"

    @workflow.update
    def set_mode(self, request: ModeRequest) -> str:
        scope = scope_of(request.nodes, request.selector)
        change = ModeChange(at=workflow.now(), by=request.who, mode=request.mode, scope=scope, reason=request.reason)
        workflow.upsert_memo({MODE_CHANGES_MEMO: (*self._input.mode_changes, change)})
        return f"{self._input.cluster}: {request.mode}"

    @workflow.update
    def unpause(self, request: UnpauseRequest) -> str:
        now = workflow.now()
        try:
            ended = to_be_ended(in_force(self._pauses, now), owner=request.who, of=request.of)
        except ValueError as error:
            raise ApplicationError(str(error)) from error
        self._keep(unpaused(self._pauses, ended, who=request.who, reason=request.reason, now=now))
        return f"{self._input.cluster} goes on, says {request.who}"

    def _keep(self, pauses: Pauses) -> None:
        self._pauses = pauses
        workflow.upsert_memo({PAUSES_MEMO: pauses})

    @workflow.update
    def stop(self, request: StopRequest) -> str:
        self._stop = request
        return f"the scanner of {self._input.cluster} stops"


@workflow.defn(name="DeviceCheck", sandboxed=False)
class DeviceCheckStandIn:
    """Says that `node-1` answers and `node-2` has not for two hours. `unreadable` and `forbidden` say how reading fails,
    `endless` never answers.

    What it hands on to the next run is how many there were; the latency of `node-1` grows with them.
    """

    @workflow.init
    def __init__(self, request: DeviceCheckInput) -> None:
        self._input = request
        self._every = request.every
        self._asking = 0
        self._asked = False
        self._report: DeviceReport | None = None

    @workflow.run
    async def run(self, request: DeviceCheckInput) -> DeviceCheckResult:
        await workflow.wait_condition(lambda: self._every is None and self._asking == 0 and self._asked)
        await workflow.wait_condition(workflow.all_handlers_finished)
        runs = request.memory.answered.get("runs", {}).get("", 0) + 1
        return DeviceCheckResult(cluster=request.cluster, memory=DeviceMemory(answered={"runs": {"": runs}}))

    @workflow.update
    async def check(self, request: CheckRequest) -> DeviceReport:
        self._asking += 1
        self._asked = True
        now = workflow.now()
        runs = self._input.memory.answered.get("runs", {}).get("", 0)
        self._asking -= 1
        if request.node.startswith("endless"):
            await workflow.wait_condition(lambda: False)
        if request.node.startswith("unreadable"):
            raise ApplicationError("the cluster can't be read: no answer", type="Unreachable", non_retryable=True)
        if request.node.startswith("forbidden"):
            raise ApplicationError("the cluster can't be read: nodes is forbidden", type="Forbidden", non_retryable=True)
        well = DeviceRow(
            node="node-1",
            endpoint="ipmi://10.0.0.1:623",
            answer=Reachability.ANSWERS,
            state=PowerState.ON,
            latency_ms=120 + runs,
            last_success=now,
        )
        silent = DeviceRow(
            node="node-2",
            endpoint="ipmi://10.0.0.2:623",
            answer=Reachability.SILENT,
            last_success=now - timedelta(hours=2, minutes=5),
            problem="ipmi://10.0.0.2:623: no answer from the BMC",
        )
        rows = tuple(row for row in (silent, well) if request.node in {"", row.node})
        if request.node == "sick-on":
            rows = (replace(silent, node="sick-on", endpoint="ipmi://10.0.0.9:623"),)
        self._report = report_of(self._input.cluster, rows, began=now, ended=now, nodes=len(rows), most=2)
        return self._report

    @workflow.signal
    def repeat(self, every: timedelta) -> None:
        self._every = every

    @workflow.signal
    def stop(self) -> None:
        self._every, self._asked = None, True

    @workflow.query
    def every(self) -> timedelta | None:
        return self._every

    @workflow.query
    def report(self) -> DeviceReport | None:
        return self._report
