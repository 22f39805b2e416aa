"""The three outcomes of the machine health check's own proposal, with a cluster autoscaler beside it: what we remediate must not
keep it from finding out that a MachineSet is broken.

One story, in which each test is a chapter. Its clock is put forward by hand; ours runs as it does, so that its 15 minutes pass
before ours do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from policy.checks.health_check import BACKOFF_ANNOTATION
from policy.dialects.common import AUTOSCALER_PATIENCE_ANNOTATION
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, read_memory
from policy.scan.permit_rules import AdmissionRefusal
from simulator.controllers.autoscaler import Autoscaler, AutoscalerSettings
from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineDeletion, MachineOptions, Trouble
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.test_remediation import CHECKS, machine_health_check

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

QUICK = MachineSettings(create=0.2, switch_off=0.2, destroy=0.2, remove_node=0.1, terminates_after=0.2)
FIRST, SECOND, THIRD = (f"workers-zone-{zone}" for zone in "abc")
THE_CHECK = f"{CHECKS}/workers"
MAX_NODE_PROVISION_TIME = 901.0


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    patient = AutoscalerSettings(scan_interval=0.1, backoff=10_000, max_backoff=50_000)
    options = MachineOptions(system="openshift", settings=QUICK, autoscaler=patient)
    small = {"nodes": 3, "zones": 3, "workers_as": options, "demo_workloads": False}
    async with standing(**small) as system:
        await system.start_worker()
        await system.client.create(CHECKS, machine_health_check())
        await system.warden.start_scanner(system.cluster_name)
        yield system


def autoscaler(system: System) -> Autoscaler:
    found = system.cluster.machines.autoscaler
    assert found is not None
    return found


def ours(system: System) -> list[MachineDeletion]:
    return [each for each in system.cluster.machines.deletions() if not each.by_controllers and each.status == 200]


async def allow(system: System, most: int) -> None:
    await system.client.patch(THE_CHECK, {"spec": {"maxUnhealthy": most}})

    async def heard() -> bool:
        status = (await system.client.get(THE_CHECK)).get("status") or {}
        return status.get("remediationsAllowed") == most

    await system.until(heard, f"the check lets {most} be remediated", seconds=30)


async def awaits_another(system: System, machine_set: str, losses: int) -> None:
    """So many machines of the set were replaced, and one more is awaited."""

    def so_far() -> bool:
        befell = autoscaler(system).what_befell(machine_set)
        return befell.count("lost") >= losses and befell[-1] == "awaited"

    await system.until(so_far, f"{losses} machines of {machine_set} were replaced", seconds=60)


async def left_to_the_autoscaler(system: System) -> None:
    async def refused() -> bool:
        found = await system.scanner()
        refusals = found.refused if found is not None else ()
        return any(each.reason == AdmissionRefusal.RETRY_LATER and "autoscaler" in each.message for each in refusals)

    await system.until(refused, "the retry is put off for the autoscaler's sake", seconds=40)


async def test_failed_above_the_maximum_the_autoscaler_is_not_disturbed(system: System) -> None:
    """Short circuit: no action of ours; after its time it scales the set back and takes another one."""
    scaler = autoscaler(system)
    await allow(system, 0)
    system.cluster.machines.instances.troubles[FIRST] = Trouble(refuses=True)
    scaler.want(1)
    await system.until(lambda: scaler.what_befell(FIRST)[-1:] == ["awaited"], "a machine without a Node is awaited", seconds=30)

    async def closed() -> bool:
        status = (await system.client.get(THE_CHECK)).get("status") or {}
        return status.get("currentHealthy") == 3 and status.get("expectedMachines") == 4

    await system.until(closed, "the check counts one that is not healthy", seconds=30)
    scaler.pass_time(MAX_NODE_PROVISION_TIME)
    await system.until(lambda: scaler.is_content, "another set has made room", seconds=40)
    assert ours(system) == []
    assert scaler.what_befell(FIRST) == ["scaled-up", "awaited", "gave-up", "scaled-back", "backed-off"]


async def test_failed_below_the_maximum_it_would_be_a_hot_loop(system: System) -> None:
    """With the pauses switched off what the proposal warns of is seen: machine after machine, and the set is never found out."""
    scaler = autoscaler(system)
    scaler.pass_time(100_000)  # nobody is left alone any more
    loop = {BACKOFF_ANNOTATION: "none", AUTOSCALER_PATIENCE_ANNOTATION: "0s"}
    await system.client.patch(THE_CHECK, {"metadata": {"annotations": loop}})
    await allow(system, 2)
    system.cluster.machines.instances.troubles[SECOND] = Trouble(terminates=True)
    scaler.want(1)
    before = scaler.what_befell(FIRST).count("lost")
    await awaits_another(system, FIRST, before + 3)
    assert scaler.backed_off == []


async def test_failed_below_the_maximum_the_autoscaler_gets_its_fifteen_minutes(system: System) -> None:
    """The loop ends with our default: the successor remembers, and is left alone until the set is given up."""
    scaler, fleet = autoscaler(system), system.cluster.machines
    calm = {BACKOFF_ANNOTATION: None, AUTOSCALER_PATIENCE_ANNOTATION: None}
    await system.client.patch(THE_CHECK, {"metadata": {"annotations": calm}})
    await left_to_the_autoscaler(system)
    lost = scaler.what_befell(FIRST).count("lost")
    await awaits_another(system, FIRST, lost)
    (awaited,) = scaler.awaited.values()
    memory = read_memory((fleet.machine(awaited.machine) or {})["metadata"]["annotations"][LAST_REMEDIATION_ANNOTATION])
    assert memory.retry >= 2
    asked = len(ours(system))
    scaler.pass_time(MAX_NODE_PROVISION_TIME)
    await system.until(lambda: FIRST in scaler.backed_off, "the broken set is called broken", seconds=40)
    assert scaler.what_befell(FIRST).count("lost") == lost
    assert [each.machine for each in ours(system)[asked:] if each.machine == awaited.machine] == []


async def test_accepted_and_then_terminated_the_autoscaler_gets_its_fifteen_minutes(system: System) -> None:
    """The second scenario: an instance is made, and is gone again before it is a node."""
    scaler = autoscaler(system)
    await awaits_another(system, SECOND, 1)
    await left_to_the_autoscaler(system)
    scaler.pass_time(MAX_NODE_PROVISION_TIME)
    await system.until(lambda: "registered" in scaler.what_befell(THIRD), "the third set has made room", seconds=60)
    assert {FIRST, SECOND} <= set(scaler.backed_off)
    assert scaler.is_content
