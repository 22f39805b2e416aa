"""Server-side apply: what a manager names no longer goes, what others have written stays."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.api.wire import protobuf
from tests.simulator.api.client import CONFIG_MAPS, STATEFUL_SETS, Client, config_map, stateful_set

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
