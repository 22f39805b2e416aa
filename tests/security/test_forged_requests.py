"""Whoever reaches Temporal's frontend schedules any activity with any input: a power worker must not do as he says (S42).

The attacker has a client and a worker of his own in our namespace, and reads all histories. The workers run under the shipped
rights, and their keys are in the shipped Secret; that they act for our own task queue only is left out here, so that it is seen
what stands behind that guard.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.contracts.power import PowerRequest
from activities.errors import ErrorType
from policy.episode.gate import LOOKED_AT, Operation
from policy.episode.messages import episode_id
from tests.power.raw_server import listening
from tests.security import unguarded_worker
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import commands, episode
from tests.system.test_api_restarts import under_shipped_rights
from workflows.kit.options import WORKFLOW_QUEUE

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

QUEUE = "of-the-attacker"
NODE = "node-2"


@workflow.defn(name="Fencing", sandboxed=False)
class Forge:
    """Schedules one activity of ours with any input."""

    @workflow.run
    async def run(self, name: str, queue: str, request: Any) -> Any:
        """What it answers."""
        once = RetryPolicy(maximum_attempts=1)
        return await workflow.execute_activity(
            name, request, task_queue=queue, start_to_close_timeout=timedelta(seconds=20), retry_policy=once
        )


@workflow.defn(name="Hop", sandboxed=False)
class Hop:
    """Goes on as an episode of ours, with any input."""

    @workflow.run
    async def run(self, request: Any) -> None:
        """On our queue."""
        workflow.continue_as_new(args=[request], workflow="Fencing", task_queue=WORKFLOW_QUEUE)


@dataclass(frozen=True, slots=True)
class Attacker:
    """With a client, a worker, and all that histories tell."""

    client: Client
    system: System
    history: WorkflowHistory
    """Of the true episode of NODE; what it forges later bears that episode's id as well."""

    async def forge(self, name: str, queue: str, request: Any) -> Any:
        """As near to an episode of ours as a client of Temporal comes: by its id and type, on a task queue of its own (S49)."""
        workflow_id = f"forge-{datetime.now(UTC).timestamp()}"
        if target := request.get("target"):
            workflow_id = episode_id(target["cluster"], target["pinned"]["node"])
            request = {**request, "target": {**target, "workflow_id": workflow_id, "kind": "Fencing"}}
        return await self.client.execute_workflow("Fencing", args=[name, queue, request], id=workflow_id, task_queue=QUEUE)

    async def refused(self, name: str, queue: str, request: Any) -> str:
        """The error's type, with its words."""
        with pytest.raises(WorkflowFailureError) as failed:
            await self.forge(name, queue, request)
        assert isinstance(failed.value.cause, ActivityError)
        error = failed.value.cause.cause
        assert isinstance(error, ApplicationError)
        return f"{error.type}: {error.message}"

    async def inputs(self, name: str) -> list[Any]:
        """Of that activity in the true episode's history."""
        found = []
        for event in self.history.events:
            scheduled = event.activity_task_scheduled_event_attributes
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED and scheduled.activity_type.name == name:
                found += await self.client.data_converter.decode(scheduled.input.payloads)
        return found


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=4, platform="redfish") as running:
        await under_shipped_rights(running)
        await unguarded_worker.start(running)
        await running.apply_policy(check={"minHealthy": 1})
        await running.start_scanner()
        yield running


@pytest.fixture(scope="module")
async def attacker(system: System) -> AsyncIterator[Attacker]:
    """After one true episode, whose history he has."""
    before = system.break_node(NODE)
    result = await system.ended(before)
    assert await system.judge(before, result) == []
    client = system.warden.client
    async with Worker(client, task_queue=QUEUE, workflows=[Forge, Hop], workflow_runner=UnsandboxedWorkflowRunner()):
        yield Attacker(client, system, await episode(system, NODE).fetch_history())


def told(system: System) -> dict[str, list[str]]:
    return {name: [each.command for each in commands(system, name)] for name in system.cluster.nodes}


POWER = "power.default"


@pytest.mark.parametrize("act", ["power-management.power-off", "isolation.cut-path"])
async def test_a_command_that_no_look_has_licensed_is_refused(act: str, attacker: Attacker) -> None:
    """Of every act `tests/power/test_licences.py` says it."""
    before = told(attacker.system)
    (true,) = await attacker.inputs("power-management.power-off")
    soon = (datetime.now(UTC) + timedelta(seconds=10)).isoformat()
    for forged in (
        {**true, "licence": "", "not_after": soon},
        {**true, "not_after": soon},  # a true licence, made to last
        true,  # as it was, from another run
    ):
        answer = await attacker.refused(act, POWER, forged)
        assert answer.startswith(f"{ErrorType.NOT_LICENSED}: "), answer
        assert "no last look of this deployment has licensed it" in answer
    assert told(attacker.system) == before


async def test_a_healthy_machine_that_is_pinned_by_hand_stays_on(attacker: Attacker) -> None:
    """With the device as the fence check has it, sealed: a seal lets read and nothing else."""
    before = told(attacker.system)
    cluster = attacker.system.cluster_name
    asked = {"cluster": cluster, "nodes": ["node-3"]}
    found = await attacker.forge("device-check.find-devices", f"cluster.{cluster}", asked)
    device = found["nodes"][0]["devices"][0]["device"]
    (true,) = await attacker.inputs("power-management.power-off")
    pinned = {**true["target"]["pinned"], "node": "node-3", "endpoints": [device["endpoint"]]}
    forged = {**true, "device": device, "target": {**true["target"], "pinned": pinned}}
    assert (await attacker.refused("power-management.power-off", POWER, forged)).startswith(f"{ErrorType.NOT_LICENSED}: ")
    assert told(attacker.system) == before


