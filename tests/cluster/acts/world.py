"""A simulated API server with one sick node in it, our connection to it, and a clock that stands still.

Objects are arranged over HTTP by another client than ours, so that a test can tell who wrote what.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.cluster.acts.freeing import ClusterFreeing
from activities.cluster.acts.isolation import ClusterIsolation
from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.credentials import ExplicitCredentials
from activities.cluster.api.lease_view import CLUSTER_LEASE_NAME, CLUSTER_LEASE_NAMESPACE, LeaseView
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.live.node_leases import take_node_lease
from activities.contracts.remediation import BeforeActing, RememberRequest
from activities.contracts.target import (
    ActRequest,
    CordonRequest,
    FreeRequest,
    LookRequest,
    LookResult,
    LookVerdict,
    ReleaseRequest,
    RestoreRequest,
    Target,
    UntaintRequest,
)
from activities.errors import ErrorType, error_type
from activities.licences import Levels
from policy.episode.gate import Operation
from policy.episode.messages import Acknowledgement, Need, NeedKind, OffProof, Pinned, Reading, SeenNode
from policy.episode.modes import REPAIRS, ClusterModes
from policy.episode.node_action import CIRCUIT_BREAKER
from policy.fence.power import PowerState
from policy.objects.marks import Mark, parse_mark
from policy.objects.nodes import MARK_ANNOTATION
from policy.values.object_refs import ObjectRef
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient, ApiError
from simulator.objects import JsonObject, micro_timestamp, timestamp
from simulator.resources import (
    ATTACHMENTS,
    CLAIMS,
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    VOLUMES,
    Resource,
)
from tests.cluster.machines import OPERATORS
from tests.documents import document
from tests.licensing import LICENCES
from tests.policy.builders import mark_metadata
from tests.system.real_api import simulated_only

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
SICK_SINCE = NOW - timedelta(minutes=10)

CLUSTER = "prod"
NODE = "node-7"
INCIDENT = "incident-1"
WORKFLOW = f"episode/{CLUSTER}/{NODE}"
HOLDER = "temporal.example:7233/default"
ENDPOINT = "ipmi://10.0.0.7:623"

ROOT = Path(__file__).parents[3]
CHECKS = Resource(
    api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", plural="nodehealthchecks", namespaced=False
)
TEMPLATES = Resource(api_version="nodewarden.io/v1alpha1", kind="FencingTemplate", plural="fencingtemplates")
TEMPLATE_NAMESPACE = "nodewarden"
NODE_LEASES = "medik8s-leases"

CHECK_REF = ObjectRef(api_version=CHECKS.api_version, kind=CHECKS.kind, name="workers")
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}


class InterruptedConnection(ClusterConnection):
    """Our connection, with a moment between our read and our write in which a test lets others act, or time pass."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.before_writes: deque[Callable[[], Awaitable[Any]]] = deque()
        self.after_reads: Callable[[], None] = lambda: None
        self.after_writes: Callable[[], None] = lambda: None

    async def get_bytes(self, *args: Any, **options: Any) -> bytes:
        try:
            return await super().get_bytes(*args, **options)
        finally:
            self.after_reads()

    async def _write(self, *args: Any, **options: Any) -> JsonObject:
        if self.before_writes:
            await self.before_writes.popleft()()
        try:
            return await super()._write(*args, **options)
        finally:
            self.after_writes()


class Permits:
    """A permit book that says what the test wants."""

    def __init__(self) -> None:
        self.answer: tuple[bool, str] = (True, "")
        self.pause = ""
        self.overridden = False
        """Whether the permit is one past a circuit breaker, which counts only as a person's override."""
        self.error: Exception | None = None
        self.modes_error: Exception | None = None
        self.asked: list[tuple[str, str, str]] = []
        self.set = REPAIRS

    async def modes(self, cluster: str) -> ClusterModes:
        if error := self.error or self.modes_error:
            raise error
        return self.set

    async def holds(self, cluster: str, node: str, incident: str, override: str = "") -> tuple[bool, str]:
        self.asked.append((cluster, node, incident))
        if self.error is not None:
            raise self.error
        if self.overridden and override != CIRCUIT_BREAKER:
            return False, "no NodeAction attests that a person overrides it"
        return self.answer

    async def paused(self, cluster: str) -> str:
        self.asked.append((cluster, "", ""))
        if self.error is not None:
            raise self.error
        return self.pause


