"""All nodes fail at once: that is a fault of something else, and the one answer is to do nothing and to say so."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from policy.checks.verdict import Health
from starter import wording
from tests.system.fixtures import Standing
from tests.system.harness import CHECK, CHECKS, System
from tests.system.questions import check_status, commands, condition, events_about, is_open
from tests.system.worker_process import ROOT

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

NODES = 12
SICK_FOR = timedelta(seconds=4)
"""The check's duration: within it all twelve are known to be down, whichever was seen first and however busy this machine is."""
LONG_ENOUGH = SICK_FOR + timedelta(seconds=4)
"""Every node has been unhealthy for so long before we say that nothing was done: timeout, wait, last look and off fit in."""


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=NODES, zones=3) as running:
        await running.start_worker()
        duration = f"{SICK_FOR.total_seconds():.0f}s"
        conditions = [{"type": "Ready", "status": status, "duration": duration} for status in ("False", "Unknown")]
        await running.apply_policy(check={"unhealthyConditions": conditions})
        await running.start_scanner(cap=1)
        for name in running.cluster.nodes:
            running.cluster.break_node(name, "kubelet-stops")

        async def all_unhealthy_for_long() -> bool:
            scanner = await running.scanner()
            if scanner is None or scanner.report is None:
                return False
            sick = [row for row in scanner.report.rows if row.health is Health.UNHEALTHY and row.since is not None]
            return len(sick) == NODES and all(datetime.now(UTC) - row.since > LONG_ENOUGH for row in sick if row.since)

        await running.until(all_unhealthy_for_long, "all twelve are unhealthy for long", seconds=40)
        yield running


async def test_twelve_of_twelve_are_left_alone_and_everybody_is_told_once(system: System) -> None:
    """S17: short circuit. No episode, no power command, no cordon; the reason in the scanner, in the check and in one Event."""
    scanner = await system.scanner()
    assert scanner is not None
    assert scanner.report is not None
    assert (scanner.opened, scanner.permits, scanner.queue) == (0, (), ())
    assert [name for name in system.cluster.nodes if commands(system, name)] == []
    assert [name for name in system.cluster.nodes if await is_open(system, name)] == []
    assert not any(node["spec"].get("unschedulable") for node in system.cluster.view.nodes)
    assert system.witness.consequences == []

    check = scanner.report.checks[0]
    assert (check.allowed, check.reason) == (False, "TooManyUnhealthy")
    assert wording.may_act(check) == "circuit breaker open: 0 of 12 nodes are healthy, minHealthy 51% needs 7"

    async def told() -> bool:
        return "0 of 12 nodes are healthy" in str((await check_status(system)).get("reason"))

    await system.until(told, "the check's status gives the reason")
    status = await check_status(system)
    assert status["reason"] == "no new remediation: 0 of 12 nodes are healthy, minHealthy 51% needs 7"
    allowed = condition(status, "RemediationAllowed")
    assert (allowed["status"], allowed["reason"]) == ("False", "TooManyUnhealthy")
    assert (status["observedNodes"], status.get("healthyNodes", 0), len(status["unhealthyNodes"])) == (NODES, 0, NODES)
    assert not status.get("inFlightRemediations")

    events = [event for event in await events_about(system, CHECKS.kind, CHECK) if event["type"] == "Warning"]
    assert [(event["reason"], event.get("count", 1)) for event in events] == [("RemediationSkipped", 1)]
    assert events[0]["message"].startswith("no new remediation: ")
    assert "minHealthy 51% needs 7" in events[0]["message"]


async def test_explain_names_the_circuit_breaker_the_numbers_and_what_would_unblock_it(system: System) -> None:
    """What somebody types who wonders why nothing is done."""
    answer = await explained(system, "node-3")
    [check] = answer["checks"]
    assert check["verdict"]["verdict"] == "unhealthy"
    held = "its open circuit breaker (TooManyUnhealthy): 0 of 12 nodes are healthy, minHealthy 51% needs 7"
    assert check["verdict"]["heldBy"] == held
    assert check["unblock"] == ["7 more of its 12 nodes must become healthy"]
    assert "0 of 1 permits in use" in answer["scanner"]
    assert (answer["episode"], answer["ended"]) == (None, [])
    assert (answer["errors"], answer["problems"]) == ([], [])


async def explained(system: System, node: str) -> dict[str, Any]:
    """The answer of `nodewarden explain` on the live system."""
    command = [sys.executable, "-m", "starter.cli", "--config", str(system.config), "explain", node, "-o", "json"]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=PIPE)
    output, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    answer: dict[str, Any] = json.loads(output)
    return answer
