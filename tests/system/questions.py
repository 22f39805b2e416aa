"""What a test asks of a running `System` (harness.py) besides its end: phases, permits, Events, and what was done in whose name.

Only reading. What must never have happened is asked of those who would have seen it: the API server's request log, the history
of the workflow, the BMCs' chassis (witness.py has the consequences).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from policy.episode.messages import EpisodeResult, EpisodeStatus, Phase, episode_id
from policy.objects.nodes import MARK_ANNOTATION, OUT_OF_SERVICE_TAINT
from simulator.api.control.request_log import Write
from simulator.api.server import ApiServer
from simulator.bmc.machine import HAND, PowerCommand
from simulator.objects import JsonObject
from simulator.resources import EVENTS
from starter.errors import RequestError
from tests.system.harness import CHECK, CHECKS, System
from tests.system.real_api import simulated_only

OUR_USER_AGENT = "nodewarden/"
CONSEQUENCES = frozenset({"power-management.taint-out-of-service", "power-management.delete-workload"})
"""The activities of ours that a proof of off licenses (S1)."""


# Episodes ---------------------------------------------------------------------------------------------------------------


def episode(system: System, node: str) -> WorkflowHandle[Any, EpisodeResult]:
    return system.warden.client.get_workflow_handle(episode_id(system.cluster_name, node), result_type=EpisodeResult)


async def status(system: System, node: str) -> EpisodeStatus | None:
    """Of the open episode of a node; None where there is none."""
    try:
        return await system.warden.episode(system.cluster_name, node).status()
    except RequestError:
        return None


async def in_phase(system: System, node: str, phase: Phase, *, doing: str = "", seconds: float = 30.0) -> EpisodeStatus:
    """Wait until the node's episode is in that phase, and does something whose words contain `doing`."""
    found: list[EpisodeStatus] = []

    async def there() -> bool:
        now = await status(system, node)
        if now is not None and now.phase is phase and doing in now.doing:
            found.append(now)
        return bool(found)

    await system.until(there, f"the episode of {node} is {phase.value}{f' and {doing}' if doing else ''}", seconds=seconds)
    return found[0]


async def parked(system: System, node: str, *, seconds: float = 30.0) -> EpisodeStatus:
    """Wait until the node's episode needs a person and its permit is given back."""
    found = await in_phase(system, node, Phase.NEEDS_HUMAN, seconds=seconds)
    assert not found.permit
    return found


async def opened_at(system: System, node: str) -> datetime | None:
    """When the node's last episode was started; None where there never was one."""
    try:
        return (await episode(system, node).describe()).start_time
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def is_open(system: System, node: str) -> bool:
    try:
        return (await episode(system, node).describe()).status is WorkflowExecutionStatus.RUNNING
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise


async def acts(system: System, node: str) -> list[str]:
    """The types of all activities that the node's last episode has asked for, in order."""
    history = await episode(system, node).fetch_history()
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]


# Traces -----------------------------------------------------------------------------------------------------------------


def commands(system: System, node: str) -> list[PowerCommand]:
    """What the node's BMC was told to do since the cluster began."""
    return [entry for entry in system.cluster.chassis.machine(node).log if entry.device != HAND]


def simulated_api(system: System) -> ApiServer:
    """The simulated API server, which counts and can misbehave; the test is skipped where a real one stands in."""
    simulated_only("its request log, its faults")
    assert system.cluster.api is not None
    return system.cluster.api


def our_writes(system: System) -> list[Write]:
    """Every request for a change that nodewarden has made, the refused ones too."""
    return [each for each in simulated_api(system).requests.log if each.user_agent.startswith(OUR_USER_AGENT)]


async def events_about(system: System, kind: str, name: str) -> list[JsonObject]:
    """Events on one object without a namespace."""
    found = await system.client.list(EVENTS.path(namespace="default"))
    about = [each for each in found["items"] if (each["involvedObject"]["kind"], each["involvedObject"]["name"]) == (kind, name)]
    return sorted(about, key=lambda each: str(each.get("firstTimestamp")))


async def check_status(system: System, name: str = CHECK) -> Mapping[str, Any]:
    """The status of a NodeHealthCheck."""
    status: Mapping[str, Any] = (await system.client.get(CHECKS.path(name))).get("status") or {}
    return status


def condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((each for each in status.get("conditions") or () if each["type"] == kind), {})


async def traces(system: System, node: str) -> list[str]:
    """What of an episode's own stands on the live Node."""
    live = await system.live_node(node)
    found = ["mark"] if MARK_ANNOTATION in (live["metadata"].get("annotations") or {}) else []
    found += ["cordon"] if live["spec"].get("unschedulable") else []
    found += (
        ["out-of-service taint"] if any(each["key"] == OUT_OF_SERVICE_TAINT for each in live["spec"].get("taints") or ()) else []
    )
    return found
