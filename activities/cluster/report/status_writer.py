"""Writes back to the health checks what was concluded: their status, Events for what flipped, and what single targets get.

Compared first and written only where something differs, with the resourceVersion that was compared; what a status says is
composed in `objects/check_statuses.py`. An object that has vanished meanwhile is no failure, and one that cannot be written
holds up no other. The scan's long poll calls `begin_due_work`; the work is done beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.api.paths import NODES, Resource
from activities.cluster.api.refusals import ObjectNotFound, edit
from activities.cluster.objects.check_statuses import (
    HALTED,
    INVALID,
    RESTRICTED,
    UPDATED,
    V1BETA1,
    ConditionText,
    Situation,
    StatusChange,
    another_controller,
    machine_conditions,
    status_change,
    status_of,
)
from activities.cluster.objects.fencing_requests import answer
from activities.cluster.objects.live_machines import resource_of
from activities.cluster.report.background_writer import BackgroundWriter
from activities.cluster.watch.kinds import Destination, Reader, read_by
from activities.cluster.watch.view import ClusterView
from activities.contracts.scan import OpenEpisode
from policy.checks.circuit_breakers import OpenReason
from policy.checks.health_check import HealthCheck
from policy.checks.rules.machine_health_checks import HAS_REMEDIATE_ANNOTATION, NODE_DELETED
from policy.checks.verdict import Health, JudgedTarget, Standing, Verdict
from policy.episode.events import EventReason
from policy.episode.fencing_requests import RequestAnswer
from policy.objects.machines import MachineView
from policy.objects.nodes import EXCLUDE_LABEL
from policy.scan.admission import Refused
from policy.scan.candidates import answer_without_trying, why_not_asked_for
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.scan.scan_report import CheckReport, ScanReport
from policy.values.object_refs import Dialect, ObjectRef

log = logging.getLogger(__name__)


CONDITIONS_SECONDS = 4.0
"""How long conditions are written at a time; what is left is published again."""

PAUSE_SECONDS = 1.0
"""Between two publications: in a storm what people read changes with every node."""

TRY_AGAIN_SECONDS = 5.0
"""Until what could not be written is written again."""

DROPPED_FOR = timedelta(minutes=10)
"""How long a field counts as unknown to the server that has dropped it: what made one answer incomplete may be over, and a new
schema comes unannounced, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedFields:
    """Fields of a status that the server did not keep. of: uid, generation and version of the check at that time."""

    names: frozenset[str]
    of: tuple[str, int, str]
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """How many objects were written, and what could not be (by key; a vanished object is no failure). unseen: why nothing
    was written of single targets, "" where it was."""

    written: int = 0
    failed: tuple[str, ...] = ()
    unseen: str = ""


