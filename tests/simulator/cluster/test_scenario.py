"""Scenario files: what they may say, what they refuse and how, and that they happen."""

from __future__ import annotations

import pytest

from simulator.scenario import FOLDER, Scenario, ScenarioError, seconds
from tests.simulator.cluster.conftest import Observer

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize(
    ("text", "expected"), [("3s", 3.0), ("1m30s", 90.0), ("250ms", 0.25), (2, 2.0), (0.5, 0.5), ("1h", 3600.0)]
)
def test_durations(text: str | float, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "3", "s", "3 s", "-1s", "3sx", True, None])
def test_durations_that_are_none(text: object) -> None:
    with pytest.raises(ScenarioError, match="expected a duration"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[]", "expected a mapping"),
        ("steps: 3", "expected a mapping"),
        ("steps: []\nextra: 1", "expected a mapping"),
        ("steps: [{at: 1s}]", r"steps\[0\].*break.*heal"),
        ("steps: [{at: 1s, break: node-1}]", "expected a target"),
        ("steps: [{at: 1s, break: {node: node-1}}]", "`how`"),
        ("steps: [{at: 1s, break: {node: a, zone: b, how: c}}]", "exactly one of"),
        ("steps: [{at: soon, heal: {node: a}}]", r"steps\[0\].at"),
        ("steps: [{heal: {node: a, how: x}}]", "exactly one of"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said(text: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        Scenario.read(text)


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


async def test_targets_that_do_not_exist_are_refused(observer: Observer) -> None:
    with pytest.raises(LookupError, match="node-99"):
        observer.cluster.break_node("node-99", "kubelet-stops")
    with pytest.raises(ValueError, match="kubelet-stops"):
        observer.cluster.break_node("node-1", "bad-mood")
    with pytest.raises(ValueError, match="bad-mood"):
        observer.cluster.break_node("node-1", "bad-mood")
    with pytest.raises(LookupError, match="without BMCs"):
        observer.cluster.bmc_endpoint("node-1")
    observer.cluster.break_node("node-1", "power-cut")
    with pytest.raises(ValueError, match="is off"):
        observer.cluster.break_node("node-1", "kernel-hangs")
