"""A case's world as real Kubernetes objects, and its file as text.

A file is a list of cases, each with `case` (its name), `why` (one line), `given` (the objects), `scan` (what a scanner knows
beside them) and `then` (what is decided). An object is what `kubectl get -o yaml` prints, in short:
`{Node: n1, says: {Ready: Unknown 90s}}`. Moments are `90s ago` and `in 90s`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from tests.policy.builders import mark_metadata

Json = dict[str, Any]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FOLDER = Path(__file__).parent
WIDTH = 140

APIS = {
    "capi": "cluster.x-k8s.io/v1beta2",
    "openshift": "machine.openshift.io/v1beta1",
    "mcm": "machine.sapcloud.io/v1alpha1",
}
KINDS = {
    "Node": "v1",
    "Pod": "v1",
    "ConfigMap": "v1",
    "Cluster": APIS["capi"],
    "KubeadmControlPlane": "controlplane.cluster.x-k8s.io/v1beta2",
    "NodeHealthCheck": "remediation.medik8s.io/v1alpha1",
    "ClusterVersion": "config.openshift.io/v1",
    "PodDisruptionBudget": "policy/v1",
    "Lease": "coordination.k8s.io/v1",
    "FencingTemplate": "nodewarden.io/v1alpha1",
    "PreservationPolicy": "nodewarden.io/v1alpha1",
    "Shoot": "core.gardener.cloud/v1beta1",
    "FenceAgentsRemediation": "fence-agents-remediation.medik8s.io/v1alpha1",
}
"""The version of a kind that does not say its `api`; Machines and their checks always do."""
NAMESPACED = {"ConfigMap": "default", "FencingTemplate": "nodewarden"}
WITHOUT_NAMESPACE = {"Node", "NodeHealthCheck", "ClusterVersion", "PreservationPolicy"}
VERBATIM = ("spec", "status", "data")

_PAST, _FUTURE = re.compile(r"(\d+)s ago"), re.compile(r"in (\d+)s")


def moment(age: float) -> str:
    return (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: object) -> int:
    return int(str(text).removesuffix("s"))


def expanded(short: Mapping[str, Any]) -> Json:
    """The whole object. Raises ValueError for a field that has no place."""
    left = copy.deepcopy(dict(short))
    kind, name = next((key, left.pop(key)) for key in short if key[0].isupper())
    api = str(left.pop("api", KINDS.get(kind)))
    version = APIS.get(api, api)
    mcm, patience = "sapcloud" in version, "duration" if kind == "NodeHealthCheck" else "timeout"
    metadata: Json = {"name": name, "uid": left.pop("uid", f"uid-of-{name}"), "annotations": {}, "labels": {}}
    found: Json = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {}, "status": {}}
    if kind not in WITHOUT_NAMESPACE:
        metadata["namespace"] = left.pop("namespace", NAMESPACED.get(kind, "machines"))
    found |= {key: left.pop(key) for key in VERBATIM if key in left}
    found |= (
        {"data": {key: "\n".join(each) if isinstance(each, list) else each for key, each in found["data"].items()}}
        if "data" in found
        else {}
    )
    spec, status = found["spec"], found["status"]
    for key, value in left.items():
        match key:
            case "labels" | "annotations":
                metadata[key] |= value
            case "deleting":
                metadata["deletionTimestamp"] = moment(seconds(value))
            case "age":
                metadata["creationTimestamp"] = moment(seconds(value))
            case "generation":
                metadata[key] = value
            case "owner":
                made_by, _, its_name = value.partition("/")
                metadata["ownerReferences"] = [
                    {"kind": made_by, "name": its_name, "uid": f"uid-of-{its_name}", "controller": True}
                ]
            case "owners":
                metadata["ownerReferences"] = value
            case "says":
                status["conditions"] = [condition(kind_, str(said)) for kind_, said in value.items()]
            case "mark":
                for part, entries in mark_metadata(f'{{"incident": "{value}", "kind": "Fencing", "workflow_id": "e"}}').items():
                    metadata[part] |= entries
            case "taints":
                spec[key] = [{"key": each, "effect": "NoSchedule"} for each in value]
            case "providerID" | "unschedulable":
                spec[key] = value
            case "node" if mcm:
                metadata["labels"]["node"] = value
            case "node":
                status["nodeRef"] = {"kind": "Node", "name": value}
            case "phase" if mcm:
                status.setdefault("currentStatus", {})["phase"] = value
            case "phase":
                status["phase"] = value
            case "expires":
                status.setdefault("currentStatus", {})["preserveExpiryTime"] = value
            case "updated":
                status["lastUpdated"] = f"{seconds(value)}s ago"
            case "cluster":
                spec["clusterName"] = value
                metadata["labels"] |= {"cluster.x-k8s.io/cluster-name": value}
            case _:
                raise ValueError(f"{kind} {name}: {key} has no place in a case's object")
    whole: Json = _in_full(found, "timeoutSeconds" if version == APIS["capi"] else patience)
    return {key: value for key, value in whole.items() if value != {}}


def expanded_all(given: Iterable[Json]) -> list[Json]:
    """The objects of a case. One with `times` stands for so many, with a number in the place of each #."""
    found = list[Json]()
    for short in given:
        if (times := short.get("times")) is None:
            found.append(expanded(short))
            continue
        one = str(yaml.dump({key: value for key, value in short.items() if key != "times"}, Dumper=_Dumper, sort_keys=False))
        found += [expanded(yaml.load(one.replace("#", str(at)), Loader=yaml.CSafeLoader)) for at in range(times)]
    return found