class StatusWriter(BackgroundWriter):
    """The status of one cluster's health checks."""

    def __init__(self, view: ClusterView, *, clock: Callable[[], datetime]) -> None:
        super().__init__("the checks' status", on_change=view.look_again)
        self._view = view
        self._clock = clock
        self._recorders: dict[int, EventRecorder] = {}
        self._dropped: dict[str, DroppedFields] = {}
        self._machine_conditions = MachineConditions(view.watches.machines, clock=clock, record=self._record)
        self._published: object = None
        self._not_before = float("-inf")

    def begin_due_work(
        self, seen: ScanReport, in_flight: Sequence[OpenEpisode], refusals: Sequence[Refused], halted: str = ""
    ) -> float:
        """Have it written where it is another thing than was written last. halted: see ScanRequest. In how many seconds to call
        again."""
        if self.busy or not (seen.checks or refusals) or self._published == (seen.checks, in_flight, refusals, halted):
            return float("inf")
        if (left := self._not_before - asyncio.get_running_loop().time()) > 0:
            return left
        self.begin(self._work(seen, in_flight, refusals, halted))
        return float("inf")

    def forget(self) -> None:
        """Others may have written since: what stands there is compared anew."""
        self._published = None

    def failed(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + TRY_AGAIN_SECONDS

    async def _work(self, seen: ScanReport, in_flight: Sequence[OpenEpisode], refusals: Sequence[Refused], halted: str) -> None:
        self._published = under_way = object()
        published = await self.publish(seen, in_flight, refusals, halted)
        if published.failed:
            self.failed()
        else:
            if self._published is under_way and not published.unseen:
                self._published = (seen.checks, in_flight, refusals, halted)
            self._not_before = asyncio.get_running_loop().time() + PAUSE_SECONDS

    async def publish(
        self, seen: ScanReport, in_flight: Sequence[OpenEpisode] = (), refusals: Sequence[Refused] = (), halted: str = ""
    ) -> Published:
        """Write what differs; failures are in the answer."""
        written, failed, unseen = 0, [], ""
        for report in seen.checks:
            if report.reason == OpenReason.ELSEWHERE:
                continue  # its status is written from where its Nodes are seen
            if report.dialect is Dialect.NODE_FENCING:
                failed += await self._report_configuration(report)  # a ConfigMap has no status
                continue
            try:
                change = await self._write(_as_halted(report, halted), in_flight, seen)
            except ApplicationError as error:
                log.warning("the status of %s was not written: %s", report.ref.key, error.message)
                failed.append(report.ref.key)
                continue
            if change is not None:
                written += 1
                failed += [refused for each in change.happenings if (refused := await self._record(each))]
        # S18: what we do not see is not gone. Its targets follow as soon as we see, and meanwhile the rest goes on.
        if seen.checks and not (unseen := self._view.doubt()):
            failed += await self._report_targets(seen.checks)
        failed += await self._answer_requests({each.node for each in in_flight})
        uids = {candidate.node: candidate.uid for candidate in seen.candidates}
        for refusal in refusals:
            key = refusal.check.key
            found = self._view.check_objects.get(key) or self._view.watches.requests.objects.get(key)
            if found is None:
                continue
            happening = Happening(
                about=refusal.check,
                uid=str(found["metadata"].get("uid", "")),
                reason="RemediationSkipped",
                message=f"nothing is begun for {_called(refusal.node)}: {refusal.message or refusal.reason}",
                warning=True,
            )
            if refused := await self._record(happening, once=True):
                failed.append(refused)
            if uid := uids.get(refusal.node):
                message = f"not fenced for {refusal.check.key}: {refusal.message or refusal.reason}"
                about = NODES.ref(refusal.node)
                skipped = Happening(about=about, uid=uid, reason=EventReason.FENCING_SKIPPED, message=message)
                failed += [refused] if (refused := await self._record(skipped, once=True)) else []
        return Published(written=written, failed=tuple(failed), unseen=unseen)

    async def _report_configuration(self, report: CheckReport) -> list[str]:
        """Why the fence configuration can't be used, for as long as it can't; what could not be written."""
        if not report.error or report.ref.key not in self._view.check_objects:
            return []
        message = f"not in use, and no new fencing begins: {report.error}"
        about = Happening(about=report.ref, uid=report.uid, reason=INVALID, message=message, warning=True)
        refused = await self._record(about, once=True)
        return [refused] if refused else []

    async def _report_targets(self, checks: Sequence[CheckReport]) -> list[str]:
        """Conditions of single targets and Events about them; what failed or has to wait for the next time."""
        # Where the worker that looked knows of another controller, or of a pause, this one need not have heard of it yet.
        keys = [report.ref.key for report in checks if not another_controller(report) and report.reason not in SILENT]
        known, failed = self._view.ledger.known(self._view.now()), list[str]()
        happenings = [happening for key in keys for happening in target_happenings(known, key)]
        failed += [refused for each in happenings if (refused := await self._record(each, once=True))]
        return [*failed, *await self._machine_conditions.write(known, keys, seconds=CONDITIONS_SECONDS)]

    async def _answer_requests(self, busy: Collection[str]) -> list[str]:
        """The final answer to those who ask for what can't be: they may try something else at once. busy: nodes with an
        open episode."""
        if self._view.doubt():
            return []  # S18: what we do not see is not gone; there will be another report
        known, failed = self._view.ledger.known(self._view.now()), []
        for asking in known.requests.values():
            stage = answer_without_trying(known, asking)
            if stage is None or asking.node in busy:
                continue
            request_answer = RequestAnswer(
                about=asking.ref, uid=asking.uid, stage=stage, message=why_not_asked_for(known, asking)
            )
            try:
                await answer(self._view.watches.connection_of(asking.ref), request_answer, clock=self._clock)
            except ApplicationError as error:
                log.warning("the status of %s was not written: %s", asking.ref.key, error.message)
                failed.append(asking.ref.key)
        return failed

    async def _write(self, report: CheckReport, in_flight: Sequence[OpenEpisode], seen: ScanReport) -> StatusChange | None:
        resource = _resource_of(report.ref)
        if resource is None:
            return None
        path = resource.path(report.ref.name, namespace=report.ref.namespace)
        connection = self._view.watches.connection_of(report.ref)
        copies = [copy] if (copy := self._view.check_objects.get(report.ref.key)) is not None else []

        async def once() -> StatusChange | None:
            found = copies.pop() if copies else await connection.get(path)  # the live one, where the copy was the older one
            if report.uid and found["metadata"].get("uid") != report.uid:
                return None  # another object of that name: what was concluded is not about it
            change = self._change(report, found, in_flight, seen)
            if change is None:
                return None
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            answer = await connection.patch_merge(f"{path}/status", {"metadata": version, **change.patch})
            self._remember_what_was_dropped(report, change, answer)
            return change

        try:
            return await edit(report.ref.key, once)
        except ObjectNotFound:
            return None

    def _change(
        self, report: CheckReport, found: JsonObject, in_flight: Sequence[OpenEpisode], seen: ScanReport
    ) -> StatusChange | None:
        current = status_of(found)
        nodes = {each.node for each in in_flight}
        # A node without an object stays with the checks that named it.
        ours = nodes & (current.get("inFlightRemediations") or {}).keys()
        if not report.error:
            ours = self._view.ledger.covered(report.ref.key, nodes) | {node for node in ours if node not in self._view.ledger}
        situation = Situation(
            report=report,
            current=current,
            unhealthy=_unhealthy(report.ref, seen),
            in_flight=[each for each in in_flight if each.node in ours],
            targets=self._view.ledger.targets_of(report.ref.key),
            objects=self._view.ledger.made_by(report.ref.key),
            paused=report.reason == OpenReason.PAUSED,
        )
        change = status_change(situation, self._clock())
        dropped = self._known_as_dropped(report)
        if change is None or not dropped:
            return change
        patch = {name: value for name, value in change.patch["status"].items() if name not in dropped}
        return replace(change, patch={"status": patch}) if patch.keys() - {UPDATED} else None

    def _known_as_dropped(self, report: CheckReport) -> frozenset[str]:
        before = self._dropped.get(report.ref.key)
        if before is not None and (before.of != _as_written(report) or before.until <= self._clock()):
            del self._dropped[report.ref.key]
            before = None
        return before.names if before is not None else frozenset()

    def _remember_what_was_dropped(self, report: CheckReport, change: StatusChange, answer: JsonObject) -> None:
        """An older schema drops what it does not know, silently; written again and again it would never be there."""
        stands = status_of(answer)
        dropped = {name for name, value in change.patch["status"].items() if value and name not in stands}
        if dropped:
            names = self._known_as_dropped(report) | dropped
            self._dropped[report.ref.key] = DroppedFields(names=names, of=_as_written(report), until=self._clock() + DROPPED_FOR)

    async def _record(self, happening: Happening, *, once: bool = False) -> str:
        """Write the Event; what failed, or ""."""
        connection = self._view.watches.connection_of(happening.about)
        recorder = self._recorders.setdefault(id(connection), EventRecorder(connection, clock=self._clock))
        try:
            await (recorder.publish_unless_recent(happening) if once else recorder.publish(happening))
        except ApplicationError as error:
            log.warning("the Event %s on %s was not written: %s", happening.reason, happening.about.key, error.message)
            return f"Event {happening.reason} on {happening.about.key}"
        return ""


def _as_halted(report: CheckReport, halted: str) -> CheckReport:
    """A check as people read it while nothing is begun (S44). A mistake in it, or a pause of its own, goes first."""
    if not halted or report.error or report.paused:
        return report
    return replace(report, allowed=False, paused=halted, reason=HALTED, message=halted)


def _as_written(report: CheckReport) -> tuple[str, int, str]:
    return report.uid, report.generation, report.ref.api_version


def _called(victim: str) -> str:
    """A victim as Events call it; a Machine without a node is named as one already."""
    return victim.capitalize() if victim.startswith("machine/") else f"Node/{victim}"


def _unhealthy(ref: ObjectRef, seen: ScanReport) -> list[str]:
    """Names, as far as a report knows them: the sickest. All of them would be the fleet."""
    candidates = {candidate.node for candidate in seen.candidates if candidate.check == ref}
    rows = {row.node for row in seen.rows if row.check == ref.key and row.health is Health.UNHEALTHY}
    return sorted(candidates | rows)


def _resource_of(ref: ObjectRef) -> Resource | None:
    """Where the check's object lives, in the version in which it was read."""
    group = ref.api_version.rpartition("/")[0]
    for resource in (kind.resource for kind in read_by(Reader.WATCH) if kind.destination is Destination.CHECKS):
        if (resource.api_version.rpartition("/")[0], resource.kind) == (group, ref.kind):
            return replace(resource, api_version=ref.api_version)
    return None


# What is written of single targets: Events in the dialect's names, and Cluster API's condition HealthCheckSucceeded on its
# Machines.
#
# Bounded: Events of so many targets at a time, conditions only where what stands there differs and for so long at a time. That
# condition is an opinion; what asks a Machine's owner to act is another one, OwnerRemediated, which only a remediation sets.

SUCCEEDED = "HealthCheckSucceeded"

MOST_EVENTS = 50
MOST_REFUSED = 50
AT_ONCE = 8

Record = Callable[[Happening], Awaitable[str]]
"""Writes the Event; what failed, or ""."""

OLD_REASONS = {NODE_DELETED: "NodeNotFound", HAS_REMEDIATE_ANNOTATION: "HasRemediateMachineAnnotation"}
"""The older generation of conditions calls these otherwise."""

SILENT = frozenset({OpenReason.ELSEWHERE, OpenReason.OBSERVE_ONLY, OpenReason.PAUSED, OpenReason.STALE_MACHINES})
"""Reasons of open circuit breakers under which nothing is written on targets: they are not ours, not to be touched, or not
known."""


def target_happenings(snapshot: LedgerSnapshot, key: str) -> Iterator[Happening]:
    """Events about the check's targets; each holds for as long as it is true, so it is told once in a while."""
    check = snapshot.checks.get(key)
    if check is None or snapshot.breakers[key].reason in SILENT:
        return
    if check.of_machines and snapshot.breakers[key].reason is OpenReason.TOO_MANY_UNHEALTHY and snapshot.counts[key].unhealthy:
        limit = check.unhealthy_range or check.max_unhealthy
        message = f"Remediation restricted: the number of not started or unhealthy machines is beyond {limit}"
        yield Happening(about=check.ref, uid=check.uid, reason=RESTRICTED, message=message, warning=True)
    published = 0
    for target in snapshot.sick.values():
        verdict = target.verdicts.get(key)
        if verdict is None or published >= MOST_EVENTS:
            continue
        for happening in _of_target(check, target, verdict):
            published += 1
            yield happening


def _of_target(check: HealthCheck, target: JudgedTarget, verdict: Verdict) -> Iterator[Happening]:
    if not check.of_machines:
        if verdict.standing is Standing.UNHEALTHY:
            yield Happening(
                about=check.ref, uid=check.uid, reason="DetectedUnhealthy", message=f"Node {target.name}: {verdict.message}"
            )
            if target.node is not None and target.node.labels.get(EXCLUDE_LABEL) == "":
                message = f"Node {target.name}: the label {EXCLUDE_LABEL} has no value and is ignored; expected true"
                yield Happening(about=check.ref, uid=check.uid, reason="InvalidNodeLabel", message=message, warning=True)
        return
    machine = target.machine
    assert machine is not None
    if check.dialect is not Dialect.OPENSHIFT or machine.deleting:
        return
    about = check.machine_ref(machine.namespace, machine.name)
    if verdict.health is Health.SOON:
        message = f"Machine {machine.namespace}/{machine.name} is on its way to unhealthy: {verdict.message}"
        yield Happening(about=about, uid=machine.uid, reason="DetectedUnhealthy", message=message)
    elif verdict.standing is Standing.UNHEALTHY and not machine.controller and check.template is None:
        message = f"Machine {machine.namespace}/{machine.name} has no controller owner: it is left alone"
        yield Happening(about=about, uid=machine.uid, reason="SkippedNoController", message=message)


# Cluster API's condition ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOpinion:
    """The condition that a Machine is to have, and by which check. Drawn from the ledger at once, to be kept while others are
    written."""

    check: HealthCheck
    machine: MachineView
    condition: ConditionText


class MachineConditions:
    """Writes HealthCheckSucceeded where it is another than stands there.

    As many as the time allows, so that a whole fleet is done within a few publishes. One that was refused goes last the next
    time, so that it holds up no other; and a server that refuses `MOST_REFUSED` is asked for no more this time.
    """

    def __init__(self, connection: ClusterConnection, *, clock: Callable[[], datetime], record: Record) -> None:
        self._connection = connection
        self._clock = clock
        self._record = record
        self._put_off: set[str] = set()

    async def write(self, snapshot: LedgerSnapshot, keys: Collection[str], *, seconds: float) -> list[str]:
        """As the checks of those keys have it. What failed, or has to wait for the next time."""
        opinions = sorted(differing(snapshot, keys), key=lambda each: each.machine.key in self._put_off)
        queue, left, failed, refused = iter(opinions), len(opinions), list[str](), set[str]()
        end = asyncio.get_running_loop().time() + seconds

        async def some() -> None:
            nonlocal left
            while asyncio.get_running_loop().time() < end and len(refused) < MOST_REFUSED:
                opinion = next(queue, None)
                if opinion is None:
                    return
                try:
                    change = await _write(self._connection, opinion, self._clock())
                except ApplicationError as error:
                    log.warning("the condition of Machine %s was not written: %s", opinion.machine.key, error.message)
                    refused.add(opinion.machine.key)
                    continue
                left -= 1
                if change is not None and (problem := await self._record(change)):
                    failed.append(problem)

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        self._put_off = refused
        return [*failed, f"conditions of {left} Machines"] if left else failed


def differing(snapshot: LedgerSnapshot, keys: Collection[str]) -> list[MachineOpinion]:
    """For each Machine the opinion that counts, of several checks the worst, where another one stands there. Where no check
    has one, there is none."""
    checks = [
        check
        for key, check in snapshot.checks.items()
        if key in keys and check.dialect is Dialect.CLUSTER_API and snapshot.breakers[key].reason not in SILENT
    ]
    found: list[MachineOpinion] = []
    for target in snapshot.machines.values() if checks else ():
        verdicts = [(check, target.verdicts[check.ref.key]) for check in checks if check.ref.key in target.verdicts]
        opinions = [(check, verdict, condition) for check, verdict in verdicts if (condition := _condition(verdict)) is not None]
        if not opinions or target.machine is None:
            continue
        check, _, condition = min(opinions, key=lambda each: (each[1].health is not Health.UNHEALTHY, each[0].ref.key))
        if _differs(target.machine, condition):
            found.append(MachineOpinion(check=check, machine=target.machine, condition=condition))
    return found


def _condition(verdict: Verdict) -> ConditionText | None:
    if verdict.health is Health.UNHEALTHY:
        return ConditionText(status="False", reason=verdict.reason, message=verdict.message)
    if verdict.standing in {Standing.HEALTHY, Standing.RECOVERING}:
        return ConditionText(status="True", reason=SUCCEEDED, message="")
    return None


def _differs(machine: MachineView, condition: ConditionText) -> bool:
    stands = machine.condition(SUCCEEDED)
    if stands is None or stands.status != condition.status:
        return True
    # Where a server drops the newer generation, as before Cluster API 1.9, the older one's word is all that ever stands there.
    return condition.status == "False" and stands.reason not in {condition.reason, OLD_REASONS.get(condition.reason)}


async def _write(connection: ClusterConnection, opinion: MachineOpinion, now: datetime) -> Happening | None:
    """Read, compose, write as one. A Machine that has vanished, or has another one of its name by now, is no failure; one that
    others keep writing waits for its turn."""
    check, machine, condition = opinion.check, opinion.machine, opinion.condition
    ref = check.machine_ref(machine.namespace, machine.name)
    path = resource_of(ref).path(machine.name, namespace=machine.namespace)

    async def once() -> Happening | None:
        found = await connection.get(path)
        if found["metadata"]["uid"] != machine.uid:
            return None  # S9: what was concluded is about its predecessor
        old = replace(condition, reason=OLD_REASONS.get(condition.reason, condition.reason), message=_flat(condition.message))
        wanted = {SUCCEEDED: (condition, old)}
        status = machine_conditions(status_of(found), wanted, now, older=ref.api_version.endswith(f"/{V1BETA1}"))
        metadata = {"uid": machine.uid, "resourceVersion": found["metadata"]["resourceVersion"]}
        await connection.patch_merge(f"{path}/status", {"metadata": metadata, "status": status})
        if condition.status == "True":
            return None
        message = f"Machine {machine.namespace}/{machine.name} has been marked as unhealthy by {check.ref.key}"
        return Happening(about=ref, uid=machine.uid, reason="MachineMarkedUnhealthy", message=message)

    try:
        return await edit(ref.key, once)
    except ObjectNotFound:
        return None


def _flat(message: str) -> str:
    """The older generation has the faults in one line, without the heading."""
    return "; ".join(line.strip().removeprefix("* ") for line in message.splitlines()[1:]) or message
