"""Which devices would fence each node, and Events when one of them falls silent, over the Kubernetes API.

The configuration is resolved as for an episode begun by hand (`live/plans.py`), and nothing is pinned, marked or commanded.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from temporalio.exceptions import ApplicationError

from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.api.paths import NODES
from activities.cluster.api.refusals import unless_gone
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster
from activities.cluster.live.claims import WatchedFirst, WatchedNodes
from activities.cluster.live.plans import Configurations
from activities.cluster.objects.decoding import NODE_DECODING, decode_node
from activities.cluster.objects.live_node import GKE_INSTANCE_ANNOTATION
from activities.cluster.objects.object_reader import ApiReader, reading_once
from activities.contracts.device_check import (
    MOST_NAMES,
    FenceDeviceActivities,
    FenceDevices,
    FenceDevicesRequest,
    NodeNames,
    NodeNamesRequest,
    PublishDeviceNoticesRequest,
)
from activities.errors import ErrorType, error_type
from activities.licences import Licences
from policy.fence.config import Source
from policy.fence.credential_hosts import CredentialHosts, compared
from policy.fence.device_check import DeviceEventReason, DeviceNotice, DeviceToCheck, NodeToCheck, devices_of
from policy.fence.plan import PowerDevice, levels_with
from policy.fence.plan_compiler import compile_config
from policy.objects.marks import mark_of
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError, no_such_target

PASSING = frozenset({ErrorType.UNREACHABLE, ErrorType.TRANSIENT, ErrorType.RATE_LIMITED})
"""What says nothing of a node's configuration: the whole request is tried again."""

AT_ONCE = 4
REPEATED = timedelta(minutes=10)
"""An Event that is younger was written by a former attempt of the same request."""

UNCONFIGURED = "default"
"""The name of the configuration that holds where none is written."""


KEPT = timedelta(minutes=1)
"""So long one reading of the configuration is good for a check of all nodes, of which each page is an activity."""


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where the nodes of one check and their configuration are from. until: by the loop's clock. nodes: those of the watch."""

    check: datetime | None
    until: float
    reader: ApiReader
    nodes: Mapping[str, NodeView]
    configurations: Configurations


