"""fence-agents-remediation by its own operator: it runs a fence agent against a node's device, and then frees the workloads.

A program that answers such objects instead of the operator must not run beside it. Here the agent reaches the machine's
device without an address and without credentials: whatever the spec says of them is accepted. Followed: conditions, finalizer,
taints, action, retries and time-outs of the spec, both ways to free workloads, giving up. A run lives in this process alone.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import ClassVar

from simulator.bmc.machine import Power, RefusedError
from simulator.client import ApiError, ApiUnreachableError
from simulator.objects import JsonObject, condition_status, is_terminating, key_of, name_of, seconds_of, uid_of
from simulator.remediators.contract import (
    FALSE,
    NODE_NAME,
    OUT_OF_SERVICE_TAINT,
    PROCESSING,
    SUCCEEDED,
    TRUE,
    UNKNOWN,
    Remediator,
    Surroundings,
    annotation,
    is_given_up,
)
from simulator.resources import Resource
from simulator.tasks import Tasks

log = logging.getLogger(__name__)

FINALIZER = "fence-agents-remediation.medik8s.io/far-finalizer"
TAINT = {"key": "remediation.medik8s.io/fence-agents-remediation", "effect": "NoSchedule"}
ACTION_SUCCEEDED = "FenceAgentActionSucceeded"
DEVICE = "fence-agent"
"""As the chassis' log names who commanded."""
REBOOT, OFF = "reboot", "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """One execution of a fence agent. ended: `done`, `failed` or `timed-out`."""

    node: str
    action: str
    ended: str


class FenceAgentsRemediations(Remediator):
    """Doors: nodes in `failing` have an agent that ends with an error, those in `hanging` one that never ends. `runs` is what was
    executed to its end, in order, `busy` what is being executed. What its device does wrong (`bmc-refuses`) counts, too."""

    name_to_ask_for = "fence-agents-remediation"
    crds = ("fence-agents-remediation",)
    remediations: ClassVar[Resource] = Resource(
        api_version="fence-agents-remediation.medik8s.io/v1alpha1",
        kind="FenceAgentsRemediation",
        plural="fenceagentsremediations",
    )

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.failing: set[str] = set()
        self.hanging: set[str] = set()
        self.runs: list[AgentRun] = []
        self._tasks = Tasks()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._refused: set[str] = set()

    @property
    def busy(self) -> int:
        """How many agents are running at this moment."""
        return sum(1 for run in self._running.values() if not run.done())

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            await self._tasks.cancel_all()

    async def reconcile(self, key: str) -> float | None:
        self._tasks.raise_failures()
        remediation = self.objects.get(key)
        if remediation is None:
            return None
        node = self.view.nodes.get(annotation(remediation, NODE_NAME) or name_of(remediation))
        if node is None:
            # Before the finalizer is looked at: an object without its node can't be deleted any more, as there.
            await self._say_all(remediation, "RemediationFinishedNodeNotFound", FALSE)
            return None
        held = FINALIZER in (remediation["metadata"].get("finalizers") or ())
        if is_given_up(remediation) and not is_terminating(remediation):
            self._cancel(remediation)
            await self._say_all(remediation, "RemediationInterruptedByNHC", FALSE)
        elif is_terminating(remediation):
            self._cancel(remediation)
            if held:
                node = await self.remove_taint(node, TAINT, *self._frees_by_taint(remediation))
                await self.let_go(remediation, FINALIZER)
        elif not held:
            remediation = await self.hold(remediation, FINALIZER)
            await self._say_all(remediation, "RemediationStarted", UNKNOWN, processing=TRUE)
        else:
            await self._remediate(remediation, await self.taint(node, TAINT))
        return None

    async def _remediate(self, remediation: JsonObject, node: JsonObject) -> None:
        if condition_status(remediation, ACTION_SUCCEEDED) == TRUE:
            if condition_status(remediation, SUCCEEDED) == TRUE:
                return
            if taints := self._frees_by_taint(remediation):
                await self.taint(node, *taints)
            else:
                await self.delete_pods(name_of(node))
            await self.say(remediation, "RemediationFinishedSuccessfully", Processing=FALSE, Succeeded=TRUE)
        elif condition_status(remediation, PROCESSING) == TRUE and uid_of(remediation) not in self._running:
            action = _action(remediation, name_of(node))
            if action in {REBOOT, OFF}:
                work = self._execute(remediation, name_of(node), action)
                self._running[uid_of(remediation)] = self._tasks.start(work, name=f"fence agent for {name_of(node)}")
            elif uid_of(remediation) not in self._refused:
                self._refused.add(uid_of(remediation))
                await self.tell(remediation, "UnsupportedAction", "FAR doesn't support any other action than reboot or off")

    async def _execute(self, remediation: JsonObject, node: str, action: str) -> None:
        """As often as the spec says; the first time-out is the last try."""
        spec = remediation["spec"]
        tries, reason = int(spec.get("retrycount", 5)), "FenceAgentFailed"
        for attempt in range(tries):
            if attempt:
                await asyncio.sleep(seconds_of(spec.get("retryinterval", "5s")))
            try:
                async with asyncio.timeout(seconds_of(spec.get("timeout", "60s"))):
                    await self._command(node, action)
            except TimeoutError:
                self.runs.append(AgentRun(node=node, action=action, ended="timed-out"))
                reason = "FenceAgentTimedOut"
                break
            except RefusedError:
                self.runs.append(AgentRun(node=node, action=action, ended="failed"))
            else:
                self.runs.append(AgentRun(node=node, action=action, ended="done"))
                reason = "FenceAgentSucceeded"
                break
        await self._report(remediation, reason)

    async def _command(self, node: str, action: str) -> None:
        if node in self.hanging:
            await asyncio.Event().wait()
        if node in self.failing:
            raise RefusedError(f"{node}: the agent fails")
        await self._switch(node, "off")
        if action == REBOOT:
            await self._switch(node, "on")

    async def _switch(self, node: str, power: Power) -> None:
        """The device's word counts, and for off it is waited for."""
        await self.hands.switch(node, power, device=DEVICE)
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.timings.device
        while await self.hands.read(node, device=DEVICE) != power:
            if loop.time() >= give_up:
                raise RefusedError(f"{node}: its device does not say {power}")
            await asyncio.sleep(min(0.2, self.timings.device / 10))

    async def _report(self, remediation: JsonObject, reason: str) -> None:
        """Until it stands there: nothing else knows how the agent has ended."""
        while True:
            current = self.objects.get(key_of(remediation))
            if current is None or uid_of(current) != uid_of(remediation):
                return
            try:
                if reason == "FenceAgentSucceeded":
                    await self.say(current, reason, **{ACTION_SUCCEEDED: TRUE})
                else:
                    await self._say_all(current, reason, FALSE)
            except (ApiError, ApiUnreachableError) as error:
                log.info("%s: %s", reason, error)
                await asyncio.sleep(0.05)
            else:
                return

    async def _say_all(self, remediation: JsonObject, reason: str, status: str, *, processing: str = FALSE) -> None:
        said = {PROCESSING: processing, ACTION_SUCCEEDED: status, SUCCEEDED: status}
        await self.say(remediation, reason, **said)

    def _cancel(self, remediation: JsonObject) -> None:
        if (run := self._running.get(uid_of(remediation))) is not None:
            run.cancel()

    def _frees_by_taint(self, remediation: JsonObject) -> list[dict[str, str]]:
        wanted = remediation["spec"].get("remediationStrategy") == "OutOfServiceTaint"
        return [OUT_OF_SERVICE_TAINT] if wanted else []


def _action(remediation: JsonObject, node: str) -> str:
    """The node's own goes before what all share."""
    spec = remediation["spec"]
    own = (spec.get("nodeparameters") or {}).get("--action") or {}
    return str(own.get(node) or (spec.get("sharedparameters") or {}).get("--action") or REBOOT)
