"""Tokens, rights and the TLS address."""

from __future__ import annotations

import base64
import ssl

import aiohttp
import pytest
import yaml

from simulator.api.server import ApiServer
from tests.simulator.api.client import NODES, Client, named, node

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_without_a_known_token_nothing_is_shown(client: Client, token: str) -> None:
    stranger = Client(client.url, client.session, token)
    for path in (NODES, "/api/v1", "/version"):
        answer = await stranger.get(path)
        assert (answer.status, answer.reason) == (401, "Unauthorized")
    assert (await stranger.get("/livez")).status == 200


async def _grant(client: Client, rules: list[dict[str, list[str]]], *, namespace: str = "") -> None:
    group = "rbac.authorization.k8s.io"
    kind, where = ("Role", f"{RBAC}/namespaces/{namespace}/") if namespace else ("ClusterRole", f"{RBAC}/")
    await client.made(f"{where}{kind.lower()}s", {**named(kind, "r", f"{group}/v1"), "rules": rules})
    binding = {
        **named(f"{kind}Binding", "r", f"{group}/v1"),
        "roleRef": {"apiGroup": group, "kind": kind, "name": "r"},
        "subjects": [{"kind": "User", "name": "lowuser", "apiGroup": group}],
    }
    await client.made(f"{where}{kind.lower()}bindings", binding)


async def test_others_than_the_admin_have_what_roles_grant(client: Client) -> None:
    low = Client(client.url, client.session, "low")
    refused = await low.get(NODES)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert 'User "lowuser" cannot list resource "nodes"' in refused.document["message"]
    await client.made(NODES, node("n1"))
    await _grant(client, [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["list", "patch"]}])
    assert (await low.get(NODES)).status == 200
    assert (await low.get(f"{NODES}?watch=true&timeoutSeconds=1")).status == 403
    assert (await low.get(f"{NODES}/n1")).status == 403
    assert (await low.patch(f"{NODES}/n1/status", {"status": {"phase": "x"}})).status == 200
    assert (await low.delete(f"{NODES}/n1")).status == 403


async def test_the_kubeconfig_leads_to_the_tls_address(api: ApiServer, client: Client) -> None:
    document = yaml.safe_load(api.kubeconfig())
    cluster = document["clusters"][0]["cluster"]
    token = document["users"][0]["user"]["token"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        assert (await Client(cluster["server"], session, token).get(NODES)).status == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await Client(cluster["server"], client.session, token).get(NODES)
