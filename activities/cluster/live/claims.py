"""Which other objects claim a Node's machine or its devices: asked before a machine is destroyed, or anything is freed of it
(S39). And which Machines are a Node's that the Node itself does not name (S20, S21).

A kubelet writes its providerID and its system UUID itself when it registers. One that copies another's would have us switch that
one off; and a Machine that has the providerID and another Node claims the machine as well. All that can claim it is watched from
the first question on; until the watch has seen it, all Nodes and Machines are listed. It can only say no.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.api.paths import CONFIG_MAPS, FENCE_CONFIGS, FENCING_TEMPLATES, MACHINES, NODES
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.api.served_cluster import Connections, ServedCluster, as_served
from activities.cluster.live.plans import all_of, configuration_for, templates_that_count
from activities.cluster.objects.decoding import NODE_DECODING
from activities.cluster.objects.live_machines import Subject, find_served
from activities.cluster.objects.live_node import find_node
from activities.cluster.objects.machines_decoding import counting_machines
from activities.cluster.objects.object_reader import Readers, ReadOnce, read_views, reading_once
from activities.contracts.target import Target
from activities.errors import ErrorType, error_type, failure
from policy.checks.fence_policies import PolicySource
from policy.episode.messages import Need
from policy.fence.configmaps import FENCE_MAPS
from policy.fence.device_check import DeviceEventReason, named_beside
from policy.fence.drivers import same_device
from policy.fence.kdump import normal_address
from policy.fence.plan_compiler import compile_config
from policy.objects.machines import MachineView, claimed_otherwise, contested, counted_in, identities_of, is_machine_of
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT
from policy.values.object_refs import ObjectRef


class WatchedNodes(Protocol):
    """Watches all that can claim a machine of the cluster."""

    def follow_claims(self) -> bool:
        """Follow from now on what can claim a machine. Whether all Nodes and Machines are known, and nothing is in doubt."""

    def contested(self, node: NodeView) -> str:
        """Which other object claims to be that Node's machine, in words; "" for none."""

    def nodes(self) -> Iterable[NodeView]:
        """All Nodes."""

    def machines_claiming(self, node: NodeView) -> Iterable[MachineView]:
        """Those that may be that Node's."""

    def fence_objects(self) -> list[JsonObject] | None:
        """All FencingTemplates and FenceConfigs that count, None where not all are known."""

    def fence_maps(self) -> Mapping[str, Any] | None:
        """What the ConfigMaps of fence configuration say, by name; None where not all are known."""


class WatchedFirst(ReadOnce):
    """Answers from a watch what it has of fence configuration at this moment; all else is asked of the API once. For what proves
    and licenses nothing. source: in which namespaces ConfigMaps and templates count."""

    def __init__(self, connection: ClusterConnection, watched: WatchedNodes, source: PolicySource) -> None:
        super().__init__(connection)
        self._maps, self._place = watched.fence_maps(), f"{CONFIG_MAPS.path(namespace=source.namespace)}/"
        self._lists: dict[str, list[JsonObject]] = {}
        self._templates: dict[str, JsonObject] = {}
        if (objects := watched.fence_objects()) is not None:
            of_nodes = [FENCE_CONFIGS.whole(each) for each in objects if not each["metadata"].get("namespace")]
            self._lists = {FENCE_CONFIGS.path(): of_nodes}
            for place in source.templates:
                found = [FENCING_TEMPLATES.whole(each) for each in objects if each["metadata"].get("namespace") == place]
                self._lists[FENCING_TEMPLATES.path(namespace=place)] = found
                self._templates |= {FENCING_TEMPLATES.path(each["metadata"]["name"], namespace=place): each for each in found}

    async def get(self, path: str) -> JsonObject:
        """As the watch has it, else as it was when first asked for."""
        if path in self._templates:
            return self._templates[path]
        name = path.removeprefix(self._place)
        if self._maps is not None and name != path and name.startswith(FENCE_MAPS):
            if name not in self._maps:
                raise ObjectNotFound(f"{path} does not exist")
            return {"data": self._maps[name]}
        return await super().get(path)

    async def list_objects(self, path: str, *, label: tuple[str, str] | None = None) -> list[JsonObject]:
        return self._lists[path] if label is None and path in self._lists else await super().list_objects(path, label=label)


