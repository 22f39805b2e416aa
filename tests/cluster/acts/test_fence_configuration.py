"""Which kind of fence configuration holds for a node, read from an API server over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.objects.fence_objects import answered
from activities.cluster.objects.file_objects import FileObjects
from activities.errors import ErrorType
from policy.episode.needs import Need, NeedKind
from policy.fence.configmaps.reading import read_config_maps
from policy.objects.nodes import NodeView
from simulator.api.control.faults import Accident, Fault
from tests.cluster.acts.test_pinning import pin
from tests.cluster.acts.world import NODE, World, refused
from tests.policy.fence.builders import config, ipmi

CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"
FENCE_CONFIGS = "/apis/nodewarden.io/v1alpha1/fenceconfigs"


@pytest.fixture
async def ready(world: World) -> World:
    """The sick node's cluster with our kinds, and no template."""
    await world.install_kinds()
    return world


async def add_config_map(world: World, name: str, data: dict[str, Any], namespace: str = "nodewarden") -> None:
    await world.others.create(CONFIG_MAPS.format(namespace), {"metadata": {"name": name}, "data": data})


async def add_secret(world: World, name: str) -> None:
    secret = {"metadata": {"name": name}, "stringData": {"username": "admin", "password": "hunter2"}}
    await world.others.create("/api/v1/namespaces/nodewarden/secrets", secret)


async def add_fence_config(world: World, name: str, **spec: Any) -> None:
    power = {
        "driver": "ipmi",
        "parameters": {"ip": f"{name}.{{{{ .NodeName }}}}"},
        "secretRef": {"name": "bmc", "namespace": "nodewarden"},
    }
    body = {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "FenceConfig",
        "metadata": {"name": name},
        "spec": {"power": [power]} | spec,
    }
    await world.others.create(FENCE_CONFIGS, body)


async def source(world: World, **asked: Any) -> str:
    return (await pin(world, **asked)).plan.source


async def test_config_maps_hold_where_no_health_check_and_no_request_names_a_template(ready: World) -> None:
    await ready.add_template()
    await add_config_map(ready, f"fence-config-node-{NODE}", config("cordon", "off on", "uncordon"))
    plan = (await pin(ready)).plan
    assert plan.source == f"ConfigMap/nodewarden/fence-config-node-{NODE}"
    assert [device.endpoint for device in plan.devices] == ["ipmi://10.0.0.1:623"]
    chosen = await ready.add_template("special")
    assert await source(ready, template=chosen) == "FencingTemplate/kube-system/special"
    await ready.add_check()
    assert await source(ready) == "FencingTemplate/kube-system/blades"


async def test_a_fence_config_about_the_node_goes_before_the_only_template(ready: World) -> None:
    await ready.add_template()
    await add_fence_config(ready, "others", nodeName="another-node")
    assert await source(ready) == "FencingTemplate/kube-system/blades"
    await add_fence_config(ready, "all")
    assert await source(ready) == "FenceConfig/all"
    await add_fence_config(ready, "mine", nodeName=NODE)
    assert await source(ready) == "FenceConfig/mine"


async def test_two_spellings_about_one_node_are_refused(ready: World) -> None:
    await add_fence_config(ready, "all")
    await add_config_map(ready, "fence-config-default", config("", "off", off=ipmi(ip="{{ .NodeName }}.bmc", action="off")))
    with refused(ErrorType.INVALID_CONFIG, "FenceConfig/all and ConfigMap/nodewarden/fence-config-default are both about it"):
        await pin(ready)


async def test_an_error_in_it_is_never_replaced_by_something_else(ready: World) -> None:
    """S11, and never a fallback to defaults for a bad fence configuration."""
    await ready.add_template()
    await add_config_map(ready, f"fence-config-{NODE}", {"config.properties": "power_management=bmc"})
    with refused(ErrorType.INVALID_CONFIG, f"bmc is not defined: looked for data[fence-method-bmc] of fence-config-{NODE}"):
        await pin(ready)


async def test_the_clusters_own_settings_reach_the_plan(ready: World) -> None:
    await add_config_map(ready, "fence-cluster-config", {"config.properties": "grace_timeout=10\ngiveup_retries=4"})
    await add_config_map(ready, f"fence-config-{NODE}", config())
    by_hand = (await pin(ready)).plan
    after_check = (await pin(ready, need=Need(kind=NeedKind.CHECK))).plan
    assert (by_hand.tries, by_hand.wait_before_isolation) == (5, timedelta(seconds=10))
    assert after_check.wait_before_isolation == timedelta(0)


async def test_a_secret_is_looked_for_by_name_and_its_values_stay_where_they_are(ready: World) -> None:
    """S12."""
    method = "agent_name=ipmi\nip=10.0.0.1\naction=reboot"
    await add_config_map(ready, f"fence-config-{NODE}", config("", "bmc", bmc=method))
    await add_secret(ready, f"secret-fence-method-bmc-{NODE}")
    result = await pin(ready)
    (reference,) = result.plan.devices[0].credentials
    assert reference.keys == {"password": "password", "username": "username"}
    assert "hunter2" not in repr(result)
    assert ready.server.requests.total("list", "secrets") == 0
    assert ready.server.requests.total("list", "configmaps") == 0


async def test_a_secret_that_may_not_be_seen_is_said(ready: World) -> None:
    await add_config_map(ready, f"fence-config-{NODE}", config("", "bmc", bmc="agent_name=ipmi\nip=10.0.0.1\naction=off"))
    ready.server.faults.add(Fault(accident=Accident.STATUS, status=403, path="/secrets/", user_agent="nodewarden/"))
    with refused(ErrorType.INVALID_CONFIG, f"secret-fence-method-bmc-{NODE}, which can't be looked for"):
        await pin(ready)


async def test_config_maps_that_may_not_be_read_are_not_taken_for_absent(ready: World) -> None:
    """What stands in them may be about this node."""
    await ready.add_template()
    ready.server.faults.add(Fault(accident=Accident.STATUS, status=403, path="/configmaps/", user_agent="nodewarden/"))
    with refused(ErrorType.INVALID_CONFIG, "it can't be read"):
        await pin(ready)


async def test_only_the_namespace_of_fence_configuration_is_read(ready: World) -> None:
    await add_config_map(ready, f"fence-config-{NODE}", config(), namespace="kube-system")
    with refused(ErrorType.INVALID_CONFIG, "write a FencingTemplate"):
        await pin(ready)


async def test_files_answer_as_an_api_server_does() -> None:
    data = config()
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fence-config-n1"}, "data": data}
    odd: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fence-config-n2"}, "data": "..."}
    reader = FileObjects([document, odd])

    async def read(name: str) -> tuple[str, tuple[str, ...]]:
        node = NodeView(name=name, uid="uid")
        found = await answered(reader, "default", lambda shelf: read_config_maps(node, shelf))
        return found.name, found.errors

    assert await read("n1") == ("fence-config-n1", ())
    _, (error,) = await read("n2")
    assert "ConfigMap/default/fence-config-n2: metadata: it can't be read: data: expected texts by their keys, got '...'" in error
    assert await reader.list_objects("/api/v1/configmaps") == [document, odd]
    assert await reader.list_objects("/api/v1/namespaces/kube-system/configmaps") == []
