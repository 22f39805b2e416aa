"""Remediation objects, and wishes to owners, that nobody needs any more and no open episode will take back: their node is well,
or gone for good.

An episode takes its own back when it ends. One that was terminated, or the operator whose place we have taken, leaves them
behind, and a node that has one is not counted as well for as long as it stands. What is found here gets an episode that only
follows the object as it would have been followed, `healthyDelay` included, and deletes it. No brake holds that up (S17, S35).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from policy.checks.healthcheck import HealthCheck
from policy.checks.targets import JudgedTarget
from policy.checks.verdicts import Health
from policy.fence.templates import is_own_template
from policy.objects.remediations import RemediationObject, kind_of
from policy.remediation.escalation import EscalationStep
from policy.remediation.ladder import step_of
from policy.remediation.remedies import OWNER_REMEDIATED, orphaned
from policy.remediation.strategies import REPLACING_OWNERS, Strategy
from policy.scan.known import Known
from policy.scan.report import MAXIMUM_LEFT_OVER, LeftOver
from policy.values.object_refs import Dialect

SICK_AGAIN = timedelta(minutes=1)
"""So long at most a Machine that has fallen sick meanwhile is left to an owner that nobody has licensed."""


def left_over(known: Known, watching: frozenset[str]) -> tuple[LeftOver, ...]:
    """As many as a report has room for, by name. watching: nodes whose episodes are open, or that are held off."""
    found: dict[str, LeftOver] = {}
    for key, check in sorted(known.checks.items()):
        if known.controllers.get(check.dialect) or known.is_at_rest(key):
            continue
        for one in (*_objects(known, key, check), *_wishes(known, key, check)):
            if one.node not in watching:
                found.setdefault(one.node, one)
    return tuple(found[node] for node in sorted(found)[:MAXIMUM_LEFT_OVER])


def _objects(known: Known, key: str, check: HealthCheck) -> Iterator[LeftOver]:
    if not known.remediations or all(is_own_template(rung.template) for rung in check.rungs):
        return
    for remediation in known.remediations.values():
        if remediation.deleting or not check.makes(remediation):
            continue
        one = _of_machine(known, key, check, remediation) if check.of_machines else _of_node(known, key, check, remediation)
        if one is not None:
            yield one


def _wishes(known: Known, key: str, check: HealthCheck) -> Iterator[LeftOver]:
    """Machines that are well, and that their owner is still asked to remediate. It would do so the moment that a check calls one
    of them unhealthy again: without a permit, whatever brake is closed, and though somebody preserves it (S14, S15, S17, S27)."""
    if check.dialect is not Dialect.CLUSTER_API:
        return
    for target in known.machines.values():
        machine, verdict = target.machine, target.verdicts.get(key)
        if machine is None or machine.deleting or verdict is None or verdict.health is not Health.HEALTHY:
            continue
        asked = machine.condition(OWNER_REMEDIATED)
        if asked is None or asked.status != "False" or machine.controller.partition("/")[0] not in REPLACING_OWNERS:
            continue
        yield LeftOver(
            node=target.victim_name,
            check=check.ref,
            step=EscalationStep(strategy=Strategy.REQUEST_OWNER, name=Strategy.REQUEST_OWNER.value, timeout=SICK_AGAIN),
            name=OWNER_REMEDIATED,
            reason=f"{machine.controller} is still asked to remediate {machine.name}: its machine is well",
            node_uid=target.node.uid if target.node is not None else "",
            machine_ref=check.machine_ref(machine.namespace, machine.name),
            machine_uid=machine.uid,
        )


def _of_node(known: Known, key: str, check: HealthCheck, remediation: RemediationObject) -> LeftOver | None:
    if not check.owns(remediation):
        return None
    target = known.nodes.get(remediation.target)
    if target is None or key not in target.verdicts:
        gone = orphaned(remediation, check)
        return _told(check, remediation, remediation.target, target, "the check selects no node of that name") if gone else None
    if target.verdicts[key].health is not Health.HEALTHY:
        return None
    return _told(check, remediation, remediation.target, target, "its node is well")


def _of_machine(known: Known, key: str, check: HealthCheck, remediation: RemediationObject) -> LeftOver | None:
    """Whoever made it made it for the Machine, which owns it: with that it goes by itself."""
    target = known.machines.get(f"{check.dialect}/{remediation.ref.namespace}/{remediation.target}")
    verdict = target.verdicts.get(key) if target is not None else None
    owned = any(owner.kind == "Machine" and owner.name == remediation.target for owner in remediation.owners)
    if target is None or verdict is None or verdict.health is not Health.HEALTHY or not owned:
        return None
    return _told(check, remediation, target.victim_name, target, "its machine is well")


def _told(
    check: HealthCheck, remediation: RemediationObject, node: str, target: JudgedTarget | None, why: str
) -> LeftOver | None:
    made = (remediation.ref.api_version.partition("/")[0], remediation.ref.kind)
    rungs = [rung for rung in check.rungs if kind_of(rung.template) == made]
    rung = next((each for each in rungs if each.template.name == remediation.template), rungs[0])
    view, machine = (target.node, target.machine) if target is not None else (None, None)
    return LeftOver(
        node=node,
        check=check.ref,
        step=step_of(rung),
        name=remediation.ref.name,
        reason=f"{remediation.ref.key} is left over: {why}",
        node_uid=view.uid if view is not None else "",
        machine_ref=check.machine_ref(machine.namespace, machine.name) if machine is not None else None,
        machine_uid=machine.uid if machine is not None else "",
    )
