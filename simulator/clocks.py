"""The clocks of a simulated cluster that runs faster than a real one, in proportion to how often its kubelets heartbeat."""

from __future__ import annotations

from simulator.controllers import ControllerTimings
from simulator.kubelet import NodeTimings


def node_timings(heartbeat: float, grace: float, boot: float) -> NodeTimings:
    """Those of kubelets that heartbeat so often, are given up after so long, and boot in so long; all in seconds."""
    return NodeTimings(
        heartbeat=heartbeat,
        lease_duration=grace,
        boot=boot,
        container_start=min(1.0, heartbeat),
        container_stop=min(1.0, heartbeat),
        crash_up=heartbeat * 3,
        crash_down=grace * 1.5,
    )


def controller_timings(heartbeat: float, grace: float, pod_garbage: float) -> ControllerTimings:
    """Kubernetes' clocks shrunk in proportion, except those that fencing races against or waits for: tolerations, force
    detach, and how often the pod garbage collector looks for pods of a node that is out of service."""
    return ControllerTimings(
        node_monitor_grace=grace,
        evictions_per_second=1 / heartbeat,
        pod_garbage_period=pod_garbage,
        lost_node_quarantine=grace,
        attach=min(1.0, heartbeat / 2),
    )
