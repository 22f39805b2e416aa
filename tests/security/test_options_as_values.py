"""What somebody writes into an object, a Secret or his own Node runs no program on the power worker (S41).

fence_virsh builds a command line of ssh from what it is told, and ssh runs what `-oProxyCommand=` says. Each attacker has his own
rights and no others, nodewarden those of deploy/rbac.yaml. What is found is what the hourly check of the devices would find, and
each device is then read as a power worker reads it, by the real agent.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.fence_devices import ClusterFenceDevices
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.device_check import FenceDevicesRequest
from activities.contracts.power import PowerRequest
from activities.contracts.target import Target
from activities.errors import ErrorType, error_type
from activities.power.driver import DeviceCredentials
from activities.power.fence_agent import FenceAgentFactory
from activities.power.service import PowerService
from policy.checks.fence_policies import PolicySource
from policy.episode.messages import Pinned
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerState
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from tests.cluster.builders import NODES, node
from tests.documents import documents, path_of
from tests.licensing import BELIEVING, LICENCES
from tests.power.agents.scripted import needs
from tests.power.conftest import within
from tests.system.real_api import simulated_only
from workers.configuration.credentials import ClusterObjects, WorkerCredentials

pytestmark = [pytest.mark.timeout(60), needs("fence_virsh", "ssh")]

CLUSTER, VICTIM = "prod", "node-7"
MALLORY = "mallory"
KUBELET = f"system:node:{VICTIM}"
TOKENS = {
    "administrator": "admin",
    "worker": "system:serviceaccount:nodewarden:nodewarden",
    "mallory": MALLORY,
    "kubelet": KUBELET,
}
KINDS = ("deploy/crds/fencingtemplates.nodewarden.io.yaml", "deploy/crds/fenceconfigs.nodewarden.io.yaml")
TEMPLATES = "/apis/nodewarden.io/v1alpha1/namespaces/nodewarden/fencingtemplates"


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that there is once the attacker's program has run, in the folder in which the worker runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "ran"


def has_run(ran: Path) -> bool:
    return ran.exists()


OPTION = "-oProxyCommand=touch${IFS}ran"
"""What ssh would carry out where it stood in its arguments."""
USER = f"{OPTION} root"
"""The second word leaves ssh a host."""
ADDRESS = f"fe80::1% {OPTION}"
"""Whatever follows the % is the address's zone, for Python."""


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    simulated_only("no act of the server: what an option in an object makes of a worker's programs")
    async with ApiServer(tokens=TOKENS) as server:
        async with ApiClient(ApiAddress(url=server.url, token="administrator"), user_agent="administrator") as person:
            for document in documents(*KINDS, "deploy/medik8s-leases.yaml", "deploy/rbac.yaml", "deploy/worker.yaml"):
                await person.create(path_of(document), document)
            await person.create(NODES, node(VICTIM))
        yield server


