"""What judging costs: 5,000 nodes under 3 health checks, all judged at once and one after a change; and finding their devices.

Pure computation in one thread, with what an API server would have sent already decoded. A full evaluation is what a change of
every check costs (each is put anew, so that every node is judged by each again); an incremental one is one node's change with
all that follows, up to the report. Both are measured for a small and for the full fleet in the same run: the ratio of the
incremental ones shows whether anything walks over the nodes.

    python -m benchmarks.judging [--nodes 5000] [--rounds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import orjson

from activities.cluster.acts.fence_devices import ClusterFenceDevices
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.objects.decoding import NODE_DECODING
from activities.cluster.objects.object_reader import FileObjects
from activities.contracts.device_check import FenceDevicesRequest, NodeNamesRequest
from activities.keyring import Keyring
from activities.licences import Licences
from policy.checks.fence_policies import PolicySource
from policy.checks.health_check import HealthCheck
from policy.dialects import parse
from policy.objects.machines import MachineView
from policy.objects.nodes import Condition, NodeView
from policy.scan.ledger import Ledger
from policy.values.times import written
from workflows.definitions.device_check import PAGE as DEVICE_PAGE

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SMALL = 50
POOLS = ("a", "b", "c", "d", "e")
OTHER_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
SICK_EVERY = 200
NAMESPACE = "nodewarden"
PAGE = 500
"""Nodes that an API server lists at once."""
WORKER = "node-role.kubernetes.io/worker"


def checks() -> list[HealthCheck]:
    """One over all workers, one over some pools with more conditions, one over a zone; each node has two or three of them."""
    selectors: tuple[dict[str, object], ...] = (
        {"matchLabels": {WORKER: ""}},
        {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b", "c", "d"]}]},
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "Exists"}]},
    )
    return [_check(f"check-{number}", selector) for number, selector in enumerate(selectors)]


def _check(name: str, selector: dict[str, object]) -> HealthCheck:
    return parse(_document(name, selector))


def _document(name: str, selector: dict[str, object]) -> dict[str, Any]:
    listed = [("Ready", "False"), ("Ready", "Unknown"), ("DiskPressure", "True"), ("KernelDeadlock", "True")]
    return {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": name, "uid": name, "generation": 1},
        "spec": {
            "selector": selector,
            "minHealthy": "51%",
            "unhealthyConditions": [{"type": kind, "status": status, "duration": "300s"} for kind, status in listed],
            "remediationTemplate": {
                "apiVersion": "nodewarden.io/v1alpha1",
                "kind": "FencingTemplate",
                "name": "bmc",
                "namespace": NAMESPACE,
            },
        },
    }


def node(number: int, *, ready: str = "True", age: float = 3600, version: int = 1) -> NodeView:
    """A node as clusters have them: five conditions, twenty labels."""
    labels = {f"feature-{index}.example.com/kind": str(index) for index in range(17)}
    labels |= {WORKER: "", "pool": POOLS[number % len(POOLS)], "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    since = NOW - timedelta(seconds=age)
    others = tuple(Condition(type=kind, status="False", since=NOW - timedelta(days=9)) for kind in OTHER_CONDITIONS)
    return NodeView(
        name=f"node-{number:05d}",
        uid=f"uid-{number}",
        resource_version=str(version),
        labels=labels,
        conditions=(*others, Condition(type="Ready", status=ready, since=since)),
        provider_id=f"bench:///{number}",
    )


def fleet(size: int) -> list[NodeView]:
    """All well but for one in two hundred, where the time has expired."""
    return [node(number, ready="Unknown", age=900) if number % SICK_EVERY == 7 else node(number) for number in range(size)]


def filled(size: int, judged_by: list[HealthCheck]) -> Ledger:
    """A ledger of that fleet."""
    ledger = Ledger()
    for check in judged_by:
        ledger.put_check(check)
    for each in fleet(size):
        ledger.put_node(each, NOW)
    return ledger


def full(size: int, rounds: int) -> list[float]:
    """Milliseconds for judging everybody by every check, up to the report."""
    judged_by = checks()
    ledger = filled(size, judged_by)
    taken = []
    for turn in range(rounds):
        changed = [
            replace(check, conditions=tuple(replace(each, duration=timedelta(seconds=301 + turn)) for each in check.conditions))
            for check in judged_by
        ]
        start = time.perf_counter()
        for check in changed:
            ledger.put_check(check)
        ledger.report_parts(NOW)
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def incremental(size: int, rounds: int) -> list[float]:
    """Milliseconds for one node's change, up to the report."""
    ledger = filled(size, checks())
    ledger.report_parts(NOW)
    taken = []
    for turn in range(rounds * 10):
        changed = node(turn % size, ready="Unknown" if turn % 2 else "True", age=1 + turn % 100, version=2 + turn)
        start = time.perf_counter()
        ledger.put_node(changed, NOW)
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def reports(size: int, rounds: int) -> list[float]:
    """Milliseconds for drawing up a report of a fleet in which nothing has changed."""
    ledger = filled(size, checks())
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        ledger.report_parts(NOW)
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def _listed(number: int) -> dict[str, Any]:
    """The same node as an API server lists it."""
    view = node(number)
    metadata = {"name": view.name, "uid": view.uid, "resourceVersion": str(number), "labels": view.labels}
    conditions = [
        {"type": each.type, "status": each.status, "lastTransitionTime": written(each.since or NOW), "reason": "Kubelet"}
        for each in view.conditions
    ]
    info = {"bootID": f"boot-{number}", "systemUUID": f"00000000-0000-0000-0000-{number:012}"}
    status = {"conditions": conditions, "nodeInfo": info, "addresses": [{"type": "InternalIP", "address": f"fd00::{number:x}"}]}
    return {"metadata": metadata, "spec": {"providerID": view.provider_id}, "status": status}


