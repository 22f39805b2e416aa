"""The controllers of a control plane, as API clients: what kube-controller-manager, a scheduler and a storage driver would do.

Only the rules that decide what happens to the workloads of a failing node are here, and those as faithfully as we
could; each module says what it leaves out. They see nothing but the API, so they also run beside a real kube-
apiserver that has no controllers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from simulator.client import ApiClient
from simulator.controllers.attach_detach import AttachDetach, NodeVolumesAttached
from simulator.controllers.csi_attacher import CsiAttacher
from simulator.controllers.disruption import Disruption
from simulator.controllers.node_lifecycle import NodeLifecycle
from simulator.controllers.pod_garbage import PodGarbage
from simulator.controllers.replica_set import Deployments, ReplicaSets
from simulator.controllers.runtime import Controller
from simulator.controllers.scheduler import Scheduler
from simulator.controllers.stateful_set import StatefulSets
from simulator.controllers.taint_eviction import TaintEviction
from simulator.controllers.volume_binder import VolumeBinder
from simulator.disks import Disks
from simulator.informer import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTimings:
    """The clocks of kube-controller-manager, in seconds. The defaults are Kubernetes' own."""

    node_monitor_grace: float = 40.0
    evictions_per_second: float = 0.1
    default_toleration: float = 300.0
    pod_garbage_period: float = 20.0
    lost_node_quarantine: float = 40.0
    force_detach_after: float = 360.0
    force_detach_on_timeout: bool = True
    attach: float = 1.0


class ControllerManager:
    """All controllers of one cluster, or only the storage driver's. `run` ends when it is cancelled or one of them crashes."""

    def __init__(
        self,
        client: ApiClient,
        view: ClusterView,
        *,
        timings: ControllerTimings,
        driver: str,
        disks: Callable[[], Disks],
        only_storage: bool = False,
    ) -> None:
        self.node_lifecycle = NodeLifecycle(
            client,
            view,
            grace=timings.node_monitor_grace,
            evictions_per_second=timings.evictions_per_second,
        )
        self.attach_detach = AttachDetach(
            client,
            view,
            max_wait=timings.force_detach_after,
            force_detach_on_timeout=timings.force_detach_on_timeout,
        )
        storage: tuple[Controller, ...] = (
            CsiAttacher(client, view, driver=driver, disks=disks, seconds=timings.attach),
            VolumeBinder(client, view, driver=driver, disks=disks),
        )
        kubernetes: tuple[Controller | PodGarbage, ...] = (
            self.node_lifecycle,
            self.attach_detach,
            NodeVolumesAttached(client, view),
            TaintEviction(client, view, default_toleration_seconds=timings.default_toleration),
            PodGarbage(client, view, period=timings.pod_garbage_period, quarantine=timings.lost_node_quarantine),
            Scheduler(client, view),
            StatefulSets(client, view),
            ReplicaSets(client, view),
            Deployments(client, view),
            Disruption(client, view),
        )
        self._loops = storage if only_storage else kubernetes + storage

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for loop in self._loops:
                group.create_task(loop.run(), name=type(loop).__name__)
