"""Builders of Machines and of the health checks over them, in the three spellings: OpenShift's, and Cluster API's two versions.

What a test says of Machines in general it says with a `System`, and runs once for each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from activities.cluster.api.connection import ClusterConnection
from policy.checks.fence_policies import PolicySource
from policy.remediation.ladder import ESCALATION_ANNOTATION
from policy.values.object_refs import Dialect, ObjectRef
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient, ApiError
from tests.cluster.builders import DEFINITIONS, conditions, node, stamp
from tests.cluster.skipping import now
from tests.documents import documents

Object = dict[str, Any]

CRDS = Path(__file__).parents[2] / "simulator" / "crds"

CLUSTER_NAME = "blue"
OLDER = "v1beta1"
NEWER = "v1beta2"

CLUSTER_VERSIONS = "/apis/config.openshift.io/v1/clusterversions"
MACHINE_CONFIG_POOLS = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools"

PAUSED = "cluster.x-k8s.io/paused"
SKIP = "cluster.x-k8s.io/skip-remediation"

READY = {"type": "Ready", "status": "True"}
FENCING_TEMPLATE = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "name": "default"}


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One spelling of Machines, and the namespace in which this test has them. `folder`: of `simulator/crds`."""

    folder: str
    group: str
    version: str
    dialect: Dialect
    namespace: str

    def __str__(self) -> str:
        return self.folder

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def path(self, plural: str, name: str = "", *, subresource: str = "") -> str:
        parts = ("/apis", self.api_version, "namespaces", self.namespace, plural, name, subresource)
        return "/".join(part for part in parts if part)

    def check_ref(self, name: str = "workers") -> ObjectRef:
        return ObjectRef(api_version=self.api_version, kind="MachineHealthCheck", name=name, namespace=self.namespace)

    def machine_ref(self, name: str) -> ObjectRef:
        return ObjectRef(api_version=self.api_version, kind="Machine", name=name, namespace=self.namespace)

    @property
    def of_cluster_api(self) -> bool:
        return self.dialect is Dialect.CLUSTER_API

    def definitions(self) -> list[Object]:
        return documents(*sorted(f"simulator/crds/{self.folder}/{file.name}" for file in (CRDS / self.folder).glob("*.yaml")))

    # Objects

    def check(
        self, name: str = "workers", *, timeout: int = 300, most: int | str | None = None, template: bool = True, **spec: Any
    ) -> Object:
        """A health check of all Machines called workers: Ready=Unknown and Ready=False for so many seconds. most: how many may
        be unhealthy."""
        selector = {"matchLabels": {"role": "worker"}}
        statuses = ("Unknown", "False")
        if self.version == NEWER:
            remediation: Object = {"templateRef": FENCING_TEMPLATE} if template else {}
            remediation |= {"triggerIf": {"unhealthyLessThanOrEqualTo": most}} if most is not None else {}
            listed = [{"type": "Ready", "status": status, "timeoutSeconds": timeout} for status in statuses]
            written: Object = {"selector": selector, "checks": {"unhealthyNodeConditions": listed}}
            written |= {"remediation": remediation} if remediation else {}
        else:
            timed = [{"type": "Ready", "status": status, "timeout": f"{timeout}s"} for status in statuses]
            written = {"selector": selector, "unhealthyConditions": timed}
            written |= {"maxUnhealthy": most} if most is not None else {}
            written |= {"remediationTemplate": FENCING_TEMPLATE} if template else {}
        if self.of_cluster_api:
            written["clusterName"] = CLUSTER_NAME
        return self._object("MachineHealthCheck", name, written | spec)

    def bad_check(self, name: str = "bad") -> Object:
        """One that the schema takes, and that no MachineHealthCheck controller can use."""
        if self.version == NEWER:
            return self.check(name, selector={})
        if self.of_cluster_api:
            return self.check(name, most="10")
        return self.check(name, unhealthyConditions=[{"type": "Ready", "status": "Unknown"}])

    def machine(self, name: str, *, cluster: str = CLUSTER_NAME, annotations: Mapping[str, str] | None = None) -> Object:
        if not self.of_cluster_api:
            machine = self._object("Machine", name, {"providerSpec": {"value": {"flavour": "any"}}})
        else:
            apiversion = {"apiGroup": "example.io"} if self.version == NEWER else {"apiVersion": "example.io/v1"}
            machine = self._object(
                "Machine",
                name,
                {
                    "clusterName": cluster,
                    "bootstrap": {"dataSecretName": name},
                    "infrastructureRef": {**apiversion, "kind": "ExampleMachine", "name": name},
                },
            )
        machine["metadata"]["labels"] = {"role": "worker"}
        machine["metadata"]["annotations"] = dict(annotations or {})
        return machine

    def cluster(self, name: str = CLUSTER_NAME) -> Object:
        """A Cluster API Cluster; its status comes with `cluster_status`."""
        return self._object("Cluster", name, {"controlPlaneEndpoint": {"host": "192.0.2.1", "port": 6443}})

    def cluster_status(self, *, since: datetime) -> Object:
        """It is up: infrastructure and control plane, each as its version says it."""
        kinds = ("ControlPlaneInitialized", "InfrastructureReady")
        listed = [
            {"type": kind, "status": "True", "reason": "AsPlanned", "message": "it is", "lastTransitionTime": stamp(since)}
            for kind in kinds
        ]
        if self.version == NEWER:
            done = {"controlPlaneInitialized": True, "infrastructureProvisioned": True}
            return {"conditions": listed, "initialization": done}
        return {"conditions": listed, "controlPlaneReady": True, "infrastructureReady": True}

    def node(self, name: str, *, ready: str = "True", since: datetime | None = None) -> Object:
        """The Node of the Machine `machine-of(name)`, with the annotations by which the system's controllers tie the two."""
        return node(name, ready, since, **self.ties(name))

    def ties(self, name: str) -> dict[str, str]:
        """Those annotations."""
        if not self.of_cluster_api:
            return {"machine.openshift.io/machine": f"{self.namespace}/{machine_of(name)}"}
        return {
            "cluster.x-k8s.io/cluster-name": CLUSTER_NAME,
            "cluster.x-k8s.io/cluster-namespace": self.namespace,
            "cluster.x-k8s.io/machine": machine_of(name),
        }

    def _object(self, kind: str, name: str, spec: Object) -> Object:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": self.api_version, "kind": kind, "metadata": metadata, "spec": spec}

    # What people and their controllers do

    async def install(self, person: ApiClient) -> None:
        """The kinds, once objects of them may be written, and the namespace, where that is not there yet."""
        for definition in self.definitions():
            await person.create(DEFINITIONS, definition)
        for definition in self.definitions():
            await person.until_served(definition)
        try:
            await person.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        except ApiError as error:
            if not error.already_exists:
                raise

    async def add_machine(
        self, person: ApiClient, name: str, *, node: str = "", since: datetime | None = None, **fields: Any
    ) -> Object:
        """A Machine and its status. node: what it refers to; since: when its status was last written (OpenShift)."""
        await person.create(self.path("machines"), self.machine(name, **fields))
        status: Object = {"phase": "Running" if node else "Provisioned", "lastUpdated": stamp(since or now())}
        status |= {"nodeRef": {"name": node}} if node else {}
        return await self.set_status(person, name, status)

    async def set_status(self, person: ApiClient, machine: str, status: Object) -> Object:
        """Change a Machine's status."""
        return await person.patch(self.path("machines", machine, subresource="status"), {"status": status})

    async def add_cluster(self, person: ApiClient, name: str = CLUSTER_NAME) -> None:
        """Only Cluster API has such objects; elsewhere this does nothing."""
        if self.of_cluster_api:
            await person.create(self.path("clusters"), self.cluster(name))
            status = self.cluster_status(since=now() - timedelta(hours=2))
            await person.patch(self.path("clusters", name, subresource="status"), {"status": status})

    async def fleet(self, person: ApiClient, count: int = 4, *, nodes: ApiClient | None = None) -> None:
        """A Cluster with so many Machines; their Nodes are in another API where that is given."""
        await self.add_cluster(person)
        for number in range(count):
            name = f"node-{number}"
            await (nodes or person).create("/api/v1/nodes", self.node(name))
            await self.add_machine(person, machine_of(name), node=name)

    async def annotate(self, person: ApiClient, plural: str, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations; None removes one."""
        await person.patch(self.path(plural, name), {"metadata": {"annotations": dict(annotations)}})

    async def check_status(self, person: ApiClient, name: str = "workers") -> Object:
        """What stands in a check's status now."""
        found = await person.get(self.path("machinehealthchecks", name))
        status: Object = found.get("status") or {}
        return status

    # Reading its status

    def conditions(self, status: Object) -> dict[str, Object]:
        """The conditions that people look at first, by type."""
        return _by_type(status.get("conditions"))

    def older_conditions(self, status: Object) -> dict[str, Object]:
        """Cluster API's older generation, which has severities."""
        if self.version == NEWER:
            return _by_type(((status.get("deprecated") or {}).get(OLDER) or {}).get("conditions"))
        return _by_type(status.get("conditions"))

    def newer_conditions(self, status: Object) -> dict[str, Object]:
        """Cluster API's newer generation, which has an observedGeneration each."""
        if self.version == NEWER:
            return _by_type(status.get("conditions"))
        return _by_type((status.get("v1beta2") or {}).get("conditions"))


OPENSHIFT = System(
    folder="openshift", group="machine.openshift.io", version=OLDER, dialect=Dialect.OPENSHIFT, namespace="openshift-machine-api"
)
CLUSTER_API_OLDER = System(
    folder="cluster-api-v1beta1", group="cluster.x-k8s.io", version=OLDER, dialect=Dialect.CLUSTER_API, namespace="clusters"
)
CLUSTER_API = System(
    folder="cluster-api-v1beta2", group="cluster.x-k8s.io", version=NEWER, dialect=Dialect.CLUSTER_API, namespace="clusters"
)

SYSTEMS = (OPENSHIFT, CLUSTER_API_OLDER, CLUSTER_API)
COUNTING = tuple(sorted({system.namespace for system in SYSTEMS}))
"""Where Machines and their checks count, and templates beside them."""
OPERATORS = PolicySource(machines=(*COUNTING, "shoot", "shoot--simulated"))
"""The same for activities; in the last ones are those of machine-controller-manager."""
OF_CLUSTER_API = (CLUSTER_API_OLDER, CLUSTER_API)


def machine_of(node: str) -> str:
    """The name of a Node's Machine in these tests: never the Node's own, so that nothing works by accident."""
    return node.replace("node-", "machine-")


async def turn(person: ApiClient, name: str, ready: str, *, since: datetime | None = None) -> None:
    """What a kubelet says, or the node controller in its place."""
    await person.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": conditions(ready, since or now())}})


def sick_when_ready(system: System, name: str = "mine") -> Object:
    """A check by which a node that is well is to be fenced, by the operator's own configuration of it."""
    if system.version == NEWER:
        found = system.check(name, template=False, checks={"unhealthyNodeConditions": [READY | {"timeoutSeconds": 0}]})
    else:
        found = system.check(name, template=False, unhealthyConditions=[READY | {"timeout": "0s"}])
    found["metadata"]["annotations"] = {ESCALATION_ANNOTATION: "fence"}
    return found


def _by_type(listed: list[Object] | None) -> dict[str, Object]:
    return {condition["type"]: condition for condition in listed or ()}


# A second API server, where Cluster API's objects live apart from the nodes.


@asynccontextmanager
async def management_cluster() -> AsyncIterator[tuple[ApiServer, ApiClient, ClusterConnection]]:
    """It, a person's client of it, and the connection by which we read it."""
    async with (
        ApiServer() as server,
        ApiClient(ApiAddress(url=server.url, token="abc"), user_agent="a-person") as person,
        ClusterConnection.to(server.url, token="abc") as connection,
    ):
        yield server, person, connection
