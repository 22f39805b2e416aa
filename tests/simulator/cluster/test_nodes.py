"""Kubelets and the node lifecycle controller: how a node lives, falls silent, and comes back."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from simulator import client
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from simulator.cluster import SimulatedCluster
from simulator.controllers.node_lifecycle import Zone
from simulator.node import NodeState
from simulator.objects import condition_of, is_ready, name_of, uid_of
from simulator.resources import LEASES, NODES
from tests.simulator.cluster.conftest import FAST, FAST_NODES, Observer, small_cluster

pytestmark = pytest.mark.timeout(60)


async def test_a_node_leaves_its_volumes_to_the_controller_and_says_so_again_after_each_boot(observer: Observer) -> None:
    """Without this annotation the attach/detach controller of a real cluster leaves a node alone."""
    managed = "volumes.kubernetes.io/controller-managed-attach-detach"
    assert observer.node("node-2")["metadata"]["annotations"][managed] == "true"
    await observer.client.patch(NODES.path("node-2"), {"metadata": {"annotations": {managed: None, "of": "others"}}})
    await observer.until(lambda: observer.node("node-2")["metadata"]["annotations"] == {"of": "others"}, "the annotation is gone")
    observer.cluster.node("node-2").reset()
    everything = {"of": "others", managed: "true"}
    await observer.until(lambda: observer.node("node-2")["metadata"]["annotations"] == everything, "it is back")


async def test_a_node_whose_kubelet_stops_is_unknown_after_the_grace_and_until_it_is_started_again(observer: Observer) -> None:
    loop = asyncio.get_running_loop()
    boot_id, heard = observer.boot_id("node-1"), dict[str, float]()
    observer.cluster.view.leases.subscribe(lambda _before, lease: heard.update({name_of(lease): loop.time()} if lease else {}))
    await observer.until(lambda: "node-1" in heard, "a heartbeat of node-1")
    observer.cluster.break_node("node-2", "condition:KernelDeadlock=True")
    observer.cluster.break_node("node-1", "kubelet-stops")
    await observer.until(lambda: observer.ready("node-1") == "Unknown", "node-1 is Unknown")
    assert loop.time() - heard["node-1"] >= FAST.node_monitor_grace
    ready = condition_of(observer.node("node-1"), "Ready")
    assert ready is not None
    assert ready["reason"] == "NodeStatusUnknown"
    await observer.until(
        lambda: (
            observer.taint_keys("node-1", "NoExecute") == {"node.kubernetes.io/unreachable"}
            and observer.taint_keys("node-1", "NoSchedule") == {"node.kubernetes.io/unreachable"}
        ),
        "both unreachable taints",
    )
    assert observer.cluster.node("node-1").is_on
    assert [observer.ready(f"node-{number}") for number in range(2, 7)] == ["True"] * 5
    reported = condition_of(observer.node("node-2"), "KernelDeadlock")
    assert reported is not None
    assert reported["status"] == "True"
    observer.cluster.heal_node("node-1")
    await observer.until(lambda: observer.ready("node-1") == "True" and not observer.taint_keys("node-1"), "as it was")
    assert observer.boot_id("node-1") == boot_id


async def test_a_power_cycle_repairs_a_node_and_gives_it_a_new_boot_id(observer: Observer) -> None:
    before = observer.node("node-1")
    observer.cluster.break_node("node-1", "kernel-hangs")
    await observer.until(lambda: observer.ready("node-1") == "Unknown", "node-1 is Unknown")
    observer.cluster.node("node-1").power_off()
    assert not observer.cluster.node("node-1").is_on
    observer.cluster.node("node-1").power_on()
    await observer.until(lambda: observer.ready("node-1") == "True", "node-1 is Ready again")
    after = observer.node("node-1")
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    assert after["status"]["nodeInfo"]["systemUUID"] == before["status"]["nodeInfo"]["systemUUID"]
    assert uid_of(after) == uid_of(before)


@pytest.mark.parametrize(
    ("nodes", "ready", "state"),
    [(3, 3, "Normal"), (9, 6, "Normal"), (9, 4, "PartialDisruption"), (3, 1, "Normal"), (3, 0, "FullDisruption")],
)
def test_the_state_of_a_zone(nodes: int, ready: int, state: str) -> None:
    assert Zone(nodes=nodes, ready=ready).state == state


async def test_a_deleted_node_registers_again_only_when_its_machine_boots(observer: Observer) -> None:
    before = observer.node("node-1")
    await observer.client.delete(NODES.path("node-1"))
    await observer.until(lambda: observer.cluster.view.nodes.get("node-1") is None, "the Node is gone")
    node = observer.cluster.node("node-1")
    assert node.state is NodeState.RUNNING
    node.power_off()
    node.power_on()
    await observer.until(lambda: observer.cluster.view.nodes.get("node-1") is not None, "the Node is back")
    after = observer.node("node-1")
    assert uid_of(after) != uid_of(before)
    assert after["spec"]["providerID"] == before["spec"]["providerID"]


# The cluster when its API server is away, restarts, or goes back in time: none of that may look like dead nodes.


def all_renewed_since(observer: Observer, versions: dict[str, str]) -> bool:
    leases = observer.cluster.view.leases.objects
    return all(leases[key]["spec"]["renewTime"] != renewed for key, renewed in versions.items() if key in leases)


def renewals(observer: Observer) -> dict[str, str]:
    return {key: lease["spec"]["renewTime"] for key, lease in observer.cluster.view.leases.objects.items()}


@pytest.mark.parametrize("stalls", [False, True], ids=["it alone", "and all stand still meanwhile"])
async def test_an_api_server_that_was_away_for_longer_than_the_grace_makes_no_node_unknown(
    observer: Observer, stalls: bool
) -> None:
    """On a busy machine the controller had not noticed that, and took the silence for that of the nodes."""
    api = observer.cluster.api
    assert api is not None
    unknown: list[str] = []

    def note(_before: object, after: dict[str, object] | None) -> None:
        if after is not None and not is_ready(after):
            unknown.append(str(after["metadata"]))

    observer.cluster.view.nodes.subscribe(note)
    before = renewals(observer)
    await api.stop()
    loop = asyncio.get_running_loop()
    end = loop.time() + FAST.node_monitor_grace * 1.5
    if stalls:
        time.sleep(FAST.node_monitor_grace * 1.5)  # noqa: ASYNC251 - the process is not given a processor
    await observer.until(lambda: loop.time() >= end, "longer than the grace")
    await api.start()
    await observer.until(lambda: all_renewed_since(observer, before), "all leases are renewed again")
    assert unknown == []


async def test_a_process_that_stands_still_for_longer_than_the_grace_makes_no_node_unknown(observer: Observer) -> None:
    """Kubelets, API server and controllers are one process: where it gets no processor, all are silent."""
    unknown: list[str] = []
    observer.cluster.view.nodes.subscribe(
        lambda _, after: unknown.extend([name_of(after)] if after and not is_ready(after) else [])
    )
    for stands_still in (1.1, 1.5, 2.5):
        before = renewals(observer)
        time.sleep(FAST.node_monitor_grace * stands_still)  # noqa: ASYNC251 - as above
        await observer.until(lambda: all_renewed_since(observer, before), "all leases are renewed again")  # noqa: B023 - at once
    assert unknown == []


async def test_a_heartbeat_that_is_refused_comes_again_after_its_interval(
    observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other requests are tried again after ever longer pauses, here half a minute: longer than a node may be silent."""
    pauses = SimpleNamespace(uniform=lambda _least, _most: 600.0, randint=random.randint)
    monkeypatch.setattr(client, "random", pauses)
    api = observer.cluster.api
    assert api is not None
    before = renewals(observer)
    await api.stop()
    await asyncio.sleep(FAST_NODES.heartbeat * 3)
    await api.start()
    async with asyncio.timeout(15):
        for key, renewed in before.items():
            while (await observer.client.get(LEASES.path_of_key(key)))["spec"]["renewTime"] == renewed:
                await asyncio.sleep(FAST_NODES.heartbeat)


