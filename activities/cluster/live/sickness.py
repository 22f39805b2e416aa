"""Whether a health check calls a machine unhealthy now, for a hold that was told so: who tells it may be anybody (S42).

As the scanner's ledger says it (`Ledger.sickness_of`), of what is read live, and of one that is kept as its book does.
"""

from __future__ import annotations

from datetime import datetime

from activities.cluster.live.plans import readable_checks
from activities.cluster.objects.machine_reading import Subject, cluster_of, is_of_cluster, machines_of
from activities.cluster.objects.reading import Readers
from policy.checks.healthcheck import HealthCheck
from policy.checks.rules import rules_of
from policy.checks.verdicts import Health
from policy.episode.fencing import CLOCK_TOLERANCE
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.preservation.automatic import is_automatic
from policy.preservation.book import NOT_WELL
from policy.preservation.held import Held
from policy.values.object_refs import Dialect


async def called_unhealthy(connections: Readers, held: Held, machine: MachineView | None, now: datetime) -> str:
    """In words, "" where nobody does. The scanner's clock may be ahead of `now`. What can't be read calls nobody anything."""
    async for check in readable_checks(connections, []):
        rules = rules_of(check)
        for target in (await _subject(connections, check, held.node, machine)).targets(held.node):
            if rules.covers(target) and (found := rules.judge(target, now + CLOCK_TOLERANCE)).health is Health.UNHEALTHY:
                return f"{check.ref.key} calls it unhealthy: {found.reason}"
    kept = held.node is not None and held.expiry is not None and is_automatic(held)
    return NOT_WELL if kept and not held.well else ""


async def _subject(connections: Readers, check: HealthCheck, node: NodeView | None, machine: MachineView | None) -> Subject:
    if not check.of_machines:
        return Subject()
    if machine is not None:
        of_its = machine.api is check.machine_api and machine.namespace == check.ref.namespace and is_of_cluster(machine, check)
        machines = [machine] if of_its else []
    else:
        machines = await machines_of(connections, check, node.name) if node is not None else []
    cluster = await cluster_of(connections, check) if machines and check.dialect is Dialect.CLUSTER_API else None
    return Subject(of_machines=True, machines=tuple(machines), cluster=cluster)
