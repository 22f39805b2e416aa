"""What the server says it serves."""

from __future__ import annotations

import pytest

from simulator.api.server import ApiServer
from tests.simulator.api.client import DEFINITIONS, Client, definition

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def test_core_resources_tell_kind_scope_and_short_names(client: Client) -> None:
    listed = {each["name"]: each for each in (await client.get("/api/v1")).document["resources"]}
    assert listed["nodes"]["kind"] == "Node"
    assert listed["nodes"]["namespaced"] is False
    assert listed["nodes"]["shortNames"] == ["no"]
    assert listed["nodes/status"]["verbs"] == ["get", "patch", "update"]
    assert (listed["pods/eviction"]["group"], listed["pods/eviction"]["kind"]) == ("policy", "Eviction")


async def test_groups_name_their_preferred_version(client: Client) -> None:
    groups = {group["name"]: group for group in (await client.get("/apis")).document["groups"]}
    for name in ("apps", "policy", "coordination.k8s.io", "storage.k8s.io", "apiextensions.k8s.io"):
        assert groups[name]["preferredVersion"]["version"] == "v1"
    assert (await client.get("/apis/policy")).document["kind"] == "APIGroup"
    assert (await client.get("/api")).document["versions"] == ["v1"]


@pytest.mark.parametrize(("path", "expected"), [("/api", "nodes"), ("/apis", "leases")])
async def test_aggregated_discovery_says_the_same(client: Client, path: str, expected: str) -> None:
    answer = await client.get(path, AGGREGATED)
    assert "as=APIGroupDiscoveryList" in answer.headers["Content-Type"]
    names = [
        resource["resource"]
        for item in answer.document["items"]
        for version in item["versions"]
        for resource in version["resources"]
    ]
    assert expected in names


async def test_a_definition_appears_in_discovery_and_leaves_it(client: Client) -> None:
    assert (await client.get("/apis/example.org/v1")).status == 404
    await client.made(DEFINITIONS, definition())
    names = [each["name"] for each in (await client.get("/apis/example.org/v1")).document["resources"]]
    assert names == ["gadgets", "gadgets/status"]
    await client.delete(f"{DEFINITIONS}/gadgets.example.org")
    assert (await client.get("/apis/example.org/v1")).status == 404


@pytest.mark.parametrize("path", ["/apis/nope.example/v1/things", "/api/v2", "/api/v1/nonsense", "/nowhere"])
async def test_what_is_not_served_is_not_found(client: Client, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status, answer.reason) == (404, "NotFound")


async def test_health_version_and_open_api(api: ApiServer, client: Client) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await client.get(path)).raw == b"ok"
    assert (await client.get("/version")).document["minor"] == api.version.split(".")[1]
    index = (await client.get("/openapi/v3")).document["paths"]
    described = (await client.get(index["apis/policy/v1"]["serverRelativeURL"])).document
    parameters = described["paths"]["/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"]["patch"]
    assert "fieldValidation" in [each["name"] for each in parameters["parameters"]]
    assert (await client.get("/openapi/v2")).document["swagger"] == "2.0"
