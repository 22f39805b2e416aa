"""The chart installed, upgraded, rolled back, uninstalled by Helm itself, on an API server: keys and definitions outlive it.

On a real API server where `KUBEBUILDER_ASSETS` names one.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from activities.cluster.api.connection import ClusterConnection
from policy.fence.template_reader import FenceConfigReader
from simulator.client import ApiAddress, ApiClient, ApiError
from simulator.cluster import kubeconfig_of
from starter import uninstall
from starter.doctor import Level, definitions, rights
from supply_chain.chart import CHART
from tests.deploy.helm import NAMESPACE, RELEASE, chart
from tests.documents import path_of
from tests.policy.builders import node
from tests.policy.fence.test_own_objects import EC2, an_object
from tests.system.real_api import api_server

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

KEYS = f"/api/v1/namespaces/{NAMESPACE}/secrets/nodewarden-signing-keys"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
LEASES = "/api/v1/namespaces/medik8s-leases"
MONITORING = (("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules"))


ACCOUNTS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """An administrator's ways to the API server."""

    address: ApiAddress
    kubeconfig: str

    def connection(self, token: str) -> AbstractAsyncContextManager[ClusterConnection]:
        authority = Path(self.address.certificate_authority) if self.address.certificate_authority else None
        return ClusterConnection.to(self.address.url, token=token, certificate_authority=authority)

    async def token_of(self, account: str, person: ApiClient) -> str:
        """Of a ServiceAccount in our namespace."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        token: str = (await person.create(f"{ACCOUNTS}/{account}/token", body))["status"]["token"]
        return token


@pytest.fixture
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    async with api_server(tmp_path_factory.mktemp("api")) as address:
        yield Api(address=address, kubeconfig=kubeconfig_of(address))


@pytest.fixture
async def person(api: Api) -> AsyncIterator[ApiClient]:
    async with ApiClient(api.address, user_agent="person") as client:
        yield client


Act = Callable[..., Awaitable[Any]]


@pytest.fixture
async def helm(api: Api) -> AsyncIterator[Act]:
    """`await helm("upgrade", chart, ...)`: an act of Helm's, beside the server that it speaks to."""
    config = helm_python.Config(kubeconfig_content=api.kubeconfig, namespace=NAMESPACE)

    async def act(word: str, *arguments: Any, **options: Any) -> Any:
        return await asyncio.to_thread(partial(getattr(config, word), *arguments, timeout=30, **options))

    yield act
    config.close()


async def install(helm: Act, values: dict[str, Any]) -> None:
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


async def test_an_upgrade_and_a_rollback_leave_keys_selectors_and_our_own_namespace_of_the_leases(
    helm: Act, person: ApiClient
) -> None:
    await install(helm, {})
    filled = await _fill_keys(person)
    first = await person.get(f"{DEPLOYMENTS}/nodewarden")
    changed = {"image": {"tag": "0.1.1"}, "features": ["fencing"], "settings": {"scan": {"cap": 4}}}
    await _upgrade(helm, changed)
    second = await person.get(f"{DEPLOYMENTS}/nodewarden")
    assert second["spec"]["template"]["spec"]["containers"][0]["image"] == "nodewarden:0.1.1"
    assert (second["metadata"]["uid"], second["spec"]["selector"]) == (first["metadata"]["uid"], first["spec"]["selector"])
    assert (await person.get(KEYS))["data"] == {"keys": filled}
    assert (await person.get(LEASES))["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    role = await person.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/nodewarden")
    assert not [rule for rule in role["rules"] if "pods/eviction" in rule["resources"]]  # a drain's right has gone with it

    await helm("rollback", RELEASE, version=1)
    third = await person.get(f"{DEPLOYMENTS}/nodewarden")
    assert third["spec"] == first["spec"]
    assert (await person.get(KEYS))["data"] == {"keys": filled}
    role = await person.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/nodewarden")
    assert [rule for rule in role["rules"] if "pods/eviction" in rule["resources"]]


