"""All nodes fail at once: that is a fault of something else, and the one answer is to do nothing and to say so.

Then all but two come back, and these are fenced: one after the other, since one at a time is all that is allowed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from policy.checks.verdicts import Health
from policy.episode.messages import Outcome
from policy.scan.admission import AdmissionRefusal
from simulator.objects import is_ready
from starter import wording
from tests.system.fixtures import Standing
from tests.system.harness import CHECK, CHECKS, System
from tests.system.questions import check_status, commands, condition, events_about, is_open
from tests.system.witness import Before
from tests.system.worker_process import ROOT

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

NODES = 12
STAY_BROKEN = ("node-3", "node-8")
SICK_FOR = timedelta(seconds=4)
"""The check's duration: within it all twelve are known to be down, whichever was seen first and however busy this machine is."""
LONG_ENOUGH = SICK_FOR + timedelta(seconds=4)
"""Every node has been unhealthy for so long before we say that nothing was done: timeout, wait, last look and off fit in."""


@dataclass(slots=True, kw_only=True)
class Storm:
    """The system while all twelve are down."""

    system: System
    befores: dict[str, Before]


@pytest.fixture(scope="module")
async def storm(standing: Standing) -> AsyncIterator[Storm]:
    async with standing(nodes=NODES, zones=3) as system:
        await system.start_worker()
        duration = f"{SICK_FOR.total_seconds():.0f}s"
        conditions = [{"type": "Ready", "status": status, "duration": duration} for status in ("False", "Unknown")]
        await system.apply_policy(check={"unhealthyConditions": conditions})
        await system.start_scanner(cap=1)
        befores = {name: Before.of(system.cluster, name) for name in system.cluster.nodes}
        for name in system.cluster.nodes:
            system.cluster.break_node(name, "kubelet-stops")

        async def all_unhealthy_for_long() -> bool:
            scanner = await system.scanner()
            if scanner is None or scanner.report is None:
                return False
            sick = [row for row in scanner.report.rows if row.health is Health.UNHEALTHY and row.since is not None]
            return len(sick) == NODES and all(datetime.now(UTC) - row.since > LONG_ENOUGH for row in sick if row.since)

        await system.until(all_unhealthy_for_long, "all twelve are unhealthy for long", seconds=40)
        yield Storm(system=system, befores=befores)


async def test_twelve_of_twelve_are_left_alone_and_everybody_is_told_once(storm: Storm) -> None:
    """S17: short circuit. No episode, no power command, no cordon; the reason in the scanner, in the check and in one Event."""
    system = storm.system
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
    assert wording.brake(check) == "may not act: 0 of 12 nodes are healthy, minHealthy 51% needs 7"

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


async def test_explain_names_the_brake_the_numbers_and_what_would_unblock_it(storm: Storm) -> None:
    """What somebody types who wonders why nothing is done."""
    answer = await explained(storm.system, "node-3")
    [check] = answer["checks"]
    assert check["verdict"]["verdict"] == "unhealthy"
    assert check["verdict"]["heldBy"] == "TooManyUnhealthy: 0 of 12 nodes are healthy, minHealthy 51% needs 7"
    assert check["unblock"] == ["7 more of its 12 nodes must become healthy"]
    assert "0 of 1 permits are in use" in answer["scanner"]
    assert (answer["episode"], answer["ended"]) == (None, [])
    assert (answer["errors"], answer["problems"]) == ([], [])


async def test_when_ten_are_back_the_other_two_are_fenced_one_after_the_other(storm: Storm) -> None:
    """S14, S17: the brake opens by itself; under a cap of one no two machines are ever off, or in hand, at once."""
    system = storm.system
    for name in system.cluster.nodes:
        if name not in STAY_BROKEN:
            system.cluster.heal_node(name)

    async def the_other_is_refused_for_the_cap() -> bool:
        scanner = await system.scanner()
        return scanner is not None and any(refused.reason == AdmissionRefusal.CAP for refused in scanner.refused)

    await system.until(the_other_is_refused_for_the_cap, "the second waits for the first, and it is said", seconds=40)
    results = [await system.ended(storm.befores[name]) for name in STAY_BROKEN]
    assert [result.outcome for result in results] == [Outcome.RECOVERED] * 2

    logs = {name: commands(system, name) for name in STAY_BROKEN}
    assert {name: [entry.command for entry in log] for name, log in logs.items()} == {name: ["off", "on"] for name in STAY_BROKEN}
    first, second = sorted(results, key=lambda result: result.started)
    assert first.ended <= second.started
    assert logs[first.node][-1].at < logs[second.node][0].at
    assert [name for name in system.cluster.nodes if name not in STAY_BROKEN and commands(system, name)] == []

    await system.until(lambda: all(is_ready(node) for node in system.cluster.view.nodes), "all twelve are Ready")
    events = [event for event in await events_about(system, CHECKS.kind, CHECK) if "no new remediation" in event["message"]]
    assert [event.get("count", 1) for event in events] == [1]
    assert system.cluster.storage.violations == []

    async def remembered() -> bool:
        answer = await explained(system, first.node)
        return [each["incident"] for each in answer["ended"]] == [first.incident]

    await system.until(remembered, "explain tells of the episode that has ended")


async def explained(system: System, node: str) -> dict[str, Any]:
    """The answer of `nodewarden explain` on the live system."""
    command = [sys.executable, "-m", "starter.cli", "--config", str(system.config), "explain", node, "-o", "json"]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE, stderr=PIPE)
    output, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    answer: dict[str, Any] = json.loads(output)
    return answer
