"""The official Python client, sync and typed, finds what it expects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as official
from kubernetes import config, watch
from kubernetes.client.rest import ApiException

from simulator.api.server import ApiServer
from tests.simulator.api.client import definition, gadget


@pytest.fixture
async def connection(api: ApiServer, tmp_path: Path) -> AsyncIterator[official.ApiClient]:
    path = tmp_path / "kubeconfig"
    path.write_text(api.kubeconfig())
    settings = official.Configuration()
    config.load_kube_config(str(path), client_configuration=settings)
    settings.retries = False
    with official.ApiClient(settings) as opened:
        yield opened


async def test_nodes_typed(connection: official.ApiClient) -> None:
    def work() -> tuple[str, list[str], bool]:
        core = official.CoreV1Api(connection)
        condition = official.V1NodeCondition(type="Ready", status="True")
        status = official.V1NodeStatus(conditions=[condition])
        made = core.create_node(official.V1Node(metadata=official.V1ObjectMeta(name="n1"), status=status))
        core.patch_node("n1", {"spec": {"unschedulable": True}})
        patch = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        changed = core.patch_node_status("n1", patch)
        listed = [each.metadata.name for each in core.list_node().items]
        return changed.status.conditions[0].status, listed, changed.metadata.uid == made.metadata.uid

    assert await asyncio.to_thread(work) == ("Unknown", ["n1"], True)


async def test_pods_evictions_and_errors_typed(connection: official.ApiClient) -> None:
    def work() -> tuple[int, bool]:
        core = official.CoreV1Api(connection)
        container = official.V1Container(name="main", image="app:1")
        spec = official.V1PodSpec(containers=[container], node_name="n1")
        core.create_namespaced_pod("default", official.V1Pod(metadata=official.V1ObjectMeta(name="p1"), spec=spec))
        eviction = official.V1Eviction(metadata=official.V1ObjectMeta(name="p1", namespace="default"))
        core.create_namespaced_pod_eviction("p1", "default", eviction)
        going = core.read_namespaced_pod("p1", "default").metadata.deletion_timestamp is not None
        try:
            core.read_namespaced_pod("p2", "default")
        except ApiException as error:
            return error.status, going
        return 200, going

    assert await asyncio.to_thread(work) == (404, True)


async def test_a_watch_and_custom_objects(connection: official.ApiClient) -> None:
    def work() -> list[Any]:
        core, custom = official.CoreV1Api(connection), official.CustomObjectsApi(connection)
        official.ApiextensionsV1Api(connection).create_custom_resource_definition(definition())
        custom.create_namespaced_custom_object("example.org", "v1", "default", "gadgets", gadget("g"))
        body = official.V1ConfigMap(metadata=official.V1ObjectMeta(name="a"), data={"x": "y"})
        core.create_namespaced_config_map("default", body)
        stream = watch.Watch().stream(core.list_namespaced_config_map, "default", timeout_seconds=1)
        events = [(event["type"], event["object"].data) for event in stream]
        listed = custom.list_namespaced_custom_object("example.org", "v1", "default", "gadgets")
        return [events, listed["items"][0]["spec"]["size"]]

    assert await asyncio.to_thread(work) == [[("ADDED", {"x": "y"})], 3]


async def test_leases_refuse_the_second_writer(connection: official.ApiClient) -> None:
    def work() -> int:
        leases = official.CoordinationV1Api(connection)
        lease = official.V1Lease(metadata=official.V1ObjectMeta(name="l"), spec=official.V1LeaseSpec(holder_identity="a"))
        made = leases.create_namespaced_lease("default", lease)
        made.spec.holder_identity = "b"
        leases.replace_namespaced_lease("l", "default", made)
        try:
            leases.replace_namespaced_lease("l", "default", made)
        except ApiException as error:
            return int(error.status)
        return 200

    assert await asyncio.to_thread(work) == 409
