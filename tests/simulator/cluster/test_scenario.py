"""Scenario files: what they may say, what they refuse and how, and that they happen."""

from __future__ import annotations

import pytest

from simulator.scenario import FOLDER, Scenario
from tests.simulator.cluster.conftest import Observer

pytestmark = pytest.mark.timeout(30)


def test_steps_come_in_the_order_of_their_times() -> None:
    scenario = Scenario.read("steps: [{at: 2s, heal: {node: a}}, {at: 1s, break: {node: a, how: power-cut}}]")
    assert [step.how for step in scenario.steps] == ["power-cut", ""]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
async def test_every_scenario_that_we_ship_can_be_read(path: object) -> None:
    scenario = Scenario.load(str(path))
    assert scenario.description
    assert scenario.steps


async def test_a_scenario_happens(observer: Observer) -> None:
    member = observer.cluster.node_of_pod("demo/database-0")
    scenario = Scenario.read(
        """
        steps:
          - {at: 0s, break: {pod: demo/database-0, how: kernel-hangs}}
          - {at: 0s, break: {zone: zone-b, how: power-cut}}
          - {at: 50ms, heal: {all: true}}
          - {at: 60ms, break: {nodes: [node-1, node-3], how: kubelet-stops}}
        """
    )
    scenario.steps[0].carry_out(observer.cluster)
    assert observer.cluster.node(member).fault == "kernel-hangs"
    scenario.steps[1].carry_out(observer.cluster)
    assert [node.name for node in observer.cluster.nodes.values() if not node.is_on] == ["node-2", "node-5"]
    await scenario.run(observer.cluster)
    assert {node.name for node in observer.cluster.nodes.values() if node.fault} == {"node-1", "node-3"}
    assert all(node.is_on for node in observer.cluster.nodes.values())
