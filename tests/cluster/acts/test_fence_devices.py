"""Which fence configuration holds for a node, which devices a check reads, and how people are told of one that is silent."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.fence_devices import ClusterFenceDevices
from activities.cluster.api.events import Happening
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.live.plans import answered
from activities.cluster.objects.decoding import decode_node
from activities.cluster.objects.object_reader import FileObjects
from activities.cluster.watch.view import ClusterView
from activities.contracts.device_check import FenceDevicesRequest, NodeNamesRequest, PublishDeviceNoticesRequest
from activities.errors import ErrorType
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.episode.messages import Need, NeedKind
from policy.fence.configmaps import read_config_maps
from policy.fence.device_check import DeviceEventReason, DeviceNotice, NodeToCheck
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.values.object_refs import ObjectRef
from simulator.api.control.faults import Accident, Fault
from simulator.resources import EVENTS
from tests.cluster.acts.test_pinning import pin
from tests.cluster.acts.world import CLUSTER, NODE, NOW, World, our_mark, refused
from tests.cluster.builders import until
from tests.cluster.scans import LIVE, WATCHES
from tests.licensing import LICENCES
from tests.policy.builders import config, ipmi

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
    assert await source(ready, template=chosen) == "FencingTemplate/nodewarden/special"
    await ready.add_check()
    assert await source(ready) == "FencingTemplate/nodewarden/blades"


async def test_a_fence_config_about_the_node_goes_before_the_only_template(ready: World) -> None:
    await ready.add_template()
    await add_fence_config(ready, "others", nodeName="another-node")
    assert await source(ready) == "FencingTemplate/nodewarden/blades"
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
        found = await answered(reader, "default", lambda lookup: read_config_maps(node, lookup))
        return found.name, found.errors

    assert await read("n1") == ("fence-config-n1", ())
    _, (error,) = await read("n2")
    assert "ConfigMap/default/fence-config-n2: metadata: it can't be read: data: expected texts by their keys, got '...'" in error
    assert await reader.list_objects("/api/v1/configmaps") == [document, odd]
    assert await reader.list_objects("/api/v1/namespaces/kube-system/configmaps") == []


OURS = "nodewarden/"


def devices_of(world: World, **options: Any) -> ClusterFenceDevices:
    served = ServedCluster(CLUSTER, world.connection, clock=world.clock, credential_hosts=world.known_hosts)
    return ClusterFenceDevices(served, LICENCES, **options)


async def found(world: World, *nodes: str, **options: Any) -> tuple[NodeToCheck, ...]:
    request = FenceDevicesRequest(cluster=CLUSTER, nodes=nodes)
    return (await ActivityEnvironment().run(devices_of(world, **options).find_devices, request)).nodes


async def test_the_names_are_all_there_and_sorted(ready: World) -> None:
    for name in ("node-9", "node-8"):
        await ready.add_node(name)
    request = NodeNamesRequest(cluster=CLUSTER)
    assert (await ActivityEnvironment().run(devices_of(ready).list_nodes, request)).names == (NODE, "node-8", "node-9")


async def test_every_device_of_the_configuration_is_there_once_with_its_deadline(ready: World) -> None:
    """The devices of power and of paths; and their credentials stay where they are (S12)."""
    methods = {"psu-a": ipmi(ip="10.0.0.1", action="reboot"), "psu-b": ipmi(ip="10.0.0.2", action="reboot")}
    await add_config_map(ready, f"fence-config-node-{NODE}", config("cordon", "psu-a psu-b", "uncordon", **methods))
    (node,) = await found(ready, NODE)
    assert [each.device.endpoint for each in node.devices] == ["ipmi://10.0.0.1:623", "ipmi://10.0.0.2:623"]
    assert {each.deadline for each in node.devices} == {timedelta(seconds=15)}
    assert (node.problem, node.ready, node.publishes, node.held) == ("", False, True, "")
    assert ready.writes == 0


async def test_s40_an_address_that_a_credential_never_went_to_is_told_by_the_check_and_pinned_so(ready: World) -> None:
    """The address of the ConfigMap was changed; its Secret has gone to another one so far."""
    secret = f"secret-fence-method-bmc-{NODE}"
    await add_config_map(ready, f"fence-config-{NODE}", config("", "bmc", bmc="agent_name=ipmi\nip=10.0.0.1\naction=reboot"))
    await add_secret(ready, secret)
    for known, strange in (("10.0.0.9", (f"Secret/nodewarden/{secret}",)), ("10.0.0.1", ())):
        ready.credential_hosts = {f"Secret/nodewarden/{secret}": (known,)}
        (node,), pinned = await found(ready, NODE), await pin(ready)
        assert [each.device.strange_to for each in node.devices] == [strange]
        assert [each.strange_to for each in pinned.plan.devices] == [strange]


async def test_a_node_without_a_usable_configuration_says_why_and_hides_no_other(ready: World) -> None:
    await ready.add_node("node-8")
    await add_config_map(ready, f"fence-config-node-{NODE}", config())
    await add_config_map(ready, "fence-config-node-node-8", {"config.properties": "power_management=bmc"})
    well, broken, gone = await found(ready, NODE, "node-8", "node-9")
    assert (len(well.devices), well.problem) == (1, "")
    assert "bmc is not defined" in broken.problem
    assert gone.problem == "node-9: there is no such Node or Machine"


async def test_nothing_configured_is_a_problem_of_the_node_and_rights_that_are_missing_are_too(ready: World) -> None:
    (none,) = await found(ready, NODE)
    assert "write a FencingTemplate" in none.problem
    ready.server.faults.add(Fault(accident=Accident.STATUS, status=403, path="/configmaps/", user_agent=OURS))
    (forbidden,) = await found(ready, NODE)
    assert "can't be read" in forbidden.problem


async def test_an_api_that_does_not_answer_is_no_problem_of_the_node(ready: World) -> None:
    await add_config_map(ready, f"fence-config-node-{NODE}", config())
    ready.server.faults.add(Fault(accident=Accident.STATUS, status=503, path="/configmaps/", user_agent=OURS))
    with refused(ErrorType.RATE_LIMITED):
        await found(ready, NODE)


async def test_an_open_episode_is_seen_by_its_mark_also_by_one_that_cant_be_read(ready: World) -> None:
    await add_config_map(ready, f"fence-config-node-{NODE}", config())
    await ready.put_mark(our_mark())
    (held,) = await found(ready, NODE)
    await ready.put_mark("{")
    (unreadable,) = await found(ready, NODE)
    assert (held.held, unreadable.held) == ("incident-1", "unknown")


async def test_an_unconfigured_device_is_reported_only_where_a_health_check_covers_the_node(ready: World) -> None:
    """Opt-in: a worker with an identity in the cloud writes nothing into a cluster that never asked for it."""
    await ready.add_node("node-8", provider_id="aws:///us-east-1a/i-0123456789abcdef0")
    (idle,) = await found(ready, "node-8", looked_after=lambda: False)
    (watched,) = await found(ready, "node-8", looked_after=lambda: True)
    assert [each.device.driver for each in idle.devices] == ["ec2"]
    assert (idle.publishes, watched.publishes) == (False, True)
    on_and_off = {action: ipmi(ip="{{ .NodeName }}.bmc", action=action) for action in ("off", "on")}
    await add_config_map(ready, "fence-config-default", config("", "off on", **on_and_off))
    (configured,) = await found(ready, "node-8", looked_after=lambda: False)
    assert configured.publishes, configured.problem


async def test_a_check_of_all_nodes_goes_by_the_watch_and_a_person_gets_what_is_so_now(ready: World) -> None:
    """Two pages of one check: no Node, template or ConfigMap is read, and health checks once. A person gets the same, read
    live."""
    nodes = [f"n-{number}" for number in range(10)]
    for name in nodes:
        await ready.add_node(name)
    await ready.add_template()
    await add_config_map(ready, "fence-config-n-3", config("cordon", "off", "uncordon", off=ipmi(ip="10.0.0.3", action="off")))
    view = ClusterView(
        ready.connection, limits=LIVE, watch_limits=WATCHES, source=replace(DEFAULT_SOURCE, namespace="nodewarden")
    )
    view.watches.start()
    try:
        await until(lambda: view.follow_claims() and view.fence_objects() is not None)
        devices = devices_of(ready, watched=view)

        async def checked(began: datetime | None, *names: str) -> list[NodeToCheck]:
            request = FenceDevicesRequest(cluster=CLUSTER, nodes=names, check=began)
            return [unsealed(each) for each in (await ActivityEnvironment().run(devices.find_devices, request)).nodes]

        ready.server.requests.counts.clear()
        assert (await devices.list_nodes(NodeNamesRequest(cluster=CLUSTER))).names == (*nodes, NODE)
        by_watch = [*await checked(NOW, *nodes[:5]), *await checked(NOW, *nodes[5:], "gone")]
        for verb, resource, times in (
            ("list", "nodes", 0),
            ("get", "nodes", 1),  # the one that is gone
            ("list", "fencingtemplates", 0),
            ("list", "fenceconfigs", 0),
            ("get", "configmaps", 0),
            ("list", "nodehealthchecks", 1),
        ):
            assert ready.server.requests.total(verb, resource, OURS) == times, resource
        assert {each.devices[0].device.driver for each in by_watch[:-1] if each.devices} == {"ipmi"}
        assert await checked(None, *nodes, "gone") == by_watch
        assert ready.server.requests.total("get", "nodes", OURS) == 12
        await ready.others.delete(f"{CONFIG_MAPS.format('nodewarden')}/fence-config-n-3")
        (live,) = await checked(None, "n-3")
        assert live != by_watch[3]
        await until(lambda: view.fence_maps() == {})
        asked = ready.server.requests.total("list", "nodehealthchecks", OURS)
        assert await checked(NOW + timedelta(seconds=1), "n-3") == [live]
        assert ready.server.requests.total("list", "nodehealthchecks", OURS) == asked + 1  # another check reads anew
    finally:
        await view.watches.stop()


def unsealed(node: NodeToCheck) -> NodeToCheck:
    """As it is but for the seals, which name the moment."""
    return replace(node, devices=tuple(replace(each, device=replace(each.device, seal="")) for each in node.devices))


@dataclass
class Seen:
    """What a watch has of these documents."""

    documents: list[dict[str, Any]]

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [each for each in self.documents if each["kind"] in kinds]

    def follow_claims(self) -> bool:
        return True

    def nodes(self) -> list[NodeView]:
        return [decode_node(orjson.dumps(each)) for each in self.of("Node")]

    def machines_claiming(self, node: NodeView) -> list[MachineView]:
        raise NotImplementedError(node.name)

    def fence_objects(self) -> list[dict[str, Any]]:
        return self.of("FencingTemplate", "FenceConfig")

    def fence_maps(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each["data"] for each in self.of("ConfigMap")}


def random_configuration(chance: random.Random) -> list[dict[str, Any]]:
    """Some nodes and fence configuration about them in every kind, with the mistakes that people make."""
    nodes = [f"n{number}" for number in range(chance.randrange(2, 6))]

    def an_object(kind: str, name: str, version: str = "nodewarden.io/v1alpha1", **body: Any) -> dict[str, Any]:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "nodewarden"}, **body}

    def power() -> dict[str, Any]:
        some = chance.sample(nodes, chance.randrange(1, len(nodes) + 1))
        values = ({"ip": f"10.0.0.{chance.randrange(4)}"}, {"ip": ""}, {"password": "x"}, {"ip": "10.0.0.1", "ipport": 623})
        own = {each: chance.choices(values, (8, 1, 1, 2))[0] for each in some}
        secret = {"name": "bmc", "namespace": "nodewarden"}
        return {"driver": "ipmi", "parameters": {"ip": "{{ .NodeName }}.bmc"}, "nodeParameters": own, "secretRef": secret}

    found = []
    for each in nodes:
        node = an_object("Node", each, "v1", spec={"providerID": f"gce://p/z/{each}"}, status={})
        node["metadata"] = {"name": each, "uid": each, "labels": {"pool": chance.choice("ab")}}
        found.append(node)
    templates = [f"t{number}" for number in range(chance.randrange(3))]
    found += [an_object("FencingTemplate", each, spec={"template": {"spec": {"power": [power()]}}}) for each in templates]
    for number in range(chance.choice((0, 0, 1, 2)) if templates else 0):
        template = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "namespace": "nodewarden"}
        found.append(a_check(f"c{number}", {"pool": chance.choice("ab")}, template | {"name": chance.choice([*templates, "t9"])}))
    for number in range(chance.choice((0, 0, 0, 1, 3))):
        about = chance.choice(
            [{"nodeName": chance.choice(nodes)}, {"nodeSelector": {"matchLabels": {"pool": "a"}}}, {"nodeName": 7}]
        )
        found.append(an_object("FenceConfig", f"f{number}", spec={"power": [power()]} | about))
        del found[-1]["metadata"]["namespace"]
    names = [name for name in (*nodes, "default") if chance.random() < 0.1]
    lines = {"config.properties": chance.choice(["power_management=bmc", "nonsense"]), "fence-method-bmc": "agent_name=ipmi"}
    return found + [an_object("ConfigMap", f"fence-config-{each}", "v1", data=lines) for each in names]


def a_check(name: str, labels: dict[str, str], template: dict[str, str]) -> dict[str, Any]:
    listed = [{"type": "Ready", "status": "False", "duration": "300s"}]
    spec = {"selector": {"matchLabels": labels}, "unhealthyConditions": listed, "remediationTemplate": template}
    version = "remediation.medik8s.io/v1alpha1"
    return {"apiVersion": version, "kind": "NodeHealthCheck", "metadata": {"name": name, "uid": name}, "spec": spec}


async def test_what_was_understood_once_is_for_each_node_what_would_be_read_for_it_alone() -> None:
    """S10, S11: over random configuration, also where it is wrong: which error is told depends on no other node."""
    found: Counter[str] = Counter()
    for seed in range(150):
        documents = random_configuration(random.Random(seed))
        served = ServedCluster(CLUSTER, FileObjects(documents), source=PolicySource(namespace="nodewarden"))  # type: ignore[arg-type]
        devices = ClusterFenceDevices(served, LICENCES, watched=Seen(documents))
        names = tuple(each.name for each in Seen(documents).nodes())
        together = (await devices.find_devices(FenceDevicesRequest(cluster=CLUSTER, nodes=names, check=NOW))).nodes
        for name, each in zip(names, together, strict=True):
            (alone,) = (await devices.find_devices(FenceDevicesRequest(cluster=CLUSTER, nodes=(name,)))).nodes
            assert unsealed(each) == unsealed(alone), seed
            found["devices" if each.devices else re.sub(r"[0-9']|/.*?:", "", each.problem)[:60]] += 1
    assert found["devices"] > 100
    assert len(found) > 10


def notice(**changes: Any) -> DeviceNotice:
    plain = DeviceNotice(
        node=NODE,
        node_uid="uid-7",
        endpoint="ipmi://10.0.0.7:623",
        reason=DeviceEventReason.FENCE_DEVICE_SILENT,
        since=NOW - timedelta(hours=1),
        problem="no answer from the BMC",
    )
    return replace(plain, **changes)


async def test_silence_and_return_are_events_on_the_node_and_a_repeated_request_tells_nothing_twice(ready: World) -> None:
    devices, back = devices_of(ready), notice(reason=DeviceEventReason.FENCE_DEVICE_ANSWERS)
    for _ in range(2):
        await ActivityEnvironment().run(
            devices.publish_device_notices, PublishDeviceNoticesRequest(cluster=CLUSTER, notices=(notice(), back))
        )
    items = (await ready.others.list(EVENTS.path(namespace="default")))["items"]
    events = {item["reason"]: item for item in items}
    silent = events["FenceDeviceSilent"]
    assert (silent["type"], silent["count"], silent["involvedObject"]["name"]) == ("Warning", 1, NODE)
    assert silent["involvedObject"]["uid"] == "uid-7"
    assert silent["message"].startswith("the node could not be fenced by ipmi://10.0.0.7:623: no answer from the BMC; its last ")
    assert (events["FenceDeviceAnswers"]["type"], events["FenceDeviceAnswers"]["count"]) == ("Normal", 1)
    assert len(items) == 2


async def test_s41_no_event_of_another_author_silences_a_silent_device(ready: World) -> None:
    """A kubelet knows all that a notice is about, and writes Events: one of that name kept ours back."""
    about = ObjectRef(api_version="v1", kind="Node", name=NODE)
    named = Happening(about=about, uid="uid-7", reason=notice().reason, message="", identity=notice().identity).name
    at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    forged = {
        "metadata": {"name": named},
        "involvedObject": {"kind": "Node", "name": NODE},
        "message": "well",
        "lastTimestamp": at,
    }
    await ready.others.create(EVENTS.path(namespace="default"), forged)
    asked = PublishDeviceNoticesRequest(cluster=CLUSTER, notices=(notice(),))
    await ActivityEnvironment().run(devices_of(ready).publish_device_notices, asked)
    items = (await ready.others.list(EVENTS.path(namespace="default")))["items"]
    assert any(each["message"].startswith("the node could not be fenced by") for each in items)
