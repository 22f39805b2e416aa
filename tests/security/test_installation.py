"""What `doctor` and `uninstall --check` say of an installation, on a real API server: rights, definitions, admission policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from activities.cluster.api.connection import ClusterConnection
from simulator.client import ApiAddress, ApiClient
from starter import uninstall
from starter.doctor import Level, definitions, rights
from tests.documents import ROOT, documents, path_of
from tests.system.real_api import RealApiServer, assets

CRDS = tuple(f"deploy/crds/{path.name}" for path in sorted((ROOT / "deploy/crds").glob("*.yaml")))
DEPLOYED = ("deploy/medik8s-leases.yaml", "deploy/rbac.yaml", "deploy/admission.yaml", "deploy/people.yaml")
LOOKS = (uninstall.policies, uninstall.rights, uninstall.definitions, uninstall.namespaces)


@pytest.mark.system
@pytest.mark.timeout(120)
async def test_what_deploy_brings_is_enough_and_is_found_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = assets()
    if folder is None:
        pytest.skip("needs a real API server (KUBEBUILDER_ASSETS)")
    async with RealApiServer(folder, tmp_path_factory.mktemp("api")) as api:
        address = ApiAddress(url=api.url, token=api.token, certificate_authority=api.certificate_authority)
        async with ApiClient(address, user_agent="person") as person:
            for document in documents(*DEPLOYED, *CRDS):
                await person.create(path_of(document), document)
            account = "/api/v1/namespaces/nodewarden/serviceaccounts/nodewarden/token"
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
            token = (await person.create(account, body))["status"]["token"]
        authority = Path(api.certificate_authority)
        async with ClusterConnection.to(api.url, token=token, certificate_authority=authority) as worker:
            assert [each.level for each in await rights(worker)] == [Level.OK]
            assert [each.what for each in await definitions(worker, fix=False) if each.level is Level.PROBLEM] == []
        async with ClusterConnection.to(api.url, token=api.token, certificate_authority=authority) as administrator:
            found = [each for look in LOOKS for each in await look(administrator)]
        told = " ".join(each.what for each in found).replace(",", "").split()
        for each in documents(*DEPLOYED):
            place = "/".join(filter(None, (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])))
            ours = each["kind"] not in {"ServiceAccount", "Secret"} and place != "Namespace/medik8s-leases"
            assert (place in told) is ours, place
        assert all(path.removeprefix("deploy/crds/").removesuffix(".yaml") in told for path in CRDS)
