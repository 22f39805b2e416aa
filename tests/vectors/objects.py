"""From a case's facts to Kubernetes objects as their users would write them. Ages are seconds before `NOW`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from policy.checks.health_check import Overlap
from policy.scan.evaluation import evaluate
from starter.output.evaluation import as_model
from tests.documents import encoded, load

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
Json = dict[str, Any]

NAMESPACE = "machines"
REMEDIATION_GROUP = "infrastructure.example.io/v1beta1"


def evaluated(found: list[Json], *, overlap: Overlap = Overlap.STRICTEST) -> Json:
    """What `nodewarden evaluate -o json` says of these objects."""
    cluster = load([(obj, "vector") for obj in found], NOW, overlap=overlap)
    return encoded(as_model(evaluate(cluster.ledger.known(NOW)), cluster.mistakes))


def the_check(found: list[Json]) -> Json:
    """The answer about the only check among them, none of which is bad."""
    answer = evaluated(found)
    assert answer["errors"] == []
    (check,) = answer["checks"]
    return dict(check)


def moment(age: float) -> str:
    return (NOW - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditions(listed: list[Json]) -> list[Json]:
    return [
        {
            "type": each["type"],
            "status": each["status"],
            "reason": each.get("reason", ""),
            "lastTransitionTime": moment(each["age_s"]),
        }
        for each in listed
    ]


def node(given: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": given["name"],
            "uid": f"uid-{given['name']}",
            "labels": given.get("labels", {}),
            "annotations": given.get("annotations", {}),
        },
        "status": {"conditions": conditions(given["conditions"])},
    }


def template(kind: str, namespace: str = "remediators") -> Json:
    return {"apiVersion": REMEDIATION_GROUP, "kind": kind, "name": "template", "namespace": namespace}


def etcd_budget(index: int, allowed: int) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"etcd-guard-pdb-{index}", "namespace": "openshift-etcd"},
        "status": {"disruptionsAllowed": allowed},
    }


# MachineHealthCheck of OpenShift


def openshift_check(spec: Json, annotations: Json | None = None) -> Json:
    written: Json = {"selector": spec.get("selector", {})}
    if spec.get("unhealthy_conditions"):
        written["unhealthyConditions"] = [
            {"type": each["type"], "status": each["status"], "timeout": f"{each['timeout_s']}s"}
            for each in spec["unhealthy_conditions"]
        ]
    if spec.get("node_startup_timeout_s") is not None:
        written["nodeStartupTimeout"] = f"{spec['node_startup_timeout_s']}s"
    if spec.get("max_unhealthy") is not None:
        written["maxUnhealthy"] = spec["max_unhealthy"]
    if spec.get("remediation_template"):
        written["remediationTemplate"] = template(spec["remediation_template"]["kind"], NAMESPACE)
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineHealthCheck",
        "metadata": {"name": "check", "namespace": NAMESPACE, "annotations": annotations or {}},
        "spec": written,
    }


def openshift_machine(given: Json) -> Json:
    status: Json = {}
    if given.get("phase") is not None:
        status["phase"] = given["phase"]
    if given.get("last_updated_age_s") is not None:
        status["lastUpdated"] = moment(given["last_updated_age_s"])
    if given.get("node_ref"):
        status["nodeRef"] = {"kind": "Node", "name": given["node_ref"]}
    metadata: Json = {
        "name": given["name"],
        "namespace": NAMESPACE,
        "uid": f"uid-{given['name']}",
        "labels": given["labels"],
        "annotations": given.get("annotations", {}),
    }
    if given["controller_owner"]:
        metadata["ownerReferences"] = [{"kind": "MachineSet", "name": "set", "uid": "uid-set", "controller": True}]
    if given.get("deleting"):
        metadata["deletionTimestamp"] = moment(1)
    return {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "metadata": metadata, "status": status}


# MachineHealthCheck of Cluster API


def cluster_api_check(spec: Json, *, version: str = "v1beta2") -> Json:
    """In the words of either version."""
    written: Json = {
        "clusterName": spec.get("cluster_name", "test-cluster"),
        "selector": spec.get("selector", {"matchLabels": {"pool": "a"}}),
    }
    startup = spec.get("node_startup_timeout_s")
    limit, limits = spec.get("max_unhealthy"), spec.get("unhealthy_range")
    listed = {"Node": spec.get("unhealthy_node_conditions") or [], "Machine": spec.get("unhealthy_machine_conditions") or []}
    if version == "v1beta1":
        for subject, name in (("Node", "unhealthyConditions"), ("Machine", "unhealthyMachineConditions")):
            if listed[subject]:
                written[name] = [
                    {"type": each["type"], "status": each["status"], "timeout": f"{each['timeout_s']}s"}
                    for each in listed[subject]
                ]
        written |= {} if startup is None else {"nodeStartupTimeout": f"{startup}s"}
        written |= {} if limit is None else {"maxUnhealthy": limit}
        written |= {} if limits is None else {"unhealthyRange": limits}
    else:
        checks: Json = {} if startup is None else {"nodeStartupTimeoutSeconds": startup}
        for subject in ("Node", "Machine"):
            if listed[subject]:
                checks[f"unhealthy{subject}Conditions"] = [
                    {"type": each["type"], "status": each["status"], "timeoutSeconds": each["timeout_s"]}
                    for each in listed[subject]
                ]
        trigger = {} if limit is None else {"unhealthyLessThanOrEqualTo": limit}
        trigger |= {} if limits is None else {"unhealthyInRange": limits}
        written |= {"checks": checks} if checks else {}
        written |= {"remediation": {"triggerIf": trigger}} if trigger else {}
    return {
        "apiVersion": f"cluster.x-k8s.io/{version}",
        "kind": "MachineHealthCheck",
        "metadata": {"name": "check", "namespace": NAMESPACE},
        "spec": written,
    }


def workload_cluster(given: Json, name: str = "test-cluster", *, version: str = "v1beta2") -> Json:
    told = (
        ("ControlPlaneInitialized", given["control_plane_initialized_age_s"]),
        ("InfrastructureReady", given["infrastructure_ready_age_s"]),
    )
    return {
        "apiVersion": f"cluster.x-k8s.io/{version}",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"paused": given["paused"]},
        "status": {
            "conditions": [
                {"type": kind, "status": "True" if age is not None else "False", "lastTransitionTime": moment(age or 0)}
                for kind, age in told
            ]
        },
    }


def cluster_api_machine(given: Json, *, version: str = "v1beta2") -> Json:
    labels = given["labels"] | {"cluster.x-k8s.io/cluster-name": given["cluster"]}
    if given.get("control_plane"):
        labels["cluster.x-k8s.io/control-plane"] = ""
    told = conditions(given.get("conditions", []))
    if given.get("infra_ready_age_s") is not None:
        told.append({"type": "InfrastructureReady", "status": "True", "lastTransitionTime": moment(given["infra_ready_age_s"])})
    metadata: Json = {
        "name": given["name"],
        "namespace": NAMESPACE,
        "labels": labels,
        "annotations": given.get("annotations", {}),
        "creationTimestamp": moment(given["created_age_s"]),
        "ownerReferences": [{"kind": "MachineSet", "name": "set", "uid": "uid-set", "controller": True}],
    }
    if given.get("deleting"):
        metadata["deletionTimestamp"] = moment(1)
    status: Json = {"conditions": told}
    if given.get("node_ref"):
        status["nodeRef"] = {"name": given["node_ref"]}
    return {
        "apiVersion": f"cluster.x-k8s.io/{version}",
        "kind": "Machine",
        "metadata": metadata,
        "spec": {"clusterName": given["cluster"]},
        "status": status,
    }


# `fence.json`: cases of other fencing systems, by the names that the comparison of those systems gave them.
#
# A case has the part that is ours; the docstring of the test that holds it says what is not, and which other test holds the rest.

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("fence.json").read_text(encoding="utf-8"))