class World:
    """One cluster: `others` is everybody else's client, `target`, `isolation` and `freeing` are what is tested."""

    def __init__(self, server: ApiServer, others: ApiClient, connection: InterruptedConnection) -> None:
        self.server = server
        self.others = others
        self.connection = connection
        self.now = NOW
        connection.clock = self.clock
        self.permits = Permits()
        self.verdict = LookVerdict.GO
        self.credential_hosts: dict[str, tuple[str, ...]] = {}
        served = ServedCluster(CLUSTER, connection, clock=self.clock, credential_hosts=self.known_hosts, source=OPERATORS)
        self.target = ClusterTarget(served, self.permits, LICENCES)
        self.isolation = ClusterIsolation(
            ServedCluster(CLUSTER, connection, own_node="node-1", clock=self.clock, source=OPERATORS),
            self.looks,
            self.permits,
            LICENCES,
        )
        self.freeing = ClusterFreeing(
            ServedCluster(CLUSTER, connection, own_node="node-1", clock=self.clock, source=OPERATORS),
            self.target.last_look,
            LICENCES,
        )

    def clock(self) -> datetime:
        return self.now

    async def known_hosts(self) -> dict[str, tuple[str, ...]]:
        """What the check of devices knows by now."""
        return self.credential_hosts

    @property
    def writes(self) -> int:
        """Our requests that asked for a change."""
        return sum(count for agent, count in self.server.requests.writes.items() if agent.startswith("nodewarden/"))

    # What others do

    async def add_node(
        self,
        name: str = NODE,
        *,
        ready: str = "Unknown",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        unschedulable: bool = False,
        taints: tuple[Mapping[str, str], ...] = (),
        boot_id: str = "boot-1",
        provider_id: str = "metal://rack-3/7",
        system_uuid: str = "4c4c4544-0007",
    ) -> JsonObject:
        """Any other node than that of the tests is another machine, whatever the arguments leave as it is."""
        if name != NODE:
            provider_id = f"{provider_id}-{name}" if provider_id.startswith("metal:") else provider_id
            boot_id, system_uuid = f"{boot_id}-{name}", f"{system_uuid}-{name}"
        metadata: JsonObject = {
            "name": name,
            "labels": {"topology.kubernetes.io/zone": "zone-a", "node-role.kubernetes.io/worker": "", **(labels or {})},
        }
        if annotations:
            metadata["annotations"] = dict(annotations)
        spec: JsonObject = {"providerID": provider_id}
        if unschedulable:
            spec["unschedulable"] = True
        if taints:
            spec["taints"] = [dict(taint) for taint in taints]
        condition = {
            "type": "Ready",
            "status": ready,
            "reason": "NodeStatusUnknown",
            "lastTransitionTime": timestamp(SICK_SINCE),
            "lastHeartbeatTime": timestamp(SICK_SINCE),
        }
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": spec,
            "status": {"conditions": [condition], "nodeInfo": _node_info(boot_id, system_uuid)},
        }
        return await self.others.create(NODES.path(), node)

    async def has_node(self) -> bool:
        return NODE in [each["metadata"]["name"] for each in (await self.others.list(NODES.path()))["items"]]

    async def node(self, name: str = NODE) -> JsonObject:
        return await self.others.get(NODES.path(name))

    async def change_node(self, change: JsonObject, *, subresource: str = "", name: str = NODE) -> JsonObject:
        return await self.others.patch(NODES.path(name, subresource=subresource), change)

    async def set_ready(self, status: str, *, boot_id: str = "boot-1", since: datetime = NOW) -> None:
        node = await self.node()
        condition = {**node["status"]["conditions"][0], "status": status, "lastTransitionTime": timestamp(since)}
        info = {**node["status"]["nodeInfo"], "bootID": boot_id}
        await self.change_node({"status": {"conditions": [condition], "nodeInfo": info}}, subresource="status")

    async def delete_node(self) -> None:
        await self.others.delete(NODES.path(NODE))

    async def recreate_node(self, **fields: Any) -> JsonObject:
        await self.delete_node()
        return await self.add_node(**fields)

    async def put_mark(self, mark: Mark | str) -> None:
        value = mark if isinstance(mark, str) else mark.to_json()
        await self.change_node({"metadata": mark_metadata(value)})

    async def mark(self) -> Mark | None:
        value = (await self.node())["metadata"].get("annotations", {}).get(MARK_ANNOTATION)
        return None if value is None else parse_mark(value, node=NODE)

    async def configure(self, node: str, ip: str, *, called: str = "own", driver: str = "ipmi") -> None:
        """A FenceConfig of that node's own."""
        secret = {"name": "bmc-credentials", "namespace": "nodewarden"}
        power = {"driver": driver, "parameters": {"ip": ip}, "nodeParameters": {node: {}}, "secretRef": secret}
        body = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FenceConfig", "metadata": {"name": called}}
        spec = {"spec": {"nodeName": node, "power": [power]}}
        await self.others.create("/apis/nodewarden.io/v1alpha1/fenceconfigs", body | spec)

    async def install_kinds(self) -> None:
        for path in (
            "simulator/crds/nodehealthchecks.yaml",
            "deploy/crds/fencingtemplates.nodewarden.io.yaml",
            "deploy/crds/fenceconfigs.nodewarden.io.yaml",
        ):
            await self.others.create(CUSTOM_RESOURCE_DEFINITIONS.path(), document(path))

    async def add_check(
        self, name: str = "workers", *, duration: str = "60s", templates: tuple[ObjectRef, ...] = (), **spec: Any
    ) -> JsonObject:
        templates = templates or (template_ref("blades"),)
        ladder = [
            {"order": order, "timeout": "5m", "remediationTemplate": _reference(each)} for order, each in enumerate(templates)
        ]
        remedy = {"remediationTemplate": _reference(templates[0])} if len(templates) == 1 else {"escalatingRemediations": ladder}
        check = {
            "apiVersion": CHECKS.api_version,
            "kind": CHECKS.kind,
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchExpressions": [{"key": "node-role.kubernetes.io/worker", "operator": "Exists"}]},
                "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": duration}],
                "minHealthy": "51%",
                **remedy,
                **spec,
            },
        }
        return await self.others.create(CHECKS.path(), check)

    async def add_template(self, name: str = "blades", *, node: str = NODE, **spec: Any) -> ObjectRef:
        power = {"driver": "ipmi", "nodeParameters": {node: {"ip": "10.0.0.7"}}, "secretRef": {"name": "bmc-credentials"}}
        template = {
            "apiVersion": TEMPLATES.api_version,
            "kind": TEMPLATES.kind,
            "metadata": {"name": name, "namespace": TEMPLATE_NAMESPACE},
            "spec": {"template": {"spec": {"power": [power], **spec}}},
        }
        await self.others.create(TEMPLATES.path(namespace=TEMPLATE_NAMESPACE), template)
        return template_ref(name)

    async def hold_cluster_lease(self, holder: str = HOLDER, *, renewed: datetime = NOW, seconds: int = 30) -> None:
        lease = {
            "metadata": {"name": CLUSTER_LEASE_NAME, "namespace": CLUSTER_LEASE_NAMESPACE},
            "spec": {
                "holderIdentity": holder or None,
                "leaseDurationSeconds": seconds,
                "renewTime": micro_timestamp(renewed),
                "acquireTime": micro_timestamp(renewed),
            },
        }
        try:
            await self.others.create(LEASES.path(namespace=CLUSTER_LEASE_NAMESPACE), lease)
        except ApiError as error:
            if not error.already_exists:
                raise
            await self.others.patch(LEASES.path(CLUSTER_LEASE_NAME, namespace=CLUSTER_LEASE_NAMESPACE), lease)

    async def hold_node_lease(
        self, holder: str, *, renewed: datetime = NOW, seconds: int = 600, transitions: int = 3
    ) -> JsonObject:
        await self.others.create(NAMESPACES.path(), {"metadata": {"name": NODE_LEASES}})
        lease = {
            "metadata": {"name": f"node-{NODE}", "namespace": NODE_LEASES},
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": seconds,
                "renewTime": micro_timestamp(renewed),
                "acquireTime": micro_timestamp(renewed),
                "leaseTransitions": transitions,
            },
        }
        return await self.others.create(LEASES.path(namespace=NODE_LEASES), lease)

    async def node_lease(self) -> JsonObject:
        return await self.others.get(LEASES.path(f"node-{NODE}", namespace=NODE_LEASES))

    async def add_pod(
        self,
        name: str,
        *,
        node: str = NODE,
        owner: str = "",
        owner_name: str = "owner",
        mirror: bool = False,
        claims: tuple[str, ...] = (),
        tolerations: tuple[Mapping[str, Any], ...] = (),
        phase: str = "Running",
        finalizers: tuple[str, ...] = (),
        volumes: tuple[Mapping[str, Any], ...] = (),
        grace: int | None = None,
    ) -> JsonObject:
        metadata: JsonObject = {"name": name, "namespace": "default"}
        if owner:
            metadata["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": owner, "name": owner_name, "uid": f"uid-{owner}", "controller": True}
            ]
        if mirror:
            metadata["annotations"] = {"kubernetes.io/config.mirror": "hash"}
        if finalizers:
            metadata["finalizers"] = list(finalizers)
        spec = {
            "nodeName": node,
            "containers": [{"name": "main", "image": "example"}],
            "tolerations": [dict(each) for each in tolerations],
            **({"terminationGracePeriodSeconds": grace} if grace is not None else {}),
            "volumes": [
                *({"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in enumerate(claims)),
                *(dict(each) for each in volumes),
            ],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        created = await self.others.create(PODS.path(namespace="default"), pod)
        await self.others.patch(PODS.path(name, namespace="default", subresource="status"), {"status": {"phase": phase}})
        return created

    async def pods(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in (await self.others.list(PODS.path()))["items"])

    async def add_claim(self, claim: str, volume: str) -> None:
        """That names a volume, as any tenant may write it."""
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume}
        body = {"metadata": {"name": claim, "namespace": "default"}, "spec": spec}
        await self.others.create(CLAIMS.path(namespace="default"), body)

    async def add_volume(self, claim: str, *, node: str = NODE, attached: bool = True, **source: Any) -> None:
        """A claim bound to the volume `pv-<claim>`, and its attachment `va-<claim>` to the node."""
        await self.add_claim(claim, f"pv-{claim}")
        source = source or {"csi": {"driver": "csi.example", "volumeHandle": f"handle-pv-{claim}"}}
        bound = {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}}
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **bound, **source}
        await self.others.create(VOLUMES.path(), {"metadata": {"name": f"pv-{claim}"}, "spec": spec})
        if attached:
            await self.add_attachment(f"va-{claim}", volume=f"pv-{claim}", node=node)

    async def add_attachment(self, name: str, *, volume: str, node: str = NODE, finalizer: bool = False) -> None:
        metadata: JsonObject = {"name": name}
        if finalizer:
            metadata["finalizers"] = ["external-attacher/csi.example"]
        spec = {"attacher": "csi.example", "nodeName": node, "source": {"persistentVolumeName": volume}}
        await self.others.create(ATTACHMENTS.path(), {"metadata": metadata, "spec": spec})

    async def attachments(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in (await self.others.list(ATTACHMENTS.path()))["items"])

    # Requests of ours

    async def pinned(self, **fields: Any) -> Target:
        """The target as an episode pins it from the node that is there now."""
        node = await self.node()
        pinned = Pinned(
            node=NODE,
            uid=node["metadata"]["uid"],
            provider_id=node["spec"]["providerID"],
            system_uuid=node["status"]["nodeInfo"]["systemUUID"],
            boot_id=node["status"]["nodeInfo"]["bootID"],
            zone="zone-a",
            not_ready_since=SICK_SINCE,
            endpoints=(ENDPOINT,),
            levels=((ENDPOINT,),),
        )
        target = Target(cluster=CLUSTER, pinned=pinned, incident=INCIDENT, kind="Fencing", workflow_id=WORKFLOW, run_id="run-1")
        return replace(target, **fields)

    async def act(self, target: Target | None = None, **fields: Any) -> ActRequest:
        return ActRequest(target=target or await self.pinned(), **fields)

    async def restore(self, target: Target | None = None, **fields: Any) -> RestoreRequest:
        return RestoreRequest(target=(target or await self.pinned()).without_devices, **fields)

    async def untaint(self, target: Target | None = None, **fields: Any) -> UntaintRequest:
        return UntaintRequest(target=(target or await self.pinned()).without_devices, **fields)

    async def look(self, target: Target | None = None, *, need: Need | None = None, **fields: Any) -> LookRequest:
        need = need or Need(kind=NeedKind.PERSON, reason="a test asks", requester="tester")
        return LookRequest(target=target or await self.pinned(), need=need, **{"holder": HOLDER, **fields})

    async def cordon(self, target: Target | None = None, *, not_after: datetime | None = None) -> CordonRequest:
        return CordonRequest(look=await self.look(target), not_after=not_after)

    async def before(self, target: Target | None = None, *, memory: str = "", **fields: Any) -> BeforeActing:
        """What comes before an act that has others begin something. memory: what is noted, "" for nothing."""
        look = await self.look(target, **{"operation": Operation.REMOVE, **fields})
        noted = RememberRequest(target=look.target, memory=memory) if memory else None
        return BeforeActing(look=look, remember=noted)

    async def looks(self, request: LookRequest) -> LookResult:
        """What acts that look first are told."""
        return LookResult(verdict=self.verdict, reason=self.verdict, at=self.now, seen=SeenNode(node=NODE))

    async def release(self, target: Target | None = None, *, adopted: str = "") -> ReleaseRequest:
        return ReleaseRequest(target=target or await self.pinned(), adopted=adopted, holder=HOLDER)

    async def take_lease(
        self, target: Target | None = None, *, seconds: int = 120, not_after: datetime | None = None
    ) -> LeaseView | None:
        target, duration = target or await self.pinned(), timedelta(seconds=seconds)
        return await take_node_lease(self.connection, target, HOLDER, duration, not_after=not_after, clock=self.clock)

    async def free(
        self,
        target: Target | None = None,
        *,
        proof: OffProof | None = None,
        not_after: datetime | None = None,
        holder: str = HOLDER,
    ) -> FreeRequest:
        return FreeRequest(
            target=target or await self.pinned(),
            proof=proof or off_proof(),
            not_after=not_after or self.now + timedelta(seconds=30),
            holder=holder,
        )

    async def mark_as_ours(self, **added: Any) -> None:
        await self.put_mark(our_mark(**added))


