"""The cluster when its API server is away, restarts, or goes back in time: none of that may look like dead nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from simulator.api.server import ApiServer
from simulator.client import ApiClient
from simulator.cluster import SimulatedCluster
from simulator.objects import is_ready
from simulator.resources import NODES
from tests.simulator.cluster.conftest import FAST, Observer, small_cluster

pytestmark = pytest.mark.timeout(60)


def all_renewed_since(observer: Observer, versions: dict[str, str]) -> bool:
    leases = observer.cluster.view.leases.objects
    return all(leases[key]["spec"]["renewTime"] != renewed for key, renewed in versions.items() if key in leases)


def renewals(observer: Observer) -> dict[str, str]:
    return {key: lease["spec"]["renewTime"] for key, lease in observer.cluster.view.leases.objects.items()}


async def test_an_api_server_that_was_away_for_longer_than_the_grace_makes_no_node_unknown(observer: Observer) -> None:
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
    await observer.until(lambda: loop.time() >= end, "longer than the grace")
    await api.start()
    await observer.until(lambda: all_renewed_since(observer, before), "all leases are renewed again")
    assert unknown == []


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