class Identities:
    """Of one cluster. watched: None in a process without watches."""

    def __init__(self, connections: Connections[ClusterConnection], watched: WatchedNodes | None = None) -> None:
        self._connections = connections
        self._watched = watched

    async def contested(self, node: NodeView, once: Readers | None = None) -> str:
        """Which other object claims to be that Node's machine, in words; "" for none. Raises what the API refuses."""
        if not identities_of(node):
            return ""
        if self._watched is not None and self._watched.follow_claims():
            return self._watched.contested(node)
        known = await self._listed()
        machines = await self._machines(once or self._connections)
        return contested(node, lambda key: known.get(key, ())) or claimed_otherwise(node, machines)

    async def with_unnamed(self, once: Readers, found: Subject, node: NodeView | None) -> Subject:
        """With the Machines that refer to the Node where it names none that does: a Node that was made anew, or lost the
        annotation to its kubelet, hides that its Machine is kept, skipped, paused or deleted (S20, S21). Which they are the watch
        may say, what is on them is read live. Those that a check of Machines judges, it has found itself. Raises what the API
        refuses."""
        if node is None or found.of_machines or any(each.node_name == node.name for each in found.machines_of(node)):
            return found
        known = {each.key for each in found.machines}
        if self._watched is not None and self._watched.follow_claims():
            seen = [each for each in self._watched.machines_claiming(node) if each.key not in known]
            read = await asyncio.gather(*(find_served(once, each.api, each.namespace, each.name) for each in seen))
            machines = [each.view for each in read if each is not None]
        else:
            machines = [each for each in await self._machines(once) if each.key not in known]
        unnamed = [each for each in machines if is_machine_of(each, node.name, node)]
        return replace(found, machines=(*found.machines, *unnamed))

    async def at_address(self, node: str, address: str) -> str:
        """Which other Node shows that address, "" for none."""
        watched = self._watched
        others = watched.nodes() if watched is not None and watched.follow_claims() else await self._nodes()
        return next((each.name for each in others if each.name != node and address in map(normal_address, each.addresses)), "")

    async def fence_objects(self, source: PolicySource, once: Readers | None = None) -> list[JsonObject]:
        """All objects that name nodes beside devices, and count."""
        if self._watched is not None and self._watched.follow_claims() and (seen := self._watched.fence_objects()) is not None:
            return seen
        reader = (once or self._connections).nodes
        return [*(await templates_that_count(reader, source)), *(await all_of(reader, FENCE_CONFIGS.path()))]

    async def _nodes(self) -> list[NodeView]:
        return await read_views(self._connections.nodes, NODES, NODE_DECODING)

    async def _machines(self, readers: Readers) -> list[MachineView]:
        """All that count, and a little of the others."""
        found, named = list[MachineView](), readers.machine_namespaces
        for api in (OPENSHIFT, CLUSTER_API):
            reader = readers.of(api.api_version)
            if not reader.lacks(MACHINES[api]):
                read = partial(read_views, reader, decoding=counting_machines(api, named))
                found += [counted_in(named, each) for each in await as_served(MACHINES[api], read) or []]
        return found

    async def _listed(self) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for view in await self._nodes():
            for key in identities_of(view):
                found[key].append(view.name)
        return found


# Who else is configured to be fenced by a node's devices: asked before they are used for anything that destroys (S39).
#
# A device that is written beside two nodes switches off the wrong one of them. The objects that name nodes are watched from the
# first question on, and the nodes that they name beside the same device are resolved, live. Objects that name no node
# (ConfigMaps, which are read by name; selectors; a node's name within a value) are found by the hourly check of fence devices,
# which resolves all nodes: those that it has found are resolved here, too.

log = logging.getLogger(__name__)

