"""What is written of single targets: Events in the dialect's names, and Cluster API's condition HealthCheckSucceeded on its
Machines.

Beside the status of the checks (`status_writer.py`), and bounded: Events of so many targets at a time, conditions only where what
stands there differs and for so long at a time. That condition is an opinion; what asks a Machine's owner to act is another one,
OwnerRemediated, which only a remediation sets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.events import Happening
from activities.cluster.api.refusals import ObjectNotFound, edit
from activities.cluster.objects.check_statuses import RESTRICTED, V1BETA1, ConditionText, machine_conditions, status_of
from activities.cluster.objects.live_machines import resource_of
from policy.checks.circuit_breakers import OpenReason
from policy.checks.health_check import HealthCheck
from policy.checks.rules.cluster_api import HAS_REMEDIATE_ANNOTATION, NODE_DELETED
from policy.checks.targets import JudgedTarget
from policy.checks.verdicts import Health, Standing, Verdict
from policy.objects.machines import MachineView
from policy.objects.nodes import EXCLUDE_LABEL
from policy.scan.ledger_snapshot import LedgerSnapshot
from policy.values.object_refs import Dialect

log = logging.getLogger(__name__)

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


def target_happenings(known: LedgerSnapshot, key: str) -> Iterator[Happening]:
    """Events about the check's targets; each holds for as long as it is true, so it is told once in a while."""
    check = known.checks.get(key)
    if check is None or known.breakers[key].reason in SILENT:
        return
    if check.of_machines and known.breakers[key].reason is OpenReason.TOO_MANY_UNHEALTHY and known.counts[key].unhealthy:
        limit = check.unhealthy_range or check.max_unhealthy
        message = f"Remediation restricted: the number of not started or unhealthy machines is beyond {limit}"
        yield Happening(about=check.ref, uid=check.uid, reason=RESTRICTED, message=message, warning=True)
    told = 0
    for target in known.sick.values():
        verdict = target.verdicts.get(key)
        if verdict is None or told >= MOST_EVENTS:
            continue
        for happening in _of_target(check, target, verdict):
            told += 1
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
    said: ConditionText


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

    async def write(self, known: LedgerSnapshot, keys: Collection[str], *, seconds: float) -> list[str]:
        """As the checks of those keys have it. What failed, or has to wait for the next time."""
        opinions = sorted(differing(known, keys), key=lambda each: each.machine.key in self._put_off)
        queue, left, failed, refused = iter(opinions), len(opinions), list[str](), set[str]()
        end = asyncio.get_running_loop().time() + seconds

        async def some() -> None:
            nonlocal left
            while asyncio.get_running_loop().time() < end and len(refused) < MOST_REFUSED:
                opinion = next(queue, None)
                if opinion is None:
                    return
                try:
                    told = await _write(self._connection, opinion, self._clock())
                except ApplicationError as error:
                    log.warning("the condition of Machine %s was not written: %s", opinion.machine.key, error.message)
                    refused.add(opinion.machine.key)
                    continue
                left -= 1
                if told is not None and (problem := await self._record(told)):
                    failed.append(problem)

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
        self._put_off = refused
        return [*failed, f"conditions of {left} Machines"] if left else failed


def differing(known: LedgerSnapshot, keys: Collection[str]) -> list[MachineOpinion]:
    """For each Machine the opinion that counts, of several checks the worst, where another one stands there. Where no check
    has one, there is none."""
    checks = [
        check
        for key, check in known.checks.items()
        if key in keys and check.dialect is Dialect.CLUSTER_API and known.breakers[key].reason not in SILENT
    ]
    found: list[MachineOpinion] = []
    for target in known.machines.values() if checks else ():
        verdicts = [(check, target.verdicts[check.ref.key]) for check in checks if check.ref.key in target.verdicts]
        opinions = [(check, verdict, said) for check, verdict in verdicts if (said := _condition(verdict)) is not None]
        if not opinions or target.machine is None:
            continue
        check, _, said = min(opinions, key=lambda each: (each[1].health is not Health.UNHEALTHY, each[0].ref.key))
        if _differs(target.machine, said):
            found.append(MachineOpinion(check=check, machine=target.machine, said=said))
    return found


def _condition(verdict: Verdict) -> ConditionText | None:
    if verdict.health is Health.UNHEALTHY:
        return ConditionText(status="False", reason=verdict.reason, message=verdict.message)
    if verdict.standing in {Standing.HEALTHY, Standing.RECOVERING}:
        return ConditionText(status="True", reason=SUCCEEDED, message="")
    return None


def _differs(machine: MachineView, said: ConditionText) -> bool:
    stands = machine.condition(SUCCEEDED)
    if stands is None or stands.status != said.status:
        return True
    # Where a server drops the newer generation, as before Cluster API 1.9, the older one's word is all that ever stands there.
    return said.status == "False" and stands.reason not in {said.reason, OLD_REASONS.get(said.reason)}


async def _write(connection: ClusterConnection, opinion: MachineOpinion, now: datetime) -> Happening | None:
    """Read, compose, write as one. A Machine that has vanished, or has another one of its name by now, is no failure; one that
    others keep writing waits for its turn."""
    check, machine, said = opinion.check, opinion.machine, opinion.said
    ref = check.machine_ref(machine.namespace, machine.name)
    path = resource_of(ref).path(machine.name, namespace=machine.namespace)

    async def once() -> Happening | None:
        found = await connection.get(path)
        if found["metadata"]["uid"] != machine.uid:
            return None  # S9: what was concluded is about its predecessor
        old = replace(said, reason=OLD_REASONS.get(said.reason, said.reason), message=_flat(said.message))
        wanted = {SUCCEEDED: (said, old)}
        status = machine_conditions(status_of(found), wanted, now, older=ref.api_version.endswith(f"/{V1BETA1}"))
        metadata = {"uid": machine.uid, "resourceVersion": found["metadata"]["resourceVersion"]}
        await connection.patch_merge(f"{path}/status", {"metadata": metadata, "status": status})
        if said.status == "True":
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
