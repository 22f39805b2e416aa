"""self-node-remediation: an agent on every node reboots it from within, and a manager that waits until that must have happened.

The manager never looks whether the node has rebooted: it takes the node for dead once the time is over, and frees its workloads.
A dead agent is therefore never found out, and the storage sees two writers. Followed: phases, conditions, finalizer,
taints, both ways to free workloads, the opt-out, giving up. Left out: asking peers whether the API is away for all, watchdogs,
and the calculation of the time (`RemediatorTimings.assume_rebooted`).
"""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from simulator.controllers.runtime import Controller, own_key
from simulator.objects import JsonObject, is_terminating, name_of, timestamp, uid_of
from simulator.remediators.contract import (
    EXCLUDED,
    FALSE,
    OUT_OF_SERVICE_TAINT,
    PROCESSING,
    SUCCEEDED,
    TRUE,
    UNKNOWN,
    Remediator,
    Surroundings,
    annotation,
    is_given_up,
    with_conditions,
)
from simulator.resources import Resource

FINALIZER = "self-node-remediation.medik8s.io/snr-finalizer"
CAPABLE = "is-reboot-capable.self-node-remediation.medik8s.io"
WATCHDOG_SECONDS = "self-node-remediation.medik8s.io/watchdog-timeout"
TAINT = {"key": "remediation.medik8s.io/self-node-remediation", "effect": "NoSchedule"}


class Phase(StrEnum):
    STARTED = "Fencing-Started"
    """Never written: what has no phase is in it."""
    PREPARED = "Pre-Reboot-Completed"
    REBOOTED = "Reboot-Completed"
    COMPLETED = "Fencing-Completed"


class Agent(StrEnum):
    """What is the matter with the agent of a node."""

    ALIVE = "alive"
    MISSING = "missing"
    """No pod of it is on the node, and the manager knows that."""
    NOT_CAPABLE = "not-capable"
    """It has no watchdog and may not reboot, and says so on the Node."""
    DEAD = "dead"
    """It has said that it can and never will: the manager assumes a reboot that does not happen."""


