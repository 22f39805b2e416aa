"""Deleting: preconditions, finalizers, grace, dependents, namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.simulator.api.client import CONFIG_MAPS, NODES, PODS, Client, config_map, node, pod


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what the housekeeping does shortly after a write."""
    async with asyncio.timeout(5):
        while not await true():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("preconditions", [{"uid": "another"}, {"resourceVersion": "1"}])
async def test_a_delete_with_a_wrong_precondition_conflicts(client: Client, preconditions: dict[str, str]) -> None:
    """S20: a deletion names the object that was looked at."""
    metadata = (await client.made(NODES, node("n1")))["metadata"]
    answer = await client.delete(f"{NODES}/n1", {"preconditions": preconditions})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert (await client.delete(f"{NODES}/n1?dryRun=All")).status == 200
    right = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert (await client.delete(f"{NODES}/n1", {"preconditions": right})).status == 200


async def test_finalizers_hold_a_deleted_object(client: Client) -> None:
    path = f"{CONFIG_MAPS}/held"
    await client.made(CONFIG_MAPS, config_map("held", finalizers=["example.org/hold"]))
    assert (await client.delete(path)).document["kind"] == "ConfigMap"
    assert "deletionTimestamp" in (await client.get(path)).metadata
    assert (await client.delete(path)).status == 200
    assert (await client.post(CONFIG_MAPS, config_map("held"))).status == 409
    more = {"metadata": {"finalizers": ["example.org/hold", "example.org/more"]}}
    assert (await client.patch(path, more)).status == 422
    assert (await client.patch(path, {"metadata": {"finalizers": None}})).status == 200
    assert (await client.get(path)).status == 404


async def test_a_pod_on_a_node_terminates_until_somebody_confirms(client: Client) -> None:
    await client.made(PODS, pod("p1", "n1"))
    terminating = (await client.delete(f"{PODS}/p1")).metadata
    assert terminating["deletionGracePeriodSeconds"] == 30
    sooner = (await client.delete(f"{PODS}/p1", {"gracePeriodSeconds": 5})).metadata
    assert sooner["deletionGracePeriodSeconds"] == 5
    assert sooner["deletionTimestamp"] < terminating["deletionTimestamp"]
    later = (await client.delete(f"{PODS}/p1?gracePeriodSeconds=60")).metadata
    assert later["deletionGracePeriodSeconds"] == 5
    assert (await client.delete(f"{PODS}/p1?gracePeriodSeconds=0")).status == 200
    assert (await client.get(f"{PODS}/p1")).status == 404


def _owned(name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for owner in owners
    ]
    return config_map(name, ownerReferences=references)


async def test_dependents_go_with_their_last_owner(client: Client) -> None:
    first, second = [await client.made(CONFIG_MAPS, config_map(name)) for name in ("first", "second")]
    await client.made(CONFIG_MAPS, _owned("one", first))
    await client.made(CONFIG_MAPS, _owned("both", first, second))
    await client.delete(f"{CONFIG_MAPS}/first")

    async def only_second_owns() -> bool:
        names = (await client.get(CONFIG_MAPS)).names
        owners = (await client.get(f"{CONFIG_MAPS}/both")).metadata.get("ownerReferences", [])
        return names == ["both", "second"] and [owner["name"] for owner in owners] == ["second"]

    await until(only_second_owns)
