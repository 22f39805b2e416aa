"""What runs on the simulated cluster from the start: a StatefulSet with single-writer volumes, and a Deployment without.

The two ends of what fencing is about: members that must never run twice, and pods that may.
"""

from __future__ import annotations

from simulator.objects import JsonObject

DRIVER = "storage.simulated"
STORAGE_CLASS = "single-writer"
NAMESPACE = "demo"


def storage_class() -> JsonObject:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": DRIVER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def stateful_set(
    name: str = "database",
    *,
    namespace: str = NAMESPACE,
    replicas: int = 3,
    access_mode: str = "ReadWriteOnce",
    toleration_seconds: int | None = None,
) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": _template(name, toleration_seconds, mounts=[{"name": "data", "mountPath": "/data"}]),
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": [access_mode],
                        "storageClassName": STORAGE_CLASS,
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        },
    }


def deployment(
    name: str = "web", *, namespace: str = NAMESPACE, replicas: int = 4, toleration_seconds: int | None = None
) -> JsonObject:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": _template(name, toleration_seconds, mounts=[]),
        },
    }


def _template(name: str, toleration_seconds: int | None, *, mounts: list[JsonObject]) -> JsonObject:
    container: JsonObject = {"name": name, "image": f"registry.example/{name}:1"}
    if mounts:
        container["volumeMounts"] = mounts
    spec: JsonObject = {"containers": [container]}
    if toleration_seconds is not None:
        spec["tolerations"] = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": toleration_seconds}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ]
    return {"metadata": {"labels": {"app": name}}, "spec": spec}
