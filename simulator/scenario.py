"""Scenarios: what breaks when, as small YAML files that people can read and write.

    description: a kubelet stops, and a little later a kernel hangs under a database
    steps:
      - at: 3s
        break: {node: node-3, how: kubelet-stops}
      - at: 5s
        break: {pod: demo/database-1, how: kernel-hangs}
      - at: 60s
        heal: {zone: zone-a}

A target is one of `node: NAME`, `nodes: [NAME, ...]`, `pod: NAMESPACE/NAME` (the node it runs on at that moment), `zone: NAME`,
or `all: true`. Times count from the start of the scenario. How a node can break is said in `node.py` and
`platforms/contract.py`. `zone-a` is the first zone on every platform. `platform: aws` beside the steps says on which the scenario
happens, `machines: gardener` which system's Machines the workers are (`machine_systems/`): `up --scenario` takes both, and a
cluster that is otherwise refuses it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from simulator.cluster import SimulatedCluster
from simulator.machine_systems import MACHINE_SYSTEMS
from simulator.objects import seconds_of
from simulator.platforms import PLATFORMS

FOLDER = Path(__file__).parent / "scenarios"
_FIELDS = {"description", "platform", "machines", "steps"}
_TARGETS = ("node", "nodes", "pod", "zone", "all")


class ScenarioError(ValueError):
    """The file does not say what it should; the text names the step and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One accident, or its end. `how` is empty for a healing."""

    at_seconds: float
    how: str
    target: str
    value: Any

    @classmethod
    def read(cls, raw: Any, *, where: str) -> Self:
        if not isinstance(raw, dict) or len(raw.keys() & {"break", "heal"}) != 1 or raw.keys() - {"at", "break", "heal"}:
            raise ScenarioError(f"{where}: expected `at` and one of `break` or `heal`, not {raw!r}")
        breaks = "break" in raw
        act = raw["break"] if breaks else raw["heal"]
        if not isinstance(act, dict):
            raise ScenarioError(f"{where}: expected a target, as in {{node: node-1}}, not {act!r}")
        targets = [key for key in _TARGETS if key in act]
        unknown = act.keys() - set(_TARGETS) - ({"how"} if breaks else set())
        if len(targets) != 1 or unknown:
            raise ScenarioError(f"{where}: expected exactly one of {', '.join(_TARGETS)}{' and `how`' * breaks}, not {act!r}")
        if breaks and not act.get("how"):
            raise ScenarioError(f"{where}: `how` says how it breaks, e.g. kubelet-stops")
        return cls(
            at_seconds=seconds(raw.get("at", 0), where=f"{where}.at"),
            how=str(act.get("how", "")),
            target=targets[0],
            value=act[targets[0]],
        )

    def nodes(self, cluster: SimulatedCluster) -> list[str]:
        """The names of the nodes this step is about, now."""
        match self.target:
            case "node":
                return [cluster.node(str(self.value)).name]
            case "nodes":
                return [cluster.node(str(name)).name for name in self.value]
            case "pod":
                return [cluster.node_of_pod(str(self.value))]
            case "zone":
                zone = cluster.zone_called(str(self.value))
                found = [node.name for node in cluster.nodes.values() if node.identity.zone == zone]
                if not found:
                    raise LookupError(f"no node in zone {self.value!r}")
                return found
            case _:
                return list(cluster.nodes)

    def carry_out(self, cluster: SimulatedCluster) -> None:
        for name in self.nodes(cluster):
            if self.how:
                cluster.break_node(name, self.how)
            else:
                cluster.heal_node(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A list of steps in the order of their times."""

    description: str = ""
    steps: tuple[Step, ...] = field(default=())
    platform: str = ""
    """On which it happens, "" for any."""
    machines: str = ""
    """Which system's Machines the workers are, "" for any or none."""

    @classmethod
    def read(cls, text: str, *, source: str = "scenario") -> Self:
        raw = yaml.safe_load(text)
        if not isinstance(raw, dict) or not isinstance(raw.get("steps"), list) or raw.keys() - _FIELDS:
            known = "a mapping with `description`, a list `steps`, and as one likes `platform` and `machines`"
            raise ScenarioError(f"{source}: expected {known}")
        platform = raw.get("platform", "")
        if platform and platform not in PLATFORMS:
            raise ScenarioError(f"{source}: platform: expected one of {', '.join(PLATFORMS)}, got {platform!r}")
        machines = raw.get("machines", "")
        if machines and machines not in MACHINE_SYSTEMS:
            raise ScenarioError(f"{source}: machines: expected one of {', '.join(MACHINE_SYSTEMS)}, got {machines!r}")
        steps = [Step.read(each, where=f"{source}: steps[{index}]") for index, each in enumerate(raw["steps"])]
        return cls(
            description=str(raw.get("description", "")),
            steps=tuple(sorted(steps, key=lambda step: step.at_seconds)),
            platform=platform,
            machines=machines,
        )

    @classmethod
    def load(cls, name: str | Path) -> Self:
        """A file, or the name of one that comes with the simulator."""
        path = Path(name)
        shipped = FOLDER / f"{name}.yaml"
        if not path.exists() and shipped.exists():
            path = shipped
        return cls.read(path.read_text(), source=path.name)

    def refuse_elsewhere(self, cluster: SimulatedCluster) -> None:
        """Raise ScenarioError where the cluster's machines, or its Machines, are not those that it is about."""
        found = cluster.platform.name if cluster.hardware is not None else "none"
        if self.platform and self.platform != found:
            raise ScenarioError(f"the scenario happens on platform {self.platform}, and this cluster's is {found}")
        system = cluster.machines.system.name if cluster.has_machines else "none"
        if self.machines and self.machines != system:
            raise ScenarioError(f"the scenario is about Machines of {self.machines}, and this cluster's are of {system}")

    async def run(self, cluster: SimulatedCluster) -> None:
        self.refuse_elsewhere(cluster)
        loop = asyncio.get_running_loop()
        start = loop.time()
        for step in self.steps:
            await asyncio.sleep(max(0.0, start + step.at_seconds - loop.time()))
            step.carry_out(cluster)


def seconds(value: Any, *, where: str = "duration") -> float:
    """`3s`, `500ms`, `1m30s`, or a bare number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return seconds_of(value)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None
