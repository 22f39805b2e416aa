"""What the simulated remediation operators have in common: each follows objects of one kind and does to nodes what those ask for.

They stand in for software of other people (`__init__.py` lists them), which a health check drives by creating an object, reading
its conditions and deleting it. Each keeps to what that software shows to the outside (names, conditions, phases, annotations,
finalizers, what is done to the node and in which order) and has doors for the ways in which it may fail. How they look inside is
ours. What they leave out is said in each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from simulator.bmc.machine import Power
from simulator.client import ApiClient, ApiError
from simulator.controllers.runtime import Controller, own_key
from simulator.informer import ClusterView, Informer, MachineView
from simulator.machine_systems.contract import MachineSystem
from simulator.node import SimulatedNode
from simulator.objects import (
    OUT_OF_SERVICE,
    JsonObject,
    has_taint,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    taints_of,
    timestamp,
    uid_of,
)
from simulator.resources import EVENTS, NODES, PODS, Resource

TIMED_OUT = "remediation.medik8s.io/nhc-timed-out"
"""On a remediation: its creator waits no longer, and tries something else. Any value."""
NODE_NAME = "remediation.medik8s.io/node-name"
"""On a remediation that is not named as its node is: the node that it is about."""
EXCLUDED = "remediation.medik8s.io/exclude-from-remediation"
"""Label of a Node that is to be left alone, if it is `true`."""

PROCESSING, SUCCEEDED = "Processing", "Succeeded"
TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"

OUT_OF_SERVICE_TAINT = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediatorTimings:
    """How long the operators take, in seconds. The defaults are those of the real ones.

    poll: between two looks at what is not watched. assume_rebooted: from preparing a reboot until self-node-remediation believes
    in it. agent: until the agent on a node has rebooted it. taint_patience: for how long after that moment out-of-service may
    stand on a node with workloads that do not go. machine_poll: between two looks at whether a deleted Machine has been replaced.
    device: how long a fence agent looks at a device that was told to switch off. power: what a baremetal operator takes to
    switch a host. power_on: for how long it may then stay away. metal3_second: how long a second of a Metal3Remediation's own
    time-out lasts, of which its schema wants a hundred.
    """

    poll: float = 5.0
    assume_rebooted: float = 180.0
    agent: float = 1.0
    taint_patience: float = 60.0
    machine_poll: float = 30.0
    device: float = 20.0
    power: float = 1.0
    power_on: float = 1200.0
    metal3_second: float = 1.0


class Hands(Protocol):
    """What an operator can do to the machines, past the API. device: through which device, as the log of the chassis has it."""

    def machine(self, name: str) -> SimulatedNode | None:
        """The machine of that name; None where there is none any more."""

    async def reboot(self, name: str) -> None:
        """As from within: no device has a part in it."""

    async def switch(self, name: str, power: Power, *, device: str) -> None:
        """Returns once the device has accepted it. Raises RefusedError where that says no."""

    async def read(self, name: str, *, device: str) -> Power:
        """What the device says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an operator is put into. machines, system: the Machines of the cluster, None where it has none."""

    client: ApiClient
    view: ClusterView
    hands: Hands
    timings: RemediatorTimings
    machines: MachineView | None = None
    system: MachineSystem | None = None


class Remediator(Controller):
    """One operator, which works per object of the kind that it follows. `run` it once.

    name_to_ask_for: in `SimulatedCluster(remediators=...)`. crds: folders of `crds/` with its kinds. needs: the systems of
    Machines (`machine_systems/`) that it can work with, none where it does without.
    """

    name_to_ask_for: ClassVar[str]
    crds: ClassVar[Sequence[str]]
    remediations: ClassVar[Resource]
    needs: ClassVar[Sequence[str]] = ()

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around.client, around.view)
        self.objects = Informer(around.client, self.remediations)
        self.hands = around.hands
        self.timings = around.timings
        self._around = around
        self.look_on(self.objects, own_key)

    @classmethod
    def refuse_elsewhere(cls, system: str) -> None:
        """Raises ValueError where the cluster has not the Machines that it needs. system: those that it has, "" for none."""
        if cls.needs and system not in cls.needs:
            wanted = " or ".join(cls.needs)
            raise ValueError(f"{cls.name_to_ask_for} works on Machines: expected machines={wanted!r}, not {system or None!r}")

    @classmethod
    def templates(cls) -> Resource:
        """The kind of the templates that its objects are made from."""
        kind = f"{cls.remediations.kind}Template"
        return Resource(api_version=cls.remediations.api_version, kind=kind, plural=f"{kind.lower()}s")

    @classmethod
    def template(cls, name: str, *, namespace: str, spec: JsonObject | None = None) -> JsonObject:
        """A template as a user writes it. spec: that of the objects."""
        kind = cls.templates()
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"template": {"spec": spec or {}}},
        }

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.objects.run(), name=f"informer {self.remediations.plural}")
            await self.objects.synced.wait()
            group.create_task(super().run(), name=self.name)

    @property
    def machines(self) -> MachineView:
        assert self._around.machines is not None
        return self._around.machines

    @property
    def system(self) -> MachineSystem:
        assert self._around.system is not None
        return self._around.system

    # Objects

    def node_name_of(self, remediation: JsonObject) -> str:
        """The node that it is about: that of the Machine that owns it, else the annotation's, else that of its own name; ""
        while the Machine has no node."""
        owners = remediation["metadata"].get("ownerReferences") or ()
        if any(owner["kind"] == "Machine" for owner in owners) and all(owner["kind"] != "NodeHealthCheck" for owner in owners):
            machine = self.machine_of(remediation)
            return self.system.node_named(machine) if machine is not None else ""
        return annotation(remediation, NODE_NAME) or name_of(remediation)

    def machine_of(self, remediation: JsonObject) -> JsonObject | None:
        """The Machine that owns it; None where none does, and where it is gone."""
        if self._around.machines is None:
            return None
        owners = remediation["metadata"].get("ownerReferences") or ()
        uids = {owner["uid"] for owner in owners if owner["kind"] == "Machine"}
        return next((each for each in self._around.machines.machines if uid_of(each) in uids), None)

    # Writing

    async def patch(
        self, obj: JsonObject, change: JsonObject, *, informer: Informer | None = None, subresource: str = ""
    ) -> JsonObject:
        """With the version that was looked at. The answer is what stands there now."""
        seen_by = informer or self.objects
        path = seen_by.resource.path_of_key(key_of(obj), subresource=subresource)
        metadata = {**change.get("metadata", {}), "resourceVersion": obj["metadata"]["resourceVersion"]}
        answer = await self.client.patch(path, {**change, "metadata": metadata})
        if not is_terminating(answer) or answer["metadata"].get("finalizers"):
            seen_by.remember(answer)
        return answer

    async def say(self, remediation: JsonObject, reason: str, message: str = "", **conditions: str) -> JsonObject:
        """Set these conditions, all for one reason; nothing is written where they stand already."""
        changed = with_conditions(remediation, {kind: (status, reason, message) for kind, status in conditions.items()})
        if changed is None:
            return remediation
        return await self.patch(remediation, {"status": {"conditions": changed}}, subresource="status")

    async def hold(self, remediation: JsonObject, finalizer: str) -> JsonObject:
        """Keep the object from vanishing before its work is undone."""
        finalizers = remediation["metadata"].get("finalizers") or []
        if finalizer in finalizers:
            return remediation
        return await self.patch(remediation, {"metadata": {"finalizers": [*finalizers, finalizer]}})

    async def let_go(self, remediation: JsonObject, finalizer: str) -> JsonObject:
        finalizers = remediation["metadata"].get("finalizers") or []
        if finalizer not in finalizers:
            return remediation
        return await self.patch(remediation, {"metadata": {"finalizers": [each for each in finalizers if each != finalizer]}})

    async def taint(self, node: JsonObject, *taints: Mapping[str, str]) -> JsonObject:
        wanted = [{**each, "timeAdded": timestamp()} for each in taints if not has_taint(node, each["key"], each["effect"])]
        if not wanted:
            return node
        return await self._set_taints(node, [*taints_of(node), *wanted])

    async def remove_taint(self, node: JsonObject, *taints: Mapping[str, str]) -> JsonObject:
        ours = {(each["key"], each["effect"]) for each in taints}
        kept = [each for each in taints_of(node) if (each["key"], each["effect"]) not in ours]
        return node if len(kept) == len(taints_of(node)) else await self._set_taints(node, kept)

    async def _set_taints(self, node: JsonObject, taints: Sequence[JsonObject]) -> JsonObject:
        return await self.patch(node, {"spec": {"taints": list(taints)}}, informer=self.view.nodes)

    async def delete_node(self, node: JsonObject) -> None:
        await self._delete(NODES.path(name_of(node)), node)

    async def delete_pods(self, node: str) -> None:
        """All that are bound to the node, at once and by force: the caller vouches that nothing runs there any more."""
        for pod in self.view.pods_by_node[node]:
            await self._delete(PODS.path_of_key(key_of(pod)), pod, grace_seconds=0)

    async def _delete(self, path: str, obj: JsonObject, *, grace_seconds: int | None = None) -> None:
        try:
            await self.client.delete(path, uid=uid_of(obj), grace_seconds=grace_seconds)
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise

    async def tell(self, about: JsonObject, reason: str, message: str) -> None:
        """A warning for people, as an Event."""
        namespace = namespace_of(about) or "default"
        involved = {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": name_of(about), "uid": uid_of(about)}
        if namespace_of(about):
            involved["namespace"] = namespace
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name_of(about)}.", "namespace": namespace},
            "involvedObject": involved,
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": self.name_to_ask_for},
            "firstTimestamp": timestamp(),
            "lastTimestamp": timestamp(),
            "count": 1,
        }
        await self.client.create(EVENTS.path(namespace=namespace), event)

    def is_drained(self, node: str) -> bool:
        """Nothing that is being deleted is left there, and no volume."""
        going = any(is_terminating(pod) for pod in self.view.pods_by_node[node])
        return not going and not self.view.attachments_by_node[node]


def annotation(obj: JsonObject, key: str) -> str:
    """An annotation's value, "" where there is none."""
    return str((obj["metadata"].get("annotations") or {}).get(key, ""))


def is_given_up(remediation: JsonObject) -> bool:
    """Its creator waits no longer."""
    return TIMED_OUT in (remediation["metadata"].get("annotations") or {})


def with_conditions(obj: JsonObject, wanted: Mapping[str, tuple[str, str, str]]) -> list[JsonObject] | None:
    """All conditions of a status with these (status, reason, message) as they are now; None where none has another status.

    As medik8s' operators do it: what has its status already keeps the reason that it had.
    """
    known = {each["type"]: dict(each) for each in (obj.get("status") or {}).get("conditions") or ()}
    changed = {kind: said for kind, said in wanted.items() if known.get(kind, {}).get("status") != said[0]}
    if not changed:
        return None
    for kind, (status, reason, message) in changed.items():
        told = {"status": status, "reason": reason, "message": message, "lastTransitionTime": timestamp()}
        known[kind] = {"type": kind, **told}
    return list(known.values())
