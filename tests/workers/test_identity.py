"""How a cluster's Lease names us (S38)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from temporalio.client import Client

from tests.workers.server import development_server
from workers import temporal_namespace
from workers.configuration.process_settings import TemporalSettings
from workers.connect import connect
from workers.temporal_namespace import holder, name_embedded


@pytest.fixture(scope="module")
def other_server() -> Iterator[str]:
    """Another deployment's Temporal, with a `default` namespace like ours."""
    with development_server() as address:
        yield address


async def client_of(address: str) -> Client:
    return await connect(TemporalSettings(address=address), patience=timedelta(seconds=10))


async def test_two_deployments_are_told_apart_although_both_call_their_namespace_default(server: str, other_server: str) -> None:
    ours, theirs = await holder(await client_of(server)), await holder(await client_of(other_server))
    assert ours.startswith("default/")
    assert ours != theirs


async def test_every_process_of_a_deployment_has_the_same_name_whatever_address_it_uses(server: str) -> None:
    other_spelling = server.replace("127.0.0.1", "localhost")
    assert await holder(await client_of(server)) == await holder(await client_of(other_spelling))


async def test_an_embedded_server_keeps_the_name_of_its_first_start(other_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop's host name changes with its network; an episode that runs must still find its own Lease."""
    client = await client_of(other_server)
    monkeypatch.setattr("platform.node", lambda: "laptop")
    monkeypatch.setattr(temporal_namespace, "_user", lambda: "amy")
    await name_embedded(client)
    first = await holder(client)
    assert first.startswith("amy@laptop/")
    monkeypatch.setattr("platform.node", lambda: "laptop.home")
    await name_embedded(client)
    assert await holder(client) == first
