"""The patch types over HTTP and as functions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api.errors import ApiError
from simulator.api.wire import protobuf
from simulator.api.writes.patch import json_patch, merge_patch, strategic_merge_patch
from tests.simulator.api.client import CONFIG_MAPS, JSON_PATCH, NODES, STATEFUL_SETS, Client, config_map, node, stateful_set

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_a_merge_patch_is_done_after_the_first_time(document: Any, patch: Any) -> None:
    once = merge_patch(document, patch)
    assert merge_patch(once, patch) == once


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/a/b", "value": 1}], {"a": {"x": 0, "b": 1}, "l": [1, 2]}),
        ([{"op": "add", "path": "/l/-", "value": 3}], {"a": {"x": 0}, "l": [1, 2, 3]}),
        ([{"op": "add", "path": "/l/0", "value": 0}], {"a": {"x": 0}, "l": [0, 1, 2]}),
        ([{"op": "remove", "path": "/l/1"}], {"a": {"x": 0}, "l": [1]}),
        ([{"op": "replace", "path": "/a/fresh", "value": 2}], {"a": {"x": 0, "fresh": 2}, "l": [1, 2]}),
        ([{"op": "move", "from": "/a/x", "path": "/y"}], {"a": {}, "l": [1, 2], "y": 0}),
        ([{"op": "copy", "from": "/l", "path": "/m"}], {"a": {"x": 0}, "l": [1, 2], "m": [1, 2]}),
        ([{"op": "test", "path": "/a/x", "value": 0}], {"a": {"x": 0}, "l": [1, 2]}),
        ([{"op": "test", "path": "/a/none", "value": None}], {"a": {"x": 0}, "l": [1, 2]}),
        ([{"op": "add", "path": "/a~1b~0c", "value": 1}], {"a": {"x": 0}, "l": [1, 2], "a/b~c": 1}),
    ],
)
def test_json_patch_operations(operations: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert json_patch({"a": {"x": 0}, "l": [1, 2]}, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "remove", "path": "/l/7"},
        {"op": "add", "path": "/none/deep", "value": 1},
        {"op": "add", "path": "/l/9", "value": 1},
        {"op": "add", "path": "/x"},
        {"op": "add", "path": "x", "value": 1},
        {"op": "test", "path": "/a", "value": False},
        {"op": "test", "path": "/t", "value": 1},
        {"op": "nonsense", "path": "/a"},
        {"op": "remove", "path": ""},
    ],
)
def test_json_patch_operations_that_fail(operation: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"a": {"x": 0}, "l": [1, 2], "t": True}, [operation])
    assert refused.value.code == 422


@pytest.mark.parametrize(
    ("current", "patch", "expected"),
    [
        # Conditions merge by type, everything else of the list stays.
        (
            {"status": {"conditions": [{"type": "A", "status": "1"}, {"type": "B", "status": "2"}]}},
            {"status": {"conditions": [{"type": "B", "status": "3"}]}},
            {"status": {"conditions": [{"type": "A", "status": "1"}, {"type": "B", "status": "3"}]}},
        ),
        (
            {"status": {"conditions": [{"type": "A"}, {"type": "B"}]}},
            {"status": {"conditions": [{"type": "A", "$patch": "delete"}]}},
            {"status": {"conditions": [{"type": "B"}]}},
        ),
        # Taints have no merge key: one taint in a patch replaces them all.
        (
            {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
            {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}},
            {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}},
        ),
        (
            {"metadata": {"finalizers": ["x/a"]}},
            {"metadata": {"finalizers": ["x/b", "x/a"]}},
            {"metadata": {"finalizers": ["x/a", "x/b"]}},
        ),
        (
            {"metadata": {"finalizers": ["x/a", "x/b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}},
            {"metadata": {"finalizers": ["x/b"]}},
        ),
        (
            {"status": {"addresses": [{"type": "A", "address": "1"}, {"type": "B", "address": "2"}]}},
            {"status": {"$setElementOrder/addresses": [{"type": "B"}, {"type": "A"}]}},
            {"status": {"addresses": [{"type": "B", "address": "2"}, {"type": "A", "address": "1"}]}},
        ),
        (
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            {"metadata": {"labels": {"a": None}}},
            {"metadata": {"labels": {"b": "2"}}},
        ),
        (
            {"metadata": {"labels": {"a": "1"}}},
            {"metadata": {"labels": {"$patch": "replace", "c": "3"}}},
            {"metadata": {"labels": {"c": "3"}}},
        ),
        ({"spec": {"a": 1, "b": 2}}, {"spec": {"$retainKeys": ["b", "c"], "c": 3}}, {"spec": {"b": 2, "c": 3}}),
    ],
)
def test_strategic_merge_of_a_node(current: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert strategic_merge_patch("Node", current, patch) == expected


async def test_a_failed_test_operation_changes_nothing(client: Client) -> None:
    made = await client.made(NODES, node("n1", labels={"a": "1"}))
    operations = [
        {"op": "add", "path": "/metadata/labels/b", "value": "2"},
        {"op": "test", "path": "/metadata/labels/a", "value": "9"},
    ]
    answer = await client.patch(f"{NODES}/n1", operations, JSON_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert (await client.get(f"{NODES}/n1")).document == made


async def test_a_patch_with_a_stale_version_conflicts(client: Client) -> None:
    await client.made(CONFIG_MAPS, config_map("a"))
    stale = {"metadata": {"resourceVersion": "1"}, "data": {"x": "y"}}
    assert (await client.patch(f"{CONFIG_MAPS}/a", stale)).status == 409


# Server-side apply: what a manager names no longer goes, what others have written stays.

APPLY = "application/apply-patch+yaml"


async def _apply(client: Client, path: str, document: dict[str, Any], manager: str = "helm") -> dict[str, Any]:
    answer = await client.patch(f"{path}?fieldManager={manager}", document, APPLY)
    assert answer.status in {200, 201}, answer.raw
    return answer.document


async def test_what_is_missing_is_created_and_the_same_again_changes_nothing(client: Client) -> None:
    document = config_map("a", {"x": "1"})
    made = await client.patch(f"{CONFIG_MAPS}/a?fieldManager=helm", document, APPLY)
    assert (made.status, made.document["data"]) == (201, {"x": "1"})
    again = await client.patch(f"{CONFIG_MAPS}/a?fieldManager=helm", document, APPLY)
    assert (again.status, again.version) == (200, made.version)


async def test_only_what_the_manager_had_applied_itself_goes(client: Client) -> None:
    await _apply(client, f"{CONFIG_MAPS}/a", config_map("a", {"x": "1", "y": "2"}))
    await _apply(client, f"{CONFIG_MAPS}/a", config_map("a", {"z": "3"}), manager="somebody")
    await client.patch(f"{CONFIG_MAPS}/a", {"data": {"w": "4"}})
    assert (await _apply(client, f"{CONFIG_MAPS}/a", config_map("a", {"x": "5"})))["data"] == {"x": "5", "z": "3", "w": "4"}


async def test_lists_with_a_key_are_merged_by_it(client: Client) -> None:
    path, document = f"{STATEFUL_SETS}/db", stateful_set("db")
    template = document["spec"]["template"]["spec"]
    template["containers"] = [{"name": name, "image": "i", "env": [{"name": "A", "value": "1"}]} for name in ("a", "b")]
    await _apply(client, path, document)
    await _apply(
        client, path, {**document, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}, "other"
    )
    template["containers"] = [{"name": "a", "image": "j"}]
    after = await _apply(client, path, document)
    containers = after["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: (each["image"], each.get("env", [])) for each in containers} == {"a": ("j", []), "c": ("i", [])}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", {}),
        (b"\x08\x00", {"gracePeriodSeconds": 0}),
        (b"\x08\x1e\x22\x0aBackground", {"gracePeriodSeconds": 30, "propagationPolicy": "Background"}),
        (b"\x12\x05\x0a\x03uid", {"preconditions": {"uid": "uid"}}),
        (b"\x18\x00\x2a\x03All", {"orphanDependents": False, "dryRun": ["All"]}),
    ],
)
def test_options_of_a_deletion_are_read_as_helm_writes_them(raw: bytes, expected: dict[str, Any]) -> None:
    """In protobuf: a grace period of zero is said, and not left out."""
    kind = b"\x0a\x13\x0a\x02v1\x12\x0dDeleteOptions"
    body = b"k8s\x00" + kind + b"\x12" + bytes([len(raw)]) + raw
    assert protobuf.read(body) == {"apiVersion": "v1", "kind": "DeleteOptions", **expected}
