"""Accidents on demand: each does what it says, to the requests it names and to no others."""

from __future__ import annotations

import aiohttp
import pytest

from simulator.api.control.faults import Accident, Fault, restarting
from simulator.api.server import ApiServer
from tests.simulator.api.client import CONFIG_MAPS, DEFINITIONS, GADGETS, NODES, Client, config_map, definition, node


async def test_a_refused_request_is_not_carried_out(api: ApiServer, client: Client) -> None:
    identity = api.faults.add(Fault(accident=Accident.REFUSE, method="POST", path="/configmaps$", count=1))
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.post(CONFIG_MAPS, config_map("a"))
    assert (await client.get(CONFIG_MAPS)).names == []
    assert (await client.post(CONFIG_MAPS, config_map("a"))).status == 201
    assert api.faults.hits(identity) == 1


async def test_a_lost_answer_was_carried_out(api: ApiServer, client: Client) -> None:
    """S33: the writer cannot tell this from a refusal, so it has to read before it writes again."""
    api.faults.add(Fault(accident=Accident.LOSE_ANSWER, verb="create", count=1))
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.post(CONFIG_MAPS, config_map("a"))
    assert (await client.get(CONFIG_MAPS)).names == ["a"]
    assert (await client.post(CONFIG_MAPS, config_map("a"))).status == 409


async def test_a_server_that_comes_back_knows_no_rights_and_then_no_kinds_of_definitions(api: ApiServer, client: Client) -> None:
    """As kube-apiserver 1.36 was seen to answer after a SIGKILL, in its words."""
    await client.made(DEFINITIONS, definition())
    async with client.watch(CONFIG_MAPS) as events:
        for fault in restarting(forbidden=3, initializing=2):
            api.faults.add(fault)
        with pytest.raises((aiohttp.ClientError, EOFError)):
            await events.next()
    for path, subject in (
        (f"{NODES}/n1", 'nodes "n1" is forbidden: User "admin" cannot get resource "nodes" in API group "" at the cluster scope'),
        (GADGETS, 'gadgets.example.org is forbidden: User "admin" cannot list resource "gadgets" in API group "example.org"'),
        ("/version", 'forbidden: User "admin" cannot get path "/version"'),
    ):
        answer = await client.get(path)
        assert (answer.status, answer.reason) == (403, "Forbidden")
        assert subject in answer.document["message"]
    assert (await client.get(f"{NODES}/n1")).status == 404, "what is part of Kubernetes is served at once"
    listed, read = await client.get(GADGETS), await client.get(f"{GADGETS}/x")
    assert (listed.status, listed.document["message"], listed.headers["Retry-After"]) == (429, "storage is (re)initializing", "1")
    assert (read.status, read.reason, read.headers["Retry-After"]) == (503, "ServiceUnavailable", "5")
    assert (await client.get(GADGETS)).status == 200


async def test_faults_over_http(api: ApiServer, client: Client) -> None:
    added = await client.post("/simulator/faults", {"accident": "status", "status": 500, "path": "/nodes", "count": 2})
    assert added.status == 201
    assert (await client.get(NODES)).status == 500
    listed = (await client.get("/simulator/faults")).document["faults"]
    assert [(each["id"], each["hits"], each["left"]) for each in listed] == [(added.document["id"], 1, 1)]
    assert (await client.delete(f"/simulator/faults/{added.document['id']}")).status == 200
    assert (await client.get(NODES)).status == 200
    assert (await client.delete("/simulator/faults/fault-99")).status == 404
    await client.post("/simulator/faults", {"accident": "refuse", "path": "/nodes"})
    assert (await client.delete("/simulator/faults")).document == {"faults": []}
    async with client.watch(CONFIG_MAPS) as events:
        await client.made(CONFIG_MAPS, config_map("a"))
        await events.told(1)
        assert (await client.post("/simulator/faults", {"accident": "cut-watches"})).document["hits"] == 1


async def test_requests_are_counted_and_writes_logged(api: ApiServer, client: Client) -> None:
    await client.ask("GET", NODES, agent="reader")
    await client.ask("POST", NODES, node("n1"), agent="writer")
    await client.ask("POST", NODES, node("n1"), agent="writer")
    async with client.watch(NODES, agent="reader") as events:
        await events.told(1)
        assert api.requests.total("watch", "nodes", "reader") == 1
    assert (api.requests.reads["reader"], api.requests.writes["reader"], api.requests.writes["writer"]) == (2, 0, 2)
    assert [(write.method, write.path, write.status) for write in api.requests.log] == [
        ("POST", NODES, 201),
        ("POST", NODES, 409),
    ]
    shown = (await client.get("/simulator/requests")).document
    assert shown["writes"] == {"writer": 2}
    assert [write["user_agent"] for write in shown["log"]] == ["writer", "writer"]
    await client.delete("/simulator/requests")
    assert not api.requests.log
    assert not api.requests.reads
