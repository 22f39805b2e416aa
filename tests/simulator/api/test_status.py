"""The status subresource keeps two writers out of each other's way."""

from __future__ import annotations

from tests.simulator.api.client import BUDGETS, NODES, PODS, STRATEGIC, Client, budget, node, pod


async def test_a_patch_of_the_object_leaves_its_status(client: Client) -> None:
    await client.made(NODES, node("n1"))
    conditions = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    changed = await client.patch(f"{NODES}/n1", {**conditions, "spec": {"unschedulable": True}})
    assert changed.document["spec"]["unschedulable"] is True
    assert changed.document["status"]["conditions"][0] == {"type": "Ready", "status": "True"}


async def test_a_patch_of_the_status_leaves_the_spec(client: Client) -> None:
    await client.made(NODES, node("n1"))
    conditions = [{"type": "Ready", "status": "Unknown"}]
    patch = {"spec": {"unschedulable": True}, "status": {"conditions": conditions}}
    changed = await client.patch(f"{NODES}/n1/status", patch, STRATEGIC)
    assert "unschedulable" not in changed.document["spec"]
    states = {each["type"]: each["status"] for each in changed.document["status"]["conditions"]}
    assert states == {"Ready": "Unknown", "DiskPressure": "False"}


async def test_a_status_can_be_read_and_replaced(client: Client) -> None:
    await client.made(PODS, pod("p1", "n1"))
    document = (await client.get(f"{PODS}/p1/status")).document
    document["status"]["phase"] = "Running"
    document["spec"]["priority"] = 7
    changed = (await client.put(f"{PODS}/p1/status", document)).document
    assert (changed["status"]["phase"], changed["spec"]["priority"]) == ("Running", 0)
    assert (await client.put(f"{PODS}/p1/status", document)).status == 409


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
