"""Replacing objects: optimistic locking and what a client may not change."""

from __future__ import annotations

import asyncio

from tests.simulator.api.client import (
    CONFIG_MAPS,
    LEASES,
    NODES,
    Client,
    config_map,
    lease,
    node,
)


async def test_an_update_from_a_stale_version_conflicts(client: Client) -> None:
    old = await client.made(NODES, node("n1"))
    new = {**old, "spec": {"unschedulable": True}}
    first = await client.put(f"{NODES}/n1", new)
    assert (first.status, int(first.version) > int(old["metadata"]["resourceVersion"])) == (200, True)
    second = await client.put(f"{NODES}/n1", new)
    assert (second.status, second.reason) == (409, "Conflict")


async def test_without_a_version_core_kinds_are_replaced_and_leases_refused(client: Client) -> None:
    await client.made(CONFIG_MAPS, config_map("a", {"x": "1"}))
    assert (await client.put(f"{CONFIG_MAPS}/a", config_map("a", {"y": "2"}))).document["data"] == {"y": "2"}
    await client.made(LEASES, lease("l", "me"))
    assert (await client.put(f"{LEASES}/l", lease("l", "you"))).status == 422


async def test_an_update_that_changes_nothing_writes_nothing(client: Client) -> None:
    made = await client.made(CONFIG_MAPS, config_map("a"))
    assert (await client.put(f"{CONFIG_MAPS}/a", made)).document == made
    assert (await client.patch(f"{CONFIG_MAPS}/a", {"data": {"key": "value"}})).document == made


async def test_what_the_server_owns_cannot_be_changed(client: Client) -> None:
    made = await client.made(CONFIG_MAPS, config_map("a"))
    stolen = {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7, "labels": {"b": "c"}}
    changed = (await client.patch(f"{CONFIG_MAPS}/a", {"metadata": stolen})).document["metadata"]
    assert changed["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert "generation" not in changed
    assert changed["labels"] == {"b": "c"}


async def test_another_uid_is_a_conflict(client: Client) -> None:
    made = await client.made(NODES, node("n1"))
    made["metadata"]["uid"] = "another"
    assert (await client.put(f"{NODES}/n1", made)).status == 409


async def test_racing_writers_lose_no_update(client: Client) -> None:
    await client.made(CONFIG_MAPS, config_map("count", {"n": "0"}))

    async def add_one() -> None:
        for _ in range(5):
            status = 409
            while status == 409:
                document = (await client.get(f"{CONFIG_MAPS}/count")).document
                document["data"]["n"] = str(int(document["data"]["n"]) + 1)
                status = (await client.put(f"{CONFIG_MAPS}/count", document)).status
            assert status == 200

    await asyncio.gather(*(add_one() for _ in range(6)))
    assert (await client.get(f"{CONFIG_MAPS}/count")).document["data"]["n"] == "30"