@pytest.fixture
async def person(api: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(ApiAddress(url=api.url, token="administrator"), user_agent="administrator") as client:
        yield client


@pytest.fixture
async def mallory(api: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(ApiAddress(url=api.url, token="mallory"), user_agent="mallory") as client:
        yield client


@pytest.fixture
async def worker(api: ApiServer) -> AsyncIterator[ClusterConnection]:
    async with ClusterConnection.to(api.url, token="worker") as opened:
        yield opened


async def may_write(person: ApiClient, namespace: str, resource: str) -> None:
    """One kind of object in one namespace, as the built-in role `edit` would, and nothing else."""
    named = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": f"may-write-{resource}", "namespace": namespace}}
    folder = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": ["get", "create", "update", "patch"]}]
    await person.create(f"{folder}/roles", {**named, "kind": "Role", "rules": rules})
    bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": f"may-write-{resource}"}}
    bound["subjects"] = [{"kind": "User", "name": MALLORY}]  # type: ignore[assignment]
    await person.create(f"{folder}/rolebindings", {**named, "kind": "RoleBinding", **bound})


async def found(worker: ClusterConnection) -> tuple[tuple[PowerDevice, ...], str]:
    """What the check of the devices finds of the victim's node, and its problem."""
    devices = ClusterFenceDevices(ServedCluster(CLUSTER, worker, source=PolicySource(namespace="nodewarden")), LICENCES)
    (of_node,) = (
        await ActivityEnvironment().run(devices.find_devices, FenceDevicesRequest(cluster=CLUSTER, nodes=(VICTIM,)))
    ).nodes
    return tuple(each.device for each in of_node.devices), of_node.problem


async def read(worker: ClusterConnection, devices: Sequence[PowerDevice]) -> list[ApplicationError]:
    """How a power worker fails that reads them; none of them is a machine."""
    power = PowerService(WorkerCredentials(ClusterObjects({CLUSTER: worker})), BELIEVING)
    failures = []
    for device in devices:
        pinned = Pinned(node=VICTIM, uid="uid", endpoints=(device.endpoint,))
        target = Target(cluster=CLUSTER, pinned=pinned, incident="i", kind="Fencing", workflow_id="w", run_id="r")
        with pytest.raises(ApplicationError) as caught:
            await ActivityEnvironment().run(
                power.read_power, PowerRequest(target=target, device=device, deadline=timedelta(seconds=6))
            )
        failures.append(caught.value)
    return failures


def virsh(**more: str) -> dict[str, str]:
    """A ConfigMap's lines for the victim's node."""
    method = {"agent_name": "fence_virsh", "ip": "127.0.0.1", "plug": "vm", "action": "reboot", "password": "x"} | more
    return {
        "config.properties": "power_management=vm",
        "fence-method-vm": "\n".join(f"{key}={value}" for key, value in method.items()),
    }


@pytest.mark.parametrize("key", ["username", "ip"])
async def test_a_user_or_an_address_in_a_config_map_is_no_option_of_ssh(
    person: ApiClient, mallory: ApiClient, worker: ClusterConnection, ran: Path, key: str
) -> None:
    """Also for him who may write where fence configuration is read."""
    await may_write(person, "nodewarden", "configmaps")
    lines = {"username": "root", key: ADDRESS} if key == "ip" else {key: USER}
    written = {"metadata": {"name": f"fence-config-node-{VICTIM}"}, "data": virsh(**lines)}
    await mallory.create("/api/v1/namespaces/nodewarden/configmaps", written)
    devices, problem = await found(worker)
    await read(worker, devices)
    assert not has_run(ran)
    assert devices == ()
    assert f"ConfigMap/nodewarden/fence-config-node-{VICTIM}: data[fence-method-vm].{key}: expected" in problem


async def test_what_a_secret_says_is_no_option_of_ssh_and_is_not_shown(
    person: ApiClient, mallory: ApiClient, worker: ClusterConnection, ran: Path
) -> None:
    """S12: who rotates a password is not who decides what runs on the worker. The worker alone sees it, and names the key."""
    power = {"driver": "fence_virsh", "nodeParameters": {VICTIM: {"ip": "127.0.0.1", "plug": "vm"}}, "secretRef": {"name": "vm"}}
    await person.create(TEMPLATES, a_template(power))
    await may_write(person, "nodewarden", "secrets")
    secret = {"metadata": {"name": "vm"}, "stringData": {"username": USER, "password": "x"}}
    await mallory.create("/api/v1/namespaces/nodewarden/secrets", secret)
    devices, problem = await found(worker)
    assert problem == ""
    (failure,) = await read(worker, devices)
    assert not has_run(ran)
    assert error_type(failure) is ErrorType.INVALID_CONFIG
    assert "credential 'username': expected a user name" in failure.message
    assert "ProxyCommand" not in failure.message


async def test_a_provider_id_that_a_kubelet_chose_is_no_option_of_ssh(
    api: ApiServer, person: ApiClient, worker: ClusterConnection, ran: Path
) -> None:
    """He registers his own Node, and an administrator has it filled in."""
    roles = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "create"]}]
    subject = {"subjects": [{"kind": "User", "name": KUBELET}]}
    reference = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kubelet"}}
    await person.create(f"{roles}/clusterroles", {"metadata": {"name": "kubelet"}, "rules": rules})
    await person.create(f"{roles}/clusterrolebindings", {"metadata": {"name": "kubelet"}, **subject, **reference})
    await person.delete(f"{NODES}/{VICTIM}")
    registered = node(VICTIM)
    registered.setdefault("spec", {})["providerID"] = ADDRESS
    async with ApiClient(ApiAddress(url=api.url, token="kubelet"), user_agent="kubelet") as kubelet:
        labels = registered["metadata"].pop("labels")  # a person gives the Node those of its role
        await kubelet.create(NODES, registered)
    await person.patch(f"{NODES}/{VICTIM}", {"metadata": {"labels": labels}})
    parameters = {"ip": "{{ .ProviderID }}", "plug": "{{ .NodeName }}"}
    power = {"driver": "fence_virsh", "parameters": parameters, "secretRef": {"name": "vm"}}
    await person.create(TEMPLATES, a_template(power))
    secret = {"metadata": {"name": "vm"}, "stringData": {"username": "root", "password": "x"}}
    await person.create("/api/v1/namespaces/nodewarden/secrets", secret)
    devices, problem = await found(worker)
    await read(worker, devices)
    assert not has_run(ran)
    assert devices == ()
    assert "parameters.ip: expected an IP address or a host name" in problem


