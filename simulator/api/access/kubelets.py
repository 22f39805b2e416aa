"""What a kubelet may do: the Node authorizer and the admission plugin NodeRestriction, for users called `system:node:NAME`.

A kubelet reads single objects that pods of its node refer to. Lists and watches are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.api import errors
from simulator.api.storage.kinds import Resource
from simulator.api.storage.store import Document, Store, value_at

_PREFIX = "system:node:"
_LEASES = "kube-node-lease"
_RESTRICTED = "node-restriction.kubernetes.io"
_OWN_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
    }
)
_OWN_LABEL_SPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")


def node_of(user: str) -> str:
    """The node of a kubelet's user, empty for all other users."""
    return user.removeprefix(_PREFIX) if user.startswith(_PREFIX) else ""


class Kubelets:
    """Rights that depend on which pods are bound to which node."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def allows(self, node: str, verb: str, subject: tuple[str, str], namespace: str, name: str) -> bool:
        """Whether its kubelet may do that to a subject: group and resource. What admission narrows down further is allowed here,
        as in the Node authorizer."""
        match subject:
            case "", "nodes":
                return verb in ("create", "update", "patch") or (verb == "get" and name == node)
            case "", "nodes/status" | "pods/status":
                return verb in ("update", "patch")
            case "", "pods":
                pod = self._store.get(("", "pods"), namespace, name)
                return verb in ("create", "delete") or (verb == "get" and pod is not None and _is_on(pod.document, node))
            case "", "pods/eviction":
                return verb == "create"
            case "", "secrets" | "configmaps" | "persistentvolumeclaims":
                return verb == "get" and (subject[1], namespace, name) in set(self._referred_to(node))
            case "", "serviceaccounts/token":
                return verb == "create" and ("serviceaccounts", namespace, name) in set(self._referred_to(node))
            case "", "events":
                return verb in ("create", "update", "patch")
            case "coordination.k8s.io", "leases":
                return namespace == _LEASES and (verb == "create" or name == node)
            case ("authentication.k8s.io", "tokenreviews") | ("authorization.k8s.io", "subjectaccessreviews"):
                return verb == "create"
        return False

    def _referred_to(self, node: str) -> Iterator[tuple[str, str, str]]:
        """Resource, namespace and name of what the pods of that node need."""
        for pod in self._store.documents("pods"):
            if not _is_on(pod, node):
                continue
            namespace, spec = pod["metadata"]["namespace"], pod["spec"]
            yield "serviceaccounts", namespace, spec.get("serviceAccountName") or "default"
            for secret in spec.get("imagePullSecrets") or ():
                yield "secrets", namespace, secret.get("name", "")
            for volume in spec.get("volumes") or ():
                for source, field in (("secret", "secretName"), ("configMap", "name"), ("persistentVolumeClaim", "claimName")):
                    if source in volume:
                        yield f"{source.lower()}s", namespace, volume[source].get(field, "")
            for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
                named = [each.get("valueFrom") or {} for each in container.get("env") or ()]
                for source in (*named, *(container.get("envFrom") or ())):
                    for key, resource in (("secret", "secrets"), ("configMap", "configmaps")):
                        reference = source.get(f"{key}Ref") or source.get(f"{key}KeyRef") or {}
                        yield resource, namespace, reference.get("name", "")

    def admit(self, node: str, resource: Resource, new: Document | None, old: Document | None) -> None:
        """NodeRestriction: refuses whatever is not about this node, and of its Node what a kubelet does not decide."""
        document = new or old or {}
        name = document["metadata"]["name"]
        match resource.group, resource.plural:
            case "", "nodes":
                if name != node:
                    raise _refusal(resource, name, f'node "{node}" is not allowed to modify node "{name}"')
                self._admit_own_node(node, resource, new or {}, old)
            case "", "pods":
                annotations = document["metadata"].get("annotations") or {}
                if old is None and "kubernetes.io/config.mirror" not in annotations:
                    raise _refusal(resource, name, f'node "{node}" can only create mirror pods')
                if not _is_on(old or document, node):
                    raise _refusal(resource, name, f'node "{node}" can only change pods with spec.nodeName set to itself')
            case "coordination.k8s.io", "leases":
                if (document["metadata"].get("namespace"), name) != (_LEASES, node):
                    raise _refusal(resource, name, f'node "{node}" can only change its own Lease')

    @staticmethod
    def _admit_own_node(node: str, resource: Resource, new: Document, old: Document | None) -> None:
        if old is not None and (new.get("spec") or {}).get("taints") != (old.get("spec") or {}).get("taints"):
            raise _refusal(resource, node, f'node "{node}" is not allowed to modify taints')
        before = {} if old is None else old["metadata"].get("labels") or {}
        after = (new.get("metadata") or {}).get("labels") or {}
        changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        if forbidden := sorted(filter(_is_withheld, changed)):
            raise _refusal(resource, node, f"is not allowed to modify labels: {', '.join(forbidden)}")


def _is_on(pod: Document, node: str) -> bool:
    return bool(value_at(pod, "spec.nodeName") == node)


def _is_withheld(label: str) -> bool:
    """Whether a kubelet may not set it."""
    space = label.partition("/")[0] if "/" in label else ""
    if _within(space, _RESTRICTED):
        return True
    kubernetes = _within(space, "kubernetes.io") or _within(space, "k8s.io")
    return kubernetes and label not in _OWN_LABELS and not any(_within(space, each) for each in _OWN_LABEL_SPACES)


def _within(space: str, domain: str) -> bool:
    return space == domain or space.endswith(f".{domain}")


def _refusal(resource: Resource, name: str, why: str) -> errors.ApiError:
    return errors.forbidden(resource.group, resource.plural, name, why)