# Kubelets and controllers against an API server that is not their own: over TLS, by address, token and authority.

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


async def test_a_cluster_works_against_any_api_server(tmp_path: Path) -> None:
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds" / "widgets.yaml").write_text(WIDGETS)
    authority = tmp_path / "ca.pem"
    async with ApiServer(tokens={"of-the-other": "admin"}) as server:
        authority.write_bytes(server.certificate_authority)
        cluster: SimulatedCluster
        async with small_cluster(
            nodes=3,
            api_url=server.secure_url,
            api_token="of-the-other",
            api_certificate_authority=str(authority),
            custom_resource_definitions=[tmp_path / "crds"],
            state_dir=tmp_path / "state",
        ) as cluster:
            assert cluster.api is None
            assert cluster.uid
            kubeconfig = yaml.safe_load(cluster.kubeconfig_path.read_text())
            assert kubeconfig["clusters"][0]["cluster"] == {"server": server.secure_url, "certificate-authority": str(authority)}
            async with ApiClient(cluster.address) as client:
                assert len((await client.list(NODES.path()))["items"]) == 3
                for path in ("example.com/v1/namespaces/default/widgets", "remediation.medik8s.io/v1alpha1/nodehealthchecks"):
                    assert (await client.list(f"/apis/{path}"))["items"] == []
            cluster.break_node("node-1", "kubelet-stops")
            cluster.heal_node("node-1")


async def test_pods_of_a_runtime_that_is_back_are_ready_again() -> None:
    """The controller calls them unready with their node; the kubelet that goes on says what they are."""
    async with SimulatedCluster(nodes=3, zones=1, heartbeat_seconds=0.2, grace_seconds=1.0, demo_workloads=True) as cluster:
        node = cluster.node_of_pod("demo/database-0")

        def ready_pods() -> list[bool]:
            return [is_ready(pod) for pod in cluster.view.pods_by_node[node]]

        cluster.break_node(node, "runtime-down")
        await cluster.wait_until(lambda: not any(ready_pods()), what="its pods are unready")
        cluster.heal_node(node)
        await cluster.wait_until(lambda: all(ready_pods()), what="its pods are Ready")
