"""A kubelet may write the annotations of its Node and may not take its taints away: our mark must not do that for it (S41, S28).

The attacker changes nothing but the annotation `nodewarden.io/episode` of a Node. Workers run under the shipped rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from policy.episode.messages import Outcome, Phase
from policy.objects.marks import Mark, parse_mark
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL
from simulator.client import ApiClient, ApiError
from simulator.resources import NODES
from tests.policy.builders import mark_metadata
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import commands, events_about, in_phase, is_open, status
from tests.system.test_api_restarts import under_shipped_rights

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

KUBELET_OF = "node-2"
SECURITY = (
    {"key": "security/quarantine", "value": "true", "effect": "NoExecute"},
    {"key": "security/look", "effect": "NoSchedule"},
)
SPELLED = ("security/quarantine=true:NoExecute", "security/look:NoSchedule")
LONG_ENOUGH = 6.0
"""A clean-up of marks that nobody holds would be open by then."""


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing(nodes=5, demo_workloads=False) as running:
        await under_shipped_rights(running)
        await running.start_worker()
        await running.apply_policy(plan={"waitBeforePower": "4s"}, check={"minHealthy": 1})
        await running.start_scanner(cap=2)
        yield running


def forged(system: System, node: str, **changes: Any) -> Mark:
    """What an episode that is long gone would have left there."""
    workflow_id = f"episode/{system.cluster_name}/{node}"
    mark = Mark(incident="long-gone", kind="Fencing", workflow_id=workflow_id, cordoned=True, out_of_service=True, taints=SPELLED)
    return replace(mark, **changes)


@asynccontextmanager
async def kubelet(system: System, node: str) -> AsyncIterator[ApiClient]:
    """A client with the rights of that node's kubelet."""
    address = replace(system.cluster.address, token=await system.token_of(f"system:node:{node}"))
    async with ApiClient(address, user_agent="kubelet") as client:
        yield client


async def write(system: System, node: str, mark: Mark | str) -> None:
    """As the kubelet of that node: the annotation and nothing else."""
    value = mark if isinstance(mark, str) else mark.to_json()
    async with kubelet(system, node) as client:
        await client.patch(NODES.path(node), {"metadata": {"annotations": {MARK_ANNOTATION: value}}})


async def test_a_kubelet_can_write_neither_the_label_nor_what_the_mark_is_about(system: System) -> None:
    """On this the label rests."""
    async with kubelet(system, KUBELET_OF) as client:
        for change in (
            {"metadata": {"labels": {MARK_LABEL: "0" * 40}}},
            {"metadata": mark_metadata(forged(system, KUBELET_OF).to_json())},
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        ):
            with pytest.raises(ApiError) as refused:
                await client.patch(NODES.path(KUBELET_OF), change)
            assert refused.value.status == 403
        await client.patch(NODES.path(KUBELET_OF), {"metadata": {"annotations": {"anything": "else"}}})


async def quarantine(system: System, node: str) -> None:
    """As the security team, who has cordoned it, too."""
    await system.client.patch(NODES.path(node), {"spec": {"taints": list(SECURITY), "unschedulable": True}})


async def still_quarantined(system: System, node: str) -> bool:
    spec = (await system.live_node(node))["spec"]
    return spec.get("unschedulable") is True and all(each in spec["taints"] for each in SECURITY)


async def told(system: System, node: str) -> bool:
    return any(each["reason"] == "MarkNotOurs" for each in await events_about(system, "Node", node))


async def test_a_mark_that_is_not_ours_takes_nothing_away_and_is_told_of(system: System) -> None:
    """Neither without a label nor with another one."""
    labels = {"node-1": None, "node-2": "0" * 40}
    for node, label in labels.items():
        await quarantine(system, node)
        await system.client.patch(NODES.path(node), {"metadata": {"labels": {MARK_LABEL: label}}})
        await write(system, node, forged(system, node))
    for node in labels:
        await system.until(partial(told, system, node), "an Event on the Node names it", seconds=20)
    await asyncio.sleep(LONG_ENOUGH)
    for node in labels:
        assert not await is_open(system, node)
        assert await still_quarantined(system, node)
        live = await system.live_node(node)
        left = parse_mark(live["metadata"]["annotations"][MARK_ANNOTATION], node=node)
        assert left.incident == "long-gone"  # a person's to remove


async def test_nor_does_it_keep_a_node_from_being_fenced(system: System) -> None:
    """Whoever has one more annotation would else be out of reach for ever: no mark at all, and that of another workflow."""
    foreign = forged(system, "node-4", workflow_id="somebody/elses", cordoned=False, taints=(), out_of_service=False)
    befores = []
    for node, mark in (("node-3", "not ours"), ("node-4", foreign)):
        await write(system, node, mark)
        befores.append(system.break_node(node, "kubelet-stops"))
    for before in befores:
        result = await system.ended(before)
        assert result.outcome is Outcome.RECOVERED
        assert [each.command for each in commands(system, before.node)] == ["off", "on"]
        metadata = (await system.live_node(before.node))["metadata"]
        assert MARK_ANNOTATION not in metadata.get("annotations", {})
        assert MARK_LABEL not in metadata["labels"]


async def test_a_mark_that_is_changed_while_its_episode_is_open_takes_nothing_of_others_away(system: System) -> None:
    """The kubelet knows the incident by then, and replays or amends what we wrote."""
    node = "node-5"
    await quarantine(system, node)
    before = system.break_node(node, "kubelet-stops")
    await in_phase(system, node, Phase.RUNNING)
    await system.warden.episode(system.cluster_name, node).hold(who="ada", reason="looks at it")
    live = await system.live_node(node)
    ours = parse_mark(live["metadata"]["annotations"][MARK_ANNOTATION], node=node)
    assert not ours.cordoned
    await write(system, node, replace(ours, cordoned=True, taints=SPELLED))
    await system.warden.episode(system.cluster_name, node).resume(who="ada", reason="go on", question=1)
    assert (await system.ended(before)).outcome is Outcome.RECOVERED
    assert await still_quarantined(system, node)
    assert MARK_LABEL not in (await system.live_node(node))["metadata"]["labels"]


async def test_a_mark_that_is_ours_is_looked_after_as_ever(system: System) -> None:
    """With its label it is believed: an episode is opened that takes away what a terminated one has left (S35)."""
    node = "node-2"
    await system.client.patch(NODES.path(node), {"metadata": mark_metadata(forged(system, node).to_json())})

    async def opened() -> bool:
        found = await status(system, node)
        return found is not None and found.reason == "carries the mark of incident long-gone, which is not open"

    await system.until(opened, "an episode cleans up", seconds=20)
