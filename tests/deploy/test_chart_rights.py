"""The chart grants and admits what `nodewarden deploy …` prints, whatever is chosen; and deploy/ holds what the chart renders."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pytest
import yaml

from starter.deploy.admission import admission
from starter.deploy.features import Feature, Process
from starter.deploy.manifests import to_yaml
from starter.deploy.network import network
from starter.deploy.rights import rbac
from tests.deploy.helm import bare, of_kind, rendered
from tests.documents import ROOT, documents, every

Grant = tuple[str, str, str, str, str, str, str]
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))
DRAWS = int(os.environ.get("NODEWARDEN_TEST_CHARTS", "30"))
NETWORKS: dict[str, list[Any]] = {
    "bmc": [[], ["10.20.0.0/16", "fd00::/64"], ["192.0.2.1/32"]],
    "api": [["10.0.0.1/32"], ["10.0.0.1/32", "fd00::1/128"]],
    "temporal": ["192.0.2.7/32", "tempest"],
    "metrics_from": [[], ["monitoring", "others"]],
    "cloud": [True, False],
}


def _granted(objects: Iterable[dict[str, Any]]) -> set[Grant]:
    """Who may do what to what, by which role of which namespace: rules that say the same twice count once."""
    there = [each for each in objects if each["apiVersion"].startswith("rbac.")]
    roles = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in there}
    return {grant for binding in there if binding["kind"].endswith("Binding") for grant in _of(binding, roles)}


def _of(binding: dict[str, Any], roles: dict[tuple[str, str, str], dict[str, Any]]) -> Iterator[Grant]:
    namespace, reference = binding["metadata"].get("namespace", ""), binding["roleRef"]
    [subject] = binding["subjects"]
    rules = roles[reference["kind"], namespace, reference["name"]]["rules"]
    who = f"{subject['namespace']}/{subject['name']}"
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", ("",)):
                    yield from ((who, reference["name"], namespace, group, resource, name, verb) for verb in rule["verbs"])


def _needless(grants: set[Grant]) -> set[Grant]:
    """Those for names, of what the same role may do to all."""
    return {each for each in grants if each[5] and (*each[:5], "", each[6]) in grants}


def _same_grants(objects: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    """And the same accounts."""
    got, expected = _granted(objects), _granted(wanted)
    accounts = [{each["metadata"]["name"] for each in of_kind(found, "ServiceAccount")} for found in (objects, wanted)]
    return got - _needless(got) == expected - _needless(expected) and accounts[0] == accounts[1]


def test_the_proxy_for_metrics_brings_its_own_right() -> None:
    values = {"features": [], "metrics": {"proxy": {"image": "proxy@sha256:0"}}}
    assert _same_grants(rendered(values, template="rbac"), rbac(features=frozenset({Feature.METRICS_PROXY})))


def _folded(value: Any) -> Any:
    """CEL without its line breaks and what surrounds brackets: a list of many keys stands on many lines."""
    if isinstance(value, dict):
        return {key: _folded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_folded(each) for each in value]
    return re.sub(r"(?<=[\[(]) | (?=[\])])", "", " ".join(value.split())) if isinstance(value, str) else value


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + DRAWS))
def test_whatever_is_chosen_the_chart_has_what_the_command_prints(seed: int) -> None:
    """Rights with their accounts, the admission of our patches of Nodes, and the hosts that pods speak with."""
    chance = Random(seed)
    apart = [each for each in Process if each is not Process.ALL and chance.random() < 0.6]
    processes = tuple(apart) if apart and chance.random() < 0.6 else (Process.ALL,)
    often = chance.choice((0.1, 0.5, 0.9))
    features = frozenset(each for each in Feature if each is not Feature.METRICS_PROXY and chance.random() < often)
    secrets = tuple(chance.sample(["bmc", "metal/bmc", "pdu"], chance.choice([0, 0, 1, 2, 3])))
    taints = tuple(chance.sample(["example.com/sick", "a.io/a", "plain"], chance.randint(0, 3)))
    network_of = {key: chance.choice(each) for key, each in NETWORKS.items() if chance.random() < 0.5}
    values = {
        "workers": [{"role": each} for each in processes],
        "features": sorted(features),
        "deviceSecrets": secrets,
        "taints": taints,
        "network": {"enabled": True} | {{"metrics_from": "metricsFrom"}.get(key, key): each for key, each in network_of.items()},
    }
    wanted = rbac(processes=processes, features=features, secrets=secrets)
    assert _same_grants(rendered(values, template="rbac"), wanted), values
    assert _folded(rendered(values, template="admission")) == _folded(every(to_yaml(admission(taints=taints))))
    assert str(taints[0] if taints else "t.key in []") in str(rendered(values, template="admission"))
    printed = every(to_yaml(network(**{"bmc": (), **network_of})))
    assert [bare(each) for each in rendered(values, template="network")] == printed
    assert rendered(template="network") == []


def test_what_is_left_out_is_not_there() -> None:
    off = {"install": False}
    kinds = {each["kind"] for each in rendered({"crds": off, "admission": off, "people": off, "keys": {"create": False}})}
    assert not kinds & {"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Secret"}


def test_definitions_people_and_alerts_are_those_of_deploy() -> None:
    """One file each: the chart has links to them."""
    crds = documents(*(f"deploy/crds/{path.name}" for path in sorted((ROOT / "deploy/crds").glob("*.yaml"))))
    assert [bare(each) for each in rendered(template="crds")] == [bare(each) for each in crds]
    assert rendered(template="people") == documents("deploy/people.yaml")
    [rules] = rendered({"alerts": {"enabled": True}}, template="metrics")
    assert (rules["kind"], rules["spec"]) == ("PrometheusRule", *documents("deploy/alerts.yaml"))


def test_each_alert_links_to_its_runbook_where_the_documentation_is_published() -> None:
    """S44: a path in our repository is no link."""
    changes = {"alerts": {"enabled": True}, "settings": {"docs_url": "https://docs.example.com/nodewarden/"}}
    [rules] = rendered(changes, template="metrics")
    links = [
        rule["annotations"]["runbook_url"] for group in rules["spec"]["groups"] for rule in group["rules"] if "alert" in rule
    ]
    assert "https://docs.example.com/nodewarden/metrics.html#nodewardenneedsperson" in links
    assert all(each.startswith("https://docs.example.com/nodewarden/metrics.html#nodewarden") for each in links)


def test_the_dashboard_is_shown_to_grafana() -> None:
    [shown] = rendered({"dashboard": {"enabled": True, "labels": {"grafana_dashboard": "yes"}}}, template="metrics")
    made = (ROOT / "deploy/dashboard.json").read_text(encoding="utf-8")
    assert json.loads(shown["data"]["nodewarden.json"]) == json.loads(made)
    assert shown["metadata"]["labels"]["grafana_dashboard"] == "yes"


def test_no_definition_and_no_key_goes_with_the_release() -> None:
    """With a definition go people's templates, with the keys the histories, with the namespace medik8s' leases."""
    for document in rendered():
        if document["kind"] in {"CustomResourceDefinition", "Secret", "Namespace"}:
            assert document["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep", document["metadata"]["name"]


def test_the_files_of_deploy_are_what_the_chart_renders() -> None:
    """Whoever takes deploy/ as it is, or as a kustomize base, gets the chart with its defaults."""
    shipped = documents("deploy/medik8s-leases.yaml", "deploy/rbac.yaml", "deploy/admission.yaml", "deploy/worker.yaml")
    parts = ("leases", "keys", "rbac", "admission", "settings", "workers")
    ours = {_name(each): _comparable(each) for part in parts for each in rendered(template=part)}
    theirs = {_name(each): _comparable(each) for each in shipped}
    assert theirs.keys() - ours.keys() == {"Namespace//nodewarden"}  # Helm's --create-namespace
    assert ours == {name: each for name, each in theirs.items() if name in ours}


def _name(document: dict[str, Any]) -> str:
    return "/".join((document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"]))


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Without Helm's labels and its sum of the settings; settings as they are read; rules are compared above."""
    plain = bare(document)
    match plain["kind"]:
        case "ConfigMap":
            return {**plain, "data": {name: yaml.safe_load(text) for name, text in plain["data"].items()}}
        case "Deployment":
            plain["spec"]["template"]["metadata"].pop("annotations", None)
        case "Role" | "ClusterRole":
            del plain["rules"]
    return plain
