"""A record of what was not repaired, on a real server: one per id, five events, found by its search attributes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from activities.observation_starter import ObservationStarter
from policy.observation.spells import OBSERVATION, Ending, NodeDays, ObservationRecord, Spell
from policy.values.mode import Mode
from starter.handles.history import History
from starter.handles.observations import Observations
from workflows.definitions.episodes import RecordedObservation

DUE = datetime(2026, 11, 28, 3, 12, tzinfo=UTC)
SPELL = Spell(node="node-7", check="c", cause="ReadyUnknown", since=DUE, due=DUE, ended=DUE, ending=Ending.CAME_BACK)


@pytest.fixture
async def starter(client: Client) -> AsyncIterator[ObservationStarter]:
    queue = f"observations-{uuid.uuid4().hex}"
    async with Worker(client, task_queue=queue, workflows=[RecordedObservation]):
        yield ObservationStarter(client, task_queue=queue)


async def test_a_repetition_makes_no_second_record(starter: ObservationStarter, client: Client) -> None:
    record = ObservationRecord(cluster=f"c-{uuid.uuid4().hex[:8]}", spells=(SPELL,))
    await starter.start(record)
    handle = client.get_workflow_handle(record.workflow_id, result_type=ObservationRecord)
    assert await handle.result() == record
    first = (await handle.describe()).run_id
    await starter.start(replace(record, spells=(replace(SPELL, traces=("told again",)),)))
    described = await handle.describe()
    assert (described.run_id, (await handle.fetch_history()).events[-1].event_id <= 6) == (first, True)
    found = {pair.key.name: pair.value for pair in described.typed_search_attributes}
    expected = {"Kind": OBSERVATION, "Node": "node-7", "Reason": "ReadyUnknown", "Outcome": "came-back", "RepairMode": "repair"}
    assert found | expected | {"Cluster": record.cluster} == found


async def test_a_record_under_another_id_is_refused(starter: ObservationStarter, client: Client) -> None:
    """It could hide the one of another node."""
    record = ObservationRecord(cluster="c", spells=(SPELL,))
    with pytest.raises(WorkflowFailureError) as refused:
        await client.execute_workflow(OBSERVATION, record, id=f"observation/{uuid.uuid4().hex}", task_queue=starter._task_queue)
    assert "expected the workflow id" in str(refused.value.cause)


async def test_node_days_and_storms_are_found_apart(starter: ObservationStarter, client: Client) -> None:
    cluster = f"c-{uuid.uuid4().hex[:8]}"
    days = ObservationRecord(cluster=cluster, days=(NodeDays(day="2026-11-28", check="c", mode=Mode.REPAIR, seconds=1.0),))
    storm = ObservationRecord(cluster=cluster, spells=(replace(SPELL, storm="s"), replace(SPELL, node="b", storm="s")))
    await asyncio.gather(starter.start(days), starter.start(storm))
    query = f"Cluster = '{cluster}' AND Kind = '{OBSERVATION}'"
    deadline = asyncio.get_running_loop().time() + timedelta(seconds=20).total_seconds()
    while len(found := [run async for run in client.list_workflows(query)]) < 2:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)
    outcomes = {pair.value for run in found for pair in run.typed_search_attributes if pair.key.name == "Outcome"}
    assert outcomes == {"node-days", "storm"}


async def test_a_record_is_found_for_its_node_and_for_the_cluster_at_its_moment(
    starter: ObservationStarter, client: Client
) -> None:
    """One of a storm has no node's name in visibility, and node-days are no spells."""
    cluster = f"c-{uuid.uuid4().hex[:8]}"
    due = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    held = replace(SPELL, since=due, due=due, ended=due + timedelta(minutes=9))
    days = NodeDays(day="2026-11-28", check="c", mode=Mode.REPAIR, seconds=1.0)
    in_storm = tuple(replace(held, node=node, storm="s") for node in ("a", "b"))
    await starter.start(ObservationRecord(cluster=cluster, days=(days,)))
    await starter.start(ObservationRecord(cluster=cluster, spells=in_storm))
    await starter.start(ObservationRecord(cluster=cluster, spells=(held,)))
    read, then = Observations(client, History(client)), due + timedelta(minutes=5)
    async with asyncio.timeout(20):
        while [each.node for each in (await read.spells_at(cluster, then)).spells] != ["a", "b", "node-7"]:
            await asyncio.sleep(0.1)
    assert (await read.spells_at(cluster, then, node="b")).spells == (in_storm[1],)
    assert (await read.spells_at(cluster, due - timedelta(minutes=1))).spells == ()
    (unknown,) = (await read.spells_at(cluster, then, node="b")).unknown
    assert unknown.startswith("spells that last, as the scanner does not say: ")
    found = await read.ended_spells(cluster, since=due, node="node-7")
    assert (found.spells, found.unknown) == ((held,), ())
    assert (await read.last_spells(cluster, "a")).spells == (in_storm[0],)
    assert (await read.ended_spells(cluster, since=due, limit=1)).unknown, "one record of two was left out"


@pytest.mark.parametrize(
    "found",
    [
        ValueError("no such field"),
        KeyError("Unknown payload encoding x"),
        None,
        ObservationRecord(cluster="b", spells=(SPELL,)),
        ObservationRecord(cluster="a", spells=(replace(SPELL, node="node-8"),)),
        ObservationRecord(cluster="a"),
        ObservationRecord(cluster="a", spells=(replace(SPELL, ended=datetime(2026, 11, 28)),)),  # noqa: DTZ001
    ],
    ids=[
        "unreadable",
        "in another encoding",
        "nothing",
        "of another cluster",
        "under another id",
        "of nothing",
        "without a zone",
    ],
)
async def test_s49_a_record_that_no_scanner_makes_is_left_out_and_counted(found: ObservationRecord | Exception | None) -> None:
    """S49: else one workflow that any client has started would end each `compare` and each look at a past moment for 90 days."""
    own = ObservationRecord(cluster="a", spells=(SPELL,))
    handle = SimpleNamespace(result=AsyncMock(side_effect=[found, own]))
    client = cast("Client", SimpleNamespace(get_workflow_handle=lambda *_args, **_options: handle))
    observations = Observations(client, cast("History", None))
    assert await observations._record("a", own.workflow_id, "run-1") is None
    assert await observations._record("a", own.workflow_id, "run-1") == own
