"""Machines that are repaired again and again, and what helps: found by visibility, as an activity and as commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities import temporal_clients
from activities.contracts import search_attributes
from activities.temporal_clients import MachineRepairs
from policy.episode.messages import FencingInput, Kind, Outcome, episode_id
from policy.history.offenders import FoundRepairs, OffenderAnswer, OffenderRules
from policy.history.step_outcomes import OutcomesReport
from starter.client import Nodewarden
from starter.output.history_table import report_table
from tests.policy.history.test_step_outcomes import ISOLATED, NOW, OFF, fencing, outcomes
from tests.starter.builders import drawn, nodewarden
from tests.starter.test_history import acknowledged, play

UUID = "4c4c4544-0042-3510-8052-b7c04f565931"
OTHER = "7d2f0a31-1111-4222-8333-944455556666"


@pytest.fixture
async def repaired(client: Client, warden: Nodewarden, cluster: str) -> AsyncIterator[str]:
    """A cluster in which one machine was repaired under two names, and is repaired again; another one once."""
    begun = []
    for node, hardware in (("node-7", UUID), ("gpu-1", UUID), ("node-2", OTHER), ("node-3", "")):
        attributes = search_attributes.of_episode(
            Kind.FENCING, cluster=cluster, node=node, reason=f"{node} is silent", hardware=hardware
        )
        workflow_id = episode_id(cluster, node)
        begun.append(
            await client.start_workflow(
                "Fencing",
                FencingInput(cluster=cluster, node=node),
                id=workflow_id,
                task_queue=f"unserved-{cluster}",
                search_attributes=attributes,
            )
        )
    since = datetime.now(UTC) - timedelta(hours=1)
    async with asyncio.timeout(20):
        while len((await warden.history.offenders(cluster, since, OffenderRules()))[0]) < 2:
            await asyncio.sleep(0.1)
        while len((await warden.history.offenders(cluster, since, OffenderRules()))[0][0].repairs) < 2:
            await asyncio.sleep(0.1)
    yield cluster
    for each in begun:
        await each.terminate()


async def asked(client: Any, cluster: str, node: str, rules: OffenderRules, hardware: str = UUID) -> FoundRepairs:
    surroundings = ActivityEnvironment()
    surroundings.info = replace(surroundings.info, workflow_id=episode_id(cluster, node))
    found = await surroundings.run(MachineRepairs(client, cluster, rules).found, node, hardware)
    assert isinstance(found, FoundRepairs)
    return found


async def test_an_episode_counts_all_repairs_of_its_machine_and_itself_once(client: Client, repaired: str) -> None:
    """Under all names of its Node. The one that asks is open in visibility, or not yet: either way it is one."""
    found = await asked(client, repaired, "node-7", OffenderRules(limit=2))
    assert "was repaired 2 times within 28 days: as node-7 1 time, gpu-1 1 time" in found.offence
    assert not found.asks
    found = await asked(client, repaired, "new-name", OffenderRules(limit=3, answer=OffenderAnswer.ASK))
    assert "was repaired 3 times" in found.offence
    assert (found.asks, found.keeps) == (True, False)
    found = await asked(client, repaired, "new-name", OffenderRules(limit=3, answer=OffenderAnswer.KEEP))
    assert (found.asks, found.keeps) == (True, True)
    assert await asked(client, repaired, "node-7", OffenderRules(limit=3, answer=OffenderAnswer.ASK)) == FoundRepairs()
    assert await asked(client, repaired, "node-2", OffenderRules(limit=2), OTHER) == FoundRepairs()


class Silent:
    """A Temporal that never answers."""

    async def list_workflows(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        await asyncio.Future[None]()
        yield


async def test_s37_a_visibility_that_does_not_answer_is_waited_for_a_moment_and_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S53: where a person is to be asked, the machine may be an offender as long as that is not known."""
    monkeypatch.setattr(temporal_clients, "WITHIN_WHERE_ASKED", timedelta(seconds=1.1))
    async with asyncio.timeout(5):
        found = await asyncio.gather(*(asked(Silent(), "prod", "n", OffenderRules(answer=each)) for each in OffenderAnswer))
    assert {each.problem for each in found} == {"Temporal can't list the repairs of the machine: no answer in time"}
    assert [(each.asks, each.keeps) for each in found] == [(False, False), (True, False), (True, True)]


async def test_s41_nothing_is_asked_of_what_is_no_system_uuid() -> None:
    assert await asked(None, "prod", "node-7", OffenderRules(), "x' OR Node = 'y") == FoundRepairs()


async def test_offenders_lists_machines_by_their_hardware_with_all_names(keyboard: Path, repaired: str) -> None:
    settings = keyboard / ".config/nodewarden/nodewarden.yaml"
    settings.write_text(settings.read_text() + "\noffenders: {limit: 2}\n")
    found = json.loads((await nodewarden("offenders", "-c", repaired, "-o", "json")).stdout)
    assert (found["cluster"], found["limit"], found["more"]) == (repaired, 2, False)
    assert [(each["hardware"], sorted(each["nodes"]), len(each["repairs"]), each["offends"]) for each in found["machines"]] == [
        (UUID, ["gpu-1", "node-7"], 2, True),
        (OTHER, ["node-2"], 1, False),
    ]
    told = " ".join((await nodewarden("offenders", "-c", repaired, "--since", "1d")).stdout.split())
    assert f"{UUID} 2, offends " in told or f"{UUID} repairs: 2, offends, the last at 20" in told
    assert "gpu-1, node-7: " in told or "node-7, gpu-1: " in told
    assert "node-2: node-2 is silent" in told
    assert "offends: 2 repairs or more" in told


async def test_report_counts_what_has_ended(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    await play(warden, cluster, ("node-1", acknowledged))
    found = json.loads((await nodewarden("report", "-c", cluster, "--since", "30d", "-o", "json")).stdout)
    assert (found["episodes"], found["steps"]) == (1, []), "the stand-in has isolated nothing"
    assert "no step was tried" in (await nodewarden("report", "-c", cluster)).stdout
    assert "such as 90m, 72h or 30d" in (await nodewarden("report", "-c", cluster, "--since", "many")).stderr


def test_the_table_has_shares_times_and_waiting_apart() -> None:
    report: OutcomesReport = outcomes("prod", NOW, [fencing(ISOLATED, OFF), fencing(ISOLATED, outcome=Outcome.RELEASED)])
    lines = [" ".join(line.split()) for line in drawn(report_table(report), width=200)]
    assert lines == [
        "REASON STEP TRIES HELPED HOW LONG IT TOOK",
        (
            "ReadyUnknown fencing 2 1 (50 %) safe within 2m00s (half), 2m00s (nine of ten); "
            "in service within 10m00s (half), 10m00s (nine of ten)"
        ),
        "2 ended episodes; safe: the machine was proven off; waiting for people is not in the times",
    ]
    narrow = drawn(report_table(report), width=80)
    assert (narrow[0].split()[:5], narrow[1].split()[:2]) == (
        ["REASON", "STEP", "TRIES", "HELPED", "HOW"],
        ["ReadyUnknown", "fencing"],
    )
    assert "ReadyUnknown, fencing: safe within 2m00s (half)" in " ".join(drawn(report_table(report), width=60))
