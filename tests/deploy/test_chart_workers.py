"""The Deployments of the chart: each role by its own account, Secrets where settings look for them, pods that may do no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import pytest
import yaml

from starter.deploy.features import Process
from tests.deploy.helm import of_kind, rendered
from workers.configuration.setting_types import is_loopback
from workers.configuration.settings import Settings
from workers.worker import Role

SPLIT = [{"role": "workflows"}, {"role": "cluster"}, {"role": "power", "site": "north"}, {"role": "power", "site": "south"}]
SECRETS = {
    "temporalApiKey": "of-temporal",
    "temporalTls": "our-certificate",
    "temporalCa": "their-authority",
    "notifications": [{"secret": "pagers", "when": ["needs-human"]}, {"secret": "chat"}],
}
VERSIONED = {"deployment": "nodewarden", "buildId": "0.2.0", "previous": [{"buildId": "0.1.0"}]}
CHOICES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "split": {"workers": SPLIT},
    "secrets": {"secrets": SECRETS, "keys": {"encryptPayloads": True}},
    "proxy": {"metrics": {"proxy": {"image": "proxy@sha256:1"}}},
    "versions": {"versioning": VERSIONED, "workers": SPLIT, "image": {"tag": "0.2.0"}},
    "more": {"extraVolumes": [{"name": "kept", "emptyDir": {}}], "extraVolumeMounts": [{"name": "kept", "mountPath": "/kept"}]},
}
PAGES: dict[str, dict[str, Any]] = {
    "a page with TLS": {"ui": {"enabled": True, "tls": {"secretName": "of-the-page"}}},
    "pages behind a proxy": {"ui": {"enabled": True, "behindProxy": True, "replicas": 2, "sessionKeys": "of-the-page"}},
}
every_choice = pytest.mark.parametrize("values", CHOICES.values(), ids=CHOICES.keys())


def _deployments(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"] for each in of_kind(rendered(values), "Deployment")}


def _pods(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (spec["template"]["spec"] for spec in _deployments(values).values())


def _settings(values: dict[str, Any]) -> dict[str, Any]:
    [configured] = rendered(values, template="settings")
    read: dict[str, Any] = yaml.safe_load(configured["data"]["nodewarden.yaml"])
    return read


@pytest.mark.parametrize("values", (CHOICES | PAGES).values(), ids=(CHOICES | PAGES).keys())
def test_pods_keep_the_profile_restricted(values: dict[str, Any]) -> None:
    """Kubernetes' Pod Security Standards, each rule of the profile; and a root that is read only, which it does not ask for."""
    for pod in _pods(values):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        allowed = {
            "name",
            "configMap",
            "emptyDir",
            "projected",
            "secret",
            "downwardAPI",
            "persistentVolumeClaim",
            "csi",
            "ephemeral",
        }
        assert all(volume.keys() <= allowed for volume in pod["volumes"])
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not any("hostPort" in port for port in container.get("ports", ()))


@every_choice
def test_each_worker_has_the_account_and_the_arguments_of_its_role(values: dict[str, Any]) -> None:
    objects = rendered(values)
    accounts = {each["metadata"]["name"] for each in of_kind(objects, "ServiceAccount")}
    asked = [each["role"] for each in values.get("workers", [{"role": "all"}])]
    assert accounts == {Process(role).account for role in asked}
    for pod in _pods(values):
        arguments = dict(re.findall(r"--([a-z-]+)=(\S+)", " ".join(pod["containers"][0]["args"])))
        role = Role(arguments.get("role", "all"))
        assert pod["serviceAccountName"] == Process(role.value).account
        assert pod["containers"][0]["args"][0] == "worker"
        assert arguments.keys() <= {"role", "site", "deployment", "build-id"}


def test_a_cloud_may_know_the_accounts() -> None:
    """By annotations, as clouds have it: for the drivers ec2 and gce."""
    annotations = {"example.com/role": "switches-machines"}
    objects = rendered({"workers": SPLIT, "serviceAccount": {"annotations": annotations}})
    assert [each["metadata"]["annotations"] for each in of_kind(objects, "ServiceAccount")] == [annotations] * 3


@every_choice
def test_selectors_find_their_own_pods_only_and_never_change(values: dict[str, Any]) -> None:
    """A Deployment's selector can't change: nothing of a release, a version or a chart is in it."""
    deployments = _deployments(values)
    labels = {name: spec["template"]["metadata"]["labels"] for name, spec in deployments.items()}
    for name, spec in deployments.items():
        selector = spec["selector"]["matchLabels"]
        assert [other for other in labels if selector.items() <= labels[other].items()] == [name]
        expected = {"app.kubernetes.io/name", "app.kubernetes.io/component"}
        assert selector.keys() - {"nodewarden.io/build-id"} == expected
        [spread] = spec["template"]["spec"]["topologySpreadConstraints"]
        assert (spread["labelSelector"]["matchLabels"], spread["whenUnsatisfiable"]) == (selector, "DoNotSchedule")
    others = {**values, "image": {"tag": "9.9.9"}, "podLabels": {"team": "nodes"}, "settings": {"scan": {"cap": 7}}}
    if "versioning" not in values:
        assert {name: spec["selector"] for name, spec in _deployments(others).items()} == {
            name: spec["selector"] for name, spec in deployments.items()
        }


