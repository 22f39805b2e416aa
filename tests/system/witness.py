"""What really happened to a node, seen by those who cannot be fooled by us: the chassis, the storage, and the API's own watches.

A `Witness` notes every consequence at the moment it becomes visible, with the truth about the machine's power at that moment. A
`Before` is how a node stood before it broke; `judge` holds an ended episode against both and says in sentences what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from policy.episode.messages import EpisodeResult, Outcome
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION
from simulator.bmc.machine import HAND, Machine, PowerCommand
from simulator.client import ApiError
from simulator.cluster import SimulatedCluster
from simulator.objects import OUT_OF_SERVICE, JsonObject, has_taint, is_terminating, key_of, name_of, node_of, uid_of
from simulator.resources import LEASES, NODES

NODE_LEASES = "medik8s-leases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """Something that only a proof of off licenses. `power`: the truth at that moment; `uid`: of the pod or attachment."""

    at: datetime
    node: str
    what: str
    name: str
    uid: str
    power: str

    def __str__(self) -> str:
        return f"{self.what} {self.name} of {self.node} at {self.at:%H:%M:%S.%f}, machine {self.power}"


class Witness:
    """Listens to the watches of a simulated cluster from the moment it is made."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.consequences: list[Consequence] = []
        self._cluster = cluster
        cluster.view.pods.subscribe(self._pod_changed)
        cluster.view.attachments.subscribe(self._attachment_changed)
        cluster.view.nodes.subscribe(self._node_changed)
        self.tainted_at_power_on: list[PowerCommand] = []
        for name in cluster.nodes:
            cluster.chassis.machine(name).on_change(self._power_changed)

    def of(self, node: str, since: datetime) -> list[Consequence]:
        """What was seen of a node since then."""
        return [each for each in self.consequences if each.node == node and each.at >= since]

    def _pod_changed(self, before: JsonObject | None, after: JsonObject | None) -> None:
        if before is None or not node_of(before):
            return
        if after is None or uid_of(after) != uid_of(before):
            self._note("deletion of pod", node_of(before), before)
        elif is_terminating(after) and not is_terminating(before):
            self._note("eviction of pod", node_of(before), before)

    def _attachment_changed(self, before: JsonObject | None, after: JsonObject | None) -> None:
        if before is not None and (after is None or (is_terminating(after) and not is_terminating(before))):
            self._note("detachment", before["spec"]["nodeName"], before)

    def _node_changed(self, before: JsonObject | None, after: JsonObject | None) -> None:
        if after is not None and has_taint(after, OUT_OF_SERVICE) and not (before and has_taint(before, OUT_OF_SERVICE)):
            self._note("out-of-service taint", name_of(after), after)

    def _power_changed(self, command: PowerCommand) -> None:
        node = self._cluster.view.nodes.get(command.machine)
        if command.command == "on" and node is not None and has_taint(node, OUT_OF_SERVICE):
            self.tainted_at_power_on.append(command)

    def _note(self, what: str, node: str, obj: JsonObject) -> None:
        self.consequences.append(
            Consequence(
                at=datetime.now(UTC),
                node=node,
                what=what,
                name=key_of(obj),
                uid=uid_of(obj),
                power=self._cluster.chassis.machine(node).power,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """A node as it stood before it was broken."""

    at: datetime
    node: str
    commands: int
    """How many commands its machine had seen."""
    violations: int
    victims: frozenset[str]
    """Uids of what an early consequence would hit: its pods, its attachments, itself."""
    annotations: dict[str, str]
    taints: tuple[str, ...]

    @classmethod
    def of(cls, cluster: SimulatedCluster, node: str) -> Before:
        obj = cluster.view.nodes.get(node)
        assert obj is not None, f"no Node {node}"
        objects = [obj, *cluster.view.pods_by_node[node], *cluster.view.attachments_by_node[node]]
        return cls(
            at=datetime.now(UTC),
            node=node,
            commands=len(cluster.chassis.machine(node).log),
            violations=len(cluster.storage.violations),
            victims=frozenset(uid_of(each) for each in objects),
            annotations=dict(obj["metadata"].get("annotations") or {}),
            taints=_taints(obj),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLog:
    """What a machine's devices were told since some moment, by the chassis' own log."""

    commands: tuple[PowerCommand, ...]

    @classmethod
    def of(cls, machine: Machine, before: Before) -> PowerLog:
        return cls(commands=tuple(entry for entry in machine.log[before.commands :] if entry.device != HAND))

    def count(self, command: str) -> int:
        return sum(entry.command == command for entry in self.commands)

    @property
    def transitions(self) -> list[str]:
        """What really changed, in order."""
        changes = [entry for entry in self.commands if entry.outcome == "done" and entry.from_power != entry.to_power]
        return [f"{entry.from_power}→{entry.to_power}" for entry in changes]

    def problems(self, proof_at: datetime) -> Iterable[str]:
        """Everything but one off before the proof and one on after it, in sentences."""
        if self.transitions != ["on→off", "off→on"]:
            yield f"expected one off and one on, the machine went {', '.join(self.transitions) or 'nowhere'}"
        for entry in self.commands:
            if entry.command == "off" and entry.at > proof_at:
                yield f"power off at {entry.at:%H:%M:%S.%f}, after the proof of {proof_at:%H:%M:%S.%f}"
            elif entry.command not in {"on", "off"} or entry.from_power == entry.to_power:
                yield f"redundant power {entry.command} at {entry.at:%H:%M:%S.%f}: it was {entry.from_power}"
            elif entry.command == "on" and entry.at <= proof_at:
                yield f"power on at {entry.at:%H:%M:%S.%f}, before the proof of {proof_at:%H:%M:%S.%f}"


def proof_moment(result: EpisodeResult) -> datetime | None:
    """When off was first proven in that episode, by its decision record."""
    return next((entry.at for entry in result.record if entry.act == "off-proven"), None)


def judge(cluster: SimulatedCluster, witness: Witness, before: Before, result: EpisodeResult) -> list[str]:
    """What is wrong with an episode that should have ended `recovered` (S1, S2, S5, S32, S33); nothing where all is well."""
    problems: list[str] = []
    if result.outcome is not Outcome.RECOVERED:
        problems.append(f"ended {result.outcome.value}: {result.message}")
    proof_at = proof_moment(result)
    if proof_at is None or result.off_proof is None or not result.off_proof.readings:
        return [*problems, "off was never proven by a reading"]
    problems += PowerLog.of(cluster.chassis.machine(before.node), before).problems(proof_at)
    problems += early(witness, before, proof_at)
    too_soon = [each for each in witness.tainted_at_power_on if each.machine == before.node and each.at >= before.at]
    problems += [f"power on at {each.at:%H:%M:%S.%f} while the node is tainted out-of-service" for each in too_soon]
    problems += [f"two writers: {violation}" for violation in cluster.storage.violations[before.violations :]]
    return problems


def early(witness: Witness, before: Before, proof_at: datetime) -> list[str]:
    """Consequences for what stood on the node when it broke that came before the proof, or while the machine was on (S1)."""
    hits = [each for each in witness.of(before.node, before.at) if each.uid in before.victims]
    return [f"before the proof: {each}" for each in hits if each.at < proof_at or each.power != "off"]


LEASE_LEFT = "the node's maintenance lease is left"


async def left_over(cluster: SimulatedCluster, before: Before) -> list[str]:
    """What of ours still stands on the node, and what of others' has changed; read live (S28, S35)."""
    try:
        obj = await cluster.client.get(NODES.path(before.node))
    except ApiError as error:
        if not error.not_found:
            raise
        return await _lease_left(cluster, before)  # its Machine was deleted
    annotations: dict[str, str] = obj["metadata"].get("annotations") or {}
    annotations.pop(LAST_REMEDIATION_ANNOTATION, None)  # the memory of a remediation, which is to stay
    problems: list[str] = []
    if MARK_ANNOTATION in annotations:
        problems.append(f"our mark is left: {annotations[MARK_ANNOTATION]}")
    if MARK_LABEL in obj["metadata"]["labels"]:
        problems.append("the label of our mark is left")
    if obj["spec"].get("unschedulable"):
        problems.append("the cordon is left")
    if _taints(obj) != before.taints:
        problems.append(f"taints were {list(before.taints)}, are {list(_taints(obj))}")
    if annotations != before.annotations:
        problems.append(f"annotations were {before.annotations}, are {annotations}")
    return [*problems, *await _lease_left(cluster, before)]


async def _lease_left(cluster: SimulatedCluster, before: Before) -> list[str]:
    is_there = await _exists(cluster, LEASES.path(f"node-{before.node}", namespace=NODE_LEASES))
    return [LEASE_LEFT] if is_there else []


async def _exists(cluster: SimulatedCluster, path: str) -> bool:
    try:
        await cluster.client.get(path)
    except ApiError as error:
        if error.not_found:
            return False
        raise
    return True


THE_CLUSTER_S_OWN = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Taints that come and go with the heartbeats, which are late where this machine is busy."""


def _taints(node: JsonObject) -> tuple[str, ...]:
    taints: Sequence[JsonObject] = node["spec"].get("taints") or ()
    others = (taint for taint in taints if taint["key"] not in THE_CLUSTER_S_OWN)
    return tuple(sorted(f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in others))
