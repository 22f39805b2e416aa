"""The shipped Deployment: its settings are ones that the worker reads, and its pods keep the rules that depend on it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.documents import documents
from workers.configuration.setting_types import is_loopback
from workers.configuration.settings import Settings, load

GOODBYE = timedelta(seconds=10)
"""What Temporal's client may take, after the activities have ended, to give its queues back."""


def _one(kind: str) -> dict[str, Any]:
    [found] = [document for document in documents("deploy/worker.yaml") if document["kind"] == kind]
    return found


def _pod() -> dict[str, Any]:
    spec: dict[str, Any] = _one("Deployment")["spec"]["template"]["spec"]
    return spec


def _container() -> dict[str, Any]:
    [container] = _pod()["containers"]
    found: dict[str, Any] = container
    return found


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What a worker in that pod would have for settings."""
    for entry in _container()["env"]:
        monkeypatch.setenv(entry["name"], entry.get("value", "node-3"))
    [(name, text)] = _one("ConfigMap")["data"].items()
    mounted = Path(_container()["volumeMounts"][0]["mountPath"]) / name
    assert {entry["name"]: entry.get("value") for entry in _container()["env"]}["NODEWARDEN_CONFIG"] == str(mounted)
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return load(config=file)


def test_the_settings_are_ones_the_worker_reads(settings: Settings) -> None:
    """One cluster, by the pod's own service account, under a name that a person chose."""
    assert [cluster.in_cluster for cluster in settings.connections().values()] == [True]
    assert settings.temporal.address


def test_metrics_are_for_whoever_is_in_the_pod(settings: Settings) -> None:
    """They name nodes and devices, and their server asks nobody who he is. Readiness is asked for from within."""
    assert is_loopback(settings.metrics.rpartition(":")[0])
    assert f"http://{settings.metrics}/metrics" in _container()["readinessProbe"]["exec"]["command"][-1]
    assert "ports" not in _container()


def test_the_worker_knows_the_node_it_runs_on(settings: Settings) -> None:
    """S16: by the downward API, because nothing else in a pod says it reliably."""
    fields = {entry["name"]: entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for entry in _container()["env"]}
    assert fields["NODE_NAME"] == "spec.nodeName"
    assert settings.node_name == "node-3"


def test_another_worker_can_act_on_the_node_of_the_first() -> None:
    """S16: two workers that shared a node could neither of them fence it."""
    deployment = _one("Deployment")["spec"]
    [spread] = _pod()["topologySpreadConstraints"]
    assert deployment["replicas"] >= 2
    assert (spread["topologyKey"], spread["maxSkew"], spread["whenUnsatisfiable"]) == (
        "kubernetes.io/hostname",
        1,
        "DoNotSchedule",
    )
    labels = deployment["template"]["metadata"]["labels"]
    for selector in (deployment["selector"], spread["labelSelector"], _one("PodDisruptionBudget")["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()


def test_what_is_in_flight_gets_time_to_end(settings: Settings) -> None:
    """S34: a pod that is killed sooner than its activities may take leaves acts in flight that the next worker must wait out."""
    grace = timedelta(seconds=_pod()["terminationGracePeriodSeconds"])
    assert grace >= settings.worker.graceful_shutdown + GOODBYE


def test_the_pod_has_no_more_rights_on_its_node_than_it_needs() -> None:
    pod, container = _pod(), _container()["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert container["allowPrivilegeEscalation"] is False
    assert container["readOnlyRootFilesystem"] is True
    assert container["capabilities"] == {"drop": ["ALL"]}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def test_it_runs_as_the_account_that_the_rights_were_given_to() -> None:
    accounts = [document["metadata"] for document in documents("deploy/rbac.yaml") if document["kind"] == "ServiceAccount"]
    namespace = _one("Deployment")["metadata"]["namespace"]
    assert [(account["name"], account["namespace"]) for account in accounts] == [(_pod()["serviceAccountName"], namespace)]
