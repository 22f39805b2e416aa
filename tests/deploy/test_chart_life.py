"""The chart installed, upgraded, rolled back, uninstalled by Helm itself, on an API server: keys and definitions outlive it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import helm_python
import pytest
import yaml

from activities.cluster.api.connection import ClusterConnection
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient, ApiError
from starter.doctor.definitions import definitions
from starter.doctor.findings import Level
from starter.doctor.rights import rights
from starter.uninstall import kubernetes
from tests.deploy.helm import NAMESPACE, RELEASE, chart
from tests.deploy.manifests import path_of

pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]

KEYS = f"/api/v1/namespaces/{NAMESPACE}/secrets/nodewarden-signing-keys"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
LEASES = "/api/v1/namespaces/medik8s-leases"
MONITORING = (("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules"))


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def person(api: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(ApiAddress(url=api.url, token="abc"), user_agent="person") as client:
        yield client


Act = Callable[..., Awaitable[Any]]


@pytest.fixture
async def helm(api: ApiServer) -> AsyncIterator[Act]:
    """`await helm("upgrade", chart, ...)`: an act of Helm's, beside the server that it speaks to."""
    config = helm_python.Config(kubeconfig_content=api.kubeconfig(), namespace=NAMESPACE)

    async def act(word: str, *arguments: Any, **options: Any) -> Any:
        return await asyncio.to_thread(partial(getattr(config, word), *arguments, timeout=30, **options))

    yield act
    config.close()


async def _install(helm: Act, values: dict[str, Any]) -> None:
    await helm("install", chart(), RELEASE, values, namespace=NAMESPACE, create_namespace=True)


async def _upgrade(helm: Act, values: dict[str, Any]) -> None:
    await helm("upgrade", chart(), RELEASE, values, namespace=NAMESPACE)


def _of_monitoring(kind: str, plural: str) -> dict[str, Any]:
    """As far as an API server has to know a kind of the Prometheus operator's."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "monitoring.coreos.com", "names": names, "scope": "Namespaced", "versions": [version]}
    metadata = {"name": f"{plural}.monitoring.coreos.com"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec}


async def _fill_keys(person: ApiClient) -> str:
    """As the first worker does."""
    filled = base64.b64encode(b"a-key-that-a-worker-has-made").decode()
    await person.patch(KEYS, {"data": {"keys": filled}})
    return filled


async def test_an_upgrade_and_a_rollback_leave_keys_and_selectors(helm: Act, person: ApiClient) -> None:
    await _install(helm, {})
    filled = await _fill_keys(person)
    first = await person.get(f"{DEPLOYMENTS}/nodewarden")
    changed = {"image": {"tag": "0.1.1"}, "features": ["fencing"], "settings": {"scan": {"cap": 4}}}
    await _upgrade(helm, changed)
    second = await person.get(f"{DEPLOYMENTS}/nodewarden")
    assert second["spec"]["template"]["spec"]["containers"][0]["image"] == "nodewarden:0.1.1"
    assert (second["metadata"]["uid"], second["spec"]["selector"]) == (first["metadata"]["uid"], first["spec"]["selector"])
    assert (await person.get(KEYS))["data"] == {"keys": filled}
    role = await person.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/nodewarden")
    assert not [rule for rule in role["rules"] if "pods/eviction" in rule["resources"]]  # a drain's right has gone with it

    await helm("rollback", RELEASE, version=1)
    third = await person.get(f"{DEPLOYMENTS}/nodewarden")
    assert third["spec"] == first["spec"]
    assert (await person.get(KEYS))["data"] == {"keys": filled}
    role = await person.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/nodewarden")
    assert [rule for rule in role["rules"] if "pods/eviction" in rule["resources"]]


async def test_an_upgrade_brings_definitions_as_they_are_now(helm: Act, person: ApiClient) -> None:
    """Helm would leave those of a chart's crds/ as they were at the first installation."""
    await _install(helm, {})
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/fenceconfigs.nodewarden.io"
    now = (await person.get(path))["spec"]["versions"]
    before = [{key: value for key, value in each.items() if key != "additionalPrinterColumns"} for each in now]
    await person.patch(path, {"spec": {"versions": before}})
    assert (await person.get(path))["spec"]["versions"] == before != now
    await _upgrade(helm, {"settings": {"scan": {"cap": 2}}})
    assert (await person.get(path))["spec"]["versions"] == now


async def test_uninstalling_leaves_keys_definitions_and_leases(helm: Act, person: ApiClient) -> None:
    await _install(helm, {"versioning": {"deployment": "fleet"}})
    filled = await _fill_keys(person)
    await helm("uninstall", RELEASE)
    assert (await person.get(KEYS))["data"] == {"keys": filled}
    assert await person.get(LEASES)
    definitions = await person.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert len([each for each in definitions["items"] if "nodewarden" in each["metadata"]["name"]]) >= 7
    assert (await person.get(DEPLOYMENTS))["items"] == []
    for kind in ("clusterroles", "clusterrolebindings"):
        left = (await person.get(f"/apis/rbac.authorization.k8s.io/v1/{kind}"))["items"]
        assert [each for each in left if each["metadata"]["name"].startswith("nodewarden")] == []
    await _install(helm, {})  # what was kept is taken up again
    assert (await person.get(KEYS))["data"] == {"keys": filled}