MOST_ASKED = 5
"""Nodes that are resolved in one look. A device that is named beside more of them is not believed to be one node's alone."""
MOST_READ = 50
"""Names that are looked for in one look: Nodes may be gone for long that objects still name."""


class CheckedDevices(Protocol):
    """The last check of all nodes' devices."""

    async def shared(self, cluster: str) -> Mapping[str, Collection[str]]:
        """Which nodes have one together, by the device. Raises nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Which other node is to be fenced by a device, and the sentence that says so."""

    other: NodeView
    sentence: str


async def claimed_by(
    served: ServedCluster,
    target: Target,
    identities: Identities,
    checked: CheckedDevices | None,
    *,
    once: Readers | None = None,
) -> Claim | None:
    """Which other node is to be fenced by the pinned devices."""
    pinned = target.pinned
    if not pinned.endpoints:
        return None
    shared = await checked.shared(target.cluster) if checked is not None else {}
    once = once or reading_once(served.connections)
    objects = await identities.fence_objects(served.source, once)
    return await device_claims(once, pinned.node, pinned.endpoints, served.source, objects=objects, checked=shared)


async def device_claims(
    connections: Readers,
    node: str,
    endpoints: Collection[str],
    source: PolicySource,
    *,
    objects: Collection[JsonObject],
    checked: Mapping[str, Collection[str]],
) -> Claim | None:
    """None: no other node is fenced by one of these devices. objects: all that name nodes beside devices. checked: which nodes
    the last check of all devices has found to have one together."""
    # A FenceConfig is in no namespace, a template in one that counts (S40).
    counting = [each for each in objects if each["metadata"].get("namespace", "") in {"", *source.templates}]
    named = named_beside(counting, endpoints, node)
    shared = [(endpoint, others) for endpoint in endpoints for each, others in checked.items() if same_device(each, endpoint)]
    named |= {other: endpoint for endpoint, others in shared for other in others if other != node}
    if len(named) > MOST_READ:
        expected = f"at most {MOST_READ} other nodes to be named beside the devices of Node/{node}"
        raise failure(ErrorType.INVALID_CONFIG, f"expected {expected}, got {len(named)}: which node they belong to is not known")
    found = await asyncio.gather(*(find_node(connections.nodes, other) for other in sorted(named)))
    others = [each.view for each in found if each is not None]
    for asked, other in enumerate(others):
        device = named[other.name]
        if asked == MOST_ASKED:
            problem = f"{device} is named beside Node/{node}, Node/{other.name} and {len(others) - 1} more"
            return Claim(other=other, sentence=f"{problem}: find out which node it belongs to; that many are not looked into")
        if await _claims(connections, other, device, source):
            problem = f"{device} is configured as the device of Node/{node} and of Node/{other.name}"
            return Claim(
                other=other, sentence=f"{problem}: find out which node it belongs to, or the wrong machine is switched off"
            )
    return None


async def publish_on_both(connection: ClusterConnection, node: ObjectRef, uid: str, claim: Claim) -> None:
    """An Event on either Node, as the hourly check writes it, so that it is seen on the other one as well. What can't be
    written changes nothing of the answer."""
    for about, its_uid in ((node, uid), (claim.other.ref, claim.other.uid)):
        reason = DeviceEventReason.FENCE_DEVICE_SHARED
        happening = Happening(about=about, uid=its_uid, reason=reason, message=claim.sentence, warning=True)
        try:
            await EventRecorder(connection).publish_unless_kept(happening)
        except ApplicationError as error:
            log.warning("the Event %s on %s was not written: %s", reason, about.key, error.message)


async def _claims(connections: Readers, node: NodeView, endpoint: str, source: PolicySource) -> bool:
    """Whether it has the device. Where its configuration can't be used, it may be meant to have it."""
    try:
        config = await configuration_for(connections, node, None, Need(), source=source)
        return bool(config.errors) or any(same_device(each, endpoint) for each in compile_config(config).endpoints)
    except PolicyError:
        return True
    except ApplicationError as error:
        if error_type(error) is not ErrorType.INVALID_CONFIG:
            raise
        return True
