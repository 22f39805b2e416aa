"""The NetworkPolicy of the shipped pods: what they speak to by their settings is let through, and nobody else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.values.errors import PolicyError
from starter.deploy.manifests import to_yaml
from starter.deploy.network import network
from tests.documents import ROOT, documents, every


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


def test_nobody_speaks_to_them_unless_he_is_named() -> None:
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