async def test_no_credential_goes_to_a_device_of_his_own(attacker: Attacker) -> None:
    """Neither by a check, nor by a reading, nor by evidence: what only a seal of ours opens."""
    async with listening("127.0.0.1") as listener:
        port = listener.port
        (true,) = await attacker.inputs("power-management.power-off")
        device = {**true["device"], "endpoint": f"redfish://127.0.0.1:{port}/redfish/v1/Systems/x"}
        device["parameters"] = {**device["parameters"], "ip": f"127.0.0.1:{port}", "scheme": "http"}
        pinned = {**true["target"]["pinned"], "endpoints": [device["endpoint"]]}
        reading = {"target": {**true["target"], "pinned": pinned}, "device": device, "deadline": 5}
        for act in ("power-management.read-power", "isolation.read-path", "isolation.list-volumes"):
            assert "no worker of this deployment has signed it" in await attacker.refused(act, POWER, reading)
        checked = {"cluster": attacker.system.cluster_name, "devices": [{"device": device}]}
        answers = (await attacker.forge("device-check.read-devices", POWER, checked))["answers"]
        assert "no worker of this deployment has signed it" in answers[0]["problem"]
        bundle = {"cluster": attacker.system.cluster_name, "node": NODE, "incident": "x"}
        await attacker.refused("evidence.read-device", POWER, {"bundle": bundle, "device": device, "room": 1000})
    assert listener.heard == []


async def test_a_look_of_his_own_licenses_nothing(attacker: Attacker) -> None:
    """He may ask for a look, too; it looks at the cluster, and asks the scanner for the permit that he has not."""
    system = attacker.system
    before = told(system)
    (true,) = await attacker.inputs("power-management.power-off")
    soon = (datetime.now(UTC) + timedelta(seconds=10)).isoformat()
    wanted = {"act": "power-off", "not_after": soon}
    live = await system.live_node("node-3")
    pinned = {
        **true["target"]["pinned"],
        "node": "node-3",
        "uid": live["metadata"]["uid"],
        "provider_id": live["spec"]["providerID"],
        "system_uuid": live["status"]["nodeInfo"]["systemUUID"],
        "boot_id": live["status"]["nodeInfo"]["bootID"],
    }
    for target in (true["target"], {**true["target"], "pinned": pinned}):
        look = {"target": target, "need": {}, "holder": "him", "configured": {}, "licenses": wanted}
        queue = f"cluster.{system.cluster_name}"
        for more in ({}, *({"operation": each} for each in LOOKED_AT)):
            seen = await attacker.forge("target.last-look", queue, {**look, **more})
            assert not seen.get("licence"), (more, seen)
        for each in set(Operation) - LOOKED_AT:
            assert "is no act that a last look precedes" in await attacker.refused(
                "target.last-look", queue, {**look, "operation": each}
            )
    assert told(system) == before


async def test_a_look_at_another_node_licenses_nothing_of_this_ones_machine(attacker: Attacker) -> None:
    """One that is quiet has nobody's word against it, and a way back needs no permit. A seal says whose a device is."""
    system = attacker.system
    before = told(system)
    (true,) = await attacker.inputs("power-management.power-off")
    soon = (datetime.now(UTC) + timedelta(seconds=10)).isoformat()
    pinned = {"node": "node-4", "uid": "", "endpoints": [true["device"]["endpoint"]]}
    target = {**true["target"], "pinned": pinned}
    look = {"target": target, "need": {}, "holder": "him", "configured": {}}
    answer = ""
    for act, more in (("power-off", {}), ("power-on", {"operation": Operation.GIVE_BACK})):
        licenses = {"act": act, "not_after": soon}
        seen = await attacker.forge("target.last-look", f"cluster.{system.cluster_name}", {**look, **more, "licenses": licenses})
        forged = {**true, "target": target, "not_after": soon, "licence": seen.get("licence", "")}
        answer = await attacker.refused(f"power-management.{act}", POWER, forged)
        assert answer.startswith((f"{ErrorType.NOT_LICENSED}: ", f"{ErrorType.INVALID_CONFIG}: ")), answer
    reading = {"target": target, "device": true["device"], "deadline": 5}
    assert "no worker of this deployment has signed it" in await attacker.refused("power-management.read-power", POWER, reading)
    assert told(system) == before


@pytest.mark.parametrize("state", [{"reason": "forged", "started": "2026-11-21T12:00:00Z", "permit": True}, None])
async def test_no_workflow_of_his_own_goes_on_as_an_episode_of_ours(state: dict[str, Any] | None, attacker: Attacker) -> None:
    """With a state, it would have proven whatever that says; without one, marks of its incident would be its own."""
    whose = {"cluster": attacker.system.cluster_name, "node": "node-4", "need": {"kind": "clean-up"}}
    common = {"kind": "Fencing", "incident": "forged"}
    request = whose | {"state": whose | common | state if state is not None else None}
    workflow_id = episode_id(whose["cluster"], whose["node"])
    with pytest.raises(WorkflowFailureError) as failed:
        await attacker.client.execute_workflow("Hop", request, id=workflow_id, task_queue=QUEUE)
    why = f"that was Hop on task queue '{QUEUE}'" if state is not None else "never by another workflow"
    assert why in str(failed.value.cause)


async def test_what_was_refused_and_what_was_done_is_logged(attacker: Attacker) -> None:
    (worker,) = attacker.system.workers
    text = worker.log.read_text()
    assert "refused: " in text
    assert "power-off of redfish://" in text  # what was carried out is there, too
    assert PowerRequest.__name__ not in text