class ClusterFenceDevices(ClusterActivities, FenceDeviceActivities):
    """Served by the workers of one cluster's queue. looked_after: whether any health check asks us to act in this cluster.
    watched: None in a process without watches."""

    def __init__(
        self,
        served: ServedCluster,
        licences: Licences,
        *,
        looked_after: Callable[[], bool] = lambda: True,
        watched: WatchedNodes | None = None,
    ) -> None:
        super().__init__(served)
        self._licences = licences
        self._looked_after = looked_after
        self._watched = watched
        self._sources: _Sources | None = None
        self._recorder = EventRecorder(served.connection, clock=served.clock)

    async def list_nodes(self, request: NodeNamesRequest) -> NodeNames:
        """From the watch, else page by page; of each page only the names stay."""
        names: list[str] = []
        if self._watched is not None and self._watched.follow_claims():
            names += [each.name for each in self._watched.nodes()]
        else:
            async for page in self._connection.list_pages(NODES.path()):
                names += [item.key for item in NODE_DECODING.items(page.body)]
        behind = sorted(name for name in names if name > request.after)
        return NodeNames(names=tuple(behind[:MOST_NAMES]), more=len(behind) > MOST_NAMES)

    async def find_devices(self, request: FenceDevicesRequest) -> FenceDevices:
        """A few nodes side by side; what several of them need is read once."""
        sources, hosts = self._sources_for(request.check), await self._served.credential_hosts()
        found: dict[str, NodeToCheck] = {}
        names = iter(request.nodes)

        async def find() -> None:
            for name in names:
                found[name] = await self._find(sources, name, hosts)

        await asyncio.gather(*(find() for _ in range(AT_ONCE)))
        return FenceDevices(nodes=tuple(found[name] for name in request.nodes))

    async def publish_device_notices(self, request: PublishDeviceNoticesRequest) -> None:
        """One after the other. The first that can't be written ends it; when it is repeated, what was written stays as it is."""
        for notice in request.notices:
            await self._recorder.publish(self._happening(notice), quiet=REPEATED)

    def _happening(self, notice: DeviceNotice) -> Happening:
        return Happening(
            about=NODES.ref(notice.node),
            uid=notice.node_uid,
            reason=notice.reason,
            message=notice.message,
            warning=notice.reason is not DeviceEventReason.FENCE_DEVICE_ANSWERS,
            identity=self._licences.identity_of(self._cluster, notice.reason, notice.node, notice.node_uid, notice.identity),
        )

    def _sources_for(self, check: datetime | None) -> _Sources:
        """Those of that check, for a minute. A person who asks for one node may just have changed what is read for it."""
        now = asyncio.get_running_loop().time()
        if check is not None and self._sources is not None and self._sources.check == check and now < self._sources.until:
            return self._sources
        connections, nodes = reading_once(self._connections), dict[str, NodeView]()
        if check is not None and self._watched is not None and self._watched.follow_claims():
            nodes = {each.name: each for each in self._watched.nodes()}
            seen = WatchedFirst(self._connection, self._watched, self._source)
            connections = replace(connections, nodes=seen, machines=connections.machines if self._served.machines else seen)
        configurations = Configurations(connections, self._source)
        sources = _Sources(check, now + KEPT.total_seconds(), connections.nodes, nodes, configurations)
        self._sources = sources if check is not None else self._sources
        return sources

    async def _find(self, sources: _Sources, name: str, hosts: CredentialHosts) -> NodeToCheck:
        view = sources.nodes.get(name)
        if view is None:
            body = await unless_gone(sources.reader.get_bytes(NODES.path(name)))
            if body is None:
                return NodeToCheck(node=name, problem=no_such_target(name))
            view = decode_node(body)
        try:
            return await self._resolved(sources.configurations, view, hosts)
        except PolicyError as error:
            return _without_devices(view, str(error))
        except ApplicationError as error:
            if error_type(error) in PASSING or error_type(error) is None:
                raise
            return _without_devices(view, error.message)

    async def _resolved(self, configurations: Configurations, view: NodeView, hosts: CredentialHosts) -> NodeToCheck:
        config = await configurations.of(view)
        if config.errors:
            return _without_devices(view, "; ".join(config.errors))
        plan = compile_config(config)
        levels = plan.endpoints_of_levels

        def sealed(device: PowerDevice) -> PowerDevice:
            known = replace(compared(device, hosts), levels=levels_with(device.endpoint, levels))
            return self._licences.sealed_device(self._cluster, view.name, known)

        devices = tuple(
            DeviceToCheck(device=sealed(each.device), path=each.path, deadline=each.deadline, node=view.name)
            for each in devices_of(plan)
        )
        if not devices:
            return _without_devices(view, f"{config.subject}: no device is configured")
        return NodeToCheck(
            node=view.name,
            uid=view.uid,
            ready=view.ready,
            held=_held(view),
            publishes=(config.name, config.source) != (UNCONFIGURED, Source.DEFAULT) or self._looked_after(),
            devices=devices,
            provider_id=view.provider_id,
            system_uuid=view.system_uuid,
            instance_id=view.annotations.get(GKE_INSTANCE_ANNOTATION, ""),
        )


def _without_devices(view: NodeView, problem: str) -> NodeToCheck:
    return NodeToCheck(node=view.name, uid=view.uid, ready=view.ready, held=_held(view), problem=problem)


def _held(view: NodeView) -> str:
    """A mark that can't be read is an episode's all the same."""
    try:
        mark = mark_of(view)
    except PolicyError:
        return "unknown"
    return mark.incident if mark is not None else ""
