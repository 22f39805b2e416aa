"""Lists: selectors, pages, snapshots, shapes."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.simulator.api.client import CONFIG_MAPS, NODES, PODS, Client, config_map, node, pod


@pytest.fixture
async def nodes(client: Client) -> None:
    await client.made(NODES, node("c", labels={"zone": "z"}))
    await client.made(NODES, node("a", labels={"zone": "x", "pool": "p", "size": "5"}))
    await client.made(NODES, {**node("b", "False", labels={"zone": "y"}), "spec": {"unschedulable": True}})


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("zone=x", ["a"]),
        ("zone!=x", ["b", "c"]),
        ("zone in (x, z)", ["a", "c"]),
        ("zone notin (x,z)", ["b"]),
        ("pool", ["a"]),
        ("zone in (x,y),!pool", ["b"]),
        ("size>4", ["a"]),
        ("size<4", []),
        ("metadata.name=b", ["b"]),
        ("metadata.name!=b", ["a", "c"]),
        ("spec.unschedulable=true", ["b"]),
        ("spec.unschedulable=false", ["a", "c"]),
        ("metadata.name=b,spec.unschedulable=false", []),
    ],
)
async def test_selectors_of_labels_and_fields(client: Client, selector: str, expected: list[str]) -> None:
    which = "field" if "." in selector else "label"
    assert (await client.get(f"{NODES}?{which}Selector={quote(selector)}")).names == expected


async def test_pods_are_found_by_node_and_phase(client: Client) -> None:
    for name, on in (("p1", "a"), ("p2", "b"), ("p3", None)):
        await client.made(PODS, pod(name, on))
    assert (await client.get("/api/v1/pods?fieldSelector=spec.nodeName=a")).names == ["p1"]
    assert (await client.get(f"{PODS}?fieldSelector=spec.nodeName=")).names == ["p3"]
    assert (await client.get(f"{PODS}?fieldSelector=spec.nodeName!=a")).names == ["p2", "p3"]
    await client.patch(f"{PODS}/p1/status", {"status": {"phase": "Running"}})
    assert (await client.get(f"{PODS}?fieldSelector=spec.nodeName=a,status.phase!=Running")).names == []
    await client.delete(f"{PODS}/p1?gracePeriodSeconds=0")
    assert (await client.get("/api/v1/pods?fieldSelector=spec.nodeName=a")).names == []


async def test_pages_show_one_snapshot(client: Client) -> None:
    for name in "abcde":
        await client.made(CONFIG_MAPS, config_map(name))
    first = await client.get(f"{CONFIG_MAPS}?limit=2")
    assert (first.names, first.metadata["remainingItemCount"]) == (["a", "b"], 3)
    await client.delete(f"{CONFIG_MAPS}/c")
    await client.patch(f"{CONFIG_MAPS}/d", {"data": {"key": "later"}})
    await client.made(CONFIG_MAPS, config_map("cc"))
    second = await client.get(f"{CONFIG_MAPS}?limit=2&continue={first.metadata['continue']}")
    assert second.names == ["c", "d"]
    assert second.document["items"][1]["data"] == {"key": "value"}
    assert second.version == first.version
    third = await client.get(f"{CONFIG_MAPS}?limit=2&continue={second.metadata['continue']}")
    assert third.names == ["e"]
    assert "continue" not in third.metadata