def synced(size: int, rounds: int) -> list[float]:
    """Milliseconds of CPU for the first list of all nodes, from its pages to the first report."""
    starts = range(0, size, PAGE)
    pages = [
        orjson.dumps({"metadata": {}, "items": [_listed(each) for each in range(at, min(size, at + PAGE))]}) for at in starts
    ]
    taken = []
    for _ in range(max(1, rounds // 10)):
        start, ledger = time.process_time(), Ledger()
        for check in checks():
            ledger.put_check(check)
        for page in pages:
            for item in NODE_DECODING.items(page):
                ledger.put_node(item.value, NOW)
        ledger.report_parts(NOW)
        taken.append((time.process_time() - start) * 1000)
    return taken


def kilobytes(size: int) -> float:
    """What a ledger with that many nodes takes for each, as Python counts it."""
    gc.collect()
    tracemalloc.start()
    ledger = Ledger()
    for check in checks():
        ledger.put_check(check)
    for number in range(size):
        body = orjson.dumps({"metadata": {}, "items": [_listed(number)]})
        for item in NODE_DECODING.items(body):
            ledger.put_node(item.value, NOW)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken / size / 1000


class _Watched:
    """What a worker's watch has of the fleet: one template of ours that a health check names, for all nodes."""

    def __init__(self, size: int) -> None:
        self._nodes = fleet(size)
        power = {"driver": "ipmi", "parameters": {"ip": "{{ .NodeName }}.bmc"}, "secretRef": {"name": "bmc"}}
        spec = {"template": {"spec": {"power": [power]}}}
        metadata = {"name": "bmc", "namespace": NAMESPACE}
        self._template = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "metadata": metadata, "spec": spec}

    def follow_claims(self) -> bool:
        """All is known."""
        return True

    def nodes(self) -> list[NodeView]:
        """All nodes."""
        return self._nodes

    def machines_claiming(self, node: NodeView) -> list[MachineView]:  # noqa: ARG002 - of any
        """None."""
        return []

    def contested(self, node: NodeView) -> str:  # noqa: ARG002 - of any
        """None is."""
        return ""

    def fence_objects(self) -> list[dict[str, Any]]:
        """The template."""
        return [self._template]

    def fence_maps(self) -> dict[str, Any]:
        """None."""
        return {}


def devices(size: int, rounds: int) -> list[float]:
    """Milliseconds of CPU for finding the fence devices of all nodes, as the hourly check does."""
    files = FileObjects([_document("check", {"matchLabels": {WORKER: ""}})])
    source, watched = PolicySource(namespace=NAMESPACE), _Watched(size)
    served = ServedCluster("bench", cast("ClusterConnection", files), source=source)
    finder = ClusterFenceDevices(served, Licences(Keyring([bytes(32)])), watched=watched)
    taken = []

    async def find(began: datetime) -> None:
        names: tuple[str, ...] = ()
        while len(names) < size:
            names += (await finder.list_nodes(NodeNamesRequest(cluster="bench", after=names[-1] if names else ""))).names
        for start in range(0, size, DEVICE_PAGE):
            request = FenceDevicesRequest(cluster="bench", nodes=names[start : start + DEVICE_PAGE], check=began)
            assert all(each.devices for each in (await finder.find_devices(request)).nodes)

    for turn in range(max(1, rounds // 10)):
        start = time.process_time()
        asyncio.run(find(NOW + turn * timedelta(hours=1)))
        taken.append((time.process_time() - start) * 1000)
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    gc.collect()
    gc.freeze()
    print(f"3 health checks; milliseconds, median (99th percentile) of {options.rounds} rounds and more")
    print(f"{'':36}{SMALL:>8} nodes{options.nodes:>16} nodes   ratio")
    for title, measure in (
        ("everybody judged by every check", full),
        ("one node's change judged", incremental),
        ("a report drawn up", reports),
        ("the first list, CPU", synced),
        ("the fence devices of all found, CPU", devices),
    ):
        small, large = measure(SMALL, options.rounds), measure(options.nodes, options.rounds)
        ratio = statistics.median(large) / statistics.median(small)
        print(f"{title:36}{_stated(small):>14}{_stated(large):>22}{ratio:8.1f}")
    print(f"{'memory of a node, KB':36}{kilobytes(SMALL):14.1f}{kilobytes(options.nodes):22.1f}")


def _stated(taken: list[float]) -> str:
    ordered = sorted(taken)
    return f"{statistics.median(ordered):.3f} ({ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]:.3f})"


if __name__ == "__main__":
    main()
