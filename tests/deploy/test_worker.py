"""The shipped Deployment: its settings are ones that the worker reads, and its pods keep the rules that depend on it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.values.errors import PolicyError
from starter.deploy.manifests import to_yaml
from starter.deploy.network import network
from tests.documents import ROOT, documents, every
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


def test_metrics_are_served_to_the_pod_alone(settings: Settings) -> None:
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


# The NetworkPolicy of the shipped pods: what they speak to by their settings is let through, and nobody else is.


def _spec(**asked: Any) -> dict[str, Any]:
    [policy] = every(to_yaml(network(**{"bmc": ("10.20.0.0/16",), **asked})))
    assert policy["metadata"]["namespace"] == "nodewarden"
    spec: dict[str, Any] = policy["spec"]
    return spec


def _reached(spec: dict[str, Any]) -> set[tuple[str, str]]:
    """Whom the pods may speak to, and at which ports; "" for anybody and any."""
    return {
        (str(next(iter(peer.values()))), ", ".join(f"{port['protocol']} {port['port']}" for port in rule.get("ports", ())))
        for rule in spec["egress"]
        for peer in rule.get("to", [{"": ""}])
    }


def _of_namespace(name: str) -> str:
    return str({"matchLabels": {"kubernetes.io/metadata.name": name}})


def test_the_shipped_pods_speak_to_devices_the_api_temporal_and_dns_only() -> None:
    assert _reached(_spec(api=("10.0.0.1/32",))) == {
        ("", "UDP 53, UDP 5353, TCP 53, TCP 5353"),
        (str({"cidr": "10.0.0.1/32"}), "TCP 443, TCP 6443"),
        (_of_namespace("temporal"), "TCP 7233"),
        (str({"cidr": "10.20.0.0/16"}), ""),
    }
    assert (str({"cidr": "192.0.2.7/32"}), "TCP 7233") in _reached(_spec(temporal="192.0.2.7/32"))


def test_it_is_about_the_pods_and_the_temporal_of_the_shipped_deployment() -> None:
    shipped = documents("deploy/worker.yaml")
    [pod] = [each["spec"]["template"] for each in shipped if each["kind"] == "Deployment"]
    [settings] = [yaml.safe_load(each["data"]["nodewarden.yaml"]) for each in shipped if each["kind"] == "ConfigMap"]
    spec = _spec()
    assert spec["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    host, _, port = settings["temporal"]["address"].partition(":")
    assert (_of_namespace(host.split(".")[1]), f"TCP {port}") in _reached(spec)


def test_only_named_callers_speak_to_them() -> None:
    """Without a rule of ingress nobody gets in: kubelets do, whatever a NetworkPolicy says."""
    spec = _spec()
    assert (spec["ingress"], spec["policyTypes"]) == ([], ["Ingress", "Egress"])
    [rule] = _spec(metrics_from=("a", "b"))["ingress"]
    assert [str(each["namespaceSelector"]) for each in rule["from"]] == [_of_namespace("a"), _of_namespace("b")]
    assert rule["ports"] == [{"protocol": "TCP", "port": 8443}]
    document = Path(ROOT, "docs/security.md").read_text(encoding="utf-8")
    assert "--secure-listen-address=0.0.0.0:8443" in document


def test_a_cloud_is_reached_only_where_it_is_asked_for() -> None:
    assert _reached(_spec(cloud=True)) - _reached(_spec()) == {
        (str({"cidr": "0.0.0.0/0"}), "TCP 443"),
        (str({"cidr": "::/0"}), "TCP 443"),
        (str({"cidr": "169.254.169.254/32"}), "TCP 80"),
    }


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"bmc": ("bmc.example.com",)}, "--bmc: bmc.example.com: expected a network"),
        ({"bmc": ("10.20.0.1/16",)}, "--bmc: 10.20.0.1/16: expected a network"),
        ({"temporal": "Temporal"}, "--temporal: Temporal: expected the name of a namespace"),
        ({"metrics_from": ("*",)}, "--metrics-from: \\*: expected the name of a namespace"),
    ],
)
def test_what_is_no_network_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        _spec(**asked)
