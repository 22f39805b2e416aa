"""What is followed for preservation alone: Machines of machine-controller-manager with their sets, and PreservationPolicies.

Nodes, and the Machines of OpenShift and Cluster API, come from `following.py`: those where health checks or a pool have them
followed. Kinds that the server does not know cost a question now and then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.machine_paths import MACHINE_DEPLOYMENTS, MACHINE_SETS, MACHINES
from activities.cluster.api.paths import (
    PRESERVATION_POLICIES,
    Resource,
)
from activities.cluster.objects.decoding import OBJECT_DECODING, Decoding
from activities.cluster.objects.machine_sets import deployment_of
from activities.cluster.objects.machines_decoding import machine_decoding
from activities.cluster.watch.reflector import Reflector, WatchLimits
from policy.objects.machines import MachineView
from policy.preservation.book import PreservationBook
from policy.preservation.pools import read_policy
from policy.values.errors import PolicyError
from policy.values.machine_apis import MCM

log = logging.getLogger(__name__)


class PreservationWatches:
    """Feeds one book. `on_change` is called after each change of what a report might say."""

    def __init__(
        self,
        connection: ClusterConnection,
        book: PreservationBook,
        *,
        clock: Callable[[], datetime],
        on_change: Callable[[], None],
        on_state: Callable[[], None],
        on_pool: Callable[[], None],
        limits: WatchLimits | None,
    ) -> None:
        """on_pool: is called when there is a pool, whose Machines are to be followed."""
        self._book = book
        self._on_pool = on_pool
        self._clock = clock
        self._on_change = on_change

        def following(resource: Resource, decoding: Decoding[Any], changed: Callable[[str, Any], None]) -> Reflector[Any]:
            return Reflector(
                connection,
                resource,
                decoding,
                on_change=changed,
                on_state=on_state,
                optional=True,
                limits=limits,
            )

        self._reflectors = (
            following(PRESERVATION_POLICIES, OBJECT_DECODING, self._policy_changed),
            following(MACHINES[MCM], machine_decoding(MCM), partial(self.machine_changed, MACHINES[MCM])),
            following(MACHINE_SETS[MCM], OBJECT_DECODING, partial(self._set_changed, MACHINE_SETS[MCM])),
            following(MACHINE_DEPLOYMENTS[MCM], OBJECT_DECODING, partial(self._set_changed, MACHINE_DEPLOYMENTS[MCM])),
        )

    def __iter__(self) -> Iterator[Reflector[Any]]:
        """Everything that is followed for it."""
        yield from self._reflectors

    @property
    def doubt(self) -> str:
        """Why the pools are not known, "" where they are. A server that does not know the kind has none."""
        policies = self._reflectors[0]
        if policies.synced or policies.absent:
            return ""
        return f"PreservationPolicies can't be listed: {policies.problem or 'their first list is still to come'}"

    def machine_changed(self, resource: Resource, key: str, machine: MachineView | None) -> None:
        """A Machine, None for one that is gone. resource: in the version that the server knows."""
        if machine is None:
            self._changed(lambda: self._book.remove_machine(key))
            return
        if machine.preservation_problem:
            log.warning("Machine %s is left out of preservation: %s", key, machine.preservation_problem)
        ref = resource.ref(machine.name, machine.namespace)
        self._changed(lambda: self._book.put_machine(ref, machine, self._clock()))

    def _set_changed(self, resource: Resource, key: str, found: JsonObject | None) -> None:
        name = key.rpartition("/")[2]
        if found is None:
            self._changed(lambda: self._book.put_deployment(f"{resource.kind}/{name}", None))
            return
        try:
            deployment, owner = deployment_of(found)
        except (msgspec.MsgspecError, ValueError) as error:
            log.warning("%s %s can't be read: %s", resource.kind, key, error)
            return
        self._changed(lambda: self._book.put_deployment(f"{resource.kind}/{name}", deployment, owner))

    def _policy_changed(self, name: str, found: JsonObject | None) -> None:
        if found is None:
            self._changed(lambda: self._book.put_pool(name, None))
            return
        self._on_pool()
        try:
            pool = read_policy(PRESERVATION_POLICIES.whole(found))
        except PolicyError as error:
            problem = str(error)
            log.warning("%s", problem)
            self._changed(lambda: self._book.put_pool(name, None, problem))
            return
        self._changed(lambda: self._book.put_pool(name, pool))

    def _changed(self, change: Callable[[], object]) -> None:
        before = self._book.version
        change()
        if self._book.version != before:
            self._on_change()
