"""Our namespace of Temporal: the typed search attributes are created where we may, else told how, and a clash of types is never
papered over; and the name by which its deployment holds a cluster's Lease.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from activities.contracts import search_attributes
from tests.workers.server import development_server
from workers import temporal_namespace
from workers.configuration.process_settings import TemporalSettings
from workers.connect import connect
from workers.errors import SearchAttributesError
from workers.temporal_namespace import ensure_search_attributes, holder, name_embedded, required_search_attributes


@pytest.fixture
async def client(server: str) -> Client:
    """In a namespace of its own, without our attributes."""
    default = await connect(TemporalSettings(address=server), patience=timedelta(seconds=10))
    name = f"n-{uuid.uuid4().hex[:8]}"
    request = RegisterNamespaceRequest(namespace=name)
    request.workflow_execution_retention_period.FromTimedelta(timedelta(days=1))
    await default.workflow_service.register_namespace(request)
    while True:
        try:
            fresh = await Client.connect(server, namespace=name)
            await fresh.count_workflows("WorkflowId = 'none'")
        except RPCError:  # the namespace is not known everywhere yet
            continue
        return fresh


async def test_missing_ones_are_created_and_usable_at_once(client: Client) -> None:
    assert set(await ensure_search_attributes(client)) == {
        "Cluster",
        "Node",
        "Zone",
        "Kind",
        "Phase",
        "Reason",
        "Outcome",
        "Hardware",
        "RepairMode",
    }
    await client.start_workflow(
        "Anything",
        id="typed",
        task_queue="none",
        search_attributes=TypedSearchAttributes([SearchAttributePair(search_attributes.NODE, "node-7")]),
    )
    assert await ensure_search_attributes(client) == ()


async def test_where_we_shall_not_create_them_the_command_is_told(client: Client) -> None:
    with pytest.raises(SearchAttributesError) as refusal:
        await ensure_search_attributes(client, create=False)
    assert f"temporal operator search-attribute create -n {client.namespace} --name Cluster --type Keyword" in str(refusal.value)


async def test_where_we_may_not_create_them_the_command_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_args: object, **_kwargs: object) -> None:
        raise RPCError("not allowed", RPCStatusCode.PERMISSION_DENIED, b"")

    monkeypatch.setattr(client.operator_service, "add_search_attributes", refuse)
    with pytest.raises(SearchAttributesError, match=r"search-attribute create .*\(not allowed\)"):
        await ensure_search_attributes(client)


@pytest.mark.parametrize("present", [True, False])
async def test_where_we_may_not_even_look_using_them_is_the_question(
    client: Client, monkeypatch: pytest.MonkeyPatch, present: bool
) -> None:
    """Temporal Cloud shows a worker's key no operator service."""
    if present:
        await ensure_search_attributes(client)

    async def refuse(*_args: object, **_kwargs: object) -> None:
        raise RPCError("not allowed", RPCStatusCode.PERMISSION_DENIED, b"")

    monkeypatch.setattr(client.operator_service, "list_search_attributes", refuse)
    if present:
        assert await ensure_search_attributes(client) == ()
    else:
        with pytest.raises(SearchAttributesError, match="lacks the search attributes"):
            await ensure_search_attributes(client)


async def test_one_of_another_type_is_refused_by_name(client: Client) -> None:
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(
            namespace=client.namespace, search_attributes={"Node": IndexedValueType.INDEXED_VALUE_TYPE_INT}
        )
    )
    with pytest.raises(SearchAttributesError, match=r"another type than ours \(Keyword\): Node is Int"):
        await ensure_search_attributes(client)


def test_all_that_workflows_set_are_required() -> None:
    assert set(required_search_attributes()) == {key.name for key in search_attributes.ALL}


# How a cluster's Lease names us (S38).


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