SPY = """#!/usr/bin/python3
import os, sys
given = dict(line.strip().split("=", 1) for line in sys.stdin if "=" in line)
if given["action"] == "metadata":
    actions = "".join(f'<action name="{each}"/>' for each in ("on", "off", "status"))
    names = "".join(f'<parameter name="{each}"><content type="string"/></parameter>' for each in ("ip", "action"))
    print(f"<resource-agent><parameters>{names}</parameters><actions>{actions}</actions></resource-agent>")
else:
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    seen = [f"{name}={value}" for name, value in os.environ.items()]
    seen += [f"descriptor {each} {os.readlink('/proc/self/fd/' + each)}" for each in os.listdir("/proc/self/fd")
             if os.path.exists("/proc/self/fd/" + each)]
    open(os.path.join(folder, "seen"), "w").write("\\n".join(seen))
    print("Status: ON")
"""


async def test_an_agent_has_nothing_of_the_workers_environment_and_nothing_that_it_has_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not how to reach an API server, nor whose token: what is given is a list of what is allowed."""
    token = tmp_path / "token"
    token.write_text("a-token")
    for name in (
        "HOME",
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "SSH_AUTH_SOCK",
        "PYTHONPATH",
    ):
        monkeypatch.setenv(name, str(token))
    program = tmp_path / "fence_spy"
    program.write_text(SPY)
    program.chmod(0o755)
    factory = FenceAgentFactory(agent="fence_spy", further=frozenset({"fence_spy"}), search_path=str(tmp_path))
    handle = os.open(token, os.O_RDONLY)
    os.set_inheritable(handle, True)
    try:
        reading = await factory.build({"ip": "bmc"}, DeviceCredentials()).read(within(10))
    finally:
        os.close(handle)
    assert reading.state is PowerState.ON
    seen = (tmp_path / "seen").read_text().splitlines()
    assert str(token) not in "\n".join(seen)
    # The mark by which its processes are found is a number of this one run.
    allowed = {"PATH", "LC_ALL", "PYTHONWARNINGS", "LC_CTYPE", "NODEWARDEN_OPERATION"}
    assert {line.partition("=")[0] for line in seen if "=" in line} <= allowed
    assert {line.split()[1] for line in seen if line.startswith("descriptor")} <= {"0", "1", "2"}


def a_template(power: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "FencingTemplate",
        "metadata": {"name": "only", "namespace": "nodewarden"},
        "spec": {"template": {"spec": {"power": [power]}}},
    }
