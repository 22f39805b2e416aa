"""The machine controller: a Machine gets an instance, follows its Node's health, and loses both when it is deleted.

One for all systems (`machine_systems/`). Left out, knowingly: the drain that they all do first, and with it their hooks and
time-outs; deleting a Machine here switches its instance off under the pods. A controller that is restarted would
find its instances again by their tags; this one lives as long as the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from simulator.client import ApiClient, ApiError
from simulator.controllers.runtime import Controller, own_key
from simulator.informer import ClusterView, MachineView
from simulator.machine_systems.contract import ZONE, MachineSettings, MachineSystem, Sighting, provider_id_of
from simulator.objects import JsonObject, controller_of, is_terminating, key_of, name_of, namespace_of, uid_of
from simulator.resources import NODES

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """What a provider has made for a Machine."""

    node: str
    provider_id: str


class InstanceProvider(Protocol):
    """A cloud, as a machine controller has it. Instances are known by the uid of their Machine, as by a tag."""

    def refuses_to(self, owner: str) -> bool:
        """It makes no more instances for the Machines of this owner, a MachineSet as a rule."""

    def of(self, machine: str) -> Instance | None:
        """The instance of a Machine; None where it has none (any more)."""

    async def create(self, machine: str, *, zone: str, role: str, owner: str) -> Instance:
        """A new instance that boots; the one there is, where there is one."""

    async def switch_off(self, machine: str) -> None:
        """Returns when its power is off."""

    async def destroy(self, machine: str) -> None:
        """It never comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEvent:
    """Something that the controller did to a Machine's instance, its Node or its object: what, and when it was done."""

    machine: str
    node: str
    what: str
    at: datetime


def _owner_of(machine: JsonObject) -> str:
    return str((controller_of(machine) or {}).get("name", ""))


TAKING_DOWN = ("switched-off", "destroyed", "node-removed", "released")
"""What is done with a Machine that is being deleted, in this order."""