class SelfNodeRemediations(Remediator):
    """Doors: `set_agent`, `configured`; `reboots` are the nodes that their agents have really rebooted, in order."""

    name_to_ask_for = "self-node-remediation"
    crds = ("self-node-remediation",)
    remediations: ClassVar[Resource] = Resource(
        api_version="self-node-remediation.medik8s.io/v1alpha1", kind="SelfNodeRemediation", plural="selfnoderemediations"
    )

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.configured = True
        """Its SelfNodeRemediationConfig is there; without it nothing is done."""
        self.reboots: list[str] = []
        self._agents = _Agents(around)
        self._boots_before: dict[str, int] = {}
        self._agent_due: dict[str, float] = {}
        self._believed_from: dict[str, float] = {}

    def set_agent(self, node: str, agent: Agent) -> None:
        """From now on this is the matter with the agent of this node."""
        self._agents.state[node] = agent
        self._agents.queue.add(node)

    def agent(self, node: str) -> Agent:
        return self._agents.state.get(node, Agent.ALIVE)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._agents.run(), name="agents of self-node-remediation")
            group.create_task(super().run(), name=self.name)

    async def reconcile(self, key: str) -> float | None:
        remediation = self.objects.get(key)
        if remediation is None:
            return None
        if not self.configured:
            await self.say(remediation, "ConfigurationNotFound", Disabled=TRUE)
            return self.timings.poll
        node = self.view.nodes.get(self.node_name_of(remediation))
        if is_given_up(remediation):
            await self._stop(remediation, node)
            return None
        phase = Phase((remediation.get("status") or {}).get("phase") or Phase.STARTED)
        if node is None:
            await self.say(remediation, "RemediationSkippedNodeNotFound", Processing=FALSE, Succeeded=FALSE)
            return None
        if phase is not Phase.COMPLETED:
            remediation = await self.say(remediation, "RemediationStarted", Processing=TRUE, Succeeded=UNKNOWN)
        if (node["metadata"].get("labels") or {}).get(EXCLUDED) == "true":
            return None
        if (machine := self.hands.machine(name_of(node))) is not None:
            self._boots_before.setdefault(uid_of(remediation), machine.boots)
        match phase:
            case Phase.STARTED:
                return await self._prepare(remediation, node)
            case Phase.PREPARED:
                return await self._await_reboot(remediation, node)
            case Phase.REBOOTED:
                return await self._free(remediation, node)
            case Phase.COMPLETED:
                if is_terminating(remediation):
                    await self._recover(remediation, node)
                return None

    async def _stop(self, remediation: JsonObject, node: JsonObject | None) -> None:
        """Given up: what it has done stays until the object is deleted, and then nothing of it does."""
        if not is_terminating(remediation):
            await self.say(remediation, "RemediationTimeoutByNHC", Processing=FALSE, Succeeded=FALSE)
        elif node is None:
            await self.let_go(remediation, FINALIZER)
        else:
            await self._recover(remediation, await self.remove_taint(node, OUT_OF_SERVICE_TAINT))

    async def _prepare(self, remediation: JsonObject, node: JsonObject) -> float | None:
        name = name_of(node)
        if self.agent(name) is Agent.MISSING or annotation(node, CAPABLE) != "true":
            await self._status(remediation, lastError="Node is not capable to reboot itself")
            return self.timings.poll
        if is_terminating(remediation) and FINALIZER not in (remediation["metadata"].get("finalizers") or ()):
            return None
        remediation = await self.hold(remediation, FINALIZER)
        await self.taint(node, TAINT)
        now = asyncio.get_running_loop().time()
        self._believed_from[uid_of(remediation)] = now + self.timings.assume_rebooted
        self._agent_due[uid_of(remediation)] = now + self.timings.agent
        # Whole seconds, and never earlier than it is believed.
        rebooted = datetime.now(UTC) + timedelta(seconds=math.ceil(self.timings.assume_rebooted))
        await self._status(remediation, phase=Phase.PREPARED, timeAssumedRebooted=timestamp(rebooted), lastError="")
        return 0.0

    async def _await_reboot(self, remediation: JsonObject, node: JsonObject) -> float | None:
        # The agent is first: it must not be late because this process was.
        agent = await self._act_as_agent(remediation, name_of(node))
        now = asyncio.get_running_loop().time()
        believed_from = self._believed_from.setdefault(uid_of(remediation), now)
        if now >= believed_from:
            await self._status(remediation, phase=Phase.REBOOTED)
            return 0.0
        return min(agent, believed_from - now) if agent else believed_from - now

    async def _act_as_agent(self, remediation: JsonObject, node: str) -> float:
        """What happens on the node itself: once, after a moment, and only if it has not rebooted anyhow."""
        machine, now = self.hands.machine(node), asyncio.get_running_loop().time()
        if self.agent(node) is not Agent.ALIVE or is_terminating(remediation) or machine is None or not machine.is_on:
            return 0.0
        due = self._agent_due.setdefault(uid_of(remediation), now + self.timings.agent)
        if machine.boots > self._boots_before[uid_of(remediation)]:
            return 0.0
        if now >= due:
            self.reboots.append(node)
            await self.hands.reboot(node)
            return 0.0
        return due - now

    async def _free(self, remediation: JsonObject, node: JsonObject) -> float | None:
        name = name_of(node)
        # `Automatic` is the taint wherever Kubernetes knows it.
        if (remediation.get("spec") or {}).get("remediationStrategy") == "ResourceDeletion":
            await self.delete_pods(name)
            return await self._complete(remediation)
        before = node
        node = await self.taint(node, OUT_OF_SERVICE_TAINT)
        if node is not before:
            return self.timings.poll
        patience_ends = self._believed_from.get(uid_of(remediation), 0.0) + self.timings.taint_patience
        over = asyncio.get_running_loop().time() >= patience_ends
        if self.is_drained(name) or (over and is_terminating(remediation)):
            await self.remove_taint(node, OUT_OF_SERVICE_TAINT)
            return await self._complete(remediation)
        return self.timings.poll

    async def _complete(self, remediation: JsonObject) -> float:
        said = ("RemediationFinishedSuccessfully", "")
        conditions = with_conditions(remediation, {PROCESSING: (FALSE, *said), SUCCEEDED: (TRUE, *said)})
        status = {"phase": Phase.COMPLETED, **({"conditions": conditions} if conditions is not None else {})}
        await self.patch(remediation, {"status": status}, subresource="status")
        return 0.0

    async def _recover(self, remediation: JsonObject, node: JsonObject) -> None:
        await self.remove_taint(node, TAINT)
        await self.let_go(remediation, FINALIZER)

    async def _status(self, remediation: JsonObject, **fields: str) -> JsonObject:
        known = remediation.get("status") or {}
        if all(known.get(field, "") == value for field, value in fields.items()):
            return remediation
        return await self.patch(remediation, {"status": fields}, subresource="status")


class _Agents(Controller):
    """What the agents write on their Nodes when they start."""

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around.client, around.view)
        self.state: dict[str, Agent] = {}
        self.look_on(around.view.nodes, own_key)
        for node in around.view.nodes:
            self.queue.add(name_of(node))

    async def reconcile(self, key: str) -> float | None:
        node, state = self.view.nodes.get(key), self.state.get(key, Agent.ALIVE)
        if node is None or state is Agent.MISSING:
            return None
        wanted = {CAPABLE: "false" if state is Agent.NOT_CAPABLE else "true", WATCHDOG_SECONDS: "10"}
        if any(annotation(node, each) != value for each, value in wanted.items()):
            path = self.view.nodes.resource.path(key)
            self.view.nodes.remember(await self.client.patch(path, {"metadata": {"annotations": wanted}}))
        return None
