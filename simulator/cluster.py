"""A whole simulated cluster in one process: API server, controllers, kubelets, machines on a platform, shared storage.

The doors for tests and the demo are here: `break_node`, `heal_node`, `storage.violations`, `kubeconfig_path`. With
`api_url` the kubelets and controllers work against a real API server instead (one without controllers of its own, as
envtest starts it). What goes wrong when is a scenario (`scenario.py`); the same doors over HTTP are `control.py`.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import yaml

from simulator import clocks, workloads
from simulator.api.control.request_log import Write
from simulator.audit_log import AuditLog
from simulator.bmc.bmc import Bmc
from simulator.bmc.chassis import Chassis
from simulator.client import USER_AGENT, ApiAddress, ApiClient, ApiError
from simulator.controllers import ControllerManager, ControllerTimings
from simulator.controllers.mirror_pods import MirrorPods
from simulator.disks import Disks, NetworkDisks
from simulator.hardware import Hardware
from simulator.informer import ClusterView
from simulator.kubelet import NodeIdentity, NodeTimings
from simulator.machines import Fleet, MachineOptions
from simulator.node import NodeFault, SimulatedNode
from simulator.objects import JsonObject, is_ready, key_of, name_of, namespace_of, node_of, uid_of
from simulator.platforms import platform_named
from simulator.platforms.contract import BmcKind, DeviceFault, Platform, PlatformError
from simulator.remediation import Operators
from simulator.remediators.bare_metal_hosts import BareMetalHosts
from simulator.remediators.contract import Remediator, RemediatorTimings
from simulator.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    SECRETS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
)
from simulator.storage import SharedStorage
from simulator.tasks import Tasks

log = logging.getLogger(__name__)

Operator = TypeVar("Operator", bound=Remediator)

OWN_CRDS = Path(__file__).parent / "crds"
TOKEN = "simulated-admin"  # noqa: S105 - of a server that lives on the loopback and as long as the test


class SimulatedCluster:
    """`async with SimulatedCluster(...) as cluster:` gives a cluster with Ready nodes and running workloads.

    platform: what the machines are (`platforms/`); bmc: which program plays BMCs, which alone means the platform ipmi. Without
    either nothing can switch them. bmc_secret: where the platform's credentials are put. secret_mark: with what all its
    secrets begin, the API's token too. machines: which system's Machines the workers are (`machine_systems/`), and how their
    controllers go about; without it there are none. own_disks: volumes are disks of the platform, which can be taken off a
    machine. mirror_pods: the nodes of the control plane show pods of etcd and of the components. api_audit_log: where a real
    API server writes who deletes what (`audit_log.py`). pod_garbage_seconds: between two looks of the pod garbage collector,
    not shrunk with the rest. controllers_elsewhere: only the storage driver is simulated; kube-controller-manager and
    kube-scheduler do the rest.
    """

    def __init__(
        self,
        *,
        nodes: int = 12,
        zones: int = 3,
        control_planes: int = 0,
        heartbeat_seconds: float = 1.0,
        grace_seconds: float = 4.0,
        boot_seconds: float = 5.0,
        pod_garbage_seconds: float = 20.0,
        bmc: BmcKind | None = None,
        platform: str | None = None,
        api_url: str | None = None,
        api_token: str = TOKEN,
        api_certificate_authority: str | None = None,
        api_audit_log: Path | None = None,
        controllers_elsewhere: bool = False,
        custom_resource_definitions: Sequence[Path] = (),
        demo_workloads: bool = True,
        toleration_seconds: int | None = None,
        node_timings: NodeTimings | None = None,
        controller_timings: ControllerTimings | None = None,
        state_dir: Path | None = None,
        bmc_secret: tuple[str, str] | None = None,
        secret_mark: str = "",
        machines: str | MachineOptions | None = None,
        remediators: Sequence[str] = (),
        remediator_timings: RemediatorTimings | None = None,
        own_disks: bool = False,
        mirror_pods: bool = False,
    ) -> None:
        platform = platform or ("ipmi" if bmc is not None else None)
        self._platform: type[Platform] | None = platform_named(platform) if platform is not None else None
        self.storage = SharedStorage()
        self.address: ApiAddress
        self.nodes: dict[str, SimulatedNode] = {}
        self.hardware: Hardware | None = None
        secret_name = self._platform.secret_name if self._platform is not None else "bmc-credentials"
        self.bmc_secret = bmc_secret or ("nodewarden", secret_name)
        self._counts = (nodes, zones, control_planes)
        self._heartbeat_seconds = heartbeat_seconds
        self._node_timings = node_timings or clocks.node_timings(heartbeat_seconds, grace_seconds, boot_seconds)
        self._controller_timings = controller_timings or clocks.controller_timings(
            heartbeat_seconds, grace_seconds, pod_garbage_seconds
        )
        self._bmc: BmcKind = bmc or "auto"
        self._api = (
            ApiAddress(url=api_url, token=api_token, certificate_authority=api_certificate_authority) if (api_url) else None
        )
        self._audit_log = AuditLog(api_audit_log) if api_audit_log is not None else None
        options = MachineOptions(system=machines) if isinstance(machines, str) else machines
        self._fleet = Fleet(self, options) if options is not None else None
        if options is not None and self._platform is not None and not self._platform.grows:
            raise PlatformError(f"the platform {platform} takes no machines while it runs, and Machines need that")
        self._operators = Operators(self, self._fleet, remediators, remediator_timings or RemediatorTimings())
        self.disks: Disks = NetworkDisks()
        self._own_disks = own_disks
        self._mirror_pods = mirror_pods
        self._controllers_elsewhere = controllers_elsewhere
        self._crds = [OWN_CRDS, *custom_resource_definitions, *(self._fleet.crds if self._fleet is not None else ())]
        self._crds += self._operators.crds
        self._demo_workloads = demo_workloads
        self._toleration_seconds = toleration_seconds
        self._state_dir = state_dir
        self._secret_mark = secret_mark
        self._identities: dict[str, NodeIdentity] = {}
        self._tasks = Tasks()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()
        if error is None:
            self._tasks.raise_failures()

    # Doors -------------------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return self.address.url

    @property
    def token(self) -> str:
        return self.address.token

    @property
    def deletions(self) -> Sequence[Write]:
        """Who asked the API server to delete what, in order. Raises LookupError on a real one without a named audit log."""
        if self.api is not None:
            return tuple(self.api.requests.deletions)
        if self._audit_log is None:
            raise LookupError("a real API server tells of deletions in its audit log only: start the cluster with api_audit_log")
        return self._audit_log.deletions

    def node(self, name: str) -> SimulatedNode:
        try:
            return self.nodes[name]
        except KeyError:
            known = ", ".join(self.nodes)
            raise LookupError(f"no node {name!r} in the simulated cluster; there are {known}") from None

    def node_of_pod(self, key: str) -> str:
        """The node a pod (`namespace/name`) is bound to."""
        pod = self.view.pods.get(key)
        if pod is None or not node_of(pod):
            raise LookupError(f"no pod {key!r} is bound to a node")
        return node_of(pod)

    @property
    def chassis(self) -> Chassis:
        """The truth about power, with the log of every command that any device has seen."""
        return self._hardware_or_refuse.chassis

    def bmc_endpoint(self, name: str) -> Bmc:
        """The BMC of a node: address, port, kind, pid."""
        return self._hardware_or_refuse.bmc(self.node(name).name)

    @property
    def platform(self) -> Platform:
        """What switches the machines."""
        return self._hardware_or_refuse.platform

    @property
    def machines(self) -> Fleet:
        """The Machines of the workers, and the hands for them."""
        if self._fleet is None:
            raise LookupError("this simulated cluster was started without Machines")
        return self._fleet

    @property
    def has_machines(self) -> bool:
        return self._fleet is not None

    def remediator(self, kind: type[Operator]) -> Operator:
        """The operator of that class, with its doors."""
        return self._operators.one(kind)

    @property
    def hosts(self) -> BareMetalHosts:
        """The BareMetalHosts of the Machines, and the operator that keeps their power."""
        return self._operators.hosts

    def zone_called(self, name: str) -> str:
        """A zone by the platform's name for it, or by `zone-a` on every platform."""
        letter = name.removeprefix("zone-")
        return self._zone(letter) if len(letter) == 1 else name

    def _zone(self, letter: str) -> str:
        return self._platform.zone(letter) if self._platform is not None else f"zone-{letter}"

    @property
    def _hardware_or_refuse(self) -> Hardware:
        if self.hardware is None:
            raise LookupError("this simulated cluster was started without BMCs or another platform")
        return self.hardware

    def break_node(self, name: str, how: str) -> None:
        """`how` is a `NodeFault`, a fault of the node's device, or `condition:TYPE=STATUS` for what the kubelet shall report."""
        node = self.node(name)
        log.info("breaking %s: %s", name, how)
        if how.startswith("condition:"):
            condition_type, _, status = how.removeprefix("condition:").partition("=")
            node.report_condition(condition_type, status or "True")
        elif how in set(NodeFault):
            fault = NodeFault(how)
            if fault is NodeFault.POWER_CUT and self.hardware is not None:
                self.hardware.cut_power(name)
            node.break_(fault)
        elif self.hardware is not None and how in self.platform.faults:
            self.hardware.break_device(name, DeviceFault(how))
        else:
            of_device = sorted(self.platform.faults) if self.hardware is not None else ()
            known = [*NodeFault, "condition:TYPE=STATUS", *of_device]
            raise ValueError(f"unknown fault {how!r} for node {name}; there are {', '.join(known)}")

    def heal_node(self, name: str) -> None:
        """Undo every fault of the node and of its device, without a power cycle."""
        log.info("healing %s", name)
        node = self.node(name)
        if self.hardware is not None:
            self.hardware.heal_device(name)
            if node.fault is NodeFault.POWER_CUT:
                self.hardware.restore_power(name)
        node.heal()

    async def wait_until(self, condition: Callable[[], bool], *, seconds: float = 20.0, what: str = "") -> None:
        """Until `condition` holds in the caches, for tests: no fixed sleeps, and an error that names what never came."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._tasks.raise_failures()
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise TimeoutError(f"not within {seconds} s: {what or condition}") from None

    # Start -------------------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._state_dir is None:
            self._state_dir = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="simulated-cluster-")))
        await asyncio.to_thread(self._state_dir.mkdir, parents=True, exist_ok=True)
        await self._start_api()
        self.client = await self._stack.enter_async_context(ApiClient(self.address))
        await self._create_basics()
        self.view = ClusterView(self.client)
        self._stack.push_async_callback(self._tasks.cancel_all)
        self._dispatch_to_nodes()
        if self._fleet is not None:
            self._fleet.look_on()
        controllers = ControllerManager(
            self.client.named(f"{USER_AGENT} controllers"),
            self.view,
            timings=self._controller_timings,
            driver=workloads.DRIVER,
            disks=lambda: self.disks,
            only_storage=self._controllers_elsewhere,
        )
        self.controllers = controllers
        self._tasks.start(self.view.run(), name="informers")
        async with asyncio.timeout(30):
            await self.view.wait_until_synced()
        await self._start_nodes()
        self._tasks.start(controllers.run(), name="controllers")
        if self._mirror_pods:
            self._tasks.start(MirrorPods(self.client.named(f"{USER_AGENT} mirror pods"), self.view).run(), name="mirror pods")
        async with asyncio.timeout(60):
            await self.wait_until(self._all_ready, seconds=60, what="all nodes Ready")
        if self._fleet is not None:
            await self._fleet.start(self._tasks)
        self._operators.start(self._tasks)
        if self._demo_workloads:
            await self._create_workloads()

    async def _start_api(self) -> None:
        assert self._state_dir is not None
        if self._api is not None:
            self.address, self.api = self._api, None
            kubeconfig = kubeconfig_of(self._api)
        else:
            from simulator.api.server import ApiServer

            token = f"{self._secret_mark}{TOKEN}"
            self.api = await self._stack.enter_async_context(ApiServer(tokens={token: "admin"}))
            self.address = ApiAddress(url=self.api.url, token=token)
            kubeconfig = self.api.kubeconfig()
        self.kubeconfig_path = self._state_dir / "kubeconfig"
        await asyncio.to_thread(self.kubeconfig_path.write_text, kubeconfig)

    async def _create_basics(self) -> None:
        for name in ("default", "kube-system", "kube-public", "kube-node-lease", self.bmc_secret[0]):
            await self._ensure(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.uid = uid_of(await self.client.get(NAMESPACES.path("kube-system")))
        await self.apply_custom_resource_definitions(self._crds)

    async def apply_custom_resource_definitions(self, paths: Sequence[Path]) -> None:
        """Files or folders of files; returns when the API serves the new kinds."""
        definitions = [each for path in paths for each in await asyncio.to_thread(_read_definitions, path)]
        for definition in definitions:
            await self._ensure(CUSTOM_RESOURCE_DEFINITIONS.path(), definition)
        for definition in definitions:
            await self.client.until_served(definition)

    async def _ensure(self, path: str, body: JsonObject) -> None:
        try:
            await self.client.create(path, body)
        except ApiError as error:
            if not error.already_exists:
                raise

    def _dispatch_to_nodes(self) -> None:
        """Wake exactly the kubelets that a change concerns."""

        def wake(name: str) -> None:
            if node := self.nodes.get(name):
                node.wake()

        def pod_changed(before: JsonObject | None, after: JsonObject | None) -> None:
            wake(node_of(after or before or {"spec": {}}))

        def attachment_changed(before: JsonObject | None, after: JsonObject | None) -> None:
            wake((after or before or {"spec": {}})["spec"].get("nodeName", ""))

        def claim_changed(_before: JsonObject | None, after: JsonObject | None) -> None:
            for pod in self.view.pods_by_claim[key_of(after)] if after is not None else ():
                wake(node_of(pod))

        self.view.pods.subscribe(pod_changed)
        self.view.attachments.subscribe(attachment_changed)
        self.view.claims.subscribe(claim_changed)

    async def _start_nodes(self) -> None:
        workers, zones, control_planes = self._counts
        plan = [(f"control-plane-{number}", "control-plane", number) for number in range(1, control_planes + 1)]
        plan += [(f"node-{number}", "worker", number) for number in range(1, workers + 1)]
        for index, (name, role, number) in enumerate(plan):
            zone = self._zone("abcdefghijklmnopqrstuvwxyz"[(number - 1) % zones])
            self._identities[name] = _identity(name, role, zone=zone, index=index)
        if self._platform is not None:
            assert self._state_dir is not None
            self.hardware = await self._stack.enter_async_context(
                Hardware(
                    self._identities,
                    platform=self._platform.name,
                    kind=self._bmc,
                    state_dir=self._state_dir / "bmc",
                    secret_mark=self._secret_mark,
                )
            )
            await self._create_secret(self.platform)
        if self._own_disks:
            self.disks = self.platform.disks()
            self.disks.on_gone(self._disk_has_left)
        for name in self._identities:
            self._build(name).power_on(boot_seconds=0)

    def _disk_has_left(self, disk: str, node: str) -> None:
        for volume in self.view.volumes:
            if volume["spec"]["csi"]["volumeHandle"] == disk:
                self.storage.cut(volume=name_of(volume), node=node)

    def _build(self, name: str) -> SimulatedNode:
        """The node of an identity, still without power."""
        identity = self._identities[name]
        provider_id = self.platform.provider_id(name) if self.hardware is not None else identity.provider_id
        node = self.nodes[name] = SimulatedNode(
            replace(identity, provider_id=provider_id),
            timings=self._node_timings,
            client=self.client.named(f"{USER_AGENT} kubelet/{name}"),
            view=self.view,
            storage=self.storage,
            tasks=self._tasks,
        )
        if self.hardware is not None:
            self.hardware.connect(node)
        return node

    async def add_node(self, *, zone: str, fault: NodeFault | None = None, role: str = "worker") -> SimulatedNode:
        """One more node, which boots; its name is new. fault: what it suffers from its first boot on (`never-boots`)."""
        before = sum(1 for each in self._identities.values() if each.role == role)
        name = f"{'node' if role == 'worker' else role}-{before + 1}"
        self._identities[name] = _identity(name, role, zone=zone, index=len(self._identities))
        if self.hardware is not None:
            await self.hardware.add(name)
        node = self._build(name)
        if fault is not None:
            node.break_(fault)
        node.power_on()
        return node

    async def switch_off(self, name: str) -> None:
        """Take the power from a node's machine, past all devices."""
        if self.hardware is not None:
            await self.chassis.machine(name).set_power("off")
        self.node(name).power_off()

    async def remove_node(self, name: str) -> None:
        """Take a node's machine away for good; its Node object stays."""
        self.node(name).scrap()
        del self.nodes[name]
        if self.hardware is not None:
            await self.hardware.remove(name)

    async def _create_secret(self, platform: Platform) -> None:
        namespace, name = self.bmc_secret
        await self._ensure(
            SECRETS.path(namespace=namespace),
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": namespace},
                "type": "Opaque",
                "stringData": dict(platform.secret()),
            },
        )

    def _all_ready(self) -> bool:
        known = [self.view.nodes.get(name) for name in self.nodes]
        return all(node is not None and is_ready(node) for node in known)

    async def _create_workloads(self) -> None:
        namespace = workloads.NAMESPACE
        await self._ensure(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await self._ensure(STORAGE_CLASSES.path(), workloads.storage_class())
        stateful_set = workloads.stateful_set(toleration_seconds=self._toleration_seconds)
        await self._ensure(STATEFUL_SETS.path(namespace=namespace), stateful_set)
        deployment = workloads.deployment(toleration_seconds=self._toleration_seconds)
        await self._ensure(DEPLOYMENTS.path(namespace=namespace), deployment)
        wanted = stateful_set["spec"]["replicas"] + deployment["spec"]["replicas"]
        await self.wait_until(lambda: self._running(namespace) >= wanted, seconds=60, what="the demo workloads run")

    def _running(self, namespace: str) -> int:
        return sum(1 for pod in self.view.pods if namespace_of(pod) == namespace and is_ready(pod))


def _identity(name: str, role: str, *, zone: str, index: int) -> NodeIdentity:
    """The same machine gets the same identity in every run, so that two runs can be compared."""
    machine = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.nodes.simulated")
    return NodeIdentity(
        name=name,
        zone=zone,
        role=role,
        provider_id=f"simulated:///{zone}/{name}",
        system_uuid=str(machine),
        machine_id=machine.hex,
        address=f"10.0.{index // 250}.{index % 250 + 1}",
    )


def _read_definitions(path: Path) -> list[JsonObject]:
    files = sorted([*path.glob("*.yaml"), *path.glob("*.yml")]) if path.is_dir() else [path]
    documents = [document for file in files for document in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader)]
    return [each for each in documents if each and each.get("kind") == "CustomResourceDefinition"]


def kubeconfig_of(address: ApiAddress) -> str:
    """For kubectl and other clients: its holder has the rights of the token."""
    cluster: JsonObject = {"server": address.url}
    if address.certificate_authority:
        cluster["certificate-authority"] = address.certificate_authority
    return str(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "simulated", "cluster": cluster}],
                "users": [{"name": "simulated", "user": {"token": address.token}}],
                "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "simulated"}}],
                "current-context": "simulated",
            },
            sort_keys=False,
        )
    )