@every_choice
def test_each_worker_is_disrupted_one_pod_at_a_time(values: dict[str, Any]) -> None:
    """Of all builds of it together."""
    budgets = [each["spec"] for each in of_kind(rendered(values), "PodDisruptionBudget")]
    for spec in _deployments(values).values():
        labels = spec["template"]["metadata"]["labels"].items()
        [budget] = [each for each in budgets if each["selector"]["matchLabels"].items() <= labels]
        assert budget["maxUnavailable"] == 1


@every_choice
def test_settings_name_files_that_are_mounted(values: dict[str, Any]) -> None:
    """Each `…_file`, below the mount of the settings; and they are settings that a worker reads."""
    settings = _settings(values)
    Settings.model_validate(settings)
    [first, *_] = _pods(values)
    [volume] = [each for each in first["volumes"] if each["name"] == "settings"]
    [mount] = [each for each in first["containers"][0]["volumeMounts"] if each["name"] == "settings"]
    items = [item for source in volume["projected"]["sources"] for item in source.get("secret", {}).get("items", ())]
    mounted = {str(PurePath(mount["mountPath"], item["path"])) for item in items}
    named = {value for key, value in settings["temporal"].items() if key.endswith("_file")}
    named |= {each["url_file"] for each in settings.get("notifications", ())}
    assert named == mounted


def test_secrets_are_named_and_never_held() -> None:
    assert of_kind(rendered({"secrets": SECRETS}), "Secret") == of_kind(rendered(), "Secret")
    assert all("data" not in each and "stringData" not in each for each in of_kind(rendered(), "Secret"))
    told = _settings({"secrets": SECRETS})["notifications"]
    assert told[0] == {"url_file": "/etc/nodewarden/notifications/pagers/urls", "when": ["needs-human"]}
    assert told[1] == {"url_file": "/etc/nodewarden/notifications/chat/urls"}
    own = {"url_file": "/mine/urls"}  # of a volume that somebody has added himself
    assert _settings({"secrets": SECRETS, "settings": {"notifications": [own]}})["notifications"] == [own, *told]


def test_builds_stand_side_by_side() -> None:
    """The current one, and each that still has episodes: with its own image and pods, which the upgrade leaves alone."""
    both = _deployments({"versioning": VERSIONED, "image": {"tag": "0.2.0"}})
    images = {name: spec["template"]["spec"]["containers"][0]["image"] for name, spec in both.items()}
    assert images == {"nodewarden-0-2-0": "nodewarden:0.2.0", "nodewarden-0-1-0": "nodewarden:0.1.0"}
    [arguments] = [spec["template"]["spec"]["containers"][0]["args"] for name, spec in both.items() if name.endswith("0-1-0")]
    assert arguments[1:] == ["--deployment=nodewarden", "--build-id=0.1.0"]
    before = _deployments({"versioning": {"deployment": "nodewarden"}, "image": {"tag": "0.1.0"}})
    assert before == {"nodewarden-0-1-0": both["nodewarden-0-1-0"]}


def test_other_settings_make_new_pods_and_the_same_ones_do_not() -> None:
    """They are read when a worker starts."""
    marks = [
        _deployments({"settings": {"scan": {"cap": cap}}})["nodewarden"]["template"]["metadata"]["annotations"]
        for cap in (2, 2, 3)
    ]
    assert marks[0] == marks[1] != marks[2]


def test_metrics_leave_the_pod_through_the_proxy_only() -> None:
    values = {**CHOICES["proxy"], "network": {"enabled": True, "metricsFrom": ["monitoring"]}}
    values["metrics"] = {**values["metrics"], "serviceMonitor": {"enabled": True, "labels": {"release": "p"}}}
    [pod] = _pods(values)
    assert is_loopback(_settings(values)["metrics"].rpartition(":")[0])
    assert "ports" not in pod["containers"][0]
    [port] = pod["containers"][1]["ports"]
    assert f"--upstream=http://{_settings(values)['metrics']}/" in pod["containers"][1]["args"]
    service, monitor = rendered(values, template="metrics")
    assert (service["spec"]["ports"][0]["targetPort"], port["containerPort"]) == (port["name"], 8443)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert (monitor["spec"]["endpoints"][0]["port"], monitor["metadata"]["labels"]["release"]) == ("metrics", "p")
    assert rendered(template="metrics") == []


def test_what_is_in_flight_gets_time_to_end() -> None:
    """S34."""
    graceful = Settings.model_validate(_settings({})).worker.graceful_shutdown
    [pod] = _pods({})
    assert pod["terminationGracePeriodSeconds"] >= graceful.total_seconds() + 10


def test_a_worker_may_have_a_place_and_a_size_of_its_own() -> None:
    values = {"workers": [{"role": "all", "replicas": 3, "nodeSelector": {"zone": "a"}}], "tolerations": [{"operator": "Exists"}]}
    [(_, spec)] = _deployments(values).items()
    pod = spec["template"]["spec"]
    assert (spec["replicas"], pod["nodeSelector"], pod["tolerations"]) == (3, {"zone": "a"}, [{"operator": "Exists"}])
    [(_, none)] = _deployments({"workers": [{"role": "all", "replicas": 0}]}).items()
    assert none["replicas"] == 0
