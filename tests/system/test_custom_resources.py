"""What an API server does with custom resources, where a simulated one is easily more lenient: the same on a real one
(`make test-real`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient, ApiError
from tests.system.real_api import RealApiServer, assets

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/things"
HEAD = {"apiVersion": "example.com/v1", "kind": "Thing"}
Fields = dict[str, Any]

TEXT: Fields = {"type": "string"}
BEFORE: Fields = {"kept": TEXT, "dropped": TEXT}
AFTER: Fields = {
    "kept": TEXT,
    "new": TEXT | {"default": "by default"},
    "deep": {"type": "object", "properties": {"number": {"type": "integer", "default": 3}}},
}


def definition(fields: Fields) -> dict[str, Any]:
    root = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": root}}
    names = {"plural": "things", "kind": "Thing"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**kind, "metadata": {"name": "things.example.com"}, "spec": spec}


def thing(name: str = "x", **spec: str) -> dict[str, Any]:
    return {**HEAD, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def person(tmp_path: Path) -> AsyncIterator[ApiClient]:
    folder = assets()
    async with AsyncExitStack() as stack:
        if folder is None:
            simulated = await stack.enter_async_context(ApiServer())
            address = ApiAddress(url=simulated.url, token="abc")
        else:
            real = await stack.enter_async_context(RealApiServer(folder, tmp_path))
            address = ApiAddress(url=real.url, token=real.token, certificate_authority=real.certificate_authority)
        client = await stack.enter_async_context(ApiClient(address, user_agent="person"))
        await client.create(DEFINITIONS, definition(BEFORE))
        await client.until_served(definition(BEFORE))
        yield client


async def change(person: ApiClient, fields: Fields, name: str, expected: dict[str, Any]) -> dict[str, Any]:
    """Another schema, and the object of that name once it is read by it: a real server needs a moment."""
    current = await person.get(f"{DEFINITIONS}/things.example.com")
    await person.put(f"{DEFINITIONS}/things.example.com", {**current, "spec": definition(fields)["spec"]})
    async with asyncio.timeout(30):
        while (found := await person.get(f"{THINGS}/{name}"))["spec"] != expected:
            await asyncio.sleep(0.1)
    return found


@pytest.mark.parametrize(
    ("head", "status", "says"),
    [
        ({}, 400, "Object 'Kind' is missing in '{\"metadata\""),
        ({"apiVersion": "example.com/v1"}, 400, "(must be of type Thing): Object 'Kind' is missing in"),
        ({"kind": "Thing"}, 400, "the API version in the data () does not match the expected API version (example.com/v1)"),
        (HEAD | {"apiVersion": "example.com/v2"}, 400, "the API version in the data (example.com/v2) does not match"),
        (HEAD | {"kind": "Other"}, 422, 'Other.example.com "x" is invalid: kind: Invalid value: "Other": must be Thing'),
    ],
    ids=["nothing", "no kind", "no version", "another version", "another kind"],
)
@pytest.mark.parametrize("replaced", [False, True], ids=["created", "replaced"])
async def test_a_custom_resource_says_what_it_is(
    head: dict[str, str], status: int, says: str, *, replaced: bool, person: ApiClient
) -> None:
    """Of a built-in kind it is taken for what is expected."""
    body: dict[str, Any] = {**head, "metadata": {"name": "x"}, "spec": {}}
    if replaced:
        there = await person.create(THINGS, thing())
        body["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
    with pytest.raises(ApiError) as refused:
        await (person.put(f"{THINGS}/x", body) if replaced else person.create(THINGS, body))
    assert (refused.value.status, says in str(refused.value)) == (status, True), str(refused.value)
    await person.create("/api/v1/namespaces", {"metadata": {"name": "of-a-built-in-kind"}})


async def test_what_a_schema_does_not_name_any_more_is_neither_read_nor_lost_before_the_next_write(person: ApiClient) -> None:
    """Pruned whenever it is read, in lists as well, under the version that it had."""
    before = await person.create(THINGS, thing(kept="1", dropped="2"))
    found = await change(person, AFTER, "x", {"kept": "1", "new": "by default"})
    assert (found["metadata"]["resourceVersion"], found["metadata"]["generation"]) == (before["metadata"]["resourceVersion"], 1)
    assert [each["spec"] for each in (await person.list(THINGS))["items"]] == [found["spec"]]
    assert (await change(person, BEFORE, "x", {"kept": "1", "dropped": "2"}))["metadata"]["generation"] == 1
    await change(person, AFTER, "x", found["spec"])
    labelled = await person.patch(f"{THINGS}/x", {"metadata": {"labels": {"rack": "r7"}}})
    assert (labelled["spec"], labelled["metadata"]["generation"]) == (found["spec"], 1)
    await change(person, BEFORE, "x", {"kept": "1"})


async def test_a_default_that_is_gone_is_stored_until_its_object_is_written(person: ApiClient) -> None:
    """An update with what was read is a write where something else was stored, and no new generation."""
    await person.create(THINGS, thing("first"))
    await change(person, AFTER, "first", {"new": "by default"})
    before = await person.create(THINGS, thing(kept="1"))
    assert before["spec"] == {"kept": "1", "new": "by default"}
    found = await change(person, BEFORE, "x", {"kept": "1"})
    written = await person.put(f"{THINGS}/x", found)
    assert written["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert (written["spec"], written["metadata"]["generation"]) == ({"kept": "1"}, 1)
