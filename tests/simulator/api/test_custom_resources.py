"""Custom resources: definitions, schemas, status, columns."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from simulator.api.writes.schema import validate
from tests.simulator.api.client import DEFINITIONS, GADGETS, Client, definition, gadget


@pytest.fixture
async def gadgets(client: Client) -> str:
    await client.made(DEFINITIONS, definition())
    return GADGETS


async def test_creation_prunes_defaults_and_drops_the_status(client: Client, gadgets: str) -> None:
    sent = {**gadget("g", nonsense=1, parts=[{"name": "x", "odd": 1}]), "status": {"phase": "Done"}}
    made = await client.made(gadgets, sent)
    assert made["spec"] == {"owner": "somebody", "size": 3, "parts": [{"name": "x", "count": 1}]}
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    listed = (await client.get(gadgets)).document["items"][0]
    assert (listed["kind"], listed["apiVersion"]) == ("Gadget", "example.org/v1")


@pytest.mark.parametrize(
    "spec",
    [
        {"owner": None},
        {"size": 10},
        {"mode": "Medium"},
        {"share": 1.5},
        {"wait": "5m"},
        {"parts": [{}, {}, {}, {}]},
        {"parts": [{"count": "x"}]},
    ],
)
async def test_what_the_schema_forbids_is_invalid(client: Client, gadgets: str, spec: dict[str, Any]) -> None:
    answer = await client.post(gadgets, gadget("g", **spec))
    assert (answer.status, answer.reason) == (422, "Invalid"), answer.raw
    assert answer.document["details"]["causes"][0]["field"].startswith("spec.")


async def test_status_and_spec_have_one_writer_each(client: Client, gadgets: str) -> None:
    await client.made(gadgets, gadget("g"))
    patch = {"status": {"phase": "Busy"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}
    by_status = (await client.patch(f"{gadgets}/g/status", patch)).document
    assert (by_status["status"], by_status["spec"]["size"]) == ({"phase": "Busy"}, 3)
    assert "labels" not in by_status["metadata"]
    by_spec = (await client.patch(f"{gadgets}/g", {**patch, "status": {"phase": "Forged"}})).document
    assert (by_spec["status"], by_spec["spec"]["size"]) == ({"phase": "Busy"}, 9)
    assert (by_status["metadata"]["generation"], by_spec["metadata"]["generation"]) == (1, 2)


async def test_a_definition_can_change_its_schema_but_not_its_names(client: Client, gadgets: str) -> None:
    wider: dict[str, Any] = copy.deepcopy(definition())
    spec = wider["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["colour"] = {"type": "string", "default": "red"}
    path = f"{DEFINITIONS}/gadgets.example.org"
    assert (await client.patch(path, {"spec": {"versions": wider["spec"]["versions"]}})).status == 200
    assert (await client.made(gadgets, gadget("g")))["spec"]["colour"] == "red"
    assert (await client.patch(path, {"spec": {"scope": "Cluster"}})).status == 422


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "format": "date-time"}, ["2026-01-01T00:00:00Z"], ["2026-01-01", "x"]),
        ({"type": "string", "format": "duration"}, ["1h30m", "300s", "0"], ["5 minutes", ""]),
        ({"type": "string", "format": "ipv4"}, ["10.0.0.1"], ["10.0.0.256"]),
        ({"type": "string", "maxLength": 2}, ["ab"], ["abc"]),
        ({"type": "integer", "format": "int32"}, [2**31 - 1], [2**31]),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, [1.5], [1]),
        ({"type": "integer", "multipleOf": 5}, [10], [7]),
        ({"type": "object", "additionalProperties": {"type": "string"}}, [{"a": "b"}], [{"a": 1}]),
        ({"type": "object", "minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, [["a", "b"]], [["a", "a"]]),
        (
            {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
            [[{"k": 1}, {"k": 2}]],
            [[{"k": 1, "v": 1}, {"k": 1, "v": 2}]],
        ),
        ({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 7}]}, [3, 9], [6]),
        ({"type": "integer", "anyOf": [{"minimum": 9}, {"maximum": 1}]}, [0, 10], [5]),
        ({"type": "integer", "allOf": [{"minimum": 2}], "not": {"minimum": 4}}, [3], [1, 5]),
        ({"type": "string", "nullable": True}, [None, "x"], [1]),
        ({"type": "boolean", "enum": [True]}, [True], [False]),
    ],
)
def test_schema_rules(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert not validate({"f": value}, {"type": "object", "properties": {"f": schema}}), value
    for value in bad:
        assert validate({"f": value}, {"type": "object", "properties": {"f": schema}}), value
