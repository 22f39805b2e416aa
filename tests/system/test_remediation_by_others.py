"""Other controllers remediate what we hand them: OpenShift's bare-metal operator by annotation, Metal3 by an object.

Each on the Machines of its own system; in both the machine itself comes back, so that nothing may be deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from policy.dialects.openshift import EXTERNAL_STRATEGY, STRATEGY_ANNOTATION
from policy.episode.messages import EpisodeResult, Outcome
from policy.objects.machines import EXTERNAL_REMEDIATION_ANNOTATION
from simulator.machines import MachineOptions
from simulator.objects import JsonObject
from simulator.remediation import RemediatorTimings
from simulator.remediators.metal3 import Metal3Remediations
from tests.system import test_remediation as openshift
from tests.system import test_remediation_owners as cluster_api
from tests.system.fixtures import MakeSystem
from tests.system.harness import System
from workflows.kit.ids import episode_id

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

NODE = "node-2"
TIMINGS = RemediatorTimings(poll=0.05, power=0.03, metal3_second=0.1, machine_poll=0.05, power_on=60)


async def of(make_system: MakeSystem, system: str, remediator: str) -> System:
    made: System = await make_system(
        nodes=3,
        zones=1,
        workers_as=MachineOptions(system=system, settings=openshift.QUICK),
        demo_workloads=False,
        shape={"remediators": (remediator,), "remediator_timings": TIMINGS},
    )
    return made


async def remediated(system: System) -> tuple[EpisodeResult, list[Mapping[str, str]]]:
    """Break the node and see its episode to its end; also what stood on its Machine meanwhile."""
    fleet, seen = system.cluster.machines, list[Mapping[str, str]]()
    machine = fleet.of_node(NODE)
    system.break_node(NODE, "kernel-hangs")
    handle = system.warden.client.get_workflow_handle(episode_id("sim", NODE), result_type=EpisodeResult)

    async def ended() -> bool:
        there = fleet.machine(machine) or {}
        seen.append(dict((there.get("metadata") or {}).get("annotations") or {}))
        return (await handle.describe()).close_time is not None

    await system.until(ended, f"the episode of {NODE} has ended", seconds=60, tolerate=True)
    assert fleet.deletions() == []
    return await asyncio.wait_for(handle.result(), 10), seen


async def test_openshifts_bare_metal_operator_is_left_to_it_by_annotation(make_system: MakeSystem) -> None:
    """Seed 000's experimental strategy: both spellings are written, and none is left; nobody else touches the Machine."""
    system = await of(make_system, "openshift", "external-baremetal")
    await system.start_worker()
    check = openshift.machine_health_check(**{STRATEGY_ANNOTATION: EXTERNAL_STRATEGY})
    await system.client.create(openshift.CHECKS, check)
    await system.warden.start_scanner(system.cluster_name)
    machine = system.cluster.machines.of_node(NODE)
    result, seen = await remediated(system)
    assert result.outcome is Outcome.RECOVERED, result.message
    assert any(EXTERNAL_REMEDIATION_ANNOTATION in each and each[STRATEGY_ANNOTATION] == EXTERNAL_STRATEGY for each in seen)
    left = (system.cluster.machines.machine(machine) or {})["metadata"]["annotations"]
    assert {EXTERNAL_REMEDIATION_ANNOTATION, STRATEGY_ANNOTATION}.isdisjoint(left)


async def test_metal3_is_driven_by_its_own_objects(make_system: MakeSystem) -> None:
    """Seed 003's external remediation: one object for the Machine, owned by it, gone once the node is well."""
    system = await of(make_system, "cluster-api", "metal3")
    operator = system.cluster.remediator(Metal3Remediations)
    await system.client.create(operator.templates().path(namespace="clusters"), _template(operator))
    await system.start_worker()
    check: Any = cluster_api.check("workers", {"matchLabels": {"cluster.x-k8s.io/cluster-name": "simulated"}})
    kinds = operator.templates()
    check["spec"]["remediation"] = {"templateRef": {"apiVersion": kinds.api_version, "kind": kinds.kind, "name": "metal3"}}
    await system.client.create(cluster_api.CHECKS, check)
    await system.warden.start_scanner(system.cluster_name)
    machine, made = system.cluster.machines.of_node(NODE), list[JsonObject]()

    async def look_on() -> None:
        while True:
            made.extend(operator.objects)
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(look_on())
    try:
        result, _ = await remediated(system)
    finally:
        watching.cancel()
    assert result.outcome is Outcome.RECOVERED, result.message
    assert {each["metadata"]["name"] for each in made} == {machine}
    assert len({each["metadata"]["uid"] for each in made}) == 1
    assert {owner["kind"] for each in made for owner in each["metadata"]["ownerReferences"]} == {"Machine"}
    await system.until(lambda: not list(operator.objects), "the object is gone", seconds=20)


def _template(operator: Metal3Remediations) -> JsonObject:
    spec = {"strategy": {"type": "Reboot", "retryLimit": 1, "timeoutSeconds": 100}}
    return operator.template("metal3", namespace="clusters", spec=spec)
