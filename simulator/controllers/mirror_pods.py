"""The mirror pods of a control plane: what the API shows of etcd and of the components that the kubelets start from files.

They stand for their node's share in the control plane: a program that wants to know etcd's members without asking etcd counts
them. The kubelet makes them on every node of the role, and makes them anew when they are deleted; while it is silent they are
still shown, not ready. Their Node owns them. What they run is nothing here.
"""

from __future__ import annotations

from simulator.client import ApiClient, ApiError
from simulator.controllers.runtime import Controller, own_key
from simulator.informer import ClusterView
from simulator.objects import JsonObject, is_ready, is_terminating, name_of, node_of, uid_of
from simulator.resources import PODS

ROLE = "node-role.kubernetes.io/control-plane"
NAMESPACE = "kube-system"
MIRROR = "kubernetes.io/config.mirror"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class MirrorPods(Controller):
    """Works per Node."""

    def __init__(self, client: ApiClient, view: ClusterView) -> None:
        super().__init__(client, view)
        self.look_on(view.nodes, own_key)
        self.look_on(view.pods, lambda pod: [node_of(pod)] if MIRROR in (pod["metadata"].get("annotations") or {}) else [])

    async def reconcile(self, key: str) -> float | None:
        node = self.view.nodes.get(key)
        if node is None or is_terminating(node) or ROLE not in (node["metadata"].get("labels") or {}) or not is_ready(node):
            return None
        for component in COMPONENTS:
            if self.view.pods.get(f"{NAMESPACE}/{component}-{name_of(node)}") is None:
                try:
                    pod = await self.client.create(PODS.path(namespace=NAMESPACE), mirror_pod(component, node))
                except ApiError as error:
                    if not error.already_exists:
                        raise
                else:
                    self.view.pods.remember(pod)
        return None


def mirror_pod(component: str, node: JsonObject) -> JsonObject:
    owner = {"apiVersion": "v1", "kind": "Node", "name": name_of(node), "uid": uid_of(node), "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{component}-{name_of(node)}",
            "namespace": NAMESPACE,
            "labels": {"component": component, "tier": "control-plane"},
            "annotations": {MIRROR: f"{component} of {name_of(node)}", "kubernetes.io/config.source": "file"},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": name_of(node),
            "hostNetwork": True,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
            "containers": [{"name": component, "image": f"registry.example/{component}:1"}],
        },
    }