async def test_doctor_and_uninstall_find_what_the_chart_brings(helm: Act, api: ApiServer) -> None:
    """Enough for its worker; and after Helm's uninstall what is left is told, for people to take away."""
    await _install(helm, {})
    api.authorization.tokens["worker"] = "system:serviceaccount:nodewarden:nodewarden"
    async with ClusterConnection.to(api.url, token="worker") as worker:
        assert [each.level for each in await rights(worker)] == [Level.OK]
        assert [each.what for each in await definitions(worker, fix=False) if each.level is Level.PROBLEM] == []
    async with ClusterConnection.to(api.url, token="abc") as administrator:
        assert await kubernetes.policies(administrator)
        assert await kubernetes.rights(administrator)
        await helm("uninstall", RELEASE)
        assert await kubernetes.policies(administrator) == []
        assert await kubernetes.rights(administrator) == []
        left = [*await kubernetes.definitions(administrator), *await kubernetes.namespaces(administrator)]
    told = " ".join(each.what for each in left)
    assert "fencingtemplates.nodewarden.io" in told
    assert "Namespace/nodewarden" in told


async def test_the_namespace_of_the_leases_stays_its_owners(helm: Act, person: ApiClient) -> None:
    """medik8s has made it before: it is neither taken over nor a reason to fail, at an upgrade as well."""
    await person.create("/api/v1/namespaces", {"metadata": {"name": "medik8s-leases", "labels": {"of": "medik8s"}}})
    await _install(helm, {})
    await _upgrade(helm, {"settings": {"scan": {"cap": 2}}})
    metadata = (await person.get(LEASES))["metadata"]
    assert metadata["labels"] == {"of": "medik8s", "kubernetes.io/metadata.name": "medik8s-leases"}
    assert "annotations" not in metadata


async def test_our_own_namespace_of_the_leases_survives_an_upgrade(helm: Act, person: ApiClient) -> None:
    await _install(helm, {})
    await _upgrade(helm, {"settings": {"scan": {"cap": 2}}})
    assert (await person.get(LEASES))["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


async def test_a_new_build_stands_beside_the_old_one_until_that_is_taken_out(helm: Act, person: ApiClient) -> None:
    """Its Deployment is not even touched."""
    versioning = {"deployment": "fleet", "buildId": "0.1.0"}
    await _install(helm, {"versioning": versioning})
    old = await person.get(f"{DEPLOYMENTS}/nodewarden-0-1-0")
    both = {"deployment": "fleet", "buildId": "0.2.0", "previous": [{"buildId": "0.1.0"}]}
    await _upgrade(helm, {"versioning": both, "image": {"tag": "0.2.0"}})
    assert (await person.get(f"{DEPLOYMENTS}/nodewarden-0-1-0"))["metadata"]["generation"] == old["metadata"]["generation"]
    await _upgrade(helm, {"versioning": {**both, "previous": []}, "image": {"tag": "0.2.0"}})
    assert [each["metadata"]["name"] for each in (await person.get(DEPLOYMENTS))["items"]] == ["nodewarden-0-2-0"]


async def test_everything_at_once_is_taken_by_an_api_server(helm: Act, person: ApiClient) -> None:
    """Each kind that the chart can render."""
    for kind, plural in MONITORING:
        definition = _of_monitoring(kind, plural)
        await person.create(path_of(definition), definition)
    values = {
        "workers": [{"role": "workflows"}, {"role": "cluster"}, {"role": "power", "site": "north"}],
        "deviceSecrets": ["bmc", "metal/bmc"],
        "taints": ["example.com/sick"],
        "network": {"enabled": True, "bmc": ["10.20.0.0/16"], "metricsFrom": ["monitoring"], "cloud": True},
        "metrics": {"proxy": {"image": "proxy@sha256:1"}, "serviceMonitor": {"enabled": True}},
        "alerts": {"enabled": True},
    }
    await person.create("/api/v1/namespaces", {"metadata": {"name": "metal"}})
    await _install(helm, values)
    names = sorted(each["metadata"]["name"] for each in (await person.get(DEPLOYMENTS))["items"])
    assert names == ["nodewarden-cluster", "nodewarden-power-north", "nodewarden-workflows"]
    rules = await person.get(f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}/prometheusrules/nodewarden")
    assert rules["spec"]["groups"]
    configured = await person.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/nodewarden")
    assert (
        yaml.safe_load(configured["data"]["nodewarden.yaml"])["worker"]["signing_keys_secret"]
        == f"{NAMESPACE}/nodewarden-signing-keys"
    )
    with pytest.raises(ApiError):
        await person.get(f"{DEPLOYMENTS}/nodewarden")
