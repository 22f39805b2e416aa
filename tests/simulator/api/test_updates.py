"""Replacing objects: optimistic locking and what a client may not change."""

from __future__ import annotations

import asyncio

from tests.simulator.api.client import (
    ATTACHMENTS,
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODES,
    PODS,
    SECRETS,
    Client,
    config_map,
    lease,
    named,
    node,
    pod,
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


async def test_a_put_creates_a_missing_lease_or_event_and_nothing_else(client: Client) -> None:
    assert (await client.put(f"{LEASES}/l", lease("l", "me"))).status == 201
    involved = {"kind": "Node", "name": "n1"}
    event = {**named("Event", "e"), "involvedObject": involved, "reason": "Because"}
    assert (await client.put(f"{EVENTS}/e", event)).status == 201
    assert (await client.put(f"{CONFIG_MAPS}/a", config_map("a"))).status == 404


async def test_the_name_in_the_body_must_be_the_name_in_the_path(client: Client) -> None:
    await client.made(CONFIG_MAPS, config_map("a"))
    assert (await client.put(f"{CONFIG_MAPS}/a", config_map("b"))).status == 400


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


async def test_immutable_things_stay(client: Client) -> None:
    await client.made(CONFIG_MAPS, {**config_map("sealed"), "immutable": True})
    assert (await client.patch(f"{CONFIG_MAPS}/sealed", {"data": {"key": "other"}})).status == 422
    await client.made(PODS, pod("p1", "n1"))
    assert (await client.patch(f"{PODS}/p1", {"spec": {"nodeName": "n2"}})).status == 422
    await client.made(NODES, {**node("n1"), "spec": {"providerID": "sim://one"}})
    assert (await client.patch(f"{NODES}/n1", {"spec": {"providerID": "sim://two"}})).status == 422
    spec = {"attacher": "csi", "nodeName": "n1", "source": {"persistentVolumeName": "v"}}
    await client.made(ATTACHMENTS, {**named("VolumeAttachment", "a", "storage.k8s.io/v1"), "spec": spec})
    assert (await client.patch(f"{ATTACHMENTS}/a", {"spec": {"nodeName": "n2"}})).status == 422


async def test_a_pods_image_may_change(client: Client) -> None:
    made = await client.made(PODS, pod("p1"))
    made["spec"]["containers"][0]["image"] = "registry.example/app:2"
    answer = await client.put(f"{PODS}/p1", made)
    assert (answer.status, answer.metadata["generation"]) == (200, 2)


async def test_secrets_encode_what_was_written_in_plain(client: Client) -> None:
    made = await client.made(SECRETS, {**named("Secret", "s"), "stringData": {"user": "admin"}})
    assert (made["data"], made["type"]) == ({"user": "YWRtaW4="}, "Opaque")
    assert "stringData" not in made


async def test_a_lease_with_an_unreadable_time_is_a_bad_request(client: Client) -> None:
    bad = lease("l", "me")
    bad["spec"]["renewTime"] = "yesterday"
    assert (await client.post(LEASES, bad)).status == 400
    bad["spec"] = {"leaseDurationSeconds": 0}
    assert (await client.post(LEASES, bad)).status == 422