def condition(kind: str, said: str) -> Json:
    """Of `True 90s Reason`; without an age it has been so for an hour."""
    status, age, reason, *_ = [*said.split(" ", 2), "", ""]
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": moment(seconds(age or 3600))}


def at_moment(text: str) -> str:
    """As the API writes a moment, of `90s ago` and `in 90s`; any other text as it is."""
    if (past := _PAST.fullmatch(text)) is not None:
        return moment(int(past[1]))
    future = _FUTURE.fullmatch(text)
    return text if future is None else moment(-int(future[1]))


def _in_full(value: Any, patience: str) -> Any:
    """With moments, listed conditions, selectors and templates written out."""
    if isinstance(value, str):
        return at_moment(value)
    if isinstance(value, list):
        return [_in_full(each, patience) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: _in_full(each, patience) for key, each in value.items()}
    for key, each in found.items():
        if re.fullmatch(r"unhealthy(Node|Machine)?Conditions", key) and isinstance(each, list):
            found[key] = [_criterion(one, patience) for one in each]
        elif key == "selector" and isinstance(each, str):
            label, equals, its = each.partition("=")
            wanted: Json = {"matchExpressions": [{"key": label, "operator": "Exists"}]}
            found[key] = {"matchLabels": {label: its}} if equals else wanted
        elif key in {"remediationTemplate", "templateRef"} and isinstance(each, str):
            version, kind, name = each.split()
            found[key] = {"apiVersion": version, "kind": kind, **dict(zip(("namespace", "name"), name.split("/"), strict=True))}
    return found


def _criterion(one: Any, patience: str) -> Any:
    if not isinstance(one, str):
        return one
    kind, status, lasting = one.split()
    return {"type": kind, "status": status, patience: seconds(lasting) if patience == "timeoutSeconds" else lasting}


# Files ----------------------------------------------------------------------------------------------------------------


def case_files() -> list[Path]:
    return sorted(FOLDER.glob("*.yaml"))


def read(path: Path) -> list[Json]:
    return list(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))


def heading(path: Path) -> str:
    """The lines of comment that a file begins with."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(lines[: next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))])


def text(cases: Iterable[Json]) -> str:
    """As the file has them: an object, or a decision, begins a line."""
    return "\n".join(f"- {_block(each, 2)[2:]}" for each in cases)


def _block(value: Json, indent: int) -> str:
    pad, lines = " " * indent, list[str]()
    for key, each in value.items():
        begun = f"{pad}{_flow(key)}:"
        if isinstance(each, dict) and each and (indent > 2 or key == "then"):
            lines.append(f"{begun}\n{_block(each, indent + 2)}")
        elif key == "given" or (isinstance(each, list) and indent > 2):
            lines.append(begun + "".join(f"\n{pad}- {_flow(one, indent + 2)}" for one in each) + "\n")
        else:
            lines.append(f"{begun} {_flow(each)}\n")
    return "".join(lines)


def _flow(value: Any, indent: int = 0) -> str:
    """A value on one line; an object that is too long goes on below it."""
    width = WIDTH - indent if isinstance(value, dict) else 10_000
    dumped = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, width=width, sort_keys=False, allow_unicode=True)
    return dumped.removesuffix("\n").removesuffix("\n...").replace("\n", "\n" + " " * indent)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True
