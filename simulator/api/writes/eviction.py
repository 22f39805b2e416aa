"""The two acts on pods that are no writes of fields: eviction under disruption budgets, and binding to a node."""

from __future__ import annotations

from typing import Any

from simulator.api import errors, moments
from simulator.api.storage.selectors import from_object, matches_labels
from simulator.api.storage.store import Document, Record
from simulator.api.writes.registry import DeleteOptions, Registry, WriteOptions

_BUDGETS = ("policy", "poddisruptionbudgets")


def evict(registry: Registry, namespace: str, name: str, sent: Document, *, dry_run: bool) -> dict[str, Any]:
    """Delete a pod if every budget that covers it has room, and take one from that budget."""
    pods = registry.catalogue.named("pods")
    given = (sent.get("metadata") or {}).get("name") or name
    if given != name:
        raise errors.bad_request(f"name in URL does not match name in Eviction object: {name} and {given}")
    pod = registry.get(pods, namespace, name)
    options = read_delete_options(sent.get("deleteOptions") or {}, dry_run=dry_run)
    if not _is_unprotected(pod):
        budget = _budget(registry, pod)
        if budget is not None:
            _take(registry, budget, pod, dry_run=options.dry_run)
    registry.delete(pods, namespace, name, options)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def read_delete_options(sent: dict[str, Any], *, dry_run: bool = False) -> DeleteOptions:
    preconditions = sent.get("preconditions") or {}
    propagation = sent.get("propagationPolicy")
    if propagation is None and sent.get("orphanDependents"):
        propagation = "Orphan"
    if propagation not in (None, "Foreground", "Background", "Orphan"):
        raise errors.bad_request(f'invalid propagationPolicy "{propagation}": Foreground, Background or Orphan')
    return DeleteOptions(
        dry_run=dry_run or "All" in (sent.get("dryRun") or ()),
        grace_seconds=sent.get("gracePeriodSeconds"),
        propagation=propagation,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
    )


def _is_unprotected(pod: Record) -> bool:
    """Pods that a budget does not count: finished, not yet running, or already going."""
    phase = (pod.document.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod.document["metadata"]


def _is_ready(pod: Record) -> bool:
    conditions = (pod.document.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _budget(registry: Registry, pod: Record) -> Record | None:
    collection = registry.store.collection(_BUDGETS)
    covering = []
    for key in collection.keys(pod.namespace):
        record = collection.records[key]
        selector = (record.document.get("spec") or {}).get("selector")
        if selector is not None and matches_labels(from_object(selector), pod.labels):
            covering.append(record)
    if len(covering) > 1:
        raise errors.internal("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")
    return covering[0] if covering else None


def _take(registry: Registry, budget: Record, pod: Record, *, dry_run: bool) -> None:
    spec, status = budget.document.get("spec") or {}, budget.document.get("status") or {}
    if not _is_ready(pod) and spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if not _is_ready(pod) and healthy >= desired and desired > 0:
        return
    if status.get("observedGeneration", 0) < budget.document["metadata"]["generation"]:
        raise errors.disruption_budget("is still being processed by the server.", budget.name, retry_after=10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        raise errors.disruption_budget(f"needs {desired} healthy pods and has {healthy} currently", budget.name, retry_after=0)

    def one_less(document: Document) -> Document:
        disrupted = document["status"].setdefault("disruptedPods", {})
        disrupted[pod.name] = moments.stamp(moments.now())
        document["status"]["disruptionsAllowed"] = allowed - 1
        return document

    resource = registry.catalogue.named(_BUDGETS[1], _BUDGETS[0])
    write = WriteOptions(dry_run=dry_run)
    registry.patch(resource, budget.namespace, budget.name, one_less, status=True, options=write)


def bind(registry: Registry, namespace: str, name: str, sent: Document, *, dry_run: bool) -> dict[str, Any]:
    """What a scheduler does: give a pod its node, once."""
    pods = registry.catalogue.named("pods")
    pod = registry.get(pods, namespace, name)
    target = sent.get("target") or {}
    if target.get("kind") not in (None, "", "Node") or not target.get("name"):
        raise errors.bad_request("a Binding names the node in target.name")
    meta = pod.document["metadata"]
    if "deletionTimestamp" in meta:
        raise errors.conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    assigned = (pod.document.get("spec") or {}).get("nodeName")
    if assigned:
        why = f'pod {name} is already assigned to node "{assigned}"'
        raise errors.conflict("", "pods/binding", name, why)
    if not dry_run:
        document = pod.copy()
        document["spec"]["nodeName"] = target["name"]
        registry.store.put(pods.storage, document)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
