"""What `nodewarden deploy rbac` prints, and deploy/rbac.yaml holds: namespaces, ServiceAccounts, Roles and their bindings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from policy.values.errors import PolicyError
from policy.values.object_refs import is_object_name
from starter.deploy.commented_yaml import WHY
from starter.deploy.features import SHIPPED, Feature, Process
from starter.deploy.rights import LEASES_NAMESPACE, NAMESPACE, PAYLOAD_KEYS, RIGHTS, SIGNING_KEYS, Place, Right

_GROUP = "rbac.authorization.k8s.io"
_HEAD = (
    "What nodewarden may do in a cluster, and nothing else: printed by `nodewarden deploy rbac`, which also prints less"
    " (`--help`). The namespace medik8s-leases comes first (medik8s-leases.yaml). tests/deploy/test_rbac.py runs a whole episode"
    " under these rules and fails for a missing verb as well as for one that nothing needs."
)
_LEASES = (
    "Node leases live here, shared with the medik8s operators. Shipped, so that the right to create namespaces is not needed; in"
    " a file of its own (`nodewarden deploy leases`), so that deleting our rights does not delete theirs."
)

Objects = list[dict[str, Any]]


def rbac(
    *,
    features: Collection[Feature] = SHIPPED,
    processes: Collection[Process] = (Process.ALL,),
    secrets: Iterable[str] = (),
) -> Objects:
    """secrets: the only ones that are read for devices, NAME or NAMESPACE/NAME; none named: all of nodewarden's namespace.

    Raises PolicyError for a name that is none.
    """
    named = _by_namespace(secrets)
    found: Objects = [{WHY: _HEAD, **_namespace(NAMESPACE)}]
    found += [_object("v1", "Secret", name, NAMESPACE, type="Opaque") for name in (SIGNING_KEYS, PAYLOAD_KEYS)]
    for process in processes:
        found += _of_process(process, features, named)
    return found


def leases() -> Objects:
    """The namespace of the node leases, which has to be there before the rights in it are applied."""
    return [{WHY: _LEASES, **_namespace(LEASES_NAMESPACE)}]


def _of_process(process: Process, features: Collection[Feature], named: dict[str, tuple[str, ...]]) -> Objects:
    account = process.account
    found: Objects = [_object("v1", "ServiceAccount", account, NAMESPACE)]
    rights = [each for right in RIGHTS if _needed(right, process, features) for each in _narrowed(right, named)]
    places = dict.fromkeys(right.place for right in rights)
    for place in places:
        rules = list(_rules(right for right in rights if right.place == place))
        found += _granted(account, process, place, rules)
    return found


def _needed(right: Right, process: Process, features: Collection[Feature]) -> bool:
    serves = process is Process.ALL or process in right.processes
    return serves and (not right.features or not right.features.isdisjoint(features))


def _narrowed(right: Right, named: dict[str, tuple[str, ...]]) -> Iterator[Right]:
    """The Secrets of devices by their names, where those are known."""
    if not named or right.resources != ("secrets",) or right.names:
        yield right
        return
    assert right.place is not None
    for namespace, names in named.items():
        yield replace(right, names=names, place=replace(right.place, namespace=namespace))


def _rules(rights: Iterable[Right]) -> Iterator[dict[str, Any]]:
    """Without those that are part of one before: what two processes need, one that is both needs once."""
    listed: list[Right] = []
    for right in rights:
        if any(_covers(each, right) for each in listed):
            continue
        listed.append(right)
        rule: dict[str, Any] = {WHY: _comment(right)} if right.why or right.features else {}
        rule |= {"apiGroups": right.groups, "resources": right.resources}
        if right.names:
            rule["resourceNames"] = right.names
        yield rule | {"verbs": right.verbs}


def _covers(one: Right, other: Right) -> bool:
    named = not one.names or (bool(other.names) and set(other.names) <= set(one.names))
    return (one.groups, one.resources) == (other.groups, other.resources) and named and set(other.verbs) <= set(one.verbs)


def _comment(right: Right) -> str:
    features = ", ".join(sorted(right.features))
    return " ".join(part for part in (f"[{features}]" if features else "", right.why) if part)


def _granted(account: str, process: Process, place: Place | None, rules: Objects) -> Objects:
    suffix = "" if process is Process.ALL else f"-{process}"
    name, namespace = (account, "") if place is None else (f"{place.role}{suffix}", place.namespace)
    kind = "ClusterRole" if place is None else "Role"
    role = _object(f"{_GROUP}/v1", kind, name, namespace, rules=rules)
    binding = _object(
        f"{_GROUP}/v1",
        f"{kind}Binding",
        name,
        namespace,
        roleRef={"apiGroup": _GROUP, "kind": kind, "name": name},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    )
    return [role if place is None else {WHY: place.why, **role}, binding]


def _by_namespace(secrets: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for each in secrets:
        namespace, _, name = each.rpartition("/")
        if not is_object_name(name) or not is_object_name(namespace or NAMESPACE):
            raise PolicyError("--secrets", each, "expected the name of a Secret, or NAMESPACE/NAME")
        key = namespace or NAMESPACE
        found[key] = (*found.get(key, ()), name)
    return found


def _namespace(name: str) -> dict[str, Any]:
    return _object("v1", "Namespace", name)


def _object(version: str, kind: str, name: str, namespace: str = "", **parts: Any) -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}
