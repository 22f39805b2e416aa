"""node-maintenance-operator: a person wants a node empty, and everybody else is to leave it alone for so long.

It takes the lease of the node (`medik8s-leases/node-<name>`), labels the Node so that it is excluded from remediation, cordons
and drains it. Nothing renews the lease once the node is empty, and at the end it uncordons the node, also one that another had
cordoned, as there.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import ClassVar

from simulator.client import ApiError
from simulator.objects import JsonObject, controller_of, is_terminating, key_of, micro_timestamp, name_of, timestamp, uid_of
from simulator.remediators.contract import EXCLUDED, Remediator, Surroundings
from simulator.resources import LEASES, NAMESPACES, PODS, Resource

FINALIZER = "foregroundDeleteNodeMaintenance"
LEASE_NAMESPACE = "medik8s-leases"
HOLDER = "node-maintenance"
LEASE_SECONDS = 3600
MOST_ERRORS_ON_LEASE = 3
TAINTS = (
    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    {"key": "medik8s.io/drain", "effect": "NoSchedule"},
)
RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"


class NodeMaintenances(Remediator):
    """Door: the lease, by writing it with another holder."""

    name_to_ask_for = "node-maintenance"
    crds = ("node-maintenance",)
    remediations: ClassVar[Resource] = Resource(
        api_version="nodemaintenance.medik8s.io/v1beta1", kind="NodeMaintenance", plural="nodemaintenances", namespaced=False
    )

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self._done: set[str] = set()

    async def reconcile(self, key: str) -> float | None:
        maintenance = self.objects.get(key)
        if maintenance is None:
            return None
        node = self.view.nodes.get(maintenance["spec"]["nodeName"])
        if is_terminating(maintenance):
            # Held by others alone it is none of ours any more.
            if FINALIZER in (maintenance["metadata"].get("finalizers") or ()):
                await self._end(maintenance["spec"]["nodeName"], node)
                await self.let_go(maintenance, FINALIZER)
            return None
        status = maintenance.get("status") or {}
        if status.get("phase") == FAILED or uid_of(maintenance) in self._done:
            return None
        maintenance = await self.hold(maintenance, FINALIZER)
        pending = self._pending(maintenance["spec"]["nodeName"])
        if not status.get("phase"):
            maintenance = await self._status(maintenance, phase=RUNNING, evictionPods=len(pending), pendingPods=pending)
        if node is None:
            missing = f'nodes "{maintenance["spec"]["nodeName"]}" not found'
            await self._status(maintenance, phase=FAILED, lastError=missing)
            return None
        return await self._maintain(maintenance, node)

    async def _maintain(self, maintenance: JsonObject, node: JsonObject) -> float | None:
        status, name = maintenance["status"], name_of(node)
        if int(status.get("errorOnLeaseCount", 0)) > MOST_ERRORS_ON_LEASE:
            await self._end(name, node)
            await self._status(maintenance, phase=FAILED, lastError="maintenance failed: lease could not be extended")
            return None
        if (holder := await self._take_lease(node)) != HOLDER:
            # Only a lease that was its own already is missed.
            lost = 1 if int(status.get("drainProgress", 0)) > 0 else 0
            count = int(status.get("errorOnLeaseCount", 0)) + lost
            await self._status(maintenance, errorOnLeaseCount=count, lastError=f"the lease is held by {holder}")
            return self.timings.poll
        await self._shut(node)
        pending = await self._drain(name)
        total = int(status.get("evictionPods", 0))
        if pending:
            progress = (total - len(pending)) * 100 // total if total else 0
            await self._status(
                maintenance, drainProgress=progress, pendingPods=pending, errorOnLeaseCount=0, lastError="Not all pods evicted"
            )
            return self.timings.poll
        await self._status(maintenance, phase=SUCCEEDED, drainProgress=100, pendingPods=None, errorOnLeaseCount=0, lastError="")
        self._done.add(uid_of(maintenance))
        return None

    async def _shut(self, node: JsonObject) -> None:
        node = await self.taint(node, *TAINTS)
        labels, spec = node["metadata"].get("labels") or {}, node.get("spec") or {}
        if labels.get(EXCLUDED) != "true" or not spec.get("unschedulable"):
            change = {"metadata": {"labels": {EXCLUDED: "true"}}, "spec": {"unschedulable": True}}
            await self.patch(node, change, informer=self.view.nodes)

    async def _end(self, name: str, node: JsonObject | None) -> None:
        if node is not None:
            node = await self.remove_taint(node, *TAINTS)
            change = {"metadata": {"labels": {EXCLUDED: None}}, "spec": {"unschedulable": None}}
            await self.patch(node, change, informer=self.view.nodes)
        lease = await self._lease(name)
        if lease is not None and lease["spec"].get("holderIdentity") == HOLDER:
            await self._delete(_lease_path(name), lease)

    async def _drain(self, node: str) -> list[str]:
        """Ask everything that is no DaemonSet's to go; what is still there is named."""
        for pod in self.view.pods_by_node[node]:
            if not _every_node_has_it(pod) and not is_terminating(pod):
                eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": _place_of(pod)}
                try:
                    await self.client.create(PODS.path_of_key(key_of(pod), subresource="eviction"), eviction)
                except ApiError as error:
                    if not error.not_found and error.status != 429:
                        raise
        return self._pending(node)

    def _pending(self, node: str) -> list[str]:
        return sorted(name_of(pod) for pod in self.view.pods_by_node[node] if not _every_node_has_it(pod))

    # The lease

    async def _take_lease(self, node: JsonObject) -> str:
        """Who has it afterwards."""
        name, now = name_of(node), datetime.now(UTC)
        lease = await self._lease(name)
        spec = {"holderIdentity": HOLDER, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micro_timestamp(now)}
        if lease is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node)}
            metadata = {"name": f"node-{name}", "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            body = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": metadata,
                "spec": {**spec, "acquireTime": micro_timestamp(now)},
            }
            await self._ensure_namespace()
            await self.client.create(LEASES.path(namespace=LEASE_NAMESPACE), body)
            return HOLDER
        holder = str(lease["spec"].get("holderIdentity") or "")
        if holder not in ("", HOLDER):
            renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
            if now < renewed + timedelta(seconds=lease["spec"]["leaseDurationSeconds"]):
                return holder
        version = {"resourceVersion": lease["metadata"]["resourceVersion"]}
        await self.client.patch(_lease_path(name), {"metadata": version, "spec": spec})
        return HOLDER

    async def _lease(self, node: str) -> JsonObject | None:
        try:
            return await self.client.get(_lease_path(node))
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def _ensure_namespace(self) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
        try:
            await self.client.create(NAMESPACES.path(), body)
        except ApiError as error:
            if not error.already_exists:
                raise

    async def _status(self, maintenance: JsonObject, **fields: object) -> JsonObject:
        known = maintenance.get("status") or {}
        if all(known.get(field) == value for field, value in fields.items()):
            return maintenance
        status = {**fields, "lastUpdate": timestamp()}
        return await self.patch(maintenance, {"status": status}, subresource="status")


def _every_node_has_it(pod: JsonObject) -> bool:
    owner = controller_of(pod)
    return owner is not None and owner["kind"] == "DaemonSet"


def _place_of(pod: JsonObject) -> JsonObject:
    return {"name": name_of(pod), "namespace": pod["metadata"]["namespace"]}


def _lease_path(node: str) -> str:
    return LEASES.path(f"node-{node}", namespace=LEASE_NAMESPACE)