async def test_an_upgrade_brings_definitions_as_they_are_now_and_a_rollback_keeps_their_objects(
    helm: Act, person: ApiClient, tmp_path: Path
) -> None:
    """Helm would leave those of a chart's crds/ as they were at the first installation. An object with a field that the older
    definition does not have is read as that definition has it, whole, by the code of both; that field is back with the next
    upgrade, as long as it was not written meanwhile."""
    older = Path(shutil.copytree(CHART, tmp_path / "nodewarden"))
    definition = older / "files/crds/fenceconfigs.nodewarden.io.yaml"
    document = yaml.safe_load(definition.read_text(encoding="utf-8"))
    for version in document["spec"]["versions"]:
        del version["additionalPrinterColumns"]
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["restarts"]
    definition.write_text(yaml.safe_dump(document), encoding="utf-8")
    await helm("install", str(older), RELEASE, {}, namespace=NAMESPACE, create_namespace=True)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/fenceconfigs.nodewarden.io"
    assert not _columns(await person.get(path))
    await _upgrade(helm, {"settings": {"scan": {"cap": 2}}})
    assert "Node" in _columns(await person.get(path))

    configs = "/apis/nodewarden.io/v1alpha1/fenceconfigs"
    await person.create(configs, an_object("all", restarts=2))
    await helm("rollback", RELEASE, version=1)
    assert not _columns(await person.get(path))
    for restarts in ({None, 2}, {2}):  # the simulated server prunes what is written, a real one also what is read
        found = await person.get(f"{configs}/all")
        assert found["spec"].get("restarts") in restarts
        assert FenceConfigReader(found).of(node(provider_id=EC2)).errors == ()
        await _upgrade(helm, {})


def _columns(definition: dict[str, Any]) -> set[str]:
    return {column["name"] for each in definition["spec"]["versions"] for column in each.get("additionalPrinterColumns", ())}


async def test_uninstalling_leaves_keys_definitions_and_leases_which_uninstall_tells_of(
    helm: Act, api: Api, person: ApiClient
) -> None:
    """And what the chart brings is enough for its worker, as `doctor` sees it."""
    await install(helm, {"versioning": {"deployment": "fleet"}})
    filled = await _fill_keys(person)
    async with api.connection(await api.token_of("nodewarden", person)) as worker:
        assert [each.level for each in await rights(worker)] == [Level.OK]
        assert [each.what for each in await definitions(worker, fix=False) if each.level is Level.PROBLEM] == []
    async with api.connection(api.address.token) as administrator:
        assert await uninstall.policies(administrator)
        assert await uninstall.rights(administrator)
        await helm("uninstall", RELEASE)
        assert await uninstall.policies(administrator) == []
        assert await uninstall.rights(administrator) == []
        left = [*await uninstall.definitions(administrator), *await uninstall.namespaces(administrator)]
    told = " ".join(each.what for each in left)
    assert "fencingtemplates.nodewarden.io" in told
    assert "Namespace/nodewarden" in told
    assert (await person.get(KEYS))["data"] == {"keys": filled}
    assert await person.get(LEASES)
    kept = await person.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert len([each for each in kept["items"] if "nodewarden" in each["metadata"]["name"]]) >= 7
    assert (await person.get(DEPLOYMENTS))["items"] == []
    for kind in ("clusterroles", "clusterrolebindings"):
        bound = (await person.get(f"/apis/rbac.authorization.k8s.io/v1/{kind}"))["items"]
        assert [each for each in bound if each["metadata"]["name"].startswith("nodewarden")] == []
    await install(helm, {})  # what was kept is taken up again
    assert (await person.get(KEYS))["data"] == {"keys": filled}


async def test_a_new_build_stands_beside_the_old_one_until_that_is_taken_out(helm: Act, person: ApiClient) -> None:
    """Its Deployment is not even touched. Nor is the namespace of the leases where medik8s has made it before."""
    await person.create("/api/v1/namespaces", {"metadata": {"name": "medik8s-leases", "labels": {"of": "medik8s"}}})
    versioning = {"deployment": "fleet", "buildId": "0.1.0"}
    await install(helm, {"versioning": versioning})
    old = await person.get(f"{DEPLOYMENTS}/nodewarden-0-1-0")
    both = {"deployment": "fleet", "buildId": "0.2.0", "previous": [{"buildId": "0.1.0"}]}
    await _upgrade(helm, {"versioning": both, "image": {"tag": "0.2.0"}})
    assert (await person.get(f"{DEPLOYMENTS}/nodewarden-0-1-0"))["metadata"]["generation"] == old["metadata"]["generation"]
    await _upgrade(helm, {"versioning": {**both, "previous": []}, "image": {"tag": "0.2.0"}})
    assert [each["metadata"]["name"] for each in (await person.get(DEPLOYMENTS))["items"]] == ["nodewarden-0-2-0"]
    metadata = (await person.get(LEASES))["metadata"]
    assert metadata["labels"] == {"of": "medik8s", "kubernetes.io/metadata.name": "medik8s-leases"}
    assert "annotations" not in metadata


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
    await install(helm, values)
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