@asynccontextmanager
async def empty_world(**server: Any) -> AsyncIterator[World]:
    """A running cluster without nodes; `server` goes to the simulated API server."""
    simulated_only("one act of a worker, whose clock stands still, and which others interrupt between its read and its write")
    async with (
        ApiServer(seed=7, **server) as api,
        ApiClient(ApiAddress(url=api.url, token="abc"), user_agent="others") as others,
        InterruptedConnection(ExplicitCredentials(api.url, token="abc")) as connection,
    ):
        await others.create(NAMESPACES.path(), {"metadata": {"name": TEMPLATE_NAMESPACE}})
        yield World(api, others, connection)


@contextmanager
def refused(kind: ErrorType, words: str = "") -> Iterator[pytest.ExceptionInfo[ApplicationError]]:
    """What is done inside is refused with that type, saying that."""
    with pytest.raises(ApplicationError) as caught:
        yield caught
    assert error_type(caught.value) is kind, caught.value
    assert words in caught.value.message, caught.value


def our_mark(**added: bool) -> Mark:
    return Mark(incident=INCIDENT, kind="Fencing", workflow_id=WORKFLOW, run_id="run-1", since="2026-11-21T11:55:00Z", **added)


WHOSE = Target(
    cluster=CLUSTER, pinned=Pinned(node=NODE, uid=""), incident=INCIDENT, kind="Fencing", workflow_id=WORKFLOW, run_id="run-1"
)
"""What a reading is bound to of it."""