class Machines(Controller):
    """Works per Machine."""

    workers = 4

    def __init__(
        self,
        client: ApiClient,
        view: ClusterView,
        machines: MachineView,
        *,
        system: MachineSystem,
        provider: InstanceProvider,
        settings: MachineSettings,
    ) -> None:
        super().__init__(client, view)
        self.history: list[MachineEvent] = []
        self._machines = machines
        self._system = system
        self._provider = provider
        self._settings = settings
        self._first_seen: dict[str, float] = {}
        self._phases: dict[str, tuple[str, float]] = {}
        self._going: dict[str, tuple[int, float]] = {}
        self.look_on(machines.machines, own_key)
        self.look_on(view.nodes, self._machines_of)

    def _machines_of(self, node: JsonObject) -> Iterable[str]:
        provider_id = (node.get("spec") or {}).get("providerID") or ""
        return [key_of(machine) for machine in self._machines.machines_by_provider_id[provider_id]]

    async def reconcile(self, key: str) -> float | None:
        machine = self._machines.machines.get(key)
        if machine is None:
            return None
        if is_terminating(machine):
            return await self._take_down(machine)
        if self._system.finalizer not in (machine["metadata"].get("finalizers") or ()):
            finalizers = [*(machine["metadata"].get("finalizers") or ()), self._system.finalizer]
            await self._patch(machine, {"metadata": {"finalizers": finalizers}})
            return None
        wait = await self._provision(machine) if not provider_id_of(machine) else None
        machine = self._machines.machines.get(key) or machine
        node = self._machines.node_of(machine)
        judgement = self._system.judge(self._sighting(machine, node))
        await self._report(machine, judgement.status)
        if node is not None:
            await self._tie(machine, node)
        elif provider_id_of(machine) and self._provider.of(uid_of(machine)) is not None:
            # It asks its provider until the instance is up, and finds one that has been taken away.
            wait = max(0.1, self._settings.create)
        waits = [each for each in (wait, judgement.look_again) if each is not None]
        return min(waits) if waits else None

    # Life

    async def _provision(self, machine: JsonObject) -> float | None:
        """Give it an instance, once its provider has had its time."""
        now = asyncio.get_running_loop().time()
        began = self._first_seen.setdefault(uid_of(machine), now)
        if now < began + self._settings.create:
            return began + self._settings.create - now
        owner, known = _owner_of(machine), machine["metadata"].get("labels") or {}
        if self._provider.refuses_to(owner):
            return max(0.1, self._settings.create)
        role = str(known.get("role", "worker"))
        instance = await self._provider.create(uid_of(machine), zone=known.get(ZONE, ""), role=role, owner=owner)
        labels = self._system.labels_with(instance.node)
        await self._patch(machine, {"metadata": {"labels": labels}, "spec": {"providerID": instance.provider_id}})
        self._note(machine, "created")
        return None

    def _sighting(self, machine: JsonObject, node: JsonObject | None) -> Sighting:
        now = asyncio.get_running_loop().time()
        uid, phase = uid_of(machine), self._system.phase(machine)
        if self._phases.get(uid, ("", 0.0))[0] != phase:
            self._phases[uid] = (phase, now)
        began = self._first_seen.setdefault(uid, now)
        return Sighting(
            machine=machine,
            node=node,
            has_instance=self._provider.of(uid) is not None,
            refused=self._provider.refuses_to(_owner_of(machine)) and now >= began + self._settings.create,
            in_phase=now - self._phases.get(uid, (phase, now))[1],
            age=now - began,
            settings=self._settings,
            siblings=[each for each in self._machines.machines if namespace_of(each) == namespace_of(machine)],
        )

    async def _tie(self, machine: JsonObject, node: JsonObject) -> None:
        wanted = self._system.ties(machine)
        known = node["metadata"].get("annotations") or {}
        if any(known.get(key) != value for key, value in wanted.items()):
            answer = await self.client.patch(NODES.path(name_of(node)), {"metadata": {"annotations": wanted}})
            self.view.nodes.remember(answer)

    # End

    async def _take_down(self, machine: JsonObject) -> float | None:
        if self._system.finalizer not in (machine["metadata"].get("finalizers") or ()):
            return None
        await self._report(machine, self._system.deleting(machine))
        loop = asyncio.get_running_loop()
        delays = (self._settings.switch_off, self._settings.destroy, self._settings.remove_node, 0.0)
        # Kept for good: the cache may still show a Machine that just lost its finalizer.
        done, due = self._going.setdefault(uid_of(machine), (0, loop.time() + delays[0]))
        while done < len(TAKING_DOWN):
            if loop.time() < due and provider_id_of(machine):
                return due - loop.time()
            await self._carry_out(TAKING_DOWN[done], machine)
            done += 1
            due = loop.time() + (delays[done] if done < len(delays) else 0.0)
            self._going[uid_of(machine)] = (done, due)
        return None

    async def _carry_out(self, what: str, machine: JsonObject) -> None:
        match what:
            case "switched-off":
                await self._provider.switch_off(uid_of(machine))
            case "destroyed":
                await self._provider.destroy(uid_of(machine))
            case "node-removed":
                for node in self._machines.nodes_by_provider_id[provider_id_of(machine)]:
                    try:
                        await self.client.delete(NODES.path(name_of(node)), uid=uid_of(node))
                    except ApiError as error:
                        if not error.not_found and not error.conflict:
                            raise
            case _:
                machine = self._machines.machines.get(key_of(machine)) or machine
                finalizers = [each for each in machine["metadata"]["finalizers"] if each != self._system.finalizer]
                await self._patch(machine, {"metadata": {"finalizers": finalizers}})
        self._note(machine, what)

    def _note(self, machine: JsonObject, what: str) -> None:
        node = self._system.node_named(machine)
        if instance := self._provider.of(uid_of(machine)):
            node = instance.node
        self.history.append(MachineEvent(machine=name_of(machine), node=node, what=what, at=datetime.now(UTC)))

    # Writing

    async def _report(self, machine: JsonObject, status: JsonObject) -> None:
        if status:
            log.info("%s: %s", key_of(machine), status)
            await self._patch(machine, {"status": status}, subresource="status")

    async def _patch(self, machine: JsonObject, change: JsonObject, *, subresource: str = "") -> None:
        """With the version that was looked at: what another writer has written since is looked at first, as by the real ones."""
        path = self._system.machines.path_of_key(key_of(machine), subresource=subresource)
        metadata = {**change.get("metadata", {}), "resourceVersion": machine["metadata"]["resourceVersion"]}
        answer = await self.client.patch(path, {**change, "metadata": metadata})
        if not is_terminating(answer) or answer["metadata"].get("finalizers"):
            self._machines.machines.remember(answer)
