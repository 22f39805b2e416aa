"""Replacing objects: optimistic locking, what a client may not change, and that whoever writes a status keeps to it."""

from __future__ import annotations

from tests.simulator.api.client import (
    BUDGETS,
    CONFIG_MAPS,
    LEASES,
    NODES,
    STRATEGIC,
    Client,
    budget,
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
    assert (await client.put(f"{NODES}/n1", {**first.document, "metadata": {**first.metadata, "uid": "another"}})).status == 409


async def test_without_a_version_core_kinds_are_replaced_and_leases_refused(client: Client) -> None:
    await client.made(CONFIG_MAPS, config_map("a", {"x": "1"}))
    assert (await client.put(f"{CONFIG_MAPS}/a", config_map("a", {"y": "2"}))).document["data"] == {"y": "2"}
    await client.made(LEASES, lease("l", "me"))
    assert (await client.put(f"{LEASES}/l", lease("l", "you"))).status == 422


async def test_a_patch_of_the_status_leaves_the_spec(client: Client) -> None:
    await client.made(NODES, node("n1"))
    conditions = [{"type": "Ready", "status": "Unknown"}]
    patch = {"spec": {"unschedulable": True}, "status": {"conditions": conditions}}
    changed = await client.patch(f"{NODES}/n1/status", patch, STRATEGIC)
    assert "unschedulable" not in changed.document["spec"]
    states = {each["type"]: each["status"] for each in changed.document["status"]["conditions"]}
    assert states == {"Ready": "Unknown", "DiskPressure": "False"}


async def test_generations_count_changes_of_the_spec_only(client: Client) -> None:
    await client.made(BUDGETS, budget("b", {"app": "a"}, minAvailable=1))

    async def generation() -> int:
        return int((await client.get(f"{BUDGETS}/b")).metadata["generation"])

    first = await generation()
    await client.patch(f"{BUDGETS}/b", {"spec": {"minAvailable": 2}})
    assert await generation() == first + 1
    await client.patch(f"{BUDGETS}/b", {"metadata": {"labels": {"a": "b"}}})
    await client.patch(f"{BUDGETS}/b/status", {"status": {"disruptionsAllowed": 1}})
    assert await generation() == first + 1