def off_proof(
    *,
    commanded_at: datetime | None = NOW - timedelta(seconds=20),
    read_at: datetime = NOW - timedelta(seconds=5),
    state: PowerState = PowerState.OFF,
    endpoints: tuple[str, ...] = (ENDPOINT,),
) -> OffProof:
    readings = tuple(read(endpoint, state, at=read_at, levels=(endpoints,)) for endpoint in endpoints)
    return OffProof(commanded_at=commanded_at, readings=readings)


def read(endpoint: str, state: PowerState, *, at: datetime = NOW - timedelta(seconds=5), levels: Levels | None = None) -> Reading:
    """As a power worker has read it for our incident. levels: of the device, None: it is one of its own."""
    reading = Reading(endpoint=endpoint, state=state, at=at)
    return LICENCES.sealed_reading(WHOSE, reading, at, ((endpoint,),) if levels is None else levels)


def word(*, who: str = "ada", why: str = "pulled both plugs") -> OffProof:
    """A person's acknowledgement."""
    return OffProof(commanded_at=None, acknowledgement=Acknowledgement(who=who, why=why, at=NOW - timedelta(minutes=1)))


def template_ref(name: str) -> ObjectRef:
    return ObjectRef(api_version=TEMPLATES.api_version, kind=TEMPLATES.kind, name=name, namespace=TEMPLATE_NAMESPACE)


def _reference(ref: ObjectRef) -> JsonObject:
    return {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "namespace": ref.namespace}


def _node_info(boot_id: str, system_uuid: str) -> JsonObject:
    return {
        "bootID": boot_id,
        "systemUUID": system_uuid,
        "machineID": "machine",
        "architecture": "amd64",
        "containerRuntimeVersion": "containerd://2.0",
        "kernelVersion": "6.12",
        "kubeProxyVersion": "v1.36.0",
        "kubeletVersion": "v1.36.0",
        "operatingSystem": "linux",
        "osImage": "Debian",
    }
